"""Iteration over the rows of arrays of any layout."""

from functools import reduce
from typing import Any

from numba.core import cgutils, types
from numba.core.types.containers import Tuple, UniTuple
from numba.extending import intrinsic

from .scalar.formats import for_a_gpu


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
