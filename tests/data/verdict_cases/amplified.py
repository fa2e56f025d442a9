"""Ill-conditioned functions and ones that jump: both sides are as good as their inputs allow."""

import math

import numpy as np

from .case import WHOLE, Cases, conditioned, normal, softmax, uniform
from .reductions import horner
from .solvers import by_cholesky, eliminate, reflect

CASES = case = Cases()


@case("AMPLIFIED", "Condition 3e4.", options=WHOLE)
def solve_ill_conditioned(rng):
    return eliminate, reflect, (conditioned(rng, 24, 3e4), normal(rng, 24))


@case("AMPLIFIED", "Condition 1e4, of a matrix made symmetric wherever m is moved.", options=WHOLE)
def cholesky_ill_conditioned(rng):
    def f(m, b):
        return eliminate((m + m.T) / 2, b)

    def g(m, b):
        return by_cholesky((m + m.T) / 2, b)

    q = np.linalg.qr(rng.standard_normal((24, 24)))[0]
    m = (q * np.geomspace(1, 1e-4, 24) @ q.T).astype(np.float32)
    return f, g, (m, normal(rng, 24))


@case("AMPLIFIED", "Condition 1e6: one digit of seven is left, or none.", options=WHOLE)
def solve_near_singular(rng):
    return eliminate, reflect, (conditioned(rng, 24, 1e6), normal(rng, 24))


@case("AMPLIFIED", "Condition 1e5, in float32 inside torch.", options=WHOLE, needs=("torch",))
def solve_ill_conditioned_torch(rng):
    import torch

    def g(a, b):
        q, r = torch.linalg.qr(a)
        return torch.linalg.solve_triangular(r, q.T @ b, upper=True)

    inputs = conditioned(rng, 40, 1e5), normal(rng, 40, 2)
    return torch.linalg.solve, g, tuple(map(torch.from_numpy, inputs))


@case("AMPLIFIED", "The two largest eigenvalues differ by 1e-4 of their size.", options=WHOLE)
def eigenvector_of_close_pair(rng):
    def power(a):
        # 2^20 steps: the other eigenvectors have vanished.
        for _ in range(20):
            a = a @ a
            a = a / np.sqrt((a * a).sum())
        return a

    def f(m):
        return power((m + m.T) / 2)

    def g(m):
        v = np.linalg.svd((m + m.T) / 2)[0][:, 0]
        return np.outer(v, v)

    q = np.linalg.qr(rng.standard_normal((24, 24)))[0]
    values = np.concatenate([[1, 1 - 1e-4], np.linspace(0.1, 0.5, 22)])
    return f, g, ((q * values @ q.T).astype(np.float32),)


@case("AMPLIFIED", "(x - 1)^6 multiplied out, where its terms are 1e4 times its value.")
def polynomial_near_a_root(rng):
    def g(x, c):
        return sum(ck * x**k for k, ck in enumerate(c))

    c = np.array([1, -6, 15, -20, 15, -6, 1], np.float32)
    return horner, g, (uniform(rng, 1.25, 1.4, 400), c)


@case("AMPLIFIED", "The sum is 1e-4 of the sum of its terms' sizes.", options={"batch": (0, 1)})
def dot_that_cancels(rng):
    x, y = normal(rng, 32, 256).astype(float), normal(rng, 32, 256).astype(float)
    x[:, 0] = 1
    y[:, 0] -= (x * y).sum(axis=1) - 1e-2 * rng.standard_normal(32)

    def g(x, y):
        return np.cumsum((x * y)[:, ::-1], axis=1)[:, -1]

    return lambda x, y: (x * y).sum(axis=1), g, (x.astype(np.float32), y.astype(np.float32))


@case("AMPLIFIED", "A phase of thousands of radians: its last place moves the sine by 1e-4.")
def sine_of_large_phase(rng):
    def g(x, w):
        return np.sin(np.einsum("ij,kj->ik", x, w))

    return lambda x, w: np.sin(x @ w.T), g, (100 * normal(rng, 16, 64), 4 * normal(rng, 24, 64))


def bessel_series(order, x):
    """Return J of an integer order."""
    terms = ((-1) ** k * (x / 2) ** (2 * k + order) for k in range(20))
    factorials = (math.factorial(k) * math.factorial(k + order) for k in range(20))
    return sum(term / by for term, by in zip(terms, factorials, strict=True))


@case(
    "AMPLIFIED",
    "The recurrence upwards: what J0 and J1 lack to be Bessel functions grows as J4 shrinks.",
    options={"batch": (0, 1, 2)},
)
def bessel_by_recurrence(rng):
    def f(x, j0, j1):
        for k in range(1, 4):
            j0, j1 = j1, 2 * k / x * j1 - j0
        return j1

    def g(x, j0, j1):
        for k in range(1, 4):
            j0, j1 = j1, (2 * k * j1 - x * j0) / x
        return j1

    x = uniform(rng, 0.5, 1, 16, 32)
    exact = (bessel_series(order, x.astype(float)) for order in (0, 1))
    return f, g, (x, *(j.astype(np.float32) for j in exact))


@case("AMPLIFIED", "Probabilities sum to 1, or to the number below it: a tie in every precision.")
def floor_of_softmax_sum(rng):
    def g(x):
        return np.floor(np.cumsum(softmax(x), axis=1)[:, -1])

    return lambda x: np.floor(softmax(x).sum(axis=1)), g, (normal(rng, 256, 50),)


@case("AMPLIFIED", "Bytes divided by 255 are ties of the floor that makes them bytes again.")
def floor_to_bytes(rng):
    x = rng.integers(0, 256, (32, 64)).astype(np.float32) / 255
    return lambda x: np.floor(x * 255), lambda x: np.floor(x / (1 / 255)), (x,)


@case("AMPLIFIED", "The numbers of each row sum to 0: the sign is that of the rounding.")
def sign_of_zero_sum(rng):
    half = normal(rng, 64, 50)
    x = rng.permuted(np.concatenate([half, -half], axis=1), axis=1)

    def g(x):
        return np.sign(np.cumsum(x, axis=1)[:, -1]).astype(int)

    return lambda x: np.sign(np.cumsum(x[:, ::-1], axis=1)[:, -1]).astype(int), g, (x,)


@case("AMPLIFIED", "All candidates have the same score but for rounding, and one must win.")
def argmax_of_ties(rng):
    values = normal(rng, 64)
    weights = np.stack([rng.permutation(values) for _ in range(8)])
    x = np.repeat(uniform(rng, 0.5, 1, 64, 1), 64, axis=1)

    def g(x, w):
        return np.einsum("ij,kj->ki", x, w).argmax(axis=0)

    return lambda x, w: (x[:, ::-1] @ w.T[::-1]).argmax(axis=1), g, (x, weights)
