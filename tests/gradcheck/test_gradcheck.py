"""What a report of gradcheck holds, the cost of a check, and what is refused."""

import json
import subprocess
import sys

import numba
import numpy as np
import pytest

import calipers
from calipers._derivatives.scales import FIRST_PASS, FRACTIONS
from tests.data.derivative_functions import DISPLACED
from tests.data.gradcheck_functions import MATRIX, checked, sine_vjp
from tests.data.peak_memory import PEAK

X = np.array([[0.5, 1.0, 2.0], [-1.0, 0.25, 3.0]])


def wrong_report(**options):
    return calipers.gradcheck(
        np.sin, X, vjp=lambda x, w: 2 * w * np.cos(x), raise_exception=False, **options
    )


def test_a_report_in_words():
    report = wrong_report(seed=7)
    text = str(report)
    assert text.startswith("FAIL: d out[0][1, 2] / d in[0][1, 2] is wrong: analytic ")
    assert "twice too large" in " ".join(text.splitlines()[:2])
    for part in ("6 FAIL", f"f {report.calls['f']}", "seed=7"):
        assert part in text
    assert len(text.splitlines()) <= 25
    assert not report
    assert bool(calipers.gradcheck(np.sin, X, vjp=lambda x, w: w * np.cos(x)))


def test_the_worst_entry_comes_first_with_its_place():
    def vjp(x, w):
        g = w * np.cos(x)
        g[1, 2] *= 3
        return g

    report = calipers.gradcheck(np.sin, X, vjp=vjp, raise_exception=False)
    entry = report.worst
    assert (entry.output_index, entry.input_index) == ((1, 2), (1, 2))
    assert (entry.row, entry.column) == (5, 5)
    assert entry.analytic == pytest.approx(3 * np.cos(3.0))
    assert entry.numerical == pytest.approx(np.cos(3.0), abs=entry.error)
    assert report.counts == {"FAIL": 1, "NONSMOOTH": 0, "INCONCLUSIVE": 0, "PASS": 35}


def test_the_largest_error_is_that_of_any_column():
    """Of both columns, which are looked at again since they are wrong."""

    def f(x):
        return np.array([np.exp(x[0]) + np.sin(1e3 * x[0]), x[1] * x[1]])

    def errors(columns):
        wrong = np.diag([np.exp(1.0) + 1e3 * np.cos(1e3), 2.0])
        wrong[columns, columns] *= 1.5
        return checked(f, np.ones(2), jac=lambda x: wrong).fd_error

    assert errors([0, 1]) == errors([0])


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_entries_of_each_form_are_counted(factor):
    report = checked(
        lambda x: MATRIX @ x,
        X[0],
        jac=lambda x: np.where(MATRIX == 3, factor * MATRIX, MATRIX),
        vjp=lambda x, w: MATRIX.T @ w,
        jvp=lambda x, v: MATRIX @ v,
    )
    assert sum(report.counts.values()) == 27
    assert report.counts["FAIL"] == (factor != 1)


def test_a_report_for_machines():
    found = json.loads(json.dumps(wrong_report().to_dict()))
    assert found["verdict"] == "FAIL"
    assert len(found["failures"]) == 6


