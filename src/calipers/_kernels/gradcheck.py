"""The screening pass of gradcheck over many columns."""

from typing import Any

import numpy as np
from numba.core import types
from numba.core.types import containers

from .._core.jit import Kernels
from . import jitable
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
from .function_calls import assign, borrowed, evaluate, reals, shaped
from .gradcheck_marks import (
    DOUBTED,
    VAGUE,
    WAITING,
    ColumnCriteria,
    add_to_rows,
    all_of,
    mark_by_more,
    mark_by_products,
    mark_of,
    measured,
    stretches_of,
    take_fourth_order,
    take_means,
)
from .scalar.formats import vector


def screen_columns(
    f,
    x,
    origin,
    column_jvp,
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
    ends,
    analytic,
    rule,
    marks,
    needs,
    least,
    status,
    progress,
):
    """
    Raise the marks of the columns from `start` by comparing an analytic Jacobian with slopes of f.

    Slopes are judged as they arise, so that they stay in the cache. The largest magnitudes of
    columns and rows are stored in `rule.column_sizes` and `by_row`.

    `right` and `left` are the rules of the steps, and `far` are the longer steps, 0 where there are
    none. `tables` (points), `values` (of f, arrays like `like`) and `ends` (of the stretches of a
    column) are scratch. `column_jvp` is None, or a jvp that is called for each column, an array of
    zeros for its directions, and an array like its results. `products` is None, or compared in
    place of entries: weights of rows, their products with the Jacobian, weights of columns, and
    an array for their products with the slopes. With either, `analytic` has space for one column.
    `progress` receives the last coordinate begun and the number of slopes. Return the first
    coordinate whose step is lost, or -1.
    """
    (x, origin, far), right, left = borrowed((x, origin, far)), borrowed(right), borrowed(left)
    tables, base, like, values, ends, analytic, status = borrowed(
        (tables, base, like, values, ends, analytic, status)
    )
    by_row, marks, needs, least, progress = borrowed((by_row, marks, needs, least, progress))
    rule = borrowed(rule)
    coords = reals(x)
    bits, sizes = analytic.view(np.int64), rule.column_sizes.view(np.int64)
    for direction, near in enumerate((right, left)):
        for power in range(3):
            more = _farther(near, far, 0.5 * 2.0**power)
            table = tables[1 + power, direction]
            tabulate(origin, 1, start, more, coords, table, status, 0, status.size)
        # Last, so that `status` is that of the near steps.
        tabulate(origin, 1, start, near, coords, tables[0, direction], status, 0, status.size)
    assign(coords, origin)
    lost = -1
    for k in range(status.size):
        c = start + k
        progress[0] = c
        line = k if column_jvp is None and products is None else 0
        if column_jvp is not None:
            jvp, unit, like_jvp = column_jvp
            reals(unit)[c] = 1.0
            evaluate(jvp, unit, shaped(analytic[0, 0], like_jvp))
            reals(unit)[c] = 0.0
        if status[k] == LOST and lost < 0:
            lost = c
        if status[k] != FIXED:  # there is no slope to compare with
            marks[k] = DOUBTED
            if products is None:
                sizes[k] = measured(bits, line, by_row, all_of(ends, base.size))
            continue
        pair = _evaluate_pair(f, x, origin, c, tables[0], k, like, values[0])
        progress[1] += 1
        if products is None:
            stretches = stretches_of(analytic, line, pair, base, ends)
        else:
            stretches = stretches_of(analytic[:0], line, pair, base, ends)
            take_means(pair, base, analytic[0, 0], stretches)
        sizes[k] = measured(bits, line, by_row, stretches)
        for form in range(analytic.shape[0]):
            mark = mark_of(analytic[form, line], pair, base, rule, k, needs, stretches)
            marks[k] = max(marks[k], mark)
        if products is not None and marks[k] != DOUBTED:
            mark = mark_by_products(analytic[0, 0], c, products, rule, k, needs, least, stretches)
            marks[k] = VAGUE if mark == DOUBTED else max(marks[k], mark)
        if marks[k] == VAGUE and far[c] == 0:
            marks[k] = DOUBTED
        if marks[k] == VAGUE:
            half = _evaluate_pair(f, x, origin, c, tables[1], k, like, values[1])
            whole = _evaluate_pair(f, x, origin, c, tables[2], k, like, values[2])
            twice = _evaluate_pair(f, x, origin, c, tables[3], k, like, values[3])
            progress[1] += 3
            more, worst = (half, whole, twice), WAITING
            if products is not None:
                take_fourth_order(more, base, analytic[0, 0], stretches)
                worst = mark_by_products(
                    analytic[0, 0], c, products, rule, k, needs, least, stretches
                )
            for form in range(analytic.shape[0]):
                claimed = analytic[form, line]
                mark = mark_by_more(claimed, pair, more, far[c], base, rule, k, needs, stretches)
                worst = max(worst, mark)
            marks[k] = worst
        if products is not None:
            add_to_rows(analytic[0, 0], c, products, stretches)
    require_unchanged(coords, origin)
    if column_jvp is not None:
        unit = reals(column_jvp[1])
        require_unchanged(unit, np.zeros(unit.size))
    return lost


