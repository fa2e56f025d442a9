"""gradcheck of jax's and torch's functions that take and return containers of arrays."""

from collections import defaultdict, namedtuple
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numba
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
    assert "0['w']" in report.input_names
    assert report.input_names[-2:] == ("1", "2")  # what holds no array stays whole
    assert calipers.gradcheck(network(of), inputs(of), fast_mode=True)


def test_a_wrong_derivative_in_a_container_is_named(of):
    report = checked(calipers.gradcheck, network(of, 2.0), inputs(of))
    assert report.verdict == "FAIL"
    assert {report.input_names[e.input] for e in report.failures} == {"0['b'][0]"}
    assert "in[0]['b'][0]" in str(report)
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
    assert "0['w']" in report.output_names
    assert report.input_names[-1] == "a cotangent"


def test_arrays_alone_have_no_names(of):
    report = calipers.gradcheck(lambda x, y: (x * y, x), (of.array([1.0]), of.array([2.0])))
    assert report.input_names == report.output_names == ()


def test_nothing_of_the_callers_is_changed(of):
    given = inputs(of)
    before = np.array(given[0]["w"].tolist())
    calipers.gradcheck(network(of), given)
    assert list(given[0]) == ["w", "b"]
    assert np.array_equal(np.array(given[0]["w"].tolist()), before)


# The caller's derivatives, of functions of NumPy's arrays


def parameters():
    random = np.random.default_rng(3)
    w, b = random.standard_normal((3, 4)), random.standard_normal(3)
    return {"layers": [{"w": w, "b": b}], "scale": 2.0, "heads": 2}, random.standard_normal((5, 4))


def layer(p, x):
    own = p["layers"][0]
    assert p["heads"] == 2
    return p["scale"] * np.tanh(x @ own["w"].T + own["b"])


def layer_vjp(p, x, w):
    own = p["layers"][0]
    z = p["scale"] * w * (1 - (layer(p, x) / p["scale"]) ** 2)
    gradients = {"w": z.T @ x, "b": z.sum(axis=0)}
    return {"layers": [gradients], "scale": None, "heads": None}, z @ own["w"]


def layer_jvp(p, x, v):
    dp, dx = v
    own, d = p["layers"][0], dp["layers"][0]
    assert dp["scale"] is None
    z = p["scale"] * (1 - (layer(p, x) / p["scale"]) ** 2)
    return z * (dx @ own["w"].T + x @ d["w"].T + d["b"])


def layer_jac(p, x):
    rows = [layer_vjp(p, x, w.reshape(5, 3)) for w in np.eye(15)]
    shaped = [
        np.stack([get(row) for row in rows]).reshape(5, 3, *get(rows[0]).shape)
        for get in (
            lambda row: row[0]["layers"][0]["w"],
            lambda row: row[0]["layers"][0]["b"],
            lambda row: row[1],
        )
    ]
    return {"layers": [{"w": shaped[0], "b": shaped[1]}], "scale": None, "heads": None}, shaped[2]


FORMS = {"vjp": layer_vjp, "jvp": layer_jvp, "jac": layer_jac}


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_given_derivatives_are_containers_like_the_inputs(name, fast_mode):
    report = calipers.gradcheck(
        layer, parameters(), **{name: FORMS[name]}, fast_mode=fast_mode, check_undefined_grad=False
    )
    assert report.shape == (15, 12 + 3 + 20)
    names = ["0['layers'][0]['w']", "0['layers'][0]['b']", "0['scale']", "0['heads']", "1"]
    assert list(report.input_names) == names


def changed(call, change):
    """Return a derivative of which the part for the bias is another one."""

    def other(*given):
        found = call(*given)
        if isinstance(found, tuple):
            own = found[0]["layers"][0]
            own["b"] = change(own["b"])
        return found

    return other


