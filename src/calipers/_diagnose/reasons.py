"""The sentences of verdicts: the cause first, then the numbers that decided."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .._compare.text import differing
from .._core.dtypes import ROUNDOFF
from .._core.libraries import loaded_libraries
from .._core.report import brief
from .arrays import describe_mismatch, one_line_error, perturbable
from .noise_level import ELEMENT, NORM, as_multiple, finite_rms
from .observed_formats import roundoff_of
from .verdict import Verdict, higher_precision

if TYPE_CHECKING:
    from .evidence import Evidence

_DIFFERENT = "f and g compute different functions"
_SUM_OF_CONSTANTS = ", or use constants of float64, whose rounding errors add up"


def raises(e: "Evidence") -> str | None:
    """Describe the exceptions that f and g raise, and how they were called if that may be why."""
    raised = {name: x.error for name, x in e.results.items() if x.error is not None}
    if not raised:
        return None
    text = " and ".join(f"{name} raises {one_line_error(x)}" for name, x in raised.items())
    alone = "" if len(raised) == 2 else f"; {'g' if 'f' in raised else 'f'} does not"
    return text + alone + _how_called(e, raised)


def _how_called(e: "Evidence", raised: dict[str, Exception]) -> str:
    """Say how f and g were called, where that may be why they raise."""
    errors = list(raised.values())
    if len(errors) == 2 and all(isinstance(error, TypeError) for error in errors):
        numbers = all(np.ndim(x) == 0 and np.asarray(x).dtype.kind in "iufc" for x in e.inputs)
        if len(e.inputs) > 1 and numbers:
            text = f"; they are called with {len(e.inputs)} arguments, one for each number in "
            return text + "inputs: pass a NumPy array if the numbers are one argument"
        if len(e.inputs) == 1 and all("positional argument" in str(error) for error in errors):
            return "; they are called with 1 argument: pass several as a tuple, inputs=(a, b)"
    if loaded_libraries() and any("ndarray" in str(error) for error in errors):
        return "; it is called with NumPy arrays: pass tensors if it needs tensors"
    for name, error in raised.items():
        library = e.implementations[name].array_library
        if isinstance(error, TypeError) and library != "NumPy":
            text = f"; {name} is called with arrays of {library}: convert them with np.asarray in "
            return f"{text}{name} if it needs NumPy arrays"
    return ""


def incomparable(e: "Evidence") -> str | None:
    text = describe_mismatch(e.result_f, e.result_g)
    order = None if text is None else e.other_numbers
    return f"{text}; {order}" if order is not None else text


def with_nonfinite(e: "Evidence", verdict: Verdict) -> Verdict:
    """Add that a matrix among the inputs is not finite, if that may be why results are not."""
    numbers = [y.numbers(np.float64) for y in e.results.values() if y.error is None]
    if verdict.kind != "RAISES" and all(np.isfinite(x).all() for x in numbers):
        return verdict
    for k in perturbable(e.inputs):
        lost = int(np.count_nonzero(~np.isfinite(e.inputs[k])))
        if lost and e.inputs[k].ndim > 1:
            text = f"{verdict.reason}; {lost} of {e.inputs[k].size} entries of input {e.title(k)} "
            text += f"{_are(lost)} NaN or infinite, for which linear algebra is undefined (it may "
            return replace(verdict, reason=text + "raise, or return anything)")
    return verdict


def with_repeats(e: "Evidence", verdict: Verdict) -> Verdict:
    """Add to another verdict that results change from call to call within rounding."""
    if verdict.kind in ("RAISES", "NONDETERMINISTIC") or not e.difference_is_defined:
        return verdict
    r = e.repeats
    if not r.names or r.spread > 2 * e.allowed or r.problem is not None:
        return verdict
    text = f"{verdict.reason}; also, {r.subject}: calls with the same inputs differ by "
    text += f"{as_multiple(r.spread)}, which a different order of summation explains"
    return replace(verdict, reason=text)


def unseen(e: "Evidence") -> str:
    """Say what fewer calls than planned would not have shown."""
    if e.repeats.calls >= e.thresholds.repeats:
        return ""
    missed = f"{100 * 0.75**e.repeats.calls:.2g} %"
    return f"; {e.repeats.calls} calls would miss a change in one call of four with {missed}"


def equal(e: "Evidence") -> str:
    n = sum(x.size for x in e.result_f.arrays)
    if not n:
        return f"f and g return no elements: shape {', '.join(map(str, e.result_f.shapes))}"
    what, they = ("the result is", "it is") if n == 1 else (f"all {n} results are", "all are")
    nan = f"; {they} NaN" if np.isnan(e.result_f.numbers(np.float64)).all() else ""
    return f"{what} equal to the last bit, in repeated calls as well{nan}{unseen(e)}"


def errors(e: "Evidence") -> str:
    text = as_multiple(e.worst_error, e.allowed, NORM)
    return (
        f"f and g differ by {text}"
        if e.reference is None
        else f"the errors of f and g are at most {text}"
    )


def rounding(e: "Evidence") -> str:
    text = f"rounding explains the difference: {errors(e)}"
    if not e.difference.any():
        f, g = (", ".join(dict.fromkeys(y.dtypes)) for y in e.results.values())
        bits = f"f returns {f} and g {g}" if f != g else "the signs of 0 or NaN differ"
        text = f"all numbers are equal, but {bits}; {errors(e)}"
        text += ": both lose the same digits" if e.worst_error > e.allowed else ""
    elif e.reference is None:
        text += "; without a reference in higher precision a smaller bug would not be seen"
    text += _fused(e)
    if e.differ:
        text += f"; rounded parameters explain a difference in {higher_precision(e.form)}"
    return text + unseen(e)


def layout(e: "Evidence") -> str:
    text = f"f and g round in different orders, by shape or memory layout: {e.arrangements.equal} "
    return f"{text}they are equal to the last bit; {errors(e)}{_fused(e)}"


def _fused(e: "Evidence") -> str:
    if e.fused is None:
        return ""
    other = "g" if e.fused == "f" else "f"
    return f"; {e.fused} adds its bias within the matrix product (addmm), {other} rounds it first"


def ill_conditioned(e: "Evidence") -> str:
    text = "the function is ill-conditioned or discontinuous here (condition number "
    text += f"{brief(e.condition)})"
    if e.ill_conditioned_matrix is not None:
        text = f"{text}: {e.ill_conditioned_matrix}"
    if e.within_rounding:
        return f"{text}; {errors(e)}"
    (other, less), (name, most) = sorted(e.errors.items(), key=lambda item: item[1].robust)
    off = as_multiple(most.robust, e.allowed, NORM)
    text += f"; {name} is off by {off}, and {other} by {brief(less.robust)} times"
    return f"{text}; {_loop(e, most.robust)}"


def _loop(e: "Evidence", size: float) -> str:
    steps = e.evidence["loop_steps"] = math.ceil((size - e.thresholds.base) ** 2)
    return f"a loop of {steps} steps adds up rounding errors: pass reduction={steps}"


def jumps(e: "Evidence") -> str:
    text = f"the function is discontinuous here: {e.jumps} by more than rounding, and it "
    return text + "changes as much when its inputs change by a few ulps"


def other_jumps(e: "Evidence") -> str:
    text = f"f and g jump at different points: {e.jumps} by more than rounding, in "
    return f"{text}{higher_precision(e.form)} as well"


def ties(e: "Evidence") -> str:
    agreement = e.agrees_elsewhere
    assert agreement is not None
    if not agreement.note:
        return f"{agreement.count}, at discontinuities: this is not rounding"
    special = "" if len(e.wide_results) == 2 else ", or special values of these inputs,"
    text = f"f and g treat ties{special} differently: {agreement.count}, but none "
    return text + agreement.note


def integers_at_ties(e: "Evidence") -> str:
    return f"f and g treat ties differently: {e.integers.text}, but none {e.integers.at_ties}"


def wrong_integers(e: "Evidence") -> str:
    if perturbable(e.inputs):
        return f"{_DIFFERENT}: {e.integers.text}, by as much in {higher_precision(e.form)}"
    return f"{e.integers.text}, and the inputs are exact: this is not rounding"


def strides(e: "Evidence") -> str:
    name = str(e.ignores_strides)
    text = f"{name} ignores the strides of its arguments: it is off by "
    text += f"{as_multiple(e.errors[name].rms)} for arrays of this memory layout, and right for "
    return text + "the same numbers in C order"


def hidden_by_larger_results(e: "Evidence") -> str:
    assert e.wide is not None
    some, distance = e.wide.hidden, np.abs(e.difference)
    times = float(np.max(distance[some] / np.maximum(e.scale[some], np.finfo(float).tiny)))
    constants = _SUM_OF_CONSTANTS if e.form == "float64" else ""
    text = f"{_DIFFERENT}{constants}: {differing(int(np.count_nonzero(some)), some.size, 'result')}"
    text += f" by up to {as_multiple(times)}, in {higher_precision(e.form)} as well, which norms "
    return text + "hide, as other results are larger"


def differ_in_higher_precision(e: "Evidence") -> str:
    assert e.wide is not None
    wide, far, t = e.wide, e.wide.norms, e.thresholds
    precision = higher_precision(e.form)
    lost = int(np.count_nonzero(e.flushed))
    here = f"within rounding here{f' except {lost} subnormal results flushed to 0' if lost else ''}"
    if far.broken:
        n = f"{far.broken} of {wide.difference.size} results"
        return f"{_DIFFERENT}: {here}, but in {precision} {n} are finite in only one of f and g"
    size = f"{here}, but in {precision} f and g differ by {as_multiple(far.robust)} of that "
    size += f"precision (rounding alone explains {brief(e.error_difference.rms)})"
    if wide.agree_unmoved:
        text = "f and g agree for special inputs only (symmetric, of sum 1, ...), or a result is "
        return f"{text}cached: {size}, but only after a 1-ulp perturbation of the inputs"
    if wide.growth > t.growth:
        text = "f and g agree for inputs of sum 1, orthogonal inputs, or the like; if all are such,"
        text += f" normalise them in f and g: {size}, and by {brief(wide.growth)} times as much "
        return f"{text}after perturbations {t.redraw:.0f} times as large"
    off = far.robust * wide.fine
    form = "float64" if off <= t.redraw * ROUNDOFF["float64"] else e.form
    text = _DIFFERENT
    if off <= t.constants * e.roundoff:
        text += f", or use constants of {form}"
    elif e.form == "float64" and off <= e.allowed * e.roundoff:
        text += _SUM_OF_CONSTANTS
    return f"{text}: {size}"


def steady(e: "Evidence") -> str:
    assert e.near_similarity is not None
    text = f"the difference is nearly the same (cosine {e.near_similarity:.2g}) after "
    text += "perturbations of the inputs by a few ulps"
    if e.steady_error.rms * e.roundoff > e.thresholds.large:
        off = as_multiple(e.steady_error.robust, e.allowed, NORM)
        return f"{_DIFFERENT}: they differ by {off}, but {text}, as rounding would not be"
    return f"{_DIFFERENT}, or use differently rounded constants: within rounding here, but {text}"


def mixed(e: "Evidence") -> str:
    text = f"{e.arrangements.mixed}: its rows depend on each other, or it is right only for a "
    return text + "batch of this length, though all is within rounding here"


def times_expected(e: "Evidence", name: str, form: str) -> float:
    """Return an error in units of the expected rounding error of another format."""
    size = e.errors[name] if e.errors else e.error_difference
    return float(size.robust * e.roundoff / (roundoff_of(form) or e.roundoff))


def observed(e: "Evidence") -> str:
    assert e.observed_reduction is not None
    name, form = e.observed_reduction
    text = f"{name} computes in {form}: {times_expected(e, name, form):.2g} times its expected "
    text += "rounding error"
    d = e.difference_without_formats
    if d is None:
        return f"{text}; it cannot be called in float64"
    if not e.differ if e.wide is not None else e.is_rounding(e.norms(d)):
        return f"{text}; f and g agree in float64"
    share = finite_rms(d) / (finite_rms(e.result_f.numbers(np.float64)) or 1.0)
    return f"{_DIFFERENT}, by {100 * share:.2g} % of the results in float64; also, {text}"


def inferred(e: "Evidence") -> str:
    inference = e.inferred_format
    assert inference is not None
    times = times_expected(e, inference.name, inference.form)
    text = f"{inference.name} computes in {inference.forms} (inferred): {times:.2g} times its "
    text += f"expected rounding error; {inference.evidence}"
    if inference.bias:
        return f"{text}; but its results are {inference.bias}: f and g differ by a factor"
    return text


def cancellation(e: "Evidence") -> str:
    assert e.quantum is not None
    name, step = e.quantum
    text = f"a subtraction in {name} cancels most digits: all of its results that are off are "
    text += f"multiples of {brief(step)}, an ulp of {brief(step / 2 / e.roundoff)}; {_off(e)}"
    return text


def steps(e: "Evidence") -> str:
    name = e.constant_in_steps
    text = f"the algorithm of {name} loses digits: it does not change when its inputs change by "
    return f"{text}1 ulp; {_off(e)}"


def lost_digits(e: "Evidence") -> str:
    name, error = max(e.errors.items(), key=lambda item: item[1].robust)
    is_loop = error.robust <= e.thresholds.single * e.allowed
    loop = f", or {_loop(e, error.robust)}" if is_loop else ""
    text = f"the algorithm of {name} loses digits{loop}; in {e.form} it is off by "
    text += f"{as_multiple(error.robust, e.allowed, NORM)}, but f and g agree in "
    return text + higher_precision(e.form)


def lost_by_reference(e: "Evidence") -> str:
    name = str(e.reference_name)
    other = "g" if name == "f" else "f"
    both = e.errors[other].robust > e.allowed
    text = "both algorithms lose" if both else f"the algorithm of {name} loses"
    text += f" digits: {name} differs from its result in {higher_precision(e.form)} by "
    text += f"{as_multiple(e.errors[name].robust, e.allowed, NORM)}, and {other} by "
    return f"{text}{brief(e.errors[other].robust)} times"


def redrawn(e: "Evidence") -> str:
    text = f"f or g loses digits: {_off(e)}, and the error changes when the inputs are perturbed "
    return text + "by a few ulps"


def grown(e: "Evidence") -> str:
    return f"f or g loses digits: {_off(e)}, and by far more in float32"


def insensitive(e: "Evidence") -> str:
    name = e.reference_name
    text = f"{_DIFFERENT}: {name} has condition number {brief(e.condition)} or is discontinuous "
    return f"{text}here, and {'g' if name == 'f' else 'f'} does not change with its inputs"


def in_one_precision(e: "Evidence") -> str:
    text = f"a table or constants are rounded to {e.form}, or f and g compute different functions "
    text += f"in {e.form} alone: {_off(e)}, at far inputs as well, but agree in "
    return text + higher_precision(e.form)


def little(e: "Evidence") -> str:
    higher, why = "", ", or one of them loses digits, which only higher precision could show"
    if e.differ:
        higher, why = f", in {higher_precision(e.form)} as well", _SUM_OF_CONSTANTS
    return f"{_DIFFERENT}{why}: {_far(e)}{higher}"


def compiled_in(e: "Evidence") -> str:
    names = " and ".join(e.compiled_parameters)
    text = f"{_DIFFERENT}, or arrays that are compiled into {names} are rounded: {_far(e)}"
    return f"{text}; pass these arrays as inputs, which can be perturbed"


def _off(e: "Evidence", subject: str = "f and g") -> str:
    return f"{subject} differ by {as_multiple(e.error_difference.robust, e.allowed, NORM)}"


def different(e: "Evidence") -> str:
    size = e.error_difference
    text = _broken(e) if size.broken else _far(e)
    if e.differ:
        assert e.wide is not None
        if not size.broken or e.wide.norms.broken:
            text += f", in {higher_precision(e.form)} as well"
        else:  # overflow hides other errors
            text += f"; in {higher_precision(e.form)} all are finite, and they differ by "
            text += f"{as_multiple(e.wide.norms.robust)} of that precision"
    elif e.differ is False:
        return f"{_DIFFERENT} in {e.form}: {text}, but agree in {higher_precision(e.form)}"
    if e.other_numbers is not None:
        return f"{_DIFFERENT}: {e.other_numbers}; {text}"
    sizes = finite_rms(e.result_f.numbers(np.float64))
    times = size.absolute / sizes / e.roundoff if sizes else math.inf
    ill = e.reference is not None and e.condition > e.thresholds.ill_conditioned
    most = e.thresholds.large / e.roundoff if ill else e.thresholds.amplified_constants
    if e.form == "float64" and not size.broken and times <= most:
        text += f"; unless rounding errors of constants are amplified {brief(times)} times, as in "
        text += "narrow filters and in fits of high degree"
    return f"{_DIFFERENT}: {text}"


def _far(e: "Evidence") -> str:
    """Say how far f and g are off by what decides; noise levels of 0 are no measure."""
    size = e.error_difference
    if math.isinf(size.robust):
        differ = differing(int(np.count_nonzero(e.difference)), e.difference.size, "result")
        return f"{differ}, which do not depend on the last bits of the inputs"
    if size.robust > e.allowed:
        return _off(e, "they")
    one = e.thresholds.single * e.allowed
    if size.peak > one or e.reference is None:
        return f"they differ by {as_multiple(size.peak, one, ELEMENT)}"
    name, error = max(e.errors.items(), key=lambda item: item[1].robust)
    source = e.reference_name
    source = f"{source} in {higher_precision(e.form)}" if source in e.errors else "the reference"
    return f"{name} differs from {source} by {as_multiple(error.robust, e.allowed, NORM)}"


def _broken(e: "Evidence") -> str:
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
