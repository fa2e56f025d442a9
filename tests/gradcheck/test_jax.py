"""Checks of jax functions: of pytrees, with more than arrays in them, and in batches."""

from collections import namedtuple

import numpy as np
import pytest

import calipers

jax = pytest.importorskip("jax")
jnp = jax.numpy
Pair = namedtuple("Pair", "a b")
X = np.array([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def leaves(shift=1.0):
    return jax.numpy.asarray(X), jax.numpy.asarray(X + shift)


def checked(f, *inputs, **options):
    return calipers.gradcheck(f, inputs, raise_exception=False, **options)


TREES = {
    "dict": (lambda a, b: {"a": a, "b": b}, lambda d: d["a"] * d["b"]),
    "list": (lambda a, b: [[a], b], lambda d: d[0][0] * d[1]),
    "named": (Pair, lambda d: d.a * d.b),
    "others": (
        lambda a, b: {"a": a, "n": 2, "s": "x", "z": None, "y": b},
        lambda d: d["a"] * d["y"],
    ),
    "integers": (lambda a, b: [a, jax.numpy.arange(3), b], lambda d: d[0] * d[1] * d[2]),
}


@pytest.mark.parametrize("options", [{}, {"fast_mode": True}, {"check_forward_ad": True}])
@pytest.mark.parametrize("name", TREES)
def test_arrays_in_an_input_are_inputs(name, options):
    make, f = TREES[name]
    report = checked(f, make(*leaves()), **options)
    assert report.verdict == "PASS"
    assert report.shape == (3, 6)
    with_others = checked(
        lambda s, d, y: s + y * f(d), 2.0, make(*leaves()), leaves()[0], **options
    )
    assert with_others.verdict == "PASS"
    assert with_others.shape == (3, 9)


OUTPUTS = {
    "dict": lambda x: {"s": jax.numpy.sin(x), "q": x * x},
    "nested": lambda x: [{"s": [jax.numpy.sin(x)]}, (x * x, None)],
    "named": lambda x: Pair(jax.numpy.sin(x), x * x),
    "complex": lambda x: {"e": jax.numpy.exp(1j * x), "n": jax.numpy.arange(3)},
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_arrays_in_an_output_are_outputs(name):
    report = checked(OUTPUTS[name], leaves()[0])
    assert report.verdict == "PASS"
    assert report.shape == (6, 3)


CONSTANTS = {
    "array": np.ones(2),
    "float32 array": np.ones(2, np.float32),
    "complex array": np.ones(2, complex),
    "integers": np.arange(2),
    "NumPy number": np.float64(2),
    "number": 2.0,
    "complex number": 2j,
    "integer": 2,
    "bool": True,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fast_mode": True},
        {"check_forward_ad": True, "check_batched_forward_grad": True, "check_batched_grad": True},
    ],
)
@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_of_numpy_and_python_are_outputs(name, options):
    constant = CONSTANTS[name]
    for f in (
        lambda x: (jnp.sin(x), constant),
        lambda x: (constant, jnp.sin(x)),
        lambda x: {"a": jnp.sin(x), "b": [constant]},
    ):
        assert checked(f, leaves()[0], **options).verdict == "PASS"

    @jax.custom_jvp
    def wrong(x):
        return jnp.sin(x)

    wrong.defjvp(lambda x, v: (jnp.sin(x[0]), v[0]))
    assert checked(lambda x: (constant, wrong(x)), leaves()[0], **options).verdict == "FAIL"


def test_second_derivatives_next_to_constants():
    def f(x):
        return 2.0, jnp.sin(x), np.ones(2)

    assert calipers.gradgradcheck(f, leaves()[0])


def test_a_function_that_returns_constants_alone_does_not_depend_on_its_inputs():
    for f in (lambda x: 2.0, lambda x: np.ones(2)):
        for fast_mode in (False, True):
            with pytest.warns(calipers.CalipersWarning, match="does not depend on the inputs"):
                assert checked(f, leaves()[0], fast_mode=fast_mode).vacuous


def wrong_in(name):
    """Return a function of a dict, or to one, whose gradient is wrong by one leaf."""

    @jax.custom_vjp
    def f(d):
        return {"p": d["a"] * d["b"], "q": d["a"] + d["b"]}

    def backward(d, w):
        right = {"a": w["p"] * d["b"] + w["q"], "b": w["p"] * d["a"] + w["q"]}
        return ({**right, name: 1.01 * right[name]},)

    f.defvjp(lambda d: (f(d), d), backward)
    return f


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(("name", "position"), [("a", 1), ("b", 2)])
def test_a_wrong_gradient_by_an_array_in_a_dict_is_found(name, position, fast_mode):
    a, b = leaves()
    f = wrong_in(name)
    report = checked(lambda s, d: f(d), a, {"a": a, "b": b}, fast_mode=fast_mode)
    assert report.verdict == "FAIL"
    assert report.worst.input == position


def test_chosen_inputs_are_counted_as_f_takes_them():
    a, b = leaves()
    f = lambda d, y: d["a"] * d["b"] * y  # noqa: E731
    for argnums, columns in ((0, 6), (1, 3), ((0, 1), 9), ((1, 0), 9)):
        report = checked(f, {"a": a, "b": b}, a, argnums=argnums)
        assert (report.verdict, report.shape) == ("PASS", (3, columns))
    for argnums in (2, -1):
        with pytest.raises(ValueError, match=f"argnums names input {argnums}"):
            checked(f, {"a": a, "b": b}, a, argnums=argnums)


def test_second_derivatives_by_arrays_in_a_dict():
    a, b = leaves()
    assert calipers.gradgradcheck(lambda d: d["a"] * d["b"], ({"a": a, "b": b},))
    assert calipers.gradgradcheck(lambda d, x: d["n"] * x * x, ({"n": 2.0}, a))


def test_batches_of_an_input_beside_arrays_of_the_library():
    calls = []

    def f(x, w):
        calls.append(x)
        return x * w.at[0].set(2.0), (x * w).sum()

    x = jax.numpy.arange(1.0, 21)
    assert checked(f, x, x[::-1]).verdict == "PASS"
    assert len(calls) < 20


def test_gradients_are_taken_in_batches():
    calls = []

    def f(x, w):
        calls.append(x)
        return jax.numpy.tanh(x @ w)

    x, w = jax.numpy.ones((5, 6)) / 9, jax.numpy.ones((6, 4)) / 9
    assert calipers.gradgradcheck(f, (x, w))
    assert len(calls) < 80


def test_formats_of_16_bits_are_checked_at_what_they_resolve():
    for kind in (jax.numpy.bfloat16, jax.numpy.float16):
        x = jax.numpy.array([0.5, 1.0, -0.75], kind)
        assert calipers.gradcheck(jax.numpy.sin, x).verdict == "PASS"
        doubled = lambda x, w: (2 * w * jax.numpy.cos(x),)  # noqa: E731
        report = calipers.gradcheck(jax.numpy.sin, x, vjp=doubled, raise_exception=False)
        assert report.verdict == "FAIL"
        ones = jax.numpy.ones(3)
        assert calipers.gradcheck(lambda x, k=kind: x.astype(k), ones).verdict == "PASS"


@pytest.mark.parametrize("place", [0, 1])
def test_none_among_outputs_is_nothing(place):
    def f(x, factor=1.0):
        y = [jax.numpy.sin(x) * factor]
        y.insert(place, None)
        return tuple(y)

    def wrong(x):
        return f(x, jax.lax.stop_gradient(x))

    x = jax.numpy.arange(1.0, 4.0)
    assert calipers.gradcheck(f, x)
    report = calipers.gradcheck(wrong, x, raise_exception=False)
    assert report.verdict == "FAIL"
    assert f"d out[{1 - place}][" in report.reason


@pytest.mark.slow
def test_a_value_that_is_not_believed_is_shown_with_as_large_an_error():
    """Attention computes in part in float32: of ladders some stand still, "0 ± 2.7e-08"."""
    random = np.random.default_rng(1)
    inputs = tuple(jax.numpy.asarray(random.normal(size=(1, 3, 1, 2))) for _ in range(3))
    found = calipers.gradcheck(jax.nn.dot_product_attention, inputs, raise_exception=False)
    assert found.verdict == "INCONCLUSIVE"
    assert all(
        abs(entry.analytic - entry.numerical) <= 2 * entry.error + 1e-6 * abs(entry.numerical)
        for entry in found.failures
    )


def rule(f, forward, backward):
    """Return a function of jax with a rule of its own for backward mode."""
    found = jax.custom_vjp(f)
    found.defvjp(forward, backward)
    return found


def wrong_rules():
    """Return functions with rules such as people write, their count of inputs, and what is told."""

    def product(x, y):
        return x * y

    def saved(x, y):
        return x * y, (x, y)

    def square(x):
        return x**2

    def alone(x):
        return x**2, x

    def size(z):
        return jnp.sum(jnp.abs(z) ** 2)

    def through(x):
        return x + jax.lax.stop_gradient(jnp.round(x) - x)

    def centered(x):
        return x - jax.lax.stop_gradient(x.mean())

    one_sided = rule(product, saved, lambda r, w: (w * r[1], None))
    swapped = rule(product, lambda x, y: (x * y, (y, x)), lambda r, w: (w * r[1], w * r[0]))
    clipped = rule(square, alone, lambda x, w: (2 * x * jnp.clip(w, -1, 1),))
    twice = rule(square, alone, lambda x, w: (4 * x * w,))
    lost = rule(square, alone, lambda x, w: (2 * jax.lax.stop_gradient(x) * w,))
    turned = rule(size, lambda z: (size(z), z), lambda z, w: (2 * w * z,))
    other = rule(product, lambda x, y: (1.0001 * x * y, (x, y)), lambda r, w: (w * r[1], w * r[0]))
    return {
        "None": (one_sided, 2, ": analytic 0, numerical"),
        "swapped": (swapped, 2, "the two are swapped"),
        "clipped": (clipped, 1, "not linear in its cotangent"),
        "twice": (twice, 1, "twice too large"),
        "straight through": (through, 1, "numerical 0"),
        "stopped": (centered, 1, "-0.25 is missing in every entry"),
        "conjugate": (turned, 0, "it is the conjugate of the right one"),
        "another value": (other, 2, "the primal value that jax.vjp returns differs from f(x)"),
        "second order": (lost, 1, "second order"),
    }


@pytest.mark.parametrize("name", wrong_rules())
def test_wrong_rules(name):
    f, count, told = wrong_rules()[name]
    inputs = tuple(jnp.linspace(0.3 + k, 1.9 + k, 4) for k in range(count))
    inputs = inputs or (jnp.linspace(0.3, 1.9, 4) * (1 - 2j),)
    second = name == "second order"
    report = checked(f, *inputs)
    assert report.verdict == ("PASS" if second else "FAIL")
    if second:
        report = calipers.gradgradcheck(f, inputs, raise_exception=False)
        assert report.verdict == "FAIL"
    assert told in str(report)


def test_the_gradient_of_a_root_by_the_implicit_function_theorem():
    @jax.jit
    def root(a):
        x = jnp.ones_like(a)
        for _ in range(30):
            x = x - (x**3 + x - a) / (3 * x**2 + 1)
        return x

    def by(slope):
        def forward(a):
            x = root(a)
            return x, x

        return rule(root, forward, lambda x, w: (w / slope(x),))

    a = jnp.linspace(0.5, 4, 5)
    assert checked(by(lambda x: 3 * x**2 + 1), a).verdict == "PASS"
    assert checked(by(lambda x: 3 * x**2), a).verdict == "FAIL"
