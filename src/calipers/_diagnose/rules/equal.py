"""Bits, shapes and errors: what two answers show by themselves, and when asked for again."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from ..._compare.text import differing
from ..._core.libraries import loaded_libraries
from ..._core.protocols import NDArray
from ..callables import Answer, BudgetError, comparable, in_a_line, listed, other_names
from ..error_units import difference, rms_of, size_of
from ..evidence import Inquiry
from ..inputs import movable
from ..verdict import BUG, COARSEST, EQUAL, GROSS, RAISES, SUSPECT, Verdict
from .grids import none_nearby
from .nondeterminism import restless, unwritten

_ENOUGH = 4  # calls that are left: two elsewhere, and two that tell of repeating


def one_raises(q: Inquiry) -> Verdict | None:
    f, g = q.of_f, q.of_g
    if f.error is None and g.error is None:
        return None
    errors = [
        f"{name} raises {in_a_line(answer.error)}"
        for name, answer in (("f", f), ("g", g))
        if answer.error is not None
    ]
    alone = "" if len(errors) == 2 else f"; {'g' if f.error else 'f'} does not"
    return Verdict(RAISES, " and ".join(errors) + alone + _how_called(q))


def _how_called(q: Inquiry) -> str:
    """Say how f and g were called, where that may be why they raise."""
    errors, count = [q.of_f.error, q.of_g.error], len(q.inputs)
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
    for name, answer in q.answers.items():
        library = q.sides[name].arrays_of
        if isinstance(answer.error, TypeError) and library != "NumPy":
            return (
                f"; {name} is called with arrays of {library}: convert them with np.asarray in "
                f"{name} if it needs NumPy arrays"
            )
    return ""


def other_shapes(q: Inquiry) -> Verdict | None:
    """Results that are not compared: of other shapes, complex on one side, or by other names."""
    _join(q)
    f, g = q.of_f.shapes, q.of_g.shapes
    reason = other_names(q.of_f, q.of_g)
    if reason is not None:
        return Verdict(BUG, reason)
    if q.of_f.forms == q.of_g.forms:
        return None
    if f == g:
        reason = "only one of f and g returns complex numbers"
        return Verdict(BUG, f"{reason}: compare the real parts, or return complex from both")
    return Verdict(BUG, f"f returns shape {listed(f)}, and g returns shape {listed(g)}")


def _join(q: Inquiry) -> None:
    """Take several numbers for an array, where the other side gives one: row by row, say."""
    f, g = q.of_f.joined(), q.of_g.joined()
    if f.shapes == q.of_g.shapes:
        q.f.joins, q.of_f = True, f
    elif g.shapes == q.of_f.shapes:
        q.g.joins, q.of_g = True, g


def same_bits(q: Inquiry) -> Verdict | None:
    """Equal to the last bit, and again when asked again; or not the same from call to call."""
    same = q.of_f.bits() == q.of_g.bits()
    again = {"f": [q.of_f], "g": [q.of_g]}
    elsewhere = _other_elsewhere(q) if same else None  # between calls that are the same
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
        return unwritten(again, names) or restless(q, names, spreads)
    if elsewhere is not None:
        return elsewhere
    if same:
        n = sum(x.size for x in q.of_f.arrays)
        if not n:
            return Verdict(EQUAL, f"f and g return no elements: shape {listed(q.of_f.shapes)}")
        what, they = ("the result is", "it is") if n == 1 else (f"all {n} results are", "all are")
        # Of which nothing is learnt.
        nan = f"; {they} NaN" if np.isnan(q.of_f.numbers(np.float64)).all() else ""
        return Verdict(EQUAL, f"{what} equal to the last bit, in repeated calls as well{nan}")
    return None


def _other_elsewhere(q: Inquiry) -> Verdict | None:
    """Tell of results that are equal here, and most of them not where all inputs are moved."""
    if not q.are_moved or q.f.budget.left < _ENOUGH:
        return None
    f, g = q.at_moved(2.0**-COARSEST, q.seed + 800)
    if not comparable(f, g):
        return None
    sizes = np.abs(f.numbers(np.float64))
    apart = np.abs(difference(f, g)) > GROSS * np.maximum(sizes, rms_of(sizes))
    if 2 * np.count_nonzero(apart) <= apart.size:
        return None
    differ = differing(int(np.count_nonzero(apart)), apart.size, "result")
    reason = f"equal to the last bit here, but {differ} much after large perturbations of the "
    reason += "inputs: f or g returns a cached result, or they agree for inputs like these only"
    return Verdict(SUSPECT, reason)


def _changed(again: dict[str, list[Answer]]) -> Verdict | None:
    """Tell of a side that raises, or gives results of other shapes, when it is asked again."""
    for name, (first, *rest) in again.items():
        for x in rest:
            if x.error is not None:
                reason = f"{name} raises {in_a_line(x.error)} when it is called again"
                return Verdict(RAISES, reason)
            if x.forms != first.forms:
                reason = f"{name} returns shape {listed(first.shapes)}, and shape "
                reason += f"{listed(x.shapes)} when it is called again"
                return Verdict(BUG, reason)
    return None


def exact_integers(q: Inquiry) -> Verdict | None:
    """Integers and truth values that no rounding makes differ: so they do in the wider format."""
    here = _integers_apart(q.of_f, q.of_g)
    if here is None or not here.any():
        return None
    reason = differing(int(np.count_nonzero(here)), here.size, "integer")
    alone = q.of_f.integers.all()  # else the rules that follow tell of the others
    if not movable(q.inputs):
        return _of_exact_inputs(q, reason) if alone else None
    if len(q.wide_answers) < 2:
        return None
    there = _integers_apart(q.wide_answers["f"], q.wide_answers["g"])
    if there is None or not np.array_equal(here, there):
        return None
    reason += ", by as much in higher precision"
    ties = _ties(q)
    if ties is None:
        return Verdict(BUG, f"{reason}: f and g compute different functions")
    return Verdict(SUSPECT, f"{reason}, {ties}") if alone else None


def _of_exact_inputs(q: Inquiry, reason: str) -> Verdict:
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
        same = all(numbers.answers[name].bits() == y.bits() for name, y in q.answers.items())
        ties = _ties(numbers) if same and numbers.are_moved else None
        if ties is not None:
            return Verdict(SUSPECT, f"{reason}, {ties}")
    return Verdict(BUG, f"{reason}, and the inputs are exact: this is not rounding")


def integers_at_ties(q: Inquiry) -> Verdict | None:
    """Integers that differ at ties alone, beside results that rounding explains."""
    here = _integers_apart(q.of_f, q.of_g)
    if here is None or not here.any() or not movable(q.inputs):
        return None
    others = ~q.of_f.integers
    rest = size_of(q.apart[others], q.scale[others])
    ties = None if rest.broken or rest.least > q.allowed else _ties(q)
    if ties is None:
        return None
    reason = differing(int(np.count_nonzero(here)), here.size, "integer")
    return Verdict(SUSPECT, f"{reason}, {ties}")


def _ties(q: Inquiry) -> str | None:
    """Tell of ties, if no integers differ where inputs are moved: zeros, too, if need be."""
    for zeros in (False, True):
        there = q.at_moved(2.0**-COARSEST, q.seed + 820, zeros=zeros)
        moved = _integers_apart(*there)
        if moved is None or moved.any():
            continue
        # Where nothing between is what integers are, as a year of leap, both sides agree on that.
        if _vary(*there) or not _vary(q.of_f, q.of_g):
            return none_nearby(zeros)
    return None


def _vary(*answers: Answer) -> bool:
    """Tell whether a side gives integers that are not all of them the same."""
    own = (x for y in answers for x in y.arrays if x.dtype.kind in "biu" and x.size)
    return any(bool((x != x.flat[0]).any()) for x in own)


def _integers_apart(a: Answer, b: Answer) -> NDArray | None:
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
