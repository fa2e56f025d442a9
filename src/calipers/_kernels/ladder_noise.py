"""Combine a step sequence and its probes into each output's derivative and error."""

import math
from typing import Any

from . import jitable
from .differences import ALIASED, CONVERGED, NOISY, NONFINITE, NONSMOOTH
from .ladder_extrapolate import (
    BEST,
    BETWEEN,
    DEVIATION,
    ERROR,
    FAR,
    JUMP,
    LEVEL,
    N_PROBES,
    NEAR,
    QUARTERS,
    extrapolate_again,
    natural_size,
    noise_left,
    raised,
    stays,
)
from .ladder_irregular import (
    BEYOND_NOISE,
    REALISED,
    extends_to_probe,
    flat_before_a_kink,
    goes_on,
    has_no_end,
)

# What probes may differ by, as a share of what they differ from the estimate by, to be alike. Noise
# counts in one 16 times as much as in the other, so that it does this once in a hundred.
_ALIKE = 0.125
# Of four, which noise makes alike once in ten thousand, by more.
_FOUR_ALIKE = 0.3
# Spacings of x that are steps of a narrower format, and none of f's own.
_COARSER = 2.0**16
# What three differences in a row may differ by, to be those of one slope.
_STEADY = 0.02
# Spacings of x from which on no level is left that is shorter.
_FINEST = 64.0
# A share of f that numbers are rounded by which are some thousands of times as large.
_HARDLY = 2.0**-16
# Noise is f's own, and not rounding, from this multiple of eps*|f| on.
_NOISY = 1024.0
_ALL_OF_F = 2.0**-6
# Where all digits cancel f is some roundings of numbers as large as max(1, |x|), be these little.
_ROUNDED = 16.0
_LITTLE = 2.0**-10
# From this share of |f| on, and where it is f's own, two more probes tell it from waves.
_LOUD = 2.0**-28
# Times the noise from which on an estimate that leaves the probes is of something else.
_SIGNIFICANT = 8.0
# Times that a jump grows as t falls to a 16th where f at x itself is off, and both sides are alike.
# That is noise up to some roundings, as of derivatives that are numerical themselves.
_BY_ITSELF, _OFF = 8.0, 65536.0
# And between which it has no end, as at a cusp: that of a kink stays, and for a single outlying
# value it grows as the step falls.
_CUSP, _SPIKE = 1.1, 12.0
# A share of a cusp's bend that the levels are to know.
_LEVEL_SHARE = 0.5


@jitable
def compare_probes(state: Any, workspace: Any) -> None:
    """
    Store 1 in DEVIATION where the probes differ from the estimates by more than f's rounding.

    Or where bends at the last steps do.
    """
    differences, sizes, bends, estimates = workspace
    per_far, per_near = raised(state.far, state.power), raised(state.near, state.power)
    value, differs = estimates[BEST], estimates[DEVIATION]
    near, far = differences[NEAR], differences[FAR]
    for i in range(value.size):
        one, other = abs(near[i] - value[i]) * per_near, abs(far[i] - value[i]) * per_far
        differs[i] = one if one > other else other
    noise, jump = sizes[FAR], bends[NEAR]
    longer, shorter = bends[max(0, state.level - 1)], bends[state.level]
    last = state.top * QUARTERS[state.level] if state.level > 0 else 0.0
    for i in range(value.size):
        allowed = state.eps * noise[i]
        same = differs[i] <= allowed and abs(jump[i]) * state.far <= 16 * allowed
        kinked = stays(longer[i], shorter[i])
        same &= not (kinked and abs(shorter[i]) * last > BEYOND_NOISE * allowed)
        differs[i] = 0.0 if same else 1.0


@jitable
def _is_constant(state: Any, differences: Any, bends: Any, i: int) -> bool:
    """
    Return True if output i is locally constant at the far probe, to one side of x at least.

    So does a staircase, such as f that rounds x to a narrower format. The near probe may be longer
    than one of its steps, and all probes then show next to no slope. f's own format has steps, too,
    of some spacings of x.
    """
    # To the other side it may jump; what the step is after rounding is known to a share.
    slope, jump = abs(differences[FAR, i]), abs(bends[FAR, i])
    constant = abs(jump - 2 * slope) <= REALISED * slope
    return bool(constant and state.far >= _COARSER * state.grain)


