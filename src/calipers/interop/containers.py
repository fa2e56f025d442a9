"""Functions of arrays in containers, as functions of the arrays."""

from collections.abc import Callable, Sequence
from typing import Any

from .._containers import Apart, Opened
from .._protocols import Leaves


def contains(apart: Callable[[Any], Apart], x: Any, owns: Callable[[Any], bool]) -> bool:
    """Tell whether x is an array of a library, or contains one."""
    return owns(x) or any(owns(leaf) for _, leaf in apart(x)[0])


def leaves_of(
    apart: Callable[[Any], Apart],
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
    opened = Opened(inputs, is_active, apart)
    chosen = range(len(inputs)) if argnums is None else argnums
    places = list(zip(opened.owners, opened.paths, strict=True))
    outputs: list[str] = []

    def is_chosen(position: int) -> bool:
        owner, path = places[position]
        named = argnums is not None and not path
        return owner in chosen and (named or is_active(opened.leaves[position]))

    def of_leaves(*given: Any, **kwargs: Any) -> Any:
        y = f(*opened.together(given), **kwargs)
        found, _ = apart(y)
        if all(path in ("", "[:]", f"[{k}]") for k, (path, _) in enumerate(found)):
            return y
        outputs[:] = [path for path, _ in found]
        return tuple(leaf for _, leaf in found)

    return Leaves(
        of_leaves,
        opened.leaves,
        tuple(filter(is_chosen, range(len(places)))),
        tuple(_positions(apart, f(*inputs), left_out)) if left_out else (),
        tuple(f"[{owner}]{path}" for owner, path in places),
        outputs,
    )


def _positions(apart: Callable[[Any], Apart], y: Any, outputs: Sequence[int]) -> Sequence[int]:
    """Return where what some outputs hold is in what all of them do."""
    several = y if isinstance(y, (tuple, list)) else (y,)
    if not set(outputs) <= set(range(len(several))):
        return outputs  # which are refused where outputs are counted
    owners = [k for k, output in enumerate(several) for _ in apart(output)[0]]
    return [position for position, owner in enumerate(owners) if owner in outputs]
