"""What counts as an array, where it lives, and in which element type it is compared."""

import math
import sys
from collections.abc import Set, ValuesView
from functools import cache, lru_cache
from importlib import import_module
from mmap import ALLOCATIONGRANULARITY
from numbers import Real
from operator import index
from os import PathLike
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from ._integers import became_floats
from ._protocols import ArrayLibrary, NDArray
from .interop.cupy import Cupy
from .interop.jax import Jax
from .interop.torch import Torch

_LIBRARIES: tuple[ArrayLibrary, ...] = (Torch(), Jax(), Cupy())

DType = np.dtype[Any]
FLOAT32, FLOAT64, COMPLEX128 = map(np.dtype, (np.float32, np.float64, np.complex128))
INT64, UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


class Pair(NamedTuple):
    """Two arrays, the native dtypes to compare them in, and whose result it is."""

    a: Any  # of NumPy on the host, an Operand on a device
    b: Any
    dtypes: tuple[DType, DType] | None  # None: NumPy compares them
    library: ArrayLibrary | None


@lru_cache
def kernel_dtype(dtype: DType) -> DType | None:
    """Return the native dtype that kernels read `dtype` in, or None if NumPy has to compare it."""
    if dtype.isbuiltin == 2:  # ml_dtypes: NumPy knows how to widen them
        if dtype.name == "bfloat16":
            return dtype
        return FLOAT64 if np.can_cast(dtype, FLOAT64) else None
    if dtype.kind in "biufc" and dtype.char not in "gG":
        return dtype.newbyteorder("=")
    return None


@lru_cache
def working_dtypes(a: DType, b: DType) -> tuple[DType, DType] | None:
    """Return the dtypes to compare a pair in: NumPy's promotion, or one that is more exact."""
    x, y = kernel_dtype(a), kernel_dtype(b)
    if x is None or y is None:
        return None
    if x == y:
        return x, y
    if x.kind in "biu" and y.kind in "biu":
        common = np.promote_types(x, y)
        if common.kind != "f":
            return common, common
        return (INT64, UINT64) if x.kind == "i" else (UINT64, INT64)
    wide = COMPLEX128 if "c" in (x.kind, y.kind) else FLOAT64
    return wide, wide


def widest(dtype: DType) -> DType:
    """Return one of the four dtypes that hold all native ones: few kernels serve any pair."""
    if dtype.kind in "biu":
        return UINT64 if dtype == UINT64 else INT64
    return COMPLEX128 if dtype.kind == "c" else FLOAT64


def finfo(dtype: DType) -> Any:
    """Return the limits of a floating-point dtype, of NumPy or of ml_dtypes."""
    return (sys.modules["ml_dtypes"] if dtype.isbuiltin == 2 else np).finfo(dtype)


# DLPack's numbers for a CUDA device's memory, and for managed memory.
_DLPACK_CUDA = (2, 13)

# Nothing of these types can be foreign, or anywhere but on the host.
HOST_TYPES = frozenset(
    {np.ndarray, np.memmap, list, tuple, bool, int, float, complex, *np.sctypeDict.values()}
)


def library_of(x: Any) -> ArrayLibrary | None:
    """Return the foreign library that x belongs to, if any."""
    if type(x) in HOST_TYPES:
        return None
    for library in _LIBRARIES:
        if library.owns(x):
            return library
    return None


def loaded_libraries() -> list[ArrayLibrary]:
    """Return the libraries of arrays that the process has imported."""
    return [x for x in _LIBRARIES if type(x).__name__.lower() in sys.modules]


def _device(x: Any, library: ArrayLibrary | None) -> str:
    if library is not None:
        return library.device(x)
    try:
        away = (
            hasattr(type(x), "__cuda_array_interface__")
            or hasattr(x, "__cuda_ndarray__")
            or (hasattr(type(x), "__dlpack_device__") and x.__dlpack_device__()[0] in _DLPACK_CUDA)
        )
    except Exception:  # a probe may raise anything
        away = False
    return "a CUDA device" if away else "cpu"


