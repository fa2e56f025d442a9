"""What the answers mean: the rules, in the order in which they are applied."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np

from .._protocols import NDArray
from ..emulation import bit_rule, round_array
from .inquiry import (
    AMPLIFIED,
    BUG,
    COARSE,
    COARSEST,
    EQUAL,
    EXPLAINED,
    FLAT,
    FLIPS,
    ILL,
    LAYOUT,
    NONDETERMINISTIC,
    RAISES,
    RANGE,
    REDRAW,
    REDRAWN,
    REDUCED,
    ROUNDING,
    STEADY,
    SUSPECT,
    SYSTEMATIC,
    UNSTABLE,
    Inquiry,
    Verdict,
    movable,
    plain,
)
from .sides import Answer, Side
from .units import ROUNDOFF, cosine, difference, moved, size_of

_ANOTHER = 0.5  # a cosine below which a difference is taken for another one
_CHANGED = 0.7  # one where it is half way to that
_LEAST, _MOST = 0.22, 1.0  # moves that change noise half way, in units of its size
_CHANCE = 0.1  # by which cosines rise by chance
_MANY = 16  # different numbers that are no accident on a grid
_STORED = ("float8_e5m2", "float8_e4m3", "bfloat16", "float16", "float32")

Rule = Callable[[Inquiry], Verdict | None]


def decide(q: Inquiry) -> Verdict:
    """Apply the rules until one decides."""
    for rule in RULES:
        verdict = rule(q)
        if verdict is not None:
            return verdict
    raise AssertionError  # the last rule always decides


def _raised(q: Inquiry) -> Verdict | None:
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


def _shapes(q: Inquiry) -> Verdict | None:
    f, g = q.of_f.shapes, q.of_g.shapes
    if f == g:
        return None
    return Verdict(BUG, f"f gives results of shape {_list(f)}, and g {_list(g)}")


def _list(shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(map(str, shapes)) or "none"


def _bits(q: Inquiry) -> Verdict | None:
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
    forms = {_grid(q, q.of_f if name == "f" else q.of_g) for name in names}
    form = forms.pop()
    if form is not None and not forms:
        coarse = ROUNDOFF[form] / q.roundoff
        if spread <= 4 * coarse and d.least <= 4 * coarse and not d.broken:
            told += f", by steps of {form}, to which the results are rounded at random"
            return Verdict(NONDETERMINISTIC, told)
    return Verdict(BUG, f"{told}, which no order of summation explains (dropout, a race, memory)")


# Out of range


def _overflow(q: Inquiry) -> Verdict | None:
    """Results that are not finite where they are in the wider format, and fit."""
    if q.standard is None:
        return None
    r = q.standard[1].numbers(np.float64)
    fits = np.abs(r) <= _largest(q)
    for name, answer in (("f", q.of_f), ("g", q.of_g)):
        lost = ~np.isfinite(answer.numbers(np.float64)) & fits
        wide = q.wide_answers.get(name)
        if wide is not None:
            lost &= np.isfinite(wide.numbers(np.float64))
        if lost.any():
            k = int(np.argmax(lost))
            return Verdict(
                RANGE,
                f"{name} gives {answer.numbers(np.float64)[k]} where the result is {r[k]:.3g}, "
                f"which {q.form} holds: something in between overflows or underflows",
            )
    return None


def _largest(q: Inquiry) -> float:
    return {"float16": 65504.0, "float32": 3.4028235e38}.get(q.form, 1.7e308)


def _rescaled(q: Inquiry) -> Verdict | None:
    """Errors that go when an argument, of which the result is a power, is scaled by one of two."""
    if q.standard is None:
        return None
    side, r = q.standard
    for name, own, answer in (("f", q.f, q.of_f), ("g", q.g, q.of_g)):
        before = q.error(answer)
        if before.least <= q.allowed and not before.broken:
            continue
        for k in movable(q.inputs):
            found = _scaled_error(q, side, r, own, k)
            if found is not None and found < before.rms / 10 and found <= 10 * q.allowed:
                return Verdict(
                    RANGE,
                    f"the error of {name} falls from {before.rms:.2g} to {found:.2g} units when "
                    f"argument {k} is scaled to 1: something in between overflows or underflows",
                )
    return None


def _scaled_error(q: Inquiry, side: Side, r: Answer, own: Side, k: int) -> float | None:
    x = q.inputs[k]
    finite = np.abs(x[np.isfinite(x)])
    if not finite.size or finite.max() == 0:
        return None
    power = -int(np.round(np.log2(float(finite.max()))))
    if abs(power) < 4:
        return None
    factor = 2.0**power
    there = [v * v.dtype.type(factor) if j == k else v for j, v in enumerate(q.inputs)]
    wide = [v * v.dtype.type(factor) if j == k else v for j, v in enumerate(q.wider)]
    moved_r = side(wide)
    if moved_r.error is not None or moved_r.shapes != r.shapes:
        return None
    a, b = r.numbers(np.float64), moved_r.numbers(np.float64)
    good = np.isfinite(a) & np.isfinite(b) & (a != 0)
    if not good.any() or not (np.isfinite(a) == np.isfinite(b)).all():
        return None
    with np.errstate(all="ignore"):
        degrees = np.log2(np.abs(b[good] / a[good])) / power
    degree = float(np.median(degrees))
    if abs(degree - round(degree)) > 1e-6 or round(degree) == 0:
        return None
    back = 2.0 ** (-power * round(degree))
    if not np.allclose(b[good] * back, a[good], rtol=1e-9, atol=0):
        return None
    y = own(there)
    if y.error is not None or y.shapes != r.shapes:
        return None
    d = y.numbers(np.float64) * back - a
    same = (y.numbers(np.float64) * back == a) | ~np.isfinite(a)
    return size_of(np.where(same, 0.0, d), q.unit.values).rms


# Within rounding


def _within(q: Inquiry) -> Verdict | None:
    """Both sides as near to the truth as the inputs are: rounding, however it comes about."""
    if not _near(q):
        return None
    hidden = _hidden(q)
    if hidden is not None:
        return hidden
    kappa = q.unit.kappa if q.standard is not None else 0.0
    size = _worst(q)
    if kappa > ILL:
        return Verdict(
            AMPLIFIED,
            f"the function magnifies a change of the inputs' last places {kappa:.3g} times; in "
            f"units of that the error is {size:.2g}, of {q.allowed:.3g} that rounding may take",
        )
    mixed, agree = _slices_and_layouts(q)
    if mixed is not None:
        return mixed
    said = f"the error is {size:.2g} units of rounding, of {q.allowed:.3g} allowed"
    if agree is not None:
        return Verdict(LAYOUT, f"{said}; {agree} both sides are equal to the last bit")
    return Verdict(ROUNDING, said)


def _near(q: Inquiry) -> bool:
    if q.standard is None:
        return q.eta_apart.least <= q.allowed and not q.eta_apart.broken
    sizes = q.eta_f, q.eta_g
    return all(size.least <= q.allowed and not size.broken for size in sizes)


def _worst(q: Inquiry) -> float:
    if q.standard is None:
        return q.eta_apart.least
    return max(q.eta_f.least, q.eta_g.least)


def _hidden(q: Inquiry) -> Verdict | None:
    """Another function, whose difference the working format's rounding covers."""
    far = q.eta_wide
    if far is not None:
        if not q.differ_wide:
            return None
        return Verdict(
            SUSPECT,
            f"within rounding here, but in the wider format the sides are {far.rms:.2g} units of "
            f"its rounding apart, where {q.eta_apart.rms:.2g} would be expected: another function",
        )
    kept = _kept(q)
    if kept is None or kept[0] <= 0.05 or kept[0] <= 5 * kept[1]:
        return None
    if q.eta_apart.least * math.sqrt(kept[0]) > SYSTEMATIC:
        return Verdict(
            SUSPECT,
            f"within rounding here, but the difference stays alike (cosine {kept[0]:.2g}) when the "
            f"inputs are moved by last places: it is no rounding",
        )
    return None


