"""Reports of gradcheck: names of entries, the call that repeats the check, and what to do next."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import calipers
from calipers import GradcheckError, gradcheck, gradgradcheck
from calipers._gradcheck.calls import Call

X = np.linspace(0.3, 1.2, 6).reshape(2, 3)
W = np.linspace(-1, 1, 6).reshape(3, 2)


def backward(x, w):
    return w * np.cos(x)


def product(x, w):
    return x @ w


def product_vjp(x, w, u):
    return 2 * u @ w.T, x.T @ u


def checked(check, *args, **options):
    return check(*args, raise_exception=False, **options)


def line(report, label):
    (text,) = [t for t in str(report).splitlines() if t.startswith(f"{label}: ")] or [""]
    return text.removeprefix(f"{label}: ")


def report_of(code, names):
    """Return the report that code returns or raises; `.failures` of it are left out."""
    try:
        return eval(code.partition(").failures")[0] + ")" * (").failures" in code), names)
    except GradcheckError as error:
        if str(error) != str(error.report):
            raise
        return error.report


# name: the check, f, inputs, options, and the code expected for the call
CALLS = {
    "vjp": (gradcheck, np.sin, X, {"vjp": backward}, "(np.sin, x, vjp=backward)"),
    "a tuple of one": (gradcheck, np.sin, (X,), {"vjp": backward}, "(np.sin, (x,), vjp=backward)"),
    "a lambda": (
        gradcheck,
        lambda x: x**2,
        X,
        {"vjp": lambda x, w: 3 * w * x},
        "(f, x, vjp=vjp)",
    ),
    "jac": (
        gradcheck,
        lambda x: x**2,
        X[0],
        {"jac": lambda x: np.diag(2 * x), "rtol": 1e-5},
        "(f, x, jac=jac, rtol=1e-05)",
    ),
    "jvp": (
        gradcheck,
        lambda x: x**2,
        X,
        {"jvp": lambda x, v: 2 * x * v, "check_forward_ad": True, "seed": 5},
        "(f, x, jvp=jvp, check_forward_ad=True, seed=5)",
    ),
    "two inputs": (
        gradcheck,
        product,
        (X, W),
        {"vjp": product_vjp, "fast_mode": True},
        "(product, (x, w), vjp=product_vjp, fast_mode=True)",
    ),
    "args": (
        gradcheck,
        product,
        X,
        {"args": (W,), "jac": lambda x, w: np.zeros((2, 2, 2, 3)), "argnums": 0},
        "(product, x, jac=jac, args=args, argnums=0)",
    ),
    "eps": (
        gradcheck,
        np.sin,
        X,
        {"vjp": backward, "eps": 1e-6, "atol": 0.0, "bounds": (0, 2)},
        "(np.sin, x, vjp=backward, eps=1e-06, atol=0.0, bounds=(0, 2))",
    ),
    "a container": (
        gradcheck,
        lambda p: p["a"] * p["b"],
        {"a": X, "b": X + 1},
        {"vjp": lambda p, w: {"a": w * p["b"], "b": w * p["b"]}},
        "(f, p, vjp=vjp)",
    ),
    "options": (
        gradcheck,
        lambda x, a: a * x,
        X,
        {"seed": 3, "args": (2.0,), "vjp": lambda x, a, w: w, "rtol": 1e-3, "equal_nan": True},
        "(f, x, vjp=vjp, rtol=0.001, args=(2.0,), equal_nan=True, seed=3)",
    ),
    "nonsmooth": (
        gradcheck,
        np.abs,
        np.array([0.0, 1.0]),
        {"vjp": lambda x, w: w * np.sign(x)},
        "(np.absolute, x, vjp=vjp)",
    ),
    "noise": (
        gradcheck,
        lambda x: np.sin(x) + 1e-4 * np.sin(1e12 * x),
        X,
        {"vjp": backward},
        "(f, x, vjp=backward)",
    ),
    "vjp_vjp": (
        gradgradcheck,
        np.sin,
        X,
        {"vjp": backward, "vjp_vjp": lambda x, w, u: (-u * w * np.sin(x), u * np.sin(x))},
        "(np.sin, x, vjp=backward, vjp_vjp=vjp_vjp)",
    ),
    "hess": (
        gradgradcheck,
        lambda x: np.sum(x**3),
        X[0],
        {"hess": lambda x: np.diag(6 * x), "rtol": 1e-4},
        "(f, x, hess=hess, rtol=0.0001)",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_call_that_repeats_a_check(name):
    check, f, inputs, options, code = CALLS[name]
    report = checked(check, f, inputs, **options)
    assert report.again == f"calipers.{check.__name__}{code}"
    assert line(report, "again") == report.again
    several = inputs if isinstance(inputs, tuple) else (inputs,)
    given = dict(zip(("x", "w"), several, strict=False)) | {"p": inputs}
    functions = {"product": product, "product_vjp": product_vjp, "backward": backward}
    names = {"calipers": calipers, "np": np, "f": f, **given, **options, **functions}
    again = report_of(report.again, names)
    assert str(again) == str(report)
    if report.next.startswith(f"calipers.{check.__name__}"):
        other = report_of(report.next, names)
        assert bool(other) == (report.verdict == "NONSMOOTH")
    if report.verdict == "NONSMOOTH":
        assert 'allow={"NONSMOOTH"}' in report.reason
    assert bool(line(report, "next")) != (report.verdict == "PASS")


def test_the_call_of_torch_and_jax_functions():
    torch = pytest.importorskip("torch")

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 3 * g

    x = torch.tensor(X, requires_grad=True)
    report = checked(gradcheck, Double.apply, (x,), nondet_tol=1e-9)
    assert report.again == "calipers.gradcheck(Double.apply, (x,), nondet_tol=1e-09)"
    with pytest.raises(GradcheckError) as caught:
        eval(report.again, {"calipers": calipers, "Double": Double, "x": x})
    assert str(caught.value) == str(report)
    single = x.detach().float().requires_grad_()
    noisy = checked(gradcheck, lambda x: torch.sin(x) + 1e-3 * torch.sin(1e6 * x).detach(), single)
    assert noisy.next == "calipers.gradcheck(f, x.detach().double().requires_grad_())"
    assert "in torch" not in checked(gradcheck, torch.sin, x).again
    assert checked(gradcheck, torch.sin, x).again == "calipers.gradcheck(torch.sin, x)"


def test_the_call_of_a_jax_function():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        x = jax.numpy.asarray(X)
        assert gradcheck(jax.numpy.sin, (x,)).again == "calipers.gradcheck(jnp.sin, (x,))"


def test_names_that_are_no_code_are_those_of_the_arguments():
    class Layer:
        def forward(self, x):
            return 2 * x

        def backward(self, x, w):
            return 2 * w

    layer = Layer()
    assert gradcheck(layer.forward, X, vjp=layer.backward).again.endswith("(f, x, vjp=vjp)")

    def both(x, w=1):
        return 2 * w * np.ones_like(x)

    # One name for two functions, and one for an input.
    wrapped = gradcheck(lambda x: 2 * x, X, vjp=both, allow={"NONSMOOTH"}, step=np.float64(1e-5))
    assert wrapped.again.endswith('(f, x, vjp=both, step=1e-05, allow={"NONSMOOTH"})')
    many = gradcheck(
        lambda a, b, c, d: a + b + c + d, (1.0, 2.0, 3.0, 4.0), jac=lambda *_: [1.0] * 4
    )
    assert many.again == "calipers.gradcheck(f, inputs, jac=jac)"
    assert (
        gradcheck(lambda x: x, 2.5, jac=lambda x: 1.0).again
        == "calipers.gradcheck(f, 2.5, jac=jac)"
    )
    assert gradcheck(lambda a, b: a * b, (2.5, X), jac=lambda a, b: (b, a * np.eye(6))).again == (
        "calipers.gradcheck(f, (2.5, b), jac=jac)"
    )


def times(weights, rate, /, scale=1.0):
    return scale * weights * rate


@pytest.mark.parametrize(
    ("f", "count", "names"),
    [
        (times, 2, "(weights, rate)"),
        (times, 1, "(weights,)"),
        (lambda rate, *others: sum(others, rate), 2, "(x, w)"),
        (lambda *arrays: sum(arrays), 3, "(x, w, b)"),
        (lambda *, scale: scale, 1, "(x,)"),
        (lambda np, vjp: np + vjp, 2, "(x, w)"),  # other objects have these names in the call
        (lambda vjp_of_f, f: vjp_of_f + f, 2, "(x, w)"),
    ],
)
def test_inputs_have_the_names_of_the_parameters(f, count, names):
    arguments = {"f": f, "inputs": (X,) * count, "vjp": backward}
    call = Call.of(gradcheck, arguments)
    assert call.each_input() == names


def test_a_function_with_the_name_of_an_input_is_called_by_its_argument():
    def rate(rate):
        return 2 * rate

    again = gradcheck(rate, X, vjp=lambda x, w: 2 * w).again
    assert again == "calipers.gradcheck(f, rate, vjp=vjp)"


def test_options_without_an_effect_on_the_verdict_are_not_shown():
    report = gradcheck(np.sin, X, vjp=backward, workers=1, raise_exception=True, seed=0, allow=[])
    assert report.again == "calipers.gradcheck(np.sin, x, vjp=backward)"


def test_entries_are_named_as_numpy_indexes_them():
    report = checked(gradcheck, product, (X, W), vjp=product_vjp)
    assert report.worst.name.startswith("d out[0][")
    for entry in report.failures:
        row, column = map(list, (entry.output_index, entry.input_index))
        assert entry.name == f"d out[0]{row} / d in[0]{column}"
    assert report.outputs == (("out[0]", 4),)
    assert report.inputs == (("in[0]", 6), ("in[1]", 6))
    z = np.array([1 + 2j])
    of_complex = checked(gradcheck, np.square, z, vjp=lambda z, w: 2 * z * w)
    names = {e.name for e in of_complex.failures}
    assert names == {
        "d out[0][0].real / d in[0][0].imag",
        "d out[0][0].imag / d in[0][0].real",
    }
    held = checked(
        gradcheck,
        lambda p: {"y": p["a"] * p["b"]},
        {"a": X, "b": X + 1},
        vjp=lambda p, w: {"a": w["y"] * p["b"], "b": w["y"] * p["b"]},
    )
    assert held.worst.name in {
        f"d out['y'][{i}, {j}] / d in['b'][{i}, {j}]" for i, j in np.ndindex(2, 3)
    }
    number = checked(gradcheck, np.sum, X, jac=lambda x: 2 * np.ones_like(x))
    assert number.worst.name.startswith("d out[0] / d in[0][")


def test_the_form_of_a_report():
    report = checked(gradcheck, product, (X, W), vjp=product_vjp, rtol=1e-5, seed=3)
    lines = str(report).splitlines()
    assert max(map(len, lines[:-2])) <= 88
    assert len(lines) <= 25
    labels = [text[2:14].split()[0] for text in lines if text[:2] == "  " and text[2] != " "]
    assert labels == ["checked", "tolerance", "entries", "step", "others", "calls"]
    assert lines[3] == "  tolerance   |analytic - numerical| <= 1e-05*|numerical| + error"
    assert lines[4] == "  entries     48: 12 FAIL, 36 PASS"
    # The worst entry is named in the first line alone.
    assert str(report).count(report.worst.name + " ") == 1
    assert lines[-2:] == [f"again: {report.again}", f"next: {report.next}"]
    with_atol = checked(gradcheck, np.sin, X, vjp=backward, atol=1e-3, rtol=0)
    assert "<= 0.001 + error" in str(with_atol)


def test_what_allow_accepts_is_called_that_and_needs_no_next_step():
    options = {"vjp": lambda x, w: w * np.sign(x), "allow": {"NONSMOOTH"}}
    report = gradcheck(np.abs, np.array([0.0, 1.0]), **options)
    assert report.verdict == "NONSMOOTH"
    assert report.reason.endswith("; accepted by allow=")
    assert "move x" not in report.reason
    assert not report.next
    assert not line(report, "next")
    noise = {"vjp": backward, "allow": {"INCONCLUSIVE"}}
    report = gradcheck(lambda x: np.sin(x) + 1e-4 * np.sin(1e12 * x), X, **noise)
    assert report.reason.endswith("; accepted by allow=")
    assert not report.next


def test_long_lines_are_wrapped_between_words():
    long = "vjp, d out[0] / d in[0]: " + "a mean or sum term is probably missing " * 4
    report = checked(gradcheck, np.sin, X, vjp=lambda x, w: 2 * w)
    text = str(replace(report, blocks=(long,)))
    assert max(map(len, text.splitlines())) <= 88
    assert " ".join(long.split()) in " ".join(text.split())


def test_the_shape_of_what_was_checked():
    assert "  checked     vjp: 6 outputs x 6 inputs, every entry\n" in str(
        gradcheck(np.sin, X, vjp=backward)
    )
    number = gradcheck(np.sum, X, jac=np.ones_like)
    assert "  checked     jac: 1 output x 6 inputs, every entry\n" in str(number)
    assert number.library == ""


def test_the_backward_of_torch_is_called_that():
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    report = gradcheck(torch.sin, (x,))
    assert report.library == "torch"
    assert "  checked     vjp (backward): 6 outputs x 6 inputs, every entry\n" in str(report)


def test_errors_of_calls_say_how_inputs_and_options_are_passed():
    for check in (gradcheck, gradgradcheck):
        with pytest.raises(TypeError, match="positional arguments") as caught:
            check(product, X, W, W, W, vjp=product_vjp)
        name = check.__name__
        assert caught.value.__notes__ == [
            f"pass the inputs as one tuple: {name}(f, (x, w, b), ...)"
        ]
        with pytest.raises(TypeError, match=r"'raise_exceptions': did you mean raise_exception=\?"):
            check(np.sin, X, vjp=backward, raise_exceptions=False)
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'xyz'$"):
            check(np.sin, X, xyz=1)
        with pytest.raises(TypeError, match=r"'input': did you mean inputs=\?"):
            check(np.sin, input=X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'xyz'"):
        gradcheck("no function", X, xyz=1)

    def fails(x):
        return x.missing(1, 2)

    def takes_none():
        return 0.0

    with pytest.raises(AttributeError, match="missing"):
        gradcheck(fails, X, vjp=backward)
    with pytest.raises(TypeError) as caught:
        gradcheck(takes_none, X, vjp=backward)
    assert not any("one tuple: gradcheck" in note for note in caught.value.__notes__)


def test_a_traceback_of_pytests_ends_with_the_test():
    with pytest.raises(GradcheckError) as caught:
        gradcheck(np.sin, X, vjp=lambda x, w: 2 * w)
    assert len(caught.traceback.filter(caught)) == 1
    pull = lambda x, w, u: (-u * w * np.sin(x), u)  # noqa: E731
    with pytest.raises(GradcheckError) as caught:
        gradgradcheck(np.sin, X, vjp=backward, vjp_vjp=pull)
    assert len(caught.traceback.filter(caught)) == 1


def test_values_that_six_digits_do_not_distinguish_are_given_by_their_difference():
    report = checked(gradcheck, np.sum, X, jac=lambda x: np.full_like(x, 1 + 1e-8), rtol=1e-10)
    assert "analytic and numerical are 1 and differ by 1e-08" in report.reason


def test_what_fast_mode_leaves_undecided_is_to_be_checked_without_it():
    x = np.linspace(0.5, 1, 5000)
    noisy = lambda x: np.sin(x) + 1e-5 * np.sin(1e12 * x)  # noqa: E731
    report = checked(gradcheck, noisy, x, vjp=backward, fast_mode=True)
    assert report.verdict == "INCONCLUSIVE"
    assert report.next == "calipers.gradcheck(f, x, vjp=backward)"


def legend_of(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_a_picture_names_inputs_and_outputs():
    pytest.importorskip("matplotlib")
    figure = gradcheck(np.sin, X, vjp=backward).plot()
    (axes,) = figure.axes
    assert figure.get_suptitle() == "PASS: all 36 entries agree"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("elements of in[0]", "elements of out[0]")
    assert legend_of(figure) == ["agree: 36"]
    report = checked(gradcheck, product, (X, W), vjp=product_vjp)
    figure = report.plot()
    axes, scales, colors = figure.axes
    assert scales.get_title() == report.worst.name
    assert [t.get_text() for t in axes.get_xticklabels()] == ["in[0]", "in[1]"]
    assert list(axes.get_xticks()) == [2.5, 8.5]
    assert axes.get_ylabel() == "elements of out[0]"
    assert colors.get_ylabel() == "error/tolerance"
    assert legend_of(figure) == ["agree: 36", "FAIL: 12"]
    assert gradcheck(np.sin, X, vjp=backward, fast_mode=True).plot().get_suptitle() == (
        "PASS: products with random directions agree"
    )


def test_a_picture_of_nan_and_kinks_has_a_legend():
    pytest.importorskip("matplotlib")
    x = np.array([0.0, 1, 2, 3])
    wrong = np.diag([1.0, np.nan, 1, 7])
    report = checked(gradcheck, np.abs, x, jac=lambda x: wrong)
    assert legend_of(report.plot()) == ["agree: 13", "FAIL: 1", "NONSMOOTH: 1", "NaN: 1"]


def test_long_names_and_many_of_them_fit_in_a_picture():
    pytest.importorskip("matplotlib")
    p = {f"layer {k}": np.ones(2) for k in range(20)}
    report = gradcheck(
        lambda p: sum(np.sum(v) for v in p.values()),
        p,
        vjp=lambda p, w: {k: w + 0 * v for k, v in p.items()},
    )
    figure = report.plot()
    figure.draw_without_rendering()
    labels = [t for t in figure.axes[0].get_xticklabels() if t.get_text()]
    assert len(labels) == 12
    boxes = [t.get_window_extent() for t in labels]
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))
    assert all(figure.bbox.contains(*corner) for b in boxes for corner in b.corners())
