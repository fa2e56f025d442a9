"""Pairs as ports are: wraps and bins, heads of networks, losses of one number, half precision.

Beside each that is the same function stands a near one that is not, and the other way round.
"""

import numpy as np

from .case import Cases, narrow, normal, softmax, through_torch, uniform

CASES = case = Cases()

HIDDEN = "BUG SUSPECT"
SAME = "ROUNDING LAYOUT"


# Where the function jumps, at numbers that inputs are.


@case(HIDDEN, "an angle of half a turn itself is left where it is")
def wrap_to_half_a_turn(rng):
    x = (rng.integers(-36, 37, 80) * 10).astype(np.float32)
    x[:3] = 180

    def f(x):
        return np.mod(x + 180, 360) - 180

    def g(x):
        return np.where(x > 180, x - 360, np.where(x < -180, x + 360, x))

    return f, g, [x]


@case(HIDDEN, "a phase of one whole turn is not 0")
def phase_of_a_whole_turn(rng):
    x = rng.integers(0, 15, 40) / 8
    x[5] = 1
    return lambda x: np.mod(x, 1), lambda x: np.where(x > 1, x - 1, x), [x]


@case(HIDDEN, "a step at its own place is 0 on one side, and 1 on the other")
def step_at_its_place(rng):
    x = rng.integers(-8, 9, (6, 30)).astype(np.float32) / 4
    return lambda x: x * (x >= 1), lambda x: x * (x > 1), [x]


@case("AMPLIFIED", "what is left of sums of about 1 in two orders jumps by 1")
def rest_of_shares(rng):
    x = softmax(normal(rng, 60, 25))

    def rest(x):
        return np.mod(x.sum(axis=1), 1)

    return rest, lambda x: rest(np.ascontiguousarray(x[:, ::-1])), [x]


@case(f"{SAME} EQUAL AMPLIFIED", "angles into one turn by two formulas")
def wrap_by_floor(rng):
    x = (rng.standard_normal(150) * 700).astype(np.float32)
    return lambda a: np.mod(a, 360), lambda a: a - 360 * np.floor(a / 360), [x]


# Several results, of which one is in a narrower format.


def heads(rng, rows, length, columns):
    return [normal(rng, rows, length), normal(rng, length, columns) / np.float32(length**0.5)]


@case(HIDDEN, "a spread by n - 1 beside a product in bfloat16")
def spread_beside_bfloat16(rng):
    def f(x, w):
        return x @ w, x.std(axis=1)

    def g(x, w):
        return narrow(x, "bfloat16") @ narrow(w, "bfloat16"), x.std(axis=1, ddof=1)

    return f, g, heads(rng, 20, 48, 24)


@case(HIDDEN, "a loss two thousandths too large beside a product in bfloat16", needs=("torch",))
def loss_beside_bfloat16(rng):
    def f(x, w):
        return {"logits": x @ w, "loss": (x * x).mean()}

    def g(x, w):
        logits = (x.bfloat16() @ w.bfloat16()).to(x.dtype)
        return {"logits": logits, "loss": (x * x).mean() * 1.002}

    import torch

    return f, g, [torch.from_numpy(x) for x in heads(rng, 24, 40, 12)]


@case(HIDDEN, "norms one percent too large beside weights held in eight bits")
def norms_beside_int8(rng):
    def held(w):
        step = np.abs(w).max(axis=0) / 127
        return np.rint(w / step) * step

    def f(x, w):
        return np.sqrt((x * x).sum(axis=1)), x @ w

    def g(x, w):
        return np.sqrt((x * x).sum(axis=1)) * x.dtype.type(1.01), x @ held(w)

    return f, g, heads(rng, 12, 80, 30)


@case("REDUCED", "a product in bfloat16 beside a spread that is right", formats=("bfloat16",))
def bfloat16_beside_a_spread(rng):
    def f(x, w):
        return x @ w, x.std(axis=1)

    def g(x, w):
        back = x[:, ::-1]
        return narrow(x, "bfloat16") @ narrow(w, "bfloat16"), back.std(axis=1)

    return f, g, heads(rng, 28, 56, 18)


