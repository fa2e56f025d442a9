"""Networks of one hidden layer in float32: many kinks, within all of a ladder's steps some."""

from collections import Counter

import numpy as np
import pytest

import calipers

pytestmark = pytest.mark.slow

INPUTS = 30
SEEDS = 5
UNITS = {
    "relu": (lambda z: np.maximum(z, 0), lambda z: z > 0),
    "hardtanh": (lambda z: np.clip(z, -1, 1), lambda z: np.abs(z) < 1),
    "leaky relu": (lambda z: np.where(z > 0, z, z / 8), lambda z: np.where(z > 0, 1, 0.125)),
}


def network(name, hidden, seed):
    """Return a function of 30 numbers in float32, its gradient, and x."""
    unit, slope = UNITS[name]
    random = np.random.default_rng(1000 + seed)
    first = (random.standard_normal((hidden, INPUTS)) / np.sqrt(INPUTS)).astype("f")
    bias = (0.1 * random.standard_normal(hidden)).astype("f")
    second = (random.standard_normal(hidden) / np.sqrt(hidden)).astype("f")
    x = random.standard_normal(INPUTS).astype("f")

    def f(x):
        # Products by BLAS would be rounded otherwise on other processors.
        return np.add.reduce(second * unit(np.add.reduce(first * x, axis=1) + bias), keepdims=True)

    def gradient(x):
        first_64, x_64 = first.astype(float), x.astype(float)
        return ((second * slope(first_64 @ x_64 + bias)) @ first_64)[None]

    return f, gradient, x


@pytest.mark.parametrize(
    ("hidden", "most"),
    [
        (8, 0.0),
        (64, 0.002),
        (512, 0.01),
        (4096, 0.04),
    ],
)
@pytest.mark.parametrize("name", UNITS)
def test_errors_cover_the_slope(name, hidden, most):
    off = []
    for seed in range(SEEDS):
        f, gradient, x = network(name, hidden, seed)
        found = calipers.differentiate(f, x)
        off.append(np.abs(found.value - gradient(x)) > 3 * found.error)
    assert np.mean(off) <= most


@pytest.mark.parametrize(
    ("hidden", "most", "least"),
    [(8, 0, 5), (64, 0, 4), (512, 0, 4), (4096, 1, 3)],
)
@pytest.mark.parametrize("name", UNITS)
def test_right_gradients_are_not_accused_and_wrong_ones_fail(name, hidden, most, least):
    """Of 4096 units errors are as large as 1 in 50 of the slope, and 1 in 30 of them too small."""
    right, wrong = Counter(), Counter()
    for seed in range(SEEDS):
        f, gradient, x = network(name, hidden, seed)
        factors = np.where(np.arange(INPUTS) == np.argmax(np.abs(gradient(x))), 1.05, 1)
        for said, factor in ((right, 1), (wrong, factors)):
            jac = (gradient(x) * factor).astype("f")
            report = calipers.gradcheck(f, x, jac=lambda x, j=jac: j, raise_exception=False)
            said[report.verdict] += 1
    assert right["FAIL"] <= most
    assert wrong["PASS"] == 0
    assert wrong["FAIL"] >= least
