"""Verdicts on labelled pairs that are asked the other way round: no side is the first by right."""

import numpy as np
import pytest

import calipers
from calipers._diagnose.callables import Budget, Implementation, Result
from calipers._diagnose.noise_level import Perturbations, is_stepwise
from tests.data.verdict_cases import CASES, HELD_OUT, REVIEWED

from .pairs import decided_right, decided_wrong

TURNED = {"f": "g", "g": "f"}
NARROW = [case for case in (*CASES, *HELD_OUT, *REVIEWED) if case.kinds == {"REDUCED"}]
OTHERS = [case for case in (*CASES[::4], *HELD_OUT[::2], *REVIEWED[::2]) if case not in NARROW]

# Wrong today, and why.
KNOWN_WRONG = dict.fromkeys(
    ("variance_in_float64", "variance_that_loses_digits"),
    "without anything wider, what the first side loses is taken for what the function magnifies",
) | {"gelu_of_its_tail": "digits that are lost alike at all inputs"}


def turned(case, seed):
    f, g, inputs = case.make(np.random.default_rng(seed))
    options = dict(case.options)
    if options.get("float64") in TURNED:
        options["float64"] = TURNED[options["float64"]]
    return calipers.diagnose(g, f, inputs, **options)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", decided_right(NARROW, KNOWN_WRONG))
def test_a_narrower_format_is_told_of_either_side(case, seed):
    found = turned(case, seed)
    assert found.kind == "REDUCED", str(found)
    assert not case.formats or found.format in case.formats


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", decided_right(OTHERS, KNOWN_WRONG) + decided_wrong(OTHERS, KNOWN_WRONG)
)
def test_other_verdicts_are_the_same(case):
    found = turned(case, 0)
    assert found.kind in case.kinds, str(found)


X = np.random.default_rng(0).uniform(1, 2, 60).astype(np.float32)


def stepped(x):
    return np.rint(x * 64) / 64


@pytest.mark.parametrize(
    ("f", "rough"),
    [
        (np.exp, False),
        (lambda x: np.sin(50 * x), False),  # bent, and of shorter moves less
        (lambda x: np.exp(60 * x), False),
        (lambda x: np.ones_like(x), True),
        (stepped, True),
        (lambda x: np.exp(stepped(x)), True),
        (lambda x: x[:30] * stepped(x[30:]), True),
    ],
)
def test_what_stays_and_jumps_is_rough_and_what_is_bent_is_not(f, rough):
    side, wide = Implementation("f", f, [X], Budget(9)), X.astype(float)
    assert is_stepwise(side, Result((f(wide),)), Perturbations([X]), 0.1, 5) == rough


@pytest.mark.parametrize(
    ("f", "g", "name"),
    [
        (stepped, lambda x: x * x.dtype.type(1.001), "g"),
        (stepped, lambda x: np.floor(x * 64) / 64, "f"),
        (lambda x: x * 1, lambda x: x * x.dtype.type(1.001), "f"),
    ],
)
def test_errors_are_measured_from_the_first_side_unless_it_alone_rounds(f, g, name):
    assert calipers.diagnose(f, g, X).evidence["measured_from"] == name
