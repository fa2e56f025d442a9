"""Pairs of torch functions, after public reports and PyTorch's notes on numerical accuracy.

Labelled before any verdict was asked for. Functions import torch when they are called, so that the
labels can be read without it.
"""

import math

import numpy as np

from .case import HIDDEN, OK, TORCH, WHOLE, Cases, conditioned, normal, uniform

CASES = Cases()


def F():  # noqa: N802 - as torch's users abbreviate it
    import torch.nn.functional

    return torch.nn.functional


def T():  # noqa: N802
    import torch

    return torch


def arrays(*shapes):
    return lambda rng: [normal(rng, *shape) for shape in shapes]


def pair(name, kinds, f, g, inputs, note="", **fields):
    """Add a case whose arrays are passed as tensors."""

    def tensors(rng):
        return [T().from_numpy(np.array(x)) if hasattr(x, "shape") else x for x in inputs(rng)]

    CASES.pair(name, kinds, f, g, tensors, note, needs=TORCH, **fields)


# The same function.

linear = arrays((20, 64), (24, 64), (24,))
pair(
    "linear_and_a_product_with_its_bias",
    OK,
    lambda x, w, b: F().linear(x, w, b),
    lambda x, w, b: x @ w.T + b,
    linear,
    "the forum's thread: F.linear is addmm",
)
pair(
    "first_column_summed_by_itself",
    OK,
    lambda a: a.sum(0)[:1],
    lambda a: a[:, 0].sum()[None],
    arrays((300, 40)),
    "PyTorch's notes: a slice of an operation, and an operation on the slice",
    options=WHOLE,
)
pair(
    "one_matrix_of_a_batch",
    OK,
    lambda a, b: (a @ b)[0],
    lambda a, b: a[0] @ b[0],
    arrays((6, 20, 70), (6, 70, 30)),
    "PyTorch's notes: batched computations",
    options=WHOLE,
)
pair(
    "batched_product_with_a_start",
    OK,
    lambda c, a, b: T().baddbmm(c, a, b),
    lambda c, a, b: c + T().einsum("bij,bjk->bik", a, b),
    arrays((4, 10, 12), (4, 10, 50), (4, 50, 12)),
)
qkv = arrays((2, 4, 12, 16), (2, 4, 12, 16), (2, 4, 12, 16))


def attention(q, k, v, mask=None, scale=None):
    scores = q @ k.mT * (scale or 1 / math.sqrt(q.shape[-1]))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ v


def fused(q, k, v, **options):
    return F().scaled_dot_product_attention(q, k, v, **options)


