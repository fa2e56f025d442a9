"""Complex steps in gradcheck: differences along the real axis count where f is not analytic."""

import numpy as np
import pytest

import calipers

X = np.array([1.5, -0.7, 2.2])
MODES = pytest.mark.parametrize("fast_mode", [False, True])


def check(f, jac, **options):
    return calipers.gradcheck(f, X, jac=jac, method="cs", raise_exception=False, **options)


# A function that is not analytic, what a complex step makes of its derivative, and the derivative.
NOT_ANALYTIC = [
    (lambda x: x * np.abs(x), lambda x: np.diag(np.abs(x)), lambda x: 2 * np.diag(np.abs(x))),
    (lambda x: np.array([x.conj() @ x]), lambda x: np.zeros((1, 3)), lambda x: 2 * x[None]),
    (lambda x: x.real**2 + 0j, lambda x: np.zeros((3, 3)), lambda x: 2 * np.diag(x)),
    (
        lambda x: x + 1e-3 * x * np.abs(x),
        lambda x: np.diag(1 + 1e-3 * np.abs(x)),
        lambda x: np.diag(1 + 2e-3 * np.abs(x)),
    ),
]


@MODES
@pytest.mark.parametrize(("f", "wrong", "right"), NOT_ANALYTIC)
def test_differences_count_where_f_is_not_analytic(f, wrong, right, fast_mode):
    assert check(f, wrong, fast_mode=fast_mode).verdict == "FAIL"
    assert check(f, right, fast_mode=fast_mode).verdict == "PASS"


@MODES
def test_complex_results_that_are_real_at_real_inputs(fast_mode):
    def f(x):
        return np.sin(x) + 0j

    for factor, verdict in ((1, "PASS"), (2, "FAIL"), (1 + 1e-3j, "FAIL")):
        report = check(f, lambda x, k=factor: k * np.diag(np.cos(x)), fast_mode=fast_mode)
        assert report.verdict == verdict


def test_complex_results_at_real_inputs_are_refused_with_advice():
    def f(x):
        return np.exp(1j * x)

    def jac(x):
        return 1j * np.diag(np.exp(1j * x))

    with pytest.raises(ValueError, match=r"real for real x, but .*use a different method"):
        check(f, jac)
    assert calipers.gradcheck(f, X, jac=jac)


def test_a_complex_step_resolves_what_no_difference_does():
    def f(x):
        return 1e8 + np.sin(x)

    assert check(f, lambda x: np.diag(np.cos(x))).verdict == "PASS"
    assert check(f, lambda x: np.diag(np.cos(x)) * (1 + 3e-6)).verdict == "FAIL"


@MODES
def test_calls_are_counted(fast_mode):
    calls = []

    def f(x):
        calls.append(x)
        return np.sin(x)

    report = check(f, lambda x: 1.1 * np.diag(np.cos(x)), fast_mode=fast_mode)
    assert report.calls["f"] == len(calls)


def test_second_derivatives():
    forms = {
        "vjp": lambda x, w: 2 * w * np.abs(x),
        "vjp_vjp": lambda x, w, u: (2 * w * np.sign(x) * u, 2 * np.abs(x) * u),
    }
    assert calipers.gradgradcheck(lambda x: x * np.abs(x), X, **forms, method="cs")
