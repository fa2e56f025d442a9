"""Formulas, linear algebra, statistics and equations of motion, after public reports.

Labelled before any verdict was asked for. A note cites the report, where one was read.
"""

import math

import numpy as np

from .case import HIDDEN, OK, SCIPY, WHOLE, Cases, conditioned, double, normal, uniform

CASES = Cases()
pair = CASES.pair


def arrays(*shapes):
    return lambda rng: [normal(rng, *shape) for shape in shapes]


def doubles(*shapes):
    return lambda rng: [double(rng, *shape) for shape in shapes]


def between(low, high, *shape, logarithmic=False):
    """Return a generator of numbers in float64."""

    def inputs(rng):
        if logarithmic:
            return [np.exp(rng.uniform(math.log(low), math.log(high), shape))]
        return [rng.uniform(low, high, shape)]

    return inputs


def between_singles(low, high, *shape):
    return lambda rng: [uniform(rng, low, high, *shape)]


# Formulas that lose digits, and those that do not.

pair(
    "difference_of_roots",
    "UNSTABLE",
    lambda x: 1 / (np.sqrt(x + 1) + np.sqrt(x)),
    lambda x: np.sqrt(x + 1) - np.sqrt(x),
    between(1e6, 1e8, 200, logarithmic=True),
    "universal#622",
)
pair(
    "difference_of_roots_of_small_numbers",
    OK,
    lambda x: 1 / (np.sqrt(x + 1) + np.sqrt(x)),
    lambda x: np.sqrt(x + 1) - np.sqrt(x),
    between(0.1, 1, 200),
)
pair(
    "tangent_less_sine",
    "UNSTABLE",
    lambda x: 2 * np.tan(x) * np.sin(x / 2) ** 2,
    lambda x: np.tan(x) - np.sin(x),
    between(1e-4, 1e-3, 200),
)
pair(
    "interest_of_small_rates",
    "UNSTABLE",
    lambda r: np.expm1(12 * np.log1p(r)),
    lambda r: (1 + r) ** 12 - 1,
    between(1e-9, 1e-7, 200, logarithmic=True),
)
pair(
    "kinetic_energy_of_slow_particles",
    "UNSTABLE",
    lambda p: p * p / (np.sqrt(p * p + 1) + 1),
    lambda p: np.sqrt(p * p + 1) - 1,
    between(1e-5, 1e-4, 200),
)
pair(
    "kinetic_energy_of_fast_particles",
    OK,
    lambda p: p * p / (np.sqrt(p * p + 1) + 1),
    lambda p: np.sqrt(p * p + 1) - 1,
    between(1, 30, 200),
)
pair(
    "speed_of_a_small_redshift",
    "UNSTABLE",
    lambda z: np.tanh(np.log1p(z)),
    lambda z: ((1 + z) ** 2 - 1) / ((1 + z) ** 2 + 1),
    between(1e-8, 1e-6, 200, logarithmic=True),
)
pair(
    "one_less_square_near_one",
    "AMPLIFIED",
    lambda x: (1 - x) * (1 + x),
    lambda x: 1 - x * x,
    lambda rng: [1 - np.exp(rng.uniform(-14, -12, 200))],
    "scipy#21326; the inputs' last places are magnified in both",
)
pair(
    "tail_of_the_normal_distribution",
    "UNSTABLE",
    lambda x: _special("erfc")(x / math.sqrt(2)) / 2,
    lambda x: 1 - (1 + _special("erf")(x / math.sqrt(2))) / 2,
    between(5, 7, 200),
    "as scipy#3545 reports of a distribution",
    needs=SCIPY,
)
pair(
    "logarithm_of_a_sum_near_zero",
    "UNSTABLE",
    lambda x: np.log1p(np.exp(x)),
    lambda x: np.log(1 + np.exp(x)),
    between(-30, -20, 200),
    "scipy#18295: logsumexp([0, -40])",
)
pair(
    "hyperbolic_cosine_less_one",
    "UNSTABLE",
    lambda x: 2 * np.sinh(x / 2) ** 2,
    lambda x: np.cosh(x) - 1,
    between(1e-5, 1e-4, 200),
)
pair(
    "inverse_hyperbolic_sine_of_negative_numbers",
    "UNSTABLE",
    np.arcsinh,
    lambda x: np.log(x + np.sqrt(x * x + 1)),
    between(-1e4, -1e3, 200),
    "fine for positive numbers",
)
pair(
    "inverse_hyperbolic_sine_of_positive_numbers",
    OK,
    np.arcsinh,
    lambda x: np.log(x + np.sqrt(x * x + 1)),
    between(1, 1e3, 200),
)
pair(
    "inverse_hyperbolic_tangent_of_small_numbers",
    "UNSTABLE",
    np.arctanh,
    lambda x: np.log((1 + x) / (1 - x)) / 2,
    between(1e-7, 1e-5, 200, logarithmic=True),
)
pair(
    "sine_over_x_by_two_angles",
    OK,
    lambda x: np.sin(x) / x,
    lambda x: 2 * np.sin(x / 2) * np.cos(x / 2) / x,
    between(0.1, 3, 200),
)
pair(
    "lens_by_differences_of_reciprocals",
    "UNSTABLE",
    lambda x: -1 / (x * (x + 1)),
    lambda x: 1 / (x + 1) - 1 / x,
    between(1e5, 1e7, 200, logarithmic=True),
)
pair(
    "means_of_squares_less_squares_of_means",
    "UNSTABLE",
    lambda x: ((x - x.mean(1, keepdims=True)) ** 2).mean(1),
    lambda x: (x * x).mean(1) - x.mean(1) ** 2,
    lambda rng: [1e5 + rng.standard_normal((20, 200))],
    "pandas#10242",
)
pair(
    "rolling_deviation_after_a_large_value",
    "UNSTABLE",
    lambda x: np.lib.stride_tricks.sliding_window_view(x, 5)[1:].var(1),
    lambda x: (_rolling(x * x) - _rolling(x) ** 2 / 5)[1:] / 5,
    lambda rng: [np.concatenate([[1e6], rng.standard_normal(60)])],
    "pandas#28244",
    options=WHOLE,
)
pair(
    "rolling_mean_of_similar_values",
    f"{OK} UNSTABLE",
    lambda x: np.lib.stride_tricks.sliding_window_view(x, 5).mean(1),
    lambda x: _rolling(x) / 5,
    lambda rng: [rng.uniform(1, 2, 60)],
    "differences of running sums of 60 numbers lose a digit or two",
    options=WHOLE,
)
pair(
    "distances_by_products_of_close_points",
    "UNSTABLE",
    lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1),
    lambda a, b: (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T,
    lambda rng: [100 + normal(rng, 20, 8) / 8, 100 + normal(rng, 15, 8) / 8],
    "torch.cdist by a matrix product",
    options=WHOLE,
)
pair(
    "distances_by_products_of_distant_points",
    OK,
    lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1),
    lambda a, b: (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T,
    arrays((20, 40), (15, 40)),
    options=WHOLE,
)
pair(
    "distances_that_lack_the_factor_two",
    "BUG",
    lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1),
    lambda a, b: (a * a).sum(1)[:, None] + (b * b).sum(1) - a @ b.T,
    arrays((20, 40), (15, 40)),
    options=WHOLE,
)


