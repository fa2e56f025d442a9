"""Differences that are more than rounding: jumps, lost digits, and other functions."""

import math

import numpy as np

from ..._compare.text import differing
from ..callables import comparable
from ..error_units import cosine, difference, error_norms, rms_of
from ..evidence import Evidence
from ..inputs import contiguous
from ..verdict import (
    ALONE,
    AMPLIFIED,
    BUG,
    COARSEST,
    CONSTANT_AMPLIFICATION,
    FEW_REDRAWN,
    FLIPS,
    GAIN_EXPONENT,
    ILL_CONDITIONED,
    INSENSITIVE,
    LARGE_DIFFERENCE,
    STEADY,
    SUSPECT,
    UNSTABLE,
    Verdict,
    as_multiple,
)
from .grids import at_ties
from .no_reference import MOSTLY_UNCHANGED, is_constant, unchanged_share

_ALIKE = 4.0  # times what one side loses, the other may lose
_FEW = 1 / 8  # share of the results up to which rounded constants may explain small differences


def hidden_by_larger_results(q: Evidence) -> Verdict | None:
    """
    Recognise results of another function beside larger ones, whose rounding hides them in norms.

    Digits that small results lose beside large ones are fewer in the wider format, each for itself.
    """
    if q.reference is None:
        return None
    distance, unit = np.abs(q.difference), q.noise_level.values
    beyond = np.isfinite(distance) & (distance > ALONE * q.allowed * unit)
    wide = q.wide if beyond.any() else None
    if wide is None or wide.differ:
        return None
    share = (q.roundoff / wide.fine) ** (GAIN_EXPONENT - 1)
    sizes = np.abs(q.reference[1].numbers(np.float64))
    for d in (np.abs(wide.unmoved), np.abs(wide.difference)):
        beyond &= (d > share * distance) & (d > wide.allowed * wide.noise_level)
        beyond &= ~(wide.lost & wide.are_none(d))
    n = int(np.count_nonzero(beyond))
    # Constants of a source are rounded, too, to a last place of 1: few results are as small.
    constants = np.all(distance[beyond] <= q.allowed * q.roundoff * q.typical_size)
    if n in (0, distance.size) or (constants and n < _FEW * distance.size):
        return None
    far = float(np.max(distance[beyond] / np.maximum(unit[beyond], np.finfo(float).tiny)))
    # And their last places add up to those of larger results, beside which nothing may be left.
    added = np.all(distance[beyond] <= q.allowed * q.roundoff * rms_of(sizes))
    large = np.median(distance[beyond] - LARGE_DIFFERENCE * sizes[beyond]) > 0
    kind = SUSPECT if not large or (q.form == "float64" and added) else BUG
    text = f"{differing(n, distance.size, 'result')} by up to {as_multiple(far)}, in higher "
    text += "precision as well: f and g compute different functions"
    if q.form == "float64" and kind == SUSPECT:
        text += ", or use constants of float64, whose rounding errors add up"
    return at_ties(q) or Verdict(kind, f"{text}; larger results hide this in norms")


def steady_difference(q: Evidence) -> Verdict | None:
    """Recognise another function, whose difference stays however far the inputs are moved.

    Rounding, to whatever format, would be another one then; and so would a jump.
    """
    if not q.differ_wide or q.eta_difference.broken:
        return None
    similarity = q.evidence["likeness_far"] = q.least_similarity(1, q.seed + 800)
    if similarity > STEADY:
        return another_function(q)
    k = _steady_result(q)
    if k is None:
        return None
    text = (
        f"the difference in result {q.result_f.title(k)} is the same after large perturbations of "
    )
    text += "the inputs, and in higher precision: f and g compute different functions"
    return Verdict(BUG, text)


def _steady_result(q: Evidence) -> int | None:
    """Return which of several results has a difference that stays, as no format's rounding does."""
    if len(q.result_f.arrays) < 2:
        return None
    units = q.result_f.split(q.scale)
    here = q.result_f.split(q.difference)
    left = [k for k, d in enumerate(here) if d.size and error_norms(d, units[k]).robust > q.allowed]
    for n in range(FEW_REDRAWN):
        if not left:
            return None
        distance = q.perturbed_difference(2.0**-COARSEST, q.seed + 800 + n)
        if distance is None:
            return None
        there = q.result_f.split(distance)
        left = [k for k in left if cosine(here[k], there[k], units[k]) > STEADY]
    return left[0] if left else None


def ignores_strides(q: Evidence) -> Verdict | None:
    """Recognise a side that is right only for arrays without gaps."""
    inputs = contiguous(q.inputs)
    if inputs is None or q.reference is None:
        return None
    for name, before in q.errors.items():
        if before.robust <= q.allowed and not before.broken:
            continue
        other = q.implementations[name](inputs)
        if not comparable(other, q.result_f):
            continue
        after = q.error(other)
        if after.robust <= q.allowed and not after.broken:
            return Verdict(
                BUG,
                f"{name} is off by {as_multiple(before.rms)} for arrays of this memory layout, and "
                f"right for the same numbers in C order: it ignores their strides",
            )
    return None


