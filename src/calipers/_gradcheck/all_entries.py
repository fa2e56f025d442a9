"""Check all entries: screen all columns, then refine and judge those that are not clear."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._core.protocols import NDArray
from .._core.threads import in_parts
from .._derivatives.fixed_step_error import SLOPE_CALLS
from .._execution.run import WORTH_SHARING_SECONDS
from .._kernels.gradcheck_marks import DOUBTED, LEFT_OUT
from .columns import Jacobian, Products, Pulled, Sizes, select_columns
from .entry_rules import INCONCLUSIVE, PASS, VERDICTS, Rule, rounding_of
from .flatten import largest_by_segment
from .numerical import FiniteDifferences
from .refine import MANY, VALUES
from .screening import Screening, rescreen_waiting, screen_columns
from .summary import FlaggedEntries
from .verdict import SlopesBelow, UndecidedEntries

Indices = tuple[NDArray, ...]  # of entries: which of the columns, and their rows


def judge_refined(
    screening: Screening,
    columns: NDArray,
    refined: tuple[NDArray, ...],
    entries: FlaggedEntries,
    consistent: bool,
) -> None:
    """Judge the doubtful entries of columns by the results of `Refinement`."""
    differences, sizes = screening.differences, screening.sizes
    doubtful = _Doubtful(screening, columns, *refined)
    differences.calls += doubtful.calls_of_f
    finite = np.isfinite(doubtful.error)
    worst = float(doubtful.error[finite].max(initial=0.0))
    entries.largest_error = max(entries.largest_error, worst)
    for number, column in zip(doubtful.numbers.tolist(), doubtful.value, strict=True):
        entries.keep(number, column)
    sizes.note(doubtful.numbers, doubtful.value, doubtful.error)
    jacobians = screening.jacobians.items()
    forms = {name: select_columns(jacobian, doubtful.numbers) for name, jacobian in jacobians}
    agrees = _agree(list(forms.values()), screening.rule, doubtful.floor) if consistent else None
    for form, every in forms.items():
        indices = doubtful.indices(every)
        k, rows = indices
        undecided = doubtful.settled(every, indices, agrees)
        numbers, error = doubtful.numbers[k], undecided.error
        unknown = np.flatnonzero(undecided.verdicts == VERDICTS.index(INCONCLUSIVE))
        sizes.doubt(rows[unknown], numbers[unknown], error[unknown])
        entries.count[PASS] += every.size - len(rows)
        entries.hidden += undecided.hidden
        entries.add(
            numbers, rows, form, undecided.verdicts, undecided.analytic, undecided.value, error
        )


@dataclass
class _Doubtful:
    """Columns that screening could not clear, and the results of `Refinement` for them."""

    screening: Screening
    columns: NDArray
    value: NDArray
    error: NDArray
    states: NDArray
    values: NDArray  # of f at points around x, where it was evaluated
    calls: NDArray
    right: NDArray
    left: NDArray
    below: NDArray
    evaluated: NDArray

    def __post_init__(self) -> None:
        differences, subject = self.differences, self.differences.subject
        self.numbers = differences.part.start + self.columns  # among those of all inputs
        # Steps that are lost in the natural size of x say nothing where f is locally constant.
        lost = differences.steps[self.columns] < differences.eps * subject.units[self.numbers]
        standing = lost[:, None] & (self.right == 0) & (self.left == 0)
        self.right, self.left = (
            np.where(standing, np.nan, slope) for slope in (self.right, self.left)
        )

    @property
    def differences(self) -> FiniteDifferences:
        return self.screening.differences

    @property
    def calls_of_f(self) -> int:
        return int(self.states["calls"].sum() + self.calls.sum() + self.evaluated.sum())

    @cached_property
    def floor(self) -> NDArray:
        """The smaller of the largest entries in row and column, for each entry."""
        sizes = self.screening.sizes
        return np.asarray(np.minimum(sizes.rows, sizes.columns[self.numbers, None]))

    @cached_property
    def _results(self) -> NDArray:
        subject = self.differences.subject
        return largest_by_segment(subject.sizes, subject.active_outputs)

    @cached_property
    def _largest(self) -> tuple[NDArray, NDArray, NDArray]:
        """The largest entries by output and by input, and the largest error by output."""
        sizes, subject = self.screening.sizes, self.differences.subject
        by_output = largest_by_segment(sizes.rows, subject.active_outputs)
        by_input = largest_by_segment(sizes.columns, subject.active)
        return by_output, by_input, largest_by_segment(sizes.row_errors, subject.active_outputs)

    def indices(self, every: NDArray) -> Indices:
        """Return the indices of entries that screening leaves in doubt, in one form."""
        return np.nonzero(
            self.screening.doubtful_entries(self.columns, every, self.right, self.left)
        )

    def settled(self, every: NDArray, indices: Indices, agrees: NDArray | None) -> UndecidedEntries:
        """Return entries with their verdicts; `agrees` marks those on which all forms agree."""
        undecided = self._undecided(every, indices, agrees)
        if agrees is not None:
            undecided.where_forms_agree(agrees[indices])
        self._pass_rounding(undecided, indices)
        self._check_oscillation(undecided, indices)
        return undecided

    def _undecided(
        self, every: NDArray, indices: Indices, agrees: NDArray | None
    ) -> UndecidedEntries:
        differences, subject, sizes = (
            self.differences,
            self.differences.subject,
            self.screening.sizes,
        )
        rule: Rule = self.screening.rule
        k, rows = indices
        columns, units = self.numbers[k], subject.units[self.numbers[k]]
        analytic, value, floor = every[indices], self.value[indices], self.floor[indices]
        by_output, by_input, _ = self._largest
        most = np.minimum(by_output[rows], by_input[columns])
        most = np.fmax(most, self._results[rows] / units)
        if agrees is not None:
            most = np.where(agrees[indices], most, 0.0)
        error = differences.errors_by_other_steps(
            rule, self.columns, indices, analytic, value, self.error[indices], floor
        )
        ceiling = np.fmax(sizes.rows[rows], sizes.columns[columns])
        lengths = differences.steps[self.columns[k]]
        noise = self.screening.noise[rows] / lengths
        slopes = self.right[indices], self.left[indices], noise
        shorter = differences.shorter(self.states[k], lengths)
        evidence = floor, most, ceiling, *slopes, shorter, self.states["status"][k]
        return UndecidedEntries(
            rule, analytic, value, error, *evidence, rows, self.screening.rounding
        )

    def _pass_rounding(self, undecided: UndecidedEntries, indices: Indices) -> None:
        """Pass entries that differ by no more than rounding of f, or of terms in its sums."""
        differences, subject, eps = self.differences, self.differences.subject, self.differences.eps
        k, rows = indices
        units, lengths = subject.units[self.numbers[k]], differences.steps[self.columns[k]]
        # What terms that cancel are rounded by, differences do not see over less than their step.
        # The lowest ladder may be another entry's: that of screening is no longer.
        along = np.fmin(units, np.fmax(self.states["step"][k], lengths))
        rounding = rounding_of(subject.rounded[rows], eps) / units
        undecided.where_rounded(np.fmax(rounding, subject.noise[rows] / along))
        natural = subject.sizes[rows] / units
        undecided.where_negligible(np.fmax(natural, subject.terms / units))
        undecided.where_cancelled(natural, eps)
        *_, unsure = self._largest
        undecided.where_hidden(self.states["step"][k], eps, unsure[rows])

    def _check_oscillation(self, undecided: UndecidedEntries, indices: Indices) -> None:
        """Set the verdicts of entries where f oscillates below its steps, or has a kink."""
        differences = self.differences
        k, rows = indices

        def many(wanted: NDArray) -> SlopesBelow:
            entries = tuple(numbers[wanted] for numbers in indices)
            return differences.below_now(self.columns, self.states, entries, MANY)

        short = differences.below(self.below, self.states, indices)
        undecided.where_oscillating(short, many)
        probed = np.flatnonzero(self.calls[k] == VALUES)
        around = self.values[k[probed], :, rows[probed]].T
        lengths = differences.steps[self.columns[k[probed]]]
        undecided.at_kinks(
            probed, around, self._results[rows[probed]], lengths, differences.eps, short
        )


def _agree(columns: list[NDArray], rule: Rule, floor: NDArray) -> NDArray:
    """Return True where all forms of the derivative agree."""
    first, *others = columns
    same = np.ones(first.shape, bool)
    with np.errstate(invalid="ignore"):
        for other in others:
            same &= np.abs(first - other) <= rule.allowed(other, first, floor)
    return same


_REFINED_BYTES = 1 << 22  # bytes of the results of `Refinement` that are held at a time
_REFINED_NUMBERS = 22  # numbers that `Refinement` returns for an entry


def examine(
    whole: Sequence[FiniteDifferences],
    jacobians: dict[str, Jacobian],
    rule: Rule,
    entries: FlaggedEntries,
    random: np.random.Generator,
    consistent: bool = False,
) -> Sizes:
    """
    Judge the entries of inputs, in every form in which their derivatives were given.

    Return the largest magnitudes in rows and columns. In `jacobians`, those computed by row are
    replaced.
    """
    one = next(iter(jacobians.values()))
    rows, columns = one.shape
    covered = sum(differences.problem.coordinates for differences in whole) == columns
    unknown = covered and all(differences.compiled for differences in whole)
    if unknown and isinstance(one, Pulled):
        sizes = _by_products(whole, one, rule, entries, random)
        if sizes is not None:
            return sizes
    for name, jacobian in jacobians.items():
        jacobians[name] = jacobian.whole if isinstance(jacobian, Pulled) else jacobian
    if unknown:
        sizes = Sizes(np.zeros(rows), np.zeros(columns), is_complete=False)
    else:
        sizes = Sizes.of(jacobians, rows, columns)
    screenings = [Screening(differences, jacobians, sizes, rule) for differences in whole]
    marks = [screen_columns(screening) for screening in screenings]
    for screening in screenings:
        screening.measure()
    sizes.is_complete = True
    for screening, marked in zip(screenings, marks, strict=True):
        rescreen_waiting(screening, marked)
        screening.differences.calls += SLOPE_CALLS * screening.taken
        _judge(screening, marked, entries, consistent)
    return sizes


def _by_products(
    whole: Sequence[FiniteDifferences],
    pulled: Pulled,
    rule: Rule,
    entries: FlaggedEntries,
    random: np.random.Generator,
) -> Sizes | None:
    """Do as `examine` by a few products if they confirm all entries; else return None."""
    rows, columns = pulled.shape
    sizes = Sizes(np.zeros(rows), np.zeros(columns), is_complete=False)
    products = Products.of(pulled, random)
    if products is None:
        return None
    screenings = [
        Screening(differences, {pulled.d.name: pulled}, sizes, rule, products)
        for differences in whole
    ]
    marks = [screen_columns(screening) for screening in screenings]
    for screening in screenings:
        screening.measure()
        screening.differences.calls += SLOPE_CALLS * screening.taken
    if not all(map(Screening.is_clear, screenings, marks)):
        return None
    taken = np.concatenate([marked != LEFT_OUT for marked in marks])
    least = max(screening.least for screening in screenings)
    sums = np.sum([screening.sums for screening in screenings], axis=0)
    if not products.confirm(sizes.rows, least, sums, taken, rule):
        return None
    for screening, marked in zip(screenings, marks, strict=True):
        _judge(screening, marked, entries, consistent=False)
    # Of columns that are left out nothing else is known.
    images = np.abs(products.images[:, ~taken]).max(axis=0, initial=0.0)
    sizes.columns[~taken] = np.where(np.isfinite(images), images, 0.0)
    sizes.is_complete, entries.products = True, len(products.images)
    return sizes


def _judge(screening: Screening, marks: NDArray, entries: FlaggedEntries, consistent: bool) -> None:
    """Count the columns of one input that are clear, and refine and judge the others."""
    differences = screening.differences
    marks[differences.small & (marks != LEFT_OUT)] = DOUBTED
    taken = len(marks) - int(np.count_nonzero(marks == LEFT_OUT))
    entries.left_out += len(marks) - taken
    doubtful = np.flatnonzero(marks == DOUBTED)
    entries.count[PASS] += (
        (taken - len(doubtful)) * differences.problem.base.size * len(screening.jacobians)
    )

    if differences.policy.is_local:
        step = max(1, _REFINED_BYTES // (8 * _REFINED_NUMBERS * differences.problem.base.size))
        for first in range(0, len(doubtful), step):
            columns = doubtful[first : first + step]
            refined = _refine_here(differences, columns)
            judge_refined(screening, columns, refined, entries, consistent)
    elif len(doubtful):
        _refine_elsewhere(screening, doubtful, entries, consistent)


def _refine_here(differences: FiniteDifferences, columns: NDArray) -> tuple[NDArray, ...]:
    """Refine columns in this process, in several threads if f is compiled and that is worth it."""
    second, count = differences.refinement, len(columns)
    refined = second.results(count)

    def refine(first: int, last: int) -> None:
        second.at(columns[first:last], tuple(array[first:last] for array in refined))

    seconds = count * second.calls * differences.subject.seconds  # at most
    threads = differences.threads if seconds > WORTH_SHARING_SECONDS else 1
    in_parts(refine, range(0, count, -(-count // threads)), count)
    return refined


def _refine_elsewhere(
    screening: Screening, doubtful: NDArray, entries: FlaggedEntries, consistent: bool
) -> None:
    """Refine columns by workers, and judge them in order, whenever their results arrive."""
    differences = screening.differences
    waiting = dict.fromkeys(doubtful.tolist())
    wanted = np.zeros(differences.problem.coordinates, bool)
    wanted[doubtful] = True
    early: dict[int, tuple[NDArray, ...]] = {}

    def store(first: int, refined: tuple[NDArray, ...]) -> None:
        for k in range(len(refined[0])):
            early[first + k] = tuple(array[k : k + 1] for array in refined)
        while waiting and (column := next(iter(waiting))) in early:
            del waiting[column]
            judge_refined(screening, np.array([column]), early.pop(column), entries, consistent)

    differences.run_pass(differences.refinement, "second-look", wanted, store)
