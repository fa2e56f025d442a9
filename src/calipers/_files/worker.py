"""A separate process for libraries that read foreign formats, so that a crash is an error."""

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from .._core.jit import compilations
from .._core.threads import children_with_safe_path
from . import FileError, described, printable
from .compare import FileOptions, FileResults, compare_files

# Addresses that libraries reserve and never touch.
_LIBRARIES = 16 << 30
# The seconds that a process may take to end by itself.
_LEAVE = 5.0


class Worker:
    """
    A process that reads and compares pairs of files, made when the first comes.

    A process and a pipe, and no pool: its exit code tells the signal that it died of, and it can be
    killed.
    """

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Any = None  # a Connection, and of another class on Windows

    def __enter__(self) -> "Worker":
        """Start nothing yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave no process behind, and if nothing is wrong let it give back what it holds."""
        if self._pipe is not None and kind is None:
            self._pipe.close()
            self._process.join(_LEAVE)
        self._end()

    def compare_files(
        self,
        actual: str,
        expected: str,
        location: str,
        options: FileOptions,
        advance: Callable[[float], None],
    ) -> FileResults:
        """Compare two files as `pairs.compare_files`, in the process."""
        pipe = self._started()
        try:
            pipe.send((actual, expected, location, options))
            while True:
                wait([pipe, self._process.sentinel])
                answer = pipe.recv()
                if isinstance(answer, FileResults):
                    return answer
                if isinstance(answer, str):
                    raise FileError(answer)
                advance(answer)
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            self._end()
            msg = (
                f"{printable(actual)} and {printable(expected)}: the process that read them "
                f"{_fate(code)}: one is broken, or too large for memory"
            )
            raise FileError(msg) from None

    def _started(self) -> Any:
        if self._pipe is None:
            context = get_context("spawn")
            pipe, other = context.Pipe()
            process = context.Process(target=_serve, args=(other,), daemon=True)
            # Ctrl-C is for this process, which kills the other; that one inherits how it is taken.
            handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                with children_with_safe_path():
                    process.start()
            except BaseException:
                pipe.close()
                raise
            finally:
                signal.signal(signal.SIGINT, handler)
                other.close()
            self._pipe, self._process = pipe, process
        return self._pipe

    def _end(self) -> None:
        if self._pipe is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = self._pipe = None


def _fate(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _serve(pipe: Connection) -> None:
    """Compare the pairs that are sent, until the pipe is closed."""
    # Errors are reported in one line; asyncio, which zarr uses, would log the tasks that one ends.
    warnings.simplefilter("ignore")
    logging.disable()
    compilations.clears_line = True  # the command may show a progress bar
    memory = _MemoryLimit()
    while True:
        try:
            actual, expected, location, options = pipe.recv()
        except EOFError:
            return
        try:
            memory.set(os.path.getsize(actual) + os.path.getsize(expected))
            answer: FileResults | str = compare_files(
                actual, expected, location, options, pipe.send
            )
        except BrokenPipeError:  # nobody asks any more
            return
        except Exception as error:  # libraries raise anything
            answer = described(error)
        pipe.send(answer)


class _MemoryLimit:
    """Limit on the address space, so that a wrong header cannot exhaust the memory."""

    def __init__(self) -> None:
        self._resource: Any = None
        with suppress(ImportError):  # not all systems have such limits
            self._resource = import_module("resource")
            self._original = self._resource.getrlimit(self._resource.RLIMIT_AS)

    def set(self, size: int) -> None:
        """Set the limit for files of `size` bytes, at most the original limit."""
        if sys.platform == "win32" or self._resource is None:
            return
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = 2 * size + machine + _LIBRARIES
        soft, hard = self._original
        if soft != self._resource.RLIM_INFINITY:
            limit = min(limit, soft)
        self._resource.setrlimit(self._resource.RLIMIT_AS, (limit, hard))
