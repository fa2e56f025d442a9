"""PyTorch tensors."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import RLock
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from .._core.protocols import NDArray

_lending = RLock()  # of tensors, which have the values of one call at a time


def copied(x: Any, active: bool) -> Any:
    """Return a copy of a tensor as a new leaf of autograd."""
    return leaf(x.detach().clone(), x, active)


def leaf(fresh: Any, like: Any, active: bool) -> Any:
    """Return a new tensor as a leaf, and as a parameter if `like` is one."""
    torch = sys.modules["torch"]
    if type(like) is torch.Tensor and not hasattr(like, "_is_param"):
        return fresh.requires_grad_(active)
    parameter = torch.nn.Parameter
    if isinstance(like, parameter):
        return parameter(fresh, active)
    return fresh.requires_grad_(active)


def captured_by(
    outputs: Iterable[Any], inputs: tuple[Any, ...], argnums: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """
    Return the inputs that f uses directly instead of its arguments, from the graph of its results.

    The first tuple has those whose data can be replaced during a call, the second the others: an
    input that was passed twice, or one that was computed from other tensors.
    """
    tensors = [y for y in outputs if isinstance(y, sys.modules["torch"].Tensor)]
    todo = [(y.grad_fn, y.output_nr) for y in tensors]
    used, visited = set(map(id, tensors)), set()
    while todo:
        node, number = todo.pop()
        if node is None or (node, number) in visited:
            continue
        visited.add((node, number))
        if node.name() == "torch::autograd::AccumulateGrad":
            used.add(id(node.variable))
        todo += node.next_functions
    once = Counter(map(id, inputs))
    captured = [k for k in argnums if id(inputs[k]) in used]
    able = tuple(k for k in captured if inputs[k].is_leaf and once[id(inputs[k])] == 1)
    computed = [k for k in argnums if (inputs[k].grad_fn, inputs[k].output_nr) in visited]
    return able, tuple(sorted({*captured, *computed}.difference(able)))


def lent(
    inputs: tuple[Any, ...], captured: tuple[int, ...], tensors: list[Any]
) -> AbstractContextManager[None]:
    """
    Enable autograd, and give captured inputs the values of `tensors` during a call.

    Captured inputs replace their copies in `tensors`.
    """
    if captured:
        return _lent(inputs, captured, tensors)
    enabled: AbstractContextManager[None] = sys.modules["torch"].enable_grad()
    return enabled


@contextmanager
def _lent(inputs: tuple[Any, ...], captured: tuple[int, ...], tensors: list[Any]) -> Iterator[None]:
    with sys.modules["torch"].enable_grad(), _lending:
        originals = {k: inputs[k].data for k in captured}
        try:
            for k in originals:
                inputs[k].data = tensors[k].data
                tensors[k] = inputs[k]
            yield
        finally:
            for k, data in originals.items():
                inputs[k].data = data


def cotangent(c: Any, like: Any) -> Any:
    """Return a tensor like an output with the values of an array, contiguous if the array is."""
    w = Torch().from_numpy(np.array(c)).to(device=like.device, dtype=like.dtype)
    return w if np.asarray(c).flags.c_contiguous else noncontiguous(w)


def noncontiguous(x: Any) -> Any:
    """Return an equal tensor in Fortran order, with gaps between elements."""
    torch, axes = sys.modules["torch"], tuple(range(x.ndim))[::-1]
    return torch.stack((x.permute(axes),) * 2, -1)[..., 0].permute(axes)


_MOST = 10_000  # objects that are looked into
# Whose functions keep nothing that they are given in variables of their modules.
_STATELESS = sys.stdlib_module_names | {"calipers", "numpy", "torch"}


class HeldTensors:
    """The containers in which a function may store tensors: attributes, lists, dicts, globals."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self._holders: list[tuple[Any, Iterable[Any] | None]] = []  # and which keys of each
        visited: dict[int, Any] = {}
        todo: list[Any] = [f]
        while todo and len(visited) < _MOST:
            x = todo.pop()
            if id(x) in visited or isinstance(x, (type, ModuleType, sys.modules["torch"].Tensor)):
                continue
            visited[id(x)] = x
            if isinstance(x, (dict, list)) and len(x) > _MOST:
                continue
            if isinstance(x, (dict, list, CellType)):
                self._holders.append((x, None))
                todo += _items(x, None).values()
            elif isinstance(x, (tuple, set, frozenset)):
                todo += x
            elif isinstance(x, FunctionType):
                stateful = (x.__module__ or "").partition(".")[0] not in _STATELESS
                names = x.__code__.co_names if stateful else ()
                self._holders.append((x.__globals__, names))
                todo += _items(x.__globals__, names).values()
                todo += (vars(x), x.__closure__, x.__defaults__, x.__kwdefaults__)
            elif isinstance(x, MethodType):
                todo += (x.__func__, x.__self__)
            elif isinstance(x, partial):
                todo += (x.func, x.args, x.keywords)
            elif hasattr(x, "__dict__"):
                todo.append(vars(x))

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore tensors that were replaced in a call: those of vmap must not outlive it."""
        before = [dict(_items(*holder)) for holder in self._holders]
        try:
            yield
        finally:
            tensor = sys.modules["torch"].Tensor
            for (holder, keys), old in zip(self._holders, before, strict=True):
                for key, value in reversed(list(_items(holder, keys).items())):
                    if isinstance(value, tensor) and value is not old.get(key):
                        _put(holder, key, old)


def _items(holder: Any, keys: Iterable[Any] | None) -> dict[Any, Any]:
    """Return the items of a container by key: all, or those with some keys of a dict."""
    if keys is not None:
        return {key: holder[key] for key in keys if key in holder}
    if isinstance(holder, CellType):
        try:
            return {"cell_contents": holder.cell_contents}
        except ValueError:  # it is empty
            return {}
    return holder if isinstance(holder, dict) else dict(enumerate(holder))


def _put(holder: Any, key: Any, old: dict[Any, Any]) -> None:
    """Restore an item of a container, or delete it if it is new."""
    if isinstance(holder, CellType):
        holder.cell_contents = old.get(key)
    elif key in old:
        holder[key] = old[key]
    else:
        del holder[key]


# The methods of a tensor with a compressed layout that return the indices of its values.
_INDICES = {
    "torch.sparse_csr": ("crow_indices", "col_indices"),
    "torch.sparse_csc": ("ccol_indices", "row_indices"),
    "torch.sparse_bsr": ("crow_indices", "col_indices"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices"),
}


def require_supported_layout(x: Any, name: str) -> None:
    """Raise if the elements of a tensor cannot be read because of its layout."""
    torch = sys.modules["torch"]
    if x.layout not in (torch.strided, torch.jagged, torch.sparse_coo) and (
        str(x.layout) not in _INDICES
    ):
        msg = f"{name} has layout {x.layout}, which is not compared: pass {name}.to_dense()"
        raise ValueError(msg)


def difference(actual: Any, expected: Any, names: Iterable[str]) -> str | None:
    """Describe the first difference in quantization or these attributes; None if there is none."""
    if actual.is_quantized != expected.is_quantized:
        return f"is_quantized differs: {actual.is_quantized} and {expected.is_quantized}"
    if actual.is_quantized and actual.qscheme() != expected.qscheme():
        return f"qscheme differs: {actual.qscheme()} and {expected.qscheme()}"
    strided = actual.layout == expected.layout == sys.modules["torch"].strided
    for name in names:
        if name == "stride" and not strided:
            continue
        first, second = (_attribute(x, name) for x in (actual, expected))
        if first != second:
            return f"{name} differs: {first} and {second}; check_{name}=False allows it"
    return None


def _attribute(x: Any, name: str) -> Any:
    return x.stride() if name == "stride" else getattr(x, name)


def members(actual: Any, expected: Any) -> Iterator[tuple[str, Any, Any, str | None]]:
    """
    Yield the strided tensors that two tensors consist of, with the suffixes of their paths.

    The last item describes the difference if indices differ. Meta tensors have no members.
    """
    if "meta" in (actual.device.type, expected.device.type):
        return
    if actual.device != expected.device or actual.device.type not in ("cpu", "cuda"):
        actual, expected = actual.cpu(), expected.cpu()
    torch = sys.modules["torch"]
    strided = torch.strided
    if actual.layout != expected.layout:
        actual, expected = (x if x.layout == strided else x.to_dense() for x in (actual, expected))
    if actual.is_quantized:
        yield ".dequantize()", actual.dequantize(), expected.dequantize(), None
    elif actual.layout == strided:
        yield "", actual, expected, None
    elif actual.layout == torch.jagged:
        yield ".values()", actual.values(), expected.values(), None
    elif problem := _sparse_difference(actual, expected):
        yield "", actual, expected, problem
    elif actual.is_sparse:
        yield "._values()", actual._values(), expected._values(), None
    else:
        yield ".values()", actual.values(), expected.values(), None


def _sparse_difference(actual: Any, expected: Any) -> str | None:
    """Describe how the indices of the specified values differ; None if they agree."""
    coo = actual.is_sparse
    kind = str(actual.layout).removeprefix("torch.sparse_").upper()
    if coo and actual.sparse_dim() != expected.sparse_dim():
        numbers = f"{actual.sparse_dim()} and {expected.sparse_dim()}"
        return f"the number of sparse dimensions in sparse COO tensors differs: {numbers}"
    if actual._nnz() != expected._nnz():
        numbers = f"{actual._nnz()} and {expected._nnz()}"
        return f"the number of specified values in sparse {kind} tensors differs: {numbers}"
    for name in ("_indices",) if coo else _INDICES[str(actual.layout)]:
        # The dtype of indices may differ.
        a, b = (getattr(x, name)().long() for x in (actual, expected))
        if not a.equal(b):
            return f"Sparse {kind} {name.lstrip('_')} differ"
    return None


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
    """Return the error for a tensor without values: a FakeTensor, or one inside vmap."""
    reason = str(error).partition("\n")[0]
    msg = f"a {type(x).__name__} without elements that can be read ({reason}); "
    return TypeError(msg + "pass tensors outside of vmap, compile and fake modes")


def require_values(x: Any, name: str) -> None:
    """Raise if a tensor has no values."""
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