def _special(name):
    import scipy.special

    return getattr(scipy.special, name)


def _rolling(x):
    total = np.concatenate([np.zeros(1, x.dtype), np.cumsum(x)])
    return total[5:] - total[:-5]


# Polynomials, series and means.

pair(
    "cubic_by_powers_and_by_horner",
    OK,
    lambda x: 2 * x**3 - 3 * x**2 + 4 * x - 5,
    lambda x: ((2 * x - 3) * x + 4) * x - 5,
    between_singles(-3, -1, 300),
)
pair(
    "coefficients_in_reverse",
    "BUG",
    lambda x: ((2 * x - 3) * x + 4) * x - 5,
    lambda x: ((-5 * x + 4) * x - 3) * x + 2,
    between_singles(-3, -1, 300),
    "np.polyval and np.polynomial",
)
pair(
    "hermite_polynomial_by_recurrence",
    OK,
    lambda x: x**4 - 6 * x**2 + 3,
    lambda x: x * (x**3 - 3 * x) - 3 * (x * x - 1),
    between_singles(3, 5, 300),
)
pair(
    "hermite_polynomials_of_physicists",
    "BUG",
    lambda x: x**3 - 3 * x,
    lambda x: 8 * x**3 - 12 * x,
    between_singles(-2, 2, 300),
    "np.polynomial.hermite and hermite_e",
)
pair(
    "interpolation_by_newton_and_by_lagrange",
    f"{OK} AMPLIFIED",
    lambda x, y: (
        y[:, :1] * (x - 1) * (x - 2) / 2 - y[:, 1:2] * x * (x - 2) + y[:, 2:] * x * (x - 1) / 2
    ),
    lambda x, y: (
        y[:, :1] + x * (y[:, 1:2] - y[:, :1] + (x - 1) * (y[:, 2:] - 2 * y[:, 1:2] + y[:, :1]) / 2)
    ),
    lambda rng: [uniform(rng, 0, 2, 30, 10), normal(rng, 30, 3)],
)
pair(
    "geometric_sum_in_closed_form",
    OK,
    lambda q: (1 - q**20) / (1 - q),
    lambda q: (q[..., None] ** np.arange(20)).sum(-1),
    between(0.1, 0.7, 200),
)
pair(
    "geometric_sum_of_one_term_less",
    "BUG",
    lambda q: (1 - q**20) / (1 - q),
    lambda q: (q[..., None] ** np.arange(19)).sum(-1),
    between(0.3, 0.7, 200),
)
pair(
    "harmonic_mean_by_reciprocals",
    OK,
    lambda x: x.shape[1] / (1 / x).sum(1),
    lambda x: 1 / (1 / x).mean(1),
    between_singles(1, 9, 30, 25),
)
pair(
    "interpolated_by_two_weights",
    f"{OK} AMPLIFIED",
    lambda a, b, t: a + (b - a) * t,
    lambda a, b, t: a * (1 - t) + b * t,
    lambda rng: [normal(rng, 300), normal(rng, 300), uniform(rng, 0, 1, 300)],
)
pair(
    "median_as_a_quantile",
    OK,
    lambda x: np.median(x, axis=1),
    lambda x: np.quantile(x, 0.5, axis=1).astype(x.dtype),
    arrays((30, 24)),
)
pair(
    "running_sum_from_the_other_end",
    OK,
    lambda x: np.cumsum(x[:, ::-1], axis=1)[:, ::-1],
    lambda x: x.sum(1, keepdims=True) - np.cumsum(x, axis=1) + x,
    between_singles(1, 2, 20, 30),
)
pair(
    "running_sum_without_its_own_term",
    "BUG",
    lambda x: np.cumsum(x, axis=1),
    lambda x: np.cumsum(x, axis=1) - x,
    between_singles(1, 2, 20, 30),
    "inclusive and exclusive scans",
)
pair(
    "sum_by_compensation_and_in_turn",
    OK,
    lambda x: x.sum(1),
    lambda x: _compensated(x),
    between_singles(0, 1, 20, 200),
    "Kahan's sum",
)


