"""Functions that are not smooth: kinks, power laws, and pieces that rounding makes constant."""

import math
from typing import Any

from . import jitable
from .ladder_extrapolate import (
    BEST,
    BETWEEN,
    ERROR,
    FAR,
    LEVEL,
    N_PROBES,
    NEAR,
    QUARTERS,
    grows,
    natural_size,
    noise_left,
    raised,
    stays,
)

# Bits of numbers that are exact, mostly; those of float16 have one more.
_FEW_BITS = 10
_SPLIT = 1 + 2.0 ** (53 - _FEW_BITS)
# Roundings of f by which short steps may differ, and times that what leaves a slope grows from
# one level to the next at a jump. What bends leaves it by 64 times as much.
_STRAIGHT = 8.0
_ABRUPT = 1024.0
# Jumps are no more than some roundings of max(1, |x|), which f may have computed with, nor than a
# share of f: else they are kinks of f, or waves.
_INSIDE = 256.0
_LARGEST_SHARE = 2.0**-8


@jitable
def largest_jump(state: Any, sizes: Any, i: int) -> Any:
    """Return how large a jump of output i between pieces may be, or 0 if it would not show."""
    if state.power != 1:
        return 0.0
    largest = min(_INSIDE * state.eps * natural_size(state), _LARGEST_SHARE * sizes[0, i])
    return largest if _ABRUPT * state.eps * sizes[state.level, i] < largest else 0.0


@jitable
def _jitter(state: Any, workspace: Any, i: int) -> Any:
    """Return how much output i varies from level to level or at x, after its best estimate."""
    differences, _, bends, estimates = workspace
    last = state.level
    jitter = 0.0
    for k in range(max(1, min(int(estimates[LEVEL, i]) + 1, last)), last + 1):
        change = max(abs(differences[k, i] - differences[k - 1, i]), abs(bends[k, i]))
        jitter = max(jitter, change * state.top * QUARTERS[k])
    return jitter


@jitable
def jump_of(state: Any, workspace: Any, i: int, largest: float) -> Any:
    """
    Return what output i jumps by between pieces, if all short steps stay on one of them, or 0.

    Digits that cancel in f leave such: 1 + tanh(x) has as few values as 1 has near it, so that
    x * (1 + tanh(x)) is straight between them, and its slope there is not its derivative. Pieces of
    exp(x) * (1 + tanh(x)) bend, though by much less than a wave with that slope.
    """
    differences, sizes, bends, estimates = workspace
    value, error, last = estimates[BEST, i], estimates[ERROR, i], state.level
    far, other = differences[FAR, i], differences[BETWEEN if state.probe == N_PROBES else NEAR, i]
    if not (error < math.inf and abs(other - far) < math.inf):
        return 0.0
    straight = _STRAIGHT * state.eps * sizes[FAR, i]
    difference = abs(far - value)
    if difference > error + straight / state.far:  # all steps of the ladder are longer than a piece
        t = state.top * QUARTERS[last]
        off = max(error, abs(differences[last, i] - value)) * t
        bend = max(abs(other - far), abs(bends[FAR, i])) * state.far
        bends = 2 * straight + _ABRUPT * max(0.0, bend - straight)
        resolved = (
            difference * state.far
        ) ** 2 > bends * off  # the left over off is a wave's own bend
        jump, jitter = max(off, difference * t), _jitter(state, workspace, i)
        if difference * state.far <= 2 * jitter:  # of pieces that are as short as the probes
            jump = min(jump, jitter)
        return jump if resolved and jump <= largest else 0.0
    before = 0.0
    for k in range(last, -1, -1):
        t = state.top * QUARTERS[k]
        off, rounding = abs(differences[k, i] - value) * t, state.eps * sizes[k, i]
        if off > _ABRUPT * max(before, rounding) + error * t:
            return off if k < last and off <= largest else 0.0
        before = off
    return 0.0


@jitable
def in_few_bits(y: Any) -> Any:
    """Return True for numbers of at most _FEW_BITS bits (Dekker's split, Numer. Math. 18, 1971)."""
    rounded = _SPLIT * y
    return rounded - (rounded - y) == y


@jitable
def hidden_by_rounding(state: Any, differences: Any, y: float, i: int) -> Any:
    """
    Return what derivative of output i, y, rounding may hide where short steps leave it as it is.

    A number of natural size, which f may have computed with, keeps less of x than that. What is
    left of such is 0, or has few bits.
    """
    if differences[NEAR, i] != 0 or differences[FAR, i] != 0 or not in_few_bits(y):
        return 0.0
    first = state.level + 1
    while first > 0 and differences[first - 1, i] == 0:
        first -= 1
    if first > state.level:
        return 0.0
    return state.eps * natural_size(state) / raised(state.top * QUARTERS[first], state.power)


