"""Layers, losses and optimisers of networks, after public reports on ports of models.

Labelled before any verdict was asked for. A note cites the report, where one was read. The others
are forms and mistakes that occur in many of them: conventions of another framework, an axis, a
mask, a factor.
"""

import math

import numpy as np

from .case import HIDDEN, OK, WHOLE, Cases, linear, normal, softmax, uniform

CASES = Cases()
pair = CASES.pair


def layer(rows, inner, outer):
    """Return a generator of inputs of a linear layer."""

    def inputs(rng):
        w = rng.standard_normal((outer, inner)) / math.sqrt(inner)
        return [normal(rng, rows, inner), w.astype(np.float32), normal(rng, outer)]

    return inputs


def arrays(*shapes):
    return lambda rng: [normal(rng, *shape) for shape in shapes]


def heads(n=4, queries=12, keys=12, d=16):
    return arrays((n, queries, d), (n, keys, d), (n, keys, d))


# Attention.


def attention(mask=None, scale=None):
    def f(q, k, v):
        scores = q @ k.swapaxes(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
        if mask is not None:
            scores = np.where(mask(*scores.shape[-2:]), scores, q.dtype.type(-np.inf))
        return softmax(scores) @ v

    return f


def causal(offset=0):
    return lambda n, m: np.arange(m) <= np.arange(n)[:, None] + offset


pair(
    "queries_scaled_before_the_product",
    OK,
    attention(),
    lambda q, k, v: softmax((q * (1 / math.sqrt(q.shape[-1]))) @ k.swapaxes(-1, -2)) @ v,
    heads(d=24),
    options=WHOLE,
)
pair(
    "mask_of_a_large_negative_number",
    OK,
    attention(causal()),
    lambda q, k, v: (
        softmax(
            q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]))
            + np.where(causal()(12, 12), 0, -1e9).astype(q.dtype)
        )
        @ v
    ),
    heads(),
    "-1e9 for -inf, in float32",
    options=WHOLE,
)


def one_query_at_a_time(q, k, v):
    parts = [attention()(q[:, i : i + 1], k[:, : i + 1], v[:, : i + 1]) for i in range(q.shape[1])]
    return np.concatenate(parts, axis=1)


pair(
    "cached_keys_and_a_causal_mask", OK, attention(causal()), one_query_at_a_time, heads(),
    options=WHOLE,
)  # fmt: skip
pair(
    "causal_mask_of_the_other_corner",
    "BUG",
    attention(causal(8)),
    attention(causal()),
    heads(queries=4, keys=12),
    "fewer queries than keys: FlashAttention 2.1 aligned the mask to the other corner",
    options=WHOLE,
)
pair(
    "window_on_both_sides",
    "BUG",
    attention(lambda n, m: np.abs(np.arange(m) - np.arange(n)[:, None]) < 4),
    attention(lambda n, m: np.abs(np.arange(m) - np.arange(n)[:, None]) <= 4),
    heads(),
    "transformers#39408: a sliding window one too wide",
    options=WHOLE,
)
pair(
    "scores_scaled_by_the_width_of_the_model",
    "BUG",
    attention(),
    attention(scale=1 / 8),
    heads(d=16),
    "1/sqrt(64) for 1/sqrt(16)",
    options=WHOLE,
)
pair(
    "scores_scaled_twice",
    "BUG",
    attention(),
    attention(scale=1 / 16),
    heads(d=16),
    "q was scaled already",
    options=WHOLE,
)


def padded(inverted=False, after=False):
    def f(x, mask):
        mask = ~mask if inverted else mask
        if after:
            return softmax(x) * mask
        return softmax(np.where(mask, x, x.dtype.type(-1e9)))

    return f


def scores_and_mask(rng):
    mask = np.arange(20) < rng.integers(5, 16, 8)[:, None]
    return [normal(rng, 8, 20), mask]


pair("padding_mask_inverted", "BUG", padded(), padded(inverted=True), scores_and_mask)
pair(
    "padding_masked_after_the_softmax",
    "BUG",
    padded(),
    padded(after=True),
    scores_and_mask,
    "the rows no longer add up to 1",
)
pair(
    "padding_masked_after_and_normalised",
    OK,
    padded(),
    lambda x, mask: (p := softmax(x) * mask) / p.sum(-1, keepdims=True),
    scores_and_mask,
)


