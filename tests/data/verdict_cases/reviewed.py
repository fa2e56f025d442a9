"""Pairs of a reviewer, on which the rules of that day were wrong: labelled before they were mended.

What they have in common with other pairs is left to chance; a rule that only mends one of these
mends nothing.
"""

import math

import numba
import numpy as np

from .case import (
    SINGLE,
    WHOLE,
    Cases,
    layer,
    linear,
    narrow,
    narrow_singles,
    normal,
    softmax,
    uniform,
)

CASES = case = Cases()

HIDDEN = "BUG SUSPECT"


# Several results: each has errors of its own.


@case("BUG", "a wrong result beside a right one that is larger by 1e7", needs=("jax",))
def column_of_another_unit(rng):
    import jax.numpy as jnp

    scale, other = jnp.array([1e5, 1e-2]), jnp.array([1.0, 1.1])
    return lambda x: x * scale, lambda x: x * scale * other, [jnp.asarray(normal(rng, 20, 2))]


@case("BUG", "a gradient twice too large beside a loss of 1e7")
def gradient_beside_a_loss(rng):
    def f(x):
        return x.dtype.type(1e7) * (x * x).sum(), 2 * x

    def g(x):
        return x.dtype.type(1e7) * (x * x).sum(), 4 * x

    return f, g, [normal(rng, 50)]


@case("ROUNDING LAYOUT", "the same mean and spread by two orders of summation")
def mean_and_spread(rng):
    def f(x):
        return x.mean(axis=1), x.std(axis=1)

    def g(x):
        back = x[:, ::-1]
        return back.sum(axis=1) / x.dtype.type(x.shape[1]), back.std(axis=1)

    return f, g, [normal(rng, 20, 99)]


@case("EQUAL", "results by name, in another order")
def names_in_another_order(rng):
    def f(x):
        return {"mean": x.mean(axis=1), "std": x.std(axis=1)}

    def g(x):
        return {"std": x.std(axis=1), "mean": x.mean(axis=1)}

    return f, g, [normal(rng, 20, 50)]


# A bug in a branch for one format.


@case("BUG", "the last column is forgotten, in float32 alone")
def kernel_for_one_format(rng):
    def g(x):
        return x[:, :-1].sum(axis=1) if x.dtype == np.float32 else x.sum(axis=1)

    return lambda x: x.sum(axis=1), g, [uniform(rng, 0, 1, 20, 50)]


@case("BUG", "an eps that is a thousand times too large, in float32 alone")
def eps_for_one_format(rng):
    def norm(x, eps):
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + x.dtype.type(eps))

    def g(x):
        return norm(x, 1e-2 if x.dtype == np.float32 else 1e-5)

    return lambda x: norm(x, 1e-5), g, [normal(rng, 20, 50)]


# Where one side is exactly 0.


@case("BUG", "relu and leaky relu", needs=("jax",))
def leaks(rng):
    import jax

    return jax.nn.relu, jax.nn.leaky_relu, [jax.numpy.asarray(normal(rng, 20, 20))]


@case("BUG", "a triangle with a diagonal more")
def triangle(rng):
    return lambda x: np.tril(x), lambda x: np.tril(x, 1), [normal(rng, 20, 20)]


# Noise of a function's own.


@case("BUG", "a tenth of the terms is left out at random: no rounding")
def dropout(rng):
    noise = np.random.default_rng(1)

    def f(x):
        return (x * (noise.random(x.shape) > 0.1)).sum(axis=1)

    return f, lambda x: x.sum(axis=1), [uniform(rng, 0, 1, 20, 50)]


# Ranges, and what only looks like them.


@case("BUG", "a softmax that overflows, over the wrong axis")
def overflow_and_axis(rng):
    def f(x):
        shifted = x - x.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    def g(x):
        return np.log(np.exp(x) / np.exp(x).sum(axis=0, keepdims=True))

    x = normal(rng, 60, 10)
    x[17] += 100
    return f, g, [x]


