"""Find the parameters that functions capture, and call copies of the functions with others."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import numpy as np

from .._core.arguments import attribute
from .._core.libraries import library_of
from .._core.protocols import NDArray
from .arrays import HIGHER_PRECISION, is_perturbable
from .observed_formats import promoted_module

# Levels of functions, containers and objects that are searched for parameters.
_MAX_DEPTH = 12
# Items of a container that are searched; longer ones hold data.
_MAX_ITEMS = 1000
# Types of values in which no parameter is.
_PLAIN = (type, ModuleType, NoneType, str, bytes, int, float, complex)
# Largest error of a value that is rounded to a multiple of a step, in steps: a half, and more at
# the ends of the range.
_ROUNDED_STEPS = 0.75


class Parameters:
    """
    The floating-point arrays that a function captures, with a name for each.

    They are those of torch modules, and arrays in closures, partials, defaults, attributes and in
    the global variables that a function uses. `bind` returns a copy of the function with copies of
    them, so that the caller's are never changed. Those of compiled functions are compiled in, and
    cannot be replaced.
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        self._f = f
        self._bound: dict[bool, tuple[Callable[..., Any], _Copier]] = {}
        here = wide = _Copier(wide=False)
        # Copying an object of the caller may raise anything.
        with suppress(Exception):
            here = self._copied(False)
            wide = self._copied(True) if here.slots or here.has_modules else here
        self.names: tuple[str, ...] = tuple(wide.slots)
        slots = [here.slots.get(name, slot) for name, slot in wide.slots.items()]
        self.arrays: tuple[NDArray, ...] = tuple(slot.values() for slot in slots)
        self.steps: tuple[float, ...] = tuple(slot.step for slot in wide.slots.values())
        self.are_compiled_in = here.has_compiled_arrays

    def _copied(self, wide: bool) -> "_Copier":
        copier = _Copier(wide)
        self._bound[wide] = copier.copy(self._f, ""), copier
        return copier

    def bind(self, values: Sequence[NDArray], wide: bool) -> Callable[..., Any]:
        """Return the function with other parameters, or with them in higher precision."""
        if not self.names:
            return self._f
        function, copier = self._bound[wide]
        for name, value in zip(self.names, values, strict=True):
            if name in copier.slots:  # quantised layers have none in their own format
                copier.slots[name].assign(value)
        return function


def match(f: Parameters, g: Parameters) -> list[int | None]:
    """
    Return for each parameter of g the one of f that it is, or that it is rounded from, or None.

    Both have one shape and one name within their modules; arrays without one, equal values.
    """
    by_name: dict[Any, list[int]] = {}
    for k, name in enumerate(f.names):
        by_name.setdefault((_within(name), f.arrays[k].shape), []).append(k)
    matched: list[int | None] = []
    for name, x, step in zip(g.names, g.arrays, g.steps, strict=True):
        same = by_name.get((_within(name), x.shape), [])
        same = same or [k for k, y in enumerate(f.arrays) if y.shape == x.shape]
        matched.append(next((k for k in same if _is_rounded(x, f.arrays[k], step)), None))
    return matched


def _within(name: str) -> str:
    """Return the name of a parameter within its module, or of a variable."""
    return name.partition(":")[2] or name.rpartition(".")[2]


def _is_rounded(x: NDArray, y: NDArray, step: float) -> bool:
    """Return True if x is y rounded to its dtype, or to a multiple of a step."""
    with np.errstate(all="ignore"):
        a, b = x.astype(np.float64), y.astype(np.float64)
        if step:
            return bool(np.max(np.abs(a - b), initial=0) <= _ROUNDED_STEPS * step)
        rounded: NDArray = y.astype(x.dtype).astype(np.float64)
    return np.array_equal(a, rounded, equal_nan=True)


class _Slot:
    """A parameter in a copy of a function."""

    def __init__(self, holder: Any, step: float = 0.0) -> None:
        self.holder, self.step = holder, step

    def values(self) -> NDArray:
        library = library_of(self.holder)
        if library is None:
            return np.array(self.holder)
        return np.array(library.fetch(self.holder))

    def assign(self, value: NDArray) -> None:
        library = library_of(self.holder)
        if library is None:
            self.holder[...] = value
            return
        with sys.modules["torch"].no_grad():
            self.holder.copy_(library.put(np.asarray(value), self.holder))


