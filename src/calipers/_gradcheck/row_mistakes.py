"""Recognize wrong blocks by their rows and columns: reordered, mixed or scaled."""

from collections.abc import Callable

import numpy as np

from .._core.protocols import NDArray
from .flatten import Segment

# Blocks are transposed: their rows are columns of the Jacobian, and are called so in messages.
AXIS_NAMES = ("column", "row")

CLOSE = 1e-3  # relative difference up to which columns or rows are taken for equal
ROUGHLY = 0.1  # relative difference up to which an error is explained by a claim
_LEAST = 3  # entries that have a common factor not by chance


def blocks_agree(one: NDArray, other: NDArray) -> bool:
    """Return True if two blocks agree up to a share of the largest entry."""
    size = np.abs(other).max(initial=0.0)
    return bool(np.all(np.abs(one - other) <= CLOSE * size))


def explains(claim: NDArray, analytic: NDArray, expected: NDArray, at: tuple[int, ...]) -> bool:
    """Return True if a claim explains the error at an index, which may be smaller than others."""
    return bool(abs(analytic[at] - claim[at]) <= ROUGHLY * abs(analytic[at] - expected[at]))


def row_or_column_mistake(
    analytic: NDArray, expected: NDArray, out: Segment, part: Segment, at: tuple[int, int]
) -> str | None:
    """Describe a mistake in the rows or columns of a block that explains its error at an index."""
    if blocks_agree(analytic, expected) or not (
        np.isfinite(analytic).all() and np.isfinite(expected).all()
    ):
        return None
    with np.errstate(all="ignore"):  # nothing is reported if products overflow
        return (
            reordered(analytic, expected, out, part, at)
            or mixed(analytic, expected, out, part)
            or multiples(analytic, expected, out, part, at)
        )


def reordered(
    analytic: NDArray, expected: NDArray, out: Segment, part: Segment, at: tuple[int, int]
) -> str | None:
    """Recognize rows or columns in a different order."""
    for axis, (name, segment) in enumerate(zip(AXIS_NAMES, (part, out), strict=True)):
        a, b = (analytic, expected) if axis == 0 else (analytic.T, expected.T)
        weights = np.random.default_rng(0).standard_normal(a.shape[1])
        order, source = np.argsort(a @ weights), np.argsort(b @ weights)
        permuted = np.empty_like(a)
        permuted[order] = b[source]
        if not blocks_agree(a, permuted) or not explains(
            permuted, a, b, at if axis == 0 else at[::-1]
        ):
            continue
        displaced = np.abs(a - b).max(axis=1) > CLOSE * np.abs(b).max()
        several = b[source[displaced[source]]]  # equal rows have no order
        gaps = np.abs(np.diff(several, axis=0)).max(axis=1)
        if len(several) < 2 or gaps.min() <= CLOSE * np.abs(b).max():
            continue
        how = _order(a, b, segment)
        if how or b.shape[1] > 1:  # single numbers may be equal by chance
            each = f"one for each element of {segment.label}"
            return f"it has the right {name}s, {each}, in a different order{how}"
    return None


def _order(analytic: NDArray, expected: NDArray, segment: Segment) -> str:
    """Describe an order of rows that is reversed or shifted by one."""
    shape = segment.example.shape
    if segment.example.dtype.kind == "c":
        return ""
    indices = np.arange(len(expected)).reshape(shape)
    for axis in range(len(shape)):
        along = f" along axis {axis}" if len(shape) > 1 else ""
        if blocks_agree(analytic, expected[np.flip(indices, axis).ravel()]):
            return f": reversed{along}"
        for by in (1, -1):
            if blocks_agree(analytic, expected[np.roll(indices, by, axis).ravel()]):
                return f": shifted by one{along}"
    return ""


