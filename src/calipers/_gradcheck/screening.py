"""Screen every column: compare its entries with the mean of two one-sided slopes."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._derivatives.fixed_step import aligned, lost_step, note_coordinate, perturbation, runs
from .._derivatives.fixed_step_error import Slopes
from .._derivatives.thresholds import THRESHOLDS
from .._execution.run import WORTH_SHARING_SECONDS, run
from .._kernels.differences import EXCLUDED, FIXED
from .._kernels.gradcheck import SCREEN_COLUMNS
from .._kernels.gradcheck_marks import (
    CLEAR,
    DOUBTED,
    LEFT_OUT,
    VAGUE,
    WAITING,
    WORD,
    ColumnCriteria,
)
from .basis_vectors import UnitVectors, rows_per_block
from .columns import Jacobian, Products, Pushed, Sizes, largest_terms
from .entry_rules import (
    Entries,
    Rule,
    are_clear,
    are_confirmed,
    marks_of,
    rounded_away,
    rounding_of,
    unclear_entries,
)
from .flatten import real_vector
from .numerical import FiniteDifferences
from .perturb import Claims, natural_lengths

_AT_ONCE = 1024  # columns, where none is stored


class SpoiledError(Exception):
    """Something was raised where f and its derivative were called in one loop."""


@dataclass
class Screening:
    """
    The screening pass: which columns leave some form of the derivative in doubt.

    If row norms are unknown, they are accumulated during screening. Columns marked WAITING are
    cleared afterwards if the final norms suffice.
    """

    differences: FiniteDifferences
    jacobians: dict[str, Jacobian]
    sizes: Sizes
    rule: Rule
    products: Products | None = None  # that slopes are compared with, in place of entries
    claims: Claims | None = None  # finds entries that are nothing but rounding
    calls = Slopes.calls

    def __post_init__(self) -> None:
        differences = self.differences
        self.problem = differences.problem
        self.noise = THRESHOLDS.screening_noise * rounding_of(
            differences.subject.sizes, differences.eps
        )
        self.jvp = _compiled_jvp(self.jacobians) if differences.compiled else None
        # Outputs that do not change, since f computes in few bits, where all columns move, and
        # where only those of zeros move.
        self._unchanged = np.zeros(self.problem.base.size, bool)
        self._unchanged_for_zeros = self._unchanged
        self._largest: NDArray | None = None
        self._begin()

    @property
    def stores(self) -> bool:
        """Whether columns of the Jacobian are stored, rather than computed one at a time."""
        return self.jvp is None and self.products is None

    def _begin(self) -> None:
        """Allocate the buffers of one thread."""
        self._at_once = rows_per_block(self.problem.base.size) if self.stores else _AT_ONCE
        self._at_once = max(1, min(self._at_once, self.problem.coordinates))
        self._made: list[_ColumnScreen] = []
        self._spare = [self._new()]  # before the first block is timed

    def _new(self) -> "_ColumnScreen":
        screen = (_CompiledScreen if self.differences.compiled else _SlopeScreen)(
            self, self._at_once
        )
        self._made.append(screen)
        return screen

    def _taken(self) -> "_ColumnScreen":
        """Return buffers that no other thread uses."""
        try:
            return self._spare.pop()
        except IndexError:
            return self._new()

    def results(self, count: int) -> tuple[NDArray]:
        """Return an array for the marks of columns."""
        return (np.zeros(count, np.int8),)

    def __call__(self, start: int, outs: tuple[NDArray, ...]) -> None:
        """Screen columns from `start`, as many as stay in the caches at a time."""
        (marks,) = outs
        spare = self._spare  # that of before, should this be begun anew meanwhile
        screen = self._taken()
        try:
            for first, part in self._parts(marks):
                screen(start + first, part)
        except Exception as error:
            if self.jvp is None:
                raise
            raise SpoiledError from error
        spare.append(screen)

    def _parts(self, marks: NDArray) -> Iterator[tuple[int, NDArray]]:
        """Yield blocks of columns that are screened together, and where they begin."""
        for first in range(0, len(marks), self._at_once):
            yield first, marks[first : first + self._at_once]

    def begin_anew(self) -> None:
        """Forget all results, and compute columns of the Jacobian outside of the kernels."""
        self.jvp = None
        self._begin()

    def measure(self) -> None:
        """Record the row norms that were accumulated during screening."""
        if not self.sizes.is_complete:
            for screen in self._made:
                np.maximum(self.sizes.rows, screen.by_row.view(float), out=self.sizes.rows)

    @property
    def taken(self) -> int:
        """How many slopes were taken of columns."""
        return sum(screen.taken for screen in self._made)

    @property
    def suffices(self) -> bool:
        """Whether the final row norms clear the columns marked WAITING."""
        return all((screen.needs <= self.sizes.rows).all() for screen in self._made)

    def is_clear(self, marks: NDArray) -> bool:
        """Return True if products leave no column in doubt, except for rows that are too small."""
        doubted = (marks != LEFT_OUT) & ((marks >= VAGUE) | self.differences.small)
        return self.suffices and not doubted.any()

    @property
    def least(self) -> float:
        """Return the least row norm for which products clear all columns."""
        return max(float(screen.least[0]) for screen in self._made)

    @property
    def sums(self) -> NDArray:
        """Return the products of rows of slopes."""
        return np.asarray(np.sum([screen.sums for screen in self._made], axis=0))

    def judge_slopes(self, start: int, slopes: tuple[NDArray, ...], marks: NDArray) -> None:
        """Judge columns from `start` by slopes that workers have computed."""
        screen = self._taken()
        assert isinstance(screen, _SlopeScreen)
        for first, part in self._parts(marks):
            right, left, status = (array[first : first + len(part)] for array in slopes)
            screen.judge(start + first, right, left, status, part)
        marks[marks == VAGUE] = DOUBTED  # here f is not at hand
        self._spare.append(screen)

    def find_rounded(self, marks: NDArray) -> None:
        """Mark columns as doubtful if rounding in f may hide changes of constant outputs."""
        differences = self.differences
        moving = differences.steps > 0
        zeros = self._zeros & moving
        if (marks == DOUBTED).any() or zeros.all() or not self.sizes.rows.all():
            self._unchanged = differences.unmoved_outputs(np.flatnonzero(moving))
            if self._unchanged.any():
                self._unchanged &= differences.rounded_outputs
        if zeros.any() and not zeros.all():
            columns = np.flatnonzero(zeros)
            self._unchanged_for_zeros = differences.rounded_along(columns)
        rounded = self._unchanged.any() | (zeros & self._unchanged_for_zeros.any())
        marks[rounded & (marks != LEFT_OUT)] = DOUBTED

    @property
    def _zeros(self) -> NDArray:
        """Whether all entries of a column are 0."""
        part = slice(self.differences.part.start, self.differences.part.stop)
        if self.products is not None:
            return np.asarray(~self.products.images[:, part].any(axis=0))
        return np.asarray(self.sizes.columns[part] == 0)

    def is_rounded(self, columns: slice | NDArray) -> NDArray:
        """Return True for entries whose slope rounding in f may hide, a row for each column."""
        of_zeros = self._zeros[columns, None] & self._unchanged_for_zeros
        return np.asarray(self._unchanged | of_zeros)

    def rounding(self, rows: NDArray) -> NDArray:
        """Return what the terms of f's linear part are rounded by, or what f is off by if more."""
        subject = self.differences.subject
        x = real_vector([part.example for part in subject.active])
        terms = self.sizes.terms(self.jacobians, x.astype(float))
        return np.maximum(rounding_of(terms[rows], self.differences.eps), subject.noise[rows])

    def are_rounded_away(self, rows: NDArray, columns: NDArray, entries: NDArray) -> NDArray:
        """Return True for entries that rounding of the largest entry in their row may leave."""
        lengths = natural_lengths(self.differences.subject)
        if self._largest is None:
            self._largest = largest_terms(self.jacobians.values(), lengths)
        changes = entries * lengths[columns]
        return rounded_away(changes, self._largest[rows], self.differences.eps)

    def doubtful_entries(
        self, columns: NDArray, analytic: NDArray, right: NDArray, left: NDArray
    ) -> NDArray:
        """Mark the entries of columns, a row each, that their slopes leave in doubt."""
        noise = self.noise / self.differences.steps[columns, None]
        numbers = self.differences.part.start + columns
        floor = np.minimum(self.sizes.rows, self.sizes.columns[numbers, None])
        clear = are_clear(analytic, (right, left), floor, noise, self.rule)
        return ~clear | self.differences.small[columns, None]


