"""The thread pool: its size, its order, and what it survives."""

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import calipers
from calipers._core.threads import as_task, first_result
from tests.core import KERNELS_ONLY

LARGE = 3_000_000  # a pair of float64 is 48 MB: well above what one thread does alone


@pytest.fixture(autouse=True)
def _two_threads():
    with calipers.num_threads(2):
        yield


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def pair(position=None):
    a = np.ones(LARGE)
    b = a.copy()
    if position is not None:
        b[position] = 2
    return a, b


def test_the_number_of_threads_is_set_and_restored():
    calipers.set_num_threads(3)
    assert calipers.get_num_threads() == 3
    with calipers.num_threads(1):
        assert calipers.get_num_threads() == 1
    assert calipers.get_num_threads() == 3

    def fail():
        with calipers.num_threads(5):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert calipers.get_num_threads() == 3


@pytest.mark.parametrize("n", [0, -1, 1.5, "x", None])
def test_a_bad_number_of_threads_is_named(n):
    message = f"n must be a positive integer, got {n!r}; 1 runs on the calling thread alone"
    with pytest.raises(ValueError, match=message):
        calipers.set_num_threads(n)
    with pytest.raises(ValueError, match=message), calipers.num_threads(n):
        pass
    assert calipers.get_num_threads() == 2


def test_helpers_end_when_the_number_falls():
    def helpers():
        return {t for t in threading.enumerate() if t.name.startswith("calipers")}

    with calipers.num_threads(5):
        assert calipers.allclose(*pair())
        started = helpers()
    assert started
    deadline = time.monotonic() + 60
    while started & helpers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not started & helpers()


