"""Arguments that are no arrays: numbers, and what is called."""

from numbers import Real
from operator import index
from typing import Any, TypeGuard

import numpy as np


def brief(x: Any) -> str:
    """Write what was given in place of something else: in one line, and cut if that is long."""
    text = " ".join(repr(x).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def attribute(x: Any, name: str) -> Any:
    """Return an attribute of any object; None if there is none, or if reading it raises."""
    try:
        return getattr(x, name, None)
    except Exception:  # netCDF4 raises KeyError, torch RuntimeError
        return None


def require_callable(**functions: Any) -> None:
    """Refuse what cannot be called; the names are for the error."""
    for name, f in functions.items():
        if not callable(f):
            msg = f"{name} must be callable, got {type(f).__name__}: {brief(f)}"
            raise TypeError(msg)


def is_integer(x: Any) -> TypeGuard[int]:
    """Tell whether x is an integer, one of NumPy's maybe."""
    return isinstance(x, (int, np.integer))


def as_float(x: Any) -> float:
    """Return a number as a float, infinite if none holds it."""
    try:
        return float(x)
    except OverflowError:
        return float("inf")


def as_integer(x: Any, name: str) -> int:
    """Return x as Python's integer, or say that it is none."""
    try:
        return index(x)
    except TypeError:
        msg = f"{name} must be an integer, got {type(x).__name__}: {brief(x)}"
        raise TypeError(msg) from None


def is_real(x: Any) -> bool:
    """Tell whether x is a real number by itself."""
    return isinstance(x, Real)


def require_bytes(memory_limit: Any) -> None:
    """Refuse a limit of memory that is no positive number."""
    known = is_real(memory_limit) and not isinstance(memory_limit, (bool, np.bool))
    if not (known and memory_limit > 0):
        msg = f"memory_limit must be a positive number of bytes, got {memory_limit!r:.60}"
        raise (ValueError if known else TypeError)(msg)


def require_flags(**flags: Any) -> None:
    """Refuse what is neither True nor False, which any other object would be taken for."""
    for name, flag in flags.items():
        if not isinstance(flag, (bool, np.bool)):
            msg = f"{name} must be True or False, got {type(flag).__name__}: {brief(flag)}"
            raise TypeError(msg)


def is_weak(x: Any) -> bool:
    """Tell whether x is a Python number: numpy.float64 is a float, yet of a definite dtype."""
    return isinstance(x, (int, float, complex)) and not isinstance(x, np.generic)
