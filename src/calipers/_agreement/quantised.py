"""Inputs that a side holds as integers times a step."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from .._protocols import NDArray
from .explained import argument_names, explained
from .inputs import movable
from .inquiry import Inquiry
from .sides import BudgetError
from .units import rms_of
from .verdicts import EXPLAINED, REDUCED, Verdict, as_multiple

# Of formats that hold numbers as even steps: how many to each side of 0.
_STEPS = {"int8": 127, "int4": 7}
_GROUPS = (32, 64, 128, 16)  # along the last axis, or that before it, as weights are held
_APART = 4.0  # times that what is done to inputs may be apart from what comes of it


class _Way(NamedTuple):
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
        lines = x
        if self.group is not None and axis is not None:
            if x.shape[axis] % self.group or x.shape[axis] == self.group:
                return None
            before, after = x.shape[: x.ndim + axis], x.shape[x.ndim + axis + 1 :]
            lines = x.reshape(*before, -1, self.group, *after)
        low, high = lines.min(axis, keepdims=True), lines.max(axis, keepdims=True)
        if self.start == "0":
            step, origin = np.maximum(high, -low) / self.steps, 0 * low
        else:
            origin = low if self.start == "least" else 0 * low
            span = np.maximum(high - origin, 0) - np.minimum(low - origin, 0)
            step = span / (2 * self.steps + 1)
        step = np.where(step > 0, step, 1)
        held: NDArray = (np.rint((lines - origin) / step) * step + origin).astype(x.dtype)
        return held.reshape(x.shape)


def _ways(steps: int, most_axes: int) -> Iterator[_Way]:
    lines: list[tuple[int | None, int | None]] = [(None, None)]
    lines += [(axis, None) for axis in range(-1, -1 - most_axes, -1)]
    lines += [(axis, group) for axis in range(-1, -1 - min(most_axes, 2), -1) for group in _GROUPS]
    for (axis, group), start in product(lines, ("0", "range", "least")):
        yield _Way(steps, axis, group, start)


def quantised_inputs(q: Inquiry) -> Verdict | None:
    """Errors that inputs held as integers times a step explain."""
    with suppress(BudgetError):  # other rules need no more calls to tell that there is an error
        return _quantised(q)
    return None


def _quantised(q: Inquiry) -> Verdict | None:
    places = movable(q.inputs)
    if q.standard is None or not places or q.eta_apart.broken:
        return None
    groups = [places, *([k] for k in places if len(places) > 1)]
    axes = max(q.inputs[k].ndim for k in places)
    for name, error in (("g", q.eta_g), ("f", q.eta_f)):
        if error.least <= q.allowed or error.broken:
            continue
        for group, (form, steps) in product(groups, _STEPS.items()):
            for way in _ways(steps, axes):

                def held(wider: list[Any], way: _Way = way, group: list[int] = group) -> Any:
                    found = {k: way(wider[k]) for k in group}
                    if any(x is None for x in found.values()):
                        return None
                    return [found.get(k, x) for k, x in enumerate(wider)]

                off = _moved_by(held(q.wide_inputs), q.wide_inputs) / q.roundoff
                if not error.rms / _APART < off < _APART * error.rms:  # it is felt otherwise
                    continue
                share = explained(q, name, held)
                if share > EXPLAINED:
                    told = f"{name} is off by {as_multiple(error.rms)}: quantising "
                    told += f"{argument_names(group, q)} to {form} with {way} explains "
                    return Verdict(REDUCED, f"{told}{100 * share:.3g} % of it", form, tuple(group))
    return None


def _moved_by(held: list[Any] | None, wider: list[Any]) -> float:
    """Return how far arrays are from what they were, as a share of that, the farthest."""
    found = [0.0]
    for x, before in zip(held or (), wider, strict=bool(held)):
        if x is not before:
            size = rms_of(np.ravel(before).astype(np.float64))
            found.append(rms_of(np.ravel(x - before).astype(np.float64)) / (size or 1.0))
    return max(found)