def kind_of(x: Any) -> str:
    """Name the type of x, after the library that it is of."""
    return f"{type(x).__module__.partition('.')[0]} {type(x).__name__}"


def _described(name: str, x: Any, device: str) -> str:
    return f"{name} is a {kind_of(x)} on {'the host' if device == 'cpu' else device}"


def _is_accelerator(device: str) -> bool:
    return device.startswith(("cuda", "gpu", "a CUDA device"))


def on_device(**arrays: Any) -> bool:
    """
    Tell whether arrays are in a device's memory, and not on the host.

    A number may stand beside them; an array on the host may not. Whether they are on one device is
    for those to say who know: libraries name devices in their own ways.
    """
    if HOST_TYPES.issuperset(map(type, arrays.values())):
        return False
    devices = {
        name: _device(x, library_of(x))
        for name, x in arrays.items()
        if not (is_weak(x) or isinstance(x, np.generic))
    }
    # `require_host` tells what is elsewhere.
    return bool(devices) and all(map(_is_accelerator, devices.values()))


def is_device_function(f: Any) -> bool:
    """Tell whether a function was compiled by Numba's CUDA target."""
    return type(f).__module__.startswith(("numba.cuda", "numba_cuda"))


@cache
def device_module(name: str) -> Any:
    """Return the part of `_device` that answers a question; what it needs is imported now."""
    try:
        return import_module(f"._device.{name}", __package__)
    except ImportError as error:
        msg = 'arrays on a device need Numba\'s CUDA target: pip install "calipers[cuda]"'
        raise ImportError(msg) from error


def require_host(**arrays: Any) -> None:
    """Refuse arrays that are not in host memory; the names are for the error."""
    if HOST_TYPES.issuperset(map(type, arrays.values())):
        return
    libraries = {name: library_of(x) for name, x in arrays.items()}
    devices = {name: _device(x, libraries[name]) for name, x in arrays.items()}
    away = [name for name, device in devices.items() if device != "cpu"]
    if not away:
        return
    found = " and ".join(_described(name, x, devices[name]) for name, x in arrays.items())
    advice = " and ".join(
        library.to_host_advice(name) if (library := libraries[name]) else f"a host copy of {name}"
        for name in away
    )
    both = "compares arrays where both are" if len(away) < len(arrays) else "takes host arrays here"
    msg = f"{found}; calipers {both}: pass {advice}"
    raise TypeError(msg)


def host_views(a: Any, b: Any) -> tuple[NDArray, NDArray] | None:
    """View two arrays of one library, NumPy's too, where they lie on the host; else None."""
    if type(a) is np.ndarray and type(b) is np.ndarray:
        return a, b
    library = library_of(a)
    if library is None or not library.owns(b):
        return None
    if library.device(a) != "cpu" or library.device(b) != "cpu":
        return None
    try:
        return library.as_numpy(a), library.as_numpy(b)
    except TypeError:  # which has to name the argument
        return None


def _view(x: Any, name: str) -> NDArray:
    if type(x) is np.ndarray:
        return x
    library = library_of(x)
    if library is not None:
        try:
            return library.as_numpy(x)
        except TypeError as error:  # of what NumPy has no array for
            raise TypeError(f"{name}: {error}") from None
    if type(x) is np.memmap:
        # An ndarray in all but the file behind it.
        require_whole(x)
        return x.view(np.ndarray)
    try:
        array: NDArray = np.asanyarray(x)
    except ValueError as error:
        if isinstance(x, (list, tuple)):
            uneven = "inhomogeneous" in str(error)
            what = "whose items have unlike lengths" if uneven else "that is no array"
            advice = "pass a rectangular one, or ask compare, which walks nested lists"
            error.add_note(f"{name} is a {type(x).__name__} {what}: {advice}")
        raise
    return _opened(x, name) if array.ndim == 0 and array.dtype.kind == "O" else array


