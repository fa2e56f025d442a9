"""The first look of gradcheck at many columns, and what it needs to know of a large matrix."""

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import register_jitable

from .._jit import Kernels
from .differences import STATUS
from .formats import vector


@register_jitable
def _is_clear(
    own: float,
    up: float,
    down: float,
    floor: float,
    rtol: float,
    atol: float,
    share: float,
    bend: float,
    noise: float,
) -> bool:
    """
    Tell whether an entry is near the mean of two one-sided slopes.

    Nor may the two differ by more than `bend` of the entry and `noise`: that may be a kink. `share`
    is how much of the tolerance an entry may use. See `Rule`.
    """
    slope = 0.5 * up + 0.5 * down
    size = max(abs(own), abs(slope))
    scale = floor if size <= rtol * floor else abs(slope)
    near = abs(own - slope) <= share * (atol + rtol * scale)
    straight = (bend == np.inf) | (abs(up - down) <= bend * size + noise)  # else 0 times infinity
    return near and straight


def screen(
    analytic, right, left, row_sizes, column_sizes, rtol, atol, share, bend, noise, steps, suspect
):
    """Mark the columns in which an analytic entry is not clear; `noise` is that of f."""
    for k in range(analytic.shape[0]):
        doubts = 0
        own, ahead, behind = analytic[k], right[k], left[k]
        column_size, step = column_sizes[k], steps[k]
        for i in range(row_sizes.size):
            up, down = float(ahead[i]), float(behind[i])
            floor = min(row_sizes[i], column_size)
            clear = _is_clear(own[i], up, down, floor, rtol, atol, share, bend, noise[i] / step)
            doubts += 0 if clear else 1
        if doubts > 0:
            suspect[k] = 1


def doubts(
    analytic, right, left, row_sizes, column_sizes, rtol, atol, share, bend, noise, steps, doubted
):
    """Mark the rows of one column in which an analytic entry is not clear."""
    for i in range(row_sizes.size):
        up, down = float(right[0, i]), float(left[0, i])
        floor, slack = min(row_sizes[i], column_sizes[0]), noise[i] / steps[0]
        clear = _is_clear(analytic[0, i], up, down, floor, rtol, atol, share, bend, slack)
        doubted[i] = 0 if clear else 1


_TILE = 32
_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF
_INFINITY = 0x7FF0_0000_0000_0000


def turn(matrix, first, last, target):
    """Store columns first to last of a matrix as the rows of `target`, tile by tile."""
    rows = matrix.shape[0]
    for i in range(0, rows, _TILE):
        end = min(i + _TILE, rows)
        for j in range(first, last, _TILE):
            for c in range(j, min(j + _TILE, last)):
                line = target[c - first]
                for r in range(i, end):
                    line[r] = matrix[r, c]


def enlarge(bits, by_row, by_column):
    """
    Raise the largest magnitudes of rows and columns to those of a matrix, where it is finite.

    All are binary64 seen as integers: the order of magnitudes is that of the bits without the sign.
    """
    for r in range(bits.shape[0]):
        line, most = bits[r], by_row[r]
        for c in range(by_column.size):
            size = line[c] & _MAGNITUDE
            size = size if size < _INFINITY else 0
            most = max(most, size)
            by_column[c] = max(by_column[c], size)
        by_row[r] = most


_DOUBLES = vector(types.float64)
_ROWS = types.Array(types.float64, 2, "C", readonly=True)


def _signature(dtype: Any) -> tuple[Any, ...]:
    slopes = types.Array(numba.from_dtype(np.dtype(dtype)), 2, "C", readonly=True)
    numbers = (types.float64,) * 4
    return (_ROWS, slopes, slopes, _DOUBLES, _DOUBLES, *numbers, _DOUBLES, _DOUBLES, STATUS)


_MATRIX = types.Array(types.float64, 2, "C")
_BITS = types.Array(types.int64, 2, "C", readonly=True)
_SIZES = vector(types.int64, readonly=False)

SCREEN = Kernels(screen, _signature)
DOUBTS = Kernels(doubts, _signature)
TURN = Kernels(turn, lambda _: (_ROWS, types.int64, types.int64, _MATRIX))
ENLARGE = Kernels(enlarge, lambda _: (_BITS, _SIZES, _SIZES))
