"""
Measure a derivative at many scales: steps, slopes with error bars, and the noise of f.

f is sampled at x + t and x - t, for t from half the size of x down to spacings of x, each about
half of the one before. Up to three consecutive samples make a scale. There the slope is
extrapolated to t = 0 (Romberg; Ridders, Adv. Eng. Software 4, 1982). Its error has two sources:
truncation, by comparison with the next shorter scale, and noise, which is as large at every scale.
Nothing is decided here; see `agreement`.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .._core.dtypes import least_normal
from .._core.protocols import NDArray
from .thresholds import THRESHOLDS as T

# Steps as multiples of a length: halves, times factors without a common ratio, so that the
# roundings of a quantised f differ from step to step.
_JITTER = np.sqrt([1.0, 0.93, 1.08, 0.89, 1.04, 0.96, 1.11, 0.91, 1.02, 0.87, 1.06, 0.98, 1.09])
# Steps from half the size of x to a few spacings of it, and from 1 to that size if it is less.
INNER, OUTER, FARTHER = 44, 12, 8
MAX_SAMPLES = INNER + OUTER + FARTHER
FRACTIONS = 0.5 ** np.arange(1, INNER + 1) * np.resize(_JITTER, INNER)
_LARGEST = 2.0**300  # values of f whose squares do not overflow
ORDERS = 3  # samples of a scale; a slope is extrapolated from one, two or three of them
# Samples of the first pass, by which most columns are decided: below |x|, and far below it.
N_PROBES = 3
FIRST_PASS = np.array([1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32])
_SINGLE_EPS = 2.0**-23  # noise relative to f up to which it is that of a format
_D_NOISE, _E_NOISE = 0.5**0.5, 1.5**0.5  # standard deviations of both parts, in that of f


@dataclass(frozen=True)
class Scales:
    """
    Slopes of outputs at all scales of a direction, the longest first.

    Arrays have the shape (directions, scales, outputs), or without scales (directions, outputs).

    Attributes
    ----------
    t : ndarray, (directions, scales, 1)
        The longest step of each scale; NaN where there is none.
    span : ndarray, (directions, scales, 1)
        The factor of the slope in the change of f: t, or its square for second derivatives.
    slope, error : ndarray
        The mean of both one-sided slopes, and its error; inf where f is not finite.
    gap, gap_error : ndarray
        Half the difference of the one-sided slopes; not 0 at a kink.
    even, odd : ndarray
        The parts of f at the longest step: (f(x + t) + f(x - t))/2 - f(x), (f(x + t) - f(x - t))/2.
        Of second differences, the even part is 0.
    step_change : ndarray
        The change of f at the longest step of each scale, the larger one of both sides.
    noise : ndarray
        The standard deviation of the noise of f.
    relative_noise : ndarray
        The noise in spacings of the largest output, or of the changes of f within the size of x if
        these are larger: outputs that are computed together have terms of about that size, which
        may cancel.
    constant_up_to : ndarray
        The longest step up to which f does not change; 0 if it changes at the shortest.
    change : ndarray
        The largest change of f at any step.
    inner : ndarray, (directions, 1)
        The size of x, in units of t: the scale on which f is expected to vary.
    rounding : ndarray
        The spacing of f(x).
    spacing : ndarray
        The spacing of the largest output, or of 1 if that is less: terms that cancel may be as
        large.
    lost : ndarray of bool, (directions, scales, outputs)
        True if f is nothing but noise at shorter steps, which may hide a variation.
    broken : ndarray of bool
        True if f jumps at x, or is finite on one side of x only, or next to x but not at x.
    """

    t: NDArray
    span: NDArray
    slope: NDArray
    error: NDArray
    gap: NDArray
    gap_error: NDArray
    even: NDArray
    odd: NDArray
    step_change: NDArray
    noise: NDArray
    relative_noise: NDArray
    constant_up_to: NDArray
    change: NDArray
    inner: NDArray
    rounding: NDArray
    spacing: NDArray
    lost: NDArray
    broken: NDArray

    @property
    def noisy(self) -> NDArray:
        """True for more noise than rounding."""
        return self.relative_noise > T.noisy

    def times(self, unit: NDArray) -> "Scales":
        """Return the scales of outputs in other units."""
        return replace(
            self,
            slope=self.slope * unit,
            error=self.error * unit,
            gap=self.gap * unit,
            gap_error=self.gap_error * unit,
            even=self.even * unit,
            odd=self.odd * unit,
            step_change=self.step_change * unit,
            noise=self.noise * unit,
            change=self.change * unit,
            rounding=self.rounding * unit,
        )

    def entries(self, directions: NDArray, outputs: NDArray) -> "Scales":
        """Return the scales of some entries, as the outputs of one direction."""

        def of(a: NDArray) -> NDArray:
            if a.ndim == 2:
                return np.asarray(a[directions, outputs if a.shape[1] > 1 else 0][None])
            return np.asarray(a[directions, :, outputs if a.shape[2] > 1 else 0].T[None])

        return Scales(**{name: of(a) for name, a in vars(self).items()})


class Samples(NamedTuple):
    """
    Values of f along directions, the longest steps first; NaN where there is no sample.

    `t` are the steps, and `width` the distances of the points above and below x, of the shape
    (directions, steps). In one-sided samples, `below` has the values at x itself.
    """

    t: NDArray
    width: NDArray
    above: NDArray
    below: NDArray


class Outputs(NamedTuple):
    """
    The outputs of f at x, and how they are rounded.

    Attributes
    ----------
    base : ndarray, (outputs,)
        f(x).
    eps : float
        The spacing at 1 of the format of f.
    parts : int
        The number of consecutive outputs that are rounded together: 2 for complex numbers.
    power : int
        The power of t by which f was divided: 2 for second differences.
    least : ndarray, (directions or 1, outputs), or None
        A lower bound on the noise of the outputs.
    """

    base: NDArray
    eps: float
    parts: int
    power: int
    least: NDArray | None = None

    @property
    def greatest(self) -> float:
        """The largest output, or 1 if that is more."""
        return float(np.max(np.abs(self.base), initial=1.0, where=np.isfinite(self.base)))

    def some(self, which: NDArray, unit: NDArray) -> "Outputs":
        """Return some of the outputs, in units of theirs."""
        least = None if self.least is None else self.least[:, which] / unit
        return self._replace(base=self.base[which] / unit, least=least)


class _Differences(NamedTuple):
    """
    Differences of f over steps, and what they are divided by.

    The odd part over `span` is the slope `d`, and the even part over t is `e`. Errors of slopes are
    a series in `u`. `change` is the larger change of both sides.
    """

    t: NDArray
    u: NDArray
    span: NDArray
    d: NDArray
    e: NDArray
    change: NDArray
    sided: bool
    power: int


def _shifted(a: NDArray, size: int) -> list[NDArray]:
    """Return the first to the last of consecutive elements of axis 1, an array for each."""
    count = max(0, a.shape[1] - size + 1)
    return [a[:, k : k + count] for k in range(size)]


def summed(a: NDArray) -> NDArray:
    """Return sums along axis 1, in the same order for one output as for several."""
    if a.shape[2] > 1:
        return np.asarray(a.sum(axis=1))
    return np.asarray(np.add.accumulate(a, axis=1)[:, -1])


def lagrange(points: list[NDArray]) -> list[NDArray]:
    """Return the weights that extrapolate polynomials through some points to 0."""
    weights = []
    for k, point in enumerate(points):
        factors = [other / (other - point) for i, other in enumerate(points) if i != k]
        weights.append(math.prod(factors, start=np.ones(point.shape)))
    return weights


def _combined(weights: list[NDArray], values: NDArray) -> NDArray:
    """Return weighted sums of consecutive samples: weights (c, w), values (c, s, m)."""
    total = np.zeros(())
    for k, weight in enumerate(weights):
        total = total + weight[:, :, None] * values[:, k : k + weight.shape[1]]
    return total


def _lever(weights: list[NDArray], span: NDArray, sided: bool = False) -> NDArray:
    """
    Return the standard deviation of weighted sums of differences over spans, per unit noise.

    One-sided differences have the noise of f(x) in common.
    """
    parts = [w / s for w, s in zip(weights, _shifted(span, len(weights)), strict=True)]
    squares = np.asarray(sum(part**2 for part in parts))
    squares = squares + sum(parts) ** 2 if sided else squares * _D_NOISE**2
    return np.asarray(np.sqrt(squares))[:, :, None]


def _truncation(slopes: NDArray, u: NDArray, order: int) -> NDArray:
    """
    Return the error of slopes that are extrapolated from differences with errors in u, u**2, ...

    It is the change to the next shorter scale. As that may be small by chance, it is at least the
    change from the scale before, reduced by its order.
    """
    changes = np.abs(slopes[:, 1:] - slopes[:, :-1])
    changes[~np.isfinite(changes)] = 0.0  # a scale beyond the last sample, or out of f's domain
    first, falls = u[:, 1:] / u[:, :-1], u[:, order:] / u[:, :-order]
    changes /= (1 - first[:, : changes.shape[1]])[:, :, None]
    error = np.zeros(slopes.shape)
    error[:, :-1] = changes
    error[:, 1:] = np.fmax(error[:, 1:], falls[:, :, None] * changes)
    return error


def _steps_between(slopes: NDArray) -> NDArray:
    """Return the difference of each scale from the next shorter one; 0 for the shortest."""
    steps = np.zeros(slopes.shape)
    np.abs(slopes[:, 1:] - slopes[:, :-1], out=steps[:, :-1])
    steps[np.isnan(steps)] = 0.0  # the next one is beyond the last sample
    return steps


def _cut(values: NDArray, like: NDArray) -> NDArray:
    return values[:, : like.shape[1]]


def measure(
    samples: Samples,
    out: Outputs,
    inner: NDArray,
    sided: bool = False,
    few: bool = False,
    greatest: float = 1.0,
    unit: NDArray | float = 1.0,
    pooled: bool = True,
) -> Scales:
    """
    Return slopes, errors and noise at all scales.

    Parameters
    ----------
    samples, out : Samples, Outputs
        Values of f, in units of `unit`.
    inner : ndarray, (directions,)
        The size of x in units of t.
    sided, few : bool
        Whether f was sampled on one side only, and at the steps of the first pass only.
    greatest : float
        The largest output of f, or 1 if that is more.
    unit : ndarray or float
        See `units_of`.
    pooled : bool
        Whether these are all outputs, of whose noise the median is a lower bound; see
        `pooled_noise`.
    """
    base, eps, parts, power, least = out
    t, width, above, below = samples
    step, count = t[:, :, None], t.shape[1] - ORDERS + 1
    with np.errstate(all="ignore"):
        odd = (above - below) * (np.sign(width)[:, :, None] if sided else 0.5)
        even = np.zeros_like(odd) if sided or power > 1 else above / 2 + below / 2 - base
        span = np.abs(width[:, :, None]) * (1.0 if sided else 0.5)
        finite = np.isfinite(odd) & np.isfinite(even) & np.isfinite(step)
        change = np.fmax(np.abs(above - base), np.abs(below - base))
        d, e = odd / span, even / step
        u = t if sided else t * t
        sizes = np.where(finite, np.fmax(np.fmax(np.abs(above), np.abs(below)), np.abs(base)), 0.0)
        differences = _Differences(t, u, span, d, e, change, sided, power)
        near = step <= inner[:, None, None]
        noise, chosen, shorter, lasting = _noise(differences, finite, near, few)
        dead = np.asarray(~chosen.any(axis=1))
        constant_up_to, flat = _constant(change, step, few)
        if flat.any():
            hiding = _hiding_noise(noise, lasting, change, step > constant_up_to[:, None])
            noise = np.where(flat, hiding, noise)
        changes = np.fmax.reduce(np.where(finite, change, 0.0), axis=1)
        size = np.abs(base)
        if dead.any():
            # Where f is defined on one side only, the least change bounds its noise.
            aside = np.where(~finite & (change > 0), change, np.inf).min(axis=1)
            one_sided = dead & np.isfinite(aside)
            noise = np.where(one_sided, np.fmin(aside, _SINGLE_EPS * size), noise)
            changes = np.where(one_sided, aside, changes)
        if parts > 1:  # a part of a complex number is rounded as all of it is
            size = np.repeat(size.reshape(-1, parts).max(axis=-1), parts)
        noise = _floored(noise, dead, size, eps * greatest / unit, parts, pooled)
        sure = noise * T.few_samples if few else noise
        rounding = T.rounding * eps * np.fmax(sizes, least_normal(eps) / unit)
        least = np.zeros((1, len(base))) if least is None else least
        lowest = np.fmax(shorter, least[:, None])
        local = np.fmax(_noise_of_values(sure, sizes, chosen, rounding), lowest)
        slope, error = _slopes(d, u, span[:, :, 0], local, sided)
        gap, gap_error = _gaps(e, t, local)
        largest = np.where(finite & near, change, 0.0).max(axis=1, initial=0)
        terms = np.max(size * unit, initial=0.0, where=np.isfinite(size)) / unit
        relative_noise = np.where(noise > 0, noise / (eps * np.fmax(terms, largest)), 0.0)
        # Where f is nothing but noise, it may vary faster than any step shows.
        shown, least_noise = np.fmax(noise[:, None], shorter), T.noisy * eps * greatest / unit
        lost = (np.fmax(size, changes)[:, None] <= T.visible * shown) & (shown > least_noise)
        lost = _cut(lost & (constant_up_to == 0)[:, None], error)
        error = np.where(lost.all(axis=1, keepdims=True), np.inf, error)
        jump = np.fmax(T.noisy * eps * greatest / unit, T.visible * least)
    return Scales(
        t=step[:, :count],
        span=span[:, :count],
        slope=slope,
        error=error,
        gap=gap,
        gap_error=gap_error,
        even=even[:, :count],
        odd=odd[:, :count],
        step_change=change[:, :count],
        noise=np.fmax(noise, least),
        relative_noise=relative_noise,
        constant_up_to=constant_up_to,
        change=changes,
        inner=inner[:, None],
        rounding=np.broadcast_to(eps * size, noise.shape),
        spacing=np.broadcast_to(eps * greatest / unit, noise.shape),
        lost=lost,
        broken=_broken(step, above, below, base, eps, sided, jump),
    )


def _constant(change: NDArray, step: NDArray, few: bool) -> tuple[NDArray, NDArray]:
    """Return the longest step up to which f does not change, and where there are several such."""
    missing = np.isnan(step)
    unchanged = np.logical_and.accumulate(((change == 0) | missing)[:, ::-1], axis=1)
    longest = np.fmax.reduce(np.where(unchanged[:, ::-1], step, 0.0), axis=1)
    count = (unchanged & ~missing[:, ::-1]).sum(axis=1)
    return np.asarray(longest), np.asarray(count >= (N_PROBES if few else T.in_a_row))


def _hiding_noise(noise: NDArray, lasting: NDArray, change: NDArray, longer: NDArray) -> NDArray:
    """Return the noise where rounding hides all changes but those at `longer` steps."""
    visible = np.where((change > 0) & longer, change, 0.0)
    last = visible.shape[1] - 1 - (visible[:, ::-1] > 0).argmax(axis=1)
    # Rounding hides less than the first visible change. If f adds up several roundings, that change
    # may be much less than others.
    quantum = np.take_along_axis(visible, last[:, None], axis=1)[:, 0]
    most = np.fmax(T.rounding * quantum, lasting)
    return np.asarray(np.fmin(np.fmax(noise, lasting), most))


def _noise_of_values(noise: NDArray, sizes: NDArray, chosen: NDArray, rounding: NDArray) -> NDArray:
    """Return the noise of each sample: larger values are rounded by more."""
    there = np.where(chosen, sizes, 0.0).max(axis=1)
    # If f rounds to float32 inside, the noise is in proportion to its values.
    relative = np.where(chosen.any(axis=1), np.fmin(noise / there, _SINGLE_EPS), 0.0)
    return np.asarray(np.fmax(np.fmax(noise[:, None], rounding), relative[:, None] * sizes))


def _slopes(
    d: NDArray, u: NDArray, span: NDArray, noise: NDArray, sided: bool
) -> tuple[NDArray, NDArray]:
    """Return the slope of each scale and its error, by the order with the least error."""
    count = u.shape[1] - ORDERS + 1
    slope = error = np.empty(0)
    for order in range(1, ORDERS + 1):
        weights = lagrange(_shifted(u, order))
        by_order = _combined(weights, d)
        by_noise = T.multiple * _lever(weights, span, sided) * _cut(noise, by_order)
        unsure = _truncation(by_order, u, order)
        # The change of the first scale may be small by chance, as there is none before it.
        unsure[:, :1] = np.fmax(unsure[:, :1], by_noise[:, 1:2])
        by_order, unsure = _complete(by_order, unsure + by_noise, u, count)
        if order == 1:
            slope, error = by_order, unsure
            continue
        better = unsure < error
        slope, error = np.where(better, by_order, slope), np.where(better, unsure, error)
    return slope, error


def _gaps(e: NDArray, t: NDArray, noise: NDArray) -> tuple[NDArray, NDArray]:
    """Return half the difference of the one-sided slopes at each scale, and its error."""
    weights = lagrange(_shifted(t, 2))
    gap = _combined(weights, e)
    by_noise = T.multiple * _E_NOISE / _D_NOISE * _lever(weights, t) * _cut(noise, gap)
    return _complete(gap, _steps_between(gap) + by_noise, t, t.shape[1] - ORDERS + 1)


def _complete(
    values: NDArray, errors: NDArray, steps: NDArray, count: int
) -> tuple[NDArray, NDArray]:
    """Return the first `count` values with their errors, inf where samples are missing."""
    values, errors = values[:, :count], errors[:, :count]
    errors[~(np.isfinite(values) & np.isfinite(errors))] = np.inf
    errors[np.isnan(steps[:, ORDERS - 1 :])] = np.inf
    return values, errors


def _broken(
    step: NDArray,
    above: NDArray,
    below: NDArray,
    base: NDArray,
    eps: float,
    sided: bool,
    rounding: NDArray,
) -> NDArray:
    """
    Return True where f is not continuous at x, by the shortest steps.

    A jump is larger than the rounding of terms that may cancel.
    """
    taken = np.isfinite(step)
    taken = taken & (np.cumsum(taken[:, ::-1], axis=1)[:, ::-1] <= T.noise_samples)
    count = np.fmax(taken.sum(axis=1), 1)
    finite = [(np.isfinite(values) & taken).sum(axis=1) == count for values in (above, below)]
    none = [~(np.isfinite(values) & taken).any(axis=1) for values in (above, below)]
    here = np.isfinite(base)
    one_sided = (finite[0] & none[1]) | (finite[1] & none[0])
    broken = np.where(here, one_sided & (not sided), one_sided | (finite[0] & finite[1]))
    with np.errstate(all="ignore"):
        limits = [summed(np.where(taken, values, 0.0)) / count for values in (above, below)]
        spread = np.zeros(())
        for values, limit in zip((above, below), limits, strict=True):
            spread = spread + np.where(taken, np.abs(values - limit[:, None]), 0.0).max(axis=1)
        spread = spread + eps * np.fmax(np.abs(limits[0]), np.abs(limits[1]))
        least = np.fmax(T.multiple * spread, rounding)
        above_limit, below_limit = (np.abs(limit - base) > least for limit in limits)
        jumps = np.abs(limits[0] - limits[1]) > np.fmax(T.visible * spread, rounding)
        jumps |= above_limit & below_limit
    return np.asarray(broken | (jumps & (count >= T.noise_samples) & (not sided)))


def with_curvature_gaps(s: Scales, samples: Samples, eps: float) -> Scales:
    """
    Return scales whose gaps are the derivatives of slopes by the step, extrapolated to 0.

    Slopes of a smooth f depend on the square of the step. A jump of the second derivative is four
    times that derivative.
    """
    t, width, above, below = samples
    with np.errstate(all="ignore"):
        span, steps = width / 2, t[:, :-1] - t[:, 1:]
        d = (above - below) / width[:, :, None]
        by_step = (d[:, :-1] - d[:, 1:]) / steps[:, :, None]
        weights = lagrange(_shifted(t[:, :-1] + t[:, 1:], 2))
        gap = _combined(weights, by_step)
        first, last = (w / part for w, part in zip(weights, _shifted(steps, 2), strict=True))
        lever = T.multiple * _lever([first, last - first, -last], span)
        sizes = np.fmax(np.abs(above), np.abs(below))[:, : gap.shape[1]]
        local = np.fmax(s.noise[:, None], T.rounding * np.fmax(eps * sizes, s.rounding[:, None]))
        error = _steps_between(gap) + lever * local
        error[~(np.isfinite(gap) & np.isfinite(error))] = np.inf
        error[t[:, : gap.shape[1]] > s.inner] = np.inf  # a kink beyond |x| is not at x
    return replace(s, gap=gap, gap_error=error)


def units_of(samples: Samples, base: NDArray, parts: int) -> NDArray:
    """
    Return powers of two as units in which values of outputs do not over- or underflow: mostly 1.

    Others are halfway between the largest and the least value.
    """
    if not base.size:
        return np.ones(0)

    def largest(*arrays: NDArray) -> NDArray:
        each = [np.fmax.reduce(a.reshape(-1, base.size), axis=0, initial=-np.inf) for a in arrays]
        return np.asarray(np.fmax.reduce(each))

    values = samples.above, samples.below, base
    top = largest(*map(np.abs, values))
    if not ((top > _LARGEST) | ((top < 1 / _LARGEST) & (top > 0))).any():
        return np.ones(base.size)
    sizes = [np.where(np.isfinite(a) & (a != 0), np.abs(a), np.nan) for a in values]
    exponents = [np.where(np.isnan(a), np.nan, np.frexp(a)[1]) for a in sizes]
    middle = (largest(*exponents) - largest(*(-e for e in exponents))) // 2
    unit = np.exp2(np.clip(np.where(np.isfinite(middle), middle, 0.0), -1000, 1000))
    return np.repeat(unit.reshape(-1, parts).max(axis=-1), parts) if parts > 1 else unit


def _noise(
    differences: _Differences, finite: NDArray, near: NDArray, few: bool
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """
    Return the noise of f, and True for the steps at which it was measured.

    It is the root mean square of the differences from predictions by longer steps. The steps are
    the shortest ones at which f changes, where a smooth f is straight. Steps at which f does not
    change do not count, as rounding may hide changes there.

    The third array is the largest noise at steps shorter than each. It is larger than at the
    shortest ones where these are rounded alike, as exp(x) in exp(x) - 1 - x. The last is the noise
    in several consecutive samples of an f that does not change at the shortest steps.
    """
    t, change = differences.t, differences.change
    step = t[:, :, None]
    changes = (change != 0) & finite
    order = np.cumsum(changes[:, ::-1], axis=1)[:, ::-1]  # 1 at the shortest
    chosen = changes & (order <= (N_PROBES if few else T.noise_samples))
    # The longest steps have no prediction, and count only if there are no others.
    enough = chosen[:, ORDERS:].sum(axis=1) >= N_PROBES
    chosen[:, :ORDERS] &= ~enough[:, None]

    residual = _residuals(differences, chosen)

    def rms(which: NDArray, values: NDArray = residual) -> NDArray:
        squares = summed(np.where(which, values * values, 0.0))
        return np.asarray(np.sqrt(squares / np.fmax(which.sum(axis=1), 1)))

    # Where f is constant at short steps, and changes at longer ones exactly as beyond an edge, by
    # more than in proportion to the step, it is not noisy. If it jumps, rounding hides its changes.
    first, second = (changes & (order == k) for k in (1, 2))
    rise, next_rise = (np.where(k, change / step, 0.0).max(axis=1) for k in (first, second))
    flat = ((change == 0) & finite).sum(axis=1) >= T.noise_samples
    noise = rms(chosen)
    at_edge = np.empty(0)
    if not few or flat.any():
        at_edge = _residuals_at_edge(differences)
        predicted = chosen[:, ORDERS:].sum(axis=1) >= 2
        edge = rms(chosen[:, ORDERS:], np.where(np.isfinite(at_edge), at_edge, np.inf))
        is_edge = flat & (rise < next_rise) & predicted & (edge <= T.negligible * noise)
        noise = np.where(is_edge, edge, noise)
    if few:
        return noise, chosen, np.zeros_like(residual), np.zeros_like(noise)
    unexplained = residual.copy()  # neither by a smooth f nor by an edge
    unexplained[:, ORDERS:] = np.fmin(residual[:, ORDERS:], at_edge)
    unexplained = np.where(changes, unexplained, 0.0)
    # Where f is curved at the longer of these steps, the shorter ones have less noise.
    shortest = chosen & (order <= T.noise_samples // 2)
    less = np.fmin(noise, T.few_samples * rms(shortest))
    noise = np.where(shortest.any(axis=1), less, noise)
    # Longer steps may be longer than features of f.
    near = near & (order <= N_PROBES * T.noise_samples)
    lasting = np.where(flat, _lasting(np.where(near, unexplained, 0.0)), 0.0)
    return noise, chosen, _noise_of_shorter(unexplained, t), lasting


def _residuals(differences: _Differences, chosen: NDArray) -> NDArray:
    """
    Return the differences of samples from predictions by longer steps, in noise of f.

    The first samples have no prediction: there it is the change of f itself.
    """
    t, u, span, d, e, change, *_ = differences
    step, residual = t[:, :, None], change.copy()
    straight = lagrange([points[:, :-1] - u[:, ORDERS:] for points in _shifted(u, ORDERS)])
    predicted = _combined(straight, d)
    r_odd = np.abs(d[:, ORDERS:] - predicted) * span[:, ORDERS:]
    # The even part is proportional to t at a kink, and else to its square.
    smooth = _combined(straight, e / step)
    bent = lagrange([points[:, :-1] - t[:, 2:] for points in _shifted(t, 2)])
    kinked = _combined(bent, e)[:, ORDERS - 2 :]
    r_even = np.abs(e[:, ORDERS:] - smooth * step[:, ORDERS:]) * step[:, ORDERS:]
    r_kinked = np.abs(e[:, ORDERS:] - kinked) * step[:, ORDERS:]
    size, size_kinked = (
        summed(np.where(chosen[:, ORDERS:], each * each, 0.0)) for each in (r_even, r_kinked)
    )
    r_even = np.where((size_kinked < size)[:, None], r_kinked, r_even)
    both = _together(r_odd, r_even, differences)
    residual[:, ORDERS:] = np.where(np.isfinite(both), both, residual[:, ORDERS:])
    return residual


def _residuals_at_edge(differences: _Differences) -> NDArray:
    """
    Return the differences of samples from predictions by longer steps, in noise of f.

    The predictions are those of a function with an edge between x and the shorter of these steps.
    """
    t = differences.t
    weights = lagrange([points[:, :-1] - t[:, ORDERS:] for points in _shifted(t, ORDERS)])
    both = differences.d * differences.span, differences.e * t[:, :, None]
    odd, even = (np.abs(a[:, ORDERS:] - _combined(weights, a)) for a in both)
    return _together(odd, even, differences)


def _together(odd: NDArray, even: NDArray, differences: _Differences) -> NDArray:
    """Return the noise of f that odd and even parts show."""
    by_odd = odd * (_D_NOISE if differences.sided else 1 / _D_NOISE)
    if differences.sided or differences.power > 1:
        return np.asarray(by_odd)
    return np.asarray(np.sqrt((by_odd**2 + (even / _E_NOISE) ** 2) / 2))


def _lasting(residual: NDArray) -> NDArray:
    """
    Return the largest noise that all but one of several consecutive samples have, or 0.

    Residuals of a smooth f shrink with the step, and so do those of oscillations shorter than the
    steps. A feature of f makes large residuals at few steps only.
    """
    rows = _shifted(residual[:, ORDERS:], T.noise_samples)
    if not rows[0].shape[1]:
        return np.zeros(residual[:, 0].shape)
    least, most = np.partition(np.stack(rows), (1, -2), axis=0)[[1, -2]]
    least = np.where(most <= T.visible * least, least, 0.0)
    return np.asarray(T.few_samples * least.max(axis=1, initial=0))


def _noise_of_shorter(residual: NDArray, t: NDArray) -> NDArray:
    """
    Return the largest noise in consecutive samples that are shorter than those of each scale.

    Rounding of x + t grows with t: the noise is multiplied where a step is less than half of the
    next longer one.
    """
    count = T.noise_samples // 2
    squares = np.square(residual[:, ::-1])  # the shortest first
    squares[:, -ORDERS:] = 0.0  # the longest have no prediction
    sums = np.cumsum(squares, axis=1)
    sums[:, count:] -= sums[:, :-count].copy()
    rows = np.maximum.accumulate(np.sqrt(np.fmax(sums, 0.0) / count), axis=1)
    noise = np.zeros_like(residual)
    ratio = np.fmax(t[:, :-ORDERS] / t[:, ORDERS:] / 2.0**ORDERS, 1.0)
    noise[:, :-ORDERS] = rows[:, ::-1][:, ORDERS:] * ratio[:, :, None]
    return noise


def _floored(
    noise: NDArray,
    dead: NDArray,
    size: NDArray,
    least: NDArray | float,
    parts: int,
    pooled: bool,
) -> NDArray:
    """
    Return the noise, at least as large as the noise of the other outputs suggests.

    The noise of an output that does not change is at least `least`.
    """
    if parts > 1:
        pairs = noise.reshape(len(noise), -1, parts)
        noise = np.repeat(pairs.max(axis=-1), parts, axis=-1)
    if pooled:
        noise = np.fmax(noise, _pooled(noise, size))
    return np.where(dead, np.fmax(noise, least), noise)


def _pooled(noise: NDArray, size: NDArray) -> NDArray:
    """
    Return the noise of outputs that the noise of the others suggests, or 0.

    Outputs that are computed together have about the same relative noise, which is the median of
    those that are noisy.
    """
    median = np.zeros(len(noise))
    if noise.shape[1] >= T.pooled_outputs:
        relative = np.where((noise > 0) & (size > 0), noise / size, np.nan)
        shown = np.isfinite(relative).sum(axis=1) >= T.pooled_outputs
        if shown.any():
            median[shown] = np.nanmedian(relative[shown], axis=1)
    return np.asarray(median[:, None] * size)


def pooled_noise(s: Scales, which: NDArray, eps: float) -> NDArray:
    """Return the noise of outputs that the noise of some suggests."""
    with np.errstate(all="ignore"):
        return _pooled(np.where(which, s.noise, 0.0), s.rounding / eps)
