"""What the wider format tells of differences that the working one's rounding covers."""

import math

import numpy as np
import pytest

import calipers

RANDOM = np.random.default_rng(7)


def runge_kutta(steps, *, last=1.0, together=False):
    """Return a pendulum's way in steps of 1e-3, of which the last stage may be taken too early."""

    def solve(y):
        number = y.dtype.type
        h, half, two, six = map(number, (1e-3, 0.5, 2, 6))

        def slope(y):
            return np.stack([y[1], -np.sin(y[0]) - number(0.1) * y[1]])

        for _ in range(steps):
            a = slope(y)
            b = slope(y + half * h * a)
            c = slope(y + half * h * b)
            d = slope(y + h * (c if last == 1 else b))
            if together:
                y = y + h * (a + two * (b + c) + d) / six
            else:
                y = y + h / six * (a + two * b + two * c + d)
        return y

    return solve


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("steps", [30, 100])
def test_a_wrong_stage_is_seen_in_the_wider_format_though_it_is_small_there_too(steps, seed):
    """The sides are 1e-12 apart: some thousand units of float64, of which float32 has less than 1.

    Algorithms that lose no digits of float32 lose none of float64.
    """
    y = np.random.default_rng(seed).normal(size=(2, 50)).astype(np.float32)
    f, g = runge_kutta(steps), runge_kutta(steps, last=0.5, together=True)
    assert np.abs(f(y.astype(float)) - g(y.astype(float))).max() < 2e-11
    assert calipers.diagnose(f, g, y).kind == "SUSPECT"
    same = calipers.diagnose(f, runge_kutta(steps, together=True), y)
    assert same.kind in ("ROUNDING", "LAYOUT"), str(same)


def lorenz(steps, *, factored=True, rate=28.0):
    def solve(y):
        number = y.dtype.type
        s, r, b, h = map(number, (10, rate, 8 / 3, 0.01))
        for _ in range(steps):
            u, v, w = y
            if factored:
                slope = np.stack([s * (v - u), u * (r - w) - v, u * v - b * w])
            else:
                slope = np.stack([s * v - s * u, r * u - u * w - v, u * v - b * w])
            y = y + h * slope
        return y

    return solve


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "dtype"), [(500, np.float32), (2000, np.float64)])
def test_chaos_is_no_fault_of_one_side_though_its_steps_are_not_told(steps, dtype):
    random = np.random.default_rng(0)
    y = (random.normal(size=(3, 20)) + [[0], [0], [25]]).astype(dtype)
    f, g = lorenz(steps), lorenz(steps, factored=False)
    found = calipers.diagnose(f, g, y)
    assert found.kind == "AMPLIFIED", str(found)
    if steps == 500:  # elsewhere no error may be beyond what is allowed
        assert "pass reduction=" in found.reason
    assert calipers.diagnose(f, g, y, reduction=steps).kind == "AMPLIFIED"
    other = calipers.diagnose(f, lorenz(steps, factored=False, rate=28.001), y)
    assert other.kind == "BUG", str(other)


def gelu(x):
    """Return x by the chance of less than it: below -3, 1 + erf has few digits left."""
    number = x.dtype.type
    erf = np.vectorize(math.erf, otypes=[np.float64])(np.float64(x / number(2**0.5)))
    return number(0.5) * x * (number(1) + erf.astype(x.dtype))


@pytest.mark.parametrize("seed", range(3))
def test_digits_of_small_results_that_one_side_loses_are_no_bug_of_the_other(seed):
    """The one without a float64 path is right here, and the one that has it is not, in float32."""
    x = 2 * np.random.default_rng(seed).normal(size=(16, 64)).astype(np.float32)

    def right(x):
        return gelu(x.astype(np.float64)).astype(np.float32)

    found = calipers.diagnose(gelu, right, x)
    assert found.kind == "ROUNDING", str(found)
    assert calipers.diagnose(right, gelu, x).kind == "ROUNDING"

    def cut(x):
        return np.where(x < -4, 0, right(x)).astype(np.float32)

    def off(x):
        return (right(x) * np.float32(1 + 1e-6)).astype(np.float32)

    for wrong in (cut, off):
        assert calipers.diagnose(gelu, wrong, x).kind in ("SUSPECT", "BUG"), wrong


def cast(f):
    """Return f of what is cast to float32, whatever is given; its results are what they are."""
    return lambda *arrays: f(*(x.astype(np.float32) for x in arrays))


def spreads(x, ddof=1):
    return np.cov(x.T, ddof=ddof)  # doubles, always


def own_spreads(x):
    d = x - x.mean(axis=0)
    return d.T @ d / x.dtype.type(len(x) - 1)


@pytest.mark.parametrize("turned", [False, True])
def test_doubles_of_what_is_cast_to_float32_are_no_wider_format(turned):
    x = RANDOM.standard_normal((60, 8), dtype=np.float32)
    f, g = (own_spreads, cast(spreads)) if turned else (cast(spreads), own_spreads)
    found = calipers.diagnose(f, g, x, batch=())
    assert found.kind in ("ROUNDING", "LAYOUT"), str(found)
    by_count = calipers.diagnose(own_spreads, cast(lambda x: spreads(x, 0)), x, batch=())
    assert by_count.kind == "BUG", str(by_count)


def test_what_is_off_by_what_float32_does_not_show_is_seen_in_doubles_of_what_is_not_cast():
    """As it is where a side's results have one dtype for all inputs, but heed all their digits."""
    x = RANDOM.standard_normal((60, 8), dtype=np.float32)
    near = calipers.diagnose(own_spreads, lambda x: spreads(x) * (1 + 1e-8), x, batch=())
    assert near.kind == "SUSPECT", str(near)


def test_what_is_the_same_for_all_inputs_answers_in_the_wider_format_if_its_dtype_follows():
    x = RANDOM.uniform(0, 3, 100).astype(np.float32)
    found = calipers.diagnose(lambda x: 1 + x * x.dtype.type(5e-8), np.ones_like, x)
    assert found.kind == "SUSPECT", str(found)


def test_integers_that_stand_still_on_both_sides_are_those_of_the_wider_format():
    """No digit that float32 lacks makes another integer of them, on either side."""
    x = RANDOM.uniform(0, 50, 40).astype(np.float32)
    found = calipers.diagnose(np.floor, lambda x: np.ceil(x).astype(int), x)
    assert found.kind == "BUG"
    assert "in float64" in found.reason


def test_constants_of_float64_that_add_up_are_said_to_be_so():
    """Twelve steps by constants that are one number, and another by a last place."""

    def steps(c):
        def f(x):
            for _ in range(12):
                x = x * c
            return x

        return f

    x = RANDOM.uniform(1, 2, (20, 200))
    found = calipers.diagnose(steps(0.97), steps(np.nextafter(0.97, 1)), x)
    assert found.kind == "SUSPECT", str(found)
    assert "constants of float64, whose rounding errors add up" in found.reason
