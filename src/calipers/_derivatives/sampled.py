"""Samples of f along coordinates, and the scales and estimates that they give."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .._core.protocols import NDArray
from .._execution.tasks import Buffers
from .._kernels.differences import FIXED
from .adaptive import (
    LEAST_SAMPLES,
    STATE,
    Evaluate,
    ExtrapolatedColumns,
    changing,
    initial_states,
    outputs_of,
    rounding_of_constants,
    scales_of,
    survey,
)
from .agreement import FAIL, INCONCLUSIVE, Claim, Estimates, estimate, judge, opinions, with_noise
from .fixed_step_error import SLOPE_CALLS, ComplexSteps, RepeatedSteps, Slopes
from .function import Problem
from .scales import FRACTIONS, MAX_SAMPLES, Outputs, Samples, Scales, measure
from .thresholds import THRESHOLDS


class Table(NamedTuple):
    """
    Scales and estimates of some outputs along some columns, in units of the table.

    A slope times `width` is in these units. `constant` are the errors of all outputs that do not
    change, whose slope is 0.
    """

    columns: NDArray
    outputs: NDArray
    scales: Scales
    estimates: Estimates
    length: NDArray
    unit: NDArray
    constant: NDArray

    @property
    def width(self) -> NDArray:
        return np.asarray(self.length[:, None] / self.unit)

    def judge(
        self,
        k: NDArray,
        at: NDArray,
        claim: Claim,
        usual: Callable[[], tuple[NDArray, float]],
        rounded: Callable[[], NDArray],
    ) -> tuple[NDArray, NDArray]:
        """
        Return the verdicts of claims about entries, and which noise hides; see `agreement.judge`.

        `usual` returns the size of f, and the noise of the outputs where all inputs change: inf for
        those that do not. `rounded` returns the outputs that f computes in few bits: if these do
        not change, the slope may differ from 0.
        """
        claim, none = claim.times(self.width[k, at]), np.zeros((1, len(k)))
        s, m = self.scales.entries(k, at), self.estimates.entries(k, at)
        verdict, hidden = judge(s, m, claim, none)
        nothing = np.abs(claim.value) * np.fmax.reduce(s.t, axis=1) <= s.rounding
        standing = (
            nothing & (s.change > 0) & (s.constant_up_to > 0) & (hidden | (verdict == INCONCLUSIVE))
        )
        if standing.any():
            s = replace(s, constant_up_to=np.where(standing & rounded(), 0.0, s.constant_up_to))
            verdict, hidden = judge(s, m, claim, none)
        unsure = (hidden | (verdict == INCONCLUSIVE)) & (s.change == 0) & (claim.value != 0)
        if unsure.any() or ((verdict == FAIL) & (s.constant_up_to > 0)).any():
            # Where f does not change, its noise is measured where all of x changes.
            noises, size = usual()
            noise = (noises / self.unit[at])[None]
            # Rounding hides at most a small share of f where an output never changes.
            most = np.where(np.isinf(noise), THRESHOLDS.negligible * size / self.unit[at], noise)
            s, m = with_noise(s, m, noise)
            verdict, hidden = judge(s, m, claim, most)
        return verdict[0], hidden[0]

    @staticmethod
    def opinions(away: float, error: float, allowed: float, off: float) -> tuple[bool, bool]:
        """Return whether a slope supports a claim, and whether it excludes the claim."""
        supports, excludes = opinions(*map(np.asarray, (away, error, allowed, off)))
        return bool(supports), bool(excludes)


@dataclass(frozen=True)
class SampledColumns:
    """Samples of f along coordinates, at the scales from which derivatives are extrapolated."""

    columns: ExtrapolatedColumns
    numbers = 2 * MAX_SAMPLES  # floats per entry

    @property
    def problem(self) -> Problem:
        return self.columns.problem

    @property
    def calls(self) -> float:
        return self.columns.calls

    def results(self, count: int) -> Buffers:
        """Return arrays for samples, for flags of the first pass, and for calls of f."""
        shape = count, MAX_SAMPLES
        samples = np.empty((2, *shape, self.problem.base.size))  # pages are used as needed
        return *np.empty((2, *shape)), *samples, np.empty(count, bool), np.zeros(count, np.int64)

    def at(self, columns: NDArray, outs: Buffers) -> None:
        """Fill `outs` with the results of columns; t is NaN where f was not sampled."""
        *arrays, first, calls = outs
        arrays[0][:], calls[:] = np.nan, 0
        problem, steps = self.problem, self.columns.steps
        states = initial_states(problem, steps, columns)
        with self.columns.evaluator(columns, states) as evaluate, np.errstate(all="ignore"):
            for part in survey(outputs_of(problem, steps.eps), evaluate, states):
                which, count = part.directions, part.samples.t.shape[1]
                for array, values in zip(arrays, part.samples, strict=True):
                    array[which, :count] = values
                first[which], calls[which] = part.first is None, part.calls

    def tables(self, columns: NDArray, results: Buffers, wanted: NDArray) -> Iterator[Table]:
        """Yield the tables of columns that have samples; they contain the entries `wanted`."""
        problem, steps = self.problem, self.columns.steps
        out = outputs_of(problem, steps.eps)
        *arrays, first, _ = results
        states = initial_states(problem, steps, columns)
        for brief in (True, False):
            for one_sided in (True, False):
                group = np.flatnonzero(
                    (first == brief)
                    & ((states["one_sided"] != 0) == one_sided)
                    & np.isfinite(arrays[0]).any(axis=1)
                )
                if not len(group):
                    continue
                count = max(LEAST_SAMPLES, int(np.isfinite(arrays[0][group]).sum(axis=1).max()))
                samples = Samples(*(array[group, :count] for array in arrays))
                missing = np.isnan(samples.t)
                samples.above[missing] = samples.below[missing] = np.nan
                outputs = np.flatnonzero(wanted[group].any(axis=0))
                outputs, chosen = np.union1d(changing(samples, out), outputs), states[group]
                _, scales, estimates, unit = scales_of(samples, out, chosen, brief, outputs)
                constant = rounding_of_constants(out, chosen)
                yield Table(group, outputs, scales, estimates, chosen["length"], unit, constant)


@dataclass(frozen=True)
class Refinement:
    """Slopes by the steps of screening, with samples at all scales or derivatives with errors."""

    slopes: Slopes
    exact: SampledColumns | ExtrapolatedColumns | RepeatedSteps | ComplexSteps

    @property
    def problem(self) -> Problem:
        return self.slopes.problem

    @property
    def calls(self) -> float:
        return self.exact.calls + SLOPE_CALLS

    def results(self, count: int) -> Buffers:
        """Return arrays for slopes, calls of f, and samples or derivatives, errors and states."""
        size = self.problem.base.size
        slopes = np.empty((count, size)), np.empty((count, size)), np.empty(count, np.int64)
        return (*slopes, *self.exact.results(count))

    def __call__(self, start: int, outs: Buffers) -> None:
        """Refine columns from `start`; see `at`."""
        self.at(np.arange(start, start + len(outs[0])), outs)

    def at(self, columns: NDArray, outs: Buffers) -> None:
        """Fill `outs` with the results of columns."""
        right, left, calls, *rest = outs
        status = np.empty(len(columns), np.int8)
        some = tuple(a.astype(self.problem.base.dtype) for a in (right, left))
        self.slopes.at(columns, (*some, status))
        right[:], left[:] = some
        self.exact.at(columns, tuple(rest))
        sampled = isinstance(self.exact, SampledColumns)
        calls[:] = SLOPE_CALLS * (status == FIXED) + (rest[-1] if sampled else rest[2]["calls"])


class SampledColumn:
    """Samples of f along one coordinate, by which its entries are estimated and judged."""

    def __init__(self, sampled: SampledColumns, column: int) -> None:
        self._sampled, self._column = sampled, np.array([column])
        self._results = sampled.results(1)
        sampled.at(self._column, self._results)
        self.calls = int(self._results[-1].sum())

    def _table(self, wanted: NDArray) -> Table | None:
        every = np.zeros((1, self._sampled.problem.base.size), bool)
        every[0, wanted] = True
        tables = self._sampled.tables(self._column, self._results, every)
        return next(tables, None)

    def derivative(self) -> tuple[NDArray, NDArray]:
        """Return the derivative of all outputs, and its errors."""
        size = self._sampled.problem.base.size
        table = self._table(np.empty(0, int))
        if table is None:  # bounds leave no step
            return np.full(size, np.nan), np.full(size, np.inf)
        value, error = np.zeros(size), table.constant[0].copy()
        value[table.outputs] = (table.estimates.value / table.width)[0]
        error[table.outputs] = (table.estimates.total_error / table.width)[0]
        return value, error

    def judge(
        self,
        rows: NDArray,
        claim: Claim,
        usual: Callable[[], tuple[NDArray, float]],
        rounded: Callable[[], NDArray],
    ) -> NDArray:
        """Return the verdicts of claims about some outputs; see `Table.judge`."""
        table = self._table(rows)
        if table is None:
            return np.full(len(rows), INCONCLUSIVE, np.int8)
        where = np.zeros(len(rows), int), np.searchsorted(table.outputs, rows)
        return table.judge(*where, claim, usual, rounded)[0]


class Noise(NamedTuple):
    """
    The noise of outputs along one direction: inf for those that do not change.

    `change` is their largest change, `noisy` is True for more noise than rounding, and
    `constant_up_to` is the longest step at which an output does not change.
    """

    noise: NDArray
    change: NDArray
    constant_up_to: NDArray
    noisy: NDArray


def noise_along(
    base: NDArray, evaluate: Evaluate, eps: float, one_sided: int = 0, briefly: bool = True
) -> Noise:
    """
    Return the noise of outputs along one direction.

    f is called on both sides of x, or on one if `one_sided` is 1.
    """
    state, size = np.zeros(1, STATE), base.size
    result = Noise(np.full(size, np.inf), np.zeros(size), np.zeros(size), np.zeros(size, bool))
    state["length"], state["limit"], state["top"], state["one_sided"] = 1.0, np.inf, 1.0, one_sided
    state["grain"] = eps
    for part in survey(Outputs(base.astype(float), eps, 1, 1), evaluate, state, briefly):
        outputs, s, _, unit = part.measured
        changes = s.change[0] > 0
        rows = s.noise[0] * unit, s.change[0] * unit, s.constant_up_to[0], s.noisy[0]
        for values, row in zip(result, rows, strict=True):
            values[outputs[changes]] = row[changes]
    return result


def steps_between(least: float, longest: float, most: int) -> NDArray:
    """Return at most about `most` steps, the longest first, or none if there are too few."""
    steps = FRACTIONS[(FRACTIONS <= longest) & (FRACTIONS >= least)]
    steps = steps[:: max(1, len(steps) // most)]
    return np.asarray(steps if len(steps) >= LEAST_SAMPLES else steps[:0])


def estimates_along(
    t: NDArray, width: NDArray, above: NDArray, below: NDArray, out: Outputs
) -> tuple[Scales, Estimates]:
    """Return the scales and estimates of samples along one direction, a row for each step t."""
    samples = Samples(t[None], width[None], above[None], below[None])
    scales = measure(samples, out, np.ones(1), greatest=out.greatest)
    return scales, estimate(scales)
