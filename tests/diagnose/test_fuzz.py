"""Random pairs of functions, of which `diagnose` raises nothing that it does not document."""

import os
import warnings

import ml_dtypes
import numpy as np
import pytest

import calipers
from calipers._diagnose import diagnose as agreement
from calipers._diagnose.rules import RULES, decide
from calipers._diagnose.verdict import KINDS

# `CALIPERS_FUZZ=1000:7` runs 1000 pairs of seed 7.
COUNT, SEED = map(int, os.environ.get("CALIPERS_FUZZ", "100:0").split(":"))

FUNCTIONS = {
    "identity": lambda x: x,
    "copy": lambda x: x.copy(),
    "negative": lambda x: -x,
    "exp": np.exp,
    "log1p": np.log1p,
    "log of 1 +": lambda x: np.log(1 + x),
    "sqrt": np.sqrt,
    "sin": np.sin,
    "tan": np.tan,
    "tanh": np.tanh,
    "arccos": np.arccos,
    "expm1": np.expm1,
    "exp less 1": lambda x: np.exp(x) - 1,
    "inverse": lambda x: 1 / x,
    "square": lambda x: x * x,
    "cube": lambda x: x**3,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "zeros": np.zeros_like,
    "constant": lambda x: np.full(np.shape(x), 0.1),
    "nan": lambda x: np.full(np.shape(x), np.nan),
    "positive": lambda x: x > 0,
    "integers": lambda x: np.rint(x).astype(np.int64),
    "sum": np.sum,
    "mean": np.mean,
    "sums of rows": lambda x: x.sum(axis=-1),
    "cumsum": np.cumsum,
    "norm": lambda x: np.sqrt((x * x).sum()),
    "softmax": lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum(),
    "sort": lambda x: np.sort(x, axis=None),
    "argmax": np.argmax,
    "count": np.count_nonzero,
    "minimum": lambda x: np.minimum(x, x.dtype.type(1)),
    "complex": lambda x: x + 1j * x,
    "two results": lambda x: (x + 1, x > 0),
    "named results": lambda x: {"a": x, "b": np.abs(x).sum()},
    "no result": lambda x: x[:0],
    "python number": lambda x: float(np.abs(x).sum()),
    "raises": lambda x: x[10**6],
}


def mapped(change):
    """Change every array that a function returns."""

    def of_all(y):
        if isinstance(y, dict):
            return {key: of_all(x) for key, x in y.items()}
        return tuple(map(of_all, y)) if isinstance(y, tuple) else change(np.asarray(y))

    return lambda f: lambda x: of_all(f(x))


def noisy(f):
    random = np.random.default_rng(0)
    return lambda x: mapped(lambda y: y * (1 + 1e-7 * random.standard_normal(y.shape)))(f)(x)


