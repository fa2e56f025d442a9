"""Pairs of a reviewer who did not know the rules, on which those of that day were wrong.

Results of wide range, of which the largest hide the others; races; constants that are rounded and
used time and again; and float64 without a wider format.
"""

import numpy as np

from .case import Cases, normal

CASES = case = Cases()

HIDDEN = "BUG SUSPECT"
WIDE = {"float32": np.float32, "float64": np.float64}


def each_format(kinds, note, **fields):
    """Register a pair for float32 and for float64."""

    def register(make):
        for name, kind in WIDE.items():
            case(kinds, note, name=f"{make.__name__}_{name}", **fields)(
                lambda rng, kind=kind: make(rng, kind)
            )
        return make

    return register


# Large results beside which small ones are wrong.


@each_format(HIDDEN, "small results of opposite sign, beside exp(30)")
def sign_of_small_exponentials(rng, kind):
    return np.exp, lambda x: np.where(x < -10, -np.exp(x), np.exp(x)), [spread(rng, kind)]


@each_format(HIDDEN, "small results are 0, beside exp(30)")
def small_exponentials_left_out(rng, kind):
    return np.exp, lambda x: np.where(x < -10, 0, np.exp(x)), [spread(rng, kind)]


@each_format(HIDDEN, "results below 1 are 1 % too large, beside exp(30)")
def small_exponentials_too_large(rng, kind):
    factor = kind(1.01)
    return np.exp, lambda x: np.where(x < 0, factor, kind(1)) * np.exp(x), [spread(rng, kind)]


def spread(rng, kind):
    return rng.uniform(-30, 30, 60).astype(kind)


@each_format(HIDDEN, "squares of small numbers are a thousandth too large, beside 1e36")
def small_squares(rng, kind):
    x = np.logspace(-3, 18, 50).astype(kind) * rng.uniform(0.9, 1.1, 50).astype(kind)
    factor = kind(1.001)
    return lambda x: x * x, lambda x: np.where(x < 1, factor, kind(1)) * x * x, [x]


@each_format(HIDDEN, "energies of light bodies, beside one of 1e24 kg")
def energies_of_light_bodies(rng, kind):
    mass, speed = np.array([1e-27, 5e-5, 3, 6e24], kind), rng.uniform(1, 3, 4).astype(kind)

    def f(m, v):
        return kind(0.5) * m * v * v

    def g(m, v):
        return np.where(m < 1e10, kind(1.001), kind(1)) * f(m, v)

    return f, g, [mass, speed]


@each_format(HIDDEN, "a row is twice too large, and another overflows in between")
def a_row_beside_one_that_overflows(rng, kind):
    x = rng.standard_normal((12, 32)).astype(kind)
    x[0] *= kind(1e20 if kind is np.float32 else 1e160)

    def f(x):
        largest = np.abs(x).max(axis=1)
        return largest * np.sqrt(((x / largest[:, None]) ** 2).mean(axis=1))

    def g(x):
        y = np.sqrt((x**2).mean(axis=1))
        y[-1] *= 2
        return y

    return f, g, [x]


@each_format("ROUNDING LAYOUT AMPLIFIED", "the same exponentials, by halves")
def exponentials_by_halves(rng, kind):
    return np.exp, lambda x: np.exp(x / 2) * np.exp(x / 2), [spread(rng, kind)]


@each_format(
    "ROUNDING LAYOUT UNSTABLE", "a transform whose small results lose what large ones keep"
)
def spectrum_of_wide_range(rng, kind):
    x = rng.standard_normal(64)
    x = np.fft.irfft(np.fft.rfft(x) * np.logspace(0, -12, 33)).astype(kind)
    k = np.arange(64)

    def by_matrix(x):
        angle = (2 * np.pi / 64) * np.outer(k[:33], k).astype(np.longdouble)
        return np.cos(angle).astype(x.dtype) @ x

    def by_symmetry(x):
        back = np.concatenate([x[:1], x[:0:-1]])
        angle = (2 * np.pi / 64) * np.outer(k[:33], k).astype(np.longdouble)
        return np.cos(angle).astype(x.dtype) @ ((x + back) / 2)

    return by_matrix, by_symmetry, [x]


# Sides that do not repeat themselves, beyond rounding.


@case("BUG", "one call in three gives half of what is right, and all sum in another order")
def half_now_and_then(rng):
    own = np.random.default_rng(int(rng.integers(2**32)))

    def g(x):
        y = x[:, own.permutation(256)].sum(axis=1)
        return y * x.dtype.type(0.5) if own.random() < 0.3 else y

    return lambda x: x.sum(axis=1), g, [rng.random((4, 256)).astype(np.float32)]


@case("BUG", "half of the calls lose a term of a sum of a thousand, in any order")
def lost_updates(rng):
    own = np.random.default_rng(int(rng.integers(2**32)))

    def g(x):
        order = own.permutation(1000)
        y = x[:, order].sum(axis=1)
        return y - x[:, order[0]] if own.random() < 0.5 else y

    return lambda x: x.sum(axis=1), g, [(0.5 + rng.random((4, 1000))).astype(np.float32)]


@case("NONDETERMINISTIC", "another order of summation in each call")
def any_order(rng):
    own = np.random.default_rng(int(rng.integers(2**32)))
    x = (0.5 + rng.random((4, 1000))).astype(np.float32)
    return lambda x: x.sum(axis=1), lambda x: x[:, own.permutation(1000)].sum(axis=1), [x]


# Constants that are rounded to the format, and used time and again.

KEPT = "ROUNDING LAYOUT UNSTABLE AMPLIFIED"


