"""What a hostile look at derivatives has found: lost steps, roots, bounds, patterns, threads."""

import contextvars
import os
import pickle
import subprocess
import sys
import textwrap

import numba
import numpy as np
import pytest

import calipers

sp = pytest.importorskip("scipy.sparse")
X = np.linspace(0.5, 1.5, 6)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.exp(x.astype(np.float32)).astype(float),
        lambda x: np.exp(x) + 1e-8 * np.sin(1e14 * x),
        lambda x: np.floor(1e6 * np.sin(x)) / 1e6,
    ],
)
@pytest.mark.parametrize("method", ["2-point", "3-point", "adaptive"])
def test_noise_makes_no_pattern_wrong(f, method):
    n = 300
    calipers.jacobian(f, np.linspace(0.1, 1, n), sparsity=sp.eye_array(n), method=method)


@pytest.mark.parametrize("noise", [0.0, 1e-8])
def test_a_missing_entry_is_found_beside_noise(noise):
    n = 300

    def f(x):
        y = np.exp(x) + noise * np.sin(1e14 * x)
        y[7] += x[8]
        return y

    with pytest.raises(ValueError, match=r"misses entries in row 7: f changes there"):
        calipers.jacobian(f, np.linspace(0.1, 1, n), sparsity=sp.eye_array(n))


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
@pytest.mark.parametrize(
    ("offset", "dtype"), [(1.7e9, np.float64), (1e12, np.float64), (1e5, "f4")]
)
def test_products_lose_no_step_beside_large_elements(method, offset, dtype):
    x, v = np.array([offset, 1, 1e-3 * offset], dtype), np.array([1, 1, 1], dtype)
    f = lambda x: (x[:1] - x.dtype.type(offset)) + x[1:2] + 0 * x[2:]  # noqa: E731
    product = calipers.jvp(f, x, v, method=method)
    assert abs(product[0] - 2) <= {"2-point": 1e-3, "3-point": 2e-4}.get(method, 1e-4)
    if dtype is np.float64:
        operator = calipers.linear_operator(f, x, method=method)
        assert abs((operator @ v)[0] - 2) <= 1e-3


def test_products_take_two_calls_where_no_step_is_lost():
    calls = []

    def f(x):
        calls.append(x)
        return np.sin(x)

    random = np.random.default_rng(0)
    calipers.jvp(f, random.standard_normal(1000), random.standard_normal(1000))
    assert len(calls) <= 3


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (lambda x: x.sum(keepdims=True) - 1, np.array([1e-18, 1.0]), [[1.0, 1.0]]),
        (lambda x: np.exp(x) - 1, np.array([1e-17]), [[1.0]]),
        (lambda x: x.sum(keepdims=True) - np.float32(1), np.float32([1e-9, 1]), [[1.0, 1.0]]),
        (lambda x: np.array([x[1], 0 * x[0]]), np.array([1e-18, 1.0]), [[0.0, 1.0], [0.0, 0.0]]),
    ],
)
def test_where_f_stands_still_around_a_tiny_x(f, x, expected):
    d = calipers.differentiate(f, x)
    assert np.all(np.abs(d.value - expected) <= d.error + 1e-12)
    assert np.all(d.error < 1e-3)


def test_bounds_are_not_exceeded_by_rounding():
    random = np.random.default_rng(0)
    outside = []
    for number in range(1500):
        x = random.standard_normal(2) * 10.0 ** random.integers(-6, 6)
        low, high = x - np.abs(x) * random.random(2), x + np.abs(x) * random.random(2)

        def f(x, low=low, high=high):
            outside.append(bool(np.any((x < low) | (x > high))))
            return np.sum(np.sin(x) * x)

        bounds, v = (low, high), random.standard_normal(2)
        calipers.jvp(f, x, v, bounds=bounds, method="5-point")
        if number < 100:
            calipers.hessian(f, x, bounds=bounds)
            calipers.jvp(f, x, v, bounds=bounds, method="adaptive")
    assert not any(outside)


