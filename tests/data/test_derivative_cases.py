"""The derivatives that judge others are right themselves."""

import numpy as np
import pytest

from tests.data.derivative_cases import CASES

# What is not analytic, without what makes it hard, in extended precision.
CLEAN = {
    "noisy": np.exp,
    "float32_inside": lambda x: np.exp(2 * x),
    "absolute_value": np.abs,
    "leaky_relu": lambda x: np.where(x > 0, x, np.longdouble("0.1") * x),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_jacobian_is_exact(case):
    for x in case.points:
        before = x.copy()
        value, jac = np.asarray(case.f(x)), np.asarray(case.jac(x))
        assert np.array_equal(x, before)
        assert jac.shape == (*value.shape, *x.shape)
        for j in range(x.size):
            expected = column(case, x, j)
            scale = np.abs(jac).max(axis=1) + np.abs(jac[:, j])
            assert np.all(np.abs(jac[:, j] - expected) <= 1e-11 * scale), (case.name, j)


def column(case, x, j):
    if case.kind == "holomorphic":
        return round_the_circle(case, x, j)
    if case.analytic:
        h = 1e-30 * (abs(x[j]) or 1.0)
        z = x.astype(complex)
        z[j] += 1j * h
        return case.f(z).imag / h
    wide = x.astype(np.longdouble)
    h = np.longdouble(abs(x[j])) * np.longdouble(2) ** -14
    up, down = wide.copy(), wide.copy()
    up[j] += h
    down[j] -= h
    f = CLEAN[case.name]
    coarse = (f(up) - f(down)) / (2 * h)
    up[j], down[j] = wide[j] + h / 2, wide[j] - h / 2
    fine = (f(up) - f(down)) / h
    return ((4 * fine - coarse) / 3).astype(float)  # Richardson


def round_the_circle(case, x, j):
    """Take the mean of f over directions around x (Cauchy's formula)."""
    points, radius = 64, 0.3
    total = 0
    for k in range(points):
        turn = np.exp(2j * np.pi * k / points)
        z = x.copy()
        z[j] += radius * turn
        total = total + case.f(z) / (radius * turn)
    return total / points


def test_there_are_enough():
    smooth = [case for case in CASES if case.kind == "smooth"]
    assert len(smooth) >= 25
    assert {case.kind for case in CASES} >= {
        "smooth",
        "holomorphic",
        "scaled",
        "offset",
        "aliased",
        "noisy",
        "edge",
        "kink",
    }
    assert len({case.name for case in CASES}) == len(CASES)
