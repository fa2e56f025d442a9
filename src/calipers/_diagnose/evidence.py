"""Measure all evidence for a verdict on two implementations."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from .._core.dtypes import ROUNDOFF
from .._core.protocols import NDArray
from .callables import BudgetError, Result, comparable
from .errors import Errors
from .noise_level import (
    ErrorNorms,
    cosine,
    difference,
    finite_rms,
    perturbation_rms,
    worst_error_norms,
)
from .verdict import (
    COARSEST,
    FEW_REDRAWN,
    GAIN_EXPONENT,
    LARGE_DIFFERENCE,
    MANY,
    REDRAW,
    REDRAWN,
    STEADY,
    SYSTEMATIC,
)

_STAYS = 2.0**-6  # relative change of f/g between precisions that is not a loss of digits
_LUCKY = 2.0**8  # factor by which a rounding error is hardly ever smaller than others
_DRAWN, _REDRAWN = 3, 24  # perturbations, to see typical rounding errors in some
_PERTURBATION_ULPS = 0.731  # of the working precision


@dataclass
class HigherPrecision:
    """
    Differences of f and g in higher precision, compared with those in the working precision.

    The inputs are perturbed to use all bits: products of inputs with few bits would be exact.
    """

    e: Errors

    @property
    def _results(self) -> tuple[Result, Result]:
        """Results of f and g at the unperturbed inputs."""
        return self.e.wide_results["f"], self.e.wide_results["g"]

    @property
    def comparable(self) -> bool:
        """Whether the results at perturbed inputs can be compared."""
        return comparable(*self._perturbed)

    @cached_property
    def _perturbed(self) -> tuple[Result, Result]:
        return self._evaluate_perturbed(1.0)

    def _evaluate_perturbed(self, times: float) -> tuple[Result, Result]:
        points = self.e.perturb(
            _PERTURBATION_ULPS * times * self.e.roundoff, self.e.seed + 70, wide=True
        )
        return self.e.f(points), self.e.g(points)

    @property
    def fine(self) -> float:
        """Unit roundoff of the higher precision."""
        return ROUNDOFF["float64"] if self.e.form != "float64" else 2.0**-64

    @property
    def allowed(self) -> float:
        """Limit of rounding errors; for formats below float32, that of float32."""
        within = ROUNDOFF["float32"] if self.e.roundoff > ROUNDOFF["float32"] else self.fine
        return self.e.allowed * within / self.fine

    @cached_property
    def difference(self) -> NDArray:
        same = self._perturbed[0].forms == self.e.result_f.forms
        # Otherwise their number depends on the values, as for distinct numbers.
        return difference(*self._perturbed) if same else self.unmoved

    @cached_property
    def unmoved(self) -> NDArray:
        """Difference of f and g at the unperturbed inputs."""
        return difference(*self._results)

    @cached_property
    def noise_level(self) -> NDArray:
        # At kinks and ties the noise of a function is not proportional to roundoff.
        assert self.e.reference is not None
        implementation, result = self.e.reference
        seeds = [self.e.seed + 77, self.e.seed + 78]
        noise = perturbation_rms(
            implementation, result, self.e.perturb, self.fine, seeds, wide=True
        )
        return np.maximum(self.e.scale * (self.fine / self.e.roundoff), noise)

    @cached_property
    def norms(self) -> ErrorNorms:
        return worst_error_norms(self.e.result_f, self.difference, self.noise_level)

    @cached_property
    def working_norms(self) -> ErrorNorms:
        """Norms of the differences in the working precision, without results flushed to 0."""
        e = self.e
        if not e.flushed.any():
            return e.eta_difference
        return e.norms(np.where(e.flushed, 0.0, e.difference), e.scale)

    @cached_property
    def differ(self) -> bool:
        """
        Whether f and g are different functions: their difference remains in higher precision.

        A rounding error falls in proportion to the unit roundoff, even if an algorithm amplifies
        it; at a root, in proportion to its square root. An error that falls less is no rounding
        error, nor is one that grows relative to the noise level although no digits are lost in the
        working precision. Functions of formats below float32 compute in float32 for any input, and
        their errors need only fall to its roundoff.
        """
        e, d, unit, far = self.e, self.difference, self.noise_level, self.norms
        none = self.lost & self.are_none(d)
        # Some results have digits left in higher precision only.
        if none.any() and (np.abs(e.difference) > e.allowed * e.scale)[~none].any():
            d = np.where(none, 0.0, d)
            far = worst_error_norms(e.result_f, d, unit)
        gained = self._gained
        expected_gain, least = gained**GAIN_EXPONENT, 1e-3
        if expected_gain > _LUCKY and e.is_rounding(e.eta_f) and e.is_rounding(e.eta_g):
            expected_gain, least = _LUCKY, 1.0
        expected = expected_gain * max(self.working_norms.rms, least)
        more = far.rms > expected
        if math.isinf(far.rms):  # noise level 0: there is no rounding in these results
            more = far.absolute > expected_gain / gained * self.working_norms.absolute
        allowed = self.allowed
        if e.form == "float64":  # constants in source code are rounded to float64
            allowed = max(allowed, SYSTEMATIC * e.roundoff / self.fine)
        beyond = far.robust > allowed or self._mostly_different(d, unit)
        if far.broken and not self._comes_and_goes:
            return True
        return (
            beyond
            and more
            and not (far.rms <= _LUCKY * expected and self._by_chance(far, expected_gain))
        )

    def _by_chance(self, far: ErrorNorms, expected_gain: float) -> bool:
        """Return True if few rounding errors are small at these inputs only by chance."""
        e = self.e
        if e.effective_count >= MANY or math.isinf(far.rms):
            return False
        differences = [
            e.perturbed_difference(2 * e.roundoff, e.seed + 90 + k) for k in range(_DRAWN)
        ]
        sizes = [
            worst_error_norms(e.result_f, d, e.scale).rms for d in differences if d is not None
        ]
        return far.rms <= expected_gain * max(sizes, default=0.0)

    @cached_property
    def _comes_and_goes(self) -> bool:
        """Return True if 1-ulp perturbations decide which results are finite, here and "
        "elsewhere."""
        e, pair = self.e, self._perturbed
        alone = np.logical_xor(*(np.isfinite(y.numbers(np.float64)) for y in pair))
        if pair[0].forms != e.result_f.forms or not alone[~np.isfinite(self.difference)].all():
            return False
        for move in (self.fine, 2.0**-COARSEST):
            x = e.perturb(move, e.seed + 95, wide=True)
            left = np.ones(self.difference.size, bool)
            for f, g in e.nearby(x, self.fine, e.seed + 96, _REDRAWN):
                left &= np.isfinite(f) ^ np.isfinite(g)
                if not left.any():
                    break
            else:
                return False
        return True

    @cached_property
    def lost(self) -> NDArray:
        """
        Mask of results that may have lost all digits, rather than be those of a different function.

        1 + tanh(-60) has none in either precision, and a long double has few more than a double.
        The same relative difference in both is a different function, unless one result vanishes
        compared with the other.
        """
        e = self.e
        assert e.reference is not None
        shares, kind = [], np.longdouble if e.form == "float64" else np.float64
        for f, g in ((e.result_f, e.result_g), self._results):
            one, other = f.numbers(kind), g.numbers(kind)
            swapped = np.abs(one) < np.abs(other)
            shares.append(1 - np.where(swapped, one, other) / np.where(swapped, other, one))
        here, wide = shares
        steady = (np.abs(here - wide) <= _STAYS * np.abs(wide)) & (
            np.abs(wide - 1) > LARGE_DIFFERENCE
        )
        sizes = np.abs(e.reference[1].numbers(np.float64))
        gone: NDArray = (np.abs(e.difference) >= 0.5 * sizes) | (e.form == "float64")
        return gone & ~steady

    def are_none(self, d: NDArray) -> NDArray:
        """Return a mask of differences that are roundoff of intermediate values."""
        none: NDArray = np.abs(d) <= self.allowed * self.fine * self.e.natural_size
        return none

    @property
    def _gained(self) -> float:
        """
        Ratio of the noise levels in the working and in higher precision.

        It is less than the ratio of the roundoffs if rounding errors of long sums exceed the effect
        of a 1-ulp perturbation of the inputs.
        """
        finite = np.isfinite(self.e.scale) & np.isfinite(self.noise_level)
        here, there = finite_rms(self.e.scale[finite]), finite_rms(self.noise_level[finite])
        most = self.e.roundoff / self.fine
        return min(most, max(1.0, here / there)) if there else most

    def _mostly_different(self, d: NDArray, unit: NDArray) -> bool:
        """
        Return True if most results have a large relative difference.

        Norms may hide it if a few chaotic results have a much higher noise level.
        """
        threshold = LARGE_DIFFERENCE * finite_rms(self.e.result_f.numbers(np.float64))
        distance = np.abs(d)
        beyond = (distance > self.e.allowed * unit) & (distance > threshold)
        return bool(np.count_nonzero(beyond) > d.size / 2)

    @property
    def nondeterministic(self) -> list[str]:
        """Names of implementations whose repeated calls differ by as much as f and g."""
        distance = finite_rms(difference(*self._perturbed))
        again = self._evaluate_perturbed(1.0)
        return [
            name
            for name, first, then in zip(("f", "g"), self._perturbed, again, strict=True)
            if comparable(then, first) and finite_rms(difference(first, then)) > distance / 2
        ]

    @property
    def agree_unmoved(self) -> bool:
        """Whether f and g agree at the unperturbed inputs."""
        size = worst_error_norms(self.e.result_f, self.unmoved, self.noise_level)
        near = size.robust <= self.allowed and not size.broken
        return near and not self._mostly_different(self.unmoved, self.noise_level)

    @property
    def perturbation_growth(self) -> float:
        """Growth of the difference when the perturbation is REDRAW times as large."""
        f, g = self._evaluate_perturbed(REDRAW)
        if not self.norms.absolute or not comparable(f, g):
            return 1.0
        return finite_rms(difference(f, g)) / self.norms.absolute


