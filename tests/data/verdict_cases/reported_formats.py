"""Range, low precision, noise, state and exceptions, after public reports.

Labelled before any verdict was asked for. A note cites the report, where one was read.
"""

import numpy as np

from .case import (
    HIDDEN,
    SAME,
    SCIPY,
    WHOLE,
    Cases,
    double,
    linear,
    narrow,
    normal,
    softmax,
    uniform,
)

CASES = case = Cases()
pair = CASES.pair


def arrays(*shapes):
    return lambda rng: [normal(rng, *shape) for shape in shapes]


def halves(*shapes, scale=1.0):
    return lambda rng: [(normal(rng, *shape) * scale).astype(np.float16) for shape in shapes]


def in_single(f):
    """Return f, computed in float32 for float16 and rounded once."""

    def g(*x):
        if x[0].dtype != np.float16:
            return f(*x)
        return np.asarray(f(*(a.astype(np.float32) for a in x))).astype(np.float16)

    return g


# Values in between that leave the range.


def outliers(rng):
    x = rng.standard_normal((16, 128))
    x[:, 5] = 280
    return [x.astype(np.float16)]


def layer_norm(x):
    own = x - x.mean(-1, keepdims=True)
    return own / np.sqrt((own * own).mean(-1, keepdims=True))


pair(
    "layer_norm_of_outliers_in_float16",
    "RANGE",
    in_single(layer_norm),
    layer_norm,
    outliers,
    "squares overflow, and results are 0: transformers' half-precision T5",
)
pair(
    "lengths_of_outliers_in_float16",
    "RANGE",
    in_single(lambda x: np.sqrt((x * x).sum(-1))),
    lambda x: np.sqrt((x * x).sum(-1)),
    outliers,
)
pair(
    "scores_that_overflow_before_their_scale",
    "RANGE",
    in_single(lambda q, k: (q * 0.125) @ k.T),
    lambda q, k: (q @ k.T).astype(q.dtype) * q.dtype.type(0.125),
    lambda rng: [uniform(rng, 20, 45, 6, 64).astype(np.float16) for _ in range(2)],
    "queries are to be scaled first",
    options=WHOLE,
)
pair(
    "mean_of_many_in_float16",
    "RANGE",
    in_single(lambda x: x.mean(1)),
    lambda x: np.add.reduce(x, 1) / x.dtype.type(x.shape[1]),
    lambda rng: [uniform(rng, 500, 900, 8, 200).astype(np.float16)],
    "numpy#7930",
)
pair(
    "variance_of_large_numbers_in_float16",
    "RANGE",
    in_single(lambda x: x.var(1)),
    lambda x: (x * x).mean(1) - x.mean(1) ** 2,
    lambda rng: [uniform(rng, 200, 400, 8, 50).astype(np.float16)],
    "squares overflow: inf - inf",
)
pair(
    "second_moments_that_underflow_in_float16",
    "RANGE",
    in_single(lambda g: g / np.sqrt(0.001 * g * g)),
    lambda g: g / np.sqrt(g.dtype.type(0.001) * g * g),
    halves((8, 40), scale=1e-4),
    "Adam: g^2 of 1e-8 is 0",
)
pair(
    "exponentials_without_a_shift_in_float16",
    "RANGE",
    in_single(lambda x: softmax(x)),
    lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    lambda rng: [uniform(rng, 8, 14, 10, 20).astype(np.float16)],
)
pair(
    "tangents_by_exponentials",
    "RANGE",
    np.tanh,
    lambda x: (np.exp(x) - np.exp(-x)) / (np.exp(x) + np.exp(-x)),
    lambda rng: [uniform(rng, 60, 120, 100)],
    "inf / inf",
)
pair(
    "softplus_that_overflows",
    "RANGE",
    lambda x: np.logaddexp(x, x.dtype.type(0)),
    lambda x: np.log(1 + np.exp(x)),
    lambda rng: [uniform(rng, 50, 120, 100)],
)
pair(
    "ratio_of_factorials",
    "RANGE",
    lambda n: (n + 1) * (n + 2),
    lambda n: _gamma(n + 3) / _gamma(n + 1),
    lambda rng: [rng.uniform(172, 190, 60)],
    "gamma overflows from 171 on",
    needs=SCIPY,
)


def _gamma(x):
    import scipy.special

    return scipy.special.gamma(x)


pair(
    "counts_by_powers_and_factorials",
    "RANGE",
    lambda k, m: np.exp(k * np.log(m) - m - _loggamma(k + 1)),
    lambda k, m: m**k * np.exp(-m) / _gamma(k + 1),
    lambda rng: [np.full(30, 190.0), rng.uniform(180, 200, 30)],
    "Poisson's probabilities: inf / inf",
    needs=SCIPY,
)


