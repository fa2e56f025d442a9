"""Differences that a narrower format explains: of inputs, results, or something in between."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np

from ..emulation import bit_rule, round_array
from .inquiry import COARSE, COARSEST, EXPLAINED, FLAT, REDUCED, UNSTABLE, Inquiry, Verdict, movable
from .sides import Answer
from .units import ROUNDOFF, cosine, difference, rms_of, size_of

_ANOTHER = 0.5  # a cosine below which a difference is taken for another one
_CHANGED = 0.7  # one where it is half way to that


_ALIKE = 0.85  # one of a difference that has begun to change
_STEADY = 0.5  # one between changes in turn, which rounding draws anew
_LINES = 4  # along which a difference is followed

_LEAST, _MOST = 0.12, 1.0  # moves that change noise half way, in units of its size
_CHANCE = 0.1  # by which cosines rise by chance


_MANY = 16  # different numbers that are no accident on a grid
_STORED = ("float8_e5m2", "float8_e4m3", "bfloat16", "float16", "float32")


def narrowed_inputs(q: Inquiry) -> Verdict | None:
    """Errors that inputs, or results, in a narrower format explain."""
    if q.standard is None:
        return None
    side, r = q.standard
    for name, answer in (("g", q.of_g), ("f", q.of_f)):
        size = q.error(answer)
        if size.least <= q.allowed or size.broken:
            continue
        d = difference(answer, r)
        if not rms_of(d):
            continue
        for form, truncate, places in _candidates(q):
            inputs = q.narrowed(form, truncate, places)
            if inputs is None:
                continue
            then = side(inputs)
            if then.error is not None or then.forms != r.forms:
                continue
            left = size_of(difference(answer, then), q.unit.values)
            # Of all results alike, and not only of some large ones.
            kept = max(left.absolute / rms_of(d), left.rms / size.rms)
            share = 1 - kept * kept
            if left.broken == 0 and share > EXPLAINED:
                which = _arguments(places, q)
                way = ", truncated" if truncate else ""
                return Verdict(
                    REDUCED,
                    f"{name} is {size.rms:.2g} units off, of which {which} rounded to {form}{way} "
                    f"explain {100 * share:.3g} %",
                    form,
                    tuple(places),
                )
    return None


def _arguments(places: Sequence[int], q: Inquiry) -> str:
    if len(places) == len(movable(q.inputs)) > 1:
        return "all arguments"
    return "argument " + " and ".join(map(q.title, places))


def _candidates(q: Inquiry) -> Iterator[tuple[str, bool, list[int]]]:
    """Give narrower formats, ways of rounding and places of arguments, the likeliest first."""
    own = ROUNDOFF[q.form]
    forms = [form for form, roundoff in ROUNDOFF.items() if roundoff > own and form != "float64"]
    places = movable(q.inputs)
    groups = [places, *([k] for k in places if len(places) > 1)]
    groups += [list(pair) for pair in combinations(places, 2) if 2 < len(places) < 5]
    for group in groups:
        for form in forms:
            for truncate in (False, True):
                yield form, truncate, group


# Sums in a narrow format fall behind, and that stays alike, too, if less so than a forgotten term.
_CONSTANT = 0.99


def on_a_grid(q: Inquiry) -> Verdict | None:
    """Recognise results that are numbers of a narrower format, where the other side's are not."""
    coarse = {name: grid_of(q, answer) for name, answer in (("f", q.of_f), ("g", q.of_g))}
    for name, other in (("g", "f"), ("f", "g")):
        form = coarse[name]
        if form is not None and coarse[other] != form:
            size = q.eta_apart
            most = 4 * ROUNDOFF[form] * math.sqrt(q.length) / q.roundoff
            if size.broken == 0 and size.normwise <= most and q.constancy <= _CONSTANT:
                return Verdict(
                    REDUCED,
                    f"the sides are {size.rms:.2g} units apart, and all results of {name} are "
                    f"numbers of {form}: it sums, or returns, in that format",
                    form,
                    None,
                )
    return None


