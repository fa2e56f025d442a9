"""jacobian, differentiate: kinds of x, several inputs, what f returns and raises, a Derivative."""

from fractions import Fraction
from inspect import signature
from types import SimpleNamespace
from typing import get_type_hints

import numba
import numpy as np
import pytest

import calipers
from calipers._core import jit as _jit
from calipers._derivatives import hessian as hessians
from calipers._derivatives import solve, sparse
from tests.data.derivative_functions import (
    BARS,
    BOUNDABLE,
    CALLS,
    DISPLACED,
    MANY,
    METHODS,
    SIX,
    UNDEFINED,
    Refused,
    X,
    Z,
    assert_near,
    boundable,
    compiled_chain,
    compiled_rows,
    counted,
    methods,
    refuses_in_python,
    square,
    waves,
)

# Shapes and kinds of x and f(x).


@pytest.mark.parametrize("inner", [(), (3,), (2, 3), (2, 1, 2)])
@pytest.mark.parametrize("outer", [(), (4,), (2, 2), (1, 2, 2)])
@methods
def test_the_shape_is_that_of_f_and_then_that_of_x(outer, inner, method):
    rng = np.random.default_rng(1)
    weights, x = rng.uniform(-1, 1, outer + inner), rng.uniform(-1, 1, inner)

    def f(x):
        assert np.shape(x) == inner
        return np.tensordot(weights, np.sin(x), axes=len(inner))

    assert_near(calipers.jacobian(f, x, method=method), weights * np.cos(x), BARS[method])
    d = calipers.differentiate(f, x, method=method)
    assert_near(d.value, weights * np.cos(x), BARS[method])
    assert d.error.shape == outer + inner
    assert d.step.shape == d.status.shape == inner


@methods
def test_a_number_is_differentiated_by_a_number(method):
    for x in (0.5, np.float64(0.5), np.array(0.5)):
        found = calipers.jacobian(np.sin, x, method=method)
        assert found.shape == ()
        assert_near(found, np.cos(0.5), BARS[method])


@pytest.mark.parametrize("inner", [(0,), (0, 3), (2, 0), (2,), ()])
@pytest.mark.parametrize("outer", [(0,), (3, 0), (2,), ()])
@methods
def test_nothing_has_an_empty_derivative(outer, inner, method):
    def f(x):
        return np.zeros(outer) + np.sum(x) * np.ones(outer)

    x = np.ones(inner)
    assert_near(calipers.jacobian(f, x, method=method), np.ones(outer + inner), 1e-6)
    d = calipers.differentiate(f, x, method=method)
    assert d.value.shape == d.error.shape == outer + inner
    assert str(d)
    assert_near(calipers.jvp(f, x, x, method=method), np.full(outer, x.size), 1e-6)
    w = np.ones(outer)
    assert_near(calipers.vjp(f, x, w, method=method), np.full(inner, w.size), 1e-6)


@pytest.mark.parametrize("shape", [(0,), (0, 2)])
@methods
def test_compiled_functions_of_nothing_have_an_empty_derivative(shape, method):
    f = compiled_chain if len(shape) == 1 else compiled_rows
    assert calipers.jacobian(f, np.ones(shape), method=method).shape == shape + shape


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "i8", "u8"])
@methods
def test_integers_become_float64(dtype, method):
    found = calipers.jacobian(square, np.array([1, 0, 1], dtype), method=method)
    assert found.dtype == np.float64
    assert_near(found, np.diag([2.0, 0, 2]), BARS[method])


def test_lists_are_arrays():
    assert_near(calipers.jacobian(square, [1, 2]), np.diag([2.0, 4]))


@pytest.mark.parametrize("x", [np.array(["a"]), np.array([None]), np.array(["2020"], "M8[D]")])
def test_x_that_is_not_numbers_is_refused(x):
    with pytest.raises(TypeError, match="x must be"):
        calipers.jacobian(lambda x: x, x)


def test_numbers_that_are_objects_are_told_to_become_floats():
    for x in (np.array([1.0, 2.0], object), [Fraction(1, 2)], 10**30):
        with pytest.raises(TypeError, match=r"as numpy.asarray\(x, float\)"):
            calipers.jacobian(square, x)
    with pytest.raises(TypeError, match=r"as numpy.asarray\(y, float\)"):
        calipers.jacobian(lambda x: np.array(list(x), object), X)


