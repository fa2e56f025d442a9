"""The group of all commands; errors are one line, with status 2."""

import os
import sys
from contextlib import suppress
from typing import Any, TextIO

import click

from .. import __version__
from .._files import described, one_line
from .compare import compare
from .doctor import doctor, warmup
from .functions import diagnose, gradcheck
from .output import has_no_color
from .status import INTERRUPTED, SAME, TROUBLE

_EPILOG = """\b
Exit status, as diff's: 0 the same (or right), 1 different (or not confirmed),
2 an error: a file that cannot be read, or a wrong command.

\b
Completion of options and file names in the shell:
  bash   eval "$(_CALIPERS_COMPLETE=bash_source calipers)"   in ~/.bashrc
  zsh    eval "$(_CALIPERS_COMPLETE=zsh_source calipers)"    in ~/.zshrc
  fish   _CALIPERS_COMPLETE=fish_source calipers | source    in config.fish
"""


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; click exits with 1 after an interrupt, as if files differed."""
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:  # nobody reads on, as in a pipe to head
            ctx.exit(TROUBLE)
        return status


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="calipers", message="%(prog)s %(version)s")
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Compare files of arrays, check derivatives, and find why implementations differ."""
    if has_no_color():
        ctx.color = False
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(TROUBLE)


for command in (compare, gradcheck, diagnose, doctor, warmup):
    commands.add_command(command)


def run(arguments: list[str] | None = None) -> int:
    """Run a command, and return the status to exit with."""
    if sys.stdout is None or sys.stderr is None:
        status = _trouble("standard output or standard error is closed: redirect it to /dev/null")
    else:
        try:
            # --help and --version return None.
            words = sys.argv[1:] if arguments is None else arguments
            status = (
                commands.main(words, prog_name="calipers", standalone_mode=False, obj=words) or SAME
            )
        except click.ClickException as error:
            status = _trouble(_message(error))
        except Exception as error:  # Python's status, 1, would mean that files differ
            status = _trouble(described(error))
    for stream in sys.stdout, sys.stderr:
        _drop_unwritten(stream)
    return status


def _message(error: click.ClickException) -> str:
    message = error.format_message()
    if isinstance(error, click.MissingParameter) and error.ctx is not None:
        message = f"{message} {error.ctx.get_usage()}"
    return one_line(message)


def _trouble(line: str) -> int:
    if sys.stderr is not None:
        with suppress(OSError):  # the status says it, too
            click.echo(f"calipers: {line}", err=True)
    return TROUBLE


def _drop_unwritten(stream: TextIO | None) -> None:
    """Drop what cannot be written: the exit would try again, and have a status of its own."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
