"""Results that differ at ties, which two functions decide otherwise, and no rounding."""

import numpy as np

from .._protocols import NDArray
from .._report import differing
from .inquiry import Inquiry
from .sides import Answer
from .units import difference, rms_of
from .verdicts import COARSEST, GROSS, SUSPECT, Verdict

_SAME = 0.9  # of the results that differ, those that differ as much in the wider format
_MOVES = 3  # chance may make two sides agree at one


def at_ties(q: Inquiry) -> Verdict | None:
    """
    Recognise differences that are the same in the wider format, and not there nearby.

    Where rounding decides at a tie, it decides otherwise in another format; and what is a tie by
    the function itself, as of numbers with the sum 1, is one where the inputs are moved.
    """
    if len(q.wide_answers) < 2 or not q.are_moved:
        return None
    f, g = q.wide_answers["f"], q.wide_answers["g"]
    there = difference(f, g)
    apart = _gross(q, q.apart, f) | _gross(q, there, f)
    same = apart & (np.abs(q.apart - there) <= GROSS * np.abs(there))
    n = int(np.count_nonzero(same))
    if not n or n < _SAME * np.count_nonzero(apart):
        return None
    for zeros in (False, True):
        if agree_nearby(q, zeros=zeros, wide=True):
            told = f"{differing(n, same.size, 'result')}, and by as much in the wider format"
            return Verdict(SUSPECT, f"{told}, {none_nearby(zeros)}")
    return None


def none_nearby(zeros: bool) -> str:
    """Say what results are whose differences vanish where inputs are moved, or zeros, too."""
    too = ", zeros too" if zeros else ""
    return f"but none where inputs are moved{too}: ties are decided otherwise"


def agree_nearby(q: Inquiry, *, zeros: bool = False, wide: bool = False) -> bool:
    """Tell whether the sides agree wherever inputs are moved far: no rounding in them is much."""
    for k in range(_MOVES):
        f, g = q.at_moved(2.0**-COARSEST, q.seed + 820 + k, zeros=zeros, wide=wide)
        if f.error or g.error or f.forms != g.forms:
            return False
        d = difference(f, g)
        if not np.isfinite(d).all() or _gross(q, d, f).any():
            return False
    return True


def _gross(q: Inquiry, d: NDArray, answer: Answer) -> NDArray:
    """Return which differences are more than rounding of the results, or of others beside them."""
    sizes = np.abs(answer.numbers(np.float64))
    typical = answer.spread(np.array([rms_of(part) for part in answer.split(sizes)]))
    beyond: NDArray = np.abs(d) > q.allowed * q.roundoff * np.maximum(sizes, typical)
    return beyond
