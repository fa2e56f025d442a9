"""Extrapolated derivatives with error estimates; see `_kernels.ladder`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._execution.tasks import Buffers
from .._kernels.differences import CONVERGED, NOISY
from .._kernels.ladder import CLIMB, CLIMB_COLUMNS, MEASURE_ALL, MEASURE_LENGTHS, START, StepLimits
from .._kernels.ladder_extrapolate import N_ESTIMATES, ROWS, STATE, Workspace
from .compiled import Native
from .fixed_step import Evaluator, note_coordinate, perturbation, runs
from .function import Problem
from .steps import Steps

CALLS_PER_COLUMN = 12.0  # of f by which most ladders end
SCRATCH_BYTES = 1 << 25  # bytes for the ladders that are climbed in step
_SCRATCH_ROWS = ROWS, ROWS, ROWS, N_ESTIMATES  # rows of each array
_BLOCK_BYTES = 1 << 19  # of values whose errors are dropped

# Given numbers of directions, maybe twice, and how far to go along each, in units of their lengths,
# returns the values of f there and how far that was after rounding.
Evaluate = Callable[[NDArray, NDArray], tuple[NDArray, NDArray]]


def initial_states(problem: Problem, steps: Steps, interleaved: bool = False) -> NDArray:
    """Return the initial state of each coordinate's step sequence, or of an interleaved one."""
    coords = np.ascontiguousarray(as_real_vector(problem.x)[:: problem.stride])
    states = np.zeros(coords.size, STATE)
    MEASURE_ALL[coords.dtype](states, coords, _step_limits(problem, steps, interleaved))
    return states


def lengths_of(problem: Problem, steps: Steps) -> NDArray:
    """Return the unit of t, the relative step, along each coordinate."""
    coords = np.ascontiguousarray(as_real_vector(problem.x)[:: problem.stride])
    lengths = np.empty(coords.size)
    arguments = np.zeros(1, STATE), coords, _step_limits(problem, steps)
    MEASURE_LENGTHS[coords.dtype](lengths, *arguments)
    return lengths


def _step_limits(problem: Problem, steps: Steps, interleaved: bool = False) -> StepLimits:
    status, lengths = NOISY if steps.narrow else CONVERGED, steps.lengths
    return StepLimits(
        lengths, steps.lows, steps.highs, steps.eps, problem.parts, status, interleaved
    )


def _scratch(size: int) -> Workspace:
    """Return scratch for the step sequence of `size` outputs."""
    return Workspace(*(np.empty((rows, size)) for rows in _SCRATCH_ROWS))


def scratch_of(size: int) -> int:
    """Return the bytes of scratch of the step sequence of `size` outputs."""
    return sum(_SCRATCH_ROWS) * size * 8


def extrapolate(base: NDArray, evaluate: Evaluate, outs: Buffers) -> None:
    """Extrapolate derivatives along directions with initial states, all at the same step level."""
    values, errors, states = outs
    count, m = values.shape
    scratches = [_scratch(m) for _ in range(count)]
    for k, scratch in enumerate(scratches):
        START[base.dtype](states, k, base, scratch.estimates, values[k], errors[k])
    # Much too large steps are part of the search: warnings of f are suppressed.
    with np.errstate(all="ignore"):
        _extrapolate(base, evaluate, outs, scratches)
        length, scale = states["length"][:, None], states["scale"][:, None]
        for out in (values, errors):
            out /= length
            out /= scale


def _extrapolate(
    base: NDArray, evaluate: Evaluate, outs: Buffers, scratches: list[Workspace]
) -> None:
    values, errors, states = outs
    advance = CLIMB[base.dtype]
    while len(active := np.flatnonzero(states["t"] > 0)):
        t, sign, count = states["t"][active], states["one_sided"][active], len(active)
        central = np.flatnonzero(sign == 0)
        both = np.concatenate((active, active[central]))
        results, far = evaluate(both, np.concatenate((np.where(sign < 0, -t, t), -t[central])))
        below, back = [base] * count, np.zeros(count)
        back[central] = far[count:]
        for i, row in zip(central.tolist(), results[count:], strict=True):
            below[i] = row
        for i, k in enumerate(active.tolist()):
            ends = results[i], below[i], base, float(far[i] - back[i])
            advance(states, k, *ends, scratches[k], values[k], errors[k])


