"""Tolerances, default_tolerance, recommend_tolerance, and validation of compare's options."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple

import numpy as np

from .._core.arguments import as_float, brief, is_real, require_bytes
from .._core.dtypes import DType
from .._core.types import DTypeLike
from ..interop.times import common_format, in_ticks, is_duration
from ..interop.units import Unit, tolerance_in, unit_of
from .chunked import MEMORY_LIMIT
from .statistics import Criteria

__all__ = ["Tolerance", "default_tolerance", "recommend_tolerance"]


class Tolerance(NamedTuple):
    """
    A relative and an absolute tolerance: ``|a - b| <= atol + rtol*|b|``.

    Attributes
    ----------
    rtol : float
        Relative tolerance.
    atol : float
        Absolute tolerance.

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


def default_tolerance(*dtypes: DTypeLike) -> Tolerance:
    """
    Return the tolerances that `assert_close` uses for arrays of the dtypes.

    Parameters
    ----------
    *dtypes : dtype_like or str
        One dtype or more, also of torch or as a name ("bfloat16"). Of several, the larger
        tolerances are returned.

    Returns
    -------
    Tolerance
        The tolerances of ``torch.testing.assert_close``: about the square root of the precision of
        the dtype. 0 for integers, bool, float8 dtypes and dtypes that are not numbers. For object,
        those of float64; `assert_close` uses 0 if all objects are integers.

    Raises
    ------
    TypeError
        If no dtype is passed, or an argument is not a dtype.

    See Also
    --------
    recommend_tolerance : Tolerances for the rounding errors of sums.

    Examples
    --------
    >>> import calipers
    >>> calipers.default_tolerance("float32")
    Tolerance(rtol=1.3e-06, atol=1e-05)
    >>> calipers.default_tolerance("float64", "int32")
    Tolerance(rtol=1e-07, atol=1e-07)
    """
    if not dtypes:
        msg = "default_tolerance needs at least one dtype"
        raise TypeError(msg)
    names = [name_of(x, _BY_NAME) for x in dtypes]
    for name, x in zip(names, dtypes, strict=True):
        if name not in _BY_NAME and not _is_dtype(x):
            msg = f"default_tolerance takes dtypes, got {x!r:.60}: pass the .dtype of an array"
            raise TypeError(msg)
    precisions = [_BY_NAME.get(name, _EXACT) for name in names]
    return Tolerance(max(x.rtol for x in precisions), max(x.atol for x in precisions))


def _is_dtype(x: Any) -> bool:
    """Return True if x is a dtype or its name, also of torch, jax or ml_dtypes."""
    if isinstance(x, np.dtype) or str(x).startswith(("torch.", "float8_")):
        return True
    if x is None or isinstance(x, (list, tuple)):
        return False
    try:
        np.dtype(x)
    except TypeError:
        return False
    return True


class _Precision(NamedTuple):
    """The unit roundoffs of a format and of its accumulator, and the allowed multiples of them.

    `roundings` is the allowed relative error of a result in unit roundoffs of the format, and
    `narrowing` the error of inputs that are rounded to a format of lower precision than the result.
    """

    roundoff: float
    roundings: float
    accumulator: float
    narrowing: float = 0.0


_PRECISIONS = {
    "float64": _Precision(2.0**-53, 8, 2.0**-53),
    "float32": _Precision(2.0**-24, 8, 2.0**-24),
    "tf32": _Precision(2.0**-24, 8, 2.0**-24, 12 * 2.0**-11),
    "float16": _Precision(2.0**-11, 4, 2.0**-24),
    "bfloat16": _Precision(2.0**-8, 4, 2.0**-24),
    "float8_e4m3": _Precision(2.0**-4, 4, 2.0**-24, 4 * 2.0**-4),
    "float8_e5m2": _Precision(2.0**-3, 4, 2.0**-24, 4 * 2.0**-3),
}
_COMPLEX = {"complex64": "float32", "complex128": "float64"}


