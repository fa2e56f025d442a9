"""Measure errors in units of the change that a 1-ulp perturbation of the inputs causes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._core.dtypes import SMALLEST, as_real_vector
from .._core.protocols import NDArray
from .._kernels.diagnose import ADD_SQUARES, COSINE, PERTURB, SUMMARIZE_ERRORS
from .callables import Implementation, Result, comparable, join_or_none, one_line_error
from .inputs import HIGHER_PRECISION, is_perturbable
from .verdict import ILL_CONDITIONED, INSENSITIVE

# A perturbation that changes results this many times more than a different one is repeated.
_OUTLIER_FACTOR = 100.0
# Relative change between repeated calls above which a function is nondeterministic.
_REPEAT_CHANGE = 0.05
# Perturbations of the inputs: the RMS is then within a factor of 1.8 with a probability of 95 %.
N_PERTURBATIONS = 8


class Perturbations:
    """
    Inputs with random relative perturbations of about delta.

    They are in the next higher precision, or rounded to that of the inputs. A call reuses the
    memory of the previous one: page faults would take longer than the perturbation.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._inputs = inputs
        self._memory: dict[tuple[int, np.dtype[Any]], NDArray] = {}

    def __call__(self, delta: float, seed: int, wide: bool) -> list[Any]:
        return [
            self._perturbed(k, x, delta, (seed + 1000 * k) % 2**64, wide)
            if is_perturbable(x)
            else x
            for k, x in enumerate(self._inputs)
        ]

    def _perturbed(self, k: int, x: NDArray, delta: float, seed: int, wide: bool) -> NDArray:
        kind = HIGHER_PRECISION[x.dtype.name] if wide else x.dtype
        if (k, kind) not in self._memory:
            self._memory[k, kind] = np.empty(x.size, kind)
        out = self._memory[k, kind]
        in_reals, out_reals = as_real_vector(np.ascontiguousarray(x)), as_real_vector(out)
        key = in_reals.dtype, out_reals.dtype
        if all(dtype.char in "fd" and dtype.isnative for dtype in key):
            PERTURB[key](in_reals, delta, seed, out_reals)
        else:
            ones = np.ones(in_reals.size)
            changes = np.empty(in_reals.size)
            PERTURB[ones.dtype, ones.dtype](ones, 0.5, seed, changes)
            work_dtype = np.promote_types(np.promote_types(in_reals.dtype, float), out_reals.dtype)
            share = 2 * work_dtype.type(delta)
            out_reals[:] = in_reals.astype(work_dtype) * (
                1 + share * (changes - 1).astype(work_dtype)
            )
        result: NDArray = out.reshape(x.shape)
        return result


def difference(a: Result, b: Result) -> NDArray:
    """Return the entrywise difference of two results; 0 for equal infinities and for two NaN."""
    dtypes = [x.dtype for result in (a, b) for x in result.arrays]
    # float64 cannot represent all 64-bit integers.
    exact = any(dtype.char in "gG" or dtype.str[1:] in ("i8", "u8") for dtype in dtypes)
    wide = np.longdouble if exact else np.float64
    x, y = a.numbers(wide), b.numbers(wide)
    with np.errstate(all="ignore"):
        d = x - y
        if not np.isfinite(d).all():
            d[(x == y) | (np.isnan(x) & np.isnan(y))] = 0
        return d.astype(np.float64, copy=False)


@dataclass(frozen=True)
class ErrorNorms:
    """Norms of errors, relative to their noise level."""

    rms: float
    largest: float
    normwise: float  # 2-norm of the errors / 2-norm of the noise levels
    peak: float  # largest error / max(its noise level, their RMS)
    broken: int  # number of errors that are not finite
    absolute: float  # RMS of the errors

    @property
    def robust(self) -> float:
        """The smaller of `rms` and `normwise`: small entries may be less accurate."""
        return min(self.rms, self.normwise)


def error_norms(d: NDArray, unit: NDArray) -> ErrorNorms:
    """Return the norms of errors d relative to noise levels `unit`."""
    scale = _scale(d, unit)
    if scale != 1:
        d, unit = d * scale, unit * scale
    out = np.empty(8)
    SUMMARIZE_ERRORS[None](d, unit, out)
    count, squares, largest, _, errors, units, broken, farthest = out.tolist()
    n = max(count, 1.0)
    rms, absolute, unit_rms = map(math.sqrt, (squares / n, errors / n, units / n))
    # Relative to a noise level of 0 any error is infinite, and no error is 0.
    normwise = math.sqrt(errors / units) if unit_rms else (math.inf if errors else 0.0)
    peak = min(largest, farthest / unit_rms) if unit_rms else largest
    absolute /= scale
    return ErrorNorms(rms, max(largest, 0.0), normwise, max(peak, 0.0), int(broken), absolute)


