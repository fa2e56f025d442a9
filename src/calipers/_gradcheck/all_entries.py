"""Check all entries: screen all columns, and judge those in doubt."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._core.protocols import NDArray
from .._core.threads import in_parts
from .._derivatives.fixed_step_error import SLOPE_CALLS
from .._execution.run import WORTH_SHARING
from .._kernels.gradcheck_marks import DOUBTED, LEFT_OUT
from .columns import Jacobian, Products, Pulled, Sizes, taken
from .entry_rules import INCONCLUSIVE, PASS, VERDICTS, Rule, rounding_of
from .flatten import largest_by_part
from .numerical import Looks
from .refine import MANY, VALUES
from .screening import Screening, first_look, settle
from .summary import Entries
from .verdict import Dispute, SlopesBelow

Places = tuple[NDArray, ...]  # of entries: which of the columns, and their rows


def look_again(
    screening: Screening,
    columns: NDArray,
    seen: tuple[NDArray, ...],
    found: Entries,
    vouched: bool,
) -> None:
    """Judge what is in doubt in columns, of which a second look has `seen` all."""
    looks, sizes = screening.looks, screening.sizes
    doubtful = _Doubtful(screening, columns, *seen)
    looks.calls += doubtful.calls_of_f
    finite = np.isfinite(doubtful.error)
    worst = float(doubtful.error[finite].max(initial=0.0))
    found.largest_error = max(found.largest_error, worst)
    for number, column in zip(doubtful.numbers.tolist(), doubtful.value, strict=True):
        found.keep(number, column)
    sizes.note(doubtful.numbers, doubtful.value, doubtful.error)
    jacobians = screening.jacobians.items()
    forms = {name: taken(jacobian, doubtful.numbers) for name, jacobian in jacobians}
    agrees = _agree(list(forms.values()), screening.rule, doubtful.floor) if vouched else None
    for form, every in forms.items():
        places = doubtful.places(every)
        k, rows = places
        dispute = doubtful.settled(every, places, agrees)
        numbers, error = doubtful.numbers[k], dispute.error
        unknown = np.flatnonzero(dispute.verdicts == VERDICTS.index(INCONCLUSIVE))
        sizes.doubt(rows[unknown], numbers[unknown], error[unknown])
        found.count[PASS] += every.size - len(rows)
        found.hidden += dispute.hidden
        found.add(numbers, rows, form, dispute.verdicts, dispute.own, dispute.value, error)


@dataclass
class _Doubtful:
    """Some columns, and what a second look has seen of them; see `SecondLook`."""

    screening: Screening
    columns: NDArray
    value: NDArray
    error: NDArray
    states: NDArray
    values: NDArray  # of f about x, where it was asked for some
    calls: NDArray
    right: NDArray
    left: NDArray
    below: NDArray
    asked: NDArray

    def __post_init__(self) -> None:
        looks, subject = self.looks, self.looks.subject
        self.numbers = looks.part.start + self.columns  # among those of all inputs
        # Steps that are lost beside numbers of natural size say nothing where f stands still.
        lost = looks.steps[self.columns] < looks.eps * subject.units[self.numbers]
        standing = lost[:, None] & (self.right == 0) & (self.left == 0)
        self.right, self.left = (
            np.where(standing, np.nan, slope) for slope in (self.right, self.left)
        )

    @property
    def looks(self) -> Looks:
        return self.screening.looks

    @property
    def calls_of_f(self) -> int:
        return int(self.states["calls"].sum() + self.calls.sum() + self.asked.sum())

    @cached_property
    def floor(self) -> NDArray:
        """The smaller of the largest entries in row and column, for each entry."""
        sizes = self.screening.sizes
        return np.asarray(np.minimum(sizes.rows, sizes.columns[self.numbers, None]))

    @cached_property
    def _results(self) -> NDArray:
        subject = self.looks.subject
        return largest_by_part(subject.sizes, subject.kept)

    @cached_property
    def _largest(self) -> tuple[NDArray, NDArray, NDArray]:
        """The largest entries by output and by input, and the largest error by output."""
        sizes, subject = self.screening.sizes, self.looks.subject
        by_output = largest_by_part(sizes.rows, subject.kept)
        by_input = largest_by_part(sizes.columns, subject.active)
        return by_output, by_input, largest_by_part(sizes.row_errors, subject.kept)

    def places(self, every: NDArray) -> Places:
        """Return which entries the first look leaves in doubt, in one form of the derivative."""
        return np.nonzero(self.screening.doubted(self.columns, every, self.right, self.left))

    def settled(self, every: NDArray, places: Places, agrees: NDArray | None) -> Dispute:
        """Return entries with their verdicts; `agrees` tells where all forms are the same."""
        dispute = self._disputed(every, places, agrees)
        if agrees is not None:
            dispute.where_forms_agree(agrees[places])
        self._excuse_roundings(dispute, places)
        self._excuse_ripples(dispute, places)
        return dispute

    def _disputed(self, every: NDArray, places: Places, agrees: NDArray | None) -> Dispute:
        looks, subject, sizes = self.looks, self.looks.subject, self.screening.sizes
        rule: Rule = self.screening.rule
        k, rows = places
        columns, units = self.numbers[k], subject.units[self.numbers[k]]
        analytic, value, floor = every[places], self.value[places], self.floor[places]
        by_output, by_input, _ = self._largest
        most = np.minimum(by_output[rows], by_input[columns])
        most = np.fmax(most, self._results[rows] / units)
        if agrees is not None:
            most = np.where(agrees[places], most, 0.0)
        error = looks.doubted(
            rule, self.columns, places, analytic, value, self.error[places], floor
        )
        beside = np.fmax(sizes.rows[rows], sizes.columns[columns])
        lengths = looks.steps[self.columns[k]]
        noise = self.screening.noise[rows] / lengths
        slopes = self.right[places], self.left[places], noise
        shorter = looks.shorter(self.states[k], lengths)
        known = floor, most, beside, *slopes, shorter, self.states["status"][k]
        return Dispute(rule, analytic, value, error, *known, rows, self.screening.rounding)

    def _excuse_roundings(self, dispute: Dispute, places: Places) -> None:
        """Let pass what is no more than rounding of f, or of terms that it is a sum of."""
        looks, subject, eps = self.looks, self.looks.subject, self.looks.eps
        k, rows = places
        units, lengths = subject.units[self.numbers[k]], looks.steps[self.columns[k]]
        # What terms that cancel are rounded by, differences do not see over less than their step.
        # The lowest ladder may be another entry's: that of the first look is no longer.
        along = np.fmin(units, np.fmax(self.states["step"][k], lengths))
        rounding = rounding_of(subject.rounded[rows], eps) / units
        dispute.where_rounded(np.fmax(rounding, subject.noise[rows] / along))
        natural = subject.sizes[rows] / units
        dispute.where_slight(np.fmax(natural, subject.terms / units))
        dispute.where_cancelled(natural, eps)
        *_, unsure = self._largest
        dispute.where_hidden(self.states["step"][k], eps, unsure[rows])

    def _excuse_ripples(self, dispute: Dispute, places: Places) -> None:
        """Say what f does within its steps: waves, and kinks."""
        looks = self.looks
        k, rows = places

        def many(wanted: NDArray) -> SlopesBelow:
            entries = tuple(numbers[wanted] for numbers in places)
            return looks.below_now(self.columns, self.states, entries, MANY)

        short = looks.below(self.below, self.states, places)
        dispute.where_waves(short, many)
        probed = np.flatnonzero(self.calls[k] == VALUES)
        around = self.values[k[probed], :, rows[probed]].T
        lengths = looks.steps[self.columns[k[probed]]]
        dispute.at_kinks(probed, around, self._results[rows[probed]], lengths, looks.eps, short)


def _agree(columns: list[NDArray], rule: Rule, floor: NDArray) -> NDArray:
    """Tell where all forms of the derivative are the same."""
    first, *others = columns
    same = np.ones(first.shape, bool)
    with np.errstate(invalid="ignore"):
        for other in others:
            same &= np.abs(first - other) <= rule.allowed(other, first, floor)
    return same


_SEEN_BYTES = 1 << 22  # of what a second look sees at a time
_SEEN = 22  # numbers of an entry


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
    products = Products.of(pulled, random)
    if products is None:
        return None
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
    # Of columns that are left out nothing else is known.
    images = np.abs(products.images[:, ~taken]).max(axis=0, initial=0.0)
    sizes.columns[~taken] = np.where(np.isfinite(images), images, 0.0)
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
            look_again(screening, columns, seen, found, vouched)
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
            look_again(screening, np.array([column]), early.pop(column), found, vouched)

    looks.have_done(looks.second, "second-look", wanted, store)
