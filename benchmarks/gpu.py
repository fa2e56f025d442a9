"""allclose on a device, against a copy from device to device in the same run.

``python -m benchmarks.gpu [MiB ...]`` writes a table, and the numbers as JSON beside it, to
``benchmarks/results``.
"""

import json
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from numba import config, cuda

import calipers

RESULTS = Path(__file__).parent / "results"
SIZES = [2**k for k in (0, 6, 10, 11)]  # MiB of each array
REPEATS = 15


def seconds(work):
    """Return the median time of a call, the device idle before and after."""
    work()
    times = []
    for _ in range(REPEATS):
        cuda.synchronize()
        start = perf_counter()
        work()
        cuda.synchronize()
        times.append(perf_counter() - start)
    return median(times)


def rows(sizes):
    for dtype in ("float32", "float64"):
        for size in sizes:
            count = int(size * 2**20) // np.dtype(dtype).itemsize
            a = cuda.to_device(np.ones(count, dtype))
            b = cuda.to_device(np.ones(count, dtype))
            copy = 2 * a.nbytes / seconds(lambda a=a, b=b: b.copy_to_device(a))
            spent = seconds(lambda a=a, b=b: calipers.allclose(a, b))
            first = np.ones(count, dtype)
            first[0] = 2
            other = cuda.to_device(first)
            early = seconds(lambda a=a, other=other: calipers.allclose(a, other))
            yield {
                "dtype": dtype,
                "MiB": size,
                "GB/s": 2 * a.nbytes / spent / 1e9,
                "of copy": 2 * a.nbytes / spent / copy,
                "us, equal": 1e6 * spent,
                "us, first differs": 1e6 * early,
            }


def main(sizes):
    device = "simulator"
    if not config.ENABLE_CUDASIM:
        device = cuda.get_current_device().name
        device = device.decode() if isinstance(device, bytes) else device
    table = list(rows(sizes))
    lines = [f"allclose on {device}", "", f"| {' | '.join(table[0])} |", "|---" * 6 + "|"]
    for row in table:
        cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append(f"| {' | '.join(cells)} |")
    print("\n".join(lines))
    if not config.ENABLE_CUDASIM:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "gpu.md").write_text("\n".join(lines) + "\n")
        (RESULTS / "gpu.json").write_text(json.dumps({"device": device, "rows": table}, indent=1))


if __name__ == "__main__":
    main([float(size) for size in sys.argv[1:]] or SIZES)
