"""
Drop-in replacement for numpy.testing and torch.testing, with calipers' reports.

``from calipers import testing as npt`` replaces either import. Arrays that calipers has kernels for
are compared by these: arrays of NumPy, torch and jax, in chunks, and on a CUDA device. Objects,
strings, dates, masked arrays, subclasses, scalars and order relations are compared by NumPy's
assertions. Names that are not about arrays are those of numpy.testing, and `make_tensor` is that of
torch.

The page "differences" of the documentation lists where results differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.testing
from numpy.testing import assert_allclose as _numpy_assert_allclose
from numpy.testing import assert_almost_equal as _numpy_assert_almost_equal
from numpy.testing import assert_approx_equal as _numpy_assert_approx_equal
from numpy.testing import assert_array_almost_equal as _numpy_assert_array_almost_equal
from numpy.testing import assert_array_almost_equal_nulp as _numpy_assert_array_almost_equal_nulp
from numpy.testing import assert_array_compare as _numpy_assert_array_compare
from numpy.testing import assert_array_equal as _numpy_assert_array_equal
from numpy.testing import assert_array_less as _numpy_assert_array_less
from numpy.testing import assert_array_max_ulp as _numpy_assert_array_max_ulp
from numpy.testing import assert_equal as _numpy_assert_equal
from numpy.typing import DTypeLike

from ._compare.assertions import (
    Checks,
    ErrorHeader,
    assert_within,
    fast_equal,
    fast_pass,
    is_array,
    is_tolerance,
    related_leaves,
    run_numpy_assertion,
    spacing_message,
    to_array,
    ulp_error,
    views,
)
from ._compare.engine import require_close
from ._compare.reports import ClosenessError
from ._compare.tolerances import CheckedOptions
from ._core.protocols import NDArray
from ._core.types import ArrayLike, PyTree
from .interop.times import is_duration
from .interop.units import unit_of

__all__ = [*numpy.testing.__all__, "assert_close"]


if TYPE_CHECKING:
    # Names that are re-exported from numpy.testing, for type checkers.
    from numpy.testing import BLAS_SUPPORTS_FPE as BLAS_SUPPORTS_FPE
    from numpy.testing import HAS_LAPACK64 as HAS_LAPACK64
    from numpy.testing import HAS_REFCOUNT as HAS_REFCOUNT
    from numpy.testing import IS_64BIT as IS_64BIT
    from numpy.testing import IS_EDITABLE as IS_EDITABLE
    from numpy.testing import IS_INSTALLED as IS_INSTALLED
    from numpy.testing import IS_MUSL as IS_MUSL
    from numpy.testing import IS_PYPY as IS_PYPY
    from numpy.testing import IS_PYSTON as IS_PYSTON
    from numpy.testing import IS_WASM as IS_WASM
    from numpy.testing import NOGIL_BUILD as NOGIL_BUILD
    from numpy.testing import NUMPY_ROOT as NUMPY_ROOT
    from numpy.testing import IgnoreException as IgnoreException
    from numpy.testing import KnownFailureException as KnownFailureException
    from numpy.testing import SkipTest as SkipTest
    from numpy.testing import TestCase as TestCase
    from numpy.testing import assert_ as assert_
    from numpy.testing import assert_no_gc_cycles as assert_no_gc_cycles
    from numpy.testing import assert_no_warnings as assert_no_warnings
    from numpy.testing import assert_raises as assert_raises
    from numpy.testing import assert_raises_regex as assert_raises_regex
    from numpy.testing import assert_string_equal as assert_string_equal
    from numpy.testing import assert_warns as assert_warns
    from numpy.testing import break_cycles as break_cycles
    from numpy.testing import build_err_msg as build_err_msg
    from numpy.testing import check_support_sve as check_support_sve
    from numpy.testing import clear_and_catch_warnings as clear_and_catch_warnings
    from numpy.testing import decorate_methods as decorate_methods
    from numpy.testing import extbuild as extbuild
    from numpy.testing import jiffies as jiffies
    from numpy.testing import measure as measure
    from numpy.testing import memusage as memusage
    from numpy.testing import overrides as overrides
    from numpy.testing import print_assert_equal as print_assert_equal
    from numpy.testing import run_threaded as run_threaded
    from numpy.testing import rundocs as rundocs
    from numpy.testing import runstring as runstring
    from numpy.testing import suppress_warnings as suppress_warnings
    from numpy.testing import tempdir as tempdir
    from numpy.testing import temppath as temppath
    from numpy.testing import verbose as verbose

    # The type of torch would make type checkers read all of torch.
    make_tensor: Callable[..., Any]
else:

    def __getattr__(name: str) -> Any:
        home = import_module("torch.testing" if name == "make_tensor" else "numpy.testing")
        try:
            return getattr(home, name)
        except AttributeError:
            msg = f"module {__name__!r} has no attribute {name!r}, nor has {home.__name__}"
            raise AttributeError(msg) from None


def __dir__() -> list[str]:
    numpys = (name for name in dir(numpy.testing) if not name.startswith("_"))
    return sorted({*__all__, *numpys, "make_tensor"})


def assert_allclose(
    actual: ArrayLike,
    desired: ArrayLike,
    rtol: float = 1e-7,
    atol: float = 0,
    equal_nan: bool = True,
    err_msg: object = "",
    verbose: bool = True,
    *,
    strict: bool = False,
) -> None:
    """
    Raise an AssertionError if two arrays are not close, as `numpy.testing.assert_allclose`.

    Parameters
    ----------
    actual, desired : array_like
        Arrays of equal shape, or an array and a number.
    rtol : float, default 1e-7
        Relative tolerance: elements are close if ``|actual - desired| <= atol + rtol*|desired|``.
    atol : float, default 0
        Absolute tolerance.
    equal_nan : bool, default True
        If True, two NaN are equal.
    err_msg : str, default ""
        Text to add to the error message.
    verbose : bool, default True
        If True, the error message has the whole report, else its first line.
    strict : bool, default False
        If True, shapes and dtypes have to be equal, and a number is not broadcast.

    Raises
    ------
    ClosenessError
        If they are not close. It is an AssertionError. Its text begins as NumPy's and ends with the
        report, and its ``.report`` is what `calipers.compare` returns.

    See Also
    --------
    calipers.allclose : Returns a bool.
    calipers.assert_close : Has default tolerances for each dtype.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_allclose([1.0, 2.0], [1.0, 2.0 + 1e-9])
    >>> npt.assert_allclose([1.0, 2.0], [1.0, 2.5])
    Traceback (most recent call last):
        ...
    calipers.ClosenessError:
    Not equal to tolerance rtol=1e-07, atol=0
    ...
    """
    __tracebackhide__ = True
    by_tolerances = is_tolerance(rtol) and is_tolerance(atol)
    if by_tolerances and fast_pass(
        actual, desired, float(rtol), float(atol), bool(equal_nan), strict
    ):
        return
    by_numpy = partial(
        _numpy_assert_allclose,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        err_msg=err_msg,
        verbose=verbose,
        strict=strict,
    )
    has_unit = unit_of(atol) is not None or is_duration(atol)
    if not (is_tolerance(rtol) and (is_tolerance(atol) or has_unit)):
        run_numpy_assertion(by_numpy, actual, desired)
        return
    absolute = str(atol) if has_unit else f"{atol:g}"
    head = ErrorHeader(f"Not equal to tolerance rtol={rtol:g}, atol={absolute}", err_msg, verbose)
    assert_within(actual, desired, float(rtol), atol, by_numpy, head, bool(equal_nan), strict)


def assert_array_equal(
    actual: ArrayLike,
    desired: ArrayLike,
    err_msg: object = "",
    verbose: bool = True,
    *,
    strict: bool = False,
) -> None:
    """
    Raise an AssertionError if two arrays are not equal; NaN are equal to each other.

    Parameters
    ----------
    actual, desired : array_like
        Arrays of equal shape, or an array and a number.
    err_msg : str, default ""
        Text to add to the error message.
    verbose : bool, default True
        If True, the error message has the whole report, else its first line.
    strict : bool, default False
        If True, shapes and dtypes have to be equal, and a number is not broadcast.

    Raises
    ------
    ClosenessError
        If they are not equal. It is an AssertionError.

    See Also
    --------
    calipers.array_equal : Returns a bool.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_array_equal([1.0, float("nan")], [1, float("nan")])
    """
    __tracebackhide__ = True
    if fast_pass(actual, desired, 0.0, 0.0, strict=strict):
        return
    by_numpy = partial(_numpy_assert_array_equal, err_msg=err_msg, verbose=verbose, strict=strict)
    head = ErrorHeader("Arrays are not equal", err_msg, verbose)
    assert_within(actual, desired, 0.0, 0.0, by_numpy, head, strict=strict)


def assert_array_almost_equal(
    actual: ArrayLike,
    desired: ArrayLike,
    decimal: float = 6,
    err_msg: object = "",
    verbose: bool = True,
) -> None:
    """
    Raise an AssertionError unless ``|actual - desired| < 1.5 * 10**-decimal`` for all elements.

    Parameters
    ----------
    actual, desired : array_like
        Arrays of equal shape, or an array and a number.
    decimal : int, default 6
        The number of decimal places that have to agree.
    err_msg : str, default ""
        Text to add to the error message.
    verbose : bool, default True
        If True, the error message has the whole report, else its first line.

    Raises
    ------
    ClosenessError
        If they do not agree. It is an AssertionError.

    See Also
    --------
    assert_allclose : With a relative tolerance.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_array_almost_equal([1.0, 2.0], [1.0, 2.0001], decimal=3)
    """
    __tracebackhide__ = True
    atol = _below_limit(decimal)
    if atol is not None and fast_pass(actual, desired, 0.0, atol):
        return
    by_numpy = partial(
        _numpy_assert_array_almost_equal, decimal=decimal, err_msg=err_msg, verbose=verbose
    )
    if atol is None:
        run_numpy_assertion(by_numpy, actual, desired)
        return
    head = ErrorHeader(f"Arrays are not almost equal to {int(decimal)} decimals", err_msg, verbose)
    assert_within(actual, desired, 0.0, atol, by_numpy, head)


def assert_almost_equal(
    actual: ArrayLike,
    desired: ArrayLike,
    decimal: float = 7,
    err_msg: object = "",
    verbose: bool = True,
) -> None:
    """
    Raise an AssertionError if two numbers or arrays differ in a decimal place.

    Parameters
    ----------
    actual, desired : array_like
        Numbers are compared by NumPy, arrays by `assert_array_almost_equal`. For complex arrays,
        both parts have to agree as well.
    decimal : int, default 7
        The number of decimal places that have to agree.
    err_msg : str, default ""
        Text to add to the error message.
    verbose : bool, default True
        If True, the error message has the whole report, else its first line.

    Raises
    ------
    ClosenessError
        If arrays do not agree. It is an AssertionError.
    AssertionError
        If numbers do not agree.

    See Also
    --------
    assert_allclose : With a relative tolerance.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_almost_equal([1.0, 2.0], [1.0, 2.00000001])
    """
    __tracebackhide__ = True
    a: Any = actual
    b: Any = desired
    if type(a) is type(b) is float:
        atol = _below_limit(decimal)
        if atol is not None and abs(b - a) <= atol:
            return
    if not any(is_array(x) or isinstance(x, list | tuple) for x in (a, b)):
        run_numpy_assertion(_numpy_assert_almost_equal, a, b, decimal, err_msg, verbose)
        return
    a, b = to_array(a), to_array(b)
    if _is_complex(a) or _is_complex(b):
        for x, y in zip(_parts(a), _parts(b), strict=True):
            assert_almost_equal(x, y, decimal, err_msg, verbose)
    assert_array_almost_equal(a, b, decimal, err_msg, verbose)


def assert_equal(
    actual: object,
    desired: object,
    err_msg: object = "",
    verbose: bool = True,
    *,
    strict: bool = False,
) -> None:
    """
    Raise an AssertionError if two objects, such as arrays, lists or dicts, are not equal.

    Parameters
    ----------
    actual, desired : object
        Arrays, also in lists, tuples and dicts, are compared by `assert_array_equal`, other objects
        by NumPy.
    err_msg : str, default ""
        Text to add to the error message.
    verbose : bool, default True
        If True, the error message has the whole report, else its first line.
    strict : bool, default False
        If True, shapes and dtypes have to be equal, and a number is not broadcast.

    Raises
    ------
    ClosenessError
        If two arrays are not equal. It is an AssertionError.
    AssertionError
        If other objects are not equal.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import testing as npt
    >>> npt.assert_equal({"a": [np.arange(3), 1]}, {"a": [np.arange(3), 1.0]})
    """
    __tracebackhide__ = True
    if fast_equal(actual, desired) and not strict:
        return
    if isinstance(desired, dict) and isinstance(actual, dict) and actual.keys() == desired.keys():
        for key in desired:
            assert_equal(actual[key], desired[key], f"key={key!r}\n{err_msg}", verbose)
    elif (
        isinstance(desired, list | tuple)
        and isinstance(actual, list | tuple)
        and len(actual) == len(desired)
    ):
        for i, (a, b) in enumerate(zip(actual, desired, strict=True)):
            if not fast_equal(a, b):
                assert_equal(a, b, f"item={i}\n{err_msg}", verbose)
    elif not isinstance(desired, dict) and (is_array(actual) or is_array(desired)):
        arrays: tuple[Any, Any] = (actual, desired)
        assert_array_equal(*arrays, err_msg, verbose, strict=strict)
    else:
        run_numpy_assertion(_numpy_assert_equal, actual, desired, err_msg, verbose, strict=strict)


def assert_approx_equal(
    actual: ArrayLike,
    desired: ArrayLike,
    significant: int = 7,
    err_msg: object = "",
    verbose: bool = True,
) -> None:
    """
    Raise an AssertionError if two numbers differ in a significant digit, by NumPy's assertion.

    Parameters
    ----------
    actual, desired : scalar
        Two numbers.
    significant : int, default 7
        The number of significant digits that have to agree.
    err_msg : str, default ""
        Text to add to the error message.
    verbose : bool, default True
        If True, the error message has the whole report, else its first line.

    Raises
    ------
    AssertionError
        If they do not agree.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_approx_equal(0.12345670e-20, 0.12345671e-20)
    """
    __tracebackhide__ = True
    run_numpy_assertion(
        _numpy_assert_approx_equal, *views(actual, desired), significant, err_msg, verbose
    )


def assert_array_less(
    x: ArrayLike, y: ArrayLike, err_msg: object = "", verbose: bool = True, *, strict: bool = False
) -> None:
    """
    Raise an AssertionError unless ``x < y`` for all elements, by NumPy's assertion.

    Pairs in which both are NaN pass.

    Parameters
    ----------
    x, y : array_like
        The smaller and the larger array.
    err_msg : str, default ""
        Text to add to the error message.
    verbose : bool, default True
        If True, the error message has the whole report, else its first line.
    strict : bool, default False
        If True, shapes and dtypes have to be equal, and a number is not broadcast.

    Raises
    ------
    AssertionError
        If an element of `x` is not less.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_array_less([1.0, 1.5], [2.0, 2.0])
    """
    __tracebackhide__ = True
    run_numpy_assertion(_numpy_assert_array_less, *views(x, y), err_msg, verbose, strict=strict)


def assert_array_compare(
    comparison: Callable[[Any, Any], Any],
    x: ArrayLike,
    y: ArrayLike,
    err_msg: object = "",
    verbose: bool = True,
    header: str = "",
    precision: int = 6,
    equal_nan: bool = True,
    equal_inf: bool = True,
    *,
    strict: bool = False,
    names: tuple[str, str] = ("ACTUAL", "DESIRED"),
) -> None:
    """
    Raise an AssertionError unless ``comparison(x, y)`` is true for all elements, as in NumPy.

    Parameters
    ----------
    comparison : callable
        A function of two arrays that returns a bool for each element.
    x, y : array_like
        The two arrays.
    err_msg : str, default ""
        Text to add to the error message.
    verbose : bool, default True
        If True, the error message has the whole report, else its first line.
    header : str, default ""
        The first line of the error message.
    precision : int, default 6
        The number of digits of elements in the error message.
    equal_nan : bool, default True
        If True, NaN must be at the same positions, and are not compared.
    equal_inf : bool, default True
        If True, infinities must be at the same positions, and are not compared.
    strict : bool, default False
        If True, shapes and dtypes have to be equal, and a number is not broadcast.
    names : tuple of str, default ("ACTUAL", "DESIRED")
        The names of the arrays in the error message.

    Raises
    ------
    AssertionError
        If the comparison is false for an element.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import testing as npt
    >>> npt.assert_array_compare(np.greater_equal, [1.0, 2.0], [1.0, 1.5])
    """
    __tracebackhide__ = True
    run_numpy_assertion(
        _numpy_assert_array_compare,
        comparison,
        *views(x, y),
        err_msg,
        verbose,
        header,
        precision,
        equal_nan,
        equal_inf,
        strict=strict,
        names=names,
    )


def assert_array_almost_equal_nulp(x: ArrayLike, y: ArrayLike, nulp: float = 1) -> None:
    """
    Raise an AssertionError unless ``|x - y| <= nulp * spacing(max(|x|, |y|))`` for all elements.

    Parameters
    ----------
    x, y : array_like
        Real or complex arrays, which NumPy compares.
    nulp : int, default 1
        The largest difference, in spacings of floating-point numbers.

    Raises
    ------
    ClosenessError
        If they differ by more. It is an AssertionError. The report counts in ULP.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import testing as npt
    >>> npt.assert_array_almost_equal_nulp(np.ones(2), np.nextafter(np.ones(2), 2))
    """
    __tracebackhide__ = True
    a, b = views(x, y)
    try:
        _numpy_assert_array_almost_equal_nulp(a, b, nulp)
    except AssertionError as error:
        raise ulp_error(str(error), a, b, nulp, equal_nan=False) from None
    except ValueError:
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or np.result_type(a, b) != np.longdouble:
            raise
        raise ClosenessError(spacing_message(a, b, nulp)) from None


def assert_array_max_ulp(
    a: ArrayLike, b: ArrayLike, maxulp: float = 1, dtype: DTypeLike | None = None
) -> NDArray:
    """
    Raise an AssertionError if two real arrays differ by more than a number of ULP.

    Parameters
    ----------
    a, b : array_like
        Real arrays, which NumPy compares.
    maxulp : int, default 1
        The largest difference in ULP.
    dtype : dtype_like, optional
        The dtype to convert both arrays to. By default their dtype.

    Returns
    -------
    ndarray
        The difference of each pair in ULP, as NumPy counts it.

    Raises
    ------
    ClosenessError
        If they differ by more. It is an AssertionError.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_array_max_ulp([1.0], [1.0 + 2**-52])
    array([[1.]])
    """
    __tracebackhide__ = True
    x, y = views(a, b)
    try:
        return _numpy_assert_array_max_ulp(x, y, maxulp, dtype)
    except AssertionError as error:
        x, y = (x, y) if dtype is None else (np.asarray(z, dtype) for z in (x, y))
        raise ulp_error(str(error), x, y, maxulp, equal_nan=True) from None


def assert_close(
    actual: PyTree,
    expected: PyTree,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """
    Raise an AssertionError if tensors, or sequences and mappings of tensors, are not close.

    The signature and the results are those of `torch.testing.assert_close`. torch need not be
    installed to compare NumPy arrays.

    Parameters
    ----------
    actual, expected : object
        Tensors, arrays, numbers or None, or sequences and mappings of these.
    allow_subclasses : bool, default True
        If True, the type of one may be a subclass of the type of the other.
    rtol : float, optional
        Relative tolerance. If `rtol` and `atol` are omitted, they are `calipers.default_tolerance`
        of the dtypes; pass both or neither.
    atol : float, optional
        Absolute tolerance.
    equal_nan : bool, default False
        If True, two NaN are equal.
    check_device : bool, default True
        If True, the devices have to be equal. If False, tensors are copied to the host.
    check_dtype : bool, default True
        If True, the dtypes have to be equal.
    check_layout : bool, default True
        If True, the layouts have to be equal. If False, sparse tensors are converted to dense ones.
    check_stride : bool, default False
        If True, the strides have to be equal.
    msg : str or callable, optional
        The text of the error, or a function that takes the report's text and returns it. By default
        it is the report.

    Raises
    ------
    ClosenessError
        If they are not close. It is an AssertionError, and its text lists all differences.
    TypeError
        If two types are not related, or an object is not an array.
    ValueError
        If only one of `rtol` and `atol` is passed, or one is negative, infinite or NaN.

    See Also
    --------
    calipers.assert_close : Ignores types, and has more options.

    Examples
    --------
    >>> from calipers import testing
    >>> testing.assert_close({"w": 1.0}, {"w": 1.0 + 1e-9})
    >>> testing.assert_close([1.0, 2.0], [1.0, 2])
    Traceback (most recent call last):
        ...
    calipers.ClosenessError: Not close: 1 of 2 items differs
    ...
    """
    __tracebackhide__ = True
    options = CheckedOptions(rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype)
    checks = Checks(allow_subclasses, check_device, check_dtype, check_layout, check_stride)
    leaves = tuple(related_leaves(actual, expected, checks))
    nested = len(leaves) != 1 or bool(leaves[0].path)
    require_close(leaves, nested, options, msg)


def _below_limit(decimal: float) -> float | None:
    """Return the largest number below ``1.5 * 10**-decimal``, or None if that is 0 or infinite."""
    limit = 1.5 * 10.0 ** (-decimal) if -decimal < 308 else math.inf
    return math.nextafter(limit, 0.0) if 0 < limit < math.inf else None


def _is_complex(x: Any) -> bool:
    """Return True if an array of any library is complex."""
    dtype = getattr(x, "dtype", None)  # frames have none
    return getattr(dtype, "kind", "") == "c" or getattr(dtype, "is_complex", False)


def _parts(x: Any) -> tuple[Any, Any]:
    """Return the real and imaginary parts; the latter is 0 for a real array."""
    return (x.real, x.imag) if _is_complex(x) else (x, 0)