def _kept(q: Inquiry) -> tuple[float, float] | None:
    """Return how alike differences at moved inputs are, and what chance would make of that."""
    differences = [q.apart]
    for k in range(REDRAWN - 1):
        f, g = q.at_moved(REDRAW * q.roundoff, q.seed + 31 * (k + 1))
        if f.error is None and g.error is None and f.shapes == g.shapes == q.of_f.shapes:
            differences.append(difference(f, g))
    if len(differences) < 3:
        return None
    found = [cosine(a, b, q.scale) for a, b in combinations(differences, 2)]
    q.evidence["likeness"] = float(np.mean(found))
    return float(np.mean(found)), float(np.std(found)) / math.sqrt(len(differences))


def _slices_and_layouts(q: Inquiry) -> tuple[Verdict | None, str | None]:
    """Look for a side whose rows mix, and for a layout in which the sides agree."""
    agree = None
    for name, part, inputs in q.slices():
        f, g = q.f(inputs), q.g(inputs)
        if f.error is not None or g.error is not None:
            continue
        mixes = [_mixes(q, whole, own, part) for whole, own in ((q.of_f, f), (q.of_g, g))]
        if mixes[0] != mixes[1]:
            who = "f" if mixes[0] else "g"
            told = f"{who} gives a row other results in {name} than among all: its rows mix"
            return Verdict(BUG, told), None
        if agree is None and f.bits() == g.bits() and not _by_chance(q, f):
            agree = f"in {name}"
    for name, inputs in q.layouts() if agree is None else ():
        f, g = q.f(inputs), q.g(inputs)
        if f.error is None and g.error is None and f.bits() == g.bits() and not _by_chance(q, f):
            return None, name
    return None, agree


