"""Run a diagnosis in a separate process, which a function may crash or block."""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import Any

from .._core.threads import children_with_safe_path, is_picklable, survives_pickling
from .arrays import one_line_error
from .callables import Implementation

_INTERRUPTED = 128 + signal.SIGINT
# Seconds without a message after which a call counts as hanging.
_TIMEOUT = 600.0
# The threads of this process on Linux, also those of libraries.
_TASKS = "/proc/self/task"


@dataclass(frozen=True)
class ProcessFailure:
    """The reason for a missing diagnosis: a function that ended the process or did not return."""

    reason: str


def run_in_process(work: Callable[[], Any], implementations: Sequence[Implementation]) -> Any:
    """
    Return the result of `work` in another process, or a Death; count the calls begun.

    The process is a fork, which needs no pickling, if only Python's threads run: threads of OpenMP,
    torch or jax do not survive a fork, and calls in the child would wait for them forever.
    Otherwise a new process is spawned, and the functions are pickled.
    """
    if multiprocessing.current_process().daemon:
        msg = "isolate=True starts a process, which this daemonic process is not allowed to: "
        raise RuntimeError(msg + "pass isolate=False")
    process, pipe = _forked(work, implementations) or _fresh(work, implementations)
    by_name = {implementation.name: implementation for implementation in implementations}
    calling = ""
    try:
        while wait([pipe], _TIMEOUT):
            kind, value = pipe.recv()
            if kind == "result":
                return value
            if kind == "error":
                raise value
            calling = value
            by_name[calling].calls += 1
        return ProcessFailure(f"{calling or 'the process'} did not answer within {_TIMEOUT:.0f} s")
    except EOFError:
        process.join()
        how = _how(process.exitcode)
        if not calling:
            msg = f"isolate=True: the process ended before it called f: {how}"
            raise RuntimeError(msg) from None
        return ProcessFailure(f"{calling} ended the process that called it: {how}")
    finally:
        process.join(1)  # second, once its work is done
        process.kill()
        process.join()
        pipe.close()


def _how(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def _forked(
    work: Callable[[], Any], implementations: Sequence[Implementation]
) -> tuple[Any, Connection] | None:
    """Start a fork; return None if the child would lack threads that libraries need."""
    if not os.path.isdir(_TASKS):
        return None
    context: Any = multiprocessing.get_context("fork")  # Windows has none
    pipe, other = context.Pipe()
    process = context.Process(target=_run_fork, args=(work, implementations, other, pipe))
    with warnings.catch_warnings():  # about threads: if there are any, the child ends at once
        warnings.simplefilter("ignore")
        process.start()
    other.close()
    # Checked after the fork: OpenBLAS ends its threads before it, and restarts them when needed.
    if _only_python_threads():
        pipe.send("go")
        return process, pipe
    pipe.close()
    process.join()
    return None


def _only_python_threads() -> bool:
    """Return True if Python started every thread of this process."""
    end = time.monotonic() + 0.1  # s, for threads that a library ends before a fork
    while True:
        python_threads = {thread.native_id for thread in threading.enumerate()}
        if {int(task) for task in os.listdir(_TASKS)} <= python_threads:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.01)


def _run_fork(
    work: Callable[[], Any],
    implementations: Sequence[Implementation],
    pipe: Connection,
    parents: Connection,
) -> None:
    parents.close()  # or the end of the parent would not end the pipe
    try:
        pipe.recv()
    except EOFError:
        return
    _run(work, implementations, pipe)


def _fresh(
    work: Callable[[], Any], implementations: Sequence[Implementation]
) -> tuple[Any, Connection]:
    """Spawn a new process, and send it the work."""
    sent = _pickled(work, implementations)
    context: Any = multiprocessing.get_context("spawn")  # its pipes are of another class on Windows
    pipe, other = context.Pipe()
    process = context.Process(target=_run_fresh, args=(sent, other))
    with children_with_safe_path(), _hidden_script():
        process.start()
    other.close()
    return process, pipe


@contextmanager
def _hidden_script() -> Iterator[None]:
    """Let new processes not run the main script again: its functions are pickled by value."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _pickled(work: Callable[[], Any], implementations: Sequence[Implementation]) -> bytes:
    """Pickle the work; functions of a script or a notebook are pickled by value."""
    try:
        dumps: Callable[[Any], bytes] = import_module("numba.cloudpickle").dumps
    except ImportError:
        dumps = pickle.dumps
    try:
        return dumps((work, implementations))
    except Exception as error:  # the pickling of an object may raise anything
        names = (x.name for x in implementations if not is_picklable(x.call, dumps))
        msg = (
            f"isolate=True: {next(names, 'an input')} cannot be sent to a fresh process "
            f"({one_line_error(error)}), and threads of other libraries do not survive a fork of "
            "this one: define it in a module with all that it uses, call diagnose before they "
            "start, or pass isolate=False"
        )
        raise TypeError(msg) from error


def _run_fresh(sent: bytes, pipe: Connection) -> None:
    try:
        work, implementations = pickle.loads(sent)
    except Exception as error:
        msg = f"isolate=True: the fresh process cannot load f, g or inputs: {one_line_error(error)}"
        pipe.send(("error", TypeError(msg)))
        return
    _run(work, implementations, pipe)


def _run(
    work: Callable[[], Any], implementations: Sequence[Implementation], pipe: Connection
) -> None:
    _end_with_parent(pipe)
    for implementation in implementations:
        implementation.announce = partial(pipe.send, ("calls", implementation.name))
    try:
        pipe.send(("result", work()))
    except Exception as error:
        is_sent = survives_pickling(error)
        pipe.send(("error", error if is_sent else TypeError(one_line_error(error))))
    except KeyboardInterrupt:  # the parent process gets it as well
        sys.exit(_INTERRUPTED)


def _end_with_parent(pipe: Connection) -> None:
    """End this process as soon as its parent ends, also during a call."""
    if sys.platform == "linux":  # also while a call holds the GIL
        set_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)

    def watch() -> None:
        wait([pipe])  # ready only when the parent closes it
        os._exit(_INTERRUPTED)

    threading.Thread(target=watch, daemon=True).start()
