"""Sparse Jacobians: columns that share no row are evaluated together."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.jit import work_clock
from .._core.protocols import NDArray
from .._execution.checkpoint import subfolder
from .._execution.run import Progress, run, run_parts
from .._execution.tasks import Buffers
from .._kernels.differences import EXCLUDED, FIXED
from ..interop import sparse_inputs as scipy_sparse
from .adaptive import STATE, initial_states
from .colored_patterns import colored_pattern
from .coloring import Coloring, as_pattern, color_columns, color_groups, first_clash, star_coloring
from .compressed import ColorDifferences, ExtrapolatedColors, SharedScratch
from .fixed_step import require_steps
from .function import REAL, Problem
from .options import Options
from .solve import steps_of
from .sparsity import EntriesByColor, Pattern, UnexpectedRows, detect, verify
from .steps import COMPLEX_STEP, METHODS, Steps

_SIGNIFICANT_ERRORS = 16.0  # estimated errors above which a change is significant
# Share of the first step below which a bound is tight, and octaves of such limits in one color.
_TIGHT_LIMIT, _LEVEL_OCTAVES = 2.0**-6, 4
# Largest differences in memory, in bytes; larger ones are computed in blocks of colors.
_BLOCK_BYTES = 1 << 28


@dataclass(frozen=True)
class SparseResults:
    """A sparse derivative, its errors, and the status and point of each column."""

    value: Any
    error: Any
    points: NDArray  # the farthest evaluation point of each coordinate
    status: NDArray
    nfev: int
    colors: int
    seconds: float


def differentiate_sparse(
    problem: Problem, options: Options, symmetric: bool = False
) -> SparseResults:
    """Compute a sparse Jacobian, or a symmetric one of a gradient."""
    steps = steps_of(problem, options)
    return prepare_sparse(problem, steps, options, symmetric=symmetric)(problem, detail=True)


def prepare_sparse(
    problem: Problem, steps: Steps, options: Options, reused: bool = False, symmetric: bool = False
) -> "PreparedSparse":
    """
    Detect or validate the sparsity pattern, and color it.

    If `reused`, results share the pattern, which is read-only.
    """
    if not problem.imaginary and (problem.mode != REAL or problem.dtype.kind == "c"):
        msg = "sparsity is for real x and real f: omit sparsity or holomorphic"
        raise ValueError(msg)
    sparsity, calls, groups = options.sparsity, 0, None
    shape = (problem.base.size // (2 if problem.imaginary else 1), problem.coordinates)
    supplied = not (isinstance(sparsity, str) and sparsity == "detect")
    if supplied:
        if isinstance(sparsity, tuple) and len(sparsity) == 2:
            sparsity, groups = sparsity
        if groups is None and not symmetric:
            pattern = colored_pattern(sparsity, shape, _cost(problem, steps))
            return PreparedSparse(pattern, steps, options, reused, supplied, calls)
        indptr, indices = as_pattern(*scipy_sparse.pattern(sparsity, shape), shape)
        indptr, indices = indptr.copy(), indices.copy()
    else:
        real = problem.on_the_real_axis() if problem.imaginary else problem
        indptr, indices, calls = detect(real, options, symmetric)
    coloring: Coloring
    if symmetric:
        if groups is not None:
            msg = (
                "sparsity of a Hessian must be a pattern without groups, which star coloring "
                "computes"
            )
            raise ValueError(msg)
        coloring = star_coloring(indptr, indices, shape[1])
    elif groups is not None:
        coloring = color_groups(groups, shape[1])
        if (clash := first_clash(indptr, indices, shape, coloring)) is not None:
            row, one, other = clash
            msg = (
                f"sparsity puts columns {one} and {other} in one group, but both have an entry "
                f"in row {row}"
            )
            raise ValueError(msg)
    else:
        coloring = color_columns(indptr, indices, shape, _cost(problem, steps))
    pattern = Pattern(indptr, indices, shape, coloring)
    return PreparedSparse(pattern, steps, options, reused, supplied, calls)


def _cost(problem: Problem, steps: Steps) -> float:
    """Return the seconds for the calls of f of one color."""
    calls = 1 if problem.imaginary else 2 * steps.pairs if steps.method in METHODS else 10
    return calls * problem.seconds


class PreparedSparse:
    """A colored pattern and steps; the first result verifies a pattern of the caller."""

    def __init__(
        self,
        pattern: Pattern,
        steps: Steps,
        options: Options,
        reused: bool,
        check: bool,
        calls: int,
    ) -> None:
        self.pattern, self.steps, self.options = pattern, steps, options
        self._check, self._calls = check, calls
        self._reused = reused
        self._spare: list[SharedScratch] = []

    def needs_base(self, problem: Problem) -> bool:
        """Return True if f(x) is needed before the run."""
        return self._check or not (problem.imaginary or self._fills_base(problem))

    def _fills_base(self, problem: Problem) -> bool:
        """Return True if f(x) is computed in the run, as one more color."""
        fixed = not (self.options.adaptive or problem.imaginary or self._needs_blocks(problem))
        return self._reused and problem.native is not None and fixed

    def _needs_blocks(self, problem: Problem) -> bool:
        """Return True if entries are recovered by blocks: of many colors, or without a kernel."""
        base = problem.base
        return (
            self.pattern.coloring.count * base.nbytes > _BLOCK_BYTES or base.dtype.char not in "fd"
        )

    def _rows(self, problem: Problem) -> int:
        fills = self._fills_base(problem) and self.steps.one_sided
        return self.pattern.coloring.count + fills

    def __call__(self, problem: Problem, detail: bool = False) -> SparseResults:
        """Differentiate at the problem's point; `detail` includes the evaluation points."""
        started = work_clock()
        adaptive = self.options.adaptive
        pattern = self._split_by_bounds(problem) if adaptive else self.pattern
        count = pattern.coloring.count
        pairs = 1 if adaptive or problem.imaginary else self.steps.pairs
        report = Progress(self.options.progress, count if adaptive else self._rows(problem) * pairs)
        unexpected = self._unexpected_rows(problem, pattern) if self._check else None
        try:
            if adaptive:
                data, errors, points, status, calls = self._adaptive(
                    problem, pattern, report, unexpected
                )
            else:
                data, errors, points, status, calls = self._fixed(
                    problem, detail, report, unexpected
                )
        finally:
            report.close()
        if unexpected is not None:
            calls += self._verify(problem, unexpected, data, errors, points, status)
            self._check = False
        calls, self._calls = calls + self._calls, 0
        indptr, indices = self.pattern.indptr, self.pattern.indices
        if not self._reused:
            indptr, indices = indptr.copy(), indices.copy()
        value, error = (
            scipy_sparse.by_columns(entries, indices, indptr, self.pattern.shape)
            for entries in (data, errors)
        )
        seconds = work_clock() - started
        return SparseResults(value, error, points, status, calls + 1, count, seconds)

    def _least_imaginary(self, rows: NDArray) -> NDArray:
        """Return the least significant imaginary part of each color, from its largest one."""
        largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
        return np.asarray(np.sqrt(self.steps.eps) * largest)

    def _unexpected_rows(self, problem: Problem, pattern: Pattern) -> UnexpectedRows:
        base = problem.base[::2] if problem.imaginary else problem.base
        return UnexpectedRows(pattern, base, self.steps.eps)

    def _split_by_bounds(self, problem: Problem) -> Pattern:
        """
        Return the pattern with colors split by the distance of their columns to the bounds.

        The step sequence of a color is limited by the tightest bound of its columns.
        """
        if not self.steps.lows.size:
            return self.pattern
        limits = initial_states(problem, self.steps)["limit"]
        tight = (limits > 0) & (limits < _TIGHT_LIMIT)
        levels = np.zeros(limits.shape, np.intp)
        levels[tight] = np.floor(np.log2(limits[tight] / _TIGHT_LIMIT) / _LEVEL_OCTAVES)
        return self.pattern.split(levels) if tight.any() else self.pattern

    def _verify(self, problem: Problem, unexpected: UnexpectedRows, *results: NDArray) -> int:
        """Verify the pattern by real perturbations; return the number of calls of f."""
        if not problem.imaginary:
            return verify(problem, self.steps, self.pattern, unexpected, *results)
        real = problem.on_the_real_axis()
        steps = steps_of(real, replace(self.options, method="3-point", step=None))
        return verify(real, steps, self.pattern, unexpected, *results)

    def _scratch(self, problem: Problem) -> SharedScratch:
        """Return the table of steps at the problem's point, and scratch for differences."""
        steps = self.steps
        if problem.imaginary:
            # Step lengths depend on x, which may differ from the point of preparation.
            lengths = np.broadcast_to(steps_of(problem, self.options).lengths, problem.coordinates)
            with np.errstate(divide="ignore"):
                weights = 1 / lengths.astype(np.promote_types(problem.base.dtype, np.float64))
            status = np.where(lengths != 0, FIXED, EXCLUDED).astype(np.int8)
            return SharedScratch(np.array([[lengths], [lengths], [weights]]), status, None, [])
        if self._needs_blocks(problem):
            scratch = SharedScratch(*steps.allocate(problem.x, problem.coordinates), None, [])
        else:
            try:  # another thread may have taken the last one
                scratch = self._spare.pop()
            except IndexError:
                rows = np.empty((self._rows(problem), problem.base.size), problem.base.dtype)
                table = steps.allocate(problem.x, problem.coordinates)
                scratch = SharedScratch(*table, rows, [])
        steps.tabulate(problem.x, problem.stride, 0, scratch.table, scratch.status)
        require_steps(problem, 0, scratch.status)
        return scratch

    def _fixed(
        self, problem: Problem, detail: bool, report: Progress, unexpected: UnexpectedRows | None
    ) -> tuple[NDArray, NDArray, NDArray, NDArray, int]:
        """Differentiate by steps of fixed size, real or imaginary."""
        coloring, in_blocks = self.pattern.coloring, self._needs_blocks(problem)
        scratch = self._scratch(problem)
        table, status = scratch.table, scratch.status
        data = np.empty(self.pattern.indices.size, problem.base.dtype)
        one_sided = problem.imaginary or self.steps.one_sided
        shared = scratch if scratch.rows is not None and self.options.workers is None else None
        for p in range(table.shape[1]):
            tops, bottoms, weights = table[:, p]
            bottoms = bottoms[:0] if one_sided else bottoms
            work = ColorDifferences(problem, coloring.colors, tops, bottoms, shared)
            observer = unexpected if p == 0 else None
            checkpoint = subfolder(self.options.checkpoint, f"pair-{p}")
            about = work, weights, p > 0, data, checkpoint, report, observer
            (self._add_in_blocks if in_blocks else self._add_at_once)(*about)
        points = table[0, 0].copy() if detail else table[0, 0, :0]
        if problem.imaginary:
            points = problem.x.reshape(-1) + 1j * table[0, 0]
        elif shared is not None and not detail:
            status = status.copy() if self._check else status
            self._spare.append(scratch)
        calls = table.shape[1] * coloring.count * (1 if one_sided else 2)
        return data, np.broadcast_to(np.inf, data.shape), points, status, calls

    def _add_at_once(
        self,
        work: ColorDifferences,
        weights: NDArray,
        accumulate: bool,
        data: NDArray,
        checkpoint: Any,
        report: Progress,
        unexpected: UnexpectedRows | None,
    ) -> None:
        """Store or add the differences of all colors to the entries."""
        problem, count = work.problem, self.pattern.coloring.count
        total = count if problem.imaginary else self._rows(problem)
        (rows,) = run(work, total, self.options.workers, report, checkpoint=checkpoint)
        below = work.below if total == count else rows[count]
        rows = rows[:count]
        self.pattern.recover(rows, weights, data, accumulate, below)
        if unexpected is not None:
            changes = rows if below is None else rows != below
            if not self.pattern.explains(changes, weights, data):
                self._observe(unexpected, 0, rows, below)

    def _observe(
        self, unexpected: UnexpectedRows, first: int, rows: NDArray, below: NDArray | None
    ) -> None:
        with np.errstate(all="ignore"):
            if self.options.method == COMPLEX_STEP:
                unexpected.observe(first, rows, self._least_imaginary(rows))
            else:
                unexpected.observe(first, rows if below is None else rows - below)

    def _add_in_blocks(
        self,
        work: ColorDifferences,
        weights: NDArray,
        accumulate: bool,
        data: NDArray,
        checkpoint: Any,
        report: Progress,
        unexpected: UnexpectedRows | None,
    ) -> None:
        """Do as `_add_at_once` with the differences of some colors at a time."""
        row, color, column = self.pattern.sources()
        entries, below = EntriesByColor(color, self.pattern.coloring.count), work.below

        def store(first: int, outs: Buffers) -> None:
            if unexpected is not None:
                self._observe(unexpected, first, outs[0], below)
            chosen = entries.indices(first, len(outs[0]))
            i, j = row[chosen], column[chosen]
            with np.errstate(all="ignore"):
                change = outs[0][color[chosen] - first, i]
                if below is not None:
                    change = change - below[i]
                change = change * weights[j]
                data[chosen] = data[chosen] + change if accumulate else change

        workers, count = self.options.workers, self.pattern.coloring.count
        run_parts(work, count, store, workers, report, checkpoint)

    def _adaptive(
        self,
        problem: Problem,
        pattern: Pattern,
        report: Progress,
        unexpected: UnexpectedRows | None,
    ) -> tuple[NDArray, NDArray, NDArray, NDArray, int]:
        """Extrapolate by colors."""
        coloring = pattern.coloring
        by_column = initial_states(problem, self.steps)
        usable = by_column["limit"] > 0
        lengths = np.where(usable, by_column["length"], 0.0)
        directions = np.where(by_column["one_sided"] < 0, -lengths, lengths)
        states = np.zeros(coloring.count, STATE)
        states["length"] = 1.0
        for name in ("limit", "top"):
            states[name] = np.inf
            np.minimum.at(states[name], coloring.colors[usable], by_column[name][usable])
        for name in ("grain", "status"):
            np.maximum.at(states[name], coloring.colors[usable], by_column[name][usable])
        states["one_sided"][coloring.colors[usable & (by_column["one_sided"] != 0)]] = 1
        states["limit"][np.isinf(states["top"])] = 0.0
        limits = self.steps.lows, self.steps.highs
        # Python perturbs all columns of a color at once.
        work = ExtrapolatedColors(
            problem.interpreted(),
            coloring.colors,
            directions,
            *limits,
            states.copy(),
            self.steps.eps,
        )
        row, color, column = pattern.sources()
        entries = EntriesByColor(color, coloring.count)
        x = as_real_vector(problem.x)
        data, error = np.empty(row.size, x.dtype), np.empty(row.size)
        least = np.sqrt(self.steps.eps) * np.abs(problem.base)

        def store(first: int, outs: Buffers) -> None:
            values, errors, final = outs
            states[first : first + len(final)] = final
            if unexpected is not None:
                unexpected.observe(first, values, np.fmax(_SIGNIFICANT_ERRORS * errors, least))
            chosen = entries.indices(first, len(final))
            where, j = (color[chosen] - first, row[chosen]), column[chosen]
            with np.errstate(all="ignore"):
                data[chosen] = values[where] / directions[j]
                error[chosen] = errors[where] / lengths[j]

        settings = self.options.workers, report, self.options.checkpoint
        run_parts(work, coloring.count, store, *settings)
        nowhere = ~usable[column]  # columns without a step
        data[nowhere], error[nowhere] = np.nan, np.inf
        status = by_column["status"].astype(np.int8)
        status[usable] = states["status"][coloring.colors[usable]]
        points = x + states["step"][coloring.colors] * lengths
        return data, error, points, status, int(states["calls"].sum())
