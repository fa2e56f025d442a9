"""Functions that grow as powers of their inputs, and what rescaling by powers of two tells."""

import math
from typing import Any

import numpy as np

from .answers import Answer, comparable

STEP = 2  # of exponents, to see what the power is
DOUBLINGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of inputs, or halvings
_HOMOGENEOUS = 2.0**-40  # relative error of the power law


def scaled(inputs: Any, chosen: tuple[int, ...], k: int) -> list[Any]:
    """Multiply by a power of two; in two steps, since one may be out of range."""
    half = k // 2
    with np.errstate(all="ignore"):
        return [
            (x * x.real.dtype.type(2.0**half) * x.real.dtype.type(2.0 ** (k - half))).astype(
                x.dtype
            )
            if j in chosen
            else x
            for j, x in enumerate(inputs)
        ]


def degrees_of(here: Answer, there: Answer) -> list[float] | None:
    """Return the degrees that results grow by; multiples of a half, as that of a root."""
    if not comparable(there, here):
        return None
    degrees = []
    for a, b in zip(there.arrays, here.arrays, strict=True):
        if b.dtype.kind not in "fc":
            return None
        known = np.isfinite(b)
        then, now = b[known], a[known]
        with np.errstate(all="ignore"):
            sizes = [float(np.max(np.abs(x), initial=0.0)) for x in (then, now)]
            if not all(0 < size < math.inf for size in sizes):
                return None
            # The ratio itself may be out of range.
            degree = round(2 * (math.log2(sizes[1]) - math.log2(sizes[0])) / STEP) / 2
            factor = np.exp2(np.longdouble(-degree * STEP)).astype(b.real.dtype)
            off = np.max(np.abs(now * factor - then))
        if not off <= _HOMOGENEOUS * sizes[0]:
            return None
        degrees.append(degree)
    return degrees


def unscaled(answer: Answer, degrees: list[float], k: int) -> Answer:
    """Undo what rescaling did to the results, in a format that has room for it."""
    if answer.error is not None or len(answer.arrays) != len(degrees):
        return answer
    with np.errstate(all="ignore"):
        return Answer(
            tuple(
                x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
                * np.exp2(np.longdouble(-degree * k))
                for x, degree in zip(answer.arrays, degrees, strict=True)
            )
        )
