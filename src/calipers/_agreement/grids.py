"""Results that are all numbers of a narrower format, or multiples of one number."""

import math

import numpy as np

from .._protocols import NDArray
from .._rounding import FORMATS, bit_rule, round_array
from .bias import too_large
from .inquiry import Inquiry
from .sides import Answer
from .units import ROUNDOFF
from .verdicts import REDUCED, UNSTABLE, Verdict

_MANY = 16  # different numbers that are no accident on a grid
_STORED = ("float8_e5m2", "float8_e4m3", "bfloat16", "float16", "float32")
# Sums in a narrow format fall behind, and that stays alike, too, if less so than a forgotten term.
_CONSTANT = 0.99
_SPARE = 4  # bits less than a format holds, of results that few are left of
_BESIDE = 2.0**6  # times the largest input or result, or 1: what is subtracted may be


def on_a_grid(q: Inquiry) -> Verdict | None:
    """Recognise results that are numbers of a narrower format, where the other side's are not."""
    coarse = {name: grid_of(q, answer) for name, answer in (("f", q.of_f), ("g", q.of_g))}
    for name, other in (("g", "f"), ("f", "g")):
        form = coarse[name]
        if form is not None and coarse[other] != form:
            size = q.eta_apart
            most = 4 * ROUNDOFF[form] * math.sqrt(q.length) / q.roundoff
            if size.broken == 0 and size.normwise <= most and q.constancy <= _CONSTANT:
                return too_large(q) or Verdict(
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
        if np.array_equal(round_array(numbers, bit_rule(form, numbers.dtype)), numbers):
            # Few digits that a difference has left are in any format, too: its last bit is 0.
            return form if not _are_even(numbers, form) else None
    return None


def _are_even(numbers: NDArray, form: str) -> bool:
    """Tell whether numbers of a format have a last bit of 0, all of them."""
    fraction, lowest = FORMATS[form][:2]
    step = np.ldexp(1.0, np.maximum(np.frexp(numbers)[1] - 1, lowest) - fraction + 1)
    return bool((numbers % step == 0).all())


def few_digits_left(q: Inquiry) -> Verdict | None:
    """Recognise what a subtraction leaves: multiples of a last place of what was subtracted."""
    if q.eta_apart.broken or q.differ_wide:
        return None
    for name, answer in (("g", q.of_g), ("f", q.of_f)):
        numbers = answer.numbers(np.float64)
        numbers = numbers[np.isfinite(numbers) & (numbers != 0)]
        if np.unique(np.abs(numbers)).size < _MANY:
            continue
        step, top = _last_place(numbers), float(np.abs(numbers).max())
        subtracted = step / (2 * q.roundoff)
        largest = max(q.natural_size, top)
        few = top * q.roundoff * 2**_SPARE < step and subtracted <= _BESIDE * largest
        if few and q.eta_apart.absolute <= 2 * step:
            return Verdict(
                UNSTABLE,
                f"the sides are {q.eta_apart.rms:.2g} units apart, and all results of {name} are "
                f"multiples of {step:.2g}, a last place of {subtracted:.2g}: a subtraction leaves "
                f"few of their digits",
            )
    return None


def _last_place(numbers: NDArray) -> float:
    """Return the largest power of two that all numbers are multiples of."""
    digits, exponents = np.frexp(numbers)
    digits = np.abs(digits * 2.0**53).astype(np.int64)
    return float(np.ldexp((digits & -digits).astype(np.float64), exponents - 53).min())