def _by_chance(q: Inquiry, part: Answer) -> bool:
    """Tell whether so few results might be equal although some of all are not."""
    differing = np.count_nonzero(q.apart) / max(1, q.apart.size)
    count = sum(x.size for x in part.arrays)
    return bool((1 - differing) ** count > 0.01)


def _mixes(q: Inquiry, whole: Answer, own: Answer, part: slice) -> bool:
    """Tell whether a part of a batch has other results alone."""
    pairs = list(zip(whole.arrays, own.arrays, strict=False))
    if not all(a.ndim and a[part].shape == b.shape for a, b in pairs):
        return False
    units = q.scale
    start = 0
    for a, b in pairs:
        reals = 2 if a.dtype.kind == "c" else 1
        unit = units[start : start + a.size * reals].reshape(a.shape[0], -1)[part].reshape(-1)
        start += a.size * reals
        d = difference(Answer((a[part],)), Answer((b,)))
        if size_of(d, np.ascontiguousarray(unit)).least > 2 * q.allowed:
            return True
    return False


# Beyond rounding


def _steady(q: Inquiry) -> Verdict | None:
    """Recognise another function, whose difference stays however far the inputs are moved.

    Rounding, to whatever format, would be another one then; and so would a jump.
    """
    if not q.differ_wide or q.eta_apart.broken:
        return None
    found = q.likeness(2.0**-COARSEST, q.seed + 800)
    q.evidence["likeness_far"] = found
    return _bug(q) if found is not None and found > STEADY else None


def _by_layout(q: Inquiry) -> Verdict | None:
    """Recognise a side that is right only for arrays without gaps."""
    inputs = plain(q.inputs)
    if inputs is None or q.standard is None:
        return None
    for name, side, answer in (("f", q.f, q.of_f), ("g", q.g, q.of_g)):
        before = q.error(answer)
        if before.least <= q.allowed and not before.broken:
            continue
        other = side(inputs)
        if other.error is not None or other.shapes != answer.shapes:
            continue
        after = q.error(other)
        if after.least <= q.allowed and not after.broken:
            return Verdict(
                BUG,
                f"{name} is {before.rms:.3g} units off for arrays of this layout, and right for "
                f"the same numbers in C order: it does not heed their strides",
            )
    return None


def _jumps(q: Inquiry) -> Verdict | None:
    """Results that jump where the function does: at ties, which last places decide."""
    if q.standard is None:
        return None
    side, r = q.standard
    out = [np.abs(difference(y, r)) > q.allowed * q.unit.values for y in (q.of_f, q.of_g)]
    outliers = out[0] | out[1]
    if not outliers.any() or q.eta_f.broken or q.eta_g.broken:
        return None
    rest = ~outliers
    values = r.numbers(np.float64)
    low, high = values.copy(), values.copy()
    delta = q.allowed * q.roundoff
    for k in range(FLIPS):
        answer = side(moved(q.inputs, delta, q.seed + 500 + k, wide=True))
        if answer.error is None and answer.shapes == r.shapes:
            low = np.minimum(low, answer.numbers(np.float64))
            high = np.maximum(high, answer.numbers(np.float64))
    room = q.allowed * q.unit.values
    covered = np.ones(values.size, bool)
    for y in (q.of_f, q.of_g):
        numbers = y.numbers(np.float64)
        covered &= (numbers >= low - room) & (numbers <= high + room)
    # An envelope that is wide everywhere covers anything.
    jumped = (high - low) > 4 * q.allowed * q.unit.values
    q.evidence["jumps"] = int(np.count_nonzero(jumped))
    share = np.count_nonzero(covered & jumped & outliers) / np.count_nonzero(outliers)
    unit = q.unit.values
    small = all(
        not rest.any() or size_of(difference(y, r)[rest], unit[rest]).least <= q.allowed
        for y in (q.of_f, q.of_g)
    )
    if share >= 0.9 and small:
        n = int(np.count_nonzero(outliers))
        return Verdict(
            AMPLIFIED,
            f"{n} results differ beyond rounding, and the function itself jumps as far when its "
            f"inputs are moved by last places",
        )
    return None


