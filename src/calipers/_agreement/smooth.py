"""Whether a side goes on along a line as it began, or stays and jumps."""

from .answers import Answer, comparable
from .sides import Side
from .units import Moves, difference, rms_of

_PART = 1 / 16  # of how far two sides are apart: a step of numbers that are held in few bits
_MOST = 2.0**-6  # of an input
_SHORTER = 0.25
_STEADY = 0.5  # of a change, by which the next one may be another


def is_rough(side: Side, here: Answer, moves: Moves, off: float, seed: int) -> bool:
    """
    Tell whether a side's results stay and jump, where inputs are moved by a part of a share.

    Its own rounding in the wider format is far below such moves. What is rounded to a narrower one
    stays where it is, or jumps by more than inputs are moved by; and a function has a slope, or is
    bent, and of shorter moves less.
    """
    delta = min(_MOST, _PART * off)
    return all(_turns(side, here, moves, delta * part, seed) for part in (1, _SHORTER))


def _turns(side: Side, here: Answer, moves: Moves, delta: float, seed: int) -> bool:
    """Tell whether results go on otherwise than they began."""
    near = side(moves(delta, seed, wide=True))
    far = side(moves(2 * delta, seed, wide=True))
    if not comparable(near, far, here):
        return False
    begun, then = difference(near, here), difference(far, near)
    return rms_of(then - begun) >= _STEADY * rms_of(begun)
