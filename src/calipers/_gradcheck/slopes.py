"""Slopes of f to both sides of x, along columns."""

from dataclasses import dataclass

import numpy as np

from .._differences.columns import Columns, Outs, require_steps
from .._differences.evaluate import Evaluator, runs
from .._differences.problem import Problem
from .._differences.steps import Steps
from .._protocols import NDArray

SLOPE_CALLS = 2  # of f, for the slopes of a column
# Differences between x and a point to one side.
RIGHT, LEFT = np.array([[1.0, 0.0, 1.0]]), np.array([[-1.0, 0.0, 1.0]])


@dataclass(frozen=True)
class _Slope(Steps):
    """Steps to one side, `factor` times as far as the lengths say."""

    side: NDArray

    @property
    def central(self) -> NDArray:
        return self.side


@dataclass(frozen=True)
class Slopes:
    """The slopes to the right and to the left, or across x where bounds leave no room for both."""

    sides: tuple[Columns, ...]
    calls = float(SLOPE_CALLS)

    @property
    def problem(self) -> Problem:
        return self.sides[0].problem

    def results(self, count: int) -> Outs:
        shape, dtype = (count, self.problem.base.size), self.problem.base.dtype
        return np.empty(shape, dtype), np.empty(shape, dtype), np.empty(count, np.int8)

    def __call__(self, start: int, outs: Outs) -> None:
        """Store the slopes of columns from `start`, a row each, and what became of each."""
        right, left, status = outs
        if len(self.sides) == 1:
            self.sides[0](start, (right, status))
            left[:] = right
        elif self.problem.batched:
            self._in_batches(np.arange(start, start + len(status)), outs)
        else:
            for work, out in zip(self.sides, (right, left), strict=True):
                work(start, (out, status))

    def at(self, columns: NDArray, outs: Outs) -> None:
        """Store the same of some columns."""
        if self.problem.batched and len(self.sides) > 1:
            self._in_batches(columns, outs)
            return
        for part in runs(columns):
            self(int(columns[part.start]), tuple(out[part] for out in outs))

    def _in_batches(self, columns: NDArray, outs: Outs) -> None:
        """Store both slopes, of which a library takes the values at once."""
        problem, (*sides, status) = self.problem, outs
        first, last = int(columns[0]), int(columns[-1]) + 1
        tables = []
        for work in self.sides:
            table, every = work.steps.tables(problem.x, problem.stride, first, last)
            tables.append(table[:, 0, columns - first])
        require_steps(problem, first, every)
        status[:] = every[columns - first]
        with Evaluator(problem) as evaluate:
            for block, numbers in evaluate.coordinates(columns):
                points = (table[0, block] for table in tables)
                values = evaluate.both(numbers, *points)
                with np.errstate(all="ignore"):
                    for out, table, value in zip(sides, tables, values, strict=True):
                        value -= problem.base
                        np.multiply(value, table[2, block, None], out=out[block])


def slopes_of(problem: Problem, steps: Steps) -> Slopes:
    """Return the work of taking slopes by some steps."""
    if steps.lows.size:
        return Slopes((Columns(problem, steps),))
    fields = {name: getattr(steps, name) for name in Steps.__dataclass_fields__}
    right, left = (
        Columns(problem, _Slope(**fields, side=side), spare=[]) for side in (RIGHT, LEFT)
    )
    return Slopes((right, left))
