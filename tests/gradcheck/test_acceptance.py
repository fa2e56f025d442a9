"""Acceptance cases 1 to 34 of gradcheck: basics, messages, complex numbers, shapes and dtypes."""

import numba
import numpy as np
import pytest

import calipers
from calipers import GradcheckError, gradcheck, gradgradcheck

modes = pytest.mark.parametrize("fast_mode", [False, True], ids=["exhaustive", "projected"])
forms = pytest.mark.parametrize("form", ["jac", "vjp", "jvp"])
conventions = pytest.mark.parametrize("convention", ["torch", "jax"])
quiet_torch = pytest.mark.filterwarnings("ignore::DeprecationWarning")

X = np.linspace(0.3, 1.2, 4).reshape(2, 2)
Z = np.array([0.5 + 0.25j, -1.5 + 2j, 0.75 - 0.5j])
PAIR = np.array([0.4, 1.1]), np.array([-0.7, 0.6])


def identity(shape):
    return np.eye(int(np.prod(shape))).reshape(*shape, *shape)


def places(report, verdict="FAIL"):
    """Return the outputs and inputs that entries with a verdict belong to."""
    return {(e.output, e.input) for e in report.failures if e.verdict == verdict}


def failed(f, inputs, **options):
    """Check what has to fail, and return the report."""
    report = gradcheck(f, inputs, raise_exception=False, **options)
    assert not report, str(report)
    assert report.verdict == "FAIL", str(report)
    return report


def linear(matrix):
    """Return f(x) = matrix @ x and each form of its derivative."""
    derivatives = {
        "jac": lambda x: matrix,
        "vjp": lambda x, w: matrix.T @ w,
        "jvp": lambda x, v: matrix @ v,
    }
    return lambda x: matrix @ x, derivatives


@numba.njit
def compiled_cube(x):
    return x * x * x


def bad_backward(torch, change, forward=None):
    """Return a torch function, the identity unless `forward`, with a changed cotangent."""

    def f(*inputs):
        y = inputs[0].clone() if forward is None else forward(*inputs)
        y.register_hook(change)
        return y

    return f


# A. Basics.


@modes
@forms
def test_case_01_five_x_with_a_bare_array(form, fast_mode):
    f, derivatives = linear(5 * np.eye(10))
    x = np.linspace(-1, 2, 10)
    for inputs in (x, (x,)):
        report = gradcheck(f, inputs, **{form: derivatives[form]}, fast_mode=fast_mode)
        assert report
        assert report.verdict == "PASS"
        assert report.shape == (10, 10)


@modes
def test_case_01_second_order_of_five_x(fast_mode):
    def f(x):
        return 5 * x

    x = np.linspace(-1, 2, 10)
    first = {"vjp": lambda x, w: 5 * w, "fast_mode": fast_mode}
    assert gradgradcheck(f, x, **first, vjp_vjp=lambda x, w, u: (np.zeros_like(x), 5 * u))
    assert gradgradcheck(f, x, **first, vjp_jvp=lambda x, w, v: 5 * v[1])


@modes
def test_case_01_second_order_of_the_sum_of_five_x(fast_mode):
    def f(x):
        return 5 * np.sum(x)

    x = np.linspace(-1, 2, 10)
    options = {"vjp": lambda x, w: np.full(x.shape, 5 * w), "fast_mode": fast_mode}
    assert gradgradcheck(f, x, hess=lambda x: np.zeros((10, 10)), **options)
    assert gradgradcheck(f, x, hvp=lambda x, v: np.zeros(10), **options)


@modes
def test_case_01_a_compiled_function(fast_mode):
    x = np.linspace(0.5, 2, 10)
    assert gradcheck(compiled_cube, x, vjp=lambda x, w: 3 * w * x**2, fast_mode=fast_mode)
    assert gradcheck(compiled_cube, x, jac=lambda x: np.diag(3 * x**2), fast_mode=fast_mode)
    failed(compiled_cube, x, vjp=lambda x, w: 3 * w * x, fast_mode=fast_mode)


@quiet_torch
@modes
def test_case_01_five_x_of_torch(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 2, 10, dtype=torch.double, requires_grad=True)
    assert gradcheck(lambda x: 5 * x, x, fast_mode=fast_mode)
    assert gradcheck(lambda x: 5 * x, (x,), check_forward_ad=True, fast_mode=fast_mode)
    assert gradgradcheck(lambda x: 5 * x, x, fast_mode=fast_mode)
    assert gradgradcheck(lambda x: 5 * x, x, check_fwd_over_rev=True, fast_mode=fast_mode)


def two_sums(a, b):
    return 2 * a + b, a + 2 * b


def two_sums_jac(a, b):
    one = identity(a.shape)
    return (2 * one, one), (one, 2 * one)


@modes
def test_case_02_two_outputs_of_two_inputs(fast_mode):
    pair = X, X[::-1] - 2
    assert gradcheck(two_sums, pair, jac=two_sums_jac, fast_mode=fast_mode)
    assert gradcheck(
        two_sums, pair, vjp=lambda a, b, w: (2 * w[0] + w[1], w[0] + 2 * w[1]), fast_mode=fast_mode
    )
    report = gradcheck(two_sums, pair, jvp=lambda a, b, v: two_sums(*v), fast_mode=fast_mode)
    assert report.shape == (8, 8)


def test_case_02_numerical_blocks():
    zero = np.zeros((2, 2, 2, 2))
    report = failed(two_sums, (X, X[::-1] - 2), jac=lambda a, b: ((zero, zero), (zero, zero)))
    found = np.zeros((8, 8))
    for e in report.failures:
        found[e.row, e.column] = e.numerical
    expected = np.block([[2 * np.eye(4), np.eye(4)], [np.eye(4), 2 * np.eye(4)]])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert places(report) == {(0, 0), (0, 1), (1, 0), (1, 1)}


@modes
@pytest.mark.parametrize("chosen", [0, 1])
def test_case_02_one_input_alone(chosen, fast_mode):
    def jac(a, b):
        return tuple(line[chosen] for line in two_sums_jac(a, b))

    pair = X, X[::-1] - 2
    report = gradcheck(two_sums, pair, jac=jac, argnums=chosen, fast_mode=fast_mode)
    assert report.shape == (8, 4)
    report = failed(
        two_sums,
        pair,
        jac=lambda a, b: [2 * j for j in jac(a, b)],
        argnums=chosen,
        fast_mode=fast_mode,
    )
    assert {i for _, i in places(report)} == {chosen}


@quiet_torch
@modes
def test_case_02_two_outputs_of_torch(fast_mode):
    torch = pytest.importorskip("torch")
    a, b = (torch.tensor(x, requires_grad=True) for x in (X, X - 2))
    report = gradcheck(two_sums, (a, b), check_forward_ad=True, fast_mode=fast_mode)
    assert report
    assert report.shape == (8, 8)


@modes
def test_case_03_jacobian_pulls_and_pushes_are_one_matrix(fast_mode):
    matrix = np.random.default_rng(0).uniform(-1, 1, (4, 3))
    f, derivatives = linear(matrix)
    x = np.array([0.5, -1.0, 2.0])
    assert gradcheck(f, x, **derivatives, fast_mode=fast_mode)
    pulled = np.array([derivatives["vjp"](x, w) for w in np.eye(4)])
    pushed = np.array([derivatives["jvp"](x, v) for v in np.eye(3)]).T
    for rebuilt in (pulled, pushed):
        assert gradcheck(f, x, jac=lambda x, rebuilt=rebuilt: rebuilt, fast_mode=fast_mode)


@modes
@forms
def test_case_03_one_form_that_is_another_matrix(form, fast_mode):
    matrix = np.random.default_rng(0).uniform(0.5, 1, (4, 3))
    f, derivatives = linear(matrix)
    other = matrix.copy()
    other[2, 1] *= 1.5
    derivatives[form] = linear(other)[1][form]
    report = failed(f, np.array([0.5, -1.0, 2.0]), **derivatives, fast_mode=fast_mode)
    assert {e.form for e in report.failures} == {form}
    assert {(e.output_index, e.input_index) for e in report.failures} == {((2,), (1,))}


@modes
@pytest.mark.parametrize("n", [3, np.int64(3), True, np.array(3), np.array([3, 3])])
def test_case_04_an_integer_beside_arrays(n, fast_mode):
    seen = []

    def f(x, n, y):
        seen.append(n)
        return n * x + 0 * y

    def jac(x, n, y):
        return np.diag(np.broadcast_to(n, x.shape)).astype(float), np.zeros((2, 2))

    assert gradcheck(f, (PAIR[0], n, PAIR[1]), jac=jac, fast_mode=fast_mode)
    assert gradcheck(
        f, (PAIR[0], n, PAIR[1]), vjp=lambda x, n, y, w: (n * w, None), fast_mode=fast_mode
    )
    assert all(type(m) is type(n) and np.array_equal(m, n) for m in seen)
    assert {np.asarray(m).dtype for m in seen} == {np.asarray(n).dtype}


