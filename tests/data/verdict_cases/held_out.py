"""Pairs that no rule was written with: they were labelled from the mathematics alone, and later.

What a rule gets wrong here is measured, and it is not mended by a look at these.
"""

import math

import numpy as np

from .case import (
    WHOLE,
    Cases,
    conditioned,
    layer,
    linear,
    narrow,
    narrow_singles,
    normal,
    softmax,
    uniform,
)
from .formats import ELEVEN_BITS
from .ranges import quietly
from .solvers import by_cholesky, positive

CASES = case = Cases()

HIDDEN = "BUG SUSPECT"


# Rounding: two forms of one function.


def fft_by_halves(x):
    size = x.shape[1]
    if size == 1:
        return x
    even, odd = fft_by_halves(x[:, ::2]), fft_by_halves(x[:, 1::2])
    odd = np.exp(-2j * math.pi / size * np.arange(size // 2)).astype(x.dtype) * odd
    return np.concatenate([even + odd, even - odd], axis=1)


def power_spectrum(x):
    return np.abs(np.fft.fft(x)) ** 2


@case("ROUNDING")
def power_spectrum_by_halves(rng):
    def g(x):
        y = fft_by_halves(x.astype(np.result_type(x.dtype, np.complex64)))
        return y.real**2 + y.imag**2

    return power_spectrum, g, (normal(rng, 24, 32),)


@case("ROUNDING", "Lee's and Makhoul's reordering, against the matrix of cosines.")
def cosine_transform(rng):
    def f(x):
        n = x.shape[1]
        phase = np.outer(np.arange(n), 2 * np.arange(n) + 1) * (math.pi / (2 * n))
        return x @ np.cos(phase).astype(x.dtype).T

    def g(x):
        n = x.shape[1]
        y = np.fft.fft(np.concatenate([x[:, ::2], x[:, 1::2][:, ::-1]], axis=1))
        turn = np.exp(-1j * math.pi / (2 * n) * np.arange(n)).astype(y.dtype)
        return (y * turn).real

    return f, g, (normal(rng, 16, 64),)


@case("ROUNDING LAYOUT")
def hadamard_transform(rng):
    def f(x):
        h = np.ones((1, 1), x.dtype)
        while len(h) < x.shape[1]:
            h = np.concatenate([np.concatenate([h, h]), np.concatenate([h, -h])], axis=1)
        return x @ h

    def g(x):
        rows, n = x.shape
        step = 1
        while step < n:
            x = x.reshape(rows, -1, 2, step)
            x = np.stack([x[:, :, 0] + x[:, :, 1], x[:, :, 0] - x[:, :, 1]], axis=2)
            step *= 2
        return x.reshape(rows, n)

    return f, g, (normal(rng, 24, 64),)


def cosines(x, y):
    lengths = np.sqrt((x * x).sum(axis=1))[:, None] * np.sqrt((y * y).sum(axis=1))
    return x @ y.T / lengths


@case("ROUNDING LAYOUT", "The rows are given the length 1 first.")
def cosine_similarity(rng):
    def g(x, y):
        x, y = (a / np.sqrt(np.einsum("ij,ij->i", a, a))[:, None] for a in (x, y))
        return np.einsum("ij,kj->ik", x, y)

    return cosines, g, (normal(rng, 24, 64), normal(rng, 20, 64))


def rms_norm(x, weight, eps=1e-6):
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * weight


@case("ROUNDING LAYOUT")
def rms_norm_by_inverse_root(rng):
    def g(x, weight):
        squares = np.einsum("ij,ij->i", x, x) / x.shape[1]
        return x * (weight * (1 / np.sqrt(squares + 1e-6))[:, None])

    return rms_norm, g, (normal(rng, 24, 128), 1 + normal(rng, 128) / 4)


@case("ROUNDING", "Three shears make a rotation.", options={"batch": (0, 1, 2)})
def rotation_by_shears(rng):
    def f(x, y, angle):
        c, s = np.cos(angle), np.sin(angle)
        return np.stack([c * x - s * y, s * x + c * y], axis=-1)

    def g(x, y, angle):
        shear = np.tan(angle / 2)
        x = x - shear * y
        y = y + np.sin(angle) * x
        return np.stack([x - shear * y, y], axis=-1)

    return f, g, (normal(rng, 16, 24), normal(rng, 16, 24), uniform(rng, -1.5, 1.5, 16, 24))


@case("ROUNDING", options={"batch": (0, 1, 2)})
def interpolation_forms(rng):
    def g(a, b, t):
        return a * (1 - t) + b * t

    inputs = normal(rng, 16, 32), normal(rng, 16, 32), uniform(rng, 0, 1, 16, 32)
    return lambda a, b, t: a + (b - a) * t, g, inputs


def rotation_matrices(q):
    w, x, y, z = np.moveaxis(q, -1, 0)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def rotate(q, v):
    return (rotation_matrices(q) @ v[:, :, None])[:, :, 0]


def quaternions_and_vectors(rng):
    q = rng.standard_normal((200, 4))
    q /= np.sqrt((q * q).sum(axis=1, keepdims=True))
    return q.astype(np.float32), normal(rng, 200, 3)


@case("ROUNDING", "Equal for any q, not for those of length 1 alone.", options={"batch": (0, 1)})
def quaternion_rotation(rng):
    def g(q, v):
        turned = 2 * np.cross(q[:, 1:], v)
        return v + q[:, :1] * turned + np.cross(q[:, 1:], turned)

    return rotate, g, quaternions_and_vectors(rng)


@case("ROUNDING", "Arguments so moderate that neither form loses much.")
def softplus_forms(rng):
    def f(x):
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))

    return f, lambda x: np.log(1 + np.exp(x)), (uniform(rng, -2, 5, 16, 32),)


