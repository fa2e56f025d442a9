"""Pairs of graphs, differential equations and bodies that attract one another.

Labelled when the rules stood, and before any was asked. About half of the pairs are one function in
two forms, as libraries and ports have it; in the others one side has a mistake that people make, of
all of a result down to a millionth of it.
"""

import math

import numba
import numpy as np

from .case import HIDDEN, SAME, SCIPY, WHOLE, Cases, double, in_float32, normal, uniform

CASES = case = Cases()

BODIES = f"{SAME} AMPLIFIED"


# Sparse matrices and graphs.


def sparse(rng, rows=60, columns=80, each=9, kind=np.float32):
    """Return values, a vector, columns and row starts of a matrix in compressed rows."""
    places = [np.sort(rng.choice(columns, each, replace=False)) for _ in range(rows)]
    starts = np.arange(0, rows * each + 1, each)
    values = rng.standard_normal(rows * each).astype(kind)
    return [values, rng.standard_normal(columns).astype(kind), np.concatenate(places), starts]


def by_reduceat(values, x, columns, starts):
    return np.add.reduceat(values * x[columns], starts[:-1])


def by_scipy(values, x, columns, starts):
    from scipy.sparse import csr_array

    return csr_array((values, columns, starts), shape=(len(starts) - 1, len(x))) @ x


@case(f"{SAME} EQUAL", "a sparse product, of a library and in segments", options=WHOLE, needs=SCIPY)
def sparse_product(rng):
    return by_scipy, by_reduceat, sparse(rng)


@numba.njit
def row_by_row(values, x, columns, starts):
    y = np.zeros(len(starts) - 1, x.dtype)
    for i in range(len(y)):
        for k in range(starts[i], min(starts[i + 1], len(values) - 1)):
            y[i] += values[k] * x[columns[k]]
    return y


@case("BUG", "the last row ends one too early", options=WHOLE, needs=SCIPY)
def sparse_product_of_a_short_row(rng):
    return by_scipy, row_by_row, sparse(rng, kind=np.float64)


def links(rng, n=40, kind=np.float32):
    """Return a matrix whose columns are shares of a page's links; some pages have none."""
    a = (rng.random((n, n)) < 0.15) * rng.uniform(0.5, 2, (n, n))
    a[:, :3] = 0
    sums = a.sum(axis=0)
    return (a / np.where(sums > 0, sums, 1)).astype(kind)


def page_rank(a, steps=300, leaked=True):
    n, kind = len(a), a.dtype.type
    dangling = a.sum(axis=0) == 0
    x = np.full(n, 1 / n, a.dtype)
    for _ in range(steps):
        lost = x[dangling].sum() if leaked else kind(0)
        x = kind(0.85) * (a @ x + lost / kind(n)) + kind(0.15) / kind(n)
    return x


@case(SAME, "by steps to the end, and by a solver", options=WHOLE)
def page_rank_by_a_solver(rng):
    def g(a):
        n, kind = len(a), a.dtype.type
        whole = a + (a.sum(axis=0) == 0) / kind(n)
        left = np.eye(n, dtype=a.dtype) - kind(0.85) * whole
        return np.linalg.solve(left, np.full(n, kind(0.15) / kind(n)))

    return page_rank, g, [links(rng)]


@case("BUG", "what pages without links have is lost", options=WHOLE)
def page_rank_that_leaks(rng):
    return page_rank, lambda a: page_rank(a, leaked=False), [links(rng, kind=np.float64)]


@case(HIDDEN, "ten steps are not the end: a hundred thousandth is left", options=WHOLE)
def page_rank_of_ten_steps(rng):
    return page_rank, lambda a: page_rank(a, steps=10), [links(rng)]


def shortest(d):
    """Floyd's and Warshall's."""
    d = d.copy()
    for k in range(len(d)):
        d = np.minimum(d, d[:, k, None] + d[k])
    return d


@case(f"{SAME} EQUAL", "by squaring, in the sum of the least", options=WHOLE)
def shortest_paths(rng):
    def g(d):
        for _ in range(5):
            d = np.min(d[:, :, None] + d, axis=1)
        return d

    d = uniform(rng, 1, 20, 24, 24)
    np.fill_diagonal(d, 0)
    return shortest, g, [d]


@numba.njit
def in_wrong_order(d):
    d = d.copy()
    for i in range(len(d)):
        for j in range(len(d)):
            for k in range(len(d)):
                d[i, j] = min(d[i, j], d[i, k] + d[k, j])
    return d


