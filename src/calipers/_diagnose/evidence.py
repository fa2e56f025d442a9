"""All that is measured of two implementations."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from .._core.dtypes import ROUNDOFF
from .._core.protocols import NDArray
from .callables import Answer, BudgetError, comparable
from .error_units import Size, cosine, difference, rms_of, size_of_results, spread_of
from .errors import Errors
from .verdict import COARSEST, FEW_REDRAWN, GROSS, KEPT, MANY, REDRAW, REDRAWN, STEADY, SYSTEMATIC

_STAYS = 2.0**-6  # of a share of a result, that is another one where digits are lost
_LUCKY = 2.0**8  # times that a rounding is hardly ever smaller than others
_DRAWN, _REDRAWN = 3, 24  # moves, at some of which roundings are as they mostly are
_MOVED = 0.731  # of a last place


@dataclass
class Wide:
    """
    How far both sides are apart in the wider format, beside how far they are here.

    They are asked at inputs that need all its bits: with the bits of the narrower one much that
    would round is exact.
    """

    q: Errors

    @property
    def _answers(self) -> tuple[Answer, Answer]:
        """What both give at the inputs as they are."""
        return self.q.wide_answers["f"], self.q.wide_answers["g"]

    @property
    def comparable(self) -> bool:
        """Whether both sides answer at moved inputs, and alike."""
        return comparable(*self._moved)

    @cached_property
    def _moved(self) -> tuple[Answer, Answer]:
        return self._ask_moved(1.0)

    def _ask_moved(self, times: float) -> tuple[Answer, Answer]:
        points = self.q.moves(_MOVED * times * self.q.roundoff, self.q.seed + 70, wide=True)
        return self.q.f(points), self.q.g(points)

    @property
    def fine(self) -> float:
        """The roundoff of the wider format."""
        return ROUNDOFF["float64"] if self.q.form != "float64" else 2.0**-64

    @property
    def allowed(self) -> float:
        """Units that are allowed; of a format narrower than float32, what float32 takes."""
        within = ROUNDOFF["float32"] if self.q.roundoff > ROUNDOFF["float32"] else self.fine
        return self.q.allowed * within / self.fine

    @cached_property
    def apart(self) -> NDArray:
        same = self._moved[0].forms == self.q.of_f.forms
        # Else there are as many as there are different numbers, say.
        return difference(*self._moved) if same else self.unmoved

    @cached_property
    def unmoved(self) -> NDArray:
        """How far they are apart at the inputs as they are."""
        return difference(*self._answers)

    @cached_property
    def unit(self) -> NDArray:
        # At kinks and ties a function's own noise is not in proportion.
        assert self.q.standard is not None
        side, answer = self.q.standard
        seeds = [self.q.seed + 77, self.q.seed + 78]
        noise = spread_of(side, answer, self.q.moves, self.fine, seeds, wide=True)
        return np.maximum(self.q.scale * (self.fine / self.q.roundoff), noise)

    @cached_property
    def size(self) -> Size:
        return size_of_results(self.q.of_f, self.apart, self.unit)

    @cached_property
    def here(self) -> Size:
        """How far they are apart in the working format, but for what is flushed to 0 there."""
        q = self.q
        if not q.flushed.any():
            return q.eta_apart
        return q.size(np.where(q.flushed, 0.0, q.apart), q.scale)

    @cached_property
    def differ(self) -> bool:
        """
        Whether the sides are two functions: their difference stays in the wider format.

        One of rounding falls as the format's does, even where an algorithm magnifies it; at a root,
        by the square root of that. What falls less is none; nor is, between algorithms that lose no
        digits here, what is far more units there. But functions of a format narrower than float32
        compute in float32, whatever they are given: to its rounding theirs may fall.
        """
        q, d, unit, far = self.q, self.apart, self.unit, self.size
        none = self.lost & self.are_none(d)
        # Beside some of which digits are left in the wider format, and not here.
        if none.any() and (np.abs(q.apart) > q.allowed * q.scale)[~none].any():
            d = np.where(none, 0.0, d)
            far = size_of_results(q.of_f, d, unit)
        gained = self._gained
        kept, least = gained**KEPT, 1e-3
        if kept > _LUCKY and q.is_rounding(q.eta_f) and q.is_rounding(q.eta_g):
            kept, least = _LUCKY, 1.0
        expected = kept * max(self.here.rms, least)
        more = far.rms > expected
        if math.isinf(far.rms):  # beside a unit of 0: no rounding is in these results
            more = far.absolute > kept / gained * self.here.absolute
        allowed = self.allowed
        if q.form == "float64":  # constants in a source are rounded to it, whatever is wider
            allowed = max(allowed, SYSTEMATIC * q.roundoff / self.fine)
        beyond = far.least > allowed or self._mostly_apart(d, unit)
        if far.broken and not self._comes_and_goes:
            return True
        return beyond and more and not (far.rms <= _LUCKY * expected and self._by_chance(far, kept))

    def _by_chance(self, far: Size, kept: float) -> bool:
        """Tell whether few roundings are small here alone, and not as small about here."""
        q = self.q
        if q.weighty >= MANY or math.isinf(far.rms):
            return False
        differences = [q.apart_at(2 * q.roundoff, q.seed + 90 + k) for k in range(_DRAWN)]
        sizes = [size_of_results(q.of_f, d, q.scale).rms for d in differences if d is not None]
        return far.rms <= kept * max(sizes, default=0.0)

    @cached_property
    def _comes_and_goes(self) -> bool:
        """Tell whether last places decide, here and elsewhere, which results are not finite."""
        q, pair = self.q, self._moved
        alone = np.logical_xor(*(np.isfinite(y.numbers(np.float64)) for y in pair))
        if pair[0].forms != q.of_f.forms or not alone[~np.isfinite(self.apart)].all():
            return False
        for move in (self.fine, 2.0**-COARSEST):
            x = q.moves(move, q.seed + 95, wide=True)
            left = np.ones(self.apart.size, bool)
            for f, g in q.nearby(x, self.fine, q.seed + 96, _REDRAWN):
                left &= np.isfinite(f) ^ np.isfinite(g)
                if not left.any():
                    break
            else:
                return False
        return True

    @cached_property
    def lost(self) -> NDArray:
        """
        Which results may have lost all their digits, rather than be those of another function.

        1 + tanh(-60) has none in either format, and a long double has few more than a double. What
        is as far off in proportion is another function; but not what is nothing beside the other.
        """
        q = self.q
        assert q.standard is not None
        shares, kind = [], np.longdouble if q.form == "float64" else np.float64
        for f, g in ((q.of_f, q.of_g), self._answers):
            one, other = f.numbers(kind), g.numbers(kind)
            swapped = np.abs(one) < np.abs(other)
            shares.append(1 - np.where(swapped, one, other) / np.where(swapped, other, one))
        here, wide = shares
        steady = (np.abs(here - wide) <= _STAYS * np.abs(wide)) & (np.abs(wide - 1) > GROSS)
        sizes = np.abs(q.standard[1].numbers(np.float64))
        gone: NDArray = (np.abs(q.apart) >= 0.5 * sizes) | (q.form == "float64")
        return gone & ~steady

    def are_none(self, d: NDArray) -> NDArray:
        """Tell which differences are none beside numbers on the way to them."""
        none: NDArray = np.abs(d) <= self.allowed * self.fine * self.q.natural_size
        return none

    @property
    def _gained(self) -> float:
        """How many times less the wider format's units are: not all that its bits gain.

        Where sums are long, roundings on the way are more than what the inputs' last places do.
        """
        finite = np.isfinite(self.q.scale) & np.isfinite(self.unit)
        here, there = rms_of(self.q.scale[finite]), rms_of(self.unit[finite])
        most = self.q.roundoff / self.fine
        return min(most, max(1.0, here / there)) if there else most

    def _mostly_apart(self, d: NDArray, unit: NDArray) -> bool:
        """Tell whether most results differ grossly, beside which a few are of larger units still.

        The last places of chaos decide all of some results, and their norm hides the others.
        """
        gross = GROSS * rms_of(self.q.of_f.numbers(np.float64))
        distance = np.abs(d)
        beyond = (distance > self.q.allowed * unit) & (distance > gross)
        return bool(np.count_nonzero(beyond) > d.size / 2)

    @property
    def restless(self) -> list[str]:
        """Which sides give results as far apart as the two are, where those are asked again."""
        distance = rms_of(difference(*self._moved))
        again = self._ask_moved(1.0)
        return [
            name
            for name, first, then in zip(("f", "g"), self._moved, again, strict=True)
            if comparable(then, first) and rms_of(difference(first, then)) > distance / 2
        ]

    @property
    def agree_unmoved(self) -> bool:
        """Whether the sides agree at the inputs as they are."""
        size = size_of_results(self.q.of_f, self.unmoved, self.unit)
        near = size.least <= self.allowed and not size.broken
        return near and not self._mostly_apart(self.unmoved, self.unit)

    @property
    def strays(self) -> float:
        """How many times as far they are apart where inputs are moved so much farther."""
        f, g = self._ask_moved(REDRAW)
        if not self.size.absolute or not comparable(f, g):
            return 1.0
        return rms_of(difference(f, g)) / self.size.absolute


_OF_SUMS = 64.0  # last places of a term by how many there are: well beyond last places of the sum

Differ = Callable[[float, int], NDArray | None]  # what differences are at moved inputs


class Inquiry(Errors):
    """Two sides at some inputs, and what is known of them so far."""

    @cached_property
    def wide(self) -> Wide | None:
        """How far the sides are apart in the wider format, if both answer in it."""
        if len(self.wide_answers) < 2:
            return None
        wide = Wide(self)
        return wide if wide.comparable else None

    @property
    def differ_wide(self) -> bool:
        """Whether the wider format, as far as both answer in it, shows two functions."""
        return self.wide is not None and self.wide.differ

    @cached_property
    def constancy(self) -> float:
        """How much many differences are the same wherever the inputs are; 0 for few."""
        if self.apart.size < MANY or self.eta_apart.broken or not self.are_moved:
            return 0.0
        return self.least_likeness(2, self.seed + 850)

    def least_likeness(self, moves: int, seed: int) -> float:
        """Return the least cosine of differences at inputs that are moved far."""
        least = 1.0
        # Of few the signs are the same by chance, time and again.
        for k in range(moves if self.weighty >= MANY else FEW_REDRAWN):
            least = min(least, self.likeness(2.0**-COARSEST, seed + k) or 0.0)
            if least <= STEADY:
                break
        return least

    def likeness(self, delta: float, seed: int) -> float | None:
        """Return the cosine between the difference of the sides here, and at moved inputs."""
        there = self.apart_at(delta, seed)
        return None if there is None else cosine(self.apart, there, self.scale)

    def kept_alike(self, here: NDArray, at: Differ) -> float | None:
        """Return how alike differences at moved inputs are; None if so by chance at most."""
        differences = [here]
        kept = self._alike(differences, at, REDRAWN - 1)
        if kept is not None and self.weighty < MANY:  # of few the signs are the same by chance
            with suppress(BudgetError):
                kept = self._alike(differences, at, FEW_REDRAWN)
        return kept

    def _alike(self, differences: list[NDArray], at: Differ, more: int) -> float | None:
        """Compare differences, and those of more moves, if there are enough."""
        # What a term loses to a sum of n is drawn anew by moves of last places of that.
        delta = min(2.0**-COARSEST, max(REDRAW, _OF_SUMS * self.length) * self.roundoff)
        first = len(differences)
        for k in range(first, first + more):
            there = at(delta, self.seed + 31 * k)
            if there is not None:
                differences.append(there)
        if len(differences) < 3:
            return None
        found = [cosine(a, b, self.scale) for a, b in combinations(differences, 2)]
        alike = self.evidence["likeness"] = float(np.mean(found))
        chance = float(np.std(found)) / math.sqrt(len(differences))
        return alike if alike > max(0.05, 5 * chance) else None
