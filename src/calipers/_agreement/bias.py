"""A factor that a narrow format's rounding hides from each result, and not from all of them."""

import math
from contextlib import suppress

import numpy as np

from .answers import comparable
from .inputs import widened
from .inquiry import Inquiry
from .sides import BudgetError
from .units import ROUNDOFF, difference
from .verdicts import COARSEST, SUSPECT, Verdict

_DRAWS = 8
_SURE = 8.0  # standard errors of the mean
_FELT = 0.25  # of the noise: functions that are not linear make less of what is unbiased
_CONSTANT = 4.0  # roundings to the format, that rounded constants may make
_BEHIND = 2.0**-8  # of a sum, that its terms together are rounded by


def falls_behind(q: Inquiry, form: str) -> bool:
    """Tell whether sums in a format may be so large beside their terms that they stay behind."""
    return q.length * ROUNDOFF[form] >= _BEHIND


def too_large(q: Inquiry, name: str | None = None, form: str | None = None) -> Verdict | None:
    """
    Recognise results that are too large on average, wherever the inputs are.

    Rounding to nearest is as often up as down, and sums that fall behind in a narrow format, or are
    truncated, are too small: but not in `form`, if that has digits enough. Where nothing wider can
    be asked, `name` has that format, and beside its roundings the other side has none.
    """
    if q.eta_apart.broken or (q.standard is None and name is None):
        return None
    with suppress(BudgetError):  # that there is noise is known without
        return _too_large(q, name, form)
    return None


def _too_large(q: Inquiry, name: str | None, form: str | None) -> Verdict | None:
    if q.standard is not None:
        name, side = "f" if q.eta_f.rms > q.eta_g.rms else "g", q.standard[0]
    else:
        side = q.g if name == "f" else q.f
    assert name is not None
    weight = np.where(q.scale > 0, 1 / q.scale, 0.0)
    slopes, noise, sizes = [], [], []
    for k in range(_DRAWS):
        x = q.moves(2.0**-COARSEST, q.seed + 1100 + k, wide=False)
        y, r = q.sides[name](x), side(x if q.standard is None else widened(x))
        if not comparable(y, r, q.of_f):
            return None
        d, whole = difference(y, r) * weight, r.numbers(np.float64) * weight
        size = float(whole @ whole)
        if not (np.isfinite(d).all() and 0 < size / d.size < math.inf):
            return None
        slopes.append(float(d @ whole) / size)
        noise.append(math.sqrt(float(d @ d) / size))
        sizes.append(math.sqrt(size / d.size))
    mean = float(np.mean(slopes))
    error = float(np.std(slopes, ddof=1)) / math.sqrt(_DRAWS)
    q.evidence["slope"] = mean
    least = max(_SURE * error, _FELT * float(np.mean(noise)))
    both = form is not None and not falls_behind(q, form)
    if both and form is not None:
        least = max(least, _CONSTANT * ROUNDOFF[form] / q.roundoff / float(np.mean(sizes)))
    if mean <= least and not (both and mean < -least):
        return None
    way = "large" if mean > 0 else "small"
    return Verdict(
        SUSPECT,
        f"the errors of {name} look like rounding to lower precision, but it is "
        f"{100 * abs(mean):.2g} % too {way} on average, which rounding to nearest does not cause: "
        f"f and g differ by a factor",
    )
