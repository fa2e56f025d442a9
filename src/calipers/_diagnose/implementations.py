"""Call two implementations at the inputs and at perturbed inputs."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .._core.dtypes import ROUNDOFF
from .._core.protocols import NDArray
from .callables import Implementation, Result, comparable
from .inputs import perturbable
from .noise_level import ErrorNorms, Perturbations, difference, finite_rms, largest_finite
from .verdict import ALONE


@dataclass
class ImplementationPair:
    """Two implementations, their inputs, and the settings of the comparison."""

    f: Implementation
    g: Implementation
    inputs: tuple[Any, ...]
    form: str  # the working precision
    widens: str | None = None  # called in higher precision: "fg", "f", "g" or None
    reference_function: Callable[..., Any] | None = None
    length: int = 1  # of the longest sum
    batch: tuple[int, ...] = ()
    seed: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)
    nondeterminism_note: str = ""  # added to the reason
    titles: tuple[str, ...] = ()  # labels of the inputs, if not their positions
    owners: tuple[int, ...] = ()  # the caller's input that each is part of
    options: dict[str, str] = field(default_factory=dict)  # of the call, as code
    unpacked: bool = True  # the inputs are a tuple or list of arguments

    def title(self, k: int) -> str:
        """Return the label of input k."""
        return self.titles[k] if self.titles else str(k)

    @property
    def roundoff(self) -> float:
        return ROUNDOFF[self.form]

    @property
    def implementations(self) -> dict[str, Implementation]:
        return {"f": self.f, "g": self.g}

    @property
    def results(self) -> dict[str, Result]:
        return {"f": self.result_f, "g": self.result_g}

    @property
    def allowed(self) -> float:
        """Largest rounding error in units of the expected one: 4 + sqrt(n)."""
        return 4 + math.sqrt(self.length)

    def is_rounding(self, size: ErrorNorms) -> bool:
        """Return True if rounding explains both the robust norm and the largest error."""
        return size.robust <= self.allowed and size.peak <= ALONE * self.allowed and not size.broken

    @cached_property
    def result_f(self) -> Result:
        return self.f(self.inputs)

    @cached_property
    def result_g(self) -> Result:
        return self.g(self.inputs)

    @cached_property
    def perturb(self) -> Perturbations:
        """Function that perturbs the inputs; each call overwrites the previous arrays."""
        return Perturbations(self.inputs)

    @cached_property
    def natural_size(self) -> float:
        """Bound on the magnitude of intermediate values: the largest input, at least 1."""
        return max([1.0, *map(largest_finite, self._sizes)])

    @cached_property
    def typical_size(self) -> float:
        """Median magnitude of the inputs, at least 1."""
        finite = (sizes[np.isfinite(sizes)] for sizes in self._sizes)
        return max([1.0, *(float(np.median(sizes)) for sizes in finite if sizes.size)])

    @property
    def _sizes(self) -> list[NDArray]:
        return [np.abs(self.inputs[k]) for k in perturbable(self.inputs)]

    @cached_property
    def can_perturb(self) -> bool:
        """Whether perturbations change any input; zeros and non-arrays stay the same."""
        return any(
            bool(np.any(np.isfinite(self.inputs[k]) & (self.inputs[k] != 0)))
            for k in perturbable(self.inputs)
        )

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

    def nearby(
        self, inputs: Sequence[Any], roundoff: float, seed: int, most: int
    ) -> Iterator[tuple[NDArray, NDArray]]:
        """Yield the results of f and g at inputs perturbed by a few ulps, while comparable."""
        perturb = Perturbations(inputs)
        for k in range(most):
            x = perturb(2 * roundoff, seed + k, wide=False)
            f, g = self.f(x), self.g(x)
            if not comparable(f, g, self.result_f):
                return
            yield f.numbers(np.float64), g.numbers(np.float64)

    @cached_property
    def difference(self) -> NDArray:
        return difference(self.result_f, self.result_g)
