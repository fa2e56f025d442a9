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


def torch_tensors(*arrays: np.ndarray) -> list[Any]:
    return [_torch().from_numpy(x) for x in arrays]


def torch_function(question: str) -> Callable[..., Any]:
    torch = _torch()
    return getattr(torch.testing if question == "assert_close" else torch, question)


def torch_allclose(a: np.ndarray, b: np.ndarray) -> Callable[[], bool]:
    torch = _torch()
    return partial(torch.allclose, torch.from_numpy(a), torch.from_numpy(b))


def torch_assert_close(a: np.ndarray, b: np.ndarray) -> Callable[[], None]:
    torch = _torch()
    return partial(torch.testing.assert_close, torch.from_numpy(a), torch.from_numpy(b))


def numpy_assert_allclose(a: np.ndarray, b: np.ndarray) -> Callable[[], None]:
    return partial(np.testing.assert_allclose, a, b)


def pytest_approx(actual: Any, expected: Any) -> Callable[[], bool]:
    approx = _module("pytest").approx
    return lambda: bool(actual == approx(expected))


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


def torch_gradcheck(
    f: Callable[..., Any], vjp: Callable[..., Any], x: np.ndarray
) -> Callable[[], Any]:
    """Return torch's slow mode for a function and its vjp of arrays, as users wrap them."""
    torch = _torch()

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.from_numpy(f(x.detach().numpy()))

        @staticmethod
        def backward(ctx: Any, w: Any) -> Any:
            return torch.from_numpy(vjp(ctx.saved_tensors[0].numpy(), w.numpy()))

    given = torch.tensor(x, requires_grad=True)
    # The backward gets NumPy's zeros, not the undefined gradients that torch tests with.
    options = {"check_undefined_grad": False}
    return partial(torch.autograd.gradcheck, Function.apply, (given,), **options)


def torch_function_checks(x: np.ndarray) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return calipers' and torch's check of the same torch function."""
    torch = _torch()
    given = torch.tensor(x, requires_grad=True)

    def f(x: Any) -> Any:
        return torch.sin(x) * x

    checks = calipers.gradcheck, torch.autograd.gradcheck
    return partial(checks[0], f, (given,)), partial(checks[1], f, (given,))


def torch_layer_checks(check: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return calipers' and torch's check of that name, of a linear layer of 8 x 16 to 4."""
    torch = _torch()
    random = np.random.default_rng(0)
    given = [
        torch.tensor(random.standard_normal(shape), requires_grad=True)
        for shape in ((8, 16), (4, 16), (4,))
    ]
    f = torch.nn.functional.linear
    own, peer = (getattr(module, check) for module in (calipers, torch.autograd))
    return partial(own, f, given), partial(peer, f, given)
