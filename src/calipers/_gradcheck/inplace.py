"""Functions that store their results in arrays, or add them to what is there."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._protocols import NDArray

WRITE, ADD = WAYS = ("write", "add")


class InPlace:
    """
    A function that stores its results in arrays, which it takes last, as one that returns them.

    `likes` are arrays like the results, in lines of `width`; one that `adds` to what the arrays
    hold is given zeros.
    """

    def __init__(
        self,
        inner: Callable[..., Any],
        likes: tuple[NDArray, ...],
        adds: bool = False,
        width: int = 1,
    ) -> None:
        self.inner, self.likes, self.adds = inner, likes, adds
        self._width = width

    @property
    def way(self) -> str:
        return ADD if self.adds else WRITE

    def __call__(self, *given: Any, **kwargs: Any) -> Any:
        """Return the results: an array, a tuple of them, or a tuple of lines."""
        # What is not written stays NaN, and is not taken for a zero.
        start = 0 if self.adds else np.nan
        arrays = tuple(np.full_like(like, start) for like in self.likes)
        found = self.into(arrays, given, kwargs)
        if len(found) == 1:
            return found[0]
        if self._width in (1, len(found)):
            return found
        starts = range(0, len(found), self._width)
        return tuple(found[k : k + self._width] for k in starts)

    def into(
        self, arrays: tuple[NDArray, ...], given: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[NDArray, ...]:
        """Let the function store its results in arrays, and return those."""
        self.inner(*given, *arrays, **kwargs)
        return arrays
