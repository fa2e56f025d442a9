"""Second derivatives: their symmetry, and which inputs and outputs they are of."""

import numpy as np
import pytest

import calipers
from tests.data.gradcheck_functions import sine_vjp

MATRIX = np.array([[2.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 4.0]])
SKEWED = MATRIX + np.array([[0, 0.25, 0], [0, 0, 0], [0, 0, 0]])
X = np.array([0.5, 1.0, 2.0])


def checked(f, inputs, *given, **options):
    return calipers.gradgradcheck(f, inputs, *given, raise_exception=False, **options)


def cubes(x):
    return MATRIX @ x**3


def gradient(x, w):
    return 3 * x * x * (MATRIX.T @ w)


def pull(x, w, u):
    return 6 * x * u * (MATRIX.T @ w), MATRIX @ (3 * x * x * u)


def push(x, w, v):
    return 6 * x * v[0] * (MATRIX.T @ w) + 3 * x * x * (MATRIX.T @ v[1])


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("form", ["vjp_vjp", "vjp_jvp"])
def test_second_derivatives_that_are_not_symmetric_are_called_that(form, fast_mode):
    def skewed_pull(x, w, u):
        by_x, by_w = pull(x, w, u)
        return by_x + (SKEWED - MATRIX) @ u, by_w

    def skewed_push(x, w, v):
        return push(x, w, v) + (SKEWED - MATRIX) @ v[0]

    given = {"vjp_vjp": (pull, skewed_pull), "vjp_jvp": (push, skewed_push)}[form]
    options = {"vjp": gradient, "fast_mode": fast_mode}
    assert checked(cubes, X, **options, **{form: given[0]}).verdict == "PASS"
    report = checked(cubes, X, **options, **{form: given[1]})
    assert report.verdict == "FAIL"
    text = f"second order: {form} gives a second derivative that is not symmetric"
    assert report.reason.startswith(text)


def test_a_small_skewness_that_differences_do_not_see_is_found():
    """Beside 1e8, differences do not resolve 1; products of the Hessian do."""
    large = np.diag([1e8, 2e8, 3e8])

    def check(tiny):
        hessian = large + tiny
        return checked(
            lambda x: 0.5 * x @ large @ x,
            X,
            hvp=lambda x, v: hessian @ v,
            vjp=lambda x, w: w * (large @ x),
        )

    assert check(np.zeros((3, 3))).verdict == "PASS"
    assert "not symmetric" in check(300 * (SKEWED - MATRIX)).reason


@pytest.mark.parametrize("hessian", [MATRIX, SKEWED])
def test_products_with_the_hessian_tell_skewness(hessian):
    report = checked(lambda x: 0.5 * x @ MATRIX @ x, X, hvp=lambda x, v: hessian @ v)
    assert bool(report) == (hessian is MATRIX)
    assert ("not symmetric" in report.reason) == (hessian is SKEWED)


def test_a_sparse_hessian_that_is_not_symmetric_is_called_that():
    sparse = pytest.importorskip("scipy.sparse")

    def check(skew):
        hessian = np.diag(6 * X)
        hessian[0, 1] += skew
        return checked(lambda x: (x**3).sum(), X, hess=lambda x: sparse.csc_array(hessian))

    assert check(0.0).verdict == "PASS"
    reason = check(0.5).reason
    assert reason.endswith(
        "the Hessian is not symmetric: entries (0, 1) = 0.5 and (1, 0) = 0 differ by 0.5"
    )


SUMMANDS = {
    "exp": (np.exp, np.exp),
    "sin": (np.sin, lambda x: -np.sin(x)),
    "softplus": (lambda x: np.logaddexp(0, x), lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2),
    "huber": (lambda x: np.sqrt(1 + x * x), lambda x: (1 + x * x) ** -1.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMMANDS)
def test_the_zeros_of_a_diagonal_hessian_are_seen_by_f_alone(name):
    """Numerical gradients have noise that comes and goes, as a kink's or as none of f."""
    f, bend = SUMMANDS[name]
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=5)
        report = checked(lambda x: np.sum(f(x)), x, hess=lambda x: np.diag(bend(x)))
        assert report.verdict == "PASS", report
    wrong = np.diag(bend(x) * [1, 1, 1 + 1e-4, 1, 1])
    assert checked(lambda x: np.sum(f(x)), x, hess=lambda x: wrong).verdict == "FAIL"


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rosenbrock_hessian(x):
    bends = np.zeros(x.size)
    bends[:-1] = 1200 * x[:-1] ** 2 - 400 * x[1:] + 2
    bends[1:] += 200
    beside = np.diag(-400 * x[:-1], 1)
    return np.diag(bends) + beside + beside.T


