"""A derivative that knows its error: extrapolation over a ladder of steps, one function of t.

For phi(t) = f(x + t*s*d), an R^m-valued function of a real number, the ladder estimates phi'(0) and
its error, output by output. Central differences at t, t/4, t/16, ... are extrapolated to step 0
(Romberg; Ridders, Adv. Eng. Software 4, 1982); the noise that f's rounding leaves in a difference
grows as 1/t, so that one of the estimates is best. Two tail probes at far smaller steps then say
what extrapolation cannot know: they measure the noise that f really has, they show a length scale
that the ladder stepped over, and a kink. Where the two differ from the estimate alike, two more
between them are asked for, one after the other: noise is alike by chance, and hardly three times.

The caller evaluates phi, and asks `advance` for the next t; there is no other loop over steps.
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import types
from numba.core.types import containers
from numba.extending import register_jitable

from .._jit import Kernels
from .calls import borrowed, evaluate, reals
from .differences import (
    ALIASED,
    BOUNDED,
    CONVERGED,
    EXCLUDED,
    NOISY,
    NONFINITE,
    NONSMOOTH,
    REACHED,
    entry,
    function_types,
    move,
    real,
    require_unchanged,
)
from .formats import vector

RUNGS = 28
TAILS = 4
ROWS = RUNGS + TAILS  # the tails' come last
_NEAR, _FAR, _BETWEEN = range(RUNGS, RUNGS + 3)
ORDERS = 6  # of extrapolation, at most
_ATTEMPTS = 8

# From one tail's t to the next one's. Lengths commensurable with the far one's would be rounded as
# that is where f is linear and its values have a quantum.
_NEXT_TAIL = np.array([1 / 16, math.sqrt(2), math.sqrt(3)])

# What is kept of the estimates that were made so far: those of the last rung, one for each order;
# then the best one, its error, and the rung it was found at; and scratch.
BEST, ERROR, RUNG, CURRENT, APART = range(ORDERS, ORDERS + 5)
KEPT = ORDERS + 5

# An error below this share of the value needs no other ladder; where the first one did not find the
# length scale, the second may be far from it, too, and a smaller error is asked for.
_RESOLVED = 2.0**-24
_REFINED = 2.0**-34
# Nor does one below this share of |f| / max(1, |x|), the natural size of a derivative.
_NATURAL = 2.0**-30
# Steps of a ladder that x is so much smaller than may be lost beside numbers of that size.
_LOST_BESIDE = 2.0**-10
# What tails may differ by, as a share of what they differ from the estimate by, to be alike. Noise
# counts in one 16 times as much as in the other, so that it does this once in a hundred.
_ALIKE = 0.125
# Noise is f's own, and not rounding, from this multiple of eps*|f| on.
_NOISY = 1024.0
_ALL_OF_F = 2.0**-6
# How far below a ladder that missed the length scale the next one begins: near enough to find it
# before steps are lost beside x.
_DOWN = 2.0**-10
# And how far above the far tail where all tails were alike: some times the length over which f is
# known to be straight.
_ABOVE_FAR = 2.0**8

# Bounds that leave less than this share of the length on one side make the ladder one-sided.
_NARROW = 2.0**-10
# Spacings of binary32 are above this, and those of binary64 below.
_COARSE = 2.0**-40
# Spacings of x that a length takes for quarters of quarters of it to differ little when rounded.
_GRAINS = 2.0**16

# What multiplies the difference of two estimates to eliminate power p of their error:
# 1 / (r**p - 1), for errors in powers of r = 4 (one-sided differences) and of r = 16.
_POWERS = np.arange(ORDERS)
_ELIMINATE = np.array([[0.0, *(1 / (r ** _POWERS[1:] - 1.0))] for r in (4.0, 16.0)])

_QUARTERS = 0.25 ** np.arange(RUNGS)

# Where a direction stands.
STATE = np.dtype(
    [
        ("length", "f8"),  # of t = 1, in units of x; what follows is in units of it
        ("side", "i8"),  # 0 for central differences, else where the one side is
        ("t", "f8"),
        ("top", "f8"),  # t of the first rung
        ("far", "f8"),  # t of the far tail
        ("step", "f8"),  # of the first rung of the lowest ladder, in units of x
        ("limit", "f8"),  # t that bounds allow
        ("unit", "f8"),  # max(1, |x|), the length that f is first supposed to have
        ("grain", "f8"),  # the spacing of numbers at x
        ("eps", "f8"),  # of the numbers that f computes with
        ("power", "i8"),  # noise in a difference grows as t**-power
        ("parts", "i8"),  # 2 if pairs of outputs are complex numbers, rounded as they are large
        ("joint", "i8"),  # 1 if errors count beside the largest output, and not each its own
        ("order", "f8"),  # the error's powers: of t*t (2), or of t (1) for one-sided differences
        ("rung", "i8"),
        ("tail", "i8"),
        ("attempt", "i8"),
        ("calls", "i8"),
        ("status", "i8"),
    ],
    align=True,
)


class Room(NamedTuple):
    """
    Scratch of a ladder: what it found, for each output.

    `differences` and `sizes` of values have a row for each rung and tail, `sizes` also one for the
    jump at each tail; `kept` is what the estimates were, see above.
    """

    differences: Any
    sizes: Any
    kept: Any


class Reach(NamedTuple):
    """
    How far ladders may reach: vectors by coordinate, or of one element or none for all of them.

    `lengths` are those that the caller gave, `lows` and `highs` the bounds. `eps` is that of the
    numbers that f computes with, and `parts` are the real numbers in each of its results.
    """

    lengths: Any
    lows: Any
    highs: Any
    eps: float
    parts: int


@register_jitable
def begin(state: Any, kept: Any, values: Any, errors: Any) -> None:
    """Start the ladder of a direction that has been measured."""
    state.t = state.top = min(0.25, state.limit)
    state.order = 2.0 if state.side == 0 else 1.0
    state.rung = state.tail = state.attempt = state.calls = 0
    values[:], errors[:] = math.nan, math.inf
    _forget(kept, 0, values.size)


@register_jitable
def row_of(state: Any) -> Any:
    """Return the row in which the difference at state.t belongs."""
    return state.rung if state.tail == 0 else _NEAR + state.tail - 1


@register_jitable
def note(state: Any, above: Any, below: Any, base: Any, width: float, room: Any) -> None:
    """
    Note the difference quotients of one pair of evaluations, and how large the values are.

    `width` is the realised distance in units of t. The last rows of sizes are, for each tail,
    (f(t) - 2*f(0) + f(-t)) / t: the jump from one one-sided derivative to the other.
    """
    row, t = row_of(state), state.t
    state.calls += 2 if state.order == 2 else 1
    # Where rounding of x displaces the two ends differently, their difference is of no use.
    ends = 2.0 if state.order == 2 else 1.0
    if state.power == 1 and not abs(abs(width) - ends * t) <= 2.0**-10 * t:
        width = math.nan
    normal = 2.0**-126 if state.eps > _COARSE else 2.0**-1022
    slopes, sizes = room.differences[row], room.sizes[row]
    for i in range(base.size):
        slopes[i] = (float(above[i]) - float(below[i])) / width
    for i in range(base.size):
        one, other = abs(float(above[i])), abs(float(below[i]))
        size = other if other > one else one
        # Subnormal numbers are rounded as the least normal one is. Zeros may well be exact.
        least = size if size > normal else normal
        sizes[i] = least if size > 0.0 else 0.0
    if state.parts == 2:
        for i in range(0, base.size, 2):
            sizes[i] = sizes[i + 1] = max(sizes[i], sizes[i + 1])
    if state.tail > 0:
        jumps = room.sizes[row + TAILS]
        for i in range(base.size):
            jumps[i] = (float(above[i]) - 2 * float(base[i]) + float(below[i])) / t


@register_jitable
def _raised(t: float, power: int) -> float:
    """Return what noise of f is divided by in a difference quotient at t."""
    return t if power == 1 else t * t


@register_jitable
def amplification(order: float) -> float:
    """Bound what extrapolation multiplies the noise of the smallest step's difference by."""
    return 1.15 if order == 2 else 8.0


