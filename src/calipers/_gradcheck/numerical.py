"""The numerical side: two slopes of each column for a first look, a ladder for a second one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._differences.checkpoint import Checkpoint
from .._differences.columns import Columns, Outs
from .._differences.evaluate import Evaluator
from .._differences.ladders import Ladders
from .._differences.pools import Store
from .._differences.problem import Problem, reals
from .._differences.progress import Progress
from .._differences.run import run, run_parts
from .._differences.sending import Work
from .._differences.steps import Steps, plan_steps
from .._protocols import NDArray
from .rule import PROBES
from .subject import Part, Subject


@dataclass(frozen=True)
class Way:
    """Who looks at columns, what is told of it, and where it is kept."""

    workers: Any = None
    report: Progress | None = None
    checkpoint: Any = None

    @property
    def plain(self) -> bool:
        """Whether this process looks at them by itself, and tells nobody."""
        return self.workers is None and self.report is None and self.checkpoint is None


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

    @property
    def problem(self) -> Problem:
        return self.sides[0].problem

    @property
    def calls(self) -> float:
        return 2.0

    def results(self, count: int) -> Outs:
        shape, dtype = (count, self.problem.base.size), self.problem.base.dtype
        return np.empty(shape, dtype), np.empty(shape, dtype), np.empty(count, np.int8)

    def __call__(self, start: int, outs: Outs) -> None:
        """Store the slopes of columns from `start`, a row each, and what became of each."""
        right, left, status = outs
        for work, out in zip(self.sides, (right, left), strict=False):
            work(start, (out, status))
        if len(self.sides) == 1:
            left[:] = right


@dataclass(frozen=True)
class SecondLook:
    """The slopes of columns, derivatives that know their errors, and values of f near x."""

    slopes: Slopes
    ladders: Ladders
    lengths: NDArray  # of the coarse steps

    @property
    def problem(self) -> Problem:
        return self.slopes.problem

    @property
    def calls(self) -> float:
        return self.slopes.calls + self.ladders.calls + len(PROBES)

    def results(self, count: int) -> Outs:
        base = self.problem.base
        values = np.empty((count, len(PROBES) + 1, base.size))
        return (
            *self.slopes.results(count),
            *self.ladders.results(count),
            values,
            np.empty(count, bool),
        )

    def __call__(self, start: int, outs: Outs) -> None:
        """
        Look at columns from `start`.

        The last of the results tells of which columns there are values: bounds may forbid them.
        """
        self.slopes(start, outs[:3])
        self.ladders(start, outs[3:6])
        values, known = outs[6:]
        for k in range(len(known)):
            found = self._values(start + k)
            known[k] = found is not None
            values[k] = np.nan if found is None else found

    def _values(self, column: int) -> NDArray | None:
        """Return f at points within two coarse steps, a row each; None where bounds forbid it."""
        problem, steps = self.problem, self.slopes.sides[0].steps
        coords = reals(problem.x)
        points = float(coords[column]) + PROBES * self.lengths[column]
        if steps.lows.size and not (
            steps.lows[column] <= points[0] and points[-1] <= steps.highs[column]
        ):
            return None
        evaluate = Evaluator(problem)
        numbers = np.full(len(points), column)
        points = points.astype(coords.dtype)
        with np.errstate(all="ignore"):
            values = [evaluate(numbers[k], points[k]) for k in evaluate.blocks(len(points))]
        middle = len(points) // 2
        return np.insert(np.concatenate(values).astype(float), middle, problem.base, axis=0)


@dataclass
class Looks:
    """The derivative of f by one input, column by column, as far as it is asked for."""

    subject: Subject
    part: Part
    problem: Problem
    coarse: Steps
    fine: Steps
    way: Way
    calls: int = 0

    @cached_property
    def slopes(self) -> Slopes:
        """The work that a first look is."""
        if self.coarse.lows.size:
            return Slopes((Columns(self.problem, self.coarse),))
        fields = {name: getattr(self.coarse, name) for name in Steps.__dataclass_fields__}
        right, left = (
            Columns(self.problem, _Slope(**fields, side=side), spare=[]) for side in (RIGHT, LEFT)
        )
        return Slopes((right, left))

    @property
    def compiled(self) -> bool:
        """Whether a compiled loop takes the slopes and judges them."""
        native = self.problem.native
        return self.way.plain and native is not None and not self.coarse.lows.size

    @property
    def sides(self) -> int:
        """How many calls of f a slope of a column takes."""
        return len(self.slopes.sides)

    @cached_property
    def second(self) -> SecondLook:
        """The work that a second look is."""
        return SecondLook(self.slopes, Ladders(self.problem, self.fine), self.steps)

    def slope(self, column: int) -> NDArray:
        """Return the difference across x along a column."""
        right, left, status = self.slopes.results(1)
        self.slopes(column, (right, left, status))
        self.calls += self.sides
        return np.asarray(0.5 * right[0].astype(float) + 0.5 * left[0].astype(float))

    @cached_property
    def steps(self) -> NDArray:
        """The lengths of the coarse steps."""
        lengths = self.coarse.lengths
        if not lengths.size:
            lengths = np.maximum(1.0, np.abs(reals(self.problem.x).astype(float)))
        whole = np.broadcast_to(lengths, (self.problem.coordinates,))
        return np.ascontiguousarray(self.coarse.factor * whole)

    def have_done(self, work: Work, name: str, wanted: NDArray, store: Store) -> None:
        """Have columns of a look done by whoever was asked for; `name` is that of the look."""
        way = self.way
        report = Progress(False, 0) if way.report is None else way.report
        report.expect(int(np.count_nonzero(wanted)))
        kept = Checkpoint.of(way.checkpoint, f"input-{self.part.position}", name)
        run_parts(work, len(wanted), store, way.workers, report, kept, wanted=wanted)

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


def looks(subject: Subject, part: Part, step: Any, scale: Any, bounds: Any, way: Way) -> Looks:
    """Plan the steps for one input."""
    problem = subject.problem(part)
    coarse = plan_steps(problem, "3-point", step, scale, bounds)
    fine = plan_steps(problem, "adaptive", step, scale, bounds)
    # Of what the whole of f computes with, and not this input and the concatenated outputs alone.
    eps = subject.eps
    factor = coarse.factor if step is not None else eps ** (1 / 3)
    coarse, fine = replace(coarse, factor=factor, eps=eps), replace(fine, eps=eps)
    return Looks(subject, part, problem, coarse, fine, way)