def _loggamma(x):
    import scipy.special

    return scipy.special.gammaln(x)


pair(
    "ratio_of_two_densities",
    "RANGE",
    lambda a, b: np.exp((b * b - a * a) / 2),
    lambda a, b: np.exp(-a * a / 2) / np.exp(-b * b / 2),
    lambda rng: [x := uniform(rng, 15, 16, 60), x + uniform(rng, 0, 0.1, 60)],
    "0 / 0",
)
pair(
    "midpoint_of_large_numbers",
    "RANGE",
    lambda a, b: a + (b - a) / 2,
    lambda a, b: (a + b) / 2,
    lambda rng: [uniform(rng, 2e38, 3e38, 60), uniform(rng, 2e38, 3e38, 60)],
)
pair(
    "ratio_of_long_products",
    "RANGE",
    lambda a, b: np.prod(a / b, axis=1),
    lambda a, b: np.prod(a, axis=1) / np.prod(b, axis=1),
    lambda rng: [uniform(rng, 10, 20, 10, 60), uniform(rng, 10, 20, 10, 60)],
)
pair(
    "modulus_of_large_complex_numbers",
    "RANGE",
    np.abs,
    lambda z: np.sqrt(z.real**2 + z.imag**2),
    lambda rng: [(1e25 * (normal(rng, 60) + 1j * normal(rng, 60))).astype(np.complex64)],
)
pair(
    "quotient_of_large_complex_numbers",
    "RANGE",
    lambda a, b: a / b,
    lambda a, b: a * np.conj(b) / (b * np.conj(b)).real,
    lambda rng: [
        (1e25 * (uniform(rng, 1, 2, 60) + 1j * normal(rng, 60))).astype(np.complex64)
        for _ in range(2)
    ],
    "the textbook's formula",
)
pair(
    "cosine_of_tiny_vectors",
    "RANGE",
    lambda a, b: _cosine(a * 2.0**70, b * 2.0**70),
    lambda a, b: _cosine(a, b),
    lambda rng: [normal(rng, 20, 8) * np.float32(1e-24), normal(rng, 20, 8) * np.float32(1e-24)],
    "squares underflow: 0 / 0",
)


def _cosine(a, b):
    return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))


pair(
    "inverse_squares_of_large_distances",
    "RANGE",
    lambda r: (1 / r) * (1e20 / r),
    lambda r: 1e20 / (r * r),
    lambda rng: [uniform(rng, 1e20, 3e20, 60)],
    "1e20 / inf is 0",
)
pair(
    "determinants_that_underflow",
    "RANGE",
    lambda a: np.linalg.slogdet(a)[1],
    lambda a: np.log(np.abs(np.linalg.det(a))),
    lambda rng: [np.float32(1e-3) * normal(rng, 10, 20, 20)],
)
pair(
    "gradients_without_loss_scaling",
    "RANGE REDUCED",
    in_single(lambda g, w: (g * 1024) @ w / 1024),
    lambda g, w: (g * g.dtype.type(2.0**-8)) @ w * g.dtype.type(2.0**8),
    lambda rng: [
        (normal(rng, 6, 32) * 2e-6).astype(np.float16),
        normal(rng, 32, 8).astype(np.float16),
    ],
    "numbers below 6e-5 are subnormal in float16",
    options=WHOLE,
)
pair(
    "subnormal_results_flushed",
    "RANGE",
    lambda x: x * x,
    lambda x: np.where(np.abs(x * x) < np.finfo(x.dtype).tiny, x.dtype.type(0), x * x),
    lambda rng: [normal(rng, 300) * np.float32(1e-19)],
    "jax#37762: XLA's CPU flushes subnormal numbers",
)
pair(
    "subnormal_inputs_flushed",
    "RANGE",
    lambda x: x * x.dtype.type(2.0**60),
    lambda x: (
        np.where(np.abs(x) < np.finfo(x.dtype).tiny, x.dtype.type(0), x) * x.dtype.type(2.0**60)
    ),
    lambda rng: [normal(rng, 300) * np.float32(1e-38)],
    "denormals are zero, on MI200 as well",
)
pair(
    "overflow_and_a_factor",
    "BUG",
    in_single(layer_norm),
    lambda x: layer_norm(x) * x.dtype.type(1.25),
    halves((16, 128), scale=4.0),
    "in float16 nothing overflows; the factor is a bug",
)

# Low precision.


def rounded_products(form):
    """Return a matrix product of float32 whose operands are rounded to a format."""

    def f(x, w):
        if x.dtype != np.float32:
            return x @ w
        return narrow(x, form) @ narrow(w, form)

    return f


