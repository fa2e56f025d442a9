"""Derivatives of functions that run on a device."""

import math
from collections import defaultdict

import numpy as np
import pytest
from numba import cuda

import calipers
from calipers._cuda import functions, runtime

X = np.array([0.3, -1.2, 2.0, 0.7, 1.1])
POINT = cuda.to_device(X)


def fill(x, out):
    for i in range(out.size):
        out[i] = math.sin(x[i]) * x[i + 1] ** 2


def row(i, x):
    return math.sin(x[i]) * x[i + 1] ** 2


def expected(x=X):
    m = x.size - 1
    jacobian = np.zeros((m, x.size))
    jacobian[np.arange(m), np.arange(m)] = np.cos(x[:-1]) * x[1:] ** 2
    jacobian[np.arange(m), np.arange(1, m + 1)] = 2 * np.sin(x[:-1]) * x[1:]
    return jacobian


FORMS = {"fills": (fill, {"out_like": 4}), "rowwise": (row, {"out_like": 4, "rowwise": True})}
forms = pytest.mark.parametrize("form", FORMS)


def plain(x, out):
    for i in range(out.size):
        out[i] = x[i] * x[i] * x[i]


def plain_row(i, x):
    return x[i] * x[i] * x[i]


@forms
@pytest.mark.parametrize(
    ("method", "error"), [("2-point", 1e-6), ("3-point", 1e-9), ("5-point", 1e-11)]
)
def test_fixed_steps(form, method, error):
    f, options = FORMS[form]
    jacobian = calipers.jacobian(f, POINT, method=method, **options)
    assert hasattr(jacobian, "__cuda_ndarray__")
    assert jacobian.shape == (4, 5)
    found = np.asarray(jacobian.copy_to_host())
    np.testing.assert_allclose(found, expected(), atol=error)
    host = calipers.jacobian(f, X, method=method, target="cpu", **options)
    np.testing.assert_allclose(found, host, rtol=0, atol=error)


@forms
def test_compiled_functions_and_arrays_on_the_host(form):
    f, options = FORMS[form]
    for function in (cuda.jit(device=True)(f), f):
        jacobian = calipers.jacobian(function, X, target="cuda", **options)
        assert type(jacobian) is np.ndarray
        np.testing.assert_allclose(jacobian, expected(), atol=1e-9)
    found = calipers.jacobian(cuda.jit(device=True)(f), X, **options)
    np.testing.assert_allclose(found, expected(), atol=1e-9)


@forms
def test_workers_are_asked(form):
    f, options = FORMS[form]
    asked = []

    def workers(function, parts):
        asked.append(parts)
        return map(function, parts)

    for given in (1, workers):  # the simulator runs one kernel at a time
        jacobian = calipers.jacobian(f, POINT, workers=given, **options)
        assert hasattr(jacobian, "__cuda_ndarray__")
        np.testing.assert_allclose(jacobian.copy_to_host(), expected(), atol=1e-9)
    assert asked
    with pytest.raises(TypeError, match="workers must be an int"):
        calipers.jacobian(f, POINT, workers="two", **options)


@forms
def test_more_columns_than_run_at_once(form):
    f, options = FORMS[form]
    x = np.linspace(0.1, 2, 37)
    jacobian = calipers.jacobian(f, x, target="cuda", **options | {"out_like": 36})
    np.testing.assert_allclose(jacobian, expected(x), atol=1e-9)


@forms
def test_single_precision_stays_single(form):
    f, options = FORMS[form]
    x = X.astype("f4")
    jacobian = calipers.jacobian(f, x, target="cuda", **options | {"out_like": x[:4]})
    assert jacobian.dtype == np.float32
    np.testing.assert_allclose(jacobian, expected(), atol=1e-3)


@forms
def test_bounds_and_elements_left_out(form):
    f, options = FORMS[form]
    bounds = (X, X + 1)
    jacobian = calipers.jacobian(f, X, bounds=bounds, target="cuda", **options)
    np.testing.assert_allclose(jacobian, expected(), atol=1e-8)
    step = np.full(5, 1e-5)
    step[2] = 0
    jacobian = calipers.jacobian(f, X, step=step, target="cuda", **options)
    assert np.isnan(jacobian[:, 2]).all()
    np.testing.assert_allclose(np.delete(jacobian, 2, 1), np.delete(expected(), 2, 1), atol=1e-8)


def matrix(a, x, scale, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j, i] = a[i] * x[i, j] ** 2 * scale


def matrix_rows(k, a, x, scale):
    i, j = k % x.shape[0], k // x.shape[0]
    return a[i] * x[i, j] ** 2 * scale


@pytest.mark.parametrize("rowwise", [False, True])
def test_shapes_and_other_arguments(rowwise):
    a, x = np.array([1.0, 2.0, 3.0]), np.arange(6.0).reshape(3, 2) + 1
    f = matrix_rows if rowwise else matrix
    for given in (a, cuda.to_device(a)):
        jacobian = calipers.jacobian(
            f, cuda.to_device(x), args=(given, 0.5), argnums=1, out_like=(2, 3), rowwise=rowwise
        ).copy_to_host()
        assert jacobian.shape == (2, 3, 3, 2)
        for i in range(3):
            for j in range(2):
                assert jacobian[j, i, i, j] == pytest.approx(a[i] * x[i, j])
        assert np.count_nonzero(abs(jacobian) > 1e-8) == 6


