"""Call two implementations, and measure their errors relative to a reference."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from .._core.dtypes import FORMATS, ROUNDOFF, SMALLEST
from .._core.protocols import NDArray
from .arrays import Result, comparable, is_integer_array, is_wide, perturbable, to_higher_precision
from .callables import Implementation
from .noise_level import (
    ErrorNorms,
    Perturbations,
    condition_number,
    difference,
    error_norms,
    finite_rms,
    largest_finite,
    perturbation_rms,
    require_comparable,
    result_roundoffs,
    worst_error_norms,
)
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


@dataclass(frozen=True)
class Source:
    """An implementation from whose result errors are measured."""

    name: str
    implementation: Implementation
    result: Result
    noise: NDArray  # expected rounding error of each result in the working precision
    condition: float  # the condition number of the function
    is_wide: bool = True  # in higher precision


class References(NamedTuple):
    """The reference, and the results in higher precision that it is chosen from."""

    source: Source | None
    results: dict[str, Result]
    rounds_inside: str | None = None  # which one rounds to a lower precision there


# A perturbation in ulps of the working precision: inputs then use all bits of the higher one.
_PERTURBATION = 0.731


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

    @property
    def compiled_parameters(self) -> list[str]:
        """Which functions capture arrays that cannot be perturbed, since they are compiled in."""
        return [k for k, x in self.implementations.items() if x.parameters.are_compiled_in]

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

    def with_integers_as(self, dtype: str) -> Self | None:
        """Return the comparison with integer inputs as numbers; None if results are different."""
        inputs = tuple(x.astype(dtype) if is_integer_array(x) else x for x in self.inputs)
        numbers = replace(self, inputs=inputs, evidence={}, costs={})
        same = (numbers.results[name].bits() == y.bits() for name, y in self.results.items())
        return numbers if all(same) else None

    @property
    def difference_is_defined(self) -> bool:
        """Whether results can be compared entry by entry."""
        return comparable(self.result_f, self.result_g)

    @cached_property
    def same_bits(self) -> bool:
        return self.result_f.bits() == self.result_g.bits()

    @cached_property
    def difference(self) -> NDArray:
        return difference(self.result_f, self.result_g)

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

    @property
    def fine(self) -> float:
        """Unit roundoff of the higher precision."""
        return ROUNDOFF["float64"] if self.form != "float64" else 2.0**-64

    def evaluate_wide(self, times: float = 1.0) -> tuple[Result, Result]:
        """Call f and g in higher precision, at inputs that use all of its bits."""
        delta = _PERTURBATION * times * self.roundoff
        return self.evaluate_perturbed(delta, self.seed + 70, wide=True)

    @measured
    def perturbed_in_higher_precision(self) -> tuple[Result, Result]:
        return self.evaluate_wide()

    @measured
    def references(self) -> References:
        """Call f and g in higher precision, and choose the one that errors are measured from."""
        return _references(self)

    @property
    def wide_results(self) -> dict[str, Result]:
        """Results in higher precision of the implementations that can compute them."""
        return self.references.results

    @property
    def reference_source(self) -> Source | None:
        """The implementation whose result in higher precision is the reference."""
        return self.references.source

    @property
    def rounds_inside(self) -> str | None:
        """The implementation that rounds to a lower precision, also if called in a higher one."""
        return self.references.rounds_inside

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
    def noise_source(self) -> Source:
        """Measure the noise level of the reference, or of f if there is none."""
        return self.reference_source or source_of(self, "f", self.f, self.result_f, wide=False)

    @property
    def scale(self) -> NDArray:
        """The expected rounding error of each result, the effect of 1-ulp perturbations."""
        return self.noise_source.noise

    @property
    def condition(self) -> float:
        """Condition number: the change by 1-ulp perturbations relative to one rounding."""
        return self.noise_source.condition

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

    @cached_property
    def flushed_by(self) -> dict[str, NDArray]:
        """Masks of results that are 0 in one implementation, and subnormal in the other."""
        fraction, lowest = FORMATS[self.form][:2]
        numbers = {name: y.numbers(np.float64) for name, y in self.results.items()}
        masks = {}
        for name, y in numbers.items():
            lost = y == 0
            if lost.any():
                other = np.abs(numbers["f" if name == "g" else "g"])
                lost &= other > self.allowed * np.maximum(2.0 ** (lowest - fraction), self.scale)
                # Zeros in place of normal numbers are not due to flushing.
                lost &= not (other[lost] >= 2.0**lowest).any()
            masks[name] = lost
        return masks

    @property
    def flushed(self) -> NDArray:
        """Mask of results that are 0 in either, and subnormal in the other."""
        either: NDArray = np.logical_or(*self.flushed_by.values())
        return either


def _references(e: Comparison) -> References:
    results = {}
    for name, implementation in e.implementations.items():
        if e.source in ("auto", "both", name):
            result = _in_higher_precision(e, name, implementation)
            if comparable(result, e.result_f) and is_wide(result, e.form):
                results[name] = result
    if e.reference_function is not None:
        function = Implementation("reference", e.reference_function, e.f.likes, e.f.budget)
        result = function(to_higher_precision(e.inputs))
        require_comparable(result, e.result_f, e.roundoff)
        return References(source_of(e, "reference", function, result), results)
    rounds_inside, is_explained = _rounds_inside(e, results)
    if is_explained and rounds_inside is not None:
        del results[rounds_inside]
    return References(_choose(e, results, rounds_inside), results, rounds_inside)


def _in_higher_precision(e: Comparison, name: str, implementation: Implementation) -> Result:
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


def _rounds_inside(e: Comparison, wide: dict[str, Result]) -> tuple[str | None, bool]:
    """
    Find an implementation that rounds to the working precision or less inside, unlike the other.

    Its results are in higher precision, but along a line they are not locally linear: they stay
    constant, or their rounding errors are uncorrelated. It is no reference. Return also whether
    that noise explains how far the functions differ: they are then not compared in higher
    precision.
    """
    if len(wide) < 2 or not e.can_perturb:
        return None, False
    pair = e.perturbed_in_higher_precision
    if not comparable(*pair, e.result_f):
        return None, False
    t, far = e.thresholds, difference(*pair)
    off = error_norms(far, result_roundoffs(wide["f"], e.roundoff))
    # Digits that an algorithm loses in both precisions fall by the gain in precision.
    times = t.single if e.difference.size >= t.few else t.lucky  # one may be small by chance
    if off.absolute <= max(t.large, times * e.fine / e.roundoff) * finite_rms(e.difference):
        return None, False
    if off.broken or not t.rounded_inside < off.normwise < t.half / e.roundoff:
        return None, False
    rough = {name: _roughness(e, name, result, e.roundoff) for name, result in wide.items()}
    least, most = sorted(rough, key=lambda name: rough[name][0])
    if rough[most][0] >= max(t.linear, t.above * rough[least][0]):
        return most, bool(off.absolute <= t.single * rough[most][1])
    # Values in a lower precision jump at perturbations of a part of what that explains.
    delta = min(2.0**-6, off.normwise * e.roundoff / t.above)
    steps = {name: _roughness(e, name, result, delta)[0] for name, result in wide.items()}
    least, most = sorted(steps, key=steps.__getitem__)
    return most if steps[least] < t.half <= steps[most] else None, False


def _roughness(e: Comparison, name: str, here: Result, delta: float) -> tuple[float, float]:
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


def source_of(
    e: Comparison, name: str, implementation: Implementation, result: Result, wide: bool = True
) -> Source:
    """Estimate the noise level of a result by calls at perturbed inputs."""
    t = e.thresholds
    times = 1.0 if wide else t.above  # rounding of results is then small
    seeds = [e.seed + k for k in range(t.perturbations)]
    change = perturbation_rms(
        implementation, result, e.perturb_alone, times * e.roundoff, seeds, wide
    )
    spread = change / times
    rounding = np.hypot(spread, result_roundoffs(result, e.roundoff))
    noise = np.hypot(rounding, SMALLEST.get(e.form, 0.0))
    condition = condition_number(spread, result, e.roundoff)
    return Source(name, implementation, result, noise, condition, wide)


def _choose(e: Comparison, wide: dict[str, Result], rounds_inside: str | None) -> Source | None:
    """Choose f or g as the reference: f, unless g has more finite results or rounds less."""
    # g alone is a reference only if the caller says so: it would be the port that blames f.
    if not wide or (e.source == "auto" and "f" not in wide):
        return None
    finite = {
        name: int(np.isfinite(result.numbers(np.float64)).sum()) for name, result in wide.items()
    }
    order = sorted(wide, key=lambda name: (-finite[name], name == rounds_inside, name))
    first, *others = order
    if rounds_inside in others:
        others = []
    chosen = source_of(e, first, e.implementations[first], wide[first])
    for name in others:  # lower precision inside hides perturbations
        if chosen.condition < e.thresholds.insensitive and finite[name] == finite[first]:
            other = source_of(e, name, e.implementations[name], wide[name])
            # A larger condition number would not be that of the same function.
            if e.thresholds.insensitive <= other.condition < e.thresholds.ill_conditioned:
                return other
    return chosen
