"""What mutations of gradcheck left untested."""

import threading
from itertools import cycle

import numba
import numpy as np
import pytest

import calipers
from calipers._gradcheck import screening
from calipers._gradcheck.analytic import Dense, Sizes, Sparse, largest_terms
from calipers._gradcheck.derivative import Derivative
from calipers._gradcheck.exhaustive import Entries, examine
from calipers._gradcheck.numerical import Way, looks
from calipers._gradcheck.rule import Rule
from calipers._gradcheck.subject import pose
from calipers._gradcheck.units import Units

X = np.array([0.5, 1.0, 2.0])


def checked(f, inputs, **options):
    return calipers.gradcheck(f, inputs, raise_exception=False, **options)


def checked_twice(f, inputs, **options):
    return calipers.gradgradcheck(f, inputs, raise_exception=False, **options)


@pytest.mark.parametrize("first", ["dense", "sparse"])
def test_a_jacobian_that_is_sparse_at_times_is_not_reentrant(first):
    sparse = pytest.importorskip("scipy.sparse")
    forms = [np.diag, sparse.diags_array]
    turns = cycle(forms if first == "dense" else forms[::-1])
    report = checked(lambda x: x * x, X, jac=lambda x: next(turns)(2 * x))
    assert "jac is not reentrant" in report.reason


def test_the_same_elements_in_other_rows_are_another_sparse_jacobian():
    sparse = pytest.importorskip("scipy.sparse")
    turns = cycle([np.eye(3), np.eye(3)[::-1]])
    report = checked(lambda x: 1 * x, X, jac=lambda x: sparse.csc_array(next(turns)))
    assert "jac is not reentrant" in report.reason


def test_the_callers_sparse_jacobian_keeps_its_duplicates():
    sparse = pytest.importorskip("scipy.sparse")
    rows = np.repeat(np.arange(3), 2)
    own = sparse.csc_array((np.repeat(X, 2), rows, [0, 2, 4, 6]), shape=(3, 3))
    assert calipers.gradcheck(lambda x: x * x, X, jac=lambda x: own)
    assert own.nnz == 6
    assert np.array_equal(own.indices, rows)


def test_a_sparse_jacobian_of_the_wrong_shape_is_refused():
    sparse = pytest.importorskip("scipy.sparse")
    report = checked(lambda x: x * x, X, jac=lambda x: sparse.csc_array((3, 4)))
    assert report.verdict == "FAIL"
    assert "has a wrong shape: expected (3, 3), got (3, 4)" in report.reason


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
    assert report.verdict == ("PASS" if odd is None else "INCONCLUSIVE")


def test_the_gradient_of_a_real_number_by_a_complex_one_is_stored_in_a_complex_array():
    def jac(z, out):
        out[:] = np.diag(2 * z)

    z = np.array([1 + 2j, 0.5 - 1j])
    assert calipers.gradcheck(lambda z: (z * z.conj()).real, z, jac=jac, inplace="write")


def test_a_jacobian_of_one_output_by_two_inputs_is_stored():
    def jac(x, y, by_x, by_y):
        by_x[:], by_y[:] = np.diag(y), np.diag(x)

    assert calipers.gradcheck(np.multiply, (X, X + 1), jac=jac, inplace="write")


def test_more_than_a_value_and_a_jacobian_is_refused():
    report = checked(np.sin, X, value_and_jac=lambda x: (np.sin(x), np.diag(np.cos(x)), None))
    assert "value_and_jac returned tuple of 3, expected (value, jac)" in report.reason


def test_a_value_that_is_nan_like_fs_is_no_other():
    factors = np.array([np.nan, 2.0, 3.0])

    def value_and_jac(x):
        return factors * x, np.where(np.isnan(factors)[:, None], np.nan, np.diag(factors))

    options = {"value_and_jac": value_and_jac, "equal_nan": True}
    assert checked(lambda x: factors * x, X, **options).verdict == "PASS"


def cube_sum(x, *, factor):
    return factor * (x**3).sum()


