"""Calls of diagnose whose verdict was reported as wrong, or as hard to understand.

They are the scripts of those reports, with labels from how the two functions are written.
"""

import copy
import math

import numpy as np

import calipers

from .case import (
    HIDDEN,
    OK,
    SAME,
    SCIPY,
    SINGLE,
    TORCH,
    WHOLE,
    Cases,
    narrow,
    narrow_singles,
    normal,
    softmax,
    uniform,
)
from .low_precision_models import _lstm, _mlp, _resnet, _transformer

CASES = case = Cases()
pair = CASES.pair
RACE = "BUG NONDETERMINISTIC"


# Kernels of float32 with a bug, which are called with float64 and then use another path.


def falls_back(f, wrong):
    """Return a function that is wrong for float32 alone."""
    return lambda *x: (wrong if x[0].dtype == np.float32 else f)(*x)


def backwards(a, b):
    return a[:, ::-1] @ b[::-1]


def of_a_tile(a, b):
    y = backwards(a, b)
    y[16:32, 16:32] *= np.float32(1 + 3e-5)
    return y


def matrices(rng):
    return list(rng.random((2, 64, 64)).astype(np.float32))


def layer_norm(x, eps=1e-5):
    own = x - x.mean(-1, keepdims=True)
    return own / np.sqrt(x.var(-1, keepdims=True) + x.dtype.type(eps))


def gelu(x):
    return x / (1 + np.exp(x * (-1.5976 - 0.07135 * x * x)))


def rows(rng):
    return [normal(rng, 24, 60)]


FALLING_BACK = {
    "tile": (np.matmul, lambda a, b: of_a_tile(a, b), backwards, matrices),
    "epsilon": (layer_norm, lambda x: layer_norm(x, 1e-3), layer_norm, rows),
    "last_term": (
        lambda x: x.sum(1),
        lambda x: x[:, :-1].sum(1),
        lambda x: x[:, ::-1].sum(1),
        lambda rng: [uniform(rng, 1, 2, 24, 60)],
    ),
    "coefficient": (
        gelu,
        lambda x: x / (1 + np.exp(x * (-1.5976 - 0.0714 * x * x))),
        lambda x: x * (1 / (1 + np.exp(x * (-1.5976 - 0.07135 * x * x)))),
        rows,
    ),
    "temperature": (
        softmax,
        lambda x: softmax(x * x.dtype.type(1.001)),
        lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
        rows,
    ),
    "tap": (
        lambda x: (x[:, :-2] + 2 * x[:, 1:-1] + x[:, 2:]) / 4,
        lambda x: 0.25 * x[:, :-2] + 0.5001 * x[:, 1:-1] + 0.25 * x[:, 2:],
        lambda x: 0.25 * x[:, :-2] + 0.5 * x[:, 1:-1] + 0.25 * x[:, 2:],
        rows,
    ),
    "sine_of_few_terms": (
        np.sin,
        lambda x: x - x**3 / 6 + x**5 / 120 - x**7 / 5040,
        lambda x: 2 * np.sin(x / 2) * np.cos(x / 2),
        lambda rng: [uniform(rng, -1.2, 1.2, 24, 60)],
    ),
    "reciprocal_root": (
        lambda x: 1 / np.sqrt(x),
        lambda x: (y := (1 / np.sqrt(x)) * x.dtype.type(1.003)) * (1.5 - 0.5 * x * y * y),
        lambda x: np.sqrt(1 / x),
        lambda rng: [uniform(rng, 0.1, 9, 24, 60)],
    ),
}
for _name, (_f, _wrong, _other, _inputs) in FALLING_BACK.items():
    _g = falls_back(_other, _wrong)
    _note = "wrong for float32 alone"
    pair(f"kernel_of_a_wrong_{_name}", HIDDEN, _f, _g, _inputs, _note)
    pair(f"kernel_of_a_wrong_{_name}_asked", HIDDEN, _f, _g, _inputs, _note, options=SINGLE)


