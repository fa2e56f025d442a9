"""The four measures of the difference of two numbers, and the tolerance that would pass it.

Measures of a pair are taken twice: for all pairs of a block by `measure`, without a branch, and for
those that matter, at the ends of the range too, by `weigh`.
"""

import math

import numpy as np
from numba.core import types

from .. import jitable, jitable_as
from .closeness import HUGE, LOW, TINY, close, distance, finite, modulus, scaled_bound
from .formats import bits, double, from_bits, leading_zeros, product

# The largest distance in ULP; a larger one is reported as this.
FARTHEST = np.uint64(0xFFFFFFFFFFFFFFFF)
# One bucket for equal pairs, and one for each power of two below 2**64.
BUCKETS = 65
INF_BITS = 0x7FF0000000000000  # the bits of infinity in binary64


def measure(a, b, rtol, atol, shift, unit):
    """Return distance, size of b, bound, ULP and True if the pair is usual, without a branch.

    A usual pair is finite, and its distance and bound are those of the closeness rule.
    """


@jitable_as(measure)
def _(a, b, rtol, atol, shift, unit):
    if isinstance(a, types.Integer):

        def integers(a, b, rtol, atol, shift, unit):
            n_ulps, overflow = distance(a, b)
            d = double(n_ulps)
            size = abs(double(b))
            # Below 2**53 the distance is exact, and so is its comparison with the bound.
            usual = (d < 2.0**53) & (not overflow) & is_ordinary(rtol)
            # Of 65 bits, the uppermost is lost.
            bound = atol + product(rtol, size)
            return d, size, bound, FARTHEST if overflow else n_ulps, usual

        return integers
    if isinstance(a, types.Complex):
        return _measure_complex
    return _measure_single if a == types.float32 else _measure_double


@jitable
def is_ordinary(rtol):
    """Return True if the product with any binary32 or integer neither overflows nor vanishes."""
    return (rtol == 0.0) | ((rtol > 2.0**-600) & (rtol < 2.0**600))


def ulps(a, b, shift, unit):
    """
    Return how many steps of a format lie from a to b; of binary32 in 32 bits, whatever the format.

    `unit` brings the format's smallest normal number to that of binary64, and so its subnormal
    numbers to others; `shift` drops the bits that the format lacks. What is left of the bits of |x|
    counts the numbers from 0 to it.
    """


@jitable_as(ulps)
def _(a, b, shift, unit):
    if a == types.float32:
        return lambda a, b, shift, unit: steps(
            np.uint32(bits(abs(a))), np.uint32(bits(abs(b))), (bits(a) ^ bits(b)) >= 0
        )
    return lambda a, b, shift, unit: steps(
        np.uint64(bits(abs(a) * unit)) >> np.uint64(shift),
        np.uint64(bits(abs(b) * unit)) >> np.uint64(shift),
        (bits(a) ^ bits(b)) >= 0,
    )


@jitable
def steps(low, high, same_sign):
    """Return how many steps lie between two numbers, from how many lie between 0 and each."""
    return type(low)(max(low, high) - min(low, high) if same_sign else low + high)


def _measure_double(a, b, rtol, atol, shift, unit):
    d = abs(a - b)
    size = abs(b)
    bound = atol + product(rtol, size)
    # Where the product underflows, the verdict is right, but a quotient by the bound is not.
    exact = (bound > LOW) | (size == 0.0) | (rtol == 0.0)
    usual = (d < np.inf) & (bound < np.inf) & (((d > 2.0 * LOW) & exact) | (d == 0.0))
    return d, size, bound, ulps(a, b, shift, unit), usual


def _measure_single(a, b, rtol, atol, shift, unit):
    """Measure two binary32, whose distance neither underflows nor overflows in binary64."""
    d = abs(double(a) - double(b))
    size = abs(double(b))
    usual = (d < np.inf) & is_ordinary(rtol)
    return d, size, atol + product(rtol, size), ulps(a, b, shift, unit), usual


def _measure_complex(a, b, rtol, atol, shift, unit):
    a_re = double(a.real)
    a_im = double(a.imag)
    b_re = double(b.real)
    b_im = double(b.imag)
    re = a_re - b_re
    im = a_im - b_im
    d = math.sqrt(product(re, re) + product(im, im))
    size = math.sqrt(product(b_re, b_re) + product(b_im, b_im))
    bound = atol + product(rtol, size)
    equal = (re == 0.0) & (im == 0.0)
    zero = (b_re == 0.0) & (b_im == 0.0)
    ordinary = equal | ((TINY < d) & (d < HUGE) & (LOW < bound) & (bound < np.inf))
    usual = ordinary & (((TINY < size) & (size < HUGE)) | zero)
    n_ulps = max(ulps(a_re, b_re, shift, unit), ulps(a_im, b_im, shift, unit))
    return d, size, bound, n_ulps, usual


