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

    def to_host_advice(self, name: str) -> str:
        return f"jax.device_get({name})"

    def as_numpy(self, x: Any) -> NDArray:
        return np.asarray(x)

    def from_numpy(self, x: Any) -> Any:
        return sys.modules["jax"].numpy.asarray(x)

    def on_device(self, x: Any) -> tuple[Any, str | None]:
        x.block_until_ready()
        return x, None

    def from_device(self, x: Any) -> Any:
        msg = "isclose has no jax result on a device; take allclose, or pass jax.device_get(a)"
        raise TypeError(msg)
