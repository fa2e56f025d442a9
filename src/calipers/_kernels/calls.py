"""Calls of a user's compiled function by the address of its machine code.

A loop that takes f as an address serves every function of a signature, and is found in the disk
cache; one that takes f as a function is compiled anew for each. The call follows Numba's own
convention, so that an exception of f passes through.
"""

from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, imputils, types
from numba.extending import intrinsic, overload, register_jitable


class Returns(NamedTuple):
    """``y = f(*before, x, *after)``."""

    address: int
    example: Any  # of y's type
    before: tuple[Any, ...]
    after: tuple[Any, ...]


class Fills(NamedTuple):
    """``f(*before, x, *after, out)``, which returns None."""

    address: int
    example: None
    before: tuple[Any, ...]
    after: tuple[Any, ...]


class Rows(NamedTuple):
    """``y[i] = f(i, *before, x, *after)``."""

    address: int
    example: Any
    before: tuple[Any, ...]
    after: tuple[Any, ...]


Form = Returns | Fills | Rows


@intrinsic
def _call(typingctx: Any, address: Any, example: Any, arguments: Any) -> Any:
    """Call the function at an address, which takes these arguments and returns such a result."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = tuple(arguments.types)
        function = context.call_conv.get_function_type(example, kinds)
        pointer = builder.inttoptr(args[0], ir.PointerType(function))
        values = cgutils.unpack_tuple(builder, args[2], len(kinds))
        status, result = context.call_conv.call_function(builder, pointer, example, kinds, values)
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return imputils.impl_ret_new_ref(context, builder, example, result)

    return example(address, example, arguments), codegen


@register_jitable
def _require(found: int, expected: int) -> None:
    if found != expected:
        msg = "f returned results of two sizes"
        raise ValueError(msg)


def evaluate(f: Form, x: Any, out: Any) -> None:
    """Store f(x) in `out`, element by element in C order."""
    raise NotImplementedError


@overload(evaluate)
def _evaluate(f, x, out):
    if f.instance_class is Fills:
        return lambda f, x, out: _call(f.address, f.example, f.before + (x,) + f.after + (out,))

    if f.instance_class is Rows:

        def rows(f, x, out):
            flat = out.reshape(-1)
            for i in range(flat.size):
                flat[i] = _call(f.address, f.example, (i,) + f.before + (x,) + f.after)

        return rows

    example = dict(zip(f.fields, f.types, strict=True))["example"]
    if not isinstance(example, types.Array):

        def number(f, x, out):
            out.reshape(-1)[0] = _call(f.address, f.example, f.before + (x,) + f.after)

        return number

    if example.layout == "C":

        def contiguous(f, x, out):
            y = _call(f.address, f.example, f.before + (x,) + f.after).reshape(-1)
            flat = out.reshape(-1)
            _require(y.size, flat.size)
            for i in range(flat.size):
                flat[i] = y[i]

        return contiguous

    def strided(f, x, out):
        y = _call(f.address, f.example, f.before + (x,) + f.after)
        flat = out.reshape(-1)
        _require(y.size, flat.size)
        for i, element in enumerate(y.flat):
            flat[i] = element

    return strided


def reals(out: Any) -> Any:
    """View an array as a vector of real numbers; a complex element is two."""
    raise NotImplementedError


@overload(reals)
def _reals(out):
    if isinstance(out.dtype, types.Complex):
        real = out.dtype.underlying_float
        return lambda out: out.reshape(-1).view(real)
    return lambda out: out.reshape(-1)
