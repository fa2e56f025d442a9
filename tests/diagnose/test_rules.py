"""Each rule of `diagnose` decides on made-up evidence, and not without its precondition."""

from types import SimpleNamespace

import numpy as np
import pytest

from calipers._diagnose import rules
from calipers._diagnose.arrays import Result
from calipers._diagnose.elsewhere import Arrangements, Elsewhere
from calipers._diagnose.inferred_formats import InferredFormat
from calipers._diagnose.noise_level import ErrorNorms
from calipers._diagnose.range_loss import RangeLoss
from calipers._diagnose.repeats import Repeats
from calipers._diagnose.thresholds import THRESHOLDS
from calipers._diagnose.verdict import KINDS

Y = np.linspace(1, 2, 40, dtype=np.float32)


def norms(size, broken=0):
    return ErrorNorms(size, size, size, size, broken, size * 1e-7)


class MadeUp(SimpleNamespace):
    """Evidence of two float32 functions that differ by `apart` units, and of nothing else."""

    def __init__(self, apart=1.0, **measured):
        d = np.full(Y.size, apart * 1e-7)
        super().__init__(
            thresholds=THRESHOLDS,
            form="float32",
            roundoff=2.0**-24,
            allowed=10.0,
            inputs=(Y,),
            evidence={},
            implementations={},
            compiled_parameters=[],
            results={"f": Result((Y,)), "g": Result((Y + d.astype(np.float32),))},
            result_f=Result((Y,)),
            result_g=Result((Y + d.astype(np.float32),)),
            join_numbers=lambda: None,
            repeats=Repeats(16),
            same_bits=False,
            equal_only_here=None,
            difference=d,
            difference_is_defined=True,
            scale=np.full(Y.size, 1e-7),
            errors={"f": norms(0.5), "g": norms(apart)},
            error_difference=norms(apart),
            worst_error=apart,
            within_rounding=apart <= 10,
            norms=lambda d: norms(float(np.max(np.abs(d))) / 1e-7),
            is_rounding=lambda size: size.robust <= 10,
            reference=Result((Y.astype(float),)),
            reference_name="f",
            has_named_reference=False,
            condition=1.0,
            wide=None,
            differ=None,
            wide_results={"f": None},
            integers=SimpleNamespace(differing=0, at_ties=None, text="3 of 40 integers differ"),
            wrong_integers=False,
            ignores_strides=None,
            other_numbers=None,
            ill_conditioned_matrix=None,
            fused=None,
            near_similarity=None,
            far_similarity=0.0,
            steady_error=norms(apart),
            flushed=np.zeros(Y.size, bool),
            range_loss=None,
            arrangements=Arrangements(),
            agrees_elsewhere=None,
            jumps=None,
            observed_reduction=None,
            difference_without_formats=None,
            stored_format=None,
            format_of_sums=None,
            inferred_format=None,
            quantum=None,
            constant_in_steps=None,
            digits_redrawn=False,
            redrawn_near=False,
            grows_in_float32=False,
            other_is_insensitive=False,
            typical_size=1.0,
            natural_size=1.0,
        )
        vars(self).update(measured)


def wide(*, differ=False, size=1.0, **measured):
    """Return what was measured in higher precision, as fields of the evidence."""
    made = SimpleNamespace(
        differ=differ,
        norms=norms(size),
        difference=np.full(Y.size, size * 1e-16),
        allowed=10.0,
        fine=2.0**-53,
        hidden=np.zeros(Y.size, bool),
        by_parameters=False,
        agree_unmoved=False,
        growth=1.0,
    )
    vars(made).update(measured)
    return {"wide": made, "differ": differ, "wide_results": {"f": None, "g": None}}


TIES = Elsewhere("3 of 40 results differ", "at perturbed inputs")
BFLOAT16 = InferredFormat(
    "g", "bfloat16", "rounding all arguments explains 99 % of its error", (0,)
)
FEW = np.arange(Y.size) < 3

