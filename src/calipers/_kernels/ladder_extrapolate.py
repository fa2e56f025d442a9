"""Extrapolate differences over a sequence of decreasing steps.

Each function does one step for one direction; see `ladder` for what calls them.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from . import jitable
from .function_calls import assign

N_LEVELS = 28  # steps of a sequence at most, each a quarter of the one before
N_PROBES = 4  # differences by far shorter steps that measure noise
ROWS = N_LEVELS + N_PROBES  # the probes' come last
NEAR, FAR, BETWEEN = range(N_LEVELS, N_LEVELS + 3)
ORDERS = 6  # of extrapolation, at most

# The rows of estimates: those of the last level, one for each order;
# then the best one, its error, and the level it was found at; scratch; from one ladder to the next,
# what f jumps by, and the status of the value; and what extrapolation leaves of the last level's
# bends, one for each order.
BEST, ERROR, LEVEL, CURRENT, DEVIATION, BEND, JUMP, VALUE_STATUS, BENDS = range(ORDERS, ORDERS + 9)
N_ESTIMATES = BENDS + ORDERS

# Spacings of binary32 are above this, and those of binary64 below.
COARSE = 2.0**-40

# What multiplies the difference of two estimates to eliminate power p of their error, 4**-p for
# each level: 1 / (4**p - 1). One-sided differences have all powers, central ones the even ones, and
# bends the odd ones.
_POWERS = np.arange(1.0, ORDERS)
_ELIMINATE = np.array(
    [[0.0, *(1 / (4.0**powers - 1))] for powers in (_POWERS, 2 * _POWERS, 2 * _POWERS - 1)]
)

# One-sided differences at long steps may be alike by chance: errors in powers of 4 cancel more
# easily than those of 16. On a ladder that begins at this step or a longer one, an estimate that a
# later one contradicts is given up, and that one is off by as much. On a shorter ladder, what
# differs may be noise, which rounding of x leaves.
_LONG = 2.0**-8

# Times a bend up to which another is as large, and times the noise from which on one that stays
# asks for shorter steps.
_GROWS, _ABOVE_NOISE = 1.25, 16.0

# Values from which on derivatives along lengths, or sums, might overflow, and the factor that
# prevents it.
_HUGE, _SMALLER = 2.0**900, 2.0**-120

# By how much shorter steps ladders begin that share none with others; they are as exact.
_OTHER = 9 / 16

QUARTERS = 0.25 ** np.arange(N_LEVELS)

# Where a direction stands.
STATE = np.dtype(
    [
        ("length", "f8"),  # of t = 1, in units of x; what follows is in units of it
        ("one_sided", "i8"),  # 0 for central differences, else where the one side is
        ("t", "f8"),
        ("top", "f8"),  # t of the first level
        ("near", "f8"),  # t of the near probe
        ("far", "f8"),  # and of the far one
        ("step", "f8"),  # of the first level of the lowest ladder, in units of x
        ("limit", "f8"),  # t that bounds allow
        ("unit", "f8"),  # max(1, |x|), the length that f is first supposed to have
        ("grain", "f8"),  # the spacing of numbers at x
        ("eps", "f8"),  # of the numbers that f computes with
        ("scale", "f8"),  # what values are multiplied by, where sums of them might overflow
        ("power", "i8"),  # noise in a difference grows as t**-power
        ("parts", "i8"),  # 2 if pairs of outputs are complex numbers, rounded as they are large
        ("joint", "i8"),  # 1 if errors are relative to the largest output, not to each output
        ("order", "f8"),  # the error's powers: of t*t (2), or of t (1) for one-sided differences
        ("level", "i8"),
        ("probe", "i8"),
        ("attempt", "i8"),
        ("other", "i8"),  # 1 for a ladder of other steps than that of 0
        ("guess", "i8"),  # 1 for a ladder that is longer since f may be straight
        ("calls", "i8"),
        ("status", "i8"),
    ],
    align=True,
)


class Workspace(NamedTuple):
    """
    Scratch of a step sequence: results for each output, in units of the scale.

    `differences`, `sizes` of values, and `bends` have a row for each level and probe; the rows of
    `estimates` are BEST to BENDS, see above.
    """

    differences: Any
    sizes: Any
    bends: Any
    estimates: Any


@jitable
def share_of(state: Any) -> Any:
    """Return the share of their steps that ladders begin at."""
    return _OTHER if state.other == 1 else 1.0


@jitable
def begin(state: Any, base: Any, estimates: Any, values: Any, errors: Any) -> None:
    """Start the ladder of a direction that has been measured."""
    state.scale = 1.0
    for i in range(base.size):
        if _HUGE < abs(float(base[i])) < math.inf:
            state.scale = _SMALLER
    state.t = state.top = share_of(state) * min(0.25, state.limit)
    state.order = 2.0 if state.one_sided == 0 else 1.0
    state.level = state.probe = state.attempt = state.guess = state.calls = 0
    values[:], errors[:] = math.nan, math.inf
    estimates[JUMP], estimates[VALUE_STATUS] = 0.0, state.status
    forget(estimates, 0, values.size)


@jitable
def finish(state: Any, values: Any, errors: Any) -> None:
    """Give values and errors the units of f and x."""
    length, larger = state.length, 1 / state.scale
    for i in range(values.size):
        values[i] = values[i] / length * larger
        errors[i] = errors[i] / length * larger


@jitable
def row_of(state: Any) -> Any:
    """Return the row in which the difference at state.t belongs."""
    return state.level if state.probe == 0 else NEAR + state.probe - 1


@jitable
def note(state: Any, above: Any, below: Any, base: Any, width: float, workspace: Any) -> None:
    """
    Note the difference quotients of one pair of evaluations, and how large the values are.

    `width` is the realised distance in units of t. Bends are (f(t) - 2*f(0) + f(-t)) / t: the jump
    from one one-sided derivative to the other.
    """
    row, t = row_of(state), state.t
    state.calls += 2 if state.order == 2 else 1
    # Where rounding of x displaces the two ends differently, their difference is of no use.
    ends = 2.0 if state.order == 2 else 1.0
    if state.power == 1 and not abs(abs(width) - ends * t) <= 2.0**-10 * t:
        width = math.nan
    normal = 2.0**-126 if state.eps > COARSE else 2.0**-1022
    slopes, sizes, scale = workspace.differences[row], workspace.sizes[row], state.scale
    bends, per_t = workspace.bends[row], 1 / t
    for i in range(base.size):
        one, here, other = float(above[i]), float(base[i]), float(below[i])
        slopes[i] = (one * scale - other * scale) / width
        bends[i] = (one * scale - 2 * scale * here + other * scale) * per_t
    for i in range(base.size):
        one, other = abs(float(above[i])), abs(float(below[i]))
        size = other if other > one else one
        # Subnormal numbers are rounded as the least normal one is. Zeros may well be exact.
        least = size if size > normal else normal
        sizes[i] = least * scale if size > 0.0 else 0.0
    if state.parts == 2:
        for i in range(0, base.size, 2):
            sizes[i] = sizes[i + 1] = max(sizes[i], sizes[i + 1])


@jitable
def grows(longer: float, shorter: float) -> bool:
    """Return True if a bend grows from a step to a quarter of it, as a wave's or noise does."""
    return abs(shorter) > _GROWS * abs(longer)


