"""How far more workers help, and how large a job can be: measured, computed, and simulated.

``python -m benchmarks.scaling_out`` measures what a scheduler does in a second and what a link
carries, by derivatives and comparisons on a local cluster of two processes; and prints for 10, 100
and 1000 workers what the arithmetic of docs/large_data.md gives, beside a simulation of the events.

``python -m benchmarks.scaling_out chunks``, ``columns`` and ``files`` measure the bytes and seconds
for each chunk of a dask array, column of a Jacobian and file of a checkpoint, at three sizes each.
``mpiexec -n 3 python -m mpi4py.futures -m benchmarks.scaling_out mpi`` does for MPI what the
first command does for dask, and differentiates with respect to three numbers of columns.
"""

import heapq
import math
import pickle
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

import calipers

from .beyond_memory import memory, reset_peak

WORKERS = (10, 100, 1000)


@dataclass(frozen=True)
class Job:
    """Tasks that one process hands out, of which each gives back a result."""

    tasks: int
    seconds: float  # that a worker takes for one
    sent: float = 0.0  # bytes that each worker gets once
    back: float = 0.0  # bytes of a result
    spread: float = 0.1  # of the seconds, relative


@dataclass(frozen=True)
class Cluster:
    """Workers around one scheduler and one link to who asks."""

    workers: int
    rate: float  # tasks that the scheduler handles in a second
    bandwidth: float  # bytes that the link carries in a second


def limits(job: Job, cluster: Cluster) -> dict[str, float]:
    """Return the seconds that each resource needs alone."""
    return {
        "workers": math.ceil(job.tasks / cluster.workers) * job.seconds,
        "scheduler": job.tasks / cluster.rate,
        "link": (cluster.workers * job.sent + job.tasks * job.back) / cluster.bandwidth,
    }


def predicted(job: Job, cluster: Cluster) -> float:
    """Return the seconds of a job: what is scarcest, after the inputs are sent."""
    sending = cluster.workers * job.sent / cluster.bandwidth
    found = limits(job, cluster)
    found["link"] -= sending
    return sending + max(found.values())


def simulated(job: Job, cluster: Cluster, seed: int = 0) -> float:
    """Return the seconds of a job, event by event.

    The link carries one message at a time: first the inputs to each worker, then results as they
    come. The scheduler hands a task to a worker that is free, one after the other.
    """
    random_ = random.Random(seed)
    sigma = math.sqrt(math.log1p(job.spread**2))
    link = scheduler = 0.0
    free: list[float] = []  # when each worker is
    for _ in range(cluster.workers):
        link += job.sent / cluster.bandwidth
        heapq.heappush(free, link)
    ends = []
    for _ in range(job.tasks):
        scheduler = max(scheduler, heapq.heappop(free)) + 1 / cluster.rate
        end = scheduler + job.seconds * random_.lognormvariate(-(sigma**2) / 2, sigma)
        ends.append(end)
        heapq.heappush(free, end)
    for end in sorted(ends):
        link = max(link, end) + job.back / cluster.bandwidth
    return link


def most_workers(job: Job, rate: float, bandwidth: float) -> float:
    """Return how many workers a scheduler and a link keep busy."""
    return min(rate * job.seconds, bandwidth * job.seconds / job.back if job.back else math.inf)


# What is measured here


def _nothing(i: int) -> int:
    return i


def scheduler_rate(client: Any, tasks: int = 2000) -> float:
    """Return how many tasks that do nothing are handled in a second, each with its own result."""
    client.gather(client.map(_nothing, range(100), pure=False))
    started = time.perf_counter()
    client.gather(client.map(_nothing, range(tasks), pure=False))
    return tasks / (time.perf_counter() - started)


