"""Products with a Jacobian that is never formed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._execution.run import run
from .._execution.tasks import Buffers
from .._kernels.differences import CONVERGED
from .adaptive import STATE, ExtrapolatedColumns, extrapolate, lengths_of, outputs_of
from .fixed_step import UNDEFINED, Columns, lost_step
from .function import WIRTINGER, Problem
from .options import Options
from .solve import rows_of, steps_of
from .steps import ADAPTIVE, Steps

_BLOCK_BYTES = 1 << 20  # bytes of rows of the Jacobian that are in memory at a time
# Powers of what a displacement loses at its own element of x: what others may lose, of the longest.
_EXTRAPOLATED_LOSS_POWER, _FIXED_STEP_LOSS_POWER = 0.75, 0.5
# Least distance to a bound for central differences, as a share of the first step.
_MIN_TWO_SIDED = 2.0**-10


def jacobian_vector_product(problem: Problem, v: NDArray, steps: Steps) -> tuple[NDArray, NDArray]:
    """Return the derivative of f's real values along v, and its errors."""
    # The real numbers of v, in the order of those of x; complex steps use imaginary parts.
    direction = as_real_vector(np.ascontiguousarray(v, dtype=problem.x.dtype)).astype(float)
    shape = problem.base.shape
    if not direction.any():
        return np.zeros(shape), np.zeros(shape)
    if not np.isfinite(direction).all():
        return np.full(shape, np.nan), np.full(shape, np.inf)
    # Steps along a subnormal direction would overflow.
    size = np.ldexp(1.0, np.frexp(np.abs(direction).max())[1] - 1)
    results = []
    for part, far in _split_by_magnitude(problem, direction / size, steps):
        if far == 0:
            results.append((np.full(shape, np.nan), np.full(shape, np.inf)))
        elif steps.method == ADAPTIVE:
            results.append(_extrapolated(problem, part, far, steps))
        else:
            results.append((_difference(problem, part, far, steps), np.full(shape, np.inf)))
    with np.errstate(all="ignore"):
        value, error = (sum(each[1:], each[0]) * size for each in zip(*results, strict=True))
    return value, error


def _split_by_magnitude(
    problem: Problem, direction: NDArray, steps: Steps
) -> Iterator[tuple[NDArray, Any]]:
    """
    Split a direction if steps along it are lost in the rounding of large elements of x.

    Dates and offsets are such elements. Each part comes with its step, or the unit of its step
    sequence.
    """
    if problem.imaginary:
        yield direction, _length(problem, direction, steps)
        return
    spacings = steps.eps * np.abs(as_real_vector(problem.x).astype(float))
    left = direction
    while left.any():
        if steps.method == ADAPTIVE:
            far, grain = _unit_length(problem, left, steps), steps.eps**_EXTRAPOLATED_LOSS_POWER
        else:
            far = _length(problem, left, steps)
            grain = (steps.eps / min(steps.factor, 1.0)) ** _FIXED_STEP_LOSS_POWER
        with np.errstate(all="ignore"):
            lost = (left != 0) & ~(spacings <= grain * far * np.abs(left).max())
        if lost[left != 0].all():
            lost[:] = False  # the caller chose the step
        for part in _split_at_bounds(problem, np.where(lost, 0.0, left), far, steps):
            yield part, far
        left = np.where(lost, left, 0.0)


def _split_at_bounds(
    problem: Problem, direction: NDArray, far: Any, steps: Steps
) -> Iterator[NDArray]:
    """
    Split a direction if the bounds exclude a step along it in both orientations.

    In a corner, some elements of x can only increase and others only decrease.
    """
    if not steps.lows.size:
        yield direction
        return
    x = as_real_vector(problem.x).astype(float)
    up, down = _distance_to_bounds(x, direction, steps)
    extent, one_sided = _MIN_TWO_SIDED * far, _MIN_TWO_SIDED * far
    if steps.method != ADAPTIVE:
        extent, one_sided = _stencil_extent(steps) * far, steps.sided[-1, 0] * far
    if min(up, down) >= extent or max(up, down) >= one_sided:
        yield direction
        return
    with np.errstate(all="ignore"):
        forth, back = steps.highs - x, x - steps.lows
    ahead = np.where(direction > 0, forth >= back, back >= forth)
    for part in (np.where(ahead, direction, 0.0), np.where(ahead, 0.0, direction)):
        if part.any():
            yield part


def _stencil_extent(steps: Steps) -> float:
    """Return the largest offset of the central stencil, in steps."""
    return float(np.abs(steps.central).max(initial=0, where=[True, True, False]))


