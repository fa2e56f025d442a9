"""
Decide what the scales of a derivative say: its value, error and status, and whether a claim holds.

The derivative is local: a scale counts unless a shorter one contradicts it. The value is that of
the scale with the least error among these. A claim passes if that scale confirms it within the
tolerance. It fails only if scales that can tell it from the value agree that it is wrong, and none
supports it.
"""

from dataclasses import dataclass, replace

import numpy as np

from .._core.protocols import NDArray
from .._kernels.differences import ALIASED, CONVERGED, NOISY, NONFINITE, NONSMOOTH
from .scales import ORDERS, Scales
from .thresholds import THRESHOLDS as T

FAIL, NONSMOOTH_VERDICT, INCONCLUSIVE, PASS = range(4)  # in the order of `VERDICTS`


@dataclass(frozen=True)
class Estimates:
    """
    Derivatives of outputs along directions, by the scales that agree: arrays (directions, outputs).

    Attributes
    ----------
    value, error : ndarray
        At a kink the mean of both slopes, with the error of that mean.
    scale : ndarray of int
        The scale that the value is of.
    contradicted : ndarray
        Scales that a shorter one contradicts, of the shape of `Scales.slope`.
    kink : ndarray of int
        The scale at which a kink near x shows, or -1: one of its slopes there is the value.
    scattered : ndarray of bool
        Whether longer scales agree on another value, and f is not smooth in between: rounding of
        terms that cancel makes such pieces. The error is then the distance of both values.
    gap, gap_error : ndarray
        Half the difference of the slopes on both sides of a kink at x, 0 if there is none.
    endless : ndarray of bool
        Whether slopes grow without end within |x|.
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

    def status(self, s: Scales) -> NDArray:
        """Return the status of each direction: the most severe of its outputs."""
        status = np.where(s.noisy & (s.change > 0), NOISY, CONVERGED)
        status = np.where(self.gap > 0, NONSMOOTH, status)
        status = np.where(self.scattered, ALIASED, status)
        status = np.where(np.isfinite(self.value) & np.isfinite(self.error), status, NONFINITE)
        status = np.where(self.endless, NONSMOOTH, status)
        return np.asarray(np.max(status, axis=-1, initial=CONVERGED))


def _take(a: NDArray, k: NDArray) -> NDArray:
    """Return one scale of each output."""
    directions, outputs = k.shape
    return np.asarray(a[np.arange(directions)[:, None], np.fmax(k, 0), np.arange(outputs)])


def contradicted_scales(slope: NDArray, error: NDArray) -> NDArray:
    """Return True for intervals that do not overlap with that of some shorter scale."""
    low, high = slope - error, slope + error
    low, high = (np.where(np.isfinite(error), x, y) for x, y in ((low, -np.inf), (high, np.inf)))
    lowest, highest = np.full_like(high, np.inf), np.full_like(low, -np.inf)
    lowest[:, :-1] = np.minimum.accumulate(high[:, :0:-1], axis=1)[:, ::-1]
    highest[:, :-1] = np.maximum.accumulate(low[:, :0:-1], axis=1)[:, ::-1]
    return np.asarray((low > lowest) | (high < highest))


def _neighbours(which: NDArray) -> NDArray:
    """Return True where a scale and one next to it are marked."""
    both = which[:, 1:] & which[:, :-1]
    result = np.zeros_like(which)
    result[:, 1:] |= both
    result[:, :-1] |= both
    return result


def estimate(s: Scales, few: bool = False) -> Estimates:
    """Return value and error of each derivative; `few`: by the steps of the first pass only."""
    number = np.arange(s.slope.shape[1])[None, :, None]
    with np.errstate(all="ignore"):
        contradicted = contradicted_scales(s.slope, s.error)
        with_kinks = _with_kinks(s)
        own = np.where(contradicted | s.lost, np.inf, with_kinks)
        within = np.where(s.t <= s.inner[:, None], own, np.inf).argmin(axis=1)
        known = _take(own, within) <= T.known * np.abs(_take(s.slope, within))
        scale = _best(s, own, within, known, with_kinks)
        value, error = _take(s.slope, scale), _take(with_kinks, scale)
        error = np.where(_take(contradicted | s.lost, scale), np.inf, error)
        off = np.abs(s.slope - value[:, None])
        longer = number < scale[:, None]
        others = longer & (off > s.error + _take(s.error, scale)[:, None])
        departure, jumps = _departures(s, value, scale, np.where(others, number, -1).max(axis=1))
        # Beyond a kink near x, one of both slopes is the value.
        gap = np.abs(s.gap)
        kinks = _neighbours(gap > T.kink * s.gap_error) & longer
        kinks &= np.abs(off - gap) <= T.telling * gap + s.error + s.gap_error
        kink = np.where(kinks, number, -1).max(axis=1)
        other_scale, other = _other_slope(s, off, others, 2 if few else T.in_a_row)
        # From a kink on f leaves its line by less than their distance, as it is on it before.
        before = np.concatenate((s.span[:, 1:], np.zeros_like(s.span[:, :1])), axis=1)
        apart = jumps & (departure >= other[:, None] * (s.span - before / 2))
        scattered = apart.any(axis=1) & (kink < 0)
        # Jumps of the size of rounding are rounding: the derivative is the slope across them.
        jump = np.where(apart, departure, 0.0).max(axis=1)
        rounded = scattered & (jump <= T.noisy * s.spacing)
        scale = np.where(rounded, other_scale, scale)
        value = np.where(rounded, _take(s.slope, scale), value)
        error = np.where(rounded, _take(s.error, scale), error)
        # Where none is known across them, f is on the line of one rounding.
        jump = jumps & (departure <= (T.noisy * s.spacing)[:, None])
        lost = np.where(jump, departure / s.span, 0.0).max(axis=1)
        scattered &= ~rounded
        contradicted &= ~rounded[:, None]
        inside = s.t <= s.inner[:, None]
        remainder = _remainder(s, scale, inside)
        everywhere = np.ones_like(inside)
        beyond = 0.0 if known.all() else np.where(known, 0.0, _remainder(s, scale, everywhere))
        for more in _excess(s, value, scale), remainder, beyond, lost:
            error = np.where(rounded, error, np.fmax(error, more))
        endless = np.isinf(remainder) & ~rounded
        error = np.where(scattered, np.fmax(error, other), error)
        kink = np.where(jumps.any(axis=1), kink, -1)
        return Estimates(value, error, scale, contradicted, kink, scattered, *gap_at_x(s), endless)


def _best(
    s: Scales, error: NDArray, within: NDArray, known: NDArray, with_kinks: NDArray
) -> NDArray:
    """
    Return the scale of the least error.

    It is longer than |x|, where f may be a different function, only if the slope is known within
    |x|, or if f is straight there as far as its noise shows, and well known where it is not. It is
    also where f is nothing but noise.
    """
    best = error.argmin(axis=1)
    if known.all():
        return np.asarray(best)
    change = _take(s.moved / s.span, best)
    clear = (_take(s.error, best) <= T.known * change) | (s.change <= T.visible * s.noise)
    straight = (clear & _is_straight(s, best, with_kinks)) | _is_blank(s)
    return np.asarray(np.where(known | straight, best, within))


def _with_kinks(s: Scales) -> NDArray:
    """Return the errors of slopes, beyond |x| with half the difference of both slopes of a kink."""
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
    Return how far f is off its line at each step, and where it jumps from one step to the next.

    Jumps are those between the scale of the value and the shortest one of another slope, `outer`.
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
    return departure, between & (growth > np.fmax(ratio**2, before) ** T.abrupt)


def _other_slope(
    s: Scales, off: NDArray, others: NDArray, in_a_row: int
) -> tuple[NDArray, NDArray]:
    """Return the longer scale on whose slope the next ones agree, and how far it is off, or NaN."""
    tell = others & (s.error < T.telling * off)
    step = np.abs(s.slope[:, 1:] - s.slope[:, :-1]) <= s.error[:, 1:] + s.error[:, :-1]
    # Of a saw tooth, slopes at a few long steps are about 0 by chance.
    agree, count = np.zeros_like(tell), tell.shape[1] - in_a_row + 1
    if count > 0:
        linked = tell[:, 1:] & tell[:, :-1] & step
        agree[:, :count] = np.all([linked[:, k : k + count] for k in range(in_a_row - 1)], axis=0)
    scale = np.where(agree, s.error, np.inf).argmin(axis=1)
    return scale, np.where(agree.any(axis=1), _take(off, scale), np.nan)


def _excess(s: Scales, value: NDArray, scale: NDArray) -> NDArray:
    """
    Return the largest slope by which f departs from its line at steps shorter than a scale, or 0.

    Of a smooth f departures shrink at least as the steps do, down to the noise. Where they do not,
    f has structure that longer steps jump over.
    """
    number = np.arange(s.slope.shape[1])[None, :, None] - scale[:, None]
    relative = np.abs(s.odd / s.span - value[:, None])
    own = (number >= 0) & (number < ORDERS)  # the samples that the slope is extrapolated from
    expected = np.where(own, relative, 0.0).max(axis=1)[:, None]
    relative = relative - T.visible * np.fmax(s.noise, s.rounding)[:, None] / s.span
    more = (number >= ORDERS) & (relative > T.kink * expected)
    return np.asarray(np.where(more, relative, 0.0).max(axis=1))


def _remainder(s: Scales, scale: NDArray, looked: NDArray) -> NDArray:
    """
    Return how far one-sided slopes may still change at steps shorter than a scale, or 0.

    The errors of differences of a smooth f fall as a power of the step that is at least 1. Those of
    ``|x|**p`` fall as the power p - 1. Where the power is less than `T.smooth` at all scales from a
    few longer ones to the noise, the remaining changes are a geometric series, and infinite if it
    is 0 or less. Only the scales `looked` at count: beyond |x| f may be a different function.
    """
    count = scale.shape[1]
    # Outputs to the left, then to the right.
    t, span, looked = (np.tile(a, 2) if a.shape[2] > 1 else a for a in (s.t, s.span, looked))
    slopes = np.concatenate((s.odd - s.even, s.odd + s.even), axis=2) / span
    noise = np.tile(np.fmax(s.noise, s.rounding), 2)
    change, hidden = (
        np.abs(slopes[:, 1:] - slopes[:, :-1]),
        T.visible * noise[:, None] / span[:, 1:],
    )
    t, halvings = t[:, :-1], np.log2(t[:, :-1] / t[:, 1:])
    rate = np.fmax(change, hidden) / halvings  # noise may hide that slopes still change
    power = np.log2(rate[:, :-1] / rate[:, 1:]) / halvings[:, :-1]
    scale = np.tile(scale, 2)
    number = np.arange(rate.shape[1])[None, :, None] - scale[:, None]
    looked = looked[:, :-1] & (number >= -2 * T.in_a_row)
    seen = looked & (change > hidden)
    persistent = ((power < T.smooth) | ~looked[:, :-1] | np.isnan(power)).all(axis=1)
    persistent &= (seen[:, 1:] & seen[:, :-1]).sum(axis=1) >= T.in_a_row
    if not persistent.any():
        return np.zeros((len(scale), count))
    first, last = seen.argmax(axis=1), seen.shape[1] - 1 - seen[:, ::-1].argmax(axis=1)
    middle, steps = (first + last) // 2, np.broadcast_to(t, rate.shape)

    def power_between(k: NDArray, n: NDArray) -> tuple[NDArray, NDArray]:
        fall, halved = (np.log(_take(a, k) / _take(a, n)) for a in (rate, steps))
        return fall / halved, T.multiple / T.visible * _take(hidden / change, n) / halved

    # Where powers add up, the least one wins at short steps; a smooth f comes to converge there.
    longer, _ = power_between(first, middle)
    exponent, unsure = power_between(middle, last)
    persistent &= exponent <= longer + T.telling
    # Where f is constant on one side, but not up to x, slopes there grow as 1/t.
    two_sided = _take(np.tile(s.even != 0, 2), last)
    persistent &= (exponent > unsure - 1) | ~two_sided
    total = _take(change, np.fmin(scale, change.shape[1] - 1)) / (1 - 2.0**-exponent)
    total = np.where(persistent, np.where(exponent > unsure, total, np.inf), 0.0)
    return np.asarray(np.fmax(total[:, :count], total[:, count:]))


def gap_at_x(s: Scales) -> tuple[NDArray, NDArray]:
    """Return half the jump of the slope at x, or 0, and its error."""
    contradicted = contradicted_scales(s.gap, s.gap_error)
    error = np.where(contradicted, np.inf, s.gap_error)
    best = error.argmin(axis=1)
    jumps = _neighbours(np.abs(s.gap) > T.kink * s.gap_error)
    error = _take(error, best)
    found = _take(jumps, best) & np.isfinite(error)
    return np.where(found, np.abs(_take(s.gap, best)), 0.0), np.where(found, error, 0.0)


def judge(
    s: Scales,
    m: Estimates,
    claim: NDArray,
    allowed: NDArray,
    natural: NDArray,
    resolution: float,
    usual: NDArray,
) -> tuple[NDArray, NDArray]:
    """
    Return the verdicts of claims, and which pass only because noise hides them.

    `allowed` is the tolerance of each, `natural` the size of an entry that changes f by its own
    size over the size of x, and `resolution` the relative tolerance. `usual` is the noise of each
    output where all inputs change, by which those are judged that do not change here; inf if they
    change nowhere. All arrays have the shape (directions, outputs).
    """
    with np.errstate(all="ignore"):
        off = np.abs(claim - m.value)
        passes = (off <= allowed + m.error) & (m.error <= allowed)
        passes |= (off <= allowed) & (m.error <= T.resolving * allowed)
        fails = _is_refuted(s, m, claim, allowed, usual)
        constant, negligible = _is_invisible(s, m, claim, natural, resolution)
        negligible &= off <= allowed + T.certain * m.error  # what is resolved is not hidden
        known = np.isfinite(m.value) & np.isfinite(m.error)
        passes, negligible = passes & known, negligible & known
        hidden = (constant | negligible) & ~passes & ~fails
        at_kink, near_kink = _is_one_sided(s, m, claim, allowed, resolution)
        verdict = np.full(claim.shape, INCONCLUSIVE, np.int8)
        verdict[(passes & (m.gap <= allowed)) | hidden] = PASS
        verdict[fails & ~at_kink & ~constant] = FAIL
        verdict[at_kink & ~hidden] = NONSMOOTH_VERDICT
        verdict[(verdict == INCONCLUSIVE) & near_kink] = NONSMOOTH_VERDICT
        verdict[m.endless & (verdict == INCONCLUSIVE)] = NONSMOOTH_VERDICT
        verdict[s.broken & (verdict != PASS)] = NONSMOOTH_VERDICT
        verdict[~np.isfinite(claim) & known & ~s.broken] = FAIL
    # A claim of exactly the value is confirmed, however small it is.
    return verdict, hidden & (constant | (off > 0))


def opinions(
    away: NDArray, error: NDArray, allowed: NDArray, off: NDArray | float
) -> tuple[NDArray, NDArray]:
    """
    Return which slopes support a claim that they are `away` from, and which exclude it.

    The value is `off` by so much: a slope that cannot tell it from the claim supports none.
    """
    supports = (away <= allowed + error) & (error <= np.fmax(allowed, T.telling * off))
    return supports, away > allowed + T.certain * error


def _is_refuted(
    s: Scales, m: Estimates, claim: NDArray, allowed: NDArray, usual: NDArray
) -> NDArray:
    """Return which claims the value and a scale next to it exclude, and no scale supports."""
    off, limit = np.abs(claim - m.value), allowed[:, None]
    away = np.abs(claim[:, None] - s.slope)
    supports, excludes = opinions(away, s.error, limit, off[:, None])
    # Beyond |x| f may be another function: what shorter scales contradict there is no support.
    supports &= ~(m.contradicted & (s.t > s.inner[:, None]))
    excludes &= ~(m.contradicted | s.lost) & np.isfinite(s.error)
    wrong = (off > allowed + T.certain * m.error) & _take(_neighbours(excludes), m.scale)
    # Where f does not change within |x|, the noise that it has elsewhere may hide the change.
    unmoved = s.still >= np.fmin(np.fmax.reduce(s.t, axis=1), s.inner / 2)
    would_show = ~unmoved | (off * s.still > T.visible * usual)
    # Beyond |x| f may be a different function: only what would show within is wrong.
    beyond = _take(np.broadcast_to(s.t, s.slope.shape), m.scale) > s.inner
    would_show &= ~beyond | (off * s.inner / 2 > T.visible * s.noise)
    return np.asarray(wrong & would_show & ~supports.any(axis=1))


def _is_one_sided(
    s: Scales, m: Estimates, claim: NDArray, allowed: NDArray, resolution: float
) -> tuple[NDArray, NDArray]:
    """Return which claims are between both slopes of a kink: of one at x, and of one near x."""
    reach = m.gap * (1 + resolution) + m.gap_error + _take(s.error, m.scale)
    at_kink = (m.gap > allowed) & (np.abs(claim - m.value) <= reach + allowed)
    away = np.abs(claim - _take(s.slope, m.kink)) - _take(np.abs(s.gap) + s.gap_error, m.kink)
    near_kink, _ = opinions(away, _take(s.error, m.kink), allowed, np.inf)
    return at_kink, (m.kink >= 0) & near_kink


def _is_invisible(
    s: Scales, m: Estimates, claim: NDArray, natural: NDArray, resolution: float
) -> tuple[NDArray, NDArray]:
    """
    Return which claims change f by less than its noise, and which differ by nothing that counts.

    The former where f is constant; the latter compared with an entry of natural size, and claims of
    next to nothing with what f changes by within |x|.
    """
    change = _hidden_change(s)
    constant = (s.still >= T.constant * s.inner) & (change > T.noisy * s.rounding)
    constant &= change > T.noisy * np.fmin(s.spacing, s.noise)  # or terms of 1 may hide it
    constant &= np.abs(claim) * np.fmax.reduce(s.t, axis=1) <= s.rounding
    noise = T.visible * s.noise
    moves = (s.t <= s.still[:, None]).sum(axis=1) < T.in_a_row  # a few steps may not by chance
    only_noise = _is_blank(s) & (moves | (s.still < T.constant * s.inner))
    only_noise &= ~m.endless | (s.change <= noise)
    # Where no scale shows anything of f, none shows that its slopes converge slowly.
    error = np.where(np.isinf(m.error), _take(s.error, m.scale), m.error)
    only_noise &= np.isfinite(error) & (np.abs(claim - m.value) <= T.certain * error)
    constant |= only_noise & (np.abs(claim) * s.inner <= noise)
    slope = np.where(np.abs(s.slope) > T.visible * s.error, np.abs(s.slope), 0.0).max(axis=1)
    within = np.where(s.t <= s.inner[:, None], np.abs(s.even) + np.abs(s.odd), 0.0)
    rise = np.fmax.reduce(within, axis=1) / s.inner
    off = np.abs(claim - m.value) + m.error + m.gap
    least, nothing = (T.negligible * resolution * a for a in (natural, np.fmax(slope, rise)))
    return constant, (off <= least) | (np.fmax(off, np.abs(claim)) <= nothing)


def _is_blank(s: Scales) -> NDArray:
    """Return True for outputs of which no scale shows more than noise."""
    most = T.certain * s.error
    change = np.fmax(np.abs(s.odd), np.abs(s.even) / 2)  # the even part is noisier by sqrt(3)
    level = (np.abs(s.slope) <= most) & (change <= most * s.span)
    return np.asarray((level | np.isinf(s.error)).all(axis=1))


def _hidden_change(s: Scales) -> NDArray:
    """Return what rounding may hide where f does not change, if it is linear; inf if nothing."""
    change = np.abs(s.even) + np.abs(s.odd)
    slopes = np.where((s.t > s.still[:, None]) & (change > 0), change / s.t, np.nan)
    shortest = (~np.isnan(slopes[:, ::-1])).argmax(axis=1)
    first = _take(slopes, slopes.shape[1] - 1 - shortest) * s.still
    return np.where(np.isnan(first), np.inf, first)


def with_noise(s: Scales, m: Estimates, noise: NDArray) -> tuple[Scales, Estimates]:
    """Return records of outputs that do not change, with the noise that they have elsewhere."""
    known = (s.change == 0) & (noise > 0) & np.isfinite(noise)
    with np.errstate(all="ignore"):
        factor = np.where(known, np.fmax(noise, s.rounding) / s.noise, 1.0)
        every = factor[:, None]
        errors = {"error": s.error * every, "gap_error": s.gap_error * every}
        of_value = {"error": m.error * factor, "gap_error": m.gap_error * factor}
    return replace(s, noise=s.noise * factor, **errors), replace(m, **of_value)
