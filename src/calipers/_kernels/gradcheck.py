"""The first look of gradcheck at many columns."""

from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import types
from numba.core.types import containers

from .._jit import Kernels
from .calls import evaluate
from .differences import (
    FIXED,
    LOST,
    REACHED,
    STATUS,
    STEP_RULE,
    StepRule,
    function_types,
    require_unchanged,
    tabulate,
)
from .formats import vector
from .jitable import in_any_order, jitable
from .matrices import WORD, measured
from .views import assign, borrowed, reals, shaped

# What is found of a column, the worse the later.
CLEAR, WAITING, VAGUE, DOUBTED, LEFT_OUT = range(5)

_ODD = 0.02  # of what slopes to both sides of x differ by, which curvature need not explain
_ROUNDED = 2.0**-4  # of the noise: what rounding alone may do to a slope
TOLD_APART = 0.1  # of the tolerance, by products: as much is left where some errors cancel
_KNOWN = 0.5  # of the tolerance: for an entry and the error of a slope that has one


class Criteria(NamedTuple):
    """
    When the entries of some columns are clear; see `Rule`.

    `row_sizes` may be no more than limits of what is not known yet. `noise` is that of each
    result of f, and `steps` are those of the columns.
    """

    row_sizes: Any
    column_sizes: Any
    rtol: float
    atol: float
    share: float
    bend: float
    noise: Any
    steps: Any


@jitable
def _size_needed(own: float, slope: float, error: float, share: float, rule: Any) -> float:
    """
    Return how large row and column of an entry have to be for it to be clear; inf if none are.

    It and the error of the slope may take a share of the tolerance.
    """
    size, gap = max(abs(own), abs(slope)), abs(own - slope) + error
    if not (gap < np.inf and abs(slope) < np.inf):
        return np.inf
    if gap <= share * (rule.atol + rule.rtol * abs(slope)):
        return 0.0
    return float(max(size, gap / share - rule.atol) / rule.rtol)


@jitable
def _size_by_mean(own: float, up: float, down: float, rule: Any) -> float:
    """Return the size that an entry needs by the mean of slopes whose error is not known."""
    return float(_size_needed(own, 0.5 * up + 0.5 * down, 0.0, rule.share, rule))


@jitable
def _is_straight(own: float, up: float, down: float, bend: float, noise: float) -> bool:
    """Tell whether slopes differ by no more than `bend` of an entry: more may be a kink."""
    size = max(abs(own), abs(0.5 * up + 0.5 * down))
    return bend == np.inf or abs(up - down) <= bend * size + noise  # else 0 times infinity


@jitable
def _slopes(sides: Any, base: Any, i: int) -> Any:
    """Return the slopes of a result, from values to both sides of x and the weights of changes."""
    above, below, ahead, behind = sides
    return (above[i] - base[i]) * ahead, (below[i] - base[i]) * behind


@jitable
def _changed(sides: Any, base: Any, first: int, last: int) -> bool:
    """Tell whether f gives something else to a side of x, or what cannot be told apart."""
    above, below = sides[0], sides[1]
    count = 0
    for i in range(first, last):
        count += 1 if (above[i] - base[i] != 0.0) | (below[i] - base[i] != 0.0) else 0
    return count > 0


@jitable
def _something(own: Any, first: int, last: int) -> bool:
    """Tell whether an entry is not 0."""
    count = 0
    for i in range(first, last):
        count += 1 if own[i] != 0.0 else 0
    return count > 0


@jitable
def _stretches(forms: Any, line: int, sides: Any, base: Any, room: Any) -> Any:
    """
    Return where a column begins and ends to be something: what f does or what a form claims.

    Of most functions of many numbers a column is mostly 0, and of that there is nothing to judge.
    The ends are unsigned: indices that might be negative keep loops from being vectorised.
    """
    count, size = 0, np.uint64(base.size)
    for first in range(np.uint64(0), size, np.uint64(WORD)):
        last = min(first + np.uint64(WORD), size)
        some = _changed(sides, base, first, last)
        for form in range(forms.shape[0]):
            some |= _something(forms[form, line], first, last)
        if some:
            if count > 0 and room[count - 1, 1] == first:
                room[count - 1, 1] = last
            else:
                room[count, 0], room[count, 1] = first, last
                count += 1
    return room[:count]


@jitable
def _whole(room: Any, size: int) -> Any:
    """Return all of a column as one stretch."""
    room[0, 0], room[0, 1] = 0, size
    return room[:1]


