"""Rules that combine the results of two parts of a comparison, and tests that come before them."""

from .. import jitable
from .closeness import HUGE, TINY
from .formats import product

# Squares are summed in three scales, so that none leaves the range of binary64: numbers are
# multiplied by the scale before they are squared.
SCALE_EXPONENT = 600  # of two; between TINY and HUGE no scale is needed
SCALES = (2.0**SCALE_EXPONENT, 1.0, 2.0**-SCALE_EXPONENT)
SMALL, USUAL, LARGE = range(3)

# Bounds the relative rounding error of a quotient and of the product that replaces it.
_QUOTIENT_ROUNDING = 2.0**-50


@jitable
def two_sum(a, b):
    """Return the rounded sum of two numbers, and its rounding error (Knuth's TwoSum)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


@jitable
def scale_of(largest):
    """Return the index in SCALES for numbers whose largest magnitude is given."""
    return LARGE if largest >= HUGE else SMALL if largest <= TINY else USUAL


@jitable
def precedes(value, position, other, other_position):
    """Return True if a value is larger than another, or as large and at an earlier position."""
    return value > other or (value == other and position < other_position)


@jitable
def common_divisor(a, b):
    """Return the greatest common divisor of two nonnegative integers."""
    while b:
        a, b = b, a % b
    return a


@jitable
def united_range(lowest, highest, step, low, high, other_step):
    """
    Return the lowest index, the highest and the step of two ranges of indices together.

    The step is the greatest common divisor of all distances. An empty range has -1 as its lowest.
    """
    if low < 0:
        return lowest, highest, step
    if lowest < 0:
        return low, high, other_step
    if step != 1:
        step = common_divisor(common_divisor(step, other_step), abs(low - lowest))
    return min(lowest, low), max(highest, high), step


@jitable
def lowered(quotient):
    """Return a quotient, lowered by more than `may_lead` rounds."""
    return quotient * (1.0 - _QUOTIENT_ROUNDING)


@jitable
def may_lead(d, bound, size, excess, relative):
    """
    Return True if a pair may have the largest d/bound, or the largest d/size, so far.

    Division is slow. A quotient that rounds to more than the largest so far exceeds that by
    multiplication, if the largest is `lowered`.
    """
    return (d > excess * bound) | (d > relative * size)


@jitable
def exceeds(d, size, rtol, atol):
    """Return True if a distance exceeds the bound of two tolerances."""
    return d > atol + product(rtol, size)
