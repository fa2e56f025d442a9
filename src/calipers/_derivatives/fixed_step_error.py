"""Fixed-step derivatives with error estimates from repetitions with longer steps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._execution.tasks import Buffers
from .._kernels.differences import FIXED, LOST
from .adaptive import STATE, ExtrapolatedColumns
from .directions import jacobian_vector_product
from .fixed_step import Columns, Evaluator, evaluate_each, require_steps, runs
from .function import Problem
from .steps import Steps

SLOPE_CALLS = 2  # of f for the two slopes of a column
# Differences between x and a point to one side.
RIGHT, LEFT = np.array([[1.0, 0.0, 1.0]]), np.array([[-1.0, 0.0, 1.0]])
_BOTH = np.concatenate([RIGHT, LEFT])


@dataclass(frozen=True)
class Slopes:
    """Slopes to the right and left of x, or central ones if there are bounds."""

    problem: Problem
    steps: Steps
    calls = float(SLOPE_CALLS)

    @cached_property
    def differences(self) -> tuple[Columns, ...]:
        """The differences to both sides, or central ones."""
        if self.steps.lows.size:
            return (Columns(self.problem, self.steps),)
        sided = (replace(self.steps, stencil=stencil) for stencil in (RIGHT, LEFT))
        return tuple(Columns(self.problem, steps, spare=[]) for steps in sided)

    def results(self, count: int) -> Buffers:
        shape, dtype = (count, self.problem.base.size), self.problem.base.dtype
        return np.empty(shape, dtype), np.empty(shape, dtype), np.empty(count, np.int8)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with right and left slopes and the status of columns from `start`."""
        right, left, status = outs
        if self.steps.lows.size:
            self.differences[0](start, (right, status))
            left[:] = right
        elif self.problem.native is None:
            self._evaluated(np.arange(start, start + len(status)), outs)
        else:
            for work, out in zip(self.differences, (right, left), strict=True):
                work(start, (out, status))

    def at(self, columns: NDArray, outs: Buffers) -> None:
        """Fill `outs` with the slopes of the columns `columns`."""
        if self.problem.native is None and not self.steps.lows.size:
            self._evaluated(columns, outs)
            return
        for part in runs(columns):
            self(int(columns[part.start]), tuple(out[part] for out in outs))

    def _evaluated(self, columns: NDArray, outs: Buffers) -> None:
        """Fill both slopes of columns from one table of points, in batches if f takes them."""
        problem, (*slopes, status) = self.problem, outs
        first, numbers = int(columns[0]), problem.stride * columns
        steps = replace(self.steps, stencil=_BOTH)
        table, every = steps.tables(problem.x, problem.stride, first, int(columns[-1]) + 1)
        require_steps(problem, first, every)
        status[:], table = every[columns - first], table[:, :, columns - first]
        if problem.batched:
            with Evaluator(problem) as evaluate:
                for block, some in evaluate.coordinates(columns):
                    values = evaluate.both(some, *table[0, :, block])
                    for out, value in zip(slopes, values, strict=True):
                        out[block] = value
        with np.errstate(all="ignore"):
            for out, points, gains in zip(slopes, table[0], table[2], strict=True):
                if not problem.batched:
                    evaluate_each(problem, numbers, points, out)
                out -= problem.base
                out *= gains[:, None]


# Multiples of the step: incommensurable, so that their rounding errors are independent.
_STEP_MULTIPLES = (1.0, 3.0**0.5, 3.0)
_ERROR_PER_SPREAD = 30.0  # times what three samples differ by: by chance they are alike
_ROUNDING_EPS = 4.0  # times eps of f, or of a complex step's value: what computing it may lose
_MIN_STEP_RATIO = 1.5  # times as long as the shortest step, the longest one tells something
_SHORT_STEP_POWER = 0.25  # power of eps that the shortest step is multiplied by
_CONTRADICTION_ERRORS = (
    8.0  # times an error, or a value and its rounding: a farther result is another derivative
)


