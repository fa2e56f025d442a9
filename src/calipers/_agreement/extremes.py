"""Results that are lost because something in between overflows or underflows."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from .._protocols import NDArray
from .._rounding import FORMATS
from .answers import Answer, comparable
from .inputs import is_movable, movable
from .inquiry import Inquiry
from .powers import STEP, degrees_of, scaled, unscaled
from .sides import BudgetError, Side
from .units import MOVES, Moves, difference, size_of
from .verdicts import COARSEST, GROSS, RANGE, SUSPECT, Verdict

# Formats below, of real numbers and of complex ones.
_NARROWER = {"float64": ("float32", "complex64"), "float32": ("float16", "complex64")}
_FAR, _LITTLE = 2.0**-COARSEST, 2.0  # moves of inputs: of much of them, and of last places
_DRAWN, _KNOWN = 40, 3  # moves by last places, and results at these that tell of their noise
_MOST = 0.5  # of the results that come and go
_DOUBLINGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of inputs, or halvings


def overflow(q: Inquiry) -> Verdict | None:
    """Results that are not finite where they are in the wider format, and fit."""
    if q.standard is None:
        return None
    r = q.standard[1].numbers(np.float64)
    fits = np.abs(r) <= q.largest
    for name, answer in q.answers.items():
        y = answer.numbers(np.float64)
        lost = (~np.isfinite(y) & fits) | (np.isnan(y) & ~np.isnan(r))
        wide = q.wide_answers.get(name)
        if wide is not None:
            lost &= np.isfinite(wide.numbers(np.float64))
        if lost.any() and not _wrong_beside(q, answer, wide):
            k = int(np.argmax(lost))
            return Verdict(
                RANGE,
                f"{name} gives {y[k]} where the result is {r[k]:.3g}: something in between "
                f"overflows or underflows{_OUTSIDE if np.isnan(y[k]) else ''}",
            )
    return None


def outside_by_rounding(q: Inquiry) -> Verdict | None:
    """
    Recognise results that are not finite by rounding, where nothing wider can be asked.

    They come and go with last places of the inputs, and the sides agree where they are finite, but
    for what such last places do to either; of a function that is not defined there they stay.
    """
    if q.standard is not None or not q.are_moved:
        return None
    alone = _finite(q.of_f) ^ _finite(q.of_g)
    if not alone.any():
        return None
    with suppress(BudgetError):
        back, mean, noise = _drawn_anew(q, q.inputs, q.seed + 700)
        if back < 1 or size_of(mean, noise).rms > q.allowed:
            return None
        k = int(np.argmax(alone))
        name, other = ("g", "f") if _finite(q.of_f)[k] else ("f", "g")
        y, r = (q.answers[side].numbers(np.float64)[k] for side in (name, other))
        told = f"{name} gives {y} where {other} gives {r:.3g}, and not where inputs are moved by "
        told += "last places: something in between is rounded to where a function is not defined"
        x = [x.copy() if is_movable(x) else x for x in q.moves(_FAR, q.seed + 800, wide=False)]
        if _drawn_anew(q, x, q.seed + 800)[0] < _MOST:
            told += "; but elsewhere it stays so: one side is defined for inputs for which the "
            return Verdict(SUSPECT, f"{told}other is not")
        return Verdict(RANGE, f"{told}, as the root of -1e-16")
    return None


def _finite(answer: Answer) -> NDArray:
    finite: NDArray = np.isfinite(answer.numbers(np.float64))
    return finite


def _drawn_anew(q: Inquiry, inputs: Sequence[Any], seed: int) -> tuple[float, NDArray, NDArray]:
    """
    Move inputs by last places, and see which results that are finite on one side alone are so then.

    Return the share of these, how far the sides are apart in the mean, and what last places do to
    that; to those that come and go, what they do to any of them.
    """
    f, g = q.f(inputs), q.g(inputs)
    nothing = 0.0, q.apart, q.apart
    if not comparable(f, g, q.of_f):
        return nothing
    alone = _finite(f) ^ _finite(g)
    moves, found = Moves(inputs), []
    times = np.zeros(alone.size, int)
    for k in range(_DRAWN):
        x = moves(_LITTLE * q.roundoff, seed + k, wide=False)
        f, g = q.f(x), q.g(x)
        if not comparable(f, g, q.of_f):
            return nothing
        y, r = f.numbers(np.float64), g.numbers(np.float64)
        found.append([y - r, y, r])
        times += np.isfinite(y - r)
        enough = times[alone] >= _KNOWN
        if k >= MOVES and (enough.all() or (k >= _DRAWN / 2 and not times[alone].any())):
            break
    drawn = np.array(found)
    known = np.isfinite(drawn[:, :1])
    count = np.maximum(1, times)
    drawn = np.where(known, drawn, 0.0)
    mean = drawn.sum(axis=0) / count
    squares = np.square(np.where(known, drawn - mean, 0.0)).sum(axis=0)
    noise = np.sqrt(squares / count).max(axis=0)
    come_and_go = times < len(found)
    noise[come_and_go] = noise.max(where=come_and_go, initial=0.0)
    back = np.count_nonzero(times[alone]) / np.count_nonzero(alone) if alone.any() else 1.0
    return back, mean[0], np.hypot(noise, q.roundoff * np.abs(mean[1]))


_AS_WRONG = 0.5
_OUTSIDE = ", or is rounded to where a function is not defined, as the root of -1e-8"


def _wrong_beside(q: Inquiry, answer: Answer, wide: Answer | None) -> bool:
    """Tell whether results that are not lost, or all, are as wrong in the wider format."""
    assert q.standard is not None
    if wide is None:
        return False
    r = q.standard[1]
    off, there = q.off(answer), difference(wide, r)
    kept = np.isfinite(off)
    if not kept.any():
        known = np.isfinite(there)
        return bool(np.linalg.norm(there[known]) > GROSS * np.linalg.norm(r.numbers(float)[known]))
    if size_of(off[kept], q.unit.values[kept]).least <= q.allowed:
        return False
    known = kept & np.isfinite(there)
    return bool(np.linalg.norm(there[known]) > _AS_WRONG * np.linalg.norm(off[kept]))


def nothing_left(q: Inquiry) -> Verdict | None:
    """
    Recognise results that are 0 where they should not be, and not finite for larger inputs.

    A difference that has lost its digits, or a branch that is wrong, is not infinite there.
    """
    if q.standard is None or q.differ_wide:
        return None
    side, power = q.standard[0], -FORMATS[q.form].lowest // 4
    for name, answer in q.answers.items():
        zero = (answer.numbers(np.float64) == 0) & (np.abs(q.off(answer)) > q.allowed * q.scale)
        if not zero.any():
            continue
        for k in movable(q.inputs):
            there = q.sides[name](scaled(q.inputs, (k,), power))
            exact = side(scaled(q.wide_inputs, (k,), power))
            if not comparable(there, exact, answer):
                continue
            fits = np.abs(exact.numbers(np.float64)) <= q.largest
            lost = zero & fits & ~np.isfinite(there.numbers(np.float64))
            if np.count_nonzero(lost) > np.count_nonzero(zero) / 2:
                return Verdict(
                    RANGE,
                    f"{name} gives 0 in {np.count_nonzero(zero)} of {zero.size} results "
                    f"that are not, and no finite number with argument {q.title(k)} times "
                    f"2**{power}: something in between underflows, and overflows",
                )
    return None


def overflow_alone(q: Inquiry) -> Verdict | None:
    """
    Recognise results that are not finite on one side, where nothing wider can be asked.

    What overflows is finite for smaller inputs, and of these not in a narrower format; so is what
    underflows, for larger ones. What is not defined is so in both.
    """
    finite = {name: np.isfinite(y.numbers(np.float64)) for name, y in q.answers.items()}
    kept, alone = finite["f"] & finite["g"], finite["f"] ^ finite["g"]
    names = [name for name, there in finite.items() if (alone & ~there).any()]
    if q.standard is not None or q.form not in _NARROWER or len(names) != 1:
        return None
    if size_of(q.apart[kept], q.scale[kept]).least > q.allowed:
        return None
    name, other = names[0], "g" if names[0] == "f" else "f"
    narrower = _NARROWER[q.form][0]
    with suppress(BudgetError):
        for size, powers in _other_sizes(q, math.frexp(FORMATS[narrower].largest)[1]).items():
            left = alone.copy()
            for power in powers:
                left &= ~_overflows(q, name, other, power)
                if not left.any():
                    k = int(np.argmax(alone))
                    y, r = (q.answers[side].numbers(np.float64)[k] for side in (name, other))
                    return Verdict(
                        RANGE,
                        f"{name} gives {y} where {other} gives {r:.3g}; for {size} inputs they "
                        f"agree, and there {name} is not finite in {narrower}: something in "
                        f"between overflows or underflows",
                    )
    return None


def _other_sizes(q: Inquiry, most: int) -> dict[str, list[int]]:
    """Return powers of two to multiply inputs by, for a format that has numbers below 2**most."""
    sizes = [np.abs(q.inputs[k]) for k in movable(q.inputs)]
    top = max((float(x.max(where=np.isfinite(x), initial=0)) for x in sizes), default=0.0)
    # Powers of the largest numbers that fit leave the range; exponentials do so of lesser ones.
    near, own = 3 * most // 4, math.frexp(top)[1]
    return {
        "smaller": [min(-1, near - own), *(-k for k in _DOUBLINGS)],
        "larger": [max(1, -near - own), *_DOUBLINGS],
    }


def _overflows(q: Inquiry, name: str, other: str, power: int) -> NDArray:
    """Tell which results are alike at inputs times 2**power, and lost in a narrower format."""
    places = tuple(movable(q.inputs))
    x = scaled(q.inputs, places, power)
    kinds = _NARROWER[q.form]
    narrow = [a.astype(kinds[a.dtype.kind == "c"]) if k in places else a for k, a in enumerate(x)]
    y, r = q.sides[name](x), q.sides[other](x)
    there, beside = q.sides[name](narrow), q.sides[other](narrow)
    if not comparable(y, r, there, beside, q.of_f):
        return np.zeros(q.apart.size, bool)
    sizes = np.abs(r.numbers(np.float64))
    alike = np.isfinite(sizes) & (np.abs(difference(y, r)) <= GROSS * sizes)
    finite, known = (np.isfinite(a.numbers(np.float64)) for a in (there, beside))
    found: NDArray = alike & ~finite & known
    return found


def better_when_rescaled(q: Inquiry) -> Verdict | None:
    """Errors that go when an argument, of which the result is a power, is scaled by one of two."""
    if q.standard is None:
        return None
    side, r = q.standard
    for name, before in sorted(q.errors.items(), key=lambda item: -item[1].absolute):
        if before.least <= q.allowed and not before.broken:
            continue
        for k in movable(q.inputs):
            found = _scaled_error(q, side, r, q.sides[name], k)
            if found is not None and found < before.rms / 10 and found <= 10 * q.allowed:
                return Verdict(
                    RANGE,
                    f"the error of {name} falls from {before.rms:.2g} to {found:.2g} units when "
                    f"argument {q.title(k)} is scaled to 1: something in between overflows or "
                    "underflows",
                )
    return None


def _scaled_error(q: Inquiry, side: Side, r: Answer, own: Side, k: int) -> float | None:
    """Return the error of a side whose argument is scaled, if results grow as a power of that."""
    finite = np.abs(q.inputs[k][np.isfinite(q.inputs[k])])
    if not finite.size or finite.max() == 0:
        return None
    power = -math.frexp(float(finite.max()))[1]
    if abs(power) < -FORMATS[q.form].lowest // 4:  # nowhere near the ends of the range
        return None
    degrees = degrees_of(r, side(scaled(q.wide_inputs, (k,), STEP)))
    if degrees is None or not any(degrees):
        return None
    y = unscaled(own(scaled(q.inputs, (k,), power)), degrees, power)
    return size_of(q.off(y), q.unit.values).rms if comparable(y, r) else None
