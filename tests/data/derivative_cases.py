"""Functions with exact derivatives, which judge how derivatives are estimated.

Each is written from its formula; test_derivative_cases.py checks every Jacobian against the complex
step, or a difference in extended precision. Do not edit a case together with a rule that it judges.

Sources: "MGH" is Moré, Garbow, Hillstrom, Testing unconstrained optimization software, ACM TOMS 7
(1981), with the numbers of its problems.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """A function from R^n to R^m, its Jacobian, and where it is asked about.

    `kind` is "smooth", or says what makes an estimate hard. `analytic` functions take complex
    arguments.
    """

    name: str
    f: Callable[[Any], Any]
    jac: Callable[[Any], Any]
    points: list[np.ndarray]
    kind: str = "smooth"
    analytic: bool = True


CASES: list[Case] = []


def case(points, kind="smooth", analytic=True):
    """Register a function that returns its value and its Jacobian."""

    def register(both):
        name = both.__name__
        x = [np.asarray(p, dtype=np.result_type(float, np.asarray(p).dtype)) for p in points]
        CASES.append(Case(name, lambda x: both(x)[0], lambda x: both(x)[1], x, kind, analytic))
        return both

    return register


def near(center, spread=0.1, count=3, seed=0):
    """Return points around one, each coordinate off by a share of its size, or of 1 for 0."""
    center = np.asarray(center, float)
    random = np.random.default_rng(seed)
    size = np.where(center == 0, 1.0, np.abs(center))
    return [center + spread * size * random.uniform(-1, 1, center.shape) for _ in range(count)]


def tridiagonal(lower, diagonal, upper):
    return np.diag(lower, -1) + np.diag(diagonal) + np.diag(upper, 1)


# Classical nonlinear systems


@case(near([-1.2, 1.0] * 3))
def rosenbrock(x):
    """MGH 21, extended."""
    odd, even = x[::2], x[1::2]
    f = np.stack([10 * (even - odd**2), 1 - odd], axis=1).ravel()
    jac = np.zeros((x.size, x.size), f.dtype)
    for i in range(0, x.size, 2):
        jac[i, i], jac[i, i + 1], jac[i + 1, i] = -20 * x[i], 10, -1
    return f, jac


@case(near([3.0, -1.0, 0.5, 1.0]))
def powell_singular(x):
    """MGH 13."""
    a, b, c, d = x
    r5, r10 = np.sqrt(5), np.sqrt(10)
    f = np.array([a + 10 * b, r5 * (c - d), (b - 2 * c) ** 2, r10 * (a - d) ** 2])
    jac = np.array(
        [
            [1, 10, 0, 0],
            [0, 0, r5, -r5],
            [0, 2 * (b - 2 * c), -4 * (b - 2 * c), 0],
            [2 * r10 * (a - d), 0, 0, -2 * r10 * (a - d)],
        ]
    )
    return f, jac


@case(near([0.5, -2.0]))
def freudenstein_roth(x):
    """MGH 2."""
    a, b = x
    f = np.array([-13 + a + ((5 - b) * b - 2) * b, -29 + a + ((b + 1) * b - 14) * b])
    return f, np.array([[1, 10 * b - 3 * b**2 - 2], [1, 3 * b**2 + 2 * b - 14]])


@case(near([1.0, 1.0]))
def beale(x):
    """MGH 5."""
    a, b = x
    k = np.array([1, 2, 3])
    f = np.array([1.5, 2.25, 2.625]) - a * (1 - b**k)
    return f, np.stack([-(1 - b**k), a * k * b ** (k - 1)], axis=1)


@case(near([0.3, 0.4]))
def jennrich_sampson(x):
    """MGH 6."""
    i = np.arange(1, 11)
    e = np.exp(i[:, None] * x)
    return 2 + 2 * i - e.sum(axis=1), -i[:, None] * e


@case(near([1.0, 1.0, 1.0]))
def bard(x):
    """MGH 8."""
    a, b, c = x
    u = np.arange(1.0, 16)
    v = 16 - u
    w = np.minimum(u, v)
    below = v * b + w * c
    data = [0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.1, 4.39]
    jac = np.stack([np.full(15, -1.0), u * v / below**2, u * w / below**2], axis=1)
    return np.array(data) - (a + u / below), jac


@case(near([0.4, 1.0, 0.1]))
def gaussian(x):
    """MGH 9."""
    a, b, c = x
    t = (8 - np.arange(1.0, 16)) / 2
    e = np.exp(-b * (t - c) ** 2 / 2)
    return a * e, np.stack([e, -a * e * (t - c) ** 2 / 2, a * e * b * (t - c)], axis=1)


@case(near([0.25, 0.39, 0.415, 0.39]))
def kowalik_osborne(x):
    """MGH 15."""
    a, b, c, d = x
    u = np.array([4, 2, 1, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625])
    above, below = u**2 + u * b, u**2 + u * c + d
    jac = [above / below, a * u / below, -a * above * u / below**2, -a * above / below**2]
    return a * above / below, np.stack(jac, axis=1)


@case(near([0.5, 1.5, -1.0, 0.01, 0.02]))
def osborne(x):
    """MGH 17."""
    a, b, c, d, e = x
    t = 10.0 * np.arange(33)
    one, two = np.exp(-t * d), np.exp(-t * e)
    jac = [np.ones(33), one, two, -b * t * one, -c * t * two]
    return a + b * one + c * two, np.stack(jac, axis=1)


@case(near([0.0, 10.0, 20.0], 0.3))
def box(x):
    """MGH 12."""
    a, b, c = x
    t = np.arange(1, 6) / 10
    weight = np.exp(-t) - np.exp(-10 * t)
    f = np.exp(-t * a) - np.exp(-t * b) - c * weight
    return f, np.stack([-t * np.exp(-t * a), t * np.exp(-t * b), -weight], axis=1)


@case(near(-np.ones(9)))
def broyden_tridiagonal(x):
    """MGH 30."""
    padded = np.concatenate([[0], x, [0]])
    f = (3 - 2 * x) * x - padded[:-2] - 2 * padded[2:] + 1
    n = x.size
    return f, tridiagonal(np.full(n - 1, -1.0), 3 - 4 * x, np.full(n - 1, -2.0))


@case(near(-np.ones(12)))
def broyden_banded(x):
    """MGH 31."""
    n = x.size
    band = np.tri(n, n, 1) - np.tri(n, n, -6) - np.eye(n)
    f = x * (2 + 5 * x**2) + 1 - band @ (x * (1 + x))
    return f, np.diag(2 + 15 * x**2) - band * (1 + 2 * x)


@case(near(np.linspace(0.1, 0.9, 8) * (np.linspace(0.1, 0.9, 8) - 1)))
def discrete_boundary_value(x):
    """MGH 28."""
    n = x.size
    h = 1 / (n + 1)
    t = h * np.arange(1, n + 1)
    padded = np.concatenate([[0], x, [0]])
    f = 2 * x - padded[:-2] - padded[2:] + h**2 * (x + t + 1) ** 3 / 2
    off = np.full(n - 1, -1.0)
    return f, tridiagonal(off, 2 + 1.5 * h**2 * (x + t + 1) ** 2, off)


@case(near(np.linspace(0.1, 0.9, 7) * (np.linspace(0.1, 0.9, 7) - 1)))
def discrete_integral_equation(x):
    """MGH 29."""
    n = x.size
    h = 1 / (n + 1)
    t = h * np.arange(1, n + 1)
    kernel = np.where(t <= t[:, None], (1 - t[:, None]) * t, t[:, None] * (1 - t)) * h / 2
    return x + kernel @ (x + t + 1) ** 3, np.eye(n) + 3 * kernel * (x + t + 1) ** 2


@case(near(np.full(6, 1 / 6)))
def trigonometric(x):
    """MGH 26."""
    n = x.size
    i = np.arange(1, n + 1)
    f = n - np.cos(x).sum() + i * (1 - np.cos(x)) - np.sin(x)
    return f, np.sin(x) + np.diag(i * np.sin(x) - np.cos(x))


@case(near(np.full(5, 0.5)))
def brown_almost_linear(x):
    """MGH 27."""
    n = x.size
    f = x + x.sum() - (n + 1)
    jac = np.ones((n, n), x.dtype) + np.eye(n)
    f[-1] = np.prod(x) - 1
    jac[-1] = [np.prod(np.delete(x, j)) for j in range(n)]
    return f, jac


@case(near(np.arange(1, 6) / 6))
def chebyquad(x):
    """MGH 35."""
    n = x.size
    y = 2 * x - 1
    values, slopes = [np.ones_like(y), y], [np.zeros_like(y), np.full_like(y, 2)]
    for _ in range(n - 1):
        values.append(2 * y * values[-1] - values[-2])
        slopes.append(4 * values[-2] + 2 * y * slopes[-1] - slopes[-2])
    integral = [0 if i % 2 else -1 / (i**2 - 1) for i in range(1, n + 1)]
    return np.mean(values[1:], axis=1) - integral, np.array(slopes[1:]) / n


# Systems from partial differential equations


@case(near(np.tile([1.0, 3.0], 8), 0.3))
def brusselator(x):
    """One dimension, u and v side by side, ends held."""
    u, v = x[::2], x[1::2]
    n = u.size
    rate = 0.02 * (n + 1) ** 2
    second = tridiagonal(np.ones(n - 1), np.full(n, -2.0), np.ones(n - 1)) * rate
    ends = np.zeros(n)
    ends[[0, -1]] = rate
    f = np.stack(
        [1 + u**2 * v - 4 * u + second @ u + ends, 3 * u - u**2 * v + second @ v + 3 * ends]
    )
    jac = np.zeros((2 * n, 2 * n), x.dtype)
    jac[::2, ::2] = np.diag(2 * u * v - 4) + second
    jac[::2, 1::2] = np.diag(u**2)
    jac[1::2, ::2] = np.diag(3 - 2 * u * v)
    jac[1::2, 1::2] = np.diag(-(u**2)) + second
    return f.T.ravel(), jac


@case(near(np.full(16, 0.5), 0.5))
def bratu(x):
    """Two dimensions, the 5-point stencil on 4 x 4 points."""
    n = 4
    line = tridiagonal(np.full(n - 1, -1.0), np.full(n, 2.0), np.full(n - 1, -1.0))
    laplace = np.kron(line, np.eye(n)) + np.kron(np.eye(n), line)
    weight = 5.0 / (n + 1) ** 2
    return laplace @ x - weight * np.exp(x), laplace - weight * np.diag(np.exp(x))


@case(near(np.sin(np.linspace(0, 6, 12)), 0.2))
def burgers(x):
    """Periodic, central differences."""
    n = x.size
    right, left = np.roll(np.eye(n), 1, axis=1), np.roll(np.eye(n), -1, axis=1)
    slope = (right - left) * n / 2
    second = (right + left - 2 * np.eye(n)) * n**2 * 0.01
    return -x * (slope @ x) + second @ x, -np.diag(slope @ x) - x[:, None] * slope + second


# Layers


@case(near([0.5, -1.0, 2.0, 0.1, 1.5]))
def softmax(x):
    e = np.exp(x)
    p = e / e.sum()
    return p, np.diag(p) - np.outer(p, p)


@case(near([0.5, -1.0, 2.0, 0.1, 1.5]))
def logsumexp(x):
    e = np.exp(x)
    return np.log(e.sum(keepdims=True)), (e / e.sum())[None]


@case(near([0.5, -1.0, 2.0, 0.1, 1.5, -0.7]))
def layer_norm(x):
    n = x.size
    d = x - x.mean()
    s = np.sqrt((d * d).mean() + 1e-5)
    return d / s, (np.eye(n) - 1 / n - np.outer(d, d) / (n * s * s)) / s


@case(near([0.5, -1.0, 2.0, 0.1]))
def rms_norm(x):
    s = np.sqrt((x * x).mean() + 1e-6)
    return x / s, (np.eye(x.size) - np.outer(x, x) / (x.size * s * s)) / s


@case(near([-2.0, -0.3, 0.4, 1.7]))
def gelu(x):
    """Take the approximation by tanh."""
    c = np.sqrt(2 / np.pi)
    t = np.tanh(c * (x + 0.044715 * x**3))
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * c * (1 + 3 * 0.044715 * x**2)
    return 0.5 * x * (1 + t), np.diag(slope)


@case(near([-2.0, -0.3, 0.4, 1.7]))
def swish(x):
    s = 1 / (1 + np.exp(-x))
    return x * s, np.diag(s + x * s * (1 - s))


@case(near([0.2, -0.4, 0.6, 1.0, -0.8, 0.3]))
def attention(x):
    """One query against three keys of two numbers, whose values are the keys."""
    keys = x.reshape(3, 2)
    query = np.array([0.7, -1.1])
    e = np.exp(keys @ query)
    p = e / e.sum()
    out = p @ keys
    jac = np.zeros((2, 6), x.dtype)
    for k in range(3):
        for j in range(2):
            jac[:, 2 * k + j] = p[k] * query[j] * (keys[k] - out)
            jac[j, 2 * k + j] += p[k]
    return out, jac


# Holomorphic functions


@case([np.array([0.5 + 0.2j, -0.3 + 1.0j]), np.array([1.0 - 1.0j, 0.2 + 0.1j])], kind="holomorphic")
def complex_products(z):
    a, b = z
    f = np.array([a**2 * b, np.exp(a) * np.sin(b), a / (b + 3)])
    jac = [[2 * a * b, a**2], [np.exp(a) * np.sin(b), np.exp(a) * np.cos(b)]]
    return f, np.array([*jac, [1 / (b + 3), -a / (b + 3) ** 2]])


@case([np.array([0.5 + 0.2j, -0.3 + 1.0j, 2.0 + 0.5j])], kind="holomorphic")
def moebius(z):
    return (z + 1j) / (2 - 1j * z), np.diag(((2 - 1j * z) + 1j * (z + 1j)) / (2 - 1j * z) ** 2)


# Hostile functions


@case([[1e-12, 1e-6, 1.0, 1e6, 1e12], [3e-9, 2e-3, 5.0, 7e4, 2e10]], kind="scaled")
def badly_scaled(x):
    scale = np.array([1e-12, 1e-6, 1.0, 1e6, 1e12])
    return np.sin(x / scale), np.diag(np.cos(x / scale) / scale)


@case(near([1e-5, 9.0]), kind="scaled")
def powell_badly_scaled(x):
    """MGH 3."""
    a, b = x
    f = np.array([1e4 * a * b - 1, np.exp(-a) + np.exp(-b) - 1.0001])
    return f, np.array([[1e4 * b, 1e4 * a], [-np.exp(-a), -np.exp(-b)]])


@case([[1e-20, 1e-15, 1e-30]], kind="scaled")
def exp_of_tiny(x):
    """Have a length scale of 1, far above |x|."""
    return np.exp(x), np.diag(np.exp(x))


@case(near([0.5, 1.0, 1.5]), kind="offset")
def offset_exp(x):
    return 1e6 + np.exp(x), np.diag(np.exp(x))


@case(near([0.5, 1.0, 1.5]), kind="aliased")
def fast_sine(x):
    return np.sin(1e6 * x), np.diag(1e6 * np.cos(1e6 * x))


@case(near([0.5, 1.0, 1.5]), kind="noisy", analytic=False)
def noisy(x):
    """Noise of 1e-8 that depends on the last bits of x; the derivative is that without it."""
    bits = np.asarray(x, float).view(np.int64)
    noise = ((bits * 6364136223846793005 + 1442695040888963407) >> 33) / 2.0**30
    return np.exp(x) + 1e-8 * noise, np.diag(np.exp(x))


@case(near([0.5, 1.0, 1.5]), kind="noisy", analytic=False)
def float32_inside(x):
    inner = np.exp(np.asarray(x).astype(np.float32))
    return inner.astype(float) ** 2, np.diag(2 * np.exp(2 * x))


@case([[1e-12, 1e-6, 1e-3], [3e-10, 0.5, 2e-8]], kind="edge")
def domain_edge(x):
    return np.sqrt(x) + np.log(x), np.diag(0.5 / np.sqrt(x) + 1 / x)


@case([[1e-4, 1e-2, 0.5]], kind="cancelling")
def one_minus_cosine(x):
    return 1 - np.cos(x), np.diag(np.sin(x))


@case([[1e-9, -1e-9, 1.0, -2.0]], kind="kink", analytic=False)
def absolute_value(x):
    return np.abs(x), np.diag(np.sign(x))


@case([[3e-8, -3e-8, 1.0, -2.0]], kind="kink", analytic=False)
def leaky_relu(x):
    return np.where(x > 0, x, 0.1 * x), np.diag(np.where(x > 0, 1.0, 0.1))
