"""fast_mode: compare products with random directions, and trace a wrong one to its entry."""

from collections.abc import Iterable
from functools import partial

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._derivatives.additivity import is_tied
from .._derivatives.agreement import Claim
from .._derivatives.thresholds import THRESHOLDS
from .analytic import AnalyticDerivative
from .entry_rules import (
    FAIL,
    INCONCLUSIVE,
    NONSMOOTH,
    PASS,
    VERDICTS,
    Rule,
    default_resolution,
    is_wrong,
    judge_value,
    rounded_away,
)
from .flatten import largest_by_segment, norm
from .numerical import FiniteDifferences
from .summary import CheckOutcome

CLEAR, HIT, UNKNOWN = "clear", "hit", "unknown"

_SHOWN = 2  # wrong columns per input after which the search for more ends
_SUSPECTS = 8  # columns per input that are checked one by one
_MODERATE = 1 << 24  # numbers that f may take and return if it is called for each column
_LEAST = 2.0**-20  # least perturbation of an element, relative to the largest
_MARGIN = 4.0  # tolerance of products, in numerical errors
_ROUNDING = 64.0  # rounding errors of products, in eps
_ROUNDING_OF_ALL = 1024.0  # the same of products contracted with a cotangent, in eps
_CANCELS = 0.125  # share of its terms below which a product shows wrong factors too little
_DRAWS = 4  # directions that are tried for a product that is not small by chance
_ZERO_EPS = 64.0  # error of a zero product, in eps times the largest product


