"""Values that decide by differences of a fixed step, or by a complex one, instead of a ladder."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._differences.columns import Columns, Outs
from .._differences.problem import Problem, reals
from .._differences.stencils import METHODS
from .._differences.steps import plan_steps
from .._kernels.ladder import STATE
from .rule import rounding_of

# Half a step leaves half of a first order's error, and less of any other's; half of that, where
# higher orders take part.
_TRUNCATION = 4.0
# Rounding errors of f that differences may have, and of its imaginary part. What f loses inside,
# by terms that cancel, only a ladder measures.
_ROUNDING, _IMAGINARY = 16.0, 64.0


@dataclass(frozen=True)
class Fixed:
    """
    Rows of the transposed Jacobian by one step, and their errors: a ladder's results.

    What half of the step changes tells the error, and so does the rounding of f. `halved` is empty
    for complex steps, which have no error but rounding.
    """

    whole: Columns
    halved: tuple[Columns, ...]
    eps: float

    @property
    def problem(self) -> Problem:
        return self.whole.problem

    @property
    def calls(self) -> float:
        return self.whole.calls * (1 + len(self.halved))

    def results(self, count: int) -> Outs:
        shape = count, self.problem.base.size // (2 if self.problem.imaginary else 1)
        return np.empty(shape), np.empty(shape), np.zeros(count, STATE)

    def __call__(self, start: int, outs: Outs) -> None:
        """Fill `outs` with what belongs to coordinates from `start`."""
        values, errors, states = outs
        found = self.whole.results(len(states))
        self.whole(start, found)
        values[:] = found[0]
        with np.errstate(all="ignore"):
            if self.halved:
                self._estimate(start, values, errors)
            else:
                largest = np.max(np.abs(values), axis=1, keepdims=True, initial=0.0)
                errors[:] = self.eps * (_IMAGINARY * np.abs(values) + largest)
        states["calls"] = int(self.calls)

    def _estimate(self, start: int, values: Any, errors: Any) -> None:
        (halved,) = self.halved
        found = halved.results(len(values))
        halved(start, found)
        problem, count = self.problem, len(values)
        table, _ = self.whole.steps.tables(problem, start, start + count)
        again, _ = halved.steps.tables(problem, start, start + count)
        origin = reals(problem.x)[start : start + count]
        length = np.abs(table[:2] - origin).max(axis=(0, 1))
        sizes = np.abs(problem.base.astype(float))
        noise = _ROUNDING * rounding_of(sizes, self.eps)
        errors[:] = _TRUNCATION * np.abs(values - found[0]) + noise / length[:, None]
        # Bounds may leave no more room than half a step takes: then nothing is known.
        errors[(table[:2] == again[:2]).all(axis=(0, 1))] = np.inf


def fixed(problem: Problem, method: str, eps: float, given: dict[str, Any]) -> Fixed:
    """Plan the steps of a method; `given` is what the caller says of them."""
    steps = plan_steps(problem, method, **given)
    if problem.imaginary:
        return Fixed(Columns(problem, steps), (), eps)
    if given["step"] is None:
        steps = replace(steps, factor=eps ** METHODS[method].power)
    half = replace(steps, factor=0.5 * steps.factor)
    return Fixed(Columns(problem, steps), (Columns(problem, half),), eps)
