"""Arrays in memory, memory maps and stores that are read region by region (`Source`), and `Blocks`.

`Blocks` is the `ChunkedPair` of such arrays.
"""

import mmap
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from threading import Lock, local
from typing import Any

import numpy as np

from ..._core.arguments import is_weak
from ..._core.arrays import as_block, broadcast_shape, require_whole, strengthen
from ..._core.protocols import NDArray, Result, Store
from ..._core.threads import OrderedMerge, first_result, get_num_threads
from ...interop.zarr_h5py import StoredField
from . import STORES, Grid, Region, Shape, block_shape, max_chunk_elements, operand_region

# The size of a page of memory in bytes, the smallest part of a map that is read.
_PAGE_BYTES = 4096
# The advice MADV_PAGEOUT of Linux's madvise, which Python lacks: write modified pages to swap, and
# drop all others.
_MADV_PAGEOUT = 21


class Source:
    """An array that is read region by region."""

    shape: Shape
    dtype: np.dtype[Any]
    chunks: Shape | None = None

    number: Any = None
    """The value, if it is a Python number."""

    order: tuple[int, ...] | None = None
    """The axes in the order of decreasing strides."""

    run: Shape | None = None
    """The shape that is faster to read as a whole, if any."""

    element_bytes: int | None = None
    """The bytes that are read for each element, if more than its size."""

    fills = False
    """Whether `read` copies into its argument `memory`."""

    def overhead_bytes(self, block: Shape) -> int:
        """Return the bytes of memory that reading a block takes in addition to the block."""
        if self.chunks is None:
            return 0
        # Each overlapping chunk is in memory twice: compressed (at most its size) and decompressed.
        block_shape = block[len(block) - len(self.chunks) :]
        return (
            2
            * max_chunk_elements(block_shape, self.chunks, self.shape)
            * (self.element_bytes or self.dtype.itemsize)
        )

    def read(self, region: Region, memory: NDArray | None = None) -> Any:
        """Return a region, in the vector `memory` of the array's dtype if the source `fills` it."""
        raise NotImplementedError

    def finish(self) -> None:
        """Raise OSError if the array has changed while it was read."""

    def close(self) -> None:
        """Close the files that were opened for reading."""


def source_of(x: Any, name: str) -> Source:
    """Return the source of an array; `name` is used in errors."""
    for store in STORES:
        if store.owns(x):
            return StoreSource(store, x, name)
    if type(x) is np.memmap:
        return MemmapSource(x, name)
    return ArraySource(x, name)


