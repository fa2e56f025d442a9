"""Conversion of sparse inputs of gradient checks to arrays of their values, and back."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.protocols import NDArray
from .torch import Torch

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


# Attributes that determine the pattern of a matrix, by its format.
_PATTERN_ARRAYS = {
    "csc": ("indptr", "indices"),
    "csr": ("indptr", "indices"),
    "coo": ("row", "col"),
    "dia": ("offsets", "data"),
}


def pattern_arrays(matrix: Any) -> tuple[NDArray, ...]:
    """Return two arrays that determine a pattern with its shape, or none for other types."""
    if not _sparse("sparsity=").issparse(matrix):
        return ()
    return tuple(getattr(matrix, name) for name in _PATTERN_ARRAYS.get(matrix.format, ()))


def by_columns(data: NDArray, indices: NDArray, indptr: NDArray, shape: tuple[int, int]) -> Any:
    """Return a csc_array of valid, sorted arrays, without checks."""
    if data.dtype.char == "e":  # SciPy has no float16 matrices
        data = data.astype(np.float32)
    matrix = _sparse("sparsity=").csc_array((data, indices, indptr), shape=shape)
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def linear_operator(
    shape: tuple[int, int], dtype: np.dtype[Any], **products: Any
) -> "LinearOperator":
    """Return a LinearOperator from its products."""
    _sparse("linear_operator")
    from scipy.sparse.linalg import LinearOperator

    return LinearOperator(shape, dtype=dtype, **products)


_tensors = Torch()


@dataclass(frozen=True)
class SparseInput:
    """
    A sparse input as an array: of the specified values if masked, else of all elements.

    `build` converts such an array to the library's matrix, and `read` converts a gradient to such
    an array. `original` copies the caller's matrix for derivatives, since without masks `build`
    specifies all elements.
    """

    values: NDArray
    build: Callable[[NDArray], Any]
    read: Callable[[Any], NDArray]
    original: Callable[[], Any]
    indices: tuple[NDArray, ...] = ()  # of the values in the matrix, if these are no array like it


def scipy_input(matrix: Any, masked: bool) -> SparseInput | None:
    """Return a SciPy matrix as a sparse input, or None for other types."""
    sparse = sys.modules.get("scipy.sparse")
    if sparse is None or not sparse.issparse(matrix):
        return None
    canonical = matrix.tocsr() if matrix.format not in ("csr", "csc", "coo") else matrix
    canonical = canonical.copy()
    canonical.sum_duplicates()
    entries = canonical.tocoo()
    rows, columns = entries.row, entries.col
    make = sparse.coo_array if isinstance(matrix, sparse.sparray) else sparse.coo_matrix
    if not masked:
        rows, columns = (i.reshape(-1) for i in np.indices(matrix.shape))

    def build(values: NDArray) -> Any:
        indices = (rows, columns)
        built = make((values.reshape(-1), indices), shape=matrix.shape).asformat(matrix.format)
        return built.astype(values.dtype)

    def read(gradient: Any) -> NDArray:
        dense = gradient.toarray() if sparse.issparse(gradient) else np.asarray(gradient)
        if dense.shape != matrix.shape:
            return np.asarray(dense)
        return np.asarray(dense[rows, columns].reshape(values.shape))

    values = entries.data.copy() if masked else matrix.toarray()
    return SparseInput(values, build, read, matrix.copy, (rows, columns) if masked else ())


def torch_input(tensor: Any, masked: bool) -> SparseInput:
    """Return a torch tensor with a sparse or MKLDNN layout as a sparse input."""
    torch: Any = sys.modules["torch"]
    plain = tensor.detach()
    layout, device = plain.layout, plain.device
    dense = plain.to_dense()
    if plain.is_mkldnn:
        return SparseInput(
            _tensors.as_numpy(dense).copy(),
            lambda values: _tensors.from_numpy(np.array(values)).to_mkldnn(),
            lambda gradient: _tensors.as_numpy(gradient.to_dense()),
            plain.clone,
        )
    if not masked:
        chosen = torch.ones(dense.shape, dtype=torch.bool)
    elif layout == torch.sparse_coo:
        chosen = torch.zeros(dense.shape, dtype=torch.bool)
        chosen[tuple(plain.coalesce().indices().cpu())] = True
    else:
        chosen = (torch.ones_like(plain).to_dense() != 0).cpu()
    block = plain.values().shape[1:3] if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    options = {"blocksize": block} if block is not None else {}
    # Explicit zeros have to stay: the pattern is made of ones, and its values are replaced.
    pattern = chosen.to(dense.dtype).to_sparse(layout=layout, **options)
    numbers = torch.arange(1, dense.numel() + 1, dtype=torch.double).reshape(dense.shape)
    numbered = (numbers * chosen).to_sparse(layout=layout, **options)
    where = (numbered.coalesce() if layout == torch.sparse_coo else numbered).values().long() - 1

    def build(values: NDArray) -> Any:
        full = torch.zeros(dense.shape, dtype=dense.dtype)
        full[chosen] = _tensors.from_numpy(np.array(values)).reshape(-1)
        flat = full.reshape(-1)
        entries = torch.where(
            where >= 0, flat[where.clamp(min=0)], torch.zeros((), dtype=flat.dtype)
        )
        if layout == torch.sparse_coo:
            indices = pattern.coalesce().indices()
            made = torch.sparse_coo_tensor(indices, entries, dense.shape, is_coalesced=True)
        else:
            by_rows = layout in (torch.sparse_csr, torch.sparse_bsr)
            compressed = pattern.crow_indices() if by_rows else pattern.ccol_indices()
            others = pattern.col_indices() if by_rows else pattern.row_indices()
            made = torch.sparse_compressed_tensor(
                compressed, others, entries, dense.shape, layout=layout
            )
        return made.to(device)

    def read(gradient: Any) -> NDArray:
        whole = gradient if gradient.layout is torch.strided else gradient.to_dense()
        selected: NDArray = whole.detach().cpu()[chosen].resolve_conj().numpy()
        return selected.reshape(values.shape)

    values = _tensors.as_numpy(dense.cpu()[chosen]).copy()
    if not masked:
        values = values.reshape(dense.shape)
    indices = tuple(i.numpy() for i in chosen.nonzero(as_tuple=True)) if masked else ()
    return SparseInput(values, build, read, plain.clone, indices)