_OF_SUMS = 64.0  # ulp of a term per term: well above the ulp of the sum

Differ = Callable[
    [float, int], NDArray | None
]  # of (delta, seed) to the differences at perturbed inputs


class Evidence(Errors):
    """Two implementations, their inputs, and the measurements made so far."""

    @cached_property
    def wide(self) -> HigherPrecision | None:
        """Differences in higher precision; None if f or g cannot compute in it."""
        if len(self.wide_results) < 2:
            return None
        wide = HigherPrecision(self)
        return wide if wide.comparable else None

    @property
    def differ_wide(self) -> bool:
        """Whether f and g are different functions, as far as higher precision shows it."""
        return self.wide is not None and self.wide.differ

    @cached_property
    def far_similarity(self) -> float:
        """Cosine similarity of the differences here and at far inputs; 0 for few entries."""
        if self.difference.size < MANY or self.eta_difference.broken or not self.can_perturb:
            return 0.0
        return self.least_similarity(2, self.seed + 850)

    def least_similarity(self, count: int, seed: int) -> float:
        """Return the smallest cosine similarity of the differences at far inputs."""
        least = 1.0
        # The signs of few differences are often the same by chance.
        for k in range(count if self.effective_count >= MANY else FEW_REDRAWN):
            least = min(least, self.similarity(2.0**-COARSEST, seed + k) or 0.0)
            if least <= STEADY:
                break
        return least

    def similarity(self, delta: float, seed: int) -> float | None:
        """Return the cosine similarity of f - g at the inputs and at perturbed inputs."""
        there = self.perturbed_difference(delta, seed)
        return None if there is None else cosine(self.difference, there, self.scale)

    def mean_similarity(self, here: NDArray, at: Differ) -> float | None:
        """Return the mean cosine similarity of differences; None if it is not significant."""
        differences = [here]
        similarity = self._pairwise_similarity(differences, at, REDRAWN - 1)
        if (
            similarity is not None and self.effective_count < MANY
        ):  # the signs of few are the same by chance
            with suppress(BudgetError):
                similarity = self._pairwise_similarity(differences, at, FEW_REDRAWN)
        return similarity

    def _pairwise_similarity(
        self, differences: list[NDArray], at: Differ, more: int
    ) -> float | None:
        """Add differences at `more` perturbations, and return the mean pairwise cosine."""
        # Rounding errors of a sum of n terms are redrawn by perturbations of ulps of the sum.
        delta = min(2.0**-COARSEST, max(REDRAW, _OF_SUMS * self.length) * self.roundoff)
        first = len(differences)
        for k in range(first, first + more):
            there = at(delta, self.seed + 31 * k)
            if there is not None:
                differences.append(there)
        if len(differences) < 3:
            return None
        cosines = [cosine(a, b, self.scale) for a, b in combinations(differences, 2)]
        alike = self.evidence["likeness"] = float(np.mean(cosines))
        chance = float(np.std(cosines)) / math.sqrt(len(differences))
        return alike if alike > max(0.05, 5 * chance) else None