def test_f_that_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="f must be callable, got int"):
        calipers.jacobian(3, np.ones(2))
    with pytest.raises(TypeError) as caught:  # as where both are swapped
        calipers.jacobian(np.eye(9), np.sin)
    text = str(caught.value)
    assert text.startswith("f must be callable, got ndarray: array([[1., 0., 0.")
    assert text.endswith("...")
    assert text.isprintable()
    assert len(text) < 100


def test_bytes_in_another_order_are_understood():
    x = np.array([1.0, 2.0])
    expected = calipers.jacobian(square, x)
    assert np.array_equal(calipers.jacobian(square, x.astype(">f8")), expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sparsity", [None, np.eye(3)])
def test_results_may_have_their_bytes_in_another_order(method, sparsity):
    def f(x):
        return (x * x).astype(x.dtype.newbyteorder())

    d = calipers.differentiate(f, np.ones(3), method=method, sparsity=sparsity)
    assert d.value.dtype == np.dtype(float)
    assert_near(np.asarray(d.value.diagonal()), 2 * np.ones(3), 1e-7)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("compiled", [True, False])
def test_so_may_what_results_are_like(method, compiled):
    def f(x, out):
        out[:] = x * x

    like = np.empty(3, complex if method == "cs" else float)
    like = like.astype(like.dtype.newbyteorder())
    found = calipers.jacobian(
        numba.njit(f) if compiled else f, np.ones(3), method=method, out_like=like
    )
    assert_near(found, 2 * np.eye(3), 1e-7)


# Several inputs.


def three(a, b, c=1.0, *, power=1):
    return (a.sum() * b * c) ** power


A, B = np.array([1.0, 2.0]), np.array([[0.5], [0.25]])


@methods
def test_argnums_says_which_argument_is_x(method):
    bar = 2 * BARS[method]
    by_a = np.broadcast_to(B[..., None] * 3, (2, 1, 2))
    by_b = (np.eye(2) * A.sum() * 3).reshape(2, 1, 2, 1)
    found = calipers.jacobian(three, A, args=(B, 3.0), method=method)
    assert_near(found, by_a, bar)
    found = calipers.jacobian(three, B, args=(A, 3.0), argnums=1, method=method)
    assert_near(found, by_b, bar)
    found = calipers.jacobian(three, 3.0, args=(A, B), argnums=2, method=method)
    assert_near(found, A.sum() * B, bar)


@methods
def test_several_argnums_give_a_tuple(method):
    bar = 2 * BARS[method]
    by_a = np.broadcast_to(B[..., None] * 3, (2, 1, 2))
    by_b = (np.eye(2) * A.sum() * 3).reshape(2, 1, 2, 1)
    by_c = A.sum() * B
    options = {"method": method}
    found = calipers.jacobian(three, (A, B), args=(3.0,), argnums=(0, 1), **options)
    assert type(found) is tuple
    assert_near(found[0], by_a, bar)
    assert_near(found[1], by_b, bar)
    found = calipers.jacobian(three, (3.0, A), args=(B,), argnums=(2, 0), **options)
    assert_near(found[0], by_c, bar)
    assert_near(found[1], by_a, bar)
    (found,) = calipers.jacobian(three, [B], args=(A, 3.0), argnums=(1,), **options)
    assert_near(found, by_b, bar)
    several = calipers.differentiate(three, (3.0, A), args=(B,), argnums=(2, 0), **options)
    assert_near(several[0].value, by_c, bar)
    assert_near(several[1].value, by_a, bar)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_an_input_that_f_changes_is_named_and_stays_as_it_was(kind):
    if kind == "torch":
        torch = pytest.importorskip("torch")
        one, other = torch.ones(3, dtype=torch.float64), torch.full((3,), 2.0, dtype=torch.float64)
    else:
        one, other = np.ones(3), np.full(3, 2.0)

    def f(a, b):
        product = a * b
        b *= 0.5
        return product

    with pytest.raises(ValueError, match="f changes its argument 1, which makes derivatives"):
        calipers.jacobian(f, (one, other), argnums=(0, 1))
    assert np.all(np.asarray(other) == 2)


def test_kwargs_reach_f():
    found = calipers.jacobian(three, A, args=(B,), kwargs={"power": 2, "c": 3.0})
    exact = np.broadcast_to((2 * A.sum() * (3 * B) ** 2)[..., None], (2, 1, 2))
    assert_near(found, exact, 1e-7)


@pytest.mark.parametrize("argnums", [-1, 2])
def test_argnums_out_of_range_is_refused(argnums):
    with pytest.raises(ValueError, match=f"argnums is {argnums}"):
        calipers.jacobian(three, A, args=(B,), argnums=argnums)


@pytest.mark.parametrize("argnums", [(1, 1), (0, 5), (0, -1)])
def test_places_of_arguments_are_different_and_there(argnums):
    with pytest.raises(ValueError, match="must be different integers from 0 to 2"):
        calipers.jacobian(lambda a, x, b: a * x + b, (SIX, SIX), args=(3.0,), argnums=argnums)


@pytest.mark.parametrize("x", [A, (A,), (A, B, 1.0)])
def test_a_wrong_number_of_inputs_is_refused(x):
    with pytest.raises(ValueError, match="x must be a tuple of 2 arrays"):
        calipers.jacobian(three, x, argnums=(0, 1))


def test_positions_may_be_integers_of_numpy():
    one = np.int64(1)
    expected = calipers.jacobian(lambda a, x: a * x, SIX, args=(2.0,), argnums=1)
    found = calipers.jacobian(lambda a, x: a * x, SIX, args=(2.0,), argnums=one)
    assert np.array_equal(found, expected)
    planned = calipers.jacobian_function(lambda a, x: a * x, argnums=one)
    assert np.array_equal(planned(2.0, SIX), expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda args: calipers.jacobian(np.multiply, SIX, args=args),
        lambda args: calipers.jvp(np.multiply, SIX, SIX, args=args),
        lambda args: calipers.vjp(np.multiply, SIX, SIX, args=args),
        lambda args: calipers.hessian(np.multiply, SIX, args=args),
        lambda args: calipers.jacobian_function(np.multiply, SIX, args=args),
    ],
)
@pytest.mark.parametrize("args", [5, np.array([2.0, 3.0])])
def test_other_arguments_come_in_a_tuple(call, args):
    with pytest.raises(TypeError, match="args must be a tuple"):
        call(args)


