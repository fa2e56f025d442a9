"""Pairs that people who port models, simulations and analyses compare every day.

Labelled when the rules stood, and before any was asked. A port has another order of the same steps,
another layout, or another library's way; or one of the mistakes that ports have: a convention of
elsewhere, an index, a border, a constant of few digits.
"""

import math
from itertools import pairwise

import numpy as np

from .case import HIDDEN, SAME, SCIPY, WARPED, WHOLE, Cases, conditioned, double, normal, softmax
from .case import uniform as between

CASES = case = Cases()

EPS = 1e-5


# Layers of networks.


def turned_pairs(x, halves=False):
    """Turn pairs of neighbours, or of the two halves, by angles of each position."""
    n, d = x.shape
    angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(d // 2) / (d // 2))
    c, s = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    y = np.empty_like(x)
    first, second = (
        (slice(0, d // 2), slice(d // 2, d)) if halves else (slice(0, d, 2), slice(1, d, 2))
    )
    y[:, first] = x[:, first] * c - x[:, second] * s
    y[:, second] = x[:, first] * s + x[:, second] * c
    return y


@case(f"{SAME} EQUAL", "pairs as complex numbers; equal where no product is fused", options=WHOLE)
def pairs_turned_as_complex_numbers(rng):
    def g(x):
        n, d = x.shape
        z = x[:, ::2] + 1j * x[:, 1::2]
        angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(d // 2) / (d // 2))
        z = z * np.exp(1j * angles).astype(z.dtype)
        return np.stack([z.real, z.imag], axis=-1).reshape(n, d)

    return turned_pairs, g, [normal(rng, 50, 32)]


@case("BUG", "pairs of the two halves, for weights of neighbours", options=WHOLE)
def halves_turned_for_neighbours(rng):
    return turned_pairs, lambda x: turned_pairs(x, halves=True), [normal(rng, 50, 32)]


def attend(window=None, cap=None, queries_of=None):
    """Return attention of eight heads of queries to two of keys."""

    def f(q, k, v):
        share = {"tile": np.tile, "repeat": np.repeat}[queries_of or "repeat"]
        times = (4, 1, 1) if share is np.tile else 4
        k, v = (share(a, times) if share is np.tile else share(a, times, axis=0) for a in (k, v))
        scores = q @ k.swapaxes(1, 2) / q.dtype.type(math.sqrt(q.shape[-1]))
        if cap:
            scores = q.dtype.type(cap) * np.tanh(scores / q.dtype.type(cap))
        if window:
            at = np.arange(q.shape[1])
            far = at[:, None] - at
            scores = np.where((far >= 0) & (far < window), scores, -np.inf)
        return softmax(scores) @ v

    return f


def heads(rng):
    return [normal(rng, 8, 24, 16), normal(rng, 2, 24, 16), normal(rng, 2, 24, 16)]


@case(SAME, "keys that are shared by an index of einsum", options=WHOLE)
def shared_keys_by_einsum(rng):
    def g(q, k, v):
        q = q.reshape(2, 4, *q.shape[1:])
        scores = np.einsum("hgqd,hkd->hgqk", q, k) * q.dtype.type(1 / math.sqrt(q.shape[-1]))
        y = np.einsum("hgqk,hkd->hgqd", softmax(scores), v)
        return y.reshape(8, *y.shape[2:])

    return attend(), g, heads(rng)


@case("BUG", "keys that are tiled, for repeated ones", options=WHOLE)
def shared_keys_that_are_tiled(rng):
    return attend(), attend(queries_of="tile"), heads(rng)


@case("BUG", "a window of one position more", options=WHOLE)
def window_of_one_position_more(rng):
    return attend(window=8), attend(window=9), heads(rng)


@case(HIDDEN, "the scores' cap at 50 is forgotten: a thousandth of some", options=WHOLE)
def scores_without_their_cap(rng):
    return attend(cap=50.0), attend(), heads(rng)


@case("BUG", "a row in which all is masked gives 0, and NaN", options=WHOLE)
def rows_of_which_all_is_masked(rng):
    def f(x, mask):
        return softmax(np.where(mask, x, -np.inf))

    def g(x, mask):
        e = np.where(mask, np.exp(x - x.max(axis=-1, keepdims=True)), 0)
        total = e.sum(axis=-1, keepdims=True)
        return np.divide(e, total, out=np.zeros_like(e), where=total > 0)

    mask = rng.random((20, 30)) < 0.5
    mask[3] = False
    return f, g, [normal(rng, 20, 30), mask]


def in_groups(x, w, groups=4, shuffled=False):
    """Return a convolution of kernel 3 whose groups of channels do not mix."""
    n, channels, length = x.shape
    own = channels // groups
    x = (
        x.reshape(n, own, groups, length).swapaxes(1, 2)
        if shuffled
        else x.reshape(n, groups, own, length)
    )
    windows = np.lib.stride_tricks.sliding_window_view(x, 3, axis=-1)
    y = np.einsum("ngclk,gock->ngol", windows, w.reshape(groups, -1, own, 3))
    return y.reshape(n, -1, length - 2)


def grouped(rng):
    return [normal(rng, 6, 16, 30), normal(rng, 24, 4, 3)]


@case(SAME, "group by group, and tap by tap")
def convolution_group_by_group(rng):
    def g(x, w):
        parts = []
        for own, weights in zip(np.split(x, 4, axis=1), np.split(w, 4), strict=True):
            taps = [weights[:, :, k] @ own[:, :, k : k + x.shape[2] - 2] for k in range(3)]
            parts.append(sum(taps))
        return np.concatenate(parts, axis=1)

    return in_groups, g, grouped(rng)


@case("BUG", "channels go to groups in turn")
def convolution_of_groups_in_turn(rng):
    return in_groups, lambda x, w: in_groups(x, w, shuffled=True), grouped(rng)


@case("BUG", "an even kernel, whose odd element of padding is on the other side")
def even_kernel_padded_in_front(rng):
    def convolved(before, after):
        def f(x, w):
            x = np.pad(x, [(0, 0), (before, after)])
            return np.lib.stride_tricks.sliding_window_view(x, len(w), axis=1) @ w

        return f

    return convolved(1, 2), convolved(2, 1), [normal(rng, 20, 40), normal(rng, 4)]


def batch_norm(ddof):
    """Return a step of training: results, and what is kept of the batch."""

    def f(x, mean, spread):
        own, var = x.mean(axis=0), x.var(axis=0)
        y = (x - own) / np.sqrt(var + x.dtype.type(EPS))
        kept = x.dtype.type(0.9), x.dtype.type(0.1)
        var = var * x.dtype.type(len(x) / (len(x) - ddof))
        return y, kept[0] * mean + kept[1] * own, kept[0] * spread + kept[1] * var

    return f


@case(
    "BUG",
    "what is kept of a batch of 256 is the biased variance: 4e-4 of one of three results",
    options=WHOLE,
)
def kept_variance_that_is_biased(rng):
    return (
        batch_norm(1),
        batch_norm(0),
        [normal(rng, 256, 16), normal(rng, 16), between(rng, 0.5, 2, 16)],
    )


@case(SAME, "as a group norm of groups of one channel")
def instance_norm_by_groups(rng):
    def f(x):
        own = x - x.mean(axis=-1, keepdims=True)
        return own / np.sqrt(np.square(own).mean(axis=-1, keepdims=True) + x.dtype.type(EPS))

    def g(x):
        rows = x.reshape(-1, x.shape[-1])
        mean, var = rows.mean(axis=1), rows.var(axis=1)
        scale = 1 / np.sqrt(var + x.dtype.type(EPS))
        return (rows * scale[:, None] - (mean * scale)[:, None]).reshape(x.shape)

    return f, g, [normal(rng, 8, 6, 50)]


@case(SAME, "x * sigmoid(x), by the hyperbolic tangent of the half")
def silu_by_tanh(rng):
    def f(x):
        return x / (1 + np.exp(-x))

    def g(x):
        half = x * x.dtype.type(0.5)
        return half * np.tanh(half) + half

    return f, g, [normal(rng, 40, 50)]


@case(SAME, "tanh(log(1 + exp(x))) as a quotient of powers")
def mish_as_a_quotient(rng):
    def g(x):
        e = np.exp(x)
        n = e * (e + 2)
        return x * (n / (n + 2))

    return lambda x: x * np.tanh(np.logaddexp(x, x.dtype.type(0))), g, [normal(rng, 40, 50)]


@case("BUG", "0.1667 for 1/6: off by 2e-4 of what is between the bends")
def hard_swish_of_four_digits(rng):
    def f(x):
        return x * np.clip(x + 3, 0, 6) / 6

    def g(x):
        return x * np.clip(x * x.dtype.type(0.1667) + x.dtype.type(0.5), 0, 1)

    return f, g, [2 * normal(rng, 40, 50)]


@case("EQUAL", "channels to pixels, by axes and by loops")
def pixels_of_channels(rng):
    def f(x):
        n, c, h, w = x.shape
        y = x.reshape(n, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3)
        return y.reshape(n, c // 4, 2 * h, 2 * w)

    def g(x):
        n, c, h, w = x.shape
        y = np.empty((n, c // 4, 2 * h, 2 * w), x.dtype)
        for k in range(4):
            y[:, :, k // 2 :: 2, k % 2 :: 2] = x[:, k::4]
        return y

    return f, g, [normal(rng, 3, 8, 5, 6)]


@case("BUG", "channels to pixels, of which the channel of results is the inner index")
def pixels_of_other_channels(rng):
    def f(x):
        n, c, h, w = x.shape
        y = x.reshape(n, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3)
        return y.reshape(n, c // 4, 2 * h, 2 * w)

    def g(x):
        n, c, h, w = x.shape
        y = x.reshape(n, 2, 2, c // 4, h, w).transpose(0, 3, 4, 1, 5, 2)
        return y.reshape(n, c // 4, 2 * h, 2 * w)

    return f, g, [normal(rng, 3, 8, 5, 6)]


@case("BUG", "the nearest pixel of a place that is rounded, for one that is cut")
def nearest_pixels_that_are_rounded(rng):
    def resized(way):
        def f(x):
            at = way(np.arange(16) * (x.shape[1] / 16)).astype(int)
            return x[:, np.minimum(at, x.shape[1] - 1)]

        return f

    return resized(np.floor), resized(np.rint), [normal(rng, 20, 40)]


@case("BUG", "angles of times by half - 1 steps, for half")
def times_encoded_by_one_step_less(rng):
    def encoded(less):
        def f(t):
            rates = np.exp(-math.log(10000) * np.arange(16) / (16 - less)).astype(t.dtype)
            angles = t[:, None] * rates
            return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

        return f

    return encoded(0), encoded(1), [between(rng, 0, 1, 50)]


@case("BUG", "numbers that are kept are others: of another seed")
def dropout_of_another_seed(rng):
    def dropped(seed):
        def f(x):
            kept = np.random.default_rng(seed).random(x.shape) >= 0.1
            return np.where(kept, x / x.dtype.type(0.9), 0)

        return f

    return dropped(1), dropped(2), [normal(rng, 40, 50)]


@case(f"{SAME} EQUAL", "of one seed, times 1 / 0.9")
def dropout_of_one_seed(rng):
    def kept(x):
        return np.random.default_rng(1).random(x.shape) >= 0.1

    def f(x):
        return np.where(kept(x), x / x.dtype.type(0.9), 0)

    return f, lambda x: x * kept(x) * x.dtype.type(1 / 0.9), [normal(rng, 40, 50)]


@case("BUG", "one probability more is kept, of which the sum is below the share", options=WHOLE)
def nucleus_of_one_more(rng):
    def nucleus(inclusive):
        def f(x):
            p = softmax(x)
            order = np.argsort(-p, axis=1)
            ranked = np.take_along_axis(p, order, axis=1)
            before = np.cumsum(ranked, axis=1) - (0 if inclusive else ranked)
            ranked = np.where(before < 0.8, ranked, 0)
            y = np.empty_like(p)
            np.put_along_axis(y, order, ranked, axis=1)
            return y / y.sum(axis=1, keepdims=True)

        return f

    return nucleus(False), nucleus(True), [2 * normal(rng, 20, 30)]


@case("BUG", "negative scores are divided, too, by what is to make them less likely")
def penalty_that_helps(rng):
    def f(x):
        return np.where(x > 0, x / x.dtype.type(1.1), x * x.dtype.type(1.1))

    return f, lambda x: x / x.dtype.type(1.1), [normal(rng, 20, 30)]


# Losses and steps of training.


@case("BUG", "shares of K - 1 others, for K: a thousandth of the loss")
def labels_smoothed_among_the_others(rng):
    def loss(others):
        def f(x, labels):
            n, k = x.shape
            logs = np.log(softmax(x))
            eps = 0.1
            low = eps / (k - 1) if others else eps / k
            high = 1 - eps if others else 1 - eps + eps / k
            own = logs[np.arange(n), labels]
            sums = logs.sum(axis=1) - own
            return -(x.dtype.type(high) * own + x.dtype.type(low) * sums)

        return f

    return loss(False), loss(True), [normal(rng, 40, 100), rng.integers(0, 100, 40)]


@case("BUG", "probabilities are cut at 1e-7, of scores up to 40")
def loss_of_cut_probabilities(rng):
    def f(x, y):
        return np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))

    def g(x, y):
        p = np.clip(1 / (1 + np.exp(-x)), x.dtype.type(1e-7), 1 - x.dtype.type(1e-7))
        return -(y * np.log(p) + (1 - y) * np.log(1 - p))

    return f, g, [15 * normal(rng, 30, 40), (rng.random((30, 40)) < 0.5).astype(np.float32)]


@case(SAME, "of the logarithms' difference, and of the quotient", options={"batch": (0, 1)})
def divergence_of_shares(rng):
    def f(p, q):
        return (p * (np.log(p) - np.log(q))).sum(axis=1)

    shares = [softmax(normal(rng, 40, 50)) for _ in range(2)]
    return f, lambda p, q: (p * np.log(p / q)).sum(axis=1), shares


@case("BUG", "the other way round", options={"batch": (0, 1)})
def divergence_the_other_way_round(rng):
    def f(p, q):
        return (p * np.log(p / q)).sum(axis=1)

    shares = [softmax(normal(rng, 40, 50) / 4) for _ in range(2)]
    return f, lambda p, q: f(q, p), shares


def decayed(step, first=True, decoupled=True, rate=1e-2, decay=1e-2):
    """Return a step of Adam that makes weights smaller, too."""

    def f(w, grad, m, v):
        kind = w.dtype.type
        if not decoupled:
            grad = grad + kind(decay) * w
        m = kind(0.9) * m + kind(0.1) * grad
        v = kind(0.999) * v + kind(0.001) * grad * grad
        mean, spread = m / kind(1 - 0.9**step), v / kind(1 - 0.999**step)
        change = kind(rate) * mean / (np.sqrt(spread) + kind(1e-8))
        if not decoupled:
            return w - change
        if first:
            return w * kind(1 - rate * decay) - change
        return (w - change) * kind(1 - rate * decay)

    return f


def weights(rng):
    return [
        normal(rng, 30, 20),
        normal(rng, 30, 20),
        normal(rng, 30, 20),
        between(rng, 0.5, 2, 30, 20),
    ]


@case(SAME, "the decay is subtracted with the rest", options={"batch": (0, 1, 2, 3)})
def decay_with_the_rest(rng):
    def g(w, grad, m, v):
        kind = w.dtype.type
        m = m + kind(0.1) * (grad - m)
        v = v + kind(0.001) * (grad * grad - v)
        root = np.sqrt(v) / kind(math.sqrt(1 - 0.999**10)) + kind(1e-8)
        return w - kind(1e-2) * (m / root / kind(1 - 0.9**10) + kind(1e-2) * w)

    return decayed(10), g, weights(rng)


@case("BUG", "decay by the gradient, for decay by itself")
def decay_by_the_gradient(rng):
    return decayed(10), decayed(10, decoupled=False), weights(rng)


@case(HIDDEN, "decay after the step: a ten-millionth of weights")
def decay_after_the_step(rng):
    return decayed(10), decayed(10, first=False), weights(rng)


def clipped(eps=0.0, each=False):
    """Return gradients whose norm is 1 at most, of all together."""

    def f(grads):
        norms = [np.sqrt(np.square(grad).sum()) for grad in grads]
        if each:
            return [grad / np.maximum(norm, 1) for grad, norm in zip(grads, norms, strict=True)]
        norm = np.sqrt(sum(norm * norm for norm in norms))
        factor = np.minimum(1 / (norm + norm.dtype.type(eps)), 1)
        return [grad * factor for grad in grads]

    return f


def gradients(rng):
    return [[normal(rng, 20, 10), normal(rng, 20), normal(rng, 5, 4, 3)]]


@case(f"{SAME} EQUAL", "by the norm of all in a line", options=WHOLE)
def gradients_clipped_in_a_line(rng):
    def g(grads):
        norm = np.linalg.norm(np.concatenate([grad.ravel() for grad in grads]))
        return [grad / norm if norm > 1 else grad for grad in grads]

    return clipped(), g, gradients(rng)


@case("BUG", "each by its own norm", options=WHOLE)
def gradients_clipped_each(rng):
    return clipped(), clipped(each=True), gradients(rng)


@case(HIDDEN, "1e-5 is added to a norm of about 17: 6e-7 of all", options=WHOLE)
def gradients_clipped_by_a_larger_norm(rng):
    return clipped(), clipped(eps=1e-5), gradients(rng)


@case(
    f"{SAME} EQUAL",
    "of integer steps alone: half of 1 + cos, and the square of a cosine",
    options=WHOLE,
)
def schedule_by_a_square(rng):
    def g(t):
        return 0.1 * np.cos(np.pi / 2 * t / 1000) ** 2

    return lambda t: 0.05 * (1 + np.cos(np.pi * t / 1000)), g, [np.sort(rng.integers(0, 900, 60))]


@case("BUG", "of integer steps alone: the rate of the next step", options=WHOLE)
def schedule_of_the_next_step(rng):
    def f(t):
        return 0.05 * (1 + np.cos(np.pi * t / 1000))

    return f, lambda t: f(t + 1), [np.sort(rng.integers(0, 900, 60))]


# Linear algebra.


@case("BUG", "an index of einsum is swapped, of square matrices", options={"batch": (0, 1)})
def product_with_an_index_swapped(rng):
    def f(a, b):
        return np.einsum("nij,njk->nik", a, b)

    return (
        f,
        lambda a, b: np.einsum("nij,nkj->nik", a, b),
        [normal(rng, 5, 12, 12), normal(rng, 5, 12, 12)],
    )


@case(HIDDEN, "weights that are symmetric but for 1e-5, transposed")
def nearly_symmetric_weights_transposed(rng):
    w = rng.standard_normal((32, 32)) / 8
    w = (w + w.T + 1e-5 * rng.standard_normal((32, 32))).astype(np.float32)
    return lambda x, w: x @ w.T, lambda x, w: x @ w, [normal(rng, 40, 32), w]


@case(
    f"{SAME} EQUAL",
    "the largest of singular values, and by the matrix times itself",
    options=WHOLE,
)
def norm_by_the_gram_matrix(rng):
    def f(a):
        return np.linalg.svd(a, compute_uv=False)[0]

    return f, lambda a: np.sqrt(np.linalg.eigvalsh(a.T @ a)[-1]), [normal(rng, 40, 20)]


@case("BUG", "the largest singular value, by five steps of iteration", options=WHOLE)
def norm_by_five_steps(rng):
    def g(a):
        v = np.ones(a.shape[1], a.dtype)
        for _ in range(5):
            v = a.T @ (a @ v)
            v /= np.linalg.norm(v)
        return np.linalg.norm(a @ v)

    return lambda a: np.linalg.svd(a, compute_uv=False)[0], g, [normal(rng, 40, 20)]


@case("UNSTABLE", "columns less their projections on those before, at once", options=WHOLE)
def orthogonal_by_classical_projections(rng):
    def f(a):
        q, r = np.linalg.qr(a)
        return q * np.sign(np.diag(r))

    def g(a):
        q = np.empty_like(a)
        for k in range(a.shape[1]):
            left = a[:, k] - q[:, :k] @ (q[:, :k].T @ a[:, k])
            q[:, k] = left / np.linalg.norm(left)
        return q

    return f, g, [conditioned(rng, 40, 3e3, columns=12)]


@case("UNSTABLE", "a matrix exponential by its series, of a norm of 15", needs=SCIPY, options=WHOLE)
def matrix_exponential_by_its_series(rng):
    import scipy.linalg

    def g(a):
        y = term = np.eye(len(a), dtype=a.dtype)
        for k in range(1, 80):
            term = term @ a / a.dtype.type(k)
            y = y + term
        return y

    turn = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    a = -(turn * np.linspace(5, 15, 8)) @ turn.T
    return scipy.linalg.expm, g, [a.astype(np.float32)]


@case(SAME, "by a smaller matrix (Woodbury), of the identity and a product", options=WHOLE)
def solution_by_a_smaller_matrix(rng):
    def f(u, b):
        return np.linalg.solve(np.eye(len(u), dtype=u.dtype) + u @ u.T, b)

    def g(u, b):
        small = np.eye(u.shape[1], dtype=u.dtype) + u.T @ u
        return b - u @ np.linalg.solve(small, u.T @ b)

    return f, g, [normal(rng, 50, 5) / 4, normal(rng, 50)]


@case("BUG", "weights for their roots", options=WHOLE)
def fit_of_squared_weights(rng):
    def fitted(power):
        def f(x, y, w):
            w = w**power
            return np.linalg.lstsq(x * w[:, None], y * w, rcond=None)[0]

        return f

    x = np.stack([np.ones(60), *rng.standard_normal((3, 60))], axis=1)
    y = x @ [1.0, 2, 3, 4] + rng.standard_normal(60)
    return fitted(0.5), fitted(1.0), [x, y, rng.uniform(0.5, 2, 60)]


@case("BUG", "a reflection, where a turn is nearest")
def turns_that_are_reflections(rng):
    def nearest(whole):
        def f(a):
            u, _, v = np.linalg.svd(a)
            if whole:
                u[:, :, -1] *= np.sign(np.linalg.det(u @ v))[:, None]
            return u @ v

        return f

    return nearest(True), nearest(False), [normal(rng, 30, 3, 3)]


# Statistics and tables.


@case(SAME, "of a library, and of numbers of mean 0 and variance 1", options=WHOLE)
def correlations_of_scores(rng):
    def g(x):
        z = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
        return z @ z.T / x.shape[1]

    return np.corrcoef, g, [double(rng, 8, 200)]


@case("BUG", "a covariance by 199 over deviations by 200", options=WHOLE)
def correlations_of_two_counts(rng):
    def g(x):
        spread = x.std(axis=1)
        return np.cov(x) / np.outer(spread, spread)

    return np.corrcoef, g, [double(rng, 8, 200)]


@case("BUG", "integers on an edge fall to the bin below", options=WHOLE)
def integers_in_bins_closed_above(rng):
    edges = np.arange(0, 41, 5)

    def g(x):
        k = np.searchsorted(edges, x, side="left") - 1
        return np.bincount(np.clip(k, 0, 7), minlength=8)

    return lambda x: np.histogram(x, edges)[0], g, [rng.integers(0, 40, 300)]


@case("BUG", "sorted by the other column first", options=WHOLE)
def order_by_the_other_column(rng):
    def f(a, b):
        return np.lexsort((a, b))

    return f, lambda a, b: np.lexsort((b, a)), [rng.integers(0, 9, 50), rng.integers(0, 9, 50)]


@case("BUG", "averages that begin with the first number, for weights that add up to 1")
def averages_from_the_first_number(rng):
    def f(x):
        w = (x.dtype.type(0.8) ** np.arange(x.shape[1], dtype=x.dtype))[::-1]
        n = x.shape[1]
        rows = [
            (x[:, : k + 1] * w[n - k - 1 :]).sum(axis=1) / w[n - k - 1 :].sum() for k in range(n)
        ]
        return np.stack(rows, axis=1)

    def g(x):
        y = x.copy()
        for k in range(1, x.shape[1]):
            y[:, k] = x.dtype.type(0.8) * y[:, k - 1] + x.dtype.type(0.2) * x[:, k]
        return y

    return f, g, [normal(rng, 20, 40)]


@case(SAME, "running sums one by one, and with what each loses")
def running_sums_compensated(rng):
    def f(x):
        return np.cumsum(x, axis=1)

    def g(x):
        y, total, lost = np.empty_like(x), np.zeros_like(x[:, 0]), np.zeros_like(x[:, 0])
        for k in range(x.shape[1]):
            more = x[:, k] - lost
            then = total + more
            lost = (then - total) - more
            y[:, k] = total = then
        return y

    return f, g, [between(rng, 0, 1, 4, 3000)]


@case("BUG", "sums of what is before, for sums of all so far")
def running_sums_without_the_last(rng):
    def g(x):
        y = np.zeros_like(x)
        np.cumsum(x[:, :-1], axis=1, out=y[:, 1:])
        return y

    return lambda x: np.cumsum(x, axis=1), g, [normal(rng, 20, 40)]


@case(SAME, "running products, by sums of logarithms")
def running_products_by_logarithms(rng):
    def g(x):
        return np.exp(np.cumsum(np.log(x), axis=1))

    return lambda x: np.cumprod(x, axis=1), g, [between(rng, 0.9, 1.1, 20, 40)]


@case("BUG", "differences in place, of which each is of one before it that has changed")
def differences_in_place(rng):
    def g(x):
        y = x.copy()
        for k in range(1, y.shape[1]):
            y[:, k] -= y[:, k - 1]
        return y

    return lambda x: np.diff(x, axis=1, prepend=x.dtype.type(0)), g, [normal(rng, 20, 40)]


def forward(scaled, transposed=False):
    """Return the log-likelihood of what a hidden chain shows."""

    def f(emitted, moves):
        if transposed:
            moves = moves.T
        p = np.full(moves.shape[0], 1 / moves.shape[0], emitted.dtype)
        total = emitted.dtype.type(0)
        logs = np.log(p)
        for row in emitted:
            if scaled:
                p = (p @ moves) * row
                total = total + np.log(p.sum())
                p = p / p.sum()
            else:
                paths = logs[:, None] + np.log(moves)
                top = paths.max(axis=0)
                logs = top + np.log(np.exp(paths - top).sum(axis=0)) + np.log(row)
        return total if scaled else logs.max() + np.log(np.exp(logs - logs.max()).sum())

    return f


def chain(rng):
    return [between(rng, 0.05, 1, 40, 5), softmax(normal(rng, 5, 5))]


@case(SAME, "by logarithms, and by shares that are made whole", options=WHOLE)
def likelihood_of_a_chain_by_shares(rng):
    return forward(False), forward(True), chain(rng)


@case("BUG", "moves that are transposed", options=WHOLE)
def likelihood_of_a_chain_transposed(rng):
    return forward(False), forward(True, transposed=True), chain(rng)


@case("BUG", "NaN is passed over in a maximum, where the other one hands it on")
def largest_but_for_nan(rng):
    x = normal(rng, 20, 30)
    x[4, 7] = np.nan
    return lambda x: np.max(x, axis=1), lambda x: np.fmax.reduce(x, axis=1), [x]


@case("BUG", "NaN becomes 0, where the other one hands it on")
def positive_part_of_nan(rng):
    x = normal(rng, 20, 30)
    x[4, 7] = np.nan
    return lambda x: np.maximum(x, 0), lambda x: np.where(x > 0, x, 0), [x]


@case("BUG", "every fourth year is a leap year, 1900, too", options=WHOLE)
def leap_years_by_four(rng):
    def f(year):
        return 365 + ((year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)))

    return f, lambda year: 365 + (year % 4 == 0), [np.arange(1880, 2030)]


@case(
    "BUG",
    "a quotient that is cut, of negative integers, too, for one that is rounded down",
    options=WHOLE,
)
def quotients_towards_zero(rng):
    return lambda n: n // 7, lambda n: np.trunc(n / 7).astype(int), [rng.integers(-99, 99, 200)]


@case("BUG", "samples of 16 bits times a gain, which overflows", options=WHOLE)
def samples_that_overflow(rng):
    def f(x):
        return (x.astype(np.int32) * 200 >> 8).astype(np.int16)

    return f, lambda x: x * np.int16(200) >> 8, [rng.integers(-3000, 3000, 300).astype(np.int16)]


@case("EQUAL", "numbers of a generator, of 32 bits and of 64", options=WHOLE)
def numbers_of_32_bits(rng):
    def g(n):
        return ((n.astype(np.uint64) * 1664525 + 1013904223) % 2**32).astype(np.uint32)

    n = rng.integers(0, 2**32, 200, dtype=np.uint32)
    return lambda n: n * np.uint32(1664525) + np.uint32(1013904223), g, [n]


@case("BUG", "numbers of a generator, whose last bits a double has not", options=WHOLE)
def numbers_by_doubles(rng):
    def g(n):
        return np.fmod(n * 6364136223.0 + 1442695.0, 2.0**32).astype(np.uint32)

    def f(n):
        return ((n.astype(np.uint64) * 6364136223 + 1442695) % 2**32).astype(np.uint32)

    return f, g, [rng.integers(2**31, 2**32, 200, dtype=np.uint32)]


@case("EQUAL", "neighbours by shifts of what is padded, and by a sum of turns", options=WHOLE)
def life_of_a_grid(rng):
    def step(x, around):
        return ((around == 3) | ((around == 2) & (x == 1))).astype(x.dtype)

    def f(x):
        wide = np.pad(x, 1, mode="wrap")
        windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3))
        return step(x, windows.sum(axis=(2, 3)) - x)

    def g(x):
        turns = [(i, k) for i in (-1, 0, 1) for k in (-1, 0, 1) if (i, k) != (0, 0)]
        return step(x, sum(np.roll(x, turn, axis=(0, 1)) for turn in turns))

    return f, g, [rng.integers(0, 2, (20, 20))]


@case("BUG", "nothing is alive beyond the border, for the other side", options=WHOLE)
def life_within_borders(rng):
    def life(mode):
        def f(x):
            windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, 1, mode=mode), (3, 3))
            around = windows.sum(axis=(2, 3)) - x
            return ((around == 3) | ((around == 2) & (x == 1))).astype(x.dtype)

        return f

    return life("wrap"), life("constant"), [rng.integers(0, 2, (20, 20))]


# Signals and pictures.


@case("BUG", "the highest frequency twice, too, as those between")
def spectrum_whose_end_is_twice(rng):
    def power(last):
        def f(x):
            y = np.abs(np.fft.rfft(x, axis=1)) ** 2 / x.shape[1]
            y[:, 1:last] *= 2
            return y

        return f

    return power(-1), power(None), [double(rng, 10, 64)]


@case("BUG", "frames from one sample later on")
def frames_of_one_sample_later(rng):
    def framed(first):
        def f(x):
            window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(32) / 32)).astype(x.dtype)
            frames = np.lib.stride_tricks.sliding_window_view(x, 32, axis=1)[:, first::16]
            return np.abs(np.fft.rfft(frames * window, axis=2))

        return f

    return framed(0), framed(1), [normal(rng, 4, 177)]


@case("BUG", "ends that are padded with 0, for their mirror image")
def frames_of_padded_ends(rng):
    def framed(mode):
        def f(x):
            x = np.pad(x, [(0, 0), (16, 16)], mode=mode)
            return np.abs(
                np.fft.rfft(np.lib.stride_tricks.sliding_window_view(x, 32, axis=1)[:, ::16])
            )

        return f

    return framed("reflect"), framed("constant"), [normal(rng, 4, 176)]


@case(SAME, "a derivative by all frequencies, and by half of them")
def derivative_by_half_of_the_spectrum(rng):
    def f(x):
        k = np.fft.fftfreq(x.shape[1], 1 / x.shape[1])
        return np.fft.ifft(1j * k * np.fft.fft(x, axis=1), axis=1).real

    def g(x):
        k = np.arange(x.shape[1] // 2 + 1)
        return np.fft.irfft(1j * k * np.fft.rfft(x, axis=1), x.shape[1], axis=1)

    return f, g, [double(rng, 10, 64)]


@case("BUG", "a Poisson equation by the differences' Laplacian, for that of waves")
def potential_by_another_laplacian(rng):
    def solved(by_waves):
        def f(x):
            k = 2 * np.pi * np.fft.fftfreq(x.shape[1])
            squares = k**2 if by_waves else 2 - 2 * np.cos(k)
            squares[0] = 1
            y = np.fft.fft(x, axis=1) / squares
            y[:, 0] = 0
            return np.fft.ifft(y, axis=1).real

        return f

    return solved(True), solved(False), [double(rng, 10, 64)]


@case(SAME, "products of all lags by a transform, and one by one")
def autocorrelation_by_a_transform(rng):
    def f(x):
        n = x.shape[1]
        return np.stack([(x[:, : n - k] * x[:, k:]).sum(axis=1) / n for k in range(20)], axis=1)

    def g(x):
        y = np.fft.rfft(x, 128, axis=1)
        return np.fft.irfft(np.abs(y) ** 2, 128, axis=1)[:, :20] / x.shape[1]

    return f, g, [double(rng, 10, 64)]


@case("BUG", "sums of lags by how many there are, for the count of all")
def autocorrelation_by_the_count_of_lags(rng):
    def correlated(each):
        def f(x):
            n = x.shape[1]
            sums = [(x[:, : n - k] * x[:, k:]).sum(axis=1) / (n - k * each) for k in range(20)]
            return np.stack(sums, axis=1)

        return f

    return correlated(0), correlated(1), [double(rng, 10, 64)]


@case(HIDDEN, "1127 for 2595 / log(10): off by 5e-6")
def mels_of_four_digits(rng):
    def f(x):
        return x.dtype.type(2595) * np.log10(1 + x / 700)

    return f, lambda x: 1127 * np.log1p(x / 700), [between(rng, 20, 8000, 20, 40)]


@case(HIDDEN, "the first sample less itself, too")
def emphasis_of_the_first_sample(rng):
    def emphasised(mode):
        def f(x):
            return x - x.dtype.type(0.97) * np.pad(x, [(0, 0), (1, 0)], mode=mode)[:, :-1]

        return f

    return emphasised("constant"), emphasised("edge"), [normal(rng, 10, 200)]


@case(HIDDEN, "a bend at 0.03928, for 0.04045: off by 4e-7 of colours between")
def colours_of_another_bend(rng):
    def linear(bend):
        def f(x):
            curve = ((x + x.dtype.type(0.055)) / x.dtype.type(1.055)) ** x.dtype.type(2.4)
            return np.where(x <= x.dtype.type(bend), x / x.dtype.type(12.92), curve)

        return f

    x = between(rng, 0, 1, 30, 30)
    x[:3] = between(rng, 0.035, 0.045, 3, 30)
    return linear(0.04045), linear(0.03928), [x]


@case("BUG", "differences at both ends are of the other end")
def slopes_of_the_other_end(rng):
    def g(x):
        return (np.roll(x, -1, axis=1) - np.roll(x, 1, axis=1)) / 2

    return lambda x: np.gradient(x, axis=1), g, [double(rng, 20, 40)]


@case("BUG", "a blur's weights end at three deviations, for four", needs=SCIPY)
def blur_that_ends_sooner(rng):
    from scipy.ndimage import gaussian_filter1d

    def g(x):
        return gaussian_filter1d(x, 2.0, axis=1, truncate=3.0)

    return lambda x: gaussian_filter1d(x, 2.0, axis=1), g, [double(rng, 20, 60)]


# Space, time and money.


def matrices(order="wxyz"):
    """Return turns of quaternions."""

    def f(q):
        q = q / np.sqrt(np.square(q).sum(axis=1, keepdims=True))
        w, x, y, z = (q[:, order.index(name)] for name in "wxyz")
        rows = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
        return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)

    return f


@case(SAME, "of squares alone, and by the norm at the end")
def turns_of_quaternions_by_squares(rng):
    def g(q):
        w, x, y, z = q.T
        rows = [
            [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
        ]
        own = np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
        return own / np.square(q).sum(axis=1)[:, None, None]

    return matrices(), g, [double(rng, 40, 4)]


@case("BUG", "quaternions whose real part is last")
def turns_of_quaternions_of_another_order(rng):
    return matrices(), matrices("xyzw"), [double(rng, 40, 4)]


@case(
    "BUG",
    "a straight line between turns, for the arc: of angles of about 0.2",
    options={"batch": (0, 1)},
)
def between_turns_in_a_straight_line(rng):
    def f(p, q):
        angle = np.arccos((p * q).sum(axis=1, keepdims=True))
        y = np.sin(angle * 0.7) * p + np.sin(angle * 0.3) * q
        return y / np.sin(angle)

    def g(p, q):
        y = 0.7 * p + 0.3 * q
        return y / np.linalg.norm(y, axis=1, keepdims=True)

    p = double(rng, 30, 4)
    q = p + 0.2 * double(rng, 30, 4)
    return f, g, [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (p, q)]


def bearing(swapped=False):
    def f(here, there):
        (a, m), (b, n) = np.radians(here).T, np.radians(there).T
        y = np.sin(n - m) * np.cos(b)
        x = np.cos(a) * np.sin(b) - np.sin(a) * np.cos(b) * np.cos(n - m)
        return np.arctan2(x, y) if swapped else np.arctan2(y, x)

    return f


def places(rng):
    return [
        np.stack([rng.uniform(-60, 60, 40), rng.uniform(-150, 150, 40)], axis=1) for _ in range(2)
    ]


@case(WARPED, "by vectors to the east and to the north", options={"batch": (0, 1)})
def bearings_by_vectors(rng):
    def g(here, there):
        (a, m), (b, n) = np.radians(here).T, np.radians(there).T
        to = np.stack([np.cos(b) * np.cos(n), np.cos(b) * np.sin(n), np.sin(b)])
        east = np.stack([-np.sin(m), np.cos(m), 0 * m])
        north = np.stack([-np.sin(a) * np.cos(m), -np.sin(a) * np.sin(m), np.cos(a)])
        return np.arctan2((to * east).sum(axis=0), (to * north).sum(axis=0))

    return bearing(), g, places(rng)


@case("BUG", "arguments of an angle are swapped", options={"batch": (0, 1)})
def bearings_of_swapped_arguments(rng):
    return bearing(), bearing(swapped=True), places(rng)


@case(
    SAME,
    "half a kick, a drift and half a kick; and a step of place and slope",
    options={"batch": (0, 1)},
)
def steps_by_half_kicks(rng):
    def f(x, v):
        for _ in range(20):
            v = v - 0.05 * np.sin(x)
            x = x + 0.1 * v
            v = v - 0.05 * np.sin(x)
        return np.stack([x, v], axis=1)

    def g(x, v):
        for _ in range(20):
            pull = -np.sin(x)
            x = x + 0.1 * v + 0.005 * pull
            v = v + 0.05 * (pull - np.sin(x))
        return np.stack([x, v], axis=1)

    return f, g, [rng.uniform(-1, 1, 40), rng.uniform(-1, 1, 40)]


def kutta(weights, nodes):
    """Return ten steps of a pendulum by a method of four stages."""

    def slope(y):
        return np.stack([y[:, 1], -np.sin(y[:, 0])], axis=1)

    def f(y):
        for _ in range(10):
            slopes = []
            for row in nodes:
                slopes.append(slope(y + 0.1 * sum(a * k for a, k in zip(row, slopes, strict=True))))
            y = y + 0.1 * sum(b * k for b, k in zip(weights, slopes, strict=True))
        return y

    return f


@case("BUG", "the 3/8 rule, for the classical one: off by 1e-6 after ten steps")
def pendulum_by_three_eighths(rng):
    classical = kutta((1 / 6, 1 / 3, 1 / 3, 1 / 6), ((), (0.5,), (0, 0.5), (0, 0, 1)))
    other = kutta((1 / 8, 3 / 8, 3 / 8, 1 / 8), ((), (1 / 3,), (-1 / 3, 1), (1, -1, 1)))
    return classical, other, [rng.uniform(-1, 1, (30, 2))]


@case(SAME, "points of a curve by its polynomials, and by means of means", options=WHOLE)
def curve_by_means(rng):
    def f(points, t):
        s = 1 - t
        shares = np.stack([s**3, 3 * s**2 * t, 3 * s * t**2, t**3], axis=1)
        return shares @ points

    def g(points, t):
        rows = list(points)
        t = t[:, None]
        while len(rows) > 1:
            rows = [(1 - t) * a + t * b for a, b in pairwise(rows)]
        return rows[0]

    return f, g, [normal(rng, 4, 3), between(rng, 0, 1, 50)]


@case("BUG", "beyond the last point a line goes on, which the other one ends", options=WHOLE)
def lines_that_go_on(rng):
    def f(t, x, y):
        return np.interp(t, x, y)

    def g(t, x, y):
        k = np.clip(np.searchsorted(x, t, side="right") - 1, 0, len(x) - 2)
        return y[k] + (t - x[k]) * (y[k + 1] - y[k]) / (x[k + 1] - x[k])

    return f, g, [rng.uniform(0, 10.4, 200), np.linspace(0, 10, 21), double(rng, 21)]


@case("BUG", "the ends of an integral count whole")
def integral_of_whole_ends(rng):
    return (
        lambda y: np.trapezoid(y, axis=1) / 40,
        lambda y: y.sum(axis=1) / 40,
        [double(rng, 20, 200)],
    )


@case("UNSTABLE", "Bessel functions by steps upwards, beyond where they fall", needs=SCIPY)
def bessel_by_steps_upwards(rng):
    from scipy.special import jv

    def g(x):
        before, y = jv(0, x), jv(1, x)
        for n in range(1, 8):
            before, y = y, 2 * n / x * y - before
        return y.astype(x.dtype)

    return lambda x: jv(8, x), g, [between(rng, 1, 3, 20, 10)]


@case("RANGE", "a spectrum of high frequencies, whose exponential overflows")
def planck_that_overflows(rng):
    def f(x):
        e = np.exp(-x / 2)
        return x * x * x * e * e / -np.expm1(-x)

    return f, lambda x: x * x * x / np.expm1(x), [between(rng, 89, 94, 20, 30)]


@case("REDUCED", "times of seconds since 1970, in float32", formats=("float32",))
def hours_of_float32_times(rng):
    def f(t):
        return (t - t[:, :1]) / 3600

    return (
        f,
        lambda t: f(t.astype(np.float32)).astype(t.dtype),
        [1.7e9 + rng.uniform(0, 1e6, (20, 30))],
    )


@case("BUG", "cents that are cut, for rounded ones", options=WHOLE)
def cents_that_are_cut(rng):
    prices = rng.integers(1, 10000, 300) / 100
    return lambda x: np.rint(x * 100).astype(int), lambda x: (x * 100).astype(int), [prices]


@case(
    "AMPLIFIED EQUAL", "steps until numbers leave, as complex numbers and by parts", options=WHOLE
)
def escape_of_complex_numbers(rng):
    def f(c):
        z, count = np.zeros_like(c), np.zeros(c.shape, int)
        for _ in range(60):
            z = z * z + c
            inside = z.real**2 + z.imag**2 <= 4
            count += inside
            z = np.where(inside, z, 2)
        return count

    def g(c):
        x, y, count = 0 * c.real, 0 * c.real, np.zeros(c.shape, int)
        for _ in range(60):
            x, y = x * x - y * y + c.real, 2 * x * y + c.imag
            inside = x * x + y * y <= 4
            count += inside
            x, y = np.where(inside, x, 2), np.where(inside, y, 2)
        return count

    return f, g, [rng.uniform(-2, 0.5, 400) + 1j * rng.uniform(-1, 1, 400)]


@case("BUG", "numbers leave at a square of 2, for 4", options=WHOLE)
def escape_at_another_radius(rng):
    def escape(most):
        def f(c):
            z, count = np.zeros_like(c), np.zeros(c.shape, int)
            for _ in range(60):
                z = z * z + c
                inside = z.real**2 + z.imag**2 <= most
                count += inside
                z = np.where(inside, z, 2)
            return count

        return f

    return escape(4), escape(2), [rng.uniform(-2, 0.5, 400) + 1j * rng.uniform(-1, 1, 400)]


@case("BUG", "a square for a square of the absolute value, of complex numbers")
def power_without_conjugates(rng):
    x = normal(rng, 20, 30) + 1j * normal(rng, 20, 30)
    return lambda x: (x * x.conj()).real.sum(axis=1), lambda x: (x * x).real.sum(axis=1), [x]


@case(f"{SAME} EQUAL", "halves that are added up in float32, and rounded to halves at the end")
def half_products_in_float32(rng):
    def f(x, w):
        return (x.astype(np.promote_types(x.dtype, np.float32)) @ w).astype(x.dtype)

    def g(x, w):
        kind = np.promote_types(x.dtype, np.float32)
        terms = x.astype(kind)[:, :, None] * w.astype(kind)
        return terms[:, ::-1].sum(axis=1).astype(x.dtype)

    return f, g, [x.astype(np.float16) for x in (normal(rng, 20, 64), normal(rng, 64, 16) / 8)]


@case(f"{SAME} REDUCED", "halves that are added up one by one in float16, for float32")
def half_products_in_float16(rng):
    def f(x, w):
        return (x.astype(np.promote_types(x.dtype, np.float32)) @ w).astype(x.dtype)

    def g(x, w):
        y = x[:, :1] * w[0]
        for k in range(1, len(w)):
            y = y + x[:, k : k + 1] * w[k]
        return y

    return f, g, [x.astype(np.float16) for x in (normal(rng, 20, 64), normal(rng, 64, 16) / 8)]


# Two things at once.


def rounded(x):
    """Round to bfloat16."""
    bits = x.astype(np.float32).view(np.uint32) + np.uint32(0x8000)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def matmul_of_bfloat16(factor=1.0):
    def g(a, b):
        y = rounded(a) @ rounded(b) * np.float32(factor)
        return rounded(y).astype(a.dtype)

    return g


@case("REDUCED", "a product of bfloat16", options=WHOLE, formats=("bfloat16",))
def product_of_bfloat16(rng):
    return np.matmul, matmul_of_bfloat16(), [normal(rng, 30, 64), normal(rng, 64, 20)]


@case(HIDDEN, "a product of bfloat16, that is 0.003 too large", options=WHOLE)
def product_of_bfloat16_too_large(rng):
    return np.matmul, matmul_of_bfloat16(1.003), [normal(rng, 30, 64), normal(rng, 64, 20)]


@case(HIDDEN, "of float32, and 2e-6 too large")
def tangents_of_float32_too_large(rng):
    def g(x):
        return (np.tanh(x.astype(np.float32)) * np.float32(1 + 2e-6)).astype(x.dtype)

    return np.tanh, g, [double(rng, 30, 40)]


@case(HIDDEN, "of float32, and one of them is 1e-5 too large")
def tangent_of_float32_too_large(rng):
    def g(x):
        y = np.tanh(x.astype(np.float32)).astype(x.dtype)
        y[0, 4] *= 1.00001
        return y

    return np.tanh, g, [double(rng, 30, 40)]


@case(HIDDEN, "digits are lost, and what is left is 1e-5 too large")
def logarithms_of_few_digits_too_large(rng):
    def g(x):
        return np.log(1 + x) * x.dtype.type(1.00001)

    return np.log1p, g, [between(rng, 1e-5, 1e-3, 20, 30)]


@case(HIDDEN, "one norm overflows, and all are 0.001 too large")
def norms_that_overflow_too_large(rng):
    def f(x):
        largest = np.abs(x).max(axis=1)
        return largest * np.sqrt(np.square(x / largest[:, None]).sum(axis=1))

    def g(x):
        return np.sqrt(np.square(x).sum(axis=1)) * x.dtype.type(1.001)

    x = normal(rng, 20, 30)
    x[3] *= np.float32(1e25)
    return f, g, [x]


@case(HIDDEN, "solutions that are magnified 1e4 times, and 1e-4 too large")
def solutions_too_large(rng):
    def f(b, a):
        return np.linalg.solve(a, b.T).T

    a = conditioned(rng, 20, 1e4)
    return f, lambda b, a: f(b, a) * b.dtype.type(1.0001), [normal(rng, 6, 20), a]


@case(HIDDEN, "a constant that is left out with what it is subtracted from")
def differences_of_two_zeros(rng):
    def off(second):
        def f(t):
            zeros = t.dtype.type(273.15), t.dtype.type(second)
            return (t + zeros[1]) - (t[:, :1] + zeros[0])

        return f

    return off(273.15), off(273.16), [between(rng, 0, 0.01, 20, 30)]


@case(HIDDEN, "a last column of factors of 1e-6 is left out", options=WHOLE)
def products_without_small_columns(rng):
    a = normal(rng, 30, 65)
    a[:, -1] *= np.float32(1e-6)
    return np.matmul, lambda a, b: a[:, :-1] @ b[:-1], [a, normal(rng, 65, 20)]


@case(HIDDEN, "one of 3000 squares is left out of a sum", options=WHOLE)
def sum_without_one_square(rng):
    def g(x):
        squares = np.square(x)
        return squares[:-1].sum() + squares[-1, :-1].sum()

    return lambda x: np.square(x).sum(), g, [normal(rng, 100, 30)]


@case(HIDDEN, "the second of two results is 1e-5 too large, beside rounding of the first")
def spread_too_large_beside_a_sum(rng):
    def g(x):
        return x[:, ::-1].sum(axis=1), x.std(axis=1) * x.dtype.type(1.00001)

    return lambda x: (x.sum(axis=1), x.std(axis=1)), g, [normal(rng, 20, 300)]


@case(SAME, "means of what is no NaN, of a library and by counts")
def means_but_for_nan(rng):
    def g(x):
        known = ~np.isnan(x)
        return np.where(known, x, 0)[:, ::-1].sum(axis=1) / known.sum(axis=1).astype(x.dtype)

    x = normal(rng, 20, 30)
    x[2, 3] = np.nan
    return lambda x: np.nanmean(x, axis=1), g, [x]


@case(WARPED, "a price, and by that of the opposite", options={"batch": (0, 1)})
def price_by_parity(rng):
    def shares(s, t):
        spread = 0.2 * np.sqrt(t)
        d = (np.log(s / 100) + 0.02 * t) / spread
        return [0.5 + 0.5 * np.tanh(0.8 * x) for x in (d + spread / 2, d - spread / 2)]

    def f(s, t):
        a, b = shares(s, t)
        return s * a - 100 * np.exp(-0.01 * t) * b

    def g(s, t):
        a, b = shares(s, t)
        opposite = 100 * np.exp(-0.01 * t) * (1 - b) - s * (1 - a)
        return opposite + s - 100 * np.exp(-0.01 * t)

    return f, g, [rng.uniform(90, 110, 50), rng.uniform(0.1, 1, 50)]
