"""Results that hold by a hair: digits lost, and domains left, where nothing wider can be asked."""

import numpy as np
import pytest

import calipers

GOOD = {"ROUNDING", "LAYOUT", "AMPLIFIED", "UNSTABLE"}
WRONG = {"BUG", "SUSPECT"}


def kind(f, g, *inputs):
    return calipers.diagnose(f, g, inputs, float64=None).kind


def losses(x, t):
    return np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x)))


def naive_losses(x, t, least=0.0):
    p = 1 / (1 + np.exp(-x))
    with np.errstate(divide="ignore"):
        return -(t * np.log(p + least) + (1 - t) * np.log(1 - p + least))


@pytest.mark.parametrize("n", [12, 60])
@pytest.mark.parametrize("size", [3, 5, 10])
def test_a_loss_of_which_float32_has_nothing_left_is_no_bug(n, size):
    random = np.random.default_rng(n)
    for _ in range(10):
        x, t = size * random.standard_normal(n), (random.random(n) < 0.5).astype(float)
        assert kind(naive_losses, losses, x, t) in GOOD
        assert kind(losses, naive_losses, x, t) in GOOD


@pytest.mark.parametrize("share", [1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize("seed", range(3))
def test_wrong_losses_are_told_beside_lost_digits(seed, share):
    random = np.random.default_rng(seed)
    x, t = 10 * random.standard_normal(60), (random.random(60) < 0.5).astype(float)
    for wrong in (
        lambda x, t: losses(x, t) * (1 + share),
        lambda x, t: losses(x, t) + share,
        lambda x, t: losses(x, t * (1 - share) + share / 2),
    ):
        assert kind(naive_losses, wrong, x, t) in WRONG
    assert kind(lambda x, t: naive_losses(x, t, share), losses, x, t) in WRONG


@pytest.mark.parametrize("share", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("seed", range(3))
def test_a_bug_is_no_lost_digit_where_float32_overflows(seed, share):
    x = np.random.default_rng(seed).normal(200, 20, (20, 6))

    def by_largest(x):
        top = x.max(axis=1, keepdims=True)
        return np.log(np.exp(x - top).sum(axis=1)) + top[:, 0]

    for wrong in (
        lambda x: np.log(np.exp(x).sum(axis=1)) * (1 + share),
        lambda x: np.log(np.exp(x).sum(axis=1)) + share,
        lambda x: np.log(np.exp(x + share * np.sin(x)).sum(axis=1)),
    ):
        assert kind(by_largest, wrong, x) == "BUG"