def test_argnums_work_with_every_relative():
    assert_near(calipers.jvp(three, B, np.ones_like(B), args=(A,), argnums=1), 3 * np.ones((2, 1)))
    assert_near(calipers.vjp(three, B, np.ones_like(B), args=(A,), argnums=1), 3 * np.ones((2, 1)))
    (part,) = calipers.jacobian_blocks(three, B, args=(A,), argnums=1)
    assert_near(part[1], 3 * np.eye(2))
    h = calipers.hessian(lambda a, x: a * np.sum(x**3), A, args=(2.0,), argnums=1)
    assert_near(h.value, np.diag(12 * A), 1e-6)


# Complex numbers.


@pytest.mark.parametrize("method", BOUNDABLE)
def test_a_holomorphic_function_has_one_derivative(method):
    found = calipers.jacobian(np.exp, Z, method=method, holomorphic=True)
    assert found.dtype == np.complex128
    assert_near(found, np.diag(np.exp(Z)), BARS[method])
    d = calipers.differentiate(np.exp, Z, method=method, holomorphic=True)
    assert_near(d.value, np.diag(np.exp(Z)), BARS[method])
    assert d.error.dtype == np.float64
    assert d.error.shape == (3, 3)
    assert d.status.shape == Z.shape
    if method == "adaptive":
        assert np.all(np.abs(d.value - np.diag(np.exp(Z))) <= d.error)


