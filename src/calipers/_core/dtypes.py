"""Dtypes in which arrays are compared, binary formats, and views as real numbers or integers."""

import math
import sys
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..interop.times import time_format
from .arguments import as_float
from .protocols import NDArray

DType = np.dtype[Any]
FLOAT32, FLOAT64, COMPLEX128 = map(np.dtype, (np.float32, np.float64, np.complex128))
INT64, UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


@lru_cache
def kernel_dtype(dtype: DType) -> DType | None:
    """Return the native dtype that kernels read `dtype` in, or None if NumPy has to compare it."""
    if dtype.isbuiltin == 2:  # ml_dtypes: NumPy knows how to widen them
        if dtype.name == "bfloat16":
            return dtype
        if np.can_cast(dtype, np.int8):  # int4 and the like
            return np.dtype(np.int8)
        return FLOAT64 if np.can_cast(dtype, FLOAT64) else None
    # A number may have names for its parts, too, which Numba takes for a structure.
    if dtype.kind in "biufc" and dtype.char not in "gG" and dtype.names is None:
        return dtype.newbyteorder("=")
    return None


@lru_cache
def working_dtypes(a: DType, b: DType) -> tuple[DType, DType] | None:
    """Return the dtypes to compare a pair in: NumPy's promotion, or one that is more exact."""
    x, y = kernel_dtype(a), kernel_dtype(b)
    if x is None or y is None:
        return None
    if x == y:
        return x, y
    if x.kind in "biu" and y.kind in "biu":
        common = np.promote_types(x, y)
        if common.kind != "f":
            return common, common
        return (INT64, UINT64) if x.kind == "i" else (UINT64, INT64)
    wide = COMPLEX128 if "c" in (x.kind, y.kind) else FLOAT64
    return wide, wide


def value_dtype(dtype: DType) -> DType:
    """Return the dtype of the values in a column that is an array of objects with missing ones."""
    metadata: Any = dtype.metadata or {}
    values: DType = metadata.get("values", dtype)
    return values


def record_names(dtype: DType) -> tuple[str, ...]:
    """Return the names of the fields of records; a number whose parts have names is no record."""
    return (dtype.names or ()) if dtype.kind == "V" else ()


def widest(dtype: DType) -> DType:
    """Return one of the four dtypes that hold all native ones: few kernels serve any pair."""
    if dtype.kind in "biu":
        return UINT64 if dtype == UINT64 else INT64
    return COMPLEX128 if dtype.kind == "c" else FLOAT64


def finfo(dtype: DType) -> Any:
    """Return the limits of a floating-point dtype, of NumPy or of ml_dtypes."""
    return (sys.modules["ml_dtypes"] if dtype.isbuiltin == 2 else np).finfo(dtype)


class Format(NamedTuple):
    """
    A binary floating-point format.

    Attributes
    ----------
    fraction : int
        Bits behind the leading one.
    lowest : int
        The exponent of the smallest normal number.
    largest : float
        The largest finite number.
    infinity : bool
        Whether there is an infinity; a NaN stands in its place if not.
    """

    fraction: int
    lowest: int
    largest: float
    infinity: bool = True


def _ieee(fraction: int, lowest: int) -> Format:
    """Return a format whose exponents lie about 0 as those of IEEE 754."""
    return Format(fraction, lowest, (2.0 - 2.0**-fraction) * 2.0 ** (1 - lowest))


FORMATS = {
    "tf32": _ieee(10, -126),
    "bfloat16": _ieee(7, -126),
    "float16": _ieee(10, -14),
    "float8_e4m3": Format(3, -6, 448.0, infinity=False),
    "float8_e5m2": _ieee(2, -14),
    "float32": _ieee(23, -126),
    "float64": _ieee(52, -1022),
}


# Unit roundoff: half of the distance from 1 to the next number.
ROUNDOFF = {
    name: 2.0 ** -(form.fraction + 1)
    for name, form in sorted(FORMATS.items(), key=lambda item: -item[1].fraction)
}


SMALLEST = {
    name: 2.0 ** (FORMATS[name].lowest - FORMATS[name].fraction)
    for name in ("float16", "bfloat16", "float32")
}


_INT64 = np.dtype(np.int64)
_EXACT = int, Fraction, Decimal
# The largest power of ten whose ratio of integers takes no longer than a tenth of a second.
_DIGITS = 100_000


def is_integers(x: Any) -> bool:
    """Return True if x is an array of Python's integers, with NaN where one is missing."""
    if type(x) is not np.ndarray or x.dtype.kind != "O" or x.size == 0:
        return False
    return all(_is_int(item) or _is_nan(item) for item in x.flat) and any(map(_is_int, x.flat))


def _is_int(x: Any) -> bool:
    return isinstance(x, int)


