"""Call two implementations, and hold their results as arrays."""

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

_SAID = 300  # characters of what an error says
_X87_BYTES = 10  # of a long double that is one of the processor's; the rest is padding


@dataclass(frozen=True)
class Result:
    """What a side returned, as arrays in order; or what it raised."""

    arrays: tuple[NDArray, ...] = ()
    error: Exception | None = None
    names: tuple[str, ...] = ()  # of the arrays: the keys that lead to each
    native_dtypes: tuple[
        str, ...
    ] = ()  # the dtypes that were returned, where arrays hold them in wider

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The names of the dtypes that were returned."""
        return self.native_dtypes or tuple(x.dtype.name for x in self.arrays)

    def bits(self) -> tuple[Any, ...]:
        """Return what two answers that are the same to the last bit have in common."""
        arrays = tuple((x.shape, x.dtype.str, raw_bytes(x).tobytes()) for x in self.arrays)
        return *arrays, *self.dtypes

    def title(self, k: int) -> str:
        """Return how one of the arrays is reached: by its keys, or by its place."""
        return (self.names[k] if self.names else "") or str(k)

    def joined(self) -> "Result":
        """Return several numbers as one array; all else as it is."""
        if len(self.arrays) < 2 or any(self.names) or {*self.shapes} != {()}:
            return self
        return Result((np.array([x[()] for x in self.arrays]),), names=("",))

    def numbers(self, dtype: Any) -> NDArray:
        """Return all real numbers, one after the other; a complex one is two."""
        with np.errstate(over="ignore"):
            parts = [as_real_vector(np.ascontiguousarray(x)) for x in self.arrays]
            wide = [part.astype(dtype, copy=False) for part in parts]
        if len(wide) == 1:
            return wide[0]
        return np.concatenate([np.empty(0, dtype), *wide])

    @property
    def integers(self) -> NDArray:
        """Which of the real numbers are integers or truth values."""
        return self.repeat_each(np.array([x.dtype.kind in "biu" for x in self.arrays], bool))

    @property
    def _counts(self) -> NDArray:
        """How many real numbers each array is."""
        return np.array([x.size * real_parts(x.dtype) for x in self.arrays], int)

    def repeat_each(self, values: NDArray) -> NDArray:
        """Return what there is of each array for each of its real numbers."""
        return np.repeat(values, self._counts)

    def split(self, numbers: NDArray) -> list[NDArray]:
        """Return what belongs to each array, of one item for each of the real numbers."""
        return np.split(numbers, np.cumsum(self._counts)[:-1])

    def locate(self, number: int) -> tuple[int, tuple[int, ...]]:
        """Return which array a real number is of, and the index of its element there."""
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
        """What answers that are compared number by number have in common."""
        return tuple((x.shape, x.dtype.kind == "c") for x in self.arrays)


def comparable(*results: Result) -> bool:
    """Tell whether answers can be compared number by number: none of them is an error."""
    return all(x.error is None and x.forms == results[0].forms for x in results)


def describe_name_mismatch(f: Result, g: Result) -> str | None:
    """Tell the names of results where f and g give other ones; a tuple has none, and suits any."""
    names = [dict.fromkeys(filter(None, x.names)) for x in (f, g)]
    if not all(names) or names[0].keys() == names[1].keys():
        return None
    return "f returns results named {}, and g {}".format(*map(", ".join, names))


def raw_bytes(x: NDArray) -> NDArray:
    """Return the bytes of an array, a row for each element; padding is left out."""
    parts = as_real_vector(np.ascontiguousarray(x))
    rows = parts.view(np.uint8).reshape(parts.size, parts.itemsize)
    if x.dtype.char in "gG" and np.finfo(x.dtype).nmant == 63:
        rows = rows[:, :_X87_BYTES]
    return rows.reshape(x.size, rows.shape[1] * real_parts(x.dtype))


def join_or_none(x: tuple[Any, ...]) -> str:
    """Write several things, or that there are none."""
    return ", ".join(map(str, x)) or "none"


def one_line_error(error: BaseException) -> str:
    """Write what was raised so that it is part of a sentence, and moves no cursor."""
    text = " ".join(str(error).split())
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    text = text if len(text) <= _SAID else f"{text[: _SAID - 3]}..."
    return f"{type(error).__name__}: {text}".removesuffix(": ")


class BudgetError(Exception):
    """No more calls are allowed."""


@dataclass
class Budget:
    """How many calls of both sides are left; who waits for longer than a second is told."""

    limit: int
    spent: int = 0
    next_message_time: float = field(
        default_factory=lambda: time.perf_counter() + 1
    )  # when to tell again

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
        """Leave no line behind."""
        _print_progress("\r\033[K")


def _print_progress(line: str) -> None:
    """Write on the terminal, if there is one: without a console, there is no stderr either."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(line, end="", file=sys.stderr, flush=True)


