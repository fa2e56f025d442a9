"""Cotangents and tangents of a check: full precision, magnitudes over decades, any strides."""

import ml_dtypes
import numba
import numpy as np
import pytest

import calipers
from tests.data.gradcheck_functions import checked

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")

A = np.random.default_rng(1).standard_normal((5, 6))
X = np.random.default_rng(0).standard_normal(6)
FORMATS = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}


def f(x):
    return np.sin(A.astype(x.dtype) @ x)


def vjp(x, w):
    a = A.astype(x.dtype)
    return (w * np.cos(a @ x)) @ a


def jvp(x, v):
    a = A.astype(x.dtype)
    return np.cos(a @ x) * (a @ v)


FORMS = {"vjp": vjp, "jvp": jvp}


def changing(form, change):
    """Return a derivative that changes its direction first."""
    return {form: lambda x, v: FORMS[form](x, change(v))}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_direction_with_all_its_digits_passes(form, fast_mode, dtype):
    report = checked(f, X.astype(dtype), **{form: FORMS[form]}, fast_mode=fast_mode)
    assert report.verdict == "PASS"
    assert report.calls[form] < 25


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(
    ("dtype", "name"),
    [(np.float64, n) for n in FORMATS] + [(np.float32, n) for n in ("bfloat16", "float16")],
)
def test_a_direction_that_is_rounded_is_found(form, fast_mode, dtype, name):
    rounded = changing(form, lambda v: v.astype(FORMATS[name]).astype(dtype))
    report = checked(f, X.astype(dtype), **rounded, fast_mode=fast_mode)
    assert report.verdict == "FAIL"
    assert "is not linear in its" in report.reason or f"to {name}" in report.reason


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda v: np.where(np.abs(v) < 0.6, 0, v),
        lambda v: np.where(np.abs(v) < 1e-4, 0, v),
        lambda v: np.where(np.abs(v) < 0.01 * np.abs(v).max(), 0, v),
        lambda v: np.clip(v, -10, 10),
        lambda v: (v.view(np.int64) & ~0xFFFFFFFFFF).view(float),
    ],
)
def test_a_direction_whose_small_or_large_numbers_or_last_digits_are_lost(form, fast_mode, change):
    report = checked(f, X, **changing(form, change), fast_mode=fast_mode)
    assert report.verdict == "FAIL"
    assert "is not linear in its" in report.reason


def test_one_number_that_is_dropped_where_it_is_small():
    def call(x, w):
        return np.where(np.abs(w) < 1e-3, 0, w) * np.cos(x)

    assert "not linear" in checked(np.sin, np.array([0.5]), vjp=call).reason


# Of several inputs and outputs, one alone may be concerned.


def both(x, y):
    return np.sin(A @ x), x * y**2


def pulled(x, y, w):
    u, v = w
    return (u * np.cos(A @ x)) @ A + v * y**2, 2 * v * x * y


Y = np.linspace(0.5, 2, 6)


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("which", [0, 1, None])
def test_one_cotangent_of_two_is_rounded(which, fast_mode):
    def call(x, y, w):
        single = [u.astype(np.float32).astype(float) for u in w]
        return pulled(x, y, [single[k] if k == which else u for k, u in enumerate(w)])

    report = checked(both, (X, Y), vjp=call, fast_mode=fast_mode)
    assert report.verdict == ("PASS" if which is None else "FAIL")
    assert which is None or "rounds its cotangent to float32" in report.reason


def test_a_cotangent_is_rounded_for_the_gradient_of_one_input():
    def call(x, y, w):
        single = tuple(u.astype(np.float32).astype(float) for u in w)
        return pulled(x, y, w)[0], pulled(x, y, single)[1]

    assert "rounds its cotangent to float32" in checked(both, (X, Y), vjp=call).reason


def test_compiled_derivatives_that_are_asked_for_products():
    scale = np.linspace(0.5, 2.0, 500)

    def right(x, w):
        return w * scale * np.cos(scale * x)

    def wrong(x, w):
        return w.astype(np.float32).astype(np.float64) * scale * np.cos(scale * x)

    function = numba.njit(lambda x: np.sin(scale * x))
    x = np.linspace(0.1, 1, 500)
    assert checked(function, x, vjp=numba.njit(right)).verdict == "PASS"
    for form in ("vjp", "jvp"):
        report = checked(function, x, **{form: numba.njit(wrong)})
        assert "to float32" in report.reason