@case(HIDDEN, "an eps of 1e-7 beside numbers of 1e-4", options={"reference": "f"})
def eps_beside_small_numbers(rng):
    def g(y):
        return 1 / (y.astype(np.float32) + np.float32(1e-7))

    return lambda y: 1 / y, g, [uniform(rng, 1e-4, 5e-4, 20, 20)]


# A narrow format beside a bug.


@case("BUG", "the bias is missing, and products are of bfloat16", needs=("torch",))
def bias_and_bfloat16(rng):
    import torch

    w = torch.tensor(rng.standard_normal((1024, 32)) / 32, dtype=torch.float32)
    b = torch.full((32,), 0.2)

    def f(x):
        return x @ w.to(x.dtype) + b.to(x.dtype)

    def g(x):
        return x.bfloat16() @ w.bfloat16()

    return f, g, [torch.tensor(normal(rng, 16, 1024))]


# binary64, and the constants in a source.


@case("ROUNDING", "a tenth, by division and by a constant")
def tenth(rng):
    return lambda x: x / 10, lambda x: x * 0.1, [rng.random((20, 20))]


@case("ROUNDING", "degrees to radians")
def radians(rng):
    return np.radians, lambda x: x * math.pi / 180, [rng.uniform(-360, 360, (20, 20))]


@case("ROUNDING EQUAL", "math's exp in a loop")
def exp_by_math(rng):
    return np.exp, np.vectorize(math.exp), [rng.random((20, 20))]


@case("ROUNDING LAYOUT EQUAL", "a buffer of doubles, filled in a loop")
def buffer_of_doubles(rng):
    def g(x):
        out = np.zeros(len(x))
        for i in range(len(x)):
            out[i] = np.dot(x[i], x[i])
        return out

    return lambda x: (x * x).sum(axis=1), g, [rng.random((20, 40))]


@case("BUG", "a relative error of 1e-12")
def slightly_wrong(rng):
    return np.exp, lambda x: np.exp(x) * (1 + 1e-12), [rng.random((20, 20))]


# Working formats.


@case("ROUNDING AMPLIFIED LAYOUT", "a temperature as a Python float")
def temperature(rng):
    def f(x, t):
        return np.exp(x / x.dtype.type(t)).sum(axis=1, dtype=x.dtype)

    def g(x, t):
        return np.exp(x / x.dtype.type(t)) @ np.ones(x.shape[1], x.dtype)

    return f, g, [normal(rng, 20, 50), 0.7]


@case("ROUNDING SUSPECT", "pixels are divided by 255, or multiplied by what float32 makes of that")
def pixels(rng):
    single = np.float32

    def f(image):
        return image.astype(single) / single(255) - single(0.5)

    def g(image):
        return image.astype(single) * single(1 / 255) - single(0.5)

    return f, g, [rng.integers(0, 256, (8, 9), dtype=np.uint8)]


# Rows.


@case("ROUNDING LAYOUT", "rows of two arrays, by one call or by one for each row")
def rows_of_two_arrays(rng):
    def g(x, y):
        return np.array([np.dot(x[i], y[i]) for i in range(len(x))])

    return lambda x, y: (x * y).sum(axis=1), g, [normal(rng, 20, 99), normal(rng, 20, 99)]


# Dtypes that are unlike.


@case("BUG", "a real part, where the other side has both", options=WHOLE)
def real_and_complex(rng):
    spectrum = np.fft.rfft(normal(rng, 64)).astype(np.complex64)

    def f(y):
        return np.fft.irfft(y, 64)

    def g(y):
        return np.fft.ifft(np.concatenate([y, y[-2:0:-1]]), 64)

    return f, g, [spectrum]


@case("BUG", "a mask that is another one")
def masks(rng):
    def f(x):
        return np.ma.masked_less(x, 0)

    def g(x):
        return np.ma.masked_greater(x, 0)

    return f, g, [normal(rng, 20, 20)]


# Integers, which nothing rounds.


@case("BUG", "a thousand and one nanoseconds later, in place of a thousand")
def timestamps(rng):
    times = np.arange(20) + 1_700_000_000_000_000_000
    return lambda t: t + 1000, lambda t: t + 1001, [times]


