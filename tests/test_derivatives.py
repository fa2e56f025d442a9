"""jacobian, differentiate and their relatives: shapes, forms of f, workers, steps and bounds."""

import json
import multiprocessing.pool
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest

import calipers
from calipers._differences.plan import Options, pose
from calipers._differences.run import Pace, run
from calipers._differences.sending import _read
from calipers._kernels.differences import COLUMNS

FIXED = ["2-point", "3-point", "5-point"]
BOUNDABLE = [*FIXED, "adaptive"]
METHODS = [*BOUNDABLE, "cs"]
BARS = {"2-point": 1e-6, "3-point": 1e-8, "5-point": 1e-10, "adaptive": 1e-9, "cs": 1e-14}
CALLS = {"2-point": 1, "3-point": 2, "5-point": 4, "cs": 1}
WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (6, 300))

methods = pytest.mark.parametrize("method", METHODS)
boundable = pytest.mark.parametrize("method", BOUNDABLE)


def assert_near(found, exact, bar=1e-8):
    found, exact = np.asarray(found), np.asarray(exact)
    assert found.shape == exact.shape
    assert np.all(np.abs(found - exact) <= bar * max(1.0, np.abs(exact).max(initial=0)))


def waves(x):
    return np.sin(WEIGHTS[:, : x.size] @ x.reshape(-1))


def waves_jacobian(x):
    weights = WEIGHTS[:, : x.size]
    return (np.cos(weights @ x.reshape(-1))[:, None] * weights).reshape(6, *x.shape)


def square(x):
    return x * x


def counted(f):
    """Return f, and a list that grows by its argument at each call."""
    seen = []

    def recorded(x, *rest, **named):
        seen.append(np.array(x))
        return f(x, *rest, **named)

    return recorded, seen


def points(seen, shape):
    """Return all points at which a recorded f was called, whether in batches or not."""
    return np.concatenate([s.reshape(-1, *shape) for s in seen])


# Shapes and kinds of x and f(x).


@pytest.mark.parametrize("inner", [(), (3,), (2, 3), (2, 1, 2)])
@pytest.mark.parametrize("outer", [(), (4,), (2, 2), (1, 2, 2)])
@methods
def test_the_shape_is_that_of_f_and_then_that_of_x(outer, inner, method):
    rng = np.random.default_rng(1)
    weights, x = rng.uniform(-1, 1, outer + inner), rng.uniform(-1, 1, inner)

    def f(x):
        assert np.shape(x) == inner
        return np.tensordot(weights, np.sin(x), axes=len(inner))

    assert_near(calipers.jacobian(f, x, method=method), weights * np.cos(x), BARS[method])
    d = calipers.differentiate(f, x, method=method)
    assert_near(d.value, weights * np.cos(x), BARS[method])
    assert d.error.shape == outer + inner
    assert d.step.shape == d.status.shape == inner


@methods
def test_a_number_is_differentiated_by_a_number(method):
    for x in (0.5, np.float64(0.5), np.array(0.5)):
        found = calipers.jacobian(np.sin, x, method=method)
        assert found.shape == ()
        assert_near(found, np.cos(0.5), BARS[method])


@pytest.mark.parametrize("inner", [(0,), (0, 3), (2, 0), (2,), ()])
@pytest.mark.parametrize("outer", [(0,), (3, 0), (2,), ()])
@methods
def test_nothing_has_an_empty_derivative(outer, inner, method):
    def f(x):
        return np.zeros(outer) + np.sum(x) * np.ones(outer)

    x = np.ones(inner)
    assert_near(calipers.jacobian(f, x, method=method), np.ones(outer + inner), 1e-6)
    d = calipers.differentiate(f, x, method=method)
    assert d.value.shape == d.error.shape == outer + inner
    assert str(d)
    assert_near(calipers.jvp(f, x, x, method=method), np.full(outer, x.size), 1e-6)
    w = np.ones(outer)
    assert_near(calipers.vjp(f, x, w, method=method), np.full(inner, w.size), 1e-6)


@pytest.mark.parametrize("shape", [(0,), (0, 2)])
@methods
def test_compiled_functions_of_nothing_have_an_empty_derivative(shape, method):
    f = compiled_chain if len(shape) == 1 else compiled_rows
    assert calipers.jacobian(f, np.ones(shape), method=method).shape == shape + shape


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "i8", "u8"])
@methods
def test_integers_become_float64(dtype, method):
    found = calipers.jacobian(square, np.array([1, 0, 1], dtype), method=method)
    assert found.dtype == np.float64
    assert_near(found, np.diag([2.0, 0, 2]), BARS[method])


def test_lists_are_arrays():
    assert_near(calipers.jacobian(square, [1, 2]), np.diag([2.0, 4]))


@pytest.mark.parametrize("x", [np.array(["a"]), np.array([None]), np.array(["2020"], "M8[D]")])
def test_x_that_is_not_numbers_is_refused(x):
    with pytest.raises(TypeError, match="x must be"):
        calipers.jacobian(lambda x: x, x)


def test_f_that_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="f must be callable, got int"):
        calipers.jacobian(3, np.ones(2))


def test_bytes_in_another_order_are_understood():
    x = np.array([1.0, 2.0])
    expected = calipers.jacobian(square, x)
    assert np.array_equal(calipers.jacobian(square, x.astype(">f8")), expected)


# Several inputs.


def three(a, b, c=1.0, *, power=1):
    return (a.sum() * b * c) ** power


A, B = np.array([1.0, 2.0]), np.array([[0.5], [0.25]])


@methods
def test_argnums_says_which_argument_is_x(method):
    bar = 2 * BARS[method]
    by_a = np.broadcast_to(B[..., None] * 3, (2, 1, 2))
    by_b = (np.eye(2) * A.sum() * 3).reshape(2, 1, 2, 1)
    found = calipers.jacobian(three, A, args=(B, 3.0), method=method)
    assert_near(found, by_a, bar)
    found = calipers.jacobian(three, B, args=(A, 3.0), argnums=1, method=method)
    assert_near(found, by_b, bar)
    found = calipers.jacobian(three, 3.0, args=(A, B), argnums=2, method=method)
    assert_near(found, A.sum() * B, bar)


@methods
def test_several_argnums_give_a_tuple(method):
    bar = 2 * BARS[method]
    by_a = np.broadcast_to(B[..., None] * 3, (2, 1, 2))
    by_b = (np.eye(2) * A.sum() * 3).reshape(2, 1, 2, 1)
    by_c = A.sum() * B
    options = {"method": method}
    found = calipers.jacobian(three, (A, B), args=(3.0,), argnums=(0, 1), **options)
    assert type(found) is tuple
    assert_near(found[0], by_a, bar)
    assert_near(found[1], by_b, bar)
    found = calipers.jacobian(three, (3.0, A), args=(B,), argnums=(2, 0), **options)
    assert_near(found[0], by_c, bar)
    assert_near(found[1], by_a, bar)
    (found,) = calipers.jacobian(three, [B], args=(A, 3.0), argnums=(1,), **options)
    assert_near(found, by_b, bar)
    several = calipers.differentiate(three, (3.0, A), args=(B,), argnums=(2, 0), **options)
    assert_near(several[0].value, by_c, bar)
    assert_near(several[1].value, by_a, bar)


def test_kwargs_reach_f():
    found = calipers.jacobian(three, A, args=(B,), kwargs={"power": 2, "c": 3.0})
    exact = np.broadcast_to((2 * A.sum() * (3 * B) ** 2)[..., None], (2, 1, 2))
    assert_near(found, exact, 1e-7)


@pytest.mark.parametrize("argnums", [-1, 2])
def test_argnums_out_of_range_is_refused(argnums):
    with pytest.raises(ValueError, match=f"argnums is {argnums}"):
        calipers.jacobian(three, A, args=(B,), argnums=argnums)


@pytest.mark.parametrize("x", [A, (A,), (A, B, 1.0)])
def test_a_wrong_number_of_inputs_is_refused(x):
    with pytest.raises(ValueError, match="x must be a tuple of 2 arrays"):
        calipers.jacobian(three, x, argnums=(0, 1))


def test_argnums_work_with_every_relative():
    assert_near(calipers.jvp(three, B, np.ones_like(B), args=(A,), argnums=1), 3 * np.ones((2, 1)))
    assert_near(calipers.vjp(three, B, np.ones_like(B), args=(A,), argnums=1), 3 * np.ones((2, 1)))
    (part,) = calipers.jacobian_blocks(three, B, args=(A,), argnums=1)
    assert_near(part[1], 3 * np.eye(2))
    h = calipers.hessian(lambda a, x: a * np.sum(x**3), A, args=(2.0,), argnums=1)
    assert_near(h.value, np.diag(12 * A), 1e-6)


# Complex numbers.

Z = np.array([0.5 + 0.25j, -1 + 2j, 0.1j])


@pytest.mark.parametrize("method", BOUNDABLE)
def test_a_holomorphic_function_has_one_derivative(method):
    found = calipers.jacobian(np.exp, Z, method=method, holomorphic=True)
    assert found.dtype == np.complex128
    assert_near(found, np.diag(np.exp(Z)), BARS[method])
    d = calipers.differentiate(np.exp, Z, method=method, holomorphic=True)
    assert_near(d.value, np.diag(np.exp(Z)), BARS[method])
    assert d.error.dtype == np.float64
    assert d.error.shape == (3, 3)
    assert d.status.shape == Z.shape
    if method == "adaptive":
        assert np.all(np.abs(d.value - np.diag(np.exp(Z))) <= d.error)


@pytest.mark.parametrize("method", BOUNDABLE)
def test_other_complex_functions_have_a_pair_of_derivatives(method):
    by_z, by_conjugate = calipers.jacobian(lambda z: z**2 * z.conj(), Z, method=method)
    assert_near(by_z, np.diag(2 * Z * Z.conj()), 10 * BARS[method])
    assert_near(by_conjugate, np.diag(Z**2), 10 * BARS[method])


@pytest.mark.parametrize("method", BOUNDABLE)
def test_real_functions_of_complex_numbers_have_a_pair_too(method):
    by_z, by_conjugate = calipers.jacobian(lambda z: np.abs(z) ** 2, Z, method=method)
    assert_near(by_z, np.diag(Z.conj()), BARS[method])
    assert_near(by_conjugate, np.diag(Z), BARS[method])
    scalar = calipers.jacobian(lambda z: np.sum(np.abs(z) ** 2), Z.reshape(3, 1), method=method)
    assert_near(scalar[0], Z.conj().reshape(3, 1), 10 * BARS[method])


def test_errors_of_a_pair_cover_it():
    d = calipers.differentiate(lambda z: np.sin(z) * z.conj(), Z)
    exact = np.diag(np.cos(Z) * Z.conj()), np.diag(np.sin(Z))
    for value, error, right in zip(d.value, d.error, exact, strict=True):
        assert np.all(np.abs(value - right) <= error + 1e-15)
        assert error.max() <= 1e-9
    assert len(str(d)) < 400


def test_errors_of_complex_numbers_are_those_of_both_parts():
    for f in (lambda x: x + 1j * np.abs(x), lambda x: np.abs(x) + 1j * x):
        assert calipers.differentiate(f, np.zeros(1)).error.item() >= 1
    for f in (lambda z: np.abs(z.real) + z.imag, lambda z: np.abs(z.imag) + z.real):
        by_z, by_conjugate = calipers.differentiate(f, np.zeros(1, complex)).error
        assert by_z.item() >= 0.5
        assert by_conjugate.item() >= 0.5


def test_small_complex_numbers_have_small_steps():
    z = np.array([1e-200 + 2e-200j])
    found = calipers.jacobian(
        lambda z: 1e-200 / (z + 1e-200), z, method="adaptive", holomorphic=True
    )
    exact = -1e-200 / (z.item() + 1e-200) / (z.item() + 1e-200)
    assert abs(found.item() - exact) <= 1e-9 * abs(exact)


