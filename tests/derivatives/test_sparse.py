"""Jacobians with a pattern: entries, colors, checks of the pattern, and how often f is called."""

import gc
import sys
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numba
import numpy as np
import pytest

import calipers
from calipers._derivatives import adaptive, colored_patterns
from calipers._derivatives import sparse as sparse_differences
from calipers._derivatives import sparsity as patterns
from calipers._derivatives.coloring import color_columns
from calipers._derivatives.options import Options
from calipers._derivatives.solve import prepare
from calipers._execution import run as runs
from calipers._kernels.differences import COLORED
from tests.data.derivative_functions import SIX, UNDEFINED

sparse = pytest.importorskip("scipy.sparse")

BARS = {"2-point": 1e-6, "3-point": 1e-8, "5-point": 1e-10, "adaptive": 1e-9}
METHODS = list(BARS)
CALLS = {"2-point": 1, "3-point": 2, "5-point": 4}
VERIFICATION = 2

methods = pytest.mark.parametrize("method", METHODS)
fixed = pytest.mark.parametrize("method", CALLS)


def band(x):
    """Let each value depend on its element of x and on the two beside it."""
    y = np.sin(x)
    y[1:] += x[1:] * x[:-1]
    y[:-1] += 0.5 * x[1:] ** 2
    return y


def band_jacobian(x):
    j = np.diag(np.cos(x))
    n = np.arange(len(x) - 1)
    j[n + 1, n + 1] += x[:-1]
    j[n + 1, n] = x[1:]
    j[n, n + 1] = x[1:]
    return j


@numba.njit
def compiled_band(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = np.sin(x[i])
        if i > 0:
            y[i] += x[i] * x[i - 1]
        if i + 1 < x.size:
            y[i] += 0.5 * x[i + 1] ** 2
    return y


@numba.njit
def compiled_band_into(x, out):
    for i in range(x.size):
        out[i] = np.sin(x[i])
        if i > 0:
            out[i] += x[i] * x[i - 1]
        if i + 1 < x.size:
            out[i] += 0.5 * x[i + 1] ** 2


@numba.njit
def compiled_band_row(i, x):
    y = np.sin(x[i])
    if i > 0:
        y += x[i] * x[i - 1]
    if i + 1 < x.size:
        y += 0.5 * x[i + 1] ** 2
    return y


def batched_band(x):
    return band(x.T).T


FACTOR = 2.0
N = 30
X = np.linspace(-1.5, 2, N)
TRIDIAGONAL = sparse.diags_array(
    [np.ones(N - 1), np.ones(N), np.ones(N - 1)], offsets=[-1, 0, 1], format="csc"
).sorted_indices()
FORMS = {
    "python": (band, {}),
    "compiled": (compiled_band, {}),
    "out": (compiled_band_into, {"out_like": N}),
    "rowwise": (compiled_band_row, {"out_like": N, "rowwise": True}),
    "batched": (batched_band, {"batched": True}),
    "python out": (compiled_band_into.py_func, {"out_like": N}),
}
forms = pytest.mark.parametrize("form", FORMS)
either_kind = pytest.mark.parametrize("make", [lambda f: f, numba.njit], ids=["python", "compiled"])
either = pytest.mark.parametrize("f", [band, compiled_band], ids=["python", "compiled"])


def stencil(x):
    """Take the five-point stencil of a nonlinear field."""
    field = np.pad(x**2, 1)
    beside = field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:]
    return beside - 4 * np.sin(x)


def grid_pattern(shape):
    rows, columns = (
        sparse.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1]) for n in shape
    )
    identity = sparse.eye_array
    pattern = sparse.kron(identity(shape[0]), columns) + sparse.kron(rows, identity(shape[1]))
    return sparse.csc_array(pattern + identity(shape[0] * shape[1]))


def assert_near(found, exact, bar=1e-8):
    assert found.shape == exact.shape
    assert np.all(np.abs(found - exact) <= bar * max(1.0, np.abs(exact).max(initial=0)))


def assert_sparse(found, exact, bar, entries=None):
    assert isinstance(found, sparse.csc_array)
    starts, rows = found.indptr, found.indices
    for first, last in pairwise(starts):
        assert np.all(np.diff(rows[first:last]) > 0)
    assert found.nnz == (np.count_nonzero(exact) if entries is None else entries)
    assert_near(found.toarray(), exact, bar)


def counted(f):
    """Return f, and a list that grows by its argument at each call."""
    seen = []

    def recorded(x, *rest):
        seen.append(np.array(x))
        return f(x, *rest)

    return recorded, seen


# The result.


@forms
@methods
def test_the_result_is_that_of_a_dense_jacobian(form, method):
    f, options = FORMS[form]
    found = calipers.jacobian(f, X, method=method, sparsity=TRIDIAGONAL, **options)
    assert_sparse(found, band_jacobian(X), 10 * BARS[method], 3 * N - 2)
    dense = calipers.jacobian(f, X, method=method, **options)
    assert_near(found.toarray(), dense, 10 * BARS[method])


@pytest.mark.parametrize("form", ["compiled", "out", "rowwise"])
def test_compiled_functions_are_called_from_a_compiled_loop(form):
    f, options = FORMS[form]
    calipers.jacobian(f, X, sparsity=TRIDIAGONAL, **options)
    before = set(COLORED)
    assert before
    native = prepare(f, X, Options(sparsity=TRIDIAGONAL, **options)).native
    assert native is not None

    calipers.jacobian(f, 2 * X, sparsity=TRIDIAGONAL, **options)
    assert set(COLORED) == before


def test_a_compiled_function_may_take_few_colors_and_then_many():
    n = 300
    x = np.linspace(-1.5, 2, n)
    pattern = sparse.csc_array(band_jacobian(x) != 0)
    for groups in (np.arange(n) % 3, np.arange(n), np.arange(n) % 3):
        found = calipers.jacobian(compiled_band, x, sparsity=(pattern, groups))
        assert_sparse(found, band_jacobian(x), 1e-7)


def test_functions_of_one_signature_share_a_compiled_loop():
    @numba.njit
    def squares(x):
        return x * x

    calipers.jacobian(compiled_band, X, sparsity=TRIDIAGONAL)
    before = set(COLORED)
    found = calipers.jacobian(squares, X, sparsity=np.eye(N))
    assert_near(found.toarray(), np.diag(2 * X))
    assert set(COLORED) == before


PATTERNS = {
    "csc": TRIDIAGONAL,
    "csr": TRIDIAGONAL.tocsr(),
    "coo": TRIDIAGONAL.tocoo(),
    "dia": TRIDIAGONAL.todia(),
    "lil": TRIDIAGONAL.tolil(),
    "old": sparse.csr_matrix(TRIDIAGONAL),
    "dense bool": TRIDIAGONAL.toarray() != 0,
    "dense int": (TRIDIAGONAL.toarray() != 0).astype(int),
    "dense": -2.5 * TRIDIAGONAL.toarray(),
    "list": (TRIDIAGONAL.toarray() != 0).tolist(),
    "bool": TRIDIAGONAL.astype(bool),
    "groups": (TRIDIAGONAL, np.arange(N) % 3),
    "dense groups": (TRIDIAGONAL.toarray(), (np.arange(N) % 3).tolist()),
    "many groups": (TRIDIAGONAL, np.arange(N)),
    "detect": "detect",
}


