"""Coloring of columns against SciPy's grouping, and recovery of entries: seconds and ratios."""

from functools import partial
from math import isqrt

import numpy as np

import calipers
from calipers._derivatives.coloring import Coloring, color_columns, decompress, star_coloring

from . import common


def _scipy():
    """Raise NotImplementedError, which asv takes for a skip, if SciPy is not installed."""
    try:
        import scipy.sparse
        from scipy.optimize._numdiff import group_columns
    except ImportError:
        raise NotImplementedError("SciPy is not installed") from None
    return scipy.sparse, group_columns


def _line(n):
    sparse, _ = _scipy()
    return sparse.diags_array([np.ones(n)] * 3, offsets=[-1, 0, 1], shape=(n, n))


def _grid(n):
    sparse, _ = _scipy()
    line, one = _line(isqrt(n)), sparse.eye_array(isqrt(n))
    return sparse.kron(one, line) + sparse.kron(line, one)


def _periodic(n):
    sparse, _ = _scipy()
    return sparse.diags_array([np.ones(n)] * 5, offsets=[1 - n, -1, 0, 1, n - 1], shape=(n, n))


def _random(n):
    sparse, _ = _scipy()
    rng = np.random.default_rng(0)
    entries = rng.integers(0, n, 4 * n), np.repeat(np.arange(n), 4)
    return sparse.coo_array((np.ones(4 * n), entries), shape=(n, n))


PATTERNS = {"tridiagonal": _line, "5-point": _grid, "periodic": _periodic, "random": _random}


def pattern(name):
    """Return a CSC matrix of about as many columns as a tenth of the elements of other arrays."""
    sparse, _ = _scipy()
    matrix = sparse.csc_array(PATTERNS[name](common.SIZE // 10))
    matrix.sum_duplicates()
    return matrix


class Columns:
    params = (list(PATTERNS),)
    param_names = ("pattern",)

    def setup(self, name):
        a = self.a = pattern(name)
        self.group_columns = partial(_scipy()[1], a)
        self.natural = np.arange(a.shape[1])
        self.own = partial(color_columns, a.indptr, a.indices, a.shape)
        self.own()

    def time_color_columns(self, name):
        self.own()

    def track_over_scipy(self, name):
        return common.speedup(self.own, self.group_columns, repeat=5)

    def track_over_scipy_in_natural_order(self, name):
        return common.speedup(self.own, partial(self.group_columns, self.natural), repeat=5)

    def track_colors(self, name):
        return self.own().count

    def track_share_of_colors_of_scipy(self, name):
        return self.own().count / (int(self.group_columns().max()) + 1)

    def track_share_of_colors_in_natural_order(self, name):
        return self.own().count / (int(self.group_columns(self.natural).max()) + 1)

    track_over_scipy.unit = track_over_scipy_in_natural_order.unit = "times scipy"
    track_colors.unit = "colors"
    track_share_of_colors_of_scipy.unit = "of scipy's"
    track_share_of_colors_in_natural_order.unit = "of scipy's"


class Hessians:
    params = (["tridiagonal", "5-point", "periodic"],)
    param_names = ("pattern",)

    def setup(self, name):
        a = pattern(name)
        self.own = partial(star_coloring, a.indptr, a.indices, a.shape[0])
        self.own()

    def time_star_coloring(self, name):
        self.own()

    def track_colors(self, name):
        return self.own().count

    track_colors.unit = "colors"


class Recovery:
    params = (["tridiagonal", "5-point"], ["float64", "float32"], [1, 2])
    param_names = ("pattern", "dtype", "threads")

    def setup(self, name, dtype, threads):
        a = pattern(name)
        found: Coloring = color_columns(a.indptr, a.indices, a.shape)
        self.given = a.indptr, a.indices, found.colors
        random = np.random.default_rng(0)
        self.differences = random.random((found.count, a.shape[0])).astype(dtype)
        self.weight = random.random(a.shape[1])
        self.data = np.empty(a.nnz, dtype)
        self.time_decompress(name, dtype, threads)

    def time_decompress(self, name, dtype, threads):
        with calipers.num_threads(threads):
            decompress(*self.given, self.differences, self.weight, self.data)

    def track_nanoseconds_per_entry(self, name, dtype, threads):
        with calipers.num_threads(threads):
            own = partial(decompress, *self.given, self.differences, self.weight, self.data)
            own()  # starts the pool
            (seconds,) = common.medians(own)
        return 1e9 * seconds / self.data.size

    track_nanoseconds_per_entry.unit = "ns"
