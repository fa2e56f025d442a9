"""Differences that are more than rounding: jumps, lost digits, and other functions."""

import math

import numpy as np

from ..._compare.text import differing
from ..callables import comparable
from ..evidence import Evidence
from ..inputs import contiguous
from ..noise_level import cosine, difference, error_norms, finite_rms
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


def hidden_by_larger_results(e: Evidence) -> Verdict | None:
    """
    Recognise small results of a different function that rounding of larger ones hides in norms.

    If small results only lose digits, each loses fewer in higher precision.
    """
    if e.reference is None:
        return None
    distance, unit = np.abs(e.difference), e.noise_level.values
    beyond = np.isfinite(distance) & (distance > ALONE * e.allowed * unit)
    wide = e.wide if beyond.any() else None
    if wide is None or wide.differ:
        return None
    share = (e.roundoff / wide.fine) ** (GAIN_EXPONENT - 1)
    sizes = np.abs(e.reference[1].numbers(np.float64))
    for d in (np.abs(wide.unmoved), np.abs(wide.difference)):
        beyond &= (d > share * distance) & (d > wide.allowed * wide.noise_level)
        beyond &= ~(wide.lost & wide.are_none(d))
    n = int(np.count_nonzero(beyond))
    # Rounded constants cause errors of an ulp of 1: few results are as small.
    constants = np.all(distance[beyond] <= e.allowed * e.roundoff * e.typical_size)
    if n in (0, distance.size) or (constants and n < _FEW * distance.size):
        return None
    far = float(np.max(distance[beyond] / np.maximum(unit[beyond], np.finfo(float).tiny)))
    # Their roundoff adds up to that of larger results.
    added = np.all(distance[beyond] <= e.allowed * e.roundoff * finite_rms(sizes))
    large = np.median(distance[beyond] - LARGE_DIFFERENCE * sizes[beyond]) > 0
    kind = SUSPECT if not large or (e.form == "float64" and added) else BUG
    text = f"{differing(n, distance.size, 'result')} by up to {as_multiple(far)}, in higher "
    text += "precision as well: f and g compute different functions"
    if e.form == "float64" and kind == SUSPECT:
        text += ", or use constants of float64, whose rounding errors add up"
    return at_ties(e) or Verdict(kind, f"{text}; larger results hide this in norms")


def steady_difference(e: Evidence) -> Verdict | None:
    """Recognise different functions, whose difference persists under large perturbations.

    Rounding errors of any format, and jumps, would be redrawn.
    """
    if not e.differ_wide or e.eta_difference.broken:
        return None
    similarity = e.evidence["likeness_far"] = e.least_similarity(1, e.seed + 800)
    if similarity > STEADY:
        return another_function(e)
    k = _steady_result(e)
    if k is None:
        return None
    text = (
        f"the difference in result {e.result_f.title(k)} is the same after large perturbations of "
    )
    text += "the inputs, and in higher precision: f and g compute different functions"
    return Verdict(BUG, text)


def _steady_result(e: Evidence) -> int | None:
    """Return which of several results has a difference that stays, as no format's rounding does."""
    if len(e.result_f.arrays) < 2:
        return None
    units = e.result_f.split(e.scale)
    here = e.result_f.split(e.difference)
    left = [k for k, d in enumerate(here) if d.size and error_norms(d, units[k]).robust > e.allowed]
    for n in range(FEW_REDRAWN):
        if not left:
            return None
        distance = e.perturbed_difference(2.0**-COARSEST, e.seed + 800 + n)
        if distance is None:
            return None
        there = e.result_f.split(distance)
        left = [k for k in left if cosine(here[k], there[k], units[k]) > STEADY]
    return left[0] if left else None


def ignores_strides(e: Evidence) -> Verdict | None:
    """Recognise a side that is right only for arrays without gaps."""
    inputs = contiguous(e.inputs)
    if inputs is None or e.reference is None:
        return None
    for name, before in e.errors.items():
        if before.robust <= e.allowed and not before.broken:
            continue
        other = e.implementations[name](inputs)
        if not comparable(other, e.result_f):
            continue
        after = e.error(other)
        if after.robust <= e.allowed and not after.broken:
            return Verdict(
                BUG,
                f"{name} is off by {as_multiple(before.rms)} for arrays of this memory layout, and "
                f"right for the same numbers in C order: it ignores their strides",
            )
    return None


