"""Results that lie on a grid of a format, and integers at ties of rounding."""

import math

import numpy as np

from ..._compare.text import differing
from ..._core.dtypes import FORMATS, ROUNDOFF
from ..._core.protocols import NDArray
from ..callables import Result, comparable
from ..evidence import Evidence
from ..inputs import perturbable
from ..noise_level import difference, finite_rms
from ..round_to_format import format_parameters, round_array
from ..verdict import (
    ALONE,
    COARSEST,
    LARGE_DIFFERENCE,
    RANGE,
    REDRAW,
    REDUCED,
    SUSPECT,
    UNSTABLE,
    Verdict,
    as_multiple,
)
from .quantization import falls_behind, too_large

_SAME = 0.9  # of the results that differ, those that differ as much in the wider format
_N_PERTURBATIONS = 3  # chance may make two sides agree at one
_FAR = 2.0**-COARSEST  # of an input
AGREE_ELSEWHERE = (
    "but agree at perturbed inputs: ties, or special values of these inputs, are treated "
    "differently"
)


def at_ties(e: Evidence) -> Verdict | None:
    """
    Recognise differences that are the same in the wider format, and not there nearby.

    A tie that rounding decides is decided differently in a different precision; a tie by the
    function itself, as of numbers with sum 1, remains one at perturbed inputs.
    """
    text = _same(e, e.allowed * e.roundoff) if e.can_perturb else None
    if text is None:
        return None
    # Farther away, one side may be another function: one that is right for one turn, say.
    for zeros, delta in ((False, _FAR), (True, _FAR), (False, min(_FAR, REDRAW * e.roundoff))):
        if agree_nearby(e, delta, zeros=zeros, wide=True):
            return Verdict(SUSPECT, f"{text}, {none_nearby(zeros)}")
    return None


def no_rounding(e: Evidence) -> Verdict | None:
    """
    Recognise differences that are the same in the wider format, where a jump is as large.

    If f or g cannot compute in it, amplified errors also occur nearby, and ties do not, unless
    rounding decides the ties of the other implementation, differently in higher precision.
    """
    if len(e.wide_results) < 2:
        large = _beyond(e.allowed * e.roundoff, e.difference, e.result_f)
        if not large.any() or _decided_by_rounding(e) or not agree_elsewhere(e):
            return None
        differ = differing(int(np.count_nonzero(large)), large.size, "result")
        return Verdict(SUSPECT, f"{differ}, {AGREE_ELSEWHERE}")
    text = _same(e, LARGE_DIFFERENCE)
    if text is None:
        return None
    return at_ties(e) or Verdict(SUSPECT, f"{text}, at discontinuities: this is not rounding")


def _same(e: Evidence, least: float) -> str | None:
    """Tell of differences of a share of the results, if the wider format has nearly all of them."""
    if len(e.wide_results) < 2:
        return None
    f, g = e.wide_results["f"], e.wide_results["g"]
    there = difference(f, g)
    large = _beyond(least, e.difference, f) | _beyond(least, there, f)
    same = large & (np.abs(e.difference - there) <= LARGE_DIFFERENCE * np.abs(there))
    n = int(np.count_nonzero(same))
    if not n or n < _SAME * np.count_nonzero(large):
        return None
    return f"{differing(n, same.size, 'result')}, by as much in higher precision"


def _decided_by_rounding(e: Evidence) -> bool:
    """Return True if higher precision changes the results of every implementation that has it."""
    if e.reference is None:
        return False
    r = e.reference[1]
    off = (difference(e.results[name], r) for name in e.wide_results or e.results)
    return all(_beyond(e.allowed * e.roundoff, d, r).any() for d in off)


def none_nearby(zeros: bool) -> str:
    """Say what results are whose differences vanish where inputs are moved, or zeros, too."""
    too = " (zeros as well)" if zeros else ""
    return f"but none at perturbed inputs{too}: ties are treated differently"


def agree_nearby(
    e: Evidence, delta: float = _FAR, *, zeros: bool = False, wide: bool = False
) -> bool:
    """Return True if f and g agree at all perturbed inputs."""
    for k in range(_N_PERTURBATIONS):
        f, g = e.evaluate_perturbed(delta, e.seed + 820 + k, zeros=zeros, wide=wide)
        if not comparable(f, g):
            return False
        d = difference(f, g)
        if not np.isfinite(d).all() or _beyond(e.allowed * e.roundoff, d, f).any():
            return False
    return True


