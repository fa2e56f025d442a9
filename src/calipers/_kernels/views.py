"""Arrays as kernels see them: borrowed, as vectors, as vectors of real numbers."""

from typing import Any

from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

from .jitable import jitable, jitable_as


@intrinsic
def borrowed(typingctx: Any, arrays: Any) -> Any:
    """
    Return a tuple, whose arrays are without the counts of who uses them.

    The caller of a kernel holds them while it runs; counting each view takes as long as a small f.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        views = []
        for kind, value in zip(arrays, cgutils.unpack_tuple(builder, args[0]), strict=True):
            if isinstance(kind, types.Array):
                view = context.make_array(kind)(context, builder, value)
                view.meminfo = cgutils.get_null_value(view.meminfo.type)
                view.parent = cgutils.get_null_value(view.parent.type)
                value = view._getvalue()
            views.append(value)
        return context.make_tuple(builder, signature.return_type, views)

    return arrays(arrays), codegen


@jitable
def assign(out: Any, values: Any) -> None:
    """
    Copy a vector to another.

    With ``out[:] = values`` Numba compiles the text of the error for another shape: 1.7 s.
    """
    for i in range(out.size):
        out[i] = values[i]


def flat(out: Any) -> Any:
    """View a contiguous array as a vector."""
    raise NotImplementedError


@jitable_as(flat)
def _flat(out):
    if out.ndim == 1:
        return lambda out: out
    return (lambda out: vector_of(out)) if out.layout == "C" else (lambda out: out.reshape(-1))


@intrinsic
def vector_of(typingctx: Any, x: Any) -> Any:
    """View an array of layout C as a vector: reshape(-1) takes Numba another 0.1 s."""
    vector = x.copy(ndim=1)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(x)(context, builder, args[0])
        view = context.make_array(vector)(context, builder)
        for name in ("meminfo", "parent", "nitems", "itemsize", "data"):
            setattr(view, name, getattr(array, name))
        view.shape = cgutils.pack_array(builder, [array.nitems])
        view.strides = cgutils.pack_array(builder, [array.itemsize])
        return impl_ret_borrowed(context, builder, vector, view._getvalue())

    return vector(x), codegen


def reals(out: Any) -> Any:
    """View an array as a vector of real numbers; a complex element is two."""
    raise NotImplementedError


@jitable_as(reals)
def _reals(out):
    if isinstance(out.dtype, types.Complex):
        real = out.dtype.underlying_float
        return lambda out: flat(out).view(real)
    return lambda out: flat(out)


def shaped(row: Any, like: Any) -> Any:
    """View a vector of real numbers as an array of the shape and dtype of another."""
    raise NotImplementedError


@jitable_as(shaped)
def _shaped(row, like):
    if isinstance(like.dtype, types.Complex):
        kind = like.dtype
        return lambda row, like: row.view(kind).reshape(like.shape)
    if like.ndim == 1:
        return lambda row, like: row
    return lambda row, like: row.reshape(like.shape)