@pytest.mark.parametrize("method", BOUNDABLE)
def test_other_complex_functions_have_a_pair_of_derivatives(method):
    by_z, by_conjugate = calipers.jacobian(lambda z: z**2 * z.conj(), Z, method=method)
    assert_near(by_z, np.diag(2 * Z * Z.conj()), 10 * BARS[method])
    assert_near(by_conjugate, np.diag(Z**2), 10 * BARS[method])


@pytest.mark.parametrize("method", BOUNDABLE)
def test_real_functions_of_complex_numbers_have_a_pair_too(method):
    by_z, by_conjugate = calipers.jacobian(lambda z: np.abs(z) ** 2, Z, method=method)
    assert_near(by_z, np.diag(Z.conj()), BARS[method])
    assert_near(by_conjugate, np.diag(Z), BARS[method])
    scalar = calipers.jacobian(lambda z: np.sum(np.abs(z) ** 2), Z.reshape(3, 1), method=method)
    assert_near(scalar[0], Z.conj().reshape(3, 1), 10 * BARS[method])


def test_errors_of_a_pair_cover_it():
    d = calipers.differentiate(lambda z: np.sin(z) * z.conj(), Z)
    exact = np.diag(np.cos(Z) * Z.conj()), np.diag(np.sin(Z))
    for value, error, right in zip(d.value, d.error, exact, strict=True):
        assert np.all(np.abs(value - right) <= error + 1e-15)
        assert error.max() <= 1e-9
    assert len(str(d)) < 400


def test_errors_of_complex_numbers_are_those_of_both_parts():
    for f in (lambda x: x + 1j * np.abs(x), lambda x: np.abs(x) + 1j * x):
        assert calipers.differentiate(f, np.zeros(1)).error.item() >= 1
    for f in (lambda z: np.abs(z.real) + z.imag, lambda z: np.abs(z.imag) + z.real):
        by_z, by_conjugate = calipers.differentiate(f, np.zeros(1, complex)).error
        assert by_z.item() >= 0.5
        assert by_conjugate.item() >= 0.5


def test_small_complex_numbers_have_small_steps():
    z = np.array([1e-200 + 2e-200j])
    found = calipers.jacobian(
        lambda z: 1e-200 / (z + 1e-200), z, method="adaptive", holomorphic=True
    )
    exact = -1e-200 / (z.item() + 1e-200) / (z.item() + 1e-200)
    assert abs(found.item() - exact) <= 1e-9 * abs(exact)


@pytest.mark.parametrize("method", BOUNDABLE)
def test_complex_functions_of_real_numbers_have_one_derivative(method):
    x = np.array([0.5, 1.5])
    found = calipers.jacobian(lambda x: np.exp(1j * x), x, method=method)
    assert_near(found, np.diag(1j * np.exp(1j * x)), BARS[method])


def test_a_complex_number_alone():
    by_z, by_conjugate = calipers.jacobian(lambda z: z * z.conjugate(), 1 + 2j)
    assert_near(by_z, 1 - 2j)
    assert_near(by_conjugate, 1 + 2j)
    assert_near(calipers.jacobian(np.exp, 1 + 2j, holomorphic=True), np.exp(1 + 2j))


def test_single_precision_complex():
    z = Z.astype(np.complex64)
    found = calipers.jacobian(np.exp, z, holomorphic=True)
    assert found.dtype == np.complex64
    assert_near(found, np.diag(np.exp(Z)), 1e-3)


# Exceptions of f.

refuses = numba.njit(refuses_in_python)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("f", [refuses, refuses_in_python], ids=["compiled", "python"])
def test_exceptions_of_f_arrive_and_name_the_displaced_element(f, method):
    x = np.arange(1.0, 7.0).reshape(2, 3)
    with pytest.raises(Refused) as caught:
        calipers.jacobian(f, x, method=method)
    assert caught.value.args == ("other than six", 7)
    (note,) = caught.value.__notes__
    assert "x[1, 2] perturbed" in note
    assert ("perturbed by " in note) == (method != "cs" or f is refuses_in_python)
    assert note.endswith(UNDEFINED)


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
@pytest.mark.parametrize("compiled", [True, False])
def test_what_is_found_of_f_is_not_said_to_be_raised_by_it(compiled, method):
    def grows(x):
        return np.zeros(3 if x[1] > 2 else 2)

    def writes(x):
        x[1] = 3.0
        return x * x

    for f in (grows, writes) if compiled else (grows,):
        with pytest.raises(ValueError, match=r"two shapes|changes its argument") as caught:
            calipers.jacobian(numba.njit(f) if compiled else f, np.array([1.0, 2.0]), method=method)
        (note,) = caught.value.__notes__
        assert note.startswith("detected with x[")


