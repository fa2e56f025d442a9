"""JAX arrays."""

import sys
from typing import Any

import numpy as np

from .._protocols import NDArray


class Jax:
    """See `ArrayLibrary`."""

    def owns(self, x: Any) -> bool:
        jax = sys.modules.get("jax")
        return jax is not None and isinstance(x, getattr(jax, "Array", ()))

    def device(self, x: Any) -> str:
        jax = sys.modules["jax"]
        if isinstance(x, jax.core.Tracer):
            msg = (
                "a traced jax array has no values to compare; "
                "call calipers outside jit, or through jax.pure_callback"
            )
            raise TypeError(msg)
        devices = sorted({f"{d.platform}:{d.id}" for d in x.devices()})
        return "cpu" if all(d.startswith("cpu") for d in devices) else ", ".join(devices)

    def to_host_advice(self, x: Any, name: str) -> str:
        return f"jax.device_get({name})"

    def as_numpy(self, x: Any) -> NDArray:
        return np.asarray(x)

    def from_numpy(self, x: Any) -> Any:
        return sys.modules["jax"].numpy.array(x)

    def on_device(self, x: Any) -> tuple[Any, str | None, int | None]:
        if len(x.devices()) > 1:
            msg = "a jax array that is sharded over devices is not compared there; "
            msg += "pass its shards, x.addressable_data(i), or jax.device_get(x)"
            raise TypeError(msg)
        x.block_until_ready()
        return (_Bits(x), "bfloat16", None) if x.dtype.name == "bfloat16" else (x, None, None)

    def empty(self, shape: tuple[int, ...], like: Any) -> Any | None:
        return None  # jax's arrays never change

    def from_device(self, x: Any, like: Any) -> Any:
        # A copy: jax does not keep what it only views alive.
        return sys.modules["jax"].numpy.array(x).block_until_ready()

    def put(self, x: NDArray, like: Any) -> Any:
        # A copy: jax views memory that is aligned, and its arrays must not change.
        return sys.modules["jax"].device_put(x.copy(), next(iter(like.devices())))

    def fetch(self, x: Any) -> NDArray:
        return np.asarray(sys.modules["jax"].device_get(x))


class _Bits:
    """The bits of an array whose dtype the interface has no name for."""

    def __init__(self, x: Any) -> None:
        self._array = x
        self.__cuda_array_interface__ = {
            "shape": x.shape,
            "typestr": "<u2",
            "data": (x.unsafe_buffer_pointer(), True),
            "strides": None,
            "version": 3,
        }
