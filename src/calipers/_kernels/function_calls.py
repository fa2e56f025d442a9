"""Calls of compiled functions, the user's and our own, by the address of their machine code.

A loop that takes f as an address serves every function of a signature, and is found in the disk
cache; one that takes f as a function is compiled anew for each. The call follows Numba's own
convention, so that an exception of f passes through.
"""

from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, imputils, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

from . import jitable, jitable_as


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


class Returns(NamedTuple):
    """``y = f(*before, x, *after)``."""

    address: int
    example: Any  # of y's type
    shape: tuple[int, ...]  # of y; none if it has one axis or none
    before: tuple[Any, ...]
    after: tuple[Any, ...]


class Fills(NamedTuple):
    """``f(*before, x, *after, out)``, which returns None."""

    address: int
    example: None
    shape: tuple[int, ...]
    before: tuple[Any, ...]
    after: tuple[Any, ...]


class RowCall(NamedTuple):
    """``y[i] = f(i, *before, x, *after)``."""

    address: int
    example: Any
    shape: tuple[int, ...]
    before: tuple[Any, ...]
    after: tuple[Any, ...]


Form = Returns | Fills | RowCall


def _calling(f: Any, *arguments: Any) -> Any:
    """
    Return the typing and code of a call of f with `arguments`: those before x, x, and those after.

    Arguments are borrowed, which spares counting references in each call.
    """
    first, x, last = arguments
    types_of = dict(zip(f.fields, f.types, strict=True))
    result = types_of["example"]
    before, after = types_of["before"].types, types_of["after"].types
    kinds = (*first, *before, x, *after, *last)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        form, values = args[0], list(args[1:])
        part = {name: builder.extract_value(form, i) for i, name in enumerate(f.fields)}
        middle = len(first)
        values = [
            *values[:middle],
            *cgutils.unpack_tuple(builder, part["before"], len(before)),
            values[middle],
            *cgutils.unpack_tuple(builder, part["after"], len(after)),
            *values[middle + 1 :],
        ]
        return _called(context, builder, part["address"], result, kinds, values)

    return result(f, *first, x, *last), codegen


def _called(context: Any, builder: Any, address: Any, result: Any, kinds: Any, values: Any) -> Any:
    """Call machine code at an address and return its result; propagate its exception."""
    function = context.call_conv.get_function_type(result, kinds)
    pointer = builder.inttoptr(address, ir.PointerType(function))
    status, value = context.call_conv.call_function(builder, pointer, result, kinds, values)
    with cgutils.if_unlikely(builder, status.is_error):
        context.call_conv.return_status_propagate(builder, status)
    return imputils.impl_ret_new_ref(context, builder, result, value)


@intrinsic
def call_kernel(typingctx: Any, address: Any, arguments: Any) -> Any:
    """
    Return the number that another kernel gives, whose parameters are of the types given.

    A large kernel is thus compiled once, and not again in each loop around a user's function.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = cgutils.unpack_tuple(builder, args[1], len(arguments))
        return _called(context, builder, args[0], types.float64, arguments.types, values)

    return types.float64(address, arguments), codegen


@intrinsic
def _call(typingctx: Any, f: Any, x: Any) -> Any:
    return _calling(f, (), x, ())


@intrinsic
def _call_filling(typingctx: Any, f: Any, x: Any, out: Any) -> Any:
    return _calling(f, (), x, (out,))


@intrinsic
def _call_row(typingctx: Any, f: Any, i: Any, x: Any) -> Any:
    return _calling(f, (i,), x, ())


@jitable
def _require_shape(f: Any, y: Any, out: Any) -> None:
    if y.size != out.size or (len(f.shape) and y.shape != f.shape):
        msg = "f returned results of two shapes"
        raise ValueError(msg)


def evaluate(f: Form, x: Any, out: Any) -> None:
    """Store f(x) in `out`, element by element in C order."""
    raise NotImplementedError


@jitable_as(evaluate)
def _evaluate(f, x, out):
    if f.instance_class is Fills:
        return lambda f, x, out: _call_filling(f, x, out)

    if f.instance_class is RowCall:

        def rows(f, x, out):
            row = flat(out)
            for i in range(row.size):
                row[i] = _call_row(f, i, x)

        return rows

    example = dict(zip(f.fields, f.types, strict=True))["example"]
    if not isinstance(example, types.Array):

        def number(f, x, out):
            flat(out)[0] = _call(f, x)

        return number

    if example.layout == "C":

        def contiguous(f, x, out):
            y = _call(f, x)
            _require_shape(f, y, out)
            assign(flat(out), flat(y))

        return contiguous

    def strided(f, x, out):
        y = _call(f, x)
        _require_shape(f, y, out)
        values = flat(out)
        for i, element in enumerate(y.flat):
            values[i] = element

    return strided
