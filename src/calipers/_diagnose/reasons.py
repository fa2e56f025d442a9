"""The sentences that say why, with the numbers that decided."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from .._compare.text import differing
from .._core.dtypes import ROUNDOFF
from .inputs import perturbable
from .noise_level import finite_rms
from .verdict import NONDETERMINISTIC, RAISES, Verdict, as_multiple

# Unit roundoff of integers with one scale.
_INTEGER_ROUNDOFF = {"int8": 2.0**-8, "int4": 2.0**-4}


def roundoff_of(form: str) -> float:
    """Return the unit roundoff of a format that ran, also of integers; 0 if it is unknown."""
    return _INTEGER_ROUNDOFF.get(form, ROUNDOFF.get(form.removesuffix("fn"), 0.0))


def with_repeats(e: Any, verdict: Verdict) -> Verdict:
    """Add to another verdict that results change from call to call within rounding."""
    if verdict.kind in (RAISES, NONDETERMINISTIC) or not e.difference_is_defined:
        return verdict
    r = e.repeats
    if not r.names or r.spread > 2 * e.allowed or r.problem is not None:
        return verdict
    text = f"{verdict.reason}; also, {r.subject}: calls with the same inputs differ by "
    text += f"{as_multiple(r.spread)}, which a different order of summation explains"
    return replace(verdict, reason=text)


def unseen(e: Any) -> str:
    """Say what fewer calls than planned would not have shown."""
    if e.repeats.calls >= e.thresholds.repeats:
        return ""
    missed = f"{100 * 0.75**e.repeats.calls:.2g} %"
    return f"; {e.repeats.calls} calls would miss a change in one call of four with {missed}"


def equal(e: Any) -> str:
    n = sum(x.size for x in e.result_f.arrays)
    if not n:
        return f"f and g return no elements: shape {', '.join(map(str, e.result_f.shapes))}"
    what, they = ("the result is", "it is") if n == 1 else (f"all {n} results are", "all are")
    nan = f"; {they} NaN" if np.isnan(e.result_f.numbers(np.float64)).all() else ""
    return f"{what} equal to the last bit, in repeated calls as well{nan}{unseen(e)}"


def errors(e: Any) -> str:
    text = as_multiple(e.worst_error, e.allowed)
    return (
        f"f and g differ by {text}"
        if e.reference is None
        else f"the errors of f and g are at most {text}"
    )


def rounding(e: Any) -> str:
    text = errors(e)
    if not e.difference.any():
        f, g = (", ".join(dict.fromkeys(y.dtypes)) for y in e.results.values())
        bits = f"f returns {f} and g {g}" if f != g else "the signs of 0 or NaN differ"
        text = f"all numbers are equal, but {bits}; {text}"
        text += ": both lose the same digits" if e.worst_error > e.allowed else ""
    elif e.reference is None:
        text += "; without a reference in higher precision a smaller bug would not be seen"
    if e.differ:
        text += "; rounded parameters explain a difference in higher precision"
    return text + unseen(e)


def ill_conditioned(e: Any) -> str:
    text = "the function is ill-conditioned or discontinuous here (condition number "
    text += f"{e.condition:.3g})"
    if e.within_rounding:
        return f"{text}; {errors(e)}"
    (other, less), (name, most) = sorted(e.errors.items(), key=lambda item: item[1].robust)
    off = as_multiple(most.robust, e.allowed)
    text += f"; {name} is off by {off}, and {other} by {less.robust:.3g} x"
    return f"{text}; {_loop(e, most.robust)}"


def _loop(e: Any, size: float) -> str:
    steps = math.ceil((size - e.thresholds.base) ** 2)
    return f"a loop of {steps} steps adds up rounding errors: pass reduction={steps}"


def jumps(e: Any) -> str:
    text = (
        f"{e.jumps.count} by more than rounding, at discontinuities: the function changes as much "
    )
    return text + "when its inputs change by a few ulps"


def other_jumps(e: Any) -> str:
    text = f"{e.jumps.count} by more than rounding, at discontinuities, and in higher precision as "
    return text + "well: f and g jump at different points"


def ties(e: Any) -> str:
    agreement = e.agrees_elsewhere
    if not agreement.note:
        return f"{agreement.count}, at discontinuities: this is not rounding"
    special = "" if len(e.wide_results) == 2 else ", or special values of these inputs,"
    return f"{agreement.count}, but none {agreement.note}: ties{special} are treated differently"


def wrong_integers(e: Any) -> str:
    if perturbable(e.inputs):
        text = f"{e.integers.text}, by as much in higher precision"
        return f"{text}: f and g compute different functions"
    return f"{e.integers.text}, and the inputs are exact: this is not rounding"


def strides(e: Any) -> str:
    name = e.ignores_strides
    text = (
        f"{name} is off by {as_multiple(e.errors[name].rms)} for arrays of this memory layout, and "
    )
    return f"{text}right for the same numbers in C order: it ignores their strides"


def hidden_by_larger_results(e: Any) -> str:
    some, distance = e.wide.hidden, np.abs(e.difference)
    times = float(np.max(distance[some] / np.maximum(e.scale[some], np.finfo(float).tiny)))
    text = f"{differing(int(np.count_nonzero(some)), distance.size, 'result')} by up to "
    text += (
        f"{as_multiple(times)}, in higher precision as well: f and g compute different functions"
    )
    if e.form == "float64":
        text += ", or use constants of float64, whose rounding errors add up"
    return f"{text}; larger results hide this in norms"


def differ_in_higher_precision(e: Any) -> str:
    wide, far, t = e.wide, e.wide.norms, e.thresholds
    lost = int(np.count_nonzero(np.logical_or(*e.flushed_by.values())))
    text = f"within rounding here{f' except {lost} subnormal results flushed to 0' if lost else ''}"
    text += ", but in higher precision "
    if far.broken:
        n = f"{far.broken} of {wide.difference.size} results"
        return f"{text}{n} are finite in only one of f and g: they compute different functions"
    text += f"f and g differ by {as_multiple(far.robust)} of that precision (rounding alone "
    text += f"explains {e.error_difference.rms:.3g})"
    if wide.agree_unmoved:
        text += ", but only after a 1-ulp perturbation of the inputs: they agree for such inputs "
        return text + "only (symmetric, of sum 1, ...), or a result is cached"
    if wide.growth > t.growth:
        text += (
            f", and by {wide.growth:.0f} times as much after perturbations {t.redraw:.0f} times "
        )
        text += (
            "as large: they agree for inputs of sum 1, orthogonal inputs, or the like; if all are "
        )
        return text + "such, normalise them in f and g"
    off = far.robust * wide.fine
    form = "float64" if off <= t.redraw * ROUNDOFF["float64"] else e.form
    text += ": they compute different functions"
    if off <= t.constants * e.roundoff:
        text += f", or use constants of {form}"
    elif e.form == "float64" and off <= e.allowed * e.roundoff:
        text += ", or use constants of float64, whose rounding errors add up"
    return text


def steady(e: Any) -> str:
    text = f"the difference is nearly the same (cosine {e.near_similarity:.2g}) after "
    text += "perturbations of the inputs by a few ulps"
    size = e.norms(np.where(e.zeros_by_constants, 0.0, e.difference))
    if size.rms * e.roundoff > e.thresholds.large and e.near_similarity > e.thresholds.persistent:
        text = (
            f"f and g differ by {as_multiple(size.robust, e.allowed)}: below the limit, but {text}"
        )
        return f"{text}, as rounding would not be"
    text += ": f and g compute different functions, or use differently rounded constants"
    return f"within rounding here, but {text}"


def times_expected(e: Any, name: str, form: str) -> float:
    """Return an error in units of the expected rounding error of another format."""
    size = e.errors[name] if e.errors else e.error_difference
    return float(size.robust * e.roundoff / (roundoff_of(form) or e.roundoff))


def observed(e: Any) -> str:
    name, form = e.observed_reduction
    text = f"{name} computes in {form}: {times_expected(e, name, form):.2g} times its expected "
    text += "rounding error"
    d = e.difference_without_formats
    if d is None:
        return f"{text}; it cannot be called in float64"
    if not e.differ if e.wide is not None else e.is_rounding(e.norms(d)):
        return f"{text}; f and g agree in float64"
    share = finite_rms(d) / (finite_rms(e.result_f.numbers(np.float64)) or 1.0)
    text += f"; with float64 instead f and g still differ, by {share:.2g} of the results: they "
    return f"{text}compute different functions"


def inferred(e: Any) -> str:
    inference = e.inferred_format
    times = times_expected(e, inference.name, inference.form)
    text = f"{inference.name} computes in {inference.forms} (inferred): {times:.2g} times its "
    text += f"expected rounding error; {inference.evidence}"
    if inference.bias:
        return f"{text}; but its results are {inference.bias}: f and g differ by a factor"
    return text


def cancellation(e: Any) -> str:
    name, step = e.quantum
    text = (
        f"{_off(e)}, and all results of {name} that are off are multiples of {step:.2g}, an ulp of "
    )
    return f"{text}{step / 2 / e.roundoff:.2g}: a subtraction cancels most of their digits"


def steps(e: Any) -> str:
    text = f"{_off(e)}, and {e.constant_in_steps} does not change when its inputs change by 1 ulp: "
    return f"{text}its algorithm loses digits"


def lost_digits(e: Any) -> str:
    name, error = max(e.errors.items(), key=lambda item: item[1].robust)
    text = f"f and g agree in higher precision, but in {e.form} {name} is off by "
    text += f"{as_multiple(error.robust, e.allowed)}: its algorithm loses digits"
    is_loop = error.robust <= e.thresholds.single * e.allowed
    return f"{text}, or {_loop(e, error.robust)}" if is_loop else text


def lost_by_reference(e: Any) -> str:
    name = e.reference_name
    other = "g" if name == "f" else "f"
    text = f"{name} differs from its result in higher precision by "
    text += f"{as_multiple(e.errors[name].robust, e.allowed)}, and {other} by "
    text += f"{e.errors[other].robust:.3g}"
    both = e.errors[other].robust > e.allowed
    return (
        f"{text} x: {'both algorithms lose' if both else f'the algorithm of {name} loses'} digits"
    )


def redrawn(e: Any) -> str:
    text = f"{_off(e)}, and the error changes when the inputs are perturbed by a few ulps: one of "
    return f"{text}them loses digits"


def grown(e: Any) -> str:
    return f"{_off(e)}, and by far more in float32: one of them loses digits"


def insensitive(e: Any) -> str:
    name = e.reference_name
    text = f"{name} has condition number {e.condition:.3g} or is discontinuous here, and "
    text += (
        f"{'g' if name == 'f' else 'f'} does not change with its inputs: they compute different "
    )
    return text + "functions"


def in_one_precision(e: Any) -> str:
    text = f"{_off(e)}, at far inputs as well, but agree in higher precision: a table or constants "
    return (
        f"{text}are rounded to {e.form}, or one of them computes another function in {e.form} alone"
    )


def little(e: Any) -> str:
    why = "one of them loses digits, which only higher precision could show"
    if e.differ:
        why = "use constants of float64, whose rounding errors add up"
    higher = ", in higher precision as well" if e.differ else ""
    return f"{_far(e)}{higher}: they compute different functions, or {why}"


def _off(e: Any) -> str:
    return f"f and g differ by {as_multiple(e.error_difference.robust, e.allowed)}"


def different(e: Any) -> str:
    size = e.error_difference
    text = _broken(e) if size.broken else _far(e)
    if e.differ:
        if not size.broken or e.wide.norms.broken:
            text += ", in higher precision as well"
        else:  # overflow hides other errors
            text += "; in higher precision all are finite, and f and g differ by "
            text += f"{as_multiple(e.wide.norms.robust)} of that precision"
    elif e.differ is False:
        return (
            f"{text}, but agree in higher precision: they compute different functions in {e.form}"
        )
    text += ": they compute different functions"
    sizes = finite_rms(e.result_f.numbers(np.float64))
    times = size.absolute / sizes / e.roundoff if sizes else math.inf
    ill = e.reference is not None and e.condition > e.thresholds.ill_conditioned
    most = e.thresholds.large / e.roundoff if ill else e.thresholds.amplified_constants
    if e.form == "float64" and not size.broken and times <= most:
        text += f", unless rounding errors of constants are amplified {times:.2g} times, as in "
        text += "narrow filters and in fits of high degree"
    return text


def _far(e: Any) -> str:
    """Say how far f and g are off by what decides; noise levels of 0 are no measure."""
    size = e.error_difference
    if math.isinf(size.robust):
        differ = differing(int(np.count_nonzero(e.difference)), e.difference.size, "result")
        return f"{differ}, which do not depend on the last bits of the inputs"
    if size.robust > e.allowed:
        return f"f and g differ by {as_multiple(size.robust, e.allowed)}"
    one = e.thresholds.single * e.allowed
    if size.peak > one or e.reference is None:
        text = f"f and g differ by {as_multiple(size.peak)} in one result"
        return f"{text} (limit {one:.3g} for a single one)"
    name, error = max(e.errors.items(), key=lambda item: item[1].robust)
    source = e.reference_name
    source = f"{source} in higher precision" if source in e.errors else "the reference"
    return f"{name} differs from {source} by {as_multiple(error.robust, e.allowed)}"


def _broken(e: Any) -> str:
    f, g = (np.isfinite(y.numbers(np.float64)) for y in e.results.values())
    alone = int(np.count_nonzero(f != g))
    if alone:
        return f"{alone} of {f.size} results {_are(alone)} finite in only one of f and g"
    neither = int(np.count_nonzero(~np.isfinite(e.difference) & ~f))
    if neither:
        text = f"{neither} of {f.size} results {_are(neither)} NaN or infinite in both"
        return f"{text}, but not the same"
    broken = e.error_difference.broken
    verb = "differs" if broken == 1 else "differ"
    return f"{broken} of {f.size} results {verb} by more than float64 can represent"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