def test_a_sparse_hessian_that_is_not_symmetric_is_called_that():
    sparse = pytest.importorskip("scipy.sparse")

    def check(skew):
        hessian = np.diag(6 * X)
        hessian[0, 1] += skew
        return checked_twice(lambda x: (x**3).sum(), X, hess=lambda x: sparse.csc_array(hessian))

    assert check(0.0).verdict == "PASS"
    reason = check(0.5).reason
    assert reason.endswith("the Hessian is not symmetric: entry (0, 1) is 0.5 and (1, 0) is 0")


@pytest.mark.parametrize("form", ["hess", "hvp"])
def test_second_derivatives_of_a_number_get_the_keyword_arguments(form):
    given = {
        "hess": lambda x, *, factor: np.diag(6 * factor * x),
        "hvp": lambda x, v, *, factor: 6 * factor * x * v,
    }
    options = {form: given[form], "kwargs": {"factor": 2.0}}
    assert checked_twice(cube_sum, X, **options).verdict == "PASS"


@pytest.mark.parametrize(
    ("option", "left_out"), [("check_fwd_over_rev", "vjp_jvp"), ("check_rev_over_rev", "vjp_vjp")]
)
def test_a_second_derivative_that_is_not_to_be_checked_is_not(option, left_out):
    given = {
        "vjp_vjp": lambda x, w, u: (-u * w * np.sin(x), u * np.cos(x)),
        "vjp_jvp": lambda x, w, v: v[1] * np.cos(x) - v[0] * w * np.sin(x),
    }
    right = given[left_out]
    given[left_out] = lambda *args: tuple(2 * np.asarray(right(*args)))
    options = {"vjp": lambda x, w: w * np.cos(x), **given}
    assert checked_twice(np.sin, X, **options).verdict == "FAIL"
    assert checked_twice(np.sin, X, **options, **{option: False}).verdict == "PASS"


def test_entries_that_are_missing_unevenly_are_no_broadcast():
    x, b = np.linspace(0, 1, 15).reshape(5, 3), np.array([0.5, 1.0, 2.0])

    def vjp(x, b, w):
        g = w.sum(axis=0)
        g[0] = w[0, 0]
        return w, g

    reason = checked(np.add, (x, b), vjp=vjp).reason
    assert "what is not zero is right, and 4 of 15 entries are missing" in reason
    assert "broadcast" not in reason


def test_products_with_a_jacobian_do_not_ask_for_it_again():
    calls = []

    def jac(x):
        calls.append(1)
        return np.diag(2 * x)

    report = checked(lambda x: x * x, np.linspace(1, 2, 50), jac=jac, fast_mode=True)
    assert report.verdict == "PASS"
    assert report.calls["jac"] == len(calls) == 2


def test_cotangents_of_complex_outputs_have_imaginary_parts():
    def second(z, w, u):
        return 2 * np.conj(u) * np.conj(w), u * 2 * z

    z = np.array([1 + 2j, 0.5 - 1j, 1j])
    report = checked_twice(lambda z: z * z, z, vjp=lambda z, w: w * np.conj(2 * z), vjp_vjp=second)
    assert report.verdict == "FAIL"


def test_cotangents_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"grad_outputs have shapes \[\(2,\)\], and the outputs"):
        calipers.gradgradcheck(
            np.sin,
            X,
            np.ones(2),
            vjp=lambda x, w: w * np.cos(x),
            vjp_vjp=lambda x, w, u: (-u * w * np.sin(x), u * np.cos(x)),
        )


@pytest.mark.parametrize("form", ["vjp_vjp", "vjp_jvp"])
def test_second_derivatives_that_jitter_as_the_caller_says_are_symmetric(form):
    random = np.random.default_rng(0)

    def jitter(direction):
        return 1e-7 * random.uniform(-1, 1, 3) * np.any(direction)

    given = {
        "vjp_vjp": lambda x, w, u: (jitter(u) - u * w * np.sin(x), u * np.cos(x)),
        "vjp_jvp": lambda x, w, v: jitter(v[0]) - v[0] * w * np.sin(x) + v[1] * np.cos(x),
    }
    options = {"vjp": lambda x, w: w * np.cos(x), form: given[form]}
    assert checked_twice(np.sin, X, **options, nondet_tol=1e-6).verdict == "PASS"


