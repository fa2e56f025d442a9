"""Matrices of which most is 0, without their zeros."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._kernels.matrices import NONZEROS, WORD
from .._protocols import NDArray

SPARSE = 1 / 16  # of all numbers, that take less memory and time with their places than all do
_LARGE = 1 << 20  # bytes of an array that is worth it


@dataclass(frozen=True)
class Compact:
    """A matrix by columns, with the attributes and methods of scipy's csc_array that are used."""

    shape: tuple[int, int]
    indptr: NDArray
    indices: NDArray
    data: NDArray
    __array_ufunc__ = None  # products with arrays are not NumPy's to take apart

    @classmethod
    def of(cls, row: NDArray, column: NDArray, data: NDArray, shape: tuple[int, int]) -> "Compact":
        """Return a matrix whose entries are given row by row."""
        # By integers of few bits, which NumPy sorts by their digits.
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
        """Return entries by their rows and columns."""
        rows, columns = places
        stored, asked = places_of(self), self.shape[0] * columns + rows
        found = np.searchsorted(stored, asked)
        known = np.append(stored, -1)[found] == asked
        return np.where(known, np.append(self.data, 0.0)[found], 0.0)

    def toarray(self) -> NDArray:
        """Return it as an array, with its zeros."""
        whole = np.zeros(self.shape)
        whole[self.indices, self._columns] = self.data
        return whole


def compact(matrix: NDArray) -> NDArray | Compact:
    """Return a large array in C order without zeros, if most of it is 0; any other as it is."""
    if matrix.nbytes < _LARGE:
        return matrix
    flat = matrix.reshape(-1)
    places = nonzeros(flat, int(SPARSE * flat.size))
    if places is None:
        return matrix
    count, size = matrix.shape
    return Compact.of(*np.divmod(places, size), flat[places], (count, size))


def nonzeros(flat: NDArray, most: int) -> NDArray | None:
    """Return where doubles are not 0; None if that is in more places."""
    places = np.empty(min(most, flat.size) + WORD, np.int64)
    count = NONZEROS[None](flat.view(np.int64), places)
    return places[:count].copy() if 0 <= count <= most else None


def places_of(matrix: Any) -> NDArray:
    """Return where a matrix by columns has stored entries, counted column by column."""
    rows, columns = matrix.shape
    return np.asarray(np.repeat(rows * np.arange(columns), np.diff(matrix.indptr)) + matrix.indices)


def is_by_columns(matrix: Any) -> bool:
    """Tell whether a matrix stores some of its entries, of which the others are 0."""
    return hasattr(matrix, "indptr")


def entries_of_both(one: Any, other: Any) -> tuple[NDArray, NDArray]:
    """Return the entries of two matrices, but for those that neither stores; or of their rows."""
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
