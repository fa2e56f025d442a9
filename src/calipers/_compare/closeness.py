"""
The functions allclose and isclose.

They call, in this order, `elementwise.fast_all_close` and `fast_each_close` (plain arrays), and
`elementwise.PairKernel` (all other arrays with kernels). Its kernels are loops over the scalar rule
`_kernels.scalar.closeness.close`. Arrays without kernels are compared by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, overload

import numpy as np
from numpy import allclose as _numpy_allclose
from numpy import isclose as _numpy_isclose

from .._core.arguments import is_weak
from .._core.arrays import (
    ArrayPair,
    as_pair,
    as_tolerance,
    broadcast_arrays,
    by_library,
    in_memory,
    is_foreign,
    require_numbers,
)
from .._core.dtypes import each_close, is_comparable, kernel_dtype
from .._core.libraries import HOST_TYPES, device_module, host_views, library_of, on_device
from .._core.protocols import NDArray
from .._core.types import ArrayLike, Chunks, Number, Real, RealArray
from ..interop.frames import columns, is_frame
from ..interop.times import common_format, distances, in_ticks, is_duration, time_format
from ..interop.units import tolerance_in, unit_of
from . import has_listeners, notify_mismatch
from .chunked import MEMORY_LIMIT, chunked_pair, is_stream
from .elementwise import PairKernel, as_alike_arrays, as_tolerances, fast_all_close, fast_each_close
from .nested import have_named_parts

_MaybeIndex = tuple[int, ...] | None

__all__ = [
    "allclose",
    "isclose",
]


@overload
def allclose(
    a: ArrayLike | Chunks,
    b: ArrayLike | Chunks,
    rtol: ArrayLike = 1e-5,
    atol: ArrayLike = 1e-8,
    equal_nan: bool = False,
    *,
    axis: None = None,
    memory_limit: float = MEMORY_LIMIT,
) -> bool: ...
@overload
def allclose(
    a: ArrayLike | Chunks,
    b: ArrayLike | Chunks,
    rtol: ArrayLike = 1e-5,
    atol: ArrayLike = 1e-8,
    equal_nan: bool = False,
    *,
    axis: int | tuple[int, ...],
    memory_limit: float = MEMORY_LIMIT,
) -> Any: ...
def allclose(
    a: ArrayLike | Chunks,
    b: ArrayLike | Chunks,
    rtol: ArrayLike = 1e-5,
    atol: ArrayLike = 1e-8,
    equal_nan: bool = False,
    *,
    axis: int | tuple[int, ...] | None = None,
    memory_limit: float = MEMORY_LIMIT,
) -> Any:
    """
    Return True if all elements of two arrays are equal within a tolerance.

    Two elements are close if ``a == b``, or if both are finite and ``|a - b| <= atol + rtol*|b|``.
    The rule is that of `numpy.allclose`, evaluated without overflow or underflow. The comparison
    stops at the first pair that is not close, and allocates no temporary arrays.

    Parameters
    ----------
    a, b : array_like
        Arrays whose shapes broadcast together; `b` is the reference. See Notes for the kinds of
        arrays that are accepted.
    rtol : float or array_like, default 1e-5
        Relative tolerance. An array broadcasts with `a` and `b`.
    atol : float, array_like, timedelta or quantity, default 1e-8
        Absolute tolerance, in the unit of `a` if it is a plain number.
    equal_nan : bool, default False
        If True, two NaN are equal.
    axis : int or tuple of int, optional
        Axis or axes to reduce over, as in `numpy.all`. By default all, which gives one bool.
    memory_limit : float, default 256 MiB
        The most memory, in bytes, that chunks of arrays on disk may take. A memory map smaller than
        this is read in one piece.

    Returns
    -------
    bool or array of bool
        One bool if `axis` is None. With `axis`, an array of the broadcast shape without those axes,
        of the same library as the inputs. Empty arrays are close.

    Raises
    ------
    TypeError
        If a dtype has no distance (strings), a tolerance is not a number, or one array is on a
        device and the other is not.
    ValueError
        If the shapes do not broadcast together, or one chunk exceeds `memory_limit`.
    OSError
        If a file cannot be read.

    Warns
    -----
    RuntimeWarning
        If a tolerance is infinite or NaN, as in NumPy. If a tolerance is negative, only equal
        elements are close.

    See Also
    --------
    isclose : The result for each element.
    array_equal : No tolerance and no broadcasting.
    assert_close : Raises an AssertionError with a report.

    Notes
    -----
    Floating-point numbers are compared in binary64 with an extended exponent range, integers
    exactly, and complex numbers by the modulus of their difference. An integer that is compared
    with a float is converted to binary64. A Python number takes the dtype of the other array.

    Accepted are:

    - NumPy arrays, and torch tensors and jax arrays in host memory, which are not copied;
    - two arrays on the same CUDA device;
    - arrays of zarr, h5py and dask, memory maps, and iterators of chunks along axis 0. They are
      read chunk by chunk. An iterator may reuse one buffer;
    - structured arrays, field by field, and frames of pandas, polars and pyarrow, column by column.
      Columns are matched by name, text has to be equal, and row labels are ignored;
    - arrays with units (astropy, unyt, pint), which are converted to the unit of `a`. Units that do
      not convert raise a TypeError;
    - dates and durations of NumPy, Python, pandas and cftime. Pass `atol` as a timedelta, and
      ``rtol=0`` for dates.

    Integers, Fraction and Decimal in object arrays are compared exactly. Other objects, longdouble,
    masked arrays and subclasses of ndarray are compared by NumPy, except that fully masked arrays
    are close. Arrays of libraries that implement NumPy's functions, such as awkward, are compared
    by those.

    Examples
    --------
    >>> import calipers
    >>> calipers.allclose([1.0, 2.0], [1.0, 2.00001])
    True
    >>> calipers.allclose([[0, 1], [2, 3]], [0, 1], axis=1)
    array([ True, False])
    >>> calipers.allclose(2**53, 2**53 + 1, rtol=0, atol=0)
    False
    """
    verdict = None
    if axis is None and memory_limit == MEMORY_LIMIT:  # else they are checked first
        verdict = fast_all_close(a, b, rtol, atol, equal_nan)
        if verdict is None and (pair := as_alike_arrays(a, b)) is not None:
            verdict = fast_all_close(*pair, rtol, atol, equal_nan)
    if verdict is None:
        verdict = _close(a, b, rtol, atol, equal_nan, axis, memory_limit)
    if verdict is False:  # and not the verdicts of rows
        notify_mismatch(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, check_shape=False)
    return verdict


def _close(
    a: Any,
    b: Any,
    rtol: Any,
    atol: Any,
    equal_nan: bool,
    axis: Any = None,
    memory_limit: float = MEMORY_LIMIT,
) -> Any:
    if on_device(a=a, b=b):
        if axis is not None:
            msg = "axis is not supported for arrays on a device: use isclose(a, b).all(axis)"
            raise TypeError(msg)
        return device_module("closeness").start_allclose(a, b, rtol, atol, equal_nan).result()
    chunked = chunked_pair(memory_limit, a=a, b=b)
    if chunked is not None:
        return chunked.every(_block_test(rtol, atol, equal_nan, axis))
    if have_named_parts(a, b):
        if axis is not None:
            msg = "axis is not supported for records and frames: call allclose for each field"
            raise TypeError(msg)
        return _agree_by_compare(a, b, rtol, atol, equal_nan, check_shape=False)
    a, b, rtol, atol = _in_one_unit(a, b, rtol, atol)
    if is_foreign(a) or is_foreign(b):
        close = by_library(_numpy_isclose, ("a", "b"), a, b, rtol, atol, equal_nan)
        return bool(np.all(close)) if axis is None else np.all(close, axis=axis)
    pair = _comparable(a, b)
    if pair.dtypes is None:
        if axis is None and any(isinstance(x, np.ma.MaskedArray) for x in pair[:2]):
            # For masked arrays, NumPy's result would depend on where chunks end.
            close = _by_numpy(_numpy_isclose, a, b, pair, rtol, atol, equal_nan)
            return bool(np.ma.filled(close, True).all())
        if axis is None:
            return bool(_by_numpy(_numpy_allclose, a, b, pair, rtol, atol, equal_nan))
        return np.all(_by_numpy(_numpy_isclose, a, b, pair, rtol, atol, equal_nan), axis=axis)
    kernel = PairKernel(pair, rtol, atol, equal_nan)
    if axis is None:
        return kernel.all_close()
    return _in_library(kernel.rows_close(axis), pair)


def _agree_by_compare(
    a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool, check_shape: bool = True
) -> bool:
    """Return the bool of `compare`, which supports structured arrays and any numbers."""
    from .compare import agree

    return agree(
        a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, check_shape=check_shape
    )


def _block_test(rtol: Any, atol: Any, equal_nan: bool, axis: Any) -> Callable[..., bool]:
    """Return the function that compares two blocks; raise if the options do not allow blocks."""
    if axis is not None:
        msg = "axis is not supported for arrays in chunks: call allclose for each row"
        raise TypeError(msg)
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if unit_of(tolerance) is not None or is_duration(tolerance):
            continue
        if not isinstance(as_tolerance(tolerance, name), float):
            msg = f"{name} must be a number for arrays in chunks, got an array"
            raise TypeError(msg)
    return partial(_close, rtol=rtol, atol=atol, equal_nan=equal_nan)


@overload
def isclose(
    a: Number, b: Number, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> np.bool: ...
@overload
def isclose(
    a: RealArray, b: Real, rtol: ArrayLike = 1e-5, atol: ArrayLike = 1e-8, equal_nan: bool = False
) -> np.ndarray[Any, np.dtype[np.bool]]: ...
@overload
def isclose(
    a: Real, b: RealArray, rtol: ArrayLike = 1e-5, atol: ArrayLike = 1e-8, equal_nan: bool = False
) -> np.ndarray[Any, np.dtype[np.bool]]: ...
@overload
def isclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1e-5,
    atol: ArrayLike = 1e-8,
    equal_nan: bool = False,
) -> Any: ...
def isclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1e-5,
    atol: ArrayLike = 1e-8,
    equal_nan: bool = False,
) -> Any:
    """
    Return for each pair of elements whether the two are equal within a tolerance.

    The rule is that of `allclose`. No memory is allocated except for the result.

    Parameters
    ----------
    a, b : array_like
        Arrays whose shapes broadcast together; `b` is the reference. Arrays of zarr, h5py and dask
        are loaded into memory. Columns of two frames are matched by name. Iterators and structured
        arrays are not supported.
    rtol : float or array_like, default 1e-5
        Relative tolerance. An array broadcasts with `a` and `b`.
    atol : float, array_like, timedelta or quantity, default 1e-8
        Absolute tolerance, in the unit of `a` if it is a plain number.
    equal_nan : bool, default False
        If True, two NaN are equal.

    Returns
    -------
    array of bool or numpy.bool
        Of the broadcast shape and the inputs' library; a scalar if both inputs are scalars. For two
        frames, a NumPy array with one column for each column of `a`, in that order.

    Raises
    ------
    TypeError
        If a dtype has no distance (strings), an array is structured, a tolerance is not a number,
        or one array is on a device and the other is not.
    ValueError
        If the shapes do not broadcast together, or two frames have different columns.

    Warns
    -----
    RuntimeWarning
        If a tolerance is infinite or NaN, as in NumPy.

    See Also
    --------
    allclose : One bool for all elements, which stops at the first mismatch.

    Examples
    --------
    >>> import calipers
    >>> calipers.isclose([1.0, float("nan")], [1.0 + 1e-9, float("nan")])
    array([ True, False])
    """
    x, y = host_views(a, b) or (a, b)
    verdicts = fast_each_close(x, y, rtol, atol, equal_nan)
    if verdicts is not None:
        _notify_unless_close(verdicts, a, b, rtol, atol, equal_nan)
        library = library_of(a)
        return verdicts[()] if library is None else library.from_numpy(verdicts)
    if on_device(a=a, b=b):
        return device_module("closeness").isclose(a, b, rtol, atol, equal_nan)
    for name, x in (("a", a), ("b", b)):
        if is_stream(x):
            msg = f"{name} is an iterator, but isclose takes whole arrays: use allclose"
            raise TypeError(msg)
    if have_named_parts(a, b):
        return _frames_close(a, b, rtol, atol, equal_nan)
    x, y, relative, absolute = _in_one_unit(a, b, rtol, atol)
    if is_foreign(x) or is_foreign(y):
        return by_library(_numpy_isclose, ("a", "b"), x, y, relative, absolute, equal_nan)
    pair = _comparable(x, y)
    if pair.dtypes is None:
        return _by_numpy(_numpy_isclose, x, y, pair, relative, absolute, equal_nan)
    verdicts = PairKernel(pair, relative, absolute, equal_nan).each_close()
    _notify_unless_close(verdicts, a, b, rtol, atol, equal_nan)
    return _in_library(verdicts, pair)


def _frames_close(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool) -> NDArray:
    """Return `isclose` of the columns of two frames, in the order of `a`; raise for records."""
    if not (is_frame(a) and is_frame(b)):
        msg = "a and b are records with several fields: compare each field, as in "
        raise TypeError(
            msg + "isclose(a['x'], b['x']), or use allclose or compare, which take all of them"
        )
    first, second = columns(a), columns(b)
    if first.keys() != second.keys():
        unmatched = ", ".join(map(repr, first.keys() ^ second.keys()))
        msg = f"a and b must have the same columns, but only one has {unmatched}: use compare"
        raise ValueError(msg)
    verdicts = [isclose(first[key][1], second[key][1], rtol, atol, equal_nan) for key in first]
    return np.column_stack(verdicts) if verdicts else np.empty((len(a), 0), bool)


def _notify_unless_close(
    verdicts: NDArray, a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool
) -> None:
    """Notify the listeners if some elements are not close."""
    if has_listeners() and not verdicts.all():
        notify_mismatch(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, check_shape=False)


def _in_one_unit(a: Any, b: Any, rtol: Any, atol: Any) -> tuple[Any, Any, Any, Any]:
    """Convert two arrays and their tolerances to numbers in one unit."""
    if HOST_TYPES.issuperset(map(type, (a, b, rtol, atol))):
        return a, b, rtol, atol
    a, b, unit = in_memory(a, b, ("a", "b"))
    return a, b, tolerance_in(rtol, None, "rtol"), tolerance_in(atol, unit, "atol")


def _comparable(a: Any, b: Any) -> ArrayPair:
    """Return two arrays as a pair; raise TypeError if their elements have no distance."""
    pair = as_pair(a, b)
    if pair.dtypes is not None or _ticks_of(pair) is not None:
        return pair
    for name, original, x in (("a", a, pair.a), ("b", b, pair.b)):
        if x.dtype.kind in "SUTVM" and kernel_dtype(x.dtype) is None:
            msg = f"{name} has dtype {x.dtype}, whose elements have no distance: use array_equal"
            if isinstance(original, Mapping):  # NumPy makes a string array of its keys
                kind = type(original).__name__
                msg = f"{name} is a mapping, {kind}: pass its arrays, or use compare"
            elif isinstance(original, str):
                msg += f"; load it if it names a file: {original!r:.60}"
            raise TypeError(msg)
    return pair


def _in_library(verdicts: NDArray, pair: ArrayPair) -> Any:
    """Convert a NumPy array of bool to an array of the inputs' library, or to a NumPy scalar."""
    return pair.library.from_numpy(verdicts) if pair.library else verdicts[()]


