"""Differences of f with all columns of a color perturbed at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._execution.tasks import Buffers
from .._kernels.differences import COLORED
from .adaptive import CALLS_PER_COLUMN, STATE, extrapolate, outputs_of
from .compiled import Native
from .fixed_step import UNDEFINED
from .function import Problem


@dataclass
class SharedScratch:
    """Arrays that are reused between calls, since new memory costs more than filling it."""

    table: NDArray
    status: NDArray
    rows: NDArray | None  # differences of all colors
    points: list[tuple[NDArray, NDArray]]  # an argument and a value of f, for each thread


@dataclass
class ColorDifferences:
    """
    Differences of f between two points of all coordinates of a color: a row for each color.

    `bottoms` is empty for one-sided differences; then nothing is subtracted. For complex steps the
    rows are imaginary parts, and `tops` are the imaginary parts of x.
    """

    problem: Problem
    colors: NDArray
    tops: NDArray
    bottoms: NDArray
    scratch: SharedScratch | None = field(default=None, compare=False)

    @property
    def calls(self) -> float:
        return 2 if self.bottoms.size else 1

    @property
    def below(self) -> NDArray | None:
        """What is yet to be subtracted from a row, if anything."""
        return None if self.bottoms.size or self.problem.imaginary else self.problem.base

    def results(self, count: int) -> Buffers:
        shared = None if self.scratch is None else self.scratch.rows
        if shared is not None and count == len(shared):
            return (shared,)
        size = self.problem.base.size // (2 if self.problem.imaginary else 1)
        return (np.empty((count, size), self.problem.base.dtype),)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill the rows of colors from `start`."""
        (rows,) = outs
        if not self.problem.imaginary:
            self._fill(start, rows, self.colors, self.tops)
            return
        x = as_real_vector(self.problem.x)
        colors, tops = self.colors.repeat(2), x.astype(np.promote_types(x.dtype, np.float64))
        tops[1::2] = self.tops
        whole = np.empty((len(rows), self.problem.base.size), rows.dtype)
        self._fill(start, whole, colors, tops)
        rows[:] = whole[:, 1::2]

    def _fill(self, start: int, rows: NDArray, colors: NDArray, tops: NDArray) -> None:
        """Fill rows with real values of f; `colors` and `tops` are by real number of x."""
        native = self.problem.native
        if native is not None:
            self._compiled(native, start, rows, colors, tops)
            return
        origin, ends = (
            as_real_vector(self.problem.x),
            [tops, self.bottoms] if self.bottoms.size else [tops],
        )
        count = max(1, self.problem.batch_size // len(ends))
        for first in range(0, len(rows), count):
            some = rows[first : first + count]
            chosen = colors == np.arange(start + first, start + first + len(some))[:, None]
            points = np.concatenate([np.where(chosen, end, origin) for end in ends])
            with _notes_color(start + first):
                values = self.problem.at_each(points)
            some[:] = values[: len(some)]
            with np.errstate(all="ignore"):
                for row, below in zip(some, values[len(some) :], strict=False):
                    row -= below

    def _compiled(
        self, native: Native, start: int, rows: NDArray, colors: NDArray, tops: NDArray
    ) -> None:
        problem = self.problem
        points = [] if self.scratch is None else self.scratch.points
        try:
            x, lower = points.pop()
        except IndexError:  # none is left, or another thread took it
            x = np.empty(problem.x.shape, problem.x.dtype)
            lower = np.empty(problem.native_shape, problem.dtype)
        where = native.form, x, as_real_vector(problem.x), start
        arguments = colors, tops, self.bottoms, lower, rows
        reached = np.empty(1, np.int64)
        with _notes_color(reached):
            native.entry(COLORED, colors.dtype)(*where, *arguments, reached)
        points.append((x, lower))


@contextmanager
def _notes_color(color: Any) -> Iterator[None]:
    """Add a note with the perturbed color, a number or an array that holds it, to errors of f."""
    try:
        yield
    except Exception as error:
        number = int(np.ravel(color)[0])
        error.add_note(f"raised by f with the columns of color {number} perturbed; {UNDEFINED}")
        raise


@dataclass
class ExtrapolatedColors:
    """Extrapolated derivatives with all columns of a color perturbed, each by its own step."""

    problem: Problem
    colors: NDArray
    directions: NDArray  # how far each coordinate goes where t is 1
    lows: NDArray
    highs: NDArray
    states: NDArray
    eps: float
    calls = CALLS_PER_COLUMN

    def results(self, count: int) -> Buffers:
        shape = count, self.problem.base.size
        return np.empty(shape), np.empty(shape), np.zeros(count, STATE)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill the values, errors and states of colors from `start`."""
        states = outs[-1]
        states[:] = self.states[start : start + len(states)]
        x = as_real_vector(self.problem.x)

        def displaced(active: NDArray, t: NDArray) -> tuple[NDArray, NDArray]:
            rows = np.empty((len(active), self.problem.base.size), self.problem.base.dtype)
            count = self.problem.batch_size
            for first in range(0, len(active), count):
                some = slice(first, first + count)
                color = start + active[some, None]
                points = x + np.where(self.colors == color, t[some, None] * self.directions, 0.0)
                if self.lows.size:  # rounding may exceed the bounds
                    points = np.clip(points, self.lows, self.highs)
                with _notes_color(color[0]):
                    rows[some] = self.problem.at_each(points.astype(x.dtype))
            return rows, t

        extrapolate(outputs_of(self.problem, self.eps), displaced, outs)
