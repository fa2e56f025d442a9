"""Functions that several files differentiate, their Jacobians, and how what is found is judged."""

import numba
import numpy as np
import pytest

from calipers._derivatives.options import Options
from calipers._derivatives.solve import prepare

FIXED = ["2-point", "3-point", "5-point"]
BOUNDABLE = [*FIXED, "adaptive"]
METHODS = [*BOUNDABLE, "cs"]
BARS = {"2-point": 1e-6, "3-point": 1e-8, "5-point": 1e-10, "adaptive": 1e-9, "cs": 1e-14}
CALLS = {"2-point": 1, "3-point": 2, "5-point": 4, "cs": 1}
WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (6, 300))

# What is noted on an error of f, after the element of x.
UNDEFINED = "if f is not defined there, pass bounds=, or a smaller step= or scale="
DISPLACED = f"perturbed for its derivative; {UNDEFINED}"

methods = pytest.mark.parametrize("method", METHODS)
boundable = pytest.mark.parametrize("method", BOUNDABLE)


def assert_near(found, exact, bar=1e-8):
    found, exact = np.asarray(found), np.asarray(exact)
    assert found.shape == exact.shape
    assert np.all(np.abs(found - exact) <= bar * max(1.0, np.abs(exact).max(initial=0)))


def waves(x):
    return np.sin(WEIGHTS[:, : x.size] @ x.reshape(-1))


def waves_jacobian(x):
    weights = WEIGHTS[:, : x.size]
    return (np.cos(weights @ x.reshape(-1))[:, None] * weights).reshape(6, *x.shape)


def square(x):
    return x * x


def hashed(x, seed=0):
    """Return numbers between -1/2 and 1/2 that have nothing to do with each other."""
    bits = np.ascontiguousarray(x + 0.0).view(np.uint64)  # -0 is 0
    bits = bits + np.uint64(0x9E3779B97F4A7C15 * seed % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return ((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53 - 0.5


def counted(f):
    """Return f, and a list that grows by its argument at each call."""
    seen = []

    def recorded(x, *rest, **named):
        seen.append(np.array(x))
        return f(x, *rest, **named)

    return recorded, seen


def points(seen, shape):
    """Return the real parts of all points where a recorded f was called, in batches or not."""
    return np.concatenate([s.reshape(-1, *shape) for s in seen]).real


Z = np.array([0.5 + 0.25j, -1 + 2j, 0.1j])


@numba.njit
def compiled_chain(x):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = np.sin(x[i]) * x[(i + 1) % x.size]
    return y


@numba.njit
def compiled_rows(x):
    y = np.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = np.sin(x[i, j]) * x[(i + 1) % x.shape[0], j]
    return y


@numba.njit
def compiled_scaled(a, x, k, power=1.0):
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = power * a * k[i] * x[i] * x[i]
    return y


@numba.njit
def compiled_scaled_into(x, k, power, out):
    for i in range(x.size):
        out[i] = power * (k[i] * x[i]) ** 2


def chain_jacobian(x):
    """Return the Jacobian of a chain along the first axis of x."""
    n, following = len(x), np.roll(x, -1, axis=0)
    shape = x.shape + x.shape
    j = np.zeros((x.size, x.size))
    j += np.diag((np.cos(x) * following).ravel())
    width = x.size // n
    j[np.arange(x.size), (np.arange(x.size) + width) % x.size] += np.sin(x).ravel()
    return j.reshape(shape)


X = np.array([0.5, 1.25, -0.75, 2.0])
SIX = np.linspace(0.5, 1.5, 6)
M = np.array([[0.5, 1.25, -0.75], [2.0, 0.1, 0.3]])
K = np.array([1.0, 2.0, 3.0, 4.0])
CHAIN, CHAINS = chain_jacobian(X), chain_jacobian(M)


def posed(f, x, args=(), argnums=0, **options):
    return prepare(f, x, Options(args=args, argnums=argnums, **options))


class Refused(Exception):  # noqa: N818
    pass


def refuses_in_python(x):
    if x[1, 2] != 6.0:
        raise Refused("other than six", 7)
    return x


@numba.njit
def slow(x):
    y = np.zeros(3, x.dtype)
    for k in range(100):
        for i in range(x.size):
            y[k % 3] += np.sin((k + 1) * 0.01 * x[i]) * x[(i + k) % x.size]
    return y


MANY = np.linspace(-2, 3, 131)


def batched_squares(x):
    return x * x[:, ::-1]
