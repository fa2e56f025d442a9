"""Errors in units of what the inputs' last places do to the results."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._kernels.agreement import ADD_SQUARES, COSINE, MOVE, WEIGH
from .._protocols import NDArray
from .sides import WIDER, Answer, Side, is_movable

# Unit roundoff: half of the distance from 1 to the next number.
ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "tf32": 2.0**-11,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}
_SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149}

MOVES = 8  # of the inputs: the estimate is then off by a factor of 1.8 at most, 19 times of 20


def moved(inputs: Sequence[Any], delta: float, seed: int, wide: bool) -> list[Any]:
    """Return inputs of which each number is changed by about delta of it, at random.

    They are of the next wider format, or rounded to their own.
    """
    return [
        _moved(x, delta, seed + 1000 * k, wide) if is_movable(x) else x
        for k, x in enumerate(inputs)
    ]


def _moved(x: NDArray, delta: float, seed: int, wide: bool) -> NDArray:
    flat = np.ascontiguousarray(x)
    kind = WIDER[x.dtype.name] if wide else x.dtype
    own, out = flat.reshape(-1), np.empty(x.size, kind)
    own_reals = own.view(own.real.dtype) if own.dtype.kind == "c" else own
    out_reals = out.view(out.real.dtype) if kind.kind == "c" else out
    key = own_reals.dtype, out_reals.dtype
    if all(dtype.char in "fd" for dtype in key):
        MOVE[key](own_reals, delta, seed % 2**64, out_reals)
    else:
        ones = np.ones(own_reals.size)
        changes = np.empty(own_reals.size)
        MOVE[ones.dtype, ones.dtype](ones, 0.5, seed % 2**64, changes)
        wider = np.promote_types(np.promote_types(own_reals.dtype, float), out_reals.dtype)
        share = 2 * wider.type(delta)
        out_reals[:] = own_reals.astype(wider) * (1 + share * (changes - 1).astype(wider))
    result: NDArray = out.reshape(x.shape)
    return result


def difference(a: Answer, b: Answer) -> NDArray:
    """Return how far two answers are apart; 0 for equal infinities, and for two NaN."""
    dtypes = [x.dtype for answer in (a, b) for x in answer.arrays]
    exact = any(dtype.char in "gG" for dtype in dtypes)
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
    broken: int  # that are not finite
    absolute: float  # the root of the mean square of the errors themselves

    @property
    def least(self) -> float:
        """By elements or by norms, whichever is less: small elements may have lost accuracy."""
        return min(self.rms, self.normwise)


def size_of(d: NDArray, unit: NDArray) -> Size:
    """Measure errors."""
    found = np.empty(7)
    WEIGH[None](d, unit, found)
    count, squares, largest, at, errors, units, broken = found.tolist()
    n = max(count, 1.0)
    normwise = math.sqrt(errors / units) if units else (math.inf if errors else 0.0)
    rms, absolute = math.sqrt(squares / n), math.sqrt(errors / n)
    return Size(rms, max(largest, 0.0), int(at), normwise, int(broken), absolute)


def cosine(a: NDArray, b: NDArray, unit: NDArray) -> float:
    """Return the cosine between two vectors of errors, in units."""
    return float(COSINE[None](a, b, unit))


@dataclass(frozen=True)
class Unit:
    """What one last place of the inputs does to each result, and one of the result itself."""

    values: NDArray
    kappa: float  # the former by the latter
    moves: list[Answer]


def unit_of(
    side: Side, reference: Answer, inputs: Sequence[Any], roundoff: float, form: str, seed: int
) -> Unit:
    """Estimate units around a reference, by calls at inputs that are moved at random."""
    sums = np.zeros(reference.numbers(np.float64).size)
    answers = []
    for k in range(MOVES):
        answer = side(moved(inputs, roundoff, seed + k, wide=True))
        if answer.error is None and answer.shapes == reference.shapes:
            answers.append(answer)
            d = difference(answer, reference)
            ADD_SQUARES[None](np.where(np.isfinite(d), d, 0.0), sums)
    sums /= max(1, len(answers))
    own = roundoff * np.abs(reference.numbers(np.float64))
    own[~np.isfinite(own)] = np.inf
    values = np.sqrt(sums + own * own + _SMALLEST.get(form, 0.0) ** 2)
    known = np.isfinite(own)
    size = math.sqrt(np.mean(own[known] ** 2)) if known.any() else 0.0
    spread = math.sqrt(np.mean(sums[known])) if known.any() else 0.0
    return Unit(values, spread / size if size else (math.inf if spread else 0.0), answers)
