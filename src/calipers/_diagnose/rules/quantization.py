"""Inputs that a side holds as integers times a step."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ..._core.dtypes import ROUNDOFF
from ..._core.protocols import NDArray
from ..callables import BudgetError, Result, comparable
from ..evidence import Evidence
from ..inputs import perturbable, to_higher_precision
from ..noise_level import Perturbations, difference, error_norms, finite_rms
from ..verdict import (
    COARSEST,
    EXPLAINED,
    FEW,
    ILL_CONDITIONED,
    REDUCED,
    SUSPECT,
    Verdict,
    as_multiple,
)

_DRAWS = 8  # perturbed inputs at which the slope of the error is estimated
_SURE = 8.0  # standard errors of the mean
_FELT = 0.25  # of the noise: nonlinear functions of unbiased errors have a smaller bias
_CONSTANT = 4.0  # roundings to the format, that rounded constants may make
_BEHIND = 2.0**-8  # of a sum, that its terms together are rounded by


def falls_behind(e: Evidence, form: str) -> bool:
    """Return True if sums in a format may be so large that terms are lost."""
    return e.length * ROUNDOFF[form] >= _BEHIND


def too_large(e: Evidence, name: str | None = None, form: str | None = None) -> Verdict | None:
    """
    Recognise results that are too large on average, wherever the inputs are.

    Rounding to nearest is as often up as down, and sums that fall behind in a narrow format, or are
    truncated, are too small: but not in `form`, if that has digits enough. Where nothing wider can
    be asked, `name` has that format, and rounding errors of the other function are negligible.
    """
    if e.eta_difference.broken or (e.reference is None and name is None):
        return None
    with suppress(BudgetError):  # that there is noise is known without
        return _too_large(e, name, form)
    return None


def _too_large(e: Evidence, name: str | None, form: str | None) -> Verdict | None:
    if e.reference is not None:
        name, implementation = "f" if e.eta_f.rms > e.eta_g.rms else "g", e.reference[0]
    else:
        implementation = e.g if name == "f" else e.f
    assert name is not None
    weight = np.where(e.scale > 0, 1 / e.scale, 0.0)
    slopes, noise, sizes = [], [], []
    for k in range(_DRAWS):
        x = e.perturb(2.0**-COARSEST, e.seed + 1100 + k, wide=False)
        y, r = (
            e.implementations[name](x),
            implementation(x if e.reference is None else to_higher_precision(x)),
        )
        if not comparable(y, r, e.result_f):
            return None
        d, whole = difference(y, r) * weight, r.numbers(np.float64) * weight
        size = float(whole @ whole)
        if not (np.isfinite(d).all() and 0 < size / d.size < math.inf):
            return None
        slopes.append(float(d @ whole) / size)
        noise.append(math.sqrt(float(d @ d) / size))
        sizes.append(math.sqrt(size / d.size))
    mean = float(np.mean(slopes))
    error = float(np.std(slopes, ddof=1)) / math.sqrt(_DRAWS)
    e.evidence["slope"] = mean
    least = max(_SURE * error, _FELT * float(np.mean(noise)))
    both = form is not None and not falls_behind(e, form)
    if both and form is not None:
        least = max(least, _CONSTANT * ROUNDOFF[form] / e.roundoff / float(np.mean(sizes)))
    if mean <= least and not (both and mean < -least):
        return None
    way = "large" if mean > 0 else "small"
    return Verdict(
        SUSPECT,
        f"the errors of {name} look like rounding to lower precision, but it is "
        f"{100 * abs(mean):.2g} % too {way} on average, which rounding to nearest does not cause: "
        f"f and g differ by a factor",
    )


Change = Callable[[list[Any]], list[Any] | None]  # of wide inputs, if it can be made

_ANEW = 4.0  # times that numbers change by, moved by which they change by something else
_AS_WELL = 0.5  # of what others leave
_OTHERS = 3  # inputs at which few errors have to be explained, too


def explained(e: Evidence, name: str, change: Change) -> float:
    """Return the share of a side's error that the reference has, too, if its inputs change."""
    share = _explained_here(e, name, change)
    # Of few errors, or such as a function magnifies along few directions, one of twenty formats
    # explains what it has no part in.
    few = (
        min(e.effective_count, e.difference.size / 4) < FEW or e.noise_level.kappa > ILL_CONDITIONED
    )
    if share <= EXPLAINED:
        return share
    if few and not _explained_elsewhere(e, name, change):
        return 0.0
    by_others = _as_well_by_others(e, e.results[name], e.wide_inputs, change)
    return 0.0 if by_others else share