@register_jitable
def _left(state: Any, k: int, noise: float, size: float) -> Any:
    """Return what rounding of f, or a larger noise, leaves in the estimates of rung k."""
    divisor = _raised(state.top * _QUARTERS[k], state.power)
    return amplification(state.order) / divisor * max(noise, state.eps * size)


@register_jitable
def _forget(kept: Any, first: int, last: int) -> None:
    """Let some outputs have no estimates yet."""
    kept[:, first:last] = math.nan
    kept[ERROR, first:last] = math.inf
    kept[RUNG, first:last] = 0.0


@register_jitable
def extrapolate(state: Any, k: int, noise: float, room: Any, first: int, last: int) -> None:
    """
    Improve the estimates of some outputs by the difference of rung k, the next one.

    The error is the distance to the two estimates that one was made from, and what is left of
    rounding. What comes before a difference that is not finite is not used: it makes no estimate
    finite. Each loop writes few arrays, as compilers vectorize no other.
    """
    kept = room.kept
    order = int(state.order)
    per_noise = _left(state, k, 1.0, 0.0)
    size, current = room.sizes[k, first:last], kept[CURRENT, first:last]
    best, error, rung = kept[BEST, first:last], kept[ERROR, first:last], kept[RUNG, first:last]
    apart = kept[APART, first:last]
    current[:] = room.differences[k, first:last]
    depth = min(k, ORDERS - 1)
    for p in range(1, depth + 1):
        eliminate = _ELIMINATE[order - 1, p]
        previous = kept[p - 1, first:last]
        for i in range(apart.size):
            estimate, old = current[i], previous[i]
            better = estimate + (estimate - old) * eliminate
            one, other = abs(better - estimate), abs(better - old)
            previous[i], current[i] = estimate, better
            apart[i] = one if one > other else other
        for i in range(apart.size):
            left = state.eps * size[i]
            apart[i] += per_noise * (left if left > noise else noise)
        for i in range(apart.size):
            closer = apart[i] < error[i]
            best[i] = current[i] if closer else best[i]
            rung[i] = k if closer else rung[i]
        for i in range(apart.size):
            error[i] = apart[i] if apart[i] < error[i] else error[i]
    kept[depth, first:last] = current