@case("BUG", "one too many, where numbers are beyond what float32 tells apart")
def counts_beyond_a_format(rng):
    def f(x):
        return (x * 1000).astype(np.int64)

    return f, lambda x: f(x) + 1, [np.floor(rng.random(20) * 2e9).astype(np.float32)]


@case(HIDDEN, "not below, in place of above, and a tenth of the numbers are at the threshold")
def threshold(rng):
    x = (rng.integers(0, 9, (20, 20)) / 8).astype(np.float32)
    return lambda x: x >= 0.5, lambda x: x > 0.5, [x]


@case(HIDDEN, "the other side of equal edges")
def edges(rng):
    x = (rng.integers(0, 33, 200) / 32).astype(np.float32)
    bins = np.linspace(0, 1, 9).astype(np.float32)

    def f(x):
        return np.searchsorted(bins.astype(x.dtype), x)

    def g(x):
        return np.searchsorted(bins.astype(x.dtype), x, side="right")

    return f, g, [x]


@case("AMPLIFIED ROUNDING EQUAL LAYOUT", "rounded to integers, by two orders of summation")
def rounded_sums(rng):
    def f(x):
        return np.rint(1000 * x.sum(axis=1)).astype(np.int64)

    def g(x):
        return np.rint(1000 * x[:, ::-1].cumsum(axis=1)[:, -1]).astype(np.int64)

    return f, g, [uniform(rng, 0, 1, 200, 50)]


# A narrow format in several places, in whatever format the inputs come.


def products_in(form):
    """Return a linear layer of which inputs, and four partial products, are rounded to a format."""

    def g(x, w, b):
        x, w = narrow(x, form), narrow(w, form)
        parts = np.split(np.arange(x.shape[1]), 4)
        return sum(narrow(x[:, k] @ w[:, k].T, form) for k in parts) + b

    return g


@case("REDUCED", "bfloat16 inputs, and partial products that are stored as such")
def split_k_in_bfloat16(rng):
    return linear, products_in("bfloat16"), layer(rng)


@case("REDUCED", "float16 inputs, and partial products that are stored as such")
def split_k_in_float16(rng):
    return linear, products_in("float16"), layer(rng)


@case("REDUCED", "three layers whose activations are stored as bfloat16, the last one's not")
def activations_in_bfloat16(rng):
    def f(x, *weights):
        for w in weights:
            x = np.tanh(x @ w)
        return x

    def g(x, *weights):
        for w in weights:
            x = np.tanh(narrow(x, "bfloat16") @ w)
        return x

    return f, g, [normal(rng, 16, 64), *(normal(rng, 64, 64) / np.float32(8) for _ in range(3))]


@case("REDUCED", "attention whose scores and probabilities are float16")
def probabilities_in_float16(rng):
    def f(q, k, v):
        return softmax(q @ k.T / np.sqrt(q.dtype.type(q.shape[1]))) @ v

    def g(q, k, v):
        scores = narrow(q @ k.T / np.sqrt(q.dtype.type(q.shape[1])), "float16")
        return narrow(softmax(scores), "float16") @ v

    return f, g, [normal(rng, 24, 32), normal(rng, 24, 32), normal(rng, 24, 32)]


# Differences of a fine structure, which move with the inputs, and are no rounding.


@case(HIDDEN, "a phase of 0.003 in a feature of frequency 300")
def phase(rng):
    def f(x, w):
        return np.sin(300 * x) @ w

    def g(x, w):
        return np.sin(300 * x + x.dtype.type(0.003)) @ w

    return f, g, [uniform(rng, -1, 1, 32, 64), normal(rng, 64, 16)]


@case(HIDDEN, "a neighbour for one number in fifty, by the last digits of another")
def neighbours(rng):
    def g(x, w):
        chosen = (np.floor(np.abs(x) * 4096) % 50) == 7
        return np.where(chosen, np.roll(x, 1, axis=1), x) @ w

    return lambda x, w: x @ w, g, [normal(rng, 32, 64), normal(rng, 64, 16)]


