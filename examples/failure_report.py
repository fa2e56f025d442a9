"""One failure as NumPy, torch and calipers report it: a wrong tile, and a NaN."""

import sys

import numpy as np

import calipers

expected = np.random.default_rng(0).normal(size=(64, 48)).astype(np.float32)
actual = expected.copy()
actual[16:32, 32:48] *= np.float32(1.001)  # a tile computed with another constant
actual[40, 7] = np.nan

checks = {
    "numpy": lambda: np.testing.assert_allclose(actual, expected, rtol=1.3e-6, atol=1e-5),
    "calipers": lambda: calipers.assert_close(actual, expected),
}
try:
    import torch
except ImportError:
    print("torch is not installed", file=sys.stderr)
else:
    own, reference = torch.from_numpy(actual), torch.from_numpy(expected)
    checks["torch"] = lambda: torch.testing.assert_close(own, reference)

for name, check in checks.items():
    try:
        check()
    except AssertionError as error:
        print(f"--- {name}\n{error}\n")

# The tile alone, and what it would take
report = calipers.compare(actual, expected, equal_nan=True)
assert report.passing_rtol is None  # the NaN is on one side only
print("worst element", report.worst().index, "and no tolerance lets the NaN pass")
tile = calipers.compare(actual[16:32, 32:48], expected[16:32, 32:48])
assert tile.mismatches > 200
assert tile.nan_actual == 0
print("in the tile", tile.mismatches, "differ; there an rtol of", tile.passing_rtol, "would pass")
