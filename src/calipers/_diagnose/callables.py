"""Call implementations with arrays of their libraries, and return results as NumPy arrays."""

import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np
from numba.core.errors import NumbaError

from .._core.containers import flatten
from .._core.dtypes import ROUNDOFF
from .._core.libraries import library_of, loaded_libraries
from .._core.protocols import ArrayLibrary, NDArray
from .arrays import HIGHER_PRECISION, REAL_FORMATS, Result, perturb, raw_bytes
from .observed_formats import call_in_float64, observe_jax, observe_torch
from .parameters import Parameters, match


class BudgetError(Exception):
    """Raised when no calls remain."""


@dataclass
class Budget:
    """Counter of the calls of f and g; it shows the progress after one second."""

    limit: int
    spent: int = 0
    next_message_time: float = field(default_factory=lambda: time.perf_counter() + 1)

    @property
    def remaining(self) -> int:
        return self.limit - self.spent

    def take(self) -> None:
        if self.remaining <= 0:
            raise BudgetError
        self.spent += 1
        if time.perf_counter() > self.next_message_time:
            self.next_message_time = time.perf_counter() + 0.2
            _print_progress(f"\rdiagnose: {self.spent} of at most {self.limit} calls ")

    def end(self) -> None:
        """Erase the progress line."""
        _print_progress("\r\033[K")


