"""How the elements of arrays on a device are found and read, and how the CPU's rules are taken."""

from typing import Any

import numba
import numpy as np
from numba import config, cuda

from ..formats import from_bfloat16, from_half

# Kernels compile functions of Numba's CPU target for the device. The simulator calls them compiled,
# as what Numba has instead of Python cannot be interpreted, and interprets all others.
rule = numba.njit(error_model="numpy")


@cuda.jit(device=True)
def as_is(x):
    return x


@cuda.jit(device=True)
def _plain(x, i):
    return x[i]


# Reads what other blocks have written meanwhile: a plain read may be one of long ago.
latest = _plain if config.ENABLE_CUDASIM else cuda.ldcv


@rule
def _half(x):
    return from_half(x)


@rule
def _bfloat16(x):
    return from_bfloat16(x)


def loader(kind: str) -> Any:
    """Return what turns an element of memory into a number: bits, where Numba has no type."""
    return {"float16": _half, "bfloat16": _bfloat16}.get(kind, as_is)


@cuda.jit(device=True)
def _flat(i, shape, a_steps, b_steps):
    return i, i


@cuda.jit(device=True)
def _strided(i, shape, a_steps, b_steps):
    """Return where element i of C order stands in the memory of two arrays.

    Their steps are the place of the first element, and the distances along each axis.
    """
    p = np.int64(a_steps[0])
    q = np.int64(b_steps[0])
    for axis in range(len(shape) - 1, -1, -1):
        k = i % shape[axis]
        i //= shape[axis]
        p += k * a_steps[axis + 1]
        q += k * b_steps[axis + 1]
    return p, q


def place_finder(flat: bool) -> Any:
    """Return what finds elements: at once, or by their indices."""
    return _flat if flat else _strided
