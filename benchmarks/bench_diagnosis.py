"""What diagnose takes beside the calls of the two functions that it asks."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import calipers

from . import common


def clocked(call: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Return a function that also notes how long each of its calls took."""

    def timed(*inputs):
        start = perf_counter()
        y = call(*inputs)
        seconds.append(perf_counter() - start)
        return y

    return timed


def linear(x, w):
    return x @ w.T


def in_halves(x, w):
    """Sum up the same products in another order."""
    middle = x.shape[1] // 2
    return x[:, :middle] @ w[:, :middle].T + x[:, middle:] @ w[:, middle:].T


class Linear:
    """A linear layer of 2048 inputs and 512 outputs, for 32 rows."""

    def setup(self):
        random = np.random.default_rng(0)
        n = min(2048, common.SIZE)
        self.inputs = tuple(random.standard_normal((rows, n), np.float32) for rows in (32, 512))

    def time_diagnose(self):
        calipers.diagnose(linear, in_halves, self.inputs)

    def track_overhead(self):
        """Return the time that is spent outside of the calls, by that inside of them."""
        return median(self._overhead() for _ in range(15))

    def _overhead(self):
        seconds: list[float] = []
        f, g = clocked(linear, seconds), clocked(in_halves, seconds)
        start = perf_counter()
        calipers.diagnose(f, g, self.inputs)
        whole = perf_counter() - start
        return (whole - sum(seconds)) / sum(seconds)

    def track_calls(self):
        return sum(calipers.diagnose(linear, in_halves, self.inputs).calls.values())

    track_overhead.unit = "of the calls"
    track_calls.unit = "calls"
