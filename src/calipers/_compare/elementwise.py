"""
Elementwise comparison of two arrays in host memory: all elements, each element, and each row.

- `all_close` and `each_close` are the entry points for arrays.
- `fast_all_close`, `fast_each_close` and `fast_agree` are the fast paths, for contiguous arrays of
  one dtype and shape. They return None if they do not apply.
- `PairKernel` compares all other pairs that have kernels, block by block.

The kernels are loops over the scalar rule, `_kernels.scalar.closeness.close`.
"""

from collections.abc import Callable, Sequence
from math import inf, isfinite, prod
from typing import Any

import numpy as np
from numpy import array_equal as _numpy_array_equal
from numpy.lib.array_utils import normalize_axis_tuple

from .._core.arguments import is_weak, warn
from .._core.arrays import (
    ArrayPair,
    as_pair,
    as_tolerance,
    broadcast_arrays,
    broadcast_shape,
    strengthen,
)
from .._core.dtypes import (
    COMPLEX128,
    FLOAT64,
    DType,
    kernel_dtype,
    record_names,
    widest,
    working_dtypes,
)
from .._core.jit import Kernels
from .._core.libraries import IN_MEMORY_TYPES, host_views
from .._core.protocols import NDArray
from .._core.types import CompareOptions
from .._execution.block_passes import SERIAL_BYTES, BlockCall, converted, fill, scan, scan_views
from .._kernels.closeness import (
    FIRST_MISMATCH,
    MASK,
    MASK_EACH,
    MISMATCHED_COLUMNS,
    MISMATCHED_ROWS,
)
from .._kernels.equality import FIRST_NONFINITE, FIRST_UNEQUAL, FIRST_UNEQUAL_STRIDED
from ..interop.times import distances
from .statistics import tally_pair
from .tolerances import default_of

# Rows of at least this many elements are compared one by one, each with its own threads and its own
# early stop.
_LONG_ROW_ELEMENTS = 1 << 14
# Arrays of at most this many bytes that are not in C order are copied: 128 KiB is about the size of
# the buffers that a pass without a copy needs.
_MAX_COPIED_BYTES = 1 << 17
# Options of `compare` that `fast_agree` supports, or that do not matter to arrays of one dtype.
_FAST_OPTIONS = frozenset({"rtol", "atol", "equal_nan", "check_dtype", "check_shape"})
# The dtypes of the scalar types that `fast_agree` supports.
_FORMATS = {float: FLOAT64, np.float64: FLOAT64, complex: COMPLEX128, np.complex128: COMPLEX128}
_PYTHON_NUMBERS = frozenset({float, int})
_ARRAYS_AND_NUMBERS = IN_MEMORY_TYPES - {list, tuple}


def _fast_call(
    kernels: Kernels, a: Any, b: Any, rtol: Any = 0.0, atol: Any = 0.0, strided: Any = None
) -> tuple[Callable[..., Any], NDArray, NDArray] | None:
    """Return a kernel and its two vectors if no element has to be converted, else None.

    Small arrays that are not in C order are copied, which is faster than to set up buffers. Arrays
    need not be aligned, since kernels use unaligned loads. `strided` are kernels for strided
    vectors, which are not copied.
    """
    if not (
        type(a) is np.ndarray
        and type(b) is np.ndarray
        and a.dtype is b.dtype
        and a.shape == b.shape
        and type(rtol) is float
        and type(atol) is float
        and 0.0 <= rtol < inf
        and 0.0 <= atol < inf
    ):
        return None
    contiguous = a.flags.c_contiguous and b.flags.c_contiguous
    is_strided = strided is not None and a.ndim == 1 and not contiguous
    chosen = strided if is_strided else kernels
    kernel = chosen.get(a.dtype)
    if kernel is None:
        if chosen.by_numpy is None or kernel_dtype(a.dtype) != a.dtype:
            return None
        kernel = chosen.entry_point(a.dtype, a.size)
    if contiguous or is_strided:
        return (kernel, a, b) if a.ndim == 1 else (kernel, a.ravel(), b.ravel())
    if a.nbytes > _MAX_COPIED_BYTES:
        return None
    order: Any = "K" if a.ndim > 1 and a.strides == b.strides else "C"
    return kernel, a.ravel(order), b.ravel(order)