pair("fused_attention", OK, attention, fused, qkv)
pair(
    "fused_attention_that_is_causal",
    OK,
    lambda q, k, v: attention(q, k, v, T().ones(12, 12, dtype=T().bool).tril()),
    lambda q, k, v: fused(q, k, v, is_causal=True),
    qkv,
)
pair(
    "attention_of_two_kinds_of_masks",
    "BUG",
    lambda q, k, v: fused(q, k, v, attn_mask=T().ones(12, 12, dtype=T().bool).tril()),
    lambda q, k, v: fused(q, k, v, attn_mask=T().ones(12, 12).tril().to(q.dtype)),
    qkv,
    "a mask of ones and zeros is added, one of booleans is not",
)
pair(
    "attention_mask_of_the_modules",
    "BUG",
    lambda q, k, v: fused(q, k, v, attn_mask=T().ones(12, 12, dtype=T().bool).tril()),
    lambda q, k, v: fused(q, k, v, attn_mask=T().ones(12, 12, dtype=T().bool).triu()),
    qkv,
    "True means keep in one, and drop in nn.MultiheadAttention",
)
pair(
    "scores_of_a_scale_of_three_digits",
    HIDDEN,
    fused,
    lambda q, k, v: fused(q, k, v, scale=0.2501),
    qkv,
)
pair(
    "layer_norm_by_moments",
    OK,
    lambda x, w, b: F().layer_norm(x, (48,), w, b),
    lambda x, w, b: (
        (
            (x - (m := x.mean(-1, keepdim=True)))
            * ((x - m).square().mean(-1, keepdim=True) + 1e-5) ** -0.5
        )
        * w
        + b
    ),
    arrays((20, 48), (48,), (48,)),
)
pair(
    "layer_norm_of_torch_variance",
    "BUG",
    lambda x: F().layer_norm(x, (48,)),
    lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt(),
    arrays((20, 48)),
    "pytorch#50010: var is unbiased",
)
pair(
    "layer_norm_of_the_wrong_axes",
    "BUG",
    lambda x: F().layer_norm(x, (6,)),
    lambda x: F().layer_norm(x, (10, 6)),
    arrays((8, 10, 6)),
)
pair(
    "group_norm_of_other_groups",
    "BUG",
    lambda x: F().group_norm(x, 4),
    lambda x: F().group_norm(x, 8),
    arrays((4, 16, 30)),
)
pair(
    "rms_norm_by_powers",
    OK,
    lambda x, w: F().rms_norm(x, (48,), w, 1e-6),
    lambda x, w: x * T().rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
    arrays((20, 48), (48,)),
)
pair(
    "rms_norm_of_the_default_epsilon",
    HIDDEN,
    lambda x, w: F().rms_norm(x, (48,), w, 1e-5),
    lambda x, w: F().rms_norm(x, (48,), w),
    arrays((20, 48), (48,)),
    "None is the dtype's eps",
)
images = arrays((2, 3, 12, 12), (5, 3, 3, 3), (5,))
pair(
    "convolution_by_unfolding",
    OK,
    lambda x, w, b: F().conv2d(x, w, b, padding=1),
    lambda x, w, b: (w.flatten(1) @ F().unfold(x, 3, padding=1) + b[:, None]).reshape(
        len(x), 5, 12, 12
    ),
    images,
)
pair(
    "convolution_of_channels_last",
    OK,
    lambda x, w, b: F().conv2d(x, w, b, padding=1),
    lambda x, w, b: F().conv2d(x.contiguous(memory_format=T().channels_last), w, b, padding=1),
    images,
)
pair(
    "convolution_padded_by_reflection",
    "BUG",
    lambda x, w, b: F().conv2d(x, w, b, padding=1),
    lambda x, w, b: F().conv2d(F().pad(x, (1, 1, 1, 1), mode="reflect"), w, b),
    images,
    "padding_mode",
)
pair(
    "padding_in_the_wrong_order",
    "BUG",
    lambda x, w, b: F().conv2d(F().pad(x, (2, 0, 1, 1)), w, b),
    lambda x, w, b: F().conv2d(F().pad(x, (1, 1, 2, 0)), w, b),
    images,
    "F.pad begins with the last axis",
)
pair(
    "transposed_convolution_by_its_gradient",
    OK,
    lambda x, w: F().conv_transpose2d(x, w, stride=2),
    lambda x, w: T().nn.grad.conv2d_input((2, 3, 13, 13), w, x, stride=2),
    arrays((2, 5, 6, 6), (5, 3, 3, 3)),
)
pair(
    "transposed_convolution_of_one_row_more",
    "BUG",
    lambda x, w: F().conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
    lambda x, w: F().conv_transpose2d(x, w, stride=2)[:, :, :12, :12],
    arrays((2, 5, 6, 6), (5, 3, 3, 3)),
)
pair(
    "grouped_convolution_one_by_one",
    OK,
    lambda x, w: F().conv1d(x, w, groups=4),
    lambda x, w: T().cat(
        [F().conv1d(a, b) for a, b in zip(x.chunk(4, 1), w.chunk(4), strict=True)], 1
    ),
    arrays((3, 8, 30), (12, 2, 5)),
)
pair(
    "resizing_with_corners_aligned",
    "BUG",
    lambda x: F().interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
    lambda x: F().interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    arrays((2, 3, 8, 8)),
    "TensorRT#273, onnxruntime#17564",
)
pair(
    "resizing_with_a_filter",
    "BUG",
    lambda x: F().interpolate(x, size=(5, 5), mode="bilinear"),
    lambda x: F().interpolate(x, size=(5, 5), mode="bilinear", antialias=True),
    arrays((2, 3, 12, 12)),
    "PIL filters, torch does if it is told to",
)
pair(
    "samples_of_aligned_corners",
    "BUG",
    lambda x, t: F().grid_sample(x, t, align_corners=False),
    lambda x, t: F().grid_sample(x, t, align_corners=True),
    lambda rng: [normal(rng, 2, 3, 8, 8), uniform(rng, -0.9, 0.9, 2, 5, 5, 2)],
)
pair(
    "pooling_that_counts_no_padding",
    "BUG",
    lambda x: F().avg_pool2d(x, 3, padding=1),
    lambda x: F().avg_pool2d(x, 3, padding=1, count_include_pad=False),
    arrays((2, 3, 12, 12)),
)
pair(
    "pooling_to_a_size",
    OK,
    lambda x: F().adaptive_avg_pool2d(x, 4),
    lambda x: x.unflatten(3, (4, 3)).unflatten(2, (4, 3)).mean((3, 5)),
    arrays((2, 3, 12, 12)),
)
pair(
    "largest_of_unfolded_windows",
    "EQUAL",
    lambda x: F().max_pool2d(x, 2),
    lambda x: F().unfold(x, 2, stride=2).reshape(2, 3, 4, 6, 6).amax(2),
    arrays((2, 3, 12, 12)),
)


