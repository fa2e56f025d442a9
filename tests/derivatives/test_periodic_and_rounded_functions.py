"""Steps that fit what f has inside: the spacing of 1 + x, and whole periods."""

from itertools import product
from math import factorial

import numpy as np
import pytest

import calipers

pytestmark = pytest.mark.slow

POINTS = 20


def series(coefficients):
    """Return the sum of a power series and its derivative, for small x."""
    own = np.polynomial.Polynomial(coefficients)
    return own, own.deriv()


LOG, LOG_SLOPE = series([(-1.0) ** k / (k + 1) for k in range(12)])  # log(1 + x) / x
_, PHI_SLOPE = series([1 / factorial(k + 2) for k in range(12)])


def annuity_slope(r):
    """By n = 360: (n * r * (1+r)**-(n+1) - (1 - (1+r)**-n)) / r**2, without what cancels."""
    r = np.longdouble(r)
    power = -np.log1p(r)
    return float((360 * r * np.exp(361 * power) + np.expm1(360 * power)) / r**2)


# What textbooks print: numbers near 1 whose last digits are all that is left.
FORMULAS = {
    "annuity": (lambda r: (1 - (1 + r) ** -360.0) / r, annuity_slope),
    "logarithm": (
        lambda x: np.exp(x) * np.log(1 + x) / x,
        lambda x: np.exp(x) * (LOG(x) + LOG_SLOPE(x)),
    ),
    "root": (
        lambda x: (np.sqrt(1 + x) - 1) / x,
        lambda x: -1 / (2 * np.sqrt(1 + x) * (np.sqrt(1 + x) + 1) ** 2),
    ),
    "phi": (lambda x: (np.exp(x) - 1 - x) / x**2, PHI_SLOPE),
}


RANGES = list(product(FORMULAS, (-8, -6, -4)))


def drawn(low):
    """Return numbers of two decades."""
    return 10 ** np.random.default_rng(int(-low)).uniform(low, low + 2, POINTS)


@pytest.mark.parametrize(("name", "low"), RANGES)
def test_errors_know_the_rounding_of_numbers_near_1(name, low):
    """Steps of powers of 2 are as many spacings of 1 + x, and saw the same rounding each time."""
    f, slope = FORMULAS[name]
    missed = 0
    for x in drawn(low):
        found = calipers.differentiate(f, np.array([x]))
        missed += abs(found.value[0, 0] - slope(x)) > 3 * found.error[0, 0]
    assert missed <= 1


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(("name", "low"), RANGES)
def test_right_derivatives_of_them_are_not_accused(name, low, fast_mode):
    f, slope = FORMULAS[name]
    for x in drawn(low):
        report = calipers.gradcheck(
            f,
            np.array([x]),
            vjp=lambda x, w: w * slope(x[0]),
            fast_mode=fast_mode,
            raise_exception=False,
        )
        assert report.verdict != "FAIL", str(report)


SAWTEETH = {
    "exponential": (lambda x: (np.exp(x) - 1) / x, 1e-10, 0.5),
    "cosine": (lambda x: (1 - np.cos(x)) / x**2, 1e-5, -1e-5 / 12),
    "sine": (lambda x: (x - np.sin(x)) / x**3, 1e-5, -1e-5 / 60),
    "logarithm": (lambda x: np.log(1 + x) / x, 1e-10, -0.5),
    "energy": (lambda v: (1 / np.sqrt(1 - v * v) - 1) / v**2, 1e-6, 0.75e-6),
}


@pytest.mark.parametrize("name", SAWTEETH)
def test_teeth_of_a_saw_are_no_slope(name):
    """Between two steps of what is rounded f is smooth, and its slope there is -f/x."""
    f, x, slope = SAWTEETH[name]
    x = np.array([x])
    found = calipers.differentiate(f, x)
    assert np.abs(found.value - slope) <= 3 * found.error
    report = calipers.gradcheck(f, x, jac=lambda x: np.array([[slope]]), raise_exception=False)
    assert report.verdict != "FAIL", str(report)


@pytest.mark.parametrize("day", [0.3, 500.3, 7300.4, 20000.7])
@pytest.mark.parametrize("period", [1.0, 7.0, 0.25, 1 / 24])
def test_whole_periods_are_no_steps_of_their_own(day, period):
    turn = 2 * np.pi / period
    found = calipers.differentiate(lambda t: 1e-3 * t + 0.1 * np.sin(turn * t), np.array([day]))
    slope = 1e-3 + 0.1 * turn * np.cos(turn * day)
    assert np.abs(found.value - slope) <= 3 * found.error
    assert found.error <= 1e-6 * turn


@pytest.mark.parametrize("octave", range(0, 12, 3))
def test_neither_are_those_of_an_encoding(octave):
    turn = 2.0**octave * np.pi
    found = calipers.differentiate(lambda x: np.sin(turn * x), np.array([0.7071]))
    assert np.abs(found.value - turn * np.cos(turn * 0.7071)) <= 3 * found.error
    assert found.error <= 1e-6 * turn


LOST = {
    "logarithm": (lambda p: np.log(p.sum())[None], [0.5, 0.5, 1e-18], [[1.0, 1.0, 0.0]]),
    "residual": (lambda x: x[:1] ** 2 + x[1:] - 1, [1.0, 1e-17], [[2.0, 0.0]]),
    "single": (lambda x: np.log(1 + x), np.array([1e-9], "f"), [[0.0]]),
    "angle": (lambda p: np.arctan2(p[:1], p[1:]), np.array([1e-6, -1], "f"), [[0.0, -1e-6]]),
}


@pytest.mark.parametrize("name", LOST)
def test_a_slope_that_is_lost_beside_1_confirms_no_zero(name):
    """Of a small x in a sum the coarse slope is 0, without noise where f is 0, too."""
    f, x, claimed = LOST[name]
    x = np.asarray(x)
    claimed = np.array(claimed, x.dtype)
    report = calipers.gradcheck(f, x, jac=lambda x: claimed, raise_exception=False)
    # Only steps beyond |x| show the slope.
    assert report.verdict in ("FAIL", "INCONCLUSIVE"), str(report)
