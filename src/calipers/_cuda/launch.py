"""Compilation, caching and launch of CUDA kernels."""

import contextlib
import importlib.metadata
import os
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from numba import config, cuda

from .._core.jit import checked_files, file_name, remove_older, source_stamp
from .._core.libraries import install_command


def cached_kernel(
    *variant: Any, registers: int | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """
    Return a decorator that compiles a kernel, or loads it from the cache of earlier processes.

    A kernel is a nested function; `variant` determines the values that it closes over.
    """
    limit = {} if config.ENABLE_CUDASIM else {"max_registers": registers}

    def compiled(function: Callable[..., Any]) -> Any:
        kernel = cuda.jit(**limit)(function)
        if not config.ENABLE_CUDASIM and os.environ.get("CALIPERS_CACHE", "1") != "0":
            # Private parts of Numba's, which may be renamed; or no folder that can be written.
            with contextlib.suppress(ImportError, AttributeError, TypeError, OSError, RuntimeError):
                kernel._cache = _cache(function, (function.__qualname__, *variant))
        return kernel

    return compiled


def _cache(function: Callable[..., Any], variant: tuple[Any, ...]) -> Any:
    from numba.cuda.core.caching import IndexDataCacheFile
    from numba.cuda.dispatcher import CUDACache

    class KernelCache(CUDACache):  # type: ignore[misc]  # Numba is untyped
        """Numba's cache, keyed also by the values a kernel closes over and rules in other files."""

        def __init__(self) -> None:
            super().__init__(function)
            stamp = source_stamp()
            compiler = importlib.metadata.version("numba-cuda")
            name = file_name(self._impl.filename_base, (compiler, *variant))
            self._cache_file = checked_files(IndexDataCacheFile)(self._cache_path, name, stamp)

        def _index_key(self, sig: Any, codegen: Any) -> Any:
            return sig, codegen.magic_tuple()

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                kernel = super().load_overload(sig, target_context)
                if kernel is not None:
                    kernel.bind()  # where one thread is at a time: launches do not wait
                return kernel
            except Exception:  # a damaged file unpickles into any error: begin a new one
                with contextlib.suppress(OSError):
                    self._cache_file.flush()
                return None

        def save_overload(self, sig: Any, data: Any) -> None:
            with contextlib.suppress(OSError):  # a full disk, a folder gone read-only
                self._impl.locator.ensure_cache_path()
                super().save_overload(sig, data)
                remove_older(self._cache_path, self._impl.filename_base)

    return KernelCache()


# The versions of other packages that numba-cuda 0.30 works with.
_OLDEST = 12  # the first CUDA that numba-cuda has an extra for


def require_device() -> None:
    """Raise a RuntimeError if there is no device, or none that runs the code of numba-cuda."""
    if not cuda.is_available():
        msg = f"there is no CUDA device to run on: {_why_not()}"
        raise RuntimeError(f"{msg} (calipers.show_config(devices=True))")
    require_driver()


def require_driver() -> None:
    """Raise a RuntimeError if the driver is too old for the code of numba-cuda."""
    if problem := _problem_of_driver():
        raise RuntimeError(problem)


@cache
def _problem_of_driver() -> str | None:
    """Return why the driver does not run the code of numba-cuda, or None if it does."""
    if config.ENABLE_CUDASIM:
        return None
    from cuda.bindings import driver

    status, number = driver.cuDriverGetVersion()
    if int(status):
        return None  # the driver says more when it is used
    # The bindings load the compiler of their own major version.
    return _compared(
        number // 1000, number % 1000 // 10, int(version("cuda-bindings").split(".")[0])
    )


def _compared(major: int, minor: int, compiled: int) -> str | None:
    """Return what to install if a driver of CUDA major.minor does not run compiled code."""
    if major >= compiled:
        return None
    msg = f"the driver has CUDA {major}.{minor}, and does not run what the installed numba-cuda "
    msg += f"compiles, which is for CUDA {compiled}: install a newer driver"
    if major < _OLDEST:
        return msg
    return f"{msg}, or numba-cuda for CUDA {major}: {install_command(major)}"


def _why_not() -> str:
    """Return why Numba sees no device."""
    # Without an error of the driver, is_available() misses the compiler.
    compiler = f"libNVVM is not found: {install_command()}, or set CUDA_HOME"
    return " ".join(str(cuda.cuda_error() or compiler).split())


def describe_devices() -> list[str]:
    """Return a line for each device, after one that says why kernels do not run, if they do not."""
    if not cuda.is_available():
        return [f"no device: {_why_not()}"]
    problem = _problem_of_driver()
    return ([problem] if problem else []) + [
        f"{k}: {_name(device)}, compute capability {'.'.join(map(str, device.compute_capability))}"
        for k, device in enumerate(cuda.gpus)
    ]


def _name(device: Any) -> str:
    name = device.name
    return name.decode() if isinstance(name, bytes) else str(name)


# Bytes that a thread loads at once. Using all of the memory bandwidth takes 48 KiB in flight per
# multiprocessor (CUB, tuning_transform.cuh), 24 bytes for each of 2048 resident threads; twice that
# suffices if half of them are resident.
_BYTES_IN_FLIGHT = 48
_THREADS = 256  # threads of a block
_MOST_ITEMS = 8  # elements of a thread at most: the compiler holds these in registers
_MOST_STRIDED = 4  # the same for strided arrays, whose indices take registers, too
_REGISTERS = 1 << 16  # registers of a multiprocessor
CALLING = 80  # registers per thread at most of a kernel that calls a user's function for each entry
RESIDENT = 8  # blocks that fill the largest multiprocessors


class Policy(NamedTuple):
    """
    Threads of a block, and elements of each array that a thread loads before it looks.

    And how many blocks a multiprocessor runs at once. One more would begin when the others, which
    do the same work, have ended, and run alone.
    """

    threads: int
    items: int
    blocks: int

    @property
    def tile(self) -> int:
        """Elements that a block looks at together."""
        return self.threads * self.items

    @property
    def registers(self) -> int:
        """How many a thread may take, so that there is room for the blocks."""
        return _REGISTERS // (self.threads * self.blocks) // 8 * 8


@cache
def policy_of(itemsize: int, flat: bool = True, blocks: int = RESIDENT) -> Policy:
    """Return the policy for pairs of elements of a size in bytes, `flat` if contiguous."""
    most = _MOST_ITEMS if flat else _MOST_STRIDED
    return Policy(_THREADS, min(max(2, _BYTES_IN_FLIGHT // (2 * itemsize)), most), blocks)


def blocks_for(registers: int) -> int:
    """Return how many blocks with so many registers per thread a multiprocessor runs at once."""
    return max(1, _REGISTERS // (_THREADS * (-(-registers // 8) * 8)))


# The simulator runs a Python thread for each of the device's.
SIMULATED = Policy(8, 2, 1)


try:
    from cuda import core
except ImportError:  # of Numba's simulator, or of a numba-cuda before it
    core = None

# Types whose values cuda.core hands over as Numba does: in 64 bits, and bool in a byte.
_NUMBERS = frozenset({int, float, bool})

# The compiled code of each live kernel, by device and the types of arguments (`_unfold`).
_compiled: WeakKeyDictionary[Any, dict[tuple[Any, ...], Any]] = WeakKeyDictionary()


def launch(
    kernel: Any, ordinal: int, layout: tuple[int, int, int], stream: Any, arguments: tuple[Any, ...]
) -> None:
    """Launch a kernel on the current device, on blocks of threads that share bytes: the layout."""
    kinds: list[Any] = [ordinal]
    numbers: list[Any] = []
    plain = core is not None and _unfold(arguments, kinds, numbers)
    key = tuple(kinds)
    entry = _compiled.get(kernel, {}).get(key) if plain else None
    if entry is not None:
        core.launch(_stream(stream, ordinal), _config(*layout), entry, *numbers)
        return
    require_driver()  # an old one says no more than that a kernel's image is invalid
    blocks, each, shared = layout
    kernel[blocks, each, stream, shared](*arguments)
    if plain:
        # Private parts of Numba's, which may be renamed: it goes on to launch the kernel then.
        with contextlib.suppress(AttributeError, KeyError, TypeError):
            compiled = kernel.overloads[tuple(map(kernel.typeof_pyval, arguments))]
            if not (compiled.debug or compiled.cooperative):  # which take more
                handle = compiled._codelibrary.get_cufunc().kernel
                _compiled.setdefault(kernel, {})[key] = handle


def _unfold(values: tuple[Any, ...], kinds: list[Any], numbers: list[Any]) -> bool:
    """Append numbers in nested tuples, and their types; return True if there is nothing else."""
    for x in values:
        kind = type(x)
        if kind in _NUMBERS:
            kinds.append(kind)
            numbers.append(x)
        elif kind is tuple:
            kinds.append(len(x))
            if not _unfold(x, kinds, numbers):
                return False
        else:
            return False
    return True


@lru_cache
def _stream(stream: Any, ordinal: int) -> Any:
    return core.Stream.from_handle(int(stream.handle))


@lru_cache
def _config(blocks: int, each: int, shared: int) -> Any:
    return core.LaunchConfig(grid=blocks, block=each, shmem_size=shared)
