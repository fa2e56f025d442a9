"""Record where mismatches lie: the first few, and the range of indices on each axis."""

import numpy as np

from .jitable import jitable
from .record import COUNTS, FIRST, HIGHEST, LENGTH, LOWEST, STEP
from .scalar.predicates import finite, opposite
from .scalar.reductions import common_divisor, united_range


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
        own = counts[axis[COUNTS] + start :]
        own = own[: bad.size]
        for i in range(bad.size):
            own[i] += np.int64(bad[i])
    return mismatches


@jitable
def note_range(axis, low, high, step):
    """Extend the range of an axis by another."""
    axis[LOWEST], axis[HIGHEST], axis[STEP] = united_range(
        axis[LOWEST], axis[HIGHEST], axis[STEP], low, high, step
    )