@register_jitable
def _settled(state: Any, base: Any, room: Any) -> bool:
    """Tell whether no output has anything to gain from a smaller step."""
    kept, sizes = room.kept, room.sizes
    if state.rung < 2:
        return False
    for i in range(base.size):
        error, k = kept[ERROR, i], int(kept[RUNG, i])
        if error < math.inf and k + 2 <= state.rung:
            continue
        done = error < math.inf and error <= 3 * _left(state, k, 0.0, sizes[k, i])
        if not (done or math.isnan(base[i])):
            return False
    return True


@register_jitable
def _poor(state: Any, value: float, error: float, largest: float) -> bool:
    share = _RESOLVED if state.attempt == 0 else _REFINED
    return not error <= share * max(abs(value), largest)


@register_jitable
def _compare_tails(state: Any, room: Any) -> None:
    """Store in APART where the tails differ from the estimates by more than f's rounding."""
    differences, sizes, kept = room
    per_far, per_near = _raised(state.far, state.power), _raised(16 * state.far, state.power)
    value, differs = kept[BEST], kept[APART]
    near, far = differences[_NEAR], differences[_FAR]
    for i in range(value.size):
        one, other = abs(near[i] - value[i]) * per_near, abs(far[i] - value[i]) * per_far
        differs[i] = one if one > other else other
    noise, jump = sizes[_FAR], sizes[_NEAR + TAILS]
    for i in range(value.size):
        allowed = state.eps * noise[i]
        same = differs[i] <= allowed and abs(jump[i]) * state.far <= 16 * allowed
        differs[i] = 0.0 if same else 1.0


@register_jitable
def _alike(state: Any, differences: Any, sizes: Any, kept: Any, i: int) -> bool:
    """Tell whether all tails differ from the estimate of output i alike, by more than rounding."""
    near = differences[_NEAR, i]
    apart = abs(near - kept[BEST, i])
    rounding = state.eps * sizes[_FAR, i] / _raised(state.far, state.power)
    # Staircases stand still: f's values do not change between their steps.
    alike = near != 0 and apart > kept[ERROR, i] + 16 * rounding
    for row in range(_FAR, _NEAR + state.tail):
        alike &= abs(differences[row, i] - near) <= _ALIKE * apart
    return bool(alike)


@register_jitable
def _doubtful(state: Any, room: Any) -> bool:
    """Tell whether the tails leave open if f is noisy or has a shorter length scale."""
    if state.tail == TAILS:
        return False
    differences, sizes, kept = room
    near, far, size = differences[_NEAR], differences[_FAR], sizes[_FAR]
    value, error = kept[BEST], kept[ERROR]
    per_size = 16 * state.eps / _raised(state.far, state.power)
    count = 0
    for i in range(value.size):  # as `_alike` of two tails, without branches
        apart = abs(near[i] - value[i])
        seen = apart > error[i] + per_size * size[i]
        count += 1 if seen & (abs(far[i] - near[i]) <= _ALIKE * apart) else 0
    if count > 0:
        for i in range(value.size):
            if _alike(state, differences, sizes, kept, i):
                return True
    return False