@pytest.mark.parametrize(
    ("x", "width"), [(np.array([300.0, 1.0]), 0.1), (np.array([1e6, 2.0]), 400.0)]
)
def test_hessians_within_narrow_bounds(x, width):
    bounds = x - [width, 1.0], x + [width, 1.0]
    h = calipers.hessian(lambda x: np.sin(x[0]) * x[1] ** 2, x, bounds=bounds)
    s, c = np.sin(x[0]), np.cos(x[0])
    exact = np.array([[-s * x[1] ** 2, 2 * c * x[1]], [2 * c * x[1], 2 * s]])
    assert np.all(np.abs(h.value - exact) <= h.error)
    assert np.all(h.error < 1e-3)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_hessians_by_a_step_of_the_caller(offset):
    random = np.random.default_rng(0)
    for _ in range(5):
        x = offset + random.uniform(-1, 1, 3)
        h = calipers.hessian(lambda x: np.sum(np.sin(x - offset)) ** 2, x, step=0.3)
        s, c = np.sin(x - offset), np.cos(x - offset)
        exact = 2 * np.outer(c, c) - 2 * s.sum() * np.diag(s)
        assert np.all(np.abs(h.value - exact) <= h.error + 1e-12)


@pytest.mark.parametrize("x", [1e-308, 5e-324, -1e-310])
def test_subnormal_numbers_have_steps(x):
    d = calipers.differentiate(np.sin, x)
    assert abs(float(d.value) - 1) <= d.error
    assert d.error < 1e-6


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_dtypes_without_a_ladder_are_told_of_another_method(dtype):
    with pytest.raises(ValueError, match="takes x of float32 or float64"):
        calipers.differentiate(np.sin, np.ones(2, dtype))


def test_batches_at_a_root():
    random = np.random.default_rng(0)
    a, x = random.standard_normal((60, 60)), random.standard_normal(60)
    b = (x[None] @ a)[0]
    found = calipers.jacobian(lambda x: x @ a - b, x, batched=True)
    assert np.allclose(found, a.T, atol=1e-6)
    with pytest.raises(ValueError, match="mixes the arguments"):
        calipers.jacobian(lambda x: x - x.mean(0), x, batched=True)


_factor = 2.0


def test_functions_that_were_compiled_anew():
    global _factor

    @numba.njit
    def f(x):
        return _factor * x

    assert calipers.jacobian(f, X)[0, 0] == pytest.approx(2)
    try:
        _factor = 5.0
        f.recompile()
        assert calipers.jacobian(f, X)[0, 0] == pytest.approx(5)
    finally:
        _factor = 2.0


def test_functions_that_are_not_real_at_real_x():
    with pytest.raises(ValueError, match="f\\(x\\) is complex there"):
        calipers.jacobian(lambda x: np.exp(1j * x), X, method="cs")
    with pytest.raises(ValueError, match="float64 at x and complex128 beside it"):
        calipers.jacobian(lambda x: np.emath.sqrt(x - 1.0), np.array([1.0]))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("way", ["ignores", "adds", "one"])
def test_results_that_f_does_not_fill_in(compiled, way):
    def ignores(x, out):
        pass

    def adds(x, out):
        out += x

    def one(x, out):
        out[0] = x[0]

    f = {"ignores": ignores, "adds": adds, "one": one}[way]
    with pytest.raises(ValueError, match="must store every element of out"):
        calipers.jacobian(numba.njit(f) if compiled else f, X, out_like=X)


def test_results_that_are_nan_are_filled_in():
    def f(x, out):
        out[:] = np.nan
        out[0] = x[0]

    found = calipers.jacobian(f, X, out_like=X)
    assert found[0, 0] == pytest.approx(1)
    assert np.isnan(found[1:]).all()


@pytest.mark.parametrize("workers", [None, 2])
def test_workers_see_what_is_set_for_the_caller(workers):
    factor = contextvars.ContextVar("factor", default=1.0)
    factor.set(5.0)
    found = calipers.jacobian(lambda x: factor.get() * x, X, workers=workers)
    assert found[0, 0] == pytest.approx(5)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        calipers.jacobian(lambda x: x / (x * 0), X, workers=workers)


