"""Flatten and unflatten containers of arrays, such as the arguments of a function.

It is the interface of `jax.tree_util`, for lists, tuples, dicts and dataclasses.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import fields, is_dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

# Levels of nesting at most; a deeper container is assumed to contain itself.
_MAX_DEPTH = 64
_NUMBERS = {bool, int, float, complex}

# The leaves of a container, each with the suffix that selects it in code, and the function that
# makes a container of the same structure from other leaves.
Flattened = tuple[list[tuple[str, Any]], Callable[[Sequence[Any]], Any]]


def as_tuple(x: Any) -> tuple[Any, ...]:
    """Return the items of a tuple or list; another object becomes a tuple of one item."""
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def is_container(x: Any) -> bool:
    """Return True if x is a dict, dataclass, list or tuple; lists of plain numbers are arrays."""
    if type(x) in (list, tuple):
        return not {type(y) for y in x} <= _NUMBERS
    return isinstance(x, (dict, list, tuple)) or _is_record(x)


def _is_record(x: Any) -> bool:
    return is_dataclass(x) and not isinstance(x, type) and not hasattr(x, "__array__")


def items_of(x: Any) -> list[tuple[str, Any, Any]]:
    """Return the items of a container: suffix in code, key, and value."""
    if isinstance(x, dict):
        return [(f"[{key!r}]", key, value) for key, value in x.items()]
    if isinstance(x, (list, tuple)):
        return [(f"[{k}]", k, value) for k, value in enumerate(x)]
    return [(f".{f.name}", f.name, getattr(x, f.name)) for f in fields(x)]


def flatten(x: Any, depth: int = 0, *, of_floats: bool = False) -> Flattened:
    """Flatten a container to its leaves; with `of_floats`, lists of floats become arrays."""
    if not is_container(x):
        if of_floats and isinstance(x, (list, tuple)) and {type(y) for y in x} == {float}:
            kind = type(x)
            return [("[:]", np.array(x))], lambda new: kind(new[0].tolist())
        return [("", x)], lambda new: copy(new[0]) if type(x) is list else new[0]
    if depth > _MAX_DEPTH:
        msg = f"a container is nested more than {_MAX_DEPTH} deep: does it contain itself?"
        raise ValueError(msg)
    kind = type(x)
    items = items_of(x)
    inner = [flatten(value, depth + 1, of_floats=of_floats) for _, _, value in items]
    ends = list(accumulate((len(leaves) for leaves, _ in inner), initial=0))

    def unflatten(new: Sequence[Any]) -> Any:
        parts = (new[first:last] for first, last in pairwise(ends))
        values = [again(part) for (_, again), part in zip(inner, parts, strict=True)]
        if isinstance(x, dict):
            result = copy(x)  # a subclass may have attributes
            result.update(zip(x, values, strict=True))
            return result
        if _is_record(x):
            result = copy(x)
            for (_, name, _), value in zip(items, values, strict=True):
                object.__setattr__(result, name, value)  # it may be frozen
            return result
        return getattr(kind, "_make", kind)(values)  # of a named tuple

    pairs = zip(items, inner, strict=True)
    leaves = [
        (f"{suffix}{path}", leaf) for (suffix, _, _), (leaves, _) in pairs for path, leaf in leaves
    ]
    return leaves, unflatten


def contains(x: Any, flatten: Callable[[Any], Flattened], owns: Callable[[Any], bool]) -> bool:
    """Return True if `owns` is true for x or for one of its leaves."""
    return owns(x) or any(owns(leaf) for _, leaf in flatten(x)[0])


class FlatArguments:
    """
    The arguments of a function, with containers replaced by their leaves.

    Attributes
    ----------
    leaves : tuple
        The arguments that are not containers, and the leaves of containers. A container is itself
        a leaf if `counts` is false for all of its leaves.
    owners : tuple of int
        The index of the argument that each leaf is part of.
    paths : tuple of str
        The suffix that selects each leaf: "['weights'][2]", or "" for the argument itself.
    """

    def __init__(
        self,
        arguments: Sequence[Any],
        counts: Callable[[Any], bool],
        flatten: Callable[[Any], Flattened] = flatten,
    ) -> None:
        self._unflatten: list[Callable[[Sequence[Any]], Any]] = []
        self._ends = [0]
        leaves: list[Any] = []
        paths: list[str] = []
        owners: list[int] = []
        for k, x in enumerate(arguments):
            held, again = ([("", x)], _one) if type(x) is np.ndarray else flatten(x)
            if not any(counts(leaf) for _, leaf in held):
                held, again = [("", x)], _one
            self._unflatten.append(again)
            paths += [path for path, _ in held]
            leaves += [leaf for _, leaf in held]
            owners += [k] * len(held)
            self._ends.append(len(leaves))
        self.leaves, self.paths, self.owners = tuple(leaves), tuple(paths), tuple(owners)

    def leaves_of(self, owner: int) -> range:
        """Return the indices of the leaves of one argument."""
        return range(*self._ends[owner : owner + 2])

    def unflatten(self, leaves: Sequence[Any]) -> list[Any]:
        """Return all arguments, made from other leaves."""
        if not any(self.paths):
            return list(leaves)
        parts = (leaves[first:last] for first, last in pairwise(self._ends))
        return [again(part) for again, part in zip(self._unflatten, parts, strict=True)]

    def unflatten_one(self, owner: int, leaves: Sequence[Any]) -> Any:
        """Return one argument, made from other leaves."""
        return self._unflatten[owner](leaves)


def _one(new: Sequence[Any]) -> Any:
    return new[0]