def _difference(problem: Problem, direction: NDArray, t: float, steps: Steps) -> NDArray:
    """Return the derivative along a direction by one step."""
    shape = problem.base.shape
    if problem.imaginary:
        there = _at(
            problem, _point(problem, steps, as_real_vector(problem.x), t, np.roll(direction, 1))
        )
        with np.errstate(all="ignore"):
            return there / t
    x = as_real_vector(problem.x)
    x = x.astype(np.promote_types(x.dtype, float))
    wide = np.promote_types(problem.base.dtype, float)
    value = np.zeros(shape, wide)
    stencil = steps.central
    up, down = _distance_to_bounds(x, direction, steps)
    if min(up, down if (stencil[:, 1] < 0).any() else np.inf) < _stencil_extent(steps) * t:
        stencil = steps.sided
        sign = 1.0 if up >= down else -1.0
        t = sign * min(t, max(up, down) / stencil[-1, 0])
    if t == 0:
        return np.full(shape, np.nan)

    for first, last, weight in stencil.tolist():  # Python floats raise no NumPy warnings
        ends = [_point(problem, steps, x, far * t, direction) for far in (first, last)]
        width = _width(problem, ends, direction, (first - last) * t)
        above = _at(problem, ends[0]).astype(wide)
        below = _at(problem, ends[1]) if last else problem.base
        with np.errstate(all="ignore"):
            value += weight * (above - below) / width
    return value


