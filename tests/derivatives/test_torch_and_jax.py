"""Functions of torch's tensors and jax's arrays on the host are differentiated as NumPy's are."""

import pickle

import numpy as np
import pytest
from numba import njit

import calipers

X = np.array([1.0, 2.0, 3.0])
JAC = np.diag(np.cos(X) * X.sum()) + np.sin(X)[:, None]


def torch_case():
    torch = pytest.importorskip("torch")
    return torch, lambda t: torch.sin(t) * t.sum(), torch.from_numpy(X.copy()), torch.Tensor


def jax_case():
    jax = pytest.importorskip("jax")
    x = jax.numpy.array(X, dtype=np.float32)
    return jax, lambda t: jax.numpy.sin(t) * t.sum(), x, jax.Array


CASES = pytest.mark.parametrize(
    ("case", "allowed"), [(torch_case, 1e-8), (jax_case, 3e-3)], ids=["torch", "jax"]
)


@CASES
def test_the_result_is_of_the_library(case, allowed):
    _, f, x, kind = case()
    found = calipers.jacobian(f, x)
    assert isinstance(found, kind)
    assert str(found.dtype) == str(x.dtype)
    np.testing.assert_allclose(np.asarray(found), JAC, atol=allowed)
    np.testing.assert_array_equal(np.asarray(x), X)


@CASES
def test_every_question_takes_them(case, allowed):
    _, f, x, kind = case()
    ones = 0 * x + 1
    pushed, pulled = calipers.jvp(f, x, ones), calipers.vjp(f, x, ones)
    assert isinstance(pushed, kind)
    assert isinstance(pulled, kind)
    np.testing.assert_allclose(np.asarray(pushed), JAC @ np.ones(3), atol=3 * allowed)
    np.testing.assert_allclose(np.asarray(pulled), np.ones(3) @ JAC, atol=3 * allowed)
    d = calipers.differentiate(f, x)
    assert np.all(np.abs(d.value - JAC) <= d.error)
    planned = calipers.jacobian_function(f, x)
    for point in (x, x + 0):
        assert isinstance(planned(point), kind)
        np.testing.assert_allclose(np.asarray(planned(point)), JAC, atol=allowed)
    rowwise = calipers.jacobian(lambda i, t: f(t)[i], x, rowwise=True, out_like=3)
    np.testing.assert_allclose(np.asarray(rowwise), JAC, atol=allowed)
    second = calipers.hessian(lambda t: (t**3).sum(), x, method="adaptive")
    np.testing.assert_allclose(second.value, np.diag(6 * X), atol=20 * allowed)


def test_torch_functions_of_other_forms():
    torch, f, x, _ = torch_case()

    def fills(t, out):
        torch.mul(torch.sin(t), t.sum(), out=out)

    for found in (
        calipers.jacobian(fills, x, out_like=(3,)),
        calipers.jacobian(torch.func.vmap(f), x, batched=True),
        calipers.jacobian(lambda a, t: a * f(t), x, args=(1.0,), argnums=1),
        calipers.jacobian(f, x.clone().requires_grad_()),
        calipers.jacobian(f, x, workers=2),
    ):
        assert isinstance(found, torch.Tensor)
        assert not found.requires_grad
        np.testing.assert_allclose(found.numpy(), JAC, atol=1e-8)
    z = torch.tensor([1 + 2j, 3.0], dtype=torch.complex128)
    by_z, by_conjugate = calipers.jacobian(lambda z: z**2, z)
    np.testing.assert_allclose(by_z.numpy(), np.diag(2 * z.numpy()), atol=1e-8)
    np.testing.assert_allclose(by_conjugate.numpy(), np.zeros((2, 2)), atol=1e-8)


def test_compiled_functions_are_given_numpys_arrays():
    torch = pytest.importorskip("torch")

    @njit
    def f(x):
        return x**2

    found = calipers.jacobian(f, torch.from_numpy(X.copy()))
    np.testing.assert_allclose(found.numpy(), np.diag(2 * X), atol=1e-8)


def test_a_plan_serves_the_library_it_was_made_for():
    torch = pytest.importorskip("torch")
    kinds = []

    def f(x):
        kinds.append(type(x))
        return x**2

    planned = pickle.loads(pickle.dumps(calipers.jacobian_function(np.square, X)))
    assert isinstance(planned(X), np.ndarray)
    planned = calipers.jacobian_function(f, X)
    assert isinstance(planned(torch.from_numpy(X.copy())), torch.Tensor)
    assert kinds[-1] is torch.Tensor
    assert isinstance(planned(X), np.ndarray)
    assert kinds[-1] is np.ndarray


def test_sparse_results_are_scipys():
    sparse = pytest.importorskip("scipy.sparse")
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X.copy())
    for ask in (calipers.jacobian, lambda f, x, **how: calipers.jacobian_function(f, x, **how)(x)):
        found = ask(torch.square, x, sparsity=np.eye(3))
        assert sparse.issparse(found)
        np.testing.assert_allclose(found.toarray(), np.diag(2 * X), atol=1e-8)


def test_a_checkpoint_knows_the_function(tmp_path):
    torch, f, x, _ = torch_case()
    first = calipers.jacobian(f, x, checkpoint=tmp_path)
    assert torch.equal(first, calipers.jacobian(f, x, checkpoint=tmp_path))
    with pytest.raises(ValueError, match="a different f"):
        calipers.jacobian(lambda t: 2 * f(t), x, checkpoint=tmp_path)


def test_tensors_that_require_grad_may_stand_beside_x():
    torch = pytest.importorskip("torch")
    f = lambda t: t * t  # noqa: E731
    x = torch.from_numpy(X.copy()).requires_grad_(True)
    expected = calipers.jacobian(f, X, scale=X, bounds=(0 * X, 9.0))
    options = {"scale": x, "bounds": (0 * x, 9.0)}
    assert np.array_equal(calipers.jacobian(f, X, **options), expected)
    assert np.array_equal(calipers.jacobian(f, x, **options).numpy(), expected)
    filled = calipers.jacobian(lambda t, out: out.copy_(f(t.detach())), x, out_like=x, scale=X)
    np.testing.assert_allclose(filled.numpy(), np.diag(2 * X), atol=1e-8)
    of_tensors = calipers.jacobian(lambda a: f(torch.tensor(a, requires_grad=True)), X)
    np.testing.assert_allclose(of_tensors, np.diag(2 * X), atol=1e-8)
