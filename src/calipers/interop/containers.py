"""Functions of arrays in containers, as functions of the arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._containers import Apart, Opened
from .._protocols import FunctionLibrary, Leaves


def contains(x: Any, apart: Callable[[Any], Apart], owns: Callable[[Any], bool]) -> bool:
    """Tell whether x is an array of a library, or contains one."""
    return owns(x) or any(owns(leaf) for _, leaf in apart(x)[0])


def leaves_of(
    library: FunctionLibrary,
    f: Callable[..., Any],
    inputs: Sequence[Any],
    argnums: Sequence[int] | None,
    left_out: Sequence[int],
) -> Leaves:
    """
    Return a library's function as one of all that its inputs hold.

    Of a container, and where no input is named, f is differentiated by what is active; by an array
    that is named in any case. A container of nothing else stays whole.
    """
    for k in argnums or ():
        if not 0 <= k < len(inputs):
            msg = f"argnums names input {k}: there are {len(inputs)}, from 0"
            raise ValueError(msg)
    opened = Opened(inputs, library.is_active, library.apart)
    chosen = range(len(inputs)) if argnums is None else argnums
    places = list(zip(opened.owners, opened.paths, strict=True))
    outputs: list[str] = []

    def is_chosen(position: int) -> bool:
        owner, path = places[position]
        named = argnums is not None and not path
        return owner in chosen and (named or library.is_active(opened.leaves[position]))

    def of_leaves(*given: Any, **kwargs: Any) -> Any:
        y = f(*opened.together(given), **kwargs)
        found, _ = library.apart(y)
        if all(path in ("", "[:]", f"[{k}]") for k, (path, _) in enumerate(found)):
            return y
        outputs[:] = [path for path, _ in found]
        return tuple(leaf for _, leaf in found)

    def positions(of: Sequence[int]) -> Sequence[int]:
        """Return where what some outputs hold is in what all of them do."""
        own = (x.copy() if isinstance(x, np.ndarray) else library.copied(x) for x in opened.leaves)
        y = f(*opened.together(list(own)))
        several = y if isinstance(y, (tuple, list)) else (y,)
        if not set(of) <= set(range(len(several))):
            return of  # which are refused where outputs are counted
        owners = [k for k, output in enumerate(several) for _ in library.apart(output)[0]]
        return [position for position, owner in enumerate(owners) if owner in of]

    return Leaves(
        of_leaves,
        opened.leaves,
        tuple(filter(is_chosen, range(len(places)))),
        tuple(positions(left_out)) if left_out else (),
        tuple(f"[{owner}]{path}" for owner, path in places) if any(opened.paths) else (),
        outputs,
    )