def mixed(analytic: NDArray, expected: NDArray, out: Segment, part: Segment) -> str | None:
    """Recognize axes along which elements should not depend on each other."""
    more, less = _axes(analytic, expected, out, part)
    if not more:
        return None
    if less:
        return f"it mixes elements along {_named(more)}, and f along {_named(less)}"
    return f"it mixes elements along {_named(more)}, which f does not"


def _axes(
    analytic: NDArray, expected: NDArray, out: Segment, part: Segment
) -> tuple[list[int], list[int]]:
    """Return the axes along which only the analytic block, or only the expected one, mixes."""
    a, b = part.example, out.example
    more: list[int] = []
    less: list[int] = []
    if a.ndim != b.ndim or a.ndim < 2 or "c" in (a.dtype.kind, b.dtype.kind):
        return more, less
    for axis, (n, m) in enumerate(zip(a.shape, b.shape, strict=True)):
        if n != m or n == 1:
            continue
        rows, columns = (np.indices(p.shape)[axis].ravel() for p in (a, b))
        off_axis = rows[:, None] != columns
        # Elements without dependence do not change at all: their entries are exactly 0.
        mixed_analytic, mixed_expected = (
            analytic.astype(bool) & off_axis,
            expected.astype(bool) & off_axis,
        )
        if not mixed_expected.any() and 2 * np.count_nonzero(mixed_analytic.any(axis=0)) >= b.size:
            more.append(axis)
        if mixed_expected.any() and not mixed_analytic.any():
            less.append(axis)
    return more, less


def _named(axes: list[int]) -> str:
    return ("axis " if len(axes) == 1 else "axes ") + " and ".join(map(str, axes))


def multiples(
    analytic: NDArray, expected: NDArray, out: Segment, part: Segment, at: tuple[int, int]
) -> str | None:
    """Recognize rows or columns that have a factor each."""
    for axis, segment in enumerate((part, out)):
        a, b = (analytic, expected) if axis == 0 else (analytic.T, expected.T)
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
        what = _values_in(factors, np.ravel(segment.example), there)
        one = (
            f"d {out.label} / d {part.label}[k]"
            if axis == 0
            else f"d {out.label}[k] / d {part.label}"
        )
        if what:
            return f"{one} is the right one {what.format(f'{segment.label}[k]')}, for each index k"
        wrong = np.abs(factors - 1) > CLOSE
        counts = np.count_nonzero(np.abs(b) > CLOSE * np.abs(b).max(axis=1, keepdims=True), axis=1)
        if np.sum(counts[wrong] - 1) < _LEAST or np.count_nonzero(counts[wrong] > 1) < 2:
            continue
        low, high = factors.min(), factors.max()
        return (
            f"a factor that depends on the element of {segment.label} is missing or wrong (between "
            f"{low:.3g} and {high:.3g})"
        )
    return None


def _among(there: NDArray, at: tuple[int, ...]) -> tuple[int, ...]:
    """Return an index among the rows that are there."""
    return int(np.count_nonzero(there[: at[0]])), at[1]


_POWERS: dict[str, Callable[[NDArray], NDArray]] = {
    "times {}": lambda x: x,
    "divided by {}": lambda x: 1 / x,
    "times exp({})": np.exp,
    "divided by exp({})": lambda x: np.exp(-x),
}


def _values_in(factors: NDArray, values: NDArray, there: NDArray) -> str:
    """Recognize factors that are a function of an input or output, or return ""."""
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
    """Return True if of several outputs of each input only the last has an entry."""
    count, last = every.shape[1], every[:, ::-1].argmax(axis=1)
    several = np.count_nonzero(every, axis=1) > 1
    last_only = np.zeros_like(every)
    last_only[np.arange(len(every)), count - 1 - last] = every.any(axis=1)
    distinct = len(set((count - 1 - last)[several])) > 1
    diagonal = every.shape[0] == count and not last_only[~np.eye(count, dtype=bool)].any()
    return bool(
        np.count_nonzero(several) > 1
        and distinct
        and not diagonal
        and np.array_equal(last_only, there)
    )
