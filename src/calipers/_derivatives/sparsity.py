"""Sparsity patterns of Jacobians: detection, and verification against f."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._kernels.differences import NONFINITE
from .adaptive import lengths_of
from .coloring import Coloring, StarColoring, decompress, product, small
from .fixed_step import Columns
from .function import Problem
from .options import Options
from .solve import steps_of
from .steps import METHODS, Steps

_DETECTION_POINTS = 3  # points at which a pattern is detected
_BLOCK_BYTES = 1 << 24  # bytes of rows of the Jacobian that are in memory at a time
_BLOCK_ROWS = 1 << 14  # rows that are verified at a time: new memory costs more than arithmetic
_ROUNDING_EPS = 64.0  # times eps of f
_REPETITION_FACTOR = 16.0  # times that f differs from itself
# Mismatches, as shares of a row's magnitude, that show or suggest missing entries.
_CERTAIN_SHARE, _POSSIBLE_SHARE = 1e-3, 1e-5
_MAX_CERTAIN_ROWS = 32  # rows, of those along which f changes by more than a pattern allows
_MAX_POSSIBLE_ROWS = 4  # of those which may do so, or be noisy


@dataclass(frozen=True)
class Pattern:
    """The pattern of nonzeros in CSC form, with its coloring; its arrays become read-only."""

    indptr: NDArray
    indices: NDArray
    shape: tuple[int, int]
    coloring: Coloring

    def __post_init__(self) -> None:
        self.indptr.flags.writeable = self.indices.flags.writeable = False

    @cached_property
    def row_lengths(self) -> NDArray:
        """The number of entries of each row."""
        return np.bincount(self.indices, minlength=self.shape[0])

    def split(self, levels: NDArray) -> "Pattern":
        """Return the same pattern with each color split by the levels of its columns."""
        pairs = np.stack((self.coloring.colors.astype(np.intp), levels))
        unique, colors = np.unique(pairs, axis=1, return_inverse=True)
        count = unique.shape[1]
        coloring = replace(self.coloring, colors=small(colors.reshape(-1), count), count=count)
        return replace(self, coloring=coloring)

    def sources(self) -> tuple[NDArray, NDArray, NDArray]:
        """Return the row, the color and the perturbed column by which each entry is computed."""
        columns = np.repeat(np.arange(self.shape[1]), np.diff(self.indptr))
        rows = self.indices
        if isinstance(self.coloring, StarColoring):
            mirrored = self.coloring.mirrored
            rows, columns = np.where(mirrored, columns, rows), np.where(mirrored, rows, columns)
        return rows, self.coloring.colors[columns], columns

    def recover(
        self,
        differences: NDArray,
        weight: NDArray,
        data: NDArray,
        accumulate: bool,
        below: NDArray | None,
    ) -> None:
        """Compute the entries, or add to them, from differences by color; see `decompress`."""
        if isinstance(self.coloring, StarColoring):
            row, color, column = self.sources()
            with np.errstate(all="ignore"):
                change = differences[color, row]
                change = (change if below is None else change - below[row]) * weight[column]
                data[:] = data + change if accumulate else change
            return
        pattern = self.indptr, self.indices, self.coloring.colors
        decompress(*pattern, differences, weight, data, accumulate, below)

    def explains(self, differences: NDArray, weight: NDArray, data: NDArray) -> bool:
        """Return True if all differences by color are in the entries recovered from them."""
        alone = not isinstance(self.coloring, StarColoring) and bool(np.isfinite(weight).all())
        return alone and np.count_nonzero(differences) == np.count_nonzero(data)


class EntriesByColor:
    """Indices of the entries of a matrix by color."""

    def __init__(self, color: NDArray, count: int) -> None:
        self._order = np.argsort(color, kind="stable")
        self._starts = np.searchsorted(color[self._order], np.arange(count + 1))

    def indices(self, first: int, count: int) -> NDArray:
        """Return the indices of the entries of `count` colors from `first`."""
        return self._order[self._starts[first] : self._starts[first + count]]


class UnexpectedRows:
    """
    Rows that respond to a color although the pattern has no entry for it.

    A row that does not depend on the columns of a color is bitwise unchanged: any change shows an
    entry that is missing from the pattern, however small.
    """

    def __init__(self, pattern: Pattern, base: NDArray, eps: float) -> None:
        self._pattern, self._base, self._eps = pattern, base, eps
        self._count = pattern.coloring.count
        self.rows = np.zeros(pattern.shape[0], bool)

    @cached_property
    def _color(self) -> NDArray:
        return np.repeat(self._pattern.coloring.colors, np.diff(self._pattern.indptr))

    @cached_property
    def _entries(self) -> EntriesByColor:
        return EntriesByColor(self._color, self._count)

    @cached_property
    def _noise(self) -> NDArray:
        return np.asarray(_ROUNDING_EPS * self._eps * np.abs(self._base.astype(float)))

    def observe(self, first: int, changes: NDArray, least: NDArray | None = None) -> None:
        """Record rows whose changes by colors from `first` exceed `least`, or rounding."""
        whole = len(changes) == self._count
        entries = slice(None) if whole else self._entries.indices(first, len(changes))
        outside = changes != 0
        color, rows = self._color[entries] - first, self._pattern.indices[entries]
        outside.put(np.multiply(color, outside.shape[1], dtype=np.intp) + rows, False)
        if outside.any():
            with np.errstate(all="ignore"):
                sizes = np.where(outside, np.abs(changes), 0.0)
                self.rows |= (sizes > (self._noise if least is None else least)).any(axis=0)


def detect(problem: Problem, options: Options, symmetric: bool) -> tuple[NDArray, NDArray, int]:
    """
    Return the pattern of the nonzero differences at x and at points near it.

    The number of calls of f comes with it.
    """
    random = np.random.default_rng(0)
    m, n = problem.base.size, problem.coordinates
    bounds = options.bounds
    wide = Options(method="2-point", bounds=bounds)
    limits = steps_of(problem, wide)
    keys = [np.empty(0, np.int64)]
    calls = 0
    for k in range(_DETECTION_POINTS):
        x = problem.x
        if k:
            x = x * (1 + 2.0**-8 * random.uniform(-1, 1, x.shape)) + (x == 0) * random.uniform(
                -(2.0**-8), 2.0**-8, x.shape
            )
            if limits.lows.size:
                shape = x.shape
                x = np.clip(x, limits.lows.reshape(shape), limits.highs.reshape(shape))
        near = problem.with_point(x.astype(problem.x.dtype), problem.before, problem.after, True)
        steps = steps_of(near, wide)
        work = Columns(near, steps)
        calls += 1
        step = max(1, _BLOCK_BYTES // max(1, m * problem.base.itemsize))
        for start in range(0, n, step):
            count = min(step, n - start)
            outs = work.results(count)
            work(start, outs)
            calls += count
            column, row = np.nonzero(outs[0])  # NaN is not zero
            keys.append((start + column) * m + row)
            if symmetric:  # and the mirrored entries
                keys.append(row * m + start + column)
    entries = np.unique(np.concatenate(keys))
    column, row = np.divmod(entries, max(m, 1))
    index = np.int32 if max(m, entries.size) < 2**31 else np.int64
    indptr = np.zeros(n + 1, index)
    np.cumsum(np.bincount(column, minlength=n), out=indptr[1:])
    return indptr, row.astype(index), calls


def verify(
    problem: Problem,
    steps: Steps,
    pattern: Pattern,
    unexpected: UnexpectedRows,
    data: NDArray,
    errors: NDArray,
    points: NDArray,
    status: NDArray,
) -> int:
    """
    Raise ValueError if f changes along a random direction by more than its pattern allows.

    Or in rows that were seen to change with columns that they do not have, the `unexpected`.
    What the derivatives predict is not exact. Where f differs from it, by how much it may be wrong
    is seen from their estimated errors, if there are any, and from f itself: what halving the
    displacement does to the odd part of its change and, if differences were taken to one side, the
    even part. What still looks like a missing entry, at a kink or in noise, is asked for by itself.
    Return how often f was called.
    """
    m, n = pattern.shape
    length = pattern.row_lengths
    if np.all(length == n):
        return 0
    random = np.random.default_rng(0)
    shift = _displacements(problem, steps, points)
    sign = random.uniform(-0.5, 0.5, n)
    shift *= sign + np.copysign(1.0, sign)
    shift[status > NONFINITE] = 0.0
    central = True
    if steps.lows.size:
        shift, central = _within(as_real_vector(problem.x).astype(float), shift, steps)
    if data.dtype.char not in "fd":
        data = data.astype(float)
    base = problem.base.astype(float, copy=False)
    calls = 2 if central else 1
    with np.errstate(all="ignore"):
        above, below, displacement = _displaced_values(problem, steps, shift, central)
        predicted, scale = product(pattern.indptr, pattern.indices, data, displacement, m)
        values = above, below, base, length, predicted, scale
        if not (unexpected.rows.any() or _any_differs(*values, steps.eps)):
            return calls
        change = above - below
        above_half, below_half, _ = _displaced_values(problem, steps, shift / 2, central)
        calls *= 2
        half = above_half - below_half
        bent = np.abs(change - 2 * half)
        even = central * np.abs(above + below - 2 * base)
        unsure = np.where(np.isfinite(errors), errors, 0).astype(data.dtype)
        doubt = product(pattern.indptr, pattern.indices, unsure, np.abs(displacement), m)[0]
        noise = _noise_of_rows(above, below, base, length, steps.eps)
        surely = _CERTAIN_SHARE * scale + 4 * (bent + even + doubt) + noise
        one_sided = not central or (steps.method in METHODS and steps.one_sided)
        allowed = _POSSIBLE_SHARE * scale + 4 * (bent + one_sided * even + doubt) + noise
        missing = np.abs(change - predicted) > allowed
        missing &= np.abs(2 * half - predicted) > allowed
    missing = (missing | unexpected.rows) & (length < n)
    if missing.any():
        rows = np.flatnonzero(missing)
        with np.errstate(all="ignore"):
            excess = np.fmax(np.abs(change - predicted)[rows] / surely[rows], 0.0)
        excess[unexpected.rows[rows]] = np.inf
        order = np.argsort(-excess, kind="stable")
        rows = rows[
            order[: max(_MAX_POSSIBLE_ROWS, min(_MAX_CERTAIN_ROWS, np.count_nonzero(excess > 1)))]
        ]
        calls += 2 + len(rows)
        rows = np.sort(_depending_on_other_columns(problem, steps, pattern, shift, rows))
        if not len(rows):
            return calls
        more = ", ..." if len(rows) > 5 else ""
        msg = (  # one random direction need not show all of them
            f"sparsity misses entries in {len(rows)} or more rows "
            f"({', '.join(map(str, rows[:5]))}{more}): f depends there on columns that the "
            "pattern lacks; add them, or pass sparsity='detect'"
        )
        raise ValueError(msg)
    return calls


def _any_differs(
    above: NDArray,
    below: NDArray,
    base: NDArray,
    length: NDArray,
    predicted: NDArray,
    scale: NDArray,
    eps: float,
) -> bool:
    """Return True if the change of some row is not the predicted one: only such a row is wrong."""
    for start in range(0, len(base), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        noise = _noise_of_rows(above[rows], below[rows], base[rows], length[rows], eps)
        difference = np.abs(above[rows] - below[rows] - predicted[rows])
        if (difference > _POSSIBLE_SHARE * scale[rows] + noise).any():
            return True
    return False


def _noise_of_rows(
    above: NDArray, below: NDArray, base: NDArray, length: NDArray, eps: float
) -> NDArray:
    """Return the rounding error of the change of each row, by its number of entries."""
    size = np.maximum(np.abs(above), np.maximum(np.abs(below), np.abs(base)))
    return np.asarray(_ROUNDING_EPS * eps * size * (2 + length))


def _displaced_values(
    problem: Problem, steps: Steps, shift: NDArray, central: bool
) -> tuple[NDArray, NDArray, NDArray]:
    """Return f at x + shift and at x - shift, or x, and the distance of the two points."""
    top = _displaced(problem, steps, shift)
    if central:
        bottom = _displaced(problem, steps, -shift)
        above, below = problem.at_each((top, bottom))
    else:
        bottom, below = as_real_vector(problem.x), problem.base
        above = problem.at(top)
    above, below, top, bottom = (a.astype(float, copy=False) for a in (above, below, top, bottom))
    return above, below, top - bottom


def _displaced(problem: Problem, steps: Steps, shift: NDArray) -> NDArray:
    """Return x + shift in x's dtype, within the bounds."""
    x = as_real_vector(problem.x)
    point = x.astype(float, copy=False) + shift
    if steps.lows.size:  # rounding may exceed the bounds
        point = np.clip(point, steps.lows, steps.highs)
    return point.astype(x.dtype, copy=False)


