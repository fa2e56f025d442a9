"""The same inputs laid out in other ways, and parts of a batch of them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._protocols import NDArray

_VECTOR = 64  # bytes: the widest that processors have
_STRIP = 8  # rows that are turned at a time: more of them evict one another's cache lines


def layouts(inputs: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Give the same numbers, laid out in other ways."""
    yield "in column-major order", [_column_major(x) for x in inputs]
    moved = [misaligned(x) if isinstance(x, np.ndarray) else x for x in inputs]
    yield "in unaligned memory", moved


def slices(inputs: Sequence[Any], batch: Sequence[int]) -> Iterator[tuple[str, Any, list[Any]]]:
    """Give parts of a batch: what they are called, which rows, and the inputs."""
    batched = [inputs[k] for k in batch if k < len(inputs)]
    rows = {x.shape[0] for x in batched if isinstance(x, np.ndarray) and x.ndim}
    if len(rows) != 1:
        return
    (n,) = rows
    middle = slice(n // 2, n // 2 + 1)
    for name, part in (("a batch of 1", middle), ("a batch of 3", slice(0, 3))):
        if n > (part.stop - part.start):
            chosen = [x[part] if k in batch else x for k, x in enumerate(inputs)]
            yield name, part, chosen


def plain(inputs: Sequence[Any]) -> list[Any] | None:
    """Return the same arrays in C order, without gaps; None if they are so."""
    loose = [x for x in inputs if isinstance(x, np.ndarray) and not x.flags.c_contiguous]
    if not loose:
        return None
    return [np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in inputs]


def _column_major(x: Any) -> Any:
    if not isinstance(x, np.ndarray) or x.ndim < 2:
        return x
    turned = np.empty_like(x, order="F")
    for start in range(0, len(x), _STRIP):
        turned[start : start + _STRIP] = x[start : start + _STRIP]
    return turned


def misaligned(x: NDArray) -> NDArray:
    """Copy an array to memory that begins one element after where vectors do."""
    if x.dtype.hasobject:  # whose references NumPy keeps where it wants them
        return x.copy()
    memory = np.empty(x.nbytes + 2 * _VECTOR, np.uint8)
    start = -memory.ctypes.data % _VECTOR + x.itemsize
    shifted = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    shifted[...] = x
    return shifted
