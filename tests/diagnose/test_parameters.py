"""Parameters that functions capture are operands, and the formats that ran are observed."""

import copy
from functools import partial

import numba
import numpy as np
import pytest

import calipers
from calipers._diagnose.parameters import Parameters, match

RANDOM = np.random.default_rng(0)
W = RANDOM.standard_normal((8, 16), dtype=np.float32)
X = RANDOM.standard_normal((4, 16), dtype=np.float32)


def product(x, w=W):
    return x @ w.T


class Layer:
    def __init__(self, w):
        self.w, self.name = w, "layer"

    def __call__(self, x):
        return x @ self.w.T


def closed_over(w):
    return lambda x: x @ w.T


HOLDERS = {
    "a closure": closed_over(W),
    "a default": product,
    "a partial": partial(product, w=W),
    "an attribute": Layer(W),
    "a method": Layer(W).__call__,
    "a container": (lambda held: lambda x: x @ held["w"][0].T)({"w": [W]}),
    "a helper": (lambda f: lambda x: f(x))(closed_over(W)),
    "a global variable": lambda x: x @ W.T,
}


@pytest.mark.parametrize("name", HOLDERS)
def test_arrays_are_found_and_replaced_in_copies(name):
    f, before = HOLDERS[name], W.copy()
    found = Parameters(f)
    assert len(found.arrays) == 1
    np.testing.assert_array_equal(found.arrays[0], W)
    wide = found.bind([W.astype(float)], wide=True)(X.astype(float))
    assert wide.dtype == np.float64
    np.testing.assert_array_equal(wide, X.astype(float) @ W.astype(float).T)
    np.testing.assert_array_equal(found.bind([2 * W], wide=False)(X), 2 * f(X))
    np.testing.assert_array_equal(before, W)
    np.testing.assert_array_equal(f(X), product(X))


def test_state_in_a_closure_is_shared_with_the_copies():
    calls = []

    def f(x):
        calls.append(1)
        return x @ W.T

    Parameters(f).bind([W], wide=False)(X)
    assert calls == [1]


def test_arrays_of_compiled_functions_are_not_taken_for_exact():
    table, x = RANDOM.standard_normal(16), RANDOM.standard_normal(16)
    rounded = table.astype(np.float32).astype(float)
    compiled = numba.njit(lambda x: x + rounded)
    assert Parameters(compiled).are_compiled_in
    assert not Parameters(numba.njit(lambda x: x * 2)).are_compiled_in
    assert not Parameters(lambda x: x + table).are_compiled_in
    report = calipers.diagnose(lambda x: x + table, compiled, x)
    assert report.kind == "SUSPECT"
    assert "arrays compiled into g could not be perturbed" in str(report)
    assert "next: calipers.diagnose(f, g, (inputs, arrays))" in str(report)


def test_more_than_rounded_arrays_cause_is_a_bug():
    table, x = RANDOM.standard_normal(16), RANDOM.standard_normal(16)
    wrong = table.copy()
    wrong[3] += 10.0
    report = calipers.diagnose(lambda x: x + table, numba.njit(lambda x: x + wrong), x)
    assert report.kind == "BUG"
    report = calipers.diagnose(lambda x: x * 2, numba.njit(lambda x: x * 2.001), x)
    assert report.kind == "BUG"
    assert "compiled into" not in str(report)


def test_the_noise_level_has_the_rounding_of_parameters():
    """Without it, a product of few numbers looks better conditioned than it is."""
    without = calipers.diagnose(lambda x: x * 1, lambda x: x * 1.0, X[:1], batch=()).evidence
    scale = RANDOM.uniform(1, 2, 16).astype(np.float32)
    found = calipers.diagnose(lambda x: (x * scale) * scale, lambda x: x * (scale * scale), X)
    assert found
    assert found.evidence["kappa"] > 2
    assert "kappa" not in without or without["kappa"] < 1.5


def test_rounded_arrays_are_matched_by_value():
    f = Parameters(closed_over(W))
    assert match(f, Parameters(closed_over(W.astype(np.float16)))) == [0]
    assert match(f, Parameters(closed_over((1.01 * W).astype(np.float16)))) == [None]
    assert match(f, Parameters(closed_over(W[:4]))) == [None]


torch = pytest.importorskip("torch")


