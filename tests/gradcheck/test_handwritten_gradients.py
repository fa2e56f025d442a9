"""Derivatives as users of NumPy, torch and jax write them: layers, losses and physics."""

import copy

import numpy as np
import pytest

import calipers
from tests.data.gradcheck_models import MISTAKES, MODELS

# What is said of a mistake, beside where it is.
TOLD = {
    ("layer_norm", "mean_in_place_of_sum"): "a mean over an axis of length 4",
    ("layer_norm", "other_axis"): "mixes elements along axis 0",
    ("conv2d", "bias_by_mean"): "a mean over an axis of length 20",
    ("attention", "transposed"): "it is the transpose of the right one",
    ("cross_entropy", "sum_in_place_of_mean"): "4 times what it should be",
    ("equaliser", "conjugate"): "the conjugate of the right one",
    ("equaliser", "half"): "half of what it should be",
    ("equaliser", "magnitude_alone"): "not linear in its cotangent",
    ("solve", "sign"): "of the opposite sign",
    ("solve", "no_gradient_of_b"): "the whole block is zero",
    ("embedding", "repeats_assigned"): "assigned, and not added, at repeated indices",
    ("weight_norm", "scale_of_all"): "a factor that depends on the element of in[0]",
    ("lennard_jones", "no_box"): ": analytic 0, numerical",
    ("dice_loss", "mean_of_batches"): "a mean over an axis of length 3",
    ("spectrum", "not_scaled"): "8 times what it should be",
    ("a_large_field", "one_of_many"): " / d in[0][57, 31] is wrong",
    ("softplus_and_sinc", "only_large"): "d out[0][7] / d in[0][7] is wrong",
    ("sinkhorn", "plan_transposed"): "the last two axes of in[0] are swapped",
}


def checked(f, inputs, **options):
    return calipers.gradcheck(f, inputs, raise_exception=False, **options)


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_right_models(name, fast_mode):
    f, inputs, vjp = MODELS[name](None)
    before = copy.deepcopy(inputs)
    report = checked(f, inputs, vjp=vjp, fast_mode=fast_mode)
    assert report.verdict == "PASS", str(report)
    assert report.hidden == 0
    np.testing.assert_equal(inputs, before)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mistake", "inputs"), MISTAKES)
def test_mistakes_in_models(name, mistake, inputs):
    f, given, vjp = MODELS[name](mistake)
    report = checked(f, given, vjp=vjp)
    assert report.verdict == "FAIL"
    assert {e.input for e in report.failures if e.verdict == "FAIL"} == inputs
    assert TOLD.get((name, mistake), " is wrong: ") in report.reason
    assert len(report.reason) < 330
    fast = checked(f, given, vjp=vjp, fast_mode=True)
    assert fast.verdict == "FAIL"
    assert {e.input for e in fast.failures} <= inputs


def test_what_is_said_of_a_diagonal_is_true_of_what_is_beside_it():
    f, inputs, vjp = MODELS["layer_norm"]("no_eps")  # a factor for each row of x, near 1
    report = checked(f, inputs, vjp=vjp)
    off = [e for e in report.failures if e.output_index[1] != e.input_index[1]]
    assert off
    assert "diagonal" not in str(report)


def test_the_sentence_names_the_form_that_is_wrong():
    def two(form):
        slopes = {"vjp": np.cos, "jvp": np.cos}
        slopes[form] = lambda x: -np.cos(x)
        forms = {name: lambda x, v, slope=slope: slope(x) * v for name, slope in slopes.items()}
        return checked(np.sin, np.array([0.3, 1.2]), **forms)

    for form in ("vjp", "jvp"):
        report = two(form)
        assert f"is wrong in {form}: " in report.reason
        assert "not derivatives of one function" in str(report)
    both = checked(np.sin, np.array([0.3]), vjp=lambda x, w: w, jvp=lambda x, v: v)
    assert "is wrong in vjp and jvp: " in both.reason


@pytest.mark.parametrize(
    "name",
    ["fast_mode", "equal_nan", "raise_exception", "check_grad_dtypes", "check_batched_grad"],
)
@pytest.mark.parametrize("value", ["yes", "False", 1, None, np.ones(2)])
def test_flags_are_true_or_false(name, value):
    with pytest.raises(TypeError, match=f"{name} must be True or False, got"):
        calipers.gradcheck(np.sin, np.ones(2), vjp=lambda x, w: w * np.cos(x), **{name: value})


@pytest.mark.parametrize("name", ["check_forward_ad", "check_undefined_grad", "masked"])
def test_flags_that_have_no_value_by_default(name):
    def check(value):
        forms = {"vjp": lambda x, w: 0 * x if w is None else w * np.cos(x)}
        forms["jvp"] = lambda x, v: 0 * x if v is None else v * np.cos(x)
        return calipers.gradcheck(np.sin, np.ones(2), **forms, **{name: value})

    assert check(None)
    assert check(np.True_)
    with pytest.raises(TypeError, match=f"{name} must be True or False, got str: 'no'"):
        check("no")


