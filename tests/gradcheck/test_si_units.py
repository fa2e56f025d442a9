"""Numbers in SI units, far from 1, and functions whose change is lost in their own rounding."""

import math

import numpy as np
import pytest

import calipers
from tests.data.gradcheck_functions import checked

modes = pytest.mark.parametrize("fast_mode", [False, True], ids=["exhaustive", "projected"])


def lennard_jones(r):
    return 4 * 1.65e-21 * ((3.4e-10 / r[0]) ** 12 - (3.4e-10 / r[0]) ** 6)


def lennard_jones_slope(r):
    q = (3.4e-10 / r) ** 6
    return 4 * 1.65e-21 * (6 * q - 12 * q * q) / r


def reduced_mass(m):
    return m[0] * m[1] / (m[0] + m[1])


def reduced_mass_slope(m):
    return (m[::-1] / (m[0] + m[1])) ** 2


def coulomb(p):
    return 8.99e9 * p[0] * p[1] / p[2]


def coulomb_slope(p):
    return coulomb(p) / p * np.array([1, 1, -1])


def casimir(d):
    return -1.3e-27 / d[0] ** 4


def casimir_slope(d):
    return 5.2e-27 / d**5


def of_points(x):
    apart = np.sqrt(np.sum((x[0] - x[1]) ** 2))
    return 2.3e-28 / apart


def of_points_slope(x):
    apart = x[0] - x[1]
    one = -2.3e-28 * apart / np.sum(apart**2) ** 1.5
    return np.stack([one, -one])


PHYSICS = {
    "Lennard-Jones": (lennard_jones, lennard_jones_slope, [3.9e-10]),
    "reduced mass": (reduced_mass, reduced_mass_slope, [1.67e-27, 9.1e-31]),
    "Coulomb": (coulomb, coulomb_slope, [1.6e-19, 1.6e-19, 1e-10]),
    "Casimir": (casimir, casimir_slope, [1e-7]),
    "points, with zeros": (of_points, of_points_slope, [[0, 0, 0], [0, 1e-10, 3e-10]]),
}


@modes
@pytest.mark.parametrize("name", PHYSICS)
def test_small_numbers_have_steps_of_their_own_size(name, fast_mode):
    """A gradient of zeros passed, and each of the others was a kink."""
    f, slope, x = PHYSICS[name]
    for factor in (1, 0, -1, 2, 1.01):
        report = checked(
            f, np.array(x), vjp=lambda x, w, k=factor: w * k * slope(x), fast_mode=fast_mode
        )
        assert report.verdict == ("PASS" if factor == 1 else "FAIL"), factor


@pytest.mark.parametrize("option", ["step", "scale"])
def test_the_callers_own_steps_are_enough_for_small_numbers(option):
    x = np.full(20, 1e-9)
    length = 1e-14 if option == "step" else 1e-9
    report = checked(np.square, x, jac=lambda x: np.diag(2 * x), **{option: length})
    assert report.verdict == "PASS"
    assert report.calls["f"] <= 2 * x.size + 2


def verdicts_in_units(f, claimed, **options):
    """Check f near 1, and the same function of much smaller numbers, in their units."""
    for unit in (1.0, 2.0**-30, 2.0**-60):
        x = np.array([unit])
        yield checked(
            lambda x, u=unit: u * f(x / u), x, vjp=lambda x, w: w * claimed, **options
        ).verdict


def test_what_the_callers_tolerances_accept_is_accepted_in_all_units():
    """The slope by a step of eps**(1/3) is off by 0.17 %, and what is claimed by 0.15 %."""
    bend = 0.1 / np.finfo(float).eps ** (1 / 3)

    def f(x):
        return np.sin(bend * (x - 1)) / bend

    assert set(verdicts_in_units(f, 0.9985, rtol=1e-3)) == {"PASS"}
    assert set(verdicts_in_units(f, 0.9985)) == {"FAIL"}
    assert set(verdicts_in_units(f, 0.997, rtol=1e-3)) == {"FAIL"}


@pytest.mark.parametrize("offset", [3e7, 1e8, 3e8])
def test_a_slope_by_two_points_beside_an_offset_confirms_nothing(offset):
    """It is rounded, and longer steps know that."""
    x = 2.0**-30
    h = np.finfo(float).eps ** (1 / 3) * x
    above, below = x + h, x - h
    slope = ((offset * x + above) - (offset * x + below)) / (above - below)
    assert abs(slope - 1) > 1e-4
    report = checked(lambda x: offset * 2.0**-30 + x, np.array([x]), vjp=lambda x, w: w * slope)
    assert report.verdict == "FAIL"


