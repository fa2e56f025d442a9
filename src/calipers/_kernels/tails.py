"""What a ladder and its tails say together: derivatives, their errors, and where to look next."""

import math
from typing import Any

from numba.extending import register_jitable

from .differences import ALIASED, CONVERGED, NOISY, NONFINITE, NONSMOOTH
from .rungs import (
    APART,
    BEST,
    BETWEEN,
    ERROR,
    FAR,
    JUMP,
    NEAR,
    QUARTERS,
    RUNG,
    TAILS,
    extrapolate,
    forget,
    noise_left,
    raised,
)

_ATTEMPTS = 8

# An error below this share of the value needs no other ladder; where the first one did not find the
# length scale, the second may be far from it, too, and a smaller error is asked for.
_RESOLVED = 2.0**-24
_REFINED = 2.0**-34
# Nor does one below this share of |f| / max(1, |x|), the natural size of a derivative.
_NATURAL = 2.0**-30
# A power of eps, below which an x may be lost beside numbers of natural size.
_LOST_BESIDE = 0.4
# Bits of numbers that are exact, mostly; those of float16 have one more.
_FEW_BITS = 10
_SPLIT = 1 + 2.0 ** (53 - _FEW_BITS)
# What tails may differ by, as a share of what they differ from the estimate by, to be alike. Noise
# counts in one 16 times as much as in the other, so that it does this once in a hundred.
_ALIKE = 0.125
# Of four, which noise makes alike once in ten thousand, by more.
_FOUR_ALIKE = 0.3
# What a step and the realised one may differ by, as a share.
_REALISED = 2.0**-8
# Spacings of x that are steps of a narrower format, and none of f's own.
_COARSER = 2.0**16
# What three differences in a row may differ by, to be those of one slope.
_STEADY = 0.02
# Noise is f's own, and not rounding, from this multiple of eps*|f| on.
_NOISY = 1024.0
_ALL_OF_F = 2.0**-6
# Where all digits cancel f is some roundings of numbers as large as max(1, |x|), be these little.
_ROUNDED = 16.0
_LITTLE = 2.0**-10
# From this share of |f| on, and where it is f's own, two more tails tell it from waves.
_LOUD = 2.0**-28
# Roundings of f by which short steps may differ, and times that what leaves a slope grows from
# one rung to the next at a jump. What bends leaves it by 64 times as much.
_STRAIGHT = 8.0
_ABRUPT = 1024.0
# They are no more than some roundings of max(1, |x|), which f may have computed with, nor than a
# share of f: else they are kinks of f, or waves.
_INSIDE = 256.0
_SLIGHT = 2.0**-8
# Times the noise, or the errors, from which on a contradiction is none of noise thought too small.
_TOLD = 8.0
_CONTRADICTED = 64.0
# Times that the last difference is farther from an estimate than the one before, and than errors.
_FARTHER, _SURELY = 1.5, 4.0
# Times that a jump grows as t falls to a 16th where f at x itself is off, and both sides are alike.
# That is noise up to some roundings, as of derivatives that are numerical themselves.
_BY_ITSELF, _OFF = 8.0, 65536.0
# How far below a ladder that missed the length scale the next one begins: near enough to find it
# before steps are lost beside x.
_DOWN = 2.0**-10
# And how far above the far tail where all tails were alike: some times the length over which f is
# known to be straight.
_ABOVE_FAR = 2.0**8


@register_jitable
def _poor(state: Any, value: float, error: float, largest: float) -> bool:
    share = _RESOLVED if state.attempt == 0 else _REFINED
    return not error <= share * max(abs(value), largest)


@register_jitable
def _compare_tails(state: Any, room: Any) -> None:
    """Store in APART where the tails differ from the estimates by more than f's rounding."""
    differences, sizes, kept = room
    per_far, per_near = raised(state.far, state.power), raised(16 * state.far, state.power)
    value, differs = kept[BEST], kept[APART]
    near, far = differences[NEAR], differences[FAR]
    for i in range(value.size):
        one, other = abs(near[i] - value[i]) * per_near, abs(far[i] - value[i]) * per_far
        differs[i] = one if one > other else other
    noise, jump = sizes[FAR], sizes[NEAR + TAILS]
    for i in range(value.size):
        allowed = state.eps * noise[i]
        same = differs[i] <= allowed and abs(jump[i]) * state.far <= 16 * allowed
        differs[i] = 0.0 if same else 1.0


