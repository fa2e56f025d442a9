"""Sides that round their inputs at random: up as often as a number is nearer to there."""

import math
from contextlib import suppress

import numpy as np

from .._protocols import NDArray
from .answers import comparable
from .explained import argument_names
from .inputs import movable
from .inquiry import Inquiry
from .narrower import narrowed
from .sides import BudgetError
from .units import ROUNDOFF, difference, rms_of, size_of
from .verdicts import NONDETERMINISTIC, SUSPECT, Verdict, as_multiple

_FORMS = ("tf32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2")  # the finest first
_DRAWS, _AGAIN = 8, 4
_MOST, _LEAST = 4.0, 1 / 32  # roundings to a format: one, of some arguments
_SURE = 3.0  # standard errors of a mean
# A step of 1 - 1e-8, say, is 1 in float32, and some numbers of a format go up, now and then.
_OFTEN, _SELDOM = 1 / 2, 1 / 4


def rounded_at_random(q: Inquiry, names: list[str], spread: float, unit: NDArray) -> Verdict | None:
    """
    Recognise stochastic rounding of inputs, by their being numbers of the format already.

    Such numbers it leaves alone (Croci et al., R. Soc. Open Sci. 9 (2022)), so that the sides
    repeat themselves there, and agree. What drops numbers, or races, does so with any.
    """
    if q.eta_apart.broken:
        return None
    with suppress(BudgetError):
        forms = [form for form in _FORMS if _is_rounding_to(q, form, spread)]
        off = {name: _off(q, name) for name in names} if forms else {}
        beyond = (np.abs(d) > 2 * q.allowed * unit for d in off.values() if d is not None)
        if len([x for x in beyond if np.mean(x) >= _OFTEN]) < len(names):
            return None
        every = movable(q.inputs)
        for form in forms:
            if not _steady_in(q, form, every, names, unit, spread):
                continue
            some = [[k] for k in every if _steady_in(q, form, [k], names, unit, spread)]
            which = argument_names(some[0] if some else every, q)
            reason = " and ".join(names) + (" rounds " if len(names) == 1 else " round ")
            reason += f"{which} at random to about the precision of {form}: calls with the same "
            reason += f"inputs differ by {as_multiple(spread)}"
            errors = max(_standard_errors(d, q.scale) for d in off.values() if d is not None)
            if errors > _SURE and len(names) == 1:  # the mean of two is not known
                reason += f", but their mean is off by {errors:.1f} standard errors: it does not "
                return Verdict(SUSPECT, f"{reason}round up as often as down")
            return Verdict(NONDETERMINISTIC, f"{reason}, except for inputs of that precision")
    return None


def _is_rounding_to(q: Inquiry, form: str, spread: float) -> bool:
    """Tell whether calls, and sides, are as far apart as rounding to a format makes them."""
    coarse = ROUNDOFF[form] / q.roundoff
    return _LEAST * coarse <= spread <= _MOST * coarse and q.eta_apart.least <= _MOST * coarse


def _off(q: Inquiry, name: str) -> NDArray | None:
    """Return how far each of several answers of a side is off."""
    other = q.answers["f" if name == "g" else "g"] if q.standard is None else q.standard[1]
    draws = [q.sides[name](q.inputs) for _ in range(_DRAWS)]
    return np.array([difference(y, other) for y in draws]) if comparable(other, *draws) else None


def _steady_in(
    q: Inquiry, form: str, places: list[int], names: list[str], unit: NDArray, spread: float
) -> bool:
    """Tell whether sides repeat themselves, and agree, at inputs rounded to a format."""
    inputs = narrowed(q.inputs, form, False, places)
    if inputs is None:
        return False
    f, g = q.f(inputs), q.g(inputs)
    again = [q.sides[name](inputs) for name in names for _ in range(_AGAIN)]
    if not comparable(q.of_f, f, g, *again):
        return False
    apart = [difference(f, y) for y in (g, *again)]
    sizes = [size_of(d, unit) for d in apart]
    within = max(2 * q.allowed, _SELDOM * spread)
    beyond = float(np.mean([~(np.abs(d) <= 2 * q.allowed * unit) for d in apart]))
    return beyond <= _SELDOM and all(size.least <= within and not size.broken for size in sizes)


def _standard_errors(off: NDArray, scale: NDArray) -> float:
    """Return how far results are off on average, in standard errors of that."""
    off = off * np.where(scale > 0, 1 / scale, 0.0)
    error = rms_of(off.std(axis=0, ddof=1)) / math.sqrt(len(off))
    mean = rms_of(off.mean(axis=0))
    return mean / error if error else math.inf
