"""Distribute rows over this thread, calipers' threads or the caller's workers."""

import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.arguments import warn
from .._core.protocols import NDArray
from .._core.threads import first_result, get_num_threads
from .checkpoint import Checkpoint, missing
from .tasks import Buffers, NativeCode, Span, Work
from .workers import StoreRows, open_pool, replacement_pool


class Progress:
    """Report of the number of finished rows, with an estimate of the remaining time."""

    def __init__(self, wanted: Any, total: int) -> None:
        self.wanted = bool(callable(wanted) or wanted)
        self._report = wanted if callable(wanted) else None
        self._shown = _shown() if wanted and self._report is None else None
        self._total, self._done, self._held = total, 0, 0
        self._begun = time.perf_counter()

    def expect(self, count: int) -> None:
        """Increase the total by a number of rows."""
        self._total += count

    def add(self, count: int, held: bool = False) -> None:
        """Report finished rows, or rows `held` by a checkpoint; errors of a callable propagate."""
        self._done += count
        if held:  # these took no time and do not enter the estimate
            self._held += count
        if self._report is not None:
            self._report(self._done, self._total)
        elif self._shown is not None:
            self._shown.show(self._done, self._total, self.left())

    def left(self) -> float | None:
        """Return the estimated remaining seconds, or None if nothing was computed yet."""
        worked = self._done - self._held
        if worked == 0:
            return None
        return (time.perf_counter() - self._begun) / worked * (self._total - self._done)

    def close(self) -> None:
        """End the progress bar."""
        if self._shown is not None:
            self._shown.close()


class _TextBar:
    """A progress line on stderr, overwritten each time."""

    _written = 0

    def show(self, done: int, total: int, left: float | None) -> None:
        if sys.stderr is None:  # as under pythonw; print would take stdout
            return
        estimate = "" if left is None or done == total else f", {duration(left)} left"
        line = f"derivative: {done} of {total} columns{estimate}"
        print("\r" + line.ljust(self._written), end="", file=sys.stderr, flush=True)
        self._written = len(line)

    def close(self) -> None:
        if self._written:
            print(file=sys.stderr)


class _TqdmBar:
    """A progress bar of tqdm."""

    def __init__(self, tqdm: Callable[..., Any]) -> None:
        self._tqdm = tqdm
        self._bar: Any = None

    def show(self, done: int, total: int, left: float | None) -> None:
        if self._bar is None:
            self._bar = self._tqdm(total=total, desc="derivative", unit="column")
        self._bar.total = total
        if left is None:  # rows from a checkpoint do not count for the speed
            self._bar.n = self._bar.initial = self._bar.last_print_n = done
            self._bar.refresh()
        else:
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _shown() -> "_TextBar | _TqdmBar":
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _TextBar()
    return _TqdmBar(tqdm)


def duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


# Seconds of work below which waking another thread costs more than it saves.
WORTH_SHARING_SECONDS = 150e-6
_TASKS_PER_WORKER = 4  # tasks of each worker, to balance the load
_PACED_RUNS = 3  # timed runs before the pace is trusted
_LONG_TASK_SECONDS = 2e-3  # least duration of a thread's task if it gets more than one
_THREAD_START_SECONDS = 50e-6  # delay until another thread starts and its end is noticed
_MEASURABLE_SECONDS = 50e-6  # shorter times are mostly the cost of a call

_SHORTEST_TASK_SECONDS = 10e-3  # sending a task to another machine takes about 1e-3
_LONGEST_TASK_SECONDS = 1.0  # bounds the loss with a worker, and the interval of progress reports
_LARGEST_TASK = 1 << 26  # bytes of results of a task


@dataclass
class Pace:
    """The least time of a coordinate, remembered from one run to the next."""

    seconds: float = math.inf
    runs: int = 0

    def is_slow(self, count: int) -> bool:
        """Return True if a number of coordinates is worth two threads.

        The first runs do not count: one may compile, and another may be disturbed.
        """
        return self.runs >= _PACED_RUNS and self.seconds * count > WORTH_SHARING_SECONDS