@register_jitable
def _judge(state: Any, room: Any, i: int) -> Any:
    """
    Return what the ladder and tails that differ from it say of output i: value, error, status.

    And the noise in f.

    A derivative that the tails share, and the ladder does not, belongs to a length scale below the
    ladder's: two of them say so where it differs much, and all of them where little. Otherwise
    their distance from the estimate is noise of f.
    """
    differences, sizes, kept = room
    value, error = kept[BEST, i], kept[ERROR, i]
    noise = state.eps * sizes[_FAR, i]
    if not error < math.inf:
        return value, error, NONFINITE, noise
    near, far = differences[_NEAR, i], differences[_FAR, i]
    if not (abs(near) < math.inf and abs(far) < math.inf):
        # Lost beside x, as it may be in the bounds' little room; a ladder that was led down here
        # by a short length scale has not found it.
        if state.attempt == 0:
            # What noise f has cannot be seen; rounding inside f is as if x were rounded.
            noise = max(noise, state.eps * state.unit * abs(value))
            _forget(kept, i, i + 1)
            for k in range(state.rung + 1):
                extrapolate(state, k, noise, room, i, i + 1)
            return kept[BEST, i], kept[ERROR, i], CONVERGED, noise
        return value, math.inf, ALIASED, noise
    per_far, per_near = _raised(state.far, state.power), _raised(16 * state.far, state.power)
    measured = max(abs(near - value) * per_near, abs(far - value) * per_far)
    if near == 0 and far == 0:
        # Rounding would not have hidden it: f is a staircase, its steps below the smallest rung's.
        if abs(value) > error and abs(value) * per_near > 4 * noise:
            measured = abs(value) * _raised(state.top * _QUARTERS[state.rung], state.power)
    elif abs(near - far) <= 0.02 * abs(near) + 2 * noise / per_far and abs(
        near - value
    ) > 8 * noise / per_near + 0.05 * abs(near) + min(1.5 * error, 0.05 * abs(near)):
        return value, math.inf, ALIASED, noise
    elif measured > _ALL_OF_F * sizes[0, i]:
        return value, math.inf, ALIASED, noise  # as large as f: more likely many waves than noise
    status = CONVERGED
    if measured > noise:
        if measured > _NOISY * max(noise, state.eps * sizes[0, i]):
            status = NOISY
        noise = 3 * measured  # of two samples
        _forget(kept, i, i + 1)
        for k in range(state.rung + 1):
            extrapolate(state, k, noise, room, i, i + 1)
        value, error = kept[BEST, i], kept[ERROR, i]
        if state.tail == TAILS and _alike(state, differences, sizes, kept, i):
            between = differences[_BETWEEN, i]
            spread = max(abs(near - far), abs(near - between), abs(between - far))
            rounding = state.eps * sizes[_FAR, i] / per_far
            return near, 3 * (spread + rounding), ALIASED, noise
    # At a kink it stays as t falls, and at a cusp it grows; what bends falls with t.
    jump, nearer = sizes[_NEAR + TAILS, i], sizes[_FAR + TAILS, i]
    stays = (jump > 0) == (nearer > 0) and abs(nearer) >= 0.9 * abs(jump)
    kinked = stays and abs(jump) > 16 * noise / state.far
    if state.power == 1 and state.side == 0 and kinked:
        return value, error + abs(jump) / 2, NONSMOOTH, noise
    return value, error, status, noise


@register_jitable
def _limited(state: Any, sizes: Any, kept: Any, i: int, error: float, noise: float) -> bool:
    """Tell whether noise limits what the first rungs gave, so that longer steps promise more."""
    rung = int(kept[RUNG, i])
    return rung <= 1 and error <= 3 * _left(state, rung, noise, sizes[rung, i])


