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


def ordinal(x) -> int:
    """Count the numbers of a NumPy float's format from 0 to it, by its bits."""
    x = np.asarray(x)
    magnitude = int(x.view(f"u{x.dtype.itemsize}")) & (2 ** (8 * x.dtype.itemsize - 1) - 1)
    return -magnitude if np.signbit(x.astype("f8")) else magnitude


def ulps(a, b) -> int:
    """Count the steps between two NumPy scalars of one dtype; for integers their difference."""
    if a.dtype.kind == "c":
        return max(ulps(a.real, b.real), ulps(a.imag, b.imag))
    if a.dtype.kind in "biu":
        return min(abs(int(a) - int(b)), 2**64 - 1)
    return abs(ordinal(a) - ordinal(b))


def as_float(x: Fraction) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.inf


def quotient(x: Fraction, y: Fraction) -> float:
    return 0.0 if x == 0 else math.inf if y == 0 else as_float(x / y)


def measures(a, b, rtol, atol, max_ulp=None) -> dict[str, float]:
    """Measure a finite pair of NumPy scalars in the four ways of a report."""
    x, y = to_python(a), to_python(b)
    if isinstance(x, complex):
        difference = modulus(
            round53(Fraction(x.real) - Fraction(y.real)),
            round53(Fraction(x.imag) - Fraction(y.imag)),
        )
        size = modulus(Fraction(y.real), Fraction(y.imag))
    elif isinstance(x, int):
        difference, size = Fraction(abs(x - y)), round53(Fraction(abs(y)))
    else:
        difference, size = abs(round53(Fraction(x) - Fraction(y))), abs(Fraction(y))
    ulp = ulps(a, b)
    tested, allowed = difference, bound(size, rtol, atol)
    if max_ulp is not None:
        tested, allowed = Fraction(ulp), Fraction(max_ulp)
    return {
        "excess": quotient(tested, allowed),
        "absolute": as_float(difference),
        "relative": quotient(difference, size),
        "ulp": ulp,
        "difference": difference,
        "size": size,
    }


def findings(a, b, rtol, atol, max_ulp=None, equal_nan=False) -> dict:
    """Find, pair by pair, all that a comparison of two arrays of one dtype reports."""
    found = {"nan_both": 0, "nan_actual": 0, "nan_expected": 0, "infinite": 0, "signs": 0}
    mismatches, finite = [], {}
    for i, (p, q) in enumerate(zip(a.reshape(-1), b.reshape(-1), strict=True)):
        x, y = to_python(p), to_python(q)
        near = close(x, y, rtol, atol, equal_nan)
        if is_finite(x) and is_finite(y):
            finite[i] = measures(p, q, rtol, atol, max_ulp)
            near = near if max_ulp is None else finite[i]["ulp"] <= max_ulp
            real = not isinstance(x, complex)
            found["signs"] += bool(real and not near and (x < 0 < y or y < 0 < x))
        elif is_nan(x) or is_nan(y):
            found["nan_both"] += is_nan(x) and is_nan(y)
            found["nan_actual"] += not is_nan(y)
            found["nan_expected"] += not is_nan(x)
        else:
            found["infinite"] += not near
        if not near:
            mismatches.append(i)
    squares = sum((x["difference"] ** 2 for x in finite.values()), Fraction(0))
    reference = sum((x["size"] ** 2 for x in finite.values()), Fraction(0))
    return found | {
        "mismatches": mismatches,
        "finite": finite,
        "rms": as_float(sqrt53(squares / len(finite))) if finite else 0.0,
        "relative_norm": as_float(sqrt53(squares / reference)) if reference else None,
    }
