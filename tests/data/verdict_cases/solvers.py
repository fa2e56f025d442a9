"""Linear systems, least squares and eigenvalues of well-conditioned matrices.

NumPy solves float32 systems in float64 inside, so that most sides here are written out.
"""

import numpy as np

from .case import WHOLE, Cases, conditioned, normal

CASES = case = Cases()


def back_substitute(r, y):
    x = y.copy()
    for k in reversed(range(len(y))):
        x[k] = (x[k] - r[k, k + 1 :] @ x[k + 1 :]) / r[k, k]
    return x


def eliminate(a, b, pivot=True):
    """Solve by Gaussian elimination."""
    a, b = a.copy(), b.copy()
    for k in range(len(a)):
        if pivot:
            best = k + np.argmax(np.abs(a[k:, k]))
            a[[k, best]], b[[k, best]] = a[[best, k]], b[[best, k]]
        factor = a[k + 1 :, k] / a[k, k]
        a[k + 1 :] -= np.multiply.outer(factor, a[k])
        b[k + 1 :] -= np.multiply.outer(factor, b[k])
    return back_substitute(a, b)


def invert(a):
    return eliminate(a, np.eye(len(a), dtype=a.dtype))


def reflect(a, b):
    """Solve a system, or a least-squares problem, by Householder's reflections."""
    a, b = a.copy(), b.copy()
    n = a.shape[1]
    for k in range(n):
        v = a[k:, k].copy()
        v[0] += np.copysign(np.sqrt(v @ v), v[0])
        v /= np.sqrt(v @ v)
        a[k:] -= 2 * np.outer(v, v @ a[k:])
        b[k:] -= 2 * v * (v @ b[k:])
    return back_substitute(a[:n], b[:n])


def by_cholesky(a, b):
    factor, y = np.zeros_like(a), b.copy()
    for k in range(len(a)):
        column = a[k:, k] - factor[k:, :k] @ factor[k, :k]
        factor[k:, k] = column / np.sqrt(column[0])
        y[k] = (y[k] - factor[k, :k] @ y[:k]) / factor[k, k]
    return back_substitute(factor.T, y)


def positive(m):
    """Return a matrix with eigenvalues from 1 to 2 or so, symmetric wherever m is moved."""
    return m @ m.T + np.eye(len(m), dtype=m.dtype)


@case("ROUNDING", "NumPy's side has no error but that of its result.", options=WHOLE)
def solve_numpy(rng):
    return np.linalg.solve, eliminate, (conditioned(rng, 24, 5), normal(rng, 24))


@case("ROUNDING", options=WHOLE)
def solve_lu_and_qr(rng):
    return eliminate, reflect, (conditioned(rng, 24, 5), normal(rng, 24))


@case("ROUNDING", options=WHOLE, needs=("torch",))
def solve_torch(rng):
    import torch

    def g(a, b):
        q, r = torch.linalg.qr(a)
        return torch.linalg.solve_triangular(r, q.T @ b, upper=True)

    inputs = conditioned(rng, 40, 5), normal(rng, 40, 2)
    return torch.linalg.solve, g, tuple(map(torch.from_numpy, inputs))


@case("ROUNDING", options=WHOLE)
def solve_by_inverse(rng):
    inputs = conditioned(rng, 24, 5), normal(rng, 24)
    return eliminate, lambda a, b: invert(a) @ b, inputs


@case("ROUNDING", options=WHOLE)
def solve_by_cholesky(rng):
    def g(m, b):
        return by_cholesky(positive(m), b)

    return lambda m, b: eliminate(positive(m), b), g, (conditioned(rng, 24, 3), normal(rng, 24))


def conjugate_gradients(a, b, steps):
    x = np.zeros_like(b)
    r = p = b
    for _ in range(steps):
        ap = a @ p
        step = (r @ r) / (p @ ap)
        x, left = x + step * p, r - step * ap
        p = left + (left @ left) / (r @ r) * p
        r = left
    return x


@case("ROUNDING", "22 steps gain 16 digits where the condition is 2.", options=WHOLE)
def solve_by_conjugate_gradients(rng):
    def g(m, b):
        return conjugate_gradients(positive(m), b, 22)

    return lambda m, b: eliminate(positive(m), b), g, (conditioned(rng, 24, 3), normal(rng, 24))


@case("ROUNDING", "In a type beyond which LAPACK has none.", options=WHOLE)
def solve_in_float64(rng):
    a, b = rng.standard_normal((24, 24)) / 10 + np.eye(24), rng.standard_normal(24)
    return eliminate, reflect, (a, b)


@case("ROUNDING LAYOUT", options=WHOLE)
def triangular_by_columns(rng):
    def f(a, b):
        x = np.zeros_like(b)
        for i in range(len(b)):
            x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]
        return x

    def g(a, b):
        x = b.copy()
        for j in range(len(b)):
            x[j] /= a[j, j]
            x[j + 1 :] -= a[j + 1 :, j] * x[j]
        return x

    a = normal(rng, 48, 48) / 8 + 2 * np.eye(48, dtype=np.float32)
    return f, g, (a, normal(rng, 48))


def by_normal_equations(a, b):
    return eliminate(a.T @ a, a.T @ b)


@case("ROUNDING", "The condition is 3, and its square still small.", options=WHOLE)
def least_squares_normal_equations(rng):
    return reflect, by_normal_equations, (conditioned(rng, 80, 3, 12), normal(rng, 80))


@case("ROUNDING", options=WHOLE, needs=("scipy",))
def eigenvalues_and_singular_values(rng):
    from scipy import linalg

    def f(m):
        return linalg.eigh(positive(m), eigvals_only=True)[::-1]

    return f, lambda m: linalg.svdvals(positive(m)), (conditioned(rng, 40, 3),)
