"""How a pass over arrays is run: on views of their memory or through buffers, by whom."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np

from .._core.arrays import common_shape_of
from .._core.dtypes import DType
from .._core.protocols import NDArray
from .._core.threads import OrderedMerge, first_result, get_num_threads

# Handing work to another thread takes some 60 us, and the last task to end is waited for: below
# this, one thread that reads from its caches is as soon done.
SERIAL_BYTES = 8 << 20
# The calling thread looks at this much before anyone else is woken.
_HEAD_BYTES = 1 << 18
# A task is long enough to hide its Python overhead, and short enough to share fairly and stop soon.
_TASK_BYTES = (1 << 20, 8 << 20)
_TASKS_PER_THREAD = 8  # tasks of each thread, so that threads end at nearly the same time

# Elements in a task of a sum, whatever the number of threads.
_FOLD_LENGTH = 1 << 20

_FIRST_BUFFER = 512  # elements of the first block, so that a mismatch at the start ends the pass
_BUFFER = 16384  # elements of a block that NumPy converts at a time

# Called with the position of a block and the block of each array; a result that is not negative
# is a position in the block, and ends the pass.
BlockCall = Callable[..., int]
S = TypeVar("S")


def scan(
    call: BlockCall, arrays: Sequence[NDArray], dtypes: Sequence[DType], order: Any = "K"
) -> int:
    """
    Pass blocks of equally shaped or broadcast arrays to `call`; return where it stopped, or -1.

    Positions count elements in C order if `order` is "C"; "K" takes memory's own order. Blocks may
    be copies: what `call` writes into has to be contiguous, and of its dtype.
    """
    views = _flat_views(arrays, dtypes, order)
    if views is None:
        copies = converted(arrays, dtypes)
        views = copies and [x.ravel() for x in copies]
    if views is not None:
        return scan_views(call, views)
    return _scan_buffers(call, arrays, dtypes, order)[0]


def fill(call: BlockCall, arrays: Sequence[NDArray], dtypes: Sequence[DType]) -> NDArray:
    """Pass blocks to `call` with a block of a boolean result, and return that result."""
    views = _flat_views(arrays, dtypes, "K")
    if views is not None:
        out = np.empty_like(arrays[0], dtype=bool)
        scan_views(call, [*views, _flat(out)])
        return out
    copies = converted(arrays, dtypes) if max(x.ndim for x in arrays) < 2 else None
    if copies is not None:  # the result has one possible order
        out = np.empty(copies[0].shape, dtype=bool)
        scan_views(call, [*(x.ravel() for x in copies), out.ravel()])
        return out
    result: NDArray = _scan_buffers(call, [*arrays, None], [*dtypes, np.dtype(bool)], "K")[1]
    return result


def fold(
    call: Callable[..., Any],
    begin: Callable[[S | None], S],
    merge: Callable[[S, S], S],
    arrays: Sequence[NDArray],
    dtypes: Sequence[DType],
) -> S:
    """
    Sum up a pass in C order: ``call(state, position, *blocks)`` adds blocks to a state.

    Each task adds to a state of its own, which `begin` makes, knowing the sum of some of the tasks
    before it. Tasks are equally long for any number of threads, and their states are merged in
    order, so that rounding does not depend on that number either.
    """
    views = _flat_views(arrays, dtypes, "C")
    if views is None:
        whole = begin(None)

        def add(start: int, *blocks: NDArray) -> int:
            call(whole, start, *blocks)
            return -1

        _scan_buffers(add, arrays, dtypes, "C")
        return whole

    tasks = -(-views[0].size // _FOLD_LENGTH)
    if tasks <= 1:
        whole = begin(None)
        if tasks:
            call(whole, 0, *views)
        return whole

    parts = OrderedMerge(merge)

    def work(task: int) -> int:
        state = begin(parts.total)
        start = task * _FOLD_LENGTH
        call(state, start, *(x[start : start + _FOLD_LENGTH] for x in views))
        parts.add(task, state)
        return -1

    threads = min(get_num_threads(), sum(x.nbytes for x in views) // SERIAL_BYTES + 1)
    first_result(work, tasks, threads)
    assert parts.total is not None
    return parts.total


def _flat(x: NDArray) -> NDArray:
    return (x if x.flags.c_contiguous else x.T).reshape(-1)


def _flat_views(
    arrays: Sequence[NDArray], dtypes: Sequence[DType], order: Any
) -> list[NDArray] | None:
    """View each array as a contiguous vector, all in one order, if memory allows."""
    shape = arrays[0].shape
    c_order, f_order = True, order == "K"
    for x, dtype in zip(arrays, dtypes, strict=True):
        if x.shape != shape or x.dtype != dtype:
            return None
        flags = x.flags
        c_order &= flags.c_contiguous
        f_order &= flags.f_contiguous
        if not (c_order or f_order):
            return None
    return [x.ravel() if c_order else x.T.ravel() for x in arrays]


def converted(arrays: Sequence[NDArray], dtypes: Sequence[DType]) -> list[NDArray] | None:
    """Copy small arrays to their dtypes and common shape, in C order; None if they are large.

    One copy is faster than an iterator, which takes longer to set up.
    """
    shape = common_shape_of(arrays)
    if prod(shape) > _BUFFER:
        return None
    copies = [np.empty(shape, dtype) for dtype in dtypes]
    with np.errstate(all="ignore"):  # conversions raise no flag in buffers either
        for copy, x in zip(copies, arrays, strict=True):
            copy[...] = x
    return copies


def scan_views(call: BlockCall, views: Sequence[NDArray]) -> int:
    """Pass blocks of equally long vectors to `call`, on all threads if that pays."""
    n = views[0].size
    nbytes = sum([x.nbytes for x in views])
    if nbytes <= SERIAL_BYTES:
        return call(0, *views)

    def part(start: int, stop: int) -> int:
        position = call(start, *(x[start:stop] for x in views))
        return start + position if position >= 0 else -1

    head = n * _HEAD_BYTES // nbytes
    if (position := part(0, head)) >= 0:
        return position
    threads = min(get_num_threads(), nbytes // SERIAL_BYTES + 1)
    shortest, longest = _TASK_BYTES
    task_bytes = min(max(shortest, nbytes // (threads * _TASKS_PER_THREAD)), longest)
    step = max(1, n * task_bytes // nbytes)
    tasks = -(-(n - head) // step)

    def work(task: int) -> int:
        start = head + task * step
        return part(start, min(start + step, n))

    return first_result(work, tasks, threads)


def _scan_buffers(
    call: BlockCall, arrays: Sequence[Any], dtypes: Sequence[DType], order: Any
) -> tuple[int, Any]:
    """Let NumPy convert, gather and broadcast into buffers that fit the cache."""
    usable = ["contig", "aligned", "nbo"]
    op_flags: Any = [
        [*usable, *(("writeonly", "allocate") if x is None else ("readonly",))] for x in arrays
    ]
    iterator = np.nditer(
        arrays,
        flags=["external_loop", "buffered", "delay_bufalloc", "ranged", "zerosize_ok"],
        op_flags=op_flags,
        op_dtypes=dtypes,
        order=order,
        casting="same_kind",
        buffersize=_BUFFER,
    )
    with iterator:
        size = iterator.itersize
        first = min(size, _FIRST_BUFFER)
        for start, stop in ((0, first), (first, size)):
            if start == stop:
                continue
            iterator.iterrange = (start, stop)  # type: ignore[misc]  # NumPy lets it be set
            for block in iterator:
                # NumPy does not wrap a single operand in a tuple
                blocks = block if isinstance(block, tuple) else (block,)
                position = call(start, *blocks)
                if position >= 0:
                    return start + position, None
                start += blocks[0].size
        return -1, iterator.operands[-1]