@case("ROUNDING", "A stack of matrices with eigenvalues from 1 to 2.")
def log_determinant(rng):
    def f(m):
        a = m @ m.swapaxes(1, 2) + np.eye(m.shape[1], dtype=m.dtype)
        for k in range(a.shape[1]):
            factor = a[:, k + 1 :, k] / a[:, k, k, None]
            a[:, k + 1 :, k + 1 :] -= factor[:, :, None] * a[:, k, None, k + 1 :]
        return np.log(np.diagonal(a, axis1=1, axis2=2)).sum(axis=1)

    def g(m):
        a = m @ m.swapaxes(1, 2) + np.eye(m.shape[1], dtype=m.dtype)
        factor = np.zeros_like(a)
        for k in range(a.shape[1]):
            done = (factor[:, k:, :k] * factor[:, k, None, :k]).sum(axis=2)
            column = a[:, k:, k] - done
            factor[:, k:, k] = column / np.sqrt(column[:, :1])
        return 2 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)

    return f, g, (np.stack([conditioned(rng, 16, 3) for _ in range(12)]),)


@case("ROUNDING", options=WHOLE, needs=("scipy",))
def cholesky_scipy(rng):
    from scipy import linalg

    def g(m, b):
        return linalg.cho_solve(linalg.cho_factor(positive(m), lower=True), b)

    def f(m, b):
        return by_cholesky(positive(m), b)

    return f, g, (conditioned(rng, 24, 3), normal(rng, 24))


@case("ROUNDING LAYOUT", "The 13th power in five products or in twelve.", options=WHOLE)
def matrix_power(rng):
    def f(a):
        y = a
        for _ in range(12):
            y = y @ a
        return y

    return f, lambda a: np.linalg.matrix_power(a, 13), (conditioned(rng, 24, 1.2),)


@case("ROUNDING LAYOUT", "Products stay between 1e-5 and 1e5.")
def geometric_mean(rng):
    def g(x):
        return x.prod(axis=1) ** (1 / x.shape[1])

    return lambda x: np.exp(np.log(x).mean(axis=1)), g, (uniform(rng, 0.5, 2, 64, 16),)


@case("ROUNDING", "Two resistors side by side.", options={"batch": (0, 1)})
def harmonic_mean(rng):
    inputs = uniform(rng, 1, 9, 16, 32), uniform(rng, 1, 9, 16, 32)
    return lambda a, b: 2 / (1 / a + 1 / b), lambda a, b: 2 * a * b / (a + b), inputs


@case("ROUNDING LAYOUT")
def exponential_average_by_matrix(rng):
    def f(x, rate=0.1):
        y, states = np.zeros_like(x[:, 0]), []
        for k in range(x.shape[1]):
            y = rate * x[:, k] + (1 - rate) * y
            states.append(y)
        return np.stack(states, axis=1)

    def g(x, rate=0.1):
        age = np.subtract.outer(np.arange(x.shape[1]), np.arange(x.shape[1]))
        weights = np.where(age < 0, 0, rate * (1 - rate) ** np.maximum(age, 0))
        return x @ weights.astype(x.dtype).T

    return f, g, (normal(rng, 24, 96),)


def scan(a, b):
    y, states = np.zeros_like(b[:, 0]), []
    for k in range(b.shape[1]):
        y = a[:, k] * y + b[:, k]
        states.append(y)
    return np.stack(states, axis=1)


def scan_by_doubling(a, b):
    step = 1
    while step < b.shape[1]:
        b = np.concatenate([b[:, :step], b[:, step:] + a[:, step:] * b[:, :-step]], axis=1)
        a = np.concatenate([a[:, :step], a[:, step:] * a[:, :-step]], axis=1)
        step *= 2
    return b


@case("ROUNDING", "A linear recurrence, by an associative scan.", options={"batch": (0, 1)})
def recurrence_by_doubling(rng):
    return scan, scan_by_doubling, (uniform(rng, 0.5, 1, 8, 64, 8), normal(rng, 8, 64, 8))