def run(
    work: Work,
    count: int,
    workers: Any = None,
    progress: Any = False,
    pace: Pace | None = None,
    start: int = 0,
    checkpoint: Any = None,
) -> Buffers:
    """
    Return the results of `work` along `count` coordinates from `start`.

    `progress` is the caller's option, or the Progress of a larger run, and `checkpoint` a folder.
    """
    _begin(work)
    part = isinstance(progress, Progress)
    if part and not progress.wanted:
        progress = False
    outs = work.results(count)
    if workers is None and not progress and checkpoint is None:
        _without_workers(work, start, outs, pace)
        return outs

    def store(first: int, results: Buffers) -> None:
        for out, values in zip(outs, results, strict=True):
            out[first : first + len(values)] = values

    report = progress if part and progress else Progress(progress, count)
    try:
        run_parts(work, count, store, workers, report, checkpoint, start)
    finally:
        if not part:
            report.close()
    return outs


def run_parts(
    work: Work,
    count: int,
    store: StoreRows,
    workers: Any,
    report: Progress,
    checkpoint: Any = None,
    start: int = 0,
    wanted: NDArray | None = None,
) -> None:
    """
    Compute rows, and pass them to `store` in any order as they finish.

    `wanted` marks the rows to compute; by default all. `store` counts rows from `start`.
    """
    _begin(work)
    checkpoint = None if checkpoint is None else Checkpoint(checkpoint)
    done = np.zeros(count, bool) if wanted is None else ~wanted

    def stored(first: int, results: Buffers, held: bool = False) -> None:
        stop = first + len(results[0])
        if checkpoint is not None and not held:
            checkpoint.save(first, results)
        store(first, results)
        done[first:stop] = True
        report.add(stop - first, held)

    if checkpoint is not None:
        checkpoint.require_same(work, count)
        for first, last in checkpoint.spans():
            if done[first:last].all() or (loaded := checkpoint.rows((first, last), work)) is None:
                continue
            for begin, end in list(missing(done[first:last])):
                stored(first + begin, tuple(out[begin:end] for out in loaded), held=True)
    if done.all():
        return
    if workers is None:
        if checkpoint is not None:
            checkpoint.begin()
        heard = report.wanted or checkpoint is not None
        _one_by_one(work, start, list(missing(done)), stored, count if heard else None)
        return

    def submit(workers: Any) -> None:
        with open_pool(work, workers) as pool:
            if checkpoint is not None:  # only after the work could be sent
                checkpoint.begin()
            left = count - int(np.count_nonzero(done))
            rows = task_rows(work, left, pool.number, _seconds(work))
            spans = (
                (start + first, start + min(first + rows, last))
                for begin, last in list(missing(done))
                for first in range(begin, last, rows)
            )
            pool.each(spans, lambda first, results: stored(first - start, results))

    try:
        try:
            submit(workers)
        except BrokenExecutor as error:
            with replacement_pool(workers) as pool:
                if pool is None:
                    raise
                message = f"a process of the pool was lost ({error!r}): the others continue"
                warn(message, RuntimeWarning)
                submit(pool)
    except BrokenExecutor as error:
        advice = (
            "finished columns are in checkpoint="
            if checkpoint
            else "checkpoint= keeps finished columns"
        )
        msg = (
            f"a worker of the pool was lost ({error!r}), and columns {_missing_ranges(done)} are "
            f"missing: make a new pool and call again; {advice}"
        )
        raise type(error)(msg) from error
    if not done.all():
        msg = (
            f"workers returned no results for columns {_missing_ranges(done)}: "
            "a map must return all of them"
        )
        raise RuntimeError(msg)


def _begin(work: Work) -> None:
    if work.problem.native is not None:
        work.problem.native.begin()


def _missing_ranges(done: NDArray) -> str:
    spans = [f"{a}" if b == a + 1 else f"{a} to {b - 1}" for a, b in missing(done)]
    more = f" and {len(spans) - 5} more ranges" if len(spans) > 5 else ""
    return ", ".join(spans[:5]) + more


def _seconds(work: Work, longest: float = _SHORTEST_TASK_SECONDS) -> float:
    """Estimate the seconds for a row from a call of f, which is repeated if it took `longest`."""
    problem = work.problem
    seconds = problem.seconds
    if problem.native is not None and seconds > longest:  # the first call may have compiled f
        began = time.perf_counter()
        problem.call(problem.x.copy())
        seconds = min(seconds, time.perf_counter() - began)
    return seconds * work.calls


