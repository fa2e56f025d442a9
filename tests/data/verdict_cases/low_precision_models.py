"""Whole models of torch in a format of few bits, compared with the same models in float32.

They are as users have them: weights in float32, which functions capture. The right ones are
REDUCED, whatever the model. In the others a bug is planted in one layer, and no verdict but BUG and
SUSPECT reports it. Each model is made, and its bug chosen, by the seed.
"""

import copy
from functools import partial

from .case import HIDDEN, TORCH, Cases

CASES = Cases()
BUGS = Cases()


def _mlp(depth, initial=True):
    from torch import nn

    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(depth)]
    if initial:
        for layer in layers:
            nn.init.kaiming_normal_(layer[0].weight, nonlinearity="relu")
            nn.init.zeros_(layer[0].bias)
    return nn.Sequential(*layers), (12, 64), 64


def _transformer(depth):
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(
        64, 4, 128, batch_first=True, norm_first=True, activation="gelu"
    )

    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
            self.offset = 1

        def forward(self, x):
            ones = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
            return self.net(x, mask=ones.triu(self.offset))

    return Causal(), (2, 16, 64), 64


def _resnet(depth, width=16):
    import torch
    from torch import nn

    def block():
        convolutions = [nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2)]
        norms = [nn.BatchNorm2d(width) for _ in range(2)]
        return nn.Sequential(convolutions[0], norms[0], nn.ReLU(), convolutions[1], norms[1])

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, width, 3, padding=1)
            self.blocks = nn.ModuleList(block() for _ in range(depth))

        def forward(self, x):
            x = self.stem(x)
            for layer in self.blocks:
                x = torch.relu(x + layer(x))
            return x.mean((2, 3))

    return Residual(), (4, 3, 16, 16), width


def _cnn():
    from torch import nn

    return (
        nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        ),
        (4, 3, 16, 16),
        16,
    )  # fmt: skip


def _lstm(layers, width):
    from torch import nn

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.LSTM(32, width, layers, batch_first=True)
            self.last = -1

        def forward(self, x):
            return self.net(x)[0][:, self.last]

    return Last(), (4, 20, 32), width


MODELS = {
    "mlp_of_2": partial(_mlp, 2),
    "mlp_of_4": partial(_mlp, 4),
    "mlp_of_4_by_default": partial(_mlp, 4, initial=False),
    "transformer_of_2": partial(_transformer, 2),
    "transformer_of_4": partial(_transformer, 4),
    "resnet_of_2": partial(_resnet, 2),
    "resnet_of_4": partial(_resnet, 4),
    "cnn": _cnn,
    "lstm": partial(_lstm, 2, 64),
    "lstm_of_one_layer": partial(_lstm, 1, 48),
}
FORMATS = {
    "autocast": "bfloat16",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "int8": "int8",
}
# Torch's dynamic quantisation knows no convolutions.
QUANTISED = (
    "mlp_of_2",
    "mlp_of_4",
    "mlp_of_4_by_default",
    "lstm",
    "lstm_of_one_layer",
    "transformer_of_2",
)


def _epsilon(net):
    from torch import nn

    norms = [m for m in net.modules() if isinstance(m, (nn.LayerNorm, nn.BatchNorm2d))]
    norms[len(norms) // 2].eps = 1e-3


def _tanh(net):
    from torch import nn

    for parent in [m for m in net.modules() if len(list(m.children()))][-1:]:
        for name, child in parent.named_children():
            if isinstance(child, nn.GELU):
                setattr(parent, name, nn.GELU(approximate="tanh"))
    for layer in [m for m in net.modules() if isinstance(m, nn.TransformerEncoderLayer)][-1:]:
        layer.activation = nn.GELU(approximate="tanh")
        layer.activation_relu_or_gelu = 0


def _scale(net):
    import torch

    weights = [p for p in net.parameters() if p.ndim > 1]
    with torch.no_grad():
        weights[len(weights) // 2].mul_(1.01)


def _off_by_one(net):
    if hasattr(net, "offset"):
        net.offset = 2
    else:
        net.last = -2


MISTAKES = {
    "mlp": (_tanh, _scale, _tanh),
    "transformer": (_epsilon, _tanh, _off_by_one, _scale),
    "resnet": (_epsilon, _scale, _epsilon),
    "cnn": (_scale,),
    "lstm": (_scale, _off_by_one),
}


def _make(model, how, planted, rng):
    import torch
    from torch import nn

    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(seed := int(rng.integers(2**31)))
        net, shape, width = MODELS[model]()
        net.eval()
        head, x = nn.Linear(width, 10), torch.randn(*shape)
        low = copy.deepcopy(net)
        if planted:
            mistakes = MISTAKES[model.split("_")[0]]
            mistakes[seed % len(mistakes)](low)
        if how == "int8":
            for layer in low.modules():
                if isinstance(layer, nn.TransformerEncoderLayer):
                    layer.activation_relu_or_gelu = 0  # the fast path reads quantised weights
            low = torch.ao.quantization.quantize_dynamic(
                low, {nn.Linear, nn.LSTM}, dtype=torch.qint8
            )
        elif how != "autocast":
            low = low.to(getattr(torch, how))

    def f(x):
        with torch.no_grad():
            return head(net(x))

    def g(x):
        with torch.no_grad():
            if how == "autocast":
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    return head(low(x).float())
            return head(low(x if how == "int8" else x.to(getattr(torch, how))).float())

    return f, g, [x]


for _model in MODELS:
    for _how, _format in FORMATS.items():
        if _how == "int8" and _model not in QUANTISED:
            continue
        CASES("REDUCED", name=f"{_model}_in_{_how}", formats=(_format,), needs=TORCH)(
            partial(_make, _model, _how, False)
        )
        BUGS(HIDDEN, name=f"{_model}_in_{_how}_with_a_bug", needs=TORCH)(
            partial(_make, _model, _how, True)
        )
