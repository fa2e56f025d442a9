"""Hessians of values and of gradients."""

import numba
import numpy as np
import pytest

import calipers
from tests.data.derivative_functions import M, X, Z, assert_near, counted, waves


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


@pytest.mark.parametrize(
    "left_out", [{"step": [0, 0.1]}, {"bounds": ([X[0], -9], [X[0], 9])}], ids=["step", "bounds"]
)
@pytest.mark.parametrize("given", [{}, {"gradient": cubic_gradient}], ids=["values", "gradient"])
def test_errors_of_what_is_left_out_are_infinite(given, left_out):
    h = calipers.hessian(None if given else cubic, X[:2], **given, **left_out)
    assert np.array_equal(np.isnan(h.value), [[True, True], [True, False]])
    assert np.array_equal(np.isinf(h.error), [[True, True], [True, False]])


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


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0])
def test_hessians_of_a_small_x_know_what_longer_steps_tell(size):
    """Steps as short as x leave rounding of f, which hides all second derivatives."""
    x = size * np.array([1.0, -2.0, 0.5])
    h = calipers.hessian(lambda x: 4 + np.sum(np.cos(x) * [1, 2, 3]), x)
    exact = -np.diag(np.cos(x) * [1, 2, 3])
    assert np.all(np.abs(h.value - exact) <= h.error)
    assert np.all(h.error < 1e-7)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_hessians_by_a_step_of_the_caller(offset):
    random = np.random.default_rng(0)
    for _ in range(5):
        x = offset + random.uniform(-1, 1, 3)
        h = calipers.hessian(lambda x: np.sum(np.sin(x - offset)) ** 2, x, step=0.3)
        s, c = np.sin(x - offset), np.cos(x - offset)
        exact = 2 * np.outer(c, c) - 2 * s.sum() * np.diag(s)
        assert np.all(np.abs(h.value - exact) <= h.error + 1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_dtypes_without_a_ladder_are_told_of_those_that_have_one(dtype):
    with pytest.raises(ValueError, match=r"float32 or float64.* or use method='5-point'"):
        calipers.hessian(lambda x: x[0] ** 2, np.ones(1, dtype))


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


def test_errors_of_a_hessian_know_the_rounding_of_what_cancels():
    """Of what is odd around x, the sums that a mixed difference is made of are small."""
    covered = []
    for seed in range(100):
        random = np.random.default_rng(seed)
        x, c = 1e-7 * random.standard_normal(2), 1e7 * random.standard_normal(2)
        h = calipers.hessian(lambda x, c: 0.3 + c[0] * x[0] + c[1] * x[1], x, args=(c,))
        covered.append(np.abs(h.value) <= h.error)
    assert np.mean(covered) >= 0.93

    x = np.float32([2.9e-7, 1e-7])
    h = calipers.hessian(lambda x: np.tanh(np.float32(3e6) * x.sum()), x)
    assert np.all(h.error > 0)


def test_waves_are_not_taken_for_noise_by_a_hessian():
    covered = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        x, y = 10.0 ** random.uniform(3, 6.5), random.uniform(0.5, 1.5)
        a, w = 10.0 ** random.uniform(-2, 1), random.uniform(0.5, 2)
        seen = []

        def f(x, a, w, seen):
            seen.append(x)
            return np.cos(w * x[0]) * np.exp(x[1]) + a * x[0] * x[1]

        h = calipers.hessian(f, np.array([x, y]), args=(a, w, seen))
        c, s, e = np.cos(w * x), np.sin(w * x), np.exp(y)
        exact = [[-w * w * c * e, -w * s * e + a], [-w * s * e + a, c * e]]
        covered.append(np.abs(h.value - exact) <= h.error)
        assert h.nfev == len(seen)
    assert np.mean(covered) >= 0.98


# Where second derivatives jump, a central difference is the mean of both sides.


def squared_part(x):
    return max(float(np.sum(x)), 0.0) ** 2


@pytest.mark.parametrize(
    ("f", "x", "value", "error"),
    [
        (squared_part, [0.0], 1, 1),  # 0 and 2
        (lambda x: x[0] * abs(x[0]), [0.0], 0, 2),  # -2 and 2
        (lambda x: x[0] ** 2 / 2 if abs(x[0]) <= 1 else abs(x[0]) - 0.5, [1.0], 0.5, 0.5),
        (lambda x: x[0] ** 2 + 1e-4 * squared_part(x), [0.0], 2.0001, 1e-4),
        (lambda x: 1e6 + squared_part(x), [0.0], 1, 1),
    ],
)
def test_a_jump_of_the_second_derivative_is_nonsmooth(f, x, value, error):
    h = calipers.hessian(f, np.array(x))
    assert h.status.tolist() == ["NONSMOOTH"]
    assert h.value == pytest.approx(value, abs=1e-6)
    assert h.error == pytest.approx(error, rel=1e-3)


def test_a_jump_across_a_plane_concerns_mixed_derivatives_and_no_others():
    h = calipers.hessian(lambda x: squared_part(x[:2]) + x[0] * x[2], np.array([1.0, -1.0, 2.0]))
    assert h.status.tolist() == ["NONSMOOTH", "NONSMOOTH", "CONVERGED"]
    assert np.all(h.error[:2, :2] > 0.99)  # both 0 and 2 are within it
    assert np.all(h.error[2] < 1e-10)


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: np.exp(x).prod(), [1.0, -1.0]),
        (lambda x: np.sin(7 * x[0]), [0.3]),
        (lambda x: x[0] ** 3, [0.0]),
        (lambda x: abs(x[0]) ** 3, [0.0]),
        (lambda x: 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2, [-1.2, 1.0]),
        (squared_part, [1e-3]),
        (squared_part, [-1e-6]),
    ],
)
def test_what_does_not_jump_at_x_stays_converged(f, x):
    # Where f is constant at short steps, what it does beyond may be noise.
    known = {"NOISY"} if f is squared_part and x[0] < 0 else {"CONVERGED"}
    assert set(calipers.hessian(f, np.array(x)).status) == known
