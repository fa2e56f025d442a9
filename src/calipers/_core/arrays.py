"""Convert arguments to arrays, and broadcast them."""

import math
import sys
from collections.abc import Callable, Sequence, Set, ValuesView
from functools import lru_cache
from mmap import ALLOCATIONGRANULARITY
from os import PathLike
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from ..interop.frames import as_matrix, is_column, is_frame, is_lazy, is_nested
from ..interop.frames import as_numpy as column_values
from ..interop.units import Unit, in_one_unit, tolerance_in, unit_of
from .arguments import as_float, attribute, brief, is_integer, is_weak
from .dtypes import FLOAT64, DType, became_floats, finfo, kernel_dtype, working_dtypes
from .libraries import HOST_TYPES, kind_of, library_of, require_host
from .protocols import ArrayLibrary, NDArray


def broadcast_arrays(*arrays: NDArray, subok: bool) -> tuple[NDArray, ...]:
    """Broadcast arrays to one shape; unlike in NumPy, they may have 64 axes."""
    shape = common_shape_of(arrays)
    if all(x.shape == shape and (subok or type(x) is np.ndarray) for x in arrays):
        return arrays
    return tuple(np.broadcast_to(x, shape, subok=subok) for x in arrays)


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to; raise ValueError if there is none."""
    return common_shape_of([np.broadcast_to(np.empty((), bool), shape) for shape in shapes])


def common_shape_of(arrays: Sequence[NDArray]) -> tuple[int, ...]:
    """Return the shape that arrays broadcast to; raise ValueError if there is none."""
    shape: tuple[int, ...] = arrays[0].shape
    if [x.shape for x in arrays].count(shape) == len(arrays):
        return shape
    try:
        return np.broadcast(*arrays).shape
    except RuntimeError:  # numpy.broadcast supports 32 axes, arrays have up to 64
        like = [np.broadcast_to(np.empty((), bool), x.shape) for x in arrays]
        return np.nditer(like, ["multi_index", "zerosize_ok"]).shape


def broadcast_shape(arrays: Sequence[NDArray], names: Sequence[str]) -> tuple[int, ...]:
    """Return the shape that arrays broadcast to; raise ValueError with the names of the arrays."""
    try:
        return common_shape_of(arrays)
    except ValueError:
        shapes = ", ".join(f"{name} {x.shape}" for name, x in zip(names, arrays, strict=False))
        msg = f"operands could not be broadcast together: their shapes are {shapes}"
        raise ValueError(msg) from None


__tracebackhide__ = True  # pytest shows an error at the line that called calipers


class ArrayPair(NamedTuple):
    """Two arrays, the native dtypes to compare them in, and the library of the result."""

    a: Any  # an ndarray on the host, an Operand on a device
    b: Any
    dtypes: tuple[DType, DType] | None  # None if there are no kernels, so that NumPy compares
    library: ArrayLibrary | None
    unit: Unit | None = None  # of both arrays


def _view(x: Any, name: str) -> NDArray:
    if type(x) is np.ndarray:
        return x
    library = library_of(x)
    if library is not None:
        try:
            return library.as_numpy(x)
        except TypeError as error:  # NumPy has no such dtype
            raise TypeError(f"{name}: {error}") from None
    if type(x) is np.memmap:
        # A map is compared as a plain ndarray.
        require_whole(x)
        return x.view(np.ndarray)
    if not isinstance(x, (list, tuple, np.ndarray)):
        if is_frame(x):
            return as_matrix(x)
        if is_column(x):
            if is_nested(x):
                msg = (
                    f"{name} is a column of lists or structs: use compare, which descends into them"
                )
                raise TypeError(msg)
            return column_values(x)
        if is_lazy(x):
            msg = f"{name} is a {kind_of(x)}, which has no values yet: pass {name}.collect()"
            raise TypeError(msg)
    try:
        array: NDArray = np.asanyarray(x)
    except (MemoryError, OSError):
        raise
    except Exception as error:  # a library may raise anything
        if not isinstance(error, ValueError) or not isinstance(x, (list, tuple)):
            raise _unreadable(x, name, error) from error
        uneven = "inhomogeneous" in str(error)
        what = "whose items differ in length" if uneven else "that NumPy cannot make an array of"
        advice = "pass a rectangular one, or use compare, which descends into nested lists"
        error.add_note(f"{name} is a {type(x).__name__} {what}: {advice}")
        raise
    return _opened(x, name) if array.ndim == 0 and array.dtype.kind == "O" else array


def _opened(x: Any, name: str) -> NDArray:
    """Convert an object that NumPy does not recognise as an array, by DLPack if possible."""
    if isinstance(x, ValuesView):
        msg = f"{name} is a view of a mapping's values, {type(x).__name__}: pass list({name})"
        raise TypeError(msg)
    if hasattr(type(x), "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except Exception as error:  # a library may raise anything
            raise _unreadable(x, name, error) from error
    return np.asanyarray(x)


def _unreadable(x: Any, name: str, error: Exception) -> TypeError:
    """Return the error for an object that NumPy cannot convert to an array."""
    if isinstance(x, (list, tuple)):
        advice = "pass an array, or use compare, which descends into nested lists"
        return TypeError(
            f"{name} is a {type(x).__name__} that NumPy cannot make an array of: {advice} ({error})"
        )
    msg = f"{name} is of type {kind_of(x)}, which NumPy cannot read: pass a NumPy array"
    return TypeError(f"{msg} ({error})")


def require_whole(x: Any) -> None:
    """Raise OSError if the file of a map was truncated; access beyond its end kills the process."""
    held = x._mmap
    if held is None:
        return
    end = x.offset - x.offset % ALLOCATIONGRANULARITY + len(held)
    try:
        size = held.size()
    except (OSError, ValueError):  # it has no file
        return
    if size < end:
        msg = (
            f"the file of a memory map, {x.filename}, ends at byte {size}, but mapped up to byte "
            f"{end}: it was truncated; write it again"
        )
        raise OSError(msg)


def as_array(x: Any, name: str = "a") -> NDArray:
    """Convert x to a host array, without a copy if possible."""
    require_host(**{name: x})
    return _view(x, name)


def as_block(x: Any, name: str) -> Any:
    """Convert x to an array that can be compared in parts; quantities keep their unit."""
    if unit_of(x) is not None and hasattr(x, "shape"):
        return x
    refuse_foreign(x, name)
    return as_array(x, name)


def as_elements(x: Any, name: str) -> NDArray:
    """Convert x to an array for comparison; lists of large integers are not rounded to floats."""
    refuse_foreign(x, name)
    array = _view(x, name)
    rounded = isinstance(x, (list, tuple)) and array.dtype == FLOAT64 and became_floats(x)
    return np.asarray(x, object) if rounded else array


def overrides_numpy(x: Any) -> bool:
    """Return True if the type of x overrides NumPy's functions (NEP 18)."""
    function = getattr(type(x), "__array_function__", None)
    inherited = function is None or function is np.ndarray.__array_function__
    return not inherited and library_of(x) is None


