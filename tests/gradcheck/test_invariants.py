"""Tests that take no steps: forms of one matrix, linear, reentrant, that leave arguments alone."""

import itertools

import numba
import numpy as np
import pytest

import calipers
from tests.data.gradcheck_functions import LONG, MATRIX, THREE, checked, sine_vjp

# Forms of one matrix.


@pytest.mark.parametrize("odd", [None, "jac", "vjp", "jvp"])
def test_each_of_three_forms_has_to_agree_where_differences_do_not_tell(odd):
    """Beside 1e16, products with random directions do not show that one of them is another."""
    slope = 3 * np.cos(3 * 0.7)
    slopes = {
        form: np.array([1.001 * slope if form == odd else slope, 1e16])
        for form in ("jac", "vjp", "jvp")
    }

    def rough(x):
        return np.array([np.sin(3 * x[0]) + 1e-3 * np.sin(1e12 * x[0]), 1e16 * x[1]])

    report = checked(
        rough,
        np.array([0.7, 1.0]),
        jac=lambda x: np.diag(slopes["jac"]),
        vjp=lambda x, w: slopes["vjp"] * w,
        jvp=lambda x, v: slopes["jvp"] * v,
    )
    # Nor do the forms decide: the slope of the waves at x is 5e8.
    assert report.verdict == "INCONCLUSIVE"


def test_nan_in_one_of_two_forms_makes_them_two_matrices():
    factors = np.array([np.nan, 2.0, 3.0])
    report = checked(
        lambda x: factors * x,
        THREE,
        jac=lambda x: np.where(np.isnan(factors)[:, None], np.nan, np.diag(factors)),
        vjp=lambda x, w: np.nan_to_num(factors) * w,
        equal_nan=True,
    )
    assert "are not derivatives of one function" in report.reason


# Forms that agree do not vouch for what differences contradict, or cannot be had.
@pytest.mark.parametrize(
    ("f", "x", "slope"),
    [
        (np.exp, np.array([709.7, 1.0]), np.array([7.0, np.e])),
        (lambda x: 2 * x, np.array([np.inf, 1.0]), np.array([5.0, 2.0])),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_two_forms_that_share_a_mistake(f, x, slope):
    both = {"vjp": lambda x, w: w * slope, "jac": lambda x: np.diag(slope)}
    assert checked(f, x, **both).verdict != "PASS"


def test_jvp_and_vjp_may_share_an_array():
    shared = np.empty(3)
    assert calipers.gradcheck(
        lambda x: MATRIX @ x,
        THREE,
        vjp=lambda x, w: np.matmul(MATRIX.T, w, out=shared),
        jvp=lambda x, v: np.matmul(MATRIX, v, out=shared),
    )


def test_a_derivative_that_is_linear_only_in_unit_vectors():
    def vjp(x, w):
        return sine_vjp(x, w) * (1 if np.count_nonzero(w) <= 1 else 3)

    for call in (vjp, numba.njit(sine_vjp)):
        assert bool(checked(np.sin, LONG, vjp=call)) == (call is not vjp)
    report = checked(np.sin, THREE, jvp=vjp)
    assert "from the sum over unit vectors" in report.reason


def test_an_input_that_nothing_depends_on_but_products_of_cotangents():
    def vjp(x, y, w):
        return w * np.cos(x), np.full_like(y, w[0] * w[1])

    assert "vjp is not linear" in checked(lambda x, y: np.sin(x), (THREE, THREE), vjp=vjp).reason


# Arguments and buffers.


def test_arrays_in_keywords_and_lists_are_watched():
    kept = {"buffer": np.zeros(3)}

    def f(x, buffer):
        buffer += 1
        return np.sin(x)

    report = checked(f, THREE, vjp=lambda x, w, buffer: sine_vjp(x, w), kwargs=kept)
    assert report.reason.startswith("f changes its arguments: argument buffer")
    assert not kept["buffer"].any()
    inside = ([np.ones(3)],)

    def of_list(x, others):
        others[0][:] = 7
        return np.sin(x)

    report = checked(of_list, THREE, vjp=lambda x, others, w: sine_vjp(x, w), args=inside)
    assert "input 1" in report.reason
    assert np.all(inside[0][0] == 1)


@numba.njit
def late_writer(x, w):
    if w[5] != 0:
        x[-1] = 7.0
    return w * np.cos(x)


def test_a_compiled_derivative_that_changes_its_argument_later_on():
    report = checked(numba.njit(lambda x: np.sin(x)), LONG, vjp=late_writer)
    assert report.verdict == "FAIL"
    assert report.reason.startswith("vjp changes its arguments: input 0")


def test_a_jacobian_that_adds_to_its_own_buffer_is_not_reentrant():
    kept = np.zeros((3, 3))

    def jac(x):
        kept[...] += np.diag(np.cos(x))
        return kept

    assert "jac is not reentrant" in checked(np.sin, THREE, jac=jac).reason


@pytest.mark.parametrize("other", ["dense", "moved", "wider"])
def test_sparse_matrices_of_two_forms_are_not_reentrant(other):
    sparse = pytest.importorskip("scipy.sparse")
    one = sparse.csc_array(np.diag([2.0, 2.0, 2.0]))
    others = {
        "dense": one.toarray(),
        "moved": sparse.csc_array(np.diag([2.0, 2.0, 2.0])[[1, 0, 2]]),
        "wider": sparse.csc_array(np.diag([2.0, 2.0, 2.0]) + np.eye(3, k=1)),
    }
    answers = itertools.cycle([one, others[other]])
    report = checked(lambda x: 2 * x, THREE, jac=lambda x: next(answers))
    assert any("is not reentrant" in text for text in report.findings)


@pytest.mark.parametrize("form", ["vjp", "jvp"])
def test_nan_for_all_but_unit_vectors_is_no_linear_map(form):
    def torn(x, w):
        return np.where(np.abs(w) <= 1, w, np.nan) * np.cos(x)

    report = checked(np.sin, THREE, **{form: torn})
    assert report.verdict == "FAIL"
    assert f"{form} is not linear" in report.reason


@pytest.mark.parametrize("form", ["vjp", "jvp"])
def test_nan_for_zeros_alone_is_no_linear_map(form):
    def scaled(x, v):  # by its norm, and back
        size = np.linalg.norm(v)
        with np.errstate(invalid="ignore"):
            return size * (np.cos(x) * (v / size))

    report = checked(np.sin, THREE, **{form: scaled})
    what = {"vjp": "cotangent", "jvp": "tangent"}[form]
    assert report.verdict == "FAIL"
    assert f"{form} returns NaN for a zero {what}" in report.reason


def test_nan_for_a_batch_is_not_what_its_rows_give():
    def torn(x, w):
        return w * np.cos(x) if w.ndim == 1 else np.full_like(w, np.nan)

    report = checked(np.sin, THREE, vjp=torn, check_batched_grad=True)
    assert report.reason == "vjp of a batch differs from vjp of each of its rows"


def test_what_is_nan_or_infinite_in_any_direction_is_linear():
    x = np.array([0.0, 0.3, 0.7])

    def vjp(x, w):
        with np.errstate(divide="ignore", invalid="ignore"):
            return w * 0.5 / np.sqrt(x)

    report = checked(np.sqrt, x, vjp=vjp, bounds=(0.0, np.inf), check_batched_grad=True)
    assert not report.findings
