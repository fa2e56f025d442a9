"""Where mismatches lie: the first few, and the indices of each axis."""

import math

import numpy as np

from .jitable import jitable
from .scalar.predicates import finite, opposite

# The first mismatches are kept with their places.
FIRST = 5
# Where mismatches lie along an axis: the axis' length, the lowest, highest and latest index, the
# greatest common divisor of the distances between them, and where its counts begin, or -1.
LENGTH, LOWEST, HIGHEST, LATEST, STEP, COUNTS = range(6)


@jitable
def note_mismatches(x, y, bad, start, record, axes, counts, index):
    """Count a block's mismatches and note where they lie, if there are any."""
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
                note_index(axes[axis], index[axis])
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
    """Note the mismatches of a run along the last axis; return how many there are."""
    mismatches = np.int64(0)
    for wrong in bad:
        mismatches += np.int64(wrong)
    if mismatches == 0:
        return mismatches
    i = 0
    while not bad[i]:
        i += 1
    note_index(axis, start + i)
    while axis[STEP] != 1 and i < bad.size:
        if bad[i]:
            note_index(axis, start + i)
        i += 1
    i = bad.size - 1
    while not bad[i]:
        i -= 1
    note_index(axis, start + i)
    if axis[COUNTS] >= 0:
        own = counts[axis[COUNTS] + start :]
        own = own[: bad.size]
        for i in range(bad.size):
            own[i] += np.int64(bad[i])
    return mismatches


@jitable
def note_index(axis, at):
    """Extend the range of an axis, and its step, to an index."""
    if axis[LOWEST] < 0:
        axis[LOWEST] = at
        axis[HIGHEST] = at
        axis[LATEST] = at
    gap = abs(at - axis[LATEST])
    if gap != axis[STEP] and gap > 0 and axis[STEP] != 1:
        axis[STEP] = math.gcd(axis[STEP], gap)
    axis[LOWEST] = min(axis[LOWEST], at)
    axis[HIGHEST] = max(axis[HIGHEST], at)
    axis[LATEST] = at
