"""
The names of numpy.testing and of torch.testing, with calipers' verdicts and reports.

``from calipers import testing as npt`` takes the place of either. Arrays that calipers has kernels
for are compared by them, wherever they lie: in NumPy's hands, in torch's or jax's, in chunks, or on
a CUDA device. Everything else (objects, strings, dates, masks, subclasses, scalars, order) is
decided by NumPy's own assertion, and what is not about arrays is NumPy's. `make_tensor` is torch's.

`docs/testing.md` lists what differs.
"""

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

from ._assertions import (
    Head,
    ask_numpy,
    assert_within,
    is_array,
    is_tolerance,
    plainly_equal,
    plainly_pass,
    spacings_apart,
    steps_apart,
    to_array,
    views,
)
from ._comparing import require_close
from ._options import checked_options
from ._pairs import Checks, related_leaves
from .interop.times import is_duration
from .interop.units import unit_of
from .reports import ClosenessError

__all__ = [*numpy.testing.__all__, "assert_close"]


if TYPE_CHECKING:
    # What is not ours, as checkers know it.
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

    # torch's own type would have checkers read all of torch.
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
    actual: Any,
    desired: Any,
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
        Arrays of one shape, or an array and a number.
    rtol, atol : float
        A pair is close if ``|actual - desired| <= atol + rtol*|desired|``.
    equal_nan : bool, default True
        Whether two NaN are close.
    err_msg : str, optional
        What to say beside the report.
    verbose : bool, default True
        Whether to give the whole report, and not its first line alone.
    strict : bool, default False
        Whether shapes and dtypes have to be equal.

    Raises
    ------
    ClosenessError
        If they are not close. Its text begins as NumPy's and ends with the report, its ``.report``
        is what `calipers.compare` returns.

    See Also
    --------
    calipers.allclose : The verdict.
    calipers.assert_close : Tolerances by dtype.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_allclose([1.0, 2.0], [1.0, 2.0 + 1e-9])
    >>> npt.assert_allclose([1.0, 2.0], [1.0, 2.5])
    Traceback (most recent call last):
        ...
    calipers.ClosenessError:
    Not equal to tolerance rtol=1e-07, atol=0
    Not close: 1 of 2 elements differs (50 %)
    ...
    """
    __tracebackhide__ = True
    by_tolerances = is_tolerance(rtol) and is_tolerance(atol)
    if by_tolerances and plainly_pass(
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
        ask_numpy(by_numpy, actual, desired)
        return
    absolute = str(atol) if has_unit else f"{atol:g}"
    head = Head(f"Not equal to tolerance rtol={rtol:g}, atol={absolute}", err_msg, verbose)
    assert_within(actual, desired, float(rtol), atol, by_numpy, head, bool(equal_nan), strict)


def assert_array_equal(
    actual: Any,
    desired: Any,
    err_msg: object = "",
    verbose: bool = True,
    *,
    strict: bool = False,
) -> None:
    """
    Raise an AssertionError if two arrays are not equal; NaN are equal to each other.

    Parameters
    ----------
    actual, desired, err_msg, verbose, strict
        As for `assert_allclose`.

    Raises
    ------
    ClosenessError
        If they are not equal.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_array_equal([1.0, float("nan")], [1, float("nan")])
    """
    __tracebackhide__ = True
    if plainly_pass(actual, desired, 0.0, 0.0, strict=strict):
        return
    by_numpy = partial(_numpy_assert_array_equal, err_msg=err_msg, verbose=verbose, strict=strict)
    head = Head("Arrays are not equal", err_msg, verbose)
    assert_within(actual, desired, 0.0, 0.0, by_numpy, head, strict=strict)


def assert_array_almost_equal(
    actual: Any, desired: Any, decimal: float = 6, err_msg: object = "", verbose: bool = True
) -> None:
    """
    Raise an AssertionError unless ``|actual - desired| < 1.5 * 10**-decimal`` everywhere.

    Parameters
    ----------
    actual, desired, err_msg, verbose
        As for `assert_allclose`.
    decimal : int, default 6
        The decimal places that have to agree.

    Raises
    ------
    ClosenessError
        If they do not agree.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_array_almost_equal([1.0, 2.0], [1.0, 2.0001], decimal=3)
    """
    __tracebackhide__ = True
    atol = _below_limit(decimal)
    if atol is not None and plainly_pass(actual, desired, 0.0, atol):
        return
    by_numpy = partial(
        _numpy_assert_array_almost_equal, decimal=decimal, err_msg=err_msg, verbose=verbose
    )
    if atol is None:
        ask_numpy(by_numpy, actual, desired)
        return
    head = Head(f"Arrays are not almost equal to {int(decimal)} decimals", err_msg, verbose)
    assert_within(actual, desired, 0.0, atol, by_numpy, head)


def assert_almost_equal(
    actual: Any, desired: Any, decimal: float = 7, err_msg: object = "", verbose: bool = True
) -> None:
    """
    Raise an AssertionError if two numbers or arrays differ in a decimal place.

    Parameters
    ----------
    actual, desired : array_like
        Numbers are judged by NumPy, arrays as by `assert_array_almost_equal`; of complex ones the
        two parts, too.
    decimal : int, default 7
        The decimal places that have to agree.
    err_msg, verbose
        As for `assert_allclose`.

    Raises
    ------
    ClosenessError
        If they do not agree.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_almost_equal([1.0, 2.0], [1.0, 2.00000001])
    """
    __tracebackhide__ = True
    if type(actual) is type(desired) is float:
        atol = _below_limit(decimal)
        if atol is not None and abs(desired - actual) <= atol:
            return
    if not any(is_array(x) or isinstance(x, list | tuple) for x in (actual, desired)):
        ask_numpy(_numpy_assert_almost_equal, actual, desired, decimal, err_msg, verbose)
        return
    a, b = to_array(actual), to_array(desired)
    if _is_complex(a) or _is_complex(b):
        for x, y in zip(_parts(a), _parts(b), strict=True):
            assert_almost_equal(x, y, decimal, err_msg, verbose)
    assert_array_almost_equal(a, b, decimal, err_msg, verbose)


def assert_equal(
    actual: Any,
    desired: Any,
    err_msg: object = "",
    verbose: bool = True,
    *,
    strict: bool = False,
) -> None:
    """
    Raise an AssertionError if two objects are not equal: arrays, or what dicts and lists hold.

    Parameters
    ----------
    actual, desired : object
        Arrays are judged as by `assert_array_equal`, anything else by NumPy.
    err_msg, verbose, strict
        As for `assert_allclose`.

    Raises
    ------
    ClosenessError
        If they are not equal.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import testing as npt
    >>> npt.assert_equal({"a": [np.arange(3), 1]}, {"a": [np.arange(3), 1.0]})
    """
    __tracebackhide__ = True
    if plainly_equal(actual, desired) and not strict:
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
            if not plainly_equal(a, b):
                assert_equal(a, b, f"item={i}\n{err_msg}", verbose)
    elif not isinstance(desired, dict) and (is_array(actual) or is_array(desired)):
        assert_array_equal(actual, desired, err_msg, verbose, strict=strict)
    else:
        ask_numpy(_numpy_assert_equal, actual, desired, err_msg, verbose, strict=strict)


def assert_approx_equal(
    actual: Any,
    desired: Any,
    significant: int = 7,
    err_msg: object = "",
    verbose: bool = True,
) -> None:
    """
    Raise an AssertionError if two numbers differ in a significant digit, as NumPy's does.

    Parameters
    ----------
    actual, desired : scalar
        Two numbers.
    significant : int, default 7
        How many digits have to agree.
    err_msg, verbose
        As for `assert_allclose`.

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
    ask_numpy(_numpy_assert_approx_equal, *views(actual, desired), significant, err_msg, verbose)


