"""Where f is evaluated, and how differences become derivatives.

A stencil is a list of divided differences: a row (u, l, w) of its array stands for
``w * (f(x + u*h) - f(x + l*h)) / (u*h - l*h)``, the divisor being what the two arguments realised.
Their sum is the derivative. l = 0 is the base point, whose value is known.
"""

import math
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import register_jitable

from .._jit import Kernels
from .calls import evaluate, reals
from .formats import vector

# What became of a column, the worse the later.
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


@register_jitable
def entry(values: Any, j: int, default: float) -> Any:
    """Return element j of a vector, of which a vector of 1 or 0 elements may be a short form."""
    if values.size == 0:
        return default
    return values[j] if values.size > 1 else values[0]


@register_jitable
def _fits(x: float, h: float, stencil: Any, low: float, high: float) -> bool:
    fits = True
    for p in range(stencil.shape[0]):
        for side in range(2):
            point = x + stencil[p, side] * h
            fits = fits and low <= point <= high
    return fits


@register_jitable
def place(
    coords: Any, c: int, length: float, low: float, high: float, central: Any, sided: Any
) -> Any:
    """
    Return the step along one coordinate, and whether the central stencil fits the bounds.

    The step is what the coordinate's format realises (Numerical Recipes, section 5.7), away from
    zero; where the bounds leave no room for it, into the larger room, and no longer than that.
    """
    x = coords[c]
    coords[c] = x + math.copysign(length, x)
    h = coords[c] - x
    coords[c] = x
    if _fits(x, h, central, low, high):
        return h, True
    up, down = high - x, x - low
    room = max(up, down) / sided[sided.shape[0] - 1, 0]
    return math.copysign(min(abs(h), room), up - down), False


@register_jitable
def move(coords: Any, c: int, x: float, shift: float, low: float, high: float) -> Any:
    """Displace a coordinate from x, within bounds, to a number of its format, and return that."""
    coords[c] = min(max(x + shift, low), high)
    return coords[c]


@register_jitable
def tabulate(
    coords: Any,
    stride: int,
    start: int,
    lengths: Any,
    factor: float,
    lows: Any,
    highs: Any,
    central: Any,
    sided: Any,
    table: Any,
    status: Any,
) -> None:
    """
    Store where f is evaluated along ``status.size`` coordinates from `start`, and the weights.

    ``table[:, p, k]`` is both ends of pair p of coordinate k, and what the difference of f is
    multiplied by. A pair whose ends are the same is not evaluated: its weight is 0, or NaN where
    there is no derivative.
    """
    for k in range(status.size):
        j = start + k
        c = stride * j
        x = coords[c]
        length = factor * entry(lengths, j, max(1.0, abs(x)))
        low, high = entry(lows, j, -math.inf), entry(highs, j, math.inf)
        h, centered = place(coords, c, length, low, high, central, sided)
        status[k] = FIXED
        if length == 0:
            status[k] = EXCLUDED
        elif h == 0:
            status[k] = LOST if x + length == x else BOUNDED
        stencil = central if centered else sided
        for p in range(table.shape[1]):
            table[0, p, k] = table[1, p, k] = x
            table[2, p, k] = 0.0 if status[k] == FIXED else math.nan
            if status[k] == FIXED and p < stencil.shape[0]:
                table[0, p, k] = move(coords, c, x, stencil[p, 0] * h, low, high)
                table[1, p, k] = move(coords, c, x, stencil[p, 1] * h, low, high)
                coords[c] = x
                table[2, p, k] = stencil[p, 2] / (table[0, p, k] - table[1, p, k])


@register_jitable
def restore(coords: Any, origin: Any) -> None:
    """Raise an error if f has changed its argument."""
    for c in range(coords.size):
        if coords[c] != origin[c] and not (math.isnan(coords[c]) and math.isnan(origin[c])):
            msg = "f changes its argument; let it work on a copy"
            raise ValueError(msg)


