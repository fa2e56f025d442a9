"""Arrays of zarr and h5py, and the fields of their records."""

import sys
from typing import Any

import numpy as np

from .._core.arguments import attribute
from .._core.dtypes import record_names
from .._core.protocols import NDArray, Store


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


class Zarr:
    """See `Store`."""

    def owns(self, x: Any) -> bool:
        zarr = sys.modules.get("zarr")
        return zarr is not None and isinstance(x, zarr.Array)

    def is_group(self, x: Any) -> bool:
        """Return True if x is a group of arrays; its store is not read."""
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


_STORES: tuple[Store, ...] = (Zarr(), H5py())


def field_names(x: Any) -> tuple[str, ...]:
    """Return the names of the fields of an array of records; none for other arrays."""
    dtype = attribute(x, "dtype")
    if isinstance(dtype, np.dtype):
        return record_names(dtype)
    return tuple(x.fields) if _is_of(x, "awkward", "Array", "Record") else ()


def fields_of(x: Any) -> dict[str, Any]:
    """Return the fields of an array of records: views, or arrays that are read when needed."""
    names = field_names(x)
    for store in _STORES:
        if store.owns(x):
            return {name: StoredField(store, x, name) for name in names}
    if _is_of(x, "awkward", "Array", "Record"):
        return {name: _of_awkward(x[name]) for name in names}
    if not isinstance(x, (np.ndarray, np.void)) and not _is_of(x, "dask.array", "Array"):
        x = np.asanyarray(x)
    return {name: x[name] for name in names}


def _of_awkward(field: Any) -> Any:
    """Return a field as an array of NumPy; as a list if its parts have unlike lengths."""
    if not _is_of(field, "awkward", "Array") or field.fields:
        return field
    try:
        return np.asanyarray(field)
    except ValueError:
        return field.to_list()


def _is_of(x: Any, module: str, *classes: str) -> bool:
    library = sys.modules.get(module)
    return any(isinstance(x, getattr(library, name, ())) for name in classes)


class StoredField:
    """One field of an array of records in a store; it is read with the other fields."""

    def __init__(self, store: Store, records: Any, name: str) -> None:
        self.store = store
        self.records = records
        self.name = name
        field = records.dtype.fields[name][0]
        self.dtype: np.dtype[Any] = field.base
        self.shape: tuple[int, ...] | None = None
        if records.shape is not None:
            self.shape = (*records.shape, *field.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """Return the whole field."""
        assert self.shape is not None
        whole = tuple(slice(0, n) for n in self.shape)
        return np.asarray(StoredFields().read(self, whole), dtype)


class StoredFields:
    """See `Store`."""

    def owns(self, x: Any) -> bool:
        return isinstance(x, StoredField)

    def name(self, x: Any) -> str:
        return f"field {x.name!r} of the {x.store.name(x.records)}"

    def chunks(self, x: Any) -> tuple[int, ...] | None:
        chunks = x.store.chunks(x.records)
        return chunks and (*chunks, *x.shape[len(chunks) :])

    def read(self, x: Any, region: tuple[slice, ...]) -> NDArray:
        axes = len(x.records.shape)
        records = x.store.read(x.records, region[:axes])
        return np.asarray(records[x.name][(..., *region[axes:])])

    def state(self, x: Any) -> Any:
        return x.store.state(x.records)
