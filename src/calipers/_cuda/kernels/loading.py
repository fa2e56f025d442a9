"""Find and load the elements of arrays on a device, and call the scalar rules in kernels."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import config, cuda, types

from ..._kernels.scalar.formats import from_bfloat16, from_half

# Kernels compile functions of Numba's CPU target for the device. The simulator calls them compiled,
# since intrinsics and overloads cannot be interpreted, and interprets all others.
rule = numba.njit(error_model="numpy")


def wrap_rule(scalar_rule: Callable[..., Any]) -> Any:
    """Return a scalar rule as kernels call it, compiled for the types of its arguments."""
    return rule(lambda *arguments: scalar_rule(*arguments))


_GLOBAL = 1  # the address space of a device's memory


@cuda.jit(device=True)
def as_is(x):
    return x


@cuda.jit(device=True)
def _plain(x, i):
    return x[i]


def _reading_anew() -> Any:
    """
    Return the function that reads an element as other blocks have last written it.

    A plain read may be one of long ago. So may Numba's ldcv: it does not say that it has effects,
    and is moved to before the loop that it is in.
    """
    if config.ENABLE_CUDASIM:
        return _plain
    from llvmlite import ir
    from numba.cuda.extending import intrinsic

    @intrinsic
    def latest(typingctx: Any, array: Any, i: Any) -> Any:
        bits = array.dtype.bitwidth

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            view = context.make_array(array)(context, builder, args[0])
            address = builder.ptrtoint(builder.gep(view.data, [args[1]]), ir.IntType(64))
            kind = ir.FunctionType(ir.IntType(bits), [ir.IntType(64)])
            text, register = f"ld.relaxed.gpu.global.b{bits} $0, [$1];", {32: "r", 64: "l"}[bits]
            asm = ir.InlineAsm(kind, text, f"={register},l,~{{memory}}", side_effect=True)
            return builder.call(asm, [address])

        return array.dtype(array, i), codegen

    return latest


latest = _reading_anew()


@rule
def _truth(x):
    return np.uint8(x != 0)


# The dtypes as which kernels read elements that Numba has no arithmetic for, or reads as one bit.
CARRIERS = {"float16": "uint16", "bfloat16": "uint16", "bool": "uint8"}

_LOADED = {
    "float16": (wrap_rule(from_half), types.float32),
    "bfloat16": (wrap_rule(from_bfloat16), types.float32),
    "bool": (_truth, types.uint8),
}


def loader(kind: str) -> Any:
    """Return the function that turns an element of memory into a number."""
    return _LOADED[kind][0] if kind in _LOADED else as_is


def loaded(kind: str) -> Any:
    """Return the Numba type of the numbers of `loader`."""
    return _LOADED[kind][1] if kind in _LOADED else numba.from_dtype(np.dtype(kind))


def viewer(kind: str) -> Any:
    """Return the function that views memory at an address as a vector, as kernels read it."""
    return plain_viewer(CARRIERS.get(kind, kind))


@cache
def plain_viewer(dtype: str) -> Any:
    """
    Return the function that views memory at an address as a vector of unknown length.

    A launch takes much longer to hand over an array. The simulator has no addresses, and is given
    arrays.
    """
    if config.ENABLE_CUDASIM:
        return as_is
    from numba.cuda.extending import intrinsic

    vector = types.Array(numba.from_dtype(np.dtype(dtype)), 1, "C")

    @intrinsic
    def view(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(vector)(context, builder)
            element = context.get_data_type(vector.dtype)
            pointer = builder.inttoptr(args[0], element.as_pointer(_GLOBAL))
            array.data = builder.addrspacecast(pointer, array.data.type)
            return array._getvalue()

        return vector(address), codegen

    return view


@cuda.jit(device=True)
def _flat(i, layout):
    return i, i


@cuda.jit(device=True)
def _strided(i, layout):
    """Return the indices in memory of element i in C order of two arrays.

    The steps of each are the index of its first element, and the distances along each axis.
    """
    shape, a_steps, b_steps = layout
    p = np.int64(a_steps[0])
    q = np.int64(b_steps[0])
    # What is left for the first axis is its index: a division takes longer than all else.
    for axis in range(len(shape) - 1, 0, -1):
        k = i % shape[axis]
        i //= shape[axis]
        p += k * a_steps[axis + 1]
        q += k * b_steps[axis + 1]
    return p + i * a_steps[1], q + i * b_steps[1]


def locator(flat: bool) -> Any:
    """Return the function that locates elements: by position alone, or by their indices."""
    return _flat if flat else _strided
