"""The functions of benchmarks.validation have the Jacobians that they claim, and are counted."""

import json

import numpy as np
import pytest

pytest.importorskip("mpmath")
pytest.importorskip("scipy")

import calipers
from benchmarks.validation import __main__ as program
from benchmarks.validation.checks import Results, outcome
from benchmarks.validation.exact import FLOATING, mp
from benchmarks.validation.kinks import at_kinks, near_kinks, resembling_kinks
from benchmarks.validation.random_functions import UNARY, draw, problem
from benchmarks.validation.tied import tied

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@DTYPES
def test_jacobians_equal_differences_in_multiple_precision(dtype):
    for index in range(25):
        truth = draw(dtype, 1, index)
        x = [mp.mpf(float(element)) for element in truth.x]
        for j in range(len(x)):
            step = mp.mpf(10) ** -25 * (abs(x[j]) or mp.mpf(10) ** -8)
            plus = truth.formula.exact([*x[:j], x[j] + step, *x[j + 1 :]])
            minus = truth.formula.exact([*x[:j], x[j] - step, *x[j + 1 :]])
            slopes = np.array(
                [float((a - b) / (2 * step)) for a, b in zip(plus, minus, strict=True)]
            )
            np.testing.assert_allclose(truth.jacobian[:, j], slopes, rtol=1e-9, atol=0)


@DTYPES
def test_digits_suffice(dtype):
    """Twice the digits change no entry."""
    for index in range(10):
        truth = draw(dtype, 2, index)
        with mp.workdps(120):
            x = [mp.mpf(float(element)) for element in truth.x]
            _, rows = truth.formula.exact_jacobian(x)
            exact = np.array([[float(entry) for entry in row] for row in rows])
        np.testing.assert_array_equal(truth.jacobian, exact)


def test_float32_formulas_compute_in_float32_what_they_do_in_multiple_precision():
    for index in range(50):
        truth = draw(np.float32, 3, index)
        values = truth.formula(truth.x)
        assert values.dtype == np.float32
        exact = [float(y) for y in truth.formula.exact([mp.mpf(float(e)) for e in truth.x])]
        in_double = truth.formula(truth.x.astype(float))
        assert np.all(np.abs(values - np.array(exact)) <= truth.noise * (1 + 1e-9))
        # The constants are the same in float64, where rounding is half a billion times smaller.
        assert np.all(np.abs(in_double - exact) <= 1e-5 * truth.noise)


@DTYPES
def test_functions_do_not_depend_on_their_number(dtype):
    again = draw(dtype, 4, 7)
    last = [draw(dtype, 4, index) for index in range(8)][-1]
    assert last.formula.text == again.formula.text
    np.testing.assert_array_equal(last.x, again.x)
    np.testing.assert_array_equal(last.noise, again.noise)


def test_functions_cover_what_they_are_drawn_from():
    truths = [draw(np.float64, 5, index) for index in range(300)]
    texts = " ".join(truth.formula.text for truth in truths)
    assert {name for name in UNARY if f"{name}(" not in texts} == set()
    assert {name for name in FLOATING if f"{name}(" not in texts} == set()
    shapes = {truth.jacobian.shape for truth in truths}
    assert len(shapes) == 16
    sizes = np.abs(np.concatenate([truth.x for truth in truths]))
    assert sizes.min() == 0
    assert np.min(sizes[sizes > 0]) < 1e-8
    assert np.max(sizes) > 1e8
    assert any(truth.formula.elementwise for truth in truths)
    # Digits cancel in some results.
    sizes = np.concatenate([np.abs(t.formula(t.x)) for t in truths])
    noise = np.concatenate([t.noise for t in truths])
    assert 0.003 < np.mean(noise > 1e-8 * sizes) < 0.3


def test_mistakes_change_one_entry():
    for index in range(20):
        right, wrong = problem(draw(np.float32, 6, index), 6, index).claims
        changed = wrong.jacobian != right.jacobian
        ratios = wrong.jacobian[changed] / right.jacobian[changed]
        assert len(ratios) == 1
        np.testing.assert_allclose(np.abs(ratios - 1), 2e-2, rtol=1e-4)


@pytest.mark.parametrize(
    ("value", "error", "status", "expected"),
    [
        (1.0, 0.0, "CONVERGED", "covered"),
        (1.1, 0.11, "CONVERGED", "covered"),
        (1.1, 0.002, "NOISY", "low"),
        (1.1, 0.0009, "NOISY", "wrong"),
        (1.1, 0.0009, "NONSMOOTH", "unknown"),
        (1.1, np.inf, "CONVERGED", "unknown"),
        (np.nan, 0.0, "CONVERGED", "unknown"),
    ],
)
def test_outcomes_of_estimates(value, error, status, expected):
    assert outcome(value, 1.0, error, status, 2.0**-52) == expected


