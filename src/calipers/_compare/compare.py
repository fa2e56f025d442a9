"""The functions compare and assert_close."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Unpack, overload

from .._core.arguments import options_from, reader_of, takes_options
from .._core.types import CompareOptions, Plain, PyTree
from .elementwise import fast_agree
from .engine import all_pass, compare_leaves, require_close
from .nested import Leaf, are_nested, leaves
from .reports import Comparison, NestedComparison
from .tolerances import CheckedOptions

__all__ = ["assert_close", "compare"]
__tracebackhide__ = True  # pytest shows an error at the line that called calipers


@overload
def compare(actual: Plain, expected: Plain, **options: Unpack[CompareOptions]) -> Comparison: ...
@overload
def compare(
    actual: Mapping[Any, Any], expected: Mapping[Any, Any], **options: Unpack[CompareOptions]
) -> NestedComparison: ...
@overload
def compare(
    actual: PyTree, expected: PyTree, **options: Unpack[CompareOptions]
) -> Comparison | NestedComparison: ...
@takes_options(CheckedOptions)
def compare(
    actual: PyTree, expected: PyTree, **options: Unpack[CompareOptions]
) -> Comparison | NestedComparison:
    """
    Compare two arrays, or nested containers of arrays, and return a report of their differences.

    The rule is that of `allclose`. One pass over the data counts mismatches by kind, and finds the
    first and the largest ones, the region they lie in, norms of the difference, a histogram of
    differences in ULP, and tolerances at which the arrays would pass.

    Parameters
    ----------
    actual, expected : array_like, or list, tuple, dict or dataclass of them
        The array to check and the reference. See Notes for the kinds of arrays that are accepted.
    rtol : float, optional
        Relative tolerance. If `rtol` and `atol` are omitted, they are `default_tolerance` of the
        two dtypes; pass both or neither.
    atol : float, timedelta or quantity, optional
        Absolute tolerance, in the unit of `actual` if it is a plain number. Dates have to be equal
        unless it is a timedelta.
    tolerance : Tolerance or pair of float, optional
        ``(rtol, atol)`` as one argument.
    max_ulp : int, optional
        The largest difference in ULP, used in place of `rtol` and `atol`. For integers, the largest
        difference.
    equal_nan : bool, default False
        If True, two NaN are equal.
    check_dtype : bool, default True
        If True, the dtypes have to be equal, except for byte order and the length of strings.
    check_shape : bool, default True
        If True, the shapes have to be equal. If False, they are broadcast together; an empty array
        then agrees with any number.
    max_mismatches : int, default 0
        The number of mismatches that is allowed in each pair of arrays.
    max_mismatch_ratio : float, default 0.0
        The fraction of mismatches that is allowed, from 0 to 1. An array passes if it satisfies
        this or `max_mismatches`.
    memory_limit : float, default 256 MiB
        The most memory, in bytes, that chunks of arrays on disk may take, as in `allclose`. For
        arrays that are read in chunks, the report does not recognise transposed or shifted arrays,
        and its plot shows no elements.

    Returns
    -------
    Comparison or NestedComparison
        True if all arrays agree; a NestedComparison if the inputs are containers. ``print(report)``
        shows the text, ``report.plot()`` a picture, and ``report.to_dict()`` returns built-in
        types.

    Raises
    ------
    TypeError
        If an option has the wrong type, one array is on a device and the other is not, or `max_ulp`
        is passed for a dtype that has no ULP.
    ValueError
        If only one of `rtol` and `atol` is passed, a tolerance is negative, infinite or NaN, two
        options exclude each other, or `max_mismatch_ratio` is not between 0 and 1.
    OSError
        If a file cannot be read.

    See Also
    --------
    assert_close : Raises an AssertionError with this report.
    allclose : Returns only the bool.

    Notes
    -----
    All arrays that `allclose` takes are accepted. For two arrays on a CUDA device, only the report
    is copied to the host. A list of numbers is an array. Fields of structured arrays, attributes of
    attrs classes, pydantic models and namespaces, and columns of frames (pandas, polars, pyarrow,
    dask) are compared one by one; columns are matched by name. Missing values of a column are NaN.
    Row labels are not compared, and the report says so if those of pandas differ. Masked elements
    are counted but not compared.

    Dtypes without a compiled kernel, such as longdouble and object, are compared by NumPy; the
    report then has neither ULP nor tolerances that would pass.

    No memory is allocated for each element, except that up to 4 million elements are sorted to
    recognise permutations if the arrays differ.

    Examples
    --------
    >>> import calipers
    >>> report = calipers.compare([1.0, 2.0, 3.0], [1.0, 2.5, 3.0])
    >>> bool(report), report.mismatches, report.worst().index
    (False, 1, (1,))
    """
    checked = options_from(CheckedOptions, compare, options)
    return compare_leaves(_leaves(actual, expected), are_nested(actual, expected), checked)


@takes_options(CheckedOptions)
def assert_close(
    actual: PyTree,
    expected: PyTree,
    *,
    msg: str | Callable[[str], str] | None = None,
    **options: Unpack[CompareOptions],
) -> None:
    """
    Raise an AssertionError with a report if two arrays, or containers of arrays, are not close.

    Parameters
    ----------
    actual, expected : array_like, or list, tuple, dict or dataclass of them
        The array to check and the reference, as for `compare`. Iterators of chunks are read once.
    rtol : float, optional
        Relative tolerance. If `rtol` and `atol` are omitted, they are `default_tolerance` of the
        two dtypes; pass both or neither.
    atol : float, timedelta or quantity, optional
        Absolute tolerance, in the unit of `actual` if it is a plain number.
    tolerance : Tolerance or pair of float, optional
        ``(rtol, atol)`` as one argument.
    max_ulp : int, optional
        The largest difference in ULP, used in place of `rtol` and `atol`.
    equal_nan : bool, default False
        If True, two NaN are equal.
    check_dtype : bool, default True
        If True, the dtypes have to be equal.
    check_shape : bool, default True
        If True, the shapes have to be equal. If False, they are broadcast together.
    max_mismatches : int, default 0
        The number of mismatches that is allowed in each pair of arrays.
    max_mismatch_ratio : float, default 0.0
        The fraction of mismatches that is allowed, from 0 to 1.
    memory_limit : float, default 256 MiB
        The most memory, in bytes, that chunks of arrays on disk may take, as in `allclose`.
    msg : str or callable, optional
        The text of the error, or a function that takes the report's text and returns it. By default
        it is the report.

    Raises
    ------
    ClosenessError
        If the arrays are not close. Its text is the report, and its ``.report`` is what `compare`
        returns. It is an AssertionError.
    TypeError, ValueError, OSError
        As for `compare`.

    See Also
    --------
    compare : Returns the report whether or not the arrays agree.
    approx : The same comparison, written ``assert actual == approx(expected)``.

    Examples
    --------
    >>> import calipers
    >>> calipers.assert_close([1.0, 2.0], [1.0, 2.0 + 1e-9])
    >>> calipers.assert_close({"w": [1, 2]}, {"w": [1, 3]})
    Traceback (most recent call last):
        ...
    calipers.ClosenessError: Not close: 1 of 1 item differs
    ...
    """
    if fast_agree(actual, expected, options):
        return
    checked = options_from(CheckedOptions, assert_close, options)
    require_close(_leaves(actual, expected), are_nested(actual, expected), checked, msg)


def agree(actual: Any, expected: Any, **options: Unpack[CompareOptions]) -> bool:
    """Return the bool of `compare`, without a report if the verdict is found earlier."""
    verdict = fast_agree(actual, expected, options)
    if verdict is not None:
        return verdict
    checked = CheckedOptions(**options)
    parts = _leaves(actual, expected)
    return all_pass(parts, checked) or bool(
        compare_leaves(parts, are_nested(actual, expected), checked)
    )


def _leaves(actual: Any, expected: Any) -> tuple[Leaf, ...]:
    """Return all leaves and structural differences; raise if an argument is a file name."""
    for name, x in (("actual", actual), ("expected", expected)):
        if isinstance(x, PathLike) or (isinstance(x, str) and reader_of(x) is not None):
            msg = f"{name} is the name of a file: load it, or run `calipers compare`, got {x!r:.60}"
            raise TypeError(msg)
    return tuple(leaves(actual, expected))
