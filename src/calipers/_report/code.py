"""The names of functions in code that repeats a call."""

import inspect
import sys
from collections.abc import Collection
from keyword import iskeyword
from typing import Any

MODULES = {"numpy": "np", "torch": "torch", "jax.numpy": "jnp"}


def name_in_code(function: Any, otherwise: str, taken: Collection[str]) -> str:
    """Return what code calls a function, or the name of its argument where that is not known."""
    name = getattr(function, "__name__", "")
    for module, alias in MODULES.items():
        if name and getattr(sys.modules.get(module), name, None) is function:
            return f"{alias}.{name}"
    owner = getattr(function, "__self__", None)
    if inspect.isclass(owner):
        name = f"{owner.__name__}.{name}"
    elif owner is not None and not inspect.ismodule(owner):
        return otherwise  # a method of an object that code may call anything
    is_name = all(part.isidentifier() and not iskeyword(part) for part in name.split("."))
    return name if is_name and name not in (*taken, "inputs") else otherwise
