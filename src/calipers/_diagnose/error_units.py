"""Errors in units of what the inputs' last places do to the results."""

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

_OUTLYING = 100.0  # times that one move does more than another
_AGAIN = 0.05  # of what it did: as much is not another order of summation
N_PERTURBATIONS = (
    8  # of the inputs: the estimate is then off by a factor of 1.8 at most, 19 times of 20
)


class Perturbations:
    """
    Inputs of which each number is changed by about delta of it, at random.

    They are of the next wider format, or rounded to their own. Arrays of one call are in the memory
    of the last one: fresh pages take longer than the numbers.
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
    """Return how far two answers are apart; 0 for equal infinities, and for two NaN."""
    dtypes = [x.dtype for result in (a, b) for x in result.arrays]
    # Integers of 64 bits are not all numbers of float64.
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
    """How large errors are, in units."""

    rms: float
    largest: float
    at: int
    normwise: float  # the norm of the errors by that of the units
    peak: float  # the largest, by itself or by the root of the mean square of the units
    broken: int  # that are not finite
    absolute: float  # the root of the mean square of the errors themselves

    @property
    def robust(self) -> float:
        """By elements or by norms, whichever is less: small elements may have lost accuracy."""
        return min(self.rms, self.normwise)


def error_norms(d: NDArray, unit: NDArray) -> ErrorNorms:
    """Measure errors."""
    scale = _scale(d, unit)
    if scale != 1:
        d, unit = d * scale, unit * scale
    out = np.empty(8)
    SUMMARIZE_ERRORS[None](d, unit, out)
    count, squares, largest, at, errors, units, broken, farthest = out.tolist()
    n = max(count, 1.0)
    rms, absolute, unit_rms = map(math.sqrt, (squares / n, errors / n, units / n))
    # Any error is infinite in units of 0; where there is none, none is 0.
    normwise = math.sqrt(errors / units) if unit_rms else (math.inf if errors else 0.0)
    peak = min(largest, farthest / unit_rms) if unit_rms else largest
    absolute /= scale
    return ErrorNorms(
        rms, max(largest, 0.0), int(at), normwise, max(peak, 0.0), int(broken), absolute
    )


def worst_error_norms(like: Result, d: NDArray, unit: NDArray) -> ErrorNorms:
    """Measure errors; of several results those of the worst, beside which others are large."""
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
    """Return a power of two by which squares of numbers neither overflow nor vanish."""
    top = max(largest_of(np.abs(x)) for x in arrays)
    if top == 0 or 1e-100 < top < 1e100:
        return 1.0
    return 2.0 ** -max(-1000, min(1000, math.frexp(top)[1]))


def largest_of(sizes: NDArray) -> float:
    """Return the largest of what is finite, or 0."""
    largest = float(sizes.max(initial=0))
    return largest if math.isfinite(largest) else float(sizes[np.isfinite(sizes)].max(initial=0))


def cosine(a: NDArray, b: NDArray, unit: NDArray) -> float:
    """Return the cosine between errors, in units; others stand in for those that are 0."""
    if not unit.all():
        finite = unit[(unit > 0) & np.isfinite(unit)]
        unit = np.where(unit == 0, rms_of(finite) if finite.size else 1.0, unit)
    return float(COSINE[None](a, b, unit))


def rms_of(numbers: NDArray) -> float:
    """Return the root mean square of what is finite."""
    if numbers.dtype.kind == "c":  # a square of a complex number is no size of it
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
    Return the root mean square of what moves of the inputs do to each result of a side.

    What one of them does far more than another is asked for again: it may be the side's own doing.
    """
    numbers = np.abs(here.numbers(np.float64))
    scale = _scale(numbers)
    sums, results = np.zeros(numbers.size), []
    for seed in seeds:
        result = implementation(perturb(delta, seed, wide))
        if comparable(result, here):
            d = difference(result, here)
            ADD_SQUARES[None](d, scale, sums)
            results.append((rms_of(d), seed, result))
    by_size = sorted(results, key=lambda item: item[0])
    # Without a move, what is equal now and then is no measure.
    if delta and len(results) > 1 and by_size[-1][0] > _OUTLYING * by_size[0][0]:
        size, seed, result = by_size[-1]
        again = implementation(perturb(delta, seed, wide))
        if not comparable(again, here) or rms_of(difference(again, result)) > _AGAIN * size:
            implementation.is_nondeterministic = True
    spread: NDArray = np.sqrt(sums / max(1, len(results))) / scale
    return spread