@jitable
def _mark(own: Any, sides: Any, base: Any, rule: Any, k: int, needs: Any, parts: Any) -> int:
    """
    Return CLEAR, WAITING, VAGUE or DOUBTED for column k, whose entries `own` are claimed to be.

    WAITING is what is clear by the sizes of rows: those it takes are noted in `needs`. VAGUE is
    what may only be hidden by rounding, or bent by curvature. `parts` are its `_stretches`.
    """
    # A first pass leaves sizes out, which never make it harder, and asks for a little more than
    # the rule, so that the bound is of `own`. Both sides are doubled: that spares a halving.
    above, below, ahead, behind = sides
    noise, column_size, per_step = rule.noise, rule.column_sizes[k], 1.0 / rule.steps[k]
    exact = 1.0 + rule.share * rule.rtol
    least, more = 2.0 * rule.share * rule.atol / exact, 2.0 * rule.share * rule.rtol / exact
    curved = min(rule.bend, 1e300)
    unsure = 0
    for part in range(len(parts)):
        for i in range(parts[part, 0], parts[part, 1]):
            up, down = (above[i] - base[i]) * ahead, (below[i] - base[i]) * behind
            size = abs(own[i])
            near = (abs(own[i] + own[i] - (up + down)) <= least + more * size) & (size < np.inf)
            straight = abs(up - down) <= curved * size + noise[i] * per_step
            unsure += 0 if near & straight else 1
    if unsure == 0:
        return CLEAR
    vague = False
    for part in range(len(parts)):
        for i in range(parts[part, 0], parts[part, 1]):
            up, down = _slopes(sides, base, i)
            noisy = noise[i] * per_step
            near = _size_by_mean(own[i], up, down, rule) <= min(rule.row_sizes[i], column_size)
            if not (near or abs(own[i] - (0.5 * up + 0.5 * down)) <= noisy):
                return DOUBTED
            vague |= not (near and _is_straight(own[i], up, down, rule.bend, noisy))
    if vague:
        return VAGUE
    for part in range(len(parts)):
        for i in range(parts[part, 0], parts[part, 1]):
            up, down = _slopes(sides, base, i)
            needs[i] = max(needs[i], _size_by_mean(own[i], up, down, rule))
    return WAITING


@jitable
def _mark_by_more(
    own: Any,
    sides: Any,
    far: Any,
    distance: float,
    base: Any,
    rule: Any,
    k: int,
    needs: Any,
    parts: Any,
) -> int:
    """
    Return WAITING or DOUBTED for column k, which is VAGUE, by slopes from farther away.

    `far` are those from half of `distance`, from it, and from twice as far. Together they make two
    slopes of the fourth order, rounded by far less than the near ones, whose difference is their
    error. And what slopes to both sides differ by has to grow with the step: so it does by
    curvature, and at no kink.
    """
    step, column_size = rule.steps[k], rule.column_sizes[k]
    for part in range(len(parts)):
        for i in range(parts[part, 0], parts[part, 1]):
            up, down = _slopes(sides, base, i)
            noise, least = rule.noise[i] / step, min(rule.row_sizes[i], column_size)
            size = _size_by_mean(own[i], up, down, rule)
            straight = _is_straight(own[i], up, down, rule.bend, noise)
            if not (straight and size <= least):
                half_up, half_down = _slopes(far[0], base, i)
                far_up, far_down = _slopes(far[1], base, i)
                twice_up, twice_down = _slopes(far[2], base, i)
                odd = abs(up - down - (far_up - far_down) * (step / distance))
                if not (straight or odd <= _ODD * abs(up - down) + _ROUNDED * noise):
                    return DOUBTED
                one = _fourth_order(half_up, half_down, far_up, far_down)
                other = _fourth_order(far_up, far_down, twice_up, twice_down)
                error = abs(one - other) + _ROUNDED * rule.noise[i] / distance
                size = _size_needed(own[i], one, error, max(_KNOWN, rule.share), rule)
                if not size <= least:
                    return DOUBTED
            needs[i] = max(needs[i], size)
    return WAITING


@in_any_order
def _dot(weights: Any, x: Any, parts: Any) -> float:
    total = 0.0
    for part in range(len(parts)):
        for i in range(parts[part, 0], parts[part, 1]):
            total += weights[i] * x[i]
    return total