@case(HIDDEN, "noise of a thousandth that is drawn anew for all inputs")
def noise_by_the_bits(rng):
    def g(x, w):
        draw = np.random.default_rng(int(np.abs(x).astype(np.float64).sum() * 1e6) % 2**32)
        return (x @ w) * (1 + 1e-3 * draw.standard_normal((len(x), w.shape[1]))).astype(x.dtype)

    return lambda x, w: x @ w, g, [normal(rng, 32, 64), normal(rng, 64, 16)]


# Other functions for a few inputs, which come and go when inputs are moved, as rounding errors do.


def spread_out(rng, columns):
    """Return numbers from -0.5 to 1.5, and weights."""
    return [uniform(rng, -0.5, 1.5, 16, columns), normal(rng, columns, 12)]


@case(HIDDEN, "a threshold that is a hundredth too high, in a layer of 256")
def threshold_by_a_hundredth(rng):
    def layer_from(least):
        return lambda x, w: np.where(x > x.dtype.type(least), x, 0) @ w

    return layer_from(0.5), layer_from(0.51), spread_out(rng, 256)


@case(HIDDEN, "a threshold that is a thousandth too high, in a layer of 64")
def threshold_by_a_thousandth(rng):
    def layer_from(least):
        return lambda x, w: np.where(x > x.dtype.type(least), x, 0) @ w

    while True:  # one number is between the two at least
        x, w = spread_out(rng, 64)
        if ((x > 0.5) & (x <= 0.501)).any():
            return layer_from(0.5), layer_from(0.501), [x, w]


@case(HIDDEN, "numbers that are near 0.3 are left out")
def a_hole(rng):
    def g(x, w):
        return np.where(np.abs(x - x.dtype.type(0.3)) < 0.003, 0, x) @ w

    return lambda x, w: x @ w, g, spread_out(rng, 256)


@case(HIDDEN, "steps that begin a thousandth too early")
def steps_begin_early(rng):
    def g(x, w):
        return np.floor(10 * x + x.dtype.type(0.01)) @ w

    return lambda x, w: np.floor(10 * x) @ w, g, spread_out(rng, 256)


@case(HIDDEN, "angles that are wrapped a hundredth too early")
def wrapped_early(rng):
    def g(x, w):
        early = x.dtype.type(0.01)
        return ((x + early) % 1 - early) @ w

    return lambda x, w: (x % 1) @ w, g, spread_out(rng, 64)


# And narrow formats that are met by some results alone, or once by each.


@case("REDUCED", "half of the results are of partial products in bfloat16, and half are not")
def bfloat16_for_half_of_the_results(rng):
    narrowed = products_in("bfloat16")

    def g(x, w, b):
        y = linear(x, w, b)
        y[:, 32:] = narrowed(x, w[32:], b[32:])
        return y

    return linear, g, layer(rng)


@case("REDUCED", "the argument of a tanh is stored as bfloat16, once for each result")
def bfloat16_argument(rng):
    def g(x, w):
        return np.tanh(narrow(x * w, "bfloat16"))

    return lambda x, w: np.tanh(x * w), g, [normal(rng, 20, 30), normal(rng, 20, 30)]


@case(
    "BUG SUSPECT UNSTABLE", "an exponential as the power of a number near 1, whose digits are few"
)
def exponential_as_a_power(rng):
    w = normal(rng, 512, 24)

    def g(x):
        return (1 + x / 1024) ** 1024 @ w.astype(x.dtype)

    return lambda x: np.exp(x) @ w.astype(x.dtype), g, [normal(rng, 20, 512) / 8]


# Memory that is never written, where the results of the call before are still found.


@case("BUG", "the last row is left as it was")
def unwritten_row(rng):
    def g(x):
        y = np.empty_like(x)
        np.maximum(x[:-1], 0, out=y[:-1])
        return y

    return lambda x: np.maximum(x, 0), g, [normal(rng, 33, 64)]


