"""Marks of the screening pass of gradcheck: do slopes leave an entry of a column in doubt?"""

from typing import Any, NamedTuple

import numpy as np

from . import in_any_order, jitable
from .function_calls import borrowed
from .scalar.measures import INF_BITS

# Marks of a column, in order of severity.
CLEAR, WAITING, VAGUE, DOUBTED, LEFT_OUT = range(5)

# Share of the difference of two one-sided slopes that curvature need not explain.
_ODD = 0.02
_ROUNDED = 2.0**-4  # share of the noise that rounding alone may leave in a slope
# Share of the tolerance by which a product may be off: errors of entries may cancel in it.
PRODUCT_SHARE = 0.1
# Share of the tolerance for an entry's error plus a slope's, if the slope's is estimated.
_ESTIMATED_SHARE = 0.5

WORD = 64  # elements of a column that are tested for zeros together
_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF  # all bits of a binary64 but its sign


class ColumnCriteria(NamedTuple):
    """
    Criteria by which the entries of some columns are clear; see `Rule`.

    `row_sizes` may be upper limits of sizes that are not measured yet. `noise` has an element
    for each result of f, and `steps` one for each column.
    """

    row_sizes: Any
    column_sizes: Any
    rtol: float
    atol: float
    share: float
    bend: float
    noise: Any
    steps: Any


@jitable
def _size_needed(claimed: float, slope: float, error: float, share: float, rule: Any) -> float:
    """
    Return the size of row and column from which on an entry is clear; inf if there is none.

    It and the error of the slope may take a share of the tolerance.
    """
    size, gap = max(abs(claimed), abs(slope)), abs(claimed - slope) + error
    if not (gap < np.inf and abs(slope) < np.inf):
        return np.inf
    if gap <= share * (rule.atol + rule.rtol * abs(slope)):
        return 0.0
    return float(max(size, gap / share - rule.atol) / rule.rtol)


@jitable
def is_surely_clear(claimed: Any, up: Any, down: Any, noise: Any, rule: Any) -> Any:
    """
    Return True for entries that are clear whatever the sizes of their row and column.

    It demands slightly more than the rule, so that the bound depends on `claimed` alone. Both sides
    are doubled to save a halving.
    """
    exact = 1.0 + rule.share * rule.rtol
    least, more = 2.0 * rule.share * rule.atol / exact, 2.0 * rule.share * rule.rtol / exact
    size = np.abs(claimed)
    near = np.abs(claimed + claimed - (up + down)) <= least + more * size
    straight = np.abs(up - down) <= min(rule.bend, 1e300) * size + noise
    return near & straight & (size < np.inf)


@jitable
def size_by_mean(claimed: float, up: float, down: float, rule: Any) -> float:
    """Return the size that an entry needs by the mean of two slopes of unknown error."""
    return float(_size_needed(claimed, 0.5 * up + 0.5 * down, 0.0, rule.share, rule))


@jitable
def is_straight(claimed: Any, up: Any, down: Any, bend: float, noise: Any) -> Any:
    """Return True if slopes differ by at most `bend` of an entry; more may be a kink."""
    size = np.maximum(np.abs(claimed), np.abs(0.5 * up + 0.5 * down))
    # A bend of infinity is that of the caller's tolerances; infinity times 0 is NaN.
    return (np.abs(up - down) <= bend * size + noise) | (bend == np.inf)


@jitable
def is_curvature(near: Any, far: Any, ratio: Any, noise: Any) -> Any:
    """
    Return True if what slopes to both sides differ by grows with the step.

    So it does by curvature, and at no kink. `ratio` is that of the steps.
    """
    gap = near[0] - near[1]
    odd = np.abs(gap - (far[0] - far[1]) * ratio)
    return odd <= _ODD * np.abs(gap) + _ROUNDED * noise


@jitable
def _fourth_order(half: Any, whole: Any) -> Any:
    """Return the fourth-order slope from those to both sides at half of a step and at the step."""
    return (2.0 * half[0] + 2.0 * half[1] - (0.5 * whole[0] + 0.5 * whole[1])) / 3.0


@jitable
def fourth_order_slope(half: Any, whole: Any, twice: Any, noise: Any) -> Any:
    """
    Return a slope by longer steps and its error, from slopes to both sides and their noise.

    The slopes from half of a step, from the step and from twice as far make two slopes of the
    fourth order, rounded by far less than near ones, whose difference is their error.
    """
    one = _fourth_order(half, whole)
    return one, np.abs(one - _fourth_order(whole, twice)) + _ROUNDED * noise


@jitable
def estimated_share(share: float) -> float:
    """Return the share of the tolerance for an entry and a slope whose error is estimated."""
    return max(_ESTIMATED_SHARE, share)


