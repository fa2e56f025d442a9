"""The group of all commands, and how errors leave it: in one line, with status 2."""

import os
import sys

import click

from .. import __version__
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


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="calipers", message="%(prog)s %(version)s")
def commands() -> None:
    """Compare files of arrays, check derivatives, tell rounding from bugs."""


for command in (compare, gradcheck, diagnose, doctor):
    commands.add_command(command)


def run(arguments: list[str] | None = None) -> int:
    """Run a command, and return the status to exit with."""
    try:
        status = commands.main(arguments, prog_name="calipers", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        click.echo(f"calipers: {error.format_message()}", err=True)
        return TROUBLE
    except (click.Abort, KeyboardInterrupt):
        click.echo(err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # Nobody reads on, as in a pipe to head; what is left cannot be flushed at exit, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return TROUBLE
    return status if isinstance(status, int) else 0
