"""Perturb inputs, and sum up errors in units of the expected error."""

import math

import numba
import numpy as np
from numba.core import types

from .._core.jit import Kernels
from . import jitable
from .numpy_versions import BATCH
from .scalar.formats import vector

_WORD = 64  # bits of the random number that gives signs to as many elements

# The sizes of perturbations are spread evenly from _LEAST to _LEAST + 1; _UNIT makes their rms 1.
_LEAST = 0.5  # the smallest perturbation before it is scaled by _UNIT
_UNIT = 1.0 / math.sqrt(((_LEAST + 1.0) ** 3 - _LEAST**3) / 3.0)
# Fractional parts of the golden ratio's multiples: evenly spread over [0, 1).
_TURNS = np.fmod((math.sqrt(5.0) - 1.0) / 2.0 * np.arange(_WORD), 1.0)


@jitable
def scrambled(seed, k):
    """Return 64 random bits for each k (SplitMix64; Steele, Lea and Flood, 2014)."""
    z = np.uint64(seed) + (np.uint64(k) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def perturb(x, delta, seed, out):
    """
    Store x times 1 + delta*e, rounded once, to the type of `out`; e is random, of unit rms.

    Not only the sign of e is random: with one size for all, half of the products of two numbers
    would stay as they are, and with them the rounding errors of their sum.
    """
    unit = delta * _UNIT
    for first in range(0, x.size, _WORD):
        signs = scrambled(seed, first)
        phase = np.float64(signs >> np.uint64(12)) * 2.0**-52
        block = x[first : first + _WORD]
        perturbed = out[first : first + _WORD]
        for j in range(block.size):
            turn = phase + _TURNS[j]
            e = unit * (_LEAST + (turn - 1.0 if turn >= 1.0 else turn))
            negative = (signs >> np.uint64(j)) & np.uint64(1)
            perturbed[j] = np.float64(block[j]) * (1.0 + (-e if negative else e))


def perturb_by_numpy(x, delta, seed, out):
    """Do the same by NumPy, to the last bit."""
    for start in range(0, x.size, BATCH):
        block = x[start : start + BATCH].astype(float)
        first = np.arange(start, start + block.size, _WORD, dtype=np.uint64)[:, None]
        with np.errstate(all="ignore"):
            signs = scrambled(seed, first)
            turns = (signs >> np.uint64(12)).astype(float) * 2.0**-52 + _TURNS
            e = delta * _UNIT * (_LEAST + np.where(turns >= 1.0, turns - 1.0, turns))
            negative = (signs >> np.arange(_WORD, dtype=np.uint64)) & np.uint64(1)
            factors = 1.0 + np.where(negative, -e, e)
            out[start : start + BATCH] = block * factors.reshape(-1)[: block.size]


def add_squares(d, scale, sums):
    """Add the squares of a vector's finite elements times `scale` to sums."""
    for i in range(d.size):
        if abs(d[i]) < np.inf:
            sums[i] += (d[i] * scale) * (d[i] * scale)


def summarize_errors(d, unit, summary):
    """
    Summarize errors in units of the expected error.

    Store how many there are, the sum of their squares, the largest, where it is, the sums of
    squares of the errors and of the units themselves, how many errors are not finite, and the
    largest error itself.
    """
    count = np.int64(0)
    broken = np.int64(0)
    at = np.int64(-1)
    largest = -1.0
    farthest = 0.0
    squares = 0.0
    errors = 0.0
    units = 0.0
    for i in range(d.size):
        size = abs(d[i])
        if not size < np.inf:
            broken += 1
            continue
        if not unit[i] < np.inf:
            continue
        share = size / unit[i] if size > 0.0 else 0.0
        count += 1
        squares += share * share
        farthest = max(farthest, size)
        errors += size * size
        units += unit[i] * unit[i]
        if share > largest:
            largest = share
            at = np.int64(i)
    summary[0] = count
    summary[1] = squares
    summary[2] = largest
    summary[3] = at
    summary[4] = errors
    summary[5] = units
    summary[6] = broken
    summary[7] = farthest


def cosine(a, b, unit):
    """Return the cosine of the angle between two vectors of errors in units; 0 if one is zero."""
    both = 0.0
    first = 0.0
    second = 0.0
    for i in range(a.size):
        x = a[i] / unit[i]
        y = b[i] / unit[i]
        if abs(x) < np.inf and abs(y) < np.inf:
            both += x * y
            first += x * x
            second += y * y
    if first == 0.0 or second == 0.0:
        return 0.0
    return both / (math.sqrt(first) * math.sqrt(second))


_DOUBLES = vector(types.float64)
_STORED = vector(types.float64, readonly=False)

PERTURB = Kernels(
    perturb,
    lambda key: (
        vector(numba.from_dtype(key[0])),
        types.float64,
        types.uint64,
        vector(numba.from_dtype(key[1]), readonly=False),
    ),
    by_numpy=perturb_by_numpy,
)
ADD_SQUARES = Kernels(add_squares, lambda _: (_DOUBLES, types.float64, _STORED))
SUMMARIZE_ERRORS = Kernels(summarize_errors, lambda _: (_DOUBLES, _DOUBLES, _STORED))
COSINE = Kernels(cosine, lambda _: (_DOUBLES, _DOUBLES, _DOUBLES))
