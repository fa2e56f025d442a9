"""All that is measured of two implementations."""

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
from .error_units import ErrorNorms, cosine, difference, perturbation_rms, rms_of, worst_error_norms
from .errors import Errors
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

_STAYS = 2.0**-6  # of a share of a result, that is another one where digits are lost
_LUCKY = 2.0**8  # times that a rounding is hardly ever smaller than others
_DRAWN, _REDRAWN = 3, 24  # moves, at some of which roundings are as they mostly are
_PERTURBATION_ULPS = 0.731  # of a last place


@dataclass
class HigherPrecision:
    """
    How far both sides are apart in the wider format, beside how far they are here.

    They are asked at inputs that need all its bits: with the bits of the narrower one much that
    would round is exact.
    """

    e: Errors

    @property
    def _results(self) -> tuple[Result, Result]:
        """What both give at the inputs as they are."""
        return self.e.wide_results["f"], self.e.wide_results["g"]

    @property
    def comparable(self) -> bool:
        """Whether both sides answer at moved inputs, and alike."""
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
        """The roundoff of the wider format."""
        return ROUNDOFF["float64"] if self.e.form != "float64" else 2.0**-64

    @property
    def allowed(self) -> float:
        """Units that are allowed; of a format narrower than float32, what float32 takes."""
        within = ROUNDOFF["float32"] if self.e.roundoff > ROUNDOFF["float32"] else self.fine
        return self.e.allowed * within / self.fine

    @cached_property
    def difference(self) -> NDArray:
        same = self._perturbed[0].forms == self.e.result_f.forms
        # Else there are as many as there are different numbers, say.
        return difference(*self._perturbed) if same else self.unmoved

    @cached_property
    def unmoved(self) -> NDArray:
        """How far they are apart at the inputs as they are."""
        return difference(*self._results)

    @cached_property
    def noise_level(self) -> NDArray:
        # At kinks and ties a function's own noise is not in proportion.
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
        """How far they are apart in the working format, but for what is flushed to 0 there."""
        e = self.e
        if not e.flushed.any():
            return e.eta_difference
        return e.norms(np.where(e.flushed, 0.0, e.difference), e.scale)

    @cached_property
    def differ(self) -> bool:
        """
        Whether the sides are two functions: their difference stays in the wider format.

        One of rounding falls as the format's does, even where an algorithm magnifies it; at a root,
        by the square root of that. What falls less is none; nor is, between algorithms that lose no
        digits here, what is far more units there. But functions of a format narrower than float32
        compute in float32, whatever they are given: to its rounding theirs may fall.
        """
        e, d, unit, far = self.e, self.difference, self.noise_level, self.norms
        none = self.lost & self.are_none(d)
        # Beside some of which digits are left in the wider format, and not here.
        if none.any() and (np.abs(e.difference) > e.allowed * e.scale)[~none].any():
            d = np.where(none, 0.0, d)
            far = worst_error_norms(e.result_f, d, unit)
        gained = self._gained
        expected_gain, least = gained**GAIN_EXPONENT, 1e-3
        if expected_gain > _LUCKY and e.is_rounding(e.eta_f) and e.is_rounding(e.eta_g):
            expected_gain, least = _LUCKY, 1.0
        expected = expected_gain * max(self.working_norms.rms, least)
        more = far.rms > expected
        if math.isinf(far.rms):  # beside a unit of 0: no rounding is in these results
            more = far.absolute > expected_gain / gained * self.working_norms.absolute
        allowed = self.allowed
        if e.form == "float64":  # constants in a source are rounded to it, whatever is wider
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
        """Tell whether few roundings are small here alone, and not as small about here."""
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
        """Tell whether last places decide, here and elsewhere, which results are not finite."""
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
        Which results may have lost all their digits, rather than be those of another function.

        1 + tanh(-60) has none in either format, and a long double has few more than a double. What
        is as far off in proportion is another function; but not what is nothing beside the other.
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
        """Tell which differences are none beside numbers on the way to them."""
        none: NDArray = np.abs(d) <= self.allowed * self.fine * self.e.natural_size
        return none

    @property
    def _gained(self) -> float:
        """How many times less the wider format's units are: not all that its bits gain.

        Where sums are long, roundings on the way are more than what the inputs' last places do.
        """
        finite = np.isfinite(self.e.scale) & np.isfinite(self.noise_level)
        here, there = rms_of(self.e.scale[finite]), rms_of(self.noise_level[finite])
        most = self.e.roundoff / self.fine
        return min(most, max(1.0, here / there)) if there else most

    def _mostly_different(self, d: NDArray, unit: NDArray) -> bool:
        """Tell whether most results differ grossly, beside which a few are of larger units still.

        The last places of chaos decide all of some results, and their norm hides the others.
        """
        threshold = LARGE_DIFFERENCE * rms_of(self.e.result_f.numbers(np.float64))
        distance = np.abs(d)
        beyond = (distance > self.e.allowed * unit) & (distance > threshold)
        return bool(np.count_nonzero(beyond) > d.size / 2)

    @property
    def nondeterministic(self) -> list[str]:
        """Which sides give results as far apart as the two are, where those are asked again."""
        distance = rms_of(difference(*self._perturbed))
        again = self._evaluate_perturbed(1.0)
        return [
            name
            for name, first, then in zip(("f", "g"), self._perturbed, again, strict=True)
            if comparable(then, first) and rms_of(difference(first, then)) > distance / 2
        ]

    @property
    def agree_unmoved(self) -> bool:
        """Whether the sides agree at the inputs as they are."""
        size = worst_error_norms(self.e.result_f, self.unmoved, self.noise_level)
        near = size.robust <= self.allowed and not size.broken
        return near and not self._mostly_different(self.unmoved, self.noise_level)

    @property
    def perturbation_growth(self) -> float:
        """How many times as far they are apart where inputs are moved so much farther."""
        f, g = self._evaluate_perturbed(REDRAW)
        if not self.norms.absolute or not comparable(f, g):
            return 1.0
        return rms_of(difference(f, g)) / self.norms.absolute