@jitable
def halved(a, b):
    """Return half of a - b, for a difference that may overflow."""
    return product(0.5, a) - product(0.5, b)


def polar(a, b):
    """Return |a - b| and |b| of a finite pair, each with an exponent of two."""


@jitable_as(polar)
def _(a, b):
    if isinstance(a, types.Integer):

        def integers(a, b):
            n_ulps, overflow = distance(a, b)
            return double(n_ulps) + (2.0**64 if overflow else 0.0), 0, abs(double(b)), 0

        return integers
    if isinstance(a, types.Complex):

        def complex_numbers(a, b):
            a = np.complex128(a)
            b = np.complex128(b)
            d, d_exponent = modulus(a.real - b.real, a.imag - b.imag)
            if not d < np.inf:
                d, d_exponent = modulus(halved(a.real, b.real), halved(a.imag, b.imag))
                d_exponent += 1
            size, size_exponent = modulus(b.real, b.imag)
            return d, d_exponent, size, size_exponent

        return complex_numbers

    def real_numbers(a, b):
        d = abs(double(a) - double(b))
        if d < np.inf:
            return d, 0, abs(double(b)), 0
        return abs(halved(double(a), double(b))), 1, abs(double(b)), 0

    return real_numbers


@jitable
def ulp_excess(ulp, max_ulp):
    """Return ulp/max_ulp, greater than 1 if ulp > max_ulp, whatever the rounding."""
    if ulp <= np.uint64(max_ulp):
        return double(ulp) / double(max_ulp) if max_ulp > 0 else 0.0
    return max(double(ulp) / double(max_ulp), 1.0 + 2.0**-52)


@jitable
def scaled_quotient(d, d_exponent, size, size_exponent, rtol, atol):
    """Return d*2**i/(atol + rtol*(size*2**j)); no step leaves the range if the result does not."""
    bound, exponent = scaled_bound(size, size_exponent, rtol, atol)
    d, shift = math.frexp(d)
    return math.ldexp(d / bound, d_exponent + shift - exponent) if bound > 0.0 else np.inf


@jitable
def weigh(a, b, rtol, atol, max_ulp, shift, unit):
    """Return excess, absolute and relative difference and ULP of any pair; 0 if not finite."""
    none = np.uint64(0)
    if not (finite(a) and finite(b)):
        return 0.0, 0.0, 0.0, none
    d, size, bound, n_ulps, usual = measure(a, b, rtol, atol, shift, unit)
    if d == 0.0 and n_ulps == none:
        return 0.0, 0.0, 0.0, none
    if usual:
        absolute = d
        relative = d / size
        excess = d / bound
    else:
        d, d_exponent, size, size_exponent = polar(a, b)
        absolute = math.ldexp(d, d_exponent)
        relative = math.ldexp(d / size, d_exponent - size_exponent)
        excess = scaled_quotient(d, d_exponent, size, size_exponent, rtol, atol)
        # Rounded otherwise than the rule, this has to fall on its side of 1.
        within = close(a, b, rtol, atol, False)
        excess = min(excess, 1.0) if within else max(excess, 1.0 + 2.0**-52)
    if max_ulp >= 0:
        excess = ulp_excess(n_ulps, max_ulp)
    return excess, absolute, relative, n_ulps


@jitable
def acceptable(a, b, rtol, atol, max_ulp, equal_nan, shift, unit):
    """Return True if a pair of any kind is accepted, by tolerances or by ULP."""
    if max_ulp < 0 or not (finite(a) and finite(b)):
        return close(a, b, rtol, atol, equal_nan)
    return measure(a, b, rtol, atol, shift, unit)[3] <= np.uint64(max_ulp)


@jitable
def sufficient(a, b, other, failing, relative):
    """Return the smallest tolerance that accepts a finite pair, above one that does not."""
    low = bits(failing)
    high = np.int64(INF_BITS)
    while high - low > 1:
        middle = low + (high - low) // 2
        tolerance = from_bits(middle)
        if close(a, b, tolerance if relative else other, other if relative else tolerance, False):
            high = middle
        else:
            low = middle
    return from_bits(high)


@jitable
def raised(a, b, passing, other, relative):
    """Return a tolerance that passes a pair too, if it is finite."""
    rtol = passing if relative else other
    atol = other if relative else passing
    if not (finite(a) and finite(b)) or close(a, b, rtol, atol, False):
        return passing
    return sufficient(a, b, other, passing, relative)


@jitable
def bucket(ulp):
    """Return the bucket of a distance: 0 for 0, and k for 2**(k-1) to 2**k - 1."""
    return np.int64(64) - leading_zeros(ulp)
