"""Differences that are more than rounding: jumps, lost digits, and other functions."""

import numpy as np

from .._report import differing
from .inquiry import Inquiry
from .layouts import plain
from .ties import at_ties
from .units import difference, size_of
from .verdicts import ALONE, AMPLIFIED, BUG, FLIPS, STEADY, SUSPECT, UNSTABLE, Verdict

_ALIKE = 4.0  # times what one side loses, the other may lose


def steady_difference(q: Inquiry) -> Verdict | None:
    """Recognise another function, whose difference stays however far the inputs are moved.

    Rounding, to whatever format, would be another one then; and so would a jump.
    """
    if not q.differ_wide or q.eta_apart.broken:
        return None
    found = q.evidence["likeness_far"] = q.least_likeness(1, q.seed + 800)
    return another_function(q) if found > STEADY else None


def heedless_of_strides(q: Inquiry) -> Verdict | None:
    """Recognise a side that is right only for arrays without gaps."""
    inputs = plain(q.inputs)
    if inputs is None or q.standard is None:
        return None
    for name, side, answer in (("f", q.f, q.of_f), ("g", q.g, q.of_g)):
        before = q.error(answer)
        if before.least <= q.allowed and not before.broken:
            continue
        other = side(inputs)
        if other.error is not None or other.forms != answer.forms:
            continue
        after = q.error(other)
        if after.least <= q.allowed and not after.broken:
            return Verdict(
                BUG,
                f"{name} is {before.rms:.3g} units off for arrays of this layout, and right for "
                f"the same numbers in C order: it does not heed their strides",
            )
    return None


def jumps(q: Inquiry) -> Verdict | None:
    """Results that jump where the function does: at ties, which last places decide."""
    if q.standard is None:
        return None
    side, r = q.standard
    out = [np.abs(difference(y, r)) > q.allowed * q.unit.values for y in (q.of_f, q.of_g)]
    outliers = out[0] | out[1]
    if not outliers.any() or q.eta_f.broken or q.eta_g.broken:
        return None
    rest = ~outliers
    values = r.numbers(np.float64)
    low, high = values.copy(), values.copy()
    delta = q.allowed * q.roundoff
    for k in range(FLIPS):
        answer = side(q.moves(delta, q.seed + 500 + k, wide=True))
        if answer.error is None and answer.forms == r.forms:
            low = np.minimum(low, answer.numbers(np.float64))
            high = np.maximum(high, answer.numbers(np.float64))
    room = q.allowed * q.unit.values
    covered = np.ones(values.size, bool)
    for y in (q.of_f, q.of_g):
        numbers = y.numbers(np.float64)
        covered &= (numbers >= low - room) & (numbers <= high + room)
    # An envelope that is wide everywhere covers anything.
    jumped = (high - low) > 4 * q.allowed * q.unit.values
    q.evidence["jumps"] = int(np.count_nonzero(jumped))
    share = np.count_nonzero(covered & jumped & outliers) / np.count_nonzero(outliers)
    unit = q.unit.values
    small = all(
        not rest.any() or size_of(difference(y, r)[rest], unit[rest]).least <= q.allowed
        for y in (q.of_f, q.of_g)
    )
    if share >= 0.9 and small:
        differ = differing(int(np.count_nonzero(outliers)), outliers.size, "result")
        if q.differ_wide:
            told = f"{differ} beyond rounding, where the function jumps, and in the wider format, "
            return Verdict(SUSPECT, f"{told}too: the sides jump at different places")
        return at_ties(q) or Verdict(
            AMPLIFIED,
            f"{differ} beyond rounding, and the function itself jumps as far when its inputs are "
            f"moved by last places",
        )
    return None


def unstable(q: Inquiry) -> Verdict | None:
    """Recognise an algorithm that loses as many digits of the wider format as of this one."""
    far = q.eta_wide
    if far is None or far.broken or q.differ_wide or far.least <= q.allowed_wide:
        return None
    return loses_digits(q)


def digits_lost_alike(q: Inquiry) -> Verdict | None:
    """Recognise errors no larger than what the one side with a wider format loses itself here."""
    if q.standard is None or q.eta_wide is not None:
        return None
    errors, name = {"f": q.eta_f, "g": q.eta_g}, q.standard[0].name
    if name not in errors or errors[name].least <= q.allowed:
        return None
    if any(size.broken for size in errors.values()):
        return None
    unit = np.hypot(q.unit.values, q.own_noise)
    sizes = [q.size(q.off(y), unit) for y in (q.of_f, q.of_g)]
    if any(size.least > _ALIKE or size.peak > ALONE * _ALIKE for size in sizes):
        return None
    other = next(k for k in errors if k != name)
    both = errors[other].least > q.allowed
    whose = "both algorithms lose" if both else f"{name}'s algorithm loses"
    return Verdict(
        UNSTABLE,
        f"{name} is {errors[name].least:.2g} units off what it gives in the wider format, of "
        f"{q.allowed:.3g} that rounding may take, and {other} is {errors[other].least:.2g} off: "
        f"{whose} digits",
    )


def loses_digits(q: Inquiry) -> Verdict | None:
    """Recognise one function, by the wider format, of which a side loses much in this one."""
    if q.eta_wide is None or q.differ_wide:
        return None
    if q.constancy > STEADY:  # a branch for this format, which has a bug of its own
        told = f"the sides are {q.eta_apart.rms:.3g} units of rounding apart, and not in the wider "
        told += "format; but here their difference stays where inputs are moved far: another "
        told += "function in this format, or a table of its own that is rounded"
        return Verdict(BUG, told)
    ties = at_ties(q)
    if ties is not None:
        return ties
    errors = {"f": q.eta_f, "g": q.eta_g}
    name = max(errors, key=lambda name: errors[name].least)
    return Verdict(
        UNSTABLE,
        f"in the wider format both sides agree, and here {name} is {errors[name].least:.2g} units "
        f"off, of {q.allowed:.3g} that rounding may take: its algorithm loses digits",
    )


def another_function(q: Inquiry) -> Verdict:
    size = q.eta_apart
    told = f"the sides are {size.rms:.3g} units of rounding apart, of {q.allowed:.3g} allowed"
    if size.broken:
        told = _broken(q)
    if q.differ_wide:
        told += ", and as far in the wider format: another function"
    return Verdict(BUG, told)


def _broken(q: Inquiry) -> str:
    """Tell of differences that are not finite."""
    f, g = (np.isfinite(y.numbers(np.float64)) for y in (q.of_f, q.of_g))
    alone = int(np.count_nonzero(f != g))
    if alone:
        return f"{alone} of {f.size} results not finite on one side alone"
    neither = int(np.count_nonzero(~np.isfinite(q.apart) & ~f))
    if neither:
        return f"{neither} of {f.size} results other infinities, or NaN, on the other side"
    return f"{q.eta_apart.broken} of {f.size} results farther apart than float64 can tell"
