"""Bounds: f is not called outside of them, and every derivative is right beside them."""

import numba
import numpy as np
import pytest

import calipers
from tests.data.derivative_functions import (
    BARS,
    CHAIN,
    FIXED,
    M,
    X,
    Z,
    assert_near,
    boundable,
    compiled_chain,
    counted,
    methods,
    points,
    square,
)

EDGES = {
    "inside": (0.5, 0.0, 1.0),
    "at the lower edge": (0.0, 0.0, 1.0),
    "at the upper edge": (1.0, 0.0, 1.0),
    "just above the lower edge": (1e-9, 0.0, 1.0),
    "just below the upper edge": (1 - 1e-9, 0.0, 1.0),
    "below no edge": (0.0, 0.0, np.inf),
    "above no edge": (1.0, -np.inf, 1.0),
    "far from 0": (3.0, 3.0, 4.0),
    "negative": (-3.0, -3.0, -2.0),
}


@pytest.mark.parametrize("place", EDGES)
@methods
def test_f_is_not_called_outside_bounds(place, method):
    value, low, high = EDGES[place]
    x = np.array([value, value])
    f, seen = counted(np.sin)
    d = calipers.differentiate(f, x, method=method, bounds=(low, high))
    called = points(seen, (2,))
    assert called.min() >= low
    assert called.max() <= high
    assert_near(d.value, np.diag(np.cos(x)), 20 * BARS[method])
    assert set(d.status) <= {"FIXED", "CONVERGED"}
    assert d.nfev == len(called)
    if method == "adaptive":
        assert np.all(np.abs(d.value - np.diag(np.cos(x))) <= d.error)


@numba.njit
def sine_inside(x, low, high):
    y = np.empty_like(x)
    for i in range(x.size):
        if not low <= x[i] <= high:
            raise ValueError("outside")
        y[i] = np.sin(x[i])
    return y


@pytest.mark.parametrize("place", EDGES)
@boundable
def test_compiled_f_is_not_called_outside_bounds(place, method):
    value, low, high = EDGES[place]
    x = np.array([value, value])
    options = {"method": method, "bounds": (low, high), "args": (low, high)}
    found = calipers.jacobian(sine_inside, x, **options)
    assert_near(found, np.diag(np.cos(x)), 20 * BARS[method])
    jac = calipers.jacobian_function(sine_inside, **options)
    assert np.array_equal(jac(x), found)
    assert np.array_equal(calipers.jacobian(np.sin, x, method=method, bounds=(low, high)), found)


@pytest.mark.parametrize("f", [compiled_chain, compiled_chain.py_func])
@pytest.mark.parametrize("ulps", [1, 2, 3, 4])
@pytest.mark.parametrize("method", FIXED)
def test_room_that_is_lost_beside_x_is_none(f, ulps, method):
    low, high = X - 1, X + 1
    low[0], high[0] = X[0], X[0] + ulps * np.spacing(X[0])
    d = calipers.differentiate(f, X, method=method, bounds=(low, high))
    assert np.isnan(d.value[:, 0]).all() == (d.status[0] == "BOUNDED")
    assert np.isnan(d.value[:, 0]).all() or np.all(np.abs(d.value[:, 0]) <= 100)
    assert_near(d.value[:, 1:], CHAIN[:, 1:], 1e-6)
    jac = calipers.jacobian_function(f, method=method, bounds=(low, high))
    assert np.array_equal(jac(X), d.value, equal_nan=True)