def split_heads(x, transposed=True):
    n, d = x.shape
    return x.reshape(n, 4, d // 4).swapaxes(0, 1) if transposed else x.reshape(4, n, d // 4)


pair(
    "heads_reshaped_without_a_transpose",
    "BUG",
    lambda x: attention()(*[split_heads(x)] * 3),
    lambda x: attention()(*[split_heads(x, transposed=False)] * 3),
    arrays((12, 32)),
    options=WHOLE,
)
pair(
    "heads_joined_without_a_transpose",
    "BUG",
    lambda q, k, v: attention()(q, k, v).swapaxes(0, 1).reshape(12, -1),
    lambda q, k, v: attention()(q, k, v).reshape(12, -1),
    heads(),
    options=WHOLE,
)
pair(
    "query_key_value_in_one_product",
    OK,
    lambda x, a, b, c: np.stack([x @ a, x @ b, x @ c]),
    lambda x, a, b, c: np.stack(np.split(x @ np.concatenate([a, b, c], axis=1), 3, axis=1)),
    arrays((20, 48), (48, 16), (48, 16), (48, 16)),
    options=WHOLE,
)
pair(
    "query_key_value_interleaved",
    "BUG",
    lambda x, w: attention()(*(p[None] for p in np.split(x @ w, 3, axis=1)))[0],
    lambda x, w: attention()(*((x @ w)[None, :, i::3] for i in range(3)))[0],
    arrays((10, 32), (32, 24)),
    "weights of [q k v] read as interleaved ones",
    options=WHOLE,
)


def alibi(slopes):
    def f(q, k, v):
        n = q.shape[1]
        bias = -np.abs(np.arange(n) - np.arange(n)[:, None]) * slopes(len(q))[:, None, None]
        scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1])) + bias.astype(q.dtype)
        return softmax(scores) @ v

    return f


pair(
    "slopes_of_the_next_head",
    "BUG",
    alibi(lambda n: 2.0 ** (-8 / n * np.arange(1, n + 1))),
    alibi(lambda n: 2.0 ** (-8 / n * np.arange(n))),
    heads(),
    "ALiBi's slopes begin at 2^(-8/n), and not at 1",
    options=WHOLE,
)
pair(
    "slopes_by_repeated_products",
    OK,
    alibi(lambda n: 2.0 ** (-8 / n * np.arange(1, n + 1))),
    alibi(lambda n: np.cumprod(np.full(n, 2.0 ** (-8 / n)))),
    heads(),
    options=WHOLE,
)
pair(
    "sink_that_is_not_counted",
    "BUG",
    lambda x: softmax(np.concatenate([x, np.zeros_like(x[:, :1])], 1))[:, :-1],
    softmax,
    arrays((10, 24)),
    "softmax with one more term of exp(0) in the sum",
)
pair(
    "sink_as_one_in_the_sum",
    OK,
    lambda x: softmax(np.concatenate([x, np.zeros_like(x[:, :1])], 1))[:, :-1],
    lambda x: np.exp(x) / (1 + np.exp(x).sum(-1, keepdims=True)),
    arrays((10, 24)),
)

# Norms.


def layer_norm(eps=1e-5, ddof=0):
    def f(x):
        own = x - x.mean(-1, keepdims=True)
        return own / np.sqrt(x.var(-1, keepdims=True, ddof=ddof) + x.dtype.type(eps))

    return f


pair(
    "layer_norm_of_tensorflow",
    HIDDEN,
    layer_norm(1e-12),
    layer_norm(1e-5),
    arrays((16, 64)),
    "transformers#1089: 1e-12 and 1e-5",
)
pair(
    "layer_norm_of_keras",
    HIDDEN,
    layer_norm(1e-3),
    layer_norm(1e-5),
    arrays((16, 64)),
    "1e-3 is Keras' default",
)
pair(
    "layer_norm_of_the_unbiased_variance",
    "BUG",
    layer_norm(),
    layer_norm(ddof=1),
    arrays((16, 64)),
    "pytorch#50010: torch.var divides by n - 1",
)


def rms(x, eps=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(eps))


