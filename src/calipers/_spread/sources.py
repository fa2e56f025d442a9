"""What blocks are read from: an array in memory, a mapped file, an array of a store."""

import mmap
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from .._arguments import is_weak
from .._arrays import as_block, require_whole, strengthen
from .._protocols import NDArray, Store
from ..interop.records import StoredField
from . import STORES
from .regions import Region, Shape, touched

_PAGE = 4096
_PAGEOUT = 21  # of Linux's madvise: drop what can be read again, and keep the rest


class Source:
    """An array that is read region by region."""

    shape: Shape
    dtype: np.dtype[Any]
    chunks: Shape | None = None

    number: Any = None
    """The number that it is, if it is Python's."""

    order: tuple[int, ...] | None = None
    """The axes from the one along which elements are farthest apart to that of neighbours."""

    run: Shape | None = None
    """What is better read as a whole, but need not be."""

    reach: int | None = None
    """The bytes of memory that reading an element takes, if not its own."""

    fills = False
    """Whether `read` copies into the memory that it is given."""

    def beside(self, block: Shape) -> int:
        """Return the bytes that reading a block may take beside it."""
        if self.chunks is None:
            return 0
        # Each chunk that it touches, as it is kept and unpacked.
        block_shape = block[len(block) - len(self.chunks) :]
        return (
            2 * touched(block_shape, self.chunks, self.shape) * (self.reach or self.dtype.itemsize)
        )

    def read(self, region: Region, memory: NDArray | None = None) -> Any:
        """Return a region; in `memory`, a vector of the array's dtype, if it is of use."""
        raise NotImplementedError

    def finish(self) -> None:
        """Raise an error if what was read is not what was there at the start."""

    def close(self) -> None:
        """Let go of what was opened for reading."""


def source_of(x: Any, name: str) -> Source:
    """Return how an array is read; the name is for errors."""
    for store in STORES:
        if store.owns(x):
            return Stored(store, x, name)
    if type(x) is np.memmap:
        return Mapped(x, name)
    return Held(x, name)


def dtypes_of(parts: Sequence[Any]) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes that arrays are compared in: a number takes that of the array it meets."""
    met = next((part.dtype for part in parts if part.number is None), None)
    return tuple(
        part.dtype if part.number is None or met is None else strengthen(part.number, met).dtype
        for part in parts
    )


class Held(Source):
    """An array in memory, of which regions are views; or a number, which is its own part."""

    def __init__(self, x: Any, name: str) -> None:
        self.number = x if is_weak(x) else None
        self._array = as_block(x, name)
        self.shape, self.dtype = self._array.shape, self._array.dtype

    def read(self, region: Region, memory: NDArray | None = None) -> Any:
        # A number takes the dtype of what it meets, an array of no axes does not.
        return self._array[region] if self.number is None else self.number


class Stored(Source):
    """An array of a store."""

    def __init__(self, store: Store, x: Any, name: str) -> None:
        self._store, self._x = store, x
        self._name = f"{name}, the {store.name(x)},"
        try:
            if x.shape is None:
                msg = "it is a null dataset, which has no elements"
                raise ValueError(msg)
            self._state = store.state(x)
            self.shape, self.dtype, self.chunks = tuple(x.shape), np.dtype(x.dtype), store.chunks(x)
            if isinstance(x, StoredField):  # whole records are read for one of their fields
                self.reach = x.records.dtype.itemsize
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


class Mapped(Source):
    """
    A memory map, read through its file.

    So no page of it stays in memory, and a file that was cut is an error: a touch of what is
    mapped beyond the end would be the end of the process. A private map, one whose file is not to
    be found, and small steps through a file are copied from the map, and its pages are let go.
    """

    fills = True

    def __init__(self, x: Any, name: str) -> None:
        self._map, self._name = x, name
        self._array = x.view(np.ndarray)
        self.shape, self.dtype = x.shape, x.dtype
        steps = [abs(step) for step in x.strides]
        # An axis of one element has no order.
        self._axes = sorted(range(x.ndim), key=lambda k: (x.shape[k] > 1, -steps[k], k))
        self.order = tuple(self._axes)
        self._step = x.strides[self._axes[-1]] if x.size > 1 else x.itemsize
        in_runs = self._step == x.itemsize
        if in_runs and x.ndim:
            self.run = tuple(
                _PAGE // x.itemsize if k == self._axes[-1] else 1 for k in range(x.ndim)
            )
        self._place = None
        if in_runs or abs(self._step) >= _PAGE:
            self._place = _place_in_file(self._array)
        if self._place is None:
            self.reach = x.itemsize + abs(self._step)
        self._opening = Lock()
        self._file: int | None = None

    def read(self, region: Region, memory: NDArray | None = None) -> NDArray:
        lengths = tuple(region[k].stop - region[k].start for k in self._axes)
        size = prod(lengths)
        memory = np.empty(size, self.dtype) if memory is None else memory[:size]
        block = memory.reshape(lengths)
        turned = block.transpose(np.argsort(self._axes))
        if self._place is None:
            require_whole(self._map)
            turned[...] = self._array[region]
            self._let_go()
            return turned
        path, offset = self._place
        with self._opening:
            if self._file is None:
                self._file = os.open(path, os.O_RDONLY)
        start = sum(part.start * step for part, step in zip(region, self._map.strides, strict=True))
        self._fill(self._file, offset + start, block)
        return turned

    def _fill(self, file: int, start: int, block: NDArray) -> None:
        """Read runs that are contiguous in the file."""
        if sys.platform == "win32":
            raise NotImplementedError  # where a map lies in its file is known on Linux alone
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
                    raise self._cut(os.fstat(file).st_size)
                left, position = left[count:], position + count

    def _cut(self, size: int) -> OSError:
        assert self._place is not None
        path, offset = self._place
        _, last = np.lib.array_utils.byte_bounds(self._array)
        end = offset + last - self._array.__array_interface__["data"][0]
        msg = (
            f"{self._name} is mapped from {path} up to byte {end}, but the file ends at byte "
            f"{size}: it was truncated; write it again"
        )
        return OSError(msg)

    def _let_go(self) -> None:
        held = self._map._mmap
        if held is not None and sys.platform != "win32":
            # What was written to a private map is nowhere else.
            with suppress(OSError):
                held.madvise(_PAGEOUT if self._map.mode == "c" else mmap.MADV_DONTNEED)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _place_in_file(x: NDArray) -> tuple[str, int] | None:
    """
    Return the file that an array's memory is shared with, and where in the file it begins.

    Linux knows both of any view; a map knows its name and offset of the time it was made.
    """
    address = x.__array_interface__["data"][0]
    try:
        with open("/proc/self/maps", encoding="utf-8") as lines:
            for line in lines:
                span, access, offset, _, _, *path = line.rstrip("\n").split(maxsplit=5)
                first, last = (int(part, 16) for part in span.split("-"))
                if first <= address < last:
                    shared = access[3] == "s" and path and os.path.isfile(path[0])
                    return (path[0], int(offset, 16) + address - first) if shared else None
    except (OSError, ValueError):
        pass
    return None


def _text(region: Region) -> str:
    return f"[{', '.join(f'{part.start}:{part.stop}' for part in region)}]"
