"""Compare two arrays on a device in one pass, by the rules of the CPU's pass.

Pairs are counted by atomic additions of integers, whose order does not matter: first for each
block, which has fewer than 2**31 pairs, and then for all. Each thread has its largest differences,
its sums and its ranges of indices; those of a block's threads are combined in a fixed order, and so
are those of all blocks, by a second launch.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, types

from ..._kernels.accumulators import (
    HIGHEST,
    LOWEST,
    MEASURES,
    PASSING,
    POSITIONS,
    RANGE,
    SQUARES,
    STEP,
    part_of_record,
    word_of,
    words_of,
)
from ..._kernels.scalar import closeness, measures, reductions
from ..._kernels.scalar.formats import product
from ..._kernels.scalar.reductions import (
    LARGE,
    SCALE_EXPONENT,
    SMALL,
    USUAL,
    lowered,
    precedes,
    scale_of,
    two_sum,
    united_range,
)
from ..launch import Policy, cached_kernel
from .closeness import finite
from .loading import latest, loader, locator, rule, viewer, wrap_rule

# A thread, a block and the whole pass fill parts of a record: counts, which are followed by those
# of each axis; numbers, of binary64; and positions, which are followed by the range of mismatches
# on each axis. The largest distance in ULP, an integer of 64 bits, is by itself.
COUNT_FIELDS = part_of_record(
    "finite",
    "nan_both",
    "nan_actual",
    "nan_expected",
    "infinite",
    "mismatches",
    "signs",
    "histogram",
)
NUMBER_FIELDS = part_of_record(*(name for name in MEASURES if name != "ulp"), *PASSING, *SQUARES)
POSITION_FIELDS = part_of_record(*POSITIONS)

FINITE = word_of(COUNT_FIELDS, "finite")
NAN_BOTH = word_of(COUNT_FIELDS, "nan_both")
NAN_ACTUAL = word_of(COUNT_FIELDS, "nan_actual")
NAN_EXPECTED = word_of(COUNT_FIELDS, "nan_expected")
INFINITE = word_of(COUNT_FIELDS, "infinite")
MISMATCHES = word_of(COUNT_FIELDS, "mismatches")
SIGNS = word_of(COUNT_FIELDS, "signs")
HISTOGRAM = word_of(COUNT_FIELDS, "histogram")
AXES = words_of(COUNT_FIELDS)

# The measures come first, each at the index of its position, and the sums last.
EXCESS = word_of(NUMBER_FIELDS, "excess")
ABSOLUTE = word_of(NUMBER_FIELDS, "absolute")
RELATIVE = word_of(NUMBER_FIELDS, "relative")
PASSING_RTOL = word_of(NUMBER_FIELDS, "passing_rtol")
PASSING_ATOL = word_of(NUMBER_FIELDS, "passing_atol")
BEST = word_of(NUMBER_FIELDS, SQUARES[0])
DIFFERENCE, REFERENCE = (word_of(NUMBER_FIELDS, name) for name in SQUARES)
NUMBERS = words_of(NUMBER_FIELDS)

ULP_AT = word_of(POSITION_FIELDS, "ulp_at")
N_POSITIONS = words_of(POSITION_FIELDS)

# The results of a thread take most of its registers: a multiprocessor has room for two blocks.
TALLIES = 2


acceptable = wrap_rule(measures.acceptable)
bucket = wrap_rule(measures.bucket)
exceeds = wrap_rule(reductions.exceeds)
is_nan = wrap_rule(closeness.is_nan)
may_lead = wrap_rule(reductions.may_lead)
measure = wrap_rule(measures.measure)
opposite = wrap_rule(closeness.opposite)
polar = wrap_rule(measures.polar)
raised = wrap_rule(measures.raised)
weigh = wrap_rule(measures.weigh)


@rule
def scaled(x, exponent):
    return math.ldexp(x, exponent)


@rule
def square(x):
    return product(x, x)


# Two results of one kind


@cuda.jit(device=True)
def add(numbers, at, x, low):
    """Add to a sum of a high and a low part, which takes the rounding error."""
    numbers[at], error = two_sum(numbers[at], x)
    numbers[at + 1] += error + low


@cuda.jit(device=True)
def widen(spans, at, low, high, step):
    """Extend the range of an axis by another."""
    lowest, highest, common = spans[at + LOWEST], spans[at + HIGHEST], spans[at + STEP]
    spans[at + LOWEST], spans[at + HIGHEST], spans[at + STEP] = united_range(
        lowest, highest, common, low, high, step
    )


# The results of a block


@cuda.jit(device=True)
def lead(values, positions):
    """Move the largest of a block's values, and its first position, to the front."""
    me = cuda.threadIdx.x
    half = cuda.blockDim.x // 2
    while half:
        cuda.syncthreads()
        if me < half and precedes(
            values[me + half], positions[me + half], values[me], positions[me]
        ):
            values[me] = values[me + half]
            positions[me] = positions[me + half]
        half //= 2
    cuda.syncthreads()


