"""Two implementations, called at some inputs and at perturbed ones."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .._core.dtypes import ROUNDOFF
from .._core.protocols import NDArray
from .callables import Implementation, Result, comparable
from .error_units import ErrorNorms, Perturbations, difference, largest_of, rms_of
from .inputs import perturbable
from .verdict import ALONE


@dataclass
class ImplementationPair:
    """Two implementations at some inputs, and how their results are compared."""

    f: Implementation
    g: Implementation
    inputs: tuple[Any, ...]
    form: str  # the working format
    widens: str | None = None  # who is called in the wider format: "fg", "f", "g" or none
    reference_function: Callable[..., Any] | None = None
    length: int = 1  # of the reductions
    batch: tuple[int, ...] = ()
    seed: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)
    nondeterminism_note: str = (
        ""  # what is said of sides that do not repeat themselves, within rounding
    )
    titles: tuple[str, ...] = ()  # how the inputs are reached among the caller's, if not by place
    owners: tuple[int, ...] = ()  # and which of those they are part of
    options: dict[str, str] = field(default_factory=dict)  # the caller's, as code
    unpacked: bool = True  # whether the caller passes a tuple or list of arguments

    def title(self, k: int) -> str:
        """Return how the caller reaches an input."""
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
        """How many units an error of rounding may take: C(n)."""
        return 4 + math.sqrt(self.length)

    def is_rounding(self, size: ErrorNorms) -> bool:
        """Tell whether errors are as those of rounding, all together and the largest one."""
        return size.robust <= self.allowed and size.peak <= ALONE * self.allowed and not size.broken

    @cached_property
    def result_f(self) -> Result:
        return self.f(self.inputs)

    @cached_property
    def result_g(self) -> Result:
        return self.g(self.inputs)

    @cached_property
    def perturb(self) -> Perturbations:
        """The inputs, moved; one call's arrays are gone with the next."""
        return Perturbations(self.inputs)

    @cached_property
    def natural_size(self) -> float:
        """How large numbers are that a side may compute with: 1, or as the largest input."""
        return max([1.0, *map(largest_of, self._sizes)])

    @cached_property
    def typical_size(self) -> float:
        """How large they are mostly."""
        finite = (sizes[np.isfinite(sizes)] for sizes in self._sizes)
        return max([1.0, *(float(np.median(sizes)) for sizes in finite if sizes.size)])

    @property
    def _sizes(self) -> list[NDArray]:
        return [np.abs(self.inputs[k]) for k in perturbable(self.inputs)]

    @cached_property
    def can_perturb(self) -> bool:
        """Whether moves change any input: zeros stay, and so does what is no array."""
        return any(
            bool(np.any(np.isfinite(self.inputs[k]) & (self.inputs[k] != 0)))
            for k in perturbable(self.inputs)
        )

    def evaluate_perturbed(
        self, delta: float, seed: int, *, zeros: bool = False, wide: bool = False
    ) -> tuple[Result, Result]:
        """Ask both sides at inputs that are moved, and rounded to a format; or zeros, too."""
        x = self.perturb(delta, seed, wide)
        if zeros:
            random = np.random.default_rng(seed % 2**64)
            for k in perturbable(x):
                nothing = x[k] == 0
                some = random.standard_normal(int(np.count_nonzero(nothing)))
                x[k][nothing] = delta * (rms_of(x[k]) or 1.0) * some
        return self.f(x), self.g(x)

    def perturbed_difference(
        self, delta: float, seed: int, *, wide: bool = False
    ) -> NDArray | None:
        """Return how far the sides are apart at moved inputs; None if they answer otherwise."""
        f, g = self.evaluate_perturbed(delta, seed, wide=wide)
        return difference(f, g) if comparable(f, g, self.result_f) else None

    def nearby(
        self, inputs: Sequence[Any], roundoff: float, seed: int, most: int
    ) -> Iterator[tuple[NDArray, NDArray]]:
        """Give what both sides answer where inputs are moved by last places, if that compares."""
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
