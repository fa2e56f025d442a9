"""What the device itself is asked for: views of its memory, launches, an answer."""

from math import ceil
from typing import Any

import numpy as np
from numba import config, cuda

from .policy import SIMULATED, Policy, blocks_for, policy_of

SIMULATOR = bool(config.ENABLE_CUDASIM)
# Numba warns of fewer blocks; those that find no tile return at once.
_LEAST_BLOCKS = 1 if SIMULATOR else 128


def as_device_array(x: Any) -> Any:
    """View what has a CUDA array interface, once what fills it is done."""
    return x if hasattr(x, "__cuda_ndarray__") else cuda.as_cuda_array(x)


def vector(x: Any, carrier: np.dtype[Any]) -> Any:
    """View all memory between the first and last element of an array as elements of a type.

    Its strides must be multiples of the element's size, and not negative.
    """
    last = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True))
    count = ceil(last / carrier.itemsize) + 1
    if SIMULATOR:
        memory = np.lib.stride_tricks.as_strided(x._ary, (count,), (carrier.itemsize,))
        return type(x)(memory.view(carrier))
    return type(x)((count,), (carrier.itemsize,), carrier, x.stream, x.gpu_data)


def policy(itemsize: int, flat: bool) -> Policy:
    """Return how the work on pairs of elements is laid out."""
    return SIMULATED if SIMULATOR else policy_of(itemsize, flat)


def launch(kernel: Any, size: int, tile: int, *arguments: Any) -> None:
    """Start a kernel on as many blocks as its work and the device have room for."""
    processors = 2 if SIMULATOR else cuda.get_current_device().MULTIPROCESSOR_COUNT
    blocks = max(_LEAST_BLOCKS, blocks_for(size, tile, processors))
    kernel[blocks, (SIMULATED if SIMULATOR else policy_of(1)).threads](*arguments)


def to_device(x: np.ndarray[Any, Any]) -> Any:
    return cuda.to_device(x)


def empty(size: int, dtype: Any) -> Any:
    """Return new memory on the device."""
    return cuda.device_array(size, dtype)


def finish() -> None:
    """Wait for all that was launched: what others do with a result is ordered after that."""
    cuda.synchronize()


class Flag:
    """
    A number on the device, which a kernel sets to the number of the call when it finds something.

    It is never reset: each call has a number of its own.
    """

    def __init__(self) -> None:
        self.array = cuda.to_device(np.zeros(1, np.int32))
        self._calls = 0

    def next_call(self) -> np.int32:
        """Return the number of a new call."""
        self._calls = self._calls % (2**31 - 1) + 1
        return np.int32(self._calls)

    def is_set(self) -> bool:
        """Wait for the kernel, and tell whether the latest call has found something."""
        return int(self.array.copy_to_host()[0]) == self._calls
