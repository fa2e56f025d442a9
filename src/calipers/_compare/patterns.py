"""Patterns of mismatches: the region that they fill, transposes, shifts and permutations."""

import re
from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from typing import Any

import numpy as np

from .._core.protocols import NDArray
from .._kernels.accumulators import HIGHEST, LENGTH, LOWEST, STEP
from .statistics import PairStatistics

# Arrays of more elements are neither searched nor sorted: either takes a copy of the array (32 MiB
# of float64).
_MAX_SEARCHED = 1 << 22
_NAMES = {1: ("element",), 2: ("row", "column"), 3: ("plane", "row", "column")}

Close = Callable[[Any, Any], bool]
Each = Callable[[Any, Any], NDArray]
_Index = tuple[int, ...]


def region(tally: PairStatistics, *, with_share: bool = True) -> str:
    """Describe the rows, columns or planes that hold the mismatches, and the form they have."""
    axes = tally.axes
    n, mismatches = int(tally["size"]), int(tally["mismatches"])
    if mismatches == n:
        return "every element"
    names = _NAMES.get(len(axes)) or [f"index of axis {axis}" for axis in range(len(axes))]
    touched = [_touched(tally, axis) for axis in range(len(axes))]
    box = int(np.prod([len(indices) for indices in touched]))
    parts = [
        _indices(name, indices, int(axis[LENGTH]))
        for name, indices, axis in zip(names, touched, axes, strict=True)
        if len(indices) < axis[LENGTH]
    ]
    if mismatches == 1:
        return "one element"
    if mismatches < box or not parts:
        if not parts:
            return "all over the array"
        share = f" ({percent(mismatches, box)} of these elements)" if with_share else ""
        return ", ".join(parts) + share
    partial = [
        (indices, int(axis[LENGTH]))
        for indices, axis in zip(touched, axes, strict=True)
        if len(indices) < axis[LENGTH]
    ]
    form = _form(partial, len(axes))
    return f"{form}: {', '.join(parts)}" if form else ", ".join(parts)


def _touched(tally: PairStatistics, axis: int) -> range | NDArray:
    """Return the indices of an axis with mismatches; a range around them if not counted."""
    counts = tally.axis_counts(axis)
    low, high, step = (int(tally.axes[axis, column]) for column in (LOWEST, HIGHEST, STEP))
    evenly: range | NDArray = range(low, high + 1, max(step, 1))
    if step > 1 and low + step == high:
        evenly = np.array([low, high])  # two indices do not make a stride
    if counts is None:
        return evenly
    indices = np.flatnonzero(counts)
    return evenly if len(indices) == len(evenly) else indices


def _form(partial: list[tuple[Any, int]], ndim: int) -> str:
    """Return the name of a region in which all elements differ, or "" if it has none."""
    if not all(isinstance(indices, range) for indices, _ in partial):
        if ndim == 1:
            return ""
        return "whole" if len(partial) == 1 else "a grid"
    if any(indices.step > 1 for indices, _ in partial):
        return "a stripe"
    if len(partial) == 1:
        indices, length = partial[0]
        if indices.stop >= length:
            return "the tail"
        return "the head" if indices.start == 0 else "a block"
    return "a block"


def _indices(name: str, indices: range | NDArray, length: int) -> str:
    one, of, axis = name.partition(" of ")  # of more than three axes: "index of axis 3"
    several = "indices" if one == "index" else f"{one}s"
    if len(indices) == 1:
        return f"{one} {indices[0]}{of}{axis}"
    if not isinstance(indices, range):
        runs = np.split(indices, np.flatnonzero(np.diff(indices) > 1) + 1)
        some = ", ".join(
            f"{run[0]}:{run[-1] + 1}" if run.size > 1 else f"{run[0]}" for run in runs[:4]
        )
        more = ", ..." if len(runs) > 4 else ""
        return f"{several} {some}{more}{of}{axis} ({len(indices)} of {length})"
    step = f":{indices.step}" if indices.step > 1 else ""
    return f"{several} {indices.start}:{indices.stop}{step}{of}{axis}"


def percent(part: int, whole: int) -> str:
    """Format a percentage that is 0 only for none and 100 only for all."""
    if part in (0, whole):
        return "100 %" if part else "0 %"
    value = 100 * part / whole
    if value < 1e-4:
        return "<0.0001 %"
    text = f"{value:.3g}"
    return ">99.9 %" if text == "100" else f"{text} %"


