"""The questions put to two implementations, cheapest first, until the answers decide."""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from itertools import combinations

import numpy as np

from .._protocols import NDArray
from .errors import Errors
from .sides import BudgetError
from .units import (
    cosine,
)
from .verdicts import COARSEST, FEW_REDRAWN, MANY, REDRAW, REDRAWN, STEADY
from .wider import Wide

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