@each_format(KEPT, "a decay by differences and by a factor")
def decay_by_a_factor(rng, kind):
    def f(x):
        for _ in range(200):
            x = x - x.dtype.type(0.03) * x
        return x

    def g(x):
        for _ in range(200):
            x = (1 - x.dtype.type(0.03)) * x
        return x

    return f, g, [rng.standard_normal(20).astype(kind)]


@each_format(KEPT, "interest at once, and year by year")
def growth_step_by_step(rng, kind):
    def f(x):
        return x * np.exp(x.dtype.type(0.0002) * 250)

    def g(x):
        step = np.exp(x.dtype.type(0.0002))
        for _ in range(250):
            x = x * step
        return x

    return f, g, [1 + np.abs(rng.standard_normal(20)).astype(kind)]


@case(KEPT, "heat by differences, and by folded coefficients")
def heat_by_folded_coefficients(rng):
    def f(u):
        c = u.dtype.type(0.2)
        for _ in range(50):
            u = u + c * (np.roll(u, 1) - 2 * u + np.roll(u, -1))
        return u

    def g(u):
        c = u.dtype.type(0.2)
        for _ in range(50):
            u = (1 - 2 * c) * u + c * (np.roll(u, 1) + np.roll(u, -1))
        return u

    return f, g, [normal(rng, 40)]


@case(KEPT, "angles of 400 positions in the format, and in float64")
def angles_of_positions(rng):
    def rotated(x, kind):
        rates = kind(10000) ** (-np.arange(16).astype(kind) / kind(16))
        angle = np.arange(400).astype(kind)[:, None] * rates
        c, s = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
        u, v = x[:, :16], x[:, 16:]
        return np.concatenate([u * c - v * s, v * c + u * s], axis=1)

    return (
        lambda x: rotated(x, x.dtype.type),
        lambda x: rotated(x, np.float64),
        [normal(rng, 400, 32)],
    )


@case("BUG", "a branch for float32 has another constant")
def another_constant_in_float32(rng):
    def g(x):
        return x * x.dtype.type(1.0 / 3 if x.dtype == np.float64 else 0.333)

    return lambda x: x / 3, g, [normal(rng, 200)]


# float64 with no wider format to ask in.


@case("UNSTABLE", "log(1 + exp(x)) loses what log1p keeps", needs=("torch",))
def log1p_in_float64(rng):
    import torch

    x = torch.linspace(-25, -15, 20, dtype=torch.float64) + float(rng.random())
    return lambda x: torch.log1p(torch.exp(x)), lambda x: torch.log(1 + torch.exp(x)), [x]


@case("UNSTABLE", "1 - erf(x) loses what erfc keeps", needs=("scipy",))
def erfc_in_float64(rng):
    from scipy import special

    x = np.linspace(2, 4, 20) + rng.random()
    return lambda x: special.erfc(x), lambda x: 1 - special.erf(x), [x]


@case("UNSTABLE", "the textbook's variance of numbers far from 0", needs=("torch",))
def variance_in_float64(rng):
    import torch

    x = torch.from_numpy(rng.standard_normal((300, 5)) + 1e4)
    return lambda x: x.var(0), lambda x: ((x * x).mean(0) - x.mean(0) ** 2) * (300 / 299), [x]


@case("BUG", "a constant of five digits, in float64 without a wider format", needs=("torch",))
def five_digits_in_float64(rng):
    import torch

    x = torch.from_numpy(rng.standard_normal((20, 50)))
    root = 0.70711
    return lambda x: x * 2**-0.5, lambda x: x * root, [x]


@case("BUG", "a row is wrong, beside rows that lose digits", needs=("torch",))
def a_row_beside_lost_digits(rng):
    import torch

    x = torch.linspace(-25, -15, 20, dtype=torch.float64) + float(rng.random())

    def g(x):
        y = torch.log(1 + torch.exp(x))
        y[3] *= 1.01
        return y

    return lambda x: torch.log1p(torch.exp(x)), g, [x]


# Differences along one direction, which some format explains by chance.


@case("BUG", "a corner of Hilbert's matrix is another number")
def corner_of_a_hilbert_matrix(rng):
    k = np.arange(5)
    matrix = (1 / (k[:, None] + k + 1.0)).astype(np.float32)

    def g(matrix, b):
        matrix = matrix.copy()
        matrix[-1, -1] += matrix.dtype.type(2e-6)
        return np.linalg.solve(matrix, b)

    return np.linalg.solve, g, [matrix, normal(rng, 5)]


@case("BUG", "another noise in a Gaussian process")
def noise_of_a_gaussian_process(rng):
    x = np.linspace(0, 1, 8).astype(np.float32)
    y = (np.sin(6 * x + rng.normal()) + 0.05 * rng.normal(size=8)).astype(np.float32)

    def weights(noise):
        def solved(x, y):
            kind = x.dtype.type
            kernel = np.exp(-((x[:, None] - x) ** 2) / kind(0.18))
            return np.linalg.solve(kernel + kind(noise) * np.eye(8, dtype=x.dtype), y)

        return solved

    return weights(1e-4), weights(1.03e-4), [x, y]


@case(
    "REDUCED", "a solve whose matrix is rounded to bfloat16", formats=("bfloat16",), arguments=(0,)
)
def solve_of_a_rounded_matrix(rng):
    k = np.arange(6)
    matrix = (1 / (k[:, None] + k + 1.0) + 0.05 * np.eye(6)).astype(np.float32)

    def g(matrix, b):
        whole = matrix.astype(np.float32).view(np.uint32)
        rounded = (whole + 0x7FFF + ((whole >> 16) & 1)) & np.uint32(0xFFFF0000)
        return np.linalg.solve(rounded.view(np.float32).astype(matrix.dtype), b)

    return np.linalg.solve, g, [matrix, normal(rng, 6)]
