"""Errors in units of what the inputs' last places do to the results."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._kernels.agreement import ADD_SQUARES, COSINE, MOVE, WEIGH
from .._protocols import NDArray
from .._reals import reals
from .._rounding import FORMATS
from .answers import Answer, comparable
from .inputs import WIDER, is_movable
from .sides import Side

# Unit roundoff: half of the distance from 1 to the next number.
ROUNDOFF = {
    name: 2.0 ** -(form.fraction + 1)
    for name, form in sorted(FORMATS.items(), key=lambda item: -item[1].fraction)
}
SMALLEST = {
    name: 2.0 ** (FORMATS[name].lowest - FORMATS[name].fraction)
    for name in ("float16", "bfloat16", "float32")
}

_OUTLYING = 100.0  # times that one move does more than another
_AGAIN = 0.05  # of what it did: as much is not another order of summation
MOVES = 8  # of the inputs: the estimate is then off by a factor of 1.8 at most, 19 times of 20


class Moves:
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
            self._moved(k, x, delta, (seed + 1000 * k) % 2**64, wide) if is_movable(x) else x
            for k, x in enumerate(self._inputs)
        ]

    def _moved(self, k: int, x: NDArray, delta: float, seed: int, wide: bool) -> NDArray:
        kind = WIDER[x.dtype.name] if wide else x.dtype
        if (k, kind) not in self._memory:
            self._memory[k, kind] = np.empty(x.size, kind)
        out = self._memory[k, kind]
        in_reals, out_reals = reals(np.ascontiguousarray(x)), reals(out)
        key = in_reals.dtype, out_reals.dtype
        if all(dtype.char in "fd" and dtype.isnative for dtype in key):
            MOVE[key](in_reals, delta, seed, out_reals)
        else:
            ones = np.ones(in_reals.size)
            changes = np.empty(in_reals.size)
            MOVE[ones.dtype, ones.dtype](ones, 0.5, seed, changes)
            work_dtype = np.promote_types(np.promote_types(in_reals.dtype, float), out_reals.dtype)
            share = 2 * work_dtype.type(delta)
            out_reals[:] = in_reals.astype(work_dtype) * (
                1 + share * (changes - 1).astype(work_dtype)
            )
        result: NDArray = out.reshape(x.shape)
        return result


def difference(a: Answer, b: Answer) -> NDArray:
    """Return how far two answers are apart; 0 for equal infinities, and for two NaN."""
    dtypes = [x.dtype for answer in (a, b) for x in answer.arrays]
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
class Size:
    """How large errors are, in units."""

    rms: float
    largest: float
    at: int
    normwise: float  # the norm of the errors by that of the units
    peak: float  # the largest, by itself or by the root of the mean square of the units
    broken: int  # that are not finite
    absolute: float  # the root of the mean square of the errors themselves

    @property
    def least(self) -> float:
        """By elements or by norms, whichever is less: small elements may have lost accuracy."""
        return min(self.rms, self.normwise)


def size_of(d: NDArray, unit: NDArray) -> Size:
    """Measure errors."""
    scale = _scale(d, unit)
    if scale != 1:
        d, unit = d * scale, unit * scale
    out = np.empty(8)
    WEIGH[None](d, unit, out)
    count, squares, largest, at, errors, units, broken, farthest = out.tolist()
    n = max(count, 1.0)
    rms, absolute, unit_rms = map(math.sqrt, (squares / n, errors / n, units / n))
    # Any error is infinite in units of 0; where there is none, none is 0.
    normwise = math.sqrt(errors / units) if unit_rms else (math.inf if errors else 0.0)
    peak = min(largest, farthest / unit_rms) if unit_rms else largest
    absolute /= scale
    return Size(rms, max(largest, 0.0), int(at), normwise, max(peak, 0.0), int(broken), absolute)


def size_of_results(like: Answer, d: NDArray, unit: NDArray) -> Size:
    """Measure errors; of several results those of the worst, beside which others are large."""
    whole = size_of(d, unit)
    pairs = zip(like.split(d), like.split(unit), strict=True)
    parts = [size_of(errors, units) for errors, units in pairs if errors.size]
    if len(parts) < 2:
        return whole
    worst = max(parts, key=lambda part: part.least)
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


def spread_of(
    side: Side, here: Answer, moves: Moves, delta: float, seeds: Sequence[int], wide: bool
) -> NDArray:
    """
    Return the root mean square of what moves of the inputs do to each result of a side.

    What one of them does far more than another is asked for again: it may be the side's own doing.
    """
    numbers = np.abs(here.numbers(np.float64))
    scale = _scale(numbers)
    sums, results = np.zeros(numbers.size), []
    for seed in seeds:
        answer = side(moves(delta, seed, wide))
        if comparable(answer, here):
            d = difference(answer, here)
            ADD_SQUARES[None](d, scale, sums)
            results.append((rms_of(d), seed, answer))
    by_size = sorted(results, key=lambda item: item[0])
    # Without a move, what is equal now and then is no measure.
    if delta and len(results) > 1 and by_size[-1][0] > _OUTLYING * by_size[0][0]:
        size, seed, answer = by_size[-1]
        again = side(moves(delta, seed, wide))
        if not comparable(again, here) or rms_of(difference(again, answer)) > _AGAIN * size:
            side.restless = True
    spread: NDArray = np.sqrt(sums / max(1, len(results))) / scale
    return spread


@dataclass(frozen=True)
class Unit:
    """What one last place of the inputs does to each result, and one of the result itself."""

    values: NDArray
    kappa: float  # the former by the latter


def unit_of(
    side: Side, reference: Answer, moves: Moves, roundoff: float, form: str, seed: int
) -> Unit:
    """Estimate units around a reference, by calls at inputs that are moved at random."""
    seeds = [seed + k for k in range(MOVES)]
    spread = spread_of(side, reference, moves, roundoff, seeds, wide=True)
    rounded = own_roundings(reference, roundoff)
    values = np.hypot(np.hypot(spread, rounded), SMALLEST.get(form, 0.0))
    return Unit(values, magnified(spread, reference, roundoff))


def magnified(spread: NDArray, answer: Answer, roundoff: float) -> float:
    """Return how many times larger what moves do is than last places, of integers, too."""
    rounding = roundoff * np.abs(answer.numbers(np.float64))
    finite = np.isfinite(rounding)
    scale = _scale(rounding)
    size = float(np.linalg.norm(rounding[finite] * scale))
    moved = float(np.linalg.norm(spread[finite] * scale))
    return moved / size if size else (math.inf if moved else 0.0)


def own_roundings(answer: Answer, roundoff: float) -> NDArray:
    """Return what a rounding of each result is: 0 of integers, infinite of what is not finite."""
    rounding = roundoff * np.abs(answer.numbers(np.float64))
    rounding[~np.isfinite(rounding)] = np.inf
    rounding[answer.integers] = 0
    return rounding
