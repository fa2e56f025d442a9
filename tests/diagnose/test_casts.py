"""Where a part of a side's answer is taken for float32's, and where it no longer is."""

import numpy as np
import pytest

from calipers._diagnose.callables import Budget, Implementation
from calipers._diagnose.errors import find_partial_cast
from calipers._diagnose.evidence import Evidence

X = np.random.default_rng(0).uniform(1, 2, 20000).astype(np.float32)
UNIT = 2.0**-24
STEP = 4 * UNIT  # by which the line is followed


def side(noise=0.0, *, bent=0.0, factor=0.0):
    """Return x, off by units of rounding: at random, by a wave along x, and always as much."""

    def f(x):
        y = x.astype(np.float64)
        signs = np.where(np.sin(y * 1e13) > 0, 1.0, -1.0)
        wave = np.sin(2 * np.pi * y / (4 * STEP))
        return y * (1 + UNIT * (noise * signs + bent * wave + factor))

    return f


def told(f, g):
    budget = Budget(256)
    sides = Implementation("f", f, (X,), budget), Implementation("g", g, (X,), budget)
    q = Evidence(*sides, (X,), "float32", "fg")
    return find_partial_cast(
        q, {name: own(q.wide_inputs) for name, own in q.implementations.items()}
    )


@pytest.mark.parametrize(
    ("f", "g", "name"),
    [
        pytest.param(side(1.2 * 2**-8), side(), "f", id="apart by more than 2**-8 of a rounding"),
        pytest.param(side(0.8 * 2**-8), side(), None, id="by less: nothing is of the format"),
        pytest.param(side(1.0), side(0.22), "f", id="noise of which the other side has a fifth"),
        pytest.param(side(1.0), side(0.28), None, id="noise of both sides"),
        pytest.param(side(0.5), side(factor=1.8), "f", id="apart by less than 4 times the noise"),
        pytest.param(side(0.5), side(factor=2.1), None, id="by more: there is a function, too"),
        pytest.param(side(0.09, bent=1), side(), "f", id="bends that fall less than sixfold"),
        pytest.param(side(0.06, bent=1), side(), None, id="bends that fall as a wave's do"),
    ],
)
def test_a_part_in_the_working_format(f, g, name):
    assert told(f, g) == name
    assert told(g, f) == (name and "g")
