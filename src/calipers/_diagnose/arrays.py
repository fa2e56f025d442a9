"""The inputs and results of calls, as arrays of NumPy."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .._compare.tolerances import name_of
from .._core.containers import FlatArguments, as_tuple, flatten
from .._core.dtypes import ROUNDOFF, as_real_vector, real_parts
from .._core.libraries import library_of
from .._core.protocols import ArrayLibrary, NDArray
from .._kernels.diagnose import PERTURB

# Bytes of the widest vector registers (AVX-512).
_VECTOR_BYTES = 64


def layouts(inputs: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield names of other memory layouts, and the inputs in them."""
    turned = [x.copy(order="F") if isinstance(x, np.ndarray) else x for x in inputs]
    yield "in column-major order", turned
    unaligned = [misaligned(x) if isinstance(x, np.ndarray) else x for x in inputs]
    yield "in unaligned memory", unaligned


def slices(inputs: Sequence[Any], batch: Sequence[int]) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield parts of a batch: a name, the rows, and the inputs."""
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
    """Return the inputs as C-contiguous arrays; None if they are contiguous already."""
    loose = [x for x in inputs if isinstance(x, np.ndarray) and not x.flags.c_contiguous]
    if not loose:
        return None
    return [np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in inputs]


def misaligned(x: NDArray) -> NDArray:
    """Copy an array to memory that starts one element after an aligned address."""
    if x.dtype.hasobject:  # references must stay aligned
        return x.copy()
    memory = np.empty(x.nbytes + 2 * _VECTOR_BYTES, np.uint8)
    start = -memory.ctypes.data % _VECTOR_BYTES + x.itemsize
    shifted = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    shifted[...] = x
    return shifted


class NestedInputs(FlatArguments):
    """
    The arrays and scalars in nested inputs, in order, and the way back to arguments.

    Attributes
    ----------
    titles : tuple of str
        Label of each leaf: "1", or "0['weights'][2]".
    names : tuple of str
        Name of each leaf in messages: "inputs[1]", or "inputs[0]['weights'][2]".
    whole : tuple of bool
        Whether each leaf is an input itself.
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
        """Return the positions among the leaves of those inputs that are arrays themselves."""
        chosen = set(inputs)
        return [k for k, owner in enumerate(self.owners) if owner in chosen and self.whole[k]]

    def accepting_leaves(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the leaves that calls f with the nested inputs."""
        return f if all(self.whole) else _Called(f, self)


class _Called:
    def __init__(self, f: Callable[..., Any], nest: NestedInputs) -> None:
        self._f, self._nest = f, nest
        self.__name__ = getattr(f, "__name__", type(f).__name__)

    def __call__(self, *leaves: Any) -> Any:
        """Rebuild the arguments from the leaves, and call the function."""
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
    """Return copies of inputs as NumPy arrays; other objects, such as flags, are returned as is."""
    items = as_tuple(inputs)
    names = names or [f"inputs[{k}]" for k in range(len(items))]
    return tuple(map(_as_input, items, names))


def _as_input(x: Any, name: str) -> Any:
    library = library_of(x)
    if library is not None:
        # A random key of jax is an array, but not of numbers.
        return x if str(x.dtype).startswith("key<") else _fetched(library, x, name)
    if isinstance(x, np.ma.MaskedArray):
        msg = f"{name} is a masked array: pass its data and its mask, and combine them in f"
        raise TypeError(msg)
    if isinstance(x, np.matrix):  # whose * is a matrix product
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
    """Return the length of the longest axis, an estimate of the longest sum; at least 1."""
    lengths: list[int] = [n for x in arrays if isinstance(x, np.ndarray) for n in x.shape]
    return max([1, *lengths])


def is_perturbable(x: Any) -> bool:
    """Return True for floating-point arrays, which can be perturbed."""
    return isinstance(x, np.ndarray) and (x.dtype.kind in "fc" or x.dtype.name == "bfloat16")


def is_integer_array(x: Any) -> bool:
    """Return True for arrays of integers."""
    return isinstance(x, np.ndarray) and x.dtype.kind in "iu"


class Point(list[Any]):
    """
    Inputs of a call, with the perturbation and precision that captured parameters get as well.

    Attributes
    ----------
    wide : bool
        True if they are in the next higher precision.
    delta : float
        Size of the relative perturbation; 0 for none.
    seed : int
        Seed of the perturbation.
    alone : bool
        True if parameters are perturbed that only one of f and g has.
    """

    def __init__(
        self,
        items: Iterable[Any],
        wide: bool = False,
        delta: float = 0.0,
        seed: int = 0,
        alone: bool = False,
    ) -> None:
        super().__init__(items)
        self.wide, self.delta, self.seed, self.alone = wide, delta, seed, alone


def to_higher_precision(inputs: Sequence[Any]) -> Point:
    """Return the inputs in the next higher precision."""
    promoted = (
        x.astype(HIGHER_PRECISION[x.dtype.name]) if is_perturbable(x) else x for x in inputs
    )
    return Point(
        promoted, wide=True, delta=getattr(inputs, "delta", 0.0), seed=getattr(inputs, "seed", 0)
    )


def perturbable(inputs: Sequence[Any]) -> list[int]:
    """Return the positions of inputs that can be perturbed, or rounded."""
    return [k for k, x in enumerate(inputs) if is_perturbable(x)]


REAL_FORMATS = {"complex64": "float32", "complex128": "float64"}


def infer_precision(inputs: Sequence[Any], dtype: Any, names: Sequence[str] = ()) -> str:
    """Return the working precision: `dtype`, or the highest precision of the inputs."""
    if dtype is not None:
        name = name_of(dtype, ROUNDOFF)
        held = [
            x.dtype.name for x in inputs if is_perturbable(x) and x.dtype.name in HIGHER_PRECISION
        ]
        if name not in ROUNDOFF:
            msg = f"dtype must be one of {', '.join(ROUNDOFF)}, got {dtype!r:.60}"
            raise ValueError(msg)
        if held and all(
            ROUNDOFF[REAL_FORMATS.get(input_name, input_name)] > ROUNDOFF[name]
            for input_name in held
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
    # Scalars are ignored if there are arrays: they are often Python floats.
    arrays = [x for x in inputs if is_perturbable(x) and x.ndim] or list(
        filter(is_perturbable, inputs)
    )
    kinds = [x.dtype.name for x in arrays]
    reals = [REAL_FORMATS.get(name, name) for name in kinds]
    formats = [name for name in reals if name in ROUNDOFF and name in HIGHER_PRECISION]
    return min(formats, key=lambda name: ROUNDOFF[name]) if formats else "float64"


def perturb(x: NDArray, delta: float, seed: int, out: NDArray) -> NDArray:
    """Store x with random relative perturbations of about delta in `out`; return it shaped as x."""
    in_reals, out_reals = as_real_vector(np.ascontiguousarray(x)), as_real_vector(out)
    key = in_reals.dtype, out_reals.dtype
    if all(dtype.char in "fd" and dtype.isnative for dtype in key):
        PERTURB.entry_point(key, in_reals.size)(in_reals, delta, seed, out_reals)
    else:
        ones = np.ones(in_reals.size)
        changes = np.empty(in_reals.size)
        PERTURB.entry_point((ones.dtype, ones.dtype), ones.size)(ones, 0.5, seed, changes)
        work_dtype = np.promote_types(np.promote_types(in_reals.dtype, float), out_reals.dtype)
        share = 2 * work_dtype.type(delta)
        out_reals[:] = in_reals.astype(work_dtype) * (1 + share * (changes - 1).astype(work_dtype))
    return out.reshape(x.shape)


# Results


# Exceptions are quoted up to this many characters.
_MAX_ERROR_CHARS = 300
# Bytes of an x87 extended-precision number; the rest of a long double is padding.
_X87_BYTES = 10


@dataclass(frozen=True)
class Result:
    """The arrays that an implementation returned, in order, or the exception that it raised."""

    arrays: tuple[NDArray, ...] = ()
    error: Exception | None = None
    names: tuple[str, ...] = ()  # keys by which each array is reached
    native_dtypes: tuple[str, ...] = ()  # returned dtypes, if the arrays have others

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Names of the returned dtypes."""
        return self.native_dtypes or tuple(x.dtype.name for x in self.arrays)

    def bits(self) -> tuple[Any, ...]:
        """Return a key that is equal for bitwise equal results."""
        arrays = tuple((x.shape, x.dtype.str, raw_bytes(x).tobytes()) for x in self.arrays)
        return *arrays, *self.dtypes

    def title(self, k: int) -> str:
        """Return the label of array k: its keys, or its position."""
        return (self.names[k] if self.names else "") or str(k)

    def joined(self) -> "Result":
        """Join several scalars into one array; return any other result unchanged."""
        if len(self.arrays) < 2 or any(self.names) or {*self.shapes} != {()}:
            return self
        return Result((np.array([x[()] for x in self.arrays]),), names=("",))

    def select(self, chosen: Sequence[int]) -> "Result":
        """Return some of the arrays, with their names and dtypes."""
        names, dtypes = ([x[k] for k in chosen] for x in (self.names, self.dtypes))
        arrays = tuple(self.arrays[k] for k in chosen)
        return Result(arrays, names=tuple(names), native_dtypes=tuple(dtypes))

    def numbers(self, dtype: Any) -> NDArray:
        """Return all entries as one real vector; a complex entry is two."""
        with np.errstate(over="ignore"):
            parts = [as_real_vector(np.ascontiguousarray(x)) for x in self.arrays]
            wide = [part.astype(dtype, copy=False) for part in parts]
        if len(wide) == 1:
            return wide[0]
        return np.concatenate([np.empty(0, dtype), *wide])

    @property
    def integers(self) -> NDArray:
        """Mask of the entries that are integers or booleans."""
        return self.repeat_each(np.array([x.dtype.kind in "biu" for x in self.arrays], bool))

    @property
    def _counts(self) -> NDArray:
        """Number of real entries of each array."""
        return np.array([x.size * real_parts(x.dtype) for x in self.arrays], int)

    def repeat_each(self, values: NDArray) -> NDArray:
        """Repeat one value of each array for each of its real entries."""
        return np.repeat(values, self._counts)

    def split(self, numbers: NDArray) -> list[NDArray]:
        """Split a vector with one item for each real entry into one vector for each array."""
        return np.split(numbers, np.cumsum(self._counts)[:-1])

    def locate(self, number: int) -> tuple[int, tuple[int, ...]]:
        """Return the array that a real entry belongs to, and its index in that array."""
        starts = np.cumsum(self._counts) - self._counts
        k = int(np.searchsorted(starts, number, side="right")) - 1
        x = self.arrays[k]
        element = (number - int(starts[k])) // real_parts(x.dtype)
        return k, tuple(int(i) for i in np.unravel_index(element, x.shape))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(x.shape for x in self.arrays)

    @property
    def forms(self) -> tuple[Any, ...]:
        """Shape of each array, and whether it is complex: equal for comparable results."""
        return tuple((x.shape, x.dtype.kind == "c") for x in self.arrays)


def comparable(*results: Result) -> bool:
    """Return True if results can be compared entry by entry, and none is an exception."""
    return all(x.error is None and x.forms == results[0].forms for x in results)


def raw_bytes(x: NDArray) -> NDArray:
    """Return the bytes of an array without padding, one row for each element."""
    parts = as_real_vector(np.ascontiguousarray(x))
    rows = parts.view(np.uint8).reshape(parts.size, parts.itemsize)
    if x.dtype.char in "gG" and np.finfo(x.dtype).nmant == 63:
        rows = rows[:, :_X87_BYTES]
    return rows.reshape(x.size, rows.shape[1] * real_parts(x.dtype))


def join_or_none(x: tuple[Any, ...]) -> str:
    """Join items with commas, or return "none"."""
    return ", ".join(map(str, x)) or "none"


def one_line_error(error: BaseException) -> str:
    """Format an exception as one line of printable characters."""
    text = " ".join(str(error).split())
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    text = text if len(text) <= _MAX_ERROR_CHARS else f"{text[: _MAX_ERROR_CHARS - 3]}..."
    return f"{type(error).__name__}: {text}".removesuffix(": ")


def infer_result_precision(*results: Result) -> str:
    """Return the highest precision of results, for inputs that have none."""
    names = [
        (x.ndim > 0, REAL_FORMATS.get(name, name).removesuffix("fn"))
        for result in results
        for x, name in zip(result.arrays, result.dtypes, strict=True)
    ]
    formats = [(is_array, name) for is_array, name in names if name in ROUNDOFF]
    # Scalars are ignored if there are arrays: they are often Python floats.
    chosen = [name for is_array, name in formats if is_array] or [name for _, name in formats]
    return min(chosen, key=lambda name: ROUNDOFF[name]) if chosen else "float64"


def is_wide(result: Result, form: str) -> bool:
    """Return True if all floating-point results are in higher precision than `form`."""
    kinds = "gG" if form == "float64" else "dDgG"
    return all(x.dtype.kind not in "fc" or x.dtype.char in kinds for x in result.arrays)


def describe_mismatch(f: Result, g: Result) -> str | None:
    """Describe why results cannot be compared: other names, shapes, or kinds of numbers."""
    names = [dict.fromkeys(filter(None, x.names)) for x in (f, g)]
    if all(names) and names[0].keys() != names[1].keys():  # a tuple matches any names
        return "f returns results named {}, and g {}".format(*map(", ".join, names))
    if f.shapes != g.shapes:
        shapes = join_or_none(f.shapes), join_or_none(g.shapes)
        return "f returns shape {}, and g returns shape {}".format(*shapes)
    if f.forms == g.forms:
        return None
    reason = "only one of f and g returns complex numbers"
    return f"{reason}: compare the real parts, or return complex from both"
