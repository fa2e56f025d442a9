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
    """A sparse matrix by columns, with those methods of SciPy's csc_array that are used here."""

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

    def __getitem__(self, places: tuple[NDArray, NDArray]) -> NDArray:
        """Return the entries at rows and columns."""
        rows, columns = places
        stored, asked = places_of(self), self.shape[0] * columns + rows
        found = np.searchsorted(stored, asked)
        known = np.append(stored, -1)[found] == asked
        return np.where(known, np.append(self.data, 0.0)[found], 0.0)

    def toarray(self) -> NDArray:
        """Return the matrix as an array."""
        whole = np.zeros(self.shape)
        whole[self.indices, self._columns] = self.data
        return whole


def compact(matrix: NDArray) -> NDArray | Compact:
    """Return a large array in C order as `Compact` if it is mostly zero; any other as it is."""
    if matrix.nbytes < _LARGE:
        return matrix
    flat = matrix.reshape(-1)
    places = nonzeros(flat, int(SPARSE * flat.size))
    if places is None:
        return matrix
    count, size = matrix.shape
    return Compact.of(*np.divmod(places, size), flat[places], (count, size))


def nonzeros(flat: NDArray, most: int) -> NDArray | None:
    """Return the indices of nonzero doubles; None if there are more than `most`."""
    places = np.empty(min(most, flat.size) + WORD, np.int64)
    count = NONZEROS[None](flat.view(np.int64), places)
    return places[:count].copy() if 0 <= count <= most else None


def places_of(matrix: Any) -> NDArray:
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
    places = places_of(one), places_of(other)
    every = np.union1d(*places)
    found = np.zeros((2, len(every)))
    for values, own, matrix in zip(found, places, (one, other), strict=True):
        values[np.searchsorted(every, own)] = matrix.data
    return found[0], found[1]


class Rows:
    """
    A matrix whose rows are filled some at a time, in any order, and by any thread.

    Such are what vjp or jvp gives for unit vectors.
    """

    def __init__(self, count: int, size: int) -> None:
        self.shape = count, size
        self.whole: NDArray | None = None  # the whole matrix, if it is not sparse
        self._found: dict[int, tuple[NDArray, NDArray]] = {}  # by first row: indices and values
        self._stored = 0
        self._one_at_a_time = Lock()

    def fill(self, first: int, last: int, store: Store, step: int = 0) -> None:
        """Call ``store(first row, array for rows)`` for a range of rows, `step` at a time."""
        step = max(1, min(step or together(self.shape[1]), last - first))
        room: NDArray | None = None
        for start in range(first, last, step):
            stop = min(start + step, last)
            if self.whole is not None:
                store(start, self.whole[start:stop])
                continue
            if room is None:
                room = aligned((step, self.shape[1]), np.dtype(float))
            rows = room[: stop - start]
            store(start, rows)
            self._keep(start, rows)

    def _keep(self, first: int, rows: NDArray) -> None:
        flat, most = rows.reshape(-1), int(SPARSE * self.shape[0] * self.shape[1])
        places = nonzeros(flat, most)
        with self._one_at_a_time:
            if self.whole is None and places is not None:
                self._stored += len(places)
                if self._stored <= most:
                    self._found[first] = places, flat[places]
                    return
            if self.whole is None:
                self.whole = self._expanded()
            self.whole[first : first + len(rows)] = rows

    def _expanded(self) -> NDArray:
        whole = np.zeros(self.shape)
        for first, (places, numbers) in self._found.items():
            whole[first:].reshape(-1)[places] = numbers
        self._found.clear()
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
            own = slice(*np.searchsorted(row, (first, last)))
            out[:] = 0
            out[row[own] - first, column[own]] = numbers[own]

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
        parts = sorted(self._found.items())
        places = [size * first + places for first, (places, _) in parts]
        row, column = np.divmod(np.concatenate(places or [np.empty(0, np.int64)]), max(size, 1))
        return row, column, np.concatenate([numbers for _, (_, numbers) in parts] or [np.empty(0)])


def together(size: int) -> int:
    """Return the number of rows of `size` numbers that fit into a block."""
    return max(1, _BLOCK_BYTES // max(1, 8 * size))