def _tensors(*shapes):
    def inputs(rng):
        import torch

        return [torch.from_numpy(normal(rng, *shape)) for shape in shapes]

    return inputs


def _gelu(x, approximate="none"):
    import torch.nn.functional as F  # noqa: N812

    return F.gelu(x, approximate=approximate)


def _gelu_kernel(x):
    import torch

    return _gelu(x, "none" if x.dtype == torch.float64 else "tanh")


for _options in ({}, SINGLE):
    pair(
        f"kernel_of_tanh_for_erf{'_asked' if _options else ''}",
        HIDDEN,
        _gelu,
        _gelu_kernel,
        _tensors((32, 64)),
        "the tanh form in float32 alone",
        options=_options,
        needs=TORCH,
    )

# Overflow in a divisor.


def in_single(f):
    def g(x):
        return f(x.astype(np.float32)).astype(x.dtype) if x.dtype == np.float16 else f(x)

    return g


def outliers(size):
    def inputs(rng):
        x = rng.normal(size=(32, 512))
        x[:, 7] = size
        return [x.astype(np.float16)]

    return inputs


for _name, _f, _inputs in (
    ("rms_norm", lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True)), outliers(300)),
    ("unit_vectors", lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)), outliers(300)),
    ("layer_norm", layer_norm, outliers(1000)),
    (
        "shares_of_powers",
        lambda x: x / (x**4).sum(-1, keepdims=True) ** 0.25,
        lambda rng: [(6 * rng.normal(size=(32, 512)) + 6).astype(np.float16)],
    ),
    (
        "damped_by_a_square",
        lambda x: x / (1 + x * x),
        lambda rng: [rng.uniform(200, 900, (32, 64)).astype(np.float16)],
    ),
):
    pair(f"{_name}_that_divides_by_infinity", "RANGE", in_single(_f), _f, _inputs)

# Results in number, and one that underflows.

for _n in (20, 200, 2000):
    pair(
        f"one_less_cosine_over_squares_{_n}",
        "UNSTABLE",
        lambda x: 2 * (np.sin(x / 2) / x) ** 2,
        lambda x: (1 - np.cos(x)) / x**2,
        lambda rng, n=_n: [rng.uniform(1e-5, 1e-4, n)],
        "longdouble loses 2048 times less, and not nothing",
    )


def sine_product(x):
    return np.sin(x) * x


def sine_product_in_half(x):
    return (np.sin(x) * x).astype(np.float16).astype(x.dtype)


def _with_a_small_one(rng):
    x = rng.normal(size=1000).astype(np.float32)
    x[0] = 1e-4
    return [x]


pair(
    "results_of_float16",
    "REDUCED",
    sine_product,
    sine_product_in_half,
    lambda rng: [rng.normal(size=1000).astype(np.float32)],
    "tf32 is the same for most numbers of this size",
    formats=("float16", "tf32"),
)
pair(
    "results_of_float16_of_which_one_is_0",
    "REDUCED",
    sine_product,
    sine_product_in_half,
    _with_a_small_one,
    formats=("float16",),
)


def _fftconvolve(x, h):
    import scipy.signal

    return scipy.signal.fftconvolve(x, h)


pair(
    "convolution_of_decaying_signals_by_transforms",
    f"{SAME} UNSTABLE",
    np.convolve,
    _fftconvolve,
    lambda rng: [
        (rng.uniform(0.5, 1, 500) * np.exp(-np.arange(500) / 20)).astype(np.float32),
        np.exp(-np.arange(60) / 3).astype(np.float32),
    ],
    "rounding in the 2-norm; the small results at the end lose all digits",
    needs=SCIPY,
)
pair(
    "gradient_norm_with_an_epsilon",
    HIDDEN,
    lambda g: g * (1 / np.sqrt((g * g).sum())),
    lambda g: g * (1 / (np.sqrt((g * g).sum()) + g.dtype.type(1e-6))),
    lambda rng: [rng.normal(0, 0.2, (100, 50)).astype(np.float32)],
    "torch's clip_grad_norm_: 7e-8 of each result, which float64 shows",
    options=WHOLE,
)