@numba.njit
def compiled_fraction(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = x[i] / (2 + x[i])
    return y


fractions = pytest.mark.parametrize(
    "f", [compiled_fraction, compiled_fraction.py_func], ids=["compiled", "python"]
)


@pytest.mark.parametrize("both_sides", [False, True])
@pytest.mark.parametrize("f", [compiled_chain, compiled_chain.py_func])
def test_adaptive_differences_take_few_spacings(f, both_sides):
    undecided = 0
    for ulps in [*range(1, 70), 100, 333, 1000, 12345, 2**20, 10**7]:
        low, high = X - 1, X + 1
        high[0] = X[0] + ulps * np.spacing(X[0])
        low[0] = X[0] - ulps * np.spacing(X[0]) if both_sides else X[0]
        d = calipers.differentiate(f, X, bounds=(low, high))
        missing = np.isnan(d.value[:, 0])
        assert missing.all() == missing.any() == (d.status[0] == "BOUNDED")
        assert (np.abs(d.value - CHAIN) <= d.error)[:, ~np.isnan(d.value[0])].all()
        undecided += d.status[0] == "BOUNDED"
    assert undecided <= 4


@pytest.mark.parametrize(("room", "found"), [(1e-290, True), (1e-300, True), (5e-321, False)])
def test_beside_0_numbers_are_as_close_as_the_room_is_small(room, found):
    d = calipers.differentiate(np.sin, np.zeros(1), bounds=(0, room))
    assert d.status.tolist() == ["CONVERGED" if found else "BOUNDED"]
    assert abs(d.value.item() - 1) <= d.error.item() <= 1e-12 if found else np.isnan(d.value.item())


@pytest.mark.parametrize("f", [compiled_chain, compiled_chain.py_func])
def test_bounds_of_one_element_do_not_shorten_steps_of_others(f):
    """Of a color they have in common all columns had the shortest ladder."""
    x = np.linspace(0.5, 1.5, 30)
    low, high = np.zeros(30), np.full(30, 2.0)
    low[7], high[7] = x[7] - 1e-9, x[7] + 2e-9
    dense = calipers.differentiate(f, x, bounds=(low, high))
    d = calipers.differentiate(f, x, bounds=(low, high), sparsity=dense.value != 0)
    others = np.arange(30) != 7
    assert np.max(d.error.toarray()[:, others]) <= 1e-12
    assert np.all(np.abs(d.value.toarray() - dense.value) <= d.error.toarray() + dense.error)


@fractions
@boundable
def test_sides_may_differ_between_elements(f, method):
    x = np.array([0.25, 0.5, 0.25, 1.0, 0.75, 0.25, 1.0])
    options = {"method": method, "bounds": (0.25, 1.0)}
    found = calipers.differentiate(f, x, **options)
    alone = [calipers.differentiate(f, x[i : i + 1], **options) for i in range(7)]
    assert_near(found.value, np.diag(2 / (2 + x) ** 2), 20 * BARS[method])
    assert np.array_equal(found.value.diagonal(), [d.value.item() for d in alone])
    assert np.array_equal(found.error.diagonal(), [d.error.item() for d in alone])


@fractions
def test_a_central_step_may_reach_the_bounds(f):
    x, room = np.array([0.5]), 0.25
    found = calipers.jacobian(f, x, step=room, bounds=(x - room, x + room))
    assert_near(found, ((f(x + room) - f(x - room)) / (2 * room))[:, None], 1e-14)


@methods
def test_a_product_goes_where_there_is_room(method):
    f, seen = counted(np.sin)
    x = np.array([1.0, 0.5])
    for v in (np.array([1.0, 0.5]), np.array([-1.0, 0.5])):
        found = calipers.jvp(f, x, v, method=method, bounds=(0.0, 1.0))
        assert_near(found, np.cos(x) * v, 50 * BARS[method])
    called = points(seen, (2,))
    assert called.min() >= 0
    assert called.max() <= 1


def test_a_hessian_of_values_keeps_the_nearest_bound():
    x = np.array([0.5, 0.99, 0.375, 1.0])
    f, seen = counted(lambda x: np.sin(x).prod())
    h = calipers.hessian(f, x, bounds=(0.0, 1.0))
    called = points(seen, (4,))
    assert called.min() >= 0
    assert called.max() <= 1
    assert h.status.tolist() == ["CONVERGED"] * 3 + ["BOUNDED"]
    assert np.isnan(h.value[3]).all()
    assert np.isfinite(h.value[:3, :3]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@boundable
def test_no_rounding_leads_outside_bounds(method, dtype):
    rng = np.random.default_rng(5)
    low = rng.uniform(-1, 1, 60).astype(dtype).astype(float)
    high = low + rng.choice([1e-1, 1e-4, 1e-7, 0.3], 60)
    x = np.clip((low + rng.uniform(0, 1, 60) * (high - low)).astype(dtype), low, high)
    x = np.where(x.astype(dtype).astype(float) <= high, x, low).astype(dtype)
    f, seen = counted(np.sin)
    calipers.jacobian(f, x, method=method, bounds=(low, high))
    called = points(seen, (60,)).astype(float)
    assert np.all(called >= low)
    assert np.all(called <= high)


@pytest.mark.parametrize("method", FIXED)
@pytest.mark.parametrize("sparsity", [None, np.ones((3, 3))], ids=["dense", "sparse"])
def test_bounds_of_longdouble_are_not_rounded_to_doubles(method, sparsity):
    random = np.random.default_rng(0)
    outside = []
    for _ in range(20):
        x = random.standard_normal(3).astype(np.longdouble) / 3
        low, high = x - np.longdouble(1e-7) * np.array([1, 0, 1]), x + np.longdouble(1e-6) / 3

        def f(x, low=low, high=high):
            outside.append(bool(np.any((x < low) | (x > high))))
            return np.sin(x)

        options = {"method": method, "bounds": (low, high)}
        found = calipers.jacobian(f, x, sparsity=sparsity, **options)
        assert np.isfinite(found if sparsity is None else found.data).all()
        calipers.jvp(f, x, np.ones(3), **options)
        calipers.jacobian_function(f, x, sparsity=sparsity, **options)(x)
    assert not any(outside)


def test_bounds_are_not_exceeded_by_rounding():
    random = np.random.default_rng(0)
    outside = []
    for number in range(1500):
        x = random.standard_normal(2) * 10.0 ** random.integers(-6, 6)
        low, high = x - np.abs(x) * random.random(2), x + np.abs(x) * random.random(2)

        def f(x, low=low, high=high):
            outside.append(bool(np.any((x < low) | (x > high))))
            return np.sum(np.sin(x) * x)

        bounds, v = (low, high), random.standard_normal(2)
        calipers.jvp(f, x, v, bounds=bounds, method="5-point")
        if number < 100:
            calipers.hessian(f, x, bounds=bounds)
            calipers.jvp(f, x, v, bounds=bounds, method="adaptive")
    assert not any(outside)


@pytest.mark.parametrize("room", [1e-6, 1e-9, 1e-12])
@methods
def test_tiny_room_is_used(method, room):
    low, high = 0.7 - room / 3, 0.7 + room / 2
    f, seen = counted(np.sin)
    d = calipers.differentiate(f, np.array([0.7]), method=method, bounds=(low, high))
    called = points(seen, (1,))
    assert called.min() >= low
    assert called.max() <= high
    assert abs(d.value.item() - np.cos(0.7)) <= 20 * 2e-16 / room + 1e-6
    if method == "adaptive":
        assert abs(d.value.item() - np.cos(0.7)) <= d.error.item() <= 1e5 * 2e-16 / room


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
@boundable
def test_no_room_is_no_derivative(function, method):
    low, high = X - 1, X + 1
    low[2] = high[2] = X[2]
    d = calipers.differentiate(function, X, method=method, bounds=(low, high))
    assert d.status[2] == "BOUNDED"
    assert np.isnan(d.value[:, 2]).all()
    others = [0, 1, 3]
    assert_near(d.value[:, others], CHAIN[:, others], BARS[method])
    assert "BOUNDED" not in d.status[others]


@pytest.mark.parametrize("function", [compiled_chain, compiled_chain.py_func])
def test_a_complex_step_needs_no_room(function):
    d = calipers.differentiate(function, X, method="cs", bounds=(X, X))
    assert_near(d.value, CHAIN, BARS["cs"])
    assert set(d.status) == {"FIXED"}


@methods
def test_bounds_of_scipy(method):
    optimize = pytest.importorskip("scipy.optimize")
    f, seen = counted(square)
    x = np.array([1.0, 2.0])
    bounds = optimize.Bounds([1, 0], [3, 2])
    assert_near(calipers.jacobian(f, x, method=method, bounds=bounds), np.diag(2 * x), BARS[method])
    called = points(seen, (2,))
    assert np.all((called >= [1, 0]) & (called <= [3, 2]))
    found = calipers.jacobian(f, x, method=method, bounds=optimize.Bounds())
    assert_near(found, np.diag(2 * x), BARS[method])


@methods
def test_bounds_have_the_shape_of_x(method):
    low, high = M.copy(), M + 1
    f, seen = counted(square)
    found = calipers.jacobian(f, M, method=method, bounds=(low, high))
    assert_near(found, np.diag(2 * M.ravel()).reshape(2, 3, 2, 3), BARS[method])
    called = points(seen, (2, 3))
    assert np.all((called >= low) & (called <= high))


@methods
def test_x_outside_bounds_is_named(method):
    low, high = np.zeros(4), np.ones(4)
    with pytest.raises(ValueError, match=r"x\[1\] = 1.25 is outside its bounds \[0.0, 1.0\]"):
        calipers.jacobian(square, X, method=method, bounds=(low, high))
    jac = calipers.jacobian_function(square, np.full(4, 0.5), method=method, bounds=(low, high))
    with pytest.raises(ValueError, match=r"x\[1\] = 1.25 is outside its bounds \[0.0, 1.0\]"):
        jac(X)
    options = {"method": method, "bounds": (low, high), "sparsity": np.eye(4)}
    jac = calipers.jacobian_function(square, np.full(4, 0.5), **options)
    with pytest.raises(ValueError, match=r"x\[1\] = 1.25 is outside its bounds \[0.0, 1.0\]"):
        jac(X)


def test_bounds_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"bounds has shape \(3,\), but x has \(4,\)"):
        calipers.jacobian(square, X, bounds=(np.zeros(3), 9))
    with pytest.raises(ValueError, match="bounds must be a pair"):
        calipers.jacobian(square, X, bounds=3)
    with pytest.raises(ValueError, match="bounds must be a pair"):
        calipers.jacobian(square, X, bounds=(1, 2, 3))
    with pytest.raises(ValueError, match="outside its bounds"):
        calipers.jacobian(square, X, bounds=(9, -9))
    with pytest.raises(ValueError, match="bounds must not be NaN"):
        calipers.jacobian(square, X, bounds=(np.nan, 9))
    with pytest.raises(ValueError, match="bounds are for real x"):
        calipers.jacobian(square, Z, bounds=(0, 1))


@pytest.mark.parametrize("x", [[0.0, 1.0], [0.0, 0.5], [1e-9, 1 - 1e-9], [0.0, 0.0]])
@boundable
def test_bounds_hold_for_every_relative(method, x):
    x, v = np.array(x), np.array([1.0, -0.5])
    exact, bar = np.cos(x), 50 * BARS[method]
    if method == "adaptive":
        bar = max(bar, 1e-6)  # on one side, from 1e-9 of the bound
    f, seen = counted(np.sin)
    options = {"method": method, "bounds": (0.0, 1.0)}
    found = calipers.jvp(f, x, v, **options)
    assert np.isnan(found).all() or np.all(np.abs(found - exact * v) <= bar)
    assert_near(calipers.vjp(f, x, v, **options), exact * v, bar)
    (part,) = calipers.jacobian_blocks(f, x, **options)
    assert_near(part[1], np.diag(exact), bar)
    gradient, more = counted(np.cos)
    h = calipers.hessian(None, x, gradient=gradient, **options)
    assert_near(h.value, np.diag(-np.sin(x)), bar)
    values, most = counted(lambda x: np.sin(x).sum())
    calipers.hessian(values, x, bounds=(0.0, 1.0))
    called = points(seen + more + most, (2,))
    assert called.min() >= 0
    assert called.max() <= 1


@pytest.mark.parametrize("method", ["3-point", "adaptive"])
@pytest.mark.parametrize("compiled", [False, True])
def test_where_no_step_is_made_it_is_0(method, compiled):
    def squares(x):
        return x**2

    x, f = np.array([1.0, 2.0, 3.0]), numba.njit(squares) if compiled else squares
    bounds = [0, 2, 0], [5, 2, 5]
    excluded = np.array([0.125, 0.0, 0.125])
    for options in ({"bounds": bounds}, {"step": excluded}):
        for sparsity in (None, "detect"):
            found = calipers.differentiate(f, x, method=method, sparsity=sparsity, **options)
            assert found.step[1] == 0.0
            assert (found.step[[0, 2]] > 0).all()


@pytest.mark.parametrize("kind", [list, tuple, np.array])
@pytest.mark.parametrize("pair", [tuple, list])
def test_bounds_by_element_are_told_to_become_two(kind, pair):
    bounds = kind([pair((0.0, 4.0))] * 3)
    with pytest.raises(ValueError, match=r"(?s)\(lower, upper\).*tuple\(zip\(\*bounds\)\)"):
        calipers.jacobian(np.sin, np.ones(3), bounds=bounds)
    found = calipers.jacobian(np.sin, np.ones(3), bounds=tuple(zip(*bounds, strict=True)))
    assert np.allclose(found, np.cos(1.0) * np.eye(3))
