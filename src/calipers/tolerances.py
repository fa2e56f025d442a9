"""Default tolerances by dtype."""

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Tolerance", "default_tolerance"]


class Tolerance(NamedTuple):
    """
    A relative and an absolute tolerance: ``|a - b| <= atol + rtol*|b|``.

    Examples
    --------
    >>> import calipers
    >>> calipers.Tolerance(rtol=1e-6, atol=0.0)
    Tolerance(rtol=1e-06, atol=0.0)
    """

    rtol: float
    atol: float


_EXACT = Tolerance(0.0, 0.0)
_DOUBLE = Tolerance(1e-7, 1e-7)
_SINGLE = Tolerance(1.3e-6, 1e-5)
_BY_NAME = {
    "float16": Tolerance(1e-3, 1e-5),
    "bfloat16": Tolerance(1.6e-2, 1e-5),
    "float32": _SINGLE,
    "complex64": _SINGLE,
    "float64": _DOUBLE,
    "complex128": _DOUBLE,
    np.dtype(np.longdouble).name: _DOUBLE,
    np.dtype(np.clongdouble).name: _DOUBLE,
    "object": _DOUBLE,
}


def default_tolerance(*dtypes: Any) -> Tolerance:
    """
    Return the tolerances that `assert_close` uses for arrays of some dtypes.

    Parameters
    ----------
    *dtypes : dtype_like
        At least one; of several, each tolerance is the largest.

    Returns
    -------
    Tolerance
        That of torch.testing.assert_close: about the square root of the format's precision. 0 for
        integers, bool, the float8 kinds, and what is not a number.

    Examples
    --------
    >>> import calipers
    >>> calipers.default_tolerance("float32")
    Tolerance(rtol=1.3e-06, atol=1e-05)
    >>> calipers.default_tolerance("float64", "int32")
    Tolerance(rtol=1e-07, atol=1e-07)
    """
    # bfloat16 has a name before NumPy knows it.
    names = [str(x) if str(x) in _BY_NAME else np.dtype(x).name for x in dtypes]
    own = [_BY_NAME.get(name, _EXACT) for name in names]
    return Tolerance(max(x.rtol for x in own), max(x.atol for x in own))