def _print_progress(line: str) -> None:
    """Write to stderr if it is a terminal; without a console it is None."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(line, end="", file=sys.stderr, flush=True)


@dataclass
class Implementation:
    """
    An implementation, called with arrays of the library that it accepts.

    This is the library of the caller's inputs, or a different one if the function rejects arrays of
    that type: a port often takes arrays of a different library than the original.
    """

    name: str
    call: Callable[..., Any]
    likes: Sequence[Any]  # the caller's inputs
    budget: Budget
    calls: int = 0
    copies: bool = True  # copy arguments, since calls may modify them
    # Whether calls modify their arguments, by the dtypes of these.
    writes: dict[tuple[Any, ...], bool] = field(default_factory=dict)
    convert: Callable[[Any, Any], Any] | None = None  # to an argument; set by the first call
    merges_numbers: bool = False  # join scalars, since the other function returns an array
    adapt: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None  # to nested inputs
    announce: Callable[[], None] | None = None  # called before each call
    form: str = "float32"  # the working precision, as torch functions in float64 report it
    _on_exception: Callable[[str, int], Any] | None = None  # called by NumPy
    runs_in_float64: bool = False  # every lower format of a torch function is replaced
    shared: tuple["_Shared", ...] = ()  # values of the parameters
    functions: set[str] = field(default_factory=set)  # of torch, called in higher precision

    @property
    def array_library(self) -> str:
        """Name of the library whose arrays it is called with; the first of several."""
        if isinstance(self.convert, partial):
            return type(self.convert.args[0]).__name__.lower()
        library = next(filter(None, map(library_of, self.likes)), None)
        is_numpy = library is None or self.convert is _as_numpy
        return "NumPy" if is_numpy else type(library).__name__.lower()

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters that the function captures."""
        return Parameters(self.call)

    def share_parameters(self, other: "Implementation") -> None:
        """
        Match the parameters of two implementations; this one may hold rounded values.

        What both have gets the same value, before rounding, and the same perturbations.
        """
        mine, theirs = self.parameters.arrays, other.parameters.arrays
        keys = match(other.parameters, self.parameters) if mine and theirs else [None] * len(mine)
        both = {key for key in keys if key is not None}
        if len(both) < max(len(theirs), len(mine)):
            # Arrays that only one has may be computed from others, which must not change alone.
            both = {key for key in both if ":" in other.parameters.names[key]}
        other.shared = tuple(_Shared(k, x, k in both) for k, x in enumerate(theirs))
        self.shared = tuple(
            _Shared(len(theirs) + k, x, False) if key is None else other.shared[key]
            for k, (key, x) in enumerate(zip(keys, mine, strict=True))
        )

    @property
    def uses_torch(self) -> bool:
        """Whether it is called with tensors, or a torch module."""
        return self.array_library == "torch"

    def _function_at(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return the function, with parameters promoted and perturbed as the inputs are."""
        wide, delta, seed = (getattr(inputs, name, 0) for name in ("wide", "delta", "seed"))
        call = self.call
        if (wide or delta) and self.shared:
            all_of_them = getattr(inputs, "alone", False)
            values = [
                x.perturbed(delta, seed, self.form, bool(wide))
                if delta and (x.in_both or all_of_them)
                else x.value
                for x in self.shared
            ]
            call = self.parameters.bind(values, bool(wide))
        return call if self.adapt is None else self.adapt(call)

    def observed_formats(self, inputs: Sequence[Any]) -> dict[str, int]:
        """
        Return how many results of operations have each format, where the library tells it.

        It is empty for functions of NumPy's arrays, and where watching a call raises an exception.
        """
        library = self.array_library
        if library not in ("torch", "jax") or self.convert is None:
            return {}
        self.budget.take()
        self.calls += 1
        with suppress(Exception), np.errstate(all="ignore"):
            likes = zip(map(_private_argument, inputs, repeat(True)), self.likes, strict=True)
            passed = tuple(self.convert(x, like) for x, like in likes)
            call = self._function_at(inputs)
            if library == "jax":
                return observe_jax(call, passed)
            return observe_torch(lambda: call(*passed))
        return {}

    def exceptions_at(self, inputs: Sequence[Any]) -> set[str]:
        """Return the floating-point exceptions that NumPy reports in a call: "overflow", ..."""
        raised: set[str] = set()
        self._on_exception = lambda kind, _: raised.add(kind)
        try:
            self(inputs)
        finally:
            self._on_exception = None
        return raised

    def __call__(self, inputs: Sequence[Any]) -> Result:
        """Call the function with the inputs, which it cannot modify."""
        if self.convert is not None:
            return self._evaluate(inputs, self.convert)
        results = []
        for way in chain([_as_original_type], _alternative_conversions(self.likes)):
            results.append(self._evaluate(inputs, way))
            error = results[-1].error
            if error is None or not _refuses_type(error, self._types(inputs, way)):
                self.convert = way
                return results[-1]
        self.convert = _as_original_type
        return results[0]

    def _types(self, inputs: Sequence[Any], way: Callable[[Any, Any], Any]) -> set[type[Any]]:
        """Return the types of the arrays that are passed to a call."""
        pairs = zip(inputs, self.likes, strict=True)
        return {type(way(x, like)) for x, like in pairs if isinstance(x, np.ndarray)}

    def _evaluate(self, inputs: Sequence[Any], sent: Callable[[Any, Any], Any]) -> Result:
        self.budget.take()
        self.calls += 1
        if self.announce is not None:
            self.announce()
        # If the first call did not modify its copies, later calls get the arrays themselves. This
        # is recorded for each set of dtypes, since a conversion copies some of them.
        dtypes = tuple(x.dtype for x in inputs if isinstance(x, np.ndarray))
        first = self.copies and dtypes not in self.writes
        copied = first or self.writes.get(dtypes, False)
        arguments = [_private_argument(x, copied) for x in inputs]
        try:
            watch = self._on_exception
            state: Any = {"over": "call", "call": watch} if watch else {}
            with np.errstate(all="ignore"), np.errstate(**state):
                passed = [sent(x, like) for x, like in zip(arguments, self.likes, strict=True)]
                call = partial(self._function_at(inputs), *passed)
                if self.runs_in_float64 and getattr(inputs, "wide", False):
                    y = call_in_float64(call, self.form, self.functions)
                else:
                    y = call()
        except Exception as error:
            return Result(error=error)
        try:
            leaves = list(_leaves(y, self.name))
        except TypeError:  # results that cannot be compared
            raise
        except Exception as error:  # of asynchronous work, when it is read
            return Result(error=error)
        result = Result(
            tuple(leaf.array for leaf in leaves),
            names=tuple(leaf.keys for leaf in leaves),
            native_dtypes=tuple(leaf.dtype for leaf in leaves),
        )
        del y  # frees its memory, unless the function holds it
        _poison_memory(result.arrays, self.budget.spent // 2)  # f and g are called alternately
        if first:
            pairs = zip(arguments, inputs, strict=True)
            self.writes[dtypes] = any(_differ(x, then) for x, then in pairs)
        return result.joined() if self.merges_numbers else result


# Seeds of the perturbations of parameters are this far apart, and far from those of inputs.
_KEY_STEP = 1_000_003


class _Shared(NamedTuple):
    """A parameter, its number among those of both implementations, and whether both have it."""

    number: int
    value: NDArray
    in_both: bool

    def perturbed(self, delta: float, seed: int, form: str, wide: bool) -> NDArray:
        """Perturb it by as many ulps of its format, if that is finer than the working precision."""
        x = self.value
        fine = ROUNDOFF.get(REAL_FORMATS.get(x.dtype.name, x.dtype.name), 0.0)
        delta = delta * min(1.0, fine / ROUNDOFF[form])
        kind = HIGHER_PRECISION.get(x.dtype.name, x.dtype) if wide else x.dtype
        array_seed = (seed + _KEY_STEP * (self.number + 1)) % 2**64
        return perturb(x, delta, array_seed, np.empty(x.size, kind))


# Freed memory is filled with these bytes: a NaN in any format, and a finite number.
POISON_BYTES = (0xFF, 0x3F)
# Several blocks of up to this many bytes are poisoned: scratch memory may have the same size.
_POISON_SEVERAL_BYTES = 1 << 20
# Blocks of at least this many bytes are not poisoned: the system returns them zeroed.
_FRESH_BYTES = 1 << 25


def _poison_memory(arrays: Sequence[NDArray], turn: int) -> None:
    """
    Poison freed memory of the results' sizes, with a different byte in each turn.

    A function that does not write all of its results would otherwise find those of an earlier call.
    """
    byte = POISON_BYTES[turn % len(POISON_BYTES)]
    for size in (x.nbytes for x in arrays if x.nbytes < _FRESH_BYTES):
        count = 4 if size <= _POISON_SEVERAL_BYTES else 1
        _ = [np.full(size, byte, np.uint8) for _ in range(count)]  # allocated before any is freed


_DRAWS = (np.random.Generator, np.random.RandomState, random.Random)


def _refuses_type(error: Exception, types: Iterable[type[Any]]) -> bool:
    """
    Return True if a function raised because arrays were of one of these types, whatever they hold.

    Such an error names the type, or is a TypeError or AttributeError of a function that was passed
    another library's arrays. Any other exception is the function's result.
    """
    text, foreign = str(error), [kind for kind in types if kind.__module__ != "numpy"]
    if isinstance(error, Warning):  # NumPy's, for arrays with its old __array__ protocol
        return "__array" in text
    if isinstance(error, IndexError):
        return bool(foreign) and "valid indices" in text  # how libraries reject a type of index
    if not isinstance(error, (TypeError, AttributeError, NumbaError)):
        return False
    names = [rf"{kind.__module__}\.{kind.__name__}" for kind in types]
    for kind in foreign:  # or a dtype that only this library has
        names += [kind.__name__, rf"{kind.__module__.partition('.')[0]}\.\w+"]
    if re.search(rf"(not |got |['.])({'|'.join(names) or '(?!)'})\b", text):
        return True
    # A tensor lacks methods of NumPy's arrays, or they have different parameters.
    return bool(foreign)


def _as_original_type(x: Any, like: Any) -> Any:
    """Convert an array to the type of the caller's input: a library's array, or a scalar."""
    if not isinstance(x, np.ndarray):
        return x
    library = library_of(like)
    if library is not None:
        return library.put(x, like)
    return x[()] if not isinstance(like, np.ndarray) and np.ndim(like) == 0 else x


def _alternative_conversions(likes: Sequence[Any]) -> Iterator[Callable[[Any, Any], Any]]:
    """Yield other conversions of arguments: to NumPy arrays, and to those of loaded libraries."""
    libraries = {library_of(like) for like in likes}
    if libraries - {None}:
        yield _as_numpy
    for library in loaded_libraries():
        if library not in libraries:
            yield partial(_as_library_array, library)


def _as_numpy(x: Any, like: Any) -> Any:
    return x


def _as_library_array(library: ArrayLibrary, x: Any, like: Any) -> Any:
    return library.from_numpy(x) if isinstance(x, np.ndarray) else x


def _private_argument(x: Any, copied: bool) -> Any:
    """Return an argument that a call may modify; arrays are copied only if `copied`."""
    if isinstance(x, np.ndarray):  # the layout of a non-contiguous one is kept
        return x.copy(order="K") if copied and x.flags.forc else x
    held, together = flatten(x)
    return together([_copy_mutable(leaf) for _, leaf in held])


def _copy_mutable(x: Any) -> Any:
    """
    Copy random generators, sets and bytearrays, so that the caller's do not change.

    Other objects, such as a model, are passed as they are.
    """
    if isinstance(x, _DRAWS):
        return deepcopy(x)
    kind: type[Any] | None = getattr(sys.modules.get("torch"), "Generator", None)
    if kind is not None and isinstance(x, kind):
        return x.clone_state()
    return copy(x) if isinstance(x, (set, bytearray)) else x


def _differ(x: Any, then: Any) -> bool:
    if not isinstance(x, np.ndarray):
        return False
    if x.dtype.kind in "biufc" or x.dtype.isbuiltin == 2:
        x, then = raw_bytes(x), raw_bytes(then)
    return not np.array_equal(x, then)


class _Leaf(NamedTuple):
    """A returned array, the keys by which it is reached, and its original dtype."""

    keys: str
    array: NDArray
    dtype: str


def _leaves(y: Any, name: str, keys: str = "", *, within: bool = False) -> Iterator[_Leaf]:
    """Yield the arrays in the value that the function called `name` returned."""
    if isinstance(y, dict):  # sorted, since the order of insertion may differ
        for key in sorted(y, key=str):
            yield from _leaves(y[key], name, f"{keys}[{key!r}]", within=True)
        return
    if isinstance(y, np.ma.MaskedArray):
        y = (y.filled(0), np.ma.getmaskarray(y))
    if isinstance(y, (tuple, list)) and not _are_numbers(y):
        for item in y:
            yield from _leaves(item, name, keys, within=True)
        return
    if y is None and within:  # a missing result, among others
        yield _Leaf(keys, np.empty(0, bool), "bool")
        return
    library = library_of(y)
    array = np.asarray(y) if library is None else np.asarray(library.fetch(y))
    if array.dtype.kind not in "biufc" and array.dtype.isbuiltin != 2:
        msg = (
            f"{name} must return numbers, got {_describe_nonnumeric(y)}: return an array, or a "
            "tuple of arrays"
        )
        raise TypeError(msg)
    copied = array.astype(np.float32) if array.dtype.isbuiltin == 2 else array.copy()
    yield _Leaf(keys, copied, array.dtype.name)


def _describe_nonnumeric(y: Any) -> str:
    """Describe a returned value that is not numeric."""
    if isinstance(y, int):
        return "an integer of more than 64 bits"
    if y is None:
        return "None, as from a function that only writes to an array"
    kind = type(y).__name__
    return f"{kind} of dtype {y.dtype}" if hasattr(y, "dtype") else kind


def _are_numbers(y: Any) -> bool:
    """Return True if y is a list of Python scalars of one type: one array of results."""
    kinds = {type(item) for item in y} if isinstance(y, list) else set()
    return len(kinds) == 1 and kinds <= {bool, int, float, complex}
