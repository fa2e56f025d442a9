"""Results that are all numbers of a narrower format, or multiples of one number."""

import math

import numpy as np

from .._protocols import NDArray
from .._report.comparison import differing
from .._rounding import FORMATS, bit_rule, round_array
from .answers import Answer, comparable
from .bias import falls_behind, too_large
from .inputs import movable
from .inquiry import Inquiry
from .units import ROUNDOFF, rms_of
from .verdicts import ALONE, COARSEST, RANGE, REDUCED, UNSTABLE, Verdict, as_multiple

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
_BESIDE = 2.0**6  # times the largest input or result, or 1: what is subtracted may be


def on_a_grid(q: Inquiry) -> Verdict | None:
    """Recognise results that are numbers of a narrower format, where the other side's are not."""
    for name, answer, other in (("g", q.of_g, q.of_f), ("f", q.of_f, q.of_g)):
        form = _grid_elsewhere(q, name, answer)
        if form is not None and grid_of(q, other) != form:
            verdict = _held_in(q, name, form)
            if verdict is not None:
                return verdict
    return None


def _grid_elsewhere(q: Inquiry, name: str, answer: Answer) -> str | None:
    """
    Return the format of results; of few, and of those at moved inputs: few may be plain.

    Where no input can be moved, integers say, the few are no accident of float32 alone.
    """
    numbers = _nonzero(answer)
    if not numbers.size or numbers.size >= _MANY:
        return grid_of(q, answer)
    if not movable(q.inputs):
        return "float32" if grid_of(q, answer) == "float32" else None
    if not (q.are_moved and any(_holds(form, numbers) for form in _narrower(q, numbers))):
        return None
    answers = [answer]
    for k in range(_MORE):
        there = q.sides[name](q.moves(2.0**-COARSEST, q.seed + 880 + k, wide=False))
        if there.error is None:
            answers.append(there)
    return grid_of(q, *answers)


def _held_in(q: Inquiry, name: str, form: str) -> Verdict | None:
    """Judge results that are numbers of a format: whether its rounding and range explain them."""
    finite = {side: np.isfinite(answer.numbers(np.float64)) for side, answer in q.answers.items()}
    beyond = ~finite[name] & finite["g" if name == "f" else "f"]
    fraction, lowest = FORMATS[form][:2]
    unit = np.hypot(q.scale * (ROUNDOFF[form] / q.roundoff), 2.0 ** (lowest - fraction))
    size = q.size(np.where(beyond, 0.0, q.apart), unit)
    most = 4 * math.sqrt(q.length) if falls_behind(q, form) else q.allowed
    if size.broken or size.normwise > most or q.constancy > _CONSTANT:
        return None
    if beyond.any():
        return Verdict(
            RANGE,
            f"{differing(int(np.count_nonzero(beyond)), beyond.size, 'result')}: {name} returns "
            f"no finite numbers there, and elsewhere numbers of {form}, whose range an "
            f"intermediate value exceeds",
            form,
        )
    return too_large(q, name, form) or Verdict(
        REDUCED,
        f"f and g differ by {as_multiple(q.eta_apart.rms)}, and all results of {name} are numbers "
        f"of {form}: it sums or returns in that format",
        form,
        None,
    )


def grid_of(q: Inquiry, *answers: Answer) -> str | None:
    """Return the narrowest format that holds all results, if that is no accident."""
    numbers = np.unique(np.concatenate([_nonzero(answer) for answer in answers]))
    for form in _narrower(q, numbers):
        unused = numbers.size * math.log2(ROUNDOFF[form] / q.roundoff)
        if unused >= _CERTAIN and _holds(form, numbers) and not _are_plain(q, numbers, form):
            return form
    return None


def _nonzero(answer: Answer) -> NDArray:
    """Return the sizes of results that are no 0, each once."""
    return _sizes(answer.numbers(np.float64))


def _sizes(numbers: NDArray) -> NDArray:
    sizes: NDArray = np.unique(np.abs(numbers[np.isfinite(numbers) & (numbers != 0)]))
    return sizes


