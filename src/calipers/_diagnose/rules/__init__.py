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
from ..evidence import Evidence
from ..inputs import to_higher_precision
from ..noise_level import N_PERTURBATIONS, Perturbations, difference, finite_rms
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


def with_integers_as_numbers(e: Evidence, verdict: Verdict) -> tuple[Verdict, Evidence]:
    """
    Judge again with integer inputs as floating-point numbers, before a verdict of BUG or SUSPECT.

    Integers are exact, but values computed from them are rounded, such as the angle of position
    8192. The result is then exact for inputs perturbed by a few ulps (a backward error: Higham,
    Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5), and such perturbations
    redraw the error, unlike that of a different function.
    """
    positions = [k for k, x in enumerate(e.inputs) if _counts(x)]
    has_float_format = e.form in ("float32", "float64")
    judged = None
    if (
        verdict.kind in (BUG, SUSPECT)
        and positions
        and has_float_format
        and e.reference is not None
    ):
        with suppress(BudgetError):
            judged = _as_numbers(e, positions)
    return judged or (verdict, e)


def _counts(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in "iu" and bool(x.any())


def _as_numbers(e: Evidence, positions: list[int]) -> tuple[Verdict, Evidence] | None:
    inputs = tuple(x.astype(e.form) if k in positions else x for k, x in enumerate(e.inputs))
    numbers = replace(e, inputs=inputs, evidence={})
    same = all(numbers.results[name].bits() == y.bits() for name, y in e.results.items())
    standing = numbers.reference is not None
    if not (same and standing and _is_smooth(numbers, positions) and _is_drawn_anew(numbers)):
        return None
    verdict = within_rounding(numbers)
    if verdict is None or verdict.kind not in (AMPLIFIED, LAYOUT, ROUNDING):
        return None
    evidence = e.evidence | numbers.evidence | {"integers_as_numbers": True}
    numbers.inputs, numbers.evidence = e.inputs, evidence
    reason = f"with integer inputs treated as {e.form} numbers, {verdict.reason}"
    return with_nondeterminism_note(numbers, replace(verdict, reason=reason)), numbers


def _is_smooth(e: Evidence, positions: list[int]) -> bool:
    """Return True if results change smoothly with these inputs; labels and lengths make jumps."""
    assert e.reference is not None
    implementation, r = e.reference
    perturb = Perturbations([e.inputs[k] for k in positions])
    sizes = []
    for delta in (e.roundoff / FAR, e.roundoff):
        changes = []
        for k in range(N_PERTURBATIONS):
            perturbed = dict(
                zip(positions, perturb(delta, e.seed + 1200 + k, wide=True), strict=True)
            )
            result = implementation(
                [perturbed.get(i, x) for i, x in enumerate(to_higher_precision(e.inputs))]
            )
            if not comparable(result, r):
                return False
            changes.append(finite_rms(difference(result, r)))
        sizes.append(finite_rms(np.array(changes)))
    return sizes[1] > FAR / 2 * sizes[0] > 0


def _is_drawn_anew(e: Evidence) -> bool:
    """Return True if perturbations of a few ulps redraw the difference."""
    cosines = [
        e.similarity(FEW * e.roundoff, e.seed + 1250 + k) or 0.0 for k in range(N_PERTURBATIONS)
    ]
    similarity = e.evidence["likeness_nearby"] = float(np.mean(cosines))
    return similarity < STEADY


DiagnosisRule = Callable[[Evidence], Verdict | None]


def decide(e: Evidence) -> Verdict:
    """Apply the rules until one decides."""
    for rule in RULES:
        verdict = rule(e)
        if verdict is not None:
            return with_nondeterminism_note(e, verdict)
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