def grid_of(q: Inquiry, answer: Answer) -> str | None:
    """Return the narrowest format that holds all of many different results."""
    numbers = answer.numbers(np.float64)
    numbers = numbers[np.isfinite(numbers) & (numbers != 0)]
    # Few, or small integers, are in any format.
    if np.unique(np.abs(numbers)).size < _MANY or (numbers == np.rint(numbers)).all():
        return None
    for form in _STORED:
        if ROUNDOFF[form] <= q.roundoff:
            break
        rule = bit_rule(form, numbers.dtype)
        if np.array_equal(round_array(numbers, rule), numbers):
            return form
    return None


def noise_in_between(q: Inquiry) -> Verdict | None:
    """
    Recognise rounding by its becoming another one when inputs are moved.

    Noise does so when they are moved by about half of its own size, whatever format it is of; the
    difference of two functions does so elsewhere, or never, or steadily.
    """
    flat = q.standard is not None and q.unit.kappa < FLAT
    if q.eta_apart.broken or flat:
        return None
    reach = _reach(q)
    if reach is None:
        return None
    size = q.eta_apart.rms * q.roundoff
    if reach >= COARSE * q.roundoff and _LEAST < reach / size < _MOST:
        form = _in_between(q, size)
        if form is not None and not _changes_steadily(q):
            return Verdict(
                REDUCED,
                f"the sides are {q.eta_apart.rms:.2g} units apart, by an error that becomes "
                f"another one when inputs are moved by 2**{math.log2(reach):.0f} of themselves, "
                f"and not before: something in between is held in about as many bits as {form}",
                form,
                None,
            )
    if reach < COARSE * q.roundoff and q.eta_wide is None:
        return Verdict(
            UNSTABLE,
            f"the sides are {q.eta_apart.least:.2g} units apart, of {q.allowed:.3g} that rounding "
            f"may take, by an error that is another one when inputs are moved by last places: one "
            f"of them loses digits",
        )
    return None


def _changes_steadily(q: Inquiry) -> bool:
    """Tell whether the difference goes on as it began along a line, as that of two waves does.

    A rounding error jumps: what it changes by on one stretch says nothing of the next.
    """
    begun = [delta for delta, alike in q.evidence["likeness_by_move"] if alike > _ALIKE]
    found = []
    for line in range(_LINES if begun else 0):
        differences = [q.apart]
        for stretch in (1, 2):
            f, g = q.at_moved(stretch * begun[-1], q.seed + 950 + line)
            if f.error or g.error or f.forms != q.of_f.forms or g.forms != q.of_f.forms:
                return False
            differences.append(difference(f, g))
        here, then, later = differences
        found.append(cosine(then - here, later - then, q.scale))
    steadiness = float(np.mean(found)) if found else 0.0
    q.evidence["steadiness"] = steadiness
    return steadiness > _STEADY


def _in_between(q: Inquiry, size: float) -> str | None:
    """Return the format in which sums may be held, for their errors to be of a size.

    That many roundings of a finer format give the same size cannot be told from few of a coarser
    one: of those in which sums are held, the coarsest is named.
    """
    for form in ("bfloat16", "float16", "float32"):
        own = ROUNDOFF[form]
        if own > q.roundoff and own / 6 < size < own * math.sqrt(q.length):
            return form
    return None


def _reach(q: Inquiry) -> float | None:
    """Return how far inputs are moved until the sides' difference is another; None if it stays."""
    alike = [(q.roundoff, 1.0)]
    finest = int(-math.log2(q.roundoff)) - 1
    for k, power in enumerate(range(finest, COARSEST - 1, -2 if finest < 30 else -3)):
        found = q.likeness(2.0**-power, q.seed + 900 + k)
        if found is None:
            return None
        alike.append((2.0**-power, found))
        if found < _ANOTHER:
            break
    q.evidence["likeness_by_move"] = alike[1:]
    cosines = [found for _, found in alike]
    # Noise that has become another does not become itself again.
    if not cosines[-1] < _ANOTHER or any(b > a + _CHANCE for a, b in pairwise(cosines)):
        return None
    # Where it is half way to that, between two moves, along a straight line of the logarithm.
    k = next(k for k, (_, found) in enumerate(alike) if found < _CHANGED)
    (before, above), (after, below) = alike[k - 1 : k + 1]
    share = (above - _CHANGED) / (above - below)
    return float(before * (after / before) ** share)
