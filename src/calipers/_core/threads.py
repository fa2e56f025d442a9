"""The thread pool and its size, ordered parallel tasks, and safe starts of processes."""

import contextlib
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from itertools import count
from operator import index
from threading import Lock, local
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future, ThreadPoolExecutor
    from contextlib import AbstractContextManager

T = TypeVar("T")

__all__ = ["get_num_threads", "num_threads", "set_num_threads"]

_VARIABLE = "CALIPERS_NUM_THREADS"


def available_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def children_with_safe_path() -> Iterator[None]:
    """
    Start processes in a ``with`` block whose Python does not import from the working directory.

    multiprocessing starts them by ``python -c``, which puts that directory first in `sys.path`: a
    file named socket.py there would run. PYTHONSAFEPATH also holds for its resource tracker.
    """
    variable = "PYTHONSAFEPATH"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def _checked(n: Any, name: str) -> int:
    try:
        number = index(n)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        msg = f"{name} must be a positive integer, got {n!r}; 1 runs on the calling thread alone"
        raise ValueError(msg)
    return number


def _of_environment(setting: str) -> int:
    return _checked(int(setting) if setting.strip().isdecimal() else setting, _VARIABLE)


class _Pool:
    """
    The helper threads, in addition to the calling thread; started when first used.

    The pool has no lock: a signal handler or finalizer that calls calipers would wait for it on the
    thread that holds it. The executor has locks, so that calls that interrupt it run on the calling
    thread.
    """

    def __init__(self) -> None:
        self.size: int | None = None
        self._executor: ThreadPoolExecutor | None = None

    def resize(self, size: int) -> None:
        """Set the number of threads; running threads end after their current work."""
        if size != self.size:
            self.size, self._executor = size, None

    def forget_threads(self) -> None:
        """Drop the executor in a forked child, in which its threads do not exist."""
        self._executor = None

    def submit(self, work: Callable[[], T]) -> "Future[T] | None":
        """Submit work to a helper thread; return None if the calling thread has to do it."""
        if getattr(_current, "is_in_executor", False):
            return None
        _current.is_in_executor = True
        try:
            executor = self._executor
            if executor is None:
                # Imported late: it takes 10 ms, and small arrays need no thread.
                from concurrent.futures import ThreadPoolExecutor

                executor = self._executor = ThreadPoolExecutor(
                    max(1, get_num_threads() - 1),
                    thread_name_prefix="calipers",
                    initializer=_begin_helper,
                )
            return executor.submit(copy_context().run, _help, work)
        except RuntimeError:  # the interpreter shuts down, or no thread can be started
            return None
        finally:
            _current.is_in_executor = False


def _begin_helper() -> None:
    _current.is_in_executor = True


def _help(work: Callable[[], T]) -> T:
    _current.is_in_executor = False
    try:
        return work()
    finally:
        _current.is_in_executor = True


def threads(number: int, name: str = "") -> "AbstractContextManager[Executor | None]":
    """Return an executor of threads as a context manager; None while the interpreter shuts down."""
    try:
        from concurrent.futures import ThreadPoolExecutor
    except RuntimeError:
        return contextlib.nullcontext()
    return ThreadPoolExecutor(number, thread_name_prefix=name)


def submitted(executor: "Executor | None", work: Callable[..., T], *args: Any) -> "Future[T]":
    """Submit work to an executor, or do it on this thread if the interpreter shuts down."""
    if executor is not None and not getattr(_current, "is_in_executor", False):
        _current.is_in_executor = True
        try:
            return executor.submit(work, *args)
        except RuntimeError as error:
            if "interpreter shutdown" not in str(error):
                raise
        finally:
            _current.is_in_executor = False
    return done(work, *args)


def done(work: Callable[..., T], *args: Any) -> "Future[T]":
    """Do work on the calling thread, and return a Future of its result."""
    from concurrent.futures import Future

    future: Future[T] = Future()
    try:
        future.set_result(work(*args))
    except Exception as error:
        future.set_exception(error)
    return future


_pool = _Pool()
_current = local()  # `is_task` and `is_in_executor` of this thread
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget_threads)


def get_num_threads() -> int:
    """
    Return the number of threads that calipers may use, including the calling thread.

    It is the environment variable ``CALIPERS_NUM_THREADS`` if that is set, else the number of cores
    that the process may run on, until `set_num_threads` changes it.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    ValueError
        If ``CALIPERS_NUM_THREADS`` is not a positive integer.

    Examples
    --------
    >>> import calipers
    >>> with calipers.num_threads(1):
    ...     calipers.get_num_threads()
    1
    """
    if _pool.size is None:
        setting = os.environ.get(_VARIABLE)
        _pool.size = _of_environment(setting) if setting else available_cores()
    return _pool.size


