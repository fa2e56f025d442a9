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
from ..error_units import difference, error_norms, rms_of
from ..evidence import Evidence
from ..inputs import perturbable
from ..verdict import BUG, COARSEST, EQUAL, LARGE_DIFFERENCE, RAISES, SUSPECT, Verdict
from .grids import none_nearby
from .nondeterminism import judge_repeats, unwritten

_ENOUGH = 4  # calls that are left: two elsewhere, and two that tell of repeating


def one_raises(q: Evidence) -> Verdict | None:
    f, g = q.result_f, q.result_g
    if f.error is None and g.error is None:
        return None
    errors = [
        f"{name} raises {one_line_error(answer.error)}"
        for name, answer in (("f", f), ("g", g))
        if answer.error is not None
    ]
    alone = "" if len(errors) == 2 else f"; {'g' if f.error else 'f'} does not"
    return Verdict(RAISES, " and ".join(errors) + alone + _how_called(q))


def _how_called(q: Evidence) -> str:
    """Say how f and g were called, where that may be why they raise."""
    errors, count = [q.result_f.error, q.result_g.error], len(q.inputs)
    alone = all(np.ndim(x) == 0 and np.asarray(x).dtype.kind in "iufc" for x in q.inputs)
    if count > 1 and alone and all(isinstance(error, TypeError) for error in errors):
        return (
            f"; they are called with {count} arguments, one for each number in inputs: pass a "
            f"NumPy array if the numbers are one argument"
        )
    if count == 1 and all("positional argument" in str(error) for error in errors):
        return "; they are called with 1 argument: pass several as a tuple, inputs=(a, b)"
    if loaded_libraries() and any("ndarray" in str(error) for error in errors):
        return "; it is called with NumPy arrays: pass tensors if it needs tensors"
    for name, answer in q.results.items():
        library = q.implementations[name].array_library
        if isinstance(answer.error, TypeError) and library != "NumPy":
            return (
                f"; {name} is called with arrays of {library}: convert them with np.asarray in "
                f"{name} if it needs NumPy arrays"
            )
    return ""


def other_shapes(q: Evidence) -> Verdict | None:
    """Results that are not compared: of other shapes, complex on one side, or by other names."""
    _join(q)
    f, g = q.result_f.shapes, q.result_g.shapes
    reason = describe_name_mismatch(q.result_f, q.result_g)
    if reason is not None:
        return Verdict(BUG, reason)
    if q.result_f.forms == q.result_g.forms:
        return None
    if f == g:
        reason = "only one of f and g returns complex numbers"
        return Verdict(BUG, f"{reason}: compare the real parts, or return complex from both")
    return Verdict(BUG, f"f returns shape {join_or_none(f)}, and g returns shape {join_or_none(g)}")


def _join(q: Evidence) -> None:
    """Take several numbers for an array, where the other side gives one: row by row, say."""
    f, g = q.result_f.joined(), q.result_g.joined()
    if f.shapes == q.result_g.shapes:
        q.f.merges_numbers, q.result_f = True, f
    elif g.shapes == q.result_f.shapes:
        q.g.merges_numbers, q.result_g = True, g


def same_bits(q: Evidence) -> Verdict | None:
    """Equal to the last bit, and again when asked again; or not the same from call to call."""
    same = q.result_f.bits() == q.result_g.bits()
    again = {"f": [q.result_f], "g": [q.result_g]}
    elsewhere = _differs_when_perturbed(q) if same else None  # between calls that are the same
    for _ in range(1 if same else 2):
        again["f"].append(q.f(q.inputs))
        again["g"].append(q.g(q.inputs))
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
    q.evidence["repeats_differ"] = names
    if names:
        return unwritten(again, names) or judge_repeats(q, names, spreads)
    if elsewhere is not None:
        return elsewhere
    if same:
        n = sum(x.size for x in q.result_f.arrays)
        if not n:
            return Verdict(
                EQUAL, f"f and g return no elements: shape {join_or_none(q.result_f.shapes)}"
            )
        what, they = ("the result is", "it is") if n == 1 else (f"all {n} results are", "all are")
        # Of which nothing is learnt.
        nan = f"; {they} NaN" if np.isnan(q.result_f.numbers(np.float64)).all() else ""
        return Verdict(EQUAL, f"{what} equal to the last bit, in repeated calls as well{nan}")
    return None