@jitable
def stays(longer: float, shorter: float) -> bool:
    """
    Return True if the bends of a step and of a quarter of it are as at a kink.

    It is as large, or less as far as the kink is away. The bend of a smooth function falls by 4.
    """
    return longer * shorter > 0 and abs(shorter) > 0.5 * abs(longer) and not grows(longer, shorter)


@jitable
def bends_count(state: Any) -> bool:
    """
    Return True if bends count as errors do: in float32, along central differences.

    There noise hides kinks from all steps that are short enough to end before the next ones. Those
    of float64 see them one by one; see `kinks`.
    """
    return bool(state.order == 2 and state.power == 1 and state.eps > COARSE)


@jitable
def raised(t: float, power: int) -> float:
    """Return what noise of f is divided by in a difference quotient at t."""
    return t if power == 1 else t * t


@jitable
def amplification(order: float) -> float:
    """Bound what extrapolation multiplies the noise of the smallest step's difference by."""
    return 1.15 if order == 2 else 8.0


@jitable
def noise_left(state: Any, k: int, noise: float, size: float) -> Any:
    """Return what rounding of f, or a larger noise, leaves in the estimates of level k."""
    divisor = raised(state.top * QUARTERS[k], state.power)
    return amplification(state.order) / divisor * max(noise, state.eps * size)


@jitable
def _grown(state: Any, k: int) -> Any:
    """
    Return how many times as much noise there is at level k.

    Beyond the natural length of x the numbers that f computes with grow as the step does, and with
    them what they are rounded by.
    """
    return raised(max(1.0, state.top * QUARTERS[k] / state.unit), state.power)


@jitable
def natural_size(state: Any) -> Any:
    """Return max(1, |x|), as which numbers may be large that f computes with."""
    return state.unit * state.length * state.scale


@jitable
def forget(estimates: Any, first: int, last: int) -> None:
    """Let some outputs have no best estimate yet; each level writes what the next one reads."""
    estimates[BEST, first:last] = math.nan
    estimates[ERROR, first:last] = math.inf
    estimates[LEVEL, first:last] = 0.0


