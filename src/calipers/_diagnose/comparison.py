"""Call two implementations, and measure their errors relative to a reference."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .._compare.text import differing
from .._core.dtypes import FORMATS, ROUNDOFF
from .._core.protocols import NDArray
from .callables import Implementation
from .elsewhere import (
    Integers,
)
from .higher_precision import Source, choose_source
from .inputs import perturbable
from .noise_level import (
    ErrorNorms,
    Perturbations,
    condition_number,
    difference,
    finite_rms,
    largest_finite,
    perturbation_rms,
    result_roundoffs,
    worst_error_norms,
)
from .repeats import Repeats, repeat
from .results import Result, comparable
from .thresholds import THRESHOLDS, Thresholds

if TYPE_CHECKING:
    measured = cached_property
else:

    class measured(cached_property):  # noqa: N801
        """A property that is measured once, and counts the calls of f and g that this takes."""

        def __get__(self, e, owner=None):
            if e is None:
                return self
            before = e.f.budget.spent
            value = super().__get__(e, owner)
            if e.f.budget.spent > before:
                e.costs[self.attrname] = e.f.budget.spent - before
            return value


@dataclass
class Comparison:
    """Two implementations, their inputs and results, and errors in units of rounding."""

    f: Implementation
    g: Implementation
    inputs: tuple[Any, ...]
    form: str  # the working precision
    source: str | None = None  # of the reference: "auto", "both", "f", "g" or None
    reference_function: Callable[..., Any] | None = None
    length: int = 1  # of the longest sum
    batch: tuple[int, ...] = ()
    seed: int = 0
    thresholds: Thresholds = THRESHOLDS
    evidence: dict[str, Any] = field(default_factory=dict)  # numbers for the report
    titles: tuple[str, ...] = ()  # labels of the inputs, if not their positions
    owners: tuple[int, ...] = ()  # the caller's input that each is part of
    options: dict[str, str] = field(default_factory=dict)  # of the call, as code
    unpacked: bool = True  # the inputs are a tuple or list of arguments
    costs: dict[str, int] = field(default_factory=dict)  # calls of each measurement
    rounds_inside: str | None = None  # to a lower precision, also if called in a higher one

    def __post_init__(self) -> None:
        self.g.share_parameters(self.f)

    def title(self, k: int) -> str:
        """Return the label of input k."""
        return self.titles[k] if self.titles else str(k)

    @property
    def roundoff(self) -> float:
        return ROUNDOFF[self.form]

    @property
    def allowed(self) -> float:
        """Largest rounding error in units of the expected one: 4 + sqrt(n)."""
        return self.thresholds.base + math.sqrt(self.length)

    @property
    def implementations(self) -> dict[str, Implementation]:
        return {"f": self.f, "g": self.g}

    # Results

    @measured
    def result_f(self) -> Result:
        return self.f(self.inputs)

    @measured
    def result_g(self) -> Result:
        return self.g(self.inputs)

    @property
    def results(self) -> dict[str, Result]:
        return {"f": self.result_f, "g": self.result_g}

    def join_numbers(self) -> None:
        """Join several numbers to an array if the other implementation returns an array."""
        f, g = self.result_f.joined(), self.result_g.joined()
        if f.shapes == self.result_g.shapes:
            self.f.merges_numbers, self.result_f = True, f
        elif g.shapes == self.result_f.shapes:
            self.g.merges_numbers, self.result_g = True, g

    @property
    def difference_is_defined(self) -> bool:
        """Whether results can be compared entry by entry."""
        return comparable(self.result_f, self.result_g)

    @cached_property
    def same_bits(self) -> bool:
        return self.result_f.bits() == self.result_g.bits()

    @measured
    def repeats(self) -> Repeats:
        """Call f and g again with the same inputs."""
        return repeat(self)

    @cached_property
    def difference(self) -> NDArray:
        return difference(self.result_f, self.result_g)

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
    def integers(self) -> Integers:
        """Differences of integers among the results."""
        return Integers(self)

    # Perturbations

    @cached_property
    def perturb(self) -> Perturbations:
        """Perturb inputs and common parameters; a call overwrites the arrays of the last one."""
        return Perturbations(self.inputs)

    @cached_property
    def perturb_alone(self) -> Perturbations:
        """As `perturb`, also of parameters that only one function has."""
        return Perturbations(self.inputs, alone=True)

    @cached_property
    def can_perturb(self) -> bool:
        """Whether perturbations change anything: zeros and integers stay as they are."""
        changes = (self.inputs[k] for k in perturbable(self.inputs))
        return bool(self.f.shared) or any(bool(np.any(np.isfinite(x) & (x != 0))) for x in changes)

    @cached_property
    def natural_size(self) -> float:
        """The largest input, at least 1: a bound on intermediate values."""
        return max(
            [1.0, *(largest_finite(np.abs(self.inputs[k])) for k in perturbable(self.inputs))]
        )

    @cached_property
    def typical_size(self) -> float:
        """The median magnitude of the inputs, at least 1."""
        sizes = (np.abs(self.inputs[k]) for k in perturbable(self.inputs))
        finite = (x[np.isfinite(x)] for x in sizes)
        return max([1.0, *(float(np.median(x)) for x in finite if x.size)])

    def evaluate_perturbed(
        self, delta: float, seed: int, *, zeros: bool = False, wide: bool = False
    ) -> tuple[Result, Result]:
        """Call f and g at perturbed inputs; `zeros` also perturbs zeros, by delta of the RMS."""
        x = self.perturb(delta, seed, wide)
        if zeros:
            random = np.random.default_rng(seed % 2**64)
            for k in perturbable(x):
                nothing = x[k] == 0
                some = random.standard_normal(int(np.count_nonzero(nothing)))
                x[k][nothing] = delta * (finite_rms(x[k]) or 1.0) * some
        return self.f(x), self.g(x)

    def perturbed_difference(
        self, delta: float, seed: int, *, wide: bool = False
    ) -> NDArray | None:
        """Return f - g at perturbed inputs; None if results cannot be compared."""
        f, g = self.evaluate_perturbed(delta, seed, wide=wide)
        return difference(f, g) if comparable(f, g, self.result_f) else None

    # The reference, and errors in units of the expected rounding error

    @measured
    def wide_results(self) -> dict[str, Result]:
        """Results in higher precision of the implementations that can compute them."""
        return choose_source(self)[1]

    @measured
    def reference_source(self) -> Source | None:
        """Choose the implementation whose result in higher precision is the reference."""
        return choose_source(self)[0]

    @property
    def has_named_reference(self) -> bool:
        """Whether the caller said which function is right."""
        return self.reference_function is not None or self.source in ("f", "g")

    @property
    def reference_name(self) -> str | None:
        """The name of the implementation that errors are measured from."""
        return None if self.reference_source is None else self.reference_source.name

    @property
    def reference(self) -> Result | None:
        """The result that errors are measured from, in higher precision; None if there is none."""
        return None if self.reference_source is None else self.reference_source.result

    @measured
    def scale(self) -> NDArray:
        """Measure the expected rounding error of each result, the effect of 1-ulp perturbations."""
        if self.reference_source is not None:
            return self.reference_source.noise
        t = self.thresholds
        seeds = [self.seed + k for k in range(t.perturbations)]
        spread = perturbation_rms(
            self.f, self.result_f, self.perturb_alone, t.above * self.roundoff, seeds, wide=False
        )
        self._spread = spread / t.above
        scale: NDArray = np.hypot(spread / t.above, result_roundoffs(self.result_f, self.roundoff))
        return scale

    @cached_property
    def condition(self) -> float:
        """Condition number: the change by 1-ulp perturbations relative to one rounding."""
        if self.reference_source is not None:
            return self.reference_source.condition
        return condition_number(self.scale, self.result_f, self.roundoff)

    def norms(self, d: NDArray, unit: NDArray | None = None) -> ErrorNorms:
        """Measure errors of the results in units of the expected rounding error."""
        return worst_error_norms(self.result_f, d, self.scale if unit is None else unit)

    def deviation(self, result: Result) -> NDArray:
        """Return the errors of a result: 0 for correct overflow, infinite for other infinities."""
        assert self.reference is not None
        d = difference(result, self.reference)
        lost = ~np.isfinite(d)
        if lost.any():
            y, r = result.numbers(np.float64)[lost], self.reference.numbers(np.float64)[lost]
            beyond = np.isinf(y) & (np.abs(r) > self.largest) & (np.sign(y) == np.sign(r))
            d[np.flatnonzero(lost)[beyond]] = 0
        return d

    @property
    def largest(self) -> float:
        """The largest number of the working format."""
        return FORMATS[self.form].largest

    @cached_property
    def errors(self) -> dict[str, ErrorNorms]:
        """Errors of f and of g from the reference; of their difference if there is none."""
        if self.reference is None:
            return {}
        return {name: self.norms(self.deviation(y)) for name, y in self.results.items()}

    @cached_property
    def error_difference(self) -> ErrorNorms:
        return self.norms(self.difference)

    def is_rounding(self, size: ErrorNorms) -> bool:
        """Return True if rounding explains both the robust norm and the largest error."""
        single = self.thresholds.single * self.allowed
        return size.robust <= self.allowed and size.peak <= single and not size.broken

    @cached_property
    def within_rounding(self) -> bool:
        """Whether rounding explains the errors of both, or their difference without a reference."""
        if not self.difference.any():
            return True
        return all(map(self.is_rounding, self.errors.values() or (self.error_difference,)))

    @property
    def worst_error(self) -> float:
        """The larger error of f and g, or their difference if there is no reference."""
        return max(size.robust for size in self.errors.values() or (self.error_difference,))

    @property
    def less_exact(self) -> str:
        """The implementation with the larger error."""
        return max(self.errors, key=lambda name: self.errors[name].rms) if self.errors else "g"

    @cached_property
    def effective_count(self) -> float:
        """Effective number of differing entries: small differences count less than large ones."""
        with np.errstate(all="ignore"):
            squares = np.square(self.difference / self.scale)
            squares /= np.max(squares, where=np.isfinite(squares), initial=0.0)
        squares = squares[np.isfinite(squares)]
        total = float(np.sum(np.square(squares)))
        return float(np.sum(squares)) ** 2 / total if total else 0.0
