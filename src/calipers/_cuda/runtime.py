"""Memory of a device, streams, launches and flags: the layer over Numba and the driver."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import config, cuda

from .._core.libraries import install_command
from . import launch as _launch
from .launch import CALLING, RESIDENT, SIMULATED, Policy, blocks_for, policy_of
from .launch import describe_devices as describe_devices
from .launch import require_device as require_device

SIMULATOR = bool(config.ENABLE_CUDASIM)
if not SIMULATOR:
    if getattr(cuda, "implementation", None) == "Built-in":
        msg = "Numba's built-in CUDA target is not supported, and numba-cuda is not installed: "
        raise ImportError(msg + install_command())
    try:
        import numba.cuda.np.arrayobj  # noqa: F401
        from cuda.bindings import driver
        from numba.cuda.cudadrv.driver import CudaAPIError, device_to_host, host_to_device
    except (AttributeError, ImportError) as error:
        versions = [f"{name} {version(name)}" for name in ("numba-cuda", "numba", "numpy")]
        msg = f"{', '.join(versions)} do not work together ({error}): "
        msg += install_command()
        raise ImportError(msg) from error
    _DEVICE_OF_POINTER = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
T = TypeVar("T")

# Numba warns of fewer blocks; those that find nothing to do return at once.
_LEAST_BLOCKS = 1 if SIMULATOR else 128
_RESERVED = 1 << 10  # bytes of shared memory that the driver reserves in each block
_WARP = 32  # threads of a warp, which run in lockstep
_SMALL = 16  # 1/_SMALL of all memory is taken to be free without a query
_DESK = 1 << 20  # bytes of the pinned buffer through which small arrays are copied at once
_ALIGNMENT = 256  # bytes to which each array in the buffer is aligned, as by cudaMalloc
_LEGACY_STREAM = 1  # the number of the legacy default stream in array interfaces and DLPack


class Memory(NamedTuple):
    """Address, layout, stream and device of an array."""

    owner: Any  # keeps it alive
    address: int  # of the first element
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    stream: int  # that fills it; 0 if none is named
    ordinal: int  # of the device


def memory_of(x: Any, stream: int | None = None) -> Memory:
    """
    Describe an array by its CUDA array interface, or by DLPack.

    `stream` is the one that fills it, if the interface does not name one.
    """
    if SIMULATOR:
        array = x._ary
        return Memory(x, array.ctypes.data, array.dtype, array.shape, array.strides, 0, 0)
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is not None:
        if interface.get("mask") is not None:
            msg = "masked arrays on a device are not supported; pass the data"
            raise TypeError(msg)
        dtype, shape = _dtype_of(interface["typestr"]), tuple(interface["shape"])
        # Numba's own say None where axes are broadcast, too, where memory holds one element.
        stated = x.strides if hasattr(x, "__cuda_ndarray__") else interface.get("strides")
        strides = contiguous(shape, dtype.itemsize) if stated is None else stated
        address = interface["data"][0]
        named = (interface.get("stream") if stream is None else stream) or 0
        filling = 0 if named == _LEGACY_STREAM else named
        return Memory(x, address, dtype, shape, tuple(strides), filling, _ordinal(address))
    from cuda.core.utils import StridedMemoryView

    # The producer orders its work before the legacy default stream, which is named as the reader.
    view = StridedMemoryView.from_dlpack(x, stream_ptr=_LEGACY_STREAM)
    dtype, shape = np.dtype(view.dtype), tuple(view.shape)
    steps = view.strides  # in elements; None in C order
    strides = (
        tuple(s * dtype.itemsize for s in steps) if steps else contiguous(shape, dtype.itemsize)
    )
    return Memory(view, view.ptr, dtype, shape, strides, stream or 0, view.device_id)


def _dtype_of(typestr: str) -> np.dtype[Any]:
    """Return the dtype that an array interface names; NumPy has none for that of bfloat16."""
    return bfloat16() if typestr == "<V2" else np.dtype(typestr)


def bfloat16() -> np.dtype[Any]:
    """Return the dtype that ml_dtypes has for bfloat16."""
    try:
        import ml_dtypes
    except ImportError:
        msg = "an array of bfloat16 on a device needs ml_dtypes: pip install ml_dtypes"
        raise ImportError(msg) from None
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of C order."""
    strides = []
    for n in reversed(shape):
        strides.append(itemsize)
        itemsize *= n
    return tuple(reversed(strides))