@pytest.mark.parametrize("name", PHYSICS)
def test_errors_of_small_numbers_are_known(name):
    f, slope, x = PHYSICS[name]
    found = calipers.differentiate(f, np.array(x))
    exact = slope(np.array(x))
    off = np.abs(found.value - exact)
    assert np.all(off <= found.error + 1e-13 * np.abs(exact).max())
    assert np.all(found.error <= 1e-8 * np.abs(exact).max())


@pytest.mark.parametrize(("f", "x"), [(math.log, 1e-7), (math.sqrt, 1e-8), (math.log, 1e-20)])
def test_steps_stay_where_f_is_defined(f, x):
    slope = 1 / x if f is math.log else 0.5 / math.sqrt(x)
    assert checked(lambda x: f(x[0]), np.array([x]), vjp=lambda x, w: np.array([w * slope]))


def test_what_is_lost_beside_1_is_found_by_longer_steps():
    for factor in (1, 0, -1):
        report = checked(
            lambda x: np.exp(x).sum(),
            np.array([1e-20, 1e-12, -1e-9]),
            vjp=lambda x, w, k=factor: w * k * np.exp(x),
        )
        assert report.verdict == ("PASS" if factor == 1 else "FAIL")


def cross_entropy(z):
    top = z.max()
    return top + np.log(np.exp(z - top).sum()) - z[0]


def cross_entropy_vjp(z, w):
    p = np.exp(z - z.max())
    p /= p.sum()
    p[0] = -p[1:].sum()
    return w * p


ROUNDED_AWAY = {
    "log(sigmoid)": (lambda x: np.log(1 / (1 + np.exp(-x))), 40.0, 4.25e-18),
    "1 - tanh": (lambda x: 1 - np.tanh(x), 20.0, -1.7e-17),
    "logaddexp": (lambda x: np.logaddexp(x, 0) - x, 50.0, -1.93e-22),
    "x - sin(x)": (lambda x: x - np.sin(x), 1e-9, 5e-19),
    "hypot": (lambda x: np.sqrt(x * x + 1) - x, 1e9, -5e-19),
}


@modes
@pytest.mark.parametrize("name", ROUNDED_AWAY)
def test_a_slope_that_rounding_hides_is_not_wrong(name, fast_mode):
    """It was: the numerical derivative is 0, and its error was taken to be 0, too."""
    f, x, slope = ROUNDED_AWAY[name]
    jac = np.array([[slope]])
    right = checked(f, np.array([x]), jac=lambda x: jac, fast_mode=fast_mode)
    assert right.verdict in ("PASS", "INCONCLUSIVE")
    assert checked(f, np.array([x]), jac=lambda x: jac + 1e-8).verdict != "PASS"
    found = calipers.differentiate(f, np.array([x]))
    assert abs(found.value[0, 0] - slope) <= 2 * found.error[0, 0] < 1e-12


@modes
@pytest.mark.parametrize("gap", [29.0, 33.0, 36.0, 37.0, 40.0, 100.0])
def test_a_confident_prediction(gap, fast_mode):
    z = np.array([gap, 0.0, -1.0])
    report = checked(cross_entropy, z, vjp=cross_entropy_vjp, fast_mode=fast_mode)
    assert report.verdict in ("PASS", "INCONCLUSIVE")
    wrong = checked(cross_entropy, z, vjp=lambda z, w: cross_entropy_vjp(z, w) + 1e-9 * w)
    # A loss that is 0 and stays so may be 0 by rounding.
    assert wrong.verdict in (("FAIL",) if gap < 100 else ("FAIL", "INCONCLUSIVE"))


@pytest.mark.parametrize("size", [1e6, 1e10, 1e12, 1e15, 1e20])
@pytest.mark.parametrize("form", ["jac", "vjp", "jvp"])
def test_a_large_entry_hides_no_others_than_those_of_its_row_and_column(size, form):
    """An entry of 1e-3 that should be 0 passed beside 1e12 in another row and column."""
    right = np.diag([size, 1.0, 1.0])
    for at, off in (((2, 1), 1e-5), ((1, 2), 1e-3), ((2, 1), 1.0)):
        wrong = right.copy()
        wrong[at] = off
        given = {
            "jac": lambda x, a=wrong: a,
            "vjp": lambda x, w, a=wrong: a.T @ w,
            "jvp": lambda x, v, a=wrong: a @ v,
        }
        report = checked(lambda x: right @ x, np.ones(3), **{form: given[form]})
        assert report.verdict == "FAIL"
    assert checked(lambda x: right @ x, np.ones(3), jac=lambda x: right)
