"""The closeness rule for two numbers, and quick tests that err only towards doubt.

A pair is close if a == b, or if both are finite and |a - b| <= atol + rtol*|b|. The three
operations are rounded to 53 bits with an unlimited exponent range; two integers have an exact
distance.
"""

import math

import numpy as np
from numba.core import types

from .. import jitable, jitable_as
from .formats import Truth, double, number, product, single


def finite(x):
    """Return True if a number, or each part of a complex one, is neither infinite nor NaN."""


@jitable_as(finite)
def _(x):
    if isinstance(x, types.Complex):
        return lambda x: finite(x.real) & finite(x.imag)
    if isinstance(x, (types.Integer, types.Boolean, Truth)):
        return lambda x: True
    if isinstance(x, types.Float):
        infinity = np.float32(np.inf) if x == types.float32 else np.inf  # of x's own width
        return lambda x: abs(x) < infinity
    return lambda x: finite(single(x))


def is_nan(x):
    """Return True if a number, or a part of a complex one, is NaN."""


@jitable_as(is_nan)
def _(x):
    if isinstance(x, types.Complex):
        return lambda x: (x.real != x.real) | (x.imag != x.imag)
    return lambda x: double(x) != double(x)


def opposite(a, b):
    """Return True if one of two real numbers is positive and the other negative."""


@jitable_as(opposite)
def _(a, b):
    if isinstance(a, types.Complex):
        return lambda a, b: False
    return lambda a, b: (
        ((double(a) < 0.0) & (double(b) > 0.0)) | ((double(a) > 0.0) & (double(b) < 0.0))
    )


# Where atol + rtol*|b| exceeds this, neither its product nor its sum can have lost bits to
# underflow that matter: a product below 2**-1022 is far less than half a unit of 2**-900.
LOW = 2.0**-899
# Between these, the square of a number and the sum of two such neither overflow nor vanish.
TINY, HUGE = 2.0**-480, 2.0**500


@jitable
def scaled_bound(size, size_exponent, rtol, atol):
    """Return m, e with atol + rtol*(size*2**j) = m*2**e: two roundings, no exponent limit."""
    rtol_fraction, rtol_exponent = math.frexp(rtol)
    size_fraction, extra = math.frexp(size)
    fraction = product(rtol_fraction, size_fraction)
    product_exponent = rtol_exponent + extra + size_exponent
    atol_fraction, atol_exponent = math.frexp(atol)
    if fraction == 0.0:
        product_exponent = atol_exponent
    elif atol == 0.0:
        atol_exponent = product_exponent
    # The larger term has its fraction in [1/4, 1). What underflows in the smaller is far less than
    # half a unit of the sum, a d that underflows is less than every positive sum, and one that
    # overflows exceeds every sum.
    exponent = atol_exponent if atol_exponent > product_exponent else product_exponent
    bound = math.ldexp(atol_fraction, atol_exponent - exponent) + math.ldexp(
        fraction, product_exponent - exponent
    )
    return bound, exponent


@jitable
def within(d, d_exponent, size, size_exponent, rtol, atol):
    """Return True if d*2**i <= atol + rtol*(size*2**j), for d > 0, with no exponent limit."""
    bound, exponent = scaled_bound(size, size_exponent, rtol, atol)
    return bound > 0.0 and math.ldexp(d, d_exponent - exponent) <= bound


def real_close(a, b, rtol, atol, equal_nan):
    """Return True if two real numbers are close, in binary64."""
    a = double(a)
    b = double(b)
    if a == b:
        return True
    if not (abs(a) < np.inf and abs(b) < np.inf):
        return equal_nan and a != a and b != b
    d = abs(a - b)
    bound = atol + product(rtol, abs(b))
    if LOW < bound < np.inf or (bound <= LOW and d > 2.0 * LOW):
        return d <= bound
    if d < np.inf:
        return within(d, 0, abs(b), 0, rtol, atol)
    return within(abs(product(0.25, a) - product(0.25, b)), 2, abs(b), 0, rtol, atol)


@jitable
def modulus(x, y):
    """Return m, e with |x + y*i| = m*2**e; two squares, a sum and a root, no exponent limit."""
    largest = abs(x) if abs(x) > abs(y) else abs(y)
    if largest == 0.0:
        return 0.0, 0
    exponent = 0
    if not TINY < largest < HUGE:
        exponent = math.frexp(largest)[1]
        x = math.ldexp(x, -exponent)
        y = math.ldexp(y, -exponent)
    return math.sqrt(product(x, x) + product(y, y)), exponent


def complex_close(a, b, rtol, atol, equal_nan):
    """Return True if two numbers are close by their moduli; at least one is complex."""
    a = np.complex128(a)
    b = np.complex128(b)
    if a == b:
        return True
    # A part's infinity or NaN makes the sum of magnitudes infinite or NaN.
    if not (
        abs(a.real) < np.inf
        and abs(a.imag) < np.inf
        and abs(b.real) < np.inf
        and abs(b.imag) < np.inf
    ):
        a_nan = a.real != a.real or a.imag != a.imag
        b_nan = b.real != b.real or b.imag != b.imag
        return equal_nan and a_nan and b_nan
    re = a.real - b.real
    im = a.imag - b.imag
    exponent = 0
    if not (abs(re) < np.inf and abs(im) < np.inf):
        re = product(0.25, a.real) - product(0.25, b.real)
        im = product(0.25, a.imag) - product(0.25, b.imag)
        exponent = 2
    d, d_exponent = modulus(re, im)
    size, size_exponent = modulus(b.real, b.imag)
    d_exponent += exponent
    if d_exponent == 0 and size_exponent == 0:
        # d is far above all that underflow loses, and below any bound that overflows.
        bound = atol + product(rtol, size)
        if bound == bound:
            return d <= bound
    return within(d, d_exponent, size, size_exponent, rtol, atol)


