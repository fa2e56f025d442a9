"""The same questions put to others, with all conversion done before the clock starts."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
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


def _module(name: str) -> Any:
    """Raise NotImplementedError, which asv takes for a skip, if a module is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise NotImplementedError(f"{name} is not installed") from None


def scipy_derivative(f: Callable[..., Any], x: np.ndarray, **options: Any) -> Callable[[], Any]:
    """Differentiate as SciPy's solvers do by default."""
    numdiff = _module("scipy.optimize._numdiff")
    return partial(numdiff.approx_derivative, f, x, **options)


def tridiagonal(n: int) -> Any:
    sparse = _module("scipy.sparse")
    diagonals = [np.ones(n - 1), np.ones(n), np.ones(n - 1)]
    return sparse.diags_array(diagonals, offsets=[-1, 0, 1]).tocsc()


def numdifftools(f: Callable[..., Any], x: np.ndarray) -> Callable[[], Any]:
    return partial(_module("numdifftools").Jacobian(f), x)


def jacobi(f: Callable[..., Any], x: np.ndarray) -> Callable[[], Any]:
    return partial(_module("jacobi").jacobi, f, x)
