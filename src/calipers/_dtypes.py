"""In which element type a pair of arrays is compared."""

import sys
from functools import lru_cache
from typing import Any

import numpy as np

DType = np.dtype[Any]
FLOAT32, FLOAT64, COMPLEX128 = map(np.dtype, (np.float32, np.float64, np.complex128))
INT64, UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


@lru_cache
def kernel_dtype(dtype: DType) -> DType | None:
    """Return the native dtype that kernels read `dtype` in, or None if NumPy has to compare it."""
    if dtype.isbuiltin == 2:  # ml_dtypes: NumPy knows how to widen them
        if dtype.name == "bfloat16":
            return dtype
        if np.can_cast(dtype, np.int8):  # int4 and the like
            return np.dtype(np.int8)
        return FLOAT64 if np.can_cast(dtype, FLOAT64) else None
    # A number may have names for its parts, too, which Numba takes for a structure.
    if dtype.kind in "biufc" and dtype.char not in "gG" and dtype.names is None:
        return dtype.newbyteorder("=")
    return None


@lru_cache
def working_dtypes(a: DType, b: DType) -> tuple[DType, DType] | None:
    """Return the dtypes to compare a pair in: NumPy's promotion, or one that is more exact."""
    x, y = kernel_dtype(a), kernel_dtype(b)
    if x is None or y is None:
        return None
    if x == y:
        return x, y
    if x.kind in "biu" and y.kind in "biu":
        common = np.promote_types(x, y)
        if common.kind != "f":
            return common, common
        return (INT64, UINT64) if x.kind == "i" else (UINT64, INT64)
    wide = COMPLEX128 if "c" in (x.kind, y.kind) else FLOAT64
    return wide, wide


def value_dtype(dtype: DType) -> DType:
    """Return the dtype of the values in a column that is an array of objects with missing ones."""
    metadata: Any = dtype.metadata or {}
    values: DType = metadata.get("values", dtype)
    return values


def record_names(dtype: DType) -> tuple[str, ...]:
    """Return the names of the fields of records; a number whose parts have names is no record."""
    return (dtype.names or ()) if dtype.kind == "V" else ()


def widest(dtype: DType) -> DType:
    """Return one of the four dtypes that hold all native ones: few kernels serve any pair."""
    if dtype.kind in "biu":
        return UINT64 if dtype == UINT64 else INT64
    return COMPLEX128 if dtype.kind == "c" else FLOAT64


def finfo(dtype: DType) -> Any:
    """Return the limits of a floating-point dtype, of NumPy or of ml_dtypes."""
    return (sys.modules["ml_dtypes"] if dtype.isbuiltin == 2 else np).finfo(dtype)
