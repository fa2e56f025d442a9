"""The command line: the commands and what they exit with."""

import sys

# Of diff: the same, different, trouble. As the shell does, a signal is 128 and its number.
SAME, DIFFERENT, TROUBLE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: list[str] | None = None) -> int:
    """Run a command, and return the status to exit with."""
    try:
        import click  # noqa: F401
    except ImportError:
        print("calipers: the command line needs click: pip install click", file=sys.stderr)
        return TROUBLE
    from .group import run

    return run(arguments)
