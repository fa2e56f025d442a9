"""`diagnose(..., isolate=True)`: a process that crashes or hangs is a result, and none is left."""

import os
import subprocess
import sys
import time
from contextlib import suppress

import pytest

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
import calipers
from calipers._diagnose import isolate

x = np.random.default_rng(0).standard_normal((8, 64), dtype=np.float32)
total, turned = (lambda x: x.sum(axis=1)), (lambda x: x[:, ::-1].cumsum(axis=1)[:, -1])

def told(f, g, x=x, **options):
    try:
        found = calipers.diagnose(f, g, x, isolate=True, **options)
        print(found.kind, found.reason, flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""
FRESH = "isolate._only_python_threads = lambda: False\n"


def printed(program, **environment):
    """Return the lines that a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
    )
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


@linux
@pytest.mark.parametrize("fresh", ["", FRESH], ids=["fork", "fresh process"])
def test_results_and_crashes_are_those_of_the_function(fresh):
    lines = printed(
        fresh
        + """
def crashes(x):
    os.kill(os.getpid(), signal.SIGSEGV)

def fails(x):
    raise KeyError("no")

told(total, turned)
told(total, crashes)
told(fails, total)
"""
    )
    assert lines[0].startswith(
        "ROUNDING rounding explains the difference: the errors of f and g are"
    )
    assert lines[1:] == [
        "RAISES g ended the process that called it: SIGSEGV",
        "RAISES f raises KeyError: 'no'; g does not",
    ]


THREADS = {
    "torch": """
import torch
torch.randn(500, 500) @ torch.randn(500, 500)
told(lambda v: v @ v.T, lambda v: (v.unsqueeze(1) * v).sum(-1), torch.randn(600, 64))
""",
    "jax": """
import jax
jax.numpy.ones((500, 500)) @ jax.numpy.ones((500, 500))
told(lambda v: v @ v.T, lambda v: (v[:, None] * v).sum(-1), jax.numpy.asarray(x))
""",
    "numba": """
import numba
@numba.njit(parallel=True)
def doubled(x):
    y = np.empty_like(x)
    for i in numba.prange(x.size):
        y[i] = 2 * x[i]
    return y
doubled(np.ones(100_000))
told(doubled, lambda x: x + x, np.ones(100_000), batch=())
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("library", THREADS)
def test_threads_that_a_fork_would_lose_are_there(library):
    """The child of a fork would wait for them: it is a fresh process."""
    pytest.importorskip(library)
    settings = {"OMP_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}
    (line,) = printed(THREADS[library], **settings)
    assert line.split()[0] in ("ROUNDING", "LAYOUT", "EQUAL")


@linux
def test_what_cannot_be_sent_to_a_fresh_process_is_refused_by_name():
    (line,) = printed(
        FRESH
        + """
lock = threading.Lock()
def locked(x):
    with lock:
        return total(x)
told(total, locked)
"""
    )
    assert line.startswith("TypeError isolate=True: g cannot be sent to a fresh process")
    assert "or pass isolate=False" in line


@pytest.mark.slow
@linux
@pytest.mark.parametrize("fresh", ["", FRESH], ids=["fork", "fresh process"])
def test_a_call_that_does_not_return_is_ended(fresh):
    lines = printed(
        fresh
        + """
isolate._TIMEOUT = 8.0
told(total, lambda x: time.sleep(1000))
print(len(isolate.multiprocessing.active_children()))
"""
    )
    assert lines == ["RAISES g did not answer within 8 s", "0"]


@linux
@pytest.mark.parametrize("fresh", ["", FRESH], ids=["fork", "fresh process"])
def test_no_process_outlives_the_caller(fresh, tmp_path):
    """Not even within a call that holds Python's lock."""
    program = """
import ctypes
def hangs(x):
    open("pid.tmp", "w").write(str(os.getpid()))
    os.rename("pid.tmp", "pid")
    ctypes.PyDLL(None).sleep(1000)
told(hangs, total)
"""
    caller = subprocess.Popen([sys.executable, "-c", BEGIN + fresh + program], cwd=tmp_path)
    try:
        file = tmp_path / "pid"
        wait_until(lambda: file.exists() or caller.poll() is not None)
        child = int(file.read_text())
    finally:
        caller.kill()
        caller.wait()
    wait_until(lambda: not is_running(child))


def is_running(process):
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{process}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.02)
    raise TimeoutError


def test_a_fresh_process_imports_nothing_from_the_working_directory(tmp_path):
    (tmp_path / "socket.py").write_text('open("imported", "w")\n')
    (tmp_path / "program").mkdir()
    program = tmp_path / "program" / "run.py"
    program.write_text(BEGIN + FRESH + "told(total, turned)\n")
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.startswith("ROUNDING"), done.stderr
    assert not (tmp_path / "imported").exists()
