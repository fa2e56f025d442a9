"""Errors of two implementations, the unit in which they are counted, and rounding by casts."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from .._core.dtypes import FORMATS
from .._core.protocols import NDArray
from .callables import Answer, Side, comparable
from .error_units import (
    MOVES,
    Size,
    Unit,
    difference,
    is_rough,
    own_roundings,
    require_comparable,
    rms_of,
    size_of_results,
    spread_of,
    standard_of,
    unit_of,
)
from .implementations import Implementations
from .inputs import is_movable, is_wide, widened
from .verdict import FAR, GROSS, HALF

_CAST_PERTURBATION = 0.3  # of a last place: what rounding to the format takes off again
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
    x = q.moves(_CAST_PERTURBATION * q.roundoff, q.seed + 60, wide=True)
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


_BEYOND = 2.0**-6  # of an input: a move that leaves its last places far behind


class Errors(Implementations):
    """Errors of two implementations: from a reference in the wider format, or from each other."""

    @cached_property
    def wide_inputs(self) -> list[Any]:
        return widened(self.inputs)

    @cached_property
    def wide_answers(self) -> dict[str, Answer]:
        """What the sides that can give in the wider format."""
        found = {}
        for name, side in (("f", self.f), ("g", self.g)):
            if self.widens is None or name not in self.widens:
                continue
            answer = side(self.wide_inputs)
            if comparable(answer, self.of_f) and is_wide(answer, self.form):
                found[name] = answer
        if len(found) == 2:
            cast = casting(self, found) or casting_in_part(self, found)
            return {name: answer for name, answer in found.items() if name != cast}
        return found

    @cached_property
    def _standards(self) -> tuple[Side, Answer, Unit] | None:
        """The side that errors are measured from, its answer in the wider format, and units."""
        if self.reference is not None:
            side = Side("reference", self.reference, self.f.likes, self.f.budget)
            answer = side(self.wide_inputs)
            require_comparable(answer, self.of_f, self.roundoff)
            return side, answer, self._unit(side, answer)
        answers = self.wide_answers
        return standard_of(self.sides, answers, self._unit, self._is_rough) if answers else None

    def _is_rough(self, name: str) -> bool:
        """Tell whether a side that answers in the wider format stays and jumps there."""
        f, g = self.wide_answers.values()
        size = rms_of(f.numbers(np.float64))
        off = rms_of(difference(f, g)) / size if size else 0.0
        # A format is no narrower than the working one, or none makes as much of it.
        if not self.allowed * self.roundoff < off < HALF:
            return False
        answer = self.wide_answers[name]
        return is_rough(self.sides[name], answer, self.moves, off, self.seed + 80)

    def _unit(self, side: Side, answer: Answer) -> Unit:
        return unit_of(side, answer, self.moves, self.roundoff, self.form, self.seed)

    def unit_from(self, name: str) -> Unit:
        """Estimate units as if they were measured from a side that answers in the wider format."""
        return self._unit(self.sides[name], self.wide_answers[name])

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
        """Measure errors of the results."""
        return size_of_results(self.of_f, d, unit)

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
    def errors(self) -> dict[str, Size]:
        return {"f": self.eta_f, "g": self.eta_g}

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
            if comparable(y, r, self.of_f):
                sums += np.square(difference(y, r))
                count += 1
        noise: NDArray = np.sqrt(sums / count)
        return noise

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
    def flushed_by(self) -> dict[str, NDArray]:
        """Which results are 0 on a side, and subnormal on the other one beyond their units."""
        fraction, lowest = FORMATS[self.form][:2]
        numbers = {name: y.numbers(np.float64) for name, y in self.answers.items()}
        found = {}
        for name, y in numbers.items():
            lost = y == 0
            if lost.any():
                other = np.abs(numbers["f" if name == "g" else "g"])
                unit = np.maximum(2.0 ** (lowest - fraction), self.scale)
                lost &= other > self.allowed * unit
                # What is 0 where others are normal, too, was cut off.
                lost &= not (other[lost] >= 2.0**lowest).any()
            found[name] = lost
        return found

    @property
    def flushed(self) -> NDArray:
        """Which results are so on either side."""
        flushed: NDArray = np.logical_or(*self.flushed_by.values())
        return flushed

    def is_rounding_beside(self, lost: NDArray) -> bool:
        """Tell whether errors of all other results are as those of rounding."""
        off = [self.apart] if self.standard is None else map(self.off, self.answers.values())
        sizes = (self.size(np.where(lost, 0.0, d), self.scale) for d in off)
        return all(map(self.is_rounding, sizes))

    def given(self, f: Answer, g: Answer, reference: Answer, unit: NDArray) -> None:
        """Take answers and units as known, and ask no side."""
        self.of_f, self.of_g = f, g
        side = Side("reference", self.f.call, (), self.f.budget)
        self._standards = side, reference, Unit(unit, math.nan)

    @property
    def weighty(self) -> float:
        """How many of the differences there are by weight: beside large ones, others are none."""
        with np.errstate(all="ignore"):
            squares = np.square(self.apart / self.scale)
            squares /= np.max(squares, where=np.isfinite(squares), initial=0.0)
        squares = squares[np.isfinite(squares)]
        total = float(np.sum(np.square(squares)))
        return float(np.sum(squares)) ** 2 / total if total else 0.0