@cuda.jit(device=True)
def total(sums):
    """Move the sum of a block's sums, each of a high and a low part, to the front."""
    me = cuda.threadIdx.x
    half = cuda.blockDim.x // 2
    while half:
        cuda.syncthreads()
        if me < half:
            add(sums, 2 * me, sums[2 * (me + half)], sums[2 * (me + half) + 1])
        half //= 2
    cuda.syncthreads()


@cuda.jit(device=True)
def span(ranges):
    """Move the range of all of a block's ranges to the front."""
    me = cuda.threadIdx.x
    half = cuda.blockDim.x // 2
    while half:
        cuda.syncthreads()
        if me < half:
            at = RANGE * (me + half)
            widen(ranges, RANGE * me, ranges[at], ranges[at + HIGHEST], ranges[at + STEP])
        half //= 2
    cuda.syncthreads()


@cache
def uniter(threads: int, ndim: int) -> Any:
    """Return the function that stores the combined results of a block's threads in a row."""
    doubled = 2 * threads
    whole = RANGE * threads

    @cuda.jit(device=True)
    def unite(row, numbers, ulp, where, all_numbers, all_ulps, all_where):
        values = cuda.shared.array(threads, types.float64)
        steps = cuda.shared.array(threads, types.uint64)
        positions = cuda.shared.array(threads, types.int64)
        sums = cuda.shared.array(doubled, types.float64)
        ranges = cuda.shared.array(whole, types.int64)
        me = cuda.threadIdx.x
        for k in range(BEST):
            values[me] = numbers[k]
            positions[me] = where[k] if k < ULP_AT else 0
            lead(values, positions)
            if me == 0:
                all_numbers[row, k] = values[0]
                if k < ULP_AT:
                    all_where[row, k] = positions[0]
            cuda.syncthreads()
        steps[me] = ulp
        positions[me] = where[ULP_AT]
        lead(steps, positions)
        if me == 0:
            all_ulps[row] = steps[0]
            all_where[row, ULP_AT] = positions[0]
        for k in range(BEST, NUMBERS, 2):
            sums[2 * me] = numbers[k]
            sums[2 * me + 1] = numbers[k + 1]
            total(sums)
            if me == 0:
                all_numbers[row, k] = sums[0]
                all_numbers[row, k + 1] = sums[1]
            cuda.syncthreads()
        for axis in range(ndim):
            at = N_POSITIONS + RANGE * axis
            for k in range(RANGE):
                ranges[RANGE * me + k] = where[at + k]
            span(ranges)
            if me == 0:
                for k in range(RANGE):
                    all_where[row, at + k] = ranges[k]
            cuda.syncthreads()

    return unite


@cuda.jit(device=True)
def clear(numbers, where):
    """Initialise the results of a thread."""
    for k in range(NUMBERS):
        numbers[k] = 0.0
    for k in range(len(where)):
        where[k] = -1


@cuda.jit(device=True)
def add_square(numbers, at, x, exponent):
    """Add the square of x*2**exponent to a sum, in the scale that holds it."""
    whole = scaled(x, exponent)
    scale = scale_of(whole) if whole > 0.0 else USUAL
    # With a variable index the sums would not stay in registers.
    if scale == USUAL:
        add(numbers, at + 2 * USUAL, square(whole), 0.0)
    elif scale == SMALL:
        add(numbers, at + 2 * SMALL, square(scaled(x, exponent + SCALE_EXPONENT)), 0.0)
    else:
        add(numbers, at + 2 * LARGE, square(scaled(x, exponent - SCALE_EXPONENT)), 0.0)


@cuda.jit(device=True)
def note(i, lengths, starts, where, counts):
    """Record the index of a mismatch on each axis."""
    for axis in range(len(lengths) - 1, -1, -1):
        k = i % lengths[axis]
        i //= lengths[axis]
        widen(where, N_POSITIONS + RANGE * axis, k, k, 0)
        if starts[axis] >= 0:
            cuda.atomic.add(counts, AXES + starts[axis] + k, 1)


