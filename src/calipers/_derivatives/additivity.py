"""
Test whether slopes along single elements of x add up: they do not where values tie.

A median of equal numbers does not change with any single one of them, at any step, but it changes
with all. Its partial derivatives exist and agree at all scales, and yet it is not differentiable:
the derivative along a sum of directions is not the sum of those along each (Clarke, Optimization
and Nonsmooth Analysis, 1983, section 2.2). So the slope along an element is measured once more,
while all other elements move as well. Where f is differentiable, both are the same.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._execution.tasks import Buffers, Work
from .adaptive import lengths_of
from .agreement import Estimates
from .function import Problem
from .sampled import estimates_along, steps_between
from .scales import Outputs, Scales
from .steps import Steps
from .thresholds import THRESHOLDS

_LEAST_SHARE = 0.5  # least share of its size by which an element moves with others
# Shares of its size by which a single element moves: across many others, and across few.
_SHARES = 1.0, 0.125
_LEAST_SPACINGS = 16.0  # spacings of x in the shortest step
_STEPS = 14  # number of steps; values that tie do so at each of them


class Differences(Protocol):
    """A function at a point with the steps by which it is differentiated."""

    problem: Problem
    coarse: Steps
    user_step: bool

    @property
    def eps(self) -> float:
        """The spacing at 1 of the format that f computes in."""

    @property
    def steps(self) -> NDArray:
        """The lengths of the steps; 0 for elements that do not move."""

    def results_of(self, work: Work, count: int) -> Buffers:
        """Return the results of the first `count` rows of work, and count the calls of f."""


@dataclass(frozen=True)
class DisplacedPairs:
    """
    Half differences of f along some numbers of x while the others move, a row for each step t.

    The center is x plus t times the vector `rest`. The two points of a difference are plus and
    minus t times `along` from it, at the numbers `at`.
    """

    problem: Problem
    t: NDArray
    rest: NDArray
    at: NDArray
    along: NDArray
    bounds: tuple[NDArray, NDArray]  # empty if there are none
    calls = 2.0

    def results(self, count: int) -> Buffers:
        """Return arrays for the differences, and for the steps after rounding."""
        return np.empty((count, self.problem.base.size)), np.empty(count)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with the results of rows from `start`."""
        first, one = self.at[0], len(self.at) == 1
        for k, t in enumerate(self.t[start : start + len(outs[0])].tolist()):
            ahead, behind = self._point(t, 1.0), self._point(t, -1.0)
            values = [self.problem.at(point).astype(float) for point in (ahead, behind)]
            outs[0][k] = (values[0] - values[1]) / 2
            # Rounding changes the directions of several numbers in addition.
            width = float(ahead[first]) - float(behind[first])
            outs[1][k] = width / (2 * self.along[0]) if one else t

    def _point(self, t: float, sign: float) -> NDArray:
        problem, (low, high) = self.problem, self.bounds
        origin = as_real_vector(problem.x)
        point = origin.astype(float) + t * self.rest
        point[self.at] += sign * t * self.along
        if low.size:
            point[:: problem.stride] = np.clip(point[:: problem.stride], low, high)
        return point.astype(origin.dtype)


def is_tied(
    differences: Differences,
    columns: NDArray,
    rows: NDArray,
    off: NDArray,
    values: dict[int, NDArray],
    errors: dict[int, NDArray],
) -> NDArray:
    """
    Return True for entries of the Jacobian whose slopes change when other elements move as well.

    `off` are the differences of their analytic and numerical values. `values` and `errors` are the
    numerical columns. Entries of other columns are not tested.
    """
    tied = np.zeros(len(columns), bool)
    measured = np.array([column in values for column in columns.tolist()], bool)
    error = np.full(len(columns), np.nan)
    error[measured] = [errors[j][i] for j, i in zip(columns[measured], rows[measured], strict=True)]
    # An error that large is that of a kink, which may hide a tie.
    kinked = measured & (error > THRESHOLDS.telling * off)
    plain = measured & ~kinked
    undefined = np.zeros(differences.problem.base.size, bool)
    every = np.unique(columns[plain])
    if len(every) > 1:  # at once: most wrong derivatives are those of differentiable functions
        undefined = _departs(differences, every, 1.0, values, errors)
        plain &= undefined[rows]
    for chosen, shares in ((plain, _SHARES[:1]), (kinked, _SHARES)):
        for column in np.unique(columns[chosen]):
            entries = chosen & (columns == column)
            for share in shares:
                departs = _departs(differences, np.array([column]), share, values, errors)
                tied[entries] |= departs[rows[entries]]
                undefined |= departs
    # NaN and inf are not wrong where f has no derivative.
    tied |= ~np.isfinite(off) & undefined[rows]
    return tied