def _compensated(x, sign=1):
    total = np.zeros(len(x), x.dtype)
    rest = np.zeros(len(x), x.dtype)
    for column in x.T:
        y = column - sign * rest
        t = total + y
        rest = (t - total) - y
        total = t
    return total


# Linear algebra.


def well(n, condition=5.0):
    """Return a matrix and a vector of float32."""
    return lambda rng: [conditioned(rng, n, condition), normal(rng, n)]


def positive(n):
    def inputs(rng):
        a = rng.standard_normal((n, 2 * n))
        return [(a @ a.T / (2 * n)).astype(np.float32), normal(rng, n)]

    return inputs


pair(
    "two_by_two_inverses_by_the_adjugate",
    f"{OK} AMPLIFIED",
    np.linalg.inv,
    lambda a: (
        np.stack(
            [np.stack([a[:, 1, 1], -a[:, 0, 1]], -1), np.stack([-a[:, 1, 0], a[:, 0, 0]], -1)], 1
        )
        / (a[:, 0, 0] * a[:, 1, 1] - a[:, 0, 1] * a[:, 1, 0])[:, None, None]
    ),
    lambda rng: [normal(rng, 40, 2, 2) + 4 * np.eye(2, dtype=np.float32)],
)
pair(
    "adjugates_without_a_transpose",
    "BUG",
    np.linalg.inv,
    lambda a: (
        np.stack(
            [np.stack([a[:, 1, 1], -a[:, 1, 0]], -1), np.stack([-a[:, 0, 1], a[:, 0, 0]], -1)], 1
        )
        / (a[:, 0, 0] * a[:, 1, 1] - a[:, 0, 1] * a[:, 1, 0])[:, None, None]
    ),
    lambda rng: [normal(rng, 40, 2, 2) + 4 * np.eye(2, dtype=np.float32)],
)
pair(
    "determinant_by_cofactors",
    f"{OK} AMPLIFIED",
    np.linalg.det,
    lambda a: (np.cross(a[:, 0], a[:, 1]) * a[:, 2]).sum(-1),
    lambda rng: [normal(rng, 40, 3, 3) + 3 * np.eye(3, dtype=np.float32)],
)
pair(
    "determinant_by_its_logarithm",
    f"{OK} AMPLIFIED",
    np.linalg.det,
    lambda a: (s := np.linalg.slogdet(a))[0] * np.exp(s[1]),
    lambda rng: [normal(rng, 40, 5, 5) / 4 + np.eye(5, dtype=np.float32)],
)
pair(
    "system_of_the_transpose",
    "BUG",
    np.linalg.solve,
    lambda a, b: np.linalg.solve(a.T, b),
    well(16),
    "row-major for column-major",
    options=WHOLE,
)
pair(
    "inverse_times_vector",
    OK,
    np.linalg.solve,
    lambda a, b: np.linalg.inv(a) @ b,
    well(16),
    options=WHOLE,
)
pair(
    "inverse_times_vector_of_a_near_singular_matrix",
    "AMPLIFIED UNSTABLE",
    np.linalg.solve,
    lambda a, b: np.linalg.inv(a) @ b,
    well(16, 1e5),
    "PyTorch's notes on numerical accuracy: ill-conditioned inputs",
    options=WHOLE,
)
pair(
    "one_row_updated_by_sherman_and_morrison",
    f"{OK} AMPLIFIED",
    lambda a, u: np.linalg.solve(a + np.outer(u, u), u),
    lambda a, u: (y := np.linalg.solve(a, u)) / (1 + u @ y),
    positive(12),
    options=WHOLE,
)
pair(
    "update_that_lacks_the_one",
    "BUG",
    lambda a, u: np.linalg.solve(a + np.outer(u, u) / 8, u),
    lambda a, u: (y := np.linalg.solve(a, u)) / (u @ y / 8),
    positive(12),
    options=WHOLE,
)
pair(
    "upper_factor_for_the_lower",
    "BUG",
    lambda a, x: np.linalg.cholesky(a) @ x,
    lambda a, x: np.linalg.cholesky(a).T @ x,
    positive(12),
    "SciPy's default is the upper one",
    options=WHOLE,
)
pair(
    "factor_by_qr_of_the_data",
    f"{OK} AMPLIFIED",
    lambda x: np.linalg.cholesky(x.T @ x).T,
    lambda x: (
        np.abs(np.linalg.qr(x)[1].diagonal())[:, None]
        / np.linalg.qr(x)[1].diagonal()[:, None]
        * np.linalg.qr(x)[1]
    ),
    arrays((60, 6)),
    options=WHOLE,
)
pair(
    "quadratic_form_of_the_symmetric_part",
    OK,
    lambda a, x: ((x @ a) * x).sum(-1),
    lambda a, x: ((x @ ((a + a.T) / 2)) * x).sum(-1),
    lambda rng: [normal(rng, 16, 16) + 8 * np.eye(16, dtype=np.float32), normal(rng, 30, 16)],
    options=WHOLE,
)
pair(
    "quadratic_form_of_the_upper_triangle",
    "BUG",
    lambda a, x: ((x @ (a + a.T)) * x).sum(-1),
    lambda a, x: ((x @ np.triu(a + a.T)) * x).sum(-1),
    arrays((16, 16), (30, 16)),
    options=WHOLE,
)
pair(
    "kronecker_product_applied_as_two",
    OK,
    lambda a, b, x: np.kron(a, b) @ x.ravel(),
    lambda a, b, x: (a @ x @ b.T).ravel(),
    arrays((6, 8), (5, 7), (8, 7)),
    options=WHOLE,
)
pair(
    "kronecker_product_in_the_other_order",
    "BUG",
    lambda a, b, x: np.kron(a, b) @ x,
    lambda a, b, x: np.kron(b, a) @ x,
    arrays((6, 6), (6, 6), (36,)),
    options=WHOLE,
)
pair(
    "reflection_as_a_matrix",
    OK,
    lambda v, x: x - 2 * np.outer(x @ v, v) / (v @ v),
    lambda v, x: x @ (np.eye(len(v), dtype=v.dtype) - 2 / (v @ v) * np.outer(v, v)),
    arrays((24,), (30, 24)),
    options=WHOLE,
)
pair(
    "reflection_without_its_two",
    "BUG",
    lambda v, x: x - 2 * np.outer(x @ v, v) / (v @ v),
    lambda v, x: x - np.outer(x @ v, v) / (v @ v),
    arrays((24,), (30, 24)),
    options=WHOLE,
)
pair(
    "projector_by_singular_vectors",
    OK,
    lambda a: (q := np.linalg.qr(a)[0]) @ q.T,
    lambda a: (u := np.linalg.svd(a, full_matrices=False)[0]) @ u.T,
    arrays((20, 5)),
    options=WHOLE,
)
pair(
    "singular_vectors_of_another_sign",
    "BUG",
    lambda a: _signed(np.linalg.svd(a)[2]),
    lambda a: -_signed(np.linalg.svd(a)[2]),
    arrays((20, 5)),
    "scikit-learn#28826: another rule of signs",
    options=WHOLE,
)
pair(
    "singular_values_of_the_gram_matrix",
    f"{OK} UNSTABLE",
    lambda a: np.linalg.svd(a, compute_uv=False),
    lambda a: np.sqrt(np.linalg.eigvalsh(a.T @ a)[::-1]),
    lambda rng: [conditioned(rng, 30, 4, 8)],
    "of a condition of 4: squares lose little",
    options=WHOLE,
)
pair(
    "small_singular_values_of_the_gram_matrix",
    "UNSTABLE",
    lambda a: np.linalg.svd(a, compute_uv=False),
    lambda a: np.sqrt(np.abs(np.linalg.eigvalsh(a.T @ a)[::-1])),
    lambda rng: [conditioned(rng, 30, 1e3, 8).astype(float)],
    options=WHOLE,
)
pair(
    "vectors_of_close_singular_values",
    "AMPLIFIED",
    lambda a: np.abs(np.linalg.svd(a)[0][:, 0]),
    lambda a: np.abs(np.linalg.eigh(a @ a.T)[1][:, -1]),
    lambda rng: [_close_pair(rng)],
    "PyTorch's notes on numerical accuracy: close singular values",
    options=WHOLE,
)


