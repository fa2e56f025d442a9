"""Derivatives along a range of coordinates by fixed steps: a task for any worker."""

from dataclasses import dataclass

import numpy as np

from .._kernels.differences import COLUMNS, EXCLUDED, FIXED, IMAGINARY_COLUMNS
from .._protocols import NDArray
from .evaluate import Evaluator, blame
from .native import Native
from .problem import Problem, reals
from .steps import Steps

Outs = tuple[NDArray, ...]


@dataclass(frozen=True)
class Columns:
    """Rows of the transposed Jacobian, in real numbers, and what became of each."""

    problem: Problem
    steps: Steps

    def results(self, count: int) -> Outs:
        values = self.problem.base.size // (2 if self.problem.imaginary else 1)
        return np.empty((count, values), self.problem.base.dtype), np.empty(count, np.int8)

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
        problem, steps = self.problem, self.steps
        x = np.empty(problem.x.shape, problem.x.dtype)
        where = (native.form, x, reals(x), reals(problem.x), problem.stride, start)
        upper = np.empty(native.out_shape, problem.dtype)
        reached = np.empty(1, np.int64)
        try:
            if problem.imaginary:
                native.entry(IMAGINARY_COLUMNS)(*where, steps.lengths, upper, *outs, reached)
                return
            lower = np.empty(native.out_shape, problem.dtype)
            table = np.empty((3, steps.pairs, len(outs[1])))
            scratch = (table, problem.base, upper, lower)
            native.entry(COLUMNS)(*where, *steps.rule, *scratch, *outs, reached)
        except Exception as error:
            blame(error, problem, reached[0])
            raise

    def _real(self, start: int, outs: Outs) -> None:
        result, status = outs
        table, status[:] = self.steps.tables(self.problem, start, start + len(status))
        evaluate = Evaluator(self.problem)
        for block in evaluate.blocks(len(status)):
            numbers = self.problem.stride * (start + np.arange(block.start, block.stop))
            for p, (tops, bottoms, weights) in enumerate(table[:, :, block].swapaxes(0, 1)):
                above, below = evaluate(numbers, tops), evaluate(numbers, bottoms)
                with np.errstate(all="ignore"):
                    quotient = (above - below) * weights[:, None]
                    result[block] = quotient if p == 0 else result[block] + quotient

    def _imaginary(self, start: int, outs: Outs) -> None:
        result, status = outs
        stop = start + len(status)
        lengths = np.broadcast_to(self.steps.lengths, (self.problem.coordinates,))[start:stop]
        status[:] = np.where(lengths != 0, FIXED, EXCLUDED)
        evaluate = Evaluator(self.problem)
        for block in evaluate.blocks(len(status)):
            numbers = 2 * (start + np.arange(block.start, block.stop)) + 1
            values = evaluate(numbers, lengths[block])[:, 1::2]
            with np.errstate(all="ignore"):
                result[block] = values / lengths[block, None]
