"""Binary formats, and numbers rounded to them."""

import array
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np

from .._core.arrays import as_array
from .._core.dtypes import FLOAT32, FLOAT64, FORMATS, DType
from .._core.libraries import library_of, require_host
from .._core.protocols import NDArray
from .._execution.block_passes import scan
from .._kernels.emulation import ROUND_EACH


def integer_dtype(dtype: DType) -> DType:
    return np.dtype(f"i{dtype.itemsize}")


@lru_cache
def format_parameters(
    fmt: str, held: DType, truncate: bool = False, flush: bool = False
) -> tuple[int, ...]:
    """Return the parameters of a format for the kernels, which store it in float32 or float64."""
    target, widest = FORMATS[fmt], FORMATS[held.name]
    fraction = min(target.fraction, widest.fraction)
    lowest = max(target.lowest, widest.lowest) - widest.lowest + 1

    def bits(x: float) -> int:
        return int(held.type(x).view(integer_dtype(held)))

    largest = bits(min(target.largest, widest.largest))
    special = 0 if target.infinity else bits(np.nan)
    beyond = largest if truncate else bits(np.inf) | special
    # Numbers below the storage format's subnormals are 0 already. If the format has a wider range,
    # all subnormal numbers of the storage format are normal in it.
    normal = target.lowest - widest.lowest + 1
    exponent = normal if flush else lowest - fraction
    least = exponent << widest.fraction if exponent > 0 else 1
    nearest = 0 if truncate else -1
    return widest.fraction - fraction, lowest, nearest, least, largest, beyond, special


def _is_floating(dtype: Any) -> bool:
    name = getattr(dtype, "name", str(dtype))  # dtypes of torch have none
    return "float" in name or "complex" in name


def storage_dtype(x: NDArray, name: str) -> DType | None:
    """Return the dtype in which an array is rounded, or None if it is not of floating point."""
    if type(x) is not np.ndarray:
        msg = f"{name} is a {type(x).__name__}, which would lose what it adds to an array; "
        raise TypeError(msg + "pass a numpy.ndarray")
    if x.dtype.kind == "c":
        x = x.real
    for held in (FLOAT32, FLOAT64):
        if _is_floating(x.dtype) and np.can_cast(x.dtype, held):
            return held
    if _is_floating(x.dtype) or x.dtype.kind == "O" or x.dtype.fields:
        msg = f"{name} has dtype {x.dtype}, which emulate cannot round; "
        raise TypeError(msg + "pass float64 or lower precision")
    return None


def round_array(x: NDArray, rule: tuple[int, ...]) -> NDArray:
    """Return a rounded copy of an array of float32 or float64."""
    if not (x.flags.forc and x.flags.aligned):
        x = x.copy()
    out = np.empty_like(x)
    bits = integer_dtype(x.dtype)
    kernel = ROUND_EACH[bits]
    pair = x.view(bits), out.view(bits)
    scan(lambda _, block, rounded: kernel(block, rule, rounded), pair, (bits, bits))
    return out


class Rounder:
    """Round floating-point values, also in containers; return others unchanged."""

    def __init__(self, fmt: str, truncate: bool, flush: bool) -> None:
        self._rules = {
            held: format_parameters(fmt, held, truncate, flush) for held in (FLOAT32, FLOAT64)
        }

    def __call__(self, x: Any, name: str) -> Any:
        if isinstance(x, list | tuple):
            items = [self(item, f"{name}[{k}]") for k, item in enumerate(x)]
            return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
        if isinstance(x, dict):
            rounded = copy(x)
            for key, value in x.items():
                rounded[key] = self(value, f"{name}[{key!r}]")
            return rounded
        library = library_of(x)
        if library is not None:
            # Checked first: a random key of jax has no NumPy view.
            if not _is_floating(x.dtype):
                return x
            result = library.from_numpy(self._array(as_array(x, name), name))
            return result.to(x.dtype) if hasattr(result, "to") else result.astype(x.dtype)
        if isinstance(x, np.ndarray | np.generic | float | complex):
            numbers = as_array(x, name)
            if storage_dtype(numbers, name) is None:
                return x
            with np.errstate(all="ignore"):
                result = self._array(numbers, name).astype(numbers.dtype, copy=False)
            if isinstance(x, np.ndarray):
                return result
            return result[()] if isinstance(x, np.generic) else result.item()
        require_host(**{name: x})
        if hasattr(type(x), "__array__") or isinstance(x, (array.array, memoryview)):
            msg = f"{name} has type {type(x).__name__}, which emulate cannot round; "
            raise TypeError(msg + "pass an array of NumPy, torch or jax")
        return x

    def _array(self, x: NDArray, name: str) -> NDArray:
        held = storage_dtype(x, name)
        if held is None:
            return x
        if x.dtype.kind == "c":
            out = np.empty_like(x)
            out.real, out.imag = self._array(x.real, name), self._array(x.imag, name)
            return out
        with np.errstate(all="ignore"):
            return round_array(x.astype(held, copy=False), self._rules[held])
