"""Walking two nested containers side by side, down to what is compared as arrays."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from inspect import isroutine
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from .interop.times import as_dtype_of_times
from .interop.zarr import Zarr

__tracebackhide__ = True  # pytest shows an error at the line that called calipers

_ZARR = Zarr()
# No array has more, so that a list which is nested deeper, or holds itself, is none.
_AXES = 64
_DEEP = 200
_NUMBERS = frozenset({bool, int, float, complex})


class Leaf(NamedTuple):
    """Two array-likes, or a difference in structure that keeps what is below from comparison."""

    path: str
    actual: Any
    expected: Any
    problem: str | None = None


def is_container(x: Any) -> bool:
    """Tell whether x is walked into: a nested list of plain numbers is an array instead."""
    if isinstance(x, list | tuple):
        return _is_namedtuple(x) or not _is_numeric(x)
    if isinstance(x, Mapping) or _ZARR.is_group(x):
        return True
    # An array may be a dataclass, too, as zarr's are.
    return is_dataclass(x) and not isinstance(x, type) and not hasattr(x, "__array__")


def are_nested(a: Any, b: Any) -> bool:
    """Return True if two objects are compared part by part: a list and an array are two arrays."""
    if not (is_container(a) or is_container(b)):
        return False
    return _list_as_array(a, b) is None and _list_as_array(b, a) is None


def _list_as_array(items: Any, other: Any) -> Any:
    """Return what a list, as of text, dates or None, is compared as with an array; else None."""
    is_list = isinstance(items, list | tuple) and not _is_namedtuple(items)
    if not is_list or is_container(other) or not hasattr(type(other), "__array__"):
        return None
    try:
        array = np.asarray(items)
        if array.dtype.kind not in "OSU":
            return items
        objects = np.asarray(items, object)
    except Exception:  # the items are ragged, or not in host memory
        return None
    if any(is_container(x) or np.shape(x) for x in objects.flat):
        return None
    if array.dtype.kind in "SU" and not all(isinstance(x, str | bytes) for x in objects.flat):
        return objects  # NumPy would make text of numbers
    kind = getattr(getattr(other, "dtype", None), "kind", None)
    if array.dtype.kind == "O" and kind in ("m", "M"):
        return list(as_dtype_of_times(objects, kind))
    return items


def leaves(actual: Any, expected: Any) -> Iterator[Leaf]:
    """Yield all leaves, and all differences in structure."""
    for name, x in (("actual", actual), ("expected", expected)):
        if isinstance(x, PathLike) or (isinstance(x, str) and _is_file_name(x)):
            msg = f"{name} names a file: load that, or ask `calipers compare`, got {x!r:.60}"
            raise TypeError(msg)
    yield from _walk(actual, expected, "", ())


def _is_file_name(x: str) -> bool:
    from ._files.opening import reader_of

    return reader_of(x) is not None


def require_depth(path: str, depth: int) -> None:
    """Refuse what is nested deeper than Python calls functions."""
    if depth > _DEEP:
        msg = f"actual is nested more than {_DEEP} deep, at {path[:40]}...: compare a part of it"
        raise ValueError(msg)


def _unwrapped(x: Any) -> Any:
    """Return a group of zarr as a mapping, and anything else as it is."""
    return dict(x.members()) if _ZARR.is_group(x) else x


def _walk(actual: Any, expected: Any, path: str, above: tuple[int, ...]) -> Iterator[Leaf]:
    actual, expected = _unwrapped(actual), _unwrapped(expected)
    if not (is_container(actual) or is_container(expected)):
        yield Leaf(path, actual, expected, _unlike(actual, expected))
        return
    own, reference = _list_as_array(actual, expected), _list_as_array(expected, actual)
    if own is not None or reference is not None:
        own, reference = (x if y is None else y for x, y in ((actual, own), (expected, reference)))
        yield Leaf(path, own, reference)
        return
    kinds = _kind(actual), _kind(expected)
    if kinds[0] != kinds[1]:
        yield Leaf(path, actual, expected, f"actual is {kinds[0]}, expected is {kinds[1]}")
        return
    if id(actual) in above:
        msg = f"actual contains itself at {path or 'its root'}; compare a part without the cycle"
        raise ValueError(msg)
    require_depth(path, len(above))
    own, reference = _items(actual), _items(expected)
    if not isinstance(actual, Mapping) and len(own) != len(reference):
        text = f"actual has {len(own)} items, expected has {len(reference)}"
        yield Leaf(path, actual, expected, text)
    for key, (place, value) in own.items():
        if key in reference:
            yield from _walk(value, reference[key][1], path + place, (*above, id(actual)))
        elif isinstance(actual, Mapping):
            yield Leaf(path + place, value, None, "only in actual")
    if isinstance(actual, Mapping):
        for key, (place, value) in reference.items():
            if key not in own:
                yield Leaf(path + place, None, value, "only in expected")


def _unlike(actual: Any, expected: Any) -> str | None:
    """Tell of the one side that is None or a function, as where a return or a call is left out."""
    if type(actual) is type(expected):
        return None
    sides = (("actual", actual), ("expected", expected))
    for (name, x), (other, y) in (sides, sides[::-1]):
        uncalled = callable(x) and not callable(y) and (isroutine(x) or isinstance(x, np.ufunc))
        if not (x is None or uncalled) or str(getattr(y, "dtype", "")) == "object":
            continue  # objects may hold anything
        kind = f"{other} is of type {type(y).__name__}"
        if uncalled:
            return f"{name} is a function ({type(x).__name__}), {kind}: give what it returns"
        return f"{name} is None, {kind}"
    return None


def _items(x: Any) -> dict[Any, tuple[str, Any]]:
    """Return the parts of a container by their keys, with the expressions that reach them."""
    if isinstance(x, Mapping):
        return {key: (f"[{key!r}]", value) for key, value in x.items()}
    if is_dataclass(x):
        return {field.name: (f".{field.name}", getattr(x, field.name)) for field in fields(x)}
    if _is_namedtuple(x):
        return {name: (f".{name}", getattr(x, name)) for name in x._fields}
    return {i: (f"[{i}]", value) for i, value in enumerate(x)}


def _kind(x: Any) -> str:
    """Name what two containers have to have in common."""
    if isinstance(x, Mapping):
        return "a mapping"
    if _is_namedtuple(x) or is_dataclass(x):
        return f"a {type(x).__name__}"
    return "a sequence" if isinstance(x, list | tuple) else f"of type {type(x).__name__}"


def _is_namedtuple(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(x, "_fields")


def _is_numeric(x: Any, axes: int = _AXES) -> bool:
    if isinstance(x, list | tuple):
        if axes == 0 or _is_namedtuple(x):
            return False
        if _NUMBERS.issuperset(map(type, x)):  # as it mostly is, and soon known
            return True
        return all(_is_numeric(y, axes - 1) for y in x) and _is_regular(x)
    return isinstance(x, int | float | complex | np.number | np.bool)


def _is_regular(x: Any) -> bool:
    """Tell whether all items of a sequence have the same shape."""
    lengths = {len(item) if isinstance(item, list | tuple) else -1 for item in x}
    return len(lengths) < 2