def _on_a_grid(q: Inquiry) -> Verdict | None:
    """Recognise results that are numbers of a narrower format, where the other side's are not."""
    coarse = {name: _grid(q, answer) for name, answer in (("f", q.of_f), ("g", q.of_g))}
    for name, other in (("g", "f"), ("f", "g")):
        form = coarse[name]
        if form is not None and coarse[other] != form:
            size = q.eta_apart
            most = 4 * ROUNDOFF[form] * math.sqrt(q.length) / q.roundoff
            if size.broken == 0 and size.normwise <= most:
                return Verdict(
                    REDUCED,
                    f"the sides are {size.rms:.2g} units apart, and all results of {name} are "
                    f"numbers of {form}: it sums, or returns, in that format",
                    form,
                    None,
                )
    return None


def _grid(q: Inquiry, answer: Answer) -> str | None:
    """Return the narrowest format that holds all of many different results."""
    numbers = answer.numbers(np.float64)
    numbers = numbers[np.isfinite(numbers) & (numbers != 0)]
    # Few, or small integers, are in any format.
    if np.unique(np.abs(numbers)).size < _MANY or (numbers == np.rint(numbers)).all():
        return None
    for form in _STORED:
        if ROUNDOFF[form] <= q.roundoff:
            break
        rule = bit_rule(form, numbers.dtype)
        if np.array_equal(round_array(numbers, rule), numbers):
            return form
    return None


def _reduced(q: Inquiry) -> Verdict | None:
    """Errors that inputs, or results, in a narrower format explain."""
    if q.standard is None:
        return None
    side, r = q.standard
    for name, answer in (("g", q.of_g), ("f", q.of_f)):
        size = q.error(answer)
        if size.least <= q.allowed or size.broken:
            continue
        d = difference(answer, r)
        for form, truncate, places in _candidates(q):
            inputs = q.narrowed(form, truncate, places)
            if inputs is None:
                continue
            then = side(inputs)
            if then.error is not None or then.shapes != r.shapes:
                continue
            left = size_of(difference(answer, then), q.unit.values)
            if left.broken == 0 and left.absolute**2 < (1 - EXPLAINED) * _power(d):
                which = _arguments(places, q)
                way = ", truncated" if truncate else ""
                share = 1 - left.absolute**2 / _power(d)
                return Verdict(
                    REDUCED,
                    f"{name} is {size.rms:.2g} units off, of which {which} rounded to {form}{way} "
                    f"explain {100 * share:.3g} %",
                    form,
                    tuple(places),
                )
    return None


def _power(d: NDArray) -> float:
    known = d[np.isfinite(d)]
    return float(np.mean(known**2)) if known.size else 0.0


def _arguments(places: Sequence[int], q: Inquiry) -> str:
    if len(places) == len(movable(q.inputs)) > 1:
        return "all arguments"
    return "argument " + " and ".join(map(str, places))


def _candidates(q: Inquiry) -> Iterator[tuple[str, bool, list[int]]]:
    """Give narrower formats, ways of rounding and places of arguments, the likeliest first."""
    own = ROUNDOFF[q.form]
    forms = [form for form, roundoff in ROUNDOFF.items() if roundoff > own and form != "float64"]
    places = movable(q.inputs)
    groups = [places, *([k] for k in places if len(places) > 1)]
    groups += [list(pair) for pair in combinations(places, 2) if 2 < len(places) < 5]
    for group in groups:
        for form in forms:
            for truncate in (False, True):
                yield form, truncate, group