@cuda.jit(device=True)
def classify(a, b, accepted, counts):
    """Count a pair that is not finite."""
    cuda.atomic.add(counts, FINITE, -1)
    if is_nan(a) and is_nan(b):
        cuda.atomic.add(counts, NAN_BOTH, 1)
    elif is_nan(a):
        cuda.atomic.add(counts, NAN_ACTUAL, 1)
    elif is_nan(b):
        cuda.atomic.add(counts, NAN_EXPECTED, 1)
    elif not accepted:
        cuda.atomic.add(counts, INFINITE, 1)


@cache
def tally(
    kinds: tuple[str, str], held: tuple[Any, Any], flat: bool, ndim: int, policy: Policy
) -> Any:
    """Return the kernel that measures all pairs; each block stores its results in a row."""
    load_a, load_b = map(loader, kinds)
    view_a, view_b = map(viewer, kinds)
    held_a, held_b = held
    locate = locator(flat)
    threads, items, _ = policy
    tile = policy.tile
    unite = uniter(threads, ndim)
    width = N_POSITIONS + RANGE * ndim

    @cached_kernel(kinds, held, flat, ndim, policy, registers=policy.registers)
    def kernel(
        a, b, layout, size, rtol, atol, max_ulp, equal_nan, shift, unit,
        lengths, starts, counts, all_numbers, all_ulps, all_where,
    ):  # fmt: skip
        a, b = view_a(a), view_b(b)
        numbers = cuda.local.array(NUMBERS, types.float64)
        where = cuda.local.array(width, types.int64)
        x = cuda.local.array(items, held_a)
        y = cuda.local.array(items, held_b)
        # Additions to a number that all blocks share wait for each other.
        block_counts = cuda.shared.array(AXES, types.int32)
        me = cuda.threadIdx.x
        for k in range(me, AXES, threads):
            block_counts[k] = 0
        cuda.syncthreads()
        clear(numbers, where)
        ulp = np.uint64(0)
        # The same bucket many times in a row, which is usual, is counted once.
        latest = np.int64(0)
        run = np.int32(0)
        for start in range(cuda.blockIdx.x * tile, size, cuda.gridDim.x * tile):
            for k in range(items):
                i = min(start + me + k * threads, size - 1)
                p, q = locate(i, layout)
                x[k] = load_a(a[p])
                y[k] = load_b(b[q])
            for k in range(items):
                i = start + me + k * threads
                if i >= size:
                    break
                d, modulus, bound, n_ulps, usual = measure(x[k], y[k], rtol, atol, shift, unit)
                if usual:
                    wrong = n_ulps > np.uint64(max_ulp) if max_ulp >= 0 else d > bound
                else:
                    wrong = not acceptable(x[k], y[k], rtol, atol, max_ulp, equal_nan, shift, unit)
                if wrong:
                    cuda.atomic.add(block_counts, MISMATCHES, 1)
                    note(i, lengths, starts, where, counts)
                if not usual and not (finite(x[k]) and finite(y[k])):
                    classify(x[k], y[k], not wrong, block_counts)
                    continue
                if wrong and opposite(x[k], y[k]):
                    cuda.atomic.add(block_counts, SIGNS, 1)
                exponent = shifted = 0
                if not usual:
                    d, exponent, modulus, shifted = polar(x[k], y[k])
                add_square(numbers, DIFFERENCE, d, exponent)
                add_square(numbers, REFERENCE, modulus, shifted)
                excess, relative = lowered(numbers[EXCESS]), lowered(numbers[RELATIVE])
                more = may_lead(d, bound, modulus, excess, relative)
                if more or d > numbers[ABSOLUTE] or n_ulps > ulp or not usual:
                    excess, absolute, relative, n_ulps = weigh(
                        x[k], y[k], rtol, atol, max_ulp, shift, unit
                    )
                    if excess > numbers[EXCESS]:
                        numbers[EXCESS] = excess
                        where[EXCESS] = i
                    if absolute > numbers[ABSOLUTE]:
                        numbers[ABSOLUTE] = absolute
                        where[ABSOLUTE] = i
                    if relative > numbers[RELATIVE]:
                        numbers[RELATIVE] = relative
                        where[RELATIVE] = i
                    if n_ulps > ulp:
                        ulp = n_ulps
                        where[ULP_AT] = i
                short = exceeds(d, modulus, rtol, numbers[PASSING_ATOL])
                short |= exceeds(d, modulus, numbers[PASSING_RTOL], atol)
                if short or not usual:
                    passing = numbers[PASSING_ATOL]
                    numbers[PASSING_ATOL] = raised(x[k], y[k], passing, rtol, False)
                    passing = numbers[PASSING_RTOL]
                    numbers[PASSING_RTOL] = raised(x[k], y[k], passing, atol, True)
                power = bucket(np.uint64(n_ulps))
                if power != latest:
                    if run:
                        cuda.atomic.add(block_counts, HISTOGRAM + latest, run)
                    latest = power
                    run = np.int32(0)
                run += np.int32(1)
        if run:
            cuda.atomic.add(block_counts, HISTOGRAM + latest, run)
        cuda.syncthreads()
        for k in range(me, AXES, threads):
            if block_counts[k]:
                cuda.atomic.add(counts, k, np.int64(block_counts[k]))
        unite(cuda.blockIdx.x, numbers, ulp, where, all_numbers, all_ulps, all_where)

    return kernel


