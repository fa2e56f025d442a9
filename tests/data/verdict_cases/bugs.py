"""Errors that a port makes: each side is another function, by far more than rounding."""

import math

import numba
import numpy as np

from .case import (
    SINGLE,
    WHOLE,
    Cases,
    in_float32,
    layer,
    linear,
    narrow,
    narrow_singles,
    normal,
    softmax,
    uniform,
)
from .networks import (
    attention,
    attention_inputs,
    conv1d,
    conv_inputs,
    gru,
    layer_norm,
    norm_inputs,
    recurrent_inputs,
    sigmoid,
)
from .solvers import conjugate_gradients, eliminate, positive

CASES = case = Cases()


# Linear layers and sums


@case("BUG")
def bias_missing(rng):
    return linear, lambda x, w, b: x @ w.T, layer(rng)


@case("BUG")
def weight_transposed(rng):
    return linear, lambda x, w, b: x @ w + b, layer(rng, inner=64)


@case("BUG", "The outputs that do not fill a tile of 32 stay 0.")
def last_tile_of_outputs(rng):
    def g(x, w, b):
        y = linear(x, w, b)
        y[:, len(w) // 32 * 32 :] = 0
        return y

    return linear, g, layer(rng, outer=72)


@numba.njit
def by_fours(x, w, b):
    y = np.empty((x.shape[0], w.shape[0]), x.dtype)
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            total = b[j]
            for k in range(0, x.shape[1] - 3, 4):
                total += x[i, k] * w[j, k] + x[i, k + 1] * w[j, k + 1]
                total += x[i, k + 2] * w[j, k + 2] + x[i, k + 3] * w[j, k + 3]
            y[i, j] = total
    return y


@case("BUG", "Terms are taken by fours, and the last two of 130 are not.")
def unrolled_without_tail(rng):
    return linear, by_fours, layer(rng, inner=130)


@case("BUG", "Weights are kept from before they were updated by 1 %.")
def stale_weights(rng):
    x, w, b = layer(rng)
    old = w + normal(rng, *w.shape) / 1600
    return linear, lambda x, w, b: linear(x, old, b), (x, w, b)


@case("BUG", "One of 500 positive terms.")
def last_term_dropped(rng):
    x = uniform(rng, 0.5, 1, 32, 500)
    return lambda x: x.mean(axis=1), lambda x: x[:, :-1].sum(axis=1) / x.shape[1], (x,)


@case("BUG", "By n - 1 instead of n, where n is 64.")
def variance_of_sample(rng):
    return lambda x: x.var(axis=1), lambda x: x.var(axis=1, ddof=1), (normal(rng, 16, 64, 8),)


@case("BUG", options=WHOLE)
def conjugate_missing(rng):
    x, y = (normal(rng, 24, 32) + 1j * normal(rng, 24, 32) for _ in range(2))
    return lambda x, y: x @ y.conj().T, lambda x, y: x @ y.T, (x, y)


@case("BUG", "One of 2048 results is off by 1e-3.")
def one_result_off(rng):
    def g(x, w, b):
        y = linear(x, w, b)
        y[-1, 37] += np.abs(y[-1, 37]) / 1000 + 1e-3
        return y

    return linear, g, layer(rng)


@case("BUG", "The shapes differ.")
def last_result_missing(rng):
    return conv1d, lambda x, kernel: conv1d(x[:, :, :-1], kernel), conv_inputs(rng)


@case("BUG", "tf32 and a swapped pair of outputs: the format explains nothing.")
def swapped_outputs_in_tf32(rng):
    def g(x, w, b):
        y = linear(narrow_singles(x, "tf32"), narrow_singles(w, "tf32"), b)
        return y.reshape(len(x), -1, 2)[:, :, ::-1].reshape(y.shape)

    return linear, g, layer(rng)


@case("BUG", "20 times the rounding of tf32, which g computes in.")
def scale_off_in_tf32(rng):
    def g(x, w, b):
        return linear(narrow_singles(x, "tf32"), narrow_singles(w, "tf32") * 1.02, b)

    return linear, g, layer(rng)


@case("BUG", options={"dtype": "bfloat16"})
def bias_missing_in_bfloat16(rng):
    x, w, b = (narrow(a, "bfloat16") for a in layer(rng))
    return linear, lambda x, w, b: narrow_singles(x @ w.T, "bfloat16"), (x, w, b)


# Softmax and attention


@case("BUG")
def softmax_over_wrong_axis(rng):
    return softmax, lambda x: softmax(x.T).T, (normal(rng, 32, 32),)


@case("BUG", "Arrays of jax: no float64.", options={"reference": None}, needs=("jax",))
def softmax_over_wrong_axis_jax(rng):
    import jax
    import jax.numpy as jnp

    x = jnp.asarray(normal(rng, 32, 32))
    return lambda x: jax.nn.softmax(x, axis=1), lambda x: jax.nn.softmax(x, axis=0), (x,)


@case("BUG")
def attention_unscaled(rng):
    return attention, lambda q, k, v: softmax(q @ k.T) @ v, attention_inputs(rng)


@case("BUG", "As attention_unscaled, by a side without float64.", options=SINGLE)
def attention_unscaled_single(rng):
    g = in_float32(lambda q, k, v: softmax(q @ k.T) @ v)
    return attention, g, attention_inputs(rng)


def causal(q, k, v, ahead=0):
    logits = q @ k.T / math.sqrt(q.shape[1])
    hidden = np.triu(np.ones(logits.shape, bool), 1 + ahead)
    return softmax(np.where(hidden, logits.dtype.type(-np.inf), logits)) @ v


@case("BUG", "Each query sees one key too many.", options=WHOLE)
def causal_mask_off_by_one(rng):
    return causal, lambda q, k, v: causal(q, k, v, 1), attention_inputs(rng, 48, 48)


@case("BUG", options={"batch": (0, 1)})
def rotary_sign(rng):
    def f(x, angle, sign=1):
        one, other = x[:, ::2], x[:, 1::2]
        cos, sin = np.cos(angle), sign * np.sin(angle)
        return np.stack([one * cos - other * sin, one * sin + other * cos], axis=2)

    return f, lambda x, a: f(x, a, -1), (normal(rng, 32, 32), uniform(rng, -3, 3, 32, 16))


# Norms


@case("BUG", "1e-3 instead of 1e-5, beside a variance of 4.")
def layer_norm_eps(rng):
    return layer_norm, lambda *inputs: layer_norm(*inputs, eps=1e-3), norm_inputs(rng)


@case("BUG", "torch.std divides by n - 1.", needs=("torch",))
def layer_norm_torch_std(rng):
    import torch

    def f(x, weight, bias):
        return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias)

    def g(x, weight, bias):
        return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5) * weight + bias

    return f, g, tuple(map(torch.from_numpy, norm_inputs(rng)))


