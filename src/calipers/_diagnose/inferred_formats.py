"""Infer a lower precision from results: of operands, of sums or intermediate values, of results."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from .._core.dtypes import FORMATS, ROUNDOFF
from .._core.protocols import NDArray
from .arrays import Point, comparable, perturbable, to_higher_precision
from .callables import BudgetError
from .higher_precision import Differences
from .noise_level import cosine, difference, error_norms, finite_rms
from .round_to_format import (
    distinct_sizes,
    format_parameters,
    grid_of,
    narrowest_format,
    round_array,
)


@dataclass(frozen=True)
class InferredFormat:
    """A lower precision that explains the errors of an implementation."""

    name: str  # of the implementation
    form: str
    evidence: str  # what shows it, as the end of a sentence
    arguments: tuple[int, ...] | None = None  # that are rounded; None for other values
    bias: str = ""  # how results are off on average, which rounding to nearest does not cause

    @property
    def forms(self) -> str:
        """The format, and any other with as many digits, which only range would distinguish."""
        u = ROUNDOFF.get(self.form)
        same = [x for x in ROUNDOFF if ROUNDOFF[x] == u and x != self.form]
        return " or ".join([self.form, *same])


def infer_format(e: Differences) -> InferredFormat | None:
    """Return the lower precision of operands or of intermediate values that explains errors."""
    between = _format_in_between(e)
    with suppress(BudgetError):  # many ways of rounding are tried
        return _changed_arguments(e, _roundings) or _changed_arguments(e, _quantisings) or between
    return between


def falls(e: Differences) -> bool:
    """Return True if the difference falls in higher precision: a format inside is in use there."""
    here, t = e.error_difference.absolute, e.thresholds
    return e.wide is not None and bool(e.wide.norms.absolute < t.unrelated * here)


# Operands in a lower precision


# Formats that hold numbers as even steps: how many to each side of 0.
_STEPS = {"int8": 127, "int4": 7}
# Numbers that share a step, along the last axis or that before it.
_GROUPS = (32, 64, 128, 16)

Change = Callable[[NDArray], NDArray | None]


def rounding_to(form: str, truncate: bool) -> Change:
    def rounded(x: NDArray) -> NDArray | None:
        parts = np.ascontiguousarray(x).astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        reals = parts.reshape(-1).view(np.float64)
        new = round_array(reals, format_parameters(form, np.dtype(np.float64), truncate))
        limit = (2 if truncate else 1) * 2 * ROUNDOFF[form]
        if not np.linalg.norm(new - reals) <= limit * np.linalg.norm(reals):
            return None  # it overflows
        return new.view(parts.dtype).reshape(x.shape).astype(x.dtype)

    return rounded


def _quantising(steps: int, axis: int | None, group: int | None, start: str) -> Change:
    """Hold numbers as integers times a step that those along an axis, or in a group, share."""

    def quantised(x: NDArray) -> NDArray | None:
        if x.dtype.kind == "c" or not x.size or (axis is not None and x.ndim < -axis):
            return None
        groups = x
        if group is not None and axis is not None:
            if x.shape[axis] % group or x.shape[axis] == group:
                return None
            before, after = x.shape[: x.ndim + axis], x.shape[x.ndim + axis + 1 :]
            groups = x.reshape(*before, -1, group, *after)
        low, high = groups.min(axis, keepdims=True), groups.max(axis, keepdims=True)
        if start == "0":
            step, origin = np.maximum(high, -low) / steps, 0 * low
        else:
            origin = low if start == "least" else 0 * low
            step = np.maximum(high - origin, 0) - np.minimum(low - origin, 0)
            step = step / (2 * steps + 1)
        step = np.where(step > 0, step, 1)
        held: NDArray = (np.rint((groups - origin) / step) * step + origin).astype(x.dtype)
        return held.reshape(x.shape)

    return quantised


def _roundings(e: Differences) -> Iterator[tuple[str, str, Change]]:
    """Yield formats, words for the way of rounding, and the rounding."""
    for form in (x for x in ROUNDOFF if ROUNDOFF[x] > e.roundoff and x != "float64"):
        for truncate in (False, True):
            yield form, " by truncation" if truncate else "", rounding_to(form, truncate)


def _quantisings(e: Differences) -> Iterator[tuple[str, str, Change]]:
    """Yield formats of integers, words for what shares a scale, and the rounding."""
    axes = range(-1, -1 - max(e.inputs[k].ndim for k in perturbable(e.inputs)), -1)
    scales: list[tuple[int | None, int | None]] = [(None, None), *((axis, None) for axis in axes)]
    scales += [(axis, group) for axis in [*axes][:2] for group in _GROUPS]
    for form, (axis, group), start in product(_STEPS, scales, ("0", "range", "least")):
        way = " with one scale" if axis is None else f" with one scale for each line of axis {axis}"
        way = way if group is None else f" with one scale for each {group} elements"
        way += " and a zero point" if start == "least" else ""
        yield form, way, _quantising(_STEPS[form], axis, group, start)


def _changed_arguments(
    e: Differences, changes: Callable[[Any], Iterator[tuple[str, str, Change]]]
) -> InferredFormat | None:
    """Find a rounding of arguments that changes the reference as an implementation is off."""
    positions = perturbable(e.inputs)
    if e.reference is None or not positions:
        return None
    groups = [positions, *([k] for k in positions if len(positions) > 1)]
    groups += [list(pair) for pair in combinations(positions, 2) if 2 < len(positions) < 5]
    for name in ("g", "f"):
        error = e.errors[name]
        if error.robust <= e.allowed or error.broken:
            continue
        for (form, way, change), group in product(changes(e), groups):
            x = _changed(to_higher_precision(e.inputs), group, change)
            if x is None:
                continue
            off = _relative_change(x, e.inputs, group) / e.roundoff
            # The error is about as large as the change, in ulps of the inputs.
            most = 4 if changes is _quantisings else 32
            if not 1 / most < off / error.rms < most:
                continue
            share = _explained(e, name, x)
            if share <= e.thresholds.explained or not _is_insensitive(e, name, x):
                continue
            which = argument_names(group, e)
            text = f"rounding {which} to {form}{way} explains {100 * share:.3g} % of its error"
            return InferredFormat(name, form, text, tuple(group))
    return None


def _changed(inputs: Any, group: Sequence[int], change: Change) -> Any:
    for k in group:
        held = change(inputs[k])
        if held is None:
            return None
        inputs[k] = held
    return inputs


def _relative_change(x: Sequence[Any], before: Sequence[Any], group: Sequence[int]) -> float:
    sizes = [finite_rms(np.ravel(before[k]).astype(np.float64)) or 1.0 for k in group]
    return max(
        finite_rms(np.ravel(x[k] - before[k]).astype(np.float64)) / size
        for k, size in zip(group, sizes, strict=True)
    )


def _explained(e: Differences, name: str, x: Sequence[Any]) -> float:
    """Return the share of an implementation's squared error that the reference has at x, too."""
    assert e.reference_source is not None
    result, r, unit = e.results[name], e.reference_source.result, e.scale
    there = e.reference_source.implementation(x)
    d = finite_rms(difference(result, r))
    if not comparable(there, r) or not d:
        return 0.0
    left = error_norms(difference(result, there), unit)
    # Of all results alike, and not only of some large ones.
    remaining = max(left.absolute / d, left.rms / e.errors[name].rms)
    changed = (np.abs(difference(there, r)) > e.allowed * unit) & (unit > 0) & np.isfinite(unit)
    if left.broken or not changed.any():
        return 0.0
    off, off_there = (np.abs(difference(result, y))[changed] / unit[changed] for y in (r, there))
    if np.median(off_there) > max(e.allowed, np.median(off)):
        return 0.0  # it would bring errors to most of them, that are not there
    zero = changed & (result.numbers(np.float64) == 0)
    zero &= np.abs(there.numbers(np.float64)) > e.allowed * unit
    if 2 * np.count_nonzero(zero) > np.count_nonzero(changed):
        return 0.0
    return 1 - remaining * remaining