def recommend_tolerance(
    dtype: DTypeLike,
    reduction: int = 1,
    *,
    accumulator: DTypeLike | None = None,
    scale: float = 1.0,
) -> Tolerance:
    """
    Return tolerances for results whose errors are the rounding errors of sums.

    Parameters
    ----------
    dtype : dtype_like or str
        The format of inputs and results; also "tf32", "bfloat16", "float8_e4m3" and "float8_e5m2".
    reduction : int, default 1
        The number of terms, n, of the longest sum.
    accumulator : dtype_like or str, optional
        The format in which sums are accumulated. By default float32 for formats of lower precision,
        and `dtype` for the others.
    scale : float, default 1.0
        The typical size of the results, or better the sum of the magnitudes of the terms, in the
        unit of the results. Multiply it by the condition number of an ill-conditioned function.

    Returns
    -------
    Tolerance
        ``rtol`` is a few unit roundoffs of the format. ``atol`` is ``(4*sqrt(n)*u + m)*scale``,
        where u is the unit roundoff of the accumulator, and m is nonzero for inputs of lower
        precision than the results.

    Raises
    ------
    ValueError
        If a format is unknown, or `reduction` or `scale` is not positive.

    See Also
    --------
    diagnose : Decides without a tolerance.
    default_tolerance : The tolerances of `assert_close`, which depend on the dtype only.

    Notes
    -----
    Rounding errors of a sum of n terms grow as sqrt(n) with high probability [1]_.

    References
    ----------
    .. [1] N. J. Higham, T. Mary, "A new approach to probabilistic rounding error analysis", SIAM
       Journal on Scientific Computing 41 (2019) A2815-A2835.

    Examples
    --------
    >>> import calipers
    >>> calipers.recommend_tolerance("float32", 4096).atol
    1.52587890625e-05
    >>> calipers.assert_close([1.0], [1.0], tolerance=calipers.recommend_tolerance("float64", 100))
    """
    name, twice = _format(dtype, "dtype")
    precision = _PRECISIONS[name]
    sums = precision.accumulator
    if accumulator is not None:
        sums = _PRECISIONS[_format(accumulator, "accumulator")[0]].roundoff
    if not is_real(reduction) or not 1 <= as_float(reduction) < float("inf"):
        msg = f"reduction must be at least 1 and finite, got {reduction!r:.60}"
        raise ValueError(msg)
    if not is_real(scale) or not 0 < as_float(scale) < float("inf"):
        msg = f"scale must be positive and finite, got {scale!r}"
        raise ValueError(msg)
    atol = (4 * float(reduction) ** 0.5 * sums + precision.narrowing) * float(scale)
    return Tolerance(twice * precision.roundings * precision.roundoff, twice * atol)


# Cached by dtype: computing a dtype's name takes longer than comparing ten elements.
default_of: Callable[..., Tolerance] = lru_cache(default_tolerance)


def name_of(dtype: Any, formats: Container[str]) -> str:
    """Return the name of a dtype that is one of `formats`, else NumPy's or its own name."""
    names = [str(dtype).removeprefix("torch."), getattr(dtype, "__name__", "")]
    with contextlib.suppress(TypeError):
        if dtype is not None:  # NumPy takes None for float64
            names.append(np.dtype(dtype).name)
    # torch, jax and ml_dtypes append "fn" to float8 formats without infinities.
    names_too = (text for name in names for text in (name, name.removesuffix("fn")))
    return next((name for name in names_too if name in formats), names[-1] or names[0])


def format_name(dtype: Any, formats: Collection[str], name: str) -> str:
    """Return the name of the format of a dtype; raise ValueError if it is not one of `formats`."""
    result = name_of(dtype, formats)
    if result not in formats:
        held = hasattr(dtype, "dtype") and not isinstance(dtype, type)
        advice = ": pass the .dtype of an array" if held else ""
        msg = f"{name} must be one of {', '.join(formats)}, got {dtype!r:.60}{advice}"
        raise ValueError(msg)
    return result


def _format(dtype: Any, name: str) -> tuple[str, int]:
    """Return the name of a real format, and 2 if the dtype is complex, else 1."""
    result = format_name(dtype, (*_PRECISIONS, *_COMPLEX), name)
    return _COMPLEX.get(result, result), 2 if result in _COMPLEX else 1


__tracebackhide__ = True  # pytest shows an error at the line that called calipers