@case("BUG", "the last columns of a product are left as they were, in a compiled loop")
def unwritten_tile(rng):
    @numba.njit
    def g(x, w):
        y = np.empty((x.shape[0], w.shape[1]), x.dtype)
        for j in range(w.shape[1] // 8 * 8):
            for i in range(x.shape[0]):
                y[i, j] = np.sum(x[i] * w[:, j])
        return y

    return lambda x, w: x @ w, g, [normal(rng, 20, 30), normal(rng, 30, 20)]


@case("BUG", "the last rows are left as they were, after a scratch array of the same size")
def unwritten_beside_scratch(rng):
    def g(x):
        shifted = x - x.max(axis=1, keepdims=True)
        y = np.empty_like(x)
        y[:-2] = softmax(shifted[:-2])
        return y

    return softmax, g, [normal(rng, 300, 40)]


# What does not repeat itself, and is seen at moved inputs first.


def losing(rng, share):
    """Return a sum of parts of which one is lost now and then, and its inputs."""
    draw = np.random.default_rng(rng.integers(2**32))

    def g(x):
        parts = x.reshape(4, 64, 16).sum(axis=2)
        if draw.random() < share:
            parts[:, draw.integers(64)] = 0
        return parts.sum(axis=1)

    return lambda x: x.sum(axis=1), g, [uniform(rng, 0, 1, 4, 1024)]


@case(HIDDEN, "a partial sum is lost once in four calls")
def lost_once_in_four(rng):
    return losing(rng, 0.25)


@case(HIDDEN, "a partial sum is lost in two calls of three")
def lost_in_two_of_three(rng):
    return losing(rng, 0.67)


# Weights held as integers, as those of language models are: each group of a row by itself.


def in_groups(x, length, steps, zero):
    """Hold groups of a row as integers times a step of their own, from 0 or from their least."""
    groups = x.reshape(len(x), -1, length)
    if zero:
        least = groups.min(axis=2, keepdims=True)
        step = (groups.max(axis=2, keepdims=True) - least) / (2 * steps + 1)
        held = np.rint((groups - least) / step) * step + least
    else:
        step = np.abs(groups).max(axis=2, keepdims=True) / steps
        held = np.rint(groups / step) * step
    return held.reshape(x.shape).astype(x.dtype)


def weights_in_groups(rng, length, steps, zero):
    """Return a product by weights as they are, the same as they are held, and inputs."""

    def g(x, w):
        return x @ in_groups(w, length, steps, zero).T

    return lambda x, w: x @ w.T, g, [normal(rng, 16, 256), normal(rng, 40, 256)]


@case("REDUCED", "groups of 32 in 4 bits", formats=("int4",), arguments=(1,))
def int4_in_groups(rng):
    return weights_in_groups(rng, 32, 7, zero=False)


@case("REDUCED", "groups of 64 in 4 bits, from their least", formats=("int4",), arguments=(1,))
def int4_in_groups_from_their_least(rng):
    return weights_in_groups(rng, 64, 7, zero=True)


@case("REDUCED", "rows in 4 bits, from their least", formats=("int4",), arguments=(1,))
def int4_in_rows_from_their_least(rng):
    return weights_in_groups(rng, 256, 7, zero=True)


@case("REDUCED", "groups of 128 in 8 bits", formats=("int8",), arguments=(1,))
def int8_in_groups(rng):
    return weights_in_groups(rng, 128, 127, zero=False)


@case("REDUCED", "groups of 16 in 8 bits, from their least", formats=("int8",), arguments=(1,))
def int8_in_groups_from_their_least(rng):
    return weights_in_groups(rng, 16, 127, zero=True)


@case("BUG", "groups of 32 in 4 bits, of which each is held by the step of the one before")
def int4_by_the_step_before(rng):
    def g(x, w):
        groups = w.reshape(40, 8, 32)
        step = np.roll(np.abs(groups).max(axis=2, keepdims=True) / 7, 1, axis=1)
        held = np.clip(np.rint(groups / step), -7, 7) * step
        return x @ held.reshape(w.shape).astype(w.dtype).T

    return lambda x, w: x @ w.T, g, [normal(rng, 16, 256), normal(rng, 40, 256)]


# Digits that both sides lose, of which one has no other format; and digits that one loses.


def rounded(function, x):
    """Return what a function of float32 rounds to: NumPy's digits depend on the processor."""
    return function(x.astype(float)).astype(x.dtype)


def gelu(x):
    u = x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x**3)
    return x / 2 * (1 + rounded(np.tanh, u))


