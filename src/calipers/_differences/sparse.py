"""Jacobians with few entries: columns that share no row are evaluated together."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._kernels.differences import COLORED, NONFINITE
from .._kernels.rungs import STATE
from .._protocols import NDArray
from ..interop import scipy_sparse
from .checkpoint import Checkpoint
from .coloring import (
    Coloring,
    StarColoring,
    as_pattern,
    color_columns,
    color_groups,
    decompress,
    first_clash,
    product,
    recover,
    star_coloring,
)
from .columns import Columns, Outs, require_steps
from .ladders import CALLS, SCRATCH, climb, lengths_of, measured, scratch_of
from .native import Native
from .plan import Options, steps_of
from .problem import REAL, Problem, reals
from .progress import Progress
from .run import run, run_parts
from .stencils import METHODS
from .steps import Steps

_DETECTED = 3  # points at which a pattern is looked for
_BLOCK_BYTES = 1 << 24
_AT_ONCE = 1 << 28  # bytes of differences; entries are recovered from more some colors at a time
_SUSPECTS = 32  # rows, of those along which f changes by more than a pattern allows


@dataclass(frozen=True)
class Pattern:
    """Which entries may be other than zero, by columns, and what is evaluated together."""

    indptr: NDArray
    indices: NDArray
    shape: tuple[int, int]
    coloring: Coloring

    def sources(self) -> tuple[NDArray, NDArray, NDArray]:
        """Return where each entry is read: row, color, and column that was displaced."""
        columns = np.repeat(np.arange(self.shape[1]), np.diff(self.indptr))
        rows = self.indices
        if isinstance(self.coloring, StarColoring):
            mirrored = self.coloring.mirrored
            rows, columns = np.where(mirrored, columns, rows), np.where(mirrored, rows, columns)
        return rows, self.coloring.colors[columns].astype(np.intp), columns

    def recover(
        self,
        differences: NDArray,
        weight: NDArray,
        data: NDArray,
        accumulate: bool,
        below: NDArray | None,
    ) -> None:
        """Store the entries, or add to them, from differences by color; see `decompress`."""
        if isinstance(self.coloring, StarColoring):
            if below is not None:
                with np.errstate(all="ignore"):
                    differences -= below
            given = (self.indptr, self.indices, self.coloring, differences, weight, data)
            recover(*given, accumulate)
        else:
            colors = self.coloring.colors
            given = (self.indptr, self.indices, colors, differences, weight, data)  # type: ignore[assignment]
            decompress(*given, accumulate, below)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SparseFound:
    """A sparse derivative, its errors, and what is known of each column."""

    value: Any
    error: Any
    points: NDArray  # the farthest to which each coordinate was displaced
    status: NDArray
    nfev: int
    colors: int
    seconds: float


def find(problem: Problem, options: Options, symmetric: bool = False) -> SparseFound:
    """Differentiate a function whose Jacobian is sparse, and symmetric if it is a gradient."""
    steps = steps_of(problem, options)
    return plan(problem, steps, options, symmetric=symmetric)(problem, detail=True)


def plan(
    problem: Problem, steps: Steps, options: Options, lasting: bool = False, symmetric: bool = False
) -> "Plan":
    """
    Find or check the pattern, and color it.

    The results of a lasting plan share its pattern, which can then not be written to.
    """
    if problem.mode != REAL or problem.dtype.kind == "c":
        msg = (
            "sparsity is for real x, real f and real steps: leave out sparsity, holomorphic and "
            "method='cs'"
        )
        raise ValueError(msg)
    sparsity, calls, groups = options.sparsity, 0, None
    shape = (problem.base.size, problem.coordinates)
    given = not (isinstance(sparsity, str) and sparsity == "detect")
    if given:
        if isinstance(sparsity, tuple) and len(sparsity) == 2:
            sparsity, groups = sparsity
        indptr, indices = as_pattern(*scipy_sparse.pattern(sparsity, shape), shape)
        indptr, indices = indptr.copy(), indices.copy()
    else:
        indptr, indices, calls = _detect(problem, options, symmetric)
    if lasting:
        indptr.flags.writeable = indices.flags.writeable = False
    coloring: Coloring
    if symmetric:
        if groups is not None:
            msg = "sparsity of a Hessian is a pattern alone: its groups are found by star coloring"
            raise ValueError(msg)
        coloring = star_coloring(indptr, indices, shape[1])
    elif groups is not None:
        coloring = color_groups(groups, shape[1])
        if (clash := first_clash(indptr, indices, shape, coloring)) is not None:
            row, one, other = clash
            msg = f"sparsity puts columns {one} and {other} in one group, and both have row {row}"
            raise ValueError(msg)
    else:
        coloring = color_columns(indptr, indices, shape, _cost(problem, steps))
    return Plan(Pattern(indptr, indices, shape, coloring), steps, options, lasting, given, calls)


def _cost(problem: Problem, steps: Steps) -> float:
    """Return the seconds that a color costs: the calls of f."""
    return 2 * steps.pairs * problem.seconds if steps.method in METHODS else 10 * problem.seconds


@dataclass
class Space:
    """Memory that one call after the other may use: fresh memory costs more than what fills it."""

    table: NDArray
    status: NDArray
    rows: NDArray
    points: list[tuple[NDArray, NDArray]]  # an argument and a value of f, for each thread


@dataclass
class Differences:
    """
    Differences of f between two points of all coordinates of a color: a row for each color.

    `bottoms` is empty if they are x itself; then nothing is subtracted.
    """

    problem: Problem
    colors: NDArray
    tops: NDArray
    bottoms: NDArray
    space: Space | None = field(default=None, compare=False)

    @property
    def calls(self) -> float:
        return 2 if self.bottoms.size else 1

    def results(self, count: int) -> Outs:
        if self.space is not None and count == len(self.space.rows):
            return (self.space.rows,)
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
            with _blamed(color):
                row[:] = self.problem.at(np.where(chosen, self.tops, origin))
                if self.bottoms.size:
                    with np.errstate(all="ignore"):
                        row -= self.problem.at(np.where(chosen, self.bottoms, origin))

    def _compiled(self, native: Native, start: int, rows: NDArray) -> None:
        problem = self.problem
        points = [] if self.space is None else self.space.points
        try:
            x, lower = points.pop()
        except IndexError:  # none is left, or another thread took it
            x = np.empty(problem.x.shape, problem.x.dtype)
            lower = np.empty(problem.native_shape, problem.dtype)
        where = native.form, x, reals(problem.x), start
        given = self.colors, self.tops, self.bottoms, lower, rows
        reached = np.empty(1, np.int64)
        with _blamed(reached):
            native.entry(COLORED, self.colors.dtype)(*where, *given, reached)
        points.append((x, lower))


@contextmanager
def _blamed(color: Any) -> Iterator[None]:
    """Add to what f raises which color is displaced: a number, or an array that holds it then."""
    try:
        yield
    except Exception as error:
        number = int(np.ravel(color)[0])
        error.add_note(f"raised by f with the columns of color {number} displaced")
        raise


@dataclass
class ColorLadders:
    """Ladders on which all coordinates of a color climb together, each in steps of its own."""

    problem: Problem
    colors: NDArray
    directions: NDArray  # how far each coordinate goes where t is 1
    states: NDArray
    calls = CALLS

    def results(self, count: int) -> Outs:
        shape = count, self.problem.base.size
        return np.empty(shape), np.empty(shape), np.zeros(count, STATE)

    def __call__(self, start: int, outs: Outs) -> None:
        """Fill the values, errors and states of colors from `start`."""
        step = max(1, SCRATCH // max(1, scratch_of(self.problem.base.size)))
        for first in range(0, len(outs[0]), step):
            self._climb(start + first, tuple(out[first : first + step] for out in outs))

    def _climb(self, start: int, outs: Outs) -> None:
        states = outs[-1]
        states[:] = self.states[start : start + len(states)]
        x = reals(self.problem.x)

        def displaced(active: NDArray, t: NDArray) -> tuple[NDArray, NDArray]:
            rows = np.empty((len(active), self.problem.base.size), self.problem.base.dtype)
            for row, color, far in zip(rows, start + active, t, strict=True):
                shift = np.where(self.colors == color, far * self.directions, 0.0)
                with _blamed(color):
                    row[:] = self.problem.at((x + shift).astype(x.dtype))
            return rows, t

        climb(self.problem.base, displaced, outs)


class Plan:
    """A colored pattern and steps; its first result is checked against f, if it was given."""

    def __init__(
        self,
        pattern: Pattern,
        steps: Steps,
        options: Options,
        lasting: bool,
        check: bool,
        calls: int,
    ) -> None:
        self.pattern, self.steps, self.options = pattern, steps, options
        self._check, self._calls = check, calls
        self._lasting = lasting
        self._spare: list[Space] = []

    def asks_base(self, problem: Problem) -> bool:
        """Whether f(x) has to be known beforehand."""
        return self._check or not self._fills_base(problem)

    def _fills_base(self, problem: Problem) -> bool:
        """Whether f(x), where it is needed, is one color more, whose work threads share, too."""
        fixed = not (self.options.adaptive or self._in_parts(problem))
        return self._lasting and problem.native is not None and fixed

    def _in_parts(self, problem: Problem) -> bool:
        """Whether some colors at a time are recovered: of many, or of numbers without a kernel."""
        base = problem.base
        return self.pattern.coloring.count * base.nbytes > _AT_ONCE or base.dtype.char not in "fd"

    def _rows(self, problem: Problem) -> int:
        fills = self._fills_base(problem) and self.steps.one_sided
        return self.pattern.coloring.count + fills

    def __call__(self, problem: Problem, detail: bool = False) -> SparseFound:
        """Differentiate at the problem's point; `points` are only there with `detail`."""
        started = time.perf_counter()
        count = self.pattern.coloring.count
        pairs = 1 if self.options.adaptive else self.steps.pairs
        report = Progress(self.options.progress, self._rows(problem) * pairs)
        try:
            if self.options.adaptive:
                data, errors, points, status, calls = self._ladders(problem, report)
            elif self._in_parts(problem):
                data, errors, points, status, calls = self._parts(problem, report)
            else:
                data, errors, points, status, calls = self._fixed(problem, detail, report)
        finally:
            report.close()
        if self._check:
            calls += verify(problem, self.steps, self.pattern, data, errors, points, status)
            self._check = False
        calls, self._calls = calls + self._calls, 0
        value, error = (self._matrix(entries) for entries in (data, errors))
        seconds = time.perf_counter() - started
        return SparseFound(value, error, points, status, calls + 1, count, seconds)

    def _matrix(self, data: NDArray) -> Any:
        p = self.pattern
        return scipy_sparse.by_columns(data, p.indices, p.indptr, p.shape)

    def _space(self, problem: Problem) -> Space:
        with suppress(IndexError):  # another thread may have taken the last one
            return self._spare.pop()
        table, status = self.steps.room(problem, problem.coordinates)
        shape = (self._rows(problem), problem.base.size)
        return Space(table, status, np.empty(shape, problem.base.dtype), [])

    def _fixed(
        self, problem: Problem, detail: bool, report: Progress
    ) -> tuple[NDArray, NDArray, NDArray, NDArray, int]:
        pattern, coloring, workers = self.pattern, self.pattern.coloring, self.options.workers
        space = self._space(problem)
        table, status = space.table, space.status
        self.steps.tabulate(problem, 0, table, status)
        require_steps(problem, 0, status)
        data = np.empty(pattern.indices.size, problem.base.dtype)
        calls = 0
        shared = space if workers is None else None
        for p in range(table.shape[1]):
            bottoms = table[1, p, :0] if self.steps.one_sided else table[1, p]
            work = Differences(problem, coloring.colors, table[0, p], bottoms, shared)
            kept = Checkpoint.of(self.options.checkpoint, f"pair-{p}")
            (rows,) = run(work, self._rows(problem), workers, report, checkpoint=kept)
            differences, base = rows[: coloring.count], rows[coloring.count :]
            below = None if bottoms.size else problem.base
            if len(base):
                below = base[0]
            pattern.recover(differences, table[2, p], data, p > 0, below)
            calls += coloring.count * (2 if bottoms.size else 1)
        unknown = np.broadcast_to(np.inf, data.shape)
        points = table[0, 0].copy() if detail else table[0, 0, :0]
        status = status.copy() if detail or self._check else status
        if not detail:
            self._spare.append(space)
        return data, unknown, points, status, calls

    def _parts(
        self, problem: Problem, report: Progress
    ) -> tuple[NDArray, NDArray, NDArray, NDArray, int]:
        """Do as `_fixed`, and keep the differences of some colors at a time."""
        coloring, one_sided = self.pattern.coloring, self.steps.one_sided
        table, status = self.steps.tables(problem, 0, problem.coordinates)
        require_steps(problem, 0, status)
        data = np.zeros(self.pattern.indices.size, problem.base.dtype)
        row, color, column = self.pattern.sources()
        entries = Entries(color, coloring.count)
        calls = 0
        for p in range(table.shape[1]):
            tops, bottoms, weights = table[:, p]
            work = Differences(
                problem, coloring.colors, tops, bottoms[:0] if one_sided else bottoms
            )

            def store(first: int, outs: Outs, weights: NDArray = weights) -> None:
                chosen = entries.of(first, len(outs[0]))
                i, j = row[chosen], column[chosen]
                with np.errstate(all="ignore"):
                    change = outs[0][color[chosen] - first, i]
                    if one_sided:
                        change = change - problem.base[i]
                    data[chosen] = data[chosen] + change * weights[j]

            kept = Checkpoint.of(self.options.checkpoint, f"pair-{p}")
            run_parts(work, coloring.count, store, self.options.workers, report, kept)
            calls += coloring.count * (1 if one_sided else 2)
        return data, np.broadcast_to(np.inf, data.shape), table[0, 0], status, calls

    def _ladders(
        self, problem: Problem, report: Progress
    ) -> tuple[NDArray, NDArray, NDArray, NDArray, int]:
        coloring = self.pattern.coloring
        by_column = measured(problem, self.steps)
        usable = by_column["limit"] > 0
        lengths = np.where(usable, by_column["length"], 0.0)
        directions = np.where(by_column["side"] < 0, -lengths, lengths)
        states = np.zeros(coloring.count, STATE)
        states["length"], states["eps"], states["power"] = 1.0, self.steps.eps, 1
        for name in ("limit", "unit"):
            states[name] = np.inf
            np.minimum.at(states[name], coloring.colors[usable], by_column[name][usable])
        np.maximum.at(states["grain"], coloring.colors[usable], by_column["grain"][usable])
        states["side"][coloring.colors[usable & (by_column["side"] != 0)]] = 1
        states["limit"][np.isinf(states["unit"])] = 0.0
        work = ColorLadders(problem, coloring.colors, directions, states.copy())
        row, color, column = self.pattern.sources()
        entries = Entries(color, coloring.count)
        x = reals(problem.x)
        data, error = np.empty(row.size, x.dtype), np.empty(row.size)

        def store(first: int, outs: Outs) -> None:
            values, errors, final = outs
            states[first : first + len(final)] = final
            chosen = entries.of(first, len(final))
            where, j = (color[chosen] - first, row[chosen]), column[chosen]
            with np.errstate(all="ignore"):
                data[chosen] = values[where] / directions[j]
                error[chosen] = errors[where] / lengths[j]

        kept = Checkpoint.of(self.options.checkpoint)
        run_parts(work, coloring.count, store, self.options.workers, report, kept)
        status = by_column["status"].astype(np.int8)
        status[usable] = states["status"][coloring.colors[usable]]
        points = x + states["step"][coloring.colors] * lengths
        return data, error, points, status, int(states["calls"].sum())


