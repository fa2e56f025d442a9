"""gradcheck's method=: by what an entry is judged that a plain difference does not confirm."""

import numba
import numpy as np
import pytest

import calipers
from calipers._gradcheck.numerical import Way, looks
from calipers._gradcheck.subject import pose

from .derivative_cases import CASES

FIXED = ["2-point", "3-point", "5-point"]
METHODS = [*FIXED, "cs", "adaptive"]
methods = pytest.mark.parametrize("method", METHODS)
X = np.random.default_rng(0).uniform(0.5, 1.5, 12)


def mixed(x):
    return np.sin(x) * x.sum()


def mixed_jac(x):
    return np.diag(np.cos(x) * x.sum()) + np.sin(x)[:, None]


compiled = numba.njit(mixed)


def off(jac, share):
    def wrong(*given):
        found = jac(*given)
        found[3, 5] *= 1 + share
        return found

    return wrong


@methods
@pytest.mark.parametrize("f", [mixed, compiled], ids=["python", "compiled"])
def test_right_derivatives_pass_and_wrong_ones_fail(f, method):
    assert calipers.gradcheck(f, X, jac=mixed_jac, method=method).verdict == "PASS"
    report = calipers.gradcheck(
        f, X, jac=off(mixed_jac, 1e-4), method=method, raise_exception=False
    )
    assert report.verdict == "FAIL"
    assert [(e.row, e.column) for e in report.failures] == [(3, 5)]


@methods
def test_steps_bounds_and_scales_are_those_of_the_method(method):
    seen = []

    def f(x):
        seen.append(x[5])
        return mixed(x)

    wrong = off(mixed_jac, 1e-2)
    given = {"jac": wrong, "method": method, "raise_exception": False}
    calipers.gradcheck(f, X, step=2.0**-7, **given)
    most = max(np.abs(np.imag(seen)).max(), np.abs(np.real(seen) - X[5]).max())
    assert most >= 2.0**-7
    seen.clear()
    if method != "cs":
        report = calipers.gradcheck(f, X, bounds=(X - 1e-6, X + 1), **given)
        assert report.verdict == "FAIL"
        assert min(seen) >= X[5] - 1e-6


@pytest.mark.parametrize(
    ("method", "reach"),
    [("2-point", 2.0**-26), ("3-point", 2.0 ** (-52 / 3)), ("5-point", 2.0**-9.4)],
)
def test_steps_are_those_of_jacobian(method, reach):
    seen = []

    def f(x):
        seen.append(x[5])
        return mixed(x)

    subject = pose(f, X / 2, (), None, None, ())  # below 1, where steps are of 1
    given = {"step": None, "scale": None, "bounds": None}
    looks(subject, subject.active[0], method, given, Way()).value(5)
    assert np.max(np.abs(np.array(seen) - X[5] / 2)) == pytest.approx(reach, rel=1e-6)


def test_a_complex_step_sees_what_differences_cannot():
    def f(x):
        return 1e8 + np.exp(x)

    def wrong(x):
        return np.diag(np.exp(x) * (1 + 1e-8))

    given = {"jac": wrong, "rtol": 1e-10, "raise_exception": False}
    assert calipers.gradcheck(f, X, method="cs", **given).verdict == "FAIL"
    for method in [*FIXED, "adaptive"]:
        assert calipers.gradcheck(f, X, method=method, **given).verdict == "INCONCLUSIVE"
    assert calipers.gradcheck(f, X, jac=lambda x: np.diag(np.exp(x)), rtol=1e-10, method="cs")


@methods
def test_several_inputs_and_outputs(method):
    def f(x, y, k):
        return x * y.sum(), np.outer(x, y) * k

    def jac(x, y, k):
        first = [np.eye(2) * y.sum(), np.repeat(x[:, None], 3, axis=1)]
        by_x = np.einsum("ik,j->ijk", np.eye(2), y) * k
        by_y = np.einsum("i,jk->ijk", x, np.eye(3)) * k
        return [first, [by_x, by_y]]

    def wrong(x, y, k):
        found = jac(x, y, k)
        found[1][1][1, 2, 2] += 1e-3
        return found

    inputs = np.array([0.5, 2.0]), np.array([1.0, -1.0, 3.0]), 3
    assert calipers.gradcheck(f, inputs, jac=jac, method=method)
    report = calipers.gradcheck(f, inputs, jac=wrong, method=method, raise_exception=False)
    (entry,) = report.failures
    assert (entry.output, entry.output_index) == (1, (1, 2))
    assert (entry.input, entry.input_index) == (1, (2,))


