"""TODO."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Protocol

from .._core.protocols import NDArray
from .._derivatives.function import Problem, user_callable

Buffers = tuple[NDArray, ...]


Span = tuple[int, int]
Part = tuple[int, Buffers]  # from which row


class Work(Protocol):
    """What can be done for a range of rows at a time."""

    @property
    def problem(self) -> Problem:
        """The problem of which the rows are part."""
        ...

    @property
    def calls(self) -> float:
        """How often f is called for a row, about."""
        ...

    def results(self, count: int) -> Buffers:
        """Return arrays for the results of `count` rows."""
        ...

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with the results of rows from `start`."""
        ...


class Message:
    """Pickled work, which a process unpickles when it is first asked for it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._one_at_a_time = threading.Lock()
        self._work: Work | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as bytes, without what they were unpickled to."""
        return Message, (self.content,)

    def work(self) -> Work:
        """Return the work, one for all threads of a process."""
        with self._one_at_a_time:
            if self._work is None:
                self._work = pickle.loads(self.content)
            return self._work


def do(work: Work, span: Span) -> Part:
    """Do a range of work that is here."""
    start, stop = span
    outs = work.results(stop - start)
    work(start, outs)
    return start, outs


def do_message(message: Message, span: Span) -> Part:
    """Do a range of work that came before."""
    return do(message.work(), span)


def _do_picklable(work: Work, span: Span) -> Part:
    """Do a range of work for another process, which is told what f raises in any case."""
    try:
        return do(work, span)
    except Exception as error:
        if _survives(error):
            raise
        kind = type(error).__name__
        wrapped = RuntimeError(f"f raised {kind}, which cannot be sent between processes: {error}")
        for note in getattr(error, "__notes__", ()):
            wrapped.add_note(note)
        raise wrapped from error


def _survives(error: Exception) -> bool:
    """Tell whether another process can make an error of what it is sent: or else pools break."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


def do_file(path: str, span: Span) -> Part:
    """Do a range of work that is in a file."""
    return _do_picklable(_read(path), span)


@lru_cache(maxsize=1)
def _read(path: str) -> Work:
    with open(path, "rb") as stream:
        work: Work = pickle.load(stream)
    return work


_cached_messages: dict[str, Message] = {}  # the last one


def do_cached(key: str, span: Span, message: Message | None = None) -> Part | None:
    """Do a range of work that this process was sent, now or before; None if it was not."""
    if message is not None and key not in _cached_messages:
        _cached_messages.clear()
        _cached_messages[key] = message
    cached = _cached_messages.get(key)
    return None if cached is None else _do_picklable(cached.work(), span)


def pickled(work: Work, dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
    """Return work as bytes, or say which part of it cannot be sent."""
    try:
        return dumps(work)
    except Exception as error:
        thing, way = _culprit(work.problem, dumps)
        msg = (
            f"{thing} cannot be sent to other processes ({error}): {way}, or give workers= a "
            f"number of threads"
        )
        raise TypeError(msg) from error


def _culprit(problem: Problem, dumps: Callable[[Any], bytes]) -> tuple[str, str]:
    """Name what cannot be pickled, and the way out."""
    others = [*problem.before, None, *problem.after]
    named: list[tuple[str, Any]] = [(f"argument {k} of f", a) for k, a in enumerate(others)]
    named += [(f"argument {name} of f", a) for name, a in problem.kwargs.items()]
    for name, argument in named:
        if not _is_picklable(argument, dumps):
            return f"{name}, a {type(argument).__name__},", "pass one that can be pickled"
    f: Any = user_callable(problem.f)
    name = getattr(f, "__qualname__", type(f).__qualname__)
    way = "define it at the top level of a module"
    if dumps is not pickle.dumps:  # by value, and with all that it refers to
        way = "make what cannot be pickled inside it"
    return f"f ({name})", way


def _is_picklable(thing: Any, dumps: Callable[[Any], bytes]) -> bool:
    try:
        dumps(thing)
    except Exception:
        return False
    return True


def task_of(work: Work) -> Callable[[Span], Part]:
    """Return what does a range of work where it is."""
    return partial(do, work)
