"""Call vjp or jvp with unit vectors, and store the results: rows or columns of the Jacobian."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from threading import Lock

import numpy as np
from numba.core.dispatcher import Dispatcher

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._derivatives.fixed_step import aligned
from .._derivatives.function import REAL, WIRTINGER, Problem
from .._execution.run import run
from .._execution.tasks import Buffers
from .._kernels.gradcheck import AT_POINTS
from .analytic import AnalyticDerivative
from .entry_rules import all_agree
from .jacobian_storage import LARGE_BYTES, SPARSE, Compact, nonzeros

_MANY = 64  # unit vectors from which on a compiled loop is worth its compilation
FEW_VECTORS = 4  # unit vectors that are passed one by one rather than in a batch
_TOGETHER = 128  # unit vectors in one batch at most
_BATCH_BYTES = 1 << 24  # size of the results of one batch at most
_BLOCK_BYTES = 1 << 20  # size of a block of rows: half of a core's L2 cache
Store = Callable[[int, NDArray], None]


class Rows:
    """
    A matrix whose rows are stored in blocks, in any order and by any thread.

    It holds the results of vjp or jvp for unit vectors.
    """

    def __init__(self, count: int, size: int) -> None:
        self.shape = count, size
        # The whole matrix, if it is small or not sparse.
        self.whole = np.zeros(self.shape) if 8 * count * size < LARGE_BYTES else None
        # Indices and values of the nonzeros of each block, by its first row.
        self._sparse_blocks: dict[int, tuple[NDArray, NDArray]] = {}
        self._stored = 0
        self._one_at_a_time = Lock()

    def fill(self, first: int, last: int, store: Store, step: int = 0) -> None:
        """Call ``store(first row, array for rows)`` for a range of rows, `step` at a time."""
        if self.whole is not None and not step:
            store(first, self.whole[first:last])
            return
        step = max(1, min(step or rows_per_block(self.shape[1]), last - first))
        scratch: NDArray | None = None
        for start in range(first, last, step):
            stop = min(start + step, last)
            if self.whole is not None:
                store(start, self.whole[start:stop])
                continue
            if scratch is None:
                scratch = aligned((step, self.shape[1]), np.dtype(float))
            rows = scratch[: stop - start]
            store(start, rows)
            self._store(start, rows)

    def _store(self, first: int, rows: NDArray) -> None:
        flat, most = rows.reshape(-1), int(SPARSE * self.shape[0] * self.shape[1])
        indices = nonzeros(flat, most)
        with self._one_at_a_time:
            if self.whole is None and indices is not None:
                self._stored += len(indices)
                if self._stored <= most:
                    self._sparse_blocks[first] = indices, flat[indices]
                    return
            if self.whole is None:
                self.whole = self._expanded()
            self.whole[first : first + len(rows)] = rows

    def _expanded(self) -> NDArray:
        whole = np.zeros(self.shape)
        for first, (indices, numbers) in self._sparse_blocks.items():
            whole[first:].reshape(-1)[indices] = numbers
        self._sparse_blocks.clear()
        return whole

    def combined(self, weights: NDArray) -> NDArray:
        """Return the sum of rows times their weights."""
        if self.whole is not None:
            # Not by BLAS, whose idle threads would compete with those of f.
            return np.asarray(np.einsum("i,ij->j", weights, self.whole))
        row, column, numbers = self._entries
        return np.bincount(column, weights[row] * numbers, self.shape[1])

    def read(self, first: int, last: int, out: NDArray) -> None:
        """Store rows first to last in `out`."""
        if self.whole is not None:
            out[:] = self.whole[first:last]
        else:
            row, column, numbers = self._entries
            span = slice(*np.searchsorted(row, (first, last)))
            out[:] = 0
            out[row[span] - first, column[span]] = numbers[span]

    def enlarge(self, by_row: NDArray, by_column: NDArray) -> None:
        """Raise the largest magnitudes of rows and columns to the finite ones of the matrix."""
        if self.whole is not None:
            enlarge(self.whole, by_row, by_column)
        else:
            row, column, numbers = self._entries
            enlarge_by_entries(numbers, row, column, by_row, by_column)

    def times(self, v: NDArray) -> NDArray:
        """Return the matrix times a vector."""
        if self.whole is not None:
            return np.asarray(np.einsum("ij,j->i", self.whole, v))  # as above
        row, column, numbers = self._entries
        return np.bincount(row, numbers * v[column], self.shape[0])

    def columns(self) -> Compact:
        """Return a sparse matrix by columns; `whole` must be None."""
        return Compact.of(*self._entries, self.shape)

    @cached_property
    def _entries(self) -> tuple[NDArray, NDArray, NDArray]:
        """Rows, columns and values of the nonzeros in row-major order, once all rows are stored."""
        size = self.shape[1]
        parts = sorted(self._sparse_blocks.items())
        flat = [size * first + indices for first, (indices, _) in parts]
        row, column = np.divmod(np.concatenate(flat or [np.empty(0, np.int64)]), max(size, 1))
        return row, column, np.concatenate([numbers for _, (_, numbers) in parts] or [np.empty(0)])


def rows_per_block(size: int) -> int:
    """Return the number of rows of `size` numbers that fit into a block."""
    return max(1, _BLOCK_BYTES // max(1, 8 * size))


def enlarge(matrix: NDArray, by_row: NDArray, by_column: NDArray) -> None:
    """Raise the largest magnitudes of rows and columns to the finite ones of a matrix."""
    step = rows_per_block(matrix.shape[1])
    for first in range(0, len(matrix), step):
        block = slice(first, first + step)
        sizes = np.abs(matrix[block])
        rows = sizes.max(axis=1, initial=0.0)
        if not np.isfinite(rows).all():
            sizes[~np.isfinite(sizes)] = 0
            rows = sizes.max(axis=1, initial=0.0)
        np.maximum(by_row[block], rows, out=by_row[block])
        np.maximum(by_column, sizes.max(axis=0, initial=0.0), out=by_column)


def enlarge_by_entries(
    entries: NDArray, rows: NDArray, columns: NDArray, by_row: NDArray, by_column: NDArray
) -> None:
    """Do as `enlarge` for a matrix with some entries, whose others are 0."""
    sizes = np.abs(entries)
    sizes[~np.isfinite(sizes)] = 0
    np.maximum.at(by_row, rows, sizes)
    np.maximum.at(by_column, columns, sizes)


@dataclass
class _Loop:
    """A compiled function, called with unit vectors in a compiled loop."""

    problem: Problem
    length: float  # of the unit vectors, as a power of 2

    def store(self, start: int, out: NDArray) -> None:
        """Store a row of values for each unit vector from `start`."""
        problem = self.problem
        assert problem.native is not None
        kind, count = problem.base.dtype, len(out)
        rows = out if out.dtype == kind else aligned(out.shape, kind)
        zeros, like = as_real_vector(problem.x), np.empty(problem.native_shape, problem.dtype)
        numbers, ones = np.arange(start, start + count), np.full(count, self.length, zeros.dtype)
        points = zeros, numbers, ones, like
        kernel = problem.native.entry(AT_POINTS)
        kernel(problem.native.form, np.empty_like(problem.x), *points, rows, np.empty(1, np.int64))
        if rows is not out:
            out[:] = rows


@dataclass
class _Filling:
    """Task for `run` that stores the results of a loop, in several threads."""

    loop: _Loop
    rows: Rows
    calls = 1.0

    @property
    def problem(self) -> Problem:
        return self.loop.problem

    def results(self, count: int) -> Buffers:
        """Return arrays with one item per row, as `run` needs: `rows` stores the results."""
        return (np.empty(count, np.int8),)

    def __call__(self, start: int, outs: Buffers) -> None:
        self.rows.fill(start, start + len(outs[0]), self.loop.store)


class UnitVectors:
    """A derivative called with unit vectors times `length`: compiled, in batches, or one by one."""

    def __init__(self, d: AnalyticDerivative, length: float = 1.0) -> None:
        subject = d.subject
        back = d.form == "vjp"
        self.count, self.size = (subject.rows, subject.columns)[:: 1 if back else -1]
        self._d, self._length = d, length
        self._one_at_a_time = Lock()
        self._work = _compiled(d, length) if self.count >= _MANY else None
        self._batches = d.of_library and self.count > FEW_VECTORS
        self._together = min(_TOGETHER, max(2, _BATCH_BYTES // (8 * self.size)))
        self._first: NDArray | None = None  # batch
        if self._work is not None or self._batches:
            self._compare(d.applied(length * unit_vector(self.count, 0)))

    @property
    def compiled(self) -> bool:
        return self._work is not None

    @property
    def loop(self) -> Problem | None:
        """The compiled derivative, if another loop can call it in doubles; see `record_calls`."""
        problem = None if self._work is None else self._work.problem
        return problem if problem is not None and problem.base.dtype == np.dtype(float) else None

    def record_calls(self, count: int) -> bool:
        """Count calls by another loop, and return True if they modified no argument."""
        pure = self._is_pure()
        self._counted(count if pure else 0)
        return pure

    @property
    def concurrent(self) -> bool:
        """Whether several threads may call the derivative at once."""
        native = None if self._work is None else self._work.problem.native
        return native is not None and native.threads > 1

    def _compare(self, alone: NDArray) -> None:
        """Disable the loop and batches if they do not reproduce the result of a single call."""
        first = np.empty((1, self.size))
        tolerance = 256 * self._d.subject.eps * float(np.abs(alone).max(initial=0.0))
        try:
            if self._work is not None:
                self._work.store(0, first)
            else:
                first = self._first = self._batch(0, min(self._together, self.count))
            same = not self._d.touched and all_agree(first[0], alone, tolerance)
        except Exception:  # a derivative that is meant for single calls may raise anything
            same = False
        if not same:
            self._work, self._batches, self._first = None, False, None

    def all(self) -> Rows:
        """Return a row for each unit vector."""
        if self._work is not None:
            with contextlib.suppress(
                Exception
            ):  # a call from Python raises the error again, with its message
                rows = Rows(self.count, self.size)
                run(_Filling(self._work, rows), self.count)
                if self.record_calls(self.count):
                    return rows
            self._work = None
        rows = Rows(self.count, self.size)
        rows.fill(0, self.count, self._ask, self._together if self._batches else 0)
        return rows

    def rows(self, start: int, out: NDArray) -> None:
        """Store in `out` a row for each unit vector from `start`."""
        count, work = len(out), self._work
        if work is not None:
            with contextlib.suppress(Exception):  # as above
                work.store(start, out)
                if self.record_calls(count):
                    return
            self._work = None
        self._ask(start, out)

    def _ask(self, start: int, out: NDArray) -> None:
        """Store in `out` a row for each unit vector from `start`, by calls from Python."""
        count = len(out)
        step = self._together if self._batches else 1
        for first in range(0, count, step):
            last = min(first + step, count)
            if self._first is not None and start + last <= len(self._first):
                out[first:last] = self._first[start + first : start + last]
            elif self._batches:
                out[first:last] = self._batch(start + first, start + last)
            else:
                out[first] = self._d.product(self._length * unit_vector(self.count, start + first))

    def _is_pure(self) -> bool:
        """Return True if no thread of the loop modified its arguments."""
        assert self._work is not None
        problem, subject = self._work.problem, self._d.subject
        assert problem.native is not None
        copies = [form.before[: len(problem.before)] for form in problem.native.forms]
        changed = (subject.changed(list(x), problem.kwargs) for x in (problem.before, *copies))
        self._d.touched += dict.fromkeys(chain.from_iterable(changed))
        return not self._d.touched

    def _counted(self, count: int) -> None:
        with self._one_at_a_time:
            self._d.calls += count

    def _batch(self, first: int, last: int) -> NDArray:
        units = np.zeros((last - first, self.count))
        units[np.arange(last - first), np.arange(first, last)] = self._length
        return self._d.batch_products(units)


def unit_vector(size: int, k: int) -> NDArray:
    """Return the unit vector with a 1 at index k."""
    unit = np.zeros(size)
    unit[k] = 1
    return unit


def _compiled(d: AnalyticDerivative, length: float) -> _Loop | None:
    """Return a loop that calls a compiled derivative with unit vectors; None if there is none."""
    subject = d.subject
    one_to_one = len(subject.active) == 1 and not subject.several and not d.conjugate
    call, fills = d.call.direct, d.call.likes is not None
    if not one_to_one or not isinstance(call, Dispatcher):
        return None
    source, taken = subject.active_outputs[0].example, subject.active[0].example
    if d.form == "jvp":
        source, taken = taken, source
    problem = Problem(
        call,
        tuple(subject.arguments()),
        np.zeros(source.shape, source.dtype),
        (),
        subject.named(),
        WIRTINGER if source.dtype.kind == "c" else REAL,
        False,
        taken if fills else None,
        base_value=np.zeros(taken.shape, taken.dtype),
    )
    return None if problem.native is None else _Loop(problem, length)
