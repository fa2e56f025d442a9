"""The error of files that cannot be read, and how any error becomes one line."""

import os

_LINE = 500


class FileError(Exception):
    """A file that is broken, or not safe to read; the text is one line."""


def printable(name: str) -> str:
    """Write a name so that a terminal shows it, and does nothing else."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def described(error: BaseException) -> str:
    """Write an error in one line."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return printable(f"{os.fsdecode(error.filename)}: {error.strerror}")
    plain = isinstance(error, FileError | OSError | ValueError)
    kind = "" if plain else f"{type(error).__name__}: "
    return printable(kind + (one_line(str(error)) or "no memory is left")[:_LINE])


def one_line(text: str) -> str:
    """Write a text of any lines as one."""
    return " ".join(text.split())