def _is_insensitive(e: Differences, name: str, x: Sequence[Any]) -> bool:
    """
    Return True if an implementation hardly changes when its inputs are rounded, as the other does.

    An implementation that rounds its inputs does not round numbers of that format again. With a
    wrong factor, or results that are too large by as much as the rounding, it changes with them.
    """
    source = e.reference_source
    assert source is not None
    here = [v.astype(w.dtype) if v is not w else w for v, w in zip(x, e.inputs, strict=True)]
    y, there = e.implementations[name](Point(here)), source.implementation(x)
    if not comparable(y, there, source.result):
        return False
    changed = finite_rms(difference(there, source.result))
    return finite_rms(difference(y, e.results[name])) <= e.thresholds.unrelated * changed


def argument_names(positions: Sequence[int], e: Differences) -> str:
    """Name arguments in a sentence."""
    if len(positions) == len(perturbable(e.inputs)) > 1:
        return "all arguments"
    return f"argument{'s' * (len(positions) > 1)} {' and '.join(map(e.title, positions))}"


# Intermediate values: their rounding errors decorrelate at perturbations of about their size


# Perturbations that change rounding errors half way, relative to the errors. What is rounded in up
# to nine places changes in each by itself, and all are together larger than one by 3.
_LEAST_EXTENT = 0.04
# Cosine at which a difference has begun to change, and where it is half way to unrelated.
_BEGUN, _HALF_WAY = 0.85, 0.7


