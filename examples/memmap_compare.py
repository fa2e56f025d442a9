"""Two arrays on disk compared in place: no copy, and little read beyond a difference."""

import tempfile
from pathlib import Path

import numpy as np

import calipers

with tempfile.TemporaryDirectory() as folder:
    shape = 4_000_000
    paths = [Path(folder, name) for name in ("yesterday.bin", "today.bin")]
    for path in paths:
        np.sqrt(np.arange(shape, dtype=np.float32)).tofile(path)
    yesterday, today = (np.memmap(path, np.float32, "r+", shape=shape) for path in paths)
    assert calipers.array_equal(yesterday, today)

    today[3_000_000] *= np.float32(1.00001)
    assert not calipers.array_equal(yesterday, today)
    assert not calipers.allclose(yesterday, today, rtol=1e-6)
    assert calipers.allclose(yesterday, today, rtol=1e-4)

    today[1_000] = np.nan
    assert calipers.first_nonfinite(today) == (1_000,)
    print(f"2 files of {today.nbytes >> 20} MiB compared; today's has a NaN at 1000")
    del yesterday, today  # closes the files
