"""Memory: what f and its caller share, keep or write, and results that do not fit."""

import tracemalloc

import numba
import numpy as np
import pytest

import calipers
from tests.data.derivative_functions import (
    BARS,
    SIX,
    M,
    X,
    assert_near,
    chain_jacobian,
    compiled_chain,
    compiled_rows,
    counted,
    methods,
    posed,
    square,
)

# Memory that f shares, keeps or writes.


def _readonly(x):
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "read-only": _readonly,
    "reversed": lambda x: x[::-1].copy()[::-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=0)[::2],
    "transposed": lambda x: x.T.copy().T,
}


def _scribble(x):
    y = x**2
    x[...] = -1
    return y


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("f", [compiled_rows, square, _scribble])
@pytest.mark.parametrize("method", ["3-point", "adaptive", "cs"])
def test_x_is_never_written(f, layout, method):
    x = LAYOUTS[layout](M)
    before = x.copy()
    exact = chain_jacobian(before) if f is compiled_rows else np.diag(2 * before.ravel())
    found = calipers.jacobian(f, x, method=method)
    assert np.array_equal(x, before)
    assert_near(found, exact.reshape(2, 3, 2, 3), BARS[method])
    v = np.ones_like(before)
    calipers.jvp(f, x, v, method=method)
    calipers.vjp(f, x, v, method=method)
    assert np.array_equal(x, before)
    assert np.array_equal(v, np.ones_like(before))


@methods
def test_f_may_write_into_its_argument(method):
    assert_near(calipers.jacobian(_scribble, X, method=method), np.diag(2 * X), BARS[method])
    h = calipers.hessian(lambda x: _scribble(x).sum(), X)
    assert_near(h.value, 2 * np.eye(4), 1e-5)
    j = calipers.jacobian_function(_scribble, method=method)
    assert_near(j(X), np.diag(2 * X), BARS[method])
    assert_near(calipers.jvp(_scribble, X, np.ones(4), method=method), 2 * X, BARS[method])


@numba.njit
def scribbles(x):
    y = x * x
    x[0] = -1.0
    return y


@methods
def test_a_compiled_function_that_writes_into_its_argument_is_refused(method):
    assert posed(scribbles, X, method=method).native is not None
    with pytest.raises(ValueError, match="f changes its argument"):
        calipers.jacobian(scribbles, X, method=method)


@methods
def test_a_compiled_function_that_writes_into_the_last_element_is_refused(method):
    """The last difference restores that element."""

    @numba.njit
    def writes(x):
        x[1] = 3.0
        return x * x

    with pytest.raises(ValueError, match="f changes its argument") as caught:
        calipers.jacobian(writes, np.array([1.0, 2.0]), method=method)
    assert caught.value.__notes__[0].startswith("detected with x[")


@methods
def test_f_may_return_its_argument(method):
    @numba.njit
    def same(x):
        return x

    bar = BARS[method]
    assert_near(calipers.jacobian(lambda x: x, X, method=method), np.eye(4), bar)
    assert_near(calipers.jacobian(lambda x: x[::-1], X, method=method), np.eye(4)[::-1], bar)
    assert_near(calipers.jacobian(lambda x: x, X, method=method, batched=True), np.eye(4), bar)
    assert_near(calipers.jacobian(same, X, method=method), np.eye(4), bar)
    assert_near(calipers.jvp(lambda x: x, X, X, method=method), X, 4 * bar)
    assert_near(calipers.vjp(lambda x: x, X, X, method=method), X, 4 * bar)


@methods
def test_f_may_return_a_buffer_that_it_overwrites(method):
    buffer = np.empty(4, complex if method == "cs" else float)

    def f(x):
        buffer[:] = x**2
        return buffer

    batch = np.empty((20, 4), buffer.dtype)

    def batched(x):
        batch[: len(x)] = x**2
        return batch[: len(x)]

    assert_near(calipers.jacobian(f, X, method=method), np.diag(2 * X), BARS[method])
    found = calipers.jacobian(batched, X, method=method, batched=True)
    assert_near(found, np.diag(2 * X), BARS[method])
    jac = calipers.jacobian_function(f, X, method=method)
    assert_near(jac(2 * X), np.diag(4 * X), 2 * BARS[method])
    h = calipers.hessian(None, X, gradient=lambda x: f(x)) if method != "cs" else None
    assert h is None or np.abs(h.value - np.diag(2 * X)).max() <= 1e-9


def test_f_may_keep_its_arguments():
    kept = []

    def f(x):
        kept.append(x)
        return x**2

    calipers.jacobian(f, X)
    assert all(np.count_nonzero(x != X) <= 1 for x in kept)
    assert len({x.ctypes.data for x in kept}) == len(kept)


def test_rows_that_f_spoils_are_its_own():
    def f(i, x):
        value = x[i] ** 2
        x[:] = 7.0
        return value

    found = calipers.jacobian(f, SIX, rowwise=True, out_like=SIX)
    assert np.allclose(found, np.diag(2 * SIX), atol=1e-6)
    with pytest.raises(TypeError, match=r"must return a number that .* got None for i = 0"):
        calipers.jacobian(lambda i, x: None, SIX, rowwise=True, out_like=SIX)


# Results that do not fit.


@pytest.mark.parametrize(
    "ask",
    [
        lambda f, x, **options: calipers.jacobian(f, x, **options),
        lambda f, x, **options: calipers.differentiate(f, x, **options),
        lambda f, x, **options: calipers.jacobian_function(f, x, **options),
        lambda f, x, **options: calipers.jacobian_function(f, **options)(x),
        lambda f, x, **options: calipers.hessian(None, x, gradient=f, **options),
    ],
    ids=["jacobian", "differentiate", "planned", "function", "hessian"],
)
def test_a_result_that_does_not_fit_is_refused(ask):
    f, seen = counted(lambda x: x)
    with pytest.raises(
        MemoryError, match=r"sparsity.*jvp.*jacobian_blocks.*memory_limit"
    ) as caught:
        ask(f, np.ones(1000), memory_limit=2e6)
    assert "GB" in str(caught.value)
    assert "0.002 GB" in str(caught.value)
    assert len(seen) <= 1


@pytest.mark.parametrize("f", [lambda x: x, compiled_chain], ids=["python", "compiled"])
def test_more_memory_than_there_is_is_refused(f):
    with pytest.raises(MemoryError, match=r"to 1000000 elements needs .* GB"):
        calipers.jacobian(f, np.ones(10**6))


def test_f_is_not_called_for_a_result_that_does_not_fit():
    f, seen = counted(np.copyto)
    for ask in (calipers.jacobian, calipers.differentiate):
        with pytest.raises(MemoryError):
            ask(f, np.ones(1000), out_like=1000, memory_limit=2e6)
    assert seen == []


def test_a_limit_that_is_kept_is_no_limit():
    assert calipers.jacobian(lambda x: x, np.ones(400), memory_limit=2e6).shape == (400, 400)


def test_extrapolation_of_two_columns_takes_little_more_memory_than_x():
    x = np.linspace(1.0, 2.0, 100_000)
    blocks = calipers.jacobian_blocks(lambda x: x[:1], x, block=2, method="adaptive")
    next(blocks)
    tracemalloc.start()
    try:
        next(blocks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * x.nbytes
