"""Estimate a derivative and its error by extrapolation over a sequence of steps.

For phi(t) = f(x + t*s*d), an R^m-valued function of a real number, the ladder estimates phi'(0) and
its error, output by output. Central differences at t, t/4, t/16, ... are extrapolated to step 0
(Romberg; Ridders, Adv. Eng. Software 4, 1982); the noise that f's rounding leaves in a difference
grows as 1/t, so that one of the estimates is best. Two probes at far smaller steps then say
what extrapolation cannot know: they measure the noise that f really has, they show a length scale
that the ladder stepped over, and a kink. Where the two differ from the estimate alike, or by much,
two more between them are asked for, one after the other: noise is alike by chance, and hardly three
times. What is bounded, a wave say, has small differences at long steps, with small errors.

The caller evaluates phi, and asks `advance` for the next t; there is no other loop over steps.
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import types
from numba.core.types import containers

from .._core.jit import Kernels
from . import jitable
from .differences import (
    BOUNDED,
    EXCLUDED,
    REACHED,
    entry,
    function_types,
    move,
    real,
    require_unchanged,
)
from .function_calls import assign, borrowed, call_kernel, evaluate, reals
from .ladder_extrapolate import (
    COARSE,
    N_LEVELS,
    STATE,
    Workspace,
    begin,
    extrapolate,
    finish,
    forget,
    note,
    settled,
)
from .ladder_merge import conclude
from .ladder_noise import doubtful
from .scalar.formats import vector

_GOLDEN = (1 + math.sqrt(5)) / 2

# From one probe's t to the next one's. The steps before are powers of 2, and lengths commensurable
# with them are rounded as they are where f is linear and its values have a quantum, or where it
# adds them to larger numbers; see `_whole`.
_PROBE_RATIOS = np.array([(_GOLDEN - 1) / 10, math.sqrt(2), math.sqrt(3)])

NATURAL_LENGTH = -1.0  # in the place of a length: that of x

# Bounds that leave less than this share of the length on one side make the ladder one-sided.
_NARROW = 2.0**-10
# Spacings of x that leave a ladder few levels, and the least for two.
_FEW, _LEAST = 2.0**20, 4.0
# Spacings of x that a length takes for quarters of quarters of it to differ little when rounded.
_GRAINS = 2.0**16


class StepLimits(NamedTuple):
    """
    How far ladders may reach: vectors by coordinate, or of one element or none for all of them.

    `lengths` are those that the caller gave, `lows` and `highs` the bounds. `eps` is that of the
    numbers that f computes with, and `parts` are the real numbers in each of its results. `status`
    is reported if nothing unusual is met. `other` is 1 for an interleaved sequence.
    """

    lengths: Any
    lows: Any
    highs: Any
    eps: float
    parts: int
    status: int
    other: int


@jitable
def _whole(state: Any, t: float) -> Any:
    """Return the t near another at which x is displaced by whole spacings, and by as many back."""
    return state.grain * np.rint(t / state.grain) if t >= state.grain / 2 > 0 else t


@jitable
def advance(state: Any, base: Any, workspace: Any, values: Any, errors: Any) -> Any:
    """Return the next t to evaluate f at, or 0 when `values` and `errors` are final."""
    if state.probe == 0:
        extrapolate(state, state.level, 0.0, workspace, 0, base.size)
        more = state.level + 1 < N_LEVELS and state.t >= 4 * state.grain
        if more and not settled(state, base, workspace):
            state.level += 1
            state.t /= 4
        else:
            state.probe = 1
            # A power of two, so that the steps stay exact.
            tiny = 2.0 ** math.floor(0.44 / state.power * math.log2(state.eps))
            state.t = min(max(4 * state.top * tiny, 256 * state.grain), state.t / 16)
            state.near = state.t
            state.far = _whole(state, state.t * _PROBE_RATIOS[0])
    elif state.probe == 1:
        state.t, state.probe = state.far, 2
    elif doubtful(state, workspace):
        state.t *= _PROBE_RATIOS[state.probe - 1]
        state.probe += 1
    else:
        state.t = state.top = conclude(state, base, workspace, values, errors)
        state.level = state.probe = 0
        forget(workspace.estimates, 0, base.size)
    return state.t


@jitable
def measure(state: Any, x: float, j: int, limits: Any) -> Any:
    """
    Set the length, side and limits of the ladder along coordinate j; return its bounds.

    The length is the one given if that is not negative, else a power of two near x, so that steps
    are exact; where x would round its fractions, the next power of two below.
    The limit is 0 if there is no derivative to be had.
    """
    length, eps = entry(limits.lengths, j, NATURAL_LENGTH), limits.eps
    normal = 2.0**-126 if eps > COARSE else 2.0**-1022
    low, high = entry(limits.lows, j, -math.inf), entry(limits.highs, j, math.inf)
    state.length = length
    if 0 < length < _GRAINS * eps * abs(x):
        state.length = 2.0 ** math.floor(math.log2(length))
    if length < 0:
        finite = abs(x) < math.inf and x != 0
        least = normal / eps  # else steps would vanish
        state.length = 2.0 ** math.floor(math.log2(max(abs(x), least))) if finite else 1.0
    state.eps, state.parts, state.other = eps, limits.parts, limits.other
    state.power = 1
    state.one_sided = 0
    state.limit = state.t = 0.0
    state.grain = eps * abs(x) / state.length if length > 0 else eps
    state.step = 0.0
    state.status = EXCLUDED
    if state.length > 0:
        up, down = (high - x) / state.length, (x - low) / state.length
        state.unit = max(1.0, abs(x)) / state.length
        state.limit = min(up, down)
        if state.limit < _NARROW:
            state.one_sided = 1 if up >= down else -1
            state.limit = max(up, down)
        if x == 0 and state.limit > 0 and state.limit < _FEW * state.grain:
            # Near 0 the spacing of numbers shrinks with the distance to the bound.
            state.grain = max(state.grain * state.limit, normal / _LEAST / state.length)
        if state.limit < _FEW * state.grain:
            fits = state.limit >= _LEAST * state.grain
            # So that each step is some spacings of x exactly.
            state.limit = 2.0 ** math.floor(math.log2(state.limit)) if fits else 0.0
        state.status = limits.status if state.limit > 0 else BOUNDED
    return low, high


def climb_columns(
    f,
    x,
    coords,
    origin,
    stride,
    start,
    limits,
    further,
    base,
    upper,
    lower,
    workspace,
    values,
    errors,
    states,
    reached,
):
    """
    Run the ladder along ``values.shape[0]`` coordinates from `start`; see `columns`.

    `further` is the address of `climb`, which takes long to compile, and knows no f.
    """
    x, coords, origin, base, upper, lower = borrowed((x, coords, origin, base, upper, lower))
    values, errors, states = borrowed((values, errors, states))
    limits, workspace = borrowed(limits), borrowed(workspace)
    assign(coords, origin)
    above, below = reals(upper), reals(lower)
    for k in range(np.int64(values.shape[0])):
        state, row, error = states[k], values[k], errors[k]
        j = start + k
        reached[0] = j
        c = stride * j
        value = coords[c]
        low, high = measure(state, value, j, limits)
        begin(state, base, workspace.estimates, row, error)
        length, one_sided = state.length, state.one_sided
        t = state.t
        while t > 0:
            if one_sided == 0:
                width = move(coords, c, value, t * length, low, high)
                evaluate(f, x, upper)
                width -= move(coords, c, value, -t * length, low, high)
                evaluate(f, x, lower)
                ends = above, below
            else:
                width = move(coords, c, value, one_sided * t * length, low, high) - value
                evaluate(f, x, upper)
                ends = above, base
            coords[c] = value
            far = np.float64(width / length)
            t = call_kernel(
                further, (states, k, ends[0], ends[1], base, far, workspace, row, error)
            )
        finish(state, row, error)
    require_unchanged(coords, origin)


def measure_all(states, coords, limits):
    """Measure the ladders along all of `coords`; see `measure`."""
    for j in range(coords.size):
        measure(states[j], coords[j], j, limits)


def measure_lengths(lengths, states, coords, limits):
    """Store the lengths of the ladders along all of `coords`, by one state for all."""
    for j in range(coords.size):
        measure(states[0], coords[j], j, limits)
        lengths[j] = states[0].length


def start(states, k, base, estimates, values, errors):
    """Begin a direction whose values of f a caller finds."""
    begin(states[k], base, estimates, values, errors)


def climb(states, k, above, below, base, width, workspace, values, errors):
    """Take values of f at both ends of the current t; return the next t, or 0."""
    note(states[k], above, below, base, width, workspace)
    return advance(states[k], base, workspace, values, errors)


_DOUBLES = vector(types.float64)
_MATRIX = types.Array(types.float64, 2, "C")
_VECTOR = vector(types.float64, readonly=False)
_STATES = types.Array(numba.from_dtype(STATE), 1, "C")
_LIMITS = containers.NamedTuple((*(_DOUBLES,) * 3, types.float64, *(types.int64,) * 3), StepLimits)
_WORKSPACE = containers.NamedTuple((_MATRIX,) * 4, Workspace)


def _climb_columns_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key)
    where = (form, x, coords, vector(coords.dtype), types.int64, types.int64)
    return (
        *where,
        _LIMITS,
        types.int64,
        base,
        out,
        out,
        _WORKSPACE,
        *(_MATRIX,) * 2,
        _STATES,
        REACHED,
    )


def _measure_signature(dtype: Any) -> tuple[Any, ...]:
    return (_STATES, vector(numba.from_dtype(dtype)), _LIMITS)


def _lengths_signature(dtype: Any) -> tuple[Any, ...]:
    return (_VECTOR, *_measure_signature(dtype))


def _start_signature(dtype: Any) -> tuple[Any, ...]:
    return (_STATES, types.int64, vector(real(dtype)), _MATRIX, _VECTOR, _VECTOR)


def _climb_signature(dtype: Any) -> tuple[Any, ...]:
    base = vector(real(dtype))
    ends = (base, base, base, types.float64)
    return (_STATES, types.int64, *ends, _WORKSPACE, _VECTOR, _VECTOR)


CLIMB_COLUMNS = Kernels(climb_columns, _climb_columns_signature)
MEASURE_ALL = Kernels(measure_all, _measure_signature)
MEASURE_LENGTHS = Kernels(measure_lengths, _lengths_signature)
START = Kernels(start, _start_signature)
CLIMB = Kernels(climb, _climb_signature)