def _within(x: NDArray, shift: NDArray, steps: Steps) -> tuple[NDArray, bool]:
    """
    Return the shifts that stay within the bounds, and whether the opposite shifts do, too.

    If one does not, its change would count as an even part and hide missing entries: then all
    shifts are one-sided.
    """
    forth, back = steps.highs - x, x - steps.lows
    far = np.abs(shift)
    if np.all(far <= np.minimum(forth, back)):
        return shift, True
    distance = np.where(shift > 0, forth, back)
    ahead = np.where(far <= distance, shift > 0, forth >= back)
    far = np.minimum(far, np.where(ahead, forth, back))
    return np.where(ahead, far, -far), False


def _depending_on_other_columns(
    problem: Problem, steps: Steps, pattern: Pattern, shift: NDArray, rows: NDArray
) -> NDArray:
    """
    Return the rows that change if only columns without an entry in them are perturbed.

    A row that does not depend on them is bitwise unchanged, unless f is nondeterministic, or rounds
    all its values together, as a Fourier transform does.
    """
    columns = np.repeat(np.arange(pattern.shape[1]), np.diff(pattern.indptr))
    with np.errstate(all="ignore"):
        least = _REPETITION_FACTOR * np.abs(problem.at(as_real_vector(problem.x)) - problem.base)
        least = np.fmax(least, _rounding(problem, steps, pattern, shift))
    indices = []
    for row in rows:
        far = shift.copy()
        far[columns[pattern.indices == row]] = 0.0
        value, base = problem.at(_displaced(problem, steps, far))[row], problem.base[row]
        same = value == base or (np.isnan(value) and np.isnan(base))
        if not (same or abs(value - base) <= least[row]):
            indices.append(row)
    return np.array(indices, dtype=np.intp)


