"""
The rules by which a verdict is found, in the order in which they are applied.

Each rule has one verdict. Its function is a pure function of the evidence, which returns the reason
of the verdict, or None if its precondition does not hold. What has not been measured yet is
measured when a rule first reads it, so that the order of conditions is that of their costs.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._core.dtypes import ROUNDOFF
from . import reasons
from .arrays import comparable, is_integer_array
from .callables import BudgetError
from .elsewhere import is_smooth
from .evidence import Evidence
from .noise_level import as_multiple, finite_rms
from .verdict import Kind, Verdict

# A reason; that of REDUCED has the format and the rounded arguments as well.
Reason = str | tuple[str, str | None, tuple[int, ...] | None] | None


class Rule(NamedTuple):
    """A verdict, and the function that returns its reason or None."""

    kind: Kind
    reason: Callable[[Evidence], Reason]

    def __call__(self, e: Evidence) -> Verdict | None:
        reason = self.reason(e)
        if not reason:
            return None
        return Verdict(self.kind, *((reason,) if isinstance(reason, str) else reason))


def raises(e: Evidence) -> Reason:
    """Precondition: a function raises an exception, at once or when it is called again."""
    raised = reasons.raises(e)
    if raised is None and comparable(e.result_f, e.result_g):
        return e.repeats.exception
    return raised


def incomparable(e: Evidence) -> Reason:
    """Precondition: both return, but other names, shapes or kinds of numbers."""
    e.join_numbers()
    return reasons.incomparable(e)


def unrepeatable(e: Evidence) -> Reason:
    """Precondition: results change from call to call by more than rounding."""
    r = e.repeats
    if r.problem is not None:
        return str(r.problem)
    if not r.names or r.spread <= 2 * e.allowed or r.format is not None:
        return None
    text = f"{r.subject}: calls with the same inputs differ by {as_multiple(r.spread)}, which no "
    return text + "order of summation explains (dropout, a race, uninitialised memory)"


def nondeterministic(e: Evidence) -> Reason:
    """Precondition: results change from call to call as f and g differ, or at random."""
    r = e.repeats
    if not r.names:
        return None
    text = f"{r.subject}: calls with the same inputs differ by {as_multiple(r.spread)}, "
    if r.format is not None:
        return None if r.is_biased else r.explanation
    near = e.error_difference.robust <= max(e.allowed, 4 * r.spread)
    return text + "which a different order of summation explains" if near and not e.differ else None


def equal(e: Evidence) -> Reason:
    """Precondition: all bits are equal, in repeated calls too, and most at far inputs."""
    if not e.same_bits or e.repeats.names or e.equal_only_here:
        return None
    return reasons.equal(e)


def out_of_range(e: Evidence) -> Reason:
    """Precondition: an intermediate value leaves the range of a format, or a domain."""
    return None if e.range_loss is None else (e.range_loss.text, e.range_loss.form, None)


def other_function(e: Evidence) -> Reason:
    """Precondition: the functions differ steadily, in every precision, or by structure."""
    if e.same_bits:
        return None
    if e.wrong_integers:
        return reasons.wrong_integers(e) if e.integers.at_ties is None else None
    if e.ignores_strides is not None:
        return reasons.strides(e)
    if _is_hidden_by_larger_results(e) and _is_large_where_hidden(e):
        return reasons.hidden_by_larger_results(e)
    if e.within_rounding:
        if _is_steady(e) and e.steady_error.rms * e.roundoff > e.thresholds.large:
            return reasons.steady(e)
        return None
    if e.observed_reduction is not None and _differs_without_formats(e):
        return reasons.observed(e)
    if not e.differ or (e.stored_format is not None and not e.stored_format.bias):
        return None
    if e.error_difference.broken or e.far_similarity <= e.thresholds.persistent or _is_little(e):
        return None
    return None if _may_be_of_parameters(e) else reasons.different(e)


def hidden(e: Evidence) -> Reason:
    """Precondition: within rounding, but not in higher precision, or steadily off."""
    if e.same_bits:
        return None if e.equal_only_here is None else str(e.equal_only_here)
    if e.repeats.names and e.repeats.is_biased:
        return str(e.repeats.explanation)
    if e.wrong_integers:
        return None
    if _is_hidden_by_larger_results(e):
        return reasons.hidden_by_larger_results(e)
    if not e.within_rounding and not _is_within_but_for_flushed(e):
        return None
    if e.condition > e.thresholds.ill_conditioned and e.other_is_insensitive:
        return reasons.insensitive(e)
    if e.wide is not None and e.wide.differ and not e.wide.by_parameters:
        return reasons.differ_in_higher_precision(e)
    if _is_steady(e):
        return reasons.steady(e)
    return reasons.mixed(e) if _is_plain_rounding(e) and e.arrangements.mixed else None


def amplified(e: Evidence) -> Reason:
    """Precondition: the function is the same, and its condition or jumps explain errors."""
    t = e.thresholds
    if e.same_bits or e.wrong_integers:
        return None
    if e.within_rounding:
        return (
            reasons.ill_conditioned(e)
            if e.condition > t.ill_conditioned and not _at_ties(e)
            else None
        )
    if e.reference is None or e.error_difference.broken or e.differ:
        return None
    low, high = sorted(size.robust for size in e.errors.values())
    is_loop = high <= min(t.single * e.allowed, 4 * low)
    if is_loop and e.condition > t.ill_conditioned and e.differ is False:
        return reasons.ill_conditioned(e)
    return reasons.jumps(e) if e.far_similarity <= t.persistent and e.jumps else None


def layout(e: Evidence) -> Reason:
    """Precondition: within rounding, and equal for a part of the batch or another layout."""
    if not _is_plain_rounding(e) or e.arrangements.equal is None:
        return None
    return reasons.layout(e)


def rounding(e: Evidence) -> Reason:
    """Precondition: both errors are as small as rounding of the operands allows."""
    return reasons.rounding(e) if _is_plain_rounding(e) else None


def ties(e: Evidence) -> Reason:
    """Precondition: differences vanish at perturbed inputs, or are those of other jumps."""
    t = e.thresholds
    if e.integers.differing:
        rest = e.norms(np.where(e.result_f.integers, 0.0, e.difference))
        if rest.broken or rest.robust > e.allowed or e.integers.at_ties is None:
            return None
        return reasons.integers_at_ties(e)
    if e.differ and e.condition <= t.ill_conditioned:
        return reasons.other_jumps(e) if e.jumps else None
    return reasons.ties(e) if _at_ties(e) else None


def reduced(e: Evidence) -> Reason:
    """Precondition: one computes in a lower precision, observed or inferred, and no bug."""
    if e.error_difference.broken:
        return None
    if e.observed_reduction is not None:
        name, form = e.observed_reduction
        if e.difference_without_formats is None:
            same = reasons.times_expected(e, name, form) <= e.allowed
        else:
            same = not _differs_without_formats(e)
        return (reasons.observed(e), form, None) if same else None
    if _loses_digits_in_both(e) or _reference_loses_digits(e) or e.quantum is not None:
        return None
    inference = e.inferred_format
    if inference is None or inference.bias:
        return None
    return reasons.inferred(e), inference.form, inference.arguments


def unstable(e: Evidence) -> Reason:
    """Precondition: the function is the same, and the cause of a loss of digits is seen."""
    if e.error_difference.broken or e.differ or _is_biased(e):
        return None
    if e.quantum is not None:
        return reasons.cancellation(e)
    if e.constant_in_steps is not None and (e.wide is not None or _is_an_ulp_of_inputs(e)):
        return reasons.steps(e)
    if e.wide is not None:
        # An error that only the working precision has may be that of another function.
        is_seen = _loses_digits_in_both(e) or e.redrawn_near
        is_redrawn = is_seen and e.far_similarity <= e.thresholds.persistent
        return reasons.lost_digits(e) if is_redrawn else None
    if _reference_loses_digits(e):
        return reasons.lost_by_reference(e) if e.far_similarity <= e.thresholds.persistent else None
    if e.reference is not None:
        return None
    if e.redrawn_near:
        return reasons.redrawn(e)
    is_redrawn = e.far_similarity <= e.thresholds.persistent
    return reasons.grown(e) if is_redrawn and e.grows_in_float32 else None


def undecided(e: Evidence) -> Reason:
    """Precondition: no cause is seen of a difference in one precision, or a little one."""
    if e.error_difference.broken or e.integers.differing:
        return None
    if _is_biased(e):
        return reasons.inferred(e)
    if e.differ is False:
        return reasons.in_one_precision(e) if _is_as_of_constants(e) else None
    # An error from the reference that the caller names is an error.
    is_unknown = e.differ is None and not e.has_named_reference
    if _is_little(e) or (is_unknown and _is_as_of_constants(e)):
        return reasons.little(e)
    return reasons.compiled_in(e) if _may_be_of_parameters(e) else None


def different(e: Evidence) -> Reason:
    """Precondition: no other rule explains the difference."""
    return reasons.different(e)


RULES: tuple[Rule, ...] = (
    Rule("RAISES", raises),
    Rule("BUG", incomparable),
    Rule("BUG", unrepeatable),
    Rule("NONDETERMINISTIC", nondeterministic),
    Rule("EQUAL", equal),
    Rule("RANGE", out_of_range),
    Rule("BUG", other_function),
    Rule("SUSPECT", hidden),
    Rule("AMPLIFIED", amplified),
    Rule("LAYOUT", layout),
    Rule("ROUNDING", rounding),
    Rule("SUSPECT", ties),
    Rule("REDUCED", reduced),
    Rule("UNSTABLE", unstable),
    Rule("SUSPECT", undecided),
    Rule("BUG", different),
)


def decide(e: Evidence) -> Verdict:
    """Apply the rules until one decides."""
    for rule in RULES:
        verdict = rule(e)
        if verdict is not None:
            e.evidence["rule"] = rule.reason.__name__
            return reasons.with_nonfinite(e, reasons.with_repeats(e, verdict))
    raise AssertionError  # the last rule always decides


def with_integers_as_numbers(e: Evidence, verdict: Verdict) -> tuple[Verdict, Evidence]:
    """
    Judge again with integer inputs as floating-point numbers, before a verdict of BUG or SUSPECT.

    Integers are exact, but values computed from them are rounded, such as the angle of position
    8192. The result is then exact for inputs perturbed by a few ulps (a backward error: Higham,
    Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5), and such perturbations
    redraw the error, unlike that of a different function.
    """
    positions = [k for k, x in enumerate(e.inputs) if is_integer_array(x) and x.any()]
    if (
        verdict.kind not in ("BUG", "SUSPECT")
        or not positions
        or e.form not in ("float32", "float64")
    ):
        return verdict, e
    with suppress(BudgetError):
        if not e.difference_is_defined or e.reference is None:
            return verdict, e
        numbers = e.with_integers_as(e.form)
        if numbers is None or numbers.reference is None or not is_smooth(numbers, positions):
            return verdict, e
        near = [
            numbers.similarity(e.thresholds.few * e.roundoff, e.seed + 1250 + k) or 0.0
            for k in range(e.thresholds.perturbations)
        ]
        alike = numbers.evidence["likeness_nearby"] = float(np.mean(near))
        if alike >= e.thresholds.persistent:
            return verdict, e
        vars(numbers)["repeats"] = e.repeats
        verdicts = (rule(numbers) for rule in RULES if rule.kind not in ("RAISES", "RANGE"))
        again = next(filter(None, verdicts))
        if again.kind in ("AMPLIFIED", "LAYOUT", "ROUNDING"):
            evidence = e.evidence | numbers.evidence | {"integers_as_numbers": True}
            numbers.inputs, numbers.evidence = e.inputs, evidence
            text = f"with integer inputs treated as {e.form} numbers, {again.reason}"
            return replace(again, reason=text), numbers
    return verdict, e


# What several rules ask


def _at_ties(e: Evidence) -> bool:
    """Return True if differences vanish at perturbed inputs, or are jumps of both precisions."""
    agreement = e.agrees_elsewhere
    if agreement is None:
        return False
    return bool(agreement.note) or (
        e.within_rounding and e.condition > e.thresholds.ill_conditioned
    )


def _is_plain_rounding(e: Evidence) -> bool:
    """Return True if nothing but rounding is to be explained."""
    if not e.within_rounding or e.same_bits or e.wrong_integers:
        return False
    if e.condition > e.thresholds.ill_conditioned and _at_ties(e):
        return False
    # The limit of many terms hides a lower precision whose roundoff is not much larger.
    is_low = ROUNDOFF[e.form] > ROUNDOFF["float32"]
    return not (_shows_lower_precision(e) or (is_low and e.format_of_sums is not None))


def _shows_lower_precision(e: Evidence) -> bool:
    """Return True if one was seen to compute in a lower precision, and has larger errors."""
    if not e.errors or e.observed_reduction is None:
        return False
    name, _ = e.observed_reduction
    other = e.errors["f" if name == "g" else "g"]
    return e.errors[name].robust > e.thresholds.constants * other.robust


def _is_hidden_by_larger_results(e: Evidence) -> bool:
    """Return True if differences in both precisions are above the limit only one by one."""
    if e.reference is None or e.wide is None or e.wide.differ:
        return False
    n, distance = int(np.count_nonzero(e.wide.hidden)), np.abs(e.difference)
    # Rounded constants cause errors of an ulp of 1: few results are as small.
    ulp = e.allowed * e.roundoff * e.typical_size
    constants = np.all(distance[e.wide.hidden] <= ulp) and 8 * n < distance.size
    if n in (0, distance.size) or constants:
        return False
    return e.condition <= e.thresholds.ill_conditioned


def _is_large_where_hidden(e: Evidence) -> bool:
    """Return True if differences that larger results hide are more than constants cause."""
    assert e.reference is not None
    assert e.wide is not None
    # Roundoff of constants of float64 adds up to that of larger results.
    added = e.allowed * e.roundoff * finite_rms(e.reference.numbers(np.float64))
    return e.form != "float64" or bool(np.any(np.abs(e.difference)[e.wide.hidden] > added))


def _is_steady(e: Evidence) -> bool:
    """Return True if a difference within rounding stays, and no digits are lost that hide this."""
    if e.wide is not None or e.near_similarity is None:
        return False
    if e.steady_error.rms * math.sqrt(e.near_similarity) <= e.thresholds.systematic:
        return False
    return not (e.digits_redrawn or e.quantum is not None or e.constant_in_steps is not None)


def _is_within_but_for_flushed(e: Evidence) -> bool:
    """Return True if all results but those flushed to 0 are within rounding, and f and g differ."""
    flushed = e.flushed
    if not flushed.any() or not e.differ:
        return False
    off = map(e.deviation, e.results.values())
    return all(e.is_rounding(e.norms(np.where(flushed, 0.0, d))) for d in off)


def _is_biased(e: Evidence) -> bool:
    """Return True if results of a lower precision are too large, or too small, on average."""
    return e.inferred_format is not None and bool(e.inferred_format.bias)


def _differs_without_formats(e: Evidence) -> bool:
    """Return True if f and g differ with float64 instead of the formats that ran."""
    d = e.difference_without_formats
    if d is None:
        return False
    return bool(e.differ) if e.wide is not None else not e.is_rounding(e.norms(d))


def _loses_digits_in_both(e: Evidence) -> bool:
    """Return True if the same function loses digits of the higher precision as well."""
    w = e.wide
    return w is not None and not w.differ and w.norms.robust > w.allowed


def _reference_loses_digits(e: Evidence) -> bool:
    """Return True if the only one with a higher precision is off its own result there."""
    name = e.reference_name
    return e.wide is None and name in e.errors and not e.is_rounding(e.errors[name])


def _is_an_ulp_of_inputs(e: Evidence) -> bool:
    """Return True if no difference is above the limit for results as large as the inputs."""
    return bool(np.abs(e.difference).max() <= e.allowed * e.roundoff * e.natural_size)


def _is_as_of_constants(e: Evidence) -> bool:
    """Return True if constants that are rounded to the working precision may cause all of it."""
    t, size = e.thresholds, finite_rms(e.result_f.numbers(np.float64))
    most = min(t.large, t.amplified_constants * e.roundoff)
    return float(np.abs(e.difference).max(initial=0)) <= most * size


def _may_be_of_parameters(e: Evidence) -> bool:
    """Return True if parameters that cannot be perturbed may cause all of it, if rounded."""
    size = finite_rms(e.result_f.numbers(np.float64))
    most = float(np.abs(e.difference).max(initial=0))
    return bool(e.compiled_parameters) and most <= e.thresholds.half * size


def _is_little(e: Evidence) -> bool:
    """Return True if differences of float64 are a few times the limit, or an ulp of 1."""
    size, t = e.error_difference, e.thresholds
    if e.form != "float64":
        return False
    if size.robust <= t.single * e.allowed and size.peak <= t.single**2 * e.allowed:
        return True
    most = t.large**2 * finite_rms(e.result_f.numbers(np.float64))
    return _is_an_ulp_of_inputs(e) and bool(size.absolute <= most)
