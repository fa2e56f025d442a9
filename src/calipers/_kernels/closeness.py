"""When are two numbers close? The rule, and the loops that ask it of every pair.

A pair is close if a == b, or if both are finite and |a - b| <= atol + rtol*|b|. The three
operations are rounded to 53 bits with an unlimited exponent range; two integers have an exact
distance. Loops first run a vectorised test that errs only towards doubt, block by block, and put
the rule itself to the pairs of a doubtful block.
"""

import math

import numpy as np
from numba.core import types

from .._jit import Kernels
from .formats import (
    Truth,
    double,
    number,
    pair_of_vectors,
    prefetch,
    product,
    single,
    stored,
    vector,
)
from .jitable import jitable, jitable_as
from .views import borrowed

# Where atol + rtol*|b| exceeds this, neither its product nor its sum can have lost bits to
# underflow that matter: a product below 2**-1022 is far less than half a unit of 2**-900.
LOW = 2.0**-899
# Between these, the square of a number and the sum of two such neither overflow nor vanish.
TINY, HUGE = 2.0**-480, 2.0**500

# A block of each array fits the nearest cache beside the lines being fetched for the next four.
_BLOCK_BYTES = 512
_BLOCKS_AHEAD = 4


# The rule


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
    """Decide d*2**i <= atol + rtol*(size*2**j) for d > 0, with no exponent limit."""
    bound, exponent = scaled_bound(size, size_exponent, rtol, atol)
    return bound > 0.0 and math.ldexp(d, d_exponent - exponent) <= bound


def real_close(a, b, rtol, atol, equal_nan):
    """Decide a pair of real numbers, as binary64."""
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
    """Decide a pair of numbers, one of them complex, by their moduli."""
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
    """Decide an exact distance, of 65 bits where `overflow` is the uppermost."""
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
    """Return |a - b| of two integers modulo 2**64, and whether it is 2**64 or more."""


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
    """Decide a pair of numbers of any types."""


@jitable_as(close)
def _(a, b, rtol, atol, equal_nan):
    if any(isinstance(x, (Truth, types.Boolean)) for x in (a, b)):
        return lambda a, b, rtol, atol, equal_nan: close(
            number(a), number(b), rtol, atol, equal_nan
        )
    if isinstance(a, types.Integer) and isinstance(b, types.Integer):

        def integers(a, b, rtol, atol, equal_nan):
            # Numba compares int64 with uint64 as floats, so a == b is not asked.
            apart, overflow = distance(a, b)
            if apart == np.uint64(0) and not overflow:
                return True
            return integer_close(apart, overflow, atol + product(rtol, abs(double(b))))

        return integers
    # The functions themselves: a function around each would be one more to compile.
    if isinstance(a, types.Complex) or isinstance(b, types.Complex):
        return complex_close
    return real_close


# Vectorised tests that err only towards doubt


def surely_close(x, y, rtol, atol):
    """Return True only if every pair of two short arrays is close and none is a pair of NaN."""


@jitable_as(surely_close)
def _(x, y, rtol, atol):
    if x.dtype != y.dtype:
        return lambda x, y, rtol, atol: False
    if isinstance(x.dtype, types.Complex):
        return _surely_close_complex
    if x.dtype in (types.int64, types.uint64):
        return _surely_close_long
    if x.dtype in (types.float64, types.int32, types.uint32):
        return _surely_close_wide
    if isinstance(x.dtype, (types.Integer, Truth)):
        return _surely_close_small
    return _surely_close_narrow


@jitable
def sure_wide(a, b, rtol, atol):
    """Decide a pair of binary64: the rule, but for what may need scaling."""
    bound = atol + product(rtol, abs(b))
    return (a == b) | ((abs(a - b) <= bound) & (bound < np.inf) & (bound > LOW))


@jitable
def _surely_close_wide(x, y, rtol, atol):
    """binary64, and what subtracts exactly in it."""
    doubt = False
    for i in range(x.size):
        doubt |= not sure_wide(double(x[i]), double(y[i]), rtol, atol)
    return not doubt


@jitable
def reduced(rtol, atol):
    """
    Return tolerances in binary32, less by more than the roundings of `sure_narrow` can add.

    They are such that only equality passes where one is negative or NaN, and where rtol*|b| may be.
    """
    if not (0.0 <= rtol < np.inf and atol >= 0.0):
        return np.float32(0.0), np.float32(-1.0)
    lower = 1.0 - 1e-6
    rtol = rtol if rtol < 1e30 else 1e30
    atol = atol if atol < 1e30 else 1e30
    return np.float32(rtol * lower), np.float32(atol * lower)