@register_jitable
def _stands(state: Any, differences: Any, sizes: Any, i: int) -> bool:
    """
    Tell whether output i stands still at the far tail, to one side of x at least.

    So does a staircase, such as f that rounds x to a narrower format. The near tail may be longer
    than one of its steps, and all tails then show next to no slope. f's own format has steps, too,
    of some spacings of x.
    """
    # To the other side it may jump; what the step is after rounding is known to a share.
    slope, jump = abs(differences[FAR, i]), abs(sizes[FAR + TAILS, i])
    still = abs(jump - 2 * slope) <= _REALISED * slope
    return bool(still and state.far >= _COARSER * state.grain)


@register_jitable
def _alike(state: Any, differences: Any, sizes: Any, kept: Any, i: int) -> bool:
    """Tell whether all tails differ from the estimate of output i alike, by more than rounding."""
    near = differences[NEAR, i]
    apart = abs(near - kept[BEST, i])
    rounding = state.eps * sizes[FAR, i] / raised(state.far, state.power)
    alike = near != 0 and not _stands(state, differences, sizes, i)
    alike &= apart > kept[ERROR, i] + rounding
    share = _FOUR_ALIKE if state.tail == TAILS else _ALIKE
    for row in range(FAR, NEAR + state.tail):
        alike &= abs(differences[row, i] - near) <= share * apart
    return bool(alike)


@register_jitable
def doubtful(state: Any, room: Any) -> bool:
    """Tell whether the tails leave open if f is noisy or has a shorter length scale."""
    if state.tail == TAILS:
        return False
    differences, sizes, kept = room
    near, far, size = differences[NEAR], differences[FAR], sizes[FAR]
    value, error = kept[BEST], kept[ERROR]
    per_size = state.eps / raised(state.far, state.power)
    per_near = raised(16 * state.far, state.power)
    most = _loudest(state)
    count = loud = 0
    for i in range(value.size):  # as `_alike` of two tails, without branches
        apart = abs(near[i] - value[i])
        seen = apart > error[i] + per_size * size[i]
        count += 1 if seen & (abs(far[i] - near[i]) <= _ALIKE * apart) else 0
        loud += 1 if seen & (apart * per_near > most * size[i]) else 0
    if loud > 0:
        return True
    if count > 0:
        for i in range(value.size):
            if _alike(state, differences, sizes, kept, i):
                return True
    return False


@register_jitable
def _size(state: Any) -> Any:
    """Return max(1, |x|), as which numbers may be large that f computes with."""
    return state.unit * state.length * state.scale


@register_jitable
def _all_rounded(state: Any, size: float) -> bool:
    """Tell whether f is that small."""
    rounding = _ROUNDED * state.eps * _size(state)
    return bool(size <= rounding <= _LITTLE)


@register_jitable
def _loudest(state: Any) -> Any:
    """Return the share of |f| from which on noise is told from waves."""
    return max(_LOUD, _NOISY * state.eps)


@register_jitable
def _far_agree(state: Any, differences: Any, value: float, error: float, i: int) -> bool:
    """
    Tell whether all far tails say alike that the estimate of output i steps over waves.

    They are alike, or on a parabola of the step as those of a wave are. Loud noise would be another
    one in each of them. Of staircases all are 0.
    """
    one, two, three = differences[FAR, i], differences[BETWEEN, i], differences[BETWEEN + 1, i]
    apart = abs(one - value)
    alike = max(abs(two - one), abs(three - one)) <= 0.5 * _ALIKE * apart
    curved = abs(three - one - 5 * (two - one)) <= 0.25 * _ALIKE * apart  # squares are 1, 2 and 6
    return bool(state.tail == TAILS and one != 0 and apart > error and (alike or curved))


@register_jitable
def _again(state: Any, room: Any, first: int, noise: float, i: int) -> None:
    """Extrapolate output i once more from a rung on, by another noise."""
    forget(room.kept, i, i + 1)
    for k in range(first, state.rung + 1):
        extrapolate(state, k, noise, room, i, i + 1)


@register_jitable
def _steady_rung(state: Any, differences: Any, i: int) -> int:
    """Return the last rung whose slope is that of the two below it, or 0 if there is none."""
    k = state.rung - 2
    while k > 0:
        one = differences[k, i]
        other = max(abs(differences[k + 1, i] - one), abs(differences[k + 2, i] - one))
        if other <= _STEADY * abs(one):
            break
        k -= 1
    return int(max(k, 0))