def _format_in_between(e: Differences) -> InferredFormat | None:
    t, size = e.thresholds, e.error_difference.rms * e.roundoff
    flat = e.reference is not None and e.condition < t.insensitive
    if e.error_difference.broken or flat or not size:
        return None
    extent, alike = _decorrelation(e)
    if extent is None or not _LEAST_EXTENT < extent / size < 1:
        return None
    is_coarse = extent >= t.coarse * e.roundoff or bool(e.differ) or e.rounds_inside is not None
    # Of many results, not a few alone, and of large ones.
    is_coarse &= 8 * e.error_difference.normwise > e.error_difference.rms
    is_coarse &= e.effective_count >= min(t.few, e.difference.size / 2)
    if not is_coarse or _changes_steadily(e, alike) or _stays_for_most(e, extent):
        return None
    forms = [x for x in ("bfloat16", "float16", "float32") if ROUNDOFF[x] > e.roundoff]
    # Many roundings to a finer format and a few to a coarser one give errors of the same size. The
    # coarsest of the formats in which sums are held is named.
    most = math.sqrt(e.length)
    form = next((x for x in forms if ROUNDOFF[x] / 6 < size < ROUNDOFF[x] * most), None)
    if form is None and forms and ROUNDOFF[forms[-1]] / 32 < size < ROUNDOFF[forms[-1]]:
        form = forms[-1]
    if form is None:
        return None
    if form == "float16" and e.reference is not None and perturbable(e.inputs):
        # Rounded operands are a sign of tf32, in which nothing is stored.
        x = _changed(
            to_higher_precision(e.inputs), perturbable(e.inputs), rounding_to("tf32", False)
        )
        if x is not None and _explained(e, e.less_exact, x) > 0.7:
            form = "tf32"
    text = f"its error changes when inputs are perturbed by 2**{math.log2(extent):.0f} of their "
    inferred = InferredFormat(e.less_exact, form, text + "size, not by less")
    return replace(inferred, bias=_bias(e, inferred.name, None))


