"""
The rules by which a verdict is found, in the order in which they are applied.

The first two judge results that cannot be compared number by number. All others may be applied to
any results that can: what an earlier rule excludes is defined where a later one measures it.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ..callables import BudgetError, comparable
from ..error_units import N_PERTURBATIONS, Perturbations, difference, rms_of
from ..evidence import Evidence
from ..inputs import to_higher_precision
from ..verdict import AMPLIFIED, BUG, FAR, FEW, LAYOUT, ROUNDING, STEADY, SUSPECT, Verdict
from .bug import (
    another_function,
    digits_lost_alike,
    hidden_by_larger_results,
    ignores_strides,
    jumps,
    loses_digits,
    steady_difference,
    unstable,
)
from .equal import exact_integers, integers_at_ties, one_raises, other_shapes, same_bits
from .grids import few_digits_left, on_a_grid
from .no_reference import grows_in_float32, outside_by_rounding, overflow_alone, stays_in_steps
from .nondeterminism import nondeterministic_when_perturbed, with_nondeterminism_note
from .overflow_underflow import better_when_rescaled, flushed, nothing_left, overflow
from .quantization import quantised_inputs
from .reduced_precision import narrowed_inputs, noise_in_between
from .rounding import within_rounding


def with_integers_as_numbers(q: Evidence, verdict: Verdict) -> tuple[Verdict, Evidence]:
    """
    Judge again as if integers were numbers of the working format, before two functions are told.

    They have no last places, but what is computed of them has: an angle of position 8192 is off by
    that many. The answer is then the right one for inputs that are off by last places (a backward
    error: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5), and moves
    by these draw the error anew, as they do of no other function.
    """
    places = [k for k, x in enumerate(q.inputs) if _counts(x)]
    known = q.form in ("float32", "float64")
    found = None
    if verdict.kind in (BUG, SUSPECT) and places and known and q.reference is not None:
        with suppress(BudgetError):
            found = _as_numbers(q, places)
    return found or (verdict, q)


def _counts(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in "iu" and bool(x.any())


def _as_numbers(q: Evidence, places: list[int]) -> tuple[Verdict, Evidence] | None:
    inputs = tuple(x.astype(q.form) if k in places else x for k, x in enumerate(q.inputs))
    numbers = replace(q, inputs=inputs, evidence={})
    same = all(numbers.results[name].bits() == y.bits() for name, y in q.results.items())
    standing = numbers.reference is not None
    if not (same and standing and _is_smooth(numbers, places) and _is_drawn_anew(numbers)):
        return None
    found = within_rounding(numbers)
    if found is None or found.kind not in (AMPLIFIED, LAYOUT, ROUNDING):
        return None
    evidence = q.evidence | numbers.evidence | {"integers_as_numbers": True}
    numbers.inputs, numbers.evidence = q.inputs, evidence
    reason = f"with integer inputs treated as {q.form} numbers, {found.reason}"
    return with_nondeterminism_note(numbers, replace(found, reason=reason)), numbers


def _is_smooth(q: Evidence, places: list[int]) -> bool:
    """Tell whether results move as far as such numbers do: those of labels and lengths jump."""
    assert q.reference is not None
    side, r = q.reference
    moves = Perturbations([q.inputs[k] for k in places])
    sizes = []
    for delta in (q.roundoff / FAR, q.roundoff):
        changes = []
        for k in range(N_PERTURBATIONS):
            moved = dict(zip(places, moves(delta, q.seed + 1200 + k, wide=True), strict=True))
            answer = side([moved.get(i, x) for i, x in enumerate(to_higher_precision(q.inputs))])
            if not comparable(answer, r):
                return False
            changes.append(rms_of(difference(answer, r)))
        sizes.append(rms_of(np.array(changes)))
    return sizes[1] > FAR / 2 * sizes[0] > 0


def _is_drawn_anew(q: Evidence) -> bool:
    """Tell whether a few last places make another difference of it."""
    found = [
        q.similarity(FEW * q.roundoff, q.seed + 1250 + k) or 0.0 for k in range(N_PERTURBATIONS)
    ]
    likeness = q.evidence["likeness_nearby"] = float(np.mean(found))
    return likeness < STEADY


DiagnosisRule = Callable[[Evidence], Verdict | None]


def decide(q: Evidence) -> Verdict:
    """Apply the rules until one decides."""
    for rule in RULES:
        verdict = rule(q)
        if verdict is not None:
            return with_nondeterminism_note(q, verdict)
    raise AssertionError  # the last rule always decides


RULES: tuple[DiagnosisRule, ...] = (
    one_raises,
    other_shapes,
    same_bits,
    exact_integers,
    nondeterministic_when_perturbed,
    hidden_by_larger_results,
    overflow,
    flushed,
    within_rounding,
    integers_at_ties,
    nothing_left,
    steady_difference,
    ignores_strides,
    jumps,
    unstable,
    on_a_grid,
    few_digits_left,
    narrowed_inputs,
    better_when_rescaled,
    digits_lost_alike,
    noise_in_between,
    loses_digits,
    quantised_inputs,
    grows_in_float32,
    outside_by_rounding,
    overflow_alone,
    stays_in_steps,
    another_function,
)
