"""Round numbers to formats, and find the formats that hold all numbers of a result."""

import array
import math
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np

from .._core.arrays import as_array
from .._core.dtypes import FLOAT32, FLOAT64, FORMATS, ROUNDOFF, DType
from .._core.libraries import library_of, require_host
from .._core.protocols import NDArray
from .._execution.block_passes import scan
from .._kernels.emulation import ROUND_EACH
from .arrays import Result, comparable, perturbable
from .higher_precision import Differences
from .noise_level import finite_rms


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


# Numbers of a format


# Formats of results, the narrowest first; few results are numbers of two or three bits by chance.
_STORED = ("float8_e5m2", "float8_e4m3", "bfloat16", "float16", "float32")


def grid_of(e: Differences, name: str, result: Result) -> str | None:
    """
    Return the lower precision that holds all results; of few, also those at perturbed inputs.

    Where no input can be perturbed, as integers, few are no accident of float32 alone.
    """
    numbers = distinct_sizes(result.numbers(np.float64))
    if 0 < numbers.size < e.thresholds.many:
        if not perturbable(e.inputs):
            form = narrowest_format(e, numbers)
            return form if form == "float32" else None
        if not e.can_perturb or not any(_holds(form, numbers) for form in _lower(e, numbers)):
            return None
        numbers = np.union1d(numbers, _sizes_elsewhere(e, name))
    return narrowest_format(e, numbers)


def narrowest_format(e: Differences, numbers: NDArray) -> str | None:
    """Return the narrowest format that holds all numbers, if that is no accident."""
    for form in _lower(e, numbers):
        unused = numbers.size * math.log2(ROUNDOFF[form] / e.roundoff)
        if unused >= e.thresholds.grid and _holds(form, numbers) and not _plain(e, numbers, form):
            return form
    return None


def _lower(e: Differences, numbers: NDArray) -> list[str]:
    forms = _STORED if numbers.size >= e.thresholds.many else _STORED[2:]
    return [form for form in forms if ROUNDOFF[form] > e.roundoff]


def _holds(form: str, numbers: NDArray) -> bool:
    """Return True if a format represents all numbers, and not all are small integers."""
    if (numbers == np.rint(numbers)).all() and numbers.max(initial=0) * ROUNDOFF[form] <= 1:
        return False
    return np.array_equal(round_array(numbers, format_parameters(form, numbers.dtype)), numbers)


def _plain(e: Differences, numbers: NDArray, form: str) -> bool:
    """Return True if numbers need fewer bits than the format has, or are due to cancellation."""
    fraction, lowest = FORMATS[form][:2]
    exponents = np.frexp(numbers)[1] - 1
    # Numbers that underflow in the working precision only have no smaller range.
    if e.differ:
        exponents = np.maximum(exponents, lowest)
    step = _common_spacing(numbers)
    zeros = math.log2(step) - (int(exponents.max()) - fraction)  # bits of the format not in use
    if zeros < 0:
        return False
    left = not e.differ and step / e.natural_size <= 8 * e.roundoff * e.natural_size
    return left or numbers.size * zeros >= e.thresholds.plain or 2 * zeros >= fraction


def distinct_sizes(numbers: NDArray) -> NDArray:
    sizes: NDArray = np.unique(np.abs(numbers[np.isfinite(numbers) & (numbers != 0)]))
    return sizes


def _sizes_elsewhere(e: Differences, name: str, some: NDArray | None = None) -> NDArray:
    """Return the sizes of results, or of some, at perturbed inputs, each once."""
    sizes = [np.empty(0)]
    for k in range(3):
        y = e.implementations[name](e.perturb(e.thresholds.far, e.seed + 880 + k, wide=False))
        if y.error is None and (some is None or comparable(y, e.results[name])):
            numbers = y.numbers(np.float64)
            sizes.append(distinct_sizes(numbers if some is None else numbers[some]))
    return np.unique(np.concatenate(sizes))


def _common_spacing(numbers: NDArray) -> float:
    """Return the largest power of two that all numbers are multiples of."""
    digits, exponents = np.frexp(numbers)
    digits = np.abs(digits * 2.0**53).astype(np.int64)
    return float(np.ldexp((digits & -digits).astype(np.float64), exponents - 53).min())


def quantum_of_results(e: Differences) -> tuple[str, float] | None:
    """
    Recognise cancellation: results are multiples of an ulp of larger numbers that were subtracted.

    If the other results are within rounding, only those far above the limit are examined.
    """
    t = e.thresholds
    if e.error_difference.broken or e.differ:
        return None
    lost = np.abs(e.difference) > t.single * e.allowed * e.scale
    masks = [np.ones(e.difference.size, bool)]
    if lost.any() and e.norms(np.where(lost, 0.0, e.difference)).robust <= e.allowed:
        masks.append(lost)
    for some in masks:
        absolute = finite_rms(e.difference[some])
        for name, result in (("g", e.result_g), ("f", e.result_f)):
            numbers = distinct_sizes(result.numbers(np.float64)[some])
            if numbers.size and 4 < _spare(e, numbers) < t.cancelled / numbers.size:
                numbers = np.union1d(numbers, _sizes_elsewhere(e, name, some))
            if not numbers.size or not 4 < _spare(e, numbers) >= t.cancelled / numbers.size:
                continue
            step = _common_spacing(numbers)
            largest = max(e.natural_size, float(numbers.max()))
            largest *= max(64, largest)  # also a square
            if step / (2 * e.roundoff) <= largest and absolute <= 2 * step:
                return name, step
    return None


def _spare(e: Differences, numbers: NDArray) -> float:
    """Return how many bits less than their format's numbers need, the largest as well."""
    unused = math.log2(_common_spacing(numbers)) - math.log2(float(numbers.max()))
    return unused - math.log2(e.roundoff)