def _signed(v):
    return v * np.sign(v[np.arange(len(v)), np.abs(v).argmax(1)])[:, None]


def _close_pair(rng):
    u = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    v = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    return ((u * np.array([1 + 1e-4, 1, 0.5, 0.4, 0.3, 0.2])) @ v).astype(np.float32)


pair(
    "tridiagonal_system_by_elimination",
    f"{OK} AMPLIFIED",
    lambda d, b: np.linalg.solve(_tridiagonal(d), b),
    lambda d, b: _thomas(d, b),
    lambda rng: [uniform(rng, 2.5, 4, 30), normal(rng, 30)],
    options=WHOLE,
)
pair(
    "tridiagonal_system_without_its_last_step",
    "BUG",
    lambda d, b: np.linalg.solve(_tridiagonal(d), b),
    lambda d, b: _thomas(d, b, last=1),
    lambda rng: [uniform(rng, 2.5, 4, 30), normal(rng, 30)],
    options=WHOLE,
)


def _tridiagonal(d):
    n = len(d)
    return np.diag(d) - np.eye(n, k=1, dtype=d.dtype) - np.eye(n, k=-1, dtype=d.dtype)


def _thomas(d, b, last=0):
    n = len(d)
    top, x = np.empty_like(d), np.empty_like(b)
    top[0], x[0] = -1 / d[0], b[0] / d[0]
    for i in range(1, n):
        pivot = d[i] + top[i - 1]
        top[i], x[i] = -1 / pivot, (b[i] + x[i - 1]) / pivot
    for i in range(n - 2, last - 1, -1):
        x[i] -= top[i] * x[i + 1]
    return x


