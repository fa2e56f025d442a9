"""A Brusselator on a plate, solved by SciPy's BDF: with SciPy's Jacobian, and with calipers'."""

import sys
import time

import numpy as np
from numba import njit

import calipers

try:
    from scipy import sparse
    from scipy.integrate import BDF, solve_ivp
except ImportError:
    sys.exit("This example needs SciPy: pip install scipy.")

SIDE = int(sys.argv[1]) if len(sys.argv) > 1 else 32  # points along each edge
DIFFUSION = 0.002 * SIDE**2


@njit
def rates(t, y):
    """Return du/dt and dv/dt of two substances on a grid without walls: its edges meet."""
    u, v = y.reshape(2, SIDE, SIDE)
    out = np.empty((2, SIDE, SIDE))
    for i in range(SIDE):
        above, below = i - 1, (i + 1) % SIDE
        for j in range(SIDE):
            left, right = j - 1, (j + 1) % SIDE
            made = u[i, j] ** 2 * v[i, j]
            around_u = u[above, j] + u[below, j] + u[i, left] + u[i, right] - 4 * u[i, j]
            around_v = v[above, j] + v[below, j] + v[i, left] + v[i, right] - 4 * v[i, j]
            out[0, i, j] = 1 + made - 4.4 * u[i, j] + DIFFUSION * around_u
            out[1, i, j] = 3.4 * u[i, j] - made + DIFFUSION * around_v
    return out.reshape(-1)


# A point depends on the four beside it, and on the other substance at its place.
one = sparse.eye_array(SIDE)
ring = one + sparse.csr_array(np.roll(np.eye(SIDE), 1, 0) + np.roll(np.eye(SIDE), -1, 0))
beside = sparse.kron(one, ring) + sparse.kron(ring, one)
other = sparse.kron(np.array([[0, 1], [1, 0]]), sparse.eye_array(SIDE**2))
pattern = sparse.csc_array(sparse.kron(sparse.eye_array(2), beside) + other)

y, x = np.mgrid[:SIDE, :SIDE] / SIDE
start = np.concatenate([22 * (y * (1 - y)) ** 1.5, 27 * (x * (1 - x)) ** 1.5], axis=None)


def prepare():
    """Return a Jacobian for the solver: by y, which is argument 1 of rates."""
    return calipers.jacobian_function(rates, argnums=1, sparsity=pattern)


def measured(action):
    begun = time.perf_counter()
    return action(), time.perf_counter() - begun


ways = {
    "SciPy": lambda: {"jac_sparsity": pattern},
    "calipers": lambda: {"jac": prepare()},
}
print(f"Brusselator on {SIDE} x {SIDE} points: {start.size} unknowns, {pattern.nnz} entries")
solutions = []
for name, how in ways.items():
    # A new solver finds its first Jacobian; before it, the columns are grouped. The first compiles.
    _, *times = (measured(lambda: BDF(rates, 0, start, 10, **how()))[1] for _ in range(4))
    solution, seconds = measured(
        lambda: solve_ivp(rates, (0, 10), start, method="BDF", rtol=1e-4, atol=1e-6, **how())
    )
    assert solution.success, solution.message
    print(
        f"Jacobian by {name:<8}  plan and first one {min(times) * 1e3:5.1f} ms, solve {seconds:.2f} s:"
        f" {solution.t.size - 1} steps, {solution.njev} Jacobians, {solution.nlu} LU"
    )
    solutions.append(solution.y[:, -1])

report = calipers.compare(*solutions, rtol=1e-4, atol=1e-6)
assert report, report
print(f"largest difference at the end: {report.worst('absolute').absolute:.2g}")
print("Most of a solve is the LU: a faster Jacobian saves no more than its share.")