@case("BUG", "The running mean is that of another batch.")
def stale_statistics(rng):
    seen = {"mean": normal(rng, 48) / 10}

    def f(x, mean, variance):
        return (x - mean) / np.sqrt(variance + 1e-5)

    def g(x, mean, variance):
        return f(x, seen["mean"], variance)

    return f, g, (normal(rng, 32, 48), normal(rng, 48) / 10, uniform(rng, 0.5, 2, 48))


@case("BUG", "0 by 0 where a row is 0, in any precision.")
def zero_row_normalised(rng):
    def f(x):
        length = np.sqrt((x * x).sum(axis=1, keepdims=True))
        return x / np.where(length == 0, length.dtype.type(1), length)

    def g(x):
        with np.errstate(invalid="ignore"):
            return x / np.sqrt((x * x).sum(axis=1, keepdims=True))

    x = normal(rng, 16, 32)
    x[5] = 0
    return f, g, (x,)


# Convolutions


def conv_same(x, kernel, mode="constant"):
    """Correlate with padding to the same length."""
    pad = kernel.shape[2] // 2
    return conv1d(np.pad(x, ((0, 0), (0, 0), (pad, pad)), mode), kernel)


@case("BUG", "The edges are repeated where they should be 0.")
def conv1d_padding(rng):
    return conv_same, lambda x, kernel: conv_same(x, kernel, "edge"), conv_inputs(rng)