def is_foreign(x: Any) -> bool:
    """Return True if x overrides NumPy's functions and is not an ndarray."""
    of_numpy = type(x) in HOST_TYPES or isinstance(x, np.ndarray)
    return not of_numpy and overrides_numpy(x)


def by_library(
    function: Callable[..., Any], names: tuple[str, str], a: Any, b: Any, *args: Any, **kwargs: Any
) -> Any:
    """Call a function of NumPy that the library of a or b implements, or name what it refuses."""
    try:
        return function(a, b, *args, **kwargs)
    except Exception as error:  # a library may raise anything
        name, x = (names[0], a) if overrides_numpy(a) else (names[1], b)
        function_name = f"numpy.{function.__name__}"
        if isinstance(error, TypeError) and "no implementation" in str(error):
            raise _foreign_error(x, name, function_name) from None
        error.add_note(f"{name} is of type {kind_of(x)}, whose library implements {function_name}")
        raise


def refuse_foreign(x: Any, name: str) -> None:
    """Raise if an array, or an item of a list, is of a library whose meaning NumPy would drop."""
    if isinstance(x, (list, tuple)):
        _refuse_quantities(x, name, name)
    elif is_foreign(x):
        raise _foreign_error(x, name)


def _refuse_quantities(items: Any, name: str, as_list: str) -> None:
    """Raise if some of nested items have a unit, which an array of all of them would drop."""
    kinds = set(map(type, items))
    for item in items if kinds - HOST_TYPES or kinds & {list, tuple} else ():
        if isinstance(item, (list, tuple)):
            _refuse_quantities(item, name, as_list)
        elif unit_of(item) is not None:
            msg = f"{name} holds numbers with units ({kind_of(item)}): pass one array with a unit, "
            raise TypeError(msg + f"or call compare, which takes the items of {as_list} one by one")