@case("REDUCED", "two products of one bfloat16 argument", formats=("bfloat16",))
def two_products_in_bfloat16(rng):
    def f(x, w):
        return x @ w, np.tanh(x) @ (w * w)

    def g(x, w):
        return f(x, narrow(w, "bfloat16"))

    return f, g, heads(rng, 20, 64, 16)


@case("REDUCED", "a product and its softmax in float16", formats=("float16",))
def softmax_of_half_products(rng):
    def f(x, w):
        return x @ w, softmax(x @ w)

    def g(x, w):
        y = narrow(narrow(x, "float16") @ narrow(w, "float16"), "float16")
        return y, softmax(y)

    return f, g, heads(rng, 16, 30, 20)


# float64 without a wider format: what lost digits hide.


def textbook_variance(x):
    return (x * x).mean(-1) - x.mean(-1) ** 2


@case(HIDDEN, "the textbook's variance by n, for that by n - 1", needs=("torch",))
def another_variance_that_loses_digits(rng):
    import torch

    x = torch.from_numpy(rng.standard_normal((6, 3000)) + 2e4)
    return lambda x: x.var(-1), textbook_variance, [x]


@case(HIDDEN, "exp(x) - 1, and 1e-5 too large", needs=("torch",))
def another_expm1_that_loses_digits(rng):
    import torch

    x = torch.from_numpy(rng.uniform(1e-6, 1e-5, 50))
    return torch.expm1, lambda x: (torch.exp(x) - 1) * (1 + 1e-5), [x]


@case("UNSTABLE", "exp(x) - 1 for small numbers", needs=("torch",))
def expm1_that_loses_digits(rng):
    import torch

    x = torch.from_numpy(rng.uniform(1e-6, 1e-5, 50))
    return torch.expm1, lambda x: torch.exp(x) - 1, [x]


@case("UNSTABLE", "the textbook's variance by n - 1", needs=("torch",))
def variance_that_loses_digits(rng):
    import torch

    x = torch.from_numpy(rng.standard_normal((6, 300)) + 3e3)
    return lambda x: x.var(-1), lambda x: textbook_variance(x) * (300 / 299), [x]


def fit(rng, rows, columns, condition):
    left = np.linalg.qr(rng.standard_normal((rows, columns)))[0]
    right = np.linalg.qr(rng.standard_normal((columns, columns)))[0]
    return [left * np.geomspace(1, 1 / condition, columns) @ right, rng.standard_normal(rows)]


def by_qr(a, b):
    q, r = np.linalg.qr(a)
    return np.linalg.solve(r, q.T @ b)


def by_normal_equations(a, b):
    return np.linalg.solve(a.T @ a, a.T @ b)


@case(HIDDEN, "normal equations, and a hundred millionth too large")
def another_fit_by_normal_equations(rng):
    return by_qr, lambda a, b: by_normal_equations(a, b) * (1 + 1e-8), fit(rng, 50, 5, 300)


@case("UNSTABLE AMPLIFIED ROUNDING", "normal equations, which square the condition")
def fit_by_normal_equations(rng):
    return by_qr, by_normal_equations, fit(rng, 70, 7, 1e4)


# Nothing wider exists, and a little more than is allowed.

LITTLE = "ROUNDING LAYOUT AMPLIFIED UNSTABLE SUSPECT"


@case(LITTLE, "normal equations of a condition of 20")
def fit_of_little_condition(rng):
    return by_qr, by_normal_equations, fit(rng, 40, 6, 20)


@case(LITTLE, "an inverse by singular values and by normal equations")
def pseudoinverse(rng):
    a, _ = fit(rng, 25, 5, 50)
    return np.linalg.pinv, lambda a: np.linalg.solve(a.T @ a, a.T), [a]


@case(LITTLE, "singular vectors, and eigenvectors of the Gram matrix")
def singular_vectors_by_gram(rng):
    def f(a):
        return np.abs(np.linalg.svd(a)[2])

    return f, lambda a: np.abs(np.linalg.eigh(a.T @ a)[1].T[::-1]), [rng.standard_normal((18, 5))]