@case("BUG", "The first values have the last ones wrapped round into them.")
def conv1d_circular(rng):
    def convolve(x, kernel, size):
        product = np.einsum(
            "bcf,ocf->bof", np.fft.rfft(x, size), np.fft.rfft(kernel[:, :, ::-1], size)
        )
        return np.fft.irfft(product, size)[:, :, : x.shape[2]]

    return lambda x, k: convolve(x, k, 80), lambda x, k: convolve(x, k, 64), conv_inputs(rng)


# Recurrent cells and networks


@case("BUG", "Reset and update change places.")
def gru_gates_swapped(rng):
    def g(x, w, u, b):
        order = np.arange(len(b)).reshape(3, -1)[[1, 0, 2]].ravel()
        return gru(x, w[order], u[order], b[order])

    return gru, g, recurrent_inputs(rng, 3)


@case("BUG", "The reset gate acts before the product, as in another library's cell.")
def gru_reset_before(rng):
    def g(x, w, u, b):
        h = np.zeros_like(x[:, 0])
        ur, uz, un = np.split(u, 3)
        for t in range(x.shape[1]):
            xr, xz, xn = np.split(x[:, t] @ w.T + b, 3, axis=1)
            z = sigmoid(xz + h @ uz.T)
            h = (1 - z) * np.tanh(xn + (sigmoid(xr + h @ ur.T) * h) @ un.T) + z * h
        return h

    return gru, g, recurrent_inputs(rng, 3)


@case("BUG", "Row i + 1 of the table for i.", options={"batch": (1,)})
def embedding_shifted(rng):
    def f(table, index):
        return table[index].sum(axis=1)

    inputs = normal(rng, 50, 32), rng.integers(0, 49, (16, 5))
    return f, lambda table, index: f(table, index + 1), inputs


# Solvers and the rest


@case("BUG", options=WHOLE)
def ridge_missing(rng):
    def f(a, b, ridge=0.01):
        return eliminate(a.T @ a + ridge * np.eye(a.shape[1], dtype=a.dtype), a.T @ b)

    return f, lambda a, b: f(a, b, 0), (normal(rng, 80, 12) / 4, normal(rng, 80))


@case("BUG", "6 steps, where 22 are needed.", options=WHOLE)
def iteration_not_converged(rng):
    def f(m, b):
        return eliminate(positive(m), b)

    def g(m, b):
        return conjugate_gradients(positive(m), b, 6)

    return f, g, (normal(rng, 40, 40) / 8, normal(rng, 40))


@case("BUG", "The matrix has its rows exchanged, and the right side has not.", options=WHOLE)
def pivots_forgotten(rng):
    def g(a, b):
        return eliminate(a[np.argsort(-np.abs(a[:, 0]))], b)

    return eliminate, g, (normal(rng, 24, 24) + 4 * np.eye(24, dtype=np.float32), normal(rng, 24))


@case("BUG", "Integers: the index of the largest along the other axis.")
def argmax_over_wrong_axis(rng):
    return lambda x: x.argmax(axis=1), lambda x: x.argmax(axis=0), (normal(rng, 32, 32),)


@case("BUG", "Integers: cut off instead of rounded.")
def quantised_by_truncation(rng):
    def f(x):
        return np.rint(x * 32).astype(np.int8)

    return f, lambda x: np.trunc(x * 32).astype(np.int8), (uniform(rng, -3, 3, 32, 32),)
