"""Reports of comparisons: of two elements, of two arrays and of containers; and ClosenessError."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrangement import region
from ._report.advice import is_boolean
from ._report.base import Report
from ._report.comparison import comparison_text, headline_and_rest, nested_text
from ._shapes import common_shape
from ._tally import MASKED, MEASURES, Rule, Tally, merge, moved
from ._types import Measure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ClosenessError", "Comparison", "Difference", "NestedComparison"]


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
        return self._found() == other._found()

    def __hash__(self) -> int:
        """Return the hash of the index, which does not depend on NaN."""
        return hash(self.index)

    def _found(self) -> tuple[Any, ...]:
        values = (getattr(self, f.name) for f in fields(self))
        return tuple(x if x == x else repr(x) for x in values)


@dataclass(frozen=True, repr=False)
class Comparison(Report):
    """
    The report of a comparison of two arrays; it is true if they agree.

    It is returned by `compare`. ``print(report)`` shows how the arrays differ.

    Attributes
    ----------
    path : str
        Path of the arrays in nested containers; empty without containers.
    actual_shape, expected_shape : tuple of int
        The shapes.
    actual_dtype, expected_dtype : str
        The dtypes.
    rule : Rule
        The tolerances, and the number of mismatches that is allowed.
    problems : tuple of str
        Differences of structure, shape or dtype; each is a failure.
    arrangement : str or None
        The rearrangement of `expected` that equals `actual`, such as
        ``"transposed: actual == expected.T"``, if one was found.
    tally : Tally or None
        The counts and extremes behind the properties; None if the shapes do not match.
    differences : dict of int to Difference
        The elements that the report names, by position in C order.
    arrays : tuple of two arrays or None
        The arrays, broadcast to one shape, for `plot`; None for arrays read in chunks, merged
        reports, and shapes that do not match.
    notes : tuple of str
        What was not compared, such as row labels, and objects that were compared by ``==``.

    Notes
    -----
    Extremes, norms and the histogram include all finite pairs, also those that are close. A pickled
    report contains both arrays; ``dataclasses.replace(report, arrays=None)`` does not, and loses
    only `plot` of elements.

    Examples
    --------
    >>> import calipers
    >>> report = calipers.compare([1.0, 2.0, 3.0], [1.0, 2.5, 3.0])
    >>> bool(report), report.mismatches, report.size
    (False, 1, 3)
    >>> report.first_mismatches[0].index
    (1,)
    """

    path: str
    actual_shape: tuple[int, ...]
    expected_shape: tuple[int, ...]
    actual_dtype: str
    expected_dtype: str
    rule: Rule
    problems: tuple[str, ...] = ()
    arrangement: str | None = field(default=None, compare=False)
    tally: Tally | None = field(default=None, hash=False)
    differences: dict[int, Difference] = field(default_factory=dict, repr=False, hash=False)
    arrays: tuple[Any, Any] | None = field(default=None, repr=False, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __bool__(self) -> bool:
        """Return True if the arrays agree."""
        if self.problems:
            return False
        few = self.mismatches <= self.rule.max_mismatches
        # A product with the size would round: 0.29 of 100 is less than 29.
        return few or self.mismatch_ratio <= self.rule.max_mismatch_ratio

    def __str__(self) -> str:
        """Return the text of the report."""
        return comparison_text(self)

    def _headline_and_rest(self) -> tuple[str, str]:
        return headline_and_rest(self)

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

    def merge(self, other: "Comparison") -> "Comparison":
        """
        Return the comparison of two parts of an array as a comparison of the whole.

        It is equal to the comparison of the whole arrays, except for rounding of norms, and it has
        neither ``arrangement`` nor a plot of elements.

        Parameters
        ----------
        other : Comparison
            The comparison of the part that follows along axis 0.

        Returns
        -------
        Comparison
            The comparison of both parts.

        Raises
        ------
        ValueError
            If the two are not parts of one array: their dtypes, tolerances or other axes differ.
        TypeError
            If `other` is not a Comparison.

        Examples
        --------
        >>> import calipers
        >>> left, right = calipers.compare([1.0], [1.0]), calipers.compare([2.0], [3.0])
        >>> left.merge(right).first_mismatches[0].index
        (1,)
        """
        given: object = other
        if not isinstance(given, Comparison):
            msg = f"other must be a Comparison, got {type(other).__name__}"
            raise TypeError(msg)
        kinds = [(x.rule, x.actual_dtype, x.expected_dtype, x.problems) for x in (self, other)]
        if self.tally is None or other.tally is None or kinds[0] != kinds[1]:
            msg = "other cannot be merged: compare both parts with the same tolerances and dtypes"
            raise ValueError(msg)
        shape, more = (common_shape(x.actual_shape, x.expected_shape) for x in (self, other))
        if not shape or not more or shape[1:] != more[1:]:
            msg = f"other must follow along axis 0, got shapes {shape} and {more}"
            raise ValueError(msg)
        whole, origin = (shape[0] + more[0], *shape[1:]), (0,) * len(shape)
        parts = placed(self, whole, origin), placed(other, whole, (shape[0], *origin[1:]))
        return united(*parts)

    def _contents(self) -> dict[str, Any]:
        names = (
            *("path", "actual_shape", "expected_shape", "actual_dtype", "expected_dtype"),
            *("problems", "size", "finite", "mismatches", "mismatch_ratio", "finite_mismatches"),
            *("sign_mismatches", "infinite_mismatches", "nan_actual", "nan_expected", "nan_both"),
            *("first_mismatches", "rms", "relative_norm", "passing_rtol", "passing_atol"),
            *("ulp_histogram", "arrangement", "rule", "notes"),
        )
        result = {"passed": bool(self)} | {name: getattr(self, name) for name in names}
        result |= {name: self._count(name) for name in MASKED}
        result["worst"] = {measure: self.worst(measure) for measure in MEASURES}
        result["where"] = region(self.tally) if self.tally and self.mismatches else None
        return result

    def plot(self) -> "Figure":
        """
        Plot the error of each element relative to its tolerance, and a histogram in ULP.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If the shapes or structures do not match, or the elements are not numbers.
        """
        from ._plots import comparison_figure

        return comparison_figure(self)


def placed(part: Comparison, shape: tuple[int, ...], corner: tuple[int, ...]) -> Comparison:
    """Return a comparison as that of the part that begins at `corner` of a whole of some shape."""
    assert part.tally is not None
    positions = np.array(list(part.differences), np.int64)
    places = moved(positions, part.tally.shape, corner or (0,), shape or (1,))
    differences = {
        position: replace(
            difference,
            index=tuple(i + start for i, start in zip(difference.index, corner, strict=True)),
        )
        for position, difference in zip(places.tolist(), part.differences.values(), strict=True)
    }
    return replace(
        part,
        actual_shape=shape,
        expected_shape=shape,
        tally=part.tally.placed(shape, corner),
        differences=differences,
        arrangement=None,
        arrays=None,
    )


def united(left: Comparison, right: Comparison) -> Comparison:
    """Return the comparison of two parts, each in its place in a whole of which both may grow."""
    shape = tuple(map(max, left.actual_shape, right.actual_shape))
    origin = (0,) * len(shape)
    left, right = (
        x if x.actual_shape == shape else placed(x, shape, origin) for x in (left, right)
    )
    assert left.tally is not None
    assert right.tally is not None
    tally = merge(left.tally, right.tally)
    both = {**left.differences, **right.differences}
    differences = {i: both[i] for i in tally.places()}
    return replace(left, tally=tally, differences=differences, arrangement=None, arrays=None)


@dataclass(frozen=True, repr=False)
class NestedComparison(Report):
    """
    The report of a comparison of nested containers of arrays; it is true if all arrays agree.

    It is returned by `compare`. ``print(report)`` shows how the arrays differ.

    Attributes
    ----------
    leaves : tuple of Comparison
        The comparison of each pair of arrays, in the order of `actual`. Elements that are missing
        on one side, or differ in type or length, are comparisons with a problem.

    Examples
    --------
    >>> import calipers
    >>> report = calipers.compare({"x": [1.0], "y": [2.0]}, {"x": [1.0], "y": [2.5]})
    >>> bool(report), [leaf.path for leaf in report.failing]
    (False, ["['y']"])
    """

    leaves: tuple[Comparison, ...]

    def __bool__(self) -> bool:
        """Return True if all arrays agree."""
        return all(self.leaves)

    def __str__(self) -> str:
        """Return the text of the report."""
        return nested_text(self)

    @property
    def failing(self) -> tuple[Comparison, ...]:
        """The comparisons that fail."""
        return tuple(leaf for leaf in self.leaves if not leaf)

    @property
    def worst(self) -> Comparison | None:
        """The failing comparison with the largest error relative to its tolerance, or None."""
        compared = [leaf for leaf in self.failing if leaf.tally is not None]
        return max(compared, key=_severity, default=None)

    def _contents(self) -> dict[str, Any]:
        return {"passed": bool(self), "leaves": [leaf.to_dict() for leaf in self.leaves]}

    def plot(self) -> "Figure":
        """
        Plot the worst comparison that fails, or the first if all pass; see `Comparison.plot`.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If no arrays were compared, or none of those that fail.
        """
        leaf = self.drawn
        if leaf is None:
            compared = any(leaf.tally is not None for leaf in self.leaves)
            what = "nothing that differs could be" if compared else "nothing was"
            msg = f"{what} compared: there is no pair of arrays to plot"
            raise ValueError(msg)
        return leaf.plot()

    @property
    def drawn(self) -> Comparison | None:
        """The comparison that `plot` shows."""
        if not self:
            return self.worst
        return next((leaf for leaf in self.leaves if leaf.tally is not None), None)


def _severity(leaf: Comparison) -> tuple[float, float]:
    worst = leaf.worst()
    return (worst.excess if worst else 0.0), leaf.mismatch_ratio


class ClosenessError(AssertionError):
    """
    Two arrays, or containers of arrays, are not close; the text of the error is the report.

    It is raised by `assert_close`, and is an AssertionError.

    Attributes
    ----------
    report : Comparison or NestedComparison or None
        The report.

    Examples
    --------
    >>> import calipers
    >>> try:
    ...     calipers.assert_close([1.0, 2.0], [1.0, 2.5])
    ... except calipers.ClosenessError as error:
    ...     print(error.report.mismatches)
    1
    """

    __module__ = "calipers"  # as a traceback says

    def __init__(
        self, message: str = "", report: Comparison | NestedComparison | None = None
    ) -> None:
        super().__init__(message)
        self.report = report