def product(x, w):
    return x @ w


matrices = arrays((20, 64), (64, 24))
for form, product_in in {f: rounded_products(f) for f in ("tf32", "bfloat16", "float16")}.items():
    pair(
        f"projected_twice_in_{form}",
        "REDUCED",
        lambda x, w, v: np.tanh(x @ w) @ v,
        lambda x, w, v, f=product_in: f(np.tanh(f(x, w)), v),
        lambda rng: [normal(rng, 20, 64), normal(rng, 64, 24) / 8, normal(rng, 24, 10)],
        # Of numbers of this size, tf32 and float16 are the same.
        formats=(form,) if form == "bfloat16" else ("tf32", "float16"),
        options=WHOLE,
    )
pair(
    "three_products_of_tf32",
    SAME,
    product,
    lambda x, w: (
        product(x, w)
        if x.dtype != np.float32
        else (a := narrow(x, "tf32")) @ (b := narrow(w, "tf32"))
        + (a @ narrow(w - b, "tf32") + narrow(x - a, "tf32") @ b)
    ),
    matrices,
    "3xTF32 of CUTLASS is as exact as float32",
    options=WHOLE,
)
pair(
    "products_of_bfloat16_and_a_wrong_bias",
    HIDDEN,
    lambda x, w, b: x @ w + b,
    lambda x, w, b: rounded_products("bfloat16")(x, w) + b * x.dtype.type(1.05),
    lambda rng: [normal(rng, 20, 64), normal(rng, 64, 24) / 8, normal(rng, 24)],
    options=WHOLE,
)
pair(
    "products_of_tf32_and_a_wrong_tile",
    HIDDEN,
    product,
    lambda x, w: (
        rounded_products("tf32")(x, w) * np.where(np.arange(24) < 16, 1, 1.01).astype(x.dtype)
    ),
    matrices,
    options=WHOLE,
)
pair(
    "shares_of_float16_that_do_not_add_up",
    HIDDEN,
    softmax,
    lambda x: narrow(softmax(x), "float16") * x.dtype.type(1.02),
    arrays((20, 30)),
)
pair(
    "weights_of_float8_and_a_transposed_block",
    HIDDEN,
    product,
    lambda x, w: x @ _with_a_transposed_block(narrow(w, "float8_e4m3")),
    matrices,
    options=WHOLE,
)


def _with_a_transposed_block(w):
    w = w.copy()
    w[:8, :8] = w[:8, :8].T.copy()
    return w


pair(
    "keys_and_values_of_float8",
    "REDUCED",
    lambda q, k, v: softmax(q @ k.T / 4) @ v,
    lambda q, k, v: softmax(q @ narrow(k, "float8_e4m3").T / 4) @ narrow(v, "float8_e4m3"),
    arrays((20, 16), (30, 16), (30, 16)),
    "a cache of keys and values",
    formats=("float8_e4m3",),
    options=WHOLE,
)
pair(
    "gradients_of_float8_with_two_bits",
    "REDUCED",
    lambda g, x: g.T @ x,
    lambda g, x: narrow(g, "float8_e5m2").T @ x,
    arrays((40, 16), (40, 12)),
    formats=("float8_e5m2",),
    options=WHOLE,
)
pair(
    "table_of_float16",
    "REDUCED",
    lambda w, i: w[i],
    lambda w, i: narrow(w, "float16")[i],
    lambda rng: [normal(rng, 50, 16), rng.integers(0, 50, 40)],
    "embeddings that are stored in half precision; tf32 is the same for numbers of this size",
    formats=("float16", "tf32"),
    options=WHOLE,
)
pair(
    "angles_of_bfloat16_frequencies",
    "REDUCED AMPLIFIED",
    lambda f: np.cos(np.arange(64, dtype=f.dtype)[:, None] * f),
    lambda f: np.cos(np.arange(64, dtype=f.dtype)[:, None] * narrow(f, "bfloat16")),
    lambda rng: [uniform(rng, 1e-3, 1, 16)],
    "transformers#29496: inverse frequencies in bfloat16",
    options=WHOLE,
)
pair(
    "logits_rounded_before_the_softmax",
    "REDUCED",
    softmax,
    lambda x: softmax(narrow(x, "bfloat16")),
    arrays((20, 30)),
    "vLLM and transformers upcast at different places",
    formats=("bfloat16",),
)
pair(
    "residuals_kept_in_bfloat16",
    "REDUCED",
    lambda x, w: _residuals(x, w, None),
    lambda x, w: _residuals(x, w, "bfloat16"),
    lambda rng: [normal(rng, 16, 32), normal(rng, 4, 32, 32) / 8],
    formats=("bfloat16",),
)


