"""Emulation of lower precision: emulate, emulated_matmul and denormals."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from math import prod
from typing import Any, TypeVar, Unpack, overload

import numpy as np

from .._compare.tolerances import format_name, name_of
from .._core.arguments import is_integer, require_callable
from .._core.arrays import as_array, refuse_sparse
from .._core.dtypes import FLOAT32, FLOAT64, FORMATS
from .._core.libraries import library_of
from .._core.protocols import NDArray
from .._core.report import Report
from .._core.threads import get_num_threads, in_parts
from .._core.types import ArrayLike, EmulateOptions, FormatLike, RoundedPart, Rounding
from .._diagnose.round_to_format import (
    Rounder,
    format_parameters,
    integer_dtype,
    round_array,
    storage_dtype,
)
from .._execution.block_passes import fold
from .._kernels.emulation import CENSUS, MULTIPLY

__all__ = ["Denormals", "denormals", "emulate", "emulated_matmul"]

F = TypeVar("F", bound=Callable[..., Any])

# With fewer products than this, one thread is as fast as several.
_SERIAL_PRODUCTS = 1 << 18
_TASKS_PER_THREAD = 8


@overload
def emulate(
    f: np.ufunc, fmt: FormatLike, **options: Unpack[EmulateOptions]
) -> Callable[..., Any]: ...
@overload
def emulate(f: F, fmt: FormatLike, **options: Unpack[EmulateOptions]) -> F: ...
def emulate(
    f: Callable[..., Any],
    fmt: FormatLike,
    *,
    where: RoundedPart | Collection[RoundedPart] = ("inputs", "outputs"),
    arguments: int | str | Collection[int | str] | None = None,
    rounding: Rounding = "nearest",
    flush: bool = False,
) -> Callable[..., Any]:
    """
    Return a function that calls f with its inputs and outputs rounded to a lower precision.

    Real and complex numbers and arrays are rounded, also in lists, tuples and dicts; integers and
    all else are passed through. Rounded arrays keep their dtype and library. Intermediate results
    of f are not rounded.

    Parameters
    ----------
    f : callable
        A function of arrays of NumPy, or of torch or jax in host memory. It gets copies of the
        arrays that are rounded, so that it cannot modify those of the caller.
    fmt : str or dtype_like
        Format to round to: "tf32" (10 bits of fraction, the range of float32), "bfloat16",
        "float16", "float8_e4m3", "float8_e5m2", "float32" or "float64", or a dtype of one of these.
    where : {"inputs", "outputs"} or a collection of them, default ("inputs", "outputs")
        What to round.
    arguments : int, str or collection of them, optional
        Inputs to round, by position or keyword. By default all.
    rounding : {"nearest", "truncate"}, default "nearest"
        Rounding to nearest, ties to even, or towards 0.
    flush : bool, default False
        If True, subnormal numbers of the format become zeros with their sign, as in the matrix
        units of AMD's MI200 [1]_.

    Returns
    -------
    callable
        A function with the parameters of f.

    Raises
    ------
    ValueError
        If `fmt`, `where`, `arguments` or `rounding` is invalid. The returned function raises it if
        an input that `arguments` names is missing.
    TypeError
        If f is not callable. The returned function raises it for arrays that cannot be rounded: on
        a device, of longdouble or object, subclasses of ndarray, and of other libraries.

    See Also
    --------
    emulated_matmul : Rounds the partial sums, too.
    denormals : Counts the numbers that `flush` would change.

    Notes
    -----
    Numbers beyond the range become infinite, or the largest number with "truncate". Infinities, NaN
    and signs of zeros are kept. float8_e4m3 is the format of [2]_, called float8_e4m3fn by
    ml_dtypes: its largest number is 448, and it has NaN in place of infinities; torch may cast to
    448 instead. Results are also rounded to the dtype of the array: bfloat16 numbers in a float16
    array, for example. Rounded torch tensors have no autograd graph.

    References
    ----------
    .. [1] PyTorch, "Numerical accuracy",
       https://pytorch.org/docs/stable/notes/numerical_accuracy.html
    .. [2] P. Micikevicius et al., "FP8 formats for deep learning", 2022, arXiv:2209.05433.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> x = np.array([1.0, 1.01, 300.0])
    >>> calipers.emulate(np.sqrt, "bfloat16")(x)
    array([ 1.   ,  1.   , 17.375])
    >>> calipers.emulate(np.sqrt, "tf32", where="inputs", rounding="truncate")(x) - np.sqrt(x)
    array([ 0.        , -0.00011661,  0.        ])
    """
    require_callable(f=f)
    if rounding not in ("nearest", "truncate"):
        msg = f'rounding must be "nearest" or "truncate", got {rounding!r}'
        raise ValueError(msg)
    rounder = Rounder(_format(fmt), rounding == "truncate", bool(flush))
    rounded = [*where] if np.iterable(where) and not isinstance(where, str) else [where]
    if not rounded or not all(part in ("inputs", "outputs") for part in rounded):
        msg = f'where must be "inputs", "outputs" or both, got {where!r:.60}'
        raise ValueError(msg)
    several: Any = (arguments,) if isinstance(arguments, str) else arguments
    several = several if np.iterable(several) else (several,)
    chosen = None if arguments is None else tuple(several)
    for key in chosen or ():
        if not (isinstance(key, str) or (is_integer(key) and key >= 0)):
            msg = f"arguments must contain positions (0, 1, ...) or keywords, got {key!r}"
            raise ValueError(msg)
    if chosen and "inputs" not in rounded:
        msg = f"where={where!r:.60} rounds no inputs, but arguments names some: omit one of the two"
        raise ValueError(msg)

    @wraps(f, updated=())
    def emulated(*args: Any, **kwargs: Any) -> Any:
        inputs: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        if "inputs" in rounded:
            for key in inputs if chosen is None else chosen:
                if key not in inputs:
                    msg = f"arguments contains {key!r}, but f is called with {[*inputs]}"
                    raise ValueError(msg)
                inputs[key] = rounder(inputs[key], f"argument {key!r}")
        result = f(*(inputs[k] for k in range(len(args))), **{key: inputs[key] for key in kwargs})
        return rounder(result, "the result") if "outputs" in rounded else result

    return emulated


def emulated_matmul(
    a: ArrayLike,
    b: ArrayLike,
    fmt: FormatLike,
    *,
    accumulate: FormatLike | None = None,
    split: int = 1,
    step: int = 1,
) -> Any:
    """
    Multiply matrices in a lower precision, with rounding of the partial sums.

    The elements are rounded to `fmt`. Each element of the product is a sum of exact products, from
    first to last; each partial sum is rounded once to the format `accumulate`.

    Parameters
    ----------
    a, b : array_like
        Real arrays of shapes that `numpy.matmul` accepts, of NumPy, or of torch or jax in host
        memory.
    fmt : str or dtype_like
        Format of the elements; see `emulate` for the formats.
    accumulate : str or dtype_like, optional
        Format of the partial sums. By default that of the result. Tensor cores use float32.
    split : int, default 1
        Number of parts of about equal length into which each sum is split (split-K). With more than
        one, the sum of each part is rounded to `fmt` and added to that of the parts before it.
    step : int, default 1
        Number of products that are summed in float64 before they are added to the partial sum.

    Returns
    -------
    array
        The product, of the shape that `numpy.matmul` returns, in the inputs' library. Its dtype is
        float32 if that can represent both input dtypes, else float64. It is not rounded to `fmt`;
        see the example.

    Raises
    ------
    ValueError
        If `fmt` or `accumulate` is unknown, `split` or `step` is not positive, or the shapes do not
        match.
    TypeError
        If `a` or `b` is complex, does not hold numbers, or is on a device.

    See Also
    --------
    emulate : Rounds the inputs and outputs of any function.

    Notes
    -----
    Rounding is to nearest, ties to even; tensor cores may truncate instead [1]_. Products of
    float64 numbers are rounded before they are added to sums of lower precision. Sums in float32
    are computed by the processor, and flush subnormal numbers if it is set to.

    References
    ----------
    .. [1] M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor
       cores", PeerJ Computer Science 7 (2021) e330.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> x = np.ones(1000, np.float32)
    >>> calipers.emulated_matmul(x, x, "bfloat16")
    np.float32(1000.0)
    >>> calipers.emulated_matmul(x, x, "bfloat16", accumulate="bfloat16")
    np.float32(256.0)
    >>> calipers.emulated_matmul(x, x, "bfloat16", accumulate="bfloat16", split=10)
    np.float32(1000.0)

    Round the result as well:

    >>> def matmul(a, b):
    ...     return calipers.emulated_matmul(a, b, "bfloat16")
    >>> calipers.emulate(matmul, "bfloat16")(x[:515], x[:515])
    np.float32(516.0)
    """
    x, y = _operand(a, "a"), _operand(b, "b")
    single = np.can_cast(x.dtype, FLOAT32) and np.can_cast(y.dtype, FLOAT32)
    dtype = FLOAT32 if single else FLOAT64
    form = _format(fmt)
    sums = dtype.name if accumulate is None else _format(accumulate, "accumulate")
    for name, number in (("split", split), ("step", step)):
        if not isinstance(number, int | np.integer) or number < 1:
            msg = f"{name} must be a positive integer, got {number!r}; 1 is a running sum"
            raise ValueError(msg)
    left = x[None] if x.ndim == 1 else x
    right = y[:, None] if y.ndim == 1 else y
    batch = _batch_shape(left, right)
    with np.errstate(all="ignore"):
        product = _multiply(left, right, batch, form, sums, int(split), int(step))
        product = product.astype(dtype, copy=False)
    rows, columns = product.shape[-2:]
    result = product.reshape(batch + (rows,) * (x.ndim > 1) + (columns,) * (y.ndim > 1))
    library = library_of(a) or library_of(b)
    return library.from_numpy(result) if library else result[()]


@dataclass(frozen=True, repr=False)
class Denormals(Report):
    """
    Counts of subnormal, zero and finite elements of an array, as returned by `denormals`.

    Attributes
    ----------
    format : str
        The format to which the elements were rounded.
    size : int
        The number of elements.
    finite : int
        The number of elements that are neither infinite nor NaN.
    zeros : int
        The number of elements that are 0.
    subnormals : int
        The number of nonzero elements smaller than the smallest normal number.

    Examples
    --------
    >>> import calipers
    >>> print(calipers.denormals([1.0, 1e-6, 0.0], "float16"))
    of 3 elements 1 (33.3 %) is subnormal in float16, 1 zero, 0 not finite
    """

    format: str
    size: int
    finite: int
    zeros: int
    subnormals: int

    @property
    def fraction(self) -> float:
        """The fraction of all elements that is subnormal."""
        return self.subnormals / self.size if self.size else 0.0

    def __str__(self) -> str:
        """Return the counts in one line."""
        elements = f"{self.size} element{'s' * (self.size != 1)}"
        share = f"{self.subnormals} ({100 * self.fraction:.3g} %)"
        return (
            f"of {elements} {share} {'is' if self.subnormals == 1 else 'are'} subnormal in "
            f"{self.format}, {self.zeros} zero, {self.size - self.finite} not finite"
        )

    def _contents(self) -> dict[str, Any]:
        return super()._contents() | {"fraction": self.fraction}


def denormals(a: ArrayLike, fmt: FormatLike | None = None) -> Denormals:
    """
    Count the subnormal, zero and finite elements of an array in a format.

    Parameters
    ----------
    a : array_like
        Real floating-point numbers of any shape, of NumPy, or of torch or jax in host memory.
    fmt : str or dtype_like, optional
        Format to which the elements are rounded first, to nearest; see `emulate` for the formats.
        By default that of the array.

    Returns
    -------
    Denormals
        The counts; ``.fraction`` is the fraction of subnormal elements.

    Raises
    ------
    ValueError
        If `fmt` is unknown.
    TypeError
        If the elements of `a` are not real floating-point numbers, their format is unknown, or `a`
        is on a device.

    See Also
    --------
    emulate : With ``flush=True`` subnormal numbers become 0.

    Notes
    -----
    Subnormal numbers are counted even if the processor is set to treat them as 0.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> gradient = np.logspace(-12, 0, 1000, dtype=np.float32)
    >>> calipers.denormals(gradient).subnormals
    0
    >>> calipers.denormals(gradient, "float16")
    of 1000 elements 276 (27.6 %) are subnormal in float16, 373 zero, 0 not finite
    """
    refuse_sparse(a, "a")
    x = as_array(a)
    held = storage_dtype(x, "a")
    if held is None or x.dtype.kind == "c":
        msg = f"a must have real floating-point numbers, got dtype {x.dtype}"
        raise TypeError(msg)
    if fmt is None and name_of(x.dtype, FORMATS) not in FORMATS:
        msg = f"a has dtype {x.dtype}, whose smallest numbers are unknown; pass a format as fmt"
        raise TypeError(msg)
    name = _format(x.dtype if fmt is None else fmt)
    rule, (*_, normal, _, _, _) = (
        format_parameters(name, held),
        format_parameters(name, held, flush=True),
    )
    bits = integer_dtype(held)
    kernel = CENSUS[bits]

    def count(counts: NDArray, position: int, block: NDArray) -> None:
        kernel(block, rule, normal, counts)

    def begin(_: NDArray | None) -> NDArray:
        return np.zeros(3, np.int64)

    with np.errstate(all="ignore"):
        numbers = x.astype(held, copy=False)
    zeros, subnormals, finite = fold(count, begin, np.add, [numbers.view(bits)], [bits]).tolist()
    return Denormals(name, x.size, finite, zeros, subnormals)


def _format(fmt: Any, name: str = "fmt") -> str:
    """Return the name of a format or dtype; `name` is the argument's, for the error."""
    if getattr(fmt, "__name__", str(getattr(fmt, "name", ""))) == "float8_e4m3":
        msg = f"{name} is {fmt!r:.60}, which has infinities: pass float8_e4m3fn, which has none"
        raise ValueError(msg)
    return format_name(fmt, FORMATS, name)


