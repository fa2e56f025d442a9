"""Arguments of a compiled function for one more thread, since it may write into them."""

from itertools import combinations
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.core.errors import NumbaError
from numba.core.types.containers import BaseTuple

from .._jit import require_no_compilation

_TRIES = 1000  # to prove that two arrays do not overlap


def size_of(values: tuple[Any, ...]) -> float:
    """Return the bytes that a copy of arguments takes; infinity if there can be none."""
    arrays: dict[int, Any] = {}
    if not _collect(values, arrays):
        return np.inf
    if any(_overlap(a, b) for a, b in combinations(arrays.values(), 2)):
        return np.inf
    return float(sum(array.nbytes for array in arrays.values()))


def _collect(value: Any, arrays: dict[int, Any]) -> bool:
    """Collect arrays that may be written into; tell whether there is nothing else like them."""
    if isinstance(value, tuple):
        return all(_collect(each, arrays) for each in value)
    if type(value) is np.ndarray and value.flags.aligned:
        if value.flags.writeable:
            arrays[id(value)] = value
        return True
    return not numba.typeof(value).mutable


def _overlap(one: Any, other: Any) -> bool:
    try:
        return bool(np.shares_memory(one, other, max_work=_TRIES))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def copied(value: Any, known: dict[int, Any]) -> Any:
    """Copy arrays that may be written into, in tuples too; what is one stays one."""
    if isinstance(value, tuple):
        items = [copied(each, known) for each in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if not (isinstance(value, np.ndarray) and value.flags.writeable):
        return value
    if id(value) not in known:
        known[id(value)] = _like(value)
    return known[id(value)]


def _like(array: Any) -> Any:
    """Copy an array to memory that compiled code takes for the same kind of array."""
    if array.flags.forc:
        return array.copy(order="K")
    strided = np.empty((*array.shape, 2), array.dtype)[..., 0]
    strided[...] = array
    return strided


def only_reads(f: Any, kinds: tuple[types.Type, ...], written: set[int]) -> bool:
    """Tell whether f can be compiled for other arguments, all but `written` read-only."""
    untouched = tuple(k if i in written else _untouched(k) for i, k in enumerate(kinds))
    if any(_is_mutable(k) for i, k in enumerate(untouched) if i not in written):
        return False
    require_no_compilation()
    try:
        f.compile(untouched)
    except (NumbaError, RuntimeError):  # or f is for types that it was told
        return False
    return True


def _untouched(kind: types.Type) -> types.Type:
    if isinstance(kind, BaseTuple):
        made: types.Type = BaseTuple.from_types(
            tuple(map(_untouched, kind.types)), getattr(kind, "instance_class", None)
        )
        return made
    return kind.copy(readonly=True) if isinstance(kind, types.Array) else kind


def _is_mutable(kind: types.Type) -> bool:
    if isinstance(kind, BaseTuple):
        return any(map(_is_mutable, kind.types))
    return bool(kind.mutable)