def _residuals(x, w, form):
    for v in w:
        x = x + np.tanh(x @ v)
        x = narrow(x, form) if form else x
    return x


for name, f in {
    "solution_in_float32": lambda x: np.linalg.solve(
        x[0, :8] + 6 * np.eye(8, dtype=x.dtype), x[1, :8]
    ),
    "spectrum_in_float32": lambda x: np.abs(np.fft.fft(x[0])),
    "sorted_and_summed_in_float32": lambda x: np.cumsum(np.sort(x, axis=-1), axis=-1),
    "normalised_in_float32": lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
}.items():
    pair(
        name,
        "REDUCED",
        f,
        lambda x, f=f: f(x.astype(np.float32)).astype(x.dtype),
        lambda rng: [double(rng, 2, 8, 8)],
        "a column of float32 in a pipeline of float64",
        formats=("float32",),
        options=WHOLE,
    )
pair(
    "file_of_float32_and_a_wrong_unit",
    "BUG",
    lambda x: x * 0.3048,
    lambda x: x.astype(np.float32).astype(x.dtype) * 0.30480061,
    lambda rng: [rng.uniform(1, 9, 200)],
    "feet of the survey are 2e-6 longer",
)
pair(
    "days_in_float32",
    "REDUCED",
    lambda t: t - 2_450_000.0,
    lambda t: t.astype(np.float32).astype(t.dtype) - 2_450_000.0,
    lambda rng: [rng.uniform(2_455_000, 2_460_000, 200)],
    "Julian dates in float32 are right to a quarter of a day",
    formats=("float32",),
)
pair(
    "running_sum_in_float16",
    "UNSTABLE REDUCED",
    in_single(lambda x: np.cumsum(x)),
    lambda x: np.cumsum(x, dtype=x.dtype),
    lambda rng: [rng.random(6000).astype(np.float16)],
    "numpy#24443: it stops at 2048",
    options=WHOLE,
)
pair(
    "means_of_columns_in_float16",
    "UNSTABLE REDUCED RANGE",
    in_single(lambda x: x.mean(0)),
    lambda x: np.add.reduce(x, 0, dtype=x.dtype) / x.dtype.type(len(x)),
    lambda rng: [rng.random((5000, 8)).astype(np.float16)],
    "numpy#7933; 5000 terms stop growing at 2048",
    options=WHOLE,
)
pair(
    "scales_of_blocks_that_are_powers_of_two",
    "REDUCED",
    product,
    lambda x, w: x @ _blocks(w),
    lambda rng: [normal(rng, 20, 64), normal(rng, 64, 32)],
    "MXINT8: 32 numbers share an exponent",
    formats=("int8",),
    options=WHOLE,
)


def _blocks(w):
    b = w.reshape(-1, 32)
    step = np.exp2(np.ceil(np.log2(np.abs(b).max(1, keepdims=True) / 127))).astype(w.dtype)
    return (np.rint(b / step) * step).reshape(w.shape)


# Calls that do not repeat themselves, and state.


@case("NONDETERMINISTIC", "yalla#10: an order of atomic additions")
def forces_added_in_any_order(rng):
    order = rng.spawn(1)[0]

    def f(x):
        return np.stack([x, x * x], -1).sum(1)

    return f, lambda x: f(x[:, order.permutation(x.shape[1])]), [uniform(rng, 0, 1, 20, 300)]


@case("NONDETERMINISTIC", "an algorithm that is chosen by timing", options=WHOLE)
def product_of_a_chosen_algorithm(rng):
    choice = rng.spawn(1)[0]

    def g(x, w):
        n = int(choice.choice([1, 2, 4, 8]))
        return sum(a @ b for a, b in zip(np.split(x, n, 1), np.split(w, n), strict=True))

    return product, g, [normal(rng, 40, 256), normal(rng, 256, 30)]


@case("NONDETERMINISTIC", "histogram of weights, by atomic additions", options=WHOLE)
def histogram_by_atomic_additions(rng):
    order = rng.spawn(1)[0]

    def f(x, i):
        y = np.zeros(8, x.dtype)
        np.add.at(y, i, x)
        return y

    def g(x, i):
        p = order.permutation(len(x))
        return f(x[p], i[p])

    return f, g, [uniform(rng, 0, 1, 800), rng.integers(0, 8, 800)]


