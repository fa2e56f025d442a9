"""Estimate rounding errors of f and of its derivatives from nearby points."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from .._core.protocols import NDArray
from .analytic import AnalyticDerivative
from .basis_vectors import unit_vector
from .columns import Sizes
from .entry_rules import FAIL, PASS, SURE, Rule, few_roundings
from .flatten import largest_by_segment, moduli
from .function_at_point import FunctionAtPoint
from .summary import FlaggedEntries

Move = Callable[[NDArray], NDArray]

_N_NEARBY = 8  # nearby points; few agree with x by chance
_CHANGES = 16.0  # rounding explains this many times the largest change at nearby points
_SHARE = 0.05  # a smooth f changes by far less than itself over this share of x
_OTHERS = 4.0  # a result of pure rounding is at most this many times its changes
_MORE = 64.0  # rounding of f is at most this many times that at a few nearby points


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


def all_rounding(subject: FunctionAtPoint, random: np.random.Generator) -> NDArray:
    """
    Return by how much rounding changes results of f that nothing else changes, and 0 for others.

    They are the same but for rounding, there and here, at points that are farther off by a share of
    x or of natural numbers.
    """

    def about(x: NDArray) -> NDArray:
        size = np.abs(x[np.isfinite(x)]).max(initial=1.0)
        return np.asarray(x + random.uniform(-_SHARE, _SHARE, x.shape) * size)

    def bend(at: FunctionAtPoint, value: NDArray) -> NDArray:
        return np.asarray(
            np.abs(_second_difference(partial(_value, at), value, subject.eps, random))
        )

    def farther_off() -> NDArray:
        there = subject.perturbed(about)
        value = there.reals_of(there.call())
        local = largest_by_segment(bend(there, value), subject.active_outputs)
        subject.calls = there.calls
        return np.asarray(np.maximum(np.abs(value - subject.base) - _MORE * local, 0.0))

    near = _largest(lambda: bend(subject, subject.base))
    # One rounding may hide all, and few results show those of few bits.
    near = largest_by_segment(np.fmax(near, subject.eps * subject.rounded), subject.active_outputs)
    return np.where(_largest(farther_off, np.inf) <= _MORE * near, near, 0.0)


def _value(subject: FunctionAtPoint, move: Move) -> NDArray:
    """Return the results of f at another point."""
    other = subject.perturbed(move)
    values = other.reals_of(other.call())
    subject.calls = other.calls
    return values


def hides(rounding: NDArray, slopes: NDArray, largest: NDArray) -> NDArray:
    """Return True for slopes whose effect on f is within its rounding, where f is only that."""
    small = np.abs(slopes) * (_SHARE * largest) <= _MORE * rounding
    return np.asarray(small & (rounding > 0))


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


def entries_of(d: AnalyticDerivative, times: float, rows: NDArray, columns: NDArray) -> NDArray:
    """Return some entries of a derivative, by unit vectors times a number."""
    if d.form == "jac":
        return np.asarray(d.matrix()[rows, columns]).ravel()
    unit_indices, positions, count = rows, columns, d.subject.rows
    if d.form == "jvp":
        unit_indices, positions, count = columns, rows, d.subject.columns
    values = np.empty(len(rows))
    for index in np.unique(unit_indices):
        selected = unit_indices == index
        values[selected] = d.product(times * unit_vector(count, index))[positions[selected]] / times
    return values


_NONE = np.empty(0, np.int64)


def rounding_only_entries(
    entries: FlaggedEntries,
    subject: FunctionAtPoint,
    derivatives: list[AnalyticDerivative],
    rule: Rule,
    sizes: Sizes | None,
    eps: float,
    random: np.random.Generator,
) -> NDArray:
    """Return the positions of `entries` that are all rounding, if no other entry is wrong."""
    verdicts, forms = np.array(entries.verdicts), np.array(entries.forms)
    if not 0 < len(verdicts) == sum(entries.count.values()) - entries.count[PASS]:
        return _NONE  # if not all are kept
    columns, rows = np.array(entries.columns), np.array(entries.rows)
    analytic, value, error = np.array(entries.values).T
    failed, difference = verdicts == FAIL, np.abs(analytic - value)
    zero = (np.abs(value) <= SURE * error) | rule.is_locally_constant(analytic, value, error)
    if not (zero.any() and zero[failed].all()):
        return _NONE
    nothing = difference <= few_roundings(eps) * subject.natural[rows]
    if sizes is not None:
        nothing |= rule.is_nothing(difference, np.fmax(sizes.rows[rows], sizes.columns[columns]))
    largest = largest_by_segment(moduli([p.example for p in subject.active]), subject.active)
    rounding = all_rounding(subject, random)[rows]
    hidden = hides(rounding, analytic, largest[columns])
    hidden &= rule.is_nothing(rounding, np.fmax(subject.sizes[rows], subject.units.max()))
    passed = hidden | (nothing & failed)
    if not passed[failed].all():  # then other points need not be evaluated
        return _NONE
    for d in derivatives:
        (which,) = np.nonzero(passed & (forms == d.name))
        if len(which):
            evaluate = partial(entries_of, rows=rows[which], columns=columns[which])
            passed[which] = np.abs(analytic[which]) <= rounding_magnitude(d, evaluate, random)
    return np.flatnonzero(passed)
