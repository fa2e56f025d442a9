"""Color the columns of a sparse matrix, and recover its entries from sums of columns by color.

Patterns are CSC without values: the rows of column j are ``indices[indptr[j]:indptr[j+1]]``, in any
order, and may repeat. Rows are trusted to lie within the matrix.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .._core.jit import Kernels
from . import jitable
from .scalar.formats import vector

NARROW = 64  # colors that fit a mask of one word
_ALL = 0xFFFFFFFFFFFFFFFF  # the mask with all colors in use


@intrinsic
def trailing_zeros(typingctx: Any, x: Any) -> Any:
    """Count the zeros below the lowest bit of a uint64: 64 for 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), codegen


@jitable
def span(indptr, j):
    """Return where column j starts and stops: unsigned, for unsigned indices are not wrapped."""
    return np.uint64(indptr[j]), np.uint64(indptr[j + np.uint64(1)])


# Coloring columns: no row holds two columns of one color


def first_fit(indptr, indices, order, masks, colors):
    """
    Give each column the lowest color that is free in its rows; return the number of colors.

    Columns are taken in `order`, or ascending if that is empty. ``masks`` holds the colors of each
    row, 0 at first. Return -1 if 64 colors are too few.
    """
    count = np.uint64(0)
    for k in range(np.uint64(colors.size)):
        j = np.uint64(order[k]) if order.size else k
        start, stop = span(indptr, j)
        used = np.uint64(0)
        for p in range(start, stop):
            used |= masks[np.uint64(indices[p])]
        if used == np.uint64(_ALL):
            return -1
        color = trailing_zeros(~used)
        for p in range(start, stop):
            masks[np.uint64(indices[p])] |= np.uint64(1) << color
        colors[j] = color
        count = max(count, color + np.uint64(1))
    return np.int64(count)


def first_fit_many(indptr, indices, order, lengths, starts, width, words, filled, marks, colors):
    """
    Do as `first_fit` with up to 64*width colors.

    Row i keeps its colors in words from starts[i]: as a mask with filled[i] full words, or
    as a list of filled[i] colors if that is shorter. ``words``, ``filled`` and ``marks`` are 0.
    """
    count = np.uint64(0)
    wide = np.uint64(width)
    for k in range(np.uint64(colors.size)):
        j = np.uint64(order[k]) if order.size else k
        start, stop = span(indptr, j)
        word = np.uint64(0)
        for p in range(start, stop):
            i = np.uint64(indices[p])
            if lengths[i] >= wide:
                word = max(word, filled[i])
            else:
                for q in range(starts[i], starts[i] + filled[i]):
                    color = words[q]
                    marks[color >> np.uint64(6)] |= np.uint64(1) << (color & np.uint64(63))
        while True:
            if word == wide:
                return -1
            used = marks[word]
            for p in range(start, stop):
                i = np.uint64(indices[p])
                if lengths[i] >= wide:
                    used |= words[starts[i] + word]
            if used != np.uint64(_ALL):
                break
            word += np.uint64(1)
        color = np.uint64(64) * word + trailing_zeros(~used)
        for p in range(start, stop):
            i = np.uint64(indices[p])
            if lengths[i] >= wide:
                words[starts[i] + word] |= np.uint64(1) << (color & np.uint64(63))
                while filled[i] < wide and words[starts[i] + filled[i]] == np.uint64(_ALL):
                    filled[i] += np.uint64(1)
            else:
                for q in range(starts[i], starts[i] + filled[i]):
                    marks[words[q] >> np.uint64(6)] = np.uint64(0)
                words[starts[i] + filled[i]] = color
                filled[i] += np.uint64(1)
        colors[j] = color
        count = max(count, color + np.uint64(1))
    return np.int64(count)


def lattice(strides, period, colors):
    """
    Color the points of a grid in C order by ``(x + 2*y + 3*z + ...) % period``.

    strides[0] is 1; a step along an axis is a stride. With a period of ``2*axes + 1`` the points
    next to any point, and the point itself, have all colors (Golomb and Welch, 1970).
    """
    axes = strides.size
    length = strides[1] if axes > 1 else colors.size
    for start in range(0, colors.size, length):
        color = 0
        for axis in range(1, axes):
            x = start // strides[axis]
            if axis + 1 < axes:
                x %= strides[axis + 1] // strides[axis]
            color += (axis + 1) * x
        color %= period
        line = colors[start : start + length]
        for k in range(line.size):
            line[k] = color
            color = color + 1 if color + 1 < period else 0


def separates(indptr, indices, colors, masks):
    """Return True if no row holds two columns of one color; fill the rows' masks, a bit a color."""
    for j in range(np.uint64(colors.size)):
        start, stop = span(indptr, j)
        bit = np.uint64(1) << np.uint64(colors[j])
        used = np.uint64(0)
        for p in range(start, stop):
            used |= np.uint64(masks[np.uint64(indices[p])])
        if used & bit != np.uint64(0):
            return False
        for p in range(start, stop):
            masks[np.uint64(indices[p])] |= bit
    return True


