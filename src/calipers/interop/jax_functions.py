"""jax functions, whose derivatives come from jax itself."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .._containers import Apart, several
from .._protocols import Differentiated, NDArray
from .containers import contains
from .jax import Jax

_library = Jax()


class JaxFunctions:
    """See `FunctionLibrary`."""

    def owns(self, x: Any) -> bool:
        return "jax" in sys.modules and contains(x, self.apart, _library.owns)

    def apart(self, x: Any) -> Apart:
        tree = sys.modules["jax"].tree_util
        found, structure = tree.tree_flatten_with_path(x)
        return [(tree.keystr(path), leaf) for path, leaf in found], structure.unflatten

    def is_active(self, x: Any) -> bool:
        return _is_differentiable(sys.modules["jax"], x)

    def copied(self, x: Any) -> Any:
        return x  # which nobody can write into

    def differentiated(
        self,
        f: Callable[..., Any],
        inputs: tuple[Any, ...],
        masked: bool,
        argnums: tuple[int, ...] | None,
        left_out: tuple[int, ...],
    ) -> Differentiated:
        jax: Any = sys.modules["jax"]
        ours = [_library.owns(x) and not _is_key(jax, x) for x in inputs]
        arrays = tuple(
            _library.as_numpy(x) if own else x for x, own in zip(inputs, ours, strict=True)
        )
        able = tuple(k for k, x in enumerate(inputs) if _is_differentiable(jax, x))
        argnums = able if argnums is None else tuple(k for k in argnums if k in able)

        def placed(given: tuple[Any, ...]) -> list[Any]:
            return [jax.numpy.asarray(x) if own else x for x, own in zip(given, ours, strict=True)]

        def as_arrays(y: Any) -> Any:
            return tuple(map(np.asarray, y)) if isinstance(y, (tuple, list)) else np.asarray(y)

        def value(*given: Any) -> Any:
            return as_arrays(f(*placed(given)))

        def of_active(given: tuple[Any, ...]) -> tuple[Callable[..., Any], list[Any]]:
            every = placed(given)

            def inner(*active: Any) -> Any:
                whole = list(every)
                for k, x in zip(argnums, active, strict=True):
                    whole[k] = x
                y = f(*whole)
                return tuple(
                    o
                    for k, o in enumerate(several(y))
                    if k not in left_out and _is_differentiable(jax, o)
                )

            return inner, [every[k] for k in argnums]

        pulled: list[Any] = []
        primals: dict[str, Any] = {}  # a custom rule has a value of its own

        def vjp(*given: Any) -> Any:
            *point, w = given
            if not pulled:  # the linearization is at one point
                inner, active = of_active(tuple(point))
                pulled.extend(jax.vjp(inner, *active))
                primals["jax.vjp"] = tuple(map(np.asarray, pulled[0]))
            outputs, pull = pulled
            cotangents = tuple(
                jax.numpy.zeros_like(y) if c is None else jax.numpy.asarray(c)
                for y, c in zip(outputs, several(w), strict=True)
            )
            if cotangents[0].ndim > outputs[0].ndim:
                pull = jax.vmap(pull)
            return tuple(map(np.asarray, pull(cotangents)))

        def jvp(*given: Any) -> Any:
            *point, v = given
            inner, active = of_active(tuple(point))
            tangents = tuple(
                jax.numpy.zeros_like(x) if t is None else jax.numpy.asarray(t)
                for x, t in zip(active, several(v), strict=True)
            )

            def push(*tangents: Any) -> Any:
                return jax.jvp(inner, tuple(active), tangents)

            if tangents[0].ndim > active[0].ndim:
                return tuple(map(np.asarray, jax.vmap(push)(*tangents)[1]))
            values, found = push(*tangents)
            primals["jax.jvp"] = tuple(map(np.asarray, values))
            return tuple(map(np.asarray, found))

        def batched(position: int) -> Callable[..., Any] | None:
            axes = [0 if k == position else None for k in range(len(inputs))]

            def of_batch(*given: Any) -> Any:
                return as_arrays(jax.vmap(f, in_axes=axes)(*given))

            return of_batch

        return Differentiated(
            value, arrays, argnums, left_out, vjp, jvp, "jax", batched, primals=primals
        )

    def gradient(
        self,
        f: Callable[..., Any],
        inputs: tuple[Any, ...],
        argnums: tuple[int, ...],
        outputs: tuple[int, ...],
        cotangents: tuple[NDArray, ...],
        spread: bool,
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        jax: Any = sys.modules["jax"]

        def gradient(*given: Any) -> tuple[Any, ...]:
            point, w = given[: len(inputs)], given[len(inputs) :]

            def inner(*chosen: Any) -> Any:
                whole = list(point)
                for k, x in zip(argnums, chosen, strict=True):
                    whole[k] = x
                y = f(*whole)
                every = several(y)
                return tuple(every[k] for k in outputs)

            pull = jax.vjp(inner, *(point[k] for k in argnums))[1]
            return tuple(pull(tuple(w)))

        return gradient, (*inputs, *map(jax.numpy.asarray, cotangents))


def _is_key(jax: Any, x: Any) -> bool:
    """Tell whether an array is of random keys, which are no numbers."""
    return bool(jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key))


def _is_differentiable(jax: Any, x: Any) -> bool:
    return isinstance(x, jax.Array) and jax.numpy.issubdtype(x.dtype, np.inexact)
