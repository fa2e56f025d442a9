"""The functions array_equal, allfinite and first_nonfinite."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy import array_equal as _numpy_array_equal

from .._core.arrays import (
    as_array,
    as_elements,
    by_library,
    in_memory,
    is_foreign,
    overrides_numpy,
    refuse_foreign,
    require_dense,
    require_numbers,
    undecided_objects,
)
from .._core.dtypes import is_integers, kernel_dtype
from .._core.libraries import device_module, host_views, library_of, on_device, require_host
from .._core.protocols import ChunkedPair, NDArray, UnevenError
from .._core.types import ArrayLike, Chunks
from ..interop.frames import is_frame
from ..interop.units import UnitError, numbers_of
from . import notify_mismatch
from .chunked import MEMORY_LIMIT, chunked_pair
from .closeness import _agree_by_compare, _MaybeIndex
from .elementwise import as_short_array, equal_arrays, position_of_nonfinite
from .nested import have_named_parts


def array_equal(
    a1: ArrayLike | Chunks,
    a2: ArrayLike | Chunks,
    equal_nan: bool = False,
    *,
    memory_limit: float = MEMORY_LIMIT,
) -> bool:
    """
    Return True if two arrays have the same shape and equal elements.

    The comparison stops at the first pair that differs.

    Parameters
    ----------
    a1, a2 : array_like
        Arrays of any dtype. Strings and other dtypes without a compiled kernel are compared by
        NumPy's ``==``. Structured arrays are compared field by field, and frames column by column.
        Columns are matched by name, and row labels are ignored. Arrays with units are converted to
        one unit: ``1 km`` equals ``1000 m``. Masks are ignored, as in NumPy.
    equal_nan : bool, default False
        If True, two NaN are equal.
    memory_limit : float, default 256 MiB
        The most memory, in bytes, that chunks of arrays on disk may take, as in `allclose`.

    Returns
    -------
    bool
        False if the shapes differ, even if they broadcast together.

    Raises
    ------
    TypeError
        If one array is on a device and the other is not, an array is sparse, or ``==`` of two
        objects is neither true nor false.
    OSError
        If a file cannot be read.

    See Also
    --------
    allclose : With a tolerance and broadcasting.

    Examples
    --------
    >>> import calipers
    >>> calipers.array_equal([1, 2], [1.0, 2.0])
    True
    >>> calipers.array_equal([1, 2], [[1, 2]])
    False
    """
    views = None
    if memory_limit == MEMORY_LIMIT:  # else that is checked
        views = host_views(a1, a2) or host_views(_as_plain(a1), _as_plain(a2))
    if views is None:
        equal = _equal(a1, a2, equal_nan, memory_limit)
    else:
        equal = _equal_arrays(views[0], views[1], equal_nan)
    if not equal:
        notify_mismatch(a1, a2, rtol=0.0, atol=0.0, equal_nan=equal_nan)
    return equal


def _as_plain(x: Any) -> Any:
    """Convert a Python number or a short list of them to an array; return all else unchanged."""
    return np.array(x) if type(x) in (float, int, complex) else as_short_array(x)


def _equal(a1: Any, a2: Any, equal_nan: bool, memory_limit: float = MEMORY_LIMIT) -> bool:
    if on_device(a1=a1, a2=a2):
        return bool(device_module("closeness").array_equal(a1, a2, equal_nan))
    require_host(a1=a1, a2=a2)
    require_dense(a1=a1, a2=a2)
    chunked = chunked_pair(memory_limit, a1=a1, a2=a2)
    if chunked is not None:
        return _chunked_equal(chunked, equal_nan)
    if is_frame(a1) and is_frame(a2):
        return len(a1) == len(a2) and _agree_by_compare(a1, a2, 0.0, 0.0, equal_nan)
    if have_named_parts(a1, a2) and (is_foreign(a1) or is_foreign(a2)):
        return _agree_by_compare(a1, a2, 0.0, 0.0, equal_nan)
    try:
        a, b, _ = in_memory(a1, a2, ("a1", "a2"), strict=True)
    except UnitError:
        return False
    if overrides_numpy(a) or overrides_numpy(b):
        options = {"equal_nan": True} if equal_nan else {}
        return bool(by_library(_numpy_array_equal, ("a1", "a2"), a, b, **options))
    refuse_foreign(a, "a1")
    refuse_foreign(b, "a2")
    a, b = (x if library_of(x) is None else as_array(x) for x in (a, b))
    try:
        # As in NumPy, both become arrays, so that no number is weak, and a ragged list is unequal
        # to everything.
        a, b = np.asarray(as_elements(a, "a1")), np.asarray(as_elements(b, "a2"))
    except ValueError:
        return False
    return _equal_arrays(a, b, equal_nan)


def _equal_arrays(a: NDArray, b: NDArray, equal_nan: bool) -> bool:
    try:
        return equal_arrays(a, b, equal_nan)
    except (TypeError, ValueError, RuntimeError, ArithmeticError, Warning) as error:
        require_dense(a1=a, a2=b)
        undecided = undecided_objects(a, b, ("a1", "a2"))
        if undecided is None:
            raise
        raise undecided from error


def _chunked_equal(chunked: ChunkedPair, equal_nan: bool) -> bool:
    if chunked.has_shapes and len(set(chunked.shapes())) > 1:
        return False
    try:
        equal = chunked.every(partial(_equal, equal_nan=equal_nan))
    except UnevenError:
        return False
    return equal and len(set(chunked.shapes())) == 1


def allfinite(a: ArrayLike | Chunks, *, memory_limit: float = MEMORY_LIMIT) -> bool:
    """
    Return True if an array has neither NaN nor infinities.

    The search stops at the first one, and allocates no temporary array.

    Parameters
    ----------
    a : array_like
        An array of any shape. A complex number is finite if both of its parts are. Arrays on disk
        are read chunk by chunk, as in `allclose`.
    memory_limit : float, default 256 MiB
        The most memory, in bytes, that chunks of arrays on disk may take.

    Returns
    -------
    bool
        True for an empty array.

    Raises
    ------
    TypeError
        If the elements are not numbers (strings, objects).
    OSError
        If a file cannot be read.

    See Also
    --------
    first_nonfinite : The index of the first NaN or infinity.

    Examples
    --------
    >>> import calipers
    >>> calipers.allfinite([0.0, 1e308])
    True
    """
    if type(a) is np.ndarray and memory_limit == MEMORY_LIMIT:  # else that is checked first
        return first_nonfinite(a) is None
    chunked = chunked_pair(memory_limit, a=a)
    return chunked.every(allfinite) if chunked is not None else first_nonfinite(a) is None


def first_nonfinite(
    a: ArrayLike | Chunks, *, memory_limit: float = MEMORY_LIMIT
) -> tuple[int, ...] | None:
    """
    Return the index of the first NaN or infinity of an array, in C order.

    Parameters
    ----------
    a : array_like
        An array of any shape. Arrays on disk are read to their end, since a later chunk may hold an
        element with a smaller index.
    memory_limit : float, default 256 MiB
        The most memory, in bytes, that chunks of arrays on disk may take, as in `allclose`.

    Returns
    -------
    tuple of int or None
        The index of the element, or None if all are finite.

    Raises
    ------
    TypeError
        If the elements are not numbers (strings, objects).
    OSError
        If a file cannot be read.

    See Also
    --------
    allfinite : Return True if all elements are finite.

    Examples
    --------
    >>> import calipers
    >>> calipers.first_nonfinite([[1.0, 2.0], [float("inf"), 4.0]])
    (1, 0)
    """
    if type(a) is np.ndarray and memory_limit == MEMORY_LIMIT:  # else that is checked first
        x = a
    elif on_device(a=a):
        array: Any = a
        position = device_module("closeness").first_nonfinite(array)
        return _index(position, array.shape)
    else:
        chunked = chunked_pair(memory_limit, a=a)
        if chunked is not None:
            return chunked.reduce(_nonfinite_of_block, _earlier)
        x = as_array(numbers_of(a))
    dtype = kernel_dtype(x.dtype) if type(x) is np.ndarray else None
    if dtype is None:
        require_numbers(a=a)
        if is_integers(x):
            x = x != x  # a missing integer is NaN
            return _index(int(x.argmax()) if x.any() else -1, x.shape)
        try:
            finite = np.isfinite(x)
        except TypeError:
            msg = f"a has dtype {x.dtype}, which numpy.isfinite does not support"
            raise TypeError(msg) from None
        bad = np.flatnonzero(np.ma.filled(~finite, False))
        position = int(bad[0]) if bad.size else -1
    elif dtype.kind in "biu":
        position = -1
    else:
        position = position_of_nonfinite(x, dtype)
    return _index(position, x.shape)


def _nonfinite_of_block(corner: tuple[int, ...], block: NDArray) -> tuple[int, ...] | None:
    index = first_nonfinite(block)
    return index and tuple(i + start for i, start in zip(index, corner, strict=True))


def _earlier(left: _MaybeIndex, right: _MaybeIndex) -> _MaybeIndex:
    return min((x for x in (left, right) if x is not None), default=None)


def _index(position: int, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if position < 0:
        return None
    return tuple(int(i) for i in np.unravel_index(position, tuple(shape)))
