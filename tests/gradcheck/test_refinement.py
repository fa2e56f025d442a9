"""Entries that a first look leaves vague: small ones hidden by rounding, or bent by curvature."""

import warnings

import numba
import numpy as np
import pytest

import calipers
from calipers._derivatives.sampled import SampledColumns

N = 30
STEP = np.finfo(float).eps ** (1 / 3)
COMPILED = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])


def checked(f, x, compiled, **derivatives):
    """Check f, by compiled code or by plain functions."""
    if compiled:
        f = numba.njit(f)
        derivatives = {name: numba.njit(call) for name, call in derivatives.items()}
    return calipers.gradcheck(f, x, raise_exception=False, **derivatives)


def slight(x):
    """Change by 1e-5 of x: rounding hides the seventh digit of that from a first look."""
    return 1 + 1e-5 * x


def off_by(share):
    return lambda x, v: 1e-5 * (1 + share) * v


def layer_norm(x):
    y = x - x.mean()
    return y / np.sqrt((y * y).mean())


def layer_norm_jvp(x, v):
    y = x - x.mean()
    s = np.sqrt((y * y).mean())
    y, u = y / s, v - v.mean()
    return (u - y * (y * u).mean()) / s


@COMPILED
@pytest.mark.parametrize("form", ["jvp", "vjp"])
@pytest.mark.parametrize("share", [0, 1e-8, -1e-8])
def test_small_entries_that_are_right_take_at_most_six_calls_more(compiled, form, share):
    report = checked(slight, np.linspace(1, 2, N), compiled, **{form: off_by(share)})
    assert report.verdict == "PASS"
    assert report.calls["f"] in range(6 * N, 8 * N + 10)


@COMPILED
@pytest.mark.parametrize("form", ["jvp", "vjp"])
@pytest.mark.parametrize("share", [1e-5, -1e-5, 1e-4, -2.0, 1.0])
def test_small_entries_that_are_wrong_are_found(compiled, form, share):
    report = checked(slight, np.linspace(1, 2, N), compiled, **{form: off_by(share)})
    assert report.counts["FAIL"] == N


def test_small_entries_are_looked_at_by_workers_too():
    for share, verdict in ((0, "PASS"), (1e-4, "FAIL")):
        options = {"jvp": off_by(share), "workers": 2, "raise_exception": False}
        assert calipers.gradcheck(slight, np.linspace(1, 2, N), **options).verdict == verdict


@COMPILED
def test_farther_steps_do_not_overrule_the_near_ones(compiled):
    """Around 0 the slope is larger by 1e-10, in a range that farther steps leave behind."""
    width = 6e-6
    f = lambda x: 1e-5 * x + 1e-10 * width * np.tanh(x / width)  # noqa: E731
    report = checked(f, np.zeros(3), compiled, jvp=off_by(0))
    assert report.calls["f"] > 3 * 10  # a second look is taken


def test_without_a_farther_step_none_is_counted():
    x = np.linspace(1e-5, 2e-5, N)
    compiled, plain = (checked(slight, x, kind, jvp=off_by(0)).calls["f"] for kind in (True, False))
    assert compiled == plain


@COMPILED
def test_each_form_has_to_be_right(compiled):
    jvp, vjp = off_by(0), off_by(1e-4)
    report = checked(slight, np.linspace(1, 2, N), compiled, jvp=jvp, vjp=vjp)
    assert report.counts["FAIL"] == N
    assert report.worst.form == "vjp"


@COMPILED
def test_a_dense_function_is_not_sampled_along_each_column(compiled):
    x = np.random.default_rng(3).standard_normal(200)
    report = checked(layer_norm, x, compiled, jvp=layer_norm_jvp)
    assert report.verdict == "PASS"
    assert report.calls["f"] < 15 * len(x)


@COMPILED
def test_the_parts_of_complex_numbers_are_settled_too(compiled):
    x = np.linspace(1, 2, N) * (1 + 0.5j)
    assert checked(slight, x, compiled, jvp=off_by(0)).verdict == "PASS"
    assert checked(slight, x, compiled, jvp=off_by(1e-4)).counts["FAIL"] > 0


@COMPILED
def test_narrow_numbers_are_settled_by_their_steps(compiled):
    x = np.linspace(1, 2, N).astype(np.float32)
    f = lambda x: np.float32(1) + np.float32(1e-2) * x  # noqa: E731
    right, wrong = (lambda x, v: np.float32(1e-2) * v), (lambda x, v: np.float32(1.05e-2) * v)
    assert checked(f, x, compiled, jvp=right).verdict == "PASS"
    assert checked(f, x, compiled, jvp=wrong).counts["FAIL"] == N


@COMPILED
@pytest.mark.parametrize("size", [1.0, 1e-3])
@pytest.mark.parametrize("curvature", [0.0, 1.0])
def test_a_kink_at_x_is_no_curvature(compiled, size, curvature):
    f = lambda x: 1 + size * np.abs(x) + curvature * x * x  # noqa: E731
    jvp = lambda x, v: 0 * v  # noqa: E731
    assert checked(f, np.zeros(3), compiled, jvp=jvp).verdict == "NONSMOOTH"


@COMPILED
def test_curvature_at_x_is_no_kink(compiled):
    f = lambda x: 1 + 1e-2 * x + 1e3 * x * x + x**4  # noqa: E731
    report = checked(f, np.zeros(3), compiled, jvp=lambda x, v: 1e-2 * v)
    assert report.verdict == "PASS"
    assert report.calls["f"] < 30