@register_jitable
def _conclude(state: Any, room: Any, values: Any, errors: Any) -> Any:
    """Keep what this ladder found out; return the top of the next one, or 0."""
    differences, sizes, kept = room
    first = state.attempt == 0
    aliased = rippled = buried = straight = still = False
    tiny = first and state.eps * state.unit > _LOST_BESIDE
    worst = CONVERGED
    _compare_tails(state, room)
    natural = _NATURAL / state.unit
    largest = 0.0
    if state.joint == 1:
        for i in range(values.size):
            size = abs(kept[BEST, i])
            largest = size if largest < size < math.inf else largest
    for i in range(values.size):
        wanted = first or errors[i] == math.inf or _poor(state, values[i], errors[i], largest)
        if not wanted:
            continue
        value, error = kept[BEST, i], kept[ERROR, i]
        status, noise = CONVERGED, state.eps * sizes[_FAR, i]
        if kept[APART, i] != 0:
            value, error, status, noise = _judge(state, room, i)
        # A ladder with longer steps than the one before may improve on that, not contradict it.
        unknown = first or errors[i] == math.inf
        agrees = abs(value - values[i]) <= error + errors[i]
        if unknown or (error < errors[i] and agrees):
            values[i], errors[i] = value, error
            if status == ALIASED:
                rippled |= error < math.inf
                aliased |= error == math.inf and not math.isnan(differences[_NEAR, i])
            worst = max(worst, status)
        still |= tiny & (values[i] == 0) & (errors[i] == 0)
        if _poor(state, values[i], errors[i], largest):
            # Rounding hides a derivative that would show at f's supposed length scale.
            buried |= natural * sizes[_FAR, i] < errors[i] < math.inf
            judged = status in (CONVERGED, NOISY)
            if judged and errors[i] < abs(values[i]):
                straight |= _limited(state, sizes, kept, i, error, noise)
    # An output that this ladder was not asked about keeps what an earlier one said of it.
    before = state.status if state.status == NOISY or state.status == NONSMOOTH else CONVERGED
    state.status = max(before, worst)
    longest = state.top * state.length
    state.step = longest if first else min(state.step, longest)
    state.attempt += 1
    if state.attempt == _ATTEMPTS:
        return 0.0
    if aliased:
        lower = max(_DOWN * state.top, 4096 * state.grain)
        return lower if 2 * lower <= state.top else 0.0
    if rippled:
        return _ABOVE_FAR * state.far
    if still and 4 * state.top < state.limit:
        # f stood still, as it does where a tiny x is lost beside another number.
        for i in range(values.size):
            errors[i] = math.inf if values[i] == 0 and errors[i] == 0 else errors[i]
        return min(state.unit / 4, state.limit)
    if buried and 4 * state.top < min(state.unit, state.limit):
        return min(state.unit / 4, state.limit)
    if straight and 256 * state.top <= state.limit:
        return 256 * state.top
    return 0.0


@register_jitable
def advance(state: Any, base: Any, room: Any, values: Any, errors: Any) -> Any:
    """Return the next t to evaluate f at, or 0 when `values` and `errors` are final."""
    if state.tail == 0:
        extrapolate(state, state.rung, 0.0, room, 0, base.size)
        more = state.rung + 1 < RUNGS and state.t >= 4 * state.grain
        if more and not _settled(state, base, room):
            state.rung += 1
            state.t /= 4
        else:
            state.tail = 1
            # A power of two, so that the steps stay exact.
            tiny = 2.0 ** math.floor(0.44 / state.power * math.log2(state.eps))
            state.t = min(max(4 * state.top * tiny, 256 * state.grain), state.t / 16)
            state.far = state.t / 16
    elif state.tail == 1 or _doubtful(state, room):
        state.t *= _NEXT_TAIL[state.tail - 1]
        state.tail += 1
    else:
        state.t = state.top = _conclude(state, room, values, errors)
        state.rung = state.tail = 0
        _forget(room.kept, 0, base.size)
    return state.t


