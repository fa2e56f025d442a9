"""Sides that round at random, and those that do worse."""

import numpy as np
import pytest

import calipers

BITS = {"bfloat16": 8, "float16": 11, "float8_e4m3": 4}


def rounded_at_random(x, noise, bits, even=True):
    """Round float32 up as often as it is nearer to there, or always up or down by chance."""
    if x.dtype != np.float32:
        return x
    step = np.ldexp(np.ones((), x.dtype), np.frexp(x)[1] - bits)
    share = noise.random(x.shape, x.dtype) if even else 1 - np.float32(0.1) * noise.random(x.shape)
    rounded = np.floor(x / step + share.astype(x.dtype)) * step
    return rounded.astype(x.dtype)


def layer(seed):
    random = np.random.default_rng(seed)
    x, w = random.normal(size=(16, 96)), random.normal(size=(24, 96)) / np.sqrt(96)
    return x.astype(np.float32), w.astype(np.float32)


def product(x, w):
    return x @ w.T


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", BITS)
@pytest.mark.parametrize("which", ["x", "w", "xw"])
def test_rounding_at_random_is_told_by_numbers_that_it_leaves_alone(form, which, seed):
    noise = np.random.default_rng(seed + 10)

    def g(x, w):
        x = rounded_at_random(x, noise, BITS[form]) if "x" in which else x
        return product(x, rounded_at_random(w, noise, BITS[form]) if "w" in which else w)

    found = calipers.diagnose(product, g, layer(seed))
    assert found.kind == "NONDETERMINISTIC", str(found)
    assert "g rounds" in found.reason
    assert {"x": "argument 0", "w": "argument 1", "xw": "all arguments"}[which] in found.reason
    assert ("tf32" if form == "float16" else form) in found.reason


@pytest.mark.parametrize("float64", ["f", None])
def test_both_sides_may_round_at_random(float64):
    noise = np.random.default_rng(1)

    def either(x, w):
        return product(x, rounded_at_random(w, noise, 8)).astype(np.float32)

    found = calipers.diagnose(either, lambda x, w: either(x, w), layer(0), reference=float64)
    assert found.kind == "NONDETERMINISTIC", str(found)
    assert "f and g round argument 1 at random" in found.reason


def dropped(x, w, noise):
    return product(x, w * (noise.random(w.shape) > 1e-3))


def noisy(x, w, noise):
    return product(x, w + 1e-3 * noise.standard_normal(w.shape).astype(w.dtype))


def noisy_in_proportion(x, w, noise):
    return product(x, w * (1 + 2e-3 * noise.standard_normal(w.shape)).astype(w.dtype))


def racing(x, w, noise):
    y = product(x, w)
    lost = noise.integers(x.shape[1], size=y.shape)
    return y - np.take_along_axis(x, lost, 1) * w[np.arange(len(w)), lost]


def with_a_factor(x, w, noise):
    return product(x, rounded_at_random(w, noise, 8)) * x.dtype.type(1.0005)


def mostly_up(x, w, noise):
    return product(x, rounded_at_random(w, noise, 8, even=False))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "g", [dropped, noisy, noisy_in_proportion, racing, with_a_factor, mostly_up]
)
def test_what_else_is_not_the_same_from_call_to_call_is_a_bug(g, seed):
    noise = np.random.default_rng(seed + 10)
    found = calipers.diagnose(product, lambda x, w: g(x, w, noise), layer(seed))
    assert found.kind in (("BUG", "SUSPECT") if g is mostly_up else ("BUG",)), str(found)
    if found.kind == "SUSPECT":
        assert "does not round up as often as down" in found.reason