@COMPILED
@pytest.mark.parametrize("beside", [0.05, 0.2, 0.3, 1 / 3, 0.4, 0.6, 0.95])
def test_the_mean_of_slopes_beside_a_kink_is_not_confirmed(compiled, beside):
    """A derivative that was itself taken by differences has what a first look sees."""
    x = np.full(2, 0.25)
    kink = 0.25 + beside * STEP
    f = lambda x: 3 + np.maximum(x - kink, 0.0)  # noqa: E731
    mean = 0.5 * (1 - beside)
    assert checked(f, x, compiled, jvp=lambda x, v: mean * v).verdict != "PASS"
    assert checked(f, x, compiled, jvp=lambda x, v: 0 * v).verdict != "FAIL"


def test_farther_steps_may_leave_the_domain():
    def f(x):
        if not min(x) > 0:
            raise ValueError
        return 1 + 1e-9 * np.log(x)

    x = np.array([1e-4, 1e-3, 1e-2, 1.0])
    for g in f, lambda x: 1 + 1e-9 * np.log(x):
        report = calipers.gradcheck(g, x, jvp=lambda x, v: 1e-9 * v / x, raise_exception=False)
        assert report.verdict == "PASS"


def test_what_f_raises_at_a_farther_step_names_the_column():
    @numba.njit
    def f(x):
        if x[1] > 1.0001:
            raise ValueError("too far")
        return 1 + 1e-5 * x

    with pytest.raises(ValueError, match="too far") as caught:
        calipers.gradcheck(f, np.ones(3), jvp=numba.njit(off_by(0)))
    assert any("x[1]" in note for note in caught.value.__notes__)


FIVE = np.finfo(float).eps ** 0.2


def five_point(f, x, h):
    return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h)


@COMPILED
@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: 1 + 1e-5 * x + 1e-9 * np.maximum(x - 1.0001, 0), 1.0),
        (lambda x: 1 + 1e-6 * np.sin(140 * x), 0.0),
        (lambda x: 3 + 1e-9 * np.sin(x), 1e-4),
    ],
)
@pytest.mark.parametrize("share", [1.0, 2.0])
def test_a_claim_by_the_same_five_points_confirms_nothing(compiled, f, x, share):
    claim = five_point(f, x, min(share * FIVE, 0.25 * x or 1))
    report = checked(f, np.array([x]), compiled, jvp=lambda x, v: claim * v)
    assert report.verdict != "PASS"


@COMPILED
def test_beside_the_step_of_the_caller_there_is_no_farther_one(compiled):
    def f(x):
        if not abs(x[0]) <= 0.3:
            raise ValueError("too far")
        return 1 - np.sqrt(1 - x * x)

    report = checked_with_step(f, compiled, step=5e-3)
    assert report.verdict == "PASS"


def checked_with_step(f, compiled, step):
    jvp = lambda x, v: 0 * v  # noqa: E731
    if compiled:
        f, jvp = numba.njit(f), numba.njit(jvp)
    return calipers.gradcheck(f, np.zeros(1), jvp=jvp, step=step, raise_exception=False)


@COMPILED
@pytest.mark.parametrize(
    "cusp", [lambda x: 2e-4 * np.cbrt(x) ** 2, lambda x: 3e-5 * np.sqrt(np.abs(x))]
)
def test_a_cusp_beside_curvature_is_not_smooth(compiled, cusp):
    if compiled:
        cusp = numba.njit(cusp)
    f = lambda x: x + 1e4 * x * x + cusp(x)  # noqa: E731
    assert checked(f, np.zeros(2), compiled, jvp=lambda x, v: v).verdict != "PASS"


@COMPILED
def test_a_slope_beside_a_kink_is_not_confirmed_by_curvature(compiled):
    x = np.full(1, 0.25)
    kink = 0.25 + 1.8e-6
    f = lambda x: (  # noqa: E731
        3 + 500 * (x - 0.25) ** 2 + 3.6e-5 * (x - 0.25) + 1.2e-4 * np.maximum(x - kink, 0)
    )
    assert checked(f, x, compiled, jvp=lambda x, v: 7.816e-5 * v).verdict != "PASS"


def test_columns_with_steps_of_zero_warn_of_nothing():
    @numba.njit
    def f(x):
        s = 0.0
        for i in range(20000):
            s += np.sin(i * 1.0)
        return 1 + 1e-5 * x + 0 * s

    x, step = np.linspace(1, 2, 60), np.full(60, 6e-6)
    step[::7] = 0
    with warnings.catch_warnings(), calipers.num_threads(2):
        warnings.simplefilter("error")
        options = {"step": step, "bounds": (x - 1, x + 1)}
        assert calipers.gradcheck(f, x, jac=lambda x: 1e-5 * np.eye(60), **options)


def test_memory_that_was_used_before_changes_no_verdict(monkeypatch):
    """Columns have different numbers of samples: the rest of their rows is memory of before."""
    results = SampledColumns.results

    def filled(self, count):
        buffers = results(self, count)
        for array in buffers[:4]:
            array[:] = 1e300
        return buffers

    monkeypatch.setattr(SampledColumns, "results", filled)
    random = np.random.default_rng(0)
    matrix, x = random.standard_normal((100, 100)), random.standard_normal(100)

    def jac(x):
        return matrix / np.cosh(matrix @ x)[:, None] ** 2

    report = checked(lambda x: np.tanh(matrix @ x), x, False, jac=jac)
    assert report.verdict == "PASS"