def test_complex_second_derivatives_without_conjugates_are_not_tested_for_symmetry():
    z = np.array([1 + 2j, 0.5 - 1j, 1j])
    options = {"vjp": lambda z, w: w * 2 * z, "vjp_vjp": lambda z, w, u: (2 * u * w, 2 * u * z)}
    assert checked_twice(lambda z: z * z, z, **options, convention="jax").verdict == "PASS"


MATRIX = np.array([[1.0, 2.0, 0.5], [0.25, 3.0, -1.0], [4.0, 1.0, 2.0]])


@pytest.mark.parametrize("where", [(1, 1), (1, slice(None)), (slice(None), 1)])
def test_one_wrong_row_or_column_is_no_missing_term(where):
    wrong = MATRIX.copy()
    wrong[where] += 0.5
    report = checked(lambda x: MATRIX @ x, X, jac=lambda x: wrong)
    assert report.verdict == "FAIL"
    assert not report.blocks


def test_an_output_is_not_swapped_with_itself():
    right, wrong = (
        MATRIX * (MATRIX != 0.25) + np.outer([0, size, 0], [1, 0, 0]) for size in (0, 1e-3)
    )
    report = checked(lambda x: (right @ x, np.sin(x)), X, jac=lambda x: (wrong, np.diag(np.cos(x))))
    assert report.counts["FAIL"] == 1
    assert not report.blocks


def test_jvp_and_vjp_may_share_an_array():
    shared = np.empty(3)
    assert calipers.gradcheck(
        lambda x: MATRIX @ x,
        X,
        vjp=lambda x, w: np.matmul(MATRIX.T, w, out=shared),
        jvp=lambda x, v: np.matmul(MATRIX, v, out=shared),
    )


def test_nan_in_one_of_two_forms_makes_them_two_matrices():
    factors = np.array([np.nan, 2.0, 3.0])
    report = checked(
        lambda x: factors * x,
        X,
        jac=lambda x: np.where(np.isnan(factors)[:, None], np.nan, np.diag(factors)),
        vjp=lambda x, w: np.nan_to_num(factors) * w,
        equal_nan=True,
    )
    assert "are not of one matrix" in report.reason


def test_a_value_and_a_jacobian_are_not_stored():
    with pytest.raises(ValueError, match="inplace= is about jac=, vjp= and jvp="):
        calipers.gradcheck(np.sin, X, value_and_jac=np.sin, inplace="write")


def test_gradients_by_sparse_matrices_are_not_stored():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(ValueError, match="inplace= is for dense inputs"):
        calipers.gradcheck(
            lambda a: a @ X, sparse.eye_array(3, format="csr"), vjp=np.multiply, inplace="write"
        )


def test_calls_that_store_are_all_counted():
    calls = []

    def vjp(x, w, g):
        calls.append(1)
        g[:] = w * np.cos(x)

    report = checked(np.sin, X, vjp=vjp, inplace="write")
    assert report.verdict == "PASS"
    assert report.calls["vjp"] == len(calls)


def test_rounding_in_sums_of_what_is_added_is_allowed():
    def vjp(x, w, g):
        for k in range(1, 10):
            g += k * w * np.cos(x) / 45

    assert calipers.gradcheck(np.sin, X, vjp=vjp, inplace="add")


@pytest.mark.parametrize("absent", [0, 1])
def test_a_tangent_of_none_for_either_input_is_one_of_zeros(absent):
    def push(x, y, v):
        a, b = (np.zeros(3) if t is None else t for t in v)
        alone = v[absent] is None and v[1 - absent] is not None
        return (a * y + x * b) * (2 if alone else 1)

    options = {"jvp": push, "vjp": lambda x, y, w: (0 * x, 0 * y) if w is None else (w * y, w * x)}
    assert checked(np.multiply, (X, X), **options).verdict == "PASS"
    report = checked(np.multiply, (X, X), check_undefined_grad=True, **options)
    assert "jvp gives something else for a tangent of None" in report.reason


