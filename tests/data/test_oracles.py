"""The oracle is judged too: against known verdicts and known roundings."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.data import oracles
from tests.data.closeness_cases import EDGE


@pytest.mark.parametrize(
    ("pair", "kwargs", "expected"), [c[1:] for c in EDGE], ids=[c[0] for c in EDGE]
)
def test_the_oracle_gives_the_known_verdicts(pair, kwargs, expected):
    assert oracles.isclose(*pair, **kwargs).tolist() == [expected]


@pytest.mark.parametrize("x", [0.1, 1 / 3, 1e308, 5e-324 * 2**60, -7.0])
def test_round53_keeps_doubles_and_rounds_as_ieee(x):
    assert round53_float(Fraction(x)) == x
    exact = Fraction(x) * Fraction(x + 1) if abs(x) < 1e100 else Fraction(x)
    assert round53_float(exact) == (x * (x + 1) if abs(x) < 1e100 else x)


def round53_float(x):
    return float(oracles.round53(x))


def test_sqrt53_is_the_correctly_rounded_root():
    rng = np.random.default_rng(0)
    for x in np.concatenate(
        [rng.random(200) * 10.0 ** rng.integers(-200, 200, 200), [4.0, 2.0, 1e-320]]
    ):
        assert float(oracles.sqrt53(Fraction(float(x)))) == math.sqrt(x)
