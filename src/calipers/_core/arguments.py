"""Validation of arguments, and warnings and errors about the caller's line."""

import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from numbers import Real
from operator import index
from typing import Any, TypeGuard, TypeVar

import numpy as np

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

__tracebackhide__ = True  # pytest shows an error at the line that called calipers

SEVERAL_INPUTS = "several inputs go in a tuple, inputs=(a, b)"
# Keywords of scipy.optimize, with the replacement that is advised if the function has it.
_SCIPYS = {
    "rel_step": "step=rel_step * numpy.where(x, abs(x), 1)",
    "diff_step": "step=diff_step * numpy.where(x, abs(x), 1)",
    "jac_sparsity": "sparsity=jac_sparsity",
}
_WORDS = re.compile(
    r"positional argument|keyword argument|(?:not enough|too many) arguments|must be of ArrayType"
)


def note_form(error: TypeError, form: str) -> None:
    """Add a note on the call to an error about arguments, unless it has a note."""
    if _WORDS.search(str(error)) and not hasattr(error, "__notes__"):
        error.add_note(form)


def note_tensors(error: TypeError) -> None:
    """Add a note to the error of a torch function that was called with NumPy arrays."""
    if "must be Tensor" in str(error) and not hasattr(error, "__notes__"):
        error.add_note(
            "f is called with NumPy arrays, like the inputs that were passed: pass tensors"
        )


def nearest(name: str, names: Iterable[str]) -> str:
    """Return advice to use the most similar of some names, or "" if none is similar."""
    matches = get_close_matches(name, names, n=1)
    return f": did you mean {matches[0]}=?" if matches else ""


def unexpected_keyword(
    function: str, name: str, names: Iterable[str], listed: bool = True
) -> TypeError:
    """
    Return the TypeError for an unexpected keyword.

    It has the list of valid keywords, or the most similar one if they are not to be `listed`.
    """
    names = list(names)
    if not listed:
        msg = f"{function}() got an unexpected keyword argument {name!r}"
        return TypeError(f"{msg}{nearest(name, names)}")
    advice = _SCIPYS.get(name, "")
    advice = f" (pass {advice})" if advice.partition("=")[0] in names else ""
    return TypeError(
        f"{function}() got an unexpected keyword argument {name!r}{advice}: it takes "
        f"{', '.join(names)}"
    )


def takes_options(options: type[Any], **defaults: Any) -> Callable[[F], F]:
    """
    Return a decorator of functions whose ``**options`` are the fields of a keyword-only dataclass.

    `inspect.signature` and `help` show each option with its type and default, in the order of the
    docstring. `defaults` replace those of the dataclass. The function makes the dataclass by
    `options_from`.
    """
    fields = inspect.signature(options).parameters
    shown = [p.replace(default=defaults.get(name, p.default)) for name, p in fields.items()]

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        *explicit, _ = signature.parameters.values()
        order = _documented(function.__doc__ or "")
        parameters = sorted(
            (*explicit, *shown), key=lambda p: (p.kind, order.get(p.name, len(order)))
        )
        vars(function)["__signature__"] = signature.replace(parameters=parameters)
        return function

    return decorate


def _documented(docstring: str) -> dict[str, int]:
    """Return the positions of the parameters in a docstring of numpydoc."""
    names = ", ".join(re.findall(r"^ +(\w+(?:, \w+)*) : ", docstring, re.M)).split(", ")
    return {name: names.index(name) for name in names}


def options_from(
    options: Callable[..., R], function: Callable[..., Any], keywords: Mapping[str, Any]
) -> R:
    """Return ``options(**keywords)``; raise for a keyword that the function does not take."""
    try:
        return options(**keywords)
    except TypeError:
        parameters = inspect.signature(function).parameters
        names = [name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
        for name in keywords:
            if name not in names:
                raise unexpected_keyword(function.__name__, name, names) from None
        raise


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line that called calipers."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "calipers":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def brief(x: Any) -> str:
    """Return the repr of an object in one line of at most 60 characters."""
    text = " ".join(repr(x).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def attribute(x: Any, name: str) -> Any:
    """Return an attribute of any object; None if there is none, or if reading it raises."""
    try:
        return getattr(x, name, None)
    except Exception:  # netCDF4 raises KeyError, torch RuntimeError
        return None


def require_callable(**functions: Any) -> None:
    """Raise TypeError if a function is not callable; the keywords are names for the error."""
    for name, f in functions.items():
        if not callable(f):
            msg = f"{name} must be callable, got {type(f).__name__}: {brief(f)}"
            raise TypeError(msg)


def is_integer(x: Any) -> TypeGuard[int]:
    """Return True if x is a Python or NumPy integer."""
    return isinstance(x, (int, np.integer))


def as_float(x: Any) -> float:
    """Convert a number to float; infinity if it overflows."""
    try:
        return float(x)
    except OverflowError:
        return float("inf")


def as_integer(x: Any, name: str) -> int:
    """Convert x to a Python integer; raise TypeError if it is not an integer."""
    try:
        return index(x)
    except TypeError:
        msg = f"{name} must be an integer, got {type(x).__name__}: {brief(x)}"
        raise TypeError(msg) from None


def is_real(x: Any) -> bool:
    """Return True if x is a real scalar, of Python or NumPy."""
    return isinstance(x, Real)


def require_bytes(memory_limit: Any) -> None:
    """Raise if a memory limit is not a positive number."""
    is_number = is_real(memory_limit) and not isinstance(memory_limit, (bool, np.bool))
    if not (is_number and memory_limit > 0):
        msg = f"memory_limit must be a positive number of bytes, got {memory_limit!r:.60}"
        raise (ValueError if is_number else TypeError)(msg)


def require_flags(**flags: Any) -> None:
    """Raise TypeError if a flag is not a bool; other objects may be misplaced arguments."""
    for name, flag in flags.items():
        if not isinstance(flag, (bool, np.bool)):
            msg = f"{name} must be True or False, got {type(flag).__name__}: {brief(flag)}"
            raise TypeError(msg)


def is_weak(x: Any) -> bool:
    """Return True if x is a Python number, whose dtype is weak (NEP 50), and not a NumPy scalar."""
    return isinstance(x, (int, float, complex)) and not isinstance(x, np.generic)


# The reader of a file for each extension.
READERS = {
    ".npy": "npy",
    ".npz": "npz",
    ".safetensors": "safetensors",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".nc": "hdf5",
    ".pt": "torch",
    ".pth": "torch",
    ".csv": "tables",
    ".parquet": "tables",
    ".zarr": "zarr",
}
# A folder with one of these files is a zarr array or group.
ZARR_MARKS = (".zgroup", ".zarray", "zarr.json")


def reader_of(path: str) -> str | None:
    """Return the name of the reader of a path; None if there is none."""
    if os.path.isdir(path):
        return "zarr" if is_zarr_store(path) or path.endswith(".zarr") else None
    return READERS.get(os.path.splitext(path)[1].lower())


def is_zarr_store(path: str) -> bool:
    """Return True if a folder is a zarr array or group."""
    return any(os.path.isfile(os.path.join(path, mark)) for mark in ZARR_MARKS)