def worst_error_norms(like: Result, d: NDArray, unit: NDArray) -> ErrorNorms:
    """Return the norms of errors; of several arrays, those of the worst one."""
    whole = error_norms(d, unit)
    pairs = zip(like.split(d), like.split(unit), strict=True)
    parts = [error_norms(errors, units) for errors, units in pairs if errors.size]
    if len(parts) < 2:
        return whole
    worst = max(parts, key=lambda part: part.robust)
    return replace(
        whole,
        rms=max(whole.rms, worst.rms),
        normwise=max(whole.normwise, worst.normwise),
        peak=max(part.peak for part in parts),
    )


def _scale(*arrays: NDArray) -> float:
    """Return a power of two that avoids overflow and underflow of squares."""
    top = max(largest_finite(np.abs(x)) for x in arrays)
    if top == 0 or 1e-100 < top < 1e100:
        return 1.0
    return 2.0 ** -max(-1000, min(1000, math.frexp(top)[1]))


def largest_finite(sizes: NDArray) -> float:
    """Return the largest finite number, or 0."""
    largest = float(sizes.max(initial=0))
    return largest if math.isfinite(largest) else float(sizes[np.isfinite(sizes)].max(initial=0))


def cosine(a: NDArray, b: NDArray, unit: NDArray) -> float:
    """Return the cosine of errors a and b, scaled by noise levels; their RMS replaces zeros."""
    if not unit.all():
        finite = unit[(unit > 0) & np.isfinite(unit)]
        unit = np.where(unit == 0, finite_rms(finite) if finite.size else 1.0, unit)
    return float(COSINE[None](a, b, unit))


def finite_rms(numbers: NDArray) -> float:
    """Return the root mean square of the finite numbers."""
    if numbers.dtype.kind == "c":  # its square is not its squared magnitude
        numbers = np.abs(numbers)
    is_finite = np.isfinite(numbers)
    finite = np.ravel(numbers) if is_finite.all() else numbers[is_finite]
    scale = _scale(finite)
    squares = np.square(finite if scale == 1 else finite * scale)
    return math.sqrt(float(np.mean(squares))) / scale if finite.size else 0.0


def perturbation_rms(
    implementation: Implementation,
    here: Result,
    perturb: Perturbations,
    delta: float,
    seeds: Sequence[int],
    wide: bool,
) -> NDArray:
    """
    Return the RMS change of each result under random perturbations of the inputs.

    The largest change is measured again if it is an outlier: the function may be nondeterministic.
    """
    numbers = np.abs(here.numbers(np.float64))
    scale = _scale(numbers)
    sums, results = np.zeros(numbers.size), []
    for seed in seeds:
        result = implementation(perturb(delta, seed, wide))
        if comparable(result, here):
            d = difference(result, here)
            ADD_SQUARES[None](d, scale, sums)
            results.append((finite_rms(d), seed, result))
    by_size = sorted(results, key=lambda item: item[0])
    # With delta=0 results may be equal by chance.
    if delta and len(results) > 1 and by_size[-1][0] > _OUTLIER_FACTOR * by_size[0][0]:
        size, seed, result = by_size[-1]
        again = implementation(perturb(delta, seed, wide))
        if (
            not comparable(again, here)
            or finite_rms(difference(again, result)) > _REPEAT_CHANGE * size
        ):
            implementation.is_nondeterministic = True
    spread: NDArray = np.sqrt(sums / max(1, len(results))) / scale
    return spread


@dataclass(frozen=True)
class NoiseLevel:
    """Expected rounding error of each result, and the condition number."""

    values: NDArray
    kappa: float  # change of the results by 1-ulp perturbations / their roundoff


def estimate_noise_level(
    implementation: Implementation,
    reference: Result,
    perturb: Perturbations,
    roundoff: float,
    form: str,
    seed: int,
) -> NoiseLevel:
    """Estimate the noise level of a reference result by calls at perturbed inputs."""
    seeds = [seed + k for k in range(N_PERTURBATIONS)]
    spread = perturbation_rms(implementation, reference, perturb, roundoff, seeds, wide=True)
    rounded = result_roundoffs(reference, roundoff)
    values = np.hypot(np.hypot(spread, rounded), SMALLEST.get(form, 0.0))
    return NoiseLevel(values, condition_number(spread, reference, roundoff))


