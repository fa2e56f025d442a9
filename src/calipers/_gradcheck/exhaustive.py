"""Every entry against differences: a first look at all, a second one where they differ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .._protocols import NDArray
from .analytic import Jacobian, Sizes
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
    rounding_of,
)
from .screening import DOUBTED, LEFT_OUT, Screening, first_look

_KEPT = 100_000  # entries that a report can show one by one; more are counted
_KEPT_NUMBERS = 1 << 22  # of numerical columns
_OUTSIDE = 0.1  # of the range of slopes at a kink, by which a wrong one is outside


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


def examine(
    whole: Sequence[Looks],
    jacobians: dict[str, Jacobian],
    rule: Rule,
    found: Entries,
    vouched: bool = False,
) -> Sizes:
    """
    Judge the entries of inputs, in every form in which their derivatives were given.

    Return the largest magnitudes in rows and columns.
    """
    rows, columns = next(iter(jacobians.values())).shape
    covered = sum(look.problem.coordinates for look in whole) == columns
    if covered and all(look.compiled for look in whole):
        sizes = Sizes(np.zeros(rows), np.zeros(columns), known=False)
    else:
        sizes = Sizes.of(jacobians, rows, columns)
    screenings = [Screening(look, jacobians, sizes, rule) for look in whole]
    marks = [first_look(screening) for screening in screenings]
    for screening in screenings:
        screening.measure()
    sizes.known = True
    for screening, marked in zip(screenings, marks, strict=True):
        _judge(screening, marked if screening.suffices else first_look(screening), found, vouched)
    return sizes


def _judge(screening: Screening, marks: NDArray, found: Entries, vouched: bool) -> None:
    """Count the columns of one input that are clear, and look again at those that are not."""
    looks = screening.looks
    taken = len(marks) - int(np.count_nonzero(marks == LEFT_OUT))
    found.left_out += len(marks) - taken
    doubtful = np.flatnonzero(marks == DOUBTED)
    found.count[PASS] += (
        (taken - len(doubtful)) * looks.problem.base.size * len(screening.jacobians)
    )

    def judge(column: int, seen: tuple[NDArray, ...]) -> None:
        _look_again(screening, column, seen, found, vouched)

    if looks.way.plain:
        for column in doubtful.tolist():
            seen = looks.second.results(1)
            looks.second(column, seen)
            judge(column, seen)
    elif len(doubtful):
        _second_look(looks, doubtful, judge)


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
            off[~np.isfinite(slope[rows])] = np.nan  # which is near nothing
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
    noise = rounding_of(np.max(np.abs(values), axis=0), looks.subject.eps)
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