@jitable
def extrapolate(state: Any, k: int, noise: float, workspace: Any, first: int, last: int) -> None:
    """
    Improve the estimates of some outputs by the difference of level k, the next one.

    The error is the distance to the two estimates that one was made from, and the remaining
    rounding error. To one side, what a later estimate contradicts is given up. What comes before a
    difference that is not finite is not used: it makes no estimate finite. Each loop writes few
    arrays, as compilers vectorize no other.

    Differences have the even powers of f's steps, bends the odd ones, and extrapolation leaves
    nothing of them where f is smooth. Of kinks it leaves as much of one as of the other; where
    those are many, estimates of one part are alike by chance, of both hardly. The slope to a side
    of x is off by half of a bend.
    """
    estimates = workspace.estimates
    order = int(state.order)
    per_rounding = noise_left(state, k, 0.0, 1.0)
    noise_alone = noise_left(state, k, noise * _grown(state, k), 0.0)
    size, current = workspace.sizes[k, first:last], estimates[CURRENT, first:last]
    best, error, level = (
        estimates[BEST, first:last],
        estimates[ERROR, first:last],
        estimates[LEVEL, first:last],
    )
    deviation = estimates[DEVIATION, first:last]
    assign(current, workspace.differences[k, first:last])
    bend, counts = estimates[BEND, first:last], bends_count(state)
    if counts:
        assign(bend, workspace.bends[k, first:last])
    depth = min(k, ORDERS - 1)
    for p in range(1, depth + 1):
        eliminate = _ELIMINATE[order - 1, p]
        previous = estimates[p - 1, first:last]
        for i in range(deviation.size):
            estimate, old = current[i], previous[i]
            better = estimate + (estimate - old) * eliminate
            one, other = abs(better - estimate), abs(better - old)
            previous[i], current[i] = estimate, better
            deviation[i] = one if one > other else other
        for i in range(deviation.size):
            left = per_rounding * size[i]
            deviation[i] += left if left > noise_alone else noise_alone
        if counts:
            bends, eliminate_odd = estimates[BENDS + p - 1, first:last], _ELIMINATE[2, p]
            for i in range(deviation.size):
                last_bend, old = bend[i], bends[i]
                better = last_bend + (last_bend - old) * eliminate_odd
                bends[i], bend[i] = last_bend, better
            for i in range(deviation.size):  # rounding is in both
                left = 0.5 * (deviation[i] + abs(bend[i]) - per_rounding * size[i])
                deviation[i] = left if left > deviation[i] else deviation[i]
        if order == 1 and state.top >= _LONG:
            for i in range(deviation.size):
                combined = deviation[i] + error[i]
                error[i] = math.inf if abs(current[i] - best[i]) > combined else error[i]
            for i in range(deviation.size):
                off = abs(current[i] - best[i])
                deviation[i] = (
                    off if (error[i] == math.inf) & (off > deviation[i]) else deviation[i]
                )
        for i in range(deviation.size):
            closer = deviation[i] < error[i]
            best[i] = current[i] if closer else best[i]
            level[i] = k if closer else level[i]
        for i in range(deviation.size):
            error[i] = deviation[i] if deviation[i] < error[i] else error[i]
    assign(estimates[depth, first:last], current)
    if counts:
        assign(estimates[BENDS + depth, first:last], bend)


@jitable
def extrapolate_again(state: Any, workspace: Any, first: int, noise: float, i: int) -> None:
    """Extrapolate output i once more from a level on, by another noise."""
    forget(workspace.estimates, i, i + 1)
    for k in range(first, state.level + 1):
        extrapolate(state, k, noise, workspace, i, i + 1)


@jitable
def reaches_over_0(state: Any) -> bool:
    """Return True if all steps so far are longer than x, as those of natural length are."""
    central = state.one_sided == 0 and state.power == 1
    return bool(central and state.attempt > 0 and state.top * QUARTERS[state.level] > 1)


@jitable
def settled(state: Any, base: Any, workspace: Any) -> bool:
    """Return True if no output can gain accuracy from a smaller step."""
    estimates, sizes, k = workspace.estimates, workspace.sizes, state.level
    if k < (3 if reaches_over_0(state) else 2):
        return False
    counts = bends_count(state)
    for i in range(base.size):
        if counts:
            longer, shorter = workspace.bends[k - 1, i], workspace.bends[k, i]
            noise_bound = _ABOVE_NOISE * noise_left(state, k, 0.0, sizes[k, i])
            if stays(longer, shorter) and abs(shorter) > noise_bound:
                return False
        error, level = estimates[ERROR, i], int(estimates[LEVEL, i])
        if error < math.inf and level + 2 <= k:
            continue
        done = error < math.inf and error <= 3 * noise_left(state, level, 0.0, sizes[level, i])
        if not (done or math.isnan(base[i])):
            return False
    return True