pair(
    "power_of_a_matrix_by_squares",
    OK,
    lambda a, x: np.linalg.matrix_power(a, 6) @ x,
    lambda a, x: a @ (a @ (a @ (a @ (a @ (a @ x))))),
    lambda rng: [normal(rng, 12, 12) / 4 + np.eye(12, dtype=np.float32), normal(rng, 12)],
    options=WHOLE,
)
pair(
    "matrix_squared_elementwise",
    "BUG",
    lambda a: a @ a,
    lambda a: a**2,
    arrays((12, 12)),
    "np.matrix and np.ndarray",
    options=WHOLE,
)
pair(
    "gram_matrix_by_outer_products",
    OK,
    lambda x: x.T @ x,
    lambda x: sum(np.outer(row, row) for row in x),
    arrays((40, 8)),
    options=WHOLE,
)
pair(
    "hermitian_product_without_conjugates",
    "BUG",
    lambda x, y: np.vdot(x, y),
    lambda x, y: np.dot(x, y),
    lambda rng: [(normal(rng, 60) + 1j * normal(rng, 60)).astype(np.complex64) for _ in range(2)],
    options=WHOLE,
)
pair(
    "ridge_that_shrinks_the_intercept",
    "BUG",
    lambda x, y: np.linalg.solve(x.T @ x + 2 * np.diag(np.array([0, 1, 1, 1], x.dtype)), x.T @ y),
    lambda x, y: np.linalg.solve(x.T @ x + 2 * np.eye(4, dtype=x.dtype), x.T @ y),
    lambda rng: [np.column_stack([np.ones(40), double(rng, 40, 3)]), 3 + double(rng, 40)],
    options=WHOLE,
)

# Statistics.

pair(
    "scores_by_another_deviation",
    "BUG",
    lambda x: (x - x.mean(0)) / x.std(0),
    lambda x: (x - x.mean(0)) / x.std(0, ddof=1),
    arrays((50, 6)),
    "scikit-learn's scaler and pandas' std",
    options=WHOLE,
)
pair(
    "slope_by_least_squares",
    f"{OK} AMPLIFIED",
    lambda x, y: ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum(),
    lambda x, y: np.linalg.lstsq(np.stack([x, np.ones_like(x)], 1), y, rcond=None)[0][0],
    lambda rng: [x := normal(rng, 50), 2 * x + normal(rng, 50)],
    options=WHOLE,
)
pair(
    "line_through_the_origin",
    "BUG",
    lambda x, y: ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum(),
    lambda x, y: (x * y).sum() / (x * x).sum(),
    lambda rng: [x := normal(rng, 50) + 1, 2 * x + 1 + normal(rng, 50)],
    options=WHOLE,
)
pair(
    "correlation_of_scores",
    OK,
    lambda x, y: np.corrcoef(x, y)[0, 1],
    lambda x, y: ((x - x.mean()) / x.std() * (y - y.mean()) / y.std()).mean(),
    lambda rng: [x := double(rng, 50), x + double(rng, 50)],
    options=WHOLE,
)
pair(
    "ranks_in_the_order_of_ties",
    HIDDEN,
    lambda x: _ranks(x, average=True),
    lambda x: _ranks(x, average=False),
    lambda rng: [rng.integers(0, 12, 30).astype(np.float64)],
    "Spearman's correlation of equal numbers",
    options=WHOLE,
)


def _ranks(x, average):
    below, equal = (x < x[:, None]).sum(1), (x == x[:, None]).sum(1)
    if average:
        return below + (equal + 1) / 2
    return below + 1 + np.array([(x[:i] == x[i]).sum() for i in range(len(x))]) * 1.0


pair(
    "skewness_of_a_population",
    "BUG",
    lambda x: _skewness(x),
    lambda x: _skewness(x) * math.sqrt(20 * 19) / 18,
    doubles((30, 20)),
    "pandas corrects for bias, SciPy does not",
)
pair(
    "kurtosis_without_the_three",
    "BUG",
    lambda x: _kurtosis(x) - 3,
    lambda x: _kurtosis(x),
    doubles((30, 20)),
    "Fisher's and Pearson's",
)


