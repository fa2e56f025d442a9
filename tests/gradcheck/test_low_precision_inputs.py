"""Inputs and outputs in float16 and bfloat16 are checked at what their format resolves."""

from functools import partial

import numpy as np
import pytest

import calipers

ml_dtypes = pytest.importorskip("ml_dtypes")
checked = partial(calipers.gradcheck, raise_exception=False)
KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FUNCTIONS = {
    "sin": (np.sin, np.cos),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "exp": (np.exp, np.exp),
    "square": (lambda x: x * x, lambda x: 2 * x),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2),
}
OUTPUTS = {"as the input": None, "float32": np.float32}


def cases(kind, out, function):
    """Yield points, f and its derivative as a function of a factor."""
    f, slope = FUNCTIONS[function]
    dtype, random = KINDS[kind], np.random.default_rng(3)

    def applied(x):
        y = f(x.astype(np.float32))
        return y.astype(OUTPUTS[out] or dtype)

    def vjp(factor):
        def pulled(x, w):
            exact = factor * w.astype(float) * slope(x.astype(float))
            return exact.astype(dtype)

        return pulled

    for _ in range(4):
        yield random.uniform(0.3, 1.5, 3).astype(dtype), applied, vjp


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_gross_mistakes_are_wrong_and_right_derivatives_are_not(kind, function, out, fast_mode):
    right, wrong = [], []
    for x, f, vjp in cases(kind, out, function):
        right.append(checked(f, x, vjp=vjp(1), fast_mode=fast_mode).verdict)
        wrong += [
            checked(f, x, vjp=vjp(factor), fast_mode=fast_mode).verdict for factor in (2, -1, 0)
        ]
    assert {"FAIL", "NONSMOOTH"}.isdisjoint(right)
    assert {"PASS", "NONSMOOTH"}.isdisjoint(wrong)
    assert wrong.count("FAIL") >= 9  # of 12


@pytest.mark.parametrize(("kind", "rtol"), [("float16", 2.0**-5), ("bfloat16", 2.0**-3.5)])
def test_the_tolerance_is_the_root_of_the_spacing(kind, rtol):
    x = np.array([0.5, 1.25]).astype(KINDS[kind])
    report = checked(lambda x: x * x, x, vjp=lambda x, w: 2 * w * x)
    assert (report.verdict, report.rtol) == ("PASS", pytest.approx(rtol))
    # In a format of fewer bits than the inputs, too.
    y = np.array([0.5, 1.25])
    report = checked(lambda x: (x * x).astype(KINDS[kind]), y, vjp=lambda x, w: 2 * w * x)
    assert (report.verdict, report.rtol) == ("PASS", pytest.approx(rtol))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_tensors_of_16_bits_are_checked():
    torch = pytest.importorskip("torch")

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx, w):
            return 2 * w * torch.cos(ctx.saved_tensors[0])

    for kind in (torch.float16, torch.bfloat16):
        x = torch.tensor([0.5, 1.25, -0.75], dtype=kind, requires_grad=True)
        for options in ({}, {"fast_mode": True}, {"check_batched_grad": True}):
            for f in (torch.sin, lambda x: torch.tanh(x).float(), lambda x: x * x):
                assert checked(f, (x,), **options).verdict in ("PASS", "INCONCLUSIVE")
            assert checked(Doubled.apply, (x,), **options).verdict == "FAIL"
        assert checked(torch.sin, (x,), check_forward_ad=True).verdict == "PASS"