class _Copier:
    """Copy functions with everything in them that holds floating-point arrays."""

    def __init__(self, wide: bool) -> None:
        self.wide, self.has_modules, self.has_compiled_arrays = wide, False, False
        self.slots: dict[str, _Slot] = {}
        self._copies: dict[int, Any] = {}
        self._originals: list[Any] = []  # keeps them alive, as the keys of copies are their ids

    def copy(self, x: Any, name: str, depth: int = 0) -> Any:
        """Return a copy of x if it holds arrays, and x itself otherwise."""
        if id(x) in self._copies:
            return self._copies[id(x)]
        if depth > _MAX_DEPTH or isinstance(x, _PLAIN):
            return x
        self._originals.append(x)
        self._copies[id(x)] = x  # while it is being copied: functions may refer to themselves
        new = self._copied(x, name, depth)
        self._copies[id(x)] = new
        return new

    def _copied(self, x: Any, name: str, depth: int) -> Any:
        if is_module(x):
            return self._module(x, name)
        if isinstance(x, np.ndarray):
            return self._array(x, name)
        if isinstance(x, FunctionType):
            return self._function(x, name, depth)
        if library_of(x) is not None:
            return self._tensor(x, name)
        if isinstance(x, partial):
            parts = [self.copy(part, name, depth + 1) for part in (x.func, x.args, x.keywords)]
            changed = any(
                a is not b for a, b in zip(parts, (x.func, x.args, x.keywords), strict=True)
            )
            return partial(parts[0], *parts[1], **parts[2]) if changed else x
        if isinstance(x, MethodType):
            owner = self.copy(x.__self__, name, depth + 1)
            return x if owner is x.__self__ else MethodType(x.__func__, owner)
        if type(x) in (list, tuple, dict):
            return self._container(x, name, depth)
        python = attribute(x, "py_func") or attribute(x, "__wrapped__")
        if isinstance(python, FunctionType):  # x is compiled, as by Numba or jax
            inner = _Copier(self.wide)
            inner.copy(python, name, depth + 1)
            self.has_compiled_arrays |= bool(inner.slots) or inner.has_modules
            return x
        if is_user_object(x):
            held = {k: self.copy(v, f"{name}.{k}", depth + 1) for k, v in vars(x).items()}
            if any(held[k] is not v for k, v in vars(x).items()):
                new = copy(x)
                vars(new).update(held)
                return new
        return x

    def _container(self, x: Any, name: str, depth: int) -> Any:
        items = list(x.items() if isinstance(x, dict) else enumerate(x))
        if len(items) > _MAX_ITEMS:
            return x
        new = [(k, self.copy(v, f"{name}[{k!r}]", depth + 1)) for k, v in items]
        if all(a is b for (_, a), (_, b) in zip(new, items, strict=True)):
            return x
        return dict(new) if isinstance(x, dict) else type(x)(v for _, v in new)

    def _array(self, x: NDArray, name: str) -> Any:
        if not is_perturbable(x) or type(x) is not np.ndarray or not x.size:
            return x
        if self.wide and x.dtype.name not in HIGHER_PRECISION:
            return x
        new = x.astype(HIGHER_PRECISION[x.dtype.name]) if self.wide else x.copy(order="K")
        self.slots[name] = _Slot(new)
        return new

    def _tensor(self, x: Any, name: str) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        if x.is_quantized or x.is_meta or x.layout is not torch.strided or not x.numel():
            return x
        new = x.detach().clone()
        new = new.double() if self.wide else new
        self.slots[name] = _Slot(new)
        return new

    def _module(self, x: Any, name: str) -> Any:
        self.has_modules = True
        new = promoted_module(deepcopy(x)) if self.wide else deepcopy(x)
        held = [*new.named_parameters(), *new.named_buffers()]
        for key, tensor in held:
            if tensor.is_floating_point() and not tensor.is_quantized and tensor.numel():
                step = getattr(tensor, "step", 0.0)
                self.slots[f"{name}:{key}"] = _Slot(tensor.detach(), step)
        return new

    def _function(self, x: FunctionType, name: str, depth: int) -> Any:
        closure = x.__closure__ or ()
        cells = []
        for variable, cell in zip(x.__code__.co_freevars, closure, strict=True):
            try:
                old = cell.cell_contents
            except ValueError:  # it is empty
                cells.append(cell)
                continue
            new = self.copy(old, f"{name}.{variable}", depth + 1)
            cells.append(cell if new is old else CellType(new))
        changed = {}
        for key in _globals_of(x.__code__) if _has_user_globals(x) else ():
            if key in x.__globals__:
                new = self.copy(x.__globals__[key], f"{name}.{key}", depth + 1)
                if new is not x.__globals__[key]:
                    changed[key] = new
        defaults = self.copy(x.__defaults__, f"{name}.defaults", depth + 1)
        named = self.copy(x.__kwdefaults__, f"{name}.defaults", depth + 1)
        same = all(a is b for a, b in zip(cells, closure, strict=True)) and not changed
        if same and defaults is x.__defaults__ and named is x.__kwdefaults__:
            return x
        variables = {**x.__globals__, **changed} if changed else x.__globals__
        function = FunctionType(x.__code__, variables, x.__name__, defaults, tuple(cells) or None)
        function.__kwdefaults__ = named
        function.__dict__.update(x.__dict__)
        return function


def _globals_of(code: CodeType) -> Iterator[str]:
    """Yield the names of global variables and attributes in a function and in those within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)


# Packages whose functions are not copied: they hold no parameters of the caller.
_LIBRARIES = {"numpy", "torch", "jax", "scipy", "numba", "calipers", "ml_dtypes"}


def _has_user_globals(x: FunctionType) -> bool:
    package = (x.__module__ or "").partition(".")[0]
    return (package not in _LIBRARIES and package not in sys.stdlib_module_names) or (
        package == "__main__"
    )


def is_user_object(x: Any) -> bool:
    """Return True for an object of a class of the caller, whose attributes may be parameters."""
    package = type(x).__module__.partition(".")[0]
    return (
        hasattr(x, "__dict__")
        and package not in _LIBRARIES
        and (package == "__main__" or package not in sys.stdlib_module_names)
    )


def is_module(x: Any) -> bool:
    """Return True for a torch module, without importing torch."""
    torch = sys.modules.get("torch")
    module = getattr(getattr(torch, "nn", None), "Module", None)
    return module is not None and isinstance(x, module)
