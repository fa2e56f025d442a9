"""A small network ported from torch to NumPy, with three errors in it: which layers are wrong?

Each layer of the port is compared at what torch's layers before it give, so that no layer answers
for the errors of another. needs: torch
"""

import numpy as np
import torch

import calipers

torch.manual_seed(0)
WIDTH, HEADS = 64, 4


def layer_norm(x, weight, bias, eps=1e-5):
    centered = x - x.mean(axis=-1, keepdims=True)
    # The first error: the variance of a sample, by n - 1, where torch takes the mean of squares.
    variance = (centered**2).sum(axis=-1, keepdims=True) / x.dtype.type(x.shape[-1] - 1)
    return centered / np.sqrt(variance + x.dtype.type(eps)) * weight + bias


def attention(x, w, b):
    rows, n, _ = x.shape
    q, k, v = np.split(x @ w.T + b, 3, axis=-1)
    q, k, v = (a.reshape(rows, n, HEADS, -1).transpose(0, 2, 1, 3) for a in (q, k, v))
    # The second: the scale is that of the whole width, and not of a head's.
    scores = q @ k.transpose(0, 1, 3, 2) / x.dtype.type(np.sqrt(WIDTH))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape)


def linear(x, w, b):
    return x @ w.T + b


def gelu(x):
    # The third: the approximation by tanh, where torch's default is the error function.
    c = x.dtype.type(np.sqrt(2 / np.pi))
    return x / 2 * (1 + np.tanh(c * (x + x.dtype.type(0.044715) * x**3)))


def torch_attention(x, w, b):
    q, k, v = torch.nn.functional.linear(x, w, b).chunk(3, dim=-1)
    q, k, v = (a.unflatten(-1, (HEADS, -1)).transpose(1, 2) for a in (q, k, v))
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return found.transpose(1, 2).flatten(2)


def torch_layer_norm(x, weight, bias):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)


def weights(*shape):
    return torch.randn(shape) / shape[-1] ** 0.5


LAYERS = {
    "norm": (torch_layer_norm, layer_norm, (1 + weights(WIDTH), weights(WIDTH))),
    "attention": (torch_attention, attention, (weights(3 * WIDTH, WIDTH), weights(3 * WIDTH))),
    "widen": (torch.nn.functional.linear, linear, (weights(4 * WIDTH, WIDTH), weights(4 * WIDTH))),
    "gelu": (torch.nn.functional.gelu, gelu, ()),
    "narrow": (torch.nn.functional.linear, linear, (weights(WIDTH, 4 * WIDTH), weights(WIDTH))),
}

x = torch.randn(8, 16, WIDTH)
kinds = {}
for name, (original, ported, parameters) in LAYERS.items():
    found = calipers.diagnose(original, ported, (x, *parameters))
    kinds[name] = found.kind
    print(f"{name:10} {found.kind:9} {found.reason}")
    x = original(x, *parameters)

assert [name for name, kind in kinds.items() if kind == "BUG"] == ["norm", "attention", "gelu"]
