"""CuPy arrays, which are on a device always."""

import sys
from typing import Any

from .._core.protocols import NDArray


class Cupy:
    """See `ArrayLibrary`."""

    def owns(self, x: Any) -> bool:
        cupy = sys.modules.get("cupy")
        return cupy is not None and isinstance(x, getattr(cupy, "ndarray", ()))

    def device(self, x: Any) -> str:
        return f"cuda:{x.device.id}"

    def to_host_advice(self, x: Any, name: str) -> str:
        return f"cupy.asnumpy({name})"

    def as_numpy(self, x: Any) -> NDArray:
        host: NDArray = x.get()
        return host

    def from_numpy(self, x: Any) -> Any:
        return sys.modules["cupy"].asarray(x)

    def on_device(self, x: Any) -> tuple[Any, str | None, int | None]:
        if x.dtype.name == "bfloat16":
            return x.view("uint16"), "bfloat16", None
        return x, None, None

    def empty(self, shape: tuple[int, ...], like: Any) -> Any | None:
        with like.device:
            return sys.modules["cupy"].empty(shape, bool)

    def from_device(self, x: Any, like: Any) -> Any:
        return sys.modules["cupy"].asarray(x)

    def put(self, x: NDArray, like: Any) -> Any:
        with like.device:
            return sys.modules["cupy"].asarray(x)

    def fetch(self, x: Any) -> NDArray:
        return self.as_numpy(x)
