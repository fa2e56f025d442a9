"""Check all entries: screen all columns, then refine and judge those that are not clear."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from .._core.protocols import NDArray
from .._core.threads import in_parts
from .._derivatives.additivity import is_tied
from .._derivatives.agreement import Claim
from .._derivatives.fixed_step_error import SLOPE_CALLS
from .._derivatives.sampled import SampledColumns, Table
from .._execution.run import WORTH_SHARING_SECONDS
from .._kernels.gradcheck_marks import DOUBTED, LEFT_OUT
from .columns import Jacobian, Products, Pulled, Sizes, select_columns
from .compiled_screening import CompiledScreening
from .entry_rules import FAIL, INCONCLUSIVE, PASS, VERDICTS, Rule, is_wrong, judge_value
from .flatten import largest_by_segment
from .numerical import FiniteDifferences
from .perturb import Claims
from .report_data import ScaleTable
from .scale_table import scale_table
from .screening import Screening
from .summary import FlaggedEntries

_AT = VERDICTS.index
_REFINED_BYTES = 1 << 22  # bytes of the results of `Refinement` that are held at a time


@dataclass
class RefinedColumns:
    """Columns in doubt with the results of `Refinement`, and their verdicts."""

    screening: Screening
    columns: NDArray
    refined: tuple[NDArray, ...]

    def __post_init__(self) -> None:
        differences = self.differences
        self.right, self.left, self.calls, *self._rest = self.refined
        self.numbers = differences.part.start + self.columns  # among those of all inputs
        shape = len(self.columns), differences.problem.base.size
        self._tables: list[Table] = []
        self._terms: NDArray | float = differences.subject.terms
        self.value, self.error = np.full(shape, np.nan), np.full(shape, np.inf)
        lost = differences.steps[self.columns] < differences.eps * self._units
        unchanged = lost[:, None] & (self.right == 0) & (self.left == 0)
        for slope in self.right, self.left:  # steps below the spacing of natural x show nothing
            slope[unchanged] = np.nan

    @property
    def differences(self) -> FiniteDifferences:
        return self.screening.differences

    @property
    def _units(self) -> NDArray:
        return np.asarray(self.differences.subject.units[self.numbers])

    @cached_property
    def floor(self) -> NDArray:
        """The smaller of the largest entries in row and column, for each entry."""
        sizes = self.screening.sizes
        return np.asarray(np.minimum(sizes.rows, sizes.columns[self.numbers, None]))

    @property
    def _natural(self) -> NDArray:
        """The size of entries that change f by its own size over the size of x."""
        subject, sizes = self.differences.subject, self.screening.sizes
        by_output = largest_by_segment(sizes.rows, subject.active_outputs)
        by_input = largest_by_segment(sizes.columns, subject.active)
        results = np.fmax(largest_by_segment(subject.sizes, subject.active_outputs), self._terms)
        most = np.minimum(by_output, by_input[self.numbers, None])
        return np.asarray(np.fmax(most, results / self._units[:, None]))

    def judge(self, entries: FlaggedEntries) -> None:
        """Judge the entries that screening leaves in doubt, and store those that do not pass."""
        screening, sizes = self.screening, self.screening.sizes
        forms = {
            name: select_columns(jacobian, self.numbers)
            for name, jacobian in screening.jacobians.items()
        }
        doubtful = {
            name: screening.doubtful_entries(self.columns, every, self.right, self.left) != 0
            for name, every in forms.items()
        }
        rounded = screening.is_rounded(self.columns)
        if rounded.any():
            doubtful = {name: every | rounded for name, every in doubtful.items()}
        start = _AT(INCONCLUSIVE)  # of columns without samples
        verdicts = {name: np.full(every.shape, start, np.int8) for name, every in forms.items()}
        exact = self.differences.refinement.exact
        judged = self._judge_values
        if isinstance(exact, SampledColumns):
            judged = partial(self._judge_samples, exact)
        judged(forms, doubtful, verdicts, entries)
        self._judge_again(judged, forms, doubtful, verdicts, entries)
        self.differences.calls += int(self.calls.sum())
        finite = np.isfinite(self.error)
        entries.largest_error = max(
            entries.largest_error, float(self.error[finite].max(initial=0.0))
        )
        for number, *column in zip(self.numbers.tolist(), self.value, self.error, strict=True):
            entries.keep(number, *column)
        sizes.note(self.numbers, self.value, np.where(self.value == 0, 0.0, self.error))
        for name, every in forms.items():
            k, rows = np.nonzero(doubtful[name])
            value, error, claim = self.value[k, rows], self.error[k, rows], every[k, rows]
            verdict = verdicts[name][k, rows]
            self._amend(verdict, claim, value, (k, rows))
            unknown = verdict == _AT(INCONCLUSIVE)
            sizes.doubt(rows[unknown], self.numbers[k[unknown]], error[unknown])
            entries.count[PASS] += every.size - len(rows)
            table = partial(self._scales_of, every, k, rows)
            about = claim, value, error, screening.rule, table
            entries.add(self.numbers[k], rows, name, verdict, *about)

    def _judge_values(
        self,
        forms: dict[str, NDArray],
        doubtful: dict[str, NDArray],
        verdicts: dict[str, NDArray],
        entries: FlaggedEntries,
    ) -> None:
        """Judge entries by one derivative and its error; noise may hide that they are right."""
        rule, (self.value, self.error, _) = self.screening.rule, self._rest
        tolerances = {}
        for name, every in forms.items():
            tolerances[name] = rule.allowed(every, self.value, self.floor)
            about = self.value, self.error, tolerances[name], self._natural
            verdicts[name], hidden = judge_value(rule, every, *about)
            entries.hidden += int(np.count_nonzero(hidden & doubtful[name]))
        accused = {name: (verdicts[name] == _AT(FAIL)) & doubtful[name] for name in forms}
        if any(map(np.any, accused.values())):
            noise = self.differences.noise_of(self.columns, self.value)
            for name, every in forms.items():
                wrong = is_wrong(every, self.value, np.fmax(self.error, noise), tolerances[name])
                verdicts[name][accused[name] & ~wrong] = _AT(INCONCLUSIVE)
            doubted = np.any(list(accused.values()), axis=0)
            self.error = np.where(doubted, np.fmax(self.error, noise), self.error)

    def _judge_again(
        self,
        judged: Callable[..., None],
        forms: dict[str, NDArray],
        doubtful: dict[str, NDArray],
        verdicts: dict[str, NDArray],
        entries: FlaggedEntries,
    ) -> None:
        """Judge entries that do not pass once more; pure rounding of terms in f counts as 0."""
        claims, chosen, others = self.screening.claims, {}, {}
        for name, every in forms.items():
            unknown = doubtful[name] & np.isfinite(every)
            wrong, unknown = (unknown & (verdicts[name] == _AT(v)) for v in (FAIL, INCONCLUSIVE))
            chosen[name], others[name] = unknown, every
            if claims is None:
                continue
            k, rows = np.nonzero(wrong | unknown)
            small = claims.may_be_rounding(self.numbers[k], every[k, rows])
            negligible = self.screening.are_rounded_away(rows, self.numbers[k], every[k, rows])
            rounding = np.zeros(every.shape, bool)
            rounding[k[negligible], rows[negligible]] = True
            k, rows = k[small & ~negligible], rows[small & ~negligible]
            if len(k):
                about = rows, self.numbers[k], every[k, rows], self.differences.terms[rows]
                rounding[k, rows] = claims.are_rounding(name, *about)
            if rounding.any():
                chosen[name] = unknown | rounding
                others[name] = np.where(rounding, 0.0, every)
        if not any(map(np.any, chosen.values())):
            return
        value, error, self._terms = self.value.copy(), self.error.copy(), self.differences.terms
        again = {name: verdict.copy() for name, verdict in verdicts.items()}
        judged(others, chosen, again, entries)
        for name, verdict in verdicts.items():
            np.fmax(verdict, again[name], out=verdict, where=chosen[name])
        self.value, self.error = value, error

    def _scales_of(
        self, every: NDArray, columns: NDArray, rows: NDArray, i: int
    ) -> ScaleTable | None:
        """Return the scales of the i-th of some entries, if f was sampled."""
        k, row = int(columns[i]), int(rows[i])
        for table in self._tables:
            if k in table.columns:
                pairs = (table.columns, k), (table.outputs, row)
                i, j = (int(np.searchsorted(*pair)) for pair in pairs)
                claim, value, floor = every[k, row], self.value[k, row], self.floor[k, row]
                allowed = self.screening.rule.allowed(claim, value, floor)
                return scale_table(table, (i, j), float(claim), float(allowed))
        return None

    def _judge_samples(
        self,
        sampled: SampledColumns,
        forms: dict[str, NDArray],
        doubtful: dict[str, NDArray],
        verdicts: dict[str, NDArray],
        entries: FlaggedEntries,
    ) -> None:
        """Judge entries by samples of f at many scales."""
        rule = self.screening.rule
        wanted = np.any(list(doubtful.values()), axis=0)
        for table in sampled.tables(self.columns, tuple(self._rest), wanted):
            self._tables.append(table)
            group, outputs, estimates = table.columns, table.outputs, table.estimates
            self.value[group], self.error[group] = 0.0, table.constant
            block = np.ix_(group, outputs)
            self.value[block] = estimates.value / table.width
            self.error[block] = estimates.total_error / table.width
            for name, every in forms.items():
                k, rows = np.nonzero(doubtful[name][group])
                if not len(k):
                    continue
                at = np.searchsorted(outputs, rows)
                claim, value = every[group[k], rows], self.value[group[k], rows]
                allowed = rule.allowed(claim, value, self.floor[group[k], rows])
                natural = self._natural[group[k], rows]
                judged = Claim(claim, allowed, natural, rule.rtol)
                usual = partial(self.differences.noise_at, rows)
                rounded = partial(self._is_rounded, group[k], rows)
                verdict, hidden = table.judge(k, at, judged, usual, rounded)
                verdicts[name][group[k], rows] = verdict
                entries.hidden += int(np.count_nonzero(hidden))

    def _is_rounded(self, k: NDArray, rows: NDArray) -> NDArray:
        rounded = self.screening.is_rounded(self.columns[k])[np.arange(len(k)), rows]
        return np.asarray(rounded | self.differences.rounded_outputs[rows])

    def _amend(
        self,
        verdict: NDArray,
        claim: NDArray,
        value: NDArray,
        at: tuple[NDArray, NDArray],
    ) -> None:
        """Pass what the caller's tolerances accept, and judge NaN and infinity."""
        rule = self.screening.rule
        slope = 0.5 * self.right[at] + 0.5 * self.left[at]
        with np.errstate(invalid="ignore"):
            near = np.abs(claim - slope) <= rule.allowed(claim, slope, self.floor[at])
            if rule.share == 1:  # with the caller's own step and tolerances
                verdict[near & np.isfinite(slope)] = _AT(PASS)
            nan = np.isnan(claim) & np.isnan(value)
            verdict[nan] = _AT(PASS if rule.equal_nan else FAIL)
            verdict[np.isinf(claim) & (claim == value)] = _AT(PASS)


