"""Flatten arrays of inputs and outputs to one vector of real numbers, and restore them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from .._core.arrays import as_array, as_dense_array
from .._core.dtypes import as_real_vector, real_parts
from .._core.protocols import NDArray
from .._core.report import index_text

_ATTRIBUTES = {"": "", "real": ".real", "imaginary": ".imag"}
_NARROW_BYTES = 2  # of float16 and bfloat16
NO_INDICES: Mapping[int, tuple[NDArray, ...]] = MappingProxyType({})


class WrongFormError(Exception):
    """A derivative whose result has the wrong count, shape or kind: a finding, not a crash."""


def real_vector(arrays: Sequence[NDArray]) -> NDArray:
    """Return the elements of arrays as one vector of real numbers; a complex element is two."""
    if len(arrays) == 1:
        flat = widened(np.ascontiguousarray(arrays[0])).reshape(-1)
        return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat
    parts = (as_real_vector(widened(np.ascontiguousarray(array))) for array in arrays)
    return np.concatenate([np.empty(0), *parts])


def widened(array: NDArray) -> NDArray:
    """Return numbers of 16 bits in float32, in which their differences are exact."""
    return array.astype(np.float32) if array.dtype.itemsize == _NARROW_BYTES else array


def real_rows(arrays: Sequence[NDArray]) -> NDArray:
    """Return arrays of the same length as a matrix of real numbers, with a row for each item."""
    parts = [
        as_real_vector(widened(np.ascontiguousarray(array))).reshape(len(array), -1)
        for array in arrays
    ]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.empty((len(parts[0]), 0)), *parts], axis=1)


def moduli(arrays: Sequence[NDArray]) -> NDArray:
    """Return magnitudes, one for each real number; both parts of a complex one have its modulus."""
    if len(arrays) == 1 and arrays[0].dtype.kind == "f":
        return np.abs(arrays[0]).reshape(-1).astype(float)
    sizes = [np.abs(array).reshape(-1).astype(float) for array in arrays]
    counts = (real_parts(array.dtype) for array in arrays)
    return np.concatenate([np.empty(0), *map(np.repeat, sizes, counts)])


def norm(values: NDArray) -> float:
    """Return the Euclidean norm, without overflow or underflow of the squares."""
    largest = float(np.max(np.abs(values), initial=0.0))
    if not 0 < largest < np.inf:
        return largest
    return largest * float(np.sqrt(np.sum((values / largest) ** 2)))


def has_differences(dtype: np.dtype[Any]) -> bool:
    """Return True if numbers of this dtype are differentiated by finite differences."""
    return dtype.char in "efdFD" or dtype.name == "bfloat16"


def has_kernels(dtype: np.dtype[Any]) -> bool:
    """Return True if compiled loops take numbers of this dtype."""
    return dtype.char in "fdFD"


def has_fractions(dtype: np.dtype[Any]) -> bool:
    """Return True for all floating-point and complex dtypes, including extension types."""
    return dtype.kind in "fc" or (dtype.isbuiltin == 2 and "int" not in dtype.name)  # bfloat16


def labels_of(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """
    Return names of inputs or outputs in NumPy's notation.

    That is in[0] for 0, in[0]['w'] for 0['w'], and in['w'] for this if 0 is the only one.
    """
    if all(map(str.isdigit, names)):
        return tuple([f"{kind}[{name}]" for name in names])
    alone = len({name.partition("[")[0].partition(".")[0] for name in names}) == 1
    pairs = (re.fullmatch(r"(\d*)(.*)", name, re.DOTALL) for name in names)
    split = [match.groups() for match in pairs if match is not None]
    return tuple(
        f"{kind}{rest}" if not position or (alone and rest) else f"{kind}[{position}]{rest}"
        for position, rest in split
    )


@dataclass(frozen=True)
class Segment:
    """The segment of one input or output in the flat real vector of all inputs or outputs."""

    position: int  # in the caller's order
    example: NDArray
    start: int
    stop: int
    name: str  # its position, or where it is in the caller's containers
    label: str  # in NumPy's notation, as in[0] or out['a']
    value_indices: tuple[
        NDArray, ...
    ] = ()  # indices of its values, if they are those of a sparse matrix

    @cached_property
    def wide(self) -> type[Any]:
        """The double-precision dtype in which its derivatives are computed."""
        return np.complex128 if self.example.dtype.kind == "c" else np.float64

    @cached_property
    def _real(self) -> np.dtype[Any]:
        return self.example.real.dtype

    def index(self, number: int) -> tuple[tuple[int, ...], str]:
        """Return the index of the element of a real number, and "real", "imaginary" or ""."""
        k = number - self.start
        part = ""
        if self.example.dtype.kind == "c":
            k, imaginary = divmod(k, 2)
            part = "imaginary" if imaginary else "real"
        index = tuple(i[k] for i in self.value_indices) or np.unravel_index(k, self.example.shape)
        return tuple(map(int, index)), part

    def element(self, number: int) -> str:
        """Return the name of a real number in NumPy's notation, as in[0][2, 1].real."""
        index, part = self.index(number)
        at = index_text(index) if index else ""
        return f"{self.label}{at}{_ATTRIBUTES[part]}"

    def shaped(self, numbers: NDArray) -> NDArray:
        """Return this part of a real vector, or of rows of vectors, as an array like `example`."""
        like = self.example
        real = np.ascontiguousarray(numbers[..., self.start : self.stop], self._real)
        if self._real is not like.dtype:
            real = real.view(like.dtype)
        return real.reshape((*numbers.shape[:-1], *like.shape))