def _foreign_error(x: Any, name: str, function: str = "") -> TypeError:
    """Return the error for an array that only its own library can read."""
    reason = f"which {function} does not take" if function else "which is not a NumPy array"
    methods = ("to_list", "tolist", "todense")
    method = next((method for method in methods if hasattr(x, method)), None)
    advice = "a NumPy array" if method is None else f"{name}.{method}()"
    verb = "compare" if method in ("to_list", "tolist") else "pass"
    return TypeError(f"{name} is of type {kind_of(x)}, {reason}: {verb} {advice}")


def is_sparse(x: Any) -> bool:
    """Return True if x is a sparse array or matrix of SciPy, or of a library with its interface."""
    # dask's Delayed has every attribute, but none is an integer.
    return is_integer(attribute(x, "nnz")) and attribute(x, "toarray") is not None


def refuse_sparse(x: Any, name: str) -> None:
    """Raise TypeError if x is sparse; NumPy would convert it to an array of one object."""
    if is_sparse(x):
        msg = f"{name} is sparse, but must be dense: pass {name}.toarray()"
        raise TypeError(msg)


def as_dense_array(x: Any, name: str) -> NDArray:
    """Convert an argument to an array; raise if it is sparse, masked or ragged."""
    refuse_sparse(x, name)
    if np.ma.is_masked(x):
        msg = f"{name} has masked elements, which have no value: pass {name}.filled(...)"
        raise ValueError(msg)
    try:
        return as_array(x, name)
    except ValueError:  # lists of different lengths
        msg = f"{name} must be an array of numbers, got {type(x).__name__} "
        msg += "with items that differ in shape or kind"
        raise TypeError(msg) from None


def require_dense(**arrays: Any) -> None:
    """Raise TypeError if an array is sparse or holds arrays; the keywords are names for errors."""
    for name, x in arrays.items():
        if is_sparse(x):
            msg = f"{name} is sparse, but elements are compared one by one: pass {name}.toarray()"
            raise TypeError(msg)
        _refuse_arrays_in(x, f"{name}.tolist()", name)


def _refuse_arrays_in(x: Any, items: str, name: str) -> None:
    """Raise TypeError if an object array holds arrays; `items` is an expression for their list."""
    if type(x) is np.ndarray and x.dtype.kind == "O" and any(map(_is_array, x.flat)):
        msg = f"{name} holds arrays, but elements are compared one by one: "
        raise TypeError(msg + f"pass {items} to compare or assert_close")


def _is_array(x: Any) -> bool:
    return (isinstance(x, np.ndarray) and x.size != 1) or is_sparse(x)  # 1 has a truth value


def undecided_objects(a: NDArray, b: NDArray, names: Sequence[str]) -> TypeError | None:
    """Return the error for objects whose ``==`` has no truth value; None if all have one."""
    objects = [x.dtype.kind == "O" for x in (a, b)]
    kinds = set()
    for pair in zip(a.flat, b.flat, strict=True):
        x, y = pair
        try:
            # A signalling NaN of Decimal may raise only when compared with itself.
            _ = [bool(p == q) for p, q in ((x, y), (x, x), (y, y))]
        except Exception:  # `==` of an object may raise anything
            kinds |= {type(item).__name__ for item, held in zip(pair, objects, strict=True) if held}
    if not kinds:
        return None
    msg = f"{names[objects.index(True)]} holds objects of type {' and '.join(sorted(kinds))}, whose"
    advice = "pass other values, or their parts, for example in a dict"
    return TypeError(f"{msg} == is neither true nor false: {advice}")


_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, np.ufunc)


def require_numbers(**arrays: Any) -> None:
    """Raise TypeError if an argument cannot hold numbers; the keywords are names for errors."""
    require_dense(**arrays)
    for name, x in arrays.items():
        if type(x) is np.ndarray and (x.dtype.kind not in "SUV" or kernel_dtype(x.dtype)):
            continue
        array = np.asarray(x)
        item = x if array.ndim == 0 else np.ravel(array)[:1]
        if (
            x is None
            or isinstance(x, (str, bytes, Set, dict, PathLike, *_FUNCTIONS))
            or (isinstance(item, np.ndarray) and item.dtype.kind in "SUV")
        ):
            msg = f"{name} must be an array of numbers, got {_type_text(x)}"
            raise TypeError(f"{msg}: load the file" if isinstance(x, PathLike) else msg)


def _type_text(x: Any) -> str:
    kind = type(x).__name__
    array = np.asarray(x)
    return f"{kind} of dtype {array.dtype}" if array.ndim else kind


def _as_number(x: Any, dtype: DType | None = None) -> NDArray:
    """Convert a Python number to an array; an integer beyond 64 bits becomes an object."""
    number = np.asarray(x)
    if number.dtype.kind != "O" or dtype is None or dtype.kind in "biuO":
        return number
    # With a float dtype it becomes a float, unless it overflows.
    nearest = as_float(x)
    return number if math.isinf(nearest) else np.asarray(nearest)