class Entries:
    """The entries of a matrix by color."""

    def __init__(self, color: NDArray, count: int) -> None:
        self._order = np.argsort(color, kind="stable")
        self._starts = np.searchsorted(color[self._order], np.arange(count + 1))

    def of(self, first: int, count: int) -> NDArray:
        """Return the places of those that are found from some colors."""
        return self._order[self._starts[first] : self._starts[first + count]]


def _detect(problem: Problem, options: Options, symmetric: bool) -> tuple[NDArray, NDArray, int]:
    """
    Return the pattern of what changes when a coordinate does, at x and at points near it.

    And how often f was called for it.
    """
    random = np.random.default_rng(0)
    m, n = problem.base.size, problem.coordinates
    bounds = options.bounds
    wide = Options(method="2-point", bounds=bounds)
    limits = steps_of(problem, wide)
    found = [np.empty(0, np.int64)]
    calls = 0
    for k in range(_DETECTED):
        x = problem.x
        if k:
            x = x * (1 + 2.0**-8 * random.uniform(-1, 1, x.shape)) + (x == 0) * random.uniform(
                -(2.0**-8), 2.0**-8, x.shape
            )
            if limits.lows.size:
                shape = x.shape
                x = np.clip(x, limits.lows.reshape(shape), limits.highs.reshape(shape))
        near = problem.moved(x.astype(problem.x.dtype), problem.before, problem.after, True)
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
            found.append((start + column) * m + row)
            if symmetric:  # what one side has shown, the other has
                found.append(row * m + start + column)
    entries = np.unique(np.concatenate(found))
    column, row = np.divmod(entries, max(m, 1))
    index = np.int32 if max(m, entries.size) < 2**31 else np.int64
    indptr = np.zeros(n + 1, index)
    np.cumsum(np.bincount(column, minlength=n), out=indptr[1:])
    return indptr, row.astype(index), calls


