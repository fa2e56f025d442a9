"""Sides that do not repeat themselves: within rounding or beyond, or by what memory held."""

import math
from contextlib import suppress
from dataclasses import replace

import numpy as np

from ..._core.dtypes import ROUNDOFF
from ..._core.protocols import NDArray
from ..._core.report import index_text
from ..callables import POISON_BYTES, BudgetError, Result, comparable, raw_bytes
from ..evidence import Evidence
from ..inputs import perturbable
from ..noise_level import (
    ErrorNorms,
    difference,
    error_norms,
    finite_rms,
    perturbation_rms,
    result_roundoffs,
)
from ..verdict import (
    BUG,
    FAR,
    ILL_CONDITIONED,
    LAYOUT,
    NONDETERMINISTIC,
    ROUNDING,
    SUSPECT,
    Verdict,
    as_multiple,
)
from .grids import find_grid_format
from .quantization import argument_names
from .reduced_precision import narrowed

_FORMS = ("tf32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2")  # the finest first
_DRAWS, _AGAIN = 8, 4
_MOST, _LEAST = 4.0, 1 / 32  # roundings to a format: one, of some arguments
_SURE = 3.0  # standard errors of a mean
# A step of 1 - 1e-8, say, is 1 in float32, and some numbers of a format go up, now and then.
_OFTEN, _SELDOM = 1 / 2, 1 / 4


def rounded_at_random(
    e: Evidence, names: list[str], spread: float, unit: NDArray
) -> Verdict | None:
    """
    Recognise stochastic rounding of inputs, by their being numbers of the format already.

    Such numbers it leaves alone (Croci et al., R. Soc. Open Sci. 9 (2022)), so that the sides
    repeat themselves there, and agree. What drops numbers, or races, does so with any.
    """
    if e.eta_difference.broken:
        return None
    with suppress(BudgetError):
        forms = [form for form in _FORMS if _is_rounding_to(e, form, spread)]
        off = {name: _off(e, name) for name in names} if forms else {}
        beyond = (np.abs(d) > 2 * e.allowed * unit for d in off.values() if d is not None)
        if len([x for x in beyond if np.mean(x) >= _OFTEN]) < len(names):
            return None
        every = perturbable(e.inputs)
        for form in forms:
            if not _steady_in(e, form, every, names, unit, spread):
                continue
            some = [[k] for k in every if _steady_in(e, form, [k], names, unit, spread)]
            which = argument_names(some[0] if some else every, e)
            reason = " and ".join(names) + (" rounds " if len(names) == 1 else " round ")
            reason += f"{which} at random to about the precision of {form}: calls with the same "
            reason += f"inputs differ by {as_multiple(spread)}"
            errors = max(_standard_errors(d, e.scale) for d in off.values() if d is not None)
            if errors > _SURE and len(names) == 1:  # the mean of two is not known
                reason += f", but their mean is off by {errors:.1f} standard errors: it does not "
                return Verdict(SUSPECT, f"{reason}round up as often as down")
            return Verdict(NONDETERMINISTIC, f"{reason}, except for inputs of that precision")
    return None


def _is_rounding_to(e: Evidence, form: str, spread: float) -> bool:
    """Return True if rounding to a format explains the size of the differences."""
    coarse = ROUNDOFF[form] / e.roundoff
    return _LEAST * coarse <= spread <= _MOST * coarse and e.eta_difference.robust <= _MOST * coarse


def _off(e: Evidence, name: str) -> NDArray | None:
    """Return how far each of several answers of a side is off."""
    other = e.results["f" if name == "g" else "g"] if e.reference is None else e.reference[1]
    draws = [e.implementations[name](e.inputs) for _ in range(_DRAWS)]
    return np.array([difference(y, other) for y in draws]) if comparable(other, *draws) else None


def _steady_in(
    e: Evidence, form: str, positions: list[int], names: list[str], unit: NDArray, spread: float
) -> bool:
    """Return True if calls at inputs rounded to a format are reproducible, and f and g agree."""
    inputs = narrowed(e.inputs, form, False, positions)
    if inputs is None:
        return False
    f, g = e.f(inputs), e.g(inputs)
    again = [e.implementations[name](inputs) for name in names for _ in range(_AGAIN)]
    if not comparable(e.result_f, f, g, *again):
        return False
    differences = [difference(f, y) for y in (g, *again)]
    sizes = [error_norms(d, unit) for d in differences]
    within = max(2 * e.allowed, _SELDOM * spread)
    beyond = float(np.mean([~(np.abs(d) <= 2 * e.allowed * unit) for d in differences]))
    return beyond <= _SELDOM and all(size.robust <= within and not size.broken for size in sizes)


def _standard_errors(off: NDArray, scale: NDArray) -> float:
    """Return how far results are off on average, in standard errors of that."""
    off = off * np.where(scale > 0, 1 / scale, 0.0)
    error = finite_rms(off.std(axis=0, ddof=1)) / math.sqrt(len(off))
    mean = finite_rms(off.mean(axis=0))
    return mean / error if error else math.inf


_REPEATS = 8  # calls at the same inputs that estimate noise
_NOISE = 0.3  # of the units: beyond, these are a function's own noise