WRAPPERS = {
    "as it is": lambda f: f,
    "float": mapped(lambda y: y.astype(complex if y.dtype.kind == "c" else float)),
    "float32": mapped(lambda y: y.astype(np.complex64 if y.dtype.kind == "c" else np.float32)),
    "float16": mapped(lambda y: y.astype(np.complex64 if y.dtype.kind == "c" else np.float16)),
    "longdouble": mapped(lambda y: y.astype("G" if y.dtype.kind == "c" else "g")),
    "int64": mapped(lambda y: np.nan_to_num(y.real).astype(np.float32).astype(np.int64)),
    "object inside": mapped(lambda y: y.astype(object).astype(y.dtype)),
    "negative zeros": mapped(lambda y: np.where(y == 0, -y, y) if y.dtype.kind in "fc" else y),
    "zeros added": mapped(lambda y: y + np.zeros_like(y)),
    "one ulp": mapped(lambda y: np.nextafter(y, np.inf) if y.dtype.kind == "f" else y),
    "one in a million": mapped(lambda y: y * (1 + 1e-6)),
    "twice": mapped(lambda y: y * 2),
    "plus the least": mapped(lambda y: y + np.finfo(y.dtype).tiny if y.dtype.kind == "f" else y),
    "turned": mapped(lambda y: y[::-1] if y.ndim else y),
    "flat": mapped(np.ravel),
    "shifted": mapped(lambda y: np.roll(y, 1)),
    "column-major": mapped(np.asfortranarray),
    "swapped bytes": mapped(lambda y: y.astype(y.dtype.newbyteorder())),
    "NaN first": mapped(lambda y: np.concatenate([y.ravel()[:1] * np.nan, y.ravel()[1:]])),
    "infinite": mapped(lambda y: y * np.inf),
    "flushed": mapped(lambda y: np.where(np.abs(y) < 1e-38, 0 * y, y)),
    "of float": lambda f: lambda x: f(np.asarray(x).astype(float)),
    "of float32": lambda f: lambda x: f(np.asarray(x).astype(np.float32)),
    "of float16": lambda f: lambda x: f(np.asarray(x).astype(np.float16)),
    "of turned": lambda f: lambda x: f(x[::-1] if np.ndim(x) else x),
    "of a copy": lambda f: lambda x: f(np.array(x)),
    "listed": lambda f: lambda x: [np.asarray(f(x)), np.float32(1)],
    "named": lambda f: lambda x: {"a": f(x)},
    "a tuple": lambda f: lambda x: (f(x),),
    "unlike itself": noisy,
}


def inputs_of(random):
    """Return inputs of one kind: their dtype, shape and layout, and the numbers that they hold."""
    shape = [(), (0,), (1,), (2,), (17,), (4, 5), (3, 0), (64, 32)][random.integers(8)]
    kinds = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, complex]
    kind = kinds[random.choice(len(kinds), p=[0.3, 0.3, 0.1, 0.1, 0.1, 0.05, 0.05])]
    x = random.standard_normal(shape) * 10.0 ** random.integers(-3, 3)
    x = [
        lambda: x,
        lambda: np.abs(x),
        lambda: np.zeros(shape),
        lambda: -np.zeros(shape),
        lambda: np.where(random.random(shape) < 0.3, 0 * x, x),
        lambda: np.full(shape, 0.1),
        lambda: np.where(random.random(shape) < 0.2, np.inf, x),
        lambda: np.where(random.random(shape) < 0.2, np.nan, x),
        lambda: x * 1e-40,
        lambda: x * 5e-324,
        lambda: x * 1e30,
        lambda: x * 1e300,
        lambda: np.rint(x),
        lambda: 1 + x * 1e-7,
        lambda: np.linspace(1e-5, 1e-4, max(1, x.size))[: x.size].reshape(shape),
        lambda: np.linspace(1e-7, 1e-3, max(1, x.size))[: x.size].reshape(shape),
    ][random.integers(16)]()
    with np.errstate(all="ignore"):
        if np.dtype(kind).kind in "iu":
            x = np.nan_to_num(x, posinf=9, neginf=0).clip(0, 200)
        x = np.asarray(x).astype(kind)
    if x.ndim and random.random() < 0.2:
        x = np.repeat(x, 2, axis=0)[::2]
    elif x.ndim == 2 and random.random() < 0.3:
        x = np.asfortranarray(x)
    return x if x.ndim or random.random() < 0.5 else x[()]


def cases(count, seed):
    random = np.random.default_rng(seed)
    names, wrappers = list(FUNCTIONS), list(WRAPPERS)
    for _ in range(count):
        f = names[random.integers(len(names))]
        g = f if random.random() < 0.8 else names[random.integers(len(names))]
        chain = random.choice(wrappers, random.integers(1, 3)).tolist()
        options = {"batch": ()} if random.random() < 0.7 else {}
        if random.random() < 0.3:
            options["reference"] = [None, "f", "g"][random.integers(3)]
        if random.random() < 0.2:
            options["budget"] = int(random.integers(2, 40))
        if random.random() < 0.05:
            options["dtype"] = ["float16", "bfloat16", "float32"][random.integers(3)]
        yield f, g, chain, inputs_of(random), options