@jitable
def _slopes(pair: Any, base: Any, i: int) -> Any:
    """Return the one-sided slopes of a result from values on both sides of x and their weights."""
    above, below, ahead, behind = pair
    return (above[i] - base[i]) * ahead, (below[i] - base[i]) * behind


@jitable
def _changed(pair: Any, base: Any, first: int, last: int) -> bool:
    """Return True if f changes on either side of x, or is not finite."""
    above, below = pair[0], pair[1]
    count = 0
    for i in range(first, last):
        count += 1 if (above[i] - base[i] != 0.0) | (below[i] - base[i] != 0.0) else 0
    return count > 0


@jitable
def _something(column: Any, first: int, last: int) -> bool:
    """Return True if an entry is not 0."""
    count = 0
    for i in range(first, last):
        count += 1 if column[i] != 0.0 else 0
    return count > 0


@jitable
def stretches_of(forms: Any, line: int, pair: Any, base: Any, ends: Any) -> Any:
    """
    Return the stretches in which a column is nonzero, by the slopes of f or by a form.

    Of most functions of many numbers a column is mostly 0, and of that there is nothing to judge.
    Indices that might be negative keep loops from being vectorised, and so do returns from within:
    the ends are unsigned, and above all is counted.
    """
    count, size = 0, np.uint64(base.size)
    for first in range(np.uint64(0), size, np.uint64(WORD)):
        last = min(first + np.uint64(WORD), size)
        some = _changed(pair, base, first, last)
        for form in range(forms.shape[0]):
            some |= _something(forms[form, line], first, last)
        if some:
            if count > 0 and ends[count - 1, 1] == first:
                ends[count - 1, 1] = last
            else:
                ends[count, 0], ends[count, 1] = first, last
                count += 1
    return ends[:count]


@jitable
def all_of(ends: Any, size: int) -> Any:
    """Return all of a column as one stretch."""
    ends[0, 0], ends[0, 1] = 0, size
    return ends[:1]


@jitable
def _enlarged(bits: Any, largest: Any, first: int, last: int) -> Any:
    """
    Raise `largest` to the finite magnitudes of a vector, first to last; return the largest.

    All are binary64 seen as integers: the order of magnitudes is that of the bits without the sign.
    """
    most = 0
    for i in range(first, last):
        size = bits[i] & _MAGNITUDE
        size = size if size < INF_BITS else 0
        largest[i] = max(largest[i], size)
        most = max(most, size)
    return most


@jitable
def measured(bits: Any, line: int, by_row: Any, parts: Any) -> int:
    """
    Return the largest magnitude in a column, in any form, and raise those of the rows.

    The column is 0 outside of the stretches `parts`.
    """
    size = 0
    for form in range(bits.shape[0]):
        for part in range(len(parts)):
            first, last = parts[part, 0], parts[part, 1]
            size = max(size, _enlarged(bits[form, line], by_row, first, last))
    return size


@jitable
def mark_of(
    claimed: Any, pair: Any, base: Any, rule: Any, k: int, needs: Any, stretches: Any
) -> int:
    """
    Return CLEAR, WAITING, VAGUE or DOUBTED for column k, whose entries `claimed` are claimed to be.

    A WAITING column is clear if its rows have the sizes that are stored in `needs`. A VAGUE one
    may only be hidden by rounding, or bent by curvature. Outside of `stretches` it is 0.
    """
    above, below, ahead, behind = pair
    noise, column_size, per_step = rule.noise, rule.column_sizes[k], 1.0 / rule.steps[k]
    unsure = 0
    for s in range(len(stretches)):
        for i in range(stretches[s, 0], stretches[s, 1]):
            up, down = (above[i] - base[i]) * ahead, (below[i] - base[i]) * behind
            unsure += 0 if is_surely_clear(claimed[i], up, down, noise[i] * per_step, rule) else 1
    if unsure == 0:
        return CLEAR
    vague = False
    for s in range(len(stretches)):
        for i in range(stretches[s, 0], stretches[s, 1]):
            up, down = _slopes(pair, base, i)
            noisy = noise[i] * per_step
            near = size_by_mean(claimed[i], up, down, rule) <= min(rule.row_sizes[i], column_size)
            if not (near or abs(claimed[i] - (0.5 * up + 0.5 * down)) <= noisy):
                return DOUBTED
            vague |= not (near and is_straight(claimed[i], up, down, rule.bend, noisy))
    if vague:
        return VAGUE
    for s in range(len(stretches)):
        for i in range(stretches[s, 0], stretches[s, 1]):
            up, down = _slopes(pair, base, i)
            needs[i] = max(needs[i], size_by_mean(claimed[i], up, down, rule))
    return WAITING


