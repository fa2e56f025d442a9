"""How far more workers help: measured on a cluster of this machine, computed, and simulated.

``python -m benchmarks.scaling_out`` measures what a scheduler does in a second and what a link
carries, by derivatives and comparisons on a local cluster of two processes; and prints for 10, 100
and 1000 workers what the arithmetic of docs/large_data.md gives, beside a simulation of the events.
"""

import heapq
import math
import random
import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

import calipers

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


if __name__ == "__main__":
    main()
