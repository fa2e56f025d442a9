"""Screen every column: compare its entries with the mean of two one-sided slopes."""

from dataclasses import dataclass

import numpy as np

from .._core.protocols import NDArray
from .._derivatives.thresholds import THRESHOLDS
from .._kernels.differences import EXCLUDED, FIXED
from .._kernels.gradcheck_marks import CLEAR, DOUBTED, LEFT_OUT, VAGUE
from .basis_vectors import rows_per_block
from .columns import Jacobian, Products, Sizes, largest_terms
from .entry_rules import (
    Entries,
    Rule,
    are_clear,
    are_confirmed,
    marks_of,
    rounded_away,
    rounding_of,
    unclear_entries,
)
from .numerical import FiniteDifferences
from .perturb import Claims, natural_lengths


@dataclass
class Screening:
    """The screening pass: which columns leave some form of the derivative in doubt."""

    differences: FiniteDifferences
    jacobians: dict[str, Jacobian]
    sizes: Sizes
    rule: Rule
    products: Products | None = None  # that slopes are compared with, in place of entries
    claims: Claims | None = None  # finds entries that are nothing but rounding

    def __post_init__(self) -> None:
        differences = self.differences
        self.problem, self.taken = differences.problem, 0  # number of slopes
        self.noise = THRESHOLDS.screening_noise * rounding_of(
            differences.subject.sizes, differences.eps
        )
        # Outputs that do not change, since f computes in few bits, where all columns move, and
        # where only those of zeros move.
        self._unchanged = np.zeros(self.problem.base.size, bool)
        self._unchanged_for_zeros = self._unchanged
        self._largest: NDArray | None = None

    def marks(self) -> NDArray:
        """Return the marks of all columns."""
        differences, count = self.differences, self.problem.coordinates
        marks = np.zeros(count, np.int8)
        if differences.policy.is_local:
            step = max(1, min(rows_per_block(self.problem.base.size), count))
            slopes = differences.slopes.results(step)
            for start in range(0, count, step):
                part = marks[start : start + step]
                some = slopes if len(part) == step else tuple(a[: len(part)] for a in slopes)
                differences.slopes(start, some)
                vague = self._judge(start, some, part)
                if (part == VAGUE).any():
                    self._resolve(start, vague, part)
            return marks

        def store(first: int, slopes: tuple[NDArray, ...]) -> None:
            self._judge(first, slopes, marks[first : first + len(slopes[0])])

        differences.run_pass(differences.slopes, "first-look", np.ones(count, bool), store)
        marks[marks == VAGUE] = DOUBTED  # f is called elsewhere
        return marks

    def _judge(self, start: int, slopes: tuple[NDArray, ...], marks: NDArray) -> list[Entries]:
        """Raise marks of columns by slopes; return VAGUE entries, a group for each form."""
        right, left, status = slopes
        steps, vague = self.differences.steps[start : start + len(marks)], []
        first, claimed = self.differences.part.start + start, np.empty(right.shape)
        for jacobian in self.jacobians.values():
            jacobian.columns(first, first + len(marks), claimed)
            entries = unclear_entries(claimed, right, left, self.noise, steps, self.rule)
            if len(entries.rows):
                noise = self.noise[entries.rows] / steps[entries.columns]
                by_entry = marks_of(entries, self._floor(start, entries), noise, self.rule)
                np.maximum.at(marks, entries.columns, by_entry)
                vague.append(entries.where(by_entry == VAGUE))
        self.taken += int(np.count_nonzero(status == FIXED))
        marks[status == EXCLUDED] = LEFT_OUT
        return vague

    def _floor(self, start: int, entries: Entries) -> NDArray:
        """Return the smaller of the largest entries in the rows and columns of entries."""
        sizes, first = self.sizes, self.differences.part.start + start
        columns = sizes.columns[first + entries.columns]
        return np.asarray(np.minimum(sizes.rows[entries.rows], columns))

    def _resolve(self, start: int, vague: list[Entries], marks: NDArray) -> None:
        """Resolve VAGUE columns by slopes of longer steps."""
        differences, noise = self.differences, self.noise
        distances = differences.far[start : start + len(marks)]
        marks[(marks == VAGUE) & (distances == 0)] = DOUBTED
        columns = np.flatnonzero(marks == VAGUE)
        if not len(columns):
            return
        farther = []
        for work in differences.farther:
            right, left, status = work.results(len(columns))
            work.at(start + columns, (right, left, status))
            self.taken += int(np.count_nonzero(status == FIXED))
            farther.append((right.astype(float), left.astype(float)))
        for entries in vague:
            entries = entries.where(np.isin(entries.columns, columns))
            at, rows = np.searchsorted(columns, entries.columns), entries.rows
            far = [(right[at, rows], left[at, rows]) for right, left in farther]
            steps = differences.steps[start + entries.columns], distances[entries.columns]
            about = self._floor(start, entries), noise[rows], steps, self.rule
            marks[entries.columns[~are_confirmed(entries, far, *about)]] = DOUBTED
        marks[columns] = np.where(marks[columns] == VAGUE, CLEAR, marks[columns])

    def find_rounded(self, marks: NDArray) -> None:
        """Mark columns as doubtful if rounding in f may hide changes of constant outputs."""
        differences = self.differences
        moving = differences.steps > 0
        zeros = self._zeros & moving
        if (marks == DOUBTED).any() or zeros.all() or not self.sizes.rows.all():
            self._unchanged = differences.unmoved_outputs(np.flatnonzero(moving))
            if self._unchanged.any():
                self._unchanged &= differences.rounded_outputs
        if zeros.any() and not zeros.all():
            columns = np.flatnonzero(zeros)
            self._unchanged_for_zeros = differences.rounded_along(columns)
        rounded = self._unchanged.any() | (zeros & self._unchanged_for_zeros.any())
        marks[rounded & (marks != LEFT_OUT)] = DOUBTED

    @property
    def _zeros(self) -> NDArray:
        """Whether all entries of a column are 0."""
        part = slice(self.differences.part.start, self.differences.part.stop)
        if self.products is not None:
            return np.asarray(~self.products.images[:, part].any(axis=0))
        return np.asarray(self.sizes.columns[part] == 0)

    def is_rounded(self, columns: slice | NDArray) -> NDArray:
        """Return True for entries whose slope rounding in f may hide, a row for each column."""
        of_zeros = self._zeros[columns, None] & self._unchanged_for_zeros
        return np.asarray(self._unchanged | of_zeros)

    def are_rounded_away(self, rows: NDArray, columns: NDArray, entries: NDArray) -> NDArray:
        """Return True for entries that rounding of the largest entry in their row may leave."""
        lengths = natural_lengths(self.differences.subject)
        if self._largest is None:
            self._largest = largest_terms(self.jacobians.values(), lengths)
        changes = entries * lengths[columns]
        return rounded_away(changes, self._largest[rows], self.differences.eps)

    def doubtful_entries(
        self, columns: NDArray, analytic: NDArray, right: NDArray, left: NDArray
    ) -> NDArray:
        """Mark the entries of columns, a row each, that their slopes leave in doubt."""
        noise = self.noise / self.differences.steps[columns, None]
        numbers = self.differences.part.start + columns
        floor = np.minimum(self.sizes.rows, self.sizes.columns[numbers, None])
        clear = are_clear(analytic, (right, left), floor, noise, self.rule)
        return ~clear | self.differences.small[columns, None]