def _compiled_jvp(jacobians: dict[str, Jacobian]) -> UnitVectors | None:
    """Return the jvp that kernels can call for columns of the Jacobian, or None."""
    one, *others = jacobians.values()
    if others or not isinstance(one, Pushed):
        return None
    return None if one.units.loop is None else one.units


class _ColumnScreen(ABC):
    """The buffers of one thread that screens columns, and the row norms it needs and finds."""

    def __init__(self, screening: Screening, count: int) -> None:
        self.screening = screening
        size = screening.problem.base.size
        self.needs = np.zeros(size)
        self.by_row = np.zeros(size, np.int64)  # sizes that were found in passing
        self.least = np.zeros(1)  # the least row norm for which products clear columns
        self.sums = np.empty(0)  # with weights of columns
        self.taken = 0
        self._analytic = aligned((len(screening.jacobians), count, size), np.dtype(float))

    def analytic(self, start: int, count: int) -> NDArray:
        """Return columns of the Jacobian from `start`, a row each, in all its forms."""
        forms, _, size = self._analytic.shape
        columns = self._analytic.reshape(-1)[: forms * count * size].reshape(forms, count, size)
        number = self.screening.differences.part.start + start
        for rows, jacobian in zip(columns, self.screening.jacobians.values(), strict=True):
            jacobian.columns(number, number + count, rows)
        return columns

    @abstractmethod
    def __call__(self, start: int, marks: NDArray) -> None:
        """Write the marks of columns from `start`."""


