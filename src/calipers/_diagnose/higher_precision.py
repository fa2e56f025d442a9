"""Call implementations in higher precision: the reference, and whether they are one function."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._core.dtypes import ROUNDOFF, SMALLEST
from .._core.protocols import NDArray
from .callables import Implementation
from .inputs import to_higher_precision
from .noise_level import (
    ErrorNorms,
    condition_number,
    difference,
    error_norms,
    finite_rms,
    perturbation_rms,
    require_comparable,
    result_roundoffs,
    worst_error_norms,
)
from .results import Result, comparable, is_wide


@dataclass(frozen=True)
class Source:
    """An implementation in higher precision, from whose result errors are measured."""

    name: str
    implementation: Implementation
    result: Result
    noise: NDArray  # expected rounding error of each result in the working precision
    condition: float  # the condition number of the function


def choose_source(e: Any) -> tuple[Source | None, dict[str, Result]]:
    """Return the reference, and the results in higher precision; both are stored in e."""
    if e.reference_function is not None:
        function = Implementation("reference", e.reference_function, e.f.likes, e.f.budget)
        result = function(to_higher_precision(e.inputs))
        require_comparable(result, e.result_f, e.roundoff)
        wide = {name: result for name, result in _wide_results(e).items() if e.source == name}
        e.__dict__["reference_source"] = source_of(e, "reference", function, result)
    else:
        wide = _wide_results(e)
        e.__dict__["reference_source"] = _choose(e, wide)
    e.__dict__["wide_results"] = wide
    return e.__dict__["reference_source"], wide


def _wide_results(e: Any) -> dict[str, Result]:
    wide = {}
    for name, implementation in e.implementations.items():
        if e.source in ("auto", "both", name):
            result = _in_higher_precision(e, name, implementation)
            if comparable(result, e.result_f) and is_wide(result, e.form):
                wide[name] = result
    e.__dict__["wide_results"] = wide
    if len(wide) == 2 and _rounds_inside(e, wide):
        del wide[e.rounds_inside]
    return wide


def _in_higher_precision(e: Any, name: str, implementation: Implementation) -> Result:
    """
    Call an implementation in higher precision.

    A torch function runs with float64 instead of every lower format, unless that changes its
    results by more than rounding to any format does.
    """
    here, x = e.results[name], to_higher_precision(e.inputs)
    if implementation.uses_torch and e.form != "float64":
        implementation.runs_in_float64 = True
        result = implementation(x)
        if comparable(result, here) and is_wide(result, e.form):
            size = finite_rms(here.numbers(np.float64))
            if finite_rms(difference(result, here)) <= e.thresholds.half * size:
                return result
        implementation.runs_in_float64 = False
    return implementation(x)


def _rounds_inside(e: Any, wide: dict[str, Result]) -> bool:
    """
    Find an implementation that rounds to the working precision or less inside, unlike the other.

    Its results are in higher precision, but along a line they are not locally linear: they stay
    constant, or their rounding errors are uncorrelated. It is no reference. Return True if that
    noise explains how far the functions differ: they are then not compared in higher precision.
    """
    t, pair = e.thresholds, HigherPrecision(e)
    if not pair.comparable or not e.can_perturb:
        return False
    off = error_norms(pair.difference, result_roundoffs(wide["f"], e.roundoff))
    # Digits that an algorithm loses in both precisions fall by the gain in precision.
    times = t.single if e.difference.size >= t.few else t.lucky  # one may be small by chance
    if off.absolute <= max(t.large, times * pair.fine / e.roundoff) * finite_rms(e.difference):
        return False
    if off.broken or not t.rounded_inside < off.normwise < t.half / e.roundoff:
        return False
    rough = {name: _roughness(e, name, result, e.roundoff) for name, result in wide.items()}
    least, most = sorted(rough, key=lambda name: rough[name][0])
    if rough[most][0] >= max(t.linear, t.above * rough[least][0]):
        e.rounds_inside = most
        return bool(off.absolute <= t.single * rough[most][1])
    # Values in a lower precision jump at perturbations of a part of what that explains.
    delta = min(2.0**-6, off.normwise * e.roundoff / t.above)
    steps = {name: _roughness(e, name, result, delta)[0] for name, result in wide.items()}
    least, most = sorted(steps, key=steps.__getitem__)
    if steps[least] < t.half <= steps[most]:
        e.rounds_inside = most
    return False


def _roughness(e: Any, name: str, here: Result, delta: float) -> tuple[float, float]:
    """Return the second difference along lines relative to the first, and itself."""
    first = second = 0.0
    for k in range(e.thresholds.directions):
        near, far = (
            e.implementations[name](e.perturb(times * delta, e.seed + 65 + k, wide=True))
            for times in (1, 2)
        )
        if not comparable(near, far, here):
            return 0.0, 0.0
        begun, then = difference(near, here), difference(far, near)
        first = math.hypot(first, finite_rms(begun))
        second = math.hypot(second, finite_rms(then - begun))
    return second / first if first else math.inf, second / math.sqrt(e.thresholds.directions)


def source_of(e: Any, name: str, implementation: Implementation, result: Result) -> Source:
    """Estimate the noise level of a reference result by calls at perturbed inputs."""
    seeds = [e.seed + k for k in range(e.thresholds.perturbations)]
    spread = perturbation_rms(implementation, result, e.perturb_alone, e.roundoff, seeds, wide=True)
    rounding = np.hypot(spread, result_roundoffs(result, e.roundoff))
    noise = np.hypot(rounding, SMALLEST.get(e.form, 0.0))
    return Source(name, implementation, result, noise, condition_number(spread, result, e.roundoff))


def _choose(e: Any, wide: dict[str, Result]) -> Source | None:
    """Choose f or g as the reference: f, unless g has more finite results or rounds less."""
    # g alone is a reference only if the caller says so: it would be the port that blames f.
    if not wide or (e.source == "auto" and "f" not in wide):
        return None
    finite = {
        name: int(np.isfinite(result.numbers(np.float64)).sum()) for name, result in wide.items()
    }
    order = sorted(wide, key=lambda name: (-finite[name], name == e.rounds_inside, name))
    first, *others = order
    if first != e.rounds_inside and e.rounds_inside in others:
        others = []
    chosen = source_of(e, first, e.implementations[first], wide[first])
    for name in others:  # lower precision inside hides perturbations
        if chosen.condition < e.thresholds.insensitive and finite[name] == finite[first]:
            other = source_of(e, name, e.implementations[name], wide[name])
            # A larger condition number would not be that of the same function.
            if e.thresholds.insensitive <= other.condition < e.thresholds.ill_conditioned:
                return other
    return chosen


# A perturbation in ulps of the working precision: inputs then use all bits of the higher one.
_PERTURBATION = 0.731


@dataclass
class HigherPrecision:
    """Differences of f and g in higher precision, at inputs that use all of its bits."""

    e: Any

    @cached_property
    def _perturbed(self) -> tuple[Result, Result]:
        return self._evaluate(1.0)

    def _evaluate(self, times: float) -> tuple[Result, Result]:
        e = self.e
        x = e.perturb(_PERTURBATION * times * e.roundoff, e.seed + 70, wide=True)
        return e.f(x), e.g(x)

    @property
    def comparable(self) -> bool:
        """Whether the results at perturbed inputs can be compared."""
        return comparable(*self._perturbed)

    @property
    def fine(self) -> float:
        """Unit roundoff of the higher precision."""
        return ROUNDOFF["float64"] if self.e.form != "float64" else 2.0**-64

    @property
    def allowed(self) -> float:
        """Limit of rounding errors; for formats below float32, that of float32."""
        within = ROUNDOFF["float32"] if self.e.roundoff > ROUNDOFF["float32"] else self.fine
        return float(self.e.allowed * within / self.fine)

    @cached_property
    def difference(self) -> NDArray:
        same = self._perturbed[0].forms == self.e.result_f.forms
        # Otherwise their number depends on the values, as for distinct numbers.
        return difference(*self._perturbed) if same else self.unmoved

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
        finite = np.isfinite(e.scale) & np.isfinite(self.noise)
        here, there = finite_rms(e.scale[finite]), finite_rms(self.noise[finite])
        most = e.roundoff / self.fine
        return float(min(most, max(1.0, here / there)) if there else most)

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
        flushed = np.logical_or(*e.flushed_by.values())
        here = e.norms(np.where(flushed, 0.0, e.difference))
        expected = self.expected_fall * max(here.rms, 1.0 if e.within_rounding else 1e-3)
        more = far.rms > expected
        if math.isinf(far.rms):  # noise level 0: there is no rounding in these results
            more = far.absolute > self.expected_fall / self.gain * here.absolute
        allowed = self.allowed
        if e.form == "float64":  # constants in source code are rounded to float64
            allowed = max(allowed, t.systematic * e.roundoff / self.fine)
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
        f, g = self._evaluate(self.e.thresholds.redraw)
        if not self.norms.absolute or not comparable(f, g):
            return 1.0
        return finite_rms(difference(f, g)) / self.norms.absolute
