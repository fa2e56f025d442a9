"""Pairs with awkward inputs: ties, NaN, infinities, bytes and times, chaos, one number, one format.

Labelled when the rules stood, and before any was asked, as those of other fields are. Sides that
are compiled, or call a library for matrices, have no format wider than float64, and some have
float32 alone.
"""

import math

import numba
import numpy as np

from .case import (
    HIDDEN,
    SAME,
    SCIPY,
    SINGLE,
    TORCH,
    WARPED,
    WHOLE,
    Cases,
    double,
    in_float32,
    normal,
    uniform,
)
from .equations import advection_by_weights, oscillator_by_two_places
from .signals import angle_of_parallel_vectors, bilinear_warp
from .statistics import covariances, histogram_without_its_end, ranks_of_equal_numbers

CASES = case = Cases()

UNSURE = f"{SAME} UNSTABLE"


UNASKED = {"reference": None}


# Ties, which last places decide.


@case("AMPLIFIED SUSPECT", "bins of tenths, to which numbers that are tenths belong", options=WHOLE)
def bins_of_tenths(rng):
    def f(x):
        return np.floor(x / x.dtype.type(0.1)).astype(int)

    def g(x):
        edges = np.arange(21, dtype=x.dtype) * x.dtype.type(0.1)
        return np.searchsorted(edges, x, side="right") - 1

    return f, g, [(rng.integers(0, 20, 60) / 10).astype(np.float32)]


@case("AMPLIFIED", "the order of sums of the same numbers, each row in an order of its own")
def order_of_equal_sums(rng):
    rows = np.tile(normal(rng, 1, 40), (30, 1))
    x = rng.permuted(rows, axis=1)

    def f(x):
        return np.argsort(x.sum(axis=1), kind="stable")

    return f, lambda x: np.argsort(x.cumsum(axis=1)[:, -1], kind="stable"), [x]


@case("AMPLIFIED ROUNDING LAYOUT", "prices to hundredths, by a product and by a quotient")
def prices_to_hundredths(rng):
    def g(x):
        return np.rint(x / x.dtype.type(0.01)) * x.dtype.type(0.01)

    x = (rng.integers(1, 4000, 200) * 2 + 1) / 200
    return lambda x: np.rint(x * 100) / 100, g, [x.astype(np.float32)]


@case(HIDDEN, "half an hour is rounded to an even hour, or up")
def hours_of_half_hours(rng):
    x = (rng.integers(0, 48, 80) / 2).astype(np.float32)
    return np.rint, lambda x: np.floor(x + x.dtype.type(0.5)), [x]


