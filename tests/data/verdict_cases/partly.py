"""Pairs of which one side computes a part in float32 whatever it is given, and answers in doubles.

Labelled before the rule that tells such parts. In half of the pairs that part is all that differs:
angles, a norm, weights, a layer in between. In the others the same side has a mistake as well, that
is seen beside float32's rounding. A table that no input changes is a table of other numbers, as far
as can be seen: SUSPECT is right there, too.
"""

import numpy as np

from .case import HIDDEN, SAME, WHOLE, Cases, normal, softmax, uniform

CASES = case = Cases()

HELD = f"{SAME} AMPLIFIED REDUCED"
TABLE = f"{SAME} REDUCED SUSPECT"
SINGLE = np.float32


def kind_of(x, part):
    """Return in what a side computes its part: in float32; or in doubles, and wider as x is."""
    return np.dtype(part or np.result_type(x.real.dtype, np.float64)).type


# Angles of times and positions.


def wave(part=None, rate=2.7, factor=1.0, phase=0.0, wrap=None, function=np.cos):
    def f(x, t):
        kind = kind_of(x, part)
        angles = (t if wrap is None else t % wrap).astype(kind) * kind(rate) + kind(phase)
        return x * x.dtype.type(factor) * function(angles).astype(x.dtype)

    return f


def at_times(rng, most=100):
    return [normal(rng, 20, 40), uniform(rng, 0, most, 20, 40)]


def at_integers(rng, most=8192):
    return [normal(rng, 20, 40), rng.integers(0, most, (20, 40))]


@case(HELD, "the angles are of float32")
def wave_of_float32_angles(rng):
    return wave(), wave(SINGLE), at_times(rng)


@case(HELD, "the angles of the first side are of float32")
def wave_of_float32_angles_first(rng):
    return wave(SINGLE), wave(), at_times(rng)


@case(HELD, "the angles of integer times up to 8192 are of float32")
def wave_of_float32_angles_at_integers(rng):
    return wave(), wave(SINGLE), at_integers(rng)


@case(HELD, "the angles of both are of float32, and computed otherwise")
def wave_of_float32_angles_on_both_sides(rng):
    def g(x, t):
        return x * np.exp(1j * (t.astype(SINGLE) * SINGLE(2.7)).astype(np.complex64)).real

    return wave(SINGLE), g, at_times(rng)


@case("REDUCED", "of doubles, whose times are rounded to float32", formats=("float32",))
def wave_of_doubles_at_float32_times(rng):
    x, t = at_times(rng)
    return wave(), wave(SINGLE), [x.astype(float), rng.uniform(0, 100, t.shape)]


@case("REDUCED", "of doubles, by angles of integer times in float32", formats=("float32",))
def wave_of_doubles_at_integers(rng):
    x, t = at_integers(rng)
    return wave(), wave(SINGLE), [x.astype(float), t]


@case(HIDDEN, "a rate that is off by 1e-5, and angles of float32")
def wave_of_another_rate(rng):
    return wave(), wave(SINGLE, rate=2.7 * (1 + 1e-5)), at_times(rng)


@case(HIDDEN, "a rate that is off by 1e-4, at integer times, and angles of float32")
def wave_of_another_rate_at_integers(rng):
    return wave(), wave(SINGLE, rate=2.7 * (1 + 1e-4)), at_integers(rng)


@case(HIDDEN, "a factor that is off by 1e-4, and angles of float32")
def wave_of_another_factor(rng):
    return wave(), wave(SINGLE, factor=1.0001), at_times(rng)


@case(HIDDEN, "a factor that is off by 1e-3, at integer times, and angles of float32")
def wave_of_another_factor_at_integers(rng):
    return wave(), wave(SINGLE, factor=1.001), at_integers(rng)


@case(HIDDEN, "on the first side a phase that is off by 1e-4, and angles of float32")
def wave_of_another_phase(rng):
    return wave(SINGLE, phase=1e-4), wave(), at_times(rng)


@case(HIDDEN, "sines for cosines, and angles of float32")
def wave_of_sines(rng):
    return wave(), wave(SINGLE, function=np.sin), at_times(rng)


@case(HIDDEN, "times that wrap at 4096, and angles of float32")
def wave_of_wrapped_times(rng):
    return wave(), wave(SINGLE, wrap=4096), at_integers(rng)


