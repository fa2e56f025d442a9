"""Walking what torch.testing.assert_close compares: each pair has to be of related types."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ._arguments import attribute
from ._libraries import library_of
from ._nested import Leaf, have_named_parts, leaves, require_depth
from .interop.frames import is_frame
from .interop.torch import Torch
from .interop.torch_tensors import difference, members, require_known_layout

_TORCH = Torch()
# Attributes of tensors, in the order in which they are compared.
_COMPARED = ("layout", "stride", "device", "dtype")


class Checks(NamedTuple):
    """What has to be equal beside values and shapes."""

    allow_subclasses: bool
    device: bool
    dtype: bool
    layout: bool
    stride: bool


def related_leaves(
    actual: Any, expected: Any, checks: Checks, path: str = "", depth: int = 0
) -> Iterator[Leaf]:
    """
    Yield what is to be compared as arrays, and all differences in what they are.

    Pairs that need no look at their elements are left out. A TypeError tells of types that are not
    compared with each other.
    """
    require_depth(path, depth)
    # The items of a string are strings.
    strings = isinstance(actual, str) or isinstance(expected, str)
    if _are(actual, expected, Sequence) and not strings:
        if len(actual) != len(expected):
            text = f"actual has {len(actual)} items, expected has {len(expected)}"
            yield Leaf(path, actual, expected, text)
        for i, (a, b) in enumerate(zip(actual, expected, strict=False)):
            part = related_leaves(a, b, checks, f"{path}[{i}]", depth + 1)
            yield from part if len(actual) == len(expected) else _of_kin(part)
    elif _are(actual, expected, Mapping):
        same_keys = actual.keys() == expected.keys()
        for key, value in actual.items():
            place = f"{path}[{key!r}]"
            if key in expected:
                part = related_leaves(value, expected[key], checks, place, depth + 1)
                yield from part if same_keys else _of_kin(part)
            else:
                yield Leaf(place, value, None, "only in actual")
        for key, value in expected.items():
            if key not in actual:
                yield Leaf(f"{path}[{key!r}]", None, value, "only in expected")
    elif actual is None or expected is None:
        if actual is not expected:
            yield Leaf(path, actual, expected, f"{_kind(actual)} is not {_kind(expected)}")
    elif _are(actual, expected, bool | np.bool):
        if bool(actual) != bool(expected):
            yield Leaf(path, actual, expected, f"{actual} is not {expected}")
    elif _are(actual, expected, int | float | complex | np.number):
        yield _numbers(path, _python_number(actual), _python_number(expected), checks)
    else:
        _require_related(actual, expected, checks)
        if have_named_parts(actual, expected):
            yield from (leaf._replace(path=path + leaf.path) for leaf in leaves(actual, expected))
            return
        yield from _arrays(path, actual, expected, checks)


def _of_kin(part: Iterator[Leaf]) -> Iterator[Leaf]:
    """Yield leaves up to types that are not related: their containers differ, and that is said."""
    with suppress(TypeError):
        yield from part


def _are(actual: Any, expected: Any, kind: Any) -> bool:
    return isinstance(actual, kind) and isinstance(expected, kind)


def _kind(x: Any) -> str:
    return "None" if x is None else f"a {type(x).__name__}"


def _python_number(x: Any) -> Any:
    return x.item() if isinstance(x, np.number) else x


def _numbers(path: str, actual: Any, expected: Any, checks: Checks) -> Leaf:
    kinds = type(actual).__name__, type(expected).__name__
    if checks.dtype and kinds[0] != kinds[1]:
        text = f"types differ: {kinds[0]} and {kinds[1]}; check_dtype=False allows it"
        return Leaf(path, actual, expected, text)
    return Leaf(path, actual, expected)


def _require_related(actual: Any, expected: Any, checks: Checks) -> None:
    kinds = type(actual), type(expected)
    related = issubclass(*kinds) or issubclass(*reversed(kinds))
    if kinds[0] is not kinds[1] and not (related and checks.allow_subclasses):
        msg = f"actual and expected must be of related types, got {kinds[0]} and {kinds[1]}"
        raise TypeError(msg)
    if library_of(actual) is None and attribute(actual, "dtype") is None and not is_frame(actual):
        msg = f"actual and expected must be arrays or numbers, got {kinds[0]}"
        raise TypeError(msg)


def _arrays(path: str, actual: Any, expected: Any, checks: Checks) -> Iterator[Leaf]:
    problem = None
    tensors = _TORCH.owns(actual)
    if tensors:
        require_known_layout(actual, "actual")
        require_known_layout(expected, "expected")
    if actual.shape != expected.shape:
        problem = f"shapes differ: {tuple(actual.shape)} and {tuple(expected.shape)}"
    elif tensors:
        problem = difference(actual, expected, [n for n in _COMPARED if getattr(checks, n)])
    elif checks.stride and actual.strides != expected.strides:
        problem = f"strides differ: {actual.strides} and {expected.strides} bytes"
    if problem is not None:
        yield Leaf(path, actual, expected, problem)
    elif tensors:
        for name, *both, text in members(actual, expected):
            # What is NumPy's needs to be recognised no more.
            a, b = (_TORCH.as_numpy(x) if x.is_cpu and text is None else x for x in both)
            yield Leaf(f"{path}{name}", a, b, text)
    else:
        yield Leaf(path, actual, expected)