def _decorrelation(e: Differences) -> tuple[float | None, list[tuple[float, float]]]:
    """Return the perturbation that changes f - g half way, and all cosines on the way."""
    alike = [(e.roundoff, 1.0)]
    finest, coarsest = int(-math.log2(e.roundoff)) - 1, int(-math.log2(e.thresholds.far))
    chance = 0.1  # by which cosines of few roundings rise
    for k, power in enumerate(range(finest, coarsest - 1, -2 if finest < 30 else -3)):
        similarity = e.similarity(2.0**-power, e.seed + 900 + k)
        if similarity is None:
            return None, alike
        before, then = alike[-1]
        if similarity > then + chance:
            again = e.similarity(before, e.seed + 930 + k)
            alike[-1] = before, 0.5 * (then + (then if again is None else again))
        alike.append((2.0**-power, similarity))
        if similarity < e.thresholds.unrelated:
            break
    e.evidence["likeness_by_move"] = alike[1:]
    cosines = [similarity for _, similarity in alike]
    # Noise that has become another does not become itself again.
    if cosines[-1] >= e.thresholds.unrelated or any(b > a + chance for a, b in pairwise(cosines)):
        return None, alike
    k = next(k for k, similarity in enumerate(cosines) if similarity < _HALF_WAY)
    (before, above), (after, below) = alike[k - 1 : k + 1]
    share = (above - _HALF_WAY) / (above - below)
    return float(before * (after / before) ** share), alike


def _changes_steadily(e: Differences, alike: list[tuple[float, float]]) -> bool:
    """Return True if the difference changes smoothly along a line; rounding errors jump."""
    begun = [delta for delta, similarity in alike[1:] if similarity > _BEGUN]
    cosines = []
    for line in range(e.thresholds.directions if begun else 0):
        then, later = (e.perturbed_difference(k * begun[-1], e.seed + 950 + line) for k in (1, 2))
        if then is None or later is None:
            return False
        cosines.append(cosine(then - e.difference, later - then, e.scale))
    mean = e.evidence["steadiness"] = float(np.mean(cosines)) if cosines else 0.0
    return mean > float(e.thresholds.unrelated)


def _stays_for_most(e: Differences, extent: float) -> bool:
    """
    Return True if an eighth of the decorrelating perturbation leaves most differences unchanged.

    A number that is held in few bits stays where it is, and its error changes by all that inputs
    are perturbed by, or it jumps. Where only inputs near a wrong threshold are treated differently,
    both follow each other in all other results.
    """
    delta = extent / 8
    there = e.perturbed_difference(delta, e.seed + 970)
    if there is None:
        return False
    stays = np.abs(there - e.difference) <= e.scale * (delta / e.roundoff) / 8
    unequal = np.abs(e.difference) > e.allowed * e.scale
    return bool(unequal.any()) and float(np.mean(stays[unequal])) > e.thresholds.stays


def _bias(e: Differences, name: str, form: str | None) -> str:
    """
    Say by how much results are too large on average, at any inputs; "" if they are not.

    Rounding to nearest is as often up as down. Sums that fall behind in a lower precision are too
    small, but not in `form` if that has enough digits; nor is less than rounded constants cause.
    """
    t = e.thresholds
    source = e.reference_source
    other = source.implementation if source else e.implementations["f" if name == "g" else "g"]
    weight = np.where(e.scale > 0, 1 / e.scale, 0.0)
    slopes, noise, sizes = [], [], []
    for k in range(t.perturbations):
        x = e.perturb(t.far, e.seed + 1100 + k, wide=False)
        y, r = e.implementations[name](x), other(to_higher_precision(x) if source else x)
        if not comparable(y, r, e.result_f):
            return ""
        d, whole = difference(y, r) * weight, r.numbers(np.float64) * weight
        size = float(whole @ whole)
        if not (np.isfinite(d).all() and 0 < size < math.inf):
            return ""
        slopes.append(float(d @ whole) / size)
        noise.append(math.sqrt(float(d @ d) / size))
        sizes.append(math.sqrt(size / d.size))
    mean = float(np.mean(slopes))
    error = float(np.std(slopes, ddof=1)) / math.sqrt(t.perturbations)
    least = max(t.biased * error, 0.25 * float(np.mean(noise)))
    both = form is not None and not falls_behind(e, form)
    if both and form is not None:
        least = max(least, 4 * ROUNDOFF[form] / e.roundoff / float(np.mean(sizes)))
    if mean <= least and not (both and mean < -least):
        return ""
    return f"{100 * abs(mean):.2g} % too {'large' if mean > 0 else 'small'} on average"