def _ticks_of(pair: ArrayPair) -> np.dtype[Any] | None:
    """Return the common dtype of two arrays of dates or durations; None for other arrays."""
    return common_format(time_format(pair.a), time_format(pair.b))


def _times_close(
    pair: ArrayPair, ticks: np.dtype[Any], rtol: Any, atol: Any, equal_nan: bool
) -> Any:
    """Return for each pair of dates or durations whether it is close."""
    from .statistics import times_close

    a, b = broadcast_arrays(pair.a, pair.b, subok=True)
    times = distances(a, b)
    kinds = f"a has dtype {a.dtype} and b {b.dtype}, "
    if times is None:
        raise TypeError(kinds + "whose elements have no distance: use array_equal")
    number = as_tolerance(rtol, "rtol")
    is_date = ticks.kind == "M"
    in_units = np.asarray(atol).dtype.kind in "m" or is_duration(atol)
    count: Any = np.asarray(0 if in_units else as_tolerance(atol, "atol"))
    unusable = (np.any(np.asarray(number)) or np.any(count)) if is_date else np.any(count % 1)
    if unusable:
        msg = f"{kinds}which take atol as a duration and rtol=0, got rtol={rtol!r:.40} and "
        msg += f"atol={atol!r:.40}: pass rtol=0 and atol=numpy.timedelta64(...), or use array_equal"
        if not is_date:
            msg = f"{kinds}so that atol must be a whole number of their unit, got {atol!r:.40}: "
            msg += "pass atol=numpy.timedelta64(...)"
        raise TypeError(msg)
    if is_duration(atol):
        count = in_ticks(atol, ticks)
    elif in_units:
        each = [in_ticks(x, ticks) for x in np.ravel(atol)]
        count = np.array(each, object).reshape(np.shape(atol))
    close = times_close(a, b, times, number, count, equal_nan)
    masks = [x.mask for x in (a, b) if isinstance(x, np.ma.MaskedArray)]
    return np.ma.array(close, mask=np.logical_or.reduce(masks)) if masks else close[()]


