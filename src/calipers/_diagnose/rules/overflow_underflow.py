"""Results that are lost because something in between overflows or underflows."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..._core.dtypes import FORMATS
from ..._core.protocols import NDArray
from ..callables import Implementation, Result, comparable
from ..error_units import N_PERTURBATIONS, difference, error_norms
from ..evidence import Evidence
from ..inputs import perturbable
from ..verdict import COARSEST, LARGE_DIFFERENCE, RANGE, SYSTEMATIC, Verdict, as_multiple

STEP = 2  # of exponents, to see what the power is
DOUBLINGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of inputs, or halvings
_HOMOGENEOUS = 2.0**-40  # relative error of the power law


def scaled(inputs: Any, chosen: tuple[int, ...], k: int) -> list[Any]:
    """Multiply by a power of two; in two steps, since one may be out of range."""
    half = k // 2
    with np.errstate(all="ignore"):
        return [
            (x * x.real.dtype.type(2.0**half) * x.real.dtype.type(2.0 ** (k - half))).astype(
                x.dtype
            )
            if j in chosen
            else x
            for j, x in enumerate(inputs)
        ]


def degrees_of(here: Result, there: Result) -> list[float] | None:
    """Return the degrees that results grow by; multiples of a half, as that of a root."""
    if not comparable(there, here):
        return None
    degrees = []
    for a, b in zip(there.arrays, here.arrays, strict=True):
        if b.dtype.kind not in "fc":
            return None
        known = np.isfinite(b)
        then, now = b[known], a[known]
        with np.errstate(all="ignore"):
            sizes = [float(np.max(np.abs(x), initial=0.0)) for x in (then, now)]
            if not all(0 < size < math.inf for size in sizes):
                return None
            # The ratio itself may be out of range.
            degree = round(2 * (math.log2(sizes[1]) - math.log2(sizes[0])) / STEP) / 2
            factor = np.exp2(np.longdouble(-degree * STEP)).astype(b.real.dtype)
            off = np.max(np.abs(now * factor - then))
        if not off <= _HOMOGENEOUS * sizes[0]:
            return None
        degrees.append(degree)
    return degrees


def unscaled(answer: Result, degrees: list[float], k: int) -> Result:
    """Undo what rescaling did to the results, in a format that has room for it."""
    if answer.error is not None or len(answer.arrays) != len(degrees):
        return answer
    with np.errstate(all="ignore"):
        return Result(
            tuple(
                x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
                * np.exp2(np.longdouble(-degree * k))
                for x, degree in zip(answer.arrays, degrees, strict=True)
            )
        )


def overflow(q: Evidence) -> Verdict | None:
    """Results that are not finite where they are in the wider format, and fit."""
    if q.reference is None:
        return None
    r = q.reference[1].numbers(np.float64)
    fits = np.abs(r) <= q.largest
    for name, answer in q.results.items():
        y = answer.numbers(np.float64)
        lost = (~np.isfinite(y) & fits) | (np.isnan(y) & ~np.isnan(r))
        wide = q.wide_results.get(name)
        if wide is not None:
            lost &= np.isfinite(wide.numbers(np.float64))
        wrong = lost.any() and (_wrong_elsewhere(q, answer, wide) or _stays(q, name, lost))
        if lost.any() and not wrong:
            k = int(np.argmax(lost))
            return Verdict(
                RANGE,
                f"{name} returns {y[k]} where the result is {r[k]:.3g}: an intermediate value "
                f"overflows or underflows{_OUTSIDE if np.isnan(y[k]) else ''}",
            )
    return None


_N_FAR_PERTURBATIONS = 4  # perturbed inputs, of the coarsest format's precision
_OUTSIDE = (
    ", or is rounded out of a function's domain, for example to the square root of a negative"
)


def _wrong_elsewhere(q: Evidence, answer: Result, wide: Result | None) -> bool:
    """Tell whether results that are not lost, or all, are as wrong in the wider format."""
    assert q.reference is not None
    if wide is None:
        return False
    r = q.reference[1]
    off, there = q.deviation(answer), difference(wide, r)
    kept = np.isfinite(off)
    if not kept.any():
        known = np.isfinite(there)
        return bool(
            np.linalg.norm(there[known])
            > LARGE_DIFFERENCE * np.linalg.norm(r.numbers(float)[known])
        )
    if error_norms(off[kept], q.noise_level.values[kept]).robust <= q.allowed:
        return False
    known = kept & np.isfinite(there)
    return bool(np.linalg.norm(there[known]) > np.linalg.norm(off[kept]) / 2)


def _stays(q: Evidence, name: str, lost: NDArray) -> bool:
    """
    Tell whether results of a side that takes nothing wider are not finite elsewhere, either.

    What overflows is finite for smaller inputs, and what underflows for larger ones; what is
    rounded out of a domain comes and goes. What is not defined is so there, too.
    """
    if q.wide_results.get(name) is not None or not perturbable(q.inputs):
        return False
    left = lost.copy()
    for x in _elsewhere(q):
        answer = q.implementations[name](x)
        if comparable(answer, q.results[name]):
            left &= ~np.isfinite(answer.numbers(np.float64))
        if np.count_nonzero(left) <= np.count_nonzero(lost) / 2:
            return False
    return True


def _elsewhere(q: Evidence) -> Iterator[Sequence[Any]]:
    """Give inputs of size 1, inputs moved by last places and by more, and those of other sizes."""
    chosen = tuple(perturbable(q.inputs))
    sizes = (np.abs(q.inputs[k]) for k in chosen)
    top = max(float(x.max(where=np.isfinite(x), initial=0.0)) for x in sizes)
    to_one, far = -math.frexp(top)[1], -FORMATS[q.form].lowest // 4
    yield scaled(q.inputs, chosen, to_one)
    for delta, count in ((q.roundoff, N_PERTURBATIONS), (2.0**-COARSEST, _N_FAR_PERTURBATIONS)):
        for k in range(count):
            yield q.perturb(delta, q.seed + 600 + k, wide=False)
    halvings = (-power for power in DOUBLINGS)
    for power in (to_one - far, to_one + far, *halvings, *DOUBLINGS):
        yield scaled(q.inputs, chosen, power)


def flushed(q: Evidence) -> Verdict | None:
    """
    Recognise results that are subnormal on one side, and 0 on the other; all else is rounding.

    Beside larger ones they are nothing in norms. What a subtraction leaves may well be 0: but its
    units are those of what is subtracted.
    """
    lowest = 2.0 ** FORMATS[q.form].lowest
    for name, lost in q.flushed_by.items():
        if not lost.any() or q.differ_wide or not q.is_rounding_except(q.flushed):
            continue
        if not (q.wide is None and _normal_differences_persist(q)):
            return Verdict(
                RANGE,
                f"{name} returns 0 for {np.count_nonzero(lost)} of {lost.size} results, which are "
                f"subnormal (below {lowest:.2g}, the smallest normal number of {q.form}): it "
                f"flushes them to 0, as some compilers and devices do, or an intermediate value "
                f"underflows",
            )
    return None


def _normal_differences_persist(q: Evidence) -> bool:
    """Tell whether differences of normal numbers stay alike where inputs are moved."""
    tiny = 2.0 ** FORMATS[q.form].lowest

    def normal(f: Result, g: Result) -> NDArray:
        y, r = f.numbers(np.float64), g.numbers(np.float64)
        return np.where(np.minimum(np.abs(y), np.abs(r)) < tiny, 0.0, difference(f, g))

    def at(delta: float, seed: int) -> NDArray | None:
        f, g = q.evaluate_perturbed(delta, seed)
        return normal(f, g) if comparable(f, g, q.result_f) else None

    here = normal(q.result_f, q.result_g)
    kept = q.mean_similarity(here, at) if q.can_perturb else None
    return kept is not None and q.norms(here, q.scale).rms * math.sqrt(kept) > SYSTEMATIC


def nothing_left(q: Evidence) -> Verdict | None:
    """
    Recognise results that are 0 where they should not be, and not finite for larger inputs.

    A difference that has lost its digits, or a branch that is wrong, is not infinite there.
    """
    if q.reference is None or q.differ_wide:
        return None
    side, power = q.reference[0], -FORMATS[q.form].lowest // 4
    for name, answer in q.results.items():
        zero = (answer.numbers(np.float64) == 0) & (
            np.abs(q.deviation(answer)) > q.allowed * q.scale
        )
        if not zero.any():
            continue
        for k in perturbable(q.inputs):
            there = q.implementations[name](scaled(q.inputs, (k,), power))
            exact = side(scaled(q.wide_inputs, (k,), power))
            if not comparable(there, exact, answer):
                continue
            fits = np.abs(exact.numbers(np.float64)) <= q.largest
            lost = zero & fits & ~np.isfinite(there.numbers(np.float64))
            if np.count_nonzero(lost) > np.count_nonzero(zero) / 2:
                return Verdict(
                    RANGE,
                    f"{name} returns 0 for {np.count_nonzero(zero)} of {zero.size} results "
                    f"that are not 0, and no finite number with argument {q.title(k)} times "
                    f"2**{power}: intermediate values underflow and overflow",
                )
    return None


def better_when_rescaled(q: Evidence) -> Verdict | None:
    """Errors that go when an argument, of which the result is a power, is scaled by one of two."""
    if q.reference is None or q.differ_wide:
        return None
    side, r = q.reference
    for name, before in sorted(q.errors.items(), key=lambda item: -item[1].absolute):
        if before.robust <= q.allowed and not before.broken:
            continue
        for k in perturbable(q.inputs):
            found = _scaled_error(q, side, r, q.implementations[name], k)
            if found is not None and found < before.rms / 10 and found <= 10 * q.allowed:
                return Verdict(
                    RANGE,
                    f"the error of {name} falls from {before.rms:.3g} to {as_multiple(found)} when "
                    f"argument {q.title(k)} is scaled to 1: an intermediate value overflows or "
                    "underflows",
                )
    return None


def _scaled_error(
    q: Evidence, side: Implementation, r: Result, own: Implementation, k: int
) -> float | None:
    """Return the error of a side whose argument is scaled, if results grow as a power of that."""
    finite = np.abs(q.inputs[k][np.isfinite(q.inputs[k])])
    if not finite.size or finite.max() == 0:
        return None
    power = -math.frexp(float(finite.max()))[1]
    if abs(power) < -FORMATS[q.form].lowest // 4:  # nowhere near the ends of the range
        return None
    degrees = degrees_of(r, side(scaled(q.wide_inputs, (k,), STEP)))
    if degrees is None or not any(degrees):
        return None
    y = unscaled(own(scaled(q.inputs, (k,), power)), degrees, power)
    return error_norms(q.deviation(y), q.noise_level.values).rms if comparable(y, r) else None