def test_exceptions_of_batches_arrive_and_name_the_displaced_elements():
    def f(x):
        if np.any(x[:, 1] > 2):
            raise Refused
        return x

    with pytest.raises(Refused) as caught:
        calipers.jacobian(f, np.array([1.0, 2.0, 3.0]), batched=True)
    told = f"raised by f for a batch in which x[0] to x[2] are perturbed; {UNDEFINED}"
    assert caught.value.__notes__ == [told]


@pytest.mark.parametrize("f", [refuses, refuses_in_python], ids=["compiled", "python"])
def test_exceptions_at_x_itself_arrive(f):
    with pytest.raises(Refused, match="other than six"):
        calipers.jacobian(f, np.zeros((2, 3)))


def test_errors_of_f_name_what_a_hessian_or_a_product_displaced():
    def f(x):
        if not np.array_equal(x, SIX):
            raise ZeroDivisionError
        return x.sum()

    with pytest.raises(ZeroDivisionError) as raised:
        calipers.hessian(f, SIX)
    assert raised.value.__notes__ == [f"raised by f with x[0] {DISPLACED}"]
    with pytest.raises(ZeroDivisionError) as raised:
        calipers.hessian(
            lambda x: f(np.where(np.arange(6) == 1, SIX, x)) if x[1] != SIX[1] else 1.0, SIX
        )
    assert raised.value.__notes__ == [f"raised by f with x[{k}] {DISPLACED}" for k in (0, 1)]
    for method in ("3-point", "adaptive"):
        with pytest.raises(ZeroDivisionError) as raised:
            calipers.jvp(f, SIX, SIX, method=method)
        assert "along the direction" in raised.value.__notes__[0]
        assert UNDEFINED in raised.value.__notes__[0]
    with pytest.raises(TypeError, match="gradient must be callable, got int"):
        calipers.hessian(f, SIX, gradient=3)


# Results of f that are no results.


@pytest.mark.parametrize("options", [{}, {"batched": True}, {"method": "adaptive"}])
def test_no_result_asks_for_out_like(options):
    def nothing(x):
        return None

    with pytest.raises(TypeError, match="out_like"):
        calipers.jacobian(nothing, X, **options)
    with pytest.raises(TypeError, match="out_like"):
        calipers.jacobian(numba.njit(nothing), X, **options)


@methods
def test_results_of_two_shapes_are_refused(method):
    def f(x):
        return x if np.array_equal(x, X) else x[:-1]

    with pytest.raises(ValueError, match="two shapes"):
        calipers.jacobian(f, X, method=method)


def test_compiled_results_of_two_sizes_are_refused():
    @numba.njit
    def f(x):
        return x if x[0] == 0.5 else x[:-1]

    with pytest.raises(ValueError, match="two shapes"):
        calipers.jacobian(f, X)


@pytest.mark.parametrize(
    "y", ["text", np.array(["a"]), object(), [1, None], {"a": 1}, np.array(["2020"], "M8[D]")]
)
def test_results_that_are_not_numbers_are_refused(y):
    with pytest.raises(TypeError, match=r"one array of numbers, got .* \((return|for several) "):
        calipers.jacobian(lambda x: y, X)


@pytest.mark.parametrize("dtype", ["?", "i1", "i8", "u4"])
@methods
def test_integer_results_have_no_slope(dtype, method):
    f = lambda x: np.array([1, 0], dtype)  # noqa: E731
    if method == "cs":  # it may have dropped what cs asks about
        with pytest.raises(ValueError, match="needs an f that returns complex numbers"):
            calipers.jacobian(f, X, method=method)
        return
    found = calipers.jacobian(f, X, method=method)
    assert found.dtype.kind == "f"
    assert_near(found, np.zeros((2, 4)), 0)


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "adaptive"])
def test_constant_results_have_no_slope(method):
    assert_near(calipers.jacobian(lambda x: np.ones((3, 2)), X, method=method), np.zeros((3, 2, 4)))
    assert_near(calipers.jacobian(lambda x: 1.5, X, method=method), np.zeros(4))


