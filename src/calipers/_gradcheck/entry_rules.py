"""Rules by which an entry of a derivative is right, wrong or undecided."""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .._core.protocols import NDArray
from .._kernels.ladder_extrapolate import COARSE

# The order is that of weight: the verdict of a check is the first that any entry has.
FAIL, NONSMOOTH, INCONCLUSIVE, PASS = VERDICTS = ("FAIL", "NONSMOOTH", "INCONCLUSIVE", "PASS")


# What an error is relative to, unless the caller says: far above what differences can resolve.
_RESOLUTIONS = {4: 5e-3, 8: 1e-6}


def default_resolution(eps: float) -> float:
    """Return the relative error that counts as one, for numbers of a spacing."""
    return _RESOLUTIONS[4 if eps > COARSE else 8]


def least_normal(eps: float) -> float:
    """Return the smallest normal number; the spacing of smaller ones is the same."""
    return float(np.finfo(np.float32 if eps > COARSE else np.float64).tiny)


def rounding_of(sizes: NDArray, eps: float) -> NDArray:
    """Return what numbers with a spacing are rounded by; subnormal ones as the least normal one."""
    return np.asarray(eps * np.maximum(sizes, least_normal(eps)))


def few_roundings(eps: float) -> float:
    """Return what rounding of numbers of size 1 may leave, where they cancel."""
    return min(_INSIDE * eps, _LITTLE)


def rounded_away(analytic: NDArray, largest: NDArray, eps: float) -> NDArray:
    """Return True for entries within rounding of the largest one."""
    return np.asarray(np.abs(analytic) <= _ROUNDINGS * rounding_of(largest, eps))


def all_agree(one: NDArray, other: NDArray, allowed: NDArray | float) -> bool:
    """Return True if all pairs are within a tolerance, equal, or both NaN."""
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= allowed
    return bool(np.all(near | (one == other) | (np.isnan(one) & np.isnan(other))))


SURE = 8  # error estimates within which a derivative agrees with the numerical value
NEGLIGIBLE = 2.0**-7  # of the tolerance at natural size, below which a number is negligible
_ROUNDINGS = 8.0  # of the largest entry, that a derivative computed by others may have
_INSIDE = 1024.0  # unit roundoffs that cancelling numbers of size 1 may leave
_LITTLE = 2.0**-10  # which so many are no longer, in formats of few bits
_JITTER = 64.0  # error estimates that noise may add to the tolerance at most
_ROUGH = 0.005  # of the value, from which on an error is as random as noise
_BY_CHANCE = 64.0  # times that an error may be too small by chance
_SUPPORT_RATIO = 0.1  # share of the difference within which a plain slope confirms the derivative
_NEAR = 0.25  # the same share for slopes by very short steps
_IN_A_ROW = 3  # consecutive step sizes at which noise does not agree by chance


