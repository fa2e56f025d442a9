"""
Estimate a derivative from its scales, with error and status, and judge whether a claim holds.

The derivative is local: a scale counts unless a shorter one contradicts it. The value is that of
the scale with the least error among these. A claim passes if that scale confirms it within the
tolerance. It fails only if scales that resolve its difference from the value agree that it is
wrong, and none supports it.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .._core.protocols import NDArray
from .._kernels.differences import ALIASED, CONVERGED, NOISY, NONFINITE, NONSMOOTH
from .scales import ORDERS, Scales, summed
from .thresholds import THRESHOLDS as T

FAIL, NONSMOOTH_VERDICT, INCONCLUSIVE, PASS = range(4)  # in the order of `VERDICTS`


@dataclass(frozen=True)
class Estimates:
    """
    Derivatives of outputs along directions, from the scales that agree.

    Arrays have the shape (directions, outputs).

    Attributes
    ----------
    value, error : ndarray
        At a kink the mean of both slopes, with the error of that mean.
    scale : ndarray of int
        The scale of the value.
    contradicted : ndarray
        True for scales that a shorter one contradicts, of the shape of `Scales.slope`.
    kink : ndarray of int
        The scale that shows a kink near x, one of whose slopes is the value; -1 without one.
    scattered : ndarray of bool
        True if longer scales agree on a different value and f is not smooth in between, as where
        rounding of terms that cancel makes it piecewise smooth. The error is then the difference of
        both values.
    gap, gap_error : ndarray
        Half the difference of the slopes on both sides of a kink at x, 0 if there is none.
    endless : ndarray of bool
        True if slopes grow without bound within |x|.
    """

    value: NDArray
    error: NDArray
    scale: NDArray
    contradicted: NDArray
    kink: NDArray
    scattered: NDArray
    gap: NDArray
    gap_error: NDArray
    endless: NDArray

    def entries(self, directions: NDArray, outputs: NDArray) -> "Estimates":
        """Return the estimates of some entries, as the outputs of one direction."""
        arrays = {
            name: a[directions, :, outputs].T[None] if a.ndim == 3 else a[directions, outputs][None]
            for name, a in vars(self).items()
        }
        return Estimates(**arrays)

    @property
    def total_error(self) -> NDArray:
        """The error of the derivative; at a kink half the difference of both slopes."""
        return np.asarray(np.fmax(self.error, self.gap + self.gap_error))

    def statuses(self, s: Scales) -> NDArray:
        """Return the status of each entry."""
        status = np.where(s.noisy & (s.change > 0), NOISY, CONVERGED)
        status = np.where(self.gap > 0, NONSMOOTH, status)
        status = np.where(self.scattered, ALIASED, status)
        status = np.where(np.isfinite(self.value) & np.isfinite(self.error), status, NONFINITE)
        return np.where(self.endless, NONSMOOTH, status)


def _take(a: NDArray, k: NDArray) -> NDArray:
    """Return the elements of the scale k of each output."""
    directions, outputs = k.shape
    return np.asarray(a[np.arange(directions)[:, None], np.fmax(k, 0), np.arange(outputs)])


def contradicted_scales(slope: NDArray, error: NDArray) -> NDArray:
    """Return True for scales whose interval does not overlap with that of a shorter scale."""
    low, high = slope - error, slope + error
    low, high = (np.where(np.isfinite(error), x, y) for x, y in ((low, -np.inf), (high, np.inf)))
    lowest, highest = np.full_like(high, np.inf), np.full_like(low, -np.inf)
    lowest[:, :-1] = np.minimum.accumulate(high[:, :0:-1], axis=1)[:, ::-1]
    highest[:, :-1] = np.maximum.accumulate(low[:, :0:-1], axis=1)[:, ::-1]
    return np.asarray((low > lowest) | (high < highest))


def _neighbours(which: NDArray) -> NDArray:
    """Return True where `which` is True for a scale and for the next longer or shorter one."""
    both = which[:, 1:] & which[:, :-1]
    result = np.zeros_like(which)
    result[:, 1:] |= both
    result[:, :-1] |= both
    return result


def estimate(s: Scales, few: bool = False) -> Estimates:
    """Estimate each derivative and its error; `few` if only the first pass was sampled."""
    number = np.arange(s.slope.shape[1])[None, :, None]
    with np.errstate(all="ignore"):
        contradicted = contradicted_scales(s.slope, s.error)
        with_kinks = _with_kinks(s)
        local_error = np.where(contradicted | s.lost, np.inf, with_kinks)
        within = np.where(s.t <= s.inner[:, None], local_error, np.inf).argmin(axis=1)
        resolved = _take(local_error, within) <= T.resolved * np.abs(_take(s.slope, within))
        scale = _best(s, local_error, within, resolved, with_kinks)
        value, error = _take(s.slope, scale), _take(with_kinks, scale)
        error = np.where(_take(contradicted | s.lost, scale), np.inf, error)
        off = np.abs(s.slope - value[:, None])
        longer = number < scale[:, None]
        others = longer & (off > s.error + _take(s.error, scale)[:, None])
        kink, scattered, rounded, lost, other = (
            np.full(scale.shape, fill) for fill in (-1, False, False, 0.0, np.nan)
        )
        k, i = np.nonzero(others.any(axis=1))
        if len(k):
            part, of_part = s.entries(k, i), (scale[k, i][None], value[k, i][None])
            each = _jumps(part, *of_part, others[k, :, i].T[None], 2 if few else T.in_a_row)
            kink[k, i], scattered[k, i], rounded[k, i] = each.kink, each.scattered, each.rounded
            lost[k, i], other[k, i] = each.rounding, each.other
            scale[k, i] = each.scale
        value = np.where(rounded, _take(s.slope, scale), value)
        error = np.where(rounded, _take(s.error, scale), error)
        contradicted &= ~rounded[:, None]
        inside = s.t <= s.inner[:, None]
        remainder = _remainder(s, scale, inside)
        beyond: NDArray | float = 0.0
        if not resolved.all():
            beyond = np.where(resolved, 0.0, _remainder(s, scale, np.ones_like(inside)))
        # After the first pass shorter steps are too short to show it.
        below = np.zeros_like(error) if few else _departure_below(s, value, scale)
        for more in remainder, beyond, lost, below:
            error = np.where(rounded, error, np.fmax(error, more))
        endless = np.isinf(remainder) & ~rounded
        error = np.where(scattered, np.fmax(error, other), error)
        return Estimates(value, error, scale, contradicted, kink, scattered, *gap_at_x(s), endless)


class _Jumps(NamedTuple):
    """
    Entries whose slope differs at a longer scale, since f jumps or has a kink in between.

    Attributes
    ----------
    kink, scattered : ndarray
        As in `Estimates`.
    rounded : ndarray of bool
        True if the jumps are rounding: the derivative is the slope across them, at `scale`.
    rounding : ndarray
        The error of the slope from jumps as small as rounding, if no scale resolves it across them.
    other : ndarray
        The difference of the slope of longer scales, or NaN.
    """

    scale: NDArray
    kink: NDArray
    scattered: NDArray
    rounded: NDArray
    rounding: NDArray
    other: NDArray


def _jumps(s: Scales, scale: NDArray, value: NDArray, others: NDArray, in_a_row: int) -> _Jumps:
    """Return the jumps and kinks between a scale and longer ones with `others` slopes."""
    number, off = np.arange(s.slope.shape[1])[None, :, None], np.abs(s.slope - value[:, None])
    departure, jumps = _departures(s, value, scale, np.where(others, number, -1).max(axis=1))
    shows = _shows_kink(s, off) & (number < scale[:, None])
    kink = np.where(shows, number, -1).max(axis=1)
    other_scale, other = _other_slope(s, off, others, in_a_row)
    # Beyond a kink, f departs from the line by less than the difference of both slopes times
    # the step, as it is on the line before the kink.
    before = np.concatenate((s.span[:, 1:], np.zeros_like(s.span[:, :1])), axis=1)
    departs = jumps & (departure >= other[:, None] * (s.span - before / 2))
    scattered = departs.any(axis=1) & (kink < 0)
    jump = np.where(departs, departure, 0.0).max(axis=1)
    rounded = scattered & (jump <= T.noisy * s.spacing)
    small = jumps & (departure <= np.where(kink < 0, T.noisy * s.spacing, 0.0)[:, None])
    rounding = np.where(small, departure / s.span, 0.0).max(axis=1)
    kink = np.where(jumps.any(axis=1), kink, -1)
    scale = np.where(rounded, other_scale, scale)
    return _Jumps(scale, kink, scattered & ~rounded, rounded, rounding, other)


def _shows_kink(s: Scales, off: NDArray) -> NDArray:
    """Return True for scales with a kink one of whose slopes is the value, which is `off`."""
    gap = np.abs(s.gap)
    is_kink = _neighbours(gap > T.kink * s.gap_error)
    return np.asarray(is_kink & (np.abs(off - gap) <= T.telling * gap + s.error + s.gap_error))


def _best(
    s: Scales, error: NDArray, within: NDArray, resolved: NDArray, with_kinks: NDArray
) -> NDArray:
    """
    Return the scale of the least error.

    Beyond |x| f may be a different function. A scale there counts if the slope is resolved within
    |x|, or if f is straight within |x| up to its noise and the scale resolves it, or if f is
    nothing but noise.
    """
    best = error.argmin(axis=1)
    if resolved.all():
        return np.asarray(best)
    change = _take(s.step_change / s.span, best)
    clear = (_take(s.error, best) <= T.resolved * change) | (s.change <= T.visible * s.noise)
    straight = (clear & _is_straight(s, best, with_kinks)) | _is_blank(s)
    return np.asarray(np.where(resolved | straight, best, within))


def _with_kinks(s: Scales) -> NDArray:
    """Return the errors of slopes; beyond |x| they include the gaps of kinks."""
    most = np.abs(s.gap) + s.gap_error
    shown = (np.abs(s.gap) > T.kink * s.gap_error) & (s.t > s.inner[:, None])
    gap = np.where(shown, most, 0.0)
    # A kink that shows at longer steps may be hidden by noise at this one.
    gap = np.fmin(np.maximum.accumulate(gap, axis=1), most)
    shorter = np.maximum.accumulate(np.where(shown, most, 0.0)[:, ::-1], axis=1)[:, ::-1]
    return s.error + np.where(s.t > s.inner[:, None], np.fmax(gap, shorter), 0.0)


def _is_straight(s: Scales, scale: NDArray, with_kinks: NDArray) -> NDArray:
    """Return True where f within |x| is on the line of a longer scale."""
    inside = s.t <= s.inner[:, None]
    noise = T.multiple * np.fmax(s.noise, s.rounding)[:, None]
    off = np.abs(s.odd - _take(s.slope, scale)[:, None] * s.span)
    error = _take(with_kinks, scale)[:, None]
    return np.asarray(((off <= noise + error * s.span) | ~inside).all(axis=1))


def _departures(
    s: Scales, value: NDArray, scale: NDArray, outer: NDArray
) -> tuple[NDArray, NDArray]:
    """
    Return the distance of f from a line at each step, and True where f jumps to the next step.

    The line has the slope `value`. Jumps count between the scale of the value and `outer`, the
    shortest scale with a different slope.
    """
    departure = np.abs(s.even) + np.abs(s.odd - value[:, None] * s.span)
    floor = T.multiple * np.fmax(s.noise, s.rounding)[:, None]
    growth, before = np.ones_like(departure), np.ones_like(departure)
    growth[:, :-1] = departure[:, :-1] / (departure[:, 1:] + floor)
    before[:, :-1] = growth[:, 1:]
    ratio = np.ones_like(s.t)
    ratio[:, :-1] = s.t[:, :-1] / s.t[:, 1:]
    number = np.arange(departure.shape[1])[None, :, None]
    between = (number >= outer[:, None]) & (number < scale[:, None] + ORDERS)
    between &= (outer >= 0)[:, None]
    # The growth of exp(exp(t)) is the square of that at the step before.
    return departure, between & (growth > np.fmax(ratio ** (2 * T.abrupt), before**2))


def _other_slope(
    s: Scales, off: NDArray, others: NDArray, in_a_row: int
) -> tuple[NDArray, NDArray]:
    """Return the best longer scale whose slope is different, and the difference, or NaN."""
    distinct = others & (s.error < T.telling * off)
    step = np.abs(s.slope[:, 1:] - s.slope[:, :-1]) <= s.error[:, 1:] + s.error[:, :-1]
    # Several scales in a row must agree: slopes of a saw tooth agree at a few long steps by chance.
    agree, count = np.zeros_like(distinct), distinct.shape[1] - in_a_row + 1
    if count > 0:
        linked = distinct[:, 1:] & distinct[:, :-1] & step
        agree[:, :count] = np.all([linked[:, k : k + count] for k in range(in_a_row - 1)], axis=0)
    scale = np.where(agree, s.error, np.inf).argmin(axis=1)
    return scale, np.where(agree.any(axis=1), _take(off, scale), np.nan)


def _remainder(s: Scales, scale: NDArray, counted: NDArray) -> NDArray:
    """
    Return the possible change of one-sided slopes at steps shorter than a scale, or 0.

    The errors of differences of a smooth f fall as a power of the step that is at least 1. Those of
    ``|x|**p`` fall as the power p - 1. Where the power is less than `T.smooth` at all scales from a
    few longer ones to the noise, the remaining changes are a geometric series, and infinite if it
    is 0 or less. Only the scales `counted` matter: beyond |x| f may be a different function.
    """
    result = np.zeros(scale.shape)
    number = np.arange(s.slope.shape[1] - 1)[None, :, None] - scale[:, None]
    counted = counted[:, :-1] & (number >= -2 * T.in_a_row)
    steps = s.t[:, :-1]
    halvings = np.log2(steps / s.t[:, 1:])
    hidden = T.visible * np.fmax(s.noise, s.rounding)[:, None] / s.span[:, 1:]
    first = np.fmin(scale, s.slope.shape[1] - 3)
    for slopes in (s.odd - s.even) / s.span, (s.odd + s.even) / s.span:
        change = np.abs(slopes[:, 1:] - slopes[:, :-1])
        visible = counted & (change > hidden)
        rate = np.fmax(change, hidden) / halvings  # noise may hide that slopes still change
        possible = (visible[:, 1:] & visible[:, :-1]).sum(axis=1) >= T.in_a_row
        # Of most entries one scale shows that differences converge.
        fall = np.log2(_take(rate, first) / _take(rate, first + 1))
        converges = fall >= T.smooth * _take(np.broadcast_to(halvings, rate.shape), first)
        possible &= ~converges | ~_take(counted, first)
        k, i = np.nonzero(possible)
        if len(k):
            arrays = change, hidden, rate, counted, visible, s.even[:, :-1] != 0, steps, halvings
            entries = (a[k, :, i if a.shape[2] > 1 else 0].T[None] for a in arrays)
            series = _series(_Changes(*entries), scale[k, i][None])[0]
            result[k, i] = np.fmax(result[k, i], series)
    return result


class _Changes(NamedTuple):
    """
    Changes of slopes from scale to scale, of some entries.

    Attributes
    ----------
    change, hidden, rate : ndarray
        The changes, those that noise may hide, and the larger one of both per halved step.
    counted, visible, two_sided : ndarray of bool
        Which scales matter, where changes are visible, and where f changes on both sides of x.
    steps, halvings : ndarray
        The steps of the longer scale, and how often it is halved to the next.
    """

    change: NDArray
    hidden: NDArray
    rate: NDArray
    counted: NDArray
    visible: NDArray
    two_sided: NDArray
    steps: NDArray
    halvings: NDArray


def _series(changes: _Changes, scale: NDArray) -> NDArray:
    """Return the sum of the changes of slopes if they fall too slowly at all scales, or 0."""
    change, hidden, rate, counted, visible, two_sided, steps, halvings = changes
    power = np.log2(rate[:, :-1] / rate[:, 1:]) / halvings[:, :-1]
    persistent = ((power < T.smooth) | ~counted[:, :-1] | np.isnan(power)).all(axis=1)
    first, last = visible.argmax(axis=1), visible.shape[1] - 1 - visible[:, ::-1].argmax(axis=1)
    middle = (first + last) // 2

    def power_between(k: NDArray, n: NDArray) -> tuple[NDArray, NDArray]:
        fall, halved = (np.log(_take(a, k) / _take(a, n)) for a in (rate, steps))
        return fall / halved, T.multiple / T.visible * _take(hidden / change, n) / halved

    # In a sum of powers, the least one dominates at short steps; a smooth f converges there.
    longer, _ = power_between(first, middle)
    exponent, unsure = power_between(middle, last)
    persistent &= exponent <= longer + T.telling
    # Where f is constant on one side, but not up to x, slopes there grow as 1/t.
    persistent &= (exponent > unsure - 1) | ~_take(two_sided, last)
    total = _take(change, np.fmin(scale, change.shape[1] - 1)) / (1 - 2.0**-exponent)
    return np.where(persistent, np.where(exponent > unsure, total, np.inf), 0.0)


def gap_at_x(s: Scales) -> tuple[NDArray, NDArray]:
    """Return half the difference of the one-sided slopes of a kink at x, or 0, and its error."""
    contradicted = contradicted_scales(s.gap, s.gap_error)
    error = np.where(contradicted, np.inf, s.gap_error)
    best = error.argmin(axis=1)
    jumps = _neighbours(np.abs(s.gap) > T.kink * s.gap_error)
    error = _take(error, best)
    is_kink = _take(jumps, best) & np.isfinite(error)
    return np.where(is_kink, np.abs(_take(s.gap, best)), 0.0), np.where(is_kink, error, 0.0)


class Claim(NamedTuple):
    """
    Claimed derivatives, as arrays of the shape (directions, outputs), or of some entries.

    Attributes
    ----------
    value, allowed : ndarray
        The derivatives and their tolerances.
    natural : ndarray
        The size of an entry that changes f by its own size over the size of x.
    resolution : float
        The relative tolerance.
    """

    value: NDArray
    allowed: NDArray
    natural: NDArray
    resolution: float

    def times(self, width: NDArray) -> "Claim":
        """Return the claims about some entries as those of one direction, in other units."""
        value, allowed, natural = ((each * width)[None] for each in self[:3])
        return Claim(value, allowed, natural, self.resolution)


def judge(s: Scales, m: Estimates, claim: Claim, usual: NDArray) -> tuple[NDArray, NDArray]:
    """
    Return the verdicts of claims, and True for those that pass only because noise hides them.

    `usual` is the noise of outputs where all inputs change, for those that do not change here; inf
    if they never change.
    """
    value, allowed = claim.value, claim.allowed
    with np.errstate(all="ignore"):
        off = np.abs(value - m.value)
        passes = (off <= allowed + m.error) & (m.error <= allowed)
        passes |= (off <= allowed) & (m.error <= T.resolving * allowed)
        fails = _is_refuted(s, m, claim, usual)
        constant, negligible = _is_invisible(s, m, claim)
        negligible &= off <= allowed + T.certain * m.error  # a resolved difference is not hidden
        finite = np.isfinite(m.value) & np.isfinite(m.error)
        passes, negligible = passes & finite, negligible & finite
        hidden = (constant | negligible) & ~passes & ~fails
        at_kink, near_kink = _is_one_sided(s, m, claim)
        verdict = np.full(value.shape, INCONCLUSIVE, np.int8)
        verdict[(passes & (m.gap <= allowed)) | hidden] = PASS
        verdict[fails & ~at_kink & ~constant] = FAIL
        verdict[at_kink & ~hidden] = NONSMOOTH_VERDICT
        verdict[(verdict == INCONCLUSIVE) & near_kink] = NONSMOOTH_VERDICT
        verdict[m.endless & (verdict == INCONCLUSIVE)] = NONSMOOTH_VERDICT
        verdict[s.broken & (verdict != PASS)] = NONSMOOTH_VERDICT
        verdict[~np.isfinite(value) & finite & ~s.broken] = FAIL
    # A claim that equals the value is confirmed, however small it is.
    return verdict, hidden & (constant | (off > 0))


def opinions(
    away: NDArray, error: NDArray, allowed: NDArray, off: NDArray | float
) -> tuple[NDArray, NDArray]:
    """
    Return True for slopes that support a claim, and for slopes that exclude it.

    `away` are their distances from the claim, and `off` is that of the value: a slope whose error
    is as large does not support the claim.
    """
    supports = (away <= allowed + error) & (error <= np.fmax(allowed, T.telling * off))
    return supports, away > allowed + T.certain * error


def _is_refuted(s: Scales, m: Estimates, claim: Claim, usual: NDArray) -> NDArray:
    """Return True for claims that the value and a scale next to it exclude and none supports."""
    value, allowed = claim.value, claim.allowed
    off, limit = np.abs(value - m.value), allowed[:, None]
    away = np.abs(value[:, None] - s.slope)
    supports, excludes = opinions(away, s.error, limit, off[:, None])
    # Beyond |x| f may be a different function: a contradicted scale there supports no claim.
    supports &= ~(m.contradicted & (s.t > s.inner[:, None]))
    excludes &= ~(m.contradicted | s.lost) & np.isfinite(s.error)
    # A claim between the slopes on both sides of x is not wrong.
    least = allowed + T.certain * m.error + _take(_lasting_gap(s), m.scale)
    wrong = (off > least) & _take(_neighbours(excludes), m.scale)
    # Where f does not change within |x|, its usual noise may hide the change.
    unmoved = s.constant_up_to >= np.fmin(np.fmax.reduce(s.t, axis=1), s.inner / 2)
    would_show = ~unmoved | (off * s.constant_up_to > T.visible * usual)
    # From scales beyond |x| a claim is wrong only if the difference would show within |x|.
    beyond = _take(np.broadcast_to(s.t, s.slope.shape), m.scale) > s.inner
    would_show &= ~beyond | (off * s.inner / 2 > T.visible * s.noise)
    return np.asarray(wrong & would_show & ~supports.any(axis=1))


def _departure_below(s: Scales, value: NDArray, scale: NDArray) -> NDArray:
    """
    Return the mean difference of the slopes at shorter steps from the value, or 0.

    A kink nearer to x changes them, though noise may hide this at each of them. Their mean,
    weighted by their errors, has to depart from the value by two standard deviations: half of its
    error.
    """
    number = np.arange(s.slope.shape[1])[None, :, None]
    independent = (number >= scale[:, None] + ORDERS) & np.isfinite(s.error) & (s.error > 0)
    least = np.where(independent, s.error, np.inf).min(axis=1)
    weight = np.where(independent, least[:, None] / s.error, 0.0) ** 2
    total = summed(weight)
    mean = summed(np.where(independent, weight * (s.slope - value[:, None]), 0.0)) / total
    return np.where(np.abs(mean) * T.certain > least / np.sqrt(total), np.abs(mean), 0.0)


def _lasting_gap(s: Scales) -> NDArray:
    """
    Return the least gap of each scale and all shorter ones.

    The gap of a smooth f falls from scale to scale, down to its noise. Else f may have a kink
    nearer to x than its noise shows.
    """
    gap = np.where(np.isfinite(s.gap_error), np.abs(s.gap), np.inf)
    least = np.minimum.accumulate(gap[:, ::-1], axis=1)[:, ::-1]
    return np.where(np.isfinite(least), least, 0.0)


def _is_one_sided(s: Scales, m: Estimates, claim: Claim) -> tuple[NDArray, NDArray]:
    """Return True for claims between the slopes of a kink at x, and of a kink near x."""
    value, allowed, _, resolution = claim
    limit = m.gap * (1 + resolution) + m.gap_error + _take(s.error, m.scale)
    at_kink = (m.gap > allowed) & (np.abs(value - m.value) <= limit + allowed)
    away = np.abs(value - _take(s.slope, m.kink)) - _take(np.abs(s.gap) + s.gap_error, m.kink)
    near_kink, _ = opinions(away, _take(s.error, m.kink), allowed, np.inf)
    return at_kink, (m.kink >= 0) & near_kink


def _is_invisible(s: Scales, m: Estimates, claim: Claim) -> tuple[NDArray, NDArray]:
    """
    Return True for claims whose change of f rounding hides, and for negligible differences.

    The first are those where f is constant or nothing but noise. The second are negligible compared
    with an entry of natural size, or with the changes of f within |x|.
    """
    value, _, natural, resolution = claim
    change = _hidden_change(s)
    constant = (s.constant_up_to >= T.constant * s.inner) & (change > T.noisy * s.rounding)
    constant &= change > T.noisy * np.fmin(s.spacing, s.noise)  # else rounding of terms may hide it
    constant &= np.abs(value) * np.fmax.reduce(s.t, axis=1) <= s.rounding
    noise = T.visible * s.noise
    # Samples at a few steps may be equal by chance.
    by_chance = (s.t <= s.constant_up_to[:, None]).sum(axis=1) < T.in_a_row
    only_noise = _is_blank(s) & (by_chance | (s.constant_up_to < T.constant * s.inner))
    only_noise &= ~m.endless | (s.change <= noise)
    # Scales that show only noise do not show that slopes converge slowly.
    error = np.where(np.isinf(m.error), _take(s.error, m.scale), m.error)
    only_noise &= np.isfinite(error) & (np.abs(value - m.value) <= T.certain * error)
    constant |= only_noise & (np.abs(value) * s.inner <= noise)
    slope = np.where(np.abs(s.slope) > T.visible * s.error, np.abs(s.slope), 0.0).max(axis=1)
    within = np.where(s.t <= s.inner[:, None], np.abs(s.even) + np.abs(s.odd), 0.0)
    rise = np.fmax.reduce(within, axis=1) / s.inner
    off = np.abs(value - m.value) + m.error + m.gap
    least, nothing = (T.negligible * resolution * a for a in (natural, np.fmax(slope, rise)))
    return constant, (off <= least) | (np.fmax(off, np.abs(value)) <= nothing)


def _is_blank(s: Scales) -> NDArray:
    """Return True for outputs that are nothing but noise at all scales."""
    most = T.certain * s.error
    change = np.fmax(np.abs(s.odd), np.abs(s.even) / 2)  # the even part is noisier by sqrt(3)
    level = (np.abs(s.slope) <= most) & (change <= most * s.span)
    return np.asarray((level | np.isinf(s.error)).all(axis=1))


def _hidden_change(s: Scales) -> NDArray:
    """Return the change that rounding hides where f is constant; inf if f never changes."""
    change = np.abs(s.even) + np.abs(s.odd)
    slopes = np.where((s.t > s.constant_up_to[:, None]) & (change > 0), change / s.t, np.nan)
    shortest = (~np.isnan(slopes[:, ::-1])).argmax(axis=1)
    first = _take(slopes, slopes.shape[1] - 1 - shortest) * s.constant_up_to
    return np.where(np.isnan(first), np.inf, first)


def with_noise(s: Scales, m: Estimates, noise: NDArray) -> tuple[Scales, Estimates]:
    """Return scales and estimates in which constant outputs have the noise they have elsewhere."""
    constant = (s.change == 0) & (noise > 0) & np.isfinite(noise)
    with np.errstate(all="ignore"):
        factor = np.where(constant, np.fmax(noise, s.rounding) / s.noise, 1.0)
        every = factor[:, None]
        errors = {"error": s.error * every, "gap_error": s.gap_error * every}
        of_value = {"error": m.error * factor, "gap_error": m.gap_error * factor}
    return replace(s, noise=s.noise * factor, **errors), replace(m, **of_value)
