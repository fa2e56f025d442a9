"""Compare two arrays in one pass: counts, extremes, norms and distances in ULP.

A block is surveyed by one loop that the compiler vectorises. It measures the usual pairs and sets
the unusual ones aside: those with a NaN or an infinity, and those at the ends of the range, which
are then measured one by one. The results of a pass are one `RECORD`.
"""

from functools import cache
from typing import Any

import numba
import numpy as np
from numba.core import types

from .._core.jit import Kernels
from . import jitable, numpy_versions
from .accumulators import BLOCK, LANES, RECORD, add_lanes, add_squares, note_mismatches, summand
from .function_calls import borrowed
from .scalar.closeness import finite, is_nan
from .scalar.formats import bits, element_type, from_bits, prefetch, vector
from .scalar.measures import (
    BUCKETS,
    FARTHEST,
    acceptable,
    bucket,
    measure,
    polar,
    raised,
    ulp_excess,
    weigh,
)
from .scalar.reductions import exceeds, lowered, may_lead

_i8, _f8 = np.int64, np.float64
_BLOCKS_AHEAD = 2  # blocks between the one that is prefetched and the current one
_SPANNED = 8  # buckets of a histogram up to which each is counted by a pass of its own


_AXES_AT_MOST = 64  # axes of an array at most, which is NumPy's limit


@cache
def scratch_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a pass's scratch memory."""
    # Distances in ULP take 32 bits for float32, else 64.
    ulp = np.uint32 if dtype == np.float32 else np.uint64
    sums = (_f8, (3, 2, LANES))
    return np.dtype(
        [
            ("d", _f8, BLOCK),
            ("size", _f8, BLOCK),
            ("ulp", ulp, BLOCK),
            ("bad", np.uint8, BLOCK),
            ("index", _i8, _AXES_AT_MOST),
            ("lanes", *sums),
            ("reference_lanes", *sums),
            ("tables", _i8, (4, BUCKETS)),
            # The start of the block with the largest value of each measure.
            ("highest", _i8, 4),
        ],
        align=True,
    )


# One block


@jitable
def _allowed(max_ulp, ulp):
    """Return the largest ULP distance that is allowed, in the type of distances."""
    farthest = ulp.dtype.type(FARTHEST)
    return ulp.dtype.type(min(np.uint64(max(max_ulp, 0)), np.uint64(farthest)))


@jitable
def survey(x, y, rule, record, d, size, ulp):
    """Measure the pairs of a block into d, size and ulp.

    Return whether one is unusual; if none is, whether one mismatches; whether one may exceed the
    tally's largest excess or relative difference; whether one exceeds the tolerances that pass so
    far; the largest distance and size; and the fewest and most ULP.
    """
    rtol, atol, max_ulp, _, shift, unit = rule
    by_ulp = max_ulp >= 0
    allowed = _allowed(max_ulp, ulp)
    passing_rtol = record.passing_rtol
    passing_atol = record.passing_atol
    excess = np.inf if by_ulp else lowered(record.excess)
    relative = lowered(record.relative)
    wrong: Any = False
    unusual: Any = False
    most_d = np.int64(0)
    most_size = np.int64(0)
    fewest = ulp.dtype.type(FARTHEST)
    most = ulp.dtype.type(0)
    more: Any = False
    short: Any = False
    for i in range(x.size):
        d_i, size_i, bound, ulp_i, usual = measure(x[i], y[i], rtol, atol, shift, unit)
        far = (ulp_i > allowed) if by_ulp else (d_i > bound)
        more |= may_lead(d_i, bound, size_i, excess, relative)
        short |= exceeds(d_i, size_i, rtol, passing_atol)
        short |= exceeds(d_i, size_i, passing_rtol, atol)
        # Numbers that are not negative order as their bits do, and integers need no fastmath.
        most_d = max(most_d, bits(d_i))
        most_size = max(most_size, bits(size_i))
        most = max(most, ulp_i)
        fewest = min(fewest, ulp_i)
        wrong |= far
        unusual |= not usual
        d[i] = d_i
        size[i] = size_i
        ulp[i] = ulp_i
    return (
        unusual,
        wrong,
        more,
        short,
        from_bits(most_d),
        from_bits(most_size),
        np.uint64(fewest),
        np.uint64(most),
    )


