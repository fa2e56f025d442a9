"""The numerical side: two slopes of each column for a first look, a ladder for a second one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._differences.columns import Columns
from .._differences.evaluate import Evaluator
from .._differences.ladders import Ladders
from .._differences.problem import Problem, reals
from .._differences.run import run
from .._differences.steps import Steps, plan_steps
from .._protocols import NDArray
from .rule import PROBES
from .subject import Part, Subject


@dataclass(frozen=True)
class _Slope(Steps):
    """Differences between x and a point to one side, `factor` times as far as the lengths say."""

    side: float = 1.0

    @property
    def central(self) -> NDArray:
        return np.array([[self.side, 0.0, 1.0]])


@dataclass
class Looks:
    """The derivative of f by one input, column by column, as far as it is asked for."""

    subject: Subject
    part: Part
    problem: Problem
    coarse: Steps
    fine: Steps
    workers: Any
    calls: int = 0

    @cached_property
    def sides(self) -> list[Columns]:
        """The slopes to the right and to the left, or one of them where bounds leave no room."""
        if self.coarse.lows.size:
            return [Columns(self.problem, self.coarse)]
        fields = {name: getattr(self.coarse, name) for name in Steps.__dataclass_fields__}
        return [
            Columns(self.problem, _Slope(**fields, side=side), spare=[]) for side in (1.0, -1.0)
        ]

    def slopes(self, start: int, right: NDArray, left: NDArray, status: NDArray) -> None:
        """Store the slopes of columns from `start`, a row each, and what became of each."""
        for work, out in zip(self.sides, (right, left), strict=False):
            if self.workers is None:
                work(start, (out, status))
            else:
                out[:], status[:] = run(work, len(out), self.workers, start=start)
        if len(self.sides) == 1:
            left[:] = right

    def slope(self, column: int) -> NDArray:
        """Return the difference across x along a column."""
        right, left = np.empty((2, 1, self.problem.base.size), self.problem.base.dtype)
        self.slopes(column, right, left, np.empty(1, np.int8))
        self.calls += len(self.sides)
        return np.asarray(0.5 * right[0].astype(float) + 0.5 * left[0].astype(float))

    @cached_property
    def steps(self) -> NDArray:
        """The lengths of the coarse steps."""
        lengths = self.coarse.lengths
        if not lengths.size:
            lengths = np.maximum(1.0, np.abs(reals(self.problem.x).astype(float)))
        whole = np.broadcast_to(lengths, (self.problem.coordinates,))
        return np.ascontiguousarray(self.coarse.factor * whole)

    def ladder(self, column: int) -> tuple[NDArray, NDArray]:
        """Return the derivative along a column, and its errors."""
        values, errors, states = run(Ladders(self.problem, self.fine), 1, start=column)
        self.calls += int(states["calls"].sum())
        return values[0], errors[0]

    def counted(self, ask: Callable[[], Any]) -> Any:
        """Answer by calls of f from Python, and count them."""
        problem, f = self.problem, self.problem.f

        def counting(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return f(*args, **kwargs)

        problem.f = counting
        try:
            return ask()
        finally:
            problem.f = f

    def probes(self, column: int) -> NDArray | None:
        """Return f at points within two coarse steps, a row each; None where bounds forbid it."""
        x = float(reals(self.problem.x)[column])
        points = x + PROBES * self.steps[column]
        if self.coarse.lows.size and not (
            self.coarse.lows[column] <= points[0] and points[-1] <= self.coarse.highs[column]
        ):
            return None
        evaluate = Evaluator(self.problem)
        numbers = np.full(len(points), column)
        points = points.astype(reals(self.problem.x).dtype)
        with np.errstate(all="ignore"):
            values = [
                evaluate(numbers[k : k + 1], points[k : k + 1])[0] for k in range(len(points))
            ]
        self.calls += len(points)
        middle = len(points) // 2
        return np.array([*values[:middle], self.problem.base, *values[middle:]], dtype=float)


def looks(subject: Subject, part: Part, step: Any, scale: Any, bounds: Any, workers: Any) -> Looks:
    """Plan the steps for one input."""
    problem = subject.problem(part)
    coarse = plan_steps(problem, "3-point", step, scale, bounds)
    fine = plan_steps(problem, "adaptive", step, scale, bounds)
    # Of what the whole of f computes with, and not this input and the concatenated outputs alone.
    eps = subject.eps
    factor = coarse.factor if step is not None else eps ** (1 / 3)
    coarse, fine = replace(coarse, factor=factor, eps=eps), replace(fine, eps=eps)
    return Looks(subject, part, problem, coarse, fine, workers)