@jitable
def _mark_by_products(
    own: Any, c: int, products: Any, rule: Any, k: int, needs: Any, least: Any, parts: Any
) -> int:
    """
    Return CLEAR, WAITING or DOUBTED for column k, the c-th, by products with weights of rows.

    `own` is what the column is by slopes, and `images` are what the Jacobian to check gives. What
    is WAITING is clear in rows of a size: those of zeros have to be as large as `least`, and those
    of small entries as `needs` says.
    """
    weights, images, _, _ = borrowed(products)
    share = min(rule.share, TOLD_APART)
    off = 0.0
    for i in range(weights.shape[0]):
        apart = abs(_dot(weights[i], own, parts) - images[i, c])
        if not apart < np.inf:
            return DOUBTED
        off = max(off, apart)
    if off <= share * rule.atol:
        return CLEAR
    # An entry of that size may be off by as much; a smaller one has to be nothing in its row and
    # column, as a zero is, and these to be of that size.
    needed, size = (off / share - rule.atol) / rule.rtol, rule.column_sizes[k]
    if not needed <= size:
        return DOUBTED
    small, something = 0, 0
    for part in range(len(parts)):
        for i in range(parts[part, 0], parts[part, 1]):
            entry = abs(own[i])
            small += 1 if (entry > 0.0) & (entry < needed) else 0
            something += 1 if (entry > rule.rtol * size) & (entry < needed) else 0
    if something > 0:
        return DOUBTED
    if small > 0:
        for part in range(len(parts)):
            for i in range(parts[part, 0], parts[part, 1]):
                if 0.0 < abs(own[i]) < needed:
                    needs[i] = max(needs[i], abs(own[i]) / rule.rtol)
    least[0] = max(least[0], needed)
    return WAITING


@jitable
def _add_to_rows(own: Any, c: int, products: Any, parts: Any) -> None:
    """Add column c to the products of rows with weights of columns."""
    _, _, weights, sums = borrowed(products)
    for k in range(weights.shape[0]):
        weight, line = weights[k, c], sums[k]
        for part in range(len(parts)):
            for i in range(parts[part, 0], parts[part, 1]):
                line[i] += weight * own[i]


@jitable
def _take_means(sides: Any, base: Any, own: Any, parts: Any) -> None:
    """Store the means of slopes to both sides."""
    for part in range(len(parts)):
        for i in range(parts[part, 0], parts[part, 1]):
            up, down = _slopes(sides, base, i)
            own[i] = 0.5 * up + 0.5 * down


@jitable
def _take_fourth_order(far: Any, base: Any, own: Any, parts: Any) -> None:
    """Store the slopes that `_mark_by_more` compares entries with."""
    for part in range(len(parts)):
        for i in range(parts[part, 0], parts[part, 1]):
            near_up, near_down = _slopes(far[0], base, i)
            up, down = _slopes(far[1], base, i)
            own[i] = _fourth_order(near_up, near_down, up, down)


@jitable
def _fourth_order(half_up: float, half_down: float, up: float, down: float) -> float:
    """Return the slope by those from two distances, half of one and all of it."""
    return (2.0 * half_up + 2.0 * half_down - (0.5 * up + 0.5 * down)) / 3.0


def screen(analytic, right, left, none, rule, found, needs, room):
    """
    Raise the marks of columns to what `_mark` says of an analytic Jacobian and slopes of f.

    `analytic` has rows for each form of the Jacobian. What is compared are slopes, not values:
    `none` is a vector of zeros.
    """
    for k in range(right.shape[0]):
        sides = right[k], left[k], 1.0, 1.0
        parts = _stretches(analytic, k, sides, none, room)
        for form in range(analytic.shape[0]):
            found[k] = max(found[k], _mark(analytic[form, k], sides, none, rule, k, needs, parts))


def resolve(analytic, slopes, far, distances, none, rule, found, needs, room):
    """Resolve the marks of columns that are VAGUE, by slopes to both sides at farther steps."""
    for k in range(found.size):
        if found[k] != VAGUE:
            continue
        found[k] = WAITING
        sides = slopes[0][k], slopes[1][k], 1.0, 1.0
        half = far[0][0][k], far[0][1][k], 1.0, 1.0
        whole = far[1][0][k], far[1][1][k], 1.0, 1.0
        twice = far[2][0][k], far[2][1][k], 1.0, 1.0
        more = half, whole, twice
        parts = _whole(room, none.size)
        for form in range(analytic.shape[0]):
            own = analytic[form, k]
            mark = _mark_by_more(own, sides, more, distances[k], none, rule, k, needs, parts)
            found[k] = max(found[k], mark)


