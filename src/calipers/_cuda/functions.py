"""Adapt functions that run on a device to arrays on the host."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numba.core.errors import NumbaError

from .._core.arguments import is_weak
from .._core.libraries import is_device_function, library_of, on_device
from .._core.protocols import NDArray
from . import runtime
from .arrays import operand
from .kernels import differences as kernels

_CACHED_FUNCTIONS = 64  # compiled functions that stay in memory, the latest ones


@lru_cache(_CACHED_FUNCTIONS)
def compiled(f: Callable[..., Any]) -> Any:
    """Return a function compiled for the device, as its kernels call it."""
    return f if is_device_function(f) else runtime.device_function(f)


class LaunchedFunction:
    """Adapter of a function compiled for a device to batches of arguments on the host."""

    evaluates_points_independently = True  # each in a thread
    batch_bytes = 1 << 26  # arguments and results of one launch, which a device has room for

    def __init__(
        self, f: Callable[..., Any], position: int, like: NDArray, rowwise: bool, ordinal: int
    ) -> None:
        self._shape, self._dtype = like.shape, like.dtype
        self._position = position
        self._ordinal = ordinal
        self._rowwise = rowwise
        self._kernel = (kernels.compute_values if rowwise else kernels.fill_values)(compiled(f))

    def __call__(self, *args: Any) -> NDArray:
        """Return the values at each of a batch of points."""
        k = self._position
        points = args[k]
        if not self._shape and not self._rowwise:
            msg = "out_like has no axis, and a function on a device fills an array: pass shape (1,)"
            raise ValueError(msg)
        if points.ndim == 1:
            msg = "x has no axis, and a function on a device takes an array: pass x of shape (1,)"
            raise ValueError(msg)
        count, size = len(points), prod(self._shape)
        with runtime.on(self._ordinal):
            stream = runtime.stream(0)
            values = runtime.empty((count, *self._shape), self._dtype)
            out, work = values, count
            if self._rowwise:
                out, work = values.reshape(count, size), count * size
            others = arguments(args[:k], stream), arguments(args[k + 1 :], stream)
            blocks = runtime.blocks_of(work, runtime.threads())
            launch(self._kernel, blocks, stream, [points], *others, out)
            return runtime.fetch(values, stream)


class DeviceFunction:
    """
    Adapter of a function of arrays on a device to arrays on the host.

    Of its arguments those at `positions`, and all beyond the first `count`, are sent to the device;
    what it writes there is brought back. One that is `launched` runs in one thread.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        positions: frozenset[int],
        count: int,
        like: Any,
        launched: bool = False,
    ) -> None:
        self._f, self._positions, self._count, self._like = f, positions, count, like
        self._library = library_of(like)
        self.ordinal = operand(like, "x").memory.ordinal if on_device(x=like) else 0
        self.launched = launched

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's results, as arrays on the host."""
        with runtime.on(self.ordinal):
            sent = [
                self._send(x) if k in self._positions or k >= self._count else x
                for k, x in enumerate(args)
            ]
            y = None
            if self.launched:
                stream = runtime.stream(0)
                # They are waited for: the library may read on a stream of its own.
                kernel, inputs = kernels.once(compiled(self._f)), arguments(tuple(sent), stream)
                launch(kernel, 1, stream, [], inputs)
            else:
                y = self._f(*sent, **kwargs)
            for original, x in zip(args, sent, strict=True):
                if (
                    x is not original
                    and isinstance(original, np.ndarray)
                    and original.flags.writeable
                ):
                    now = self._bring(x)
                    if now.tobytes() != original.tobytes():
                        original[...] = now
            return self._bring(y)

    def _send(self, x: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return type(x)(map(self._send, x))
        if not isinstance(x, np.ndarray):
            return x
        if self._library is not None:
            return self._library.put(x, self._like)
        return runtime.to_device(np.asarray(x, order="C"))

    def _bring(self, y: Any) -> Any:
        if isinstance(y, (tuple, list)):
            return type(y)(map(self._bring, y))
        if not on_device(y=y):
            return y
        library = library_of(y)
        return operand(y, "a result of f").to_host() if library is None else library.fetch(y)


def launch(
    kernel: Any,
    blocks: int,
    stream: Any,
    arrays: Sequence[NDArray],
    *arguments: Any,
    by_address: bool = False,
    **layout: Any,
) -> None:
    """
    Run a kernel that calls a user's function, and raise an error if that function failed.

    Its first arguments are copies of the host's `arrays`, or their addresses.
    """
    ordinal = runtime.current()
    desk = runtime.borrow(runtime.Desk, ordinal)
    status = np.zeros(2, np.int64)
    few = desk.takes([status, *arrays])
    there, *sent = desk.put([status, *arrays] if few else [status], stream)
    if not few:
        sent = [runtime.to_device(x) for x in arrays]
    pointers = [runtime.address_of(x) for x in (*sent, there)] if by_address else [*sent, there]
    try:
        runtime.launch(kernel, blocks, stream, *pointers[:-1], *arguments, pointers[-1], **layout)
    except NumbaError as error:
        msg = f"f cannot be compiled for a device with arguments of these types: {_reason(error)}"
        raise TypeError(msg) from error
    changed, unfinished = desk.bring(there, stream)
    runtime.give_back(desk, ordinal)
    if unfinished:
        msg = "f raised an error on the device, which cannot report it: call f on the host"
        raise RuntimeError(msg)
    if changed:
        msg = "f changes its argument; let it work on a copy"
        raise ValueError(msg)


def _reason(error: NumbaError) -> str:
    """Return the cause of a compiler's error, without the stages that failed by it."""
    stages = [line.strip() for line in str(error).splitlines()]
    causes = [line for line in stages if line and not line.startswith("Failed in ")]
    if not causes:
        return type(error).__name__
    return " ".join(causes[: 2 if causes[0].endswith(":") else 1])


def arguments(args: tuple[Any, ...], stream: Any) -> tuple[Any, ...]:
    """Return f's other arguments as kernels take them, for a stream of the current device."""
    return tuple(_argument(x, stream) for x in args)


def _argument(x: Any, stream: Any) -> Any:
    # Of larger ones Numba would take the last bits alone.
    if isinstance(x, int) and not -(1 << 63) <= x < 1 << 63:
        msg = f"an argument of f is {x}, which does not fit into int64: pass a float"
        raise ValueError(msg)
    if is_weak(x) or isinstance(x, np.generic):
        return x
    if not on_device(x=x):
        return runtime.to_device(np.asarray(x, order="C"))
    array = operand(x, "an argument of f")
    memory = array.memory
    if memory.ordinal != runtime.current():
        msg = f"an argument of f is on device {memory.ordinal}, and f runs on device "
        msg += f"{runtime.current()}: move one of them to the other's device"
        raise TypeError(msg)
    if array.stream is not stream:
        runtime.order(stream, array.stream)
    if array.kind == "bfloat16":
        msg = "an argument of f has dtype bfloat16, which compiled functions do not support: "
        msg += "convert it to float32"
        raise TypeError(msg)
    dtype = np.dtype(array.kind)
    return runtime.view(memory.owner, memory.address, dtype, memory.shape, memory.strides)
