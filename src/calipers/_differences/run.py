"""Who runs the tasks: this thread, calipers' threads, or the caller's workers."""

import math
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._threads import first_found, get_num_threads
from .columns import Outs
from .sending import Work, sent_once

# Below this, waking another thread costs more than it saves.
WORTH_SHARING = 500e-6
_TASKS_PER_WORKER = 4
_PACED_RUNS = 3
_LONG = 2e-3
_TIMED = 50e-6  # what is shorter is mostly the cost of a call


class Progress:
    """Reports of how many coordinates are done; an exception in one stops the work."""

    def __init__(self, wanted: Any, total: int) -> None:
        self._report: Callable[[int, int], Any] | None = None
        self._close: Callable[[], Any] = lambda: None
        self._total, self._done = total, 0
        self.stopped = False
        self._one_at_a_time = threading.Lock()
        if callable(wanted):
            self._report = wanted
        elif wanted:
            self._report, self._close = _shown(total)

    @property
    def wanted(self) -> bool:
        return self._report is not None

    def add(self, count: int) -> None:
        with self._one_at_a_time:
            self._done += count
            if self._report is not None:
                self._report(self._done, self._total)

    def close(self) -> None:
        self._close()


def _shown(total: int) -> tuple[Callable[[int, int], Any], Callable[[], Any]]:
    try:
        from tqdm.auto import tqdm
    except ImportError:

        def line(done: int, total: int) -> None:
            print(f"\rderivative: {done} of {total} columns", end="", file=sys.stderr, flush=True)

        return line, lambda: print(file=sys.stderr)
    bar = tqdm(total=total, desc="derivative", unit="column")
    return lambda done, total: bar.update(done - bar.n), bar.close


@dataclass
class Pace:
    """The least that a coordinate ever cost, remembered from one run to the next."""

    seconds: float = math.inf
    runs: int = 0

    def is_slow(self, count: int) -> bool:
        """Tell whether so many coordinates are surely worth two threads.

        A run may compile, and one more may be disturbed.
        """
        return self.runs >= _PACED_RUNS and self.seconds * count > WORTH_SHARING


def run(
    work: Work,
    count: int,
    workers: Any = None,
    progress: Any = False,
    pace: Pace | None = None,
    start: int = 0,
) -> Outs:
    """
    Return the results of `work` along `count` coordinates from `start`.

    `progress` is what the caller asked for, or a Progress that this run is only a part of.
    """
    part = isinstance(progress, Progress)
    if part and not progress.wanted:
        progress = False
    if workers is None and not progress:
        outs = work.results(count)
        native = work.problem.native
        if native is None or (pace is not None and pace.seconds * count < WORTH_SHARING):
            work(start, outs)
        else:
            threads = 1 if native.parallel else get_num_threads()
            _by_threads(work, start, outs, threads, None, pace or Pace())
        return outs
    report = progress if part and progress else Progress(progress, count)
    try:
        if workers is not None:
            return _by_workers(work, start, count, workers, report)
        outs = work.results(count)
        native = work.problem.native
        threads = 1 if native is None or native.parallel else get_num_threads()
        _by_threads(work, start, outs, threads, report, pace or Pace())
        return outs
    finally:
        if not part:
            report.close()


def _part(count: int, workers: int) -> int:
    return max(1, -(-count // (workers * _TASKS_PER_WORKER)))


def _one(
    work: Work, origin: int, first: int, last: int, outs: Outs, report: Progress | None
) -> None:
    parts = tuple(out[first:last] for out in outs)
    if report is None:
        work(origin + first, parts)
    elif not report.stopped:
        try:
            work(origin + first, parts)
            report.add(last - first)
        except BaseException:
            report.stopped = True  # what other threads have not begun is not wanted any more
            raise


def _by_threads(
    work: Work, origin: int, outs: Outs, threads: int, report: Progress | None, pace: Pace
) -> None:
    """Time more and more columns, and wake other threads if the rest is worth it."""
    count, done, size, estimate = len(outs[0]), 0, 1, pace.seconds
    while threads > 1 and done < count and not pace.is_slow(count):
        started = time.perf_counter()
        last = min(done + size, count)
        _one(work, origin, done, last, outs, report)
        spent = time.perf_counter() - started
        estimate = spent / (last - done)
        done, size = last, 4 * size
        pace.seconds = min(pace.seconds, estimate)
        pace.runs += 1
        if spent > _TIMED or estimate * (count - done) < WORTH_SHARING:
            break
    left = count - done
    if threads == 1 or left < 2 or estimate * left < WORTH_SHARING:
        step = left if report is None else _part(left, 1)
        for first in range(done, count, max(1, step)):
            _one(work, origin, first, min(first + step, count), outs, report)
        return
    # A thread that comes back for more waits for the interpreter: one task each, if they are short.
    parts = min(max(1, int(estimate * left / (threads * _LONG))), _TASKS_PER_WORKER)
    step = -(-left // (threads * parts))

    def task(number: int) -> int:
        first = done + number * step
        _one(work, origin, first, min(first + step, count), outs, report)
        return -1

    first_found(task, -(-left // step), threads)


def _by_workers(work: Work, start: int, count: int, workers: Any, report: Progress) -> Outs:
    outs = work.results(count)

    def spans(number: int) -> list[tuple[int, int]]:
        step = _part(count, number)
        return [(first, min(first + step, count)) for first in range(0, count, step)]

    def store(part: tuple[int, Outs]) -> None:
        first, found = part
        for out, values in zip(outs, found, strict=True):
            out[first - start : first - start + len(values)] = values
        report.add(len(found[0]))

    if isinstance(workers, (int, np.integer)) and not isinstance(workers, bool):
        if workers < 1:
            msg = f"workers must be at least 1, got {workers}"
            raise ValueError(msg)
        with ThreadPoolExecutor(int(workers)) as pool:
            parts = spans(int(workers))
            _wait([pool.submit(_one, work, start, *span, outs, report) for span in parts], None)
    elif isinstance(workers, Executor):
        number = getattr(workers, "_max_workers", None) or get_num_threads()
        with sent_once(work, workers) as task:
            parts = [(start + first, start + last) for first, last in spans(number)]
            _wait([workers.submit(task, span) for span in parts], store)
    elif callable(workers):
        with sent_once(work, getattr(workers, "__self__", None)) as task:
            parts = [(start + first, start + last) for first, last in spans(get_num_threads())]
            for part in workers(task, parts):
                store(part)
    else:
        msg = (
            f"workers must be an int, a concurrent.futures.Executor or a map-like callable, "
            f"got {type(workers).__name__}"
        )
        raise TypeError(msg)
    return outs


def _wait(futures: list[Any], store: Callable[[Any], None] | None) -> None:
    try:
        for future in as_completed(futures):
            result = future.result()
            if store is not None:
                store(result)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
