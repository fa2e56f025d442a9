"""Differences that a narrower format explains: of inputs, results, or something in between."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from ..._core.dtypes import ROUNDOFF
from ..evidence import Evidence
from ..inputs import perturbable
from ..noise_level import cosine
from ..round_to_format import format_parameters, round_array
from ..verdict import (
    COARSE,
    COARSEST,
    EXPLAINED,
    FEW,
    FEW_REDRAWN,
    INSENSITIVE,
    REDUCED,
    STEADY,
    SUSPECT,
    UNSTABLE,
    Verdict,
    as_multiple,
)
from .grids import AGREE_ELSEWHERE, agree_elsewhere
from .quantization import argument_names, explained, quantised_inputs, too_large

_ANOTHER = 0.5  # cosine similarity below which differences are unrelated
_CHANGED = 0.7  # one where it is half way to that
_ALIKE = 0.85  # one of a difference that has begun to change
_STEADY = 0.5  # one between changes in turn, which rounding draws anew
_N_DIRECTIONS = 4  # along which a difference is followed

# Moves that change noise half way, in units of its size. What is rounded in several places changes
# in each by itself, and all are together larger than one by the root of their number: of up to 9.
_LEAST, _MOST = 0.12 / 3, 1.0
_UNEVEN = 8.0  # times that noise is larger in the units of single results than in those of all
_LITTLE = 32.0  # times that one rounding may be more than what comes of it
_PART = 0.125  # of the moves that change noise half way: most thresholds are not crossed by it
_UNCHANGED = 0.125  # of what moves do to a result
_MANY_STAY = 0.3  # of the results; of noise about _STILL do, of other functions half and more
_CHANCE = 0.1  # by which cosines rise by chance


def narrowed_inputs(e: Evidence) -> Verdict | None:
    """Errors that inputs, or results, in a narrower format explain."""
    if e.reference is None:
        return None
    for name, size in (("g", e.eta_g), ("f", e.eta_f)):
        if size.robust <= e.allowed or size.broken:
            continue
        for form, truncate, arguments in _candidates(e):
            change = partial(narrowed, form=form, truncate=truncate, arguments=arguments)
            share = explained(e, name, change)
            if share > EXPLAINED:
                which = argument_names(arguments, e)
                way = " by truncation" if truncate else ""
                return Verdict(
                    REDUCED,
                    f"{name} is off by {as_multiple(size.rms)}: rounding {which} to {form}{way} "
                    f"explains {100 * share:.3g} % of it",
                    form,
                    tuple(arguments),
                )
    return None


def _candidates(e: Evidence) -> Iterator[tuple[str, bool, list[int]]]:
    """Give narrower formats, ways of rounding and places of arguments, the likeliest first."""
    working_roundoff = ROUNDOFF[e.form]
    forms = [
        form
        for form, roundoff in ROUNDOFF.items()
        if roundoff > working_roundoff and form != "float64"
    ]
    arguments = perturbable(e.inputs)
    groups = [arguments, *([k] for k in arguments if len(arguments) > 1)]
    groups += [list(pair) for pair in combinations(arguments, 2) if 2 < len(arguments) < 5]
    for group in groups:
        for form in forms:
            for truncate in (False, True):
                yield form, truncate, group


def noise_in_between(e: Evidence) -> Verdict | None:
    """
    Recognise rounding errors in an intermediate value by their decorrelation.

    Noise does so when they are moved by about half of its own size, whatever format it is of, or by
    less where it comes of several places; the difference of two functions does so elsewhere, or
    never, or steadily.
    """
    flat = e.reference is not None and e.noise_level.kappa < INSENSITIVE
    # Noise has a size, which no difference in results of known units has not.
    if e.eta_difference.broken or flat or not e.eta_difference.rms:
        return None
    extent = _decorrelating_perturbation(e)
    if extent is None and _flips_sign(e):
        extent = e.roundoff
    if extent is None:
        return None
    size = e.eta_difference.rms * e.roundoff
    # What stays in the wider format is no noise of this one, however soon it changes.
    coarse = extent >= COARSE * e.roundoff or e.differ_wide
    coarse &= e.eta_difference.normwise > e.eta_difference.rms / _UNEVEN
    # Of many results, not a few alone.
    coarse &= e.effective_count >= min(FEW, e.difference.size / 2)
    coarse &= _LEAST < extent / size < _MOST
    coarse = coarse and not (_stays_wide(e) or _changes_steadily(e) or _stays_for_most(e, extent))
    if coarse:
        quantised = quantised_inputs(e)
        if quantised is not None:
            return quantised
        form = _in_between(e, size)
        if form is not None:
            return too_large(e) or Verdict(
                REDUCED,
                f"f and g differ by {as_multiple(e.eta_difference.rms)}, and the error changes "
                "when the "
                f"inputs are perturbed by 2**{math.log2(extent):.0f} of their size, not by less: "
                f"an intermediate value has about the precision of {form}",
                form,
                None,
            )
    if extent < COARSE * e.roundoff and e.wide is None:
        if agree_elsewhere(e):
            return Verdict(
                SUSPECT,
                f"f and g differ by {as_multiple(e.eta_difference.robust, e.allowed)}, "
                f"{AGREE_ELSEWHERE}",
            )
        return Verdict(
            UNSTABLE,
            f"f and g differ by {as_multiple(e.eta_difference.robust, e.allowed)}, and the error "
            "changes "
            f"when the inputs are perturbed by a few ulps: one of them loses digits",
        )
    return None


def _stays_wide(e: Evidence) -> bool:
    """Return True if the difference persists in higher precision, and noise hides that here.

    What is held in few bits whatever comes is so there, too, and changes as soon.
    """
    if e.wide is None or not e.wide.differ:
        return False
    delta, _ = e.evidence["likeness_by_move"][-1]
    there = e.perturbed_difference(delta, e.seed + 990, wide=True)
    if there is None:
        return False
    similarity = e.evidence["likeness_wide"] = cosine(e.wide.unmoved, there, e.scale)
    return similarity > STEADY


def _changes_steadily(e: Evidence) -> bool:
    """Return True if the difference changes smoothly along a line, as that of two waves does.

    A rounding error jumps: what it changes by on one stretch says nothing of the next.
    """
    begun = [delta for delta, alike in e.evidence["likeness_by_move"] if alike > _ALIKE]
    cosines = []
    for line in range(_N_DIRECTIONS if begun else 0):
        then, later = (e.perturbed_difference(k * begun[-1], e.seed + 950 + line) for k in (1, 2))
        if then is None or later is None:
            return False
        cosines.append(cosine(then - e.difference, later - then, e.scale))
    similarity = float(np.mean(cosines)) if cosines else 0.0
    e.evidence["steadiness"] = similarity
    return similarity > _STEADY


def _stays_for_most(e: Evidence, extent: float) -> bool:
    """
    Return True if a fraction of the decorrelating perturbation leaves most differences unchanged.

    A number that is held in few bits stays where it is, and its error changes by all that inputs
    are moved by, or it jumps. Where only some inputs are treated otherwise, those near a wrong
    threshold say, one side follows the other in all results that these have no part in.
    """
    delta = _PART * extent
    there = e.perturbed_difference(delta, e.seed + 970)
    if there is None:
        return False
    change = e.scale * (delta / e.roundoff)
    unequal = np.abs(e.difference) > e.allowed * e.scale
    stays = np.abs(there - e.difference) <= _UNCHANGED * change
    share = e.evidence["stays"] = float(np.mean(stays[unequal])) if unequal.any() else 0.0
    return share > _MANY_STAY


def _in_between(e: Evidence, size: float) -> str | None:
    """Return the format in which sums may be held, for their errors to be of a size.

    That many roundings of a finer format give the same size cannot be told from few of a coarser
    one: of those in which sums are held, the coarsest is named.
    """
    forms = [x for x in ("bfloat16", "float16", "float32") if ROUNDOFF[x] > e.roundoff]
    for form in forms:
        if ROUNDOFF[form] / 6 < size < ROUNDOFF[form] * math.sqrt(e.length):
            return form
    # Or a single rounding error, which is small relative to the noise level.
    one = ROUNDOFF[forms[-1]] if forms else 0.0
    return forms[-1] if one / _LITTLE < size < one else None


def _decorrelating_perturbation(e: Evidence) -> float | None:
    """Return how far inputs are moved until the sides' difference is another; None if it stays."""
    alike = [(e.roundoff, 1.0)]
    finest = int(-math.log2(e.roundoff)) - 1
    for k, power in enumerate(range(finest, COARSEST - 1, -2 if finest < 30 else -3)):
        similarity = e.similarity(2.0**-power, e.seed + 900 + k)
        if similarity is None:
            return None
        before, then = alike[-1]
        if similarity > then + _CHANCE:  # of few roundings, some cosines are low by chance
            again = e.similarity(before, e.seed + 930 + k)
            alike[-1] = before, 0.5 * (then + (then if again is None else again))
        alike.append((2.0**-power, similarity))
        if similarity < _ANOTHER:
            break
    e.evidence["likeness_by_move"] = alike[1:]
    cosines = [cosine_here for _, cosine_here in alike]
    # Noise that has become another does not become itself again.
    if not cosines[-1] < _ANOTHER or any(b > a + _CHANCE for a, b in pairwise(cosines)):
        return None
    # Where it is half way to that, between two moves, along a straight line of the logarithm.
    k = next(k for k, (_, cosine_here) in enumerate(alike) if cosine_here < _CHANGED)
    (before, above), (after, below) = alike[k - 1 : k + 1]
    share = (above - _CHANGED) / (above - below)
    return float(before * (after / before) ** share)


