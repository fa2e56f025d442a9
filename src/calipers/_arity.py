"""Errors of calls with arguments that a function does not take, with what to pass instead."""

import inspect
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

__tracebackhide__ = True  # pytest shows an error at the line that called calipers

SEVERAL_INPUTS = "several inputs go in a tuple, inputs=(a, b)"
# Keywords of scipy.optimize, and what to pass instead where that is a keyword.
_SCIPYS = {
    "rel_step": "step=rel_step * numpy.where(x, abs(x), 1)",
    "diff_step": "step=diff_step * numpy.where(x, abs(x), 1)",
    "jac_sparsity": "sparsity=jac_sparsity",
}
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


def nearest(name: str, names: Iterable[str]) -> str:
    """Return advice to use the most similar of some names, or "" if none is similar."""
    matches = get_close_matches(name, names, n=1)
    return f": did you mean {matches[0]}=?" if matches else ""


def unexpected_keyword(function: str, name: str, names: Iterable[str]) -> TypeError:
    """Return the error for a keyword that a function does not take, with those that it takes."""
    names = list(names)
    advice = _SCIPYS.get(name, "")
    advice = f" (pass {advice})" if advice.partition("=")[0] in names else ""
    return TypeError(
        f"{function}() got an unexpected keyword argument {name!r}{advice}: it takes "
        f"{', '.join(names)}"
    )


def takes_options(
    options: type[Any], **defaults: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Return a decorator of functions whose ``**options`` are the fields of a keyword-only dataclass.

    `inspect.signature` and `help` show each option with its type and default, and the error for an
    unexpected keyword lists all of them. `defaults` replace those of the dataclass.
    """
    fields = inspect.signature(options).parameters
    keywords = [p.replace(default=defaults.get(name, p.default)) for name, p in fields.items()]

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        positional = list(signature.parameters.values())[:-1]
        signature = signature.replace(parameters=[*positional, *keywords])

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> R:
            try:
                return function(*args, **{**defaults, **kwargs})
            except TypeError:
                for name in kwargs:
                    if name not in signature.parameters:
                        raise unexpected_keyword(function.__name__, name, fields) from None
                raise

        vars(call)["__signature__"] = signature
        return call

    return decorate


def explains_call(checker: Callable[P, R]) -> Callable[P, R]:
    """Wrap ``checker(f, inputs, ...)`` so that its errors say how several inputs are passed."""
    names = inspect.signature(checker).parameters

    @wraps(checker)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return checker(*args, **kwargs)
        except TypeError as error:
            trace = error.__traceback__
            if trace is None or trace.tb_next is not None:  # raised inside of the checker
                raise
            unknown = [name for name in kwargs if name not in names]
            if unknown:
                msg = f"{checker.__name__}() got an unexpected keyword argument {unknown[0]!r}"
                raise TypeError(f"{msg}{nearest(unknown[0], names)}") from None
            note_form(error, f"pass the inputs as one tuple: {checker.__name__}(f, (x, w, b), ...)")
            raise

    return call
