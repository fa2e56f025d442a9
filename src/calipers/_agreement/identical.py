"""Bits, shapes and errors: what two answers show by themselves, and when asked for again."""

import math

import numpy as np

from .._protocols import NDArray
from .formats import grid_of
from .inquiry import BUG, EQUAL, NONDETERMINISTIC, RAISES, Inquiry, Verdict
from .sides import Answer
from .trials import listed
from .units import ROUNDOFF, difference, size_of


def one_raises(q: Inquiry) -> Verdict | None:
    f, g = q.of_f, q.of_g
    if f.error is None and g.error is None:
        return None
    told = [
        f"{name} raises {type(answer.error).__name__}: {answer.error}"
        for name, answer in (("f", f), ("g", g))
        if answer.error is not None
    ]
    alone = "" if len(told) == 2 else f", and {'g' if f.error else 'f'} returns"
    return Verdict(RAISES, " and ".join(told) + alone)


def other_shapes(q: Inquiry) -> Verdict | None:
    f, g = q.of_f.shapes, q.of_g.shapes
    if f == g:
        return None
    return Verdict(BUG, f"f gives results of shape {listed(f)}, and g {listed(g)}")


def same_bits(q: Inquiry) -> Verdict | None:
    """Equal to the last bit, and again when asked again; or not the same from call to call."""
    same = q.of_f.bits() == q.of_g.bits()
    again = {"f": [q.of_f], "g": [q.of_g]}
    for _ in range(1 if same else 2):
        again["f"].append(q.f(q.inputs))
        again["g"].append(q.g(q.inputs))
    spreads = {
        name: max((_apart(first, x) for x in rest), key=lambda d: float(np.abs(d).max(initial=0)))
        for name, (first, *rest) in again.items()
    }
    restless = [
        name
        for name, (first, *rest) in again.items()
        if any(x.bits() != first.bits() for x in rest)
    ]
    q.evidence["repeats_differ"] = restless
    if restless:
        return _restless(q, restless, spreads)
    if same:
        n = sum(x.size for x in q.of_f.arrays)
        return Verdict(EQUAL, f"all {n} results are equal to the last bit, and so when asked again")
    return None


def _apart(a: Answer, b: Answer) -> NDArray:
    if b.error is not None or a.shapes != b.shapes:
        return np.full(a.numbers(np.float64).size, np.inf)
    return difference(a, b)


def _restless(q: Inquiry, names: list[str], spreads: dict[str, NDArray]) -> Verdict:
    sizes = {name: size_of(spreads[name], q.scale) for name in names}
    spread = max(size.least if not size.broken else math.inf for size in sizes.values())
    d = q.eta_apart
    q.evidence["spread"] = spread
    who = " and ".join(names)
    own = "itself" if len(names) == 1 else "themselves"
    told = f"{who} does not repeat {own}: " if len(names) == 1 else f"{who} do not repeat {own}: "
    told += f"calls with the same inputs differ by {spread:.2g} units of rounding"
    benign = spread <= 2 * q.allowed and (d.least <= q.allowed or d.least <= 4 * spread)
    if benign and not d.broken:
        return Verdict(NONDETERMINISTIC, f"{told}, which another order of summation explains")
    forms = {grid_of(q, q.of_f if name == "f" else q.of_g) for name in names}
    form = forms.pop()
    if form is not None and not forms:
        coarse = ROUNDOFF[form] / q.roundoff
        if spread <= 4 * coarse and d.least <= 4 * coarse and not d.broken:
            told += f", by steps of {form}, to which the results are rounded at random"
            return Verdict(NONDETERMINISTIC, told)
    return Verdict(BUG, f"{told}, which no order of summation explains (dropout, a race, memory)")