def columns(
    f,
    x,
    coords,
    origin,
    stride,
    start,
    lengths,
    factor,
    lows,
    highs,
    central,
    sided,
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

    `x` is the argument of f, and `coords` the real numbers in its memory; coordinate j is every
    stride-th of them. `reached` tells the last coordinate begun, should f raise.
    """
    coords[:] = origin
    tabulate(coords, stride, start, lengths, factor, lows, highs, central, sided, table, status)
    above, below = reals(upper), reals(lower)
    for k in range(status.size):
        reached[0] = start + k
        c = stride * (start + k)
        value = coords[c]
        row = result[k]
        for p in range(table.shape[1]):
            top, bottom, weight = table[0, p, k], table[1, p, k], table[2, p, k]
            other = base
            if top != bottom:
                coords[c] = top
                evaluate(f, x, upper)
                if bottom != value:
                    coords[c] = bottom
                    evaluate(f, x, lower)
                    other = below
                coords[c] = value
            if p == 0 and top == bottom:
                row[:] = weight
            elif p == 0:
                for i in range(row.size):
                    row[i] = (above[i] - other[i]) * weight
            elif top != bottom:
                for i in range(row.size):
                    row[i] += (above[i] - other[i]) * weight
    restore(coords, origin)


def imaginary_columns(f, x, coords, origin, stride, start, lengths, upper, result, status, reached):
    """
    Store imaginary parts of f(x + i*h) / h along real coordinates (Squire and Trapp, 1998).

    `coords` holds the imaginary part of coordinate j at ``stride*j + 1``.
    """
    coords[:] = origin
    values = reals(upper)
    for k in range(result.shape[0]):
        j = start + k
        reached[0] = j
        h = entry(lengths, j, 0.0)
        status[k] = FIXED if h != 0 else EXCLUDED
        coords[stride * j + 1] = h
        evaluate(f, x, upper)
        coords[stride * j + 1] = 0.0
        row = result[k]
        for i in range(row.size):
            row[i] = values[2 * i + 1] / h
    restore(coords, origin)


@register_jitable
def _displace(coords: Any, origin: Any, colors: Any, color: int, points: Any) -> bool:
    """Move the coordinates of a color to their points, all others to the origin."""
    moved = False
    for j in range(coords.size):
        there = colors[j] == color
        coords[j] = points[j] if there else origin[j]
        moved |= there & (points[j] != origin[j])
    return moved


def colored(
    f, x, coords, origin, start, colors, tops, bottoms, base, upper, lower, result, reached
):
    """Store differences of f between the two points of all coordinates of a color, a row each."""
    above, below = reals(upper), reals(lower)
    for k in range(result.shape[0]):
        reached[0] = start + k
        row = result[k]
        other = base
        if _displace(coords, origin, colors, start + k, bottoms):
            evaluate(f, x, lower)
            other = below
        if _displace(coords, origin, colors, start + k, tops):
            evaluate(f, x, upper)
            for i in range(row.size):
                row[i] = above[i] - other[i]
        else:
            row[:] = 0


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


_STEPS = (_DOUBLES, types.float64, _DOUBLES, _DOUBLES, _STENCIL, _STENCIL)
_TABLE = types.Array(types.float64, 3, "C")


def _columns_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key)
    jacobian = types.Array(base.dtype, 2, "C")
    where = (form, x, coords, vector(coords.dtype), types.int64, types.int64)
    return (*where, *_STEPS, _TABLE, base, out, out, jacobian, STATUS, REACHED)


def _imaginary_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key)
    jacobian = types.Array(base.dtype, 2, "C")
    where = (form, x, coords, vector(coords.dtype), types.int64, types.int64)
    return (*where, _DOUBLES, out, jacobian, STATUS, REACHED)


def _tabulate_signature(dtype: Any) -> tuple[Any, ...]:
    coords = vector(numba.from_dtype(dtype), readonly=False)
    return (coords, types.int64, types.int64, *_STEPS, _TABLE, STATUS)


def _colored_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key[0])
    color = vector(numba.from_dtype(key[1]))
    differences = types.Array(base.dtype, 2, "C")
    where = (form, x, coords, vector(coords.dtype), types.int64, color, _DOUBLES, _DOUBLES)
    return (*where, base, out, out, differences, REACHED)


COLUMNS = Kernels(columns, _columns_signature)
IMAGINARY_COLUMNS = Kernels(imaginary_columns, _imaginary_signature)
COLORED = Kernels(colored, _colored_signature)
TABULATE = Kernels(tabulate, _tabulate_signature)
