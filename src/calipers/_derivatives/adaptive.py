"""Derivatives that know their error, along coordinates or directions; see `_kernels.ladder`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._execution.messages import Outs
from .._kernels.differences import CONVERGED, NOISY
from .._kernels.ladder import CLIMB, CLIMB_COLUMNS, MEASURE_ALL, MEASURE_LENGTHS, START, StepLimits
from .._kernels.ladder_extrapolate import N_ESTIMATES, ROWS, STATE, Workspace
from .compiled import Native
from .fixed_step import Evaluator, blame, perturbation, runs
from .function import Problem
from .steps import Steps

CALLS = 12.0  # of f by which most ladders end
SCRATCH = 1 << 25  # bytes for the ladders that are climbed in step
_ROOM = ROWS, ROWS, ROWS, N_ESTIMATES  # rows of each array
_BLOCK_BYTES = 1 << 19  # of values whose errors are dropped

# Given numbers of directions, maybe twice, and how far to go along each, in units of their lengths,
# returns the values of f there and how far that was after rounding.
Evaluate = Callable[[NDArray, NDArray], tuple[NDArray, NDArray]]


def measured(problem: Problem, steps: Steps, other: bool = False) -> NDArray:
    """Return the state of a ladder along each coordinate, before it begins; or of another."""
    coords = np.ascontiguousarray(as_real_vector(problem.x)[:: problem.stride])
    states = np.zeros(coords.size, STATE)
    MEASURE_ALL[coords.dtype](states, coords, _reach(problem, steps, other))
    return states


def lengths_of(problem: Problem, steps: Steps) -> NDArray:
    """Return how far the ladder along each coordinate goes where t is 1."""
    coords = np.ascontiguousarray(as_real_vector(problem.x)[:: problem.stride])
    lengths = np.empty(coords.size)
    given = np.zeros(1, STATE), coords, _reach(problem, steps)
    MEASURE_LENGTHS[coords.dtype](lengths, *given)
    return lengths


def _reach(problem: Problem, steps: Steps, other: bool = False) -> StepLimits:
    status, lengths = NOISY if steps.narrow else CONVERGED, steps.lengths
    return StepLimits(lengths, steps.lows, steps.highs, steps.eps, problem.parts, status, other)


def _room(size: int) -> Workspace:
    """Return room for a ladder of so many outputs."""
    return Workspace(*(np.empty((rows, size)) for rows in _ROOM))


def scratch_of(size: int) -> int:
    """Return the bytes that a ladder of so many outputs takes."""
    return sum(_ROOM) * size * 8


def climb(base: NDArray, evaluate: Evaluate, outs: Outs) -> None:
    """Climb the ladders of directions whose states are measured, in step with each other."""
    values, errors, states = outs
    count, m = values.shape
    rooms = [_room(m) for _ in range(count)]
    for k, room in enumerate(rooms):
        START[base.dtype](states, k, base, room.estimates, values[k], errors[k])
    # Steps that are far too large are part of the search; f need not warn of them.
    with np.errstate(all="ignore"):
        _climb(base, evaluate, outs, rooms)
        length, scale = states["length"][:, None], states["scale"][:, None]
        for found in (values, errors):
            found /= length
            found /= scale


def _climb(base: NDArray, evaluate: Evaluate, outs: Outs, rooms: list[Workspace]) -> None:
    values, errors, states = outs
    advance = CLIMB[base.dtype]
    while len(active := np.flatnonzero(states["t"] > 0)):
        t, side, count = states["t"][active], states["one_sided"][active], len(active)
        central = np.flatnonzero(side == 0)
        both = np.concatenate((active, active[central]))
        found, far = evaluate(both, np.concatenate((np.where(side < 0, -t, t), -t[central])))
        below, back = [base] * count, np.zeros(count)
        back[central] = far[count:]
        for i, row in zip(central.tolist(), found[count:], strict=True):
            below[i] = row
        for i, k in enumerate(active.tolist()):
            ends = found[i], below[i], base, float(far[i] - back[i])
            advance(states, k, *ends, rooms[k], values[k], errors[k])


@dataclass(frozen=True)
class Ladders:
    """Rows of the transposed Jacobian, their errors, and the final states of their ladders."""

    problem: Problem
    steps: Steps
    other: bool = field(default=False, kw_only=True)  # by other steps
    calls = CALLS

    def results(self, count: int) -> Outs:
        shape = count, self.problem.base.size
        return np.empty(shape), np.empty(shape), np.zeros(count, STATE)

    def by_other_steps(self) -> "Ladders":
        """Return ladders whose steps are none of these, and meet other noise and other kinks."""
        return replace(self, other=not self.other)

    def __call__(self, start: int, outs: Outs) -> None:
        """Fill `outs` with what belongs to coordinates from `start`."""
        native = self.problem.native
        if native is None:
            self._python(np.arange(start, start + len(outs[-1])), outs)
        else:
            self._compiled(native, start, outs)
        self._doubt(outs)

    def at(self, columns: NDArray, outs: Outs) -> None:
        """Fill `outs` with what belongs to some coordinates."""
        native = self.problem.native
        if native is None:
            self._python(columns, outs)
        else:
            for part in runs(columns):
                self._compiled(native, int(columns[part.start]), tuple(out[part] for out in outs))
        self._doubt(outs)

    def _doubt(self, outs: Outs) -> None:
        if self.steps.vague:
            outs[1][:] = np.inf

    def _compiled(self, native: Native, start: int, outs: Outs) -> None:
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
        scratch = (problem.base, upper, np.empty_like(upper), _room(problem.base.size))
        further, reached = CLIMB.address(problem.base.dtype), np.empty(1, np.int64)
        try:
            native.entry(CLIMB_COLUMNS)(
                *where, _reach(problem, steps, self.other), further, *scratch, *outs, reached
            )
        except Exception as error:
            step = perturbation(problem, x, as_real_vector(problem.x), reached[0])
            blame(error, problem, reached[0], step)
            raise

    def _python(self, columns: NDArray, outs: Outs) -> None:
        problem = self.problem
        states = outs[-1]
        states[:] = measured(problem, self.steps, self.other)[columns]
        scratch = scratch_of(problem.base.size)
        with Evaluator(problem) as evaluate:
            evaluate.block = max(1, min(evaluate.block, SCRATCH // max(1, scratch)))
            for block, numbers in evaluate.coordinates(columns):
                displaced = self._displaced(evaluate, numbers, states["length"][block])
                climb(problem.base, displaced, tuple(out[block] for out in outs))

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
class Values:
    """Rows of the transposed Jacobian alone: ladders whose errors are dropped block by block."""

    ladders: Ladders
    calls = CALLS

    @property
    def problem(self) -> Problem:
        return self.ladders.problem

    def results(self, count: int) -> Outs:
        base = self.problem.base
        return (np.empty((count, base.size), base.dtype),)

    def __call__(self, start: int, outs: Outs) -> None:
        """Fill `outs` with what belongs to coordinates from `start`."""
        (rows,) = outs
        step = max(1, _BLOCK_BYTES // max(1, rows[:1].nbytes))
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            found = self.ladders.results(len(part))
            self.ladders(start + first, found)
            part[:] = found[0]
