"""Equality of numbers: the scalar rule, and loops that find the first unequal pair."""

import numpy as np
from numba.core import types

from .._core.jit import Kernels
from . import jitable, jitable_as
from .function_calls import borrowed
from .scalar.closeness import distance, finite
from .scalar.formats import Truth, element_type, number, pair_of_vectors, single, stored, vector

# Bytes of a block: two fit the nearest cache; a shorter one takes longer to set up than to read.
BLOCK_BYTES = 8192


def unequal(a, b, equal_nan):
    """Return True if two numbers differ; two NaN are equal if `equal_nan`."""


@jitable_as(unequal)
def _(a, b, equal_nan):
    if isinstance(a, Truth) or isinstance(b, Truth):
        return lambda a, b, equal_nan: unequal(number(a), number(b), equal_nan)
    if isinstance(a, types.Complex):
        return _unequal_complex
    if isinstance(a, types.Integer) and a != b:
        return _unequal_signs
    if isinstance(a, (types.Integer, types.Float)):
        return lambda a, b, equal_nan: a != b and not (equal_nan and a != a and b != b)
    return lambda a, b, equal_nan: unequal(single(a), single(b), equal_nan)


def _unequal_signs(a, b, equal_nan):
    # Numba compares int64 with uint64 as floats.
    difference, overflow = distance(a, b)
    return overflow or difference != np.uint64(0)


def _unequal_complex(a, b, equal_nan):
    if a.real == b.real and a.imag == b.imag:
        return False
    a_nan = a.real != a.real or a.imag != a.imag
    b_nan = b.real != b.real or b.imag != b.imag
    return not (equal_nan and a_nan and b_nan)


def same(x, y):
    """
    Return True only if every pair of two short arrays is equal, and none is a pair of NaN.

    It errs only towards doubt, as where two truths are other bytes.
    """


@jitable_as(same)
def _(x, y):
    if isinstance(x.dtype, types.Complex):
        part = np.float32 if x.dtype is types.complex64 else np.float64
        return lambda x, y: same(x.view(part), y.view(part))
    return _same


@jitable
def _differs(x, y, i):
    return unequal(stored(x[i]), stored(y[i]), False)


def _same(x, y):
    # Without an early exit, so that the loop is vectorised.
    differ = False
    for i in range(x.size):
        differ |= _differs(x, y, i)
    return not differ


def first_unequal(a, b, equal_nan):
    """Return the position of the first pair that is not equal, or -1."""
    a, b = borrowed((a, b))
    block = BLOCK_BYTES // a.itemsize
    for start in range(0, a.size, block):
        x = a[start : start + block]
        y = b[start : start + block]
        if not same(x, y):
            for i in range(x.size):
                if unequal(x[i], y[i], equal_nan):
                    return start + i
    return -1


def first_unequal_strided(a, b, equal_nan):
    """
    Return the position of the first unequal pair of strided arrays, or -1.

    What is vectorised would gather elements, which takes twice as long as four loads and a test.
    """
    a, b = borrowed((a, b))
    whole = a.size - a.size % 4
    for i in range(0, whole, 4):
        one = _differs(a, b, i) | _differs(a, b, i + 1)
        other = _differs(a, b, i + 2) | _differs(a, b, i + 3)
        if one | other:
            for k in range(i, i + 4):
                if unequal(a[k], b[k], equal_nan):
                    return k
    for i in range(whole, a.size):
        if unequal(a[i], b[i], equal_nan):
            return i
    return -1


FIRST_UNEQUAL = Kernels(first_unequal, lambda key: (*pair_of_vectors(key), types.boolean))
FIRST_UNEQUAL_STRIDED = Kernels(
    first_unequal_strided, lambda key: (*pair_of_vectors(key, "A"), types.boolean)
)


def all_finite(x):
    """Return True if all numbers of a short array are finite."""


@jitable_as(all_finite)
def _(x):
    if isinstance(x.dtype, types.Complex):
        part = np.float32 if x.dtype == types.complex64 else np.float64
        return lambda x: all_finite(x.view(part))
    return _all_finite


def _all_finite(x):
    # Without an early exit, so that the loop is vectorised.
    nonfinite = False
    for i in range(x.size):
        nonfinite |= not finite(x[i])
    return not nonfinite


def first_nonfinite(a):
    """Return the position of the first NaN or infinity, or -1."""
    (a,) = borrowed((a,))
    block = BLOCK_BYTES // a.itemsize
    for start in range(0, a.size, block):
        x = a[start : start + block]
        if not all_finite(x):
            for i in range(x.size):
                if not finite(x[i]):
                    return start + i
    return -1


FIRST_NONFINITE = Kernels(first_nonfinite, lambda dtype: (vector(element_type(dtype)),))
