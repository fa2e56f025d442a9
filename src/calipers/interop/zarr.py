"""Arrays of zarr: chunks in a folder, an archive, or an object store."""

import sys
from typing import Any

import numpy as np

from .._protocols import NDArray


class Zarr:
    """See `Store`."""

    def owns(self, x: Any) -> bool:
        zarr = sys.modules.get("zarr")
        return zarr is not None and isinstance(x, zarr.Array)

    def is_group(self, x: Any) -> bool:
        """Tell whether x is a group of arrays, without asking its store."""
        zarr = sys.modules.get("zarr")
        return zarr is not None and isinstance(x, zarr.Group)

    def name(self, x: Any) -> str:
        return f"zarr array {x.name or ''} of {x.store}"

    def chunks(self, x: Any) -> tuple[int, ...] | None:
        # A shard is what one object holds, but its chunks are read one by one.
        return tuple(x.chunks)

    def read(self, x: Any, region: tuple[slice, ...]) -> NDArray:
        return np.asarray(x[region])

    def state(self, x: Any) -> Any:
        # Chunks that are gone are read as the fill value, without a word.
        open_array = sys.modules["zarr"].open_array
        try:
            now = open_array(x.store, path=x.path, mode="r")
        except ValueError:  # there are stores that can be written and have no view that cannot
            now = open_array(x.store, path=x.path, mode="r+")
        return now.shape, now.nchunks_initialized
