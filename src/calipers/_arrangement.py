"""Where mismatches lie, and whether one array holds the other's elements in other places."""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np

from ._kernels.places import HIGHEST, LENGTH, LOWEST, STEP
from ._protocols import NDArray
from ._tally import Tally

# Sorting needs a copy of each array; beyond this many elements it is not tried.
_SORTED = 1 << 22
_NAMES = {1: ("element",), 2: ("row", "column"), 3: ("plane", "row", "column")}

Close = Callable[[Any, Any], bool]


def region(tally: Tally) -> str:
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
        where = f"{', '.join(parts) or 'all over'}"
        return f"{where} ({percent(mismatches, box)} of these elements)"
    partial = [
        (indices, int(axis[LENGTH]))
        for indices, axis in zip(touched, axes, strict=True)
        if len(indices) < axis[LENGTH]
    ]
    form = _form(partial, len(axes))
    return f"{form}: {', '.join(parts)}" if form else ", ".join(parts)


def _touched(tally: Tally, axis: int) -> range | NDArray:
    """Return the indices of an axis that have mismatches; if not counted, those that may."""
    counts = tally.axis_counts(axis)
    low, high, step = (int(tally.axes[axis, column]) for column in (LOWEST, HIGHEST, STEP))
    evenly: range | NDArray = range(low, high + 1, max(step, 1))
    if step > 1 and low + step == high:
        evenly = np.array([low, high])  # two indices are no pattern
    if counts is None:
        return evenly
    indices = np.flatnonzero(counts)
    return evenly if len(indices) == len(evenly) else indices


def _form(partial: list[tuple[Any, int]], ndim: int) -> str:
    """Name what is completely filled."""
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
    one, of, axis = name.partition(" of ")  # of more than three axes, which have no names
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
    """Write a percentage that is 0 only for none and 100 only for all."""
    if part in (0, whole):
        return "100 %" if part else "0 %"
    value = 100 * part / whole
    if value < 1e-4:
        return "<0.0001 %"
    text = f"{value:.3g}"
    return ">99.9 %" if text == "100" else f"{text} %"


@np.errstate(all="ignore")  # a signalling NaN of bfloat16 raises one
def arrangement(a: Any, b: Any, close: Close) -> str | None:
    """
    Say by which rearrangement of `b` its elements come to lie as in `a`, if by one.

    Arrays on a device are viewed and sliced as NumPy's are; they are not sorted.
    """
    # Where all that differs is NaN at the same places, they agree as they lie.
    if close(a, b):
        return None
    for text, pairs in _rearrangements(a, b):
        if all(close(x, y) for x, y in pairs):
            return text
    for text, now, then in _shifts(b):
        # Where the two agree as they lie, a shift explains nothing.
        if close(a[now], b[then]) and not close(a[now], b[now]):
            return text
    if isinstance(a, np.ndarray) and a.size <= _SORTED and a.dtype.kind in "biuf":
        own, reference = np.sort(a, axis=None), np.sort(b, axis=None)
        # Few values, zeros and ones say, agree with their like in any order. So do those that lie
        # so densely that each agrees with the next, unless they are the very same.
        finite = reference[np.isfinite(reference)]
        if np.unique(finite).size > 2 and (
            np.array_equal(own, reference, equal_nan=True)
            or (close(own, reference) and not close(finite[1:], finite[:-1]))
        ):
            return "a permutation of expected"
    return None


def _rearrangements(a: Any, b: Any) -> Iterator[tuple[str, list[tuple[Any, Any]]]]:
    for i, j in reversed(list(combinations(range(b.ndim), 2))):
        if b.shape[i] == b.shape[j] > 1:
            swapped = f"expected, its axes {i} and {j} swapped"
            text = "the transpose of expected" if b.ndim == 2 else swapped
            order = list(range(b.ndim))
            order[i], order[j] = j, i
            yield text, [(a, b.transpose(*order))]
    if b.ndim > 1 and _in_c_order(a) and b.size > max(b.shape):
        turned = b.transpose(*reversed(range(b.ndim)))
        yield "expected, laid out in the other order", [(a.reshape(turned.shape), turned)]
    for axis, n in enumerate(b.shape):
        if n > 2:
            yield f"expected, reversed{_along(axis, b)}", [(a, b[_cut(axis, None, None, -1)])]
        for half in {n // 2, n - n // 2} if n > 3 else ():
            first, rest = _cut(axis, None, n - half), _cut(axis, n - half, None)
            pairs = [(a[first], b[_cut(axis, half, None)]), (a[rest], b[_cut(axis, None, half)])]
            yield f"expected, its halves swapped{_along(axis, b)}", pairs


def _in_c_order(a: Any) -> bool:
    return bool(a.flags.c_contiguous if isinstance(a, np.ndarray) else a.is_c_contiguous())


def _shifts(b: Any) -> Iterator[tuple[str, Any, Any]]:
    for axis, n in enumerate(b.shape):
        if n > 3:
            later, earlier = _cut(axis, 1, None), _cut(axis, None, -1)
            yield f"expected, one index too late{_along(axis, b)}", later, earlier
            yield f"expected, one index too early{_along(axis, b)}", earlier, later


def _cut(
    axis: int, start: int | None, stop: int | None, step: int | None = None
) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(start, stop, step))


def _along(axis: int, x: Any) -> str:
    return f" along axis {axis}" if x.ndim > 1 else ""
