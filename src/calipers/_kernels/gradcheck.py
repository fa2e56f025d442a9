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

# What is found of a column, the worse the later.
CLEAR, WAITING, DOUBTED, LEFT_OUT = range(4)


@register_jitable
def _size_needed(
    own: float,
    up: float,
    down: float,
    rtol: float,
    atol: float,
    share: float,
    bend: float,
    noise: float,
) -> float:
    """
    Return how large row and column of an entry have to be for it to be clear; inf if none are.

    It has to be near the mean of two one-sided slopes, which may differ by no more than `bend` of
    the entry and `noise`: that may be a kink. `share` is how much of the tolerance an entry may
    use. See `Rule`.
    """
    slope = 0.5 * up + 0.5 * down
    size, gap = max(abs(own), abs(slope)), abs(own - slope)
    straight = (bend == np.inf) | (abs(up - down) <= bend * size + noise)  # else 0 times infinity
    if not (straight and gap < np.inf and abs(slope) < np.inf):
        return np.inf
    if gap <= share * (atol + rtol * abs(slope)):
        return 0.0
    return max(size, gap / share - atol) / rtol


@register_jitable
def _in_doubt(
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
    needs: Any,
) -> int:
    """
    Return CLEAR, WAITING or DOUBTED for a column; `ahead` and `behind` make slopes of changes.

    WAITING is what is clear by the sizes of rows: those it takes are noted in `needs`, as
    `row_sizes` may be no more than their limits.
    """
    # A first pass leaves sizes out, which never make it harder, and asks for a little more than
    # the rule, so that the bound is of `own`. Both sides are doubled: that spares a halving.
    exact = 1.0 + share * rtol
    least, more = 2.0 * share * atol / exact, 2.0 * share * rtol / exact
    curved, per_step = min(bend, 1e300), 1.0 / step
    unsure = 0
    for i in range(own.size):
        up, down, size = (above[i] - base[i]) * ahead, (below[i] - base[i]) * behind, abs(own[i])
        near = (abs(own[i] + own[i] - (up + down)) <= least + more * size) & (size < np.inf)
        straight = abs(up - down) <= curved * size + noise[i] * per_step
        unsure += 0 if near & straight else 1
    if unsure == 0:
        return CLEAR
    for i in range(own.size):
        up, down = (above[i] - base[i]) * ahead, (below[i] - base[i]) * behind
        size = _size_needed(own[i], up, down, rtol, atol, share, bend, noise[i] / step)
        if not size <= min(row_sizes[i], column_size):
            return DOUBTED
    for i in range(own.size):
        up, down = (above[i] - base[i]) * ahead, (below[i] - base[i]) * behind
        size = _size_needed(own[i], up, down, rtol, atol, share, bend, noise[i] / step)
        needs[i] = max(needs[i], size)
    return WAITING


def screen(
    analytic,
    right,
    left,
    none,
    row_sizes,
    column_sizes,
    rtol,
    atol,
    share,
    bend,
    noise,
    steps,
    found,
    needs,
):
    """
    Raise the marks of columns to what `_in_doubt` says of an analytic Jacobian and slopes of f.

    `noise` is that of f, and `analytic` has rows for each form of the Jacobian. What is compared
    are slopes, not values: `none` is a vector of zeros.
    """
    for k in range(right.shape[0]):
        for form in range(analytic.shape[0]):
            slopes = analytic[form, k], right[k], left[k], none, 1.0, 1.0
            rule = rtol, atol, share, bend, noise, steps[k]
            mark = _in_doubt(*slopes, row_sizes, column_sizes[k], *rule, needs)
            found[k] = max(found[k], mark)


def glance(
    f,
    x,
    origin,
    jvp,
    unit,
    like,
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
    by_row,
    analytic,
    row_sizes,
    column_sizes,
    rtol,
    atol,
    share,
    bend,
    noise,
    steps,
    found,
    needs,
    status,
    reached,
):
    """
    Raise the marks of columns from `start` to what is found of an analytic Jacobian.

    That is what `screen` does, with f called where it is needed: no slope leaves the caches. And
    the Jacobian is measured, into `column_sizes` and `by_row`. `right` and `left` are the stencils
    of the slopes, and `tables` room for where they are. A `jvp` that is not None is asked for each
    column by itself, by `unit`, an array of zeros; what it returns is like `like`, and `analytic`
    has room for one column. Return the first coordinate whose step is lost, or -1.
    """
    x, origin, lengths, no_bounds, right, left = borrowed(
        (x, origin, lengths, no_bounds, right, left)
    )
    tables, base, upper, lower, analytic, status = borrowed(
        (tables, base, upper, lower, analytic, status)
    )
    row_sizes, column_sizes, noise, steps, found, reached = borrowed(
        (row_sizes, column_sizes, noise, steps, found, reached)
    )
    by_row, needs = borrowed((by_row, needs))
    coords, above, below = reals(x), reals(upper), reals(lower)
    bits, sizes = analytic.view(np.int64), column_sizes.view(np.int64)
    given = lengths, factor, no_bounds, no_bounds
    tabulate(origin, 1, start, *given, right, right, coords, tables[0], status, 0, status.size)
    tabulate(origin, 1, start, *given, left, left, coords, tables[1], status, 0, status.size)
    coords[:] = origin
    lost = -1
    for k in range(status.size):
        c = start + k
        reached[0] = c
        line = k
        if jvp is not None:
            line = 0
            reals(unit)[c] = 1.0
            evaluate(jvp, unit, shaped(analytic[0, 0], like))
            reals(unit)[c] = 0.0
        size = 0
        for form in range(bits.shape[0]):
            size = max(size, _enlarged(bits[form, line], by_row))
        sizes[k] = size
        if status[k] == LOST and lost < 0:
            lost = c
        if status[k] != FIXED:  # no slope confirms anything here
            found[k] = DOUBTED
            continue
        coords[c] = tables[0, 0, 0, k]
        evaluate(f, x, upper)
        coords[c] = tables[1, 0, 0, k]
        evaluate(f, x, lower)
        coords[c] = origin[c]
        ahead, behind = tables[0, 2, 0, k], tables[1, 2, 0, k]
        for form in range(analytic.shape[0]):
            changes = analytic[form, line], above, below, base, ahead, behind
            rule = rtol, atol, share, bend, noise, steps[k]
            mark = _in_doubt(*changes, row_sizes, column_sizes[k], *rule, needs)
            found[k] = max(found[k], mark)
    restore(coords, origin)
    if jvp is not None:
        restore(reals(unit), np.zeros(reals(unit).size))
    return lost