def as_short_array(x: Any) -> Any:
    """Convert a short list of Python numbers to an array; return all else unchanged."""
    if type(x) is not list and type(x) is not tuple:
        return x
    short = 0 < len(x) <= _MAX_COPIED_BYTES // FLOAT64.itemsize
    if not (short and _PYTHON_NUMBERS.issuperset(map(type, x))):
        return x
    array = np.array(x)
    # NumPy may round large integers to floats.
    rounded = array.dtype == FLOAT64 and type(x[0]) is not float
    return x if rounded else array


def as_alike_arrays(a: Any, b: Any) -> tuple[NDArray, NDArray] | None:
    """Convert small arrays, lists of numbers or a number to arrays of one dtype and shape.

    Python numbers take the dtype of the array (NEP 50). Return None for other types, for dtypes
    without kernels, and for large arrays, which are converted block by block instead.
    """
    a, b = as_short_array(a), as_short_array(b)
    if not _ARRAYS_AND_NUMBERS.issuperset((type(a), type(b))):
        return None
    weak = is_weak(b)
    if is_weak(a):
        a = strengthen(a, np.asarray(b).dtype)
    if weak:
        b = strengthen(b, a.dtype)
    dtypes = working_dtypes(a.dtype, b.dtype)
    if dtypes is None:
        return None
    try:
        copies = converted([np.asarray(a), np.asarray(b)], dtypes)
    except ValueError:  # the shapes do not broadcast; the caller raises with the argument names
        return None
    return None if copies is None else (copies[0], copies[1])


def fast_all_close(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool) -> bool | None:
    """Return True if all elements are close; None if the arrays do not suit the fast path."""
    if type(a) is not np.ndarray:
        views = host_views(a, b)
        if views is None:
            return None
        a, b = views
    call = _fast_call(FIRST_MISMATCH, a, b, rtol, atol)
    if call is None:
        return None
    kernel, x, y = call
    if x.nbytes <= SERIAL_BYTES // 2:
        at: int = kernel(x, y, rtol, atol, equal_nan)
    else:
        at = scan_views(lambda _, x, y: kernel(x, y, rtol, atol, equal_nan), (x, y))
    return at < 0


def fast_agree(actual: Any, expected: Any, options: CompareOptions) -> bool | None:
    """Return True if two arrays or numbers of one dtype are close; None for all others.

    None also means that there is an option that only a full comparison supports.
    """
    if not _FAST_OPTIONS.issuperset(options):
        return None
    if type(actual) is not np.ndarray:
        format_of = _FORMATS.get(type(actual))
        if format_of is not None and _FORMATS.get(type(expected)) is format_of:
            actual, expected = np.array(actual, format_of), np.array(expected, format_of)
        else:
            views = host_views(actual, expected)
            if views is None:
                return None
            actual, expected = views
    rtol, atol = options.get("rtol"), options.get("atol")
    if rtol is None and atol is None:
        rtol, atol = default_of(actual.dtype)
    equal_nan = "equal_nan" in options and bool(options["equal_nan"])
    return fast_all_close(actual, expected, rtol, atol, equal_nan)