pair(
    "rms_norm_whose_weight_is_an_offset",
    "BUG",
    lambda x, w: rms(x) * (1 + w),
    lambda x, w: rms(x) * w,
    arrays((16, 48), (48,)),
    "Gemma multiplies by 1 + w",
)
pair(
    "rms_norm_scaled_by_the_length",
    OK,
    lambda x, w: rms(x, 0) * w,
    lambda x, w: x * (math.sqrt(x.shape[1]) / np.linalg.norm(x, axis=1, keepdims=True)) * w,
    arrays((16, 48), (48,)),
)
pair(
    "rms_norm_of_the_sum",
    "BUG",
    lambda x, w: rms(x) * w,
    lambda x, w: x / np.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(1e-6)) * w,
    arrays((16, 48), (48,)),
)
pair(
    "norm_after_the_residual",
    "BUG",
    lambda x, w: x + layer_norm()(x) @ w,
    lambda x, w: layer_norm()(x + x @ w),
    arrays((12, 32), (32, 32)),
)
pair(
    "layer_norm_over_channels_of_images",
    "BUG",
    lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5),
    lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    arrays((4, 16, 6, 6)),
    "the last axis is that of columns in NCHW",
)


def batch_norm(eps=1e-5, statistics="running"):
    def f(x, mean, var, w, b):
        if statistics == "batch":
            mean, var = x.mean(0), x.var(0)
        return (x - mean) / np.sqrt(var + x.dtype.type(eps)) * w + b

    return f


def batch(rng):
    return [
        normal(rng, 32, 24),
        normal(rng, 24),
        uniform(rng, 0.5, 2, 24),
        normal(rng, 24),
        normal(rng, 24),
    ]


def as_scale_and_shift(x, mean, var, w, b):
    scale = w / np.sqrt(var + x.dtype.type(1e-5))
    return x * scale + (b - mean * scale)


pair("batch_norm_as_scale_and_shift", OK, batch_norm(), as_scale_and_shift, batch)
pair(
    "batch_norm_of_tensorflow",
    HIDDEN,
    batch_norm(1e-3),
    batch_norm(1e-5),
    batch,
    "tacotron_pytorch#19",
)
pair(
    "batch_norm_left_in_training",
    "BUG",
    batch_norm(),
    batch_norm(statistics="batch"),
    batch,
    options=WHOLE,
)
pair(
    "momentum_of_the_other_convention",
    "BUG",
    lambda x, mean: 0.9 * mean + 0.1 * x.mean(0),
    lambda x, mean: 0.1 * mean + 0.9 * x.mean(0),
    arrays((32, 24), (24,)),
    "transformers#19454: torch's momentum is 1 less Keras' one",
    options=WHOLE,
)
pair(
    "running_mean_by_a_difference",
    f"{OK} AMPLIFIED",
    lambda x, mean: 0.9 * mean + 0.1 * x.mean(0),
    lambda x, mean: mean + 0.1 * (x.mean(0) - mean),
    arrays((32, 24), (24,)),
    options=WHOLE,
)
pair(
    "group_norm_of_interleaved_groups",
    "BUG",
    lambda x: layer_norm()(x.reshape(8, 4, -1)).reshape(x.shape),
    lambda x: layer_norm()(x.reshape(8, 4, 4, 9).swapaxes(1, 2).reshape(8, 4, -1)).reshape(x.shape),
    arrays((8, 16, 9)),
)
pair(
    "weight_norm_over_all_rows",
    "BUG",
    lambda x, v, g: x @ (g[:, None] * v / np.linalg.norm(v, axis=1, keepdims=True)).T,
    lambda x, v, g: x @ (g[:, None] * v / np.sqrt((v * v).sum())).T,
    arrays((12, 20), (8, 20), (8,)),
)
pair(
    "weight_norm_with_the_factor_first",
    OK,
    lambda x, v, g: x @ (g[:, None] * v / np.linalg.norm(v, axis=1, keepdims=True)).T,
    lambda x, v, g: (x @ v.T) * (g / np.sqrt((v * v).sum(1))),
    arrays((12, 20), (8, 20), (8,)),
)

# Activations.

