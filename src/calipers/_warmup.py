"""Compiling ahead of use."""

import numpy as np

from ._kernels.closeness import FIRST_APART, MASK
from ._kernels.comparison import TALLIES
from ._kernels.equality import FIRST_UNEQUAL, FIRST_UNEQUAL_STRIDED
from ._kernels.finiteness import FIRST_NONFINITE


def warmup() -> None:
    """
    Compile the common kernels, or load them from the disk cache, ahead of their first use.

    For binary32 and binary64 that is allclose, isclose, array_equal, allfinite and the report of
    compare and assert_close; for 64-bit integers allclose, array_equal and the report. It takes
    some 15 seconds; with a disk cache it is needed once per installation, in an image for instance.

    Examples
    --------
    >>> import calipers
    >>> calipers.warmup()
    """
    for name in ("float64", "float32"):
        for kernels in (FIRST_APART, FIRST_UNEQUAL, FIRST_UNEQUAL_STRIDED, MASK, FIRST_NONFINITE):
            kernels[np.dtype(name)]
    for kernels in (FIRST_APART, FIRST_UNEQUAL):
        kernels[np.dtype("int64")]
    for name in ("float64", "float32", "int64"):
        TALLIES[np.dtype(name), np.dtype(name)]
