"""Calling what may crash in a process of its own."""

import multiprocessing
import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from .._threads import children_with_safe_path
from .answers import in_a_line
from .sides import Side

_INTERRUPTED = 128 + signal.SIGINT


@dataclass(frozen=True)
class Death:
    """Which side was being called when the process ended, and how."""

    name: str
    how: str


def in_a_process(work: Callable[[], Any], sides: Sequence[Side]) -> Any:
    """Return what `work` does in another process, or the Death of that; count the calls begun."""
    methods = multiprocessing.get_all_start_methods()
    if multiprocessing.current_process().daemon:
        msg = "isolate starts a process, and a daemonic one, as this is, may start none: "
        raise RuntimeError(msg + "pass isolate=False")
    # A fork takes functions that cannot be sent to another process.
    forks = "fork" in methods
    context: Any = multiprocessing.get_context("fork" if forks else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(work, sides, sender))
    with nullcontext() if forks else children_with_safe_path():
        process.start()
    sender.close()
    known = {side.name: side for side in sides}
    calling = "f"
    try:
        while True:
            kind, value = receiver.recv()
            if kind == "result":
                return value
            if kind == "error":
                raise value
            calling = value
            known[calling].calls += 1
    except EOFError:
        process.join()
        return Death(calling, _how(process.exitcode))
    finally:
        if process.is_alive():
            process.join(1)
            process.terminate()
        process.join()
        receiver.close()


def _how(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def _run(work: Callable[[], Any], sides: Sequence[Side], sender: Connection) -> None:
    for side in sides:
        side.call = _Announced(side.call, side.name, sender)
    try:
        sender.send(("result", work()))
    except Exception as error:
        sender.send(("error", _sendable(error)))
    except KeyboardInterrupt:  # which the caller has had, too, and tells of
        sys.exit(_INTERRUPTED)


def _sendable(error: Exception) -> Exception:
    """Return the error, or what it says where it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # its class may do anything
        return TypeError(in_a_line(error))
    return error


class _Announced:
    """A function that tells before it is called."""

    def __init__(self, call: Callable[..., Any], name: str, sender: Connection) -> None:
        self._call, self._name, self._sender = call, name, sender
        self.__name__ = getattr(call, "__name__", type(call).__name__)

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        self._sender.send(("calls", self._name))
        return self._call(*args)