def test_a_complex_sparse_jacobian_of_real_numbers_is_refused():
    sparse = pytest.importorskip("scipy.sparse")
    report = checked(lambda x: x * x, X, jac=lambda x: sparse.diags_array(2 * x + 1j))
    assert "is complex, and both are real" in report.reason


@pytest.mark.parametrize("fast_mode", [False, True])
def test_calls_of_f_are_all_counted(fast_mode):
    calls = []

    def f(x, y):
        calls.append(1)
        return x * y

    options = {"vjp": lambda x, y, w: (w * y, w * x), "fast_mode": fast_mode}
    for wrong in (1, 2):
        calls.clear()
        report = checked(lambda x, y, wrong=wrong: wrong * f(x, y), (X, X), **options)
        assert report.calls["f"] == len(calls)


@numba.njit
def cubic(x):
    return x * x * x - x


@numba.njit(parallel=True)
def parallel_slope(x, v):
    t = np.empty_like(v)
    for i in numba.prange(len(v)):
        t[i] = v[i] * (3 * x[i] * x[i] - 1)
    return t


@numba.njit
def slope(x, v):
    return v * (3 * x * x - 1)


def test_a_derivative_in_python_is_called_from_one_thread():
    callers = set()

    def jvp(x, v):
        callers.add(threading.get_ident())
        return slope(x, v)

    with calipers.num_threads(2):
        assert calipers.gradcheck(cubic, np.linspace(1, 2, 1500), jvp=jvp)
    assert callers == {threading.get_ident()}


@pytest.mark.parametrize(("jvp", "concurrent"), [(slope, True), (parallel_slope, False)])
def test_a_parallel_derivative_is_not_called_from_several_threads(jvp, concurrent):
    subject = pose(cubic, np.linspace(1, 2, 70), (), {}, None, ())
    units = Units(Derivative("jvp", jvp, subject, False))
    assert units.compiled
    assert units.concurrent == concurrent


@pytest.mark.parametrize("form", ["dense", "sparse", "both"])
def test_sizes_that_threads_share_out_are_those_of_the_whole(form):
    sparse = pytest.importorskip("scipy.sparse")
    one, other = np.random.default_rng(0).standard_normal((2, 1100, 1000))
    one[5, 7] = np.inf
    given = {"dense": Dense(one), "sparse": Sparse(sparse.csc_array(other))}
    arrays = {"dense": [one], "sparse": [other], "both": [one, other]}[form]
    chosen = given if form == "both" else {form: given[form]}
    with calipers.num_threads(3):
        sizes = Sizes.of(chosen, 1100, 1000)
    whole = np.max([np.where(np.isfinite(a), np.abs(a), 0) for a in arrays], axis=0)
    assert np.array_equal(sizes.rows, whole.max(axis=1))
    assert np.array_equal(sizes.columns, whole.max(axis=0))


def test_the_largest_terms_are_those_of_any_form_and_finite():
    one = np.array([[1.0, -4.0], [np.inf, np.nan]])
    other = np.array([[2.0, 1.0], [0.5, 0.0]])
    found = largest_terms([Dense(one), Dense(other)], np.array([10.0, -1.0]))
    assert found.tolist() == [20.0, 5.0]


def test_slopes_that_workers_send_are_judged_in_the_same_memory(monkeypatch):
    made, init = [], screening._BySlopes.__init__

    def counted(self, *args):
        made.append(1)
        init(self, *args)

    monkeypatch.setattr(screening._BySlopes, "__init__", counted)
    x, told = np.linspace(1, 2, 200), []
    options = {"vjp": lambda x, w: 2 * w * x, "progress": lambda done, total: told.append(done)}
    report = calipers.gradcheck(lambda x: x * x, x, workers=map, **options)
    assert report.calls["f"] == 2 * x.size + 2
    assert len(told) > 2 * len(made)


def test_a_look_at_one_of_two_inputs_knows_the_sizes_of_all_columns():
    subject = pose(numba.njit(lambda a, b: 1e3 * a + b), (X, X), (), {}, None, ())
    jacobians = {"jac": Dense(np.hstack([1e3 * np.eye(X.size), np.eye(X.size)]))}
    rule = Rule(0.0, 1e-6, 0.1, 1e-2, False, 0.0)
    look = looks(subject, subject.active[1], "adaptive", None, None, None, Way())
    sizes = examine([look], jacobians, rule, Entries())
    assert look.compiled
    assert np.all(sizes.rows == 1e3)