@pytest.mark.parametrize("given", PATTERNS)
@either
def test_a_pattern_is_given_in_any_form(f, given):
    found = calipers.jacobian(f, X, sparsity=PATTERNS[given])
    assert_sparse(found, band_jacobian(X), 1e-7, 3 * N - 2)


def test_indices_in_any_order_repeated_wide_and_explicitly_zero():
    coo = TRIDIAGONAL.tocoo()
    rows, columns = (np.concatenate([c, c])[::-1] for c in coo.coords)
    repeated = sparse.coo_array((np.zeros(rows.size), (rows, columns)), shape=(N, N))
    shuffled = TRIDIAGONAL.copy()
    shuffled.indices = shuffled.indices.copy()
    for j in range(N):
        part = slice(shuffled.indptr[j], shuffled.indptr[j + 1])
        shuffled.indices[part] = shuffled.indices[part][::-1]
    shuffled = sparse.csc_array((shuffled.data, shuffled.indices, shuffled.indptr), shape=(N, N))
    wide = sparse.csc_array(
        (TRIDIAGONAL.data, TRIDIAGONAL.indices.astype("i8"), TRIDIAGONAL.indptr.astype("i8"))
    )
    for pattern in (repeated, shuffled, wide):
        before = pattern.copy()
        found = calipers.jacobian(compiled_band, X, sparsity=pattern)
        assert_sparse(found, band_jacobian(X), 1e-7, 3 * N - 2)
        assert pattern.nnz == before.nnz
        assert (pattern != before).nnz == 0


def test_what_is_done_to_a_result_is_not_done_to_the_pattern():
    pattern = sparse.csc_array(np.ones((3, 3)))
    found = calipers.jacobian(lambda x: x**2, np.arange(1.0, 4), sparsity=pattern)
    found.eliminate_zeros()
    assert np.array_equal(pattern.indices, np.tile(np.arange(3), 3))
    assert np.array_equal(pattern.indptr, [0, 3, 6, 9])


@either
def test_what_is_done_to_a_result_is_not_done_to_the_next(f):
    jac = calipers.jacobian_function(f, sparsity=TRIDIAGONAL.copy())
    first = jac(np.zeros(N))
    with pytest.raises(ValueError, match=r"not writeable|read-only"):
        first.eliminate_zeros()
    first.copy().eliminate_zeros()
    first.data[:] = 7
    assert_near(jac(X).toarray(), band_jacobian(X), 1e-7)


@pytest.mark.parametrize("pattern", [grid_pattern((3, 4)), "detect"], ids=["given", "detect"])
@methods
def test_axes_of_x_and_of_f_are_ravelled(method, pattern):
    x = np.linspace(0.5, 2, 12).reshape(3, 4)
    dense = calipers.jacobian(stencil, x, method="5-point").reshape(12, 12)
    d = calipers.differentiate(stencil, x, method=method, sparsity=pattern)
    assert_sparse(d.value, dense, 10 * BARS[method], grid_pattern((3, 4)).nnz)
    assert d.step.shape == d.status.shape == (3, 4)


@methods
def test_single_precision_stays(method):
    x = X.astype(np.float32)
    for f in (band, compiled_band):
        found = calipers.jacobian(f, x, method=method, sparsity=TRIDIAGONAL)
        assert found.dtype == np.float32
        assert_near(found.toarray(), band_jacobian(X), 5e-3)


def test_arguments_and_argnums():
    def f(a, x, b):
        return a * band(x) + b

    found = calipers.jacobian(f, X, args=(2.0, 1.0), argnums=1, sparsity=TRIDIAGONAL)
    assert_near(found.toarray(), 2 * band_jacobian(X), 1e-7)


@pytest.mark.parametrize(
    "form", ["rectangular", "tall", "no rows", "no columns", "nothing", "one column"]
)
@methods
def test_patterns_of_every_shape(form, method):
    shape = {
        "rectangular": (3, 7),
        "tall": (9, 4),
        "no rows": (0, 4),
        "no columns": (4, 0),
        "nothing": (0, 0),
        "one column": (5, 1),
    }[form]
    weights = np.random.default_rng(4).uniform(1, 2, shape) * (np.indices(shape).sum(0) % 3 == 0)
    x = np.linspace(0.5, 1, shape[1])
    exact = weights * np.cos(x)
    for sparsity in (weights, "detect"):
        d = calipers.differentiate(
            lambda x: weights @ np.sin(x), x, method=method, sparsity=sparsity
        )
        assert_sparse(d.value, exact, 10 * BARS[method])
        assert d.status.shape == x.shape
        assert len(str(d)) < 400


@methods
def test_empty_rows_and_columns(method):
    def f(x):
        y = np.zeros(9)
        y[2:5] = x[3:6] ** 2
        y[7] = x[3]
        return y

    exact = np.zeros((9, N))
    exact[[2, 3, 4], [3, 4, 5]] = 2 * X[3:6]
    exact[7, 3] = 1
    for compiled in (f, numba.njit(f)):
        for sparsity in (exact != 0, "detect"):
            found = calipers.jacobian(compiled, X, method=method, sparsity=sparsity)
            assert_sparse(found, exact, BARS[method])
    constant = calipers.jacobian(lambda x: np.ones(4), X, method=method, sparsity=np.zeros((4, N)))
    assert_sparse(constant, np.zeros((4, N)), 0)


@pytest.mark.parametrize("emptied", [False, True])
@methods
def test_what_is_left_out_is_not_displaced(method, emptied):
    held = np.isin(np.arange(N), [0, 7, 8, N - 1])
    pattern = TRIDIAGONAL.toarray()
    if emptied:
        pattern[:, held] = 0
    step = np.where(held, 0.0, 0.1 if method == "adaptive" else 1e-5)
    f, seen = counted(band)
    d = calipers.differentiate(f, X, method=method, sparsity=pattern, step=step)
    assert set(d.status[held]) == {"EXCLUDED"}
    assert np.all(np.array(seen)[:, held] == X[held])


@either
@methods
def test_an_element_left_out_is_not_a_number_in_its_column_alone(f, method):
    step = np.full(N, 0.1 if method == "adaptive" else 1e-5)
    step[5] = 0
    d = calipers.differentiate(f, X, method=method, sparsity=TRIDIAGONAL, step=step)
    value, exact = d.value.toarray(), band_jacobian(X)
    assert np.isnan(value[4:7, 5]).all()
    assert np.count_nonzero(np.isnan(value)) == 3
    value[:, 5] = exact[:, 5] = 0
    assert_near(value, exact, 1e-4 if method == "2-point" else 1e-7)
    assert d.status[5] == "EXCLUDED"
    assert "EXCLUDED" not in np.delete(d.status, 5)


@methods
def test_errors_belong_to_entries(method):
    for form, (f, options) in FORMS.items():
        d = calipers.differentiate(f, X, method=method, sparsity=TRIDIAGONAL, **options)
        assert isinstance(d.error, sparse.csc_array), form
        assert np.array_equal(d.error.indptr, d.value.indptr)
        assert np.array_equal(d.error.indices, d.value.indices)
        if method == "adaptive":
            exact = sparse.csc_array(band_jacobian(X))
            assert np.all(np.abs(d.value.data - exact.data) <= d.error.data)
            assert d.error.data.max() <= 1e-9
            assert set(d.status) == {"CONVERGED"}
        else:
            assert np.isinf(d.error.data).all()
            assert set(d.status) == {"FIXED"}


