"""Functions that store their results in arrays, or add them to what is there."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._protocols import NDArray

WRITE, ADD = WAYS = ("write", "add")


class InPlace:
    """
    A function that stores its results in arrays, which it takes last, as one that returns them.

    `likes` are arrays like the results; one that `adds` to what the arrays hold is given zeros.
    `arranged` makes of the arrays what a function that returns would.
    """

    def __init__(
        self,
        inner: Callable[..., Any],
        likes: tuple[NDArray, ...],
        adds: bool = False,
        arranged: Callable[[tuple[NDArray, ...]], Any] | None = None,
    ) -> None:
        self.inner, self.likes, self.adds = inner, likes, adds
        self._arranged = arranged or _one_or_all

    @property
    def way(self) -> str:
        return ADD if self.adds else WRITE

    def __call__(self, *given: Any, **kwargs: Any) -> Any:
        """Return the results."""
        # What is not written stays NaN, and is not taken for a zero.
        return self.over(0 if self.adds else np.nan, given, kwargs)

    def over(self, start: float, given: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the results in arrays that hold a number before."""
        arrays = tuple(np.full_like(like, start) for like in self.likes)
        return self._arranged(self.into(arrays, given, kwargs))

    def into(
        self, arrays: tuple[NDArray, ...], given: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[NDArray, ...]:
        """Let the function store its results in arrays, and return those."""
        self.inner(*given, *arrays, **kwargs)
        return arrays


def _one_or_all(found: tuple[Any, ...]) -> Any:
    return found if len(found) > 1 else found[0]