class _SlopeScreen(_ColumnScreen):
    """Screening by arrays of slopes, for any f."""

    def __init__(self, screening: Screening, count: int) -> None:
        super().__init__(screening, count)
        base = screening.problem.base
        right, left = np.empty((2, count, base.size), base.dtype)
        self._space = right, left, np.empty(count, np.int8)

    def __call__(self, start: int, marks: NDArray) -> None:
        right, left, status = (array[: len(marks)] for array in self._space)
        self.screening.differences.slopes(start, (right, left, status))
        vague = self.judge(start, right, left, status, marks)
        if (marks == VAGUE).any():
            self._resolve(start, vague, marks)

    def judge(
        self, start: int, right: NDArray, left: NDArray, status: NDArray, marks: NDArray
    ) -> list[Entries]:
        """Judge by slopes, and return VAGUE entries, a group for each form in doubt."""
        screening, block = self.screening, _from(start, marks)
        steps, vague = screening.differences.steps[block], []
        for claimed in self.analytic(start, len(marks)):
            entries = unclear_entries(claimed, right, left, screening.noise, steps, screening.rule)
            if len(entries.rows):
                noise = screening.noise[entries.rows] / steps[entries.columns]
                by_entry = marks_of(entries, self._floor(start, entries), noise, screening.rule)
                np.maximum.at(marks, entries.columns, by_entry)
                vague.append(entries.where(by_entry == VAGUE))
        self.taken += int(np.count_nonzero(status == FIXED))
        marks[status == EXCLUDED] = LEFT_OUT
        return vague

    def _floor(self, start: int, entries: Entries) -> NDArray:
        """Return the smaller of the largest entries in the rows and columns of entries."""
        sizes, first = self.screening.sizes, self.screening.differences.part.start + start
        columns = sizes.columns[first + entries.columns]
        return np.asarray(np.minimum(sizes.rows[entries.rows], columns))

    def _resolve(self, start: int, vague: list[Entries], marks: NDArray) -> None:
        """Resolve VAGUE columns by slopes of longer steps."""
        screening = self.screening
        differences, noise = screening.differences, screening.noise
        distances = differences.far[_from(start, marks)]
        marks[(marks == VAGUE) & (distances == 0)] = DOUBTED
        columns = np.flatnonzero(marks == VAGUE)
        if not len(columns):
            return
        farther = []
        for work in differences.farther:
            right, left, status = work.results(len(columns))
            work.at(start + columns, (right, left, status))
            self.taken += int(np.count_nonzero(status == FIXED))
            farther.append((right.astype(float), left.astype(float)))
        for entries in vague:
            entries = entries.where(np.isin(entries.columns, columns))
            at, rows = np.searchsorted(columns, entries.columns), entries.rows
            far = [(right[at, rows], left[at, rows]) for right, left in farther]
            steps = differences.steps[start + entries.columns], distances[entries.columns]
            about = self._floor(start, entries), noise[rows], steps, screening.rule
            marks[entries.columns[~are_confirmed(entries, far, *about)]] = DOUBTED
        marks[columns] = np.where(marks[columns] == VAGUE, CLEAR, marks[columns])