@cache
def conclude(ndim: int, policy: Policy) -> Any:
    """Return the kernel of one block that combines the rows of all blocks in the first."""
    threads = policy.threads
    unite = uniter(threads, ndim)
    width = N_POSITIONS + RANGE * ndim

    @cached_kernel(ndim, policy)
    def kernel(rows, all_numbers, all_ulps, all_where):
        if cuda.blockIdx.x > 0:
            return
        numbers = cuda.local.array(NUMBERS, types.float64)
        where = cuda.local.array(width, types.int64)
        clear(numbers, where)
        ulp = np.uint64(0)
        for row in range(cuda.threadIdx.x, rows, threads):
            for k in range(BEST):
                there = all_where[row, k] if k < ULP_AT else 0
                here = where[k] if k < ULP_AT else 0
                if precedes(all_numbers[row, k], there, numbers[k], here):
                    numbers[k] = all_numbers[row, k]
                    if k < ULP_AT:
                        where[k] = there
            if precedes(all_ulps[row], all_where[row, ULP_AT], ulp, where[ULP_AT]):
                ulp = all_ulps[row]
                where[ULP_AT] = all_where[row, ULP_AT]
            for k in range(BEST, NUMBERS, 2):
                add(numbers, k, all_numbers[row, k], all_numbers[row, k + 1])
            for axis in range(ndim):
                at = N_POSITIONS + RANGE * axis
                low, high = all_where[row, at + LOWEST], all_where[row, at + HIGHEST]
                widen(where, at, low, high, all_where[row, at + STEP])
        cuda.syncthreads()
        unite(0, numbers, ulp, where, all_numbers, all_ulps, all_where)

    return kernel


@cache
def next_mismatch(kinds: tuple[str, str], held: tuple[Any, Any], flat: bool) -> Any:
    """Return the kernel that lowers ``mismatches[k]`` to the first after ``mismatches[k - 1]``."""
    load_a, load_b = map(loader, kinds)
    view_a, view_b = map(viewer, kinds)
    held_a, held_b = held
    locate = locator(flat)

    @cached_kernel(kinds, held, flat)
    def kernel(a, b, layout, size, rtol, atol, max_ulp, equal_nan, shift, unit, k, mismatches):
        a, b = view_a(a), view_b(b)
        x = cuda.local.array(1, held_a)
        y = cuda.local.array(1, held_b)
        first = mismatches[k - 1] + 1 if k else 0
        for i in range(first + cuda.grid(1), size, cuda.gridsize(1)):
            if latest(mismatches, k) < i:
                return
            p, q = locate(i, layout)
            x[0] = load_a(a[p])
            y[0] = load_b(b[q])
            if not acceptable(x[0], y[0], rtol, atol, max_ulp, equal_nan, shift, unit):
                cuda.atomic.min(mismatches, k, i)
                return

    return kernel


@cache
def gather(kind: str, flat: bool) -> Any:
    """Return the kernel that copies the elements at some positions."""
    locate, view = locator(flat), viewer(kind)

    @cached_kernel(kind, flat)
    def kernel(a, layout, positions, out):
        a = view(a)
        for k in range(cuda.grid(1), positions.size, cuda.gridsize(1)):
            here, _ = locate(positions[k], layout)
            out[k] = a[here]

    return kernel
