"""Notes on a TypeError of a function that was called with arguments that it does not take."""

import re

SEVERAL_INPUTS = "several inputs go in a tuple, inputs=(a, b)"
_WORDS = re.compile(
    r"positional argument|keyword argument|(?:not enough|too many) arguments|must be of ArrayType"
)


def note_form(error: TypeError, form: str) -> None:
    """Add how the function is called where that may be what is wrong; an inner note is kept."""
    if _WORDS.search(str(error)) and not hasattr(error, "__notes__"):
        error.add_note(form)


def note_tensors(error: TypeError) -> None:
    """Add whose arrays a function of tensors was called with, where none were given."""
    if "must be Tensor" in str(error) and not hasattr(error, "__notes__"):
        error.add_note(
            "f is called with NumPy arrays, like the inputs that were passed: pass tensors"
        )
