"""Sides that do not repeat themselves: sums in another order each time, noise, and stale memory."""

import numpy as np

from .case import WHOLE, Cases, layer, linear, normal, uniform

CASES = case = Cases()


@case("NONDETERMINISTIC")
def sum_in_random_order(rng):
    order = rng.spawn(1)[0]

    def g(x):
        return x[:, order.permutation(x.shape[1])].sum(axis=1)

    return lambda x: x.sum(axis=1), g, (uniform(rng, 0, 1, 32, 500),)


def linear_by_racing_parts(order):
    """Return a linear layer whose eight partial products are added as they come."""

    def g(x, w, b):
        parts = order.permutation(np.split(np.arange(x.shape[1]), 8))
        return sum(x[:, k] @ w[:, k].T for k in parts) + b

    return g


@case("NONDETERMINISTIC")
def linear_racing(rng):
    return linear, linear_by_racing_parts(rng.spawn(1)[0]), layer(rng)


@case("NONDETERMINISTIC", "The side that varies is the first one.")
def linear_racing_first(rng):
    return linear_by_racing_parts(rng.spawn(1)[0]), linear, layer(rng)


@case("NONDETERMINISTIC", "Rows are added to their targets as they come.", options=WHOLE)
def scatter_in_random_order(rng):
    order = rng.spawn(1)[0]

    def f(x, index):
        y = np.zeros((16, x.shape[1]), x.dtype)
        np.add.at(y, index, x)
        return y

    def g(x, index):
        racing = order.permutation(len(x))
        return f(x[racing], index[racing])

    return f, g, (normal(rng, 400, 16), rng.integers(0, 16, 400))


# They vary, and by far more than rounding: either headline is true, and none that is milder.
NOT_REPEATED = "BUG NONDETERMINISTIC"


@case(NOT_REPEATED, "A tenth of the inputs is dropped.")
def dropout_left_on(rng):
    noise = rng.spawn(1)[0]

    def g(x, w, b):
        kept = noise.random(x.shape) < 0.9
        return linear(x * kept / 0.9, w, b).astype(x.dtype)

    return linear, g, layer(rng)


@case(NOT_REPEATED, "g adds to a buffer that is cleared once: its first result alone is right.")
def buffer_not_cleared(rng):
    buffers = {}

    def g(x, w, b):
        y = linear(x, w, b)
        buffer = buffers.setdefault((y.shape, y.dtype), np.zeros_like(y))
        buffer += y
        return buffer.copy()

    return linear, g, layer(rng)


@case(NOT_REPEATED, "The last columns hold what the memory held before.")
def tail_uninitialised(rng):
    noise = rng.spawn(1)[0]

    def g(x, w, b):
        y = linear(x, w, b)
        y[:, -3:] = noise.standard_normal((len(y), 3))
        return y

    return linear, g, layer(rng)


@case(NOT_REPEATED, "Each call loses one of eight partial products, as a race does.")
def lost_update(rng):
    noise = rng.spawn(1)[0]

    def g(x, w, b):
        parts = np.split(np.arange(x.shape[1]), 8)
        del parts[noise.integers(8)]
        return sum(x[:, k] @ w[:, k].T for k in parts) + b

    return linear, g, layer(rng)


@case("BUG", "The order varies, but what is wrong is the missing bias.")
def racing_without_bias(rng):
    g = linear_by_racing_parts(rng.spawn(1)[0])
    return linear, lambda x, w, b: g(x, w, 0 * b), layer(rng)
