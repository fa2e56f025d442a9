"""The same questions put to others, with all conversion done before the clock starts."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import calipers


def _allfinite(a: np.ndarray) -> bool:
    return bool(np.isfinite(a).all())


# By the name of the question in calipers.
NUMPY: dict[str, Callable[..., Any]] = {
    "allclose": np.allclose,
    "isclose": np.isclose,
    "array_equal": np.array_equal,
    "allfinite": _allfinite,
}


def _torch() -> Any:
    """Raise NotImplementedError, which asv takes for a skip, if torch is not installed."""
    try:
        import torch
    except ImportError:
        raise NotImplementedError("torch is not installed") from None
    torch.set_num_threads(calipers.get_num_threads())
    return torch


def torch_allclose(a: np.ndarray, b: np.ndarray) -> Callable[[], bool]:
    torch = _torch()
    return partial(torch.allclose, torch.from_numpy(a), torch.from_numpy(b))


def torch_assert_close(a: np.ndarray, b: np.ndarray) -> Callable[[], None]:
    torch = _torch()
    return partial(torch.testing.assert_close, torch.from_numpy(a), torch.from_numpy(b))


def numpy_assert_allclose(a: np.ndarray, b: np.ndarray) -> Callable[[], None]:
    return partial(np.testing.assert_allclose, a, b)