@pytest.mark.slow
@pytest.mark.parametrize("form", ["hess", "hvp"])
def test_the_hessian_of_a_valley_near_0_is_seen_by_f_alone(form):
    for seed in range(2):
        x = 1e-3 * np.random.default_rng(seed).normal(size=5)

        def check(factor, x=x):
            hessian = rosenbrock_hessian(x)
            hessian[1, 2] *= factor
            hessian[2, 1] *= factor
            given = {"hess": lambda x: hessian, "hvp": lambda x, v: hessian @ v}
            return checked(rosenbrock, x, **{form: given[form]})

        assert check(1.0).verdict == "PASS", check(1.0)
        assert check(1.01).verdict == "FAIL"


@pytest.mark.parametrize(
    "x",
    [
        [0.230690848, -2552.43540, -0.0155224369],
        [-1.07702541e-04, 949.325866, -8.74861089e-03],
        [-1757.25268, 4.14776694e-04, -0.0151550735],
    ],
)
def test_what_rounding_hides_of_a_hessian_by_f_alone_blames_nobody(x):
    """The numerical gradient stands still there, or is noise: its differences were 0, without."""
    report = checked(rosenbrock, np.array(x), hess=rosenbrock_hessian)
    assert report.verdict != "FAIL", report


def test_the_hessian_of_f_alone_is_found_within_bounds():
    seen = []

    def f(x):
        seen.append(x.min())
        return np.sum(np.sqrt(x))

    def hess(x):
        return np.diag(-0.25 * x**-1.5)

    x = np.array([1e-3, 2.0, 3.0])
    assert checked(f, x, hess=hess, bounds=(0, np.inf)).verdict == "PASS"
    assert min(seen) >= 0


def test_hessians_of_f_alone_by_complex_numbers_are_refused():
    z = np.array([1 + 2j, 0.5])
    with pytest.raises(ValueError, match="input 0 is complex: use vjp= with vjp_vjp= or vjp_jvp="):
        checked(lambda z: np.sum(np.abs(z) ** 2), z, hess=lambda z: np.eye(2))


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
    assert checked(np.sin, X, **options, nondet_tol=1e-6).verdict == "PASS"


def test_complex_second_derivatives_are_symmetric_in_real_numbers():
    z = np.array([1 + 2j, 0.5 - 1j, 1j])

    def vjp(z, w):
        return w * np.conj(2 * z)

    def second(z, w, u):  # of Re(conj(u)*w*conj(2z)), by z and w
        return 2 * np.conj(u) * w, u * 2 * z

    assert checked(lambda z: z * z, z, vjp=vjp, vjp_vjp=second).verdict == "PASS"


def test_complex_second_derivatives_without_conjugates_are_not_tested_for_symmetry():
    z = np.array([1 + 2j, 0.5 - 1j, 1j])
    options = {"vjp": lambda z, w: w * 2 * z, "vjp_vjp": lambda z, w, u: (2 * u * w, 2 * u * z)}
    assert checked(lambda z: z * z, z, **options, convention="jax").verdict == "PASS"


def test_cotangents_of_complex_outputs_have_imaginary_parts():
    def second(z, w, u):
        return 2 * np.conj(u) * np.conj(w), u * 2 * z

    z = np.array([1 + 2j, 0.5 - 1j, 1j])
    report = checked(lambda z: z * z, z, vjp=lambda z, w: w * np.conj(2 * z), vjp_vjp=second)
    assert report.verdict == "FAIL"


def test_inputs_by_position_of_a_function_with_other_arguments():
    def vjp(k, x, y, w):
        return None, w * k * y, w * k * x

    def second(k, x, y, w, u):
        return None, w * k * u[1], w * k * u[0], k * (u[0] * y + u[1] * x)

    inputs = 3, X, X + 1
    report = checked(lambda k, x, y: k * x * y, inputs, vjp=vjp, vjp_vjp=second)
    assert report.verdict == "PASS"


