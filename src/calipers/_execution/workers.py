"""Adapters for all kinds of `workers`: threads, executors, pools, dask clients and maps."""

import logging
import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Protocol

import numpy as np

from .._core.threads import get_num_threads, submitted, threads
from .tasks import (
    Buffers,
    Message,
    Part,
    Span,
    Work,
    do_cached,
    do_file,
    do_message,
    pickled,
    task_of,
)

StoreRows = Callable[[int, Buffers], None]

_RETRIES = 3  # submissions of a lost range; more losses mean a broken cluster
_CLUSTER_QUEUE_TASKS = 1000  # tasks submitted at a time; clusters scale with their queue
_POLL_SECONDS = 1.0  # seconds without a result until lost processes are looked for


class Pool(Protocol):
    """Workers that have received the work."""

    @property
    def number(self) -> int:
        """The number of ranges that are computed at the same time."""
        ...

    def each(self, spans: Iterable[Span], store: StoreRows) -> None:
        """Compute ranges of rows, and pass each to `store` when it is finished."""
        ...


@contextmanager
def open_pool(work: Work, workers: Any) -> Iterator[Pool]:
    """Send the work to workers, yield them as a Pool, and release the work at the end."""
    _require_open(workers)
    workers = _underlying_pool(workers)
    is_class = isinstance(workers, type) and hasattr(workers, "map")  # instead of an instance
    if isinstance(workers, (int, np.integer)) and not isinstance(workers, bool):
        if workers < 1:
            msg = f"workers must be at least 1, got {workers}"
            raise ValueError(msg)
        with threads(int(workers)) as executor:
            yield _Threads(int(workers), executor, _task_of_threads(work))
    elif (distributed := _distributed(workers)) is not None:
        cluster = _Cluster(work, workers, distributed)
        try:
            yield cluster
        finally:
            cluster.release()
    elif _is_a("process.ProcessPoolExecutor", workers):
        with _file(work) as path:
            yield _Futures(_number(workers), workers, partial(do_file, path))
    elif isinstance(workers, Executor):
        number = _number(workers)
        if _is_a("thread.ThreadPoolExecutor", workers):
            yield _Threads(number, workers, _task_of_threads(work))
        elif workers.submit(_process_identity).result() == _process_identity():
            yield _Futures(number, workers, task_of(work))
        else:
            yield _Remote(work, workers, number)
    elif _is_process_pool(workers):
        with _file(work) as path:
            yield _Processes(workers, partial(do_file, path))
    elif callable(workers) and not is_class:
        yield _Map(workers, task_of(work))
    else:
        got = f"the class {workers.__name__}" if is_class else type(workers).__name__
        msg = (
            f"workers must be an int, a concurrent.futures.Executor, a dask Client or a map-like "
            f"callable, got {got}"
        )
        raise TypeError(msg)


@contextmanager
def replacement_pool(workers: Any) -> Iterator[Any]:
    """Yield a pool that replaces a broken one, or None if there is none."""
    broken = _underlying_pool(workers)
    if not _is_a("process.ProcessPoolExecutor", broken):
        # A multiprocessing.Pool replaces its processes itself.
        yield broken if _is_process_pool(broken) else None
        return
    from concurrent.futures import ProcessPoolExecutor

    like: Any = broken
    most = getattr(like, "_max_tasks_per_child", None)
    settings = like._max_workers, like._mp_context, like._initializer, like._initargs
    with ProcessPoolExecutor(*settings, max_tasks_per_child=most) as pool:
        yield pool


def _is_a(name: str, pool: Any) -> bool:
    """Return True if a pool is of a class of concurrent.futures, looked up among loaded modules.

    Its modules cannot be imported while the process ends.
    """
    module, _, kind = name.partition(".")
    return isinstance(pool, getattr(sys.modules.get(f"concurrent.futures.{module}"), kind, ()))


def _require_open(workers: Any) -> None:
    """Raise if a pool was shut down; a broken one is handled later."""
    pool = getattr(workers, "__self__", workers)
    shut = any(getattr(pool, name, False) is True for name in ("_shutdown", "_shutdown_thread"))
    closed = getattr(pool, "_state", None) in ("CLOSE", "TERMINATE")
    if (shut and not getattr(pool, "_broken", False)) or closed:
        msg = f"workers is a {type(pool).__name__} that was shut down: pass an open one"
        raise RuntimeError(msg)


