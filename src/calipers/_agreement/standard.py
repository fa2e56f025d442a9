"""What errors are measured from: a side's answer in the wider format, or the caller's own."""

from collections.abc import Callable

import numpy as np

from .answers import Answer, in_a_line, listed
from .sides import Side
from .units import Unit
from .verdicts import FLAT, ILL


def standard_of(
    sides: dict[str, Side],
    answers: dict[str, Answer],
    unit_of: Callable[[Side, Answer], Unit],
    is_rough: Callable[[str], bool],
) -> tuple[Side, Answer, Unit]:
    """Choose among the sides that answer in the wider format, and measure units there."""
    # Of two, the one that is finite where the other is not.
    finite = {
        name: int(np.isfinite(answer.numbers(np.float64)).sum()) for name, answer in answers.items()
    }
    first, *others = sorted(answers, key=lambda name: (-finite[name], name))
    # And the one that has a slope, where the other stays and jumps: that rounds, to some format.
    if others and is_rough(first) and not is_rough(others[0]):
        first, others = others[0], []
    unit = unit_of(sides[first], answers[first])
    for name in others:  # one that holds numbers in few bits does not feel small moves
        if unit.kappa < FLAT and finite[name] == finite[first]:
            other = unit_of(sides[name], answers[name])
            # Of one function: what magnifies on one side alone are its own doings.
            if FLAT <= other.kappa < ILL:
                return sides[name], answers[name], other
    return sides[first], answers[first], unit


def require_comparable(answer: Answer, own: Answer, roundoff: float) -> None:
    """Refuse an answer of the caller's function that a side's own cannot be measured from."""
    problem = _problem(answer, own, roundoff)
    if problem is not None:
        raise ValueError(f"float64 {problem}: pass f in higher precision")


def _problem(answer: Answer, own: Answer, roundoff: float) -> str | None:
    if answer.error is not None:
        return f"raises {in_a_line(answer.error)}"
    if answer.forms != own.forms:
        return f"returns shape {listed(answer.shapes)} instead of {listed(own.shapes)}"
    narrow = [
        x.dtype
        for x in answer.arrays
        if x.dtype.kind in "fc" and np.finfo(x.dtype).eps > max(roundoff, 2.0**-52)
    ]
    return f"returns {narrow[0]}" if narrow else None