@pytest.mark.parametrize("name", ["vjp", "jac"])
def test_a_wrong_part_of_a_container_is_named(name):
    wrong = {name: changed(FORMS[name], lambda g: 1.01 * g)}
    report = checked(calipers.gradcheck, layer, parameters(), **wrong)
    assert report.verdict == "FAIL"
    assert "/ d in[0]['layers'][0]['b'][" in report.reason
    assert "1.01 times" in report.reason
    assert {report.input_names[e.input] for e in report.failures} == {"0['layers'][0]['b']"}


def test_a_wrong_tangent_of_a_container_is_found():
    def wrong(p, x, v):
        return layer_jvp(p, x, v) - v[0]["layers"][0]["b"]

    report = checked(calipers.gradcheck, layer, parameters(), jvp=wrong)
    assert report.verdict == "FAIL"
    assert "in[0]['layers'][0]['b']" in report.reason


def gradients(**changes):
    def vjp(p, x, w):
        found, dx = layer_vjp(p, x, w)
        return {**found, **changes}, dx

    return vjp


def of_layer(change):
    def vjp(p, x, w):
        found, dx = layer_vjp(p, x, w)
        change(found["layers"][0])
        return found, dx

    return vjp


@pytest.mark.parametrize(
    ("vjp", "told"),
    [
        (of_layer(lambda g: g.pop("b")), "no gradient for input 0['layers'][0]['b']"),
        (of_layer(lambda g: g.update(c=1.0)), "has the unknown key 'c'; the keys are 'w', 'b'"),
        (of_layer(lambda g: g.update(b=np.ones(4))), "input 0['layers'][0]['b'] has a wrong shape"),
        (gradients(layers={}), "input 0['layers'] must be a list of 1 like the input, got dict"),
        (gradients(layers=[]), "input 0['layers'] must be a list of 1 like the input, got 0"),
        (
            gradients(scale=1.0),
            "a derivative with respect to input 0['scale'], which is not a floating-point array",
        ),
        (lambda p, x, w: layer_vjp(p, x, w)[1], "vjp returned 1 gradient, expected 2"),
        (lambda p, x, w: (np.ones(4), np.ones((5, 4))), "input 0 must be a dict like the input"),
    ],
)
def test_gradients_of_another_form_are_told(vjp, told):
    report = checked(calipers.gradcheck, layer, parameters(), vjp=vjp)
    assert report.verdict == "FAIL"
    assert told in report.reason


def test_none_is_a_gradient_of_zeros():
    def f(p, x):
        return p["w"] * x

    def vjp(p, x, w):
        return {"w": w * x, "unused": None, "all": None}, w * p["w"]

    given = {"w": np.ones(3), "unused": np.ones(2), "all": [np.ones(2), np.ones(1)]}
    x = np.array([1.0, 2.0, 3.0])
    assert calipers.gradcheck(f, (given, x), vjp=vjp).shape == (3, 3 + 2 + 3 + 3)
    report = checked(calipers.gradcheck, f, (given, x), vjp=lambda p, x, w: (None, w * p["w"]))
    assert "/ d in[0]['w'][2] is wrong" in report.reason
    # What has no gradient may be left out where there is none to be had.
    settings = {"w": np.ones(3), "n": 3, "betas": [0.9, 0.999], "name": "adam", "shape": (2, 3)}
    assert calipers.gradcheck(f, (settings, x), vjp=lambda p, x, w: ({"w": w * x}, w * p["w"]))


def weighted(w, x):
    return w[0] * x + w[1]


def test_a_list_of_arrays_alone_has_a_list_of_gradients():
    given, x = [np.array([1.0, 2.0]), np.array([0.5, 0.5])], np.array([2.0, 3.0])

    def right(w, x, v):
        return [v * x, v]

    assert calipers.gradcheck(weighted, (given,), args=(x,), vjp=right).shape == (2, 4)
    assert calipers.gradcheck(
        weighted, (given,), args=(x,), vjp=lambda w, x, v: (right(w, x, v),)
    )  # one for each input
    for argnums, shape in ((0, (2, 4)), (1, (2, 2)), ((0, 1), (2, 6)), ((1, 0), (2, 6))):

        def vjp(w, x, v, argnums=argnums):
            each = right(w, x, v), v * w[0]
            return tuple(each[k] for k in np.atleast_1d(argnums))

        assert calipers.gradcheck(weighted, (given, x), vjp=vjp, argnums=argnums).shape == shape
    both = {"argnums": 1, "vjp": lambda w, x, v: (None, v * w[0])}  # one for each of all
    assert calipers.gradcheck(weighted, (given, x), **both).shape == (2, 2)
    swapped = checked(
        calipers.gradcheck, weighted, (given,), args=(x,), vjp=lambda *a: right(*a)[::-1]
    )
    assert swapped.verdict == "FAIL"


