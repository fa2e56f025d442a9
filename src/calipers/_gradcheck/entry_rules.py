"""Rules by which an entry of a derivative is right, wrong or undecided."""

from dataclasses import dataclass

import numpy as np

from .._core.dtypes import is_double, least_normal
from .._core.protocols import NDArray
from .._derivatives.thresholds import THRESHOLDS

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
_SEVERITIES = 128  # numbers between powers of two to which the severity of entries is rounded


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
