"""Verdicts on labelled pairs that are asked the other way round: no side is the first by right."""

import numpy as np
import pytest

import calipers
from tests.data.verdict_cases import CASES, HELD_OUT, REVIEWED

from .pairs import decided_right, decided_wrong

TURNED = {"f": "g", "g": "f"}
NARROW = [case for case in (*CASES, *HELD_OUT, *REVIEWED) if case.kinds == {"REDUCED"}]
OTHERS = [case for case in (*CASES[::4], *HELD_OUT[::2], *REVIEWED[::2]) if case not in NARROW]

# Wrong today, and why.
KNOWN_WRONG = (
    dict.fromkeys(
        ("variance_in_float64", "variance_that_loses_digits"),
        "without a reference, digits that f loses are taken for those that the function amplifies",
    )
    | dict.fromkeys(
        ("decay_by_a_factor_float64", "growth_step_by_step_float64", "angles_of_positions"),
        "SUSPECT: no cause of a difference in one precision alone can be measured",
    )
    | {"softmax_of_half_products": "tf32 has as many digits as float16; the reason names both"}
)

# On some processors torch's vectors of 1 + erf round to 0, and its single numbers do not: a row by
# itself differs from the same row in a batch.
ALSO = {"gelu_of_vectors": "SUSPECT"}


def turned(case, seed):
    f, g, inputs = case.make(np.random.default_rng(seed))
    options = dict(case.options)
    if options.get("reference") in TURNED:
        options["reference"] = TURNED[options["reference"]]
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
    assert found.kind in case.kinds or found.kind == ALSO.get(case.name), str(found)


X = np.random.default_rng(0).uniform(1, 2, 60).astype(np.float32)


def stepped(x):
    return np.rint(x * 64) / 64


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
