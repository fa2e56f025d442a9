"""Sums, means, variances, norms, softmax and polynomials by several algorithms."""

import math

import numpy as np

from .case import WHOLE, Cases, normal, softmax, uniform

CASES = case = Cases()


def in_turn(x):
    total = np.zeros_like(x[:, 0])
    for k in range(x.shape[1]):
        total = total + x[:, k]
    return total


@case("LAYOUT", "NumPy adds the columns of a column-major array in turn, as g does.")
def sum_in_turn(rng):
    return lambda x: x.sum(axis=1), in_turn, (normal(rng, 64, 500),)


@case("LAYOUT", "As sum_in_turn, of positive numbers: the error of g grows with every term.")
def sum_last_of_cumsum(rng):
    x = uniform(rng, 0, 1, 64, 2000)
    return lambda x: x.sum(axis=1), lambda x: np.cumsum(x, axis=1)[:, -1], (x,)


@case("LAYOUT", "NumPy adds a contiguous column by pairs, and one of many in turn.", options=WHOLE)
def sum_slice_of_columns(rng):
    def g(a):
        return np.stack([a[:, j].sum() for j in range(8)])

    return lambda a: a.sum(axis=0)[:8], g, (normal(rng, 600, 32),)


def by_pairs(x):
    while x.shape[1] > 1:
        x = x[:, ::2] + x[:, 1::2]
    return x[:, 0]


@case("ROUNDING")
def sum_by_pairs_in_float64(rng):
    return by_pairs, in_turn, (rng.standard_normal((8, 512, 16)),)


@case("ROUNDING", "The compensated sum has next to no error; the other has that of 256 terms.")
def sum_compensated(rng):
    def g(x):
        total = np.zeros_like(x[:, 0])
        lost = np.zeros_like(total)
        for k in range(x.shape[1]):
            term = x[:, k] - lost
            grown = total + term
            lost = (grown - total) - term
            total = grown
        return total

    return in_turn, g, (uniform(rng, 0, 1, 8, 256, 16),)


@case("ROUNDING LAYOUT", options={"batch": (0, 1)})
def dot_exactly_rounded(rng):
    def g(x, y):
        products = x.astype(np.result_type(x.dtype, float)) * y
        return np.array([math.fsum(row) for row in products], x.dtype)

    inputs = normal(rng, 16, 300), normal(rng, 16, 300)
    return lambda x, y: (x * y).sum(axis=1), g, inputs


@case("ROUNDING LAYOUT EQUAL", options={"batch": (), "reduction": 64 * 64})
def trace_of_product(rng):
    inputs = normal(rng, 64, 64), normal(rng, 64, 64)
    return lambda a, b: np.trace(a @ b), lambda a, b: (a * b.T).sum(), inputs


@case("ROUNDING LAYOUT")
def variance_welford(rng):
    def g(x):
        mean = np.zeros_like(x[:, 0])
        squares = np.zeros_like(mean)
        for k in range(x.shape[1]):
            delta = x[:, k] - mean
            mean = mean + delta / (k + 1)
            squares = squares + delta * (x[:, k] - mean)
        return squares / x.shape[1]

    return lambda x: x.var(axis=1), g, (1 + normal(rng, 8, 200, 16),)


@case("ROUNDING LAYOUT", "With a mean of 0, nothing cancels.")
def variance_one_pass_centred(rng):
    def g(x):
        return (x * x).mean(axis=1) - x.mean(axis=1) ** 2

    return lambda x: x.var(axis=1), g, (normal(rng, 8, 200, 16),)


@case("ROUNDING LAYOUT")
def norm_scaled(rng):
    def g(x):
        largest = np.abs(x).max(axis=1, keepdims=True)
        return largest[:, 0] * np.sqrt(((x / largest) ** 2).sum(axis=1))

    return lambda x: np.sqrt((x * x).sum(axis=1)), g, (normal(rng, 8, 300, 16),)


@case("ROUNDING")
def cumsum_in_blocks(rng):
    def g(x):
        inner = np.cumsum(x.reshape(len(x), 16, -1), axis=2)
        before = np.cumsum(inner[:, :, -1], axis=1) - inner[:, :, -1]
        return (inner + before[:, :, None]).reshape(x.shape)

    return lambda x: np.cumsum(x, axis=1), g, (uniform(rng, 0, 1, 16, 512),)


@case("ROUNDING LAYOUT", "The points are about as far from each other as from 0.")
def squared_distances(rng):
    def f(x, y):
        return ((x[:, None] - y) ** 2).sum(axis=2)

    def g(x, y):
        return (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1) - 2 * (x @ y.T)

    return f, g, (normal(rng, 24, 64), normal(rng, 20, 64))


@case("ROUNDING LAYOUT", "Logits so small that the shift by the largest only changes rounding.")
def softmax_unshifted(rng):
    def g(x):
        e = np.exp(x)
        return e / e.sum(axis=1, keepdims=True)

    return softmax, g, (normal(rng, 32, 100),)


@case("ROUNDING LAYOUT")
def softmax_online(rng):
    def g(x):
        largest = np.full_like(x[:, :1], -np.inf)
        total = np.zeros_like(largest)
        for k in range(0, x.shape[1], 16):
            block = x[:, k : k + 16]
            grown = np.maximum(largest, block.max(axis=1, keepdims=True))
            total = total * np.exp(largest - grown)
            total = total + np.exp(block - grown).sum(axis=1, keepdims=True)
            largest = grown
        return np.exp(x - largest) / total

    return softmax, g, (4 * normal(rng, 32, 128),)


@case("ROUNDING LAYOUT")
def log_softmax_of_softmax(rng):
    def f(x):
        x = x - x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    return f, lambda x: np.log(softmax(x)), (2 * normal(rng, 32, 100),)


@case("ROUNDING")
def logsumexp_folded(rng):
    def f(x):
        largest = x.max(axis=1, keepdims=True)
        return largest[:, 0] + np.log(in_turn(np.exp(x - largest)))

    return f, lambda x: np.logaddexp.reduce(x, axis=1), (3 * normal(rng, 8, 64, 16),)


def horner(x, c):
    y = np.zeros_like(x)
    for ck in c[::-1]:
        y = y * x + ck
    return y


@case("ROUNDING")
def polynomial_estrin_in_float64(rng):
    def g(x, c):
        terms = [np.full_like(x, ck) for ck in c]
        while len(terms) > 1:
            terms = [low + high * x for low, high in zip(terms[::2], terms[1::2], strict=True)]
            x = x * x
        return terms[0]

    return horner, g, (rng.uniform(-1, 1, 400), rng.standard_normal(16))
