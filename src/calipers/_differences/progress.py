"""How far a run is, as its caller wants to hear it."""

import sys
import time
from collections.abc import Callable
from typing import Any


class Progress:
    """Reports of how many rows are done, and for how long it may go on."""

    def __init__(self, wanted: Any, total: int) -> None:
        self.wanted = bool(callable(wanted) or wanted)
        self._report = wanted if callable(wanted) else None
        self._shown = _shown() if wanted and self._report is None else None
        self._total, self._done, self._held = total, 0, 0
        self._begun = time.perf_counter()

    def expect(self, count: int) -> None:
        """Count on so many rows more."""
        self._total += count

    def add(self, count: int, held: bool = False) -> None:
        """Report rows that are done, or that a checkpoint held; what a callable raises passes."""
        self._done += count
        if held:  # it took no time, and says nothing of what is left
            self._held += count
        if self._report is not None:
            self._report(self._done, self._total)
        elif self._shown is not None:
            self._shown.show(self._done, self._total, self.left())

    def left(self) -> float | None:
        """Return the seconds that the rest may take, if that is known."""
        worked = self._done - self._held
        if worked == 0:
            return None
        return (time.perf_counter() - self._begun) / worked * (self._total - self._done)

    def close(self) -> None:
        """End the line or the bar."""
        if self._shown is not None:
            self._shown.close()


class _Line:
    """A line on stderr that is written anew."""

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


class _Bar:
    """A bar of tqdm, which knows how to estimate."""

    def __init__(self, tqdm: Callable[..., Any]) -> None:
        self._tqdm = tqdm
        self._bar: Any = None

    def show(self, done: int, total: int, left: float | None) -> None:
        if self._bar is None:
            self._bar = self._tqdm(total=total, desc="derivative", unit="column")
        self._bar.total = total
        if left is None:  # what a checkpoint held is not work that was done
            self._bar.n = self._bar.initial = self._bar.last_print_n = done
            self._bar.refresh()
        else:
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _shown() -> "_Line | _Bar":
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line()
    return _Bar(tqdm)


def duration(seconds: float) -> str:
    """Return a time as one reads it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