def _beyond(share: float, d: NDArray, result: Result) -> NDArray:
    """Return a mask of differences above a fraction of the result, and of the RMS of its array."""
    sizes = np.abs(result.numbers(np.float64))
    typical = result.repeat_each(np.array([finite_rms(part) for part in result.split(sizes)]))
    beyond: NDArray = np.abs(d) > share * np.maximum(sizes, typical)
    return beyond


def agree_elsewhere(e: Evidence) -> bool:
    """Return True if f and g agree at small and at large perturbations, unlike lost digits."""
    return any(
        all(agree_nearby(e, delta, zeros=zeros) for delta in (REDRAW * e.roundoff, _FAR))
        for zeros in (False, True)
    )


_MANY = 16  # different numbers that are no accident on a grid
_MORE = 3  # moves to see more results, where there are few
# Bits that numbers of a format leave unused, of all results together, for that to be no accident.
_CERTAIN = 24
_PLAIN = 12  # and bits of the format that all leave unused, as plain numbers do
_STORED = ("float8_e5m2", "float8_e4m3", "bfloat16", "float16", "float32")
_FEW_STORED = _STORED[2:]  # few results are numbers of two or three bits as often as not
# Sums in a narrow format fall behind, and that stays alike, too, if less so than a forgotten term.
_CONSTANT = 0.99
# Bits less than a format holds, of results that few are left of: of each, and of all together.
_SPARE, _SURE = 4, 64
_SUBTRAHEND_FACTOR = 2.0**6  # factor on max(1, largest input or result)


def on_a_grid(e: Evidence) -> Verdict | None:
    """Recognise results that are numbers of a narrower format, where the other side's are not."""
    for name, result, other in (("g", e.result_g, e.result_f), ("f", e.result_f, e.result_g)):
        form = _grid_elsewhere(e, name, result)
        if form is not None and find_grid_format(e, other) != form:
            verdict = _held_in(e, name, form)
            if verdict is not None:
                return verdict
    return None


def _grid_elsewhere(e: Evidence, name: str, result: Result) -> str | None:
    """
    Return the format of results; of few, and of those at moved inputs: few may be plain.

    Where no input can be moved, integers say, the few are no accident of float32 alone.
    """
    numbers = _nonzero(result)
    if not numbers.size or numbers.size >= _MANY:
        return find_grid_format(e, result)
    if not perturbable(e.inputs):
        return "float32" if find_grid_format(e, result) == "float32" else None
    if not (e.can_perturb and any(_holds(form, numbers) for form in _lower_formats(e, numbers))):
        return None
    results = [result]
    for k in range(_MORE):
        there = e.implementations[name](e.perturb(2.0**-COARSEST, e.seed + 880 + k, wide=False))
        if there.error is None:
            results.append(there)
    return find_grid_format(e, *results)


def _held_in(e: Evidence, name: str, form: str) -> Verdict | None:
    """Judge results that are numbers of a format: whether its rounding and range explain them."""
    finite = {key: np.isfinite(result.numbers(np.float64)) for key, result in e.results.items()}
    beyond = ~finite[name] & finite["g" if name == "f" else "f"]
    fraction, lowest = FORMATS[form][:2]
    unit = np.hypot(e.scale * (ROUNDOFF[form] / e.roundoff), 2.0 ** (lowest - fraction))
    size = e.norms(np.where(beyond, 0.0, e.difference), unit)
    most = 4 * math.sqrt(e.length) if falls_behind(e, form) else e.allowed
    if size.broken or size.normwise > most or e.far_similarity > _CONSTANT:
        return None
    if beyond.any():
        return Verdict(
            RANGE,
            f"{differing(int(np.count_nonzero(beyond)), beyond.size, 'result')}: {name} returns "
            f"no finite numbers there, and elsewhere numbers of {form}, whose range an "
            f"intermediate value exceeds",
            form,
        )
    return too_large(e, name, form) or Verdict(
        REDUCED,
        f"f and g differ by {as_multiple(e.eta_difference.rms)}, and all results of {name} are "
        "numbers "
        f"of {form}: it sums or returns in that format",
        form,
        None,
    )


def find_grid_format(e: Evidence, *results: Result) -> str | None:
    """Return the narrowest format that holds all results, if that is no accident."""
    numbers = np.unique(np.concatenate([_nonzero(result) for result in results]))
    for form in _lower_formats(e, numbers):
        unused = numbers.size * math.log2(ROUNDOFF[form] / e.roundoff)
        if unused >= _CERTAIN and _holds(form, numbers) and not _are_plain(e, numbers, form):
            return form
    return None


