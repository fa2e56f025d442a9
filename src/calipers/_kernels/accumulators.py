"""The record of a comparison, and loops that add sums of squares and mismatches to it."""

import math
from typing import Any

import numpy as np

from .._core.types import Measure
from . import jitable
from .scalar.closeness import finite, opposite
from .scalar.measures import BUCKETS
from .scalar.reductions import (
    LARGE,
    SCALE_EXPONENT,
    SCALES,
    common_divisor,
    scale_of,
    two_sum,
    united_range,
)

# The number of mismatches, the first ones, whose positions are recorded.
FIRST = 5

# The counts of pairs that are not compared, since one or both of their elements are masked.
MASKED = ("masked_both", "masked_actual", "masked_expected")
# Counts, which are added.
COUNTED = (
    "size",
    "finite",
    "nan_both",
    "nan_actual",
    "nan_expected",
    "infinite",
    "mismatches",
    "signs",
    # of text and other objects, and of masked arrays, which no kernel takes
    "without_distance",
    *MASKED,
)
# Measures of the difference: the largest over all finite pairs. The first pair that has it is at
# position `<measure>_at`.
MEASURES: tuple[Measure, ...] = ("excess", "absolute", "relative", "ulp")
POSITIONS = tuple(f"{measure}_at" for measure in MEASURES)
# Tolerances that would pass all pairs; of two parts the larger counts.
PASSING = ("passing_rtol", "passing_atol")
# Sums of squares: the high and the low part of each of SCALES.
SQUARES = ("squares", "reference_squares")

RECORD = np.dtype(
    [
        *((name, np.int64) for name in COUNTED),
        ("first", np.int64, FIRST),
        *((name, np.uint64 if name == "ulp" else np.float64) for name in MEASURES),
        *((name, np.int64) for name in POSITIONS),
        *((name, np.float64) for name in PASSING),
        *((name, np.float64, (len(SCALES), 2)) for name in SQUARES),
        ("histogram", np.int64, BUCKETS),
    ],
    align=True,
)

# Where mismatches lie along an axis: the lowest and highest index, and the greatest common divisor
# of the distances between them. The CPU's rows have the axis' length, too, and where its counts
# begin, or -1.
LOWEST, HIGHEST, STEP, LENGTH, COUNTS = range(5)
RANGE = 3  # entries of an axis on a device, which has no length and no counts

_WORD = 8  # bytes of each number of a record


def part_of_record(*names: str) -> np.dtype[Any]:
    """Return the dtype of some fields of a record, without padding."""
    return np.dtype([(name, RECORD[name]) for name in names])


def word_of(part: np.dtype[Any], name: str) -> int:
    """Return where a field of a part begins, in an array of 64-bit numbers."""
    assert part.fields is not None
    return int(part.fields[name][1]) // _WORD


def words_of(part: np.dtype[Any]) -> int:
    """Return how many 64-bit numbers a part has."""
    return part.itemsize // _WORD


# Elements of a block, few enough to prefetch the block after the next, which doubles the speed on
# one core.
BLOCK = 512
# Numbers whose squares are summed in parallel; those of a block in one scale, by the largest.
LANES = 32  # partial sums of a block, so that additions run in parallel


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
    whole = math.ldexp(x, exponent)
    if whole < np.inf:
        return whole
    x = math.ldexp(x, exponent - SCALE_EXPONENT)
    lanes[LARGE, 0, 0], error = two_sum(lanes[LARGE, 0, 0], x * x)
    lanes[LARGE, 1, 0] += error
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
            sums[scale, 0], error = two_sum(sums[scale, 0], lanes[scale, 0, i])
            sums[scale, 1] += error
            sums[scale, 1] += lanes[scale, 1, i]


@jitable
def note_mismatches(x, y, bad, start, record, axes, counts, index):
    """Count a block's mismatches and record where they lie, if there are any."""
    mismatches = np.int64(0)
    for i in range(x.size):
        mismatches += np.int64(bad[i])
    if mismatches == 0:
        return
    record.mismatches += mismatches
    k = 0
    for i in range(x.size):
        if bad[i]:
            while k < FIRST and record.first[k] >= 0:
                k += 1
            if k == FIRST:
                break
            record.first[k] = start + i
    signs = np.int64(0)
    for i in range(x.size):
        both = finite(x[i]) & finite(y[i])
        signs += np.int64(bad[i]) * np.int64(both & opposite(x[i], y[i]))
    record.signs += signs

    last = axes.shape[0] - 1
    for axis in range(last, -1, -1):
        index[axis] = start % axes[axis, LENGTH]
        start //= axes[axis, LENGTH]
    i = 0
    while i < x.size:
        run = min(axes[last, LENGTH] - index[last], x.size - i)
        mismatches = note_run(bad[i : i + run], index[last], axes[last], counts)
        if mismatches:
            for axis in range(last):
                note_range(axes[axis], index[axis], index[axis], 0)
                if axes[axis, COUNTS] >= 0:
                    counts[axes[axis, COUNTS] + index[axis]] += mismatches
        i += run
        index[last] += run
        for axis in range(last, 0, -1):
            if index[axis] == axes[axis, LENGTH]:
                index[axis] = 0
                index[axis - 1] += 1


@jitable
def note_run(bad, start, axis, counts):
    """Record the mismatches of a run along the last axis; return how many there are."""
    mismatches = np.int64(0)
    for wrong in bad:
        mismatches += np.int64(wrong)
    if mismatches == 0:
        return mismatches
    first = 0
    while not bad[first]:
        first += 1
    last = bad.size - 1
    while not bad[last]:
        last -= 1
    step = axis[STEP]
    latest = first
    i = first + 1
    while step != 1 and i <= last:
        if bad[i]:
            if i - latest != step:
                step = common_divisor(step, i - latest)
            latest = i
        i += 1
    note_range(axis, start + first, start + last, step)
    if axis[COUNTS] >= 0:
        run_counts = counts[axis[COUNTS] + start :]
        run_counts = run_counts[: bad.size]
        for i in range(bad.size):
            run_counts[i] += np.int64(bad[i])
    return mismatches


@jitable
def note_range(axis, low, high, step):
    """Extend the range of an axis by another."""
    axis[LOWEST], axis[HIGHEST], axis[STEP] = united_range(
        axis[LOWEST], axis[HIGHEST], axis[STEP], low, high, step
    )