def _skewness(x):
    own = x - x.mean(1, keepdims=True)
    return (own**3).mean(1) / (own**2).mean(1) ** 1.5


def _kurtosis(x):
    own = x - x.mean(1, keepdims=True)
    return (own**4).mean(1) / (own**2).mean(1) ** 2


pair(
    "pooled_for_separate_variances",
    "BUG",
    lambda a, b: (a.mean() - b.mean()) / np.sqrt(a.var(ddof=1) / 30 + b.var(ddof=1) / 12),
    lambda a, b: (
        (a.mean() - b.mean())
        / np.sqrt((29 * a.var(ddof=1) + 11 * b.var(ddof=1)) / 40 * (1 / 30 + 1 / 12))
    ),
    lambda rng: [double(rng, 30), 1 + 3 * double(rng, 12)],
    "Student's for Welch's test",
    options=WHOLE,
)
pair(
    "test_statistic_of_scipy",
    f"{OK} AMPLIFIED",
    lambda a, b: (a.mean() - b.mean()) / np.sqrt(a.var(ddof=1) / 30 + b.var(ddof=1) / 12),
    lambda a, b: _ttest(a, b),
    lambda rng: [double(rng, 30), 4 + 3 * double(rng, 12)],
    options=WHOLE,
    needs=SCIPY,
)


def _ttest(a, b):
    import scipy.stats

    return scipy.stats.ttest_ind(a, b, equal_var=False).statistic


pair(
    "interval_of_196_hundredths",
    HIDDEN,
    lambda x: x.mean(1) + 1.959963984540054 * x.std(1, ddof=1) / math.sqrt(25),
    lambda x: x.mean(1) + 1.96 * x.std(1, ddof=1) / math.sqrt(25),
    doubles((20, 25)),
)
pair(
    "deviation_by_148_hundredths_of_the_median",
    HIDDEN,
    lambda x: 1.482602218505602 * np.median(np.abs(x - np.median(x, 1, keepdims=True)), 1),
    lambda x: 1.4826 * np.median(np.abs(x - np.median(x, 1, keepdims=True)), 1),
    doubles((20, 25)),
)
pair(
    "entropy_in_bits",
    "BUG",
    lambda p: -(p * np.log(p)).sum(1),
    lambda p: -(p * np.log2(p)).sum(1),
    lambda rng: [rng.dirichlet(np.ones(8), 30)],
)
pair(
    "weighted_mean_by_normalised_weights",
    OK,
    lambda x, w: (w * x).sum(1) / w.sum(1),
    lambda x, w: ((w / w.sum(1, keepdims=True)) * x).sum(1),
    lambda rng: [uniform(rng, 1, 2, 30, 20), uniform(rng, 0, 1, 30, 20)],
)
pair(
    "weighted_mean_by_the_count",
    "BUG",
    lambda x, w: (w * x).sum(1) / w.sum(1),
    lambda x, w: (w * x).mean(1),
    lambda rng: [uniform(rng, 1, 2, 30, 20), uniform(rng, 0, 1, 30, 20)],
)
pair(
    "moments_of_two_halves_joined",
    OK,
    lambda x: x.var(1),
    lambda x: (
        (a := x[:, :20], b := x[:, 20:])
        and (a.var(1) + b.var(1)) / 2 + ((a.mean(1) - b.mean(1)) / 2) ** 2
    ),
    arrays((30, 40)),
    "Chan's formula",
)
pair(
    "moments_of_two_halves_averaged",
    "BUG",
    lambda x: x.var(1),
    lambda x: (x[:, :20].var(1) + x[:, 20:].var(1)) / 2,
    arrays((30, 40)),
    "the variance among means is left out",
)
pair(
    "draws_by_the_other_inverse",
    "BUG",
    lambda u: -np.log1p(-u) / 2,
    lambda u: -2 * np.log1p(-u),
    between(0, 1, 200),
    "NumPy's scale is 1 over the rate",
)

# Units and constants.

