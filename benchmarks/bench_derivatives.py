"""Derivatives: compiled, sparse, batched and adaptive, against SciPy and the adaptive peers."""

from functools import partial

import numba
import numpy as np

import calipers

from . import common, peers


@numba.njit
def broyden(x, out):
    """Broyden's tridiagonal system, MGH 30 of Moré, Garbow and Hillstrom."""
    last = x.size - 1
    out[0] = (3 - 2 * x[0]) * x[0] - 2 * x[1] + 1
    for i in range(1, last):
        out[i] = (3 - 2 * x[i]) * x[i] - x[i - 1] - 2 * x[i + 1] + 1
    out[last] = (3 - 2 * x[last]) * x[last] - x[last - 1] + 1


@numba.njit
def broyden_returned(x):
    out = np.empty_like(x)
    broyden(x, out)
    return out


@numba.njit
def bare_calls(x, out, count):
    for _ in range(count):
        broyden(x, out)


@numba.njit
def slow(x, out):
    """Take long for each element, so that f is all that a Jacobian costs."""
    for i in range(x.size):
        value = x[i]
        for _ in range(200):
            value = np.sin(value) + x[0]
        out[i] = value


def broyden_batch(x):
    """Broyden's system of a vector, or of each row of a matrix."""
    out = (3 - 2 * x) * x + 1
    out[..., 1:] -= x[..., :-1]
    out[..., :-1] -= 2 * x[..., 1:]
    return out


def point(n):
    return np.random.default_rng(0).random(n)


class Dense:
    params = ([10, 100, 1000], [1, 2])
    param_names = ("n", "threads")

    def setup(self, n, threads):
        self.x = point(min(n, common.SIZE))
        out = np.empty_like(self.x)
        self.planned = calipers.jacobian_function(broyden, self.x, out_like=self.x)
        self.own = partial(self.planned, self.x)
        self.plain = partial(calipers.jacobian, broyden, self.x, out_like=self.x)
        self.bare = partial(bare_calls, self.x, out, 2 * self.x.size)
        for call in (self.own, self.plain, self.bare):
            for _ in range(5):
                call()

    def time_jacobian_function(self, n, threads):
        with calipers.num_threads(threads):
            self.own()

    def time_jacobian(self, n, threads):
        with calipers.num_threads(threads):
            self.plain()

    def track_over_scipy(self, n, threads):
        with calipers.num_threads(threads):
            return common.speedup(self.own, self._scipy())

    def track_over_scipy_in_a_row(self, n, threads):
        """Repeated calls find what they need in the caches; after SciPy's they do not."""
        with calipers.num_threads(threads):
            return common.speedup_in_a_row(self.own, self._scipy())

    def _scipy(self):
        return peers.scipy_derivative(broyden_returned, self.x, method="3-point")

    def track_of_bare_calls(self, n, threads):
        with calipers.num_threads(threads):
            return common.speedup(self.bare, self.own)

    track_over_scipy.unit = track_over_scipy_in_a_row.unit = "times scipy"
    track_of_bare_calls.unit = "of 2n bare calls"


def squares(x):
    return x * x + 1


class Python:
    """A function of NumPy that is not compiled, of few numbers: the calls around it count."""

    params = ([3, 10],)
    param_names = ("n",)

    def setup(self, n):
        self.x = point(n)

    def time_jacobian(self, n):
        calipers.jacobian(squares, self.x)

    def track_over_scipy(self, n):
        peer = peers.scipy_derivative(squares, self.x, method="3-point")
        return common.speedup(partial(calipers.jacobian, squares, self.x), peer, repeat=21)

    track_over_scipy.unit = "times scipy"


class Sparse:
    params = (["2-point", "3-point"],)
    param_names = ("method",)

    def setup(self, method):
        n = common.SIZE // 10
        self.x = point(n)
        self.sparsity = peers.tridiagonal(n), np.arange(n) % 3
        options = {"method": method, "sparsity": self.sparsity, "out_like": self.x}
        self.own = partial(calipers.jacobian_function(broyden, self.x, **options), self.x)
        self.method = method
        self.own()

    def time_jacobian_function(self, method):
        self.own()

    def track_over_scipy(self, method):
        return common.speedup(self.own, self._scipy())

    def track_over_scipy_in_a_row(self, method):
        """Repeated calls get the memory of the results before; after SciPy's it is fresh."""
        return common.speedup_in_a_row(self.own, self._scipy())

    def _scipy(self):
        options = {"method": self.method, "sparsity": self.sparsity}
        return peers.scipy_derivative(broyden_returned, self.x, **options)

    track_over_scipy.unit = track_over_scipy_in_a_row.unit = "times scipy"


class Batched:
    def setup(self):
        self.x = point(min(1000, common.SIZE))
        self.own = partial(calipers.jacobian, broyden_batch, self.x, batched=True)
        self.own()

    def time_jacobian(self):
        self.own()

    def track_over_scipy(self):
        return common.speedup(self.own, peers.scipy_derivative(broyden_batch, self.x))

    track_over_scipy.unit = "times scipy"


class Adaptive:
    def setup(self):
        self.x = point(100)
        self.own = partial(calipers.differentiate, broyden_returned, self.x)
        self.plain = partial(calipers.differentiate, broyden_batch, self.x)
        self.own(), self.plain()

    def time_differentiate(self):
        self.own()

    def time_differentiate_python(self):
        self.plain()

    def track_over_numdifftools(self):
        return common.speedup(self.own, peers.numdifftools(broyden_returned, self.x), repeat=5)

    def track_over_numdifftools_in_a_row(self):
        """Repeated calls find code and memory in the caches; after numdifftools' they do not."""
        return common.speedup_in_a_row(self.own, peers.numdifftools(broyden_returned, self.x))

    def track_over_jacobi(self):
        return common.speedup(self.own, peers.jacobi(broyden_returned, self.x), repeat=5)

    track_over_numdifftools.unit = "times numdifftools"
    track_over_numdifftools_in_a_row.unit = "times numdifftools"
    track_over_jacobi.unit = "times jacobi"


class Memory:
    """The result of 1500 by 1500 takes 18 MB: more than that is what a call allocates."""

    def setup(self):
        self.x = point(1500)
        calipers.jacobian(broyden, self.x[:10], out_like=10)

    def peakmem_result_alone(self):
        np.ones((1500, 1500))

    def peakmem_jacobian(self):
        calipers.jacobian(broyden, self.x, out_like=self.x)
