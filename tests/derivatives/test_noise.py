"""Noise of f at numbers that are small beside its length, at kinks, and at slopes without end."""

import numpy as np
import pytest

import calipers
from tests.data.derivative_functions import hashed

pytestmark = pytest.mark.slow

AT = [1e-20, 1e-12, 1e-8, 1e-5, 1e-3]
NOISE = [1e-10, 1e-8, 1e-6, 1e-4]
SEEDS = 10

SMOOTH = {
    "sine": (np.sin, np.cos),
    "logistic": (lambda x: 1 / (1 + np.exp(-x)) - 0.5, lambda x: 0.25 / np.cosh(x / 2) ** 2),
    "growth": (np.expm1, np.exp),
    "line": (lambda x: 3 * x, lambda x: 3.0),
    "cube": (lambda x: x**3 - 2 * x, lambda x: 3 * x**2 - 2),
}
# f, and its slopes to the left and right of 0.
KINKS = {
    "absolute value": (np.abs, -1.0, 1.0),
    "relu": (lambda x: np.maximum(x, 0), 0.0, 1.0),
    "leaky": (lambda x: np.where(x > 0, 3 * x, 0.1 * x), 0.1, 3.0),
    "beside a sine": (lambda x: np.abs(x) + np.sin(x), 0.0, 2.0),
}
ENDLESS = {
    "root": (lambda x: np.sqrt(np.abs(x)), lambda x: 0.5 * x**-0.5),
    "power of 0.7": (lambda x: np.abs(x) ** 0.7, lambda x: 0.7 * x**-0.3),
    "odd root": (lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda x: 0.5 * x**-0.5),
    "entropy": (lambda x: np.abs(x) * np.log(np.abs(x) + 1e-300), lambda x: 1 + np.log(x)),
}


def noisy(f, noise, seed):
    """Return f with an error that each x has of its own."""
    return lambda x: f(x) + noise * hashed(x, seed + 1)


def asked(f, noise, at):
    """Return values and errors of the derivative of f at `at`, one for each seed."""
    found = [calipers.differentiate(noisy(f, noise, seed), np.array([at])) for seed in range(SEEDS)]
    return np.array([(each.value.item(), each.error.item()) for each in found]).T


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("at", AT)
@pytest.mark.parametrize("name", SMOOTH)
def test_longer_steps_know_the_slope(name, at, noise):
    f, slope = SMOOTH[name]
    value, error = asked(f, noise, at)
    known = error < np.inf
    assert np.all(np.abs(value - slope(at))[known] <= 3 * error[known])
    assert np.count_nonzero(error <= 30 * noise ** (2 / 3)) >= 0.9 * SEEDS


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("at", AT)
@pytest.mark.parametrize("name", KINKS)
def test_an_error_is_no_more_than_the_jump_of_slopes(name, at, noise):
    f, left, right = KINKS[name]
    value, error = asked(f, noise, at)
    known = error < np.inf
    assert np.all(np.abs(value - right)[known] <= 3 * error[known])
    # Where noise hides all but a few steps next to a kink, it may hide that slopes converge.
    assert np.count_nonzero(error <= right - left) >= 0.5 * SEEDS


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("at", [0.0, *AT])
@pytest.mark.parametrize("name", ENDLESS)
def test_noise_hides_no_endless_slope(name, at, noise):
    f, slope = ENDLESS[name]
    value, error = asked(f, noise, at)
    with np.errstate(divide="ignore"):
        truth = slope(np.float64(at))
    known = error < np.inf
    assert np.count_nonzero(~(np.abs(value - truth) <= 3 * error)[known]) <= 0.1 * SEEDS


def test_longer_steps_are_tried_once():
    """Beside 1e6 numbers of binary32 are a hundred to a wave, and no steps tell its slope."""
    found = calipers.differentiate(np.sin, np.array([1e6], np.float32))
    assert found.error.item() == np.inf
    assert found.nfev <= 60
