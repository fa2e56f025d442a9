"""The results of a call: arrays of NumPy, their names and dtypes, or an exception."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.dtypes import ROUNDOFF, as_real_vector, real_parts
from .._core.protocols import NDArray
from .inputs import REAL_FORMATS

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


def infer_result_precision(*results: Result) -> str:
    """Return the highest precision of results, for inputs that have none."""
    names = [
        (x.ndim > 0, REAL_FORMATS.get(name, name).removesuffix("fn"))
        for result in results
        for x, name in zip(result.arrays, result.dtypes, strict=True)
    ]
    formats = [(is_array, name) for is_array, name in names if name in ROUNDOFF]
    # Scalars are ignored if there are arrays: they are often Python floats.
    chosen = [name for is_array, name in formats if is_array] or [name for _, name in formats]
    return min(chosen, key=lambda name: ROUNDOFF[name]) if chosen else "float64"


def is_wide(result: Result, form: str) -> bool:
    """Return True if all floating-point results are in higher precision than `form`."""
    kinds = "gG" if form == "float64" else "dDgG"
    return all(x.dtype.kind not in "fc" or x.dtype.char in kinds for x in result.arrays)


def describe_mismatch(f: Result, g: Result) -> str | None:
    """Describe why results cannot be compared: other names, shapes, or kinds of numbers."""
    reason = describe_name_mismatch(f, g)
    if reason is not None or f.forms == g.forms:
        return reason
    if f.shapes == g.shapes:
        reason = "only one of f and g returns complex numbers"
        return f"{reason}: compare the real parts, or return complex from both"
    return f"f returns shape {join_or_none(f.shapes)}, and g returns shape {join_or_none(g.shapes)}"
