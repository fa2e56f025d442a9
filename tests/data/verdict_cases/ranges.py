"""Values in between that overflow or underflow although the result fits."""

import numpy as np

from .case import SINGLE, WHOLE, Cases, in_float32, normal, softmax, uniform

CASES = case = Cases()


def quietly(f):
    """Return f without the warnings that come with what these cases are about."""

    def g(*inputs):
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            return f(*inputs)

    return g


def norm_scaled(x):
    largest = np.abs(x).max(axis=1, keepdims=True)
    return largest[:, 0] * np.sqrt(((x / largest) ** 2).sum(axis=1))


def norm(x):
    return np.sqrt((x * x).sum(axis=1))


@case("RANGE")
def norm_overflows(rng):
    return quietly(norm), norm_scaled, (normal(rng, 16, 64) * np.float32(1e20),)


@case("RANGE", "All that is asked about.", options=WHOLE)
def norm_of_two(rng):
    x = np.array([[1e20, 1e20]], np.float32)
    return norm_scaled, quietly(norm), (x,)


@case("RANGE", "Squares of 1e-25 are 0.")
def norm_underflows(rng):
    return norm_scaled, quietly(norm), (normal(rng, 16, 64) * np.float32(1e-25),)


@case("RANGE", "Squares of 1e-22 are denormal: the result keeps a digit or so.")
def norm_in_denormals(rng):
    return norm_scaled, quietly(norm), (uniform(rng, 1, 4, 16, 64) * np.float32(1e-22),)


@case("RANGE", "No reference beside g's own.", options=SINGLE)
def norm_overflows_without_float64(rng):
    return norm_scaled, quietly(in_float32(norm)), (normal(rng, 16, 64) * np.float32(1e20),)


@case("RANGE", options={"batch": (0, 1)})
def hypotenuse(rng):
    def g(x, y):
        return np.sqrt(x * x + y * y)

    x, y = (normal(rng, 16, 32) * np.float32(1e25) for _ in range(2))
    return np.hypot, quietly(g), (x, y)


@case("RANGE", "exp(100) overflows, and infinity by infinity is no number.")
def softmax_overflows(rng):
    def g(x):
        e = np.exp(x)
        return e / e.sum(axis=1, keepdims=True)

    return softmax, quietly(g), (100 + normal(rng, 16, 50),)


@case("RANGE", "exp(-200) is 0, whose logarithm is infinite.")
def logsumexp_underflows(rng):
    def f(x):
        largest = x.max(axis=1)
        return largest + np.log(np.exp(x - largest[:, None]).sum(axis=1))

    return f, quietly(lambda x: np.log(np.exp(x).sum(axis=1))), (-200 + normal(rng, 16, 50),)


@case("RANGE", "Probabilities below 1e-45 are 0.")
def log_softmax_underflows(rng):
    def f(x):
        x = x - x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    return f, quietly(lambda x: np.log(softmax(x))), (uniform(rng, -150, 150, 16, 50),)


@case("RANGE", "The sum is 1e40, and the mean 2e38.")
def mean_overflows(rng):
    def f(x):
        return (x / x.shape[1]).sum(axis=1)

    return f, quietly(lambda x: x.mean(axis=1)), (uniform(rng, 1, 3, 16, 64) * np.float32(1e38),)


@case("RANGE", "The squares' mean is 1e40, and the variance 1e36.")
def variance_overflows(rng):
    def g(x):
        return (x * x).mean(axis=1) - x.mean(axis=1) ** 2

    x = 100 + normal(rng, 16, 64)
    return lambda x: x.var(axis=1), quietly(g), (x * np.float32(1e18),)


@case("RANGE", "The squared modulus of the divisor overflows.", options={"batch": (0, 1, 2, 3)})
def complex_division(rng):
    def f(a, b, c, d):
        largest = np.maximum(np.abs(c), np.abs(d))
        c, d = c / largest, d / largest
        return (a * c + b * d) / (c * c + d * d) / largest

    def g(a, b, c, d):
        return (a * c + b * d) / (c * c + d * d)

    parts = (normal(rng, 16, 16) * np.float32(1e22) for _ in range(4))
    return f, quietly(g), tuple(parts)


@case("RANGE", "a b is denormal, and a b c is not.", options={"batch": (0, 1, 2)})
def product_in_denormals(rng):
    a, b = (uniform(rng, 1, 2, 16, 32) * np.float32(3e-22) for _ in range(2))
    c = uniform(rng, 1, 2, 16, 32) * np.float32(1e22)
    return lambda a, b, c: a * (b * c), quietly(lambda a, b, c: (a * b) * c), (a, b, c)


@case("RANGE", "Partial sums of 1e5 in a format that ends at 65504.", options={"batch": (0, 1)})
def float16_partial_sums(rng):
    def f(x, y):
        wide = np.result_type(x.dtype, np.float32)
        return (x.astype(wide) * y).sum(axis=1).astype(x.dtype)

    def g(x, y):
        total = np.zeros_like(x[:, 0])
        for k in range(x.shape[1]):
            total = total + x[:, k] * y[:, k]
        return total

    x, y = (rng.uniform(25, 35, (16, 200)).astype(np.float16) for _ in range(2))
    y[:, 100:] *= -1
    return f, quietly(g), (x, y)


def flush(x):
    """Replace denormal numbers by 0, as some matrix units do."""
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, x.dtype.type(0), x)


@case(
    "RANGE REDUCED",
    "Denormals are flushed: a narrower range, or a format without them; scaling x mends it.",
)
def denormals_flushed(rng):
    x = normal(rng, 16, 64) * np.float32(1e-38)
    w = normal(rng, 24, 64) * np.float32(1e3)
    return lambda x, w: x @ w.T, lambda x, w: flush(x) @ w.T, (x, w)


@case(
    "RANGE REDUCED",
    "As denormals_flushed: gradients in float16, where denormals begin at 6e-5.",
)
def float16_denormals_flushed(rng):
    def f(x, w):
        wide = np.result_type(x.dtype, np.float32)
        return x.astype(wide) @ w.T.astype(wide)

    x, w = (1e-4 * normal(rng, 16, 64)).astype(np.float16), normal(rng, 24, 64).astype(np.float16)
    return f, lambda x, w: f(flush(x), flush(w)), (x, w)
