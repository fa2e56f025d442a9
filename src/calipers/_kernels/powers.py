"""Slopes that change as a power of the step which no extrapolation eliminates, as at a root of x.

Beside a term t**p the difference at t is off by a multiple of t**q, q being p - 1. From rung to
rung it changes by the same share of its change before, 4**-q; that of what is smooth is a 4th or a
16th. From q = 0 on, which is a logarithm's, there is no end to that: the slope is infinite.
"""

import math
from typing import Any

from .jitable import jitable
from .rungs import BETWEEN, FAR, NEAR, QUARTERS, RUNG, TAILS, natural_size, raised

# Shares that are slow to get anywhere; those of a jump at x, or of noise, are 4, and 16 in second
# differences. From `_ENDLESS` on no sum of the changes to come is told from infinity.
_SLOW, _JUMP, _ENDLESS = 0.5, 3.75, 1 - 2.0**-5
# The share of its bend that what is smooth has at the next rung is a 4th.
_SMOOTH = 0.3
# By how much shares may differ to be one, and how many noise hardly makes so.
_SAME, _ROW = 0.1, 4
# Times what noise leaves of a difference, from which on a change is none of it.
_SEEN = 4.0
# The powers of a slope without end: noise, and a jump, have -1, and in second differences -2.
_STEEPEST, _FLATTEST = -0.95, 0.02
# What tails and a rung may be off from one power, as a share of how far the tails are apart.
_FITS, _NEARLY = 0.02, 0.1
_HALVINGS = 40
# Times the noise of tails, and of rounding, from which on changes of rungs are surely none of it.
_BEYOND = 4.0
# And how far the near tail is to rise, of what a power says, where they are less.
_LEAST_RISEN, _MOST_RISEN = 0.25, 2.0


@jitable
def _share(state: Any, d: Any, sizes: Any, k: int, i: int, noise: float) -> Any:
    """Return the share of the change before it that `d` of output i changes by at rung k, or 0."""
    now, before = d[k, i] - d[k - 1, i], d[k - 1, i] - d[k - 2, i]
    most = raised(_JUMP, state.power)
    slow = _SLOW * abs(before) < abs(now) < most * abs(before) and now * before > 0
    rounding = max(noise, state.eps * sizes[k, i]) / raised(state.top * QUARTERS[k], state.power)
    if not slow or abs(now) <= _SEEN * rounding:
        return 0.0
    return now / before


@jitable
def _changes_to_come(state: Any, room: Any, k: int, i: int, noise: float) -> Any:
    """Return the sum of the slow changes of output i after rung k, or 0: a geometric series."""
    d, sizes, _, _ = room
    share = _share(state, d, sizes, k, i, noise) if k > _ROW else 0.0
    if share == 0.0:
        return 0.0
    for earlier in range(k - _ROW + 1, k):
        if abs(_share(state, d, sizes, earlier, i, noise) - share) > _SAME * share:
            return 0.0
    if share > _ENDLESS:
        return math.inf
    return abs(d[k, i] - d[k - 1, i]) * share / (1 - share)


@jitable
def far_to_go(state: Any, room: Any, i: int, noise: float) -> Any:
    """
    Return how far an estimate of output i is at most from where slow changes go; 0 without such.

    They are those up to its rung, beyond which there may be noise; or without end up to the last
    that are seen beside that. Extrapolation goes the same way, and not as far.
    """
    k = int(state.rung)
    while k > _ROW and _share(state, room.differences, room.sizes, k, i, noise) == 0:
        k -= 1
    if _changes_to_come(state, room, k, i, noise) == math.inf:
        return math.inf
    return _changes_to_come(state, room, int(room.kept[RUNG, i]), i, 0.0)


