"""Derivatives of functions of containers and of sparse matrices, as derivatives by arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._arrays import as_array, is_sparse
from .._containers import Apart, apart, is_container, items_of, several
from .._libraries import library_of
from .._protocols import NDArray
from ..interop.containers import Leaves
from ..interop.sparse_inputs import SparseInput, scipy_input
from .analytic import WrongFormError, require_nothing
from .flatten import as_outputs, picked

_MISSING = object()
_OUTPUT = "output "  # all that f returned
_NOUNS = {"jac": "derivative", "vjp": "gradient", "jvp": "tangent"}


class NumpyContainers:
    """
    Lists, tuples, dicts and dataclasses of arrays, as functions of NumPy take and return them.

    Numbers in them are settings, and held constant. See `ContainerLibrary`.
    """

    def apart(self, x: Any) -> Apart:
        return apart(x)

    def is_active(self, x: Any) -> bool:
        return is_array(x)

    def copied(self, x: Any) -> Any:
        return x


def is_array(x: Any) -> bool:
    """Tell whether x is an array of floating-point numbers, or a sparse matrix of them."""
    if isinstance(x, np.ndarray) or is_sparse(x):
        return x.dtype.kind in "fc"
    return library_of(x) is not None and np.asarray(as_array(x, "inputs")).dtype.kind in "fc"


def holds_arrays(x: Any) -> bool:
    """Tell whether x is a container of arrays by which a function can be differentiated."""
    return is_container(x) and any(is_array(leaf) for _, leaf in apart(x)[0])


class Nested:
    """
    Translates what derivatives take and return between containers and the arrays in them.

    What belongs to a container is a container of the same form. In those that the caller's
    functions take, None stands for what is held constant; in those that they return, for zeros.
    """

    def __init__(self, leaves: Leaves, inputs: Sequence[Any], held: Sequence[int]) -> None:
        self._leaves, self._inputs, self._held = leaves, inputs, held
        opened = leaves.f.opened
        # In the order in which they are differentiated.
        self._owners = list(dict.fromkeys(opened.owners[k] for k in leaves.argnums))

    def jac(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return jac of arrays, with a block for each of them."""

        def of_arrays(*given: Any, **kwargs: Any) -> Any:
            found = call(*self._leaves.f.opened.together(given), **kwargs)
            lines = self._by_output("jac", found)
            if lines is not None:
                return [None if line is None else self._by_array("jac", line) for line in lines]
            return self._by_array("jac", found)

        return of_arrays

    def vjp(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return vjp of arrays, with a gradient for each of them."""

        def of_arrays(*given: Any, **kwargs: Any) -> Any:
            *point, w = given
            point = self._leaves.f.opened.together(point)
            return self._by_array("vjp", call(*point, self._cotangent(w), **kwargs))

        return of_arrays

    def jvp(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return jvp of arrays, of a tangent for each of them."""

        def of_arrays(*given: Any, **kwargs: Any) -> Any:
            *point, v = given
            point = self._leaves.f.opened.together(point)
            found = call(*point, self._tangent(v), **kwargs)
            lines = self._by_output("jvp", found) if self._leaves.outputs else None
            return found if lines is None else tuple(lines)

        return of_arrays

    def _cotangent(self, w: Any) -> Any:
        """Return cotangents of the differentiable outputs as f returns these."""
        if not self._leaves.outputs or w is None:
            return w
        held, again = apart(self._leaves.f.returned)
        given = iter(w)
        return again(
            [next(given) if self._is_kept(k, y) else None for k, (_, y) in enumerate(held)]
        )

    def _is_kept(self, position: int, y: Any) -> bool:
        left_out = position in self._leaves.nondifferentiable_outputs
        return not left_out and np.asarray(as_array(y, "f")).dtype.kind in "fc"

    def _tangent(self, v: Any) -> Any:
        """Return tangents of arrays as f takes these."""
        opened, argnums = self._leaves.f.opened, self._leaves.argnums
        tangents = dict(zip(argnums, v if len(argnums) > 1 else (v,), strict=True))
        built = tuple(
            opened.one(owner, [tangents.get(k) for k in opened.of_owner(owner)])
            for owner in self._owners
        )
        return built if len(built) > 1 else built[0]

    def _by_output(self, name: str, found: Any) -> list[Any] | None:
        """Return what was given for each output; None where there is one, and no container."""
        returned = self._leaves.f.returned
        if not self._leaves.outputs:
            several = returned is not None and as_outputs(returned)[1]
            return list(found) if several and isinstance(found, (tuple, list)) else None
        lines = _beside(returned, found, name, _OUTPUT)
        pairs = enumerate(zip(apart(returned)[0], lines, strict=True))
        return [
            _given(line, name, f"output {path}") if self._is_kept(k, y) else None
            for k, ((path, y), line) in pairs
        ]

    def _by_array(self, name: str, found: Any) -> Any:
        """Return what was given for each array by which f is differentiated, in a tuple."""
        opened, argnums = self._leaves.f.opened, set(self._leaves.argnums)
        if not any(opened.paths):
            return found
        result = []
        for owner, piece in zip(self._owners, self._by_input(name, found), strict=True):
            x, place = self._inputs[owner], f"input {owner}"
            positions = opened.of_owner(owner)
            whole = not opened.paths[positions[0]]
            lines = [piece] if whole else _beside(x, piece, name, place)
            for k, line in zip(positions, lines, strict=True):
                here = f"{place}{opened.paths[k]}"
                if k in argnums:
                    result.append(_given(line, name, here))
                # A setting that comes back as it is says nothing, as of dataclasses.replace.
                elif line is not _MISSING and line is not opened.leaves[k]:
                    require_nothing(line, name, here)
        return tuple(result) if name == "vjp" or len(result) > 1 else result[0]

    def _by_input(self, name: str, found: Any) -> Sequence[Any]:
        """Return what was given for each differentiable input of the caller's."""
        wanted, every = len(self._owners), len(self._inputs)
        several = isinstance(found, (tuple, list))
        if wanted == 1:
            x = self._inputs[self._owners[0]]
            own = isinstance(x, (tuple, list)) and several and len(found) == len(x)
            if name == "jac" or not several or own:
                return [found]
        chosen = picked(found, self._owners, every) if several else None
        if chosen is None:
            count = len(found) if several else 1
            msg = (
                f"{name} returned {count} {_NOUNS[name]}{'s' * (count != 1)}, expected {wanted}: "
                f"one for each differentiable input"
            )
            raise WrongFormError(msg)
        for k in self._held if len(found) == every else ():
            owner = self._leaves.f.opened.owners[k]
            if owner not in self._owners:
                require_nothing(found[owner], name, f"input {owner}")
        return chosen


def _given(line: Any, name: str, place: str) -> Any:
    if line is _MISSING:
        msg = f"{name} returned no {_NOUNS[name]} for {place}: return it, or None for zeros"
        raise WrongFormError(msg)
    return line


def _beside(x: Any, other: Any, name: str, place: str) -> list[Any]:
    """Return what is held by a container like x, of the same form, in the place of each leaf."""
    if not is_container(x):
        return [other]
    if other is None or other is _MISSING:
        return [other] * len(apart(x)[0])
    told = f"the {_NOUNS[name]} that {name} returned"
    if place != _OUTPUT:
        told += f" for {place}"
    like = "like f's result" if place.startswith(_OUTPUT) else "like the input"
    if isinstance(x, dict):
        if not isinstance(other, dict):
            msg = f"{told} must be a dict {like}, got {type(other).__name__}"
            raise WrongFormError(msg)
        for key in other:
            if key not in x:
                keys = ", ".join(map(repr, x))
                raise WrongFormError(f"{told} has the unknown key {key!r}; the keys are {keys}")
        given = [other.get(key, _MISSING) for key in x]
    elif isinstance(x, (list, tuple)):
        if not isinstance(other, (list, tuple)) or len(other) != len(x):
            got = f"{len(other)}" if isinstance(other, (list, tuple)) else type(other).__name__
            msg = f"{told} must be a {type(x).__name__} of {len(x)} {like}, got {got}"
            raise WrongFormError(msg)
        given = list(other)
    else:
        if not isinstance(other, type(x)):
            msg = f"{told} must be a {type(x).__name__} {like}, got {type(other).__name__}"
            raise WrongFormError(msg)
        given = [getattr(other, key) for _, key, _ in items_of(x)]
    return [
        found
        for (inside, _, value), own in zip(items_of(x), given, strict=True)
        for found in _beside(value, own, name, f"{place}{inside}")
    ]


class DenseView:
    """Translates arguments to sparse matrices, and gradients by them to arrays."""

    def __init__(self, inputs: tuple[Any, ...], masked: bool, argnums: Any = None) -> None:
        self._sparse: dict[int, SparseInput] = {}
        for k, x in enumerate(inputs):
            found = scipy_input(x, masked)
            if found is not None:
                self._sparse[k] = found
        self._count = len(inputs)
        self.inputs = tuple(
            self._sparse[k].values if k in self._sparse else x for k, x in enumerate(inputs)
        )
        self._active: list[int] = []
        if self._sparse and argnums is not None:
            self._active = [int(k) for k in np.atleast_1d(argnums)]
        elif self._sparse:
            self._active = [
                k for k, x in enumerate(self.inputs) if np.asarray(x).dtype.kind in "fc"
            ]

    def __bool__(self) -> bool:
        """Whether any input is sparse."""
        return bool(self._sparse)

    @property
    def places(self) -> dict[int, tuple[NDArray, ...]]:
        """Where in each matrix the values are that its array is of."""
        return {k: own.places for k, own in self._sparse.items()}

    def function(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return f of arrays."""

        def of_arrays(*given: Any, **kwargs: Any) -> Any:
            return f(*self._built(given[: self._count]), *given[self._count :], **kwargs)

        return of_arrays

    def jac(self, jac: Callable[..., Any]) -> Callable[..., Any]:
        """Return jac, or vjp, asked with arrays about the caller's own matrices."""

        def of_arrays(*given: Any, **kwargs: Any) -> Any:
            return jac(*self._originals(given[: self._count]), *given[self._count :], **kwargs)

        return of_arrays

    def vjp(self, vjp: Callable[..., Any]) -> Callable[..., Any]:
        """Return vjp of arrays, whose gradients are arrays."""
        inner = self.jac(vjp)

        def of_arrays(*given: Any, **kwargs: Any) -> Any:
            found = inner(*given, **kwargs)
            if not isinstance(found, (tuple, list)):
                return self._read(found, self._active[0])
            every = len(found) == self._count
            positions = range(self._count) if every else self._active
            if len(found) != len(positions):
                return found
            return tuple(self._read(g, k) for g, k in zip(found, positions, strict=True))

        return of_arrays

    def jvp(self, jvp: Callable[..., Any]) -> Callable[..., Any]:
        """Return jvp of arrays, whose tangents are arrays."""

        def of_arrays(*given: Any, **kwargs: Any) -> Any:
            *point, v = given
            tangents = several(v)
            built = tuple(
                self._sparse[k].build(t) if k in self._sparse else t
                for k, t in zip(self._active, tangents, strict=True)
            )
            point[: self._count] = self._originals(tuple(point[: self._count]))
            return jvp(*point, built if isinstance(v, tuple) else built[0], **kwargs)

        return of_arrays

    def _built(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            self._sparse[k].build(x) if k in self._sparse else x for k, x in enumerate(given)
        )

    def _originals(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            self._sparse[k].original() if k in self._sparse else x for k, x in enumerate(given)
        )

    def _read(self, gradient: Any, position: int) -> Any:
        if gradient is None or position not in self._sparse:
            return gradient
        return self._sparse[position].read(gradient)