def _unstable(q: Inquiry) -> Verdict | None:
    """Recognise an algorithm that loses as many digits of the wider format as of this one."""
    far = q.eta_wide
    if far is None or far.broken or q.differ_wide or far.least <= q.allowed:
        return None
    return _loses_digits(q)


def _loses_digits(q: Inquiry) -> Verdict | None:
    """Recognise one function, by the wider format, of which a side loses much in this one."""
    if q.eta_wide is None or q.differ_wide:
        return None
    errors = {"f": q.eta_f, "g": q.eta_g}
    name = max(errors, key=lambda name: errors[name].least)
    return Verdict(
        UNSTABLE,
        f"in the wider format both sides agree, and here {name} is {errors[name].least:.2g} units "
        f"off, of {q.allowed:.3g} that rounding may take: its algorithm loses digits",
    )


def _noise(q: Inquiry) -> Verdict | None:
    """
    Recognise rounding by its becoming another one when inputs are moved.

    Noise does so when they are moved by about half of its own size, whatever format it is of; the
    difference of two functions does so elsewhere, or never.
    """
    flat = q.standard is not None and q.unit.kappa < FLAT
    if q.eta_apart.broken or flat:
        return None
    reach = _reach(q)
    if reach is None:
        return None
    size = q.eta_apart.rms * q.roundoff
    if reach >= COARSE * q.roundoff and _LEAST < reach / size < _MOST:
        form = _in_between(q, size)
        if form is not None:
            return Verdict(
                REDUCED,
                f"the sides are {q.eta_apart.rms:.2g} units apart, by an error that becomes "
                f"another one when inputs are moved by 2**{math.log2(reach):.0f} of themselves, "
                f"and not before: something in between is held in about as many bits as {form}",
                form,
                None,
            )
    if reach < COARSE * q.roundoff and q.eta_wide is None:
        return Verdict(
            UNSTABLE,
            f"the sides are {q.eta_apart.least:.2g} units apart, of {q.allowed:.3g} that rounding "
            f"may take, by an error that is another one when inputs are moved by last places: one "
            f"of them loses digits",
        )
    return None


def _in_between(q: Inquiry, size: float) -> str | None:
    """Return the format in which sums may be held, for their errors to be of a size.

    That many roundings of a finer format give the same size cannot be told from few of a coarser
    one: of those in which sums are held, the coarsest is named.
    """
    for form in ("bfloat16", "float16", "float32"):
        own = ROUNDOFF[form]
        if own > q.roundoff and own / 6 < size < own * math.sqrt(q.length):
            return form
    return None


def _reach(q: Inquiry) -> float | None:
    """Return how far inputs are moved until the sides' difference is another; None if it stays."""
    alike = [(q.roundoff, 1.0)]
    finest = int(-math.log2(q.roundoff)) - 1
    for k, power in enumerate(range(finest, COARSEST - 1, -2 if finest < 30 else -3)):
        found = q.likeness(2.0**-power, q.seed + 900 + k)
        if found is None:
            return None
        alike.append((2.0**-power, found))
        if found < _ANOTHER:
            break
    q.evidence["likeness_by_move"] = alike[1:]
    cosines = [found for _, found in alike]
    # Noise that has become another does not become itself again.
    if cosines[-1] >= _ANOTHER or any(b > a + _CHANCE for a, b in pairwise(cosines)):
        return None
    # Where it is half way to that, between two moves, along a straight line of the logarithm.
    k = next(k for k, (_, found) in enumerate(alike) if found < _CHANGED)
    (before, above), (after, below) = alike[k - 1 : k + 1]
    share = (above - _CHANGED) / (above - below)
    return float(before * (after / before) ** share)


def _bug(q: Inquiry) -> Verdict:
    size = q.eta_apart
    told = f"the sides are {size.rms:.3g} units of rounding apart, of {q.allowed:.3g} allowed"
    if size.broken:
        told = f"{size.broken} results are not finite on one side alone"
    if q.differ_wide:
        told += ", and as far in the wider format: another function"
    return Verdict(BUG, told)


RULES: tuple[Rule, ...] = (
    _raised,
    _shapes,
    _bits,
    _overflow,
    _within,
    _steady,
    _by_layout,
    _jumps,
    _reduced,
    _rescaled,
    _unstable,
    _on_a_grid,
    _noise,
    _loses_digits,
    _bug,
)
