"""All measurements of two implementations, each made once, when a rule first reads it."""

import math
from functools import cached_property

import numpy as np

from .._core.dtypes import ROUNDOFF
from .._core.protocols import NDArray
from .._core.report import brief
from . import elsewhere, inferred_formats
from .arrays import Point, comparable, is_perturbable, perturbable, to_higher_precision
from .comparison import measured, source_of
from .higher_precision import Differences
from .noise_level import difference
from .observed_formats import roundoff_of
from .range_loss import RangeLoss, find_range_loss
from .repeats import Repeats, find_changes
from .round_to_format import quantum_of_results

# Number of entries of an input up to which its singular values are computed.
_MAX_MATRIX = 1 << 16
# Functions of torch that add a bias within a matrix product, and those that do one of both.
_FUSED = frozenset({"linear", "addmm", "addmv", "baddbmm", "addbmm"})
_PRODUCTS = frozenset({"matmul", "__matmul__", "mm", "bmm", "mv", "einsum"})
_SUMS = frozenset({"add", "__add__", "add_", "__iadd__", "__radd__"})


class Evidence(Differences):
    """All measurements that rules read, each made once, when a rule first reads it."""

    integers = measured(elsewhere.Integers)
    agrees_elsewhere = measured(elsewhere.agreement_elsewhere)
    ignores_strides = measured(elsewhere.ignores_strides)
    jumps = measured(elsewhere.jumps)
    arrangements = measured(elsewhere.arrangements)
    other_numbers = measured(elsewhere.other_numbers)
    stored_format = measured(inferred_formats.format_of_results)
    format_of_sums = measured(inferred_formats.format_of_sums)
    quantum = measured(quantum_of_results)

    @measured
    def repeats(self) -> Repeats:
        """How results change when f and g are called again with the same inputs."""
        names = [
            name
            for name, (first, *rest) in self.repeated_results.items()
            if any(y.bits() != first.bits() for y in rest)
        ]
        self.evidence["repeats_differ"] = names
        calls = len(self.repeated_results["f"])
        return find_changes(self, tuple(names)) if names else Repeats(calls)

    @measured
    def range_loss(self) -> RangeLoss | None:
        """Find results that are lost by overflow, underflow or the boundary of a domain."""
        numbers = (y.numbers(np.float64) for y in self.results.values())
        fits = all(np.isfinite(x).all() for x in numbers) and not self.flushed.any()
        return None if fits and self.within_rounding else find_range_loss(self)

    @cached_property
    def wrong_integers(self) -> bool:
        """Whether integers differ as much in higher precision, or with exact inputs."""
        return bool(self.integers.differing) and self.integers.same_in_higher_precision

    @measured
    def inferred_format(self) -> inferred_formats.InferredFormat | None:
        """Find the lower precision that explains the difference, by the surest sign."""
        if self.differ and inferred_formats.falls(self):
            return None
        return self.stored_format or self.format_of_sums or inferred_formats.infer_format(self)

    # Formats

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
        return there.condition < t.insensitive

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