# A format that is not wide enough for what is claimed of it.


@case(HIDDEN, "a root by a guess and two steps, in float32 for float64")
def reciprocal_root_by_two_steps(rng):
    def g(x):
        single = x.astype(np.float32)
        y = (np.int32(0x5F3759DF) - (single.view(np.int32) >> 1)).view(np.float32)
        for _ in range(2):
            y = y * (np.float32(1.5) - np.float32(0.5) * single * y * y)
        return y.astype(x.dtype)

    return lambda x: 1 / np.sqrt(x), g, [rng.uniform(0.2, 30, 250)]


@case(HIDDEN, "exponentials in float32 for float64, 80 last places too large")
def exponentials_too_large_in_float32(rng):
    def g(x):
        y = np.exp(x.astype(np.float32)) * np.float32(1 + 5e-6)
        return y.astype(x.dtype)

    return np.exp, g, [rng.standard_normal(150)]


@case("REDUCED", "exponentials in float32 for float64", formats=("float32",))
def exponentials_in_float32(rng):
    return np.exp, lambda x: np.exp(x.astype(np.float32)).astype(x.dtype), [rng.standard_normal(90)]


@case("REDUCED", "sums one after the other in float32, for float64", formats=("float32",))
def running_sums_in_float32(rng):
    def g(x):
        return x.astype(np.float32).cumsum(axis=1)[:, -1].astype(x.dtype)

    return lambda x: x.sum(axis=1), g, [rng.random((40, 900))]


@case("REDUCED", "a softmax and its logarithm in float32, for float64", formats=("float32",))
def log_softmax_in_float32(rng):
    def f(x):
        return np.log(softmax(x))

    return f, lambda x: f(x.astype(np.float32)).astype(x.dtype), [rng.standard_normal((9, 20))]


# Few results in a narrower format.


def through(form, f):
    """Return f in float32 or float16, of inputs in another format that it hands back."""
    return lambda *arrays: np.asarray(f(*(x.astype(form) for x in arrays))).astype(arrays[0].dtype)


@case("REDUCED", "five sums in float32, for float64", formats=("float32",))
def five_sums_in_float32(rng):
    def f(x):
        return x.sum(axis=1)

    return f, through(np.float32, f), [rng.standard_normal((5, 200))]


@case("REDUCED", "a loss in float32, for float64", formats=("float32",))
def loss_in_float32(rng):
    def f(x, y):
        return np.square(x - y).mean()

    return f, through(np.float32, f), [rng.standard_normal(130), rng.standard_normal(130)]


@case("REDUCED", "three logarithms in float32, for float64", formats=("float32",))
def three_logarithms_in_float32(rng):
    return np.log, through(np.float32, np.log), [rng.uniform(2, 9, 3)]


@case("REDUCED", "six tangents in float16", formats=("float16",))
def six_tangents_in_float16(rng):
    return np.tanh, through(np.float16, np.tanh), [normal(rng, 6)]


@case("REDUCED", "three products in bfloat16", formats=("bfloat16",), needs=("torch",))
def three_products_in_bfloat16(rng):
    def g(x, w):
        return (x.bfloat16() @ w.bfloat16()).to(x.dtype)

    return lambda x, w: x @ w, through_torch(g), [normal(rng, 1, 70), normal(rng, 70, 3)]


@case("BUG", "a loss in float32 for float64, and a ten thousandth too large")
def another_loss_in_float32(rng):
    def f(x, y):
        return np.square(x - y).mean()

    def wrong(x, y):
        return f(x, y) * x.dtype.type(1.0001)

    return f, through(np.float32, wrong), [rng.standard_normal(130), rng.standard_normal(130)]


@case("BUG", "seven tangents in float16, of which one is another")
def one_of_seven_tangents_in_float16(rng):
    def wrong(x):
        y = np.tanh(x)
        y[2] *= x.dtype.type(1.03)
        return y

    return np.tanh, through(np.float16, wrong), [normal(rng, 7)]


@case("BUG", "means that are rounded to halves")
def means_in_halves(rng):
    def f(x):
        return x.mean(axis=1)

    return f, lambda x: np.rint(2 * f(x)) / 2, [(rng.random((4, 50)) * 9).astype(np.float32)]


