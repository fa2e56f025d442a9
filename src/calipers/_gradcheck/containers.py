"""Arguments and results that are containers or sparse matrices, as NumPy arrays and back."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._core.arrays import as_array, is_sparse
from .._core.containers import FlatArguments, Flattened, as_tuple, flatten, is_container, items_of
from .._core.libraries import library_of
from .._core.protocols import ContainerLibrary, NDArray
from ..interop.sparse_inputs import SparseInput, scipy_input
from .flatten import WrongFormError, as_outputs, picked, require_zero

_MISSING = object()
_OUTPUT = "output "  # all that f returned
_NOUNS = {"jac": "derivative", "vjp": "gradient", "jvp": "tangent"}


class NumpyContainers:
    """
    Lists, tuples, dicts and dataclasses of arrays, as functions of NumPy take and return them.

    Numbers in them are settings, and held constant. See `ContainerLibrary`.
    """

    def flatten(self, x: Any) -> Flattened:
        return flatten(x)

    def is_active(self, x: Any) -> bool:
        return is_array(x)

    def copied(self, x: Any) -> Any:
        return x


def is_array(x: Any) -> bool:
    """Return True if x is an array of floating-point numbers, or a sparse matrix of them."""
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "fc"
    if is_sparse(x):
        return x.dtype.kind in "fc"
    return library_of(x) is not None and np.asarray(as_array(x, "inputs")).dtype.kind in "fc"


def holds_arrays(x: Any) -> bool:
    """Return True if x is a container of arrays by which a function can be differentiated."""
    return is_container(x) and any(is_array(leaf) for _, leaf in flatten(x)[0])


def copied(library: ContainerLibrary, x: Any) -> Any:
    """Copy an array, NumPy's or a library's; return other values unchanged."""
    return x.copy() if isinstance(x, np.ndarray) else library.copied(x)


class Structure:
    """
    How the arguments and the result of a function are made of arrays.

    Arguments may be containers of arrays and sparse matrices, and the result may be a container.
    Its methods convert all arguments and results of f and its derivatives. Cotangents, tangents
    and gradients of a container have its structure. None marks a constant leaf in arguments, and
    a zero in results.

    f is differentiated with respect to the active leaves of containers, and to each array that
    `argnums` names. Containers without active leaves stay whole.

    Attributes
    ----------
    arrays : tuple
        The arguments as arrays: what containers hold, and the values of sparse matrices.
    argnums : tuple of int
        Positions of the arrays with respect to which f is differentiated.
    held : tuple of int
        Positions of the other arrays among the first `count` arguments: constants, because the
        caller named no arguments and these cannot be differentiated.
    names : tuple of str
        Paths of the arrays in containers; empty without containers.
    outputs : list of str
        Paths of the arrays in the result of the last call; empty if it is an array or a tuple of
        arrays.
    nondifferentiable_outputs : tuple of int
        Positions of outputs that the caller excludes.
    takes_arrays : bool
        Whether the arguments are arrays themselves.
    """

    def __init__(
        self,
        library: ContainerLibrary,
        arguments: Sequence[Any],
        argnums: Sequence[int] | None,
        count: int = 0,
        masked: bool | None = None,
    ) -> None:
        self._made_from = library, tuple(arguments), argnums, count, masked
        self._library, self._arguments = library, tuple(arguments)
        self._opened = opened = FlatArguments(arguments, library.is_active, library.flatten)
        self._sparse: dict[int, SparseInput] = {}
        self._nested = any(opened.paths)
        arrays, names, active, held = [], [], [], []
        for k, (leaf, path, owner) in enumerate(
            zip(opened.leaves, opened.paths, opened.owners, strict=True)
        ):
            matrix = None
            if masked is not None and type(leaf) is not np.ndarray:
                matrix = scipy_input(leaf, masked)
            if matrix is not None:
                self._sparse[k] = matrix
            arrays.append(leaf if matrix is None else matrix.values)
            names.append(f"{owner}{path}")
            chosen = argnums is None or owner in argnums
            if chosen and ((argnums is not None and not path) or library.is_active(leaf)):
                active.append(k)
            elif owner < count:
                held.append(k)
        if argnums is not None:  # in the caller's order
            active.sort(key=lambda k: argnums.index(opened.owners[k]))
        self.arrays, self.argnums, self.held = tuple(arrays), tuple(active), tuple(held)
        self.takes_arrays = not (self._nested or self._sparse)
        self.names = tuple(names) if self._nested else ()
        self.outputs: list[str] = []
        self.nondifferentiable_outputs: tuple[int, ...] = ()
        self._returned: Any = None
        # The arguments that are differentiated, in the order of `argnums`.
        self._owners = list(dict.fromkeys(opened.owners[k] for k in self.argnums))

    def __reduce__(self) -> Any:
        """Pickle the arguments of the constructor, which hold no closures."""
        return Structure, self._made_from

    @property
    def value_indices(self) -> dict[int, tuple[NDArray, ...]]:
        """Where in each sparse matrix the values are that its array has, by its position."""
        return {k: matrix.indices for k, matrix in self._sparse.items()} if self._sparse else {}

    def exclude_outputs(
        self, f: Callable[..., Any], positions: Sequence[int], kwargs: dict[str, Any]
    ) -> None:
        """Exclude all arrays in some outputs of f; f is called once to get their structure."""
        flatten, leaves = self._library.flatten, self._opened.leaves
        copies = [copied(self._library, x) for x in leaves]
        outputs = as_tuple(f(*self._opened.unflatten(copies), **kwargs))
        self.nondifferentiable_outputs = tuple(positions)  # a wrong one is an error of the check
        if set(positions) <= set(range(len(outputs))):
            owners = [k for k, output in enumerate(outputs) for _ in flatten(output)[0]]
            which = (k for k, owner in enumerate(owners) if owner in positions)
            self.nondifferentiable_outputs = tuple(which)

    def arguments(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return the arguments of f: rebuild sparse matrices and containers from arrays."""
        if self._sparse:
            pairs = enumerate(arrays)
            arrays = [self._sparse[k].build(x) if k in self._sparse else x for k, x in pairs]
        return self._opened.unflatten(arrays) if self._nested else arrays

    def of_derivative(self, form: str, args: Sequence[Any]) -> Sequence[Any]:
        """Return the arguments of a derivative: as for f, but with the caller's sparse matrices."""
        arrays, direction = (args, ()) if form == "jac" else (args[:-1], args[-1:])
        turned = self.cotangent if form == "vjp" else self.tangent
        if self._sparse:
            pairs = enumerate(arrays)
            arrays = [self._sparse[k].original() if k in self._sparse else x for k, x in pairs]
        return [*self._opened.unflatten(arrays), *map(turned, direction)]

    def result(self, y: Any) -> Any:
        """Return the result of f as an array or a tuple of arrays, and note its structure."""
        self._returned = y
        if library_of(y) is not None:  # one array, as in most checks
            self.outputs.clear()
            return y
        self.outputs[:], flat = self.flattened(y)
        return flat

    def flattened(self, y: Any) -> tuple[list[str], Any]:
        """Return the paths of the arrays in a result, and a tuple of them; no paths if flat."""
        held, _ = self._library.flatten(y)
        paths = [path for path, _ in held]
        # jax holds None for nothing, also at the end of a tuple.
        whole = paths == [""] or not isinstance(y, (tuple, list)) or len(paths) == len(y)
        if whole and all(path in ("", f"[{k}]") for k, path in enumerate(paths)):
            return [], y
        return paths, tuple(leaf for _, leaf in held)

    def cotangent(self, w: Any) -> Any:
        """Return cotangents of the differentiable outputs in the structure of f's result."""
        if not self.outputs or w is None:
            return w
        held, again = flatten(self._returned)
        arrays, pairs = iter(w), enumerate(held)
        return again(
            [next(arrays) if self._is_differentiable(k, y) else None for k, (_, y) in pairs]
        )

    def tangent(self, v: Any) -> Any:
        """Return tangents of arrays in the structure of the arguments."""
        if self._sparse:
            pairs = zip(self.argnums, as_tuple(v), strict=True)
            built = [self._sparse[k].build(t) if k in self._sparse else t for k, t in pairs]
            v = tuple(built) if isinstance(v, tuple) else built[0]
        if not self._nested:
            return v
        opened, argnums = self._opened, self.argnums
        tangents = dict(zip(argnums, v if len(argnums) > 1 else (v,), strict=True))
        whole = tuple(
            opened.unflatten_one(owner, [tangents.get(k) for k in opened.leaves_of(owner)])
            for owner in self._owners
        )
        return whole if len(whole) > 1 else whole[0]

    def by_arrays(self, form: str, result: Any) -> Any:
        """Return the result of jac, vjp or jvp with arrays instead of containers."""
        if form == "vjp":
            return self._values(self._by_array(form, result))
        outputs = self._by_output(form, result) if form == "jac" or self.outputs else None
        if form == "jvp":
            return result if outputs is None else tuple(outputs)
        if outputs is None:
            return self._by_array(form, result)
        return [None if one is None else self._by_array(form, one) for one in outputs]

    def _values(self, gradients: Any) -> Any:
        """Convert gradients with respect to sparse matrices to those with respect to values."""
        if not self._sparse:
            return gradients
        if not isinstance(gradients, (tuple, list)):
            return self._read(gradients, self.argnums[0])
        positions: Sequence[int] = self.argnums
        if len(gradients) == len(self.arrays):
            positions = range(len(self.arrays))
        if len(gradients) != len(positions):
            return gradients
        return tuple(self._read(g, k) for g, k in zip(gradients, positions, strict=True))

    def _read(self, gradient: Any, position: int) -> Any:
        if gradient is None or position not in self._sparse:
            return gradient
        return self._sparse[position].read(gradient)

    def _is_differentiable(self, position: int, y: Any) -> bool:
        excluded = position in self.nondifferentiable_outputs
        return not excluded and np.asarray(as_array(y, "f")).dtype.kind in "fc"

    def _by_output(self, form: str, result: Any) -> list[Any] | None:
        """Return one item of a result for each output; None if f returns one array."""
        returned = self._returned
        if not self.outputs:
            is_tuple = returned is not None and as_outputs(returned)[1]
            return list(result) if is_tuple and isinstance(result, (tuple, list)) else None
        items = _leaves_like(returned, result, form, _OUTPUT)
        pairs = enumerate(zip(flatten(returned)[0], items, strict=True))
        return [
            _required(item, form, f"output {path}") if self._is_differentiable(k, y) else None
            for k, ((path, y), item) in pairs
        ]

    def _by_array(self, form: str, result: Any) -> Any:
        """Return one item of a result for each array by which f is differentiated, in a tuple."""
        opened = self._opened
        if not self._nested:
            return result
        arrays = []
        for owner, item in zip(self._owners, self._by_argument(form, result), strict=True):
            x, location = self._arguments[owner], f"input {owner}"
            positions = opened.leaves_of(owner)
            whole = not opened.paths[positions[0]]
            leaves = [item] if whole else _leaves_like(x, item, form, location)
            for k, leaf in zip(positions, leaves, strict=True):
                here = f"{location}{opened.paths[k]}"
                if k in self.argnums:
                    arrays.append(_required(leaf, form, here))
                # A setting that comes back as it is says nothing, as of dataclasses.replace.
                elif leaf is not _MISSING and leaf is not opened.leaves[k]:
                    require_zero(leaf, form, here)
        return tuple(arrays) if form == "vjp" or len(arrays) > 1 else arrays[0]

    def _by_argument(self, form: str, result: Any) -> Sequence[Any]:
        """Return one item of a result for each differentiable argument of the caller's."""
        wanted, every = len(self._owners), len(self._arguments)
        is_tuple = isinstance(result, (tuple, list))
        if wanted == 1:
            x = self._arguments[self._owners[0]]
            like_x = isinstance(x, (tuple, list)) and is_tuple and len(result) == len(x)
            if form == "jac" or not is_tuple or like_x:
                return [result]
        chosen = picked(result, self._owners, every) if is_tuple else None
        if chosen is None:
            count = len(result) if is_tuple else 1
            msg = (
                f"{form} returned {count} {_NOUNS[form]}{'s' * (count != 1)}, expected {wanted}: "
                f"one for each differentiable input"
            )
            raise WrongFormError(msg)
        for k in self.held if len(result) == every else ():
            owner = self._opened.owners[k]
            if owner not in self._owners:
                require_zero(result[owner], form, f"input {owner}")
        return chosen


