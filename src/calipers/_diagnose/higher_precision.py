"""Compare two implementations in higher precision and at perturbed inputs: are they the same?"""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from .._compare.text import differing
from .._core.dtypes import ROUNDOFF
from .._core.protocols import NDArray
from .arrays import Result, comparable, to_higher_precision
from .callables import BudgetError
from .comparison import Comparison, measured
from .noise_level import (
    ErrorNorms,
    cosine,
    difference,
    error_norms,
    finite_rms,
    perturbation_rms,
    result_roundoffs,
    worst_error_norms,
)

# Calls of each implementation that are made however long they take.
_LEAST_CALLS = 3


@dataclass
class HigherPrecision:
    """Differences of f and g in higher precision, at inputs that use all of its bits."""

    e: Comparison

    @property
    def fine(self) -> float:
        """Unit roundoff of the higher precision."""
        return self.e.fine

    @property
    def allowed(self) -> float:
        """Limit of rounding errors; for formats below float32, that of float32."""
        within = ROUNDOFF["float32"] if self.e.roundoff > ROUNDOFF["float32"] else self.fine
        return float(self.e.allowed * within / self.fine)

    @cached_property
    def difference(self) -> NDArray:
        same = self.e.perturbed_in_higher_precision[0].forms == self.e.result_f.forms
        # Otherwise their number depends on the values, as for distinct numbers.
        return difference(*self.e.perturbed_in_higher_precision) if same else self.unmoved

    @cached_property
    def unmoved(self) -> NDArray:
        """Difference of f and g at the unperturbed inputs."""
        return difference(self.e.wide_results["f"], self.e.wide_results["g"])

    @cached_property
    def noise(self) -> NDArray:
        """Expected rounding error of each result in higher precision."""
        e = self.e
        assert e.reference_source is not None
        # At kinks and ties the noise of a function is not proportional to roundoff.
        noise = perturbation_rms(
            e.reference_source.implementation,
            e.reference_source.result,
            e.perturb,
            self.fine,
            [e.seed + 77, e.seed + 78],
            wide=True,
        )
        least: NDArray = np.maximum(e.scale * (self.fine / e.roundoff), noise)
        return least

    @cached_property
    def norms(self) -> ErrorNorms:
        return worst_error_norms(self.e.result_f, self.difference, self.noise)

    @property
    def gain(self) -> float:
        """Ratio of the noise levels in the working and in higher precision."""
        e = self.e
        here, there = finite_rms(e.scale), finite_rms(self.noise)
        return max(1.0, here / there) if there else e.roundoff / self.fine

    @cached_property
    def expected_fall(self) -> float:
        """Factor by which rounding errors fall at least, relative to the noise level."""
        t = self.e.thresholds
        fall = self.gain**t.gain_exponent
        return float(min(fall, t.lucky) if self.e.within_rounding else fall)

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
        e, t, d, far = self.e, self.e.thresholds, self.difference, self.norms
        none = self.lost & self.are_none(d)
        # Some results have digits left in higher precision only.
        if none.any() and (np.abs(e.difference) > e.allowed * e.scale)[~none].any():
            far = worst_error_norms(e.result_f, np.where(none, 0.0, d), self.noise)
        here = e.norms(np.where(e.flushed, 0.0, e.difference))
        expected = self.expected_fall * max(here.rms, 1.0 if e.within_rounding else 1e-3)
        more = far.rms > expected
        if math.isinf(far.rms):  # noise level 0: there is no rounding in these results
            more = far.absolute > self.expected_fall / self.gain * here.absolute
        # Constants in source code are rounded to float64.
        constants = t.systematic * e.roundoff / self.fine if e.form == "float64" else 0.0
        allowed = max(self.allowed, constants)
        if far.broken:
            return not self._come_and_go
        if not more or not (far.robust > allowed or self.mostly(d)):
            return False
        return not (far.rms <= t.lucky * expected and self._by_chance(far))

    def _by_chance(self, far: ErrorNorms) -> bool:
        """Return True if few rounding errors are small at these inputs only by chance."""
        e = self.e
        if e.effective_count >= e.thresholds.many or math.isinf(far.rms):
            return False
        nearby = (e.perturbed_difference(2 * e.roundoff, e.seed + 90 + k) for k in range(3))
        sizes = [e.norms(d).rms for d in nearby if d is not None]
        return far.rms <= self.expected_fall * max(sizes, default=0.0)

    @cached_property
    def _come_and_go(self) -> bool:
        """Whether 1-ulp perturbations decide which results are finite, here and elsewhere."""
        e = self.e
        for delta in (self.fine, e.thresholds.far):
            left = np.ones(self.difference.size, bool)
            for k in range(e.thresholds.flips):
                x = e.perturb(delta, e.seed + 95, wide=True)
                x = type(e.perturb)(x)(2 * self.fine, e.seed + 96 + k, wide=False)
                x.wide = True
                f, g = e.f(x), e.g(x)
                if not comparable(f, g, e.result_f):
                    return False
                left &= np.logical_xor(*(np.isfinite(y.numbers(np.float64)) for y in (f, g)))
                if not left.any():
                    break
            if left.any():
                return False
        return True

    @cached_property
    def lost(self) -> NDArray:
        """
        Mask of results that may have lost all digits, rather than be those of a different function.

        1 + tanh(-60) has none in either precision. The same relative difference in both is a
        different function, unless one result vanishes compared with the other.
        """
        e, t = self.e, self.e.thresholds
        assert e.reference is not None
        shares, kind = [], np.longdouble if e.form == "float64" else np.float64
        for f, g in ((e.result_f, e.result_g), (e.wide_results["f"], e.wide_results["g"])):
            one, other = f.numbers(kind), g.numbers(kind)
            swapped = np.abs(one) < np.abs(other)
            shares.append(1 - np.where(swapped, one, other) / np.where(swapped, other, one))
        here, wide = shares
        steady = (np.abs(here - wide) <= 2.0**-6 * np.abs(wide)) & (np.abs(wide - 1) > t.large)
        sizes = np.abs(e.reference.numbers(np.float64))
        gone = (np.abs(e.difference) >= t.half * sizes) | (e.form == "float64")
        lost: NDArray = gone & ~steady
        return lost

    def are_none(self, d: NDArray) -> NDArray:
        """Return a mask of differences that are roundoff of intermediate values."""
        none: NDArray = np.abs(d) <= self.allowed * self.fine * self.e.natural_size
        return none

    def mostly(self, d: NDArray) -> bool:
        """Return True if most results have a large relative difference, which norms may hide."""
        e = self.e
        threshold = e.thresholds.large * finite_rms(e.result_f.numbers(np.float64))
        beyond = (np.abs(d) > e.allowed * self.noise) & (np.abs(d) > threshold)
        return bool(np.count_nonzero(beyond) > d.size / 2)

    @cached_property
    def hidden(self) -> NDArray:
        """
        Mask of differences above the limit that larger results hide in norms, in both precisions.

        If small results only lose digits, each loses fewer in higher precision than where rounding
        errors are redrawn in the working precision.
        """
        e, t = self.e, self.e.thresholds
        distance = np.abs(e.difference)
        beyond: NDArray = np.isfinite(distance) & (distance > t.single * e.allowed * e.scale)
        if not beyond.any():
            return beyond
        for k in range(3):  # an error may be small by chance in one of many results
            there = e.perturbed_difference(t.far, e.seed + 40 + k)
            if there is not None:
                distance = np.fmax(distance, np.abs(there))
        share = (e.roundoff / self.fine) ** (t.gain_exponent - 1)
        for d in (np.abs(self.unmoved), np.abs(self.difference)):
            beyond &= (d > share * distance) & (d > self.allowed * self.noise)
            beyond &= ~(self.lost & self.are_none(d))
        return beyond

    @cached_property
    def by_parameters(self) -> bool:
        """Whether rounding the parameters that only one has explains the difference."""
        e, t = self.e, self.e.thresholds
        squares = np.zeros(self.difference.size)
        for name, implementation in e.implementations.items():
            if all(x.in_both for x in implementation.shared):
                continue
            x = to_higher_precision(e.inputs)
            x.alone, x.delta = True, e.roundoff
            for x.seed in range(e.seed + 30, e.seed + 30 + t.perturbations):
                there = implementation(x)
                if not comparable(there, e.wide_results[name]):
                    return False
                squares += np.square(difference(there, e.wide_results[name])) / t.perturbations
        size = worst_error_norms(e.result_f, self.difference, np.sqrt(squares))
        return bool(squares.any()) and e.is_rounding(size)

    @property
    def agree_unmoved(self) -> bool:
        """Whether f and g agree at the unperturbed inputs."""
        size = worst_error_norms(self.e.result_f, self.unmoved, self.noise)
        return size.robust <= self.allowed and not size.broken and not self.mostly(self.unmoved)

    @cached_property
    def growth(self) -> float:
        """Growth of the difference when the perturbation is larger by the threshold `redraw`."""
        f, g = self.e.evaluate_wide(self.e.thresholds.redraw)
        if not self.norms.absolute or not comparable(f, g):
            return 1.0
        return finite_rms(difference(f, g)) / self.norms.absolute