@pytest.mark.parametrize("method", [*FIXED, "cs"])
def test_errors_cover_what_values_are_off_by(method):
    """In 99 % of the entries of all smooth cases, as those of ladders do in each."""
    covered = total = 0
    given = {"step": None, "scale": None, "bounds": None}
    for case in CASES:
        for x in case.points:
            if case.kind != "smooth" or x.dtype.kind == "c":
                continue
            if method == "cs" and not case.analytic:
                continue
            subject = pose(case.f, x, (), None, None, ())
            look = looks(subject, subject.active[0], method, given, Way())
            exact = np.reshape(case.jac(x), (subject.rows, subject.columns))
            spacing = 8 * np.spacing(np.abs(exact).max())  # of the exact Jacobian's own formula
            for j in range(subject.columns):
                value, error = look.value(j)
                covered += np.count_nonzero(np.abs(value - exact[:, j]) <= error + spacing)
                total += len(value)
    assert total > 4000
    assert covered >= 0.99 * total


def test_bounds_that_leave_less_than_half_a_step_tell_no_error():
    subject = pose(np.sin, X, (), None, None, ())
    given = {"step": 1e-3, "scale": None, "bounds": (X - 1e-5, X + 1e-5)}
    _, error = looks(subject, subject.active[0], "2-point", given, Way()).value(0)
    assert np.isinf(error).all()


def test_calls_are_counted():
    calls = []

    def f(x):
        calls.append(None)
        return mixed(x)

    for method in METHODS:
        calls.clear()
        wrong = off(mixed_jac, 1e-2)
        report = calipers.gradcheck(f, X, jac=wrong, method=method, raise_exception=False)
        assert report.calls["f"] == len(calls), method


@pytest.mark.parametrize(
    ("f", "x", "problem"),
    [
        (lambda x: np.sin(x).real, X, "needs an f that returns complex numbers"),
        (np.sin, X + 1j, "x is complex"),
        (lambda x: x * 1j, X, "method='cs' needs real results, and output 0 of f is complex"),
        (lambda x: x[: 6 + 6 * (x.dtype.kind == "c")], X, "for a complex input, and"),
    ],
)
def test_complex_steps_are_refused(f, x, problem):
    with pytest.raises(ValueError, match=problem):
        calipers.gradcheck(f, x, jvp=lambda x, v: f(v), method="cs")


def test_other_methods_are_refused():
    with pytest.raises(ValueError, match=r"method must be one of '2-point', .* got 'central'"):
        calipers.gradcheck(np.sin, X, vjp=lambda x, w: w * np.cos(x), method="central")


def test_second_derivatives_take_a_method():
    given = {"vjp": lambda x, w: w * np.cos(x), "method": "cs"}
    right, wrong = (
        lambda x, w, u, s=s: (-s * u * w * np.sin(x), u * np.cos(x)) for s in (1.0, 1.0001)
    )
    assert calipers.gradgradcheck(np.sin, X, vjp_vjp=right, **given)
    report = calipers.gradgradcheck(np.sin, X, vjp_vjp=wrong, raise_exception=False, **given)
    assert report.verdict == "FAIL"


def test_a_checkpoint_of_another_method_is_refused(tmp_path):
    given = {"jac": off(mixed_jac, 1e-2), "checkpoint": tmp_path, "raise_exception": False}
    for _ in range(2):
        assert calipers.gradcheck(mixed, X, method="3-point", **given).verdict == "FAIL"
    with pytest.raises(ValueError, match="another method"):
        calipers.gradcheck(mixed, X, method="5-point", **given)
