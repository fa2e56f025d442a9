"""Results that are lost because something in between overflows or underflows."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..._core.dtypes import FORMATS
from ..._core.protocols import NDArray
from ..callables import Implementation, Result, comparable
from ..evidence import Evidence
from ..inputs import perturbable
from ..noise_level import N_PERTURBATIONS, difference, error_norms
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


def homogeneity_degrees(here: Result, there: Result) -> list[float] | None:
    """Return the degrees that results grow by; multiples of a half, as that of a root."""
    if not comparable(there, here):
        return None
    degrees = []
    for a, b in zip(there.arrays, here.arrays, strict=True):
        if b.dtype.kind not in "fc":
            return None
        finite = np.isfinite(b)
        then, now = b[finite], a[finite]
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


def unscaled(result: Result, degrees: list[float], k: int) -> Result:
    """Undo what rescaling did to the results, in a format that has room for it."""
    if result.error is not None or len(result.arrays) != len(degrees):
        return result
    with np.errstate(all="ignore"):
        return Result(
            tuple(
                x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
                * np.exp2(np.longdouble(-degree * k))
                for x, degree in zip(result.arrays, degrees, strict=True)
            )
        )


def overflow(e: Evidence) -> Verdict | None:
    """Results that are not finite where they are in the wider format, and fit."""
    if e.reference is None:
        return None
    r = e.reference[1].numbers(np.float64)
    fits = np.abs(r) <= e.largest
    for name, result in e.results.items():
        y = result.numbers(np.float64)
        lost = (~np.isfinite(y) & fits) | (np.isnan(y) & ~np.isnan(r))
        wide = e.wide_results.get(name)
        if wide is not None:
            lost &= np.isfinite(wide.numbers(np.float64))
        wrong = lost.any() and (_wrong_elsewhere(e, result, wide) or _stays(e, name, lost))
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


def _wrong_elsewhere(e: Evidence, result: Result, wide: Result | None) -> bool:
    """Return True if the other results are as wrong in higher precision."""
    assert e.reference is not None
    if wide is None:
        return False
    r = e.reference[1]
    off, there = e.deviation(result), difference(wide, r)
    finite = np.isfinite(off)
    if not finite.any():
        usable = np.isfinite(there)
        return bool(
            np.linalg.norm(there[usable])
            > LARGE_DIFFERENCE * np.linalg.norm(r.numbers(float)[usable])
        )
    if error_norms(off[finite], e.noise_level.values[finite]).robust <= e.allowed:
        return False
    usable = finite & np.isfinite(there)
    return bool(np.linalg.norm(there[usable]) > np.linalg.norm(off[finite]) / 2)


def _stays(e: Evidence, name: str, lost: NDArray) -> bool:
    """
    Return True if most lost results are not finite at any other inputs either.

    Overflow vanishes for smaller inputs, underflow for larger ones, and values rounded out of a
    domain come and go. Undefined results remain. Tested only without higher precision.
    """
    if e.wide_results.get(name) is not None or not perturbable(e.inputs):
        return False
    left = lost.copy()
    for x in _elsewhere(e):
        result = e.implementations[name](x)
        if comparable(result, e.results[name]):
            left &= ~np.isfinite(result.numbers(np.float64))
        if np.count_nonzero(left) <= np.count_nonzero(lost) / 2:
            return False
    return True


def _elsewhere(e: Evidence) -> Iterator[Sequence[Any]]:
    """Yield inputs of magnitude 1, perturbed inputs, and inputs of other magnitudes."""
    chosen = tuple(perturbable(e.inputs))
    sizes = (np.abs(e.inputs[k]) for k in chosen)
    top = max(float(x.max(where=np.isfinite(x), initial=0.0)) for x in sizes)
    to_one, far = -math.frexp(top)[1], -FORMATS[e.form].lowest // 4
    yield scaled(e.inputs, chosen, to_one)
    for delta, count in ((e.roundoff, N_PERTURBATIONS), (2.0**-COARSEST, _N_FAR_PERTURBATIONS)):
        for k in range(count):
            yield e.perturb(delta, e.seed + 600 + k, wide=False)
    halvings = (-power for power in DOUBLINGS)
    for power in (to_one - far, to_one + far, *halvings, *DOUBLINGS):
        yield scaled(e.inputs, chosen, power)


def flushed(e: Evidence) -> Verdict | None:
    """
    Recognise results that are subnormal on one side, and 0 on the other; all else is rounding.

    Norms do not show them. A difference may be 0 by cancellation, but its noise level is that of
    its operands.
    """
    lowest = 2.0 ** FORMATS[e.form].lowest
    for name, lost in e.flushed_by.items():
        if not lost.any() or e.differ_wide or not e.is_rounding_except(e.flushed):
            continue
        if not (e.wide is None and _normal_differences_persist(e)):
            return Verdict(
                RANGE,
                f"{name} returns 0 for {np.count_nonzero(lost)} of {lost.size} results, which are "
                f"subnormal (below {lowest:.2g}, the smallest normal number of {e.form}): it "
                f"flushes them to 0, as some compilers and devices do, or an intermediate value "
                f"underflows",
            )
    return None


def _normal_differences_persist(e: Evidence) -> bool:
    """Return True if differences of normal numbers persist under perturbations."""
    tiny = 2.0 ** FORMATS[e.form].lowest

    def normal(f: Result, g: Result) -> NDArray:
        y, r = f.numbers(np.float64), g.numbers(np.float64)
        return np.where(np.minimum(np.abs(y), np.abs(r)) < tiny, 0.0, difference(f, g))

    def at(delta: float, seed: int) -> NDArray | None:
        f, g = e.evaluate_perturbed(delta, seed)
        return normal(f, g) if comparable(f, g, e.result_f) else None

    here = normal(e.result_f, e.result_g)
    similarity = e.mean_similarity(here, at) if e.can_perturb else None
    return (
        similarity is not None and e.norms(here, e.scale).rms * math.sqrt(similarity) > SYSTEMATIC
    )


def nothing_left(e: Evidence) -> Verdict | None:
    """
    Recognise results that are 0 where they should not be, and not finite for larger inputs.

    A difference that has lost its digits, or a branch that is wrong, is not infinite there.
    """
    if e.reference is None or e.differ_wide:
        return None
    implementation, power = e.reference[0], -FORMATS[e.form].lowest // 4
    for name, result in e.results.items():
        zero = (result.numbers(np.float64) == 0) & (
            np.abs(e.deviation(result)) > e.allowed * e.scale
        )
        if not zero.any():
            continue
        for k in perturbable(e.inputs):
            there = e.implementations[name](scaled(e.inputs, (k,), power))
            exact = implementation(scaled(e.wide_inputs, (k,), power))
            if not comparable(there, exact, result):
                continue
            fits = np.abs(exact.numbers(np.float64)) <= e.largest
            lost = zero & fits & ~np.isfinite(there.numbers(np.float64))
            if np.count_nonzero(lost) > np.count_nonzero(zero) / 2:
                return Verdict(
                    RANGE,
                    f"{name} returns 0 for {np.count_nonzero(zero)} of {zero.size} results "
                    f"that are not 0, and no finite number with argument {e.title(k)} times "
                    f"2**{power}: intermediate values underflow and overflow",
                )
    return None


def better_when_rescaled(e: Evidence) -> Verdict | None:
    """Recognise errors that vanish when an argument is scaled, for homogeneous functions."""
    if e.reference is None or e.differ_wide:
        return None
    implementation, r = e.reference
    for name, before in sorted(e.errors.items(), key=lambda item: -item[1].absolute):
        if before.robust <= e.allowed and not before.broken:
            continue
        for k in perturbable(e.inputs):
            error = _scaled_error(e, implementation, r, e.implementations[name], k)
            if error is not None and error < before.rms / 10 and error <= 10 * e.allowed:
                return Verdict(
                    RANGE,
                    f"the error of {name} falls from {before.rms:.3g} to {as_multiple(error)} when "
                    f"argument {e.title(k)} is scaled to 1: an intermediate value overflows or "
                    "underflows",
                )
    return None


def _scaled_error(
    e: Evidence, reference: Implementation, r: Result, judged: Implementation, k: int
) -> float | None:
    """Return the error of a side whose argument is scaled, if results grow as a power of that."""
    finite = np.abs(e.inputs[k][np.isfinite(e.inputs[k])])
    if not finite.size or finite.max() == 0:
        return None
    power = -math.frexp(float(finite.max()))[1]
    if abs(power) < -FORMATS[e.form].lowest // 4:  # nowhere near the ends of the range
        return None
    degrees = homogeneity_degrees(r, reference(scaled(e.wide_inputs, (k,), STEP)))
    if degrees is None or not any(degrees):
        return None
    y = unscaled(judged(scaled(e.inputs, (k,), power)), degrees, power)
    return error_norms(e.deviation(y), e.noise_level.values).rms if comparable(y, r) else None
