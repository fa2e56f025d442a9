"""What one pass over two arrays tells of them: counts, extremes, norms, and distances in ULP.

A block is surveyed by one loop that the compiler vectorises. It measures the usual pairs and sets
the unusual ones apart: those with a NaN or an infinity, and those at the ends of the range, which
are then measured one by one. All findings of a pass stand in one record, `TALLY`.
"""

import math
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import overload, register_jitable

from .._jit import Kernels
from .closeness import _HUGE, _LOW, _TINY, close, distance, finite, modulus
from .formats import bits, double, element_type, from_bits, leading_zeros, prefetch, vector

# The first mismatches are kept with their places.
FIRST = 5
# One bucket for equal pairs, and one for each power of two below 2**64.
BUCKETS = 65
# Sums of squares are kept in three scales, by the largest term of a block.
SCALES = (2.0**600, 1.0, 2.0**-600)

_i8, _f8 = np.int64, np.float64
TALLY = np.dtype(
    [
        ("size", _i8),
        ("finite", _i8),
        ("nan_both", _i8),
        ("nan_actual", _i8),
        ("nan_expected", _i8),
        ("infinite", _i8),
        ("mismatches", _i8),
        ("signs", _i8),
        ("first", _i8, FIRST),
        # the largest over all finite pairs, and the first place where each stands
        ("excess", _f8),
        ("absolute", _f8),
        ("relative", _f8),
        ("ulp", np.uint64),
        ("excess_at", _i8),
        ("absolute_at", _i8),
        ("relative_at", _i8),
        ("ulp_at", _i8),
        ("passing_rtol", _f8),
        ("passing_atol", _f8),
        # high and low part of each sum, as SCALES
        ("squares", _f8, (3, 2)),
        ("reference_squares", _f8, (3, 2)),
        ("histogram", _i8, BUCKETS),
    ],
    align=True,
)
# Where mismatches lie along an axis: the axis' length, the lowest, highest and latest index, the
# greatest common divisor of the distances between them, and where its counts begin, or -1.
LENGTH, LOWEST, HIGHEST, LATEST, STEP, COUNTS = range(6)

# Small enough to prefetch the block after the next, which on one core doubles the speed.
_BLOCK = 256
_BLOCKS_AHEAD = 2
_LANES = 32
_SPANNED = 8
_FARTHEST = np.uint64(0xFFFFFFFFFFFFFFFF)
_INF_BITS = 0x7FF0000000000000


# One pair


def measure(a, b, rtol, atol, shift, unit):
    """Return distance, size of b, bound, ULP and whether the pair is usual, without a branch.

    A usual pair is finite, and its distance and bound are those of the closeness rule.
    """


@overload(measure)
def _(a, b, rtol, atol, shift, unit):
    if isinstance(a, types.Integer):

        def integers(a, b, rtol, atol, shift, unit):
            apart, overflow = distance(a, b)
            d = double(apart)
            size = abs(double(b))
            # Below 2**53 the distance is exact, and so is its comparison with the bound.
            usual = (d < 2.0**53) & (not overflow)
            # Of 65 bits, the uppermost is lost.
            return d, size, atol + rtol * size, _FARTHEST if overflow else apart, usual

        return integers
    if isinstance(a, types.Complex):
        return _measure_complex
    return _measure_single if a == types.float32 else _measure_double


def ulps(a, b, shift, unit):
    """Return how many steps of a format lie from a to b; of binary32, whatever the format.

    `unit` brings the format's smallest normal number to that of binary64, and so its subnormal
    numbers to others; `shift` drops the bits that the format lacks. What is left of the bits of |x|
    counts the numbers from 0 to it.
    """


@overload(ulps)
def _(a, b, shift, unit):
    if a == types.float32:
        return lambda a, b, shift, unit: steps(
            np.uint32(bits(abs(a))), np.uint32(bits(abs(b))), (bits(a) ^ bits(b)) >= 0
        )
    return lambda a, b, shift, unit: steps(
        np.uint64(bits(abs(a) * unit)) >> np.uint64(shift),
        np.uint64(bits(abs(b) * unit)) >> np.uint64(shift),
        (bits(a) ^ bits(b)) >= 0,
    )