@case("BUG", "steps for a curve")
def steps_for_a_curve(rng):
    return np.tanh, lambda x: np.copysign(x.dtype.type(0.75), x), [normal(rng, 9)]


# Digits that are lost, all of them in some results.


def small(rng, low, high, count):
    return (10 ** rng.uniform(low, high, count)).astype(np.float32)


@case("UNSTABLE", "half of 1 - cos, for the square of a sine")
def square_of_a_small_sine(rng):
    return lambda x: np.sin(x / 2) ** 2, lambda x: (1 - np.cos(x)) / 2, [small(rng, -7, -2, 70)]


@case("UNSTABLE", "log(1 + x) for log1p")
def log_of_nearly_one(rng):
    return np.log1p, lambda x: np.log(1 + x), [small(rng, -9, -5, 60)]


@case("UNSTABLE", "exp(x) - 1 for expm1")
def exponentials_of_nearly_nothing(rng):
    x = (rng.standard_normal(200) * 3e-5).astype(np.float32)
    return np.expm1, lambda x: np.exp(x) - 1, [x]


@case("UNSTABLE", "log(1 + exp(x)), which is 0 in float64, too, for some")
def softplus_of_very_negative_numbers(rng):
    return (
        lambda x: np.logaddexp(0, x),
        lambda x: np.log(1 + np.exp(x)),
        [uniform(rng, -50, -8, 40)],
    )


@case("UNSTABLE", "1 - erf(x), which is 0 in float64, too, for some", needs=("scipy",))
def tail_of_the_error_function(rng):
    from scipy import special

    return special.erfc, lambda x: 1 - special.erf(x), [uniform(rng, 2, 8, 120)]


@case("UNSTABLE", "1 - 1 / (1 + exp(-x)) for 1 / (1 + exp(x))")
def complement_of_a_sigmoid(rng):
    return (
        lambda x: 1 / (1 + np.exp(x)),
        lambda x: 1 - 1 / (1 + np.exp(-x)),
        [uniform(rng, 6, 40, 25)],
    )


@case("BUG", "log(1 + x) for log1p, and twice too large")
def twice_the_log_of_nearly_one(rng):
    return np.log1p, lambda x: 2 * np.log(1 + x), [small(rng, -9, -3, 60)]


@case("BUG", "a branch for float32 gives nothing, where it need not")
def nothing_in_float32(rng):
    def g(x):
        return np.zeros_like(x) if x.dtype == np.float32 else 1 - np.cos(x)

    return lambda x: 2 * np.sin(x / 2) ** 2, g, [small(rng, -2, -0.3, 50)]


@case("BUG", "a branch for float32 is a thousandth too large, beside lost digits")
def another_factor_in_float32(rng):
    def g(x):
        return (np.exp(x) - 1) * x.dtype.type(1.02 if x.dtype == np.float32 else 1)

    return np.expm1, g, [small(rng, -3, 0.2, 80)]


# Numbers that leave the range in between.


@case("RANGE", "a geometric mean by the root of a product, which is 0")
def geometric_mean_by_a_product(rng):
    x = uniform(rng, 0.02, 1, 12, 300)
    return lambda x: np.exp(np.log(x).mean(axis=1)), lambda x: x.prod(axis=1) ** (1 / 300), [x]


@case("RANGE", "lengths of tiny vectors, whose squares are 0")
def lengths_of_tiny_vectors(rng):
    x = normal(rng, 30, 3) * np.float32(1e-30)
    return (
        lambda x: np.hypot(np.hypot(x[:, 0], x[:, 1]), x[:, 2]),
        lambda x: np.sqrt((x * x).sum(axis=1)),
        [x],
    )


@case("RANGE REDUCED", "squares that float16 does not hold", needs=("torch",))
def squares_beyond_float16(rng):
    def g(x):
        return (x.half() ** 2 + 2).sqrt().to(x.dtype)

    x = (rng.standard_normal(60) * 400).astype(np.float32)
    return lambda x: np.sqrt(x * x + 2), through_torch(g), [x]


