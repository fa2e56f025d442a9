"""Where the analytic Jacobian comes from: compiled loops, products column by column, sparsity."""

import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import calipers
from calipers._gradcheck import basis_vectors
from calipers._gradcheck.adapt import FORMS, CheckArguments
from calipers._gradcheck.analytic import AnalyticDerivative
from calipers._gradcheck.basis_vectors import Rows, UnitVectors
from calipers._gradcheck.calls import AdaptedDerivative
from calipers._gradcheck.columns import Dense, Sizes, Sparse, largest_terms
from calipers._gradcheck.entry_rules import Rule
from calipers._gradcheck.numerical import ExecutionPolicy, plan_differences
from calipers._gradcheck.summary import FlaggedEntries
from calipers._gradcheck.verdict import examine
from tests.data.gradcheck_functions import THREE, checked
from tests.data.peak_memory import PEAK

N = 100


@numba.njit
def cubic(x):
    return x * x * x - x


@numba.njit
def slope(x, v):
    return v * (3 * x * x - 1)


@numba.njit
def mixed(x):
    """Neighbors depend on each other, so that a transposed Jacobian is another one."""
    y = x * x
    y[1:] += 3 * x[:-1]
    return y


@numba.njit
def mixed_vjp(x, w):
    g = 2 * x * w
    g[:-1] += 3 * w[1:]
    return g


@numba.njit
def mixed_jvp(x, v):
    t = 2 * x * v
    t[1:] += 3 * v[:-1]
    return t


def at_point(f, inputs, **options):
    """Return f at a point, as a check has it."""
    return CheckArguments(f, inputs, dict.fromkeys(FORMS), None, (), "torch", **options).at_point()


def point(n=N, dtype=float):
    return np.random.default_rng(1).uniform(0.6, 2, n).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("form", ["vjp", "jvp"])
def test_a_compiled_derivative_is_checked_like_its_python_code(form, dtype):
    x = point(dtype=dtype)
    call = {"vjp": mixed_vjp, "jvp": mixed_jvp}[form]
    if dtype is np.complex128:
        x = x + 0.25j
        if form == "vjp":

            @numba.njit
            def call(x, w):
                g = 2 * np.conj(x) * w
                g[:-1] += 3 * w[1:]
                return g

    reports = [checked(mixed, x, **{form: c}) for c in (call, call.py_func)]
    assert [r.verdict for r in reports] == ["PASS", "PASS"]
    assert reports[0].counts == reports[1].counts
    wrong = [checked(mixed, x, **{form: {"vjp": mixed_jvp, "jvp": mixed_vjp}[form]})]
    wrong += [checked(mixed, x, **{form: {"vjp": mixed_jvp, "jvp": mixed_vjp}[form].py_func})]
    assert [r.verdict for r in wrong] == ["FAIL", "FAIL"]
    assert wrong[0].counts == wrong[1].counts
    assert wrong[0].worst.row == wrong[1].worst.row


def test_a_compiled_vjp_without_conjugates_is_right_where_its_first_row_is_real():
    z = np.linspace(1, 2, 70) + 1j * np.linspace(0, 1, 70)
    vjp = numba.njit(lambda z, w: w * 2 * z)
    report = checked(numba.njit(lambda z: z * z), z, vjp=vjp, convention="jax")
    assert report.verdict == "PASS"


@pytest.mark.parametrize("form", ["vjp", "jvp"])
def test_compiled_calls_are_counted(form):
    # Of two forms, none is asked for products in place of entries.
    report = checked(cubic, point(), jac=lambda x: np.diag(3 * x * x - 1), **{form: slope})
    assert report.calls["f"] == 2 * N + 2
    assert report.calls[form] in range(N, N + 12)  # entries and sizes take each column once


WEIGHTS = 10.0 ** np.random.default_rng(5).uniform(-12, 0, (N, N))


@numba.njit
def weighted(x):
    return WEIGHTS @ (x + x * x)


@numba.njit
def weighted_jvp(x, v):
    return WEIGHTS @ (v + 2 * x * v)


