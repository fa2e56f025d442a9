"""Refine columns: samples of f at many scales, or derivatives by the caller's steps."""

from dataclasses import dataclass

import numpy as np

from .._core.protocols import NDArray
from .._derivatives.adaptive import LEAST_SAMPLES, ExtrapolatedColumns, initial_states, survey
from .._derivatives.fixed_step_error import SLOPE_CALLS, ComplexSteps, RepeatedSteps, Slopes
from .._derivatives.function import Problem
from .._derivatives.scales import MAX_SAMPLES, Samples
from .._execution.tasks import Buffers
from .._kernels.differences import FIXED


@dataclass(frozen=True)
class Refinement:
    """Slopes by the steps of screening, and samples at all scales, or exact derivatives."""

    slopes: Slopes
    exact: ExtrapolatedColumns | RepeatedSteps | ComplexSteps

    @property
    def problem(self) -> Problem:
        return self.slopes.problem

    @property
    def sampled(self) -> bool:
        """Whether results are samples, and not derivatives with errors."""
        return type(self.exact) is ExtrapolatedColumns

    @property
    def calls(self) -> float:
        return self.exact.calls + SLOPE_CALLS

    def results(self, count: int) -> Buffers:
        """Return arrays for slopes, calls of f, and samples or derivatives, errors and states."""
        size = self.problem.base.size
        slopes = np.empty((count, size)), np.empty((count, size)), np.empty(count, np.int64)
        if not self.sampled:
            return (*slopes, *self.exact.results(count))
        shape = count, MAX_SAMPLES
        samples = *np.empty((2, *shape)), *np.empty((2, *shape, size))  # pages are used as needed
        return (*slopes, *samples, np.empty(count, bool))

    def __call__(self, start: int, outs: Buffers) -> None:
        """Refine columns from `start`; see `at`."""
        self.at(np.arange(start, start + len(outs[0])), outs)

    def at(self, columns: NDArray, outs: Buffers) -> None:
        """Fill `outs` with the results of columns; t is NaN where there is no sample."""
        right, left, calls, *rest = outs
        status = np.empty(len(columns), np.int8)
        some = tuple(a.astype(self.problem.base.dtype) for a in (right, left))
        self.slopes.at(columns, (*some, status))
        right[:], left[:] = some
        calls[:] = SLOPE_CALLS * (status == FIXED)
        if not isinstance(self.exact, ExtrapolatedColumns) or not self.sampled:
            self.exact.at(columns, tuple(rest))
            calls += rest[2]["calls"]
            return
        *arrays, first = rest
        arrays[0][:] = np.nan
        problem, steps = self.problem, self.exact.steps
        states = initial_states(problem, steps)[columns]
        with self.exact.evaluator(columns, states) as evaluate, np.errstate(all="ignore"):
            for found in survey(problem.base, evaluate, states, steps.eps, problem.parts):
                which = found.directions
                count = found.samples.t.shape[1]
                for array, values in zip(arrays, found.samples, strict=True):
                    array[which, :count] = values
                first[which] = found.first
                calls[which] += found.calls


def samples_of(arrays: Buffers, which: NDArray) -> Samples:
    """Return the samples of some columns without the steps that none of them has."""
    t = arrays[0][which]
    count = max(LEAST_SAMPLES, int(np.isfinite(t).sum(axis=1).max(initial=0)))
    return Samples(*(array[which, :count] for array in arrays))