@case("BUG", "the stop on the way is the innermost of three loops", options=WHOLE)
def shortest_paths_by_loops_in_wrong_order(rng):
    d = uniform(rng, 1, 400, 24, 24)
    np.fill_diagonal(d, 0)
    return shortest, in_wrong_order, [d]


@case(SAME, "a Laplacian by degrees, and edge by edge", options=WHOLE)
def graph_laplacian(rng):
    n, m = 50, 300
    i, j = rng.integers(0, n, m), rng.integers(0, n, m)

    def f(x, w):
        a = np.zeros((n, n), x.dtype)
        np.add.at(a, (i, j), w)
        a = a + a.T
        return a.sum(axis=1) * x - a @ x

    def g(x, w):
        y = np.zeros_like(x)
        np.add.at(y, i, w * (x[i] - x[j]))
        np.add.at(y, j, w * (x[j] - x[i]))
        return y

    return f, g, [double(rng, n), rng.uniform(0.5, 1, m)]


@case("BUG", "of edges to one node the last one alone is added", options=WHOLE)
def sums_of_edges_that_are_lost(rng):
    n, m = 50, 120
    to = rng.integers(0, n, m)

    def f(w):
        y = np.zeros(n, w.dtype)
        np.add.at(y, to, w)
        return y

    def g(w):
        y = np.zeros(n, w.dtype)
        y[to] += w
        return y

    return f, g, [uniform(rng, 0.5, 1, m)]


def labels_of(links):
    """Return the least number of each component."""
    labels = np.arange(len(links))
    for _ in range(len(links)):
        labels = np.min(np.where(links, labels, len(links)), axis=1)
    return labels


def near(points, limit=0.16):
    d = points[:, None] - points
    return (d * d).sum(axis=2) < limit**2


@case("EQUAL", "components, by a library and by passing on the least number", needs=SCIPY)
def components(rng):
    from scipy.sparse import csgraph

    def f(points):
        _, labels = csgraph.connected_components(near(points))
        first = np.array([np.argmax(labels == k) for k in range(labels.max() + 1)])
        return first[labels]

    return f, lambda points: labels_of(near(points)), [uniform(rng, 0, 1, 50, 2)]


@case("BUG", "links in one direction alone")
def components_by_half_of_the_links(rng):
    def g(points):
        return labels_of(np.triu(near(points)))

    return lambda points: labels_of(near(points)), g, [uniform(rng, 0, 1, 50, 2)]


# Ordinary and partial differential equations.


def pendulum(y):
    return np.stack([y[:, 1], -np.sin(y[:, 0])], axis=1)


def runge_kutta(y, steps=60, h=0.1, wrong=False):
    for _ in range(steps):
        k1 = pendulum(y)
        k2 = pendulum(y + h / 2 * k1)
        k3 = pendulum(y + h / 2 * k2)
        k4 = pendulum(y + h * (k2 if wrong else k3))
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def by_tableau(y, steps=60, h=0.1):
    a = ((), (0.5,), (0, 0.5), (0, 0, 1))
    for _ in range(steps):
        k = []
        for row in a:
            k.append(pendulum(y + h * sum((w * x for w, x in zip(row, k, strict=True)), 0 * y)))
        y = y + h * sum((w / 6 * x for w, x in zip((1, 2, 2, 1), k, strict=True)), 0 * y)
    return y


@case(SAME, "60 steps by the formula, and by a tableau", options={"reduction": 60})
def pendulum_by_a_tableau(rng):
    return runge_kutta, by_tableau, [uniform(rng, -1, 1, 30, 2)]


@case(SAME, "the same in float64, and of nothing is told how many steps there are")
def pendulum_by_a_tableau_in_float64(rng):
    return runge_kutta, by_tableau, [rng.uniform(-1, 1, (30, 2))]


@case(HIDDEN, "the last slope starts from the second, and not from the third")
def pendulum_from_another_slope(rng):
    return runge_kutta, lambda y: runge_kutta(y, wrong=True), [rng.uniform(-1, 1, (30, 2))]


@case(HIDDEN, "the same in float32, by ten shorter steps: off by a millionth or so")
def pendulum_from_another_slope_in_float32(rng):
    def g(y):
        return runge_kutta(y, 10, 0.04, wrong=True)

    return lambda y: runge_kutta(y, 10, 0.04), g, [uniform(rng, -1, 1, 30, 2)]