@dataclass(kw_only=True)
class CheckedOptions:
    """
    The keywords of `compare`, with their types and defaults; they are validated.

    The signatures of `compare` and `assert_close` are made from them. `tolerance` becomes the pair
    of `rtol` and `atol` if these are passed; None stands for the defaults of the dtypes.
    """

    rtol: float | None = None
    atol: float | np.timedelta64 | timedelta | None = None
    tolerance: Tolerance | tuple[float, float] | None = None
    max_ulp: int | None = None
    equal_nan: bool = False
    check_dtype: bool = True
    check_shape: bool = True
    max_mismatches: int = 0
    max_mismatch_ratio: float = 0.0
    memory_limit: float = MEMORY_LIMIT
    rule: Criteria = field(init=False)

    def __post_init__(self) -> None:
        """Raise for the first option that is not valid."""
        rtol, atol, tolerance, max_ulp = self.rtol, self.atol, self.tolerance, self.max_ulp
        if (rtol is None) != (atol is None) and tolerance is None:
            present, missing = ("rtol", "atol") if atol is None else ("atol", "rtol")
            both = f"pass both (as {missing}=0, {present}={brief(rtol if atol is None else atol)})"
            msg = f"{present} was passed without {missing}: {both}, or neither for the defaults"
            raise ValueError(msg)
        if tolerance is not None:
            if rtol is not None or atol is not None:
                msg = "tolerance was passed together with rtol or atol: pass only one of them"
                raise ValueError(msg)
            try:
                rtol, atol = tolerance
            except (TypeError, ValueError):
                msg = (
                    f"tolerance must be a Tolerance or a pair (rtol, atol), got {brief(tolerance)}"
                )
                raise TypeError(msg) from None
        if max_ulp is not None:
            if rtol is not None:
                msg = "max_ulp was passed together with tolerances: pass only one of them"
                raise ValueError(msg)
            max_ulp = _count(max_ulp, "max_ulp")
        if rtol is not None:
            relative = _number(tolerance_in(rtol, None, "rtol"), "rtol")
            self.tolerance = Tolerance(relative, _checked_atol(atol))
        ratio = _number(self.max_mismatch_ratio, "max_mismatch_ratio")
        if ratio > 1:
            msg = f"max_mismatch_ratio must be from 0 to 1, got {ratio}"
            msg += "; use max_mismatches for a count"
            raise ValueError(msg)
        count = _count(self.max_mismatches, "max_mismatches")
        require_bytes(self.memory_limit)
        self.rule = Criteria(0.0, 0.0, max_ulp, bool(self.equal_nan), count, ratio)

    def criteria_for(self, a: DType, b: DType, unit: Unit | None = None) -> Criteria:
        """Return the criteria for arrays of two dtypes, with `atol` in their unit."""
        if self.rule.max_ulp is not None:
            return self.rule
        atol: Any
        rtol, atol = self.tolerance or default_of(a, b)
        if type(atol) is float and "M" not in (a.kind, b.kind):
            return replace(self.rule, rtol=rtol, atol=atol)
        ticks = common_format(a, b)
        if ticks is not None and ticks.kind == "M":
            rtol, atol = 0.0, atol if is_duration(atol) else 0.0  # numbers are no durations
        if is_duration(atol):
            number = next((x for x in (a, b) if x.kind in "biufc" or x.isbuiltin == 2), None)
            if number is not None:
                msg = f"atol is a {type(atol).__name__}, but an array has dtype {number}: "
                raise TypeError(msg + "pass a number")
            atol = 0.0 if ticks is None else in_ticks(atol, ticks)  # text has no tolerance
        elif unit_of(atol) is not None:
            atol = _number(tolerance_in(atol, unit, "atol"), "atol")
        return replace(self.rule, rtol=rtol, atol=atol)


def _number(value: Any, name: str) -> float:
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        msg = f"{name} must be a number, got {type(value).__name__}: {brief(value)}"
        raise TypeError(msg) from None
    if not 0 <= number < math.inf:
        msg = f"{name} must be finite and not negative, got {value!r}"
        raise ValueError(msg)
    return number


def _checked_atol(atol: Any) -> Any:
    """Return an absolute tolerance: a float, or a quantity or duration unchanged."""
    unit = unit_of(atol)
    if unit is not None:
        _number(unit.numbers_of(atol), "atol")
        return atol
    if not is_duration(atol):
        return _number(atol, "atol")
    if atol != atol or atol < 0 * atol:  # NaT differs from itself
        msg = f"atol must be finite and not negative, got {atol!r}"
        raise ValueError(msg)
    return atol


def _count(value: Any, name: str) -> int:
    try:
        number = index(value)
    except TypeError:
        advice = "; use max_mismatch_ratio for a share" if name == "max_mismatches" else ""
        msg = f"{name} must be an integer, got {type(value).__name__}: {brief(value)}{advice}"
        raise TypeError(msg) from None
    if not 0 <= number < 2**63:
        msg = f"{name} must be between 0 and 2**63 - 1, got {value!r}"
        raise ValueError(msg)
    return number