_OF_SUMS = 64.0  # last places of a term by how many there are: well beyond last places of the sum

Differ = Callable[[float, int], NDArray | None]  # what differences are at moved inputs


class Evidence(Errors):
    """Two sides at some inputs, and what is known of them so far."""

    @cached_property
    def wide(self) -> HigherPrecision | None:
        """How far the sides are apart in the wider format, if both answer in it."""
        if len(self.wide_results) < 2:
            return None
        wide = HigherPrecision(self)
        return wide if wide.comparable else None

    @property
    def differ_wide(self) -> bool:
        """Whether the wider format, as far as both answer in it, shows two functions."""
        return self.wide is not None and self.wide.differ

    @cached_property
    def far_similarity(self) -> float:
        """How much many differences are the same wherever the inputs are; 0 for few."""
        if self.difference.size < MANY or self.eta_difference.broken or not self.can_perturb:
            return 0.0
        return self.least_similarity(2, self.seed + 850)

    def least_similarity(self, count: int, seed: int) -> float:
        """Return the least cosine of differences at inputs that are moved far."""
        least = 1.0
        # Of few the signs are the same by chance, time and again.
        for k in range(count if self.effective_count >= MANY else FEW_REDRAWN):
            least = min(least, self.similarity(2.0**-COARSEST, seed + k) or 0.0)
            if least <= STEADY:
                break
        return least

    def similarity(self, delta: float, seed: int) -> float | None:
        """Return the cosine between the difference of the sides here, and at moved inputs."""
        there = self.perturbed_difference(delta, seed)
        return None if there is None else cosine(self.difference, there, self.scale)

    def mean_similarity(self, here: NDArray, at: Differ) -> float | None:
        """Return how alike differences at moved inputs are; None if so by chance at most."""
        differences = [here]
        similarity = self._pairwise_similarity(differences, at, REDRAWN - 1)
        if (
            similarity is not None and self.effective_count < MANY
        ):  # of few the signs are the same by chance
            with suppress(BudgetError):
                similarity = self._pairwise_similarity(differences, at, FEW_REDRAWN)
        return similarity

    def _pairwise_similarity(
        self, differences: list[NDArray], at: Differ, more: int
    ) -> float | None:
        """Compare differences, and those of more moves, if there are enough."""
        # What a term loses to a sum of n is drawn anew by moves of last places of that.
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
