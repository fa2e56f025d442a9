"""The first look at every column: two slopes, and which entries are not near their mean."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from .._differences.columns import aligned, lost_step
from .._differences.evaluate import blame
from .._differences.problem import Problem, reals
from .._differences.run import WORTH_SHARING, run
from .._jit import Kernels
from .._kernels.differences import EXCLUDED
from .._kernels.gradcheck import DOUBTS, GLANCE, SCREEN
from .._protocols import NDArray
from .analytic import Jacobian, Sizes, together
from .numerical import LEFT, RIGHT, Looks
from .rule import Rule, rounding_of

CLEAR, DOUBTED, LEFT_OUT = range(3)

_NOISE = 64.0  # rounding errors that are no sign of a kink
_NONE = np.empty(0)

# Looks at columns from the first of its arguments, and marks in the second what is found.
Look = Callable[[int, NDArray], None]


@dataclass
class Screening:
    """The first look at columns: which of them leave some form of the derivative in doubt."""

    looks: Looks
    jacobians: dict[str, Jacobian]
    sizes: Sizes
    rule: Rule
    calls = 2.0

    def __post_init__(self) -> None:
        base = self.looks.problem.base
        sizes = np.abs(base.astype(float))
        self.noise = _NOISE * rounding_of(sizes, self.looks.subject.eps)
        self._step = together(base.size)
        self._spare: list[tuple[int, Look]] = []

    @property
    def problem(self) -> Problem:
        return self.looks.problem

    def results(self, count: int) -> tuple[NDArray]:
        """Return an array for what is found of each column: CLEAR, DOUBTED or LEFT_OUT."""
        return (np.zeros(count, np.int8),)

    def __call__(self, start: int, outs: tuple[NDArray, ...]) -> None:
        """Look at columns from `start`, as many as stay in the caches at a time."""
        (found,) = outs
        size, look = self._taken(len(found))
        for first in range(0, len(found), size):
            look(start + first, found[first : first + size])
        self._spare.append((size, look))

    def _taken(self, count: int) -> tuple[int, Look]:
        """Return a look at so many columns, or as many as are looked at together."""
        size = max(1, min(self._step, count))
        with suppress(IndexError):  # another thread may have taken the last one
            spare = self._spare.pop()
            if spare[0] >= size:
                return spare
        compiled = self.problem.native is not None and not self.looks.coarse.lows.size
        return size, (_Glance if compiled else _BySlopes)(self, size)

    def seen(self, start: int, slopes: tuple[NDArray, ...], found: NDArray) -> None:
        """Judge columns from `start` by slopes that were found elsewhere."""
        for first in range(0, len(found), self._step):
            part = slice(first, first + self._step)
            right, left, status = (array[part] for array in slopes)
            own = np.empty(right.shape)
            self.judge_all(start + first, own, right, left, status, found[part])

    def judge_all(
        self,
        start: int,
        own: NDArray,
        right: NDArray,
        left: NDArray,
        status: NDArray,
        found: NDArray,
    ) -> None:
        for jacobian in self.jacobians.values():
            self._judge(SCREEN, jacobian, start, own, right, left, found)
        found[status == EXCLUDED] = LEFT_OUT

    def doubted(
        self, column: int, right: NDArray, left: NDArray
    ) -> tuple[NDArray, dict[str, tuple[NDArray, NDArray]]]:
        """Return the slope along a column, and for each form its entries and which are in doubt."""
        size = self.problem.base.size
        found = {}
        for form, jacobian in self.jacobians.items():
            own, doubted = np.empty((1, size)), np.empty(size, np.int8)
            self._judge(DOUBTS, jacobian, column, own, right, left, doubted)
            found[form] = own[0], np.flatnonzero(doubted)
        return 0.5 * right[0].astype(float) + 0.5 * left[0].astype(float), found

    def _judge(
        self,
        kernels: Kernels,
        jacobian: Jacobian,
        start: int,
        own: NDArray,
        right: NDArray,
        left: NDArray,
        found: NDArray,
    ) -> None:
        columns = self.columns(start, len(own))
        jacobian.columns(columns.start, columns.stop, own)
        kernels[right.dtype](own, right, left, *self.criteria(start, columns), found)

    def columns(self, start: int, count: int) -> slice:
        """Return where columns of this input are among those of all."""
        number = self.looks.part.start + start
        return slice(number, number + count)

    def criteria(self, start: int, columns: slice) -> tuple[NDArray | float, ...]:
        """Return what kernels know of the rule."""
        rule, here = self.rule, slice(start, start + columns.stop - columns.start)
        numbers = rule.rtol, rule.atol, rule.share, rule.bend
        sizes = self.sizes.rows, self.sizes.columns[columns]
        return (*sizes, *numbers, self.noise, self.looks.steps[here])


class _BySlopes:
    """A look at columns by arrays of slopes, whatever f is."""

    def __init__(self, screening: Screening, count: int) -> None:
        self._screening = screening
        base = screening.problem.base
        right, left = (np.empty((count, base.size), base.dtype) for _ in range(2))
        self._space = np.empty((count, base.size)), right, left, np.empty(count, np.int8)

    def __call__(self, start: int, found: NDArray) -> None:
        own, right, left, status = (array[: len(found)] for array in self._space)
        self._screening.looks.slopes(start, (right, left, status))
        self._screening.judge_all(start, own, right, left, status, found)


class _Glance:
    """A look at columns of a compiled f, whose slopes are judged as they arise."""

    def __init__(self, screening: Screening, count: int) -> None:
        problem, steps = screening.problem, screening.looks.coarse
        native = problem.native
        assert native is not None
        x = aligned(problem.x.shape, problem.x.dtype)
        upper, lower = (aligned(problem.native_shape, problem.dtype) for _ in range(2))
        self._screening, self._kernel = screening, native.entry(GLANCE)
        self._own = aligned((len(screening.jacobians), count, problem.base.size), np.dtype(float))
        self._status, self._reached = np.empty(count, np.int8), np.empty(1, np.int64)
        self._where = native.form, x, reals(problem.x)
        rule = steps.lengths, steps.factor, _NONE, RIGHT, LEFT, np.empty((2, 3, 1, count))
        self._fixed = *rule, problem.base, upper, lower

    def __call__(self, start: int, found: NDArray) -> None:
        screening, count = self._screening, len(found)
        columns, forms = screening.columns(start, count), screening.jacobians
        size, status = self._own.shape[-1], self._status[:count]
        own = self._own.reshape(-1)[: len(forms) * count * size].reshape(len(forms), count, size)
        for lines, jacobian in zip(own, forms.values(), strict=True):
            jacobian.columns(columns.start, columns.stop, lines)
        rest = *screening.criteria(start, columns), status, found, self._reached
        try:
            lost = self._kernel(*self._where, start, *self._fixed, own, *rest)
        except Exception as error:
            blame(error, screening.problem, self._reached[0])
            raise
        if lost >= 0:
            raise lost_step(screening.problem, lost)
        found[status == EXCLUDED] = LEFT_OUT


def first_look(screening: Screening, count: int) -> NDArray:
    """Return what is found of each column: CLEAR, DOUBTED or LEFT_OUT."""
    looks = screening.looks
    seconds = 2 * count * looks.subject.seconds  # at most: a compiled loop takes less
    concurrent = all(j.concurrent for j in screening.jacobians.values())
    if looks.way.plain and concurrent and seconds > WORTH_SHARING:
        return run(screening, count)[0]
    (marks,) = screening.results(count)
    if looks.way.plain:
        screening(0, (marks,))
        return marks

    def store(first: int, slopes: tuple[NDArray, ...]) -> None:
        screening.seen(first, slopes, marks[first : first + len(slopes[0])])

    looks.have_done(looks.slopes, "first-look", np.ones(count, bool), store)
    return marks
