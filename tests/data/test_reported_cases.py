"""The labels of cases after reports are what the two functions do, measured without diagnose."""

import numpy as np
import pytest

from tests.data import verdict_cases
from tests.data.verdict_cases import KINDS, MODELS, MODELS_WITH_BUGS, REPORTED, REPORTED_VERDICTS
from tests.data.verdict_cases.case import FORMATS

GROUPS = (
    "CASES",
    "EVERYDAY",
    "FIELDS",
    "HELD_OUT",
    "MODELS",
    "MODELS_WITH_BUGS",
    "REPORTED",
    "REPORTED_VERDICTS",
    "REVIEWED",
    "TRANSFORMS",
)
SAME = {"EQUAL", "ROUNDING", "LAYOUT"}
# The first call is right, or the bug is an order of draws: a second call in float64 shows neither.
STATEFUL = {"cache_of_the_shape"}


def named(case):
    return case.name


def is_tensor(x):
    return type(x).__module__ == "torch"


def array(x):
    return x.detach().double().numpy() if is_tensor(x) else np.asarray(x)


def wide(x):
    if is_tensor(x):
        return x.double() if x.is_floating_point() else x
    wider = {"e": np.float64, "f": np.float64, "F": np.complex128, "d": np.longdouble}
    return x.astype(wider.get(x.dtype.char, x.dtype)) if isinstance(x, np.ndarray) else x


def call(f, inputs):
    """Return the result, or None if f raises what a wrong argument does."""
    with np.errstate(all="ignore"):
        try:
            return array(f(*inputs))
        except (IndexError, ValueError, TypeError, RuntimeError):
            return None


def difference(a, b):
    """Return the largest difference relative to the largest result."""
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    a, b = (x[np.isfinite(x)].astype(np.clongdouble) for x in (a, b))
    return float(np.abs(a - b).max(initial=0) / max(np.abs(a).max(initial=0), 1e-300))


def test_there_are_enough_of_each():
    without_torch = [case for case in REPORTED if not case.needs]
    assert len(without_torch) >= 300
    bugs = sum(case.bug for case in without_torch)
    benign = sum(case.benign for case in without_torch)
    assert 0.4 < bugs / (bugs + benign) < 0.6
    assert {kind for case in REPORTED for kind in case.kinds} == set(KINDS)
    assert len(MODELS) == len(MODELS_WITH_BUGS) == 36 or not MODELS


def test_names_are_unique():
    names = [case.name for group in GROUPS for case in getattr(verdict_cases, group)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "case", REPORTED + REPORTED_VERDICTS + MODELS + MODELS_WITH_BUGS, ids=named
)
def test_fields(case):
    assert case.kinds
    assert case.kinds <= set(KINDS)
    assert case.options.keys() <= {"dtype", "reference", "reduction", "batch"}
    assert set(case.formats) <= {*FORMATS, "float32", "int8"}
    assert case.formats or case.kinds != {"REDUCED"}


@pytest.mark.parametrize("case", REPORTED, ids=named)
def test_labels_hold_in_higher_precision(case):
    """The same functions agree there, other ones differ, and neither changes its inputs."""
    for seed in range(2):
        f, g, inputs = case.make(np.random.default_rng(seed))
        before = [array(x).copy() for x in inputs]
        results = call(f, inputs), call(g, inputs)
        assert sum(y is None for y in results) == ("RAISES" in case.kinds)
        for x, y in zip(inputs, before, strict=True):
            np.testing.assert_array_equal(array(x), y)
        if "RAISES" in case.kinds:
            continue
        if case.kinds == {"EQUAL"}:
            np.testing.assert_array_equal(*results)
        higher = [call(h, tuple(map(wide, inputs))) for h in (f, g)]
        if case.name in STATEFUL or any(y is None for y in higher):
            continue  # SciPy's functions and LAPACK have no longdouble
        is_double = any(array(x).dtype == np.float64 and not is_tensor(x) for x in inputs)
        if case.bug:
            assert difference(*higher) > (1e-12 if is_double else 1e-9)
        elif case.kinds <= SAME:
            assert difference(*higher) < (1e-15 if is_double else 1e-12)
            assert difference(*results) < 1e-4


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", MODELS, ids=named)
def test_bugs_of_models_are_planted(case):
    """Model and input are those of the right case, and the results of g differ from its ones."""
    (other,) = (c for c in MODELS_WITH_BUGS if c.name == f"{case.name}_with_a_bug")
    f, g, inputs = case.make(np.random.default_rng(0))
    same, wrong, others = other.make(np.random.default_rng(0))
    np.testing.assert_array_equal(inputs[0], others[0])
    np.testing.assert_array_equal(call(f, inputs), call(same, inputs))
    try:
        g(*inputs)
    except RuntimeError as error:
        if "could not create a primitive descriptor" not in str(error):
            raise
        pytest.skip("this processor does not run the model in this format")
    assert difference(call(f, inputs), call(g, inputs)) < 0.1
    assert difference(call(g, inputs), call(wrong, inputs)) > 0