def run(capsys, path, *arguments):
    program.main([*arguments, "--json", str(path)])
    return json.loads(path.read_text()), capsys.readouterr().out


def test_a_checker_that_always_passes_is_found_out(capsys, monkeypatch, tmp_path):
    arguments = "--count", "6", "--seed", "9", "--group", "random64"
    path, other = tmp_path / "a.json", tmp_path / "b.json"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before, _ = run(capsys, path, *arguments)
    rows = [row for row in before["rows"] if row["subset"] == "all"]
    assert [row["checks"] for row in rows if row["kind"] != "estimate"] == [3, 3]
    real = calipers.gradcheck

    def always(f, x, jac=None, **options):
        return real(np.sin, np.ones(1), jac=lambda x: np.diag(np.cos(x)))

    monkeypatch.setattr(calipers, "gradcheck", always)
    after, text = run(capsys, other, *arguments)
    mistakes = [row for row in after["rows"] if (row["kind"], row["subset"]) == ("mistake", "all")]
    assert [(row["PASS"], row["FAIL"]) for row in mistakes] == [(3, 0)]
    assert "random64: mistake PASS" in text
    program.main(["--compare", str(path), str(other)])
    assert "FAIL -> PASS" in capsys.readouterr().out


def one_sided(f, x, j, step):
    """Return the slopes of the left and of the right along a coordinate."""
    before, after = x.copy(), x.copy()
    before.flat[j] -= step
    after.flat[j] += step
    left = (f(x) - f(before)) / (x.flat[j] - before.flat[j])
    return left, (f(after) - f(x)) / (after.flat[j] - x.flat[j])


def size_at(case):
    return max(float(np.abs(claim.jacobian).max()) for claim in case.claims)


def test_slopes_at_kinks_are_those_of_the_sides():
    for case in at_kinks(np.float64, 3, 100):
        left, right, mean = (float(claim.jacobian[0, 0]) for claim in case.claims)
        assert left != right
        assert mean == pytest.approx((left + right) / 2)
        # The length scale is unknown here, but one of these steps fits it.
        errors = []
        for step in 10.0 ** np.arange(-14, 7):
            with np.errstate(all="ignore"):
                slopes = one_sided(case.f, case.x, 0, step)
            errors.append(max(abs(float(slopes[0][0]) - left), abs(float(slopes[1][0]) - right)))
        assert np.nanmin(errors) < 1e-4 * max(abs(left), abs(right)), case.name


def test_slopes_near_kinks_and_of_smooth_functions():
    for family in (near_kinks, resembling_kinks):
        for case in family(np.float64, 3, 100):
            exact = float(case.jacobian[0, 0])
            errors = []
            for step in 10.0 ** np.arange(-18, 7):
                with np.errstate(all="ignore"):
                    left, right = one_sided(case.f, case.x, 0, step)
                    errors.append(abs(float(left[0] + right[0]) / 2 - exact))
            assert np.nanmin(errors) < 1e-3 * size_at(case), case.name


def test_ties_have_derivatives_where_they_are_claimed():
    for case in tied(3, 4):
        kinds = {claim.kind for claim in case.claims}
        if not isinstance(case.x, np.ndarray) or "near" in kinds:
            continue
        random = np.random.default_rng(0)
        steps = 1e-8 * np.abs(case.x).max() * random.standard_normal((9, *case.x.shape))
        f, size = case.f(case.x), np.abs(steps).max()

        def change(step, case=case, f=f):
            return case.f(case.x + step) - f

        # A derivative is odd and additive.
        first, others = steps[0], steps[1:]
        rest = [change(first) + change(-first)]
        rest += [change(first) + change(step) - change(first + step) for step in others]
        smooth = np.abs(rest).max() < 1e-4 * size
        assert smooth == ("kink" not in kinds), case.name
        if smooth:
            jacobian = case.claims[0].jacobian.reshape(f.size, -1)
            claimed = (jacobian @ steps[0].ravel()).reshape(f.shape)
            numerical = (change(steps[0]) - change(-steps[0])) / 2
            assert np.abs(numerical - claimed).max() < 1e-4 * size, case.name


@pytest.mark.slow
def test_a_right_derivative_of_every_fortieth_op_of_torch_passes():
    pytest.importorskip("torch")
    pytest.importorskip("expecttest")
    from benchmarks.validation.torch_ops import torch_ops

    results = Results()
    for case in torch_ops(samples=1, every=40):
        results.add(case)
    assert len(results.checks) > 10
    assert {check.name.split()[0] for check in results.checks} == {
        "torch_ops:float32",
        "torch_ops:float64",
    }
    assert sum(check.verdict == "PASS" for check in results.checks) > len(results.checks) // 2
