"""What blocks are read from: an array in memory, a mapped file, an array of a store."""

import mmap
import os
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from .._arrays import as_array, is_weak
from .._protocols import NDArray, Store
from . import STORES
from .regions import Region, Shape, touched


class Source:
    """An array that is read region by region."""

    shape: Shape
    dtype: np.dtype[Any]
    chunks: Shape | None = None

    def beside(self, block: Shape) -> int:
        """Return the bytes that reading a block may take beside it."""
        if self.chunks is None:
            return 0
        # Each chunk that it touches, as it is kept and unpacked.
        return (
            2 * touched(block[len(block) - len(self.chunks) :], self.chunks) * self.dtype.itemsize
        )

    fills = False
    """Whether `read` copies into the memory that it is given."""

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


class Held(Source):
    """An array in memory, of which regions are views; or a number, which is its own part."""

    def __init__(self, x: Any, name: str) -> None:
        self._number = x if is_weak(x) else None
        self._array = as_array(x, name)
        self.shape, self.dtype = self._array.shape, self._array.dtype

    def read(self, region: Region, memory: NDArray | None = None) -> Any:
        # A number takes the dtype of what it meets, an array of no axes does not.
        return self._array[region] if self._number is None else self._number


class Stored(Source):
    """An array of a store."""

    def __init__(self, store: Store, x: Any, name: str) -> None:
        self._store, self._x = store, x
        self._name = f"{name}, the {store.name(x)},"
        try:
            self._state = store.state(x)
            self.shape, self.dtype, self.chunks = tuple(x.shape), np.dtype(x.dtype), store.chunks(x)
        except Exception as error:
            raise self._unreadable("not be opened", error) from error

    def read(self, region: Region, memory: NDArray | None = None) -> NDArray:
        try:
            block = self._store.read(self._x, region)
        except Exception as error:
            raise self._unreadable(f"not be read at {_text(region)}", error) from error
        if block.shape != tuple(part.stop - part.start for part in region):
            found = f"gave {block.shape} at {_text(region)}"
            msg = f"{self._name} {found}: it was cut while it was read; compare it anew"
            raise OSError(msg)
        return block

    def finish(self) -> None:
        now = self._store.state(self._x)
        if now != self._state:
            msg = (
                f"{self._name} changed while it was read, from {self._state} to {now} (shape, and "
                f"chunks that are there): compare it when nobody writes to it"
            )
            raise OSError(msg)

    def _unreadable(self, what: str, error: Exception) -> OSError:
        reason = str(error) or type(error).__name__
        msg = f"{self._name} could {what}: {reason}; is it whole, and open?"
        return OSError(msg)


class Mapped(Source):
    """
    A memory map, read through its file.

    So no page of it stays in memory, and a file that was cut is an error: a touch of what is
    mapped beyond the end would be the end of the process. A private map, or one whose file is not
    to be found, is copied from, and its pages are let go.
    """

    fills = True

    def __init__(self, x: Any, name: str) -> None:
        self._map, self._name = x, name
        self._array = x.view(np.ndarray)
        self.shape, self.dtype = x.shape, x.dtype
        self._place = _place_in_file(self._array) if self._array.flags.c_contiguous else None
        self._opening = Lock()
        self._file: int | None = None

    def read(self, region: Region, memory: NDArray | None = None) -> NDArray:
        lengths = tuple(part.stop - part.start for part in region)
        size = prod(lengths)
        memory = np.empty(size, self.dtype) if memory is None else memory[:size]
        block = memory.reshape(lengths)
        if self._place is None:
            block[...] = self._array[region]
            self._let_go()
            return block
        path, offset = self._place
        with self._opening:
            if self._file is None:
                self._file = os.open(path, os.O_RDONLY)
        self._fill(self._file, offset, block, region)
        return block

    def _fill(self, file: int, offset: int, block: NDArray, region: Region) -> None:
        """Read runs that are contiguous in the file."""
        outer = len(region)
        while outer and block.shape[outer - 1] == self.shape[outer - 1]:
            outer -= 1
        outer = max(0, outer - 1)
        steps = self._array.strides
        start = offset + sum(part.start * step for part, step in zip(region, steps, strict=True))
        for index in np.ndindex(block.shape[:outer]):
            left = block[index].reshape(-1).view(np.uint8).data
            place = start + sum(i * step for i, step in zip(index, steps, strict=False))
            while left:
                count = os.preadv(file, [left], place)
                if count == 0:
                    raise self._cut(os.fstat(file).st_size)
                left, place = left[count:], place + count

    def _cut(self, size: int) -> OSError:
        assert self._place is not None
        path, offset = self._place
        end = offset + self._array.nbytes
        msg = (
            f"{self._name} is mapped from {path} up to byte {end}, but the file ends at byte "
            f"{size}: it was cut; write it anew"
        )
        return OSError(msg)

    def _let_go(self) -> None:
        held = self._map._mmap
        if self._map.mode != "c" and held is not None and hasattr(held, "madvise"):
            held.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _place_in_file(x: NDArray) -> tuple[str, int] | None:
    """
    Return the file that an array's memory is shared with, and where in the file it begins.

    The system knows both of any view; a map knows its name and offset of the time it was made.
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
