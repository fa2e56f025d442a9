"""Products with Jacobians (jvp, vjp, linear_operator), and blocks of their columns."""

import numpy as np
import pytest

import calipers
from tests.data.derivative_functions import (
    BARS,
    CALLS,
    CHAIN,
    CHAINS,
    FIXED,
    MANY,
    SIX,
    K,
    M,
    X,
    Z,
    assert_near,
    boundable,
    chain_jacobian,
    compiled_chain,
    compiled_rows,
    counted,
    methods,
    points,
    slow,
    waves,
    waves_jacobian,
)


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


def test_products_take_two_calls_where_no_step_is_lost():
    calls = []

    def f(x):
        calls.append(x)
        return np.sin(x)

    random = np.random.default_rng(0)
    calipers.jvp(f, random.standard_normal(1000), random.standard_normal(1000))
    assert len(calls) <= 3


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


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
@pytest.mark.parametrize(
    ("offset", "dtype"), [(1.7e9, np.float64), (1e12, np.float64), (1e5, "f4")]
)
def test_products_lose_no_step_beside_large_elements(method, offset, dtype):
    pytest.importorskip("scipy.sparse")
    x, v = np.array([offset, 1, 1e-3 * offset], dtype), np.array([1, 1, 1], dtype)
    f = lambda x: (x[:1] - x.dtype.type(offset)) + x[1:2] + 0 * x[2:]  # noqa: E731
    product = calipers.jvp(f, x, v, method=method)
    assert abs(product[0] - 2) <= {"2-point": 1e-3, "3-point": 2e-4}.get(method, 1e-4)
    if dtype is np.float64:
        operator = calipers.linear_operator(f, x, method=method)
        assert abs((operator @ v)[0] - 2) <= 1e-3


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
@pytest.mark.parametrize("seed", range(4))
def test_a_product_in_a_corner_of_bounds_is_that_with_the_jacobian(method, seed):
    pytest.importorskip("scipy.sparse")
    random = np.random.default_rng(seed)
    low, high = np.zeros(7), np.ones(7)
    x = random.choice([0.0, 0.3, 1.0], 7)
    x[:2] = 0.0, 1.0
    v = random.uniform(0.5, 1, 7)  # one element can only go forth, and one only back
    seen = []

    def f(x):
        seen.append(x)
        return np.stack([np.sin(x).sum(), (x * x[::-1]).sum(), np.exp(x[0] - x[1])])

    options = {"method": method, "bounds": (low, high)}
    expected = calipers.jacobian(f, x, **options) @ v
    bar = {"2-point": 1e-6, "3-point": 1e-8}.get(method, 1e-9)
    assert np.abs(calipers.jvp(f, x, v, **options) - expected).max() <= bar
    operator = calipers.linear_operator(f, x, **options)
    assert np.abs(operator @ v - expected).max() <= bar
    assert np.min(seen) >= 0
    assert np.max(seen) <= 1
    fixed = {"method": method, "bounds": (low, np.where(x == 0.0, 0.0, 1.0))}
    assert np.isnan(calipers.jvp(f, x, v, **fixed)).all()
    assert not np.isnan(calipers.jvp(f, x, np.where(x == 0.0, 0.0, v), **fixed)).any()


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "cs", "adaptive"])
@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-300, 1e300])
def test_a_direction_may_be_of_any_length(method, size):
    x, v = np.array([1.0, 2.0]), np.array([4.0, 8.0])
    found = calipers.jvp(np.square, x, v * size, method=method)
    assert np.all(np.abs(found / size - [8.0, 32.0]) <= 1e-6 * 32)


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_is_divided_by_the_distance_after_rounding(method, dtype):
    random = np.random.default_rng(0)
    for x, v in zip(random.uniform(1, 100, 100), random.standard_normal(100), strict=True):
        point, direction = np.array([x, 0.5], dtype), np.array([v, 0.0], dtype)
        found = calipers.jvp(np.positive, point, direction, method=method)[0]
        assert abs(found / direction[0] - 1) <= 4 * np.finfo(dtype).eps
    found = calipers.jvp(np.positive, np.array([30.0]), np.array([0.7]), step=1e-13, method=method)
    assert abs(found[0] - 0.7) <= 1e-15


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
@pytest.mark.parametrize("options", [{"step": 1e-17}, {"scale": 1e-17}])
def test_a_product_along_a_step_lost_in_rounding_is_refused(method, options):
    x, v = np.array([30.0, 0.0]), np.array([-1.0, 1.0])
    for ask in (calipers.jvp, calipers.vjp):
        with pytest.raises(ValueError, match=r"step of element 0 is lost in rounding"):
            ask(np.sin, x, v, method=method, **options)
    with pytest.raises(ValueError, match=r"step of element 0 is lost in rounding"):
        calipers.linear_operator(np.sin, x, method=method, **options) @ v
    infinite = np.array([np.inf, 0.0])
    assert calipers.jvp(np.tanh, infinite, v, method=method, **options).shape == (2,)


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "cs"])
def test_products_in_extended_precision_are_as_good_as_the_jacobian(method):
    x = np.array([0.1, 3], np.longdouble) + np.longdouble(1e-17) / 3
    bar = {"2-point": 1e-8, "3-point": 1e-11, "5-point": 1e-13, "cs": 1e-17}[method]
    if np.finfo(np.longdouble).eps == np.finfo(float).eps:
        pytest.skip("longdouble is float64 here")
    product = calipers.jvp(np.exp, x, np.array([1.0, 0.5]), method=method)
    assert np.all(np.abs(product / np.exp(x) / np.array([1.0, 0.5]) - 1) <= bar)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "cs", "adaptive"])