def jumps(e: Evidence) -> Verdict | None:
    """Recognise results that jump where the function is discontinuous, as at ties."""
    if e.reference is None:
        return None
    implementation, r = e.reference
    out = [
        np.abs(difference(y, r)) > e.allowed * e.noise_level.values
        for y in (e.result_f, e.result_g)
    ]
    outliers = out[0] | out[1]
    if not outliers.any() or e.eta_f.broken or e.eta_g.broken:
        return None
    rest = ~outliers
    values = r.numbers(np.float64)
    low, high = values.copy(), values.copy()
    delta = e.allowed * e.roundoff
    for k in range(FLIPS):
        result = implementation(e.perturb(delta, e.seed + 500 + k, wide=True))
        if comparable(result, r):
            low = np.minimum(low, result.numbers(np.float64))
            high = np.maximum(high, result.numbers(np.float64))
    margin = e.allowed * e.noise_level.values
    covered = np.ones(values.size, bool)
    for y in (e.result_f, e.result_g):
        numbers = y.numbers(np.float64)
        covered &= (numbers >= low - margin) & (numbers <= high + margin)
    # An envelope that is wide everywhere covers anything.
    jumped = (high - low) > 4 * e.allowed * e.noise_level.values
    e.evidence["jumps"] = int(np.count_nonzero(jumped))
    share = np.count_nonzero(covered & jumped & outliers) / np.count_nonzero(outliers)
    unit = e.noise_level.values
    small = all(
        not rest.any() or error_norms(difference(y, r)[rest], unit[rest]).robust <= e.allowed
        for y in (e.result_f, e.result_g)
    )
    if share >= 0.9 and small:
        differ = differing(int(np.count_nonzero(outliers)), outliers.size, "result")
        if e.differ_wide:
            text = f"{differ} by more than rounding, at discontinuities, and in higher precision "
            return Verdict(SUSPECT, f"{text}as well: f and g jump at different points")
        return at_ties(e) or Verdict(
            AMPLIFIED,
            f"{differ} by more than rounding, at discontinuities: the function changes as much "
            f"when its inputs change by a few ulps",
        )
    return None


def unstable(e: Evidence) -> Verdict | None:
    """Recognise an algorithm that loses as many digits of the wider format as of this one."""
    wide = e.wide
    if wide is None or wide.norms.broken or wide.differ or wide.norms.robust <= wide.allowed:
        return None
    return loses_digits(e)


def digits_lost_alike(e: Evidence) -> Verdict | None:
    """Recognise errors no larger than what the one side with a wider format loses itself here."""
    if e.reference is None or e.wide is not None:
        return None
    errors, name = e.errors, e.reference[0].name
    if name not in errors or errors[name].robust <= e.allowed:
        return None
    if any(size.broken for size in errors.values()):
        return None
    unit = np.hypot(e.noise_level.values, e.reference_noise)
    sizes = [e.norms(e.deviation(y), unit) for y in (e.result_f, e.result_g)]
    if any(size.robust > _ALIKE or size.peak > ALONE * _ALIKE for size in sizes):
        return None
    other = next(k for k in errors if k != name)
    both = errors[other].robust > e.allowed
    whose = "both algorithms lose" if both else f"{name}'s algorithm loses"
    return Verdict(
        UNSTABLE,
        f"{name} differs from its result in higher precision by "
        f"{as_multiple(errors[name].robust, e.allowed)}, and {other} by {errors[other].robust:.3g} "
        f"x: {whose} digits",
    )


def loses_digits(e: Evidence) -> Verdict | None:
    """Recognise loss of digits in the working precision, if f and g agree in higher precision."""
    if e.wide is None or e.wide.differ:
        return None
    if e.far_similarity > STEADY:
        text = (
            f"f and g differ by {as_multiple(e.eta_difference.rms)}, but agree in higher "
            "precision; "
        )
        name = _in_steps(e)
        if name is not None:
            text += f"{name} does not change when its inputs change by 1 ulp: its "
            return Verdict(UNSTABLE, f"{text}algorithm loses digits")
        text += "the difference is the same after large perturbations of the inputs: "
        # A branch for this format, which has a bug of its own.
        if np.abs(e.difference).max() > LARGE_DIFFERENCE * finite_rms(
            e.result_f.numbers(np.float64)
        ):
            return Verdict(BUG, f"{text}they compute different functions in {e.form}")
        text += f"constants or a table are rounded to {e.form}, and these errors add up"
        return Verdict(UNSTABLE, text)
    ties = at_ties(e)
    if ties is not None:
        return ties
    (other, less), (name, error) = sorted(e.errors.items(), key=lambda item: item[1].robust)
    least, loop = error.robust, ""
    if least <= ALONE * e.allowed:
        steps = math.ceil((least - 4) ** 2)
        loop = f"a loop of {steps} steps adds up rounding errors: pass reduction={steps}"
    if loop and e.noise_level.kappa > ILL_CONDITIONED and least <= _ALIKE * less.robust:
        text = (
            f"the function is ill-conditioned here (condition number {e.noise_level.kappa:.3g}); "
        )
        text += f"{name} is off by "
        text += f"{as_multiple(least, e.allowed)}, and {other} by {less.robust:.3g} x; {loop}"
        return Verdict(AMPLIFIED, text)
    text = f"f and g agree in higher precision, but in {e.form} {name} is off by "
    text += f"{as_multiple(least, e.allowed)}: its algorithm loses digits"
    return Verdict(UNSTABLE, f"{text}, or {loop}" if loop else text)