@modes
def test_case_04_an_input_that_f_ignores(fast_mode):
    def f(x, y):
        return np.sin(x)

    def wrong(x, y, w):
        return w * np.cos(x), w

    assert gradcheck(
        f, PAIR, vjp=lambda x, y, w: (w * np.cos(x), np.zeros_like(y)), fast_mode=fast_mode
    )
    report = failed(f, PAIR, vjp=wrong, fast_mode=fast_mode)
    assert places(report) == {(0, 1)}


@quiet_torch
@modes
def test_case_04_an_integer_beside_tensors(fast_mode):
    torch = pytest.importorskip("torch")
    seen = []

    def f(x, n, y):
        seen.append(n)
        return n * x

    x, y = (torch.tensor(v, requires_grad=True) for v in PAIR)
    assert gradcheck(f, (x, 3, y), check_forward_ad=True, fast_mode=fast_mode)
    assert all(n == 3 and type(n) is int for n in seen)


MASK = np.random.default_rng(1).random((5, 5, 5)) < 0.5


def chosen_where(mask, x, y):
    return np.where(mask, x, y)


def chosen_where_vjp(mask, x, y, w):
    gx = np.where(mask, w, 0).sum(axis=1, keepdims=True)
    return gx, np.where(mask, 0, w).sum(axis=2, keepdims=True)


@modes
def test_case_05_a_mask_and_broadcasting(fast_mode):
    rng = np.random.default_rng(2)
    x, y = rng.uniform(-1, 1, (5, 1, 5)), rng.uniform(-1, 1, (5, 5, 1))
    report = gradcheck(chosen_where, (MASK, x, y), vjp=chosen_where_vjp, fast_mode=fast_mode)
    assert report.shape == (125, 50)

    def unsummed(mask, x, y, w):
        return np.where(mask, w, 0), np.where(mask, 0, w)

    report = failed(chosen_where, (MASK, x, y), vjp=unsummed, fast_mode=fast_mode)
    assert "input 1" in report.reason
    assert "expected (5, 1, 5), got (5, 5, 5)" in report.reason