class Differences(Comparison):
    """How f and g differ from call to call, in higher precision, and at perturbed inputs."""

    # From call to call

    @measured
    def repeated_results(self) -> dict[str, list[Result]]:
        """Call f and g again, to see a change in one call of four with 99 %, if that is cheap."""
        t, again = self.thresholds, {name: [y] for name, y in self.results.items()}
        most = min(t.repeats, max(2, self.f.budget.limit // t.repeats))
        if self.same_bits:  # a result that is cached or kept shows in the calls that follow
            self.equal_only_here  # noqa: B018
        end, count = time.perf_counter() + t.seconds, 1
        while count < most and (count < _LEAST_CALLS or time.perf_counter() < end):
            for name, implementation in self.implementations.items():
                again[name].append(implementation(self.inputs))
            count += 1
        return again

    @measured
    def equal_only_here(self) -> str | None:
        """How results differ after large perturbations, if they are equal here; None if not so."""
        t = self.thresholds
        if not self.can_perturb or self.f.budget.remaining < t.few:
            return None
        f, g = self.evaluate_perturbed(t.far, self.seed + 800)
        if not comparable(f, g):
            return None
        sizes = np.abs(f.numbers(np.float64))
        differs = np.abs(difference(f, g)) > t.large * np.maximum(sizes, finite_rms(sizes))
        n = int(np.count_nonzero(differs))
        if 2 * n <= differs.size:
            return None
        text = f"equal to the last bit here, but {differing(n, differs.size, 'result')} much after "
        text += "large perturbations of the inputs: f or g returns a cached result, or they agree "
        return text + "for inputs like these only"

    @measured
    def steady_scale(self) -> NDArray:
        """Measure the noise level; of arrays that repeated calls change, take one rounding."""
        return self.steady_scale_of(self.thresholds.directions)

    def steady_scale_of(self, calls: int) -> NDArray:
        """Measure the same by a number of repeated calls."""
        source = self.noise_source
        x = to_higher_precision(self.inputs) if source.is_wide else self.inputs
        share = 1.0 if source.is_wide else 1 / self.thresholds.above
        again = [source.implementation(x) for _ in range(calls)]
        roundoffs = result_roundoffs(self.result_f, self.roundoff)
        if not comparable(source.result, self.result_f, *again):
            return roundoffs
        changes = share * np.max([np.abs(difference(y, source.result)) for y in again], axis=0)
        parts = zip(*map(self.result_f.split, (changes, self.scale, roundoffs)), strict=True)
        return np.concatenate([level if _is_steady(d, level) else o for d, level, o in parts])

    # In higher precision, and at perturbed inputs

    @measured
    def wide(self) -> HigherPrecision | None:
        """Differences in higher precision; None if f or g cannot compute in it."""
        if len(self.wide_results) < 2 or not comparable(*self.perturbed_in_higher_precision):
            return None
        return HigherPrecision(self)

    @property
    def differ(self) -> bool | None:
        """Whether f and g differ in higher precision; None if it cannot tell."""
        return None if self.wide is None else self.wide.differ

    def similarity(self, delta: float, seed: int) -> float | None:
        """Return the cosine similarity of f - g at the inputs and at perturbed inputs."""
        there = self.perturbed_difference(delta, seed)
        return None if there is None else cosine(self.difference, there, self.scale)

    @measured
    def far_similarity(self) -> float:
        """Measure the cosine of the differences here and far away, which is 0 for rounding."""
        t = self.thresholds
        if self.error_difference.broken or not self.can_perturb:
            return 0.0
        units, here = self.result_f.split(self.scale), self.result_f.split(self.difference)
        beyond = {
            k: 1.0
            for k, d in enumerate(here)
            if d.size and (len(here) == 1 or error_norms(d, units[k]).robust > self.allowed)
        }
        # The signs of few differences are often the same by chance.
        for n in range(1 if self.effective_count >= t.many else t.few_draws):
            distance = self.perturbed_difference(t.far, self.seed + 800 + n)
            if distance is None:
                return 0.0
            there = self.result_f.split(distance)
            beyond = {k: min(x, cosine(here[k], there[k], units[k])) for k, x in beyond.items()}
            if max(beyond.values(), default=0.0) <= t.persistent:
                break
        self.evidence["likeness_far"] = max(beyond.values(), default=0.0)
        return float(self.evidence["likeness_far"])

    @measured
    def near_similarity(self) -> float | None:
        """Measure the mean cosine of differences nearby; None if chance explains it."""
        if not self.can_perturb:
            return None
        tested = ~self.zeros_by_constants

        def difference_at(delta: float, seed: int) -> NDArray | None:
            there = self.perturbed_difference(delta, seed)
            return None if there is None else np.where(tested, there, 0.0)

        return self.mean_similarity(np.where(tested, self.difference, 0.0), difference_at)

    @cached_property
    def zeros_by_constants(self) -> NDArray:
        """
        Mask of results that are 0 in one function, and in the other what rounded constants make.

        The sine of a whole turn is not 0 if it is computed: a weight that is a function of an angle
        is off by u*angle, however small it is, and results by as much of the inputs (Higham,
        Accuracy and Stability of Numerical Algorithms, 2nd ed., theorem 24.2).
        """
        t = self.thresholds
        f, g = (y.numbers(np.float64) for y in self.results.values())
        r = f if self.reference is None else self.reference.numbers(np.float64)
        # If the reference is 0 too, constants of the other are rounded in its format.
        rounding = math.tau * min(self.roundoff, ROUNDOFF["float32"])
        constants = min(rounding, t.amplified_constants * ROUNDOFF["float64"])
        parts = self.result_f.split(r)
        typical = self.result_f.repeat_each(np.array([finite_rms(part) for part in parts]))
        allowed = np.minimum(self.typical_size, typical) * np.where(r == 0, rounding, constants)
        close = np.abs(self.difference) <= self.allowed * allowed
        zeros: NDArray = ((f == 0) | (g == 0)) & close & ~self.result_f.integers
        return zeros

    @property
    def steady_error(self) -> ErrorNorms:
        """The error of f - g without zeros that rounded constants explain."""
        return self.norms(np.where(self.zeros_by_constants, 0.0, self.difference))

    def mean_similarity(
        self, here: NDArray, at: Callable[[float, int], NDArray | None]
    ) -> float | None:
        """Return the mean cosine similarity of differences; None if chance explains it."""
        t = self.thresholds
        differences, alike = [here], None
        # Rounding errors of a sum of n terms are redrawn by perturbations of ulps of the sum.
        delta = min(t.far, max(t.redraw, t.of_sums * self.length) * self.roundoff)
        for count in (t.draws, t.draws + t.few_draws):
            with suppress(BudgetError):
                for k in range(len(differences), count):
                    there = at(delta, self.seed + 31 * k)
                    if there is not None:
                        differences.append(there)
            if len(differences) < 3:
                return None
            cosines = [cosine(a, b, self.scale) for a, b in combinations(differences, 2)]
            mean = self.evidence["likeness"] = float(np.mean(cosines))
            chance = 5 * float(np.std(cosines)) / math.sqrt(len(differences))
            alike = mean if mean > max(0.05, chance) else None
            if alike is None or self.effective_count >= t.many:
                break
        return alike

    @measured
    def redrawn_near(self) -> bool:
        """Whether perturbations of some hundred ulps redraw the difference, as rounding errors."""
        t = self.thresholds
        count = t.directions if self.effective_count >= t.many else t.few_draws
        delta = t.coarse * self.roundoff
        near = [self.similarity(delta, self.seed + 1000 + k) or 0.0 for k in range(count)]
        return self.can_perturb and float(np.mean(near)) < t.unrelated


def _is_steady(changes: NDArray, scale: NDArray) -> bool:
    """Return True if changes between calls with the same inputs are below the noise level."""
    size = error_norms(changes, scale)
    return not size.broken and size.normwise <= 0.5