pair(
    "hard_sigmoid_of_keras",
    "BUG",
    lambda x: np.clip(x / 6 + 0.5, 0, 1),
    lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    arrays((20, 30)),
)
pair(
    "slope_of_leaky_units",
    "BUG",
    lambda x: np.where(x > 0, x, 0.01 * x),
    lambda x: np.where(x > 0, x, 0.3 * x),
    arrays((20, 30)),
    "0.3 is Keras' default",
)
pair(
    "leaky_units_by_a_maximum",
    OK,
    lambda x: np.where(x > 0, x, 0.01 * x),
    lambda x: np.maximum(x, 0.01 * x),
    arrays((20, 30)),
)
pair(
    "selu_of_four_digits",
    HIDDEN,
    lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    lambda x: 1.0507 * np.where(x > 0, x, 1.6733 * np.expm1(x)),
    arrays((20, 30)),
)
pair(
    "elu_by_exp_less_one",
    "UNSTABLE",
    lambda x: np.where(x > 0, x, np.expm1(x)),
    lambda x: np.where(x > 0, x, np.exp(x) - 1),
    lambda rng: [uniform(rng, -1e-3, 1e-3, 20, 30)],
    "pytorch's ELU near 0: exp(x) - 1 has few digits left",
)
pair(
    "swish_of_another_slope",
    "BUG",
    lambda x: x / (1 + np.exp(-x)),
    lambda x: x / (1 + np.exp(-1.702 * x)),
    arrays((20, 30)),
)
pair(
    "softplus_that_is_linear_from_20_on",
    "SUSPECT EQUAL ROUNDING",
    lambda x: np.logaddexp(x, x.dtype.type(0)),
    lambda x: np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20)))),
    lambda rng: [uniform(rng, 15, 30, 20, 30)],
    "torch's threshold: 2e-9 of 20, which float32 does not show",
)
pair(
    "gated_units_with_the_halves_swapped",
    "BUG",
    lambda x: x[:, :16] * (1 / (1 + np.exp(-x[:, 16:]))),
    lambda x: x[:, 16:] * (1 / (1 + np.exp(-x[:, :16]))),
    arrays((20, 32)),
)
pair(
    "gate_and_value_in_one_product",
    OK,
    lambda x, a, b: (x @ a) / (1 + np.exp(-(x @ a))) * (x @ b),
    lambda x, a, b: (
        (h := x @ np.concatenate([a, b], 1))[:, :24] / (1 + np.exp(-h[:, :24])) * h[:, 24:]
    ),
    lambda rng: [normal(rng, 16, 32), normal(rng, 32, 24) / 8, normal(rng, 32, 24) / 8],
    "SwiGLU of Llama",
)
pair(
    "hard_swish_at_once",
    OK,
    lambda x: x * np.clip(x + 3, 0, 6) / 6,
    lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    arrays((20, 30)),
)

# Convolutions, pooling and resizing.


def convolve(x, w, before, after, stride):
    x = np.pad(x, [(0, 0), (0, 0), (before, after), (before, after)])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwkl,ockl->nohw", windows[:, :, ::stride, ::stride], w, optimize=True)


images = arrays((2, 3, 12, 12), (4, 3, 3, 3))
pair(
    "same_padding_of_tensorflow",
    "BUG",
    lambda x, w: convolve(x, w, 1, 1, 2),
    lambda x, w: convolve(x, w, 0, 1, 2),
    images,
    "tensornets#25: stride 2 pads the end alone",
)


def tap_by_tap(x, w):
    x = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    y = 0
    for k in range(3):
        for j in range(3):
            y = y + np.tensordot(w[:, :, k, j], x[:, :, k : k + 12, j : j + 12], ((1,), (1,)))
    return np.ascontiguousarray(y.swapaxes(0, 1))


pair("image_convolution_tap_by_tap", OK, lambda x, w: convolve(x, w, 1, 1, 1), tap_by_tap, images)
pair(
    "kernel_of_swapped_axes",
    "BUG",
    lambda x, w: convolve(x, w, 1, 1, 1),
    lambda x, w: convolve(x, np.ascontiguousarray(w.swapaxes(2, 3)), 1, 1, 1),
    images,
)
pair(
    "dilation_forgotten",
    "BUG",
    lambda x, w: sum(w[k] * x[:, 2 * k : 2 * k + 20] for k in range(3)),
    lambda x, w: sum(w[k] * x[:, k : k + 20] for k in range(3)),
    arrays((8, 24), (3,)),
)
pair(
    "flattened_before_channels_are_moved",
    "BUG",
    lambda x, w: x.reshape(4, -1) @ w,
    lambda x, w: np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(4, -1) @ w,
    arrays((4, 6, 3, 3), (54, 10)),
    "weights of NCHW for NHWC",
)
pair(
    "pooling_that_drops_the_last_column",
    "BUG",
    lambda x: np.pad(x, [(0, 0), (0, 1)], constant_values=-np.inf).reshape(8, -1, 2).max(2),
    lambda x: x[:, :14].reshape(8, -1, 2).max(2),
    arrays((8, 15)),
    "ceil_mode: the shapes differ",
)
pair(
    "average_pooling_as_a_convolution",
    OK,
    lambda x: x.reshape(4, 6, 2, 6, 2).mean((2, 4)),
    lambda x: 0.25 * (x[:, ::2, ::2] + x[:, 1::2, ::2] + x[:, ::2, 1::2] + x[:, 1::2, 1::2]),
    arrays((4, 12, 12)),
)
pair(
    "largest_of_windows_by_a_view",
    "EQUAL",
    lambda x: x.reshape(4, 6, 2, 6, 2).max((2, 4)),
    lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 2), (1, 2))[:, ::2, ::2].max((3, 4)),
    arrays((4, 12, 12)),
)
pair(
    "largest_of_overlapping_windows",
    "BUG",
    lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2].max(2),
    lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 1)[:, ::2][:, :15].max(2),
    arrays((6, 32)),
)


