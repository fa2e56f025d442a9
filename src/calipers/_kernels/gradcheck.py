"""The first look of gradcheck at many columns: which of them need a second one."""

from typing import Any

import numba
import numpy as np
from numba.core import types

from .._jit import Kernels
from .differences import STATUS
from .formats import vector


def screen(
    analytic, right, left, row_sizes, column_sizes, rtol, atol, share, bend, noise, steps, suspect
):
    """
    Mark the columns in which an analytic entry is not near the mean of two one-sided slopes.

    Nor are they clear if the two slopes differ by more than `bend` of the entry and what `noise` of
    f leaves in them: that may be a kink. `share` is how much of the tolerance an entry may use.
    """
    for k in range(analytic.shape[0]):
        doubts = 0
        own, ahead, behind = analytic[k], right[k], left[k]
        column_size, step = column_sizes[k], steps[k]
        for i in range(row_sizes.size):
            up, down = float(ahead[i]), float(behind[i])
            slope = 0.5 * up + 0.5 * down
            size = max(abs(own[i]), abs(slope))
            floor = min(row_sizes[i], column_size)
            scale = floor if size <= rtol * floor else abs(slope)
            near = abs(own[i] - slope) <= share * (atol + rtol * scale)
            straight = abs(up - down) <= bend * size + noise[i] / step
            doubts += 0 if near and straight else 1
        suspect[k] = 1 if doubts > 0 else 0


_DOUBLES = vector(types.float64)
_ROWS = types.Array(types.float64, 2, "C", readonly=True)


def _signature(dtype: Any) -> tuple[Any, ...]:
    slopes = types.Array(numba.from_dtype(np.dtype(dtype)), 2, "C", readonly=True)
    numbers = (types.float64,) * 4
    return (_ROWS, slopes, slopes, _DOUBLES, _DOUBLES, *numbers, _DOUBLES, _DOUBLES, STATUS)


SCREEN = Kernels(screen, _signature)
