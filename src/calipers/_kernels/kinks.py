"""What steps that reach kinks say of them, beside those that end before."""

from typing import Any

from .jitable import jitable
from .rungs import QUARTERS, RUNG, grows, noise_left, stays

# The last rungs, by whose bends kinks are told: how many there are after a best one, mostly.
_RECENT = 4
# What a step and the realised one may differ by, as a share.
REALISED = 2.0**-8
# Times the noise from which on a bend is known.
BEYOND_NOISE = 8.0


@jitable
def flat_before_a_kink(state: Any, differences: Any, bends: Any, i: int) -> bool:
    """
    Tell whether output i is flat about x, and long steps reach a kink.

    By central differences alone a kink at a distance of d, where the slope jumps by J, is the same
    as stairs: it leaves J*d/2/t in them, as noise does. But all of it comes from one side of x.
    To both sides there are stairs, unless they are less than one.
    """
    found = False
    if state.side != 0 or state.power != 1:
        return found
    before = 0.0
    for k in range(max(0, state.rung + 1 - _RECENT), state.rung + 1):
        slope, bend = 2 * differences[k, i], bends[k, i]
        if not abs(abs(bend) - abs(slope)) <= REALISED * abs(slope):
            return False
        side = bend if slope > 0 else -bend
        # One step is the same change of f, whatever t.
        found |= before * side > 0 and abs(before) > 0.5 * abs(side)
        before = side
    return found


@jitable
def jump_within(state: Any, room: Any, i: int, value: float, noise: float) -> Any:
    """
    Return what the slope of output i jumps by, beyond noise, within the steps of its value, or 0.

    Noise is no less than what differences show of it.
    """
    jump = 0.0
    if state.side != 0 or state.power != 1:
        return jump
    differences, _, bends, kept = room
    recent = max(0, state.rung + 1 - _RECENT)
    first = max(recent, int(kept[RUNG, i]) - 1)
    for k in range(first, state.rung + 1):
        noise = max(noise, abs(differences[k, i] - value) * state.top * QUARTERS[k])
    for k in range(recent, state.rung):
        longer, shorter = bends[k, i], bends[k + 1, i]
        if abs(shorter) * state.top * QUARTERS[k + 1] <= BEYOND_NOISE * noise:
            continue
        if longer * shorter <= 0 or grows(longer, shorter):
            return 0.0
        if k >= first and stays(longer, shorter):
            jump = max(jump, abs(longer), abs(shorter))
    return jump


@jitable
def contradiction(state: Any, room: Any, i: int, value: float, error: float, noise: float) -> Any:
    """
    Return how far two shorter steps that know better are from the value of output i, or 0.

    Among many kinks, or waves, a few of the longer ones are alike by chance.
    """
    differences, sizes, _, kept = room
    most = 0.0
    for k in range(int(kept[RUNG, i]) + 2, state.rung + 1):
        longer, shorter = differences[k - 1, i], differences[k, i]
        known = abs(shorter - longer) + noise_left(state, k, noise, sizes[k, i])
        off = abs(shorter - value)
        most = max(most, off + known) if off > known + error else most
    return most
