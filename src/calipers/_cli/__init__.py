"""The command line."""

import sys

from .status import TROUBLE


def main(arguments: list[str] | None = None) -> int:
    """Run a command, and return the status to exit with."""
    try:
        import click  # noqa: F401
    except ImportError:
        print("calipers: the command line needs click: pip install click", file=sys.stderr)
        return TROUBLE
    from .group import run

    return run(arguments)
