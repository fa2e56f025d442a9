"""Frames and columns of pandas, polars, pyarrow, dask and astropy: each column in its own dtype."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .._core.libraries import HOST_TYPES
from .._core.protocols import NDArray

_FRAMES = {
    "pandas": ("DataFrame",),
    "polars": ("DataFrame",),
    "pyarrow": ("Table", "RecordBatch"),
    "astropy.table": ("Table",),
    "dask.dataframe": ("DataFrame",),
}
_COLUMNS = {
    "pandas": ("Series", "Index"),
    "pandas.api.extensions": ("ExtensionArray",),
    "polars": ("Series",),
    "pyarrow": ("Array", "ChunkedArray"),
    "dask.dataframe": ("Series", "Index"),
}
_DASK = {"dask.dataframe": ("DataFrame", "Series", "Index")}
_LABELLED = {"pandas": ("DataFrame", "Series")}
# float64 holds all integers up to here.
_EXACT_INTEGER = 2**53


def _is_of(x: Any, classes: Mapping[str, tuple[str, ...]]) -> bool:
    if type(x) in HOST_TYPES:
        return False
    for module, names in classes.items():
        library = sys.modules.get(module)
        for name in names if library is not None else ():
            # A module that is still being imported lacks some of its names.
            kind = getattr(library, name, None)
            if kind is not None and isinstance(x, kind):
                return True
    return False


def is_frame(x: Any) -> bool:
    """Return True if x is a table with named columns."""
    return _is_of(x, _FRAMES)


def is_column(x: Any) -> bool:
    """Return True if x is one column of a frame, or an array of a library of frames."""
    return _is_of(x, _COLUMNS)


def is_lazy(x: Any) -> bool:
    """Return True if x is a query whose result has not been computed."""
    return _is_of(x, {"polars": ("LazyFrame",)})


def columns(x: Any) -> dict[Any, tuple[str, Any]]:
    """Return the columns of a frame by name, with the expressions that select them."""
    x = _computed(x)
    if _is_of(x, {"pyarrow": _FRAMES["pyarrow"]}):
        names, parts, select = x.schema.names, x.columns, ".column({})"
    elif _is_of(x, {"pandas": ("DataFrame",)}):
        names, select = list(x.columns), ".iloc[:, {}]"
        parts = [x.iloc[:, i] for i in range(len(names))]
    else:
        names, select = list(getattr(x, "colnames", None) or x.columns), ""
        parts = [_plain(x[name]) for name in names]
    result: dict[Any, tuple[str, Any]] = {}
    for i, (name, part) in enumerate(zip(names, parts, strict=True)):
        repeated = name in result
        key = (name, i) if repeated else name
        result[key] = (select.format(i) if repeated else f"[{_shown(name)}]"), part
    return result


def _plain(column: Any) -> Any:
    """Return a column of astropy that has neither unit nor mask as a plain array."""
    is_other = not isinstance(column, np.ndarray) or isinstance(column, np.ma.MaskedArray)
    return column if is_other or column.unit is not None else np.asarray(column)


def _shown(name: Any) -> str:
    return repr(name.item() if isinstance(name, np.generic) else name)


def _computed(x: Any) -> Any:
    """Return a frame or a column of dask as one of pandas; others are returned as they are."""
    return x.compute() if _is_of(x, _DASK) else x


def is_nested(x: Any) -> bool:
    """Return True if the elements of a column are lists, structs or maps."""
    if _is_of(x, {"polars": ("Series",)}):
        return bool(x.dtype.is_nested())
    kind = x.type if _is_of(x, {"pyarrow": _COLUMNS["pyarrow"]}) else _arrow_type(x)
    return kind is not None and bool(sys.modules["pyarrow"].types.is_nested(kind))


def _arrow_type(x: Any) -> Any:
    """Return the type that pyarrow stores a column of pandas with; None for other columns."""
    return getattr(x.dtype, "pyarrow_dtype", None)


def to_list(x: Any) -> list[Any]:
    """Return a column as a list of Python objects."""
    x = _computed(x)
    items: list[Any] = x.to_pylist() if hasattr(x, "to_pylist") else x.to_list()
    return items


def as_numpy(x: Any) -> NDArray:
    """
    Return a column as an array of NumPy, with NaN where values are missing.

    Integers, booleans and text with missing values are objects, as NumPy has no NaN for them; the
    dtype of the values is kept as metadata, see `value_dtype`.
    """
    x = _computed(x)
    if _is_of(x, {"polars": ("Series",)}):
        present = x.is_not_null().to_numpy()
        values = _polars_values(x.drop_nulls())
    elif _is_of(x, {"pyarrow": _COLUMNS["pyarrow"]}):
        present = np.asarray(x.is_valid())
        values = x.drop_null().to_numpy(zero_copy_only=False)
    else:
        x = x.to_flat_index() if hasattr(x, "to_flat_index") else x
        if type(x.dtype) is np.dtype and x.dtype.kind != "O":
            return np.asarray(x)
        present = ~np.asarray(_is_missing(x), dtype=bool)
        values = np.asarray(x[present])
    return values if present.all() else _spread(values, present)


def _polars_values(x: Any) -> NDArray:
    try:
        values: NDArray = x.to_numpy()
    except Exception:  # of integers of 128 bits, which NumPy does not have
        values = np.empty(len(x), object)
        values[:] = x.to_list()
    return values


def _is_missing(x: Any) -> Any:
    if x.dtype != object:
        return x.isna()
    # Objects may be None, which is a value: NA alone is equal to nothing.
    missing = sys.modules["pandas"].NA
    return [item is missing for item in x]


def _spread(values: NDArray, present: NDArray) -> NDArray:
    """Put values where they are present, and NaN elsewhere."""
    kind = values.dtype.kind
    nan: Any = np.array("NaT", values.dtype) if kind in "mM" else np.nan
    dtype = values.dtype
    if kind not in "fcmM":
        dtype = np.dtype(object, metadata={"values": values.dtype})
    array = np.full(present.shape, nan, dtype)
    array[present] = values
    return array


def as_matrix(x: Any) -> NDArray:
    """Return a frame as one array: of objects, if no dtype holds all columns exactly."""
    parts = [_as_array(part) for _, part in columns(x).values()]
    if not parts:
        return np.empty((len(x), 0))
    dtype = _common_dtype(parts)
    array = np.empty((len(parts[0]), len(parts)), dtype)
    for i, part in enumerate(parts):
        array[:, i] = part
    return array


def _as_array(part: Any) -> NDArray:
    return as_numpy(part) if is_column(part) else np.asarray(part)


def _common_dtype(parts: Iterable[NDArray]) -> np.dtype[Any]:
    dtypes = {part.dtype for part in parts}
    if len(dtypes) == 1:
        return dtypes.pop()
    if not all(dtype.kind in "biufc" for dtype in dtypes):
        return np.dtype(object)
    common = np.result_type(*dtypes)
    rounded = common.kind in "fc" and any(
        part.dtype.kind in "iu" and part.size and _largest(part) > _EXACT_INTEGER for part in parts
    )
    return np.dtype(object) if rounded else common


def _largest(x: NDArray) -> int:
    return max(int(x.max()), -int(x.min()))


def labels_differ(a: Any, b: Any) -> bool:
    """Return True if two objects of pandas have unequal row labels."""
    both = _is_of(a, _LABELLED) and _is_of(b, _LABELLED)
    return both and not a.index.equals(b.index)