@lru_cache
def _largest(dtype: DType) -> float:
    return float(finfo(dtype).max)


def strengthen(x: Any, dtype: DType) -> NDArray:
    """Convert a Python number to the dtype that it has in an operation with `dtype` (NEP 50)."""
    number = _as_number(x, dtype)
    if (
        number.dtype == dtype
        or number.dtype.kind == "O"
        or kernel_dtype(dtype) is None
        or dtype.kind in "biu"
    ):
        return number
    if dtype.isbuiltin != 2:
        target = np.promote_types(dtype, np.complex64) if number.dtype.kind == "c" else dtype
    elif number.dtype.kind != "c" and "float" in dtype.name:
        target = dtype
    else:
        return number
    # A number that overflows the dtype is not converted to infinity.
    if not max(abs(x.real), abs(x.imag)) <= _largest(target):
        return number
    with np.errstate(all="ignore"):  # underflow
        return number.astype(target)


def _loaded(x: Any) -> Any:
    """Return the array inside an xarray or dask object; a conversion by NumPy may lose its unit."""
    xarray: Any = sys.modules.get("xarray")
    dask: Any = sys.modules.get("dask.array")
    held: Any = x
    if xarray is not None and isinstance(x, (xarray.DataArray, xarray.Variable)):
        held = x.data
    return held.compute() if dask is not None and isinstance(held, dask.Array) else held


def in_memory(a: Any, b: Any, names: tuple[str, str], strict: bool = False) -> Any:
    """Load two arrays into memory and convert them to one unit; return both and the unit."""
    if HOST_TYPES.issuperset((type(a), type(b))):
        return a, b, None
    return in_one_unit(_loaded(a), _loaded(b), names, strict)


def as_pair(a: Any, b: Any, names: tuple[str, str] = ("a", "b")) -> ArrayPair:
    """Convert two array-likes to arrays and determine the dtypes to compare them in."""
    if type(a) is type(b) is np.ndarray and (dtypes := working_dtypes(a.dtype, b.dtype)):
        # Plain arrays are neither masked nor foreign, and lie in host memory.
        return ArrayPair(a, b, dtypes, None)
    require_host(**{names[0]: a, names[1]: b})
    a, b, unit = in_memory(a, b, names)
    if is_weak(a) and is_weak(b):
        x, y = np.asarray(a), np.asarray(b)
        x, y = _as_number(a, y.dtype), _as_number(b, x.dtype)
    elif is_weak(a):
        y = as_elements(b, names[1])
        x = strengthen(a, y.dtype)
    else:
        x = as_elements(a, names[0])
        y = strengthen(b, x.dtype) if is_weak(b) else as_elements(b, names[1])
    # Subclasses of ndarray, such as masked arrays, have an arithmetic of their own.
    plain = type(x) is np.ndarray and type(y) is np.ndarray
    dtypes = working_dtypes(x.dtype, y.dtype) if plain else None
    if dtypes is None:
        require_dense(**{names[0]: a, names[1]: b})
        for name, z in zip(names, (x, y), strict=True):
            if z.dtype.kind == "O":
                _refuse_quantities(list(z.flat), name, f"{name}.tolist()")
        for name, original, array in zip(names, (a, b), (x, y), strict=True):
            if isinstance(original, (list, tuple)):
                _refuse_arrays_in(array, name, name)
    return ArrayPair(x, y, dtypes, library_of(a) or library_of(b), unit)


def as_tolerance(value: Any, name: str, unit: Unit | None = None) -> float | NDArray:
    """Convert a tolerance to a float or an array of float64, in the unit of the arrays."""
    if type(value) not in HOST_TYPES:
        value = tolerance_in(value, unit if name == "atol" else None, name)
    try:
        if type(value) is float or (is_weak(value) and not isinstance(value, complex)):
            return float(value)
        array = as_array(value, name)
        if array.dtype.kind == "O":
            return float(value)  # a Fraction, say
        if array.dtype.kind not in "biuf" and array.dtype.isbuiltin != 2:
            raise TypeError
        array = np.asarray(array, dtype=FLOAT64)
    except (TypeError, ValueError, OverflowError):
        kind = getattr(value, "dtype", None) or type(value).__name__
        msg = f"{name} must be a real number or an array of them, got {kind}: {brief(value)}"
        raise TypeError(msg) from None
    return float(array) if array.ndim == 0 else array