def test_a_sparse_derivative_goes_nowhere_as_an_array():
    d = calipers.differentiate(np.sin, SIX, sparsity=sparse.eye_array(6))
    with pytest.raises(TypeError, match=r"use \.value"):
        np.asarray(d)


@methods
def test_a_sparse_derivative_is_summarised_in_a_few_lines(method):
    d = calipers.differentiate(band, X, method=method, sparsity=TRIDIAGONAL)
    text = str(d)
    assert len(text) < 300
    assert "3 colors" in text
    assert f"({N}, {N})" in text
    assert ("  error       at most" in text) == (method == "adaptive")


def test_one_color_is_told_in_the_singular():
    found = calipers.differentiate(np.square, SIX, sparsity=sparse.eye_array(6))
    assert "in 1 color," in str(found)


# Who calls f.


@methods
@either
def test_workers_and_threads_change_nothing(f, method):
    expected = calipers.differentiate(f, X, method=method, sparsity=TRIDIAGONAL)
    for workers in (None, 1, 3, map):
        for threads in (1, 3):
            with calipers.num_threads(threads):
                options = {"method": method, "workers": workers}
                found = calipers.differentiate(f, X, sparsity=TRIDIAGONAL, **options)
            assert np.array_equal(found.value.data, expected.value.data)
            assert np.array_equal(found.error.data, expected.error.data)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bounds", [None, (-1.5, 2)])
@methods
@either
def test_what_is_recovered_in_parts_is_the_same(f, method, bounds, dtype, monkeypatch, tmp_path):
    x = X.astype(dtype)
    options = {"method": method, "sparsity": TRIDIAGONAL, "bounds": bounds}
    gradient = {"gradient": lambda x: band_jacobian(x).sum(0), "sparsity": TRIDIAGONAL}
    gradient |= {"method": method}
    expected = calipers.differentiate(f, x, **options)
    curved = calipers.hessian(None, x, **gradient)
    in_pieces(monkeypatch, 1)
    for more in ({}, {"workers": 2}, {"checkpoint": tmp_path}, {"checkpoint": tmp_path}):
        seen = []
        found = calipers.differentiate(
            f, x, progress=lambda *at, s=seen: s.append(at), **options, **more
        )
        assert same_entries(found, expected)
        assert [done for done, _ in seen] == list(range(1, seen[-1][1] + 1))
    assert same_entries(calipers.hessian(None, x, **gradient), curved)
    ask = calipers.jacobian_function(f, **options)
    for _ in range(2):
        assert np.array_equal(ask(x).data, expected.value.data)


def in_pieces(monkeypatch, size):
    """Let no more bytes than these be held at once."""
    monkeypatch.setattr(sparse_differences, "_BLOCK_BYTES", size)
    monkeypatch.setattr(runs, "_LARGEST_TASK", size)
    monkeypatch.setattr(adaptive, "_BLOCK_BYTES", size)


def same_entries(found, expected):
    same = np.array_equal(found.value.data, expected.value.data)
    same &= found.value.dtype == expected.value.dtype
    same &= np.array_equal(found.error.data, expected.error.data)
    same &= np.array_equal(found.status, expected.status) and found.nfev == expected.nfev
    return same and np.array_equal(found.step, expected.step)


@pytest.mark.parametrize("method", ["3-point", "adaptive"])
def test_many_colors_need_no_memory_for_all(method, monkeypatch):
    n = 1200
    in_pieces(monkeypatch, 1 << 20)
    arrow = sparse.lil_array((n, n))
    arrow[0] = arrow[:, 0] = 1
    arrow.setdiag(1)

    def f(x):
        y = x * x[0]
        y[0] = x.sum()
        return y

    x = np.linspace(1, 2, n)
    tracemalloc.start()
    found = calipers.differentiate(f, x, method=method, sparsity=arrow, step=0.01)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.colors == n
    assert peak < n * n * 8
    assert np.abs(found.value.diagonal()[1:] - 1).max() < 1e-9


def test_samples_of_colors_are_not_all_in_memory():
    n, colors = 200, 400
    pattern = sparse.kron(sparse.eye_array(n), np.ones((1, colors)))
    x = np.ones(n * colors)
    f = lambda x: np.exp(np.abs(x - 0.9)).reshape(n, colors).sum(1)  # noqa: E731
    tracemalloc.start()
    calipers.differentiate(f, x, sparsity=pattern)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * colors * 130 * n * 8


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_formats_without_a_kernel_have_a_pattern_too(method, dtype):
    x = np.linspace(1, 2, 6).astype(dtype)
    pattern = grid_pattern((2, 3))
    weights = pattern.toarray().astype(dtype)
    f = lambda x: (weights @ x) * x  # noqa: E731
    for options in ({}, {"bounds": (1, 2)}, {"workers": 2}):
        expected = calipers.jacobian(f, x, method=method, **options)
        found = calipers.jacobian(f, x, method=method, sparsity=pattern, **options)
        assert found.dtype == np.promote_types(dtype, np.float32)  # SciPy has no float16
        entries = pattern.toarray() != 0
        bar = {"2-point": 0.5}.get(method, 0.1) if dtype is np.float16 else 1e-8
        assert np.abs(found.toarray() - expected)[entries].max() <= bar
        ask = calipers.jacobian_function(f, method=method, sparsity=pattern, **options)
        assert np.array_equal(ask(x).toarray(), found.toarray())
    if dtype is np.longdouble:
        bent = calipers.hessian(None, x, gradient=np.square, method=method, sparsity="detect")
        assert np.abs(bent.value.toarray() - np.diag(2 * x)).max() <= 1e-8


def test_threads_that_share_colors_change_nothing():
    @numba.njit
    def slow(x):
        y = np.zeros_like(x)
        for _ in range(100):
            for i in range(x.size):
                y[i] += np.sin(x[i]) + x[i] * x[i - 1]
        return y

    x, n = np.linspace(-1, 1, 60), np.arange(60)
    pattern = np.zeros((60, 60))
    pattern[n, n] = pattern[n, n - 1] = 1
    groups = (sparse.csc_array(pattern), n)
    found = []
    for threads in (1, 2, 5):
        with calipers.num_threads(threads):
            found.append(calipers.jacobian(slow, x, sparsity=groups))
    assert np.array_equal(found[0].data, found[1].data)
    assert np.array_equal(found[0].data, found[2].data)


@pytest.mark.parametrize("method", METHODS)
def test_progress_counts_colors(method):
    seen = []
    calipers.jacobian(
        band, X, method=method, sparsity=TRIDIAGONAL, progress=lambda *at: seen.append(at)
    )
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == (6 if method == "5-point" else 3)