@case(HIDDEN, "the last result is forgotten, and angles are of float32")
def wave_without_its_end(rng):
    def g(x, t):
        y = wave(SINGLE)(x, t)
        y[-1, -1] = 0
        return y

    return wave(), g, at_times(rng)


# Rows that are turned, and encodings of positions.


def turned(part=None, base=10000.0, shift=0, sign=1):
    def f(x, p):
        kind = kind_of(x, part)
        rates = kind(base) ** (-np.arange(16, dtype=kind) / kind(16))
        angles = (p + shift).astype(kind)[:, None] * rates
        c, s = np.cos(angles).astype(x.dtype), sign * np.sin(angles).astype(x.dtype)
        u, v = x[:, :16], x[:, 16:]
        return np.concatenate([u * c - v * s, v * c + u * s], axis=1)

    return f


def encoded(part=None, terms=16, scale=1.0):
    def f(x, p):
        kind = kind_of(x, part)
        angles = p.astype(kind)[:, None] * kind(10000.0) ** (-np.arange(16, dtype=kind) / kind(16))
        angles[:, terms:] = 0
        return x + x.dtype.type(scale) * np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def in_own(x, p):
        return f(x, p).astype(x.dtype)

    return in_own


def in_rows(rng, most=2048):
    return [normal(rng, 60, 32), np.sort(rng.integers(0, most, 60))]


@case(HELD, "rotary positions, whose angles are of float32")
def rows_turned_by_float32_angles(rng):
    return turned(), turned(SINGLE), in_rows(rng)


@case(HELD, "an encoding of positions that is of float32, added")
def encoding_of_float32_angles(rng):
    return encoded(), encoded(SINGLE), in_rows(rng)


@case(HIDDEN, "positions from 1, and angles of float32")
def rows_turned_from_one(rng):
    return turned(), turned(SINGLE, shift=1), in_rows(rng)


@case(HIDDEN, "a base of 10010, and angles of float32")
def rows_turned_by_a_base_nearby(rng):
    return turned(), turned(SINGLE, base=10010.0), in_rows(rng)


@case(HIDDEN, "turned the other way, and angles of float32")
def rows_turned_the_other_way(rng):
    return turned(), turned(SINGLE, sign=-1), in_rows(rng)


@case(HIDDEN, "the last rate is 0, and angles are of float32")
def encoding_without_its_last_rate(rng):
    return encoded(), encoded(SINGLE, terms=15), in_rows(rng)


@case(HIDDEN, "an encoding that is 1.001 times as large, and of float32")
def encoding_of_another_scale(rng):
    return encoded(), encoded(SINGLE, scale=1.001), in_rows(rng)


# Networks: softmax, norms and layers in between.


def attention(part=None, scale=32**-0.5, causal=False):
    def f(q, k, v):
        scores = (q @ k.T * q.dtype.type(scale)).astype(kind_of(q, part))
        if causal:
            scores[np.triu_indices(len(q), 1)] = -np.inf
        return softmax(scores).astype(q.dtype) @ v

    return f


def heads(rng):
    return [normal(rng, 40, 32) for _ in range(3)]


def layer_norm(part=None, eps=1e-5, ddof=0):
    def f(x, weight):
        own = x.astype(kind_of(x, part))
        mean, spread = own.mean(axis=1, keepdims=True), own.var(axis=1, keepdims=True, ddof=ddof)
        return ((own - mean) / np.sqrt(spread + own.dtype.type(eps))).astype(x.dtype) * weight

    return f


def scaled(part=None, eps=0.0):
    def f(x):
        own = x.astype(kind_of(x, part))
        norm = np.sqrt((own * own).sum(axis=1, keepdims=True)) + own.dtype.type(eps)
        return x / norm.astype(x.dtype)

    return f


def two_layers(part=None, with_bias=True):
    def f(x, first, second, bias):
        hidden = np.tanh((x @ first).astype(kind_of(x, part))).astype(x.dtype)
        return hidden @ second + bias if with_bias else hidden @ second

    return f


def layers(rng):
    return [normal(rng, 30, 20), normal(rng, 20, 24) / 4, normal(rng, 24, 8), normal(rng, 8)]


@case(HELD, "a softmax of float32", options=WHOLE)
def attention_by_a_float32_softmax(rng):
    return attention(), attention(SINGLE), heads(rng)


