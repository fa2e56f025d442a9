"""Every entry against differences: a first look at all, a second one where they differ."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .._differences.problem import Problem
from .._differences.run import WORTH_SHARING, run
from .._jit import Kernels
from .._kernels.differences import EXCLUDED
from .._kernels.gradcheck import DOUBTS, SCREEN
from .._protocols import NDArray
from .analytic import Jacobian, Sizes, together
from .numerical import Looks
from .rule import (
    FAIL,
    INCONCLUSIVE,
    NONSMOOTH,
    PASS,
    VERDICTS,
    Rule,
    breaks,
    disputed,
    kinks,
    poles,
)

CLEAR, DOUBTED, LEFT_OUT = range(3)

_KEPT = 100_000  # entries that a report can show one by one; more are counted
_KEPT_NUMBERS = 1 << 22  # of numerical columns
_OUTSIDE = 0.1  # of the range of slopes at a kink, by which a wrong one is outside
_NOISE = 64.0  # rounding errors that are no sign of a kink


@dataclass
class Entries:
    """Entries that are not right, in real numbers: column, row, form of the derivative, values."""

    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    columns: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    values: list[tuple[float, float, float]] = field(default_factory=list)
    numerical: dict[int, NDArray] = field(default_factory=dict)  # by column
    largest_error: float = 0.0
    left_out: int = 0  # columns, by steps of 0

    def keep(self, column: int, numerical: NDArray) -> None:
        """Keep a numerical column for the diagnosis, unless there are too many."""
        if len(self.numerical) * numerical.size < _KEPT_NUMBERS:
            self.numerical[column] = numerical.copy()  # and not what it is a part of

    def add(
        self,
        column: int,
        rows: NDArray,
        form: str,
        verdicts: NDArray,
        own: NDArray,
        d: NDArray,
        e: NDArray,
    ) -> None:
        """Note entries of a column."""
        for k, verdict in enumerate(VERDICTS):
            (which,) = np.nonzero(verdicts == k)
            self.count[verdict] += len(which)
            if verdict == PASS:
                continue
            for i in which[: max(0, _KEPT - len(self.rows))].tolist():
                self.columns.append(column)
                self.rows.append(int(rows[i]))
                self.forms.append(form)
                self.verdicts.append(verdict)
                self.values.append((float(own[i]), float(d[i]), float(e[i])))


class _Space(NamedTuple):
    """Memory for some columns."""

    own: NDArray
    right: NDArray
    left: NDArray
    status: NDArray


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
        self._noise = _NOISE * self.looks.subject.eps * np.abs(base.astype(float))
        self._spare: list[_Space] = []
        self._step = together(base.size)

    @property
    def problem(self) -> Problem:
        return self.looks.problem

    def results(self, count: int) -> tuple[NDArray]:
        """Return an array for what is found of each column: CLEAR, DOUBTED or LEFT_OUT."""
        return (np.zeros(count, np.int8),)

    def __call__(self, start: int, outs: tuple[NDArray, ...]) -> None:
        """Look at columns from `start`, as many as stay in the caches at a time."""
        (found,) = outs
        space = self._space(len(found))
        for first in range(0, len(found), len(space.status)):
            part = found[first : first + len(space.status)]
            own, right, left, status = (array[: len(part)] for array in space)
            self.looks.slopes(start + first, (right, left, status))
            self._judge_all(start + first, own, right, left, status, part)
        self._spare.append(space)

    def seen(self, start: int, slopes: tuple[NDArray, ...], found: NDArray) -> None:
        """Judge columns from `start` by slopes that were found elsewhere."""
        for first in range(0, len(found), self._step):
            part = slice(first, first + self._step)
            right, left, status = (array[part] for array in slopes)
            own = np.empty(right.shape)
            self._judge_all(start + first, own, right, left, status, found[part])

    def _judge_all(
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

    def _space(self, count: int) -> "_Space":
        """Return memory for so many columns, or as many as are looked at together."""
        step, base = max(1, min(self._step, count)), self.problem.base
        with contextlib.suppress(IndexError):  # another thread may have taken the last one
            space = self._spare.pop()
            if len(space.status) >= step:
                return space
        right, left = (np.empty((step, base.size), base.dtype) for _ in range(2))
        return _Space(np.empty((step, base.size)), right, left, np.empty(step, np.int8))

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
        rule, here = self.rule, slice(start, start + len(own))
        number = self.looks.part.start + start
        columns = slice(number, number + len(own))
        jacobian.columns(columns.start, columns.stop, own)
        numbers = rule.rtol, rule.atol, rule.share, rule.bend
        sizes = self.sizes.rows, self.sizes.columns[columns]
        given = (*sizes, *numbers, self._noise, self.looks.steps[here], found)
        kernels[right.dtype](own, right, left, *given)


def examine(
    looks: Looks,
    jacobians: dict[str, Jacobian],
    sizes: Sizes,
    rule: Rule,
    found: Entries,
    vouched: bool = False,
) -> None:
    """Judge the entries of one input, in every form in which its derivative was given."""
    screening = Screening(looks, jacobians, sizes, rule)
    count = looks.problem.coordinates
    marks = _first_look(screening, count)
    taken = count - int(np.count_nonzero(marks == LEFT_OUT))
    found.left_out += count - taken
    doubtful = np.flatnonzero(marks == DOUBTED)
    looks.calls += looks.sides * taken
    found.count[PASS] += (taken - len(doubtful)) * looks.problem.base.size * len(jacobians)

    def judge(column: int, seen: tuple[NDArray, ...]) -> None:
        _look_again(screening, column, seen, found, vouched)

    if looks.way.plain:
        for column in doubtful.tolist():
            seen = looks.second.results(1)
            looks.second(column, seen)
            judge(column, seen)
    elif len(doubtful):
        _second_look(looks, doubtful, judge)


def _first_look(screening: Screening, count: int) -> NDArray:
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


def _second_look(
    looks: Looks, doubtful: NDArray, judge: Callable[[int, tuple[NDArray, ...]], None]
) -> None:
    """Look again at columns, and judge them in their order, whenever they come."""
    waiting = dict.fromkeys(doubtful.tolist())
    wanted = np.zeros(looks.problem.coordinates, bool)
    wanted[doubtful] = True
    early: dict[int, tuple[NDArray, ...]] = {}

    def store(first: int, seen: tuple[NDArray, ...]) -> None:
        for k in range(len(seen[0])):
            early[first + k] = tuple(array[k : k + 1] for array in seen)
        while waiting and (column := next(iter(waiting))) in early:
            del waiting[column]
            judge(column, early.pop(column))

    looks.have_done(looks.second, "second-look", wanted, store)


def _look_again(
    screening: Screening,
    column: int,
    seen: tuple[NDArray, ...],
    found: Entries,
    vouched: bool,
) -> None:
    """Judge what is in doubt in a column by a derivative that knows its error."""
    looks, rule = screening.looks, screening.rule
    number = looks.part.start + column
    right, left, _, (value,), (error,), states, (values,), (known_values,) = seen
    slope, forms = screening.doubted(column, right, left)
    looks.calls += looks.sides + int(states["calls"].sum())
    looks.calls += len(values) - 1 if known_values else 0
    known = np.isfinite(error)
    found.largest_error = max(found.largest_error, float(error[known].max(initial=0.0)))
    found.keep(number, value)
    floor = np.minimum(screening.sizes.rows, screening.sizes.columns[number])
    agrees = _agree([own for own, _ in forms.values()], rule, floor) if vouched else None
    at = VERDICTS.index
    for form, (every, rows) in forms.items():
        own, right, size = every[rows], value[rows], floor[rows]
        verdict = rule.judge(own, right, error[rows], size)
        with np.errstate(invalid="ignore"):
            off, allowed = np.abs(own - slope[rows]), rule.allowed(own, slope[rows], size)
            near = off <= rule.share * allowed
        unsure = (verdict == at(FAIL)) & disputed(own, right, slope[rows])
        verdict[unsure] = np.where(off <= allowed, at(PASS), at(INCONCLUSIVE))[unsure]
        sure = near
        if agrees is not None:  # what differences say of it, however vaguely, must not contradict
            with np.errstate(invalid="ignore"):
                sure = near | (
                    agrees[rows] & (np.abs(own - right) <= 8 * error[rows]) & known[rows]
                )
        verdict[(verdict == at(INCONCLUSIVE)) & sure] = at(PASS)
        if rule.share == 1:  # the caller's own step and tolerances: what they accept is accepted
            verdict[near] = at(PASS)
        if known_values:
            verdict = _with_kinks(verdict, own, values[:, rows], looks, column, rule, near)
        found.count[PASS] += len(every) - len(rows)
        found.add(number, rows, form, verdict, own, right, error[rows])


def _with_kinks(
    verdict: NDArray,
    own: NDArray,
    values: NDArray,
    looks: Looks,
    column: int,
    rule: Rule,
    near: NDArray,
) -> NDArray:
    """Say NONSMOOTH of entries that no slope across x decides."""
    at = VERDICTS.index
    step = float(looks.steps[column])
    noise = looks.subject.eps * np.max(np.abs(values), axis=0)
    kinked = kinks(values, step, noise)
    with np.errstate(all="ignore"):
        slopes = np.diff(values, axis=0) / (step / 2)
        low, high = slopes.min(axis=0), slopes.max(axis=0)
        slack = rule.atol + rule.rtol * np.maximum(np.abs(low), np.abs(high))
        between = (low - slack <= own) & (own <= high + slack)
        margin = slack + _OUTSIDE * (high - low)
        outside = (own < low - margin) | (high + margin < own)
    accepted = near if rule.share == 1 else np.zeros_like(near)
    verdict[kinked & between & ~accepted] = at(NONSMOOTH)
    verdict[kinked & outside & (verdict == at(INCONCLUSIVE))] = at(FAIL)
    verdict[breaks(values) & (verdict == at(INCONCLUSIVE))] = at(NONSMOOTH)
    verdict[poles(values, noise) & (verdict != at(PASS))] = at(NONSMOOTH)
    return verdict


def _agree(columns: list[NDArray], rule: Rule, floor: NDArray) -> NDArray:
    """Tell where all forms of the derivative are the same."""
    first, *others = columns
    same = np.ones(len(first), bool)
    with np.errstate(invalid="ignore"):
        for other in others:
            same &= np.abs(first - other) <= rule.allowed(other, first, floor)
    return same