def resized(m, place):
    """Return linear interpolation to m points at the places of a convention."""

    def f(x):
        n = x.shape[-1]
        at = np.clip(place(np.arange(m), n, m), 0, n - 1)
        low = np.minimum(at.astype(int), n - 2)
        share = (at - low).astype(x.dtype)
        return x[..., low] * (1 - share) + x[..., low + 1] * share

    return f


def half_pixel(i, n, m):
    return (i + 0.5) * n / m - 0.5


pair(
    "resizing_of_asymmetric_places",
    "BUG",
    resized(40, half_pixel),
    resized(40, lambda i, n, m: i * n / m),
    arrays((6, 16)),
    "TensorRT#273: asymmetric for half_pixel",
)
pair(
    "resizing_to_one_point",
    "BUG",
    resized(1, half_pixel),
    resized(1, lambda i, n, m: i * 0.0),
    arrays((6, 16)),
    "pytorch#183523: an export of the size (1, 1)",
)
pair(
    "resizing_as_a_matrix",
    OK,
    resized(40, half_pixel),
    lambda x: x @ resized(40, half_pixel)(np.eye(x.shape[1], dtype=x.dtype)),
    arrays((6, 16)),
)


def cubic(a):
    """Return values half way between neighbours, by the cubic kernel of parameter a."""
    outer = a * (1.5**3 - 5 * 1.5**2 + 8 * 1.5 - 4)
    inner = (a + 2) * 0.5**3 - (a + 3) * 0.5**2 + 1
    return lambda x: outer * (x[:, :-3] + x[:, 3:]) + inner * (x[:, 1:-2] + x[:, 2:-1])


