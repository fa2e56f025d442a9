"""Functions of arrays in containers, as functions of the arrays."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from .._protocols import Leaves

# What a container holds, by the text that follows its name, and a function that makes another one.
Apart = Callable[[Any], tuple[list[tuple[str, Any]], Callable[[Sequence[Any]], Any]]]


def apart(x: Any) -> tuple[list[tuple[str, Any]], Callable[[Sequence[Any]], Any]]:
    """Take lists, tuples and dicts apart; see `Apart`."""
    keys: Sequence[Any]
    made: Callable[[list[Any]], Any]
    if isinstance(x, dict):
        keys, values = list(x), list(x.values())
        made = lambda new: type(x)(zip(x, new, strict=True))  # noqa: E731
    elif isinstance(x, (list, tuple)):
        keys, values = range(len(x)), list(x)
        made = getattr(type(x), "_make", type(x))  # of a named tuple
    else:
        return [("", x)], lambda new: new[0]
    inner = [apart(value) for value in values]
    ends = list(accumulate((len(held) for held, _ in inner), initial=0))

    def again(new: Sequence[Any]) -> Any:
        parts = (new[first:last] for first, last in pairwise(ends))
        return made([make(part) for (_, make), part in zip(inner, parts, strict=True)])

    parts = zip(keys, inner, strict=True)
    return [(f"[{k!r}]{name}", leaf) for k, (held, _) in parts for name, leaf in held], again


def contains(apart: Apart, x: Any, owns: Callable[[Any], bool]) -> bool:
    """Tell whether x is an array of a library, or contains one."""
    return owns(x) or any(owns(leaf) for _, leaf in apart(x)[0])


def leaves_of(
    apart: Apart,
    f: Callable[..., Any],
    inputs: Sequence[Any],
    argnums: Sequence[int] | None,
    left_out: Sequence[int],
    is_active: Callable[[Any], bool],
) -> Leaves:
    """
    Return f as a function of all that its inputs hold.

    Of a container, and where no input is named, f is differentiated by what `is_active`; by an
    array that is named in any case. A container of nothing else stays whole.
    """

    for k in argnums or ():
        if not 0 <= k < len(inputs):
            msg = f"argnums names input {k}: there are {len(inputs)}, from 0"
            raise ValueError(msg)

    def opened(x: Any) -> tuple[list[tuple[str, Any]], Callable[[Sequence[Any]], Any]]:
        held, again = apart(x)
        if any(is_active(leaf) for _, leaf in held):
            return held, again
        return [("", x)], lambda new: new[0]

    each = [opened(x) for x in inputs]
    ends = list(accumulate((len(held) for held, _ in each), initial=0))
    names: list[str] = []
    leaves: list[Any] = []
    active: list[int] = []
    for k, (held, _) in enumerate(each):
        named = argnums is not None and k in argnums
        for name, leaf in held:
            if (named and not name) or ((named or argnums is None) and is_active(leaf)):
                active.append(len(leaves))
            names.append(f"[{k}]{name}")
            leaves.append(leaf)
    outputs: list[str] = []

    def of_leaves(*given: Any, **kwargs: Any) -> Any:
        parts = (given[first:last] for first, last in pairwise(ends))
        y = f(*(again(part) for (_, again), part in zip(each, parts, strict=True)), **kwargs)
        found, _ = apart(y)
        if all(name == f"[{k}]" for k, (name, _) in enumerate(found)) or not found[0][0]:
            return y
        outputs[:] = [name for name, _ in found]
        return tuple(leaf for _, leaf in found)

    kept = _positions(apart, f(*inputs), left_out) if left_out else ()
    return Leaves(of_leaves, tuple(leaves), tuple(active), tuple(kept), tuple(names), outputs)


def _is_leaf(held: list[tuple[str, Any]]) -> bool:
    return len(held) == 1 and held[0][0] == ""


def _positions(apart: Apart, y: Any, outputs: Sequence[int]) -> Sequence[int]:
    """Return where what some outputs hold is in what all of them do."""
    several = y if isinstance(y, (tuple, list)) else (y,)
    if not set(outputs) <= set(range(len(several))):
        return outputs  # which are refused where outputs are counted
    owners = [k for k, output in enumerate(several) for _ in apart(output)[0]]
    return [position for position, owner in enumerate(owners) if owner in outputs]
