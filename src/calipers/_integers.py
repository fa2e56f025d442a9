"""Python's integers beyond 64 bits, which no dtype holds: compared one by one, exactly."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._arguments import as_float
from ._protocols import NDArray

_INT64 = np.dtype(np.int64)


def is_integers(x: Any) -> bool:
    """Tell whether x is an array of objects that are all Python's integers."""
    return (
        type(x) is np.ndarray and x.dtype.kind == "O" and x.size > 0 and all(map(_is_int, x.flat))
    )


def _is_int(x: Any) -> bool:
    return isinstance(x, int)


def format_of(x: Any) -> np.dtype[Any]:
    """Return the dtype whose tolerances an array has by default: integers have none."""
    return _INT64 if is_integers(x) else x.dtype


def became_floats(x: Sequence[Any]) -> bool:
    """Tell whether a sequence is of integers alone, of which NumPy made an array of floats."""
    first: Any = x
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    return _is_int(first) and all(map(_is_int, np.asarray(x, object).flat))


def each_close(a: NDArray, b: NDArray, rtol: Any, atol: Any) -> Any:
    """Tell for each pair whether it is close, if one side is such integers and both are real."""
    with np.errstate(all="ignore"):  # what Python computes raises flags, too
        return np.asarray(np.frompyfunc(_is_close, 4, 1)(a, b, rtol, atol), bool)[()]


def is_comparable(a: NDArray, b: NDArray) -> bool:
    """Tell whether `each_close` knows the elements of both."""
    return (is_integers(a) and _is_real(b)) or (is_integers(b) and _is_real(a))


def _is_real(x: NDArray) -> bool:
    # Not of what has masks or units: NumPy knows how to heed them.
    return is_integers(x) or (type(x) is np.ndarray and x.dtype.kind in "biuf")


def _is_close(a: Any, b: Any, rtol: Any, atol: Any) -> bool:
    if a == b:
        return True
    if not (_is_finite(a) and _is_finite(b)):
        return False
    if not (math.isfinite(rtol) and math.isfinite(atol)):
        # As in floats: no multiple of 0 is infinite, and opposite infinities have no sum.
        return bool(atol + rtol * min(as_float(abs(b)), sys.float_info.max) == math.inf)
    # By ratios of integers, |a - b| <= atol + rtol*|b| times the product of the denominators.
    a, of_a = a.as_integer_ratio()
    b, of_b = b.as_integer_ratio()
    rtol, of_rtol = rtol.as_integer_ratio()
    atol, of_atol = atol.as_integer_ratio()
    distance = abs(a * of_b - b * of_a) * of_rtol * of_atol
    return bool(distance <= of_a * (atol * of_rtol * of_b + rtol * of_atol * abs(b)))


def _is_finite(x: Any) -> bool:
    return _is_int(x) or math.isfinite(x)
