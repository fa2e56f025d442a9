"""Fixed-step differences: evaluation points, weights and loops over the columns of f.

A stencil is a list of divided differences: a row (u, l, w) of its array stands for
``w * (f(x + u*h) - f(x + l*h)) / (u*h - l*h)``, the divisor being what the two arguments realised.
Their sum is the derivative. l = 0 is the base point, whose value is known.
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import types
from numba.core.types import containers

from .._core.jit import Kernels
from . import jitable
from .function_calls import assign, borrowed, evaluate, reals, shaped
from .scalar.formats import vector

_ONE = np.float64(1.0)  # a factor that widens binary32, in compiled code and in Python alike

# Statuses of a column, in order of severity.
NAMES_OF_STATUS = (
    "FIXED",
    "CONVERGED",
    "NOISY",
    "NONSMOOTH",
    "ALIASED",
    "NONFINITE",
    "BOUNDED",
    "EXCLUDED",
    "LOST",
)
FIXED, CONVERGED, NOISY, NONSMOOTH, ALIASED, NONFINITE, BOUNDED, EXCLUDED, LOST = range(9)


class StepRule(NamedTuple):
    """
    Where f is evaluated along a coordinate.

    The step is `factor` times its length: `lengths` has an element for each, or one for all, or
    none, and then it is max(1, |x|). `lows` and `highs` are the bounds, empty for none; `central`
    is the stencil, and `sided` that where bounds leave room on one side only.
    """

    lengths: Any
    factor: float
    lows: Any
    highs: Any
    central: Any
    sided: Any


@jitable
def entry(values: Any, j: int, default: float) -> Any:
    """Return element j of a vector that may be abbreviated to one element, or none (`default`)."""
    if values.size == 0:
        return default
    return values[j] if values.size > 1 else values[0]


@jitable
def _fits(x: float, h: float, stencil: Any, low: float, high: float) -> bool:
    fits = True
    for p in range(stencil.shape[0]):
        for end in range(2):
            point = x + stencil[p, end] * h
            fits = fits and low <= point <= high
    return fits


@jitable
def rounded(cell: Any, value: float) -> Any:
    """Return a number as the format of `cell` holds it."""
    cell[0] = value
    return cell[0]


@jitable
def _step(cell: Any, x: float, length: float) -> Any:
    """Return the step, away from zero, that a coordinate's format realises.

    Numerical Recipes, section 5.7.
    """
    return rounded(cell, x + math.copysign(length, x)) - x


@jitable
def _within(h: float, x: float, low: float, high: float, central: Any, sided: Any) -> Any:
    """Return a step within bounds, and whether the central stencil fits them.

    If it does not, the step goes toward the farther bound, and not past it.
    """
    if _fits(x, h, central, low, high):
        return h, True
    up, down = high - x, x - low
    largest = max(up, down) / sided[sided.shape[0] - 1, 0]
    return math.copysign(min(abs(h), largest), up - down), False


@jitable
def _fate(length: float, realised: float, h: float) -> int:
    """Return the status of a coordinate from the step its format realises and the step taken."""
    if length == 0:  # also at an x that is not finite
        return EXCLUDED
    if h != 0:
        return FIXED
    return LOST if realised == 0 else BOUNDED


@jitable
def tabulate(
    coords: Any,
    stride: int,
    start: int,
    rule: Any,
    cell: Any,
    table: Any,
    status: Any,
    first: int,
    last: int,
) -> None:
    """
    Store where f is evaluated along coordinates from `start`, and the weights, first to last.

    ``table[:, p, k]`` is both ends of pair p of coordinate k, and what the difference of f is
    multiplied by. A pair whose ends are the same is not evaluated: its weight is 0, or NaN where
    there is no derivative.
    """
    lengths, factor, lows, highs, central, sided = rule
    start += first
    fates = status[first:last]
    for p in range(table.shape[1]):
        tops, bottoms = table[0, p, first:last], table[1, p, first:last]
        weights = table[2, p, first:last]
        if lows.size == 0:  # as below, without branches
            up, down, weight = central[p, 0], central[p, 1], central[p, 2]
            for k in range(fates.size):
                x = _ONE * coords[stride * (start + k)]
                length = factor * entry(lengths, start + k, max(1.0, abs(x)))
                h = _step(cell, x, length)
                tops[k] = rounded(cell, x + up * h)
                bottoms[k] = rounded(cell, x + down * h)
                missing = math.nan if h == 0 else 0.0
                weights[k] = weight / (tops[k] - bottoms[k]) + missing
                fates[k] = _fate(length, h, h)
            continue
        for k in range(fates.size):
            x = _ONE * coords[stride * (start + k)]
            length = factor * entry(lengths, start + k, max(1.0, abs(x)))
            low, high = entry(lows, start + k, -math.inf), entry(highs, start + k, math.inf)
            realised = _step(cell, x, length)
            h, centered = _within(realised, x, low, high, central, sided)
            if rounded(cell, x + h) == x:  # a step below the spacing of x
                h = 0.0
            fates[k] = _fate(length, realised, h)
            stencil = central if centered else sided
            tops[k] = bottoms[k] = x
            weights[k] = math.nan if h == 0 else 0.0
            if h != 0 and p < stencil.shape[0]:
                tops[k] = rounded(cell, min(max(x + stencil[p, 0] * h, low), high))
                bottoms[k] = rounded(cell, min(max(x + stencil[p, 1] * h, low), high))
                weights[k] = stencil[p, 2] / (tops[k] - bottoms[k])


@jitable
def move(coords: Any, c: int, x: float, shift: float, low: float, high: float) -> Any:
    """Displace a coordinate from x, within bounds, to a number of its format, and return that."""
    coords[c] = min(max(x + shift, low), high)
    return coords[c]


@jitable
def require_same(number: float, passed: float) -> None:
    """Raise an error if f has changed a number of its argument."""
    if number != passed and not (math.isnan(number) and math.isnan(passed)):
        msg = "f changes its argument; let it work on a copy"
        raise ValueError(msg)


@jitable
def require_unchanged(coords: Any, origin: Any) -> None:
    """Raise an error if f has changed its argument."""
    for c in range(coords.size):
        require_same(coords[c], origin[c])


def columns(
    f,
    x,
    origin,
    stride,
    start,
    rule,
    table,
    base,
    upper,
    lower,
    result,
    status,
    reached,
):
    """
    Store derivatives of f at `origin` along ``status.size`` coordinates from `start`.

    `x` is the argument of f; coordinate j is every stride-th of the real numbers in its memory.
    `reached` tells the last coordinate begun, should f raise. Return the first
    coordinate whose step is lost, or -1.
    """
    (x, origin), rule = borrowed((x, origin)), borrowed(rule)
    table, base, upper, lower, result, status, reached = borrowed(
        (table, base, upper, lower, result, status, reached)
    )
    coords = reals(x)
    tabulate(origin, stride, start, rule, coords, table, status, 0, status.size)
    assign(coords, origin)
    lost = -1
    above, below = reals(upper), reals(lower)
    at_base = False
    for k in range(status.size):
        if status[k] == LOST and lost < 0:
            lost = start + k
        reached[0] = start + k
        c = stride * (start + k)
        row = result[k]
        if math.isnan(table[2, 0, k]):
            row[:] = math.nan
            continue
        for p in range(table.shape[1]):
            top, bottom, weight = table[0, p, k], table[1, p, k], table[2, p, k]
            if top == bottom:
                continue
            coords[c] = top
            # What f writes to memory goes there while it computes, and not after.
            evaluate(f, x, shaped(row, upper) if p == 0 else upper)
            require_same(coords[c], top)  # it is restored below
            if bottom != origin[c]:
                coords[c] = bottom
                evaluate(f, x, lower)
                require_same(coords[c], bottom)
                at_base = False
            elif not at_base:
                assign(below, base)
                at_base = True
            coords[c] = origin[c]
            if p == 0:
                for i in range(row.size):
                    row[i] = (row[i] - below[i]) * weight
            else:
                for i in range(row.size):
                    row[i] += (above[i] - below[i]) * weight
    require_unchanged(coords, origin)
    return lost


def imaginary_columns(f, x, origin, stride, start, lengths, upper, result, status, reached):
    """
    Store imaginary parts of f(x + i*h) / h along real coordinates (Squire and Trapp, 1998).

    Return -1, as no step is lost.

    Number ``stride*j + 1`` is the imaginary part of coordinate j.
    """
    x, origin, upper, result = borrowed((x, origin, upper, result))
    coords = reals(x)
    assign(coords, origin)
    values = reals(upper)
    for k in range(result.shape[0]):
        j = start + k
        reached[0] = j
        h = entry(lengths, j, 0.0)
        status[k] = FIXED if h != 0 else EXCLUDED
        coords[stride * j + 1] = h
        passed = coords[stride * j + 1]
        evaluate(f, x, upper)
        require_same(coords[stride * j + 1], passed)
        coords[stride * j + 1] = 0.0
        row = result[k]
        for i in range(row.size):
            row[i] = values[2 * i + 1] / h
    require_unchanged(coords, origin)
    return -1


@jitable
def _displace(coords: Any, origin: Any, colors: Any, color: int, points: Any) -> None:
    """Move the coordinates of a color to their points, all others to the origin."""
    for j in range(coords.size):
        point, home = points[j], origin[j]
        coords[j] = point if colors[j] == color else home


def colored(f, x, origin, start, colors, tops, bottoms, lower, result, reached):
    """
    Store differences of f between the two points of all coordinates of a color, a row each.

    `bottoms` is empty if all of them are the origin; then nothing is subtracted.
    """
    x, lower, result = borrowed((x, lower, result))
    coords, below = reals(x), reals(lower)
    for k in range(result.shape[0]):
        reached[0] = start + k
        row = result[k]
        _displace(coords, origin, colors, start + k, tops)
        evaluate(f, x, shaped(row, lower))
        if bottoms.size > 0:
            _displace(coords, origin, colors, start + k, bottoms)
            evaluate(f, x, lower)
            for i in range(row.size):
                row[i] -= below[i]


def real(dtype: np.dtype[Any]) -> Any:
    """Return the Numba type of a dtype's real numbers."""
    element = numba.from_dtype(dtype)
    return getattr(element, "underlying_float", element)


