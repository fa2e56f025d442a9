"""Arrays on disk, compared within a limit of memory: maps in place, large ones by their blocks."""

import tempfile
from pathlib import Path

import numpy as np

import calipers


def readings(path, rows):
    """Yield a file's numbers as any reader of chunks does."""
    with open(path, "rb") as file:
        while len(chunk := np.fromfile(file, np.float32, rows)):
            yield chunk


with tempfile.TemporaryDirectory() as folder:
    shape = 4_000_000
    paths = [Path(folder, name) for name in ("yesterday.bin", "today.bin")]
    for path in paths:
        np.sqrt(np.arange(shape, dtype=np.float32)).tofile(path)
    yesterday, today = (np.memmap(path, np.float32, "r+", shape=shape) for path in paths)
    assert calipers.array_equal(yesterday, today)

    today[3_000_000] *= np.float32(1.00001)
    limit = 4 << 20  # of memory; 256 MiB if nothing is said
    assert not calipers.allclose(yesterday, today, rtol=1e-6, memory_limit=limit)
    assert calipers.allclose(yesterday, today, rtol=1e-4, memory_limit=limit)

    today.flush()
    report = calipers.compare(readings(paths[0], 100_000), readings(paths[1], 123_456))
    assert [found.index for found in report.first_mismatches] == [(3_000_000,)]

    today[1_000] = np.nan
    assert calipers.first_nonfinite(today) == (1_000,)
    print(f"2 files of {today.nbytes >> 20} MiB compared, within {limit >> 20} MiB, chunk by chunk")
    print(report)
    del yesterday, today  # closes the files
