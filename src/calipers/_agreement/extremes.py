"""Results that are lost because something in between overflows or underflows."""

import numpy as np

from .inquiry import RANGE, Inquiry, Verdict, movable
from .sides import Answer, Side
from .units import size_of


def overflow(q: Inquiry) -> Verdict | None:
    """Results that are not finite where they are in the wider format, and fit."""
    if q.standard is None:
        return None
    r = q.standard[1].numbers(np.float64)
    fits = np.abs(r) <= q.largest
    for name, answer in (("f", q.of_f), ("g", q.of_g)):
        y = answer.numbers(np.float64)
        lost = (~np.isfinite(y) & fits) | (np.isnan(y) & ~np.isnan(r))
        wide = q.wide_answers.get(name)
        if wide is not None:
            lost &= np.isfinite(wide.numbers(np.float64))
        if lost.any():
            k = int(np.argmax(lost))
            return Verdict(
                RANGE,
                f"{name} gives {y[k]} where the result is {r[k]:.3g}: something in between "
                f"overflows or underflows",
            )
    return None


def better_when_rescaled(q: Inquiry) -> Verdict | None:
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