@fixed
def test_progress_ends_once(method, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    calipers.jacobian(band, X, method=method, sparsity=TRIDIAGONAL, progress=True)
    assert capsys.readouterr().err.count("\n") == 1


@either
@methods
def test_exceptions_of_f_arrive(f, method):
    @numba.njit
    def refuses(x):
        if x[3] != 1.0:
            raise KeyError("three")
        return x

    g = refuses if f is compiled_band else refuses.py_func
    with pytest.raises(KeyError, match="three"):
        calipers.jacobian(g, np.ones(8), method=method, sparsity=np.eye(8))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("method", ["3-point", "adaptive"])
def test_what_f_raises_in_a_sparse_jacobian_names_the_color(compiled, method):
    def f(x):
        if x[1] != 0.7:
            raise ValueError("moved")
        return x * x

    if compiled:
        f = numba.njit(f)
    options = {"sparsity": (sparse.eye_array(6), np.arange(6)), "method": method}
    with pytest.raises(ValueError, match="moved") as caught:
        calipers.jacobian(f, SIX, **options)
    assert (
        f"raised by f with the columns of color 1 perturbed; {UNDEFINED}" in caught.value.__notes__
    )


@methods
def test_x_is_never_written(method):
    def scribble(x):
        y = band(x)
        x[:] = 9
        return y

    x = X.copy()
    x.flags.writeable = False
    for f in (band, compiled_band, scribble):
        found = calipers.jacobian(f, x, method=method, sparsity=TRIDIAGONAL)
        assert_near(found.toarray(), band_jacobian(X), 10 * BARS[method])
    assert np.array_equal(x, X)


@methods
def test_a_compiled_function_that_writes_into_its_argument_is_refused_or_right(method):
    @numba.njit
    def scribbles(x):
        y = x * x
        x[0] = -1.0
        return y

    try:
        found = calipers.jacobian(scribbles, X, method=method, sparsity=np.eye(N))
    except ValueError:
        return
    assert_near(found.toarray(), np.diag(2 * X), 10 * BARS[method])


@methods
def test_f_may_return_its_argument_or_a_buffer(method):
    buffer = np.empty(N)

    def f(x):
        buffer[:] = x**2
        return buffer

    found = calipers.jacobian(f, X, method=method, sparsity=np.eye(N))
    assert_near(found.toarray(), np.diag(2 * X), 10 * BARS[method])
    for batched in (False, True):
        found = calipers.jacobian(
            lambda x: x, X, method=method, sparsity=np.eye(N), batched=batched
        )
        assert_near(found.toarray(), np.eye(N), BARS[method])


@methods
@either
def test_a_place_that_is_not_a_number_spoils_its_rows_alone(f, method):
    x = X.copy()
    x[10] = np.nan
    with np.errstate(all="ignore"):
        found = calipers.jacobian(f, x, method=method, sparsity=TRIDIAGONAL).toarray()
    away = np.r_[:9, 12:N]
    assert_near(found[np.ix_(away, away)], band_jacobian(X)[np.ix_(away, away)], 10 * BARS[method])
    assert np.isnan(found[10, 10])


# How often f is called.


@pytest.mark.parametrize("groups", [None, np.arange(N) % 3, np.arange(N) % 5])
@fixed
def test_f_is_called_once_or_twice_for_each_color(method, groups):
    f, seen = counted(band)
    given = TRIDIAGONAL if groups is None else (TRIDIAGONAL, groups)
    d = calipers.differentiate(f, X, method=method, sparsity=given)
    assert d.colors == (3 if groups is None else groups.max() + 1)
    assert d.nfev == 1 + d.colors * CALLS[method] + VERIFICATION
    # The first call may be timed.
    assert d.nfev <= len(seen) <= d.nfev + 1


@pytest.mark.parametrize("sparsity", [TRIDIAGONAL, "detect"], ids=["given", "detect"])
@pytest.mark.parametrize("bounds", [None, (X[0], 9.0), (-9.0, X)])
@methods
def test_nfev_is_how_often_f_was_called(method, sparsity, bounds):
    f, seen = counted(band)
    d = calipers.differentiate(f, X, method=method, sparsity=sparsity, bounds=bounds)
    assert d.nfev == len(seen)
    if method == "adaptive" and sparsity is TRIDIAGONAL:
        assert d.nfev <= 3 * 60


def test_what_is_left_out_costs_no_call():
    f, seen = counted(band)
    left_out = np.where(np.arange(N) % 3 == 0, 0.25, 0.0)
    d = calipers.differentiate(f, X, sparsity=(TRIDIAGONAL, np.arange(N) % 3), step=left_out)
    assert (d.status == "EXCLUDED").tolist() == (left_out == 0).tolist()
    assert d.nfev == len(seen) <= 1 + 45 + VERIFICATION


def test_a_pattern_is_sought_at_three_points_within_bounds():
    f, seen = counted(band)
    options = {"method": "2-point", "sparsity": "detect"}
    assert calipers.differentiate(f, X, bounds=(-9, 9), **options).nfev == 1 + 3 * (1 + N) + 3
    assert len(seen) == 1 + 3 * (1 + N) + 3
    assert calipers.differentiate(f, X, **options).nfev == 1 + 3 * (1 + N) + 3


def test_a_pattern_is_checked_once():
    f, seen = counted(band)
    jac = calipers.jacobian_function(f, X, sparsity=TRIDIAGONAL)
    jac(X)
    before = len(seen)
    for k in range(1, 4):
        assert_near(jac(k * X).toarray(), band_jacobian(k * X), 1e-7)
    assert len(seen) - before == 3 * (1 + 3 * 2)


def test_wide_gaps_between_groups_cost_nothing():
    f, seen = counted(band)
    groups = np.array([2, 7, 100])[np.arange(N) % 3]
    d = calipers.differentiate(f, X, method="3-point", sparsity=(TRIDIAGONAL, groups))
    assert d.colors == 3
    assert len(seen) <= 2 + 6 + VERIFICATION


# Patterns that were used before.


@pytest.mark.parametrize("name", ["csc", "csr", "coo"])
@either_kind
def test_a_pattern_that_is_changed_in_place_is_another_one(name, make):
    squares, mirrored = make(lambda x: x * x), make(lambda x: x[::-1] ** 2)
    pattern = sparse.eye_array(N, format=name)
    for _ in range(2):
        found = calipers.jacobian(squares, X, sparsity=pattern)
        assert_sparse(found, np.diag(2 * X), 1e-9)
        with pytest.raises(ValueError, match="misses entries"):
            calipers.jacobian(mirrored, X, sparsity=pattern)
    rows = pattern.row if name == "coo" else pattern.indices
    rows[:] = rows[::-1].copy()
    found = calipers.jacobian(mirrored, X, sparsity=pattern)
    assert_sparse(found, np.diag(2 * X)[::-1], 1e-9)
    with pytest.raises(ValueError, match="misses entries"):
        calipers.jacobian(squares, X, sparsity=pattern)


def test_a_pattern_that_loses_an_entry_or_gets_a_row_is_another_one():
    pattern = sparse.diags_array([1.0], offsets=[0], shape=(N, N))
    assert pattern.format == "dia"
    calipers.jacobian(np.sin, X, sparsity=pattern)
    pattern.data[0, 3] = 0
    with pytest.raises(ValueError, match=r"misses entries in 1 or more rows \(3\)"):
        calipers.jacobian(np.sin, X, sparsity=pattern)
    pattern = TRIDIAGONAL.copy()
    calipers.jacobian(band, X, sparsity=pattern)
    pattern.resize(N + 1, N)
    with pytest.raises(ValueError, match=rf"sparsity has shape \({N + 1}, {N}\)"):
        calipers.jacobian(band, X, sparsity=pattern)


@either
def test_a_result_has_its_own_indices(f):
    pattern = TRIDIAGONAL.copy()
    for _ in range(3):
        found = calipers.jacobian(f, X, sparsity=pattern)
        assert_sparse(found, band_jacobian(X), 1e-7, 3 * N - 2)
        found.indices[:] = 0
        found.indptr[:] = 0
    assert_near(
        calipers.jacobian_function(f, sparsity=pattern)(X).toarray(), band_jacobian(X), 1e-7
    )
    pattern.indices.flags.writeable = False
    assert_near(calipers.jacobian(f, X, sparsity=pattern).toarray(), band_jacobian(X), 1e-7)


def test_a_pattern_is_colored_again_only_if_f_is_much_slower(monkeypatch):
    costs, colored = iter([1.0, 1.9, 5.0, 1.0, 9.9, 11.0]), []

    def recorded(indptr, indices, shape, cost):
        colored.append(cost)
        return color_columns(indptr, indices, shape, cost)

    monkeypatch.setattr(colored_patterns, "color_columns", recorded)
    monkeypatch.setattr(sparse_differences, "_cost", lambda problem, steps: next(costs))
    pattern = TRIDIAGONAL.copy()
    for method in ("2-point", "3-point", "5-point"):
        calipers.jacobian(band, X, method=method, sparsity=pattern)
    calipers.jacobian_function(band, X, sparsity=pattern)
    calipers.differentiate(band, X, sparsity=pattern)
    calipers.jacobian(compiled_band, X, sparsity=pattern)
    assert colored == [1.0, 5.0, 11.0]


def test_what_is_kept_of_a_pattern_is_deleted_with_it():
    pattern = TRIDIAGONAL.copy()
    calipers.jacobian(band, X, sparsity=pattern)
    number = id(pattern)
    kept = weakref.ref(colored_patterns._colored[number].pattern)
    del pattern
    gc.collect()
    assert kept() is None
    assert number not in colored_patterns._colored


def test_threads_share_a_pattern():
    pattern = TRIDIAGONAL.copy()
    points = [X * (1 + k / 64) for k in range(64)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: calipers.jacobian(band, x, sparsity=pattern), points))
    for x, each in zip(points, found, strict=True):
        assert_sparse(each, band_jacobian(x), 1e-7, 3 * N - 2)