def set_num_threads(n: int) -> None:
    """
    Set the number of threads that calipers may use, including the calling thread.

    Parameters
    ----------
    n : int
        At least 1, for the whole process. With 1, all work is done on the calling thread.

    Raises
    ------
    ValueError
        If `n` is not a positive integer.

    See Also
    --------
    num_threads : The same inside a ``with`` block.

    Examples
    --------
    >>> import calipers
    >>> before = calipers.get_num_threads()
    >>> calipers.set_num_threads(2)
    >>> calipers.get_num_threads()
    2
    >>> calipers.set_num_threads(before)
    """
    _pool.resize(_checked(n, "n"))


@contextlib.contextmanager
def num_threads(n: int) -> Iterator[None]:
    """
    Set the number of threads inside a ``with`` block, and restore it afterwards.

    Parameters
    ----------
    n : int
        At least 1, as for `set_num_threads`.

    Returns
    -------
    context manager
        Its ``with`` block runs with `n` threads.

    Raises
    ------
    ValueError
        If `n` is not a positive integer.

    Notes
    -----
    The number holds for all threads of the process. ``with`` blocks of different threads must not
    overlap, since each restores the number that it replaced.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> with calipers.num_threads(1):
    ...     calipers.allclose(np.zeros(3), np.zeros(3))
    True
    """
    before = get_num_threads()
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(before)


def first_result(work: Callable[[int], int], tasks: int, threads: int) -> int:
    """
    Run ``work(0)``, ``work(1)``, ... and return the first result that is not negative, or -1.

    Tasks run on `threads` threads, including the calling one. They start in order, and no task
    starts after a result, so that the result does not depend on `threads`. Nested tasks run on the
    thread of the outer task: all others are busy, and waiting tasks would keep arrays in memory.
    """
    turn = count()
    results: dict[int, int] = {}
    is_task = getattr(_current, "is_task", False)
    if is_task:
        threads = 1

    def take_turns() -> None:
        _current.is_task = is_task or threads > 1
        try:
            while not results and (task := next(turn)) < tasks:
                if (position := work(task)) >= 0:
                    results[task] = position
        except BaseException:
            results[-1] = -1  # stops the others
            raise
        finally:
            _current.is_task = is_task

    helpers = []
    for _ in range(threads - 1):
        helper = _pool.submit(take_turns)
        if helper is None:
            break
        helpers.append(helper)
    running = []
    try:
        take_turns()
    finally:  # no helper outlives this call: its caller may close what they read
        try:
            # Helpers that have not started are not needed.
            running = [helper for helper in helpers if not helper.cancel()]
            for helper in running:
                helper.exception()
        except BaseException:
            results[-1] = -1  # stops the helpers after an interrupt
            raise
    for helper in running:
        helper.result()
    return results[min(results)] if results else -1


@contextlib.contextmanager
def as_task() -> Iterator[None]:
    """Run tasks in a ``with`` block on this thread only, such as in a worker of dask."""
    before = getattr(_current, "is_task", False)
    _current.is_task = True
    try:
        yield
    finally:
        _current.is_task = before


class OrderedMerge(Generic[T]):
    """Merge parts in the order of their tasks; they may be added in any order."""

    def __init__(self, merge: Callable[[T, T], T]) -> None:
        self.total: T | None = None
        self._merge = merge
        self._waiting: dict[int, T] = {}
        self._next = 0
        self._one_at_a_time = Lock()

    def add(self, task: int, part: T) -> None:
        with self._one_at_a_time:
            self._waiting[task] = part
            while self._next in self._waiting:
                following = self._waiting.pop(self._next)
                # A part may be None.
                self.total = self._merge(self.total, following) if self._next else following  # type: ignore[arg-type]
                self._next += 1


def in_parts(work: Callable[[int, int], None], starts: Sequence[int], stop: int) -> None:
    """Call ``work(start, next start)`` for consecutive parts of a range, on all threads."""
    ends = [*starts[1:], stop]

    def part(task: int) -> int:
        work(starts[task], ends[task])
        return -1

    first_result(part, len(ends), min(get_num_threads(), len(ends)))


def in_background(work: Callable[[], T]) -> "Future[T]":
    """Start `work` on another thread and return its Future."""
    return _pool.submit(work) or done(work)


def is_picklable(thing: Any, dumps: Callable[[Any], bytes]) -> bool:
    """Return True if an object can be pickled by a function such as `pickle.dumps`."""
    try:
        dumps(thing)
    except Exception:
        return False
    return True


def survives_pickling(error: Exception) -> bool:
    """Return True if an error can be pickled and unpickled; pools break on others."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True
