"""Functions of arithmetic alone: their derivatives have the same bits on every processor."""

import numba
import numpy as np

X = np.array([0.5, 1.25, -0.75, 2.0])
Z = np.array([0.5 + 0.25j, -1.0 + 2.0j])
TRIDIAGONAL = np.eye(4) + np.eye(4, k=1) + np.eye(4, k=-1) > 0


def polynomial(x):
    return x * x * x - 3 * x * x[::-1] + 0.1


def rational(x):
    return x / (1 + x * x)


def root(x):
    return np.sqrt(x * x + 0.5)


def linear(x):
    return 3 * x + x[::-1] / 3


def chain(x):
    y = x * x * x
    y[1:] += x[:-1] * x[1:]
    y[:-1] -= x[:-1] / (2 + x[1:] * x[1:])
    return y


def scalar(x):
    return x[0] * x[0] * x[1] - x[2] / x[3] + x[3] * x[3]


def ramp(x):
    return np.where(x > 0.5, x, 0.25 * x + 0.375)


def stairs(x):
    return np.floor(x * 1e9) / 1e9


def pole(x):
    return 1 / (x - 0.5)


def noisy(x):
    """Add noise of 1e-8, a hash of the bits of x."""
    noise = (np.asarray(x, float).view(np.int64) * 6364136223846793005 >> 33) / 2.0**30
    return x * x + 1e-8 * noise


def oscillating(x):
    """Return a triangle wave of period 1e-7, shorter than any step."""
    y = x * 1e7
    return np.abs(y - np.rint(y))


def single(x):
    return (x * x).astype(np.float32).astype(float)


def offset(x):
    return x * x + 1e8


def cubes(z):
    return z * z * z + 2 * z


def magnitudes(z):
    return z.real * z.real + z.conj()


@numba.njit
def compiled(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = x[i] * x[i] * x[i] - x[(i + 1) % x.size]
    return y


# Functions, points and options of `differentiate`; without a method, each is recorded.
EXACT = {
    "polynomial": (polynomial, X, {}),
    "rational": (rational, X, {}),
    "root": (root, X, {}),
    "linear": (linear, X, {}),
    "scalar": (scalar, X, {}),
    "compiled": (compiled, X, {}),
    "chain": (chain, X, {}),
    "chain sparse": (chain, X, {"sparsity": TRIDIAGONAL}),
    "chain detected": (chain, X, {"sparsity": "detect"}),
    "ramp": (ramp, X, {"method": "adaptive"}),
    "stairs": (stairs, X, {"method": "adaptive"}),
    "pole": (pole, X, {"method": "adaptive"}),
    "noisy": (noisy, X, {"method": "adaptive"}),
    "oscillating": (oscillating, X, {"method": "adaptive"}),
    "single": (single, X, {"method": "adaptive"}),
    "offset": (offset, X, {"method": "adaptive"}),
    "tiny": (polynomial, X * 2.0**-60, {"method": "adaptive"}),
    "huge": (rational, X * 2.0**60, {"method": "adaptive"}),
    "float32 polynomial": (polynomial, X.astype(np.float32), {"method": "adaptive"}),
    "float32 central": (polynomial, X.astype(np.float32), {"method": "3-point"}),
    "bounds": (root, X, {"method": "adaptive", "bounds": (X, X + 1)}),
    "narrow bounds": (root, X, {"method": "3-point", "bounds": (X - 1e-9, X + 2e-9)}),
    "no room": (root, X, {"method": "adaptive", "bounds": (X, X)}),
    "excluded": (root, X, {"method": "3-point", "step": [1e-4, 0.0, 1e-4, 0.0]}),
    "own step": (rational, X, {"method": "5-point", "step": 1e-3}),
    "own scale": (rational, X, {"method": "adaptive", "scale": 10.0}),
    "holomorphic": (cubes, Z, {"method": "3-point", "holomorphic": True}),
    "not holomorphic": (magnitudes, Z, {"method": "3-point"}),
    "adaptive holomorphic": (cubes, Z, {"method": "adaptive", "holomorphic": True}),
}