def task_rows(work: Work, count: int, workers: int, seconds: float) -> int:
    """
    Return the number of rows in a task.

    Each worker gets several tasks, to balance the load, unless they become too short.
    """
    rows = -(-count // (workers * _TASKS_PER_WORKER))
    seconds = max(seconds, 1e-9)
    shortest = min(math.ceil(_SHORTEST_TASK_SECONDS / seconds), -(-count // _TASKS_PER_WORKER))
    rows = max(shortest, min(rows, int(_LONGEST_TASK_SECONDS / seconds)))
    return max(1, min(rows, _rows_at_a_time(work)))


def _rows_at_a_time(work: Work) -> int:
    """Return the largest number of rows whose results may be in transit at a time."""
    row = sum(out.nbytes for out in work.results(1))
    return max(1, _LARGEST_TASK // max(1, row))


def _one_by_one(
    work: Work, start: int, spans: list[Span], store: StoreRows, count: int | None
) -> None:
    """
    Compute ranges of rows without workers.

    If progress is reported, on `count` rows, each part takes about the time of a task.
    """
    problem, rows = work.problem, _rows_at_a_time(work)
    seconds = math.inf if problem.native else problem.seconds * work.calls
    for first, last in spans:
        while first < last:
            began = time.perf_counter()
            if count is not None:
                rows = task_rows(work, count, 1, seconds)
            stop = min(first + rows, last)
            outs = work.results(stop - first)
            _without_workers(work, start + first, outs, None)
            store(first, outs)
            seconds = (time.perf_counter() - began) / (stop - first)
            first = stop


def _without_workers(work: Work, start: int, outs: Buffers, pace: Pace | None) -> None:
    """Compute rows without workers: in threads if f is compiled."""
    native = work.problem.native
    if native is None or (pace is not None and pace.seconds * len(outs[0]) < WORTH_SHARING_SECONDS):
        work(start, outs)
    else:
        _by_threads(work, start, outs, native, pace or Pace())


def _least_rows(work: Work) -> int:
    """Return the number of rows that take about as long as one, unless f's calls take longer."""
    rows: int = getattr(work, "least_rows", 1)
    if rows == 1:
        return 1
    seconds = _seconds(work, _SHORTEST_TASK_SECONDS / (rows * work.calls))
    return max(1, min(rows, int(_SHORTEST_TASK_SECONDS / max(seconds, 1e-9))))


def _by_threads(work: Work, origin: int, outs: Buffers, native: NativeCode, pace: Pace) -> None:
    """
    Time a growing number of columns, then use threads if the rest takes long enough.

    Tasks of threads are timed, too, so that the next run corrects a disturbed measurement.
    """
    least = _least_rows(work)
    count, done, size, estimate = len(outs[0]), 0, least, pace.seconds
    several = not native.parallel and get_num_threads() > 1

    def timed(first: int, last: int) -> float:
        started = time.perf_counter()
        work(origin + first, tuple(out[first:last] for out in outs))
        spent = time.perf_counter() - started
        pace.seconds = min(pace.seconds, spent / (last - first))
        return spent

    while several and done < count and not pace.is_slow(count):
        last = min(done + size, count)
        spent = timed(done, last)
        estimate = spent / (last - done)
        done, size = last, 4 * size
        pace.runs += 1
        if spent > _MEASURABLE_SECONDS or estimate * (count - done) < WORTH_SHARING_SECONDS:
            break
    left = count - done
    worth = several and left > least and estimate * left >= WORTH_SHARING_SECONDS
    if not worth or (threads := native.threads) == 1:
        if left:
            timed(done, count)
        return
    # Taking another task waits for the interpreter: short tasks are not split further.
    parts = min(max(1, int(estimate * left / (threads * _LONG_TASK_SECONDS))), _TASKS_PER_WORKER)
    # This thread starts before the others: if each has one task, this one gets a longer one.
    late = min(_THREAD_START_SECONDS / estimate, left / 2) if parts == 1 else 0.0
    tasks = min(threads * parts, -(-left // least))
    step = math.ceil((left - late) / tasks)
    starts = [done, *range(done + max(1, left - (tasks - 1) * step), count, step), count]

    def task(number: int) -> int:
        timed(starts[number], starts[number + 1])
        return -1

    first_result(task, len(starts) - 1, threads)
