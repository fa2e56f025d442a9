"""The options of a comparison, checked; and the tolerances that the dtypes have by default."""

import math
from dataclasses import replace
from operator import index
from typing import Any, NamedTuple

from ._arguments import brief, require_bytes
from ._dtypes import DType
from ._spread import MEMORY_LIMIT
from ._tally import Rule
from .interop.times import common_format, in_ticks, is_duration
from .interop.units import Unit, tolerance_in, unit_of
from .tolerances import Tolerance, default_of

__tracebackhide__ = True  # pytest shows an error at the line that called calipers


class Options(NamedTuple):
    """The checked options of a comparison; a tolerance of None is that of the dtypes."""

    tolerance: Tolerance | None
    check_dtype: bool
    check_shape: bool
    rule: Rule
    memory_limit: float

    def rule_for(self, a: DType, b: DType, unit: Unit | None = None) -> Rule:
        """Return the rule for arrays of some dtypes, both in one unit if they have any."""
        if self.rule.max_ulp is not None:
            return self.rule
        atol: Any
        rtol, atol = self.tolerance or default_of(a, b)
        if type(atol) is float and "M" not in (a.kind, b.kind):
            return replace(self.rule, rtol=rtol, atol=atol)
        ticks = common_format(a, b)
        if ticks is not None and ticks.kind == "M":
            rtol, atol = 0.0, atol if is_duration(atol) else 0.0  # no number is a span of time
        if is_duration(atol):
            number = next((x for x in (a, b) if x.kind in "biufc" or x.isbuiltin == 2), None)
            if number is not None:
                msg = f"atol is a {type(atol).__name__}, but an array has dtype {number}: "
                raise TypeError(msg + "pass a number")
            atol = 0.0 if ticks is None else in_ticks(atol, ticks)  # text has no tolerance
        elif unit_of(atol) is not None:
            atol = _number(tolerance_in(atol, unit, "atol"), "atol")
        return replace(self.rule, rtol=rtol, atol=atol)


def checked_options(
    rtol: Any = None,
    atol: Any = None,
    tolerance: Any = None,
    max_ulp: Any = None,
    equal_nan: Any = False,
    check_dtype: Any = True,
    check_shape: Any = True,
    max_mismatches: Any = 0,
    max_mismatch_ratio: Any = 0.0,
    memory_limit: Any = MEMORY_LIMIT,
) -> Options:
    """Return the options of a comparison, or say which of them cannot be."""
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
            msg = f"tolerance must be a Tolerance or a pair (rtol, atol), got {brief(tolerance)}"
            raise TypeError(msg) from None
    if max_ulp is not None:
        if rtol is not None:
            msg = "max_ulp was passed together with tolerances: pass only one of them"
            raise ValueError(msg)
        max_ulp = _count(max_ulp, "max_ulp")
    chosen = None
    if rtol is not None:
        chosen = Tolerance(_number(tolerance_in(rtol, None, "rtol"), "rtol"), _checked_atol(atol))
    ratio = _number(max_mismatch_ratio, "max_mismatch_ratio")
    if ratio > 1:
        msg = f"max_mismatch_ratio must be from 0 to 1, got {ratio}; use max_mismatches for a count"
        raise ValueError(msg)
    count = _count(max_mismatches, "max_mismatches")
    require_bytes(memory_limit)
    rule = Rule(0.0, 0.0, max_ulp, bool(equal_nan), count, ratio)
    return Options(chosen, check_dtype, check_shape, rule, memory_limit)


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
    """Return a number; or what has a unit, a duration too, which is one in the arrays' unit."""
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
