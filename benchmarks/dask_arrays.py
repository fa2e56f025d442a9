"""
allclose of dask arrays beside dask.array.allclose, on one local cluster of processes.

``python -m benchmarks.dask_arrays [MiB]`` prints a table for arrays of so many MiB each. They are
persisted on the workers, or made by tasks, which then takes both sides the same time ("making");
chunks line up; the mismatch is in the first block.
"""

import sys
from functools import partial
from statistics import median
from time import perf_counter

import calipers

from .__main__ import machine
from .common import table

WORKERS, THREADS = 2, 1
CHUNKS = (128, 64, 32, 8)
REPEAT = 7
MIB = 1 << 20


def seconds(*calls):
    """Return the median time of each call; they take turns."""
    samples = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(REPEAT):
        for call, spent in zip(calls, samples, strict=True):
            start = perf_counter()
            call()
            spent.append(perf_counter() - start)
    return tuple(map(median, samples))


def arrays(size, chunk, persisted):
    """Return an array, an equal one, and one whose first block differs."""
    import dask.array as da
    from distributed import wait

    shape, chunks = size * MIB // 8, chunk * MIB // 8
    x = da.random.default_rng(0).random(shape, chunks=chunks)
    y = da.random.default_rng(0).random(shape, chunks=chunks)
    z = da.where(da.arange(shape, chunks=chunks) == 5, 2.0, y)
    if persisted:
        x, y, z = x.persist(), (x + 0).persist(), z.persist()
        wait([x, y, z])
    return x, y, z


def first(a, b):
    return a[:1]


def make(x, y):
    """Make both arrays, a pair of blocks at a time, and do nothing with them."""
    import dask.array as da

    return da.map_blocks(first, x, y, dtype=float, chunks=((1,) * x.numblocks[0],)).compute()


def rows(size, chunks=CHUNKS):
    import dask.array as da

    for persisted in (True, False):
        for chunk in chunks:
            if chunk > size:
                continue
            x, y, z = arrays(size, chunk, persisted)
            assert calipers.allclose(x, y)
            assert not calipers.allclose(x, z)
            (making,) = (0.0,) if persisted else seconds(partial(make, x, y))
            row = {
                "data": "persisted" if persisted else "made by tasks",
                "MiB each": size,
                "MiB in a chunk": chunk,
                "making, ms": 1e3 * making,
            }
            for name, other in (("equal", y), ("first block differs", z)):
                own, peer = seconds(
                    partial(calipers.allclose, x, other),
                    lambda x=x, other=other: bool(da.allclose(x, other).compute()),
                )
                row |= {f"{name}, ms": 1e3 * own, "dask, ms": 1e3 * peer, "times": peer / own}
                row[f"{name}: dask.array.allclose, ms"] = row.pop("dask, ms")
                row[f"{name}: times faster"] = row.pop("times")
            (row["compare of equal, ms"],) = (
                1e3 * t for t in seconds(partial(calipers.compare, x, y))
            )
            yield row
            del x, y, z


def main(size):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=THREADS, dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        print(f"{machine()}\n{WORKERS} workers of {THREADS} thread, float64, medians of {REPEAT}\n")
        print(table(list(rows(size))))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 512)
