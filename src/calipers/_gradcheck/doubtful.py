"""Columns that a first look leaves in doubt, judged by a derivative that knows its error."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._protocols import NDArray
from .columns import taken
from .dispute import Dispute, SlopesBelow
from .entries import Entries
from .flatten import largest_by_part
from .numerical import Looks
from .rule import INCONCLUSIVE, PASS, VERDICTS, Rule, rounding_of
from .screening import Screening
from .second_look import MANY, VALUES

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