@jitable
def _alike(state: Any, workspace: Any, i: int) -> bool:
    """Return True if all probes differ alike from the estimate of output i, beyond rounding."""
    differences, sizes, bends, estimates = workspace
    near = differences[NEAR, i]
    distance = abs(near - estimates[BEST, i])
    rounding = state.eps * sizes[FAR, i] / raised(state.far, state.power)
    alike = near != 0 and not _is_constant(state, differences, bends, i)
    alike &= distance > estimates[ERROR, i] + rounding
    share = _FOUR_ALIKE if state.probe == N_PROBES else _ALIKE
    for row in range(FAR, NEAR + state.probe):
        alike &= abs(differences[row, i] - near) <= share * distance
    return bool(alike)


@jitable
def borne_out(state: Any, workspace: Any, i: int, value: float) -> bool:
    """Return True if both probes see the slope of output i, up to errors small next to it and f."""
    differences, sizes, _, _ = workspace
    near, far = abs(differences[NEAR, i] - value), abs(differences[FAR, i] - value)
    rounding = max(near * state.near, far * state.far)
    return bool(max(near, far) <= _ALIKE * abs(value) and rounding <= _HARDLY * sizes[FAR, i])


@jitable
def doubtful(state: Any, workspace: Any) -> bool:
    """Return True if the probes leave open whether f is noisy or has a shorter length scale."""
    if state.probe == N_PROBES:
        return False
    differences, sizes, _, estimates = workspace
    near, far, size = differences[NEAR], differences[FAR], sizes[FAR]
    value, error = estimates[BEST], estimates[ERROR]
    per_size = state.eps / raised(state.far, state.power)
    per_near = raised(state.near, state.power)
    most = _loudest(state)
    count = loud = 0
    for i in range(value.size):  # as `_alike` of two probes, without branches
        distance = abs(near[i] - value[i])
        resolved = distance > error[i] + per_size * size[i]
        count += 1 if resolved & (abs(far[i] - near[i]) <= _ALIKE * distance) else 0
        loud += 1 if resolved & (distance * per_near > most * size[i]) else 0
    if loud > 0:
        return True
    if count > 0:
        for i in range(value.size):
            if _alike(state, workspace, i):
                return True
    return False


@jitable
def _all_rounded(state: Any, size: float) -> bool:
    """Return True if f is as small as the rounding errors of numbers of natural size."""
    rounding = _ROUNDED * state.eps * natural_size(state)
    return bool(size <= rounding <= _LITTLE)


@jitable
def _is_all_of_f(state: Any, sizes: Any, row: int, i: int, noise: float) -> bool:
    """Return True if noise at a probe would be as large as f: it is more likely an oscillation."""
    rounded = _all_rounded(state, max(sizes[0, i], sizes[row, i]))
    return bool(noise > _ALL_OF_F * sizes[0, i] and not rounded)


@jitable
def _loudest(state: Any) -> Any:
    """Return the relative noise level above which noise is distinguished from oscillation."""
    return max(_LOUD, _NOISY * state.eps)


@jitable
def _far_agree(state: Any, differences: Any, value: float, error: float, i: int) -> bool:
    """
    Return True if all far probes agree that the estimate of output i steps over waves.

    They are alike, or on a parabola of the step as those of a wave are, or fall as its square, as
    beyond a resonance. Large noise would differ from one to the next. Of staircases all are 0.
    """
    one, two, three = (
        differences[FAR, i] - value,
        differences[BETWEEN, i] - value,
        differences[BETWEEN + 1, i] - value,
    )
    # Squares of their steps are 1, 2 and 6.
    alike = max(abs(two - one), abs(three - one)) <= 0.5 * _ALIKE * abs(one)
    curved = abs(three - one - 5 * (two - one)) <= 0.25 * _ALIKE * abs(one)
    near = (differences[NEAR, i] - value) * (state.near / state.far) ** 2
    off = max(abs(2 * two - one), abs(6 * three - one), abs(near - one))
    falling = off <= _ALIKE * abs(one)
    resolved = state.probe == N_PROBES and differences[FAR, i] != 0 and abs(one) > error
    return bool(resolved and (alike or curved or falling))


