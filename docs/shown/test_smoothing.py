import numpy as np
import pytest

import calipers as cal


def smooth(x):
    return np.convolve(x, [0.25, 0.5, 0.25], mode="same")


def smooth_faster(x):
    x = np.pad(x, 1, mode="edge")
    return x[:-2] / 4 + x[1:-1] / 2 + x[2:] / 4


@pytest.mark.calipers_seed(0)
def test_steps(calipers_rng):
    x = calipers_rng.integers(-9, 9, 1000) / 8
    assert smooth_faster(x) == cal.approx(smooth(x))


def test_ramp():
    x = np.arange(100.0)
    assert cal.allclose(smooth_faster(x), smooth(x), rtol=1e-3)
