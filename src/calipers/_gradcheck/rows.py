"""Matrices that are kept without zeros while most of them is 0."""

from collections.abc import Callable
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from .._differences.columns import aligned
from .._kernels.matrices import NONZEROS, WORD
from .._protocols import NDArray

_SPARSE = 1 / 16  # of all numbers, that take less memory and time with their places than all do
_BLOCK_BYTES = 1 << 20  # of rows that are made together: half of a cache of a core
Store = Callable[[int, NDArray], None]


class Columns(NamedTuple):
    """The columns of a matrix without its zeros, as scipy's csc_array has them."""

    shape: tuple[int, int]
    indptr: NDArray
    indices: NDArray
    data: NDArray

    def times(self, v: NDArray) -> NDArray:
        """Return the matrix times a vector."""
        numbers = self.data * np.repeat(v, np.diff(self.indptr))
        return np.bincount(self.indices, numbers, self.shape[0])

    def transposed_times(self, w: NDArray) -> NDArray:
        """Return the matrix's transpose times a vector."""
        column = np.repeat(np.arange(self.shape[1]), np.diff(self.indptr))
        return np.bincount(column, self.data * w[self.indices], self.shape[1])

    def dense(self) -> NDArray:
        """Return it as an array."""
        whole = np.zeros(self.shape[::-1])
        whole.reshape(-1)[places_of(self)] = self.data
        return whole.T


def places_of(matrix: Any) -> NDArray:
    """Return where a csc_array, or what is like one, has stored elements, column by column."""
    rows, columns = matrix.shape
    return np.asarray(np.repeat(rows * np.arange(columns), np.diff(matrix.indptr)) + matrix.indices)


def without_zeros(matrix: NDArray) -> "NDArray | Columns":
    """Return the columns of a large array of which most is 0; any other as it is."""
    if matrix.nbytes < _BLOCK_BYTES:
        return matrix
    flat = matrix.reshape(-1)
    places = _nonzeros(flat, int(_SPARSE * flat.size))
    if places is None:
        return matrix
    row, column = np.divmod(places, matrix.shape[1])
    return _columns(matrix.shape, row, column, flat[places])


def _nonzeros(flat: NDArray, most: int) -> NDArray | None:
    """Return where doubles are not 0; None if that is in more places."""
    places = np.empty(min(most, flat.size) + WORD, np.int64)
    count = NONZEROS[None](flat.view(np.int64), places)
    return places[:count].copy() if 0 <= count <= most else None


def _columns(shape: tuple[int, ...], row: NDArray, column: NDArray, numbers: NDArray) -> Columns:
    """Return the columns of a matrix whose entries are given row by row."""
    count, size = shape
    # By integers of few bits, which NumPy sorts by their digits.
    order = np.argsort(column.astype(np.min_scalar_type(size)), kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(column, minlength=size))))
    return Columns((count, size), indptr, row[order], numbers[order])


class Rows:
    """
    A matrix whose rows are filled some at a time, in any order, and by any thread.

    Such are what vjp or jvp gives for unit vectors.
    """

    def __init__(self, count: int, size: int) -> None:
        self.shape = count, size
        self.whole: NDArray | None = None  # once too many are not 0
        self._found: dict[int, tuple[NDArray, NDArray]] = {}  # by first row: places, and numbers
        self._stored = 0
        self._one_at_a_time = Lock()

    def fill(self, first: int, last: int, store: Store, step: int = 0) -> None:
        """Have rows stored by ``store(number of the first, room for some)``, `step` at a time."""
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
        flat, most = rows.reshape(-1), int(_SPARSE * self.shape[0] * self.shape[1])
        places = _nonzeros(flat, most)
        with self._one_at_a_time:
            self._stored += most + 1 if places is None else len(places)
            if places is not None and self.whole is None and self._stored <= most:
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
            # Not by BLAS, whose threads would wait for more while those of f work.
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

    def columns(self) -> Columns:
        """Return the columns of the matrix, of which no whole is kept."""
        return _columns(self.shape, *self._entries)

    @cached_property
    def _entries(self) -> tuple[NDArray, NDArray, NDArray]:
        """The rows, the columns and the values of what is not 0, row by row, once all are there."""
        size = self.shape[1]
        parts = sorted(self._found.items())
        places = [size * first + places for first, (places, _) in parts]
        row, column = np.divmod(np.concatenate(places or [np.empty(0, np.int64)]), max(size, 1))
        return row, column, np.concatenate([numbers for _, (_, numbers) in parts] or [np.empty(0)])


def together(size: int) -> int:
    """Return how many rows of so many numbers stay in the caches."""
    return max(1, _BLOCK_BYTES // max(1, 8 * size))