class _CompiledScreen(_ColumnScreen):
    """Screening of a compiled f, whose slopes are judged as they arise."""

    def __init__(self, screening: Screening, count: int) -> None:
        jvp = None if screening.jvp is None else screening.jvp.loop
        super().__init__(screening, count if screening.stores else 1)
        differences, problem = screening.differences, screening.problem
        native = problem.native
        assert native is not None
        x = aligned(problem.x.shape, problem.x.dtype)
        like = np.empty(problem.native_shape, problem.dtype)
        values = aligned((4, 2, -(-problem.base.size // 8) * 8), problem.base.dtype)
        jvp_buffers: tuple[NDArray, ...] = ()
        other = None if jvp is None else jvp.native
        if jvp is not None and other is not None:
            jvp_buffers = np.zeros_like(jvp.x), np.empty(jvp.native_shape, jvp.dtype)
        products, part, compared = screening.products, differences.part, None
        if products is not None:
            columns = slice(part.start, part.stop)
            images, of_columns = (
                np.ascontiguousarray(array[:, columns])
                for array in (products.images, products.of_columns)
            )
            self.sums = np.zeros((len(of_columns), screening.problem.base.size))
            compared = products.of_rows, images, of_columns, self.sums
        self._native, self._other, self._compared = native, other, compared
        key = None if other is None else other.key, products is not None
        self._kernel = native.entry(SCREEN_COLUMNS, *key)
        self._status = np.empty(count, np.int8)
        self._where = x, as_real_vector(problem.x)
        self._jvp_buffers = jvp_buffers
        right, left = (work.steps.rule for work in differences.slopes.differences)
        tables = np.empty((4, 2, 3, 1, count))
        stretches = np.empty((1 + problem.base.size // WORD, 2), np.uint64)
        scratch = like, values, self.by_row, stretches
        self._fixed = right, left, differences.far, tables, problem.base, *scratch

    def __call__(self, start: int, marks: NDArray) -> None:
        screening, status, counters = (
            self.screening,
            self._status[: len(marks)],
            np.zeros(2, np.int64),
        )
        analytic = self.analytic(start, len(marks)) if screening.stores else self._analytic
        jvp = None if self._other is None else (self._other.form, *self._jvp_buffers)
        where = self._native.form, *self._where, jvp, self._compared
        rule = analytic, self._criteria(_from(start, marks))
        try:
            needs = self.needs, self.least
            lost = self._kernel(*where, start, *self._fixed, *rule, marks, *needs, status, counters)
        except Exception as error:
            step = perturbation(screening.problem, *self._where, counters[0])
            note_coordinate(error, screening.problem, counters[0], step)
            raise
        if lost >= 0:
            raise lost_step(screening.problem, lost)
        self.taken += int(counters[1])
        marks[status == EXCLUDED] = LEFT_OUT

    def _criteria(self, columns: slice) -> ColumnCriteria:
        """Return the criteria of the kernel for columns of this input."""
        screening, differences = self.screening, self.screening.differences
        rule, sizes, noise = screening.rule, screening.sizes, screening.noise
        rows = sizes.rows if sizes.is_complete else np.full(len(noise), np.inf)
        column_sizes = sizes.columns[differences.part.start : differences.part.stop][columns]
        numbers = rule.rtol, rule.atol, rule.share, rule.bend
        return ColumnCriteria(rows, column_sizes, *numbers, noise, differences.steps[columns])


def _from(start: int, marks: NDArray) -> slice:
    return slice(start, start + len(marks))


def rescreen_waiting(screening: Screening, marks: NDArray) -> None:
    """Screen WAITING columns again if the row norms turned out to be too small."""
    if not screening.suffices:
        waiting = np.flatnonzero(marks == WAITING)
        for part in runs(waiting):
            columns = waiting[part]
            marks[columns] = screen_columns(screening, int(columns[0]), len(columns))


def screen_columns(screening: Screening, start: int = 0, count: int | None = None) -> NDArray:
    """Return the marks of all columns, or of some from `start`."""
    count = screening.problem.coordinates if count is None else count
    with contextlib.suppress(SpoiledError):
        marks = _screen_by_policy(screening, start, count)
        if screening.jvp is None or screening.jvp.record_calls(count):
            return marks
    screening.begin_anew()  # called one by one, f or its jvp raises the error itself
    return _screen_by_policy(screening, start, count)


def _screen_by_policy(screening: Screening, start: int, count: int) -> NDArray:
    """Screen columns by the execution policy: in threads, here, or by workers."""
    differences = screening.differences
    (marks,) = screening.results(count)
    if differences.policy.is_local:
        seconds = 2 * count * differences.subject.seconds  # at most: a compiled loop takes less
        by_threads = screening.problem.native is not None and seconds > WORTH_SHARING_SECONDS
        if by_threads and all(jacobian.concurrent for jacobian in screening.jacobians.values()):
            return run(screening, count, start=start)[0]
        screening(start, (marks,))
        return marks

    def store(first: int, slopes: tuple[NDArray, ...]) -> None:
        screening.judge_slopes(first, slopes, marks[first : first + len(slopes[0])])

    differences.run_pass(differences.slopes, "first-look", np.ones(count, bool), store)
    return marks