def test_arguments_beside_a_hessian():
    report = calipers.gradgradcheck(
        lambda x, k: k * np.sum(x**3),
        X,
        args=(2.0,),
        hess=lambda x, k: np.diag(6 * k * x),
        vjp=lambda x, k, w: w * k * 3 * x**2,
    )
    assert report


def cube_sum(x, *, factor):
    return factor * (x**3).sum()


@pytest.mark.parametrize("form", ["hess", "hvp"])
def test_second_derivatives_of_a_number_get_the_keyword_arguments(form):
    given = {
        "hess": lambda x, *, factor: np.diag(6 * factor * x),
        "hvp": lambda x, v, *, factor: 6 * factor * x * v,
    }
    options = {form: given[form], "kwargs": {"factor": 2.0}}
    assert checked(cube_sum, X, **options).verdict == "PASS"


@pytest.mark.parametrize("w", ["a", [None], np.array([object()])])
def test_cotangents_that_are_no_numbers_are_refused(w):
    with pytest.raises(TypeError, match="grad_outputs must be arrays of numbers, got one of dtype"):
        calipers.gradgradcheck(np.sin, X, w, vjp=np.sin, vjp_vjp=np.sin, first_order=False)


def test_cotangents_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"grad_outputs have shapes \[\(2,\)\], but the outputs"):
        calipers.gradgradcheck(
            np.sin,
            X,
            np.ones(2),
            vjp=lambda x, w: w * np.cos(x),
            vjp_vjp=lambda x, w, u: (-u * w * np.sin(x), u * np.cos(x)),
        )


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
    assert checked(np.sin, X, **options).verdict == "FAIL"
    assert checked(np.sin, X, **options, **{option: False}).verdict == "PASS"


@pytest.mark.parametrize(
    ("option", "left_out"), [("check_fwd_over_rev", "vjp_jvp"), ("check_rev_over_rev", "vjp_vjp")]
)
def test_a_second_derivative_that_is_to_be_checked_has_to_be_given(option, left_out):
    given = {"vjp": np.sin, "vjp_jvp": np.sin, "vjp_vjp": np.sin, left_out: None, option: True}
    with pytest.raises(ValueError, match=f"{option}=True needs {left_out}="):
        checked(np.sin, X, **given)


@pytest.mark.parametrize("others", [{}, {"vjp_jvp": np.sin, "check_fwd_over_rev": False}])
def test_second_derivatives_none_of_which_is_checked(others):
    given = {"vjp": np.sin, "vjp_vjp": np.sin, "check_rev_over_rev": False, **others}
    with pytest.raises(ValueError, match="nothing is left to check of the second derivative"):
        checked(np.sin, X, **given)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("vjp_vjp", np.sin),
        ("vjp_jvp", np.sin),
        ("grad_outputs", np.ones(())),
        ("gen_non_contig_grad_outputs", True),
        ("check_undefined_grad", True),
        ("check_batched_grad", True),
    ],
)
def test_what_is_said_of_the_gradient_is_refused_beside_a_hessian(option, value):
    with pytest.raises(ValueError, match=rf"{option}= does not apply to hess= and hvp="):
        checked(cube_sum, X, hess=lambda x: np.diag(6 * x), **{option: value})


@pytest.mark.parametrize(
    ("given", "how"),
    [
        ({"vjp_jvp": np.sin, "check_batched_grad": True}, "tests vjp_vjp, .* pass vjp_vjp="),
        (
            {"vjp_vjp": np.sin, "check_batched_forward_grad": True},
            "tests vjp_jvp, .* pass vjp_jvp=",
        ),
        (
            {
                "vjp_vjp": np.sin,
                "vjp_jvp": np.sin,
                "check_rev_over_rev": False,
                "check_undefined_grad": True,
            },
            "tests vjp_vjp, .* set check_rev_over_rev=True",
        ),
    ],
)
def test_tests_of_a_second_derivative_that_is_not_checked_are_refused(given, how):
    with pytest.raises(ValueError, match=how):
        checked(np.sin, X, vjp=np.sin, **given)


