"""Repeat calls: races, dropout, uninitialised memory, and rounding at random."""

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from .._core.dtypes import ROUNDOFF
from .._core.protocols import NDArray
from .._core.report import index_text
from .arrays import Result, comparable, join_or_none, one_line_error, perturbable, raw_bytes
from .callables import POISON_BYTES, BudgetError
from .higher_precision import Differences
from .inferred_formats import argument_names, rounding_to
from .noise_level import (
    as_multiple,
    difference,
    error_norms,
    finite_rms,
)


@dataclass(frozen=True)
class Repeats:
    """What repeated calls with the same inputs return."""

    calls: int  # of each implementation
    names: tuple[str, ...] = ()  # implementations whose results change
    spread: float = 0.0  # of their results, in units of the expected rounding error
    exception: str | None = None  # raised when it was called again
    problem: str | None = None  # another shape, or uninitialised memory
    format: str | None = None  # to which an implementation rounds at random
    explanation: str = ""  # of that
    is_biased: bool = False  # rounding at random is not as often up as down

    @property
    def subject(self) -> str:
        verb = "is" if len(self.names) == 1 else "are"
        return f"{' and '.join(self.names)} {verb} not deterministic"


def find_changes(e: Differences, names: tuple[str, ...]) -> Repeats:
    """Describe how the results of repeated calls differ, of the implementations in `names`."""
    t, again = e.thresholds, e.repeated_results
    count = len(again["f"])
    for name, (first, *rest) in again.items():
        for x in rest:
            if x.error is not None:
                text = f"{name} raises {one_line_error(x.error)} when it is called again"
                return Repeats(count, exception=text)
            if x.forms != first.forms:
                text = f"{name} returns shape {join_or_none(first.shapes)}, and shape "
                text += f"{join_or_none(x.shapes)} when it is called again"
                return Repeats(count, problem=text)
    problem = _unwritten(again, names)
    if problem is not None:
        return Repeats(count, names, problem=problem)
    unit = e.steady_scale_of(t.repeats)  # a rare change must not pass for the noise level
    changes = [difference(again[name][0], x) for name in names for x in again[name][1:]]
    sizes = [error_norms(d, unit) for d in changes]
    spread = typical = max(math.inf if size.broken else size.robust for size in sizes)
    # A single lost write shows in the largest change, not in norms.
    peak = max(math.inf if size.broken else size.peak for size in sizes)
    if peak > t.single * 2 * e.allowed:
        spread = max(spread, peak)
    e.evidence["spread"] = spread
    form, text = None, ""
    # Lost writes change few results, and random rounding most of them.
    changed = np.mean([np.abs(d) > 2 * e.allowed * unit for d in changes])
    if spread > 2 * e.allowed and changed > t.unrelated:
        with suppress(BudgetError):
            form, text = _rounds_at_random(e, names, typical, unit)
    biased = "standard errors" in text
    return Repeats(count, names, spread, format=form, explanation=text, is_biased=biased)


def _unwritten(again: dict[str, list[Result]], names: tuple[str, ...]) -> str | None:
    """Describe results that are what freed memory was filled with, different in each call."""
    for name in names:
        first, *rest = again[name]
        if any(result.dtypes != first.dtypes for result in rest):
            continue
        masks = [
            np.any([_is_poison(x) for x in calls], axis=0)
            & np.any([raw_bytes(x) != raw_bytes(calls[0]) for x in calls], axis=(0, 2))
            for calls in zip(*(result.arrays for result in again[name]), strict=True)
        ]
        left = np.concatenate([np.empty(0, bool), *masks])
        if left.any():
            k = next(k for k, some in enumerate(masks) if some.any())
            at = np.unravel_index(int(np.argmax(masks[k])), first.arrays[k].shape)
            of = f" of result {first.title(k)}" if len(masks) > 1 else ""
            n = f"at least {np.count_nonzero(left)} of {left.size} results, for example "
            text = f"{name} does not write all of its results: {n}{index_text(at)}{of}, are "
            return f"{text}uninitialised memory"
    return None


def _is_poison(x: NDArray) -> NDArray:
    return np.asarray(np.any([(raw_bytes(x) == byte).all(axis=1) for byte in POISON_BYTES], axis=0))


def _rounds_at_random(
    e: Differences, names: tuple[str, ...], spread: float, unit: NDArray
) -> tuple[str | None, str]:
    """
    Recognise stochastic rounding of inputs, by those that it leaves alone.

    Numbers of the format are not rounded (Croci et al., R. Soc. Open Sci. 9 (2022)): calls at such
    inputs are alike. What drops numbers, or races, does so with any.
    """
    for form in ("tf32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2"):
        coarse = ROUNDOFF[form] / e.roundoff
        if not coarse / 32 <= spread <= 4 * coarse:
            continue
        for group in [[k] for k in perturbable(e.inputs)] + [perturbable(e.inputs)]:
            x = [rounding_to(form, False)(v) if k in group else v for k, v in enumerate(e.inputs)]
            if any(x[k] is None for k in group):  # it overflows
                continue
            calls = [e.f(x), e.g(x), *(e.implementations[n](x) for n in names for _ in range(8))]
            if not comparable(e.result_f, *calls):
                continue
            changes = [difference(calls[0], y) for y in calls[1:]]
            beyond = np.mean([~(np.abs(d) <= 2 * e.allowed * unit) for d in changes])
            if beyond <= 1 / 4 and all(error_norms(d, unit).robust <= spread / 4 for d in changes):
                text = f"{' and '.join(names)} round{'s' * (len(names) == 1)} "
                text += (
                    f"{argument_names(group, e)} at random to about the precision of {form}: calls "
                )
                text += f"with the same inputs differ by {as_multiple(spread)}{_bias(e, names)}"
                return form, f"{text}, except for inputs of that precision"
    return None, ""


def _bias(e: Differences, names: tuple[str, ...]) -> str:
    """Say by how many standard errors the mean of several calls is off, if that is too much."""
    other = e.reference or e.results["f" if names[0] == "g" else "g"]
    draws = [e.implementations[names[0]](e.inputs) for _ in range(e.thresholds.perturbations)]
    if len(names) > 1:
        return ""
    off = np.array([difference(y, other) for y in draws]) * np.where(e.scale > 0, 1 / e.scale, 0)
    error = finite_rms(off.std(axis=0, ddof=1)) / math.sqrt(len(off))
    mean = finite_rms(off.mean(axis=0)) / error if error else math.inf
    if mean <= 3:
        return ""
    text = (
        f", and their mean is off by {mean:.1f} standard errors: it does not round up as often as "
    )
    return text + "down"
