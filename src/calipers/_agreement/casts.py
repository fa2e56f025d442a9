"""Sides whose answers in the wider format are as good as the working one, in all or in part."""

from collections.abc import Mapping

import numpy as np

from .._protocols import NDArray
from .answers import Answer, comparable
from .implementations import Implementations
from .inputs import is_movable, widened
from .units import difference, own_roundings, size_of_results
from .verdicts import GROSS

_MOVED = 0.3  # of a last place: what rounding to the format takes off again
_LEAST = 2.0**-8  # of a rounding: two sides that are nearer hold nothing in the format
_LINES = 3  # along which both sides are asked twice
_STEP = 4.0  # last places: what is rounded to the format is drawn anew
_SHORTER = 0.25  # of a step, in which a bend is sixteen times less
_FALLS = 1 / 6  # and noise is not
_SMOOTH = 0.25  # of the one side's noise, that is none of the other's
_EXPLAINED = 4.0  # times its noise, that a side may be off with rounded constants
_ALONE = 4.0  # times that, of a single result


def casting(q: Implementations, wide: Mapping[str, Answer]) -> str | None:
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
    pairs = zip(q.inputs, x, strict=True)
    rounded = widened([y.astype(like.dtype) if is_movable(like) else y for like, y in pairs])
    heeds = {name: side(x).bits() != side(rounded).bits() for name, side in q.sides.items()}
    heedless = next((name for name in suspects if not heeds[name]), None)
    if heedless is None or not any(heeds.values()):
        return None
    # What stays whatever last places there are, of either format, is no sign of a cast.
    near = q.moves(_STEP * q.roundoff, q.seed + 61, wide=False)
    return heedless if q.sides[heedless](near).bits() != q.answers[heedless].bits() else None


def casting_in_part(q: Implementations, wide: Mapping[str, Answer]) -> str | None:
    """
    Return which of two sides computes a part in the working format, and answers in a wider one.

    Of doubles that are multiplied by cosines of float32, say, no more is known than of float32.
    They go on along no line: what is rounded is drawn anew by last places of the working format,
    while a function of doubles is straight over so short a way. That noise is what they are apart
    by; the difference of two functions is smooth on both sides, or more.
    """
    apart = difference(wide["f"], wide["g"])
    rounding = own_roundings(wide["f"], q.roundoff)
    far = size_of_results(q.of_f, apart, rounding)
    # Nearly all pairs are told by this, without a call.
    near, gross = _LEAST, GROSS / q.roundoff
    if not q.are_moved or far.broken or not near < far.normwise < gross:
        return None
    noise = {name: np.zeros(apart.size) for name in wide}
    variance = {name: np.square(rounding) for name in wide}
    for k in range(_LINES):
        for name in wide:
            bends = _bend(q, name, wide[name], _STEP, k)
            if bends is None:
                return None
            begun, bend = bends
            noise[name] += np.square(bend) / (6 * _LINES)  # of three roundings, one twice
            variance[name] += np.square(begun / _STEP) / _LINES
    sizes = {name: float(np.sum(squares)) for name, squares in noise.items()}
    smooth, rough = sorted(sizes, key=sizes.__getitem__)
    if not sizes[smooth] < _SMOOTH**2 * sizes[rough]:
        return None
    # As far apart as rounding to the working format may make them, and by no more than the noise.
    if not q.is_rounding(size_of_results(q.of_f, apart, np.sqrt(variance[smooth]))):
        return None
    explained = size_of_results(q.of_f, apart, np.sqrt(noise[rough]))
    if explained.least > _EXPLAINED or explained.peak > _ALONE * _EXPLAINED:
        return None
    shorter = 0.0
    for k in range(_LINES):
        bends = _bend(q, rough, wide[rough], _SHORTER * _STEP, k)
        if bends is None:
            return None
        shorter += float(np.sum(np.square(bends[1]))) / (6 * _LINES)
    return rough if shorter > _FALLS**2 * sizes[rough] else None


def _bend(
    q: Implementations, name: str, here: Answer, step: float, k: int
) -> tuple[NDArray, NDArray] | None:
    """Return how a side's results begin to change along a line, and how otherwise they go on."""
    delta, seed, side = step * q.roundoff, q.seed + 65 + k, q.sides[name]
    near = side(q.moves(delta, seed, wide=True))
    far = side(q.moves(2 * delta, seed, wide=True))
    if not comparable(near, far, here):
        return None
    begun = difference(near, here)
    bend = difference(far, near) - begun
    return (begun, bend) if np.isfinite(bend).all() else None
