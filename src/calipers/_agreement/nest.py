"""Inputs in lists, tuples and dicts: taken apart into what can be moved, and put together."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from .._arrays import library_of

_DEEP = 64  # a list that is nested deeper contains itself

Part = Callable[[Iterator[Any]], Any]


class Nest:
    """
    The arrays and numbers of all inputs, in order, and how they become the arguments of a call.

    Attributes
    ----------
    leaves : tuple
        The caller's own: inputs, or what containers of arrays hold.
    titles : tuple of str
        How each is reached: "1", or "0['weights'][2]".
    owners : tuple of int
        Which input each is, or is part of.
    whole : tuple of bool
        Whether it is an input itself.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        leaves: list[tuple[Any, str]] = []
        owners: list[int] = []
        self._parts: list[Part] = []
        for k, x in enumerate(inputs):
            self._parts.append(_taken_apart(x, str(k), leaves))
            owners += [k] * (len(leaves) - len(owners))
        self.leaves = tuple(leaf for leaf, _ in leaves)
        self.titles = tuple(title for _, title in leaves)
        self.owners = tuple(owners)
        self.whole = tuple(title.isdigit() for title in self.titles)

    def called(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of the leaves that calls f as the caller would."""
        return f if all(self.whole) else _Called(f, self._parts)


class _Called:
    def __init__(self, f: Callable[..., Any], parts: Sequence[Part]) -> None:
        self._f, self._parts = f, parts
        self.__name__ = getattr(f, "__name__", type(f).__name__)

    def __call__(self, *leaves: Any) -> Any:
        """Put the leaves together, and call the function."""
        given = iter(leaves)
        return self._f(*[part(given) for part in self._parts])


def _taken_apart(x: Any, title: str, leaves: list[tuple[Any, str]], depth: int = 0) -> Part:
    """Append the leaves of x, and return what takes as many, and puts them together."""
    if not _holds_arrays(x, depth):
        leaves.append((x, title))
        return next
    items = x.items() if isinstance(x, dict) else enumerate(x)
    parts = {key: _taken_apart(y, f"{title}[{key!r}]", leaves, depth + 1) for key, y in items}

    def together(given: Iterator[Any]) -> Any:
        found = {key: part(given) for key, part in parts.items()}
        if isinstance(x, dict):
            own = copy(x)
            own.update(found)
            return own
        kind: Any = type(x)
        return kind(*found.values()) if hasattr(x, "_fields") else kind(found.values())

    return together


def _holds_arrays(x: Any, depth: int) -> bool:
    """Tell whether x is a container of arrays, or of numbers that can be moved."""
    if isinstance(x, Iterator):
        msg = f"inputs must be there for more than one call, got {type(x).__name__}: pass a list"
        raise TypeError(msg)
    if not isinstance(x, (dict, list, tuple)):
        return False
    if depth > _DEEP:
        msg = f"inputs are nested more than {_DEEP} deep: does a container hold itself?"
        raise ValueError(msg)
    items = x.values() if isinstance(x, dict) else x
    return any(_is_array(y) or _holds_arrays(y, depth + 1) for y in items)


def _is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.inexact, float, complex)) or library_of(x) is not None
