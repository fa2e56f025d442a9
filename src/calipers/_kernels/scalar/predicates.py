"""Is a number finite, is it NaN, and do two numbers have opposite signs?"""

import numpy as np
from numba.core import types

from ..jitable import jitable_as
from .formats import Truth, double, single


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