def gelu_by_exp(x):
    """Return the same, the tanh by an exponential, in float32."""
    x = x.astype(np.float32)
    u = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)
    return x / 2 * (1 + (1 - 2 / (rounded(np.exp, 2 * u) + 1)))


@case("UNSTABLE", "1 + tanh where that is nearly 0, by two tanh", options=SINGLE)
def gelu_of_its_tail(rng):
    return gelu, gelu_by_exp, [uniform(rng, -5, -4, 1000)]


@case("UNSTABLE ROUNDING LAYOUT", "the same among larger numbers", options=SINGLE)
def gelu_with_its_tail(rng):
    return gelu, gelu_by_exp, [uniform(rng, -5, 5, 1000)]


@case(HIDDEN, "the same, and a tenth more in the last columns", options=SINGLE)
def gelu_of_its_tail_and_a_tile(rng):
    def g(x):
        y = gelu_by_exp(x)
        y[:, 56:] *= np.float32(1.1)
        return y

    return gelu, g, [uniform(rng, -3, -2, 16, 64)]


@case("UNSTABLE", "log(1 + exp(-x)) where the exponential is small, both ways", options=SINGLE)
def logistic_loss_of_the_sure(rng):
    def g(x):
        return -np.log(1 / (1 + 1 / np.exp(2 * x.astype(np.float32))))

    return lambda x: np.log(1 + np.exp(-2 * x)), g, [uniform(rng, 3, 5, 1000)]


@case(
    "UNSTABLE", "exp(x) - 1 of small x, which gives few bits and no narrow format", options=SINGLE
)
def exp_less_one(rng):
    return np.expm1, lambda x: np.exp(x.astype(np.float32)) - 1, [uniform(rng, 1e-6, 1e-4, 500)]


# What has no rows.


@case("ROUNDING", "a long sum, compensated and not: one number alone is equal whatever is done")
def sum_without_rows(rng):
    def f(x):
        return np.asarray(math.fsum(x.astype(np.longdouble)), x.dtype)

    return f, lambda x: np.cumsum(x)[-1:].reshape(()), [uniform(rng, 0, 1, 20000)]


@case(
    "UNSTABLE",
    "1 + erf where that is nearly 0, and the same by erfc",
    options=SINGLE,
    needs=("scipy",),
)
def gelu_of_its_tail_by_erfc(rng):
    from scipy import special

    half = math.sqrt(0.5)

    def f(x):
        return x / 2 * (1 + special.erf(x.dtype.type(half) * x))

    def g(x):
        x = x.astype(np.float32)
        return x / 2 * special.erfc(np.float32(-half) * x)

    return f, g, [uniform(rng, -5.4, -5.2, 2000)]


@case("UNSTABLE ROUNDING LAYOUT", "-1 / (1 + exp(x)), and 1 less of a sigmoid", options=SINGLE)
def sigmoid_less_one(rng):
    def g(x):
        return 1 / (1 + np.exp(-x.astype(np.float32))) - 1

    return lambda x: -1 / (1 + np.exp(x)), g, [uniform(rng, -6, 12, 1000)]


# Thresholds that a few numbers are on the wrong side of, in a function of each number alone.


def one_between(rng, low, high):
    """Return 200 numbers of which some are between two limits."""
    while True:
        x = normal(rng, 200)
        if ((x > low) & (x <= high)).any():
            return [x]


@case(HIDDEN, "a threshold that is 0.002 of itself too high, for numbers by themselves")
def threshold_of_numbers(rng):
    def above(least):
        return lambda x: np.where(x > x.dtype.type(least), x, 0)

    return above(0.5), above(0.501), one_between(rng, 0.5, 0.501)