def dtypes_of(parts: Sequence[Any]) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes of arrays; a Python number takes that of the other array (NEP 50)."""
    met = next((part.dtype for part in parts if part.number is None), None)
    return tuple(
        part.dtype if part.number is None or met is None else strengthen(part.number, met).dtype
        for part in parts
    )


class ArraySource(Source):
    """An array in memory, whose regions are views, or a number."""

    def __init__(self, x: Any, name: str) -> None:
        self.number = x if is_weak(x) else None
        self._array = as_block(x, name)
        self.shape, self.dtype = self._array.shape, self._array.dtype

    def read(self, region: Region, memory: NDArray | None = None) -> Any:
        # A Python number is weak (NEP 50), an array of no axes is not.
        return self._array[region] if self.number is None else self.number


class StoreSource(Source):
    """An array of a store, such as zarr or h5py."""

    def __init__(self, store: Store, x: Any, name: str) -> None:
        self._store, self._x = store, x
        self._name = f"{name}, the {store.name(x)},"
        try:
            if x.shape is None:
                msg = "it is a null dataset, which has no elements"
                raise ValueError(msg)
            self._state = store.state(x)
            self.shape, self.dtype, self.chunks = tuple(x.shape), np.dtype(x.dtype), store.chunks(x)
            if isinstance(x, StoredField):  # whole records are read for one field
                self.element_bytes = x.records.dtype.itemsize
        except Exception as error:
            raise self._unreadable("not be opened", error) from error

    def read(self, region: Region, memory: NDArray | None = None) -> NDArray:
        try:
            block = self._store.read(self._x, region)
        except Exception as error:
            raise self._unreadable(f"not be read at {_text(region)}", error) from error
        if block.shape != tuple(part.stop - part.start for part in region):
            problem = f"returned shape {block.shape} for {_text(region)}"
            msg = f"{self._name} {problem}: it was truncated while it was read; compare it again"
            raise OSError(msg)
        return block

    def finish(self) -> None:
        try:
            now = self._store.state(self._x)
        except Exception as error:
            raise self._unreadable("not be found again", error) from error
        if now != self._state:
            msg = (
                f"{self._name} changed while it was read, from {self._state} to {now} (shape and "
                f"number of chunks): compare it when nothing writes to it"
            )
            raise OSError(msg)

    def _unreadable(self, what: str, error: Exception) -> OSError:
        reason = str(error) or type(error).__name__
        msg = f"{self._name} could {what}: {reason} (it must be complete, open, and have a shape)"
        return OSError(msg)


class MemmapSource(Source):
    """
    A memory map, read from its file.

    So its pages do not stay in memory, and a truncated file raises OSError, whereas an access to a
    map beyond the end of the file would kill the process. Private maps, maps whose file is unknown,
    and views with small strides are copied from the map, whose pages are then dropped.
    """

    fills = True

    def __init__(self, x: Any, name: str) -> None:
        self._map, self._name = x, name
        self._array = x.view(np.ndarray)
        self.shape, self.dtype = x.shape, x.dtype
        steps = [abs(step) for step in x.strides]
        # Axes of one element come first: their strides have no meaning.
        self._axes = sorted(range(x.ndim), key=lambda k: (x.shape[k] > 1, -steps[k], k))
        self.order = tuple(self._axes)
        self._step = x.strides[self._axes[-1]] if x.size > 1 else x.itemsize
        in_runs = self._step == x.itemsize
        if in_runs and x.ndim:
            self.run = tuple(
                _PAGE_BYTES // x.itemsize if k == self._axes[-1] else 1 for k in range(x.ndim)
            )
        self._file_location = None
        if in_runs or abs(self._step) >= _PAGE_BYTES:
            self._file_location = _locate_in_file(self._array)
        if self._file_location is None:
            self.element_bytes = x.itemsize + abs(self._step)
        self._opening = Lock()
        self._file: int | None = None

    def read(self, region: Region, memory: NDArray | None = None) -> NDArray:
        lengths = tuple(region[k].stop - region[k].start for k in self._axes)
        size = prod(lengths)
        memory = np.empty(size, self.dtype) if memory is None else memory[:size]
        block = memory.reshape(lengths)
        result = block.transpose(np.argsort(self._axes))
        if self._file_location is None:
            require_whole(self._map)
            result[...] = self._array[region]
            self._drop_pages()
            return result
        path, offset = self._file_location
        with self._opening:
            if self._file is None:
                self._file = os.open(path, os.O_RDONLY)
        start = sum(part.start * step for part, step in zip(region, self._map.strides, strict=True))
        self._fill(self._file, offset + start, block)
        return result

    def _fill(self, file: int, start: int, block: NDArray) -> None:
        """Fill a block from a file, one contiguous run at a time."""
        if sys.platform == "win32":
            raise NotImplementedError  # the offset of a map in its file is known on Linux only
        steps = [self._map.strides[k] for k in self._axes]
        length, outer = block.itemsize, block.ndim
        while outer and (block.shape[outer - 1] == 1 or steps[outer - 1] == length):
            outer -= 1
            length *= block.shape[outer]
        for index in np.ndindex(block.shape[:outer]):
            left = block[(*index, ...)].reshape(-1).view(np.uint8).data
            position = start + sum(i * step for i, step in zip(index, steps, strict=False))
            while left:
                count = os.preadv(file, [left], position)
                if count == 0:
                    raise self._truncated(os.fstat(file).st_size)
                left, position = left[count:], position + count

    def _truncated(self, size: int) -> OSError:
        assert self._file_location is not None
        path, offset = self._file_location
        _, last = np.lib.array_utils.byte_bounds(self._array)
        end = offset + last - self._array.__array_interface__["data"][0]
        msg = (
            f"{self._name} is mapped from {path} up to byte {end}, but the file ends at byte "
            f"{size}: it was truncated; write it again"
        )
        return OSError(msg)

    def _drop_pages(self) -> None:
        held = self._map._mmap
        if held is not None and sys.platform != "win32":
            # MADV_DONTNEED would lose what was written to a private map.
            with suppress(OSError):
                held.madvise(_MADV_PAGEOUT if self._map.mode == "c" else mmap.MADV_DONTNEED)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _locate_in_file(x: NDArray) -> tuple[str, int] | None:
    """
    Return the path of the file that an array is mapped from, and its offset there in bytes.

    They are read from Linux's /proc, since the attributes of a memmap do not follow views and
    renamed files.
    """
    address = x.__array_interface__["data"][0]
    try:
        with open("/proc/self/maps", encoding="utf-8") as mappings:
            for mapping in mappings:
                span, access, offset, _, _, *path = mapping.rstrip("\n").split(maxsplit=5)
                first, last = (int(part, 16) for part in span.split("-"))
                if first <= address < last:
                    shared = access[3] == "s" and path and os.path.isfile(path[0])
                    return (path[0], int(offset, 16) + address - first) if shared else None
    except (OSError, ValueError):
        pass
    return None


def _text(region: Region) -> str:
    return f"[{', '.join(f'{part.start}:{part.stop}' for part in region)}]"


# The size of a block in bytes, of all arrays: large enough to hide the cost of a call, and small
# enough for the caches of a core.
_BLOCK_BYTES = 4 << 20


class Blocks:
    """One or two arrays in blocks, in C order; each thread reads a block and compares it."""

    has_shapes = True

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
            return first_result(lambda i: -1 if test(*read(i)) else 0, len(grid), threads) < 0

    def reduce(
        self, part: Callable[..., Result], merge: Callable[[Result, Result], Result]
    ) -> Result | None:
        parts = OrderedMerge(merge)

        def work(number: int) -> int:
            parts.add(number, part(grid.corner(number), *read(number)))
            return -1

        with self._reading() as (grid, threads, read):
            first_result(work, len(grid), threads)
        return parts.total

    @contextmanager
    def _reading(self) -> Iterator[tuple[Grid, int, Callable[[int], list[Any]]]]:
        """Yield the blocks, the number of threads, and a function that reads block i."""
        stand_ins = [np.broadcast_to(False, shape) for shape in self.shapes()]
        whole = broadcast_shape(stand_ins, self._names)
        grid, threads = self._plan(whole)
        spare = local()

        def read(number: int) -> list[Any]:
            region = grid.region(number)
            if not hasattr(spare, "memory"):
                spare.memory = [_memory(source, grid) for source in self._sources]
            return [
                source.read(operand_region(source.shape, region), memory)
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
        """Return blocks that fit into the memory limit, and how many fit at the same time."""
        units = [_on_axes(whole, source.chunks, source) for source in self._sources]
        runs = [_on_axes(whole, source.run, source) for source in self._sources]
        orders = [x.order for x in self._sources if x.order and len(x.order) == len(whole)]
        itemsize = max(1, sum(x.element_bytes or x.dtype.itemsize for x in self._sources))

        def needed(block: Shape) -> int:
            """Return the bytes to read a block; the arrays are read one after the other."""
            return prod(block) * itemsize + max(
                source.overhead_bytes(block) for source in self._sources
            )

        def fits(block: Shape) -> bool:
            return needed(block) <= self._limit

        enough = min(_BLOCK_BYTES, self._limit // 8) // itemsize
        order = orders[0] if orders else None
        block = block_shape(whole, units, runs, enough, fits, order)
        if needed(block) > self._limit:
            raise self._over_limit(needed(block))
        return Grid(whole, block), min(get_num_threads(), self._limit // needed(block))

    def _over_limit(self, needed: int) -> ValueError:
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


def _on_axes(whole: Shape, source_shape: Shape | None, source: Source) -> Shape:
    """Return a shape of a source with leading ones, on the axes of the broadcast shape."""
    lengths = source_shape or (1,) * len(source.shape)
    return (1,) * (len(whole) - len(lengths)) + lengths
