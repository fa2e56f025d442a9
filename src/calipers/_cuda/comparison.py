"""The comparison of two arrays on one device: what is asked of them, in one pass and a few short.

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
from . import target
from .arrays import Operand, Places, common_shape, operands, places_of
from .closeness import ask
from .kernels import comparison as kernels


def as_pair(actual: Any, expected: Any, names: tuple[str, str]) -> ArrayPair:
    """Find two arrays on one device, one of which may be a number."""
    a, b = operands(actual, expected, names)
    return ArrayPair(
        a, b, working_dtypes(a.dtype, b.dtype), library_of(actual) or library_of(expected)
    )


def broadcast(pair: ArrayPair) -> ArrayPair:
    """Bring two arrays to one shape; a ValueError tells that there is none."""
    shape = common_shape(pair.a, pair.b, ("actual", "expected"))
    return pair._replace(a=pair.a.broadcast(shape), b=pair.b.broadcast(shape))


def all_close(a: Operand, b: Operand, rtol: float, atol: float, equal_nan: bool) -> bool:
    """Give the verdict on all elements, as early as it can be had."""
    return ask(a, b, rtol, atol, equal_nan).result()


def tally_pair(pair: ArrayPair, rule: Criteria) -> PairStatistics:
    """Pass once over two arrays of one shape."""
    a, b = pair.a, pair.b
    tally = PairStatistics.empty(a.shape)
    if a.size == 0:
        return tally
    assert pair.dtypes is not None
    held = tuple(numba.from_dtype(widened(dtype)) for dtype in pair.dtypes)
    kinds = a.kind, b.kind
    ndim = len(tally.axes)
    with target.on(a.memory.ordinal):
        places = places_of([a, b])
        itemsize = max(numba_type.bitwidth for numba_type in held) // 8
        layout = target.policy(itemsize, places.flat, kernels.TALLIES)
        arguments = *places.vectors((a, b)), places.layout, a.size
        arguments = *arguments, *kernel_arguments(pair, rule)
        lengths = tuple(int(n) for n in tally.axes[:, LENGTH])
        starts = tuple(int(n) for n in tally.axes[:, COUNTS])
        zeros = np.zeros(kernels.AXES + tally.counts.size, np.int64)
        zeros[kernels.FINITE] = a.size  # kernels subtract those that are not
        counts = target.to_device(zeros)
        rows = target.blocks_of(a.size, layout.tile, layout.blocks)
        width = kernels.PLACES + RANGE * ndim
        numbers = target.empty((rows, kernels.NUMBERS), np.float64)
        ulps = target.empty(rows, np.uint64)
        where = target.empty((rows, width), np.int64)
        found = numbers, ulps, where
        kernel = kernels.tally(kinds, held, places.flat, ndim, layout)
        target.launch(kernel, rows, a.stream, *arguments, lengths, starts, counts, *found)
        target.launch(kernels.conclude(ndim, layout), 1, a.stream, rows, *found)
        parts = [target.fetch(x, a.stream) for x in (numbers[0], ulps[:1], where[0], counts)]
        _enter(tally, *parts)
        if tally["mismatches"]:
            tally.record["first"][0] = _first(
                kinds, held, places, a, arguments, int(tally["mismatches"])
            )
    return tally


def _first(
    kinds: tuple[str, str],
    held: Any,
    places: Places,
    a: Operand,
    arguments: tuple[Any, ...],
    count: int,
) -> NDArray:
    """Find the first of `count` mismatches, one after the other."""
    found = target.to_device(np.full(FIRST, a.size))
    kernel = kernels.next_mismatch(kinds, held, places.flat)
    for k in range(min(FIRST, count)):
        target.launch(kernel, target.blocks_of(a.size, 1), a.stream, *arguments, k, found)
    first = target.fetch(found, a.stream)
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
    ranges = where[kernels.PLACES :].reshape(-1, RANGE)
    touched = ranges[:, LOWEST] >= 0
    tally.axes[touched, :RANGE] = ranges[touched]


def elements(pair: ArrayPair, positions: Sequence[int]) -> list[ArrayPair]:
    """Copy the pairs at some positions in C order to the host, as arrays of one element each."""
    if not positions:
        return []
    with target.on(pair.a.memory.ordinal):
        given = target.to_device(np.array(positions, np.int64))
        columns = [_gathered(x, given) for x in (pair.a, pair.b)]
    return [
        pair._replace(a=columns[0][k : k + 1], b=columns[1][k : k + 1])
        for k in range(len(positions))
    ]


def _gathered(x: Operand, positions: Any) -> NDArray:
    places = places_of([x])
    out = target.empty(positions.shape, x.memory.dtype)
    kernel = kernels.gather(x.kind, places.flat)
    target.launch(kernel, 1, x.stream, *places.vectors([x]), places.layout, positions, out)
    return target.fetch(out, x.stream).view(x.dtype)
