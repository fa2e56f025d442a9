"""What calipers asks of libraries of arrays and functions; `interop` has an answer for each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from .containers import Flattened

NDArray = np.ndarray[Any, np.dtype[Any]]
Result = TypeVar("Result")


class ArrayLibrary(Protocol):
    """A library whose arrays are compared where they lie."""

    def owns(self, x: Any) -> bool:
        """Tell whether x is one of the library's arrays, without importing the library."""
        ...

    def device(self, x: Any) -> str:
        """Name the device that holds x; "cpu" is the host."""
        ...

    def to_host_advice(self, x: Any, name: str) -> str:
        """Write the expression that copies x, called `name`, to the host."""
        ...

    def as_numpy(self, x: Any) -> NDArray:
        """Return an array as NumPy's: a view of a host array, a copy of another."""
        ...

    def from_numpy(self, x: Any) -> Any:
        """Hand a result over as the library's array."""
        ...

    def on_device(self, x: Any) -> tuple[Any, str | None, int | None]:
        """
        Return what has a CUDA array interface for an array on a device.

        And the name of its dtype, if the interface has none for it and gives its bits; and the
        stream that fills it, if the interface does not tell.
        """
        ...

    def empty(self, shape: tuple[int, ...], like: Any) -> Any | None:
        """
        Return an array of booleans from the library's pool, uninitialised, on the device of `like`.

        None if the library has no arrays that others may fill.
        """
        ...

    def from_device(self, x: Any, like: Any) -> Any:
        """Hand a device array over as the library's, beside an array of its own."""
        ...

    def put(self, x: NDArray, like: Any) -> Any:
        """Copy a host array to where one of the library's is."""
        ...

    def fetch(self, x: Any) -> NDArray:
        """Copy one of the library's arrays to the host, wherever it is."""
        ...


class Store(Protocol):
    """A library of arrays in files, or behind a network, that are read region by region."""

    def owns(self, x: Any) -> bool:
        """Tell whether x is one of the library's arrays, without importing the library."""
        ...

    def name(self, x: Any) -> str:
        """Name an array as its user would, for errors."""
        ...

    def chunks(self, x: Any) -> tuple[int, ...] | None:
        """Return the shape of what is read as a whole, if the array is kept in such chunks."""
        ...

    def read(self, x: Any, region: tuple[slice, ...]) -> NDArray:
        """Return a region as a new array."""
        ...

    def state(self, x: Any) -> Any:
        """Return what changes if the array is cut while it is read: asked before and after."""
        ...


class UnevenError(ValueError):
    """Two sequences of chunks do not have the same shape as wholes, as their end has shown."""


class ChunkedPair(Protocol):
    """One or two arrays that are not in memory as a whole, taken apart into blocks that are."""

    counted: bool
    """Whether shapes are known from the start, and not only when all has been read."""

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each array."""
        ...

    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        """Return the dtype of each array."""
        ...

    def every(self, test: Callable[..., bool]) -> bool:
        """
        Tell whether ``test(block of a, block of b)`` holds for all blocks, or ``test(block of a)``.

        What is left is neither read nor computed once it does not hold. UnevenError is raised if
        it holds for all, but one of two sequences of chunks ends before the other.
        """
        ...

    def reduced(
        self, part: Callable[..., Result], merge: Callable[[Result, Result], Result]
    ) -> Result | None:
        """
        Merge ``part(corner, block of a, block of b)`` of all blocks, pair by pair.

        `corner` is the index that a block's first element has in the whole. None if there is no
        block.
        """
        ...


@dataclass(frozen=True)
class Differentiated:
    """A library's function at a point as a function of NumPy arrays, and its own derivatives."""

    f: Callable[..., Any]
    inputs: tuple[Any, ...]
    argnums: tuple[int, ...]
    nondifferentiable_outputs: tuple[int, ...]
    vjp: Callable[..., Any]
    jvp: Callable[..., Any]
    convention: str
    batched: Callable[[int], Callable[..., Any] | None]
    """Of an input, f with a leading axis there and on its outputs, if that may be tried."""
    constant: bool = False
    """Whether the library says of no output that it depends on anything."""
    primals: dict[str, Any] = field(default_factory=dict)
    """What the derivatives, once asked, took for the values of the differentiable outputs."""
    used: tuple[int, ...] = ()
    """Inputs that f uses themselves, of which it is given copies: these cannot be moved."""
    value_indices: dict[int, tuple[NDArray, ...]] = field(default_factory=dict)
    """By sparse input, the indices of the values that its array is of; none if it is of all."""


class ContainerLibrary(Protocol):
    """What knows the containers of arrays that functions of a library take and return."""

    def flatten(self, x: Any) -> Flattened:
        """Take a container apart, of whatever kinds the library knows; see `Flattened`."""
        ...

    def is_active(self, x: Any) -> bool:
        """Tell whether f is differentiated by this, unless the caller says by what."""
        ...

    def copied(self, x: Any) -> Any:
        """Return what f may write into in the place of x."""
        ...


class FunctionLibrary(ContainerLibrary, Protocol):
    """A library that differentiates functions of its arrays by itself."""

    def owns(self, x: Any) -> bool:
        """Tell whether x is, or contains, an array of the library, without importing that."""
        ...

    def differentiated(
        self,
        f: Callable[..., Any],
        inputs: tuple[Any, ...],
        masked: bool,
        argnums: tuple[int, ...] | None,
        left_out: tuple[int, ...],
        names: tuple[str, ...],
    ) -> Differentiated:
        """
        Return f and its derivatives as functions of NumPy arrays.

        They are by the inputs at `argnums`, or all that can be, and not of the outputs `left_out`.
        `names` are those of the inputs, for errors.
        Of a sparse input the array is that of its values: of the specified ones alone if `masked`.
        """
        ...

    def gradient(
        self,
        f: Callable[..., Any],
        inputs: tuple[Any, ...],
        argnums: tuple[int, ...],
        outputs: tuple[int, ...],
        cotangents: tuple[NDArray, ...],
        spread: bool,
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """
        Return the gradient of ``<w, f>`` as a function of the inputs and w, and its inputs.

        It is by the inputs at `argnums`, and w are cotangents of some outputs; f's derivative gets
        them spread in memory, if asked, so that they are not contiguous.
        """
        ...