def _by_numpy(function: Callable[..., Any], a: Any, b: Any, pair: ArrayPair, *rest: Any) -> Any:
    """Compare arrays without kernels by a function of NumPy, or exactly if it does not apply."""
    require_numbers(a=a, b=b)
    ticks = _ticks_of(pair)
    if ticks is not None or is_comparable(pair.a, pair.b):
        if ticks is None:
            close = each_close(pair.a, pair.b, *as_tolerances(*rest[:2]), rest[2])
        else:
            close = _times_close(pair, ticks, *rest)
        return close if function is _numpy_isclose else close.all()
    # A Python number stays one, so that NumPy treats it as weak (NEP 50).
    operands = [x if is_weak(x) else array for x, array in zip((a, b), pair[:2], strict=True)]
    try:
        with np.errstate(all="ignore"):
            return function(*operands, *rest)
    except Exception as error:  # the objects' own arithmetic may raise anything
        kinds = pair.a.dtype.kind + pair.b.dtype.kind
        if "O" in kinds and _are_numbers(pair):
            # NumPy cannot convert an integer beyond the largest float to a complex number.
            return _each_by_compare(function, pair.a, pair.b, *rest)
        if "m" in kinds and isinstance(error, TypeError):
            msg = (
                f"a has dtype {pair.a.dtype} and b {pair.b.dtype}, whose elements have no distance"
            )
            raise TypeError(msg) from None
        for name, x in (("a", pair.a), ("b", pair.b)):
            if x.dtype.kind == "O":
                error.add_note(f"{name} has dtype object: its elements' own arithmetic was used")
        raise


def _are_numbers(pair: ArrayPair) -> bool:
    from .statistics import are_numbers

    return all(are_numbers(x).all() for x in (pair.a, pair.b))


def _each_by_compare(
    function: Callable[..., Any], a: NDArray, b: NDArray, rtol: Any, atol: Any, equal_nan: bool
) -> Any:
    """Compare numbers for which NumPy's function raises, by `compare`."""
    agree = partial(_agree_by_compare, rtol=rtol, atol=atol, equal_nan=equal_nan, check_shape=False)
    if function is _numpy_allclose:
        return agree(a, b)
    return np.asarray(np.frompyfunc(agree, 2, 1)(a, b), bool)[()]