# Writes that are lost in one call of four.


def _losing(rng, f):
    def g(x):
        y = f(x)
        if rng.random() < 0.25:
            y[rng.integers(len(y))] = 0
        return y

    return g


@case(RACE, "a write that is lost in one call of four", options=WHOLE)
def running_sum_that_loses_a_write(rng):
    return np.cumsum, _losing(rng.spawn(1)[0], np.cumsum), [rng.random(100).astype(np.float32)]


@case(RACE, "the same, of sums in another order", options=WHOLE)
def running_sum_from_the_end_that_loses_a_write(rng):
    def f(x):
        return x.sum() - np.concatenate([[0], x.cumsum()[:-1]]).astype(x.dtype)

    g = _losing(rng.spawn(1)[0], lambda x: x[::-1].cumsum()[::-1].copy())
    return f, g, [rng.random(100).astype(np.float32)]


# Formats that are taken for others.


def attention(product=np.matmul, stored=lambda x: x):
    def f(q, k, v):
        k, v = stored(k), stored(v)
        p = np.exp(product(q, k.swapaxes(-1, -2)) / q.dtype.type(math.sqrt(32)))
        return product(p / p.sum(-1, keepdims=True), v)

    return f


pair(
    "attention_in_tf32",
    "REDUCED",
    attention(),
    attention(lambda a, b: narrow_singles(a, "tf32") @ narrow_singles(b, "tf32")),
    lambda rng: list(normal(rng, 3, 2, 64, 32)),
    formats=("tf32",),
)
pair(
    "attention_whose_cache_is_float16",
    "REDUCED",
    attention(),
    attention(stored=lambda x: narrow(x, "float16")),
    lambda rng: [
        normal(rng, 2, 64, 32),
        normal(rng, 2, 64, 32),
        normal(rng, 2, 64, 32) * np.float32(3e-5),
    ],
    "values below 6e-5 have fewer bits, which no other format has",
    formats=("float16",),
)
pair(
    "matrix_times_identity_in_tf32",
    "REDUCED",
    np.matmul,
    lambda a, b: calipers.emulated_matmul(a, b, "tf32"),
    lambda rng: [normal(rng, 64, 64), np.eye(64, dtype=np.float32)],
    "float16 is the same here: the report should name both",
    formats=("tf32",),
    options=WHOLE,
)


def _accumulated(form):
    """Return a product of bfloat16 matrices whose sums are kept in a format."""

    def f(a, b):
        import torch

        if a.dtype != torch.bfloat16:
            return a @ b
        y = calipers.emulated_matmul(a.float(), b.float(), "bfloat16", accumulate=form)
        return y.to(a.dtype)

    return f


for _k in (300, 600, 2000):
    for _form in ("bfloat16", "float16"):
        pair(
            f"sums_of_{_k}_positive_terms_in_{_form}",
            # Sums in float16 are as exact as bfloat16, up to a factor of less than sqrt(k).
            "REDUCED UNSTABLE" + (" ROUNDING" if _form == "float16" else ""),
            _accumulated("float32"),
            _accumulated(_form),
            lambda rng, k=_k: [x.abs().bfloat16() for x in _tensors((16, k), (k, 16))(rng)],
            "reduced-precision accumulation: named by its format, or as lost digits",
            formats=(_form,),
            options=WHOLE,
            needs=TORCH,
        )


def _alternate(a, b):
    """Multiply float16 matrices as MI200's alternate path does."""
    import torch

    if a.dtype != torch.float16:
        return a @ b
    x, y = (
        torch.where(m.abs() < 2**-14, torch.zeros_like(m), m).bfloat16().float() for m in (a, b)
    )
    return (x @ y).to(a.dtype)


