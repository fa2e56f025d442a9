"""How much of an error is there, too, where the inputs are what they are suspected to be."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .answers import Answer, comparable
from .inputs import movable, widened
from .inquiry import Inquiry
from .units import Moves, difference, rms_of, size_of
from .verdicts import COARSEST, EXPLAINED, FEW, ILL

Change = Callable[[list[Any]], list[Any] | None]  # of wide inputs, if it can be made

_ANEW = 4.0  # times that numbers change by, moved by which they change by something else
_AS_WELL = 0.5  # of what others leave
_OTHERS = 3  # inputs at which few errors have to be explained, too


def explained(q: Inquiry, name: str, change: Change) -> float:
    """Return the share of a side's error that the reference has, too, if its inputs change."""
    share = _explained_here(q, name, change)
    # Of few errors, or such as a function magnifies along few directions, one of twenty formats
    # explains what it has no part in.
    few = min(q.weighty, q.apart.size / 4) < FEW or q.unit.kappa > ILL
    if share <= EXPLAINED:
        return share
    if few and not _explained_elsewhere(q, name, change):
        return 0.0
    by_others = _as_well_by_others(q, q.answers[name], q.wide_inputs, change)
    return 0.0 if by_others else share


def _explained_here(q: Inquiry, name: str, change: Change) -> float:
    assert q.standard is not None
    side, r = q.standard
    answer, size = q.answers[name], q.errors[name]
    d, inputs = rms_of(difference(answer, r)), change(q.wide_inputs)
    if inputs is None or not d:
        return 0.0
    then = side(inputs)
    if not comparable(then, r):
        return 0.0
    unit = q.unit.values
    left = size_of(difference(answer, then), unit)
    # Of all results alike, and not only of some large ones.
    kept = max(left.absolute / d, left.rms / size.rms)
    changed = np.abs(difference(then, r)) > q.allowed * unit
    changed &= (unit > 0) & np.isfinite(unit)

    def half(other: Answer) -> float:
        """Return how many units half of the results that it changes are apart at most."""
        apart = np.abs(difference(answer, other)[changed]) / unit[changed]
        return float(np.median(apart)) if apart.size else 0.0

    if left.broken or half(then) > max(q.allowed, half(r)):
        return 0.0  # it would have brought errors to most of them, that are not there
    # What is 0 was lost, unless it is nothing at those inputs, too.
    lost = changed & (answer.numbers(np.float64) == 0)
    lost &= np.abs(then.numbers(np.float64)) > q.allowed * unit
    if np.count_nonzero(lost) > np.count_nonzero(changed) / 2:
        return 0.0
    return 1 - kept * kept


def _explained_elsewhere(q: Inquiry, name: str, change: Change) -> bool:
    assert q.standard is not None
    side = q.standard[0]
    for k in range(_OTHERS):
        x = q.moves(2.0**-COARSEST, q.seed + 980 + k, wide=False)
        wider = widened(x)
        inputs = change(wider)
        if inputs is None:
            return False
        y, r, then = q.sides[name](x), side(wider), side(inputs)
        if not comparable(y, r, then, q.of_f):
            return False
        left = rms_of(difference(y, then)) / (rms_of(difference(y, r)) or math.inf)
        if 1 - left * left < EXPLAINED or _as_well_by_others(q, y, wider, change):
            return False
    return True


def _as_well_by_others(q: Inquiry, answer: Answer, wider: list[Any], change: Change) -> bool:
    """
    Tell whether what becomes of other numbers, about the inputs, explains an error as well.

    Numbers that are cut off are all a little too small, and so is what a wrong factor leaves.
    """
    assert q.standard is not None
    side, inputs = q.standard[0], change(wider)
    assert inputs is not None
    r = side(wider)
    d = difference(answer, r)
    rest = d - difference(side(inputs), r)
    if q.is_rounding(q.size(rest, q.unit.values)):
        return False
    with np.errstate(invalid="ignore"):  # infinity less infinity
        by = [rms_of(inputs[k] - wider[k]) / (rms_of(wider[k]) or 1.0) for k in movable(wider)]
    x = Moves(wider)(min(2.0**-COARSEST, _ANEW * max(by)), q.seed + 990, wide=False)
    others = change(x)
    if others is None:
        return False
    then, there = side(others), side(x)
    if not comparable(then, there, r):
        return False
    return rms_of(rest) > _AS_WELL * rms_of(d - difference(then, there))


def argument_names(places: Sequence[int], q: Inquiry) -> str:
    if len(places) == len(movable(q.inputs)) > 1:
        return "all arguments"
    return f"argument{'s' * (len(places) > 1)} {' and '.join(map(q.title, places))}"
