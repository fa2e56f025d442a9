"""Every entry against differences: a first look at all, a second one where they differ."""

from dataclasses import dataclass, field

import numpy as np

from .._kernels.gradcheck import ENLARGE, SCREEN, TURN
from .._protocols import NDArray
from .numerical import Looks
from .rule import INCONCLUSIVE, NONSMOOTH, PASS, VERDICTS, Rule, breaks, kinks, poles

_KEPT = 100_000  # entries that a report can show one by one; more are counted
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

    def add(
        self, column: int, form: str, verdicts: NDArray, own: NDArray, d: NDArray, e: NDArray
    ) -> None:
        """Note the entries of a column."""
        for k, verdict in enumerate(VERDICTS):
            (rows,) = np.nonzero(verdicts == k)
            self.count[verdict] += len(rows)
            if verdict == PASS:
                continue
            for i in rows[: max(0, _KEPT - len(self.rows))].tolist():
                self.columns.append(column)
                self.rows.append(i)
                self.forms.append(form)
                self.verdicts.append(verdict)
                self.values.append((float(own[i]), float(d[i]), float(e[i])))


@dataclass(frozen=True)
class Sizes:
    """The largest magnitudes in the rows and columns of the analytic Jacobian."""

    rows: NDArray
    columns: NDArray

    @classmethod
    def of(cls, matrices: dict[str, NDArray], rows: int, columns: int) -> "Sizes":
        """Measure Jacobians; what is not finite does not count."""
        sizes = cls(np.zeros(rows), np.zeros(columns))
        for matrix in matrices.values():
            bits = (array.view(np.int64) for array in (matrix, sizes.rows, sizes.columns))
            ENLARGE[None](*bits)
        return sizes


def examine(
    looks: Looks,
    matrices: dict[str, NDArray],
    sizes: Sizes,
    rule: Rule,
    found: Entries,
    vouched: bool = False,
) -> None:
    """Judge the entries of one input, in every form in which its derivative was given."""
    offset = looks.part.start
    noise = _NOISE * looks.subject.eps * np.abs(looks.problem.base.astype(float))
    turned = np.empty((looks.block, len(noise)))
    for block in looks.blocks():
        right, left, steps, excluded = looks.slopes(block)
        columns = slice(offset + block.start, offset + block.stop)
        suspects = np.zeros(len(right), np.int8)
        for matrix in matrices.values():
            suspect, own = np.empty_like(suspects), turned[: len(right)]
            TURN[None](matrix, columns.start, columns.stop, own)
            SCREEN[right.dtype](
                own,
                right,
                left,
                sizes.rows,
                np.ascontiguousarray(sizes.columns[columns]),
                rule.rtol,
                rule.atol,
                rule.share,
                rule.bend,
                noise,
                steps,
                suspect,
            )
            suspects |= suspect
        clear = int(np.count_nonzero(~excluded & (suspects == 0)))
        found.count[PASS] += clear * len(noise) * len(matrices)
        for k in np.flatnonzero(suspects.astype(bool) & ~excluded):
            slope = 0.5 * right[k].astype(float) + 0.5 * left[k].astype(float)
            _look_again(looks, block.start + int(k), slope, matrices, sizes, rule, found, vouched)


def _look_again(
    looks: Looks,
    column: int,
    slope: NDArray,
    matrices: dict[str, NDArray],
    sizes: Sizes,
    rule: Rule,
    found: Entries,
    vouched: bool,
) -> None:
    number = looks.part.start + column
    value, error = looks.ladder(column)
    known = np.isfinite(error)
    found.largest_error = max(found.largest_error, float(error[known].max(initial=0.0)))
    found.numerical[number] = value
    values = looks.probes(column)
    floor = np.minimum(sizes.rows, sizes.columns[number])
    at = VERDICTS.index
    for form, matrix in matrices.items():
        own = matrix[:, number]
        verdict = rule.judge(own, value, error, floor)
        with np.errstate(invalid="ignore"):
            near = np.abs(own - slope) <= rule.share * rule.allowed(own, slope, floor)
            agrees = _agree(matrices, number, rule, floor) if vouched else False
        verdict[(verdict == at(INCONCLUSIVE)) & (near | agrees)] = at(PASS)
        if rule.share == 1:  # the caller's own step and tolerances: what they accept is accepted
            verdict[near] = at(PASS)
        if values is not None:
            verdict = _with_kinks(verdict, own, values, looks, column, rule, near)
        found.add(number, form, verdict, own, value, error)


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
    accepted = near if rule.share == 1 else np.zeros_like(near)
    verdict[kinked & between & ~accepted] = at(NONSMOOTH)
    verdict[breaks(values) & (verdict == at(INCONCLUSIVE))] = at(NONSMOOTH)
    verdict[poles(values, noise) & (verdict != at(PASS))] = at(NONSMOOTH)
    return verdict


def _agree(matrices: dict[str, NDArray], column: int, rule: Rule, floor: NDArray) -> NDArray:
    """Tell where all forms of the derivative are the same."""
    first, *others = (matrix[:, column] for matrix in matrices.values())
    same = np.ones(len(first), bool)
    for other in others:
        same &= np.abs(first - other) <= rule.allowed(other, first, floor)
    return same
