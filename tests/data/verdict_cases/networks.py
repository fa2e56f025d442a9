"""Layers of neural networks: norms, attention, convolutions, activations and recurrent cells."""

import math

import numpy as np

from .case import WHOLE, Cases, layer, normal, softmax, through_torch, uniform

CASES = case = Cases()


def layer_norm(x, weight, bias, eps=1e-5):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * weight + bias


def norm_inputs(rng, rows=32, columns=200):
    return 1 + 2 * normal(rng, rows, columns), 1 + normal(rng, columns) / 4, normal(rng, columns)


@case("ROUNDING LAYOUT")
def layer_norm_folded(rng):
    def g(x, weight, bias):
        mean = x.mean(axis=1, keepdims=True)
        scale = weight / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        return x * scale + (bias - mean * scale)

    return layer_norm, g, norm_inputs(rng)


@case("ROUNDING LAYOUT", needs=("torch",))
def layer_norm_torch(rng):
    import torch

    def f(x, weight, bias):
        return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias)

    def g(x, weight, bias):
        centred = x - x.mean(1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5)
        return centred * scale * weight + bias

    return f, g, tuple(map(torch.from_numpy, norm_inputs(rng)))


@case(
    "ROUNDING LAYOUT",
    "jax takes float64 for float32, unasked: the type of the result tells.",
    needs=("jax",),
)
def layer_norm_jax_unasked(rng):
    import jax.numpy as jnp

    def g(x, weight, bias):
        x = jnp.asarray(x)
        scale = weight / jnp.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        return (x - x.mean(axis=1, keepdims=True)) * scale + bias

    return layer_norm, g, norm_inputs(rng)


def group_norm(x, groups=4):
    parts = x.reshape(len(x), groups, -1)
    parts = parts - parts.mean(axis=2, keepdims=True)
    parts = parts / np.sqrt(parts.var(axis=2, keepdims=True) + 1e-5)
    return parts.reshape(x.shape)


@case("ROUNDING LAYOUT")
def group_norm_by_moments(rng):
    def g(x):
        parts = x.reshape(len(x), 4, -1, x.shape[2])
        count = parts.shape[2] * parts.shape[3]
        mean = parts.sum(axis=(2, 3), keepdims=True) / count
        square = np.einsum("bgcl,bgcl->bg", parts, parts)[:, :, None, None] / count
        return ((parts - mean) / np.sqrt(square - mean * mean + 1e-5)).reshape(x.shape)

    return group_norm, g, (normal(rng, 8, 16, 20),)


@case("ROUNDING")
def batch_norm_folded(rng):
    def f(x, mean, variance, weight, bias):
        return (x - mean) / np.sqrt(variance + 1e-5) * weight + bias

    def g(x, mean, variance, weight, bias):
        scale = weight / np.sqrt(variance + 1e-5)
        return x * scale + (bias - mean * scale)

    statistics = normal(rng, 64), uniform(rng, 0.5, 2, 64)
    return f, g, (normal(rng, 32, 64), *statistics, normal(rng, 64), normal(rng, 64))


@case("ROUNDING LAYOUT", "The rows depend on each other, on both sides.", options=WHOLE)
def batch_norm_training(rng):
    def f(x):
        return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)

    def g(x):
        rows = np.ascontiguousarray(x.T)
        rows = rows - rows.mean(axis=1, keepdims=True)
        return (rows / np.sqrt((rows * rows).mean(axis=1, keepdims=True) + 1e-5)).T

    return f, g, (1 + normal(rng, 128, 32),)


def attention(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])) @ v


def attention_inputs(rng, queries=32, keys=64, width=48):
    return normal(rng, queries, width), normal(rng, keys, width), normal(rng, keys, width)


@case("ROUNDING LAYOUT")
def attention_in_blocks(rng):
    def g(q, k, v):
        largest = np.full_like(q[:, :1], -np.inf)
        total = np.zeros_like(largest)
        y = np.zeros((len(q), v.shape[1]), q.dtype)
        for j in range(0, len(k), 16):
            logits = q @ k[j : j + 16].T / math.sqrt(q.shape[1])
            grown = np.maximum(largest, logits.max(axis=1, keepdims=True))
            e, shrunk = np.exp(logits - grown), np.exp(largest - grown)
            total = total * shrunk + e.sum(axis=1, keepdims=True)
            y = y * shrunk + e @ v[j : j + 16]
            largest = grown
        return y / total

    return attention, g, attention_inputs(rng)


@case("ROUNDING LAYOUT", options={"batch": (0, 1, 2)})
def attention_heads(rng):
    def g(q, k, v):
        logits = np.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
        return np.einsum("bhqk,bhkd->bhqd", softmax(logits), v)

    q, k, v = (normal(rng, 4, 2, 16, 24) for _ in range(3))
    return attention, g, (q, k, v)