@jitable
def mark_by_more(
    claimed: Any,
    pair: Any,
    far: Any,
    distance: float,
    base: Any,
    rule: Any,
    k: int,
    needs: Any,
    stretches: Any,
) -> int:
    """
    Return WAITING or DOUBTED for a VAGUE column k, by slopes at longer steps.

    `far` are those from half of `distance`, from it, and from twice as far. See
    `fourth_order_slope` and `is_curvature`.
    """
    step, column_size = rule.steps[k], rule.column_sizes[k]
    for s in range(len(stretches)):
        for i in range(stretches[s, 0], stretches[s, 1]):
            up, down = _slopes(pair, base, i)
            noise, least = rule.noise[i] / step, min(rule.row_sizes[i], column_size)
            size = size_by_mean(claimed[i], up, down, rule)
            straight = is_straight(claimed[i], up, down, rule.bend, noise)
            if not (straight and size <= least):
                half, whole = _slopes(far[0], base, i), _slopes(far[1], base, i)
                twice = _slopes(far[2], base, i)
                if not (straight or is_curvature((up, down), whole, step / distance, noise)):
                    return DOUBTED
                rounding = rule.noise[i] / distance
                one, error = fourth_order_slope(half, whole, twice, rounding)
                size = _size_needed(claimed[i], one, error, estimated_share(rule.share), rule)
                if not size <= least:
                    return DOUBTED
            needs[i] = max(needs[i], size)
    return WAITING


@in_any_order
def _dot(weights: Any, x: Any, stretches: Any) -> float:
    total = 0.0
    for s in range(len(stretches)):
        for i in range(stretches[s, 0], stretches[s, 1]):
            total += weights[i] * x[i]
    return total


@jitable
def mark_by_products(
    column: Any, c: int, products: Any, rule: Any, k: int, needs: Any, least: Any, stretches: Any
) -> int:
    """
    Return CLEAR, WAITING or DOUBTED for column k, the c-th, by products with weights of rows.

    `column` holds the column by finite differences, `images` the products with the Jacobian to
    check. A WAITING column is clear if its rows are large enough: rows where it is 0 as large as
    `least`, rows of its small entries as large as `needs`.
    """
    weights, images, _, _ = borrowed(products)
    share = min(rule.share, PRODUCT_SHARE)
    off = 0.0
    for i in range(weights.shape[0]):
        difference = abs(_dot(weights[i], column, stretches) - images[i, c])
        if not difference < np.inf:
            return DOUBTED
        off = max(off, difference)
    if off <= share * rule.atol:
        return CLEAR
    # An entry of that size may be off by as much; a smaller one has to be nothing in its row and
    # column, as a zero is, and these to be of that size.
    needed, size = (off / share - rule.atol) / rule.rtol, rule.column_sizes[k]
    if not needed <= size:
        return DOUBTED
    small, something = 0, 0
    for s in range(len(stretches)):
        for i in range(stretches[s, 0], stretches[s, 1]):
            entry = abs(column[i])
            small += 1 if (entry > 0.0) & (entry < needed) else 0
            something += 1 if (entry > rule.rtol * size) & (entry < needed) else 0
    if something > 0:
        return DOUBTED
    if small > 0:
        for s in range(len(stretches)):
            for i in range(stretches[s, 0], stretches[s, 1]):
                if 0.0 < abs(column[i]) < needed:
                    needs[i] = max(needs[i], abs(column[i]) / rule.rtol)
    least[0] = max(least[0], needed)
    return WAITING


@jitable
def add_to_rows(column: Any, c: int, products: Any, stretches: Any) -> None:
    """Add column c to the products of rows with weights of columns."""
    _, _, weights, sums = borrowed(products)
    for k in range(weights.shape[0]):
        weight, line = weights[k, c], sums[k]
        for s in range(len(stretches)):
            for i in range(stretches[s, 0], stretches[s, 1]):
                line[i] += weight * column[i]


@jitable
def take_means(pair: Any, base: Any, out: Any, stretches: Any) -> None:
    """Store the means of slopes to both sides."""
    for s in range(len(stretches)):
        for i in range(stretches[s, 0], stretches[s, 1]):
            up, down = _slopes(pair, base, i)
            out[i] = 0.5 * up + 0.5 * down


@jitable
def take_fourth_order(far: Any, base: Any, out: Any, stretches: Any) -> None:
    """Store the slopes that `mark_by_more` compares entries with."""
    for s in range(len(stretches)):
        for i in range(stretches[s, 0], stretches[s, 1]):
            out[i] = _fourth_order(_slopes(far[0], base, i), _slopes(far[1], base, i))
