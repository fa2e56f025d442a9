"""What gradcheck is given on a device, as functions of arrays on the host."""

from dataclasses import replace
from functools import partial
from typing import Any

from .._differences.plan import fetched
from .._gradcheck.adapt import Given
from .._kernels.cuda import _target as target
from .._libraries import is_device_function, on_device
from .._protocols import NDArray
from .functions import Launched, Sent


def carried(given: Given, out_like: Any, inplace: Any) -> tuple[Given, Any]:
    """
    Return what was given, and what f's results are like, for arrays on the host.

    A function compiled for a device, or one that fills arrays there, is launched; any other is
    called with arrays on the device.
    """
    target.require_device()
    inputs = given.several
    whole = (*inputs, *given.args)
    away = [k for k, x in enumerate(whole) if on_device(x=x)]
    like = whole[away[0]] if away else None
    positions = frozenset(away)

    def host(f: Any, fills: bool) -> Any:
        if f is None:
            return None
        launched = is_device_function(f) or (fills and bool(away))
        # A function that is launched has no use for arrays of the host.
        everywhere = frozenset(range(len(whole))) if launched else positions
        return Sent(f, everywhere, len(whole), like, launched)

    likes = out_like if isinstance(out_like, (tuple, list)) else (out_like,)
    batched = given.batched
    f = host(given.f, out_like is not None)
    if f.launched and len(likes) == 1:
        batched = partial(_batched, given.f, fetched(likes[0]), f.ordinal)
    own = {name: host(call, inplace is not None) for name, call in given.derivatives.items()}
    here = tuple(fetched(x) if k in positions else x for k, x in enumerate(whole))
    moved = replace(
        given,
        f=f,
        inputs=here[: len(inputs)],
        args=here[len(inputs) :],
        derivatives=own,
        batched=batched,
    )
    if out_like is None:
        return moved, None
    return moved, tuple(fetched(x) if on_device(x=x) else x for x in likes)


def _batched(f: Any, like: NDArray, ordinal: int, position: int) -> Launched:
    return Launched(f, position, like, False, ordinal)
