"""What a comparison found: of two elements, of two arrays, of two containers; and the error."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrangement import region
from ._notebook import Shown
from ._report import comparison_text, headline_and_rest, is_boolean, jsonable, nested_text
from ._shapes import common_shape
from ._tally import MASKED, MEASURES, Rule, Tally, merge, moved
from ._types import Measure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ClosenessError", "Comparison", "Difference", "NestedComparison"]


@dataclass(frozen=True, eq=False)
class Difference:
    """
    One pair of elements, and how far apart they are.

    Attributes
    ----------
    index : tuple of int
        Where in the array.
    actual, expected : number
        The two values, as Python numbers where there is such a number.
    absolute : float or int
        ``|actual - expected|``: exact for integers, NaN if either is not finite.
    relative : float
        ``absolute/|expected|``.
    ulp : int or None
        Steps of the format from one to the other; for complex numbers of the part with more. None
        where that is not defined.
    excess : float
        ``absolute/(atol + rtol*|expected|)``, or ``ulp/max_ulp``: beyond 1 is a mismatch.
    """

    index: tuple[int, ...]
    actual: Any
    expected: Any
    absolute: float | int
    relative: float
    ulp: int | None
    excess: float

    def __eq__(self, other: object) -> bool:
        """Compare all that was found; NaN is the same finding as NaN."""
        if not isinstance(other, Difference):
            return NotImplemented
        return self._found() == other._found()

    def __hash__(self) -> int:
        """Hash the place: NaN that are the same finding have hashes of their own."""
        return hash(self.index)

    def _found(self) -> tuple[Any, ...]:
        values = (getattr(self, f.name) for f in fields(self))
        return tuple(x if x == x else repr(x) for x in values)


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """
    What one pass over two arrays found; true if they agree, and ``str()`` tells how they differ.

    Attributes
    ----------
    path : str
        Where in nested containers the arrays stand; empty for arrays themselves.
    actual_shape, expected_shape : tuple of int
    actual_dtype, expected_dtype : str
    rule : Rule
        The tolerances and the allowances of the verdict.
    problems : tuple of str
        Differences of structure, shape or dtype. One is enough to fail.
    arrangement : str or None
        The rearrangement of expected that actual is, if one was recognised.
    tally : Tally or None
        All that the pass has counted; None where shapes or structures do not match.
    differences : dict
        A `Difference` for each position in C order that the report names.
    arrays : tuple of two arrays, or None
        What was compared, brought to one shape; None of parts, as of chunks or after `merge`, and
        where shapes or structures do not match.
    notes : tuple of str
        What was not compared, as the row labels of pandas, and objects that are compared by ==.

    Notes
    -----
    Extremes, norms and the histogram are over all finite pairs, mismatching or not. A pickle of the
    report holds both arrays; ``dataclasses.replace(report, arrays=None)`` has all but what `plot`
    draws of elements.
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
        """Give the verdict."""
        if self.problems:
            return False
        few = self.mismatches <= self.rule.max_mismatches
        # A product with the size would round: 0.29 of 100 is less than 29.
        return few or self.mismatch_ratio <= self.rule.max_mismatch_ratio

    def __str__(self) -> str:
        """Write the report."""
        return comparison_text(self)

    def _headline_and_rest(self) -> tuple[str, str]:
        return headline_and_rest(self)

    def _count(self, name: str) -> int:
        return 0 if self.tally is None else int(self.tally[name])

    @property
    def size(self) -> int:
        """The number of pairs."""
        return self._count("size")

    @property
    def finite(self) -> int:
        """The number of pairs of which both are finite; text is not."""
        return self._count("finite")

    @property
    def mismatches(self) -> int:
        """The number of pairs that are not close."""
        return self._count("mismatches")

    @property
    def mismatch_ratio(self) -> float:
        """The share of the pairs that are not close."""
        return self.mismatches / self.size if self.size else 0.0

    @property
    def finite_mismatches(self) -> int:
        """The number of finite pairs that are too far apart."""
        nan_both = 0 if self.rule.equal_nan else self.nan_both
        others = self.nan_actual + self.nan_expected + nan_both + self.infinite_mismatches
        return self.mismatches - others - self._count("without_distance")

    @property
    def sign_mismatches(self) -> int:
        """The number of finite mismatches of real numbers on the two sides of 0."""
        return self._count("signs")

    @property
    def infinite_mismatches(self) -> int:
        """The number of unequal pairs with an infinity and no NaN."""
        return self._count("infinite")

    @property
    def nan_actual(self) -> int:
        """The number of pairs with NaN only in actual."""
        return self._count("nan_actual")

    @property
    def nan_expected(self) -> int:
        """The number of pairs with NaN only in expected."""
        return self._count("nan_expected")

    @property
    def nan_both(self) -> int:
        """The number of pairs of NaN; they mismatch unless `equal_nan`."""
        return self._count("nan_both")

    @property
    def first_mismatches(self) -> tuple[Difference, ...]:
        """The first mismatches in C order, at most five."""
        if self.tally is None:
            return ()
        return tuple(self.differences[i] for i in self.tally["first"].tolist() if i >= 0)

    def worst(self, measure: Measure = "excess") -> Difference | None:
        """
        Return the finite pair that is farthest apart; None if the measure is 0 for all.

        Parameters
        ----------
        measure : {"excess", "absolute", "relative", "ulp"}
            How to measure. Of equals, the first in C order.

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
        """The root of the mean square of the difference, over finite pairs."""
        return self.tally.rms if self.tally else math.nan

    @property
    def relative_norm(self) -> float:
        """The 2-norm of the difference over that of expected, over finite pairs."""
        return self.tally.relative_norm if self.tally else math.nan

    @property
    def passing_rtol(self) -> float | None:
        """The smallest rtol at which all would pass at this atol; None if none, as of booleans."""
        return self._passing("passing_rtol")

    @property
    def passing_atol(self) -> float | None:
        """The smallest atol at which all would pass at this rtol; None if none, as of booleans."""
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
        """Lowest and highest ULP of each range that has finite pairs, and their number."""
        if self.tally is None:
            return ()
        counts = self.tally["histogram"].tolist()
        return tuple((2**k // 2, max(2**k - 1, 0), n) for k, n in enumerate(counts) if n)

    def merge(self, other: "Comparison") -> "Comparison":
        """
        Return the comparison of two parts as one whole.

        It equals that of the whole arrays; norms may differ by rounding. What needs the elements
        themselves, a rearrangement or a plot of them, is not to be had of it.

        Parameters
        ----------
        other : Comparison
            The part that follows along axis 0.

        Raises
        ------
        ValueError
            If the two are not parts of one whole: their dtypes, rules or other axes differ.
        TypeError
            If `other` is no Comparison.

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
            msg = "other cannot be merged: compare both parts by one rule, and of one dtype"
            raise ValueError(msg)
        shape, more = (common_shape(x.actual_shape, x.expected_shape) for x in (self, other))
        if not shape or not more or shape[1:] != more[1:]:
            msg = f"other must follow along axis 0, got shapes {shape} and {more}"
            raise ValueError(msg)
        whole, origin = (shape[0] + more[0], *shape[1:]), (0,) * len(shape)
        parts = placed(self, whole, origin), placed(other, whole, (shape[0], *origin[1:]))
        return united(*parts)

    def to_dict(self) -> dict[str, Any]:
        """
        Return all findings as built-in types, which JSON can write.

        NaN and infinities become strings, as do complex numbers.

        Examples
        --------
        >>> import calipers
        >>> calipers.compare([1.0], [1.0]).to_dict()["mismatches"]
        0
        """
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
        return {name: jsonable(value) for name, value in result.items()}

    def plot(self) -> "Figure":
        """
        Draw the excess of each element, a map for two axes, and the distances in ULP.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If nothing was compared, because shapes or structures do not match, or if the elements
            have no distance, as text.
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
class NestedComparison(Shown):
    """
    A comparison for each pair of arrays in nested containers; true if all agree.

    Attributes
    ----------
    leaves : tuple of Comparison
        In the order of actual, each with its path. What stands on one side only, or differs in
        kind or length, has its place among them as a comparison with a problem.
    """

    leaves: tuple[Comparison, ...]

    def __bool__(self) -> bool:
        """Give the verdict."""
        return all(self.leaves)

    def __str__(self) -> str:
        """Write the report."""
        return nested_text(self)

    @property
    def failing(self) -> tuple[Comparison, ...]:
        """The leaves that do not agree."""
        return tuple(leaf for leaf in self.leaves if not leaf)

    @property
    def worst(self) -> Comparison | None:
        """The failing leaf with the largest excess, of those that could be compared."""
        compared = [leaf for leaf in self.failing if leaf.tally is not None]
        return max(compared, key=_severity, default=None)

    def to_dict(self) -> dict[str, Any]:
        """
        Return all findings as built-in types, which JSON can write.

        Examples
        --------
        >>> import calipers
        >>> calipers.compare({"x": [1.0]}, {"x": [1.0]}).to_dict()["passed"]
        True
        """
        return {"passed": bool(self), "leaves": [leaf.to_dict() for leaf in self.leaves]}

    def plot(self) -> "Figure":
        """Draw the worst leaf, as `Comparison.plot` does; of passing leaves the first."""
        leaf = self.drawn
        if leaf is None:
            msg = "nothing was compared: there is no pair of arrays to plot"
            raise ValueError(msg)
        return leaf.plot()

    @property
    def drawn(self) -> Comparison | None:
        """The leaf that `plot` draws."""
        worst = self.worst
        if worst is not None:  # a failing report is false
            return worst
        return next((leaf for leaf in self.leaves if leaf.tally is not None), None)


def _severity(leaf: Comparison) -> tuple[float, float]:
    worst = leaf.worst()
    return (worst.excess if worst else 0.0), leaf.mismatch_ratio


class ClosenessError(AssertionError):
    """
    Two arrays, or nested containers of them, do not agree; the text is the report.

    Attributes
    ----------
    report : Comparison or NestedComparison
        What was found.
    """

    __module__ = "calipers"  # as a traceback says

    def __init__(
        self, message: str = "", report: Comparison | NestedComparison | None = None
    ) -> None:
        super().__init__(message)
        self.report = report