@case(HIDDEN, "numbers are shrunk to 0 below a limit that is 0.002 of itself too high")
def shrunk_too_much(rng):
    def beyond(least):
        return lambda x: np.where(np.abs(x) > x.dtype.type(least), x, 0)

    return beyond(0.5), beyond(0.501), one_between(rng, 0.5, 0.501)


@case(HIDDEN, "bytes are rounded up from 0.499 on, and not from 0.5")
def bytes_rounded_up_too_early(rng):
    def to_bytes(half):
        return lambda x: np.floor(x * 255 + x.dtype.type(half))

    return to_bytes(0.5), to_bytes(0.499), [uniform(rng, 0, 1, 5000)]


# One result, which many errors explain by chance.


@case(HIDDEN, "a product of two vectors, without their last elements")
def vectors_without_their_last(rng):
    x, y = normal(rng, 10000), normal(rng, 10000)
    return lambda x, y: x @ y, lambda x, y: x[:9970] @ y[:9970], [x, y]


# What is right for this batch.


@case("SUSPECT ROUNDING LAYOUT", "sums of a third of a row, for a batch of 4 and no other")
def batch_of_four(rng):
    def f(x):
        parts = np.cumsum(x.reshape(len(x), 3, -1), axis=2, dtype=x.dtype)[..., -1]
        return x + parts.repeat(32, axis=1)

    def g(x):
        parts = x.reshape(4, 3, -1).sum(axis=2)
        return x + parts.repeat(x.size // 12, axis=1).reshape(x.shape)

    return f, g, [normal(rng, 4, 96)]


@case(
    "UNSTABLE ROUNDING LAYOUT",
    "1 + erf where that is nearly 0, by vectors, and one number by itself",
    needs=("torch", "jax"),
)
def gelu_of_vectors(rng):
    import jax
    import torch

    def g(x):
        return jax.nn.gelu(jax.numpy.asarray(x.numpy()), approximate=False)

    x = torch.from_numpy(uniform(rng, -8, 8, 2000))
    x[1000] = -4.9  # in the middle of the batch
    return torch.nn.functional.gelu, g, [x]


# What is kept from call to call, and right for these inputs alone.


@case(HIDDEN, "the result of the first call with arrays of this shape")
def kept_by_shape(rng):
    kept = {}

    def g(x, w):
        return kept.setdefault((x.shape, x.dtype), x @ w).copy()

    return lambda x, w: x @ w, g, [normal(rng, 12, 30), normal(rng, 30, 8)]


@case(HIDDEN, "the largest of all that was seen so far")
def kept_largest(rng):
    kept = {}

    def g(x):
        largest = kept.setdefault((x.shape, x.dtype), np.zeros_like(x))
        return np.maximum(largest, x, out=largest).copy()

    return lambda x: np.maximum(x, 0), g, [normal(rng, 16, 16)]


# A factor that rounding to a narrow format hides from each result, and not from all of them.


@case(HIDDEN, "products of bfloat16 numbers, 0.4 % too large")
def bfloat16_products_too_large(rng):
    def g(x, w):
        x, w = (narrow_singles(a, "bfloat16") for a in (x, w))
        return narrow_singles(x @ w.T, "bfloat16") * x.dtype.type(1.004)

    return lambda x, w: x @ w.T, g, [normal(rng, 32, 128), normal(rng, 32, 128)]


@case(HIDDEN, "the same whatever it is given, 0.2 % too large")
def bfloat16_products_too_large_in_any_format(rng):
    def g(x, w):
        x, w = (narrow(a, "bfloat16") for a in (x, w))
        return narrow(x @ w.T, "bfloat16") * x.dtype.type(1.002)

    return lambda x, w: x @ w.T, g, [normal(rng, 32, 128), normal(rng, 32, 128)]


@case(HIDDEN, "scores are divided by the root of 127 for that of 128, and held in bfloat16")
def bfloat16_scores_of_another_root(rng):
    def f(q, k):
        return q @ k.T / q.dtype.type(math.sqrt(128))

    def g(q, k):
        return narrow(q @ k.T / q.dtype.type(math.sqrt(127)), "bfloat16")

    return f, g, [normal(rng, 32, 128), normal(rng, 32, 128)]
