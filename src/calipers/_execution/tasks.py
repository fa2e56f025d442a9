"""Work that is sent to threads and processes, and the functions that run it there."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from types import MethodType
from typing import Any, Protocol

import numpy as np

from .._core.protocols import NDArray
from .._core.threads import is_picklable, survives_pickling

Buffers = tuple[NDArray, ...]


Span = tuple[int, int]
Part = tuple[int, Buffers]  # index of the first row, and the results


class NativeCode(Protocol):
    """Compiled code that calls f."""

    @property
    def parallel(self) -> bool:
        """Whether f itself uses threads."""
        ...

    @property
    def threads(self) -> int:
        """How many threads may call f at once."""
        ...

    def begin(self) -> None:
        """Prepare for a run."""
        ...


class Function(Protocol):
    """A function f at a point x, with its arguments and options, as rows are computed from it."""

    before: tuple[Any, ...]
    x: NDArray
    after: tuple[Any, ...]
    kwargs: dict[str, Any]
    mode: str
    scalar: bool
    out_like: Any
    rowwise: bool
    batched: bool
    base: NDArray
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    seconds: float

    @property
    def f(self) -> Callable[..., Any]:
        """The function, called with `before`, an argument like x, `after` and `kwargs`."""
        ...

    @property
    def native(self) -> NativeCode | None:
        """The compiled form of f, if there is one."""
        ...

    @property
    def parallel(self) -> bool:
        """Whether f itself uses threads, so that calls have to be serial."""
        ...

    def call(self, x: NDArray) -> NDArray:
        """Return f(x)."""
        ...


class Work(Protocol):
    """A computation of rows in ranges that are independent of each other."""

    @property
    def problem(self) -> Function:
        """The function that is differentiated."""
        ...

    @property
    def calls(self) -> float:
        """The approximate number of calls of f for a row."""
        ...

    def results(self, count: int) -> Buffers:
        """Return arrays for the results of `count` rows."""
        ...

    def __call__(self, start: int, outs: Buffers) -> None:
        """Fill `outs` with the results of rows from `start`."""
        ...


class Message:
    """Pickled work, which a process unpickles once, when it is first used."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._one_at_a_time = threading.Lock()
        self._work: Work | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the bytes alone, without the unpickled work."""
        return Message, (self.content,)

    def work(self) -> Work:
        """Return the work, one for all threads of a process."""
        with self._one_at_a_time:
            if self._work is None:
                self._work = pickle.loads(self.content)
            return self._work


def do(work: Work, span: Span) -> Part:
    """Compute a range of rows in this process."""
    start, stop = span
    outs = work.results(stop - start)
    work(start, outs)
    return start, outs


def do_message(message: Message, span: Span) -> Part:
    """Compute a range of rows of work that was sent before."""
    return do(message.work(), span)


def _do_picklable(work: Work, span: Span) -> Part:
    """Compute a range of rows for another process; errors that cannot be pickled are replaced."""
    try:
        return do(work, span)
    except Exception as error:
        if survives_pickling(error):
            raise
        kind = type(error).__name__
        wrapped = RuntimeError(f"f raised {kind}, which cannot be sent between processes: {error}")
        for note in getattr(error, "__notes__", ()):
            wrapped.add_note(note)
        raise wrapped from error


def do_file(path: str, span: Span) -> Part:
    """Compute a range of rows of work that is pickled in a file."""
    return _do_picklable(_read(path), span)


@lru_cache(maxsize=1)
def _read(path: str) -> Work:
    with open(path, "rb") as stream:
        work: Work = pickle.load(stream)
    return work


_cached_messages: dict[str, Message] = {}  # the latest one


def do_cached(key: str, span: Span, message: Message | None = None) -> Part | None:
    """Compute a range of rows of work sent to this process, now or before; None if it was not."""
    if message is not None and key not in _cached_messages:
        _cached_messages.clear()
        _cached_messages[key] = message
    cached = _cached_messages.get(key)
    return None if cached is None else _do_picklable(cached.work(), span)


def pickled(work: Work, dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
    """Pickle work, or raise a TypeError that names the part that cannot be pickled."""
    try:
        return dumps(work)
    except Exception as error:
        thing, way = _culprit(work.problem, dumps)
        msg = (
            f"{thing} cannot be sent to other processes ({error}): {way}, or give workers= a "
            f"number of threads"
        )
        raise TypeError(msg) from error


def _culprit(problem: Function, dumps: Callable[[Any], bytes]) -> tuple[str, str]:
    """Describe the object that cannot be pickled, and how to avoid that."""
    others = [*problem.before, None, *problem.after]
    named: list[tuple[str, Any]] = [(f"argument {k} of f", a) for k, a in enumerate(others)]
    named += [(f"argument {name} of f", a) for name, a in problem.kwargs.items()]
    for name, argument in named:
        if not is_picklable(argument, dumps):
            return f"{name}, a {type(argument).__name__},", "pass one that can be pickled"
    f: Any = user_callable(problem.f)
    name = getattr(f, "__qualname__", type(f).__qualname__)
    way = "define it at the top level of a module"
    if dumps is not pickle.dumps:  # which pickles functions by value, with what they refer to
        way = "make what cannot be pickled inside it"
    return f"f ({name})", way


def user_callable(f: Any) -> Any:
    """Return the caller's function inside the wrappers of this package."""
    package = __name__.partition(".")[0]
    # Only wrappers of this package are opened: others may have an attribute `inner`, too.
    while True:
        owner = f.__self__ if isinstance(f, MethodType) else f
        if type(owner).__module__.partition(".")[0] != package or not hasattr(owner, "inner"):
            return f
        f = owner.inner


def task_of(work: Work) -> Callable[[Span], Part]:
    """Return a function that computes a range of rows."""
    return partial(do, work)
