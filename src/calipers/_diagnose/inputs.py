"""Inputs as NumPy arrays, and those of them that can be moved by last places."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._compare.tolerances import name_of
from .._core.containers import FlatArguments, as_tuple, flatten
from .._core.dtypes import ROUNDOFF
from .._core.libraries import library_of
from .._core.protocols import ArrayLibrary, NDArray
from .callables import Result

_VECTOR = 64  # bytes: the widest that processors have
_STRIP = 8  # rows that are turned at a time: more of them evict one another's cache lines


def layouts(inputs: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Give the same numbers, laid out in other ways."""
    yield "in column-major order", [_column_major(x) for x in inputs]
    unaligned = [misaligned(x) if isinstance(x, np.ndarray) else x for x in inputs]
    yield "in unaligned memory", unaligned


def slices(inputs: Sequence[Any], batch: Sequence[int]) -> Iterator[tuple[str, Any, list[Any]]]:
    """Give parts of a batch: what they are called, which rows, and the inputs."""
    batched = [inputs[k] for k in batch if k < len(inputs)]
    rows = {x.shape[0] for x in batched if isinstance(x, np.ndarray) and x.ndim}
    if len(rows) != 1:
        return
    (n,) = rows
    middle = slice(n // 2, n // 2 + 1)
    for name, part in (("a batch of 1", middle), ("a batch of 3", slice(0, 3))):
        if n > (part.stop - part.start):
            chosen = [x[part] if k in batch else x for k, x in enumerate(inputs)]
            yield name, part, chosen


def contiguous(inputs: Sequence[Any]) -> list[Any] | None:
    """Return the same arrays in C order, without gaps; None if they are so."""
    loose = [x for x in inputs if isinstance(x, np.ndarray) and not x.flags.c_contiguous]
    if not loose:
        return None
    return [np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in inputs]


def _column_major(x: Any) -> Any:
    if not isinstance(x, np.ndarray) or x.ndim < 2:
        return x
    turned = np.empty_like(x, order="F")
    for start in range(0, len(x), _STRIP):
        turned[start : start + _STRIP] = x[start : start + _STRIP]
    return turned


def misaligned(x: NDArray) -> NDArray:
    """Copy an array to memory that begins one element after where vectors do."""
    if x.dtype.hasobject:  # whose references NumPy keeps where it wants them
        return x.copy()
    memory = np.empty(x.nbytes + 2 * _VECTOR, np.uint8)
    start = -memory.ctypes.data % _VECTOR + x.itemsize
    shifted = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    shifted[...] = x
    return shifted


class NestedInputs(FlatArguments):
    """
    The arrays and numbers of all inputs, in order, and how they become the arguments of a call.

    Attributes
    ----------
    titles : tuple of str
        How each is reached: "1", or "0['weights'][2]".
    names : tuple of str
        What messages call it: "inputs[1]", or "inputs[0]['weights'][2]".
    whole : tuple of bool
        Whether it is an input itself.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        super().__init__(inputs, _is_array, partial(flatten, of_floats=True))
        for x in self.leaves:
            if isinstance(x, Iterator):
                kind = type(x).__name__
                msg = f"inputs are used for several calls and cannot be a {kind}: pass a list"
                raise TypeError(msg)
        locations = list(zip(self.owners, self.paths, strict=True))
        self.titles = tuple(f"{k}{path}" for k, path in locations)
        self.names = tuple(f"inputs[{k}]{path}" for k, path in locations)
        self.whole = tuple(not path for path in self.paths)

    def leaf_indices(self, inputs: Iterable[int]) -> list[int]:
        """Return where inputs are among the leaves: those that are arrays themselves."""
        chosen = set(inputs)
        return [k for k, owner in enumerate(self.owners) if owner in chosen and self.whole[k]]

    def accepting_leaves(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of the leaves that calls f as the caller would."""
        return f if all(self.whole) else _Called(f, self)


class _Called:
    def __init__(self, f: Callable[..., Any], nest: NestedInputs) -> None:
        self._f, self._nest = f, nest
        self.__name__ = getattr(f, "__name__", type(f).__name__)

    def __call__(self, *leaves: Any) -> Any:
        """Put the leaves together, and call the function."""
        return self._f(*self._nest.unflatten(leaves))


def _is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.inexact, float, complex)) or library_of(x) is not None


HIGHER_PRECISION: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float64),
    "bfloat16": np.dtype(np.float64),
    "float32": np.dtype(np.float64),
    "float64": np.dtype(np.longdouble),
    "complex64": np.dtype(np.complex128),
    "complex128": np.dtype(np.clongdouble),
}


def as_inputs(inputs: Any, names: Sequence[str] = ()) -> tuple[Any, ...]:
    """Return copies of inputs as NumPy arrays; what is none, a flag say, is handed on as it is."""
    items = as_tuple(inputs)
    names = names or [f"inputs[{k}]" for k in range(len(items))]
    return tuple(map(_as_input, items, names))