def test_forward_mode_of_the_gradient_is_tested_in_batches():
    def push(x, w, v):
        return v[1] * np.cos(x) - v[0] * w * np.sin(x)

    def of_one(x, w, v):
        return push(x, w, v) if np.ndim(v[0]) == 1 else 2 * push(x, w, v)

    options = {"vjp": lambda x, w: w * np.cos(x), "check_batched_forward_grad": True}
    assert checked(np.sin, X, vjp_jvp=push, **options).verdict == "PASS"
    assert checked(np.sin, X, vjp_jvp=of_one, **options).verdict == "FAIL"
    options["vjp"] = lambda x, w: w * 3 * x**2
    hvp = {"hvp": lambda x, v: 6 * x * v, **options}
    assert checked(lambda x: np.sum(x**3), X, **hvp).verdict == "PASS"


@pytest.mark.parametrize("name", ["check_forward_ad", "check_backward_ad"])
def test_forms_of_the_first_derivative_are_refused_with_the_name_of_the_seconds(name):
    with pytest.raises(ValueError, match=rf"takes no {name}=: check_\w+_over_rev="):
        checked(np.sin, X, vjp=np.sin, vjp_vjp=np.sin, **{name: True})


def test_a_keyword_that_there_is_not_is_that_of_the_function_that_was_called():
    with pytest.raises(TypeError, match=r"gradgradcheck\(\) got an unexpected .* 'tolerance'"):
        checked(np.sin, X, vjp=np.sin, vjp_vjp=np.sin, tolerance=1)


def test_a_second_derivative_beside_a_library_s_own_is_refused_without_the_first():
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    with pytest.raises(ValueError, match="vjp_vjp= is a derivative of vjp=: pass vjp=, too"):
        checked(torch.sin, x, vjp_vjp=np.sin)


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


@pytest.mark.parametrize("wrong", [False, True])
def test_torch_outputs_that_are_declared_not_to_be_differentiable(wrong):
    torch = pytest.importorskip("torch")

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            return 2 * w * x.detach()  # whose own derivative is lost

    x = torch.tensor(X, requires_grad=True)
    first = Square.apply(x).detach()
    assert torch.equal(first, x.detach() ** 2)

    def f(x):
        return Square.apply(x), torch.sin(x)

    left_out = () if wrong else (0,)
    report = checked(f, (x,), nondifferentiable_outputs=left_out)
    assert bool(report) != wrong


def test_torch_inputs_that_f_does_not_use():
    torch = pytest.importorskip("torch")
    a, b = (torch.tensor(X, requires_grad=True) for _ in range(2))
    assert calipers.gradgradcheck(lambda a, b: a**3, (a, b))


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_inputs_of_a_library_that_are_chosen(library):
    module = pytest.importorskip(library)
    if library == "torch":
        inputs = tuple(module.tensor(X, requires_grad=True) for _ in range(2))
    else:
        inputs = tuple(module.numpy.asarray(X) for _ in range(2))
    report = checked(lambda x, y: x * x * y, inputs, argnums=1)
    assert report.verdict == "PASS"
    assert report.shape == (3, 6)  # by y and the cotangent
    assert checked(lambda x, y: x * x * y, inputs).shape == (6, 9)


def test_a_report_of_second_order_says_what_it_is_of():
    def wrong(x, w, u):
        return pull(x, w, u)[0], 2 * pull(x, w, u)[1]

    report = checked(cubes, X, vjp=gradient, vjp_vjp=wrong)
    assert report.order == 2
    assert report.worst.name.startswith("d grad[0][")
    assert " / d w[0][" in report.worst.name
    assert "again: calipers.gradgradcheck(cubes, x, vjp=gradient, vjp_vjp=wrong)" in str(report)
    of_x_alone = checked(lambda x: (x**3).sum(), X, hess=lambda x: np.diag(6 * x))
    assert (of_x_alone.order, of_x_alone.verdict) == (2, "PASS")
    assert of_x_alone.inputs == (("in[0]", len(X)),)
    assert checked(cubes, X, vjp=lambda x, w: 2 * gradient(x, w), vjp_vjp=pull).order == 1


