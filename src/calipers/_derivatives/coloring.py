"""Coloring of sparse Jacobians and Hessians, and recovery of their entries."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .._core.protocols import NDArray
from .._core.threads import in_parts
from .._kernels.coloring import (
    CHOOSE_SOURCES,
    CLASH,
    DECOMPRESS,
    FIRST_FIT,
    FIRST_FIT_MANY,
    LATTICE,
    MULTIPLY,
    NARROW,
    NEIGHBORS,
    PAIR_EDGES,
    SEPARATES,
    STAR_FIT,
    TRANSPOSE,
)

# Entries of a matrix that one thread recovers as soon as two.
_SERIAL_ENTRIES = 2_000_000
_TASK_ENTRIES = 1 << 19
_FIT_SECONDS = 3e-9  # about what greedy coloring takes for a column or entry
_SORTED_FITS = 6.0  # greedy colorings that take as long as one with sorted columns
# A stencil has at most so many entries in a column.
_MAX_STENCIL = NARROW
_NATURAL = np.empty(0, np.int64)

Shape = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Coloring:
    """
    Which columns are displaced at once.

    Attributes
    ----------
    colors : ndarray
        The color of each column: uint8 if there are at most 256, else intp.
    count : int
        How many colors there are, from 0 on.
    """

    colors: NDArray
    count: int


@dataclass(frozen=True, eq=False)
class StarColoring(Coloring):
    """
    A coloring of a symmetric matrix by which each entry (i, j) or (j, i) stands alone.

    Attributes
    ----------
    mirrored : ndarray of bool
        Whether an entry (i, j) of the pattern is read as (j, i): from row j of the sum of the
        columns of i's color, in place of row i of the sum of those of j's.
    """

    mirrored: NDArray


def as_pattern(indptr: Any, indices: Any, shape: Shape) -> tuple[NDArray, NDArray]:
    """Validate a CSC pattern, and convert it for kernels."""
    indptr, indices = np.asarray(indptr), np.asarray(indices)
    m, n = shape
    if indptr.dtype.kind not in "iu" or (indices.dtype.kind not in "iu" and indices.size):
        msg = f"sparsity must have integer indices, got {indptr.dtype} and {indices.dtype}"
        raise ValueError(msg)
    indptr, indices = _in_one_dtype(indptr, indices)
    if indptr.shape != (n + 1,) or indices.ndim != 1:
        msg = (
            f"sparsity has {n} columns, so it needs an indptr of shape ({n + 1},) and a "
            f"vector of indices, got shapes {indptr.shape} and {indices.shape}"
        )
        raise ValueError(msg)
    if indptr[0] != 0 or indptr[-1] != indices.size or (indptr[1:] < indptr[:-1]).any():
        msg = f"sparsity must have an indptr that rises from 0 to its {indices.size} entries"
        raise ValueError(msg)
    # Negative numbers are large unsigned ones.
    if indices.size and indices.view(f"u{indices.itemsize}").max() >= m:
        wrong = indices[(indices < 0) | (indices >= m)][0]
        msg = f"sparsity has {m} rows, but an entry in row {wrong}"
        raise ValueError(msg)
    return indptr, indices


def _in_one_dtype(indptr: NDArray, indices: NDArray) -> tuple[NDArray, NDArray]:
    narrow = indptr.dtype == indices.dtype == np.int32
    dtype = np.int32 if narrow else np.int64
    return np.ascontiguousarray(indptr, dtype), np.ascontiguousarray(indices, dtype)


def color_columns(
    indptr: NDArray, indices: NDArray, shape: Shape, saving_cost: float = 0.0
) -> Coloring:
    """
    Color columns such that no row holds two of one color.

    Parameters
    ----------
    indptr, indices : ndarray
        The pattern in CSC form; rows in any order, and repeated or not.
    shape : tuple of int
        Of the matrix.
    saving_cost : float
        Seconds that one color less would save. Columns are also colored with the most constrained
        ones first (Welsh and Powell, 1967), if that costs less than it could save.

    Returns
    -------
    Coloring
        Of no more colors than greedy coloring of the columns as they stand, and the same for any
        number of threads.
    """
    indptr, indices = as_pattern(indptr, indices, shape)
    stencil = _color_stencil(indptr, indices, shape)
    if stencil is not None and stencil[1]:
        return stencil[0]
    greedy = _Greedy(indptr, indices, shape)
    best = greedy(_NATURAL)
    if stencil is not None and stencil[0].count < best.count:
        best = stencil[0]
    cost = _SORTED_FITS * _FIT_SECONDS * (shape[1] + indices.size)
    if cost < saving_cost * (best.count - greedy.least):
        other = greedy(greedy.largest_first())
        best = other if other.count < best.count else best
    return best


def _color_stencil(indptr: NDArray, indices: NDArray, shape: Shape) -> tuple[Coloring, bool] | None:
    """Return the coloring of a band or grid, periodic or not, and whether it is known to be best.

    Some columns inside suggest what the pattern may be; then all entries are tested.
    """
    m, n = shape
    form = _suggested_form(indptr, indices, n)
    if form is None:
        return None
    strides, period = form
    colors = np.empty(n, np.uint8)
    LATTICE[None](np.array(strides), period, colors)
    # Bytes are an eighth of the memory to touch.
    masks = np.zeros(m, np.uint8 if period <= 8 else np.uint64)
    if not SEPARATES[indptr.dtype, colors.dtype, masks.dtype](indptr, indices, colors, masks):
        return None
    count = min(period, n)
    return Coloring(colors, count), _longest(masks) == count


def _suggested_form(indptr: NDArray, indices: NDArray, n: int) -> tuple[list[int], int] | None:
    """Return the strides of the axes and the number of colors, as for `lattice`."""
    distinct: set[int] = set()
    # Three columns in a row, at fractions that are not on an edge of most grids.
    for first in (n * 5 // 13, n // 2, n * 8 // 13):
        for j in range(first, min(first + 3, n)):
            rows = indices[indptr[j] : indptr[j + 1]]
            if rows.size > _MAX_STENCIL:
                return None
            distinct.update((rows - j).tolist())
    if not distinct or len(distinct) > _MAX_STENCIL:
        return None
    offsets = sorted(distinct)
    width = offsets[-1] - offsets[0] + 1
    if len(offsets) == width:
        # Entries far from the diagonal in the first column: a ring, which ends as it begins.
        ring = indices[: indptr[1]].max(initial=0) > n // 2
        return None if ring and n % width else ([1], width)
    strides = [k for k in offsets if k > 0]
    if offsets != [*(-k for k in reversed(strides)), 0, *strides] or strides[0] != 1:
        return None
    if any(wide % narrow for narrow, wide in pairwise(strides)):
        return None
    return strides, len(offsets)


def _longest(masks: NDArray) -> int:
    """Return the most colors in a row, which is the least number of colors for the matrix."""
    return int(np.bitwise_count(masks).max(initial=0))


class _Greedy:
    """Greedy colorings of a pattern in a given order."""

    def __init__(self, indptr: NDArray, indices: NDArray, shape: Shape) -> None:
        self._pattern = indptr, indices
        self._shape = shape
        self._narrow = True
        self.least = 0

    def __call__(self, order: NDArray) -> Coloring:
        """Color in an order, or in that of the columns if empty; update the lower bound `least`."""
        m, n = self._shape
        if self._narrow:
            colors, masks = np.empty(n, np.uint8), np.zeros(m, np.uint64)
            count = FIRST_FIT[self._pattern[0].dtype](*self._pattern, order, masks, colors)
            self._narrow = count >= 0
            if self._narrow:
                self.least = self.least or _longest(masks)
                return Coloring(colors, count)
        return self._with_many(order)

    def _with_many(self, order: NDArray) -> Coloring:
        lengths = self._lengths()
        self.least = int(lengths.max())
        width, count = self.least // 32 + 1, -1
        colors = np.empty(self._shape[1], np.int64)
        while count < 0:
            capacities = np.minimum(lengths, width).astype(np.uint64)
            starts = np.cumsum(capacities) - capacities
            words, filled = np.zeros(int(capacities.sum()), np.uint64), np.zeros_like(starts)
            rows = lengths.astype(np.uint64), starts, width, words, filled
            count = FIRST_FIT_MANY[self._pattern[0].dtype](
                *self._pattern, order, *rows, np.zeros(width, np.uint64), colors
            )
            width *= 2
        return Coloring(small(colors, count), count)

    def largest_first(self) -> NDArray:
        """Return the columns, those first whose rows have the most other entries."""
        indptr, indices = self._pattern
        others = np.concatenate(([0], np.cumsum(self._lengths()[indices] - 1)))
        return np.argsort(others[indptr[:-1]] - others[indptr[1:]], kind="stable")

    def _lengths(self) -> NDArray:
        return np.bincount(self._pattern[1], minlength=self._shape[0])


def by_rows(indptr: NDArray, indices: NDArray, m: int) -> tuple[NDArray, NDArray, NDArray]:
    """Return where each row starts, its columns, ascending, and the positions of its entries."""
    starts = np.zeros(m + 1, np.int64)
    np.cumsum(np.bincount(indices, minlength=m), out=starts[1:])
    columns, positions = (np.empty(indices.size, np.int64) for _ in range(2))
    TRANSPOSE[indptr.dtype](indptr, indices, starts[:-1].copy(), columns, positions)
    return starts, columns, positions


def small(colors: NDArray, count: int) -> NDArray:
    """Return colors as uint8 if `count` allows, else intp."""
    return colors.astype(np.uint8 if count <= 256 else np.intp, copy=False)


def color_groups(groups: Any, n: int) -> Coloring:
    """Return the coloring by the caller's group numbers, one for each column."""
    numbers = np.asarray(groups)
    if numbers.shape != (n,) or (numbers.dtype.kind not in "iu" and n):
        msg = (
            f"sparsity must give the group of each of the {n} columns as an integer, "
            f"got an array of shape {numbers.shape} and dtype {numbers.dtype}"
        )
        raise ValueError(msg)
    if n and numbers.min() < 0:
        j = int(np.argmin(numbers))
        msg = f"sparsity gives column {j} the group {numbers[j]}; number the groups from 0 on"
        raise ValueError(msg)
    count = int(numbers.max()) + 1 if n else 0
    # An empty group would cost a call of f.
    if count > n or not np.bincount(numbers.astype(np.intp)).all():
        used, numbers = np.unique(numbers, return_inverse=True)
        count = used.size
    return Coloring(np.array(small(numbers, count)), count)