def _differs_when_perturbed(q: Evidence) -> Verdict | None:
    """Tell of results that are equal here, and most of them not where all inputs are moved."""
    if not q.can_perturb or q.f.budget.remaining < _ENOUGH:
        return None
    f, g = q.evaluate_perturbed(2.0**-COARSEST, q.seed + 800)
    if not comparable(f, g):
        return None
    sizes = np.abs(f.numbers(np.float64))
    apart = np.abs(difference(f, g)) > LARGE_DIFFERENCE * np.maximum(sizes, rms_of(sizes))
    if 2 * np.count_nonzero(apart) <= apart.size:
        return None
    differ = differing(int(np.count_nonzero(apart)), apart.size, "result")
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


def exact_integers(q: Evidence) -> Verdict | None:
    """Integers and truth values that no rounding makes differ: so they do in the wider format."""
    here = _integer_differences(q.result_f, q.result_g)
    if here is None or not here.any():
        return None
    reason = differing(int(np.count_nonzero(here)), here.size, "integer")
    alone = q.result_f.integers.all()  # else the rules that follow tell of the others
    if not perturbable(q.inputs):
        return _of_exact_inputs(q, reason) if alone else None
    if len(q.wide_results) < 2:
        return None
    there = _integer_differences(q.wide_results["f"], q.wide_results["g"])
    if there is None or not np.array_equal(here, there):
        return None
    reason += ", by as much in higher precision"
    ties = _ties(q)
    if ties is None:
        return Verdict(BUG, f"{reason}: f and g compute different functions")
    return Verdict(SUSPECT, f"{reason}, {ties}") if alone else None


def _of_exact_inputs(q: Evidence, reason: str) -> Verdict:
    """
    Judge integers that differ, where inputs are exact: pixels, counts and the like.

    What is computed of them is not, and is rounded to integers as often as not: then a tie is what
    the sides decide otherwise, and there is none between the integers that inputs are.
    """
    between = tuple(
        x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind in "iu" else x
        for x in q.inputs
    )
    with suppress(BudgetError):
        numbers = replace(q, inputs=between, evidence={})
        same = all(numbers.results[name].bits() == y.bits() for name, y in q.results.items())
        ties = _ties(numbers) if same and numbers.can_perturb else None
        if ties is not None:
            return Verdict(SUSPECT, f"{reason}, {ties}")
    return Verdict(BUG, f"{reason}, and the inputs are exact: this is not rounding")


def integers_at_ties(q: Evidence) -> Verdict | None:
    """Integers that differ at ties alone, beside results that rounding explains."""
    here = _integer_differences(q.result_f, q.result_g)
    if here is None or not here.any() or not perturbable(q.inputs):
        return None
    others = ~q.result_f.integers
    rest = error_norms(q.difference[others], q.scale[others])
    ties = None if rest.broken or rest.robust > q.allowed else _ties(q)
    if ties is None:
        return None
    reason = differing(int(np.count_nonzero(here)), here.size, "integer")
    return Verdict(SUSPECT, f"{reason}, {ties}")


def _ties(q: Evidence) -> str | None:
    """Tell of ties, if no integers differ where inputs are moved: zeros, too, if need be."""
    for zeros in (False, True):
        there = q.evaluate_perturbed(2.0**-COARSEST, q.seed + 820, zeros=zeros)
        moved = _integer_differences(*there)
        if moved is None or moved.any():
            continue
        # Where nothing between is what integers are, as a year of leap, both sides agree on that.
        if _vary(*there) or not _vary(q.result_f, q.result_g):
            return none_nearby(zeros)
    return None


def _vary(*answers: Result) -> bool:
    """Tell whether a side gives integers that are not all of them the same."""
    own = (x for y in answers for x in y.arrays if x.dtype.kind in "biu" and x.size)
    return any(bool((x != x.flat[0]).any()) for x in own)


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
