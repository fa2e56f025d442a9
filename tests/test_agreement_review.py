"""What a hostile review of diagnose found: each was wrong, or told so that none could mend it."""

import io
import json
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import calipers

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((8, 16), dtype=np.float32)


def total(x):
    return x.sum(axis=1)


def backwards(x):
    return x[:, ::-1].cumsum(axis=1)[:, -1]


def test_results_of_other_names_are_not_the_same_results():
    found = calipers.diagnose(lambda x: {"a": x, "b": x}, lambda x: {"a": x, "c": x}, X)
    assert (found.kind, found.reason) == (
        "BUG",
        "f gives results called ['a'], ['b'], and g ['a'], ['c']",
    )
    fewer = calipers.diagnose(lambda x: {"a": x, "b": x}, lambda x: {"a": x}, X)
    assert fewer.reason == "f gives results called ['a'], ['b'], and g ['a']"
    # A port may give a tuple where the original gives a dict.
    assert calipers.diagnose(lambda x: {"a": total(x)}, lambda x: (total(x),), X).kind == "EQUAL"
    parts = calipers.diagnose(lambda x: {"a": (x, x)}, lambda x: {"a": x}, X)
    assert "of shape (8, 16), (8, 16), and g (8, 16)" in parts.reason


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [300, 1000])
def test_waves_of_another_frequency_are_no_rounding(size, seed):
    """Their difference becomes another one when inputs are moved, but along lines steadily."""
    x = size * np.random.default_rng(seed).standard_normal(2000, dtype=np.float32)
    found = calipers.diagnose(np.sin, lambda x: np.sin(x * x.dtype.type(1.0001)), x, batch=())
    assert found.kind == "BUG", str(found)
    if "steadiness" in found.evidence:
        assert found.evidence["steadiness"] > 0.9


