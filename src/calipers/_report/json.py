"""Reports as built-in types, which JSON can hold."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

from .numbers import text_of


def jsonable(x: Any) -> Any:
    """Turn a finding into what JSON can hold."""
    if is_dataclass(x) and not isinstance(x, type):
        return jsonable_fields(x)
    if isinstance(x, Mapping):
        return {str(key): jsonable(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [jsonable(value) for value in x]
    if x is None or isinstance(x, bool | str) or (isinstance(x, float) and math.isfinite(x)):
        return x
    if isinstance(x, Fraction):
        return float(x)
    text = text_of(x)
    # An integer that Python does not write, JSON cannot hold.
    return x if isinstance(x, int) and not text.startswith("<") else text


def jsonable_fields(x: Any) -> dict[str, Any]:
    """Turn the fields of a dataclass into what JSON can hold."""
    return {f.name: jsonable(getattr(x, f.name)) for f in fields(x)}
