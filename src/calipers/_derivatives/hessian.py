"""hessian, by second differences of f or by differences of its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from .._core.arguments import require_callable
from .._core.dtypes import as_real_vector
from .._core.jit import work_clock
from .._core.protocols import NDArray
from .._core.types import ArrayLike, HessianOptions, Method
from .._execution.run import Progress, run_parts
from .._execution.tasks import Buffers
from .._kernels.differences import BOUNDED, EXCLUDED, NONSMOOTH
from .adaptive import (
    CALLS_PER_COLUMN,
    STATE,
    ExtrapolatedColumns,
    extrapolate,
    initial_states,
    lengths_of,
    outputs_of,
    survey,
)
from .agreement import gap_at_x
from .differentiate import Derivative, _sparse_derivative
from .fixed_step import note_coordinate
from .function import REAL, Problem
from .options import Options, options_of
from .scales import with_curvature_gaps
from .solve import STATUS, RowResults, differentiate_dense, prepare, require_memory, steps_of
from .steps import Steps

_EXTRAPOLATION_GAIN = 1.15  # largest amplification of rounding by extrapolation
_BLOCK_PAIRS = 64  # pairs of coordinates that are extrapolated together


def require_real(problem: Problem, options: Options, from_gradient: bool) -> None:
    """Raise if the function is complex, or sparsity is used without a gradient."""
    if problem.mode != REAL or problem.dtype.kind == "c":
        msg = "hessian needs real x and real f, without holomorphic=True and method='cs'"
        raise ValueError(msg)
    if options.sparsity is not None and not from_gradient:
        msg = (
            "hessian takes sparsity= only with gradient=: without it, f is evaluated for each "
            "pair of elements"
        )
        raise ValueError(msg)


def require_gradient(problem: Problem) -> None:
    """Raise if the result does not have the shape of x."""
    if problem.shape != problem.x.shape:
        msg = f"gradient must return x's shape {problem.x.shape}, got {problem.shape}"
        raise ValueError(msg)


def hessian_from_gradient(
    problem: Problem, options: Options
) -> tuple[NDArray, NDArray, RowResults]:
    """Differentiate a gradient; half the asymmetry of the result is part of the error."""
    require_gradient(problem)
    result = differentiate_dense(problem, steps_of(problem, options), options)
    rows = result.rows
    value = (rows + rows.T) / 2
    error = np.full(rows.shape, np.inf)
    if result.errors is not None:
        # The error of NaN is infinite.
        error = np.fmax((result.errors + result.errors.T) / 2, np.abs(rows - rows.T) / 2)
    return value, error, result


def hessian_from_values(problem: Problem, options: Options) -> tuple[NDArray, NDArray, RowResults]:
    """
    Extrapolate mixed second differences for each pair of coordinates.

    ``f(++) - f(+-) - f(-+) + f(--)`` over four times the product of the steps is even in t, like
    the central difference, and its noise grows as 1/t**2.
    """
    if problem.base.size != 1:
        msg = f"hessian needs a function with one value, got {problem.shape}: pass gradient="
        raise ValueError(msg)
    if not options.adaptive:
        msg = "hessian without gradient= takes only method='adaptive'"
        raise ValueError(msg)
    started = work_clock()
    n, steps = problem.coordinates, steps_of(problem, options)
    pairs = mixed_differences(problem, steps)
    one = pairs.states
    outs = np.full((n, n), np.nan), np.full((n, n), np.inf), np.zeros((n, n), np.int8)
    value, error, met = outs
    calls = 1 + _run(pairs, outs, options)
    begun = np.where(one["one_sided"] != 0, BOUNDED, one["status"]).astype(np.int8)
    status = np.maximum(begun, met.max(axis=0, initial=0))
    gaps, tried = _curvature_gaps(pairs)
    calls += tried
    status[gaps > 0] = np.maximum(status[gaps > 0], NONSMOOTH)
    # Across a smooth surface, second derivatives of a C1 function jump by a matrix of rank one.
    error[:] = np.fmax(error, np.sqrt(np.outer(gaps, gaps)) / 2)
    status[one["status"] == EXCLUDED] = EXCLUDED
    seconds = work_clock() - started
    rows = value.astype(problem.base.dtype)
    return rows, error, RowResults(rows, error, status, 0.25 * one["length"], calls, seconds)


def _curvature_gaps(pairs: MixedDifferences) -> tuple[NDArray, int]:
    """
    Return the jumps of second derivatives at x, and the number of calls of f.

    A second difference is the mean of the derivatives on both sides. The slopes of a smooth f
    depend on the square of the step; at a jump they depend on the step itself, and the jump is four
    times their derivative with respect to it.
    """
    problem, steps = pairs.problem, pairs.steps
    gaps, calls = np.zeros(problem.coordinates), 0
    states = pairs.states[pairs.usable]
    work = ExtrapolatedColumns(problem, steps)
    with work.evaluator(pairs.usable, states) as evaluate, np.errstate(all="ignore"):
        for result in survey(outputs_of(problem, steps.eps), evaluate, states):
            calls += int(result.calls.sum())
            which = pairs.usable[result.directions]
            if result.first is not None and result.measured.outputs.size:
                _, scales, _, unit = result.measured
                gap, _ = gap_at_x(
                    with_curvature_gaps(scales.times(unit), result.samples, steps.eps)
                )
                gaps[which] = 4 * gap[:, 0] / states["length"][result.directions] ** 2
    return gaps, calls


def _run(pairs: MixedDifferences, results: Buffers, options: Options) -> int:
    """Store the values, errors and statuses of pairs; return the number of calls of f."""
    calls = 0

    def store(first: int, outs: Buffers) -> None:
        nonlocal calls
        values, errors, states = outs
        i, j = pairs.coordinates(first, len(states))
        for whole, part in zip(
            results, (values[:, 0], errors[:, 0], states["status"]), strict=True
        ):
            whole[i, j] = whole[j, i] = part
        calls += int(pairs.calls_of(i, j, states).sum())

    n = pairs.problem.coordinates
    every = n * (n + 1) // 2
    report = Progress(options.progress, every)
    try:
        if pairs.count < every:
            report.add(every - pairs.count, held=True)
        run_parts(pairs, pairs.count, store, options.workers, report, options.checkpoint)
    finally:
        report.close()
    return calls


def mixed_differences(problem: Problem, steps: Steps) -> MixedDifferences:
    """Return the work that extrapolates mixed differences of a scalar f."""
    steps = _two_sided_steps(problem, steps)
    one = initial_states(problem, steps)
    # The others keep NaN: without room on both sides, there is no mixed difference.
    usable = np.flatnonzero((one["one_sided"] == 0) & (one["limit"] > 0))
    limits = tuple(b.astype(problem.x.dtype) for b in (steps.lows, steps.highs) if b.size)
    return MixedDifferences(problem.interpreted(), steps, one, usable, limits)


def _two_sided_steps(problem: Problem, steps: Steps) -> Steps:
    """Return steps whose lengths fit within bounds on both sides."""
    lengths = lengths_of(problem, steps)
    if steps.lows.size:
        x = as_real_vector(problem.x).astype(float)
        distance = np.minimum(steps.highs - x, x - steps.lows)
        lengths = np.where(distance > 0, np.minimum(lengths, distance), lengths)
    return replace(steps, lengths=lengths)


@dataclass(frozen=True)
class MixedDifferences:
    """Mixed second differences by pairs of coordinates (i, j), i <= j, in row-major order."""

    problem: Problem
    steps: Steps
    states: NDArray  # initial state of the step sequence of each coordinate
    usable: NDArray  # coordinates
    bounds: tuple[NDArray, ...]  # bounds, which rounding might exceed
    calls = 2 * CALLS_PER_COLUMN  # fewer on the diagonal

    @property
    def count(self) -> int:
        n = len(self.usable)
        return n * (n + 1) // 2

    def coordinates(self, start: int, count: int) -> tuple[NDArray, NDArray]:
        """Return both coordinates of pairs from `start`."""
        n = len(self.usable)
        first = np.arange(n) * (2 * n + 1 - np.arange(n)) // 2  # pair of each with itself
        numbers = np.arange(start, start + count)
        i = np.searchsorted(first, numbers, side="right") - 1
        return self.usable[i], self.usable[i + numbers - first[i]]

    def results(self, count: int) -> Buffers:
        return np.empty((count, 1)), np.empty((count, 1)), np.zeros(count, STATE)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill the values, errors and states of pairs from `start`."""
        self.at(*self.coordinates(start, len(outs[0])), outs)

    def at(self, i: NDArray, j: NDArray, outs: Buffers) -> None:
        """Fill the values, errors and states of the pairs (i, j)."""
        for first in range(0, len(i), _BLOCK_PAIRS):
            part = slice(first, first + _BLOCK_PAIRS)
            self._extrapolate(i[part], j[part], tuple(out[part] for out in outs))

    @staticmethod
    def calls_of(i: NDArray, j: NDArray, states: NDArray) -> NDArray:
        """Return the number of calls of f for each pair."""
        return np.asarray(np.where(i == j, states["calls"], 2 * states["calls"]))

    def _extrapolate(self, i: NDArray, j: NDArray, outs: Buffers) -> None:
        problem, (_, _, states) = self.problem, outs
        one: Any = self.states  # its fields as NDArray take a quarter of mypy's time
        with np.errstate(all="ignore"):
            states["length"] = one["length"][i] * one["length"][j]
        states["limit"] = np.minimum(one["limit"][i], one["limit"][j])
        states["grain"] = np.maximum(one["grain"][i], one["grain"][j])
        states["top"] = np.minimum(one["top"][i], one["top"][j])
        states["status"] = np.maximum(one["status"][i], one["status"][j])
        x, length = as_real_vector(problem.x), one["length"]
        rounding = np.full(len(i), np.inf)

        def displacement(k: NDArray, t: NDArray) -> NDArray:
            """Return steps so that points to both sides are exact, or gradients seem curvature."""
            exact = x[k].astype(float)
            outward = np.where(exact < 0, -1.0, 1.0)
            there = (exact + outward * np.abs(t) * length[k]).astype(x.dtype)
            return np.asarray(np.abs(there.astype(float) - exact))

        def ends(active: NDArray, t: NDArray) -> tuple[NDArray, NDArray]:
            values = np.empty((len(active), 1), problem.base.dtype)
            widths, sizes = np.empty(len(active)), np.empty(len(active))
            steps = displacement(i[active], t), displacement(j[active], t)
            for row, (pair, sign) in enumerate(zip(active, np.sign(t), strict=True)):
                one_step, other = steps[0][row], sign * steps[1][row]
                about = problem, x, self.bounds, i[pair], j[pair], one_step, other
                values[row], widths[row], sizes[row] = _end(*about)
            with np.errstate(all="ignore"):
                widths /= length[i[active]] * length[j[active]]
            pairs = np.stack((active, np.abs(t)))
            both, number = np.unique(pairs, axis=1, return_inverse=True)
            largest = np.zeros(both.shape[1])
            np.maximum.at(largest, number.ravel(), sizes)
            np.minimum.at(rounding, both[0].astype(int), largest / both[1] ** 2)
            return values, widths

        extrapolate(outputs_of(problem, self.steps.eps, power=2), ends, outs)
        # Sums are smaller than the values that were rounded where f(x + h) and f(x - h) differ in
        # sign. The error is at least that of the step at which this rounding matters least.
        with np.errstate(all="ignore"):
            least = _EXTRAPOLATION_GAIN * self.steps.eps * rounding / states["length"]
        finite = np.isfinite(least)
        outs[1][finite, 0] = np.maximum(outs[1][finite, 0], least[finite])