@jitable
def extremes(d, size, ulp):
    """Return the largest distance and size of a block, and the fewest and most ULP."""
    most_d = np.int64(0)
    most_size = np.int64(0)
    fewest = ulp.dtype.type(FARTHEST)
    most = ulp.dtype.type(0)
    for i in range(d.size):
        most_d = max(most_d, bits(d[i]))
        most_size = max(most_size, bits(size[i]))
        fewest = min(fewest, ulp[i])
        most = max(most, ulp[i])
    return from_bits(most_d), from_bits(most_size), np.uint64(fewest), np.uint64(most)


@jitable
def mark(rule, d, size, ulp, bad):
    """Store which of a block's usual pairs are mismatches."""
    rtol, atol, max_ulp = rule[:3]
    by_ulp = max_ulp >= 0
    allowed = _allowed(max_ulp, ulp)
    for i in range(d.size):
        bad[i] = (ulp[i] > allowed) if by_ulp else exceeds(d[i], size[i], rtol, atol)


@jitable
def largest_quotients(rtol, atol, d, size):
    """Return the largest excess and relative difference of a block's usual pairs."""
    excess = np.int64(0)
    relative = np.int64(0)
    for i in range(d.size):
        # 0/0 is no difference.
        excess = max(excess, bits(d[i] / (atol + rtol * size[i]) if d[i] > 0.0 else 0.0))
        relative = max(relative, bits(d[i] / size[i] if d[i] > 0.0 else 0.0))
    return from_bits(excess), from_bits(relative)


@jitable
def raise_tolerances(x, y, rtol, atol, record, d, size, careful):
    """Raise the two tolerances that would pass until they pass each finite pair of a block."""
    for relative in (False, True):
        other = atol if relative else rtol
        passing = record.passing_rtol if relative else record.passing_atol
        if careful or falls_short(passing, other, relative, d, size):
            # The pair that seems to need most comes first: seldom does another need more than it.
            i = neediest(other, relative, d, size)
            passing = raised(x[i], y[i], passing, other, relative)
            if careful or falls_short(passing, other, relative, d, size):
                for i in range(x.size):
                    passing = raised(x[i], y[i], passing, other, relative)
        if relative:
            record.passing_rtol = passing
        else:
            record.passing_atol = passing


@jitable
def falls_short(passing, other, relative, d, size):
    """Return True if a usual pair of a block needs a larger tolerance."""
    rtol = passing if relative else other
    atol = other if relative else passing
    short = False
    for i in range(d.size):
        short |= exceeds(d[i], size[i], rtol, atol)
    return short


@jitable
def neediest(other, relative, d, size):
    """Return the index of a pair in a block that needs about the largest tolerance."""
    rtol = 0.0 if relative else other
    atol = other if relative else 0.0
    most = np.int64(0)
    for i in range(d.size):
        need = (d[i] - atol - rtol * size[i]) / (size[i] if relative else 1.0)
        most = max(most, bits(need if need > 0.0 else 0.0))
    for i in range(d.size):
        need = (d[i] - atol - rtol * size[i]) / (size[i] if relative else 1.0)
        if bits(need) == most:
            return i
    return 0


@jitable
def count_ulps(ulp, fewest, most, tables):
    """Add a block's distances in ULP to their histogram, by powers of two."""
    lowest = bucket(fewest)
    highest = bucket(most)
    if highest - lowest > _SPANNED:
        # Neighbours go to different tables: the same entry twice in a row would wait for itself.
        whole = ulp.size - ulp.size % 4
        for i in range(0, whole, 4):
            four = ulp[i : i + 4]
            tables[0, bucket(four[0])] += 1
            tables[1, bucket(four[1])] += 1
            tables[2, bucket(four[2])] += 1
            tables[3, bucket(four[3])] += 1
        for wide in ulp[whole:]:
            tables[0, bucket(wide)] += 1
        return
    above = np.int64(ulp.size)
    for k in range(lowest, highest):
        start = ulp.dtype.type(np.uint64(1) << np.uint64(k))
        count = ulp.dtype.type(0)
        for i in range(ulp.size):
            count = ulp.dtype.type(count + ulp.dtype.type(ulp[i] >= start))
        tables[0, k] += above - np.int64(count)
        above = np.int64(count)
    tables[0, highest] += above