@case("ROUNDING LAYOUT", options={"batch": (0, 1, 2)}, needs=("torch",))
def attention_torch(rng):
    import torch

    q, k, v = (normal(rng, 4, 2, 16, 24) for _ in range(3))
    fused = torch.nn.functional.scaled_dot_product_attention
    return attention, through_torch(fused), (q, k, v)


@case("ROUNDING LAYOUT", "Minus infinity stays where it is.", options={"batch": (0, 1)})
def softmax_masked(rng):
    def g(x, mask):
        e = np.exp(x - x.max(axis=1, keepdims=True)) * (mask == 0)
        return e / e.sum(axis=1, keepdims=True)

    mask = np.where(rng.random((32, 60)) < 0.5, np.float32(0), np.float32(-np.inf))
    return lambda x, mask: softmax(x + mask), g, (normal(rng, 32, 60), mask)


@case("ROUNDING LAYOUT", "The second argument has no axis.")
def softmax_temperature(rng):
    inputs = normal(rng, 32, 60), np.array(0.7, np.float32)
    return lambda x, t: softmax(x / t), lambda x, t: softmax(x * (1 / t)), inputs


def windows(x, width):
    return np.lib.stride_tricks.sliding_window_view(x, width, axis=-1)


def conv1d(x, kernel):
    """Correlate (batch, channels, length) with (outputs, channels, width), without padding."""
    return np.einsum("bclk,ock->bol", windows(x, kernel.shape[2]), kernel)


def conv_inputs(rng, width=5):
    return normal(rng, 8, 4, 64), normal(rng, 6, 4, width)


@case("ROUNDING LAYOUT")
def conv1d_by_taps(rng):
    def g(x, kernel):
        length = x.shape[2] - kernel.shape[2] + 1
        return sum(kernel[:, :, k] @ x[:, :, k : k + length] for k in range(kernel.shape[2]))

    return conv1d, g, conv_inputs(rng)


@case("ROUNDING", "The FFT's error is small against the whole signal, not each value.")
def conv1d_fft(rng):
    def g(x, kernel):
        size = 128
        product = np.einsum(
            "bcf,ocf->bof",
            np.fft.rfft(x, size),
            np.fft.rfft(kernel[:, :, ::-1], size),
        )
        width = kernel.shape[2]
        return np.fft.irfft(product, size)[:, :, width - 1 : x.shape[2]]

    return conv1d, g, conv_inputs(rng, 16)


@case("ROUNDING LAYOUT", needs=("torch",))
def conv1d_torch(rng):
    import torch

    return conv1d, through_torch(torch.nn.functional.conv1d), conv_inputs(rng)


def conv1d_transpose(x, kernel, stride=2):
    """Scatter each input (batch, channels, length) over (channels, outputs, width) outputs."""
    width = kernel.shape[2]
    y = np.zeros((len(x), kernel.shape[1], (x.shape[2] - 1) * stride + width), x.dtype)
    for i in range(x.shape[2]):
        y[:, :, i * stride : i * stride + width] += np.einsum("bc,cok->bok", x[:, :, i], kernel)
    return y


@case("ROUNDING LAYOUT")
def conv1d_transpose_zeros_between(rng):
    def g(x, kernel):
        width = kernel.shape[2]
        spread = np.zeros((*x.shape[:2], 2 * x.shape[2] - 1 + 2 * (width - 1)), x.dtype)
        spread[:, :, width - 1 : 1 - width : 2] = x
        return conv1d(spread, kernel[:, :, ::-1].swapaxes(0, 1))

    return conv1d_transpose, g, (normal(rng, 8, 12, 24), normal(rng, 12, 6, 5))


@case("ROUNDING LAYOUT", needs=("torch",))
def conv1d_transpose_torch(rng):
    import torch

    def g(x, kernel):
        return torch.nn.functional.conv_transpose1d(x, kernel, stride=2)

    return conv1d_transpose, through_torch(g), (normal(rng, 8, 12, 24), normal(rng, 12, 6, 5))


def erf(x):
    return np.vectorize(math.erf, otypes=[float])(x).astype(x.dtype)


def erfc(x):
    return np.vectorize(math.erfc, otypes=[float])(x).astype(x.dtype)


def gelu(x):
    return x / 2 * (1 + erf(x / math.sqrt(2)))


ROOT = math.sqrt(2 / math.pi)


def gelu_tanh(x, cubic=0.044715, scale=ROOT):
    return x / 2 * (1 + np.tanh(scale * (x + cubic * x**3)))


@case("ROUNDING", "1 + erf(x) cancels for negative x, whose results are small beside the others.")
def gelu_by_erfc(rng):
    return gelu, lambda x: x / 2 * erfc(x / -math.sqrt(2)), (2 * normal(rng, 16, 40),)


@case("ROUNDING", "The tanh approximation on both sides: (1 + tanh z) / 2 = 1 / (1 + exp(-2 z)).")
def gelu_tanh_by_sigmoid(rng):
    def g(x):
        return x / (1 + np.exp(-2 * ROOT * (x + 0.044715 * x**3)))

    return gelu_tanh, g, (normal(rng, 16, 64),)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def recurrent_inputs(rng, gates, steps=8, rows=16, width=24):
    """Return x (rows, steps, width) and the weights and bias of a cell."""
    shape = gates * width, width
    w, u = (normal(rng, *shape) / math.sqrt(width) for _ in range(2))
    return normal(rng, rows, steps, width), w, u, normal(rng, gates * width) / 4


