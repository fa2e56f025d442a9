"""Compiling ahead of use."""

import numpy as np

from ._kernels.closeness import FIRST_APART, FIRST_NONFINITE, MASK
from ._kernels.comparison import TALLIES


def warmup() -> None:
    """
    Compile the common kernels, or load them from the disk cache, ahead of their first use.

    For binary32 and binary64 that is allclose, isclose, allfinite and the report of compare and
    assert_close; for 64-bit integers allclose and the report. It takes some 15 seconds; with a disk
    cache it is needed once per installation, in an image for instance.

    Examples
    --------
    >>> import calipers
    >>> calipers.warmup()
    """
    for name in ("float64", "float32"):
        for kernels in (FIRST_APART, MASK, FIRST_NONFINITE):
            kernels[np.dtype(name)]
    FIRST_APART[np.dtype("int64")]
    for name in ("float64", "float32", "int64"):
        TALLIES[np.dtype(name), np.dtype(name)]