def test_the_environment_sizes_the_pool():
    code = "import calipers; print(calipers.get_num_threads())"
    assert run_python(code, CALIPERS_NUM_THREADS="3").stdout == "3\n"
    bad = run_python(code, CALIPERS_NUM_THREADS="many")
    assert "CALIPERS_NUM_THREADS must be a positive integer, got 'many'" in bad.stderr
    one = """
import threading, numpy as np, calipers
a = np.ones(3_000_000)
assert calipers.allclose(a, a.copy()) and not calipers.allclose(a, a + 1)
print(threading.active_count())
"""
    assert run_python(one, CALIPERS_NUM_THREADS="1").stdout == "1\n"


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_answer_does_not_depend_on_the_number_of_threads(threads):
    rng = np.random.default_rng(0)
    with calipers.num_threads(threads):
        for position in (None, 0, 40_000, LARGE // 2, LARGE - 1):
            a, b = pair(position)
            assert calipers.allclose(a, b) is (position is None)
            assert np.flatnonzero(~calipers.isclose(a, b)).tolist() == (
                [] if position is None else [position]
            )
            rows = calipers.allclose(a.reshape(-1, 1000), b.reshape(-1, 1000), axis=1)
            assert np.flatnonzero(~rows).tolist() == (
                [] if position is None else [position // 1000]
            )
            columns = calipers.allclose(a.reshape(-1, 1000), b.reshape(-1, 1000), axis=0)
            assert np.flatnonzero(~columns).tolist() == (
                [] if position is None else [position % 1000]
            )
        for _ in range(20):
            hits = np.sort(rng.integers(0, LARGE, 5))
            a = np.ones(LARGE)
            a[hits] = np.nan
            assert calipers.first_nonfinite(a) == (hits[0],)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_tasks_run_in_order_and_stop_at_a_finding(threads):
    started = []

    def work(task):
        started.append(task)
        time.sleep(0.001)
        return task * 10 if task in (17, 18, 60) else -1

    assert first_result(work, 1000, threads) in (170,)
    assert set(range(18)) <= set(started)
    assert len(started) <= 18 + 2 * threads
    assert first_result(lambda task: -1, 50, threads) == -1
    assert first_result(lambda task: task, 0, threads) == -1


def test_the_first_in_order_is_returned_though_a_later_one_was_found_before():
    later, started = threading.Event(), []

    def work(task):
        started.append(task)
        if task == 1:
            later.set()
        else:
            assert later.wait(60)
        return 100 + task

    assert first_result(work, 1000, 2) == 100
    assert sorted(started) == [0, 1]


@pytest.mark.parametrize("in_helper", [False, True])
def test_an_error_stops_the_others_and_arrives(in_helper):
    caller = threading.get_ident()
    started = []

    def work(task):
        started.append(task)
        time.sleep(0.002)
        if (threading.get_ident() != caller) is in_helper and task > 3:
            raise ZeroDivisionError
        return -1

    with pytest.raises(ZeroDivisionError):
        first_result(work, 2000, 2)
    assert len(started) < 100
    assert calipers.allclose(*pair())


def test_no_helper_outlives_a_call_whose_own_share_fails():
    begun, ended = threading.Event(), []

    def work(task):
        if threading.current_thread() is threading.main_thread():
            begun.wait(5)
            raise RuntimeError("of this thread")
        begun.set()
        threading.Event().wait(0.2)
        ended.append(task)
        return -1

    with pytest.raises(RuntimeError, match="of this thread"):
        first_result(work, 2, 2)
    assert ended


def test_what_a_helper_raises_is_raised():
    begun = threading.Event()

    def work(task):
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            raise RuntimeError("of a helper")
        begun.wait(5)
        return -1

    with pytest.raises(RuntimeError, match="of a helper"):
        first_result(work, 2, 2)


def test_eight_threads_call_at_once():
    equal, different = pair(), pair(LARGE - 5)
    with ThreadPoolExecutor(8) as callers:
        jobs = [(different if i % 3 == 0 else equal) for i in range(48)]
        answers = list(callers.map(lambda job: calipers.allclose(*job), jobs))
    assert answers == [i % 3 != 0 for i in range(48)]


def test_the_number_may_change_under_a_call():
    equal, different = pair(), pair(LARGE - 5)
    with ThreadPoolExecutor(3) as callers:
        answers = [callers.submit(calipers.allclose, *equal) for _ in range(40)]
        answers += [callers.submit(calipers.allclose, *different) for _ in range(40)]
        while not all(answer.done() for answer in answers):
            for n in (1, 4, 2):
                calipers.set_num_threads(n)
                time.sleep(0.001)
    assert [answer.result() for answer in answers] == [True] * 40 + [False] * 40


def test_threads_are_resized_while_others_ask():
    failures, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            try:
                calipers.allclose_async([1.0], [1.0]).result()
            except RuntimeError as error:
                failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    for size in 200 * [2, 3]:
        with calipers.num_threads(size):
            pass
    stop.set()
    asking.join()
    assert not failures


def test_a_task_may_hand_out_tasks():
    code = """
from calipers._core.threads import as_task, first_result
print(first_result(lambda i: first_result(lambda j: i if j == i == 40 else -1, 50, 2), 50, 2))
"""
    done = run_python(code, CALIPERS_NUM_THREADS="2")
    assert done.stdout == "40\n", done.stderr


def test_eight_threads_race_for_the_first_build(tmp_path):
    code = """
import numpy as np, calipers
from concurrent.futures import ThreadPoolExecutor
def ask(i):
    dtype = ["f8", "f4", "i8"][i % 3]
    a = np.arange(100).astype(dtype)
    return calipers.allclose(a, a.copy()) and not calipers.allclose(a, a + 1)
with ThreadPoolExecutor(8) as callers:
    print(all(callers.map(ask, range(24))))
"""
    done = run_python(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.stdout == "True\n", done.stderr


# In processes of their own: other libraries of this one may object to a fork.
ANSWER = """
import multiprocessing, os, sys, threading, time, warnings
import numpy as np
import calipers

warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # surviving one is the question

def answer(position):
    a = np.ones(3_000_000)
    b = a.copy()
    if position is not None:
        b[position] = 2
    return calipers.allclose(a, b)
"""

POOL = """
if __name__ == "__main__":
    calipers.set_num_threads(2)
    assert answer(None)
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print(pool.map_async(answer, [None, 7, 2_999_999, None]).get(timeout=100))
"""

CHILD = """
def fork_and_ask(ask, leave):
    child = os.fork()
    if child == 0:
        leave(0 if ask() else 1)
    deadline = time.monotonic() + 60
    while (status := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    print(status[1], status[0] == child, answer(None))

def both():
    return answer(None) and not answer(2_999_999)

calipers.set_num_threads(2)
assert answer(None)
"""

BUSY = """
stop = threading.Event()
def keep_busy():
    while not stop.is_set():
        assert answer(None)
callers = [threading.Thread(target=keep_busy) for _ in range(2)]
for caller in callers:
    caller.start()
for _ in range(4):
    fork_and_ask(both, os._exit)
stop.set()
"""

BUILDING = """
def build(*dtypes):
    return all(calipers.allclose(np.ones(3, d), np.ones(3, d)) for d in dtypes)
builder = threading.Thread(target=build, args=("f4", "i8", "u1", "c8"))
builder.start()
fork_and_ask(lambda: build("i2", "f4"), os._exit)
builder.join()
fork_and_ask(lambda: build("i4", "c8"), os._exit)
"""


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_process_pools(method, tmp_path):
    script = tmp_path / "pool.py"
    script.write_text(ANSWER + POOL)
    command = [sys.executable, str(script), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "[True, False, False, True]\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("leave", ["os._exit", "sys.exit"])
def test_a_forked_child_starts_threads_of_its_own(leave):
    # unbuffered: a child that leaves by sys.exit must not write its parent's lines again
    code = "import functools; print = functools.partial(print, flush=True)\n"
    done = run_python(code + ANSWER + CHILD + f"fork_and_ask(both, {leave})\n" * 2)
    assert done.stdout == "0 True True\n" * 2, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_while_helpers_work():
    done = run_python(ANSWER + CHILD + BUSY)
    assert done.stdout == "0 True True\n" * 4, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_while_another_thread_builds(tmp_path):
    done = run_python(ANSWER + CHILD + KERNELS_ONLY + BUILDING, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.stdout == "0 True True\n" * 2, done.stderr


def test_an_interrupt_ends_a_call_and_leaves_the_pool_usable():
    code = """
import os, signal, threading, numpy as np, calipers
# a process that was started in the background inherits an ignored SIGINT
signal.signal(signal.SIGINT, signal.default_int_handler)
calipers.set_num_threads(THREADS)
a = np.ones(20_000_000); b = a.copy()
calipers.allclose(a, b)
interrupted = 0
for delay in (0.001, 0.003, 0.005, 0.01, 0.02, 0.05):
    timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        while True:
            assert calipers.allclose(a, b)
    except KeyboardInterrupt:
        interrupted += 1
    assert calipers.allclose(a, b) and not calipers.allclose(a, b + 1)
print(interrupted)
"""
    for threads in ("1", "2"):
        done = run_python(code.replace("THREADS", threads))
        assert done.stdout == "6\n", done.stderr


def test_a_call_at_interpreter_exit_answers():
    code = """
import atexit, threading, numpy as np, calipers
a = np.ones(3_000_000)
b = a.copy(); b[-1] = 2
def ask():
    print(calipers.allclose(a, a.copy()), calipers.allclose(a, b))
atexit.register(ask)
threading._register_atexit(ask)
calipers.set_num_threads(2)
ask()
"""
    done = run_python(code)
    assert done.stdout == "True False\n" * 3, done.stderr


def test_tasks_of_a_task_wait_for_no_thread():
    # The others are busy: what waited for them would keep its arrays in memory until the end.
    both = threading.Barrier(2)
    kept = []

    def outer(_):
        both.wait(10)
        array = np.zeros(3)
        reference = weakref.ref(array)
        first_result(lambda _, array=array: int(array[0]) - 1, 3, 2)
        del array
        gc.collect()
        kept.append(reference() is not None)
        both.wait(10)
        return -1

    first_result(outer, 2, 2)
    assert kept == [False, False]
    # A task alone shares its own.
    seen = set()
    first_result(lambda _: time.sleep(1e-3) or seen.add(threading.get_ident()) or -1, 100, 2)
    assert len(seen) == 2


def test_who_is_one_of_many_threads_keeps_to_itself():
    seen = set()
    with as_task():
        first_result(lambda _: time.sleep(1e-3) or seen.add(threading.get_ident()) or -1, 100, 2)
    assert seen == {threading.get_ident()}
    first_result(lambda _: time.sleep(1e-3) or seen.add(threading.get_ident()) or -1, 100, 2)
    assert len(seen) == 2