class Probe:
    """
    Numerical and analytic products of the Jacobian of one input with random directions.

    Attributes
    ----------
    any_slope : bool
        Whether a product shows that the derivative has a nonzero entry.
    """

    def __init__(
        self,
        differences: FiniteDifferences,
        derivative: AnalyticDerivative,
        rule: Rule,
        resolution: float,
        random: np.random.Generator,
    ) -> None:
        self._differences, self._derivative = differences, derivative
        self._rule, self._resolution = rule, resolution
        count = differences.problem.coordinates
        x = np.abs(as_real_vector(differences.problem.x).astype(float))
        finite = x[np.isfinite(x)]
        # An element much smaller than the others would not contribute to the product.
        largest = finite.max(initial=0.0)
        lengths = np.where(np.isfinite(x), np.maximum(x, _LEAST * largest), 1.0)
        lengths[x == 0] = min(1.0, largest) or 1.0  # zeros have no length scale
        self._random, self._lengths = random, lengths
        self._direction = random.standard_normal(count) * lengths
        self._weights = _weights_for(differences.exact.problem.base.astype(float), random)
        self._gradient: NDArray | None = None
        self.any_slope = self._cancels = False
        self._settled = differences.steps == 0
        self._resolved: NDArray | None = None  # outputs, by the directions that were tried
        self._is_by_chance = False  # whether few outputs are not resolved

    def compare(self) -> str:
        """
        Compare one product over all columns that are not settled.

        A random direction detects an error in any entry. UNKNOWN: differences do not resolve the
        product, or it is not finite. If only a few of many outputs are unresolved, this may be
        by chance: then other directions are drawn.
        """
        if not len(self._direction):
            return CLEAR
        unknown, self._resolved = False, None
        for _ in range(_DRAWS):
            excess, unknown = self._excess(np.where(self._settled, 0.0, self._direction))
            if excess > 1:
                return HIT
            if unknown and not self._is_by_chance:
                return UNKNOWN
            if not unknown and not self._cancels:
                return CLEAR
            self._direction = self._random.standard_normal(len(self._lengths)) * self._lengths
        return UNKNOWN if unknown else CLEAR

    def settle(self, column: int) -> None:
        """Exclude a column from further products."""
        self._settled[column] = True

    def suspect(self) -> int:
        """Bisect the direction of a hit to one column, which has yet to be judged."""
        where = np.flatnonzero(~self._settled)
        while len(where) > 1:
            halves = where[: len(where) // 2], where[len(where) // 2 :]
            excess = []
            for half in halves:
                part = np.zeros(len(self._direction))
                part[half] = self._direction[half]
                excess.append(self._excess(part)[0])
            where = halves[int(excess[1] > excess[0])]
        return int(where[0])

    def _excess(self, direction: NDArray) -> tuple[float, bool]:
        """Return the largest difference over its tolerance, and whether one is unresolved."""
        differences = self._differences
        problem = differences.problem
        exact = np.ascontiguousarray(direction, dtype=problem.x.real.dtype)
        v = exact.view(problem.x.dtype).reshape(problem.x.shape)
        analytic, terms = self._analytic(exact.astype(float))
        self.any_slope |= bool(np.any(terms))
        # Of a derivative that is not 0 random cotangents make no product of 0: each output is 0.
        contracted = analytic.shape == () and bool(terms != 0)
        value, error = differences.along(v, self._weights if contracted else None)
        natural, rounding = self._natural_sizes(exact), _ROUNDING
        if contracted:
            natural, rounding = np.asarray(norm(self._weights * natural)), _ROUNDING_OF_ALL
            value, error = value.reshape(()), error.reshape(())
        elif analytic.shape == ():
            analytic = terms = np.zeros(value.shape)
        self._cancels = contracted and bool(
            np.abs(value) < _CANCELS * terms or _MARGIN * error > THRESHOLDS.telling * np.abs(value)
        )
        with np.errstate(all="ignore"):
            difference = np.abs(analytic - value)
            allowed = _MARGIN * error + min(rounding * differences.eps, self._resolution) * terms
            size = np.maximum(np.abs(value), terms)
            constant = (value == 0) & (
                error <= _ZERO_EPS * differences.eps * np.max(size, initial=0.0)
            )
            resolved = (error <= self._resolution * size) | (error == 0) | constant
            resolved &= np.isfinite(analytic)
            ratio = np.where(difference == 0, 0.0, difference / allowed)
            # A product of 0 has no digits to resolve. It is confirmed within an error that is
            # negligible at the scale of f and x.
            zero = rounded_away(terms if contracted else analytic, natural, differences.eps)
            confirmed = resolved | (zero & (ratio <= 1) & self._rule.is_nothing(error, natural))
            if not contracted:
                largest = np.max(np.abs(value), initial=0.0)
                vague = error > self._resolution * np.fmax(np.abs(value), largest)
                self._is_by_chance = bool(np.mean(vague) <= THRESHOLDS.negligible)
                if self._resolved is not None:
                    confirmed = confirmed | self._resolved
                self._resolved = confirmed
        ratio = np.where(resolved, ratio, 0.0)
        return float(np.max(ratio, initial=0.0)), not bool(np.all(confirmed))

    def _natural_sizes(self, direction: NDArray) -> NDArray:
        """Return the size of J v if f changes in proportion to x; an f of 0 counts as 1."""
        subject, part = self._differences.subject, self._differences.part
        relative = np.abs(direction) / subject.units[part.start : part.stop]
        largest = largest_by_segment(subject.sizes, subject.active_outputs)
        return np.asarray(np.where(largest == 0, 1.0, largest) * relative.max(initial=0.0))

    def _analytic(self, direction: NDArray) -> tuple[NDArray, NDArray]:
        """Return J v, or w J v, and the magnitude of its terms."""
        subject, part = self._differences.subject, self._differences.part
        block = slice(part.start, part.stop)
        whole = np.zeros(subject.columns)
        whole[block] = direction
        if self._derivative.form == "vjp":
            if self._gradient is None:
                self._gradient = self._derivative.product(self._weights).copy()
            terms = norm(self._gradient * whole)
            return np.asarray(self._gradient @ whole), np.asarray(terms)
        product = self._derivative.times(whole)
        return product, np.abs(product) + np.abs(product).max(initial=0.0)


def _weights_for(values: NDArray, random: np.random.Generator) -> NDArray:
    """
    Draw weights whose sum of `values` is as large as that of independent terms.

    It is not small by chance then, and rounding errors of the sum are in proportion to it.
    """
    weights = random.standard_normal(values.size)
    values = np.where(np.isfinite(values), values, 0.0)
    total, size = float(np.sum(weights * values)), float(np.sum(np.abs(values)))
    if 0 < size < np.inf:
        weights += (np.copysign(norm(weights * values), total) - total) / size * np.sign(values)
    return np.asarray(weights)


def column_of(
    derivative: AnalyticDerivative, column: int, numerical: NDArray
) -> tuple[NDArray, NDArray]:
    """
    Return rows and the entries of the derivative there in a column.

    A vjp gives no column: bisection by products with the numerical column leads to one row.
    """
    subject = derivative.subject
    if derivative.form != "vjp":
        unit = np.zeros(subject.columns)
        unit[column] = 1
        return np.arange(subject.rows), derivative.times(unit)
    where = np.arange(subject.rows)
    finite = np.where(np.isfinite(numerical), numerical, 0.0)
    w = np.random.default_rng(0).standard_normal(subject.rows)
    while len(where) > 1:
        residuals = []
        halves = where[: len(where) // 2], where[len(where) // 2 :]
        for half in halves:
            part = np.zeros(subject.rows)
            part[half] = w[half]
            residuals.append(abs(derivative.product(part)[column] - part @ finite))
        where = halves[int(residuals[1] > residuals[0])]
    unit = np.zeros(subject.rows)
    unit[where] = 1
    return where, derivative.product(unit)[[column]]


def is_moderate(differences: FiniteDifferences) -> bool:
    """Return True if calling f for each column is a moderate amount of work."""
    columns = differences.problem.coordinates
    return columns * (columns + differences.subject.rows) <= _MODERATE


def project(
    outcome: CheckOutcome,
    differences: FiniteDifferences,
    derivatives: Iterable[AnalyticDerivative],
    rule: Rule,
    resolution: float,
    random: np.random.Generator,
) -> tuple[bool, bool]:
    """
    Compare products with respect to one input, and add wrong entries to `outcome`.

    Return whether all entries have to be compared, and whether some product is not zero. A wrong
    product is traced to a column, which is then judged. If this column is right, or if differences
    do not resolve the product, all columns are to be compared if that is moderate work. If it is
    not, the next columns are traced, and an unresolved product makes the check INCONCLUSIVE.
    """
    outcome.entries.left_out += int(np.count_nonzero(differences.steps == 0))
    moderate, any_slope = is_moderate(differences), False
    if moderate and default_resolution(differences.eps) > THRESHOLDS.rtol_single:
        return True, any_slope  # a tenth of a product of numbers of 16 bits may be rounding
    for d in derivatives:
        probe = Probe(differences, d, rule, resolution, random)
        wrong = 0
        for _ in range(_SUSPECTS):
            result = probe.compare()
            any_slope |= probe.any_slope
            if result == CLEAR or wrong == _SHOWN:
                break
            if result == UNKNOWN:
                if moderate and not wrong:
                    return True, any_slope
                outcome.undecided = (
                    f"differences do not resolve products of {d.name} with respect to "
                    f"{differences.part.label}: f is noisy or not smooth; check without "
                    "fast_mode"
                )
                break
            column = probe.suspect()
            wrong += _judged_column(outcome, differences, d, rule, column) == FAIL
            if moderate and not wrong:
                return True, any_slope
            probe.settle(column)
        else:
            outcome.undecided = (
                f"products of {d.name} with respect to {differences.part.label} differ by "
                f"more than rounding, but the {_SUSPECTS} columns that were checked "
                "are within the tolerance: check without fast_mode"
            )
    return False, any_slope


def _judged_column(
    outcome: CheckOutcome,
    differences: FiniteDifferences,
    d: AnalyticDerivative,
    rule: Rule,
    column: int,
) -> str:
    """Judge one column of a derivative, and add its entries if they are wrong."""
    number, entries = differences.part.start + column, outcome.entries
    if (number, d.name) in zip(entries.columns, entries.forms, strict=True):
        return FAIL
    sampled = differences.samples(column)
    value, error = differences.derivative(column) if sampled is None else sampled.derivative()
    rows, analytic = column_of(d, number, value)
    size = np.full(len(rows), np.abs(analytic).max(initial=0.0))
    allowed = rule.allowed(analytic, value[rows], size)
    finite = value[np.isfinite(value)]
    natural = max(float(size[0]), float(np.abs(finite).max(initial=0.0)))
    if sampled is None:
        verdict, _ = judge_value(rule, analytic, value[rows], error[rows], allowed, natural)
        wrong = verdict == VERDICTS.index(FAIL)
        if wrong.any():
            error = np.fmax(error, differences.noise_of(np.array([column]), value[None])[0])
            wrong &= is_wrong(analytic, value[rows], error[rows], allowed)  # noise hides no others
            verdict[~wrong & (verdict == VERDICTS.index(FAIL))] = VERDICTS.index(INCONCLUSIVE)
    else:
        about = partial(differences.noise_at, rows), lambda: differences.rounded_outputs[rows]
        claim = Claim(analytic, allowed, np.full(len(rows), natural), rule.rtol)
        verdict = sampled.judge(rows, claim, *about)
        wrong = verdict == VERDICTS.index(FAIL)
    if not wrong.any():
        return PASS
    off, columns = np.abs(analytic - value[rows])[wrong], np.full(np.count_nonzero(wrong), column)
    tied = is_tied(differences, columns, rows[wrong], off, {column: value}, {column: error})
    if tied.all():
        return PASS
    verdict[np.flatnonzero(wrong)[tied]] = VERDICTS.index(NONSMOOTH)
    numbers = np.full(len(rows), number)
    entries.add(numbers, rows, d.name, verdict, analytic, value[rows], error[rows])
    return FAIL