@dataclass(frozen=True)
class ExtrapolatedColumns:
    """Extrapolated rows of the transposed Jacobian, their errors, and final states."""

    problem: Problem
    steps: Steps
    interleaved: bool = field(
        default=False, kw_only=True
    )  # whether the steps lie between those of the default
    calls = CALLS_PER_COLUMN

    def results(self, count: int) -> Buffers:
        shape = count, self.problem.base.size
        return np.empty(shape), np.empty(shape), np.zeros(count, STATE)

    def with_interleaved_steps(self) -> "ExtrapolatedColumns":
        """Return the same with different steps, which meet independent noise and other kinks."""
        return replace(self, interleaved=not self.interleaved)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with the results of coordinates from `start`."""
        native = self.problem.native
        if native is None:
            self._python(np.arange(start, start + len(outs[-1])), outs)
        else:
            self._compiled(native, start, outs)
        self._drop_unknown_errors(outs)

    def at(self, columns: NDArray, outs: Buffers) -> None:
        """Fill `outs` with the results of the coordinates `columns`."""
        native = self.problem.native
        if native is None:
            self._python(columns, outs)
        else:
            for part in runs(columns):
                self._compiled(native, int(columns[part.start]), tuple(out[part] for out in outs))
        self._drop_unknown_errors(outs)

    def _drop_unknown_errors(self, outs: Buffers) -> None:
        if self.steps.is_error_unknown:
            outs[1][:] = np.inf

    def _compiled(self, native: Native, start: int, outs: Buffers) -> None:
        problem, steps = self.problem, self.steps
        x = np.empty_like(problem.x)
        where = (
            native.form,
            x,
            as_real_vector(x),
            as_real_vector(problem.x),
            problem.stride,
            start,
        )
        upper = np.empty(problem.native_shape, problem.dtype)
        scratch = (problem.base, upper, np.empty_like(upper), _scratch(problem.base.size))
        further, reached = CLIMB.address(problem.base.dtype), np.empty(1, np.int64)
        try:
            native.entry(CLIMB_COLUMNS)(
                *where,
                _step_limits(problem, steps, self.interleaved),
                further,
                *scratch,
                *outs,
                reached,
            )
        except Exception as error:
            step = perturbation(problem, x, as_real_vector(problem.x), reached[0])
            note_coordinate(error, problem, reached[0], step)
            raise

    def _python(self, columns: NDArray, outs: Buffers) -> None:
        problem = self.problem
        states = outs[-1]
        states[:] = initial_states(problem, self.steps, self.interleaved)[columns]
        scratch = scratch_of(problem.base.size)
        with Evaluator(problem) as evaluate:
            evaluate.block = max(1, min(evaluate.block, SCRATCH_BYTES // max(1, scratch)))
            for block, numbers in evaluate.coordinates(columns):
                displaced = self._displaced(evaluate, numbers, states["length"][block])
                extrapolate(problem.base, displaced, tuple(out[block] for out in outs))

    def _displaced(self, evaluate: Evaluator, numbers: NDArray, length: NDArray) -> Evaluate:
        origin = as_real_vector(self.problem.x)[numbers]
        lows, highs = self._bounds(numbers)

        def displaced(active: NDArray, t: NDArray) -> tuple[NDArray, NDArray]:
            points = np.clip(origin[active] + t * length[active], lows[active], highs[active])
            points = points.astype(origin.dtype)
            there = (points.astype(float) - origin[active]) / length[active]
            return evaluate(numbers[active], points), there

        return displaced

    def _bounds(self, numbers: NDArray) -> tuple[NDArray, NDArray]:
        if not self.steps.lows.size:
            everywhere = np.full(len(numbers), np.inf)
            return -everywhere, everywhere
        return self.steps.lows[numbers], self.steps.highs[numbers]


@dataclass(frozen=True)
class ExtrapolatedValues:
    """Extrapolated rows of the transposed Jacobian, without their errors."""

    ladders: ExtrapolatedColumns
    calls = CALLS_PER_COLUMN

    @property
    def problem(self) -> Problem:
        return self.ladders.problem

    def results(self, count: int) -> Buffers:
        base = self.problem.base
        return (np.empty((count, base.size), base.dtype),)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with the results of coordinates from `start`."""
        (rows,) = outs
        step = max(1, _BLOCK_BYTES // max(1, rows[:1].nbytes))
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            results = self.ladders.results(len(part))
            self.ladders(start + first, results)
            part[:] = results[0]
