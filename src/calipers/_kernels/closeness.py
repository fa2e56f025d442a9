"""Loops of the closeness rule over two arrays.

They first run a vectorised test that errs only towards doubt, block by block, and apply the rule
itself to the pairs of a doubtful block.
"""

import math

import numpy as np
from numba.core import types

from .._core.jit import Kernels
from . import jitable, jitable_as, numpy_versions
from .function_calls import borrowed
from .scalar.closeness import (
    HUGE,
    LOW,
    TINY,
    close,
    gap,
    increased,
    reduced,
    sure_narrow,
    sure_wide,
)
from .scalar.formats import Truth, double, pair_of_vectors, prefetch, single, stored, vector

# Bytes of a block: one of each array fits the nearest cache together with the lines being fetched
# for the next four.
_BLOCK_BYTES = 512
_BLOCKS_AHEAD = 4  # blocks between the one that is prefetched and the current one


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


def surely_equal(x, y):
    """Return True only if two short arrays are equal; False where that takes as long to find."""


@jitable_as(surely_equal)
def _(x, y):
    quick = x.dtype in (types.int32, types.uint32) and x.dtype == y.dtype
    return (lambda x, y: _equal(x, y)) if quick else lambda x, y: False


@jitable
def _equal(x, y):
    differing = stored(x[0]) ^ stored(y[0])
    for i in range(x.size):
        differing |= stored(x[i]) ^ stored(y[i])
    return differing == 0


@jitable
def _surely_close_wide(x, y, rtol, atol):
    """Test binary64, and integers whose differences are exact in it."""
    doubt = False
    for i in range(x.size):
        doubt |= not sure_wide(double(x[i]), double(y[i]), rtol, atol)
    return not doubt


@jitable
def _surely_close_narrow(x, y, rtol, atol):
    """Test in binary32 arithmetic."""
    reduced_rtol, reduced_atol = reduced(rtol, atol)
    doubt = False
    for i in range(x.size):
        doubt |= not sure_narrow(single(x[i]), single(y[i]), reduced_rtol, reduced_atol)
    return not doubt


def _surely_close_small(x, y, rtol, atol):
    """Test bytes and 16-bit integers: first equality, at a tenth of the time."""
    if _equal(x, y) or _surely_close_narrow(x, y, rtol, atol):
        return True
    return _surely_close_wide(x, y, rtol, atol)


def _surely_close_long(x, y, rtol, atol):
    """
    Test 64-bit integers by rounded distances.

    A distance that is less than the bound after rounding is less before it. One that is equal to
    the bound is exact below 2**53.
    """
    doubt = False
    for i in range(x.size):
        a = x[i]
        b = y[i]
        distance = double(gap(a, b))
        bound = atol + rtol * abs(double(b))
        near = (distance < bound) | ((distance == bound) & (bound < 2.0**53))
        doubt |= not ((a == b) | near)
    return not doubt


def _surely_close_complex(x, y, rtol, atol):
    """Compare squares with a lower bound of the squared tolerance, within the range of both."""
    # Dropping the mixed term, and a rtol too small to square, only lowers the bound; a rtol
    # above 1e3 could magnify an underflow of |b|**2.
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
    if isinstance(x.dtype, types.Complex):
        return _decide_complex
    wide = x.dtype in (types.float64, types.int32, types.uint32) or x.dtype != y.dtype
    return _decide_wide if wide else _decide_narrow


def _decide_narrow(x, y, rtol, atol, equal_nan, out):
    """Decide in binary32 arithmetic; pairs about as far apart as the bound are in doubt."""
    reduced_rtol, reduced_atol = reduced(rtol, atol)
    raised_rtol, raised_atol = increased(rtol, atol)
    doubt = False
    for i in range(x.size):
        a = single(x[i])
        b = single(y[i])
        near = sure_narrow(a, b, reduced_rtol, reduced_atol)
        far = abs(a - b) > raised_atol + raised_rtol * abs(b)
        out[i] = near | (equal_nan & (a != a) & (b != b))
        doubt |= not (near | far | (a != a) | (b != b))
    return not doubt


