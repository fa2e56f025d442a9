"""Interfaces of array, storage and differentiation libraries, which `interop` implements."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from .containers import Flattened

NDArray = np.ndarray[Any, np.dtype[Any]]
Result = TypeVar("Result")


class ArrayLibrary(Protocol):
    """A library whose arrays are compared without copying them to NumPy."""

    def owns(self, x: Any) -> bool:
        """Return True if x is an array of the library, without importing the library."""
        ...

    def device(self, x: Any) -> str:
        """Return the name of the device of an array; "cpu" is the host."""
        ...

    def to_host_advice(self, x: Any, name: str) -> str:
        """Return the expression that copies an array called `name` to the host."""
        ...

    def as_numpy(self, x: Any) -> NDArray:
        """Convert an array to NumPy: a view of a host array, a copy of others."""
        ...

    def from_numpy(self, x: Any) -> Any:
        """Convert a NumPy array to an array of the library."""
        ...

    def on_device(self, x: Any) -> tuple[Any, str | None, int | None]:
        """
        Return an object with a CUDA array interface for an array on a device, a dtype and a stream.

        The name of the dtype is returned if the interface has the bits as integers, and the stream
        that writes the array if it is not in the interface. Otherwise they are None.
        """
        ...

    def empty(self, shape: tuple[int, ...], like: Any) -> Any | None:
        """
        Return an uninitialised array of bool of the library, on the device of `like`.

        None if arrays of the library are immutable.
        """
        ...

    def from_device(self, x: Any, like: Any) -> Any:
        """Convert a device array to an array of the library, on the device of `like`."""
        ...

    def put(self, x: NDArray, like: Any) -> Any:
        """Copy a host array to the device of `like`."""
        ...

    def fetch(self, x: Any) -> NDArray:
        """Copy an array of the library to the host."""
        ...


class Store(Protocol):
    """A library of arrays in files or on a network, which are read region by region."""

    def owns(self, x: Any) -> bool:
        """Return True if x is an array of the library, without importing the library."""
        ...

    def name(self, x: Any) -> str:
        """Return a description of an array for errors."""
        ...

    def chunks(self, x: Any) -> tuple[int, ...] | None:
        """Return the shape of the chunks, which are read as a whole; None without chunks."""
        ...

    def read(self, x: Any, region: tuple[slice, ...]) -> NDArray:
        """Return a region as a new array."""
        ...

    def state(self, x: Any) -> Any:
        """Return a value that changes if the array is resized, to compare after reading."""
        ...


class UnevenError(ValueError):
    """Two sequences of chunks have different total shapes."""


class ChunkedPair(Protocol):
    """One or two arrays that are not in memory as a whole, read in blocks."""

    has_shapes: bool
    """True if shapes are known before all blocks are read."""

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each array."""
        ...

    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        """Return the dtype of each array."""
        ...

    def every(self, test: Callable[..., bool]) -> bool:
        """
        Return True if ``test(block of a, block of b)`` is true for all blocks.

        No block is read after one for which it is false. Raise UnevenError if it is true for all
        blocks, but one of two sequences of chunks ends before the other. For one array, `test` has
        one argument.
        """
        ...

    def reduce(
        self, part: Callable[..., Result], merge: Callable[[Result, Result], Result]
    ) -> Result | None:
        """
        Return ``part(corner, block of a, block of b)`` of all blocks, merged by ``merge``.

        `corner` is the index of a block's first element in the whole array. Return None if there
        are no blocks.
        """
        ...


@dataclass(frozen=True)
class Differentiated:
    """A function of a library at a point, and its derivatives, as functions of NumPy arrays."""

    f: Callable[..., Any]
    inputs: tuple[Any, ...]
    argnums: tuple[int, ...]
    nondifferentiable_outputs: tuple[int, ...]
    vjp: Callable[..., Any]
    jvp: Callable[..., Any]
    convention: str
    batched: Callable[[int], Callable[..., Any] | None]
    """Return f with a batch axis on one input and on the outputs; None if it cannot be batched."""
    constant: bool = False
    """True if no output depends on an input, according to the library."""
    primals: dict[str, Any] = field(default_factory=dict)
    """The values of the differentiable outputs that the derivatives were computed with."""
    used: tuple[int, ...] = ()
    """Inputs whose memory f uses directly instead of its arguments; they cannot be perturbed."""
    value_indices: dict[int, tuple[NDArray, ...]] = field(default_factory=dict)
    """For each sparse input, the indices of the values in its array; empty if it has all."""


class ContainerLibrary(Protocol):
    """A library whose functions take and return containers of arrays."""

    def flatten(self, x: Any) -> Flattened:
        """Flatten a container of any kind that the library supports; see `Flattened`."""
        ...

    def is_active(self, x: Any) -> bool:
        """Return True if f is differentiated with respect to x by default."""
        ...

    def copied(self, x: Any) -> Any:
        """Return a copy of x that f may modify."""
        ...


class FunctionLibrary(ContainerLibrary, Protocol):
    """A library with automatic differentiation of functions of its arrays."""

    def owns(self, x: Any) -> bool:
        """Return True if x is or contains an array of the library, without importing it."""
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

        They are derivatives with respect to the inputs at `argnums`, by default all active ones, of
        all outputs except `left_out`. `names` are the names of the inputs, for errors. The array of
        a sparse input is that of its values: if `masked`, of the specified ones only.
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

        It is the gradient with respect to the inputs at `argnums`, and w are cotangents of some
        outputs. With `spread`, the cotangents are passed as non-contiguous arrays.
        """
        ...