@jitable
def steady_level(state: Any, differences: Any, i: int) -> int:
    """Return the last level whose slope is that of the two below it, or 0 if there is none."""
    k = state.level - 2
    while k > 0:
        one = differences[k, i]
        other = max(abs(differences[k + 1, i] - one), abs(differences[k + 2, i] - one))
        if other <= _STEADY * abs(one):
            break
        k -= 1
    return int(max(k, 0))


@jitable
def _of_steps(state: Any, differences: Any, estimates: Any, i: int) -> Any:
    """
    Return the noise of a staircase, by levels that are shorter than that of the best estimate.

    What f computes with moves too little in the probes' short steps to be rounded in other ways.
    """
    noise = 0.0
    for k in range(min(int(estimates[LEVEL, i]) + 1, state.level), state.level + 1):
        off = abs(differences[k, i] - estimates[BEST, i])
        noise = max(noise, off * raised(state.top * QUARTERS[k], state.power))
    return noise


@jitable
def _has_a_cusp(state: Any, bends: Any, i: int) -> bool:
    """
    Return True if bends of output i grow by one power from the last levels to the probes.

    What bends smoothly is eliminated from those of two levels. Where f at x is off by rounding of
    numbers that are larger than f, the probes' bends grow, too, and the levels know nothing of it.
    """
    k, jump, nearer = state.level, abs(bends[NEAR, i]), abs(bends[FAR, i])
    if k == 0 or not _CUSP * jump < nearer < _SPIKE * jump:
        return False
    power = math.log(nearer / jump) / math.log(state.far / state.near)
    at_level = bends[NEAR, i] * (state.top * QUARTERS[k] / state.near) ** power
    left = (4 * bends[k, i] - bends[k - 1, i]) / (4 - 4.0**power)
    return bool(left / at_level >= _LEVEL_SHARE)


@jitable
def _judge_without_probe(state: Any, workspace: Any, i: int, noise: float) -> Any:
    """
    Do as `judge` where a probe is lost to the spacing of x, as may happen within narrow bounds.

    What noise f has cannot be seen; rounding inside f is as if x were rounded. A ladder that was
    led down by a short length scale has found that if the near probe sees the same slope, or if the
    levels go down to spacings of x.
    """
    differences, sizes, _, estimates = workspace
    value, error, near = estimates[BEST, i], estimates[ERROR, i], differences[NEAR, i]
    distance = abs(near - value) * raised(state.near, state.power)
    if _is_all_of_f(state, sizes, NEAR, i, distance):
        return value, math.inf, ALIASED, noise
    if state.attempt == 0:
        noise = max(noise, state.eps * state.unit * abs(value))
        extrapolate_again(state, workspace, 0, noise, i)
        steady = steady_level(state, differences, i)
        slope = differences[steady, i]
        if abs(slope - estimates[BEST, i]) > estimates[ERROR, i] + _ALIKE * abs(slope):
            # Longer ones step over waves, and rounding of x is more to those.
            noise = max(noise, state.eps * state.unit * abs(slope))
            extrapolate_again(state, workspace, steady, noise, i)
        return estimates[BEST, i], estimates[ERROR, i], CONVERGED, noise
    if math.isnan(near):
        finest = state.top * QUARTERS[state.level] <= _FINEST * state.grain
        resolved = finest and error <= _STEADY * abs(value)
        distance = state.eps * state.unit * abs(value)
    else:
        resolved = abs(near - value) <= _ALIKE * abs(value)
    if not resolved:
        return value, math.inf, ALIASED, noise
    noise = max(noise, 3 * distance)
    extrapolate_again(state, workspace, 0, noise, i)
    return estimates[BEST, i], estimates[ERROR, i], CONVERGED, noise