def _half_product(a, b):
    import torch

    return (a.float() @ b.float()).half() if a.dtype == torch.float16 else a @ b


pair(
    "float16_through_bfloat16",
    "REDUCED",
    _half_product,
    _alternate,
    lambda rng: [x.half() for x in _tensors((24, 64), (64, 20))(rng)],
    "PyTorch's notes: the alternate implementation on MI200",
    formats=("bfloat16",),
    options=WHOLE,
    needs=TORCH,
)
pair(
    "hypotenuse_of_two_large_numbers",
    "RANGE",
    lambda a: np.sqrt((a * a).sum()),
    lambda a: np.hypot(*a),
    lambda rng: [np.full(2, 1e20, np.float32)],
    options=WHOLE,
)
pair(
    "column_that_does_not_exist",
    "RAISES",
    lambda x: x[:, 9],
    lambda x: x[:, 10],
    lambda rng: [normal(rng, 4, 10)],
    options=WHOLE,
)

# Modules that follow the precision of their inputs, and modules whose parameters are arguments.


def _seeded(rng):
    import torch

    return torch.random.fork_rng([]), int(rng.integers(2**31))


def _following(depth, follows, rng):
    import torch
    from torch import nn

    fork, seed = _seeded(rng)
    with fork, torch.no_grad():
        torch.manual_seed(seed)
        layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(depth)]
        net, head, x = nn.Sequential(*layers).eval(), nn.Linear(64, 10), torch.randn(12, 64)

    def f(x):
        if follows:
            net.to(x.dtype), head.to(x.dtype)
        with torch.no_grad():
            return head(net(x))

    def g(x):
        if follows:
            net.to(x.dtype), head.to(x.dtype)
        with torch.no_grad():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                h = net(x)
            return head(h.to(x.dtype))

    return f, g, [x]


def _parametric(build, how, rng):
    import torch
    from torch import nn
    from torch.func import functional_call

    fork, seed = _seeded(rng)
    with fork, torch.no_grad():
        torch.manual_seed(seed)
        net, shape, width = build()
        net.eval()
        head, x = nn.Linear(width, 10), torch.randn(*shape)
    parameters = {k: v.detach() for k, v in net.named_parameters()}
    buffers = {k: v.detach() for k, v in net.named_buffers()}

    def cast(tensors, dtype):
        return {k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors.items()}

    def last(h, x):
        return nn.functional.linear(h.to(x.dtype), head.weight.to(x.dtype), head.bias.to(x.dtype))

    def f(x, p):
        with torch.no_grad():
            return last(functional_call(net, {**p, **cast(buffers, x.dtype)}, (x,)), x)

    def g(x, p):
        with torch.no_grad():
            if how == "autocast":
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    return last(functional_call(net, {**p, **cast(buffers, x.dtype)}, (x,)), x)
            low = getattr(torch, how)
            return last(
                functional_call(net, {**cast(p, low), **cast(buffers, low)}, (x.to(low),)), x
            )

    return f, g, [x, parameters]


def _refusing(build, rng):
    """Return a model in bfloat16 that takes float32 alone."""
    f, g, (x, p) = _parametric(build, "bfloat16", rng)

    def only(x):
        if str(x.dtype) != "torch.float32":
            raise TypeError("float32 only")
        return g(x, p)

    return lambda x: f(x, p), only, [x]


for _depth in (1, 6, 12):
    for _follows in (True, False):
        case(
            "REDUCED",
            name=f"autocast_of_{_depth}_layers{'_that_follow' if _follows else ''}",
            formats=("bfloat16",),
            needs=TORCH,
        )(lambda rng, d=_depth, s=_follows: _following(d, s, rng))