@forms
def test_the_complex_step(form):
    f = {"fills": plain, "rowwise": plain_row}[form]
    jacobian = calipers.jacobian(f, X, method="cs", target="cuda", **FORMS[form][1])
    assert jacobian.dtype == np.float64
    np.testing.assert_allclose(jacobian, 3 * np.diag(X**2)[:4], rtol=1e-15)


@forms
def test_products(form):
    f, options = FORMS[form]
    v, w = np.arange(5.0), np.arange(4.0)
    forward = calipers.jvp(f, POINT, cuda.to_device(v), **options)
    np.testing.assert_allclose(forward.copy_to_host(), expected() @ v, atol=1e-8)
    backward = calipers.vjp(f, POINT, w, **options)
    np.testing.assert_allclose(backward.copy_to_host(), w @ expected(), atol=1e-8)


@forms
def test_errors_are_known(form):
    f, options = FORMS[form]
    derivative = calipers.differentiate(f, X, target="cuda", **options)
    assert (abs(derivative.value - expected()) <= derivative.error).all()
    assert derivative.error.max() < 1e-8


def test_colors():
    sparse = pytest.importorskip("scipy.sparse")
    pattern = sparse.csc_array(expected() != 0)
    derivative = calipers.differentiate(
        fill, X, out_like=4, sparsity=pattern, method="3-point", target="cuda"
    )
    assert derivative.colors == 2
    np.testing.assert_allclose(derivative.value.toarray(), expected(), atol=1e-9)
    jacobian = calipers.jacobian(fill, POINT, out_like=4, sparsity=pattern)
    np.testing.assert_allclose(jacobian.toarray(), expected(), atol=1e-9)


@pytest.mark.parametrize(
    ("method", "points"), [("2-point", [1, 2]), ("3-point", [1, 4]), ("5-point", [1, 4, 4])]
)
def test_all_points_of_a_step_are_evaluated_in_one_launch(monkeypatch, method, points):
    sparse = pytest.importorskip("scipy.sparse")
    launch, launched = functions.launch, []

    def count(kernel, blocks, stream, given, *others, **layout):
        launched.append(len(given[0]))
        launch(kernel, blocks, stream, given, *others, **layout)

    monkeypatch.setattr(functions, "launch", count)
    pattern = sparse.csc_array(expected() != 0)  # of two colors
    jacobian = calipers.jacobian(
        fill, X, out_like=4, sparsity=pattern, method=method, target="cuda"
    )
    np.testing.assert_allclose(jacobian.toarray(), expected(), atol=1e-6)
    assert launched[: len(points)] == points
    assert set(launched[len(points) :]) <= {2}  # both sides of each check of the pattern


def test_points_are_evaluated_in_parts_where_memory_is_short(monkeypatch):
    sparse = pytest.importorskip("scipy.sparse")
    pattern = sparse.csc_array(expected() != 0)
    given = {"out_like": 4, "sparsity": pattern, "target": "cuda"}
    whole = [calipers.differentiate(fill, X, method=m, **given) for m in ("3-point", "adaptive")]
    monkeypatch.setattr(functions.LaunchedFunction, "batch_bytes", 3 * (X.nbytes + 32))
    parts = [calipers.differentiate(fill, X, method=m, **given) for m in ("3-point", "adaptive")]
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one.value.toarray(), other.value.toarray())
        assert one.nfev == other.nfev


def test_the_point_stays_as_it_is():
    calipers.jacobian(fill, POINT, out_like=4)
    np.testing.assert_array_equal(POINT.copy_to_host(), X)


def spoil(x, out):
    out[0] = x[0]
    x[1] = 7.0


def spoil_row(i, x):
    x[1] = 7.0
    return x[i]


def test_a_function_that_changes_its_argument():
    with pytest.raises(ValueError, match="f changes its argument"):
        calipers.jacobian(spoil, X, out_like=1, target="cuda")
    with pytest.raises(ValueError, match="f changes its argument"):
        calipers.jacobian(spoil_row, X, out_like=1, rowwise=True, target="cuda")


def limited(x, out):
    for i in range(out.size):
        if x[i] > 2.5:
            raise ValueError("too large")
        out[i] = x[i]


def limited_row(i, x):
    if x[i] > 2.5:
        raise ValueError("too large")
    return x[i]


@pytest.mark.parametrize(("f", "rowwise"), [(limited, False), (limited_row, True)])
def test_a_function_that_raises_an_error(f, rowwise):
    """It would else leave what was in memory before; a real device does not tell which error."""
    options = {"rowwise": rowwise, "out_like": 5, "target": "cuda"}
    raises = pytest.raises((ValueError, RuntimeError), match=r"too large|f raised an error on the")
    assert calipers.jacobian(f, X, **options).shape == (5, 5)
    x = X.copy()
    x[3] = 3.0
    with raises:
        calipers.jacobian(f, x, **options)
    with raises:
        calipers.jvp(f, x, X, **options)