def test_a_function_that_is_compiled_again_has_another_jacobian(monkeypatch):
    f = numba.njit(lambda x: FACTOR * x**2)
    pattern = sparse.eye_array(N, format="csc")
    for factor in (2.0, 10.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        f.recompile()
        for _ in range(2):
            found = calipers.jacobian(f, X, sparsity=pattern)
            assert_near(found.toarray(), np.diag(2 * factor * X))


# Patterns that are wrong.


@pytest.mark.parametrize(
    "pattern", [np.ones((N, N + 1)), np.ones((N - 1, N)), sparse.csc_array((3, 3))]
)
@pytest.mark.parametrize("ask", [calipers.jacobian, calipers.differentiate])
def test_a_pattern_of_another_shape_is_refused(ask, pattern):
    message = rf"sparsity has shape \({pattern.shape[0]}, {pattern.shape[1]}\).*\(30, 30\)"
    with pytest.raises(ValueError, match=message):
        ask(band, X, sparsity=pattern)
    with pytest.raises(ValueError, match=message):
        calipers.jacobian_function(band, X, sparsity=pattern)


@pytest.mark.parametrize("pattern", ["find", 3, object(), np.array(["a"]), None])
def test_what_is_no_pattern_is_refused(pattern):
    if pattern is None:
        assert isinstance(calipers.jacobian(band, X, sparsity=None), np.ndarray)
        return
    with pytest.raises((TypeError, ValueError), match="sparsity"):
        calipers.jacobian(band, X, sparsity=pattern)


@either
@methods
def test_groups_that_share_a_row_are_refused(f, method):
    groups = np.arange(N) % 3
    groups[6] = 1
    with pytest.raises(ValueError, match=r"columns (4 and 6|6 and 7) in one group") as caught:
        calipers.jacobian(f, X, method=method, sparsity=(TRIDIAGONAL, groups))
    assert "row" in str(caught.value)


@pytest.mark.parametrize("groups", [np.zeros(N - 1, int), np.zeros(N), [[0] * N], -np.arange(N)])
def test_groups_that_make_no_sense_are_refused(groups):
    with pytest.raises(ValueError, match=r"sparsity (must give the|gives column \d+ the) group"):
        calipers.jacobian(band, X, sparsity=(TRIDIAGONAL, groups))


def without(*entries):
    pattern = TRIDIAGONAL.toarray()
    for i, j in entries:
        pattern[i, j] = 0
    return sparse.csc_array(pattern)


@forms
@methods
def test_a_pattern_that_misses_an_entry_is_refused(form, method):
    f, options = FORMS[form]
    with pytest.raises(ValueError, match=r"misses entries in 1 or more rows \(12\):"):
        calipers.jacobian(f, X, method=method, sparsity=without((12, 11)), **options)
    with pytest.raises(ValueError, match=r"misses entries in 2 or more rows \(3, 20\):"):
        calipers.jacobian(f, X, method=method, sparsity=without((3, 3), (20, 21)), **options)


@either
@methods
def test_what_is_missed_is_missed_at_first_with_bounds_too(f, method):
    options = {"method": method, "bounds": (X - 1, X + 0.5)}
    with pytest.raises(ValueError, match=r"misses entries in 1 or more rows \(12\):"):
        calipers.jacobian(f, X, sparsity=without((12, 12)), **options)


@pytest.mark.parametrize(
    "bounds",
    [(X, X + 1), (X - 1, X), (X, np.where(np.arange(N) == 5, X, X + 1)), (X - 1e-12, X + 1)],
    ids=["lower", "upper", "one held", "near"],
)
@either
@methods
def test_what_is_missed_is_missed_at_the_edge_of_bounds_too(f, method, bounds):
    g, seen = counted(f)
    options = {"method": method, "bounds": bounds}
    with pytest.raises(ValueError, match=r"misses entries in \d+ or more rows"):
        calipers.jacobian(g, X, sparsity=without((12, 12), (20, 21)), **options)
    called = np.array(seen)
    assert np.all((bounds[0] <= called) & (called <= bounds[1]))
    found = calipers.jacobian(f, X, sparsity=TRIDIAGONAL, **options)
    assert found.nnz == TRIDIAGONAL.nnz


def test_many_missing_rows_are_counted():
    with pytest.raises(ValueError, match=r"30 or more rows \(0, 1, 2, 3, 4, \.\.\.\): f depends"):
        calipers.jacobian(lambda x: x * x[::-1] + x, X + 2, sparsity=np.eye(N))


@either
@methods
def test_a_planned_function_refuses_a_wrong_pattern_at_once(f, method):
    with pytest.raises(ValueError, match=r"misses entries in 1 or more rows \(12\):"):
        calipers.jacobian_function(f, X, method=method, sparsity=without((12, 11)))
    groups = (TRIDIAGONAL, np.zeros(N, int))
    with pytest.raises(ValueError, match="in one group"):
        calipers.jacobian_function(f, X, method=method, sparsity=groups)


@either
@methods
def test_a_function_refuses_a_wrong_pattern_each_time(f, method):
    jac = calipers.jacobian_function(f, method=method, sparsity=without((12, 11)))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"misses entries in 1 or more rows \(12\):"):
            jac(X)


RIGHT = {
    "band": (band, TRIDIAGONAL),
    "band with an offset": (lambda x: 1e6 + band(x), TRIDIAGONAL),
    "band in a full pattern": (band, np.ones((N, N))),
    "flat at 0": (lambda x: x**2 * np.tanh(x), np.eye(N)),
    "steep": (lambda x: np.exp(np.minimum(x, 50)), np.eye(N)),
    "kinked": (np.abs, np.eye(N)),
    "wavy": (lambda x: np.sin(100 * x), np.eye(N)),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1.0, 1e3])
