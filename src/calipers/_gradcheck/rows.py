"""Matrices whose rows come some at a time, kept without zeros while most of them is 0."""

from collections.abc import Callable
from functools import cached_property
from threading import Lock

import numpy as np

from .._differences.columns import aligned
from .._protocols import NDArray
from .compact import SPARSE, Compact, nonzeros

_BLOCK_BYTES = 1 << 20  # of rows that are made together: half of a cache of a core
Store = Callable[[int, NDArray], None]


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

    def times(self, v: NDArray) -> NDArray:
        """Return the matrix times a vector."""
        if self.whole is not None:
            return np.asarray(np.einsum("ij,j->i", self.whole, v))  # as above
        row, column, numbers = self._entries
        return np.bincount(row, numbers * v[column], self.shape[0])

    def columns(self) -> Compact:
        """Return the matrix by columns, of which no whole is kept."""
        return Compact.of(*self._entries, self.shape)

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