@np.errstate(all="ignore")  # a signalling NaN of bfloat16 raises one
def arrangement(a: Any, b: Any, close: Close, each: Each | None) -> str | None:
    """
    Return the text of a rearrangement of `b` that equals `a`; None if none is recognised.

    `close` compares two arrays, and `each` their elements. It is None on a device, where arrays are
    viewed and sliced but not searched.
    """
    if a.shape != b.shape:
        if all(close(b[_cut(k, 1, None)], b[_cut(k, None, -1)]) for k in range(b.ndim)):
            return None  # constant arrays equal all their rearrangements
        return next((text for text, x, y in _reshaped(a, b) if close(x, y)), None)
    # `close` takes NaN as equal: arrays that differ only in NaN are not rearranged.
    if close(a, b):
        return None
    index = () if each is None else _largest(a)
    if each is not None and a.size <= _MAX_SEARCHED and not each(_repeated(a, index, b), b).any():
        # The element is nowhere in b; if a is shifted, the largest of b may still be in a.
        index = _largest(b)
        backwards = [_offsets(b, a, axis, index, each) for axis in range(b.ndim)]
        offsets = [[-k for k in ks] for ks in backwards]
        return _shift(a, b, offsets, close) or _sign_flips(a, b, close)
    offsets = [_offsets(a, b, axis, index, each) for axis in range(b.ndim)]
    for text, pairs in _rearrangements(a, b, offsets):
        if all(close(x, y) for x, y in pairs):
            return text
    shifted = _shift(a, b, offsets, close)
    if shifted is not None:
        return shifted
    if each is None or a.size > _MAX_SEARCHED:
        return None
    if a.ndim > 1:
        flat = a.reshape(-1), b.reshape(-1)
        index = (int(np.ravel_multi_index(index, a.shape)),)
        for text, pairs in _rolls(*flat, 0, _offsets(*flat, 0, index, each)):
            if all(close(x, y) for x, y in pairs):
                return text
    return _sign_flips(a, b, close) or _permutation(a, b, close)


def restored(text: str, actual: str, expected: str) -> tuple[str, str] | None:
    """Return expressions that align two arrays, from the text of their rearrangement, or None."""
    equation = text.partition(": ")[2]
    if " == " not in equation:
        return None
    left, right = equation.split(" == ")
    offset = re.search(r"i([+-]\d+)\]", right)
    if offset is not None:  # actual[i] and expected[i-k], where both exist
        k = -int(offset[1])
        slices = (f"{k}:]", f":{-k}]") if k > 0 else (f":{k}]", f"{-k}:]")
        left, right = left.replace("i]", slices[0]), right.replace(offset[0], slices[1])
    return left.replace("actual", actual), right.replace("expected", expected)


