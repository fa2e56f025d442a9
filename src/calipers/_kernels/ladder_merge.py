"""Merge one step sequence into the estimate and choose the next initial step."""

import math
from typing import Any

from . import jitable
from .differences import ALIASED, CONVERGED, NOISY, NONSMOOTH
from .ladder_extrapolate import (
    BEST,
    DEVIATION,
    ERROR,
    FAR,
    JUMP,
    LEVEL,
    NEAR,
    QUARTERS,
    VALUE_STATUS,
    bends_count,
    extrapolate_again,
    natural_size,
    noise_left,
    raised,
    reaches_over_0,
    share_of,
)
from .ladder_irregular import (
    bend_left,
    contradiction,
    far_to_go,
    hidden_by_rounding,
    jump_of,
    jump_within,
    largest_jump,
)
from .ladder_noise import borne_out, compare_probes, judge, steady_level

_ATTEMPTS = 8  # step sequences for each derivative at most

# An error below this share of the value needs no other ladder; where the first one did not find the
# length scale, the second may be far from it, too, and a smaller error is asked for.
_RESOLVED = 2.0**-24
_REFINED = 2.0**-34
# Nor does one below this share of |f| / max(1, |x|), the natural size of a derivative.
_NATURAL = 2.0**-30
# A power of eps, below which an x may be lost next to numbers of natural size.
_LOST_EXPONENT = 0.4
# Times the errors from which on a contradiction is none of noise thought too small.
_CONTRADICTED = 64.0
# Times that the last difference is farther from an estimate than the one before, and than errors.
_FARTHER, _SURELY = 1.5, 4.0
# And a share of how far the one before is, from which on one comes no nearer.
_STAYS = 0.5
# How far below a ladder that missed the length scale the next one begins: near enough to find it
# before steps are below the spacing of x.
_DOWN = 2.0**-10
# And how far above the far probe where all probes were alike: some times the length over which f is
# known to be straight.
_ABOVE_FAR = 2.0**8
# A share of a slope as which its error is to be known, and where three levels say so.
_VAGUE, _IN_A_ROW = 2.0**-10, 0.1
# Times that probes are apart, beneath which an error is what shorter steps promise less of.
_PROBE_DISTANCES = 4.0
# And that levels are as long as the near probe, which leave room for a length between them.
_GAP = 256.0
# Spacings that leave a ladder no levels without noise.
_FEWEST = 2.0**-8


@jitable
def _is_shorter(state: Any) -> bool:
    """Return True if the steps of this sequence are shorter than all earlier ones."""
    return bool(state.top * state.length < state.step)


@jitable
def _poor(state: Any, value: float, error: float, largest: float) -> bool:
    share = _RESOLVED if state.attempt == 0 else _REFINED
    return not error <= share * max(abs(value), largest)


@jitable
def _leaves(state: Any, workspace: Any, i: int, value: float, error: float, noise: float) -> bool:
    """
    Return True if differences by shorter steps leave the estimate of output i.

    They come nearer to a derivative, each by 16 times. A softplus is straight at steps that are far
    longer than its bend, and has a different slope there.
    """
    last = state.level
    if last == 0:
        return False
    differences, sizes, _, _ = workspace
    now, before = abs(differences[last, i] - value), abs(differences[last - 1, i] - value)
    uncertainty = error + noise_left(state, last, noise, sizes[last, i])
    return bool(now > _FARTHER * before and now > _SURELY * uncertainty)


@jitable
def _diverges(state: Any, workspace: Any, i: int, value: float, error: float, noise: float) -> bool:
    """
    Return True if steps shorter than those of its estimate give output i a different slope.

    Differences of a smooth function come nearer to it, each by 4 or 16 times.
    """
    differences, sizes, _, estimates = workspace
    for row in range(FAR, NEAR + state.probe):  # noise is little in two probes by chance, sooner
        off = abs(differences[row, i] - value)
        noise = max(noise, 3 * off * raised(state.far, state.power))
    level = int(estimates[LEVEL, i])
    before = abs(differences[level, i] - value)
    for k in range(level + 1, state.level + 1):
        now = abs(differences[k, i] - value)
        uncertainty = error + noise_left(state, k, noise, sizes[k, i])
        if now > max(_SURELY * uncertainty, _STAYS * before):
            return True
        before = now
    return False


@jitable
def _limited(state: Any, sizes: Any, estimates: Any, i: int, error: float, noise: float) -> bool:
    """Return True if noise limits the estimate of this sequence."""
    level = int(estimates[LEVEL, i])
    return bool(error <= 3 * noise_left(state, level, noise, sizes[level, i]))