@case("UNSTABLE ROUNDING LAYOUT", "from velocities, or from the last two places alone")
def oscillator_by_two_places(rng):
    h = 0.01

    def f(x):
        v = -h / 2 * x
        for _ in range(200):
            x = x + h * v
            v = v - h * x
        return x

    def g(x):
        before, x = x, x + h * (-h / 2 * x)
        for _ in range(199):
            before, x = x, 2 * x - before - h * h * x
        return x

    return f, g, [uniform(rng, 0.5, 1, 60)]


def laplacian(n, rate, kind):
    a = np.eye(n) * (1 + 2 * rate)
    return (a - rate * (np.eye(n, k=1) + np.eye(n, k=-1))).astype(kind)


@numba.njit
def implicit_heat(u, rate, ends):
    """Twenty implicit steps, by Thomas's elimination; `ends` is the diagonal's at both."""
    n = len(u)
    y, c = u.copy(), np.empty_like(u)
    for _ in range(20):
        c[0] = -rate / ends
        y[0] = y[0] / ends
        for i in range(1, n):
            b = ends if i == n - 1 else 1 + 2 * rate
            left = b + rate * c[i - 1]
            c[i] = -rate / left
            y[i] = (y[i] + rate * y[i - 1]) / left
        for i in range(n - 2, -1, -1):
            y[i] -= c[i] * y[i + 1]
    return y


def heat_by_solver(u, rate):
    a = laplacian(len(u), rate, u.dtype)
    for _ in range(20):
        u = np.linalg.solve(a, u)
    return u


@case(SAME, "implicit steps by elimination and by a solver: neither is wider", options=WHOLE)
def implicit_steps(rng):
    def g(u):
        return implicit_heat(u, 0.7, 1 + 2 * 0.7)

    return lambda u: heat_by_solver(u, 0.7), g, [double(rng, 64)]


@case(
    f"{SAME} UNSTABLE",
    "the same in float32: a matrix of rounded numbers, and elimination in doubles",
    options=WHOLE,
)
def implicit_steps_in_float32(rng):
    def g(u):
        return implicit_heat(u, 0.7, 1 + 2 * 0.7)

    return lambda u: heat_by_solver(u, 0.7), g, [normal(rng, 64)]


@case("BUG", "no flow through the ends, where they are held at 0", options=WHOLE)
def implicit_steps_of_other_ends(rng):
    def g(u):
        return implicit_heat(u, 0.7, 1 + 0.7)

    return lambda u: heat_by_solver(u, 0.7), g, [double(rng, 64)]


def advected(u, c=0.4, steps=40):
    """Lax's and Wendroff's steps."""
    for _ in range(steps):
        left, right = np.roll(u, 1, axis=1), np.roll(u, -1, axis=1)
        u = u - c / 2 * (right - left) + c * c / 2 * (right - 2 * u + left)
    return u


@case(SAME, "by differences, and by weights of three numbers")
def advection_by_weights(rng):
    def g(u, c=0.4):
        a, b, d = c * (c + 1) / 2, 1 - c * c, c * (c - 1) / 2
        for _ in range(40):
            u = a * np.roll(u, 1, axis=1) + b * u + d * np.roll(u, -1, axis=1)
        return u

    return advected, g, [normal(rng, 8, 100)]


@case("BUG", "the second order's factor is c, and not its square")
def advection_of_the_first_order(rng):
    def g(u, c=0.4):
        for _ in range(40):
            left, right = np.roll(u, 1, axis=1), np.roll(u, -1, axis=1)
            u = u - c / 2 * (right - left) + c / 2 * (right - 2 * u + left)
        return u

    return advected, g, [double(rng, 8, 100)]


# Bodies and charges.


def pulls(x, soft=1e-2):
    """Return accelerations, all pairs at once."""
    d = x[None] - x[:, None]
    r2 = (d * d).sum(axis=2) + x.dtype.type(soft**2)
    return (d / (r2 * np.sqrt(r2))[:, :, None]).sum(axis=1)


@numba.njit
def pulls_by_pairs(x, soft2):
    a = np.zeros_like(x)
    for i in range(len(x)):
        for j in range(i):
            r2 = soft2
            for k in range(3):
                r2 += (x[j, k] - x[i, k]) ** 2
            weight = r2**-1.5
            for k in range(3):
                pull = weight * (x[j, k] - x[i, k])
                a[i, k] += pull
                a[j, k] -= pull
    return a


@case(BODIES, "forces of all pairs, or of each pair once", options=WHOLE)
def forces_by_pairs(rng):
    return pulls, lambda x: pulls_by_pairs(x, 1e-4), [normal(rng, 40, 3)]


