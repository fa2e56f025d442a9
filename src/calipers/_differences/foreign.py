"""Functions of another library's arrays in host memory, as functions of NumPy's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._libraries import library_of


@dataclass(frozen=True)
class Foreign:
    """
    A function that takes an array of the library of `like` at a position.

    What fills its results in, where `fills`, takes those of that library, too.
    """

    inner: Callable[..., Any]
    position: int
    like: Any
    fills: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's result, as NumPy's array if it is a library's."""
        library: Any = library_of(self.like)
        given = list(args)
        given[self.position] = library.put(given[self.position], self.like)
        if self.fills:
            given[-1] = library.from_numpy(given[-1])
        y = self.inner(*given, **kwargs)
        own = library_of(y)
        return y if own is None else own.fetch(y)
