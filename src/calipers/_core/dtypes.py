"""Dtypes for comparison, floating-point formats, exact numbers, and views as real vectors."""

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
    """Return the native dtype that kernels convert `dtype` to, or None if there are no kernels."""
    if dtype.isbuiltin == 2:  # ml_dtypes, which NumPy can convert to native dtypes
        if dtype.name == "bfloat16":
            return dtype
        if np.can_cast(dtype, np.int8):  # int4 and the like
            return np.dtype(np.int8)
        return FLOAT64 if np.can_cast(dtype, FLOAT64) else None
    # A numeric dtype with names for its parts is a record for Numba.
    if dtype.kind in "biufc" and dtype.char not in "gG" and dtype.names is None:
        return dtype.newbyteorder("=")
    return None


@lru_cache
def working_dtypes(a: DType, b: DType) -> tuple[DType, DType] | None:
    """Return the dtypes to compare a pair in: NumPy's promotion, but exact for integers."""
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
    """Return the dtype of the values of a column, whose missing values make it an object array."""
    metadata: Any = dtype.metadata or {}
    values: DType = metadata.get("values", dtype)
    return values


def record_names(dtype: DType) -> tuple[str, ...]:
    """Return the names of the fields of a structured dtype; () for a number with named parts."""
    return (dtype.names or ()) if dtype.kind == "V" else ()


def widest(dtype: DType) -> DType:
    """Return the widest dtype of the same kind: int64, uint64, float64 or complex128."""
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
        The number of fraction bits.
    lowest : int
        The exponent of the smallest normal number.
    largest : float
        The largest finite number.
    infinity : bool
        True if the format has infinities; if False, overflow gives NaN.
    """

    fraction: int
    lowest: int
    largest: float
    infinity: bool = True


def _ieee(fraction: int, lowest: int) -> Format:
    """Return a format with the exponent bias and the infinities of IEEE 754."""
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


# The unit roundoff of each format, half of the distance from 1 to the next number; smallest first.
ROUNDOFF = {
    name: 2.0 ** -(form.fraction + 1)
    for name, form in sorted(FORMATS.items(), key=lambda item: -item[1].fraction)
}


# Each format has a subset of the numbers of the one before it, except for the range.
NARROW_FORMATS = "float16", "bfloat16", "float8_e4m3", "float8_e5m2"
SPACINGS = {name: 0.5 ** FORMATS[name].fraction for name in ("float32", *NARROW_FORMATS)}  # at 1


# The smallest positive (subnormal) number of each format.
SMALLEST = {
    name: 2.0 ** (FORMATS[name].lowest - FORMATS[name].fraction)
    for name in ("float16", "bfloat16", "float32")
}


_INT64 = np.dtype(np.int64)
_EXACT = int, Fraction, Decimal
# The largest decimal exponent of a Decimal; a conversion to a ratio of integers takes 0.1 s then.
_DIGITS = 100_000


def is_integers(x: Any) -> bool:
    """Return True if x is an object array of Python integers, with NaN for missing values."""
    if type(x) is not np.ndarray or x.dtype.kind != "O" or x.size == 0:
        return False
    return all(_is_int(item) or _is_nan(item) for item in x.flat) and any(map(_is_int, x.flat))


def _is_int(x: Any) -> bool:
    return isinstance(x, int)


def _is_nan(x: Any) -> bool:
    return isinstance(x, float) and math.isnan(x)


def format_of(x: Any) -> np.dtype[Any]:
    """Return the dtype that determines the default tolerances of an array, also of objects."""
    return _INT64 if is_integers(x) else time_format(x) or value_dtype(x.dtype)


def became_floats(x: Sequence[Any]) -> bool:
    """Return True if all items of a sequence are integers, which NumPy has converted to floats."""
    first: Any = x
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    return _is_int(first) and all(map(_is_int, np.asarray(x, object).flat))


def each_close(a: NDArray, b: NDArray, rtol: Any, atol: Any, equal_nan: bool) -> Any:
    """Return for each pair of real numbers whether it is close, in exact arithmetic."""
    with np.errstate(all="ignore"):  # Python's arithmetic raises floating-point flags, too
        close = np.asarray(np.frompyfunc(is_close, 4, 1)(a, b, rtol, atol), bool)
        if equal_nan:
            close |= np.asarray((a != a) & (b != b), bool)
    return close[()]


def is_comparable(a: NDArray, b: NDArray) -> bool:
    """Return True if all elements are real, and some are an int, Fraction or Decimal."""
    # Masked arrays and other subclasses are left to NumPy.
    if not all(type(x) is np.ndarray and x.dtype.kind in "biufO" for x in (a, b)):
        return False
    objects = [x for x in (a, b) if x.dtype.kind == "O"]
    real = all(is_real(item) for x in objects for item in x.flat)
    return real and any(is_exact(item) for x in objects for item in x.flat)


def is_exact(x: Any) -> bool:
    """Return True if x is an int, Fraction or Decimal, also if it is infinite or NaN."""
    return isinstance(x, _EXACT)


def is_real(x: Any) -> bool:
    """Return True if x is an exact number, or a float."""
    return isinstance(x, (*_EXACT, float, np.integer, np.floating))


def is_close(a: Any, b: Any, rtol: Any, atol: Any) -> bool:
    """Return True if two real numbers are close, in exact arithmetic."""
    if a == b:
        return True
    if not (_is_finite(a) and _is_finite(b)):
        return False
    if not (math.isfinite(rtol) and math.isfinite(atol)):
        # As for floats: 0*inf and inf - inf are NaN.
        return bool(atol + rtol * min(abs(as_float(b)), sys.float_info.max) == math.inf)
    # |a - b| <= atol + rtol*|b|, multiplied by all denominators.
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
    """Return |a - b|, |b|, error/tol and the relative error as floats, from exact arithmetic."""
    if a == b:
        return 0.0, abs(as_float(b)), 0.0, 0.0
    d, size = distance(a, b), abs(Fraction(*_ratio(b)))
    bound = Fraction(atol) + Fraction(rtol) * size
    excess, relative = (_rounded(d / unit) if unit else math.inf for unit in (bound, size))
    if d > bound:
        excess = max(excess, 1.0 + sys.float_info.epsilon)  # above 1 for mismatches, also rounded
    return _rounded(d), _rounded(size), excess, relative


def _rounded(x: Fraction) -> float:
    """Convert to float; nonzero numbers that underflow become the smallest float."""
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
    """View a contiguous array as a vector of real numbers; a complex element is two."""
    flat = x.reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def real_parts(dtype: DType) -> int:
    """Return the number of real numbers in an element: 2 if complex, else 1."""
    return 2 if dtype.kind == "c" else 1


def is_double(eps: float) -> bool:
    """Return whether numbers with a spacing at 1 have at least the digits of float64."""
    return eps <= float(np.finfo(np.float64).eps)


def least_normal(eps: float) -> float:
    """Return the smallest normal number; the spacing of smaller ones is the same."""
    return float(np.finfo(np.float64 if is_double(eps) else np.float32).tiny)