@pytest.mark.parametrize("seed", range(5))
def test_what_is_rounded_in_between_is_no_wave(seed):
    """Weights, inputs and a product in between that are held in few bits, in any format."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((32, 128), dtype=np.float32)
    w = random.standard_normal((64, 128), dtype=np.float32) / 11

    def stepped(x):
        step = np.abs(x).max(axis=1, keepdims=True) / 127
        return np.round(x / step) * step

    def quantised(x, w):
        return stepped(x) @ stepped(w).T

    found = calipers.diagnose(lambda x, w: x @ w.T, quantised, (x, w))
    assert found.kind == "REDUCED", str(found)
    assert abs(found.evidence["steadiness"]) < 0.3


def last_of_largest(x):
    return x.shape[1] - 1 - x[:, ::-1].argmax(axis=1)


def test_ties_of_zeros_are_ties():
    """Moves are in proportion, so that zeros stay zeros, and equal ones equal."""
    x = np.maximum(np.random.default_rng(0).standard_normal((32, 6), dtype=np.float32) - 1, 0)
    found = calipers.diagnose(lambda x: x.argmax(axis=1), last_of_largest, x)
    assert found.kind == "SUSPECT"
    assert "none where inputs are moved, zeros too: ties" in found.reason
    whole = np.random.default_rng(0).integers(0, 20, (4, 100)).astype(np.float32)
    order = lambda x: np.argsort(x, axis=1, kind="stable")  # noqa: E731
    other = lambda x: x.shape[1] - 1 - order(x[:, ::-1])  # noqa: E731
    assert calipers.diagnose(order, other, whole).kind == "SUSPECT"
    assert calipers.diagnose(order, lambda x: order(x)[:, ::-1], whole).kind == "BUG"


def test_ties_are_told_beside_other_results():
    x = np.maximum(np.random.default_rng(0).standard_normal((32, 6), dtype=np.float32) - 1, 0)

    def largest(x):
        return x.max(axis=1), x.argmax(axis=1)

    found = calipers.diagnose(largest, lambda x: (x.max(axis=1), last_of_largest(x)), x)
    assert found.kind == "SUSPECT"
    assert "integers differ, but none where inputs are moved, zeros too: ties" in found.reason
    wrong = calipers.diagnose(largest, lambda x: (x.min(axis=1), last_of_largest(x)), x)
    assert wrong.kind == "BUG"
    smallest = calipers.diagnose(largest, lambda x: (x.max(axis=1), x.argmin(axis=1)), x)
    assert smallest.kind == "BUG"


def totals_and_signs(x):
    return x.sum(axis=1), x > 0


@pytest.mark.parametrize("scale", [0, 1e-320, 1e-200, 1e307])
@pytest.mark.parametrize("f", [np.exp, np.cbrt, totals_and_signs])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda y: y * (1 + 1e-9),
        lambda y: np.nextafter(y, 0),
        lambda y: y + 1e-4,
        lambda y: y / 0,
        lambda y: y.astype(np.float16).astype(y.dtype),
    ],
)
def test_the_ends_of_the_range_raise_nothing_and_warn_of_nothing(scale, f, wrong):
    x = np.random.default_rng(0).uniform(-1, 1, (4, 6)) * scale

    def g(x):
        y = f(x)
        return (wrong(y[0]), y[1]) if isinstance(y, tuple) else wrong(y)

    found = calipers.diagnose(f, g, x)
    assert str(found)
    assert json.dumps(found.to_dict(), allow_nan=False)
    if found.kind not in ("BUG", "SUSPECT", "RANGE"):
        assert np.isfinite(found.recommend_tolerance()).all()
    if f is totals_and_signs and pytest.importorskip("matplotlib"):
        found.plot().savefig(io.BytesIO(), dpi=20)


def test_zeros_have_a_tolerance():
    found = calipers.diagnose(np.sin, np.tan, np.zeros(3, np.float32))
    assert found.recommend_tolerance() == (8 * 2.0**-24, 0.0)
    moved = calipers.diagnose(lambda x: x - x, lambda x: 0 * x, X)
    assert moved.recommend_tolerance().atol == 0


class Counted:
    """A function of an array and of how often it was called."""

    def __init__(self, f):
        self.f, self.calls = f, 0

    def __call__(self, x):
        self.calls += 1
        return self.f(x, self.calls)


def test_what_a_side_does_when_it_is_called_again():
    late = Counted(lambda x, n: backwards(x) if n < 2 else 1 / 0)
    found = calipers.diagnose(total, late, X)
    assert found.kind == "RAISES"
    assert found.reason == "g raises ZeroDivisionError: division by zero, when it is called again"
    grown = Counted(lambda x, n: np.zeros(7 + n, np.float32))
    found = calipers.diagnose(grown, lambda x: np.ones(8, np.float32), X)
    assert found.kind == "BUG"
    assert found.reason == "f gives results of shape (8,), and of (9,) when it is called again"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("long " * 2000, "ValueError: long long"),
        ("one\n  two\n" * 50, "ValueError: one two one two"),
        ("\x1b[31mred\a", r"ValueError: \x1b[31mred\x07, and f returns"),
        ("", "g raises ValueError, and f returns"),
    ],
)
def test_what_is_raised_is_told_in_a_sentence(message, told):
    def fails(x):
        raise ValueError(message)

    found = calipers.diagnose(total, fails, X)
    assert told in found.reason
    assert found.reason.isprintable()
    assert len(found.reason) < 400
    trials = calipers.probes.repeat(Counted(lambda x, n: x if n < 2 else fails(x)), X)
    assert str(trials).replace("\n", "").isprintable()


Weights = namedtuple("Weights", "w b")
W = RANDOM.standard_normal((16, 4), dtype=np.float32)


@pytest.mark.parametrize("kind", [dict, OrderedDict, list, tuple, Weights])
def test_arrays_in_containers_are_moved(kind):
    weights = {"w": W, "b": W[0]}
    seen = set()

    def taken(p):
        seen.add(type(p))
        return (p["w"], p["b"]) if isinstance(p, dict) else (p[0], p[1])

    def linear(p, x):
        w, b = taken(p)
        return x @ w + b

    def turned(p, x, factor=1):
        w, b = taken(p)
        return x[:, ::-1] @ w[::-1] * x.dtype.type(factor) + b

    def narrow(p, x):
        w, b = taken(p)
        return x @ calipers.emulate(lambda w: w, "bfloat16")(w) + b

    given = {list: [W, W[0]], tuple: (W, W[0]), Weights: Weights(W, W[0])}
    inputs = given[kind] if kind in given else kind(weights), X
    found = calipers.diagnose(linear, turned, inputs, batch=1)
    assert found.ok({"ROUNDING", "LAYOUT"}), str(found)
    assert found.evidence["measured_from"] == "f"
    assert calipers.diagnose(linear, lambda p, x: turned(p, x, 1.01), inputs).kind == "BUG"
    reduced = calipers.diagnose(linear, narrow, inputs)
    assert (reduced.format, reduced.arguments) == ("bfloat16", (0,))
    place = "0['w']" if kind in (dict, OrderedDict) else "0[0]"
    assert f"argument {place} rounded" in reduced.reason
    assert seen == {kind}


def test_lists_of_numbers_are_moved_at_once():
    seen = set()

    def mean(x, weights):
        seen.add((type(weights), len(weights)))
        return np.dot(x, weights) / sum(weights)

    def turned(x, weights, one=0):
        return np.dot(x[::-1], weights[::-1]) / (sum(weights) - one)

    x = np.random.default_rng(0).random((2, 20_000))
    for kind in (list, tuple):
        given = kind(x[0].tolist()), kind(x[1].tolist())
        found = calipers.diagnose(mean, turned, given)
        assert found.ok({"ROUNDING", "LAYOUT"}), str(found)
        assert found.seconds < 30
        assert calipers.diagnose(mean, lambda x, w: turned(x, w, 1), given).kind == "BUG"
    assert seen == {(list, 20_000), (tuple, 20_000)}


def test_containers_without_arrays_are_handed_on():
    def summed(x, shape):
        assert shape is size
        return x.reshape(shape).sum(axis=1)

    size = (16, 8)
    assert calipers.diagnose(summed, summed, (X, size)).kind == "EQUAL"
    own: list = [X]
    own.append(own)
    with pytest.raises(ValueError, match="does it hold itself"):
        calipers.diagnose(total, total, (own,))
    for inputs in ((x for x in [X]), (X, iter([1]))):
        with pytest.raises(TypeError, match="inputs must be there for more than one call, got"):
            calipers.diagnose(total, total, inputs)
    with pytest.raises(TypeError, match=r"input 0\['a'\] has dtype float128"):
        calipers.diagnose(total, total, {"a": X.astype(np.longdouble)})


@pytest.mark.parametrize("inputs", [7, np.zeros(3, np.float32), "text"])
def test_what_nothing_moves_is_not_said_to_stay(inputs):
    """That a difference stays at inputs which are where they were tells nothing."""

    def f(x):
        return np.full(20, 0.1, np.float32)

    def g(x):
        return f(x) + 2 * np.spacing(f(x))

    found = calipers.diagnose(f, g, (inputs,), float64=None, batch=())
    assert found.kind == "ROUNDING", str(found)
    assert "a bug of fewer units would not be seen" in found.reason


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"seed": 1.5}, TypeError, "seed must be an integer, got float: 1.5"),
        ({"seed": None}, TypeError, "seed must be an integer, got NoneType"),
        ({"reduction": "n"}, TypeError, "reduction must be an integer, got str: 'n'"),
        ({"batch": None}, TypeError, "batch must hold places of inputs, integers from 0, got None"),
        ({"batch": (1.0,)}, TypeError, r"batch must hold places .* got \(1.0,\)"),
        ({"float64": ["f"]}, ValueError, r"float64 must be .* got \['f'\]"),
        ({"budget": []}, ValueError, r"budget must be .* got \[\]"),
        ({"dtype": "float64"}, ValueError, "dtype is float64, but the inputs are float32: pass"),
        ({"float64": lambda x: 1 / 0}, ValueError, "float64 raises ZeroDivisionError: division by"),
        ({"float64": lambda x: x}, ValueError, r"float64 gives results of shape \(8, 16\) for \(8"),
        ({"float64": lambda x: x.sum(1, np.float32)}, ValueError, "float64 gives float32: pass a"),
    ],
)
def test_a_bad_option_is_named(options, error, told):
    with pytest.raises(error, match=told):
        calipers.diagnose(total, backwards, X, **options)


def test_the_working_format_is_whatever_numpy_takes_for_it():
    for dtype in ("f4", ">f4", np.float32, np.dtype("float32"), "float32"):
        assert calipers.diagnose(total, backwards, X, dtype=dtype).dtype == "float32"
    assert calipers.diagnose(total, backwards, X, dtype="f2").dtype == "float16"


def test_inputs_that_are_none_or_no_numbers():
    assert calipers.diagnose(lambda: 1.0, lambda: 1.0, ()).kind == "EQUAL"
    records = np.zeros(3, [("a", "f4")])
    assert calipers.diagnose(lambda x: x["a"], lambda x: x["a"], records).kind == "EQUAL"
    words = np.array(["a", None], object)
    assert calipers.diagnose(lambda x: x.size, lambda x: len(x), words).kind == "EQUAL"
    with pytest.raises(TypeError, match="input 1 is a masked array: pass its data and its mask"):
        calipers.diagnose(total, total, (X, np.ma.masked_less(X, 0)))


def test_arrays_that_are_not_compared_to_a_reference():
    exact = X.astype(float)
    for given, error, told in (
        ((None, X, exact), TypeError, "actual must be an array of numbers, got None"),
        ((X, "text", exact), TypeError, "expected must be an array of numbers, got dtype <U4"),
        (
            (X, X + 0j, exact),
            ValueError,
            "all real or all complex, got float32, complex64, float64",
        ),
        ((X, X, np.ma.masked_less(exact, 0)), TypeError, "reference is a masked array"),
    ):
        with pytest.raises(error, match=told):
            calipers.compare_to_reference(*given)
    found = calipers.compare_to_reference(X, np.nextafter(X, 2 * X), exact)
    assert "actual equals the reference" in found.reason


def test_tolerances_and_formats_that_are_none():
    for reduction in (float("inf"), float("nan"), 0):
        with pytest.raises(ValueError, match="reduction must be at least 1 and finite, got"):
            calipers.recommend_tolerance("float32", reduction)
    with pytest.raises(ValueError, match=r"dtype must be one of float64, .* got None"):
        calipers.recommend_tolerance(None)
    for where in (None, 3, (), ["inputs", 3]):
        with pytest.raises(ValueError, match='where must be "inputs", "outputs" or both, got'):
            calipers.emulate(np.sin, "tf32", where=where)
    with pytest.raises(ValueError, match=r"arguments must hold positions .* got 1\.5"):
        calipers.emulate(np.sin, "tf32", arguments=1.5)


def test_a_result_that_is_none_among_others():
    """As of attention that was asked for no weights."""
    found = calipers.diagnose(lambda x: (total(x), None), lambda x: (backwards(x), None), X)
    assert found.ok({"ROUNDING", "LAYOUT"}), str(found)
    other = calipers.diagnose(lambda x: (total(x), None), lambda x: (total(x), x), X)
    assert other.kind == "BUG"
    assert "shape (8,), (0,), and g (8,), (8, 16)" in other.reason
    with pytest.raises(TypeError, match="f must return numbers, got None"):
        calipers.diagnose(lambda x: None, total, X)


def test_a_list_of_numbers_is_an_array():
    found = calipers.diagnose(lambda x: total(x).tolist(), lambda x: backwards(x).tolist(), X)
    assert found.shapes == ((8,),)
    assert found.ok({"ROUNDING", "LAYOUT"}), str(found)
    several = calipers.diagnose(lambda x: [x.sum(), 3], lambda x: [x.sum(), 3], X)
    assert several.shapes == ((), ())
    whole = calipers.diagnose(lambda x: [2**60, 2], lambda x: [2**60 + 1, 2], X)
    assert whole.kind == "BUG"


def test_a_property_that_inputs_have_to_rounding_is_told_from_another_function():
    """Rows sum to 1, but not exactly: what comes of that grows as inputs are moved."""
    x = np.exp(np.random.default_rng(0).standard_normal((16, 32), dtype=np.float32))
    x /= x.sum(axis=1, keepdims=True)

    def entropy(p):
        return -(p * np.log(p)).sum(axis=1)

    def of_any(p):
        whole = p.sum(axis=1)
        return np.log(whole) + entropy(p) / whole

    found = calipers.diagnose(entropy, of_any, x)
    assert found.kind == "SUSPECT"
    assert "equal for inputs of sum 1, orthogonal, or the like" in found.reason
    made = lambda f: lambda p: f(p / p.sum(axis=1, keepdims=True))  # noqa: E731
    assert calipers.diagnose(made(entropy), made(of_any), x).ok({"ROUNDING", "LAYOUT"})


@pytest.mark.parametrize(("pi", "told"), [(np.float32(np.pi), True), (3.14159, False)])
def test_constants_of_the_working_format_are_named_as_a_cause(pi, told):
    x = np.random.default_rng(0).uniform(0, 1, (20, 900)).astype(np.float32)
    f = lambda x: backwards(x * x.dtype.type(np.pi))  # noqa: E731
    found = calipers.diagnose(f, lambda x: (x * x.dtype.type(pi)).sum(axis=1), x)
    assert found.kind in ("SUSPECT", "BUG"), str(found)
    assert ("constants are of float32" in found.reason) == told


@pytest.mark.parametrize("seed", range(3))
def test_chaos_of_another_parameter_is_another_function(seed):
    """All digits of float32 are lost to the map, but not those of float64 in most results."""
    x = np.random.default_rng(seed).uniform(0.1, 0.9, 1000).astype(np.float32)

    def logistic(x, rate, other=False):
        for _ in range(60):
            x = x.dtype.type(rate) * (x - x * x) if other else x.dtype.type(rate) * x * (1 - x)
        return x

    f = lambda x: logistic(x, 3.9)  # noqa: E731
    found = calipers.diagnose(f, lambda x: logistic(x, 3.9001), x, batch=())
    assert found.kind in ("SUSPECT", "BUG")
    assert "symmetric" not in found.reason
    assert calipers.diagnose(f, lambda x: logistic(x, 3.9, True), x, batch=()).kind == "AMPLIFIED"


def test_results_of_other_dtypes_are_told():
    found = calipers.diagnose(total, lambda x: backwards(x).astype(float), X)
    assert found.ok({"ROUNDING", "LAYOUT"}), str(found)
    assert found.evidence["dtypes"] == {"f": ["float32"], "g": ["float64"]}
    assert "  dtypes: f gives float32, and g float64\n" in str(found)
    assert "dtypes" not in calipers.diagnose(total, backwards, X).evidence
    many = calipers.diagnose(lambda x: (x,) * 9, lambda x: (x.astype(float),) * 9, X)
    assert all(len(line) <= 80 for line in str(many).splitlines())


def held_as_integers(x, steps, axis, even=True):
    if even:
        step = np.abs(x).max(axis=axis, keepdims=True) / steps
        return np.rint(x / step) * step
    low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
    step = (high - low) / (2 * steps + 1)
    zero = np.rint(-low / step)
    return (np.clip(np.rint(x / step) + zero, 0, 2 * steps + 1) - zero) * step


@pytest.mark.parametrize(("form", "steps"), [("int8", 127), ("int4", 7)])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("even", [True, False])
def test_weights_held_as_integers_are_named_so(form, steps, axis, even):
    random = np.random.default_rng(0)
    x = random.standard_normal((32, 128), dtype=np.float32)
    w = random.standard_normal((64, 128), dtype=np.float32) / 11

    def f(x, w):
        return x @ w.T

    def g(x, w):
        return x @ held_as_integers(w, steps, axis, even).T.astype(x.dtype)

    found = calipers.diagnose(f, g, (x, w))
    assert (found.kind, found.format, found.arguments) == ("REDUCED", form, (1,)), str(found)
    calipers.assert_close(g(x, w), f(x, w), tolerance=found.recommend_tolerance())
    wrong = calipers.diagnose(f, lambda x, w: x.dtype.type(1.2) * g(x, w), (x, w))
    assert wrong.format not in ("int8", "int4"), str(wrong)


def test_noise_is_named_when_no_calls_are_left_to_explain_it():
    random = np.random.default_rng(0)
    x = random.standard_normal((32, 128), dtype=np.float32)

    def g(x, w):
        return x @ held_as_integers(w, 127, 1).T.astype(x.dtype)

    found = calipers.diagnose(lambda x, w: x @ w.T, g, (x, x), budget=125)
    assert (found.kind, found.format) == ("REDUCED", "bfloat16"), str(found)


@pytest.mark.parametrize("form", ["float16", "bfloat16", "tf32"])
@pytest.mark.parametrize("rows", [16, 64])
@pytest.mark.parametrize("length", [8, 256])
def test_one_rounding_in_between_is_named_however_little_is_left_of_it(form, rows, length):
    random = np.random.default_rng(length)
    x = random.standard_normal((rows, length), dtype=np.float32)
    w = (random.standard_normal((length, 32)) / np.sqrt(length)).astype(np.float32)
    v = (random.standard_normal((32, 8)) / 5).astype(np.float32)
    narrow = calipers.emulate(lambda y: y, form)

    def layers(x, w, v, between=lambda y: y):
        return np.tanh(between(x @ w)) @ v

    found = calipers.diagnose(layers, lambda *inputs: layers(*inputs, narrow), (x, w, v))
    assert found.kind == "REDUCED", str(found)
    # Much of a finer format and little of a coarser one are of a size.
    assert found.format in {"float16", form}


@pytest.mark.parametrize("seed", range(4))
def test_the_next_in_order_is_no_rounding(seed):
    """What sorting gives jumps from one number to another, but not as a format does."""
    random = np.random.default_rng(seed)
    x = random.uniform(1, 2, (8, 10 * 4**seed)).astype(np.float32)
    found = calipers.diagnose(lambda x: np.sort(x, 1)[:, 4], lambda x: np.sort(x, 1)[:, 5], x)
    assert found.kind == "BUG", str(found)


def test_a_bug_beside_long_sums_of_float64_is_no_lost_digits():
    """Their roundings on the way, and not the inputs' last places, are the wider format's noise."""
    x, w = np.random.default_rng(0).random((2, 20_000))

    def mean(x, w, one=0):
        return np.dot(x[::-1], w[::-1]) / (sum(w) - one)

    assert calipers.diagnose(mean, lambda x, w: mean(x, w, 1), (x, w), batch=()).kind == "BUG"
