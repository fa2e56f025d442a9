"""Observe the formats in which a function computes, and run a torch function in float64 instead."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from .._core.dtypes import ROUNDOFF

# Methods that convert a tensor to a format by their name.
_CONVERSIONS = ("float", "half", "bfloat16")
# Methods that read the bits or the memory of a tensor: their results in float64 mean nothing.
_OF_BITS = ("numpy", "__array__", "data_ptr", "untyped_storage", "storage")

# Unit roundoff of integers with one scale.
_INTEGER_ROUNDOFF = {"int8": 2.0**-8, "int4": 2.0**-4}


def roundoff_of(form: str) -> float:
    """Return the unit roundoff of a format that ran, also of integers; 0 if it is unknown."""
    return _INTEGER_ROUNDOFF.get(form, ROUNDOFF.get(form.removesuffix("fn"), 0.0))


class HigherPrecisionError(Exception):
    """Raised if a function reads the bits of a tensor, which are others in float64."""


def _torch() -> Any:
    return sys.modules.get("torch")


@cache
def _lower_formats() -> frozenset[Any]:
    torch = _torch()
    names = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
    return frozenset(getattr(torch, name) for name in names if hasattr(torch, name))


@cache
def _higher_precision_mode() -> type[Any]:
    torch = _torch()
    float64, complex128 = torch.float64, torch.complex128
    tensor, lower_complex = torch.Tensor, {torch.complex64, torch.complex32}
    get_dtype, to_double, view = tensor.dtype.__get__, tensor.double, tensor.view
    conversions = {getattr(tensor, name) for name in _CONVERSIONS}
    of_bits = {getattr(tensor, name, None) for name in _OF_BITS}

    def promoted(x: Any) -> Any:
        if isinstance(x, torch.dtype):
            if x in _lower_formats():
                return float64
            return complex128 if x in lower_complex else x
        if type(x) in (tuple, list):
            return type(x)(map(promoted, x))
        if isinstance(x, tensor) and not x.is_quantized and get_dtype(x) in _lower_formats():
            return to_double(x)
        return x

    class HigherPrecision(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        """Compute in float64 whatever format is asked for, and report the working format."""

        def __init__(self, working: Any, functions: set[str]) -> None:
            super().__init__()
            self._functions = functions
            is_single = working == torch.float32
            reported = torch.complex64 if is_single else torch.complex32
            self._reported = {float64: working, complex128: reported}

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self._functions.add(getattr(func, "__name__", ""))
            if func == get_dtype:
                dtype = func(*args)
                return self._reported.get(dtype, dtype)
            if func in of_bits or (
                func is view and any(isinstance(x, torch.dtype) for x in args[1:])
            ):
                raise HigherPrecisionError
            if func in conversions:
                return to_double(args[0])
            named = {key: promoted(x) for key, x in (kwargs or {}).items()}
            with _without_autocast():
                return func(*map(promoted, args), **named)

    return HigherPrecision


@contextmanager
def _without_autocast() -> Iterator[None]:
    torch = _torch()
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    for kind in kinds:
        torch.set_autocast_enabled(kind, False)
    try:
        yield
    finally:
        for kind in kinds:
            torch.set_autocast_enabled(kind, True)


def call_in_float64(call: Callable[[], Any], form: str, functions: set[str]) -> Any:
    """
    Call a torch function with float64 instead of every lower format that it uses.

    Conversions and autocast have no effect, and dtypes are reported as the working format `form`,
    so that the function takes the branches that it takes there. The names of torch's functions that
    it calls are added to `functions`.
    """
    torch = _torch()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _higher_precision_mode()(getattr(torch, form, torch.float32), functions):
            return call()
    finally:
        torch.set_default_dtype(before)


def observe_torch(call: Callable[[], Any]) -> dict[str, int]:
    """Call a function, and return how many results of operations have each format."""
    torch = _torch()
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    formats: Counter[str] = Counter()

    class WatchResults(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            for y in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(y, torch.Tensor) and (y.is_floating_point() or y.is_quantized):
                    quantised = y.is_quantized or "quantized" in str(func)
                    formats["int8" if quantised else str(y.dtype).removeprefix("torch.")] += 1
            return result

    class WatchAutocast(TorchFunctionMode):  # type: ignore[misc]
        """Count the functions that are called under autocast: fused ones hide what they cast."""

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            for kind in ("cpu", "cuda"):
                if torch.is_autocast_enabled(kind) and getattr(func, "__name__", "")[:2] != "__":
                    formats[str(torch.get_autocast_dtype(kind)).removeprefix("torch.")] += 1
            return func(*args, **(kwargs or {}))

    with WatchResults(), WatchAutocast():
        call()
    return dict(formats)


def observe_jax(call: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, int]:
    """Return how many results have each format in the jaxpr of a function of jax."""
    formats: Counter[str] = Counter()
    _count(sys.modules["jax"].make_jaxpr(call)(*arguments).jaxpr, formats)
    return dict(formats)


def _count(jaxpr: Any, formats: Counter[str]) -> None:
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            name = str(getattr(variable.aval, "dtype", ""))
            if name.startswith(("float", "bfloat")):
                formats[name] += 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                _count(inner, formats)


def promoted_module(module: Any) -> Any:
    """Return a torch module in float64, in which quantised layers become those of float64."""
    torch = _torch()
    for name, child in list(module.named_children()):
        setattr(module, name, promoted_module(child))
    new = _dequantised(module).double()
    for key, x in list(vars(new).items()):
        if isinstance(x, torch.Tensor) and x.is_floating_point() and not x.is_quantized:
            setattr(new, key, x.double())
    return new


def _dequantised(module: Any) -> Any:
    """Return a linear or LSTM layer with the dequantised weights of a quantised one."""
    torch = _torch()
    kind = type(module)
    if "quantized" not in kind.__module__ or kind.__name__ not in ("Linear", "LSTM"):
        return module
    if kind.__name__ == "Linear":
        held = {"weight": module.weight(), "bias": module.bias()}
        rows, columns = held["weight"].shape
        new = torch.nn.Linear(columns, rows, bias=held["bias"] is not None)
    else:
        options = ("input_size", "hidden_size", "num_layers", "bias", "batch_first")
        chosen = {name: getattr(module, name) for name in (*options, "bidirectional")}
        new = torch.nn.LSTM(**chosen)
        held = module.get_weight() | module.get_bias()
    for name, x in held.items():
        if x is not None:
            parameter = getattr(new, name)
            parameter.data = (x.dequantize() if x.is_quantized else x).detach().clone()
            parameter.step = _step(x)
    return new.train(module.training)


def _step(x: Any) -> float:
    """Return the largest spacing of the values of a quantised tensor; 0 for others."""
    if not x.is_quantized:
        return 0.0
    torch = _torch()
    if x.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return float(x.q_scale())
    return float(x.q_per_channel_scales().max())