def _underlying_pool(workers: Any) -> Any:
    """Return the pool that a bound `map` belongs to if its type is supported, else a map."""
    owner = getattr(workers, "__self__", None)
    if getattr(workers, "__name__", None) in ("map", "imap", "imap_unordered") and (
        isinstance(owner, Executor) or _is_process_pool(owner) or _distributed(owner) is not None
    ):
        return owner
    is_pool = isinstance(workers, Executor) or _is_process_pool(workers) or _distributed(workers)
    return workers if is_pool or callable(workers) else getattr(workers, "map", workers)


def _number(executor: Executor) -> int:
    return getattr(executor, "_max_workers", None) or get_num_threads()


def _process_identity() -> tuple[int, str]:
    """Return an identifier of this process, unique across machines."""
    return os.getpid(), _IMPORT_ID


_IMPORT_ID = uuid.uuid4().hex


def _is_process_pool(pool: Any) -> bool:
    pools = sys.modules.get("multiprocessing.pool")  # not imported: no pool exists
    return pools is not None and type(pool) is pools.Pool


def _distributed(pool: Any) -> Any:
    """Return the module `distributed` if a pool is its Client, else None."""
    distributed: Any = sys.modules.get("distributed")
    return distributed if distributed and isinstance(pool, distributed.Client) else None


@contextmanager
def _file(work: Work) -> Iterator[str]:
    """Yield the path of a temporary file with the pickled work, for local processes."""
    message = pickled(work)
    file, path = tempfile.mkstemp(prefix="calipers-")
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(message)
        yield path
    finally:
        os.unlink(path)


class _Futures:
    """Workers that return a future for each task."""

    retries = 0

    def __init__(self, number: int, executor: Any, task: Callable[..., Part | None]) -> None:
        self.number = number
        self._executor, self._task = executor, task

    def submit(self, span: Span, tries: int) -> Any:
        """Submit a range that was lost `tries` times, and return its future."""
        return self._executor.submit(self._task, span)

    def max_pending(self, has_result: bool) -> int:
        """Return the largest number of pending tasks, before and after the first result."""
        return (2 if has_result else 1) * self.number

    def wait(self, finished: "SimpleQueue[Any]") -> Any:
        """Wait for the next finished future."""
        return finished.get()

    def drop(self, futures: list[Any]) -> None:
        """Release futures, done or not."""
        for future in futures:
            future.cancel()

    def each(self, spans: Iterable[Span], store: StoreRows) -> None:
        finished: SimpleQueue[Any] = SimpleQueue()
        waiting, out, has_result = iter(spans), dict[Any, tuple[Span, int]](), False

        def submit(span: Span, tries: int) -> None:
            future = self.submit(span, tries)
            out[future] = span, tries
            future.add_done_callback(finished.put)

        try:
            while True:
                for span in islice(waiting, max(0, self.max_pending(has_result) - len(out))):
                    submit(span, 0)
                if not out:
                    return
                future = self.wait(finished)
                result, (span, tries) = self._result(future, *out[future]), out.pop(future)
                self.drop([future])
                if result is None:
                    submit(span, tries + 1)
                else:
                    has_result = True
                    store(*result)
        finally:
            self.drop(list(out))

    def _result(self, future: Any, span: Span, tries: int) -> Part | None:
        """Return the result of a future, or None if its range has to be computed again."""
        try:
            result: Part | None = future.result()
        except CancelledError:
            if tries < self.retries:
                return None
            raise
        return result


def _task_of_threads(work: Work) -> Callable[[Span], Part]:
    """Return the task of a thread, with a lock if f itself uses threads."""
    task = task_of(work)
    if not work.problem.parallel:
        return task
    alone = Lock()

    def one_at_a_time(span: Span) -> Part:
        with alone:
            return task(span)

    return one_at_a_time


class _Threads(_Futures):
    """Threads that run in the caller's context, with its numpy.errstate."""

    def submit(self, span: Span, tries: int) -> Any:
        return submitted(self._executor, copy_context().run, self._task, span)


class _Remote(_Futures):
    """
    Processes on any machine, where the executor does not say which one runs a task.

    The first tasks, one for each worker, carry the work; later ones carry its key. A process that
    does not have the work returns None, and the range is submitted again with it.
    """

    def __init__(self, work: Work, executor: Executor, number: int) -> None:
        self._key = uuid.uuid4().hex
        super().__init__(number, executor, partial(do_cached, self._key))
        self._message, self._sent = Message(pickled(work)), 0

    def submit(self, span: Span, tries: int) -> Any:
        carries = tries > 0 or self._sent < self.number
        self._sent += carries
        arguments = (span, self._message) if carries else (span,)
        return self._executor.submit(self._task, *arguments)