def test_what_cannot_run_on_a_device():
    with pytest.raises(TypeError, match=r"write it as f\(x, out\) with out_like="):
        calipers.jacobian(lambda x: x, POINT)
    with pytest.raises(TypeError, match="takes no keyword arguments, got k: use args="):
        calipers.jacobian(fill, POINT, out_like=4, kwargs={"k": 1})
    with pytest.raises(MemoryError, match="the limit is"):
        calipers.jacobian(fill, np.ones(1001), out_like=1000, memory_limit=10, target="cuda")
    with pytest.raises(TypeError, match="takes host arrays here"):
        calipers.jacobian(fill, POINT, out_like=4, target="cpu")


@forms
def test_one_sided_and_central_columns_in_turn(form):
    """A thread that has taken f at x for one column does not take it for the next one's."""
    f, options = FORMS[form]
    x = np.linspace(0.1, 2, 37)
    low = np.where(np.arange(37) % 3 == 0, x, x - 1)
    options = options | {"out_like": 36}
    jacobian = calipers.jacobian(f, x, bounds=(low, x + 1), target="cuda", **options)
    np.testing.assert_allclose(jacobian, expected(x), atol=1e-7)


@forms
def test_more_points_than_a_desk_has_room_for(form, monkeypatch):
    f, options = FORMS[form]
    monkeypatch.setattr(runtime, "_DESK", 300)
    monkeypatch.setattr(runtime, "_spare", defaultdict(list))
    for given in ({}, {"workers": 1}):
        jacobian = calipers.jacobian(f, X, target="cuda", **options, **given)
        np.testing.assert_allclose(jacobian, expected(), atol=1e-9)


@pytest.mark.skipif(not runtime.SIMULATOR, reason="nobody counts calls on a real device")
def test_values_at_the_point_are_taken_once_for_all_one_sided_columns():
    x, called = np.linspace(0.1, 2, 37), []

    def counted(i, x):
        called.append(i)
        return row(i, x)

    options = {"out_like": 4, "rowwise": True, "target": "cuda"}
    calipers.jacobian(counted, x, method="2-point", **options)
    assert len(called) == 4 * (37 + runtime.resident())
    called.clear()
    calipers.jacobian(counted, x, method="3-point", **options)
    assert len(called) == 4 * 2 * 37


@forms
def test_a_point_with_nan(form):
    f, options = FORMS[form]
    x = X.copy()
    x[4] = np.nan
    jacobian = calipers.jacobian(f, x, target="cuda", **options)
    np.testing.assert_allclose(jacobian[:3, :4], expected()[:3, :4], atol=1e-9)
    assert np.isnan(jacobian[3, 3])
    assert np.isnan(jacobian[:, 4]).all()


@pytest.mark.parametrize("kind", ["float16", "bool"])
def test_other_arguments_keep_their_dtype(kind):
    a = np.array([2, 0]).astype(kind)
    options = {"args": (a,), "out_like": 2, "target": "cuda"}

    def scaled(x, a, out):
        for i in range(out.size):
            out[i] = x[i] * np.float64(a[i])

    host = calipers.jacobian(scaled, X[:2], **options)
    away = calipers.jacobian(scaled, X[:2], **options | {"args": (cuda.to_device(a),)})
    np.testing.assert_allclose(away, host)
    np.testing.assert_allclose(np.diag(away), a.astype(float), atol=1e-9)


@pytest.mark.parametrize("a", [2**63, -(2**63) - 1])
def test_integers_that_a_device_would_cut(a):
    def scaled(x, a, out):
        for i in range(out.size):
            out[i] = x[i] * a

    options = {"out_like": 2, "target": "cuda"}
    with pytest.raises(ValueError, match="which does not fit into int64: pass a float"):
        calipers.jacobian(scaled, X[:2], args=(a,), **options)
    jacobian = calipers.jacobian(scaled, X[:2], args=(float(a),), **options)
    np.testing.assert_allclose(jacobian, a * np.eye(2), rtol=1e-6, atol=1e10)


def test_results_without_an_axis():
    with pytest.raises(ValueError, match="out_like has no axis"):
        calipers.jacobian(fill, X, out_like=(), target="cuda")
    with pytest.raises(ValueError, match="out_like has no axis"):
        calipers.jvp(fill, X, X, out_like=(), target="cuda")
    gradient = calipers.jacobian(
        lambda i, x: x[0] * x[1], X, out_like=(), rowwise=True, target="cuda"
    )
    np.testing.assert_allclose(gradient, [X[1], X[0], 0, 0, 0], atol=1e-9)


@forms
def test_nothing_to_differentiate(form):
    f, options = FORMS[form]
    empty = calipers.jacobian(f, np.empty(0), target="cuda", **options | {"out_like": 0})
    assert empty.shape == (0, 0)