# For each rule: evidence that it decides, and the same without one part of its precondition.
CASES = {
    "raises": [
        (MadeUp(repeats=Repeats(16, exception="g raises ValueError: no")), MadeUp()),
    ],
    "incomparable": [(MadeUp(result_g=Result((Y[1:],))), MadeUp())],
    "unrepeatable": [
        (MadeUp(repeats=Repeats(16, ("g",), 1e6)), MadeUp(repeats=Repeats(16, ("g",), 19.0))),
        (MadeUp(repeats=Repeats(16, ("g",), problem="g does not write all")), MadeUp()),
    ],
    "nondeterministic": [
        (MadeUp(repeats=Repeats(16, ("g",), 5.0)), MadeUp(1e4, repeats=Repeats(16, ("g",), 5.0))),
    ],
    "equal": [
        (MadeUp(0, same_bits=True), MadeUp(0, same_bits=True, equal_only_here="elsewhere not")),
    ],
    "out_of_range": [(MadeUp(range_loss=RangeLoss("g", "g returns inf")), MadeUp())],
    "other_function": [
        (MadeUp(1e4, far_similarity=0.99, **wide(differ=True)), MadeUp(1e4, far_similarity=0.99)),
        (MadeUp(1e4, wrong_integers=True), MadeUp(1e4)),
        (MadeUp(1e4, ignores_strides="g"), MadeUp(1e4)),
        (
            MadeUp(1e4, **wide(hidden=FEW), difference=np.where(FEW, 0.1, 0.0)),
            MadeUp(1e4, **wide(hidden=FEW, differ=True), difference=np.where(FEW, 0.1, 0.0)),
        ),
        (
            MadeUp(
                1e4,
                observed_reduction=("g", "bfloat16"),
                difference_without_formats=np.full(Y.size, 1e-3),
                **wide(differ=True),
            ),
            MadeUp(
                1e4,
                observed_reduction=("g", "bfloat16"),
                difference_without_formats=np.full(Y.size, 1e-3),
                **wide(differ=False),
            ),
        ),
    ],
    "hidden": [
        (MadeUp(**wide(differ=True)), MadeUp(**wide(differ=True, by_parameters=True))),
        (MadeUp(5.0, near_similarity=0.9), MadeUp(5.0, near_similarity=0.9, digits_redrawn=True)),
        (MadeUp(0, same_bits=True, equal_only_here="equal here"), MadeUp(0, same_bits=True)),
        (MadeUp(condition=1e4, other_is_insensitive=True), MadeUp(condition=1e4)),
        (MadeUp(arrangements=Arrangements(mixed="g mixes rows")), MadeUp()),
    ],
    "amplified": [
        (MadeUp(condition=1e4), MadeUp(condition=99.0)),
        (MadeUp(condition=1e4), MadeUp(condition=1e4, agrees_elsewhere=TIES)),
        (
            MadeUp(1e4, jumps="3 of 40 results differ"),
            MadeUp(1e4),
        ),
    ],
    "layout": [
        (
            MadeUp(arrangements=Arrangements(equal="in a batch of 1")),
            MadeUp(1e4, arrangements=Arrangements(equal="in a batch of 1")),
        ),
    ],
    "rounding": [
        (MadeUp(9.0), MadeUp(11.0)),
        (MadeUp(), MadeUp(form="bfloat16", format_of_sums=1)),
        (MadeUp(5.0), MadeUp(5.0, observed_reduction=("g", "bfloat16"))),
    ],
    "ties": [
        (MadeUp(1e4, agrees_elsewhere=TIES), MadeUp(1e4)),
        (
            MadeUp(integers=SimpleNamespace(differing=3, at_ties="nearby", text="3 of 40 differ")),
            MadeUp(integers=SimpleNamespace(differing=3, at_ties=None, text="3 of 40 differ")),
        ),
    ],
    "reduced": [
        (MadeUp(1e4, inferred_format=BFLOAT16), MadeUp(1e4)),
        (MadeUp(1e4, inferred_format=BFLOAT16), MadeUp(1e4, quantum=("g", 1e-7))),
        (
            MadeUp(
                1e4,
                observed_reduction=("g", "bfloat16"),
                difference_without_formats=np.zeros(Y.size),
                **wide(),
            ),
            MadeUp(
                1e4,
                observed_reduction=("g", "bfloat16"),
                difference_without_formats=np.zeros(Y.size),
                **wide(differ=True),
            ),
        ),
    ],
    "unstable": [
        (MadeUp(1e4, **wide(size=20.0)), MadeUp(1e4, **wide())),
        (MadeUp(1e4, **wide(), redrawn_near=True), MadeUp(1e4, **wide())),
        (MadeUp(1e4, **wide(size=20.0)), MadeUp(1e4, far_similarity=0.99, **wide(size=20.0))),
        (MadeUp(1e4, quantum=("g", 1e-7)), MadeUp(1e4)),
        (MadeUp(1e4, reference=None, errors={}, redrawn_near=True), MadeUp(1e4, redrawn_near=True)),
        (MadeUp(1e4, **wide(), constant_in_steps="g"), MadeUp(1e4, constant_in_steps="g")),
    ],
    "undecided": [
        (MadeUp(1e3, **wide()), MadeUp(1e5, **wide())),
        (MadeUp(1e3), MadeUp(1e5)),
        (MadeUp(1e3), MadeUp(1e3, has_named_reference=True)),
        (MadeUp(1e5, compiled_parameters=["g"]), MadeUp(1e5)),
        (MadeUp(1e5, compiled_parameters=["g"]), MadeUp(1e8, compiled_parameters=["g"])),
        (MadeUp(50.0, form="float64"), MadeUp(1e5, form="float64")),
    ],
    "different": [(MadeUp(1e5), None)],
}
RULES = {rule.reason.__name__: rule for rule in rules.RULES}