def judge_repeats(e: Evidence, names: list[str], spreads: dict[str, NDArray]) -> Verdict | None:
    """
    Judge sides by how far apart their results are when asked the same again.

    Where an order of summation explains that, and not how far the sides are apart, here or in the
    wider format, others judge.
    """
    unit = _noise_free_unit(e)
    accused = does_not_repeat(
        [name for name in names if e.implementations[name].is_nondeterministic]
    )
    if accused is not None:
        return accused
    sizes = [error_norms(spreads[name], unit) for name in names]
    d = e.eta_difference
    if _of_summation(e, sizes):  # so far: what goes wrong now and then may not have shown
        with suppress(BudgetError):
            for name in names:
                for _ in range(_REPEATS):
                    again, first = e.implementations[name](e.inputs), e.results[name]
                    if comparable(again, first):
                        sizes.append(error_norms(difference(again, first), unit))
    spread = max(size.robust if not size.broken else math.inf for size in sizes)
    e.evidence["spread"] = spread
    text = (
        f"{_not_deterministic(names)}: calls with the same inputs differ by {as_multiple(spread)}"
    )
    if _of_summation(e, sizes) and not d.broken and not e.differ_wide:
        return Verdict(NONDETERMINISTIC, f"{text}, which a different order of summation explains")
    forms = {find_grid_format(e, e.results[name]) for name in names}
    form = forms.pop()
    if form is not None and not forms:
        coarse = ROUNDOFF[form] / e.roundoff
        if spread <= 4 * coarse and d.robust <= 4 * coarse and not d.broken:
            text += f", in steps of {form}: the results are rounded at random to that precision"
            return Verdict(NONDETERMINISTIC, text)
    if spread <= 2 * e.allowed:
        e.nondeterminism_note = f"{text}, which a different order of summation explains"
        return None
    at_random = rounded_at_random(e, names, spread, unit)
    if at_random is not None:
        return at_random
    return Verdict(
        BUG, f"{text}, which no order of summation explains (dropout, a race, uninitialised memory)"
    )


def with_nondeterminism_note(e: Evidence, verdict: Verdict) -> Verdict:
    """Add the note on nondeterminism within rounding to a verdict."""
    if not e.nondeterminism_note:
        return verdict
    if verdict.kind in (ROUNDING, LAYOUT):
        return Verdict(NONDETERMINISTIC, e.nondeterminism_note)
    return replace(verdict, reason=f"{verdict.reason}; also, {e.nondeterminism_note}")


def _of_summation(e: Evidence, sizes: list[ErrorNorms]) -> bool:
    """Return True if a different order of summation explains the differences."""
    spread = max(size.robust if not size.broken else math.inf for size in sizes)
    near = e.eta_difference.robust <= max(e.allowed, 4 * spread)
    return spread <= 2 * e.allowed and near


def _noise_free_unit(e: Evidence) -> NDArray:
    """Return the noise level, without nondeterminism of the function itself."""
    here, wide = (e.result_f, False) if e.reference is None else (e.reference[1], True)
    implementation = e.f if e.reference is None else e.reference[0]
    noise = perturbation_rms(
        implementation, here, e.perturb, 0.0, [e.seed + k for k in range(_REPEATS)], wide
    )
    share = 1.0 if wide else 1 / FAR
    finite = np.isfinite(e.scale)
    if np.linalg.norm(share * noise[finite]) <= _NOISE * np.linalg.norm(e.scale[finite]):
        return e.scale
    return result_roundoffs(here, e.roundoff)


def unwritten(again: dict[str, list[Result]], names: list[str]) -> Verdict | None:
    """Tell of results that are what free memory was made to hold, another thing in each call."""
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
            where = f"{index_text(at)}{of}"
            n = f"at least {np.count_nonzero(left)} of {left.size} results, for example {where}"
            text = f"{name} does not write all of its results: {n}, are uninitialised memory"
            return Verdict(BUG, text)
    return None


def _is_poison(x: NDArray) -> NDArray:
    """Tell which elements are what free memory is written over with."""
    return np.asarray(np.any([(raw_bytes(x) == byte).all(axis=1) for byte in POISON_BYTES], axis=0))


def nondeterministic_when_perturbed(e: Evidence) -> Verdict | None:
    """Recognise what does not repeat itself at moved inputs, though it did at the given ones."""
    if not e.scale.size:
        return None
    if (
        e.reference is not None and e.noise_level.kappa > ILL_CONDITIONED
    ):  # it may be the answer that they start from
        implementation, r = e.reference
        result = implementation(e.wide_inputs)
        if not comparable(result, r) or finite_rms(difference(result, r)) > 0.5 * finite_rms(
            e.noise_level.values
        ):
            implementation.is_nondeterministic = True
    return does_not_repeat(
        [
            name
            for name, implementation in e.implementations.items()
            if implementation.is_nondeterministic
        ]
    )


def does_not_repeat(names: list[str]) -> Verdict | None:
    """Accuse sides that give other results, as far apart as moves do, when asked again."""
    if not names:
        return None
    text = (
        f"{_not_deterministic(names)}: repeated calls at inputs perturbed by about 1 ulp differ "
        "by more "
    )
    return Verdict(BUG, f"{text}than rounding (dropout, a race, uninitialised memory)")


def _not_deterministic(names: list[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not deterministic"
