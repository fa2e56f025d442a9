"""Sums of squares that hardly round, and neither overflow nor vanish."""

import math

import numpy as np

from .jitable import jitable
from .scalar.closeness import HUGE, TINY

# Sums are kept in three scales, by the largest term of a block, and in lanes.
SCALES = (2.0**600, 1.0, 2.0**-600)
LANES = 32


@jitable
def add_squares(values, largest, lanes):
    """Add the squares of a padded block to sums in many lanes, hardly rounding."""
    scale = 1
    if largest >= HUGE:
        scale = 2
    elif largest <= TINY:
        scale = 0
    factor = SCALES[scale]
    half = values.size // 2
    low = values[:half]
    high = values[half:]
    for i in range(half):
        x = low[i] * factor
        y = high[i] * factor
        low[i] = x * x + y * y
    while half > LANES:
        half //= 2
        low = values[:half]
        high = values[half : 2 * half]
        for i in range(half):
            low[i] += high[i]
    add_exactly(low, lanes[scale, 0], lanes[scale, 1])


@jitable
def summand(x, exponent, lanes):
    """Return x*2**exponent; or add its square to the sums, and return 0, if binary64 ends below."""
    if math.ldexp(x, exponent) < np.inf:
        return math.ldexp(x, exponent)
    square = np.empty(1)
    square[0] = math.ldexp(x, exponent - 600) ** 2
    add_exactly(square, lanes[2, 0, :1], lanes[2, 1, :1])
    return 0.0


@jitable
def add_exactly(x, high, low):
    """Add to sums of two parts, whose low part takes what rounding loses (Knuth's TwoSum)."""
    for i in range(x.size):
        total = high[i] + x[i]
        back = total - high[i]
        low[i] += (high[i] - (total - back)) + (x[i] - back)
        high[i] = total


@jitable
def add_lanes(lanes, sums):
    """Add the sums of all lanes, in order."""
    for scale in range(3):
        for i in range(LANES):
            add_exactly(lanes[scale, 0, i : i + 1], sums[scale, :1], sums[scale, 1:])
            sums[scale, 1] += lanes[scale, 1, i]