@pytest.mark.parametrize("argnums", [(1, 1), (0, 5), (0, -1)])
def test_places_of_arguments_are_different_and_there(argnums):
    with pytest.raises(ValueError, match="must be different, and from 0 to 2"):
        calipers.jacobian(lambda a, x, b: a * x + b, (X, X), args=(3.0,), argnums=argnums)


def test_a_planned_jacobian_is_sent_after_its_first_call():
    planned = calipers.jacobian_function(_compiled, X)
    expected = planned(X)
    assert np.array_equal(pickle.loads(pickle.dumps(planned))(X), expected)


@numba.njit
def _compiled(x):
    return x * x


@pytest.mark.parametrize("f", [lambda x: 1e-200 * x**3, lambda x: 1e200 * np.sin(x)])
def test_functions_of_extreme_scale_are_smooth(f):
    d = calipers.differentiate(f, np.array([1.0]))
    assert d.status.tolist() == ["CONVERGED"]


def test_patterns_are_looked_for_at_several_points_within_bounds():
    f = lambda x: np.array([x[0] * x[1], x[1]])  # noqa: E731
    for bounds in ((-np.inf, np.inf), ([0, 0], [1, 1])):
        found = calipers.jacobian(f, np.zeros(2), sparsity="detect", bounds=bounds)
        assert found.nnz == 3


def test_rows_that_f_spoils_are_its_own():
    def f(i, x):
        value = x[i] ** 2
        x[:] = 7.0
        return value

    found = calipers.jacobian(f, X, rowwise=True, out_like=X)
    assert np.allclose(found, np.diag(2 * X), atol=1e-6)
    with pytest.raises(TypeError, match=r"must return a number that .* got None for i = 0"):
        calipers.jacobian(lambda i, x: None, X, rowwise=True, out_like=X)


def test_a_function_that_fills_is_called_once_for_its_value():
    calls = []

    def f(x, out):
        calls.append(x.copy())
        out[:] = x * x

    calipers.jacobian(f, X, out_like=X)
    assert sum(np.array_equal(x, X) for x in calls) == 1


def turned_back(x):
    """Return x, as complex numbers whose imaginary parts are rounding of their real ones."""
    return x + 1j * (np.exp(x * 3.3) / np.exp(x * 1.1) / np.exp(x * 2.2) - 1)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_part_of_a_complex_number_is_rounded_as_all_of_it_is(compiled):
    x = np.array([0.3, 1.1, 2.7])
    d = calipers.differentiate(numba.njit(turned_back) if compiled else turned_back, x)
    assert d.nfev < 50
    assert np.all(d.status == "CONVERGED")
    assert np.all(np.abs(d.value - np.eye(3)) <= d.error)
    assert np.all(d.error < 1e-12)


def test_so_it_is_along_directions_and_in_gradcheck():
    x = np.array([0.3, 1.1, 2.7])
    along = calipers.jvp(turned_back, x, np.ones(3), method="adaptive")
    np.testing.assert_allclose(along, np.ones(3), atol=1e-12)
    assert calipers.gradcheck(turned_back, x, jac=lambda x: np.eye(3) + 0j)
    wrong = calipers.gradcheck(
        turned_back, x, jac=lambda x: (1 + 1e-3j) * np.eye(3), raise_exception=False
    )
    assert wrong.verdict == "FAIL"


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
@pytest.mark.parametrize("seed", range(4))
def test_a_product_in_a_corner_of_bounds_is_that_with_the_jacobian(method, seed):
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


def test_products_by_a_complex_step_are_of_the_dtype_of_f():
    x = np.ones(3, np.float32)
    assert calipers.jvp(np.square, x, x, method="cs").dtype == np.float32
    operator = calipers.linear_operator(np.square, x, method="cs")
    assert (operator @ x).dtype == operator.dtype == np.float32


@pytest.mark.parametrize("block", [1.5, "1", None])
def test_blocks_are_of_whole_columns(block):
    if block is None:
        assert len(list(calipers.jacobian_blocks(np.square, X, block=block))) == 1
        return
    with pytest.raises(TypeError, match="block must be an int, how many columns at a time, got"):
        calipers.jacobian_blocks(np.square, X, block=block)


