"""Inputs as NumPy arrays, and those of them that can be moved by last places."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._containers import several
from .._libraries import library_of
from .._protocols import ArrayLibrary, NDArray

WIDER: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float64),
    "bfloat16": np.dtype(np.float64),
    "float32": np.dtype(np.float64),
    "float64": np.dtype(np.longdouble),
    "complex64": np.dtype(np.complex128),
    "complex128": np.dtype(np.clongdouble),
}


def as_inputs(inputs: Any, names: Sequence[str] = ()) -> tuple[Any, ...]:
    """Return copies of inputs as NumPy arrays; what is none, a flag say, is handed on as it is."""
    given = several(inputs)
    names = names or [f"inputs[{k}]" for k in range(len(given))]
    return tuple(map(_as_input, given, names))


def _as_input(x: Any, name: str) -> Any:
    library = library_of(x)
    if library is not None:
        # A key of jax is one of its arrays, and of no numbers.
        return x if str(x.dtype).startswith("key<") else _fetched(library, x, name)
    if isinstance(x, np.ma.MaskedArray):
        msg = f"{name} is a masked array: pass its data and its mask, and combine them in f"
        raise TypeError(msg)
    if isinstance(x, np.matrix):  # of which * is another product
        msg = f"{name} is a numpy.matrix: pass an array, and convert it to a matrix in f"
        raise TypeError(msg)
    if isinstance(x, (np.ndarray, np.generic, float, complex)) and not isinstance(x, bool):
        return np.array(x, order="K")
    return x


def _fetched(library: ArrayLibrary, x: Any, name: str) -> NDArray:
    try:
        return np.array(library.fetch(x))
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def longest_axis(arrays: Sequence[Any]) -> int:
    """Return how long the longest axis of arrays is, which sums are no longer than; at least 1."""
    lengths: list[int] = [n for x in arrays if isinstance(x, np.ndarray) for n in x.shape]
    return max([1, *lengths])


def is_movable(x: Any) -> bool:
    """Tell whether an input is of floating-point numbers, which can be moved a little."""
    return isinstance(x, np.ndarray) and (x.dtype.kind in "fc" or x.dtype.name == "bfloat16")


def widened(inputs: Sequence[Any]) -> list[Any]:
    """Return the same numbers in the next wider format."""
    return [x.astype(WIDER[x.dtype.name]) if is_movable(x) else x for x in inputs]


def movable(inputs: Sequence[Any]) -> list[int]:
    """Return the places of inputs that can be moved, or rounded."""
    return [k for k, x in enumerate(inputs) if is_movable(x)]


def inputs_of(inputs: Any, names: Sequence[str] = ()) -> tuple[Any, ...]:
    """Return inputs as arrays, of formats that have a next wider one."""
    arrays = as_inputs(inputs, names)
    for k, x in enumerate(arrays):
        if is_movable(x) and x.dtype.name not in WIDER:
            name = names[k] if names else f"inputs[{k}]"
            msg = f"{name} has dtype {x.dtype}, which has no higher precision; "
            raise TypeError(msg + "pass float64 or complex128")
    return arrays