_DOUBLES = vector(types.float64)
_STENCIL = types.Array(types.float64, 2, "C", readonly=True)
STATUS = vector(types.int8, readonly=False)
REACHED = vector(types.int64, readonly=False)


def function_types(key: Any) -> tuple[Any, ...]:
    """Return the types of f, of its argument and the reals in it, of its result and its reals."""
    form, x, ndim, out, out_ndim = key
    return (
        form,
        types.Array(numba.from_dtype(x), ndim, "C"),
        vector(real(x), readonly=False),
        types.Array(numba.from_dtype(out), out_ndim, "C"),
        vector(real(out)),
    )


STEP_RULE = containers.NamedTuple(
    (_DOUBLES, types.float64, _DOUBLES, _DOUBLES, _STENCIL, _STENCIL), StepRule
)
_TABLE = types.Array(types.float64, 3, "C")


def _columns_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key)
    jacobian = types.Array(base.dtype, 2, "C")
    where = (form, x, vector(coords.dtype), types.int64, types.int64)
    scratch = (_TABLE, base, out, out)
    return (*where, STEP_RULE, *scratch, jacobian, STATUS, REACHED)


def _imaginary_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key)
    jacobian = types.Array(base.dtype, 2, "C")
    where = (form, x, vector(coords.dtype), types.int64, types.int64)
    return (*where, _DOUBLES, out, jacobian, STATUS, REACHED)


def _tabulate_signature(dtype: Any) -> tuple[Any, ...]:
    coords, cell = (vector(numba.from_dtype(dtype), readonly) for readonly in (True, False))
    return (
        coords,
        types.int64,
        types.int64,
        STEP_RULE,
        cell,
        _TABLE,
        STATUS,
        types.int64,
        types.int64,
    )


def _colored_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key[0])
    color = vector(numba.from_dtype(key[1]))
    differences = types.Array(base.dtype, 2, "C")
    where = (form, x, vector(coords.dtype), types.int64, color, _DOUBLES, _DOUBLES)
    return (*where, out, differences, REACHED)


COLUMNS = Kernels(columns, _columns_signature)
IMAGINARY_COLUMNS = Kernels(imaginary_columns, _imaginary_signature)
COLORED = Kernels(colored, _colored_signature)
TABULATE = Kernels(tabulate, _tabulate_signature)