@jitable
def judge(state: Any, workspace: Any, i: int) -> Any:
    """
    Return what the ladder and probes that differ from it say of output i: value, error, status.

    And the noise in f.

    A derivative that the probes share, and the ladder does not, belongs to a length scale below the
    ladder's: two of them say so where it differs much, and all of them where little. Otherwise
    their distance from the estimate is noise of f.
    """
    differences, sizes, bends, estimates = workspace
    value, error = estimates[BEST, i], estimates[ERROR, i]
    noise = state.eps * sizes[FAR, i]
    if not error < math.inf:
        return value, error, NONFINITE, noise
    near, far = differences[NEAR, i], differences[FAR, i]
    if not (abs(near) < math.inf and abs(far) < math.inf):
        return _judge_without_probe(state, workspace, i, noise)
    per_far, per_near = raised(state.far, state.power), raised(state.near, state.power)
    measured = max(abs(near - value) * per_near, abs(far - value) * per_far)
    # Numbers of natural size would, if f is their small difference.
    would_move = abs(value) * per_far > state.eps * natural_size(state)
    flat = far == 0 and bends[FAR, i] == 0
    if flat and abs(value) > error and flat_before_a_kink(state, differences, bends, i):
        return value, math.inf, ALIASED, noise
    endless = has_no_end(state, differences, i) or extends_to_probe(state, workspace, i)
    endless |= goes_on(state, differences, sizes, i, measured)
    if state.power == 1:  # in a bend four values may be off, and in a difference two
        endless |= goes_on(state, bends, sizes, i, 4 * measured)
    if endless:
        return value, math.inf, NONSMOOTH, noise
    if near == 0 and far == 0:
        # Rounding would not have hidden it: f is a staircase, its steps below the smallest level's.
        if abs(value) > error and abs(value) * per_near > 4 * noise:
            measured = abs(value) * raised(state.top * QUARTERS[state.level], state.power)
    elif would_move and _is_constant(state, differences, bends, i):
        measured = max(measured, _of_steps(state, differences, estimates, i))
        if flat:  # to both sides, and not to one as at a kink
            estimates[JUMP, i] = max(
                estimates[JUMP, i], measured
            )  # as other ladders may see less of it
    elif abs(near - far) <= 0.02 * abs(near) + 2 * noise / per_far and abs(
        near - value
    ) > 8 * noise / per_near + 0.05 * abs(near) + min(1.5 * error, 0.05 * abs(near)):
        return value, math.inf, ALIASED, noise
    elif _is_all_of_f(state, sizes, FAR, i, measured):
        return value, math.inf, ALIASED, noise
    elif measured > _loudest(state) * sizes[0, i] and _far_agree(
        state, differences, value, error, i
    ):
        return value, math.inf, ALIASED, noise
    jump, nearer = bends[NEAR, i], bends[FAR, i]
    # At a kink it stays as t falls, and at a cusp it grows; what bends falls with t.
    lasting = (jump > 0) == (nearer > 0) and abs(nearer) >= 0.9 * abs(jump)
    off = state.near * abs(jump)
    small = off <= _OFF * state.eps * sizes[FAR, i] and measured <= _ALIKE * off
    if small and abs(nearer) >= _BY_ITSELF * abs(jump):  # noise of f at x itself
        measured, lasting = off, False
    status = CONVERGED
    if measured > noise:
        if measured > _NOISY * max(noise, state.eps * sizes[0, i]):
            status = NOISY
        noise = 3 * measured  # of two samples
        level = int(estimates[LEVEL, i])
        left = error + noise_left(state, level, noise, sizes[level, i])
        extrapolate_again(state, workspace, 0, noise, i)
        # Longer steps promise more, and may be of a wave that the probes know nothing of.
        if abs(near - estimates[BEST, i]) <= estimates[ERROR, i] + _SIGNIFICANT * noise / per_near:
            value, error = estimates[BEST, i], estimates[ERROR, i]
        else:
            error = left
        if state.probe == N_PROBES and _alike(state, workspace, i):
            between = differences[BETWEEN, i]
            spread = max(abs(near - far), abs(near - between), abs(between - far))
            rounding = state.eps * sizes[FAR, i] / per_far
            return near, 3 * (spread + rounding), ALIASED, noise
    kinked = lasting and abs(jump) > 16 * noise / state.far
    if state.power == 1 and state.one_sided == 0 and kinked:
        # That of a kink at a distance of d from x is short of it by d/t.
        short = max(0.0, abs(jump) - abs(nearer)) / 15
        if _has_a_cusp(state, bends, i):
            short = math.inf
        return value, error + abs(jump) / 2 + short, NONSMOOTH, noise
    return value, error, status, noise