def _opened(x: Any, name: str) -> NDArray:
    """Return the array of what NumPy takes for one object, or say what it is."""
    if isinstance(x, ValuesView):
        msg = f"{name} is a view of a mapping's values, {type(x).__name__}: pass list({name})"
        raise TypeError(msg)
    if hasattr(type(x), "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except Exception as error:  # a library may raise anything
            msg = (
                f"{name} is a {kind_of(x)} that NumPy cannot read: pass an array of NumPy ({error})"
            )
            raise TypeError(msg) from error
    return np.asanyarray(x)


def require_whole(x: Any) -> None:
    """Refuse a map whose file was cut: a touch beyond its end would be the end of the process."""
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
            f"{end}: it was cut; write it anew"
        )
        raise OSError(msg)


def as_array(x: Any, name: str = "a") -> NDArray:
    """Return x as an array on the host, a view wherever it has memory to view."""
    require_host(**{name: x})
    return _view(x, name)


def as_elements(x: Any, name: str) -> NDArray:
    """Return x as an array that is compared: integers of a list are not rounded."""
    array = _view(x, name)
    rounded = isinstance(x, (list, tuple)) and array.dtype == FLOAT64 and became_floats(x)
    return np.asarray(x, object) if rounded else array


def is_sparse(x: Any) -> bool:
    """Tell whether x is a sparse array or matrix, of SciPy or like it."""
    # dask's Delayed has every attribute, and none is a number.
    return is_integer(getattr(x, "nnz", None)) and hasattr(x, "toarray")


def refuse_sparse(x: Any, name: str) -> None:
    """Refuse a sparse array, of which NumPy would make an object."""
    if is_sparse(x):
        msg = f"{name} is sparse, and has to be dense: give {name}.toarray()"
        raise TypeError(msg)


def given_array(x: Any, name: str) -> NDArray:
    """Return an array that the caller gave, if all its elements are there."""
    refuse_sparse(x, name)
    if np.ma.is_masked(x):
        msg = f"{name} has masked elements, which have no value: give {name}.filled(...)"
        raise ValueError(msg)
    try:
        return as_array(x, name)
    except ValueError:  # lists of unlike lengths
        msg = f"{name} must be an array of numbers, got {type(x).__name__} of unlike parts"
        raise TypeError(msg) from None


def require_dense(**arrays: Any) -> None:
    """Refuse sparse arrays and arrays of arrays: they have other elements; names are for errors."""
    for name, x in arrays.items():
        if is_sparse(x):
            msg = f"{name} is sparse, and elements are compared one by one: pass {name}.toarray()"
            raise TypeError(msg)
        if type(x) is np.ndarray and x.dtype.kind == "O" and any(map(_is_array, x.flat)):
            msg = f"{name} holds arrays, and elements are compared one by one: "
            raise TypeError(msg + f"give compare or assert_close {name}.tolist()")


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.size != 1  # which has a truth value


_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, np.ufunc)


def require_numbers(**arrays: Any) -> None:
    """Refuse objects that have no elements to compare as numbers; the names are for the error."""
    require_dense(**arrays)
    for name, x in arrays.items():
        if type(x) is np.ndarray and (x.dtype.kind not in "SUV" or kernel_dtype(x.dtype)):
            continue
        item = x if np.ndim(x) == 0 else np.ravel(np.asarray(x))[:1]
        if (
            x is None
            or isinstance(x, (str, bytes, Set, dict, PathLike, *_FUNCTIONS))
            or (isinstance(item, np.ndarray) and item.dtype.kind in "SUV")
        ):
            msg = f"{name} must be an array of numbers, got {_told(x)}"
            raise TypeError(f"{msg}: load the file" if isinstance(x, PathLike) else msg)


