"""The group of all commands, and how errors leave it: in one line, with status 2."""

import os
import sys
from typing import Any

import click

from .. import __version__
from .._files.errors import one_line, printable
from . import INTERRUPTED, TROUBLE
from .compare import compare
from .diagnose import diagnose
from .doctor import doctor
from .gradcheck import gradcheck

_EPILOG = """\b
Exit status, as diff's: 0 the same (or right), 1 different (or not confirmed),
2 trouble: files that cannot be read, or a command that makes no sense.

\b
Completion of options and file names in the shell:
  bash   eval "$(_CALIPERS_COMPLETE=bash_source calipers)"   in ~/.bashrc
  zsh    eval "$(_CALIPERS_COMPLETE=zsh_source calipers)"    in ~/.zshrc
  fish   _CALIPERS_COMPLETE=fish_source calipers | source    in config.fish
"""


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; click itself would exit with 1, which says that files differ."""
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # Nobody reads on, as in a pipe to head: what is left cannot be flushed at exit, either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(TROUBLE)
        return status


@click.group(
    cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="calipers", message="%(prog)s %(version)s")
def commands() -> None:
    """Compare files of arrays, check derivatives, tell rounding from bugs."""


for command in (compare, gradcheck, diagnose, doctor):
    commands.add_command(command)


def run(arguments: list[str] | None = None) -> int:
    """Run a command, and return the status to exit with."""
    try:
        status = commands.main(arguments, prog_name="calipers", standalone_mode=False)
    except click.ClickException as error:
        click.echo(f"calipers: {printable(one_line(error.format_message()))}", err=True)
        return TROUBLE
    # None is of what has only printed, as --help.
    return status or 0