@dataclass(frozen=True)
class Rule:
    """
    What an entry may be off by: ``atol + rtol*|numerical|``, and the numerical value's own error.

    An entry that is negligible compared with the largest of its row and of its column is measured
    by the smaller of those two. `share` of the tolerance is allowed by screening, without an error;
    `bend` is the relative change of slope across x that calls for a second one.
    """

    atol: float
    rtol: float
    share: float
    bend: float
    equal_nan: bool
    noise: float  # difference between two calls that the caller allows

    def allowed(self, analytic: NDArray, numerical: NDArray, floor: NDArray) -> NDArray:
        """Return the tolerance of each entry, without the error."""
        size = np.fmax(np.abs(analytic), np.abs(numerical))
        least = np.where(size <= self.rtol * floor, floor, 0.0)
        scale = np.fmax(least, np.abs(numerical))
        return np.asarray(self.atol + self.rtol * scale)

    def slope_gap(
        self, analytic: NDArray, slope: NDArray, bend: NDArray, noise: NDArray
    ) -> NDArray:
        """Return the gap between one-sided slopes at x, or 0 where curvature explains it."""
        if self.bend == np.inf:
            return np.zeros(bend.shape)
        with np.errstate(invalid="ignore"):
            size = np.fmax(np.abs(analytic), np.abs(slope))
            return np.where(np.abs(bend) <= self.bend * size + noise, 0.0, np.abs(bend))

    def confirmed(
        self, analytic: NDArray, floor: NDArray, right: NDArray, left: NDArray, noise: NDArray
    ) -> NDArray:
        """Return True where slopes by consecutive short steps, a row for each, are near enough."""
        slopes = 0.5 * right + 0.5 * left
        with np.errstate(invalid="ignore"):
            near = np.abs(analytic - slopes) + noise <= self.allowed(analytic, slopes, floor)
            near &= self.slope_gap(analytic, slopes, right - left, noise) == 0
        near &= np.isfinite(slopes)  # the tolerance is infinite where they are
        return in_a_row(near)

    def is_negligible(
        self, analytic: NDArray, numerical: NDArray, errors: NDArray, natural: NDArray
    ) -> NDArray:
        """
        Return True where difference and error of an entry are negligible at its natural size.

        That is f / x. Rounding of f hides its last digits: no difference resolves an entry that
        small, as one of softmax at a masked logit.
        """
        with np.errstate(invalid="ignore"):
            unknown = np.abs(analytic - numerical) + errors
        return self.is_nothing(unknown, np.abs(natural))

    def is_nothing(self, sizes: NDArray, natural: NDArray) -> NDArray:
        """Return True for sizes far less than the tolerance would be at a natural size."""
        with np.errstate(invalid="ignore"):
            return np.asarray(sizes <= NEGLIGIBLE * self.rtol * natural)

    def is_locally_constant(
        self, analytic: NDArray, numerical: NDArray, errors: NDArray
    ) -> NDArray:
        """Return True where the change of f is negligible compared with the analytic value."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.abs(numerical) + errors <= self.rtol * np.abs(analytic))

    def would_fail(
        self, analytic: NDArray, numerical: NDArray, errors: NDArray, floor: NDArray
    ) -> NDArray:
        """Return True for entries off by more than an error that is not small in the tolerance."""
        with np.errstate(invalid="ignore"):
            allowed = self.allowed(analytic, numerical, floor)
            difference = np.abs(analytic - numerical)
            counts = (errors * _BY_CHANCE > allowed) & np.isfinite(errors)
            return np.asarray((difference > allowed + errors) & counts)

    def judge(
        self,
        analytic: NDArray,
        numerical: NDArray,
        errors: NDArray,
        floor: NDArray,
        noisy: NDArray | bool = False,
    ) -> NDArray:
        """Return the number of each entry's verdict in `VERDICTS`; f is noisy in `noisy` ones."""
        at = VERDICTS.index
        with np.errstate(invalid="ignore"):
            allowed = self.allowed(analytic, numerical, floor)
            difference = np.abs(analytic - numerical)
            difference[np.isinf(numerical)] = np.nan  # the tolerance is infinite, too
            verdict = np.full(difference.shape, at(INCONCLUSIVE))
            resolved = errors <= np.maximum(allowed, self.noise)
            # Errors measured in noise are as random as the noise, and so is an error that is not
            # small compared with the value.
            spread = np.maximum(errors, np.minimum(self.noise, _JITTER * errors))
            badly = noisy | (errors > _ROUGH * np.abs(numerical))
            most = allowed + np.where(badly, np.maximum(8 * errors, spread), spread)
            verdict[(difference <= allowed) | (resolved & (difference <= most))] = at(PASS)
            verdict[difference > most] = at(FAIL)
        unlike = ~np.isfinite(analytic) & np.isfinite(numerical)
        verdict[unlike] = at(FAIL)
        nan = np.isnan(analytic) & np.isnan(numerical)
        verdict[nan] = at(PASS if self.equal_nan else FAIL)
        same = np.isinf(analytic) & (analytic == numerical)
        verdict[same] = at(PASS)
        return verdict


def in_a_row(rows: NDArray) -> NDArray:
    """Return True for columns that are True in some consecutive rows."""
    return np.asarray(sliding_window_view(rows, _IN_A_ROW, axis=0).all(axis=-1).any(axis=0))


def slope_supports_analytic(
    analytic: NDArray, numerical: NDArray, slope: NDArray, noise: NDArray
) -> NDArray:
    """
    Return True where a plain difference confirms the derivative against an extrapolated value.

    It says nothing of a number that is lost in the rounding of others.
    """
    with np.errstate(invalid="ignore"):
        difference = np.abs(analytic - numerical)
        near = (np.abs(analytic - slope) <= _SUPPORT_RATIO * difference) & (noise <= difference)
    return np.asarray(near & np.isfinite(analytic))