_BUILDS = {
    "mlp": lambda: _mlp(4),
    "transformer": lambda: _transformer(2),
    "resnet": lambda: _resnet(2),
    "lstm": lambda: _lstm(2, 32),
}
for _name, _build in _BUILDS.items():
    for _how, _format in (
        ("autocast", "bfloat16"),
        ("bfloat16", "bfloat16"),
        ("half", "float16"),
    ):
        case(
            "REDUCED",
            name=f"{_name}_in_{_how}_of_given_parameters",
            formats=(_format,),
            needs=TORCH,
        )(lambda rng, b=_build, h=_how: _parametric(b, h, rng))
    case(
        "REDUCED",
        name=f"{_name}_that_takes_float32_alone",
        formats=("bfloat16",),
        needs=TORCH,
    )(lambda rng, b=_build: _refusing(b, rng))

# Whole modules in float32: the same function, or a bug in one layer.


def _whole(build, change, rng):
    import torch

    fork, seed = _seeded(rng)
    with fork, torch.no_grad():
        torch.manual_seed(seed)
        net, shape, _ = build()
        net.eval()
        x = torch.randn(*shape)
        for m in net.modules():
            if hasattr(m, "running_var"):
                m.running_mean.normal_(0, 0.1)
                m.running_var.uniform_(0.5, 2)
        other = change(copy.deepcopy(net))

    def without_gradients(net):
        def f(x):
            with torch.no_grad():
                return net(x)

        return f

    return without_gradients(net), without_gradients(other), [x]


def _channels_last(net):
    import torch

    net = net.to(memory_format=torch.channels_last)
    return lambda x: net(x.to(memory_format=torch.channels_last))


def _slow_path(net):
    for layer in net.net.layers:
        layer.activation_relu_or_gelu = 0
    return net


def _folded(net):
    from torch.nn import Identity
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    for block in net.blocks:
        for i in (0, 3):
            block[i] = fuse_conv_bn_eval(block[i], block[i + 1])
            block[i + 1] = Identity()
    return net


def _steps(net):
    import torch

    lstm = net.net

    def f(x):
        for layer in range(lstm.num_layers):
            w, u, b, c0 = (
                getattr(lstm, f"{n}_l{layer}")
                for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            h = c = x.new_zeros(len(x), lstm.hidden_size)
            states = []
            for t in range(x.shape[1]):
                i, forget, new, out = (x[:, t] @ w.T + h @ u.T + b + c0).chunk(4, -1)
                c = forget.sigmoid() * c + i.sigmoid() * new.tanh()
                h = out.sigmoid() * c.tanh()
                states.append(h)
            x = torch.stack(states, 1)
        return x[:, -1]

    return f


def _with_tanh(net):
    from torch import nn

    layer = net.net.layers[1]
    layer.activation, layer.activation_relu_or_gelu = nn.GELU(approximate="tanh"), 0
    return net


def _with_epsilon(eps):
    def change(net):
        (net.net.layers[1].norm1 if hasattr(net, "net") else net.blocks[1][4]).eps = eps
        return net

    return change


for _name, _kinds, _build, _change in (
    ("transformer_by_its_slow_path", OK, "transformer", _slow_path),
    ("resnet_of_channels_last", OK, "resnet", _channels_last),
    ("resnet_of_folded_norms", OK, "resnet", _folded),
    ("lstm_step_by_step", OK, "lstm", _steps),
    ("transformer_of_one_tanh", HIDDEN, "transformer", _with_tanh),
    ("transformer_of_one_smaller_epsilon", HIDDEN, "transformer", _with_epsilon(1e-6)),
    ("transformer_of_one_larger_epsilon", HIDDEN, "transformer", _with_epsilon(1e-4)),
    ("resnet_of_one_larger_epsilon", HIDDEN, "resnet", _with_epsilon(1e-3)),
    ("resnet_of_one_similar_epsilon", HIDDEN, "resnet", _with_epsilon(1.3e-5)),
):
    case(_kinds, name=_name, needs=TORCH)(
        lambda rng, b=_BUILDS[_build], c=_change: _whole(b, c, rng)
    )
