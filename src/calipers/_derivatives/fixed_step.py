"""Jacobian columns by finite differences or complex steps of fixed size."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from .._compare.elementwise import equal_arrays
from .._core.dtypes import as_real_vector, real_parts
from .._core.protocols import NDArray
from .._execution.tasks import Buffers
from .._kernels.differences import COLUMNS, EXCLUDED, FIXED, IMAGINARY_COLUMNS, LOST
from .._kernels.scalar.formats import CACHE_LINE
from .compiled import Native
from .function import Problem
from .steps import ELEMENTS_PER_COORDINATE, Steps

# Beginnings of error messages that f does not raise itself.
_MESSAGES_ABOUT_F = "f changes its argument", "f returned"
UNDEFINED = "if f is not defined there, pass bounds=, or a smaller step= or scale="
_LARGEST_BLOCK = 64  # coordinates between two reports of progress, without batches
# Of what displaced rows of a batch change by, the least that another row is seen to change by.
_MIN_RELATIVE_CHANGE = 1e-3


def runs(columns: NDArray) -> Iterator[slice]:
    """Yield the slices of a list of columns in which they are consecutive."""
    ends = np.flatnonzero(np.diff(columns, append=-1) != 1) + 1
    for first, last in pairwise([0, *ends.tolist()]):
        yield slice(first, last)


def note_coordinate(
    error: Exception, problem: Problem, coordinate: int, step: float | None = None
) -> None:
    """Add a note to an error of f that names the perturbed element, and its step if known."""
    by = "" if step is None else f" by {step:.3g}"
    element = element_of(problem, int(coordinate) * problem.stride)
    description = f"with {element} perturbed{by} for its derivative"
    if str(error).startswith(_MESSAGES_ABOUT_F):
        error.add_note(f"detected {description}")
    else:
        error.add_note(f"raised by f {description}; {UNDEFINED}")


def perturbation(problem: Problem, x: NDArray, origin: NDArray, coordinate: int) -> float | None:
    """Return the step in the argument of a compiled f, or None for imaginary steps."""
    number = int(coordinate) * problem.stride
    return float(as_real_vector(x)[number] - origin[number]) or None


def element_of(problem: Problem, number: int) -> str:
    """Name the element of x that holds the real number `number`."""
    element = int(number) // real_parts(problem.x.dtype)
    index = ", ".join(str(int(i)) for i in np.unravel_index(element, problem.x.shape))
    return f"x[{index}]" if index else "x"


class Evaluator:
    """
    Values of f at points that differ from x in one real number each.

    A context manager, which raises at its end if f changed the arguments of its batches.
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
        """Split a range of coordinates into batches."""
        for start in range(0, count, self.block):
            yield slice(start, min(start + self.block, count))

    def coordinates(self, columns: NDArray) -> Iterator[tuple[slice, NDArray]]:
        """Split coordinates into batches; yield each slice and its real numbers of x."""
        for block in self.blocks(len(columns)):
            yield block, self.problem.stride * columns[block]

    def __call__(self, numbers: NDArray, points: NDArray, out: NDArray | None = None) -> NDArray:
        """Return a row of values for each real number and the value that replaces it."""
        base = self.problem.base
        values = np.empty((len(numbers), base.size), base.dtype) if out is None else out
        if not self.problem.batched:
            evaluate_each(self.problem, numbers, points, values)
            return values
        (perturbed,) = (points != self._origin[numbers]).nonzero()
        most = self._max_rows
        if not self.problem.has_independent_rows and numbers[:1] in numbers[1:]:
            # If f mixes rows, perturbations to both sides may cancel in the row of x, which would
            # hide it: a batch has perturbations to one side only.
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
        """Return rows for two values of each real number, from one batch if possible."""
        count = len(numbers)
        values = self(np.concatenate((numbers, numbers)), np.concatenate((one, other)))
        return values[:count], values[count:]

    def _batch(self, numbers: NDArray, points: NDArray, values: NDArray) -> NDArray:
        problem, count = self.problem, len(numbers)
        # The first batch has one more row, x itself, whose values must not depend on the others.
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
        values[:] = results[:count]  # a copy: y may be x, or a buffer of f
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
        # Near a root, matrix products with more rows round differently.
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
        Return True if f(x) in a batch changes with the other rows by more than rounding.

        If f(x) differs from its value alone, f is called twice more, with batches in which all rows
        are x: their rounding is that of the first batch, and a difference between them is noise.
        """
        problem, values = self.problem, every[-1]
        # A complex step perturbs imaginary parts; real parts differ by rounding only.
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


def evaluate_each(problem: Problem, numbers: NDArray, points: NDArray, values: NDArray) -> None:
    """Store a row of values for each real number and the value that replaces it, one by one."""
    results = values.view(problem.dtype).reshape(len(numbers), *problem.shape)
    for k, (number, point) in enumerate(zip(numbers.tolist(), points, strict=True)):
        x = problem.x.copy()  # f may write to it, or keep a reference
        reals = as_real_vector(x)
        origin = reals[number]
        if point == origin:
            values[k] = problem.base
            continue
        reals[number] = point
        passed = reals.copy()
        try:
            results[k] = problem.result(x)
            if not (problem.may_write or reals.tobytes() == passed.tobytes()):
                msg = "f changes its argument; let it work on a copy"
                raise ValueError(msg)
        except Exception as error:
            note_coordinate(error, problem, number // problem.stride, float(point - origin))
            raise


LARGE_BYTES = 1 << 20  # bytes of results that take much longer to fill than to prepare


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    """Return a new array that begins at a cache line.

    Vectors across cache lines slow a loop within the cache by a tenth.
    """
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + CACHE_LINE, np.uint8)
    first = -memory.__array_interface__["data"][0] % CACHE_LINE
    return memory[first : first + size].view(dtype).reshape(shape)


def lost_step(problem: Problem, coordinate: int, at: NDArray | None = None) -> ValueError:
    """Return the error of a step that is lost to rounding; `at` replaces the point x."""
    x = as_real_vector(problem.x if at is None else at)[problem.stride * coordinate]
    return ValueError(
        f"the step of element {coordinate} is lost in rounding at x = {x}: pass a larger step"
    )


def require_steps(problem: Problem, start: int, status: NDArray) -> None:
    """Raise if a step is lost in the rounding of x."""
    lost = status.tobytes().find(LOST)  # statuses are bytes
    if lost >= 0:
        raise lost_step(problem, start + lost)


def is_worth_compiling(problem: Problem) -> bool:
    """Return True if the kernel for a compiled f, if it is one, is worth its compilation."""
    kernels = IMAGINARY_COLUMNS if problem.imaginary else COLUMNS
    work = problem.coordinates * ELEMENTS_PER_COORDINATE
    return problem.native is None or problem.native.is_worth_compiling(kernels, work)


class ColumnScratch:
    """The kernel for some columns, with those of its arguments that do not depend on the point."""

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
    Rows of the transposed Jacobian, in real numbers, and a status for each.

    `spare` caches scratch between calls, since its allocation is a large part of a small problem.
    For the same reason `at`, for a compiled f, replaces the point of the problem.
    """

    problem: Problem
    steps: Steps
    spare: list[ColumnScratch] | None = field(default=None, compare=False)
    at: NDArray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "spare": None}  # kernels are not picklable

    @property
    def calls(self) -> float:
        return 1 if self.problem.imaginary or self.steps.one_sided else 2 * self.steps.pairs

    def results(self, count: int) -> Buffers:
        values = self.problem.base.size // (2 if self.problem.imaginary else 1)
        shape, dtype = (count, values), self.problem.base.dtype
        make = aligned if count * values * dtype.itemsize > LARGE_BYTES else np.empty
        return make(shape, dtype), np.empty(count, np.int8)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with the results of coordinates from `start`."""
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
        try:  # another thread may take the last one first
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
