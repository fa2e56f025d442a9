"""Programs whose standard error is a terminal."""

import os
import subprocess
import sys


def on_a_terminal(*arguments, stdout=subprocess.PIPE, **environment):
    """Run Python; return its status, its standard output and what the terminal has shown."""
    control, terminal = os.openpty()
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=terminal if stdout is None else stdout,
        stderr=terminal,
        env=os.environ | {name: str(value) for name, value in environment.items()},
    ) as running:
        os.close(terminal)
        shown = b""
        try:
            while piece := os.read(control, 10_000):
                shown += piece
        except OSError:  # no process has the terminal any more
            pass
        os.close(control)
        out = b"" if running.stdout is None else running.stdout.read()
        return running.wait(), out.decode(), shown.decode()
