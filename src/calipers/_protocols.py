"""What calipers asks of an array library; `interop` holds one answer per library."""

from typing import Any, Protocol

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]


class ArrayLibrary(Protocol):
    """A library whose arrays are compared where they lie, in memory that the host can read."""

    def owns(self, x: Any) -> bool:
        """Tell whether x is one of the library's arrays, without importing the library."""
        ...

    def device(self, x: Any) -> str:
        """Name the device that holds x; "cpu" is the host."""
        ...

    def to_host_advice(self, name: str) -> str:
        """Write the expression that copies the array called `name` to the host."""
        ...

    def as_numpy(self, x: Any) -> NDArray:
        """View a host array as NumPy's, without a copy."""
        ...

    def from_numpy(self, x: Any) -> Any:
        """Hand a result over as the library's array."""
        ...
