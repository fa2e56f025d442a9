"""Comparisons of arrays, and listeners for those that return False, as the pytest plugin is one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# A listener is called with both arrays, and with the options for `compare` that give this verdict.
Listener = Callable[[Any, Any, dict[str, Any]], None]

_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call a listener for each mismatch inside a ``with`` block, in all threads."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def has_listeners() -> bool:
    """Return True if there are listeners."""
    return bool(_listeners)


def notify_mismatch(a: Any, b: Any, **options: Any) -> None:
    """Call all listeners with two arrays that do not agree under these options."""
    for listener in tuple(_listeners):
        listener(a, b, options)