def test_nan_for_a_cotangent_that_is_not_contiguous_is_found():
    """Even where NaN are equal, and so all entries are right."""

    def torn(w, y):
        return y if w.flags.c_contiguous else np.full_like(y, np.nan)

    report = calipers.gradgradcheck(
        np.sin,
        np.array([0.3, 0.5, 0.7]),
        vjp=lambda x, w: torn(w, w * np.cos(x)),
        vjp_vjp=lambda x, w, u: (torn(w, -u * w * np.sin(x)), torn(w, u * np.cos(x))),
        gen_non_contig_grad_outputs=True,
        first_order=False,
        equal_nan=True,
        raise_exception=False,
    )
    assert report.verdict == "FAIL"
    assert "not contiguous" in report.reason


def softmax(x):
    y = np.exp(x - x.max())
    return y / y.sum()


def softmax_vjp(x, w):
    y = softmax(x)
    return y * (w - w @ y)


def softmax_vjp_vjp(x, w, u, factor=1.0):
    y = softmax(x)
    at_y = u * (w - w @ y) - w * (u @ y)
    return factor * y * (at_y - at_y @ y), y * u - y * (u @ y)


@pytest.mark.parametrize("spread", [1, 10, 30, 100, 1000])
def test_what_is_left_of_a_saturated_softmax_is_rounding(spread):
    """Its gradient is 0 or 1e-12 there, and not because its terms are small."""
    for seed in range(8):
        x = spread * np.random.default_rng(seed).normal(size=3)
        report = checked(softmax, x, vjp=softmax_vjp, vjp_vjp=softmax_vjp_vjp)
        assert report.verdict == "PASS", report