def test_named_tuples_of_arrays():
    given, x = Layer(np.eye(2), np.ones(2)), np.array([1.0, 2.0])

    def f(p, x):
        return p.w @ x + p.b

    def vjp(p, x, w):
        return Layer(np.outer(w, x), w), p.w.T @ w

    assert calipers.gradcheck(f, (given, x), vjp=vjp)
    report = checked(
        calipers.gradcheck, f, (given, x), vjp=lambda p, x, w: (Layer(np.outer(w, x), -w), w)
    )
    assert "in[0][1]" in report.reason


def moments(x):
    return {"mean": x.mean(axis=0), "count": len(x), "more": {"var": x.var(axis=0)}}


def moments_vjp(x, w):
    assert w["count"] is None
    off = x - x.mean(axis=0)
    return (w["mean"] + 2 * off * w["more"]["var"]) / len(x)


def moments_jvp(x, v):
    off = x - x.mean(axis=0)
    return {"mean": v.mean(axis=0), "count": None, "more": {"var": 2 * (off * v).mean(axis=0)}}


def moments_jac(x):
    n, m = x.shape
    off = x - x.mean(axis=0)
    mean = np.einsum("jl,i->jil", np.eye(m), np.full(n, 1 / n))
    var = np.einsum("jl,il->jil", np.eye(m), 2 * off / n)
    return {"mean": mean, "count": None, "more": {"var": var}}


@pytest.mark.parametrize(
    "form", [{"vjp": moments_vjp}, {"jvp": moments_jvp}, {"jac": moments_jac}], ids=list
)
def test_cotangents_and_tangents_are_containers_like_the_outputs(form):
    x = np.random.default_rng(0).standard_normal((4, 2))
    report = calipers.gradcheck(moments, x, **form)
    assert report.shape == (4, 8)
    assert report.output_names == ("['mean']", "['count']", "['more']['var']")


def test_outputs_that_are_left_out_have_no_cotangent():
    x = np.random.default_rng(0).standard_normal((4, 2))

    def f(x):
        return {"rest": np.floor(x), "mean": x.mean(axis=0)}, x**2

    def vjp(x, w):
        assert w[0]["rest"] is None
        assert w[0]["mean"] is None
        return 2 * x * w[1]

    report = calipers.gradcheck(f, x, vjp=vjp, nondifferentiable_outputs=[0])
    assert report.shape == (8, 8)


def test_wrong_outputs_in_containers_are_named():
    x = np.random.default_rng(0).standard_normal((4, 2))

    def wrong(x, w):
        return moments_vjp(x, {**w, "more": {"var": 2 * w["more"]["var"]}})

    report = checked(calipers.gradcheck, moments, x, vjp=wrong)
    assert "d out['more']['var'][" in report.reason
    assert "twice too large" in report.reason
    for tangent, told in (
        ({"mean": np.ones(2), "count": None}, "no tangent for output ['more']['var']"),
        (
            {"mean": np.ones(2), "more": 1},
            "output ['more'] must be a dict like f's result, got int",
        ),
        (np.ones(2), "the tangent that jvp returned must be a dict like f's result, got ndarray"),
    ):
        report = checked(calipers.gradcheck, moments, x, jvp=lambda x, v, t=tangent: t)
        assert told in report.reason


