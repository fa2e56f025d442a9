"""Derivatives with error estimates, from samples of f at many scales; see `scales`."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from .._core.dtypes import as_real_vector, is_double, least_normal
from .._core.protocols import NDArray
from .._execution.tasks import Buffers
from .._kernels.differences import BOUNDED, CONVERGED, EXCLUDED
from .._kernels.gradcheck import AT_POINTS
from .agreement import Estimates, estimate
from .fixed_step import Evaluator, note_coordinate
from .function import Problem
from .scales import (
    FARTHER,
    FIRST_PASS,
    FRACTIONS,
    INNER,
    MAX_SAMPLES,
    N_PROBES,
    ORDERS,
    OUTER,
    Outputs,
    Samples,
    Scales,
    measure,
    pooled_noise,
    units_of,
)
from .steps import NATURAL_LENGTH, Steps
from .thresholds import THRESHOLDS

CALLS_PER_COLUMN = 2.0 * len(
    FIRST_PASS
)  # calls of f in the first pass, which suffices for most columns
STATE = np.dtype(
    [
        ("length", "f8"),  # the unit of t along the direction
        ("limit", "f8"),  # the longest t within bounds
        ("top", "f8"),  # twice the longest t
        ("grain", "f8"),  # the spacing of x in units of t
        ("step", "f8"),  # the longest step of the scale of the derivative, not in units of t
        ("calls", "i8"),
        ("one_sided", "i1"),
        ("status", "i1"),
    ]
)
# Differences are one-sided if a bound is nearer than this, in units of t or of the distance to the
# other bound.
_NARROW = 2.0**-10
# Spacings of x in the shortest step: rounding x + t leaves two bits of t. There are fewer if all
# steps are short.
_LEAST_GRAINS = 4.0
LEAST_SAMPLES = ORDERS + 2  # least number of steps in a table; some may be missing
_TINY = np.finfo(float).tiny
_FINEST = np.finfo(float).eps
_ENTRIES = 1 << 10  # entries of the Jacobian that are measured together
_BLOCK_BYTES = 1 << 21  # bytes of samples that are in memory at a time

# Takes indices of directions, which may repeat, and a signed step along each, in units of its
# length. Returns the values of f and the steps after rounding.
Evaluate = Callable[[NDArray, NDArray], tuple[NDArray, NDArray]]


class Measured(NamedTuple):
    """The scales of some outputs along some directions, and the estimates from them."""

    outputs: NDArray
    scales: Scales
    estimates: Estimates
    unit: NDArray  # of the values of f in scales and estimates

    def some(self, which: NDArray) -> "Measured":
        """Return a part of the directions."""
        if which.all():
            return self

        scales = Scales(**{name: a[which] for name, a in vars(self.scales).items()})
        estimates = Estimates(**{name: a[which] for name, a in vars(self.estimates).items()})
        return self._replace(scales=scales, estimates=estimates)


@dataclass
class Survey:
    """
    Samples of f along some directions, and the estimates computed from them.

    After a first pass at a few scales, all scales are sampled along the directions that have
    outputs it did not settle. Only these are measured again.
    """

    directions: NDArray
    samples: Samples
    calls: NDArray
    measure: Callable[[], Measured]
    first: tuple[Measured, NDArray] | None = None  # and True for entries that it settled

    @cached_property
    def measured(self) -> Measured:
        """The scales and estimates of outputs that change."""
        return self.measure()


def initial_states(problem: Problem, steps: Steps, columns: Any = ...) -> NDArray:
    """Return the lengths and limits of the steps along some coordinates; by default all."""
    x = as_real_vector(problem.x)[:: problem.stride][columns].astype(float)
    states, size = np.zeros(x.size, STATE), np.abs(x)
    lengths = steps.lengths if steps.lengths.size else NATURAL_LENGTH
    length = np.broadcast_to(lengths, (problem.coordinates,))[columns]
    highs, lows = (b[columns] if b.size else b for b in (steps.highs, steps.lows))
    tiny = least_normal(steps.eps)
    with np.errstate(all="ignore"):
        usable = np.isfinite(x) & (x != 0)
        # A power of two, so that steps are exact; not so small that they would vanish.
        natural = np.exp2(np.floor(np.log2(np.fmax(size, tiny / steps.eps))))
        available = np.fmax(highs - x, x - lows) if lows.size else np.inf
        narrow = np.exp2(np.floor(np.log2(np.fmin(available, 1.0))))  # next to 0
        natural = np.where(usable, natural, np.where(narrow > 0, narrow, 1.0))
        length = np.where(length < 0, natural, length)
        up = down = np.full(x.shape, np.inf)
        if lows.size:
            up, down = (highs - x) / length, (x - lows) / length
        limit = np.fmin(up, down)
        sided = limit < _NARROW * np.fmin(1.0, np.fmax(up, down))
        states["one_sided"] = np.where(sided, np.where(up >= down, 1, -1), 0)
        limit = np.where(sided, np.fmax(up, down), limit)
        spacing = steps.eps * natural / np.where(length > 0, length, 1.0)
        states["grain"] = np.where(usable, spacing, _FINEST)  # next to 0 all steps are exact
        # Fixed lengths hold: 0.25 of them is the longest step.
        top = np.where(size > 0, np.fmax(1 / length, 1.0), 1.0)
        top = np.full(x.shape, 0.5) if steps.is_explicit else top
        fits = (length > 0) & (limit >= 2 ** (ORDERS - 1) * states["grain"])
        fits &= limit * length >= 2**ORDERS * tiny
    states["length"] = length
    states["limit"] = np.where(fits, limit, 0.0)
    states["top"] = np.fmin(top, 2 * limit)
    status = np.where(fits, CONVERGED, BOUNDED)
    states["status"] = np.where(length > 0, status, EXCLUDED)
    states["one_sided"][~fits] = 0
    return states


def lengths_of(problem: Problem, steps: Steps) -> NDArray:
    """Return the unit of t, the relative step, along each coordinate."""
    return np.asarray(initial_states(problem, steps)["length"])


def _sequence(states: NDArray, first: bool) -> NDArray:
    """
    Return the steps of directions, a row each: the longest first, and NaN at the end.

    They begin at the size of x. If x is small, they begin at 1, as f may add x to larger numbers.
    """
    top, grain = states["top"][:, None], states["grain"][:, None]
    bound = top / 2.0 ** (ORDERS + 2)
    least = np.fmin(_LEAST_GRAINS * grain, np.fmax(bound, grain))
    inner = np.fmin(top, 1.0) * FRACTIONS[:INNER]
    if first:  # if the caller limits the steps, they begin with the longest
        inner = np.where(top < 1, inner[:, FIRST_PASS - 1], inner[:, FIRST_PASS])
    outer = top * FRACTIONS[: N_PROBES if first else OUTER]
    if not first:
        # The others are farther apart, so that they reach the length.
        farther = np.fmax(np.log2(np.fmax(top, 1.0)) - OUTER, FARTHER) / FARTHER
        others = outer[:, -1:] * FRACTIONS[:FARTHER] ** farther
        outer = np.concatenate((outer, others), axis=1)
    outer = np.where(outer > 1.5 * FRACTIONS[0], outer, np.nan)
    t = np.concatenate((outer, np.where(inner >= np.fmax(least, _TINY), inner, np.nan)), axis=1)
    t = np.take_along_axis(t, np.argsort(np.isnan(t), axis=1, kind="stable"), axis=1)
    return t[:, : max(LEAST_SAMPLES, int(np.isfinite(t).sum(axis=1).max(initial=0)))]


def _sampled(base: NDArray, evaluate: Evaluate, states: NDArray, t: NDArray) -> Samples:
    """Call f along directions at steps t; NaN where a step is NaN."""
    shape = (*t.shape, base.size)
    above, below = np.full(shape, np.nan), np.full(shape, np.nan)
    far, near = np.full(t.shape, np.nan), np.zeros(t.shape)
    sign = states["one_sided"]
    count = max(1, _BLOCK_BYTES // (16 * max(1, base.size)))
    inside = t <= np.fmin(1.0, states["top"])[:, None]
    for those in inside, np.isfinite(t) & ~inside:
        which, k = np.nonzero(those)
        steps = np.where(sign[which] < 0, -t[which, k], t[which, k])
        central = sign[which] == 0
        for start in range(0, len(which), count):
            part = slice(start, start + count)
            i, j, both = which[part], k[part], central[part]
            there = np.concatenate((steps[part], -steps[part][both]))
            try:
                rows, reached = evaluate(np.concatenate((i, i[both])), there)
            except Exception:  # beyond |x| any f may not be defined
                if those is inside:
                    raise
                continue
            above[i, j], far[i, j] = rows[: len(i)], reached[: len(i)]
            below[i[both], j[both]], near[i[both], j[both]] = rows[len(i) :], reached[len(i) :]
            below[i[~both], j[~both]] = base
    return Samples(t, far - near, above, below)


def _settled(s: Scales, m: Estimates, eps: float, top: NDArray, power: int = 1) -> NDArray:
    """Return True for entries that need no further samples."""
    limit = THRESHOLDS.first_rounding * s.rounding / (top[:, None] / 4) ** power
    relative = eps ** (THRESHOLDS.first * 4 / (4 + power))
    best = s.error.argmin(axis=1)[:, None]
    contradicted = np.take_along_axis(m.contradicted, best, axis=1)[:, 0]
    # Between scales that are sampled without gaps and agree, others have little less error. A share
    # of the tolerance suffices.
    tolerance = THRESHOLDS.rtol if is_double(eps) else THRESHOLDS.rtol_single
    shorter = np.fmin(best + ORDERS, s.t.shape[1] - 1)
    t = np.broadcast_to(s.t, s.error.shape)
    steps = (np.take_along_axis(t, k, axis=1)[:, 0] for k in (best, shorter))
    with np.errstate(invalid="ignore"):
        dense = next(steps) < 2.0 ** (ORDERS + 1) * next(steps)
        size = np.abs(m.value)
        converged = m.error <= np.fmax(relative * size, limit)
        agree = ~m.contradicted.any(axis=1)
        converged |= dense & agree & (m.error <= THRESHOLDS.screened * tolerance * size)
    # Noise of more than a few roundings may be waves that other steps show.
    converged &= ~contradicted & (m.gap == 0) & (s.relative_noise <= THRESHOLDS.multiple)
    # Other steps may show a different slope within |x|.
    inside = s.t <= s.inner[:, None]
    within = np.where(inside & ~m.contradicted, s.error, np.inf).min(axis=1)
    beyond = ~np.take_along_axis(np.broadcast_to(inside, s.error.shape), best, axis=1)[:, 0]
    converged &= ~beyond | (within <= THRESHOLDS.resolved * np.abs(m.value))
    return np.asarray(converged | (s.change == 0))


def scales_of(
    samples: Samples,
    out: Outputs,
    states: NDArray,
    first: bool = False,
    outputs: NDArray | None = None,
    pooled: bool = True,
) -> Measured:
    """
    Return scales and estimates of `outputs`, or of those that change; see `measure`.

    They are in units of a power of two for each output.
    """
    if outputs is None:
        outputs = changing(samples, out)
    part = samples._replace(above=samples.above[:, :, outputs], below=samples.below[:, :, outputs])
    unit = units_of(part, out.base[outputs], out.parts)
    if (unit != 1).any():
        part = part._replace(above=part.above / unit, below=part.below / unit)
    sided, inner = bool(states["one_sided"].any()), np.fmin(1.0, states["top"])
    about = inner, sided, first, out.greatest, unit, pooled
    scales = measure(part, out.some(outputs, unit), *about)
    return Measured(outputs, scales, estimate(scales, few=first), unit)


def survey(
    out: Outputs, evaluate: Evaluate, states: NDArray, briefly: bool = False
) -> Iterator[Survey]:
    """
    Sample f along directions at a few scales, and at all scales where these do not suffice.

    `states` has the lengths and limits of the directions. If `briefly`, a few scales suffice for
    all directions.
    """
    base = out.base

    def sampled(which: NDArray, first: bool) -> tuple[Samples, NDArray]:
        t = _sequence(states[which], first)
        samples = _sampled(base, lambda k, t: evaluate(which[k], t), states[which], t)
        sides = np.where(states["one_sided"][which] == 0, 2, 1)
        return samples, np.isfinite(t).sum(axis=1) * sides

    def at_all_scales(which: NDArray, first: Measured, settled: NDArray) -> Survey:
        samples, calls = sampled(which, first=False)
        # Where some outputs vary at other scales, so may those that do not show a slope.
        m = first.estimates
        settled = settled & (m.error <= THRESHOLDS.resolved * np.abs(m.value))
        others = np.setdiff1d(changing(samples, out), first.outputs)
        outputs = np.union1d(first.outputs[~settled.all(axis=0)], others)
        if out.parts > 1:
            outputs = np.unique(outputs[:, None] // out.parts * out.parts + np.arange(out.parts))
        noise = np.zeros((len(which), base.size))
        noise[:, first.outputs] = pooled_noise(first.scales, settled, out.eps) * first.unit
        noise = noise if out.least is None else np.fmax(noise, out.least)
        about = out._replace(least=noise), states[which], False, outputs, False
        return Survey(which, samples, calls, partial(scales_of, samples, *about), (first, settled))

    usable = np.flatnonzero(states["limit"] > 0)
    for sided in (False, True):
        group = usable[(states["one_sided"][usable] != 0) == sided]
        count = max(1, int(_BLOCK_BYTES // (8 * CALLS_PER_COLUMN * max(1, base.size))))
        fewer = max(1, int(count * CALLS_PER_COLUMN // (2 * MAX_SAMPLES)))
        for start in range(0, len(group), count):
            those = group[start : start + count]
            samples, calls = sampled(those, first=True)
            for block in _blocks(samples, base):
                which, some = those[block], Samples(*(array[block] for array in samples))
                measured = scales_of(some, out, states[which], first=True)
                scales, estimates, top = measured.scales, measured.estimates, states["top"][which]
                settled = _settled(scales, estimates, out.eps, top, out.power)
                done = np.asarray(settled.all(axis=1) | briefly)
                if done.any():
                    part = Samples(*(array[done] for array in some))
                    answer = partial(Measured.some, measured, done)
                    yield Survey(which[done], part, calls[block][done], answer)
                rest = np.flatnonzero(~done)
                for begin in range(0, len(rest), fewer):
                    k = rest[begin : begin + fewer]
                    chosen = np.isin(np.arange(len(which)), k)
                    result = at_all_scales(which[k], measured.some(chosen), settled[k])
                    result.calls += calls[block][k]
                    yield result


def _changes(samples: Samples, base: NDArray) -> NDArray:
    """Return True for outputs that change in some sample of a direction."""
    changes = (samples.above != base) | (samples.below != base)
    changes &= np.isfinite(samples.t)[:, :, None]
    return np.asarray(changes.any(axis=1))


def changing(samples: Samples, out: Outputs) -> NDArray:
    """Return the indices of outputs that change in some sample, with all parts of their numbers."""
    changes = _changes(samples, out.base).any(axis=0)
    if out.parts > 1:
        changes = np.repeat(changes.reshape(-1, out.parts).any(axis=1), out.parts)
    return np.flatnonzero(changes)


def _blocks(samples: Samples, base: NDArray) -> Iterator[slice]:
    """
    Yield blocks of directions that are measured together, so that their arrays are small.

    In a sparse Jacobian, different columns change different outputs.
    """
    directions = len(samples.t)
    each = float(_changes(samples, base).sum()) / max(1, directions)
    count = max(1, int(min(_ENTRIES / max(1.0, each), math.sqrt(_ENTRIES / max(1.0, each)))))
    for start in range(0, directions, count):
        yield slice(start, min(start + count, directions))


def rounding_of_constants(out: Outputs, states: NDArray) -> NDArray:
    """
    Return the errors of the slope 0 of outputs that change at no step.

    Terms that cancel may be as large as the largest output, or as x.
    """
    rounding = out.eps * np.fmax(np.abs(out.base), out.greatest)
    longest = states["length"] * (states["top"] / 2) ** out.power
    if out.power == 1:
        rounding = np.fmax(rounding, (states["length"] * states["grain"])[:, None])
    return np.asarray(THRESHOLDS.multiple * rounding / longest[:, None])


def outputs_of(problem: Problem, eps: float, power: int = 1) -> Outputs:
    """Return the outputs of f at x in double precision; `eps` is that of their format."""
    least = None if problem.noise is None else problem.noise[None]
    return Outputs(problem.base.astype(float), eps, problem.parts, power, least)


def extrapolate(out: Outputs, evaluate: Evaluate, outs: Buffers) -> None:
    """Fill `outs` with derivatives along directions, and their errors; states are initial ones."""
    values, errors, states = outs
    values[:], errors[:] = np.nan, np.inf
    # Much too long steps are part of the search: warnings of f are suppressed.
    with np.errstate(all="ignore"):
        for result in survey(out, evaluate, states):
            which = result.directions
            # Where f does not change, its rounding may hide a slope.
            values[which] = 0.0
            errors[which] = rounding_of_constants(out, states[which])
            states["calls"][which] = result.calls
            if result.first is None:
                _store(result.measured, which, None, out.base, outs)
            else:
                first, settled = result.first
                _store(first, which, settled, out.base, outs)
                unsettled = np.ones((len(which), out.base.size), bool)
                unsettled[:, first.outputs] = ~settled
                unsettled = unsettled[:, result.measured.outputs]
                _store(result.measured, which, unsettled, out.base, outs)


def _store(
    measured: Measured, which: NDArray, wanted: NDArray | None, base: NDArray, outs: Buffers
) -> None:
    """Store the derivatives, errors and states of entries along some directions."""
    values, errors, states = outs
    outputs, scales, estimates, unit = measured
    length = states["length"][which, None]
    value, error = estimates.value / length * unit, estimates.total_error / length * unit
    # Some of these outputs change along other directions only.
    stored = (scales.change > 0) | ~np.isfinite(base[outputs])
    wanted = np.ones_like(stored) if wanted is None else wanted
    stored &= wanted
    entries = np.ix_(which, outputs)
    values[entries] = np.where(stored, value, values[entries])
    errors[entries] = np.where(stored, error, errors[entries])
    step = _steps_of(scales, estimates, wanted) * length[:, 0]
    states["step"][which] = np.where(wanted.any(axis=1), step, states["step"][which])
    status = np.where(wanted, estimates.statuses(scales), CONVERGED).max(axis=1, initial=CONVERGED)
    states["status"][which] = np.fmax(states["status"][which], status)


def _steps_of(scales: Scales, estimates: Estimates, wanted: NDArray) -> NDArray:
    """Return the step of each direction: the longest at the scale of its largest derivative."""
    if not estimates.value.shape[1]:
        return np.zeros(len(estimates.value))
    size = np.where(np.isfinite(estimates.value) & wanted, np.abs(estimates.value), -1.0)
    k = np.take_along_axis(estimates.scale, size.argmax(axis=1)[:, None], axis=1)
    return np.asarray(np.take_along_axis(scales.t[:, :, 0], k, axis=1)[:, 0])


@dataclass(frozen=True)
class ExtrapolatedColumns:
    """Extrapolated rows of the transposed Jacobian, their errors, and final states."""

    problem: Problem
    steps: Steps
    calls = CALLS_PER_COLUMN

    @property
    def least_rows(self) -> int:
        """The number of rows that take about as long as one, as they are measured together."""
        return max(1, min(_ENTRIES // max(1, self.problem.base.size), math.isqrt(_ENTRIES)))

    def results(self, count: int) -> Buffers:
        shape = count, self.problem.base.size
        return np.empty(shape), np.empty(shape), np.zeros(count, STATE)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with the results of coordinates from `start`."""
        self.at(np.arange(start, start + len(outs[-1])), outs)

    def at(self, columns: NDArray, outs: Buffers) -> None:
        """Fill `outs` with the results of the coordinates `columns`."""
        problem, states = self.problem, outs[-1]
        states[:] = initial_states(problem, self.steps, columns)
        with self.evaluator(columns, states) as evaluate:
            extrapolate(outputs_of(problem, self.steps.eps), evaluate, outs)

    @contextmanager
    def evaluator(self, columns: NDArray, states: NDArray) -> Iterator[Evaluate]:
        """Return the function that evaluates f along coordinates."""
        problem, length = self.problem, states["length"]
        numbers = problem.stride * columns
        origin = as_real_vector(problem.x)[numbers]
        exact, limits = origin.astype(float), None
        if self.steps.lows.size:
            limits = self.steps.lows[columns], self.steps.highs[columns]

        def displaced(active: NDArray, t: NDArray) -> tuple[NDArray, NDArray]:
            x, far = exact[active], np.abs(t) * length[active]
            # Away from 0 first: the point as far to the other side is then exact, too.
            outward = np.where(x < 0, -1.0, 1.0)
            far = np.abs((x + outward * far).astype(origin.dtype).astype(float) - x)
            points = x + np.sign(t) * far
            if limits is not None:
                points = np.clip(points, limits[0][active], limits[1][active])
            points = points.astype(origin.dtype)
            there = (points.astype(float) - x) / length[active]
            return values_at(numbers[active], points), there

        if problem.native is not None:
            values_at = _compiled_values(problem)
            yield displaced
            return
        with Evaluator(problem) as evaluate:
            values_at = evaluate
            yield displaced