@case("RANGE REDUCED", "rates that float16 holds as its smallest numbers")
def rates_below_float16(rng):
    def g(x):
        return (x * x.dtype.type(3e-6)).astype(np.float16).astype(x.dtype)

    return lambda x: x * x.dtype.type(3e-6), g, [normal(rng, 70)]


@case(HIDDEN, "squares that float16 does not hold, beside results five percent too large")
def another_root_beyond_float16(rng):
    def g(x):
        y = np.sqrt(x.astype(np.float16) ** 2 + np.float16(2)) * np.float16(1.05)
        return y.astype(x.dtype)

    x = (rng.standard_normal(60) * 200).astype(np.float32)
    return lambda x: np.sqrt(x * x + 2), g, [x]


@case("BUG", "rates whose small ones are left out")
def small_rates_left_out(rng):
    def g(x):
        return np.where(np.abs(x) > 0.5, x, 0) * x.dtype.type(3e-6)

    return lambda x: x * x.dtype.type(3e-6), g, [normal(rng, 70)]


# Weights as integers with a scale for each group of rows.


def held_by_rows(w, group, steps):
    lines = w.reshape(-1, group, w.shape[1])
    step = np.abs(lines).max(axis=1, keepdims=True) / steps
    return (np.rint(lines / step) * step).reshape(w.shape).astype(w.dtype)


@case("REDUCED", "four bits, a scale for 32 rows", formats=("int4",), arguments=(1,))
def int4_by_32_rows(rng):
    return np.matmul, lambda x, w: x @ held_by_rows(w, 32, 7), heads(rng, 20, 128, 24)


@case("REDUCED", "eight bits, a scale for 64 rows", formats=("int8",), arguments=(1,))
def int8_by_64_rows(rng):
    return np.matmul, lambda x, w: x @ held_by_rows(w, 64, 127), heads(rng, 24, 192, 30)


@case(HIDDEN, "four bits, a scale for 16 rows, and a third too large")
def int4_by_16_rows_too_large(rng):
    def g(x, w):
        return x @ held_by_rows(w, 16, 7) * x.dtype.type(1.3)

    return np.matmul, g, heads(rng, 20, 96, 24)


# Constants of float64, in the wider format too.

CONSTANTS = "SUSPECT UNSTABLE ROUNDING LAYOUT"


@case(CONSTANTS, "Mercator's projection near the equator by two formulas")
def mercator_near_the_equator(rng):
    def g(x):
        return np.log(np.tan(np.pi / 4 + x / 2))

    return lambda x: np.arcsinh(np.tan(x)), g, [rng.uniform(3e-5, 3e-3, 60)]


@case(CONSTANTS, "a sine half a turn further")
def sine_half_a_turn_further(rng):
    return lambda x: -np.sin(x), lambda x: np.sin(x + np.pi), [rng.uniform(1e-4, 3e-2, 40)]


@case(CONSTANTS, "a transform by its matrix, whose angles are many turns")
def transform_by_its_matrix(rng):
    k = np.arange(96)
    matrix = np.exp(-2j * np.pi * np.outer(k, k[:49]) / 96)
    return (
        lambda x: np.abs(np.fft.rfft(x)),
        lambda x: np.abs(x @ matrix),
        [rng.standard_normal((3, 96))],
    )


@case(HIDDEN, "a sine half a turn further, by pi of fifteen digits")
def sine_by_fifteen_digits(rng):
    half = 3.14159265358979
    return lambda x: -np.sin(x), lambda x: np.sin(x + half), [rng.uniform(1e-4, 3e-2, 40)]


@case(HIDDEN, "a transform of which one angle is another by 1e-12")
def transform_of_another_angle(rng):
    k = np.arange(96)
    angles = 2 * np.pi * np.outer(k, k[:49]) / 96
    angles[17, 20] += 1e-12
    matrix = np.exp(-1j * angles)
    return (
        lambda x: np.abs(np.fft.rfft(x)),
        lambda x: np.abs(x @ matrix),
        [rng.standard_normal((3, 96))],
    )