def jumps(q: Evidence) -> Verdict | None:
    """Results that jump where the function does: at ties, which last places decide."""
    if q.reference is None:
        return None
    side, r = q.reference
    out = [
        np.abs(difference(y, r)) > q.allowed * q.noise_level.values
        for y in (q.result_f, q.result_g)
    ]
    outliers = out[0] | out[1]
    if not outliers.any() or q.eta_f.broken or q.eta_g.broken:
        return None
    rest = ~outliers
    values = r.numbers(np.float64)
    low, high = values.copy(), values.copy()
    delta = q.allowed * q.roundoff
    for k in range(FLIPS):
        answer = side(q.perturb(delta, q.seed + 500 + k, wide=True))
        if comparable(answer, r):
            low = np.minimum(low, answer.numbers(np.float64))
            high = np.maximum(high, answer.numbers(np.float64))
    margin = q.allowed * q.noise_level.values
    covered = np.ones(values.size, bool)
    for y in (q.result_f, q.result_g):
        numbers = y.numbers(np.float64)
        covered &= (numbers >= low - margin) & (numbers <= high + margin)
    # An envelope that is wide everywhere covers anything.
    jumped = (high - low) > 4 * q.allowed * q.noise_level.values
    q.evidence["jumps"] = int(np.count_nonzero(jumped))
    share = np.count_nonzero(covered & jumped & outliers) / np.count_nonzero(outliers)
    unit = q.noise_level.values
    small = all(
        not rest.any() or error_norms(difference(y, r)[rest], unit[rest]).robust <= q.allowed
        for y in (q.result_f, q.result_g)
    )
    if share >= 0.9 and small:
        differ = differing(int(np.count_nonzero(outliers)), outliers.size, "result")
        if q.differ_wide:
            text = f"{differ} by more than rounding, at discontinuities, and in higher precision "
            return Verdict(SUSPECT, f"{text}as well: f and g jump at different points")
        return at_ties(q) or Verdict(
            AMPLIFIED,
            f"{differ} by more than rounding, at discontinuities: the function changes as much "
            f"when its inputs change by a few ulps",
        )
    return None


def unstable(q: Evidence) -> Verdict | None:
    """Recognise an algorithm that loses as many digits of the wider format as of this one."""
    wide = q.wide
    if wide is None or wide.norms.broken or wide.differ or wide.norms.robust <= wide.allowed:
        return None
    return loses_digits(q)


def digits_lost_alike(q: Evidence) -> Verdict | None:
    """Recognise errors no larger than what the one side with a wider format loses itself here."""
    if q.reference is None or q.wide is not None:
        return None
    errors, name = q.errors, q.reference[0].name
    if name not in errors or errors[name].robust <= q.allowed:
        return None
    if any(size.broken for size in errors.values()):
        return None
    unit = np.hypot(q.noise_level.values, q.reference_noise)
    sizes = [q.norms(q.deviation(y), unit) for y in (q.result_f, q.result_g)]
    if any(size.robust > _ALIKE or size.peak > ALONE * _ALIKE for size in sizes):
        return None
    other = next(k for k in errors if k != name)
    both = errors[other].robust > q.allowed
    whose = "both algorithms lose" if both else f"{name}'s algorithm loses"
    return Verdict(
        UNSTABLE,
        f"{name} differs from its result in higher precision by "
        f"{as_multiple(errors[name].robust, q.allowed)}, and {other} by {errors[other].robust:.3g} "
        f"x: {whose} digits",
    )


def loses_digits(q: Evidence) -> Verdict | None:
    """Recognise one function, by the wider format, of which a side loses much in this one."""
    if q.wide is None or q.wide.differ:
        return None
    if q.far_similarity > STEADY:
        text = (
            f"f and g differ by {as_multiple(q.eta_difference.rms)}, but agree in higher "
            "precision; "
        )
        name = _in_steps(q)
        if name is not None:
            text += f"{name} does not change when its inputs change by 1 ulp: its "
            return Verdict(UNSTABLE, f"{text}algorithm loses digits")
        text += "the difference is the same after large perturbations of the inputs: "
        # A branch for this format, which has a bug of its own.
        if np.abs(q.difference).max() > LARGE_DIFFERENCE * rms_of(q.result_f.numbers(np.float64)):
            return Verdict(BUG, f"{text}they compute different functions in {q.form}")
        text += f"constants or a table are rounded to {q.form}, and these errors add up"
        return Verdict(UNSTABLE, text)
    ties = at_ties(q)
    if ties is not None:
        return ties
    (other, less), (name, error) = sorted(q.errors.items(), key=lambda item: item[1].robust)
    least, loop = error.robust, ""
    if least <= ALONE * q.allowed:
        steps = math.ceil((least - 4) ** 2)
        loop = f"a loop of {steps} steps adds up rounding errors: pass reduction={steps}"
    if loop and q.noise_level.kappa > ILL_CONDITIONED and least <= _ALIKE * less.robust:
        text = (
            f"the function is ill-conditioned here (condition number {q.noise_level.kappa:.3g}); "
        )
        text += f"{name} is off by "
        text += f"{as_multiple(least, q.allowed)}, and {other} by {less.robust:.3g} x; {loop}"
        return Verdict(AMPLIFIED, text)
    text = f"f and g agree in higher precision, but in {q.form} {name} is off by "
    text += f"{as_multiple(least, q.allowed)}: its algorithm loses digits"
    return Verdict(UNSTABLE, f"{text}, or {loop}" if loop else text)