def condition_number(spread: NDArray, result: Result, roundoff: float) -> float:
    """Return the norm of the change by perturbations relative to that of the roundoffs."""
    rounding = roundoff * np.abs(result.numbers(np.float64))
    finite = np.isfinite(rounding)
    scale = _scale(rounding)
    size = float(np.linalg.norm(rounding[finite] * scale))
    change = float(np.linalg.norm(spread[finite] * scale))
    return change / size if size else (math.inf if change else 0.0)


def result_roundoffs(result: Result, roundoff: float) -> NDArray:
    """Return the unit roundoff of each result: 0 for integers, infinite for infinities and NaN."""
    rounding = roundoff * np.abs(result.numbers(np.float64))
    rounding[~np.isfinite(rounding)] = np.inf
    rounding[result.integers] = 0
    return rounding


# Relative perturbation to detect steps, as a fraction of the relative difference of f and g.
_STEP_FRACTION = 1 / 16
# Largest such perturbation, relative to an input.
_MAX_STEP = 2.0**-6
# Length of the second perturbation, relative to the first.
_SHORTER = 0.25
# Relative deviation from linear growth above which results change in steps.
_NONLINEARITY = 0.5


def is_stepwise(
    implementation: Implementation, here: Result, perturb: Perturbations, off: float, seed: int
) -> bool:
    """
    Return True if results change in steps under perturbations of a fraction of `off`.

    The perturbations are far above rounding in higher precision. Values that are rounded to lower
    precision stay constant or jump, whereas a smooth function is nearly linear, the more so for
    the shorter perturbation.
    """
    delta = min(_MAX_STEP, _STEP_FRACTION * off)
    return all(
        _changes_direction(implementation, here, perturb, delta * part, seed)
        for part in (1, _SHORTER)
    )


def _changes_direction(
    implementation: Implementation, here: Result, perturb: Perturbations, delta: float, seed: int
) -> bool:
    """Return True if the second half of a perturbation changes results unlike the first."""
    near = implementation(perturb(delta, seed, wide=True))
    far = implementation(perturb(2 * delta, seed, wide=True))
    if not comparable(near, far, here):
        return False
    begun, then = difference(near, here), difference(far, near)
    return finite_rms(then - begun) >= _NONLINEARITY * finite_rms(begun)


def choose_reference(
    implementations: dict[str, Implementation],
    results: dict[str, Result],
    unit_of: Callable[[Implementation, Result], NoiseLevel],
    is_stepwise: Callable[[str], bool],
) -> tuple[Implementation, Result, NoiseLevel]:
    """Choose the reference among the results in higher precision, and its noise level."""
    # Prefer the result with more finite entries.
    finite = {
        name: int(np.isfinite(result.numbers(np.float64)).sum()) for name, result in results.items()
    }
    first, *others = sorted(results, key=lambda name: (-finite[name], name))
    # Prefer a smooth function to one that changes in steps: that rounds to lower precision.
    if others and is_stepwise(first) and not is_stepwise(others[0]):
        first, others = others[0], []
    unit = unit_of(implementations[first], results[first])
    for name in others:  # lower precision inside hides perturbations
        if unit.kappa < INSENSITIVE and finite[name] == finite[first]:
            other = unit_of(implementations[name], results[name])
            # A larger condition number would not be that of the same function.
            if INSENSITIVE <= other.kappa < ILL_CONDITIONED:
                return implementations[name], results[name], other
    return implementations[first], results[first], unit


def require_comparable(result: Result, working: Result, roundoff: float) -> None:
    """Raise if the result of the caller's reference cannot serve as one."""
    problem = _problem(result, working, roundoff)
    if problem is not None:
        raise ValueError(f"float64 {problem}: pass f in higher precision")


def _problem(result: Result, working: Result, roundoff: float) -> str | None:
    if result.error is not None:
        return f"raises {one_line_error(result.error)}"
    if result.forms != working.forms:
        return (
            f"returns shape {join_or_none(result.shapes)} instead of {join_or_none(working.shapes)}"
        )
    narrow = [
        x.dtype
        for x in result.arrays
        if x.dtype.kind in "fc" and np.finfo(x.dtype).eps > max(roundoff, 2.0**-52)
    ]
    return f"returns {narrow[0]}" if narrow else None
