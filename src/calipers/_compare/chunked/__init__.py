"""Arrays that are not in memory as a whole: maps, zarr, h5py, dask and iterators of chunks."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import lcm, prod
from typing import Any

import numpy as np

from ..._core.arguments import require_bytes
from ..._core.libraries import IN_MEMORY_TYPES
from ..._core.protocols import ChunkedPair
from ...interop.zarr_h5py import H5py, StoredFields, Zarr

Shape = tuple[int, ...]
Region = tuple[slice, ...]


def block_shape(
    shape: Shape,
    units: Sequence[Shape],
    runs: Sequence[Shape],
    enough: int,
    fits: Callable[[Shape], bool],
    order: Sequence[int] | None = None,
) -> Shape:
    """
    Return the shape of blocks of about `enough` elements, or of one unit if that is larger.

    `units` are the shapes that have to be read as a whole, such as chunks, and `runs` those that
    are faster to read as a whole, such as pages. A block is a multiple of both on each axis if that
    `fits` in memory. Otherwise it has the largest length on each axis, and some units are read
    twice. Blocks grow along the last axis first, or along the last axis of `order`.
    """
    both = (*units, *runs)
    for parts, common in (both, lcm), (both, _longest), (units, lcm), (units, _longest):
        lengths = zip(*parts, strict=True)
        block = [max(1, min(n, common(*each))) for n, each in zip(shape, lengths, strict=True)]
        if fits(tuple(block)):
            break
    for axis in reversed(range(len(shape)) if order is None else order):
        times = min(enough // prod(block), -(-shape[axis] // block[axis]))
        block[axis] = max(1, min(shape[axis], block[axis] * max(1, times)))
        if block[axis] < shape[axis]:
            break
    return tuple(block)


def _longest(*lengths: int) -> int:
    return max(lengths)  # max(x) of one length would raise


def max_chunk_elements(block: Shape, chunks: Shape, whole: Shape) -> int:
    """Return the largest number of elements in the chunks that a block may overlap."""
    return prod(
        chunk * min(-(-length // chunk) + (length % chunk != 0), -(-n // chunk))
        for length, chunk, n in zip(block, chunks, whole, strict=True)
    )


@dataclass(frozen=True)
class Grid:
    """A partition of an array into blocks of one shape, smaller at the ends, in C order."""

    shape: Shape
    block: Shape

    def __len__(self) -> int:
        return prod(self._counts())

    def _counts(self) -> list[int]:
        return [-(-n // step) for n, step in zip(self.shape, self.block, strict=True)]

    def corner(self, number: int) -> Shape:
        """Return the index of the first element of a block."""
        corner = []
        for count, step in zip(reversed(self._counts()), reversed(self.block), strict=True):
            number, position = divmod(number, count)
            corner.append(position * step)
        return tuple(reversed(corner))

    def region(self, number: int) -> Region:
        """Return the slices of a block."""
        return tuple(
            slice(start, min(start + step, n))
            for start, step, n in zip(self.corner(number), self.block, self.shape, strict=True)
        )


def operand_region(operand_shape: Shape, region: Region) -> Region:
    """Return the region of an operand that is broadcast to a region of the result."""
    trailing = region[len(region) - len(operand_shape) :]
    return tuple(
        slice(0, 1) if n == 1 else part for n, part in zip(operand_shape, trailing, strict=True)
    )


# The default limit of memory for chunks in bytes, 256 MiB.
MEMORY_LIMIT = 1 << 28

_ZARR = Zarr()
STORES = (_ZARR, H5py(), StoredFields())


def chunked_pair(memory_limit: Any, **arrays: Any) -> ChunkedPair | None:
    """Return one or two arrays as a pair that is read in blocks; None if all are in memory.

    The names of the keywords are used in errors.
    """
    require_bytes(memory_limit)
    limit = max(1, int(min(memory_limit, sys.maxsize)))
    if IN_MEMORY_TYPES.issuperset(map(type, arrays.values())):
        return None
    for name, x in arrays.items():
        if _ZARR.is_group(x):
            msg = f"{name} is a zarr group: pass its arrays, or use compare or assert_close"
            raise TypeError(msg)
    operands = tuple(arrays.values())
    implementation = None
    if any(map(_is_dask, operands)):
        implementation = "...interop.dask", "DaskBlocks"
    elif any(map(is_stream, operands)):
        implementation = ".streams", "Streams"
        if len(operands) == 2 and operands[0] is operands[1]:
            msg = f"{' and '.join(arrays)} are one iterator, which can be read only once: pass two"
            raise ValueError(msg)
    elif any(store.owns(x) for x in operands for store in STORES) or _mapped(operands) > limit:
        implementation = ".sources", "Blocks"
    if implementation is None:
        return None
    module, name = implementation
    pair: ChunkedPair = getattr(import_module(module, __package__), name)(limit, **arrays)
    return pair


def is_stream(x: Any) -> bool:
    """Return True if x is an iterator of chunks, and not an array."""
    return (
        type(x) not in IN_MEMORY_TYPES and isinstance(x, Iterator) and not hasattr(x, "__array__")
    )


def _is_dask(x: Any) -> bool:
    arrays = sys.modules.get("dask.array")
    return arrays is not None and isinstance(x, arrays.Array)


def _mapped(arrays: tuple[Any, ...]) -> int:
    """Return the size in bytes of the mapped memory of all memory maps."""
    bounds = (np.lib.array_utils.byte_bounds(x) for x in arrays if type(x) is np.memmap)
    return sum(last - first for first, last in bounds)
