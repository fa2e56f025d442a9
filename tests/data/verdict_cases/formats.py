"""Sides that compute in a narrower format, and inputs of such a format in wider arrays."""

import numpy as np

from .case import SINGLE, Cases, in_float32, layer, linear, narrow, narrow_singles, normal
from .networks import attention, attention_inputs, conv1d, conv_inputs, layer_norm, norm_inputs

CASES = case = Cases()

# For numbers that are normal in float16, the two formats are the same numbers.
ELEVEN_BITS = ("tf32", "float16")


@case(
    "REDUCED",
    "float32 alone is narrowed, as a device does.",
    formats=ELEVEN_BITS,
    arguments=(0, 1),
)
def linear_tf32(rng):
    def g(x, w, b):
        return linear(narrow_singles(x, "tf32"), narrow_singles(w, "tf32"), b)

    return linear, g, layer(rng)


@case("REDUCED", "Thirteen bits are dropped, not rounded.", formats=ELEVEN_BITS, arguments=(0, 1))
def linear_tf32_truncated(rng):
    def g(x, w, b):
        return linear(narrow_singles(x, "tf32", True), narrow_singles(w, "tf32", True), b)

    return linear, g, layer(rng)


@case("REDUCED", "Numbers of 1e6 are out of float16's range.", formats=("tf32",), arguments=(0, 1))
def linear_tf32_large(rng):
    def g(x, w, b):
        return linear(narrow_singles(x, "tf32"), narrow_singles(w, "tf32"), b)

    x, w, b = layer(rng)
    return g, linear, (x * np.float32(1e6), w, b * np.float32(1e6))


@case(
    "REDUCED",
    "As linear_tf32, by a side without float64.",
    options=SINGLE,
    formats=ELEVEN_BITS,
    arguments=(0, 1),
)
def linear_tf32_without_float64(rng):
    def g(x, w, b):
        return linear(narrow(x, "tf32"), narrow(w, "tf32"), b)

    return linear, in_float32(g), layer(rng)


@case("REDUCED", "Whatever comes is cast, float64 too.", formats=("bfloat16",), arguments=(0, 1))
def linear_bfloat16(rng):
    def g(x, w, b):
        return linear(narrow(x, "bfloat16"), narrow(w, "bfloat16"), b)

    return linear, g, layer(rng)


@case("REDUCED", formats=("bfloat16",), arguments=(1,))
def linear_bfloat16_weights(rng):
    return linear, lambda x, w, b: linear(x, narrow_singles(w, "bfloat16"), b), layer(rng)


@case("REDUCED", formats=ELEVEN_BITS, arguments=(0,))
def linear_float16_activations(rng):
    return linear, lambda x, w, b: linear(narrow(x, "float16"), w, b), layer(rng)


@case("REDUCED", formats=("float8_e4m3",), arguments=(1,))
def linear_float8_e4m3_weights(rng):
    x, w, b = layer(rng)
    return linear, lambda x, w, b: linear(x, narrow(w, "float8_e4m3"), b), (x, 16 * w, 16 * b)


@case("REDUCED", formats=("float8_e5m2",), arguments=(0, 1))
def linear_float8_e5m2(rng):
    def g(x, w, b):
        return linear(narrow_singles(x, "float8_e5m2"), narrow_singles(w, "float8_e5m2"), b)

    return linear, g, layer(rng)


def accumulated(form, step):
    """Return a linear layer whose running sum is rounded after every `step` terms."""

    def g(x, w, b):
        y = np.zeros((len(x), len(w)), x.dtype)
        for k in range(0, x.shape[1], step):
            y = narrow_singles(y + x[:, k : k + step] @ w[:, k : k + step].T, form)
        return y + b

    return g


@case("REDUCED", "The running sum is rounded every 8 terms.", formats=("bfloat16",))
def linear_bfloat16_sum(rng):
    return linear, accumulated("bfloat16", 8), layer(rng)


@case("REDUCED", "The running sum is rounded every 8 terms.", formats=ELEVEN_BITS)
def linear_float16_sum(rng):
    return linear, accumulated("float16", 8), layer(rng)


