"""Forms of f: compiled loops, functions that fill an array, by rows, and batches."""

import numba
import numpy as np
import pytest

import calipers
from calipers._derivatives.function import REAL, Problem
from calipers._kernels.differences import COLUMNS
from tests.data.derivative_functions import (
    BARS,
    BOUNDABLE,
    CHAIN,
    CHAINS,
    MANY,
    SIX,
    K,
    M,
    X,
    Z,
    assert_near,
    batched_squares,
    chain_jacobian,
    compiled_chain,
    compiled_rows,
    compiled_scaled,
    compiled_scaled_into,
    counted,
    methods,
    points,
    posed,
    square,
)

# Compiled functions, in every form. Each is also right as a Python function.


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
def compiled_scaled_row(i, x, k, power=2.0):
    return power * (k[i] * x[i]) ** 2


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


@numba.njit
def compiled_conjugates(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = x[i] * x[i] * np.conj(x[i])
    return y


@pytest.mark.parametrize("method", ["3-point", "adaptive"])
def test_compiled_complex_functions_have_a_pair(method):
    by_z, by_conjugate = calipers.jacobian(compiled_conjugates, Z, method=method)
    assert_near(by_z, np.diag(2 * Z * Z.conj()), 10 * BARS[method])
    assert_near(by_conjugate, np.diag(Z**2), 10 * BARS[method])


@numba.njit
def another_chain(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = 2 * np.sin(x[i]) * x[(i + 1) % x.size]
    return y


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


@pytest.mark.slow
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


_factor = 2.0


def test_functions_that_were_compiled_anew():
    global _factor

    @numba.njit
    def f(x):
        return _factor * x

    assert calipers.jacobian(f, SIX)[0, 0] == pytest.approx(2)
    try:
        _factor = 5.0
        f.recompile()
        assert calipers.jacobian(f, SIX)[0, 0] == pytest.approx(5)
    finally:
        _factor = 2.0


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


@pytest.mark.parametrize("compiled", [True, False])
def test_a_function_that_fills_is_told_of_out_like(compiled):
    def f(x, out):
        out[:] = x**2

    with pytest.raises(TypeError, match="argument") as caught:
        calipers.jacobian(numba.njit(f) if compiled else f, X)
    assert any("pass their shape as out_like=" in note for note in caught.value.__notes__)


def test_a_function_that_fills_is_called_once_for_its_value():
    calls = []

    def f(x, out):
        calls.append(x.copy())
        out[:] = x * x

    calipers.jacobian(f, SIX, out_like=SIX)
    assert sum(np.array_equal(x, SIX) for x in calls) == 1


def test_a_known_value_is_kept_once():
    problem = Problem(np.sin, (), SIX, (), {}, REAL, False, base_value=np.sin(SIX))
    assert not [name for name, value in vars(problem).items() if name == "base_value"]
    assert np.array_equal(problem.base, np.sin(SIX))


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
        calipers.jacobian(numba.njit(f) if compiled else f, SIX, out_like=SIX)


def test_results_that_are_nan_are_filled_in():
    def f(x, out):
        out[:] = np.nan
        out[0] = x[0]

    found = calipers.jacobian(f, SIX, out_like=SIX)
    assert found[0, 0] == pytest.approx(1)
    assert np.isnan(found[1:]).all()


# Batches.


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


@pytest.mark.parametrize("method", BOUNDABLE)
@pytest.mark.parametrize("harmless", [3, 5])
def test_f_that_changes_its_arguments_in_a_later_batch_is_refused(method, harmless):
    calls = []

    def f(x):
        y = x**2
        calls.append(len(x))
        if len(calls) > harmless:
            x[:, 300] += 1
        return y

    with pytest.raises(ValueError, match="f changes its argument"):
        calipers.jacobian(f, np.arange(1.0, 601.0), batched=True, method=method)


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


@methods
def test_a_function_that_mixes_a_batch_is_refused(method):
    with pytest.raises(ValueError, match="mixes the rows of a batch"):
        calipers.jacobian(lambda x: np.exp(-x) * x.sum(), X, method=method, batched=True)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[0] * x,
        lambda x: np.sin(x) * x[::-1],
        lambda x: x * x.mean(axis=0),
        lambda x: np.cumsum(x, axis=0) / np.arange(1, len(x) + 1)[:, None],
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@methods
def test_so_is_one_whose_rows_are_alike(f, dtype, method):
    with pytest.raises(ValueError, match="mixes the rows of a batch"):
        calipers.jacobian(f, X.astype(dtype), method=method, batched=True)


@methods
def test_rounding_and_noise_mix_no_batch(method):
    random = np.random.default_rng(0)
    a, x = random.standard_normal((60, 50)), random.standard_normal(60)

    def noisy(x):
        return np.sin(x) @ a * (1 + 1e-5 * random.standard_normal((len(x), 1)))

    def coarse(x):
        if np.iscomplexobj(x):
            return np.sin(x.astype(np.complex64)) @ a.astype(np.complex64)
        return (np.sin(x.astype(np.float32)) @ a.astype(np.float32)).astype(float)

    for f in (noisy, coarse, lambda x: np.sin(x) @ a):
        assert calipers.jacobian(f, x, method=method, batched=True).shape == (50, 60)


def test_batches_at_a_root():
    random = np.random.default_rng(0)
    a, x = random.standard_normal((60, 60)), random.standard_normal(60)
    b = (x[None] @ a)[0]
    found = calipers.jacobian(lambda x: x @ a - b, x, batched=True)
    assert np.allclose(found, a.T, atol=1e-6)
    with pytest.raises(ValueError, match="mixes the rows"):
        calipers.jacobian(lambda x: x - x.mean(0), x, batched=True)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["2-point", "3-point", "adaptive"])
@pytest.mark.parametrize("turned", [False, True])
def test_compiled_results_of_one_size_and_two_shapes_are_refused(method, turned):
    @numba.njit
    def f(x):
        y = np.ones((3, 2)) if x[0] > 1 else np.ones((2, 3))
        return (y.T if turned else y) * x[0]

    with pytest.raises(ValueError, match="two shapes"):
        calipers.jacobian(f, np.array([1.0, 2.0]), method=method)