def _explained_here(e: Evidence, name: str, change: Change) -> float:
    assert e.reference is not None
    implementation, r = e.reference
    result, size = e.results[name], e.errors[name]
    d, inputs = finite_rms(difference(result, r)), change(e.wide_inputs)
    if inputs is None or not d:
        return 0.0
    then = implementation(inputs)
    if not comparable(then, r):
        return 0.0
    unit = e.noise_level.values
    left = error_norms(difference(result, then), unit)
    # Of all results alike, and not only of some large ones.
    remaining = max(left.absolute / d, left.rms / size.rms)
    changed = np.abs(difference(then, r)) > e.allowed * unit
    changed &= (unit > 0) & np.isfinite(unit)

    def half(other: Result) -> float:
        """Return how many units half of the results that it changes are apart at most."""
        errors = np.abs(difference(result, other)[changed]) / unit[changed]
        return float(np.median(errors)) if errors.size else 0.0

    if left.broken or half(then) > max(e.allowed, half(r)):
        return 0.0  # it would have brought errors to most of them, that are not there
    # What is 0 was lost, unless it is nothing at those inputs, too.
    lost = changed & (result.numbers(np.float64) == 0)
    lost &= np.abs(then.numbers(np.float64)) > e.allowed * unit
    if np.count_nonzero(lost) > np.count_nonzero(changed) / 2:
        return 0.0
    return 1 - remaining * remaining


def _explained_elsewhere(e: Evidence, name: str, change: Change) -> bool:
    assert e.reference is not None
    implementation = e.reference[0]
    for k in range(_OTHERS):
        x = e.perturb(2.0**-COARSEST, e.seed + 980 + k, wide=False)
        inputs_wide = to_higher_precision(x)
        inputs = change(inputs_wide)
        if inputs is None:
            return False
        y, r, then = e.implementations[name](x), implementation(inputs_wide), implementation(inputs)
        if not comparable(y, r, then, e.result_f):
            return False
        left = finite_rms(difference(y, then)) / (finite_rms(difference(y, r)) or math.inf)
        if 1 - left * left < EXPLAINED or _as_well_by_others(e, y, inputs_wide, change):
            return False
    return True


def _as_well_by_others(e: Evidence, result: Result, inputs_wide: list[Any], change: Change) -> bool:
    """
    Return True if the same change of other inputs explains the error as well.

    Truncated numbers are all slightly too small, and so are results with a wrong factor.
    """
    assert e.reference is not None
    implementation, inputs = e.reference[0], change(inputs_wide)
    assert inputs is not None
    r = implementation(inputs_wide)
    d = difference(result, r)
    rest = d - difference(implementation(inputs), r)
    if e.is_rounding(e.norms(rest, e.noise_level.values)):
        return False
    with np.errstate(invalid="ignore"):  # infinity less infinity
        by = [
            finite_rms(inputs[k] - inputs_wide[k]) / (finite_rms(inputs_wide[k]) or 1.0)
            for k in perturbable(inputs_wide)
        ]
    x = Perturbations(inputs_wide)(min(2.0**-COARSEST, _ANEW * max(by)), e.seed + 990, wide=False)
    others = change(x)
    if others is None:
        return False
    then, there = implementation(others), implementation(x)
    if not comparable(then, there, r):
        return False
    return finite_rms(rest) > _AS_WELL * finite_rms(d - difference(then, there))


def argument_names(positions: Sequence[int], e: Evidence) -> str:
    if len(positions) == len(perturbable(e.inputs)) > 1:
        return "all arguments"
    return f"argument{'s' * (len(positions) > 1)} {' and '.join(map(e.title, positions))}"


# Of formats that hold numbers as even steps: how many to each side of 0.
_STEPS = {"int8": 127, "int4": 7}
_GROUPS = (32, 64, 128, 16)  # along the last axis, or that before it, as weights are held
_SIZE_FACTOR = 4.0  # factor between the relative changes of inputs and results