@dataclass(frozen=True)
class RepeatedSteps:
    """
    Rows of the transposed Jacobian by fixed steps, their errors, and states.

    Differences are repeated with longer steps: their spread estimates the truncation error and the
    noise of f. A much shorter step shows whether f varies within a step, where the others agree on
    a wrong value.
    """

    problem: Problem
    steps: Steps

    @cached_property
    def _each(self) -> list[Columns]:
        return [self._times(k) for k in _STEP_MULTIPLES]

    def _times(self, k: float) -> Columns:
        """Return the work with steps multiplied by k."""
        steps = self.steps
        if self.problem.imaginary:  # whose lengths are the steps
            return Columns(self.problem, replace(steps, lengths=k * steps.lengths))
        return Columns(self.problem, replace(steps, factor=k * steps.factor))

    @property
    def calls(self) -> float:
        """The number of calls of f for a row."""
        once = self._each[0].calls
        return once * (len(_STEP_MULTIPLES) if self.problem.imaginary else len(_STEP_MULTIPLES) + 1)

    def results(self, count: int) -> Buffers:
        """Return arrays for values and errors, a row each, and states."""
        shape = count, self.problem.base.size // (2 if self.problem.imaginary else 1)
        return np.empty(shape), np.empty(shape), np.zeros(count, STATE)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with the results of coordinates from `start`."""
        values, errors, states = outs
        results = [_rows_of(work, start, len(states)) for work in self._each]
        values[:], errors[:] = self._with_errors([rows for rows, *_ in results])
        first, last = results[0], results[-1]
        if not self.problem.imaginary:
            errors += self._rounding(first)
            errors[self._is_aliased(start, values)] = np.inf
        errors[~np.isfinite(errors) | ~(last.steps >= _MIN_STEP_RATIO * first.steps)[:, None]] = (
            np.inf
        )
        states["step"], states["status"] = last.steps, first.status
        states["calls"] = self.calls * (first.status == FIXED)

    def at(self, columns: NDArray, outs: Buffers) -> None:
        """Fill `outs` with the results of the coordinates `columns`."""
        for part in runs(columns):
            self(int(columns[part.start]), tuple(out[part] for out in outs))

    def gains(self, columns: NDArray) -> NDArray:
        """Return the factors by which the values of coordinates amplify noise of f."""
        gains = np.zeros(len(columns))
        if self.problem.imaginary:  # nothing is subtracted
            return gains
        for part in runs(columns):
            first, last = int(columns[part.start]), int(columns[part.stop - 1]) + 1
            table, _ = self.steps.tables(self.problem.x, self.problem.stride, first, last)
            gains[part] = np.abs(table[2]).sum(axis=0)
        return gains

    def along(self, v: NDArray) -> tuple[NDArray, NDArray]:
        """Return the derivative of f's real values along v, and its errors."""
        values = [jacobian_vector_product(self.problem, v, work.steps)[0] for work in self._each]
        return self._with_errors(
            [value[1::2] if self.problem.imaginary else value for value in values]
        )

    def _with_errors(self, results: Sequence[NDArray]) -> tuple[NDArray, NDArray]:
        value, *others = results
        with np.errstate(invalid="ignore"):
            spread = np.max([np.abs(other - value) for other in others], axis=0)
            return value, _ERROR_PER_SPREAD * spread + _ROUNDING_EPS * self.steps.eps * np.abs(
                value
            )

    def _is_aliased(self, start: int, values: NDArray) -> NDArray:
        """Return where a much shorter step contradicts the values: f varies within a step."""
        work = self._times(self.steps.eps**_SHORT_STEP_POWER)
        x, stride = self.problem.x, self.problem.stride
        _, status = work.steps.tables(x, stride, start, start + len(values))
        if (status == LOST).any():  # the shorter steps are lost to rounding
            return np.zeros(values.shape, bool)
        near = _rows_of(work, start, len(values))
        with np.errstate(invalid="ignore"):
            least = np.abs(values) + self._rounding(near)
            return np.asarray(np.abs(near.rows - values) > _CONTRADICTION_ERRORS * least)

    def _rounding(self, taken: "_FixedStepRows") -> NDArray:
        """Return the rounding error of differences of f."""
        pairs = np.abs(self.problem.base).reshape(-1, self.problem.parts)
        sizes = np.repeat(pairs.max(axis=1), self.problem.parts)
        return np.asarray(_ROUNDING_EPS * self.steps.eps * taken.gains[:, None] * sizes)


