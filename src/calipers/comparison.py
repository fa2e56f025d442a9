"""How do two arrays differ, and where? compare, assert_close, and the report of one pass."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ._arrangement import arrangement, region
from ._arrays import Pair, as_pair, library_of
from ._nested import Leaf, is_container, leaves
from ._protocols import NDArray
from ._question import Question, plain_verdict
from ._report import comparison_text, jsonable, nested_text
from ._tally import MEASURES, Rule, Tally, merge, tally_pair
from .tolerances import Tolerance, default_tolerance

__all__ = [
    "ClosenessError",
    "Comparison",
    "Difference",
    "NestedComparison",
    "assert_close",
    "compare",
]


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Comparison:
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

    Notes
    -----
    Extremes, norms and the histogram are over all finite pairs, mismatching or not.
    """

    path: str
    actual_shape: tuple[int, ...]
    expected_shape: tuple[int, ...]
    actual_dtype: str
    expected_dtype: str
    rule: Rule
    problems: tuple[str, ...] = ()
    arrangement: str | None = field(default=None, compare=False)
    tally: Tally | None = None
    differences: dict[int, Difference] = field(default_factory=dict, repr=False)
    arrays: tuple[NDArray, NDArray] | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        """Give the verdict."""
        if self.problems:
            return False
        allowed = max(self.rule.max_mismatches, self.rule.max_mismatch_ratio * self.size)
        return self.mismatches <= allowed

    def __str__(self) -> str:
        """Write the report."""
        return comparison_text(self)

    def _count(self, name: str) -> int:
        return 0 if self.tally is None else int(self.tally[name])

    @property
    def size(self) -> int:
        """The number of pairs."""
        return self._count("size")

    @property
    def finite(self) -> int:
        """The number of pairs of which both are finite."""
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
        return self.mismatches - others

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

    def worst(self, measure: str = "excess") -> Difference | None:
        """
        Return the finite pair that is farthest apart; None if all are equal.

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
        """The smallest rtol that would pass at this atol; None if none would."""
        return self._passing("passing_rtol")

    @property
    def passing_atol(self) -> float | None:
        """The smallest atol that would pass at this rtol; None if none would."""
        return self._passing("passing_atol")

    def _passing(self, name: str) -> float | None:
        if self.tally is None or self.mismatches > self.finite_mismatches:
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

        Examples
        --------
        >>> import calipers
        >>> left, right = calipers.compare([1.0], [1.0]), calipers.compare([2.0], [3.0])
        >>> left.merge(right).first_mismatches[0].index
        (1,)
        """
        own, more = (self.tally, self.actual_shape), (other.tally, other.actual_shape)
        kinds = [(x.rule, x.actual_dtype, x.expected_dtype, x.problems) for x in (self, other)]
        if own[0] is None or more[0] is None or kinds[0] != kinds[1]:
            msg = "other cannot be merged: compare both parts by one rule, and of one dtype"
            raise ValueError(msg)
        if not own[1] or not more[1] or own[1][1:] != more[1][1:]:
            msg = f"other must follow along axis 0, got shapes {own[1]} and {more[1]}"
            raise ValueError(msg)
        rows = own[1][0]
        shape = (rows + more[1][0], *own[1][1:])
        tally = merge(own[0].placed(shape, 0), more[0].placed(shape, rows))
        offset = self.size
        moved = {
            offset + i: replace(x, index=(rows + x.index[0], *x.index[1:]))
            for i, x in other.differences.items()
        }
        found = {**self.differences, **moved}
        return replace(
            self,
            actual_shape=shape,
            expected_shape=shape,
            tally=tally,
            differences={i: found[i] for i in tally.places()},
            arrangement=None,
            arrays=None,
        )

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
            *("ulp_histogram", "arrangement", "rule"),
        )
        found = {"passed": bool(self)} | {name: getattr(self, name) for name in names}
        found["worst"] = {measure: self.worst(measure) for measure in MEASURES}
        found["where"] = region(self.tally) if self.tally and self.mismatches else None
        return {name: jsonable(value) for name, value in found.items()}

    def plot(self) -> Any:
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
            If nothing was compared, because shapes or structures do not match.
        """
        from ._plots import comparison_figure

        return comparison_figure(self)


@dataclass(frozen=True)
class NestedComparison:
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

    def plot(self) -> Any:
        """Draw the worst leaf, as `Comparison.plot` does; of passing leaves the first."""
        leaf = self.worst or next((x for x in self.leaves if x.tally is not None), None)
        if leaf is None:
            msg = "nothing was compared: there is no pair of arrays to plot"
            raise ValueError(msg)
        return leaf.plot()


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

    def __init__(self, message: str = "", report: Any = None) -> None:
        super().__init__(message)
        self.report = report


_NAMES = ("actual", "expected")
# By the dtypes themselves: their names take longer to make than ten elements to compare.
_default = lru_cache(default_tolerance)


class _Options(NamedTuple):
    """The checked options of a comparison; a tolerance of None is that of the dtypes."""

    tolerance: Tolerance | None
    check_dtype: bool
    check_shape: bool
    rule: Rule

    def rule_for(self, pair: Pair) -> Rule:
        if self.rule.max_ulp is not None:
            return self.rule
        rtol, atol = self.tolerance or _default(pair.a.dtype, pair.b.dtype)
        return replace(self.rule, rtol=rtol, atol=atol)


def _options(
    rtol: Any,
    atol: Any,
    tolerance: Any,
    max_ulp: Any,
    equal_nan: Any,
    check_dtype: Any,
    check_shape: Any,
    max_mismatches: Any,
    max_mismatch_ratio: Any,
) -> _Options:
    if (rtol is None) != (atol is None):
        given, missing = ("rtol", "atol") if atol is None else ("atol", "rtol")
        msg = f"{given} was given without {missing}: give both, or neither for those of the dtype"
        raise ValueError(msg)
    if tolerance is not None:
        if rtol is not None:
            msg = "tolerance was given beside rtol and atol: give one of the two"
            raise ValueError(msg)
        try:
            rtol, atol = tolerance
        except (TypeError, ValueError):
            msg = f"tolerance must be a Tolerance or a pair (rtol, atol), got {tolerance!r:.60}"
            raise TypeError(msg) from None
    if max_ulp is not None:
        if rtol is not None:
            msg = "max_ulp was given beside tolerances: it makes the verdict alone, leave them out"
            raise ValueError(msg)
        max_ulp = _count(max_ulp, "max_ulp")
    chosen = None
    if rtol is not None:
        chosen = Tolerance(_number(rtol, "rtol"), _number(atol, "atol"))
    ratio = _number(max_mismatch_ratio, "max_mismatch_ratio")
    if ratio > 1:
        msg = f"max_mismatch_ratio must lie from 0 to 1, got {ratio}; for a count: max_mismatches"
        raise ValueError(msg)
    count = _count(max_mismatches, "max_mismatches")
    rule = Rule(0.0, 0.0, max_ulp, bool(equal_nan), count, ratio)
    return _Options(chosen, check_dtype, check_shape, rule)


def _number(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        msg = f"{name} must be a number, got {type(value).__name__}: {value!r:.60}"
        raise TypeError(msg) from None
    if not 0 <= number < math.inf:
        msg = f"{name} must be finite and not negative, got {value!r}"
        raise ValueError(msg)
    return number


def _count(value: Any, name: str) -> int:
    try:
        number = index(value)
    except TypeError:
        advice = "; for a share: max_mismatch_ratio" if name == "max_mismatches" else ""
        msg = f"{name} must be an integer, got {type(value).__name__}: {value!r:.60}{advice}"
        raise TypeError(msg) from None
    if not 0 <= number < 2**63:
        msg = f"{name} must not be negative, nor beyond int64, got {value!r}"
        raise ValueError(msg)
    return number


def compare(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    tolerance: Tolerance | tuple[float, float] | None = None,
    max_ulp: int | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    check_shape: bool = True,
    max_mismatches: int = 0,
    max_mismatch_ratio: float = 0.0,
) -> Any:
    """
    Compare two arrays, or nested containers of arrays, and tell all about how they differ.

    The rule is that of `allclose`. One pass over the data finds the verdict, counts by class, the
    first mismatches, the farthest pairs, norms, a histogram of distances in ULP, the tolerances
    that would pass, and where the mismatches lie. No memory is allocated per element, but to sort
    up to 4 million elements of arrays that fail.

    Parameters
    ----------
    actual, expected : array_like, or list, tuple, dict or dataclass of them
        Arrays of NumPy, or of torch or jax in host memory. A list of plain numbers is an array.
    rtol, atol : float, optional
        Relative and absolute tolerance; both or neither. By default `default_tolerance` of the
        dtypes.
    tolerance : Tolerance or pair of float, optional
        ``(rtol, atol)`` as one argument.
    max_ulp : int, optional
        The verdict by distance instead: at most so many steps of the format apart. For integers
        that is their difference.
    equal_nan : bool, default False
        Whether two NaN are close.
    check_dtype : bool, default True
        Whether dtypes have to be equal, where both sides have one; byte order does not count.
    check_shape : bool, default True
        Whether shapes have to be equal; else the arrays are broadcast together.
    max_mismatches : int, default 0
        How many mismatches to let pass in each pair of arrays.
    max_mismatch_ratio : float, default 0.0
        Which share of mismatches to let pass, from 0 to 1; the more generous of the two counts.

    Returns
    -------
    Comparison or NestedComparison
        True if all agree. ``str()`` writes the report; ``to_dict()`` and ``plot()`` are there.

    Raises
    ------
    TypeError
        If an option is of the wrong kind, or an array is not in host memory.
    ValueError
        If one of `rtol` and `atol` is missing; if a tolerance is negative, infinite or NaN; if
        two options exclude each other; if `max_mismatch_ratio` is not from 0 to 1.

    See Also
    --------
    assert_close : Raises the report, if there is something to report.
    allclose : The verdict alone, as NumPy's.

    Notes
    -----
    longdouble, object and other dtypes without a kernel are compared by NumPy, at the memory this
    takes, and without ULP or the tolerances that would pass.

    Examples
    --------
    >>> import calipers
    >>> report = calipers.compare([1.0, 2.0, 3.0], [1.0, 2.5, 3.0])
    >>> bool(report), report.mismatches, report.worst().index
    (False, 1, (1,))
    """
    options = _options(
        rtol,
        atol,
        tolerance,
        max_ulp,
        equal_nan,
        check_dtype,
        check_shape,
        max_mismatches,
        max_mismatch_ratio,
    )
    return _compare(actual, expected, options)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    tolerance: Tolerance | tuple[float, float] | None = None,
    max_ulp: int | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    check_shape: bool = True,
    max_mismatches: int = 0,
    max_mismatch_ratio: float = 0.0,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """
    Raise an AssertionError with a full report if two arrays, or containers of them, do not agree.

    Parameters
    ----------
    actual, expected, rtol, atol, tolerance, max_ulp, equal_nan
        As for `compare`.
    check_dtype, check_shape, max_mismatches, max_mismatch_ratio
        As for `compare`.
    msg : str or callable, optional
        The text of the error in place of the report, or a function from the report to it.

    Raises
    ------
    ClosenessError
        If they do not agree. Its text is the report, its ``.report`` what `compare` returns.
    TypeError, ValueError
        As `compare`.

    See Also
    --------
    compare : The report, whatever the verdict.

    Examples
    --------
    >>> import calipers
    >>> calipers.assert_close([1.0, 2.0], [1.0, 2.0 + 1e-9])
    >>> calipers.assert_close({"w": [1, 2]}, {"w": [1, 3]})
    Traceback (most recent call last):
        ...
    calipers.comparison.ClosenessError: Not close: 1 of 1 leaves differ
      ['w']  1 of 2 elements differs (50 %)
    ...
    """
    by_tolerances = tolerance is None and max_ulp is None
    if by_tolerances and max_mismatches == max_mismatch_ratio == 0 and type(actual) is np.ndarray:
        given = rtol is not None or atol is not None
        own_rtol, own_atol = (rtol, atol) if given else _default(actual.dtype)
        if plain_verdict(actual, expected, own_rtol, own_atol, equal_nan):
            return
    options = _options(
        rtol,
        atol,
        tolerance,
        max_ulp,
        equal_nan,
        check_dtype,
        check_shape,
        max_mismatches,
        max_mismatch_ratio,
    )
    if all(_passes(leaf, options) for leaf in leaves(actual, expected)):
        return
    report = _compare(actual, expected, options)
    if report:
        return
    text = str(report)
    if msg is not None:
        text = msg(text) if callable(msg) else msg
    raise ClosenessError(text, report)


def _passes(leaf: Leaf, options: _Options) -> bool:
    """Ask for the verdict alone; False may also mean that only the full pass can tell."""
    if leaf.problem or options.rule.max_ulp is not None:
        return False
    pair = as_pair(leaf.actual, leaf.expected, _NAMES)
    if pair.dtypes is None or _problems(leaf, pair, options):
        return False
    rule = options.rule_for(pair)
    return Question(pair, rule.rtol, rule.atol, rule.equal_nan).all_close()


def _compare(actual: Any, expected: Any, options: _Options) -> Comparison | NestedComparison:
    found = tuple(_compare_leaf(leaf, options) for leaf in leaves(actual, expected))
    nested = is_container(actual) or is_container(expected)
    return NestedComparison(found) if nested else found[0]


def _compare_leaf(leaf: Leaf, options: _Options) -> Comparison:
    if leaf.problem:
        kinds = type(leaf.actual).__name__, type(leaf.expected).__name__
        return Comparison(leaf.path, (), (), *kinds, options.rule, (leaf.problem,))
    pair = as_pair(leaf.actual, leaf.expected, _NAMES)
    rule = options.rule_for(pair)
    problems = _problems(leaf, pair, options)
    about = (leaf.path, pair.a.shape, pair.b.shape, str(pair.a.dtype), str(pair.b.dtype), rule)
    try:
        if options.check_shape and pair.a.shape != pair.b.shape:
            raise ValueError
        a, b = np.broadcast_arrays(pair.a, pair.b, subok=pair.dtypes is None)
    except ValueError:
        return Comparison(*about, tuple(problems))
    pair = pair._replace(a=a, b=b)
    tally = tally_pair(pair, rule)
    differences = {i: _difference(pair, rule, i) for i in tally.places()}
    pattern = None
    if tally["mismatches"] > 1 and pair.dtypes is not None:
        pattern = arrangement(a, b, partial(_close, rtol=rule.rtol, atol=rule.atol))
    return Comparison(*about, tuple(problems), pattern, tally, differences, (a, b))


def _close(a: NDArray, b: NDArray, rtol: float, atol: float) -> bool:
    return Question(as_pair(a, b), rtol, atol, equal_nan=True).all_close()


def _problems(leaf: Leaf, pair: Pair, options: _Options) -> list[str]:
    """List what is wrong with two arrays before their elements are looked at."""
    found = []
    a, b = pair.a, pair.b
    if a.shape != b.shape:
        try:
            np.broadcast_shapes(a.shape, b.shape)
            advice = "check_shape=False would broadcast them"
        except ValueError:
            advice = "they cannot be broadcast"
            if a.size == b.size:
                advice += f", but both have {a.size} elements"
            if not options.check_shape:
                found.append(f"shapes {a.shape} and {b.shape} cannot be broadcast together")
        if options.check_shape:
            found.append(f"shapes differ: {a.shape} and {b.shape}; {advice}")
    own, reference = a.dtype.newbyteorder("="), b.dtype.newbyteorder("=")
    typed = _has_dtype(leaf.actual) and _has_dtype(leaf.expected)
    if options.check_dtype and typed and own != reference:
        found.append(f"dtypes differ: {own} and {reference}; check_dtype=False lets that pass")
    return found


def _has_dtype(x: Any) -> bool:
    """Tell whether x has a dtype of its own: Python's numbers and lists take what they meet."""
    return isinstance(x, np.ndarray | np.generic) or library_of(x) is not None


def _difference(pair: Pair, rule: Rule, position: int) -> Difference:
    """Measure one pair of elements."""
    place = tuple(int(i) for i in np.unravel_index(position, pair.a.shape))
    a, b = (x[(*place, np.newaxis)] for x in (pair.a, pair.b))
    tally = tally_pair(pair._replace(a=a, b=b), rule)
    values = _value(a), _value(b)
    absolute: float | int = float(tally["absolute"])
    relative = float(tally["relative"])
    excess = float(tally["excess"])
    ulp: int | None = None
    if not tally["finite"]:
        absolute = relative = excess = math.nan
    elif pair.dtypes is not None:
        ulp = int(tally["ulp"])
        if all(isinstance(x, int) for x in values):
            absolute = ulp = abs(int(values[0]) - int(values[1]))
    return Difference(place, *values, absolute, relative, ulp, excess)


def _value(x: NDArray) -> Any:
    if x.dtype.isbuiltin == 2:
        return float(x[0])
    return x[0].item() if x.dtype.kind in "biufc" and x.dtype.char not in "gG" else x[0]
