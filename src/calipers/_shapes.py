"""The shape that arrays broadcast to, of any number of axes that NumPy has."""

from collections.abc import Sequence

import numpy as np

from ._protocols import NDArray


def broadcast_arrays(*arrays: NDArray, subok: bool) -> tuple[NDArray, ...]:
    """Bring arrays to one shape, as NumPy's function does for up to 32 axes."""
    shape = common_shape_of(arrays)
    return tuple(np.broadcast_to(x, shape, subok=subok) for x in arrays)


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that others broadcast to; a ValueError tells that there is none."""
    return common_shape_of([np.broadcast_to(np.empty((), bool), shape) for shape in shapes])


def common_shape_of(arrays: Sequence[NDArray]) -> tuple[int, ...]:
    """Return the shape that arrays broadcast to; a ValueError tells that there is none."""
    shape: tuple[int, ...] = arrays[0].shape
    if [x.shape for x in arrays].count(shape) == len(arrays):
        return shape
    try:
        return np.broadcast(*arrays).shape
    except RuntimeError:  # of more than 32 axes, of which arrays may have 64
        like = [np.broadcast_to(np.empty((), bool), x.shape) for x in arrays]
        return np.nditer(like, ["multi_index", "zerosize_ok"]).shape


def broadcast_shape(arrays: Sequence[NDArray], names: Sequence[str]) -> tuple[int, ...]:
    """Return the shape that arrays broadcast to; the names are for the error."""
    try:
        return common_shape_of(arrays)
    except ValueError:
        shapes = ", ".join(f"{name} {x.shape}" for name, x in zip(names, arrays, strict=False))
        msg = f"operands could not be broadcast together: their shapes are {shapes}"
        raise ValueError(msg) from None
