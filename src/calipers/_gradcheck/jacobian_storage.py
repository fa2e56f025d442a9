"""Store Jacobians without zeros if most entries are 0."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.protocols import NDArray

SPARSE = 1 / 16  # share of nonzeros up to which storage with indices is smaller and faster
LARGE_BYTES = 1 << 20  # bytes: smaller arrays are stored whole


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
    if matrix.nbytes < LARGE_BYTES:
        return matrix
    flat = matrix.reshape(-1)
    indices = nonzeros(flat, int(SPARSE * flat.size))
    if indices is None:
        return matrix
    count, size = matrix.shape
    return Compact.of(*np.divmod(indices, size), flat[indices], (count, size))


def nonzeros(flat: NDArray, most: int) -> NDArray | None:
    """Return the indices of nonzero doubles; None if there are more than `most`."""
    nonzero = flat != 0
    return np.flatnonzero(nonzero) if np.count_nonzero(nonzero) <= most else None


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