@register_jitable
def _judge(state: Any, room: Any, i: int) -> Any:
    """
    Return what the ladder and tails that differ from it say of output i: value, error, status.

    And the noise in f.

    A derivative that the tails share, and the ladder does not, belongs to a length scale below the
    ladder's: two of them say so where it differs much, and all of them where little. Otherwise
    their distance from the estimate is noise of f.
    """
    differences, sizes, kept = room
    value, error = kept[BEST, i], kept[ERROR, i]
    noise = state.eps * sizes[FAR, i]
    if not error < math.inf:
        return value, error, NONFINITE, noise
    near, far = differences[NEAR, i], differences[FAR, i]
    if not (abs(near) < math.inf and abs(far) < math.inf):
        # Lost beside x, as it may be in the bounds' little room; a ladder that was led down here
        # by a short length scale has not found it.
        if state.attempt == 0:
            # What noise f has cannot be seen; rounding inside f is as if x were rounded.
            noise = max(noise, state.eps * state.unit * abs(value))
            _again(state, room, 0, noise, i)
            steady = _steady_rung(state, differences, i)
            slope = differences[steady, i]
            if abs(slope - kept[BEST, i]) > kept[ERROR, i] + _ALIKE * abs(slope):
                # Longer ones step over waves, and rounding of x is more to those.
                noise = max(noise, state.eps * state.unit * abs(slope))
                _again(state, room, steady, noise, i)
            return kept[BEST, i], kept[ERROR, i], CONVERGED, noise
        return value, math.inf, ALIASED, noise
    per_far, per_near = raised(state.far, state.power), raised(16 * state.far, state.power)
    measured = max(abs(near - value) * per_near, abs(far - value) * per_far)
    if near == 0 and far == 0:
        # Rounding would not have hidden it: f is a staircase, its steps below the smallest rung's.
        if abs(value) > error and abs(value) * per_near > 4 * noise:
            measured = abs(value) * raised(state.top * QUARTERS[state.rung], state.power)
    elif _stands(state, differences, sizes, i) and abs(value) * per_far > state.eps * _size(state):
        # What f computes with moves too little in so short steps to be rounded in other ways; and
        # numbers of natural size, of which f may be the small difference, would have moved.
        for k in range(min(int(kept[RUNG, i]) + 1, state.rung), state.rung + 1):
            off = abs(differences[k, i] - value)
            measured = max(measured, off * raised(state.top * QUARTERS[k], state.power))
        if far == 0 and sizes[FAR + TAILS, i] == 0:  # to both sides, and not to one as at a kink
            kept[JUMP, i] = max(kept[JUMP, i], measured)  # as other ladders may see less of it
    elif abs(near - far) <= 0.02 * abs(near) + 2 * noise / per_far and abs(
        near - value
    ) > 8 * noise / per_near + 0.05 * abs(near) + min(1.5 * error, 0.05 * abs(near)):
        return value, math.inf, ALIASED, noise
    elif measured > _ALL_OF_F * sizes[0, i] and not _all_rounded(
        state, max(sizes[0, i], sizes[FAR, i])
    ):
        return value, math.inf, ALIASED, noise  # as large as f: more likely many waves than noise
    elif measured > _loudest(state) * sizes[0, i] and _far_agree(
        state, differences, value, error, i
    ):
        return value, math.inf, ALIASED, noise
    jump, nearer = sizes[NEAR + TAILS, i], sizes[FAR + TAILS, i]
    # At a kink it stays as t falls, and at a cusp it grows; what bends falls with t.
    stays = (jump > 0) == (nearer > 0) and abs(nearer) >= 0.9 * abs(jump)
    off = 16 * state.far * abs(jump)
    slight = off <= _OFF * state.eps * sizes[FAR, i] and measured <= _ALIKE * off
    if slight and abs(nearer) >= _BY_ITSELF * abs(jump):  # noise of f at x itself
        measured, stays = off, False
    status = CONVERGED
    if measured > noise:
        if measured > _NOISY * max(noise, state.eps * sizes[0, i]):
            status = NOISY
        noise = 3 * measured  # of two samples
        rung = int(kept[RUNG, i])
        left = error + noise_left(state, rung, noise, sizes[rung, i])
        _again(state, room, 0, noise, i)
        # Longer steps promise more, and may be of a wave that the tails know nothing of.
        if abs(near - kept[BEST, i]) <= kept[ERROR, i] + _TOLD * noise / per_near:
            value, error = kept[BEST, i], kept[ERROR, i]
        else:
            error = left
        if state.tail == TAILS and _alike(state, differences, sizes, kept, i):
            between = differences[BETWEEN, i]
            spread = max(abs(near - far), abs(near - between), abs(between - far))
            rounding = state.eps * sizes[FAR, i] / per_far
            return near, 3 * (spread + rounding), ALIASED, noise
    kinked = stays and abs(jump) > 16 * noise / state.far
    if state.power == 1 and state.side == 0 and kinked:
        # That of a kink at a distance of d from x is short of it by d/t.
        short = max(0.0, abs(jump) - abs(nearer)) / 15
        return value, error + abs(jump) / 2 + short, NONSMOOTH, noise
    return value, error, status, noise


