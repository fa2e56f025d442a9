"""Containers of arrays among the arguments of a function: taken apart, and put together."""

from collections.abc import Callable, Sequence
from copy import copy
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

_DEEP = 64  # what is nested deeper contains itself

# What there is in a container, by the text that follows its name, and a function of as many others
# that makes a container of them.
Apart = tuple[list[tuple[str, Any]], Callable[[Sequence[Any]], Any]]


def apart(x: Any, depth: int = 0) -> Apart:
    """Take lists, tuples and dicts apart; a list of plain floats is one array."""
    if not isinstance(x, (dict, list, tuple)):
        return [("", x)], lambda new: new[0]
    if depth > _DEEP:
        msg = f"a container is nested more than {_DEEP} deep: does it hold itself?"
        raise ValueError(msg)
    kind = type(x)
    if kind in (list, tuple) and {type(y) for y in x} == {float}:
        return [("[:]", np.array(x))], lambda new: kind(new[0].tolist())
    items = list(x.items() if isinstance(x, dict) else enumerate(x))
    inner = [apart(value, depth + 1) for _, value in items]
    ends = list(accumulate((len(held) for held, _ in inner), initial=0))

    def together(new: Sequence[Any]) -> Any:
        parts = (new[first:last] for first, last in pairwise(ends))
        made = [again(part) for (_, again), part in zip(inner, parts, strict=True)]
        if isinstance(x, dict):
            own = copy(x)  # of a class with more than its items
            own.update(zip(x, made, strict=True))
            return own
        return getattr(kind, "_make", kind)(made)  # of a named tuple

    pairs = zip(items, inner, strict=True)
    held = [(f"[{key!r}]{path}", leaf) for (key, _), (own, _) in pairs for path, leaf in own]
    return held, together


class Opened:
    """
    The arguments of a function, and in the place of containers what they hold.

    Attributes
    ----------
    leaves : tuple
        The arguments, or what is in containers of something that `counts`.
    owners : tuple of int
        Which argument each is, or is part of.
    paths : tuple of str
        Where it is in that: "['weights'][2]", or "" for the argument itself.
    """

    def __init__(
        self,
        arguments: Sequence[Any],
        counts: Callable[[Any], bool],
        apart: Callable[[Any], Apart] = apart,
    ) -> None:
        each = []
        for x in arguments:
            held, again = apart(x)
            whole = not any(counts(leaf) for _, leaf in held)
            each.append(([("", x)], _one) if whole else (held, again))
        self._again = [again for _, again in each]
        self._ends = list(accumulate((len(held) for held, _ in each), initial=0))
        self.leaves = tuple(leaf for held, _ in each for _, leaf in held)
        self.paths = tuple(path for held, _ in each for path, _ in held)
        self.owners = tuple(k for k, (held, _) in enumerate(each) for _ in held)

    def together(self, leaves: Sequence[Any]) -> list[Any]:
        """Return arguments of others in the place of the leaves."""
        parts = (leaves[first:last] for first, last in pairwise(self._ends))
        return [again(part) for again, part in zip(self._again, parts, strict=True)]


def _one(new: Sequence[Any]) -> Any:
    return new[0]