@jitable
def bend_left(state: Any, room: Any, i: int, noise: float) -> Any:
    """
    Return the last bend of output i if it has not fallen as that of what is smooth, or 0.

    Steps that reach over 0, from a small x, do not see what an even function has for a slope there:
    its differences are as good as 0, and its bends alone are more than that.
    """
    b, k = room.bends, int(state.rung)
    t, last = state.top * QUARTERS[k], abs(b[k, i])
    falls = k > 0 and last <= _SMOOTH * abs(b[k - 1, i])
    return 0.0 if falls or last * t <= _BEYOND * noise else last


@jitable
def _endless_share(state: Any, d: Any, sizes: Any, i: int) -> Any:
    """Return the share that `d` of output i changes by at the last rungs, if without end, or 0."""
    k = int(state.rung)
    if k < 3 or state.side != 0:
        return 0.0
    share, earlier = _share(state, d, sizes, k, i, 0.0), _share(state, d, sizes, k - 1, i, 0.0)
    return share if share > _ENDLESS and abs(earlier - share) <= _SAME * share else 0.0


@jitable
def goes_on(state: Any, d: Any, sizes: Any, i: int, noise: float) -> bool:
    """
    Tell whether `d` of output i, differences or bends, grow by one power from rung to rung.

    By more than noise, which makes rungs alike by chance. Where that ends, nothing says but shorter
    steps.
    """
    noise = _BEYOND * max(noise, state.eps * natural_size(state))
    endless = _endless_share(state, d, sizes, i) > 0
    return bool(endless and _share(state, d, sizes, int(state.rung) - 1, i, noise) > 0)


@jitable
def leads_to_the_tail(state: Any, room: Any, i: int) -> bool:
    """Tell whether differences do so up to the near tail: noise grows faster."""
    d, sizes, k = room.differences, room.sizes, int(state.rung)
    share = _endless_share(state, d, sizes, i)
    if share == 0:
        return False
    rungs = math.log(state.top * QUARTERS[k] / state.near) / math.log(4.0)
    times = rungs if share == 1 else share * math.expm1(rungs * math.log(share)) / (share - 1)
    risen = (d[NEAR, i] - d[k, i]) / (times * (d[k, i] - d[k - 1, i]))
    return bool(_LEAST_RISEN < risen < _MOST_RISEN)


@jitable
def _risen(q: float, log: float) -> Any:
    """Return how far t**q is from its value at the far tail, where t is exp(log) times as long."""
    return math.expm1(q * log)


@jitable
def has_no_end(state: Any, differences: Any, i: int) -> bool:
    """
    Tell whether differences of output i grow from the last rungs to all tails by one power.

    Noise grows, too, but hardly in the order of six steps and by the same power between them.
    """
    k = state.rung
    if state.tail < TAILS or k == 0:
        return False
    longer, last, near = differences[k - 1, i], differences[k, i], differences[NEAR, i]
    two, one, far = differences[BETWEEN + 1, i], differences[BETWEEN, i], differences[FAR, i]
    way = 1.0 if far > near else -1.0
    changes = min(way * (last - longer), way * (near - last), way * (two - near))
    if not min(changes, way * (one - two), way * (far - one)) > 0:
        return False
    # Squares of the steps of the far tails are 1, 2 and 6.
    to_one, to_two = 0.5 * math.log(2.0), 0.5 * math.log(6.0)
    to_near = math.log(state.near / state.far)
    to_last = math.log(state.top * QUARTERS[k] / state.far)
    grown = (near - far) / (last - near)
    low, high = _STEEPEST * state.power, _FLATTEST
    for _ in range(_HALVINGS):
        q = 0.5 * (low + high)
        if _risen(q, to_near) / (_risen(q, to_last) - _risen(q, to_near)) > grown:
            low = q
        else:
            high = q
    whole = _risen(q, to_near)
    off_one = abs((one - far) / (near - far) - _risen(q, to_one) / whole)
    off_two = abs((two - far) / (near - far) - _risen(q, to_two) / whole)
    rung = _risen(q, to_last + math.log(4.0)) - _risen(q, to_last)
    off_rung = abs((longer - last) / (near - far) - rung / whole)
    return bool(max(off_one, off_two) <= _FITS and off_rung <= _NEARLY * rung / whole)