def _is_nan(x: Any) -> bool:
    return isinstance(x, float) and math.isnan(x)


def format_of(x: Any) -> np.dtype[Any]:
    """Return the dtype whose tolerances an array has: of objects, that of integers or times."""
    return _INT64 if is_integers(x) else time_format(x) or value_dtype(x.dtype)


def became_floats(x: Sequence[Any]) -> bool:
    """Tell whether a sequence is of integers alone, of which NumPy made an array of floats."""
    first: Any = x
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    return _is_int(first) and all(map(_is_int, np.asarray(x, object).flat))


def each_close(a: NDArray, b: NDArray, rtol: Any, atol: Any, equal_nan: bool) -> Any:
    """Return which pairs are close, of real numbers some of which are exact."""
    with np.errstate(all="ignore"):  # what Python computes raises flags, too
        close = np.asarray(np.frompyfunc(is_close, 4, 1)(a, b, rtol, atol), bool)
        if equal_nan:
            close |= np.asarray((a != a) & (b != b), bool)
    return close[()]


def is_comparable(a: NDArray, b: NDArray) -> bool:
    """Return True if all elements are real numbers, and some are of an exact type of Python's."""
    # Not of what has masks or units: NumPy knows how to heed them.
    if not all(type(x) is np.ndarray and x.dtype.kind in "biufO" for x in (a, b)):
        return False
    objects = [x for x in (a, b) if x.dtype.kind == "O"]
    real = all(is_real(item) for x in objects for item in x.flat)
    return real and any(is_exact(item) for x in objects for item in x.flat)


def is_exact(x: Any) -> bool:
    """Return True if x is an integer, Fraction or Decimal, an infinite one or NaN included."""
    return isinstance(x, _EXACT)


def is_real(x: Any) -> bool:
    """Return True if x is an exact number, or a float."""
    return isinstance(x, (*_EXACT, float, np.integer, np.floating))


def is_close(a: Any, b: Any, rtol: Any, atol: Any) -> bool:
    """Return the verdict on two real numbers, from exact arithmetic."""
    if a == b:
        return True
    if not (_is_finite(a) and _is_finite(b)):
        return False
    if not (math.isfinite(rtol) and math.isfinite(atol)):
        # As in floats: no multiple of 0 is infinite, and opposite infinities have no sum.
        return bool(atol + rtol * min(abs(as_float(b)), sys.float_info.max) == math.inf)
    # By ratios of integers, |a - b| <= atol + rtol*|b| times the product of the denominators.
    a, of_a = _ratio(a)
    b, of_b = _ratio(b)
    rtol, of_rtol = rtol.as_integer_ratio()
    atol, of_atol = atol.as_integer_ratio()
    distance = abs(a * of_b - b * of_a) * of_rtol * of_atol
    return bool(distance <= of_a * (atol * of_rtol * of_b + rtol * of_atol * abs(b)))


def distance(a: Any, b: Any) -> Fraction:
    """Return |a - b| of two finite real numbers, exactly."""
    return abs(Fraction(*_ratio(a)) - Fraction(*_ratio(b)))


def measures(a: Any, b: Any, rtol: float, atol: float) -> tuple[float, float, float, float]:
    """Return |a - b|, |b|, and the first in units of what is allowed and of |b|, as floats."""
    if a == b:
        return 0.0, abs(as_float(b)), 0.0, 0.0
    d, size = distance(a, b), abs(Fraction(*_ratio(b)))
    bound = Fraction(atol) + Fraction(rtol) * size
    excess, relative = (_rounded(d / unit) if unit else math.inf for unit in (bound, size))
    if d > bound:
        excess = max(excess, 1.0 + sys.float_info.epsilon)  # rounded, a mismatch stays one
    return _rounded(d), _rounded(size), excess, relative


def _rounded(x: Fraction) -> float:
    """Return a float, which is 0 for 0 only."""
    return as_float(x) or math.ulp(0.0) * bool(x)


def _ratio(x: Any) -> tuple[int, int]:
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, Decimal) and not -_DIGITS <= x.adjusted() <= _DIGITS:
        msg = f"a Decimal of 10**{x.adjusted()} is beyond 10**{_DIGITS}, or below 10**-{_DIGITS}: "
        raise ValueError(msg + "scale both arrays")
    numerator, denominator = x.as_integer_ratio()
    return numerator, denominator


def _is_finite(x: Any) -> bool:
    if isinstance(x, Decimal):
        return x.is_finite()
    return is_exact(x) or math.isfinite(x)


def as_real_vector(x: NDArray) -> NDArray:
    """View a contiguous array as the vector of its real numbers."""
    flat = x.reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def real_parts(dtype: DType) -> int:
    """Return how many real numbers an element is."""
    return 2 if dtype.kind == "c" else 1
