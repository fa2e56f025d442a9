"""Compare two arrays on one device: one pass over all pairs, and a few short ones.

The names are those of `_host`, which asks the same of arrays on the host.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numba
import numpy as np

from .._compare.statistics import Criteria, PairStatistics, kernel_arguments, widened
from .._core.arrays import ArrayPair
from .._core.dtypes import working_dtypes
from .._core.libraries import library_of
from .._core.protocols import NDArray
from .._kernels.accumulators import COUNTS, FIRST, LENGTH, LOWEST, RANGE, words_of
from . import runtime
from .arrays import MemoryLayout, Operand, common_shape, memory_layout, operands
from .closeness import start_search
from .kernels import comparison as kernels


def as_pair(actual: Any, expected: Any, names: tuple[str, str]) -> ArrayPair:
    """Return two arrays on one device, or an array and a number, as a pair."""
    a, b = operands(actual, expected, names)
    return ArrayPair(
        a, b, working_dtypes(a.dtype, b.dtype), library_of(actual) or library_of(expected)
    )


def broadcast(pair: ArrayPair) -> ArrayPair:
    """Broadcast two arrays to one shape; raise a ValueError if there is none."""
    shape = common_shape(pair.a, pair.b, ("actual", "expected"))
    return pair._replace(a=pair.a.broadcast(shape), b=pair.b.broadcast(shape))


def all_close(a: Operand, b: Operand, rtol: float, atol: float, equal_nan: bool) -> bool:
    """Return True if all elements are close; stop at the first that is not."""
    return start_search(a, b, rtol, atol, equal_nan).result()


def tally_pair(pair: ArrayPair, rule: Criteria) -> PairStatistics:
    """Measure all pairs of two arrays of one shape in one pass."""
    a, b = pair.a, pair.b
    tally = PairStatistics.empty(a.shape)
    if a.size == 0:
        return tally
    assert pair.dtypes is not None
    held = tuple(numba.from_dtype(widened(dtype)) for dtype in pair.dtypes)
    kinds = a.kind, b.kind
    ndim = len(tally.axes)
    with runtime.on(a.memory.ordinal):
        memory = memory_layout([a, b])
        itemsize = max(numba_type.bitwidth for numba_type in held) // 8
        policy = runtime.policy(itemsize, memory.flat, kernels.TALLIES)
        arguments = *memory.vectors((a, b)), memory.indexing, a.size
        arguments = *arguments, *kernel_arguments(pair, rule)
        lengths = tuple(int(n) for n in tally.axes[:, LENGTH])
        starts = tuple(int(n) for n in tally.axes[:, COUNTS])
        zeros = np.zeros(kernels.AXES + tally.counts.size, np.int64)
        zeros[kernels.FINITE] = a.size  # kernels subtract those that are not
        counts = runtime.to_device(zeros)
        rows = runtime.blocks_of(a.size, policy.tile, policy.blocks)
        width = kernels.N_POSITIONS + RANGE * ndim
        numbers = runtime.empty((rows, kernels.NUMBERS), np.float64)
        ulps = runtime.empty(rows, np.uint64)
        where = runtime.empty((rows, width), np.int64)
        results = numbers, ulps, where
        kernel = kernels.tally(kinds, held, memory.flat, ndim, policy)
        runtime.launch(kernel, rows, a.stream, *arguments, lengths, starts, counts, *results)
        runtime.launch(kernels.conclude(ndim, policy), 1, a.stream, rows, *results)
        parts = [runtime.fetch(x, a.stream) for x in (numbers[0], ulps[:1], where[0], counts)]
        _enter(tally, *parts)
        if tally["mismatches"]:
            tally.record["first"][0] = _first(
                kinds, held, memory, a, arguments, int(tally["mismatches"])
            )
    return tally


def _first(
    kinds: tuple[str, str],
    held: Any,
    memory: MemoryLayout,
    a: Operand,
    arguments: tuple[Any, ...],
    count: int,
) -> NDArray:
    """Return the positions of the first of `count` mismatches, found one by one."""
    mismatches = runtime.to_device(np.full(FIRST, a.size))
    kernel = kernels.next_mismatch(kinds, held, memory.flat)
    for k in range(min(FIRST, count)):
        runtime.launch(kernel, runtime.blocks_of(a.size, 1), a.stream, *arguments, k, mismatches)
    first = runtime.fetch(mismatches, a.stream)
    return np.where(first < a.size, first, -1)


def _enter(
    tally: PairStatistics, numbers: NDArray, ulps: NDArray, where: NDArray, counts: NDArray
) -> None:
    """Store the results of the kernels in a tally."""
    record = tally.record[0]
    record["size"] = prod(int(n) for n in tally.axes[:, LENGTH])
    record["ulp"] = ulps[0]
    for fields, values in (
        (kernels.COUNT_FIELDS, counts),
        (kernels.NUMBER_FIELDS, numbers),
        (kernels.POSITION_FIELDS, where),
    ):
        part = values[: words_of(fields)].view(fields)[0]
        for name in fields.names or ():
            record[name] = part[name]
    tally.counts[:] = counts[kernels.AXES :]
    ranges = where[kernels.N_POSITIONS :].reshape(-1, RANGE)
    touched = ranges[:, LOWEST] >= 0
    tally.axes[touched, :RANGE] = ranges[touched]


def elements(pair: ArrayPair, positions: Sequence[int]) -> ArrayPair:
    """Copy the elements at some positions in C order to the host, as two vectors."""
    with runtime.on(pair.a.memory.ordinal):
        on_device = runtime.to_device(np.array(positions, np.int64))
        a, b = (_gathered(x, on_device) for x in (pair.a, pair.b))
    return pair._replace(a=a, b=b)


def _gathered(x: Operand, positions: Any) -> NDArray:
    memory = memory_layout([x])
    out = runtime.empty(positions.shape, x.memory.dtype)
    kernel = kernels.gather(x.kind, memory.flat)
    runtime.launch(kernel, 1, x.stream, *memory.vectors([x]), memory.indexing, positions, out)
    return runtime.fetch(out, x.stream).view(x.dtype)