def _operand(x: Any, name: str) -> NDArray:
    refuse_sparse(x, name)
    array = as_array(x, name)
    if type(array) is not np.ndarray or not np.can_cast(array.dtype, FLOAT64):
        kind = f"a {type(array).__name__} of {array.dtype}"
        msg = f"{name} must be an array of real numbers of at most 64 bits, got {kind}"
        raise TypeError(msg)
    if array.ndim == 0:
        msg = f"{name} has no dimension; multiply by a number with *"
        raise ValueError(msg)
    return array


def _multiply(
    left: NDArray,
    right: NDArray,
    batch: tuple[int, ...],
    fmt: str,
    accumulate: str,
    split: int,
    step: int,
) -> NDArray:
    rows, length = left.shape[-2:]
    columns = right.shape[-1]
    if columns < rows:  # the kernel is vectorised along columns
        return _multiply(right.mT, left.mT, batch, fmt, accumulate, split, step).mT
    # Hardware arithmetic in float32 if it has that format, else in float64.
    single = accumulate == "float32" and fmt != "float64" and step == 1
    held = FLOAT32 if single else FLOAT64
    out = np.empty((*batch, rows, columns), held)
    if out.size == 0:
        return out
    both, indices = [], []
    for x in (left, right):
        dtype = FLOAT32 if np.can_cast(x.dtype, FLOAT32) else FLOAT64
        numbers = round_array(np.asarray(x, dtype), format_parameters(fmt, dtype))
        both.append(numbers.astype(held, copy=False).reshape(-1))
        count = x.shape[:-2]
        indices.append(np.broadcast_to(np.arange(prod(count)).reshape(count), batch).flatten())
    kernel = MULTIPLY[integer_dtype(held)]
    sums = format_parameters(accumulate, held)
    part = format_parameters(fmt, held) if split > 1 else sums
    # A split or step beyond the length has no effect.
    split, step = (min(x, length + 1) for x in (split, step))
    flat = out.reshape(-1)

    def work(start: int, stop: int) -> None:
        space = np.empty(2 * columns, held)
        result = flat[start * columns : stop * columns]
        shape = rows, length, columns
        kernel(*both, *indices, *shape, split, step, part, sums, start, space, result)

    total = prod(batch) * rows
    tasks = get_num_threads() * _TASKS_PER_THREAD if out.size * length > _SERIAL_PRODUCTS else 1
    in_parts(work, range(0, total, -(-total // tasks)), total)
    return out


def _batch_shape(left: NDArray, right: NDArray) -> tuple[int, ...]:
    try:
        if left.shape[-1] != right.shape[-2]:
            raise ValueError
        return np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        msg = (
            f"a and b must have shapes (..., m, k) and (..., k, n) that broadcast, "
            f"got {left.shape} and {right.shape}"
        )
        raise ValueError(msg) from None