@case(HELD, "rows are made standard in float32")
def layer_norm_in_float32(rng):
    return layer_norm(), layer_norm(SINGLE), [normal(rng, 30, 64), normal(rng, 64)]


@case(HELD, "norms are of float32")
def rows_by_float32_norms(rng):
    return scaled(), scaled(SINGLE), [normal(rng, 40, 30)]


@case(HELD, "a hidden layer is of float32")
def hidden_layer_in_float32(rng):
    return two_layers(), two_layers(SINGLE), layers(rng)


@case(HIDDEN, "scores by 0.17 and not by the root of 1/32, and a softmax of float32", options=WHOLE)
def attention_by_a_rounded_scale(rng):
    return attention(), attention(SINGLE, scale=0.17678), heads(rng)


@case(HIDDEN, "what comes later is left out, and a softmax of float32", options=WHOLE)
def attention_that_is_causal(rng):
    return attention(), attention(SINGLE, causal=True), heads(rng)


@case(HIDDEN, "an epsilon of 1e-3, and rows made standard in float32")
def layer_norm_of_another_epsilon(rng):
    return layer_norm(), layer_norm(SINGLE, 1e-3), [normal(rng, 30, 64), normal(rng, 64)]


@case(HIDDEN, "spreads by n - 1, and rows made standard in float32")
def layer_norm_by_count_less_one(rng):
    return layer_norm(), layer_norm(SINGLE, ddof=1), [normal(rng, 30, 64), normal(rng, 64)]


@case(HIDDEN, "1e-4 is added to norms, which are of float32")
def rows_by_larger_norms(rng):
    return scaled(), scaled(SINGLE, 1e-4), [normal(rng, 40, 30)]


@case(HIDDEN, "no bias is added, and a hidden layer is of float32")
def hidden_layer_without_bias(rng):
    *arrays, bias = layers(rng)
    return two_layers(), two_layers(SINGLE, with_bias=False), [*arrays, bias / 1024]


# Weights of distances, fractions of places, phases, decays.


def smoothed(part=None, width=0.3):
    def f(at, y):
        own = at.astype(kind_of(y, part))
        d = (own[:, None] - own) / own.dtype.type(width)
        w = np.exp(-d * d / 2).astype(y.dtype)
        return w @ y / w.sum(axis=1)

    return f


def resampled(part=None, shift=0.0):
    def f(y, at):
        k = np.clip(np.floor(at), 0, len(y) - 2).astype(int)
        own = (at - k.astype(at.dtype)).astype(kind_of(y, part))
        share = (own**2 * (3 - 2 * own)).astype(y.dtype) + y.dtype.type(shift)
        return (1 - share) * y[k] + share * y[k + 1]

    return f


def rotated(part=None, sign=1):
    def f(z, phase):
        own = phase.astype(kind_of(z, part)) * sign
        return z * (np.cos(own) + 1j * np.sin(own)).astype(z.dtype)

    return f


def decayed(part=None, rate=0.01):
    def f(x, steps):
        kind = kind_of(x, part)
        return x * np.exp(-kind(rate) * steps.astype(kind)).astype(x.dtype)

    return f


def pulled(part=None, softened=0.0):
    """Return the pull of bodies on one another, by distances that may be held in float32."""

    def f(x, m):
        d = x[:, None] - x
        r = np.sqrt((d * d).sum(axis=2) + x.dtype.type(softened) + np.eye(len(x), dtype=x.dtype))
        r = r.astype(kind_of(x, part))
        return ((m / r**3).astype(x.dtype)[:, :, None] * d).sum(axis=1)

    return f


def complex_normal(rng, *shape):
    z = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return z.astype(np.complex64)


@case(HELD, "weights of distances are of float32", options=WHOLE)
def smoothing_by_float32_weights(rng):
    return smoothed(), smoothed(SINGLE), [uniform(rng, 0, 3, 50), normal(rng, 50)]


@case(HELD, "smooth weights of fractions are of float32", options=WHOLE)
def resampling_by_float32_fractions(rng):
    return resampled(), resampled(SINGLE), [normal(rng, 40), uniform(rng, 0, 38, 300)]


@case(HELD, "phases are of float32, and results complex")
def phases_in_float32(rng):
    return rotated(), rotated(SINGLE), [complex_normal(rng, 20, 30), uniform(rng, -9, 9, 20, 30)]