def _required(item: Any, form: str, location: str) -> Any:
    if item is _MISSING:
        msg = f"{form} returned no {_NOUNS[form]} for {location}: return it, or None for zeros"
        raise WrongFormError(msg)
    return item


def _leaves_like(x: Any, other: Any, form: str, location: str) -> list[Any]:
    """Return the leaves of a container that has the structure of x."""
    if not is_container(x):
        return [other]
    if other is None or other is _MISSING:
        return [other] * len(flatten(x)[0])
    what = f"the {_NOUNS[form]} that {form} returned"
    if location != _OUTPUT:
        what += f" for {location}"
    like = "like f's result" if location.startswith(_OUTPUT) else "like the input"
    if isinstance(x, dict):
        if not isinstance(other, dict):
            msg = f"{what} must be a dict {like}, got {type(other).__name__}"
            raise WrongFormError(msg)
        for key in other:
            if key not in x:
                keys = ", ".join(map(repr, x))
                raise WrongFormError(f"{what} has the unknown key {key!r}; the keys are {keys}")
        values = [other.get(key, _MISSING) for key in x]
    elif isinstance(x, (list, tuple)):
        if not isinstance(other, (list, tuple)) or len(other) != len(x):
            got = f"{len(other)}" if isinstance(other, (list, tuple)) else type(other).__name__
            msg = f"{what} must be a {type(x).__name__} of {len(x)} {like}, got {got}"
            raise WrongFormError(msg)
        values = list(other)
    else:
        if not isinstance(other, type(x)):
            msg = f"{what} must be a {type(x).__name__} {like}, got {type(other).__name__}"
            raise WrongFormError(msg)
        values = [getattr(other, key) for _, key, _ in items_of(x)]
    return [
        leaf
        for (inside, _, item), value in zip(items_of(x), values, strict=True)
        for leaf in _leaves_like(item, value, form, f"{location}{inside}")
    ]
