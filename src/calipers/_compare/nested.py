"""Traverse two nested containers in parallel, and yield the pairs of arrays in them."""

import sys
from array import array
from collections import UserString
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from inspect import isroutine
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from .._core.arguments import attribute
from .._core.dtypes import record_names
from ..interop.frames import columns, is_column, is_frame, is_nested, to_list
from ..interop.times import as_dtype_of_times
from ..interop.zarr_h5py import H5py, Zarr, field_names, fields_of

__tracebackhide__ = True  # pytest shows an error at the line that called calipers

_H5PY, _ZARR = H5py(), Zarr()
# Sequences that are compared as a whole: text and arrays of numbers.
_LEAF_SEQUENCES = (str, bytes, bytearray, memoryview, range, array, UserString)
# Levels of nesting at most: the traversal is recursive, and Python allows about 1000 calls.
_MAX_DEPTH = 200
_NUMBERS = frozenset({bool, int, float, complex})


class Leaf(NamedTuple):
    """A pair of array-likes, or a difference of structure (`problem`) that prevents comparison."""

    path: str
    actual: Any
    expected: Any
    problem: str | None = None


def is_container(x: Any) -> bool:
    """Return True if x is a container of arrays; a list of numbers is an array."""
    if type(x) in (list, tuple):
        return not _is_numeric(x)
    if type(x) is np.ndarray:
        return x.dtype.kind == "V" and bool(record_names(x.dtype))
    if isinstance(x, Mapping):
        return True
    x = _unwrapped(x)
    if isinstance(x, list | tuple):
        return _is_namedtuple(x) or not _is_numeric(x)
    return has_fields(x) or _attribute_names(x) is not None


def has_fields(x: Any) -> bool:
    """Return True if x is a mapping, a frame or a structured array."""
    return isinstance(x, Mapping) or is_frame(x) or bool(field_names(x))


def have_named_parts(a: Any, b: Any) -> bool:
    """Return True if both are frames or structured arrays."""
    return all(is_frame(x) or bool(field_names(x)) for x in (a, b))


def are_nested(a: Any, b: Any) -> bool:
    """Return True if two objects are compared item by item; a list and an array are two arrays."""
    if _are_leaves(a, b):
        return False
    return _list_as_array(a, b) is None and _list_as_array(b, a) is None


def _are_leaves(a: Any, b: Any) -> bool:
    """Return True if neither is a container, or a frame is compared with an array."""
    nested, other_nested = is_container(a), is_container(b)
    if nested and other_nested:
        return False
    return not (nested or other_nested) or is_frame(a) or is_frame(b)


def _list_as_array(items: Any, other: Any) -> Any:
    """Return a list as an array-like if it is compared with an array as a whole, else None."""
    is_list = isinstance(items, (list, tuple)) and not _is_namedtuple(items)
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
    return _walk(actual, expected, "", ())


def require_depth(path: str, depth: int) -> None:
    """Raise ValueError if a container is nested too deep for a recursive traversal."""
    if depth > _MAX_DEPTH:
        msg = (
            f"actual is nested more than {_MAX_DEPTH} deep, at {path[:40]}...: compare a part of it"
        )
        raise ValueError(msg)


def _unwrapped(x: Any) -> Any:
    """Convert groups of files to dicts and sequences to lists; return other objects unchanged."""
    if isinstance(x, (list, tuple, dict, np.ndarray, np.generic)):
        return x
    if _ZARR.is_group(x):
        return dict(x.members())
    netcdf = sys.modules.get("netCDF4")
    if netcdf is not None and isinstance(x, netcdf.Dataset):
        return dict(x.variables) | dict(x.groups)
    if _H5PY.owns(x) and x and x.shape is None:
        return x[()]  # an h5py.Empty, compared by ==
    if isinstance(x, Sequence) and not (isinstance(x, _LEAF_SEQUENCES) or _is_array(x)):
        return list(x)
    return to_list(x) if is_column(x) and is_nested(x) else x


def _is_array(x: Any) -> bool:
    return hasattr(type(x), "__array__")