@methods
def test_a_right_pattern_is_not_refused(name, scale, method):
    if (name, scale, method) == ("wavy", 1e3, "5-point"):
        pytest.skip("the step spans many waves: nothing can be said of this derivative")
    f, pattern = RIGHT[name]
    x = scale * np.random.default_rng(6).uniform(-1, 1, N)
    found = calipers.jacobian(f, x, method=method, sparsity=pattern)
    assert found.nnz == np.count_nonzero(sparse.csc_array(pattern).toarray())


@methods
def test_a_full_row_misses_nothing(method):
    rough = lambda x: np.concatenate([[1e3 * np.sin(1e12 * x.sum())], x[1:] ** 2])  # noqa: E731
    pattern = np.eye(N)
    pattern[0] = 1
    for seed in range(5):
        x = np.random.default_rng(seed).uniform(-1, 1, N)
        groups = (pattern, np.arange(N))
        found = calipers.jacobian(rough, x, method=method, sparsity=groups).toarray()
        assert_near(found[1:, 1:], np.diag(2 * x[1:]), 10 * BARS[method])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.exp(x.astype(np.float32)).astype(float),
        lambda x: np.exp(x) + 1e-8 * np.sin(1e14 * x),
        lambda x: np.floor(1e6 * np.sin(x)) / 1e6,
    ],
)
@pytest.mark.parametrize("method", ["2-point", "3-point", "adaptive"])
def test_noise_makes_no_pattern_wrong(f, method):
    n = 300
    calipers.jacobian(f, np.linspace(0.1, 1, n), sparsity=sparse.eye_array(n), method=method)


@pytest.mark.parametrize("noise", [0.0, 1e-8])
def test_a_missing_entry_is_found_beside_noise(noise):
    n = 300

    def f(x):
        y = np.exp(x) + noise * np.sin(1e14 * x)
        y[7] += x[8]
        return y

    with pytest.raises(ValueError, match=r"misses entries in 1 or more rows \(7\): f depends"):
        calipers.jacobian(f, np.linspace(0.1, 1, n), sparsity=sparse.eye_array(n))


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "cs", "adaptive"])
def test_a_missing_entry_is_found_however_small_it_is_in_its_row(method):
    random = np.random.default_rng(1)
    a, b = random.normal(size=(2, 18, 21))
    b[:, ::2] = 0  # so that colors are shared
    a[:, ::2] *= random.random((18, 11)) < 0.3
    x = random.normal(size=21)
    pattern = (a != 0) | (b != 0)
    for i, j in random.permutation(np.argwhere(pattern))[:25]:
        left = pattern.copy()
        left[i, j] = False
        with pytest.raises(ValueError, match=rf"misses entries in 1 or more rows \({i}\):"):
            calipers.jacobian(
                lambda x: np.sin(a @ x) + b @ (x * x),
                x,
                method=method,
                sparsity=sparse.csr_array(left),
            )


def test_a_missing_entry_is_found_beside_one_that_is_a_million_times_as_large():
    def f(x):
        y = np.sin(x)
        y[7] += 1e6 * x[7] + x[8]
        return y

    banded = sparse.diags_array([np.ones(49), np.ones(50), np.ones(49)], offsets=[-1, 0, 1])
    left = banded.tolil()
    left[7, 8] = 0
    calipers.jacobian(f, np.linspace(0.1, 1, 50), sparsity=banded)
    with pytest.raises(ValueError, match=r"misses entries in 1 or more rows \(7\):"):
        calipers.jacobian(f, np.linspace(0.1, 1, 50), sparsity=left.tocsr())


def test_a_missing_entry_is_found_beside_an_element_that_is_left_out():
    def f(x):
        y = np.sin(x)
        y[7] += 1e6 * x[7] + x[8]
        return y

    step = np.full(50, 1e-5)
    step[20] = 0
    given = sparse.eye_array(50), np.arange(50) % 2
    with pytest.raises(ValueError, match=r"misses entries in 1 or more rows \(7\):"):
        calipers.jacobian(f, np.linspace(0.1, 1, 50), sparsity=given, step=step)


def test_a_missing_entry_is_found_beside_rows_that_are_noisier():
    n = 300
    banded = sparse.diags_array([np.ones(n - 1), np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1])
    left = banded.tolil()
    left[7, 8] = 0

    def f(x):
        noise = np.where(np.arange(n) == 7, 0, 1e-8) * np.sin(1e14 * x)
        return np.exp(x) + noise + np.where(np.arange(n) == 7, 1e-5 * x[8], 0)

    with pytest.raises(ValueError, match=r"misses entries in 1 or more rows \(7\):"):
        calipers.jacobian(f, np.linspace(0.1, 1, n), sparsity=left.tocsr())


@pytest.mark.parametrize("method", ["2-point", "3-point", "adaptive"])
def test_values_that_are_rounded_together_make_no_pattern_wrong(method):
    """Each is another number by a last place of the largest wherever x is moved."""

    def f(x):
        return np.fft.ifft(np.fft.fft(x * 10.0 ** np.linspace(-9, 9, 64))).real

    calipers.jacobian(f, np.linspace(0.1, 1, 64), sparsity=sparse.eye_array(64), method=method)


@pytest.mark.parametrize("method", ["2-point", "3-point"])
def test_what_does_not_repeat_itself_makes_no_pattern_wrong(method):
    random = np.random.default_rng(0)
    x = np.linspace(0.1, 1, 50)

    def f(x):
        return np.exp(x) * (1 + 1e-12 * random.standard_normal(50))

    banded = sparse.diags_array([np.ones(49), np.ones(50), np.ones(49)], offsets=[-1, 0, 1])
    calipers.jacobian(f, x, sparsity=banded, method=method)


@pytest.mark.parametrize("options", [{"holomorphic": True}, {}, {"method": "adaptive"}])
def test_complex_numbers_have_no_pattern(options):
    with pytest.raises(ValueError, match="sparsity is for real x"):
        calipers.jacobian(lambda x: x**2, X + 0j, sparsity=np.eye(N), **options)
    with pytest.raises(ValueError, match="sparsity is for real x"):
        calipers.jacobian(lambda x: 1j * x**2, X, sparsity=np.eye(N))


# Patterns that are found.


@forms
@methods
def test_the_pattern_of_a_band_is_found(form, method):
    f, options = FORMS[form]
    d = calipers.differentiate(f, X, method=method, sparsity="detect", **options)
    assert_sparse(d.value, band_jacobian(X), 10 * BARS[method], 3 * N - 2)
    assert np.array_equal(d.value.indices, TRIDIAGONAL.indices)
    assert d.colors == 3


def test_a_pattern_is_found_in_parts(monkeypatch):
    monkeypatch.setattr(patterns, "_BLOCK_BYTES", 7 * 8 * N)
    for f in (band, compiled_band):
        found = calipers.jacobian(f, X, sparsity="detect")
        assert_sparse(found, band_jacobian(X), 1e-7, 3 * N - 2)


def test_what_one_side_of_a_hessian_shows_the_other_has():
    gradient = lambda x: np.array([1e17 * x[0] + x[1], x[0] + 2 * x[1]])  # noqa: E731
    h = calipers.hessian(None, [1.0, 1.0], gradient=gradient, method="3-point", sparsity="detect")
    assert h.value.nnz == 4
    assert_near(h.value.toarray(), np.array([[1e17, 1], [1, 2]]))