def _nonzero(result: Result) -> NDArray:
    """Return the sizes of results that are no 0, each once."""
    return _sizes(result.numbers(np.float64))


def _sizes(numbers: NDArray) -> NDArray:
    sizes: NDArray = np.unique(np.abs(numbers[np.isfinite(numbers) & (numbers != 0)]))
    return sizes


def _lower_formats(e: Evidence, numbers: NDArray) -> list[str]:
    """Return formats that numbers may be held in: few are in one of a few bits by chance."""
    forms = _STORED if numbers.size >= _MANY else _FEW_STORED
    return [form for form in forms if ROUNDOFF[form] > e.roundoff]


def _holds(form: str, numbers: NDArray) -> bool:
    """Return True if a format represents all numbers, and not all are small integers."""
    if (numbers == np.rint(numbers)).all() and numbers.max(initial=0) * ROUNDOFF[form] <= 1:
        return False
    return np.array_equal(round_array(numbers, format_parameters(form, numbers.dtype)), numbers)


def _are_plain(e: Evidence, numbers: NDArray, form: str) -> bool:
    """Return True if numbers need fewer bits than the format has, or are due to cancellation."""
    fraction, lowest = FORMATS[form][:2]
    exponents = np.frexp(numbers)[1] - 1
    # Numbers that underflow in the working precision only have no smaller range.
    if e.differ_wide:
        exponents = np.maximum(exponents, lowest)
    step = _common_spacing(numbers)
    zeros = math.log2(step) - (int(exponents.max()) - fraction)  # bits of the format not in use
    if zeros < 0:
        return False
    left = not e.differ_wide and step / e.natural_size <= 8 * e.roundoff * e.natural_size
    return left or numbers.size * zeros >= _PLAIN or 2 * zeros >= fraction


def few_digits_left(e: Evidence) -> Verdict | None:
    """
    Recognise cancellation: results are multiples of an ulp of the subtracted numbers.

    If the other results are within rounding, only those far above the limit are examined.
    """
    if e.eta_difference.broken or e.differ_wide:
        return None
    lost = np.abs(e.difference) > ALONE * e.allowed * e.scale
    chosen = {"all results of {}": np.ones(e.difference.size, bool)}
    if lost.any() and e.norms(np.where(lost, 0.0, e.difference), e.scale).robust <= e.allowed:
        chosen["all results of {} with errors above the limit"] = lost
    for what, some in chosen.items():
        absolute = finite_rms(e.difference[some])
        for name, result in (("g", e.result_g), ("f", e.result_f)):
            numbers = _sizes(result.numbers(np.float64)[some])
            if not numbers.size:
                continue
            if _SPARE < _spare(e, numbers) < _SURE / numbers.size:  # few may be so by chance
                numbers = np.union1d(numbers, _sizes_elsewhere(e, name, some))
            step, top, spare = _common_spacing(numbers), float(numbers.max()), _spare(e, numbers)
            subtracted = step / (2 * e.roundoff)
            largest = max(e.natural_size, top)
            few = spare > _SPARE and spare * numbers.size >= _SURE
            if few and subtracted <= _SUBTRAHEND_FACTOR * largest and absolute <= 2 * step:
                return Verdict(
                    UNSTABLE,
                    f"f and g differ by {as_multiple(e.eta_difference.rms)}, and "
                    f"{what.format(name)} "
                    f"are multiples of {step:.2g}, an ulp of {subtracted:.2g}: a subtraction "
                    f"cancels most of their digits",
                )
    return None


def _spare(e: Evidence, numbers: NDArray) -> float:
    """Return how many bits less than their format's numbers need, the largest as well."""
    unused = math.log2(_common_spacing(numbers)) - math.log2(float(numbers.max()))
    return unused - math.log2(e.roundoff)


def _sizes_elsewhere(e: Evidence, name: str, some: NDArray) -> NDArray:
    """Return the sizes of some results of a side where inputs are moved far, each once."""
    results = (
        e.implementations[name](e.perturb(2.0**-COARSEST, e.seed + 880 + k, wide=False))
        for k in range(_MORE)
    )
    sizes = [y.numbers(np.float64)[some] for y in results if comparable(y, e.results[name])]
    return _sizes(np.concatenate([np.empty(0), *sizes]))


def _common_spacing(numbers: NDArray) -> float:
    """Return the largest power of two that all numbers are multiples of."""
    digits, exponents = np.frexp(numbers)
    digits = np.abs(digits * 2.0**53).astype(np.int64)
    return float(np.ldexp((digits & -digits).astype(np.float64), exponents - 53).min())