pair(
    "pounds_of_four_digits",
    "BUG",
    lambda x: x * 0.45359237,
    lambda x: x * 0.4536,
    between(1, 100, 200),
)
pair(
    "knots_of_three_digits",
    "BUG",
    lambda x: x * 0.514444,
    lambda x: x * 0.514,
    between(1, 40, 200),
)
pair(
    "light_of_three_digits",
    "BUG",
    lambda t: 299792458.0 * t,
    lambda t: 3e8 * t,
    between(1e-9, 1e-6, 200),
)
pair(
    "gas_constant_of_four_digits",
    HIDDEN,
    lambda t: np.exp(-5e4 / (8.31446261815324 * t)),
    lambda t: np.exp(-5e4 / (8.314 * t)),
    between_singles(280, 900, 200),
)
pair(
    "fahrenheit_by_four_digits",
    "BUG",
    lambda x: (x - 32) * 5 / 9,
    lambda x: (x - 32) * 0.5556,
    between_singles(50, 100, 200),
)
pair(
    "fahrenheit_by_five_ninths",
    OK,
    lambda x: (x - 32) * 5 / 9,
    lambda x: (x - 32) / 1.8,
    between_singles(50, 100, 200),
)
pair(
    "magnitudes_by_natural_logarithms",
    "BUG",
    lambda x: -2.5 * np.log10(x),
    lambda x: -2.5 * np.log(x),
    between_singles(2, 90, 200),
)
pair(
    "magnitudes_by_a_factor",
    OK,
    lambda x: -2.5 * np.log10(x),
    lambda x: np.log(x) * (-2.5 / math.log(10)),
    between_singles(2, 90, 200),
)
pair(
    "years_of_365_days",
    "BUG",
    lambda r, d: np.exp(r * d / 365.25),
    lambda r, d: np.exp(r * d / 365),
    lambda rng: [rng.uniform(0.01, 0.1, 200), rng.uniform(30, 900, 200)],
)
pair(
    "returns_that_are_logarithmic",
    "BUG",
    lambda p: p[1:] / p[:-1] - 1,
    lambda p: np.log(p[1:] / p[:-1]),
    lambda rng: [100 * np.exp(np.cumsum(rng.normal(0, 0.02, 60)))],
    options=WHOLE,
)
pair(
    "payments_of_a_loan_by_a_loop",
    f"{OK} AMPLIFIED",
    lambda c, r: c * r / (1 - (1 + r) ** -24.0),
    lambda c, r: c / sum((1 + r) ** -float(k) for k in range(1, 25)),
    lambda rng: [rng.uniform(1e3, 1e5, 100), rng.uniform(0.05, 0.2, 100)],
)
pair(
    "payments_at_the_beginning_of_months",
    "BUG",
    lambda c, r: c / sum((1 + r) ** -float(k) for k in range(1, 25)),
    lambda c, r: c / sum((1 + r) ** -float(k) for k in range(24)),
    lambda rng: [rng.uniform(1e3, 1e5, 100), rng.uniform(0.002, 0.01, 100)],
)
pair(
    "great_circle_in_degrees",
    "BUG",
    lambda a, b: np.hypot(a, b * np.cos(np.radians(a))),
    lambda a, b: np.hypot(a, b * np.cos(a)),
    lambda rng: [uniform(rng, 30, 60, 100), uniform(rng, 0, 5, 100)],
    "degrees for radians",
)
pair(
    "mercator_by_two_formulas",
    OK,
    lambda a: np.arcsinh(np.tan(a)),
    lambda a: np.arctanh(np.sin(a)),
    between(0.2, 1, 200),
)

# Equations of motion.


def rk4(f, y, h, n, *, bug=None):
    for _ in range(n):
        a = f(y)
        b = f(y + h / 2 * a)
        c = f(y + h / 2 * (a if bug == "stage" else b))
        d = f(y + h * c)
        weights = (1, 1, 2, 2) if bug == "weights" else (1, 2, 2, 1)
        y = y + h / 6 * (weights[0] * a + weights[1] * b + weights[2] * c + weights[3] * d)
    return y


def preys(y):
    x, z = y[..., 0], y[..., 1]
    return np.stack([x * (1 - z), z * (x - 1)], -1)


states = between(0.5, 2, 20, 2)
pair(
    "stage_of_the_first_slope",
    HIDDEN,
    lambda y: rk4(preys, y, 0.05, 5),
    lambda y: rk4(preys, y, 0.05, 5, bug="stage"),
    states,
)
pair(
    "weights_of_stages_in_the_wrong_order",
    HIDDEN,
    lambda y: rk4(preys, y, 0.05, 5),
    lambda y: rk4(preys, y, 0.05, 5, bug="weights"),
    states,
)
pair(
    "stages_added_one_by_one",
    OK,
    lambda y: rk4(preys, y, 0.05, 5),
    lambda y: _rk4_by_increments(preys, y, 0.05, 5),
    states,
)


def _rk4_by_increments(f, y, h, n):
    for _ in range(n):
        a = h * f(y)
        b = h * f(y + 0.5 * a)
        c = h * f(y + 0.5 * b)
        y = y + (a / 6 + b / 3 + c / 3 + h * f(y + c) / 6)
    return y


pair(
    "explicit_for_implicit_steps",
    "BUG",
    lambda y: y / (1 + 0.01) ** 20.0,
    lambda y: y * (1 - 0.01) ** 20.0,
    between(1, 2, 60),
)
pair(
    "leapfrog_without_its_first_half_step",
    "BUG",
    lambda x, v: _leapfrog(x, v, 0.05, 20),
    lambda x, v: _leapfrog(x, v, 0.05, 20, half=1.0),
    doubles((40,), (40,)),
)
pair(
    "leapfrog_with_joined_half_steps",
    OK,
    lambda x, v: _leapfrog(x, v, 0.05, 20),
    lambda x, v: _kick_drift_kick(x, v, 0.05, 20),
    doubles((40,), (40,)),
    options={"reduction": 40},
)