def _compiled_values(problem: Problem) -> Callable[[NDArray, NDArray], NDArray]:
    """Return the function that returns a row of a compiled f for each number and its value."""
    native, origin = problem.native, as_real_vector(problem.x)
    assert native is not None
    x, like = np.empty_like(problem.x), np.empty(problem.native_shape, problem.dtype)
    kernel, reached = native.entry(AT_POINTS), np.zeros(1, np.int64)

    def values_at(numbers: NDArray, points: NDArray) -> NDArray:
        values = np.empty((len(numbers), problem.base.size), problem.base.dtype)
        try:
            kernel(native.form, x, origin, numbers, points, like, values, reached)
        except Exception as error:
            step = float(points[reached[0]] - origin[numbers[reached[0]]])
            note_coordinate(error, problem, numbers[reached[0]] // problem.stride, step)
            raise
        return values

    return values_at


@dataclass(frozen=True)
class ExtrapolatedValues:
    """Extrapolated rows of the transposed Jacobian, without their errors."""

    columns: ExtrapolatedColumns
    calls = CALLS_PER_COLUMN

    @property
    def problem(self) -> Problem:
        return self.columns.problem

    @property
    def least_rows(self) -> int:
        return self.columns.least_rows

    def results(self, count: int) -> Buffers:
        base = self.problem.base
        return (np.empty((count, base.size), base.dtype),)

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with the results of coordinates from `start`."""
        (rows,) = outs
        step = max(1, _BLOCK_BYTES // max(1, rows[:1].nbytes))
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            results = self.columns.results(len(part))
            self.columns(start + first, results)
            part[:] = results[0]