def verify(
    problem: Problem,
    steps: Steps,
    pattern: Pattern,
    data: NDArray,
    errors: NDArray,
    points: NDArray,
    status: NDArray,
) -> int:
    """
    Raise ValueError if f changes along a random direction by more than its pattern allows.

    What the derivatives predict is not exact. By how much it may be wrong is seen from their
    estimated errors, if there are any, and from f itself: the even part of its change, and what
    halving the displacement does to the odd part.
    Return how often f was called.
    """
    m, n = pattern.shape
    length = np.bincount(pattern.indices, minlength=m)
    if np.all(length == n):
        return 0
    random = np.random.default_rng(0)
    coords = reals(problem.x)
    x = coords.astype(float)
    shift = _displacements(problem, steps, points)
    shift *= random.uniform(1, 1.5, n) * random.choice([-1.0, 1.0], n)
    shift[status > NONFINITE] = 0.0

    def odd(far: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        ends = [x + far, x - far]
        if steps.lows.size:
            ends = [np.clip(end, steps.lows, steps.highs) for end in ends]
        top, bottom = (end.astype(coords.dtype) for end in ends)
        above, below = (problem.at(end).astype(float) for end in (top, bottom))
        return above - below, above, below, top.astype(float) - bottom.astype(float)

    with np.errstate(all="ignore"):
        change, above, below, moved = odd(shift)
        half = odd(shift / 2)[0]
        if data.dtype.char not in "fd":
            data = data.astype(float)
        known = np.where(np.isfinite(data), data, 0)
        predicted, scale = product(pattern.indptr, pattern.indices, known, moved, m)
        base = problem.base.astype(float)
        bent = np.abs(above + below - 2 * base) + np.abs(change - 2 * half)
        size = np.maximum(np.abs(above), np.maximum(np.abs(below), np.abs(base)))
        noise = 64 * steps.eps * size * (2 + length)
        unsure = np.where(np.isfinite(errors), errors, 0).astype(data.dtype)
        doubt = product(pattern.indptr, pattern.indices, unsure, np.abs(moved), m)[0]
        allowed = 1e-3 * scale + 4 * (bent + doubt) + noise
        missing = np.abs(change - predicted) > allowed
        missing &= np.abs(2 * half - predicted) > allowed
    missing &= length < n
    calls = 4
    if missing.any():
        rows = np.flatnonzero(missing)
        with np.errstate(all="ignore"):
            excess = np.fmax(np.abs(change - predicted)[rows] / allowed[rows], 0.0)
        rows = rows[np.argsort(-excess, kind="stable")[:_SUSPECTS]]
        calls += len(rows)
        rows = np.sort(_of_others(problem, steps, pattern, shift, rows))
        if not len(rows):
            return calls
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        msg = (
            f"sparsity misses entries in row{'s' * (len(rows) > 1)} "
            f"{', '.join(map(str, rows[:5]))}{more}: f changes there with columns that are not in "
            f"the pattern; add them, or take sparsity='detect'"
        )
        raise ValueError(msg)
    return calls


def _of_others(
    problem: Problem, steps: Steps, pattern: Pattern, shift: NDArray, rows: NDArray
) -> NDArray:
    """
    Return which of some rows change where only columns that they do not have are displaced.

    A row that depends on none of those is the same to the last bit, however noisy f is.
    """
    x = reals(problem.x)
    columns = np.repeat(np.arange(pattern.shape[1]), np.diff(pattern.indptr))
    found = []
    for row in rows:
        far = shift.copy()
        far[columns[pattern.indices == row]] = 0.0
        point = x.astype(float) + far
        if steps.lows.size:
            point = np.clip(point, steps.lows, steps.highs)
        value, base = problem.at(point.astype(x.dtype))[row], problem.base[row]
        if not (value == base or (np.isnan(value) and np.isnan(base))):
            found.append(row)
    return np.array(found, dtype=np.intp)


@np.errstate(all="ignore")
def _displacements(problem: Problem, steps: Steps, points: NDArray) -> NDArray:
    """Return how far each coordinate goes for its derivative; the check goes a little farther."""
    lengths: NDArray
    if steps.method in METHODS:
        table, _ = steps.tables(problem, 0, problem.coordinates)
        lengths = np.abs(table[0] - reals(problem.x).astype(float)).max(axis=0)
    else:
        lengths = lengths_of(problem, steps) * float(steps.eps) ** (1 / 4)
        # A ladder that went to smaller steps found that f varies there.
        lengths = np.fmin(lengths, np.abs(points - reals(problem.x).astype(float)) / 16)
    return lengths
