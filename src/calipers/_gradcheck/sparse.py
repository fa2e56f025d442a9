"""Functions of sparse matrices, as functions of arrays of their values."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._containers import several
from .._protocols import NDArray
from ..interop.sparse_inputs import SparseInput, scipy_input


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