@dataclass(frozen=True)
class ComplexSteps:
    """
    Complex steps of f, compared with differences along the real axis.

    A function that is not analytic, such as one with `abs` or `conj`, has a different derivative
    along the imaginary axis, or none: then the difference is used. It is also used for imaginary
    parts of results, which complex steps do not differentiate.
    """

    imaginary: RepeatedSteps
    real: ExtrapolatedColumns
    coarse: Steps  # of the central differences that confirm most directions

    @property
    def problem(self) -> Problem:
        return self.imaginary.problem

    @property
    def calls(self) -> float:
        """The number of calls of f for a row."""
        return self.imaginary.calls + self.real.calls

    def results(self, count: int) -> Buffers:
        """Return arrays for values and errors, a row each, and states."""
        return self.real.results(count)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with the results of coordinates from `start`."""
        self.at(np.arange(start, start + len(outs[0])), outs)

    def at(self, columns: NDArray, outs: Buffers) -> None:
        """Fill `outs` with the results of the coordinates `columns`."""
        values, errors, states = outs
        self.real.at(columns, outs)
        exact = self.imaginary.results(len(columns))
        self.imaginary.at(columns, exact)
        calls = states["calls"] + exact[2]["calls"]
        parts = slice(None, None, self._parts)
        contradicted = _replace(values[:, parts], errors[:, parts], *exact[:2]).any(axis=1)
        states[~contradicted] = exact[2][~contradicted]
        states["calls"] = calls

    def along(self, v: NDArray) -> tuple[NDArray, NDArray]:
        """Return the derivative of f's values along v, and its errors."""
        exact, problem = self.imaginary.along(v), self.real.problem
        near, _ = jacobian_vector_product(problem, v, self.coarse)
        if self._parts == 1 and self._confirms(near, exact[0], float(np.abs(v).max(initial=0.0))):
            return exact
        values, errors = jacobian_vector_product(problem, v, self.real.steps)
        _replace(values[:: self._parts], errors[:: self._parts], *exact)
        return values, errors

    def _confirms(self, near: NDArray, exact: NDArray, length: float) -> bool:
        """Return True if a central difference is as near to a complex step as any may be."""
        eps, sizes = self.coarse.eps, np.abs(self.real.problem.base)
        with np.errstate(invalid="ignore"):
            allowed = (
                eps ** (1 / 2) * np.abs(exact)
                + _CONTRADICTION_ERRORS * eps ** (2 / 3) * length * sizes
            )
            return bool(np.all(np.abs(near - exact) <= allowed))

    @property
    def _parts(self) -> int:
        """The number of real numbers in a result; complex steps differentiate the first."""
        return 2 * self.real.problem.base.size // self.problem.base.size


def _replace(values: NDArray, errors: NDArray, exact: NDArray, exact_errors: NDArray) -> NDArray:
    """Store derivatives by complex steps; return where differences contradict them."""
    with np.errstate(invalid="ignore"):
        contradicted = np.abs(exact - values) > _CONTRADICTION_ERRORS * errors + exact_errors
    np.copyto(values, exact, where=~contradicted)
    np.copyto(errors, exact_errors, where=~contradicted)
    return np.asarray(contradicted)


class _FixedStepRows(NamedTuple):
    """Rows of differences, their steps, and the factors by which they amplify rounding of f."""

    rows: NDArray
    status: NDArray
    steps: NDArray
    gains: NDArray


def _rows_of(work: Columns, start: int, count: int) -> _FixedStepRows:
    problem = work.problem
    rows, status = outs = work.results(count)
    work(start, outs)
    block = slice(start, start + count)
    if problem.imaginary:
        steps = np.broadcast_to(work.steps.lengths, problem.coordinates)[block]
        return _FixedStepRows(rows.astype(float), status, steps, np.zeros(count))
    table, _ = work.steps.tables(problem.x, problem.stride, start, start + count)
    steps = np.abs(table[0, 0] - as_real_vector(problem.x)[:: problem.stride][block])
    return _FixedStepRows(rows.astype(float), status, steps, np.abs(table[2]).sum(axis=0))
