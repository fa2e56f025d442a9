"""The questions put to two implementations, cheapest first, until the answers decide."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from .._protocols import NDArray
from .._rounding import FORMATS
from .answers import Answer, comparable
from .casts import casting, casting_in_part
from .inputs import movable, widened
from .sides import BudgetError, Side
from .smooth import is_rough
from .standard import require_comparable, standard_of
from .units import (
    MOVES,
    ROUNDOFF,
    Moves,
    Size,
    Unit,
    cosine,
    difference,
    largest_of,
    own_roundings,
    rms_of,
    size_of_results,
    spread_of,
    unit_of,
)
from .verdicts import ALONE, COARSEST, FAR, FEW_REDRAWN, HALF, MANY, REDRAW, REDRAWN, STEADY
from .wider import Wide
from .working_format import is_wide

_BEYOND = 2.0**-6  # of an input: a move that leaves its last places far behind
_OF_SUMS = 64.0  # last places of a term by how many there are: well beyond last places of the sum

Differ = Callable[[float, int], NDArray | None]  # what differences are at moved inputs


@dataclass
class Inquiry:
    """Two sides at some inputs, and what is known of them so far."""

    f: Side
    g: Side
    inputs: tuple[Any, ...]
    form: str  # the working format
    widens: str | None = None  # who is called in the wider format: "fg", "f", "g" or none
    reference: Callable[..., Any] | None = None
    length: int = 1  # of the reductions
    batch: tuple[int, ...] = ()
    seed: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)
    unsteady: str = ""  # what is said of sides that do not repeat themselves, within rounding
    titles: tuple[str, ...] = ()  # how the inputs are reached among the caller's, if not by place
    owners: tuple[int, ...] = ()  # and which of those they are part of
    options: dict[str, str] = field(default_factory=dict)  # the caller's, as code
    unpacked: bool = True  # whether the caller passes a tuple or list of arguments

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
    def answers(self) -> dict[str, Answer]:
        return {"f": self.of_f, "g": self.of_g}

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
        return max([1.0, *map(largest_of, self._sizes)])

    @cached_property
    def typical_size(self) -> float:
        """How large they are mostly."""
        finite = (sizes[np.isfinite(sizes)] for sizes in self._sizes)
        return max([1.0, *(float(np.median(sizes)) for sizes in finite if sizes.size)])

    @property
    def _sizes(self) -> list[NDArray]:
        return [np.abs(self.inputs[k]) for k in movable(self.inputs)]

    # The wider format, and what is measured from it

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

    def given(self, f: Answer, g: Answer, reference: Answer, unit: NDArray) -> None:
        """Take answers and units as known, and ask no side."""
        self.of_f, self.of_g = f, g
        side = Side("reference", self.f.call, (), self.f.budget)
        self._standards = side, reference, Unit(unit, math.nan)

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

    def apart_at(self, delta: float, seed: int, *, wide: bool = False) -> NDArray | None:
        """Return how far the sides are apart at moved inputs; None if they answer otherwise."""
        f, g = self.at_moved(delta, seed, wide=wide)
        return difference(f, g) if comparable(f, g, self.of_f) else None

    def nearby(
        self, inputs: Sequence[Any], roundoff: float, seed: int, most: int
    ) -> Iterator[tuple[NDArray, NDArray]]:
        """Give what both sides answer where inputs are moved by last places, if that compares."""
        moves = Moves(inputs)
        for k in range(most):
            x = moves(2 * roundoff, seed + k, wide=False)
            f, g = self.f(x), self.g(x)
            if not comparable(f, g, self.of_f):
                return
            yield f.numbers(np.float64), g.numbers(np.float64)

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
