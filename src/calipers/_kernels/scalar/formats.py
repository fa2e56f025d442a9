"""Element formats that Numba lacks, exact conversions, and operations on bits."""

from typing import Any, Literal

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model


class Half(types.Type):
    """IEEE binary16, which Numba can name but neither load nor widen on a CPU."""

    def __init__(self) -> None:
        super().__init__(name="calipers.Half")


class BFloat16(types.Type):
    """The upper half of a binary32."""

    def __init__(self) -> None:
        super().__init__(name="calipers.BFloat16")


class Truth(types.Type):
    """A byte that is false if it is 0: a boolean array may view memory of any bytes."""

    def __init__(self) -> None:
        super().__init__(name="calipers.Truth")


@register_model(Half)
@register_model(BFloat16)
class _SixteenBits(models.PrimitiveModel):  # type: ignore[misc]  # Numba is untyped
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, ir.IntType(16))


@register_model(Truth)
class _EightBits(models.PrimitiveModel):  # type: ignore[misc]  # Numba is untyped
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, ir.IntType(8))


def _widened_half(builder: Any, value: Any) -> Any:
    """Widen by integers: the processor's own instruction is missing on some, and LLVM then aborts.

    The exponent is 112 less than that of binary32; a product with 2**112 makes subnormal numbers
    right, too.
    """
    i32, f32 = ir.IntType(32), ir.FloatType()
    wide = builder.zext(value, i32)
    magnitude = builder.shl(builder.and_(wide, i32(0x7FFF)), i32(13))
    finite = builder.bitcast(builder.fmul(builder.bitcast(magnitude, f32), f32(2.0**112)), i32)
    special = builder.icmp_unsigned(">=", magnitude, i32(0x7C00 << 13))
    bits = builder.select(special, builder.or_(magnitude, i32(0x7F800000)), finite)
    sign = builder.shl(builder.and_(wide, i32(0x8000)), i32(16))
    return builder.bitcast(builder.or_(bits, sign), f32)


def _cast(context: Any, builder: Any, value: Any, source: Any, target: Any) -> Any:
    if isinstance(source, Half):
        value, source = _widened_half(builder, value), types.float32
    elif isinstance(source, BFloat16):
        bits = builder.shl(builder.zext(value, ir.IntType(32)), ir.IntType(32)(16))
        value, source = builder.bitcast(bits, ir.FloatType()), types.float32
    elif isinstance(source, Truth):
        value, source = builder.icmp_unsigned("!=", value, ir.IntType(8)(0)), types.boolean
    return context.cast(builder, value, source, target)


@intrinsic
def single(typingctx: Any, x: Any) -> Any:
    """Widen a number of at most 16 bits, or a binary32, to binary32: exact."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _cast(context, builder, args[0], x, types.float32)

    return types.float32(x), codegen


@intrinsic
def double(typingctx: Any, x: Any) -> Any:
    """Convert a real number to binary64: exact but for integers beyond 2**53."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _cast(context, builder, args[0], x, types.float64)

    return types.float64(x), codegen


@intrinsic
def number(typingctx: Any, x: Any) -> Any:
    """Return a boolean as 0 or 1, and any other number unchanged."""
    kind = types.uint8 if isinstance(x, (Truth, types.Boolean)) else x

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0] if kind == x else _cast(context, builder, args[0], x, kind)

    return kind(x), codegen


@intrinsic
def stored(typingctx: Any, x: Any) -> Any:
    """Return the byte of a boolean, and any other number unchanged."""
    return (types.uint8 if isinstance(x, Truth) else x)(x), lambda *args: args[-1][0]


@intrinsic
def from_half(typingctx: Any, x: Any) -> Any:
    """Widen the bits of a binary16."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _cast(context, builder, args[0], Half(), types.float32)

    return types.float32(types.uint16), codegen


@intrinsic
def from_bfloat16(typingctx: Any, x: Any) -> Any:
    """Widen the bits of a bfloat16."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _cast(context, builder, args[0], BFloat16(), types.float32)

    return types.float32(types.uint16), codegen


def for_a_gpu(builder: Any) -> bool:
    """Return True if code is generated for a GPU."""
    return bool(builder.module.triple.startswith("nvptx"))


@intrinsic
def runs_on_gpu(typingctx: Any) -> Any:
    """Return True in code for a GPU: a constant, so that the other branch is left out."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.boolean, for_a_gpu(builder))

    return types.boolean(), codegen


@intrinsic
def product(typingctx: Any, x: Any, y: Any) -> Any:
    """
    Return the product of two binary64, rounded before it is used.

    A GPU's compiler would fuse it with an addition that follows, which changes the sum.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not for_a_gpu(builder):
            return builder.fmul(*args)
        number = ir.DoubleType()
        kind = ir.FunctionType(number, [number, number])
        return builder.call(ir.InlineAsm(kind, "mul.rn.f64 $0, $1, $2;", "=d,d,d"), args)

    return types.float64(types.float64, types.float64), codegen


@intrinsic
def bits(typingctx: Any, x: Any) -> Any:
    """Return the bits of a binary32 or binary64 as a signed integer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(x.bitwidth))

    return (types.int32 if x == types.float32 else types.int64)(x), codegen


@intrinsic
def from_bits(typingctx: Any, x: Any) -> Any:
    """Return the binary64 that has the bits of an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def leading_zeros(typingctx: Any, x: Any) -> Any:
    """Count the zeros above the highest bit of a uint64: 64 for 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), codegen


Layout = Literal["C", "A"]  # contiguous; strided

CACHE_LINE = 64  # bytes of a cache line

_BY_NAME = {"float16": Half(), "bfloat16": BFloat16(), "bool": Truth()}


def element_type(dtype: np.dtype[Any]) -> Any:
    """Return the Numba type in which kernels read elements of a native dtype."""
    return _BY_NAME.get(dtype.name) or numba.from_dtype(dtype)


def vector(element: Any, readonly: bool = True, layout: Layout = "C") -> Any:
    """Return the Numba type of a 1-D array."""
    return types.Array(element, 1, layout, readonly=readonly)


def pair_of_vectors(key: Any, layout: Layout = "C") -> tuple[Any, Any]:
    """Return the Numba types of two vectors, by the dtype of both or by one for each."""
    a, b = key if isinstance(key, tuple) else (key, key)
    return vector(element_type(a), layout=layout), vector(element_type(b), layout=layout)


@intrinsic
def prefetch(typingctx: Any, array: Any, start: Any, count: Any) -> Any:
    """
    Prefetch the cache lines of elements from array[start]; addresses past the end are harmless.

    A GPU has no such instruction, and no function of this name to link.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if for_a_gpu(builder):
            return context.get_dummy_value()
        view = context.make_array(array)(context, builder, args[0])
        byte, flag, index = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag]),
            "llvm.prefetch.p0",
        )
        size = context.get_abi_sizeof(context.get_data_type(array.dtype))
        first, last = args[1], builder.add(args[1], args[2])
        loop = cgutils.for_range_slice(builder, first, last, index(CACHE_LINE // size), index)
        with loop as (position, _):
            address = builder.bitcast(builder.gep(view.data, [position]), byte)
            # for reading, into the nearest cache, as data
            builder.call(function, [address, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), codegen