def glance(
    f,
    x,
    origin,
    asked,
    products,
    start,
    right,
    left,
    far,
    tables,
    base,
    like,
    values,
    by_row,
    stretches,
    analytic,
    rule,
    found,
    needs,
    least,
    status,
    told,
):
    """
    Raise the marks of columns from `start` to what is found of an analytic Jacobian.

    That is what `screen` and `resolve` do, with f called where it is needed: no slope leaves the
    caches. And the Jacobian is measured, into `rule.column_sizes` and `by_row`. `stretches` is room
    for those of a column.

    `right` and `left` are the steps of slopes, and `far` the farther ones, 0 where there are none;
    `tables` is room for where they are and `values` for what f gives there, arrays like `like`.
    `asked`, if it is not None, is a jvp that is asked for each column by itself, an array of zeros
    for its directions, and one like what it returns. `products`, if they are not None, are what is
    compared in place of entries: weights of rows and what the Jacobian gives for them, and weights
    of columns and room for what slopes give for them. With either, `analytic` has room for one
    column. In `told` are the last coordinate begun and how many slopes were taken. Return the first
    coordinate whose step is lost, or -1.
    """
    (x, origin, far), right, left = borrowed((x, origin, far)), borrowed(right), borrowed(left)
    tables, base, like, values, stretches, analytic, status = borrowed(
        (tables, base, like, values, stretches, analytic, status)
    )
    by_row, found, needs, least, told = borrowed((by_row, found, needs, least, told))
    rule = borrowed(rule)
    coords = reals(x)
    bits, sizes = analytic.view(np.int64), rule.column_sizes.view(np.int64)
    for side, near in enumerate((right, left)):
        for power in range(3):
            more = _farther(near, far, 0.5 * 2.0**power)
            room = tables[1 + power, side]
            tabulate(origin, 1, start, more, coords, room, status, 0, status.size)
        # The last ones tell the fates of columns.
        tabulate(origin, 1, start, near, coords, tables[0, side], status, 0, status.size)
    assign(coords, origin)
    lost = -1
    for k in range(status.size):
        c = start + k
        told[0] = c
        line = k if asked is None and products is None else 0
        if asked is not None:
            jvp, unit, like_jvp = asked
            reals(unit)[c] = 1.0
            evaluate(jvp, unit, shaped(analytic[0, 0], like_jvp))
            reals(unit)[c] = 0.0
        if status[k] == LOST and lost < 0:
            lost = c
        if status[k] != FIXED:  # no slope confirms anything here
            found[k] = DOUBTED
            if products is None:
                sizes[k] = measured(bits, line, by_row, _whole(stretches, base.size))
            continue
        sides = _sides(f, x, origin, c, tables[0], k, like, values[0])
        told[1] += 1
        if products is None:
            parts = _stretches(analytic, line, sides, base, stretches)
        else:
            parts = _stretches(analytic[:0], line, sides, base, stretches)
            _take_means(sides, base, analytic[0, 0], parts)
        sizes[k] = measured(bits, line, by_row, parts)
        for form in range(analytic.shape[0]):
            mark = _mark(analytic[form, line], sides, base, rule, k, needs, parts)
            found[k] = max(found[k], mark)
        if products is not None and found[k] != DOUBTED:
            mark = _mark_by_products(analytic[0, 0], c, products, rule, k, needs, least, parts)
            found[k] = VAGUE if mark == DOUBTED else max(found[k], mark)
        if found[k] == VAGUE and far[c] == 0:
            found[k] = DOUBTED
        if found[k] == VAGUE:
            half = _sides(f, x, origin, c, tables[1], k, like, values[1])
            whole = _sides(f, x, origin, c, tables[2], k, like, values[2])
            twice = _sides(f, x, origin, c, tables[3], k, like, values[3])
            told[1] += 3
            more, worst = (half, whole, twice), WAITING
            if products is not None:
                _take_fourth_order(more, base, analytic[0, 0], parts)
                worst = _mark_by_products(analytic[0, 0], c, products, rule, k, needs, least, parts)
            for form in range(analytic.shape[0]):
                own = analytic[form, line]
                mark = _mark_by_more(own, sides, more, far[c], base, rule, k, needs, parts)
                worst = max(worst, mark)
            found[k] = worst
        if products is not None:
            _add_to_rows(analytic[0, 0], c, products, parts)
    require_unchanged(coords, origin)
    if asked is not None:
        unit = reals(asked[1])
        require_unchanged(unit, np.zeros(unit.size))
    return lost


@jitable
def _farther(rule: Any, lengths: Any, factor: float) -> Any:
    """Return a rule of steps with other lengths."""
    return StepRule(lengths, factor, rule.lows, rule.highs, rule.central, rule.sided)


