"""
The rules by which a verdict is found, in the order in which they are applied.

Each rule has one verdict. Its function is a pure function of the evidence, which returns the reason
of the verdict, or None if its precondition does not hold. What has not been measured yet is
measured when a rule first reads it, so that the order of conditions is that of their costs.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._core.dtypes import ROUNDOFF
from . import reasons
from .callables import describe_exceptions
from .evidence import Evidence
from .noise_level import finite_rms
from .results import comparable
from .verdict import (
    AMPLIFIED,
    BUG,
    EQUAL,
    LAYOUT,
    NONDETERMINISTIC,
    RAISES,
    RANGE,
    REDUCED,
    ROUNDING,
    SUSPECT,
    UNSTABLE,
    Verdict,
    as_multiple,
)

# A reason; that of REDUCED has the format and the rounded arguments as well.
Reason = str | tuple[str, str | None, tuple[int, ...] | None] | None


class Rule(NamedTuple):
    """A verdict, and the function that returns its reason or None."""

    kind: str
    reason: Callable[[Evidence], Reason]

    def __call__(self, e: Evidence) -> Verdict | None:
        reason = self.reason(e)
        return (
            None
            if not reason
            else Verdict(self.kind, *((reason,) if type(reason) is str else reason))
        )


def raises(e: Evidence) -> Reason:
    """Precondition: a function raises an exception, at once or when it is called again."""
    exception = describe_exceptions(e.implementations, e.results, e.inputs)
    if exception is None and comparable(e.result_f, e.result_g):
        exception = e.repeats.exception
    return exception


def incomparable(e: Evidence) -> Reason:
    """Precondition: both return, but other names, shapes or kinds of numbers."""
    e.join_numbers()
    return reasons.incomparable(e)


def unrepeatable(e: Evidence) -> Reason:
    """Precondition: results change from call to call by more than rounding."""
    r = e.repeats
    if r.problem is not None:
        return str(r.problem)
    changed = [name for name, x in e.implementations.items() if x.is_nondeterministic]
    if changed and not r.names:
        text = f"{replace(r, names=tuple(changed)).subject}: repeated calls at inputs perturbed by "
        text += "about 1 ulp differ by more than rounding "
    elif r.names and r.spread > 2 * e.allowed and r.format is None:
        text = (
            f"{r.subject}: calls with the same inputs differ by {as_multiple(r.spread)}, which no "
        )
        text += "order of summation explains "
    else:
        return None
    return f"{text}(dropout, a race, uninitialised memory)"


def nondeterministic(e: Evidence) -> Reason:
    """Precondition: results change from call to call as f and g differ, or at random."""
    r = e.repeats
    if not r.names or e.error_difference.broken:
        return None
    text = f"{r.subject}: calls with the same inputs differ by {as_multiple(r.spread)}, "
    if r.format is not None:
        return None if r.is_biased else r.explanation
    near = e.error_difference.robust <= max(e.allowed, 4 * r.spread) or e.within_rounding
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
        if _is_steady(e) and _is_steady_and_large(e):
            return reasons.steady(e)
        if _is_plain_rounding(e) and e.arrangements.dependent is not None:
            return f"{e.arrangements.dependent}: its rows depend on each other"
        return None
    if e.observed_reduction is not None and _differs_without_formats(e):
        assert e.difference_without_formats is not None
        size = e.norms(e.difference_without_formats)
        return reasons.observed(e) if size.robust > e.allowed else None
    if not e.differ or (e.stored_format is not None and not e.stored_format.bias):
        return None
    if e.error_difference.broken or e.far_similarity <= e.thresholds.persistent or _is_little(e):
        return None
    return reasons.different(e)


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
    a = e.arrangements if _is_plain_rounding(e) else None
    if a is None or a.for_this_length is None:
        return None
    return reasons.for_this_length(e)


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
    if e.far_similarity <= t.persistent and e.jumps.explained and not _at_ties(e):
        return reasons.jumps(e)
    return None


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
        return reasons.other_jumps(e) if e.reference is not None and e.jumps.explained else None
    return reasons.ties(e) if _at_ties(e) else None


def reduced(e: Evidence) -> Reason:
    """Precondition: one computes in a lower precision, observed or inferred, and no bug."""
    if e.error_difference.broken:
        return None
    if e.observed_reduction is not None:
        name, form = e.observed_reduction
        is_measured = e.difference_without_formats is not None
        small = reasons.times_expected(e, name, form) <= e.allowed
        same = (
            not _differs_without_formats(e)
            if is_measured
            else (small and e.far_similarity <= e.thresholds.persistent)
        )
        return (reasons.observed(e), form, None) if same else None
    if _loses_digits_in_both(e) or _reference_loses_digits(e) or e.quantum is not None:
        return None
    inference = e.inferred_format
    if inference is None or inference.bias:
        return None
    return reasons.inferred(e), inference.form, inference.arguments


def unstable(e: Evidence) -> Reason:
    """Precondition: the function is the same, and the cause of a loss of digits is seen."""
    if (
        e.error_difference.broken
        or e.differ
        or (e.inferred_format is not None and e.inferred_format.bias)
    ):
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
    if e.observed_reduction is not None and _differs_without_formats(e):
        return reasons.observed(e)
    if e.inferred_format is not None and e.inferred_format.bias:
        return reasons.inferred(e)
    if e.differ is False:
        return reasons.in_one_precision(e) if _is_as_of_constants(e) else None
    # An error from the reference that the caller names is an error.
    is_unknown = e.differ is None and not e.has_named_reference
    is_little = _is_little(e) or (is_unknown and _is_as_of_constants(e))
    return reasons.little(e) if is_little else None


def different(e: Evidence) -> Reason:
    """Precondition: no other rule explains the difference."""
    return reasons.different(e)


RULES: tuple[Rule, ...] = (
    Rule(RAISES, raises),
    Rule(BUG, incomparable),
    Rule(BUG, unrepeatable),
    Rule(NONDETERMINISTIC, nondeterministic),
    Rule(EQUAL, equal),
    Rule(RANGE, out_of_range),
    Rule(BUG, other_function),
    Rule(SUSPECT, hidden),
    Rule(AMPLIFIED, amplified),
    Rule(LAYOUT, layout),
    Rule(ROUNDING, rounding),
    Rule(SUSPECT, ties),
    Rule(REDUCED, reduced),
    Rule(UNSTABLE, unstable),
    Rule(SUSPECT, undecided),
    Rule(BUG, different),
)


def decide(e: Evidence) -> Verdict:
    """Apply the rules until one decides."""
    for rule in RULES:
        verdict = rule(e)
        if verdict is not None:
            e.evidence["rule"] = rule.reason.__name__
            return reasons.with_nonfinite(e, reasons.with_repeats(e, verdict))
    raise AssertionError  # the last rule always decides


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
    return e.condition <= e.thresholds.ill_conditioned or not _at_ties(e)


def _is_large_where_hidden(e: Evidence) -> bool:
    """Return True if most differences that larger results hide are more than constants cause."""
    assert e.reference is not None
    assert e.wide is not None
    sizes, hidden = np.abs(e.reference.numbers(np.float64)), e.wide.hidden
    distance = np.abs(e.difference)[hidden]
    # Their roundoff adds up to that of larger results.
    added = np.all(distance <= e.allowed * e.roundoff * finite_rms(sizes))
    large = bool(np.median(distance - e.thresholds.large * sizes[hidden]) > 0)
    return large and not (e.form == "float64" and added)


def _is_steady(e: Evidence) -> bool:
    """Return True if a difference within rounding stays, and no digits are lost that hide this."""
    if e.wide is not None or e.near_similarity is None:
        return False
    size = e.norms(np.where(e.zeros_by_constants, 0.0, e.difference))
    if size.rms * math.sqrt(e.near_similarity) <= e.thresholds.systematic:
        return False
    return not (e.digits_redrawn or e.quantum is not None or e.constant_in_steps is not None)


def _is_steady_and_large(e: Evidence) -> bool:
    """Return True if larger results hide a steady difference of small ones."""
    size, t = e.norms(np.where(e.zeros_by_constants, 0.0, e.difference)), e.thresholds
    return size.rms * e.roundoff > t.large and (e.near_similarity or 0.0) > t.persistent


def _is_within_but_for_flushed(e: Evidence) -> bool:
    """Return True if all results but those flushed to 0 are within rounding, and f and g differ."""
    flushed = np.logical_or(*e.flushed_by.values())
    if not flushed.any() or not e.differ:
        return False
    off = map(e.deviation, e.results.values())
    return all(e.is_rounding(e.norms(np.where(flushed, 0.0, d))) for d in off)


def _differs_without_formats(e: Evidence) -> bool:
    """Return True if f and g differ with float64 instead of the formats that ran."""
    d = e.difference_without_formats
    if d is None:
        return False
    return bool(e.differ) if e.wide is not None else not e.is_rounding(e.norms(d))


def _loses_digits_in_both(e: Evidence) -> bool:
    """Return True if the same function loses digits of the higher precision as well."""
    w = e.wide
    return w is not None and not w.differ and not w.norms.broken and w.norms.robust > w.allowed


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


def _is_little(e: Evidence) -> bool:
    """Return True if differences of float64 are a few times the limit, or an ulp of 1."""
    size, t = e.error_difference, e.thresholds
    if e.form != "float64":
        return False
    if size.robust <= t.single * e.allowed and size.peak <= t.single**2 * e.allowed:
        return True
    most = t.large**2 * finite_rms(e.result_f.numbers(np.float64))
    return _is_an_ulp_of_inputs(e) and bool(size.absolute <= most)