@dataclass(frozen=True)
class NoiseLevel:
    """What one last place of the inputs does to each result, and one of the result itself."""

    values: NDArray
    kappa: float  # the former by the latter


def estimate_noise_level(
    implementation: Implementation,
    reference: Result,
    perturb: Perturbations,
    roundoff: float,
    form: str,
    seed: int,
) -> NoiseLevel:
    """Estimate units around a reference, by calls at inputs that are moved at random."""
    seeds = [seed + k for k in range(N_PERTURBATIONS)]
    spread = perturbation_rms(implementation, reference, perturb, roundoff, seeds, wide=True)
    rounded = result_roundoffs(reference, roundoff)
    values = np.hypot(np.hypot(spread, rounded), SMALLEST.get(form, 0.0))
    return NoiseLevel(values, condition_number(spread, reference, roundoff))


def condition_number(spread: NDArray, result: Result, roundoff: float) -> float:
    """Return how many times larger what moves do is than last places, of integers, too."""
    rounding = roundoff * np.abs(result.numbers(np.float64))
    finite = np.isfinite(rounding)
    scale = _scale(rounding)
    size = float(np.linalg.norm(rounding[finite] * scale))
    change = float(np.linalg.norm(spread[finite] * scale))
    return change / size if size else (math.inf if change else 0.0)


def result_roundoffs(result: Result, roundoff: float) -> NDArray:
    """Return what a rounding of each result is: 0 of integers, infinite of what is not finite."""
    rounding = roundoff * np.abs(result.numbers(np.float64))
    rounding[~np.isfinite(rounding)] = np.inf
    rounding[result.integers] = 0
    return rounding


_PART = 1 / 16  # of how far two sides are apart: a step of numbers that are held in few bits
_MOST = 2.0**-6  # largest perturbation of an input, as a share of its size
_SHORTER = 0.25  # length of the second perturbation, as a share of the first
_STEADY = 0.5  # of a change, by which the next one may be another


def is_stepwise(
    implementation: Implementation, here: Result, perturb: Perturbations, off: float, seed: int
) -> bool:
    """
    Tell whether a side's results stay and jump, where inputs are moved by a part of a share.

    Its own rounding in the wider format is far below such moves. What is rounded to a narrower one
    stays where it is, or jumps by more than inputs are moved by; and a function has a slope, or is
    bent, and of shorter moves less.
    """
    delta = min(_MOST, _PART * off)
    return all(
        _changes_direction(implementation, here, perturb, delta * part, seed)
        for part in (1, _SHORTER)
    )


def _changes_direction(
    implementation: Implementation, here: Result, perturb: Perturbations, delta: float, seed: int
) -> bool:
    """Tell whether results go on otherwise than they began."""
    near = implementation(perturb(delta, seed, wide=True))
    far = implementation(perturb(2 * delta, seed, wide=True))
    if not comparable(near, far, here):
        return False
    begun, then = difference(near, here), difference(far, near)
    return rms_of(then - begun) >= _STEADY * rms_of(begun)


def choose_reference(
    implementations: dict[str, Implementation],
    results: dict[str, Result],
    unit_of: Callable[[Implementation, Result], NoiseLevel],
    is_stepwise: Callable[[str], bool],
) -> tuple[Implementation, Result, NoiseLevel]:
    """Choose among the sides that answer in the wider format, and measure units there."""
    # Of two, the one that is finite where the other is not.
    finite = {
        name: int(np.isfinite(result.numbers(np.float64)).sum()) for name, result in results.items()
    }
    first, *others = sorted(results, key=lambda name: (-finite[name], name))
    # And the one that has a slope, where the other stays and jumps: that rounds, to some format.
    if others and is_stepwise(first) and not is_stepwise(others[0]):
        first, others = others[0], []
    unit = unit_of(implementations[first], results[first])
    for name in others:  # one that holds numbers in few bits does not feel small moves
        if unit.kappa < INSENSITIVE and finite[name] == finite[first]:
            other = unit_of(implementations[name], results[name])
            # Of one function: what magnifies on one side alone are its own doings.
            if INSENSITIVE <= other.kappa < ILL_CONDITIONED:
                return implementations[name], results[name], other
    return implementations[first], results[first], unit


def require_comparable(result: Result, working: Result, roundoff: float) -> None:
    """Refuse an answer of the caller's function that a side's own cannot be measured from."""
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
