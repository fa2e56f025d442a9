"""Measure errors in units of the change that a 1-ulp perturbation of the inputs causes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._core.protocols import NDArray
from .._core.report import brief
from .._kernels.diagnose import ADD_SQUARES, COSINE, SUMMARIZE_ERRORS
from .arrays import (
    HIGHER_PRECISION,
    Point,
    Result,
    comparable,
    is_perturbable,
    join_or_none,
    one_line_error,
    perturb,
)
from .callables import Implementation

# What a limit is for: the smaller of RMSE and 2-norm, or the largest error of an element.
NORM, ELEMENT = "norm", "element"


def as_multiple(size: float, limit: float | None = None, measure: str = NORM) -> str:
    """Write an error as a multiple of the expected rounding error, its measure and limit."""
    text = f"{brief(size)} times the expected rounding error"
    return text if limit is None else f"{text} ({measure}; allowed {brief(limit)})"


class Perturbations:
    """
    Inputs with random relative perturbations of about delta.

    They are in the next higher precision, or rounded to that of the inputs. A call reuses the
    memory of the previous one: page faults would take longer than the perturbation.
    """

    def __init__(self, inputs: Sequence[Any], alone: bool = False) -> None:
        self._inputs, self._alone = inputs, alone
        self._memory: dict[tuple[int, np.dtype[Any]], NDArray] = {}

    def __call__(self, delta: float, seed: int, wide: bool) -> Point:
        perturbed = (
            self._perturbed(k, x, delta, (seed + 1000 * k) % 2**64, wide)
            if is_perturbable(x)
            else x
            for k, x in enumerate(self._inputs)
        )
        # Inputs that are perturbed already take their parameters with them.
        size = max(delta, getattr(self._inputs, "delta", 0.0))
        return Point(perturbed, wide, size, seed, self._alone)

    def _perturbed(self, k: int, x: NDArray, delta: float, seed: int, wide: bool) -> NDArray:
        kind = HIGHER_PRECISION[x.dtype.name] if wide else x.dtype
        if (k, kind) not in self._memory:
            self._memory[k, kind] = np.empty(x.size, kind)
        return perturb(x, delta, seed, self._memory[k, kind])


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
    """Return the RMS change of each result under random perturbations of the inputs."""
    scale = _scale(np.abs(here.numbers(np.float64)))
    sums, count = np.zeros(here.integers.size), 0
    for seed in seeds:
        result = implementation(perturb(delta, seed, wide))
        if comparable(result, here):
            ADD_SQUARES[None](difference(result, here), scale, sums)
            count += 1
    spread: NDArray = np.sqrt(sums / max(1, count)) / scale
    return spread


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


def require_comparable(result: Result, working: Result, roundoff: float) -> None:
    """Raise if the result of the caller's reference cannot serve as one."""
    floats = [x.dtype for x in result.arrays if x.dtype.kind in "fc"]
    narrow = [x for x in floats if np.finfo(x).eps > max(roundoff, 2.0**-52)]
    if result.error is not None:
        problem = f"raises {one_line_error(result.error)}"
    elif result.forms != working.forms:
        shapes = join_or_none(result.shapes), join_or_none(working.shapes)
        problem = "returns shape {} instead of {}".format(*shapes)
    elif narrow:
        problem = f"returns {narrow[0]}"
    else:
        return
    raise ValueError(f"reference {problem}: pass f in higher precision")