@pytest.mark.parametrize("method", BOUNDABLE)
def test_complex_functions_of_real_numbers_have_one_derivative(method):
    x = np.array([0.5, 1.5])
    found = calipers.jacobian(lambda x: np.exp(1j * x), x, method=method)
    assert_near(found, np.diag(1j * np.exp(1j * x)), BARS[method])


def test_a_complex_number_alone():
    by_z, by_conjugate = calipers.jacobian(lambda z: z * z.conjugate(), 1 + 2j)
    assert_near(by_z, 1 - 2j)
    assert_near(by_conjugate, 1 + 2j)
    assert_near(calipers.jacobian(np.exp, 1 + 2j, holomorphic=True), np.exp(1 + 2j))


def test_single_precision_complex():
    z = Z.astype(np.complex64)
    found = calipers.jacobian(np.exp, z, holomorphic=True)
    assert found.dtype == np.complex64
    assert_near(found, np.diag(np.exp(Z)), 1e-3)


# Compiled functions, in every form. Each is also right as a Python function.


@numba.njit
def compiled_chain(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = np.sin(x[i]) * x[(i + 1) % x.size]
    return y


@numba.njit
def another_chain(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = 2 * np.sin(x[i]) * x[(i + 1) % x.size]
    return y


@numba.njit
def compiled_rows(x):
    y = np.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = np.sin(x[i, j]) * x[(i + 1) % x.shape[0], j]
    return y


@numba.njit
def compiled_sum(x):
    total = 0.0
    for i in range(x.size):
        total += np.sin(x[i]) * x[(i + 1) % x.size]
    return total


@numba.njit
def compiled_strided(x):
    y = np.empty(2 * x.size)
    for i in range(x.size):
        y[2 * i] = np.sin(x[i]) * x[(i + 1) % x.size]
        y[2 * i + 1] = 99.0
    return y[::2]


@numba.njit
def compiled_transposed(x):
    y = np.empty((x.size, 2))
    for i in range(x.size):
        y[i, 0] = np.sin(x[i]) * x[(i + 1) % x.size]
        y[i, 1] = 2 * y[i, 0]
    return y.T


@numba.njit
def compiled_wave(x):
    y = np.empty(x.size, np.complex128)
    for i in range(x.size):
        y[i] = np.exp(1j * x[i])
    return y


@numba.njit
def compiled_conjugates(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = x[i] * x[i] * np.conj(x[i])
    return y


@numba.njit
def compiled_into(x, out):
    for i in range(x.size):
        out[i] = np.sin(x[i]) * x[(i + 1) % x.size]


@numba.njit
def compiled_into_matrix(x, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = np.sin(x[i, j]) * x[(i + 1) % x.shape[0], j]


@numba.njit
def compiled_row(i, x):
    return np.sin(x[i]) * x[(i + 1) % x.size]


@numba.njit
def compiled_scaled(a, x, k, power=1.0):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = power * a * k[i] * x[i] * x[i]
    return y


@numba.njit
def compiled_chain_times(x, k=1.0):
    return compiled_chain(x) * k


@numba.njit
def compiled_scaled_into(x, k, power, out):
    for i in range(x.size):
        out[i] = power * (k[i] * x[i]) ** 2


@numba.njit
def compiled_scaled_row(i, x, k, power=2.0):
    return power * (k[i] * x[i]) ** 2


def chain_jacobian(x):
    """Return the Jacobian of a chain along the first axis of x."""
    n, following = len(x), np.roll(x, -1, axis=0)
    shape = x.shape + x.shape
    j = np.zeros((x.size, x.size))
    j += np.diag((np.cos(x) * following).ravel())
    width = x.size // n
    j[np.arange(x.size), (np.arange(x.size) + width) % x.size] += np.sin(x).ravel()
    return j.reshape(shape)


X = np.array([0.5, 1.25, -0.75, 2.0])
M = np.array([[0.5, 1.25, -0.75], [2.0, 0.1, 0.3]])
K = np.array([1.0, 2.0, 3.0, 4.0])
CHAIN, CHAINS = chain_jacobian(X), chain_jacobian(M)

# name: f, x, options, the derivative
COMPILED = {
    "vector": (compiled_chain, X, {}, CHAIN),
    "matrix": (compiled_rows, M, {}, CHAINS),
    "number": (compiled_sum, X, {}, CHAIN.sum(0)),
    "strided": (compiled_strided, X, {}, CHAIN),
    "transposed": (compiled_transposed, X, {}, np.stack([CHAIN, 2 * CHAIN])),
    "complex of real": (compiled_wave, X, {}, np.diag(1j * np.exp(1j * X))),
    "holomorphic": (compiled_chain, Z, {"holomorphic": True}, None),
    "out of int": (compiled_into, X, {"out_like": 4}, CHAIN),
    "out of shape": (compiled_into, X, {"out_like": (4,)}, CHAIN),
    "out of array": (compiled_into, X, {"out_like": X}, CHAIN),
    "out of integers": (compiled_into, X, {"out_like": [1, 2, 3, 4]}, CHAIN),
    "out of matrix": (compiled_into_matrix, M, {"out_like": (2, 3)}, CHAINS),
    "rowwise": (compiled_row, X, {"out_like": 4, "rowwise": True}, CHAIN),
    "rowwise matrix": (
        compiled_row,
        X,
        {"out_like": (2, 2), "rowwise": True},
        CHAIN.reshape(2, 2, 4),
    ),
    "arguments": (compiled_scaled, X, {"args": (2.0, K), "argnums": 1}, np.diag(4 * K * X)),
    "keyword": (
        compiled_scaled,
        X,
        {"args": (2.0, K), "argnums": 1, "kwargs": {"power": 2.0}},
        np.diag(8 * K * X),
    ),
    "out and arguments": (
        compiled_scaled_into,
        X,
        {"args": (K, 2.0), "out_like": 4},
        np.diag(4 * K**2 * X),
    ),
    "rowwise and default": (
        compiled_scaled_row,
        X,
        {"args": (K,), "out_like": 4, "rowwise": True},
        np.diag(4 * K**2 * X),
    ),
}
compiled_forms = pytest.mark.parametrize("name", COMPILED)


def posed(f, x, args=(), argnums=0, **options):
    return pose(f, x, args, argnums, Options(**options))


def exact_of(name):
    _, x, _, exact = COMPILED[name]
    if name == "holomorphic":
        following = np.roll(x, -1)
        exact = np.diag(np.cos(x) * following)
        exact[np.arange(3), [1, 2, 0]] += np.sin(x)
    return exact


@compiled_forms
def test_compiled_functions_are_called_from_a_compiled_loop(name):
    f, x, options, _ = COMPILED[name]
    assert posed(f, x, **options).native is not None
    assert posed(f.py_func, x, **options).native is None
    expected = exact_of(name)
    found = calipers.jacobian(f, x, **options)
    assert_near(found, expected, 1e-7)
    assert found.dtype == expected.dtype
    assert_near(calipers.jacobian(f.py_func, x, **options), expected, 1e-7)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("vector", "2-point"),
        ("vector", "5-point"),
        ("vector", "cs"),
        ("vector", "adaptive"),
        ("matrix", "adaptive"),
        ("out of int", "cs"),
        ("out of int", "adaptive"),
        ("rowwise", "adaptive"),
        ("holomorphic", "adaptive"),
        ("complex of real", "adaptive"),
    ],
)
def test_compiled_functions_have_every_method(name, method):
    f, x, options, _ = COMPILED[name]
    assert posed(f, x, method=method, **options).native is not None
    found = calipers.jacobian(f, x, method=method, **options)
    assert_near(found, exact_of(name), BARS[method])
    d = calipers.differentiate(f, x, method=method, **options)
    assert np.array_equal(d.value, found)
    if method == "adaptive":
        assert np.all(np.abs(d.value - exact_of(name)) <= d.error)


@pytest.mark.parametrize("method", ["3-point", "adaptive"])
def test_compiled_complex_functions_have_a_pair(method):
    by_z, by_conjugate = calipers.jacobian(compiled_conjugates, Z, method=method)
    assert_near(by_z, np.diag(2 * Z * Z.conj()), 10 * BARS[method])
    assert_near(by_conjugate, np.diag(Z**2), 10 * BARS[method])


def test_functions_of_one_signature_share_a_compiled_loop():
    x = X.copy()
    calipers.jacobian(compiled_chain, x)
    before = set(COLUMNS)
    assert before
    assert posed(another_chain, x).native is not None
    assert_near(calipers.jacobian(another_chain, x), 2 * CHAIN, 2e-8)
    assert set(COLUMNS) == before


def test_a_parallel_function_is_right():
    @numba.njit(parallel=True)
    def parallel(x):
        y = np.empty_like(x)
        for i in numba.prange(x.size):
            y[i] = np.sin(x[i]) * x[(i + 1) % x.size]
        return y

    x = np.linspace(0.5, 1.5, 50)
    assert posed(parallel, x).native is not None
    with calipers.num_threads(3):
        assert_near(calipers.jacobian(parallel, x), chain_jacobian(x))


def test_compiled_functions_that_no_loop_can_call_are_called_from_python():
    @numba.njit
    def sums(x, *more):
        return x * more[0]

    @numba.njit
    def counts(x):
        return np.array([x.size, 3])

    @numba.njit
    def tuples(x):
        return x[0], x[1] ** 2

    assert_near(calipers.jacobian(sums, X, args=(2.0,)), 2 * np.eye(4))
    found = calipers.jacobian(counts, X)
    assert found.dtype == np.float64
    assert_near(found, np.zeros((2, 4)), 0)
    assert_near(calipers.jacobian(tuples, X[:2]), np.diag([1.0, 2.5]))


def test_results_of_one_compiled_function_may_be_of_any_kind():
    @numba.njit
    def into(x, out):
        for i in range(x.size):
            out.flat[i] = x[i] * x[i]

    x = np.array([0.5, 1.25, -0.75, 2.0])
    for shape in ((4,), (2, 2), (4,), (1, 2, 2)):
        for dtype, bar in ((np.float64, 1e-8), (np.float32, 1e-2), (np.complex128, 1e-8)):
            found = calipers.jacobian(into, x, out_like=np.empty(shape, dtype))
            assert found.dtype == dtype
            assert_near(found, np.diag(2 * x).reshape(*shape, 4), bar)


def test_one_compiled_function_by_each_of_its_arguments():
    @numba.njit
    def product(a, b):
        return a * a * b

    for _ in range(2):
        assert_near(calipers.jacobian(product, X, args=(K,)), np.diag(2 * X * K), 1e-7)
        assert_near(calipers.jacobian(product, K, args=(X,), argnums=1), np.diag(X * X), 1e-7)


def test_keywords_of_a_compiled_function_take_effect_each_time():
    @numba.njit
    def scaled(x, k, factor=1):
        return factor * k * x

    for factor in (1, 2, 3):
        found = calipers.jacobian(scaled, X, args=(K,), kwargs={"factor": factor})
        assert_near(found, np.diag(factor * K), 1e-7)
    assert_near(calipers.jacobian(scaled, X, args=(K,)), np.diag(K), 1e-7)


def test_out_need_not_be_the_last_argument():
    @numba.njit
    def into(x, out, factor=2.0):
        out[:] = factor * x

    assert_near(calipers.jacobian(into, X, out_like=4), 2 * np.eye(4))


@pytest.mark.parametrize("number", [2.0, 2, np.float64(2), np.float32(2), 2j])
def test_what_is_known_of_a_compiled_function_is_remembered(number):
    @numba.njit
    def scaled(x, a):
        return x * a

    options = {"args": (number,), "holomorphic": True}
    first, second = (posed(scaled, Z, **options).native for _ in range(2))
    assert first.entry(COLUMNS) is second.entry(COLUMNS)
    assert first._entries is second._entries


def test_a_compiled_function_of_a_number():
    @numba.njit
    def cube(x):
        return x**3

    assert_near(calipers.jacobian(cube, 2.0), 12.0)


def test_python_functions_have_these_forms_too():
    def into(x, k, out, *, power=1):
        assert out.shape == (2, 2)
        out[...] = (k * x.reshape(2, 2)) ** power

    def row(i, x, k):
        return k * x[i] ** 2

    found = calipers.jacobian(into, X, args=(3.0,), kwargs={"power": 2}, out_like=(2, 2))
    assert_near(found, np.diag(18 * X).reshape(2, 2, 4), 1e-7)
    found = calipers.jacobian(row, X, args=(3.0,), out_like=4, rowwise=True)
    assert_near(found, np.diag(6 * X), 1e-7)


def test_rowwise_without_a_shape_is_refused():
    with pytest.raises(ValueError, match="out_like"):
        calipers.jacobian(compiled_row, X, rowwise=True)


# Exceptions of f.


class Refused(Exception):  # noqa: N818
    pass


def refuses_in_python(x):
    if x[1, 2] != 6.0:
        raise Refused("other than six", 7)
    return x


refuses = numba.njit(refuses_in_python)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("f", [refuses, refuses_in_python], ids=["compiled", "python"])
def test_exceptions_of_f_arrive_and_name_the_displaced_element(f, method):
    x = np.arange(1.0, 7.0).reshape(2, 3)
    with pytest.raises(Refused) as caught:
        calipers.jacobian(f, x, method=method)
    assert caught.value.args == ("other than six", 7)
    assert any("x[1, 2]" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("workers", [2, map])
def test_exceptions_arrive_from_workers(workers):
    x = np.arange(1.0, 7.0).reshape(2, 3)
    with pytest.raises(Refused) as caught:
        calipers.jacobian(refuses_in_python, x, workers=workers)
    assert caught.value.args == ("other than six", 7)
    assert any("x[1, 2]" in note for note in caught.value.__notes__)


def test_exceptions_arrive_from_threads_of_a_compiled_loop():
    @numba.njit
    def refuses_the_last(x):
        y = np.zeros_like(x)
        for _ in range(2000):
            for i in range(x.size):
                y[i] += np.sin(x[i])
        if x[-1] != 1.0:
            raise KeyError("last")
        return y

    with calipers.num_threads(3), pytest.raises(KeyError, match="last") as caught:
        calipers.jacobian(refuses_the_last, np.ones(64))
    assert any("x[63]" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("f", [refuses, refuses_in_python], ids=["compiled", "python"])
def test_exceptions_at_x_itself_arrive(f):
    with pytest.raises(Refused, match="other than six"):
        calipers.jacobian(f, np.zeros((2, 3)))


# Who calls f, and how many.


@numba.njit
def slow(x):
    y = np.zeros(3, x.dtype)
    for k in range(100):
        for i in range(x.size):
            y[k % 3] += np.sin((k + 1) * 0.01 * x[i]) * x[(i + k) % x.size]
    return y


MANY = np.linspace(-2, 3, 131)


@methods
def test_the_number_of_threads_changes_nothing(method):
    found = []
    for threads in (1, 2, 5):
        with calipers.num_threads(threads):
            found.append(calipers.differentiate(slow, MANY, method=method))
    for other in found[1:]:
        assert np.array_equal(other.value, found[0].value)
        assert np.array_equal(other.error, found[0].error)
        assert np.array_equal(other.status, found[0].status)
        assert other.nfev == found[0].nfev


@methods
def test_the_workers_change_nothing(method):
    expected = calipers.differentiate(waves, MANY, method=method)
    with ThreadPoolExecutor(2) as pool:
        for workers in (1, 3, pool, map, pool.map):
            found = calipers.differentiate(waves, MANY, method=method, workers=workers)
            assert np.array_equal(found.value, expected.value)
            assert np.array_equal(found.error, expected.error)
            assert found.nfev == expected.nfev


@pytest.mark.parametrize("method", ["3-point", "adaptive"])
@pytest.mark.parametrize("f", [slow, waves], ids=["compiled", "python"])
def test_the_workers_change_no_relative(f, method):
    w = np.linspace(1, 2, 3 if f is slow else 6)
    expected = calipers.vjp(f, MANY, w, method=method)
    blocks = list(calipers.jacobian_blocks(f, MANY, block=50, method=method))
    for workers in (1, 3):
        options = {"method": method, "workers": workers}
        assert np.array_equal(calipers.vjp(f, MANY, w, **options), expected)
        other = list(calipers.jacobian_blocks(f, MANY, block=50, **options))
        assert all(np.array_equal(a[1], b[1]) for a, b in zip(blocks, other, strict=True))


@pytest.mark.parametrize("method", ["3-point", "adaptive"])
def test_a_pool_changes_no_blocks(method):
    expected = list(calipers.jacobian_blocks(waves, MANY, block=50, method=method))
    with ThreadPoolExecutor(2) as pool:
        for workers in (pool, map):
            found = calipers.jacobian_blocks(waves, MANY, block=50, method=method, workers=workers)
            for (_, part), (_, other) in zip(found, expected, strict=True):
                assert np.array_equal(part, other)


def test_a_product_of_many_values_is_found_in_parts():
    weights = np.random.default_rng(3).uniform(-1, 1, (50_000, 4))
    w = np.random.default_rng(4).uniform(-1, 1, 50_000)
    found = calipers.vjp(lambda x: weights @ np.sin(x), X, w)
    assert_near(found, w @ weights * np.cos(X), 1e-8)


def test_threads_change_no_product():
    found = []
    for threads in (1, 2, 5):
        with calipers.num_threads(threads):
            found.append(calipers.vjp(slow, MANY, np.array([1.0, 0.3, -2.0])))
    assert np.array_equal(found[1], found[0])
    assert np.array_equal(found[2], found[0])


def test_a_map_may_be_lazy_and_out_of_order():
    def backwards(task, spans):
        return (task(span) for span in reversed(list(spans)))

    found = calipers.jacobian(waves, MANY, workers=backwards)
    assert np.array_equal(found, calipers.jacobian(waves, MANY))


def test_a_pool_of_threads_is_sent_nothing():
    with multiprocessing.pool.ThreadPool(2) as pool:
        found = calipers.jacobian(lambda x: waves(x), MANY, workers=pool.map)
    assert np.array_equal(found, calipers.jacobian(waves, MANY))


@pytest.mark.parametrize("workers", [0, -1, "x", 1.5, True, object()])
def test_workers_that_are_none_are_refused(workers):
    with pytest.raises((TypeError, ValueError), match="workers must be"):
        calipers.jacobian(waves, MANY, workers=workers)


class Parcel:
    """An argument of f that counts how often it is sent."""

    sent = 0

    def __init__(self, factor):
        self.factor = factor

    def __getstate__(self):
        Parcel.sent += 1
        return {"factor": self.factor}


def of_parcel(x, parcel):
    return parcel.factor * waves(x)


PROCESSES = """
    import json, multiprocessing, sys, traceback
    from concurrent.futures import ProcessPoolExecutor
    import numpy as np
    import calipers
    from tests import test_derivatives as t

    def same(found, expected):
        assert np.array_equal(found.value, expected.value)
        assert np.array_equal(found.error, expected.error)

    def equal(pool):
        for method in ("3-point", "cs", "adaptive"):
            expected = calipers.differentiate(t.waves, t.MANY, method=method)
            same(calipers.differentiate(t.waves, t.MANY, method=method, workers=pool), expected)
        w = np.arange(6.0)
        expected = calipers.vjp(t.waves, t.MANY, w)
        assert np.array_equal(calipers.vjp(t.waves, t.MANY, w, workers=pool), expected)

    def compiled(pool):
        expected = calipers.jacobian(t.compiled_chain, t.X)
        assert np.array_equal(calipers.jacobian(t.compiled_chain, t.X, workers=pool), expected)

    def sent(pool):
        parcel, t.Parcel.sent = t.Parcel(2.0), 0
        found = calipers.jacobian(t.of_parcel, t.MANY, args=(parcel,), workers=pool)
        assert np.array_equal(found, calipers.jacobian(t.of_parcel, t.MANY, args=(parcel,)))
        assert t.Parcel.sent == 1, t.Parcel.sent

    def unsendable(pool):
        try:
            calipers.jacobian(lambda x: x, t.MANY, workers=pool)
        except TypeError as error:
            assert "top level of a module" in str(error), error
            assert "threads" in str(error), error
        else:
            raise AssertionError("a lambda was sent")

    def raising(pool):
        try:
            calipers.jacobian(t.refuses_in_python, np.arange(1.0, 7.0).reshape(2, 3), workers=pool)
        except t.Refused as error:
            assert error.args == ("other than six", 7), error.args
            assert any("x[1, 2]" in note for note in error.__notes__), error.__notes__
        else:
            raise AssertionError("nothing was raised")

    def progress(pool):
        seen = []
        calipers.jacobian(t.waves, t.MANY, workers=pool, progress=lambda *at: seen.append(at))
        assert seen == sorted(seen) and seen[-1] == (131, 131), seen

    tasks = (equal, compiled, sent, unsendable, raising, progress)

    def run(kind, pool):
        for task in tasks:
            try:
                task(pool)
                results[f"{kind} {task.__name__}"] = "passed"
            except Exception:
                results[f"{kind} {task.__name__}"] = traceback.format_exc()

    results = {}
    for kind in ("spawn", "fork"):
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(kind)) as pool:
            run(kind, pool)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        run("pool", pool.map)
    print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """Return what became of each task in processes, which this one should not fork."""
    folder = tmp_path_factory.mktemp("processes")
    code = f"import os; os.environ['TMPDIR'] = {str(folder)!r}\n" + textwrap.dedent(PROCESSES)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    results["left"] = [path.name for path in folder.glob("calipers*")]
    return results


@pytest.mark.parametrize("kind", ["spawn", "fork", "pool"])
@pytest.mark.parametrize("task", ["equal", "compiled", "sent", "unsendable", "raising", "progress"])
def test_processes_do_as_threads_do(processes, kind, task):
    result = processes[f"{kind} {task}"]
    assert result == "passed", result


def test_nothing_is_left_behind_by_processes(processes):
    assert processes["left"] == []


def test_a_process_reads_what_it_was_sent_once_and_keeps_no_more(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.write_bytes(pickle.dumps(Parcel(2.0)))
    found = _read(str(one))
    assert _read(str(one)) is found
    gone = weakref.ref(found)
    del found
    _read(str(other))
    assert gone() is None
    _read.cache_clear()


# Progress.


@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"workers": map}])
@pytest.mark.parametrize("method", ["3-point", "cs", "adaptive"])
@pytest.mark.parametrize("f", [slow, waves], ids=["compiled", "python"])
def test_progress_rises_to_the_end(f, method, options):
    seen = []
    report = lambda done, total: seen.append((done, total))  # noqa: E731
    found = calipers.jacobian(f, MANY, method=method, progress=report, **options)
    assert np.array_equal(found, calipers.jacobian(f, MANY, method=method))
    done = [at[0] for at in seen]
    assert len(done) > 1
    assert done == sorted(set(done))
    assert done[-1] == 131
    assert {at[1] for at in seen} == {131}


def test_progress_is_reported_by_one_thread_at_a_time():
    alone, overlapping = threading.Lock(), []

    def report(done, total):
        if not alone.acquire(blocking=False):
            overlapping.append(done)
            return
        time.sleep(1e-3)
        alone.release()

    calipers.jacobian(waves, MANY, workers=4, progress=report)
    with calipers.num_threads(4):
        calipers.jacobian(slow, MANY, progress=report)
    assert overlapping == []


def test_an_exception_in_progress_cancels_what_a_pool_has_not_begun():
    def stop(done, total):
        raise Refused("enough")

    begun, go_on = [], threading.Event()

    def f(x):
        begun.append(x)
        if len(begun) > 151:  # the base, and the first of the four parts of a pool of one
            go_on.wait(10)
        return waves(x)

    with ThreadPoolExecutor(1) as pool:
        try:
            with pytest.raises(Refused, match="enough"):
                calipers.jacobian(f, np.ones(300), workers=pool, progress=stop)
        finally:
            go_on.set()
    assert len(begun) <= 301


@pytest.mark.parametrize("workers", [None, 1, 2, map])
@pytest.mark.parametrize("method", ["3-point", "adaptive"])
def test_an_exception_in_progress_stops_the_work(method, workers):
    def stop(done, total):
        raise Refused("enough")

    f, seen = counted(waves)
    with pytest.raises(Refused, match="enough"):
        calipers.jacobian(f, np.ones(300), method=method, workers=workers, progress=stop)
    assert len(seen) < 0.9 * calipers.differentiate(waves, np.ones(300), method=method).nfev


def test_an_exception_in_progress_stops_a_compiled_loop():
    def stop(done, total):
        raise KeyboardInterrupt

    with calipers.num_threads(3), pytest.raises(KeyboardInterrupt):
        calipers.jacobian(slow, MANY, progress=stop)


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("installed", [True, False])
def test_progress_is_shown_on_stderr(capsys, monkeypatch, workers, installed):
    if installed:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    calipers.jacobian(waves, MANY, progress=True, workers=workers)
    calipers.hessian(lambda x: np.sum(x**3), X, progress=True)
    shown = capsys.readouterr()
    assert "131" in shown.err
    assert shown.out == ""


# Batches.


def batched_squares(x):
    return x * x[:, ::-1]


@methods
def test_a_batch_equals_single_calls(method):
    f, seen = counted(batched_squares)
    x = np.linspace(-1, 2, 50)
    found = calipers.differentiate(f, x, batched=True, method=method)
    expected = calipers.differentiate(lambda x: x * x[::-1], x, method=method)
    assert np.array_equal(found.value, expected.value)
    assert np.array_equal(found.error, expected.error)
    assert len(seen) <= 50
    if method != "adaptive":
        assert len(seen) <= 5
    # One row more shows that f keeps the rows of a batch apart.
    assert found.nfev == len(points(seen, x.shape)) == expected.nfev + 1


@methods
def test_batches_of_any_shape(method):
    rng = np.random.default_rng(1)
    weights, x = rng.uniform(-1, 1, (2, 2, 3)), rng.uniform(-1, 1, (2, 3))

    def f(x):
        assert x.shape[1:] == (2, 3)
        return np.einsum("aij,bij->ba", weights, np.sin(x))

    assert_near(calipers.jacobian(f, x, batched=True, method=method), weights * np.cos(x), 1e-6)


def test_batches_in_threads():
    f, _ = counted(batched_squares)
    expected = calipers.jacobian(batched_squares, MANY, batched=True)
    found = calipers.jacobian(f, MANY, batched=True, workers=3)
    assert np.array_equal(found, expected)


def test_batches_of_complex_numbers():
    z = np.linspace(1, 2, 6) + 1j
    found = calipers.jacobian(np.exp, z, batched=True, holomorphic=True)
    assert_near(found, np.diag(np.exp(z)))
    by_z, by_conjugate = calipers.jacobian(lambda z: z * z.conj(), z, batched=True)
    assert_near(by_z, np.diag(z.conj()))
    assert_near(by_conjugate, np.diag(z))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[0],
        lambda x: x.sum(),
        lambda x: np.concatenate([x, x]),
        lambda x: np.zeros((x.shape[0] + 1, 2)),
        lambda x: x if len(x) == 1 else x[1:],
    ],
)
def test_a_batch_with_a_wrong_leading_axis_is_refused(f):
    with pytest.raises(ValueError, match=r"one result per row|two shapes"):
        calipers.jacobian(f, np.arange(1.0, 8.0), batched=True)


@methods
def test_results_of_two_shapes_are_refused_in_a_batch(method):
    for f in (lambda x: x if len(x) == 1 else x[:, :2], lambda x: x if len(x) == 1 else x[:, None]):
        with pytest.raises(ValueError, match=r"two shapes: \(4,\) and then"):
            calipers.jacobian(f, X, batched=True, method=method)


def _overwriting(x):
    y = x**2
    x[:] = 0
    return y


def _overwriting_first(x):
    y = x**2
    x[:, 0] = 5
    return y


def _normalizing(x):
    x /= np.abs(x).sum(axis=1, keepdims=True)
    return x**2


@pytest.mark.parametrize("f", [_overwriting, _overwriting_first, _normalizing])
@pytest.mark.parametrize("method", BOUNDABLE)
def test_a_batch_whose_arguments_f_changes_is_refused(f, method):
    with pytest.raises(ValueError, match="f changes its argument"):
        calipers.jacobian(f, np.arange(1.0, 8.0), batched=True, method=method)


def test_what_f_changes_in_one_batch_is_not_in_the_next():
    def f(x):
        y = x * x[:, :1]
        x[:, 0] = 5
        return y

    # The first element is left out, so that none of its displacements is missed.
    step = np.array([0.0, 1e-5, 1e-5])
    try:
        found = calipers.jacobian(f, np.array([1.0, 2.0, 3.0]), batched=True, step=step)
    except ValueError:
        return
    assert_near(found[:, 1:], np.eye(3)[:, 1:])


@pytest.mark.parametrize("options", [{"out_like": 3}, {"rowwise": True, "out_like": 3}])
def test_batches_have_no_other_form(options):
    with pytest.raises(ValueError, match="batched=True"):
        calipers.jacobian(square, X, batched=True, **options)


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


# Results of f that are no results.


@pytest.mark.parametrize("options", [{}, {"batched": True}, {"method": "adaptive"}])
def test_no_result_asks_for_out_like(options):
    def nothing(x):
        return None

    with pytest.raises(TypeError, match="out_like"):
        calipers.jacobian(nothing, X, **options)
    with pytest.raises(TypeError, match="out_like"):
        calipers.jacobian(numba.njit(nothing), X, **options)


@methods
def test_results_of_two_shapes_are_refused(method):
    def f(x):
        return x if np.array_equal(x, X) else x[:-1]

    with pytest.raises(ValueError, match="two shapes"):
        calipers.jacobian(f, X, method=method)


def test_compiled_results_of_two_sizes_are_refused():
    @numba.njit
    def f(x):
        return x if x[0] == 0.5 else x[:-1]

    with pytest.raises(ValueError, match="two s"):
        calipers.jacobian(f, X)


@pytest.mark.parametrize(
    "y", ["text", np.array(["a"]), object(), [1, None], {"a": 1}, np.array(["2020"], "M8[D]")]
)
def test_results_that_are_not_numbers_are_refused(y):
    with pytest.raises(TypeError, match="f must return numbers"):
        calipers.jacobian(lambda x: y, X)


@pytest.mark.parametrize("dtype", ["?", "i1", "i8", "u4"])
@methods
def test_integer_results_have_no_slope(dtype, method):
    f = lambda x: np.array([1, 0], dtype)  # noqa: E731
    if method == "cs":  # it may have dropped what cs asks about
        with pytest.raises(ValueError, match="needs an f that returns complex numbers"):
            calipers.jacobian(f, X, method=method)
        return
    found = calipers.jacobian(f, X, method=method)
    assert found.dtype.kind == "f"
    assert_near(found, np.zeros((2, 4)), 0)


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
def test_constant_results_have_no_slope(method):
    assert_near(calipers.jacobian(lambda x: np.ones((3, 2)), X, method=method), np.zeros((3, 2, 4)))
    assert_near(calipers.jacobian(lambda x: 1.5, X, method=method), np.zeros(4))


def test_results_of_another_kind_than_the_first_are_right_or_refused():
    def f(x):
        return x**2 if np.array_equal(x, X) else x**2 + 0j

    try:
        found = calipers.jacobian(f, X)
    except (TypeError, ValueError, np.exceptions.ComplexWarning):
        return
    assert_near(found, np.diag(2 * X))


def test_integers_first_and_numbers_later():
    f = lambda x: 1 if np.array_equal(x, X) else 1 + (x[0] - X[0])  # noqa: E731
    assert_near(calipers.jacobian(f, X), [1, 0, 0, 0])


def test_lists_are_results():
    assert_near(calipers.jacobian(lambda x: [x[0], 2 * x[1]], X[:2]), np.diag([1.0, 2]))


# Methods, steps, scales.


@methods
def test_methods_have_their_accuracy(method):
    for n in (1, 7, 100):
        x = np.linspace(0.1, 1.7, n)
        assert_near(calipers.jacobian(waves, x, method=method), waves_jacobian(x), BARS[method])


@pytest.mark.parametrize("function", [calipers.jacobian, calipers.differentiate])
@pytest.mark.parametrize("method", ["4-point", None, 3, "CS", ""])
def test_an_unknown_method_is_answered_with_the_known_ones(function, method):
    with pytest.raises(ValueError, match="method must be one of") as caught:
        function(waves, X, method=method)
    assert all(repr(name) in str(caught.value) for name in METHODS)
    assert repr(method) in str(caught.value)


def test_the_complex_step_is_for_real_x():
    with pytest.raises(ValueError, match="method='cs' perturbs real x"):
        calipers.jacobian(np.exp, Z, method="cs")


@pytest.mark.parametrize("function", [compiled_chain, square], ids=["compiled", "python"])
@pytest.mark.parametrize("method", METHODS[:3] + ["cs"])
def test_the_step_is_what_was_asked_for(function, method):
    for step in (1e-3, np.array([1e-3, 1e-4, 2e-3, 1e-2])):
        d = calipers.differentiate(function, X, method=method, step=step)
        assert np.allclose(d.step, step, rtol=1e-9)
        assert np.all(np.diag(d.value) != 0)


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
def test_f_is_called_no_farther_than_a_step(method):
    reach = {"2-point": 1, "3-point": 1, "5-point": 2, "adaptive": 1}[method]
    step = np.array([1e-3, 1e-4, 2e-3, 1e-2])
    f, seen = counted(waves)
    calipers.jacobian(f, X, method=method, step=step)
    moved = np.abs(points(seen, X.shape) - X).max(axis=0)
    assert np.all(moved <= reach * step * (1 + 1e-9))
    assert np.all(moved >= 0.9 * reach * step)


def test_a_step_has_the_error_of_its_length():
    cube = lambda x: x**3  # noqa: E731
    assert_near(calipers.jacobian(cube, 1.0, step=0.125, method="2-point"), 3.390625, 1e-12)
    assert_near(calipers.jacobian(cube, 1.0, step=0.125), 3.015625, 1e-12)
    assert_near(calipers.jacobian(cube, 1.0, step=0.125, method="5-point"), 3.0, 1e-12)


@pytest.mark.parametrize("name", ["step", "scale"])
@pytest.mark.parametrize(
    "value", [-1e-3, 0.0, 0, np.nan, np.inf, [1e-3, -1e-3, 1e-3, 1e-3], [np.nan, 1, 1, 1]]
)
@methods
def test_steps_that_make_no_sense_are_refused(name, value, method):
    with pytest.raises(ValueError, match=f"{name} must be positive and finite"):
        calipers.jacobian(square, X, method=method, **{name: value})


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
@methods
def test_a_step_of_0_leaves_an_element_out(function, method):
    step = np.array([1e-4, 0.0, 1e-4, 1e-4])
    if method == "adaptive":
        step *= 1000
    d = calipers.differentiate(function, X, method=method, step=step)
    assert d.status.tolist()[1] == "EXCLUDED"
    assert "EXCLUDED" not in d.status[[0, 2, 3]]
    assert np.isnan(d.value[:, 1]).all()
    others = [0, 2, 3]
    assert_near(d.value[:, others], CHAIN[:, others], 1e-3)
    found = calipers.jacobian(function, X, method=method, step=step)
    assert np.array_equal(found, d.value, equal_nan=True)
    jac = calipers.jacobian_function(function, method=method, step=step)
    assert np.array_equal(jac(X), d.value, equal_nan=True)


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
@pytest.mark.parametrize("method", FIXED)
def test_a_step_lost_in_rounding_is_refused(function, method):
    with pytest.raises(ValueError, match=r"step of (coordinate|element) 1 is lost in rounding"):
        calipers.jacobian(function, np.array([1e-3, 1e6]), method=method, step=1e-12)
    jac = calipers.jacobian_function(function, method=method, step=1e-12)
    with pytest.raises(ValueError, match=r"step of (coordinate|element) 1 is lost in rounding"):
        jac(np.array([1e-3, 1e6]))
    with pytest.raises(ValueError, match=r"step of (coordinate|element) 1 is lost in rounding"):
        list(calipers.jacobian_blocks(function, np.array([0.0, 1e6]), method=method, step=1e-12))


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
@pytest.mark.parametrize("bounds", [None, (0, 2e6)])
@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point"])
def test_a_step_that_the_dtype_of_x_loses_is_refused(function, method, bounds):
    x = np.array([1e-3, 1e6], np.float32)
    with pytest.raises(ValueError, match="step of element 1 is lost in rounding"):
        calipers.jacobian(function, x, method=method, step=1e-3, bounds=bounds)


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_lost_step_is_named_wherever_it_is(function, place):
    x = np.full(3, 1e-3)
    x[place] = 1e6
    message = rf"element {place} is lost in rounding beside x = 1000000.0"
    with pytest.raises(ValueError, match=message):
        calipers.jacobian(function, x, step=1e-12)
    with pytest.raises(ValueError, match=message):
        list(calipers.jacobian_blocks(function, x, step=1e-12, block=1))
    with pytest.raises(ValueError, match=message):
        calipers.jacobian(function, x + 0j, step=1e-12, holomorphic=True)


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
def test_forward_differences_go_away_from_zero(function):
    for x in (X, -X):
        found = calipers.jacobian(function, x, method="2-point", step=0.125)
        moved = x + np.copysign(0.125, x) * np.eye(4)
        expected = [
            (function(m) - function(x)) / np.copysign(0.125, x[j]) for j, m in enumerate(moved)
        ]
        assert_near(found, np.transpose(expected), 1e-14)


@methods
def test_the_scale_multiplies_the_relative_step(method):
    x = np.array([1e-6, 2e-6])
    f = lambda x: np.sin(x / 1e-6)  # noqa: E731
    exact = np.diag(np.cos([1.0, 2.0]) * 1e6)
    for scale in (1e-6, np.full(2, 1e-6)):
        found = calipers.jacobian(f, x, method=method, scale=scale)
        assert np.abs(found - exact).max() <= 10 * BARS[method] * 1e6
    if method in FIXED:
        long, short = (
            calipers.differentiate(f, x, method=method, scale=scale).step
            for scale in (1.0, 2.0**-9)
        )
        assert np.allclose(long, 2**9 * short, rtol=1e-3)


@methods
def test_a_step_and_a_scale_are_one_too_many(method):
    with pytest.raises(ValueError, match="step and scale were both given"):
        calipers.jacobian(square, X, method=method, step=1e-3, scale=1.0)


@pytest.mark.parametrize("name", ["step", "scale"])
def test_shapes_that_do_not_fit_are_named(name):
    with pytest.raises(ValueError, match=rf"{name} has shape \(3,\), and x has \(4,\)"):
        calipers.jacobian(square, X, **{name: np.ones(3)})
    with pytest.raises(TypeError, match=f"{name} must be"):
        calipers.jacobian(square, X, **{name: 1j})


@methods
def test_steps_have_the_shape_of_x(method):
    step = np.full((2, 3), 0.1 if method == "adaptive" else 1e-4)
    step[0, 1] = 0
    for f in (compiled_rows, compiled_rows.py_func):
        d = calipers.differentiate(f, M, method=method, step=step)
        assert (d.status == "EXCLUDED").tolist() == (step == 0).tolist()
        assert np.isnan(d.value[..., 0, 1]).all()
        assert np.isfinite(d.value).sum() == 30


def test_complex_numbers_have_one_step_for_both_parts():
    step = np.array([1e-4, 0, 1e-4])
    found = calipers.jacobian(np.exp, Z, step=step, holomorphic=True)
    assert np.isnan(found[:, 1]).all()
    assert_near(found[:, ::2], np.diag(np.exp(Z))[:, ::2])
    for each in calipers.jacobian(np.exp, Z, step=step):
        assert np.isnan(each[:, 1]).all()
        assert np.isfinite(each[:, ::2]).all()


# Bounds.

EDGES = {
    "inside": (0.5, 0.0, 1.0),
    "at the lower edge": (0.0, 0.0, 1.0),
    "at the upper edge": (1.0, 0.0, 1.0),
    "just above the lower edge": (1e-9, 0.0, 1.0),
    "just below the upper edge": (1 - 1e-9, 0.0, 1.0),
    "below no edge": (0.0, 0.0, np.inf),
    "above no edge": (1.0, -np.inf, 1.0),
    "far from 0": (3.0, 3.0, 4.0),
    "negative": (-3.0, -3.0, -2.0),
}


@pytest.mark.parametrize("place", EDGES)
@boundable
def test_f_is_not_called_outside_bounds(place, method):
    value, low, high = EDGES[place]
    x = np.array([value, value])
    f, seen = counted(np.sin)
    d = calipers.differentiate(f, x, method=method, bounds=(low, high))
    called = points(seen, (2,))
    assert called.min() >= low
    assert called.max() <= high
    assert_near(d.value, np.diag(np.cos(x)), 20 * BARS[method])
    assert set(d.status) <= {"FIXED", "CONVERGED"}
    assert d.nfev == len(called)
    if method == "adaptive":
        assert np.all(np.abs(d.value - np.diag(np.cos(x))) <= d.error)


@numba.njit
def sine_inside(x, low, high):
    y = np.empty_like(x)
    for i in range(x.size):
        if not low <= x[i] <= high:
            raise ValueError("outside")
        y[i] = np.sin(x[i])
    return y


@pytest.mark.parametrize("place", EDGES)
@boundable
def test_compiled_f_is_not_called_outside_bounds(place, method):
    value, low, high = EDGES[place]
    x = np.array([value, value])
    options = {"method": method, "bounds": (low, high), "args": (low, high)}
    found = calipers.jacobian(sine_inside, x, **options)
    assert_near(found, np.diag(np.cos(x)), 20 * BARS[method])
    jac = calipers.jacobian_function(sine_inside, **options)
    assert np.array_equal(jac(x), found)
    assert np.array_equal(calipers.jacobian(np.sin, x, method=method, bounds=(low, high)), found)


@pytest.mark.parametrize("f", [compiled_chain, compiled_chain.py_func])
@pytest.mark.parametrize("ulps", [1, 2, 3, 4])
@pytest.mark.parametrize("method", FIXED)
def test_room_that_is_lost_beside_x_is_none(f, ulps, method):
    low, high = X - 1, X + 1
    low[0], high[0] = X[0], X[0] + ulps * np.spacing(X[0])
    d = calipers.differentiate(f, X, method=method, bounds=(low, high))
    assert np.isnan(d.value[:, 0]).all() == (d.status[0] == "BOUNDED")
    assert np.isnan(d.value[:, 0]).all() or np.all(np.abs(d.value[:, 0]) <= 100)
    assert_near(d.value[:, 1:], CHAIN[:, 1:], 1e-6)
    jac = calipers.jacobian_function(f, method=method, bounds=(low, high))
    assert np.array_equal(jac(X), d.value, equal_nan=True)


@numba.njit
def compiled_fraction(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = x[i] / (2 + x[i])
    return y


fractions = pytest.mark.parametrize(
    "f", [compiled_fraction, compiled_fraction.py_func], ids=["compiled", "python"]
)


@fractions
@boundable
def test_sides_may_differ_between_elements(f, method):
    x = np.array([0.25, 0.5, 0.25, 1.0, 0.75, 0.25, 1.0])
    options = {"method": method, "bounds": (0.25, 1.0)}
    found = calipers.differentiate(f, x, **options)
    alone = [calipers.differentiate(f, x[i : i + 1], **options) for i in range(7)]
    assert_near(found.value, np.diag(2 / (2 + x) ** 2), 20 * BARS[method])
    assert np.array_equal(found.value.diagonal(), [d.value.item() for d in alone])
    assert np.array_equal(found.error.diagonal(), [d.error.item() for d in alone])


@fractions
def test_a_central_step_may_reach_the_bounds(f):
    x, room = np.array([0.5]), 0.25
    found = calipers.jacobian(f, x, step=room, bounds=(x - room, x + room))
    assert_near(found, ((f(x + room) - f(x - room)) / (2 * room))[:, None], 1e-14)


@boundable
def test_a_product_goes_where_there_is_room(method):
    f, seen = counted(np.sin)
    x = np.array([1.0, 0.5])
    for v in (np.array([1.0, 0.5]), np.array([-1.0, 0.5])):
        found = calipers.jvp(f, x, v, method=method, bounds=(0.0, 1.0))
        assert_near(found, np.cos(x) * v, 50 * BARS[method])
    called = points(seen, (2,))
    assert called.min() >= 0
    assert called.max() <= 1


def test_a_hessian_of_values_keeps_the_nearest_bound():
    x = np.array([0.5, 0.99, 0.375, 1.0])
    f, seen = counted(lambda x: np.sin(x).prod())
    h = calipers.hessian(f, x, bounds=(0.0, 1.0))
    called = points(seen, (4,))
    assert called.min() >= 0
    assert called.max() <= 1
    assert h.status.tolist() == ["CONVERGED"] * 3 + ["BOUNDED"]
    assert np.isnan(h.value[3]).all()
    assert np.isfinite(h.value[:3, :3]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@boundable
def test_no_rounding_leads_outside_bounds(method, dtype):
    rng = np.random.default_rng(5)
    low = rng.uniform(-1, 1, 60).astype(dtype).astype(float)
    high = low + rng.choice([1e-1, 1e-4, 1e-7, 0.3], 60)
    x = np.clip((low + rng.uniform(0, 1, 60) * (high - low)).astype(dtype), low, high)
    x = np.where(x.astype(dtype).astype(float) <= high, x, low).astype(dtype)
    f, seen = counted(np.sin)
    calipers.jacobian(f, x, method=method, bounds=(low, high))
    called = points(seen, (60,)).astype(float)
    assert np.all(called >= low)
    assert np.all(called <= high)


@pytest.mark.parametrize("room", [1e-6, 1e-9, 1e-12])
@boundable
def test_tiny_room_is_used(method, room):
    low, high = 0.7 - room / 3, 0.7 + room / 2
    f, seen = counted(np.sin)
    d = calipers.differentiate(f, np.array([0.7]), method=method, bounds=(low, high))
    called = points(seen, (1,))
    assert called.min() >= low
    assert called.max() <= high
    assert abs(d.value.item() - np.cos(0.7)) <= 20 * 2e-16 / room + 1e-6
    if method == "adaptive":
        assert abs(d.value.item() - np.cos(0.7)) <= d.error.item() <= 1e5 * 2e-16 / room


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
@boundable
def test_no_room_is_no_derivative(function, method):
    low, high = X - 1, X + 1
    low[2] = high[2] = X[2]
    d = calipers.differentiate(function, X, method=method, bounds=(low, high))
    assert d.status[2] == "BOUNDED"
    assert np.isnan(d.value[:, 2]).all()
    others = [0, 1, 3]
    assert_near(d.value[:, others], CHAIN[:, others], BARS[method])
    assert "BOUNDED" not in d.status[others]


@boundable
def test_bounds_of_scipy(method):
    optimize = pytest.importorskip("scipy.optimize")
    f, seen = counted(square)
    x = np.array([1.0, 2.0])
    bounds = optimize.Bounds([1, 0], [3, 2])
    assert_near(calipers.jacobian(f, x, method=method, bounds=bounds), np.diag(2 * x), BARS[method])
    called = points(seen, (2,))
    assert np.all((called >= [1, 0]) & (called <= [3, 2]))
    found = calipers.jacobian(f, x, method=method, bounds=optimize.Bounds())
    assert_near(found, np.diag(2 * x), BARS[method])


@boundable
def test_bounds_have_the_shape_of_x(method):
    low, high = M.copy(), M + 1
    f, seen = counted(square)
    found = calipers.jacobian(f, M, method=method, bounds=(low, high))
    assert_near(found, np.diag(2 * M.ravel()).reshape(2, 3, 2, 3), BARS[method])
    called = points(seen, (2, 3))
    assert np.all((called >= low) & (called <= high))


@boundable
def test_x_outside_bounds_is_named(method):
    low, high = np.zeros(4), np.ones(4)
    with pytest.raises(ValueError, match=r"x\[1\] = 1.25 is outside its bounds \[0.0, 1.0\]"):
        calipers.jacobian(square, X, method=method, bounds=(low, high))
    jac = calipers.jacobian_function(square, np.full(4, 0.5), method=method, bounds=(low, high))
    with pytest.raises(ValueError, match=r"x\[1\] = 1.25 is outside its bounds \[0.0, 1.0\]"):
        jac(X)


def test_bounds_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"bounds has shape \(3,\), and x has \(4,\)"):
        calipers.jacobian(square, X, bounds=(np.zeros(3), 9))
    with pytest.raises(ValueError, match="bounds must be a pair"):
        calipers.jacobian(square, X, bounds=3)
    with pytest.raises(ValueError, match="bounds must be a pair"):
        calipers.jacobian(square, X, bounds=(1, 2, 3))
    with pytest.raises(ValueError, match="outside its bounds"):
        calipers.jacobian(square, X, bounds=(9, -9))
    with pytest.raises(ValueError, match="bounds must not be NaN"):
        calipers.jacobian(square, X, bounds=(np.nan, 9))
    with pytest.raises(ValueError, match="bounds are for real x"):
        calipers.jacobian(square, Z, bounds=(0, 1))
    with pytest.raises(ValueError, match="bounds are for real x"):
        calipers.jacobian(square, X, method="cs", bounds=(-9, 9))


@pytest.mark.parametrize("x", [[0.0, 1.0], [0.0, 0.5], [1e-9, 1 - 1e-9], [0.0, 0.0]])
@boundable
def test_bounds_hold_for_every_relative(method, x):
    x, v = np.array(x), np.array([1.0, -0.5])
    exact, bar = np.cos(x), 50 * BARS[method]
    if method == "adaptive":
        bar = max(bar, 1e-6)  # on one side, from 1e-9 of the bound
    f, seen = counted(np.sin)
    options = {"method": method, "bounds": (0.0, 1.0)}
    found = calipers.jvp(f, x, v, **options)
    assert np.isnan(found).all() or np.all(np.abs(found - exact * v) <= bar)
    assert_near(calipers.vjp(f, x, v, **options), exact * v, bar)
    (part,) = calipers.jacobian_blocks(f, x, **options)
    assert_near(part[1], np.diag(exact), bar)
    gradient, more = counted(np.cos)
    h = calipers.hessian(None, x, gradient=gradient, **options)
    assert_near(h.value, np.diag(-np.sin(x)), bar)
    values, most = counted(lambda x: np.sin(x).sum())
    calipers.hessian(values, x, bounds=(0.0, 1.0))
    called = points(seen + more + most, (2,))
    assert called.min() >= 0
    assert called.max() <= 1


# What a Derivative says.


@methods
@pytest.mark.parametrize("bounds", [None, (-0.75, 2.0)])
def test_nfev_is_how_often_f_was_called(method, bounds):
    if method == "cs" and bounds:
        pytest.skip("has no bounds")
    f, seen = counted(waves)
    d = calipers.differentiate(f, X, method=method, bounds=bounds)
    assert d.nfev == len(seen)
    if bounds is None and method != "adaptive":
        assert d.nfev == 1 + 4 * CALLS[method]
    if method == "adaptive":
        assert 4 * 8 <= d.nfev <= 4 * 40 + 1


@methods
def test_nfev_counts_no_element_left_out(method):
    f, seen = counted(waves)
    d = calipers.differentiate(f, X, method=method, step=np.array([0.1, 0, 0, 0.1]))
    assert d.nfev == len(seen)
    if method != "adaptive":
        assert d.nfev == 1 + 2 * CALLS[method]


@pytest.mark.parametrize("options", [{"holomorphic": True}, {}])
@boundable
def test_nfev_of_complex_functions(method, options):
    f, seen = counted(np.exp)
    d = calipers.differentiate(f, Z, method=method, **options)
    assert d.nfev == len(seen)


@methods
def test_a_derivative_goes_where_an_array_goes(method):
    d = calipers.differentiate(waves, X, method=method)
    assert np.array_equal(np.asarray(d), d.value)
    assert np.asarray(d, dtype=np.float32).dtype == np.float32
    assert np.array_equal(np.array(d, copy=True), d.value)
    assert np.array_equal(np.linalg.norm(d), np.linalg.norm(d.value))
    assert d.colors is None
    assert 0 < d.seconds < 60
    assert d.status.dtype.kind == "U"
    expected = "CONVERGED" if method == "adaptive" else "FIXED"
    assert d.status.tolist() == [expected] * 4
    assert np.isfinite(d.error).all() == (method == "adaptive")
    assert np.isinf(d.error).all() == (method != "adaptive")


@methods
def test_a_derivative_is_summarised_in_a_few_lines(method):
    text = str(calipers.differentiate(waves, MANY, method=method))
    assert len(text) < 300
    assert text.count("\n") <= 4
    assert "(6, 131)" in text
    assert ("CONVERGED" if method == "adaptive" else "FIXED") in text
    assert "calls of f" in text
    assert "\n1 call of f, " in str(calipers.differentiate(np.sin, np.zeros(0)))


@methods
def test_jacobian_and_differentiate_agree(method):
    found = calipers.jacobian(waves, MANY, method=method)
    assert np.array_equal(found, calipers.differentiate(waves, MANY, method=method).value)


@pytest.mark.parametrize("batched", [False, True])
@methods
def test_the_derivative_at_a_place_that_is_not_a_number(method, batched):
    x = np.array([1.0, np.nan, 3.0])
    with np.errstate(all="ignore"):
        found = calipers.jacobian(square, x, method=method, batched=batched)
    assert_near(found[::2, ::2], np.diag([2.0, 6.0]), 10 * BARS[method])
    assert np.isnan(found[1, 1])


@numba.njit
def compiled_squares(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = x[i] * x[i]
    return y


@methods
def test_the_derivative_of_compiled_functions_at_a_place_that_is_not_a_number(method):
    x = np.array([1.0, np.nan, 3.0])
    found = calipers.jacobian(compiled_squares, x, method=method)
    assert_near(found[::2, ::2], np.diag([2.0, 6.0]), 10 * BARS[method])
    assert np.isnan(found[1, 1])
    d = calipers.differentiate(compiled_squares, x, method=method)
    assert np.array_equal(d.value, found, equal_nan=True)


@methods
def test_results_that_are_not_finite_do_not_spread(method):
    def f(x):
        return np.stack([x[0] * x[1], x[2] * np.nan, x[0] / 0.0 * 1.0])

    with np.errstate(all="ignore"):
        found = calipers.jacobian(f, np.array([1.0, 2.0, 3.0]), method=method)
    assert_near(found[0], [2.0, 1.0, 0.0], BARS[method] * 2)


# Products.


@pytest.mark.parametrize(
    ("f", "x"),
    [(waves, MANY[::13]), (waves, M), (compiled_chain, X), (compiled_rows, M)],
    ids=["python", "python matrix", "compiled", "compiled matrix"],
)
@methods
def test_products_equal_those_with_the_jacobian(f, x, method):
    rng = np.random.default_rng(2)
    dense = waves_jacobian(x) if f is waves else chain_jacobian(x)
    outer = dense.shape[: dense.ndim - x.ndim]
    v, w = rng.uniform(-1, 1, x.shape), rng.uniform(-1, 1, outer)
    found = calipers.jvp(f, x, v, method=method)
    assert found.dtype == np.float64
    assert_near(found, np.tensordot(dense, v, axes=x.ndim), 10 * BARS[method])
    found = calipers.vjp(f, x, w, method=method)
    assert found.dtype == np.float64
    assert_near(found, np.tensordot(w, dense, axes=len(outer)), 10 * BARS[method])


@boundable
def test_products_of_holomorphic_functions(method):
    a = np.array([[1 + 1j, 2, 0.5j], [0.3, -1j, 1]])
    f = lambda z: np.exp(a @ z / 3)  # noqa: E731
    dense = np.exp(a @ Z / 3)[:, None] * a / 3
    v, w = np.array([1, 1j, 2 - 1j]), np.array([0.5 - 1j, 2j])
    options = {"method": method, "holomorphic": True}
    assert_near(calipers.jvp(f, Z, v, **options), dense @ v, 10 * BARS[method])
    assert_near(calipers.vjp(f, Z, w, **options), w @ dense, 10 * BARS[method])
    assert_near(calipers.jvp(f, Z, v.imag, **options), dense @ v.imag, 10 * BARS[method])
    assert_near(calipers.vjp(f, Z, w.real, **options), w.real @ dense, 10 * BARS[method])


@boundable
def test_products_of_complex_functions_of_real_numbers(method):
    f, dense = lambda x: np.exp(1j * x), np.diag(1j * np.exp(1j * X))
    w = np.array([1j, 2, 0.5, 1 - 1j])
    assert_near(calipers.jvp(f, X, K, method=method), dense @ K, 10 * BARS[method])
    assert_near(calipers.vjp(f, X, w, method=method), w @ dense, 10 * BARS[method])


@methods
def test_complex_weights_of_a_real_function(method):
    w = np.array([1j, 2, 0.5, 1 - 1j])
    found = calipers.vjp(compiled_chain, X, w, method=method)
    assert_near(found, w @ CHAIN, 10 * BARS[method])


@pytest.mark.parametrize("method", [*FIXED, "cs"])
def test_a_product_takes_two_calls_and_no_more(method):
    f, seen = counted(waves)
    calipers.jvp(f, MANY, np.ones(131), method=method)
    assert len(seen) == 1 + CALLS[method]


def test_nothing_along_no_direction():
    assert_near(calipers.jvp(waves, X, np.zeros(4)), np.zeros(6), 0)
    assert_near(calipers.jvp(np.exp, Z, np.zeros(3), holomorphic=True), np.zeros(3), 0)


@methods
def test_a_product_moves_no_element_farther_than_its_step(method):
    f, seen = counted(waves)
    v = np.array([1.0, 1e3, 1e-3, 0.0])
    x = np.array([1e-6, 1.0, 1e6, 2.0])
    calipers.jvp(f, x, v, method=method)
    if method in FIXED:
        reach = 2 if method == "5-point" else 1
        step = calipers.differentiate(waves, x, method=method).step
        moved = np.abs(points(seen, x.shape) - x).max(axis=0)
        assert np.all(moved <= 1.001 * reach * step)
        assert moved[3] == 0


@methods
def test_real_x_moves_in_no_complex_direction(method):
    with pytest.raises(TypeError, match="v must be"):
        calipers.jvp(waves, X, 1j * np.ones(4), method=method)


def test_vectors_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"v has shape \(3,\), and x has \(4,\)"):
        calipers.jvp(waves, X, np.ones(3))
    with pytest.raises(ValueError, match=r"w has shape \(3,\), and f\(x\) has \(6,\)"):
        calipers.vjp(waves, X, np.ones(3))
    with pytest.raises(TypeError, match="w must be"):
        calipers.vjp(waves, X, np.array(["a"] * 6))
    with pytest.raises(ValueError, match="holomorphic=True"):
        calipers.vjp(np.exp, Z, Z)


@methods
def test_a_linear_operator_is_the_jacobian(method):
    linalg = pytest.importorskip("scipy.sparse.linalg")
    for f, x in ((waves, M), (compiled_chain, X)):
        dense = (waves_jacobian(x) if f is waves else chain_jacobian(x)).reshape(-1, x.size)
        found = calipers.linear_operator(f, x, method=method)
        assert isinstance(found, linalg.LinearOperator)
        assert found.shape == dense.shape
        assert found.dtype == np.float64
        rng = np.random.default_rng(3)
        v, w = rng.uniform(-1, 1, dense.shape[1]), rng.uniform(-1, 1, dense.shape[0])
        bar = 10 * BARS[method]
        assert_near(found.matvec(v), dense @ v, bar)
        assert_near(found @ v, dense @ v, bar)
        assert_near(found.rmatvec(w), dense.T @ w, bar)
        assert_near(found.T @ w, dense.T @ w, bar)
        assert_near(found @ np.eye(len(v)), dense, bar)
        assert_near(found.matmat(v[:, None]), (dense @ v)[:, None], bar)


@methods
def test_a_linear_operator_takes_complex_vectors(method):
    pytest.importorskip("scipy.sparse.linalg")
    v = 1 + 1j * K
    for f in (compiled_chain, compiled_chain.py_func):
        found = calipers.linear_operator(f, X, method=method)
        assert_near(found @ v, CHAIN @ v, 10 * BARS[method])
        assert_near(found.rmatvec(v), CHAIN.T @ v, 10 * BARS[method])


@boundable
def test_a_linear_operator_of_complex_functions(method):
    pytest.importorskip("scipy.sparse.linalg")
    a = np.array([[1 + 1j, 2, 0.5j], [0.3, -1j, 1]])
    f = lambda z: np.exp(a @ z / 3)  # noqa: E731
    v, w, bar = np.array([1, 1j, 2 - 1j]), np.array([0.5 - 1j, 2j]), 10 * BARS[method]
    for x, options in ((Z, {"holomorphic": True}), (Z.real, {})):
        dense = np.exp(a @ x / 3)[:, None] * a / 3
        found = calipers.linear_operator(f, x, method=method, **options)
        assert found.dtype == np.complex128
        assert found.shape == (2, 3)
        assert_near(found.matvec(v), dense @ v, bar)
        assert_near(found.rmatvec(w), dense.conj().T @ w, bar)
        assert_near(found.H @ w, dense.conj().T @ w, bar)
    with pytest.raises(ValueError, match="holomorphic=True"):
        calipers.linear_operator(f, Z, method=method)


def test_what_is_done_to_x_is_not_done_to_what_was_asked_before():
    pytest.importorskip("scipy.sparse.linalg")
    for f in (compiled_chain, compiled_chain.py_func):
        x = X.copy()
        operator = calipers.linear_operator(f, x)
        blocks = calipers.jacobian_blocks(f, x, block=2)
        first = next(blocks)[1]
        x[:] = 7
        assert_near(operator @ K, CHAIN @ K, 1e-7)
        assert_near(np.concatenate([first, next(blocks)[1]], axis=1), CHAIN)


def test_a_linear_operator_serves_a_solver():
    linalg = pytest.importorskip("scipy.sparse.linalg")
    x, b = np.array([0.5, 1.25, 1.0, 2.0]), np.array([1.0, 2, 3, 4])
    dense = chain_jacobian(x)
    operator = calipers.linear_operator(compiled_chain, x)
    solution, info = linalg.gmres(operator, b, rtol=1e-10)
    assert info == 0
    assert np.allclose(dense @ solution, b, atol=1e-6)
    assert np.allclose(dense @ linalg.lsqr(operator, b)[0], b, atol=1e-4)


@pytest.mark.parametrize("f", [slow, waves], ids=["compiled", "python"])
@methods
def test_blocks_are_parts_of_the_jacobian(f, method):
    whole = calipers.jacobian(f, MANY, method=method)
    for block in (1, 50, 131, 1000, None):
        if block == 1 and method == "adaptive":
            continue
        parts = list(calipers.jacobian_blocks(f, MANY, block=block, method=method))
        assert [s.start for s, _ in parts] == list(range(0, 131, block or 131))
        assert parts[-1][0].stop == 131
        assert np.array_equal(np.concatenate([part for _, part in parts], axis=1), whole)
        for columns, part in parts:
            assert np.array_equal(part, whole[:, columns])


def test_blocks_of_arrays_are_matrices():
    parts = list(calipers.jacobian_blocks(compiled_rows, M, block=4))
    assert [part.shape for _, part in parts] == [(6, 4), (6, 2)]
    assert_near(np.concatenate([p for _, p in parts], axis=1), CHAINS.reshape(6, 6))
    parts = list(calipers.jacobian_blocks(np.exp, Z, block=2, holomorphic=True))
    assert_near(np.concatenate([p for _, p in parts], axis=1), np.diag(np.exp(Z)))
    assert list(calipers.jacobian_blocks(np.exp, np.empty(0))) == []
    with pytest.raises(ValueError, match="block must be at least 1, got 0"):
        next(calipers.jacobian_blocks(np.exp, X, block=0))
    with pytest.raises(ValueError, match="holomorphic=True"):
        next(calipers.jacobian_blocks(np.exp, Z))


# Memory.


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
    with pytest.raises(MemoryError, match=r"by 1000000 coordinates takes .* GB"):
        calipers.jacobian(f, np.ones(10**6))


def test_f_is_not_called_for_a_result_that_does_not_fit():
    f, seen = counted(np.copyto)
    for ask in (calipers.jacobian, calipers.differentiate):
        with pytest.raises(MemoryError):
            ask(f, np.ones(1000), out_like=1000, memory_limit=2e6)
    assert seen == []


def test_a_limit_that_is_kept_is_no_limit():
    assert calipers.jacobian(lambda x: x, np.ones(400), memory_limit=2e6).shape == (400, 400)


# Second derivatives.


def cubic(x):
    return np.sum(x**3) + x.ravel()[0] * x.ravel()[-1] ** 2


def cubic_gradient(x):
    g = 3 * x**2
    g.ravel()[0] += x.ravel()[-1] ** 2
    g.ravel()[-1] += 2 * x.ravel()[0] * x.ravel()[-1]
    return g


def cubic_hessian(x):
    flat = x.ravel()
    h = np.diag(6 * flat)
    h[0, -1] = h[-1, 0] = 2 * flat[-1]
    h[-1, -1] += 2 * flat[0]
    return h.reshape(x.shape + x.shape)


@pytest.mark.parametrize("x", [X, M, X.reshape(1, 4, 1)], ids=["vector", "matrix", "three axes"])
def test_hessians_of_values_and_of_gradients(x):
    exact = cubic_hessian(x)
    for h, bar in (
        (calipers.hessian(cubic, x), 1e-5),
        (calipers.hessian(None, x, gradient=cubic_gradient), 1e-9),
        (calipers.hessian(cubic, x, gradient=cubic_gradient, method="3-point"), 1e-7),
        (calipers.hessian(cubic, x, gradient=cubic_gradient, method="5-point"), 1e-9),
    ):
        assert_near(h.value, exact, bar)
        flat = h.value.reshape(x.size, x.size)
        assert np.array_equal(flat, flat.T)
        assert h.error.shape == x.shape + x.shape
        assert np.all(np.abs(h.value - exact) <= h.error)
        assert h.step.shape == h.status.shape == x.shape
        assert np.array_equal(np.asarray(h), h.value)


def test_what_a_pair_met_is_the_status_of_both_elements():
    def f(x):
        return np.nan if np.all(x[:2] != X[:2]) else np.sum(x**2)

    h = calipers.hessian(f, X)
    assert h.status.tolist() == ["NONFINITE", "NONFINITE", "CONVERGED", "CONVERGED"]


@pytest.mark.parametrize("low", [-9.0, np.where(np.arange(14) == 3, 0.5, -9.0)])
def test_progress_of_a_hessian_rises_to_the_end(low):
    seen = []
    report = lambda *at: seen.append(at)  # noqa: E731
    calipers.hessian(cubic, np.full(14, 0.5), bounds=(low, 9.0), progress=report)
    assert seen == sorted(seen)
    assert seen[-1] == (105, 105)


def test_a_hessian_says_how_often_it_called():
    f, seen = counted(cubic)
    assert calipers.hessian(f, X).nfev == len(seen)
    f, seen = counted(cubic_gradient)
    assert calipers.hessian(None, X, gradient=f).nfev == len(seen)


def test_f_is_not_called_where_there_is_a_gradient():
    def never(x):
        raise AssertionError

    assert_near(calipers.hessian(never, X, gradient=cubic_gradient).value, cubic_hessian(X))


def test_compiled_hessians():
    @numba.njit
    def gradient(x):
        g = 3 * x**2
        g[0] += x[-1] ** 2
        g[-1] += 2 * x[0] * x[-1]
        return g

    @numba.njit
    def value(x):
        return np.sum(x**3) + x[0] * x[-1] ** 2

    assert_near(calipers.hessian(None, X, gradient=gradient).value, cubic_hessian(X), 1e-9)
    assert_near(calipers.hessian(value, X).value, cubic_hessian(X), 1e-5)


def test_what_is_not_symmetric_in_a_hessian_is_its_error():
    h = calipers.hessian(None, X[:2], gradient=lambda x: np.array([x[1], 3 * x[0]]))
    assert_near(h.value, [[0.0, 2], [2, 0]], 1e-9)
    assert h.error[0, 1] >= 1 - 1e-9
    assert h.error[1, 0] >= 1 - 1e-9
    assert h.error[0, 0] <= 1e-9


def test_hessians_of_what_has_none_are_refused():
    with pytest.raises(ValueError, match=r"one value, got \(6,\)"):
        calipers.hessian(waves, X)
    with pytest.raises(ValueError, match="gradient must return x's shape"):
        calipers.hessian(None, X, gradient=waves)
    with pytest.raises(TypeError, match="neither"):
        calipers.hessian(None, X)
    with pytest.raises(ValueError, match="real"):
        calipers.hessian(lambda z: np.sum(np.abs(z)), Z)
    with pytest.raises(ValueError, match="real"):
        calipers.hessian(lambda x: np.sum(1j * x), X)
    with pytest.raises(ValueError, match="adaptive"):
        calipers.hessian(cubic, X, method="3-point")
    with pytest.raises(ValueError, match="sparsity"):
        calipers.hessian(cubic, X, sparsity="detect")


# Functions that give Jacobians.


@methods
def test_a_jacobian_function_is_right_wherever_it_is_asked(method):
    for f in (waves, compiled_chain):
        jac = calipers.jacobian_function(f, 1e25 * X, method=method)
        for x in (X, 1e-3 * X, X, 1e3 * X, np.zeros(4)):
            found, expected = jac(x), calipers.jacobian(f, x, method=method)
            assert_near(found, expected, 1e-14)
            assert method == "cs" or np.array_equal(found, expected)


@pytest.mark.parametrize("holomorphic", [True, False])
@boundable
def test_a_jacobian_function_of_complex_numbers_is_too(method, holomorphic):
    options = {"method": method, "holomorphic": holomorphic}
    for f in (lambda z: z**3, compiled_chain):
        jac = calipers.jacobian_function(f, 1e6 * Z, **options)
        for z in (Z, 1e-3 * Z, 1e3 * Z):
            found, expected = jac(z), calipers.jacobian(f, z, **options)
            assert np.array_equal(found, expected, equal_nan=True)


@methods
def test_a_jacobian_function_gives_new_arrays(method):
    for f in (square, compiled_chain):
        jac = calipers.jacobian_function(f, method=method)
        first = jac(X)
        kept = first.copy()
        jac(2 * X)
        assert np.array_equal(first, kept)
        first[:] = 7
        assert np.array_equal(jac(X), kept)


@pytest.mark.parametrize("f", [compiled_chain, compiled_chain.py_func], ids=["compiled", "python"])
def test_another_shape_or_dtype_is_planned_anew(f):
    jac = calipers.jacobian_function(f, X)
    assert_near(jac(X), CHAIN)
    assert_near(jac(MANY), chain_jacobian(MANY))
    single = jac(X.astype(np.float32))
    assert single.dtype == np.float32
    assert_near(single, CHAIN, 1e-3)
    assert_near(jac([0.5, 1.25, -0.75, 2.0]), CHAIN)
    assert_near(jac(np.array([1, 2])), chain_jacobian(np.array([1.0, 2.0])))
    assert_near(jac(X[::-1]), chain_jacobian(X[::-1]))
    assert len(jac(Z)) == 2
    assert_near(jac(X), CHAIN)


@pytest.mark.parametrize(
    "f", [compiled_scaled, compiled_scaled.py_func], ids=["compiled", "python"]
)
@pytest.mark.parametrize("method", ["2-point", "3-point", "cs", "adaptive"])
def test_other_arguments_take_effect(f, method):
    jac = calipers.jacobian_function(f, argnums=1, method=method)
    bar, slope = 100 * BARS[method], np.diag(2 * X)
    k = K.copy()
    assert_near(jac(2.0, X, k), 2 * K * slope, bar)
    assert_near(jac(3.0, X, k), 3 * K * slope, bar)
    assert_near(jac(3.0, X, -k), -3 * K * slope, bar)
    k[:] = 1
    assert_near(jac(3.0, X, k), 3 * slope, bar)
    assert_near(jac(3.0, X, np.repeat(K, 2)[::2]), 3 * K * slope, bar)
    assert_near(jac(3.0, X, np.array([1, 2, 3, 4])), 3 * K * slope, bar)
    assert_near(jac(2, X, k), 2 * slope, bar)
    assert_near(jac(1.0, X, K, 2.0), 2 * K * slope, bar)
    assert_near(jac(1.0, X, K, 3.0), 3 * K * slope, bar)
    assert_near(jac(1.0, X, K), K * slope, bar)
    assert_near(jac(np.float32(1.0), X, K), K * slope, bar)


@pytest.mark.parametrize(
    "f", [compiled_scaled, compiled_scaled.py_func], ids=["compiled", "python"]
)
def test_keywords_of_one_call_are_not_those_of_the_next(f):
    jac = calipers.jacobian_function(f, argnums=1)
    slope = np.diag(2 * K * X)
    assert_near(jac(1.0, X, K, power=2.0), 2 * slope, 1e-7)
    assert_near(jac(1.0, X, K), slope, 1e-7)
    assert_near(jac(1.0, X, K, power=3.0), 3 * slope, 1e-7)
    jac = calipers.jacobian_function(f, argnums=1, kwargs={"power": 2.0})
    assert_near(jac(1.0, X, K), 2 * slope, 1e-7)
    assert_near(jac(1.0, X, K, power=3.0), 3 * slope, 1e-7)
    assert_near(jac(1.0, X, K), 2 * slope, 1e-7)


def test_arguments_given_at_first_are_the_default():
    jac = calipers.jacobian_function(compiled_scaled, X, args=(2.0, K), argnums=1)
    assert_near(jac(5.0, X, K), np.diag(10 * K * X), 1e-7)
    jac = calipers.jacobian_function(compiled_scaled_into, X, args=(K, 2.0), out_like=4)
    assert_near(jac(X), np.diag(4 * K**2 * X), 1e-7)
    assert_near(jac(X, 2 * K, 2.0), np.diag(16 * K**2 * X), 1e-7)
    assert_near(jac(X), np.diag(4 * K**2 * X), 1e-7)


@pytest.mark.parametrize("f", [compiled_chain_times, compiled_chain_times.py_func])
def test_an_argument_may_come_later(f):
    jac = calipers.jacobian_function(f)
    for _ in range(2):
        assert_near(jac(X), CHAIN)
        assert_near(jac(X, K), K[:, None] * CHAIN, 4e-8)


def test_a_jacobian_function_needs_x():
    jac = calipers.jacobian_function(compiled_scaled, argnums=1)
    with pytest.raises(TypeError, match="positional argument 1"):
        jac(2.0)
    with pytest.raises(TypeError, match="argnums must be an int"):
        calipers.jacobian_function(waves, argnums=(0, 1))


def test_jacobian_functions_have_workers_progress_and_batches():
    seen = []
    report = lambda *at: seen.append(at)  # noqa: E731
    jac = calipers.jacobian_function(waves, workers=2, progress=report)
    assert np.array_equal(jac(MANY), calipers.jacobian(waves, MANY))
    assert np.array_equal(jac(2 * MANY), calipers.jacobian(waves, 2 * MANY))
    assert seen.count((131, 131)) == 2
    f, calls = counted(batched_squares)
    jac = calipers.jacobian_function(f, batched=True)
    assert_near(jac(X), calipers.jacobian(lambda x: x * x[::-1], X))
    assert len(calls) <= 4


@pytest.mark.parametrize("method", ["2-point", "3-point", "adaptive"])
@pytest.mark.parametrize("f", [slow, waves, compiled_chain], ids=["slow", "python", "chain"])
def test_a_jacobian_function_is_shared_by_threads(f, method):
    xs = [MANY[:40] + 0.1 * k for k in range(8)]
    expected = [calipers.jacobian(f, x, method=method) for x in xs]
    jac = calipers.jacobian_function(f, method=method)
    wrong, start = [], threading.Barrier(8)

    def ask(k):
        start.wait()
        for turn in range(5):
            i = (k + turn) % 8
            if not np.array_equal(jac(xs[i]), expected[i]):
                wrong.append((k, turn))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert wrong == []


def test_a_jacobian_function_is_shared_by_threads_with_arguments_and_shapes():
    jac = calipers.jacobian_function(compiled_scaled, argnums=1)
    start = threading.Barrier(8)

    def ask(k):
        start.wait()
        for turn in range(10):
            n, a = 2 + (k + turn) % 3, float(k + 1)
            assert_near(jac(a, X[:n], K[:n]), np.diag(2 * a * K[:n] * X[:n]), 1e-7)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))


# SciPy's solvers.

TIMES = np.linspace(0, 2, 25)
DATA = 3 * np.exp(-1.5 * TIMES)


def residuals(p, times, data):
    return p[0] * np.exp(-p[1] * times) - data


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("solver", ["trf", "lm", "dogbox"])
def test_least_squares_takes_it(solver, compiled):
    optimize = pytest.importorskip("scipy.optimize")
    f = FITTED if compiled else residuals
    jac = calipers.jacobian_function(f)
    result = optimize.least_squares(
        f, [1.0, 1.0], jac=jac, args=(TIMES, DATA), method=solver, xtol=1e-14, ftol=1e-14
    )
    assert np.allclose(result.x, [3, 1.5], atol=1e-8)


FITTED = numba.njit(residuals)


def test_least_squares_with_bounds_and_a_sparse_jacobian_takes_it():
    optimize = pytest.importorskip("scipy.optimize")
    f = lambda x: (x - 2) ** 2 + x - 2  # noqa: E731
    jac = calipers.jacobian_function(f, sparsity=np.eye(5), bounds=(0, 1.5))
    result = optimize.least_squares(f, np.full(5, 1.2), jac=jac, bounds=(0, 1.5))
    assert np.allclose(result.x, np.clip(result.x, 0, 1.5))
    assert result.success


def test_root_takes_it():
    optimize = pytest.importorskip("scipy.optimize")
    f = lambda x: np.array([x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1, 0.5 * (x[1] - x[0]) ** 3 + x[1]])  # noqa: E731
    result = optimize.root(f, [0.0, 0.0], jac=calipers.jacobian_function(f))
    assert result.success
    assert np.allclose(f(result.x), 0, atol=1e-9)


@pytest.mark.parametrize("solver", ["BFGS", "Newton-CG", "trust-exact"])
def test_minimize_takes_it(solver):
    optimize = pytest.importorskip("scipy.optimize")
    jac = calipers.jacobian_function(optimize.rosen, method="5-point")
    hess = None
    if solver != "BFGS":
        hess = lambda x: np.asarray(calipers.hessian(None, x, gradient=optimize.rosen_der))  # noqa: E731
    result = optimize.minimize(optimize.rosen, [1.3, 0.7, 0.8], jac=jac, hess=hess, method=solver)
    assert np.allclose(result.x, 1, atol=1e-5)


def robertson(t, y, k):
    a, b, c = -0.04 * y[0], 1e4 * y[1] * y[2], k * y[1] * y[1]
    return np.array([a + b, -a - b - c, c])


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("solver", ["BDF", "Radau", "LSODA"])
def test_solve_ivp_takes_it(solver, compiled):
    integrate = pytest.importorskip("scipy.integrate")
    f = REACTING if compiled else robertson
    jac = calipers.jacobian_function(f, argnums=1, scale=np.array([1.0, 1e-5, 1.0]))
    options = {"method": solver, "rtol": 1e-7, "atol": 1e-10, "args": (3e7,)}
    found = integrate.solve_ivp(f, (0, 40), [1.0, 0, 0], jac=jac, **options)
    assert found.success
    assert np.allclose(found.y[:, -1], [7.158e-1, 9.185e-6, 2.842e-1], rtol=1e-3)
    if compiled:
        assert jac(0.0, np.ones(3), 3e7).shape == (3, 3)


REACTING = numba.njit(robertson)


def test_an_unknown_target_is_refused():
    assert_near(calipers.jacobian(square, X, target="cpu"), np.diag(2 * X))
    with pytest.raises(ValueError, match="target must be None, 'cpu' or 'cuda'"):
        calipers.jacobian(square, X, target="tpu")


@pytest.mark.parametrize("kind", [float, np.float64])
def test_numbers_that_change_do_not_change_the_plan(kind):
    @numba.njit
    def scaled(t, y):
        return t * y

    jac = calipers.jacobian_function(scaled, argnums=1)
    plans = set()
    for t in (0.5, 2.0, 3.0):
        assert_near(jac(kind(t), np.ones(3)), t * np.eye(3), 1e-9)
        plans.add(id(jac._plan))
    assert len(plans) == 1


@methods
def test_a_function_that_mixes_a_batch_is_refused(method):
    with pytest.raises(ValueError, match="mixes the arguments of a batch"):
        calipers.jacobian(lambda x: np.exp(-x) * x.sum(), X, method=method, batched=True)


def test_options_that_a_function_does_not_take_are_refused_by_name():
    for call in (calipers.jvp, calipers.vjp):
        with pytest.raises(TypeError, match=r"got an unexpected keyword argument 'sparsity'"):
            call(square, X, X, sparsity=np.eye(4))
    with pytest.raises(TypeError, match=r"hessian\(\) got an unexpected keyword argument 'metod'"):
        calipers.hessian(square, X, metod="adaptive")
    with pytest.raises(TypeError, match="args must be a tuple"):
        calipers.jacobian(square, X, args=3)
    with pytest.raises(ValueError, match="above the upper one"):
        calipers.jacobian(square, X, bounds=(9, -9))


@pytest.mark.parametrize("compiled", [True, False])
def test_a_function_that_fills_is_told_of_out_like(compiled):
    def f(x, out):
        out[:] = x**2

    with pytest.raises(TypeError, match="argument") as caught:
        calipers.jacobian(numba.njit(f) if compiled else f, X)
    assert any("give out_like=" in note for note in caught.value.__notes__)


def test_a_pace_that_was_measured_while_the_machine_was_busy_is_mended():
    parts = []

    class Instant:
        problem = SimpleNamespace(native=SimpleNamespace(parallel=False))

        def results(self, count):
            return (np.zeros(count),)

        def __call__(self, start, outs):
            parts.append(len(outs[0]))

    pace = Pace(seconds=1.0, runs=3)
    with calipers.num_threads(2):
        run(Instant(), 100, pace=pace)
        assert len(parts) > 1  # by threads, as the pace says
        parts.clear()
        run(Instant(), 100, pace=pace)
    assert parts == [100]


@pytest.mark.parametrize("x", [1e10, -3.3e12, 7e5])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_ladder_of_a_step_that_x_would_round(x, compiled):
    f = numba.njit(lambda x: x * x) if compiled else np.square
    step = 503.7 * np.spacing(abs(x))
    d = calipers.differentiate(f, np.array([x]), step=step)
    assert d.status.tolist() == ["CONVERGED"]
    assert np.abs(d.value[0, 0] - 2 * x) <= d.error[0, 0] <= 1e-2 * abs(2 * x)
    assert 0.5 * step <= d.step[0] <= step