def link_bandwidth(client: Any, size: int = 64 << 20) -> float:
    """Return the bytes that come back from a worker in a second."""
    future = client.submit(np.ones, size // 8, pure=False)
    client.submit(_nothing, 0, pure=False).result()
    while future.status != "finished":
        time.sleep(0.01)
    started = time.perf_counter()
    future.result()
    return size / (time.perf_counter() - started)


class Slow:
    """A function whose calls take their time asleep, so that this machine's cores do not limit."""

    def __init__(self, seconds: float, values: int) -> None:
        self.seconds, self.values = seconds, values

    def __call__(self, x: np.ndarray) -> np.ndarray:
        time.sleep(self.seconds)
        return np.resize(np.sin(x), self.values)


def measured_jacobian(client: Any, workers: int, n: int, seconds: float) -> tuple[float, Job]:
    """Return the seconds of a Jacobian on a cluster, and the job it is."""
    x = np.linspace(0.1, 1, n)
    f = Slow(seconds, n)
    started = time.perf_counter()
    calipers.jacobian(f, x, method="2-point", workers=client)
    spent = time.perf_counter() - started
    return spent - seconds, Job(n, seconds, 8.0 * n, 8.0 * n)  # f(x) itself is one call more


# How large a job can be: bytes and seconds for each chunk, column and file


def timed(call: Callable[[], Any]) -> tuple[float, int]:
    """Return the seconds of a call, and the growth of this process's memory at its peak."""
    before, started = reset_peak(), time.perf_counter()
    call()
    return time.perf_counter() - started, memory("VmHWM") - before


def print_row(*cells: Any) -> None:
    print("|", " | ".join(f"{c:.3g}" if isinstance(c, float) else str(c) for c in cells), "|")
    sys.stdout.flush()


def asked(*question: Any) -> list[float]:
    """Return the figures that `ask` prints in a new process, whose memory is its own."""
    command = [sys.executable, "-m", "benchmarks.scaling_out", "ask", *map(str, question)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(figure) for figure in done.stdout.split()]


def ask(name: str, size: str) -> None:
    """Print the figures of a comparison by its chunks, or of a derivative by its columns."""
    figures = columns_of if name in LARGEST else chunks_of
    print(*figures(name, int(size)))


def chunks(counts: tuple[int, ...] = (100, 1000, 10_000)) -> None:
    """Compare dask arrays of chunks of one element: print what each chunk costs."""
    print("| function | chunks | ms a chunk | kB of the caller | kB of the scheduler |")
    print("|---|---:|---:|---:|---:|")
    for name in ("allclose", "compare"):
        for count in counts:
            print_row(name, count, *asked(name, count))
    print("\nBytes of the report of one chunk, by the shape of the whole array:\n")
    for shape in ((10**12,), (10**6, 10**6), (10**4,) * 3):
        print_row(shape, report_bytes(shape))


def chunks_of(name: str, count: int) -> tuple[float, ...]:
    """Return the ms, and the kB of this process and of the scheduler's, for each chunk."""
    import dask.array as da
    from distributed import Client
    from distributed.deploy.subprocess import SubprocessCluster

    x, y = da.zeros(count, chunks=1), da.ones(count, chunks=1) - 1
    compared = partial(getattr(calipers, name), x, y)
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with SubprocessCluster(**settings) as cluster, Client(cluster) as client:
        getattr(calipers, name)(x[:2], y[:2])
        before = client.run_on_scheduler(reset_peak)
        seconds, growth = timed(compared)
        of_scheduler = client.run_on_scheduler(memory, "VmHWM") - before
    return tuple(1e3 * b / count for b in (seconds, 1e-6 * growth, 1e-6 * of_scheduler))


def report_bytes(shape: tuple[int, ...]) -> int:
    """Return the bytes that a task returns for a chunk to a comparison of arrays of a shape."""
    from calipers._compare.statistics import PairStatistics

    return len(pickle.dumps(PairStatistics.empty(shape)))


def second_difference(x: np.ndarray) -> np.ndarray:
    """Return a function of three neighbours: its Jacobian has three diagonals."""
    y = -2 * x * x
    y[1:] += x[:-1]
    y[:-1] += x[1:]
    return y


def first_value(x: np.ndarray) -> np.ndarray:
    return x[:1]


def three_diagonals(n: int) -> Any:
    import scipy.sparse

    ones = [np.ones(n - abs(k), np.int8) for k in (-1, 0, 1)]
    return scipy.sparse.diags_array(ones, offsets=(-1, 0, 1), format="csc", dtype=np.int8)


class Counted(Executor):
    """An executor in this process that pickles what MPIPoolExecutor would send and return."""

    number = _max_workers = 2

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.back: list[int] = []

    def submit(self, task: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if not args:  # the question whether this is another process: it is
            future.set_result(None)
            return future
        self.sent.append(len(pickle.dumps((task, args, kwargs))))
        result = task(*args)
        self.back.append(len(pickle.dumps(result)))
        future.set_result(result)
        return future


def derivatives(n: int) -> dict[str, Callable[..., Any]]:
    """Return derivatives with respect to n columns, as functions of options."""
    x = np.linspace(0.1, 1, n)
    sparsity = three_diagonals(n)
    jacobian = partial(calipers.jacobian, second_difference, x, sparsity=sparsity)
    return {
        "jacobian, sparse": jacobian,
        "jacobian, sparse, adaptive": partial(jacobian, method="adaptive"),
        "jvp": lambda **options: calipers.jvp(second_difference, x, np.ones(n)),
        "vjp": partial(calipers.vjp, first_value, x, np.ones(1)),
    }


# The largest number of columns that takes at most minutes, and some GB.
LARGEST = {
    "jacobian, sparse": 10**7,
    "jacobian, sparse, adaptive": 10**6,
    "jvp": 10**7,
    "vjp": 10**5,
}


def columns(factors: tuple[float, ...] = (0.01, 0.1, 1.0)) -> None:
    """Differentiate cheap functions: print the memory and the messages for each column."""
    names = "derivative", "columns", "µs a column", "B of the caller", "B of the result"
    print_row(*names, "messages", "B sent to a worker", "B sent back")
    print_row("---", *["---:"] * 7)
    for name, largest in LARGEST.items():
        for factor in factors:
            n = int(factor * largest)
            print_row(name, n, *asked(name, n))


def columns_of(name: str, n: int) -> tuple[float, ...]:
    """Return the figures of a derivative for each column: see `columns`."""
    derivatives(100)[name]()  # imports, and loads kernels
    call, results = derivatives(n)[name], list[Any]()
    seconds, growth = timed(lambda: results.append(call()))
    (result,), pool = results, Counted()
    parts = result, *(getattr(result, k, None) for k in ("data", "indices", "indptr"))
    size = sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
    if name != "jvp":
        call(workers=pool)
    # The first task of each worker carries f, x, and what else all tasks need.
    sent, back = sum(pool.sent) / pool.number, sum(pool.back)
    return 1e6 * seconds / n, growth / n, size / n, len(pool.sent), sent / n, back / n


def files(counts: tuple[int, ...] = (100, 1000, 10_000)) -> None:
    """Write a checkpoint of one column in a file, and resume from it."""
    print("| files | ms to write one | ms to read one |\n|---:|---:|---:|")
    for n in counts:
        x = np.linspace(0.1, 1, n)
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch("calipers._execution.run.task_rows", return_value=1),
        ):
            call = partial(calipers.jacobian, first_value, x, checkpoint=folder, workers=map)
            print_row(n, *(1e3 * timed(call)[0] / n for _ in range(2)))


def mpi(sizes: tuple[int, ...] = (10**5, 10**6, 10**7)) -> None:
    """Measure an MPIPoolExecutor, and sparse Jacobians on it."""
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor() as pool:
        workers = pool.num_workers
        list(pool.map(_nothing, range(100)))
        rate = median(2000 / timed(lambda: list(pool.map(_nothing, range(2000))))[0] for _ in "123")
        size = 1 << 26
        seconds = median(timed(pool.submit(np.ones, size // 8).result)[0] for _ in "123")
        bandwidth = size / seconds
        print(f"{workers} workers: {rate:.0f} tasks and {bandwidth / 2**20:.0f} MiB a second\n")
        counted = Counted()
        for first in (counted, pool):  # processes of the pool import calipers
            derivatives(1000)["jacobian, sparse"](workers=first)
        sent, back = (sum(b) / 1000 for b in (counted.sent, counted.back))
        print_row("columns", "s without workers", "s measured", "s predicted", "B of the caller")
        print_row(*["---:"] * 5)
        for n in sizes:
            call, tasks = derivatives(n)["jacobian, sparse"], len(counted.sent)
            alone = timed(call)[0]
            seconds, growth = timed(partial(call, workers=pool))
            # All calls of f take next to nothing: the rest is the caller's, and messages.
            job = Job(tasks, 0.0, n * sent / counted.number, n * back / tasks)
            messages = predicted(job, Cluster(workers, rate, bandwidth))
            print_row(n, alone, seconds, alone + messages, growth / n)


def main() -> None:
    from distributed import Client, LocalCluster

    print("Measured on this machine, median of 3:\n")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        rate = median(scheduler_rate(client) for _ in range(3))
        bandwidth = median(link_bandwidth(client) for _ in range(3))
        print(f"scheduler: {rate:.0f} tasks a second; link: {bandwidth / 2**20:.0f} MiB a second")
    print("\n| workers | columns | s a call | measured s | predicted s | simulated s |")
    print("|---|---|---|---|---|---|")
    for workers in (1, 2, 8, 32):
        with (
            LocalCluster(
                n_workers=min(workers, 2),
                threads_per_worker=max(1, workers // 2),
                dashboard_address=None,
            ) as cluster,
            Client(cluster) as client,
        ):
            measured_jacobian(client, workers, 8, 0.01)
            found = [measured_jacobian(client, workers, 128, 0.1) for _ in range(3)]
            seconds, job = median(s for s, _ in found), found[0][1]
            here = Cluster(workers, rate, bandwidth)
            print(
                f"| {workers} | {job.tasks} | {job.seconds} | {seconds:.2f} | "
                f"{predicted(job, here):.2f} | {simulated(job, here):.2f} |"
            )
    jobs = {
        "Jacobian, 10 000 columns of 1 s, 10 000 values": Job(10_000, 1.0, 8e4, 8e4),
        "Jacobian, 10 000 columns of 10 ms, 10 000 values": Job(10_000, 0.01, 8e4, 8e4),
        "the same, 100 columns a task": Job(100, 1.0, 8e4, 8e6),
        "Jacobian, 100 000 columns of 1 s, 1e6 values": Job(100_000, 1.0, 8e5, 8e6),
        "allclose, 10 TB in pairs of 128 MiB read at 1 GB/s": Job(37_253, 0.27, 0, 200),
        "the same in pairs of 2 MiB": Job(2_384_186, 0.0042, 0, 200),
    }
    # Between machines: 10 Gbit/s, whatever this one's loopback carries.
    wire = 1.25e9
    print(f"\nPredicted for {rate:.0f} tasks a second and {wire / 1e9} GB/s:\n")
    print("| job | busy at most | 10 workers | 100 | 1000 | simulated, 1000 | limited by |")
    print("|---|---|---|---|---|---|---|")
    for name, job in jobs.items():
        clusters = [Cluster(workers, rate, wire) for workers in WORKERS]
        times = [f"{predicted(job, cluster):.3g} s" for cluster in clusters]
        last = limits(job, clusters[-1])
        small = job if job.tasks < 200_000 else replace(job, tasks=200_000)
        scale = job.tasks / small.tasks
        print(
            f"| {name} | {most_workers(job, rate, wire):.0f} | {' | '.join(times)} | "
            f"{scale * simulated(small, clusters[-1]):.3g} s | {max(last, key=last.get)} |"  # type: ignore[arg-type]
        )


COMMANDS = {"": main, "chunks": chunks, "columns": columns, "files": files, "mpi": mpi, "ask": ask}


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or [""]
    COMMANDS[command](*arguments)