def test_a_compiled_vjp_without_conjugates_is_right_where_its_first_row_is_real():
    z = np.linspace(1, 2, 70) + 1j * np.linspace(0, 1, 70)
    vjp = numba.njit(lambda z, w: w * 2 * z)
    report = checked(numba.njit(lambda z: z * z), z, vjp=vjp, convention="jax")
    assert report.verdict == "PASS"


def test_a_mean_over_several_axes_is_named():
    x, b = np.linspace(0, 1, 60).reshape(5, 4, 3), np.array([0.5, 1.0, 2.0])
    report = checked(np.add, (x, b), vjp=lambda x, b, w: (w, w.mean(axis=(0, 1))))
    assert "a mean over an axis of length 20 where a sum belongs" in report.reason


def test_one_number_is_no_multiple_of_what_it_should_be():
    report = checked(lambda x: x * x, 3.0, vjp=lambda x, w: 2.2 * x * w)
    assert report.verdict == "FAIL"
    assert not report.blocks
    assert "times what it should be" not in report.reason


def test_other_arguments_of_torch_functions():
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    assert calipers.gradcheck(lambda x, power: x**power, (x,), args=(3,))


def test_inputs_of_torch_functions_that_there_are_not():
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    with pytest.raises(ValueError, match="argnums names input 3"):
        calipers.gradcheck(torch.sin, (x,), argnums=(0, 3))


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_entries_of_each_form_are_counted(factor):
    report = checked(
        lambda x: MATRIX @ x,
        X,
        jac=lambda x: np.where(MATRIX == 3, factor * MATRIX, MATRIX),
        vjp=lambda x, w: MATRIX.T @ w,
        jvp=lambda x, v: MATRIX @ v,
    )
    assert sum(report.counts.values()) == 27
    assert report.counts["FAIL"] == (factor != 1)


def test_the_largest_error_is_that_of_any_column():
    """Of both columns, which are looked at again since they are wrong."""

    def f(x):
        return np.array([np.exp(x[0]) + np.sin(1e3 * x[0]), x[1] * x[1]])

    def errors(columns):
        wrong = np.diag([np.exp(1.0) + 1e3 * np.cos(1e3), 2.0])
        wrong[columns, columns] *= 1.5
        return checked(f, np.ones(2), jac=lambda x: wrong).fd_error

    assert errors([0, 1]) == errors([0])


def test_a_kink_whose_mean_slope_is_zero_is_accepted_with_the_callers_step():
    report = checked(np.abs, np.zeros(1), jac=lambda x: np.zeros((1, 1)), eps=1e-6)
    assert report.verdict == "PASS"


@pytest.mark.parametrize("batches", [False, True])
def test_unit_vectors_are_asked_for_from_any_number(batches):
    subject = pose(lambda x: MATRIX @ x, X, (), {}, None, ())
    d = Derivative("jvp", lambda x, v: v @ MATRIX.T, subject, False, batches=batches)
    found = np.empty((2, 3))
    Units(d).rows(1, found)
    assert np.array_equal(found, MATRIX.T[1:])
    assert d.calls == (3 if batches else 2)


@pytest.mark.parametrize("form", ["vjp", "jvp"])
def test_an_error_of_a_compiled_loop_is_that_of_the_call(form):
    @numba.njit
    def failing(x, v):
        if v[69] == 1 and v[0] == 0:
            raise ValueError("no such direction")
        return v * (3 * x * x - 1)

    with pytest.raises(ValueError, match="no such direction") as caught:
        checked(cubic, np.linspace(1, 2, 70), **{form: failing})
    assert not getattr(caught.value, "__notes__", [])


def test_a_steep_slope_that_is_right_is_no_pole():
    report = checked(lambda x: np.tanh(1e6 * x), np.zeros(1), jac=lambda x: np.full((1, 1), 1e6))
    assert report.verdict == "PASS"
