"""Datasets of h5py: arrays in an HDF5 file, contiguous or in chunks."""

import sys
from typing import Any

import numpy as np

from .._protocols import NDArray


class H5py:
    """See `Store`."""

    def owns(self, x: Any) -> bool:
        h5py = sys.modules.get("h5py")
        return h5py is not None and isinstance(x, h5py.Dataset)

    def name(self, x: Any) -> str:
        return f"h5py dataset {x.name} of {x.file.filename}" if x else "closed h5py dataset"

    def chunks(self, x: Any) -> tuple[int, ...] | None:
        return x.chunks and tuple(x.chunks)

    def read(self, x: Any, region: tuple[slice, ...]) -> NDArray:
        return np.asarray(x[region])

    def state(self, x: Any) -> Any:
        return x.shape