@case("AMPLIFIED", "the sign of a determinant of points that are on a line", options=WHOLE)
def turns_of_points_on_a_line(rng):
    def f(a, b, c):
        return np.sign(
            (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
        )

    def g(a, b, c):
        return np.sign(
            (a[:, 0] - c[:, 0]) * (b[:, 1] - c[:, 1]) - (a[:, 1] - c[:, 1]) * (b[:, 0] - c[:, 0])
        )

    a, b = normal(rng, 80, 2), normal(rng, 80, 2)
    return f, g, [a, b, (0.3 * a + 0.7 * b).astype(np.float32)]


# NaN, infinities, nothing.


@case(SAME, "means of what is known, of a library and by sums")
def means_of_what_is_known(rng):
    x = normal(rng, 20, 50)
    x[rng.random(x.shape) < 0.2] = np.nan

    def g(x):
        known = ~np.isnan(x)
        total = np.where(known, x, 0)[:, ::-1].cumsum(axis=1)[:, -1]
        return total / known.sum(axis=1).astype(x.dtype)

    return lambda x: np.nanmean(x, axis=1), g, [x]


@case("BUG", "what is not known counts in the length")
def means_of_all_that_is_known(rng):
    x = double(rng, 20, 50)
    x[rng.random(x.shape) < 0.02] = np.nan
    return lambda x: np.nanmean(x, axis=1), lambda x: np.nan_to_num(x).mean(axis=1), [x]


@case(f"{SAME} EQUAL", "ways among nodes of which some are not joined: infinite", options=WHOLE)
def ways_that_are_not(rng):
    def f(d):
        d = d.copy()
        for k in range(len(d)):
            d = np.minimum(d, d[:, k, None] + d[k])
        return d

    def g(d):
        for _ in range(5):
            d = np.min(d[:, :, None] + d, axis=1)
        return d

    d = uniform(rng, 1, 20, 20, 20)
    d[rng.random(d.shape) < 0.85] = np.inf
    np.fill_diagonal(d, 0)
    return f, g, [d]


@case(HIDDEN, "the logarithm of no sum is NaN, and not minus infinity")
def log_sum_of_nothing(rng):
    def f(x):
        return np.logaddexp.reduce(x, axis=1)

    def g(x):
        top = x.max(axis=1, keepdims=True)
        return np.log(np.exp(x - top).sum(axis=1)) + top[:, 0]

    x = normal(rng, 20, 30)
    x[4] = -np.inf
    return f, g, [x]


@case("RANGE", "a plan of transport whose kernel underflows, and by logarithms", options=WHOLE)
def plan_of_transport(rng):
    def f(c):
        n, kind = len(c), c.dtype.type
        a, b = np.zeros(n, c.dtype), np.zeros(n, c.dtype)
        log = -c / kind(0.004)
        for _ in range(60):
            a = -np.logaddexp.reduce(log + b, axis=1) - np.log(kind(n))
            b = -np.logaddexp.reduce(log + a[:, None], axis=0) - np.log(kind(n))
        return np.exp(log + a[:, None] + b)

    def g(c):
        n, kind = len(c), c.dtype.type
        k = np.exp(-c / kind(0.004))
        v = np.ones(n, c.dtype)
        for _ in range(60):
            u = 1 / kind(n) / (k @ v)
            v = 1 / kind(n) / (k.T @ u)
        return u[:, None] * k * v

    return f, g, [uniform(rng, 0.5, 1.5, 12, 12)]


# Bytes, counts and times.


@case("EQUAL", "grey of bytes, in float32 and in doubles", options=WHOLE)
def grey_of_bytes(rng):
    weights = np.array([0.299, 0.587, 0.114])

    def grey(kind):
        return lambda x: np.rint(x.astype(kind) @ weights.astype(kind)).astype(np.uint8)

    x = rng.integers(0, 256, (16, 20, 3), dtype=np.uint8)
    x[..., 2] |= 1
    x[np.abs((x @ np.array([299, 587, 114])) % 1000 - 500) < 2] = 0  # no ties, nor nearly so
    return grey(np.float32), grey(np.float64), [x]


@case("AMPLIFIED SUSPECT", "grey of bytes, some of which are half way to the next", options=WHOLE)
def grey_of_bytes_at_ties(rng):
    weights = np.array([0.299, 0.587, 0.114])

    def grey(kind):
        return lambda x: np.rint(x.astype(kind) @ weights.astype(kind)).astype(np.uint8)

    x = rng.integers(0, 256, (200_000, 3), dtype=np.uint8)
    ties = (x.astype(int) @ np.array([299, 587, 114])) % 1000 == 500
    return grey(np.float32), grey(np.float64), [np.concatenate([x[ties], x[:400]])]


@case(HIDDEN, "means of two bytes: halves to an even number, or up", options=WHOLE)
def means_of_two_bytes(rng):
    def g(x):
        return np.floor(x.mean(axis=1) + 0.5).astype(np.uint8)

    x = rng.integers(0, 256, (150, 2), dtype=np.uint8)
    return lambda x: np.rint(x.mean(axis=1)).astype(np.uint8), g, [x]


@case(HIDDEN, "weights as integers by 256, cut off", options=WHOLE)
def grey_of_bytes_by_shifts(rng):
    def f(x):
        return np.rint(x @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)

    def g(x):
        return (x.astype(int) @ np.array([77, 150, 29]) >> 8).astype(np.uint8)

    return f, g, [rng.integers(0, 256, (16, 20, 3), dtype=np.uint8)]


@case("BUG", "bytes wrap around where they are taken from one another", options=WHOLE)
def difference_of_bytes(rng):
    def f(a, b):
        return np.abs(a.astype(int) - b).mean(axis=1)

    def g(a, b):
        return np.abs(a - b).mean(axis=1)

    return f, g, list(rng.integers(0, 256, (2, 16, 20), dtype=np.uint8))


@case("BUG", "places beyond 2**31 are held in 32 bits", options=WHOLE)
def places_in_32_bits(rng):
    def f(i, j):
        return i.astype(np.int64) * 70_000 + j

    def g(i, j):
        return i * np.int32(70_000) + j

    return f, g, list(rng.integers(0, 70_000, (2, 60)).astype(np.int32))


@case("AMPLIFIED", "hours of the day of times since 1970, by two remainders")
def hours_of_times(rng):
    x = 1.7e9 + rng.uniform(0, 86400, 80)
    return lambda t: t % 86400 / 3600, lambda t: t / 3600 % 24, [x]


@case("BUG", "an hour of summer time is missing")
def hours_of_other_times(rng):
    x = 1.7e9 + rng.uniform(0, 86400, 80)
    return lambda t: t % 86400 / 3600, lambda t: (t - 3600) % 86400 / 3600, [x]


@case(SAME, "shares of counts, by a quotient and by logarithms of counts", options=WHOLE)
def shares_of_counts(rng):
    def f(counts):
        return (counts / counts.sum(axis=1, keepdims=True)).astype(np.float32)

    def g(counts):
        x = counts.astype(np.float32)
        return x * (1 / x.sum(axis=1, keepdims=True))

    return f, g, [rng.integers(1, 1000, (20, 9))]


@case("BUG", "one is added to counts, and not to how many there are", options=WHOLE)
def shares_of_more_counts(rng):
    def f(counts):
        return (counts + 1) / (counts.sum(axis=1, keepdims=True) + counts.shape[1])

    def g(counts):
        return (counts + 1) / counts.sum(axis=1, keepdims=True)

    return f, g, [rng.integers(0, 100, (20, 9))]


# Chaos.


def lorenz(y, steps, rho=28.0, h=0.02, folded=False):
    """Euler's steps of Lorenz's equations, which magnify as others do."""
    for _ in range(steps):
        a, b, c = y.T
        if folded:
            rates = [10 * b - 10 * a, (rho - c) * a - b, a * b - (8 / 3) * c]
        else:
            rates = [10 * (b - a), a * rho - a * c - b, a * b - 8 * c / 3]
        y = y + h * np.stack(rates, axis=1)
    return y


def clouds(rng, kind=np.float32):
    return [(rng.standard_normal((20, 3)) + [1, 2, 20]).astype(kind)]


@case("AMPLIFIED ROUNDING LAYOUT UNSTABLE", "300 steps: last places a thousand times as large")
def lorenz_of_six_units(rng):
    return lambda y: lorenz(y, 300), lambda y: lorenz(y, 300, folded=True), clouds(rng)


@case("AMPLIFIED UNSTABLE", "1200 steps: nothing is left of float32's digits")
def lorenz_of_thirty_units(rng):
    return lambda y: lorenz(y, 1200), lambda y: lorenz(y, 1200, folded=True), clouds(rng)


@case(HIDDEN, "28.0001 for 28")
def lorenz_of_another_constant(rng):
    return lambda y: lorenz(y, 150), lambda y: lorenz(y, 150, 28.0001), clouds(rng, np.float64)


# One number alone.


@numba.njit
def pair_energy(x, single):
    total = x.dtype.type(0)
    for i in range(len(x)):
        for j in range(i + single):
            r2 = x.dtype.type(0.3)
            for k in range(x.shape[1]):
                r2 += (x[i, k] - x[j, k]) ** 2
            total += 1 / (r2 * r2 * r2) - 1 / r2
    return total


def energy(x):
    d = x[:, None] - x
    r2 = (d * d).sum(axis=2) + x.dtype.type(0.3)
    e = 1 / r2**3 - 1 / r2
    return (e.sum() - np.trace(e)) / 2


@case(f"{SAME} AMPLIFIED", "an energy of all pairs, or of half of them", options=WHOLE)
def energy_of_pairs(rng):
    return energy, lambda x: pair_energy(x, 0), [normal(rng, 40, 3)]


@case(f"{SAME} AMPLIFIED", "the same in float32 alone", options=WHOLE)
def energy_of_pairs_in_float32(rng):
    g = in_float32(lambda x: np.float32(pair_energy(x, 0)))
    return energy, g, [normal(rng, 40, 3)]


@case("BUG", "each body is a pair with itself, too", options=WHOLE)
def energy_of_more_pairs(rng):
    return energy, lambda x: pair_energy(x, 1), [double(rng, 40, 3)]


def fit_loss(decay):
    def f(x, y, w):
        return ((x @ w - y) ** 2).mean() + decay * (w * w).sum()

    return f


def fit(rng, kind):
    x, w = rng.standard_normal((60, 8)), rng.standard_normal(8)
    y = x @ w + rng.standard_normal(60)
    return [v.astype(kind) for v in (x, y, w)]


@case(HIDDEN, "a decay of 1e-6 is left out of a loss", options=WHOLE)
def loss_without_decay(rng):
    return fit_loss(1e-6), fit_loss(0.0), fit(rng, np.float64)


@case(HIDDEN, "the same in float32", options=WHOLE)
def loss_without_decay_in_float32(rng):
    return fit_loss(1e-6), fit_loss(0.0), fit(rng, np.float32)


def likelihood_by_cholesky(k, y):
    left = np.linalg.cholesky(k)
    z = np.linalg.solve(left, y)
    return -z @ z / 2 - np.log(np.diag(left)).sum() - len(y) / 2 * math.log(2 * math.pi)


def processes(rng, kind=np.float64):
    x = np.sort(rng.uniform(0, 5, 30))
    k = np.exp(-((x[:, None] - x) ** 2) / 2) + 0.1 * np.eye(30)
    return [k.astype(kind), rng.standard_normal(30).astype(kind)]


@case(
    f"{SAME} AMPLIFIED EQUAL",
    "a likelihood by two ways of solving, in float64 alone: one number, equal by chance or not",
    options=WHOLE,
)
def likelihood_of_a_process(rng):
    def g(k, y):
        _, log = np.linalg.slogdet(k)
        return -(y @ np.linalg.inv(k) @ y + log + len(y) * math.log(2 * math.pi)) / 2

    return likelihood_by_cholesky, g, processes(rng)


@case("BUG", "half of the logarithm of the determinant is left out", options=WHOLE)
def likelihood_of_half_a_determinant(rng):
    def g(k, y):
        _, log = np.linalg.slogdet(k)
        return -(y @ np.linalg.inv(k) @ y + log / 2 + len(y) * math.log(2 * math.pi)) / 2

    return likelihood_by_cholesky, g, processes(rng)


# Compiled loops of float64 alone, and of float32 alone.


@numba.njit
def factor(a):
    """Cholesky's factor, row by row."""
    left = np.zeros_like(a)
    for i in range(len(a)):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s -= left[i, k] * left[j, k]
            left[i, j] = math.sqrt(s) if i == j else s / left[j, j]
    return left


def positive(rng, n=20):
    a = rng.standard_normal((n, 2 * n))
    return [a @ a.T / n]


@case(f"{SAME} EQUAL", "a factor of a library, and of a loop", options=WHOLE)
def cholesky_in_a_loop(rng):
    return np.linalg.cholesky, factor, positive(rng)


@case("BUG", "a factor of 1e-9 is added to the diagonal", options=WHOLE)
def cholesky_of_more(rng):
    def g(a):
        return factor(a + 1e-9 * np.eye(len(a)))

    return np.linalg.cholesky, g, positive(rng)


@numba.njit
def smoothed(x, level, trend):
    """Holt's double exponential smoothing."""
    y = np.empty_like(x)
    a, b = x[0], x[1] - x[0]
    y[0] = a
    for k in range(1, len(x)):
        before = a
        a = level * x[k] + (1 - level) * (a + b)
        b = trend * (a - before) + (1 - trend) * b
        y[k] = a
    return y


def smoothed_by_errors(x, level=0.4, trend=0.2, first=1):
    y = np.empty_like(x)
    a, b = x[0], x[first] - x[0]
    y[0] = a
    for k in range(1, len(x)):
        error = x[k] - (a + b)
        a = a + b + level * error
        b = b + level * trend * error
        y[k] = a
    return y


@case(SAME, "by means and by errors: one side has float64 alone", options=WHOLE)
def smoothing_by_errors(rng):
    return smoothed_by_errors, lambda x: smoothed(x, 0.4, 0.2), [double(rng, 200)]


@case(HIDDEN, "0.40001 for 0.4 in float64 alone", options=WHOLE)
def smoothing_by_another_level(rng):
    return smoothed_by_errors, lambda x: smoothed(x, 0.40001, 0.2), [double(rng, 200)]


@case(HIDDEN, "the same in float32 alone", options=WHOLE)
def smoothing_by_another_level_in_float32(rng):
    g = in_float32(lambda x: smoothed(x, np.float32(0.40001), np.float32(0.2)))
    return smoothed_by_errors, g, [normal(rng, 200)]


@case(SAME, "the same levels in float32 alone", options=WHOLE)
def smoothing_in_float32(rng):
    g = in_float32(lambda x: smoothed(x, np.float32(0.4), np.float32(0.2)))
    return smoothed_by_errors, g, [normal(rng, 200)]


@numba.njit(fastmath=True)
def fast_norms(x):
    y = np.empty(len(x), x.dtype)
    for i in range(len(x)):
        s = x.dtype.type(0)
        for k in range(x.shape[1]):
            s += x[i, k] * x[i, k]
        y[i] = math.sqrt(s)
    return y


@case(SAME, "a loop that may be added up in any order")
def norms_in_any_order(rng):
    return lambda x: np.sqrt((x * x).sum(axis=1)), fast_norms, [double(rng, 30, 99)]


@numba.njit
def kepler_loop(mean, e, steps):
    out = np.empty_like(mean)
    for k in range(len(mean)):
        x = mean[k]
        for _ in range(steps):
            x -= (x - e * math.sin(x) - mean[k]) / (1 - e * math.cos(x))
        out[k] = x
    return out


def kepler(mean, e=0.3):
    x = mean
    for _ in range(80):
        x = mean + e * np.sin(x)
    return x


@case(SAME, "Kepler's equation, by its own steps and by Newton's", options=WHOLE)
def kepler_by_newton(rng):
    return kepler, lambda m: kepler_loop(m, 0.3, 8), [rng.uniform(0, 3, 100)]


@case(HIDDEN, "two of Newton's steps are not the end", options=WHOLE)
def kepler_by_two_steps(rng):
    return kepler, lambda m: kepler_loop(m, 0.3, 2), [uniform(rng, 0, 3, 100)]


@case(HIDDEN, "a sine by a table of 512, and lines", options=SINGLE)
def sine_by_a_table(rng):
    table = np.sin(np.arange(513) * (2 * math.pi / 512)).astype(np.float32)

    def g(x):
        at = (x.astype(np.float32) * np.float32(512 / (2 * math.pi))) % 512
        k = np.minimum(at.astype(int), 511)
        t = at - k.astype(np.float32)
        return table[k] + t * (table[k + 1] - table[k])

    return np.sin, g, [uniform(rng, 0, 6, 200)]


# What is small beside 1.


@case("UNSTABLE", "returns of a ten thousandth, by products and by logarithms", options=SINGLE)
def compounded_returns(rng):
    def f(r):
        return np.expm1(np.log1p(r).cumsum(axis=1))

    return (
        f,
        in_float32(lambda r: np.cumprod(1 + r, axis=1) - 1),
        [1e-6 * uniform(rng, 0, 1, 9, 20)],
    )


@case("UNSTABLE", "a share of what is explained, from 1, of nearly nothing", options=WHOLE)
def what_is_explained(rng):
    def f(x, y):
        u, v = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
        return (u * v).sum(axis=1) ** 2 / ((u * u).sum(axis=1) * (v * v).sum(axis=1))

    def g(x, y):
        u, v = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
        slope = (u * v).sum(axis=1, keepdims=True) / (u * u).sum(axis=1, keepdims=True)
        rest = v - slope * u
        return 1 - (rest * rest).sum(axis=1) / (v * v).sum(axis=1)

    x, y = normal(rng, 30, 40), normal(rng, 30, 40)
    u, v = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    slope = (u * v).sum(axis=1, keepdims=True) / (u * u).sum(axis=1, keepdims=True)
    return f, g, [x, (y - slope * x + 3e-3 * x).astype(np.float32)]


# Matrices of complex numbers, quaternions, gradients.


@case(SAME, "a filter bank of complex numbers, in two matrices of real ones", options=WHOLE)
def complex_products_in_parts(rng):
    def f(z, w):
        return np.exp(1j * np.angle(z @ w)) * np.abs(z @ w) ** z.real.dtype.type(0.5)

    def g(z, w):
        real, imaginary = z.real @ w.real - z.imag @ w.imag, z.real @ w.imag + z.imag @ w.real
        size = np.sqrt(real * real + imaginary * imaginary)
        y = np.empty_like(z @ w)
        y.real, y.imag = real / np.sqrt(size), imaginary / np.sqrt(size)
        return y

    z, w = (double(rng, 12, 12) + 1j * double(rng, 12, 12) for _ in "zw")
    return f, g, [z.astype(np.complex64), w.astype(np.complex64)]


@case("BUG", "transposed, and not conjugated as well", options=WHOLE)
def gram_of_complex_numbers(rng):
    z = double(rng, 12, 6) + 1j * double(rng, 12, 6)
    return lambda z: z.conj().T @ z, lambda z: z.T @ z, [z]


@case("BUG", "eigenvalues in another order: of a library that sorts them, and of one that does not")
def eigenvalues_in_another_order(rng):
    a = double(rng, 10, 6, 6)

    def g(a):
        return np.linalg.eigvals(a)

    return np.linalg.eigvalsh, lambda a: g(a).real.astype(a.dtype), [a + a.mT]


@case(f"{SAME} AMPLIFIED", "by a library's derivative, and by a formula", needs=TORCH)
def gradient_of_a_loss(rng):
    import torch

    def loss(x, w):
        return torch.nn.functional.softplus(x @ w).mean()

    def g(x, w):
        return (torch.sigmoid(x @ w) / len(x)) @ x

    arrays = normal(rng, 40, 10), normal(rng, 10)
    return torch.func.grad(loss, 1), g, list(map(torch.from_numpy, arrays))


@case("BUG", "a sum, and not a mean", needs=TORCH)
def gradient_of_a_sum(rng):
    import torch

    def loss(x, w):
        return torch.nn.functional.softplus(x @ w).mean()

    def g(x, w):
        return torch.sigmoid(x @ w) @ x

    arrays = double(rng, 40, 10), double(rng, 10)
    return torch.func.grad(loss, 1), g, list(map(torch.from_numpy, arrays))


@case("BUG", "boxes of whole pixels, and of numbers")
def overlaps_of_boxes(rng):
    def overlap(one):
        def f(a, b):
            low, high = np.maximum(a[:, :2], b[:, :2]), np.minimum(a[:, 2:], b[:, 2:])
            both = np.prod(np.maximum(high - low + one, 0), axis=1)
            sizes = [np.prod(x[:, 2:] - x[:, :2] + one, axis=1) for x in (a, b)]
            return both / (sizes[0] + sizes[1] - both)

        return f

    low = uniform(rng, 0, 50, 2, 60, 2)
    boxes = np.concatenate([low, low + uniform(rng, 20, 60, 2, 60, 2)], axis=2)
    return overlap(0), overlap(1), list(boxes)


@case("BUG", "means that weigh from the first on, or start as the first number")
def running_means_of_another_start(rng):
    weight = 0.1

    def f(x):
        w = (1 - weight) ** np.arange(x.shape[1])[::-1].astype(x.dtype)
        total = np.array(
            [
                (x[:, : k + 1] * w[-k - 1 :]).sum(axis=1) / w[-k - 1 :].sum()
                for k in range(x.shape[1])
            ]
        )
        return total.T

    def g(x):
        y = x.copy()
        for k in range(1, x.shape[1]):
            y[:, k] = (1 - weight) * y[:, k - 1] + weight * x[:, k]
        return y

    return f, g, [normal(rng, 10, 30)]


# The same as above, and of other fields, by sides that are asked for nothing wider, or cast what
# they are given to float32, and give doubles, numbers or integers nevertheless.


@case(HIDDEN, "half an hour is rounded to an even hour, or up: without float64", options=UNASKED)
def hours_of_half_hours_unasked(rng):
    return hours_of_half_hours(rng)


@case(HIDDEN, "the same, and float32 alone on one side")
def hours_of_half_hours_in_float32(rng):
    f, g, inputs = hours_of_half_hours(rng)
    return f, in_float32(g), inputs


@case(HIDDEN, "what is on the last edge is not counted: without float64", options=WHOLE | UNASKED)
def histogram_without_its_end_unasked(rng):
    return histogram_without_its_end(rng)


@case(HIDDEN, "equal doubles have their mean rank, or the least", options=WHOLE, needs=SCIPY)
def ranks_of_equal_doubles(rng):
    f, g, (x,) = ranks_of_equal_numbers(rng)
    return f, g, [x.astype(float)]


@case(SAME, "a library's covariances of numbers that are cast to float32: doubles", options=WHOLE)
def covariances_of_singles(rng):
    f, g, inputs = covariances(rng)
    return in_float32(f), g, inputs


@case(HIDDEN, "the same by n, and not by n - 1", options=WHOLE)
def covariances_of_singles_by_their_count(rng):
    _, g, inputs = covariances(rng)
    return in_float32(lambda x: np.cov(x.T, ddof=0)), g, inputs


@case(WARPED, "a warp by places that are cast to float32", options=WHOLE, needs=SCIPY)
def bilinear_warp_of_singles(rng):
    f, g, inputs = bilinear_warp(rng)
    return f, in_float32(g), inputs


@case(HIDDEN, "a warp that is a thousandth of a pixel off, of the same", options=WHOLE, needs=SCIPY)
def bilinear_warp_of_singles_beside(rng):
    f, g, inputs = bilinear_warp(rng)

    def beside(image, rows, columns):
        return g(image, rows + np.float32(1e-3), columns)

    return f, in_float32(beside), inputs


@case("AMPLIFIED", "the order of equal sums in float32 alone: integers")
def order_of_equal_sums_of_singles(rng):
    f, g, inputs = order_of_equal_sums(rng)
    return in_float32(f), g, inputs


@case("BUG", "the order of sums without their last, in float32 alone")
def order_of_other_sums_of_singles(rng):
    def f(x):
        return np.argsort(x.sum(axis=1))

    return f, in_float32(lambda x: f(x[:, :-1])), [normal(rng, 60, 12)]


@case(f"{SAME} AMPLIFIED", "an energy in float32 alone, as a number of Python", options=WHOLE)
def energy_as_a_number(rng):
    return energy, in_float32(lambda x: float(pair_energy(x, 0))), [normal(rng, 40, 3)]


@case(HIDDEN, "the same, a ten thousandth too large", options=WHOLE)
def another_energy_as_a_number(rng):
    return energy, in_float32(lambda x: 1.0001 * float(pair_energy(x, 0))), [normal(rng, 40, 3)]


@case(UNSURE, "from velocities, or from the last two places alone: float32 alone on one side")
def oscillator_by_two_places_in_float32(rng):
    f, g, inputs = oscillator_by_two_places(rng)
    return f, in_float32(g), inputs


@case(UNSURE, "the same without float64", options=UNASKED)
def oscillator_by_two_places_unasked(rng):
    return oscillator_by_two_places(rng)


@case("RANGE UNSTABLE", "nearly parallel vectors, without float64", options=UNASKED)
def angle_of_parallel_vectors_unasked(rng):
    return angle_of_parallel_vectors(rng)


@case("UNSTABLE", "the first of small returns, by products in float32", options=SINGLE)
def first_returns(rng):
    f, g, (r,) = compounded_returns(rng)
    return f, g, [r[:1, :4]]


@case(SAME, "an advection by weights, in float64")
def advection_by_weights_in_float64(rng):
    f, g, (u,) = advection_by_weights(rng)
    return f, g, [u.astype(float)]