def first_clash(
    indptr: NDArray, indices: NDArray, shape: Shape, coloring: Coloring
) -> tuple[int, int, int] | None:
    """Return the first row that holds two columns of one color, and these columns, or None."""
    indptr, indices = as_pattern(indptr, indices, shape)
    m, n = shape
    colors, count = coloring.colors, coloring.count
    if colors.shape != (n,):
        msg = f"sparsity has {n} columns, but groups for {colors.size}"
        raise ValueError(msg)
    if count <= NARROW:
        masks = np.zeros(m, np.uint64)
        if SEPARATES[indptr.dtype, colors.dtype, masks.dtype](indptr, indices, colors, masks):
            return None
    starts, columns, _ = by_rows(indptr, indices, m)
    latest, holder = np.full(count, -1), np.full(count, -1)
    row, left, right = CLASH[colors.dtype](starts, columns, colors, latest, holder)
    return None if row < 0 else (row, left, right)


def star_coloring(indptr: NDArray, indices: NDArray, n: int) -> StarColoring:
    """
    Color a symmetric pattern so that sums of columns by color give each entry or its mirror image.

    Parameters
    ----------
    indptr, indices : ndarray
        The pattern in CSC form, with both (i, j) and (j, i) of each entry off the diagonal.
    n : int
        Number of rows and of columns.

    Returns
    -------
    StarColoring
        Greedy, of the columns as they stand.

    Raises
    ------
    ValueError
        If the pattern is not symmetric.
    """
    indptr, indices = as_pattern(indptr, indices, (n, n))
    starts, columns, positions = by_rows(indptr, indices, n)
    edges, adjacent = np.empty(n + 1, np.int64), np.empty(indices.size, np.int64)
    NEIGHBORS[None](starts, columns, edges, adjacent)
    reverse = np.empty(edges[-1], np.int64)
    alone = PAIR_EDGES[None](edges, adjacent, edges.copy(), reverse)
    if alone >= 0:
        msg = (
            f"sparsity of a Hessian must be symmetric, but row {alone} has an entry "
            "without its mirror image: pass pattern + pattern.T"
        )
        raise ValueError(msg)
    hub, spoke = np.full(reverse.size, -1, np.int8), np.full(n, -1, np.int8)
    colors, forbidden, first, latest = (np.full(n + 1, -1) for _ in range(4))
    count = STAR_FIT[None](edges, adjacent, reverse, hub, spoke, colors, forbidden, first, latest)
    mirrored = np.zeros(indices.size, bool)
    rest = (colors, np.full(n + 1, -1), mirrored)
    CHOOSE_SOURCES[indptr.dtype](indptr, indices, starts, columns, positions, *rest)
    return StarColoring(small(colors[:n], count).copy(), count, mirrored)


