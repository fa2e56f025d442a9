"""The types of public signatures, which are for type checkers and readers only."""

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

Method: TypeAlias = Literal["2-point", "3-point", "5-point", "cs", "adaptive"]
FormatName: TypeAlias = Literal[
    "tf32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "float32", "float64"
]
Measure: TypeAlias = Literal["excess", "absolute", "relative", "ulp"]
Rounding: TypeAlias = Literal["nearest", "truncate"]
RoundedPart: TypeAlias = Literal["inputs", "outputs"]
Effort: TypeAlias = Literal["full", "quick"]
ReferenceSource: TypeAlias = Literal["auto", "both", "f", "g"]
Target: TypeAlias = Literal["cpu", "cuda"]
Convention: TypeAlias = Literal["torch", "jax"]
AllowedStatus: TypeAlias = Literal["NONSMOOTH", "INCONCLUSIVE"]
Inplace: TypeAlias = Literal["write", "add"]
ProgressLike: TypeAlias = bool | Callable[[int, int], object]

_RealScalar: TypeAlias = np.floating[Any] | np.integer[Any] | np.bool
RealArray: TypeAlias = (
    np.ndarray[Any, np.dtype[_RealScalar]] | Sequence[float] | Sequence[Sequence[float]]
)
Real: TypeAlias = float | _RealScalar | RealArray
"""Real numbers and NumPy arrays, for which derivatives are NumPy arrays."""

Number: TypeAlias = complex | np.number[Any] | np.bool


class DTypeObject(Protocol):
    """A dtype object of NumPy, torch, jax or another library."""

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        ...


DTypeLike: TypeAlias = npt.DTypeLike | DTypeObject
"""Objects that NumPy converts to a dtype, names of formats, and dtypes of other libraries."""


FormatLike: TypeAlias = FormatName | DTypeObject | type[Any]


class ArrayObject(Protocol):
    """An array of any library."""

    @property
    def shape(self) -> Any:
        """The length of each axis."""
        ...

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        ...


ArrayLike: TypeAlias = npt.ArrayLike | ArrayObject | date | timedelta | Decimal | Fraction
"""Objects that NumPy converts to an array, other arrays, and exact and calendar numbers."""

Chunks: TypeAlias = Iterable[ArrayLike]
"""Chunks of an array that follow each other along axis 0."""

PyTree: TypeAlias = object
"""An array or number, or a list, tuple, dict or dataclass of them, nested to any depth."""

Plain: TypeAlias = ArrayObject | Number | Sequence[complex] | Sequence[Sequence[complex]]
"""Arrays, numbers and nested sequences of numbers: `compare` returns one `Comparison`."""


class BoundsObject(Protocol):
    """A scipy.optimize.Bounds."""

    @property
    def lb(self) -> Any:
        """The lower bounds."""
        ...

    @property
    def ub(self) -> Any:
        """The upper bounds."""
        ...


BoundsLike: TypeAlias = Sequence[ArrayLike] | BoundsObject
"""A pair of a lower and an upper bound, or a scipy.optimize.Bounds."""

SparsityLike: TypeAlias = ArrayObject | tuple[ArrayObject, ArrayLike] | Literal["detect"]
"""The pattern of a sparse matrix, with or without groups of columns."""


class SupportsMap(Protocol):
    """An executor or pool: of concurrent.futures, multiprocessing, dask, mpi4py or others."""

    @property
    def map(self) -> Callable[..., Any]:
        """Call a function for each item of an iterable."""
        ...


WorkersLike: TypeAlias = int | SupportsMap | Callable[..., Iterable[Any]]
"""A number of threads, an executor or pool, or a callable like `map`."""


class CompareOptions(TypedDict, total=False):
    """The keywords of `compare`."""

    rtol: float | None
    atol: float | np.timedelta64 | timedelta | None
    tolerance: tuple[float, float] | None  # a Tolerance is one
    max_ulp: int | None
    equal_nan: bool
    check_dtype: bool
    check_shape: bool
    max_mismatches: int
    max_mismatch_ratio: float
    memory_limit: float


class EmulateOptions(TypedDict, total=False):
    """The keywords of `emulate`."""

    where: RoundedPart | Collection[RoundedPart]
    arguments: int | str | Collection[int | str] | None
    rounding: Rounding
    flush: bool


class PointOptions(TypedDict, total=False):
    """The keywords of all derivatives: steps, and how f is called."""

    step: ArrayLike | None
    scale: ArrayLike | None
    bounds: BoundsLike | None
    kwargs: dict[str, Any] | None
    out_like: ArrayLike | None
    rowwise: bool
    batched: bool
    holomorphic: bool
    target: Target | None


class DirectionOptions(PointOptions, total=False):
    """The keywords of `jvp`."""

    method: Method


class CallOptions(PointOptions, total=False):
    """The keywords of derivatives that call f many times."""

    workers: WorkersLike | None
    progress: ProgressLike


class StepOptions(CallOptions, total=False):
    """The keywords of products and blocks."""

    method: Method


class PlanOptions(StepOptions, total=False):
    """The keywords of `jacobian_function`."""

    sparsity: SparsityLike | None
    args: tuple[Any, ...]
    argnums: int
    memory_limit: float | None


class HessianOptions(CallOptions, total=False):
    """The keywords of `hessian` that are not in its signature."""

    sparsity: SparsityLike | None
    checkpoint: str | os.PathLike[str] | None
    memory_limit: float | None


class JacobianOptions(StepOptions, total=False):
    """The keywords of `jacobian` and `differentiate` that do not affect the type of the result."""

    args: tuple[Any, ...]
    checkpoint: str | os.PathLike[str] | None
    memory_limit: float | None


class SparseJacobianOptions(JacobianOptions, total=False):
    """The same with a sparsity pattern."""

    sparsity: SparsityLike | None


class AllJacobianOptions(SparseJacobianOptions, total=False):
    """All keywords of `jacobian` and `differentiate`."""

    argnums: int | tuple[int, ...]


class SecondOptions(TypedDict, total=False):
    """The keywords that `gradgradcheck` passes to `gradcheck`."""

    eps: float | None
    atol: float | None
    rtol: float | None
    nondet_tol: float
    check_undefined_grad: bool | None
    check_grad_dtypes: bool
    check_batched_grad: bool
    check_batched_forward_grad: bool
    fast_mode: bool
    masked: bool | None
    check_sparse_nnz: bool | None
    method: Method
    step: ArrayLike | Sequence[ArrayLike | None] | None
    scale: ArrayLike | Sequence[ArrayLike | None] | None
    bounds: BoundsLike | Sequence[BoundsLike | None] | None
    workers: WorkersLike | None
    progress: ProgressLike
    equal_nan: bool
    allow: Collection[AllowedStatus]


class GradcheckOptions(SecondOptions, total=False):
    """The keywords of `gradcheck` that control how derivatives are checked."""

    raise_exception: bool
    check_forward_ad: bool | None
    check_backward_ad: bool | None
    out_like: ArrayLike | Sequence[ArrayLike] | None
    inplace: Inplace | None
    checkpoint: str | os.PathLike[str] | None
    seed: int