@register_jitable
def measure(state: Any, x: float, j: int, reach: Any) -> Any:
    """
    Set the length, side and limits of the ladder along coordinate j; return its bounds.

    The length is the one given if that is not negative, else a power of two near x, so that steps
    are exact; beside an x that would round its fractions, the next power of two below that given.
    The limit is 0 if there is no derivative to be had.
    """
    given, eps = entry(reach.lengths, j, -1.0), reach.eps
    low, high = entry(reach.lows, j, -math.inf), entry(reach.highs, j, math.inf)
    state.length = given
    if 0 < given < _GRAINS * eps * abs(x):
        state.length = 2.0 ** math.floor(math.log2(given))
    if given < 0:
        finite = abs(x) < math.inf and x != 0
        least = (2.0**-126 if eps > _COARSE else 2.0**-1022) / eps  # else steps would vanish
        state.length = 2.0 ** math.floor(math.log2(max(abs(x), least))) if finite else 1.0
    state.eps, state.parts = eps, reach.parts
    state.power = 1
    state.side = 0
    state.limit = state.t = 0.0
    state.grain = eps * abs(x) / state.length if given > 0 else eps
    state.step = math.nan
    state.status = EXCLUDED
    if state.length > 0:
        up, down = (high - x) / state.length, (x - low) / state.length
        state.unit = max(1.0, abs(x)) / state.length
        state.limit = min(up, down)
        if state.limit < _NARROW:
            state.side = 1 if up >= down else -1
            state.limit = max(up, down)
        state.status = CONVERGED if state.limit > 0 else BOUNDED
    return low, high


def climb_columns(
    f,
    x,
    coords,
    origin,
    stride,
    start,
    reach,
    base,
    upper,
    lower,
    room,
    values,
    errors,
    states,
    reached,
):
    """Run the ladder along ``values.shape[0]`` coordinates from `start`; see `columns`."""
    x, coords, origin, base, upper, lower = borrowed((x, coords, origin, base, upper, lower))
    values, errors, states = borrowed((values, errors, states))
    reach, room = borrowed(reach), borrowed(room)
    coords[:] = origin
    above, below = reals(upper), reals(lower)
    for k in range(values.shape[0]):
        state, row, error = states[k], values[k], errors[k]
        j = start + k
        reached[0] = j
        c = stride * j
        value = coords[c]
        low, high = measure(state, value, j, reach)
        begin(state, room.kept, row, error)
        length, side = state.length, state.side
        t = state.t
        while t > 0:
            if side == 0:
                width = move(coords, c, value, t * length, low, high)
                evaluate(f, x, upper)
                width -= move(coords, c, value, -t * length, low, high)
                evaluate(f, x, lower)
                note(state, above, below, base, width / length, room)
            else:
                width = move(coords, c, value, side * t * length, low, high) - value
                evaluate(f, x, upper)
                note(state, above, base, base, width / length, room)
            coords[c] = value
            t = advance(state, base, room, row, error)
        for i in range(row.size):
            row[i] /= length
            error[i] /= length
    require_unchanged(coords, origin)


def measure_all(states, coords, reach):
    """Measure the ladders along all of `coords`; see `measure`."""
    for j in range(coords.size):
        measure(states[j], coords[j], j, reach)


def start(states, k, kept, values, errors):
    """Begin a direction whose values of f a caller finds."""
    begin(states[k], kept, values, errors)


def climb(states, k, above, below, base, width, room, values, errors):
    """Take values of f at both ends of the current t; return the next t, or 0."""
    note(states[k], above, below, base, width, room)
    return advance(states[k], base, room, values, errors)


_DOUBLES = vector(types.float64)
_MATRIX = types.Array(types.float64, 2, "C")
_VECTOR = vector(types.float64, readonly=False)
_STATES = types.Array(numba.from_dtype(STATE), 1, "C")
_REACH = containers.NamedTuple((*(_DOUBLES,) * 3, types.float64, types.int64), Reach)
_ROOM = containers.NamedTuple((_MATRIX, _MATRIX, _MATRIX), Room)


def _climb_columns_signature(key: Any) -> tuple[Any, ...]:
    form, x, coords, out, base = function_types(key)
    where = (form, x, coords, vector(coords.dtype), types.int64, types.int64)
    return (*where, _REACH, base, out, out, _ROOM, _MATRIX, _MATRIX, _STATES, REACHED)


def _measure_signature(dtype: Any) -> tuple[Any, ...]:
    return (_STATES, vector(numba.from_dtype(dtype)), _REACH)


def _start_signature(_: Any) -> tuple[Any, ...]:
    return (_STATES, types.int64, _MATRIX, _VECTOR, _VECTOR)


def _climb_signature(dtype: Any) -> tuple[Any, ...]:
    base = vector(real(dtype))
    ends = (base, base, base, types.float64)
    return (_STATES, types.int64, *ends, _ROOM, _VECTOR, _VECTOR)


CLIMB_COLUMNS = Kernels(climb_columns, _climb_columns_signature)
MEASURE_ALL = Kernels(measure_all, _measure_signature)
START = Kernels(start, _start_signature)
CLIMB = Kernels(climb, _climb_signature)