def fast_each_close(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool) -> NDArray | None:
    """Return for each element whether it is close; None if the fast path does not apply."""
    for x in (a, b):  # the result has the order of the arrays
        if type(x) is np.ndarray and x.ndim > 1 and not x.flags.c_contiguous:
            return None
    call = _fast_call(MASK, a, b, rtol, atol)
    if call is None and (pair := as_alike_arrays(a, b)) is not None:
        a, b = pair
        call = _fast_call(MASK, a, b, rtol, atol)
    if call is None:
        return None
    kernel, x, y = call
    out = np.empty(a.shape, dtype=bool)
    if x.nbytes <= SERIAL_BYTES // 2:
        kernel(x, y, rtol, atol, equal_nan, out.ravel())
    else:
        scan_views(lambda _, x, y, z: kernel(x, y, rtol, atol, equal_nan, z), (x, y, out.ravel()))
    return out


def as_tolerances(rtol: Any, atol: Any) -> tuple[float | NDArray, float | NDArray]:
    """Convert tolerances to floats or arrays; warn as NumPy does if one is infinite or NaN."""
    both = as_tolerance(rtol, "rtol"), as_tolerance(atol, "atol")
    if not all(map(_finite, both)):
        msg = f"One of rtol or atol is not valid, atol: {atol}, rtol: {rtol}"
        warn(msg, RuntimeWarning)
    return both


class PairKernel:
    """Elementwise comparison of two arrays that have kernels; tolerances are numbers or arrays."""

    def __init__(self, pair: ArrayPair, rtol: Any, atol: Any, equal_nan: bool) -> None:
        assert pair.dtypes is not None
        self._rtol, self._atol = as_tolerances(rtol, atol)
        self._equal_nan = equal_nan
        self._arrays: list[NDArray] = [pair.a, pair.b]
        self._dtypes = list(pair.dtypes)
        self._has_tolerance_arrays = type(self._rtol) is not float or type(self._atol) is not float
        if self._has_tolerance_arrays:
            self._arrays += [np.asarray(self._rtol), np.asarray(self._atol)]
            self._dtypes = [*map(widest, pair.dtypes), FLOAT64, FLOAT64]
        self._shape = broadcast_shape(self._arrays, ("a", "b", "rtol", "atol"))

    def all_close(self) -> bool:
        """Return True if all elements are close; stop at the first that is not."""
        return scan(self._first_mismatch(), self._arrays, self._dtypes) < 0

    def each_close(self) -> NDArray:
        """Return for each element whether it is close."""
        return fill(self._mask(), self._arrays, self._dtypes)

    def rows_close(self, axis: int | tuple[int, ...]) -> NDArray:
        """Return for each row, the elements along `axis`, whether all are close."""
        try:
            axes = normalize_axis_tuple(axis, len(self._shape), "axis")
        except TypeError:
            msg = f"axis must be an int or a tuple of them, got {axis!r:.60}"
            raise TypeError(msg) from None
        others = tuple(i for i in range(len(self._shape)) if i not in axes)
        arrays = [np.broadcast_to(x, self._shape) for x in self._arrays]
        out = np.ones([self._shape[i] for i in others], dtype=bool)
        width = prod(self._shape[i] for i in axes)
        if not (out.size and width):
            pass
        elif _innermost(arrays[0], others) < _innermost(arrays[0], axes):
            # Neighbours in memory belong to different rows: traverse column by column.
            transposed = [x.transpose(*axes, *others) for x in arrays]
            self._scan_rows(
                MISMATCHED_COLUMNS, transposed, out, lambda position: position % out.size
            )
        else:
            transposed = [x.transpose(*others, *axes) for x in arrays]
            if width < _LONG_ROW_ELEMENTS:
                self._scan_rows(
                    MISMATCHED_ROWS, transposed, out, lambda position: position // width
                )
            else:
                for row in np.ndindex(out.shape):
                    out[row] = (
                        scan(self._first_mismatch(), [x[row] for x in transposed], self._dtypes) < 0
                    )
        return out

    def _scan_rows(
        self,
        kernels: Any,
        arrays: list[NDArray],
        out: NDArray,
        row_of: Callable[[NDArray], NDArray],
    ) -> None:
        verdicts = out.reshape(-1)
        equal_nan, rtol, atol = self._equal_nan, self._rtol, self._atol
        if self._has_tolerance_arrays:
            mask = self._mask()

            def call(start: int, *blocks: NDArray) -> int:
                close = np.empty(blocks[0].size, dtype=bool)
                mask(start, *blocks, close)
                verdicts[row_of(start + np.flatnonzero(~close))] = False
                return -1
        else:
            kernel = self._kernel(kernels)
            width = out.size if kernels is MISMATCHED_COLUMNS else arrays[0].size // out.size

            def call(start: int, *blocks: NDArray) -> int:
                position: int = kernel(*blocks, rtol, atol, equal_nan, start, width, verdicts)
                return position

        scan(call, arrays, self._dtypes, order="C")

    def _kernel(self, kernels: Any) -> Any:
        return kernels.entry_point(kernel_key(self._dtypes), prod(self._shape))

    def _mask(self) -> BlockCall:
        equal_nan = self._equal_nan
        if self._has_tolerance_arrays:
            each = self._kernel(MASK_EACH)
            return lambda _, x, y, rtol, atol, out: each(x, y, rtol, atol, equal_nan, out)
        kernel, rtol, atol = self._kernel(MASK), self._rtol, self._atol
        return lambda _, x, y, out: kernel(x, y, rtol, atol, equal_nan, out)

    def _first_mismatch(self) -> BlockCall:
        equal_nan = self._equal_nan
        if self._has_tolerance_arrays:
            mask = self._mask()

            def first_mismatch(start: int, *blocks: NDArray) -> int:
                verdicts = np.empty(blocks[0].size, dtype=bool)
                mask(start, *blocks, verdicts)
                return -1 if verdicts.all() else 0  # where does not matter

            return first_mismatch
        kernel, rtol, atol = self._kernel(FIRST_MISMATCH), self._rtol, self._atol
        return lambda _, x, y: kernel(x, y, rtol, atol, equal_nan)