def examine(
    whole: Sequence[FiniteDifferences],
    jacobians: dict[str, Jacobian],
    rule: Rule,
    entries: FlaggedEntries,
    random: np.random.Generator,
    claims: Claims | None = None,
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
        sizes = _by_products(whole, one, rule, entries, random, claims)
        if sizes is not None:
            return sizes
    for name, jacobian in jacobians.items():
        jacobians[name] = jacobian.whole if isinstance(jacobian, Pulled) else jacobian
    if unknown:
        sizes = Sizes(np.zeros(rows), np.zeros(columns), is_complete=False)
    else:
        sizes = Sizes.of(jacobians, rows, columns)
    screened = []
    for differences in whole:
        kind = CompiledScreening if differences.compiled else Screening
        screening = kind(differences, jacobians, sizes, rule, None, claims)
        screened.append((screening, screening.marks()))
    if unknown:
        _complete(screened)
    for screening, marks in screened:
        screening.differences.calls += SLOPE_CALLS * screening.taken
        _judge(screening, marks, entries)
    return sizes


def _complete(screened: Sequence[tuple[Screening, NDArray]]) -> None:
    """Measure the rows of a Jacobian that was screened, and settle columns that waited for this."""
    compiled = [(one, marks) for one, marks in screened if isinstance(one, CompiledScreening)]
    for screening, _ in compiled:
        screening.measure()
    for screening, marks in compiled:
        screening.sizes.is_complete = True
        screening.screen_waiting(marks)


def _by_products(
    whole: Sequence[FiniteDifferences],
    pulled: Pulled,
    rule: Rule,
    entries: FlaggedEntries,
    random: np.random.Generator,
    claims: Claims | None,
) -> Sizes | None:
    """Do as `examine` by a few products if they confirm all entries; else return None."""
    rows, columns = pulled.shape
    sizes = Sizes(np.zeros(rows), np.zeros(columns), is_complete=False)
    products = Products.of(pulled, random)
    if products is None:
        return None
    alone: dict[str, Jacobian] = {pulled.d.name: pulled}
    about = alone, sizes, rule, products, claims
    screenings = [CompiledScreening(differences, *about) for differences in whole]
    marks = [screening.marks() for screening in screenings]
    for screening in screenings:
        screening.measure()
        screening.differences.calls += SLOPE_CALLS * screening.taken
    if not all(map(CompiledScreening.is_clear, screenings, marks)):
        return None
    taken = np.concatenate([marked != LEFT_OUT for marked in marks])
    least = max(screening.least for screening in screenings)
    sums = np.sum([screening.sums for screening in screenings], axis=0)
    if not products.confirm(sizes.rows, least, sums, taken, rule):
        return None
    for screening, marked in zip(screenings, marks, strict=True):
        screening.find_rounded(marked)
        if (marked == DOUBTED).any():
            return None
    for screening, marked in zip(screenings, marks, strict=True):
        _judge(screening, marked, entries)
    # Of columns that are left out nothing else is known.
    images = np.abs(products.images[:, ~taken]).max(axis=0, initial=0.0)
    sizes.columns[~taken] = np.where(np.isfinite(images), images, 0.0)
    sizes.is_complete, entries.products = True, len(products.images)
    return sizes


def _judge(screening: Screening, marks: NDArray, entries: FlaggedEntries) -> None:
    """Count the columns of one input that are clear, and refine and judge the others."""
    differences = screening.differences
    marks[differences.small & (marks != LEFT_OUT)] = DOUBTED
    if screening.products is None:
        screening.find_rounded(marks)
    taken = len(marks) - int(np.count_nonzero(marks == LEFT_OUT))
    entries.left_out += len(marks) - taken
    doubtful = np.flatnonzero(marks == DOUBTED)
    entries.count[PASS] += (
        (taken - len(doubtful)) * differences.problem.base.size * len(screening.jacobians)
    )

    if differences.policy.is_local:
        step = max(
            1, _REFINED_BYTES // (8 * SampledColumns.numbers * differences.problem.base.size)
        )
        for first in range(0, len(doubtful), step):
            columns = doubtful[first : first + step]
            refined = _refine_here(differences, columns)
            RefinedColumns(screening, columns, refined).judge(entries)
    elif len(doubtful):
        _refine_elsewhere(screening, doubtful, entries)
    if entries.count[FAIL]:
        _find_ties(differences, entries)


def _find_ties(differences: FiniteDifferences, entries: FlaggedEntries) -> None:
    """Change the verdict of wrong entries where f is not differentiable, as values tie."""
    indices, columns, rows, off = entries.accused(differences.part)
    if len(indices):
        start = differences.part.start
        values, errors = (
            {number - start: column for number, column in stored.items()}
            for stored in (entries.numerical, entries.errors)
        )
        tied = is_tied(differences, columns - start, rows, off, values, errors)
        entries.call_tied(indices[tied])


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


def _refine_elsewhere(screening: Screening, doubtful: NDArray, entries: FlaggedEntries) -> None:
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
            results = RefinedColumns(screening, np.array([column]), early.pop(column))
            results.judge(entries)

    differences.run_pass(differences.refinement, "second-look", wanted, store)
