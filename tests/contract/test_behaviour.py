"""The answers of calipers equal those that were recorded in the files of the folder `behaviour`.

After an intended change, `python -m tests.contract.behaviour PART` rewrites the file of a part.
"""

import pickle
import warnings

import numpy as np
import pytest

import calipers

from . import behaviour
from .reports import REPORTS, text_of

CLASSES = {
    *("Comparison", "NestedComparison", "Diagnosis", "GradcheckReport", "Derivative", "Growth"),
    *("Denormals", "GoldenCheck", "Trials", "Range", "Condition", "Exact", "SummationOrder"),
    *("Layers", "Tolerance", "ClosenessError", "WrongDerivativeError"),
}


# They take 10 s each. The verdicts in them are tested where the functions are: test_pairs_by_field,
# test_diagnose, test_handwritten_gradients and test_power.
SLOW = {"diagnose_fields", "diagnose_others", "gradcheck_models", "gradcheck_models_fast_mode"}
SLOW |= {"gradcheck_sparse_mutants"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in behaviour.PARTS],
)
def test_answers_equal_the_record(name):
    if not behaviour.available(name):
        pytest.skip("needs a library that is not installed")
    lines = behaviour.differences(behaviour.stored(name), behaviour.collected(name))
    shown = "\n".join(line[:300] for line in lines[:60])
    if lines:
        command = f"python -m tests.contract.behaviour {name}"
        pytest.fail(f"if these changes are intended: {command}\n{shown}", pytrace=False)


def test_reports_are_pickled():
    """An unpickled report prints the same text."""
    names = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [make() for make in REPORTS.values()]
    # Errors of NumPy, as AxisError, are not calipers' to pickle.
    for report in (x for x in made if type(x).__module__.startswith("calipers")):
        copy = pickle.loads(pickle.dumps(report))
        assert type(copy) is type(report)
        assert text_of(copy) == text_of(report)
        names.add(type(report).__name__)
    assert names >= CLASSES


def test_parts_of_reports_are_pickled():
    x = np.ones(2)
    difference = calipers.compare(x, x + 1).worst()
    diagnosis = calipers.diagnose(np.exp, np.expm1, x)
    entry = calipers.gradcheck(np.abs, x, vjp=lambda x, w: -w, raise_exception=False).worst
    trial = calipers.probes.repeat(np.abs, x).trials[0]
    layer = calipers.probes.layers([("abs", np.abs)], [("abs", np.abs)], x).layers[0]
    for part in (difference, diagnosis.worst[0], entry, trial, layer):
        assert pickle.loads(pickle.dumps(part)) == part


def test_differences_are_shown_before_and_after():
    before = {"a": {"kind": "BUG", "reason": "off by 1.2e-5 (limit 12)"}, "b": {"kind": "EQUAL"}}
    after = {"a": {"kind": "BUG", "reason": "off by 1.3e-5 (limit 12)"}, "b": {"kind": "EQUAL"}}
    assert behaviour.differences(before, after) == []
    after["a"]["reason"] = "off by 1.2e-5 (limit 13)"
    after["b"]["kind"] = "ROUNDING"
    shown = ["a, reason", "-off by 1.2e-5 (limit 12)", "+off by 1.2e-5 (limit 13)"]
    assert behaviour.differences(before, after) == [*shown, "b, kind", "-EQUAL", "+ROUNDING"]
    assert behaviour.differences({}, {"c": {"n": 1}}) == ["c, n", "-nothing", "+1"]