def kernel_key(dtypes: Sequence[DType]) -> Any:
    """Return the key of the kernel for two dtypes."""
    a, b = dtypes[:2]
    return a if a == b else (a, b)


def equal_arrays(a: NDArray, b: NDArray, equal_nan: bool) -> bool:
    """Return True if two arrays have the same shape and equal elements."""
    call = _fast_call(FIRST_UNEQUAL, a, b, strided=FIRST_UNEQUAL_STRIDED)
    if call is not None:
        kernel, x, y = call
        if a.nbytes <= SERIAL_BYTES // 2:
            at: int = kernel(x, y, equal_nan)
        else:
            at = scan_views(lambda _, x, y: kernel(x, y, equal_nan), (x, y))
        return at < 0
    if a.shape != b.shape:
        return False
    dtypes = working_dtypes(a.dtype, b.dtype)
    # For few numbers of two dtypes NumPy's loop takes less time than conversions.
    numbers = a.dtype.kind in "biufc" and b.dtype.kind in "biufc"
    if numbers and not equal_nan and a.nbytes <= _MAX_COPIED_BYTES:
        has_kernel = dtypes == (a.dtype, a.dtype) == (b.dtype, b.dtype)
        if not (has_kernel and FIRST_UNEQUAL.is_worth_compiling(a.dtype, a.size)):
            return bool((a == b).all())
    names, others = record_names(a.dtype), record_names(b.dtype)
    if names or others:
        same_names = set(names) == set(others)
        return same_names and all(equal_arrays(a[name], b[name], equal_nan) for name in names)
    if dtypes is None:
        if a.dtype != b.dtype and {a.dtype.kind, b.dtype.kind} in ({"m"}, {"M"}):
            from .statistics import times_close

            times = distances(a, b)  # a cast to the finer unit could overflow
            if times is None:  # years and days have no unit in common
                return a.size == 0
            return bool(times_close(a, b, times, 0, 0, equal_nan).all())
        with np.errstate(all="ignore"):
            equal = _numpy_array_equal(a, b)
            if equal_nan and not equal:  # NumPy finds no NaN in objects, text and records
                from .statistics import each_equal

                equal = bool(each_equal(a, b, equal_nan=True).all())
            return equal
    native = (a.dtype, b.dtype) == tuple(dtypes)
    if native and a.ndim == 1 and not (a.flags.c_contiguous and b.flags.c_contiguous):
        kernel = FIRST_UNEQUAL_STRIDED[kernel_key(dtypes)]
        return scan_views(lambda _, x, y: kernel(x, y, equal_nan), (a, b)) < 0
    kernel = FIRST_UNEQUAL[kernel_key(dtypes)]
    return scan(lambda _, x, y: kernel(x, y, equal_nan), [a, b], dtypes) < 0