def test_there_are_sixteen_with_one_verdict_each():
    assert list(RULES) == list(CASES)
    assert len(RULES) <= 16
    assert {rule.kind for rule in RULES.values()} == set(KINDS)


@pytest.mark.parametrize(
    ("name", "number"), [(name, k) for name, cases in CASES.items() for k in range(len(cases))]
)
def test_a_rule_decides_where_its_precondition_holds(name, number):
    made, other = CASES[name][number]
    verdict = RULES[name](made)
    assert verdict is not None
    assert verdict.kind == RULES[name].kind
    assert verdict.reason
    assert other is None or RULES[name](other) is None


@pytest.mark.parametrize("name", list(CASES)[2:])
def test_no_rule_before_it_decides(name):
    """The first that holds is the rule itself, by the evidence that it is made for."""
    made = CASES[name][0][0]
    first = next(rule for rule in rules.RULES if rule(made) is not None)
    assert first.kind == RULES[name].kind


def test_the_format_and_the_arguments_are_those_of_the_evidence():
    verdict = rules.decide(MadeUp(1e4, inferred_format=BFLOAT16))
    assert (verdict.kind, verdict.format, verdict.arguments) == ("REDUCED", "bfloat16", (0,))
    assert "bfloat16 (inferred)" in verdict.reason
    named = rules.decide(MadeUp(1e4, inferred_format=InferredFormat("g", "tf32", "its error ...")))
    assert "tf32 or float16 (inferred)" in named.reason


def test_a_bias_is_no_rounding_to_a_format():
    biased = InferredFormat("g", "bfloat16", "its error ...", bias="1 % too large on average")
    verdict = rules.decide(MadeUp(1e4, inferred_format=biased))
    assert verdict.kind == "SUSPECT"
    assert "f and g differ by a factor" in verdict.reason


def test_fewer_calls_say_what_they_would_not_show():
    verdict = rules.decide(MadeUp(repeats=Repeats(3)))
    assert verdict.kind == "ROUNDING"
    assert "3 calls would miss a change in one call of four with 42 %" in verdict.reason


def test_results_that_change_within_rounding_are_noted():
    verdict = rules.decide(MadeUp(1e5, repeats=Repeats(16, ("g",), 5.0)))
    assert verdict.kind == "BUG"
    assert "also, g is not deterministic" in verdict.reason