@quiet_torch
@modes
def test_case_05_a_mask_and_broadcasting_of_torch(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.rand(5, 1, 5, dtype=torch.double, requires_grad=True)
    y = torch.rand(5, 5, 1, dtype=torch.double, requires_grad=True)
    assert gradcheck(torch.where, (torch.tensor(MASK), x, y), fast_mode=fast_mode)


@modes
def test_case_06_no_outputs(fast_mode):
    with pytest.warns(calipers.CalipersWarning, match="nothing"):
        report = gradcheck(lambda x: (), X, vjp=lambda x, w: np.zeros_like(x), fast_mode=fast_mode)
    assert report
    assert report.verdict == "PASS"
    assert report.vacuous


@quiet_torch
@modes
def test_case_06_no_outputs_of_torch(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.ones(2, dtype=torch.double, requires_grad=True)
    with pytest.warns(calipers.CalipersWarning, match="nothing"):
        report = gradcheck(lambda x: (), x, fast_mode=fast_mode)
    assert report
    assert report.vacuous


@pytest.mark.filterwarnings("ignore::calipers.CalipersWarning")
@modes
def test_case_07_empty_arrays(fast_mode):
    x, y = np.ones((0, 3)), np.linspace(-1, 1, 12).reshape(3, 4)
    report = gradcheck(lambda x: 2 * x, x, vjp=lambda x, w: 2 * w, fast_mode=fast_mode)
    assert report
    assert report.shape == (0, 0)
    report = gradcheck(
        np.matmul, (x, y), vjp=lambda x, y, w: (w @ y.T, x.T @ w), fast_mode=fast_mode
    )
    assert report
    assert report.shape == (0, 12)
    one = {"argnums": 0, "fast_mode": fast_mode}
    report = gradcheck(np.matmul, (x, y), vjp=lambda x, y, w: w @ y.T, **one)
    assert report.shape == (0, 0)


@pytest.mark.filterwarnings("ignore::calipers.CalipersWarning")
@modes
def test_case_07_an_empty_gradient_of_a_wrong_shape(fast_mode):
    def f(x):
        return 2 * x

    x = np.ones((0, 3))
    report = failed(f, x, vjp=lambda x, w: 2 * w.reshape(3, 0), fast_mode=fast_mode)
    assert "wrong shape: expected (0, 3), got (3, 0)" in report.reason


@modes
def test_case_07_an_empty_gradient_of_a_wrong_shape_beside_another(fast_mode):
    def f(x, y):
        return y + np.sum(x)

    pair = np.ones((0, 3)), PAIR[0]
    assert gradcheck(f, pair, vjp=lambda x, y, w: (np.zeros((0, 3)), w), fast_mode=fast_mode)
    report = failed(f, pair, vjp=lambda x, y, w: (np.zeros((3, 0)), w), fast_mode=fast_mode)
    assert "input 0" in report.reason
    assert "wrong shape: expected (0, 3), got (3, 0)" in report.reason


@pytest.mark.filterwarnings("ignore::calipers.CalipersWarning")
@modes
def test_case_07_noise_in_a_push_of_nothing(fast_mode):
    rng = np.random.default_rng(3)

    def noisy(x, v):
        return v + rng.uniform(-1e-3, 1e-3, v.shape)

    assert gradcheck(lambda x: 1 * x, np.ones(0), jvp=noisy, fast_mode=fast_mode)

    def f(x, y):
        return np.sum(x) + y

    def noisy_beside(x, y, v):
        return v[1] * (1 + rng.uniform(0.01, 0.02))

    report = failed(
        f, (np.ones(0), PAIR[0]), jvp=noisy_beside, nondet_tol=10.0, fast_mode=fast_mode
    )
    assert str(report)


@modes
@pytest.mark.parametrize("x", [0.5, np.float64(0.5), np.array(0.5), [0.5, 0.7]])
def test_case_08_numbers_and_lists(x, fast_mode):
    inputs = x if not isinstance(x, list) else np.array(x)
    assert gradcheck(np.sin, inputs, vjp=lambda x, w: w * np.cos(x), fast_mode=fast_mode)
    failed(np.sin, inputs, vjp=lambda x, w: w * np.sin(x), fast_mode=fast_mode)


@modes
def test_case_08_python_floats_in_and_out(fast_mode):
    def f(x):
        return float(x) ** 3

    for x in (0.5, np.array(0.5)):
        assert gradcheck(f, x, vjp=lambda x, w: 3 * w * float(x) ** 2, fast_mode=fast_mode)
        assert gradcheck(f, x, jac=lambda x: 3 * float(x) ** 2, fast_mode=fast_mode)
        assert gradcheck(f, x, jvp=lambda x, v: float(3 * v * x**2), fast_mode=fast_mode)
        failed(f, x, jac=lambda x: 3.1 * float(x) ** 2, fast_mode=fast_mode)


@modes
def test_case_08_a_tuple_of_numbers(fast_mode):
    """Outputs without dimensions are a tuple of outputs as others are."""

    def f(x):
        return np.sum(x), np.sum(x * x)

    def g(x):
        return np.sum(x), x * x

    def jac(x):
        return np.ones_like(x), 2 * x

    x = PAIR[0]
    assert gradcheck(f, x, jac=jac, fast_mode=fast_mode)
    assert gradcheck(f, x, vjp=lambda x, w: w[0] + 2 * w[1] * x, fast_mode=fast_mode)
    assert gradcheck(f, x, jvp=lambda x, v: (np.sum(v), np.sum(2 * x * v)), fast_mode=fast_mode)
    assert gradcheck(g, x, vjp=lambda x, w: w[0] + 2 * w[1] * x, fast_mode=fast_mode)
    assert gradcheck(g, x, jvp=lambda x, v: (np.sum(v), 2 * x * v), fast_mode=fast_mode)


@modes
@pytest.mark.parametrize("kind", [tuple, list])
def test_case_08_lists_and_tuples(kind, fast_mode):
    def f(a, b):
        return kind((a * b, a + b))

    def vjp(a, b, w):
        return kind((b * w[0] + w[1], a * w[0] + w[1]))

    def jac(a, b):
        return kind((kind((np.diag(b), np.diag(a))), kind((np.eye(2), np.eye(2)))))

    assert gradcheck(f, kind(PAIR), vjp=vjp, fast_mode=fast_mode)
    assert gradcheck(f, kind(PAIR), jac=jac, fast_mode=fast_mode)
    report = failed(f, kind(PAIR), vjp=lambda a, b, w: vjp(b, a, w), fast_mode=fast_mode)
    assert places(report) <= {(0, 0), (0, 1)}


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


@modes
@pytest.mark.parametrize(
    "arranged", [np.asfortranarray, np.flip, read_only, lambda x: np.repeat(x, 2, axis=1)[:, ::2]]
)
def test_case_08_layouts(arranged, fast_mode):
    x = arranged(np.arange(1.0, 7).reshape(2, 3))
    before = x.copy()
    assert gradcheck(lambda x: x**2, x, vjp=lambda x, w: 2 * w * x, fast_mode=fast_mode)
    assert gradcheck(
        lambda x: x**2,
        x,
        jac=lambda x: 2 * identity((2, 3)) * x,
        fast_mode=fast_mode,
    )
    if fast_mode:
        return
    wrong = np.where(np.arange(6).reshape(2, 3) == 1, 1.1, 1.0)
    report = failed(lambda x: x**2, x, vjp=lambda x, w: 2 * w * x * wrong)
    assert [e.input_index for e in report.failures] == [(0, 1)]
    np.testing.assert_allclose(report.worst.numerical, 2 * before[0, 1])
    np.testing.assert_array_equal(x, before)


@modes
@forms
def test_case_09_keyword_arguments(form, fast_mode):
    def f(x, *, power, shift=0.0):
        return (x + shift) ** power

    def slope(x, power, shift):
        return power * (x + shift) ** (power - 1)

    derivatives = {
        "jac": lambda x, *, power, shift: np.diag(slope(x, power, shift)),
        "vjp": lambda x, w, *, power, shift: w * slope(x, power, shift),
        "jvp": lambda x, v, *, power, shift: v * slope(x, power, shift),
    }
    given = {form: derivatives[form], "fast_mode": fast_mode}
    assert gradcheck(f, np.array([0.5, 1.5]), kwargs={"power": 3, "shift": 0.25}, **given)
    with pytest.raises(TypeError, match="power"):
        gradcheck(f, np.array([0.5, 1.5]), **given)


@modes
def test_case_09_other_arguments_and_second_order(fast_mode):
    def f(x, n, *, scale):
        return scale * x**n

    assert gradcheck(
        f,
        np.array([0.5, 1.5]),
        vjp=lambda x, n, w, *, scale: scale * n * w * x ** (n - 1),
        args=(3,),
        kwargs={"scale": 2.0},
        fast_mode=fast_mode,
    )
    assert gradgradcheck(
        f,
        np.array([0.5, 1.5]),
        vjp=lambda x, n, w, *, scale: scale * n * w * x ** (n - 1),
        vjp_vjp=lambda x, n, w, u, *, scale: (
            scale * n * (n - 1) * u * w * x ** (n - 2),
            scale * n * u * x ** (n - 1),
        ),
        args=(3,),
        kwargs={"scale": 2.0},
        fast_mode=fast_mode,
    )


class Power:
    """A callable object with its own derivatives."""

    def __init__(self, n):
        self.n = n

    def __call__(self, x):
        return x**self.n

    def jac(self, x):
        return np.diag(self.n * x ** (self.n - 1))

    def vjp(self, x, w):
        return self.n * w * x ** (self.n - 1)

    def jvp(self, x, v):
        return self.n * v * x ** (self.n - 1)


@modes
def test_case_09_callable_objects(fast_mode):
    cube, square = Power(3), Power(2)
    x = np.array([0.5, 1.5])
    options = {"fast_mode": fast_mode}
    assert gradcheck(cube, x, jac=cube.jac, vjp=cube.vjp, jvp=cube.jvp, **options)
    failed(cube, x, vjp=square.vjp, **options)


@quiet_torch
@modes
def test_case_09_keyword_arguments_and_modules_of_torch(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.5, 2, 4, dtype=torch.double, requires_grad=True)

    def f(x, *, power):
        return x**power

    assert gradcheck(f, x, kwargs={"power": 3}, check_forward_ad=True, fast_mode=fast_mode)
    assert gradcheck(torch.nn.Linear(4, 3).double(), x, fast_mode=fast_mode)


class Duck:
    """An array-like of another library."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


class Interface:
    """An array-like by the array interface."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.__array_interface__ = self.values.__array_interface__


@modes
@pytest.mark.parametrize("kind", [Duck, Interface])
def test_case_10_array_likes(kind, fast_mode):
    x = kind(PAIR[0])
    before = np.array(x)

    def f(x):
        return kind(np.sin(np.asarray(x)))

    def slope(x):
        return np.cos(np.asarray(x))

    options = {"fast_mode": fast_mode}
    assert gradcheck(f, x, vjp=lambda x, w: kind(np.asarray(w) * slope(x)), **options)
    assert gradcheck(f, (x,), jvp=lambda x, v: kind(np.asarray(v) * slope(x)), **options)
    assert gradcheck(f, x, jac=lambda x: kind(np.diag(slope(x))), **options)
    failed(f, x, jac=lambda x: kind(np.diag(slope(x) + 0.1)), **options)
    np.testing.assert_array_equal(np.array(x), before)


# B. Mismatch and message.


@modes
@forms
def test_case_11_a_jacobian_that_is_off(form, fast_mode):
    wrong = linear(np.eye(4) + 1e-2)[1][form]

    def f(x):
        return 1 * x

    x = X.reshape(4)
    with pytest.raises(GradcheckError, match=r"d out\[0\].* / d in\[0\]") as caught:
        gradcheck(f, x, **{form: wrong}, fast_mode=fast_mode)
    assert caught.value.report.verdict == "FAIL"
    report = failed(f, x, **{form: wrong}, fast_mode=fast_mode)
    assert places(report) == {(0, 0)}


@modes
def test_case_11_a_gradient_that_is_off_by_a_constant(fast_mode):
    def f(x):
        return 1 * x

    options = {"vjp": lambda x, w: w + 1e-2, "fast_mode": fast_mode}
    with pytest.raises(GradcheckError, match=r"d out\[0\].* / d in\[0\]"):
        gradcheck(f, X, **options)
    report = failed(f, X, **options)
    assert places(report) == {(0, 0)}


@modes
def test_case_11_a_complex_jacobian_that_is_off(fast_mode):
    def f(z):
        return 1 * z

    def jac(z):
        return np.diag(np.full(3, 1 + 1e-2j))

    with pytest.raises(GradcheckError, match=r"\.imag"):
        gradcheck(f, Z, jac=jac, fast_mode=fast_mode)
    report = failed(f, Z, jac=jac, fast_mode=fast_mode)
    assert places(report) == {(0, 0)}
    assert "imaginary" in {part for e in report.failures for part in (e.output_part, e.input_part)}


@quiet_torch
@modes
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_case_11_a_gradient_of_torch_that_is_off(dtype, fast_mode):
    torch = pytest.importorskip("torch")
    f = bad_backward(torch, lambda g: g + 1e-2)
    x = torch.ones(2, 2, dtype=getattr(torch, dtype), requires_grad=True)
    report = failed(f, x, fast_mode=fast_mode)
    assert places(report) == {(0, 0)}
    if dtype == "complex128" and not fast_mode:  # which stops at the first entry that it finds
        assert "imaginary" in {e.output_part for e in report.failures}
    scaled = bad_backward(torch, lambda g: g * 1.01)
    with pytest.raises(GradcheckError, match=r"d out\[0\].* / d in\[0\]"):
        gradcheck(scaled, x, fast_mode=fast_mode)


@modes
def test_case_12_the_class_of_the_error(fast_mode):
    assert issubclass(GradcheckError, RuntimeError)
    assert issubclass(GradcheckError, AssertionError)
    options = {"jac": lambda x: 2 * np.eye(2), "fast_mode": fast_mode}
    for kind in (calipers.WrongDerivativeError, GradcheckError, RuntimeError, AssertionError):
        with pytest.raises(kind):
            gradcheck(lambda x: 1 * x, PAIR[0], **options)
    assert not gradcheck(lambda x: 1 * x, PAIR[0], **options, raise_exception=False)


@modes
@pytest.mark.parametrize("raise_exception", [True, False])
@pytest.mark.parametrize("quiet", [0, 1, 2, 5])
def test_case_12_an_error_in_f_is_raised(quiet, raise_exception, fast_mode):
    calls = []

    def f(x):
        calls.append(x)
        if len(calls) > quiet:
            raise RuntimeError("not a failure")
        return 1 * x

    with pytest.raises(RuntimeError, match="not a failure") as caught:
        gradcheck(
            f,
            PAIR[0],
            vjp=lambda x, w: 2 * w,
            raise_exception=raise_exception,
            fast_mode=fast_mode,
        )
    assert not isinstance(caught.value, GradcheckError)


@modes
@forms
def test_case_12_an_error_in_a_derivative_is_raised(form, fast_mode):
    def broken(*given):
        raise RuntimeError("not a failure")

    options = {form: broken, "raise_exception": False, "fast_mode": fast_mode}
    with pytest.raises(RuntimeError, match="not a failure") as caught:
        gradcheck(lambda x: 1 * x, PAIR[0], **options)
    assert not isinstance(caught.value, GradcheckError)


@quiet_torch
@modes
def test_case_12_an_error_in_a_torch_function_is_raised(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.ones(2, dtype=torch.double, requires_grad=True)

    def broken(x):
        raise RuntimeError("not a failure")

    with pytest.raises(RuntimeError, match="not a failure"):
        gradcheck(broken, x, raise_exception=False, fast_mode=fast_mode)
    with pytest.raises(RuntimeError, match=r"d out\[0\]") as caught:
        gradcheck(
            bad_backward(torch, lambda g: 2 * g),
            x,
            check_undefined_grad=False,
            fast_mode=fast_mode,
        )
    assert isinstance(caught.value, GradcheckError)


def sum_and_second(x, y):
    return x + y, 1 * y


KINDS = [("d", "d"), ("D", "d"), ("d", "D"), ("D", "D")]


@modes
@pytest.mark.parametrize("kinds", KINDS)
def test_case_13_a_wrong_push(kinds, fast_mode):
    x, y = (np.exp(0.3j * a).astype(k) if k == "D" else a for a, k in zip(PAIR, kinds, strict=True))
    right = {"jvp": lambda x, y, v: (v[0] + v[1], v[1]), "fast_mode": fast_mode}
    wrong = {"jvp": lambda x, y, v: (v[0] + 1.1 * v[1], 1.1 * v[1]), "fast_mode": fast_mode}
    assert gradcheck(sum_and_second, (x, y), check_forward_ad=True, **right)
    report = failed(sum_and_second, (x, y), check_forward_ad=True, **wrong)
    assert places(report) == {(0, 1), (1, 1)}
    assert report.worst.form == "jvp"
    with pytest.raises(GradcheckError, match=r"(?s)/ d in\[1\].*jvp"):
        gradcheck(sum_and_second, (x, y), **wrong)


@modes
@pytest.mark.parametrize("kinds", KINDS)
def test_case_13_a_wrong_push_of_the_first_output(kinds, fast_mode):
    x, y = (np.exp(0.3j * a).astype(k) if k == "D" else a for a, k in zip(PAIR, kinds, strict=True))
    wrong = {"jvp": lambda x, y, v: (v[0] + 1.1 * v[1], v[1]), "fast_mode": fast_mode}
    with pytest.raises(GradcheckError, match=r"d out\[0\].* / d in\[1\]") as caught:
        gradcheck(sum_and_second, (x, y), **wrong)
    assert "jvp" in str(caught.value)
    assert places(caught.value.report) == {(0, 1)}


@quiet_torch
@modes
@pytest.mark.parametrize("kinds", KINDS)
def test_case_13_a_wrong_push_of_torch(kinds, fast_mode):
    torch = pytest.importorskip("torch")
    forward = torch.autograd.forward_ad
    names = {"d": torch.double, "D": torch.cdouble}
    x, y = (torch.rand(2, dtype=names[k], requires_grad=True) for k in kinds)

    def bad(x, y):
        if forward._current_level >= 0:
            primal, tangent = forward.unpack_dual(y)
            y = forward.make_dual(primal, tangent * 1.1)
        return x + y, y

    options = {"check_forward_ad": True, "fast_mode": fast_mode}
    assert gradcheck(lambda x, y: (x + y, y), (x, y), **options)
    report = failed(bad, (x, y), **options)
    assert (0, 1) in places(report)
    assert not {(0, 0), (1, 0)} & places(report)
    assert {e.form for e in report.failures} == {"jvp"}


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("forward_bad", [False, True])
@pytest.mark.parametrize("backward_bad", [False, True])
@modes
def test_case_14_only_what_is_asked_for(forward, backward, forward_bad, backward_bad, fast_mode):
    asked = {"vjp": 0, "jvp": 0}

    def vjp(x, w):
        asked["vjp"] += 1
        return w * x * (3 if backward_bad else 2)

    def jvp(x, v):
        asked["jvp"] += 1
        return v * x * (3 if forward_bad else 2)

    options = {
        "vjp": vjp,
        "jvp": jvp,
        "check_forward_ad": forward,
        "check_backward_ad": backward,
        "fast_mode": fast_mode,
        "raise_exception": False,
    }
    if not forward and not backward:
        with pytest.raises(ValueError, match="at least one of"):
            gradcheck(lambda x: x * x, PAIR[0], **options)
        return
    report = gradcheck(lambda x: x * x, PAIR[0], **options)
    bad = set()
    if backward and backward_bad:
        bad.add("vjp")
    if forward and forward_bad:
        bad.add("jvp")
    assert bool(report) is not bool(bad)
    assert {e.form for e in report.failures} == bad
    assert (asked["vjp"] > 0) is backward
    assert (asked["jvp"] > 0) is forward


@quiet_torch
@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("forward_bad", [False, True])
@pytest.mark.parametrize("backward_bad", [False, True])
@modes
def test_case_14_only_what_is_asked_for_of_torch(
    forward, backward, forward_bad, backward_bad, fast_mode
):
    torch = pytest.importorskip("torch")

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return 2 * g if backward_bad else g

        @staticmethod
        def jvp(ctx, t):
            return 2 * t if forward_bad else t.clone()

    x = torch.rand(2, dtype=torch.double, requires_grad=True)
    options = {
        "check_forward_ad": forward,
        "check_backward_ad": backward,
        "fast_mode": fast_mode,
        "raise_exception": False,
    }
    if not forward and not backward:
        with pytest.raises(ValueError, match="at least one of"):
            gradcheck(Identity.apply, x, **options)
        return
    report = gradcheck(Identity.apply, x, **options)
    bad = set()
    if backward and backward_bad:
        bad.add("vjp")
    if forward and forward_bad:
        bad.add("jvp")
    assert bool(report) is not bool(bad)
    assert {e.form for e in report.failures} == bad


@modes
def test_case_15_three_x_for_x_squared(fast_mode):
    report = failed(lambda x: x * x, PAIR[0], vjp=lambda x, w: 3 * w * x, fast_mode=fast_mode)
    worst = report.worst
    np.testing.assert_allclose(worst.analytic / worst.numerical, 1.5)


@modes
@pytest.mark.parametrize("count", [2, 3])
def test_case_15_too_many_gradients(count, fast_mode):
    report = failed(
        lambda x: x * x, PAIR[0], vjp=lambda x, w: (2 * w * x,) * count, fast_mode=fast_mode
    )
    assert f"{count} gradients, expected 1" in report.reason


@pytest.mark.filterwarnings("ignore::calipers.CalipersWarning")
@modes
def test_case_15_too_many_gradients_for_nothing(fast_mode):
    x = np.ones((2, 0))
    assert gradcheck(lambda x: x * x, x, vjp=lambda x, w: 2 * w * x, fast_mode=fast_mode)
    report = failed(lambda x: x * x, x, vjp=lambda x, w: (2 * w * x,) * 2, fast_mode=fast_mode)
    assert "2 gradients, expected 1" in report.reason


@modes
def test_case_15_too_few_gradients_or_tangents(fast_mode):
    def f(a, b):
        return a * b, a + b

    short = {
        "vjp": [lambda a, b, w: b * w[0] + w[1], lambda a, b, w: (b * w[0] + w[1],)],
        "jvp": [lambda a, b, v: b * v[0] + a * v[1], lambda a, b, v: (b * v[0] + a * v[1],)],
    }
    for form, calls in short.items():
        for call in calls:
            report = failed(f, PAIR, **{form: call}, fast_mode=fast_mode)
            what = "gradient" if form == "vjp" else "tangent"
            assert f"1 {what}, expected 2" in report.reason
    line = (np.diag(PAIR[1]), np.diag(PAIR[0]))
    report = failed(f, PAIR, jac=lambda a, b: (line,), fast_mode=fast_mode)
    assert "expected 2 items, got 1" in report.reason


@modes
@forms
def test_case_17_messages_have_the_callers_positions(form, fast_mode):
    matrix = np.array([[1.0, 2], [3, 4]])
    wrong = {
        "jac": lambda n, x: 2 * matrix,
        "vjp": lambda n, x, w: 2 * matrix.T @ w,
        "jvp": lambda n, x, v: 2 * matrix @ v,
    }
    report = failed(
        lambda n, x: matrix @ x,
        (np.array([1, 2]), PAIR[0]),
        **{form: wrong[form]},
        fast_mode=fast_mode,
    )
    assert (report.worst.output, report.worst.input) == (0, 1)
    assert places(report) == {(0, 1)}


@quiet_torch
@modes
def test_case_17_messages_have_the_callers_positions_of_torch(fast_mode):
    torch = pytest.importorskip("torch")
    f = bad_backward(torch, lambda g: 2 * g, lambda n, x: 1 * x)
    x = torch.rand(2, dtype=torch.double)
    for first in (torch.tensor([1, 2]), torch.tensor([1.0, 2.0]), 3):
        report = failed(
            f,
            (first, x.clone().requires_grad_()),
            check_undefined_grad=False,
            fast_mode=fast_mode,
        )
        assert (report.worst.output, report.worst.input) == (0, 1)


@modes
def test_case_18_all_wrong_blocks_are_listed(fast_mode):
    def jac(a, b):
        (aa, ab), (ba, bb) = two_sums_jac(a, b)
        return (aa, 3 * ab), (0.5 * ba, bb)

    report = failed(two_sums, (X, X - 2), jac=jac, fast_mode=fast_mode)
    assert places(report) == {(0, 1), (1, 0)}
    if not fast_mode:
        assert len(report.blocks) == 2


def test_case_18_the_worst_entry():
    def f(x):
        return x**2

    def jac(x):
        found = 2 * identity(x.shape) * x
        found[1, 0, 0, 1] = 7.0
        found[1, 1, 1, 1] *= 1.01
        return found

    report = failed(f, X, jac=jac)
    worst = report.worst
    assert (worst.output_index, worst.input_index) == ((1, 0), (0, 1))
    assert (worst.row, worst.column) == (2, 1)
    assert worst.analytic == 7
    assert abs(worst.numerical) < 1e-9
    other = report.failures[1]
    assert (other.output_index, other.input_index) == ((1, 1), (1, 1))
    np.testing.assert_allclose([other.analytic, other.numerical], [2.424, 2.4], rtol=1e-9)
    assert worst.excess > other.excess > 1
    assert report.counts == {"FAIL": 2, "NONSMOOTH": 0, "INCONCLUSIVE": 0, "PASS": 14}
    assert "d out[0][1, 0] / d in[0][0, 1]" in report.reason
    assert "16: 2 FAIL, 14 PASS" in str(report)
    assert report.to_dict()["failures"][0]["analytic"] == 7


@modes
@forms
@pytest.mark.parametrize(("factor", "right"), [(1.001, False), (1 + 1e-9, True), (1.0, True)])
def test_case_19_small_factors(factor, right, form, fast_mode):
    f, _ = linear(np.random.default_rng(4).uniform(0.5, 2, (4, 3)))
    matrix = f(np.eye(3))
    wrong = linear(factor * matrix)[1][form]
    report = gradcheck(
        f,
        np.array([0.5, 1.0, 2.0]),
        **{form: wrong},
        fast_mode=fast_mode,
        raise_exception=False,
    )
    assert report.verdict == ("PASS" if right else "FAIL"), str(report)


@modes
@pytest.mark.parametrize("size", [9e-6, 1e-3, 1e-12])
def test_case_19_small_derivatives_that_are_left_out(size, fast_mode):
    x = np.array([0.5, 1.0, 2.0])
    options = {"fast_mode": fast_mode}
    failed(lambda x: size * x, x, jac=lambda x: np.zeros((3, 3)), **options)
    failed(lambda x: size * x, x, vjp=lambda x, w: np.zeros(3), **options)
    assert gradcheck(lambda x: size * x, x, jac=lambda x: size * np.eye(3), **options)


@quiet_torch
@modes
def test_case_19_torch_passes_them(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.tensor([0.5, 1.0, 2.0], dtype=torch.double, requires_grad=True)
    for f in (
        bad_backward(torch, lambda g: 1.001 * g),
        bad_backward(torch, lambda g: 0 * g, lambda x: 9e-6 * x),
    ):
        report = failed(f, x, check_undefined_grad=False, fast_mode=fast_mode)
        assert places(report) == {(0, 0)}


SIZE = 2000


@pytest.mark.slow
@modes
@forms
def test_case_20_the_identity_for_a_permutation(form, fast_mode):
    size = 500  # all columns of which are measured once more
    order = np.random.default_rng(5).permutation(size)
    x = np.random.default_rng(6).uniform(-1, 1, size)
    derivatives = {"jac": lambda x: np.eye(size), "vjp": lambda x, w: w, "jvp": lambda x, v: v}
    given = {form: derivatives[form]}
    report = failed(lambda x: x[order], x, **given, fast_mode=fast_mode)
    assert places(report) == {(0, 0)}


@pytest.mark.parametrize("seed", range(5))
@modes
@forms
def test_case_20_two_entries_swapped(form, seed, fast_mode):
    if not fast_mode and seed:
        return
    order = np.arange(SIZE)
    order[[17, 1234]] = order[[1234, 17]]
    x = np.random.default_rng(6).uniform(-1, 1, SIZE)
    derivatives = {"jac": lambda x: np.eye(SIZE), "vjp": lambda x, w: w, "jvp": lambda x, v: v}
    given = {form: derivatives[form]}
    report = failed(lambda x: x[order], x, **given, seed=seed, fast_mode=fast_mode)
    assert {e.column for e in report.failures} <= {17, 1234}
    assert {e.row for e in report.failures} <= {17, 1234}


@forms
@pytest.mark.parametrize("size", [1000, 3000])
def test_case_20_one_entry_of_a_zero_matrix(size, form):
    i, j = size // 3, size // 2

    def f(x):
        y = np.zeros(size)
        y[i] = x[j]
        return y

    derivatives = {
        "jac": lambda x: np.zeros((size, size)),
        "vjp": lambda x, w: np.zeros(size),
        "jvp": lambda x, v: np.zeros(size),
    }
    x = np.random.default_rng(7).uniform(-1, 1, size)
    report = failed(f, x, **{form: derivatives[form]}, fast_mode=True)
    assert (report.worst.row, report.worst.column) == (i, j)
    assert len(report.failures) == 1


@modes
@forms
def test_case_20_one_entry_of_a_matrix_of_ones(form, fast_mode):
    wrong = np.ones((300, 300))
    wrong[120, 250] = 2.0

    def f(x):
        return np.full(300, np.sum(x))

    x = np.random.default_rng(7).uniform(-1, 1, 300)
    report = failed(f, x, **{form: linear(wrong)[1][form]}, fast_mode=fast_mode)
    assert (report.worst.row, report.worst.column) == (120, 250)
    assert len(report.failures) == 1


@quiet_torch
def test_case_20_torch_passes_them():
    torch = pytest.importorskip("torch")
    order = torch.tensor(np.random.default_rng(5).permutation(SIZE))

    class Permuted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[order]

        @staticmethod
        def backward(ctx, g):
            return g

    x = torch.rand(SIZE, dtype=torch.double, requires_grad=True)
    report = failed(Permuted.apply, x, fast_mode=True)
    assert places(report) == {(0, 0)}
    assert gradcheck(lambda x: x[order], x, fast_mode=True)


@forms
def test_case_21_what_the_second_look_accepts_is_no_failure(form):
    f, _ = linear(np.diag([1.0, 2.0, 3.0]))
    slightly = linear(np.diag([1.0, 2.0, 3.0]) * (1 + 1e-8))[1][form]
    report = gradcheck(f, np.array([0.5, 1.0, 2.0]), **{form: slightly}, fast_mode=True)
    assert report.verdict == "PASS"
    assert not report.failures
    assert report.counts["PASS"] > 0  # the entries that were looked at again
    exact = linear(np.diag([1.0, 2.0, 3.0]))[1][form]
    report = gradcheck(f, np.array([0.5, 1.0, 2.0]), **{form: exact}, fast_mode=True)
    assert report.counts["PASS"] == 0


@forms
def test_case_21_an_entry_that_is_accepted_hides_no_other(form):
    """The first entry is off by less than the tolerance, but by far more than its difference."""
    x = np.array([0.5, 1.0])

    def f(x):
        return np.array([x[0], np.exp(np.sin(30 * x[1]))])

    slope = 30 * np.cos(30 * x[1]) * f(x)[1]
    nearly = {form: linear(np.diag([1 + 9e-7, slope]))[1][form]}
    assert gradcheck(f, x, **nearly, fast_mode=True)
    wrong = {form: linear(np.diag([1 + 9e-7, slope * 1.00001]))[1][form]}
    for seed in range(5):
        report = failed(f, x, **wrong, seed=seed, fast_mode=True)
        assert [e.input_index for e in report.failures] == [(1,)]


@modes
@forms
def test_case_21_a_kink_hides_no_wrong_entry(form, fast_mode):
    wrong = {form: linear(np.diag([0.0, 1.0, 3.0]))[1][form]}
    report = failed(np.abs, np.array([0.0, 1.0, 2.0]), **wrong, fast_mode=fast_mode)
    assert (2,) in {e.input_index for e in report.failures if e.verdict == "FAIL"}


@modes
@forms
def test_case_22_the_second_look_has_the_callers_tolerances(form, fast_mode):
    f, _ = linear(np.diag([1.0, 2.0, 3.0]))
    off = linear(np.diag([1.0, 2.0, 3.0]) * 1.05)[1][form]
    options = {form: off, "fast_mode": fast_mode}
    x = np.array([0.5, 1.0, 2.0])
    assert gradcheck(f, x, **options, rtol=0.1)
    assert gradcheck(f, x, **options, atol=0.3)
    assert gradcheck(f, x, **options, eps=1e-4, rtol=0.1)
    failed(f, x, **options, rtol=0.01)
    failed(f, x, **options, atol=0.01)
    failed(f, x, **options, eps=1e-4)


@modes
@forms
def test_case_22_the_second_look_has_the_callers_step_and_bounds(form, fast_mode):
    seen = []

    def f(x):
        seen.append(x.copy())
        return x**2

    derivatives = {
        "jac": lambda x: np.diag(3 * x),
        "vjp": lambda x, w: 3 * w * x,
        "jvp": lambda x, v: 3 * v * x,
    }
    x = np.array([0.5, 1.0, 2.0])
    bounds = x - 1e-4, x + 1e-3
    options = {form: derivatives[form], "fast_mode": fast_mode}
    failed(f, x, **options, bounds=bounds)
    assert np.all(bounds[0] <= np.min(seen, axis=0))
    assert np.all(np.max(seen, axis=0) <= bounds[1])
    seen.clear()
    failed(f, x, **options, step=1e-5)
    assert 0 < np.max(np.abs(np.array(seen) - x)) < 1e-3


@modes
@forms
def test_case_22_what_is_left_out_is_not_looked_at(form, fast_mode):
    f, _ = linear(np.diag([1.0, 2.0, 3.0]))
    wrong = linear(np.diag([1.0, 7.0, 3.0]))[1][form]
    options = {form: wrong, "fast_mode": fast_mode}
    x = np.array([0.5, 1.0, 2.0])
    failed(f, x, **options, step=np.array([1e-3, 1e-3, 1e-3]))
    assert gradcheck(f, x, **options, step=np.array([1e-3, 0.0, 1e-3]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"convention": "chainrules"},
        {"allow": ["FAIL"]},
        {"allow": "NONSMOOTH"},
        {"eps": 0.0},
        {"eps": -1e-6},
        {"eps": np.nan},
        {"eps": 1e-6, "step": 1e-6},
        {"atol": -1.0},
        {"rtol": np.nan},
        {"rtol": np.inf},
        {"argnums": 3},
        {"argnums": -1},
        {"check_forward_ad": True},
        {"check_backward_ad": False},
        {"step": -1e-3},
        {"nondet_tol": -1.0},
        {"nondet_tol": np.nan},
        {"nondifferentiable_outputs": [5]},
    ],
    ids=str,
)
@modes
def test_case_23_unsupported_values_are_refused(wrong, fast_mode):
    options = {"vjp": lambda x, w: w, "raise_exception": False, "fast_mode": fast_mode}
    with pytest.raises(ValueError, match=r"\w"):
        gradcheck(lambda x: 1 * x, PAIR[0], **options, **wrong)


def test_case_23_unknown_arguments_are_refused():
    options = {"vjp": lambda x, w: w, "raise_exception": False}
    with pytest.raises(TypeError):
        gradcheck(lambda x: 1 * x, PAIR[0], **options, grad_out=2.0)
    with pytest.raises(TypeError):
        gradcheck(lambda x: 1 * x, PAIR[0], vjp=2.0)
    with pytest.raises(TypeError):
        gradcheck(lambda x: 1 * x, PAIR[0], lambda x, w: w)
    with pytest.raises(ValueError, match="at least one of"):
        gradcheck(lambda x: 1 * x, PAIR[0])


# C. Complex numbers.


@modes
def test_case_24_complex_and_real_outputs(fast_mode):
    def f(a, b):
        return a + 1j * b, a + 1

    def vjp(a, b, w):
        return w[0].real + w[1], w[0].imag

    def jvp(a, b, v):
        return v[0] + 1j * v[1], v[0]

    def jac(a, b):
        one = identity((2, 2))
        return (one, 1j * one), (one, None)

    pair = np.ones((2, 2)), np.ones((2, 2))
    report = gradcheck(f, pair, vjp=vjp, jvp=jvp, jac=jac, fast_mode=fast_mode)
    assert report.shape == (12, 8)
    report = failed(f, pair, vjp=lambda a, b, w: (w[0].real + w[1], w[1]), fast_mode=fast_mode)
    assert (0, 1) in places(report) or (1, 1) in places(report)


@modes
def test_case_24_a_complex_input_with_a_real_output(fast_mode):
    def f(z):
        return 1 * z, z.real

    report = gradcheck(
        f, Z, vjp=lambda z, w: w[0] + w[1], jvp=lambda z, v: (v, v.real), fast_mode=fast_mode
    )
    assert report.shape == (9, 6)
    failed(f, Z, vjp=lambda z, w: w[0] + 1j * w[1], fast_mode=fast_mode)


@quiet_torch
@modes
def test_case_24_complex_and_real_outputs_of_torch(fast_mode):
    torch = pytest.importorskip("torch")
    a = torch.ones(2, 2, dtype=torch.double, requires_grad=True)
    b = torch.ones(2, 2, dtype=torch.double, requires_grad=True)
    options = {"check_forward_ad": True, "fast_mode": fast_mode}
    assert gradcheck(lambda a, b: (torch.complex(a, b), a + 1), (a, b), **options)
    z = torch.ones(2, 2, dtype=torch.cdouble, requires_grad=True)
    assert gradcheck(lambda z: (z.clone(), torch.real(z)), z, **options)


COMPLEX = {
    "real to complex": (lambda x: x + 1j * x, X, lambda w: w.real + w.imag),
    "complex to complex": (lambda z: 1 * z, Z, lambda w: w),
    "complex to real": (lambda z: z.real.copy(), Z, lambda w: w + 0j),
}


@modes
@pytest.mark.parametrize("kind", COMPLEX)
def test_case_25_a_cotangent_that_is_off(kind, fast_mode):
    f, x, pull = COMPLEX[kind]
    assert gradcheck(f, x, vjp=lambda x, w: pull(w), fast_mode=fast_mode)
    report = failed(f, x, vjp=lambda x, w: pull(w + 1e-2), fast_mode=fast_mode)
    assert places(report) == {(0, 0)}
    if kind == "complex to real":
        assert {e.output_part for e in report.failures} == {""}
    elif not fast_mode:
        assert "imaginary" in {e.output_part for e in report.failures}


@modes
@pytest.mark.parametrize("kind", ["real to complex", "complex to complex"])
def test_case_25_the_message_names_the_imaginary_part(kind, fast_mode):
    f, x, pull = COMPLEX[kind]

    def vjp(x, w):
        return pull(w.real + 1.01j * w.imag)

    report = failed(f, x, vjp=vjp, fast_mode=fast_mode)
    assert ".imag" in report.reason
    assert {e.output_part for e in report.failures} == {"imaginary"}


@quiet_torch
@modes
@pytest.mark.parametrize("kind", COMPLEX)
def test_case_25_a_cotangent_of_torch_that_is_off(kind, fast_mode):
    torch = pytest.importorskip("torch")
    functions = {
        "real to complex": lambda x: torch.complex(x, x),
        "complex to complex": lambda z: z.clone(),
        "complex to real": lambda z: torch.real(z).clone(),
    }
    dtype = torch.double if kind == "real to complex" else torch.cdouble
    x = torch.ones(2, 2, dtype=dtype, requires_grad=True)
    f = bad_backward(torch, lambda g: g + 1e-2, functions[kind])
    options = {"check_undefined_grad": False, "fast_mode": fast_mode}
    report = failed(f, x, **options)
    assert places(report) == {(0, 0)}
    scaled = bad_backward(torch, lambda g: 1.01 * g, functions[kind])
    with pytest.raises(GradcheckError, match=r"d out\[0\].* / d in\[0\]"):
        gradcheck(scaled, x, **options)


# f, its pull in torch's convention; jax's is the conjugate of that for the conjugate of w.
HALVES = {
    "abs2": (lambda z: np.abs(z) ** 2, lambda z, w: 2 * w * z),
    "conj": (np.conj, lambda z, w: np.conj(w)),
    "square": (lambda z: z * z, lambda z, w: w * np.conj(2 * z)),
    "angle": (np.angle, lambda z, w: w * 1j * z / np.abs(z) ** 2),
}


@modes
@conventions
@pytest.mark.parametrize("name", HALVES)
def test_case_26_conventions(name, convention, fast_mode):
    f, pull = HALVES[name]
    pulls = {"torch": pull, "jax": lambda z, w: np.conj(pull(z, np.conj(w)))}
    options = {"convention": convention, "fast_mode": fast_mode}
    assert gradcheck(f, Z, vjp=pulls[convention], **options)
    if name != "conj":
        other = pulls["jax" if convention == "torch" else "torch"]
        report = failed(f, Z, vjp=other, **options)
        assert places(report) == {(0, 0)}


@modes
@conventions
@pytest.mark.parametrize("name", ["abs2", "angle"])
def test_case_26_conventions_of_a_gradient_as_a_jacobian(name, convention, fast_mode):
    f, pull = HALVES[name]

    def jac(z):
        gradient = np.diag(pull(z, 1.0))
        return gradient if convention == "torch" else np.conj(gradient)

    assert gradcheck(f, Z, jac=jac, convention=convention, fast_mode=fast_mode)
    failed(f, Z, jac=lambda z: np.conj(jac(z)), convention=convention, fast_mode=fast_mode)


@pytest.mark.parametrize(
    ("f", "block"),
    [
        (lambda z: (5 + 7j) * z, [[5, -7], [7, 5]]),
        (np.conj, [[1, 0], [0, -1]]),
    ],
    ids=["times", "conj"],
)
def test_case_26_real_blocks(f, block):
    z = np.array([0.5 - 1.25j])
    report = failed(f, z, jac=lambda z: np.zeros((1, 1), complex))
    assert report.shape == (2, 2)
    found = np.zeros((2, 2))
    for e in report.failures:
        found[e.row, e.column] = e.numerical
    np.testing.assert_allclose(found, block, atol=1e-9)


@modes
def test_case_26_jacobians_by_z_and_its_conjugate(fast_mode):
    zero, one = np.zeros((3, 3)), np.eye(3)
    options = {"fast_mode": fast_mode}
    assert gradcheck(lambda z: (5 + 7j) * z, Z, jac=lambda z: (5 + 7j) * one, **options)
    assert gradcheck(np.conj, Z, jac=lambda z: (zero, one), **options)
    assert gradcheck(lambda z: z * z, Z, jac=lambda z: (np.diag(2 * z), None), **options)
    failed(np.conj, Z, jac=lambda z: (one, zero), **options)


@quiet_torch
@modes
def test_case_26_functions_of_torch(fast_mode):
    torch = pytest.importorskip("torch")
    z = torch.tensor(Z, requires_grad=True)
    functions = [
        lambda z: torch.abs(z) ** 2,
        lambda z: torch.conj(z),
        lambda z: z * z,
        torch.angle,
        lambda z: (5 + 7j) * z,
        torch.sin,
    ]
    for f in functions:
        assert gradcheck(f, z, check_forward_ad=True, fast_mode=fast_mode)


@pytest.mark.parametrize("mode", ["vjp", "jvp"])
def test_a_custom_rule_of_jax_that_gives_another_value(mode):
    jax = pytest.importorskip("jax")
    if mode == "vjp":
        f = jax.custom_vjp(lambda x: x**3)
        f.defvjp(lambda x: (1.01 * x**3, x), lambda x, w: (3 * x * x * w,))
    else:
        f = jax.custom_jvp(lambda x: x**3)
        f.defjvp(lambda x, t: (1.01 * x[0] ** 3, 3 * x[0] ** 2 * t[0]))
    x = jax.numpy.asarray(np.float32([0.5, 1.0]))
    forms = {"check_backward_ad": mode == "vjp", "check_forward_ad": mode == "jvp"}
    report = calipers.gradcheck(f, (x,), raise_exception=False, **forms)
    assert report.verdict == "FAIL"
    assert f"the primal value that jax.{mode} returns differs from f(x)" in report.reason
    assert calipers.gradcheck(lambda x: x**3, (x,), check_undefined_grad=True)


def test_random_keys_of_jax_are_handed_on():
    jax = pytest.importorskip("jax")

    def noisy(key, x):
        return x**2 * jax.random.normal(key, x.shape)

    point = jax.random.key(0), jax.numpy.asarray(np.float32([0.5, 1.0, 2.0]))
    assert calipers.gradcheck(noisy, point)
    assert calipers.gradgradcheck(noisy, point)


@modes
def test_case_26_functions_of_jax(fast_mode):
    jax = pytest.importorskip("jax")
    z = jax.numpy.asarray(Z)
    for f in (lambda z: jax.numpy.abs(z) ** 2, jax.numpy.conj, lambda z: z * z, jax.numpy.angle):
        assert gradcheck(f, z, fast_mode=fast_mode)


@modes
@conventions
def test_case_27_sine_at_complex_points(convention, fast_mode):
    pulls = {
        "torch": lambda z, w: np.conj(np.cos(z)) * w,
        "jax": lambda z, w: np.cos(z) * w,
    }
    options = {"convention": convention, "fast_mode": fast_mode}
    assert gradcheck(np.sin, Z, vjp=pulls[convention], **options)
    assert gradcheck(np.sin, Z, jvp=lambda z, v: np.cos(z) * v, **options)
    assert gradcheck(np.sin, Z, jac=lambda z: np.diag(np.cos(z)), **options)
    wrong = pulls["jax" if convention == "torch" else "torch"]
    report = failed(np.sin, Z, vjp=wrong, **options)
    assert places(report) == {(0, 0)}


SMALL = [
    np.array([-0.02 + 0.01j, 0.003 - 0.006j]),
    np.array([0.01 + 0.0j, 1e-3 + 0.02j]),
    np.array([0.0074 - 0.0121j, -0.0093 + 0.0018j]),
]


@modes
@pytest.mark.parametrize("z", SMALL)
@pytest.mark.parametrize("tolerances", [{"atol": 8.3e-6, "rtol": 1e-9}, {}])
def test_case_28_the_inverse_norm_of_small_numbers(z, tolerances, fast_mode):
    def vjp(z, w):
        return -w * z / np.linalg.norm(z) ** 3

    options = {"fast_mode": fast_mode, **tolerances}
    assert gradcheck(lambda z: 1 / np.linalg.norm(z), z, vjp=vjp, **options)
    failed(lambda z: 1 / np.linalg.norm(z), z, vjp=lambda z, w: 1.001 * vjp(z, w), **options)


@quiet_torch
@modes
@pytest.mark.parametrize("z", SMALL)
def test_case_28_the_inverse_norm_of_torch(z, fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.tensor(z, requires_grad=True)
    options = {"atol": 8.3e-6, "rtol": 1e-9, "fast_mode": fast_mode}
    assert gradcheck(lambda x: 1 / torch.linalg.vector_norm(x), x, **options)


@modes
def test_case_29_a_complex_number_seen_as_two_real_ones(fast_mode):
    def f(x):
        return (1j * x).view(float).reshape(*x.shape, 2)

    def push(x, v):
        return np.stack([np.zeros_like(v), v], axis=-1)

    options = {"check_forward_ad": True, "fast_mode": fast_mode}
    assert gradcheck(f, PAIR[0], jvp=push, **options)
    report = failed(f, PAIR[0], jvp=lambda x, v: push(x, v)[..., ::-1], **options)
    assert report.shape == (4, 2)


@quiet_torch
@modes
def test_case_29_a_complex_number_of_torch_seen_as_two_real_ones(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.rand(2, dtype=torch.double, requires_grad=True)

    def f(x):
        return torch.view_as_real(torch.resolve_conj(x * 1j))

    assert gradcheck(f, x, check_forward_ad=True, fast_mode=fast_mode)
    assert gradcheck(f, x, check_forward_ad=True, check_backward_ad=False, fast_mode=fast_mode)


# D. Shapes, dtypes, outputs.


def doubled_if_large(x):
    return np.concatenate([x, x]) if np.all(x >= 1) else 1 * x


def doubled_vjp(x, w):
    return w[:2] + w[2:]


@modes
@pytest.mark.parametrize("raise_exception", [True, False])
def test_case_30_a_shape_that_depends_on_values(raise_exception, fast_mode):
    options = {"raise_exception": raise_exception, "fast_mode": fast_mode}
    with pytest.raises(ValueError, match=r"shape") as caught:
        gradcheck(doubled_if_large, np.ones(2), vjp=doubled_vjp, **options)
    text = str(caught.value)
    assert "(4,)" in text
    assert "(2,)" in text


def test_case_30_the_message_names_the_index_and_the_step():
    def f(n, x):
        return doubled_if_large(x)

    with pytest.raises(ValueError, match="shape") as caught:
        gradcheck(f, (3, np.ones(2)), vjp=lambda n, x, w: doubled_vjp(x, w))
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "x[0] perturbed by -6.06e-06" in text


@modes
def test_case_30_a_shape_that_differs_at_the_point_alone(fast_mode):
    def f(x):
        return np.concatenate([x, x]) if np.all(x == 1) else 1 * x

    with pytest.raises(ValueError, match="shape"):
        gradcheck(f, np.ones(2), vjp=doubled_vjp, fast_mode=fast_mode)


@modes
def test_case_30_a_shape_of_several_outputs_that_depends_on_values(fast_mode):
    def f(x):
        return 1 * x, doubled_if_large(x)

    with pytest.raises(ValueError, match="shape"):
        gradcheck(f, np.ones(2), vjp=lambda x, w: w[0] + doubled_vjp(x, w[1]), fast_mode=fast_mode)


@modes
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("dtype", ["f", "D", "i"])
def test_case_30_a_dtype_that_depends_on_values(dtype, several, fast_mode):
    def f(x):
        y = 1 * x if np.all(x >= 1) else x.astype(dtype)
        return (y, 2 * y) if several else y

    def vjp(x, w):
        return w[0] + 2 * w[1] if several else w

    with pytest.raises(ValueError, match="dtype"):
        gradcheck(f, np.ones(2), vjp=vjp, fast_mode=fast_mode)


@quiet_torch
@modes
def test_case_30_shapes_and_dtypes_of_torch_that_depend_on_values(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.ones(2, dtype=torch.double, requires_grad=True)

    def shape(x):
        return torch.cat([x, x]) if torch.all(x >= 1) else x

    def dtype(x):
        return x if torch.all(x >= 1) else x.to(torch.float32)

    with pytest.raises(ValueError, match="shape"):
        gradcheck(shape, x, fast_mode=fast_mode)
    with pytest.raises(ValueError, match="dtype"):
        gradcheck(dtype, x, fast_mode=fast_mode)


@modes
@pytest.mark.parametrize("form", ["vjp", "jvp"])
def test_case_31_a_gradient_of_another_dtype(form, fast_mode):
    def f(n, x):
        return 5 * x

    derivatives = {
        "vjp": lambda n, x, w: (5 * w).astype("f"),
        "jvp": lambda n, x, v: (5 * v).astype("f"),
    }
    options = {form: derivatives[form], "fast_mode": fast_mode}
    pair = 3, PAIR[0]
    report = gradcheck(f, pair, **options, rtol=1e-5, raise_exception=False)
    assert report, str(report)
    report = failed(f, pair, **options, check_grad_dtypes=True)
    assert "float32" in report.reason
    assert "float64" in report.reason
    assert ("output 0" if form == "jvp" else "input 1") in report.reason


@modes
def test_case_31_a_jacobian_of_another_dtype(fast_mode):
    options = {"jac": lambda n, x: 5 * np.eye(2, dtype="f"), "fast_mode": fast_mode}
    pair = 3, PAIR[0]
    assert gradcheck(lambda n, x: 5 * x, pair, **options)
    report = failed(lambda n, x: 5 * x, pair, **options, check_grad_dtypes=True)
    assert "float32" in report.reason


@modes
@forms
@pytest.mark.parametrize("check_grad_dtypes", [False, True])
def test_case_31_a_gradient_of_another_size(form, check_grad_dtypes, fast_mode):
    def f(n, x):
        return 5 * x

    derivatives = {
        "jac": lambda n, x: 5 * np.eye(3)[:2],
        "vjp": lambda n, x, w: 5 * np.append(w, 0),
        "jvp": lambda n, x, v: 5 * np.append(v, 0),
    }
    options = {form: derivatives[form], "fast_mode": fast_mode}
    report = failed(f, (3, PAIR[0]), **options, check_grad_dtypes=check_grad_dtypes)
    assert "wrong shape" in report.reason
    names = {"jac": "d out[0] / d in[1]", "vjp": "input 1", "jvp": "output 0"}
    assert names[form] in report.reason


@modes
def test_case_31_a_complex_gradient_of_real_numbers(fast_mode):
    report = failed(lambda x: 5 * x, PAIR[0], vjp=lambda x, w: 5 * w + 0j, fast_mode=fast_mode)
    assert "complex128" in report.reason
    assert "input 0" in report.reason


@modes
@pytest.mark.parametrize("form", ["vjp", "jvp"])
def test_case_32_a_sparse_gradient_for_a_dense_input(form, fast_mode):
    sparse = pytest.importorskip("scipy.sparse")
    derivatives = {
        "vjp": lambda x, w: sparse.csr_array(5 * w),
        "jvp": lambda x, v: sparse.csr_array(5 * v),
    }
    report = failed(lambda x: 5 * x, X, **{form: derivatives[form]}, fast_mode=fast_mode)
    assert "layout" in report.reason or "sparse" in report.reason
    assert ("output 0" if form == "jvp" else "input 0") in report.reason


@quiet_torch
@modes
def test_case_32_a_sparse_gradient_for_a_dense_tensor(fast_mode):
    torch = pytest.importorskip("torch")

    class Sparse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g.to_sparse()

    x = torch.rand(2, 2, dtype=torch.double, requires_grad=True)
    report = failed(Sparse.apply, x, fast_mode=fast_mode)
    assert "layout" in report.reason


def plain_first(first):
    """Return f with an output that is not differentiable before one that is."""
    return lambda x: (first(x), np.sin(x))


FIRST = {
    "float": (lambda x: np.floor(x), {"nondifferentiable_outputs": [0]}),
    "moving float": (lambda x: 3 * x, {"nondifferentiable_outputs": [0]}),
    "integer": (lambda x: np.arange(3), {}),
    "bool": (lambda x: x > 0, {}),
}


@modes
@pytest.mark.parametrize("kind", FIRST)
def test_case_33_outputs_that_are_not_differentiable(kind, fast_mode):
    first, options = FIRST[kind]
    f, slope = plain_first(first), lambda x: np.diag(np.cos(x))
    x = PAIR[0]
    options = {**options, "fast_mode": fast_mode}
    assert gradcheck(f, x, vjp=lambda x, w: w[-1] * np.cos(x), **options)
    assert gradcheck(f, x, jvp=lambda x, v: (None, v * np.cos(x)), **options)
    assert gradcheck(f, x, jac=lambda x: (None, slope(x)), **options)
    report = failed(f, x, vjp=lambda x, w: 2 * w[-1] * np.cos(x), **options)
    assert (report.worst.output, report.worst.input) == (1, 0)
    assert places(report) == {(1, 0)}
    assert report.shape == (2, 2)


@quiet_torch
@modes
@pytest.mark.parametrize("kind", ["float", "integer"])
def test_case_33_outputs_of_torch_that_are_not_differentiable(kind, fast_mode):
    torch = pytest.importorskip("torch")

    class Marked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            first = 3 * x if kind == "float" else torch.arange(3)
            ctx.mark_non_differentiable(first)
            ctx.factor = factor
            return first, 5 * x

        @staticmethod
        def backward(ctx, _, g):
            return ctx.factor * g, None

    x = torch.rand(2, dtype=torch.double, requires_grad=True)
    assert gradcheck(Marked.apply, (x, 5), fast_mode=fast_mode)
    report = failed(Marked.apply, (x, 6), fast_mode=fast_mode)
    assert (report.worst.output, report.worst.input) == (1, 0)


@pytest.mark.filterwarnings("ignore::calipers.CalipersWarning")
@modes
def test_case_34_all_outputs_declared_not_differentiable(fast_mode):
    def f(x):
        return 2 * x

    options = {"nondifferentiable_outputs": [0], "fast_mode": fast_mode}
    report = gradcheck(np.floor, PAIR[0], vjp=lambda x, w: np.zeros_like(x), **options)
    assert report
    report = failed(f, PAIR[0], vjp=lambda x, w: np.zeros_like(x), **options)
    assert "analytic 0, numerical 2" in report.reason


@quiet_torch
@modes
def test_case_34_all_outputs_of_torch_without_a_gradient(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.rand(2, dtype=torch.double, requires_grad=True)
    assert gradcheck(lambda x: torch.floor(x.detach()), x, fast_mode=fast_mode)
    report = failed(lambda x: 2 * x.detach(), x, fast_mode=fast_mode)
    assert report.worst.analytic == 0
    np.testing.assert_allclose(report.worst.numerical, 2)