def clash(starts, columns, colors, latest, holder):
    """Return the first row that holds two columns of one color, and these; -1 if none does.

    The pattern is given by rows. ``latest`` and ``holder``, of a color, are -1 at first.
    """
    for i in range(starts.size - 1):
        for p in range(np.uint64(starts[i]), np.uint64(starts[i + 1])):
            j = columns[p]
            color = np.uint64(colors[j])
            if latest[color] == i and holder[color] != j:
                return i, holder[color], j
            latest[color] = i
            holder[color] = j
    return -1, -1, -1


def transpose(indptr, indices, reached, columns, positions):
    """
    List the columns of each row, ascending, and the positions of these nonzeros.

    ``reached`` holds where each row starts, and in the end where it stops.
    """
    for j in range(np.uint64(indptr.size - 1)):
        start, stop = span(indptr, j)
        for p in range(start, stop):
            i = np.uint64(indices[p])
            q = np.uint64(reached[i])
            columns[q] = j
            positions[q] = p
            reached[i] += 1


# Star coloring: of neighbors and of any path of four vertices, no two colors alone


def neighbors(starts, columns, neighbor_starts, adjacent):
    """List the neighbors of each vertex of a symmetric pattern, ascending, each once."""
    total = 0
    for i in range(starts.size - 1):
        neighbor_starts[i] = total
        for p in range(starts[i], starts[i + 1]):
            j = columns[p]
            if j != i and (total == neighbor_starts[i] or adjacent[total - 1] != j):
                adjacent[total] = j
                total += 1
    neighbor_starts[starts.size - 1] = total


def pair_edges(starts, adjacent, reached, reverse):
    """Store the index of edge (w, v) for each edge (v, w); return a v that lacks one, or -1.

    ``reached`` is a copy of ``starts``.
    """
    for v in range(starts.size - 1):
        for e in range(starts[v], starts[v + 1]):
            w = adjacent[e]
            back = reached[w]
            # Vertices come in ascending order: so do those that w lists.
            if back == starts[w + 1] or adjacent[back] != v:
                return v
            reverse[e] = back
            reached[w] += 1
    return -1


@jitable
def _forbid_around(w, v, starts, adjacent, colors, forbidden):
    for e in range(starts[w], starts[w + 1]):
        color = colors[adjacent[e]]
        if color >= 0:
            forbidden[color] = v


def star_fit(starts, adjacent, reverse, hub, spoke, colors, forbidden, first, latest):
    """
    Give each vertex the lowest color that makes no path of four vertices two-colored.

    Return the number of colors. After Gebremedhin, Tarafdar, Manne and Pothen (2007): two colors
    induce stars, and hub[e] is positive for an edge (v, w) if v has another neighbor of w's color;
    spoke[w] is if there is such a v. All but the graph is -1 at first.
    """
    count = 0
    for v in range(starts.size - 1):
        for e in range(starts[v], starts[v + 1]):
            w = adjacent[e]
            color = colors[w]
            if color < 0:
                continue
            forbidden[color] = v
            if latest[color] == v:
                # v would lie between two neighbors of one color: theirs may not have v's.
                if hub[first[color]] != 2:
                    _forbid_around(adjacent[first[color]], v, starts, adjacent, colors, forbidden)
                    hub[first[color]] = 2
                _forbid_around(w, v, starts, adjacent, colors, forbidden)
                hub[e] = 1
                spoke[w] = spoke[adjacent[first[color]]] = 1
                continue
            latest[color] = v
            first[color] = e
            if spoke[w] < 0:
                continue
            for d in range(starts[w], starts[w + 1]):
                x = adjacent[d]
                if colors[x] >= 0 and hub[reverse[d]] > 0:
                    forbidden[colors[x]] = v
        chosen = 0
        while forbidden[chosen] == v:
            chosen += 1
        colors[v] = chosen
        count = max(count, chosen + 1)
        for e in range(starts[v], starts[v + 1]):
            w = adjacent[e]
            if colors[w] < 0:
                continue
            for d in range(starts[w], starts[w + 1]):
                if adjacent[d] != v and colors[adjacent[d]] == chosen:
                    hub[d] = hub[reverse[e]] = 1
                    spoke[v] = spoke[adjacent[d]] = 1
                    break
    return count


def choose_sources(indptr, indices, starts, columns, positions, colors, holder, mirrored):
    """
    Mark the entries (i, j) that are read as (j, i) from the sums of columns by color.

    An entry (i, j) stands alone in row i of the sum of j's color if no other column of that color
    has an entry in row i; in a star coloring that holds for it or for (j, i). Of both, the one in
    the upper triangle is preferred, so that they are read from one place. ``holder`` is -1.
    """
    for v in range(np.int64(indptr.size - 1)):
        for p in range(indptr[v], indptr[v + 1]):
            w = indices[p]
            color = colors[w]
            holder[color] = w if holder[color] == -1 or holder[color] == w else -2
        for p in range(indptr[v], indptr[v + 1]):
            if indices[p] > v:
                mirrored[p] = holder[colors[indices[p]]] != -2
        for q in range(starts[v], starts[v + 1]):
            if columns[q] > v:
                mirrored[positions[q]] = holder[colors[columns[q]]] == -2
        for p in range(indptr[v], indptr[v + 1]):
            holder[colors[indices[p]]] = -1


