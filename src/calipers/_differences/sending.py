"""Work sent to other processes: once as a whole, and then by the range that each is to do."""

import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Protocol

from .columns import Outs
from .problem import Problem


class Work(Protocol):
    """What can be done for a range of rows at a time."""

    @property
    def problem(self) -> Problem:
        """The problem of which the rows are part."""
        ...

    def results(self, count: int) -> Outs:
        """Return arrays for the results of `count` rows."""
        ...

    def __call__(self, start: int, outs: Outs) -> None:
        """Fill `outs` with the results of rows from `start`."""
        ...


Span = tuple[int, int]


@contextmanager
def sent_once(work: Work, pool: Any) -> Iterator[Callable[[Span], tuple[int, Outs]]]:
    """Give a task that runs a range of `work` in any worker of a pool."""
    if not _has_processes(pool):
        yield partial(_results, work)
        return
    try:
        message = pickle.dumps(work)
    except Exception as error:
        msg = (
            f"f or its arguments cannot be sent to other processes ({error}): define f at the top "
            f"level of a module, or give workers= a number of threads"
        )
        raise TypeError(msg) from error
    file, path = tempfile.mkstemp(prefix="calipers-")
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(message)
        yield partial(_results_of_file, path)
    finally:
        os.unlink(path)


def _has_processes(pool: Any) -> bool:
    if isinstance(pool, ProcessPoolExecutor):
        return True
    pools = sys.modules.get("multiprocessing.pool")  # else nobody has made one
    return pools is not None and isinstance(pool, pools.Pool) and type(pool) is pools.Pool


def _results(work: Work, span: Span) -> tuple[int, Outs]:
    start, stop = span
    outs = work.results(stop - start)
    work(start, outs)
    return start, outs


def _results_of_file(path: str, span: Span) -> tuple[int, Outs]:
    return _results(_read(path), span)


@lru_cache(maxsize=1)
def _read(path: str) -> Work:
    with open(path, "rb") as stream:
        work: Work = pickle.load(stream)
    return work
