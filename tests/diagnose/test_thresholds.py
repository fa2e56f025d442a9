"""Each threshold of `diagnose` holds an answer on both sides of it: moved, the answer changes."""

import time
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from calipers._diagnose import inferred_formats, reasons, round_to_format, rules
from calipers._diagnose.arrays import Result
from calipers._diagnose.callables import Budget, Implementation
from calipers._diagnose.comparison import _roughness
from calipers._diagnose.evidence import Evidence
from calipers._diagnose.higher_precision import HigherPrecision
from calipers._diagnose.noise_level import ErrorNorms
from calipers._diagnose.thresholds import THRESHOLDS

from .test_rules import MadeUp, Y, wide

X = np.random.default_rng(0).uniform(1, 2, (8, 5)).astype(np.float32)
RULES = {rule.reason.__name__: rule for rule in rules.RULES}


def evidence(t, f, g, x=X, *, form="float32", source="auto", **settings):
    budget = Budget(256)
    pair = (Implementation(name, h, (x,), budget, form=form) for name, h in (("f", f), ("g", g)))
    return Evidence(*pair, (x,), form, source, thresholds=t, **settings)


def measure(name, stub):
    """Return a measurement of evidence on an object that has what it reads."""
    return next(vars(kind)[name] for kind in Evidence.__mro__ if name in vars(kind)).func(stub)


def decides(rule, made, t):
    made.thresholds = t
    return RULES[rule](made) is not None


def same(x):
    return x * 1


def times(factor):
    return lambda x: x * x.dtype.type(factor)


def single(t):
    stub = SimpleNamespace(thresholds=t, allowed=10.0)
    return Evidence.is_rounding(stub, ErrorNorms(1.0, 70.0, 1.0, 70.0, 0, 1.0))


def cost(name, t, g=None, **settings):
    e = evidence(t, same, g or times(1.001), **settings)
    getattr(e, name)
    return e.costs[name]


def reference_of_flat_functions(t):
    slope = lambda k: lambda x: 1 + x.dtype.type(k) * (x - x.dtype.type(1.5))  # noqa: E731
    return evidence(t, slope(0.05), slope(0.3)).reference_name


def sampled(t, effective_count=100.0, length=1):
    """Return how many differences are averaged, and the perturbation that redraws them."""
    deltas = []
    random = np.random.default_rng(0)

    def at(delta, seed):
        deltas.append(delta)
        return np.ones(50) + 0.1 * random.standard_normal(50)

    stub = SimpleNamespace(
        thresholds=t,
        length=length,
        roundoff=2.0**-24,
        seed=0,
        scale=np.ones(50),
        evidence={},
        effective_count=effective_count,
    )
    Evidence.mean_similarity(stub, np.ones(50), at)
    return len(deltas), deltas[0]


def redrawn(t, cosine=0.0):
    deltas = []

    def similarity(delta, seed):
        deltas.append(delta)
        return cosine

    stub = SimpleNamespace(
        thresholds=t, roundoff=2.0**-24, seed=0, effective_count=99, can_perturb=True
    )
    stub.similarity = similarity
    return measure("redrawn_near", stub), deltas[0]


def calls_left(t):
    stub = SimpleNamespace(thresholds=t, can_perturb=True, seed=0)
    stub.f = SimpleNamespace(budget=SimpleNamespace(remaining=5))
    stub.evaluate_perturbed = lambda *_: (Result(error=ValueError()), Result(error=ValueError()))
    called = []
    stub.evaluate_perturbed = lambda *_: called.append(1) or (Result(error=ValueError()),) * 2
    measure("equal_only_here", stub)
    return called


def directions(t):
    calls = []
    implementation = lambda x: calls.append(1) or Result((np.ones(3),))  # noqa: E731
    stub = SimpleNamespace(thresholds=t, seed=0, implementations={"f": implementation})
    stub.perturb = lambda *_, **__: [X]
    _roughness(stub, "f", Result((np.ones(3),)), 1e-7)
    return len(calls)


def cast(t, g=lambda x: np.sin(x.astype(np.float32)).astype(x.dtype)):
    e = evidence(t, np.sin, g)
    assert e.wide_results
    return e.rounds_inside


def partly(x):
    return np.sin(x) + (x / 20).astype(np.float32)


class Gain(HigherPrecision):
    gain = 2.0**20


def fall(t, *, within=False):
    return Gain(SimpleNamespace(thresholds=t, within_rounding=within)).expected_fall


def grown(t):
    x = np.random.default_rng(0).uniform(1e-3, 1e-2, 50)
    f, g = np.expm1, lambda x: np.exp(x) - 1
    return evidence(t, f, g, x, form="float64", source=None).grows_in_float32


def grid(t):
    stub = SimpleNamespace(thresholds=t, roundoff=2.0**-24, differ=None, natural_size=1.0)
    return round_to_format.narrowest_format(stub, np.array([1 + 1023 / 1024, 1 + 341 / 1024]))


def plain(t):
    stub = SimpleNamespace(thresholds=t, roundoff=2.0**-24, differ=None, natural_size=1.0)
    numbers = 1 + (2 * np.arange(10) + 1) / 256
    return round_to_format._plain(stub, numbers, "float16")


def cancelled(t):
    x = (1e-4 * np.random.default_rng(0).uniform(1, 2, 40)).astype(np.float32)
    one = np.float32(1)
    return evidence(t, same, lambda x: (one.astype(x.dtype) + x) - one, x).quantum is not None


