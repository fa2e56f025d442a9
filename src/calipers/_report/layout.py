"""The layout of text reports: labelled fields, code to run next, and indices."""

import textwrap
from collections.abc import Iterable, Mapping

WIDTH = 80  # columns of a report
CODE_WIDTH = 88  # columns of a line of code; a comment that does not fit moves to the next line
INDENT = " " * 14  # before the text of a field, which the label precedes in its first line
COMMENT = "  # "  # between code and its comment


def labelled(label: str, text: object = "") -> str:
    """Return a line with a label in front of its text."""
    return f"  {label:<12}{text}"


def field(
    label: str, text: str, most: int | None = 2, width: int = WIDTH, **options: bool
) -> list[str]:
    """Return a label and its text, wrapped after the label into at most `most` lines."""
    return wrapped(text, labelled(label), INDENT, most, width, **options)


def wrapped(
    text: str,
    first: str = "",
    rest: str = "",
    most: int | None = None,
    width: int = WIDTH,
    **options: bool,
) -> list[str]:
    """Wrap a text with indents of its first and other lines; beyond `most` lines it is cut."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        max_lines=most,
        placeholder=" ...",
        **options,
    )


def code_lines(label: str, code: str) -> list[str]:
    """Return code after its label, wrapped so that all lines together can be pasted."""
    code, mark, comment = code.partition(COMMENT)
    text = f"{label}: {code}"
    lines = wrapped(text, rest="  ", width=CODE_WIDTH, break_long_words=False)
    if mark and len(lines[-1] + mark + comment) <= CODE_WIDTH:
        lines[-1] += mark + comment
    elif mark:
        lines.append(mark + comment)
    return lines


def index_text(index: Iterable[object]) -> str:
    """Return an index in NumPy's notation, such as ``[2, 1]``."""
    return f"[{', '.join(map(str, index))}]"


def calls_text(calls: Mapping[str, int]) -> str:
    """Return the number of calls of each function, such as ``f 12, vjp 3``."""
    return ", ".join(f"{name} {count}" for name, count in calls.items())