def _end(
    problem: Problem,
    x: NDArray,
    limits: tuple[NDArray, ...],
    i: int,
    j: int,
    step: float,
    other: float,
) -> tuple[Any, float, float]:
    """
    Return one of two means of the mixed difference, by the sign of the other step, and its width.

    With it comes what it would be if its terms were of one sign.
    """
    if i == j:
        if other < 0:
            return problem.base, 0.0, float(np.abs(problem.base[0]))
        other = 0.0
    total: Any = 0.0
    size = 0.0
    for sign in (1.0, -1.0):
        point = x.copy()
        point[i] += sign * step
        point[j] += sign * other
        try:
            value = problem.at(np.clip(point, *limits) if limits else point)
        except Exception as error:
            note_coordinate(error, problem, i)
            if i != j:
                note_coordinate(error, problem, j)
            raise
        total, size = total + value / 2, size + abs(float(value[0])) / 2
    width = step * step / 2 if i == j else 2 * step * other
    return total, max(width, 0.0), size


def hessian(
    f: Callable[..., Any] | None,
    x: ArrayLike,
    *,
    gradient: Callable[..., Any] | None = None,
    method: Method = "adaptive",
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[HessianOptions],
) -> Derivative:
    """
    Compute the matrix of second derivatives of a scalar function, with error estimates.

    From f alone it extrapolates mixed second differences, with about 50 calls of f for each pair of
    elements of x. With `gradient` it takes about 23 calls of that for each element of x, and is
    more accurate.

    Parameters
    ----------
    f : callable or None
        ``f(x, *args)`` returns one real number. It may be None if `gradient` is passed, and is then
        not called.
    x : array_like
        Point of evaluation, real, of any shape.
    gradient : callable, optional
        ``gradient(x, *args)`` returns the gradient of f, of the shape of x. By default f is used.
    method : {"adaptive", "2-point", "3-point", "5-point", "cs"}, default "adaptive"
        As for `jacobian`. Without `gradient` only "adaptive" is available.
    args : tuple, default ()
        Other positional arguments of f.
    argnums : int, default 0
        Position of x among the positional arguments.
    **options
        Keywords of `jacobian`: step, scale, bounds, sparsity, kwargs, out_like, rowwise, batched,
        holomorphic, workers, progress, checkpoint, memory_limit and target. `sparsity` requires
        `gradient`, and is a symmetric pattern or "detect"; it gets a star coloring [1]_. Without
        `gradient`, `bounds` must leave room on both sides of x: entries at a bound are NaN.

    Returns
    -------
    Derivative
        ``.value`` has shape ``x.shape + x.shape`` and is exactly symmetric; ``.error`` includes the
        asymmetry that was removed. It converts to an array, so that it can be returned to ``hess=``
        of a solver. Where a second derivative is discontinuous at x, the value is the mean of both
        sides, the error is half their difference, and the status is NONSMOOTH.

    Raises
    ------
    ValueError, TypeError, MemoryError, Exception
        As for `jacobian`.

    See Also
    --------
    gradgradcheck : Check second derivatives that you wrote.

    References
    ----------
    .. [1] A. H. Gebremedhin, F. Manne, A. Pothen, "What color is your Jacobian? Graph coloring for
       computing derivatives", SIAM Review 47 (2005) 629-705.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> h = calipers.hessian(lambda x: x[0] ** 2 * x[1], np.array([1.0, 3.0]))
    >>> h.value.round(6)
    array([[6., 2.],
           [2., 0.]])
    """
    named = {"method": method, "args": args, "argnums": argnums}
    chosen = options_of("hessian", HessianOptions, ("gradient", "method"), **named, **options)
    function: Any = f if gradient is None else gradient
    if function is None:
        msg = "hessian needs f or gradient=, got neither"
        raise TypeError(msg)
    require_callable(**{"f" if gradient is None else "gradient": function})
    problem = prepare(function, x, chosen)
    require_real(problem, chosen, gradient is not None)
    if chosen.sparsity is not None:
        require_gradient(problem)
        return _sparse_derivative(problem, chosen, symmetric=True)
    n = problem.coordinates
    require_memory(n, n, problem.base.itemsize + 8, chosen.memory_limit)
    compute = hessian_from_values if gradient is None else hessian_from_gradient
    value, error, result = compute(problem, chosen)
    shape = problem.x.shape
    return Derivative(
        value.reshape(shape + shape),
        error.reshape(shape + shape),
        result.step.reshape(shape),
        STATUS[result.status].reshape(shape),
        result.nfev,
        None,
        result.seconds,
    )