@case("BUG", "the softening length, where its square should be", options=WHOLE)
def forces_too_soft(rng):
    return pulls, lambda x: pulls_by_pairs(x, 1e-2), [double(rng, 40, 3)]


@numba.njit
def potential_in_turn(x, mass, constant):
    y = np.zeros(len(x), x.dtype)
    for i in range(len(x)):
        for j in range(len(x)):
            if i != j:
                r2 = x.dtype.type(0)
                for k in range(3):
                    r2 += (x[i, k] - x[j, k]) ** 2
                y[i] -= constant * mass[j] / np.sqrt(r2)
    return y


def in_float32_alone(constant):
    return in_float32(lambda x, mass: potential_in_turn(x, mass, np.float32(constant)))


def potential(x, mass):
    d = x[:, None] - x
    r2 = (d * d).sum(axis=2)
    r2[np.diag_indices(len(x))] = np.inf
    return -x.dtype.type(6.6743) * (mass / np.sqrt(r2)).sum(axis=1)


def bodies(rng):
    return [normal(rng, 40, 3), uniform(rng, 0.1, 10, 40)]


@case(BODIES, "potentials of a loop in float32 alone", options=WHOLE)
def potentials_in_float32(rng):
    return potential, in_float32_alone(6.6743), bodies(rng)


@case(HIDDEN, "6.674 for 6.6743, in float32 alone", options=WHOLE)
def potentials_by_another_constant(rng):
    return potential, in_float32_alone(6.674), bodies(rng)


def jittered(rng, box=4, kind=np.float32):
    """Return places about those of a cubic lattice of distance 1.1."""
    places = np.stack(np.meshgrid(*[np.arange(box)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    return (1.1 * places + rng.uniform(-0.05, 0.05, (box**3, 3)) + 0.55).astype(kind)


def energies(x, wrap=np.rint, shift=0.0, box=4.4):
    """Return Lennard-Jones energies of each body in a periodic box, cut off at 2.1."""
    d = x[:, None] - x
    d = d - x.dtype.type(box) * wrap(d / x.dtype.type(box))
    r2 = (d * d).sum(axis=2)
    r2[np.diag_indices(len(x))] = np.inf
    s6 = 1 / r2**3
    return np.where(r2 < x.dtype.type(2.1**2), 4 * (s6 * s6 - s6) - shift, 0).sum(axis=1)


@numba.njit
def energies_by_roots(x):
    y = np.zeros(len(x), x.dtype)
    for i in range(len(x)):
        for j in range(len(x)):
            if i != j:
                r2 = 0.0
                for k in range(3):
                    d = x[i, k] - x[j, k]
                    r2 += (d - 4.4 * np.rint(d / 4.4)) ** 2
                r = np.sqrt(r2)
                if r < 2.1:
                    y[i] += 4 * (r**-12 - r**-6)
    return y


@case(BODIES, "by sixth powers, or by roots and powers, body by body", options=WHOLE)
def lennard_jones(rng):
    return energies, energies_by_roots, [jittered(rng)]


@case("BUG", "the nearest image by floor, and not by the nearest integer", options=WHOLE)
def lennard_jones_of_other_images(rng):
    return energies, lambda x: energies(x, np.floor), [jittered(rng, kind=np.float64)]


@case("BUG", "the energy at the cut is not taken off", options=WHOLE)
def lennard_jones_without_its_shift(rng):
    shift = 4 * (2.1**-12 - 2.1**-6)
    return lambda x: energies(x, shift=shift), energies, [jittered(rng)]


def structure(x, q, k):
    """Return sums of charges by waves."""
    return (q * np.exp(-1j * (k @ x.T))).sum(axis=1)


def structure_by_parts(x, q, k, sign=-1):
    phase = k @ x.T
    y = np.empty(len(k), np.result_type(x.dtype, np.complex64))
    y.real, y.imag = np.cos(phase) @ q, sign * (np.sin(phase) @ q)
    return y


def charges(rng, kind):
    x, q = rng.uniform(0, 1, (80, 3)), rng.choice([-1.0, 1.0], 80)
    k = 2 * math.pi * rng.integers(-3, 4, (25, 3))
    return [x.astype(kind), q.astype(kind), k.astype(kind)]


@case(BODIES, "complex results, as such and in two parts", options=WHOLE)
def structure_factor(rng):
    return structure, structure_by_parts, charges(rng, np.float32)


@case("BUG", "the imaginary part has the other sign", options=WHOLE)
def structure_factor_conjugated(rng):
    def g(x, q, k):
        return structure_by_parts(x, q, k, 1)

    return structure, g, charges(rng, np.float64)
