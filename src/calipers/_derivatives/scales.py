"""
Measure a derivative at many scales: steps, slopes with error bars, and the noise of f.

f is sampled at x + t and x - t, for t from half the size of x down to spacings of x, each about half
of the one before. Three consecutive samples make a scale. At each scale the slope is extrapolated to
t = 0 (Romberg; Ridders, Adv. Eng. Software 4, 1982), with an error from two sources: truncation, by
comparison with the next shorter scale, and noise, which has the same size at every scale. Nothing is
decided here; see `agreement`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._core.protocols import NDArray
from .thresholds import THRESHOLDS as T

# Steps as multiples of a length: halves, times factors without a common ratio, so that the
# roundings of a quantised f differ from step to step.
_JITTER = np.sqrt([1.0, 0.93, 1.08, 0.89, 1.04, 0.96, 1.11, 0.91, 1.02, 0.87, 1.06, 0.98, 1.09])
# Steps from half the size of x to a few spacings of it, and from 1 to that size if it is less.
INNER, OUTER = 50, 16
MAX_SAMPLES = INNER + OUTER
FRACTIONS = 0.5 ** np.arange(1, INNER + 1) * np.resize(_JITTER, INNER)
ORDERS = 3  # samples of a scale; a slope is extrapolated from one, two or three of them
# Samples of the first pass, by which most columns are decided: below |x|, and far below it.
N_PROBES = 3
FIRST_PASS = np.array([1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32])
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
    slope, error : ndarray
        The mean of both one-sided slopes, and its error; inf where f is not finite.
    gap, gap_error : ndarray
        Half the difference of the one-sided slopes; not 0 at a kink.
    departure : ndarray
        The even part of f and its odd part, at the longest step, as a pair of arrays.
    noise : ndarray
        The standard deviation of the noise of f.
    still : ndarray
        The longest step up to which f does not change; 0 if it changes at the shortest.
    change : ndarray
        The largest change of f at any step.
    inner : ndarray, (directions, 1)
        The size of x, in units of t: the scale on which f is expected to vary.
    rounding : ndarray
        The spacing of f(x).
    """

    t: NDArray
    slope: NDArray
    error: NDArray
    gap: NDArray
    gap_error: NDArray
    departure: tuple[NDArray, NDArray]
    noise: NDArray
    still: NDArray
    change: NDArray
    inner: NDArray
    rounding: NDArray

    def entries(self, directions: NDArray, outputs: NDArray) -> "Scales":
        """Return the scales of some entries, as the outputs of one direction."""

        def of(a: NDArray) -> NDArray:
            if a.ndim == 2:
                return a[directions, outputs if a.shape[1] > 1 else 0][None]
            return a[directions, :, outputs if a.shape[2] > 1 else 0].T[None]

        arrays = {
            name: tuple(map(of, a)) if isinstance(a, tuple) else of(a)
            for name, a in vars(self).items()
        }
        return Scales(**arrays)


class Samples(NamedTuple):
    """
    Values of f along directions, the longest steps first; NaN where there is no sample.

    `t` are the steps and `width` the distances of the points above and below, of the shape
    (directions, steps). Below are the values at x itself if `one_sided`.
    """

    t: NDArray
    width: NDArray
    above: NDArray
    below: NDArray


def lagrange(u: NDArray) -> NDArray:
    """Return the weights that extrapolate polynomials through points u, on the last axis, to 0."""
    weights = np.ones(u.shape)
    for k in range(u.shape[-1]):
        for other in range(u.shape[-1]):
            if other != k:
                weights[..., k] *= u[..., other] / (u[..., other] - u[..., k])
    return weights


def _windows(a: NDArray, size: int) -> NDArray:
    """Return consecutive elements of axis 1, on a new last axis."""
    return np.lib.stride_tricks.sliding_window_view(a, size, axis=1)


def _combined(weights: NDArray, values: NDArray) -> NDArray:
    """Return the weighted sums of consecutive samples: (c, w, p) with (c, s, m) -> (c, w, m)."""
    count = weights.shape[1]
    return sum(weights[:, :, k, None] * values[:, k : k + count] for k in range(weights.shape[-1]))  # type: ignore[return-value]  # not the 0 of an empty sum


def _steps_between(slopes: NDArray) -> NDArray:
    """Return the difference of each scale from the next shorter one; 0 for the shortest."""
    steps = np.zeros(slopes.shape)
    np.abs(slopes[:, 1:] - slopes[:, :-1], out=steps[:, :-1])
    return np.where(np.isnan(steps), 0.0, steps)


