"""jacobian_function: plans that are asked again and again, and SciPy's solvers that ask them."""

import gc
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numba
import numpy as np
import pytest

import calipers
from tests.data.derivative_functions import (
    BARS,
    CHAIN,
    MANY,
    SIX,
    K,
    X,
    Z,
    assert_near,
    batched_squares,
    boundable,
    chain_jacobian,
    compiled_chain,
    compiled_scaled,
    compiled_scaled_into,
    counted,
    methods,
    slow,
    square,
    waves,
)

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
    assert_near(jac(1.0, X, K, 2.0), 2 * K * slope, bar)
    assert_near(jac(1.0, X, K, 3.0), 3 * K * slope, bar)
    assert_near(jac(1.0, X, K), K * slope, bar)


@pytest.mark.slow
@pytest.mark.parametrize(
    "f", [compiled_scaled, compiled_scaled.py_func], ids=["compiled", "python"]
)
def test_arguments_of_another_type_take_effect(f):
    """By one method: each compiles all of its steps for every type."""
    jac = calipers.jacobian_function(f, argnums=1, method="2-point")
    bar, slope = 100 * BARS["2-point"], np.diag(2 * X)
    k = np.ones(4)
    assert_near(jac(3.0, X, k), 3 * slope, bar)
    assert_near(jac(3.0, X, np.repeat(K, 2)[::2]), 3 * K * slope, bar)
    assert_near(jac(3.0, X, np.array([1, 2, 3, 4])), 3 * K * slope, bar)
    assert_near(jac(2, X, k), 2 * slope, bar)
    assert_near(jac(np.float32(1.0), X, K), K * slope, bar)


@numba.njit
def first_times(x, a):
    return a * x[0]


@pytest.mark.parametrize("f", [first_times, first_times.py_func], ids=["compiled", "python"])
@pytest.mark.parametrize("method", ["2-point", "3-point", "adaptive"])
def test_arguments_of_another_shape_are_planned_anew(f, method):
    jac = calipers.jacobian_function(f, X, args=(K,), method=method)
    for a in (np.ones((2, 3)), np.ones((3, 2)), np.ones(5), 1j * np.ones(5), np.ones(0)):
        found = jac(X, a)
        assert found.shape == a.shape + X.shape
        assert_near(found[..., 0], a, 1e-7)


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


@numba.njit
def compiled_chain_times(x, k=1.0):
    return compiled_chain(x) * k


@pytest.mark.parametrize("f", [compiled_chain_times, compiled_chain_times.py_func])
def test_an_argument_may_come_later(f):
    jac = calipers.jacobian_function(f)
    for _ in range(2):
        assert_near(jac(X), CHAIN)
        assert_near(jac(X, K), K[:, None] * CHAIN, 4e-8)


def test_a_jacobian_function_needs_x():
    jac = calipers.jacobian_function(compiled_scaled, argnums=1)
    with pytest.raises(TypeError, match="argument 1 of f, counted from 0, but 1 was passed"):
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


@numba.njit
def _compiled(x):
    return x * x


def test_a_planned_jacobian_is_sent_after_its_first_call():
    planned = calipers.jacobian_function(_compiled, SIX)
    expected = planned(SIX)
    assert np.array_equal(pickle.loads(pickle.dumps(planned))(SIX), expected)


# SciPy's solvers.

TIMES = np.linspace(0, 2, 25)
DATA = 3 * np.exp(-1.5 * TIMES)


def residuals(p, times, data):
    return p[0] * np.exp(-p[1] * times) - data


FITTED = numba.njit(residuals)


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


REACTING = numba.njit(robertson)


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


def test_a_planned_function_says_what_it_is():
    assert repr(calipers.jacobian_function(np.sin)) == "<Jacobian of sin, 3-point>"
    named = calipers.jacobian_function(partial(np.sum, axis=0), method="2-point")
    assert repr(named) == "<Jacobian of partial, 2-point>"


# jacobian, called again for the same compiled function.


def squares():
    """Return a new compiled function whose machine code has the factor of a global."""
    f = numba.njit(lambda x: FACTOR * x**2)
    calipers.jacobian(f, X)
    return f


FACTOR = 2.0


@methods
def test_a_second_jacobian_is_that_of_its_own_point(method):
    f = numba.njit(lambda x: x * x * x + x[::-1])
    for x in (X, 1e3 * X, np.zeros(4), X[:2], X[:1], X):
        python = calipers.jacobian(f.py_func, x, method=method)
        for _ in range(2):
            assert_near(calipers.jacobian(f, x, method=method), python, 1e-13)


def test_a_second_jacobian_with_other_options_or_kinds_of_x():
    f = squares()
    expected = np.diag(4 * X)
    long = np.full(4, 1e-2)
    assert_near(calipers.jacobian(f, X, method="2-point", step=long), expected, 1e-2)
    assert_near(calipers.jacobian(f, X, method="2-point"), expected, 1e-6)
    assert_near(calipers.jacobian(f, np.repeat(X, 2)[::2]), expected, 1e-9)
    assert_near(calipers.jacobian(f, X.astype(">f8")), expected, 1e-9)
    assert_near(calipers.jacobian(f, X.tolist()), expected, 1e-9)
    assert_near(calipers.jacobian(f, X.astype("f4")), expected, 1e-2)
    assert calipers.jacobian(f, X.reshape(2, 2)).shape == (2, 2, 2, 2)
    with pytest.raises(TypeError, match="unexpected"):
        calipers.jacobian(f, X, steps=1.0)
    with pytest.raises(ValueError, match="method"):
        calipers.jacobian(f, X, method="4-point")
    with pytest.raises(ValueError, match="method"):
        calipers.jacobian(f, X, method=["2-point"])
    assert_near(calipers.jacobian(f, X), expected, 1e-9)


def test_a_second_jacobian_of_a_function_that_was_compiled_again(monkeypatch):
    f = squares()
    monkeypatch.setitem(globals(), "FACTOR", 10.0)
    assert_near(calipers.jacobian(f, X), np.diag(4 * X), 1e-9)  # as f(X) itself
    f.recompile()
    assert_near(calipers.jacobian(f, X), np.diag(20 * X), 1e-9)


def test_a_second_jacobian_of_a_function_that_raises():
    @numba.njit
    def f(x):
        if x[2] > 10:
            raise ValueError("too large")
        return x

    calipers.jacobian(f, X)
    far = np.array([0.0, 0.0, 20.0, 0.0])
    with pytest.raises(ValueError, match="too large"):
        calipers.jacobian(f, far)


def test_a_function_that_was_differentiated_can_be_deleted():
    f = squares()
    calipers.jacobian(f, X)
    left = weakref.ref(f)
    del f
    gc.collect()
    assert left() is None


def test_a_second_jacobian_in_several_threads():
    f = squares()
    points = [X * (1 + k) for k in range(64)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: calipers.jacobian(f, x), points))
    for x, jacobian in zip(points, found, strict=True):
        assert_near(jacobian, np.diag(4 * x), 1e-9)
