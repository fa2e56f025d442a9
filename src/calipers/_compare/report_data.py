"""The data of a comparison, which its text and plot are made from."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from .._core.types import Measure
from .._kernels.accumulators import MEASURES
from .statistics import Criteria, PairStatistics


@dataclass(frozen=True, eq=False)
class Difference:
    """
    A pair of elements and the differences between them, in a `Comparison`.

    Attributes
    ----------
    index : tuple of int
        Index of the element.
    actual, expected : number
        The two values, as Python numbers where possible.
    absolute : float or int
        ``|actual - expected|``; exact for integers, NaN if one of them is not finite.
    relative : float
        ``absolute/|expected|``.
    ulp : int or None
        The difference in ULP; for complex numbers that of the part that differs more. None for
        dtypes that have no ULP.
    excess : float
        The difference divided by the tolerance, ``absolute/(atol + rtol*|expected|)`` or
        ``ulp/max_ulp``; above 1 for mismatches.

    Examples
    --------
    >>> import calipers
    >>> worst = calipers.compare([1.0, 2.0], [1.0, 2.5]).worst()
    >>> worst.index, worst.actual, worst.expected, worst.absolute, worst.relative
    ((1,), 2.0, 2.5, 0.5, 0.2)
    """

    index: tuple[int, ...]
    actual: Any
    expected: Any
    absolute: float | int
    relative: float
    ulp: int | None
    excess: float

    def __eq__(self, other: object) -> bool:
        """Return True if all fields are equal; NaN is equal to NaN."""
        if not isinstance(other, Difference):
            return NotImplemented
        return self._comparable_values() == other._comparable_values()

    def __hash__(self) -> int:
        """Return the hash of the index, which does not depend on NaN."""
        return hash(self.index)

    def _comparable_values(self) -> tuple[Any, ...]:
        values = (getattr(self, f.name) for f in fields(self))
        return tuple(x if x == x else repr(x) for x in values)


@dataclass(frozen=True, repr=False)
class ComparisonData:
    """The fields of a `Comparison`, which documents them, and the properties computed from them."""

    path: str
    actual_shape: tuple[int, ...]
    expected_shape: tuple[int, ...]
    actual_dtype: str
    expected_dtype: str
    rule: Criteria
    problems: tuple[str, ...] = ()
    arrangement: str | None = field(default=None, compare=False)
    tally: PairStatistics | None = field(default=None, hash=False)
    differences: dict[int, Difference] = field(default_factory=dict, repr=False, hash=False)
    arrays: tuple[Any, Any] | None = field(default=None, repr=False, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __bool__(self) -> bool:
        """Return True if the arrays agree."""
        if self.problems:
            return False
        few = self.mismatches <= self.rule.max_mismatches
        # The quotient rounds correctly; the product 0.29*100 is less than 29.
        return few or self.mismatch_ratio <= self.rule.max_mismatch_ratio

    def _count(self, name: str) -> int:
        return 0 if self.tally is None else int(self.tally[name])

    @property
    def size(self) -> int:
        """The number of pairs of elements."""
        return self._count("size")

    @property
    def finite(self) -> int:
        """The number of pairs in which both elements are finite numbers."""
        return self._count("finite")

    @property
    def mismatches(self) -> int:
        """The number of pairs that are not close."""
        return self._count("mismatches")

    @property
    def mismatch_ratio(self) -> float:
        """The fraction of pairs that are not close."""
        return self.mismatches / self.size if self.size else 0.0

    @property
    def finite_mismatches(self) -> int:
        """The number of finite pairs that are not close."""
        nan_both = 0 if self.rule.equal_nan else self.nan_both
        others = self.nan_actual + self.nan_expected + nan_both + self.infinite_mismatches
        return self.mismatches - others - self._count("without_distance")

    @property
    def sign_mismatches(self) -> int:
        """The number of finite real pairs that are not close and have opposite signs."""
        return self._count("signs")

    @property
    def infinite_mismatches(self) -> int:
        """The number of unequal pairs with an infinity and no NaN."""
        return self._count("infinite")

    @property
    def nan_actual(self) -> int:
        """The number of pairs with NaN in actual only."""
        return self._count("nan_actual")

    @property
    def nan_expected(self) -> int:
        """The number of pairs with NaN in expected only."""
        return self._count("nan_expected")

    @property
    def nan_both(self) -> int:
        """The number of pairs with NaN in both; they are mismatches unless `equal_nan` is True."""
        return self._count("nan_both")

    @property
    def first_mismatches(self) -> tuple[Difference, ...]:
        """The first mismatches in C order, at most five."""
        if self.tally is None:
            return ()
        return tuple(self.differences[i] for i in self.tally["first"].tolist() if i >= 0)

    def worst(self, measure: Measure = "excess") -> Difference | None:
        """
        Return the finite pair with the largest difference, or None if all are equal.

        Parameters
        ----------
        measure : {"excess", "absolute", "relative", "ulp"}, default "excess"
            The measure of the difference; "excess" is relative to the tolerance. Of equal ones, the
            first in C order is returned.

        Returns
        -------
        Difference or None
            The pair.

        Raises
        ------
        ValueError
            If `measure` is none of these.

        Examples
        --------
        >>> import calipers
        >>> calipers.compare([1.0, 20.0], [1.5, 22.0]).worst("absolute").index
        (1,)
        """
        if measure not in MEASURES:
            msg = f"measure must be one of {', '.join(MEASURES)}, got {measure!r}"
            raise ValueError(msg)
        if self.tally is None:
            return None
        return self.differences.get(int(self.tally[f"{measure}_at"]))

    @property
    def rms(self) -> float:
        """The root mean square of the difference over finite pairs."""
        return self.tally.rms if self.tally else math.nan

    @property
    def relative_norm(self) -> float:
        """The 2-norm of the difference divided by that of expected, over finite pairs."""
        return self.tally.relative_norm if self.tally else math.nan

    @property
    def passing_rtol(self) -> float | None:
        """The smallest rtol at which all pairs pass with this atol, or None if there is none."""
        return self._passing("passing_rtol")

    @property
    def passing_atol(self) -> float | None:
        """The smallest atol at which all pairs pass with this rtol, or None if there is none."""
        return self._passing("passing_atol")

    def _passing(self, name: str) -> float | None:
        if self.tally is None or self.mismatches > self.finite_mismatches:
            return None
        if is_boolean(self):
            return None
        value = float(self.tally[name])
        return value if math.isfinite(value) else None

    @property
    def ulp_histogram(self) -> tuple[tuple[int, int, int], ...]:
        """Ranges of differences in ULP with finite pairs, as ``(lowest, highest, count)``."""
        if self.tally is None:
            return ()
        counts = self.tally["histogram"].tolist()
        return tuple((2**k // 2, max(2**k - 1, 0), n) for k, n in enumerate(counts) if n)


C = TypeVar("C", bound=ComparisonData)


def is_boolean(report: ComparisonData) -> bool:
    """Return True if both arrays are of booleans."""
    return report.actual_dtype == report.expected_dtype == "bool"


def worst_leaf(leaves: Iterable[C]) -> C | None:
    """Return the failing comparison with the largest error relative to its tolerance, or None."""
    compared = [leaf for leaf in leaves if not leaf and leaf.tally is not None]
    return max(compared, key=_severity, default=None)


def _severity(leaf: ComparisonData) -> tuple[float, float]:
    worst = leaf.worst()
    return (worst.excess if worst else 0.0), leaf.mismatch_ratio