pair(
    "cubic_kernel_of_another_parameter",
    "BUG",
    cubic(-0.75),
    cubic(-0.5),
    arrays((6, 30)),
    "cubic_coeff_a: torch and OpenCV have -0.75, TensorFlow and PIL -0.5",
)
pair(
    "nearest_pixels_of_exact_places",
    "BUG",
    lambda x: x[:, np.floor(np.arange(10) * 1.6).astype(int)],
    lambda x: x[:, np.floor((np.arange(10) + 0.5) * 1.6).astype(int)],
    arrays((6, 16)),
    "torch's nearest and nearest-exact",
)
pair(
    "nearest_pixels_by_repetition",
    "EQUAL",
    lambda x: np.repeat(x, 3, axis=1),
    lambda x: x[:, np.arange(48) // 3],
    arrays((6, 16)),
)
pair(
    "tiled_for_repeated",
    "BUG",
    lambda x: np.repeat(x, 3, axis=1),
    lambda x: np.tile(x, (1, 3)),
    arrays((6, 16)),
    "torch's repeat is np.tile",
)


def transposed(extra_first):
    def f(x, w):
        y = np.zeros((len(x), 2 * x.shape[1] + 2), x.dtype)
        for k in range(3):
            y[:, k + extra_first : k + extra_first + 2 * x.shape[1] : 2] += w[k] * x
        return y

    return f


pair(
    "output_padding_in_front",
    "BUG",
    transposed(0),
    transposed(1),
    arrays((6, 16), (3,)),
    "tinygrad#840: asymmetric padding of transposed convolutions",
)
pair(
    "channels_in_the_order_of_opencv",
    "BUG",
    lambda x: (
        (x - np.array([0.485, 0.456, 0.406], x.dtype)) / np.array([0.229, 0.224, 0.225], x.dtype)
    ),
    lambda x: (
        (x[..., ::-1] - np.array([0.485, 0.456, 0.406], x.dtype))
        / np.array([0.229, 0.224, 0.225], x.dtype)
    ),
    lambda rng: [uniform(rng, 0, 1, 4, 8, 8, 3)],
    "BGR for RGB",
)
pair(
    "bytes_divided_by_256",
    "BUG",
    lambda x: x.astype(np.float32) / 255,
    lambda x: x.astype(np.float32) / 256,
    lambda rng: [rng.integers(0, 256, (4, 100)).astype(np.uint8)],
)

# Recurrent layers.


def lstm(forget_bias=0.0):
    def f(x, w, u):
        h = np.zeros((x.shape[1], u.shape[0]), x.dtype)
        c = np.zeros_like(h)
        for step in x:
            i, forget, new, out = np.split(step @ w + h @ u, 4, axis=1)
            c = c / (1 + np.exp(-forget - x.dtype.type(forget_bias))) + np.tanh(new) / (
                1 + np.exp(-i)
            )
            h = np.tanh(c) / (1 + np.exp(-out))
        return h

    return f


def recurrent(rng):
    return [normal(rng, 9, 6, 12), normal(rng, 12, 64) / 4, normal(rng, 16, 64) / 4]


pair(
    "bias_of_the_forget_gate",
    "BUG",
    lstm(),
    lstm(1.0),
    recurrent,
    "TensorFlow's cells added 1",
    options=WHOLE,
)


def states(x, w):
    h = np.zeros((x.shape[1], w.shape[1]), x.dtype)
    all_of_them = []
    for step in x:
        h = np.tanh(step @ w + h)
        all_of_them.append(h)
    return np.stack(all_of_them)


steps = arrays((9, 6, 12), (12, 10))
pair(
    "backward_states_in_reverse",
    "BUG",
    lambda x, w: states(x[::-1], w)[::-1],
    lambda x, w: states(x[::-1], w),
    steps,
    "the results of the backward direction are not turned back",
    options=WHOLE,
)
pair(
    "state_after_the_padding",
    "BUG",
    lambda x, w, n: states(x, w)[n - 1, np.arange(6)],
    lambda x, w, n: states(x, w)[-1],
    lambda rng: [*steps(rng), np.array([3, 9, 5, 7, 2, 8])],
    options=WHOLE,
)
pair(
    "time_and_batch_swapped",
    "BUG",
    lambda x, w: states(x, w)[-1],
    lambda x, w: states(x.swapaxes(0, 1), w)[-1],
    arrays((8, 8, 12), (12, 10)),
    "batch_first",
    options=WHOLE,
)
pair(
    "inputs_projected_at_once",
    OK,
    lambda x, w: states(x, w),
    lambda x, w: states((x.reshape(-1, 12) @ w).reshape(9, 6, 10), np.eye(10, dtype=x.dtype)),
    steps,
    options=WHOLE,
)

# Losses.


def log_softmax(x):
    own = x - x.max(-1, keepdims=True)
    return own - np.log(np.exp(own).sum(-1, keepdims=True))


def labelled(rng):
    return [normal(rng, 30, 10), rng.integers(0, 10, 30)]


pair(
    "cross_entropy_of_one_hot_labels",
    OK,
    lambda x, y: -log_softmax(x)[np.arange(len(y)), y].mean(),
    lambda x, y: -(log_softmax(x) * np.eye(10, dtype=x.dtype)[y]).sum(-1).mean(),
    labelled,
    options=WHOLE,
)
pair(
    "softmax_before_the_cross_entropy",
    "BUG",
    lambda x, y: -log_softmax(x)[np.arange(len(y)), y].mean(),
    lambda x, y: -log_softmax(softmax(x))[np.arange(len(y)), y].mean(),
    labelled,
    "the loss applies a softmax itself",
    options=WHOLE,
)
pair(
    "ignored_labels_counted_in_the_mean",
    "BUG",
    lambda x, y: (log_softmax(x)[np.arange(30), y] * (y > 0)).sum() / (y > 0).sum().astype(x.dtype),
    lambda x, y: (log_softmax(x)[np.arange(30), y] * (y > 0)).mean(),
    labelled,
    options=WHOLE,
)
pair(
    "loss_of_the_same_token",
    "BUG",
    lambda x, y: -log_softmax(x)[np.arange(29), y[1:]].mean(),
    lambda x, y: -log_softmax(x)[np.arange(29), y[:-1]].mean(),
    lambda rng: [normal(rng, 29, 10), rng.integers(0, 10, 30)],
    "labels are not shifted",
    options=WHOLE,
)
pair(
    "divergence_averaged_over_all_elements",
    "BUG",
    lambda p, q: (softmax(p) * (log_softmax(p) - log_softmax(q))).sum(-1).mean(),
    lambda p, q: (softmax(p) * (log_softmax(p) - log_softmax(q))).mean(),
    arrays((20, 8), (20, 8)),
    "torch's kl_div: mean and batchmean",
    options=WHOLE,
)
pair(
    "logistic_loss_by_two_softplus",
    OK,
    lambda x, y: (np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))).mean(),
    lambda x, y: (
        y * np.logaddexp(0, -x).astype(x.dtype) + (1 - y) * np.logaddexp(0, x).astype(x.dtype)
    ).mean(),
    lambda rng: [normal(rng, 200), (rng.random(200) < 0.3).astype(np.float32)],
    options=WHOLE,
)
pair(
    "accumulated_gradients_of_unequal_batches",
    "BUG",
    lambda x: (x * x).mean(),
    lambda x: ((x[:30] ** 2).mean() + (x[30:] ** 2).mean()) / 2,
    arrays((50,)),
    "the mean of means of 30 and 20 losses",
    options=WHOLE,
)
pair(
    "accumulated_gradients_of_equal_batches",
    OK,
    lambda x: (x * x).mean(),
    lambda x: ((x[:25] ** 2).mean() + (x[25:] ** 2).mean()) / 2,
    arrays((50,)),
    options=WHOLE,
)