def _told(x: Any) -> str:
    kind = type(x).__name__
    return f"{kind} of dtype {np.asarray(x).dtype}" if np.ndim(x) else kind


def require_callable(**functions: Any) -> None:
    """Refuse what cannot be called; the names are for the error."""
    for name, f in functions.items():
        if not callable(f):
            msg = f"{name} must be callable, got {type(f).__name__}: {f!r:.60}"
            raise TypeError(msg)


def is_integer(x: Any) -> TypeGuard[int]:
    """Tell whether x is an integer, one of NumPy's maybe."""
    return isinstance(x, (int, np.integer))


def as_float(x: Any) -> float:
    """Return a number as a float, infinite if none holds it."""
    try:
        return float(x)
    except OverflowError:
        return float("inf")


def as_integer(x: Any, name: str) -> int:
    """Return x as Python's integer, or say that it is none."""
    try:
        return index(x)
    except TypeError:
        msg = f"{name} must be an integer, got {type(x).__name__}: {x!r:.60}"
        raise TypeError(msg) from None


def is_real(x: Any) -> bool:
    """Tell whether x is a real number by itself."""
    return isinstance(x, Real)


def require_bytes(memory_limit: Any) -> None:
    """Refuse a limit of memory that is no positive number."""
    known = is_real(memory_limit) and not isinstance(memory_limit, (bool, np.bool))
    if not (known and memory_limit > 0):
        msg = f"memory_limit must be a positive number of bytes, got {memory_limit!r:.60}"
        raise (ValueError if known else TypeError)(msg)


def is_weak(x: Any) -> bool:
    """Tell whether x is a Python number: numpy.float64 is a float, yet of a definite dtype."""
    return isinstance(x, (int, float, complex)) and not isinstance(x, np.generic)


def _as_number(x: Any, beside: DType | None = None) -> NDArray:
    """Return a Python number as an array; an integer that no dtype holds stays an object."""
    number = np.asarray(x)
    if number.dtype.kind != "O" or beside is None or beside.kind in "biuO":
        return number
    # Beside floats it is one, as any integer is, unless it is beyond them all.
    nearest = as_float(x)
    return number if math.isinf(nearest) else np.asarray(nearest)


@lru_cache
def _largest(dtype: DType) -> float:
    return float(finfo(dtype).max)


def strengthen(x: Any, dtype: DType) -> NDArray:
    """Give a Python number the dtype it takes beside an array of `dtype` (NEP 50)."""
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
    # What the dtype cannot hold stays itself, and does not become an infinity.
    if not max(abs(x.real), abs(x.imag)) <= _largest(target):
        return number
    return number.astype(target)


def as_pair(a: Any, b: Any, names: tuple[str, str] = ("a", "b")) -> Pair:
    """Normalise two array-likes, once, for every function that compares them."""
    require_host(**{names[0]: a, names[1]: b})
    if is_weak(a) and is_weak(b):
        x, y = np.asarray(a), np.asarray(b)
        x, y = _as_number(a, y.dtype), _as_number(b, x.dtype)
    elif is_weak(a):
        y = as_elements(b, names[1])
        x = strengthen(a, y.dtype)
    else:
        x = as_elements(a, names[0])
        y = strengthen(b, x.dtype) if is_weak(b) else as_elements(b, names[1])
    # Masks, units and the like have an arithmetic of their own.
    plain = type(x) is np.ndarray and type(y) is np.ndarray
    dtypes = working_dtypes(x.dtype, y.dtype) if plain else None
    if dtypes is None:
        require_dense(**{names[0]: a, names[1]: b})
    return Pair(x, y, dtypes, library_of(a) or library_of(b))


def as_tolerance(value: Any, name: str) -> float | NDArray:
    """Return a tolerance as a float, or as an array of them."""
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
        msg = f"{name} must be a real number or an array of them, got {kind}: {value!r:.60}"
        raise TypeError(msg) from None
    return float(array) if array.ndim == 0 else array