def test_given_derivatives_leave_the_callers_containers_alone():
    given, x = parameters()
    before = given["layers"][0]["w"].copy()

    def careless(p, x):
        y = layer(p, x)
        p["layers"][0] = None
        p["scale"] = 0.0
        return y

    assert calipers.gradcheck(careless, (given, x), vjp=layer_vjp)
    assert given["scale"] == 2.0
    assert np.array_equal(given["layers"][0]["w"], before)

    def writing(p, x):
        p["layers"][0]["b"][:] = 0
        return layer(p, x)

    report = checked(calipers.gradcheck, writing, (given, x), vjp=layer_vjp)
    assert "f changes its arguments: input 0['layers'][0]['b']" in str(report)


def test_functions_of_containers_go_to_other_processes():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert calipers.gradcheck(layer, parameters(), vjp=layer_vjp, workers=pool)


def test_lists_of_numbers_stay_one_array():
    assert calipers.gradcheck(
        lambda x: np.sin(x), ([[1.0, 2.0], [3.0, 4.0]],), vjp=lambda x, w: w * np.cos(x)
    ).shape == (4, 4)
    given = list(np.array([1.0, 2.0]))
    assert calipers.gradcheck(np.sin, (given,), vjp=lambda x, w: w * np.cos(x)).shape == (2, 2)


def test_containers_are_refused_where_they_are_not_known():
    given, x = parameters()
    with pytest.raises(ValueError, match="inplace= needs arrays, and an input is a container"):
        calipers.gradcheck(layer, (given, x), vjp=layer_vjp, inplace="write")
    with pytest.raises(TypeError, match="pass the arrays as separate inputs"):
        calipers.gradgradcheck(layer, (given, x), vjp=layer_vjp, vjp_vjp=layer_vjp)
    long = {"w": np.ones(2, np.longdouble)}
    with pytest.raises(TypeError, match=r"input 0\['w'\] has dtype (longdouble|float128)"):
        calipers.gradcheck(lambda p: p["w"], (long,), vjp=lambda p, w: {"w": w})


def test_sparse_matrices_in_containers():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    a = scipy_sparse.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))
    given, x = {"a": a, "b": np.ones(2)}, np.array([1.0, 2.0, 3.0])

    def f(p, x):
        return p["a"] @ x + p["b"]

    def vjp(p, x, w, factor=1.0):
        rows, columns = p["a"].nonzero()
        values = factor * w[rows] * x[columns]
        gradient = scipy_sparse.csr_array((values, (rows, columns)), shape=(2, 3))
        return {"a": gradient, "b": w}, p["a"].T @ w

    assert calipers.gradcheck(f, (given, x), vjp=vjp, masked=True).shape == (2, 3 + 2 + 3)

    def wrong(p, x, w):
        return vjp(p, x, w, 2.0)

    report = checked(calipers.gradcheck, f, (given, x), vjp=wrong, masked=True)
    assert "/ d in[0]['a'][0, 2] is wrong" in report.reason


def test_containers_stay_of_their_class():
    given = defaultdict(float, {"w": np.ones(3)})

    def f(p, x):
        return p["w"] * x + p["bias"]  # which is there when it is asked for

    vjp = {"vjp": lambda p, x, w: ({"w": w * x}, w * p["w"])}
    assert calipers.gradcheck(f, (given, np.array([1.0, 2.0, 3.0])), **vjp)
    assert "bias" not in given


class Settings:
    """What calipers does not know to hold arrays."""

    def __init__(self, w):
        self.w = w


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_by_what_is_held_constant_are_refused(compiled):
    x, n = np.array([1.0, 2.0, 3.0]), np.array([1, 2, 3])

    def product(x, n):
        return x * n

    f = numba.njit(product) if compiled else product
    assert calipers.gradcheck(f, (x, n), vjp=lambda x, n, w: (w * n, None))
    assert calipers.gradcheck(f, (x, n), vjp=lambda x, n, w: (w * n, 0 * w))
    assert calipers.gradcheck(f, (x, n), vjp=lambda x, n, w: (w * n, w * x), argnums=0)
    float0 = np.zeros(3, np.dtype([("float0", np.void, 0)]))  # jax's
    assert calipers.gradcheck(f, (x, n), vjp=lambda x, n, w: (w * n, float0))
    report = checked(calipers.gradcheck, f, (x, n), vjp=lambda x, n, w: (w * n, w * x))
    assert report.verdict == "FAIL"
    assert (
        "vjp returned a derivative with respect to input 1, which is not a floating-point array"
        in report.reason
    )