@jitable
def integer_close(distance, overflow, bound):
    """Return True if an exact distance is within a bound; `overflow` is its bit 64."""
    if not overflow:
        rounded = np.float64(distance)
        if rounded != bound:
            return rounded < bound
        # Equal after rounding: exact below 2**53, and below 2**64 the bound is an integer.
        return rounded >= 2.0**64 or distance <= np.uint64(bound)
    half = (distance >> np.uint64(1)) | np.uint64(0x8000000000000000)
    odd = distance & np.uint64(1)
    # To which neighbour this rounds does not matter: equality is decided exactly, and no distance
    # is 2**65.
    rounded = 2.0 * np.float64(half)
    if rounded != bound:
        return rounded < bound
    half_bound = np.uint64(0.5 * bound)
    return half < half_bound or (half == half_bound and odd == np.uint64(0))


@jitable
def gap(a, b):
    """Return |a - b| of two integers, both signed or both not."""
    return np.uint64(a) - np.uint64(b) if a > b else np.uint64(b) - np.uint64(a)


def distance(a, b):
    """Return |a - b| of two integers modulo 2**64, and True if it is 2**64 or more."""


@jitable_as(distance)
def _(a, b):
    if a.signed == b.signed:
        return lambda a, b: (gap(a, b), False)
    if a.signed:
        return lambda a, b: distance(b, a)

    def unsigned_and_signed(a, b):
        if b >= 0:
            return distance(np.uint64(a), np.uint64(b))
        total = np.uint64(a) - np.uint64(b)
        return total, total < np.uint64(a)

    return unsigned_and_signed


def close(a, b, rtol, atol, equal_nan):
    """Return True if two numbers of any types are close."""


@jitable_as(close)
def _(a, b, rtol, atol, equal_nan):
    if any(isinstance(x, (Truth, types.Boolean)) for x in (a, b)):
        return lambda a, b, rtol, atol, equal_nan: close(
            number(a), number(b), rtol, atol, equal_nan
        )
    if isinstance(a, types.Integer) and isinstance(b, types.Integer):

        def integers(a, b, rtol, atol, equal_nan):
            # Numba compares int64 with uint64 as floats, so a == b is not asked.
            difference, overflow = distance(a, b)
            if difference == np.uint64(0) and not overflow:
                return True
            return integer_close(difference, overflow, atol + product(rtol, abs(double(b))))

        return integers
    # The functions themselves: a function around each would be one more to compile.
    if isinstance(a, types.Complex) or isinstance(b, types.Complex):
        return complex_close
    return real_close


@jitable
def sure_wide(a, b, rtol, atol):
    """Return True only if two binary64 are close; False, too, where the rule needs scaling."""
    bound = atol + product(rtol, abs(b))
    return (a == b) | ((abs(a - b) <= bound) & (bound < np.inf) & (bound > LOW))


# Bounds the relative rounding error of a distance, a bound and its tolerances in binary32.
_NARROW_ROUNDING = 1e-6


@jitable
def increased(rtol, atol):
    """
    Return tolerances in binary32, raised by more than the arithmetic of a comparison rounds.

    A pair of binary32 whose distance exceeds the bound of these is not close: terms that underflow
    lose less than the smallest number together. If a tolerance is negative or NaN, none exceeds it.
    """
    if not (rtol >= 0.0 and atol >= 0.0):
        return np.float32(np.inf), np.float32(np.inf)
    higher = 1.0 + _NARROW_ROUNDING
    return np.float32(rtol * higher), np.float32(atol * higher)


@jitable
def reduced(rtol, atol):
    """
    Return tolerances in binary32, lowered by more than `sure_narrow` rounds.

    If one is negative or NaN, or rtol*|b| may be NaN, only equal numbers pass with them.
    """
    if not (0.0 <= rtol < np.inf and atol >= 0.0):
        return np.float32(0.0), np.float32(-1.0)
    lower = 1.0 - _NARROW_ROUNDING
    rtol = rtol if rtol < 1e30 else 1e30
    atol = atol if atol < 1e30 else 1e30
    return np.float32(rtol * lower), np.float32(atol * lower)


@jitable
def sure_narrow(a, b, rtol, atol):
    """
    Return True only if two binary32 are close, by `reduced` tolerances.

    A bound that overflows exceeds every finite distance. Each term that underflows is rounded up by
    less than half of the smallest number, and every distance is a multiple of that number. An rtol
    that underflows is less than the relative difference of any two unequal numbers.
    """
    return (a == b) | (abs(a - b) < atol + rtol * abs(b))
