"""Is a number finite? The rule, and the loop that looks for the first that is not."""

import numpy as np
from numba.core import types

from .._jit import Kernels
from .equality import BLOCK_BYTES
from .formats import Truth, element_type, single, vector
from .jitable import jitable_as
from .views import borrowed


def finite(x):
    """Tell whether a number, or each part of a complex one, is neither infinite nor NaN."""


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


def all_finite(x):
    """Tell whether all numbers of a short array are finite."""


@jitable_as(all_finite)
def _(x):
    if isinstance(x.dtype, types.Complex):
        part = np.float32 if x.dtype == types.complex64 else np.float64
        return lambda x: all_finite(x.view(part))
    return _all_finite


def _all_finite(x):
    # Without a way out, so that it is vectorised.
    found = False
    for i in range(x.size):
        found |= not finite(x[i])
    return not found


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