@register_jitable
def steps(low, high, same_side):
    """Return the distance of two numbers that are so many steps from 0."""
    return np.uint64(max(low, high) - min(low, high) if same_side else low + high)


def _measure_double(a, b, rtol, atol, shift, unit):
    d = abs(a - b)
    size = abs(b)
    bound = atol + rtol * size
    usual = (d < np.inf) & (bound < np.inf) & ((d > 2.0 * _LOW) | (d == 0.0))
    return d, size, bound, ulps(a, b, shift, unit), usual


def _measure_single(a, b, rtol, atol, shift, unit):
    """binary32, of which no distance is small for binary64, nor larger than a bound beyond it."""
    d = abs(double(a) - double(b))
    size = abs(double(b))
    return d, size, atol + rtol * size, ulps(a, b, shift, unit), d < np.inf


def _measure_complex(a, b, rtol, atol, shift, unit):
    a_re = double(a.real)
    a_im = double(a.imag)
    b_re = double(b.real)
    b_im = double(b.imag)
    re = a_re - b_re
    im = a_im - b_im
    d = math.sqrt(re * re + im * im)
    size = math.sqrt(b_re * b_re + b_im * b_im)
    bound = atol + rtol * size
    equal = (re == 0.0) & (im == 0.0)
    zero = (b_re == 0.0) & (b_im == 0.0)
    ordinary = equal | ((_TINY < d) & (d < _HUGE) & (_LOW < bound) & (bound < np.inf))
    usual = ordinary & (((_TINY < size) & (size < _HUGE)) | zero)
    apart = max(ulps(a_re, b_re, shift, unit), ulps(a_im, b_im, shift, unit))
    return d, size, bound, apart, usual


def polar(a, b):
    """Return |a - b| and |b| of a finite pair, each with an exponent of two."""


@overload(polar)
def _(a, b):
    if isinstance(a, types.Integer):

        def integers(a, b):
            apart, overflow = distance(a, b)
            return double(apart) + (2.0**64 if overflow else 0.0), 0, abs(double(b)), 0

        return integers
    if isinstance(a, types.Complex):

        def complex_numbers(a, b):
            a = np.complex128(a)
            b = np.complex128(b)
            half = 0.5 * a - 0.5 * b
            d, d_exponent = modulus(a.real - b.real, a.imag - b.imag)
            if not d < np.inf:
                d, d_exponent = modulus(half.real, half.imag)
                d_exponent += 1
            size, size_exponent = modulus(b.real, b.imag)
            return d, d_exponent, size, size_exponent

        return complex_numbers

    def real_numbers(a, b):
        d = abs(double(a) - double(b))
        if d < np.inf:
            return d, 0, abs(double(b)), 0
        return abs(0.5 * double(a) - 0.5 * double(b)), 1, abs(double(b)), 0

    return real_numbers


@register_jitable
def ulp_excess(ulp, max_ulp):
    """Return ulp/max_ulp, on its side of 1 where rounding would hide that."""
    if ulp <= np.uint64(max_ulp):
        return double(ulp) / double(max_ulp) if max_ulp > 0 else 0.0
    return max(double(ulp) / double(max_ulp), 1.0 + 2.0**-52)


@register_jitable
def weigh(a, b, rtol, atol, max_ulp, shift, unit):
    """Return excess, absolute and relative difference and ULP of any pair; 0 if not finite."""
    none = np.uint64(0)
    if not (finite(a) and finite(b)):
        return 0.0, 0.0, 0.0, none
    d, size, bound, apart, usual = measure(a, b, rtol, atol, shift, unit)
    if d == 0.0 and apart == none:
        return 0.0, 0.0, 0.0, none
    if usual:
        absolute = d
        relative = d / size
        excess = d / bound
    else:
        d, d_exponent, size, size_exponent = polar(a, b)
        absolute = math.ldexp(d, d_exponent)
        relative = math.ldexp(d / size, d_exponent - size_exponent)
        share = math.ldexp(size / d, size_exponent - d_exponent) if rtol > 0.0 else 0.0
        excess = 1.0 / (math.ldexp(atol / d, -d_exponent) + rtol * share)
        # Rounded otherwise than the rule, this has to fall on its side of 1.
        within = close(a, b, rtol, atol, False)
        excess = min(excess, 1.0) if within else max(excess, 1.0 + 2.0**-52)
    if max_ulp >= 0:
        excess = ulp_excess(apart, max_ulp)
    return excess, absolute, relative, apart


