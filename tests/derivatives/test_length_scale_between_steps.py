"""Slopes that end at a length between the first rungs and the tails, or below those."""

from itertools import product

import numpy as np
import pytest

import calipers

pytestmark = pytest.mark.slow

# f, the derivative at 0, and the least length that ladders about 0 and about 1 are to find. Shorter
# ones are rounded away, or bend within the tails' steps as a kink does.
LENGTHS = {
    "root of both sides": (
        lambda x, far: np.sign(x) * (np.sqrt(np.abs(x) + far) - np.sqrt(far)),
        lambda far: 0.5 / np.sqrt(far),
        1e-6,
    ),
    "root": (lambda x, far: x * (x * x + far * far) ** -0.25, lambda far: far**-0.5, 1e-10),
    "cube root": (
        lambda x, far: x * (x * x + far * far) ** (-1 / 3),
        lambda far: far ** (-2 / 3),
        1e-10,
    ),
    "two cube roots": (
        lambda x, far: np.cbrt(x + far) - np.cbrt(far - x),
        lambda far: 2 / 3 * far ** (-2 / 3),
        1e-10,
    ),
    "root beside a cosine": (
        lambda x, far: x * (x * x + far * far) ** -0.25 + np.cos(x),
        lambda far: far**-0.5,
        1e-10,
    ),
    "x log x": (lambda x, far: x * np.log(np.sqrt(x * x + far * far)), np.log, 1e-10),
    "logarithms": (lambda x, far: np.arcsinh(x / far), lambda far: 1 / far, 1e-10),
    "short logarithms": (
        lambda x, far: far * np.arcsinh(x / far) + x,
        lambda far: 2.0,
        1e-8,
    ),
    "step": (lambda x, far: np.tanh(x / far), lambda far: 1 / far, 1e-10),
    "short step": (lambda x, far: far * np.arctan(x / far) + x, lambda far: 2.0, 1e-7),
    "rounded kink": (lambda x, far: np.sqrt(x * x + far * far) + x / 2, lambda far: 0.5, 1e-6),
    "softplus": (lambda x, far: far * np.logaddexp(0, x / far), lambda far: 0.5, 1e-6),
}
FAR = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12]
NOISE = pytest.mark.xfail(reason="noise of that size leaves such differences")


def asked(name, far, at, dtype):
    f, slope, _ = LENGTHS[name]
    far = dtype(far)
    found = calipers.differentiate(lambda x: f(x - dtype(at), far), np.array([at], dtype))
    return found.value.item(), found.error.item(), float(slope(float(far)))


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(("name", "far"), list(product(LENGTHS, FAR)))
def test_errors_say_so(name, far, at):
    value, error, slope = asked(name, far, at, np.float64)
    assert error == np.inf or abs(value - slope) <= 3 * error


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("name", LENGTHS)
def test_shorter_ladders_find_it(name, at):
    for far in FAR:
        if far >= LENGTHS[name][-1]:
            value, error, slope = asked(name, far, at, np.float64)
            assert abs(value - slope) <= 1e-6 * abs(slope), far
            assert error <= 1e-5 * abs(slope), far


def lost_in_float32(name):
    return pytest.param(name, marks=NOISE if name.startswith("short") else ())


@pytest.mark.parametrize("name", [lost_in_float32(name) for name in LENGTHS])
def test_errors_say_so_in_float32(name):
    for far in FAR:
        value, error, slope = asked(name, far, 0, np.float32)
        rounding = 4 * np.spacing(np.float32(slope))
        assert error == np.inf or abs(value - slope) <= 3 * error + abs(rounding), far


def noisy(f, noise, seed):
    """Return f with an error that each x has of its own."""

    def found(x):
        bits = np.asarray(1e9 * x + seed, np.float64).view(np.int64)
        by_chance = np.remainder(bits * 2654435761, 1000003) / 1000003 - 0.5
        return f(x) + noise * by_chance

    return found


@pytest.mark.parametrize("noise", [1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
def test_a_length_above_noise(noise):
    """Tails see noise alone, and the longest rungs do not see the length."""
    truth = 1e-3**-0.5
    off = lost = 0
    for seed in range(40):
        f = noisy(lambda x: LENGTHS["root"][0](x, 1e-3), noise, seed)
        found = calipers.differentiate(f, np.zeros(1))
        value, error = found.value.item(), found.error.item()
        off += error < np.inf and abs(value - truth) > 3 * error
        lost += error > 0.1 * truth
    assert off <= 1
    assert lost == 0 or noise > 1e-6


@pytest.mark.parametrize("p", [0.5, 0.7, 0.9])
def test_a_slope_without_end_finds_none_in_noise(p):
    for seed in range(60):
        f = noisy(lambda x: np.sign(x) * np.abs(x) ** p, 1e-4, seed)
        assert calipers.differentiate(f, np.zeros(1)).error.item() == np.inf, seed


@pytest.mark.parametrize("far", [1e-7, 1e-8])
def test_rungs_that_go_down_to_spacings_of_x_suffice(far):
    value, error, slope = asked("root of both sides", far, 1, np.float64)
    assert abs(value - slope) <= 3 * error
    assert error <= 1e-3 * slope


def test_a_kink_asks_for_no_shorter_ladder():
    """Its tails agree, but for the slopes to both sides."""
    found = calipers.differentiate(lambda x: np.abs(x) + 3 * x, np.zeros(1))
    assert found.error.item() >= 1
    assert found.nfev <= 190


@pytest.mark.parametrize("far", [1e-2, 1e-4, 1e-6])
def test_a_smooth_absolute_value_is_flat_at_0(far):
    """Differences about 0 are 0, of all lengths; bends tell it from |x|, and from stairs."""

    def f(x):
        return np.sqrt(x * x + far * far)

    found = calipers.differentiate(f, np.zeros(1))
    assert found.value.item() == 0
    assert found.error.item() <= 1e-6
    assert found.status.tolist() == ["CONVERGED"]
    report = calipers.gradcheck(f, np.zeros(3), jac=lambda x: np.diag(x / f(x)))
    assert report.verdict == "PASS"
