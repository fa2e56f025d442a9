"""The questions put to two implementations, cheapest first, until the answers decide."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._protocols import NDArray
from .._rounding import FORMATS
from .sides import Answer, Side, in_a_line, listed, widened
from .units import (
    MOVES,
    ROUNDOFF,
    Moves,
    Size,
    Unit,
    cosine,
    difference,
    own_roundings,
    rms_of,
    size_of,
    spread_of,
    unit_of,
)
from .verdicts import (
    ALONE,
    COARSEST,
    FAR,
    FEW_REDRAWN,
    FLAT,
    GROSS,
    ILL,
    KEPT,
    MANY,
    REDRAW,
    STEADY,
    SYSTEMATIC,
)
from .working_format import is_wide, movable

_STAYS = 2.0**-6  # of a share of a result, that is another one where digits are lost
_BEYOND = 2.0**-6  # of an input: a move that leaves its last places far behind


@dataclass
class Inquiry:
    """Two sides at some inputs, and what is known of them so far."""

    f: Side
    g: Side
    inputs: tuple[Any, ...]
    form: str  # the working format
    wide: str | None = None  # which may be called in the wider format: "fg", "f", "g" or none
    reference: Callable[..., Any] | None = None
    length: int = 1  # of the reductions
    batch: tuple[int, ...] = ()
    seed: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)
    titles: tuple[str, ...] = ()  # how the inputs are reached among the caller's, if not by place
    owners: tuple[int, ...] = ()  # and which of those they are part of

    def title(self, k: int) -> str:
        """Return how the caller reaches an input."""
        return self.titles[k] if self.titles else str(k)

    @property
    def roundoff(self) -> float:
        return ROUNDOFF[self.form]

    @property
    def sides(self) -> dict[str, Side]:
        return {"f": self.f, "g": self.g}

    @property
    def allowed(self) -> float:
        """How many units an error of rounding may take: C(n)."""
        return 4 + math.sqrt(self.length)

    def is_rounding(self, size: Size) -> bool:
        """Tell whether errors are as those of rounding, all together and the largest one."""
        return size.least <= self.allowed and size.peak <= ALONE * self.allowed and not size.broken

    @cached_property
    def of_f(self) -> Answer:
        return self.f(self.inputs)

    @cached_property
    def of_g(self) -> Answer:
        return self.g(self.inputs)

    @cached_property
    def moves(self) -> Moves:
        """The inputs, moved; one call's arrays are gone with the next."""
        return Moves(self.inputs)

    @cached_property
    def natural_size(self) -> float:
        """How large numbers are that a side may compute with: 1, or as the largest input."""
        return max([1.0, *map(_largest, self._sizes)])

    @cached_property
    def typical_size(self) -> float:
        """How large they are mostly."""
        finite = (sizes[np.isfinite(sizes)] for sizes in self._sizes)
        return max([1.0, *(float(np.median(sizes)) for sizes in finite if sizes.size)])

    @property
    def _sizes(self) -> list[NDArray]:
        return [np.abs(self.inputs[k]) for k in movable(self.inputs)]

    # The wider format

    @cached_property
    def wider(self) -> list[Any]:
        return widened(self.inputs)

    @cached_property
    def wide_answers(self) -> dict[str, Answer]:
        """What the sides that can give in the wider format; a reference of the caller's is "r"."""
        found = {}
        for name, side in (("f", self.f), ("g", self.g)):
            if self.wide is None or name not in self.wide:
                continue
            answer = side(self.wider)
            same = answer.error is None and answer.forms == self.of_f.forms
            if same and is_wide(answer, self.form):
                found[name] = answer
        return found

    @cached_property
    def _standards(self) -> tuple[Side, Answer, Unit] | None:
        """The side that errors are measured from, its answer in the wider format, and units."""
        if self.reference is not None:
            side = Side("reference", self.reference, self.f.likes, self.f.budget)
            answer = side(self.wider)
            problem = self._problem(answer)
            if problem is not None:
                raise ValueError(
                    f"float64 {problem}: pass a function that computes as f, but wider"
                )
            return side, answer, self._unit(side, answer)
        answers = self.wide_answers
        if not answers:
            return None
        sides = self.sides
        # Of two, the one that is finite where the other is not.
        finite = {
            name: int(np.isfinite(answer.numbers(np.float64)).sum())
            for name, answer in answers.items()
        }
        first, *others = sorted(answers, key=lambda name: (-finite[name], name))
        unit = self._unit(sides[first], answers[first])
        for name in others:  # one that holds numbers in few bits does not feel small moves
            if unit.kappa < FLAT and finite[name] == finite[first]:
                other = self._unit(sides[name], answers[name])
                # Of one function: what magnifies on one side alone are its own doings.
                if FLAT <= other.kappa < ILL:
                    return sides[name], answers[name], other
        return sides[first], answers[first], unit

    def _problem(self, answer: Answer) -> str | None:
        """Tell why the caller's reference is none."""
        if answer.error is not None:
            return f"raises {in_a_line(answer.error)}"
        if answer.forms != self.of_f.forms:
            return f"gives results of shape {listed(answer.shapes)} for {listed(self.of_f.shapes)}"
        narrow = [
            x.dtype
            for x in answer.arrays
            if x.dtype.kind in "fc" and np.finfo(x.dtype).eps > max(self.roundoff, 2.0**-52)
        ]
        return f"gives {narrow[0]}" if narrow else None

    def _unit(self, side: Side, answer: Answer) -> Unit:
        return unit_of(side, answer, self.moves, self.roundoff, self.form, self.seed)

    @property
    def standard(self) -> tuple[Side, Answer] | None:
        """The side that errors are measured from, and its answer in the wider format."""
        return None if self._standards is None else self._standards[:2]

    @property
    def unit(self) -> Unit:
        """What a last place of the inputs does to each result."""
        assert self._standards is not None
        return self._standards[2]

    def error(self, answer: Answer) -> Size:
        """Measure a side's errors from the reference."""
        return self.size(self.off(answer), self.unit.values)

    def size(self, d: NDArray, unit: NDArray) -> Size:
        """Measure errors; of several results those of the worst, beside which others are large."""
        whole = size_of(d, unit)
        pairs = zip(self.of_f.split(d), self.of_f.split(unit), strict=True)
        parts = [size_of(errors, units) for errors, units in pairs if errors.size]
        if len(parts) < 2:
            return whole
        worst = max(parts, key=lambda part: part.least)
        return replace(
            whole,
            rms=max(whole.rms, worst.rms),
            normwise=max(whole.normwise, worst.normwise),
            peak=max(part.peak for part in parts),
        )

    def off(self, answer: Answer) -> NDArray:
        """Return a side's errors from the reference; what the format cannot hold is infinite."""
        assert self.standard is not None
        d = difference(answer, self.standard[1])
        lost = ~np.isfinite(d)
        if lost.any():
            y, r = answer.numbers(np.float64)[lost], self.standard[1].numbers(np.float64)[lost]
            beyond = np.isinf(y) & (np.abs(r) > self.largest) & (np.sign(y) == np.sign(r))
            d[np.flatnonzero(lost)[beyond]] = 0
        return d

    @property
    def largest(self) -> float:
        """The largest number of the working format."""
        return FORMATS[self.form].largest

    @cached_property
    def eta_f(self) -> Size:
        return self.error(self.of_f)

    @cached_property
    def eta_g(self) -> Size:
        return self.error(self.of_g)

    @property
    def own_noise(self) -> NDArray:
        """
        How far the side that errors are measured from is off itself in this format, about here.

        What an algorithm loses is drawn anew only by moves beyond all its last places: 1 + tanh(x)
        stays the same number over a good part of x.
        """
        assert self.standard is not None
        side = self.standard[0]
        sums, count = np.square(self.off(self.of_f if side is self.f else self.of_g)), 1
        for k in range(MOVES):
            x = self.moves(_BEYOND, self.seed + 600 + k, wide=False)
            y, r = side(x), side(widened(x))
            if y.error is None and r.error is None and y.forms == r.forms == self.of_f.forms:
                sums += np.square(difference(y, r))
                count += 1
        noise: NDArray = np.sqrt(sums / count)
        return noise

    @cached_property
    def apart(self) -> NDArray:
        return difference(self.of_f, self.of_g)

    @cached_property
    def scale(self) -> NDArray:
        """The units of differences: of the reference, or else of how f answers moved inputs."""
        if self.standard is not None:
            return self.unit.values
        seeds = [self.seed + k for k in range(MOVES)]
        spread = spread_of(self.f, self.of_f, self.moves, FAR * self.roundoff, seeds, wide=False)
        scale: NDArray = np.hypot(spread / FAR, own_roundings(self.of_f, self.roundoff))
        return scale

    @cached_property
    def eta_apart(self) -> Size:
        return self.size(self.apart, self.scale)

    @cached_property
    def apart_wide(self) -> tuple[NDArray, NDArray] | None:
        """How far the sides are apart in the wider format, and its units."""
        if len(self.wide_answers) < 2:
            return None
        f, g = self._moved_wide
        if f.error is not None or g.error is not None or f.forms != g.forms:
            return None
        if f.forms != self.of_f.forms:  # as many as there are different numbers, say
            f, g = self.wide_answers["f"], self.wide_answers["g"]
        return difference(f, g), self._unit_wide()

    @cached_property
    def _moved_wide(self) -> tuple[Answer, Answer]:
        return self._ask_moved_wide()

    def _ask_moved_wide(self) -> tuple[Answer, Answer]:
        points = self.moves(0.731 * self.roundoff, self.seed + 70, wide=True)
        return self.f(points), self.g(points)

    @property
    def restless_wide(self) -> list[str]:
        """Which sides give results as far apart as the two are, where those are asked again."""
        apart = rms_of(difference(*self._moved_wide))
        return [
            name
            for name, first, again in zip(
                self.sides, self._moved_wide, self._ask_moved_wide(), strict=True
            )
            if again.forms == first.forms and rms_of(difference(first, again)) > apart / 2
        ]

    def _unit_wide(self) -> NDArray:
        # At kinks and ties a function's own noise is not in proportion.
        noise = self._noise_wide(self.fine)
        return np.maximum(self.unit.values * (self.fine / self.roundoff), noise)

    @cached_property
    def eta_wide(self) -> Size | None:
        """
        How far the sides are apart in the wider format, in units of its own rounding.

        They are asked at inputs that need all its bits: with the bits of the narrower one much that
        would round is exact.
        """
        return None if self.apart_wide is None else self.size(*self.apart_wide)

    @cached_property
    def differ_wide(self) -> bool:
        """
        Tell whether the sides are two functions: their difference stays in the wider format.

        One of rounding falls as the format's does, even where an algorithm magnifies it; at a root,
        by the square root of that. What falls less is none. But functions of a format narrower than
        float32 compute in float32, whatever they are given: to its rounding theirs may fall.
        """
        far = self.eta_wide
        if far is None or self.apart_wide is None:
            return False
        d, unit = self.apart_wide
        none = self.lost & self.are_none(d)
        # Beside some of which digits are left in the wider format, and not here.
        if none.any() and (np.abs(self.apart) > self.allowed * self.unit.values)[~none].any():
            d = np.where(none, 0.0, d)
            far = self.size(d, unit)
        gained = self._gained(unit)
        kept, here = gained**KEPT, self.eta_apart
        expected = kept * max(here.rms, 1e-3)
        more = far.rms > expected
        if math.isinf(far.rms):  # beside a unit of 0: no rounding is in these results
            more = far.absolute > kept / gained * here.absolute
        allowed = self.allowed_wide
        if self.form == "float64":  # constants in a source are rounded to it, whatever is wider
            allowed = max(allowed, SYSTEMATIC * self.roundoff / self.fine)
        beyond = far.least > allowed or self._mostly_apart(d, unit)
        return far.broken > 0 or (beyond and more)

    @cached_property
    def lost(self) -> NDArray:
        """
        Which results may have lost all their digits, rather than be those of another function.

        1 + tanh(-60) has none in either format, and a long double has few more than a double. What
        is as far off in proportion is another function; but not what is nothing beside the other.
        """
        shares, kind = [], np.longdouble if self.form == "float64" else np.float64
        for f, g in ((self.of_f, self.of_g), (self.wide_answers["f"], self.wide_answers["g"])):
            one, other = f.numbers(kind), g.numbers(kind)
            swapped = np.abs(one) < np.abs(other)
            shares.append(1 - np.where(swapped, one, other) / np.where(swapped, other, one))
        here, wide = shares
        steady = (np.abs(here - wide) <= _STAYS * np.abs(wide)) & (np.abs(wide - 1) > GROSS)
        assert self.standard is not None
        sizes = np.abs(self.standard[1].numbers(np.float64))
        gone: NDArray = (np.abs(self.apart) >= 0.5 * sizes) | (self.form == "float64")
        return gone & ~steady

    def are_none(self, d: NDArray) -> NDArray:
        """Tell which differences in the wider format are none beside numbers on the way to them."""
        none: NDArray = np.abs(d) <= self.allowed_wide * self.fine * self.natural_size
        return none

    @property
    def allowed_wide(self) -> float:
        """What is allowed in the wider format; of one narrower than float32, what float32 takes."""
        within = ROUNDOFF["float32"] if self.roundoff > ROUNDOFF["float32"] else self.fine
        return self.allowed * within / self.fine

    def _gained(self, wide: NDArray) -> float:
        """Return how many times less the wider format's units are: not all that its bits gain.

        Where sums are long, roundings on the way are more than what the inputs' last places do.
        """
        known = np.isfinite(self.unit.values) & np.isfinite(wide)
        here, there = rms_of(self.unit.values[known]), rms_of(wide[known])
        most = self.roundoff / self.fine
        return min(most, max(1.0, here / there)) if there else most

    def _mostly_apart(self, d: NDArray, unit: NDArray) -> bool:
        """Tell whether most results differ grossly, beside which a few are of larger units still.

        The last places of chaos decide all of some results, and their norm hides the others.
        """
        gross = GROSS * rms_of(self.of_f.numbers(np.float64))
        apart = np.abs(d)
        return bool(np.count_nonzero((apart > self.allowed * unit) & (apart > gross)) > d.size / 2)

    @property
    def agree_here(self) -> bool:
        """Whether the sides agree in the wider format at the inputs themselves, unmoved."""
        answers = self.wide_answers
        d, unit = difference(answers["f"], answers["g"]), self._unit_wide()
        here = self.size(d, unit)
        near = here.least <= self.allowed and not here.broken
        return near and not self._mostly_apart(d, unit)

    @property
    def strays(self) -> float:
        """How many times as far they are apart there, where inputs are moved so much farther."""
        near, points = (
            self.eta_wide,
            self.moves(0.731 * REDRAW * self.roundoff, self.seed + 70, True),
        )
        f, g = self.f(points), self.g(points)
        if near is None or not near.absolute or f.error or g.error or f.forms != g.forms:
            return 1.0
        return rms_of(difference(f, g)) / near.absolute

    @property
    def fine(self) -> float:
        """The roundoff of the wider format."""
        return ROUNDOFF["float64"] if self.form != "float64" else 2.0**-64

    def _noise_wide(self, fine: float) -> NDArray:
        """Return what last places of the wider format do."""
        assert self.standard is not None
        side, answer = self.standard
        seeds = [self.seed + 77, self.seed + 78]
        return spread_of(side, answer, self.moves, fine, seeds, wide=True)

    def given(self, f: Answer, g: Answer, reference: Answer, unit: NDArray) -> None:
        """Take answers and units as known, and ask no side."""
        self.of_f, self.of_g = f, g
        side = Side("reference", self.f.call, (), self.f.budget)
        self._standards = side, reference, Unit(unit, math.nan)
        self.eta_wide, self.differ_wide = None, False

    # Moves in the working format

    @cached_property
    def are_moved(self) -> bool:
        """Whether moves change any input: zeros stay, and so does what is no array."""
        return any(
            bool(np.any(np.isfinite(self.inputs[k]) & (self.inputs[k] != 0)))
            for k in movable(self.inputs)
        )

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

    @property
    def weighty(self) -> float:
        """How many of the differences there are by weight: beside large ones, others are none."""
        with np.errstate(all="ignore"):
            squares = np.square(self.apart / self.scale)
            squares /= np.max(squares, where=np.isfinite(squares), initial=0.0)
        squares = squares[np.isfinite(squares)]
        total = float(np.sum(np.square(squares)))
        return float(np.sum(squares)) ** 2 / total if total else 0.0

    def at_moved(
        self, delta: float, seed: int, *, zeros: bool = False, wide: bool = False
    ) -> tuple[Answer, Answer]:
        """Ask both sides at inputs that are moved, and rounded to a format; or zeros, too."""
        x = self.moves(delta, seed, wide)
        if zeros:
            random = np.random.default_rng(seed % 2**64)
            for k in movable(x):
                nothing = x[k] == 0
                some = random.standard_normal(int(np.count_nonzero(nothing)))
                x[k][nothing] = delta * (rms_of(x[k]) or 1.0) * some
        return self.f(x), self.g(x)

    def likeness(self, delta: float, seed: int) -> float | None:
        """Return the cosine between the difference of the sides here, and at moved inputs."""
        f, g = self.at_moved(delta, seed)
        if f.error or g.error or f.forms != self.of_f.forms or g.forms != self.of_f.forms:
            return None
        return cosine(self.apart, difference(f, g), self.scale)


def _largest(sizes: NDArray) -> float:
    """Return the largest of what is finite, or 0."""
    largest = float(sizes.max(initial=0))
    return largest if math.isfinite(largest) else float(sizes[np.isfinite(sizes)].max(initial=0))