@pytest.mark.parametrize(
    "report",
    [wrong_report(), calipers.gradcheck(np.sin, X, jac=None, vjp=lambda x, w: w * np.cos(x))],
    ids=["wrong", "right"],
)
def test_a_report_draws(report, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "report.png"
    report.plot().savefig(path)
    assert path.stat().st_size > 5000


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_rows_and_columns_on_a_picture_are_integers(n):
    pytest.importorskip("matplotlib")
    wrong = lambda x, w: w + 1.5 * (w * (x == x[0]))  # noqa: E731
    x = np.arange(1.0, n + 1)
    figure = calipers.gradcheck(np.copy, x, vjp=wrong, raise_exception=False).plot()
    axes = figure.axes[0]
    for ticks, ends in ((axes.get_xticks(), axes.get_xlim()), (axes.get_yticks(), axes.get_ylim())):
        shown = [x for x in ticks if min(ends) <= x <= max(ends)]
        assert shown == [round(x) for x in shown] != []
    assert figure.get_suptitle() == f"FAIL: entries that do not agree: 1 of {n * n}"


def test_each_verdict_has_its_error():
    def steep(x):
        return np.sin(1e15 * x)

    cases = [
        (np.sin, X, lambda x, w: 2 * w * np.cos(x), calipers.WrongDerivativeError),
        (np.abs, np.zeros(2), lambda x, w: w * np.sign(x), calipers.NonsmoothError),
        (steep, np.ones(1), lambda x, w: w * 1e15 * np.cos(1e15 * x), calipers.InconclusiveError),
    ]
    for f, x, vjp, error in cases:
        with pytest.raises(error) as caught:
            calipers.gradcheck(f, x, vjp=vjp)
        report = caught.value.report
        assert error.__name__.lower().startswith(
            {"FAIL": "wrong"}.get(report.verdict, report.verdict.lower())
        )
        if report.verdict != "FAIL":
            assert calipers.gradcheck(f, x, vjp=vjp, allow=[report.verdict])


def test_an_entry_that_is_off_by_1e_4_among_1e10_is_found():
    n = 100_000
    x = np.linspace(0.5, 1.5, n)
    calls = []

    def f(x):
        calls.append(1)
        return x**3

    def vjp(x, w):
        g = 3 * w * x**2
        g[54321] *= 1 + 1e-4
        return g

    report = calipers.gradcheck(f, x, vjp=vjp, fast_mode=True, raise_exception=False)
    assert report.worst.input_index == report.worst.output_index == (54321,)
    calls.clear()
    calipers.gradcheck(f, x, vjp=lambda x, w: 3 * w * x**2, fast_mode=True)
    assert len(calls) <= 30


def test_fast_mode_calls_f_a_few_times_for_many_outputs():
    def vjp(x, w):
        return w * (3 * x**2 - 1)

    for n, seed in [*((1000, seed) for seed in range(8)), (100_000, 0)]:
        x = np.random.default_rng(seed).normal(size=n)
        report = calipers.gradcheck(lambda x: x**3 - x, x, vjp=vjp, fast_mode=True, seed=seed)
        assert report.calls["f"] <= 60, report  # the first samples suffice for a sum of outputs


@pytest.mark.parametrize("seed", range(4))
def test_fast_mode_passes_a_sort_of_which_outputs_change_places_within_the_steps(seed):
    x = np.random.default_rng(seed).normal(size=8000)

    def vjp(x, w):
        gradient = np.empty_like(x)
        gradient[np.argsort(x)] = w
        return gradient

    options = {"fast_mode": True, "raise_exception": False, "seed": seed}
    assert calipers.gradcheck(np.sort, x, vjp=vjp, **options)
    wrong = calipers.gradcheck(np.sort, x, vjp=lambda x, w: 1.001 * vjp(x, w), **options)
    assert wrong.verdict == "FAIL"


@pytest.mark.parametrize("fast_mode", [False, True])
def test_calls_of_f_are_all_counted(fast_mode):
    calls = []

    def f(x, y):
        calls.append(1)
        return x * y

    options = {"vjp": lambda x, y, w: (w * y, w * x), "fast_mode": fast_mode}
    for wrong in (1, 2):
        calls.clear()
        report = checked(lambda x, y, wrong=wrong: wrong * f(x, y), (X[0], X[0]), **options)
        assert report.calls["f"] == len(calls)


def test_products_with_a_jacobian_do_not_ask_for_it_again():
    calls = []

    def jac(x):
        calls.append(1)
        return np.diag(2 * x)

    report = checked(lambda x: x * x, np.linspace(1, 2, 50), jac=jac, fast_mode=True)
    assert report.verdict == "PASS"
    assert report.calls["jac"] == len(calls) == 2


def test_slopes_that_workers_send_are_judged_as_they_arrive():
    x, told = np.linspace(1, 2, 200), []
    options = {"vjp": lambda x, w: 2 * w * x, "progress": lambda done, total: told.append(done)}
    report = calipers.gradcheck(lambda x: x * x, x, workers=map, **options)
    assert report.calls["f"] == 2 * x.size + 2
    assert len(told) > 2


def test_compiled_functions_give_the_verdicts_of_plain_ones():
    @numba.njit
    def f(x):
        return np.sin(x) * x.sum()

    x = np.linspace(0.5, 2, 7)

    def jac(x):
        return np.diag(np.cos(x) * x.sum()) + np.sin(x)[:, None]

    for given, verdict in ((jac, "PASS"), (lambda x: 1.001 * jac(x), "FAIL")):
        reports = [
            calipers.gradcheck(function, x, jac=given, raise_exception=False)
            for function in (f, f.py_func)
        ]
        assert {report.verdict for report in reports} == {verdict}


@pytest.mark.parametrize(
    ("f", "vjp", "jacobians"),
    [
        ("x * x.sum()", "w * x.sum() + w @ x", 2),
        ("x**3", "3 * w * x**2", 0.5),  # of which only what is not 0 is kept
    ],
)
def test_peak_memory_is_two_jacobians(f, vjp, jacobians):
    code = f"""
import numpy as np, calipers
{PEAK}
f, given = lambda x: {f}, dict(vjp=lambda x, w: {vjp})
calipers.gradcheck(f, np.ones(10), **given)
before = peak()
assert calipers.gradcheck(f, np.linspace(0.5, 1.5, 2500), **given).verdict == "PASS"
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= jacobians * 2500**2 * 8


REFUSED = {
    "f": ((3, X), {}, TypeError, "f must be callable, got int"),
    "jac": ((np.sin, X), {"jac": 3}, TypeError, "jac must be callable, got int"),
    "nothing": ((np.sin, X), {"vjp": None}, ValueError, "at least one of jac=, vjp= and jvp="),
    "eps": ((np.sin, X), {"eps": 0.0}, ValueError, "eps must be positive and finite, got 0.0"),
    "no number": ((np.sin, X), {"eps": "x"}, ValueError, "positive and finite, got 'x'"),
    "endless": ((np.sin, X), {"eps": np.inf}, ValueError, "eps must be positive and finite"),
    "both": ((np.sin, X), {"eps": 1e-6, "step": 1e-6}, ValueError, "pass only one of them"),
    "rtol": ((np.sin, X), {"rtol": -1.0}, ValueError, "rtol must be a finite number"),
    "convention": ((np.sin, X), {"convention": "x"}, ValueError, "convention must be one of"),
    "allow": ((np.sin, X), {"allow": ["FAIL"]}, ValueError, "allow must be a collection"),
    "allow none": ((np.sin, X), {"allow": None}, ValueError, "allow must be a collection"),
    "args": ((np.sin, X), {"args": 3}, TypeError, "args must be a tuple of the other arguments"),
    "kwargs": ((np.sin, X), {"kwargs": 3}, TypeError, "kwargs must be a dict of f's arguments"),
    "outputs": (
        (np.sin, X),
        {"nondifferentiable_outputs": 0},
        TypeError,
        "nondifferentiable_outputs must be a sequence of positions, got 0",
    ),
    "no outputs": (
        (np.sin, X),
        {"nondifferentiable_outputs": None},
        TypeError,
        "nondifferentiable_outputs must be a sequence of positions, got None",
    ),
    "float outputs": (
        (np.sin, X),
        {"nondifferentiable_outputs": [0.0]},
        TypeError,
        "nondifferentiable_outputs must be a sequence of positions",
    ),
    "float argnums": ((np.sin, X), {"argnums": 1.0}, ValueError, "argnums names input 1.0"),
    "integers": (
        (np.sin, [1, 2]),
        {},
        ValueError,
        "nothing can be differentiated: pass the numbers of one input as an array of floats",
    ),
    "an array of integers": (
        (np.sin, np.array([1, 2])),
        {},
        ValueError,
        "of dtype int64: nothing can be differentiated: pass integers as floats",
    ),
    "longdouble": ((np.sin, np.ones(2, np.longdouble)), {}, TypeError, "float32 or 64"),
    "argnums": ((np.sin, X), {"argnums": 3}, ValueError, "argnums names input 3"),
    "no argnums": ((np.sin, X), {"argnums": []}, ValueError, "argnums is empty"),
    "objects": (
        (np.sin, np.array([None])),
        {},
        ValueError,
        "got ndarray of dtype object: nothing can be differentiated",
    ),
    "out_like": ((np.sin, X), {"out_like": "a"}, TypeError, "out_like must be an array .* 'a'"),
    "outs_like": ((np.sin, X), {"out_like": [None]}, TypeError, r"out_like must .* \[None\]"),
    "undefined": (
        (np.sin, X),
        {"vjp": None, "jac": np.cos, "check_undefined_grad": True},
        ValueError,
        "tests vjp, which is not checked: pass vjp=, or omit check_undefined_grad",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    args, options, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        calipers.gradcheck(*args, **{"vjp": lambda x, w: w * np.cos(x), **options})


def test_outputs_that_have_no_differences_are_refused():
    with pytest.raises(TypeError, match="output 0 of f has dtype"):
        calipers.gradcheck(lambda x: np.sin(x).astype(np.longdouble), X[0], vjp=sine_vjp)


@pytest.mark.parametrize("name", ["float16", "longdouble", "bfloat16"])
def test_outputs_that_have_no_differences_may_be_left_out(name):
    dtype = getattr(pytest.importorskip("ml_dtypes"), name) if name == "bfloat16" else name

    def f(x):
        return np.sin(x), np.sin(x).astype(dtype)

    def vjp(x, w):
        return sine_vjp(x, w[0])

    assert calipers.gradcheck(f, X[0], vjp=vjp, nondifferentiable_outputs=[1])
    with pytest.warns(calipers.CalipersWarning, match="compared nothing"):
        calipers.gradcheck(lambda x: f(x)[1], X[0], vjp=sine_vjp, nondifferentiable_outputs=[0])


def test_inputs_in_the_other_byte_order():
    other = X[0].astype(X[0].dtype.newbyteorder())
    assert calipers.gradcheck(np.sin, other, vjp=sine_vjp)


@pytest.mark.parametrize("name", ["args", "kwargs", "outputs"])
def test_what_is_refused_of_second_derivatives(name):
    args, options, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        calipers.gradgradcheck(*args, hvp=lambda x, v: -v * np.sin(x), **options)


def test_second_derivatives_need_something_to_check():
    with pytest.raises(ValueError, match="vjp_vjp= or vjp_jvp=, or hess= or hvp="):
        calipers.gradgradcheck(np.sin, X, vjp=lambda x, w: w * np.cos(x))
    with pytest.raises(ValueError, match="one real number"):
        calipers.gradgradcheck(np.sin, X, hess=lambda x: x)


def test_a_wrong_first_derivative_is_told_of_a_second_that_fits_it():
    second = {"vjp": lambda x, w: 3 * w, "vjp_vjp": lambda x, w, u: (0 * u, 3 * u)}
    report = calipers.gradgradcheck(lambda x: 2 * x, X, **second, raise_exception=False)
    assert report.verdict == "FAIL"
    assert "second order" not in report.reason
    report = calipers.gradgradcheck(lambda x: 2 * x, X, **second, first_order=False)
    assert report.reason.startswith("second order")


def test_threads_check_at_once():
    from concurrent.futures import ThreadPoolExecutor

    def check(k):
        x = np.linspace(0.5, 1 + k, 50)
        return calipers.gradcheck(np.sin, x, jac=lambda x: np.diag(np.cos(x))).verdict

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(check, range(12))) == {"PASS"}


def test_an_input_that_products_do_not_resolve_hides_no_error_in_another():
    def f(x, y):
        return np.sin(x), np.abs(y)

    def vjp(x, y, w):
        return 2 * w[0] * np.cos(x), w[1] * np.sign(y)

    x, y = np.array([0.5, 1.0]), np.array([0.0, 1.0])
    report = calipers.gradcheck(f, (x, y), vjp=vjp, fast_mode=True, raise_exception=False)
    assert report.verdict == "FAIL"
    assert {entry.input for entry in report.failures if entry.verdict == "FAIL"} == {0}


def test_rounding_of_a_constant_is_no_pole():
    def f(x):
        return 1 + 2.0**-52 * (x == 0.3)

    report = calipers.gradcheck(f, np.array([0.3]), jac=lambda x: np.eye(1), raise_exception=False)
    assert report.verdict == "FAIL"


def test_small_deviations_everywhere_in_a_large_jacobian_are_not_decided_by_products():
    x = np.linspace(0.5, 1.5, 5000)
    off = {"vjp": lambda x, w: w * np.cos(x) * (1 + 1e-9), "fast_mode": True}
    report = calipers.gradcheck(np.sin, x, **off, raise_exception=False)
    assert report.verdict == "INCONCLUSIVE"
    assert "without fast_mode" in report.reason
    assert calipers.gradcheck(np.sin, x[:100], **off)


@pytest.mark.parametrize("at", [0, 299])
@pytest.mark.parametrize("slope", [-1.0, 0.8])
def test_a_kink_of_a_compiled_function_is_seen_where_the_mean_of_its_slopes_is_claimed(at, slope):
    @numba.njit
    def f(x, slope):
        return np.where(x > 0, x, slope * x)

    def mean(x, slope):
        return np.diag(np.where(x > 0, 1.0, (1 + slope) / 2))

    x = np.linspace(1, 2, 300)
    x[at] = 0
    report = calipers.gradcheck(f, x, args=(slope,), jac=mean, raise_exception=False)
    assert report.verdict == "NONSMOOTH"
    assert [(e.row, e.column) for e in report.failures] == [(at, at)]


def test_a_kink_whose_mean_slope_is_zero_is_accepted_with_the_callers_step():
    report = checked(np.abs, np.zeros(1), jac=lambda x: np.zeros((1, 1)), eps=1e-6)
    assert report.verdict == "PASS"


def test_compiled_columns_are_judged_by_their_own_sizes_and_steps():
    """What is nothing beside the rest of its row and column is noise, and costs no second look."""
    random = np.random.default_rng(0)
    a = random.uniform(1, 2, (200, 200))
    a[:, 0] = 1e-8
    a[random.random(a.shape) < 0.1] = 1e-9

    @numba.njit
    def f(x, a):
        return a @ x

    x = np.ones(200)
    x[0] = 1e3
    with calipers.num_threads(1):  # one block
        report = calipers.gradcheck(f, x, args=(a,), jac=lambda x, a: a)
    assert report.calls["f"] < 2 * 200 + 60


def test_columns_of_a_second_compiled_input_are_its_own():
    @numba.njit
    def f(x, y):
        return x * y

    def jac(x, y):
        return [np.diag(y), np.diag(x)]

    def wrong(x, y):
        found = jac(x, y)
        found[1][250, 250] *= 1.001
        return found

    inputs = np.linspace(1, 2, 300), np.linspace(3, 4, 300)
    assert calipers.gradcheck(f, inputs, jac=jac).calls["f"] < 2 * 600 + 60
    report = calipers.gradcheck(f, inputs, jac=wrong, raise_exception=False)
    assert [(e.input, e.input_index) for e in report.failures] == [(1, (250,))]


def test_an_error_of_a_compiled_function_tells_where_x_was_displaced():
    @numba.njit
    def f(x):
        if x[123] > 1:
            raise ValueError("too far")
        return x * x

    with pytest.raises(ValueError, match="too far") as raised:
        calipers.gradcheck(f, np.ones(200), vjp=lambda x, w: 2 * w * x)
    displaced = DISPLACED.replace("perturbed", "perturbed by 6.06e-06")
    assert raised.value.__notes__ == [f"raised by f with x[123] {displaced}"]


@numba.njit
def compiled_product(x):
    return x * x[::-1]


def product_jac(x):
    return np.diag(x[::-1]) + np.fliplr(np.diag(x))


LONG = np.linspace(1, 2, 300)


def test_an_error_near_a_compiled_point_tells_where_x_was_displaced():
    step = 2 * FRACTIONS[FIRST_PASS[8]]

    @numba.njit
    def f(x):
        if 0.99 * step < x[5] - 2 < 1.01 * step:  # where no other difference is taken
            raise ValueError("too near")
        return x * x

    with pytest.raises(ValueError, match="too near") as caught:
        calipers.gradcheck(f, np.full(70, 2.0), jac=lambda x: np.diag(2.1 * x))
    assert caught.value.__notes__ == [
        f"raised by f with x[5] {DISPLACED.replace('perturbed', f'perturbed by {step:.3g}')}"
    ]


def test_all_forms_of_a_compiled_function_are_judged():
    def wrong(x, v):
        found = product_jac(x) @ v
        found[7] += 1e-3 * v[9]
        return found

    report = calipers.gradcheck(
        compiled_product, LONG, jac=product_jac, jvp=wrong, raise_exception=False
    )
    assert [(e.form, e.row, e.column) for e in report.failures] == [("jvp", 7, 9)]


def test_a_step_of_0_leaves_a_column_of_a_compiled_function_out():
    def wrong(x):
        found = product_jac(x)
        found[:, 201] = 7
        return found

    step = np.full(300, 1e-4)
    step[201] = 0
    report = calipers.gradcheck(compiled_product, LONG, jac=wrong, step=step)
    assert report.verdict == "PASS"
    assert report.reason.endswith(
        "in every entry, except for 1 column without a step (it is 0, or x is not finite)"
    )
    assert report.calls["f"] < 2 * 299 + 30


@pytest.mark.parametrize("fast_mode", [False, True])
def test_columns_that_are_left_out_are_counted(fast_mode):
    wrong = {"vjp": lambda x, w: sine_vjp(x, w) * [1, 5, 1], "step": [1e-3, 0, 1e-3]}
    report = checked(np.sin, X[0], **wrong, fast_mode=fast_mode)
    assert report.verdict == "PASS"
    assert "except for 1 column without a step" in report.reason


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("method", ["adaptive", "3-point", "cs"])
def test_elements_that_are_not_finite_are_left_out_and_counted(method, fast_mode):
    def f(x):
        return np.where(np.isfinite(x), x, 0) ** 2

    def jac(x):
        return np.diag(np.where(np.isfinite(x), 2 * x, 7))

    x = np.array([1.0, np.nan, 2.0, np.inf])
    options = {"method": method, "fast_mode": fast_mode, "raise_exception": False}
    report = calipers.gradcheck(f, x, jac=jac, **options)
    assert report.verdict == "PASS"
    assert report.reason.endswith("for 2 columns without a step (it is 0, or x is not finite)")
    report = calipers.gradcheck(f, x, jac=lambda x: 1.001 * jac(x), **options)
    assert report.verdict == "FAIL"
    assert {e.input_index for e in report.failures} <= {(0,), (2,)}


def test_elements_of_a_compiled_function_that_are_not_finite_are_left_out():
    @numba.njit
    def f(x):
        return np.where(np.isfinite(x), x * x, 0.0)

    @numba.njit
    def tangent(x, v):
        return np.where(np.isfinite(x), 2 * x * v, 0.0)

    x = LONG.copy()
    x[201] = np.nan
    report = calipers.gradcheck(f, x, jvp=tangent)
    assert report.verdict == "PASS"
    assert "except for 1 column" in report.reason


def test_nothing_is_compared_where_no_element_is_finite():
    with pytest.warns(calipers.CalipersWarning, match="compared nothing: no element"):
        report = calipers.gradcheck(np.nan_to_num, np.array([np.nan]), jac=lambda x: x[None])
    assert report.vacuous


def test_a_lost_step_of_a_compiled_function_is_refused():
    step = np.full(300, 1e-4)
    step[201] = 1e-20
    with pytest.raises(ValueError, match="the step of element 201 is lost in rounding"):
        calipers.gradcheck(compiled_product, LONG, jac=product_jac, step=step)


def test_a_compiled_function_that_changes_a_displaced_argument_is_refused():
    @numba.njit
    def f(x):
        if x[5] > 2:
            x[4] = 0  # of which no result tells
        y = x * x
        y[4] = 0
        return y

    slopes = np.full(300, 4.0)
    slopes[4] = 0
    with pytest.raises(ValueError, match="f changes its argument"):
        calipers.gradcheck(f, np.full(300, 2.0), vjp=lambda x, w: w * slopes)


def test_a_compiled_derivative_that_changes_one_of_many_cotangents_is_asked_one_by_one():
    @numba.njit
    def vjp(x, w):
        found = 2 * w * x
        if w[5] == 1 and np.sum(np.abs(w)) == 1:
            w[:] = 7
        return found

    report = calipers.gradcheck(lambda x: x * x, LONG, vjp=vjp)
    assert report.verdict == "PASS"


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_that_float32_loses_is_refused(compiled):
    f = numba.njit(lambda x: x * x) if compiled else np.square
    x = np.full(4, 100, np.float32)
    with pytest.raises(ValueError, match="the step of element 0 is lost in rounding"):
        calipers.gradcheck(f, x, jac=lambda x: np.diag(7 * x), eps=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_slopes_at_the_ends_of_the_range_confirm_nothing_wrong(compiled):
    def verdict(f, x, claim):
        f = numba.njit(f) if compiled else f
        wrong = {"jac": lambda x: np.diag(np.full(x.size, claim)), "raise_exception": False}
        return calipers.gradcheck(f, np.array(x), **wrong).verdict

    assert verdict(lambda x: 1.2e308 * x, [1e-3, 2e-3], 5.0) == "FAIL"
    assert verdict(lambda x: 1.2e308 * x, [1e-3, 2e-3], 1.2e308) == "PASS"
    assert verdict(lambda x: np.exp(x), [709.782], 1.0) != "PASS"
    assert verdict(lambda x: np.where(x > 1, np.inf, x), [1.0, 1.0], 7.0) != "PASS"


def test_what_is_not_finite_is_not_called_noise():
    def f(x):
        return np.where(x > 1, np.inf, x)

    report = calipers.gradcheck(f, np.array([0.5, 2.0]), vjp=lambda x, w: w, raise_exception=False)
    assert report.verdict == "INCONCLUSIVE"
    assert report.reason.endswith("f is not finite at x")


MASKED = np.ma.masked_array([0.1, 0.2, 0.3], [0, 1, 0])


@pytest.mark.parametrize(
    ("f", "x", "given", "name"),
    [
        (np.sin, MASKED, {"vjp": lambda x, w: w * np.cos(x)}, "input 0"),
        (np.sin, MASKED.data, {"jac": lambda x: np.ma.diag(np.cos(x)) * MASKED}, "jac"),
        (np.sin, MASKED.data, {"vjp": lambda x, w: w * np.cos(x) + MASKED}, "vjp"),
        (np.sin, MASKED.data, {"jvp": lambda x, v: v * np.cos(x) + MASKED}, "jvp"),
        (lambda x: x + MASKED, MASKED.data, {"vjp": lambda x, w: w}, "output 0 of f"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_masked_elements_have_no_value(f, x, given, name):
    with pytest.raises(ValueError, match=f"{name} has masked elements, which have no value"):
        calipers.gradcheck(f, x, **given)


def test_masked_cotangents_have_no_value():
    given = {"vjp": np.multiply, "vjp_vjp": lambda x, w, u: (u * w, u * x)}
    with pytest.raises(ValueError, match="grad_outputs has masked elements, which have no value"):
        calipers.gradgradcheck(np.sin, MASKED.data, MASKED, **given, first_order=False)