@pytest.mark.parametrize("others", [(), ([np.ones(3)],)], ids=["arrays", "containers"])
def test_gradients_by_objects_are_refused(others):
    x = np.array([1.0, 2.0, 3.0])

    def f(p, x, *others):
        return p.w * x

    def vjp(p, x, *rest):
        w = rest[-1]
        return (Settings(w * x), w * p.w, *[None for _ in others])

    report = checked(calipers.gradcheck, f, (Settings(np.ones(3)), x, *others), vjp=vjp)
    assert report.verdict == "FAIL"
    assert (
        "vjp returned a derivative with respect to input 0, which is not a floating-point array"
        in report.reason
    )
    with pytest.raises(ValueError, match="tuples, dicts or dataclasses, got Settings"):
        calipers.gradcheck(lambda p: p.w, (Settings(x),), vjp=lambda p, w: Settings(w))


@pytest.mark.parametrize("off", [0.0, 1e-3])
def test_the_value_beside_a_jacobian_is_a_container_like_the_outputs(off):
    x = np.random.default_rng(0).standard_normal((4, 2))

    def both(x):
        value = moments(x)
        value["more"]["var"] = value["more"]["var"] + off
        return value, moments_jac(x)

    report = checked(calipers.gradcheck, moments, x, value_and_jac=both)
    assert report.verdict == ("FAIL" if off else "PASS")
    if off:
        assert "the primal value that value_and_jac returns differs from f(x)" in report.reason


@dataclass(frozen=True)
class Weights:
    w: np.ndarray
    b: list
    name: str = "tanh"


def affine(p, x):
    assert p.name == "tanh"
    return x @ p.w.T + p.b[0]


def affine_vjp(p, x, w, factor=1.0):
    return Weights(w.T @ x, [factor * w.sum(axis=0)], None), w @ p.w


def test_dataclasses_are_containers():
    given, x = (Weights(np.ones((2, 3)), [np.zeros(2)]), np.eye(4, 3)), {"vjp": affine_vjp}
    report = calipers.gradcheck(affine, given, **x)
    assert report.input_names == ("0.w", "0.b[0]", "0.name", "1")
    assert report.shape == (8, 6 + 2 + 12)
    report = checked(calipers.gradcheck, affine, given, vjp=lambda *a: affine_vjp(*a, 2.0))
    assert "/ d in[0].b[0][" in report.reason
    report = checked(calipers.gradcheck, affine, given, vjp=lambda p, x, w: ({"w": w}, w @ p.w))
    assert "for input 0 must be a Weights like the input, got dict" in report.reason


@dataclass
class Squares:
    each: np.ndarray
    sums: list
    count: int


def test_dataclasses_may_be_returned():
    def f(x):
        return Squares(x**2, [x.sum()], x.size)

    def vjp(x, w):
        assert w.count is None
        return 2 * x * w.each + w.sums[0]

    report = calipers.gradcheck(f, np.array([1.0, 2.0]), vjp=vjp)
    assert report.output_names == (".each", ".sums[0]", ".count")


def test_settings_that_a_gradient_hands_back_are_no_derivatives():
    @dataclass
    class Affine:
        w: np.ndarray
        rate: float = 2.0
        name: str = "affine"

    def f(p):
        return p.rate * p.w

    def vjp(p, w):
        return replace(p, w=p.rate * w)

    p = Affine(np.array([0.5, -1.0]))
    assert checked(calipers.gradcheck, f, (p,), vjp=vjp).verdict == "PASS"
    wrong = checked(calipers.gradcheck, f, (p,), vjp=lambda p, w: replace(vjp(p, w), rate=w @ p.w))
    assert "a derivative with respect to input 0.rate" in wrong.reason