@case("ROUNDING LAYOUT")
def rnn_joined_weights(rng):
    def f(x, w, u, b):
        h = np.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = np.tanh(x[:, t] @ w.T + h @ u.T + b)
        return h

    def g(x, w, u, b):
        h = np.zeros_like(x[:, 0])
        both = np.concatenate([w, u], axis=1).T
        for t in range(x.shape[1]):
            h = np.tanh(b + np.concatenate([x[:, t], h], axis=1) @ both)
        return h

    return f, g, recurrent_inputs(rng, 1)


def gru(x, w, u, b):
    """Run a GRU whose weights hold reset, update and candidate, in this order."""
    h = np.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        xr, xz, xn = np.split(x[:, t] @ w.T + b, 3, axis=1)
        hr, hz, hn = np.split(h @ u.T, 3, axis=1)
        z = sigmoid(xz + hz)
        h = (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * h
    return h


@case("ROUNDING LAYOUT")
def gru_gate_by_gate(rng):
    def g(x, w, u, b):
        (wr, wz, wn), (ur, uz, un), (br, bz, bn) = (np.split(a, 3) for a in (w, u, b))
        h = np.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            r = sigmoid(np.einsum("ij,kj->ik", x[:, t], wr) + (h @ ur.T + br))
            z = sigmoid(np.einsum("ij,kj->ik", x[:, t], wz) + (h @ uz.T + bz))
            n = np.tanh(np.einsum("ij,kj->ik", x[:, t], wn) + bn + r * (h @ un.T))
            h = n + z * (h - n)
        return h

    return gru, g, recurrent_inputs(rng, 3)


def lstm(x, w, u, b):
    """Run an LSTM whose weights hold input, forget, cell and output, in this order."""
    h = c = np.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ w.T + h @ u.T + b, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return h


@case("ROUNDING LAYOUT", "The products with x do not wait for the state: they are taken at once.")
def lstm_inputs_first(rng):
    def g(x, w, u, b):
        ahead = np.einsum("rtj,kj->trk", x, w) + b
        h = c = np.zeros_like(x[:, 0])
        for row in ahead:
            i, f, g, o = np.split(row + np.einsum("ij,kj->ik", h, u), 4, axis=1)
            c = c * sigmoid(f) + np.tanh(g) * sigmoid(i)
            h = np.tanh(c) * sigmoid(o)
        return h

    return lstm, g, recurrent_inputs(rng, 4)


@case("ROUNDING LAYOUT", "Eight layers carry each other's rounding along.")
def perceptron_of_eight_layers(rng):
    def f(x, *weights):
        for w in weights:
            x = np.maximum(x @ w.T, 0)
        return x

    def g(x, *weights):
        for w in weights:
            x = np.maximum(np.einsum("ij,kj->ik", x, w), 0)
        return x

    weights = (math.sqrt(2) * layer(rng, inner=64)[1] for _ in range(8))
    return f, g, (normal(rng, 16, 64), *weights)


@case("ROUNDING LAYOUT", options={"batch": (0, 1)})
def cross_entropy(rng):
    def f(x, target):
        return -np.log(np.take_along_axis(softmax(x), target, axis=1))

    def g(x, target):
        largest = x.max(axis=1, keepdims=True)
        total = np.exp(x - largest).sum(axis=1, keepdims=True)
        return np.log(total) + (largest - np.take_along_axis(x, target, axis=1))

    return f, g, (normal(rng, 64, 50), rng.integers(0, 50, (64, 4)))


@case(
    "ROUNDING LAYOUT", "The second argument is an index: nothing to move.", options={"batch": (1,)}
)
def embedding_bag(rng):
    def g(table, index):
        y = np.zeros((len(index), table.shape[1]), table.dtype)
        np.add.at(y, np.arange(len(index)).repeat(index.shape[1]), table[index.ravel()])
        return y

    def f(table, index):
        one_hot = np.zeros((len(index), len(table)), table.dtype)
        np.add.at(one_hot, (np.arange(len(index))[:, None], index), 1)
        return one_hot @ table

    return f, g, (normal(rng, 50, 32), rng.integers(0, 50, (16, 20)))


@case(
    "ROUNDING LAYOUT",
    "Arrays of jax, which has no float64 unless told: neither side has a reference.",
    options={"reference": None},
    needs=("jax",),
)
def softmax_jax(rng):
    import jax
    import jax.numpy as jnp

    def g(x):
        return jnp.exp(x - jax.nn.logsumexp(x, axis=1, keepdims=True))

    return lambda x: jax.nn.softmax(x, axis=1), g, (jnp.asarray(2 * normal(rng, 32, 100)),)
