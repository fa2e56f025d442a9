"""Roots, logarithms and other powers at x: no extrapolation in whole powers of the step fits."""

import itertools

import numpy as np
import pytest

import calipers

pytestmark = pytest.mark.slow

INFINITE = np.inf


def power(p):
    return lambda x: x**p


def odd(p):
    return lambda x: np.sign(x) * np.abs(x) ** p


def xlogx(x):
    return np.where(x > 0, x * np.log(np.where(x > 0, x, 1)), 0.0)


def xlogx_odd(x):
    return np.where(x != 0, x * np.log(np.abs(np.where(x != 0, x, 1))), 0.0)


def entropy(x):
    return -xlogx(x) - xlogx(1 - x)


# To the right of 0: f, and its derivative there.
AT_ZERO = {
    **{f"x**{p}": (power(p), INFINITE) for p in (0.1, 0.25, 1 / 3, 0.5, 2 / 3, 0.9)},
    **{f"x**{p}": (power(p), 0.0) for p in (1.1, 1.2, 1.5, 1.9, 2.5)},
    "x log x": (xlogx, INFINITE),
    "entropy": (entropy, INFINITE),
    "x**2 log x": (lambda x: x * xlogx(x), 0.0),
    "1e-3 sqrt(x) beside x": (lambda x: x + 1e-3 * np.sqrt(x), INFINITE),
    "sqrt(x) beside exp(x)": (lambda x: np.exp(x) + np.sqrt(x), INFINITE),
    "x**1.2 beside sin(3 x)": (lambda x: np.sin(3 * x) + x**1.2, 3.0),
    "sqrt(sin(x))": (lambda x: np.sqrt(np.sin(x)), INFINITE),
    "sqrt(x) of large numbers": (lambda x: np.sqrt(1e8 * x), INFINITE),
    "sqrt(x) of small numbers": (lambda x: 1e-6 * np.sqrt(x), INFINITE),
}
AT_ONE = {
    "arccos(x)": (np.arccos, INFINITE),
    "arcsin(x)": (np.arcsin, INFINITE),
    "sqrt(1 - x**2)": (lambda x: np.sqrt(1 - x * x), INFINITE),
    "(1 - x)**1.2": (lambda x: (1 - x) ** 1.2, 0.0),
    "entropy": (entropy, INFINITE),
}
# On both sides of 0.
ODD = {
    **{f"odd x**{p}": (odd(p), INFINITE) for p in (0.25, 1 / 3, 0.5, 0.9)},
    **{f"odd x**{p}": (odd(p), 0.0) for p in (1.1, 1.2, 5 / 3)},
    "x log |x|": (xlogx_odd, INFINITE),
    "cbrt(x) beside x": (lambda x: x + np.cbrt(x), INFINITE),
    "cbrt(x) beside exp(x)": (lambda x: np.exp(x) + np.cbrt(x), INFINITE),
    "x**1.2 beside exp(x)": (lambda x: np.exp(x) + odd(1.2)(x), 1.0),
}
CUSPS = {
    **{f"|x|**{p}": (lambda x, p=p: np.abs(x) ** p) for p in (0.25, 0.5, 2 / 3, 0.9)},
    "|x| log |x|": lambda x: np.sign(x) * xlogx_odd(x),
    "sqrt(|x|) beside exp(x)": lambda x: np.exp(x) + np.sqrt(np.abs(x)),
}
FORMATS = "float64", "float32"


def covered(found, truth):
    """Tell whether the error says how far the value may be from the truth."""
    value, error = found.value.item(), found.error.item()
    if error == np.inf:
        return True
    return bool(np.isfinite(truth) and abs(value - truth) <= 3 * error)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("name", AT_ZERO)
def test_a_power_at_a_bound_of_0(name, dtype):
    f, truth = AT_ZERO[name]
    found = calipers.differentiate(f, np.zeros(1, dtype), bounds=(0, np.inf))
    assert covered(found, truth), (found.value, found.error, found.status)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("name", AT_ONE)
def test_a_power_at_a_bound_of_1(name, dtype):
    f, truth = AT_ONE[name]
    found = calipers.differentiate(f, np.ones(1, dtype), bounds=(0, 1))
    assert covered(found, -truth), (found.value, found.error, found.status)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("name", ODD)
def test_a_power_to_both_sides(name, dtype):
    f, truth = ODD[name]
    found = calipers.differentiate(f, np.zeros(1, dtype))
    assert covered(found, truth), (found.value, found.error, found.status)


def test_a_slope_that_ends_slowly_is_bounded():
    found = calipers.differentiate(power(1.05), np.zeros(1), bounds=(0, np.inf))
    # A power of 0.05 cannot always be told from a logarithm, whose slope is infinite.
    assert found.value.item() <= found.error.item()
    assert found.error.item() < 1 or found.status == "NONSMOOTH"


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("name", CUSPS)
def test_a_cusp(name, dtype):
    """Slopes to both sides are infinite, of opposite sign; between them there is no derivative."""
    found = calipers.differentiate(CUSPS[name], np.zeros(1, dtype))
    assert found.status.tolist() == ["NONSMOOTH"]
    assert found.error.item() == np.inf


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_kink_is_no_cusp(dtype):
    found = calipers.differentiate(np.abs, np.zeros(1, dtype))
    assert found.status.tolist() == ["NONSMOOTH"]
    assert 1 <= found.error.item() <= 2


def test_one_value_beside_others_is_no_cusp():
    """It says nothing about the slope of the others."""
    found = calipers.differentiate(lambda x: np.sin(x) + 1e-3 * (x == 0.7), np.array([0.7]))
    assert covered(found, np.cos(0.7))
    assert found.error.item() < np.inf


