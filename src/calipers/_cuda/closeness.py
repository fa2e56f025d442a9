"""allclose, isclose and first_nonfinite, of arrays on one device."""

from contextlib import suppress
from functools import lru_cache
from math import prod
from sys import is_finalizing
from threading import Lock
from typing import Any

import numpy as np

from .._core.libraries import library_of
from . import runtime
from .arrays import Operand, common_shape, memory_layout, operand, operands
from .kernels import closeness as kernels


class Pending:
    """The pending result of a comparison on a device."""

    def __init__(self, x: Operand, y: Operand, flag: runtime.Flag | None) -> None:
        # The arrays are kept as long as the kernel may read them.
        self._arrays = x, y
        self._flag = flag
        self._answer = flag is None
        self._taken = Lock()

    def __del__(self, at_exit: Any = is_finalizing) -> None:  # names of modules may be gone by then
        # The kernel of an answer that nobody waits for still reads the arrays. At the end of the
        # process the memory that the answer is read from has been given back.
        if self._flag is not None and not at_exit():
            with suppress(Exception):
                self.result()

    def done(self) -> bool:
        """Return True if the result is available."""
        flag = self._flag
        if flag is None:
            return True
        with runtime.on(self._arrays[0].memory.ordinal):  # other threads call this, too
            return flag.is_done() or self._flag is None  # it may have been given back meanwhile

    def result(self) -> bool:
        """Wait for the result and return it."""
        with self._taken:
            if self._flag is not None:
                ordinal = self._arrays[0].memory.ordinal
                with runtime.on(ordinal):
                    self._answer = not self._flag.is_set()
                runtime.give_back(self._flag, ordinal)
                self._flag = None
            return self._answer


def start_allclose(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool) -> Pending:
    """Start to compare all elements of two arrays."""
    x, y = operands(a, b, ("a", "b"))
    return start_search(x, y, _tolerance(rtol, "rtol"), _tolerance(atol, "atol"), equal_nan)


def start_search(x: Operand, y: Operand, rtol: float, atol: float, equal_nan: bool) -> Pending:
    """Start to compare all elements of two arrays; only `Pending.result` waits."""
    shape = common_shape(x, y, ("a", "b"))
    size = prod(shape)
    if size == 0:
        return Pending(x, y, None)
    with runtime.on(x.memory.ordinal):
        memory = memory_layout([o.broadcast(shape) for o in (x, y)], any_order=True)
        kinds, itemsize = (x.kind, y.kind), max(x.itemsize, y.itemsize)
        kernel, blocks = _search(kinds, itemsize, memory.flat, size, x.memory.ordinal)
        flag = runtime.borrow(runtime.Flag, x.memory.ordinal)
        arrays = *memory.vectors((x, y)), memory.indexing, size
        numbers = rtol, atol, bool(equal_nan)
        signal = *flag.arrays, flag.next_call()
        stream = x.stream
        runtime.launch(kernel, blocks, stream, *arrays, *numbers, *signal)
        flag.follow(stream)
    return Pending(x, y, flag)


@lru_cache
def _search(
    kinds: tuple[str, str], itemsize: int, flat: bool, size: int, ordinal: int
) -> tuple[Any, int]:
    """Return the kernel for pairs of some kinds, and how many blocks of the current device."""
    n_blocks = kernels.searches(set(kinds), flat)
    policy = runtime.policy(itemsize, flat, n_blocks)
    blocks = runtime.blocks_of(size, policy.tile, policy.blocks)
    return kernels.any_mismatch(kinds, flat, policy), blocks


