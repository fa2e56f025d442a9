"""Arrays of known shapes, compared block by block: files and chunked stores."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from threading import local
from typing import Any

import numpy as np

from .._protocols import NDArray, Result
from .._shapes import broadcast_shape
from .._threads import InOrder, first_found, get_num_threads
from .regions import Grid, Shape, block_shape, own_region
from .sources import Source, dtypes_of, source_of

# Long enough to hide the cost of a call, short enough for a block to stay in a core's caches.
_BLOCK_BYTES = 4 << 20


class Blocks:
    """One or two arrays as blocks in C order: each thread reads one, and looks at it."""

    counted = True

    def __init__(self, memory_limit: int, **arrays: Any) -> None:
        self._limit, self._names = memory_limit, tuple(arrays)
        self._sources = tuple(source_of(x, name) for name, x in arrays.items())

    def shapes(self) -> tuple[Shape, ...]:
        return tuple(source.shape for source in self._sources)

    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        return dtypes_of(self._sources)

    def every(self, test: Callable[..., bool]) -> bool:
        with self._reading() as (grid, threads, read):
            # While a thread reads, others compare.
            return first_found(lambda i: -1 if test(*read(i)) else 0, len(grid), threads) < 0

    def reduced(
        self, part: Callable[..., Result], merge: Callable[[Result, Result], Result]
    ) -> Result | None:
        parts = InOrder(merge)

        def work(number: int) -> int:
            parts.add(number, part(grid.corner(number), *read(number)))
            return -1

        with self._reading() as (grid, threads, read):
            first_found(work, len(grid), threads)
        return parts.total

    @contextmanager
    def _reading(self) -> Iterator[tuple[Grid, int, Callable[[int], list[Any]]]]:
        """Give the blocks, how many threads have memory for one, and how block i is read."""
        stands = [np.broadcast_to(False, shape) for shape in self.shapes()]
        whole = broadcast_shape(stands, self._names)
        grid, threads = self._plan(whole)
        spare = local()

        def read(number: int) -> list[Any]:
            region = grid.region(number)
            if not hasattr(spare, "memory"):
                spare.memory = [_memory(source, grid) for source in self._sources]
            return [
                source.read(own_region(source.shape, region), memory)
                for source, memory in zip(self._sources, spare.memory, strict=True)
            ]

        try:
            yield grid, threads, read
            for source in self._sources:
                source.finish()
        finally:
            for source in self._sources:
                source.close()

    def _plan(self, whole: Shape) -> tuple[Grid, int]:
        """Return blocks that fit the memory, and how many at a time do."""
        units = [_on_axes(whole, source.chunks, source) for source in self._sources]
        runs = [_on_axes(whole, source.run, source) for source in self._sources]
        orders = [x.order for x in self._sources if x.order and len(x.order) == len(whole)]
        itemsize = max(1, sum(x.reach or x.dtype.itemsize for x in self._sources))

        def needed(block: Shape) -> int:
            """Arrays are read one after the other."""
            return prod(block) * itemsize + max(source.beside(block) for source in self._sources)

        def fits(block: Shape) -> bool:
            return needed(block) <= self._limit

        enough = min(_BLOCK_BYTES, self._limit // 8) // itemsize
        order = orders[0] if orders else None
        block = block_shape(whole, units, runs, enough, fits, order)
        if needed(block) > self._limit:
            raise self._beyond(needed(block))
        return Grid(whole, block), min(get_num_threads(), self._limit // needed(block))

    def _beyond(self, needed: int) -> ValueError:
        chunks = " and ".join(
            f"{name} in chunks of {source.chunks}"
            for name, source in zip(self._names, self._sources, strict=True)
            if source.chunks
        )
        msg = (
            f"reading {chunks or 'an element'} takes {needed} bytes, more than "
            f"memory_limit={self._limit}: pass memory_limit={needed}, or smaller chunks"
        )
        return ValueError(msg)


def _memory(source: Source, grid: Grid) -> NDArray | None:
    return np.empty(prod(grid.block), source.dtype) if source.fills else None


def _on_axes(whole: Shape, own: Shape | None, source: Source) -> Shape:
    """Return a shape of a source's on the axes of the broadcast shape."""
    lengths = own or (1,) * len(source.shape)
    return (1,) * (len(whole) - len(lengths)) + lengths