def test_sizes_that_are_measured_in_passing_are_those_of_the_whole():
    x = point()
    wrong = [numba.njit(lambda x, v: WEIGHTS @ (v + 2 * x * v) + 1e-7 * v[::-1]), weighted_jvp]
    for jvp in wrong:
        compiled, plain = checked(weighted, x, jvp=jvp), checked(weighted.py_func, x, jvp=jvp)
        assert compiled.counts == plain.counts
        # What is clear by sizes that turn out to be smaller is looked at again.
        more = compiled.calls["f"] - plain.calls["f"]
        assert 0 <= more <= 6 * N or compiled.counts["FAIL"]


def test_the_sizes_of_all_forms_count():
    """The jac claims zeros; what jvp gives is right, and small entries are by its larger ones."""
    jac, found = numba.njit(lambda x: np.zeros((N, N))), []
    for f in (weighted, weighted.py_func):
        found.append(checked(f, point(), jac=jac, jvp=weighted_jvp).counts)
    assert found[0] == found[1]


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


@pytest.mark.parametrize("x", [THREE, np.linspace(1, 2, 25)], ids=["plain", "compiled"])
def test_a_look_at_one_of_two_inputs_knows_the_sizes_of_all_columns(x):
    subject = at_point(numba.njit(lambda a, b: 1e3 * a + b), (x, x))
    jacobians = {"jac": Dense(np.hstack([1e3 * np.eye(x.size), np.eye(x.size)]))}
    rule = Rule(0.0, 1e-6, 0.1, 1e-2, False, 0.0)
    differences = plan_differences(
        subject, subject.active[1], "adaptive", None, None, None, ExecutionPolicy()
    )
    sizes = examine([differences], jacobians, rule, FlaggedEntries(), np.random.default_rng(0))
    assert differences.compiled == (x.size > 24)  # fewer numbers are not worth a compiled loop
    assert np.all(sizes.rows == 1e3)


def test_a_small_row_is_judged_by_its_own_size():
    """Row 3 is small, and its columns are not: that shows when all columns have been seen."""

    @numba.njit
    def f(x):
        y = x * x + x.sum()
        y[50] = 5 * x[50]
        y[3] *= 1e-9
        return y

    @numba.njit
    def jvp(x, v):
        t = 2 * x * v + v.sum()
        t[3] *= 1e-9
        t[50] = 5 * v[50] + 1e-9 * v[7]  # which is nothing in that row
        t[3] += 1e-9 * (v[31] + v[60])
        return t

    report = checked(f, point(), jvp=jvp)
    assert sorted((e.row, e.column) for e in report.failures) == [(3, 31), (3, 60)]
    assert report.calls["f"] < 2 * N + 150  # no other column is looked at again


def test_all_of_many_wrong_columns_are_looked_at_again():
    rows, columns = 4096, 20  # of which not all are seen at a time
    matrix = np.random.default_rng(0).uniform(1, 2, (rows, columns))
    wrong = matrix.copy()
    wrong[np.arange(columns), np.arange(columns)] += 0.5
    for f in (lambda x: matrix @ x, numba.njit(lambda x: matrix @ x)):
        for threads in (1, 3):
            with calipers.num_threads(threads):
                report = checked(f, np.ones(columns), jac=lambda x: wrong)
            assert sorted(e.column for e in report.failures) == [*range(columns)]


def test_a_wrong_entry_of_a_compiled_derivative_is_found():
    @numba.njit
    def jvp(x, v):
        t = v * (3 * x * x - 1)
        t[70] *= 1.0001
        return t

    report = checked(cubic, point(), jvp=jvp)
    assert (report.counts["FAIL"], report.worst.row, report.worst.column) == (1, 70, 70)


def test_a_compiled_derivative_that_changes_its_arguments_is_found():
    @numba.njit
    def vjp(x, w):
        g = w * (3 * x * x - 1)
        w[:] = 0
        return g

    report = checked(cubic, point(), vjp=vjp)
    assert report.verdict == "FAIL"
    assert "changes its arguments: its cotangent" in report.reason


def test_a_compiled_derivative_of_the_wrong_shape_is_found():
    @numba.njit
    def vjp(x, w):
        return w[:-1]

    assert "wrong shape" in checked(cubic, point(), vjp=vjp).reason