@pytest.mark.parametrize("x", [20.0, 25.1408, 27.118, 30.0, 36.0, -30.0])
def test_the_steps_of_a_saturated_sigmoid_are_no_kink(x):
    """Its gradient is a multiple of 2**-53, as 1 - y is."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def vjp(x, w):
        return w * sigmoid(x) * (1 - sigmoid(x))

    def check(factor):
        def pull(x, w, u):
            y = sigmoid(x)
            return factor * u * w * y * (1 - y) * (1 - 2 * y), u * y * (1 - y)

        return checked(sigmoid, np.array([x, 0.5]), vjp=vjp, vjp_vjp=pull, first_order=False)

    assert check(1.0).verdict == "PASS", check(1.0)
    assert check(np.array([1.0, 1.0001])).verdict == "FAIL"


@pytest.mark.parametrize("offset", [0.0, 1e12])
def test_terms_that_are_added_hide_no_wrong_second_derivative(offset):
    def check(factor, f=softmax):
        def pull(x, w, u):
            return softmax_vjp_vjp(x, w, u, factor)

        return checked(lambda x: offset + f(x), x, vjp=softmax_vjp, vjp_vjp=pull, first_order=False)

    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=3)
        assert check(1.0).verdict == "PASS"
        assert check(1.0001).verdict == "FAIL"


def test_hess_and_hvp_are_called_that():
    def told(**given):
        report = checked(lambda x: np.sum(x**3), X, **given)
        return " ".join([report.reason, *report.findings, *report.blocks])

    for text in (
        told(hvp=lambda x, v: 6 * x * v + 1),
        told(hvp=lambda x, v: (SKEWED - MATRIX) @ v + 6 * x * v),
        told(hvp=lambda x, v: v[:1]),
        told(hvp=lambda x, v: 7 * x * v),
    ):
        assert "hvp" in text
        assert "jvp" not in text
    assert "hess, d grad[0] / d in[0]: the whole block" in told(hess=lambda x: np.diag(7 * x))


def logsumexp(x):
    most = x.real.max()
    return np.log(np.sum(np.exp(x - most))) + most


def logsumexp_vjp(x, w):
    return w * np.conj(np.exp(x - logsumexp(x)))


def logsumexp_vjp_vjp(x, w, u, factor=1.0):
    p = np.exp(x - logsumexp(x))
    terms = u * np.conj(w) * p
    return factor * np.conj(terms - p * np.sum(terms)), np.sum(u * p)


@pytest.mark.parametrize(
    "x",
    [
        [1231.8 + 1078.7j],
        [1231834.2 + 1078753.9j],
        [1290.0 + 1070.9j, 1530.0 - 1350.0j, 1970.0 + 1160.0j],
        [1290e3 + 1070e3j, 1530e3 - 1350e3j, 1970e3 + 1160e3j],
        [1286.48745455, 1331.3602873, 1380.77353818, 1351.56398651, 1070.93209924],
    ],
)
def test_what_is_left_of_a_saturated_logsumexp_is_rounding(x):
    """Its derivatives are of ``exp(x - f(x))``, which is rounded as x is, and not as itself."""
    for seed in range(8):
        report = checked(
            logsumexp, np.array(x), vjp=logsumexp_vjp, vjp_vjp=logsumexp_vjp_vjp, seed=seed
        )
        # The imaginary part of f is an angle, which jumps 160 000 times between x and 0: slopes by
        # longer steps are 0.
        angles = {"INCONCLUSIVE"} if np.abs(np.imag(x)).max() > 1e6 else set()
        assert report.verdict in {"PASS"} | angles, report


def test_what_is_left_of_it_is_asked_for_within_bounds():
    x = np.array([1286.48745455, 1331.3602873, 1380.77353818, 1351.56398651, 1070.93209924])
    low, high, asked = 0.99 * x, x + 1, []

    def pull(x, w, u):
        asked.append(x.copy())
        return logsumexp_vjp_vjp(x, w, u)

    for seed in range(8):
        options = {"vjp": logsumexp_vjp, "vjp_vjp": pull, "bounds": (low, high), "seed": seed}
        assert checked(logsumexp, x, **options).verdict == "PASS"
    assert np.all((low <= asked) & (asked <= high))


def test_what_is_not_symmetric_is_asked_for_within_bounds():
    x, asked = np.array([2.0, 3.0]), []
    skew = 5e-7 * np.array([[0.0, 1.0], [-1.0, 0.0]])

    def hvp(x, v):
        asked.append(x.copy())
        return (np.array([[2 * x[1], 2 * x[0]], [2 * x[0], 0.0]]) + skew) @ v

    report = checked(lambda x: x[0] ** 2 * x[1], x, hvp=hvp, bounds=(0.99 * x, x + 1))
    assert "symmetric" in report.reason
    assert np.all(asked >= 0.99 * x)


@pytest.mark.parametrize("turned", [1.0, 1 + 0.7j])
@pytest.mark.parametrize("size", [1.0, 1e3])
def test_rounding_of_large_numbers_hides_no_wrong_second_derivative(size, turned):
    def pull(x, w, u):
        return logsumexp_vjp_vjp(x, w, u, 1.0001)

    for seed in range(4):
        x = size * turned + np.random.default_rng(seed).normal(size=3)
        assert checked(logsumexp, x, vjp=logsumexp_vjp, vjp_vjp=pull).verdict == "FAIL"


def attention(q, k):
    e = np.exp(q @ k.T - np.max(q @ k.T, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_left_of_a_saturated_attention_is_rounding(seed):
    """Its gradient is a sum of terms that are far larger than a row of it."""
    assert check_attention(seed, 1.0).verdict == "PASS", check_attention(seed, 1.0)


@pytest.mark.parametrize("seed", range(12))
def test_wrong_second_derivatives_of_a_saturated_attention_fail(seed):
    report = check_attention(seed, 1.0001)
    if seed == 5:  # all rows are saturated: of the entries by q, rounding of the gradient is more
        assert report.hidden >= 512
    else:
        assert report.verdict == "FAIL"


def check_attention(seed, factor):
    """Check it with a second derivative by the scores that is some times as large as it should."""
    q, k, v = np.random.default_rng(seed).uniform(-5.4, 5.4, (3, 4, 8))

    def mean(p, x):
        return (p * x).sum(axis=-1, keepdims=True)

    def vjp(q, w):
        p, dp = attention(q, k), w @ v.T
        return p * (dp - mean(p, dp)) @ k

    def pull(q, w, u):
        p, dp, a = attention(q, k), w @ v.T, u @ k.T
        by_s = p * (dp - mean(p, dp)) * (a - mean(p, a))
        by_s -= p * by_s.sum(axis=-1, keepdims=True)
        return factor * by_s @ k, p * (a - mean(p, a)) @ v

    return checked(lambda q: attention(q, k) @ v, q, vjp=vjp, vjp_vjp=pull)
