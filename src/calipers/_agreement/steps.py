"""Whether an algorithm stands still while last places of its inputs change."""

import numpy as np

from .._protocols import NDArray
from .answers import comparable
from .inquiry import Inquiry

MOST_STILL = 0.9  # of the results beyond rounding
_LITTLE = 4.0  # last places, fewer than are lost


def share_standing_still(q: Inquiry, name: str, lost: NDArray) -> float:
    """Return the share of some results of a side that stay as they are; 0 if there are none."""
    if not lost.any():
        return 0.0
    numbers, still = q.answers[name].numbers(np.float64), lost.copy()
    for k in range(2):
        y = q.sides[name](q.moves(_LITTLE * q.roundoff, q.seed + 870 + k, wide=False))
        if not comparable(y, q.answers[name]):
            return 0.0
        still &= y.numbers(np.float64) == numbers
    return float(np.count_nonzero(still) / np.count_nonzero(lost))


def is_constant(q: Inquiry, name: str, lost: NDArray) -> bool:
    """Tell whether they are one number: that stays, too."""
    return np.unique(q.answers[name].numbers(np.float64)[lost]).size < 2
