"""Jacobians with few entries: columns that share no row are evaluated together."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._kernels.differences import COLORED
from .._kernels.ladder import STATE
from .._protocols import NDArray
from ..interop import scipy_sparse
from .coloring import (
    Coloring,
    as_pattern,
    color_columns,
    color_groups,
    decompress,
    first_clash,
    product,
)
from .columns import Columns, Outs
from .ladders import climb, measured
from .native import Native
from .plan import Options, require_steps, steps_of
from .problem import REAL, Problem, reals
from .run import run
from .steps import Steps

_DETECTED = 3  # points at which a pattern is looked for
_BLOCK_BYTES = 1 << 24


@dataclass(frozen=True)
class Pattern:
    """Which entries may be other than zero, by columns, and what is evaluated together."""

    indptr: NDArray
    indices: NDArray
    shape: tuple[int, int]
    coloring: Coloring

    @property
    def columns(self) -> NDArray:
        """The column of each entry."""
        return np.repeat(np.arange(self.shape[1]), np.diff(self.indptr))


@dataclass(frozen=True)
class SparseFound:
    """A sparse derivative, its errors, and what is known of each column."""

    value: Any
    error: Any
    step: NDArray
    status: NDArray
    nfev: int
    colors: int
    seconds: float


def find(problem: Problem, options: Options) -> SparseFound:
    """Differentiate a function whose Jacobian is sparse."""
    return plan(problem, steps_of(problem, options), options)(problem)


def plan(problem: Problem, steps: Steps, options: Options) -> "Plan":
    """Find or check the pattern, and color it."""
    if problem.mode != REAL or problem.dtype.kind == "c":
        msg = (
            "sparsity is for real x, real f and real steps: leave out sparsity, holomorphic and "
            "method='cs'"
        )
        raise ValueError(msg)
    sparsity = options.sparsity
    shape = (problem.base.size, problem.coordinates)
    groups = None
    given = not (isinstance(sparsity, str) and sparsity == "detect")
    if given:
        if isinstance(sparsity, tuple) and len(sparsity) == 2:
            sparsity, groups = sparsity
        indptr, indices = as_pattern(*scipy_sparse.pattern(sparsity, shape), shape)
    else:
        indptr, indices = _detect(problem, options)
    if groups is not None:
        coloring = color_groups(groups, shape[1])
        if (clash := first_clash(indptr, indices, shape, coloring)) is not None:
            row, one, other = clash
            msg = f"sparsity puts columns {one} and {other} in one group, and both have row {row}"
            raise ValueError(msg)
    else:
        coloring = color_columns(indptr, indices, shape, _cost(problem, steps))
    return Plan(Pattern(indptr, indices, shape, coloring), steps, options, given)


def _cost(problem: Problem, steps: Steps) -> float:
    """Return the seconds that a color costs: the calls of f."""
    started = time.perf_counter()
    problem.values(problem.x.copy())
    return 2 * steps.pairs * (time.perf_counter() - started) if steps.method != "adaptive" else 0.0


@dataclass(frozen=True)
class Differences:
    """Differences of f between two points of all coordinates of a color: a row for each color."""

    problem: Problem
    colors: NDArray
    tops: NDArray
    bottoms: NDArray

    def results(self, count: int) -> Outs:
        return (np.empty((count, self.problem.base.size), self.problem.base.dtype),)

    def __call__(self, start: int, outs: Outs) -> None:
        """Fill the rows of colors from `start`."""
        native = self.problem.native
        if native is not None:
            self._compiled(native, start, outs[0])
            return
        origin = reals(self.problem.x)
        for color, row in enumerate(outs[0], start):
            chosen = self.colors == color
            ends = [np.where(chosen, points, origin) for points in (self.tops, self.bottoms)]
            below = self.problem.base if np.array_equal(ends[1], origin) else self._at(ends[1])
            row[:] = self._at(ends[0]) - below

    def _at(self, coords: NDArray) -> NDArray:
        return self.problem.at(coords)

    def _compiled(self, native: Native, start: int, rows: NDArray) -> None:
        problem = self.problem
        x = np.empty_like(problem.x)
        upper, reached = np.empty(native.out_shape, problem.dtype), np.empty(1, np.int64)
        where = (native.form, x, reals(x), reals(problem.x), start)
        points = (self.colors, self.tops, self.bottoms)
        scratch = (problem.base, upper, np.empty_like(upper))
        native.entry(COLORED, self.colors.dtype)(*where, *points, *scratch, rows, reached)


class Plan:
    """A colored pattern and steps; its first result is checked against f, if it was given."""

    def __init__(self, pattern: Pattern, steps: Steps, options: Options, check: bool) -> None:
        self.pattern, self.steps, self.options = pattern, steps, options
        self._check = check

    def __call__(self, problem: Problem) -> SparseFound:
        """Differentiate at the problem's point."""
        started = time.perf_counter()
        found = self._ladders(problem) if self.options.adaptive else self._fixed(problem)
        data, errors, step, status, calls = found
        if self._check:
            calls += 2
            verify(problem, self.steps, self.pattern, data)
            self._check = False
        value, error = (self._matrix(entries) for entries in (data, errors))
        colors = self.pattern.coloring.count
        seconds = time.perf_counter() - started
        return SparseFound(value, error, step, status, calls + 1, colors, seconds)

    def _matrix(self, data: NDArray) -> Any:
        p = self.pattern
        return scipy_sparse.by_columns(data, p.indices, p.indptr, p.shape)

    def _fixed(self, problem: Problem) -> tuple[NDArray, NDArray, NDArray, NDArray, int]:
        pattern, coloring = self.pattern, self.pattern.coloring
        table, status = self.steps.tables(problem, 0, problem.coordinates)
        require_steps(problem, status)
        data = np.empty(pattern.indices.size, problem.base.dtype)
        calls = 0
        x = reals(problem.x)
        for p in range(table.shape[1]):
            work = Differences(problem, coloring.colors, table[0, p], table[1, p])
            options = self.options
            (differences,) = run(work, coloring.count, options.workers, options.progress)
            given = (pattern.indptr, pattern.indices, coloring.colors, differences)
            decompress(*given, table[2, p], data, accumulate=p > 0)
            one_sided = np.array_equal(table[1, p], x)
            calls += coloring.count * (1 if one_sided else 2)
        unknown = np.broadcast_to(np.inf, data.shape)
        return data, unknown, np.abs(table[0, 0] - x), status, calls

    def _ladders(self, problem: Problem) -> tuple[NDArray, NDArray, NDArray, NDArray, int]:
        """Climb one ladder for each color, on which each coordinate has a length of its own."""
        pattern, coloring = self.pattern, self.pattern.coloring
        by_column = measured(problem, self.steps)
        usable = by_column["limit"] > 0
        lengths = np.where(usable, by_column["length"], 0.0)
        directions = np.where(by_column["side"] < 0, -lengths, lengths)
        states = np.zeros(coloring.count, STATE)
        states["length"], states["eps"], states["power"] = 1.0, self.steps.eps, 1
        states["limit"] = states["unit"] = np.inf
        for name, merge in (("limit", np.minimum), ("unit", np.minimum)):
            merge.at(states[name], coloring.colors[usable], by_column[name][usable])
        sided = coloring.colors[usable & (by_column["side"] != 0)]
        states["side"][sided] = 1
        states["limit"][np.isinf(states["unit"])] = 0.0
        values = np.empty((coloring.count, problem.base.size))
        errors = np.empty_like(values)
        x = reals(problem.x)

        def displaced(active: NDArray, t: NDArray) -> tuple[NDArray, NDArray]:
            rows = np.empty((len(active), problem.base.size), problem.base.dtype)
            for row, color, far in zip(rows, active, t, strict=True):
                shift = np.where(coloring.colors == color, far * directions, 0.0)
                row[:] = problem.at((x + shift).astype(x.dtype))
            return rows, t

        climb(problem.base, displaced, (values, errors, states))
        column = pattern.columns
        color = coloring.colors[column].astype(np.intp)
        with np.errstate(all="ignore"):
            data = (values[color, pattern.indices] / directions[column]).astype(x.dtype)
            error = errors[color, pattern.indices] / lengths[column]
        status = by_column["status"].astype(np.int8)
        status[usable] = states["status"][coloring.colors[usable]]
        return data, error, 0.25 * lengths, status, int(states["calls"].sum())


