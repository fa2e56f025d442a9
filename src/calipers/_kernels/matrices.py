"""Loops over large matrices: iteration over rows, transposes, largest magnitudes, nonzeros."""

from functools import reduce
from typing import Any

from numba.core import cgutils, types
from numba.core.types.containers import Tuple, UniTuple
from numba.extending import intrinsic

from .._core.jit import Kernels
from . import jitable
from .scalar.formats import for_a_gpu, vector


@intrinsic
def broadcast(typingctx: Any, a: Any, b: Any) -> Any:
    """Return the shape of two arrays, or of one and a number, and the steps of each in it."""
    ndim = max(x.ndim for x in (a, b) if isinstance(x, types.Array))
    axes = UniTuple(types.intp, ndim)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero, one = (context.get_constant(types.intp, n) for n in (0, 1))
        shapes: list[list[Any]] = []
        steps: list[list[Any]] = []
        shape: list[Any] = []
        for kind, value in zip((a, b), args, strict=True):
            lengths, strides = [one] * ndim, [zero] * ndim
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, value)
                first = ndim - kind.ndim
                lengths[first:] = cgutils.unpack_tuple(builder, array.shape)
                strides[first:] = cgutils.unpack_tuple(builder, array.strides)
            shapes.append(lengths)
            steps.append(strides)
        for m, n in zip(*shapes, strict=True):
            alone_m, alone_n = (builder.icmp_signed("==", x, one) for x in (m, n))
            fits = builder.or_(builder.icmp_signed("==", m, n), builder.or_(alone_m, alone_n))
            with cgutils.if_unlikely(builder, builder.not_(fits)):
                owner = context.fndesc if for_a_gpu(builder) else context
                owner.call_conv.return_user_exc(builder, ValueError, (_UNEVEN,))
            for strides, alone in zip(steps, (alone_m, alone_n), strict=True):
                strides[len(shape)] = builder.select(alone, zero, strides[len(shape)])
            shape.append(builder.select(alone_m, n, m))
        together = [context.make_tuple(builder, axes, x) for x in (shape, *steps)]
        return context.make_tuple(builder, signature.return_type, together)

    return UniTuple(axes, 3)(a, b), codegen


# The beginning of NumPy's message.
_UNEVEN = "shape mismatch: objects cannot be broadcast to a single shape"


@intrinsic
def rows_of(typingctx: Any, shape: Any) -> Any:
    """Return how many rows there are in a shape, how long they are, and the index of the first."""
    outer = max(shape.count - 1, 0)
    index = UniTuple(types.intp, outer)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero, one = (context.get_constant(types.intp, n) for n in (0, 1))
        *lengths, length = cgutils.unpack_tuple(builder, args[0]) or [one]
        first = context.make_tuple(builder, index, [zero] * outer)
        rows = reduce(builder.mul, lengths, one)
        return context.make_tuple(builder, signature.return_type, [rows, length, first])

    return Tuple((types.intp, types.intp, index))(shape), codegen


@intrinsic
def next_row(typingctx: Any, index: Any, shape: Any) -> Any:
    """Return the index of the next row in C order; after the last row, that of the first."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero, one = (context.get_constant(types.intp, n) for n in (0, 1))
        indices, lengths = (cgutils.unpack_tuple(builder, x) for x in args)
        carry = one
        for axis in reversed(range(index.count)):
            position = builder.add(indices[axis], carry)
            ended = builder.icmp_signed("==", position, lengths[axis])
            indices[axis] = builder.select(ended, zero, position)
            carry = builder.select(ended, one, zero)
        return context.make_tuple(builder, index, indices)

    return index(index, shape), codegen


@intrinsic
def row_at(typingctx: Any, index: Any, steps: Any) -> Any:
    """Return the offset in bytes of a row from the first element of an array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        indices, lengths = (cgutils.unpack_tuple(builder, x) for x in args)
        outer = map(builder.mul, indices, lengths)  # the last step is within the row
        return reduce(builder.add, outer, context.get_constant(types.intp, 0))

    return types.intp(index, steps), codegen


@intrinsic
def element(typingctx: Any, x: Any, steps: Any, row: Any, i: Any) -> Any:
    """Return element i of the row at a byte offset; a number is returned as it is."""
    if not isinstance(x, types.Array):
        return x(x, steps, row, i), lambda context, builder, signature, args: args[0]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(x)(context, builder, args[0])
        offset = args[2]
        if steps.count:
            *_, step = cgutils.unpack_tuple(builder, args[1])
            offset = builder.add(offset, builder.mul(args[3], step))
        address = cgutils.pointer_add(builder, array.data, offset)
        return context.unpack_value(builder, x.dtype, address, align=None if x.aligned else 1)

    return x.dtype(x, steps, types.intp, types.intp), codegen


_TILE = 32  # rows and columns of a tile, which fits the first cache
_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF  # all bits of a binary64 but its sign
_INFINITY = 0x7FF0_0000_0000_0000  # the bits of infinity in binary64


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
    Raise `largest` to the finite magnitudes of a vector, first to last; return the largest.

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

    The column is 0 outside of the stretches `parts`.
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


WORD = 64  # elements that are tested together


def nonzeros(bits, indices):
    """
    Store the indices of nonzeros and return their number, or -1 if `indices` may be too short.

    Numbers are binary64, seen as integers, and mostly 0. `indices` needs WORD more elements.
    """
    count = 0
    for first in range(0, bits.size, WORD):
        some = bits[first : first + WORD]
        every = 0
        for i in range(some.size):
            every |= some[i]
        if every & _MAGNITUDE == 0:
            continue
        if count + some.size > indices.size:
            return -1
        for i in range(some.size):
            indices[count] = first + i
            count += 1 if some[i] & _MAGNITUDE != 0 else 0
    return count


_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_MATRIX = types.Array(types.float64, 2, "C")
_BITS = types.Array(types.int64, 2, "C", readonly=True)
_SIZES = vector(types.int64, readonly=False)

TURN = Kernels(turn, lambda _: (_ROWS, types.int64, types.int64, _MATRIX))
ENLARGE = Kernels(enlarge, lambda _: (_BITS, _SIZES, _SIZES))
NONZEROS = Kernels(nonzeros, lambda _: (vector(types.int64), _SIZES))