def failures(count, seed, **more):
    """Diagnose random pairs; return what was raised, but for what is documented."""
    failed = []
    for k, (f, g, chain, x, options) in enumerate(cases(count, seed)):
        own, other = FUNCTIONS[f], FUNCTIONS[g]
        for name in chain:
            other = WRAPPERS[name](other)
        if k % 10 == 0:
            x, own, other = {"x": [x, 1]}, of_container(own), of_container(other)
        try:
            with np.errstate(all="ignore"):
                found = calipers.diagnose(own, other, x, seed=k, **options | more)
            check(found)
        except Exception as error:
            if is_documented(error):
                continue
            failed.append(f"{k}: {f}, {g} {chain}, {x!r:.60}, {options}: {error!r}")
    return failed


def of_container(f):
    return lambda inputs: f(inputs["x"][0])


def check(found):
    assert found.kind in KINDS
    assert str(found)
    assert found.to_dict()


def is_documented(error):
    return isinstance(error, (TypeError, ValueError)) and str(error).startswith(DOCUMENTED)


# What messages begin with: the argument's name.
DOCUMENTED = (
    *("f must return numbers", "g must return numbers", "batch names input", "dtype is "),
    *("actual", "expected", "reference"),
)


def test_random_pairs_have_a_verdict():
    assert not failures(COUNT, SEED)


def test_rules_depend_on_no_rule_before_them(monkeypatch):
    """Apply all rules to each pair, in a random order: none relies on what others exclude."""
    random = np.random.default_rng(SEED)

    def in_any_order(q):
        unlike = next(filter(None, (rule(q) for rule in RULES[:2])), None)
        if unlike is not None:
            return unlike
        for k in random.permutation(range(2, len(RULES))):
            verdict = RULES[k](q)
            assert verdict is None or (verdict.kind in KINDS and verdict.reason)
        return decide(q)

    monkeypatch.setattr(agreement, "decide", in_any_order)
    assert not failures(COUNT, SEED + 1, budget=100_000)


def test_random_arrays_have_a_verdict():
    for k, (f, g, chain, x, _) in enumerate(cases(COUNT, SEED + 2)):
        change = lambda y: y  # noqa: E731
        for name in chain:
            change = WRAPPERS[name](change)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                y = FUNCTIONS[f](np.asarray(x))
                arrays = y, change(y), FUNCTIONS[g](np.asarray(x).astype(float))
            except (IndexError, TypeError, ValueError):  # of these functions and arrays
                continue
        try:
            found = calipers.compare_to_reference(*arrays)
            check(found)
        except Exception as error:
            if not is_documented(error):
                raise AssertionError((k, f, g, chain, x.dtype, x.shape)) from error


@pytest.mark.parametrize(
    "changed",
    [
        lambda y: y.astype(float),
        lambda y: y.astype(np.longdouble),
        lambda y: np.where(y == 0, -y, y),
        lambda y: [float(v) for v in y],
    ],
)
@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.log(1 + x),
        lambda x: np.exp(x) - 1,
        lambda x: 1 - np.cos(x),
        lambda x: (x * x).mean(keepdims=True) - x.mean(keepdims=True) ** 2,
    ],
)
def test_equal_numbers_in_another_form_differ_by_nothing(f, changed):
    """However many digits both sides lose: the casts are all that is to be explained."""
    for x in (np.linspace(1e-5, 1e-4, 50, dtype=np.float32), np.float32([0, 1e-6, -0.0])):
        found = calipers.diagnose(f, lambda x: changed(f(x)), x, batch=())
        assert found.kind in ("EQUAL", "ROUNDING", "AMPLIFIED"), str(found)
