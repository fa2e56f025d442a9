"""Sides that agree bit by bit, sides that raise, and approximations of a fixed accuracy."""

import math

import numpy as np

from .case import SINGLE, WHOLE, Cases, conditioned, layer, linear, narrow, normal, uniform
from .networks import gelu, gelu_tanh, windows

CASES = case = Cases()


@case("EQUAL", "Powers of two commute with rounding.")
def scaled_by_powers_of_two(rng):
    return linear, lambda x, w, b: linear(4 * x, w / 4, b), layer(rng)


@case("EQUAL ROUNDING", "The same numbers; zeros have either sign.")
def relu_forms(rng):
    return lambda x: np.maximum(x, 0), lambda x: x * (x > 0), (normal(rng, 16, 32),)


@case("EQUAL", "Sums of integers below 2^24 are exact in any order.")
def integers_in_float32(rng):
    x, w = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((32, 100), (24, 100)))
    return lambda x, w: x @ w.T, lambda x, w: np.einsum("ij,kj->ik", x, w), (x, w)


@case("EQUAL", "Counts of integers.", options=WHOLE)
def histogram_of_integers(rng):
    def g(x):
        return (x == np.arange(20)[:, None]).sum(axis=1)

    return lambda x: np.bincount(x, minlength=20), g, (rng.integers(0, 20, 500),)


@case("EQUAL", "An index: the nearest of 20 points is well apart from the next.")
def nearest_of_points(rng):
    points = rng.permutation(10 * np.eye(20, 32, dtype=np.float32))
    x = points[rng.integers(0, 20, 64)] + normal(rng, 64, 32) / 4

    def f(x, points):
        return ((x[:, None] - points) ** 2).sum(axis=2).argmin(axis=1)

    def g(x, points):
        return ((points * points).sum(axis=1) - 2 * x @ points.T).argmin(axis=1)

    return f, g, (x, points)


@case("EQUAL")
def max_pooling(rng):
    def g(x):
        return np.maximum(np.maximum(x[:, :-2:3], x[:, 1:-1:3]), x[:, 2::3])

    return lambda x: windows(x, 3)[:, ::3].max(axis=2), g, (normal(rng, 16, 60),)


@case("EQUAL", "Not a number in the same places.")
def same_nans(rng):
    def f(x):
        return np.where(x > 0, x, np.nan)

    def g(x):
        return np.where(x <= 0, x.dtype.type(np.nan), x)

    return f, g, (normal(rng, 16, 32),)


@case(
    "RAISES", "The matrix is indefinite: it has a solution and no Cholesky factor.", options=WHOLE
)
def cholesky_of_indefinite(rng):
    def g(a, b):
        factor = np.linalg.cholesky(a)
        return np.linalg.solve(factor.T, np.linalg.solve(factor, b))

    a = conditioned(rng, 16, 3)
    return np.linalg.solve, g, (a + a.T - np.eye(16, dtype=np.float32), normal(rng, 16))


@case("RAISES")
def unsupported_size(rng):
    def g(x, w, b):
        if x.shape[1] % 16:
            raise NotImplementedError("an inner size that 16 does not divide")
        return linear(x, w, b)

    return linear, g, layer(rng, inner=100)


@case("RAISES", "The first side checks its input.")
def infinity_refused(rng):
    def f(x):
        if not np.isfinite(x).all():
            raise ValueError("x is not finite")
        return np.clip(x, -3, 3)

    x = normal(rng, 16, 32)
    x[3, 5] = np.inf
    return f, lambda x: np.minimum(np.maximum(x, -3), 3), (x,)


FIXED = "Right to float32's last place or so, and no better in float64: a warning, no failure."


@case("SUSPECT", FIXED)
def exp_by_fixed_polynomial(rng):
    def g(x):
        y = np.ones_like(x)
        for k in range(9, 0, -1):
            y = 1 + y * x / k
        return y

    return np.exp, g, (uniform(rng, -0.7, 0.7, 16, 32),)


@case("SUSPECT", FIXED)
def inverse_root_by_fixed_steps(rng):
    def g(x):
        y = 1.8 - 0.8 * x
        for _ in range(3):
            y = y * (1.5 - 0.5 * x * y * y)
        return y

    return lambda x: 1 / np.sqrt(x), g, (uniform(rng, 0.5, 1, 16, 32),)


@case("BUG SUSPECT", "Another function, 5e-4 off at most: far above float32's rounding.")
def gelu_approximated(rng):
    return gelu, gelu_tanh, (normal(rng, 16, 64),)


@case(
    "BUG SUSPECT",
    "Another function, 5e-4 off: below bfloat16's rounding.",
    options={"dtype": "bfloat16"},
)
def gelu_approximated_in_bfloat16(rng):
    return gelu, gelu_tanh, (narrow(normal(rng, 16, 64), "bfloat16"),)


def sine_of_turns(x):
    return np.sin(2 * math.pi * x)


@case("ROUNDING", "g casts to float32 inside, whatever it is given.", options=SINGLE)
def sine_of_turns_single(rng):
    def g(x):
        x = x.astype(np.float32)
        return 2 * np.sin(math.pi * x) * np.cos(math.pi * x)

    return sine_of_turns, g, (uniform(rng, -1, 1, 16, 32),)
