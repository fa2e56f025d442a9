"""Calls by signal handlers and finalizers, while the process ends, and beside a fork."""

import os
import subprocess
import sys

import pytest

from tests.core import KERNELS_ONLY

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals and forks")


def printed(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert not done.stderr, done.stderr
    assert done.returncode == 0
    return done.stdout.splitlines()


def test_calls_that_interrupt_the_pool_run_on_their_thread():
    """As by a signal handler, a finalizer, or a callback of weakref, in a thread or a helper."""
    lines = printed("""
import threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import calipers

a, verdicts, running = np.ones(3_000_000), [], threading.local()

def interrupt():
    if not getattr(running, "now", False):
        running.now = True
        verdicts.append(calipers.allclose(a, a))
        verdicts.append(bool(calipers.allclose_async(a, a)))
        verdicts.append(bool(calipers.compare(iter([a, a]), np.ones(6_000_000))))
        calipers.set_num_threads(3)
        running.now = False

class Interrupted(threading.Semaphore):
    def release(self, n=1):
        with self._cond:
            interrupt()
        super().release(n)

submit = ThreadPoolExecutor.submit

def interrupted(self, *args):
    self._idle_semaphore = Interrupted(0)
    with self._shutdown_lock:
        interrupt()
    return submit(self, *args)

ThreadPoolExecutor.submit = interrupted
calipers.set_num_threads(2)
for _ in range(3):
    verdicts += [calipers.allclose(a, a), bool(calipers.allclose_async(a, a))]
print(len(verdicts) > 10, all(verdicts))
""")
    assert lines == ["True True"]


def test_signal_handlers_compare_large_arrays():
    lines = printed("""
import signal
import numpy as np
import calipers

a, b = np.ones(2_000_000), np.ones(2_000_000)
b[-1] = 2
verdicts = []
calipers.set_num_threads(2)
assert calipers.allclose(a, a)
signal.signal(signal.SIGALRM, lambda *_: verdicts.append(calipers.allclose(a, b)))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
while len(verdicts) < 50:
    assert calipers.allclose(a, a)
signal.setitimer(signal.ITIMER_REAL, 0)
print(any(verdicts))
""")
    assert lines == ["False"]


CALL = """
import sys
import numpy as np
import calipers
x = np.ones(3)
def call():
    try:
        calipers.isclose(np.ones(3, "f4"), 1)
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.parametrize("whose", ["calipers.allclose(x, x)", "numba.njit(lambda x: x)(1)"])
def test_calls_within_a_compilation_are_refused(whose):
    """Numba's compiler aborts the process if it is entered again."""
    lines = printed(
        f"""{KERNELS_ONLY}{CALL}
import numba
from numba.core import event
class Interrupt(event.Listener):
    def on_start(self, _):
        call()
    def on_end(self, _):
        pass
calipers.testing
with event.install_listener("numba:run_pass", Interrupt()):
    {whose}
call()
print(calipers.allclose(x, x))
""",
        CALIPERS_CACHE="0",
    )
    message = "calipers was called by a signal handler or a finalizer while this thread compiles"
    assert len(lines) > 1
    assert all(line.startswith(message) for line in lines[:-1])
    assert lines[-1] == "True"


def test_calls_within_an_import_are_refused():
    lines = printed(f"""{CALL}
class Interrupt:
    def find_spec(self, name, *_):
        if name == "numba":
            call()
sys.meta_path.insert(0, Interrupt())
print(calipers.allclose(x, x))
call()
""")
    message = "calipers was called by a signal handler or a finalizer while this thread imports it"
    assert len(lines) == 2
    assert lines[0].startswith(message)
    assert lines[1] == "True"


@pytest.mark.parametrize("first", [True, False])
def test_the_end_of_the_process_does_all_on_one_thread(first):
    lines = printed(
        f"""
import atexit
import numpy as np
import calipers

def compute():
    a = np.ones(3_000_000)
    print(calipers.allclose(a, a), bool(calipers.allclose_async(a, a)))
    print(bool(calipers.compare(iter([a, a]), np.ones(6_000_000))))
    print(calipers.jacobian(lambda x: 2 * x, np.zeros(2), workers=2, step=1.0).tolist())

atexit.register(compute)
calipers.set_num_threads(2)
if not {first}:
    compute()
""",
        PYTHONWARNINGS="ignore",  # other libraries' extensions of Numba cannot be imported then
    )
    assert lines == ["True True", "True", "[[2.0, 0.0], [0.0, 2.0]]"] * (2 - first)


@pytest.mark.parametrize(
    ("delay", "before"), [(0.01, ""), (0.05, ""), (0.05, KERNELS_ONLY), (0.3, KERNELS_ONLY)]
)
def test_a_fork_during_first_use_leaves_the_child_whole(delay, before):
    code = f"""{before}
import os, threading, time
import numpy as np
import calipers

x = np.ones(3)
thread = threading.Thread(target=lambda: calipers.allclose(x, x))
thread.start()
time.sleep({delay})
child = os.fork()
if child == 0:
    os._exit(0 if calipers.allclose(x, x) else 1)
print(os.waitpid(child, 0)[1])
thread.join()
"""
    # Python 3.12 and later warn of each fork of a process with threads.
    assert printed(code, PYTHONWARNINGS="ignore::DeprecationWarning") == ["0"]
