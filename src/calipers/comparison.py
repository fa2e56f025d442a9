"""How do two arrays differ, and where? compare, assert_close, and the report of one pass."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Unpack, overload

import numpy as np

from ._comparing import all_pass, compare_leaves, require_close
from ._nested import are_nested, leaves
from ._options import checked_options
from ._question import plainly_agree
from ._spread import MEMORY_LIMIT
from ._types import CompareOptions, Plain
from .reports import Comparison, NestedComparison
from .tolerances import Tolerance

__all__ = ["assert_close", "compare"]
__tracebackhide__ = True  # pytest shows an error at the line that called calipers

# Options beside which two arrays are asked plainly.
_OF_PLAIN = {"rtol", "atol", "equal_nan", "check_dtype", "check_shape"}


@overload
def compare(actual: Plain, expected: Plain, **options: Unpack[CompareOptions]) -> Comparison: ...
@overload
def compare(
    actual: Mapping[Any, Any], expected: Mapping[Any, Any], **options: Unpack[CompareOptions]
) -> NestedComparison: ...
@overload
def compare(
    actual: Any, expected: Any, **options: Unpack[CompareOptions]
) -> Comparison | NestedComparison: ...
def compare(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | np.timedelta64 | timedelta | None = None,
    tolerance: Tolerance | tuple[float, float] | None = None,
    max_ulp: int | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    check_shape: bool = True,
    max_mismatches: int = 0,
    max_mismatch_ratio: float = 0.0,
    memory_limit: float = MEMORY_LIMIT,
) -> Comparison | NestedComparison:
    """
    Compare two arrays, or nested containers of arrays, and tell all about how they differ.

    The rule is that of `allclose`. One pass over the data finds the verdict, counts by class, the
    first mismatches, the farthest pairs, norms, a histogram of distances in ULP, the tolerances
    that would pass, and where the mismatches lie. No memory is allocated per element, except that
    up to 4 million elements of arrays that fail are sorted.

    Parameters
    ----------
    actual, expected : array_like, or list, tuple, dict or dataclass of them
        Arrays of NumPy, or of torch or jax in host memory; or both on one CUDA device, of which
        only the report is copied back. A list of plain numbers is an array. Arrays in chunks are
        compared chunk by chunk, as by `allclose`. Attributes of attrs classes, pydantic models and
        namespaces, fields of structured arrays, and columns of pandas, polars, pyarrow and dask,
        paired by name, are compared one by one. A missing value of a column is a NaN. Row labels
        are not compared; the report says so where those of pandas differ.
    rtol, atol : float, optional
        Relative and absolute tolerance; both or neither. By default `default_tolerance` of the
        dtypes. `atol` is a number in the unit of `actual`, or a quantity or duration with a unit of
        its own. Of dates, `rtol` and numbers as `atol` are 0: they have to be equal.
    tolerance : Tolerance or pair of float, optional
        ``(rtol, atol)`` as one argument.
    max_ulp : int, optional
        The verdict by distance instead: at most so many steps of the format apart. For integers
        that is their difference.
    equal_nan : bool, default False
        Whether two NaN are close.
    check_dtype : bool, default True
        Whether dtypes have to be equal, where both sides have one; neither byte order nor the
        width of text counts.
    check_shape : bool, default True
        Whether shapes have to be equal; else the arrays are broadcast together. An empty array then
        agrees with any number, as by `allclose`.
    max_mismatches : int, default 0
        How many mismatches to let pass in each pair of arrays.
    max_mismatch_ratio : float, default 0.0
        Which share of mismatches to let pass, from 0 to 1; the more generous of the two counts.
    memory_limit : float, default 256 MiB
        The bytes that chunks in memory may take, as in `allclose`. Such reports know of no
        rearrangement, and draw no elements.

    Returns
    -------
    Comparison or NestedComparison
        True if all agree. ``str()`` writes the report; ``to_dict()`` and ``plot()`` are there.

    Raises
    ------
    TypeError
        If an option is of the wrong kind, or one array is on a device and the other is not; if
        `max_ulp` is given for numbers whose dtype has no kernel.
    ValueError
        If one of `rtol` and `atol` is missing; if a tolerance is negative, infinite or NaN; if
        two options exclude each other; if `max_mismatch_ratio` is not from 0 to 1.
    OSError
        If a file or store cannot be read, or is cut while it is read.

    See Also
    --------
    assert_close : Raises the report, if there is something to report.
    allclose : The verdict alone, as NumPy's.

    Notes
    -----
    longdouble, object and other dtypes without a kernel are compared by NumPy, at the memory this
    takes, and without ULP or the tolerances that would pass. Arrays with a unit (of astropy, unyt
    or pint) are compared in the unit of `actual`, which is that of the report. Pairs of which one
    or both are masked are not compared; the report counts them.

    Examples
    --------
    >>> import calipers
    >>> report = calipers.compare([1.0, 2.0, 3.0], [1.0, 2.5, 3.0])
    >>> bool(report), report.mismatches, report.worst().index
    (False, 1, (1,))
    """
    options = checked_options(
        rtol,
        atol,
        tolerance,
        max_ulp,
        equal_nan,
        check_dtype,
        check_shape,
        max_mismatches,
        max_mismatch_ratio,
        memory_limit,
    )
    return compare_leaves(tuple(leaves(actual, expected)), are_nested(actual, expected), options)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | np.timedelta64 | timedelta | None = None,
    tolerance: Tolerance | tuple[float, float] | None = None,
    max_ulp: int | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    check_shape: bool = True,
    max_mismatches: int = 0,
    max_mismatch_ratio: float = 0.0,
    memory_limit: float = MEMORY_LIMIT,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """
    Raise an AssertionError with a full report if two arrays, or containers of them, do not agree.

    Parameters
    ----------
    actual, expected, rtol, atol, tolerance, max_ulp, equal_nan
        As for `compare`.
    check_dtype, check_shape, max_mismatches, max_mismatch_ratio, memory_limit
        As for `compare`; iterators of chunks are read only once.
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
    calipers.ClosenessError: Not close: 1 of 1 leaf differs
      ['w']  1 of 2 elements differs (50 %)
    ...
    """
    by_tolerances = tolerance is None and max_ulp is None and memory_limit == MEMORY_LIMIT
    counted = type(max_mismatches) is int  # else it is checked first: 0.0 is no count
    plain = by_tolerances and counted and max_mismatches == max_mismatch_ratio == 0
    if plain and plainly_agree(actual, expected, rtol, atol, equal_nan):
        return
    options = checked_options(
        rtol,
        atol,
        tolerance,
        max_ulp,
        equal_nan,
        check_dtype,
        check_shape,
        max_mismatches,
        max_mismatch_ratio,
        memory_limit,
    )
    require_close(tuple(leaves(actual, expected)), are_nested(actual, expected), options, msg)


def agree(actual: Any, expected: Any, **options: Unpack[CompareOptions]) -> bool:
    """Tell whether the report of `compare` is true, without one if the verdict can be had alone."""
    if options.keys() <= _OF_PLAIN:
        rtol, atol, equal_nan = map(options.get, ("rtol", "atol", "equal_nan"))
        verdict = plainly_agree(actual, expected, rtol, atol, equal_nan)
        if verdict is not None:
            return verdict
    checked = checked_options(**{"rtol": None, "atol": None, **options})
    parts = tuple(leaves(actual, expected))
    return all_pass(parts, checked) or bool(
        compare_leaves(parts, are_nested(actual, expected), checked)
    )
