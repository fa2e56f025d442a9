"""Reports of comparisons: of two elements, of two arrays and of containers; and ClosenessError."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.arrays import common_shape
from .._core.report import Report
from .._kernels.accumulators import MASKED, MEASURES
from .patterns import region
from .report_data import ComparisonData, Difference, worst_leaf
from .statistics import merge, shifted_positions
from .text import comparison_text, headline_and_rest, nested_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ClosenessError", "Comparison", "Difference", "NestedComparison"]


class Comparison(ComparisonData, Report):
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
    rule : Criteria
        The tolerances, and the number of mismatches that is allowed.
    problems : tuple of str
        Differences of structure, shape or dtype; each is a failure.
    arrangement : str or None
        The rearrangement of `expected` that equals `actual`, such as
        ``"transposed: actual == expected.T"``, if one was found.
    tally : PairStatistics or None
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

    def __str__(self) -> str:
        """Return the text of the report."""
        return comparison_text(self)

    def _headline_and_rest(self) -> tuple[str, str]:
        return headline_and_rest(self)

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
        candidate: object = other
        if not isinstance(candidate, Comparison):
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
        parts = embedded(self, whole, origin), embedded(other, whole, (shape[0], *origin[1:]))
        return merge_comparisons(*parts)

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
        from .plots import comparison_figure

        return comparison_figure(self)


def embedded(part: Comparison, shape: tuple[int, ...], corner: tuple[int, ...]) -> Comparison:
    """Return a comparison of a block, with indices in the whole array of the given shape."""
    assert part.tally is not None
    positions = np.array(list(part.differences), np.int64)
    shifted = shifted_positions(positions, part.tally.shape, corner or (0,), shape or (1,))
    differences = {
        position: replace(
            difference,
            index=tuple(i + start for i, start in zip(difference.index, corner, strict=True)),
        )
        for position, difference in zip(shifted.tolist(), part.differences.values(), strict=True)
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


def merge_comparisons(left: Comparison, right: Comparison) -> Comparison:
    """Merge the comparisons of two blocks of one array, which has the larger of both shapes."""
    shape = tuple(map(max, left.actual_shape, right.actual_shape))
    origin = (0,) * len(shape)
    left, right = (
        x if x.actual_shape == shape else embedded(x, shape, origin) for x in (left, right)
    )
    assert left.tally is not None
    assert right.tally is not None
    tally = merge(left.tally, right.tally)
    both = {**left.differences, **right.differences}
    differences = {i: both[i] for i in tally.named_positions()}
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
        return nested_text(self.leaves)

    @property
    def failing(self) -> tuple[Comparison, ...]:
        """The comparisons that fail."""
        return tuple(leaf for leaf in self.leaves if not leaf)

    @property
    def worst(self) -> Comparison | None:
        """The failing comparison with the largest error relative to its tolerance, or None."""
        return worst_leaf(self.leaves)

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
            msg = f"{what} compared: no pair of arrays can be plotted"
            raise ValueError(msg)
        return leaf.plot()

    @property
    def drawn(self) -> Comparison | None:
        """The comparison that `plot` shows."""
        if not self:
            return self.worst
        return next((leaf for leaf in self.leaves if leaf.tally is not None), None)


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