@pytest.mark.parametrize("shape", [(5, 5), (4, 7), (1, 6)])
def test_the_pattern_of_a_stencil_is_found(shape):
    x = np.linspace(0.5, 1.5, shape[0] * shape[1]).reshape(shape)
    d = calipers.differentiate(stencil, x, sparsity="detect", method="3-point")
    expected = grid_pattern(shape)
    assert np.array_equal(d.value.indptr, expected.indptr)
    assert np.array_equal(d.value.indices, expected.indices)
    assert d.colors <= 7
    dense = calipers.jacobian(stencil, x).reshape(x.size, x.size)
    assert_near(d.value.toarray(), dense, 1e-7)


@either
def test_the_pattern_of_a_function_at_zero_is_found(f):
    found = calipers.jacobian(f, np.zeros(N), sparsity="detect")
    assert np.array_equal(found.indices, TRIDIAGONAL.indices)
    assert_near(found.toarray(), np.eye(N), 1e-7)


def test_a_found_pattern_stays_within_bounds():
    f, seen = counted(band)
    found = calipers.jacobian(f, X, sparsity="detect", bounds=(X, X + 1e-3))
    assert_near(found.toarray(), band_jacobian(X), 1e-7)
    called = np.array(seen)
    assert np.all((X <= called) & (called <= X + 1e-3))


def test_patterns_are_looked_for_at_several_points_within_bounds():
    f = lambda x: np.array([x[0] * x[1], x[1]])  # noqa: E731
    for bounds in ((-np.inf, np.inf), ([0, 0], [1, 1])):
        found = calipers.jacobian(f, np.zeros(2), sparsity="detect", bounds=bounds)
        assert found.nnz == 3


# Bounds.


@pytest.mark.parametrize("room", [(0.0, 1.0), (1.0, 0.0), (1e-9, 1.0), (0.5, 1e-10)])
@either
@methods
def test_f_is_not_called_outside_bounds(f, method, room):
    low, high = X - room[0], X + room[1]
    g, seen = counted(f)
    d = calipers.differentiate(g, X, method=method, sparsity=TRIDIAGONAL, bounds=(low, high))
    assert_near(d.value.toarray(), band_jacobian(X), 50 * BARS[method])
    called = np.array(seen)
    assert np.all((low <= called) & (called <= high))
    found = calipers.jacobian(f, X, method=method, sparsity=TRIDIAGONAL, bounds=(low, high))
    assert_near(found.toarray(), band_jacobian(X), 50 * BARS[method])
    if method == "adaptive":
        exact = sparse.csc_array(band_jacobian(X))
        assert np.all(np.abs(d.value.data - exact.data) <= d.error.data)


def test_a_longer_ladder_stays_within_bounds():
    high = 1e-8 + 1e-5
    f, seen = counted(np.exp)
    x = np.full(4, 1e-8)
    options = {"sparsity": np.eye(4), "bounds": (-np.inf, high)}
    d = calipers.differentiate(f, x, **options)
    assert np.all(np.abs(d.value.diagonal() - np.exp(x)) <= d.error.diagonal())
    assert np.max(seen) <= high


def test_ladders_that_reach_a_bound_are_not_rounded_beyond_it():
    n = 200
    random = np.random.default_rng(0)
    x = random.uniform(-1e-3, 1e-3, n)
    bounds = x - 0.2 * random.random(n), x + 0.2 * random.random(n)
    f, seen = counted(np.sin)
    pattern = np.eye(n), np.arange(n)  # each reaches as far as it can
    calipers.differentiate(f, x, sparsity=pattern, bounds=bounds, step=random.uniform(1, 2, n))
    called = np.array(seen)
    assert np.all((bounds[0] <= called) & (called <= bounds[1]))


@pytest.mark.parametrize("held", [{"step": [0.1, 0, 0, 0]}, {"bounds": (1, [2, 1, 1, 1])}])
def test_where_nothing_moves_the_ladder_of_a_color_knows_nothing(held):
    random = np.random.default_rng(0)

    def f(x):
        return np.array([x[0], 1.0, x[2] + 1e-9 * random.random(), 0 * x[3]])

    d = calipers.differentiate(f, np.ones(4), sparsity=np.eye(4), **held)
    assert np.isnan(d.value.data).tolist() == [False, True, True, True]
    assert np.isinf(d.error.data).tolist() == [False, True, True, True]


@either
@methods
def test_edges_differ_between_columns(f, method):
    low = np.where(np.arange(N) % 2, X, -9.0)
    high = np.where(np.arange(N) % 5 == 0, X, 9.0)
    none = low == high
    g, seen = counted(f)
    d = calipers.differentiate(g, X, method=method, sparsity=TRIDIAGONAL, bounds=(low, high))
    value, exact = d.value.toarray(), band_jacobian(X)
    assert (d.status == "BOUNDED").tolist() == none.tolist()
    assert np.array_equal(np.isnan(value).any(axis=0), none)
    value[:, none] = exact[:, none] = 0
    assert_near(value, exact, 50 * BARS[method])
    called = np.array(seen)
    assert np.all((low <= called) & (called <= high))


@methods
def test_a_function_stays_within_bounds_wherever_it_is_asked(method):
    f, seen = counted(band)
    jac = calipers.jacobian_function(f, X, method=method, sparsity=TRIDIAGONAL, bounds=(-2, 2))
    for x in (np.full(N, 2.0), np.full(N, -2.0), np.clip(2 * X, -2, 2)):
        assert_near(jac(x).toarray(), band_jacobian(x), 50 * BARS[method])
    assert np.abs(seen).max() <= 2
    with pytest.raises(ValueError, match=r"x\[0\] = -3.0 is outside its bounds"):
        jac(2 * X)


# Complex steps.


@pytest.mark.parametrize("pattern", [TRIDIAGONAL, (TRIDIAGONAL, np.arange(N) % 5), "detect"])
@forms
def test_complex_steps_have_a_pattern(form, pattern):
    f, options = FORMS[form]
    d = calipers.differentiate(f, X, method="cs", sparsity=pattern, **options)
    assert_sparse(d.value, band_jacobian(X), 1e-14, TRIDIAGONAL.nnz)
    assert np.all(d.status == "FIXED")
    assert d.colors == (5 if isinstance(pattern, tuple) else 3)
    dense = calipers.jacobian(f, X, method="cs", **options)
    assert_near(d.value.toarray(), dense, 1e-15)
    assert np.allclose(d.step, 1e-20 * np.maximum(1, np.abs(X)), rtol=1e-15)


@pytest.mark.parametrize("pattern", [TRIDIAGONAL, "detect"])
def test_complex_steps_tell_how_often_f_was_called(pattern):
    f, seen = counted(band)
    d = calipers.differentiate(f, X, method="cs", sparsity=pattern)
    assert d.nfev == len(seen)
    assert sum(np.any(x.imag) for x in seen) == 3


@pytest.mark.parametrize("pattern", [TRIDIAGONAL, "detect"])
@pytest.mark.parametrize(
    ("f", "options"),
    [
        (lambda x: band(x + 0j), {}),
        (compiled_band_into, {"out_like": np.empty(N, complex)}),
    ],
)
def test_complex_steps_of_what_is_always_complex(f, options, pattern):
    found = calipers.jacobian(f, X, method="cs", sparsity=pattern, **options)
    assert_sparse(found, band_jacobian(X), 1e-14, TRIDIAGONAL.nnz)


