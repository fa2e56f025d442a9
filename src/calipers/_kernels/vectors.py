"""Numba types of vectors, and the reading of memory ahead of use."""

from typing import Any, Literal

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .scalar.formats import BFloat16, Half, Truth, for_a_gpu

Layout = Literal["C", "A"]  # contiguous; strided

_LINE = 64  # bytes of a cache line

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
    Ask for the cache lines of elements from array[start]; what is past the end is harmless.

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
        lines = cgutils.for_range_slice(builder, first, last, index(_LINE // size), index)
        with lines as (position, _):
            address = builder.bitcast(builder.gep(view.data, [position]), byte)
            # for reading, into the nearest cache, as data
            builder.call(function, [address, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), codegen