def doubts(
    analytic, right, left, row_sizes, column_sizes, rtol, atol, share, bend, noise, steps, doubted
):
    """Mark the entries of columns, a row each, that are not clear."""
    for k in range(doubted.shape[0]):
        for i in range(row_sizes.size):
            slopes = analytic[k, i], right[k, i], left[k, i]
            size = _size_needed(*slopes, rtol, atol, share, bend, noise[i] / steps[k])
            doubted[k, i] = 0 if size <= min(row_sizes[i], column_sizes[k]) else 1


def at_points(f, x, origin, numbers, points, like, result, reached):
    """
    Store what f gives where one of the real numbers of x is another, a row of real numbers each.

    `x` is room for it, and what f returns is an array like `like`.
    """
    x, origin, numbers, points = borrowed((x, origin, numbers, points))
    like, result, reached = borrowed((like, result, reached))
    coords = reals(x)
    coords[:] = origin
    for k in range(points.size):
        reached[0] = k
        c = numbers[k]
        coords[c] = points[k]
        evaluate(f, x, shaped(result[k], like))
        coords[c] = origin[c]
    restore(coords, origin)


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


@register_jitable
def _enlarged(bits: Any, largest: Any) -> Any:
    """
    Raise magnitudes to those of a vector, where that is finite, and return the largest of its own.

    All are binary64 seen as integers: the order of magnitudes is that of the bits without the sign.
    """
    most = 0
    for i in range(largest.size):
        size = bits[i] & _MAGNITUDE
        size = size if size < _INFINITY else 0
        largest[i] = max(largest[i], size)
        most = max(most, size)
    return most


def enlarge(bits, by_row, by_column):
    """Raise the largest magnitudes of rows and columns to those of a matrix, as `_enlarged`."""
    for r in range(bits.shape[0]):
        by_row[r] = max(by_row[r], _enlarged(bits[r], by_column))


_DOUBLES = vector(types.float64)
_ROOM = vector(types.float64, readonly=False)
_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_FORMS = types.Array(types.float64, 3, "C", readonly=True)
_NUMBERS = (types.float64,) * 4


def _screen_signature(dtype: Any) -> tuple[Any, ...]:
    kind = numba.from_dtype(np.dtype(dtype))
    slopes = types.Array(kind, 2, "C", readonly=True)
    sizes = (_DOUBLES, _DOUBLES)
    return (_FORMS, slopes, slopes, vector(kind), *sizes, *_NUMBERS, *sizes, STATUS, _ROOM)


_MATRIX = types.Array(types.float64, 2, "C")
_MARKS = types.Array(types.int8, 2, "C")
_BITS = types.Array(types.int64, 2, "C", readonly=True)
_SIZES = vector(types.int64, readonly=False)


def _glance_signature(key: Any) -> tuple[Any, ...]:
    own, jvp = key
    form, x, coords, out, base = function_types(own)
    asked: tuple[Any, ...] = (types.none,) * 3
    if jvp is not None:
        call, unit, _, like, _ = function_types(jvp)
        asked = (call, unit, like)
    where = (form, x, vector(coords.dtype), *asked, types.int64)
    ways = (_DOUBLES, types.float64, _DOUBLES, _ROWS, _ROWS)
    scratch = (types.Array(types.float64, 4, "C"), base, out, out)
    analytic = types.Array(types.float64, 3, "C")
    rule = (_SIZES, analytic, _DOUBLES, _ROOM, *_NUMBERS, _DOUBLES, _DOUBLES)
    return (*where, *ways, *scratch, *rule, STATUS, _ROOM, STATUS, REACHED)


def _doubts_signature(_: Any) -> tuple[Any, ...]:
    sizes = (_DOUBLES, _DOUBLES)
    return (_ROWS, _ROWS, _ROWS, *sizes, *_NUMBERS, *sizes, _MARKS)


def _at_points_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key)
    values, result = vector(coords.dtype), types.Array(base.dtype, 2, "C")
    return (form, x, values, vector(types.int64), values, out, result, REACHED)


AT_POINTS = Kernels(at_points, _at_points_signature)
GLANCE = Kernels(glance, _glance_signature)
SCREEN = Kernels(screen, _screen_signature)
DOUBTS = Kernels(doubts, _doubts_signature)
TURN = Kernels(turn, lambda _: (_ROWS, types.int64, types.int64, _MATRIX))
ENLARGE = Kernels(enlarge, lambda _: (_BITS, _SIZES, _SIZES))
