"""Slow, obvious references: the closeness rule in exact rational arithmetic."""

import cmath
import math
from fractions import Fraction
from math import isqrt

import numpy as np


def round53(x: Fraction) -> Fraction:
    """Round to 53 significant bits, ties to even, with an unlimited exponent range."""
    if x == 0:
        return x
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length() - 53
    unit = Fraction(2) ** exponent
    while abs(x) / unit < 2**52:
        unit /= 2
    while abs(x) / unit >= 2**53:
        unit *= 2
    return round(x / unit) * unit  # Fraction.__round__ rounds ties to even


def sqrt53(x: Fraction) -> Fraction:
    """Round the square root of x to 53 significant bits."""
    if x == 0:
        return x
    shift = max(0, 130 - x.numerator.bit_length() + x.denominator.bit_length())
    shift += shift % 2
    scaled = x * 4 ** (shift // 2) * 2**shift
    floor = isqrt(scaled.numerator // scaled.denominator)
    # A sticky half stands for everything below the last bit: round53 needs no more.
    inexact = Fraction(floor) ** 2 != scaled
    return round53((floor + Fraction(int(inexact), 2)) / Fraction(2) ** shift)


def modulus(re: Fraction, im: Fraction) -> Fraction:
    """|re + im*i| by the rule's steps: two squares, a sum, a root, each rounded."""
    return sqrt53(round53(round53(re * re) + round53(im * im)))


def is_nan(x) -> bool:
    return cmath.isnan(x) if isinstance(x, complex) else isinstance(x, float) and math.isnan(x)


def is_finite(x) -> bool:
    return cmath.isfinite(x) if isinstance(x, complex) else isinstance(x, int) or math.isfinite(x)


def bound(size: Fraction, rtol: float, atol: float) -> Fraction | float:
    """Atol + rtol*size in two rounded operations; infinite and NaN tolerances as in IEEE 754."""
    if math.isfinite(rtol):
        product = round53(Fraction(rtol) * size)
    elif size == 0 or math.isnan(rtol):
        return math.nan
    else:
        return math.nan if math.isnan(atol) or atol == -rtol else rtol
    return round53(Fraction(atol) + product) if math.isfinite(atol) else atol


def close(a, b, rtol: float, atol: float, equal_nan: bool = False) -> bool:
    """Decide one pair of Python numbers (bool, int, float or complex)."""
    if a == b:
        return True
    if is_nan(a) and is_nan(b):
        return equal_nan
    if not (is_finite(a) and is_finite(b)):
        return False
    if isinstance(a, complex) or isinstance(b, complex):
        a, b = complex(a), complex(b)
        difference = modulus(
            round53(Fraction(a.real) - Fraction(b.real)),
            round53(Fraction(a.imag) - Fraction(b.imag)),
        )
        size = modulus(Fraction(b.real), Fraction(b.imag))
    elif isinstance(a, int) and isinstance(b, int):
        # An exact distance; |b| enters the tolerance as the nearest binary64, as in NumPy.
        difference, size = Fraction(abs(a - b)), round53(Fraction(abs(b)))
    else:
        difference, size = abs(round53(Fraction(a) - Fraction(b))), abs(Fraction(b))
    return difference <= bound(size, float(rtol), float(atol))


def to_python(x) -> bool | int | float | complex:
    """Return a NumPy scalar as the Python number of exactly its value."""
    x = np.asarray(x)
    kind = np.dtype(x.dtype).kind
    if kind == "V":  # ml_dtypes
        with np.errstate(all="ignore"):  # NaN of bfloat16 raises a flag when widened
            return float(x.astype(np.float64))
    return x[()].item()


def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False) -> np.ndarray:
    """Element-wise closeness of arrays that share a dtype or promote exactly."""
    a, b, rtol, atol = np.broadcast_arrays(a, b, rtol, atol)
    out = np.empty(a.shape, dtype=bool)
    for index in np.ndindex(a.shape):
        pair = to_python(a[index]), to_python(b[index])
        out[index] = close(*pair, float(rtol[index]), float(atol[index]), equal_nan)
    return out