def _departs(
    differences: Differences,
    columns: NDArray,
    share: float,
    values: dict[int, NDArray],
    errors: dict[int, NDArray],
) -> NDArray:
    """Return True for outputs whose slope along columns is not the sum of the columns' slopes."""
    problem = differences.problem
    base, at = problem.base.astype(float), problem.stride * columns
    x = as_real_vector(problem.x).astype(float)
    natural = replace(differences.coarse, lengths=np.empty(0))
    length = differences.steps if differences.user_step else lengths_of(problem, natural)
    movable = np.isfinite(x[:: problem.stride]) & (differences.steps > 0)
    # The others move no farther: rounding of larger numbers would hide the changes.
    length = np.where(movable, np.fmin(length, length[columns].max()), 0.0)
    random = np.random.default_rng(0)
    others = np.zeros(x.size)
    others[:: problem.stride] = _movement(x[:: problem.stride], length, columns, random)
    along = share * length[columns]
    if len(columns) > 1:
        along *= random.uniform(_LEAST_SHARE, 1, len(at)) * random.choice([-1.0, 1.0], len(at))
    numerical, error = (np.array([each[j] for j in columns.tolist()]) for each in (values, errors))

    spacing = float((differences.eps * np.abs(x[at]) / np.abs(along)).max(initial=differences.eps))
    longest = differences.eps**0.5  # f may differ farther from x, and ties show at all steps
    steps = steps_between(_LEAST_SPACINGS * spacing, longest, _STEPS)
    if (len(at) == 1 and not others.any()) or not len(steps):
        return np.zeros(base.size, bool)

    bounds = differences.coarse.lows, differences.coarse.highs

    def slopes(rest: NDArray) -> tuple[Scales, Estimates] | None:
        work = DisplacedPairs(problem, np.concatenate((steps, -steps)), rest, at, along, bounds)
        try:
            halves, far = differences.results_of(work, 2 * len(steps))
        except Exception:  # f may raise anything where elements that belong together move
            return None
        above, below = base + halves[: len(steps)], base + halves[len(steps) :]
        width = far[: len(steps)] - far[len(steps) :]
        out = Outputs(base, differences.eps, problem.parts, 1)
        return estimates_along(steps, width, above, below, out)

    with np.errstate(all="ignore"):
        together = slopes(others)
        if together is None:
            return np.zeros(base.size, bool)
        scales, estimates = together
        slope, gap = estimates.value[0], estimates.gap[0]
        off = np.abs(slope - along @ numerical) + gap - np.abs(along) @ error
        departs = off > THRESHOLDS.visible * estimates.error[0]
        departs &= scales.change[0] > 0  # rounding may hide the slope of what does not change
        single = slopes(np.zeros(x.size)) if len(at) == 1 and departs.any() else None
        if single is not None:  # and so may rounding within f
            single_scales, single_estimates = single
            hull = np.where(single_scales.change[0] > 0, single_estimates.total_error[0], 0.0)
            off = np.abs(slope - single_estimates.value[0]) + gap - hull
            departs &= off > THRESHOLDS.visible * estimates.error[0]
    return np.asarray(departs | scales.broken[0])


def _movement(
    x: NDArray, length: NDArray, columns: NDArray, random: np.random.Generator
) -> NDArray:
    """
    Return how far the elements of x move other than those of the columns: shares of their lengths.

    Neighbours in size move in opposite directions, also those that tie with the columns.
    """
    order = np.lexsort((random.random(len(length)), np.abs(x - x[columns[0]])))
    order = order[~np.isin(order, columns) & (length[order] > 0)]
    signs = np.where(np.arange(len(order)) % 2, -1.0, 1.0)
    result = np.zeros(len(x))
    result[order] = signs * random.uniform(0, 1, len(order)) * length[order]
    return result