def _in_steps(e: Evidence) -> str | None:
    """Return which side stays where it is while inputs change that the function heeds."""
    if e.reference is None or e.noise_level.kappa < INSENSITIVE:
        return None
    for name, result in e.results.items():
        lost = np.abs(e.deviation(result)) > ALONE * e.allowed * e.noise_level.values
        if not is_constant(e, name, lost) and unchanged_share(e, name, lost) >= MOSTLY_UNCHANGED:
            return name
    return None


def another_function(e: Evidence) -> Verdict:
    size = e.eta_difference
    text = _broken(e) if size.broken else _how_far(e)
    if e.wide is not None and e.wide.differ:
        if not size.broken or e.wide.norms.broken:
            text += ", in higher precision as well"
        else:  # overflow hides other errors
            text += "; in higher precision all are finite, and f and g differ by "
            text += f"{as_multiple(e.wide.norms.robust)} of that precision"
    text += ": they compute different functions"
    if e.form == "float64" and not size.broken and _is_little(e):
        # Constants of a source, pi say, are of float64 whatever the inputs are.
        why = "use constants of float64, whose rounding errors add up" if e.differ_wide else ""
        why = why or "one of them loses digits, which only higher precision could show"
        return Verdict(SUSPECT, f"{text}, or {why}")
    if e.form == "float64" and (e.differ_wide or e.wide is None) and not size.broken:
        text += _of_constants(e)
    return Verdict(BUG, text)


def _of_constants(e: Evidence) -> str:
    """Describe the amplification of roundoff in constants, if that explains the difference."""
    sizes = finite_rms(e.result_f.numbers(np.float64))
    times = e.eta_difference.absolute / sizes / e.roundoff if sizes else math.inf
    # An ill-conditioned function may amplify roundoff in coefficients as well.
    ill = e.reference is not None and e.noise_level.kappa > ILL_CONDITIONED
    most = LARGE_DIFFERENCE / e.roundoff if ill else CONSTANT_AMPLIFICATION
    if times > most:
        return ""
    text = f", unless rounding errors of constants are amplified {times:.2g} times, as in narrow "
    return f"{text}filters and in fits of high degree"


def _how_far(e: Evidence) -> str:
    """Tell how far the sides are apart, by what decides; units of 0 are no measure."""
    size = e.eta_difference
    if math.isinf(size.robust):
        differ = differing(int(np.count_nonzero(e.difference)), e.difference.size, "result")
        return f"{differ}, which do not depend on the last bits of the inputs"
    if size.robust > e.allowed:
        return f"f and g differ by {as_multiple(size.robust, e.allowed)}"
    one = ALONE * e.allowed
    if size.peak > one or e.reference is None:
        text = f"f and g differ by {as_multiple(size.peak)} in one result"
        return f"{text} (limit {one:.3g} for a single one)"
    name, error = max(e.errors.items(), key=lambda item: item[1].robust)
    source = e.reference[0].name
    source = f"{source} in higher precision" if source in e.errors else "the reference"
    return f"{name} differs from {source} by {as_multiple(error.robust, e.allowed)}"


def _is_little(e: Evidence) -> bool:
    """Return True if differences are a few times the limit, or an ulp of 1."""
    size, one = e.eta_difference, e.allowed * e.roundoff * e.natural_size
    if size.robust <= ALONE * e.allowed and size.peak <= ALONE**2 * e.allowed:
        return True
    most = LARGE_DIFFERENCE**2 * finite_rms(
        e.result_f.numbers(np.float64)
    )  # results that are not all of them lost
    return bool(np.abs(e.difference).max() <= one and size.absolute <= most)


def _broken(e: Evidence) -> str:
    """Tell of differences that are not finite."""
    f, g = (np.isfinite(y.numbers(np.float64)) for y in (e.result_f, e.result_g))
    alone = int(np.count_nonzero(f != g))
    if alone:
        return f"{alone} of {f.size} results {_are(alone)} finite in only one of f and g"
    neither = int(np.count_nonzero(~np.isfinite(e.difference) & ~f))
    if neither:
        text = f"{neither} of {f.size} results {_are(neither)} NaN or infinite in both"
        return f"{text}, but not the same"
    broken = e.eta_difference.broken
    verb = "differs" if broken == 1 else "differ"
    return f"{broken} of {f.size} results {verb} by more than float64 can represent"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
