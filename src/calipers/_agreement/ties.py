"""Results that differ at ties, which two functions decide otherwise, and no rounding."""

import numpy as np

from .._protocols import NDArray
from .._report.comparison import differing
from .answers import Answer, comparable
from .inquiry import Inquiry
from .units import difference, rms_of
from .verdicts import COARSEST, GROSS, REDRAW, SUSPECT, Verdict

_SAME = 0.9  # of the results that differ, those that differ as much in the wider format
_MOVES = 3  # chance may make two sides agree at one
_FAR = 2.0**-COARSEST  # of an input
AGREE_ELSEWHERE = (
    "but agree at perturbed inputs: ties, or special values of these inputs, are treated "
    "differently"
)


def at_ties(q: Inquiry) -> Verdict | None:
    """
    Recognise differences that are the same in the wider format, and not there nearby.

    Where rounding decides at a tie, it decides otherwise in another format; and what is a tie by
    the function itself, as of numbers with the sum 1, is one where the inputs are moved.
    """
    told = _same(q, q.allowed * q.roundoff) if q.are_moved else None
    if told is None:
        return None
    # Farther away, one side may be another function: one that is right for one turn, say.
    for zeros, delta in ((False, _FAR), (True, _FAR), (False, min(_FAR, REDRAW * q.roundoff))):
        if agree_nearby(q, delta, zeros=zeros, wide=True):
            return Verdict(SUSPECT, f"{told}, {none_nearby(zeros)}")
    return None


def no_rounding(q: Inquiry) -> Verdict | None:
    """
    Recognise differences that are the same in the wider format, where a jump is as large.

    Where the sides do not both answer in it, what is magnified is so nearby, too, and ties are not:
    unless rounding decides those of the side that does, which is another one in the wider format.
    """
    if len(q.wide_answers) < 2:
        apart = _beyond(q.allowed * q.roundoff, q.apart, q.of_f)
        if not apart.any() or _decided_by_rounding(q) or not agree_elsewhere(q):
            return None
        differ = differing(int(np.count_nonzero(apart)), apart.size, "result")
        return Verdict(SUSPECT, f"{differ}, {AGREE_ELSEWHERE}")
    told = _same(q, GROSS)
    if told is None:
        return None
    return at_ties(q) or Verdict(SUSPECT, f"{told}, at discontinuities: this is not rounding")


def _same(q: Inquiry, least: float) -> str | None:
    """Tell of differences of a share of the results, if the wider format has nearly all of them."""
    if len(q.wide_answers) < 2:
        return None
    f, g = q.wide_answers["f"], q.wide_answers["g"]
    there = difference(f, g)
    apart = _beyond(least, q.apart, f) | _beyond(least, there, f)
    same = apart & (np.abs(q.apart - there) <= GROSS * np.abs(there))
    n = int(np.count_nonzero(same))
    if not n or n < _SAME * np.count_nonzero(apart):
        return None
    return f"{differing(n, same.size, 'result')}, by as much in higher precision"


def _decided_by_rounding(q: Inquiry) -> bool:
    """Tell whether rounding moves what is known in the wider format, and not the other side."""
    if q.standard is None:
        return False
    r = q.standard[1]
    off = (difference(q.answers[name], r) for name in q.wide_answers or q.answers)
    return all(_beyond(q.allowed * q.roundoff, d, r).any() for d in off)


def none_nearby(zeros: bool) -> str:
    """Say what results are whose differences vanish where inputs are moved, or zeros, too."""
    too = " (zeros as well)" if zeros else ""
    return f"but none at perturbed inputs{too}: ties are treated differently"


def agree_nearby(
    q: Inquiry, delta: float = _FAR, *, zeros: bool = False, wide: bool = False
) -> bool:
    """Tell whether the sides agree wherever inputs are moved: no rounding in them is much."""
    for k in range(_MOVES):
        f, g = q.at_moved(delta, q.seed + 820 + k, zeros=zeros, wide=wide)
        if not comparable(f, g):
            return False
        d = difference(f, g)
        if not np.isfinite(d).all() or _beyond(q.allowed * q.roundoff, d, f).any():
            return False
    return True


def _beyond(share: float, d: NDArray, answer: Answer) -> NDArray:
    """Return which differences are more than a share of the results, or of others beside them."""
    sizes = np.abs(answer.numbers(np.float64))
    typical = answer.spread(np.array([rms_of(part) for part in answer.split(sizes)]))
    beyond: NDArray = np.abs(d) > share * np.maximum(sizes, typical)
    return beyond


def agree_elsewhere(q: Inquiry) -> bool:
    """Tell whether the sides agree where inputs are moved far, and a little: lost digits do not."""
    return any(
        all(agree_nearby(q, delta, zeros=zeros) for delta in (REDRAW * q.roundoff, _FAR))
        for zeros in (False, True)
    )