def stays(t):
    d = np.ones(10)
    stub = SimpleNamespace(thresholds=t, roundoff=1e-3, scale=np.full(10, 1e-3), allowed=10.0)
    stub.seed, stub.difference = 0, d
    stub.perturbed_difference = lambda *_: d + np.where(np.arange(10) < 4, 0.0, 1.0)
    return inferred_formats._stays_for_most(stub, 0.8)


def biased(t):
    slopes = iter(0.01 * (1 + 0.2 * np.array([1, -1, 1, -1, 1, -1, 1, -1])))
    r = Result((np.ones(20),))
    f = lambda x: Result((np.ones(20) * (1 + next(slopes)),))  # noqa: E731
    stub = SimpleNamespace(thresholds=t, scale=np.ones(20), seed=0, reference_source=None)
    stub.implementations, stub.result_f = {"f": lambda x: r, "g": f}, r
    stub.perturb = lambda *_, **__: [X]
    return inferred_formats._bias(stub, "g", None)


def rescaled(t):
    x = (10**-19.8 * np.random.default_rng(0).uniform(1, 2, 400)).astype(np.float32)
    return evidence(t, same, lambda x: x * x / x, x, length=1).range_loss is not None


def constants(t):
    made = MadeUp(thresholds=t, **wide(differ=True, size=3 * 2.0**29))
    return "constants of" in reasons.differ_in_higher_precision(made)


def amplified_constants(t):
    size = ErrorNorms(1e6, 1e6, 1e6, 1e6, 0, 5e4 * 1.5 * 2.0**-53)
    made = MadeUp(1e6, thresholds=t, form="float64", roundoff=2.0**-53, error_difference=size)
    return "amplified" in reasons.different(made)


def flips(t):
    def g(x):
        y = x * 1
        y[3, 1] += x.dtype.type(1)
        return y

    return cost("jumps", t, g)


def repeated(t):
    def slow(x):
        time.sleep(0.05)
        return x * 1

    return evidence(t, slow, slow, source=None).repeats.calls


def unseen(t):
    return reasons.unseen(MadeUp(thresholds=t, repeats=SimpleNamespace(calls=12)))


# Of each threshold: an answer that it decides, and a number by which it is multiplied.
ANSWERS = {
    "base": (lambda t: evidence(t, same, same).allowed, 2),
    "single": (single, 0.5),
    "perturbations": (lambda t: cost("references", t), 2),
    "above": (lambda t: evidence(t, np.sin, np.sin, source=None).scale.tobytes(), 2),
    "ill_conditioned": (lambda t: decides("amplified", MadeUp(condition=150.0), t), 2),
    "insensitive": (reference_of_flat_functions, 0.5),
    "far": (lambda t: evidence(t, np.sin, lambda x: np.sin(2 * x)).far_similarity, 2),
    "redraw": (sampled, 2),
    "of_sums": (lambda t: sampled(t, length=100), 2),
    "coarse": (redrawn, 2),
    "persistent": (
        lambda t: decides(
            "other_function", MadeUp(1e4, far_similarity=0.95, **wide(differ=True)), t
        ),
        1.1,
    ),
    "unrelated": (lambda t: redrawn(t, 0.3)[0], 0.5),
    "systematic": (lambda t: decides("hidden", MadeUp(5.0, near_similarity=0.3), t), 2),
    "draws": (sampled, 2),
    "few_draws": (lambda t: sampled(t, effective_count=1.0), 2),
    "many": (lambda t: sampled(t, effective_count=20.0), 2),
    "few": (calls_left, 2),
    "directions": (directions, 2),
    "linear": (lambda t: cast(t, partly), 16),
    "rounded_inside": (cast, 1024),
    "gain_exponent": (fall, 0.9),
    "lucky": (lambda t: fall(t, within=True), 2),
    "large": (
        lambda t: decides("undecided", MadeUp(1e4, **wide(), far_similarity=0.95), t),
        0.5,
    ),
    "half": (lambda t: cast(t, lambda x: np.rint(np.sin(x) * 2) / 2), 0.1),
    "explained": (grown, 2),
    "grid": (grid, 2),
    "plain": (plain, 2),
    "cancelled": (cancelled, 64),
    "stays": (stays, 2),
    "biased": (biased, 4),
    "rescaled": (rescaled, 8),
    "constants": (constants, 0.5),
    "amplified_constants": (amplified_constants, 0.5),
    "flips": (flips, 2),
    "growth": (
        lambda t: (
            "times as much"
            in reasons.differ_in_higher_precision(
                MadeUp(thresholds=t, **wide(differ=True, growth=40.0))
            )
        ),
        2,
    ),
    "repeats": (unseen, 0.5),
    "seconds": (repeated, 0.5),
}


def test_there_are_at_most_forty():
    names = [field.name for field in fields(THRESHOLDS)]
    assert names == list(ANSWERS)
    assert len(names) <= 40
    text = type(THRESHOLDS).__doc__.partition("----------")[2]
    described = text.replace(",", " ").split()
    assert all(name in described for name in names)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_changes_with_the_threshold(name):
    answer, factor = ANSWERS[name]
    value = getattr(THRESHOLDS, name)
    moved = replace(THRESHOLDS, **{name: type(value)(value * factor)})
    assert moved != THRESHOLDS
    assert answer(moved) != answer(THRESHOLDS)


def test_the_made_up_differences_are_those_of_the_rules():
    assert MadeUp(5.0).difference.shape == Y.shape
