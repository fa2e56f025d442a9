"""The types that public signatures share; type checkers read them, nothing else does."""

import os
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

import numpy as np

from .tolerances import Tolerance

Method: TypeAlias = Literal["2-point", "3-point", "5-point", "cs", "adaptive"]
FormatName: TypeAlias = Literal[
    "tf32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "float32", "float64"
]
Measure: TypeAlias = Literal["excess", "absolute", "relative", "ulp"]
Rounding: TypeAlias = Literal["nearest", "truncate"]
Sides: TypeAlias = Literal["inputs", "outputs"]
Effort: TypeAlias = Literal["full", "quick"]
Widens: TypeAlias = Literal["auto", "f", "g"]
Target: TypeAlias = Literal["cpu", "cuda"]
Convention: TypeAlias = Literal["torch", "jax"]
Excuse: TypeAlias = Literal["NONSMOOTH", "INCONCLUSIVE"]
Inplace: TypeAlias = Literal["write", "add"]
ProgressLike: TypeAlias = bool | Callable[[int, int], object]

_RealScalar: TypeAlias = np.floating[Any] | np.integer[Any] | np.bool
Real: TypeAlias = (
    float
    | _RealScalar
    | np.ndarray[Any, np.dtype[_RealScalar]]
    | Sequence[float]
    | Sequence[Sequence[float]]
)
"""Real numbers on the host, of which results are NumPy's; complex ones may have two derivatives."""

Number: TypeAlias = complex | np.number[Any] | np.bool


class DTypeObject(Protocol):
    """A dtype of any library, and no string."""

    @property
    def itemsize(self) -> int:
        """Its bytes."""
        ...


FormatLike: TypeAlias = FormatName | DTypeObject | type[Any]


class ArrayObject(Protocol):
    """An array of any library."""

    @property
    def shape(self) -> Any:
        """Its lengths."""
        ...

    @property
    def dtype(self) -> Any:
        """What its elements are."""
        ...


Plain: TypeAlias = ArrayObject | Number | Sequence[complex] | Sequence[Sequence[complex]]
"""What is compared as one array; other sequences, mappings and dataclasses are walked into."""


class CompareOptions(TypedDict, total=False):
    """The keywords of `compare`."""

    rtol: float | None
    atol: float | np.timedelta64 | timedelta | None
    tolerance: Tolerance | tuple[float, float] | None
    max_ulp: int | None
    equal_nan: bool
    check_dtype: bool
    check_shape: bool
    max_mismatches: int
    max_mismatch_ratio: float
    memory_limit: float


class EmulateOptions(TypedDict, total=False):
    """The keywords of `emulate`."""

    where: Sides | Collection[Sides]
    arguments: int | str | Collection[int | str] | None
    rounding: Rounding
    flush: bool


class PointOptions(TypedDict, total=False):
    """How f is called, and where: the keywords of all derivatives."""

    step: Any
    scale: Any
    bounds: Any
    kwargs: dict[str, Any] | None
    out_like: Any
    rowwise: bool
    batched: bool
    holomorphic: bool
    target: Target | None


class DirectionOptions(PointOptions, total=False):
    """The keywords of `jvp`."""

    method: Method


class CallOptions(PointOptions, total=False):
    """The keywords of derivatives that take many calls."""

    workers: Any
    progress: ProgressLike


class StepOptions(CallOptions, total=False):
    """The keywords of derivatives that are not formed as a whole."""

    method: Method


class PlanOptions(StepOptions, total=False):
    """The keywords of `jacobian_function`."""

    sparsity: Any
    args: tuple[Any, ...]
    argnums: int
    memory_limit: float | None


class HessianOptions(CallOptions, total=False):
    """The keywords of `hessian` beside those that it names."""

    sparsity: Any
    checkpoint: str | os.PathLike[str] | None
    memory_limit: float | None


class JacobianOptions(StepOptions, total=False):
    """The keywords of `jacobian` and `differentiate` but those that choose what is returned."""

    args: tuple[Any, ...]
    checkpoint: str | os.PathLike[str] | None
    memory_limit: float | None


class SparseJacobianOptions(JacobianOptions, total=False):
    """Those, and the pattern."""

    sparsity: Any


class SecondOptions(TypedDict, total=False):
    """The keywords that `gradgradcheck` hands on to `gradcheck`."""

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
    step: Any
    scale: Any
    bounds: Any
    workers: Any
    progress: ProgressLike
    equal_nan: bool
    allow: Collection[Excuse]