@jitable
def _farther(rule: Any, lengths: Any, factor: float) -> Any:
    """Return a rule of steps with other lengths."""
    return StepRule(lengths, factor, rule.lows, rule.highs, rule.central, rule.sided)


@jitable
def _evaluate_pair(
    f: Any, x: Any, origin: Any, c: int, table: Any, k: int, like: Any, values: Any
) -> Any:
    """Return f on both sides of x, and the weights that make slopes of its changes."""
    coords, width = reals(x), reals(like).size
    for direction in range(2):
        coords[c] = table[direction, 0, 0, k]
        evaluate(f, x, shaped(values[direction, :width], like))
    coords[c] = origin[c]
    return values[0], values[1], table[0, 2, 0, k], table[1, 2, 0, k]


def at_points(f, x, origin, numbers, points, like, result, reached):
    """
    Store f at points that differ from x in one real number, a row of real numbers each.

    `x` is scratch, and f returns an array like `like`.
    """
    x, origin, numbers, points = borrowed((x, origin, numbers, points))
    like, result, reached = borrowed((like, result, reached))
    coords = reals(x)
    assign(coords, origin)
    for k in range(points.size):
        c = numbers[k]
        if k and c != numbers[k - 1]:  # before the number that f may have changed is restored
            require_unchanged(coords, origin)
        reached[0] = k
        coords[c] = points[k]
        evaluate(f, x, shaped(result[k], like))
        coords[c] = origin[c]
    require_unchanged(coords, origin)


_DOUBLES = vector(types.float64)
_VECTOR = vector(types.float64, readonly=False)
_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_FORMS = types.Array(types.float64, 3, "C")
_MATRIX = types.Array(types.float64, 2, "C")
_SIZES = vector(types.int64, readonly=False)
_STRETCHES = types.Array(types.uint64, 2, "C")
_CRITERIA = containers.NamedTuple(
    (_DOUBLES, _VECTOR, *(types.float64,) * 4, _DOUBLES, _DOUBLES), ColumnCriteria
)


def _screen_columns_signature(key: Any) -> tuple[Any, ...]:
    f_key, jvp, by_products = key
    form, x, coords, out, base = function_types(f_key)
    column_jvp: Any = types.none
    products: Any = types.none
    if by_products:
        products = containers.Tuple((_ROWS, _ROWS, _ROWS, _MATRIX))
    if jvp is not None:
        call, unit, _, like, _ = function_types(jvp)
        column_jvp = containers.Tuple((call, unit, like))
    where = (form, x, vector(coords.dtype), column_jvp, products, types.int64)
    ways = (STEP_RULE, STEP_RULE, _DOUBLES)
    results = (STATUS, _VECTOR, _VECTOR, STATUS, REACHED)
    values = types.Array(base.dtype, 3, "C")
    scratch = (types.Array(types.float64, 5, "C"), base, out, values)
    return (*where, *ways, *scratch, _SIZES, _STRETCHES, _FORMS, _CRITERIA, *results)


def _at_points_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key)
    values, result = vector(coords.dtype), types.Array(base.dtype, 2, "C")
    return (form, x, values, vector(types.int64), values, out, result, REACHED)


AT_POINTS = Kernels(at_points, _at_points_signature)
SCREEN_COLUMNS = Kernels(screen_columns, _screen_columns_signature)
