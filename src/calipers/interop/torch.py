"""PyTorch tensors."""

import sys
from typing import Any

import numpy as np

from .._protocols import NDArray

# NumPy has no such element; ml_dtypes gives it one of the same name, and torch an integer view.
_FOREIGN = {
    "bfloat16": "uint16",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
}


class Torch:
    """See `ArrayLibrary`."""

    def owns(self, x: Any) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(x, getattr(torch, "Tensor", ()))

    def device(self, x: Any) -> str:
        return str(x.device)

    def to_host_advice(self, x: Any, name: str) -> str:
        if x.is_meta:
            return f"a tensor with elements for {name}, as a meta tensor has none"
        return f"{name}.cpu()"

    def as_numpy(self, x: Any) -> NDArray:
        torch = sys.modules["torch"]
        if x.layout is not torch.strided:
            jagged = x.layout is torch.jagged
            advice = ".values() and .offsets()" if jagged else ".to_dense()"
            msg = f"a {x.layout} tensor has no array of elements: pass its {advice}"
            raise TypeError(f"{msg}, or use calipers.testing.assert_close")
        # A conjugate or negation that is pending has no memory to look at: these two copy then.
        x = x.detach().resolve_conj().resolve_neg()
        name = str(x.dtype).removeprefix("torch.")
        if name not in _FOREIGN:
            try:
                # What autograd knows to be zero has no memory, either.
                array: NDArray = x.numpy(force=x._is_zerotensor())
            except RuntimeError as error:
                raise _without_memory(x, error) from None
            except TypeError:
                advice = "dequantize()" if x.is_quantized else "to(...) with a dtype of NumPy"
                msg = f"{name} tensors have no dtype in NumPy; pass x.{advice}"
                raise TypeError(msg) from None
            return array
        try:
            import ml_dtypes
        except ImportError:
            msg = f"{name} tensors need ml_dtypes; install it, or pass x.float()"
            raise TypeError(msg) from None
        try:
            bits: NDArray = x.view(getattr(torch, _FOREIGN[name])).numpy()
        except RuntimeError as error:
            raise _without_memory(x, error) from None
        return bits.view(np.dtype(getattr(ml_dtypes, name)))

    def from_numpy(self, x: Any) -> Any:
        torch, array = sys.modules["torch"], np.asarray(x)
        if array.dtype.isbuiltin != 2 or (name := array.dtype.name) not in _FOREIGN:
            return torch.from_numpy(array)
        return torch.from_numpy(array.view(_FOREIGN[name])).view(getattr(torch, name))

    def on_device(self, x: Any) -> tuple[Any, str | None, int | None]:
        torch = sys.modules["torch"]
        name = str(x.dtype).removeprefix("torch.")
        if name in _FOREIGN and name != "bfloat16":
            msg = f"{name} tensors are not compared on a device; pass x.float()"
            raise TypeError(msg)
        x = x.detach().resolve_conj().resolve_neg()
        if x._is_zerotensor():  # what autograd knows to be zero has no memory
            x = x.clone()
        try:
            # A FakeTensor's storage is on the device "meta"; to ask for its address is an error.
            absent = x.untyped_storage().device.type == "meta" or not x.data_ptr()
        except RuntimeError as error:  # inside vmap
            raise _without_memory(x, error) from None
        if absent and x.numel():
            raise _without_memory(x, "its address is 0")
        stream = torch.cuda.current_stream(x.device).cuda_stream
        if x.dtype == torch.bfloat16:
            return x.view(torch.uint16), "bfloat16", stream
        return x, None, stream

    def empty(self, shape: tuple[int, ...], like: Any) -> Any | None:
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=torch.bool, device=like.device)

    def from_device(self, x: Any, like: Any) -> Any:
        return sys.modules["torch"].as_tensor(x, device=like.device)

    def put(self, x: NDArray, like: Any) -> Any:
        return self.from_numpy(np.array(x)).to(like.device)

    def fetch(self, x: Any) -> NDArray:
        if x.is_meta:
            msg = "a meta tensor has no elements: pass a tensor on a device"
            raise TypeError(msg)
        return self.as_numpy(x.detach().cpu())


def _without_memory(x: Any, error: RuntimeError | str) -> TypeError:
    """Return the error of a tensor that stands for others: FakeTensor, or one within vmap."""
    reason = str(error).partition("\n")[0]
    msg = f"a {type(x).__name__} without elements that can be read ({reason}); "
    return TypeError(msg + "pass tensors outside of vmap, compile and fake modes")


def require_values(x: Any, name: str) -> None:
    """Refuse a tensor that holds no numbers of its own."""
    if x.is_meta:
        msg = f"{name} is on the meta device, where tensors have no values: pass one on the host"
        raise ValueError(msg)
    if x.is_nested:
        msg = f"{name} is a nested tensor: pass the tensors in it, x.unbind(), in a list"
        raise TypeError(msg)


def has_array(x: Any) -> bool:
    """Return True if a tensor has elements, of a dtype that arrays have."""
    if x.is_meta or x.is_nested or x.is_quantized:
        return False
    if x.layout is not sys.modules["torch"].strided:
        return True
    try:
        Torch().as_numpy(x.cpu())
    except TypeError:
        return False
    return True