@pytest.mark.parametrize("name", ["x**0.5", "x log x", "x**0.9"])
def test_what_is_infinite_is_called_nonsmooth(name):
    found = calipers.differentiate(AT_ZERO[name][0], np.zeros(1), bounds=(0, np.inf))
    assert found.status.tolist() == ["NONSMOOTH"]
    assert found.error.item() == np.inf


@pytest.mark.parametrize("length", [1e-4, 1e-8, 1e-12])
def test_a_logarithm_that_ends_at_a_length(length):
    """The slope grows from step to step until they are as short."""
    found = calipers.differentiate(lambda x: x * np.log(x + length), np.zeros(1), bounds=(0, 1))
    # Of the steps, which end at 1e-13, a few are shorter than 1e-12.
    assert abs(found.value.item() / np.log(length) - 1) <= (1e-6 if length > 1e-12 else 0.01)
    assert covered(found, np.log(length))


@pytest.mark.parametrize("length", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("p", [0.5, 2 / 3, 0.9])
def test_a_root_that_ends_at_a_length(p, length):
    def f(x):
        return (x + length) ** p

    truth = p * length ** (p - 1)
    found = calipers.differentiate(f, np.zeros(1), bounds=(0, 1))
    assert abs(found.value.item() / truth - 1) <= 1e-6
    assert covered(found, truth)


@pytest.mark.parametrize(
    ("p", "noise"), list(itertools.product([0.5, 0.9, 1.1, 1.2], [1e-12, 1e-9]))
)
def test_a_power_beneath_noise(p, noise):
    """Where noise hides the shortest steps, the longer ones tell."""

    def f(x):
        bits = np.asarray(x * 1e9, np.float64).view(np.int64)
        return odd(p)(x) + noise * np.sin(np.remainder(bits, 10007))

    found = calipers.differentiate(f, np.zeros(1))
    assert covered(found, INFINITE if p < 1 else 0.0), (found.value, found.error, found.status)


@pytest.mark.parametrize("seed", range(40))
def test_noise_is_no_power(seed):
    """Differences of noise grow from step to step, too, and now and then they grow alike."""
    random = np.random.default_rng(seed)
    shift = random.integers(0, 10007, 100)

    def f(x):
        bits = np.asarray(x * 1e9, np.float64).view(np.int64)
        return np.sin(x) + 1e-9 * np.sin(np.remainder(bits, 10007) + shift)

    found = calipers.differentiate(f, np.array([0.7]))
    assert np.isfinite(found.error).all()
    assert (np.abs(found.value.ravel() - np.cos(0.7)) <= 3 * found.error.ravel()).all()


@pytest.mark.parametrize("p", [1, 1.25, 1.5, 1.9])
def test_an_infinite_second_derivative(p):
    found = calipers.hessian(lambda x: np.sum(np.abs(x) ** p), np.zeros(2))
    assert np.isinf(np.diag(found.error)).all(), (found.value, found.error)
    assert found.status.tolist() == ["NONSMOOTH", "NONSMOOTH"]


@pytest.mark.parametrize("p", [2.1, 2.2, 2.5, 2.9, 3.5])
def test_a_second_derivative_that_a_power_hides(p):
    found = calipers.hessian(lambda x: np.sum(np.abs(x) ** p), np.zeros(2))
    assert (np.abs(found.value) <= 3 * found.error).all(), (found.value, found.error)


@pytest.mark.parametrize("claimed", [0.0, 1.0, np.inf])
@pytest.mark.parametrize("f", [np.cbrt, xlogx_odd, CUSPS["|x|**0.5"]])
def test_gradcheck_blames_nobody_for_an_infinite_slope(f, claimed):
    x = np.zeros(3)
    found = calipers.gradcheck(
        f, x, jac=lambda x: np.diag(np.full(3, claimed)), raise_exception=False
    )
    assert found.verdict == "NONSMOOTH"
    assert "infinite slope" in found.reason


SMALL = [1e-8, 1e-11, 1e-14, 1e-18]


@pytest.mark.parametrize("x", SMALL)
@pytest.mark.parametrize("p", [1.2, 1.5, 1.7])
def test_an_even_power_at_a_number_that_is_lost_in_the_sum(p, x):
    """Steps that the sum shows reach over 0, where the differences of an even function are 0."""
    f = lambda x: np.atleast_1d(np.sum(np.abs(x) ** p))  # noqa: E731
    x = np.array([x, 1.0])
    slopes = p * np.sign(x) * np.abs(x) ** (p - 1)
    found = calipers.differentiate(f, x)
    assert (np.abs(found.value[0] - slopes) <= 3 * found.error[0]).all()
    report = calipers.gradcheck(f, x, jac=lambda _: slopes[None], raise_exception=False)
    assert report.verdict != "FAIL"


def of_norm(x):
    """Return 1 and the square of x by its norm and 1e-6, and the slopes of that."""
    r = np.linalg.norm(x)
    return 1 + (r / (1e-6 + r)) ** 2, 2e-6 * x / (1e-6 + r) ** 3


def of_waves(x):
    s = 50 * np.sum(np.abs(x) ** 1.2)
    return 2 + np.cos(s), -np.sin(s) * 60 * np.sign(x) * np.abs(x) ** 0.2


@pytest.mark.parametrize(
    ("pair", "rest"),
    [(of_norm, 0.0), (of_norm, 0.7), (of_waves, 0.7), (of_waves, 0.0)],
)
def test_an_even_function_of_numbers_that_are_lost_in_it(pair, rest):
    for seed in range(10):
        x = 1e-14 * np.random.default_rng(seed).standard_normal(4)
        x[0] += rest
        found = calipers.differentiate(lambda x: np.atleast_1d(pair(x)[0]), x)
        assert (np.abs(found.value[0] - pair(x)[1]) <= 3 * found.error[0]).all(), seed
