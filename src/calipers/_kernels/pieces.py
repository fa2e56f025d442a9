"""Functions that are made of pieces, since digits cancel in them: what jumps, and what is lost."""

import math
from typing import Any

from .jitable import jitable
from .rungs import BEST, BETWEEN, ERROR, FAR, NEAR, QUARTERS, RUNG, TAILS, natural_size, raised

# Bits of numbers that are exact, mostly; those of float16 have one more.
_FEW_BITS = 10
_SPLIT = 1 + 2.0 ** (53 - _FEW_BITS)
# Roundings of f by which short steps may differ, and times that what leaves a slope grows from
# one rung to the next at a jump. What bends leaves it by 64 times as much.
_STRAIGHT = 8.0
_ABRUPT = 1024.0
# Jumps are no more than some roundings of max(1, |x|), which f may have computed with, nor than a
# share of f: else they are kinks of f, or waves.
_INSIDE = 256.0
_SLIGHT = 2.0**-8


@jitable
def largest_jump(state: Any, sizes: Any, i: int) -> Any:
    """Return how large a jump of output i between pieces may be, or 0 if it would not show."""
    if state.power != 1:
        return 0.0
    largest = min(_INSIDE * state.eps * natural_size(state), _SLIGHT * sizes[0, i])
    return largest if _ABRUPT * state.eps * sizes[state.rung, i] < largest else 0.0


@jitable
def _jitter(state: Any, room: Any, i: int) -> Any:
    """Return what output i moves by, from rung to rung or at x itself, after its best estimate."""
    differences, _, bends, kept = room
    last = state.rung
    jitter = 0.0
    for k in range(max(1, min(int(kept[RUNG, i]) + 1, last)), last + 1):
        moved = max(abs(differences[k, i] - differences[k - 1, i]), abs(bends[k, i]))
        jitter = max(jitter, moved * state.top * QUARTERS[k])
    return jitter


@jitable
def jump_of(state: Any, room: Any, i: int, largest: float) -> Any:
    """
    Return what output i jumps by between pieces, one of which all short steps stay on, or 0.

    Digits that cancel in f leave such: 1 + tanh(x) has as few values as 1 has near it, so that
    x * (1 + tanh(x)) is straight between them, and its slope there is not its derivative. Pieces of
    exp(x) * (1 + tanh(x)) bend, though by much less than a wave with that slope.
    """
    differences, sizes, bends, kept = room
    value, error, last = kept[BEST, i], kept[ERROR, i], state.rung
    far, other = differences[FAR, i], differences[BETWEEN if state.tail == TAILS else NEAR, i]
    if not (error < math.inf and abs(other - far) < math.inf):
        return 0.0
    straight = _STRAIGHT * state.eps * sizes[FAR, i]
    apart = abs(far - value)
    if apart > error + straight / state.far:  # all steps of the ladder are longer than a piece
        t = state.top * QUARTERS[last]
        off = max(error, abs(differences[last, i] - value)) * t
        bend = max(abs(other - far), abs(bends[FAR, i])) * state.far
        bends = 2 * straight + _ABRUPT * max(0.0, bend - straight)
        told = (apart * state.far) ** 2 > bends * off  # the left over off is a wave's own bend
        jump, jitter = max(off, apart * t), _jitter(state, room, i)
        if apart * state.far <= 2 * jitter:  # of pieces that are as short as the tails
            jump = min(jump, jitter)
        return jump if told and jump <= largest else 0.0
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
    """Tell whether numbers are in as few as _FEW_BITS (Dekker's split, Numer. Math. 18, 1971)."""
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
    first = state.rung + 1
    while first > 0 and differences[first - 1, i] == 0:
        first -= 1
    if first > state.rung:
        return 0.0
    return state.eps * natural_size(state) / raised(state.top * QUARTERS[first], state.power)
