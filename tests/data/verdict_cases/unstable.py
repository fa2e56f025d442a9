"""The same function by an algorithm that loses digits which its inputs have."""

import math

import numpy as np

from .case import WHOLE, Cases, conditioned, normal, uniform
from .networks import erfc, gelu
from .solvers import by_normal_equations, eliminate, reflect

CASES = case = Cases()


def one_pass_variance(x):
    return (x * x).mean(axis=1) - x.mean(axis=1) ** 2


@case("UNSTABLE", "E[x^2] - E[x]^2 where the mean is 3000 times the spread.")
def variance_one_pass(rng):
    return lambda x: x.var(axis=1), one_pass_variance, (3000 + normal(rng, 16, 256, 8),)


@case("UNSTABLE", "Both sides are wrong, each in its way: the mean is 3000 times the spread.")
def variance_one_pass_on_both_sides(rng):
    def g(x):
        x = x[:, ::-1]
        total = np.cumsum(x, axis=1)[:, -1]
        squares = np.cumsum(x * x, axis=1)[:, -1]
        return (squares - total * total / x.shape[1]) / x.shape[1]

    return one_pass_variance, g, (3000 + normal(rng, 16, 256, 8),)


@case("UNSTABLE", "1 + x keeps three digits of x.")
def log_of_one_plus(rng):
    return np.log1p, lambda x: np.log(1 + x), (uniform(rng, 1e-4, 2e-4, 16, 32),)


@case("UNSTABLE", "cos(x) is 1 but for 1e-5.")
def one_minus_cosine(rng):
    def f(x):
        return 2 * np.sin(x / 2) ** 2

    return f, lambda x: 1 - np.cos(x), (uniform(rng, 0.002, 0.005, 16, 32),)


@case("UNSTABLE", "The smaller root, by the formula that subtracts.", options={"batch": (0, 1)})
def quadratic_root(rng):
    def f(b, c):
        return -2 * c / (b + np.sqrt(b * b - 4 * c))

    inputs = uniform(rng, 100, 400, 16, 32), uniform(rng, 0.5, 1, 16, 32)
    return f, lambda b, c: (np.sqrt(b * b - 4 * c) - b) / 2, inputs


@case("UNSTABLE", "1 + erf(x) is 1e-6 or less, and half a last place of erf(x) is 3e-8.")
def gelu_tail(rng):
    def f(x):
        return x / 2 * erfc(x / -math.sqrt(2))

    return f, gelu, (uniform(rng, -6, -5, 16, 32),)


@case("UNSTABLE", "The terms are 1e5 times their sum.")
def alternating_series(rng):
    def g(x):
        term = total = np.ones_like(x)
        for k in range(1, 60):
            term = term * -x / k
            total = total + term
        return total

    return lambda x: np.exp(-x), g, (uniform(rng, 7, 8, 16, 32),)


@case("UNSTABLE", "The points are 1e3 times as far from 0 as from each other.")
def squared_distances_far_away(rng):
    def f(x, y):
        return ((x[:, None] - y) ** 2).sum(axis=2)

    def g(x, y):
        return (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1) - 2 * (x @ y.T)

    return f, g, (1000 + normal(rng, 24, 64), 1000 + normal(rng, 20, 64))


@case("UNSTABLE", "The running sum grows to 500 times the window's.", options={"reduction": 8})
def moving_sum_by_differences(rng):
    def f(x):
        return np.lib.stride_tricks.sliding_window_view(x, 8, axis=1).sum(axis=2)

    def g(x):
        total = np.cumsum(x, axis=1)
        return total[:, 7:] - np.concatenate([np.zeros_like(total[:, :1]), total[:, :-8]], axis=1)

    return f, g, (uniform(rng, 0, 1, 4, 4000),)


@case("UNSTABLE", "The matrix is well-conditioned, its first pivot 1e-5.", options=WHOLE)
def elimination_without_pivoting(rng):
    a = conditioned(rng, 24, 5)
    a[0, 0] = 1e-5
    return eliminate, lambda a, b: eliminate(a, b, pivot=False), (a, normal(rng, 24))


@case("UNSTABLE", "The condition is 1e3, and its square meets the precision.", options=WHOLE)
def normal_equations_ill_conditioned(rng):
    a = conditioned(rng, 80, 1e3, 12)
    b = a @ normal(rng, 12) + normal(rng, 80) * np.float32(1e-5)
    return reflect, by_normal_equations, (a, b)