def position_of_nonfinite(x: NDArray, dtype: DType) -> int:
    """Return the position, in C order, of the first element that is not finite, or -1."""
    kernel = FIRST_NONFINITE[dtype]
    # Memory order is fastest and suffices if all elements are finite, which is the common case.
    if x.dtype == dtype and x.nbytes <= (SERIAL_BYTES if x.flags.forc else _MAX_COPIED_BYTES):
        return -1 if kernel(x.ravel("K")) < 0 else int(kernel(x.ravel()))
    position = scan(lambda _, block: kernel(block), [x], [dtype])
    if position >= 0 and not x.flags.c_contiguous:
        position = scan(lambda _, block: kernel(block), [x], [dtype], order="C")
    return position


def _finite(tolerance: float | NDArray) -> bool:
    if isinstance(tolerance, float):
        return isfinite(tolerance)
    return position_of_nonfinite(tolerance, FLOAT64) < 0


def _innermost(x: NDArray, axes: tuple[int, ...]) -> float:
    """Return the smallest stride in bytes along some axes."""
    return min((abs(x.strides[i]) for i in axes if x.shape[i] > 1 and x.strides[i]), default=inf)


__all__ = ["all_close", "as_pair", "broadcast", "each_close", "elements", "tally_pair"]


def broadcast(pair: ArrayPair) -> ArrayPair:
    """Broadcast two arrays to one shape; raise ValueError if there is none."""
    a, b = broadcast_arrays(pair.a, pair.b, subok=pair.dtypes is None)
    return pair._replace(a=a, b=b)


def all_close(a: NDArray, b: NDArray, rtol: float, atol: float, equal_nan: bool) -> bool:
    """Return True if all elements are close; stop at the first that is not."""
    verdict = fast_all_close(a, b, rtol, atol, equal_nan)
    if verdict is not None:
        return verdict
    return PairKernel(as_pair(a, b), rtol, atol, equal_nan).all_close()


def each_close(a: NDArray, b: NDArray, rtol: float, atol: float, equal_nan: bool) -> NDArray:
    """Return for each element whether it is close."""
    verdicts = fast_each_close(a, b, rtol, atol, equal_nan)
    if verdicts is not None:
        return verdicts
    return PairKernel(as_pair(a, b), rtol, atol, equal_nan).each_close()


def elements(pair: ArrayPair, positions: Sequence[int]) -> ArrayPair:
    """Return the elements at some positions in C order as two vectors."""
    # Indices of basic indexing: arrays of them, as `flat`, stop at 32 axes.
    indices = [(*np.unravel_index(i, pair.a.shape), np.newaxis) for i in positions]
    return pair._replace(a=_gathered(pair.a, indices), b=_gathered(pair.b, indices))


def _gathered(x: NDArray, indices: list[tuple[Any, ...]]) -> NDArray:
    is_masked = isinstance(x, np.ma.MaskedArray)
    join: Callable[..., NDArray] = np.ma.concatenate if is_masked else np.concatenate
    plain = x if is_masked else np.asarray(x)  # elements of a matrix are matrices
    return join([plain[index] for index in indices])