@jitable
def sure_narrow(a, b, rtol, atol):
    """
    Decide a pair of binary32 by tolerances that are reduced, or such that nothing is near.

    A bound that overflows exceeds every finite distance. Terms that underflow are rounded up by
    less than half of the smallest number each, whose multiple a distance is. And a rtol that
    underflows is less than any two unequal numbers differ by.
    """
    return (a == b) | (abs(a - b) < atol + rtol * abs(b))


@jitable
def _surely_close_narrow(x, y, rtol, atol):
    """binary32 arithmetic."""
    reduced_rtol, reduced_atol = reduced(rtol, atol)
    doubt = False
    for i in range(x.size):
        doubt |= not sure_narrow(single(x[i]), single(y[i]), reduced_rtol, reduced_atol)
    return not doubt


def _surely_close_small(x, y, rtol, atol):
    """Bytes and 16-bit integers: equality costs a tenth of arithmetic, binary64 is exact."""
    differing = stored(x[0]) ^ stored(y[0])
    for i in range(x.size):
        differing |= stored(x[i]) ^ stored(y[i])
    if differing == 0 or _surely_close_narrow(x, y, rtol, atol):
        return True
    return _surely_close_wide(x, y, rtol, atol)


def _surely_close_long(x, y, rtol, atol):
    """64-bit integers: a distance that is less than the bound once rounded is less before.

    One that equals it is exact below 2**53.
    """
    doubt = False
    for i in range(x.size):
        a = x[i]
        b = y[i]
        apart = double(gap(a, b))
        bound = atol + rtol * abs(double(b))
        near = (apart < bound) | ((apart == bound) & (bound < 2.0**53))
        doubt |= not ((a == b) | near)
    return not doubt


def _surely_close_complex(x, y, rtol, atol):
    """Squares against a lower bound of the squared tolerance, where neither ends the range."""
    # Dropping the mixed term, and a rtol too small to square, only lowers the bound; a rtol
    # above 1e3 could raise what underflowed in |b|**2.
    least = rtol if rtol < 1e3 else 1e3
    squared_rtol = least * least if rtol > 1e-150 else 0.0
    squared_atol = atol * atol if 0.0 <= rtol < np.inf and atol >= 0.0 else -np.inf
    doubt = False
    for i in range(x.size):
        a_re = double(x[i].real)
        a_im = double(x[i].imag)
        b_re = double(y[i].real)
        b_im = double(y[i].imag)
        re = a_re - b_re
        im = a_im - b_im
        bound = squared_atol + squared_rtol * (b_re * b_re + b_im * b_im)
        near = (
            ((re * re + im * im) * (1.0 + 2.0**-40) <= bound) & (bound < 1e300) & (bound > 1e-280)
        )
        doubt |= not (((a_re == b_re) & (a_im == b_im)) | near)
    return not doubt


def surely_decided(x, y, rtol, atol, equal_nan, out):
    """Write the verdicts of two short arrays and return True if none is in doubt."""


@jitable_as(surely_decided)
def _(x, y, rtol, atol, equal_nan, out):
    if x.dtype in (types.int64, types.uint64):
        return lambda x, y, rtol, atol, equal_nan, out: False
    return _decide_complex if isinstance(x.dtype, types.Complex) else _decide_real


def _decide_real(x, y, rtol, atol, equal_nan, out):
    doubt = False
    for i in range(x.size):
        a = double(x[i])
        b = double(y[i])
        d = abs(a - b)
        bound = atol + rtol * abs(b)
        near = (d <= bound) & (bound < np.inf)
        out[i] = (a == b) | near | (equal_nan & (a != a) & (b != b))
        # Only these can be decided otherwise by an unlimited exponent range.
        high = (not (bound < np.inf)) & (abs(a) < np.inf) & (abs(b) < np.inf)
        low = (bound <= LOW) & (d <= 2.0 * LOW) & (a != b)
        doubt |= high | low
    return not doubt