@jitable
def _ended(state: Any, workspace: Any, i: int, value: float, error: float) -> bool:
    """Return True if the slope of output i, which seemed to grow without limit, has converged."""
    steady = steady_level(state, workspace.differences, i) > 0  # which noise hardly is
    return bool(error <= (_IN_A_ROW if steady else _VAGUE) * abs(value))


@jitable
def _probes_resolve(state: Any, workspace: Any, i: int, value: float, error: float) -> bool:
    """
    Return True if probes agree far better than the error of output i by far longer steps.

    A length between them is one that a shorter ladder finds.
    """
    differences, sizes, bends, estimates = workspace
    near, far, bend = differences[NEAR, i], differences[FAR, i], bends[NEAR, i]
    # Of stairs and of what jumps between pieces they know one.
    whole = (near != 0 or far != 0 or bend != 0) and estimates[JUMP, i] == 0
    has_gap = state.top * QUARTERS[state.level] >= _GAP * state.near
    if not (whole and has_gap and error > _VAGUE * abs(value)):
        return False
    distance = abs(near - far) + state.eps * sizes[FAR, i] / raised(state.far, state.power)
    if state.one_sided == 0 and state.power == 1:
        distance += abs(bend) + abs(bends[FAR, i])
    return bool(error > _PROBE_DISTANCES * distance)


@jitable
def _by_shorter_steps(
    state: Any, workspace: Any, i: int, value: float, error: float, noise: float
) -> Any:
    """Return value and error of output i: those of shorter steps where they contradict these."""
    if contradiction(state, workspace, i, value, error, noise) == 0:
        return value, error
    extrapolate_again(state, workspace, int(workspace.estimates[LEVEL, i]) + 1, noise, i)
    value, error = workspace.estimates[BEST, i], workspace.estimates[ERROR, i]
    return value, max(error, contradiction(state, workspace, i, value, error, noise))


@jitable
def _record_jump(state: Any, workspace: Any, i: int, largest: float, errors: Any) -> None:
    """
    Note what output i jumps by between pieces.

    Ladders before saw no jump if all of their steps were shorter than a piece: their errors grow.
    """
    jump = workspace.estimates[JUMP]
    had_jump = jump[i] > 0
    jump[i] = max(jump[i], jump_of(state, workspace, i, largest))
    if jump[i] > 0 and not had_jump and state.attempt > 0 and not _is_shorter(state):
        left = 3 * jump[i] / raised(state.step / state.length, state.power)
        errors[i] = max(errors[i], left)


@jitable
def _assess(state: Any, workspace: Any, i: int, errors: Any) -> Any:
    """Return what this ladder says of output i: value, error, status, and the noise in f."""
    _, sizes, _, estimates = workspace
    value, error = estimates[BEST, i], estimates[ERROR, i]
    status, noise = CONVERGED, state.eps * sizes[FAR, i]
    differs = estimates[DEVIATION, i] != 0
    if differs:
        value, error, status, noise = judge(state, workspace, i)
    if estimates[JUMP, i] > 0:
        noise = 3 * estimates[JUMP, i]
        extrapolate_again(state, workspace, 0, noise, i)
        value, error, status = estimates[BEST, i], estimates[ERROR, i], NOISY
    endless = errors[i] == math.inf and estimates[VALUE_STATUS, i] == NONSMOOTH
    if endless and not _ended(state, workspace, i, value, error):
        error, status = math.inf, NONSMOOTH
    if differs and status in (CONVERGED, NOISY):
        jump = jump_within(state, workspace, i, value, noise)
        if jump > error:
            error, status = error + jump / 2, NONSMOOTH
        error = max(error, far_to_go(state, workspace, i, noise))
        if error == math.inf:
            status = NONSMOOTH
    if status in (CONVERGED, NOISY) and reaches_over_0(state):
        error = max(error, bend_left(state, workspace, i, 4 * noise))
    if bends_count(state) and estimates[LEVEL, i] + 2 <= state.level:
        value, error = _by_shorter_steps(state, workspace, i, value, error, noise)
    # One that was led down here may still be too long: its first levels are alike by chance.
    judged = _is_shorter(state) and status in (CONVERGED, NOISY)
    if judged and _diverges(state, workspace, i, value, error, noise):
        error, status = math.inf, ALIASED
    return value, error, status, noise