def test_errors_of_f_name_what_a_hessian_or_a_product_displaced():
    def f(x):
        if not np.array_equal(x, X):
            raise ZeroDivisionError
        return x.sum()

    with pytest.raises(ZeroDivisionError) as raised:
        calipers.hessian(f, X)
    assert raised.value.__notes__ == ["raised by f with x[0] displaced for its derivative"]
    with pytest.raises(ZeroDivisionError) as raised:
        calipers.hessian(lambda x: f(np.where(np.arange(6) == 1, X, x)) if x[1] != X[1] else 1.0, X)
    assert raised.value.__notes__ == [
        f"raised by f with x[{k}] displaced for its derivative" for k in (0, 1)
    ]
    for method in ("3-point", "adaptive"):
        with pytest.raises(ZeroDivisionError) as raised:
            calipers.jvp(f, X, X, method=method)
        assert "along the direction" in raised.value.__notes__[0]
    with pytest.raises(TypeError, match="gradient must be callable, got int"):
        calipers.hessian(f, X, gradient=3)


def test_one_color_is_told_in_the_singular():
    found = calipers.differentiate(np.square, X, sparsity=sp.eye_array(6))
    assert "in 1 color," in str(found)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "cs", "adaptive"])
@pytest.mark.parametrize(
    "x", [[1, np.inf, -np.inf], [1e308, -1.7e308, 1], [5e-324, 1e-310, 0], [np.nan, 1e300, 1e-300]]
)
def test_only_f_warns(x, method):
    def f(x):
        with np.errstate(all="ignore"):
            return x**2

    x, one, way = np.array(x), np.array([1, 1e-5, 3.0]), {"method": method}
    calipers.differentiate(f, x, **way)
    calipers.jvp(f, x, one, **way)
    calipers.vjp(f, x, one, **way)
    assert (calipers.linear_operator(f, x, **way) @ one).shape == (3,)
    if method != "cs":
        calipers.differentiate(f, x, sparsity=np.eye(3), **way)
        calipers.hessian(None, x, gradient=f, **way)
        calipers.hessian(None, x, gradient=f, sparsity=np.eye(3), **way)
    if method == "adaptive":
        calipers.hessian(lambda x: f(x).sum(), x)
    if np.isnan(x).any():
        return
    for bounds in ((-np.inf, np.inf), (x, np.inf), (x, x)):
        if method != "cs":
            calipers.jvp(f, x, one, bounds=bounds, **way)


def test_threads_enter_a_parallel_function_one_at_a_time():
    # A process of its own: Numba's smallest layer of threads ends one that two threads enter.
    code = """
        from concurrent.futures import ThreadPoolExecutor
        import numba, numpy as np, calipers

        @numba.njit(parallel=True)
        def f(x):
            y = np.empty_like(x)
            for i in numba.prange(x.size):
                y[i] = x[i]
                for k in range(2000):
                    y[i] += np.sin(x[i] * k) - np.sin(x[i] * k)
            return y

        x = np.ones(40)
        for workers in (2, ThreadPoolExecutor(2)):
            assert np.allclose(calipers.jacobian(f, x, workers=workers), np.eye(40))
            found = calipers.jacobian(f, x, sparsity=(np.eye(40), np.arange(40)), workers=workers)
            assert np.allclose(found.toarray(), np.eye(40))
            report = calipers.gradcheck(f, x, jac=lambda x: np.eye(40), workers=workers)
            assert report
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("f", [np.square, numba.njit(lambda x: x * x)], ids=["python", "compiled"])
@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_left_out_as_other_elements_are(f, method, number):
    x = np.array([1.0, number, 3.0])
    for options in ({}, {"sparsity": np.eye(3)}):
        with np.errstate(all="ignore"):
            found = calipers.differentiate(f, x, method=method, step=[1e-3, 0, 1e-3], **options)
        assert found.status[1] == "EXCLUDED"
        assert "EXCLUDED" not in found.status[::2]
