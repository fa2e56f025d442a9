"""Integers that functions take as numbers: positions, times, counts."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from .answers import comparable
from .inputs import widened
from .inquiry import Inquiry
from .repeats import beside_unsteady
from .sides import BudgetError
from .units import MOVES, Moves, difference, rms_of
from .verdicts import AMPLIFIED, BUG, FAR, FEW, LAYOUT, ROUNDING, STEADY, SUSPECT, Verdict
from .within import within_rounding


def with_integers_as_numbers(q: Inquiry, verdict: Verdict) -> tuple[Verdict, Inquiry]:
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
    if verdict.kind in (BUG, SUSPECT) and places and known and q.standard is not None:
        with suppress(BudgetError):
            found = _as_numbers(q, places)
    return found or (verdict, q)


def _counts(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in "iu" and bool(x.any())


def _as_numbers(q: Inquiry, places: list[int]) -> tuple[Verdict, Inquiry] | None:
    inputs = tuple(x.astype(q.form) if k in places else x for k, x in enumerate(q.inputs))
    numbers = replace(q, inputs=inputs, evidence={})
    same = all(numbers.answers[name].bits() == y.bits() for name, y in q.answers.items())
    standing = numbers.standard is not None
    if not (same and standing and _is_smooth(numbers, places) and _is_drawn_anew(numbers)):
        return None
    found = within_rounding(numbers)
    if found is None or found.kind not in (AMPLIFIED, LAYOUT, ROUNDING):
        return None
    evidence = q.evidence | numbers.evidence | {"integers_as_numbers": True}
    numbers.inputs, numbers.evidence = q.inputs, evidence
    reason = f"with integer inputs treated as {q.form} numbers, {found.reason}"
    return beside_unsteady(numbers, replace(found, reason=reason)), numbers


def _is_smooth(q: Inquiry, places: list[int]) -> bool:
    """Tell whether results move as far as such numbers do: those of labels and lengths jump."""
    assert q.standard is not None
    side, r = q.standard
    moves = Moves([q.inputs[k] for k in places])
    sizes = []
    for delta in (q.roundoff / FAR, q.roundoff):
        changes = []
        for k in range(MOVES):
            moved = dict(zip(places, moves(delta, q.seed + 1200 + k, wide=True), strict=True))
            answer = side([moved.get(i, x) for i, x in enumerate(widened(q.inputs))])
            if not comparable(answer, r):
                return False
            changes.append(rms_of(difference(answer, r)))
        sizes.append(rms_of(np.array(changes)))
    return sizes[1] > FAR / 2 * sizes[0] > 0


def _is_drawn_anew(q: Inquiry) -> bool:
    """Tell whether a few last places make another difference of it."""
    found = [q.likeness(FEW * q.roundoff, q.seed + 1250 + k) or 0.0 for k in range(MOVES)]
    likeness = q.evidence["likeness_nearby"] = float(np.mean(found))
    return likeness < STEADY
