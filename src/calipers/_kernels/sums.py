"""Sums of squares in twice the working precision, without overflow or underflow."""

import math

import numpy as np

from .jitable import jitable
from .scalar.reductions import LARGE, SCALE_EXPONENT, SCALES, scale_of, two_sum

# Numbers whose squares are summed in parallel; those of a block in one scale, by the largest.
LANES = 32


@jitable
def add_squares(values, largest, lanes):
    """Add the squares of a padded block to the sums of many lanes."""
    scale = scale_of(largest)
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
    """Return x*2**exponent; if that overflows, add its square to the sums and return 0."""
    if math.ldexp(x, exponent) < np.inf:
        return math.ldexp(x, exponent)
    square = np.empty(1)
    square[0] = math.ldexp(x, exponent - SCALE_EXPONENT) ** 2
    add_exactly(square, lanes[LARGE, 0, :1], lanes[LARGE, 1, :1])
    return 0.0


@jitable
def add_exactly(x, high, low):
    """Add numbers to sums of a high and a low part, which takes the rounding errors."""
    for i in range(x.size):
        high[i], error = two_sum(high[i], x[i])
        low[i] += error


@jitable
def add_lanes(lanes, sums):
    """Add the sums of all lanes, in order."""
    for scale in range(len(SCALES)):
        for i in range(LANES):
            add_exactly(lanes[scale, 0, i : i + 1], sums[scale, :1], sums[scale, 1:])
            sums[scale, 1] += lanes[scale, 1, i]
