"""A factor that a narrow format's rounding hides from each result, and not from all of them."""

import math
from contextlib import suppress

import numpy as np

from .inquiry import Inquiry
from .sides import BudgetError, widened
from .units import difference
from .verdicts import COARSEST, SUSPECT, Verdict

_DRAWS = 8
_SURE = 8.0  # standard errors of the mean
_FELT = 0.25  # of the noise: functions that are not linear make less of what is unbiased


def too_large(q: Inquiry) -> Verdict | None:
    """
    Recognise results that are too large on average, wherever the inputs are.

    Rounding to nearest is as often up as down, and sums that fall behind in a narrow format, or are
    truncated, are too small.
    """
    if q.standard is None or q.eta_apart.broken:
        return None
    with suppress(BudgetError):  # that there is noise is known without
        return _too_large(q)
    return None


def _too_large(q: Inquiry) -> Verdict | None:
    assert q.standard is not None
    name = "f" if q.eta_f.rms > q.eta_g.rms else "g"
    side, weight = q.standard[0], np.where(q.scale > 0, 1 / q.scale, 0.0)
    slopes, noise = [], []
    for k in range(_DRAWS):
        x = q.moves(2.0**-COARSEST, q.seed + 1100 + k, wide=False)
        y, r = q.sides[name](x), side(widened(x))
        if y.error or r.error or not y.forms == r.forms == q.of_f.forms:
            return None
        d, whole = difference(y, r) * weight, r.numbers(np.float64) * weight
        size = float(whole @ whole)
        if not (np.isfinite(d).all() and 0 < size < math.inf):
            return None
        slopes.append(float(d @ whole) / size)
        noise.append(math.sqrt(float(d @ d) / size))
    mean = float(np.mean(slopes))
    error = float(np.std(slopes, ddof=1)) / math.sqrt(_DRAWS)
    q.evidence["slope"] = mean
    if mean <= max(_SURE * error, _FELT * float(np.mean(noise))):
        return None
    return Verdict(
        SUSPECT,
        f"the errors of {name} are those of a narrower format, but it is {100 * mean:.2g} % too "
        f"large on average, as no rounding to nearest is: another factor",
    )
