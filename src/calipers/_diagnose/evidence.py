"""All measurements of two implementations, each made once, when a rule first reads it."""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from itertools import combinations

import numpy as np

from .._core.dtypes import ROUNDOFF
from .._core.protocols import NDArray
from .._core.report import brief
from .callables import BudgetError
from .comparison import Comparison, measured
from .elsewhere import (
    Arrangements,
    Elsewhere,
    Jumps,
    agreement_elsewhere,
    ignores_strides,
    other_numbers,
)
from .higher_precision import HigherPrecision, source_of
from .inferred_formats import (
    InferredFormat,
    format_of_results,
    format_of_sums,
    infer_format,
)
from .inputs import Point, is_perturbable, perturbable, to_higher_precision
from .noise_level import (
    cosine,
    difference,
    error_norms,
    finite_rms,
)
from .observed_formats import roundoff_of
from .range_loss import RangeLoss, find_range_loss, flushed_by
from .results import comparable
from .round_to_format import quantum_of_results

# Number of entries of an input up to which its singular values are computed.
_MAX_MATRIX = 1 << 16
# Functions of torch that add a bias within a matrix product, and those that do one of both.
_FUSED = frozenset({"linear", "addmm", "addmv", "baddbmm", "addbmm"})
_PRODUCTS = frozenset({"matmul", "__matmul__", "mm", "bmm", "mv", "einsum"})
_SUMS = frozenset({"add", "__add__", "add_", "__iadd__", "__radd__"})