def _narrower(q: Inquiry, numbers: NDArray) -> list[str]:
    """Return formats that numbers may be held in: few are in one of a few bits by chance."""
    forms = _STORED if numbers.size >= _MANY else _FEW_STORED
    return [form for form in forms if ROUNDOFF[form] > q.roundoff]


def _holds(form: str, numbers: NDArray) -> bool:
    """Tell whether numbers are of a format, and not small integers, which all formats hold."""
    if (numbers == np.rint(numbers)).all() and numbers.max(initial=0) * ROUNDOFF[form] <= 1:
        return False
    return np.array_equal(round_array(numbers, bit_rule(form, numbers.dtype)), numbers)


def _are_plain(q: Inquiry, numbers: NDArray, form: str) -> bool:
    """Tell whether numbers need fewer bits than their format has, or are what a difference left."""
    fraction, lowest = FORMATS[form][:2]
    exponents = np.frexp(numbers)[1] - 1
    # What is lost here alone is in no narrower range, but to last places of squares, say.
    if q.differ_wide:
        exponents = np.maximum(exponents, lowest)
    step = _last_place(numbers)
    zeros = math.log2(step) - (int(exponents.max()) - fraction)  # bits of the format not in use
    if zeros < 0:
        return False
    left = not q.differ_wide and step / q.natural_size <= 8 * q.roundoff * q.natural_size
    return left or numbers.size * zeros >= _PLAIN or 2 * zeros >= fraction


def few_digits_left(q: Inquiry) -> Verdict | None:
    """
    Recognise what a subtraction leaves: multiples of a last place of what was subtracted.

    Beside results that are within rounding only those are looked at that are far beyond.
    """
    if q.eta_apart.broken or q.differ_wide:
        return None
    lost = np.abs(q.apart) > ALONE * q.allowed * q.scale
    chosen = {"all results of {}": np.ones(q.apart.size, bool)}
    if lost.any() and q.size(np.where(lost, 0.0, q.apart), q.scale).least <= q.allowed:
        chosen["all results of {} with errors above the limit"] = lost
    for what, some in chosen.items():
        absolute = rms_of(q.apart[some])
        for name, answer in (("g", q.of_g), ("f", q.of_f)):
            numbers = _sizes(answer.numbers(np.float64)[some])
            if not numbers.size:
                continue
            if _SPARE < _spare(q, numbers) < _SURE / numbers.size:  # few may be so by chance
                numbers = np.union1d(numbers, _sizes_elsewhere(q, name, some))
            step, top, spare = _last_place(numbers), float(numbers.max()), _spare(q, numbers)
            subtracted = step / (2 * q.roundoff)
            largest = max(q.natural_size, top)
            few = spare > _SPARE and spare * numbers.size >= _SURE
            if few and subtracted <= _BESIDE * largest and absolute <= 2 * step:
                return Verdict(
                    UNSTABLE,
                    f"f and g differ by {as_multiple(q.eta_apart.rms)}, and {what.format(name)} "
                    f"are multiples of {step:.2g}, an ulp of {subtracted:.2g}: a subtraction "
                    f"cancels most of their digits",
                )
    return None


def _spare(q: Inquiry, numbers: NDArray) -> float:
    """Return how many bits less than their format's numbers need, the largest as well."""
    unused = math.log2(_last_place(numbers)) - math.log2(float(numbers.max()))
    return unused - math.log2(q.roundoff)


def _sizes_elsewhere(q: Inquiry, name: str, some: NDArray) -> NDArray:
    """Return the sizes of some results of a side where inputs are moved far, each once."""
    answers = (
        q.sides[name](q.moves(2.0**-COARSEST, q.seed + 880 + k, wide=False)) for k in range(_MORE)
    )
    known = [y.numbers(np.float64)[some] for y in answers if comparable(y, q.answers[name])]
    return _sizes(np.concatenate([np.empty(0), *known]))


def _last_place(numbers: NDArray) -> float:
    """Return the largest power of two that all numbers are multiples of."""
    digits, exponents = np.frexp(numbers)
    digits = np.abs(digits * 2.0**53).astype(np.int64)
    return float(np.ldexp((digits & -digits).astype(np.float64), exponents - 53).min())