def test_results_of_another_kind_than_the_first_are_right_or_refused():
    def f(x):
        return x**2 if np.array_equal(x, X) else x**2 + 0j

    try:
        found = calipers.jacobian(f, X)
    except (TypeError, ValueError, np.exceptions.ComplexWarning):
        return
    assert_near(found, np.diag(2 * X))


def test_functions_that_are_not_real_at_real_x():
    with pytest.raises(ValueError, match=r"f\(x\) is complex: use a different method$"):
        calipers.jacobian(lambda x: np.exp(1j * x), SIX, method="cs")
    cube = numba.njit(lambda x: x**3)
    with pytest.raises(
        ValueError, match=r"is rounding error .*write x \* x \* x instead of x\*\*3"
    ):
        calipers.jacobian(cube, -SIX, method="cs")
    with pytest.raises(ValueError, match="float64 at x and complex128 near it"):
        calipers.jacobian(lambda x: np.emath.sqrt(x - 1.0), np.array([1.0]))


def test_integers_first_and_numbers_later():
    f = lambda x: 1 if np.array_equal(x, X) else 1 + (x[0] - X[0])  # noqa: E731
    assert_near(calipers.jacobian(f, X), [1, 0, 0, 0])


def test_lists_are_results():
    assert_near(calipers.jacobian(lambda x: [x[0], 2 * x[1]], X[:2]), np.diag([1.0, 2]))


# What a Derivative says.


@methods
@pytest.mark.parametrize("bounds", [None, (-0.75, 2.0)])
def test_nfev_is_how_often_f_was_called(method, bounds):
    f, seen = counted(waves)
    d = calipers.differentiate(f, X, method=method, bounds=bounds)
    assert d.nfev == len(seen)
    if bounds is None and method != "adaptive":
        assert d.nfev == 1 + 4 * CALLS[method]
    if method == "adaptive":
        assert 4 * 8 <= d.nfev <= 4 * 40 + 1


@methods
def test_nfev_counts_no_element_left_out(method):
    f, seen = counted(waves)
    d = calipers.differentiate(f, X, method=method, step=np.array([0.1, 0, 0, 0.1]))
    assert d.nfev == len(seen)
    if method != "adaptive":
        assert d.nfev == 1 + 2 * CALLS[method]


@pytest.mark.parametrize("options", [{"holomorphic": True}, {}])
@boundable
def test_nfev_of_complex_functions(method, options):
    f, seen = counted(np.exp)
    d = calipers.differentiate(f, Z, method=method, **options)
    assert d.nfev == len(seen)


@pytest.mark.parametrize("method", ["3-point", "adaptive"])
def test_a_pair_of_derivatives_goes_nowhere_as_an_array(method):
    d = calipers.differentiate(np.abs, Z, method=method)
    assert type(d.value) is tuple
    told = r"\.value\[0\], with respect to z, or \.value\[1\], with respect to its conjugate$"
    with pytest.raises(TypeError, match=told):
        np.asarray(d)


@methods
def test_a_derivative_goes_where_an_array_goes(method):
    d = calipers.differentiate(waves, X, method=method)
    assert np.array_equal(np.asarray(d), d.value)
    assert np.asarray(d, dtype=np.float32).dtype == np.float32
    assert np.array_equal(np.array(d, copy=True), d.value)
    assert np.array_equal(np.linalg.norm(d), np.linalg.norm(d.value))
    assert d.colors is None
    assert 0 < d.seconds < 60
    assert d.status.dtype.kind == "U"
    expected = "CONVERGED" if method == "adaptive" else "FIXED"
    assert d.status.tolist() == [expected] * 4
    assert np.isfinite(d.error).all() == (method == "adaptive")
    assert np.isinf(d.error).all() == (method != "adaptive")


