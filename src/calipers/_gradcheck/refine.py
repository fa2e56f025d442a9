"""Refine columns: values of f near x, slopes by shorter steps, and extrapolation."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._derivatives.adaptive import ExtrapolatedColumns
from .._derivatives.fixed_step import Evaluator, note_coordinate
from .._derivatives.fixed_step_error import (
    SLOPE_CALLS,
    ComplexSteps,
    RepeatedSteps,
    Slopes,
    slopes_of,
)
from .._derivatives.function import Problem
from .._derivatives.steps import Steps
from .._execution.tasks import Buffers
from .._kernels.differences import FIXED
from .._kernels.gradcheck import AT_POINTS
from .entry_rules import POSITIONS

_AROUND = POSITIONS != 0  # where f is not known
VALUES = int(np.count_nonzero(_AROUND))
_BEHIND, _MIDDLE, _AHEAD = (int(np.flatnonzero(POSITIONS == p)[0]) for p in (-1, 0, 1))

_LOWEST, _GRAINS = 0.8, 16.0  # a power of eps; spacings of x


@dataclass(frozen=True)
class Below:
    """Some steps that ladders step over, the shortest ones first."""

    count: int
    ratio_exponent: float  # from one to the next, as a power of 1 / eps

    def steps(self, eps: float, states: NDArray) -> NDArray:
        """Return a row for each of them, an element for each ladder."""
        factors = np.array([[eps ** (-self.ratio_exponent * k)] for k in range(self.count)])
        lowest = np.maximum(eps**_LOWEST, _GRAINS * states["grain"]) * states["length"]
        return np.asarray(factors * lowest)


SOME, MANY = Below(3, 0.16), Below(12, 0.033)  # MANY where an entry would fail


@dataclass(frozen=True)
class Refinement:
    """Values of f near x, slopes, and derivatives that know their errors, of columns."""

    slopes: Slopes
    exact: ExtrapolatedColumns | RepeatedSteps | ComplexSteps
    coarse: Steps
    lengths: NDArray  # of the coarse steps

    @property
    def problem(self) -> Problem:
        return self.slopes.problem

    @property
    def calls(self) -> float:
        return self.exact.calls + VALUES + SLOPE_CALLS * SOME.count

    def results(self, count: int) -> Buffers:
        size = self.problem.base.size
        values = np.empty((count, len(POSITIONS), size)), np.empty(count, np.int64)
        slopes = np.empty((count, size)), np.empty((count, size))
        below = np.empty((count, 2, SOME.count, size)), np.empty(count, np.int64)
        return (*self.exact.results(count), *values, *slopes, *below)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Look at columns from `start`; see `at`."""
        self.at(np.arange(start, start + len(outs[0])), outs)

    def at(self, columns: NDArray, outs: Buffers) -> None:
        """
        Look at columns.

        The results are those of `exact`, values of f, a row for each point, the calls of f that
        these took, or slopes where bounds forbid some, the slopes to the right and to the left, and
        what `below` returns.
        """
        values, calls, right, left, below, evaluated = outs[3:]
        self.exact.at(columns, outs[:3])
        base, x = self.problem.base, as_real_vector(self.problem.x)[columns]
        points = x[:, None].astype(float) + POSITIONS * self.lengths[columns, None]
        lows, highs = self._limits(columns)
        inside = (lows <= points[:, 0]) & (points[:, -1] <= highs)
        calls[:] = inside * VALUES
        points = points.astype(x.dtype)
        numbers = np.repeat(columns[inside], VALUES)
        values[:, _MIDDLE] = base
        values[inside[:, None] & _AROUND] = self._values(
            numbers, points[inside][:, _AROUND].ravel()
        )
        with np.errstate(all="ignore"):
            for slope, k in ((right, _AHEAD), (left, _BEHIND)):
                width = points[:, k].astype(float) - x
                slope[:] = (values[:, k] - base) / width[:, None]
        for k in np.flatnonzero(~inside).tolist():
            slopes = self.slopes.results(1)
            self.slopes(int(columns[k]), slopes)
            right[k], left[k] = slopes[0][0], slopes[1][0]
            calls[k] = SLOPE_CALLS * int(slopes[2][0] == FIXED)
        below[:], evaluated[:] = self.below(columns, outs[2], SOME)

    def below(self, columns: NDArray, states: NDArray, which: Below) -> tuple[NDArray, NDArray]:
        """
        Return slopes by steps that ladders step over, and how many calls of f they took.

        Each column has those to the right and to the left, with a row for each step. Waves that are
        shorter than all of a ladder's steps look like noise or a kink to it, or like rounding.
        """
        count, problem = len(columns), self.problem
        slopes = np.full((count, 2, which.count, problem.base.size), np.nan)
        calls = np.zeros(count, np.int64)
        if not isinstance(self.exact, ExtrapolatedColumns):
            return slopes, calls
        for row, steps in enumerate(which.steps(self.coarse.eps, states)):
            lengths = np.zeros(problem.coordinates)
            lengths[columns] = steps
            work = slopes_of(problem, replace(self.coarse, lengths=lengths, factor=1.0))
            right, left, status = work.results(count)
            work.at(columns, (right, left, status))
            slopes[:, 0, row], slopes[:, 1, row] = right, left
            calls += SLOPE_CALLS * (status == FIXED)
        return slopes, calls

    def _limits(self, columns: NDArray) -> tuple[Any, Any]:
        steps = self.slopes.differences[0].steps
        return (steps.lows[columns], steps.highs[columns]) if steps.lows.size else (-np.inf, np.inf)

    def _values(self, numbers: NDArray, points: NDArray) -> NDArray:
        """Return a row of values of f for each point of the real number that it replaces."""
        problem = self.problem
        if problem.native is None:
            with Evaluator(problem) as evaluate, np.errstate(all="ignore"):
                rows = [evaluate(numbers[k], points[k]) for k in evaluate.blocks(len(points))]
            return np.concatenate([np.empty((0, problem.base.size)), *rows])
        values = np.empty((len(points), problem.base.size), problem.base.dtype)
        like, reached = np.empty(problem.native_shape, problem.dtype), np.zeros(1, np.int64)
        arguments = np.empty_like(problem.x), as_real_vector(problem.x), numbers, points, like
        try:
            problem.native.entry(AT_POINTS)(problem.native.form, *arguments, values, reached)
        except Exception as error:
            step = float(points[reached[0]] - as_real_vector(problem.x)[numbers[reached[0]]])
            note_coordinate(error, problem, numbers[reached[0]], step)
            raise
        return values