@case("ROUNDING", options={"batch": (0, 1)})
def recurrence_by_doubling_in_float64(rng):
    inputs = rng.uniform(0.5, 1, (8, 48, 8)), rng.standard_normal((8, 48, 8))
    return scan, scan_by_doubling, inputs


@case("ROUNDING", "1 - p loses digits where it is small beside the other losses.")
def focal_loss(rng):
    def f(z):
        p = 1 / (1 + np.exp(-z))
        return -((1 - p) ** 2) * np.log(p)

    def g(z):
        miss = 1 / (1 + np.exp(z))
        return miss * miss * np.logaddexp(0, -z)

    return f, g, (2 * normal(rng, 16, 32),)


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def smoothed_loss(x, target, others=0):
    """Return the loss where a tenth is spread over the classes but for `others` of them."""
    n = x.shape[1]
    share = np.full(x.shape, 0.1 / (n - others), x.dtype)
    own = 0.9 + (0 if others else 0.1 / n)
    np.put_along_axis(share, target[:, None], own, axis=1)
    return -(share * log_softmax(x)).sum(axis=1)


@case("ROUNDING LAYOUT", options={"batch": (0, 1)})
def smoothed_labels(rng):
    def g(x, target):
        y = log_softmax(x)
        own = np.take_along_axis(y, target[:, None], axis=1)[:, 0]
        return -0.9 * own - 0.1 * y.mean(axis=1)

    return smoothed_loss, g, (normal(rng, 64, 10), rng.integers(0, 10, 64))


@case(
    "ROUNDING", "The angle of a difference that was never near the cut.", options={"batch": (0, 1)}
)
def angle_difference(rng):
    def f(a, b):
        return np.arctan2(np.sin(a - b), np.cos(a - b))

    def g(a, b):
        return np.mod(a - b + math.pi, 2 * math.pi) - math.pi

    a = rng.uniform(-6, 6, (16, 32))
    b = a - rng.uniform(-2.8, 2.8, (16, 32)) - 2 * math.pi * rng.integers(-1, 2, (16, 32))
    return f, g, (a.astype(np.float32), b.astype(np.float32))


@case("ROUNDING", "By moduli and angles.", options={"batch": (0, 1)})
def complex_product_polar(rng):
    def g(a, b):
        r, t = np.abs(a) * np.abs(b), np.angle(a) + np.angle(b)
        return r * np.cos(t) + 1j * (r * np.sin(t))

    a, b = (normal(rng, 16, 32) + 1j * normal(rng, 16, 32) for _ in range(2))
    return lambda a, b: a * b, g, (a, b)


@case("ROUNDING", "Clenshaw's recurrence, and cosines of multiples.")
def chebyshev_series(rng):
    def f(x, c):
        y = older = np.zeros_like(x)
        for ck in c[:0:-1]:
            y, older = 2 * x * y - older + ck, y
        return x * y - older + c[0]

    def g(x, c):
        angle = np.arccos(x)
        return sum(ck * np.cos(k * angle) for k, ck in enumerate(c))

    return f, g, (uniform(rng, -0.9, 0.9, 16, 32), normal(rng, 10))


@case("ROUNDING", "Eight steps, where six gain 16 digits.")
def cube_root_by_newton(rng):
    def g(x):
        y = (x + 6) / 7
        for _ in range(8):
            y = (2 * y + x / (y * y)) / 3
        return y

    return np.cbrt, g, (uniform(rng, 1, 8, 16, 32),)


@case("ROUNDING", "NumPy's bincount sums in float64.", options=WHOLE)
def weighted_histogram(rng):
    def f(w, index):
        y = np.zeros(16, w.dtype)
        np.add.at(y, index, w)
        return y

    def g(w, index):
        return np.bincount(index, weights=w, minlength=16).astype(w.dtype)

    return f, g, (uniform(rng, 0, 1, 600), rng.integers(0, 16, 600))


@case("ROUNDING LAYOUT")
def low_rank_merged(rng):
    def f(x, w, a, b):
        return x @ (w + a @ b).T

    def g(x, w, a, b):
        return x @ w.T + (x @ b.T) @ a.T

    x, w, _ = layer(rng, 24, 96, 48)
    return f, g, (x, w, normal(rng, 48, 8) / 8, normal(rng, 8, 96) / 8)


@case("ROUNDING LAYOUT", "Attention without softmax, where the product is associative.")
def attention_associative(rng):
    inputs = normal(rng, 24, 16), normal(rng, 40, 16), normal(rng, 40, 32)
    return lambda q, k, v: (q @ k.T) @ v, lambda q, k, v: q @ (k.T @ v), inputs


