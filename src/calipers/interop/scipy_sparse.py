"""Sparse matrices of SciPy, which is imported when the first one is asked for."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .._protocols import NDArray

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


def _sparse(what: str) -> Any:
    try:
        import scipy.sparse
    except ImportError:
        msg = f"{what} needs SciPy: pip install scipy"
        raise ImportError(msg) from None
    return scipy.sparse


def pattern(sparsity: Any, shape: tuple[int, int]) -> tuple[NDArray, NDArray]:
    """Return indptr and indices of a pattern by columns, sorted and without duplicates."""
    sparse = _sparse("sparsity=")
    try:
        matrix = sparse.csc_array(sparsity)
    except (TypeError, ValueError):
        matrix = None
    if matrix is None or matrix.ndim != 2 or matrix.dtype.kind == "O":
        got = repr(sparsity) if isinstance(sparsity, str) else type(sparsity).__name__
        if isinstance(sparsity, np.ndarray):
            got = f"an array of shape {sparsity.shape} and dtype {sparsity.dtype}"
        msg = (
            f"sparsity must be a matrix, a tuple of one and its groups, or 'detect', got {got:.60}"
        )
        raise TypeError(msg)
    if matrix.shape != shape:
        msg = (
            f"sparsity has shape {matrix.shape}, but the Jacobian has {shape}: pass one of "
            "that shape"
        )
        raise ValueError(msg)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix.indptr, matrix.indices


def by_columns(data: NDArray, indices: NDArray, indptr: NDArray, shape: tuple[int, int]) -> Any:
    """Return a csc_array around arrays that are known to fit together."""
    if data.dtype.char == "e":  # of which SciPy has no matrices
        data = data.astype(np.float32)
    matrix = _sparse("sparsity=").csc_array((data, indices, indptr), shape=shape)
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def linear_operator(
    shape: tuple[int, int], dtype: np.dtype[Any], **products: Any
) -> "LinearOperator":
    """Return a LinearOperator made of its products."""
    _sparse("linear_operator")
    from scipy.sparse.linalg import LinearOperator

    return LinearOperator(shape, dtype=dtype, **products)