def contrastive(a, b, both=True):
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    scores = a @ b.T / 0.07
    own = np.diagonal(log_softmax(scores)).mean()
    return -(own + np.diagonal(log_softmax(scores.T)).mean()) / 2 if both else -own


pair(
    "contrastive_loss_of_one_direction",
    "BUG",
    contrastive,
    lambda a, b: contrastive(a, b, both=False),
    arrays((24, 16), (24, 16)),
    options=WHOLE,
)
pair(
    "cosines_divided_after_the_product",
    OK,
    contrastive,
    lambda a, b: (
        s := a @ b.T / (np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1) * 0.07),
        -(np.diagonal(log_softmax(s)).mean() + np.diagonal(log_softmax(s.T)).mean()) / 2,
    )[1],
    arrays((24, 16), (24, 16)),
    options=WHOLE,
)
pair(
    "triplet_loss_of_squared_distances",
    "BUG",
    lambda a, p, n: np.maximum(
        np.linalg.norm(a - p, axis=1) - np.linalg.norm(a - n, axis=1) + 1, 0
    ),
    lambda a, p, n: np.maximum(((a - p) ** 2).sum(1) - ((a - n) ** 2).sum(1) + 1, 0),
    arrays((40, 8), (40, 8), (40, 8)),
)
pair(
    "smooth_loss_that_is_not_divided_by_beta",
    "BUG",
    lambda d: np.where(np.abs(d) < 0.5, d * d, np.abs(d) - 0.25),
    lambda d: np.where(np.abs(d) < 0.5, d * d / 2, 0.5 * (np.abs(d) - 0.25)),
    arrays((200,)),
    "torch's smooth_l1_loss is huber_loss over beta",
)

# Optimisers.


def adam(inside=False, corrected=True):
    def f(p, g, m, v):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step, root = m / (1 - 0.9**3), v / (1 - 0.999**3)
        if not corrected:
            step, root = m, v
        bottom = np.sqrt(root + 1e-8) if inside else np.sqrt(root) + 1e-8
        return p - 0.01 * step / bottom

    return f


def training(rng):
    g = normal(rng, 300) / 100
    return [normal(rng, 300), g, g * normal(rng, 300), g * g * uniform(rng, 0.001, 0.01, 300)]