@register_jitable
def acceptable(a, b, rtol, atol, max_ulp, equal_nan, shift, unit):
    """Give the verdict on any pair."""
    if max_ulp < 0 or not (finite(a) and finite(b)):
        return close(a, b, rtol, atol, equal_nan)
    return measure(a, b, rtol, atol, shift, unit)[3] <= np.uint64(max_ulp)


def is_nan(x):
    """Tell whether a number, or a part of a complex one, is NaN."""


@overload(is_nan)
def _(x):
    if isinstance(x, types.Complex):
        return lambda x: (x.real != x.real) | (x.imag != x.imag)
    return lambda x: double(x) != double(x)


def opposite(a, b):
    """Tell whether two real numbers lie on the two sides of 0."""


@overload(opposite)
def _(a, b):
    if isinstance(a, types.Complex):
        return lambda a, b: False
    return lambda a, b: (
        ((double(a) < 0.0) & (double(b) > 0.0)) | ((double(a) > 0.0) & (double(b) < 0.0))
    )


@register_jitable
def sufficient(a, b, other, failing, relative):
    """Return the smallest tolerance that accepts a finite pair, above one that does not."""
    low = bits(failing)
    high = np.int64(_INF_BITS)
    while high - low > 1:
        middle = low + (high - low) // 2
        tolerance = from_bits(middle)
        if close(a, b, tolerance if relative else other, other if relative else tolerance, False):
            high = middle
        else:
            low = middle
    return from_bits(high)


# One block


@register_jitable
def survey(x, y, rule, record, d, size, ulp):
    """Measure the pairs of a block into d, size and ulp.

    Return whether one is unusual; if none is, whether one mismatches; whether one may exceed the
    tally's largest excess or relative difference; whether one exceeds the tolerances that pass so
    far; the largest distance and size; and the fewest and most ULP.
    """
    rtol, atol, max_ulp, _, shift, unit = rule
    by_ulp = max_ulp >= 0
    allowed = np.uint64(max(max_ulp, 0))
    passing_rtol = record.passing_rtol
    passing_atol = record.passing_atol
    # Division is slow. A quotient that rounds to more than another exceeds it by multiplication,
    # lowered by more than that rounds by.
    excess = np.inf if by_ulp else record.excess * (1.0 - 2.0**-50)
    relative = record.relative * (1.0 - 2.0**-50)
    wrong: Any = False
    unusual: Any = False
    most_d = np.int64(0)
    most_size = np.int64(0)
    fewest = _FARTHEST
    most = np.uint64(0)
    more: Any = False
    short: Any = False
    for i in range(x.size):
        d_i, size_i, bound, ulp_i, usual = measure(x[i], y[i], rtol, atol, shift, unit)
        far = (ulp_i > allowed) if by_ulp else (d_i > bound)
        more |= (d_i > excess * bound) | (d_i > relative * size_i)
        short |= (d_i > passing_atol + rtol * size_i) | (d_i > atol + passing_rtol * size_i)
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
        fewest,
        most,
    )


@register_jitable
def mark(rule, d, size, ulp, bad):
    """Mark the mismatches among a block's usual pairs."""
    rtol, atol, max_ulp = rule[:3]
    by_ulp = max_ulp >= 0
    allowed = np.uint64(max(max_ulp, 0))
    for i in range(d.size):
        bad[i] = (ulp[i] > allowed) if by_ulp else (d[i] > atol + rtol * size[i])


@register_jitable
def largest_quotients(rtol, atol, d, size):
    """Return the largest excess and relative difference of a block's usual pairs."""
    excess = np.int64(0)
    relative = np.int64(0)
    for i in range(d.size):
        # 0/0 is no difference.
        excess = max(excess, bits(d[i] / (atol + rtol * size[i]) if d[i] > 0.0 else 0.0))
        relative = max(relative, bits(d[i] / size[i] if d[i] > 0.0 else 0.0))
    return from_bits(excess), from_bits(relative)


