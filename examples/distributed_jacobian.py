"""Sensitivities of a simulation, of a second per call, on a dask cluster of this machine's cores.

A number after its name is the seconds of one call, if not 1.
"""

import os
import sys
import tempfile
import time

import numpy as np

import calipers

try:
    from distributed import Client, LocalCluster
except ImportError:
    sys.exit("This example needs dask: pip install 'dask[distributed]'.")

SIDE, PATCHES = 48, 4  # cells along an edge of the plate, and patches of one material each


def sensors(conductivity, steps):
    """Return temperatures at eight places of a plate that is heated along one edge.

    The heat equation on a grid of cells, by explicit steps in time.
    """
    k = np.kron(conductivity.reshape(PATCHES, PATCHES), np.ones((SIDE // PATCHES,) * 2))
    across = 2 * k[1:] * k[:-1] / (k[1:] + k[:-1])  # through the faces between cells
    along = 2 * k[:, 1:] * k[:, :-1] / (k[:, 1:] + k[:, :-1])
    dt = 0.2 / k.max()
    t = np.zeros((SIDE, SIDE))
    for _ in range(steps):
        down, right = across * np.diff(t, axis=0), along * np.diff(t, axis=1)
        t[:-1] += dt * down
        t[1:] -= dt * down
        t[:, :-1] += dt * right
        t[:, 1:] -= dt * right
        t[0] = 1.0
    return t[SIDE // 4 :: SIDE // 4, SIDE // 4 :: SIDE // 4].reshape(-1)[:8].copy()


def measured(action):
    begun = time.perf_counter()
    return action(), time.perf_counter() - begun


def main():
    wanted = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    x = np.random.default_rng(0).uniform(0.5, 2.0, PATCHES**2)
    steps = max(1, int(1000 * wanted / measured(lambda: sensors(x, 1000))[1]))
    _, call = measured(lambda: sensors(x, steps))
    print(f"one simulation: {steps} steps, {call:.2f} s; its Jacobian: {x.size} columns")

    serial, alone = measured(lambda: calipers.jacobian(sensors, x, method="2-point", args=(steps,)))
    print(f"in this process:   {alone:6.2f} s")

    workers = os.cpu_count()
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        tempfile.TemporaryDirectory() as folder,
    ):
        client.run(calipers.warmup)  # as on workers that have been in use before
        options = {"method": "2-point", "args": (steps,), "checkpoint": f"{folder}/kept"}
        found, spread = measured(lambda: calipers.jacobian(sensors, x, workers=client, **options))
        print(f"on {workers} workers:     {spread:8.2f} s, {alone / spread:.2f} times as fast")
        # Had it been killed, the same call would go on from the columns that were done.
        again, kept = measured(lambda: calipers.jacobian(sensors, x, workers=client, **options))
        print(f"from a checkpoint: {kept:6.2f} s, most of it for one call, to know f again")
    assert found.tobytes() == again.tobytes() == serial.tobytes()
    print("all three are bitwise the same")


if __name__ == "__main__":
    main()