def _walk(actual: Any, expected: Any, path: str, above: tuple[int, ...]) -> Iterator[Leaf]:
    if id(actual) in above and is_container(actual):
        msg = f"actual contains itself at {path or 'its root'}; compare a part without the cycle"
        raise ValueError(msg)
    above = (*above, id(actual))
    actual, expected = _unwrapped(actual), _unwrapped(expected)
    if _are_leaves(actual, expected):
        yield Leaf(path, actual, expected, _type_problem(actual, expected))
        return
    first, second = _list_as_array(actual, expected), _list_as_array(expected, actual)
    if first is not None or second is not None:
        first, second = (x if y is None else y for x, y in ((actual, first), (expected, second)))
        yield Leaf(path, first, second)
        return
    kinds = _kind(actual), _kind(expected)
    if kinds[0] != kinds[1]:
        texts = _described(actual), _described(expected)
        yield Leaf(path, actual, expected, f"actual is {texts[0]}, expected is {texts[1]}")
        return
    require_depth(path, len(above) - 1)
    first, second = _items(actual), _items(expected)
    named = kinds[0] != _SEQUENCE
    if not named and len(first) != len(second):
        text = f"actual has {len(first)} items, expected has {len(second)}"
        yield Leaf(path, actual, expected, text)
    for key, (suffix, value) in first.items():
        if key in second:
            yield from _walk(value, second[key][1], path + suffix, above)
        elif named:
            yield Leaf(path + suffix, value, None, "only in actual")
    if named:
        for key, (suffix, value) in second.items():
            if key not in first:
                yield Leaf(path + suffix, None, value, "only in expected")


def _type_problem(actual: Any, expected: Any) -> str | None:
    """Return a problem if only one object is None or a function, else None.

    This is a missing return statement or a missing call.
    """
    if type(actual) is type(expected):
        return None
    both = (("actual", actual), ("expected", expected))
    for (name, x), (other, y) in (both, both[::-1]):
        uncalled = callable(x) and not callable(y) and (isroutine(x) or isinstance(x, np.ufunc))
        if not (x is None or uncalled) or str(attribute(y, "dtype")) == "object":
            continue  # objects may hold anything
        kind = f"{other} is of type {type(y).__name__}"
        if uncalled:
            return f"{name} is a function ({type(x).__name__}), {kind}: call it"
        return f"{name} is None, {kind}"
    return None


def _items(x: Any) -> dict[Any, tuple[str, Any]]:
    """Return the items of a container by key, each with the suffix that selects it in code."""
    if isinstance(x, Mapping) or field_names(x):
        parts = x if isinstance(x, Mapping) else fields_of(x)
        return {key: (f"[{key!r}]", value) for key, value in parts.items()}
    if is_frame(x):
        return columns(x)
    names = _attribute_names(x)
    if names is not None:
        return {name: (f".{name}", getattr(x, name)) for name in names}
    return {i: (f"[{i}]", value) for i, value in enumerate(x)}


_SEQUENCE = "a sequence"


def _kind(x: Any) -> str:
    """Return the kind of a container; two containers of one kind are compared item by item."""
    if has_fields(x):
        return "a mapping"
    if _attribute_names(x) is not None:
        return f"a {type(x).__name__}"
    return _SEQUENCE if isinstance(x, list | tuple) else f"of type {type(x).__name__}"


def _described(x: Any) -> str:
    """Return the description of an object in the message for different kinds."""
    if is_frame(x):
        return f"a {type(x).__name__}"
    return "an array of records" if field_names(x) else _kind(x)


def _attribute_names(x: Any) -> Sequence[str] | None:
    """Return the names of the attributes that ``==`` of an object compares; None if unknown."""
    if _is_namedtuple(x):
        names: Sequence[str] = x._fields
        return names
    if isinstance(x, type) or _is_array(x):  # arrays of zarr are dataclasses
        return None
    if is_dataclass(x):
        return [field.name for field in fields(x) if field.compare]
    if isinstance(x, SimpleNamespace):
        return list(vars(x))
    if (attributes := getattr(type(x), "__attrs_attrs__", None)) is not None:
        return [field.name for field in attributes if field.eq is not False]
    if (model := getattr(type(x), "__pydantic_fields__", None)) is not None:
        return [*model, *(attribute(x, "__pydantic_extra__") or ())]
    return None


def _is_namedtuple(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(x, "_fields")


def _is_numeric(x: Any, axes: int = 64) -> bool:
    # An array has at most 64 axes. The limit also ends the recursion for a list in itself.
    if isinstance(x, list | tuple):
        if axes == 0 or _is_namedtuple(x):
            return False
        if _NUMBERS.issuperset(map(type, x)):  # the common case
            return True
        return all(_is_numeric(y, axes - 1) for y in x) and _is_regular(x)
    return isinstance(x, int | float | complex | np.number | np.bool)


def _is_regular(x: Any) -> bool:
    """Return True if all items of a sequence have the same length."""
    lengths = {len(item) if isinstance(item, list | tuple) else -1 for item in x}
    return len(lengths) < 2