def labelled(rng):
    return [normal(rng, 30, 10), rng.integers(0, 10, 30)]


pair(
    "cross_entropy_in_two_steps",
    OK,
    lambda x, y: F().cross_entropy(x, y),
    lambda x, y: (x.logsumexp(1) - x.gather(1, y[:, None])[:, 0]).mean(),
    labelled,
    options=WHOLE,
)
pair(
    "cross_entropy_of_smoothed_labels",
    "BUG",
    lambda x, y: F().cross_entropy(x, y),
    lambda x, y: F().cross_entropy(x, y, label_smoothing=0.1),
    labelled,
    options=WHOLE,
)
pair(
    "cross_entropy_that_ignores_a_class",
    "BUG",
    lambda x, y: F().cross_entropy(x, y),
    lambda x, y: F().cross_entropy(x, y, ignore_index=0),
    labelled,
    "the padding's index is a label",
    options=WHOLE,
)
pair(
    "divergence_of_logarithms",
    "BUG",
    lambda a, b: F().kl_div(a.log_softmax(-1), b.log_softmax(-1), log_target=True, reduction="sum"),
    lambda a, b: F().kl_div(a.log_softmax(-1), b.log_softmax(-1), reduction="sum"),
    arrays((20, 8), (20, 8)),
    options=WHOLE,
)
pair(
    "huber_for_smooth_loss",
    "BUG",
    lambda a, b: F().smooth_l1_loss(a, b, beta=0.5),
    lambda a, b: F().huber_loss(a, b, delta=0.5),
    arrays((200,), (200,)),
    options=WHOLE,
)
pair(
    "logistic_loss_of_probabilities",
    OK,
    lambda x, y: F().binary_cross_entropy_with_logits(x, y),
    lambda x, y: F().binary_cross_entropy(x.sigmoid(), y),
    lambda rng: [normal(rng, 200), (rng.random(200) < 0.4).astype(np.float32)],
    options=WHOLE,
)
pair(
    "logistic_loss_of_sure_probabilities",
    "UNSTABLE BUG SUSPECT RANGE",
    lambda x, y: F().binary_cross_entropy_with_logits(x, y, reduction="none"),
    lambda x, y: F().binary_cross_entropy(x.sigmoid(), y, reduction="none"),
    lambda rng: [uniform(rng, 14, 30, 60), np.zeros(60, np.float32)],
    "1 - sigmoid loses all digits, and torch bounds the logarithm by -100: unstable, or another",
)
pair(
    "gelu_by_the_hyperbolic_tangent",
    HIDDEN,
    lambda x: F().gelu(x),
    lambda x: F().gelu(x, approximate="tanh"),
    arrays((20, 48)),
    "Megatron-Bridge#4661",
)
pair(
    "network_with_one_gelu_of_tanh",
    HIDDEN,
    lambda x, w: F().gelu(F().gelu(F().gelu(x @ w[0]) @ w[1]) @ w[2]),
    lambda x, w: F().gelu(F().gelu(F().gelu(x @ w[0]) @ w[1], approximate="tanh") @ w[2]),
    lambda rng: [normal(rng, 20, 32), normal(rng, 3, 32, 32) / 4],
)
pair(
    "softmax_of_the_default_axis",
    "BUG",
    lambda x: x.softmax(-1),
    lambda x: x.softmax(1),
    arrays((8, 10, 12)),
)
pair(
    "repeated_for_interleaved_heads",
    "BUG",
    lambda q, k, v: attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)),
    lambda q, k, v: attention(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)),
    arrays((2, 4, 12, 16), (2, 2, 12, 16), (2, 2, 12, 16)),
)
pair(
    "reshaped_for_transposed",
    "BUG",
    lambda x: x.mT.reshape(8, -1),
    lambda x: x.reshape(8, 12, 10).reshape(8, -1),
    arrays((8, 10, 12)),
)
pair(
    "normalised_along_the_default_axis",
    "BUG",
    lambda x: F().normalize(x, dim=-1),
    lambda x: F().normalize(x),
    arrays((8, 10, 12)),
    "dim=1 is the default",
)