@jitable
def set_aside(x, y, rule, d, size, ulp):
    """Replace unusual pairs by equal ones; return True if one of them has no NaN."""
    rtol, atol, _, _, shift, unit = rule
    strange: Any = False
    for i in range(x.size):
        usual = measure(x[i], y[i], rtol, atol, shift, unit)[4]
        strange |= not (usual | is_nan(x[i]) | is_nan(y[i]))
        d[i] = d[i] if usual else 0.0
        size[i] = size[i] if usual else 0.0
        ulp[i] = ulp[i] if usual else ulp.dtype.type(0)
    return strange


@jitable
def settle_nans(x, y, equal_nan, record, bad):
    """Decide the pairs of a block that have a NaN, and return their number."""
    both = np.int64(0)
    actual = np.int64(0)
    expected = np.int64(0)
    for i in range(x.size):
        a_nan = is_nan(x[i])
        b_nan = is_nan(y[i])
        bad[i] = not (equal_nan and a_nan and b_nan) if a_nan | b_nan else bad[i]
        both += np.int64(a_nan & b_nan)
        actual += np.int64(a_nan)
        expected += np.int64(b_nan)
    record.nan_both += both
    record.nan_actual += actual - both
    record.nan_expected += expected - both
    return actual + expected - both


@jitable
def settle_strange(x, y, rule, record, d, size, ulp, bad, lanes, reference_lanes):
    """Decide and measure the unusual pairs of a block that have no NaN.

    Return whether one is finite, how many are not, and the largest excess, absolute and relative
    difference.
    """
    rtol, atol, max_ulp, equal_nan, shift, unit = rule
    some = False
    nonfinite = np.int64(0)
    most_excess = 0.0
    most_absolute = 0.0
    most_relative = 0.0
    for i in range(x.size):
        a = x[i]
        b = y[i]
        if measure(a, b, rtol, atol, shift, unit)[4] or is_nan(a) or is_nan(b):
            continue
        accepted = acceptable(a, b, rtol, atol, max_ulp, equal_nan, shift, unit)
        bad[i] = not accepted
        if not (finite(a) and finite(b)):
            nonfinite += 1
            record.infinite += np.int64(not accepted)
            continue
        some = True
        excess, absolute, relative, n_ulps = weigh(a, b, rtol, atol, max_ulp, shift, unit)
        distance, d_exponent, modulus, size_exponent = polar(a, b)
        d[i] = summand(distance, d_exponent, lanes)
        size[i] = summand(modulus, size_exponent, reference_lanes)
        ulp[i] = n_ulps
        most_excess = max(most_excess, excess)
        most_absolute = max(most_absolute, absolute)
        most_relative = max(most_relative, relative)
    return some, nonfinite, most_excess, most_absolute, most_relative


# A pass


