"""Derivatives by pools of processes, clusters and MPI ranks, and what is kept of long runs.

Workers are real processes, which are killed where it says so.
"""

import itertools
import json
import multiprocessing
import multiprocessing.pool
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections import Counter
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numba
import numpy as np
import pytest

import calipers
from calipers._derivatives import function as problems
from calipers._execution import checkpoint as checkpoints
from calipers._execution import run as progresses
from calipers._execution import run as runs
from calipers._execution import workers as pools
from calipers._execution.checkpoint import digest
from calipers._execution.run import task_rows
from calipers._gradcheck import function_at_point as subjects
from calipers._gradcheck import summary as entries
from tests.data.derivative_functions import SIX

ROOT = Path(__file__).parents[2]
X = np.linspace(-1.5, 2.5, 23)
METHODS = ["2-point", "3-point", "5-point", "cs", "adaptive"]


def waves(x):
    k = np.arange(1, 6, dtype=x.real.dtype)[:, None]
    return np.sin(k * x).sum(axis=1) + (x * x).sum()


def chain(x):
    return np.concatenate([x[:-1] * x[1:], x[-1:] ** 2])


def number(x):
    return np.sin(x).sum() * x[0] + np.prod(x[:3])


def slope(x):
    return np.cos(x) * (1 + x[::-1])


def noted(x, path, seconds=0.0):
    """Note who was asked for which column, and be slow."""
    moved = np.flatnonzero(x != X[: len(x)])
    line = f"{os.getpid()} {moved[0] if len(moved) else -1}\n"
    with open(path, "ab", buffering=0) as stream:
        stream.write(line.encode())
    time.sleep(seconds)
    return waves(x)


def asked(path):
    """Return the lines of `noted`: processes and columns."""
    return [tuple(map(int, line.split())) for line in Path(path).read_text().splitlines()]


class Parcel:
    """An argument that notes who unpickles it."""

    def __init__(self, path):
        self.path = path

    def __setstate__(self, state):
        self.__dict__.update(state)
        with open(self.path, "ab", buffering=0) as stream:
            stream.write(f"{os.getpid()}\n".encode())


def of_parcel(x, parcel):
    time.sleep(2e-3)
    return waves(x)


def refuses(x):
    if x[1, 2] != 6.0:
        raise KeyError("other than six", 7)
    return x