@pytest.mark.parametrize("name", ["first_order", "check_rev_over_rev", "fast_mode"])
def test_flags_of_second_derivatives(name):
    forms = {"vjp": lambda x, w: w * np.cos(x)}
    forms["vjp_vjp"] = lambda x, w, u: (-u * w * np.sin(x), u * np.cos(x))
    assert calipers.gradgradcheck(np.sin, np.ones(2), **forms, **{name: True})
    with pytest.raises(TypeError, match=f"{name} must be True or False, got int: 1"):
        calipers.gradgradcheck(np.sin, np.ones(2), **forms, **{name: 1})


def test_fast_mode_tells_of_hidden_entries():
    """Of a large offset in float32, random products need a look at all entries, and these hide."""
    x = np.linspace(0.1, 1, 4, dtype=np.float32)

    def check(fast_mode):
        def vjp(x, w):
            return 3 * w * np.cos(x)

        return checked(lambda x: np.float32(1e6) + np.sin(x), x, vjp=vjp, fast_mode=fast_mode)

    for fast_mode in (False, True):
        report = check(fast_mode)
        assert report.verdict == "FAIL"  # at steps of 0.5, f changes by 15 of its spacings
        assert report.hidden >= 2
        assert f", {report.hidden} of them too small to be checked" in str(report)


def test_an_entry_that_passes_by_itself_is_not_hidden():
    """The second look at a column finds one entry right, and another hidden by rounding."""

    def f(x):
        return np.stack([1e9 + 1e-3 * np.sin(x[0]), np.exp(40 * x[0])])

    def jac(x):
        return np.stack([1e-3 * np.cos(x), 40 * np.exp(40 * x)])

    x = np.array([0.3])
    report = checked(f, x, jac=jac)
    assert report.verdict == "PASS"
    assert report.hidden == 1
    assert checked(lambda x: f(x)[1:], x, jac=lambda x: jac(x)[1:]).hidden == 0


@pytest.mark.parametrize("fast_mode", [False, True])
def test_a_function_that_rounds_otherwise_from_call_to_call(fast_mode):
    """As LAPACK's routines may, by what memory held before."""
    random = np.random.default_rng(0)

    def f(x):
        return np.sin(x) * (1 + 2e-16 * random.integers(-1, 2, x.shape))

    x = np.linspace(0.5, 2, 5)
    report = checked(f, x, vjp=lambda x, w: w * np.cos(x), fast_mode=fast_mode)
    assert report.verdict == "PASS"
    report = checked(f, x, vjp=lambda x, w: 1.001 * w * np.cos(x), fast_mode=fast_mode)
    assert report.verdict == "FAIL"
    assert "deterministic" not in report.reason


def test_noise_that_is_more_than_rounding_is_still_told():
    random = np.random.default_rng(0)

    def f(x):
        return np.sin(x) * (1 + 1e-12 * random.integers(1, 4, x.shape))

    x = np.linspace(0.5, 2, 5)
    report = checked(f, x, vjp=lambda x, w: w * np.cos(x))
    assert "f is not deterministic" in report.reason


def test_a_direction_that_leads_out_of_where_f_is_defined():
    def f(x):
        if np.any((x < 0) | (x > 1)):
            message = "x must be between 0 and 1"
            raise RuntimeError(message)
        return np.sqrt(x.sum())

    def check(factor, **options):
        def vjp(x, w):
            return np.full(x.shape, factor * w / (2 * np.sqrt(x.sum())))

        return checked(f, x, vjp=vjp, fast_mode=True, **options)

    x = np.append(np.linspace(0.1, 0.9, 6), [1e-3, 0.999])
    assert check(1).verdict == "PASS"
    assert check(1.001, bounds=(0, 1)).verdict == "FAIL"


def test_what_f_raises_beside_x_is_raised_in_fast_mode():
    x = np.array([0.3, 0.6])

    def f(y):
        if not np.array_equal(x, y):
            message = "not here"
            raise RuntimeError(message)
        return np.sin(y)

    with pytest.raises(RuntimeError, match="not here"):
        checked(f, x, vjp=lambda x, w: w * np.cos(x), fast_mode=True)


@pytest.mark.parametrize("options", [{"step": 1e-6}, {"eps": 1e-6}])
def test_where_f_stands_still_within_the_steps_that_are_given_it_is_told(options):
    def rounded(x):
        return np.sin(x.astype(np.float16).astype(float))

    def slope(x, w):
        return w * np.cos(x)

    x = np.linspace(0.3, 2, 5)
    assert checked(rounded, x, vjp=slope).verdict == "INCONCLUSIVE"
    assert "f does not change within the steps" in checked(rounded, x, vjp=slope, **options).reason
    wrong = checked(np.sin, x, vjp=lambda x, w: 2 * slope(x, w), **options)
    assert "does not change" not in wrong.reason
