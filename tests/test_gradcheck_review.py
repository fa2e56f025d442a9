"""What a demanding user tried: mutation, rounding, vouching, diagnoses, dtypes."""

import numba
import numpy as np
import pytest

import calipers

X = np.array([0.5, 1.0, 2.0])
LONG = np.linspace(0.1, 3, 200)


def checked(f, x, **options):
    return calipers.gradcheck(f, x, raise_exception=False, **options)


def sine_vjp(x, w):
    return w * np.cos(x)


# Rounding in a derivative is no error of it.


def test_a_derivative_that_rounds_to_float32_within_the_callers_tolerance():
    def vjp(x, w):
        return sine_vjp(x, w).astype(np.float32)

    x = np.linspace(0.1, 1, 50)
    assert checked(np.sin, x, vjp=vjp, rtol=1e-3, atol=1e-3).verdict == "PASS"
    assert checked(np.sin, x, vjp=vjp).verdict == "PASS"
    jac = {"jac": lambda x: np.diag(np.cos(x)).astype(np.float32)}
    assert checked(np.sin, x, vjp=sine_vjp, rtol=1e-3, **jac).verdict == "PASS"


def test_a_derivative_that_is_linear_only_in_unit_vectors():
    def vjp(x, w):
        return sine_vjp(x, w) * (1 if np.count_nonzero(w) <= 1 else 3)

    for call in (vjp, numba.njit(sine_vjp)):
        assert bool(checked(np.sin, LONG, vjp=call)) == (call is not vjp)
    report = checked(np.sin, X, jvp=vjp)
    assert "from the sum of those for unit vectors" in report.reason


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


# The direction of fast_mode.


@pytest.mark.parametrize("tiny", [1e-12, 1e-7, 0.0])
def test_products_see_an_error_by_an_element_that_is_nearly_zero(tiny):
    x = np.array([tiny, 1.0, 2.0, 3.0])
    report = checked(np.sin, x, vjp=lambda x, w: sine_vjp(x, w) * [1.5, 1, 1, 1], fast_mode=True)
    assert report.verdict == "FAIL"
    assert report.worst.input_index == (0,)


# Arguments.


def test_arrays_in_keywords_and_lists_are_watched():
    kept = {"buffer": np.zeros(3)}

    def f(x, buffer):
        buffer += 1
        return np.sin(x)

    report = checked(f, X, vjp=lambda x, w, buffer: sine_vjp(x, w), kwargs=kept)
    assert report.reason.startswith("f changes its arguments: argument buffer")
    assert not kept["buffer"].any()
    inside = ([np.ones(3)],)

    def of_list(x, others):
        others[0][:] = 7
        return np.sin(x)

    report = checked(of_list, X, vjp=lambda x, others, w: sine_vjp(x, w), args=inside)
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

    assert "jac is not reentrant" in checked(np.sin, X, jac=jac).reason


def test_what_is_skipped_for_a_zero_is_not_written():
    def vjp(x, w, out):
        for i in range(w.size):
            if w[i] != 0:
                out[i] = w[i] * np.cos(x[i])

    for fast_mode in (False, True):
        report = checked(np.sin, LONG, vjp=vjp, inplace="write", fast_mode=fast_mode)
        assert "vjp does not overwrite what its arrays hold (inplace='write')" in report.findings


# What reports say.


def test_one_small_error_is_given_no_form():
    for wrong in ([1.0001, 1, 1], [1, 1 + 1e-5, 1]):
        report = checked(np.sin, X, vjp=lambda x, w, wrong=wrong: sine_vjp(x, w) * wrong)
        assert report.counts["FAIL"] == 1
        assert not report.blocks, report.blocks
    report = checked(np.sin, X, vjp=lambda x, w: 1.0001 * sine_vjp(x, w))
    assert "the whole block is 1.0001 times what it should be" in report.reason
    third = checked(np.sin, X, vjp=lambda x, w: sine_vjp(x, w) / 3)
    assert "mean" not in third.reason


def test_columns_that_are_left_out_are_counted():
    report = checked(np.sin, X, vjp=lambda x, w: sine_vjp(x, w) * [1, 5, 1], step=[1e-3, 0, 1e-3])
    assert report.verdict == "PASS"
    assert "but for 1 column that has no step" in report.reason


def test_a_tuple_of_rows_is_a_jacobian():
    def f(x):
        return np.array([x[0] * x[1], x.sum()])

    x = np.array([2.0, 3.0])
    assert calipers.gradcheck(f, x, jac=lambda x: (x[::-1], np.ones(2)))
    report = checked(np.sin, X, jac=lambda x: (np.diag(np.cos(x)), 7 * np.eye(3)))
    assert "wrong shape" in report.reason


# Dtypes.


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_outputs_that_have_no_differences_are_refused(dtype):
    with pytest.raises(TypeError, match="output 0 of f has dtype"):
        calipers.gradcheck(lambda x: np.sin(x).astype(dtype), X, vjp=sine_vjp)


def test_inputs_in_the_other_byte_order():
    other = X.astype(X.dtype.newbyteorder())
    assert calipers.gradcheck(np.sin, other, vjp=sine_vjp)


# value_and_jac.


def test_values_that_are_none_of_f():
    def both(value):
        return {"value_and_jac": lambda x: (value, np.diag(np.cos(x)))}

    assert "NoneType" in checked(np.sin, X, **both(None)).reason
    assert "complex" in checked(np.sin, X, **both(1j * X)).reason
    forward = {"check_backward_ad": False, "jvp": sine_vjp, "check_forward_ad": True}
    assert calipers.gradcheck(np.sin, X, **both(X), **forward)


# Second order.


def test_arguments_beside_a_hessian():
    report = calipers.gradgradcheck(
        lambda x, k: k * np.sum(x**3),
        X,
        args=(2.0,),
        hess=lambda x, k: np.diag(6 * k * x),
        vjp=lambda x, k, w: w * k * 3 * x**2,
    )
    assert report


@pytest.mark.parametrize("bounds", [(0.0, 3.0), None])
def test_bounds_and_steps_of_a_second_derivative(bounds):
    def f(x):
        assert np.all(x <= 3)
        return np.sin(x)

    def pull(x, w, u):
        return -u * w * np.sin(x), u * np.cos(x)

    x = np.array([0.5, 3.0])
    options = {"bounds": bounds} if bounds else {"step": np.array([1e-3, 1e-4])}
    x = x if bounds else x - 1
    assert calipers.gradgradcheck(f, x, vjp=sine_vjp, vjp_vjp=pull, **options)


def test_torch_inputs_that_f_does_not_use():
    torch = pytest.importorskip("torch")
    a, b = (torch.tensor(X, requires_grad=True) for _ in range(2))
    assert calipers.gradgradcheck(lambda a, b: a**3, (a, b))


def test_torch_parameters_that_are_captured_are_told_of():
    torch = pytest.importorskip("torch")
    w = torch.tensor(X, requires_grad=True)
    with pytest.warns(calipers.CalipersWarning, match="does not depend on the inputs"):
        report = calipers.gradcheck(lambda *given: w * w, (w,))
    assert report.vacuous


def test_errors_beyond_the_rounding_of_a_large_result_are_seen():
    x = np.array([1.0, 2.0])
    for factor, verdict in ((1.0, "PASS"), (1.01, "FAIL")):
        report = calipers.gradcheck(
            lambda x: 1e6 + 1e-7 * x,
            x,
            jac=lambda x, factor=factor: factor * 1e-7 * np.eye(2),
            raise_exception=False,
        )
        assert report.verdict == verdict
