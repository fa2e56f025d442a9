"""Refine columns: samples of f at many scales, or derivatives by the caller's steps."""

from dataclasses import dataclass

import numpy as np

from .._core.protocols import NDArray
from .._derivatives.adaptive import ExtrapolatedColumns
from .._derivatives.fixed_step_error import SLOPE_CALLS, ComplexSteps, RepeatedSteps, Slopes
from .._derivatives.function import Problem
from .._derivatives.sampled import SampledColumns
from .._execution.tasks import Buffers
from .._kernels.differences import FIXED


@dataclass(frozen=True)
class Refinement:
    """Slopes by the steps of screening, with samples at all scales or derivatives with errors."""

    slopes: Slopes
    exact: SampledColumns | ExtrapolatedColumns | RepeatedSteps | ComplexSteps

    @property
    def problem(self) -> Problem:
        return self.slopes.problem

    @property
    def calls(self) -> float:
        return self.exact.calls + SLOPE_CALLS

    def results(self, count: int) -> Buffers:
        """Return arrays for slopes, calls of f, and samples or derivatives, errors and states."""
        size = self.problem.base.size
        slopes = np.empty((count, size)), np.empty((count, size)), np.empty(count, np.int64)
        return (*slopes, *self.exact.results(count))

    def __call__(self, start: int, outs: Buffers) -> None:
        """Refine columns from `start`; see `at`."""
        self.at(np.arange(start, start + len(outs[0])), outs)

    def at(self, columns: NDArray, outs: Buffers) -> None:
        """Fill `outs` with the results of columns."""
        right, left, calls, *rest = outs
        status = np.empty(len(columns), np.int8)
        some = tuple(a.astype(self.problem.base.dtype) for a in (right, left))
        self.slopes.at(columns, (*some, status))
        right[:], left[:] = some
        self.exact.at(columns, tuple(rest))
        sampled = isinstance(self.exact, SampledColumns)
        calls[:] = SLOPE_CALLS * (status == FIXED) + (rest[-1] if sampled else rest[2]["calls"])
