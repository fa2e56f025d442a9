"""Tensors that a function holds on to between its calls, as modules do their running means."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

_MOST = 10_000  # objects that are looked into
# Whose functions keep nothing that they are given in variables of their modules.
_STATELESS = sys.stdlib_module_names | {"calipers", "numpy", "torch"}


class Held:
    """Where a function may hold tensors: attributes, lists, dicts, and variables outside of it."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self._places: list[tuple[Any, Iterable[Any] | None]] = []  # and which keys of each
        seen: dict[int, Any] = {}
        todo: list[Any] = [f]
        while todo and len(seen) < _MOST:
            x = todo.pop()
            if id(x) in seen or isinstance(x, (type, ModuleType, sys.modules["torch"].Tensor)):
                continue
            seen[id(x)] = x
            if isinstance(x, (dict, list)) and len(x) > _MOST:
                continue
            if isinstance(x, (dict, list, CellType)):
                self._places.append((x, None))
                todo += _items(x, None).values()
            elif isinstance(x, (tuple, set, frozenset)):
                todo += x
            elif isinstance(x, FunctionType):
                stateful = (x.__module__ or "").partition(".")[0] not in _STATELESS
                names = x.__code__.co_names if stateful else ()
                self._places.append((x.__globals__, names))
                todo += _items(x.__globals__, names).values()
                todo += (vars(x), x.__closure__, x.__defaults__, x.__kwdefaults__)
            elif isinstance(x, MethodType):
                todo += (x.__func__, x.__self__)
            elif isinstance(x, partial):
                todo += (x.func, x.args, x.keywords)
            elif hasattr(x, "__dict__"):
                todo.append(vars(x))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Put back, afterwards, tensors that others took the place of: they outlive no vmap."""
        before = [dict(_items(*holder)) for holder in self._places]
        try:
            yield
        finally:
            tensor = sys.modules["torch"].Tensor
            for (holder, keys), old in zip(self._places, before, strict=True):
                for key, value in reversed(list(_items(holder, keys).items())):
                    if isinstance(value, tensor) and value is not old.get(key):
                        _put(holder, key, old)


def _items(holder: Any, keys: Iterable[Any] | None) -> dict[Any, Any]:
    """Return what a place holds, by key: by all, or by some of those of a dict."""
    if keys is not None:
        return {key: holder[key] for key in keys if key in holder}
    if isinstance(holder, CellType):
        try:
            return {"cell_contents": holder.cell_contents}
        except ValueError:  # it is empty
            return {}
    return holder if isinstance(holder, dict) else dict(enumerate(holder))


def _put(holder: Any, key: Any, old: dict[Any, Any]) -> None:
    """Let a place hold what it did, which may be nothing."""
    if isinstance(holder, CellType):
        holder.cell_contents = old.get(key)
    elif key in old:
        holder[key] = old[key]
    else:
        del holder[key]
