"""Detect the floating-point format in which f computes, such as float32 in a float64 function.

Formats of fewer bits are detected at inputs that they round to one number, where f is constant:
results in few bits may also be exact, as counts are.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from .._core.dtypes import FORMATS, NARROW_FORMATS, SPACINGS, as_real_vector
from .._core.protocols import NDArray
from .function import Problem
from .steps import FEWEST_BITS, Steps

# Distance of nearby points, relative to x or the caller's step: well within the step sequence.
_RELATIVE_SHIFT = 2.0**-6
# Results below this share of max(1, |x|) may be differences of numbers in few bits.
_CANCELLATION_LEFTOVER = 2.0**-20
_NARROW = np.float16, np.float32
_FEWEST = min(1 << FORMATS[name].fraction for name in NARROW_FORMATS)
_LEAST = max(2.0 ** FORMATS[name].lowest for name in NARROW_FORMATS)
_MIDPOINT_OFFSET = (
    2.0**-11
)  # distance of evaluation points from the midpoint of two numbers, in spacings
# Multiples of x at which inputs of a low-precision format have the same relative spacing.
_CHECKED_SCALES = 2.0**-3, 2.0**3
_FEW_BITS = 10  # bits of numbers that results of few digits have
_CHANCE_ZERO_BITS = 10  # trailing zero bits that may occur by chance
# Multiples of x for further results, since results of one magnitude show little.
_X_MULTIPLES = *0.75 ** np.arange(1, 9), *1.5 ** np.arange(1, 7)
_UNCHANGED_EPS = 64.0  # times eps: changes of results that count as unchanged
_FARTHER_FACTOR = 4  # multiple of the distance of nearby points, where few results change


def in_few_bits(y: NDArray) -> NDArray:
    """Return True for numbers of at most _FEW_BITS bits (Dekker's split, Numer. Math. 18, 1971)."""
    rounded = (1 + 2.0 ** (53 - _FEW_BITS)) * y
    return np.asarray(rounded - (rounded - y) == y)


def in_its_format(problem: Problem, steps: Steps) -> Steps:
    """Return steps for the format that the results of f suggest."""
    steps, values = _format_of_results(problem, steps)
    if not values.size:
        return steps
    result, more = _format_of_rounded_x(problem, steps)
    return result if result.narrow else _format_of_last_bits(problem, result, [values, *more])


def in_the_format_of_x(problem: Problem, steps: Steps, unsure: bool = True) -> Steps:
    """
    Return steps for the low-precision format that f rounds x to, if it does.

    Such an f is constant up to the midpoint of two numbers of the format, and changes beyond it; so
    it does at multiples of x. f is evaluated only if `unsure`; `calls` of the steps counts that.
    """
    steps = replace(steps, calls=0)
    return _format_of_rounded_x(problem, steps)[0] if unsure and not steps.narrow else steps


def _format_of_rounded_x(problem: Problem, steps: Steps) -> tuple[Steps, list[NDArray]]:
    """Return steps for the format that f rounds x to, and the values of f used for it."""
    every: list[NDArray] = []

    def at(numbers: NDArray) -> NDArray | None:
        nonlocal steps
        steps = replace(steps, calls=steps.calls + 1)
        values = _values_at(problem, steps, numbers)
        if values is not None:
            every.append(values)
        return values

    left = np.abs(problem.base).max(initial=0.0) < _least(problem)  # results near 0 agree by chance
    if left or steps.is_explicit:  # or the caller chose the step
        return steps, every
    x = as_real_vector(problem.x).astype(float)
    sizes = np.where(x == 0, 1.0, np.abs(x))
    raised = np.maximum(1.0, sizes)  # next to which a small number may be lost
    for size in (sizes, raised) if np.any(raised > sizes) else (sizes,):
        name = _rounds_to(at, x, size, NARROW_FORMATS)
        if name and any(_rounds_to(at, x, other * size, (name,)) for other in _CHECKED_SCALES):
            return _in_format(steps, name), every
    return steps, every


def _rounds_to(
    at: Callable[[NDArray], NDArray | None], x: NDArray, sizes: NDArray, names: Sequence[str]
) -> str:
    """Return the first of some formats that f rounds numbers of some magnitudes to, or ""."""
    finite = np.isfinite(x)
    units = np.exp2(np.frexp(np.where(finite, np.maximum(sizes, _LEAST), 1.0))[1] - 1.0)
    signs, random = np.where(x < 0, -1.0, 1.0), np.random.default_rng(0)
    # Exact in all of the formats, and different, so that changes do not cancel.
    numbers = units + units / _FEWEST * random.integers(0, _FEWEST, x.size)

    def values_at(shift: float) -> NDArray | None:
        return at(np.where(finite, signs * (numbers + shift * units), x))

    return rounding_format(values_at, names)


def rounding_format(values_at: Callable[[float], NDArray | None], names: Sequence[str]) -> str:
    """
    Return the first of some formats that a function rounds its argument to, or "".

    Its argument is exact in all of them. Elements are shifted by shares of their power of two: the
    results are constant up to the midpoint of two numbers of the format, and change beyond it.
    """
    there = values_at(0.0)
    for name in names:
        inside = values_at((0.5 - _MIDPOINT_OFFSET) * SPACINGS[name])
        if there is None or inside is None or not np.array_equal(there, inside):
            return ""
        beyond = values_at((0.5 + _MIDPOINT_OFFSET) * SPACINGS[name])
        if beyond is not None and _differ(there, beyond):
            return name
    return ""


def _differ(one: NDArray, other: NDArray) -> bool:
    """Return True if results differ by more than rounding."""
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= _UNCHANGED_EPS * np.finfo(one.dtype).eps * np.abs(one)
    return not np.all(near | (one == other) | (np.isnan(one) & np.isnan(other)))


def _format_of_results(problem: Problem, steps: Steps) -> tuple[Steps, NDArray]:
    """
    Return steps for the format of f's results, and the results if they may be in such a format.

    One float64 number in 2**29 is a float32 number, so that even one result is significant. But
    results may be copies of x, exact, or left over by cancellation: if all may be, f is evaluated
    at nearby points that are not float32 numbers, and then farther away.
    """
    base, nothing = problem.base, np.empty(0)
    held = _MAY_BE_LOWER_PRECISION.get(problem.x.real.dtype.char + base.dtype.char)
    if held is None or not (base.size and problem.x.size and held(base)):
        return steps, nothing
    every = base
    # Differences of numbers in few bits are multiples of their spacing, and small.
    least = 0.0
    for far in _shifts(problem, steps):
        steps = replace(steps, calls=steps.calls + 1)
        values = _values_at(problem, steps, _nearby_points(problem, far))
        if values is None:
            return steps, nothing
        every = np.concatenate([every, values])
        if not held(every):
            return steps, nothing
        if base.dtype.char == "d" and _are_evident(every[np.abs(every) >= least]):
            kind = next(kind for kind in _NARROW if _are_numbers_of(kind, every))
            return _in_format(steps, np.dtype(kind).name), every
        least = _least(problem)
    return steps, every


def _least(problem: Problem) -> float:
    return _CANCELLATION_LEFTOVER * max(
        1.0, float(np.abs(as_real_vector(problem.x)).max(initial=0.0))
    )


def _format_of_last_bits(problem: Problem, steps: Steps, results: list[NDArray]) -> Steps:
    """
    Return steps for the low-precision format of all results, if their last bits show one.

    `results` starts with those at x and nearby. Of numbers with a fixed spacing, such as integers,
    only the largest use all bits. Values of a table are mostly equal near x.
    """
    values, base = np.concatenate(results), problem.base

    def more(numbers: NDArray) -> NDArray | None:
        nonlocal steps, values
        steps = replace(steps, calls=steps.calls + 1)
        result = _values_at(problem, steps, numbers)
        values = values if result is None else np.concatenate([values, result])
        return result

    if steps.is_explicit:
        return steps
    if _mostly_same(base, values[base.size :][: base.size]):
        farther = more(_nearby_points(problem, _FARTHER_FACTOR * _shifts(problem, steps)[0]))
        if farther is None or _mostly_same(base, farther):
            return steps
    for size in (*_X_MULTIPLES, None):
        name = next(
            (name for name in reversed(NARROW_FORMATS) if _are_in_bits_of(name, values)), None
        )
        if name is None or np.ptp(values) == 0:
            break
        if _end_in_zeros(name, values[np.abs(values) >= _least(problem)]):
            return _in_format(steps, name)
        if size is None or more(size * as_real_vector(problem.x)) is None:
            break
    return steps


def _mostly_same(one: NDArray, other: NDArray) -> bool:
    return bool(2 * np.count_nonzero(one != other) < one.size)


def _in_format(steps: Steps, name: str) -> Steps:
    return replace(steps, eps=2.0 ** -max(FORMATS[name].fraction, FEWEST_BITS), narrow=name)


def _shifts(problem: Problem, steps: Steps) -> list[NDArray]:
    """Return distances of nearby points from x, one array for each try."""
    numbers = as_real_vector(problem.x)
    if steps.lengths.size:  # limited by the caller's step, or by the kind of x
        near = np.repeat(steps.lengths, problem.stride if steps.lengths.size > 1 else 1)
        return [_RELATIVE_SHIFT * near]
    signs, sizes = np.where(numbers < 0, -1.0, 1.0), np.abs(numbers)
    near = _RELATIVE_SHIFT * signs * np.where(sizes == 0, 1.0, sizes)
    # A small number may be lost next to 1, and a large one may saturate f.
    return [near, np.where(sizes < 1, _RELATIVE_SHIFT * signs, -0.5 * numbers)]


def _nearby_points(problem: Problem, far: NDArray) -> NDArray:
    """Return random real numbers at about the distances `far` from those of x."""
    shares = np.random.default_rng(0).uniform(0.5, 1.0, far.size)
    with np.errstate(all="ignore"):
        return np.asarray(as_real_vector(problem.x) + shares * far)


def _values_at(problem: Problem, steps: Steps, numbers: NDArray) -> NDArray | None:
    """Return f at the real numbers `numbers`, clipped to the bounds, or None if f raises."""
    if steps.lows.size:
        numbers = np.clip(numbers, steps.lows, steps.highs)
    with np.errstate(all="ignore"):
        try:
            return problem.at(numbers)
        except Exception:  # the differences will raise the same error
            return None


def _are_numbers_of(kind: Any, values: NDArray) -> bool:
    with np.errstate(over="ignore"):
        narrow = values.astype(kind)
    return bool(np.all((narrow == values) | ~np.isfinite(values)))


def _are_evident(values: NDArray) -> bool:
    """Return True if a value has more bits than most exact numbers."""
    with np.errstate(over="ignore", invalid="ignore"):  # of the splitting of large values
        few = in_few_bits(values[np.isfinite(values)].astype(float))
    return not few.all()


def _are_in_bits_of(name: str, values: NDArray) -> bool:
    """Return True if all values fit the bits of a format."""
    whole, _ = _as_integers(name, values)
    return bool(np.all(whole == np.floor(whole)))


def _end_in_zeros(name: str, values: NDArray) -> bool:
    """
    Return True if large values end in zeros in the bits of a format.

    The bits of numbers with a fixed spacing increase with size, and end in zeros only by chance.
    """
    whole, exponents = _as_integers(name, np.unique(np.abs(values[values != 0])))
    if not whole.size:
        return False
    whole = whole.astype(int)
    ends = exponents + np.log2(whole & -whole).astype(int)
    zeros = np.maximum(0, exponents - ends.min())
    return bool(zeros.sum() >= _CHANCE_ZERO_BITS)


def _as_integers(name: str, values: NDArray) -> tuple[NDArray, NDArray]:
    """Return finite values as multiples of the spacing of a format, and their exponents."""
    fractions, exponents = np.frexp(np.abs(values[np.isfinite(values)].astype(float)))
    return fractions * 2.0 ** (1 + FORMATS[name].fraction), exponents


# Tests of whether results may be in a lower precision, by the dtypes of x and of results.
_MAY_BE_LOWER_PRECISION = {
    "dd": partial(_are_numbers_of, np.float32),
    "ff": partial(_are_in_bits_of, "float16"),  # the other formats have fewer bits
}