@register_jitable
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


@register_jitable
def falls_short(passing, other, relative, d, size):
    """Tell whether a usual pair of a block needs more than a tolerance."""
    rtol = passing if relative else other
    atol = other if relative else passing
    short = False
    for i in range(d.size):
        short |= d[i] > atol + rtol * size[i]
    return short


@register_jitable
def neediest(other, relative, d, size):
    """Return where a block needs about the largest tolerance."""
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


@register_jitable
def raised(a, b, passing, other, relative):
    """Return a tolerance that passes a pair too, if it is finite."""
    rtol = passing if relative else other
    atol = other if relative else passing
    if not (finite(a) and finite(b)) or close(a, b, rtol, atol, False):
        return passing
    return sufficient(a, b, other, passing, relative)


@register_jitable
def add_squares(values, largest, lanes):
    """Add the squares of a padded block to sums in many lanes, hardly rounding."""
    scale = 1
    if largest >= _HUGE:
        scale = 2
    elif largest <= _TINY:
        scale = 0
    factor = SCALES[scale]
    half = _BLOCK // 2
    low = values[:half]
    high = values[half:]
    for i in range(half):
        x = low[i] * factor
        y = high[i] * factor
        low[i] = x * x + y * y
    while half > _LANES:
        half //= 2
        low = values[:half]
        high = values[half : 2 * half]
        for i in range(half):
            low[i] += high[i]
    add_exactly(low, lanes[scale, 0], lanes[scale, 1])


@register_jitable
def summand(x, exponent, lanes):
    """Return x*2**exponent; or add its square to the sums, and return 0, if binary64 ends below."""
    if math.ldexp(x, exponent) < np.inf:
        return math.ldexp(x, exponent)
    square = np.empty(1)
    square[0] = math.ldexp(x, exponent - 600) ** 2
    add_exactly(square, lanes[2, 0, :1], lanes[2, 1, :1])
    return 0.0


@register_jitable
def add_exactly(x, high, low):
    """Add to sums of two parts, whose low part takes what rounding loses (Knuth's TwoSum)."""
    for i in range(x.size):
        total = high[i] + x[i]
        back = total - high[i]
        low[i] += (high[i] - (total - back)) + (x[i] - back)
        high[i] = total


@register_jitable
def add_lanes(lanes, sums):
    """Add the sums of all lanes, in order."""
    for scale in range(3):
        for i in range(_LANES):
            add_exactly(lanes[scale, 0, i : i + 1], sums[scale, :1], sums[scale, 1:])
            sums[scale, 1] += lanes[scale, 1, i]


@register_jitable
def count_ulps(ulp, fewest, most, tables):
    """Count distances by powers of two."""
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
        start = np.uint64(1) << np.uint64(k)
        count = np.int64(0)
        for i in range(ulp.size):
            count += np.int64(ulp[i] >= start)
        tables[0, k] += above - count
        above = count
    tables[0, highest] += above


@register_jitable
def bucket(ulp):
    """Return 0 for 0, and k for 2**(k-1) to 2**k - 1."""
    return np.int64(64) - leading_zeros(ulp)


@register_jitable
def set_aside(x, y, rule, d, size, ulp):
    """Put equal pairs in the place of unusual ones."""
    rtol, atol, _, _, shift, unit = rule
    for i in range(x.size):
        usual = measure(x[i], y[i], rtol, atol, shift, unit)[4]
        d[i] = d[i] if usual else 0.0
        size[i] = size[i] if usual else 0.0
        ulp[i] = ulp[i] if usual else np.uint64(0)


