"""Whether a function that a library made take batches gives what it gave before."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def allows_batches(
    of_batch: Callable[..., Any], f: Callable[..., Any], arrays: tuple[Any, ...], position: int
) -> bool:
    """Tell whether a batch of the same point twice gives the same twice, but for rounding."""
    twice = np.stack([arrays[position]] * 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operations that loop over a batch
            found = of_batch(*arrays[:position], twice, *arrays[position + 1 :])
            expected = f(*arrays)
    except Exception:  # whatever f does that has no batch
        return False
    if not isinstance(expected, np.ndarray) or np.shape(found) != (2, *expected.shape):
        return False
    tolerance = 64 * np.finfo(expected.dtype).eps if expected.dtype.kind in "fc" else 0.0
    size = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    close = np.allclose(found, expected, rtol=tolerance, atol=tolerance * size, equal_nan=True)
    return bool(close)
