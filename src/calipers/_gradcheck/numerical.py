"""Numerical columns of the Jacobian: slopes for screening, extrapolation for refinement."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._core.dtypes import SPACINGS, as_real_vector, is_double
from .._core.protocols import NDArray
from .._derivatives.adaptive import ExtrapolatedColumns
from .._derivatives.directions import jacobian_vector_product
from .._derivatives.fixed_step_error import (
    ComplexSteps,
    RepeatedSteps,
    Slopes,
)
from .._derivatives.function import Problem
from .._derivatives.sampled import Refinement, SampledColumn, SampledColumns, noise_along
from .._derivatives.steps import (
    ADAPTIVE,
    COMPLEX_STEP,
    METHODS,
    Steps,
    plan_steps,
    sizes_of,
)
from .._derivatives.thresholds import THRESHOLDS
from .._execution.checkpoint import subfolder
from .._execution.run import Progress, run, run_parts
from .._execution.tasks import Buffers, Work
from .._execution.workers import StoreRows
from .flatten import Segment, norm, real_vector
from .function_at_point import FunctionAtPoint
from .numerical_gradient import NumericalGradient

_ORDERS = 1 / 5 - 1 / 3  # power of eps between the optimal steps of orders two and four
# Columns whose differences take less time than to compile a loop around f.
_FEW_COLUMNS = 24
_INSIDE = 0.25  # share of |x|: slopes of the fourth order evaluate f at twice that distance
_WITHIN = 4.0  # ratio of the length to the caller's step; noise is measured at a quarter of it
_COARSEST = SPACINGS["bfloat16"]  # relative steps over which results in bfloat16 may be constant
# Multiples of x at which the jumps of rounding are in proportion to those at x.
_OTHER_SIZES = 2.0**-4, 2.0**4
_LONGER = 4.0  # ratio to the usual steps below which steps of the fourth order are not taken


@dataclass(frozen=True)
class ExecutionPolicy:
    """How columns are computed: by which workers, with which progress bar and checkpoint."""

    workers: Any = None
    report: Progress | None = None
    checkpoint: Any = None

    @property
    def is_local(self) -> bool:
        """Whether this process computes them alone, without progress or checkpoint."""
        return self.workers is None and self.report is None and self.checkpoint is None


@dataclass
class FiniteDifferences:
    """The numerical derivative of f with respect to one input, computed by column on demand."""

    subject: FunctionAtPoint
    part: Segment
    problem: Problem
    coarse: Steps
    exact: ExtrapolatedColumns | RepeatedSteps | ComplexSteps  # estimates its errors
    policy: ExecutionPolicy
    small: NDArray  # columns whose x is below the natural step size
    user_step: bool = False  # whether the caller passed step=
    calls: int = 0

    @property
    def eps(self) -> float:
        """The unit spacing of the format that f computes in."""
        return self.coarse.eps

    @cached_property
    def slopes(self) -> Slopes:
        """The slopes that screening computes."""
        return Slopes(self.problem, self.coarse)

    @cached_property
    def farther(self) -> list[Slopes]:
        """Slopes by steps of 0.5, 1 and 2 times `far`, for columns that screening leaves VAGUE."""
        steps = (replace(self.coarse, lengths=self.far, factor=k) for k in (0.5, 1.0, 2.0))
        return [Slopes(self.problem, each) for each in steps]

    @cached_property
    def far(self) -> NDArray:
        """
        The steps of slopes of the fourth order; 0 where they would not be much longer.

        They do not cross 0, where many functions are not defined. The caller's steps have none.
        """
        if self.user_step:
            return np.zeros(self.problem.coordinates)
        sizes = np.abs(as_real_vector(self.problem.x).astype(float))
        with np.errstate(all="ignore"):
            lengths = self.eps**_ORDERS * self.steps
        lengths = np.where(sizes > 0, np.minimum(lengths, _INSIDE * sizes), lengths)
        return np.where(lengths >= _LONGER * self.steps, lengths, 0.0)

    @property
    def compiled(self) -> bool:
        """Whether a compiled loop takes the slopes and judges them."""
        native = self.problem.native
        return self.policy.is_local and native is not None and not self.coarse.lows.size

    @property
    def threads(self) -> int:
        """How many threads may call f at once."""
        native = self.problem.native
        return 1 if native is None else native.threads

    @cached_property
    def refinement(self) -> Refinement:
        """The refinement of columns."""
        exact = self.exact
        # Numerical gradients have a subclass, for derivatives of second order.
        if type(exact) is ExtrapolatedColumns:
            return Refinement(self.slopes, SampledColumns(exact))
        return Refinement(self.slopes, exact)

    @cached_property
    def steps(self) -> NDArray:
        """The lengths of the coarse steps."""
        lengths = self.coarse.lengths
        if not lengths.size:
            lengths = np.maximum(1.0, np.abs(as_real_vector(self.problem.x).astype(float)))
        whole = np.broadcast_to(lengths, (self.problem.coordinates,))
        return np.ascontiguousarray(self.coarse.factor * whole)

    @cached_property
    def terms(self) -> NDArray:
        """The size of the terms in f, where their rounding shows it."""
        subject, noise = self.subject, self.usual_noise
        largest = np.max(np.abs(subject.base), initial=1.0, where=np.isfinite(subject.base))
        if subject.terms:  # f is a gradient: its natural size is 1 over that of x
            x = as_real_vector(self.problem.x)
            size = np.max(np.abs(x), initial=0.0, where=np.isfinite(x))
            largest = np.fmax(largest, subject.terms) / (min(1.0, size) or 1.0)
        is_rounding = noise <= THRESHOLDS.noisy * self.eps * largest
        return np.fmax(subject.terms, np.where(is_rounding, noise, 0.0) / self.eps)

    @cached_property
    def usual_noise(self) -> NDArray:
        """
        The noise of f's results where all numbers of all inputs change; inf for constant results.

        If several results change, the constant ones get the noise of the noisiest, and at least the
        rounding of x. With bounds or the caller's steps only this input changes.
        """
        subject = self.subject
        finite = all(np.isfinite(part.example).all() for part in subject.active)
        if not finite:
            return np.zeros(subject.base.size)

        def shares(shape: tuple[int, ...]) -> NDArray:
            return np.random.default_rng(0).uniform(0.5, 1.0, shape)  # the same for all distances

        def at_all(far: float) -> NDArray:
            """Displace all inputs by shares of their size."""

            def scaled(x: NDArray) -> NDArray:
                return np.asarray(x + far * shares(x.shape) * np.where(x == 0, 1.0, x))

            other = subject.perturbed(scaled)
            try:
                return other.reals_of(other.call())
            finally:
                subject.calls = other.calls

        origin = as_real_vector(self.problem.x)
        distance, one_sided = self._noise_distance

        def at_one(far: float) -> NDArray:
            self.calls += 1
            return self.problem.at(origin + far * shares(origin.shape) * distance).astype(float)

        limited = self.coarse.is_explicit or subject.limits
        evaluate = at_one if limited else at_all

        def displaced(_: NDArray, t: NDArray) -> tuple[NDArray, NDArray]:
            return np.stack([evaluate(far) for far in t.tolist()]), t

        with np.errstate(all="ignore"):
            try:
                one_sided = one_sided if limited else 0
                noise = noise_along(subject.base, displaced, self.eps, one_sided).noise
            except Exception:  # f may raise anything where it is not defined
                return np.zeros(subject.base.size)
            shown = np.isfinite(noise)
            if np.count_nonzero(shown) >= THRESHOLDS.pooled_outputs:
                x = real_vector([part.example for part in subject.active]).astype(float)
                largest = (np.abs(a[np.isfinite(a)]).max(initial=1.0) for a in (subject.base, x))
                noise[~shown] = max(noise[shown].max(), self.eps * max(largest))
            return np.fmax(noise, subject.noise)

    @property
    def _noise_distance(self) -> tuple[NDArray, int]:
        """
        The distances at which the noise of f is measured, within bounds and the caller's steps.

        Then comes 1 if they are on one side of x, as no element has room on both, else 0.
        """
        origin = as_real_vector(self.problem.x).astype(float)
        size, low, high = np.abs(origin), self.coarse.lows, self.coarse.highs
        length = np.where(size == 0, 1.0, size)
        if self.coarse.is_explicit:
            length = _WITHIN * np.repeat(self.steps, len(origin) // len(self.steps))
        if not low.size:
            return length, 0
        up, down = high - origin, origin - low
        both = np.fmin(length, np.fmin(up, down))
        if both.any():
            return both, 0
        return np.where(up >= down, np.fmin(length, up), -np.fmin(length, down)), 1

    @property
    def greatest(self) -> float:
        """The largest output, or 1 if that is more: terms of f that cancel may be as large."""
        return float(np.max(self.subject.sizes, initial=1.0))

    @cached_property
    def greatest_noise(self) -> NDArray:
        """
        The usual noise; for constant results half of the digits of f, which rounding may hide.

        In lower precision, and by the caller's steps, it is inf: f may round x by more than these
        show.
        """
        half = self.eps**0.5 * self.greatest
        tells = is_double(self.eps) and not self.coarse.is_explicit
        unknown = half if tells else np.inf
        return np.where(np.isinf(self.usual_noise), unknown, self.usual_noise)

    @cached_property
    def relative_noise(self) -> float:
        """The relative spacing of numbers whose rounding is as large as the noise of f."""
        subject, noise = self.subject, self.usual_noise
        usable = np.isfinite(noise) & (subject.sizes > 0)
        if not usable.any():
            return subject.eps
        typical = float(np.median(noise[usable] / subject.sizes[usable]))
        return max(subject.eps, THRESHOLDS.few_samples / THRESHOLDS.rounding * typical)

    def noise_of(self, columns: NDArray, values: NDArray) -> NDArray:
        """
        Return the errors that noise of f causes in derivatives by fixed steps, a row per column.

        Repeated steps may not show them. They are 0 for derivatives whose errors include them.
        """
        exact = self.exact
        if not isinstance(exact, RepeatedSteps):
            return np.zeros(values.shape)
        gains = exact.gains(columns)
        if not gains.any():
            return np.zeros(values.shape)
        spacing = self.eps * self.greatest
        noise = np.where(values == 0, np.fmax(self.greatest_noise, spacing), self.greatest_noise)
        return np.asarray(THRESHOLDS.multiple * gains[:, None] * noise)

    def unmoved_outputs(self, columns: NDArray) -> NDArray:
        """Return True for outputs that do not change when columns move by short steps."""
        share = np.random.default_rng(0).uniform(0.5, 1.0, len(columns))
        short = np.zeros(self.problem.coordinates)
        short[columns] = share * self.steps[columns]
        x = as_real_vector(self.problem.x).astype(float)
        try:
            values = self._at(x + np.repeat(short, self.problem.stride))
        except Exception:  # f may raise anything where it is not defined
            return np.zeros(self.problem.base.size, bool)
        return np.asarray(values == self.problem.base)

    @cached_property
    def rounded_outputs(self) -> NDArray:
        """See `rounded_along`, of all columns that have a step."""
        return self.rounded_along(np.flatnonzero(self.steps > 0))

    def rounded_along(self, columns: NDArray) -> NDArray:
        """
        Return True for outputs that f computes in few bits: they are constant at short steps.

        At longer steps they jump. At a smaller or larger x the jumps are smaller or larger in
        proportion, whereas those of ``floor(x)`` are not.
        """
        problem, x = self.problem, as_real_vector(self.problem.x).astype(float)
        none = np.zeros(problem.base.size, bool)
        if self.coarse.is_explicit or not len(columns) or not np.isfinite(x).all():
            return none
        share = np.zeros(problem.coordinates)
        share[columns] = np.random.default_rng(0).uniform(0.5, 1.0, len(columns))
        direction = np.repeat(share, problem.stride) * np.where(x == 0, 1.0, x)

        def evaluator(scale: float) -> Callable[[NDArray, NDArray], tuple[NDArray, NDArray]]:
            """Return the function that evaluates f along a line through `scale` times x."""

            def evaluate(_: NDArray, t: NDArray) -> tuple[NDArray, NDArray]:
                return np.stack([self._at(scale * (x + u * direction)) for u in t.tolist()]), t

            return evaluate

        base, rounded = problem.base.astype(float), ~none
        with np.errstate(all="ignore"):
            try:
                for briefly in (True, False):
                    here = noise_along(base, evaluator(1.0), self.eps, briefly=briefly)
                    rounded &= here.noisy & (here.constant_up_to > 0)
                    rounded &= here.constant_up_to <= _COARSEST
                    if not rounded.any():
                        return none
                proportional = none.copy()
                for scale in _OTHER_SIZES:
                    if proportional[rounded].all():
                        break
                    other = self._at(scale * x)
                    there = noise_along(other, evaluator(scale), self.eps, briefly=False)
                    for one, two in (np.abs(base), np.abs(other)), (here.change, there.change):
                        ratio = (there.noise * one) / (here.noise * two)
                        proportional |= np.abs(np.log(ratio)) <= np.log(THRESHOLDS.multiple)
            except Exception:  # f may raise anything where it is not defined
                return none
            return rounded & proportional

    def _at(self, numbers: NDArray) -> NDArray:
        """Return f at other real numbers, clipped to the bounds."""
        self.calls += 1
        problem, steps = self.problem, self.coarse
        if steps.lows.size:
            numbers = np.clip(numbers, steps.lows, steps.highs)
        return problem.at(numbers.astype(problem.x.real.dtype)).astype(float)

    def run_pass(self, work: Work, name: str, wanted: NDArray, store: StoreRows) -> None:
        """Compute columns of a pass by the execution policy; `name` is that of its checkpoint."""
        way = self.policy
        report = Progress(False, 0) if way.report is None else way.report
        report.expect(int(np.count_nonzero(wanted)))
        checkpoint = subfolder(way.checkpoint, f"input-{self.part.position}", name)
        run_parts(work, len(wanted), store, way.workers, report, checkpoint, wanted=wanted)

    def results_of(self, work: Work, count: int) -> Buffers:
        """Return the results of work other than columns; the checkpoint stores them."""
        way, outs = self.policy, work.results(count)
        self.calls += round(work.calls * count)
        if way.is_local:
            work(0, outs)
            return outs

        def store(first: int, results: Buffers) -> None:
            for out, values in zip(outs, results, strict=True):
                out[first : first + len(values)] = values

        folder = f"input-{self.part.position}"
        checkpoint = subfolder(way.checkpoint, folder, "points", work=work)
        run_parts(work, count, store, way.workers, Progress(False, 0), checkpoint)
        return outs

    def derivative(self, column: int) -> tuple[NDArray, NDArray]:
        """Return the derivative along a column, and its errors."""
        values, errors, states = run(self.exact, 1, start=column)
        self.calls += int(states["calls"].sum())
        return values[0], errors[0]

    def samples(self, column: int) -> SampledColumn | None:
        """Return samples of f along a column, if derivatives are extrapolated from such."""
        exact = self.refinement.exact
        if not isinstance(exact, SampledColumns):
            return None
        sampled = SampledColumn(exact, column)
        self.calls += sampled.calls
        return sampled

    def noise_at(self, rows: NDArray) -> tuple[NDArray, float]:
        """Return the usual noise of some outputs, and the size of f."""
        # In single precision, constants a million times as large as f are often subtracted.
        return self.usual_noise[rows], self.greatest if is_double(self.eps) else np.inf

    def along(self, v: NDArray, weights: NDArray | None = None) -> tuple[NDArray, NDArray]:
        """Return the derivative of f, or of ``weights @ f``, along v, and its joint errors."""
        exact = self.exact
        with ExitStack() as stack:
            for problem in {id(p): p for p in (exact.problem, self.problem)}.values():
                stack.enter_context(self._counted(problem))
            if not isinstance(exact, ExtrapolatedColumns):
                value, error = exact.along(v)
                if weights is not None:
                    value, error = np.asarray(weights @ value), np.asarray(norm(weights * error))
                return value, error
            problem = exact.problem if weights is None else exact.problem.contracted(weights)
            return jacobian_vector_product(problem, v, exact.steps)

    @contextmanager
    def _counted(self, problem: Problem) -> Iterator[None]:
        """Count the calls of f."""
        f = problem.f

        def counting(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return f(*args, **kwargs)

        problem.f = counting
        try:
            yield
        finally:
            problem.f = f


def plan_differences(
    subject: FunctionAtPoint,
    part: Segment,
    method: str,
    step: Any,
    scale: Any,
    bounds: Any,
    policy: ExecutionPolicy,
    batches: bool = True,
) -> FiniteDifferences:
    """Plan the steps for one input; f is called with `batches` of points if it supports them."""
    # Support is tried at points next to x, which bounds may exclude.
    problem = subject.problem(part, batches and bounds is None)
    problem.noise = subject.noise if subject.noise.any() else None
    if problem.native is not None and problem.coordinates <= _FEW_COLUMNS:
        problem = problem.interpreted()
    inner, length = problem, step
    if method == COMPLEX_STEP:
        inner, length = subject.complex_problem(part), None
    steps = _planned(subject, inner, method, length, scale, bounds, subject.eps)
    coarse = _planned(subject, problem, "3-point", step, scale, bounds, steps.eps)
    x = as_real_vector(problem.x)[:: problem.stride]
    small = sizes_of(x, steps.eps)[1] & (step is None and scale is None)
    exact: ExtrapolatedColumns | RepeatedSteps | ComplexSteps
    if method == COMPLEX_STEP:
        real = _planned(subject, problem, ADAPTIVE, step, scale, bounds, steps.eps)
        exact = ComplexSteps(
            RepeatedSteps(inner, steps), ExtrapolatedColumns(problem, real), coarse
        )
    elif method != ADAPTIVE:
        exact = RepeatedSteps(inner, steps)
    elif isinstance(subject.f, NumericalGradient):
        exact = subject.f.columns(inner, steps, subject.arguments(), subject.kwargs)
    else:
        exact = ExtrapolatedColumns(inner, steps)
    return FiniteDifferences(
        subject, part, problem, coarse, exact, policy, small, length is not None
    )


def _planned(
    subject: FunctionAtPoint,
    problem: Problem,
    method: str,
    step: Any,
    scale: Any,
    bounds: Any,
    eps: float,
) -> Steps:
    """
    Plan steps for the format that f computes in, not only for those of one input and the outputs.

    Elements of x that are not finite get no step if f is finite.
    """
    steps = plan_steps(problem.x, problem.mode, problem.dtype, method, step, scale, bounds)
    factor, lengths = steps.factor, steps.lengths
    if step is None and method in METHODS:
        factor = eps ** METHODS[method].power
    x = as_real_vector(problem.x)[:: problem.stride]
    finite = np.isfinite(x)
    if not finite.all() and np.isfinite(subject.base).all():
        lengths = np.where(finite, steps.lengths_at(x), 0.0)
    sizes, small = sizes_of(x, eps)
    if small.any() and method in METHODS and step is None and scale is None:
        lengths = lengths if lengths.size else steps.lengths_at(x)
        lengths = np.where(small & (lengths != 0), sizes, lengths)
    return replace(steps, factor=factor, lengths=lengths, eps=eps)