def assert_array_less(
    x: Any, y: Any, err_msg: object = "", verbose: bool = True, *, strict: bool = False
) -> None:
    """
    Raise an AssertionError unless ``x < y`` everywhere, or both are NaN, as NumPy's does.

    Parameters
    ----------
    x, y : array_like
        What is to be less, and than what.
    err_msg, verbose, strict
        As for `assert_allclose`.

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
    ask_numpy(_numpy_assert_array_less, *views(x, y), err_msg, verbose, strict=strict)


def assert_array_compare(
    comparison: Callable[[Any, Any], Any],
    x: Any,
    y: Any,
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
    Raise an AssertionError unless ``comparison(x, y)`` is true everywhere, as NumPy's does.

    Parameters
    ----------
    comparison : callable
        Tells of two arrays, element by element, whether they are as they should be.
    x, y : array_like
        The two arrays.
    err_msg, verbose, strict
        As for `assert_allclose`.
    header : str, optional
        The first line of the error.
    precision : int, default 6
        How many digits of elements the error shows.
    equal_nan, equal_inf : bool, default True
        Whether NaN, and infinities, have to be in the same places, and are then left out.
    names : tuple of str, default ("ACTUAL", "DESIRED")
        What the error calls the two.

    Raises
    ------
    AssertionError
        If the comparison is false somewhere.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import testing as npt
    >>> npt.assert_array_compare(np.greater_equal, [1.0, 2.0], [1.0, 1.5])
    """
    __tracebackhide__ = True
    ask_numpy(
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


def assert_array_almost_equal_nulp(x: Any, y: Any, nulp: float = 1) -> None:
    """
    Raise an AssertionError unless ``|x - y| <= nulp * spacing(max(|x|, |y|))`` everywhere.

    Parameters
    ----------
    x, y : array_like
        Real or complex numbers, judged by NumPy.
    nulp : int, default 1
        The spacings that they may be apart.

    Raises
    ------
    ClosenessError
        If they are farther apart. The report counts in steps of the format.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import testing as npt
    >>> npt.assert_array_almost_equal_nulp(np.ones(2), np.nextafter(np.ones(2), 2))
    """
    __tracebackhide__ = True
    x, y = views(x, y)
    try:
        _numpy_assert_array_almost_equal_nulp(x, y, nulp)
    except AssertionError as error:
        raise steps_apart(str(error), x, y, nulp, equal_nan=False) from None
    except ValueError:
        x, y = np.asarray(x), np.asarray(y)
        if x.shape != y.shape or np.result_type(x, y) != np.longdouble:
            raise
        raise ClosenessError(spacings_apart(x, y, nulp)) from None


def assert_array_max_ulp(a: Any, b: Any, maxulp: float = 1, dtype: Any = None) -> Any:
    """
    Raise an AssertionError if two real arrays are more than some steps of their format apart.

    Parameters
    ----------
    a, b : array_like
        Real numbers, judged by NumPy.
    maxulp : int, default 1
        The steps that they may be apart.
    dtype : dtype_like, optional
        The format, if not that of the arrays.

    Returns
    -------
    ndarray
        The steps between each pair, as NumPy counts them.

    Raises
    ------
    ClosenessError
        If they are farther apart.

    Examples
    --------
    >>> from calipers import testing as npt
    >>> npt.assert_array_max_ulp([1.0], [1.0 + 2**-52])
    array([[1.]])
    """
    __tracebackhide__ = True
    a, b = views(a, b)
    try:
        return _numpy_assert_array_max_ulp(a, b, maxulp, dtype)
    except AssertionError as error:
        x, y = (a, b) if dtype is None else (np.asarray(z, dtype) for z in (a, b))
        raise steps_apart(str(error), x, y, maxulp, equal_nan=True) from None


def assert_close(
    actual: Any,
    expected: Any,
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
    Raise an AssertionError if tensors, or sequences and mappings of them, are not close.

    The signature and the verdicts are those of `torch.testing.assert_close`; torch need not be
    installed to compare arrays of NumPy.

    Parameters
    ----------
    actual, expected : object
        Tensors or arrays, numbers, None, or sequences and mappings of these.
    allow_subclasses : bool, default True
        Whether one of two types may be a subclass of the other.
    rtol, atol : float, optional
        Both or neither. By default `calipers.default_tolerance` of the dtypes.
    equal_nan : bool, default False
        Whether two NaN are close.
    check_device, check_dtype, check_layout, check_stride : bool
        Whether these have to be equal; where they need not, a device's tensor is copied to the
        host, and a sparse one made dense.
    msg : str or callable, optional
        The text of the error in place of the report, or a function from the report to it.

    Raises
    ------
    ClosenessError
        If they are not close. Its text names all that differs.
    TypeError
        If two types are not related, or one of them is no array.
    ValueError
        If one of `rtol` and `atol` is missing, or if it is negative, infinite or NaN.

    See Also
    --------
    calipers.assert_close : Without torch's rules on types, and with more options.

    Examples
    --------
    >>> from calipers import testing
    >>> testing.assert_close({"w": 1.0}, {"w": 1.0 + 1e-9})
    >>> testing.assert_close([1.0, 2.0], [1.0, 2])
    Traceback (most recent call last):
        ...
    calipers.ClosenessError: Not close: 1 of 2 leaves differs
      [1]  types differ: float and int; check_dtype=False lets that pass
    """
    __tracebackhide__ = True
    options = checked_options(rtol, atol, equal_nan=equal_nan, check_dtype=check_dtype)
    checks = Checks(allow_subclasses, check_device, check_dtype, check_layout, check_stride)
    leaves = tuple(related_leaves(actual, expected, checks))
    nested = len(leaves) != 1 or bool(leaves[0].path)
    require_close(leaves, nested, options, msg)


def _below_limit(decimal: float) -> float | None:
    """Return the largest number below ``1.5 * 10**-decimal``, or None if that is 0 or infinite."""
    limit = 1.5 * 10.0 ** (-decimal) if -decimal < 308 else math.inf
    return math.nextafter(limit, 0.0) if 0 < limit < math.inf else None


def _is_complex(x: Any) -> bool:
    """Tell whether an array is complex, by the dtype that it has in its library."""
    dtype = getattr(x, "dtype", None)  # a frame has one for each column
    return getattr(dtype, "kind", "") == "c" or getattr(dtype, "is_complex", False)


def _parts(x: Any) -> tuple[Any, Any]:
    """Return what stands for the real and imaginary part: of a real array, 0 for the second."""
    return (x.real, x.imag) if _is_complex(x) else (x, 0)
