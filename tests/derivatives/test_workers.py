"""Who calls f: threads, workers and processes, what they raise, and the progress they tell of."""

import contextvars
import json
import multiprocessing.pool
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest

import calipers
from calipers._derivatives.adaptive import ExtrapolatedColumns
from calipers._execution.run import Pace, run
from calipers._execution.tasks import _read
from tests.data.derivative_functions import (
    MANY,
    SIX,
    Refused,
    X,
    assert_near,
    counted,
    methods,
    refuses_in_python,
    slow,
    waves,
)

# Who calls f, and how many.


@methods
def test_the_number_of_threads_changes_nothing(method):
    found = []
    for threads in (1, 2, 5):
        with calipers.num_threads(threads):
            found.append(calipers.differentiate(slow, MANY, method=method))
    for other in found[1:]:
        assert np.array_equal(other.value, found[0].value)
        assert np.array_equal(other.error, found[0].error)
        assert np.array_equal(other.status, found[0].status)
        assert other.nfev == found[0].nfev


@methods
def test_the_workers_change_nothing(method):
    expected = calipers.differentiate(waves, MANY, method=method)
    with ThreadPoolExecutor(2) as pool:
        for workers in (1, 3, pool, map, pool.map):
            found = calipers.differentiate(waves, MANY, method=method, workers=workers)
            assert np.array_equal(found.value, expected.value)
            assert np.array_equal(found.error, expected.error)
            assert found.nfev == expected.nfev


@pytest.mark.parametrize("method", ["3-point", "adaptive"])
@pytest.mark.parametrize("f", [slow, waves], ids=["compiled", "python"])
def test_the_workers_change_no_relative(f, method):
    w = np.linspace(1, 2, 3 if f is slow else 6)
    expected = calipers.vjp(f, MANY, w, method=method)
    blocks = list(calipers.jacobian_blocks(f, MANY, block=50, method=method))
    for workers in (1, 3):
        options = {"method": method, "workers": workers}
        assert np.array_equal(calipers.vjp(f, MANY, w, **options), expected)
        other = list(calipers.jacobian_blocks(f, MANY, block=50, **options))
        assert all(np.array_equal(a[1], b[1]) for a, b in zip(blocks, other, strict=True))


@pytest.mark.parametrize("method", ["3-point", "adaptive"])
def test_a_pool_changes_no_blocks(method):
    expected = list(calipers.jacobian_blocks(waves, MANY, block=50, method=method))
    with ThreadPoolExecutor(2) as pool:
        for workers in (pool, map):
            found = calipers.jacobian_blocks(waves, MANY, block=50, method=method, workers=workers)
            for (_, part), (_, other) in zip(found, expected, strict=True):
                assert np.array_equal(part, other)


def test_a_product_of_many_values_is_found_in_parts():
    weights = np.random.default_rng(3).uniform(-1, 1, (50_000, 4))
    w = np.random.default_rng(4).uniform(-1, 1, 50_000)
    found = calipers.vjp(lambda x: weights @ np.sin(x), X, w)
    assert_near(found, w @ weights * np.cos(X), 1e-8)


def test_threads_change_no_product():
    found = []
    for threads in (1, 2, 5):
        with calipers.num_threads(threads):
            found.append(calipers.vjp(slow, MANY, np.array([1.0, 0.3, -2.0])))
    assert np.array_equal(found[1], found[0])
    assert np.array_equal(found[2], found[0])


def test_a_map_may_be_lazy_and_out_of_order():
    def backwards(task, spans):
        return (task(span) for span in reversed(list(spans)))

    found = calipers.jacobian(waves, MANY, workers=backwards)
    assert np.array_equal(found, calipers.jacobian(waves, MANY))


def test_a_pool_of_threads_is_sent_nothing():
    with multiprocessing.pool.ThreadPool(2) as pool:
        found = calipers.jacobian(lambda x: waves(x), MANY, workers=pool.map)
    assert np.array_equal(found, calipers.jacobian(waves, MANY))


@pytest.mark.parametrize("workers", [0, -1, "x", 1.5, True, object()])
def test_workers_that_are_none_are_refused(workers):
    with pytest.raises((TypeError, ValueError), match="workers must be"):
        calipers.jacobian(waves, MANY, workers=workers)


