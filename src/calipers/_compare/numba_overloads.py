"""Overloads of allclose and isclose for @njit functions, registered by Numba's entry point."""

import math

import numpy as np
from numba.core import types
from numba.core.errors import TypingError

from .._kernels import jitable, jitable_as
from .._kernels.closeness import first_mismatch
from .._kernels.function_calls import vector_of
from .._kernels.matrices import broadcast, element, next_row, row_at, rows_of
from .._kernels.scalar.closeness import close
from .._kernels.scalar.formats import runs_on_gpu
from .closeness import allclose as allclose
from .closeness import isclose as isclose


def register() -> None:
    """Do nothing: importing this module registers the overloads."""


_ELEMENTS = (types.Boolean, types.Integer, types.Float, types.Complex)


def _supported(x):
    element = x.dtype if isinstance(x, types.Array) else x
    return isinstance(element, _ELEMENTS) and element != types.float16


def _check(rtol, atol, axis):
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if isinstance(tolerance, types.Array):
            msg = f"{name} must be a number in compiled code, got an array; compare in a loop"
            raise TypingError(msg)
    if not (axis is None or isinstance(axis, types.misc.Omitted) or axis == types.none):
        msg = "axis is not supported in compiled code; call allclose for each row"
        raise TypingError(msg)


@jitable_as(allclose)
def _allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False, axis=None):
    if not (_supported(a) and _supported(b)):
        return None
    _check(rtol, atol, axis)
    if not (isinstance(a, types.Array) or isinstance(b, types.Array)):
        return lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False, axis=None: close(
            a, b, float(rtol), float(atol), equal_nan
        )
    if isinstance(a, types.Array) and a.layout == "C" and a == b:

        def contiguous(a, b, rtol=1e-5, atol=1e-8, equal_nan=False, axis=None):
            # The fast tests of blocks are for CPUs: GPU compilers contract them to FMA.
            if a.shape == b.shape and not runs_on_gpu():
                x, y = vector_of(a), vector_of(b)
                return first_mismatch(x, y, float(rtol), float(atol), equal_nan) < 0
            return _all_close(a, b, float(rtol), float(atol), equal_nan)

        return contiguous
    return lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False, axis=None: _all_close(
        weak(a, b), weak(b, a), float(rtol), float(atol), equal_nan
    )


@jitable
def _all_close(a, b, rtol, atol, equal_nan):
    shape, steps, others = broadcast(a, b)
    rows, length, index = rows_of(shape)
    for _ in range(rows):
        p, q = row_at(index, steps), row_at(index, others)
        for i in range(length):
            if not close(element(a, steps, p, i), element(b, others, q, i), rtol, atol, equal_nan):
                return False
        index = next_row(index, shape)
    return True


@jitable_as(isclose)
def _isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    if not (_supported(a) and _supported(b)):
        return None
    _check(rtol, atol, None)
    if not (isinstance(a, types.Array) or isinstance(b, types.Array)):
        return lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False: close(
            a, b, float(rtol), float(atol), equal_nan
        )
    return lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False: _each_close(
        weak(a, b), weak(b, a), float(rtol), float(atol), equal_nan
    )


@jitable
def _each_close(a, b, rtol, atol, equal_nan):
    shape, steps, others = broadcast(a, b)
    out = np.empty(shape, dtype=np.bool_)
    verdicts = vector_of(out)
    rows, length, index = rows_of(shape)
    for row in range(rows):
        p, q = row_at(index, steps), row_at(index, others)
        for i in range(length):
            x, y = element(a, steps, p, i), element(b, others, q, i)
            verdicts[row * length + i] = close(x, y, rtol, atol, equal_nan)
        index = next_row(index, shape)
    return out


def weak(x, other):
    """Return x; a scalar that is compared with a float32 array is rounded to float32 first.

    Compiled code cannot distinguish a Python number from a NumPy scalar of 64 bits. It assumes the
    former, whose dtype is weak (NEP 50).
    """


@jitable_as(weak)
def _weak(x, other):
    if isinstance(x, types.Array):
        return lambda x, other: x
    if other.dtype not in (types.float32, types.complex64) or isinstance(x, types.Boolean):
        return lambda x, other: x
    if isinstance(x, types.Complex):
        return lambda x, other: complex(_rounded(x.real), _rounded(x.imag))
    return lambda x, other: _rounded(np.float64(x))


@jitable
def _rounded(x):
    rounded = np.float64(np.float32(x))
    return rounded if math.isfinite(rounded) else np.float64(x)