# Recovery


def decompress(indptr, indices, colors, differences, weight, data, start, stop, accumulate, below):
    """
    Store or add ``differences[colors[j], i]*weight[j]`` for entries of columns start to stop.

    If `below` is not empty, its element i is subtracted from the difference first.
    """
    flat = differences.reshape(-1)
    rows = np.uint64(differences.shape[1])
    # A test inside the loop over columns takes as long as their few entries.
    if below.size > 0:
        for j in range(np.uint64(start), np.uint64(stop)):
            base = np.uint64(colors[j]) * rows
            factor = weight[j]
            begin, end = span(indptr, j)
            for p in range(begin, end):
                i = np.uint64(indices[p])
                data[p] = (flat[base + i] - below[i]) * factor
        return
    for j in range(np.uint64(start), np.uint64(stop)):
        base = np.uint64(colors[j]) * rows
        factor = weight[j]
        begin, end = span(indptr, j)
        if accumulate:
            for p in range(begin, end):
                data[p] += flat[base + np.uint64(indices[p])] * factor
        else:
            for p in range(begin, end):
                data[p] = flat[base + np.uint64(indices[p])] * factor


def multiply(indptr, indices, data, u, product, magnitude):
    """
    Add the product of a matrix and u to a vector, and its terms' magnitudes to another.

    Entries that are not finite count as 0.
    """
    for j in range(np.uint64(u.size)):
        start, stop = span(indptr, j)
        for p in range(start, stop):
            i = np.uint64(indices[p])
            term = data[p] * u[j] if np.isfinite(data[p]) else 0.0
            product[i] += term
            magnitude[i] += abs(term)


_INTS = vector(types.int64)
_OUT = vector(types.int64, readonly=False)
_BYTES = vector(types.int8, readonly=False)
_WORDS = vector(types.uint64, readonly=False)
_DOUBLES = vector(types.float64)
_SUMS = vector(types.float64, readonly=False)


def _pattern(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the types of indptr and indices."""
    return (vector(numba.from_dtype(dtype)),) * 2


def _recovery_signature(key: Any) -> tuple[Any, ...]:
    index, color, real = key
    real = numba.from_dtype(real)
    differences = types.Array(real, 2, "C", readonly=True)
    inputs = (*_pattern(index), vector(numba.from_dtype(color)), differences, _DOUBLES)
    return (*inputs, vector(real, readonly=False), types.int64, types.int64, types.boolean)


# By the dtype of indptr and indices, and by those of the colors or numbers where these vary.
FIRST_FIT = Kernels(
    first_fit,
    lambda dtype: (*_pattern(dtype), _INTS, _WORDS, vector(types.uint8, readonly=False)),
)
FIRST_FIT_MANY = Kernels(
    first_fit_many,
    lambda dtype: (
        *_pattern(dtype),
        *(_INTS, vector(types.uint64), vector(types.uint64), types.int64),
        *(_WORDS, _WORDS, _WORDS, _OUT),
    ),
)
SEPARATES = Kernels(
    separates,
    lambda key: (
        *_pattern(key[0]),
        vector(numba.from_dtype(key[1])),
        vector(numba.from_dtype(key[2]), readonly=False),
    ),
)
TRANSPOSE = Kernels(transpose, lambda dtype: (*_pattern(dtype), _OUT, _OUT, _OUT))
CHOOSE_SOURCES = Kernels(
    choose_sources,
    lambda dtype: (
        *_pattern(dtype),
        *(_INTS, _INTS, _INTS, _INTS, _OUT, vector(types.boolean, readonly=False)),
    ),
)
DECOMPRESS = Kernels(
    decompress, lambda key: (*_recovery_signature(key), vector(numba.from_dtype(key[2])))
)
MULTIPLY = Kernels(
    multiply,
    lambda key: (*_pattern(key[0]), vector(numba.from_dtype(key[1])), _DOUBLES, _SUMS, _SUMS),
)
# By the dtype of the colors.
CLASH = Kernels(clash, lambda dtype: (_INTS, _INTS, vector(numba.from_dtype(dtype)), _OUT, _OUT))
# Without a choice.
LATTICE = Kernels(lattice, lambda key: (_INTS, types.int64, vector(types.uint8, readonly=False)))
NEIGHBORS = Kernels(neighbors, lambda key: (_INTS, _INTS, _OUT, _OUT))
PAIR_EDGES = Kernels(pair_edges, lambda key: (_INTS, _INTS, _OUT, _OUT))
STAR_FIT = Kernels(
    star_fit, lambda key: (_INTS, _INTS, _INTS, _BYTES, _BYTES, _OUT, _OUT, _OUT, _OUT)
)
