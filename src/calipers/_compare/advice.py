"""Advice on a comparison that fails: options that would pass, and the next call."""

import math
import re

from .._core.report import rounded_up
from .patterns import restored
from .report_data import ComparisonData, is_boolean
from .tolerances import default_tolerance

_OPTION = re.compile(r"\bcheck_\w+=False")
# Differences in ULP that a different order of a few operations explains; max_ulp is then advised.
_FEW_ULP = 4


def remedy(report: ComparisonData, allows_mismatches: bool) -> str:
    """Return the options at which all elements pass; "" if they are unknown."""
    options = _options(report)
    if options is None:
        return ""
    finite = report.finite_mismatches
    nan_both = _nan_both(report)
    passing, failing = "", ""
    if report.mismatches > finite + nan_both:
        failing = _reason(report)
    elif finite:
        passing, failing = _passing_tolerances(report)
        if not (passing or failing or options or is_boolean(report)):
            return ""  # of dtypes without a kernel no tolerances are computed
    if passing or not (failing or finite):
        return f"with {', and '.join(filter(None, [passing, ' and '.join(options)]))}"
    allowed = report.rule.max_mismatches or report.rule.max_mismatch_ratio
    if allowed or not allows_mismatches:
        return failing
    allowing = " and ".join([f"max_mismatches={report.mismatches}", *options[bool(nan_both) :]])
    return f"only with {allowing} ({failing})" if failing else f"with {allowing}"


def next_call(report: ComparisonData, path: str = "") -> str:
    """Return the next call as code; "" if no call would show more."""
    names = f"actual{path}", f"expected{path}"
    turned = restored(report.arrangement or "", *names)
    options = None if report else _options(report, are_shapes_settled=turned is not None)
    if options is None:
        return ""
    only_options = report.mismatches == _nan_both(report)
    if turned is None and not (options and only_options):
        worst = report.worst("ulp")
        counted = report.mismatches == report.finite_mismatches and _has_ulp(report)
        if not counted or worst is None or worst.ulp is None or worst.ulp > _FEW_ULP:
            return ""
        options.append(f"max_ulp={worst.ulp}")
    elif report.rule.max_ulp is not None:
        options.insert(0, f"max_ulp={report.rule.max_ulp}")
    elif report.tally is not None and not _has_default_tolerance(report):
        if report.actual_dtype.startswith(("datetime64", "timedelta64")):  # atol has a unit
            return ""
        options[:0] = [f"rtol={report.rule.rtol!r}", f"atol={report.rule.atol!r}"]
    return f"calipers.compare({', '.join([*(turned or names), *options])})"


def _nan_both(report: ComparisonData) -> int:
    """Return the number of mismatches that are NaN in both arrays."""
    return 0 if report.rule.equal_nan else report.nan_both


def _options(report: ComparisonData, are_shapes_settled: bool = False) -> list[str] | None:
    """Return the options without which the report fails; None if options do not suffice."""
    problems = [x for x in report.problems if not (are_shapes_settled and x.startswith("shapes"))]
    options = [option for problem in problems for option in _OPTION.findall(problem)]
    if len(options) < len(problems):
        return None
    return ["equal_nan=True", *options] if _nan_both(report) else options


def _has_ulp(report: ComparisonData) -> bool:
    """Return True if elements have a floating-point format, and no max_ulp was passed."""
    names = report.actual_dtype, report.expected_dtype
    floating = all("float" in name or "complex" in name for name in names)
    return floating and report.rule.max_ulp is None


def _has_default_tolerance(report: ComparisonData) -> bool:
    """Return True if the tolerances are those of the dtypes, which then need not be passed."""
    try:
        default = default_tolerance(report.actual_dtype, report.expected_dtype)
    except TypeError:  # of dtypes with a unit
        return False
    return (report.rule.rtol, report.rule.atol) == default


def _reason(report: ComparisonData) -> str:
    """Return the reason why no tolerance passes all elements."""
    if report.tally is not None and report.tally["without_distance"]:
        return f"{'some' if report.finite else 'the'} elements have no distance"
    has_nan = report.nan_actual or report.nan_expected
    infinite = ["infinities"] if report.infinite_mismatches else []
    return f"no tolerance accepts {' or '.join(['NaN'] * bool(has_nan) + infinite)}"


def _passing_tolerances(report: ComparisonData) -> tuple[str, str]:
    """Return the tolerances that pass all finite mismatches, and the reason if there are none."""
    if is_boolean(report):
        return "", ""  # tolerances do not apply
    worst = report.worst("ulp")
    if report.rule.max_ulp is not None and worst is not None and worst.ulp is not None:
        # A difference of 64-bit numbers may exceed the largest max_ulp.
        is_possible = worst.ulp < 2**63
        return (
            (f"max_ulp={worst.ulp}", "")
            if is_possible
            else ("", "no max_ulp below 2**63 is enough")
        )
    if report.tally is None or math.isnan(report.tally["passing_rtol"]):
        return "", ""  # they were not computed
    values = {name: float(report.tally[f"passing_{name}"]) for name in ("rtol", "atol")}
    others = {"rtol": "atol", "atol": "rtol"}
    usable = {name: x for name, x in values.items() if x and math.isfinite(x)}
    powers = {"least_power": 0} if any("e-" in rounded_up(x) for x in usable.values()) else {}
    passing = [
        f"{name}={rounded_up(x, **powers)} (same {others[name]})" for name, x in usable.items()
    ]
    return " or ".join(passing), "" if passing else "neither rtol nor atol alone is enough"