def network(seed=0):
    torch.manual_seed(seed)
    parts = [
        torch.nn.Linear(16, 16),
        torch.nn.LayerNorm(16),
        torch.nn.GELU(),
        torch.nn.Linear(16, 4),
    ]
    return torch.nn.Sequential(*parts).eval(), torch.randn(6, 16)


def silent(f):
    def call(x):
        with torch.no_grad():
            return f(x)

    return call


def in_bfloat16(net):
    low = copy.deepcopy(net).bfloat16()
    return low, silent(lambda x: low(x.bfloat16()).to(x.dtype))


def under_autocast(net):
    own = copy.deepcopy(net)

    def call(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return own(x).to(x.dtype)

    return own, silent(call)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lower", [in_bfloat16, under_autocast])
def test_a_model_in_bfloat16_is_reduced_and_a_bug_in_addition_is_seen(lower, seed):
    net, x = network(seed)
    low, g = lower(net)
    weights = {name: p.clone() for name, p in net.state_dict().items()}
    found = calipers.diagnose(silent(net), g, x)
    assert (found.kind, found.format) == ("REDUCED", "bfloat16"), str(found)
    assert "(inferred)" not in found.reason
    assert found.evidence["observed"]["g"]["bfloat16"] > 0
    for change in ("eps", "approximate"):
        other, wrong = lower(net)
        if change == "eps":
            other[1].eps = 1e-3
        else:
            other[2].approximate = "tanh"
        assert calipers.diagnose(silent(net), wrong, x).kind in ("BUG", "SUSPECT"), change
    assert all(torch.equal(p, weights[name]) for name, p in net.state_dict().items())
    assert next(net.parameters()).dtype == torch.float32
    assert torch.get_default_dtype() == torch.float32
    assert next(low.parameters()).dtype in (torch.float32, torch.bfloat16)


def test_a_module_alone_is_promoted_with_its_inputs():
    net, x = network()
    with torch.no_grad():
        found = calipers.diagnose(net, copy.deepcopy(net), x)
    assert found.kind == "EQUAL"
    scaled = copy.deepcopy(net)
    with torch.no_grad():
        scaled[0].weight *= 1.001
        found = calipers.diagnose(net, scaled, x)
    assert found.kind == "BUG"
    assert found.evidence["measured_from"] == "f"


@pytest.mark.filterwarnings("ignore")  # quantisation is deprecated in torch
def test_int8_weights_are_those_of_the_original_rounded():
    net, x = network()
    low = torch.ao.quantization.quantize_dynamic(copy.deepcopy(net), {torch.nn.Linear})
    found = calipers.diagnose(silent(net), silent(low), x)
    assert (found.kind, found.format) == ("REDUCED", "int8"), str(found)


def test_a_branch_for_float32_is_taken_in_float64():
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))

    def kernel(x):
        return torch.nn.functional.gelu(
            x, approximate="none" if x.dtype == torch.float64 else "tanh"
        )

    assert calipers.diagnose(torch.nn.functional.gelu, kernel, x).kind == "BUG"


@pytest.mark.parametrize("factor", [1, 1.001])
def test_float32_in_a_function_of_float64_is_observed(factor):
    x = torch.from_numpy(RANDOM.standard_normal((5, 400)))
    single = lambda x: (x.float().square().mean(1) * factor).double()  # noqa: E731
    found = calipers.diagnose(lambda x: x.square().mean(1), single, x)
    assert found.kind == ("REDUCED" if factor == 1 else "BUG"), str(found)


def test_the_first_wrong_layer_of_two_modules_is_named():
    net, x = network()
    for low in (copy.deepcopy(net), copy.deepcopy(net).bfloat16()):
        right = calipers.probes.layers(net, low, x)
        assert right.first is None, str(right)
        low[1].eps = 1e-3
        found = calipers.probes.layers(net, low, x)
        assert found.first is not None
        assert found.first.name == "1"
    with pytest.raises(ValueError, match="must have the same structure"):
        calipers.probes.layers(net, torch.nn.Sequential(*net[:2]), x)


def test_formats_of_jax_are_those_of_its_jaxpr():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(X)
    low = lambda x: (x.astype("bfloat16") @ x.astype("bfloat16").T).astype("float32")  # noqa: E731
    found = calipers.diagnose(lambda x: x @ x.T, low, x, batch=())
    assert (found.kind, found.format) == ("REDUCED", "bfloat16"), str(found)
    assert found.evidence["observed"]["g"]["bfloat16"] > 0
