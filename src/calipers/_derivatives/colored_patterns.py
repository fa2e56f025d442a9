"""Colored patterns, kept for the next call with the same sparse matrix."""

from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np

from .._core.protocols import NDArray
from ..interop import sparse_inputs as scipy_sparse
from .coloring import Shape, as_pattern, color_columns
from .sparsity import Pattern


@dataclass(frozen=True)
class _ColoredMatrix:
    """A matrix, copies of its arrays, its pattern, and what it was colored for."""

    matrix: Any  # a weak reference
    arrays: tuple[NDArray, ...]
    pattern: Pattern
    saving_cost: float

    def serves(self, matrix: Any, shape: Shape, saving_cost: float) -> bool:
        """Return True unless the matrix has changed, or another coloring may pay."""
        if self.matrix() is not matrix or not (matrix.shape == shape == self.pattern.shape):
            return False
        if saving_cost > 2 * self.saving_cost:  # it is measured, and varies by less
            return False
        return all(map(_are_same, self.arrays, scipy_sparse.pattern_arrays(matrix)))


# By the id of a matrix, which has no hash. What is kept of it is dropped when it is deleted.
_colored: dict[int, _ColoredMatrix] = {}


def colored_pattern(matrix: Any, shape: Shape, saving_cost: float) -> Pattern:
    """
    Return the pattern of a matrix with the coloring of `color_columns`.

    It is kept as long as the matrix if that is one of SciPy. A change of the matrix is noticed.
    """
    number = id(matrix)
    previous = _colored.get(number)
    if previous is not None and previous.serves(matrix, shape, saving_cost):
        return previous.pattern
    indptr, indices = as_pattern(*scipy_sparse.pattern(matrix, shape), shape)
    coloring = color_columns(indptr, indices, shape, saving_cost)
    pattern = Pattern(indptr.copy(), indices.copy(), shape, coloring)
    if arrays := scipy_sparse.pattern_arrays(matrix):
        pairs = zip((pattern.indptr, pattern.indices), arrays, strict=True)
        copies = (a if _are_same(a, b) else b.copy() for a, b in pairs)
        reference = ref(matrix, lambda _: _colored.pop(number, None))
        _colored[number] = _ColoredMatrix(reference, tuple(copies), pattern, saving_cost)
    return pattern


def _are_same(one: NDArray, other: NDArray) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other)
