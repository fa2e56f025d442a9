"""Functions of arrays in containers, as functions of the arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._containers import Apart, Opened, several
from .._protocols import ContainerLibrary


def contains(x: Any, apart: Callable[[Any], Apart], owns: Callable[[Any], bool]) -> bool:
    """Tell whether x is an array of a library, or contains one."""
    return owns(x) or any(owns(leaf) for _, leaf in apart(x)[0])


def copied(library: ContainerLibrary, x: Any) -> Any:
    """Copy an array, NumPy's or a library's; all else is handed on."""
    return x.copy() if isinstance(x, np.ndarray) else library.copied(x)


class OfLeaves:
    """
    A function of containers as one of what they hold.

    Attributes
    ----------
    opened : Opened
        The arguments that it was made with.
    returned : object
        What it returned last, but for an array.
    paths : list of str
        Where its results are in that; none, if it is an array or several.
    """

    def __init__(
        self, library: ContainerLibrary, f: Callable[..., Any], inputs: Sequence[Any]
    ) -> None:
        self._given: tuple[Any, ...] = (library, f, tuple(inputs))
        self._library: ContainerLibrary = library
        self.inner: Callable[..., Any] = f
        self.opened: Opened = Opened(inputs, library.is_active, library.apart)
        self.returned: Any = None
        self.paths: list[str] = []

    def __reduce__(self) -> Any:
        """Pickle what it was made from, which holds no closures."""
        return OfLeaves, self._given

    def __call__(self, *given: Any, **kwargs: Any) -> Any:
        """Call the function with what was taken apart."""
        y = self.inner(*self.opened.together(given), **kwargs)
        if isinstance(y, np.ndarray):
            return y
        self.returned = y
        self.paths[:], flat = self.flat(y)
        return flat

    def flat(self, y: Any) -> tuple[list[str], Any]:
        """Return where in a result others are, and a tuple of them; no places where it is flat."""
        found, _ = self._library.apart(y)
        paths = [path for path, _ in found]
        # jax holds None for nothing, also at the end of a tuple.
        whole = paths == [""] or not isinstance(y, (tuple, list)) or len(paths) == len(y)
        if whole and all(path in ("", f"[{k}]") for k, path in enumerate(paths)):
            return [], y
        return paths, tuple(leaf for _, leaf in found)


@dataclass(frozen=True)
class Leaves:
    """A function of containers, and where it is differentiated, by the arrays in them."""

    f: OfLeaves
    inputs: tuple[Any, ...]
    argnums: tuple[int, ...]
    nondifferentiable_outputs: tuple[int, ...]
    names: tuple[str, ...]
    """Of the inputs, by their places in the containers; none where there are no containers."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return where the outputs are in containers, once f was called."""
        return tuple(self.f.paths)


def leaves_of(
    library: ContainerLibrary,
    f: Callable[..., Any],
    inputs: Sequence[Any],
    argnums: Sequence[int] | None,
    left_out: Sequence[int],
    kwargs: dict[str, Any],
) -> Leaves:
    """
    Return a function as one of all that its inputs hold.

    Of a container, and where no input is named, f is differentiated by what is active; by an array
    that is named in any case. A container of nothing else stays whole.
    """
    of_leaves = OfLeaves(library, f, inputs)
    opened = of_leaves.opened
    chosen = range(len(inputs)) if argnums is None else argnums
    places = list(zip(opened.owners, opened.paths, strict=True))

    def is_chosen(position: int) -> bool:
        named = argnums is not None and not opened.paths[position]
        return named or library.is_active(opened.leaves[position])

    def positions(of: Sequence[int]) -> Sequence[int]:
        """Return where what some outputs hold is in what all of them do."""
        own = [copied(library, x) for x in opened.leaves]
        y = f(*opened.together(own), **kwargs)
        outputs = several(y)
        if not set(of) <= set(range(len(outputs))):
            return of  # which are refused where outputs are counted
        owners = [k for k, output in enumerate(outputs) for _ in library.apart(output)[0]]
        return [position for position, owner in enumerate(owners) if owner in of]

    return Leaves(
        of_leaves,
        opened.leaves,
        tuple(k for owner in chosen for k in opened.of_owner(owner) if is_chosen(k)),
        tuple(positions(left_out)) if left_out else (),
        tuple(f"{owner}{path}" for owner, path in places) if any(opened.paths) else (),
    )
