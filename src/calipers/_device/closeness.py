"""Questions about arrays in the memory of a device: what is launched, and what comes back."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ._arrays import broadcast_shape, library_of, strengthen
from ._kernels.closeness import reduced
from ._kernels.cuda import _target as target
from ._kernels.cuda import closeness as kernels

# What kernels read an element as, where Numba's own type has no arithmetic.
_CARRIERS = {"float16": np.uint16, "bfloat16": np.uint16}

_spare: list[target.Flag] = []  # one for each call that is under way at a time


class _Operand(NamedTuple):
    """An array on the device: its memory as a vector, and where its elements stand in that."""

    memory: Any
    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements


def allclose(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool) -> bool:
    """Answer for all elements of two arrays on one device."""
    x, y = _operands(a, b)
    tolerances = _tolerance(rtol, "rtol"), _tolerance(atol, "atol")
    shape = _shape(x, y)
    size = prod(shape)
    if size == 0:
        return True
    shape, strides = _collapsed(shape, [_spread(o, shape) for o in (x, y)], any_order=True)
    flat = _is_flat(shape, strides)
    layout = target.policy(max(o.memory.dtype.itemsize for o in (x, y)), flat)
    kernel = kernels.apart((x.kind, y.kind), flat, layout)
    try:
        flag = _spare.pop()
    except IndexError:
        flag = target.Flag()
    arrays = x.memory, y.memory, shape, *strides, size
    numbers = (*tolerances, *_lowered(*tolerances), bool(equal_nan))
    target.launch(kernel, size, layout.tile, *arrays, *numbers, flag.array, flag.next_call())
    found = flag.is_set()
    _spare.append(flag)
    return not found


def isclose(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool) -> Any:
    """Answer for each pair, in an array of the inputs' library on their device."""
    x, y = _operands(a, b)
    tolerances = _tolerance(rtol, "rtol"), _tolerance(atol, "atol")
    whole = _shape(x, y)
    size = prod(whole)
    out = target.empty(max(size, 1), np.bool_)
    if size:
        shape, strides = _collapsed(whole, [_spread(o, whole) for o in (x, y)])
        flat = _is_flat(shape, strides)
        layout = target.policy(1, flat)
        kernel = kernels.mask((x.kind, y.kind), flat)
        arrays = x.memory, y.memory, shape, *strides, size
        target.launch(kernel, size, layout.threads, *arrays, *tolerances, bool(equal_nan), out)
    target.finish()
    result = out[:size].reshape(whole)
    library = library_of(a) or library_of(b)
    return result if library is None else library.from_device(result)


def array_equal(a: Any, b: Any, equal_nan: bool) -> bool:
    """Tell whether shapes and elements are the same."""
    if tuple(a.shape) != tuple(b.shape):
        return False
    return allclose(a, b, 0.0, 0.0, equal_nan)


def first_nonfinite(a: Any) -> int:
    """Return the position in C order of the first NaN or infinity, or -1."""
    x = _operand(a, "a")
    size = prod(x.shape)
    if size == 0 or x.kind.startswith(("int", "uint")):
        return -1
    shape, (strides,) = _collapsed(x.shape, [x.strides])
    flat = _is_flat(shape, [strides])
    layout = target.policy(x.memory.dtype.itemsize, flat)
    found = target.to_device(np.array([size], np.int64))
    kernel = kernels.first_nonfinite(x.kind, flat, layout)
    target.launch(kernel, size, layout.tile, x.memory, shape, strides, size, found)
    position = int(found.copy_to_host()[0])
    return position if position < size else -1


def _operands(a: Any, b: Any) -> tuple[_Operand, _Operand]:
    """Bring two arrays, one of which may be a number, into the kernels' form."""
    numbers = [isinstance(x, (int, float, complex, np.generic)) for x in (a, b)]
    if numbers[0]:
        y = _operand(b, "b")
        return _number(a, y), y
    x = _operand(a, "a")
    return x, _number(b, x) if numbers[1] else _operand(b, "b")


def _operand(x: Any, name: str) -> _Operand:
    library = library_of(x)
    view, kind = (x, None) if library is None else library.on_device(x)
    array = target.as_device_array(view)
    dtype = np.dtype(array.dtype)
    if dtype.kind == "b":  # a byte of 0 or 1
        dtype = np.dtype(np.uint8)
    kind = kind or dtype.name
    if dtype.kind not in "biufc" or dtype.char in "gG" or not dtype.isnative:
        msg = f"{name} has dtype {dtype}, which is not compared on a device; compare it on the host"
        raise TypeError(msg)
    carrier = np.dtype(_CARRIERS.get(kind, dtype))
    shape = tuple(int(n) for n in array.shape)
    strides = tuple(int(s) for s in array.strides)
    if any(n > 1 and (s < 0 or s % carrier.itemsize) for n, s in zip(shape, strides, strict=True)):
        msg = f"{name} has strides {strides} on the device; pass a contiguous copy of it"
        raise TypeError(msg)
    if prod(shape) == 0:
        return _Operand(None, kind, shape, (0,) * len(shape))
    memory = target.vector(array, carrier)
    return _Operand(memory, kind, shape, tuple(s // carrier.itemsize for s in strides))


def _number(x: Any, like: _Operand) -> _Operand:
    """Put a number on the device, in the dtype that it takes beside an array (NEP 50)."""
    own = np.dtype(np.float32 if like.kind == "bfloat16" else like.kind)
    value = np.asarray(x) if isinstance(x, np.generic) else strengthen(x, own)
    return _operand(target.to_device(value.reshape(1)), "a number")._replace(shape=(), strides=())


def _tolerance(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        msg = f"{name} must be a real number for arrays on a device, got {type(value).__name__}"
        raise TypeError(msg) from None


def _lowered(rtol: float, atol: float) -> tuple[np.float32, np.float32]:
    """Return tolerances for the test in binary32, or such that only equality passes it."""
    if rtol >= 0 and atol >= 0:
        return reduced(rtol), reduced(atol)
    return np.float32(0), np.float32(-1)


def _shape(x: _Operand, y: _Operand) -> tuple[int, ...]:
    empties = [np.broadcast_to(np.empty(()), o.shape) for o in (x, y)]
    return broadcast_shape(empties, ("a", "b"))


def _spread(operand: _Operand, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides for the shape that an array is broadcast to."""
    missing = len(shape) - len(operand.shape)
    pairs = zip(operand.shape, operand.strides, strict=True)
    return (0,) * missing + tuple(0 if n == 1 else s for n, s in pairs)


def _collapsed(
    shape: tuple[int, ...], strides: Sequence[tuple[int, ...]], any_order: bool = False
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Drop axes of one element, and join those that are one in the memory of all arrays."""
    axes = [(n, *own) for n, *own in zip(shape, *strides, strict=True) if n > 1]
    if any_order:
        axes.sort(key=lambda axis: axis[1:], reverse=True)
    joined: list[tuple[int, ...]] = []
    for n, *own in axes:
        if joined and all(
            outer == n * inner for outer, inner in zip(joined[-1][1:], own, strict=True)
        ):
            joined[-1] = (joined[-1][0] * n, *own)
        else:
            joined.append((n, *own))
    joined = joined or [(1, *[1] * len(strides))]
    first, *others = (tuple(column) for column in zip(*joined, strict=True))
    return first, others


def _is_flat(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> bool:
    return len(shape) == 1 and all(own == (1,) for own in strides)
