"""The format in which two implementations work, and what of their inputs is in it."""

from collections.abc import Sequence
from typing import Any

from ..tolerances import name_of
from .answers import Answer
from .inputs import WIDER, is_movable
from .units import ROUNDOFF

_REALS = {"complex64": "float32", "complex128": "float64"}


def format_of(inputs: Sequence[Any], dtype: Any, names: Sequence[str] = ()) -> str:
    """Return the working format: what the caller says, or the widest of the inputs."""
    if dtype is not None:
        name = name_of(dtype, ROUNDOFF)
        held = [x.dtype.name for x in inputs if is_movable(x) and x.dtype.name in WIDER]
        if name not in ROUNDOFF:
            msg = f"dtype must be one of {', '.join(ROUNDOFF)}, got {dtype!r:.60}"
            raise ValueError(msg)
        if held and all(ROUNDOFF[_REALS.get(own, own)] > ROUNDOFF[name] for own in held):
            msg = f"dtype is {name}, but the inputs are {held[0]}: "
            msg += "pass arrays that can hold its numbers"
            raise ValueError(msg)
        return name
    for k, x in enumerate(inputs):
        if is_movable(x) and x.dtype.name not in WIDER:
            name = names[k] if names else f"input {k}"
            msg = f"{name} has dtype {x.dtype}, and there is no higher precision to compare with: "
            msg += "pass float64 or lower precision"
            raise TypeError(msg)
    # A number by itself is a Python float, as often as not.
    arrays = [x for x in inputs if is_movable(x) and x.ndim] or list(filter(is_movable, inputs))
    kinds = [x.dtype.name for x in arrays]
    reals = [_REALS.get(name, name) for name in kinds]
    known = [name for name in reals if name in ROUNDOFF and name in WIDER]
    return min(known, key=lambda name: ROUNDOFF[name]) if known else "float64"


def format_of_results(*answers: Answer) -> str:
    """Return the widest format of results, where no input has one."""
    found = [
        (x.ndim > 0, _REALS.get(name, name).removesuffix("fn"))
        for answer in answers
        for x, name in zip(answer.arrays, answer.dtypes, strict=True)
    ]
    known = [(is_array, name) for is_array, name in found if name in ROUNDOFF]
    # A number by itself is a Python float, as often as not.
    chosen = [name for is_array, name in known if is_array] or [name for _, name in known]
    return min(chosen, key=lambda name: ROUNDOFF[name]) if chosen else "float64"


def is_wide(answer: Answer, form: str) -> bool:
    """Tell whether a side has answered in the wider format, as far as it has numbers of any."""
    wider = "gG" if form == "float64" else "dDgG"
    return all(x.dtype.kind not in "fc" or x.dtype.char in wider for x in answer.arrays)