# What is no fault of the derivative's.


@pytest.mark.parametrize("name", FORMATS)
def test_a_rounding_that_the_caller_tolerates(name):
    call = changing("vjp", lambda w: w.astype(FORMATS[name]).astype(float))
    assert checked(f, X, **call, rtol=2e-2).verdict == "PASS"


@pytest.mark.parametrize("form", FORMS)
def test_a_function_that_computes_in_float32_inside(form):
    def narrow(x):
        return f(x.astype(np.float32)).astype(float)

    def call(x, v):
        return FORMS[form](x.astype(np.float32), v.astype(np.float32)).astype(float)

    assert not checked(narrow, X, **{form: call}).findings


def test_second_derivatives_whose_direction_is_rounded():
    def cubes(x, w):
        return 3 * w * x**2

    def second(x, w, u):
        return 6 * w * x * u, 3 * u * x**2

    def rounded(x, w, u):
        return second(x, w, u.astype(np.float32).astype(float))

    options = {"vjp": cubes, "raise_exception": False}
    assert calipers.gradgradcheck(lambda x: x**3, X, vjp_vjp=second, **options)
    report = calipers.gradgradcheck(lambda x: x**3, X, vjp_vjp=rounded, **options)
    assert "vjp_vjp rounds its cotangent to float32" in report.reason


# Autograd hands over cotangents with any strides.


def torch_square(torch, backward):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return backward(ctx.saved_tensors[0], g)

    return Square.apply


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("shape", [(3, 4), (5,)])
def test_a_backward_that_reads_memory_as_if_it_were_contiguous(fast_mode, shape):
    torch = pytest.importorskip("torch")
    strides = (4, 1) if len(shape) == 2 else (1,)

    def by_memory(x, g):
        return 2 * x * torch.as_strided(g, g.shape, strides)

    def by_view(x, g):
        return 2 * x * g.view(-1).reshape(g.shape)

    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    options = {"fast_mode": fast_mode, "raise_exception": False}
    for backward, expected in (
        (by_memory, "as if it were contiguous"),
        (by_view, "raises for a cotangent that is not contiguous"),
    ):
        if backward is by_view and len(shape) == 1:
            continue  # a view of one axis has any stride
        report = calipers.gradcheck(torch_square(torch, backward), x, **options)
        assert expected in report.reason
    right = torch_square(
        torch, lambda x, g: 2 * x * torch.as_strided(g.contiguous(), shape, strides)
    )
    assert calipers.gradcheck(right, x, **options)


def test_a_backward_that_rounds_its_cotangent():
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.5, 2, 7, dtype=torch.float64, requires_grad=True)
    for dtype in (torch.float32, torch.bfloat16):
        f = torch_square(torch, lambda x, g, dtype=dtype: 2 * x * g.to(dtype).double())
        assert calipers.gradcheck(f, x, raise_exception=False).verdict == "FAIL"


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 3, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_cotangents_of_any_shape_that_a_right_backward_takes(shape, dtype):
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.5, 2, int(np.prod(shape)), dtype=torch.float64).reshape(shape)
    x = x.to(getattr(torch, dtype)).requires_grad_()
    for f in (torch.sin, lambda x: x.expand(3, *x.shape), lambda x: x.sum().expand(3, 2)):
        assert calipers.gradcheck(f, x, check_forward_ad=True)


def test_jax_functions_that_round_their_direction():
    jax = pytest.importorskip("jax")

    @jax.custom_vjp
    def g(x):
        return jax.numpy.sin(x)

    def backward(x, w):
        return (w.astype("bfloat16").astype(w.dtype) * jax.numpy.cos(x),)

    g.defvjp(lambda x: (jax.numpy.sin(x), x), backward)
    x = jax.numpy.linspace(0.5, 2, 7)
    report = calipers.gradcheck(g, x, raise_exception=False)
    assert report.verdict == "FAIL"
    assert calipers.gradcheck(jax.numpy.sin, x)
