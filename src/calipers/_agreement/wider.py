"""How far two sides are apart in the wider format, and whether they are two functions there."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._protocols import NDArray
from .sides import Answer, Side, comparable
from .units import ROUNDOFF, Moves, Size, difference, rms_of, size_of_results, spread_of
from .verdicts import GROSS, KEPT, REDRAW, SYSTEMATIC

_STAYS = 2.0**-6  # of a share of a result, that is another one where digits are lost
_MOVED = 0.731  # of a last place


@dataclass(frozen=True)
class Here:
    """How far both sides are apart in the format that they work in."""

    form: str
    f: Answer
    g: Answer
    apart: NDArray
    unit: NDArray
    size: Size  # of what they are apart, in units
    allowed: float  # units
    natural_size: float  # of numbers that a side may compute with


@dataclass
class Wide:
    """
    How far both sides are apart in the wider format, beside how far they are here.

    They are asked at inputs that need all its bits: with the bits of the narrower one much that
    would round is exact.
    """

    f: Side
    g: Side
    moves: Moves
    seed: int
    standard: tuple[Side, Answer]  # the side that errors are measured from
    answers: tuple[Answer, Answer]  # of f and g, at the inputs as they are
    here: Here

    @property
    def comparable(self) -> bool:
        """Whether both sides answer at moved inputs, and alike."""
        return comparable(*self._moved)

    @cached_property
    def _moved(self) -> tuple[Answer, Answer]:
        return self._ask_moved(1.0)

    def _ask_moved(self, times: float) -> tuple[Answer, Answer]:
        points = self.moves(_MOVED * times * self._roundoff, self.seed + 70, wide=True)
        return self.f(points), self.g(points)

    @property
    def _roundoff(self) -> float:
        return ROUNDOFF[self.here.form]

    @property
    def fine(self) -> float:
        """The roundoff of the wider format."""
        return ROUNDOFF["float64"] if self.here.form != "float64" else 2.0**-64

    @property
    def allowed(self) -> float:
        """Units that are allowed; of a format narrower than float32, what float32 takes."""
        within = ROUNDOFF["float32"] if self._roundoff > ROUNDOFF["float32"] else self.fine
        return self.here.allowed * within / self.fine

    @cached_property
    def apart(self) -> NDArray:
        same = self._moved[0].forms == self.here.f.forms
        # Else there are as many as there are different numbers, say.
        return difference(*self._moved) if same else self.unmoved

    @cached_property
    def unmoved(self) -> NDArray:
        """How far they are apart at the inputs as they are."""
        return difference(*self.answers)

    @cached_property
    def unit(self) -> NDArray:
        # At kinks and ties a function's own noise is not in proportion.
        side, answer = self.standard
        seeds = [self.seed + 77, self.seed + 78]
        noise = spread_of(side, answer, self.moves, self.fine, seeds, wide=True)
        return np.maximum(self.here.unit * (self.fine / self._roundoff), noise)

    @cached_property
    def size(self) -> Size:
        return size_of_results(self.here.f, self.apart, self.unit)

    @cached_property
    def differ(self) -> bool:
        """
        Whether the sides are two functions: their difference stays in the wider format.

        One of rounding falls as the format's does, even where an algorithm magnifies it; at a root,
        by the square root of that. What falls less is none. But functions of a format narrower than
        float32 compute in float32, whatever they are given: to its rounding theirs may fall.
        """
        here, d, unit, far = self.here, self.apart, self.unit, self.size
        none = self.lost & self.are_none(d)
        # Beside some of which digits are left in the wider format, and not here.
        if none.any() and (np.abs(here.apart) > here.allowed * here.unit)[~none].any():
            d = np.where(none, 0.0, d)
            far = size_of_results(here.f, d, unit)
        gained = self._gained
        kept = gained**KEPT
        expected = kept * max(here.size.rms, 1e-3)
        more = far.rms > expected
        if math.isinf(far.rms):  # beside a unit of 0: no rounding is in these results
            more = far.absolute > kept / gained * here.size.absolute
        allowed = self.allowed
        if here.form == "float64":  # constants in a source are rounded to it, whatever is wider
            allowed = max(allowed, SYSTEMATIC * self._roundoff / self.fine)
        beyond = far.least > allowed or self._mostly_apart(d, unit)
        return far.broken > 0 or (beyond and more)

    @cached_property
    def lost(self) -> NDArray:
        """
        Which results may have lost all their digits, rather than be those of another function.

        1 + tanh(-60) has none in either format, and a long double has few more than a double. What
        is as far off in proportion is another function; but not what is nothing beside the other.
        """
        shares, kind = [], np.longdouble if self.here.form == "float64" else np.float64
        for f, g in ((self.here.f, self.here.g), self.answers):
            one, other = f.numbers(kind), g.numbers(kind)
            swapped = np.abs(one) < np.abs(other)
            shares.append(1 - np.where(swapped, one, other) / np.where(swapped, other, one))
        here, wide = shares
        steady = (np.abs(here - wide) <= _STAYS * np.abs(wide)) & (np.abs(wide - 1) > GROSS)
        sizes = np.abs(self.standard[1].numbers(np.float64))
        gone: NDArray = (np.abs(self.here.apart) >= 0.5 * sizes) | (self.here.form == "float64")
        return gone & ~steady

    def are_none(self, d: NDArray) -> NDArray:
        """Tell which differences are none beside numbers on the way to them."""
        none: NDArray = np.abs(d) <= self.allowed * self.fine * self.here.natural_size
        return none

    @property
    def _gained(self) -> float:
        """How many times less the wider format's units are: not all that its bits gain.

        Where sums are long, roundings on the way are more than what the inputs' last places do.
        """
        known = np.isfinite(self.here.unit) & np.isfinite(self.unit)
        here, there = rms_of(self.here.unit[known]), rms_of(self.unit[known])
        most = self._roundoff / self.fine
        return min(most, max(1.0, here / there)) if there else most

    def _mostly_apart(self, d: NDArray, unit: NDArray) -> bool:
        """Tell whether most results differ grossly, beside which a few are of larger units still.

        The last places of chaos decide all of some results, and their norm hides the others.
        """
        gross = GROSS * rms_of(self.here.f.numbers(np.float64))
        apart = np.abs(d)
        beyond = (apart > self.here.allowed * unit) & (apart > gross)
        return bool(np.count_nonzero(beyond) > d.size / 2)

    @property
    def restless(self) -> list[str]:
        """Which sides give results as far apart as the two are, where those are asked again."""
        apart = rms_of(difference(*self._moved))
        again = self._ask_moved(1.0)
        return [
            name
            for name, first, then in zip(("f", "g"), self._moved, again, strict=True)
            if comparable(then, first) and rms_of(difference(first, then)) > apart / 2
        ]

    @property
    def agree_unmoved(self) -> bool:
        """Whether the sides agree at the inputs as they are."""
        size = size_of_results(self.here.f, self.unmoved, self.unit)
        near = size.least <= self.here.allowed and not size.broken
        return near and not self._mostly_apart(self.unmoved, self.unit)

    @property
    def strays(self) -> float:
        """How many times as far they are apart where inputs are moved so much farther."""
        f, g = self._ask_moved(REDRAW)
        if not self.size.absolute or not comparable(f, g):
            return 1.0
        return rms_of(difference(f, g)) / self.size.absolute
