"""Two decays fitted to noisy counts: least_squares with calipers' Jacobian, and with its own."""

import sys
import time

import numpy as np
from numba import njit

import calipers

try:
    from scipy.optimize import least_squares, minimize, root
except ImportError:
    sys.exit("This example needs SciPy: pip install scipy.")


@njit
def residuals(p, times, counts):
    """Return model - counts: two decays and a background."""
    out = np.empty(times.size)
    for i in range(times.size):
        out[i] = p[0] * np.exp(-times[i] / p[1]) + p[2] * np.exp(-times[i] / p[3]) + p[4]
        out[i] -= counts[i]
    return out


random = np.random.default_rng(0)
truth = np.array([900.0, 0.7, 300.0, 4.0, 20.0])
times = np.linspace(0, 20, 500)
exact = residuals(truth, times, np.zeros_like(times))
data = times, random.poisson(exact).astype(float)
guess = np.array([500.0, 0.3, 500.0, 8.0, 0.0])
jacobian = calipers.jacobian_function(residuals, guess, args=data)


def fitted(name, jac):
    seconds = []
    for _ in range(20):
        begun = time.perf_counter()
        fit = least_squares(residuals, guess, jac, x_scale="jac", args=data)
        seconds.append(time.perf_counter() - begun)
    best = 1e3 * min(seconds)
    print(f"{name:<9} {best:6.2f} ms, {fit.nfev} steps, sum of squares {2 * fit.cost:.9g}")
    return fit


by_scipy, by_calipers = fitted("3-point", "3-point"), fitted("calipers", jacobian)
assert calipers.allclose(by_calipers.x, by_scipy.x, rtol=1e-5)

# How far the derivative may be off at the solution, and from it the errors of the parameters.
found = calipers.differentiate(residuals, by_calipers.x, args=data)
off = found.error.max() / abs(found.value).max()
print(f"its Jacobian there: {', '.join(np.unique(found.status))}, off by at most {off:.0e} of it")
spread = 2 * by_calipers.cost / (times.size - truth.size)
deviations = np.sqrt(np.diag(np.linalg.inv(found.value.T @ found.value)) * spread)
for value, deviation, true in zip(by_calipers.x, deviations, truth, strict=True):
    print(f"  {value:8.3f} +- {deviation:.3f}, was made with {true:g}")


# The same for root and minimize
@njit
def circle_and_cubic(p):
    return np.array([p[0] ** 2 + p[1] ** 2 - 4, p[1] - p[0] ** 3])


@njit
def rosenbrock(p):
    return np.sum(100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)


crossing = root(circle_and_cubic, [1.0, 1.0], jac=calipers.jacobian_function(circle_and_cubic))
lowest = minimize(rosenbrock, np.zeros(8), jac=calipers.jacobian_function(rosenbrock))
print(f"root: {crossing.x.round(6)}; minimize: {lowest.nit} iterations to {lowest.x.round(4)}")