def _as_input(x: Any, name: str) -> Any:
    library = library_of(x)
    if library is not None:
        # A key of jax is one of its arrays, and of no numbers.
        return x if str(x.dtype).startswith("key<") else _fetched(library, x, name)
    if isinstance(x, np.ma.MaskedArray):
        msg = f"{name} is a masked array: pass its data and its mask, and combine them in f"
        raise TypeError(msg)
    if isinstance(x, np.matrix):  # of which * is another product
        msg = f"{name} is a numpy.matrix: pass an array, and convert it to a matrix in f"
        raise TypeError(msg)
    if isinstance(x, (np.ndarray, np.generic, float, complex)) and not isinstance(x, bool):
        return np.array(x, order="K")
    return x


def _fetched(library: ArrayLibrary, x: Any, name: str) -> NDArray:
    try:
        return np.array(library.fetch(x))
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def longest_axis(arrays: Sequence[Any]) -> int:
    """Return how long the longest axis of arrays is, which sums are no longer than; at least 1."""
    lengths: list[int] = [n for x in arrays if isinstance(x, np.ndarray) for n in x.shape]
    return max([1, *lengths])


def is_perturbable(x: Any) -> bool:
    """Tell whether an input is of floating-point numbers, which can be moved a little."""
    return isinstance(x, np.ndarray) and (x.dtype.kind in "fc" or x.dtype.name == "bfloat16")


def to_higher_precision(inputs: Sequence[Any]) -> list[Any]:
    """Return the same numbers in the next wider format."""
    return [x.astype(HIGHER_PRECISION[x.dtype.name]) if is_perturbable(x) else x for x in inputs]


def perturbable(inputs: Sequence[Any]) -> list[int]:
    """Return the places of inputs that can be moved, or rounded."""
    return [k for k, x in enumerate(inputs) if is_perturbable(x)]


def inputs_of(inputs: Any, names: Sequence[str] = ()) -> tuple[Any, ...]:
    """Return inputs as arrays, of formats that have a next wider one."""
    arrays = as_inputs(inputs, names)
    for k, x in enumerate(arrays):
        if is_perturbable(x) and x.dtype.name not in HIGHER_PRECISION:
            name = names[k] if names else f"inputs[{k}]"
            msg = f"{name} has dtype {x.dtype}, which has no higher precision; "
            raise TypeError(msg + "pass float64 or complex128")
    return arrays


_REALS = {"complex64": "float32", "complex128": "float64"}


def format_of(inputs: Sequence[Any], dtype: Any, names: Sequence[str] = ()) -> str:
    """Return the working format: what the caller says, or the widest of the inputs."""
    if dtype is not None:
        name = name_of(dtype, ROUNDOFF)
        held = [
            x.dtype.name for x in inputs if is_perturbable(x) and x.dtype.name in HIGHER_PRECISION
        ]
        if name not in ROUNDOFF:
            msg = f"dtype must be one of {', '.join(ROUNDOFF)}, got {dtype!r:.60}"
            raise ValueError(msg)
        if held and all(
            ROUNDOFF[_REALS.get(input_name, input_name)] > ROUNDOFF[name] for input_name in held
        ):
            msg = f"dtype is {name}, but the inputs are {held[0]}: "
            msg += "pass arrays that can hold its numbers"
            raise ValueError(msg)
        return name
    for k, x in enumerate(inputs):
        if is_perturbable(x) and x.dtype.name not in HIGHER_PRECISION:
            name = names[k] if names else f"input {k}"
            msg = f"{name} has dtype {x.dtype}, and there is no higher precision to compare with: "
            msg += "pass float64 or lower precision"
            raise TypeError(msg)
    # A number by itself is a Python float, as often as not.
    arrays = [x for x in inputs if is_perturbable(x) and x.ndim] or list(
        filter(is_perturbable, inputs)
    )
    kinds = [x.dtype.name for x in arrays]
    reals = [_REALS.get(name, name) for name in kinds]
    formats = [name for name in reals if name in ROUNDOFF and name in HIGHER_PRECISION]
    return min(formats, key=lambda name: ROUNDOFF[name]) if formats else "float64"


def format_of_results(*results: Result) -> str:
    """Return the widest format of results, where no input has one."""
    names = [
        (x.ndim > 0, _REALS.get(name, name).removesuffix("fn"))
        for result in results
        for x, name in zip(result.arrays, result.dtypes, strict=True)
    ]
    formats = [(is_array, name) for is_array, name in names if name in ROUNDOFF]
    # A number by itself is a Python float, as often as not.
    chosen = [name for is_array, name in formats if is_array] or [name for _, name in formats]
    return min(chosen, key=lambda name: ROUNDOFF[name]) if chosen else "float64"


def is_wide(result: Result, form: str) -> bool:
    """Tell whether a side has answered in the wider format, as far as it has numbers of any."""
    kinds = "gG" if form == "float64" else "dDgG"
    return all(x.dtype.kind not in "fc" or x.dtype.char in kinds for x in result.arrays)
