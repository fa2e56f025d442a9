"""Arrays that are not in memory as a whole: in files, in chunked stores, in iterators, in dask."""

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from .._arguments import require_bytes
from .._libraries import HELD_TYPES
from .._protocols import Spread
from ..interop.h5py import H5py
from ..interop.records import StoredFields
from ..interop.zarr import Zarr

MEMORY_LIMIT = 1 << 28

_ZARR = Zarr()
STORES = (_ZARR, H5py(), StoredFields())


def spread_of(memory_limit: Any, **arrays: Any) -> Spread | None:
    """Return how arrays are taken apart; None if all are in memory. The names are for errors."""
    require_bytes(memory_limit)
    limit = max(1, int(min(memory_limit, sys.maxsize)))
    if HELD_TYPES.issuperset(map(type, arrays.values())):
        return None
    for name, x in arrays.items():
        if _ZARR.is_group(x):
            msg = f"{name} is a zarr group: pass its arrays, or use compare or assert_close"
            raise TypeError(msg)
    given = tuple(arrays.values())
    home = None
    if any(map(_is_dask, given)):
        home = "..interop.dask", "DaskBlocks"
    elif any(map(is_stream, given)):
        home = ".streams", "Streams"
        if len(given) == 2 and given[0] is given[1]:
            msg = f"{' and '.join(arrays)} are one iterator, which can be read only once: pass two"
            raise ValueError(msg)
    elif any(store.owns(x) for x in given for store in STORES) or _mapped(given) > limit:
        home = ".blocks", "Blocks"
    if home is None:
        return None
    module, name = home
    spread: Spread = getattr(import_module(module, __package__), name)(limit, **arrays)
    return spread


def is_stream(x: Any) -> bool:
    """Tell whether x is an iterator of chunks; an array that can be iterated is none."""
    return type(x) not in HELD_TYPES and isinstance(x, Iterator) and not hasattr(x, "__array__")


def _is_dask(x: Any) -> bool:
    arrays = sys.modules.get("dask.array")
    return arrays is not None and isinstance(x, arrays.Array)


def _mapped(arrays: tuple[Any, ...]) -> int:
    """Return the bytes of files that are touched if maps are read in place."""
    bounds = (np.lib.array_utils.byte_bounds(x) for x in arrays if type(x) is np.memmap)
    return sum(last - first for first, last in bounds)