@dataclass
class Implementation:
    """
    One implementation, called with arrays of the library that it takes.

    That is the library of the caller's inputs; or another one, if the function refuses arrays of
    that type: ported code takes other arrays than the original.
    """

    name: str
    call: Callable[..., Any]
    likes: Sequence[Any]  # the caller's inputs
    budget: Budget
    calls: int = 0
    seconds: float = float("inf")
    copies: bool = True  # arguments, for calls that may write into them
    writes: dict[tuple[Any, ...], bool] = field(default_factory=dict)  # so, by dtypes of arguments
    convert: Callable[[Any, Any], Any] | None = (
        None  # makes an argument; None before the first call
    )
    is_nondeterministic: bool = (
        False  # whether it gave other results when it was asked again where it moved
    )
    merges_numbers: bool = (
        False  # the numbers that it returns, as the other side gives an array of them
    )

    @property
    def array_library(self) -> str:
        """Name the library whose arrays it is called with: the first, of several."""
        if isinstance(self.convert, partial):
            return type(self.convert.args[0]).__name__.lower()
        library = next(filter(None, map(library_of, self.likes)), None)
        return (
            "NumPy"
            if library is None or self.convert is _as_numpy
            else type(library).__name__.lower()
        )

    def __call__(self, inputs: Sequence[Any]) -> Result:
        """Return what the function gives for the inputs, which stay as they are."""
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
        """Return the types of the arrays that a call is given."""
        pairs = zip(inputs, self.likes, strict=True)
        return {type(way(x, like)) for x, like in pairs if isinstance(x, np.ndarray)}

    def _evaluate(self, inputs: Sequence[Any], sent: Callable[[Any, Any], Any]) -> Result:
        self.budget.take()
        self.calls += 1
        # After a first call that left its copies as they were, it is given arrays themselves: by
        # dtypes, since a conversion copies some, and what is written into others is theirs.
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
        except TypeError:  # it is nothing that can be compared
            raise
        except Exception as error:  # what runs later, on a device say, raises when it is asked for
            return Result(error=error)
        result = Result(
            tuple(leaf.array for leaf in leaves),
            names=tuple(leaf.keys for leaf in leaves),
            native_dtypes=tuple(leaf.dtype for leaf in leaves),
        )
        del y  # unless the side keeps it
        _poison_memory(result.arrays, self.budget.spent // 2)  # f and g are called in turns
        if first:
            pairs = zip(arguments, inputs, strict=True)
            self.writes[dtypes] = any(_differ(x, then) for x, then in pairs)
        return result.joined() if self.merges_numbers else result


POISON_BYTES = (0xFF, 0x3F)  # bytes of a NaN in any format, and of a number
_SEVERAL = 1 << 20  # bytes of what is soiled more than once: there may be scratch of the same size
_FRESH = 1 << 25  # bytes that the system gives as zeros, time and again


def _poison_memory(arrays: Sequence[NDArray], turn: int) -> None:
    """
    Write over free memory of the sizes that results had, and not the same in each turn.

    A side that forgets to write some of its results would find those of another call there.
    """
    sizes = [x.nbytes for x in arrays if x.nbytes < _FRESH]
    counts = [4 if size <= _SEVERAL else 1 for size in sizes]
    byte = POISON_BYTES[turn % len(POISON_BYTES)]
    for size, count in zip(sizes, counts, strict=True):
        _ = [np.full(size, byte, np.uint8) for _ in range(count)]  # held together, and given back


_DRAWS = (np.random.Generator, np.random.RandomState, random.Random)


def _refuses_type(error: Exception, types: Iterable[type[Any]]) -> bool:
    """
    Return True if a function raised because arrays were of one of these types, whatever they hold.

    Such an error names the type, or is a TypeError or AttributeError of a function that was passed
    another library's arrays. Any other exception is the function's result.
    """
    text, foreign = str(error), [kind for kind in types if kind.__module__ != "numpy"]
    if isinstance(error, Warning):  # NumPy's, of arrays that have its protocol of old
        return "__array" in text
    if isinstance(error, IndexError):
        return bool(foreign) and "valid indices" in text  # how libraries refuse a type of index
    if not isinstance(error, (TypeError, AttributeError, NumbaError)):
        return False
    names = [rf"{kind.__module__}\.{kind.__name__}" for kind in types]
    for kind in foreign:  # or a dtype of the library, which another does not know
        names += [kind.__name__, rf"{kind.__module__.partition('.')[0]}\.\w+"]
    if re.search(rf"(not |got |['.])({'|'.join(names) or '(?!)'})\b", text):
        return True
    # Of a tensor, methods that NumPy's arrays have are not there, or take other arguments.
    return bool(foreign)


def _as_original_type(x: Any, like: Any) -> Any:
    """Return an array as what the caller gave: a library's, or a number."""
    if not isinstance(x, np.ndarray):
        return x
    library = library_of(like)
    if library is not None:
        return library.put(x, like)
    return x[()] if not isinstance(like, np.ndarray) and np.ndim(like) == 0 else x


def _alternative_conversions(likes: Sequence[Any]) -> Iterator[Callable[[Any, Any], Any]]:
    """Give other ways to hand arrays over: as NumPy's, and as those of libraries that are there."""
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
    """Return an argument that a call may change; an array only if such are to be copied."""
    if isinstance(x, np.ndarray):  # one with gaps stays: its layout is what is asked about
        return x.copy(order="K") if copied and x.flags.forc else x
    held, together = flatten(x)
    return together([_copy_mutable(leaf) for _, leaf in held])


def _copy_mutable(x: Any) -> Any:
    """Copy what draws random numbers, which goes on from where the caller's stands, and the like.

    What else there is, a model say, is the caller's own.
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
    """An array that was returned, the keys that lead to it, and the dtype that it came in."""

    keys: str
    array: NDArray
    dtype: str


def _leaves(y: Any, name: str, keys: str = "", *, within: bool = False) -> Iterator[_Leaf]:
    """Give the arrays in what the side called `name` returned."""
    if isinstance(y, dict):  # by name, and not in the order in which they were found
        for key in sorted(y, key=str):
            yield from _leaves(y[key], name, f"{keys}[{key!r}]", within=True)
        return
    if isinstance(y, np.ma.MaskedArray):
        y = (y.filled(0), np.ma.getmaskarray(y))
    if isinstance(y, (tuple, list)) and not _are_numbers(y):
        for item in y:
            yield from _leaves(item, name, keys, within=True)
        return
    if y is None and within:  # a result that there is not, among others
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
    """Say what was returned that is no number, and why, if that is not plain."""
    if isinstance(y, int):
        return "an integer of more than 64 bits"
    if y is None:
        return "None, as from a function that only writes to an array"
    kind = type(y).__name__
    return f"{kind} of dtype {y.dtype}" if hasattr(y, "dtype") else kind


def _are_numbers(y: Any) -> bool:
    """Tell whether y is a list of plain numbers, of one kind: an array, and not many results."""
    kinds = {type(item) for item in y} if isinstance(y, list) else set()
    return len(kinds) == 1 and kinds <= {bool, int, float, complex}