def falls_behind(e: Differences, form: str) -> bool:
    """Return True if sums in a format may be so large that terms are lost."""
    return e.length * ROUNDOFF[form] >= 2.0**-8


def format_of_sums(e: Differences) -> InferredFormat | None:
    """
    Recognise sums of terms of one sign that fall behind in a lower precision.

    With random signs the sums stay small. Their error is then about a quarter of a roundoff of the
    sum of magnitudes, whatever the number of terms, which shows the format.
    """
    source, t = e.reference_source, e.thresholds
    if source is None or e.differ is not False or e.error_difference.broken:
        return None
    k = next(iter(perturbable(e.inputs)), None)
    if k is None or e.inputs[k].dtype.kind == "c" or np.any(e.inputs[k] < 0):
        return None
    sizes = sorted(size.normwise for size in e.errors.values())
    if sizes[1] <= max(t.single * sizes[0], t.constants):
        return None
    signs = np.random.default_rng(e.seed).choice([-1, 1], e.inputs[k].shape)
    x = [*e.inputs]
    x[k] = (e.inputs[k] * signs).astype(e.inputs[k].dtype)
    y, r = e.implementations[e.less_exact](x), source.implementation(to_higher_precision(x))
    if not comparable(y, r, e.result_f):
        return None
    size = finite_rms(source.result.numbers(np.float64)) or 1.0
    roundoff = 4 * finite_rms(difference(y, r)) / size
    forms = [x for x in ("bfloat16", "float16") if ROUNDOFF[x] >= e.roundoff]
    form = next((x for x in forms if 1 / 3 < roundoff / ROUNDOFF[x] < 3), None)
    if form is None:
        return None
    text = "sums of terms of one sign fall behind, and with random signs they do not"
    return InferredFormat(e.less_exact, form, text)


# Results in a lower precision


def format_of_results(e: Differences) -> InferredFormat | None:
    """Recognise results that are numbers of a lower precision, where the other's are not."""
    if e.error_difference.broken:
        return None
    for name, result, other in (("g", e.result_g, e.result_f), ("f", e.result_f, e.result_g)):
        form = grid_of(e, name, result)
        if form is None or narrowest_format(e, distinct_sizes(other.numbers(np.float64))) == form:
            continue
        fraction, lowest = FORMATS[form][:2]
        rounding = e.scale * (ROUNDOFF[form] / e.roundoff)
        size = e.norms(e.difference, np.hypot(rounding, 2.0 ** (lowest - fraction)))
        most = 4 * math.sqrt(e.length) if falls_behind(e, form) else e.allowed
        if size.broken or size.normwise > most or _grid_similarity(e, lowest) > _CONSTANT:
            continue
        inferred = InferredFormat(name, form, "all of its results are numbers of that format")
        return replace(inferred, bias=_bias(e, name, form))
    return None


# Cosine of a difference that no rounding has: sums that fall behind stay more alike than others.
_CONSTANT = 0.99


def _grid_similarity(e: Differences, lowest: int) -> float:
    """Return the least cosine at far inputs, without results that underflow the format."""
    small = np.abs(e.result_f.numbers(np.float64)) < 2.0**lowest
    if small.all() or e.difference.size < e.thresholds.many:
        return 0.0
    least = 1.0
    for k in range(2):
        there = e.perturbed_difference(e.thresholds.far, e.seed + 850 + k)
        if there is None:
            return 0.0
        here = np.where(small, 0.0, e.difference)
        least = min(least, cosine(here, np.where(small, 0.0, there), e.scale))
    return least
