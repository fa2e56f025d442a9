"""Methods, steps and scales: how far f is asked from x, and steps that are refused."""

import numba
import numpy as np
import pytest

import calipers
from tests.data.derivative_functions import (
    BARS,
    CHAIN,
    FIXED,
    METHODS,
    M,
    X,
    Z,
    assert_near,
    compiled_chain,
    compiled_rows,
    counted,
    methods,
    points,
    square,
    waves,
    waves_jacobian,
)


@methods
def test_methods_have_their_accuracy(method):
    for n in (1, 7, 100):
        x = np.linspace(0.1, 1.7, n)
        assert_near(calipers.jacobian(waves, x, method=method), waves_jacobian(x), BARS[method])


@pytest.mark.parametrize("method", ["2-point", "3-point", "cs"])
def test_steps_below_all_numbers_are_refused(method):
    with pytest.raises(ValueError, match="scale=1e-320 makes steps that underflow"):
        calipers.jacobian(lambda x: x * x, np.zeros(2), scale=[1.0, 1e-320], method=method)


@pytest.mark.parametrize("function", [calipers.jacobian, calipers.differentiate])
@pytest.mark.parametrize("method", ["4-point", None, 3, "CS", ""])
def test_an_unknown_method_is_answered_with_the_known_ones(function, method):
    with pytest.raises(ValueError, match="method must be one of") as caught:
        function(waves, X, method=method)
    assert all(repr(name) in str(caught.value) for name in METHODS)
    assert repr(method) in str(caught.value)


def test_the_complex_step_is_for_real_x():
    with pytest.raises(ValueError, match="method='cs' perturbs real x"):
        calipers.jacobian(np.exp, Z, method="cs")


def test_what_takes_no_complex_numbers_is_told_of_another_method():
    compiled = numba.njit(lambda x: x * x if x[0] > 0 else x)
    declared = numba.njit("f8[:](f8[:])")(lambda x: x * x)
    for f in (compiled, declared, lambda x: np.interp(x, [0, 2], [0, 4])):
        with pytest.raises((TypeError, numba.errors.NumbaError)) as caught:
            calipers.jacobian(f, np.ones(1), method="cs")
        assert "use a different method" in caught.value.__notes__[0]


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_dtypes_without_a_ladder_are_told_of_another_method(dtype):
    with pytest.raises(ValueError, match="needs x in float32 or float64"):
        calipers.differentiate(np.sin, np.ones(2, dtype))


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
@pytest.mark.parametrize("sparsity", [None, np.eye(2)])
def test_results_without_a_ladder_are_told_of_another_method(dtype, sparsity):
    with pytest.raises(ValueError, match=r"needs f\(x\) in float32 or float64"):
        calipers.differentiate(lambda x: x.astype(dtype), np.ones(2), sparsity=sparsity)


@pytest.mark.parametrize("function", [compiled_chain, square], ids=["compiled", "python"])
@pytest.mark.parametrize("method", METHODS[:3] + ["cs"])
def test_the_step_is_what_was_asked_for(function, method):
    for step in (1e-3, np.array([1e-3, 1e-4, 2e-3, 1e-2])):
        d = calipers.differentiate(function, X, method=method, step=step)
        assert np.allclose(d.step, step, rtol=1e-9)
        assert np.all(np.diag(d.value) != 0)


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
def test_f_is_called_no_farther_than_a_step(method):
    reach = {"2-point": 1, "3-point": 1, "5-point": 2, "adaptive": 1}[method]
    step = np.array([1e-3, 1e-4, 2e-3, 1e-2])
    f, seen = counted(waves)
    calipers.jacobian(f, X, method=method, step=step)
    moved = np.abs(points(seen, X.shape) - X).max(axis=0)
    assert np.all(moved <= reach * step * (1 + 1e-9))
    assert np.all(moved >= 0.9 * reach * step)


def test_a_step_has_the_error_of_its_length():
    cube = lambda x: x**3  # noqa: E731
    assert_near(calipers.jacobian(cube, 1.0, step=0.125, method="2-point"), 3.390625, 1e-12)
    assert_near(calipers.jacobian(cube, 1.0, step=0.125), 3.015625, 1e-12)
    assert_near(calipers.jacobian(cube, 1.0, step=0.125, method="5-point"), 3.0, 1e-12)


