"""Verdicts as one quantity grows: where they change depends on the thresholds of the rules.

The functions are arithmetic, since their rounding errors are the same on every processor.
"""

import hashlib
from itertools import groupby

import numpy as np

import calipers

from .exact_functions import X
from .reports import MATRIX, ROWS, changed, cubes, cubes_jac

DIAGNOSES, CHECKS, DERIVATIVES = {}, {}, {}


def sweep(sweeps, exponents):
    """Register a function of one quantity, which takes these powers of two."""

    def register(make):
        sweeps[make.__name__] = make, 2.0 ** np.asarray(exponents)
        return make

    return register


def in_a_row(words):
    """Return words with the number of their repetitions."""
    return " ".join(f"{word}*{len([*group])}" for word, group in groupby(words))


# diagnose: f, g and inputs


def columns(x):
    """Return the sums of rows, element by element."""
    total = x[:, 0]
    for k in range(1, x.shape[1]):
        total = total + x[:, k]
    return total


def backwards(x):
    return columns(x[:, ::-1])


def rounded(x, step):
    """Return numbers rounded to a multiple of a step that is a power of two."""
    return np.rint(x / x.dtype.type(step)) * x.dtype.type(step)


@sweep(DIAGNOSES, np.arange(-24, -10, 0.5))
def factor(size):
    return columns, lambda x: backwards(x) * x.dtype.type(1 + size), ROWS


@sweep(DIAGNOSES, np.arange(-24, -8, 0.5))
def one_result(size):
    return columns, lambda x: changed(backwards(x), 3, columns(x)[3] * x.dtype.type(1 + size)), ROWS


@sweep(DIAGNOSES, np.arange(-24, -8, 0.5))
def product(size):
    return lambda x: x * x, lambda x: x * x * x.dtype.type(1 + size), ROWS


@sweep(DIAGNOSES, np.arange(0, 9, 0.5))
def many_results(count):
    def g(x):
        y = (x * x).ravel()
        y[: int(count)] *= x.dtype.type(1 + 2.0**-18)
        return y.reshape(x.shape)

    return lambda x: x * x, g, ROWS


@sweep(DIAGNOSES, np.arange(4, 14, 0.25))
def cancellation(offset):
    c = np.float32(offset)
    return lambda x: columns((x - c) / 7), lambda x: backwards(x - c) / 7, ROWS + c


@sweep(DIAGNOSES, np.arange(-4, 12, 0.5))
def variance_in_one_pass(offset):
    n = ROWS.shape[1]

    def f(x):
        mean = columns(x) / n
        return columns((x - mean[:, None]) * (x - mean[:, None])) / n

    def g(x):
        mean = columns(x) / n
        return columns(x * x) / n - mean * mean

    return f, g, ROWS + np.float32(offset)


@sweep(DIAGNOSES, np.arange(-24, -2))
def rounded_inputs(step):
    return columns, lambda x: backwards(rounded(x, step)), ROWS


@sweep(DIAGNOSES, np.arange(-80, 68, 4))
def norm(scale):
    def plain(x):
        return np.sqrt(columns(x * x))

    return plain, lambda x: plain(x / x.max()) * x.max(), ROWS * np.float32(scale)


@sweep(DIAGNOSES, np.arange(-24, -4))
def random_factor(size):
    random = np.random.default_rng(0)
    return columns, lambda x: columns(x) * x.dtype.type(1 + size * random.random()), ROWS


@sweep(DIAGNOSES, np.arange(-53, -20))
def in_float64(size):
    rows = ROWS.astype(float)
    return columns, lambda x: backwards(x) * x.dtype.type(1 + size), rows


@sweep(DIAGNOSES, np.arange(-23, -1))
def fewer_bits(precision):
    def fewer(x):
        significand, exponent = np.frexp(x)
        return np.ldexp(rounded(significand, precision), exponent)

    return columns, lambda x: backwards(fewer(x)), ROWS


# gradcheck: f, inputs and options


@sweep(CHECKS, np.arange(-30, -4, 0.5))
def wrong_entry(size):
    def jac(x):
        return changed(cubes_jac(x), (1, 2), -3 * x[2] * x[2] * (1 + size))

    return cubes, X[:3], {"jac": jac}


@sweep(CHECKS, np.arange(-30, -4, 0.5))
def wrong_entry_fast(size):
    def vjp(x, w):
        return changed(cubes_jac(x), (1, 2), -3 * x[2] * x[2] * (1 + size)).T @ w

    return cubes, X[:3], {"vjp": vjp, "fast_mode": True}


@sweep(CHECKS, np.arange(-20, -2, 0.5))
def wrong_entry_float32(size):
    x = X.astype(np.float32)
    slope = np.diag(2 * x)
    return lambda x: x * x, x, {"jac": lambda x: slope * np.float32(1 + size)}


@sweep(CHECKS, np.arange(-30, -4, 0.5))
def wrong_entry_float64_fixed_step(size):
    slope = np.diag(2 * X) * (1 + size)
    return lambda x: x * x, X, {"jac": lambda x: slope, "method": "3-point"}