def _detect(problem: Problem, options: Options) -> tuple[NDArray, NDArray]:
    """Return the pattern of what changes when a coordinate does, at x and at points near it."""
    random = np.random.default_rng(0)
    m, n = problem.base.size, problem.coordinates
    bounds = options.bounds
    found = [np.empty(0, np.int64)]
    for k in range(_DETECTED):
        x = problem.x
        if k and bounds is None:
            x = x * (1 + 2.0**-8 * random.uniform(-1, 1, x.shape)) + (x == 0) * random.uniform(
                -(2.0**-8), 2.0**-8, x.shape
            )
        elif k:
            break  # other points might lie outside
        near = problem.moved(x.astype(problem.x.dtype), problem.before, problem.after, True)
        wide = Options(method="2-point", scale=None, bounds=bounds)
        steps = steps_of(near, wide)
        work = Columns(near, steps)
        step = max(1, _BLOCK_BYTES // max(1, m * problem.base.itemsize))
        for start in range(0, n, step):
            count = min(step, n - start)
            outs = work.results(count)
            work(start, outs)
            column, row = np.nonzero(outs[0])  # NaN is not zero
            found.append((start + column) * m + row)
    entries = np.unique(np.concatenate(found))
    column, row = np.divmod(entries, max(m, 1))
    index = np.int32 if max(m, entries.size) < 2**31 else np.int64
    indptr = np.zeros(n + 1, index)
    np.cumsum(np.bincount(column, minlength=n), out=indptr[1:])
    return indptr, row.astype(index)


def verify(problem: Problem, steps: Steps, pattern: Pattern, data: NDArray) -> None:
    """Raise ValueError if f has derivatives along a random direction that the pattern lacks."""
    random = np.random.default_rng(0)
    n, m = problem.coordinates, problem.base.size
    coords = reals(problem.x)
    x = coords.astype(float)
    size = np.where(x == 0, 1.0, np.abs(x)) * float(steps.eps) ** (1 / 3)
    shift = size * random.uniform(0.5, 1, n) * random.choice([-1.0, 1.0], n)
    shift[pattern.columns[np.isnan(data)]] = 0.0  # left out, or of no use
    ends = [x + shift, x - shift]
    if steps.lows.size:
        ends = [np.clip(end, steps.lows, steps.highs) for end in ends]
    top, bottom = (end.astype(coords.dtype) for end in ends)
    above, below = problem.at(top).astype(float), problem.at(bottom).astype(float)
    moved = top.astype(float) - bottom.astype(float)
    known = np.nan_to_num(data)
    predicted, scale = product(pattern.indptr, pattern.indices, known, moved, m)
    noise = 64 * steps.eps * (np.abs(above) + np.abs(below))
    missing = np.abs(above - below - predicted) > 1e-3 * scale + noise
    if missing.any():
        rows = np.flatnonzero(missing)
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        msg = (
            f"sparsity misses entries in row{'s' * (len(rows) > 1)} "
            f"{', '.join(map(str, rows[:5]))}{more}: along a random direction f changes there by "
            f"more than the pattern allows; add them, or take sparsity='detect'"
        )
        raise ValueError(msg)
