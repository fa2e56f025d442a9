"""Right derivatives that are 0 because terms cancel, but for rounding, and wrong ones there."""

import numpy as np
import pytest

from tests.data.gradcheck_functions import checked


def distances(x):
    """Return squared distances of rows, of which those from themselves are rounding."""
    n = np.sum(x * x, axis=-1)
    return n[:, None] + n - 2 * x @ x.T


def distances_vjp(x, w):
    return 2 * x * (w.sum(1) + w.sum(0))[:, None] - 2 * (w + w.T) @ x


def normed(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def normed_vjp(x, w):
    y = normed(x)
    scale = np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-5)
    return (w - w.mean(-1, keepdims=True) - y * np.mean(w * y, -1, keepdims=True)) / scale


def total(x):
    return np.sum(normed(x))


def total_vjp(x, w):
    return normed_vjp(x, np.full(x.shape, w))


def rotated(x):
    """Return what is left of rows that are turned and turned back."""
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    return (x @ turn) @ turn.T / 3 - x / 3


def nothing(x, w):
    return np.zeros_like(x) * w.sum()


CASES = {
    "distances": (distances, distances_vjp, (3, 5)),
    "a sum of what is centred": (total, total_vjp, (3, 5)),
    "there and back": (rotated, nothing, (3, 2)),
}


def verdicts(f, vjp, shape, seeds=20, **options):
    points = (np.random.default_rng(seed).standard_normal(shape) for seed in range(seeds))
    return [checked(f, x, vjp=vjp, **options).verdict for x in points]


@pytest.mark.parametrize("name", CASES)
def test_rounding_of_terms_that_cancel_accuses_nobody(name):
    told = verdicts(*CASES[name])
    assert told.count("PASS") >= 15, told
    assert "FAIL" not in told


@pytest.mark.parametrize("name", CASES)
def test_looser_tolerances_make_nothing_fail(name):
    assert set(verdicts(*CASES[name], atol=1e-5, rtol=1e-3)) == {"PASS"}


def test_a_term_that_is_left_out_of_what_cancels_is_wrong():
    def without_mean(x, w):
        y, w = normed(x), np.full(x.shape, w)
        scale = np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-5)
        return (w - y * np.mean(w * y, -1, keepdims=True)) / scale

    assert set(verdicts(total, without_mean, (3, 5))) == {"FAIL"}


@pytest.mark.parametrize("off", [1e-4, 1e-9, 1e-12])
def test_an_entry_that_is_not_0_where_all_cancels_is_wrong(off):
    def vjp(x, w):
        slopes = distances_vjp(x, w)
        slopes[1, 2] += off * w[1, 1]
        return slopes

    told = verdicts(distances, vjp, (3, 5))
    assert told.count("FAIL") >= 17, told
    assert "PASS" not in told or off < 1e-8, told  # a billionth of the tolerance of others


def test_what_is_not_linear_where_all_cancels_is_found():
    def vjp(x, w):
        return total_vjp(x, w) + 1e-9 * np.abs(w)

    assert set(verdicts(total, vjp, (3, 5))) == {"FAIL"}


def test_small_results_that_are_noisy_are_no_rounding():
    """In units of 2**-43 a function is as noisy as in those of 1, and no derivative is wrong."""

    def noisy(x):
        return np.sin(x) + 1e-3 * (2 * (np.sin(12345.678 * x) * 43758545312.3 % 1.0) - 1)

    def told(unit):
        for x in np.linspace(0.6, 1.2, 12):
            claimed = 1.003 * unit * np.cos(x)
            yield checked(
                lambda x: unit * noisy(x), np.array([x]), vjp=lambda x, w, c=claimed: w * c
            ).verdict

    large, small = list(told(1.0)), list(told(2.0**-43))
    assert large.count("INCONCLUSIVE") >= 6
    # Rounding of terms of 1 is as large as the noise of the small one, and may hide all of it.
    assert set(small) <= {"PASS", "INCONCLUSIVE"}


@pytest.mark.parametrize("x", [-4.8269849, 2.37, 3.1])
def test_the_norm_of_a_single_number_is_0_but_for_rounding(x):
    """By its weight it is a difference of large terms, which libraries round otherwise than f."""
    scale = 1e-5**-0.5

    def f(x, weight):
        return weight * (x - x.mean()) * scale

    def vjp(x, weight, w):
        centred = w - w.mean()
        return weight * centred * scale, np.sum(w * (x * scale - x.mean() / 1e-5**0.5))

    # f is 0 everywhere, and so may be what rounding leaves of it, of terms of any size.
    assert checked(f, (np.array([x]), np.array(0.7)), vjp=vjp).verdict in ("PASS", "INCONCLUSIVE")


@pytest.mark.parametrize("x", [-2.302132862361297, -4.834723644714709, 3.158535541215322])
def test_derivatives_are_asked_beside_x_within_bounds(x):
    asked, scale = [], 1e-5**-0.5

    def f(x):
        return 0.7 * (x - x.mean()) * scale

    def vjp(x, w):
        asked.append(x.item())
        return w * (x * scale - x.mean() / 1e-5**0.5)

    low, high = np.sort((0.98 * x, 1.02 * x))
    report = checked(f, np.array([x]), vjp=vjp, bounds=(low, high))
    assert report.verdict in ("PASS", "INCONCLUSIVE")
    assert low <= min(asked) <= max(asked) <= high


@pytest.mark.parametrize("size", [1.0, 1e-15])
@pytest.mark.parametrize("factor", [-1, 1.0001])
def test_what_varies_fast_is_not_taken_for_rounding(factor, size):
    def f(x):
        return size * np.sin(100 * x)

    def vjp(x, w):
        return 100 * size * np.cos(100 * x) * w

    def not_linear(x, w):
        return vjp(x, w) * (1 + 1e-3 * np.abs(w))

    x = np.array([1.0, 2.0, 3.0])
    assert checked(f, x, vjp=vjp).verdict == "PASS"
    assert checked(f, x, vjp=lambda x, w: factor * vjp(x, w)).verdict == "FAIL"
    assert "not linear" in " ".join(checked(f, x, vjp=not_linear).findings)
