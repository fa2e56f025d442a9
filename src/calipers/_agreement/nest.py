"""Inputs in lists, tuples and dicts: what in them can be moved, and the functions of that."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._containers import Opened, apart
from .._libraries import library_of


class Nest(Opened):
    """
    The arrays and numbers of all inputs, in order, and how they become the arguments of a call.

    Attributes
    ----------
    titles : tuple of str
        How each is reached: "1", or "0['weights'][2]".
    names : tuple of str
        What messages call it: "inputs[1]", or "inputs[0]['weights'][2]".
    whole : tuple of bool
        Whether it is an input itself.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        super().__init__(inputs, _is_array, partial(apart, of_floats=True))
        for x in self.leaves:
            if isinstance(x, Iterator):
                kind = type(x).__name__
                msg = f"inputs are used for several calls and cannot be a {kind}: pass a list"
                raise TypeError(msg)
        places = list(zip(self.owners, self.paths, strict=True))
        self.titles = tuple(f"{k}{path}" for k, path in places)
        self.names = tuple(f"inputs[{k}]{path}" for k, path in places)
        self.whole = tuple(not path for path in self.paths)

    def places(self, inputs: Iterable[int]) -> list[int]:
        """Return where inputs are among the leaves: those that are arrays themselves."""
        chosen = set(inputs)
        return [k for k, owner in enumerate(self.owners) if owner in chosen and self.whole[k]]

    def called(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of the leaves that calls f as the caller would."""
        return f if all(self.whole) else _Called(f, self)


class _Called:
    def __init__(self, f: Callable[..., Any], nest: Nest) -> None:
        self._f, self._nest = f, nest
        self.__name__ = getattr(f, "__name__", type(f).__name__)

    def __call__(self, *leaves: Any) -> Any:
        """Put the leaves together, and call the function."""
        return self._f(*self._nest.together(leaves))


def _is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.inexact, float, complex)) or library_of(x) is not None
