"""What rows and columns of a wrong block have in common with those of the right one."""

from collections.abc import Callable

import numpy as np

from .._core.protocols import NDArray
from .flatten import Part

# Blocks have a row for each number of the input, a column of the Jacobian: the names of lines are
# those that the Jacobian has.
LINES = ("column", "row")

CLOSE = 1e-3  # relative difference up to which columns or rows are taken for equal
ROUGHLY = 0.1  # relative difference up to which an error is explained by a claim
_LEAST = 3  # numbers that are multiples of what they should be by no chance


def alike(own: NDArray, other: NDArray) -> bool:
    size = np.abs(other).max(initial=0.0)
    return bool(np.all(np.abs(own - other) <= CLOSE * size))


def explains(claim: NDArray, own: NDArray, right: NDArray, at: tuple[int, ...]) -> bool:
    """Whether an error at a place, which may be small beside others, is that of a claim, too."""
    return bool(abs(own[at] - claim[at]) <= ROUGHLY * abs(own[at] - right[at]))


def lines_of(
    own: NDArray, right: NDArray, out: Part, part: Part, at: tuple[int, int]
) -> str | None:
    """Say what lines of a block that is wrong at a place are like, if all of its numbers are."""
    if alike(own, right) or not (np.isfinite(own).all() and np.isfinite(right).all()):
        return None
    with np.errstate(all="ignore"):  # beyond the range of numbers there is nothing to be told
        return (
            reordered(own, right, out, part, at)
            or mixed(own, right, out, part)
            or multiples(own, right, out, part, at)
        )


def reordered(
    own: NDArray, right: NDArray, out: Part, part: Part, at: tuple[int, int]
) -> str | None:
    """Say that all rows or columns are there, in another order."""
    for axis, (name, side) in enumerate(zip(LINES, (part, out), strict=True)):
        a, b = (own, right) if axis == 0 else (own.T, right.T)
        weights = np.random.default_rng(0).standard_normal(a.shape[1])
        order, source = np.argsort(a @ weights), np.argsort(b @ weights)
        found = np.empty_like(a)
        found[order] = b[source]
        if not alike(a, found) or not explains(found, a, b, at if axis == 0 else at[::-1]):
            continue
        moved = np.abs(a - b).max(axis=1) > CLOSE * np.abs(b).max()
        several = b[source[moved[source]]]  # of lines that are alike the order says nothing
        apart = np.abs(np.diff(several, axis=0)).max(axis=1)
        if len(several) < 2 or apart.min() <= CLOSE * np.abs(b).max():
            continue
        how = _order(a, b, side)
        if how or b.shape[1] > 1:  # single numbers may be others that happen to be as large
            each = f"one for each element of {side.label}"
            return f"it has the right {name}s, {each}, in a different order{how}"
    return None


def _order(own: NDArray, right: NDArray, side: Part) -> str:
    """Say that lines are in reverse order, or shifted by one."""
    shape = side.example.shape
    if side.example.dtype.kind == "c":
        return ""
    places = np.arange(len(right)).reshape(shape)
    for axis in range(len(shape)):
        along = f" along axis {axis}" if len(shape) > 1 else ""
        if alike(own, right[np.flip(places, axis).ravel()]):
            return f": reversed{along}"
        for by in (1, -1):
            if alike(own, right[np.roll(places, by, axis).ravel()]):
                return f": shifted by one{along}"
    return ""


def mixed(own: NDArray, right: NDArray, out: Part, part: Part) -> str | None:
    """Say along which axes elements depend on one another that should not."""
    more, less = _axes(own, right, out, part)
    if not more:
        return None
    if less:
        return f"it mixes elements along {_named(more)}, and f along {_named(less)}"
    return f"it mixes elements along {_named(more)}, which f does not"