@pytest.mark.parametrize("workers", [None, 2])
def test_workers_see_what_is_set_for_the_caller(workers):
    factor = contextvars.ContextVar("factor", default=1.0)
    factor.set(5.0)
    found = calipers.jacobian(lambda x: factor.get() * x, SIX, workers=workers)
    assert found[0, 0] == pytest.approx(5)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        calipers.jacobian(lambda x: x / (x * 0), SIX, workers=workers)


@pytest.mark.slow
def test_threads_enter_a_parallel_function_one_at_a_time():
    pytest.importorskip("scipy.sparse")
    # A process of its own: Numba's smallest layer of threads ends one that two threads enter.
    code = """
        from concurrent.futures import ThreadPoolExecutor
        import numba, numpy as np, calipers

        @numba.njit
        def slow(v):
            for k in range(2000):
                v += np.sin(v * k) - np.sin(v * k)
            return v

        @numba.njit(parallel=True)
        def f(x):
            y = np.empty_like(x)
            for i in numba.prange(x.size):
                y[i] = slow(x[i])
            return y

        @numba.njit(parallel=True)
        def twice(x):
            y = np.empty_like(x)
            for i in numba.prange(x.size):
                y[i] = slow(x[i])
            return y, y

        @numba.njit(parallel=True)
        def held(x):
            y = np.empty_like(x[0])
            for i in numba.prange(y.size):
                y[i] = slow(x[0][i])
            return y

        x = np.ones(40)
        for workers in (2, ThreadPoolExecutor(2)):
            assert np.allclose(calipers.jacobian(f, x, workers=workers), np.eye(40))
            found = calipers.jacobian(f, x, sparsity=(np.eye(40), np.arange(40)), workers=workers)
            assert np.allclose(found.toarray(), np.eye(40))
            eye = np.eye(40)
            assert calipers.gradcheck(f, x, jac=lambda x: eye, workers=workers)
            assert calipers.gradcheck(twice, x, jac=lambda x: (eye, eye), workers=workers)
            assert calipers.gradcheck(held, ((x,),), jac=lambda x: (eye,), workers=workers)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


class Parcel:
    """An argument of f that counts how often it is sent."""

    sent = 0

    def __init__(self, factor):
        self.factor = factor

    def __getstate__(self):
        Parcel.sent += 1
        return {"factor": self.factor}


def of_parcel(x, parcel):
    return parcel.factor * waves(x)


PROCESSES = """
    import json, multiprocessing, sys, traceback
    from concurrent.futures import ProcessPoolExecutor
    import numpy as np
    import calipers
    from tests.data import derivative_functions as d
    from tests.derivatives import test_workers as t

    def same(found, expected):
        assert np.array_equal(found.value, expected.value)
        assert np.array_equal(found.error, expected.error)

    def equal(pool):
        for method in ("3-point", "cs", "adaptive"):
            expected = calipers.differentiate(d.waves, d.MANY, method=method)
            same(calipers.differentiate(d.waves, d.MANY, method=method, workers=pool), expected)
        w = np.arange(6.0)
        expected = calipers.vjp(d.waves, d.MANY, w)
        assert np.array_equal(calipers.vjp(d.waves, d.MANY, w, workers=pool), expected)

    def compiled(pool):
        expected = calipers.jacobian(d.compiled_chain, d.X)
        assert np.array_equal(calipers.jacobian(d.compiled_chain, d.X, workers=pool), expected)

    def sent(pool):
        parcel, t.Parcel.sent = t.Parcel(2.0), 0
        found = calipers.jacobian(t.of_parcel, d.MANY, args=(parcel,), workers=pool)
        assert np.array_equal(found, calipers.jacobian(t.of_parcel, d.MANY, args=(parcel,)))
        assert t.Parcel.sent == 1, t.Parcel.sent

    def unsendable(pool):
        try:
            calipers.jacobian(lambda x: x, d.MANY, workers=pool)
        except TypeError as error:
            assert "top level of a module" in str(error), error
            assert "threads" in str(error), error
        else:
            raise AssertionError("a lambda was sent")

    def raising(pool):
        try:
            calipers.jacobian(d.refuses_in_python, np.arange(1.0, 7.0).reshape(2, 3), workers=pool)
        except d.Refused as error:
            assert error.args == ("other than six", 7), error.args
            assert any("x[1, 2]" in note for note in error.__notes__), error.__notes__
        else:
            raise AssertionError("nothing was raised")

    def progress(pool):
        seen = []
        calipers.jacobian(d.waves, d.MANY, workers=pool, progress=lambda *at: seen.append(at))
        assert seen == sorted(seen) and seen[-1] == (131, 131), seen

    tasks = (equal, compiled, sent, unsendable, raising, progress)

    def run(kind, pool):
        for task in tasks:
            try:
                task(pool)
                results[f"{kind} {task.__name__}"] = "passed"
            except Exception:
                results[f"{kind} {task.__name__}"] = traceback.format_exc()

    results = {}
    for kind in ("spawn", "fork"):
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(kind)) as pool:
            run(kind, pool)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        run("pool", pool.map)
    print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """Return what became of each task in processes, which this one should not fork."""
    folder = tmp_path_factory.mktemp("processes")
    code = f"import os; os.environ['TMPDIR'] = {str(folder)!r}\n" + textwrap.dedent(PROCESSES)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    results["left"] = [path.name for path in folder.glob("calipers*")]
    return results