@register_jitable
def settle_unusual(x, y, rule, record, d, size, ulp, bad, lanes, reference_lanes):
    """Classify and measure the unusual pairs of a block.

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
        if measure(a, b, rtol, atol, shift, unit)[4]:
            continue
        accepted = acceptable(a, b, rtol, atol, max_ulp, equal_nan, shift, unit)
        bad[i] = not accepted
        if finite(a) and finite(b):
            some = True
            excess, absolute, relative, apart = weigh(a, b, rtol, atol, max_ulp, shift, unit)
            distance, d_exponent, modulus, size_exponent = polar(a, b)
            d[i] = summand(distance, d_exponent, lanes)
            size[i] = summand(modulus, size_exponent, reference_lanes)
            ulp[i] = apart
            most_excess = max(most_excess, excess)
            most_absolute = max(most_absolute, absolute)
            most_relative = max(most_relative, relative)
            continue
        nonfinite += 1
        if is_nan(a) or is_nan(b):
            record.nan_both += np.int64(is_nan(a) and is_nan(b))
            record.nan_actual += np.int64(not is_nan(b))
            record.nan_expected += np.int64(not is_nan(a))
        else:
            record.infinite += np.int64(not accepted)
    return some, nonfinite, most_excess, most_absolute, most_relative


@register_jitable
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


@register_jitable
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


@register_jitable
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


# A pass


@register_jitable
def fetch(array, start):
    """Prefetch a block."""
    for i in range(0, _BLOCK, 64 // array.itemsize):
        prefetch(array, start + i)


def tally(a, b, rtol, atol, max_ulp, equal_nan, shift, unit, start, tallies, axes, counts):
    """Add what two vectors tell to a tally; a[0] stands at position `start` in C order."""
    record = tallies[0]
    rule = (rtol, atol, max_ulp, equal_nan, shift, unit)
    d_block = np.empty(_BLOCK)
    size_block = np.empty(_BLOCK)
    ulp_block = np.empty(_BLOCK, np.uint64)
    bad_block = np.empty(_BLOCK, np.uint8)
    index = np.empty(axes.shape[0], np.int64)
    lanes = np.zeros((3, 2, _LANES))
    reference_lanes = np.zeros((3, 2, _LANES))
    tables = np.zeros((4, BUCKETS), np.int64)
    # The block in which the largest of each measure stands.
    highest = np.full(4, -1)
    for begin in range(0, a.size, _BLOCK):
        fetch(a, begin + _BLOCKS_AHEAD * _BLOCK)
        fetch(b, begin + _BLOCKS_AHEAD * _BLOCK)
        x = a[begin : begin + _BLOCK]
        y = b[begin : begin + _BLOCK]
        n = x.size
        d = d_block[:n]
        size = size_block[:n]
        ulp = ulp_block[:n]
        bad = bad_block[:n]
        unusual, wrong, more, short, most_d, most_size, fewest, most = survey(
            x, y, rule, record, d, size, ulp
        )
        if unusual:
            set_aside(x, y, rule, d, size, ulp)
        if wrong or unusual:
            mark(rule, d, size, ulp, bad)
        excess = 0.0
        relative = 0.0
        absolute = most_d
        if more or unusual:
            excess, relative = largest_quotients(rtol, atol, d, size)
        record.size += n
        nonfinite = np.int64(0)
        careful = False
        if unusual:
            careful, nonfinite, own_excess, absolute, own_relative = settle_unusual(
                x, y, rule, record, d, size, ulp, bad, lanes, reference_lanes
            )
            excess = max(excess, own_excess)
            relative = max(relative, own_relative)
            most_d = d.max()
            absolute = max(absolute, most_d)
            most_size = size.max()
            fewest = ulp.min()
            most = ulp.max()
        if max_ulp >= 0:
            excess = ulp_excess(most, max_ulp)
        if wrong or unusual:
            note_mismatches(x, y, bad, start + begin, record, axes, counts, index)
        if short or unusual:
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
        # In the block these stand as equal pairs.
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
        record.histogram[k] += tables[:, k].sum()
    place_largest(a, b, rule, start, highest, record)
    return -1


@register_jitable
def place_largest(a, b, rule, start, highest, record):
    """Find the first element of a block that is the largest of all, for each measure."""
    rtol, atol, max_ulp, _, shift, unit = rule
    for quantity in range(4):
        begin = highest[quantity]
        if begin < 0:
            continue
        for i in range(begin, min(begin + _BLOCK, a.size)):
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
_STATE = (types.int64, vector(numba.from_dtype(TALLY), readonly=False), _AXES)
_COUNTS = vector(types.int64, readonly=False)

TALLIES = Kernels(
    tally,
    lambda key: (*(vector(element_type(dtype)) for dtype in key), *_RULE, *_STATE, _COUNTS),
)
