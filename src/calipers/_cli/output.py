"""Output of the commands: verdicts, reports and pictures."""

import json
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from .._files import one_line, printable_text
from .status import DIFFERENT, SAME

if TYPE_CHECKING:
    from .._compare.reports import Comparison
    from .._files.folders import FilesOutcome


_SHOWN = 5  # names, reasons and files that a report lists before it counts the others


def as_text(actual: str, expected: str, outcome: "FilesOutcome") -> str:
    """Write the report: the verdict, the files, arrays that differ, and what was not compared."""
    # Not at import, since `compare` sets Numba's cache folder before Numba is imported.
    from .._compare.reports import NestedComparison
    from .._compare.text import comparison_text, nested_text

    result = outcome.results
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


def _is_nan_only(leaf: "Comparison") -> bool:
    """Return True if the only mismatches are NaN in both arrays."""
    return not leaf.problems and leaf.mismatches == leaf.nan_both


def _names(count: int) -> str:
    return f"{count} name{'' if count == 1 else 's'}"


def _listed(what: str, names: list[str]) -> str:
    rest = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return one_line(f"{what}: {', '.join(names[:_SHOWN])}{rest}")


def not_compared(names: list[str]) -> str:
    """Return one line on the names that were not compared, with the option to ignore them."""
    what = f"{_names(len(names))} {'was' if len(names) == 1 else 'were'} not compared"
    return f"{_listed(what, [name or 'the file' for name in names])}; --ignore leaves names out"


def as_dict(outcome: "FilesOutcome", passed: bool) -> dict[str, Any]:
    """Return the fields of the report as JSON."""
    result = outcome.results
    return {
        "passed": passed,
        "leaves": list(map(_leaf_as_dict, result.leaves)),
        "stopped": result.stopped,
        "ignored": result.ignored,
        "left_out": result.left_out,
        "errors": outcome.troubles,
    }


def _leaf_as_dict(leaf: "Comparison") -> dict[str, Any]:
    """Return the fields of one report; an array that is missing has no shape and no dtype."""
    from .._files.compare import MISSING

    fields = leaf.to_dict()
    for name in ("actual", "expected"):
        if fields[f"{name}_dtype"] == MISSING:
            fields |= {f"{name}_shape": None, f"{name}_dtype": None}
    return fields


_COLORS = {SAME: "green", DIFFERENT: "red"}
# Verdicts of gradcheck that neither confirm a derivative nor refute it.
_UNDECIDED = ("NONSMOOTH", "INCONCLUSIVE")


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that writes a report as JSON."""
    option = click.option("--json", "as_json", is_flag=True, help="Write the report as JSON.")
    return option(command)


def has_no_color() -> bool:
    """Return True if the environment asks for text without color."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def user_output(as_json: bool) -> AbstractContextManager[Any]:
    """Return a context in which the user's code prints to standard error if JSON is written."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def echo_text(text: str, status: int) -> None:
    """Write a report; click drops the color of its verdict where there is no terminal."""
    if not text:
        return
    verdict, colon, rest = printable_text(text).partition(":")
    color = "yellow" if verdict in _UNDECIDED else _COLORS.get(status, "red")
    click.echo(click.style(verdict, fg=color, bold=True) + colon + rest, nl=False)


def echo_json(fields: dict[str, Any]) -> None:
    """Write fields as JSON."""
    click.echo(json.dumps(fields, indent=2))


def echo_report(report: Any, functions: dict[str, str | None], as_json: bool) -> int:
    """Write the report on functions of the user, and return the status to exit with."""
    status = SAME if report else DIFFERENT
    if as_json:
        echo_json({**functions, "status": status, "passed": bool(report), **report.to_dict()})
    else:
        echo_text(_with_commands(str(report)), status)
    return status


def _with_commands(text: str) -> str:
    """Write calls as commands, which can be pasted in a shell, and drop those without a command."""
    command = f"calipers {shlex.join(click.get_current_context().obj)}"
    lines, in_call = [], False
    for line in text.split("\n"):
        in_call = line.startswith(("again: ", "next: ")) or (in_call and line.startswith(" "))
        if line.startswith("again: "):
            lines.append(f"again: {command}")
        elif line.startswith("next: ") and line.endswith(".failures"):
            lines.append(f"next: {command} --json")
        elif not in_call:
            lines.append(line)
    return "\n".join(lines)
