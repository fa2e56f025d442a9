"""Call implementations with arrays of their libraries, and return results as NumPy arrays."""

import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numba.core.errors import NumbaError

from .._compare.elementwise import equal_arrays
from .._core.containers import flatten
from .._core.dtypes import as_real_vector, real_parts
from .._core.libraries import library_of, loaded_libraries
from .._core.protocols import ArrayLibrary, NDArray

# Exceptions are quoted up to this many characters.
_MAX_ERROR_CHARS = 300
# Bytes of an x87 extended-precision number; the rest of a long double is padding.
_X87_BYTES = 10


@dataclass(frozen=True)
class Result:
    """The arrays that an implementation returned, in order, or the exception that it raised."""

    arrays: tuple[NDArray, ...] = ()
    error: Exception | None = None
    names: tuple[str, ...] = ()  # keys by which each array is reached
    native_dtypes: tuple[str, ...] = ()  # returned dtypes, if the arrays have others

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Names of the returned dtypes."""
        return self.native_dtypes or tuple(x.dtype.name for x in self.arrays)

    def bits(self) -> tuple[Any, ...]:
        """Return a key that is equal for bitwise equal results."""
        arrays = tuple((x.shape, x.dtype.str, raw_bytes(x).tobytes()) for x in self.arrays)
        return *arrays, *self.dtypes

    def title(self, k: int) -> str:
        """Return the label of array k: its keys, or its position."""
        return (self.names[k] if self.names else "") or str(k)

    def joined(self) -> "Result":
        """Join several scalars into one array; return any other result unchanged."""
        if len(self.arrays) < 2 or any(self.names) or {*self.shapes} != {()}:
            return self
        return Result((np.array([x[()] for x in self.arrays]),), names=("",))

    def numbers(self, dtype: Any) -> NDArray:
        """Return all entries as one real vector; a complex entry is two."""
        with np.errstate(over="ignore"):
            parts = [as_real_vector(np.ascontiguousarray(x)) for x in self.arrays]
            wide = [part.astype(dtype, copy=False) for part in parts]
        if len(wide) == 1:
            return wide[0]
        return np.concatenate([np.empty(0, dtype), *wide])

    @property
    def integers(self) -> NDArray:
        """Mask of the entries that are integers or booleans."""
        return self.repeat_each(np.array([x.dtype.kind in "biu" for x in self.arrays], bool))

    @property
    def _counts(self) -> NDArray:
        """Number of real entries of each array."""
        return np.array([x.size * real_parts(x.dtype) for x in self.arrays], int)

    def repeat_each(self, values: NDArray) -> NDArray:
        """Repeat one value of each array for each of its real entries."""
        return np.repeat(values, self._counts)

    def split(self, numbers: NDArray) -> list[NDArray]:
        """Split a vector with one item for each real entry into one vector for each array."""
        return np.split(numbers, np.cumsum(self._counts)[:-1])

    def locate(self, number: int) -> tuple[int, tuple[int, ...]]:
        """Return the array that a real entry belongs to, and its index in that array."""
        starts = np.cumsum(self._counts) - self._counts
        k = int(np.searchsorted(starts, number, side="right")) - 1
        x = self.arrays[k]
        element = (number - int(starts[k])) // real_parts(x.dtype)
        return k, tuple(int(i) for i in np.unravel_index(element, x.shape))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(x.shape for x in self.arrays)

    @property
    def forms(self) -> tuple[Any, ...]:
        """Shape of each array, and whether it is complex: equal for comparable results."""
        return tuple((x.shape, x.dtype.kind == "c") for x in self.arrays)


def comparable(*results: Result) -> bool:
    """Return True if results can be compared entry by entry, and none is an exception."""
    return all(x.error is None and x.forms == results[0].forms for x in results)


def describe_name_mismatch(f: Result, g: Result) -> str | None:
    """Describe how the names of results differ, or return None; a tuple matches any names."""
    names = [dict.fromkeys(filter(None, x.names)) for x in (f, g)]
    if not all(names) or names[0].keys() == names[1].keys():
        return None
    return "f returns results named {}, and g {}".format(*map(", ".join, names))


def raw_bytes(x: NDArray) -> NDArray:
    """Return the bytes of an array without padding, one row for each element."""
    parts = as_real_vector(np.ascontiguousarray(x))
    rows = parts.view(np.uint8).reshape(parts.size, parts.itemsize)
    if x.dtype.char in "gG" and np.finfo(x.dtype).nmant == 63:
        rows = rows[:, :_X87_BYTES]
    return rows.reshape(x.size, rows.shape[1] * real_parts(x.dtype))


def join_or_none(x: tuple[Any, ...]) -> str:
    """Join items with commas, or return "none"."""
    return ", ".join(map(str, x)) or "none"


def one_line_error(error: BaseException) -> str:
    """Format an exception as one line of printable characters."""
    text = " ".join(str(error).split())
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    text = text if len(text) <= _MAX_ERROR_CHARS else f"{text[: _MAX_ERROR_CHARS - 3]}..."
    return f"{type(error).__name__}: {text}".removesuffix(": ")


class BudgetError(Exception):
    """Raised when no calls remain."""


@dataclass
class Budget:
    """Counter of the calls of f and g; it shows the progress after one second."""

    limit: int
    spent: int = 0
    next_message_time: float = field(
        default_factory=lambda: time.perf_counter() + 1
    )  # of the progress

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
    seconds: float = float("inf")
    copies: bool = True  # copy arguments, since calls may modify them
    writes: dict[tuple[Any, ...], bool] = field(
        default_factory=dict
    )  # whether they do, by dtypes of arguments
    convert: Callable[[Any, Any], Any] | None = None  # to an argument; set by the first call
    is_nondeterministic: bool = False  # repeated calls at perturbed inputs differed
    merges_numbers: bool = False  # join scalars, since the other function returns an array

    @property
    def array_library(self) -> str:
        """Name of the library whose arrays it is called with; the first of several."""
        if isinstance(self.convert, partial):
            return type(self.convert.args[0]).__name__.lower()
        library = next(filter(None, map(library_of, self.likes)), None)
        return (
            "NumPy"
            if library is None or self.convert is _as_numpy
            else type(library).__name__.lower()
        )

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
        # If the first call did not modify its copies, later calls get the arrays themselves. This
        # is recorded for each set of dtypes, since a conversion copies some of them.
        dtypes = tuple(x.dtype for x in inputs if isinstance(x, np.ndarray))
        first = self.copies and dtypes not in self.writes
        copied = first or self.writes.get(dtypes, False)
        arguments = [_private_argument(x, copied) for x in inputs]
        started = time.perf_counter()
        try:
            with np.errstate(all="ignore"):
                passed = [sent(x, like) for x, like in zip(arguments, self.likes, strict=True)]
                y = self.call(*passed)
        except Exception as error:
            return Result(error=error)
        self.seconds = min(self.seconds, time.perf_counter() - started)
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
    sizes = [x.nbytes for x in arrays if x.nbytes < _FRESH_BYTES]
    counts = [4 if size <= _POISON_SEVERAL_BYTES else 1 for size in sizes]
    byte = POISON_BYTES[turn % len(POISON_BYTES)]
    for size, count in zip(sizes, counts, strict=True):
        _ = [
            np.full(size, byte, np.uint8) for _ in range(count)
        ]  # all are allocated before any is freed


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
    numbers = x.dtype.kind in "biufc" or x.dtype.isbuiltin == 2
    return not (equal_arrays(x, then, equal_nan=True) if numbers else np.array_equal(x, then))


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