class _Quantization(NamedTuple):
    """How integers stand for numbers: which of them share a step, and from where they count."""

    steps: int
    axis: int | None  # along which numbers share a step; None is all
    group: int | None  # that share one, of those in turn
    start: str  # "0", of as many to both sides; "range", a multiple of the step; or "least"

    def __str__(self) -> str:
        scale = (
            "one scale" if self.axis is None else f"one scale for each line along axis {self.axis}"
        )
        if self.group is not None:
            scale = f"one scale for each {self.group} elements along axis {self.axis}"
        return scale + (" and a zero point" if self.start == "least" else "")

    def __call__(self, x: NDArray) -> NDArray | None:
        """Return an array of the numbers that are held; None if it has no such lines."""
        axis = self.axis
        if x.dtype.kind == "c" or not x.size or (axis is not None and x.ndim < -axis):
            return None
        groups = x
        if self.group is not None and axis is not None:
            if x.shape[axis] % self.group or x.shape[axis] == self.group:
                return None
            before, after = x.shape[: x.ndim + axis], x.shape[x.ndim + axis + 1 :]
            groups = x.reshape(*before, -1, self.group, *after)
        low, high = groups.min(axis, keepdims=True), groups.max(axis, keepdims=True)
        if self.start == "0":
            step, origin = np.maximum(high, -low) / self.steps, 0 * low
        else:
            origin = low if self.start == "least" else 0 * low
            span = np.maximum(high - origin, 0) - np.minimum(low - origin, 0)
            step = span / (2 * self.steps + 1)
        step = np.where(step > 0, step, 1)
        held: NDArray = (np.rint((groups - origin) / step) * step + origin).astype(x.dtype)
        return held.reshape(x.shape)


def _quantizations(steps: int, most_axes: int) -> Iterator[_Quantization]:
    groupings: list[tuple[int | None, int | None]] = [(None, None)]
    groupings += [(axis, None) for axis in range(-1, -1 - most_axes, -1)]
    groupings += [
        (axis, group) for axis in range(-1, -1 - min(most_axes, 2), -1) for group in _GROUPS
    ]
    for (axis, group), start in product(groupings, ("0", "range", "least")):
        yield _Quantization(steps, axis, group, start)


def quantised_inputs(e: Evidence) -> Verdict | None:
    """Errors that inputs held as integers times a step explain."""
    with suppress(BudgetError):  # other rules need no more calls to tell that there is an error
        return _quantised(e)
    return None


def _quantised(e: Evidence) -> Verdict | None:
    positions = perturbable(e.inputs)
    if e.reference is None or not positions or e.eta_difference.broken:
        return None
    groups = [positions, *([k] for k in positions if len(positions) > 1)]
    axes = max(e.inputs[k].ndim for k in positions)
    for name, error in (("g", e.eta_g), ("f", e.eta_f)):
        if error.robust <= e.allowed or error.broken:
            continue
        for group, (form, steps) in product(groups, _STEPS.items()):
            for way in _quantizations(steps, axes):

                def held(
                    inputs: list[Any], way: _Quantization = way, group: list[int] = group
                ) -> Any:
                    quantised = {k: way(inputs[k]) for k in group}
                    if any(x is None for x in quantised.values()):
                        return None
                    return [quantised.get(k, x) for k, x in enumerate(inputs)]

                off = _largest_change(held(e.wide_inputs), e.wide_inputs) / e.roundoff
                if (
                    not error.rms / _SIZE_FACTOR < off < _SIZE_FACTOR * error.rms
                ):  # it is felt otherwise
                    continue
                share = explained(e, name, held)
                if share > EXPLAINED:
                    text = f"{name} is off by {as_multiple(error.rms)}: quantising "
                    text += f"{argument_names(group, e)} to {form} with {way} explains "
                    return Verdict(REDUCED, f"{text}{100 * share:.3g} % of it", form, tuple(group))
    return None


def _largest_change(held: list[Any] | None, inputs: list[Any]) -> float:
    """Return how far arrays are from what they were, as a share of that, the farthest."""
    changes = [0.0]
    for x, before in zip(held or (), inputs, strict=bool(held)):
        if x is not before:
            size = finite_rms(np.ravel(before).astype(np.float64))
            changes.append(finite_rms(np.ravel(x - before).astype(np.float64)) / (size or 1.0))
    return max(changes)