class _Cluster(_Futures):
    """The workers of a dask cluster, which reruns tasks of lost workers."""

    retries = _RETRIES

    def __init__(self, work: Work, client: Any, distributed: Any) -> None:
        if client.asynchronous:
            msg = "workers is an asynchronous Client: pass one that was made without asynchronous="
            raise TypeError(msg)
        if client.status != "running":
            msg = f"workers is a Client whose status is {client.status}: pass an open one"
            raise RuntimeError(msg)
        threads = client.nthreads()
        if not threads:
            msg = "workers is a Client of a cluster without workers: see its wait_for_workers()"
            raise RuntimeError(msg)
        self.number = sum(threads.values())
        self._client, self._killed = client, distributed.KilledWorker
        self._message = Message(pickled(work, _quietly(distributed.protocol.pickle.dumps)))
        self._held = self._scattered()

    def _scattered(self) -> Any:
        return self._client.scatter(self._message, broadcast=True, hash=False)

    def max_pending(self, has_result: bool) -> int:
        return max(_CLUSTER_QUEUE_TASKS, 2 * self.number)

    def submit(self, span: Span, tries: int) -> Any:
        if self._held.status != "finished":  # all workers with a copy are lost
            self._held = self._scattered()
        return self._client.submit(do_message, self._held, span, key=f"calipers-{uuid.uuid4().hex}")

    def _result(self, future: Any, span: Span, tries: int) -> Part | None:
        try:
            return super()._result(future, span, tries)
        except self._killed as error:
            error.add_note(
                f"the workers were lost with rows {span[0]} to {span[1] - 1} of the work"
            )
            raise

    def drop(self, futures: list[Any]) -> None:
        left = [future for future in futures if not future.done()]
        if left:
            self._client.cancel(left)
        for future in futures:
            future.release()  # a traceback may keep them

    def release(self) -> None:
        """Release the work on the cluster."""
        self._held.release()


def _quietly(dumps: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return `dumps` without its logging; errors are raised in any case."""

    def call(thing: Any) -> bytes:
        logger = logging.getLogger("distributed.protocol.pickle")
        before, logger.disabled = logger.disabled, True
        try:
            return dumps(thing)
        finally:
            logger.disabled = before

    return call


class _Map:
    """A callable like the builtin map."""

    def __init__(self, call: Callable[..., Any], task: Callable[[Span], Part]) -> None:
        self.number = get_num_threads()
        self._map, self._task = call, task

    def each(self, spans: Iterable[Span], store: StoreRows) -> None:
        parts = self._map(self._task, list(spans))
        try:
            waiting = iter(parts)
        except TypeError:
            raise self._wrong(parts) from None
        for part in waiting:
            if not (isinstance(part, tuple) and len(part) == 2):
                raise self._wrong(part)
            store(*part)

    def _wrong(self, result: Any) -> TypeError:
        msg = (
            f"workers returned {type(result).__name__}: workers(function, items) must "
            "return the result of function(item) for each item, like map"
        )
        return TypeError(msg)


class _Processes(_Futures):
    """
    A multiprocessing.Pool, which cannot cancel tasks, and drops those of a process that ends.
    """

    def __init__(self, pool: Any, task: Callable[[Span], Part]) -> None:
        super().__init__(len(pool._pool), pool, task)
        self._pool: Any = pool
        self._before = self._ids()

    def submit(self, span: Span, tries: int) -> Any:
        future: Future[Part] = Future()
        # The pool cannot set the result of a cancelled future.
        future.set_running_or_notify_cancel()
        self._pool.apply_async(self._task, (span,), {}, future.set_result, future.set_exception)
        return future

    def wait(self, finished: "SimpleQueue[Any]") -> Any:
        while True:
            try:
                return finished.get(timeout=_POLL_SECONDS)
            except Empty:
                ends_them_itself = self._pool._maxtasksperchild is not None
                if self._ids() == self._before or ends_them_itself:
                    continue
                msg = "a process of the pool ended, and its results are lost"
                raise BrokenExecutor(msg) from None

    def _ids(self) -> set[int]:
        return {process.pid for process in self._pool._pool}
