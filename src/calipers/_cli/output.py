"""What the commands write: a report, its verdict in color, or JSON."""

import json
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import Any

import click

from .._files.errors import printable_lines
from .status import DIFFERENT, SAME

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
    verdict, colon, rest = printable_lines(text).partition(":")
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
