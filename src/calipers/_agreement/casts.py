"""Sides that cast what they are given to the working format, and answer in a wider one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .answers import Answer
from .inputs import is_movable, widened

if TYPE_CHECKING:
    from .inquiry import Inquiry

_MOVED = 0.3  # of a last place: what rounding to the format takes off again


def casting(q: "Inquiry", wide: Mapping[str, Answer]) -> str | None:
    """
    Return which of two sides takes nothing wider, although its results are of a wider dtype.

    Doubles that follow from what was cast to float32 are those of float32, as integers are. Such a
    side gives the same where inputs are rounded to the format, and the other one does not. Where
    results are float32 if inputs are, and doubles if these are, their dtypes tell.
    """
    suspects = [name for name, answer in wide.items() if answer.dtypes == q.answers[name].dtypes]
    if not suspects or not q.are_moved:
        return None
    x = q.moves(_MOVED * q.roundoff, q.seed + 60, wide=True)
    own = zip(q.inputs, x, strict=True)
    rounded = widened([y.astype(like.dtype) if is_movable(like) else y for like, y in own])
    heeds = {name: side(x).bits() != side(rounded).bits() for name, side in q.sides.items()}
    heedless = (name for name in suspects if not heeds[name])
    return next(heedless, None) if any(heeds.values()) else None