def _flips_sign(e: Evidence) -> bool:
    """
    Return True if perturbations of a few ulps flip the sign of the difference at random.

    If nearly all of it is along one direction, as for nearly singular matrices, the cosine is near
    1 or -1.
    """
    if e.wide is not None:
        return False
    delta = COARSE * e.roundoff
    cosines = [e.similarity(delta, e.seed + 1000 + k) or 0.0 for k in range(FEW_REDRAWN)]
    similarity = e.evidence["likeness_of_turns"] = float(np.mean(cosines))
    return similarity < _ANOTHER


def narrowed(
    inputs: Sequence[Any], form: str, truncate: bool, arguments: Sequence[int]
) -> list[Any] | None:
    """Round some inputs to a format; return None if that overflows."""
    result = list(inputs)
    limit = (2 if truncate else 1) * 2 * ROUNDOFF[form]
    for k in arguments:
        x = inputs[k]
        parts = np.ascontiguousarray(x).astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        reals = parts.reshape(-1).view(np.float64)
        rule = format_parameters(form, np.dtype(np.float64), truncate)
        rounded = round_array(reals, rule)
        if not np.linalg.norm(rounded - reals) <= limit * np.linalg.norm(reals):
            return None
        result[k] = rounded.view(parts.dtype).reshape(x.shape).astype(x.dtype)
    return result
