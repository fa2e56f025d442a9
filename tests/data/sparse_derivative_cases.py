"""Compiled functions of some hundred numbers, whose Jacobians are mostly 0.

They judge what gradcheck tells of a vjp by a few products, and are not edited with that.
"""

import numba
import numpy as np

from .derivative_cases import Case

N = 200
SIDE = 14
_random = np.random.default_rng(2024)
FIRST, SECOND = _random.permutation(N), _random.permutation(N)
TAPS = np.array([0.1, -0.4, 1.0, 0.3, -0.2])
SCALES = 10.0 ** np.linspace(-6, 6, N)

SPARSE_CASES: list[Case] = []


def case(jac, n=N):
    """Register a function beside its Jacobian."""

    def register(f):
        points = [np.random.default_rng(seed).uniform(0.3, 1.7, n) for seed in range(2)]
        SPARSE_CASES.append(Case(f.__name__, numba.njit(f), jac, points))
        return f

    return register


@case(lambda x: np.diag(1 / (1 + np.exp(-x))))
def softplus(x):
    return np.log1p(np.exp(x))


def tridiagonal_jac(x):
    jac = np.diag(3 * x**2)
    k = np.arange(N - 1)
    jac[k, k] += x[k + 1]
    jac[k, k + 1] = x[k]
    jac[k + 1, k + 1] += x[k]
    jac[k + 1, k] = x[k + 1]
    return jac


@case(tridiagonal_jac)
def tridiagonal(x):
    y = x**3
    y[:-1] += x[:-1] * x[1:]
    y[1:] += x[1:] * x[:-1]
    return y


def windows_jac(x):
    rows = np.arange(N - 4)
    jac = np.zeros((N - 4, N))
    y = sum(TAPS[k] * x[k : k + N - 4] for k in range(5))
    for k in range(5):
        jac[rows, rows + k] = TAPS[k] / np.cosh(y) ** 2
    return jac


@case(windows_jac)
def windows(x):
    y = np.zeros(x.size - 4)
    for k in range(5):
        y += TAPS[k] * x[k : k + x.size - 4]
    return np.tanh(y)


def softmax_jac(x):
    jac = np.zeros((N, N))
    for k in range(0, N, 10):
        p = np.exp(x[k : k + 10])
        p /= p.sum()
        jac[k : k + 10, k : k + 10] = np.diag(p) - np.outer(p, p)
    return jac


@case(softmax_jac)
def softmax_of_tens(x):
    y = np.exp(x)
    for k in range(0, x.size, 10):
        y[k : k + 10] /= y[k : k + 10].sum()
    return y


def pairs_jac(x):
    rows = np.arange(N)
    jac = np.zeros((N, N))
    jac[rows, FIRST] += x[SECOND]
    jac[rows, SECOND] += x[FIRST]
    return jac


@case(pairs_jac)
def products_of_pairs(x):
    return x[FIRST] * x[SECOND]


def grid_jac(x):
    jac = np.diag(-4 + np.exp(x))
    for i in range(SIDE):
        for j in range(SIDE):
            if i + 1 < SIDE:
                jac[SIDE * i + j, SIDE * (i + 1) + j] = jac[SIDE * (i + 1) + j, SIDE * i + j] = 1
            if j + 1 < SIDE:
                jac[SIDE * i + j, SIDE * i + j + 1] = jac[SIDE * i + j + 1, SIDE * i + j] = 1
    return jac


@case(grid_jac, SIDE * SIDE)
def bratu(x):
    u = x.reshape(SIDE, SIDE)
    y = np.exp(u) - 4 * u
    y[1:] += u[:-1]
    y[:-1] += u[1:]
    y[:, 1:] += u[:, :-1]
    y[:, :-1] += u[:, 1:]
    return y.reshape(-1)


@case(lambda x: np.diag(SCALES * np.cos(x)))
def of_many_scales(x):
    return SCALES * np.sin(x)


def norms_jac(x):
    rows = np.arange(N // 2)
    jac = np.zeros((N // 2, N))
    norm = np.hypot(x[::2], x[1::2])
    jac[rows, 2 * rows], jac[rows, 2 * rows + 1] = x[::2] / norm, x[1::2] / norm
    return jac


@case(norms_jac)
def norms_of_pairs(x):
    return np.hypot(x[::2], x[1::2])