def _ordinal(address: int) -> int:
    """Return the device of an address; an empty array has none, and is on the current one."""
    if not address:
        return current()
    status, ordinal = driver.cuPointerGetAttribute(_DEVICE_OF_POINTER, address)
    if int(status):
        msg = f"the address {address:#x} of an array is on no device: {status.name}"
        raise ValueError(msg)
    return int(ordinal)


def current() -> int:
    """Return the current device; a thread that has none gets one."""
    if SIMULATOR:
        return 0
    # Numba takes ten times as long.
    status, ordinal = driver.cuCtxGetDevice()
    return int(cuda.get_current_device().id if int(status) else ordinal)


def vector(memory: Memory, start: int, count: int) -> Any:
    """Return the argument of `viewer` for elements from some bytes after the first one on."""
    address = memory.address + start
    return view(memory.owner, address, memory.dtype, (count,)) if SIMULATOR else address


def address_of(x: Any) -> Any:
    """Return the argument of `viewer` for a whole array of Numba's."""
    return x.reshape(-1) if SIMULATOR else x.__cuda_array_interface__["data"][0]


def view(
    owner: Any,
    address: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
) -> Any:
    """View memory as an array of some shape, in C order if no strides are given."""
    interface = {
        "shape": shape,
        "typestr": dtype.str,
        "data": (address, False),
        "strides": strides,
        "version": 3,
    }
    if SIMULATOR:
        lent = type("Lent", (), {"__array_interface__": interface, "owner": owner})
        return type(owner)(np.asarray(lent()))
    return cuda.from_cuda_array_interface(interface, owner=owner, sync=False)


def policy(itemsize: int, flat: bool, blocks: int) -> Policy:
    """Return how the work on pairs of elements is laid out."""
    return SIMULATED if SIMULATOR else policy_of(itemsize, flat, blocks)


@cache
def stream(pointer: int) -> Any:
    """Return the stream at an address; the default one is at 0."""
    return cuda.external_stream(pointer) if pointer else cuda.default_stream()


def order(after: Any, before: Any) -> None:
    """Make later work on the stream `after` wait for earlier work on `before`."""
    if not SIMULATOR:
        event = cuda.event(timing=False)
        event.record(before)
        event.wait(after)


def on(ordinal: int) -> AbstractContextManager[Any]:
    """Return a context in which a device is the current one."""
    if current() == ordinal:
        return nullcontext()
    device: AbstractContextManager[Any] = cuda.gpus[ordinal]
    return device