def measure(
    samples: Samples,
    base: NDArray,
    eps: float,
    inner: NDArray,
    parts: int = 1,
    sided: bool = False,
    few: bool = False,
    power: int = 1,
    largest: float = 1.0,
) -> Scales:
    """
    Return slopes, errors and noise at all scales.

    `eps` is the spacing of the format of f at 1, and `parts` the number of consecutive outputs that
    are rounded together. If `sided`, f was sampled on one side only. `few`: only the first pass.
    `largest` is the largest output that f has, or 1 if that is more.
    """
    t, width, above, below = samples
    step = t[:, :, None]
    with np.errstate(all="ignore"):
        odd = (above - below) * (1.0 if sided else 0.5)
        even = np.zeros_like(odd) if sided or power > 1 else above / 2 + below / 2 - base
        span = width[:, :, None] * (1.0 if sided else 0.5)
        finite = np.isfinite(odd) & np.isfinite(even) & np.isfinite(step)
        change = np.fmax(np.abs(above - base), np.abs(below - base))
        d, e = odd / span, even / step
        u = t if sided else t * t
        noise, dead = _noise(t, span, d, e, u, change, finite, few)
        sizes = np.where(finite, np.fmax(np.fmax(np.abs(above), np.abs(below)), np.abs(base)), 0.0)
        noise = _floored(noise, dead, base, eps * largest, parts)
        tiny = np.finfo(np.float64 if eps < T.coarse_eps else np.float32).tiny
        local = np.fmax(noise[:, None], T.rounding * eps * np.fmax(sizes, tiny))
        count = t.shape[1] - ORDERS + 1
        slope = error = np.empty(0)
        for order in range(1, ORDERS + 1):
            weights = lagrange(_windows(u, order))
            by_order = _combined(weights, d)
            lever = np.sqrt(((weights / _windows(span[:, :, 0], order)) ** 2).sum(-1)) * _D_NOISE
            unsure = T.multiple * lever[:, :, None] * local[:, : by_order.shape[1]]
            unsure = (T.truncation * _steps_between(by_order) + unsure)[:, :count]
            by_order = by_order[:, :count]
            known = _windows(finite, order).all(-1)[:, :count] & np.isfinite(by_order)
            unsure = np.where(known, unsure, np.inf)
            better = unsure < error if order > 1 else np.ones(unsure.shape, bool)
            slope = np.where(better, by_order, slope) if order > 1 else by_order
            error = np.where(better, unsure, error) if order > 1 else unsure
        weights = lagrange(_windows(t, 2))
        gap = _combined(weights, e)
        lever = np.sqrt(((weights / _windows(t, 2)) ** 2).sum(-1)) * _E_NOISE
        gap_error = T.multiple * lever[:, :, None] * local[:, : gap.shape[1]]
        gap_error = _steps_between(gap) + gap_error
        known = _windows(finite, 2).all(-1) & np.isfinite(gap)
        gap_error = np.where(known, gap_error, np.inf)[:, :count]
        unmoved = ((change == 0) | np.isnan(step))[:, ::-1]
        still = np.where(np.logical_and.accumulate(unmoved, axis=1)[:, ::-1], step, 0.0)
    return Scales(
        step[:, :count],
        slope,
        error,
        gap[:, :count],
        gap_error,
        (even[:, : count + 1], odd[:, : count + 1]),
        noise,
        np.fmax.reduce(still, axis=1),
        np.fmax.reduce(np.where(finite, change, 0.0), axis=1),
        inner[:, None],
        np.broadcast_to(eps * np.abs(base), noise.shape),
    )


def _noise(
    t: NDArray,
    span: NDArray,
    d: NDArray,
    e: NDArray,
    u: NDArray,
    change: NDArray,
    finite: NDArray,
    few: bool,
) -> tuple[NDArray, NDArray]:
    """
    Return the noise of f, and where it is unknown because f does not change.

    It is what the longer steps do not predict at the shortest ones at which f changes, where a
    smooth f is straight. Steps at which f does not change say nothing: its rounding may hide them.
    """
    step = t[:, :, None]
    residual = change.copy()  # of the longest steps nothing is predicted
    straight = lagrange(_windows(u, ORDERS)[:, :-1] - u[:, ORDERS:, None])
    predicted = _combined(straight, d)
    r_odd = (d[:, ORDERS:] - predicted) * span[:, ORDERS:] / _D_NOISE
    # The even part over t has a term in 1/t only at a kink.
    smooth = _combined(straight, e / step)
    bent = _combined(lagrange(_windows(t, 2)[:, :-1] - t[:, 2:, None]), e)[:, ORDERS - 2 :]
    r_even = np.fmin(
        np.abs(e[:, ORDERS:] - smooth * step[:, ORDERS:]), np.abs(e[:, ORDERS:] - bent)
    )
    r_even *= step[:, ORDERS:] / _E_NOISE
    both = np.sqrt((r_odd**2 + r_even**2) / 2)
    residual[:, ORDERS:] = np.where(np.isfinite(both), both, residual[:, ORDERS:])
    changes = (change != 0) & finite
    order = np.cumsum(changes[:, ::-1], axis=1)[:, ::-1]  # 1 at the shortest
    chosen = changes & (order <= (N_PROBES if few else T.noise_samples))
    count = chosen.sum(axis=1)
    squares = np.where(chosen, residual * residual, 0.0).sum(axis=1)
    return np.sqrt(squares / np.fmax(count, 1)), count == 0


def _floored(noise: NDArray, dead: NDArray, base: NDArray, least: float, parts: int) -> NDArray:
    """
    Return the noise with what the other outputs tell of it.

    Outputs that are computed together have about the same relative noise, the median of those that
    show any. The noise of an output that does not change is at least the spacing of 1 and of the
    largest output.
    """
    size = np.abs(base)
    if parts > 1:
        pairs = noise.reshape(len(noise), -1, parts)
        noise = np.repeat(pairs.max(axis=-1), parts, axis=-1)
        size = np.repeat(size.reshape(-1, parts).max(axis=-1), parts)
    if noise.shape[1] >= T.pooled_outputs:
        relative = np.where((noise > 0) & (size > 0), noise / size, np.nan)
        shown = np.isfinite(relative).sum(axis=1) >= T.pooled_outputs
        if shown.any():
            median = np.zeros(len(noise))
            median[shown] = np.nanmedian(relative[shown], axis=1)
            noise = np.fmax(noise, median[:, None] * size)
    return np.where(dead, np.fmax(noise, least), noise)
