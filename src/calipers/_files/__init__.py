"""Readers of files, one format a module; the error of files that cannot be read."""

import os

_LINE = 500  # characters of an error's text that are shown


class FileError(Exception):
    """A file that is broken, or not safe to read; the text is one line."""


def printable(name: str) -> str:
    """Write a name so that a terminal shows it, and does nothing else."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def printable_text(text: str) -> str:
    """Write a text of any lines so that a terminal shows it, and does nothing else."""
    return "".join(f"{printable(line)}\n" for line in text.split("\n"))


def described(error: BaseException) -> str:
    """Write an error in one line."""
    kind = type(error).__name__
    text = str(error)[:_LINE]
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    elif isinstance(error, MemoryError):
        text = f"{kind}: {text or 'no memory is left'}"
    elif not text.strip():
        text = kind
    elif not isinstance(error, FileError | OSError | ValueError):
        text = f"{kind}: {text}"
    return one_line(text)


def one_line(text: str) -> str:
    """Write a text of any lines as one that a terminal only shows."""
    return printable(" ".join(text.split()))