@register_jitable
def _largest_jump(state: Any, sizes: Any, i: int) -> Any:
    """Return how large a jump of output i between pieces may be, or 0 if it would not show."""
    if state.power != 1:
        return 0.0
    largest = min(_INSIDE * state.eps * _size(state), _SLIGHT * sizes[0, i])
    return largest if _ABRUPT * state.eps * sizes[state.rung, i] < largest else 0.0


@register_jitable
def _jump(state: Any, room: Any, i: int, largest: float) -> Any:
    """
    Return what output i jumps by between pieces, one of which all short steps stay on, or 0.

    Digits that cancel in f leave such: 1 + tanh(x) has as few values as 1 has near it, so that
    x * (1 + tanh(x)) is straight between them, and its slope there is not its derivative. Pieces of
    exp(x) * (1 + tanh(x)) bend, though by much less than a wave with that slope.
    """
    differences, sizes, kept = room
    value, error, last = kept[BEST, i], kept[ERROR, i], state.rung
    near, far = differences[NEAR, i], differences[FAR, i]
    if not (error < math.inf and abs(near - far) < math.inf):
        return 0.0
    straight = _STRAIGHT * state.eps * sizes[FAR, i]
    apart = abs(near - value)
    if apart > error + straight / state.far:  # all steps of the ladder are longer than a piece
        t = state.top * QUARTERS[last]
        off = max(error, abs(differences[last, i] - value)) * t
        bend = max(abs(near - far), abs(sizes[FAR + TAILS, i])) * state.far
        bends = 2 * straight + _ABRUPT * max(0.0, bend - straight)
        told = (apart * state.far) ** 2 > bends * off  # the left over off is a wave's own bend
        return max(off, apart * t) if told and off <= largest else 0.0
    before = 0.0
    for k in range(last, -1, -1):
        t = state.top * QUARTERS[k]
        off, rounding = abs(differences[k, i] - value) * t, state.eps * sizes[k, i]
        if off > _ABRUPT * max(before, rounding) + error * t:
            return off if k < last and off <= largest else 0.0
        before = off
    return 0.0


@register_jitable
def _leaves(state: Any, room: Any, i: int, value: float, error: float, noise: float) -> bool:
    """
    Tell whether differences by shorter steps leave the estimate of output i.

    They come nearer to a derivative, each by 16 times. A softplus is straight at steps that are far
    longer than its bend, and the slope that it has there is another one.
    """
    last = state.rung
    if last == 0:
        return False
    differences, sizes, _ = room
    now, before = abs(differences[last, i] - value), abs(differences[last - 1, i] - value)
    known = error + noise_left(state, last, noise, sizes[last, i])
    return bool(now > _FARTHER * before and now > _SURELY * known)


@register_jitable
def _limited(state: Any, sizes: Any, kept: Any, i: int, error: float, noise: float) -> bool:
    """Tell whether noise limits what the first rungs gave, so that longer steps promise more."""
    rung = int(kept[RUNG, i])
    return rung <= 1 and error <= 3 * noise_left(state, rung, noise, sizes[rung, i])


@register_jitable
def in_few_bits(y: Any) -> Any:
    """Tell whether numbers are in as few as _FEW_BITS (Dekker's split, Numer. Math. 18, 1971)."""
    rounded = _SPLIT * y
    return rounded - (rounded - y) == y