@jitable
def _takes_over(
    state: Any, workspace: Any, i: int, estimate: Any, previous: float, previous_error: float
) -> bool:
    """
    Return True if this sequence's estimate of output i replaces an earlier one.

    A ladder with longer steps than those before may improve on them, not contradict them. One with
    shorter steps may: what looked like noise at longer steps was oscillation, unless f is locally
    constant.
    """
    value, error, noise = estimate
    distance, together = abs(value - previous), error + previous_error
    better = error < previous_error and distance <= together
    if _is_shorter(state):
        # Rounding of numbers of natural size may hide some of f from all of its steps.
        change = abs(value) * raised(state.top, state.power)
        contradicts = distance > _CONTRADICTED * together and change > state.eps * natural_size(
            state
        )
        return bool(better or contradicts or previous_error == math.inf)
    # Short steps may be lost next to an offset, so that f does not change; then the probes decide.
    better |= error < previous_error and previous == 0 and borne_out(state, workspace, i, value)
    if not better:
        return bool(previous_error == math.inf)
    # What is bounded has small slopes over long steps, whatever they are at x.
    resolved = abs(value) > error and _limited(
        state, workspace.sizes, workspace.estimates, i, error, noise
    )
    return bool(state.guess == 0 or resolved) and not _leaves(
        state, workspace, i, value, error, noise
    )


@jitable
def conclude(state: Any, base: Any, workspace: Any, values: Any, errors: Any) -> Any:
    """Keep what this ladder found out; return the top of the next one, or 0."""
    differences, sizes, _, estimates = workspace
    first, counts = state.attempt == 0, bends_count(state)
    aliased = rippled = buried = straight = False
    compare_probes(state, workspace)
    natural = _NATURAL / raised(state.unit, state.power)
    small = state.unit > state.eps**-_LOST_EXPONENT
    largest = 0.0
    if state.joint == 1:
        for i in range(values.size):
            size = abs(estimates[BEST, i])
            largest = size if largest < size < math.inf else largest
    for i in range(values.size):
        unknown = first or errors[i] == math.inf
        if not (unknown or _poor(state, values[i], errors[i], largest)):
            continue
        value, error = estimates[BEST, i], estimates[ERROR, i]
        status, noise = CONVERGED, state.eps * sizes[FAR, i]
        most = largest_jump(state, sizes, i)
        if most > 0:
            _record_jump(state, workspace, i, most, errors)
        plain = first and not counts and estimates[DEVIATION, i] == 0 and estimates[JUMP, i] == 0
        if not plain:  # asked here: a call takes longer
            value, error, status, noise = _assess(state, workspace, i, errors)
        taken = first or _takes_over(
            state, workspace, i, (value, error, noise), values[i], errors[i]
        )
        if taken:
            values[i], errors[i] = value, error
            rippled |= status == ALIASED and error < math.inf
            if status in (ALIASED, NONSMOOTH):
                aliased |= error == math.inf and not math.isnan(differences[NEAR, i])
            # That f is noisy stays true, whatever other steps see of it.
            estimates[VALUE_STATUS, i] = (
                max(status, NOISY) if estimates[VALUE_STATUS, i] == NOISY else status
            )
        hidden = 0.0
        if first and value == 0:
            hidden = hidden_by_rounding(state, differences, float(base[i]), i)
        if _poor(state, values[i], max(errors[i], hidden), largest):
            # Rounding hides a derivative that would show at f's supposed length scale.
            buried |= natural * sizes[FAR, i] < errors[i] < math.inf
            buried |= small and hidden > 0
            if first or _is_shorter(state):
                aliased |= _probes_resolve(state, workspace, i, values[i], errors[i])
            judged = status in (CONVERGED, NOISY)
            if judged and errors[i] < abs(values[i]):
                # By its first levels, so that longer steps promise more.
                straight |= estimates[LEVEL, i] <= 1 and _limited(
                    state, sizes, estimates, i, error, noise
                )
        errors[i] = max(errors[i], hidden)
    worst = float(CONVERGED)
    for i in range(values.size):
        worst = max(worst, estimates[VALUE_STATUS, i])
    state.status = int(worst)
    longest = state.top * state.length
    state.step = longest if first else min(state.step, longest)
    state.attempt += 1
    return _next_top(state, aliased, rippled, buried, straight)


@jitable
def _next_top(state: Any, aliased: bool, rippled: bool, buried: bool, straight: bool) -> Any:
    """Return where the next ladder begins, or 0 if none promises more."""
    state.guess = 0
    if state.attempt == _ATTEMPTS:
        return 0.0
    share = share_of(state)
    first, longer = 0.25 * share, share * min(state.unit / 4, state.limit)
    if aliased:
        lower, lowest = max(_DOWN * state.top, 4096 * state.grain), state.step / state.length
        if 2 * lower <= state.top and not lowest < first < state.top:
            return lower
        # No shorter steps tell f from noise: at a small x, its length may be the natural one.
        return longer if longer > first >= state.top else 0.0
    if rippled:
        return _ABOVE_FAR * state.far
    if buried and 4 * state.top < share * min(state.unit, state.limit):
        return longer
    # In fewer bits than float16's noise limits all ladders, and that f is straight is a guess.
    if straight and state.eps < _FEWEST and 256 * state.top <= state.limit:
        state.guess = 1
        return 256 * state.top
    return 0.0
