"""Numbers of narrow formats, held in binary32 or binary64: rounding, counting, sums of products.

A format is data: a tuple of seven integers, each as wide as the numbers that hold it.

    lost     bits that a normal number's fraction loses
    lowest   biased exponent of the smallest normal number
    nearest  -1 to round to nearest, ties to even; 0 to truncate
    least    bits of the smallest number that does not become 0
    largest  bits of the largest finite number
    beyond   bits of what a number beyond that becomes
    special  bits that are set in an infinity or NaN

All is done on bits: a processor told to flush subnormal numbers does not see those of binary32.
"""

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from .._core.jit import Kernels
from . import jitable, jitable_as
from .function_calls import borrowed
from .scalar.formats import bits, prefetch, vector

RULE_LENGTH = 7  # numbers that describe a format, the arguments of the rounding kernels

_BLOCK = 512  # elements that are rounded while a later block is fetched
_BLOCKS_AHEAD = 4  # blocks between the one that is prefetched and the current one


# The rule


@intrinsic
def power_of_two(typingctx: Any, exponent: Any) -> Any:
    """Return 2**exponent in its own type: Numba's shift is one of 64 bits, half as many at once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.shl(args[0].type(1), args[0])

    return exponent(exponent), codegen


@intrinsic
def as_number(typingctx: Any, pattern: Any) -> Any:
    """Return the binary32 or binary64 that has the bits of an integer as wide."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(signature.return_type))

    return (types.float32 if pattern == types.int32 else types.float64)(pattern), codegen


