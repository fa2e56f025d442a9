"""Notes on a TypeError that says that a function was called with too many arguments or too few."""

import re

_WORDS = re.compile(r"positional argument|(?:not enough|too many) arguments|must be of ArrayType")


def note_form(error: TypeError, form: str) -> None:
    """Add how the function is called where that may be what is wrong; an inner note is kept."""
    if _WORDS.search(str(error)) and not hasattr(error, "__notes__"):
        error.add_note(form)