@case("ROUNDING LAYOUT")
def norm_folded_into_linear(rng):
    def f(x, w, b, mean, variance, scale, shift):
        return (linear(x, w, b) - mean) / np.sqrt(variance + 1e-5) * scale + shift

    def g(x, w, b, mean, variance, scale, shift):
        factor = scale / np.sqrt(variance + 1e-5)
        return linear(x, w * factor[:, None], (b - mean) * factor + shift)

    x, w, b = layer(rng, 24, 96, 48)
    seen = normal(rng, 48) / 2, uniform(rng, 0.5, 2, 48), 1 + normal(rng, 48) / 4, normal(rng, 48)
    return f, g, (x, w, b, *seen)


@case("ROUNDING LAYOUT", "The shift is that of another call: softmax does not depend on it.")
def softmax_stale_shift(rng):
    seen = {"largest": float(normal(rng, 100).max())}

    def g(x):
        e = np.exp(x - seen["largest"])
        return e / e.sum(axis=1, keepdims=True)

    return softmax, g, (normal(rng, 32, 60),)


@case("ROUNDING", "Rounded before the weight, too.", options={"dtype": "bfloat16"})
def rms_norm_in_bfloat16(rng):
    def f(x, weight):
        return narrow_singles(rms_norm(x, weight), "bfloat16")

    def g(x, weight):
        y = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6)
        return narrow_singles(narrow_singles(y, "bfloat16") * weight, "bfloat16")

    inputs = normal(rng, 16, 64), 1 + normal(rng, 64) / 4
    return f, g, tuple(narrow(a, "bfloat16") for a in inputs)


# Equal.


@case("EQUAL", "Halving is exact, and so is |x| - |x| / 2.")
def huber_by_clipping(rng):
    def f(x, width=1.345):
        a = np.abs(x)
        return np.where(a <= width, 0.5 * a * a, width * (a - 0.5 * width))

    def g(x, width=1.345):
        a = np.abs(x)
        c = np.minimum(a, width)
        return c * (a - c / 2)

    return f, g, (2 * normal(rng, 16, 32),)


@case("EQUAL", "Only comparisons.", options={"batch": (0, 1, 2)})
def median_of_three(rng):
    def f(a, b, c):
        return np.sort(np.stack([a, b, c]), axis=0)[1]

    def g(a, b, c):
        return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))

    return f, g, tuple(normal(rng, 16, 32) for _ in range(3))


# Amplified.


@case("AMPLIFIED", "Twenty steps of a chaotic map.")
def logistic_map(rng):
    def f(x):
        for _ in range(20):
            x = 3.9 * x * (1 - x)
        return x

    def g(x):
        for _ in range(20):
            x = 3.9 * (x - x * x)
        return x

    return f, g, (uniform(rng, 0.1, 0.9, 16, 32),)


@case("AMPLIFIED", "1e-3 from a pole: a last place of x is 1e3 of the tangent's.")
def tangent_near_pole(rng):
    x = (math.pi / 2 - rng.uniform(0.001, 0.003, (16, 32))).astype(np.float32)
    return np.tan, lambda x: np.sin(x) / np.cos(x), (x,)


@case("AMPLIFIED", "b^2 and 4 c agree in five digits.", options={"batch": (0, 1)})
def roots_nearly_double(rng):
    def f(b, c):
        return np.sqrt(b * b - 4 * c)

    def g(b, c):
        root = 2 * np.sqrt(c)
        return np.sqrt((b - root) * (b + root))

    b = rng.uniform(1, 2, (16, 32))
    c = b * b / 4 * (1 - rng.uniform(1e-5, 3e-5, (16, 32)))
    return f, g, (b.astype(np.float32), c.astype(np.float32))


# Range.


@case("RANGE", "exp(100) overflows, and infinity by infinity is no number.")
def sigmoid_overflows(rng):
    def g(x):
        e = np.exp(x)
        return e / (1 + e)

    return lambda x: (1 + np.tanh(x / 2)) / 2, quietly(g), (uniform(rng, -120, 120, 16, 32),)


@case("RANGE", "cosh(90) overflows, its logarithm is 89.")
def log_cosh_overflows(rng):
    def f(x):
        a = np.abs(x)
        return a + np.log1p(np.exp(-2 * a)) - math.log(2)

    return f, quietly(lambda x: np.log(np.cosh(x))), (uniform(rng, -150, 150, 16, 32),)


@case("RANGE", "Products of 32 numbers of a few thousand.")
def geometric_mean_overflows(rng):
    def g(x):
        return x.prod(axis=1) ** (1 / x.shape[1])

    x = uniform(rng, 1e3, 1e4, 64, 32)
    return lambda x: np.exp(np.log(x).mean(axis=1)), quietly(g), (x,)


@case("RANGE", "The likelihood of 200 samples is 1e-120.")
def likelihood_underflows(rng):
    def f(x):
        return (-x * x / 2 - math.log(2 * math.pi) / 2).sum(axis=1)

    def g(x):
        return np.log((np.exp(-x * x / 2) / math.sqrt(2 * math.pi)).prod(axis=1))

    return f, quietly(g), (normal(rng, 24, 200),)


