"""One question about two arrays, normalised: are all close, which are, and which rows?"""

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from ._arrays import (
    COMPLEX128,
    FLOAT64,
    INT64,
    UINT64,
    DType,
    Pair,
    as_tolerances,
    broadcast_shape,
)
from ._dispatch import BlockCall, fill, scan
from ._kernels.closeness import FIRST_APART, MASK, MASK_EACH, ROWS_APART
from ._protocols import NDArray

# Rows from here on are passes of their own, each with its threads and its early stop.
_LONG_ROW = 1 << 14


class Question:
    """Two arrays with kernels for their dtypes, and tolerances: two numbers, or one for each."""

    def __init__(self, pair: Pair, rtol: Any, atol: Any, equal_nan: bool) -> None:
        assert pair.dtypes is not None
        self._rtol, self._atol = as_tolerances(rtol, atol)
        self._equal_nan = equal_nan
        self._arrays: list[NDArray] = [pair.a, pair.b]
        self._dtypes = list(pair.dtypes)
        self._own_tolerances = type(self._rtol) is not float or type(self._atol) is not float
        if self._own_tolerances:
            self._arrays += [np.asarray(self._rtol), np.asarray(self._atol)]
            self._dtypes = [*map(_widest, pair.dtypes), FLOAT64, FLOAT64]
        self._shape = broadcast_shape(self._arrays, ("a", "b", "rtol", "atol"))

    def all_close(self) -> bool:
        """Answer for all elements, stopping at the first that is not close."""
        return scan(self._first_apart(), self._arrays, self._dtypes) < 0

    def each_close(self) -> NDArray:
        """Answer for each element."""
        return fill(self._mask(), self._arrays, self._dtypes)

    def rows_close(self, axis: int | tuple[int, ...]) -> Any:
        """Answer for each row: the elements along `axis`."""
        axes = normalize_axis_tuple(axis, len(self._shape), "axis")
        kept = [i for i in range(len(self._shape)) if i not in axes]
        rows = [np.broadcast_to(x, self._shape).transpose(*kept, *axes) for x in self._arrays]
        out = np.ones([self._shape[i] for i in kept], dtype=bool)
        width = int(np.prod([self._shape[i] for i in axes], dtype=np.intp))
        if width >= _LONG_ROW:
            for row in np.ndindex(out.shape):
                out[row] = scan(self._first_apart(), [x[row] for x in rows], self._dtypes) < 0
        elif out.size and width:
            scan(self._rows_apart(width, out.reshape(-1)), rows, self._dtypes, order="C")
        return out[()]

    def _kernel(self, kernels: Any) -> Any:
        a, b = self._dtypes[:2]
        return kernels[a if a == b else (a, b)]

    def _mask(self) -> BlockCall:
        equal_nan = self._equal_nan
        if self._own_tolerances:
            each = self._kernel(MASK_EACH)
            return lambda _, x, y, rtol, atol, out: each(x, y, rtol, atol, equal_nan, out)
        kernel, rtol, atol = self._kernel(MASK), self._rtol, self._atol
        return lambda _, x, y, out: kernel(x, y, rtol, atol, equal_nan, out)

    def _first_apart(self) -> BlockCall:
        equal_nan = self._equal_nan
        if self._own_tolerances:
            mask = self._mask()

            def first_apart(start: int, *blocks: NDArray) -> int:
                verdicts = np.empty(blocks[0].size, dtype=bool)
                mask(start, *blocks, verdicts)
                return -1 if verdicts.all() else int(verdicts.argmin())

            return first_apart
        kernel, rtol, atol = self._kernel(FIRST_APART), self._rtol, self._atol
        return lambda _, x, y: kernel(x, y, rtol, atol, equal_nan)

    def _rows_apart(self, width: int, out: NDArray) -> BlockCall:
        equal_nan = self._equal_nan
        if self._own_tolerances:
            mask = self._mask()

            def rows_apart(start: int, *blocks: NDArray) -> int:
                verdicts = np.empty(blocks[0].size, dtype=bool)
                mask(start, *blocks, verdicts)
                out[(start + np.flatnonzero(~verdicts)) // width] = False
                return -1

            return rows_apart
        kernel, rtol, atol = self._kernel(ROWS_APART), self._rtol, self._atol
        return lambda start, x, y: kernel(x, y, rtol, atol, equal_nan, start, width, out)


def _widest(dtype: DType) -> DType:
    """Return the one dtype of its kind for which there are kernels with arrays of tolerances."""
    if dtype.kind in "biu":
        return UINT64 if dtype == UINT64 else INT64
    return COMPLEX128 if dtype.kind == "c" else FLOAT64