pair(
    "adam_whose_epsilon_is_in_the_root",
    "BUG",
    adam(),
    adam(inside=True),
    training,
    "gradients of 1e-2: 1e-8 in the root is 1e-4 outside",
)
pair(
    "adam_whose_corrections_are_in_the_step",
    OK,
    adam(),
    lambda p, g, m, v: (
        p
        - (0.01 / (1 - 0.9**3))
        * (0.9 * m + 0.1 * g)
        / (np.sqrt(0.999 * v + 0.001 * g * g) / math.sqrt(1 - 0.999**3) + 1e-8)
    ),
    training,
    "torch's order of the same steps",
)
pair(
    "momentum_of_nesterov",
    "BUG",
    lambda p, g, v: p - 0.1 * (0.9 * v + g),
    lambda p, g, v: p - 0.1 * (g + 0.9 * (0.9 * v + g)),
    arrays((300,), (300,), (300,)),
)
pair(
    "momentum_of_a_scaled_gradient",
    OK,
    lambda p, g, v: p - 0.1 * (0.9 * v + g),
    lambda p, g, v: p + (0.9 * (-0.1 * v) - 0.1 * g),
    arrays((300,), (300,), (300,)),
    "Caffe keeps the step, torch the sum",
)
pair(
    "dampening_of_the_momentum",
    "BUG",
    lambda p, g, v: p - 0.1 * (0.9 * v + g),
    lambda p, g, v: p - 0.1 * (0.9 * v + (1 - 0.9) * g),
    arrays((300,), (300,), (300,)),
)
pair(
    "weights_averaged_by_the_rest",
    "BUG",
    lambda p, q: 0.999 * p + 0.001 * q,
    lambda p, q: 0.001 * p + 0.999 * q,
    arrays((300,), (300,)),
)
pair(
    "dropout_scaled_in_evaluation",
    "BUG",
    linear,
    lambda x, w, b: linear(x * 0.9, w, b),
    layer(16, 32, 8),
    "inverted dropout scales in training alone",
)
pair(
    "embedding_without_its_scale",
    "BUG",
    lambda w, i: w[i] * math.sqrt(w.shape[1]),
    lambda w, i: w[i],
    lambda rng: [normal(rng, 50, 16), rng.integers(0, 50, 20)],
    "Gemma multiplies by the root of the width",
    options=WHOLE,
)
pair(
    "residual_scaled_by_the_depth",
    HIDDEN,
    lambda x, w: x + (x @ w) * (1 / math.sqrt(24)),
    lambda x, w: x + (x @ w) * 0.204,
    arrays((16, 32), (32, 32)),
    "three digits of 0.204124",
)


def experts(x, w, gates):
    return np.einsum("ne,nd,edh->nh", gates, x, w, optimize=True)


def routed(rng):
    gates = softmax(3 * normal(rng, 24, 4))
    gates[gates < np.sort(gates, 1)[:, -2:-1]] = 0
    return [normal(rng, 24, 16), normal(rng, 4, 16, 12), gates / gates.sum(1, keepdims=True)]


def dispatched(weights):
    def f(x, w, gates):
        y = np.zeros((len(x), w.shape[2]), x.dtype)
        for e in range(len(w)):
            rows = np.nonzero(gates[:, e])[0]
            y[rows] += weights(gates[rows, e : e + 1]) * (x[rows] @ w[e])
        return y

    return f


pair("experts_by_dispatch", OK, experts, dispatched(lambda g: g), routed, options=WHOLE)
pair(
    "experts_of_equal_weights",
    "BUG",
    experts,
    dispatched(lambda g: np.full_like(g, 0.5)),
    routed,
    options=WHOLE,
)
pair(
    "noise_schedule_by_logarithms",
    OK,
    lambda b: np.cumprod(1 - b),
    lambda b: np.exp(np.cumsum(np.log1p(-b))),
    lambda rng: [uniform(rng, 1e-4, 2e-2, 100)],
    options=WHOLE,
)
pair(
    "noise_schedule_of_the_step_before",
    "BUG",
    lambda b: np.cumprod(1 - b),
    lambda b: np.cumprod(1 - np.concatenate([b[:1] * 0, b[:-1]])),
    lambda rng: [uniform(rng, 1e-4, 2e-2, 100)],
    options=WHOLE,
)
pair(
    "rotated_pairs_of_another_sign",
    "BUG",
    lambda x, c, s: np.concatenate([x[:, :8] * c - x[:, 8:] * s, x[:, 8:] * c + x[:, :8] * s], 1),
    lambda x, c, s: np.concatenate([x[:, :8] * c + x[:, 8:] * s, x[:, 8:] * c + x[:, :8] * s], 1),
    lambda rng: [normal(rng, 20, 16), *(lambda a: (np.cos(a), np.sin(a)))(uniform(rng, 0, 6, 8))],
    "rotate_half without its sign",
)
pair(
    "pixels_shuffled_by_a_loop",
    "EQUAL",
    lambda x: x.reshape(2, 3, 2, 2, 5, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 3, 10, 10),
    lambda x: np.stack(
        [
            np.stack([x[:, 2 * (r % 2) + s % 2 :: 4, r // 2, s // 2] for s in range(10)], -1)
            for r in range(10)
        ],
        2,
    ),
    arrays((2, 12, 5, 5)),
)