@intrinsic
def fused(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x*y + z of one type, rounded once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return x(x, x, x), codegen


def layout(number):
    """Return the width of the fraction in a number's bits, and the bits of infinity."""


@jitable_as(layout)
def _(number):
    if number == types.int32:
        return lambda number: (np.int32(23), np.int32(0x7F800000))
    return lambda number: (np.int64(52), np.int64(0x7FF0000000000000))


@jitable
def magnitude(number):
    """Return a number's bits but for its sign."""
    _, infinity = layout(number)
    return type(number)(number & (infinity | (infinity - 1)))


@jitable
def rounded(number, rule):
    """Return the bits of a number rounded to a format, without a branch."""
    lost, lowest, nearest, least, largest, beyond, special = rule
    width, infinity = layout(number)
    # What Numba widens to 64 bits is cut at each step, so that LLVM need not widen it.
    integer = type(number)
    size = magnitude(number)
    # The significand with its leading 1, if it has one, and the bits above it.
    exponent = max(integer(size >> width), integer(1))
    base = integer((exponent - 1) << width)
    significand = integer(size - base)
    # Below its normal range a format loses a bit more with each power of two.
    shift = integer(lost + max(integer(lowest - exponent), integer(0)))
    unit = power_of_two(min(shift, integer(width + 1)))
    remainder = integer(unit - 1)
    odd = integer((significand & unit) != 0)
    significand = integer(significand + integer((integer(remainder + odd) & nearest) >> 1))
    # A carry goes to the exponent. Where all bits are lost, `base` and a carry are left: less than
    # any number of the format.
    result = integer(base + integer(significand - integer(significand & remainder)))
    result = result if result >= least else integer(0)
    result = result if result <= largest else beyond
    result = result if size < infinity else integer(size | special)
    return integer(result | integer(number ^ size))


@jitable
def added(x, y, rule):
    """
    Return x + y, rounded once to a format of at least two bits less.

    Rounding to odd on the way makes the second rounding that of the exact sum (Boldo and
    Melquiond 2008).
    """
    total = x + y
    back = total - x
    error = (x - (total - back)) + (y - back)
    number = bits(total)
    integer = type(number)
    # Where a sum was rounded to an even number, the odd one is on the side of the lost bits.
    outwards = 1 if (bits(error) ^ number) >= 0 else -1
    number += outwards if (number & 1 == 0) & (abs(error) > 0.0) else 0
    return as_number(rounded(integer(number), rule))


# The loops


def round_each(numbers, rule, out):
    """Write each number rounded to a format."""
    numbers, out = borrowed((numbers, out))
    for start in range(0, numbers.size, _BLOCK):
        prefetch(numbers, start + _BLOCKS_AHEAD * _BLOCK, _BLOCK)
        block = numbers[start : start + _BLOCK]
        result = out[start : start + _BLOCK]
        for i in range(block.size):
            result[i] = rounded(block[i], rule)
    return -1


def census(numbers, rule, normal, counts):
    """Count numbers that are 0, subnormal and finite once rounded; `normal` has the first bits."""
    (numbers,) = borrowed((numbers,))
    integer = numbers.dtype.type
    _, infinity = layout(normal)
    for start in range(0, numbers.size, _BLOCK):
        prefetch(numbers, start + _BLOCKS_AHEAD * _BLOCK, _BLOCK)
        block = numbers[start : start + _BLOCK]
        zeros = integer(0)
        small = integer(0)
        finite = integer(0)
        for i in range(block.size):
            size = magnitude(rounded(block[i], rule))
            zeros = integer(zeros + integer(size == 0))
            small = integer(small + integer(size < normal))
            finite = integer(finite + integer(size < infinity))
        counts[0] += zeros
        counts[1] += small - zeros
        counts[2] += finite


@jitable
def add_each(sums, terms, rule):
    """Add terms to sums in a format."""
    if rule[0] == 0:
        for j in range(sums.size):
            sums[j] += terms[j]
    else:
        for j in range(sums.size):
            sums[j] = added(sums[j], terms[j], rule)


@jitable
def add_products(sums, x, row, rule):
    """Add the products of a number and a row to sums in a format."""
    if rule[0] == 0:
        for j in range(sums.size):
            sums[j] = fused(x, row[j], sums[j])
    else:
        for j in range(sums.size):
            sums[j] = added(sums[j], x * row[j], rule)


def multiply(a, b, a_at, b_at, rows, length, columns, split, step, part, rule, start, work, out):
    """
    Write rows of products of matrices, the first of them row `start` of the whole batch.

    Its matrix i is that of matrix a_at[i] of `a` and matrix b_at[i] of `b`. The sum of a part of
    the terms is rounded to the format `part`.
    """
    sums = work[:columns]
    terms = work[columns:]
    terms[:] = -0.0  # which changes nothing that it is added to
    for r in range(out.size // columns):
        i, row = divmod(start + r, rows)
        left = a[(a_at[i] * rows + row) * length :][:length]
        right = b[b_at[i] * length * columns :][: length * columns]
        total = out[r * columns : (r + 1) * columns]
        total[:] = -0.0
        for p in range(split):
            begin = length * p // split
            end = length * (p + 1) // split
            sums[:] = 0.0
            for k in range(begin, end):
                factors = right[k * columns : (k + 1) * columns]
                if step == 1:
                    add_products(sums, left[k], factors, rule)
                else:
                    for j in range(columns):
                        terms[j] = fused(left[k], factors[j], terms[j])
                    if (k - begin + 1) % step == 0 or k == end - 1:
                        add_each(sums, terms, rule)
                        terms[:] = -0.0
            for j in range(columns):
                sums[j] = as_number(rounded(bits(sums[j]), part))
            add_each(total, sums, rule)


# Their compiled versions, by the integers that are as wide as the numbers


_COUNTS = vector(types.int64, readonly=False)


def _rule(dtype):
    return numba.typeof((dtype.type(0),) * RULE_LENGTH)


def _numbers(dtype, readonly=True):
    return vector(numba.from_dtype(dtype), readonly)


def _sums(dtype, readonly):
    return vector(types.float32 if dtype.itemsize == 4 else types.float64, readonly)


def _multiply(dtype):
    matrix, result = _sums(dtype, readonly=True), _sums(dtype, readonly=False)
    indices = vector(types.int64)
    shape = types.int64, types.int64, types.int64
    parts = types.int64, types.int64, _rule(dtype), _rule(dtype)
    return matrix, matrix, indices, indices, *shape, *parts, types.int64, result, result


ROUND_EACH = Kernels(
    round_each, lambda dtype: (_numbers(dtype), _rule(dtype), _numbers(dtype, readonly=False))
)
CENSUS = Kernels(
    census, lambda dtype: (_numbers(dtype), _rule(dtype), numba.from_dtype(dtype), _COUNTS)
)
MULTIPLY = Kernels(multiply, _multiply)