def slopes_contradict_numerical(
    numerical: NDArray, right: NDArray, left: NDArray, noise: NDArray
) -> NDArray:
    """
    Return True where slopes by very short steps, a row for each, differ by more than noise.

    Where f is piecewise constant, they are 0.
    """
    slopes = 0.5 * right + 0.5 * left
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(slopes - numerical) > noise) & (slopes != 0))


def slopes_support_analytic(
    analytic: NDArray, numerical: NDArray, right: NDArray, left: NDArray, noise: NDArray
) -> NDArray:
    """
    Return True where such slopes, by consecutive steps, confirm the derivative.

    Random noise can match one slope by chance but not three consecutive ones.
    """
    contradicting = slopes_contradict_numerical(numerical, right, left, noise)
    with np.errstate(invalid="ignore"):
        difference = np.abs(analytic - numerical)
        most = np.maximum(_NEAR * difference, noise)
        contradicting &= (noise <= difference) & (
            np.abs(analytic - (0.5 * right + 0.5 * left)) <= most
        )
    return in_a_row(contradicting)


POSITIONS = np.linspace(-2, 2, 9)  # where f is asked for more, in units of the step
_LINEAR = 0.05  # of a kink, which the slopes on either side may differ among themselves
_POLE = 64.0  # ratio of changes near x to those farther off, from which on f has a pole
_N_CONSTANT_STEPS = 2  # of short steps, that are within one of a staircase
_CLEAR = 64.0  # rounding errors of f that a kink has to stand out from


def kinks(values: NDArray, step: NDArray, noise: NDArray) -> NDArray:
    """
    Return True for outputs with a kink or jump within a step of x; `values` has a row a position.

    A function with one is linear on both sides of it, up to the curvature that is left at such a
    step: the slopes before and those after one segment agree. A smooth function whose length scale
    is below the step bends in all of them.
    """
    spacing = step * (POSITIONS[1] - POSITIONS[0])
    with np.errstate(all="ignore"):
        slopes = np.diff(values, axis=0) / spacing
        # The least and largest slopes before and after each segment that has two on either side.
        inner = slice(1, -3), slice(3, -1)
        lows = [
            f[window] for f, window in zip(_accumulated(np.minimum, slopes), inner, strict=True)
        ]
        highs = [
            f[window] for f, window in zip(_accumulated(np.maximum, slopes), inner, strict=True)
        ]
        spread = np.maximum(highs[0] - lows[0], highs[1] - lows[1])
        middles = [(low + high) / 2 for low, high in zip(lows, highs, strict=True)]
        low, high = np.minimum(*middles), np.maximum(*middles)
        beyond = np.maximum(slopes[2:-2] - high, low - slopes[2:-2])
        strength = np.maximum(high - low, beyond)
        kinked = (spread <= _LINEAR * strength) & (strength > _CLEAR * noise / spacing)
    return np.asarray(kinked.any(axis=0))


def _accumulated(extreme: np.ufunc, slopes: NDArray) -> tuple[NDArray, NDArray]:
    """Return an extreme of all slopes up to each, and of all from each."""
    return extreme.accumulate(slopes), extreme.accumulate(slopes[::-1])[::-1]


def is_piecewise_constant(values: NDArray, right: NDArray, left: NDArray) -> NDArray:
    """
    Return True for outputs that are constant next to x, by very short steps, and vary farther off.

    An f that rounds x to a lower precision does so. Its jumps make slopes that differ at random and
    may look like a kink; at a kink, f is constant on one side only.
    """
    with np.errstate(invalid="ignore"):
        constant = np.all(
            (right[:_N_CONSTANT_STEPS] == 0) & (left[:_N_CONSTANT_STEPS] == 0), axis=0
        )
        return np.asarray(constant & np.all(np.diff(values, axis=0) != 0, axis=0))


def poles(values: NDArray, noise: NDArray) -> NDArray:
    """Return True for outputs that change near x by far more than farther off, as at a pole."""
    with np.errstate(all="ignore"):
        change = np.abs(np.diff(values, axis=0))
        inner, outer = change[3:5].max(axis=0), change[[0, 1, -2, -1]].max(axis=0)
        return np.asarray((inner > _POLE * outer) & (inner > _CLEAR * noise))


def breaks(values: NDArray) -> NDArray:
    """Return True for outputs that are finite at some of the positions and not at others."""
    finite = np.isfinite(values)
    return np.asarray(finite.any(axis=0) & ~finite.all(axis=0))
