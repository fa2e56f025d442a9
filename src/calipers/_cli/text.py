"""What ``calipers compare`` writes: the report, and what was not compared."""

import shlex
from dataclasses import replace
from typing import Any

from .._files.errors import one_line
from .._files.pairs import MISSING
from .._files.trees import Outcome
from .._report.comparison import comparison_text, nested_text
from ..reports import Comparison, NestedComparison

_SHOWN = 5


def as_text(actual: str, expected: str, outcome: Outcome) -> str:
    """Write the report: the verdict, the files, arrays that differ, and what was not compared."""
    result = outcome.found
    # A file that is one array gives it no name.
    report = NestedComparison(tuple(replace(x, path=x.path or "the array") for x in result.leaves))
    lines = []
    if [leaf.path for leaf in result.leaves] == [""]:
        lines = comparison_text(report.leaves[0], advise=False).split("\n")
    elif report.leaves:
        text = nested_text(report.leaves, ("array", "arrays"), "--json lists all", advise=False)
        lines = text.split("\n")
    if not report:
        lines[1:1] = [
            f"  {'files':12}actual    {one_line(actual)}",
            f"  {'':12}expected  {one_line(expected)}",
        ]
    if result.stopped:
        lines.append("Stopped at the first difference: what follows was not compared")
    if result.ignored:
        lines.append(_listed(f"{_names(len(result.ignored))} ignored", result.ignored))
    for name, reason in list(result.left_out.items())[:_SHOWN]:
        lines.append(one_line(f"Not compared: {name or 'the file'}: {reason}"))
    if len(result.left_out) > _SHOWN:
        lines.append(f"Not compared: {len(result.left_out) - _SHOWN} more: --json lists all")
    lines += [f"Not compared: {reason}" for reason in outcome.unread[:_SHOWN]]
    if len(outcome.unread) > _SHOWN:
        lines.append(f"Not compared: {len(outcome.unread) - _SHOWN} more files: --json lists all")
    lines += [f"note: {note}" for note in outcome.notes]
    if not report and all(map(_is_nan_only, report.failing)):
        lines.append(f"next: calipers compare {shlex.join([actual, expected])} --equal-nan")
    return "\n".join(lines)


def _is_nan_only(leaf: Comparison) -> bool:
    """Return True if all that differs is NaN in both arrays."""
    return not leaf.problems and leaf.mismatches == leaf.nan_both


def _names(count: int) -> str:
    return f"{count} name{'' if count == 1 else 's'}"


def _listed(what: str, names: list[str]) -> str:
    rest = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return one_line(f"{what}: {', '.join(names[:_SHOWN])}{rest}")


def not_compared(names: list[str]) -> str:
    """Say in one line what was not compared, and what to do."""
    what = f"{_names(len(names))} {'was' if len(names) == 1 else 'were'} not compared"
    return f"{_listed(what, [name or 'the file' for name in names])}; --ignore leaves names out"


def as_dict(outcome: Outcome, passed: bool) -> dict[str, Any]:
    """Return the fields of the report as JSON."""
    result = outcome.found
    return {
        "passed": passed,
        "leaves": list(map(_leaf_as_dict, result.leaves)),
        "stopped": result.stopped,
        "ignored": result.ignored,
        "left_out": result.left_out,
        "errors": outcome.troubles,
    }


def _leaf_as_dict(leaf: Comparison) -> dict[str, Any]:
    """Return the fields of one report; an array that is missing has no shape and no dtype."""
    fields = leaf.to_dict()
    for side in ("actual", "expected"):
        if fields[f"{side}_dtype"] == MISSING:
            fields |= {f"{side}_shape": None, f"{side}_dtype": None}
    return fields
