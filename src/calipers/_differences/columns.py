"""Derivatives along a range of coordinates by fixed steps: a task for any worker."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._kernels.differences import COLUMNS, EXCLUDED, FIXED, IMAGINARY_COLUMNS, LOST
from .._protocols import NDArray
from .._reals import reals
from .evaluate import Evaluator, blame, perturbation
from .native import Native
from .problem import Problem
from .steps import Steps

Outs = tuple[NDArray, ...]

_LINE = 64
_LONG = 1 << 20  # bytes that take far longer to fill than to align


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    """Return new memory for an array that begins at a cache line.

    Vectors that cross lines cost a loop that stays in cache a tenth of its speed.
    """
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _LINE, np.uint8)
    first = -memory.__array_interface__["data"][0] % _LINE
    return memory[first : first + size].view(dtype).reshape(shape)


def lost_step(problem: Problem, coordinate: int, at: NDArray | None = None) -> ValueError:
    """Return the error that refuses a step, at another point than that of the problem maybe."""
    x = reals(problem.x if at is None else at)[problem.stride * coordinate]
    return ValueError(
        f"the step of element {coordinate} is lost in rounding at x = {x}: pass a larger step"
    )


def require_steps(problem: Problem, start: int, status: NDArray) -> None:
    """Refuse steps that vanish beside x."""
    lost = status.tobytes().find(LOST)  # a byte each
    if lost >= 0:
        raise lost_step(problem, start + lost)


class Scratch:
    """The kernel for some columns, and its arguments that do not change with the point."""

    def __init__(self, problem: Problem, native: Native, steps: Steps, count: int) -> None:
        self.count = count
        self.values = problem.base.size
        self.stride = problem.stride
        self.x = aligned(problem.x.shape, problem.x.dtype)
        self.reached = np.empty(1, np.int64)
        upper, lower = (aligned(problem.native_shape, problem.dtype) for _ in range(2))
        if problem.imaginary:
            self.kernel = native.entry(IMAGINARY_COLUMNS)
            self.steps: tuple[Any, ...] = (steps.lengths,)
            self.room: tuple[NDArray, ...] = (upper,)
        else:
            self.kernel = native.entry(COLUMNS)
            self.steps = steps.rule, np.empty((3, steps.pairs, count))
            self.room = upper, lower


@dataclass
class Columns:
    """
    Rows of the transposed Jacobian, in real numbers, and what became of each.

    `spare` keeps scratch from one call to the next: for small problems, making it takes as long.
    So does a problem for each point: `at` may be another one than that of the problem, if f is
    compiled.
    """

    problem: Problem
    steps: Steps
    spare: list[Scratch] | None = field(default=None, compare=False)
    at: NDArray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "spare": None}  # its kernels are of one process

    @property
    def calls(self) -> float:
        return 1 if self.problem.imaginary or self.steps.one_sided else 2 * self.steps.pairs

    def results(self, count: int) -> Outs:
        values = self.problem.base.size // (2 if self.problem.imaginary else 1)
        shape, dtype = (count, values), self.problem.base.dtype
        make = aligned if count * values * dtype.itemsize > _LONG else np.empty
        return make(shape, dtype), np.empty(count, np.int8)

    def __call__(self, start: int, outs: Outs) -> None:
        """Fill `outs` with what belongs to coordinates from `start`."""
        native = self.problem.native
        if native is not None:
            self._compiled(native, start, outs)
        elif self.problem.imaginary:
            self._imaginary(start, outs)
        else:
            self._real(start, outs)

    def _compiled(self, native: Native, start: int, outs: Outs) -> None:
        problem, count = self.problem, len(outs[1])
        origin = reals(problem.x if self.at is None else self.at)
        scratch = self._scratch(native, count)
        try:
            lost = scratch.kernel(
                native.form,
                scratch.x,
                origin,
                scratch.stride,
                start,
                *scratch.steps,
                *(() if problem.imaginary else (problem.base,)),
                *scratch.room,
                *outs,
                scratch.reached,
            )
        except Exception as error:
            reached = scratch.reached[0]
            blame(error, problem, reached, perturbation(problem, scratch.x, origin, reached))
            raise
        if lost >= 0:
            raise lost_step(problem, lost, self.at)
        if self.spare is not None:
            self.spare.append(scratch)

    def _scratch(self, native: Native, count: int) -> Scratch:
        try:  # another thread may take the last one between a look and a pop
            scratch = self.spare.pop() if self.spare else None
        except IndexError:
            scratch = None
        if scratch and scratch.count == count and scratch.values == self.problem.base.size:
            return scratch
        return Scratch(self.problem, native, self.steps, count)

    def _real(self, start: int, outs: Outs) -> None:
        result, status = outs
        x, stride = self.problem.x, self.problem.stride
        table, status[:] = self.steps.tables(x, stride, start, start + len(status))
        require_steps(self.problem, start, status)
        with Evaluator(self.problem) as evaluate:
            for block, numbers in evaluate.coordinates(np.arange(start, start + len(status))):
                rows = result[block]
                for p, (tops, bottoms, weights) in enumerate(table[:, :, block].swapaxes(0, 1)):
                    change = evaluate(numbers, tops, rows if p == 0 else None)
                    one_sided = self.steps.one_sided
                    below = self.problem.base if one_sided else evaluate(numbers, bottoms)
                    with np.errstate(all="ignore"):
                        change -= below
                        change *= weights[:, None]
                        if p > 0:
                            rows += change

    def _imaginary(self, start: int, outs: Outs) -> None:
        result, status = outs
        count, lengths = len(status), self.steps.lengths
        lengths = lengths.repeat(count) if lengths.size == 1 else lengths[start : start + count]
        status[:] = np.where(lengths != 0, FIXED, EXCLUDED)
        with Evaluator(self.problem) as evaluate:
            for block, numbers in evaluate.coordinates(np.arange(start, start + count)):
                values = evaluate(numbers + 1, lengths[block])[:, 1::2]
                with np.errstate(all="ignore"):
                    result[block] = values / lengths[block, None]