def isclose(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool) -> Any:
    """Return the verdict on each pair as an array of the inputs' library on their device."""
    x, y = operands(a, b, ("a", "b"))
    tolerances = _tolerance(rtol, "rtol"), _tolerance(atol, "atol")
    shape = common_shape(x, y, ("a", "b"))
    like = a if library_of(a) else b
    library = library_of(like)
    with runtime.on(x.memory.ordinal):
        pooled = None if library is None else library.empty(shape, like)
        result = runtime.empty(shape, np.bool_) if pooled is None else pooled
        out = operand(result, "the result")
        owners = x.memory.owner, y.memory.owner
        ordered = all(library_of(o) is library or hasattr(o, "__cuda_ndarray__") for o in owners)
        if pooled is None or not ordered:
            _mark(x, y, out, tolerances, equal_nan)
            x.stream.synchronize()
        else:
            _mark_in_order(x, y, out, tolerances, equal_nan)
    if library is None or pooled is not None:
        return result
    return library.from_device(result, like)


def _mark_in_order(x: Operand, y: Operand, out: Operand, *rule: Any) -> None:
    """
    Start to fill `out`, and let the streams of the arrays wait for that in place of the host.

    A library frees and allocates memory in the order of its stream: old contents are no longer
    read, and nothing else comes there before it is filled.
    """
    others = {o.memory.stream: o.stream for o in (y, out) if o.memory.stream != x.memory.stream}
    for stream in others.values():
        runtime.order(x.stream, stream)
    _mark(x, y, out, *rule)
    for stream in others.values():
        runtime.order(stream, x.stream)


def _mark(
    x: Operand, y: Operand, out: Operand, tolerances: tuple[float, float], equal_nan: bool
) -> None:
    """Start to write the verdict on each pair to `out`, on the stream of x."""
    if not out.size:
        return
    memory = memory_layout([o.broadcast(out.shape) for o in (x, y)])
    kinds = x.kind, y.kind
    itemsize = max(kernels.LEAST_BYTES, x.itemsize, y.itemsize)
    policy = runtime.policy(itemsize, memory.flat, kernels.masks(set(kinds), memory.flat))
    kernel = kernels.mask(kinds, memory.flat, policy)
    arrays = *memory.vectors((x, y)), memory.indexing, out.size
    filled = runtime.vector(out.memory, 0, out.size)
    blocks = runtime.blocks_of(out.size, policy.tile, policy.blocks)
    runtime.launch(kernel, blocks, x.stream, *arrays, *tolerances, bool(equal_nan), filled)


def array_equal(a: Any, b: Any, equal_nan: bool) -> bool:
    """Return True if shapes and elements are the same."""
    if tuple(getattr(a, "shape", ())) != tuple(getattr(b, "shape", ())):
        return False
    return start_allclose(a, b, 0.0, 0.0, equal_nan).result()


def first_nonfinite(a: Any) -> int:
    """Return the position in C order of the first NaN or infinity, or -1."""
    x = operand(a, "a")
    if x.size == 0 or x.kind.startswith(("bool", "int", "uint")):
        return -1
    with runtime.on(x.memory.ordinal):
        memory = memory_layout([x])
        n_blocks = kernels.searches(set(), memory.flat)  # one array takes less than two of any kind
        # Of one array twice as many elements are on their way in as many bytes.
        policy = runtime.policy(max(kernels.LEAST_BYTES, x.itemsize // 2), memory.flat, n_blocks)
        kernel = kernels.first_nonfinite(x.kind, memory.flat, policy)
        desk = runtime.borrow(runtime.Desk, x.memory.ordinal)
        (lowest,) = desk.put([np.array([x.size], np.int64)], x.stream)
        arrays = *memory.vectors([x]), memory.indexing, x.size
        blocks = runtime.blocks_of(x.size, policy.tile, policy.blocks)
        runtime.launch(kernel, blocks, x.stream, *arrays, runtime.address_of(lowest))
        position = int(desk.bring(lowest, x.stream)[0])
        runtime.give_back(desk, x.memory.ordinal)
    return position if position < x.size else -1


def _tolerance(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        msg = f"{name} must be a real number for arrays on a device, got {type(value).__name__}"
        raise TypeError(msg) from None
