"""Who wants to know of calls that answer no: pytest's plugin, which then tells why."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# A listener is told the arrays, and the options under which `compare` finds the same.
Listener = Callable[[Any, Any, dict[str, Any]], None]

_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell a listener of every refusal meanwhile, of all threads."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def has_listeners() -> bool:
    """Tell whether somebody wants to know."""
    return bool(_listeners)


def notify_mismatch(a: Any, b: Any, **options: Any) -> None:
    """Tell those who listen that two arrays do not agree under these options."""
    for listener in tuple(_listeners):
        listener(a, b, options)