# Shares that are slow to get anywhere; those of a jump at x, or of noise, are 4, and 16 in second
# differences. From `_ENDLESS` on, the sum of the remaining changes may be infinite.
_SLOW, _JUMP, _ENDLESS = 0.5, 3.75, 1 - 2.0**-5
# The bend of a smooth function falls to a 4th from one level to the next.
_SMOOTH = 0.3
# By how much shares may differ to be one, and how many noise hardly makes so.
_SAME, _ROW = 0.1, 4
# Times what noise leaves of a difference, from which on a change is none of it.
_ABOVE_NOISE = 4.0
# The powers of a slope without end: noise, and a jump, have -1, and in second differences -2.
_STEEPEST, _FLATTEST = -0.95, 0.02
# What probes and a level may be off from one power, as a share of how far the probes are apart.
_FITS, _NEARLY = 0.02, 0.1
_HALVINGS = 40  # bisections of the exponent, which leave 12 of its digits
# Times the noise of probes, and of rounding, from which on changes of levels are surely none of it.
_BEYOND = 4.0
# And how far the near probe is to rise, of what a power says, where they are less.
_LEAST_RISEN, _MOST_RISEN = 0.25, 2.0


@jitable
def _share(state: Any, d: Any, sizes: Any, k: int, i: int, noise: float) -> Any:
    """Return the share of the change before it that `d` of output i changes by at level k, or 0."""
    now, before = d[k, i] - d[k - 1, i], d[k - 1, i] - d[k - 2, i]
    most = raised(_JUMP, state.power)
    slow = _SLOW * abs(before) < abs(now) < most * abs(before) and now * before > 0
    rounding = max(noise, state.eps * sizes[k, i]) / raised(state.top * QUARTERS[k], state.power)
    if not slow or abs(now) <= _ABOVE_NOISE * rounding:
        return 0.0
    return now / before


@jitable
def _changes_to_come(state: Any, workspace: Any, k: int, i: int, noise: float) -> Any:
    """Return the sum of the slow changes of output i after level k, or 0: a geometric series."""
    d, sizes, _, _ = workspace
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
def far_to_go(state: Any, workspace: Any, i: int, noise: float) -> Any:
    """
    Return how far an estimate of output i is at most from where slow changes go; 0 without such.

    They are those up to its level, beyond which there may be noise; or without end up to the last
    that exceed the noise. Extrapolation goes the same way, and not as far.
    """
    k = int(state.level)
    while k > _ROW and _share(state, workspace.differences, workspace.sizes, k, i, noise) == 0:
        k -= 1
    if _changes_to_come(state, workspace, k, i, noise) == math.inf:
        return math.inf
    return _changes_to_come(state, workspace, int(workspace.estimates[LEVEL, i]), i, 0.0)


@jitable
def bend_left(state: Any, workspace: Any, i: int, noise: float) -> Any:
    """
    Return the last bend of output i if it has not fallen as a smooth function's would, or 0.

    Steps that reach over 0, from a small x, do not see what an even function has for a slope there:
    its differences are as good as 0, and its bends alone are more than that.
    """
    b, k = workspace.bends, int(state.level)
    t, last = state.top * QUARTERS[k], abs(b[k, i])
    falls = k > 0 and last <= _SMOOTH * abs(b[k - 1, i])
    return 0.0 if falls or last * t <= _BEYOND * noise else last


@jitable
def _endless_share(state: Any, d: Any, sizes: Any, i: int) -> Any:
    """Return the share that `d` of output i changes by at the last levels, if without end, or 0."""
    k = int(state.level)
    if k < 3 or state.one_sided != 0:
        return 0.0
    share, earlier = _share(state, d, sizes, k, i, 0.0), _share(state, d, sizes, k - 1, i, 0.0)
    return share if share > _ENDLESS and abs(earlier - share) <= _SAME * share else 0.0


@jitable
def goes_on(state: Any, d: Any, sizes: Any, i: int, noise: float) -> bool:
    """
    Return True if `d` of output i, differences or bends, grow by one power from level to level.

    By more than noise, which makes levels alike by chance. Where that ends, nothing says but
    shorter steps.
    """
    noise = _BEYOND * max(noise, state.eps * natural_size(state))
    endless = _endless_share(state, d, sizes, i) > 0
    return bool(endless and _share(state, d, sizes, int(state.level) - 1, i, noise) > 0)


