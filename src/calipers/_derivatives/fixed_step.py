"""Derivatives along a range of coordinates by fixed steps: a task for any worker."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from .._compare.elementwise import equal_arrays
from .._core.dtypes import as_real_vector, real_parts
from .._core.protocols import NDArray
from .._execution.messages import Buffers
from .._kernels.differences import COLUMNS, EXCLUDED, FIXED, IMAGINARY_COLUMNS, LOST
from .compiled import Native
from .function import Problem
from .steps import Steps

# What is said of f, and not by it.
_MESSAGES_ABOUT_F = "f changes its argument", "f returned"
UNDEFINED = "if f is not defined there, pass bounds=, or a smaller step= or scale="
_LARGEST_BLOCK = 64  # coordinates between two reports of progress, without batches
# Of what displaced rows of a batch change by, the least that another row is seen to change by.
_MIN_RELATIVE_CHANGE = 1e-3


def runs(columns: NDArray) -> Iterator[slice]:
    """Say where in a list of columns each follows the one before."""
    ends = np.flatnonzero(np.diff(columns, append=-1) != 1) + 1
    for first, last in pairwise([0, *ends.tolist()]):
        yield slice(first, last)


def note_coordinate(
    error: Exception, problem: Problem, coordinate: int, step: float | None = None
) -> None:
    """Note on an error of f which coordinate was displaced, and by how much, if that is known."""
    by = "" if step is None else f" by {step:.3g}"
    element = element_of(problem, int(coordinate) * problem.stride)
    description = f"with {element} perturbed{by} for its derivative"
    if str(error).startswith(_MESSAGES_ABOUT_F):
        error.add_note(f"detected {description}")
    else:
        error.add_note(f"raised by f {description}; {UNDEFINED}")


def perturbation(problem: Problem, x: NDArray, origin: NDArray, coordinate: int) -> float | None:
    """Return the step that the argument of a compiled f took, None if along the imaginary axis."""
    number = int(coordinate) * problem.stride
    return float(as_real_vector(x)[number] - origin[number]) or None


def element_of(problem: Problem, number: int) -> str:
    """Name the element of x that has a real number."""
    element = int(number) // real_parts(problem.x.dtype)
    index = ", ".join(str(int(i)) for i in np.unravel_index(element, problem.x.shape))
    return f"x[{index}]" if index else "x"


class Evaluator:
    """
    Values of f at points that differ from x in one real number each.

    In a with statement, whose end finds out whether f has changed the arguments of its batches.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._origin = as_real_vector(problem.x)
        bytes_per_call = problem.x.nbytes + problem.base.nbytes
        rows = max(1, problem.batch_bytes // max(1, bytes_per_call))
        self.block = max(1, min(rows, problem.coordinates))
        self._max_rows = min(rows, 2 * self.block)
        self._buffer: NDArray = np.empty(0)
        if not problem.batched:
            self.block = min(self.block, _LARGEST_BLOCK)

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._require_unchanged()

    def blocks(self, count: int) -> Iterator[slice]:
        """Split a range of coordinates for calls that share a batch."""
        for start in range(0, count, self.block):
            yield slice(start, min(start + self.block, count))

    def coordinates(self, columns: NDArray) -> Iterator[tuple[slice, NDArray]]:
        """Split coordinates alike: where each part is among them, and its real numbers of x."""
        for block in self.blocks(len(columns)):
            yield block, self.problem.stride * columns[block]

    def __call__(self, numbers: NDArray, points: NDArray, out: NDArray | None = None) -> NDArray:
        """Return a row of values for each point of the real number it replaces: new, or in out."""
        base = self.problem.base
        values = np.empty((len(numbers), base.size), base.dtype) if out is None else out
        if not self.problem.batched:
            self._each(numbers, points, values)
            return values
        (perturbed,) = (points != self._origin[numbers]).nonzero()
        most = self._max_rows
        if not self.problem.has_independent_rows and numbers[:1] in numbers[1:]:
            # Where f mixes a batch of both sides of x, they might make up for each other, and leave
            # x what it is alone: each half is of one side.
            most = min(most, (len(perturbed) + 1) // 2)
        if 0 < len(perturbed) == len(numbers) <= most:
            self._batch(numbers, points, values)
            return values
        values[:] = base
        for first in range(0, len(perturbed), max(1, most)):
            some = perturbed[first : first + most]
            buffer = np.empty((len(some), base.size), base.dtype)
            values[some] = self._batch(numbers[some], points[some], buffer)
        return values

    def both(self, numbers: NDArray, one: NDArray, other: NDArray) -> tuple[NDArray, NDArray]:
        """Return rows for two points of each real number, from one batch if they fit in it."""
        count = len(numbers)
        values = self(np.concatenate((numbers, numbers)), np.concatenate((one, other)))
        return values[:count], values[count:]

    def _each(self, numbers: NDArray, points: NDArray, values: NDArray) -> None:
        problem, origin = self.problem, self._origin
        results = values.view(problem.dtype).reshape(len(numbers), *problem.shape)
        for k, number in enumerate(numbers.tolist()):
            point = points[k]
            if point == origin[number]:
                values[k] = problem.base
                continue
            x = problem.x.copy()  # f may write into it, or keep it
            as_real_vector(x)[number] = point
            try:
                results[k] = problem.result(x)
            except Exception as error:
                note_coordinate(
                    error, problem, number // problem.stride, float(point - origin[number])
                )
                raise

    def _batch(self, numbers: NDArray, points: NDArray, values: NDArray) -> NDArray:
        problem, count = self.problem, len(numbers)
        # The first batch has a row more, x itself: its values must not depend on the others.
        extra = 0 if problem.has_independent_rows else 1
        new = len(self._buffer) < count + extra
        if new:
            self._require_unchanged()
            self._buffer = np.repeat(problem.x[None], count + extra, axis=0)
        x = self._buffer[: count + extra]
        flat = as_real_vector(x).reshape(count + extra, -1)
        rows = np.arange(count)
        flat[rows, numbers] = points
        try:
            y = problem.call_batch(x)
        except Exception as error:
            which = element_of(problem, numbers[0]), element_of(problem, numbers[-1])
            error.add_note(
                f"raised by f for a batch in which {which[0]} to {which[1]} are perturbed; "
                f"{UNDEFINED}"
            )
            raise
        if y.shape[1:] != problem.shape:
            msg = f"f returned results of two shapes: {problem.shape} and then {y.shape[1:]}"
            raise ValueError(msg)
        results = as_real_vector(np.asarray(y, dtype=problem.dtype, order="C")).reshape(
            count + extra, -1
        )
        values[:] = results[:count]  # which may be x, or what f uses again
        flat[rows, numbers] = self._origin[numbers]
        if new:
            self._require_unchanged()
        if extra:
            self._require_independent_rows(x, results)
        return values

    def _require_unchanged(self) -> None:
        if not len(self._buffer):
            return
        size = self._origin.itemsize
        bits = f"u{size}" if size in (2, 4, 8) else "u1"
        flat = as_real_vector(self._buffer).reshape(len(self._buffer), self._origin.size)
        if (flat.view(bits) != self._origin.view(bits)).any():
            msg = "f changes its argument; make it work on a copy"
            raise ValueError(msg)

    def _require_independent_rows(self, x: NDArray, every: NDArray) -> None:
        base, values = self.problem.base, every[-1]
        finite = np.isfinite(base)
        # Beside a root f is rounded in other ways by matrix products of more rows.
        size = np.abs(every[np.isfinite(every)]).max(initial=0)
        far = not np.all(np.abs(values - base)[finite] <= 1e-3 * size)
        if far or self._depends_on_other_rows(x, every):
            msg = (
                "f mixes the rows of a batch: its result at x depends on the other rows; "
                "with batched=True each row is a separate point"
            )
            raise ValueError(msg)
        self.problem.has_independent_rows = True

    def _depends_on_other_rows(self, x: NDArray, every: NDArray) -> bool:
        """
        Tell whether f(x) in a batch changes with the rows beside it, as far as small steps show.

        f is asked once more only if f(x) is not what it is alone: of a batch of nothing but x,
        whose rounding is that of the batch before, and twice, since noise tells nothing.
        """
        problem, values = self.problem, every[-1]
        # A complex step displaces imaginary parts, and leaves real ones as they are rounded.
        part = slice(1, None, 2) if problem.imaginary else slice(None)
        with np.errstate(all="ignore"):
            base = problem.base[part]
            least = _MIN_RELATIVE_CHANGE * np.abs(every[:-1, part] - base).max(axis=0)
            if not (np.abs(values[part] - base) > least).any():
                return False
            alone, again = (
                as_real_vector(np.array(problem.call_batch(x)[-1], dtype=problem.dtype))[part]
                for _ in range(2)
            )
            same = equal_arrays(alone, again, equal_nan=True)
            return same and bool((np.abs(values[part] - alone) > least).any())


_CACHE_LINE_BYTES = 64  # bytes of a cache line, to which arrays are aligned
_LARGE_BYTES = 1 << 20  # bytes that take far longer to fill than to align


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    """Return new memory for an array that begins at a cache line.

    Vectors that cross lines cost a loop that stays in cache a tenth of its speed.
    """
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _CACHE_LINE_BYTES, np.uint8)
    first = -memory.__array_interface__["data"][0] % _CACHE_LINE_BYTES
    return memory[first : first + size].view(dtype).reshape(shape)


def lost_step(problem: Problem, coordinate: int, at: NDArray | None = None) -> ValueError:
    """Return the error that refuses a step, at another point than that of the problem maybe."""
    x = as_real_vector(problem.x if at is None else at)[problem.stride * coordinate]
    return ValueError(
        f"the step of element {coordinate} is lost in rounding at x = {x}: pass a larger step"
    )


def require_steps(problem: Problem, start: int, status: NDArray) -> None:
    """Refuse steps that vanish beside x."""
    lost = status.tobytes().find(LOST)  # a byte each
    if lost >= 0:
        raise lost_step(problem, start + lost)


class ColumnScratch:
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
            self.buffers: tuple[NDArray, ...] = (upper,)
        else:
            self.kernel = native.entry(COLUMNS)
            self.steps = steps.rule, np.empty((3, steps.pairs, count))
            self.buffers = upper, lower


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
    spare: list[ColumnScratch] | None = field(default=None, compare=False)
    at: NDArray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "spare": None}  # its kernels are of one process

    @property
    def calls(self) -> float:
        return 1 if self.problem.imaginary or self.steps.one_sided else 2 * self.steps.pairs

    def results(self, count: int) -> Buffers:
        values = self.problem.base.size // (2 if self.problem.imaginary else 1)
        shape, dtype = (count, values), self.problem.base.dtype
        make = aligned if count * values * dtype.itemsize > _LARGE_BYTES else np.empty
        return make(shape, dtype), np.empty(count, np.int8)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with what belongs to coordinates from `start`."""
        native = self.problem.native
        if native is not None:
            self._compiled(native, start, outs)
        elif self.problem.imaginary:
            self._imaginary(start, outs)
        else:
            self._real(start, outs)

    def _compiled(self, native: Native, start: int, outs: Buffers) -> None:
        problem, count = self.problem, len(outs[1])
        origin = as_real_vector(problem.x if self.at is None else self.at)
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
                *scratch.buffers,
                *outs,
                scratch.reached,
            )
        except Exception as error:
            reached = scratch.reached[0]
            note_coordinate(
                error, problem, reached, perturbation(problem, scratch.x, origin, reached)
            )
            raise
        if lost >= 0:
            raise lost_step(problem, lost, self.at)
        if self.spare is not None:
            self.spare.append(scratch)

    def _scratch(self, native: Native, count: int) -> ColumnScratch:
        try:  # another thread may take the last one between a look and a pop
            scratch = self.spare.pop() if self.spare else None
        except IndexError:
            scratch = None
        if scratch and scratch.count == count and scratch.values == self.problem.base.size:
            return scratch
        return ColumnScratch(self.problem, native, self.steps, count)

    def _real(self, start: int, outs: Buffers) -> None:
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

    def _imaginary(self, start: int, outs: Buffers) -> None:
        result, status = outs
        count, lengths = len(status), self.steps.lengths
        lengths = lengths.repeat(count) if lengths.size == 1 else lengths[start : start + count]
        status[:] = np.where(lengths != 0, FIXED, EXCLUDED)
        with Evaluator(self.problem) as evaluate:
            for block, numbers in evaluate.coordinates(np.arange(start, start + count)):
                values = evaluate(numbers + 1, lengths[block])[:, 1::2]
                with np.errstate(all="ignore"):
                    result[block] = values / lengths[block, None]