@pytest.mark.parametrize("kind", ["spawn", "fork", "pool"])
@pytest.mark.parametrize("task", ["equal", "compiled", "sent", "unsendable", "raising", "progress"])
def test_processes_do_as_threads_do(processes, kind, task):
    result = processes[f"{kind} {task}"]
    assert result == "passed", result


def test_nothing_is_left_behind_by_processes(processes):
    assert processes["left"] == []


def test_a_process_reads_what_it_was_sent_once_and_keeps_no_more(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.write_bytes(pickle.dumps(Parcel(2.0)))
    found = _read(str(one))
    assert _read(str(one)) is found
    gone = weakref.ref(found)
    del found
    _read(str(other))
    assert gone() is None
    _read.cache_clear()


def test_a_pace_that_was_measured_while_the_machine_was_busy_is_mended():
    parts = []

    class Instant:
        problem = SimpleNamespace(
            native=SimpleNamespace(parallel=False, threads=2, begin=lambda: None)
        )

        def results(self, count):
            return (np.zeros(count),)

        def __call__(self, start, outs):
            parts.append(len(outs[0]))

    pace = Pace(seconds=1.0, runs=3)
    with calipers.num_threads(2):
        run(Instant(), 100, pace=pace)
        assert len(parts) > 1  # by threads, as the pace says
        parts.clear()
        run(Instant(), 100, pace=pace)
    assert parts == [100]


@pytest.mark.parametrize(
    ("count", "slow", "expected"),
    [(40, False, [40]), (70, False, [30, 40]), (120, False, [40, 40, 40]), (40, True, None)],
)
def test_rows_that_take_as_long_as_one_are_a_task_of_a_thread(count, slow, expected):
    parts = []

    class Together:
        problem = SimpleNamespace(
            native=SimpleNamespace(parallel=False, threads=4, begin=lambda: None),
            seconds=1.0,  # as f was compiled
            x=np.zeros(1),
            call=lambda x: time.sleep(0.02) if slow else x,
        )
        least_rows, calls = 40, 1

        def results(self, count):
            return (np.zeros(count),)

        def __call__(self, start, outs):
            parts.append(len(outs[0]))
            outs[0][:] = start + np.arange(len(outs[0]))
            time.sleep(2e-3)

    with calipers.num_threads(4):
        (found,) = run(Together(), count)
    assert np.array_equal(found, np.arange(count))
    if slow:
        assert parts[0] == 1
    else:
        assert sorted(parts) == expected


def test_few_adaptive_columns_of_a_compiled_function_are_computed_together(monkeypatch):
    sizes, at = [], ExtrapolatedColumns.at
    record = lambda self, columns, outs: (sizes.append(len(columns)), at(self, columns, outs))  # noqa: E731
    monkeypatch.setattr(ExtrapolatedColumns, "at", record)
    f = numba.njit(lambda x: x * x)
    calipers.jacobian(f, np.ones(20))  # compiles
    with calipers.num_threads(4):
        calipers.differentiate(f, np.ones(20))
    assert sizes == [20]


# Exceptions of f.


@pytest.mark.parametrize("workers", [2, map])
def test_exceptions_arrive_from_workers(workers):
    x = np.arange(1.0, 7.0).reshape(2, 3)
    with pytest.raises(Refused) as caught:
        calipers.jacobian(refuses_in_python, x, workers=workers)
    assert caught.value.args == ("other than six", 7)
    assert any("x[1, 2]" in note for note in caught.value.__notes__)


def test_exceptions_arrive_from_threads_of_a_compiled_loop():
    @numba.njit
    def refuses_the_last(x):
        y = np.zeros_like(x)
        for _ in range(2000):
            for i in range(x.size):
                y[i] += np.sin(x[i])
        if x[-1] != 1.0:
            raise KeyError("last")
        return y

    with calipers.num_threads(3), pytest.raises(KeyError, match="last") as caught:
        calipers.jacobian(refuses_the_last, np.ones(64))
    assert any("x[63]" in note for note in caught.value.__notes__)


# Progress.


@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"workers": map}])
@pytest.mark.parametrize("method", ["3-point", "cs", "adaptive"])
@pytest.mark.parametrize("f", [slow, waves], ids=["compiled", "python"])
def test_progress_rises_to_the_end(f, method, options):
    seen = []
    report = lambda done, total: seen.append((done, total))  # noqa: E731
    found = calipers.jacobian(f, MANY, method=method, progress=report, **options)
    assert np.array_equal(found, calipers.jacobian(f, MANY, method=method))
    done = [at[0] for at in seen]
    assert len(done) > 1
    assert done == sorted(set(done))
    assert done[-1] == 131
    assert {at[1] for at in seen} == {131}


