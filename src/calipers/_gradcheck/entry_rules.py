"""Rules by which an entry of a derivative is right, wrong or undecided."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._core.dtypes import is_double, least_normal
from .._core.protocols import NDArray
from .._derivatives.thresholds import THRESHOLDS
from .._kernels import gradcheck_marks as marks

# The order is that of weight: the verdict of a check is the first that any entry has.
FAIL, NONSMOOTH, INCONCLUSIVE, PASS = VERDICTS = ("FAIL", "NONSMOOTH", "INCONCLUSIVE", "PASS")


_SINGLE = float(np.finfo(np.float32).eps)  # formats with more spacing have 16 bits or less


def default_resolution(eps: float) -> float:
    """
    Return the relative error that counts as one, for numbers of a spacing.

    Of float16 and bfloat16 it is sqrt(eps), 0.03 and 0.09: no step resolves more of their slopes.
    """
    if eps > _SINGLE:
        return float(eps**0.5)
    return THRESHOLDS.rtol if is_double(eps) else THRESHOLDS.rtol_single


def rounding_of(sizes: NDArray, eps: float) -> NDArray:
    """Return what numbers with a spacing are rounded by; subnormal ones as the least normal one."""
    return np.asarray(eps * np.maximum(sizes, least_normal(eps)))


def few_roundings(eps: float) -> float:
    """Return what rounding of numbers of size 1 may leave, where they cancel."""
    return min(_INSIDE * eps, _LITTLE)


def rounded_away(analytic: NDArray, largest: NDArray, eps: float) -> NDArray:
    """Return True for entries within rounding of the largest one."""
    return np.asarray(np.abs(analytic) <= _ROUNDINGS * rounding_of(largest, eps))


def all_agree(one: NDArray, other: NDArray, allowed: NDArray | float) -> bool:
    """Return True if all pairs are within a tolerance, equal, or both NaN."""
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= allowed
    return bool(np.all(near | (one == other) | (np.isnan(one) & np.isnan(other))))


_ROUNDINGS = 8.0  # of the largest entry, that a derivative computed by others may have
_INSIDE = 1024.0  # unit roundoffs that cancelling numbers of size 1 may leave
_LITTLE = 2.0**-10  # which so many are no longer, in formats of few bits
_SPARSE = 1 / 4  # share of nonzeros in columns up to which only these are compared
_SEVERITIES = 128  # numbers between powers of two to which the severity of entries is rounded

Pair = tuple[NDArray, NDArray]  # slopes to the right and to the left of x


@dataclass(frozen=True)
class Rule:
    """
    What an entry may be off by: ``atol + rtol*|numerical|``, and the numerical value's own error.

    An entry that is negligible compared with the largest of its row and of its column is measured
    by the smaller of those two. `share` of the tolerance is allowed by screening, without an error;
    `bend` is the relative change of slope across x that calls for a second one.
    """

    atol: float
    rtol: float
    share: float
    bend: float
    equal_nan: bool
    noise: float  # difference between two calls that the caller allows

    def allowed(self, analytic: NDArray, numerical: NDArray, floor: NDArray) -> NDArray:
        """Return the tolerance of each entry, without the error."""
        size = np.fmax(np.abs(analytic), np.abs(numerical))
        least = np.where(size <= self.rtol * floor, floor, 0.0)
        scale = np.fmax(least, np.abs(numerical))
        return np.asarray(self.atol + self.rtol * scale)

    def confirms(
        self,
        analytic: NDArray,
        slope: NDArray,
        floor: NDArray,
        share: float,
        error: NDArray | float = 0.0,
    ) -> NDArray:
        """Return True for entries whose differences, with errors, take a share of the tolerance."""
        off = np.abs(analytic - slope) + error
        allowed = share * self.allowed(analytic, slope, floor)
        return np.asarray((off < np.inf) & (off <= allowed))

    def excess(self, analytic: NDArray, numerical: NDArray, error: NDArray) -> NDArray:
        """Return the differences of entries relative to the tolerance with the error."""
        with np.errstate(all="ignore"):
            allowed = self.atol + self.rtol * np.abs(numerical) + error
            ratio = np.abs(analytic - numerical) / allowed
        return np.where(np.isnan(ratio), np.inf, ratio)

    def severity(self, analytic: NDArray, numerical: NDArray, error: NDArray) -> NDArray:
        """
        Return the excess of entries, and their differences, as columns.

        They are rounded, since neither digits of errors nor those of tolerances make one entry
        worse than another.
        """
        excess = self.excess(analytic, numerical, error)
        with np.errstate(invalid="ignore"):
            difference = np.abs(analytic - numerical)
        both = np.stack((excess, np.where(np.isnan(difference), np.inf, difference)), axis=-1)
        fraction, power = np.frexp(both)
        with np.errstate(over="ignore"):
            return np.asarray(np.ldexp(np.round(fraction * _SEVERITIES), power))

    def is_nothing(self, sizes: NDArray, natural: NDArray) -> NDArray:
        """Return True for sizes far less than the tolerance would be at a natural size."""
        with np.errstate(invalid="ignore"):
            return np.asarray(sizes <= THRESHOLDS.negligible * self.rtol * natural)


class Entries(NamedTuple):
    """
    Some entries of columns, and their slopes.

    `columns` are counted from the first of the columns that are compared.
    """

    columns: NDArray
    rows: NDArray
    claimed: NDArray
    slopes: Pair

    def where(self, chosen: NDArray) -> "Entries":
        """Return some of the entries."""
        columns, rows, claimed, (right, left) = self
        slopes = right[chosen], left[chosen]
        return Entries(columns[chosen], rows[chosen], claimed[chosen], slopes)


def unclear_entries(
    claimed: NDArray, right: NDArray, left: NDArray, noise: NDArray, steps: NDArray, rule: Rule
) -> Entries:
    """
    Return the entries of columns, a row each, that are not clear whatever the size of others.

    Of most functions of many numbers a column is mostly 0, and zeros are clear.
    """
    some = (right != 0) | (left != 0)
    some |= claimed != 0
    if np.count_nonzero(some) <= _SPARSE * some.size:
        at = np.divmod(np.flatnonzero(some), some.shape[1])
        entries = _entries_at(at, claimed, right, left)
        noise = noise[entries.rows] / steps[entries.columns]
        clear = marks.is_surely_clear(entries.claimed, *entries.slopes, noise, rule)
        return entries.where(~clear)
    slopes = right.astype(float, copy=False), left.astype(float, copy=False)
    clear = marks.is_surely_clear(claimed, *slopes, noise / steps[:, None], rule)
    return _entries_at(np.nonzero(~clear), claimed, right, left)


def _entries_at(
    at: tuple[NDArray, ...], claimed: NDArray, right: NDArray, left: NDArray
) -> Entries:
    columns, rows = at
    return Entries(columns, rows, claimed[at], (right[at].astype(float), left[at].astype(float)))


def are_clear(
    claimed: NDArray, slopes: Pair, floor: NDArray, noise: NDArray, rule: Rule
) -> NDArray:
    """
    Return True for entries that slopes of unknown error confirm.

    `floor` is the smaller of the largest entries in their rows and columns, and `noise` that of the
    slopes.
    """
    straight = marks.is_straight(claimed, *slopes, rule.bend, noise)
    return np.asarray(straight & rule.confirms(claimed, _mean(slopes), floor, rule.share))


def marks_of(entries: Entries, floor: NDArray, noise: NDArray, rule: Rule) -> NDArray:
    """
    Return CLEAR, VAGUE or DOUBTED for entries; see `are_clear`.

    VAGUE ones may only be hidden by rounding, or bent by curvature.
    """
    claimed, mean = entries.claimed, _mean(entries.slopes)
    near = rule.confirms(claimed, mean, floor, rule.share) | (np.abs(claimed - mean) <= noise)
    clear = are_clear(claimed, entries.slopes, floor, noise, rule)
    return np.where(clear, marks.CLEAR, np.where(near, marks.VAGUE, marks.DOUBTED)).astype(np.int8)


def are_confirmed(
    entries: Entries, far: Sequence[Pair], floor: NDArray, noise: NDArray, steps: Pair, rule: Rule
) -> NDArray:
    """
    Return True for VAGUE entries that slopes at longer steps confirm.

    `steps` are those of screening, and longer ones. `far` are the slopes from half of these, from
    them, and from twice as far.
    """
    step, distance = steps
    claimed, slopes = entries.claimed, entries.slopes
    smooth = marks.is_straight(claimed, *slopes, rule.bend, noise / step)
    smooth |= marks.is_curvature(slopes, far[1], step / distance, noise / step)
    slope, error = marks.fourth_order_slope(*far, noise / distance)
    share = marks.estimated_share(rule.share)
    return np.asarray(smooth & rule.confirms(claimed, slope, floor, share, error))


def _mean(slopes: Pair) -> NDArray:
    return np.asarray(0.5 * slopes[0] + 0.5 * slopes[1])


def judge_value(
    rule: Rule,
    claim: NDArray,
    value: NDArray,
    error: NDArray,
    allowed: NDArray,
    natural: NDArray | float = 0.0,
) -> tuple[NDArray, NDArray]:
    """Return the verdicts of claims by one derivative with an error, and which are negligible."""
    with np.errstate(invalid="ignore"):
        off = np.abs(claim - value)
        verdict = np.full(claim.shape, VERDICTS.index(INCONCLUSIVE), np.int8)
        hidden = off + error <= THRESHOLDS.negligible * rule.rtol * natural
        passes = (off <= allowed + error) & (error <= np.fmax(allowed, rule.noise))
        wrong = is_wrong(claim, value, error, allowed)
        hidden &= ~passes & ~wrong
        verdict[passes | hidden] = VERDICTS.index(PASS)
        verdict[wrong] = VERDICTS.index(FAIL)
    # A claim of exactly the value is confirmed, however small it is.
    return verdict, hidden & (off > 0)


def is_wrong(claim: NDArray, value: NDArray, error: NDArray, allowed: NDArray) -> NDArray:
    """Return which claims a derivative with an error excludes."""
    with np.errstate(invalid="ignore"):
        excluded = np.abs(claim - value) > allowed + THRESHOLDS.certain * error
        excluded &= np.isfinite(error)
        return np.asarray(excluded | (~np.isfinite(claim) & np.isfinite(value)))