def test_a_summary_names_the_worst_entry_and_elements_that_did_not_converge():
    x = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    d = calipers.differentiate(lambda x: np.array([np.abs(x).sum(), np.sin(x[0, 1])]), x)
    text = str(d)
    assert "\n  NONSMOOTH   x[0, 0], x[1, 0], x[1, 1] and 1 more\n" in text
    index = np.unravel_index(np.argmax(d.error), d.error.shape)
    assert f"({'value[' + ', '.join(map(str, index))}])" in text
    sparse = calipers.differentiate(np.sin, np.linspace(0, 1, 6), sparsity=np.eye(6))
    worst = int(np.argmax(sparse.error.diagonal()))
    assert f"(value[{worst}, {worst}])" in str(sparse)


@methods
def test_a_derivative_is_summarised_in_a_few_lines(method):
    text = str(calipers.differentiate(waves, MANY, method=method))
    assert len(text) < 300
    assert text.count("\n") <= 4
    assert "(6, 131)" in text
    assert ("CONVERGED" if method == "adaptive" else "FIXED") in text
    assert "\n  calls       f " in text
    assert "\n  calls       f 1, " in str(calipers.differentiate(np.sin, np.zeros(0)))


@methods
def test_jacobian_and_differentiate_agree(method):
    found = calipers.jacobian(waves, MANY, method=method)
    assert np.array_equal(found, calipers.differentiate(waves, MANY, method=method).value)


@pytest.mark.parametrize("batched", [False, True])
@methods
def test_the_derivative_at_a_place_that_is_not_a_number(method, batched):
    x = np.array([1.0, np.nan, 3.0])
    with np.errstate(all="ignore"):
        found = calipers.jacobian(square, x, method=method, batched=batched)
    assert_near(found[::2, ::2], np.diag([2.0, 6.0]), 10 * BARS[method])
    assert np.isnan(found[1, 1])


