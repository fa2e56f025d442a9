"""Is every number of an array finite?"""

import numpy as np
from numba.core import types

from .._jit import Kernels
from .equality import BLOCK_BYTES
from .jitable import jitable_as
from .scalar.predicates import finite
from .vectors import element_type, vector
from .views import borrowed


def all_finite(x):
    """Return True if all numbers of a short array are finite."""


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
