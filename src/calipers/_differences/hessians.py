"""Second derivatives of a scalar function, from its values alone or from its gradient."""

import time
from typing import Any

import numpy as np

from .._kernels.differences import BOUNDED, EXCLUDED
from .._kernels.ladder import STATE
from .._protocols import NDArray
from .ladders import climb, measured
from .plan import Found, Options, find, steps_of
from .problem import REAL, Problem, reals
from .run import Progress

_BLOCK = 64  # pairs of coordinates that climb together


def require_real(problem: Problem, options: Options, from_gradient: bool) -> None:
    """Refuse what has no Hessian here."""
    if problem.mode != REAL or problem.dtype.kind == "c":
        msg = (
            "hessian is of real functions of real x: give real x and f, and no holomorphic or 'cs'"
        )
        raise ValueError(msg)
    if options.sparsity is not None and not from_gradient:
        msg = "hessian takes sparsity= with gradient=: f alone is asked about each pair of elements"
        raise ValueError(msg)


def require_gradient(problem: Problem) -> None:
    """Refuse what cannot be a gradient."""
    if problem.shape != problem.x.shape:
        msg = f"gradient must return x's shape {problem.x.shape}, got {problem.shape}"
        raise ValueError(msg)


def of_gradient(problem: Problem, options: Options) -> tuple[NDArray, NDArray, Found]:
    """Differentiate a gradient; what is not symmetric in the result is error."""
    require_gradient(problem)
    found = find(problem, steps_of(problem, options), options)
    rows = found.rows
    value = (rows + rows.T) / 2
    error = np.full(rows.shape, np.inf)
    if found.errors is not None:
        error = np.maximum((found.errors + found.errors.T) / 2, np.abs(rows - rows.T) / 2)
    return value, error, found


def of_values(problem: Problem, options: Options) -> tuple[NDArray, NDArray, Found]:
    """
    Climb a ladder of mixed second differences for each pair of coordinates.

    ``f(++) - f(+-) - f(-+) + f(--)`` over four times the product of the steps is even in t, like
    the central difference, and its noise grows as 1/t**2.
    """
    if problem.base.size != 1:
        msg = f"hessian is of a function with one value, got {problem.shape}: give gradient="
        raise ValueError(msg)
    if not options.adaptive:
        msg = "hessian of f alone takes method='adaptive'; the others need gradient="
        raise ValueError(msg)
    started = time.perf_counter()
    steps = steps_of(problem, options)
    one = measured(problem, steps)
    n = problem.coordinates
    usable = (one["side"] == 0) & (one["limit"] > 0)
    first, second = np.triu_indices(n)
    x = reals(problem.x)
    value, error = np.full((n, n), np.nan), np.full((n, n), np.inf)
    calls = 1
    status = np.where(one["side"] != 0, BOUNDED, one["status"]).astype(np.int8)
    report = Progress(options.progress, n * (n + 1) // 2)
    for start in range(0, len(first), _BLOCK):
        i, j = first[start : start + _BLOCK], second[start : start + _BLOCK]
        keep = usable[i] & usable[j]
        i, j = i[keep], j[keep]
        states = np.zeros(len(i), STATE)
        states["eps"], states["power"] = steps.eps, 2
        states["length"] = one["length"][i] * one["length"][j]
        states["limit"] = np.minimum(one["limit"][i], one["limit"][j])
        states["grain"] = np.maximum(one["grain"][i], one["grain"][j])
        states["unit"] = np.minimum(one["unit"][i], one["unit"][j])

        def ends(active: NDArray, t: NDArray) -> tuple[NDArray, NDArray]:
            values = np.empty((len(active), 1), problem.base.dtype)
            widths = np.empty(len(active))
            for row, pair, far in zip(range(len(active)), active, t, strict=True):
                a, b = i[pair], j[pair]  # noqa: B023
                values[row], widths[row] = _end(problem, x, one["length"], a, b, float(far))
            return values, widths

        values, errors = np.empty((len(i), 1)), np.empty((len(i), 1))
        climb(problem.base, ends, (values, errors, states))
        value[i, j] = value[j, i] = values[:, 0]
        error[i, j] = error[j, i] = errors[:, 0]
        calls += int(np.where(i == j, states["calls"], 2 * states["calls"]).sum())
        for k in (i, j):
            np.maximum.at(status, k, states["status"].astype(np.int8))
        report.add(len(keep))
    report.close()
    status[one["status"] == EXCLUDED] = EXCLUDED
    seconds = time.perf_counter() - started
    rows = value.astype(problem.base.dtype)
    return rows, error, Found(rows, error, status, 0.25 * one["length"], calls, seconds)


def _end(
    problem: Problem, x: NDArray, lengths: NDArray, i: int, j: int, t: float
) -> tuple[Any, float]:
    """Return one of two sums of the mixed difference, by the sign of t, and its share of t*t."""
    far, sign = abs(t), np.sign(t)
    if i == j:
        if sign < 0:
            return 2 * problem.base, 0.0
        pairs = ((1, 0), (-1, 0))
    else:
        pairs = ((1, sign), (-1, -sign))
    total: Any = 0.0
    for a, b in pairs:
        point = x.copy()
        point[i] += a * far * lengths[i]
        point[j] += b * far * lengths[j]
        total = total + problem.at(point)
    width = far * far if i == j else 4 * far * far
    return total, width if sign > 0 else 0.0
