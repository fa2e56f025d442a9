"""Whether a function that a library made take batches gives what it gave before."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def allows_batches(
    of_batch: Callable[..., Any], f: Callable[..., Any], arrays: tuple[Any, ...], position: int
) -> bool:
    """Tell whether a batch of the point and one beside it gives what f does, but for rounding."""
    x = arrays[position]
    # Not the same point twice: some batches are of one of their points alone.
    points = np.stack([x, x + np.finfo(x.dtype).eps ** (1 / 3) * np.maximum(1, np.abs(x))])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operations that loop over a batch
            found = of_batch(*arrays[:position], points, *arrays[position + 1 :])
            values = [f(*arrays[:position], x, *arrays[position + 1 :]) for x in points]
    except Exception:  # whatever f does that has no batch
        return False
    if not all(isinstance(y, np.ndarray) for y in values):
        return False
    expected = np.stack(values)
    if np.shape(found) != expected.shape:
        return False
    tolerance = 64 * np.finfo(expected.dtype).eps if expected.dtype.kind in "fc" else 0.0
    size = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    close = np.allclose(found, expected, rtol=tolerance, atol=tolerance * size, equal_nan=True)
    return bool(close)
