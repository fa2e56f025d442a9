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


def measured(action):
    begun = time.perf_counter()
    return action(), time.perf_counter() - begun


def solved(name, options):
    """Return the end of a solution; print how long it took, with options for its Jacobian."""
    # A new solver finds its first Jacobian, and groups columns for it. The first one compiles.
    _, *times = (measured(lambda: BDF(rates, 0, start, 10, **options()))[1] for _ in range(4))
    found, seconds = measured(
        lambda: solve_ivp(rates, (0, 10), start, "BDF", rtol=1e-4, atol=1e-6, **options())
    )
    assert found.success, found.message
    print(f"Jacobians by {name:<8}  set-up and first Jacobian: {1e3 * min(times):6.2f} ms,", end="")
    print(f"  solve: {seconds:.2f} s, {found.njev} Jacobians, {found.nlu} LU factorizations")
    return found.y[:, -1]


print(f"Brusselator on {SIDE} x {SIDE} points: {start.size} unknowns, {pattern.nnz} entries")
by_scipy = solved("SciPy", lambda: {"jac_sparsity": pattern})
by_calipers = solved(
    "calipers",
    lambda: {"jac": calipers.jacobian_function(rates, argnums=1, sparsity=pattern)},
)
report = calipers.compare(by_calipers, by_scipy, rtol=1e-4, atol=1e-6)
assert report, report
print(f"largest difference at the end: {report.worst('absolute').absolute:.2g}")