def _decide_complex(x, y, rtol, atol, equal_nan, out):
    """Take squares as they are; what leaves the range where that is exact is in doubt."""
    doubt = False
    for i in range(x.size):
        a_re = double(x[i].real)
        a_im = double(x[i].imag)
        b_re = double(y[i].real)
        b_im = double(y[i].imag)
        re = a_re - b_re
        im = a_im - b_im
        d = math.sqrt(re * re + im * im)
        size = math.sqrt(b_re * b_re + b_im * b_im)
        bound = atol + rtol * size
        equal = (a_re == b_re) & (a_im == b_im)
        out[i] = equal | (d <= bound)
        zero = (b_re == 0.0) & (b_im == 0.0)
        ordinary = (TINY < d) & (d < HUGE) & ((TINY < size) | zero)
        doubt |= not (equal | (ordinary & (LOW < bound) & (bound < np.inf)))
    return not doubt


# The loops


@jitable
def first_apart(a, b, rtol, atol, equal_nan):
    """Return the position of the first pair that is not close, or -1."""
    a, b = borrowed((a, b))
    block = _BLOCK_BYTES // a.itemsize
    for start in range(0, a.size, block):
        prefetch(a, start + _BLOCKS_AHEAD * block, block)
        prefetch(b, start + _BLOCKS_AHEAD * block, block)
        x = a[start : start + block]
        y = b[start : start + block]
        if not surely_close(x, y, rtol, atol):
            for i in range(x.size):
                if not close(x[i], y[i], rtol, atol, equal_nan):
                    return start + i
    return -1


def rows_apart(a, b, rtol, atol, equal_nan, start, width, out):
    """Clear out[row] where a pair is not close; a[0] is element `start` of rows of `width`."""
    a, b = borrowed((a, b))
    i = 0
    while i < a.size:
        apart = first_apart(a[i:], b[i:], rtol, atol, equal_nan)
        if apart < 0:
            break
        row = (start + i + apart) // width
        out[row] = False
        i = (row + 1) * width - start
    return -1


def columns_apart(a, b, rtol, atol, equal_nan, start, width, out):
    """Clear out[column] where a pair is not close; a[0] is element `start` of rows of `width`."""
    a, b = borrowed((a, b))
    block = _BLOCK_BYTES // a.itemsize
    for begin in range(0, a.size, block):
        prefetch(a, begin + _BLOCKS_AHEAD * block, block)
        prefetch(b, begin + _BLOCKS_AHEAD * block, block)
        x = a[begin : begin + block]
        y = b[begin : begin + block]
        if not surely_close(x, y, rtol, atol):
            for i in range(x.size):
                column = (start + begin + i) % width
                if out[column] and not close(x[i], y[i], rtol, atol, equal_nan):
                    out[column] = False
    return -1


def mask(a, b, rtol, atol, equal_nan, out):
    """Write each pair's verdict."""
    a, b, out = borrowed((a, b, out))
    block = _BLOCK_BYTES // a.itemsize
    for start in range(0, a.size, block):
        prefetch(a, start + _BLOCKS_AHEAD * block, block)
        prefetch(b, start + _BLOCKS_AHEAD * block, block)
        x = a[start : start + block]
        y = b[start : start + block]
        verdicts = out[start : start + block]
        if not surely_decided(x, y, rtol, atol, equal_nan, verdicts):
            for i in range(x.size):
                verdicts[i] = close(x[i], y[i], rtol, atol, equal_nan)
    return -1


def mask_each(a, b, rtol, atol, equal_nan, out):
    """Write each pair's verdict by tolerances of its own."""
    for i in range(a.size):
        out[i] = close(a[i], b[i], rtol[i], atol[i], equal_nan)
    return -1


# Their compiled versions, by dtype or by the dtypes of a and b


_TOLERANCES = (types.float64, types.float64, types.boolean)
_VERDICTS = vector(types.boolean, readonly=False)
_EACH = vector(types.float64)
_ROWS = (types.int64, types.int64, _VERDICTS)

FIRST_APART = Kernels(first_apart, lambda key: (*pair_of_vectors(key), *_TOLERANCES))
ROWS_APART = Kernels(rows_apart, lambda key: (*pair_of_vectors(key), *_TOLERANCES, *_ROWS))
COLUMNS_APART = Kernels(columns_apart, lambda key: (*pair_of_vectors(key), *_TOLERANCES, *_ROWS))
MASK = Kernels(mask, lambda key: (*pair_of_vectors(key), *_TOLERANCES, _VERDICTS))
MASK_EACH = Kernels(
    mask_each, lambda key: (*pair_of_vectors(key), _EACH, _EACH, types.boolean, _VERDICTS)
)
