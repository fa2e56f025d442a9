"""What gradcheck needs to know of a large matrix."""

from typing import Any

from numba.core import types

from .._jit import Kernels
from .jitable import jitable
from .vectors import vector

_TILE = 32
_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF
_INFINITY = 0x7FF0_0000_0000_0000


def turn(matrix, first, last, target):
    """Store columns first to last of a matrix as the rows of `target`, tile by tile."""
    rows = matrix.shape[0]
    for i in range(0, rows, _TILE):
        end = min(i + _TILE, rows)
        for j in range(first, last, _TILE):
            for c in range(j, min(j + _TILE, last)):
                line = target[c - first]
                for r in range(i, end):
                    line[r] = matrix[r, c]


@jitable
def _enlarged(bits: Any, largest: Any, first: int, last: int) -> Any:
    """
    Raise magnitudes to those of a vector, where that is finite, and return the largest of its own.

    That is from `first` to `last`.

    All are binary64 seen as integers: the order of magnitudes is that of the bits without the sign.
    """
    most = 0
    for i in range(first, last):
        size = bits[i] & _MAGNITUDE
        size = size if size < _INFINITY else 0
        largest[i] = max(largest[i], size)
        most = max(most, size)
    return most


@jitable
def measured(bits: Any, line: int, by_row: Any, parts: Any) -> int:
    """
    Return the largest magnitude in a column, in any form, and raise those of the rows.

    `parts` are stretches beside which it is 0.
    """
    size = 0
    for form in range(bits.shape[0]):
        for part in range(len(parts)):
            first, last = parts[part, 0], parts[part, 1]
            size = max(size, _enlarged(bits[form, line], by_row, first, last))
    return size


def enlarge(bits, by_row, by_column):
    """Raise the largest magnitudes of rows and columns to those of a matrix, as `_enlarged`."""
    for r in range(bits.shape[0]):
        by_row[r] = max(by_row[r], _enlarged(bits[r], by_column, 0, by_column.size))


WORD = 64  # numbers that are looked at together


def nonzeros(bits, places):
    """
    Store where numbers are not 0, and return how many are; -1 if there may be no room for them.

    They are binary64, seen as integers, and mostly 0. It takes room for a word more.
    """
    count = 0
    for first in range(0, bits.size, WORD):
        some = bits[first : first + WORD]
        every = 0
        for i in range(some.size):
            every |= some[i]
        if every & _MAGNITUDE == 0:
            continue
        if count + some.size > places.size:
            return -1
        for i in range(some.size):
            places[count] = first + i
            count += 1 if some[i] & _MAGNITUDE != 0 else 0
    return count


_LINES = types.Array(types.float64, 2, "C", readonly=True)
_MATRIX = types.Array(types.float64, 2, "C")
_BITS = types.Array(types.int64, 2, "C", readonly=True)
_SIZES = vector(types.int64, readonly=False)

TURN = Kernels(turn, lambda _: (_LINES, types.int64, types.int64, _MATRIX))
ENLARGE = Kernels(enlarge, lambda _: (_BITS, _SIZES, _SIZES))
NONZEROS = Kernels(nonzeros, lambda _: (vector(types.int64), _SIZES))
