"""What ``calipers compare`` writes: the report, and what was left out."""

from dataclasses import replace
from typing import Any

from .._files.errors import one_line, printable_lines
from .._files.trees import Outcome
from .._report.comparison import comparison_text, nested_text
from ..reports import NestedComparison

_SHOWN = 5


def as_text(actual: str, expected: str, outcome: Outcome) -> str:
    """Write what was found, for people."""
    result = outcome.found
    # A file that is one array gives it no name.
    report = NestedComparison(tuple(replace(x, path=x.path or "the array") for x in result.leaves))
    texts = []
    if not report:
        texts += [f"actual    {one_line(actual)}", f"expected  {one_line(expected)}"]
    if [leaf.path for leaf in result.leaves] == [""]:
        texts.append(comparison_text(report.leaves[0], advise=False))
    elif report.leaves:
        texts.append(nested_text(report, ("array", "arrays"), "--json lists all", advise=False))
    if result.stopped:
        texts.append("Stopped at the first difference: what follows was not compared")
    if result.ignored:
        texts.append(_listed(f"{_names(len(result.ignored))} ignored", result.ignored))
    for name, reason in list(result.left_out.items())[:_SHOWN]:
        texts.append(one_line(f"Not compared: {name or 'the file'}: {reason}"))
    if len(result.left_out) > _SHOWN:
        texts.append(f"Not compared: {len(result.left_out) - _SHOWN} more: --json lists all")
    texts += outcome.notes
    return "".join(map(printable_lines, texts))


def _names(count: int) -> str:
    return f"{count} name{'' if count == 1 else 's'}"


def _listed(what: str, names: list[str]) -> str:
    rest = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return one_line(f"{what}: {', '.join(names[:_SHOWN])}{rest}")


def not_compared(names: list[str]) -> str:
    """Say in one line what was left out, and what to do."""
    what = f"{_names(len(names))} {'was' if len(names) == 1 else 'were'} not compared"
    return f"{_listed(what, [name or 'the file' for name in names])}; --ignore leaves names out"


def as_dict(outcome: Outcome, passed: bool) -> dict[str, Any]:
    """Return what was found, for JSON."""
    result = outcome.found
    return {
        **NestedComparison(tuple(result.leaves)).to_dict(),
        "passed": passed,
        "stopped": result.stopped,
        "ignored": result.ignored,
        "left_out": result.left_out,
        "trouble": outcome.troubles,
    }
