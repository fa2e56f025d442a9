"""Check all entries: screen all columns, then refine and judge those that are not clear."""

from collections.abc import Sequence

import numpy as np

from .._core.protocols import NDArray
from .._core.threads import in_parts
from .._derivatives.additivity import is_tied
from .._derivatives.fixed_step_error import SLOPE_CALLS
from .._derivatives.sampled import SampledColumns
from .._execution.run import WORTH_SHARING_SECONDS
from .._kernels.gradcheck_marks import DOUBTED, LEFT_OUT
from .columns import Jacobian, Products, Pulled, Sizes
from .compiled_screening import CompiledScreening
from .entry_rules import FAIL, PASS, Rule
from .numerical import FiniteDifferences
from .perturb import Claims
from .screening import Screening
from .summary import FlaggedEntries
from .verdict import RefinedColumns

_REFINED_BYTES = 1 << 22  # bytes of the results of `Refinement` that are held at a time


def examine(
    whole: Sequence[FiniteDifferences],
    jacobians: dict[str, Jacobian],
    rule: Rule,
    entries: FlaggedEntries,
    random: np.random.Generator,
    consistent: bool = False,
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
        _judge(screening, marks, entries, consistent)
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
            RefinedColumns(screening, columns, refined).judge(entries, consistent)
    elif len(doubtful):
        _refine_elsewhere(screening, doubtful, entries, consistent)
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
            results = RefinedColumns(screening, np.array([column]), early.pop(column))
            results.judge(entries, consistent)

    differences.run_pass(differences.refinement, "second-look", wanted, store)