def module(make):
    """Return calls of one module that is made by a seed, in the precision of its input."""

    def f(x, *states):
        with T().no_grad(), T().random.fork_rng([]):
            T().manual_seed(0)
            return make().to(x.dtype)(x, *states)

    return f


pair(
    "recurrent_network_that_is_not_batch_first",
    "BUG",
    lambda x: module(lambda: T().nn.GRU(12, 10, batch_first=True))(x)[0],
    lambda x: module(lambda: T().nn.GRU(12, 10))(x)[0],
    arrays((8, 8, 12)),
    options=WHOLE,
)


def gru_by_hand(swapped=False):
    def f(x):
        with T().no_grad(), T().random.fork_rng([]):
            T().manual_seed(0)
            net = T().nn.GRU(12, 10, batch_first=True).to(x.dtype)
            h = x.new_zeros(len(x), 10)
            for step in x.unbind(1):
                a = F().linear(step, net.weight_ih_l0, net.bias_ih_l0).chunk(3, 1)
                b = F().linear(h, net.weight_hh_l0, net.bias_hh_l0).chunk(3, 1)
                r, z = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
                if swapped:
                    r, z = z, r
                h = (1 - z) * (a[2] + r * b[2]).tanh() + z * h
            return h

    return f


pair(
    "recurrent_network_by_hand",
    OK,
    lambda x: module(lambda: T().nn.GRU(12, 10, batch_first=True))(x)[0][:, -1],
    gru_by_hand(),
    arrays((8, 7, 12)),
)
pair(
    "gates_of_a_recurrent_network_swapped",
    "BUG",
    lambda x: module(lambda: T().nn.GRU(12, 10, batch_first=True))(x)[0][:, -1],
    gru_by_hand(swapped=True),
    arrays((8, 7, 12)),
    "Keras has z before r",
)
pair(
    "variance_of_two_passes",
    OK,
    lambda x: T().var_mean(x, -1)[0],
    lambda x: (x - x.mean(-1, keepdim=True)).square().sum(-1) / 63,
    arrays((20, 64)),
)
pair(
    "variance_of_one_pass",
    "UNSTABLE",
    lambda x: x.var(-1, correction=0),
    lambda x: x.square().mean(-1) - x.mean(-1).square(),
    lambda rng: [300 + normal(rng, 20, 64)],
)
pair(
    "distances_by_a_product",
    "UNSTABLE",
    lambda a, b: T().cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"),
    lambda a, b: T().cdist(a, b, compute_mode="use_mm_for_euclid_dist"),
    lambda rng: [50 + normal(rng, 30, 4), 50 + normal(rng, 30, 4)],
    "cdist's documentation: squares of 50 for differences of 1",
    options=WHOLE,
)
pair(
    "logarithm_of_a_softmax",
    "UNSTABLE",
    lambda x: x.log_softmax(-1)[:, 0],
    lambda x: x.softmax(-1).log()[:, 0],
    lambda rng: [np.concatenate([uniform(rng, 12, 14, 30, 1), normal(rng, 30, 5)], 1)],
    "the logarithm of nearly 1",
)
pair(
    "norm_of_large_numbers",
    "RANGE",
    lambda x: x.abs().amax(-1) * (x / x.abs().amax(-1, keepdim=True)).norm(dim=-1),
    lambda x: x.norm(dim=-1),
    lambda rng: [1e20 * uniform(rng, 1, 2, 20, 2)],
    "PyTorch's notes: the norm of [1e20, 1e20] is inf",
)
pair(
    "mean_of_squares_in_half_precision",
    "RANGE",
    lambda x: (
        x.float().square().mean(-1).to(x.dtype) if x.dtype == T().float16 else x.square().mean(-1)
    ),
    lambda x: x.square().mean(-1),
    lambda rng: [
        np.concatenate([normal(rng, 20, 299), uniform(rng, 260, 400, 20, 1)], 1).astype(np.float16)
    ],
)
pair(
    "system_near_a_singular_one",
    "AMPLIFIED UNSTABLE",
    lambda a, b: T().linalg.solve(a, b),
    lambda a, b: T().linalg.inv(a) @ b,
    lambda rng: [conditioned(rng, 12, 3e4), normal(rng, 12)],
    "PyTorch's notes: ill-conditioned inputs",
    options=WHOLE,
)
pair(
    "singular_values_by_two_drivers",
    OK,
    lambda a: T().linalg.svdvals(a),
    lambda a: T().linalg.eigvalsh(a.mT @ a).flip(-1).sqrt(),
    lambda rng: [conditioned(rng, 20, 2, 6)],
    options=WHOLE,
)
pair(
    "gradient_of_a_softmax_by_hand",
    OK,
    lambda x, v: T().func.vjp(lambda x: x.softmax(-1), x)[1](v)[0],
    lambda x, v: (p := x.softmax(-1)) * (v - (v * p).sum(-1, keepdim=True)),
    arrays((20, 10), (20, 10)),
)
pair(
    "gradient_that_lacks_the_sum",
    "BUG",
    lambda x, v: T().func.vjp(lambda x: x.softmax(-1), x)[1](v)[0],
    lambda x, v: (p := x.softmax(-1)) * (1 - p) * v,
    arrays((20, 10), (20, 10)),
    "the diagonal of the Jacobian alone",
)
pair(
    "rows_mapped_by_vmap",
    OK,
    lambda x, w: T().tanh(x @ w),
    lambda x, w: T().vmap(lambda row: T().tanh(w.mT @ row))(x),
    arrays((20, 30), (30, 12)),
)
pair(
    "rows_added_without_accumulation",
    "BUG",
    lambda x, i: x.new_zeros(6, 8).index_put((i,), x, accumulate=True),
    lambda x, i: x.new_zeros(6, 8).index_put((i,), x),
    lambda rng: [normal(rng, 30, 8), rng.permutation(30) % 6],
    options=WHOLE,
)
pair(
    "rows_added_by_a_product",
    OK,
    lambda x, i: x.new_zeros(6, 8).index_add(0, i, x),
    lambda x, i: F().one_hot(i, 6).to(x.dtype).mT @ x,
    lambda rng: [normal(rng, 30, 8), rng.permutation(30) % 6],
    options=WHOLE,
)
pair(
    "means_of_bags_of_rows",
    OK,
    lambda w, i: F().embedding_bag(i, w, mode="mean"),
    lambda w, i: w[i].mean(1),
    lambda rng: [normal(rng, 40, 12), rng.integers(0, 40, (10, 5))],
    options=WHOLE,
)
pair(
    "rows_of_the_padding_index",
    "BUG",
    lambda w, i: F().embedding_bag(i, w, mode="sum"),
    lambda w, i: F().embedding_bag(i, w, mode="sum", padding_idx=0),
    lambda rng: [normal(rng, 6, 12), rng.integers(0, 6, (10, 5))],
    options=WHOLE,
)
pair(
    "edges_of_buckets",
    HIDDEN,
    lambda x: T().bucketize(x, T().arange(8.0, dtype=x.dtype)),
    lambda x: T().bucketize(x, T().arange(8.0, dtype=x.dtype), right=True),
    lambda rng: [rng.integers(0, 32, 100).astype(np.float32) / 4],
    options=WHOLE,
)
pair(
    "spectrogram_by_frames",
    OK,
    lambda x: (
        T()
        .stft(
            x, 32, 16, window=T().hann_window(32, dtype=x.dtype), center=False, return_complex=True
        )
        .abs()
    ),
    lambda x: T().fft.rfft(x.unfold(-1, 32, 16) * T().hann_window(32, dtype=x.dtype)).abs().mT,
    arrays((3, 160)),
)
pair(
    "spectrogram_of_a_symmetric_window",
    "BUG",
    lambda x: T().fft.rfft(x.unfold(-1, 32, 16) * T().hann_window(32, dtype=x.dtype)).abs(),
    lambda x: (
        T()
        .fft.rfft(x.unfold(-1, 32, 16) * T().hann_window(32, periodic=False, dtype=x.dtype))
        .abs()
    ),
    arrays((3, 160)),
    "SciPy's and torch's defaults differ",
)
pair(
    "dropout_in_evaluation",
    "EQUAL",
    lambda x, w: x @ w,
    lambda x, w: F().dropout(x, 0.5, training=False) @ w,
    arrays((20, 30), (30, 12)),
)


