"""Find results that are lost because an intermediate value leaves the range of its format."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._compare.text import differing
from .._core.dtypes import FORMATS, ROUNDOFF
from .._core.protocols import NDArray
from .._core.report import brief
from .arrays import Point, Result, comparable, is_perturbable, perturbable, to_higher_precision
from .callables import Implementation
from .higher_precision import Differences
from .noise_level import Perturbations, as_multiple, difference, error_norms, largest_finite
from .round_to_format import grid_of

STEP = 2  # exponent of the scaling that shows the degree of homogeneity
_HOMOGENEOUS = 2.0**-40  # relative error of the power law
_DOMAIN = "or is rounded out of a function's domain, for example to the square root of a negative"


@dataclass(frozen=True)
class RangeLoss:
    """An implementation that loses results, and how that was found."""

    name: str
    text: str
    form: str | None = None  # whose range is too small, if it is a lower precision


def scaled(inputs: Sequence[Any], chosen: tuple[int, ...], k: int) -> Point:
    """Multiply by a power of two; in two steps, since one may be out of range."""
    half, new = k // 2, Point(inputs, getattr(inputs, "wide", False))
    with np.errstate(all="ignore"):
        for j in chosen:
            kind = inputs[j].real.dtype.type
            x = inputs[j] * kind(2.0**half) * kind(2.0 ** (k - half))
            new[j] = x.astype(inputs[j].dtype)
    return new


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
    """Undo what rescaling did to the results, in a format with enough range."""
    if result.error is not None or len(result.arrays) != len(degrees):
        return result
    with np.errstate(all="ignore"):
        arrays = (
            x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
            * np.exp2(np.longdouble(-degree * k))
            for x, degree in zip(result.arrays, degrees, strict=True)
        )
        return Result(tuple(arrays))


def find_range_loss(e: Differences) -> RangeLoss | None:
    """Return the implementation that loses results by the range of a format, and how."""
    return _not_finite(e) or _flushed(e) or (None if e.within_rounding else _rescaled(e))


def _not_finite(e: Differences) -> RangeLoss | None:
    """Results that are not finite, where they are in higher precision, or in the other function."""
    for name, result in e.results.items():
        y = result.numbers(np.float64)
        other = e.reference or e.results["f" if name == "g" else "g"]
        r = other.numbers(np.float64)
        lost = (~np.isfinite(y) & (np.abs(r) <= e.largest)) | (np.isnan(y) & ~np.isnan(r))
        wide = e.wide_results.get(name)
        form = grid_of(e, name, result) if lost.any() else None
        rest = e.norms(np.where(lost, 0.0, e.difference)).robust if form is not None else 0.0
        if form is not None and rest * e.roundoff <= e.allowed * ROUNDOFF[form]:
            text = f"an intermediate value of {name} exceeds the range of {form}: "
            text += f"{differing(int(np.count_nonzero(lost)), lost.size, 'result')}, where {name} "
            text += f"returns no finite numbers, and elsewhere numbers of {form}"
            return RangeLoss(name, text, form)
        if wide is not None:
            lost &= np.isfinite(wide.numbers(np.float64))
        # The reference has no errors in higher precision: the other may be another function.
        other_name = "f" if name == "g" else "g"
        judged = other_name if name == e.reference_name else name
        if not lost.any() or _another_function(e, judged, lost):
            continue
        if wide is None and not _comes_back(e, name, lost):
            continue
        k = int(np.argmax(lost))
        text = f"an intermediate value of {name} overflows or underflows"
        text += f"{', ' + _DOMAIN if np.isnan(y[k]) else ''}: {name} returns {y[k]} where the "
        text += f"result is {brief(r[k])}"
        return RangeLoss(name, text)
    return None


def _another_function(e: Differences, name: str, lost: NDArray) -> bool:
    """Return True if the other results of an implementation are as wrong in higher precision."""
    result, wide = e.results[name], e.wide_results.get(name)
    if wide is None or e.reference is None:
        return False
    there, r = difference(wide, e.reference), e.reference.numbers(np.float64)
    off = np.where(lost, 0.0, e.deviation(result))
    finite, usable = np.isfinite(off) & ~lost, np.isfinite(there)
    if not finite.any():
        size = e.thresholds.large * np.linalg.norm(r[usable])
        return bool(np.linalg.norm(there[usable]) > size)
    if error_norms(off[finite], e.scale[finite]).robust <= e.allowed:
        return False
    return bool(np.linalg.norm(there[finite & usable]) > np.linalg.norm(off[finite]) / 2)


def _comes_back(e: Differences, name: str, lost: NDArray) -> bool:
    """
    Return True if lost results are finite elsewhere, and all else is explained by rounding.

    Values that are rounded out of a domain come and go with perturbations of a few ulps, here and
    at far inputs. Overflow vanishes for smaller inputs, underflow for larger ones. Undefined
    results remain.
    """
    if not perturbable(e.inputs):
        return True
    nan = np.isnan(e.results[name].numbers(np.float64)[lost]).any()
    undefined = nan and e.reference is None and not _reports_overflow(e, name)
    if not undefined and _vanishes_when_scaled(e, name, lost):
        return True
    far = list(e.perturb(e.thresholds.far, e.seed + 800, wide=False))
    return bool(nan) and all(_come_and_go(e, name, x) for x in (e.inputs, far))


def _reports_overflow(e: Differences, name: str) -> bool:
    """Return True if NumPy reports an overflow, which higher precision avoids if it is there."""
    implementation = e.implementations[name]
    here = implementation.exceptions_at(e.inputs)
    if name in e.wide_results:
        here -= implementation.exceptions_at(to_higher_precision(e.inputs))
    return "overflow" in here


def _vanishes_when_scaled(e: Differences, name: str, lost: NDArray) -> bool:
    """Return True if most lost results are finite for inputs that are larger or smaller."""
    rest = np.where(lost, 0.0, e.difference)
    if e.reference is None and not e.is_rounding(e.norms(rest)):
        return False
    positions = tuple(perturbable(e.inputs))
    powers = (k * x for x in (8, 32, 2, 16, 4, 1, -FORMATS[e.form].lowest // 4) for k in (-1, 1))
    points = (scaled(e.inputs, positions, power) for power in powers)
    is_finite = _is_mostly_finite(e, name, lost, points)
    return is_finite and (e.reference is not None or _is_lost_in_lower_precision(e, name, lost))


def _is_mostly_finite(e: Differences, name: str, lost: NDArray, points: Iterable[Any]) -> bool:
    """Return True if most lost results are finite at one of several inputs."""
    left = lost.copy()
    for x in points:
        y = e.implementations[name](x)
        if comparable(y, e.result_f):
            left &= ~np.isfinite(y.numbers(np.float64))
        if 2 * np.count_nonzero(left) <= np.count_nonzero(lost):
            return True
    return False


_LOWER = {"float64": {"f": "f4", "c": "c8"}, "float32": {"f": "f2", "c": "c8"}}


def _is_lost_in_lower_precision(e: Differences, name: str, lost: NDArray) -> bool:
    """Return True if lost results are so for inputs near the ends of a smaller range as well."""
    if e.form not in _LOWER:
        return True
    positions = tuple(perturbable(e.inputs))
    top = max(math.frexp(largest_finite(np.abs(e.inputs[k])))[1] for k in positions)
    most = FORMATS[np.dtype(_LOWER[e.form]["f"]).name].lowest
    # Powers of the largest numbers that fit leave the range; exponentials do so of smaller ones.
    for power in (-3 * most // 4 - top, 3 * most // 4 - top, 0, -3):
        x = scaled(e.inputs, positions, power)
        low = [v.astype(_LOWER[e.form][v.dtype.kind]) if is_perturbable(v) else v for v in x]
        here, there = (e.implementations[k](low) for k in (name, "f" if name == "g" else "g"))
        if comparable(here, there, e.result_f):
            finite, other = (np.isfinite(y.numbers(np.float64)) for y in (here, there))
            if np.any(lost & ~finite & other):
                return True
    return False


def _come_and_go(e: Differences, name: str, inputs: Any) -> bool:
    """Return True if perturbations of a few ulps make most lost results finite."""
    other = e.implementations["f" if name == "g" else "g"]
    here, there = e.implementations[name](inputs), other(inputs)
    if not comparable(here, there, e.result_f):
        return False
    lost = ~np.isfinite(here.numbers(np.float64)) & np.isfinite(there.numbers(np.float64))
    perturb, count = Perturbations([*inputs]), 2 * e.thresholds.perturbations
    points = (perturb(2 * e.roundoff, e.seed + 700 + k, wide=False) for k in range(count))
    return not lost.any() or _is_mostly_finite(e, name, lost, points)


def _flushed(e: Differences) -> RangeLoss | None:
    """Find results that are subnormal in one function and 0 in the other, all else rounding."""
    flushed = e.flushed
    if not flushed.any() or e.differ:
        return None
    off = [e.difference] if e.reference is None else map(e.deviation, e.results.values())
    if not all(e.is_rounding(e.norms(np.where(flushed, 0.0, d))) for d in off):
        return None
    if e.wide is None and e.can_perturb and _normal_differences_stay(e):
        return None
    name = next(name for name, lost in e.flushed_by.items() if lost.any())
    lost, lowest = e.flushed_by[name], 2.0 ** FORMATS[e.form].lowest
    text = f"{name} flushes subnormal numbers to 0, as some compilers and devices do, or an "
    text += f"intermediate value underflows: it returns 0 for {np.count_nonzero(lost)} of "
    text += f"{lost.size} results, which are below {brief(lowest)}, the smallest normal number of "
    text += e.form
    return RangeLoss(name, text)


def _normal_differences_stay(e: Differences) -> bool:
    """Return True if differences of normal numbers persist under perturbations."""
    tiny = 2.0 ** FORMATS[e.form].lowest

    def normal(f: Result, g: Result) -> NDArray:
        sizes = np.minimum(*(np.abs(y.numbers(np.float64)) for y in (f, g)))
        return np.where(sizes < tiny, 0.0, difference(f, g))

    def at(delta: float, seed: int) -> NDArray | None:
        f, g = e.evaluate_perturbed(delta, seed)
        return normal(f, g) if comparable(f, g, e.result_f) else None

    here = normal(e.result_f, e.result_g)
    alike = e.mean_similarity(here, at) or 0.0
    return bool(e.norms(here).rms * math.sqrt(alike) > e.thresholds.systematic)


def _rescaled(e: Differences) -> RangeLoss | None:
    """
    Find errors that vanish when inputs are scaled by a power of two.

    Where results of the reference grow as a power of the inputs, such a scaling changes no rounding
    error: only the range of a format does. Where they do not, an overflow that was observed and
    wrong results that are 0 show it.
    """
    if e.reference_source is None or e.differ:
        return None
    for name, before in sorted(e.errors.items(), key=lambda item: -item[1].absolute):
        if before.robust <= e.allowed and not before.broken:
            continue
        wrong = np.abs(e.deviation(e.results[name])) > e.allowed * e.scale
        zero = wrong & (e.results[name].numbers(np.float64) == 0)
        positions = perturbable(e.inputs)
        for group in [(k,) for k in positions] + [tuple(positions)] * (len(positions) > 1):
            if zero.any() and _overflows(e, name, group, zero):
                text = f"intermediate values of {name} underflow and overflow: it returns 0 for "
                text += f"{np.count_nonzero(zero)} of {zero.size} results that are not 0, and no "
                return RangeLoss(name, text + "finite number for larger inputs")
            error = _scaled_error(e, e.implementations[name], group)
            if error < before.rms / e.thresholds.rescaled and error <= 10 * e.allowed:
                which = f"argument {e.title(group[0])}" if len(group) == 1 else "the arguments"
                verb = "is" if len(group) == 1 else "are"
                text = f"an intermediate value of {name} overflows or underflows: its error falls "
                text += f"from {brief(before.rms)} to {as_multiple(error)} when {which} {verb} "
                return RangeLoss(name, text + "scaled to 1")
        most = zero.any() and 2 * np.count_nonzero(zero) >= np.count_nonzero(wrong)
        if most and _reports_overflow(e, name):
            text = f"an intermediate value of {name} overflows, which NumPy reports: it "
            text += f"returns 0 for {np.count_nonzero(zero)} of {zero.size} results that are "
            return RangeLoss(name, text + "not 0")
    return None


def _scaled_error(e: Differences, judged: Implementation, group: tuple[int, ...]) -> float:
    """Return the error where arguments are scaled to 1; infinite if there is no power law."""
    source = e.reference_source
    assert source is not None
    sizes = np.concatenate([np.ravel(np.abs(e.inputs[k])).astype(np.float64) for k in group])
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    if not sizes.size:
        return math.inf
    wide, best = to_higher_precision(e.inputs), math.inf
    degrees = None
    for size in (float(np.log2(sizes.max())), float(np.mean(np.log2(sizes)))):
        power = -round(size)
        if abs(power) < -FORMATS[e.form].lowest // 4:  # nowhere near the ends of the range
            continue
        if degrees is None:
            there = source.implementation(scaled(wide, group, STEP))
            degrees = homogeneity_degrees(source.result, there)
        if degrees is None:
            return math.inf
        y = unscaled(judged(scaled(e.inputs, group, power)), degrees, power)
        if comparable(y, source.result):
            best = min(best, error_norms(e.deviation(y), e.scale).rms)
    return best


def _overflows(e: Differences, name: str, group: tuple[int, ...], zero: NDArray) -> bool:
    """Return True if results of 0 are not finite for larger inputs; of a wrong branch they are."""
    source, far = e.reference_source, -FORMATS[e.form].lowest // 4
    assert source is not None
    there = e.implementations[name](scaled(e.inputs, group, far))
    exact = source.implementation(scaled(to_higher_precision(e.inputs), group, far))
    if not comparable(there, exact, e.result_f):
        return False
    lost = zero & (np.abs(exact.numbers(np.float64)) <= e.largest)
    lost &= ~np.isfinite(there.numbers(np.float64))
    return bool(2 * np.count_nonzero(lost) > np.count_nonzero(zero))