@case("BUG NONDETERMINISTIC", "neighbours are read before or after they are written")
def sweep_of_racing_neighbours(rng):
    order = rng.spawn(1)[0]

    def f(x):
        return (x + np.roll(x, 1, 1)) / 2

    def g(x):
        y = x.copy()
        late = order.random(x.shape[1]) < 0.3
        for i in range(x.shape[1]):
            y[:, i] = (x[:, i] + (y if late[i] else x)[:, i - 1]) / 2
        return y

    return f, g, [normal(rng, 10, 40)]


@case("BUG NONDETERMINISTIC", "noise of training is added in evaluation")
def noise_left_on(rng):
    noise = rng.spawn(1)[0]

    def g(x, w, b):
        return linear(x + 0.01 * noise.standard_normal(x.shape).astype(x.dtype), w, b)

    return linear, g, [normal(rng, 20, 32), normal(rng, 8, 32) / 6, normal(rng, 8)]


@case("BUG NONDETERMINISTIC", "samples are drawn by two generators of one seed each call")
def drawn_from_different_streams(rng):
    stream = rng.spawn(1)[0]

    def f(x):
        return x + np.random.default_rng(0).standard_normal(x.shape).astype(x.dtype)

    def g(x):
        return x + stream.standard_normal(x.shape).astype(x.dtype)

    return f, g, [normal(rng, 20, 30)]


@case("BUG", "one generator of a seed draws row by row, the other by columns")
def noise_drawn_in_another_order(rng):
    def f(x):
        return x + np.random.default_rng(0).standard_normal(x.shape).astype(x.dtype)

    def g(x):
        return x + np.random.default_rng(0).standard_normal(x.shape[::-1]).T.astype(x.dtype)

    return f, g, [normal(rng, 20, 30)]


@case("BUG NONDETERMINISTIC", "running statistics that change with each evaluation", options=WHOLE)
def statistics_that_go_on(rng):
    state = {"mean": 0.0}

    def g(x):
        state["mean"] = 0.9 * state["mean"] + 0.1 * float(x.mean())
        return x - x.dtype.type(state["mean"])

    return lambda x: x - 0.1 * x.mean(), g, [normal(rng, 20, 30) + 3]


@case(HIDDEN, "a cache whose key is the shape alone", options=WHOLE)
def cache_of_the_shape(rng):
    cache = {}

    def g(x):
        key = x.shape, x.dtype
        if key not in cache:
            cache[key] = x.mean()
        return x - cache[key]

    return lambda x: x - x.mean(), g, [normal(rng, 20, 30)]


@case("EQUAL", "a cache whose key is the numbers", options=WHOLE)
def cache_of_the_numbers(rng):
    cache = {}

    def g(x):
        key = x.tobytes(), x.dtype
        if key not in cache:
            cache[key] = x.mean()
        return x - cache[key]

    return lambda x: x - x.mean(), g, [normal(rng, 20, 30)]


# Exceptions.

pair(
    "index_that_is_clamped",
    "RAISES",
    lambda x, i: x[:, i],
    lambda x, i: x[:, np.minimum(i, x.shape[1] - 1)],
    lambda rng: [normal(rng, 4, 10), np.array([3, 10])],
    "XLA clamps indices out of bounds",
)
pair(
    "singular_matrix_that_is_refused",
    "RAISES",
    np.linalg.inv,
    np.linalg.pinv,
    lambda rng: [np.zeros((4, 4))],
    options=WHOLE,
)
pair(
    "shapes_that_do_not_broadcast",
    "RAISES",
    lambda x, y: x + y[:, None],
    lambda x, y: x + y,
    lambda rng: [normal(rng, 6, 8), normal(rng, 6)],
)
pair(
    "shapes_that_broadcast_by_chance",
    "BUG",
    lambda x, y: x - y[:, None],
    lambda x, y: x - y,
    lambda rng: [normal(rng, 8, 8), normal(rng, 8)],
    "a square hides the wrong axis",
)
pair(
    "column_less_row",
    "BUG",
    lambda x, y: (x - y).mean(),
    lambda x, y: (x - y[:, None]).mean(0)[0],
    arrays((30,), (30,)),
    "(n,) - (n, 1) is a matrix",
    options=WHOLE,
)
pair(
    "nan_that_is_ignored",
    "BUG",
    lambda x: x.max(1),
    lambda x: np.nanmax(x, 1),
    lambda rng: [np.where(rng.random((10, 20)) < 0.1, np.nan, double(rng, 10, 20))],
)
pair(
    "infinity_that_becomes_the_largest_number",
    "BUG",
    lambda x: x.max(1),
    lambda x: np.nan_to_num(x).max(1),
    lambda rng: [np.where(rng.random((10, 20)) < 0.2, np.inf, double(rng, 10, 20))],
)