@either
def test_complex_steps_are_the_same_however_the_work_is_done(f, monkeypatch, tmp_path):
    options = {"method": "cs", "sparsity": TRIDIAGONAL}
    expected = calipers.differentiate(f, X, **options)
    for size in (None, 1):
        if size:
            in_pieces(monkeypatch, size)
        for more in ({}, {"workers": 2}, {"checkpoint": tmp_path}, {"checkpoint": tmp_path}):
            assert same_entries(calipers.differentiate(f, X, **options, **more), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.longdouble])
def test_complex_steps_of_other_formats(dtype):
    x = X.astype(dtype)
    found = calipers.jacobian(band, x, method="cs", sparsity=TRIDIAGONAL)
    assert found.dtype == dtype
    assert_near(found.toarray(), band_jacobian(x), 8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("pattern", [TRIDIAGONAL, "detect"], ids=["given", "detect"])
def test_complex_steps_stay_within_bounds(pattern):
    f, seen = counted(band)
    options = {"method": "cs", "sparsity": pattern, "bounds": (X, X + 1e-3)}
    jac = calipers.jacobian_function(f, X, **options)
    for x in (X, X + 1e-3):
        assert_near(jac(x).toarray(), band_jacobian(x), 1e-14)
    called = np.real(seen)
    assert np.all((X <= called) & (called <= X + 1e-3))
    with pytest.raises(ValueError, match="is outside its bounds"):
        jac(X + 2e-3)


def test_a_complex_step_of_0_leaves_an_element_out():
    step = np.full(N, 1e-30)
    step[3] = 0
    d = calipers.differentiate(band, X, method="cs", sparsity=TRIDIAGONAL, step=step)
    assert (d.status == "EXCLUDED").tolist() == (step == 0).tolist()
    value, exact = d.value.toarray(), band_jacobian(X)
    assert np.isnan(value[2:5, 3]).all()
    value[:, 3] = exact[:, 3]
    assert_near(value, exact, 1e-14)


@either
def test_complex_steps_do_not_hide_what_a_pattern_misses(f):
    for pattern in (sparse.eye_array(N, format="csc"), TRIDIAGONAL.copy()):
        pattern[12, 12] = 0
        pattern.eliminate_zeros()
        with pytest.raises(ValueError, match=r"misses entries in \d+ or more rows"):
            calipers.jacobian(f, X, method="cs", sparsity=pattern)


# Functions that give sparse Jacobians.


@forms
@pytest.mark.parametrize("method", [*METHODS, "cs"])
def test_a_sparse_jacobian_function_is_right_wherever_it_is_asked(form, method):
    f, options = FORMS[form]
    options = {"method": method, "sparsity": TRIDIAGONAL, **options}
    jac = calipers.jacobian_function(f, 1e6 * X, **options)
    for x in (X, 1e-3 * X, 1e3 * X):
        assert np.array_equal(jac(x).data, calipers.jacobian(f, x, **options).data)


def test_a_solver_takes_it():
    integrate = pytest.importorskip("scipy.integrate")
    heat = lambda t, y: 20 * (np.roll(y, 1) - 2 * y + np.roll(y, -1)) - y**3  # noqa: E731
    jac = calipers.jacobian_function(heat, argnums=1, sparsity="detect")
    y = np.linspace(0.1, 1, N)
    found = integrate.solve_ivp(heat, (0, 1), y, method="BDF", jac=jac, rtol=1e-8, atol=1e-10)
    expected = integrate.solve_ivp(heat, (0, 1), y, method="Radau", rtol=1e-8, atol=1e-10)
    assert found.success
    assert np.allclose(found.y[:, -1], expected.y[:, -1], rtol=1e-5)


def test_least_squares_takes_it():
    optimize = pytest.importorskip("scipy.optimize")
    target = band(X)
    f = numba.njit(lambda x, target: compiled_band(x) - target)
    jac = calipers.jacobian_function(f, sparsity=TRIDIAGONAL)
    found = optimize.least_squares(f, X + 0.01, jac=jac, args=(target,), tr_solver="lsmr")
    assert np.allclose(band(found.x), target, atol=1e-6)


@methods
def test_the_pattern_limits_no_memory(method):
    n = 200_000
    pattern = sparse.eye_array(n, format="csc")
    x = np.linspace(1, 2, n)
    found = calipers.jacobian(lambda x: x**2, x, method=method, sparsity=pattern, memory_limit=1e9)
    assert found.shape == (n, n)
    assert np.abs(found.data - 2 * x).max() <= 4 * BARS[method]


def arrow(x):
    """Return the gradient of sum of x[0]*x[i]**2 and cosines of neighbours."""
    gradient = 2 * x[0] * x
    gradient[0] = (x[1:] ** 2).sum() + 3 * x[0] ** 2
    return gradient


def arrow_hessian(x):
    exact = np.diag(np.full(x.size, 2 * x[0]))
    exact[0, :] = exact[:, 0] = 2 * x
    exact[0, 0] = 6 * x[0]
    return exact


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
@pytest.mark.parametrize("pattern", ["given", "detect"])
def test_sparse_hessians_are_symmetric_and_take_few_colors(method, pattern):
    x = np.linspace(0.5, 2, 12)
    sparsity = arrow_hessian(x) != 0 if pattern == "given" else "detect"
    h = calipers.hessian(None, x, gradient=arrow, method=method, sparsity=sparsity)
    assert h.colors == 2  # a column coloring takes 12: the first row is full
    dense = h.value.toarray()
    assert np.array_equal(dense, dense.T)
    bar = {"2-point": 1e-6, "3-point": 1e-9, "5-point": 1e-10, "adaptive": 1e-11}[method]
    assert np.abs(dense - arrow_hessian(x)).max() <= bar
    if method == "adaptive":
        assert np.all(np.abs(dense - arrow_hessian(x)) <= h.error.toarray() + 1e-15)


def test_sparse_hessians_refuse_what_makes_no_sense():
    x = np.linspace(0.5, 2, 4)
    with pytest.raises(ValueError, match="sparsity= only with gradient="):
        calipers.hessian(lambda x: (x**2).sum(), x, sparsity=np.eye(4))
    with pytest.raises(ValueError, match="must be symmetric"):
        calipers.hessian(None, x, gradient=arrow, sparsity=np.triu(np.ones((4, 4))))
    with pytest.raises(ValueError, match="a pattern without groups"):
        calipers.hessian(None, x, gradient=arrow, sparsity=(np.eye(4), np.zeros(4, int)))
    with pytest.raises(ValueError, match="misses entries"):
        calipers.hessian(None, x, gradient=arrow, sparsity=np.eye(4))


def test_a_pair_that_a_hessian_misses_is_found_however_small():
    pairs = np.array([(0, 1), (0, 3), (0, 5), (2, 4), (3, 6), (3, 7), (4, 5)])
    whole = 1e6 * np.eye(8)
    whole[pairs.T[0], pairs.T[1]] = whole[pairs.T[1], pairs.T[0]] = 1
    left = whole.copy()
    left[3, 6] = left[6, 3] = 0
    options = {"gradient": lambda x: whole @ x, "method": "3-point"}
    calipers.hessian(None, X[:8], sparsity=whole, **options)
    with pytest.raises(ValueError, match="misses entries"):
        calipers.hessian(None, X[:8], sparsity=left, **options)