@case(HELD, "exponents of integer steps are of float32")
def decay_by_float32_exponents(rng):
    return decayed(), decayed(SINGLE), [normal(rng, 20, 30), rng.integers(0, 900, (20, 30))]


@case(HELD, "distances are held in float32", options=WHOLE)
def pull_by_float32_distances(rng):
    return pulled(), pulled(SINGLE), [normal(rng, 30, 3), uniform(rng, 1, 2, 30)]


@case(HIDDEN, "a width of 0.3003, and weights of float32", options=WHOLE)
def smoothing_by_another_width(rng):
    return smoothed(), smoothed(SINGLE, 0.3003), [uniform(rng, 0, 3, 50), normal(rng, 50)]


@case(HIDDEN, "weights are 1e-4 too large, and of float32", options=WHOLE)
def resampling_with_a_shift(rng):
    return resampled(), resampled(SINGLE, 1e-4), [normal(rng, 40), uniform(rng, 0, 38, 300)]


@case(HIDDEN, "phases of opposite sign, and of float32")
def phases_of_opposite_sign(rng):
    given = [complex_normal(rng, 20, 30), uniform(rng, -9, 9, 20, 30)]
    return rotated(), rotated(SINGLE, -1), given


@case(HIDDEN, "a rate of 0.010001, and exponents of float32")
def decay_by_another_rate(rng):
    given = [normal(rng, 20, 30), rng.integers(0, 900, (20, 30))]
    return decayed(), decayed(SINGLE, 0.010001), given


@case(
    HIDDEN, "squares of distances are 1e-4 too large, and distances held in float32", options=WHOLE
)
def pull_by_softened_distances(rng):
    return pulled(), pulled(SINGLE, 1e-4), [normal(rng, 30, 3), uniform(rng, 1, 2, 30)]


# What is summed, and tables that no input changes.


@case(HELD, "means are of float32")
def less_its_float32_mean(rng):
    def f(x):
        kind = np.result_type(x.dtype, np.float64)
        return x - x.mean(axis=1, keepdims=True, dtype=kind).astype(x.dtype)

    def g(x):
        return x - x.mean(axis=1, keepdims=True, dtype=np.float32).astype(x.dtype)

    return f, g, [normal(rng, 20, 60) + 1]


@case(HIDDEN, "means by n - 1, and of float32")
def less_a_larger_mean(rng):
    def f(x):
        kind = np.result_type(x.dtype, np.float64)
        return x - x.mean(axis=1, keepdims=True, dtype=kind).astype(x.dtype)

    def g(x):
        own = x.astype(np.float32)
        return x - (own.sum(axis=1, keepdims=True) / np.float32(59)).astype(x.dtype)

    return f, g, [normal(rng, 20, 60) + 1]


@case(f"{SAME} EQUAL", "a mask of float32, which is exact")
def mask_of_float32(rng):
    mask = np.tril(np.ones((20, 20)))

    def f(x):
        return softmax(np.where(mask, x, x.dtype.type(-1e9)))

    def g(x):
        own = (1 - mask).astype(np.float32) * np.float32(-1e9)
        return softmax(np.where(mask, x, own))

    return f, g, [normal(rng, 20, 20)]


# Processors whose libraries sum both products in one order give equal bits.
@case(f"EQUAL {TABLE}", "weights that are stored in float32")
def weights_stored_in_float32(rng):
    weights = rng.standard_normal((30, 10))

    def f(x):
        return x @ weights.astype(x.dtype)

    def g(x):
        return (weights.T.astype(np.float32).astype(x.dtype) @ x.T).T

    return f, g, [normal(rng, 20, 30)]


@case(TABLE, "a window that is stored in float32, by its half")
def window_stored_in_float32(rng):
    def f(x):
        return x * np.hanning(64).astype(x.dtype)

    def g(x):
        angles = np.arange(64, dtype=np.float32) * np.float32(2 * np.pi / 63)
        return x * (np.float32(0.5) - np.float32(0.5) * np.cos(angles))

    return f, g, [normal(rng, 20, 64)]


@case(HIDDEN, "a window that is one place short, and stored in float32")
def window_of_one_place_less(rng):
    def f(x):
        return x * np.hanning(64).astype(x.dtype)

    def g(x):
        return x * np.hanning(65)[:64].astype(np.float32)

    return f, g, [normal(rng, 20, 64)]