def _in_steps(q: Evidence) -> str | None:
    """Return which side stays where it is while inputs change that the function heeds."""
    if q.reference is None or q.noise_level.kappa < INSENSITIVE:
        return None
    for name, answer in q.results.items():
        lost = np.abs(q.deviation(answer)) > ALONE * q.allowed * q.noise_level.values
        if not is_constant(q, name, lost) and unchanged_share(q, name, lost) >= MOSTLY_UNCHANGED:
            return name
    return None


def another_function(q: Evidence) -> Verdict:
    size = q.eta_difference
    text = _broken(q) if size.broken else _how_far(q)
    if q.wide is not None and q.wide.differ:
        if not size.broken or q.wide.norms.broken:
            text += ", in higher precision as well"
        else:  # what is lost to the range hides what is wrong beside it
            text += "; in higher precision all are finite, and f and g differ by "
            text += f"{as_multiple(q.wide.norms.robust)} of that precision"
    text += ": they compute different functions"
    if q.form == "float64" and not size.broken and _is_little(q):
        # Constants of a source, pi say, are of float64 whatever the inputs are.
        why = "use constants of float64, whose rounding errors add up" if q.differ_wide else ""
        why = why or "one of them loses digits, which only higher precision could show"
        return Verdict(SUSPECT, f"{text}, or {why}")
    if q.form == "float64" and (q.differ_wide or q.wide is None) and not size.broken:
        text += _of_constants(q)
    return Verdict(BUG, text)


def _of_constants(q: Evidence) -> str:
    """Tell how much the last places of constants are magnified, if the difference is of these."""
    sizes = rms_of(q.result_f.numbers(np.float64))
    times = q.eta_difference.absolute / sizes / q.roundoff if sizes else math.inf
    # What magnifies those of inputs may do so of a filter's coefficients.
    ill = q.reference is not None and q.noise_level.kappa > ILL_CONDITIONED
    most = LARGE_DIFFERENCE / q.roundoff if ill else CONSTANT_AMPLIFICATION
    if times > most:
        return ""
    text = f", unless rounding errors of constants are amplified {times:.2g} times, as in narrow "
    return f"{text}filters and in fits of high degree"


def _how_far(q: Evidence) -> str:
    """Tell how far the sides are apart, by what decides; units of 0 are no measure."""
    size = q.eta_difference
    if math.isinf(size.robust):
        differ = differing(int(np.count_nonzero(q.difference)), q.difference.size, "result")
        return f"{differ}, which do not depend on the last bits of the inputs"
    if size.robust > q.allowed:
        return f"f and g differ by {as_multiple(size.robust, q.allowed)}"
    one = ALONE * q.allowed
    if size.peak > one or q.reference is None:
        text = f"f and g differ by {as_multiple(size.peak)} in one result"
        return f"{text} (limit {one:.3g} for a single one)"
    name, error = max(q.errors.items(), key=lambda item: item[1].robust)
    source = q.reference[0].name
    source = f"{source} in higher precision" if source in q.errors else "the reference"
    return f"{name} differs from {source} by {as_multiple(error.robust, q.allowed)}"


def _is_little(q: Evidence) -> bool:
    """Tell whether sides are a few times as far apart as rounding may take, or last places of 1."""
    size, one = q.eta_difference, q.allowed * q.roundoff * q.natural_size
    if size.robust <= ALONE * q.allowed and size.peak <= ALONE**2 * q.allowed:
        return True
    most = LARGE_DIFFERENCE**2 * rms_of(
        q.result_f.numbers(np.float64)
    )  # results that are not all of them lost
    return bool(np.abs(q.difference).max() <= one and size.absolute <= most)


def _broken(q: Evidence) -> str:
    """Tell of differences that are not finite."""
    f, g = (np.isfinite(y.numbers(np.float64)) for y in (q.result_f, q.result_g))
    alone = int(np.count_nonzero(f != g))
    if alone:
        return f"{alone} of {f.size} results {_are(alone)} finite in only one of f and g"
    neither = int(np.count_nonzero(~np.isfinite(q.difference) & ~f))
    if neither:
        text = f"{neither} of {f.size} results {_are(neither)} NaN or infinite in both"
        return f"{text}, but not the same"
    broken = q.eta_difference.broken
    verb = "differs" if broken == 1 else "differ"
    return f"{broken} of {f.size} results {verb} by more than float64 can represent"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