def _rounding(problem: Problem, steps: Steps, pattern: Pattern, shift: NDArray) -> NDArray:
    """Return the rounding error of each row; the largest for all if f rounds its rows together."""
    m, n = pattern.shape
    usual = np.median(pattern.row_lengths)
    some = np.random.default_rng(1).random(n) < 1 / (1 + usual)  # a third of the rows have none
    columns = np.repeat(np.arange(n), np.diff(pattern.indptr))
    free = np.bincount(pattern.indices, some[columns], m) == 0
    value = problem.at(_displaced(problem, steps, np.where(some, shift, 0.0)))
    rounding: NDArray = _ROUNDING_EPS * steps.eps * np.abs(problem.base.astype(float))
    if 2 * np.count_nonzero(free & (value != problem.base)) > np.count_nonzero(free):
        rounding = np.full(m, np.nanmax(rounding, initial=0.0))
    return rounding


@np.errstate(all="ignore")
def _displacements(problem: Problem, steps: Steps, points: NDArray) -> NDArray:
    """Return the step of each coordinate's derivative; the check uses slightly longer ones."""
    x = as_real_vector(problem.x).astype(float, copy=False)
    if steps.method in METHODS:
        if steps.lows.size:
            table, _ = steps.tables(problem.x, problem.stride, 0, problem.coordinates)
            return np.asarray(np.abs(table[0] - x).max(axis=0))
        return np.asarray(np.abs(steps.central[:, 0]).max() * steps.factor * steps.lengths_at(x))
    lengths = lengths_of(problem, steps) * float(steps.eps) ** (1 / 4)
    # Extrapolation with smaller steps means that f varies on that scale.
    return np.asarray(np.fmin(lengths, np.abs(points - x) / 16))
