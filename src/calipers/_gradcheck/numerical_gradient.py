"""The gradient of a scalar function by finite differences, and its derivatives."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._core.protocols import NDArray
from .._derivatives.adaptive import ExtrapolatedColumns
from .._derivatives.function import Problem
from .._derivatives.hessian import MixedDifferences, mixed_differences
from .._derivatives.options import Options
from .._derivatives.solve import gradient, prepare, steps_of
from .._derivatives.steps import Steps
from .._execution.tasks import Buffers


@dataclass(frozen=True)
class NumericalGradient:
    """The gradient of a scalar function with respect to one input, by adaptive differences."""

    f: Any
    position: int
    options: Options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the gradient."""
        return gradient(self._problem(args, kwargs), self.options)[0]

    def noise(self, args: list[Any], kwargs: dict[str, Any]) -> NDArray:
        """Return the estimated errors of the gradient."""
        return gradient(self._problem(args, kwargs), self.options)[1]

    def columns(
        self,
        problem: Problem,
        steps: Steps,
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> "MixedColumns":
        """Return the columns that differentiate the gradient, or f twice."""
        gradient_problem = self._problem(args, kwargs)
        return MixedColumns(
            problem,
            steps,
            mixed_differences(gradient_problem, steps_of(gradient_problem, self.options)),
        )

    def _problem(self, args: Any, kwargs: dict[str, Any]) -> Problem:
        k = self.position
        others = (*args[:k], *args[k + 1 :])
        options = replace(self.options, args=others, argnums=k, kwargs=kwargs)
        return prepare(self.f, args[k], options)


@dataclass(frozen=True)
class MixedColumns(ExtrapolatedColumns):
    """
    Rows of a Hessian: differences of a numerical gradient, or mixed ones if their error is less.

    The error of that gradient varies from point to point. It may look like a kink, like more noise
    than there is, or like none.
    """

    pairs: MixedDifferences

    def at(self, columns: NDArray, outs: Buffers) -> None:
        """Fill `outs` with the derivatives along some coordinates."""
        super().at(columns, outs)
        values, errors, states = outs
        partners = self.pairs.usable
        for k in np.flatnonzero(np.isin(columns, partners)).tolist():
            both = np.full(len(partners), columns[k]), partners
            mixed, unsure, climbed = self.pairs.results(len(partners))
            self.pairs.at(*both, (mixed, unsure, climbed))
            states["calls"][k] += self.pairs.calls_of(*both, climbed).sum()
            better = unsure[:, 0] < errors[k, partners]
            values[k, partners[better]] = mixed[better, 0]
            errors[k, partners[better]] = unsure[better, 0]
