"""Arrays as parts of one vector of real numbers; a complex element is two of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from .._protocols import NDArray
from .._reals import real_parts, reals
from .._report.layout import index_text

_ATTRIBUTES = {"": "", "real": ".real", "imaginary": ".imag"}
NOWHERE: Mapping[int, tuple[NDArray, ...]] = MappingProxyType({})


def real_vector(arrays: Sequence[NDArray]) -> NDArray:
    """Return the real numbers of arrays, one after the other; a complex element is two."""
    parts = [reals(np.ascontiguousarray(array)) for array in arrays]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.empty(0), *parts])


def real_rows(arrays: Sequence[NDArray]) -> NDArray:
    """Return the real numbers of arrays of the same length, a row for each item of them."""
    parts = [reals(np.ascontiguousarray(array)).reshape(len(array), -1) for array in arrays]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.empty((len(parts[0]), 0)), *parts], axis=1)


def moduli(arrays: Sequence[NDArray]) -> NDArray:
    """Return the sizes of real numbers; both parts of a complex one are as large as it is."""
    sizes = [np.abs(array).reshape(-1).astype(float) for array in arrays]
    counts = (real_parts(array.dtype) for array in arrays)
    return np.concatenate([np.empty(0), *map(np.repeat, sizes, counts)])


def norm(values: NDArray) -> float:
    """Return the root of the sum of squares, be these beyond the range of numbers or not."""
    largest = float(np.max(np.abs(values), initial=0.0))
    if not 0 < largest < np.inf:
        return largest
    return largest * float(np.sqrt(np.sum((values / largest) ** 2)))


def labels_of(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """
    Return names of inputs or outputs in NumPy's notation.

    That is in[0] for 0, in[0]['w'] for 0['w'], and in['w'] for this if 0 is the only one.
    """
    alone = len({name.partition("[")[0].partition(".")[0] for name in names}) == 1
    pairs = (re.fullmatch(r"(\d*)(.*)", name, re.DOTALL) for name in names)
    split = [match.groups() for match in pairs if match is not None]
    return tuple(
        f"{kind}{rest}" if not position or (alone and rest) else f"{kind}[{position}]{rest}"
        for position, rest in split
    )


@dataclass(frozen=True)
class Part:
    """Where one input or output stands among the real numbers of all."""

    position: int  # in the caller's order
    example: NDArray
    start: int
    stop: int
    name: str  # its position, or where it is in the caller's containers
    label: str  # in NumPy's notation, as in[0] or out['a']
    places: tuple[NDArray, ...] = ()  # in a sparse matrix, of the values that are its numbers

    @cached_property
    def wide(self) -> type[Any]:
        """What its derivatives are computed in."""
        return np.complex128 if self.example.dtype.kind == "c" else np.float64

    @cached_property
    def _real(self) -> np.dtype[Any]:
        return self.example.real.dtype

    def index(self, number: int) -> tuple[tuple[int, ...], str]:
        """Return the element a real number belongs to, and "" or which part of it that is."""
        k = number - self.start
        part = ""
        if self.example.dtype.kind == "c":
            k, imaginary = divmod(k, 2)
            part = "imaginary" if imaginary else "real"
        index = tuple(i[k] for i in self.places) or np.unravel_index(k, self.example.shape)
        return tuple(map(int, index)), part

    def element(self, number: int) -> str:
        """Return the element a real number belongs to in NumPy's notation, as in[0][2, 1].real."""
        index, part = self.index(number)
        at = index_text(index) if index else ""
        return f"{self.label}{at}{_ATTRIBUTES[part]}"

    def shaped(self, numbers: NDArray) -> NDArray:
        """Return real numbers of this part, or rows of them, as arrays of its shape and dtype."""
        like = self.example
        real = np.ascontiguousarray(numbers[..., self.start : self.stop], self._real)
        if self._real is not like.dtype:
            real = real.view(like.dtype)
        return real.reshape((*numbers.shape[:-1], *like.shape))


def picked(items: Sequence[Any], positions: Sequence[int], every: int) -> list[Any] | None:
    """Return the items of some positions, of one for each of these or one for each of all."""
    if len(items) == len(positions):
        return list(items)
    return [items[k] for k in positions] if len(items) == every else None


def part_at(parts: Sequence[Part], position: int) -> Part:
    """Return the part of an input or output."""
    return next(p for p in parts if p.position == position)


def largest_by_part(sizes: NDArray, parts: Sequence[Part]) -> NDArray:
    """Return, for each real number, the largest of the sizes in its part."""
    largest = np.zeros_like(sizes)
    for part in parts:
        own = slice(part.start, part.stop)
        largest[own] = sizes[own].max(initial=0.0)
    return largest


def parts_of(
    arrays: Sequence[NDArray],
    positions: Sequence[int],
    names: Sequence[str],
    labels: Sequence[str],
    places: Mapping[int, tuple[NDArray, ...]] = NOWHERE,
) -> tuple[Part, ...]:
    """
    Lay arrays out one after the other; names and labels are those of all positions.

    `places` are those of the values of sparse inputs, by position.
    """
    parts, start = [], 0
    for position, array in zip(positions, arrays, strict=True):
        stop = start + array.size * real_parts(array.dtype)
        named = names[position], labels[position]
        parts.append(Part(position, array, start, stop, *named, places.get(position, ())))
        start = stop
    return tuple(parts)