@case("REDUCED", "Four partial products are rounded before they are added.", formats=("bfloat16",))
def linear_bfloat16_split_k(rng):
    def g(x, w, b):
        parts = np.split(np.arange(x.shape[1]), 4)
        return sum(narrow_singles(x[:, k] @ w[:, k].T, "bfloat16") for k in parts) + b

    return linear, g, layer(rng)


@case("REDUCED", "The result is rounded.", formats=("bfloat16",))
def layer_norm_bfloat16_result(rng):
    def g(x, weight, bias):
        return narrow_singles(layer_norm(x, weight, bias), "bfloat16")

    return layer_norm, g, norm_inputs(rng)


@case("REDUCED", formats=("bfloat16",), arguments=(0, 1))
def attention_bfloat16_scores(rng):
    def g(q, k, v):
        return attention(narrow_singles(q, "bfloat16"), narrow_singles(k, "bfloat16"), v)

    return attention, g, attention_inputs(rng)


@case("REDUCED", formats=ELEVEN_BITS, arguments=(0, 1))
def conv1d_tf32(rng):
    def g(x, kernel):
        return conv1d(narrow_singles(x, "tf32"), narrow_singles(kernel, "tf32"))

    return g, conv1d, conv_inputs(rng)


@case("REDUCED", "float64 inputs: g casts them, and sums as it casts.", formats=("float32",))
def linear_float32_for_float64(rng):
    def g(x, w, b):
        return in_float32(linear)(x, w, b).astype(x.dtype)

    x, w = rng.standard_normal((32, 128)), rng.standard_normal((48, 128))
    return linear, g, (x, w, rng.standard_normal(48))


BFLOAT16 = {"dtype": "bfloat16"}


def bfloat16_layer(rng):
    return tuple(narrow(a, "bfloat16") for a in layer(rng))


@case("ROUNDING", "One side rounds before it adds the bias, too.", options=BFLOAT16)
def bfloat16_rounded_twice(rng):
    def f(x, w, b):
        return narrow_singles(linear(x, w, b), "bfloat16")

    def g(x, w, b):
        return narrow_singles(narrow_singles(x @ w.T, "bfloat16") + b, "bfloat16")

    return f, g, bfloat16_layer(rng)


@case(
    "ROUNDING LAYOUT",
    "float32 sums of bfloat16 inputs differ by far less than the working format's rounding.",
    options=BFLOAT16,
)
def bfloat16_float32_sums(rng):
    return linear, lambda x, w, b: np.einsum("ij,kj->ik", x, w) + b, bfloat16_layer(rng)


@case("ROUNDING", "One side sums in the working format itself, bfloat16.", options=BFLOAT16)
def bfloat16_sums(rng):
    return linear, accumulated("bfloat16", 8), bfloat16_layer(rng)


@case("ROUNDING LAYOUT EQUAL", "float16 arrays, float32 sums, one rounding of the result.")
def float16_sums(rng):
    def f(x, w):
        return (x.astype(np.result_type(x.dtype, np.float32)) @ w.T).astype(x.dtype)

    def g(x, w):
        wide = x.astype(np.result_type(x.dtype, np.float32))
        return np.einsum("ij,kj->ik", wide, w.astype(wide.dtype)).astype(x.dtype)

    x, w, _ = layer(rng, inner=200)
    return f, g, (x.astype(np.float16), w.astype(np.float16))


@case("ROUNDING", "Sums of 100 float16 terms in float16 itself.", options={"batch": (0, 1)})
def float16_sums_in_float16(rng):
    def f(x, y):
        wide = np.result_type(x.dtype, np.float32)
        return (x.astype(wide) * y).sum(axis=1).astype(x.dtype)

    def g(x, y):
        total = np.zeros_like(x[:, 0])
        for k in range(x.shape[1]):
            total = total + x[:, k] * y[:, k]
        return total

    x, y = (normal(rng, 8, 100, 16).astype(np.float16) for _ in range(2))
    return f, g, (x, y)
