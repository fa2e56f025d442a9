"""Python's integers beyond 64 bits, Fraction and Decimal: compared one by one, exactly."""

import math
import sys
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from ._arguments import as_float
from ._dtypes import value_dtype
from ._protocols import NDArray
from .interop.times import time_format

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