def _decide_wide(x, y, rtol, atol, equal_nan, out):
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
    """Decide by unscaled squares; pairs outside their range are in doubt."""
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
def first_mismatch(a, b, rtol, atol, equal_nan):
    """Return the position of the first pair that is not close, or -1."""
    a, b = borrowed((a, b))
    block = _BLOCK_BYTES // a.itemsize
    equal = True  # a test of equality is worth its time where pairs are equal, as those before
    for start in range(0, a.size, block):
        prefetch(a, start + _BLOCKS_AHEAD * block, block)
        prefetch(b, start + _BLOCKS_AHEAD * block, block)
        x = a[start : start + block]
        y = b[start : start + block]
        equal = equal and surely_equal(x, y)
        if not (equal or surely_close(x, y, rtol, atol)):
            for i in range(x.size):
                if not close(x[i], y[i], rtol, atol, equal_nan):
                    return start + i
    return -1


def mismatched_rows(a, b, rtol, atol, equal_nan, start, width, out):
    """Clear out[row] where a pair is not close; a[0] is element `start` of rows of `width`."""
    a, b = borrowed((a, b))
    i = 0
    while i < a.size:
        position = first_mismatch(a[i:], b[i:], rtol, atol, equal_nan)
        if position < 0:
            break
        row = (start + i + position) // width
        out[row] = False
        i = (row + 1) * width - start
    return -1


def mismatched_columns(a, b, rtol, atol, equal_nan, start, width, out):
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
    # Tests that have no verdicts to write are worth their time where pairs are close, as those
    # before.
    equal = all_close = True
    out[:] = True
    for start in range(0, a.size, block):
        prefetch(a, start + _BLOCKS_AHEAD * block, block)
        prefetch(b, start + _BLOCKS_AHEAD * block, block)
        x = a[start : start + block]
        y = b[start : start + block]
        verdicts = out[start : start + block]
        equal = equal and surely_equal(x, y)
        if equal or (all_close and surely_close(x, y, rtol, atol)):
            continue
        if not surely_decided(x, y, rtol, atol, equal_nan, verdicts):
            for i in range(x.size):
                verdicts[i] = close(x[i], y[i], rtol, atol, equal_nan)
        all_close = verdicts.all()
    return -1


def mask_each(a, b, rtol, atol, equal_nan, out):
    """Write each pair's verdict; each has its tolerances."""
    for i in range(a.size):
        out[i] = close(a[i], b[i], rtol[i], atol[i], equal_nan)
    return -1


# Their compiled versions, by dtype or by the dtypes of a and b


_TOLERANCES = (types.float64, types.float64, types.boolean)
_VERDICTS = vector(types.boolean, readonly=False)
_EACH = vector(types.float64)
_ROWS = (types.int64, types.int64, _VERDICTS)

FIRST_MISMATCH = Kernels(
    first_mismatch,
    lambda key: (*pair_of_vectors(key), *_TOLERANCES),
    by_numpy=numpy_versions.first_mismatch,
)
MISMATCHED_ROWS = Kernels(
    mismatched_rows, lambda key: (*pair_of_vectors(key), *_TOLERANCES, *_ROWS)
)
MISMATCHED_COLUMNS = Kernels(
    mismatched_columns, lambda key: (*pair_of_vectors(key), *_TOLERANCES, *_ROWS)
)
MASK = Kernels(
    mask,
    lambda key: (*pair_of_vectors(key), *_TOLERANCES, _VERDICTS),
    by_numpy=numpy_versions.mask,
)
MASK_EACH = Kernels(
    mask_each, lambda key: (*pair_of_vectors(key), _EACH, _EACH, types.boolean, _VERDICTS)
)
