"""Whom the caller gave as workers=, and how they are asked."""

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
from .messages import (
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

_RETRIES = 3  # of a range whose future was lost: more says that the cluster cannot keep it
_CLUSTER_QUEUE_TASKS = 1000  # tasks that a cluster sees at a time: it may grow with what waits
_POLL_SECONDS = 1.0  # seconds without a result after which processes are looked at


class Pool(Protocol):
    """Workers who have been given the work."""

    @property
    def number(self) -> int:
        """How many ranges are done at the same time."""
        ...

    def each(self, spans: Iterable[Span], store: StoreRows) -> None:
        """Have ranges done, and store each as soon as it is."""
        ...


@contextmanager
def open_pool(work: Work, workers: Any) -> Iterator[Pool]:
    """Give workers the work; what is left of it with them is taken back at the end."""
    _require_open(workers)
    workers = _underlying_pool(workers)
    is_class = isinstance(workers, type) and hasattr(workers, "map")  # and not one of its objects
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
    """Give a pool for what the caller's one lost; None if it cannot be had."""
    broken = _underlying_pool(workers)
    if not _is_a("process.ProcessPoolExecutor", broken):
        # A multiprocessing.Pool puts another process in the place of one that ended.
        yield broken if _is_process_pool(broken) else None
        return
    from concurrent.futures import ProcessPoolExecutor

    like: Any = broken
    most = getattr(like, "_max_tasks_per_child", None)
    settings = like._max_workers, like._mp_context, like._initializer, like._initargs
    with ProcessPoolExecutor(*settings, max_tasks_per_child=most) as pool:
        yield pool


def _is_a(name: str, pool: Any) -> bool:
    """Return True if a pool is of a class of concurrent.futures, which its caller has imported.

    Its modules cannot be imported while the process ends.
    """
    module, _, kind = name.partition(".")
    return isinstance(pool, getattr(sys.modules.get(f"concurrent.futures.{module}"), kind, ()))


def _require_open(workers: Any) -> None:
    """Refuse a pool that was shut down; one that is broken is another matter."""
    pool = getattr(workers, "__self__", workers)
    shut = any(getattr(pool, name, False) is True for name in ("_shutdown", "_shutdown_thread"))
    closed = getattr(pool, "_state", None) in ("CLOSE", "TERMINATE")
    if (shut and not getattr(pool, "_broken", False)) or closed:
        msg = f"workers is a {type(pool).__name__} that was shut down: pass an open one"
        raise RuntimeError(msg)


def _underlying_pool(workers: Any) -> Any:
    """Return the pool whose map was given, if we know a better way to ask it, or else its map."""
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
    """Return what no two processes share, wherever they run."""
    return os.getpid(), _IMPORT_ID


_IMPORT_ID = uuid.uuid4().hex


def _is_process_pool(pool: Any) -> bool:
    pools = sys.modules.get("multiprocessing.pool")  # else nobody has made one
    return pools is not None and type(pool) is pools.Pool


def _distributed(pool: Any) -> Any:
    """Return the module of a dask Client, which its caller has imported."""
    distributed: Any = sys.modules.get("distributed")
    return distributed if distributed and isinstance(pool, distributed.Client) else None


@contextmanager
def _file(work: Work) -> Iterator[str]:
    """Give the name of a file with work in it, for processes of this machine."""
    message = pickled(work)
    file, path = tempfile.mkstemp(prefix="calipers-")
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(message)
        yield path
    finally:
        os.unlink(path)


class _Futures:
    """Workers who take a task and give a future."""

    retries = 0

    def __init__(self, number: int, executor: Any, task: Callable[..., Part | None]) -> None:
        self.number = number
        self._executor, self._task = executor, task

    def submit(self, span: Span, tries: int) -> Any:
        """Return the future of a range that has been lost so many times."""
        return self._executor.submit(self._task, span)

    def max_pending(self, has_result: bool) -> int:
        """Return how many tasks are out at a time, before and after the first result."""
        return (2 if has_result else 1) * self.number

    def wait(self, finished: "SimpleQueue[Any]") -> Any:
        """Return the next future that is done."""
        return finished.get()

    def drop(self, futures: list[Any]) -> None:
        """Let go of futures, done or not."""
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
        """Return what was found, or None for what is to be asked again."""
        try:
            result: Part | None = future.result()
        except CancelledError:
            if tries < self.retries:
                return None
            raise
        return result


def _task_of_threads(work: Work) -> Callable[[Span], Part]:
    """Return what does a range of work: one at a time, if f has threads of its own."""
    task = task_of(work)
    if not work.problem.parallel:
        return task
    alone = Lock()

    def one_at_a_time(span: Span) -> Part:
        with alone:
            return task(span)

    return one_at_a_time


class _Threads(_Futures):
    """Threads, which see what is set for the caller alone, as by numpy.errstate."""

    def submit(self, span: Span, tries: int) -> Any:
        return submitted(self._executor, copy_context().run, self._task, span)


class _Remote(_Futures):
    """
    Processes anywhere, of which one does not know who takes a task.

    As many tasks as there are workers carry the work. The others name it, and who does not know it
    says so.
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
    """The workers of a dask cluster, which runs elsewhere what was on a worker that is lost."""

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
        if self._held.status != "finished":  # all workers that had it are lost
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
        """Leave nothing on the cluster."""
        self._held.release()


def _quietly(dumps: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return dumps that raises alone what it would log, too."""

    def call(thing: Any) -> bytes:
        logger = logging.getLogger("distributed.protocol.pickle")
        before, logger.disabled = logger.disabled, True
        try:
            return dumps(thing)
        finally:
            logger.disabled = before

    return call


class _Map:
    """A callable like map, about which nothing is known."""

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
    A multiprocessing.Pool, which takes no task back, and forgets what a process did that is lost.
    """

    def __init__(self, pool: Any, task: Callable[[Span], Part]) -> None:
        super().__init__(len(pool._pool), pool, task)
        self._pool: Any = pool
        self._before = self._ids()

    def submit(self, span: Span, tries: int) -> Any:
        future: Future[Part] = Future()
        future.set_running_or_notify_cancel()  # the pool would trip over one that was cancelled
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
