"""Estimate rounding errors of f and of its derivatives from nearby points."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .._core.protocols import NDArray
from .._derivatives.thresholds import THRESHOLDS
from .analytic import AnalyticDerivative
from .basis_vectors import unit_vector
from .entry_rules import few_roundings
from .flatten import largest_by_segment, moduli
from .function_at_point import FunctionAtPoint

Move = Callable[[NDArray], NDArray]

_N_NEARBY = 8  # nearby points; few agree with x by chance
_CHANGES = 16.0  # rounding explains this many times the largest change at nearby points
_SHARE = 0.05  # a smooth f changes by far less than itself over this share of x
_OTHERS = 4.0  # a result of pure rounding is at most this many times its changes


def perturbation_error(
    d: AnalyticDerivative,
    evaluate: Callable[[AnalyticDerivative, Move], Any],
    random: np.random.Generator,
) -> Any:
    """
    Return the rounding error of a result of d, estimated from its changes at nearby points.

    The points are on both sides of x, and directions are perturbed likewise.
    """

    def answer(move: Move) -> Any:
        return _evaluate_at(d, lambda other: evaluate(other, move), d.subject.perturbed(move))

    here = np.array(evaluate(d, lambda numbers: numbers))
    return _CHANGES * _largest(lambda: _second_difference(answer, here, d.subject.eps, random))


def rounding_magnitude(
    d: AnalyticDerivative,
    evaluate: Callable[[AnalyticDerivative, float], Any],
    random: np.random.Generator,
) -> Any:
    """
    Return the size of a result of d if it is nothing but rounding.

    Pure rounding varies from point to point, even where it is the same for all roundings of x, as
    of ``1 - exp(2j*pi*n)``, at 0 by the nearest number to ``2*pi*n``. So it does for directions
    scaled by the number that `evaluate` gets, if f is linear.
    """

    def nearer(x: NDArray) -> NDArray:
        return np.asarray(x * (1 - random.uniform(0, _SHARE, x.shape)))

    def elsewhere() -> Any:
        times = random.uniform(1, 2)
        return _evaluate_at(d, lambda other: evaluate(other, times), d.subject.perturbed(nearer))

    here = np.array(evaluate(d, 1.0))
    return _OTHERS * _largest(lambda: elsewhere() - here)


@dataclass(frozen=True)
class Claims:
    """Tests whether entries of the analytic derivatives are nothing but rounding."""

    derivatives: Sequence[AnalyticDerivative]
    random: np.random.Generator

    def may_be_rounding(self, columns: NDArray, entries: NDArray) -> NDArray:
        """Return True for entries that are small enough to be rounding of terms in f."""
        subject = self.derivatives[0].subject
        largest = np.max(np.abs(subject.base), initial=1.0, where=np.isfinite(subject.base))
        most = few_roundings(subject.eps) * THRESHOLDS.noisy * np.fmax(largest, subject.terms)
        return np.asarray(np.abs(entries) * natural_lengths(subject)[columns] ** 2 <= most)

    def are_rounding(
        self, name: str, rows: NDArray, columns: NDArray, entries: NDArray, terms: NDArray
    ) -> NDArray:
        """
        Return True for entries of a derivative that may be pure rounding.

        They change f along x by a few roundings of its `terms`, and vary from point to point.
        """
        result = np.zeros(len(rows), bool)
        for d in self.derivatives:
            subject = d.subject
            least = few_roundings(subject.eps) * np.fmax(subject.natural[rows], terms)
            change = np.abs(entries) * natural_lengths(subject)[columns]
            (which,) = np.nonzero((change <= least) & (entries != 0))
            if d.name == name and len(which):
                evaluate = partial(_entries_of, rows=rows[which], columns=columns[which])
                magnitude = rounding_magnitude(d, evaluate, self.random)
                result[which] = np.abs(entries[which]) <= magnitude
        return result


def natural_lengths(subject: FunctionAtPoint) -> NDArray:
    """Return the largest magnitude of each input, but at most 1, and 1 if it is 0."""
    largest = largest_by_segment(moduli([p.example for p in subject.active]), subject.active)
    return np.asarray(np.where(largest == 0, 1.0, np.fmin(1.0, largest)))


def _entries_of(d: AnalyticDerivative, times: float, rows: NDArray, columns: NDArray) -> NDArray:
    """Return entries of a derivative, from products with unit vectors times a number."""
    if d.form == "jac":
        return np.asarray(d.matrix()[rows, columns]).ravel()
    units, positions, count = rows, columns, d.subject.rows
    if d.form == "jvp":
        units, positions, count = columns, rows, d.subject.columns
    values = np.empty(len(rows))
    for unit in np.unique(units):
        chosen = units == unit
        values[chosen] = d.product(times * unit_vector(count, unit))[positions[chosen]] / times
    return values


def _second_difference(
    answer: Callable[[Move], Any], here: Any, eps: float, random: np.random.Generator
) -> Any:
    """Return the second difference of results on both sides: rounding, as they are very near."""
    seed, share = random.integers(2**63), np.sqrt(eps)  # its square is rounding

    def to(sign: int) -> Any:
        generator = np.random.default_rng(seed)
        return answer(lambda x: x * (1 + sign * generator.uniform(0, share, x.shape)))

    return (to(-1) - here) / 2 + (to(1) - here) / 2


def _largest(change: Callable[[], Any], unknown: float = 0.0) -> Any:
    """Return the largest of some changes; `unknown` where one is not finite or not defined."""
    most = np.zeros(())
    try:
        for _ in range(_N_NEARBY):
            with np.errstate(invalid="ignore", over="ignore"):
                difference = np.abs(change())
            most = np.maximum(most, np.where(np.isfinite(difference), difference, unknown))
    except Exception:  # f or d may not be defined everywhere
        return np.full((), unknown)
    return most


def _evaluate_at(
    d: AnalyticDerivative, evaluate: Callable[[AnalyticDerivative], Any], subject: FunctionAtPoint
) -> Any:
    """Return a result of d at another point."""
    other = replace(d, subject=subject, last_matrix=None)
    result = np.array(evaluate(other))
    d.calls = other.calls
    return result