def _axes(own: NDArray, right: NDArray, out: Part, part: Part) -> tuple[list[int], list[int]]:
    """Return the axes along which what is claimed mixes elements, and those of the right one."""
    a, b = part.example, out.example
    more: list[int] = []
    less: list[int] = []
    if a.ndim != b.ndim or a.ndim < 2 or "c" in (a.dtype.kind, b.dtype.kind):
        return more, less
    for axis, (n, m) in enumerate(zip(a.shape, b.shape, strict=True)):
        if n != m or n == 1:
            continue
        rows, columns = (np.indices(p.shape)[axis].ravel() for p in (a, b))
        beside = rows[:, None] != columns
        # What does not depend on an element stays as it is, to the last digit.
        claimed, known = own.astype(bool) & beside, right.astype(bool) & beside
        if not known.any() and 2 * np.count_nonzero(claimed.any(axis=0)) >= b.size:
            more.append(axis)
        if known.any() and not claimed.any():
            less.append(axis)
    return more, less


def _named(axes: list[int]) -> str:
    return ("axis " if len(axes) == 1 else "axes ") + " and ".join(map(str, axes))


def multiples(
    own: NDArray, right: NDArray, out: Part, part: Part, at: tuple[int, int]
) -> str | None:
    """Say that each row or column is a multiple of what it should be, by a factor of its own."""
    for axis, side in enumerate((part, out)):
        a, b = (own, right) if axis == 0 else (own.T, right.T)
        there = np.asarray(b.any(axis=1))
        if a[~there].any():
            continue
        a, b = a[there], b[there]
        factors = np.einsum("ij,ij->i", a, b) / np.einsum("ij,ij->i", b, b)
        claim = factors[:, None] * b
        sizes = np.abs(claim).max(axis=1, initial=0.0, keepdims=True)
        if not np.all(np.isfinite(factors)) or np.any(np.abs(a - claim) > CLOSE * sizes):
            continue
        if not explains(claim, a, b, _among(there, at[:: 1 - 2 * axis])):
            continue
        what = _values_in(factors, np.ravel(side.example), there)
        one = (
            f"d {out.label} / d {part.label}[k]"
            if axis == 0
            else f"d {out.label}[k] / d {part.label}"
        )
        if what:
            return f"{one} is the right one {what.format(f'{side.label}[k]')}, for each index k"
        wrong = np.abs(factors - 1) > CLOSE
        counts = np.count_nonzero(np.abs(b) > CLOSE * np.abs(b).max(axis=1, keepdims=True), axis=1)
        if np.sum(counts[wrong] - 1) < _LEAST or np.count_nonzero(counts[wrong] > 1) < 2:
            continue
        low, high = factors.min(), factors.max()
        return (
            f"a factor that depends on the element of {side.label} is missing or wrong (between "
            f"{low:.3g} and {high:.3g})"
        )
    return None


def _among(there: NDArray, at: tuple[int, ...]) -> tuple[int, ...]:
    """Return a place where only some lines are left."""
    return int(np.count_nonzero(there[: at[0]])), at[1]


_POWERS: dict[str, Callable[[NDArray], NDArray]] = {
    "times {}": lambda x: x,
    "divided by {}": lambda x: 1 / x,
    "times exp({})": np.exp,
    "divided by exp({})": lambda x: np.exp(-x),
}


def _values_in(factors: NDArray, values: NDArray, there: NDArray) -> str:
    """Say that factors are what an input or output is, or go with it, if that is no chance."""
    if values.dtype.kind == "c" or len(values) != len(there) or len(factors) < _LEAST:
        return ""
    values = values[there].astype(float)
    if np.ptp(factors) <= ROUGHLY * np.abs(factors).max():
        return ""
    with np.errstate(all="ignore"):
        for text, function in _POWERS.items():
            if np.all(np.abs(factors - function(values)) <= CLOSE * np.abs(factors)):
                return text
    return ""


def assigned(there: NDArray, every: NDArray) -> bool:
    """Whether of what each input gives to several outputs only the last is there."""
    count, last = every.shape[1], every[:, ::-1].argmax(axis=1)
    several = np.count_nonzero(every, axis=1) > 1
    kept = np.zeros_like(every)
    kept[np.arange(len(every)), count - 1 - last] = every.any(axis=1)
    distinct = len(set((count - 1 - last)[several])) > 1
    diagonal = every.shape[0] == count and not kept[~np.eye(count, dtype=bool)].any()
    return bool(
        np.count_nonzero(several) > 1 and distinct and not diagonal and np.array_equal(kept, there)
    )
