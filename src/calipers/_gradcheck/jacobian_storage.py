"""Store Jacobians: filled row by row, and without zeros if most entries are 0."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from .._core.protocols import NDArray
from .._derivatives.fixed_step import aligned
from .._kernels.matrices import NONZEROS, WORD

SPARSE = 1 / 16  # share of nonzeros up to which storage with indices is smaller and faster
_LARGE = 1 << 20  # bytes: smaller arrays are stored whole
_BLOCK_BYTES = 1 << 20  # size of a block of rows: half of a core's L2 cache
Store = Callable[[int, NDArray], None]


@dataclass(frozen=True)
class Compact:
    """A sparse matrix by columns, with the few methods of SciPy's csc_array that are needed."""

    shape: tuple[int, int]
    indptr: NDArray
    indices: NDArray
    data: NDArray
    __array_ufunc__ = None  # so that array @ matrix calls __rmatmul__

    @classmethod
    def of(cls, row: NDArray, column: NDArray, data: NDArray, shape: tuple[int, int]) -> "Compact":
        """Return a matrix from its entries in row-major order."""
        # Small integer dtypes, which NumPy sorts by radix.
        order = np.argsort(column.astype(np.min_scalar_type(shape[1])), kind="stable")
        indptr = np.concatenate(([0], np.cumsum(np.bincount(column, minlength=shape[1]))))
        return cls(shape, indptr, row[order], data[order])

    @property
    def _columns(self) -> NDArray:
        """The column of each entry."""
        return np.repeat(np.arange(self.shape[1]), np.diff(self.indptr))

    def __matmul__(self, v: NDArray) -> NDArray:
        """Return the matrix times a vector."""
        return np.bincount(self.indices, self.data * v[self._columns], self.shape[0])

    def __rmatmul__(self, w: NDArray) -> NDArray:
        """Return a vector times the matrix."""
        return np.bincount(self._columns, w[self.indices] * self.data, self.shape[1])

    def __getitem__(self, index: tuple[NDArray, NDArray]) -> NDArray:
        """Return the entries at rows and columns."""
        rows, columns = index
        stored, wanted = column_major_indices(self), self.shape[0] * columns + rows
        insertion = np.searchsorted(stored, wanted)
        is_stored = np.append(stored, -1)[insertion] == wanted
        return np.where(is_stored, np.append(self.data, 0.0)[insertion], 0.0)

    def toarray(self) -> NDArray:
        """Return the matrix as an array."""
        whole = np.zeros(self.shape)
        whole[self.indices, self._columns] = self.data
        return whole


def compact(matrix: NDArray) -> NDArray | Compact:
    """Return a large, mostly zero array in C order as `Compact`; other arrays unchanged."""
    if matrix.nbytes < _LARGE:
        return matrix
    flat = matrix.reshape(-1)
    indices = nonzeros(flat, int(SPARSE * flat.size))
    if indices is None:
        return matrix
    count, size = matrix.shape
    return Compact.of(*np.divmod(indices, size), flat[indices], (count, size))


def nonzeros(flat: NDArray, most: int) -> NDArray | None:
    """Return the indices of nonzero doubles; None if there are more than `most`."""
    indices = np.empty(min(most, flat.size) + WORD, np.int64)
    count = NONZEROS[None](flat.view(np.int64), indices)
    return indices[:count].copy() if 0 <= count <= most else None


def column_major_indices(matrix: Any) -> NDArray:
    """Return the column-major indices of the stored entries of a sparse matrix."""
    rows, columns = matrix.shape
    return np.asarray(np.repeat(rows * np.arange(columns), np.diff(matrix.indptr)) + matrix.indices)


def is_by_columns(matrix: Any) -> bool:
    """Return True if a matrix is stored by columns, without zeros."""
    return hasattr(matrix, "indptr")


def entries_of_both(one: Any, other: Any) -> tuple[NDArray, NDArray]:
    """Return the entries of two matrices at the same indices, without common zeros."""
    if not (is_by_columns(one) and is_by_columns(other)):
        one, other = (x.toarray() if is_by_columns(x) else x for x in (one, other))
        rows = min(len(one), len(other))
        return one[:rows], other[:rows]
    same = np.array_equal(one.indptr, other.indptr) and np.array_equal(one.indices, other.indices)
    if same:
        return one.data, other.data
    indices = column_major_indices(one), column_major_indices(other)
    every = np.union1d(*indices)
    filled = np.zeros((2, len(every)))
    for values, stored, matrix in zip(filled, indices, (one, other), strict=True):
        values[np.searchsorted(every, stored)] = matrix.data
    return filled[0], filled[1]


class Rows:
    """
    A matrix whose rows are stored in blocks, in any order and by any thread.

    It holds the results of vjp or jvp for unit vectors.
    """

    def __init__(self, count: int, size: int) -> None:
        self.shape = count, size
        # The whole matrix, if it is small or not sparse.
        self.whole = np.zeros(self.shape) if 8 * count * size < _LARGE else None
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