@pytest.mark.parametrize("n", [3, 70])
@pytest.mark.parametrize("f", [lambda x: x, lambda x: x[:], lambda x: x.ravel()])
def test_a_compiled_function_that_returns_its_argument(f, n):
    x, f = np.linspace(1.1, 2, n), numba.njit(f)
    assert checked(f, x, jac=lambda x: np.zeros((n, n))).verdict == "FAIL"
    report = checked(f, x, jac=lambda x: np.eye(n))
    assert (report.verdict, report.calls["f"]) == ("PASS", 2 * n + 2)


def test_a_compiled_jvp_is_asked_where_f_is_called(monkeypatch):
    monkeypatch.setattr(UnitVectors, "rows", None)
    assert calipers.gradcheck(mixed, point(), jvp=mixed_jvp)


def test_what_a_jvp_spoils_is_looked_at_anew():
    @numba.njit
    def jvp(x, v):
        found = v * (3 * x * x - 1)
        x[:] = 3  # which is its own, but not in a loop
        return found

    report = checked(cubic, point(), jvp=jvp)
    assert "jvp changes its arguments" in report.reason
    assert report.calls["f"] == 2 * N + 2


def test_a_compiled_derivative_that_changes_an_argument_for_one_column_is_found():
    @numba.njit
    def jvp(x, v):
        found = v * (3 * x * x - 1)
        if v[5] == 1 and v[4] == 0:
            x[0] = 7.0
        return found

    @numba.njit
    def other(x, v):
        found = v * (3 * x * x - 1)
        if v[5] == 1 and v[4] == 0:
            v[6] = 7.0
        return found

    report = checked(cubic, point(), jvp=jvp)
    assert "jvp changes its arguments: input 0" in report.reason
    # What it writes into its tangent comes from a loop and harms nobody: each call has its own.
    assert checked(cubic, point(), jvp=other).verdict == "PASS"


def test_a_compiled_derivative_that_gives_another_shape_later_on_is_found():
    @numba.njit
    def jvp(x, v):
        return 3 * v if v[90] == 0 or v[0] != 0 else 3 * v[:-1]

    report = checked(numba.njit(lambda x: 3 * x), point(), jvp=jvp)
    assert report.verdict == "FAIL"
    assert "wrong shape" in report.reason


def test_an_error_of_a_compiled_derivative_arrives():
    @numba.njit
    def vjp(x, w):
        if w[N - 1] == 1 and w[0] == 0:
            raise ValueError("no such cotangent")
        return w * (3 * x * x - 2)  # wrong, so that it is asked for each of its rows

    with pytest.raises(ValueError, match="no such cotangent") as caught:
        checked(cubic, point(), vjp=vjp)
    assert not getattr(caught.value, "__notes__", [])  # none of f


@pytest.mark.parametrize("form", ["vjp", "jvp"])
def test_an_error_of_a_compiled_loop_is_that_of_the_call(form):
    @numba.njit
    def failing(x, v):
        if v[69] == 1 and v[0] == 0:
            raise ValueError("no such direction")
        return v * (3 * x * x - 2)  # wrong, so that a vjp is asked for each of its rows

    with pytest.raises(ValueError, match="no such direction") as caught:
        checked(cubic, np.linspace(1, 2, 70), **{form: failing})
    assert not getattr(caught.value, "__notes__", [])


def test_a_compiled_derivative_that_remembers_is_not_trusted_with_a_loop():
    """One that gives something else without the interpreter around it is asked from Python."""
    buffer = np.zeros(N)

    @numba.njit
    def fill(x, w, out):
        out[:] = w * (3 * x * x - 1)
        return out

    assert checked(cubic, point(), vjp=lambda x, w: fill(x, w, buffer))


def test_a_parallel_derivative_is_called_from_one_thread():
    @numba.njit(parallel=True)
    def jvp(x, v):
        t = np.empty_like(v)
        for i in numba.prange(len(v)):
            t[i] = v[i] * (3 * x[i] * x[i] - 1)
        return t

    assert checked(cubic, point(), jvp=jvp).verdict == "PASS"


@numba.njit(parallel=True)
def parallel_slope(x, v):
    t = np.empty_like(v)
    for i in numba.prange(len(v)):
        t[i] = v[i] * (3 * x[i] * x[i] - 1)
    return t