@pytest.mark.parametrize("name", ["step", "scale"])
@pytest.mark.parametrize(
    "value", [-1e-3, 0.0, 0, np.nan, np.inf, [1e-3, -1e-3, 1e-3, 1e-3], [np.nan, 1, 1, 1]]
)
@methods
def test_steps_that_make_no_sense_are_refused(name, value, method):
    with pytest.raises(ValueError, match=f"{name} must be positive and finite"):
        calipers.jacobian(square, X, method=method, **{name: value})


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
@methods
def test_a_step_of_0_leaves_an_element_out(function, method):
    step = np.array([1e-4, 0.0, 1e-4, 1e-4])
    if method == "adaptive":
        step *= 1000
    d = calipers.differentiate(function, X, method=method, step=step)
    assert d.status.tolist()[1] == "EXCLUDED"
    assert "EXCLUDED" not in d.status[[0, 2, 3]]
    assert np.isnan(d.value[:, 1]).all()
    others = [0, 2, 3]
    assert_near(d.value[:, others], CHAIN[:, others], 1e-3)
    found = calipers.jacobian(function, X, method=method, step=step)
    assert np.array_equal(found, d.value, equal_nan=True)
    jac = calipers.jacobian_function(function, method=method, step=step)
    assert np.array_equal(jac(X), d.value, equal_nan=True)


@pytest.mark.parametrize("f", [np.square, numba.njit(lambda x: x * x)], ids=["python", "compiled"])
@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_left_out_as_other_elements_are(f, method, number):
    pytest.importorskip("scipy.sparse")
    x = np.array([1.0, number, 3.0])
    for options in ({}, {"sparsity": np.eye(3)}):
        with np.errstate(all="ignore"):
            found = calipers.differentiate(f, x, method=method, step=[1e-3, 0, 1e-3], **options)
        assert found.status[1] == "EXCLUDED"
        assert "EXCLUDED" not in found.status[::2]


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
@pytest.mark.parametrize("method", FIXED)
def test_a_step_lost_in_rounding_is_refused(function, method):
    with pytest.raises(ValueError, match=r"step of (coordinate|element) 1 is lost in rounding"):
        calipers.jacobian(function, np.array([1e-3, 1e6]), method=method, step=1e-12)
    jac = calipers.jacobian_function(function, method=method, step=1e-12)
    with pytest.raises(ValueError, match=r"step of (coordinate|element) 1 is lost in rounding"):
        jac(np.array([1e-3, 1e6]))
    with pytest.raises(ValueError, match=r"step of (coordinate|element) 1 is lost in rounding"):
        list(calipers.jacobian_blocks(function, np.array([0.0, 1e6]), method=method, step=1e-12))


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
@pytest.mark.parametrize("bounds", [None, (0, 2e6)])
@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point"])
def test_a_step_that_the_dtype_of_x_loses_is_refused(function, method, bounds):
    x = np.array([1e-3, 1e6], np.float32)
    with pytest.raises(ValueError, match="step of element 1 is lost in rounding"):
        calipers.jacobian(function, x, method=method, step=1e-3, bounds=bounds)


