"""gradcheck of jax's and torch's functions that take and return containers of arrays."""

from collections import namedtuple
from contextlib import nullcontext

import numpy as np
import pytest

import calipers

Layer = namedtuple("Layer", "w b")


def checked(check, *args, **options):
    return check(*args, raise_exception=False, **options)


class OfJax:
    """Functions of jax, whose arrays are of float64 while it is enabled."""

    def __init__(self):
        jax = pytest.importorskip("jax")
        self.jax, self.array = jax, lambda x: jax.numpy.asarray(x, float)
        self.tanh = jax.numpy.tanh

    def scaled_backward(self, factor):
        """Return an identity whose derivative is another one."""

        @self.jax.custom_vjp
        def same(x):
            return x

        same.defvjp(lambda x: (x, None), lambda _, w: (factor * w,))
        return same


class OfTorch:
    """Functions of torch."""

    def __init__(self):
        torch = pytest.importorskip("torch")
        self.torch, self.tanh = torch, torch.tanh

    def array(self, x):
        return self.torch.tensor(np.asarray(x, float), requires_grad=True)

    def scaled_backward(self, factor):
        """Return an identity whose derivative is another one."""

        class Same(self.torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, w):
                return factor * w

        return Same.apply


@pytest.fixture(params=[OfJax, OfTorch])
def of(request):
    library = request.param()
    with library.jax.enable_x64(True) if request.param is OfJax else nullcontext():
        yield library


def inputs(of):
    weights = {"w": of.array(np.arange(6.0).reshape(2, 3) / 9), "b": [of.array([0.1, 0.2]), "tanh"]}
    return weights, of.array([1.0, 2.0, 3.0]), [2, 3]


def network(of, factor=1.0):
    same = of.scaled_backward(factor)

    def f(p, x, shape):
        assert p["b"][1] == "tanh"
        assert shape == [2, 3]
        return of.tanh(p["w"] @ x + same(p["b"][0]))

    return f


def test_what_containers_hold_is_differentiated(of):
    report = calipers.gradcheck(network(of), inputs(of))
    assert report.shape == (2, 6 + 2 + 3)
    assert "[0]['w']" in report.input_names
    assert report.input_names[-2:] == ("[1]", "[2]")  # what holds no array stays whole
    assert calipers.gradcheck(network(of), inputs(of), fast_mode=True)


def test_a_wrong_derivative_in_a_container_is_named(of):
    report = checked(calipers.gradcheck, network(of, 2.0), inputs(of))
    assert report.verdict == "FAIL"
    assert {report.input_names[e.input] for e in report.failures} == {"[0]['b'][0]"}
    assert "[0]['b'][0]" in str(report)
    assert "is twice too large" in report.reason


def test_argnums_name_containers_and_arrays(of):
    f, given = network(of, 2.0), inputs(of)
    assert checked(calipers.gradcheck, f, given, argnums=0).shape == (2, 8)
    assert checked(calipers.gradcheck, f, given, argnums=1).shape == (2, 3)
    assert checked(calipers.gradcheck, f, given, argnums=1)
    assert checked(calipers.gradcheck, f, given, argnums=(0, 1)).verdict == "FAIL"


def test_other_arguments_are_not_differentiated(of):
    p, x, shape = inputs(of)
    report = checked(calipers.gradcheck, network(of, 2.0), (p,), args=(x, shape))
    assert report.shape == (2, 8)

    def by_name(p, x, scale):
        return scale * (p[0] * x)

    assert calipers.gradcheck(by_name, ([x], x), kwargs={"scale": 2.0})


def test_named_tuples_and_plain_ones(of):
    layer = Layer(of.array(np.eye(3)), of.array(np.ones(3)))
    report = calipers.gradcheck(lambda p, x: p.w @ x + p.b, (layer, of.array([1.0, 2.0, 3.0])))
    assert report.shape == (3, 15)
    assert len(report.input_names) == 3


def test_containers_are_returned(of):
    def f(p, x):
        return {"sum": p["w"] @ x, "rest": [(p["w"] ** 2).sum()]}

    p, x, _ = inputs(of)
    report = calipers.gradcheck(f, (p, x))
    assert report.shape == (3, 11)
    assert set(report.output_names) == {"['sum']", "['rest'][0]"}


def test_outputs_left_out_are_those_that_f_returns(of):
    wrong = of.scaled_backward(3.0)

    def f(p, x):
        return {"a": x * 2, "b": x * 3}, (wrong(p["w"]), wrong(x)), x.sum()

    p, x, _ = inputs(of)
    report = checked(calipers.gradcheck, f, (p, x), nondifferentiable_outputs=(1,))
    assert report.verdict == "PASS"
    assert report.shape[0] == 7
    assert not checked(calipers.gradcheck, f, (p, x))
    with pytest.raises(ValueError, match="nondifferentiable_outputs names output 9"):
        calipers.gradcheck(f, (p, x), nondifferentiable_outputs=(9,))


def test_containers_of_arrays_alone(of):
    x = of.array([1.0, 2.0, 3.0])
    report = calipers.gradcheck(lambda x: {"a": x**2, "b": [x.sum(), x]}, x)
    assert report.shape == (7, 3)
    assert report.input_names == ()
    assert len(report.output_names) == 3
    assert calipers.gradgradcheck(lambda x: {"a": x**2}, x)


def test_what_f_writes_into_is_not_the_callers(of):
    table = np.zeros(3)

    def f(p, x):
        p["table"][:] = 7
        return {"a": x * 2}, x

    given = {"table": table, "x": of.array([1.0])}, of.array([1.0])
    report = checked(calipers.gradcheck, f, given, nondifferentiable_outputs=(1,))
    assert "changes its arguments" in report.reason
    assert not table.any()


def test_second_derivatives(of):
    report = calipers.gradgradcheck(network(of), inputs(of))
    assert report.order == 2
    assert "[0]['w']" in report.output_names
    assert report.input_names[-1] == "a cotangent"


def test_arrays_alone_have_no_names(of):
    report = calipers.gradcheck(lambda x, y: (x * y, x), (of.array([1.0]), of.array([2.0])))
    assert "inputs" not in str(report)
    assert "outputs" not in str(report)


def test_nothing_of_the_callers_is_changed(of):
    given = inputs(of)
    before = np.array(given[0]["w"].tolist())
    calipers.gradcheck(network(of), given)
    assert list(given[0]) == ["w", "b"]
    assert np.array_equal(np.array(given[0]["w"].tolist()), before)
