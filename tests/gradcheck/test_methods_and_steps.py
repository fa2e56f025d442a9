"""gradcheck with differences of one's own choice, judged by tests/data/derivative_cases.py."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

import calipers
from calipers._derivatives.fixed_step import Columns
from calipers._derivatives.fixed_step_error import RepeatedSteps
from calipers._derivatives.options import Options
from calipers._derivatives.solve import prepare, steps_of
from tests.data.derivative_mutants import KINDS

from .test_power import HOSTILE, SMOOTH, right, verdict

FIXED = ["2-point", "3-point", "5-point", "cs"]
METHODS = ["adaptive", *FIXED]
X = np.array([0.5, 1.0, 3.0])


def of(cases, method):
    return [case for case in cases if method != "cs" or case.analytic]


def sines(x):
    return np.diag(np.cos(x))


@pytest.mark.parametrize("method", FIXED)
def test_right_derivatives_are_not_accused(method):
    random = np.random.default_rng(3)
    said = Counter()
    with np.errstate(all="ignore"):
        for case in of([*SMOOTH, *HOSTILE], method):
            for x in case.points:
                near = x * (1 + 0.05 * random.uniform(-1, 1, x.shape))
                said[verdict(case, near, right(case, near), method=method)] += 1
    assert said["FAIL"] == 0
    assert said["PASS"] >= 0.6 * said.total()
    assert method != "cs" or said["PASS"] == said.total()


@pytest.mark.parametrize("method", FIXED)
@pytest.mark.parametrize("kind", ["1e-04", "sign"])
def test_wrong_derivatives_fail(method, kind):
    said = Counter()
    for number, case in enumerate(of(SMOOTH, method)):
        for x in case.points:
            jac = right(case, x)
            wrong = KINDS[kind](jac.reshape(-1, x.size), np.random.default_rng(number))
            if wrong is not None:
                said[verdict(case, x, wrong.reshape(jac.shape), method=method)] += 1
    assert said["PASS"] == 0
    assert said["FAIL"] >= 0.95 * said.total() > 50


@pytest.mark.parametrize("method", FIXED)
def test_errors_cover_the_error(method):
    inside, ratios = [], []
    for case in of(SMOOTH, method):
        for x in case.points:
            options = Options(method=method)
            problem = prepare(case.f, x, options)
            work = RepeatedSteps(problem, steps_of(problem, options))
            values, errors, _ = found = work.results(x.size)
            work(0, found)
            exact = right(case, x).reshape(-1, x.size).T
            error = np.maximum(np.abs(values - exact), 2.0**-52 * np.abs(exact))
            inside.append((error <= errors + 2.0**-52 * np.abs(exact)).ravel())
            known = exact != 0
            ratios.append(errors[known] / error[known])
    assert np.mean(np.concatenate(inside)) >= 0.999
    assert np.median(np.concatenate(ratios)) <= 200


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{}, {"fast_mode": True}, {"workers": 2}, {"scale": 0.5}])
def test_methods_go_with_other_options(method, options):
    assert calipers.gradcheck(np.sin, X, jac=sines, method=method, **options)
    report = calipers.gradcheck(
        np.sin, X, jac=lambda x: sines(x) + 1e-4, method=method, raise_exception=False, **options
    )
    assert report.verdict == "FAIL"
    if options == {"fast_mode": True}:
        assert report.calls["f"] < 500
    assert report.worst.analytic == pytest.approx(report.worst.numerical + 1e-4, abs=1e-6)


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "cs"])
def test_methods_keep_to_bounds(method):
    def f(x):
        assert x.real.min() >= 0.5
        assert x.real.max() <= 3
        return np.sin(x)

    bounds = (0.5, 3.0)
    for options in ({}, {"fast_mode": True}):
        options = {"method": method, "bounds": bounds, "raise_exception": False, **options}
        assert calipers.gradcheck(f, X, jac=sines, **options)
        assert calipers.gradcheck(f, X, jac=lambda x: 1.01 * sines(x), **options).verdict == "FAIL"


def test_steps_that_bounds_shorten_to_one_tell_no_error():
    options = {"method": "3-point", "step": 0.5, "bounds": (X - 0.05, X + 0.05)}
    report = calipers.gradcheck(np.sin, X, jac=sines, raise_exception=False, **options)
    assert report.verdict == "INCONCLUSIVE"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point"])
def test_rounding_that_is_alike_by_chance_accuses_nobody(method):
    x = np.random.default_rng(0).uniform(0.2, 1.2, 3000)
    options = Options(method=method)
    problem = prepare(lambda x: 1e7 + np.sin(x), x, options)
    work = RepeatedSteps(problem, steps_of(problem, options))
    values, errors, _ = found = work.results(x.size)
    work(0, found)
    assert np.all(np.abs(values - sines(x)) <= errors)


def test_steps_near_the_spacing_of_x():
    options = {"method": "3-point", "step": 2.0**-45, "raise_exception": False}
    report = calipers.gradcheck(np.square, X, jac=lambda x: 4 * np.diag(x), **options)
    assert report.verdict == "FAIL"


def test_complex_steps_in_fast_mode():
    x = np.linspace(0.1, 1, 300)
    options = {"method": "cs", "fast_mode": True}
    assert calipers.gradcheck(np.sin, x, jvp=lambda x, v: np.cos(x) * v, **options).calls["f"] < 9
    wrong = np.cos(x)
    wrong[17] *= 1.0001
    report = calipers.gradcheck(
        np.sin, x, jvp=lambda x, v: wrong * v, raise_exception=False, **options
    )
    assert {e.input_index for e in report.failures} == {(17,)}
    assert report.calls["f"] < 250  # a difference comes with each three complex steps


def test_complex_steps_by_an_input_that_f_does_not_depend_on():
    def jac(a, b):
        return np.diag(np.exp(a)), np.zeros((3, 3))

    f = lambda a, b: np.exp(a)  # noqa: E731
    assert calipers.gradcheck(f, (X, X), jac=jac, method="cs")


def test_a_step_is_that_of_the_method():
    asked = []

    def f(x):
        asked.append(x[0])
        return x**3

    wrong = {"jac": lambda x: np.diag(3.01 * x**2), "raise_exception": False}
    calipers.gradcheck(f, np.array([1.0]), method="2-point", step=2.0**-10, **wrong)
    steps = {round((a - 1) * 2**10, 3) for a in asked}
    assert {1.0, 1.732, 3.0} <= steps


@pytest.mark.parametrize("method", ["3-point", "cs"])
def test_compiled_functions(method):
    @numba.njit
    def returns(x):
        return np.sin(x) * x[0]

    @numba.njit
    def fills(x, out):
        out[:] = np.sin(x) * x[0]

    def jac(x):
        return sines(x) * x[0] + np.outer(np.sin(x), [1, 0, 0])

    for f, like in ((returns, None), (fills, X)):
        options = {"method": method, "out_like": like, "raise_exception": False}
        assert calipers.gradcheck(f, X, jac=jac, **options)
        assert calipers.gradcheck(f, X, jac=lambda x: jac(x) * 1.0001, **options).verdict == "FAIL"


def test_complex_steps_see_what_differences_lose():
    # Beside an offset of 1e8 a difference has seven digits left.
    def f(x):
        return 1e8 + np.sin(x)

    def slightly_wrong(x):
        return sines(x) * (1 + 3e-6)

    options = {"jac": slightly_wrong, "raise_exception": False}
    assert calipers.gradcheck(f, X, **options).verdict != "PASS"
    assert calipers.gradcheck(f, X, method="cs", **options).verdict == "FAIL"
    assert calipers.gradcheck(f, X, method="cs", jac=sines)


def test_complex_steps_of_several_inputs_and_outputs():
    def f(a, b):
        return a * b, np.exp(a)

    def jac(a, b):
        return (np.diag(b), np.diag(a)), (np.diag(np.exp(a)), np.zeros((3, 3)))

    def wrong(a, b):
        (by_a, by_b), second = jac(a, b)
        return (by_a, by_b * 1.0001), second

    assert calipers.gradcheck(f, (X, X + 1), jac=jac, method="cs")
    report = calipers.gradcheck(f, (X, X + 1), jac=wrong, method="cs", raise_exception=False)
    assert report.verdict == "FAIL"
    assert {(e.output, e.input) for e in report.failures} == {(0, 1)}


def test_complex_steps_accuse_nobody_where_f_is_not_analytic():
    def f(x):
        return np.abs(x) * x

    def jac(x):
        return np.diag(2 * x)

    assert calipers.gradcheck(f, X, jac=jac, method="cs")
    options = {"jac": lambda x: 1.05 * jac(x), "method": "cs", "raise_exception": False}
    assert calipers.gradcheck(f, X, **options).verdict in ("FAIL", "INCONCLUSIVE")


def test_second_derivatives():
    x = np.array([0.5, 2.0])
    forms = {
        "vjp": lambda x, w: 3 * x**2 * w,
        "vjp_vjp": lambda x, w, u: (6 * x * w * u, 3 * x**2 * u),
    }
    for method in METHODS:
        assert calipers.gradgradcheck(lambda x: x**3, x, method=method, **forms)
    forms["vjp_vjp"] = lambda x, w, u: (6.01 * x * w * u, 3 * x**2 * u)
    report = calipers.gradgradcheck(lambda x: x**3, x, method="cs", raise_exception=False, **forms)
    assert report.verdict == "FAIL"


def test_processes_and_checkpoints(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            assert not calipers.gradcheck(
                np.sin,
                X,
                jac=lambda x: 1.01 * sines(x),
                method="3-point",
                workers=pool,
                checkpoint=tmp_path,
                raise_exception=False,
            )
    with pytest.raises(ValueError, match="a different method"):
        calipers.gradcheck(
            np.sin,
            X,
            jac=lambda x: 1.01 * sines(x),
            method="5-point",
            checkpoint=tmp_path,
            raise_exception=False,
        )


@pytest.mark.parametrize(
    ("f", "options", "message"),
    [
        (np.sin, {"method": "4-point"}, "method must be one of"),
        (np.sin, {"method": "cs", "bounds": (-9, -8)}, "is outside its bounds"),
        (np.abs, {"method": "cs"}, "needs an f that returns complex numbers"),
    ],
)
def test_what_a_method_cannot_do_is_refused(f, options, message):
    with pytest.raises(ValueError, match=message):
        calipers.gradcheck(f, X, jac=sines, **options)


def test_complex_steps_are_for_real_inputs_and_numpys_functions():
    with pytest.raises(ValueError, match="x is complex"):
        calipers.gradcheck(np.sin, X + 0j, jac=sines, method="cs")
    torch = pytest.importorskip("torch")
    t = torch.tensor(X, requires_grad=True)
    assert calipers.gradcheck(torch.sin, t, method="5-point")
    with pytest.raises(ValueError, match="a function of NumPy arrays"):
        calipers.gradcheck(torch.sin, t, method="cs")


def test_the_first_look_is_enough_for_what_is_right():
    for method in METHODS:
        report = calipers.gradcheck(np.sin, X, jac=sines, method=method)
        assert report.calls["f"] <= 2 * X.size + 3


def test_repeated_differences_are_work_like_others():
    options = Options(method="3-point")
    problem = prepare(np.sin, X, options)
    steps = steps_of(problem, options)
    assert RepeatedSteps(problem, steps).calls == 4 * Columns(problem, steps).calls


@pytest.mark.parametrize("method", ["2-point", "3-point"])
@pytest.mark.parametrize(("off", "verdict"), [(1e-12, "INCONCLUSIVE"), (1e-6, "FAIL")])
def test_a_slope_that_rounding_of_terms_hides_at_a_root_is_not_told(method, off, verdict):
    claimed = np.array([[1.0, off]])
    report = calipers.gradcheck(
        lambda x: x[:1] - 1, np.ones(2), jac=lambda x: claimed, method=method, raise_exception=False
    )
    assert report.verdict == verdict


def in_single(x):
    return np.exp(x.astype(np.float32)).astype(float)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "2-point"},
        {"method": "3-point", "step": 1e-9},
        {"method": "2-point", "scale": 0.5},
        {"step": 1e-9},
    ],
)
@pytest.mark.parametrize("fast_mode", [False, True])
def test_steps_that_are_lost_in_the_noise_of_f_accuse_nobody(options, fast_mode):
    """No step of these moves a function that computes in float32."""
    options = {**options, "fast_mode": fast_mode, "raise_exception": False}
    report = calipers.gradcheck(in_single, X, jac=lambda x: np.diag(np.exp(x)), **options)
    assert report.verdict == "INCONCLUSIVE"


@pytest.mark.parametrize("options", [{}, {"method": "3-point"}, {"method": "5-point"}])
@pytest.mark.parametrize("fast_mode", [False, True])
def test_what_would_show_above_the_noise_is_wrong(options, fast_mode):
    options = {**options, "fast_mode": fast_mode, "raise_exception": False}
    wrong = lambda x: 1.5 * np.diag(np.exp(x))  # noqa: E731
    assert calipers.gradcheck(in_single, X, jac=wrong, **options).verdict == "FAIL"
    constant = lambda x: np.ones(3) + 0 * x  # noqa: E731
    assert calipers.gradcheck(constant, X, jac=lambda x: np.eye(3), **options).verdict == "FAIL"


@pytest.mark.parametrize("method", ["adaptive", "2-point", "3-point", "5-point"])
def test_steps_that_f_rounds_away_accuse_nobody(method):
    def rounded(x):
        return np.sin(x.astype(np.float16).astype(float))

    options = {"method": method, "step": 1e-6, "raise_exception": False}
    report = calipers.gradcheck(rounded, X, jac=sines, **options)
    assert report.verdict == "INCONCLUSIVE"
    assert "f does not change within the steps that were passed" in report.reason
    assert "step=" not in str(report).split("next:")[1]


@pytest.mark.parametrize("offset", [1e8, 1e14])
@pytest.mark.parametrize("fast_mode", [False, True])
def test_of_a_constant_rounding_may_hide_small_slopes(offset, fast_mode):
    options = {"jac": lambda x: 1e-9 * sines(x), "raise_exception": False, "fast_mode": fast_mode}
    report = calipers.gradcheck(lambda x: (offset + 1e-9 * np.sin(x)) - offset, X, **options)
    assert report.verdict in ("PASS", "INCONCLUSIVE")


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point"])
def test_the_noise_of_f_is_measured_within_bounds(method):
    options = {"method": method, "bounds": (0.5, 3.0), "raise_exception": False}
    report = calipers.gradcheck(np.sin, X, jac=lambda x: 1.0001 * sines(x), **options)
    assert report.verdict == "FAIL"
