"""The library and the device of an array."""

import sys
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from ..interop.cupy import Cupy
from ..interop.jax import Jax
from ..interop.torch import Torch
from .arguments import is_weak
from .protocols import ArrayLibrary, NDArray

__tracebackhide__ = True  # pytest shows an error at the line that called calipers

_LIBRARIES: tuple[ArrayLibrary, ...] = (Torch(), Jax(), Cupy())

# DLPack's device types of CUDA memory (kDLCUDA) and managed memory (kDLCUDAManaged).
_DLPACK_CUDA = (2, 13)

# The type of arrays inside kernels of Numba's simulator, which are in host memory.
_IN_SIMULATED_KERNEL = "FakeWithinKernelCUDAArray"

# Types of NumPy and Python, whose values are in host memory.
HOST_TYPES = frozenset(
    {np.ndarray, np.memmap, list, tuple, bool, int, float, complex, *np.sctypeDict.values()}
)
# Those of them that are not read from a file.
IN_MEMORY_TYPES = HOST_TYPES - {np.memmap}


def library_of(x: Any) -> ArrayLibrary | None:
    """Return the library of an array: torch, jax or CuPy; None for others."""
    if type(x) in HOST_TYPES:
        return None
    for library in _LIBRARIES:
        if library.owns(x):
            return library
    return None


def loaded_libraries() -> list[ArrayLibrary]:
    """Return the array libraries that are imported in this process."""
    return [x for x in _LIBRARIES if type(x).__name__.lower() in sys.modules]


def _device(x: Any, library: ArrayLibrary | None) -> str:
    if library is not None:
        return library.device(x)
    if type(x).__name__ == _IN_SIMULATED_KERNEL:
        return "cpu"
    try:
        away = (
            hasattr(type(x), "__cuda_array_interface__")
            or "__cuda_array_interface__" in getattr(x, "__dict__", ())
            or hasattr(x, "__cuda_ndarray__")
            or (hasattr(type(x), "__dlpack_device__") and x.__dlpack_device__()[0] in _DLPACK_CUDA)
        )
    except Exception:  # an attribute may raise anything
        away = False
    return "a CUDA device" if away else "cpu"


def kind_of(x: Any) -> str:
    """Return the name of a type after that of its library, such as "torch Tensor"."""
    return f"{type(x).__module__.partition('.')[0]} {type(x).__name__}"


def _described(name: str, x: Any, device: str) -> str:
    return f"{name} is a {kind_of(x)} on {'the host' if device == 'cpu' else device}"


def _is_accelerator(device: str) -> bool:
    return device.startswith(("cuda", "gpu", "a CUDA device"))


def on_device(**arrays: Any) -> bool:
    """
    Return True if all arrays are on a device; numbers may be mixed with them.

    They may be on different devices, whose names differ between libraries.
    """
    if HOST_TYPES.issuperset(map(type, arrays.values())):
        return False
    devices = {
        name: _device(x, library_of(x))
        for name, x in arrays.items()
        if not (is_weak(x) or isinstance(x, np.generic))
    }
    # `require_host` raises for arrays on the host and on a device.
    return bool(devices) and all(map(_is_accelerator, devices.values()))


def is_device_function(f: Any) -> bool:
    """Return True if a function was compiled by Numba's CUDA target."""
    return type(f).__module__.startswith(("numba.cuda", "numba_cuda"))


# numba-cuda works with no newer NumPy, and is tested with no newer Numba.
WITH = '"numba<0.69" "numpy<2.5"'


def install_command(cuda_major: int = 13) -> str:
    """Return the command that installs what arrays on a CUDA device need."""
    return f'pip install "numba-cuda[cu{cuda_major}]>=0.30" {WITH}'


@cache
def device_module(name: str) -> Any:
    """Import a module of `_cuda`; raise ImportError with advice if numba-cuda is missing."""
    try:
        return import_module(f".._cuda.{name}", __package__)
    except ImportError as error:
        msg = f"arrays on a device need Numba's CUDA target: {install_command()}"
        raise ImportError(msg) from error


def require_host(**arrays: Any) -> None:
    """Raise TypeError if an array is not in host memory; the keywords are names for the error."""
    if HOST_TYPES.issuperset(map(type, arrays.values())):
        return
    libraries = {name: library_of(x) for name, x in arrays.items()}
    devices = {name: _device(x, libraries[name]) for name, x in arrays.items()}
    away = [name for name, device in devices.items() if device != "cpu"]
    if not away:
        return
    described = " and ".join(_described(name, x, devices[name]) for name, x in arrays.items())
    advice = " and ".join(_to_host_advice(name, arrays[name], libraries[name]) for name in away)
    both = "compares arrays on one device" if len(away) < len(arrays) else "takes host arrays here"
    msg = f"{described}; calipers {both}: pass {advice}"
    raise TypeError(msg)


def _to_host_advice(name: str, x: Any, library: ArrayLibrary | None) -> str:
    return library.to_host_advice(x, name) if library else f"a host copy of {name}"


def host_views(a: Any, b: Any) -> tuple[NDArray, NDArray] | None:
    """Return NumPy views of two host arrays of one library; None for other arrays."""
    if type(a) is np.ndarray and type(b) is np.ndarray:
        return a, b
    library = library_of(a)
    if library is None or not library.owns(b):
        return None
    if library.device(a) != "cpu" or library.device(b) != "cpu":
        return None
    try:
        return library.as_numpy(a), library.as_numpy(b)
    except TypeError:  # the caller raises it with the name of the argument
        return None