def decompress(
    indptr: NDArray,
    indices: NDArray,
    colors: NDArray,
    differences: NDArray,
    weight: NDArray,
    data: NDArray,
    accumulate: bool = False,
    below: NDArray | None = None,
) -> None:
    """
    Store or add ``differences[colors[j], i]*weight[j]`` for each entry (i, j) of a matrix.

    Parameters
    ----------
    indptr, indices : ndarray
        The pattern in CSC form. It is trusted.
    colors : ndarray
        The color of each column, uint8 or intp.
    differences : ndarray of float64 or float32, shape (colors, m)
        A row for each color, in C order.
    weight : ndarray of float64, shape (n,)
        What the differences of a column are multiplied by.
    data : ndarray
        The entries, of the dtype of `differences`.
    accumulate : bool
        Whether to add to what `data` holds.
    below : ndarray of the dtype of `differences`, shape (m,), optional
        What is subtracted from each row of `differences` first; not together with `accumulate`.
    """
    indptr, indices = _in_one_dtype(indptr, indices)
    below = np.empty(0, differences.dtype) if below is None else below
    kernel = DECOMPRESS[indptr.dtype, colors.dtype, differences.dtype]
    arguments = indptr, indices, colors, differences, weight, data

    def fill(start: int, stop: int) -> None:
        kernel(*arguments, start, stop, accumulate, below)

    n, entries = indptr.size - 1, int(indptr[-1])
    if entries <= _SERIAL_ENTRIES:
        fill(0, n)
        return
    starts = np.searchsorted(indptr, np.arange(0, entries, _TASK_ENTRIES, dtype=indptr.dtype))
    in_parts(fill, starts.tolist(), n)


def product(
    indptr: NDArray, indices: NDArray, data: NDArray, u: NDArray, m: int
) -> tuple[NDArray, NDArray]:
    """
    Return J u for a matrix J of m rows, and the sum of ``abs(J[i, j]*u[j])`` of each row.

    Entries that are not finite count as 0.
    """
    indptr, indices = _in_one_dtype(indptr, indices)
    result, magnitude = np.zeros(m), np.zeros(m)
    MULTIPLY[indptr.dtype, data.dtype](indptr, indices, data, u, result, magnitude)
    return result, magnitude
