"""Verdicts on pairs of many fields, which were labelled when the rules stood."""

import numpy as np
import pytest

import calipers
from tests.data.test_verdict_cases import array
from tests.data.verdict_cases import CASES, EVERYDAY, FIELDS, HELD_OUT, KINDS, REVIEWED, TRANSFORMS

SEEDS = range(5)
PAIRS = FIELDS + EVERYDAY

# Wrong today, and why.
UNMENDED = {
    "implicit_steps": "a factor's roundings add up in twenty steps, and nothing wider is there",
    "lorenz_of_thirty_units": "of some rows float64 has no digits left, either",
    "oscillator_by_two_places_in_float32": "last places of inputs do not draw its lost digits anew",
    "oscillator_by_two_places_unasked": "last places of inputs do not draw its lost digits anew",
    "advection_by_weights_in_float64": "constants of float64 add up in forty steps",
    "wave_of_float32_angles_on_both_sides": "each side's noise is taken for what the other lacks",
    "wave_of_doubles_at_integers": "integers are moved by last places of float64 alone",
    "planck_that_overflows": "no call tells 0 by an overflow from 0 of which no digits are left",
}


def marked(case):
    why = UNMENDED.get(case.name)
    mark = pytest.mark.xfail(reason=why, strict=True) if why else ()
    return pytest.param(case, id=case.name, marks=mark)


@pytest.mark.parametrize("case", [marked(case) for case in PAIRS])
def test_pairs_of_other_fields(case):
    for seed in SEEDS:
        f, g, inputs = case.make(np.random.default_rng(seed))
        found = calipers.diagnose(f, g, inputs, **case.options)
        assert found.kind in case.kinds, f"seed {seed}: {found}"
        if case.kinds == {"REDUCED"}:
            assert found.format in case.formats


def test_names_and_fields():
    names = [case.name for case in (*CASES, *HELD_OUT, *REVIEWED, *TRANSFORMS, *PAIRS)]
    assert len(names) == len(set(names))
    assert {kind for case in PAIRS for kind in case.kinds} <= set(KINDS)
    assert {*UNMENDED} <= {*names}
    benign, bugs = (sum(getattr(case, name) for case in FIELDS) for name in ("benign", "bug"))
    assert benign >= 60
    assert bugs >= 60


def parts(y):
    """Return the arrays of a result, or of an input, which may be several."""
    if isinstance(y, dict):
        y = [*y.values()]
    several = y if isinstance(y, (list, tuple)) else [y]
    return [array(part) for part in several]


def results(f, inputs):
    """Return the numbers of all results, in a line."""
    return np.concatenate([np.ravel(y).astype(np.clongdouble) for y in parts(f(*inputs))])


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case.name)
def test_labels(case):
    """Bugs are there in the format itself, and what is called the same function agrees wider."""
    f, g, inputs = case.make(np.random.default_rng(0))
    before = [part.copy() for x in inputs for part in parts(x)]
    with np.errstate(all="ignore"):
        first, second = (results(side, inputs) for side in (f, g))
    after = [part for x in inputs for part in parts(x)]
    for x, was in zip(after, before, strict=True):
        np.testing.assert_array_equal(x, was)
    if case.name == "filter_that_keeps_its_state":  # right at first
        second = results(g, inputs)
    if first.shape != second.shape:
        assert case.bug
        return
    finite = np.isfinite(first) & np.isfinite(second)
    one_alone = not np.array_equal(np.isfinite(first), np.isfinite(second))
    apart = np.abs(first[finite] - second[finite])
    off = apart.max(initial=0) / max(np.abs(first[finite]).max(initial=0), 1e-300)
    single = not any(x.dtype == np.float64 for x in before)
    if case.bug:
        assert one_alone or off > (1e-7 if single else 1e-10)
        assert not case.kinds & {"ROUNDING", "AMPLIFIED", "EQUAL"}
    elif case.kinds == {"EQUAL"}:
        assert off == 0
        assert not one_alone
    elif case.kinds <= {"ROUNDING", "LAYOUT", "EQUAL"}:
        assert off < (1e-5 if single else 1e-13)
        assert not one_alone
