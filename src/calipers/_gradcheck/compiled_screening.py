"""Screening of a compiled f: slopes are taken and judged in one compiled loop."""

import contextlib

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._derivatives.fixed_step import aligned, lost_step, note_coordinate, perturbation, runs
from .._derivatives.fixed_step_error import Slopes
from .._execution.run import WORTH_SHARING_SECONDS, run
from .._kernels.differences import EXCLUDED
from .._kernels.gradcheck import SCREEN_COLUMNS
from .._kernels.gradcheck_marks import LEFT_OUT, VAGUE, WAITING, WORD, ColumnCriteria
from .basis_vectors import UnitVectors, rows_per_block
from .columns import Jacobian, Pushed
from .screening import Screening

_AT_ONCE = 1024  # columns, where none is stored


class SpoiledError(Exception):
    """Something was raised where f and its derivative were called in one loop."""


class CompiledScreening(Screening):
    """
    The screening pass in a compiled loop, on several threads.

    If row norms are unknown, they are accumulated during screening. Columns marked WAITING are
    cleared afterwards if the final norms suffice.
    """

    calls = Slopes.calls

    def __post_init__(self) -> None:
        super().__post_init__()
        self.jvp = _compiled_jvp(self.jacobians)
        self._begin()

    @property
    def stores(self) -> bool:
        """Whether columns of the Jacobian are stored, rather than computed one at a time."""
        return self.jvp is None and self.products is None

    def _begin(self) -> None:
        """Allocate the buffers of one thread."""
        self._at_once = rows_per_block(self.problem.base.size) if self.stores else _AT_ONCE
        self._at_once = max(1, min(self._at_once, self.problem.coordinates))
        self._made: list[_ThreadBuffers] = []
        self._spare = [self._new()]  # before the first block is timed

    def _new(self) -> "_ThreadBuffers":
        self._made.append(_ThreadBuffers(self, self._at_once))
        return self._made[-1]

    def marks(self) -> NDArray:
        """Return the marks of all columns."""
        return self._marks(0, self.problem.coordinates)

    def _marks(self, start: int, count: int) -> NDArray:
        marks = None
        with contextlib.suppress(SpoiledError):
            marks = self._screened(start, count)
            if self.jvp is not None and not self.jvp.record_calls(count):
                marks = None
        if marks is None:  # called one by one, f or its jvp raises the error itself
            self.jvp = None
            self._begin()
            marks = self._screened(start, count)
        self.taken = sum(buffers.taken for buffers in self._made)
        return marks

    def _screened(self, start: int, count: int) -> NDArray:
        """Screen columns here, or in threads if that is worth it."""
        (marks,) = self.results(count)
        seconds = 2 * count * self.differences.subject.seconds  # at most: a loop takes less
        concurrent = all(jacobian.concurrent for jacobian in self.jacobians.values())
        if concurrent and seconds > WORTH_SHARING_SECONDS:
            return run(self, count, start=start)[0]
        self(start, (marks,))
        return marks

    def results(self, count: int) -> tuple[NDArray]:
        """Return an array for the marks of columns."""
        return (np.zeros(count, np.int8),)

    def __call__(self, start: int, outs: tuple[NDArray, ...]) -> None:
        """Screen columns from `start`, as many as stay in the caches at a time."""
        (marks,) = outs
        spare = self._spare  # that of before, should this be begun anew meanwhile
        try:  # another thread may take the last one first
            buffers = spare.pop()
        except IndexError:
            buffers = self._new()
        try:
            for first in range(0, len(marks), self._at_once):
                buffers.screen(start + first, marks[first : first + self._at_once])
        except Exception as error:
            if self.jvp is None:
                raise
            raise SpoiledError from error
        spare.append(buffers)

    def measure(self) -> None:
        """Record the row norms that were accumulated during screening."""
        for buffers in self._made:
            np.maximum(self.sizes.rows, buffers.by_row.view(float), out=self.sizes.rows)

    @property
    def suffices(self) -> bool:
        """Whether the final row norms clear the columns marked WAITING."""
        return all((buffers.needs <= self.sizes.rows).all() for buffers in self._made)

    def screen_waiting(self, marks: NDArray) -> None:
        """Screen WAITING columns again if the row norms turned out to be too small."""
        if not self.suffices:
            waiting = np.flatnonzero(marks == WAITING)
            for part in runs(waiting):
                columns = waiting[part]
                marks[columns] = self._marks(int(columns[0]), len(columns))

    def is_clear(self, marks: NDArray) -> bool:
        """Return True if products leave no column in doubt, except for rows that are too small."""
        doubted = (marks != LEFT_OUT) & ((marks >= VAGUE) | self.differences.small)
        return self.suffices and not doubted.any()

    @property
    def least(self) -> float:
        """The least row norm for which products clear all columns."""
        return max(float(buffers.least[0]) for buffers in self._made)

    @property
    def sums(self) -> NDArray:
        """The products of rows of slopes."""
        return np.asarray(np.sum([buffers.sums for buffers in self._made], axis=0))


def _compiled_jvp(jacobians: dict[str, Jacobian]) -> UnitVectors | None:
    """Return the jvp that kernels can call for columns of the Jacobian, or None."""
    one, *others = jacobians.values()
    if others or not isinstance(one, Pushed):
        return None
    return None if one.units.loop is None else one.units


class _ThreadBuffers:
    """The buffers of one thread that screens columns, and the row norms it needs and finds."""

    def __init__(self, screening: CompiledScreening, count: int) -> None:
        self.screening = screening
        jvp = None if screening.jvp is None else screening.jvp.loop
        size, stored = screening.problem.base.size, count if screening.stores else 1
        self.needs = np.zeros(size)
        self.by_row = np.zeros(size, np.int64)  # sizes that were found in passing
        self.least = np.zeros(1)  # the least row norm for which products clear columns
        self.sums = np.empty(0)  # with weights of columns
        self.taken = 0
        self._analytic = aligned((len(screening.jacobians), stored, size), np.dtype(float))
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

    def _columns(self, start: int, count: int) -> NDArray:
        """Return columns of the Jacobian from `start`, a row each, in all its forms."""
        forms, _, size = self._analytic.shape
        columns = self._analytic.reshape(-1)[: forms * count * size].reshape(forms, count, size)
        number = self.screening.differences.part.start + start
        for rows, jacobian in zip(columns, self.screening.jacobians.values(), strict=True):
            jacobian.columns(number, number + count, rows)
        return columns

    def screen(self, start: int, marks: NDArray) -> None:
        """Write the marks of columns from `start`."""
        screening, status, counters = (
            self.screening,
            self._status[: len(marks)],
            np.zeros(2, np.int64),
        )
        analytic = self._columns(start, len(marks)) if screening.stores else self._analytic
        jvp = None if self._other is None else (self._other.form, *self._jvp_buffers)
        where = self._native.form, *self._where, jvp, self._compared
        rule = analytic, self._criteria(slice(start, start + len(marks)))
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
