"""The labels of pairs of many fields are right: what each claims is measured here."""

import numpy as np
import pytest

from .test_verdict_cases import array
from .verdict_cases import CASES, EVERYDAY, FIELDS, HELD_OUT, KINDS, REVIEWED, TRANSFORMS

PAIRS = FIELDS + EVERYDAY


def test_names_and_fields():
    names = [case.name for case in (*CASES, *HELD_OUT, *REVIEWED, *TRANSFORMS, *PAIRS)]
    assert len(names) == len(set(names))
    assert {kind for case in PAIRS for kind in case.kinds} <= set(KINDS)
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