def _leapfrog(x, v, h, n, half=0.5):
    v = v - half * h * x
    for k in range(n):
        x = x + h * v
        v = v - (h if k < n - 1 else h / 2) * x
    return np.stack([x, v], -1)


def _kick_drift_kick(x, v, h, n):
    for _ in range(n):
        v = v - h / 2 * x
        x = x + h * v
        v = v - h / 2 * x
    return np.stack([x, v], -1)


pair(
    "laplacian_by_rolls_and_by_slices",
    OK,
    lambda u: sum(np.roll(u, s, a) for s in (1, -1) for a in (1, 2)) - 4 * u,
    lambda u: (
        (p := np.pad(u, [(0, 0), (1, 1), (1, 1)], mode="wrap"))[:, 2:, 1:-1]
        - 2 * u
        + p[:, :-2, 1:-1]
        + (p[:, 1:-1, 2:] - 2 * u + p[:, 1:-1, :-2])
    ),
    arrays((3, 12, 12)),
)
pair(
    "laplacian_of_fixed_for_periodic_ends",
    "BUG",
    lambda u: np.roll(u, 1, 1) + np.roll(u, -1, 1) - 2 * u,
    lambda u: np.pad(u, [(0, 0), (1, 0)])[:, :-1] + np.pad(u, [(0, 0), (0, 1)])[:, 1:] - 2 * u,
    arrays((6, 24)),
)
pair(
    "fourth_order_slope_of_a_wrong_weight",
    "BUG",
    lambda u: (8 * (u[:, 3:-1] - u[:, 1:-3]) - (u[:, 4:] - u[:, :-4])) / 12,
    lambda u: (8 * (u[:, 3:-1] - u[:, 1:-3]) - (u[:, 4:] - u[:, :-4])) / 10,
    arrays((6, 24)),
)
pair(
    "slope_of_the_first_order_at_the_ends",
    "BUG",
    lambda u: np.gradient(u, axis=1, edge_order=2),
    lambda u: np.gradient(u, axis=1),
    arrays((6, 24)),
)
pair(
    "trapezoids_of_one_interval_more",
    "BUG",
    lambda y: np.trapezoid(y, dx=1 / 24, axis=1),
    lambda y: np.trapezoid(y, dx=1 / 25, axis=1),
    between_singles(1, 2, 20, 25),
)
pair(
    "trapezoids_by_their_ends",
    OK,
    lambda y: np.trapezoid(y, dx=1 / 24, axis=1),
    lambda y: (y.sum(1) - (y[:, 0] + y[:, -1]) / 2) / 24,
    between_singles(1, 2, 20, 25),
)
pair(
    "mean_of_integrals_by_midpoints",
    "BUG",
    lambda f: (f[:, 1:] + f[:, :-1]).sum(1) / 2,
    lambda f: f[:, :-1].sum(1),
    between_singles(1, 2, 20, 25),
    "rectangles for trapezoids",
)
pair(
    "upwind_in_the_wrong_direction",
    "BUG",
    lambda u: u - 0.4 * (u - np.roll(u, 1, 1)),
    lambda u: u - 0.4 * (np.roll(u, -1, 1) - u),
    arrays((6, 24)),
)
pair(
    "upwind_as_a_mean",
    OK,
    lambda u: u - 0.4 * (u - np.roll(u, 1, 1)),
    lambda u: 0.6 * u + 0.4 * np.roll(u, 1, 1),
    between_singles(1, 2, 6, 24),
)
pair(
    "gauss_seidel_for_jacobi",
    "BUG",
    lambda u: np.pad((u[:, 2:] + u[:, :-2]) / 2, [(0, 0), (1, 1)]),
    lambda u: _in_place(u),
    arrays((6, 24)),
    "an update in place reads values of this sweep",
)


def _in_place(u):
    u = u.copy()
    for i in range(1, u.shape[1] - 1):
        u[:, i] = (u[:, i - 1] + u[:, i + 1]) / 2
    u[:, 0] = u[:, -1] = 0
    return u


pair(
    "rotation_of_unit_quaternions_by_two_formulas",
    OK,
    lambda q: _rotation(q / np.linalg.norm(q, axis=1, keepdims=True), diagonal="short"),
    lambda q: _rotation(q / np.linalg.norm(q, axis=1, keepdims=True), diagonal="squares"),
    arrays((40, 4)),
)
pair(
    "rotation_of_quaternions_whose_scalar_is_last",
    "BUG",
    lambda q: _rotation(q / np.linalg.norm(q, axis=1, keepdims=True)),
    lambda q: _rotation(np.roll(q, 1, 1) / np.linalg.norm(q, axis=1, keepdims=True)),
    arrays((40, 4)),
    "SciPy's order is x, y, z, w",
)


def _rotation(q, diagonal="short"):
    w, x, y, z = q.T
    first = 1 - 2 * (y * y + z * z) if diagonal == "short" else w * w + x * x - y * y - z * z
    return np.stack([first, 2 * (x * y - w * z), 2 * (x * z + w * y)], -1)