def test_products_that_are_not_numbers_warn_of_nothing(method):
    f = lambda x: x + 1.0  # noqa: E731
    x, one = np.array([np.nan, 1.0, np.inf]), np.ones(3)
    assert np.isnan(calipers.jvp(f, x, one, method=method)[0])
    assert np.isnan(calipers.vjp(f, x, one, method=method)[0])
    step = np.array([1e-3, 0.0, 1e-3])
    assert np.isnan(calipers.jvp(f, one, one, method=method, step=step)).all()
    assert np.isnan(calipers.vjp(f, one, one, method=method, step=step)).tolist() == [0, 1, 0]


@methods
def test_real_x_moves_in_no_complex_direction(method):
    with pytest.raises(TypeError, match="v must be"):
        calipers.jvp(waves, X, 1j * np.ones(4), method=method)


def test_vectors_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"v has shape \(3,\), but x has \(4,\)"):
        calipers.jvp(waves, X, np.ones(3))
    with pytest.raises(ValueError, match=r"w has shape \(3,\), but f\(x\) has \(6,\)"):
        calipers.vjp(waves, X, np.ones(3))
    with pytest.raises(TypeError, match="w must be"):
        calipers.vjp(waves, X, np.array(["a"] * 6))
    with pytest.raises(ValueError, match="holomorphic=True"):
        calipers.vjp(np.exp, Z, Z)


@pytest.mark.parametrize("option", [{"workers": 2}, {"progress": True}])
def test_a_product_takes_no_workers(option):
    with pytest.raises(TypeError, match="unexpected keyword"):
        calipers.jvp(np.sin, SIX, SIX, **option)


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


def test_products_by_a_complex_step_are_of_the_dtype_of_f():
    pytest.importorskip("scipy.sparse")
    x = np.ones(3, np.float32)
    assert calipers.jvp(np.square, x, x, method="cs").dtype == np.float32
    operator = calipers.linear_operator(np.square, x, method="cs")
    assert (operator @ x).dtype == operator.dtype == np.float32


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


# Blocks of columns.


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


def test_columns_in_blocks_are_refused_at_once():
    with pytest.raises(TypeError, match="nonsense"):
        calipers.jacobian_blocks(np.sin, SIX, nonsense=1)
    with pytest.raises(ValueError, match="block must be at least 1"):
        calipers.jacobian_blocks(np.sin, SIX, block=0)


@pytest.mark.parametrize("block", [1.5, "1", None])
def test_blocks_are_of_whole_columns(block):
    if block is None:
        assert len(list(calipers.jacobian_blocks(np.square, SIX, block=block))) == 1
        return
    with pytest.raises(TypeError, match="block must be an int, how many columns at a time, got"):
        calipers.jacobian_blocks(np.square, SIX, block=block)