@pytest.mark.parametrize("option", ["step", "scale"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_ladder_that_is_lost_in_rounding_is_refused(option, dtype):
    spacing = float(np.spacing(dtype(30.0)))
    x, factor = np.array([0.0, 30.0], dtype), {"step": 1, "scale": 4}[option]
    lost, small = {option: 7 * factor * spacing}, {option: 8 * factor * spacing}
    message = "step of element 1 is lost in rounding at x = 30"
    for ask in (calipers.differentiate, calipers.jacobian, calipers.jacobian_blocks):
        with pytest.raises(ValueError, match=message):
            ask(np.sin, x, method="adaptive", **lost)
    with pytest.raises(ValueError, match=message):
        calipers.hessian(lambda x: np.sin(x).sum(), x, **lost)
    planned = calipers.jacobian_function(np.sin, x * 0, method="adaptive", **lost)
    with pytest.raises(ValueError, match=message):
        planned(x)
    found = calipers.differentiate(np.sin, x, **small)
    assert np.all(np.abs(found.value - np.diag(np.cos(x.astype(float)))) <= found.error)


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_lost_step_is_named_wherever_it_is(function, place):
    x = np.full(3, 1e-3)
    x[place] = 1e6
    message = rf"element {place} is lost in rounding at x = 1000000.0"
    with pytest.raises(ValueError, match=message):
        calipers.jacobian(function, x, step=1e-12)
    with pytest.raises(ValueError, match=message):
        list(calipers.jacobian_blocks(function, x, step=1e-12, block=1))
    with pytest.raises(ValueError, match=message):
        calipers.jacobian(function, x + 0j, step=1e-12, holomorphic=True)
    planned = calipers.jacobian_function(function, np.full(3, 1e-3), step=1e-12)
    with pytest.raises(ValueError, match=message):
        planned(x)


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
def test_forward_differences_go_away_from_zero(function):
    for x in (X, -X):
        found = calipers.jacobian(function, x, method="2-point", step=0.125)
        moved = x + np.copysign(0.125, x) * np.eye(4)
        expected = [
            (function(m) - function(x)) / np.copysign(0.125, x[j]) for j, m in enumerate(moved)
        ]
        assert_near(found, np.transpose(expected), 1e-14)


@methods
def test_the_scale_multiplies_the_relative_step(method):
    x = np.array([1e-6, 2e-6])
    f = lambda x: np.sin(x / 1e-6)  # noqa: E731
    exact = np.diag(np.cos([1.0, 2.0]) * 1e6)
    for scale in (1e-6, np.full(2, 1e-6)):
        found = calipers.jacobian(f, x, method=method, scale=scale)
        assert np.abs(found - exact).max() <= 10 * BARS[method] * 1e6
    if method in FIXED:
        long, short = (
            calipers.differentiate(f, x, method=method, scale=scale).step
            for scale in (1.0, 2.0**-9)
        )
        assert np.allclose(long, 2**9 * short, rtol=1e-3)


@methods
def test_a_step_and_a_scale_are_one_too_many(method):
    with pytest.raises(ValueError, match="step and scale exclude each other"):
        calipers.jacobian(square, X, method=method, step=1e-3, scale=1.0)


@pytest.mark.parametrize("name", ["step", "scale"])
def test_shapes_that_do_not_fit_are_named(name):
    with pytest.raises(ValueError, match=rf"{name} has shape \(3,\), but x has \(4,\)"):
        calipers.jacobian(square, X, **{name: np.ones(3)})
    with pytest.raises(TypeError, match=f"{name} must be"):
        calipers.jacobian(square, X, **{name: 1j})


@methods
def test_steps_have_the_shape_of_x(method):
    step = np.full((2, 3), 0.1 if method == "adaptive" else 1e-4)
    step[0, 1] = 0
    for f in (compiled_rows, compiled_rows.py_func):
        d = calipers.differentiate(f, M, method=method, step=step)
        assert (d.status == "EXCLUDED").tolist() == (step == 0).tolist()
        assert np.isnan(d.value[..., 0, 1]).all()
        assert np.isfinite(d.value).sum() == 30


def test_complex_numbers_have_one_step_for_both_parts():
    step = np.array([1e-4, 0, 1e-4])
    found = calipers.jacobian(np.exp, Z, step=step, holomorphic=True)
    assert np.isnan(found[:, 1]).all()
    assert_near(found[:, ::2], np.diag(np.exp(Z))[:, ::2])
    for each in calipers.jacobian(np.exp, Z, step=step):
        assert np.isnan(each[:, 1]).all()
        assert np.isfinite(each[:, ::2]).all()


@pytest.mark.parametrize("x", [1e10, -3.3e12, 7e5])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_ladder_of_a_step_that_x_would_round(x, compiled):
    f = numba.njit(lambda x: x * x) if compiled else np.square
    step = 503.7 * np.spacing(abs(x))
    d = calipers.differentiate(f, np.array([x]), step=step)
    assert d.status.tolist() == ["CONVERGED"]
    assert np.abs(d.value[0, 0] - 2 * x) <= d.error[0, 0] <= 1e-2 * abs(2 * x)
    assert 0.1 * step <= d.step[0] <= step


@pytest.mark.parametrize("x", [1.5, -1.5, 0.0])
def test_on_which_side_two_points_are(x):
    """Away from 0, and to the right at 0; bounds that end at x turn the side."""
    asked = []

    def f(x):
        asked.append(x[0])
        return x**2

    def sides(**options):
        asked.clear()
        calipers.jacobian(f, np.array([x]), method="2-point", **options)
        return {np.sign(at - x) for at in asked} - {0.0}

    side = -1.0 if x < 0 else 1.0
    assert sides() == sides(step=1e-3) == sides(scale=0.5) == {side}
    assert sides(bounds=(-np.inf, x)) == {-1.0}
    assert sides(bounds=(x, np.inf)) == {1.0}
    with pytest.raises(ValueError, match=r"only to the left of x, pass bounds=\(-numpy\.inf, x\)"):
        sides(step=-1e-3)
