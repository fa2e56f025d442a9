"""Constants that are off by little: from 1e-2, which all see, to what float32's rounding hides.

BUG alone is right where the error is 10 (4 + sqrt n) last places of a typical result or more, n the
longest axis; below that, SUSPECT is right as well.
"""

import math

import numpy as np

from .case import (
    WHOLE,
    Cases,
    conditioned,
    in_float32,
    layer,
    linear,
    narrow,
    normal,
    uniform,
)
from .networks import (
    attention,
    attention_inputs,
    gelu_tanh,
    gru,
    layer_norm,
    norm_inputs,
    recurrent_inputs,
)
from .reductions import horner
from .solvers import eliminate, reflect

CASES = case = Cases()

HIDDEN = "BUG SUSPECT"


def attention_scale_off(size):
    def make(rng):
        return attention, lambda q, k, v: attention(q * (1 + size), k, v), attention_inputs(rng)

    return make


case("BUG", name="attention_scale_off_1e-2")(attention_scale_off(1e-2))
case("BUG", name="attention_scale_off_1e-3")(attention_scale_off(1e-3))
case("BUG", name="attention_scale_off_1e-4")(attention_scale_off(1e-4))
case("BUG", name="attention_scale_off_1e-5")(attention_scale_off(1e-5))


def weights_off(size):
    def make(rng):
        return linear, lambda x, w, b: np.einsum("ij,kj->ik", x, w) * (1 + size) + b, layer(rng)

    return make


case("BUG", name="weights_off_1e-3")(weights_off(1e-3))
case("BUG", name="weights_off_1e-4")(weights_off(1e-4))
case(HIDDEN, name="weights_off_1e-5")(weights_off(1e-5))
case(HIDDEN, name="weights_off_1e-6")(weights_off(1e-6))


@case("BUG", "No float64 on either side.", options={"reference": None})
def weights_off_without_float64(rng):
    f, g, inputs = weights_off(1e-3)(rng)
    return in_float32(f), in_float32(g), inputs


@case("BUG", "Neither side has float64, a third has.", options={"reference": linear})
def weights_off_with_reference(rng):
    f, g, inputs = weights_off(1e-4)(rng)
    return in_float32(f), in_float32(g), inputs


@case("BUG", "One weight of 16384, by 2 %, in one column of results.")
def one_weight_off(rng):
    def g(x, w, b):
        w = w.copy()
        w[40, 77] *= 1.02
        return linear(x, w, b)

    return linear, g, layer(rng)


@case(
    HIDDEN,
    "1e-3 of the weights, in a format whose last place is 4e-3.",
    options={"dtype": "bfloat16"},
)
def weights_off_in_bfloat16(rng):
    f, g, inputs = weights_off(1e-3)(rng)
    return f, g, tuple(narrow(a, "bfloat16") for a in inputs)


@case(HIDDEN, "1e-6 instead of 1e-5, beside a variance of 4: 1e-6 of the result.")
def layer_norm_small_eps(rng):
    return layer_norm, lambda *inputs: layer_norm(*inputs, eps=1e-6), norm_inputs(rng)


@case(HIDDEN, "eps is added to the root, not under it: 4e-6 of the result.")
def layer_norm_eps_outside(rng):
    def g(x, weight, bias):
        centred = x - x.mean(axis=1, keepdims=True)
        return centred / (x.std(axis=1, keepdims=True) + 1e-5) * weight + bias

    return layer_norm, g, norm_inputs(rng)


@case("BUG", "0.045 for 0.044715.")
def gelu_constant_cut(rng):
    return gelu_tanh, lambda x: gelu_tanh(x, 0.045), (2 * normal(rng, 16, 64),)


@case(HIDDEN, "0.797885 for sqrt(2 / pi).")
def gelu_scale_cut(rng):
    return gelu_tanh, lambda x: gelu_tanh(x, scale=0.797885), (normal(rng, 16, 64),)


@case("BUG", "The update gate's bias, by 1e-3.")
def gru_bias_off(rng):
    def g(x, w, u, b):
        b = b.copy()
        b[24:48] += 1e-3
        return gru(x, w, u, b)

    return gru, g, recurrent_inputs(rng, 3)


@case(HIDDEN, "The second coefficient, by 1e-6.")
def coefficient_off(rng):
    def g(x, c):
        c = c.copy()
        c[1] *= 1 + 1e-6
        return horner(x, c)

    return horner, g, (uniform(rng, -1, 1, 16, 20), 1 + uniform(rng, 0, 1, 8))


@case(HIDDEN, "2.71828 for e: 7e-7 of the exponent.")
def base_of_logarithms_cut(rng):
    return np.exp, lambda x: 2.71828**x, (uniform(rng, -2, 2, 16, 32),)


@case(HIDDEN, "3.14159 for pi: 8e-7 of the phase.")
def pi_cut(rng):
    def f(x, pi=math.pi):
        return np.sin(pi * x)

    return f, lambda x: f(x, 3.14159), (uniform(rng, -1, 1, 16, 32),)


@case("BUG", "A float32 pi in float64: 3e-8 of the phase.")
def pi_of_float32_in_float64(rng):
    def f(x, pi=math.pi):
        return np.sin(pi * x)

    return f, lambda x: f(x, float(np.float32(math.pi))), (rng.uniform(-1, 1, (16, 32)),)


def coefficient_off_in_float64(size):
    def make(rng):
        inputs = rng.uniform(-1, 1, (16, 20)), rng.uniform(1, 2, 8)
        return horner, lambda x, c: horner(x, c * (1 + size)), inputs

    return make


case("BUG", name="coefficients_off_1e-12_in_float64")(coefficient_off_in_float64(1e-12))
case(HIDDEN, name="coefficients_off_1e-14_in_float64")(coefficient_off_in_float64(1e-14))


@case("BUG", "By n - 1 instead of n, where n is 1000: 1e-3.")
def variance_of_large_sample(rng):
    return lambda x: x.var(axis=1), lambda x: x.var(axis=1, ddof=1), (normal(rng, 8, 1000, 4),)


@case(HIDDEN, "Below what the condition of 3e4 makes of rounding.", options=WHOLE)
def solve_ill_conditioned_off(rng):
    def g(a, b):
        return reflect(a, b * (1 + 1e-5))

    return eliminate, g, (conditioned(rng, 24, 3e4), normal(rng, 24))


@case(HIDDEN, "A step of 1e-3, off by 1e-3, beside parameters of 1.", options={"batch": (0, 1, 2)})
def adam_step_off(rng):
    def f(p, m, v, rate=1e-3):
        return p - rate * m / (np.sqrt(v) + 1e-8)

    inputs = normal(rng, 16, 32), normal(rng, 16, 32), uniform(rng, 0.5, 2, 16, 32)
    return f, lambda *inputs: f(*inputs, rate=1.001e-3), inputs