@case("RANGE", "The recurrence y = y / 2 + x by sums of 2^k x, for k to 200.")
def scan_by_scaled_sums(rng):
    def f(x):
        y, states = np.zeros_like(x[:, 0]), []
        for k in range(x.shape[1]):
            y = y / 2 + x[:, k]
            states.append(y)
        return np.stack(states, axis=1)

    def g(x):
        weights = np.ldexp(np.ones((), x.dtype), np.arange(x.shape[1]))
        return np.cumsum(x * weights, axis=1) / weights

    return f, quietly(g), (normal(rng, 16, 200),)


@case("BUG RANGE", "A sum of bytes wraps round, although their mean is a byte.", options=WHOLE)
def mean_of_bytes(rng):
    def f(a, b):
        return ((a.astype(np.uint16) + b) // 2).astype(np.uint8)

    a, b = (rng.integers(0, 256, (16, 32), dtype=np.uint8) for _ in range(2))
    return f, lambda a, b: (a + b) // 2, (a, b)


# Unstable.


@case(
    "UNSTABLE", "Classical, of columns 1e-3 apart: the error goes with the square.", options=WHOLE
)
def gram_schmidt_classical(rng):
    def orthogonal(a, modified):
        q = a.copy()
        for k in range(a.shape[1]):
            for j in range(k):
                q[:, k] -= (q[:, j] @ (q if modified else a)[:, k]) * q[:, j]
            q[:, k] /= np.sqrt(q[:, k] @ q[:, k])
        return q

    a = 1 + 1e-3 * rng.standard_normal((40, 6))
    return (
        lambda a: orthogonal(a, True),
        lambda a: orthogonal(a, False),
        (a.astype(np.float32),),
    )


@case("UNSTABLE", "The arc cosine of 1 - 1e-4.", options={"batch": (0, 1, 2)})
def great_circle_by_cosine(rng):
    def f(north, up, along):
        there = np.sin(along / 2) ** 2 * np.cos(north) * np.cos(north + up)
        return 2 * np.arcsin(np.sqrt(np.sin(up / 2) ** 2 + there))

    def g(north, up, along):
        there = np.cos(north) * np.cos(north + up) * np.cos(along)
        return np.arccos(np.sin(north) * np.sin(north + up) + there)

    near = (uniform(rng, 0.005, 0.02, 16, 32) for _ in range(2))
    return f, g, (uniform(rng, -1, 1, 16, 32), *near)


@case("UNSTABLE", "1 - 0.99999 keeps two digits.")
def complement_of_sigmoid(rng):
    def g(x):
        return 1 - 1 / (1 + np.exp(-x))

    return lambda x: 1 / (1 + np.exp(x)), g, (uniform(rng, 10, 13, 16, 32),)


@case(
    "UNSTABLE", "From the products: a point's distance from itself is 1e-3, not 0.", options=WHOLE
)
def distances_among_points(rng):
    def f(x):
        return np.sqrt(((x[:, None] - x) ** 2).sum(axis=2))

    def g(x):
        squares = (x * x).sum(axis=1)
        return np.sqrt(np.maximum(squares[:, None] + squares - 2 * (x @ x.T), 0))

    return f, g, (normal(rng, 24, 64),)


# Not repeated.


@case("NONDETERMINISTIC", "The mean of eight workers' gradients, added as they come.")
def averaged_as_they_come(rng):
    order = rng.spawn(1)[0]

    def g(x):
        total = np.zeros_like(x[:, 0])
        for k in order.permutation(x.shape[1]):
            total = total + x[:, k]
        return total / x.shape[1]

    return lambda x: x.mean(axis=1), g, (normal(rng, 16, 8, 64),)


@case("NONDETERMINISTIC REDUCED", "Weights are rounded to eleven bits, up or down by chance.")
def stochastic_rounding(rng):
    noise = rng.spawn(1)[0]

    def g(x, w):
        if w.dtype == np.float32:
            ulp = np.ldexp(np.ones((), w.dtype), np.frexp(w)[1] - 11)
            w = np.floor(w / ulp + noise.random(w.shape, w.dtype)) * ulp
        return x @ w.T

    return lambda x, w: x @ w.T, g, layer(rng)[:2]


@case("BUG NONDETERMINISTIC", "The mean of three quarters of the tokens, drawn anew each time.")
def pooled_from_a_sample(rng):
    noise = rng.spawn(1)[0]

    def g(x):
        return x[:, noise.permutation(x.shape[1])[: x.shape[1] * 3 // 4]].mean(axis=1)

    return lambda x: x.mean(axis=1), g, (normal(rng, 16, 40, 24),)


# Reduced.


@case("REDUCED", "The running sum is rounded with every token.", formats=ELEVEN_BITS)
def pooling_float16_sum(rng):
    def g(x):
        total = np.zeros_like(x[:, 0])
        for k in range(x.shape[1]):
            total = narrow_singles(total + x[:, k], "float16")
        return total / x.shape[1]

    return lambda x: x.mean(axis=1), g, (normal(rng, 16, 64, 16),)


@case("REDUCED", formats=("bfloat16",), arguments=(1,))
def rms_norm_bfloat16_weight(rng):
    def g(x, weight):
        return rms_norm(x, narrow_singles(weight, "bfloat16"))

    return rms_norm, g, (normal(rng, 24, 64), 1 + normal(rng, 64) / 4)


@case("REDUCED", "Samples are kept in float16.", formats=ELEVEN_BITS, arguments=(0,))
def power_spectrum_float16(rng):
    def g(x):
        return power_spectrum(narrow_singles(x, "float16"))

    return power_spectrum, g, (normal(rng, 24, 48),)


@case("REDUCED", formats=("bfloat16",), arguments=(2, 3))
def low_rank_bfloat16_factors(rng):
    def f(x, w, a, b):
        return x @ w.T + (x @ b.T) @ a.T

    def g(x, w, a, b):
        return f(x, w, narrow(a, "bfloat16"), narrow(b, "bfloat16"))

    x, w, _ = layer(rng, 24, 96, 48)
    return g, f, (x, w, normal(rng, 48, 8) / 4, normal(rng, 8, 96) / 4)


@case("REDUCED", "Exponentials are rounded before they are summed.", formats=("bfloat16",))
def softmax_bfloat16_exponentials(rng):
    def g(x):
        e = narrow_singles(np.exp(x - x.max(axis=1, keepdims=True)), "bfloat16")
        return e / e.sum(axis=1, keepdims=True)

    return softmax, g, (normal(rng, 24, 60),)


@case("REDUCED", "float64 inputs.", formats=("float32",))
def cosine_similarity_float32_for_float64(rng):
    def g(x, y):
        return cosines(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)

    return cosines, g, (rng.standard_normal((24, 64)), rng.standard_normal((20, 64)))


@case("BUG REDUCED", "Weights go through bytes, with a scale for each output.")
def linear_int8_weights(rng):
    def g(x, w, b):
        scale = np.abs(w).max(axis=1, keepdims=True) / 127
        return linear(x, np.rint(w / scale).astype(np.int8).astype(x.dtype) * scale, b)

    return linear, g, layer(rng)


# Another function, which rounding hides here.


@case("SUSPECT", "Simpson's rule with 32 intervals is 5e-9 off.")
def integral_by_simpson(rng):
    def g(x):
        weights = [1] + [4, 2] * 15 + [4, 1]
        return x * (sum(w * np.exp(x * (k / 32)) for k, w in enumerate(weights)) / 96)

    return np.expm1, g, (uniform(rng, 0.5, 1, 16, 32),)


@case("SUSPECT", "Six terms of the series, whose seventh is 1e-9 at most.")
def arctangent_series_cut(rng):
    def g(x):
        return sum((-1) ** k * x ** (2 * k + 1) / (2 * k + 1) for k in range(6))

    return np.arctan, g, (uniform(rng, -0.25, 0.25, 16, 32),)


# Bugs.


@case("BUG", "Simpson's weights for the trapezoids'.", options={"batch": (1,)})
def simpson_for_trapezoid(rng):
    def f(t, y):
        return ((y[:, 1:] + y[:, :-1]) * np.diff(t)).sum(axis=1) / 2

    def g(t, y):
        step = t[1] - t[0]
        inner = 4 * y[:, 1:-1:2].sum(axis=1) + 2 * y[:, 2:-1:2].sum(axis=1)
        return (y[:, 0] + inner + y[:, -1]) * (step / 3)

    t = np.arange(33, dtype=np.float32) / 32
    return f, g, (t, np.exp(uniform(rng, 1, 3, 64, 1) * t))


@case("BUG", "Hazen's quantiles for those that NumPy takes.")
def quantile_convention(rng):
    def quantile(x, place):
        low = int(place)
        x = np.sort(x, axis=1)
        return x[:, low] + (x[:, low + 1] - x[:, low]) * (place - low)

    def f(x):
        return quantile(x, 0.9 * (x.shape[1] - 1))

    return f, lambda x: quantile(x, 0.9 * x.shape[1] - 0.5), (normal(rng, 32, 102),)


@case("BUG")
def median_for_mean(rng):
    x = normal(rng, 32, 51)
    return lambda x: x.mean(axis=1), lambda x: np.median(x, axis=1).astype(x.dtype), (x,)


def cell(x, h, c, w, u, order=(0, 1, 2, 3)):
    """Return the next state of an LSTM whose gates stand in this order."""
    gates = np.split(x @ w.T + h @ u.T, 4, axis=1)
    enter, forget, new, out = (gates[k] for k in order)
    c = c / (1 + np.exp(-forget)) + np.tanh(new) / (1 + np.exp(-enter))
    return np.tanh(c) / (1 + np.exp(-out))


@case("BUG", "The gates in another library's order.", options={"batch": (0, 1, 2)})
def lstm_gate_order(rng):
    x, h, c = (normal(rng, 16, 24) for _ in range(3))
    w, u = (normal(rng, 96, 24) / 5 for _ in range(2))
    return cell, lambda *inputs: cell(*inputs, order=(0, 1, 3, 2)), (x, h, c, w, u)


@case("BUG", "The first position is 1.")
def positions_from_one(rng):
    def f(x, first=0):
        place = np.arange(first, first + x.shape[1])[:, None]
        angle = place * 1e4 ** (-np.arange(0, x.shape[2], 2) / x.shape[2])
        return x + np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(x.dtype)

    return f, lambda x: f(x, 1), (normal(rng, 8, 20, 16),)


@case("BUG", "1e-5 for 1e-6, beside a mean square of 0.01.")
def rms_norm_eps(rng):
    inputs = normal(rng, 24, 64) / 10, 1 + normal(rng, 64) / 4
    return rms_norm, lambda x, weight: rms_norm(x, weight, 1e-5), inputs


@case("BUG", "The key has the length and not the frequencies, and others came first.")
def table_cached_by_length(rng):
    def table(n, w):
        return np.cos(np.arange(n, dtype=w.dtype)[:, None] * w)

    frequencies = uniform(rng, 0.1, 1, 8)
    cache = {24: table(24, frequencies / 2)}

    def g(x, w):
        n = x.shape[1]
        if n not in cache:
            cache[n] = table(n, w)
        return x * cache[n]

    return lambda x, w: x * table(x.shape[1], w), g, (normal(rng, 16, 24, 8), frequencies)


@case("BUG", "The last 6 of 102 columns fill no tile: one row in 17 has its largest there.")
def maximum_without_last_tile(rng):
    def g(x):
        return x[:, : x.shape[1] // 32 * 32].reshape(len(x), -1, 32).max(axis=2).max(axis=1)

    return lambda x: x.max(axis=1), g, (normal(rng, 256, 102),)


@case("BUG", "Rows are as many as columns: the scale of each row goes to a column.")
def scale_along_wrong_axis(rng):
    inputs = normal(rng, 16, 24, 24), uniform(rng, 0.5, 2, 24)
    return lambda x, s: x * s[:, None], lambda x, s: x * s, inputs


@case("BUG", "x is a transposed view, and its memory is read as if it were not.")
def strides_ignored(rng):
    def g(x, w):
        return x.ravel(order="K").reshape(x.shape) @ w.T

    return lambda x, w: x @ w.T, g, (normal(rng, 40, 24).T, normal(rng, 16, 40))


@case("BUG", "One side's maximum skips what is not a number; the other's does not.")
def nan_skipped(rng):
    x = normal(rng, 40, 30)
    x[::5, 3] = np.nan
    return lambda x: np.fmax.reduce(x, axis=1), lambda x: x.max(axis=1), (x,)


@case("BUG", "Angles on both sides of the cut, by their arithmetic mean.")
def mean_of_angles(rng):
    def f(x):
        return np.arctan2(np.sin(x).mean(axis=1), np.cos(x).mean(axis=1))

    x = np.mod(2.5 + rng.standard_normal((64, 20)) / 2 + math.pi, 2 * math.pi) - math.pi
    return f, lambda x: x.mean(axis=1), (x.astype(np.float32),)


@case("BUG", "The rotation's inverse.", options={"batch": (0, 1)})
def quaternion_conjugated(rng):
    def g(q, v):
        turned = 2 * np.cross(v, q[:, 1:])
        return v + q[:, :1] * turned + np.cross(turned, q[:, 1:])

    return rotate, g, quaternions_and_vectors(rng)


@case(
    "BUG",
    "A tenth is spread over the nine other classes instead of all ten.",
    options={"batch": (0, 1)},
)
def smoothing_over_others(rng):
    inputs = normal(rng, 64, 10), rng.integers(0, 10, 64)
    return smoothed_loss, lambda x, target: smoothed_loss(x, target, 1), inputs


@case("BUG", "Corners are aligned on one side.")
def upsampling_corners(rng):
    def at(x, place):
        low = np.minimum(place.astype(int), x.shape[1] - 2)
        t = (place - low).astype(x.dtype)
        return x[:, low] * (1 - t) + x[:, low + 1] * t

    def f(x):
        n = x.shape[1]
        return at(x, np.clip((np.arange(2 * n) - 0.5) / 2, 0, n - 1))

    def g(x):
        n = x.shape[1]
        return at(x, np.arange(2 * n) * ((n - 1) / (2 * n - 1)))

    return f, g, (normal(rng, 24, 32),)


@case("BUG", "The zeros beyond the ends are counted: 2 of 64 results.")
def padding_counted(rng):
    def f(x, counted=False):
        inner = np.pad(x, ((0, 0), (1, 1)))
        number = np.pad(np.ones(x.shape[1], x.dtype), 1, constant_values=int(counted))
        total = inner[:, :-2] + inner[:, 1:-1] + inner[:, 2:]
        return total / (number[:-2] + number[1:-1] + number[2:])

    return f, lambda x: f(x, True), (normal(rng, 16, 64),)


@case("BUG", "The kernel is not reversed.")
def correlation_for_convolution(rng):
    def g(x, kernel):
        return np.lib.stride_tricks.sliding_window_view(x, len(kernel), axis=1) @ kernel

    return lambda x, kernel: g(x, kernel[::-1]), g, (normal(rng, 16, 64), normal(rng, 7))


@case("BUG", "Below -4 and above 4, a share of 5 %, by 7e-4.")
def tanh_clipped_early(rng):
    return np.tanh, lambda x: np.tanh(np.clip(x, -4, 4)), (2 * normal(rng, 32, 64),)


@case("BUG", "One row of 64 is the one before it.")
def last_row_repeated(rng):
    def g(x, w, b):
        return linear(x[np.minimum(np.arange(len(x)), len(x) - 2)], w, b)

    return linear, g, layer(rng, 64, 96, 48)


@case("BUG", "The carry is lost at the last block of 16.")
def carry_lost_at_last_block(rng):
    def g(x):
        y = np.cumsum(x, axis=1)
        y[:, 48:] = y[:, 48:] - y[:, 47:48]
        return y

    return lambda x: np.cumsum(x, axis=1), g, (uniform(rng, 0, 1, 16, 64),)


@case("BUG", "The average is not corrected for its start from 0, which is 4 % after 30 steps.")
def start_not_corrected(rng):
    def f(x, rate=0.1, corrected=True):
        y, weight = np.zeros_like(x[:, 0]), 1.0
        for k in range(x.shape[1]):
            y, weight = rate * x[:, k] + (1 - rate) * y, weight * (1 - rate)
        return y / (1 - weight) if corrected else y

    return f, lambda x: f(x, corrected=False), (normal(rng, 16, 30, 16),)


# Constants that are off.


@case("BUG", "1.7025 for 1.702: 3e-4 of the exponent.")
def quick_gelu_constant(rng):
    def f(x, slope=1.702):
        return x / (1 + np.exp(-slope * x))

    return f, lambda x: f(x, 1.7025), (normal(rng, 16, 64),)


@case("BUG", "273.16 for 273.15: 3e-5 of a temperature.")
def zero_of_celsius(rng):
    return lambda x: x + 273.15, lambda x: x + 273.16, (uniform(rng, 0, 100, 16, 32),)


@case("BUG", "The older weights of red, green and blue: 7e-5.")
def luminance_weights(rng):
    def f(x, weights=(0.2126, 0.7152, 0.0722)):
        return x @ np.array(weights, x.dtype)

    def g(x):
        return f(x, (0.212671, 0.715160, 0.072169))

    return f, g, (uniform(rng, 0, 1, 16, 32, 3),)


@case(HIDDEN, "0.0174533 for pi / 180: 4e-7 of the angle.")
def degree_cut(rng):
    x = uniform(rng, -180, 180, 16, 32)
    return lambda x: np.sin(x * (math.pi / 180)), lambda x: np.sin(x * 0.0174533), (x,)


@case(HIDDEN, "0.30103 for the logarithm of 2: 1.4e-8, a quarter of a last place.")
def decibels_cut(rng):
    x = uniform(rng, 2, 100, 16, 32)
    return lambda x: 10 * np.log10(x), lambda x: 3.0103 * np.log2(x), (x,)


@case(HIDDEN, "1.96 for 1.959964: 2e-5 of a margin that is a hundredth of the result.")
def normal_quantile_cut(rng):
    def f(x, quantile=1.959963984540054):
        return x.mean(axis=1) + quantile * x.std(axis=1) / math.sqrt(x.shape[1])

    return f, lambda x: f(x, 1.96), (10 + normal(rng, 64, 50),)


@case(HIDDEN, "The map's parameter, by 1e-6, where twenty steps magnify rounding as well.")
def logistic_map_parameter(rng):
    def f(x, rate=3.9):
        for _ in range(20):
            x = rate * x * (1 - x)
        return x

    return f, lambda x: f(x, 3.9 * (1 + 1e-6)), (uniform(rng, 0.1, 0.9, 16, 32),)


# One side raises.


@case("RAISES", "Pairs of 33 numbers: the first side leaves the last one alone.")
def odd_width_refused(rng):
    def f(x):
        y = x.copy()
        y[:, :-1:2], y[:, 1::2] = -x[:, 1::2], x[:, :-1:2]
        return y

    def g(x):
        pairs = x.reshape(len(x), -1, 2)
        return np.stack([-pairs[..., 1], pairs[..., 0]], axis=-1).reshape(x.shape)

    return f, g, (normal(rng, 16, 33),)