@jitable
def extends_to_probe(state: Any, workspace: Any, i: int) -> bool:
    """Return True if differences grow by one power up to the near probe; noise grows faster."""
    d, sizes, k = workspace.differences, workspace.sizes, int(state.level)
    share = _endless_share(state, d, sizes, i)
    if share == 0:
        return False
    levels = math.log(state.top * QUARTERS[k] / state.near) / math.log(4.0)
    times = levels if share == 1 else share * math.expm1(levels * math.log(share)) / (share - 1)
    risen = (d[NEAR, i] - d[k, i]) / (times * (d[k, i] - d[k - 1, i]))
    return bool(_LEAST_RISEN < risen < _MOST_RISEN)


@jitable
def _risen(q: float, log: float) -> Any:
    """Return how far t**q is from its value at the far probe, where t is exp(log) times as long."""
    return math.expm1(q * log)


@jitable
def has_no_end(state: Any, differences: Any, i: int) -> bool:
    """
    Return True if differences of output i grow by one power from the last levels to all probes.

    Noise grows, too, but hardly in the order of six steps and by the same power between them.
    """
    k = state.level
    if state.probe < N_PROBES or k == 0:
        return False
    longer, last, near = differences[k - 1, i], differences[k, i], differences[NEAR, i]
    two, one, far = differences[BETWEEN + 1, i], differences[BETWEEN, i], differences[FAR, i]
    way = 1.0 if far > near else -1.0
    changes = min(way * (last - longer), way * (near - last), way * (two - near))
    if not min(changes, way * (one - two), way * (far - one)) > 0:
        return False
    # Squares of the steps of the far probes are 1, 2 and 6.
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
    expected = _risen(q, to_last + math.log(4.0)) - _risen(q, to_last)
    off_level = abs((longer - last) / (near - far) - expected / whole)
    return bool(max(off_one, off_two) <= _FITS and off_level <= _NEARLY * expected / whole)


# Number of last levels whose bends show a kink: mostly as many as follow the best level.
_RECENT = 4
# What a step and the realised one may differ by, as a share.
REALISED = 2.0**-8
# Times the noise from which on a bend is known.
BEYOND_NOISE = 8.0


@jitable
def flat_before_a_kink(state: Any, differences: Any, bends: Any, i: int) -> bool:
    """
    Return True if output i is flat about x, and long steps reach a kink.

    By central differences alone a kink at a distance of d, where the slope jumps by J, is the same
    as stairs: it leaves J*d/2/t in them, as noise does. But all of it comes from one side of x.
    To both sides there are stairs, unless they are less than one.
    """
    kinked = False
    if state.one_sided != 0 or state.power != 1:
        return kinked
    before = 0.0
    for k in range(max(0, state.level + 1 - _RECENT), state.level + 1):
        slope, bend = 2 * differences[k, i], bends[k, i]
        if not abs(abs(bend) - abs(slope)) <= REALISED * abs(slope):
            return False
        signed_bend = bend if slope > 0 else -bend
        # One step is the same change of f, whatever t.
        kinked |= before * signed_bend > 0 and abs(before) > 0.5 * abs(signed_bend)
        before = signed_bend
    return kinked


@jitable
def jump_within(state: Any, workspace: Any, i: int, value: float, noise: float) -> Any:
    """
    Return what the slope of output i jumps by, beyond noise, within the steps of its value, or 0.

    Noise is no less than what differences show of it.
    """
    jump = 0.0
    if state.one_sided != 0 or state.power != 1:
        return jump
    differences, _, bends, estimates = workspace
    recent = max(0, state.level + 1 - _RECENT)
    first = max(recent, int(estimates[LEVEL, i]) - 1)
    for k in range(first, state.level + 1):
        noise = max(noise, abs(differences[k, i] - value) * state.top * QUARTERS[k])
    for k in range(recent, state.level):
        longer, shorter = bends[k, i], bends[k + 1, i]
        if abs(shorter) * state.top * QUARTERS[k + 1] <= BEYOND_NOISE * noise:
            continue
        if longer * shorter <= 0 or grows(longer, shorter):
            return 0.0
        if k >= first and stays(longer, shorter):
            jump = max(jump, abs(longer), abs(shorter))
    return jump


@jitable
def contradiction(
    state: Any, workspace: Any, i: int, value: float, error: float, noise: float
) -> Any:
    """
    Return how far two shorter steps that know better are from the value of output i, or 0.

    Among many kinks, or waves, a few of the longer ones are alike by chance.
    """
    differences, sizes, _, estimates = workspace
    most = 0.0
    for k in range(int(estimates[LEVEL, i]) + 2, state.level + 1):
        longer, shorter = differences[k - 1, i], differences[k, i]
        uncertainty = abs(shorter - longer) + noise_left(state, k, noise, sizes[k, i])
        off = abs(shorter - value)
        most = max(most, off + uncertainty) if off > uncertainty + error else most
    return most
