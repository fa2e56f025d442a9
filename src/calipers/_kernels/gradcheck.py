"""The first look of gradcheck at many columns, and what it needs to know of a large matrix."""

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import register_jitable

from .._jit import Kernels
from .calls import borrowed, evaluate, reals, shaped
from .differences import FIXED, LOST, REACHED, STATUS, function_types, restore, tabulate
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
    near = (abs(own - slope) <= share * (atol + rtol * scale)) & (abs(slope) < np.inf)
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


@register_jitable
def _count_unclear(
    own: Any,
    above: Any,
    below: Any,
    base: Any,
    ahead: float,
    behind: float,
    row_sizes: Any,
    column_size: float,
    rtol: float,
    atol: float,
    share: float,
    bend: float,
    noise: Any,
    step: float,
) -> int:
    """
    Count the entries of a column that are not clear; `ahead` and `behind` make slopes of changes.

    The first pass asks for a little more than the rule, and costs half: no floor makes that easier.
    """
    least, more, per_step = share * atol, share * min(rtol, 1.0), 1.0 / step
    unsure = 0
    for i in range(own.size):
        up, down = (above[i] - base[i]) * ahead, (below[i] - base[i]) * behind
        slope = 0.5 * up + 0.5 * down
        near = (abs(own[i] - slope) <= least + more * abs(slope)) & (abs(slope) < np.inf)
        straight = abs(up - down) <= bend * abs(own[i]) + noise[i] * per_step
        unsure += 0 if near & straight else 1
    if unsure == 0:
        return 0
    unclear = 0
    for i in range(own.size):
        up, down = (above[i] - base[i]) * ahead, (below[i] - base[i]) * behind
        floor, slack = min(row_sizes[i], column_size), noise[i] / step
        clear = _is_clear(own[i], up, down, floor, rtol, atol, share, bend, slack)
        unclear += 0 if clear else 1
    return unclear


def glance(
    f,
    x,
    origin,
    start,
    lengths,
    factor,
    no_bounds,
    right,
    left,
    tables,
    base,
    upper,
    lower,
    analytic,
    row_sizes,
    column_sizes,
    rtol,
    atol,
    share,
    bend,
    noise,
    steps,
    status,
    suspect,
    reached,
):
    """
    Mark the columns from `start` in which an entry of an analytic Jacobian is not clear.

    That is what `screen` does, with f called where it is needed: no slope leaves the caches.
    `analytic` has rows for each form of the Jacobian; `right` and `left` are the stencils of the
    slopes, and `tables` room for where they are. Return the first coordinate whose step is lost,
    or -1.
    """
    x, origin, lengths, no_bounds, right, left = borrowed(
        (x, origin, lengths, no_bounds, right, left)
    )
    tables, base, upper, lower, analytic, status = borrowed(
        (tables, base, upper, lower, analytic, status)
    )
    row_sizes, column_sizes, noise, steps, suspect, reached = borrowed(
        (row_sizes, column_sizes, noise, steps, suspect, reached)
    )
    coords, above, below = reals(x), reals(upper), reals(lower)
    given = lengths, factor, no_bounds, no_bounds
    tabulate(origin, 1, start, *given, right, right, coords, tables[0], status, 0, status.size)
    tabulate(origin, 1, start, *given, left, left, coords, tables[1], status, 0, status.size)
    coords[:] = origin
    lost = -1
    for k in range(status.size):
        c = start + k
        reached[0] = c
        if status[k] == LOST and lost < 0:
            lost = c
        if status[k] != FIXED:  # no slope confirms anything here
            suspect[k] = 1
            continue
        coords[c] = tables[0, 0, 0, k]
        evaluate(f, x, upper)
        coords[c] = tables[1, 0, 0, k]
        evaluate(f, x, lower)
        coords[c] = origin[c]
        ahead, behind = tables[0, 2, 0, k], tables[1, 2, 0, k]
        for form in range(analytic.shape[0]):
            found = above, below, base, ahead, behind, row_sizes, column_sizes[k]
            rule = rtol, atol, share, bend, noise, steps[k]
            if _count_unclear(analytic[form, k], *found, *rule) > 0:
                suspect[k] = 1
    restore(coords, origin)
    return lost


def doubts(
    analytic, right, left, row_sizes, column_sizes, rtol, atol, share, bend, noise, steps, doubted
):
    """Mark the rows of one column in which an analytic entry is not clear."""
    for i in range(row_sizes.size):
        up, down = float(right[0, i]), float(left[0, i])
        floor, slack = min(row_sizes[i], column_sizes[0]), noise[i] / steps[0]
        clear = _is_clear(analytic[0, i], up, down, floor, rtol, atol, share, bend, slack)
        doubted[i] = 0 if clear else 1


def at_units(f, x, zeros, start, like, result):
    """
    Store what f gives for unit vectors from `start`, a row of real numbers each.

    `x` is room for them, and what f returns is an array like `like`.
    """
    x, zeros, like, result = borrowed((x, zeros, like, result))
    coords = reals(x)
    coords[:] = zeros
    for k in range(result.shape[0]):
        coords[start + k] = 1.0
        evaluate(f, x, shaped(result[k], like))
        coords[start + k] = 0.0
    restore(coords, zeros)


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


def _glance_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key)
    where = (form, x, vector(coords.dtype), types.int64)
    ways = (_DOUBLES, types.float64, _DOUBLES, _ROWS, _ROWS)
    scratch = (types.Array(types.float64, 4, "C"), base, out, out)
    analytic = types.Array(types.float64, 3, "C", readonly=True)
    numbers = (types.float64,) * 4
    rule = (analytic, _DOUBLES, _DOUBLES, *numbers, _DOUBLES, _DOUBLES)
    return (*where, *ways, *scratch, *rule, STATUS, STATUS, REACHED)


def _at_units_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key)
    zeros, result = vector(coords.dtype), types.Array(base.dtype, 2, "C")
    return (form, x, zeros, types.int64, out, result)


AT_UNITS = Kernels(at_units, _at_units_signature)
GLANCE = Kernels(glance, _glance_signature)
SCREEN = Kernels(screen, _signature)
DOUBTS = Kernels(doubts, _signature)
TURN = Kernels(turn, lambda _: (_ROWS, types.int64, types.int64, _MATRIX))
ENLARGE = Kernels(enlarge, lambda _: (_BITS, _SIZES, _SIZES))