@jitable
def _sides(f: Any, x: Any, origin: Any, c: int, table: Any, k: int, like: Any, values: Any) -> Any:
    """Call f to both sides of x; return its values, and by what their changes make slopes."""
    coords, width = reals(x), reals(like).size
    for side in range(2):
        coords[c] = table[side, 0, 0, k]
        evaluate(f, x, shaped(values[side, :width], like))
    coords[c] = origin[c]
    return values[0], values[1], table[0, 2, 0, k], table[1, 2, 0, k]


def doubts(analytic, right, left, rule, doubted):
    """Mark the entries of columns, a row each, that are not clear."""
    for k in range(doubted.shape[0]):
        for i in range(rule.row_sizes.size):
            own, up, down = analytic[k, i], right[k, i], left[k, i]
            size = _size_by_mean(own, up, down, rule)
            straight = _is_straight(own, up, down, rule.bend, rule.noise[i] / rule.steps[k])
            clear = straight and size <= min(rule.row_sizes[i], rule.column_sizes[k])
            doubted[k, i] = 0 if clear else 1


def at_points(f, x, origin, numbers, points, like, result, reached):
    """
    Store what f gives where one of the real numbers of x is another, a row of real numbers each.

    `x` is room for it, and what f returns is an array like `like`.
    """
    x, origin, numbers, points = borrowed((x, origin, numbers, points))
    like, result, reached = borrowed((like, result, reached))
    coords = reals(x)
    assign(coords, origin)
    for k in range(points.size):
        reached[0] = k
        c = numbers[k]
        coords[c] = points[k]
        evaluate(f, x, shaped(result[k], like))
        coords[c] = origin[c]
    require_unchanged(coords, origin)


_DOUBLES = vector(types.float64)
_ROOM = vector(types.float64, readonly=False)
_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_FORMS = types.Array(types.float64, 3, "C")
_MATRIX = types.Array(types.float64, 2, "C")
_MARKS = types.Array(types.int8, 2, "C")
_SIZES = vector(types.int64, readonly=False)
_STRETCHES = types.Array(types.uint64, 2, "C")
_CRITERIA = containers.NamedTuple(
    (_DOUBLES, _ROOM, *(types.float64,) * 4, _DOUBLES, _DOUBLES), Criteria
)


def _slope_types(dtype: Any) -> tuple[Any, Any]:
    kind = numba.from_dtype(np.dtype(dtype))
    return types.Array(kind, 2, "C", readonly=True), vector(kind)


def _screen_signature(dtype: Any) -> tuple[Any, ...]:
    slopes, none = _slope_types(dtype)
    return (_FORMS, slopes, slopes, none, _CRITERIA, STATUS, _ROOM, _STRETCHES)


def _resolve_signature(dtype: Any) -> tuple[Any, ...]:
    slopes, none = _slope_types(dtype)
    pair = containers.UniTuple(slopes, 2)
    far = containers.UniTuple(pair, 3)
    return (_FORMS, pair, far, _DOUBLES, none, _CRITERIA, STATUS, _ROOM, _STRETCHES)


def _glance_signature(key: Any) -> tuple[Any, ...]:
    own, jvp, by_products = key
    form, x, coords, out, base = function_types(own)
    asked: Any = types.none
    products: Any = types.none
    if by_products:
        products = containers.Tuple((_ROWS, _ROWS, _ROWS, _MATRIX))
    if jvp is not None:
        call, unit, _, like, _ = function_types(jvp)
        asked = containers.Tuple((call, unit, like))
    where = (form, x, vector(coords.dtype), asked, products, types.int64)
    ways = (STEP_RULE, STEP_RULE, _DOUBLES)
    told = (STATUS, _ROOM, _ROOM, STATUS, REACHED)
    values = types.Array(base.dtype, 3, "C")
    scratch = (types.Array(types.float64, 5, "C"), base, out, values)
    return (*where, *ways, *scratch, _SIZES, _STRETCHES, _FORMS, _CRITERIA, *told)


def _doubts_signature(_: Any) -> tuple[Any, ...]:
    return (_ROWS, _ROWS, _ROWS, _CRITERIA, _MARKS)


def _at_points_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key)
    values, result = vector(coords.dtype), types.Array(base.dtype, 2, "C")
    return (form, x, values, vector(types.int64), values, out, result, REACHED)


AT_POINTS = Kernels(at_points, _at_points_signature)
GLANCE = Kernels(glance, _glance_signature)
SCREEN = Kernels(screen, _screen_signature)
RESOLVE = Kernels(resolve, _resolve_signature)
DOUBTS = Kernels(doubts, _doubts_signature)