class Evidence(Comparison):
    """All measurements that rules read, each made once, when a rule first reads it."""

    # Are the functions the same?

    @measured
    def wide(self) -> HigherPrecision | None:
        """Differences in higher precision; None if f or g cannot compute in it."""
        if len(self.wide_results) < 2:
            return None
        wide = HigherPrecision(self)
        return wide if wide.comparable else None

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

    @measured
    def digits_redrawn(self) -> bool:
        """
        Whether a difference that is alike near the inputs consists of digits that one loses there.

        Those of small results, which larger ones hide in norms, are redrawn at far inputs; those
        of the reference implementation itself are not in the errors of the other one.
        """
        t, source = self.thresholds, self.reference_source
        alike = self.near_similarity or 0.0
        if self.error_difference.normwise * math.sqrt(alike) <= t.systematic:
            far = [self.similarity(t.far, self.seed + 860 + k) or 0.0 for k in range(4)]
            if float(np.mean(far)) < t.unrelated:
                return True
        if source is None and "g" in self.wide_results:  # it is no reference, but loses digits
            exact, implementation = self.wide_results["g"], self.g
        elif source is not None and source.name in self.implementations:
            exact, implementation = source.result, source.implementation
        else:
            return False
        name = "f" if implementation is self.g else "g"

        def off_at(delta: float, seed: int) -> NDArray | None:
            x = self.perturb(delta, seed, wide=False)
            y, r = self.implementations[name](x), implementation(to_higher_precision(x))
            return difference(y, r) if comparable(y, r, self.result_f) else None

        here = difference(self.results[name], exact)
        size = self.norms(here).rms
        if size <= t.systematic:
            return True
        alike = self.mean_similarity(here, off_at) or 0.0
        return size * math.sqrt(alike) <= t.systematic

    @measured
    def agrees_elsewhere(self) -> Elsewhere | None:
        """How f and g agree at perturbed inputs, although they differ here: at ties, say."""
        return agreement_elsewhere(self)

    @cached_property
    def wrong_integers(self) -> bool:
        """Whether integers differ as much in higher precision, or with exact inputs."""
        return bool(self.integers.differing) and self.integers.same_in_higher_precision

    @measured
    def ignores_strides(self) -> str | None:
        """Find an implementation that is right only for arrays without gaps."""
        return ignores_strides(self)

    @measured
    def jumps(self) -> Jumps:
        """Which results jump by as much as f and g differ when inputs change by a few ulps."""
        return Jumps(self)

    @measured
    def arrangements(self) -> Arrangements:
        """Results of parts of a batch and of other memory layouts."""
        return Arrangements(self)

    @measured
    def other_numbers(self) -> str | None:
        """Which other numbers of f the results of g are: those of a transposed input, say."""
        return other_numbers(self)

    @cached_property
    def ill_conditioned_matrix(self) -> str | None:
        """Describe an input whose condition number, or close singular values, explain that of f."""
        for k in perturbable(self.inputs):
            x = self.inputs[k]
            if x.ndim < 2 or not 1 < min(x.shape[-2:]) or x.size > _MAX_MATRIX:
                continue
            if not np.isfinite(x).all():
                continue
            s = np.linalg.svd(x.astype(complex if x.dtype.kind == "c" else float), compute_uv=False)
            with np.errstate(all="ignore"):
                kappa = float(np.max(s[..., 0] / s[..., -1]))
                gap = float(np.min(-np.diff(s) / s[..., :1]))
            needed, title = self.condition / self.thresholds.few, f"input {self.title(k)}"
            if kappa >= needed:
                return f"{title} is an ill-conditioned matrix (condition number {brief(kappa)})"
            if gap * needed <= 1:
                text = (
                    f"{title} has close singular values, {brief(gap)} of the largest apart: their "
                )
                return text + "singular vectors are ill-conditioned"
        return None

    @property
    def fused(self) -> str | None:
        """The torch function that adds a bias within a matrix product, unlike the other."""
        names = [name for name, x in self.implementations.items() if x.functions & _FUSED]
        others = [x.functions for name, x in self.implementations.items() if name not in names]
        if len(names) != 1 or not others[0] & _PRODUCTS or not others[0] & _SUMS:
            return None
        return names[0]

    # Formats and ranges

    @measured
    def observed(self) -> dict[str, dict[str, int]]:
        """How many results of operations of each implementation have each format."""
        formats = {
            name: implementation.observed_formats(self.inputs)
            for name, implementation in self.implementations.items()
        }
        if any(formats.values()):
            self.evidence["observed"] = formats
        return formats

    @cached_property
    def observed_reduction(self) -> tuple[str, str] | None:
        """The implementation that computes in a lower precision, and the coarsest that it uses."""
        lower = {
            name: {form for form in formats if roundoff_of(form) > self.roundoff}
            for name, formats in self.observed.items()
        }
        for name, other in (("g", "f"), ("f", "g")):
            if lower[name] - lower[other]:
                return name, max(lower[name] - lower[other], key=roundoff_of)
        return None

    @measured
    def difference_without_formats(self) -> NDArray | None:
        """Measure f - g with float64 instead of every lower format, if that is possible."""
        if self.wide is not None:
            return self.wide.difference
        results = []
        for implementation in self.implementations.values():
            if self.form != "float64" or not implementation.uses_torch:
                return None
            implementation.runs_in_float64 = True
            results.append(implementation(Point(self.inputs, wide=True)))
            implementation.runs_in_float64 = False
        return difference(*results) if comparable(*results, self.result_f) else None

    @measured
    def stored_format(self) -> InferredFormat | None:
        """Find the lower precision whose numbers all results of one implementation are."""
        return None if self.error_difference.broken else format_of_results(self)

    @measured
    def format_of_sums(self) -> InferredFormat | None:
        """Find the lower precision of sums that fall behind."""
        return format_of_sums(self)

    @measured
    def inferred_format(self) -> InferredFormat | None:
        """Find the lower precision that explains the difference."""
        return infer_format(self)

    @measured
    def quantum(self) -> tuple[str, float] | None:
        """Find an implementation whose results are multiples of an ulp of larger numbers."""
        return quantum_of_results(self)

    @cached_property
    def flushed_by(self) -> dict[str, NDArray]:
        """Masks of results that are 0 in one implementation, and subnormal in the other."""
        return flushed_by(self)

    @measured
    def range_loss(self) -> RangeLoss | None:
        """Find results that are lost by overflow, underflow or the boundary of a domain."""
        return find_range_loss(self)

    @measured
    def grows_in_float32(self) -> bool:
        """Whether differences of float64 are by far larger in float32, as lost digits are."""
        t = self.thresholds
        if self.form != "float64" or self.error_difference.broken:
            return False
        here, there = np.zeros(self.difference.size), np.zeros(self.difference.size)
        for k in range(t.directions + 1):  # to see a typical rounding error in one
            x = self.perturb(t.far / 8 if k else 0.0, self.seed + 880 + k, wide=False)
            low = [
                v.astype("c8" if v.dtype.kind == "c" else "f4") if is_perturbable(v) else v
                for v in x
            ]
            pairs = [(self.f(v), self.g(v)) for v in (x, low)]
            if not comparable(self.result_f, *pairs[0], *pairs[1]):
                return False
            here, there = (
                np.fmax(d, np.abs(difference(*pair)))
                for d, pair in zip((here, there), pairs, strict=True)
            )
        beyond = np.abs(self.difference) > self.allowed * self.scale
        grown = there > t.lucky**-1 * (ROUNDOFF["float32"] / self.roundoff) * here
        grown &= np.isfinite(there)
        return bool(np.mean(grown[beyond]) >= t.explained) if beyond.any() else False

    @measured
    def other_is_insensitive(self) -> bool:
        """Whether the reference amplifies perturbations that the other function ignores."""
        t, source = self.thresholds, self.reference_source
        if source is None or len(self.wide_results) < 2 or source.name not in self.wide_results:
            return False
        name = "g" if source.name == "f" else "f"
        there = source_of(self, name, self.implementations[name], self.wide_results[name])
        return self.condition > t.ill_conditioned and there.condition < t.insensitive

    @measured
    def constant_in_steps(self) -> str | None:
        """Find an implementation whose wrong results do not change by 1 ulp, unlike the other's."""
        t = self.thresholds
        lost = np.abs(self.difference) > t.single * self.allowed * self.scale
        if self.error_difference.broken or not lost.any():
            return None
        shares = {}
        for name, here in self.results.items():
            unchanged, numbers = lost.copy(), here.numbers(np.float64)
            for k in range(2):
                x = self.perturb(t.base * self.roundoff, self.seed + 870 + k, wide=False)
                there = self.implementations[name](x)
                if not comparable(there, here):
                    return None
                unchanged &= there.numbers(np.float64) == numbers
            varies = np.unique(numbers[lost]).size > 1
            shares[name] = np.count_nonzero(unchanged) / np.count_nonzero(lost) if varies else 0.0
        stays, changes = sorted(shares, key=lambda name: -shares[name])
        if self.errors and stays != self.less_exact:
            return None
        steps = shares[stays] >= t.persistent and shares[changes] < t.persistent
        return stays if steps else None
