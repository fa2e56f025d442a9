"""Compilation of kernels ahead of use."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._core.jit import Kernels
from .._gradcheck.gradcheck import gradcheck
from .._kernels.closeness import FIRST_APART, MASK
from .._kernels.comparison import TALLIES
from .._kernels.equality import FIRST_NONFINITE, FIRST_UNEQUAL, FIRST_UNEQUAL_STRIDED

_FLOATS, _NUMBERS = ("float64", "float32"), ("float64", "float32", "int64")
_COMMON = (
    ("allclose", FIRST_APART, _NUMBERS),
    ("isclose", MASK, _NUMBERS),
    ("array_equal", FIRST_UNEQUAL, _NUMBERS),
    ("array_equal, strided", FIRST_UNEQUAL_STRIDED, _FLOATS),
    ("allfinite", FIRST_NONFINITE, _FLOATS),
    ("compare, assert_close", TALLIES, _NUMBERS),
)


def warmup() -> None:
    """
    Compile the common kernels, or load them from the disk cache, ahead of their first use.

    These are the kernels of allclose, isclose, array_equal, compare and assert_close for float64,
    float32 and int64, those of allfinite for float64 and float32, and those of jacobian and
    gradcheck for float64. Compiling them takes about half a minute, once per installation if there
    is a disk cache; loading them takes less than a second.

    Examples
    --------
    >>> import calipers
    >>> calipers.warmup()
    """
    for _ in warmup_steps():
        pass


def warmup_steps() -> Iterator[tuple[str, str]]:
    """Make kernels ready; yield the functions and the dtype that each is for."""
    for name, dtype, kernels, key in common_kernels():
        kernels[key]
        yield name, dtype
    # All kernels of gradcheck run for a derivative that is wrong.
    gradcheck(np.sin, np.ones(2), vjp=lambda x, w: 2 * w * np.cos(x), raise_exception=False)
    yield "jacobian, gradcheck", "float64"


def common_kernels() -> Iterator[tuple[str, str, Kernels, Any]]:
    """Yield functions, dtype, kernels and key of those that comparisons need most often."""
    for name, kernels, dtypes in _COMMON:
        for dtype in dtypes:
            key = np.dtype(dtype)
            yield name, dtype, kernels, (key, key) if kernels is TALLIES else key