def picked(items: Sequence[Any], positions: Sequence[int], every: int) -> list[Any] | None:
    """Return the items at positions, from a list of just these or of all `every` items."""
    if len(items) == len(positions):
        return list(items)
    return [items[k] for k in positions] if len(items) == every else None


def require_zero(gradient: Any, name: str, location: str) -> None:
    """Raise if a derivative with respect to something that is held constant is not zero."""
    try:
        is_nonzero = gradient is not None and bool(np.any(np.asarray(as_array(gradient, name))))
    except (TypeError, ValueError):
        is_nonzero = True
    if is_nonzero:
        msg = (
            f"{name} returned a derivative with respect to {location}, which is not a "
            "floating-point array and is held constant: pass it as one, or return None "
            "for it"
        )
        raise WrongFormError(msg)


def segment_at(parts: Sequence[Segment], position: int) -> Segment:
    """Return the part with the position of an input or output."""
    return next(p for p in parts if p.position == position)


def largest_by_segment(sizes: NDArray, parts: Sequence[Segment]) -> NDArray:
    """Return for each real number the largest magnitude in its part."""
    if len(parts) == 1:
        return np.full(sizes.shape, sizes.max(initial=0.0))
    largest = np.zeros_like(sizes)
    for part in parts:
        span = slice(part.start, part.stop)
        largest[span] = sizes[span].max(initial=0.0)
    return largest


def segments_of(
    arrays: Sequence[NDArray],
    positions: Sequence[int],
    names: Sequence[str],
    labels: Sequence[str],
    value_indices: Mapping[int, tuple[NDArray, ...]] = NO_INDICES,
) -> tuple[Segment, ...]:
    """
    Return the segments of arrays that lie one after the other in a flat real vector.

    `names` and `labels` have an item for each position, `value_indices` for each sparse input.
    """
    parts, start = [], 0
    for position, array in zip(positions, arrays, strict=True):
        stop = start + array.size * real_parts(array.dtype)
        named = names[position], labels[position]
        parts.append(Segment(position, array, start, stop, *named, value_indices.get(position, ())))
        start = stop
    return tuple(parts)


def as_outputs(y: Any, names: Sequence[str] = ()) -> tuple[tuple[NDArray, ...], bool]:
    """Return the result of f as arrays, and whether it is a tuple; names are for errors."""
    if type(y) is np.ndarray and y.dtype.kind in "biufc":
        return (y,), False
    # A tuple is several outputs; so is a list, unless it is of numbers.
    numbers = isinstance(y, list) and y and all(np.ndim(item) == 0 for item in y)
    several = isinstance(y, (tuple, list)) and not numbers
    outputs = y if several else (y,)
    held = zip(names or map(str, range(len(outputs))), outputs, strict=True)
    return tuple(_numbers(o, f"output {name} of f", several) for name, o in held), several


def _numbers(x: Any, name: str, several: bool) -> NDArray:
    if x is None:
        advice = "omit it" if several else "return it, or pass out_like= if f stores it"
        msg = f"{name} must be an array of numbers, got None: {advice}"
        raise TypeError(msg)
    try:
        array = x if type(x) is np.ndarray else np.asarray(as_dense_array(x, name))
    except (RuntimeError, ValueError) as error:  # as torch's, of a list of tensors
        if np.ma.is_masked(x):
            raise
        raise TypeError(_no_numbers(name, type(x).__name__)) from error
    if array.dtype.kind not in "biufc" and array.dtype.isbuiltin != 2:
        kind = str(array.dtype) if isinstance(x, np.ndarray) else type(x).__name__
        raise TypeError(_no_numbers(name, kind))
    return array


def _no_numbers(name: str, kind: str) -> str:
    return f"{name} must be an array of numbers, got {kind}: return an array or a tuple of arrays"