@numba.njit
def compiled_squares(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = x[i] * x[i]
    return y


@methods
def test_the_derivative_of_compiled_functions_at_a_place_that_is_not_a_number(method):
    x = np.array([1.0, np.nan, 3.0])
    found = calipers.jacobian(compiled_squares, x, method=method)
    assert_near(found[::2, ::2], np.diag([2.0, 6.0]), 10 * BARS[method])
    assert np.isnan(found[1, 1])
    d = calipers.differentiate(compiled_squares, x, method=method)
    assert np.array_equal(d.value, found, equal_nan=True)


@methods
def test_results_that_are_not_finite_do_not_spread(method):
    def f(x):
        return np.stack([x[0] * x[1], x[2] * np.nan, x[0] / 0.0 * 1.0])

    with np.errstate(all="ignore"):
        found = calipers.jacobian(f, np.array([1.0, 2.0, 3.0]), method=method)
    assert_near(found[0], [2.0, 1.0, 0.0], BARS[method] * 2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point", "cs", "adaptive"])
@pytest.mark.parametrize(
    "x", [[1, np.inf, -np.inf], [1e308, -1.7e308, 1], [5e-324, 1e-310, 0], [np.nan, 1e300, 1e-300]]
)
def test_only_f_warns(x, method):
    pytest.importorskip("scipy.sparse")

    def f(x):
        with np.errstate(all="ignore"):
            return x**2

    x, one, way = np.array(x), np.array([1, 1e-5, 3.0]), {"method": method}
    calipers.differentiate(f, x, **way)
    calipers.jvp(f, x, one, **way)
    calipers.vjp(f, x, one, **way)
    assert (calipers.linear_operator(f, x, **way) @ one).shape == (3,)
    if method != "cs":
        calipers.differentiate(f, x, sparsity=np.eye(3), **way)
        calipers.hessian(None, x, gradient=f, **way)
        calipers.hessian(None, x, gradient=f, sparsity=np.eye(3), **way)
    if method == "adaptive":
        calipers.hessian(lambda x: f(x).sum(), x)
    if np.isnan(x).any():
        return
    for bounds in ((-np.inf, np.inf), (x, np.inf), (x, x)):
        if method != "cs":
            calipers.jvp(f, x, one, bounds=bounds, **way)


# Options.


def test_an_unknown_target_is_refused():
    assert_near(calipers.jacobian(square, X, target="cpu"), np.diag(2 * X))
    with pytest.raises(ValueError, match="target must be None, 'cpu' or 'cuda'"):
        calipers.jacobian(square, X, target="tpu")


def test_options_that_a_function_does_not_take_are_refused_by_name():
    for call in (calipers.jvp, calipers.vjp):
        with pytest.raises(TypeError, match=r"got an unexpected keyword argument 'sparsity'"):
            call(square, X, X, sparsity=np.eye(4))
    with pytest.raises(TypeError, match=r"hessian\(\) got an unexpected keyword argument 'metod'"):
        calipers.hessian(square, X, metod="adaptive")
    with pytest.raises(TypeError, match="args must be a tuple"):
        calipers.jacobian(square, X, args=3)
    with pytest.raises(ValueError, match="above the upper one"):
        calipers.jacobian(square, X, bounds=(9, -9))


@pytest.mark.parametrize(
    "call",
    [
        calipers.jacobian,
        calipers.differentiate,
        calipers.hessian,
        calipers.jacobian_blocks,
        calipers.jvp,
        calipers.jacobian_function,
    ],
)
def test_a_refusal_names_all_keywords_that_there_are(call):
    points = [p for p in signature(call).parameters.values() if p.default is p.empty]
    positional = [X for p in points if p.kind is p.POSITIONAL_OR_KEYWORD][1:]
    with pytest.raises(TypeError, match="unexpected keyword argument 'metod': it takes ") as caught:
        list(call(square, *positional, metod="adaptive"))
    named = {p.name for p in signature(call).parameters.values() if p.kind is p.KEYWORD_ONLY}
    hints = get_type_hints(call, include_extras=True)
    options = hints["options"].__args__[0].__annotations__ if "options" in hints else ()
    told = str(caught.value).partition("it takes ")[2].split(", ")
    assert set(told) == named | set(options)
    assert len(told) == len(set(told))


@pytest.mark.parametrize("call", [calipers.jacobian, calipers.jacobian_function])
def test_keywords_of_scipy_are_refused_with_the_equivalent(call):
    for name, advice in (("rel_step", r"step=rel_step \* "), ("jac_sparsity", "sparsity=")):
        with pytest.raises(TypeError, match=rf"'{name}' \(pass {advice}.*\): it takes "):
            call(square, X, **{name: 1e-3})
    with pytest.raises(TypeError, match="'jac_sparsity': it takes "):  # and not sparsity
        calipers.jvp(square, X, X, jac_sparsity=1)


def test_an_error_of_f_is_not_taken_for_an_unexpected_keyword():
    def f(x):
        raise TypeError("of f")

    with pytest.raises(TypeError, match="of f"):
        calipers.jacobian(f, X, method="2-point")


def test_reports_are_equal_to_themselves_alone():
    one, other = (calipers.differentiate(np.sin, np.ones(2)) for _ in range(2))
    assert (one == one, one == other) == (True, False)
    assert one in {one}


def test_seconds_do_not_count_the_compilation_of_kernels(monkeypatch):
    now = [100.0]

    def build(function, arguments, key):
        now[0] += 5.0
        if arguments:  # kernels are built for each other
            now[0] += 1.0
            kernels[arguments[1:]]
        return SimpleNamespace(entry_point=function)

    monkeypatch.setattr(_jit, "_compiled", build)
    monkeypatch.setattr(_jit, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    kernels = _jit.Kernels(len, lambda key: key)
    before = _jit.work_clock()
    now[0] += 0.5
    kernels[1, 2]
    now[0] += 0.25
    kernels[1, 2]
    assert _jit.work_clock() - before == 0.75


def test_seconds_are_of_that_clock(monkeypatch):
    for module, compute in (
        (solve, lambda: calipers.differentiate(np.sin, X)),
        (hessians, lambda: calipers.hessian(lambda x: x @ x, X)),
        (sparse, lambda: calipers.differentiate(np.sin, X, sparsity=np.eye(X.size))),
    ):
        times = iter([3.0, 7.0])
        monkeypatch.setattr(module, "work_clock", lambda times=times: next(times))
        assert compute().seconds == 4.0