def noise(x):
    """Return numbers between -1/2 and 1/2, a hash of the bits of x."""
    bits = np.ascontiguousarray(x, float).view(np.uint64) * np.uint64(6364136223846793005)
    return (bits >> np.uint64(33)) * 2.0**-31 - 0.5


@sweep(CHECKS, np.arange(-50, 0))
def noisy(size):
    return lambda x: x * x + size * noise(x), X, {"jac": lambda x: np.diag(2 * x)}


@sweep(CHECKS, np.arange(-50, 0))
def noisy_and_wrong(size):
    return lambda x: x * x + size * noise(x), X, {"jac": lambda x: np.diag(2.002 * x)}


@sweep(CHECKS, np.arange(-50, 0))
def kink(distance):
    point = X[:2] + distance
    return lambda x: np.abs(x - X[:2]) + x * x, point, {"jac": lambda x: np.diag(1 + 2 * x)}


@sweep(CHECKS, np.arange(-50, 0))
def slight_kink(size):
    def f(x):
        return x * x + size * np.abs(x - X)

    return f, X, {"jac": lambda x: np.diag(2 * x)}


@sweep(CHECKS, np.arange(-50, 0))
def staircase(step):
    return lambda x: np.floor(x / step) * step, X, {"jac": lambda x: np.eye(4)}


@sweep(CHECKS, np.arange(-40, 0))
def wave(period):
    def f(x):
        y = x / period
        return x + 0.1 * period * np.abs(y - np.rint(y))

    return f, X / 3, {"jac": lambda x: np.eye(4)}


@sweep(CHECKS, np.arange(0, 60, 2))
def large_offset(size):
    return lambda x: x * x + size, X, {"jac": lambda x: np.diag(2.0625 * x)}


@sweep(CHECKS, np.arange(-60, 0, 2))
def small_entry(size):
    jac = MATRIX * [1, 1, size]
    return lambda x: jac @ x, X[:3], {"jac": lambda x: changed(jac, (0, 2), 0.0)}


@sweep(CHECKS, np.arange(-40, 0))
def edge(distance):
    with np.errstate(all="ignore"):
        return np.sqrt, np.array([1.0, distance]), {"jac": lambda x: np.diag(0.5 / np.sqrt(x))}


# differentiate: f and x


def derivatives_of_checks():
    """Use the functions of the checks that are difficult to differentiate."""
    for name in ("noisy", "kink", "slight_kink", "staircase", "wave", "large_offset", "edge"):
        make, values = CHECKS[name]
        DERIVATIVES[name] = (lambda value, make=make: make(value)[:2]), values


derivatives_of_checks()


@sweep(DERIVATIVES, np.arange(-60, 60, 4))
def scaled(size):
    return lambda x: (x / size) * (x / size) / (1 + (x / size) * (x / size)), X * size


@sweep(DERIVATIVES, np.arange(-40, 10, 2))
def near_a_pole(distance):
    return lambda x: 1 / (x - X), X + distance


@sweep(DERIVATIVES, np.arange(-40, 10, 2))
def short_length(length):
    return lambda x: x / (1 + ((x - X) / length) * ((x - X) / length)), X + length


# Records


def diagnosed(name):
    make, values = DIAGNOSES[name]
    found = [calipers.diagnose(*make(value)) for value in values]
    kinds = in_a_row(f"{x.kind}" + (f":{x.format}" if x.format else "") for x in found)
    return {"kinds": kinds, "calls": calls_of(found)}


def checked(name):
    make, values = CHECKS[name]
    reports = []
    for value in values:
        f, x, options = make(value)
        reports.append(calipers.gradcheck(f, x, raise_exception=False, **options))
    verdicts = in_a_row(x.verdict + "+hidden" * bool(x.hidden) for x in reports)
    numbers = [[(e.row, e.column, e.numerical, e.error) for e in x.failures] for x in reports]
    settings = [(x.atol, x.rtol, x.resolution, x.fd_error, x.counts) for x in reports]
    digest = hashlib.sha256(repr((numbers, settings)).encode()).hexdigest()[:16]
    return {"verdicts": verdicts, "calls": calls_of(reports), "numbers": digest}


def calls_of(reports):
    """Return the number of calls of all functions, which show the rules that were tried."""
    return sum(sum(x.calls.values()) for x in reports)


def differentiated(name):
    """Return the statuses, and a hash of the bits of all values and errors."""
    make, values = DERIVATIVES[name]
    found = [calipers.differentiate(*make(value)) for value in values]
    bits = b"".join(x.value.tobytes() + x.error.tobytes() for x in found)
    statuses = in_a_row("/".join(dict.fromkeys(x.status.tolist())) for x in found)
    calls = sum(x.nfev for x in found)
    return {"statuses": statuses, "nfev": calls, "bits": hashlib.sha256(bits).hexdigest()[:16]}


def records():
    parts = ((DIAGNOSES, diagnosed), (CHECKS, checked), (DERIVATIVES, differentiated))
    return {f"{f.__name__} {name}": f(name) for sweeps, f in parts for name in sweeps}