def _reshaped(a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield pairs of equal shape from arrays of different shapes, by transposes and reshape."""
    if a.ndim == b.ndim:
        for text, turned in _transposes(a, b):
            yield text, a, turned
    if a.size == b.size and _is_viewed(b):
        yield f"reshaped: actual == expected.reshape{a.shape}", a, b.reshape(a.shape)


def _transposes(a: Any, b: Any) -> Iterator[tuple[str, Any]]:
    """Yield all transposes of `b` that have the shape of `a`, with a text for each."""
    axes = tuple(range(b.ndim))
    orders: list[tuple[int, ...]] = []
    for i, j in reversed(list(combinations(axes, 2))):
        if b.shape[i] > 1 or b.shape[j] > 1:
            orders.append(tuple({i: j, j: i}.get(k, k) for k in axes))
    if b.ndim <= 5:  # at most 120 orders, and most fail at their first elements
        orders += [order for order in permutations(axes) if order not in orders]
    for order in orders:
        if order != axes and tuple(b.shape[k] for k in order) == tuple(a.shape):
            permuted = [k for k in axes if order[k] != k]
            text = f"axes permuted: actual == np.transpose(expected, {order})"
            if len(permuted) == 2:
                i, j = permuted
                text = f"axes {i} and {j} swapped: actual == np.swapaxes(expected, {i}, {j})"
            if b.ndim == 2:
                text = "transposed: actual == expected.T"
            yield text, b.transpose(*order)


def _rearrangements(
    a: Any, b: Any, offsets: list[list[int]]
) -> Iterator[tuple[str, list[tuple[Any, Any]]]]:
    for text, turned in _transposes(a, b):
        yield text, [(a, turned)]
    if b.ndim > 1 and b.size > max(b.shape):
        confused = "C and Fortran order confused: actual == expected.ravel"
        shape = a.shape
        turned_a, turned_b = (x.transpose(*reversed(range(x.ndim))) for x in (a, b))
        if _is_viewed(a):
            yield f"{confused}(order='F').reshape{shape}", [(a.reshape(turned_b.shape), turned_b)]
        if _is_viewed(b):
            text = f"{confused}().reshape({shape}, order='F')"
            yield text, [(turned_a, b.reshape(turned_a.shape))]
    for axis, n in enumerate(b.shape):
        if n > 2:
            text = f"reversed{_along(axis, b)}: actual == expected[{':, ' * axis}::-1]"
            yield text, [(a, b[_cut(axis, None, None, -1)])]
            yield from _rolls(a, b, axis, offsets[axis])


def _is_viewed(x: Any) -> bool:
    """Return True if reshaping x is a view, or a copy that is not too large."""
    if isinstance(x, np.ndarray):
        return bool(x.flags.c_contiguous) or x.size <= _MAX_SEARCHED
    return bool(x.is_c_contiguous())


def _largest(a: NDArray) -> _Index:
    """Return the index of the largest element in magnitude, which few others equal."""
    rows = max(1, _MAX_SEARCHED * len(a) // a.size)
    start = max(0, len(a) - rows) // 2
    part = a[start : start + rows]
    size = np.abs(part.astype(complex if a.dtype.kind == "c" else float))
    size[~np.isfinite(size)] = -1.0
    row, *others = (int(k) for k in np.unravel_index(int(size.argmax()), size.shape))
    return (start + row, *others)


def _repeated(a: NDArray, index: _Index, like: NDArray) -> NDArray:
    """Return one element of `a`, broadcast to the shape of another array."""
    return np.broadcast_to(a[index], like.shape)


def _offsets(a: Any, b: Any, axis: int, index: _Index, each: Each | None) -> list[int]:
    """Return the offsets by which `b` may be shifted along an axis to give `a`, smallest first.

    They are those at which the element at `index` of `a` occurs in `b`. Without `each`, they are
    one element and half of the axis in both directions.
    """
    n = b.shape[axis]
    if n < 3:
        return []
    if each is None:
        return [1, -1, n // 2, -(n // 2)]
    start = max(0, index[axis] - _MAX_SEARCHED // 2)
    line = b[(*index[:axis], slice(start, start + _MAX_SEARCHED), *index[axis + 1 :])]
    indices = start + np.flatnonzero(each(_repeated(a, index, line), line))
    half = (n - 1) // 2
    offsets = {int(index[axis] - j + half) % n - half for j in indices} - {0}
    # At most 64 offsets are tried: an element that occurs more often does not locate the shift.
    return sorted(offsets, key=lambda k: (abs(k), -k))[:64]


def _rolls(
    a: Any, b: Any, axis: int, offsets: list[int]
) -> Iterator[tuple[str, list[tuple[Any, Any]]]]:
    """Yield the pairs of slices that are equal if `a` is rolled along an axis."""
    n = b.shape[axis]
    for k in offsets:
        what = "halves swapped" if abs(k) == n // 2 > 1 else f"rolled by {k}{_along(axis, b)}"
        text = f"{what}: actual == np.roll(expected, {k}{f', axis={axis}' if b.ndim > 1 else ''})"
        first, rest = _cut(axis, None, k % n), _cut(axis, k % n, None)
        end, start = _cut(axis, n - k % n, None), _cut(axis, None, n - k % n)
        yield text, [(a[first], b[end]), (a[rest], b[start])]


def _shift(a: Any, b: Any, offsets: list[list[int]], close: Close) -> str | None:
    for axis, n in enumerate(b.shape):
        for k in offsets[axis] if n > 3 else ():
            before = ":, " * axis
            equal = f"actual[{before}i] == expected[{before}i{-k:+d}]"
            text = f"shifted by {k}{_along(axis, b)}: {equal}"
            late, early = _cut(axis, abs(k), None), _cut(axis, None, -abs(k))
            now, then = (late, early) if k > 0 else (early, late)
            # A shift explains nothing if the slices also agree without it.
            if close(a[now], b[then]) and not close(a[now], b[now]):
                return text
    return None


def _sign_flips(a: NDArray, b: NDArray, close: Close) -> str | None:
    """Return a text on rows or columns with flipped signs, as eigenvectors may have, or None."""
    if not (b.dtype.kind in "ifc" or b.dtype.name == "bfloat16") or not close(abs(a), abs(b)):
        return None
    if close(a, -b):
        return "negated: actual == -expected"
    if b.dtype.kind == "c" or b.ndim < 2:
        return None
    same = np.sign(a.astype(float)) * np.sign(b.astype(float))
    for axis in reversed(range(b.ndim)):
        others = tuple(k for k in range(b.ndim) if k != axis)
        flipped = same.sum(axis=others, keepdims=True) < 0
        if close(a, np.where(flipped, -b, b)):
            names = _NAMES.get(b.ndim) or [f"index of axis {k}" for k in range(b.ndim)]
            indices = _indices(names[axis], np.flatnonzero(flipped), b.shape[axis])
            return f"signs of {indices} flipped"
    return None


def _permutation(a: NDArray, b: NDArray, close: Close) -> str | None:
    """Return a text if `a` is a permutation of the elements of `b`, else None."""
    if a.dtype.kind not in "biuf":
        return None
    first, reference = np.sort(a, axis=None), np.sort(b, axis=None)
    # Arrays of at most two values, such as zeros and ones, agree in any order. So do values that
    # are within the tolerance of their neighbours, unless both arrays have exactly the same values.
    finite = reference[np.isfinite(reference)]
    if np.unique(finite).size > 2 and (
        np.array_equal(first, reference, equal_nan=True)
        or (close(first, reference) and not close(finite[1:], finite[:-1]))
    ):
        return "permuted: the same elements in another order"
    return None


def _cut(
    axis: int, start: int | None, stop: int | None, step: int | None = None
) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(start, stop, step))


def _along(axis: int, x: Any) -> str:
    return f" along axis {axis}" if x.ndim > 1 else ""