def blocks_of(size: int, tile: int, each: int = RESIDENT) -> int:
    """Return the number of blocks of a pass, limited by its work and by the device."""
    return max(_LEAST_BLOCKS, min(-(-size // tile), resident(each)))


def launch(
    kernel: Any,
    blocks: int,
    on_stream: Any,
    *arguments: Any,
    each: int | None = None,
    shared: int = 0,
) -> None:
    """
    Start a kernel on blocks of some threads each, or as many as policies have, that share bytes.

    More blocks may be started than requested; they find nothing to do.
    """
    layout = max(blocks, _LEAST_BLOCKS), each or threads(), shared
    _launch.launch(kernel, current(), layout, on_stream, arguments)


def spread(count: int) -> tuple[int, int]:
    """Return blocks and threads of each that bring threads to all multiprocessors, however few."""
    each = threads() if SIMULATOR else _WARP
    multiprocessors = resident(1)
    while each < threads() and count >= 2 * each * multiprocessors:
        each *= 2
    return -(-count // each), each


def threads() -> int:
    """Return how many threads a block has."""
    return SIMULATED.threads if SIMULATOR else policy_of(1).threads


def resident(each: int = RESIDENT, shared: int = 0) -> int:
    """
    Return how many blocks run at once.

    A multiprocessor's registers have room for so many each; a block may take bytes of shared
    memory.
    """
    if SIMULATOR:
        return 2
    return _resident(current(), each, shared)


def resident_of(kernel: Any, shared: int) -> int:
    """
    Return how many blocks of a kernel run at once that calls a user's function.

    The registers of one that was never launched are not known; it may take all that are allowed.
    """
    if SIMULATOR:
        return resident()
    ordinal = current()
    registers = _registers(kernel, ordinal, len(kernel.overloads))
    return _resident(ordinal, blocks_for(registers), shared)


@lru_cache
def _registers(kernel: Any, ordinal: int, compiled: int) -> int:
    return max((x.regs_per_thread for x in kernel.overloads.values()), default=CALLING)


@cache
def _resident(ordinal: int, each: int, shared: int) -> int:
    device = cuda.gpus[ordinal]
    blocks = min(each, int(device.MAX_THREADS_PER_MULTIPROCESSOR) // threads())
    if shared:
        blocks = min(
            blocks, max(1, device.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR // (shared + _RESERVED))
        )
    return blocks * int(device.MULTIPROCESSOR_COUNT)


def memory_for(nbytes: int) -> int:
    """
    Return the bytes that the current device has for a result of a size, and its scratch.

    A small share of all memory is assumed to be free: a query takes longer than the allocation.
    """
    if SIMULATOR:
        return 1 << 30
    share = _total_memory(current()) // _SMALL
    if nbytes <= share:
        return 2 * share
    # The driver is queried: Numba's allocator may be a library's that does not report it.
    _, free, _ = driver.cuMemGetInfo()
    return int(free)


@cache
def _total_memory(ordinal: int) -> int:
    _, total = driver.cuDeviceTotalMem(ordinal)
    return int(total)


def to_device(x: np.ndarray[Any, Any]) -> Any:
    """Copy an array to the current device, and wait for that: any stream may read it then."""
    if SIMULATOR or x.size == 0:
        return cuda.to_device(x)
    # Numba's own takes some views of the array first, which takes most of its time.
    x = np.asarray(x, order="C")
    copy = empty(x.shape, x.dtype)
    host_to_device(copy, x.reshape(-1).view(np.uint8), x.nbytes)  # bfloat16 has no buffer to read
    stream(0).synchronize()
    return copy


def device_function(f: Callable[..., Any]) -> Any:
    """Return a function as kernels call it; of one compiled for the CPU, its Python is taken."""
    return cuda.jit(device=True)(getattr(f, "py_func", f))


def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Return new memory on the current device."""
    if SIMULATOR:
        return cuda.device_array(shape, dtype)
    try:
        return cuda.device_array(shape, dtype)
    except CudaAPIError as error:
        if error.code != driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise
        msg = f"the device has no memory left for an array of shape {shape} and dtype {dtype}"
        raise MemoryError(msg) from error


def fetch(x: Any, on_stream: Any) -> np.ndarray[Any, Any]:
    """Copy an array to the host once the stream has filled it."""
    copy: np.ndarray[Any, Any] = x.copy_to_host(stream=on_stream)
    on_stream.synchronize()
    return copy


def fetch_part(memory: Memory, start: int, count: int, on_stream: Any) -> np.ndarray[Any, Any]:
    """Copy elements from some bytes after the first one on, once the stream has filled them."""
    address = memory.address + start
    if SIMULATOR:
        return fetch(view(memory.owner, address, memory.dtype, (count,)), on_stream)
    copy = np.empty(count, memory.dtype)
    handle = int(on_stream.handle)
    (status,) = driver.cuMemcpyDtoHAsync(copy.ctypes.data, address, copy.nbytes, handle)
    _require(status)
    on_stream.synchronize()
    return copy


class Desk:
    """
    Memory of the host and of the device by which small arrays get there in one copy.

    It is used again by other calls: to take new memory, and to wait for each copy, takes longer.
    """

    def __init__(self) -> None:
        self._here = cuda.pinned_array(_DESK, np.uint8)
        self._there = empty(_DESK, np.uint8)
        self._part = lru_cache(self._find)

    @staticmethod
    def takes(arrays: Sequence[np.ndarray[Any, Any]]) -> bool:
        """Return True if it has space for arrays."""
        return sum(x.nbytes + _ALIGNMENT for x in arrays) <= _DESK

    def put(self, arrays: Sequence[np.ndarray[Any, Any]], on_stream: Any) -> list[Any]:
        """Copy arrays to the device; before the stream has come so far, none is to be put again."""
        if SIMULATOR:
            return [to_device(x) for x in arrays]
        parts, at = [], 0
        for x in arrays:
            self._here[at : at + x.nbytes].view(x.dtype).reshape(x.shape)[...] = x
            parts.append(self._part(at, x.dtype, x.shape))
            at += -(-x.nbytes // _ALIGNMENT) * _ALIGNMENT
        host_to_device(self._there, self._here, at, on_stream)
        return parts

    def _find(self, at: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        return view(self._there, address_of(self._there) + at, dtype, shape)

    def bring(self, part: Any, on_stream: Any) -> np.ndarray[Any, Any]:
        """Copy the first of the arrays back, once the stream has come so far."""
        if SIMULATOR:
            return fetch(part, on_stream)
        device_to_host(self._here, part, part.nbytes, on_stream)
        on_stream.synchronize()
        copy: np.ndarray[Any, Any] = self._here[: part.nbytes].view(part.dtype).copy()
        return copy


def _require(status: Any) -> None:
    """Raise Numba's CudaAPIError if the driver reports an error."""
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CudaAPIError(status, f"the driver reports {status.name}")


class Flag:
    """
    A number on the device, which a kernel sets to the number of the call when it finds something.

    It is never reset: each call has a number of its own. Blocks read it; the host reads a
    second one in its own memory, which is set once the kernel has run.
    """

    def __init__(self) -> None:
        self._among_blocks = to_device(np.zeros(1, np.int64))
        self._answer = cuda.mapped_array(1, np.int64)
        self._answer[0] = 0
        self.arrays = address_of(self._among_blocks), address_of(self._answer)
        self._ended = None if SIMULATOR else cuda.event(timing=False)
        self._calls = 0

    def next_call(self) -> int:
        """Return the number of a new call."""
        self._calls += 1
        return self._calls

    def follow(self, on_stream: Any) -> None:
        """Take note of when the kernel has run."""
        if self._ended is not None:
            # Numba's own takes four times as long.
            (status,) = driver.cuEventRecord(self._ended.handle, on_stream.handle)
            _require(status)

    def is_done(self) -> bool:
        """Return True if the kernel has run."""
        if self._ended is None:
            return True
        # Numba's own query logs an error for every kernel that is still at work.
        (status,) = driver.cuEventQuery(self._ended.handle)
        return bool(status != driver.CUresult.CUDA_ERROR_NOT_READY)  # errors are those of `is_set`

    def is_set(self) -> bool:
        """Wait for the kernel; return True if the latest call has found something."""
        if self._ended is not None:
            (status,) = driver.cuEventSynchronize(self._ended.handle)
            _require(status)
        return int(self._answer[0]) == self._calls


# By type and device: one for each call under way.
_spare: defaultdict[tuple[type, int], list[Any]] = defaultdict(list)


def borrow(kind: type[T], ordinal: int) -> T:
    """Return a flag or desk of a device for exclusive use until `give_back`."""
    try:
        spare: T = _spare[kind, ordinal].pop()
    except IndexError:
        return kind()
    return spare


def give_back(lent: Flag | Desk, ordinal: int) -> None:
    """Return a flag or desk to the pool once no kernel uses it."""
    _spare[type(lent), ordinal].append(lent)