@register_jitable
def _hidden(state: Any, differences: Any, y: float, i: int) -> Any:
    """
    Return what derivative of output i, y, rounding may hide where short steps leave it as it is.

    A number of natural size, which f may have computed with, keeps less of x than that. What is
    left of such is 0, or has few bits.
    """
    if differences[NEAR, i] != 0 or differences[FAR, i] != 0 or not in_few_bits(y):
        return 0.0
    first = state.rung + 1
    while first > 0 and differences[first - 1, i] == 0:
        first -= 1
    if first > state.rung:
        return 0.0
    return state.eps * _size(state) / raised(state.top * QUARTERS[first], state.power)


@register_jitable
def conclude(state: Any, base: Any, room: Any, values: Any, errors: Any) -> Any:
    """Keep what this ladder found out; return the top of the next one, or 0."""
    differences, sizes, kept = room
    first = state.attempt == 0
    aliased = rippled = buried = straight = False
    worst = CONVERGED
    _compare_tails(state, room)
    natural = _NATURAL / raised(state.unit, state.power)
    small = state.unit > state.eps**-_LOST_BESIDE
    shorter = state.top * state.length < state.step
    largest = 0.0
    if state.joint == 1:
        for i in range(values.size):
            size = abs(kept[BEST, i])
            largest = size if largest < size < math.inf else largest
    for i in range(values.size):
        wanted = first or errors[i] == math.inf or _poor(state, values[i], errors[i], largest)
        if not wanted:
            continue
        value, error = kept[BEST, i], kept[ERROR, i]
        status, noise = CONVERGED, state.eps * sizes[FAR, i]
        if kept[APART, i] != 0:
            value, error, status, noise = _judge(state, room, i)
        # Other ladders may have seen it, of which some steps were as long as a piece.
        most = _largest_jump(state, sizes, i)
        if most > 0:
            kept[JUMP, i] = max(kept[JUMP, i], _jump(state, room, i, most))
        if kept[JUMP, i] > 0:
            noise = 3 * kept[JUMP, i]
            _again(state, room, 0, noise, i)
            value, error, status = kept[BEST, i], kept[ERROR, i], NOISY
        # A ladder with longer steps than the one before may improve on that, not contradict it. One
        # with shorter steps may: what was noise to the longer ones was many waves, unless f stands.
        unknown = first or errors[i] == math.inf
        apart, together = abs(value - values[i]), error + errors[i]
        # Short steps may be lost beside an offset, and f stand; tails vouch for longer ones then.
        lost = not first and not shorter and values[i] == 0 and kept[APART, i] == 0
        better = error < errors[i] and (apart <= together or lost)
        if better and not shorter and _leaves(state, room, i, value, error, noise):
            continue
        better |= shorter and value != 0 and apart > _CONTRADICTED * together
        if unknown or better:
            values[i], errors[i] = value, error
            if status == ALIASED:
                rippled |= error < math.inf
                aliased |= error == math.inf and not math.isnan(differences[NEAR, i])
            worst = max(worst, status)
        hidden = 0.0
        if first and value == 0:
            hidden = _hidden(state, differences, float(base[i]), i)
        if _poor(state, values[i], max(errors[i], hidden), largest):
            # Rounding hides a derivative that would show at f's supposed length scale.
            buried |= natural * sizes[FAR, i] < errors[i] < math.inf
            buried |= small and hidden > 0
            judged = status in (CONVERGED, NOISY)
            if judged and errors[i] < abs(values[i]):
                straight |= _limited(state, sizes, kept, i, error, noise)
        errors[i] = max(errors[i], hidden)
    # An output that this ladder was not asked about keeps what an earlier one said of it.
    before = state.status if state.status == NOISY or state.status == NONSMOOTH else CONVERGED
    state.status = max(before, worst)
    longest = state.top * state.length
    state.step = longest if first else min(state.step, longest)
    state.attempt += 1
    if state.attempt == _ATTEMPTS:
        return 0.0
    if aliased:
        lower = max(_DOWN * state.top, 4096 * state.grain)
        return lower if 2 * lower <= state.top else 0.0
    if rippled:
        return _ABOVE_FAR * state.far
    if buried and 4 * state.top < min(state.unit, state.limit):
        return min(state.unit / 4, state.limit)
    if straight and 256 * state.top <= state.limit:
        return 256 * state.top
    return 0.0