def kills(x, path, column, times=1):
    """Kill the process that is asked for a column, the first time, or the first times."""
    path = Path(path)
    before = len(list(path.parent.glob(f"{path.name}*")))
    if x[column] != X[column] and before < times:
        path.with_name(f"{path.name}{before or ''}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return waves(x)


def always_kills(x):
    if x[9] != X[9]:
        os.kill(os.getpid(), signal.SIGKILL)
    return waves(x)


def same(found, expected):
    """Tell whether derivatives are bitwise the same."""
    if isinstance(found, tuple):
        return all(map(same, found, expected))
    if isinstance(found, np.ndarray):
        if found.dtype == np.longdouble:  # there may be anything behind its digits
            return expected.dtype == found.dtype and np.array_equal(found, expected)
        return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()
    names = "value", "error", "step", "status"
    pairs = [(getattr(found, name), getattr(expected, name)) for name in names]
    return found.nfev == expected.nfev and all(same(a, b) for a, b in pairs)


# Clusters of dask.


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


def what_is_there(client):
    """Return how many tasks and data are on a cluster, once it has forgotten what it should."""

    def count(dask_scheduler):
        return len(dask_scheduler.tasks)

    for _ in range(50):
        left = client.run_on_scheduler(count)
        if not left and not client.futures:
            break
        time.sleep(0.05)
    return left, len(client.futures)


KINDS = {
    "float64": (X, {}),
    "float32": (X.astype(np.float32), {}),
    "holomorphic": (X[:7] + 1j * X[2:9], {"holomorphic": True}),
    "wirtinger": (X[:7] + 1j * X[2:9], {}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_a_cluster_changes_nothing(client, method, kind):
    x, options = KINDS[kind]
    if method == "cs" and x.dtype.kind == "c":
        pytest.skip("the complex step is for real x")
    expected = calipers.differentiate(waves, x, method=method, **options)
    assert same(
        calipers.differentiate(waves, x, method=method, workers=client, **options), expected
    )
    jacobian = calipers.jacobian(waves, x, method=method, workers=client, **options)
    assert same(jacobian, calipers.jacobian(waves, x, method=method, **options))
    assert what_is_there(client) == (0, 0)


def test_a_cluster_changes_no_hessian(client):
    x = X[:6]
    assert same(calipers.hessian(number, x, workers=client), calipers.hessian(number, x))
    found = calipers.hessian(None, x, gradient=slope, workers=client)
    assert same(found, calipers.hessian(None, x, gradient=slope))


def test_a_cluster_changes_no_check(client):
    for jac in (waves_jacobian, wrong_jacobian):
        options = {"jac": jac, "raise_exception": False}
        expected = calipers.gradcheck(lambda x: waves(x), X, **options)
        assert calipers.gradcheck(lambda x: waves(x), X, workers=client, **options) == expected
    assert what_is_there(client) == (0, 0)


def test_a_cluster_changes_no_sparse_jacobian(client):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    pattern = scipy_sparse.diags([np.ones(23), np.ones(22)], [0, 1])
    for method in ("2-point", "3-point", "adaptive"):
        options = {"method": method, "sparsity": pattern}
        found = calipers.jacobian(chain, X, workers=client, **options)
        assert same(found.data, calipers.jacobian(chain, X, **options).data)


@numba.njit
def compiled_chain(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = x[i] * x[(i + 1) % x.size]
    return y


def test_a_cluster_runs_compiled_functions(client):
    for method in ("3-point", "adaptive"):
        found = calipers.differentiate(compiled_chain, X, method=method, workers=client)
        assert same(found, calipers.differentiate(compiled_chain, X, method=method))


def test_a_cluster_takes_lambdas_and_closures(client):
    factor = 3.0
    found = calipers.jacobian(lambda x: factor * waves(x), X, workers=client)
    assert same(found, calipers.jacobian(lambda x: factor * waves(x), X))


def test_a_clusters_map_is_the_cluster(client):
    assert same(calipers.jacobian(waves, X, workers=client.map), calipers.jacobian(waves, X))
    executor = client.get_executor()
    assert same(calipers.jacobian(waves, X, workers=executor), calipers.jacobian(waves, X))


def test_processes_of_a_cluster_unpickle_once_for_all_their_threads(client, tmp_path):
    path = tmp_path / "unpickled"
    calipers.jacobian(of_parcel, np.ones(60), args=(Parcel(str(path)),), workers=client)
    times = Counter(path.read_text().split())
    assert 1 <= len(times) <= 2
    assert set(times.values()) == {1}


def test_a_lost_worker_changes_nothing(client, tmp_path):
    path = str(tmp_path / "calls")

    def kill_one():
        while not os.path.exists(path) or len(asked(path)) < 12:
            time.sleep(0.01)
        os.kill(next(pid for pid, _ in asked(path) if pid != os.getpid()), signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    found = calipers.jacobian(noted, X, args=(path, 0.1), workers=client)
    killer.join()
    assert same(found, calipers.jacobian(waves, X))
    assert len(asked(path)) > 47  # what was lost was asked for again
    assert what_is_there(client) == (0, 0)


@pytest.fixture
def lonely():
    """Return a client whose cluster has one worker."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


@pytest.mark.slow
def test_work_is_sent_again_where_all_who_had_it_are_lost(lonely, tmp_path):
    found = calipers.jacobian(kills, X, args=(str(tmp_path / "killed"), 9), workers=lonely)
    assert (tmp_path / "killed").exists()
    assert same(found, calipers.jacobian(waves, X))
    assert what_is_there(lonely) == (0, 0)
    # A function that kills whoever calls it is given up.
    lonely.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0))
    with pytest.raises(Exception, match="workers died") as caught:
        calipers.jacobian(always_kills, X, workers=lonely)
    assert any("rows" in note for note in caught.value.__notes__)
    assert what_is_there(lonely) == (0, 0)
    lonely.cluster.scale(0)
    while lonely.nthreads():
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="without workers: see its wait_for_workers"):
        calipers.jacobian(waves, X, workers=lonely)


def test_exceptions_arrive_from_a_cluster(client):
    x = np.arange(1.0, 7.0).reshape(2, 3)
    with pytest.raises(KeyError) as caught:
        calipers.jacobian(refuses, x, workers=client)
    assert caught.value.args == ("other than six", 7)
    assert any("x[1, 2]" in note for note in caught.value.__notes__)
    assert what_is_there(client) == (0, 0)


def test_an_exception_in_progress_leaves_nothing_on_a_cluster(client, tmp_path):
    def stop(done, total):
        raise ZeroDivisionError

    path = str(tmp_path / "calls")
    with pytest.raises(ZeroDivisionError) as caught:
        calipers.jacobian(noted, X, args=(path, 0.02), workers=client, progress=stop)
    assert caught.traceback  # it keeps the frames, and what they refer to
    assert what_is_there(client) == (0, 0)
    assert len(asked(path)) < 47


def test_an_interrupt_leaves_nothing_on_a_cluster(client, tmp_path):
    path = tmp_path / "calls"

    def interrupt():
        while not path.exists() or len(asked(path)) < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    killer = threading.Thread(target=interrupt)
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        calipers.jacobian(noted, X, args=(str(path), 0.1), workers=client)
    killer.join()
    assert what_is_there(client) == (0, 0)
    assert len(asked(path)) < 47


def test_what_cannot_be_sent_to_a_cluster_is_named(client, tmp_path):
    lock = threading.Lock()

    def locked(x):
        with lock:
            return waves(x)

    with pytest.raises(TypeError, match=r"f \(.*locked\) cannot be sent.*lock.*threads"):
        calipers.jacobian(locked, X, workers=client, checkpoint=tmp_path / "kept")
    with pytest.raises(TypeError, match=r"argument 1 of f, a lock, cannot be sent.*pass one"):
        calipers.jacobian(of_parcel, X, args=(lock,), workers=client)
    assert what_is_there(client) == (0, 0)
    assert not (tmp_path / "kept").exists()


def test_an_asynchronous_client_is_refused():
    distributed = pytest.importorskip("distributed")

    class Asynchronous(distributed.Client):
        asynchronous = True

        def __init__(self):
            pass

        def __del__(self):
            pass

    with pytest.raises(TypeError, match="asynchronous"):
        calipers.jacobian(waves, X, workers=Asynchronous())


# How much a task is.


class CountingExecutor(Executor):
    """An executor in this process that notes what it is asked."""

    _max_workers = 2

    def __init__(self):
        self.asked = []

    def submit(self, call, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        self.asked.append(args)
        return future

    @property
    def spans(self):
        return [span for args in self.asked for span in args if isinstance(span, tuple)]


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that goes as it is told."""
    now = [0.0]
    stopped = types.SimpleNamespace(perf_counter=lambda: now[0])
    for module in (problems, progresses, subjects):
        monkeypatch.setattr(module, "time", stopped)
    return now


def lasting(seconds, clock):
    """Return a function that takes so long at x, and no time anywhere else."""

    def f(x):
        clock[0] += seconds * np.array_equal(x, X)
        return waves(x)

    return f


@pytest.mark.parametrize(
    ("seconds", "method", "tasks"),
    [
        (0.0, "3-point", 4),
        (1e-4, "3-point", 4),
        (1e-3, "3-point", 5),
        (0.06, "5-point", 8),
        (0.3, "2-point", 8),
        (0.3, "3-point", 23),
        (0.1, "adaptive", 23),
        (5.0, "cs", 23),
    ],
)
def test_tasks_are_sized_by_a_call(seconds, method, tasks, clock):
    pool = CountingExecutor()
    found = calipers.jacobian(lasting(seconds, clock), X, method=method, workers=pool)
    assert same(found, calipers.jacobian(waves, X, method=method))
    assert len(pool.spans) == tasks


def test_tasks_of_a_check_are_sized_by_a_call(clock):
    pool = CountingExecutor()
    assert calipers.gradcheck(lasting(0.3, clock), X, jac=waves_jacobian, workers=pool)
    assert len(pool.spans) == 23


@pytest.mark.parametrize(("seconds", "tasks"), [(1.0, 23), (1e-3, 5), (0.0, 4)])
def test_compiling_is_not_taken_for_a_call(seconds, tasks, monkeypatch):
    pool, started = CountingExecutor(), iter([0.0, 60.0])  # the first call compiles, the next not
    first = types.SimpleNamespace(perf_counter=lambda: next(started))
    monkeypatch.setattr(problems, "time", first)
    later = itertools.count()
    second = types.SimpleNamespace(perf_counter=lambda: seconds * next(later))
    monkeypatch.setattr(runs, "time", second)
    found = calipers.jacobian(compiled_chain, X, workers=pool)
    monkeypatch.undo()
    assert same(found, calipers.jacobian(compiled_chain, X))
    assert len(pool.spans) == tasks


def test_what_is_left_of_a_run_is_for_all_workers(tmp_path):
    pool, given = CountingExecutor(), {"checkpoint": tmp_path / "kept"}
    x = np.linspace(0, 1, 800)
    calipers.jacobian(waves, x, **given)
    sorted((tmp_path / "kept").glob("rows-*"))[0].unlink()
    assert same(calipers.jacobian(waves, x, workers=pool, **given), calipers.jacobian(waves, x))
    assert len(pool.spans) >= 4


class Row:
    """Work of which a row takes so many bytes."""

    def __init__(self, size=8):
        self.size = size

    def results(self, count):
        return (np.broadcast_to(np.uint8(0), (count, self.size)),)


@pytest.mark.parametrize("workers", [1, 2, 16, 300])
@pytest.mark.parametrize("seconds", [0.0, 1e-6, 1e-4, 1e-3, 5e-3, 0.02, 0.3, 1.0, 60.0])
@pytest.mark.parametrize("count", [1, 7, 1000, 100_000])
def test_tasks_are_neither_long_nor_short_nor_few(count, seconds, workers):
    rows = task_rows(Row(), count, workers, seconds)
    tasks = -(-count // rows)
    assert rows == 1 or rows * seconds <= 1.0
    assert rows * seconds >= 0.01 or tasks <= 4 or count <= 4
    if tasks < min(count, 4 * workers) * 0.7:  # fewer than four for each
        assert rows == 1 or (rows - 1) * seconds < 0.01


def test_results_on_their_way_are_not_too_large():
    assert task_rows(Row(1 << 24), 1000, 1, 1e-6) == 4
    assert task_rows(Row(1 << 30), 1000, 1, 1e-6) == 1


# Ranks of MPI.

MPI = """
    import json, os, sys, traceback
    import numpy as np
    from mpi4py import MPI
    from mpi4py.futures import MPIPoolExecutor
    import calipers
    from calipers._execution.tasks import Message
    from tests.derivatives import test_distributed as t

    folder, x = sys.argv[1], t.X

    def scripts_own(x):
        return t.waves(x)[::-1]

    class Counting:
        '''Counts the messages, which an executor is asked to send.'''
        def __init__(self, pool):
            self.pool, self.messages, self.tasks = pool, 0, 0
            self.submit_itself = pool.submit
            pool.submit = self.submit
        def submit(self, call, *args):
            self.tasks += 1
            self.messages += any(isinstance(a, Message) for a in args)
            return self.submit_itself(call, *args)

    def jacobian(pool):
        for method in t.METHODS:
            expected = calipers.differentiate(t.waves, x, method=method)
            found = calipers.differentiate(t.waves, x, method=method, workers=pool)
            assert t.same(found, expected)
        assert t.same(
            calipers.jacobian(scripts_own, x, workers=pool), calipers.jacobian(scripts_own, x)
        )

    def kinds(pool):
        for x, options in t.KINDS.values():
            found = calipers.jacobian(t.waves, x, workers=pool, **options)
            assert t.same(found, calipers.jacobian(t.waves, x, **options))

    def hessian(pool):
        x = t.X[:6]
        found = calipers.hessian(t.number, x, workers=pool)
        assert t.same(found, calipers.hessian(t.number, x))
        found = calipers.hessian(None, x, gradient=t.slope, workers=pool)
        assert t.same(found, calipers.hessian(None, x, gradient=t.slope))

    def gradcheck(pool):
        assert calipers.gradcheck(t.waves, x, jac=t.waves_jacobian, workers=pool)
        report = calipers.gradcheck(
            t.waves, x, jac=t.wrong_jacobian, workers=pool, raise_exception=False
        )
        serial = calipers.gradcheck(t.waves, x, jac=t.wrong_jacobian, raise_exception=False)
        assert not report and report.failures == serial.failures
        assert report.calls == serial.calls and report.reason == serial.reason

    def sent(pool):
        path = os.path.join(folder, "unpickled")
        parcel, counting = t.Parcel(path), Counting(pool)
        try:
            calipers.jacobian(t.of_parcel, np.ones(200), args=(parcel,), workers=pool)
        finally:
            del pool.submit
        lines = open(path).read().split()
        assert len(lines) == len(set(lines)) == 2, lines
        assert counting.messages == 2, counting.messages
        assert counting.tasks >= 8, counting.tasks

    def raising(pool):
        try:
            calipers.jacobian(t.refuses, np.arange(1.0, 7.0).reshape(2, 3), workers=pool)
        except KeyError as error:
            assert error.args == ("other than six", 7), error.args
            assert any("x[1, 2]" in note for note in error.__notes__), error.__notes__
        else:
            raise AssertionError("nothing was raised")

    def unsendable(pool):
        try:
            calipers.jacobian(lambda x: x, x, workers=pool)
        except TypeError as error:
            assert "lambda" in str(error) and "top level of a module" in str(error), error
        else:
            raise AssertionError("a lambda was sent")

    def kept(pool):
        path = os.path.join(folder, "kept")
        calls = os.path.join(folder, "calls")
        given = {"args": (calls,), "checkpoint": path}
        found = calipers.jacobian(t.noted, x, workers=pool, **given)
        assert t.same(found, calipers.jacobian(t.waves, x))
        before = len(t.asked(calls))
        assert t.same(calipers.jacobian(t.noted, x, workers=pool, **given), found)
        assert len(t.asked(calls)) == before + 1

    if __name__ == "__main__":
        results = {"ranks": MPI.COMM_WORLD.size}
        with MPIPoolExecutor() as pool:
            results["workers"] = pool.num_workers
            tasks = jacobian, kinds, hessian, gradcheck, sent, raising, unsendable, kept
            for task in tasks:
                try:
                    task(pool)
                    results[task.__name__] = "passed"
                except BaseException:
                    results[task.__name__] = traceback.format_exc()
        print(json.dumps(results))
"""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def run_on_ranks(folder, text, check=True):
    """Run a script on three ranks, two of which are workers."""
    pytest.importorskip("mpi4py")
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun: install openmpi-bin")
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = ["mpirun", "--oversubscribe", "-n", "3", sys.executable, "-m", "mpi4py.futures"]
    done = subprocess.run(
        [*command, script, folder],
        cwd=ROOT,
        env={**os.environ, **allowed, **ONE_THREAD, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Return what became of each task on the ranks."""
    done = run_on_ranks(tmp_path_factory.mktemp("mpi"), MPI)
    return json.loads(done.stdout.splitlines()[-1])


def test_there_are_two_workers_among_three_ranks(ranks):
    assert ranks["ranks"] == 3
    assert ranks["workers"] == 2


@pytest.mark.parametrize(
    "task",
    ["jacobian", "kinds", "hessian", "gradcheck", "sent", "raising", "unsendable", "kept"],
)
def test_ranks_change_nothing(ranks, task):
    assert ranks[task] == "passed", ranks[task]


LOST_RANK = """
    import sys
    import numpy as np
    from mpi4py.futures import MPIPoolExecutor
    import calipers
    from tests.derivatives import test_distributed as t

    if __name__ == "__main__":
        folder = sys.argv[1]
        with MPIPoolExecutor() as pool:
            found = calipers.jacobian(
                t.ends_its_rank, t.X, args=(folder,), workers=pool, checkpoint=folder + "/kept"
            )
        assert t.same(found, calipers.jacobian(t.waves, t.X))
        print("done")
"""


def ends_its_rank(x, folder):
    """Kill the process that asks for a late column, once."""
    flag = Path(folder, "killed")
    if x[-3] != X[-3] and not flag.exists():
        while not list(Path(folder, "kept").glob("rows-*")):
            time.sleep(0.01)
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return noted(x, Path(folder, "calls"))


def test_a_lost_rank_ends_the_job_and_its_checkpoint_goes_on(tmp_path):
    # MPI ends all ranks where one is lost; what they have done is kept.
    assert run_on_ranks(tmp_path, LOST_RANK, check=False).returncode != 0
    before = len(asked(tmp_path / "calls"))
    assert run_on_ranks(tmp_path, LOST_RANK).stdout.split()[-1] == "done"
    assert 0 < len(asked(tmp_path / "calls")) - before < 2 * X.size


# Pools of processes.

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(scope="module")
def pool():
    with ProcessPoolExecutor(2, mp_context=SPAWN) as found:
        yield found


@pytest.fixture(scope="module")
def old_pool():
    with SPAWN.Pool(2) as found:
        yield found
        found.close()
        found.join()


@pytest.fixture(params=["executor", "executor.map", "pool", "pool.map", "map", "threads"])
def workers(request):
    if request.param == "threads":
        return 3
    if request.param == "map":
        return map
    name, _, method = request.param.partition(".")
    found = request.getfixturevalue({"executor": "pool", "pool": "old_pool"}[name])
    return getattr(found, method) if method else found


@pytest.mark.parametrize("method", METHODS)
def test_pools_change_nothing(workers, method):
    for kind, (x, options) in KINDS.items():
        if method == "cs" and x.dtype.kind == "c":
            continue
        expected = calipers.differentiate(waves, x, method=method, **options)
        found = calipers.differentiate(waves, x, method=method, workers=workers, **options)
        assert same(found, expected), kind


def test_pools_change_no_hessian(workers):
    x = X[:5]
    assert same(calipers.hessian(number, x, workers=workers), calipers.hessian(number, x))


def test_pools_change_no_blocks(workers):
    for method in ("3-point", "adaptive"):
        options = {"method": method, "block": 10}
        expected = list(calipers.jacobian_blocks(waves, X, **options))
        found = list(calipers.jacobian_blocks(waves, X, workers=workers, **options))
        assert [columns for columns, _ in found] == [columns for columns, _ in expected]
        assert all(same(a[1], b[1]) for a, b in zip(found, expected, strict=True))


def waves_jacobian(x):
    k = np.arange(1, 6)[:, None]
    return k * np.cos(k * x) + 2 * x


def wrong_jacobian(x):
    found = waves_jacobian(x)
    found[1, 4] *= 1.01
    found[3, 9:12] += 0.5
    return found


CHECKS = {
    "right": waves_jacobian,
    "wrong": wrong_jacobian,
}


@pytest.mark.parametrize("bounds", [None, (X - 1e-9, np.inf)])
@pytest.mark.parametrize("check", CHECKS)
def test_pools_change_no_check(workers, check, bounds):
    options = {"jac": CHECKS[check], "raise_exception": False, "bounds": bounds}
    expected = calipers.gradcheck(waves, X, **options)
    assert bool(expected) == (check == "right")
    found = calipers.gradcheck(waves, X, workers=workers, **options)
    assert found == expected


def test_entries_that_a_check_shows_do_not_depend_on_who_is_first(monkeypatch):
    def backwards(task, spans):
        return [task(span) for span in reversed(spans)]

    monkeypatch.setattr(entries, "_MAX_ENTRIES", 3)
    options = {"jac": wrong_jacobian, "raise_exception": False}
    expected = calipers.gradcheck(waves, X, **options)
    assert len(expected.failures) == 3
    assert calipers.gradcheck(waves, X, workers=backwards, **options) == expected


def test_a_check_sends_its_work_once_for_each_look(tmp_path):
    path = tmp_path / "unpickled"
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        calipers.gradcheck(
            of_parcel,
            X,
            args=(Parcel(str(path)),),
            jac=lambda x, _: wrong_jacobian(x),
            raise_exception=False,
            workers=pool,
        )
    assert len(path.read_text().split()) == 3  # the last one asks whether wrong slopes add up


def test_a_broken_pool_says_what_is_missing_and_keeps_the_rest(tmp_path):
    kept = tmp_path / "kept"
    given = {"args": (str(tmp_path / "killed"), 20, 2), "checkpoint": kept}
    told = r"columns \d+ to 22 are missing.*new pool.*finished columns are in checkpoint="
    broken = ProcessPoolExecutor(1, mp_context=SPAWN)
    with (
        broken,
        pytest.raises(BrokenProcessPool, match=told),
        pytest.warns(match="the others"),
    ):
        calipers.jacobian(kills, X, workers=broken, **given)
    done = checkpoints.Checkpoint(kept).spans()
    assert done
    assert done[0][0] == 0
    seen = []
    with ProcessPoolExecutor(1, mp_context=SPAWN) as anew:
        found = calipers.jacobian(
            kills, X, workers=anew, progress=lambda *at: seen.append(at[0]), **given
        )
    assert same(found, calipers.jacobian(waves, X))
    assert seen[0] == done[0][1] - done[0][0]


@pytest.mark.slow
def test_what_a_broken_pool_left_is_done_by_another(tmp_path):
    given = {"args": (str(tmp_path / "killed"), 20)}
    with (
        ProcessPoolExecutor(2, mp_context=SPAWN) as broken,
        pytest.warns(RuntimeWarning, match=r"a process of the pool was lost .*: the others"),
    ):
        found = calipers.jacobian(kills, X, workers=broken, **given)
    assert same(found, calipers.jacobian(waves, X))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_pool_that_is_made_anew_renews_its_processes_as_often():
    given = {"mp_context": get_context("spawn"), "max_tasks_per_child": 3}
    with ProcessPoolExecutor(1, **given) as broken, pools.replacement_pool(broken) as pool:
        assert pool._max_tasks_per_child == 3


@pytest.mark.parametrize("checkpoint", [""])
def test_no_name_is_no_folder(checkpoint):
    with pytest.raises(ValueError, match="checkpoint must be the path of a folder, got ''"):
        calipers.jacobian(waves, X, checkpoint=checkpoint)


def test_a_closed_client_is_named(client):
    distributed = pytest.importorskip("distributed")
    closed = distributed.Client(client.cluster)
    closed.close()
    with pytest.raises(RuntimeError, match="workers is a Client whose status is closed"):
        calipers.jacobian(waves, X, workers=closed)


def test_what_an_old_pool_lost_is_done_again(tmp_path):
    with SPAWN.Pool(2) as pool:
        with pytest.warns(RuntimeWarning, match=r"of the pool ended.*: the others continue"):
            found = calipers.jacobian(kills, X, args=(str(tmp_path / "killed"), 20), workers=pool)
        assert same(found, calipers.jacobian(waves, X))
        pool.terminate()


def test_a_lost_process_of_an_old_pool_is_not_waited_for():
    with SPAWN.Pool(2) as broken:
        with (
            pytest.warns(RuntimeWarning, match="the others continue"),
            pytest.raises(BrokenExecutor, match=r"a process of the pool ended.* missing"),
        ):
            calipers.jacobian(always_kills, X, workers=broken)
        broken.terminate()


class LostOnTheWayError(Exception):
    """What is pickled, and cannot be unpickled."""

    def __init__(self, column, cause):
        super().__init__(f"column {column}: {cause}")


def raises_what_is_lost(x):
    if x[3] != X[3]:
        raise LostOnTheWayError(3, "bad luck")
    return waves(x)


def refuses_a_column(x, path):
    if x[3] != X[3]:
        raise KeyError(3)
    return noted(x, path, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["executor", "pool", "unknown"])
def test_what_f_raises_arrives_though_it_cannot_be_unpickled(kind):
    # Its own process: a pool that trips over the error waits forever.
    code = """
        import sys, multiprocessing
        from concurrent.futures import Executor, ProcessPoolExecutor
        import calipers
        from tests.derivatives import test_distributed as t

        class Unknown(Executor):
            def submit(self, call, /, *args):
                return processes.submit(call, *args)

        with ProcessPoolExecutor(2, mp_context=t.SPAWN) as processes, t.SPAWN.Pool(2) as pool:
            workers = {"executor": processes, "pool": pool, "unknown": Unknown()}[sys.argv[1]]
            try:
                calipers.jacobian(t.raises_what_is_lost, t.X, workers=workers)
            except RuntimeError as error:
                print(error, error.__notes__)
            found = calipers.jacobian(t.waves, t.X, workers=workers)
            assert t.same(found, calipers.jacobian(t.waves, t.X))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = "f raised LostOnTheWayError, which cannot be sent between processes: column 3: bad luck"
    assert told in done.stdout, done.stderr
    assert "x[3] perturbed" in done.stdout
    assert done.returncode == 0, done.stderr


def test_an_old_pool_is_left_with_little_to_do(tmp_path):
    path = tmp_path / "asked"
    with SPAWN.Pool(2) as pool:
        with pytest.raises(KeyError):
            calipers.jacobian(refuses_a_column, X, args=(str(path),), workers=pool)
        pool.apply(abs, (-1,))
        pool.close()
        pool.join()
    assert {column for _, column in asked(path)} <= set(range(-1, 10))


@pytest.mark.parametrize("name", ["imap", "imap_unordered"])
def test_every_map_of_an_old_pool_is_the_pool(old_pool, name):
    with pytest.raises(TypeError, match=r"f \(.*<lambda>\) cannot be sent to other processes"):
        calipers.jacobian(lambda x: x, X, workers=getattr(old_pool, name))
    found = calipers.jacobian(waves, X, workers=getattr(old_pool, name))
    assert same(found, calipers.jacobian(waves, X))


@pytest.mark.parametrize("method", ["", "map"])
@pytest.mark.parametrize(
    "make", [ThreadPoolExecutor, ProcessPoolExecutor, SPAWN.Pool, multiprocessing.pool.ThreadPool]
)
def test_a_pool_that_was_shut_down_is_named(make, method):
    with make(1) as closed:
        pass
    name = type(closed).__name__
    workers = getattr(closed, method) if method else closed
    with pytest.raises(
        RuntimeError, match=f"workers is a {name} that was shut down: pass an open one"
    ):
        calipers.jacobian(waves, X, workers=workers)


@pytest.mark.parametrize("found", [None, 3, [1, 2], [None]])
def test_a_map_that_returns_something_else_is_told_what_it_has_to(found):
    with pytest.raises(
        TypeError, match=r"workers returned .*: workers\(function, items\) must return"
    ):
        calipers.jacobian(waves, X, workers=lambda function, items: found)


def test_the_class_of_an_executor_is_none():
    with pytest.raises(TypeError, match=r"workers must be .*, got the class ThreadPoolExecutor"):
        calipers.jacobian(waves, X, workers=ThreadPoolExecutor)


def test_a_map_that_loses_results_is_refused():
    def forgetful(task, spans):
        return [task(span) for span in spans[1:]]

    with pytest.raises(RuntimeError, match=r"no results for columns 0 to \d+"):
        calipers.jacobian(waves, X, workers=forgetful)


class Pool:
    """What has a map."""

    def map(self, task, spans):
        return [task(span) for span in spans]


def test_whatever_has_a_map_is_a_pool():
    assert same(calipers.jacobian(waves, X, workers=Pool()), calipers.jacobian(waves, X))


def test_an_executor_in_this_process_is_sent_nothing():
    found = calipers.jacobian(lambda x: waves(x), X, workers=CountingExecutor())
    assert same(found, calipers.jacobian(waves, X))


def test_an_executor_that_is_elsewhere_gets_the_work_with_a_task(tmp_path, pool):
    class Unknown(Executor):
        _max_workers = 2
        messages = 0

        def submit(self, call, /, *args):
            self.messages += len(args) == 2
            return pool.submit(call, *args)

    executor = Unknown()
    path = tmp_path / "unpickled"
    calipers.jacobian(of_parcel, np.ones(100), args=(Parcel(str(path)),), workers=executor)
    lines = path.read_text().split()
    assert len(lines) == len(set(lines))  # however often it was sent
    assert len(lines) <= executor.messages <= 4
    with pytest.raises(TypeError, match=r"f \(.*lambda.*\) cannot be sent.*top level"):
        calipers.jacobian(lambda x: waves(x), X, workers=executor)


def test_what_cannot_be_pickled_is_named_and_leaves_nothing(workers, tmp_path, monkeypatch):
    if workers == 3 or workers is map:
        pytest.skip("nothing is sent")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(TypeError, match=r"f \(.*<lambda>\) cannot be sent.*top level of a module"):
        calipers.jacobian(lambda x: x, X, workers=workers, checkpoint=tmp_path / "kept")
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"argument lock of f, a lock, cannot be sent"):
        calipers.jacobian(lambda x, lock: x, X, kwargs={"lock": lock}, workers=workers)
    with pytest.raises(TypeError, match=r"f \(.*<lambda>\) cannot be sent"):
        calipers.gradcheck(
            lambda x: np.sin(x), X, jac=lambda x: np.diag(np.cos(x)), workers=workers
        )
    assert list(tmp_path.iterdir()) == []


# What is kept of a run.

SLOW = """
    import sys
    import numpy as np
    import calipers
    from tests.derivatives import test_distributed as t
    what, folder, calls = sys.argv[1:4]
    workers = int(sys.argv[4]) or None
    given = {"args": (calls, 0.2), "checkpoint": folder, "workers": workers}
    x = t.X[:8]
    if what == "jacobian":
        calipers.jacobian(t.noted, x, method="2-point", **given)
    else:
        calipers.hessian(t.noted_number, x, **given)
"""


def noted_number(x, path, seconds):
    return noted(x, path, seconds / 200).sum()


def killed_in_the_middle(what, folder, calls, workers, lines):
    """Run in a process that is killed when so many calls are done."""
    run = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SLOW), what, folder, calls, str(workers)], cwd=ROOT
    )
    try:
        while run.poll() is None:
            if Path(calls).exists() and len(asked(calls)) >= lines:
                break
            time.sleep(0.01)
        assert run.poll() is None, "it ended before it was killed"
    finally:
        run.kill()
        run.wait()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_jacobian_goes_on_where_it_stopped(tmp_path, workers):
    folder, calls = str(tmp_path / "kept"), str(tmp_path / "calls")
    killed_in_the_middle("jacobian", folder, calls, workers, 7)
    (tmp_path / "calls").rename(tmp_path / "first")
    done = [k for a, b in checkpoints.Checkpoint(folder).spans() for k in range(a, b)]
    assert 0 < len(done) < 8
    given = {"method": "2-point", "args": (calls, 0.2), "checkpoint": folder}
    seen = []
    found = calipers.jacobian(
        noted, X[:8], workers=workers or None, progress=lambda *at: seen.append(at), **given
    )
    assert same(found, calipers.jacobian(waves, X[:8], method="2-point"))
    columns = sorted(column for _, column in asked(calls))
    assert columns == sorted([-1, *set(range(8)) - set(done)])
    assert seen[-1] == (8, 8)
    # And a third time nothing is asked but f(x).
    again = calipers.jacobian(noted, X[:8], **given)
    assert same(again, found)
    assert sorted(column for _, column in asked(calls)) == sorted([-1, *columns])


def test_a_killed_hessian_goes_on_where_it_stopped(tmp_path):
    folder, calls = str(tmp_path / "kept"), str(tmp_path / "calls")
    killed_in_the_middle("hessian", folder, calls, 0, 800)
    (tmp_path / "calls").rename(tmp_path / "first")
    done = sum(b - a for a, b in checkpoints.Checkpoint(folder).spans())
    assert 0 < done < 36
    found = calipers.hessian(noted_number, X[:8], args=(calls, 0.2), checkpoint=folder, workers=2)
    expected = calipers.hessian(lambda x: waves(x).sum(), X[:8])
    assert same(found, expected)
    assert len(asked(calls)) < expected.nfev - 20 * done


RUNS = {
    **{method: partial(calipers.differentiate, waves, X, method=method) for method in METHODS},
    "jacobian": partial(calipers.jacobian, waves, X),
    "adaptive jacobian": partial(calipers.jacobian, waves, X, method="adaptive"),
    "float32": partial(calipers.jacobian, waves, X.astype("f")),
    "longdouble": partial(calipers.jacobian, waves, X.astype("g")),
    "complex": partial(calipers.differentiate, waves, X + 1j),
    "holomorphic": partial(calipers.jacobian, waves, X + 1j, holomorphic=True),
    "bounds": partial(calipers.jacobian, waves, X, bounds=(X, X + 1)),
    "compiled": partial(calipers.jacobian, compiled_chain, X),
    "compiled adaptive": partial(calipers.differentiate, compiled_chain, X),
    "batched": partial(calipers.jacobian, lambda x: x * x[:, ::-1], X, batched=True),
    "rowwise": partial(calipers.jacobian, lambda i, x: x[i] ** 2, X, out_like=23, rowwise=True),
    "hessian": partial(calipers.hessian, number, X[:5]),
    "hessian of a gradient": partial(calipers.hessian, None, X[:5], gradient=slope),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_what_is_kept_is_bitwise_the_result(run, tmp_path):
    expected, folder = run(), tmp_path / "kept"
    assert same(run(checkpoint=folder), expected)
    parts = sorted(folder.glob("rows-*.npz"))
    assert len(parts) > 1
    assert same(run(checkpoint=folder), expected)
    for part in parts[1:]:
        part.unlink()
    assert same(run(checkpoint=str(folder), workers=2), expected)
    assert not list(folder.glob(".*"))


def test_sparse_jacobians_are_kept(tmp_path):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    pattern = scipy_sparse.diags([np.ones(23), np.ones(22)], [0, 1])
    for method in ("3-point", "5-point", "adaptive"):
        calls = []

        def counted(x, calls):
            calls.append(1)
            return chain(x)

        run = partial(
            calipers.jacobian, counted, X, kwargs={"calls": None}, method=method, sparsity=pattern
        )
        run.keywords["kwargs"] = {"calls": Silent(calls)}
        expected, folder = run(), tmp_path / method
        first = len(calls)
        assert same(run(checkpoint=folder).data, expected.data)
        assert len(calls) == 2 * first
        assert same(run(checkpoint=folder).data, expected.data)
        assert len(calls) <= 2 * first + 6  # at x, and along a random direction


class Silent:
    """A list of calls that is the same to others whatever it holds."""

    def __init__(self, calls):
        self.append = calls.append

    def __reduce__(self):
        return Silent, ([],)


def test_arguments_have_folders_of_their_own(tmp_path):
    run = partial(calipers.jacobian, np.multiply, (X, 2 * X), argnums=(0, 1))
    expected = run()
    for _ in range(2):
        assert same(run(checkpoint=tmp_path / "kept"), expected)
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["argument-0", "argument-1"]


def test_checks_are_kept_and_corrected_derivatives_compared_with_them(tmp_path):
    calls = str(tmp_path / "calls")
    run = partial(calipers.gradcheck, noted, X, args=(calls,), raise_exception=False)
    wrong = {"jac": lambda x, _: wrong_jacobian(x)}
    expected = run(**wrong)
    before = len(asked(calls))
    for workers in (None, 2, None):
        given = {"checkpoint": tmp_path / "kept", "workers": workers}
        assert run(**given, **wrong) == expected
    again = len(asked(calls)) - 2 * before
    assert again < 20, "what was kept was asked for again"
    total = len(asked(calls))
    assert run(jac=lambda x, _: waves_jacobian(x), checkpoint=tmp_path / "kept")
    assert len(asked(calls)) - total < 10
    names = sorted(str(p.relative_to(tmp_path / "kept")) for p in (tmp_path / "kept").glob("*/*"))
    points = [name for name in names if name.startswith("input-0/points-")]
    assert len(points) == 1
    assert names == ["input-0/first-look", *points, "input-0/second-look"]
    other = {"jac": lambda x, _: waves_jacobian(x), "checkpoint": tmp_path / "kept", "step": 1e-5}
    with pytest.raises(ValueError, match="belongs to a different step"):
        run(**other)


def test_inputs_of_a_check_have_folders_of_their_own(tmp_path):
    y = X[::-1].copy()
    run = partial(calipers.gradcheck, np.multiply, (X, y), vjp=lambda x, y, w: (w * y, w * x))
    for workers in (None, 2, None):
        assert run(checkpoint=tmp_path / "kept", workers=workers)
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["input-0", "input-1"]


# What is refused.


def power(x, k=2, *, shift=0.0):
    return x**k + shift


def other_power(x, k=2, *, shift=0.0):
    return x**k - shift


def with_constant(c):
    return lambda x: x**2 + 0 * c


OTHERS = {
    "f": ({"f": other_power}, "a different f"),
    "lambda": ({"f": lambda x, k=2, *, shift=0.0: x**2}, "a different f"),
    "partial": ({"f": partial(power, shift=0.0)}, "a different f"),
    "x": ({"x": X + 1e-9}, "a different x"),
    "dtype": ({"x": X.astype("f")}, "a different x"),
    "shape": ({"x": X[:, None]}, "a different x"),
    "args": ({"args": (3,)}, "different arguments"),
    "equal args": ({"args": (2.0,)}, "different arguments"),
    "kwargs": ({"kwargs": {"shift": 0.0}}, "different arguments"),
    "method": ({"method": "5-point"}, "a different method"),
    "adaptive": ({"method": "adaptive"}, "a different method"),
    "step": ({"step": 1e-4}, "a different step"),
    "scale": ({"scale": 2.0}, "a different step, scale"),
    "bounds": ({"bounds": (-10, 10)}, "a different step, scale, bounds"),
    "batched": ({"batched": True}, "a different form"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_checkpoints_of_something_else_are_refused(tmp_path, other):
    folder = tmp_path / "kept"
    own = {"f": power, "x": X, "args": (2,), "checkpoint": folder}
    calipers.jacobian(**own)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    change, told = OTHERS[other]
    with pytest.raises(ValueError, match=f"{re.escape(str(folder))}.*{told}.*delete this one"):
        calipers.jacobian(**{**own, **change})
    with pytest.raises(ValueError, match=told):
        calipers.jacobian(**{**own, **change, "workers": 2})
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_checkpoints_of_other_kinds_of_derivatives_are_refused(tmp_path):
    calipers.jacobian(number, X[:4], checkpoint=tmp_path / "kept", method="adaptive")
    for run in (calipers.hessian, calipers.differentiate):
        with pytest.raises(ValueError, match="a different method or kind of derivative"):
            run(number, X[:4], checkpoint=tmp_path / "kept")


def helped(x):
    return float(os.environ["CALIPERS_TEST_FACTOR"]) * x


def test_a_checkpoint_of_other_surroundings_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("CALIPERS_TEST_FACTOR", "1.0")
    calipers.jacobian(helped, X, checkpoint=tmp_path / "kept")
    monkeypatch.setenv("CALIPERS_TEST_FACTOR", "1.5")
    with pytest.raises(ValueError, match="a different value at x"):
        calipers.jacobian(helped, X, checkpoint=tmp_path / "kept")


def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    calipers.jacobian(waves, X, checkpoint=tmp_path / "kept")
    monkeypatch.setattr(checkpoints, "version", lambda name: "99")
    with pytest.raises(ValueError, match="a different version of calipers"):
        calipers.jacobian(waves, X, checkpoint=tmp_path / "kept")


def test_folders_that_are_none_of_ours_are_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("42")
    with pytest.raises(
        ValueError, match=r"holds 'thesis.tex' and is not a checkpoint.*empty or a new folder"
    ):
        calipers.jacobian(waves, X, checkpoint=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    for path in (tmp_path / "thesis.tex", tmp_path / "thesis.tex" / "kept"):
        with pytest.raises(
            NotADirectoryError, match=r"thesis.tex' to be a folder, but it is a file"
        ):
            calipers.jacobian(waves, X, checkpoint=path)
    with pytest.raises(TypeError, match="checkpoint must be the path of a folder, got int"):
        calipers.jacobian(waves, X, checkpoint=3)
    with pytest.raises(TypeError, match="checkpoint must be the path of a folder, got bool"):
        calipers.gradcheck(waves, X, jac=waves_jacobian, checkpoint=True)


@pytest.mark.parametrize(
    "run",
    [
        lambda **given: calipers.jvp(waves, X, X, **given),
        lambda **given: calipers.vjp(waves, X, np.ones(5), **given),
        lambda **given: calipers.linear_operator(waves, X, **given),
        lambda **given: list(calipers.jacobian_blocks(waves, X, **given)),
        lambda **given: calipers.jacobian_function(waves, X, **given),
    ],
)
def test_what_keeps_nothing_says_so(run, tmp_path):
    with pytest.raises(TypeError, match="'checkpoint'"):
        run(checkpoint=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_checks_of_second_derivatives_keep_nothing(tmp_path):
    with pytest.raises(ValueError, match="takes no checkpoint="):
        calipers.gradgradcheck(np.sin, X, vjp=lambda x, w: w * np.cos(x), checkpoint=tmp_path)


# Damage.


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)


def rename(path):
    path.rename(path.with_name("rows-0-2.npz"))


def replace(path):
    np.savez(path, np.zeros((1, 5), "f"), np.zeros(1, np.int8))


def trick(path):
    np.savez(path, np.array([print], object))


@pytest.mark.parametrize("damage", [cut, empty, flip, rename, replace, trick])
def test_damaged_files_are_computed_again(damage, tmp_path):
    folder, calls = tmp_path / "kept", tmp_path / "calls"
    x = X[:1]
    run = partial(calipers.jacobian, noted, x, args=(str(calls),), checkpoint=folder)
    expected = run()
    (path,) = folder.glob("rows-*.npz")
    damage(path)
    calls.unlink()
    assert same(run(), expected)
    assert len(asked(calls)) == 3
    assert same(run(), expected)
    assert len(asked(calls)) == 4


def test_no_bit_of_a_file_may_be_wrong(tmp_path):
    run = partial(calipers.jacobian, np.sin, X[:1], checkpoint=tmp_path / "kept")
    expected = run()
    (path,) = (tmp_path / "kept").glob("rows-*.npz")
    content = path.read_bytes()
    work = types.SimpleNamespace(results=lambda n: (np.empty((n, 1)), np.empty(n, np.int8)))
    kept = checkpoints.Checkpoint(tmp_path / "kept")
    assert same(kept.rows((0, 1), work)[0], expected)
    for k in range(0, 8 * len(content), 5):
        damaged = bytearray(content)
        damaged[k // 8] ^= 1 << k % 8
        path.write_bytes(damaged)
        found = kept.rows((0, 1), work)
        assert found is None or same(found[0], expected), k
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert kept.rows((0, 1), work) is None


def test_a_damaged_manifest_is_told(tmp_path):
    calipers.jacobian(waves, X, checkpoint=tmp_path / "kept")
    cut(tmp_path / "kept" / "calipers.json")
    with pytest.raises(ValueError, match=r"calipers.json in .* is damaged: delete the folder"):
        calipers.jacobian(waves, X, checkpoint=tmp_path / "kept")


def test_a_manifest_that_is_no_object_is_damaged(tmp_path):
    folder = tmp_path / "kept"
    calipers.jacobian(np.sin, SIX, checkpoint=folder)
    (manifest,) = folder.glob("*.json")
    manifest.write_text(json.dumps([]))
    with pytest.raises(ValueError, match="is damaged: delete the folder"):
        calipers.jacobian(np.sin, SIX, checkpoint=folder)


def test_what_a_killed_run_had_begun_to_write_is_ignored(tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / ".0a1b.unfinished").write_bytes(b"half")
    assert same(calipers.jacobian(waves, X, checkpoint=folder), calipers.jacobian(waves, X))


def test_a_full_disk_is_told_and_leaves_no_half(tmp_path, monkeypatch):
    def full(stream, *outs):
        stream.write(b"half")
        assert not list((tmp_path / "kept").glob("rows-*"))  # nobody reads a half
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        calipers.jacobian(waves, X, checkpoint=tmp_path / "kept")
    assert [p.name for p in (tmp_path / "kept").iterdir()] == ["calipers.json"]


def test_a_full_disk_leaves_no_half_of_a_manifest(tmp_path, monkeypatch):
    def full(path, text, encoding):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        calipers.jacobian(waves, X, checkpoint=tmp_path / "kept")
    assert not list((tmp_path / "kept").iterdir())


def test_two_runs_at_once_may_share_a_folder(tmp_path):
    expected, found = calipers.jacobian(waves, X), []

    def run(workers):
        found.append(calipers.jacobian(noted, X, args=(str(tmp_path / "calls"), 0.002), **workers))

    ways = [{"checkpoint": tmp_path / "kept", "workers": w} for w in (None, 2, 3)]
    threads = [threading.Thread(target=run, args=(way,)) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert all(same(one, expected) for one in found)
    run({"checkpoint": tmp_path / "kept"})
    assert same(found[-1], expected)


def test_of_two_different_runs_at_once_one_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "kept"
    begin = checkpoints.Checkpoint.begin

    def later(own):
        monkeypatch.setattr(checkpoints.Checkpoint, "begin", begin)
        calipers.jacobian(power, X, checkpoint=folder)  # when the other has seen no folder
        begin(own)

    monkeypatch.setattr(checkpoints.Checkpoint, "begin", later)
    with pytest.raises(ValueError, match="a different f"):
        calipers.jacobian(other_power, X, checkpoint=folder)
    assert same(calipers.jacobian(power, X, checkpoint=folder), calipers.jacobian(power, X))


# What a function is known by.


def source(body, name="f", **names):
    """Return a function that is compiled anew."""
    space = dict(names)
    exec(body, space)
    return space[name]


def test_functions_are_known_by_what_they_do():
    body = (
        "def f(x, a=(1, 2), *, b={'one': 1}):\n    return x + 1 if x in {'p', 'q'} else lambda: 3"
    )
    assert digest(source(body)) == digest(source("\n\n# elsewhere\n" + body))
    assert digest(source(body)) == digest(source(body.replace("def f", "def g"), "g"))
    for old, new in (
        ("x + 1", "x + 2"),
        ("x + 1", "x - 1"),
        ("(1, 2)", "(1, 3)"),
        ("'one'", "'1'"),
    ):
        assert digest(source(body)) != digest(source(body.replace(old, new))), new
    assert digest(source(body)) != digest(source(body.replace("lambda: 3", "lambda: 4")))
    assert digest(with_constant(1)) == digest(with_constant(1))
    assert digest(with_constant(1)) != digest(with_constant(2))
    assert digest(with_constant(X)) != digest(with_constant(X[::-1]))
    assert digest(numba.njit(power)) == digest(numba.njit(power)) != digest(numba.njit(other_power))
    assert digest(partial(power, k=2)) == digest(partial(power, k=2)) != digest(partial(power, k=3))


class Model:
    def __init__(self, size):
        self.size, self.grid = size, np.ones(size)

    def __call__(self, x):
        return x * self.size

    def run(self, x):
        return self(x)


def test_objects_are_known_by_what_they_hold():
    assert digest(Model(2)) == digest(pickle.loads(pickle.dumps(Model(2)))) != digest(Model(3))
    assert digest(Model(2).run) == digest(Model(2).run) != digest(Model(3).run)
    assert digest(np.sin) != digest(np.cos)
    assert digest({"a", "b", "c"}) == digest({"c", "b", "a"})
    assert digest(X.astype("g")) == digest(X.astype("g").copy()) != digest(X.astype("g") + 1)
    around = []
    around.append(around)
    assert digest(around) == digest(around)
    assert digest(threading.Lock()) == digest(threading.Lock())


def test_options_of_compiled_functions_have_values():
    def f(x):
        return x

    fast, exact = (numba.njit(fastmath=choice)(f) for choice in (True, False))
    assert digest(fast) != digest(exact)


def test_functions_are_known_in_every_process():
    code = "from tests.derivatives.test_distributed import *\n"
    code += (
        "print(digest(waves), digest(Model(4)), digest(compiled_chain), digest({'a', 'b', 'c'}))"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    here = (digest(thing) for thing in (waves, Model(4), compiled_chain, {"a", "b", "c"}))
    assert found[0] == found[1] == " ".join(here) + "\n"


# How long it may go on.


def test_the_time_left_is_estimated(capsys, monkeypatch, clock):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    progress = progresses.Progress(True, 100)
    progress.add(40, held=True)
    clock[0] = 4.0
    progress.add(20)
    clock[0] = 500.0
    progress.add(1)
    progress.add(39)
    progress.close()
    shown = [part.strip() for part in capsys.readouterr().err.split("\r")[1:]]
    assert shown == [
        "derivative: 40 of 100 columns",
        "derivative: 60 of 100 columns, 8 s left",
        "derivative: 61 of 100 columns, 15 min left",
        "derivative: 100 of 100 columns",
    ]


def test_a_shorter_line_leaves_nothing_of_a_longer_one(capsys, monkeypatch, clock):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    progress = progresses.Progress(True, 2)
    clock[0] = 1e5
    progress.add(1)
    progress.add(1)
    progress.close()
    first, second = capsys.readouterr().err.rstrip("\n").split("\r")[1:]
    assert first == "derivative: 1 of 2 columns, 27.8 h left"
    assert len(second) == len(first)


def test_progress_of_a_check_rises_to_the_end(workers):
    for jac in (waves_jacobian, wrong_jacobian):
        seen = []
        calipers.gradcheck(
            waves,
            X,
            jac=jac,
            workers=workers,
            raise_exception=False,
            progress=lambda *at: seen.append(at),  # noqa: B023
        )
        done = [at[0] for at in seen]
        assert done == sorted(set(done))
        assert seen[-1][0] == seen[-1][1] >= 23
        assert (seen[-1][1] == 23) == (jac is waves_jacobian)


def test_progress_of_a_resumed_run_begins_where_it_stopped(tmp_path):
    calipers.jacobian(waves, X, checkpoint=tmp_path / "kept")
    sorted((tmp_path / "kept").glob("rows-*"))[-1].unlink()
    for workers in (None, 2):
        seen = []
        given = {"checkpoint": tmp_path / "kept", "workers": workers}
        calipers.jacobian(waves, X, progress=lambda *at: seen.append(at), **given)  # noqa: B023
        assert seen[-1] == (23, 23)


def test_progress_without_workers_is_heard_of_column_by_column_where_they_last(clock):
    seen = []
    calipers.jacobian(lasting(60.0, clock), X, progress=lambda *at: seen.append(at))
    assert seen[0] == (1, 23)


FACTOR = 2.0


def scaled(x):
    return FACTOR * x


def scaled_by_helper(x):
    return scaled(x) + 0.0


class Scaler:
    def __call__(self, x):
        return self.factor() * x

    def factor(self):
        return 2.0


compiled_scaled = numba.njit(scaled)


@pytest.mark.parametrize("f", [scaled, scaled_by_helper, compiled_scaled])
def test_a_checkpoint_of_another_global_is_refused(f, tmp_path, monkeypatch):
    # At 0 the values are the same, whatever the factor.
    x = np.zeros(6)
    folder = tmp_path / "kept"
    first = calipers.jacobian(f, x, checkpoint=folder)
    np.testing.assert_array_equal(calipers.jacobian(f, x, checkpoint=folder), first)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
    with pytest.raises(ValueError, match="belongs to a different f"):
        calipers.jacobian(f, x, checkpoint=folder)


@pytest.mark.slow
def test_a_checkpoint_of_another_method_of_f_is_refused(tmp_path, monkeypatch):
    x = np.zeros(6)
    folder = tmp_path / "kept"
    first = calipers.jacobian(Scaler(), x, checkpoint=folder)
    np.testing.assert_array_equal(calipers.jacobian(Scaler(), x, checkpoint=folder), first)
    monkeypatch.setattr(Scaler, "factor", lambda self: 3.0)
    with pytest.raises(ValueError, match="belongs to a different f"):
        calipers.jacobian(Scaler(), x, checkpoint=folder)