def tally(
    a, b, rtol, atol, max_ulp, equal_nan, shift, unit, start, tallies, axes, counts, workspace
):
    """
    Add the comparison of two vectors to a tally; a[0] is at position `start` in C order.

    `workspace` is one element of scratch, all zeros; see `scratch_dtype`.
    """
    a, b = borrowed((a, b))
    record = tallies[0]
    scratch = workspace[0]
    rule = (rtol, atol, max_ulp, equal_nan, shift, unit)
    d_block, size_block, ulp_block, bad_block = scratch.d, scratch.size, scratch.ulp, scratch.bad
    lanes, reference_lanes, tables = scratch.lanes, scratch.reference_lanes, scratch.tables
    index, highest = scratch.index[: axes.shape[0]], scratch.highest
    for quantity in range(highest.size):
        highest[quantity] = -1
    for begin in range(0, a.size, BLOCK):
        prefetch(a, begin + _BLOCKS_AHEAD * BLOCK, BLOCK)
        prefetch(b, begin + _BLOCKS_AHEAD * BLOCK, BLOCK)
        x = a[begin : begin + BLOCK]
        y = b[begin : begin + BLOCK]
        n = x.size
        d = d_block[:n]
        size = size_block[:n]
        ulp = ulp_block[:n]
        bad = bad_block[:n]
        unusual, wrong, more, short, most_d, most_size, fewest, most = survey(
            x, y, rule, record, d, size, ulp
        )
        strange = unusual and set_aside(x, y, rule, d, size, ulp)
        if wrong or unusual:
            mark(rule, d, size, ulp, bad)
        excess = 0.0
        relative = 0.0
        absolute = most_d
        if more:
            excess, relative = largest_quotients(rtol, atol, d, size)
        record.size += n
        nonfinite = np.int64(0)
        careful = False
        if unusual:
            absolute = 0.0
            nonfinite = settle_nans(x, y, equal_nan, record, bad)
            if strange:
                careful, infinite, block_excess, absolute, block_relative = settle_strange(
                    x, y, rule, record, d, size, ulp, bad, lanes, reference_lanes
                )
                nonfinite += infinite
                excess = max(excess, block_excess)
                relative = max(relative, block_relative)
            most_d, most_size, fewest, most = extremes(d, size, ulp)
            absolute = max(absolute, most_d)
        if max_ulp >= 0:
            excess = ulp_excess(most, max_ulp)
        if wrong or unusual:
            note_mismatches(x, y, bad, start + begin, record, axes, counts, index)
        if short or careful:
            raise_tolerances(x, y, rtol, atol, record, d, size, careful)
        if excess > record.excess:
            record.excess = excess
            highest[0] = begin
        if absolute > record.absolute:
            record.absolute = absolute
            highest[1] = begin
        if relative > record.relative:
            record.relative = relative
            highest[2] = begin
        if most > record.ulp:
            record.ulp = most
            highest[3] = begin
        count_ulps(ulp, fewest, most, tables)
        # The block counts these as equal pairs.
        tables[0, 0] -= nonfinite
        record.finite += n - nonfinite
        if most_d > 0.0:
            d_block[n:] = 0.0
            add_squares(d_block, most_d, lanes)
        if most_size > 0.0:
            size_block[n:] = 0.0
            add_squares(size_block, most_size, reference_lanes)
    add_lanes(lanes, record.squares)
    add_lanes(reference_lanes, record.reference_squares)
    for k in range(BUCKETS):
        for table in tables:
            record.histogram[k] += table[k]
    locate_largest(a, b, rule, start, highest, record)


@jitable
def locate_largest(a, b, rule, start, highest, record):
    """Record the position of the first pair that has the largest value of each measure."""
    rtol, atol, max_ulp, _, shift, unit = rule
    for quantity in range(4):
        begin = highest[quantity]
        if begin < 0:
            continue
        for i in range(begin, min(begin + BLOCK, a.size)):
            excess, absolute, relative, ulp = weigh(a[i], b[i], rtol, atol, max_ulp, shift, unit)
            if quantity == 0 and excess == record.excess:
                record.excess_at = start + i
                break
            if quantity == 1 and absolute == record.absolute:
                record.absolute_at = start + i
                break
            if quantity == 2 and relative == record.relative:
                record.relative_at = start + i
                break
            if quantity == 3 and ulp == record.ulp:
                record.ulp_at = start + i
                break


_RULE = (types.float64, types.float64, types.int64, types.boolean, types.int64, types.float64)
_AXES = types.Array(types.int64, 2, "C")
_STATE = (types.int64, vector(numba.from_dtype(RECORD), readonly=False), _AXES)
_COUNTS = vector(types.int64, readonly=False)


def _tally_signature(key: tuple[np.dtype[Any], np.dtype[Any]]) -> tuple[Any, ...]:
    pair = (vector(element_type(dtype)) for dtype in key)
    scratch = vector(numba.from_dtype(scratch_dtype(key[0])), readonly=False)
    return (*pair, *_RULE, *_STATE, _COUNTS, scratch)


TALLIES = Kernels(tally, _tally_signature, by_numpy=numpy_versions.tally)