@np.errstate(all="ignore")
def _width(problem: Problem, ends: list[NDArray], direction: NDArray, nominal: float) -> Any:
    """Return the distance of two rounded points along a direction."""
    nonzero = direction != 0
    wide = np.promote_types(ends[0].dtype, float)
    distance = (ends[0].astype(wide) - ends[1])[nonzero]
    if not distance.any():
        raise lost_step(problem, int(np.argmax(np.abs(direction))) // problem.stride)
    width = (distance * direction[nonzero]).sum() / np.square(direction[nonzero]).sum()
    return width if np.isfinite(width) else nominal


@np.errstate(all="ignore")
def _point(problem: Problem, steps: Steps, x: NDArray, far: float, direction: NDArray) -> NDArray:
    """Return the point x + far*direction, within the bounds and in x's dtype."""
    point = x + far * direction
    if steps.lows.size:  # rounding may exceed the bounds
        point = np.clip(point, steps.lows, steps.highs)
    return point.astype(as_real_vector(problem.x).dtype)


def _at(problem: Problem, point: NDArray) -> NDArray:
    """Return f's real values at a point."""
    try:
        return problem.at(point)
    except Exception as error:
        error.add_note(
            f"raised by f at x perturbed along the direction of the product; {UNDEFINED}"
        )
        raise


@np.errstate(all="ignore")
def _length(problem: Problem, direction: NDArray, steps: Steps) -> float:
    """Return the largest power of two t for which no element of t*v exceeds its step."""
    lengths = steps.factor * steps.lengths
    if not lengths.size:
        lengths = steps.factor * np.maximum(1.0, np.abs(as_real_vector(problem.x).astype(float)))
    lengths = np.broadcast_to(lengths, (problem.coordinates,))
    largest = np.abs(direction).reshape(problem.coordinates, -1).max(axis=1)
    return float(2.0 ** np.floor(np.log2(np.min((lengths / largest)[largest > 0]))))


@np.errstate(all="ignore")
def _distance_to_bounds(x: NDArray, direction: NDArray, steps: Steps) -> tuple[float, float]:
    """Return the distances from x to the bounds along a direction and against it."""
    if not steps.lows.size:
        return np.inf, np.inf
    to_high = np.where(direction != 0, (steps.highs - x) / direction, np.nan)
    to_low = np.where(direction != 0, (steps.lows - x) / direction, np.nan)
    up = np.fmin.reduce(np.maximum(to_high, to_low))
    down = np.fmin.reduce(np.maximum(-to_high, -to_low))
    return float(up), float(down)


@np.errstate(all="ignore")
def _unit_length(problem: Problem, direction: NDArray, steps: Steps) -> Any:
    """Return the unit of the step sequence along a direction: the least of its coordinates."""
    lengths = lengths_of(problem, steps).repeat(problem.stride)[: direction.size]
    nonzero = direction != 0
    return np.min((lengths / np.abs(direction))[nonzero])


@np.errstate(all="ignore")  # of f, too: much too large steps are part of the search
def _extrapolated(
    problem: Problem, direction: NDArray, length: Any, steps: Steps
) -> tuple[NDArray, NDArray]:
    coords = as_real_vector(problem.x)
    x = coords.astype(float)
    units = np.maximum(1.0, np.abs(x))
    nonzero = direction != 0
    unit = np.min((units / np.abs(direction))[nonzero])
    up, down = (distance / length for distance in _distance_to_bounds(x, direction, steps))
    states = np.zeros(1, STATE)
    states["length"], states["limit"] = length, min(up, down)
    spacing = steps.eps * np.abs(x)[nonzero] / np.abs(direction)[nonzero]
    states["grain"] = spacing.min() / length
    if min(up, down) < _MIN_TWO_SIDED:
        states["one_sided"], states["limit"] = 1 if up >= down else -1, max(up, down)
    top = 0.5 if steps.is_explicit else np.fmax(unit / length, 1.0)
    states["top"] = np.fmin(top, 2 * states["limit"])
    states["status"] = CONVERGED
    values, errors = np.empty((1, problem.base.size)), np.empty((1, problem.base.size))

    def displaced(_: NDArray, t: NDArray) -> tuple[NDArray, NDArray]:
        rows = [
            _at(problem, _point(problem, steps, x, far * length, direction)) for far in t.tolist()
        ]
        return np.stack(rows), t

    extrapolate(outputs_of(problem, steps.eps), displaced, (values, errors, states))
    # The displacement of each coordinate is rounded to its format.
    return values[0], errors[0] + steps.eps * np.abs(values[0])


@dataclass(frozen=True)
class ContractedColumns:
    """Products of a vector with the columns of the Jacobian, and their errors."""

    work: Columns | ExtrapolatedColumns
    weights: NDArray  # for the real values of f

    @property
    def problem(self) -> Problem:
        return self.work.problem

    @property
    def calls(self) -> float:
        return self.work.calls

    def results(self, count: int) -> Buffers:
        return (np.empty((count, *self.weights.shape[1:])), np.empty(count))

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with the products of coordinates from `start`."""
        products, errors = outs
        step = max(1, _BLOCK_BYTES // max(1, self.problem.base.nbytes))
        for first in range(0, len(products), step):
            part = slice(first, min(first + step, len(products)))
            results = self.work.results(part.stop - part.start)
            self.work(start + first, results)
            with np.errstate(all="ignore"):
                # Matrix products would round differently by how many rows there are.
                rows = results[0].astype(float, copy=False)
                products[part] = np.einsum("ij,jk->ik", rows, self.weights)
                errors[part] = np.inf
                if isinstance(self.work, ExtrapolatedColumns):
                    errors[part] = results[1] @ np.abs(self.weights).max(axis=-1, initial=0)


def vector_jacobian_product(
    problem: Problem, w: NDArray, options: Options
) -> tuple[NDArray, NDArray]:
    """Return w times the Jacobian, as f's dtype, and its errors."""
    if problem.mode == WIRTINGER:
        msg = (
            "vjp of a complex function needs holomorphic=True: otherwise it has no single Jacobian"
        )
        raise ValueError(msg)
    steps = steps_of(problem, options)
    w = np.asarray(w).reshape(-1)
    values = w[:, None]
    if problem.dtype.kind == "c" and not problem.imaginary:
        # (a + ib)(u + iv): the real values are u and v, the products' real and imaginary parts
        values = np.stack([w, 1j * w], axis=1).reshape(-1, 1)
    weights = np.concatenate([values.real, values.imag], axis=1).astype(float)
    work = ExtrapolatedColumns(problem, steps) if options.adaptive else Columns(problem, steps)
    products, errors = run(
        ContractedColumns(work, weights), problem.coordinates, options.workers, options.progress
    )
    is_complex = w.dtype.kind == "c" or (problem.dtype.kind == "c" and not problem.imaginary)
    result = products[:, 0] + 1j * products[:, 1] if is_complex else products[:, 0]
    kind = (
        problem.base.dtype if not is_complex else np.result_type(problem.base.dtype, np.complex64)
    )
    return result.astype(kind).reshape(problem.x.shape), errors.reshape(problem.x.shape)


def blocks(problem: Problem, options: Options, size: int) -> Iterator[tuple[slice, NDArray]]:
    """Yield the rows of the transposed Jacobian in blocks of coordinates."""
    steps = steps_of(problem, options)
    parts = (
        slice(start, min(start + size, problem.coordinates))
        for start in range(0, problem.coordinates, size)
    )
    return (
        (part, rows_of(problem, steps, options, part.stop - part.start, part.start))
        for part in parts
    )