@pytest.mark.parametrize(("jvp", "concurrent"), [(slope, True), (parallel_slope, False)])
def test_a_parallel_derivative_is_not_called_from_several_threads(jvp, concurrent):
    subject = at_point(cubic, np.linspace(1, 2, 70))
    units = UnitVectors(AnalyticDerivative("jvp", AdaptedDerivative("jvp", jvp), subject, False))
    assert units.compiled
    assert units.concurrent == concurrent


@numba.njit
def late_writer(x, v):
    if v[5] != 0:
        x[-1] = 7.0
    return slope(x, v)


def test_a_derivative_that_writes_into_what_another_thread_has_is_not_believed():
    subject = at_point(cubic, np.linspace(1, 2, 70))
    d = AnalyticDerivative("jvp", AdaptedDerivative("jvp", late_writer), subject, False)
    units, found = UnitVectors(d), np.empty((70, 70))
    assert units.compiled
    thread = threading.Thread(target=units.rows, args=(0, found))
    thread.start()
    thread.join()
    assert d.touched == ["input 0"]
    x = subject.values[0]
    assert np.array_equal(found, np.diag(3 * x * x - 1))


def test_a_derivative_in_python_is_called_from_one_thread():
    callers = set()

    def jvp(x, v):
        callers.add(threading.get_ident())
        return slope(x, v)

    with calipers.num_threads(2):
        assert calipers.gradcheck(cubic, np.linspace(1, 2, 1500), jvp=jvp)
    assert callers == {threading.get_ident()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of forward mode
def test_batches_of_tangents_are_taken_where_they_are_the_same():
    torch = pytest.importorskip("torch")
    x = torch.tensor(point(), requires_grad=True)
    report = calipers.gradcheck(
        lambda x: torch.sin(x) * x, (x,), check_forward_ad=True, check_backward_ad=False
    )
    assert report.calls["jvp"] < 20


@pytest.mark.parametrize(
    ("batches", "columns", "calls"),
    [
        (False, 200, 199),
        (True, 200, 4),  # one alone, the first batch, and those of 1 to 128 and the rest
        (True, 128, 2),  # where the first batch has all
        (True, 4, 3),  # few, one by one
    ],
)
def test_unit_vectors_are_asked_for_from_any_number(batches, columns, calls):
    matrix = np.random.default_rng(0).integers(-9, 9, (3, columns)).astype(float)
    subject = at_point(lambda x: matrix @ x, np.ones(columns))
    jvp = AdaptedDerivative("jvp", lambda x, v: v @ matrix.T)
    d = AnalyticDerivative("jvp", jvp, subject, False, of_library=batches)
    found = np.empty((columns - 1, 3))
    UnitVectors(d).rows(1, found)
    assert np.array_equal(found, matrix.T[1:])
    assert d.calls == calls


def test_a_batch_that_is_not_what_single_calls_give_is_given_up():
    columns = 20
    matrix = np.random.default_rng(0).integers(-9, 9, (3, columns)).astype(float)

    def jvp(x, v):
        return v @ matrix.T if v.ndim == 1 else v[::-1] @ matrix.T

    subject = at_point(lambda x: matrix @ x, np.ones(columns))
    d = AnalyticDerivative("jvp", AdaptedDerivative("jvp", jvp), subject, False, of_library=True)
    found = np.empty((columns, 3))
    UnitVectors(d).all().read(0, columns, found)
    assert np.array_equal(found, matrix.T)


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(40, 30), (300, 500), (3, 0)])
@pytest.mark.parametrize("large", [0, 1 << 20])
def test_rows_are_kept_without_zeros_while_most_are_0(shape, share, large, monkeypatch):
    monkeypatch.setattr(basis_vectors, "LARGE_BYTES", large)
    random = np.random.default_rng(0)
    expected = np.where(random.random(shape) < share, random.normal(size=shape), 0.0)
    expected[:, :2] = 0.0
    if expected.size and share:
        expected[1, -1], expected[2, -1] = np.nan, np.inf
    count, size = shape
    rows = Rows(count, size)

    def store(first, out):
        out[:] = np.nan  # what memory held before
        out[:] = expected[first : first + len(out)]

    starts = random.permutation(range(0, count, 7))
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(rows.fill, k, min(k + 7, count), store, 3) for k in starts]:
            done.result()
    is_small = expected.nbytes < large
    assert (rows.whole is None) == (not is_small and (share < 0.1 or expected.size == 0))
    weights = random.normal(size=count)
    product = np.where(expected == 0, 0.0, expected * weights[:, None]).sum(axis=0)
    assert_allclose(rows.combined(weights), product, rtol=1e-13, atol=1e-13)
    for first, last in ((0, count), (1, 3), (2, 2)):
        found = np.full((last - first, size), np.nan)
        rows.read(first, last, found)
        assert_array_equal(found, expected[first:last])
    if rows.whole is None:
        columns = Sparse(rows.columns())
        assert columns.shape == shape
        for first, last in ((0, size), (size // 3, size // 2), (0, 0)):
            found = np.full((last - first, count), np.nan)
            columns.columns(first, last, found)
            assert_array_equal(found, expected[:, first:last].T)
    else:
        assert_array_equal(rows.whole, expected)


MEMORY = """
import numba, numpy as np
import calipers
n = 4000
x = np.random.default_rng(0).uniform(0.6, 1, n)
cubic = numba.njit(lambda x: x * x * x - x)
def jvp(x, v): return v * (3 * x * x - 1)
compiled = numba.njit(jvp)
def jac(x):
    from scipy.sparse import diags_array
    return diags_array(3 * x * x - 1, format="csc")
def check(x): return calipers.gradcheck(cubic, x, {0}={1})
check(x[:200])
before = peak()
assert check(x)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("form", "call"), [("jvp", "jvp"), ("jvp", "compiled"), ("jac", "jac")])
def test_no_dense_jacobian_is_made_of_columns(form, call):
    """It would take 128 MB."""
    if form == "jac":
        pytest.importorskip("scipy")
    code = PEAK + MEMORY.replace("{0}", form).replace("{1}", call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40e6


def stacked(x, b):
    return x * x + b, 3 * b


def sparse_jac(x, b):
    from scipy.sparse import csr_array, diags_array

    eye = diags_array(np.ones(len(x)))
    return (diags_array(2 * x), eye), (csr_array((len(x), len(x))), 3 * eye)


def test_sparse_blocks_of_several_outputs_and_inputs():
    pytest.importorskip("scipy")
    x = point(6)
    assert calipers.gradcheck(stacked, (x, x), jac=sparse_jac)

    def wrong(x, b):
        (xx, xb), (yx, yb) = sparse_jac(x, b)
        return (xx, xb), (yx, 2 * yb)

    report = checked(stacked, (x, x), jac=wrong)
    assert (report.worst.output, report.worst.input) == (1, 1)
    assert report.counts["FAIL"] == 6


def test_a_tuple_of_rows_is_a_jacobian():
    def f(x):
        return np.array([x[0] * x[1], x.sum()])

    x = np.array([2.0, 3.0])
    assert calipers.gradcheck(f, x, jac=lambda x: (x[::-1], np.ones(2)))
    report = checked(np.sin, THREE, jac=lambda x: (np.diag(np.cos(x)), 7 * np.eye(3)))
    assert "wrong shape" in report.reason


def test_stored_elements_that_repeat_add_up():
    sparse = pytest.importorskip("scipy.sparse")
    where = np.arange(4)

    def jac(x):
        values = np.concatenate([x, x])
        return sparse.coo_array((values, (np.tile(where, 2), np.tile(where, 2))), shape=(4, 4))

    assert calipers.gradcheck(lambda x: x * x, point(4), jac=jac)


def test_a_sparse_jacobian_is_asked_twice_for_the_same():
    sparse = pytest.importorskip("scipy.sparse")
    noise = chain([0, 1e-9], repeat(0))
    report = checked(
        lambda x: x * x, point(4), jac=lambda x: sparse.diags_array(2 * x + next(noise))
    )
    assert "not reentrant" in report.reason
    patterns = chain([np.eye(4)], repeat(np.ones((4, 4))))
    report = checked(lambda x: x * 1, point(4), jac=lambda x: sparse.csr_array(next(patterns)))
    assert "not reentrant" in report.reason


def test_noise_that_the_caller_knows_of_accuses_no_zero():
    """Where f jitters, differences of what does not depend on x are not zero."""
    for seed in range(100):
        random = np.random.default_rng(seed)

        def f(x, random=random):
            return np.array([2.0, x.sum()]) * (1 + 1e-12 * random.random(2))

        report = checked(f, np.ones(2), jac=lambda x: np.array([[0, 0], [1.0, 1]]), nondet_tol=1e-9)
        assert report.verdict in ("PASS", "INCONCLUSIVE"), (seed, str(report))


@pytest.mark.parametrize("size", [1.0, 0.1])
def test_a_kink_at_the_point_is_seen_though_the_mean_slope_is_claimed(size):
    x = np.array([0.0, 1.0])
    report = checked(lambda x: x + size * np.abs(x), x, jac=lambda x: np.diag([1.0, 1 + size]))
    assert report.verdict == "NONSMOOTH"


def test_curvature_is_no_kink():
    """Where the slope is nearly zero curvature bends it most; that is looked at, and is right."""
    x = np.sqrt(1 / 3) + np.array([1e-6, 1e-4, 1e-3])
    report = checked(cubic, x, vjp=slope)
    assert report.verdict == "PASS"
    assert report.calls["f"] > 2 * len(x) + 2


@pytest.mark.parametrize("batches", [False, True])
def test_slopes_to_the_right_and_to_the_left(batches):
    x = np.arange(1.0, 21)

    def bent(x):
        return np.where(x > np.arange(1.0, 21), 2, 3) * (x - np.arange(1.0, 21))

    subject = at_point(bent, x, batched=lambda position: bent)
    differences = plan_differences(
        subject,
        subject.active[0],
        "adaptive",
        None,
        None,
        None,
        ExecutionPolicy(),
        batches=batches,
    )
    assert differences.problem.batched is batches
    right, left, status = differences.slopes.results(20)
    differences.slopes(0, (right, left, status))
    assert np.allclose(right, 2 * np.eye(20))
    assert np.allclose(left, 3 * np.eye(20))


@pytest.mark.parametrize("form", ["jac", "vjp"])
def test_f_that_reads_memory_is_told_of_copies_in_another_order(form):
    """A right derivative failed: "the right columns in another order"."""
    x = np.arange(6.0).reshape(3, 2).T + 0.5
    weights = np.arange(1.0, 7.0)
    right = np.diag(weights).reshape(6, 3, 2).transpose(0, 2, 1)
    given = {
        "jac": lambda x: right,
        "vjp": lambda x, w: (w * weights).reshape(3, 2).T,
    }
    report = calipers.gradcheck(
        lambda x: x.ravel("K") * weights, x, **{form: given[form]}, raise_exception=False
    )
    assert report.verdict == "INCONCLUSIVE"
    assert "the memory order of input 0: it is checked with copies in C order" in report.reason
    assert not report.failures


def test_f_that_reads_values_is_checked_in_any_memory_order():
    """Products of matrices are rounded in other ways."""
    random = np.random.default_rng(0)
    x, weights = random.normal(size=(40, 30)).T, random.normal(size=(40, 3))
    f = lambda x: np.tanh(x @ weights / 10)  # noqa: E731
    vjp = lambda x, w: (w * (1 - f(x) ** 2) / 10) @ weights.T  # noqa: E731
    assert calipers.gradcheck(f, x, vjp=vjp)
    assert checked(f, x, vjp=lambda x, w: 2 * vjp(x, w)).verdict == "FAIL"


@numba.njit(parallel=True)
def two_parallel(x):
    doubled = np.empty_like(x)
    for i in numba.prange(len(x)):
        doubled[i] = 2 * x[i]
    return doubled, x + 1


def test_an_adapted_function_of_two_outputs_is_parallel_if_the_callers_is():
    subject = at_point(two_parallel, np.ones(9))
    assert subject.problem(subject.active[0], batches=True).parallel
    assert not subject.compiled


@pytest.mark.parametrize("by_container", [False, True])
def test_an_adapted_function_is_pickled(by_container):
    inputs = {"x": point(5)} if by_container else point(5)
    f = sines_of if by_container else np.sin
    arguments = CheckArguments(f, inputs, {**dict.fromkeys(FORMS), "vjp": f}, None, (), "torch")
    subject = arguments.adapted().at_point()
    problem = subject.problem(subject.active[0], batches=False)
    again = pickle.loads(pickle.dumps(problem))
    assert_array_equal(again.at(problem.x + 1), np.sin(problem.x + 1))


def sines_of(container):
    return {"y": np.sin(container["x"])}