def test_progress_is_reported_by_one_thread_at_a_time():
    alone, overlapping = threading.Lock(), []

    def report(done, total):
        if not alone.acquire(blocking=False):
            overlapping.append(done)
            return
        time.sleep(1e-3)
        alone.release()

    calipers.jacobian(waves, MANY, workers=4, progress=report)
    with calipers.num_threads(4):
        calipers.jacobian(slow, MANY, progress=report)
    assert overlapping == []


def test_an_exception_in_progress_cancels_what_a_pool_has_not_begun():
    def stop(done, total):
        raise Refused("enough")

    begun, go_on = [], threading.Event()

    def f(x):
        begun.append(x)
        if len(begun) > 151:  # the base, and the first of the four parts of a pool of one
            go_on.wait(10)
        return waves(x)

    with ThreadPoolExecutor(1) as pool:
        try:
            with pytest.raises(Refused, match="enough"):
                calipers.jacobian(f, np.ones(300), workers=pool, progress=stop)
        finally:
            go_on.set()
    assert len(begun) <= 301


@pytest.mark.parametrize("workers", [None, 1, 2, map])
@pytest.mark.parametrize("method", ["3-point", "adaptive"])
def test_an_exception_in_progress_stops_the_work(method, workers):
    def stop(done, total):
        raise Refused("enough")

    f, seen = counted(waves)
    with pytest.raises(Refused, match="enough"):
        calipers.jacobian(f, np.ones(300), method=method, workers=workers, progress=stop)
    assert len(seen) < 0.9 * calipers.differentiate(waves, np.ones(300), method=method).nfev


def test_an_exception_in_progress_stops_a_compiled_loop():
    def stop(done, total):
        raise KeyboardInterrupt

    with calipers.num_threads(3), pytest.raises(KeyboardInterrupt):
        calipers.jacobian(slow, MANY, progress=stop)


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("installed", [True, False])
def test_progress_is_shown_on_stderr(capsys, monkeypatch, workers, installed):
    if installed:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    calipers.jacobian(waves, MANY, progress=True, workers=workers)
    calipers.hessian(lambda x: np.sum(x**3), X, progress=True)
    shown = capsys.readouterr()
    assert "131" in shown.err
    assert shown.out == ""


def test_what_a_callable_of_the_users_holds_is_not_asked_about():
    class Holds:
        def __call__(self, x):
            return x**2

        @property
        def inner(self):
            return self

    found = calipers.jacobian(Holds(), np.ones(3), workers=2)
    assert np.allclose(found, 2 * np.eye(3))
    with ProcessPoolExecutor(1) as pool, pytest.raises(TypeError, match=r"f \(.*Holds\)"):
        calipers.jacobian(Holds(), np.ones(3), workers=pool)  # and no endless way inwards


def test_a_function_of_another_library_is_named_if_it_cannot_be_sent():
    torch = pytest.importorskip("torch")
    with ProcessPoolExecutor(1) as pool, pytest.raises(TypeError, match=r"f \(.*<lambda>\)"):
        calipers.jacobian(lambda x: x**2, torch.ones(3), workers=pool)


def test_progress_without_stderr_is_not_written_elsewhere(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys, "stderr", None)
    calipers.jacobian(waves, np.ones(20), progress=True)
    assert capsys.readouterr().out == ""
