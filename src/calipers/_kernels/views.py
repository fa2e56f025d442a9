"""Arrays of any shape as vectors, by what compiles fast."""

from typing import Any

from numba.core import types
from numba.extending import overload, register_jitable


@register_jitable
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


@overload(flat)
def _flat(out):
    return (lambda out: out) if out.ndim == 1 else (lambda out: out.reshape(-1))


def reals(out: Any) -> Any:
    """View an array as a vector of real numbers; a complex element is two."""
    raise NotImplementedError


@overload(reals)
def _reals(out):
    if isinstance(out.dtype, types.Complex):
        real = out.dtype.underlying_float
        return lambda out: flat(out).view(real)
    return lambda out: flat(out)


def shaped(row: Any, like: Any) -> Any:
    """View a vector of real numbers as an array of the shape and dtype of another."""
    raise NotImplementedError


@overload(shaped)
def _shaped(row, like):
    if isinstance(like.dtype, types.Complex):
        kind = like.dtype
        return lambda row, like: row.view(kind).reshape(like.shape)
    if like.ndim == 1:
        return lambda row, like: row
    return lambda row, like: row.reshape(like.shape)
