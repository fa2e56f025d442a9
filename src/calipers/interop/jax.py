"""JAX arrays."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._core.containers import Flattened, as_tuple, contains
from .._core.protocols import Differentiated, NDArray


class Jax:
    """See `ArrayLibrary`."""

    def owns(self, x: Any) -> bool:
        jax = sys.modules.get("jax")
        return jax is not None and isinstance(x, getattr(jax, "Array", ()))

    def device(self, x: Any) -> str:
        jax = sys.modules["jax"]
        if isinstance(x, jax.core.Tracer):
            msg = (
                "a traced jax array has no values to compare; "
                "call calipers outside jit, or through jax.pure_callback"
            )
            raise TypeError(msg)
        devices = sorted({f"{d.platform}:{d.id}" for d in x.devices()})
        return "cpu" if all(d.startswith("cpu") for d in devices) else ", ".join(devices)

    def to_host_advice(self, x: Any, name: str) -> str:
        return f"jax.device_get({name})"

    def as_numpy(self, x: Any) -> NDArray:
        return np.asarray(x)

    def from_numpy(self, x: Any) -> Any:
        return sys.modules["jax"].numpy.array(x)

    def on_device(self, x: Any) -> tuple[Any, str | None, int | None]:
        if len(x.devices()) > 1:
            msg = "a jax array that is sharded over devices is not compared there; "
            msg += "pass its shards, x.addressable_data(i), or jax.device_get(x)"
            raise TypeError(msg)
        x.block_until_ready()
        return (_Bits(x), "bfloat16", None) if x.dtype.name == "bfloat16" else (x, None, None)

    def empty(self, shape: tuple[int, ...], like: Any) -> Any | None:
        return None  # jax's arrays never change

    def from_device(self, x: Any, like: Any) -> Any:
        # A copy: jax does not keep what it only views alive.
        return sys.modules["jax"].numpy.array(x).block_until_ready()

    def put(self, x: NDArray, like: Any) -> Any:
        # A copy: jax views memory that is aligned, and its arrays must not change.
        return sys.modules["jax"].device_put(x.copy(), next(iter(like.devices())))

    def fetch(self, x: Any) -> NDArray:
        return np.asarray(sys.modules["jax"].device_get(x))


class _Bits:
    """View of an array as bits, for dtypes that the CUDA array interface has no name for."""

    def __init__(self, x: Any) -> None:
        self._array = x
        self.__cuda_array_interface__ = {
            "shape": x.shape,
            "typestr": "<u2",
            "data": (x.unsafe_buffer_pointer(), True),
            "strides": None,
            "version": 3,
        }


_library = Jax()


class JaxFunctions:
    """See `FunctionLibrary`."""

    def owns(self, x: Any) -> bool:
        return "jax" in sys.modules and contains(x, self.flatten, _library.owns)

    def flatten(self, x: Any) -> Flattened:
        tree = sys.modules["jax"].tree_util
        leaves, structure = tree.tree_flatten_with_path(x)
        return [(tree.keystr(path), leaf) for path, leaf in leaves], structure.unflatten

    def is_active(self, x: Any) -> bool:
        return _is_differentiable(sys.modules["jax"], x)

    def copied(self, x: Any) -> Any:
        return x  # jax arrays are immutable

    def differentiated(
        self,
        f: Callable[..., Any],
        inputs: tuple[Any, ...],
        masked: bool,
        argnums: tuple[int, ...] | None,
        left_out: tuple[int, ...],
        names: tuple[str, ...],
    ) -> Differentiated:
        jax: Any = sys.modules["jax"]
        able = tuple(k for k, x in enumerate(inputs) if _is_differentiable(jax, x))
        argnums = able if argnums is None else tuple(k for k in argnums if k in able)
        function = _JaxFunction(f, inputs, argnums, left_out)
        return Differentiated(
            function,
            function.arrays,
            argnums,
            left_out,
            function.vjp,
            function.jvp,
            "jax",
            function.batched,
            primals=function.primals,
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

        def gradient(*args: Any) -> tuple[Any, ...]:
            point, w = args[: len(inputs)], args[len(inputs) :]

            def inner(*chosen: Any) -> Any:
                whole = list(point)
                for k, x in zip(argnums, chosen, strict=True):
                    whole[k] = x
                every = as_tuple(f(*whole))
                return tuple(_as_jax(every[k]) for k in outputs)

            pull = jax.vjp(inner, *(point[k] for k in argnums))[1]
            return tuple(pull(tuple(w)))

        return gradient, (*inputs, *map(jax.numpy.asarray, cotangents))


class _JaxFunction:
    """
    Wrapper that calls a function of jax arrays with NumPy arrays.

    Attributes
    ----------
    arrays : tuple
        The original arguments as NumPy arrays.
    primals : dict
        The values of f that its derivatives computed: those of a custom rule may differ.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        inputs: tuple[Any, ...],
        argnums: tuple[int, ...],
        left_out: tuple[int, ...],
    ) -> None:
        self._jax: Any = sys.modules["jax"]
        self._inner, self._argnums, self._left_out = f, argnums, left_out
        self._are_jax = [_library.owns(x) and not _is_key(self._jax, x) for x in inputs]
        pairs = zip(inputs, self._are_jax, strict=True)
        self.arrays: tuple[Any, ...] = tuple(
            _library.as_numpy(x) if is_jax else x for x, is_jax in pairs
        )
        self.primals: dict[str, Any] = {}
        self._pulled: tuple[Any, Callable[..., Any]] | None = None

    def __call__(self, *args: Any) -> Any:
        """Return the results of f as NumPy arrays."""
        return _as_arrays(self._f(*self._as_jax_arrays(args)))

    def _f(self, *args: Any) -> Any:
        """Return the results of f, with constants of NumPy and Python as jax arrays."""
        y = self._inner(*args)
        return tuple(map(_as_jax, y)) if isinstance(y, (tuple, list)) else _as_jax(y)

    def _as_jax_arrays(self, args: Sequence[Any]) -> list[Any]:
        asarray = self._jax.numpy.asarray
        return [asarray(x) if is_jax else x for x, is_jax in zip(args, self._are_jax, strict=True)]

    def _of_active(self, args: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
        """Return the differentiable outputs as a function of active inputs, and these inputs."""
        every = self._as_jax_arrays(args)

        def inner(*active: Any) -> Any:
            whole = list(every)
            for k, x in zip(self._argnums, active, strict=True):
                whole[k] = x
            return tuple(
                y
                for k, y in enumerate(as_tuple(self._f(*whole)))
                if k not in self._left_out and _is_differentiable(self._jax, y)
            )

        return inner, [every[k] for k in self._argnums]

    def vjp(self, *args: Any) -> tuple[Any, ...]:
        """Return the gradients; f is linearized once."""
        *point, w = args
        if self._pulled is None:
            inner, active = self._of_active(point)
            self._pulled = self._jax.vjp(inner, *active)
            self.primals["jax.vjp"] = _as_arrays(self._pulled[0])
        outputs, pull = self._pulled
        cotangents = self._directions(as_tuple(w), outputs)
        if cotangents[0].ndim > outputs[0].ndim:
            pull = self._jax.vmap(pull)
        return tuple(map(np.asarray, pull(cotangents)))

    def jvp(self, *args: Any) -> tuple[Any, ...]:
        """Return the tangents; batches are computed by vmap."""
        *point, v = args
        inner, active = self._of_active(point)
        tangents = self._directions(as_tuple(v), active)

        def push(*tangents: Any) -> Any:
            return self._jax.jvp(inner, tuple(active), tangents)

        if tangents[0].ndim > active[0].ndim:
            return tuple(map(np.asarray, self._jax.vmap(push)(*tangents)[1]))
        values, results = push(*tangents)
        self.primals["jax.jvp"] = _as_arrays(values)
        return tuple(map(np.asarray, results))

    def _directions(self, directions: Sequence[Any], like: Sequence[Any]) -> tuple[Any, ...]:
        """Return cotangents or tangents; None stands for zeros."""
        numpy = self._jax.numpy
        return tuple(
            numpy.zeros_like(x) if d is None else numpy.asarray(d)
            for d, x in zip(directions, like, strict=True)
        )

    def batched(self, position: int) -> Callable[..., Any]:
        """Return f by vmap over one input."""
        axes = [0 if k == position else None for k in range(len(self._are_jax))]
        mapped = self._jax.vmap(self._f, in_axes=axes)
        return lambda *args: _as_arrays(mapped(*self._as_jax_arrays(args)))


def _as_arrays(y: Any) -> Any:
    return tuple(map(_as_array, y)) if isinstance(y, (tuple, list)) else _as_array(y)


def _as_array(y: Any) -> Any:
    is_array = _library.owns(y) and not _is_key(sys.modules["jax"], y)
    return np.asarray(y) if is_array else y  # the caller raises for other types


def _as_jax(y: Any) -> Any:
    """Convert a floating-point constant of NumPy or Python to a jax array."""
    if isinstance(y, (np.ndarray, np.generic, float, complex)):
        jax: Any = sys.modules["jax"]
        dtype = np.asarray(y).dtype
        if dtype.char not in "gG" and jax.numpy.issubdtype(dtype, np.inexact):
            return jax.numpy.asarray(y)
    return y


def _is_key(jax: Any, x: Any) -> bool:
    """Return True if an array has random keys, which are not numbers."""
    return bool(jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key))


def _is_differentiable(jax: Any, x: Any) -> bool:
    return isinstance(x, jax.Array) and jax.numpy.issubdtype(x.dtype, np.inexact)