# Low precision.


def in_format(name, f):
    """Return f in a format of few bits, for float32 and for what is wider."""

    def g(*x):
        low = [a.to(getattr(T(), name)) if a.is_floating_point() else a for a in x]
        return f(*low).to(x[0].dtype)

    return g


for form, name, f, inputs in (
    ("bfloat16", "linear_layer", lambda x, w, b: F().linear(x, w, b), linear),
    ("bfloat16", "image_convolution", lambda x, w, b: F().conv2d(x, w, b), images),
    ("bfloat16", "norm_and_product", lambda x, w, b: F().layer_norm(x, (64,)) @ w.mT, linear),
    ("float16", "linear_layer", lambda x, w, b: F().linear(x, w, b), linear),
    ("float16", "fused_attention", fused, qkv),
    ("float16", "log_softmax", lambda x, w, b: x.log_softmax(-1), linear),
):
    pair(
        f"{name}_in_{form}",
        "REDUCED",
        f,
        in_format(form, f),
        inputs,
        formats=(form,),
        options=WHOLE if name == "image_convolution" else {},
    )


def automatic(x, w, b):
    with T().autocast("cpu", dtype=T().bfloat16):
        return F().linear(F().linear(x, w, b).relu(), w[:, :24]).to(x.dtype)


pair(
    "two_layers_by_autocast",
    "REDUCED",
    lambda x, w, b: F().linear(F().linear(x, w, b).relu(), w[:, :24]),
    automatic,
    linear,
    formats=("bfloat16",),
)
pair(
    "double_module_in_float32",
    "REDUCED",
    lambda x, w: T().tanh(x @ w),
    lambda x, w: T().tanh(x.float() @ w.float()).to(x.dtype),
    lambda rng: [rng.standard_normal((20, 30)), rng.standard_normal((30, 12)) / 5],
    formats=("float32",),
)
pair(
    "attention_in_bfloat16_with_another_scale",
    HIDDEN,
    fused,
    in_format("bfloat16", lambda q, k, v: fused(q, k, v, scale=0.28)),
    qkv,
)
pair(
    "convolution_in_float16_with_a_flipped_kernel",
    "BUG",
    lambda x, w, b: F().conv2d(x, w, b),
    in_format("float16", lambda x, w, b: F().conv2d(x, w.flip(-1), b)),
    images,
)
pair(
    "fake_quantised_weights",
    "REDUCED",
    lambda x, w, b: F().linear(x, w, b),
    lambda x, w, b: F().linear(x, _fake(w), b),
    linear,
    formats=("int8",),
)


def _fake(w):
    step = w.abs().amax(1, keepdim=True) / 127
    return (w / step).round().clamp(-128, 127) * step
