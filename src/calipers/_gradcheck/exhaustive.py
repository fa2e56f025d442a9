"""Every entry against differences: a first look at all, a second one where they differ."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._differences.run import WORTH_SHARING
from .._kernels.gradcheck import DOUBTED, LEFT_OUT
from .._protocols import NDArray
from .._threads import in_parts
from .analytic import Jacobian, Pulled, Sizes, taken
from .dispute import Dispute, SlopesBelow
from .numerical import Looks
from .parts import largest_by_part
from .products import Products
from .rule import INCONCLUSIVE, PASS, VERDICTS, Rule, rounding_of
from .screening import Screening, first_look, settle
from .second_look import MANY, VALUES
from .slopes import SLOPE_CALLS

_KEPT = 100_000  # entries that a report can show one by one; more are counted
_KEPT_NUMBERS = 1 << 22  # of numerical columns
_SEEN_BYTES = 1 << 22  # of what a second look sees at a time
_SEEN = 22  # numbers of an entry


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
    left_out: int = 0  # columns
    hidden: int = 0  # that pass since rounding of f hides whether they are right
    products: int = 0  # by which all are told to be right, and not one by one

    def keep(self, column: int, numerical: NDArray) -> None:
        """Keep a numerical column for the diagnosis, unless there are too many."""
        if len(self.numerical) * numerical.size < _KEPT_NUMBERS:
            self.numerical[column] = numerical.copy()  # and not what it is a part of

    def add(
        self,
        columns: NDArray,
        rows: NDArray,
        form: str,
        verdicts: NDArray,
        own: NDArray,
        d: NDArray,
        e: NDArray,
    ) -> None:
        """Note entries."""
        for k, verdict in enumerate(VERDICTS):
            (which,) = np.nonzero(verdicts == k)
            self.count[verdict] += len(which)
            if verdict == PASS:
                continue
            for i in which[: max(0, _KEPT - len(self.rows))].tolist():
                self.columns.append(int(columns[i]))
                self.rows.append(int(rows[i]))
                self.forms.append(form)
                self.verdicts.append(verdict)
                self.values.append((float(own[i]), float(d[i]), float(e[i])))

    def let_pass(self, which: NDArray) -> None:
        """Let entries pass that rounding hides, by their places in the lists."""
        left_out = set(which.tolist())
        for k in left_out:
            self.count[self.verdicts[k]] -= 1
        self.count[PASS] += len(left_out)
        self.hidden += len(left_out)
        lists: tuple[list[Any], ...] = (
            self.columns,
            self.rows,
            self.forms,
            self.verdicts,
            self.values,
        )
        for kept in lists:
            kept[:] = [item for k, item in enumerate(kept) if k not in left_out]


def examine(
    whole: Sequence[Looks],
    jacobians: dict[str, Jacobian],
    rule: Rule,
    found: Entries,
    random: np.random.Generator,
    vouched: bool = False,
) -> Sizes:
    """
    Judge the entries of inputs, in every form in which their derivatives were given.

    Return the largest magnitudes in rows and columns. Of `jacobians` those that are asked for their
    rows are exchanged.
    """
    one = next(iter(jacobians.values()))
    rows, columns = one.shape
    covered = sum(look.problem.coordinates for look in whole) == columns
    unknown = covered and all(look.compiled for look in whole)
    if unknown and isinstance(one, Pulled):
        sizes = _by_products(whole, one, rule, found, random)
        if sizes is not None:
            return sizes
    for name, jacobian in jacobians.items():
        jacobians[name] = jacobian.whole if isinstance(jacobian, Pulled) else jacobian
    if unknown:
        sizes = Sizes(np.zeros(rows), np.zeros(columns), known=False)
    else:
        sizes = Sizes.of(jacobians, rows, columns)
    screenings = [Screening(look, jacobians, sizes, rule) for look in whole]
    marks = [first_look(screening) for screening in screenings]
    for screening in screenings:
        screening.measure()
    sizes.known = True
    for screening, marked in zip(screenings, marks, strict=True):
        settle(screening, marked)
        screening.looks.calls += SLOPE_CALLS * screening.taken
        _judge(screening, marked, found, vouched)
    return sizes


def _by_products(
    whole: Sequence[Looks],
    pulled: Pulled,
    rule: Rule,
    found: Entries,
    random: np.random.Generator,
) -> Sizes | None:
    """Do as `examine` by a few products, if they tell that all entries are right; else None."""
    rows, columns = pulled.shape
    sizes = Sizes(np.zeros(rows), np.zeros(columns), known=False)
    products = Products.of(pulled.d, random)
    screenings = [Screening(look, {pulled.d.name: pulled}, sizes, rule, products) for look in whole]
    marks = [first_look(screening) for screening in screenings]
    for screening in screenings:
        screening.measure()
        screening.looks.calls += SLOPE_CALLS * screening.taken
    if not all(map(Screening.is_clear, screenings, marks)):
        return None
    taken = np.concatenate([marked != LEFT_OUT for marked in marks])
    least = max(screening.least for screening in screenings)
    sums = np.sum([screening.sums for screening in screenings], axis=0)
    if not products.confirm(sizes.rows, least, sums, taken, rule):
        return None
    for screening, marked in zip(screenings, marks, strict=True):
        _judge(screening, marked, found, vouched=False)
    sizes.known, found.products = True, len(products.images)
    return sizes


def _judge(screening: Screening, marks: NDArray, found: Entries, vouched: bool) -> None:
    """Count the columns of one input that are clear, and look again at those that are not."""
    looks = screening.looks
    marks[looks.small & (marks != LEFT_OUT)] = DOUBTED
    taken = len(marks) - int(np.count_nonzero(marks == LEFT_OUT))
    found.left_out += len(marks) - taken
    doubtful = np.flatnonzero(marks == DOUBTED)
    found.count[PASS] += (
        (taken - len(doubtful)) * looks.problem.base.size * len(screening.jacobians)
    )

    if looks.way.plain:
        step = max(1, _SEEN_BYTES // (8 * _SEEN * looks.problem.base.size))
        for first in range(0, len(doubtful), step):
            columns = doubtful[first : first + step]
            seen = _seen(looks, columns)
            _look_again(screening, columns, seen, found, vouched)
    elif len(doubtful):
        _second_look(screening, doubtful, found, vouched)


def _seen(looks: Looks, columns: NDArray) -> tuple[NDArray, ...]:
    """Look again at columns: at some in each thread, if f is compiled and that is worth it."""
    second, count = looks.second, len(columns)
    seen = second.results(count)

    def look(first: int, last: int) -> None:
        second.at(columns[first:last], tuple(array[first:last] for array in seen))

    seconds = count * second.calls * looks.subject.seconds  # at most
    threads = looks.threads if seconds > WORTH_SHARING else 1
    in_parts(look, range(0, count, -(-count // threads)), count)
    return seen


def _second_look(screening: Screening, doubtful: NDArray, found: Entries, vouched: bool) -> None:
    """Look again at columns, and judge them in their order, whenever they come."""
    looks = screening.looks
    waiting = dict.fromkeys(doubtful.tolist())
    wanted = np.zeros(looks.problem.coordinates, bool)
    wanted[doubtful] = True
    early: dict[int, tuple[NDArray, ...]] = {}

    def store(first: int, seen: tuple[NDArray, ...]) -> None:
        for k in range(len(seen[0])):
            early[first + k] = tuple(array[k : k + 1] for array in seen)
        while waiting and (column := next(iter(waiting))) in early:
            del waiting[column]
            _look_again(screening, np.array([column]), early.pop(column), found, vouched)

    looks.have_done(looks.second, "second-look", wanted, store)


def _look_again(
    screening: Screening,
    columns: NDArray,
    seen: tuple[NDArray, ...],
    found: Entries,
    vouched: bool,
) -> None:
    """Judge what is in doubt in columns by a derivative that knows its error."""
    looks, rule, sizes = screening.looks, screening.rule, screening.sizes
    numbers = looks.part.start + columns
    value, error, states, values, calls, right, left, below, asked = seen
    looks.calls += int(states["calls"].sum() + calls.sum() + asked.sum())
    known = np.isfinite(error)
    found.largest_error = max(found.largest_error, float(error[known].max(initial=0.0)))
    for number, column in zip(numbers.tolist(), value, strict=True):
        found.keep(number, column)
    sizes.note(numbers, value, error)
    forms = {name: taken(jacobian, numbers) for name, jacobian in screening.jacobians.items()}
    floor = np.minimum(sizes.rows, sizes.columns[numbers, None])
    subject, eps = looks.subject, looks.eps
    by_output = largest_by_part(sizes.rows, subject.kept)
    by_input = largest_by_part(sizes.columns, subject.active)
    results = largest_by_part(subject.sizes, subject.kept)
    unsure = largest_by_part(sizes.row_errors, subject.kept)
    agrees = _agree(list(forms.values()), rule, floor) if vouched else None
    # Steps that are lost beside numbers of natural size say nothing where f stands still.
    lost = looks.steps[columns] < eps * subject.units[numbers]
    standing = lost[:, None] & (right == 0) & (left == 0)
    right, left = (np.where(standing, np.nan, slope) for slope in (right, left))
    for form, every in forms.items():
        which = np.nonzero(screening.doubted(columns, every, right, left))
        k, rows = which
        own, d, e, size = every[which], value[which], error[which], floor[which]
        most = np.minimum(by_output[rows], by_input[numbers[k]])
        most = np.fmax(most, results[rows] / subject.units[numbers[k]])
        if agrees is not None:
            most = np.where(agrees[which], most, 0.0)
        lengths = looks.steps[columns[k]]
        slopes = right[which], left[which], screening.noise[rows] / lengths
        shorter = looks.shorter(states[k], lengths)
        beside = np.fmax(sizes.rows[rows], sizes.columns[numbers[k]])
        e = looks.doubted(rule, columns, which, own, d, e, size)
        given = rule, own, d, e, size, most, beside, *slopes, shorter, states["status"][k]
        dispute = Dispute(*given, rows, screening.rounding)
        if agrees is not None:
            dispute.where_forms_agree(agrees[which])
        unit = subject.units[numbers[k]]
        # What terms that cancel are rounded by, differences do not see over less than their step.
        # The lowest ladder may be another entry's: that of the first look is no longer.
        along = np.fmin(unit, np.fmax(states["step"][k], lengths))
        rounding = rounding_of(subject.rounded[rows], eps) / unit
        dispute.where_rounded(np.fmax(rounding, subject.noise[rows] / along))
        natural = subject.sizes[rows] / unit
        dispute.where_slight(np.fmax(natural, subject.terms / unit))
        dispute.where_cancelled(natural, eps)
        dispute.where_hidden(states["step"][k], eps, unsure[rows])

        def many(wanted: NDArray, which: tuple[NDArray, ...] = which) -> SlopesBelow:
            entries = tuple(numbers[wanted] for numbers in which)
            return looks.below_now(columns, states, entries, MANY)

        short = looks.below(below, states, which)
        dispute.where_waves(short, many)
        probed = np.flatnonzero(calls[k] == VALUES)
        around, whole = values[k[probed], :, rows[probed]].T, results[rows[probed]]
        dispute.at_kinks(probed, around, whole, lengths[probed], eps, short)
        unknown = np.flatnonzero(dispute.verdicts == VERDICTS.index(INCONCLUSIVE))
        sizes.doubt(rows[unknown], numbers[k[unknown]], e[unknown])
        found.count[PASS] += every.size - len(rows)
        found.hidden += dispute.hidden
        found.add(numbers[k], rows, form, dispute.verdicts, own, d, e)


def _agree(columns: list[NDArray], rule: Rule, floor: NDArray) -> NDArray:
    """Tell where all forms of the derivative are the same."""
    first, *others = columns
    same = np.ones(first.shape, bool)
    with np.errstate(invalid="ignore"):
        for other in others:
            same &= np.abs(first - other) <= rule.allowed(other, first, floor)
    return same
