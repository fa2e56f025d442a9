"""Kinks beside x, beyond which f is flat: what long steps see of them is a slope that x has not."""

import numba
import numpy as np
import pytest

import calipers

BESIDE = 10.0 ** -np.arange(0.5, 9.5, 0.25)  # how far from x the kink is
FLAT = {
    "hinge": (lambda x: np.maximum(0.0, 1 - x), lambda x: -1.0 * (x < 1), 1.0),
    "clip": (lambda x: np.clip(x, -1, 1), lambda x: 1.0 * (np.abs(x) < 1), 1.0),
    "soft threshold": (
        lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
        lambda x: 1.0 * (np.abs(x) > 0.5),
        0.5,
    ),
    "relu of an affine map": (
        lambda x: np.maximum(0.0, 3 * x - 2),
        lambda x: 3.0 * (x > 2 / 3),
        2 / 3,
    ),
    "squares beyond a threshold": (
        lambda x: np.where(x > 1, (x - 1) * (x + 1), 0.0),
        lambda x: 2 * x * (x > 1),
        1.0,
    ),
}


@numba.njit
def hinge(x):
    return np.maximum(0.0, 1 - x)


def points(name, beside):
    at = FLAT[name][2]
    return np.concatenate([at - beside, at + beside])


@pytest.mark.parametrize("name", FLAT)
def test_the_slope_is_that_of_the_side_of_x(name):
    f, slope, _ = FLAT[name]
    x = points(name, BESIDE)
    found = calipers.differentiate(f, x)
    off = np.abs(found.value - np.diag(slope(x)))
    assert np.all(off <= 3 * found.error)
    # Nearer than this, steps on one side of the kink leave few digits, or none.
    # Where f moves only at the few longest steps, it may be noise.
    far = (np.tile(BESIDE, 2) > 1e-6) & (found.status != "NOISY")
    assert far.sum() >= 36
    assert np.all(found.error[:, far] <= 1e-7)


def test_so_it_is_for_a_compiled_function():
    x = points("hinge", BESIDE)
    found, plain = calipers.differentiate(hinge, x), calipers.differentiate(hinge.py_func, x)
    assert np.array_equal(found.value, plain.value)
    assert np.array_equal(found.error, plain.error)


@pytest.mark.parametrize("name", FLAT)
def test_many_outputs_at_different_distances(name):
    """Each output has a kink of its own along the one input, as units of a layer have."""
    f, slope, at = FLAT[name]
    shifts = np.concatenate([-BESIDE, BESIDE])
    found = calipers.differentiate(lambda x: f(x + shifts), np.array([at]))
    off = np.abs(found.value[:, 0] - slope(at + shifts))
    assert np.all(off <= 3 * found.error[:, 0])


@pytest.mark.parametrize("name", FLAT)
def test_in_float32_errors_cover_the_slope(name):
    f, slope, _ = FLAT[name]
    single = lambda x: f(x.astype(np.float32)).astype(float)  # noqa: E731
    x = points(name, BESIDE[BESIDE > 1e-5])
    found = calipers.differentiate(single, x)
    assert np.all(np.abs(found.value - np.diag(slope(x))) <= 3 * found.error)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("name", FLAT)
def test_no_right_derivative_is_accused_and_no_mean_slope_confirmed(name, single):
    f, slope, _ = FLAT[name]
    rounded = (lambda x: f(x.astype(np.float32)).astype(float)) if single else f
    for x in points(name, BESIDE[BESIDE > 1e-5])[:, None]:
        right = calipers.gradcheck(rounded, x, jac=lambda x: slope(x)[None], raise_exception=False)
        assert right.verdict != "FAIL"
        mean = 0.5 * (slope(x - 1e-3 * x) + slope(x + 1e-3 * x))
        if mean != slope(x):
            wrong = calipers.gradcheck(
                rounded, x, jac=lambda x, mean=mean: mean[None], raise_exception=False
            )
            assert wrong.verdict != "PASS"


@pytest.mark.parametrize(
    ("step", "share"), [(1e-6, 0.99), (1e-5, 0.99), (1e-4, 0.99), (1e-3, 0.95)]
)
def test_a_staircase_has_the_slope_of_what_it_rounds(step, share):
    random = np.random.default_rng(0)
    x, weights = random.uniform(0.5, 2, 200), random.normal(size=200)
    found = calipers.differentiate(lambda x: step * np.round(weights * np.sin(x) / step), x)
    value, error = (np.diagonal(a) for a in (found.value, found.error))
    off = np.abs(value - weights * np.cos(x))
    assert np.mean(off <= 3 * error) >= share


def test_stairs_stay_a_slope_beside_what_asks_for_shorter_steps():
    """Those are shorter than a stair, on which f stands."""
    for seed in range(100):
        random = np.random.default_rng(seed)
        slope, frequency = random.uniform(0.5, 2), 10 ** random.uniform(3, 8)
        f = lambda x: np.array([np.round(slope * x[0], 6), np.sin(frequency * x[0])])  # noqa: B023, E731
        found = calipers.differentiate(f, random.uniform(0.1, 1, 1))
        assert abs(found.value[0, 0] - slope) <= 3 * found.error[0, 0], seed


@pytest.mark.parametrize(
    ("x", "weight"), [(0.6888077625519957, -0.0394252), (0.615116613308706, 0.0258239)]
)
def test_one_step_to_one_side_is_no_kink(x, weight):
    """It is the same change of f at all of the ladder's steps."""
    step = 1e-2
    found = calipers.differentiate(lambda x: step * np.round(weight * np.sin(x) / step), x)
    assert np.abs(found.value - weight * np.cos(x)) <= 3 * found.error
    assert found.status == "NOISY"


def test_longer_steps_that_bend_are_no_improvement():
    weight, x, step = 0.49228067730864616, 1.5350493849731872, 1e-5
    found = calipers.differentiate(lambda x: step * np.round(weight * np.exp(-x) / step), x)
    assert found.status == "NOISY"
    assert np.abs(found.value + weight * np.exp(-x)) <= found.error


def test_kinks_of_some_roundings_in_float32():
    """A jump of slopes is less than rounding of f in the tails, and not in the ladder's steps."""
    off = total = accused = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        weights = random.normal(size=(3, 6)).astype(np.float32)
        x = 1 + 1e-6 * random.normal(size=6)
        f = lambda x, w=weights: (w @ np.clip(x.astype(np.float32), -1, 1)).astype(float)  # noqa: E731
        slopes = weights.astype(float) * (x < 1)
        report = calipers.gradcheck(f, x, jac=lambda x, a=slopes: a, raise_exception=False)
        accused += report.verdict == "FAIL"
        found = calipers.differentiate(f, x)
        off += np.count_nonzero(np.abs(found.value - slopes) > 3 * found.error)
        total += slopes.size
    assert off <= 0.01 * total
    assert accused <= 1  # of 23 before, where a kink and rounding are alike
