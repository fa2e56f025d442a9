"""Bits, shapes and errors: what two answers show by themselves, and when asked for again."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from ..._compare.text import differing
from ..._core.libraries import loaded_libraries
from ..._core.protocols import NDArray
from ..callables import (
    BudgetError,
    Result,
    comparable,
    describe_name_mismatch,
    join_or_none,
    one_line_error,
)
from ..evidence import Evidence
from ..inputs import perturbable
from ..noise_level import difference, error_norms, finite_rms
from ..verdict import BUG, COARSEST, EQUAL, LARGE_DIFFERENCE, RAISES, SUSPECT, Verdict
from .grids import none_nearby
from .nondeterminism import judge_repeats, unwritten

_ENOUGH = 4  # calls that are left: two elsewhere, and two that tell of repeating


def one_raises(e: Evidence) -> Verdict | None:
    f, g = e.result_f, e.result_g
    if f.error is None and g.error is None:
        return None
    errors = [
        f"{name} raises {one_line_error(result.error)}"
        for name, result in (("f", f), ("g", g))
        if result.error is not None
    ]
    alone = "" if len(errors) == 2 else f"; {'g' if f.error else 'f'} does not"
    return Verdict(RAISES, " and ".join(errors) + alone + _how_called(e))


def _how_called(e: Evidence) -> str:
    """Say how f and g were called, where that may be why they raise."""
    errors, count = [e.result_f.error, e.result_g.error], len(e.inputs)
    alone = all(np.ndim(x) == 0 and np.asarray(x).dtype.kind in "iufc" for x in e.inputs)
    if count > 1 and alone and all(isinstance(error, TypeError) for error in errors):
        return (
            f"; they are called with {count} arguments, one for each number in inputs: pass a "
            f"NumPy array if the numbers are one argument"
        )
    if count == 1 and all("positional argument" in str(error) for error in errors):
        return "; they are called with 1 argument: pass several as a tuple, inputs=(a, b)"
    if loaded_libraries() and any("ndarray" in str(error) for error in errors):
        return "; it is called with NumPy arrays: pass tensors if it needs tensors"
    for name, result in e.results.items():
        library = e.implementations[name].array_library
        if isinstance(result.error, TypeError) and library != "NumPy":
            return (
                f"; {name} is called with arrays of {library}: convert them with np.asarray in "
                f"{name} if it needs NumPy arrays"
            )
    return ""


def other_shapes(e: Evidence) -> Verdict | None:
    """Results that are not compared: of other shapes, complex on one side, or by other names."""
    _join(e)
    f, g = e.result_f.shapes, e.result_g.shapes
    reason = describe_name_mismatch(e.result_f, e.result_g)
    if reason is not None:
        return Verdict(BUG, reason)
    if e.result_f.forms == e.result_g.forms:
        return None
    if f == g:
        reason = "only one of f and g returns complex numbers"
        return Verdict(BUG, f"{reason}: compare the real parts, or return complex from both")
    return Verdict(BUG, f"f returns shape {join_or_none(f)}, and g returns shape {join_or_none(g)}")


def _join(e: Evidence) -> None:
    """Take several numbers for an array, where the other side gives one: row by row, say."""
    f, g = e.result_f.joined(), e.result_g.joined()
    if f.shapes == e.result_g.shapes:
        e.f.merges_numbers, e.result_f = True, f
    elif g.shapes == e.result_f.shapes:
        e.g.merges_numbers, e.result_g = True, g


def same_bits(e: Evidence) -> Verdict | None:
    """Equal to the last bit, and again when asked again; or not the same from call to call."""
    same = e.result_f.bits() == e.result_g.bits()
    again = {"f": [e.result_f], "g": [e.result_g]}
    elsewhere = _differs_when_perturbed(e) if same else None  # between calls that are the same
    for _ in range(1 if same else 2):
        again["f"].append(e.f(e.inputs))
        again["g"].append(e.g(e.inputs))
    changed = _changed(again)
    if changed is not None:
        return changed
    spreads = {
        name: max(
            (difference(first, x) for x in rest), key=lambda d: float(np.abs(d).max(initial=0))
        )
        for name, (first, *rest) in again.items()
    }
    names = [
        name
        for name, (first, *rest) in again.items()
        if any(x.bits() != first.bits() for x in rest)
    ]
    e.evidence["repeats_differ"] = names
    if names:
        return unwritten(again, names) or judge_repeats(e, names, spreads)
    if elsewhere is not None:
        return elsewhere
    if same:
        n = sum(x.size for x in e.result_f.arrays)
        if not n:
            return Verdict(
                EQUAL, f"f and g return no elements: shape {join_or_none(e.result_f.shapes)}"
            )
        what, they = ("the result is", "it is") if n == 1 else (f"all {n} results are", "all are")
        # These carry no information.
        nan = f"; {they} NaN" if np.isnan(e.result_f.numbers(np.float64)).all() else ""
        return Verdict(EQUAL, f"{what} equal to the last bit, in repeated calls as well{nan}")
    return None


def _differs_when_perturbed(e: Evidence) -> Verdict | None:
    """Tell of results that are equal here, and most of them not where all inputs are moved."""
    if not e.can_perturb or e.f.budget.remaining < _ENOUGH:
        return None
    f, g = e.evaluate_perturbed(2.0**-COARSEST, e.seed + 800)
    if not comparable(f, g):
        return None
    sizes = np.abs(f.numbers(np.float64))
    differs = np.abs(difference(f, g)) > LARGE_DIFFERENCE * np.maximum(sizes, finite_rms(sizes))
    if 2 * np.count_nonzero(differs) <= differs.size:
        return None
    differ = differing(int(np.count_nonzero(differs)), differs.size, "result")
    reason = f"equal to the last bit here, but {differ} much after large perturbations of the "
    reason += "inputs: f or g returns a cached result, or they agree for inputs like these only"
    return Verdict(SUSPECT, reason)


def _changed(again: dict[str, list[Result]]) -> Verdict | None:
    """Tell of a side that raises, or gives results of other shapes, when it is asked again."""
    for name, (first, *rest) in again.items():
        for x in rest:
            if x.error is not None:
                reason = f"{name} raises {one_line_error(x.error)} when it is called again"
                return Verdict(RAISES, reason)
            if x.forms != first.forms:
                reason = f"{name} returns shape {join_or_none(first.shapes)}, and shape "
                reason += f"{join_or_none(x.shapes)} when it is called again"
                return Verdict(BUG, reason)
    return None


def exact_integers(e: Evidence) -> Verdict | None:
    """Integers and truth values that no rounding makes differ: so they do in the wider format."""
    here = _integer_differences(e.result_f, e.result_g)
    if here is None or not here.any():
        return None
    reason = differing(int(np.count_nonzero(here)), here.size, "integer")
    alone = e.result_f.integers.all()  # else the rules that follow tell of the others
    if not perturbable(e.inputs):
        return _of_exact_inputs(e, reason) if alone else None
    if len(e.wide_results) < 2:
        return None
    there = _integer_differences(e.wide_results["f"], e.wide_results["g"])
    if there is None or not np.array_equal(here, there):
        return None
    reason += ", by as much in higher precision"
    ties = _ties(e)
    if ties is None:
        return Verdict(BUG, f"{reason}: f and g compute different functions")
    return Verdict(SUSPECT, f"{reason}, {ties}") if alone else None


def _of_exact_inputs(e: Evidence, reason: str) -> Verdict:
    """
    Judge integers that differ, where inputs are exact: pixels, counts and the like.

    What is computed of them is not, and is rounded to integers as often as not: then a tie is what
    the sides decide otherwise, and there is none between the integers that inputs are.
    """
    between = tuple(
        x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind in "iu" else x
        for x in e.inputs
    )
    with suppress(BudgetError):
        numbers = replace(e, inputs=between, evidence={})
        same = all(numbers.results[name].bits() == y.bits() for name, y in e.results.items())
        ties = _ties(numbers) if same and numbers.can_perturb else None
        if ties is not None:
            return Verdict(SUSPECT, f"{reason}, {ties}")
    return Verdict(BUG, f"{reason}, and the inputs are exact: this is not rounding")


def integers_at_ties(e: Evidence) -> Verdict | None:
    """Recognise integers that differ only at ties, among results that rounding explains."""
    here = _integer_differences(e.result_f, e.result_g)
    if here is None or not here.any() or not perturbable(e.inputs):
        return None
    others = ~e.result_f.integers
    rest = error_norms(e.difference[others], e.scale[others])
    ties = None if rest.broken or rest.robust > e.allowed else _ties(e)
    if ties is None:
        return None
    reason = differing(int(np.count_nonzero(here)), here.size, "integer")
    return Verdict(SUSPECT, f"{reason}, {ties}")


def _ties(e: Evidence) -> str | None:
    """Tell of ties, if no integers differ where inputs are moved: zeros, too, if need be."""
    for zeros in (False, True):
        there = e.evaluate_perturbed(2.0**-COARSEST, e.seed + 820, zeros=zeros)
        changes = _integer_differences(*there)
        if changes is None or changes.any():
            continue
        # Where nothing between is what integers are, as a year of leap, both sides agree on that.
        if _vary(*there) or not _vary(e.result_f, e.result_g):
            return none_nearby(zeros)
    return None


def _vary(*results: Result) -> bool:
    """Return True if an integer result is not constant."""
    integers = (x for y in results for x in y.arrays if x.dtype.kind in "biu" and x.size)
    return any(bool((x != x.flat[0]).any()) for x in integers)


def _integer_differences(a: Result, b: Result) -> NDArray | None:
    """Return differences of the integers among results, which may wrap around, if any can."""
    if not comparable(a, b):
        return None
    pairs = [
        (x, y)
        for x, y in zip(a.arrays, b.arrays, strict=True)
        if x.dtype.kind in "biu" and y.dtype.kind in "biu"
    ]
    differences = [np.ravel(x.astype(np.int64) - y.astype(np.int64)) for x, y in pairs]
    return np.concatenate([np.empty(0, np.int64), *differences])
