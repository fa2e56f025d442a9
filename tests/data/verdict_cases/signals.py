"""Pairs of signals, images, shapes, splines and special functions.

Labelled when the rules stood, and before any was asked. About half of the pairs are one function in
two forms, as libraries and ports have it; in the others one side has a mistake that people make, of
all of a result down to a millionth of it.
"""

import math
from itertools import pairwise

import numba
import numpy as np

from .case import HIDDEN, SAME, SCIPY, TORCH, WARPED, WHOLE, Cases, double, normal, uniform

CASES = case = Cases()


# Signals and images.


def low_pass(order=4, edge=0.25):
    from scipy.signal import butter

    return butter(order, edge), butter(order, edge, output="sos")


FILTERED = f"{SAME} UNSTABLE"


@case(FILTERED, "a filter as one quotient, and in sections", needs=SCIPY)
def filter_in_sections(rng):
    from scipy import signal

    (b, a), sections = low_pass()

    def f(x):
        return signal.lfilter(b.astype(x.dtype), a.astype(x.dtype), x, axis=1)

    return f, lambda x: signal.sosfilt(sections.astype(x.dtype), x, axis=1), [normal(rng, 6, 300)]


@numba.njit
def filtered_in_turn(b, a, x, state):
    """Apply a filter of the second order, and leave its state behind."""
    y = np.empty_like(x)
    for n in range(len(x)):
        y[n] = b[0] * x[n] + state[0]
        state[0] = b[1] * x[n] - a[1] * y[n] + state[1]
        state[1] = b[2] * x[n] - a[2] * y[n]
    return y


@case(SAME, "a compiled loop: neither side is wider than float64", options=WHOLE, needs=SCIPY)
def filter_in_a_loop(rng):
    from scipy import signal

    (b, a), _ = low_pass(2)

    def g(x):
        return filtered_in_turn(b, a, x, np.zeros(2))

    return lambda x: signal.lfilter(b, a, x), g, [double(rng, 300)]


@case("BUG", "each call goes on from where the last one ended", options=WHOLE, needs=SCIPY)
def filter_that_keeps_its_state(rng):
    from scipy import signal

    (b, a), _ = low_pass(2)
    state = np.zeros(2)

    def g(x):
        return filtered_in_turn(b, a, x, state)

    return lambda x: signal.lfilter(b, a, x), g, [double(rng, 300)]


@case(HIDDEN, "coefficients of six digits", options=WHOLE, needs=SCIPY)
def filter_of_six_digits(rng):
    from scipy import signal

    (b, a), _ = low_pass(2)
    rough = np.round(b, 6), np.round(a, 6)

    def g(x):
        return signal.lfilter(*rough, x)

    return lambda x: signal.lfilter(b, a, x), g, [double(rng, 300)]


@case(f"{SAME} EQUAL", "a window by two series of one Bessel function", needs=SCIPY)
def bessel_window(rng):
    from scipy import special

    def f(x):
        return x * np.kaiser(x.shape[1], 8.6).astype(x.dtype)

    def g(x):
        t = np.linspace(-1, 1, x.shape[1])
        return x * (special.i0(8.6 * np.sqrt(1 - t * t)) / special.i0(8.6)).astype(x.dtype)

    return f, g, [normal(rng, 5, 64)]


def cosine_window(n, ends):
    t = np.arange(n) / (n - 1 if ends else n)
    return lambda x: x * (0.54 - 0.46 * np.cos(2 * math.pi * t)).astype(x.dtype)


@case("BUG", "a window of one number more")
def window_of_a_period(rng):
    return cosine_window(512, True), cosine_window(512, False), [normal(rng, 4, 512)]


@case(SAME, "a library's rate conversion, and zeros between and a convolution", needs=SCIPY)
def resampling(rng):
    from scipy import signal

    taps = signal.firwin(41, 1 / 3)

    def f(x):
        return signal.resample_poly(x, 3, 2, axis=1, window=taps.astype(x.dtype))

    def g(x):
        up = np.zeros((len(x), 3 * x.shape[1]), x.dtype)
        up[:, ::3] = x
        kernel = (3 * taps).astype(x.dtype)
        rows = [np.convolve(row, kernel)[20:-20] for row in up]
        return np.stack(rows)[:, ::2]

    return f, g, [normal(rng, 4, 60)]


def bilinear(image, rows, columns, clip=True):
    """Return an image between its pixels; beyond the border it is as there."""
    n, m = image.shape
    if clip:
        rows, columns = np.clip(rows, 0, n - 1), np.clip(columns, 0, m - 1)
    i, j = np.floor(rows).astype(int), np.floor(columns).astype(int)
    s, t = rows - i, columns - j
    k, l = np.minimum(i + 1, n - 1), np.minimum(j + 1, m - 1)  # noqa: E741
    top = (1 - t) * image[i, j] + t * image[i, l]
    return (1 - s) * top + s * (1 - t) * image[k, j] + s * t * image[k, l]


def places_in(rng, kind, low=0.5):
    return [
        rng.random((32, 32)).astype(kind),
        rng.uniform(low, 30.5, 300).astype(kind),
        rng.uniform(low, 30.5, 300).astype(kind),
    ]


@case(WARPED, "a warp by a library, in doubles, and by weights", options=WHOLE, needs=SCIPY)
def bilinear_warp(rng):
    from scipy import ndimage

    def f(image, rows, columns):
        return ndimage.map_coordinates(image, [rows, columns], order=1, mode="nearest")

    return f, bilinear, places_in(rng, np.float32)


@case("BUG", "rows and columns exchanged", options=WHOLE)
def bilinear_warp_turned(rng):
    def g(image, rows, columns):
        return bilinear(image, columns, rows)

    return bilinear, g, places_in(rng, np.float64)


@case("BUG", "what is left of the border is taken from the right", options=WHOLE)
def bilinear_warp_that_wraps(rng):
    def g(image, rows, columns):
        return bilinear(image, rows, columns, clip=False)

    return bilinear, g, places_in(rng, np.float32, low=-0.6)


def median_of_windows(x, mode):
    padded = np.pad(x, 2, mode=mode)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5))
    return np.median(windows, axis=(2, 3))


@case("EQUAL", "of a library, and of all windows", options=WHOLE, needs=SCIPY)
def median_filter(rng):
    from scipy import ndimage

    def f(x):
        return ndimage.median_filter(x, 5, mode="reflect")

    return f, lambda x: median_of_windows(x, "symmetric"), [normal(rng, 24, 30)]


@case("BUG", "0 beyond the border, where it is reflected", options=WHOLE)
def median_filter_of_another_border(rng):
    def f(x):
        return median_of_windows(x, "symmetric")

    return f, lambda x: median_of_windows(x, "constant"), [double(rng, 24, 30)]


def gaussian_taps(scale=1.5, reach=3, normalised=True):
    taps = np.exp(-((np.arange(-reach, reach + 1) / scale) ** 2) / 2)
    return taps / (taps.sum() if normalised else scale * math.sqrt(2 * math.pi))


def blurred(taps):
    import torch

    def f(x):
        row = torch.from_numpy(taps).to(x.dtype)
        y = torch.nn.functional.conv2d(x[:, None], row[None, None, None])
        return torch.nn.functional.conv2d(y, row[None, None, :, None])[:, 0]

    return f


@case(SAME, "a blur along each axis, and at once", needs=TORCH)
def blur_at_once(rng):
    import torch

    taps = gaussian_taps()

    def g(x):
        square = torch.from_numpy(np.outer(taps, taps)).to(x.dtype)
        return torch.nn.functional.conv2d(x[:, None], square[None, None])[:, 0]

    return blurred(taps), g, [torch.from_numpy(normal(rng, 3, 20, 24))]


@case("BUG", "taps that were cut off do not add up to 1", needs=TORCH)
def blur_that_darkens(rng):
    import torch

    cut = blurred(gaussian_taps(reach=4, normalised=False))
    return blurred(gaussian_taps(reach=4)), cut, [torch.from_numpy(normal(rng, 3, 20, 24))]


@case("BUG", "a spectrum of odd length is shifted back, and not there")
def spectrum_shifted_back(rng):
    def f(x):
        return np.fft.fftshift(np.fft.fft(x), axes=1)

    return f, lambda x: np.fft.ifftshift(np.fft.fft(x), axes=1), [double(rng, 5, 33)]


# Geometry.


# Processors whose libraries do not fuse products with sums give equal bits at some seeds.
@case(f"EQUAL {SAME}", "three turns in turn, and by their product written down")
def turns_by_three_angles(rng):
    def f(angles):
        c, s = np.cos(angles), np.sin(angles)
        none, one = np.zeros_like(c[:, 0]), np.ones_like(c[:, 0])

        def matrix(*rows):
            return np.stack(rows, axis=-1).reshape(-1, 3, 3)

        z = matrix(c[:, 0], -s[:, 0], none, s[:, 0], c[:, 0], none, none, none, one)
        y = matrix(c[:, 1], none, s[:, 1], none, one, none, -s[:, 1], none, c[:, 1])
        x = matrix(one, none, none, none, c[:, 2], -s[:, 2], none, s[:, 2], c[:, 2])
        return z @ y @ x

    return f, turned_at_once, [uniform(rng, -1.5, 1.5, 40, 3)]


def turned_at_once(angles):
    (a, b, c), (d, e, f) = np.cos(angles).T, np.sin(angles).T
    rows = [a * b, a * e * f - d * c, a * e * c + d * f]
    rows += [d * b, d * e * f + a * c, d * e * c - a * f]
    rows += [-e, b * f, b * c]
    return np.stack(rows, axis=1).reshape(-1, 3, 3)


@case("BUG", "the angles in the other order")
def turns_in_another_order(rng):
    return turned_at_once, lambda a: turned_at_once(a[:, ::-1]), [rng.uniform(-1.5, 1.5, (40, 3))]


def turn_by_quaternion(q, v, normalised=True):
    if normalised:
        q = q / np.sqrt((q * q).sum(axis=1, keepdims=True))
    w, u = q[:, :1], q[:, 1:]
    t = 2 * np.cross(u, v)
    return v + w * t + np.cross(u, t)


@case("BUG", "quaternions whose lengths are 1 but for a few 1e-5 are not made so")
def quaternions_of_other_lengths(rng):
    q = double(rng, 40, 4)
    q /= np.sqrt((q * q).sum(axis=1, keepdims=True))
    q = (q * rng.uniform(0.99995, 1.00005, (40, 1))).astype(np.float32)

    def g(q, v):
        return turn_by_quaternion(q, v, normalised=False)

    return turn_by_quaternion, g, [q, normal(rng, 40, 3)]


def haversine(a, b, radius=6371.0088):
    (p, s), (q, t) = np.radians(a).T, np.radians(b).T
    h = np.sin((q - p) / 2) ** 2 + np.cos(p) * np.cos(q) * np.sin((t - s) / 2) ** 2
    return 2 * radius * np.arcsin(np.sqrt(h))


def cities(rng, kind):
    a, b = (np.stack([rng.uniform(-60, 60, 80), rng.uniform(-90, 60, 80)], axis=1) for _ in "ab")
    return [a.astype(kind), b.astype(kind)]


@case(f"{SAME} AMPLIFIED", "by half angles, and by vectors")
def great_circles(rng):
    def g(a, b):
        def vectors(x):
            p, s = np.radians(x).T
            return np.stack([np.cos(p) * np.cos(s), np.cos(p) * np.sin(s), np.sin(p)], axis=1)

        u, v = vectors(a), vectors(b)
        sine = np.sqrt((np.cross(u, v) ** 2).sum(axis=1))
        return 6371.0088 * np.arctan2(sine, (u * v).sum(axis=1))

    return haversine, g, cities(rng, np.float64)


@case(HIDDEN, "6371 km for 6371.0088")
def great_circles_of_another_radius(rng):
    return haversine, lambda a, b: haversine(a, b, 6371.0), cities(rng, np.float32)


@case("RANGE UNSTABLE", "nearly parallel vectors: their cosine is 1, or more")
def angle_of_parallel_vectors(rng):
    def f(u, v):
        return np.arctan2(np.sqrt((np.cross(u, v) ** 2).sum(axis=1)), (u * v).sum(axis=1))

    def g(u, v):
        u, v = (x / np.sqrt((x * x).sum(axis=1, keepdims=True)) for x in (u, v))
        return np.arccos((u * v).sum(axis=1))

    u = normal(rng, 100, 3)
    return f, g, [u, (u * 2 + 1e-3 * normal(rng, 100, 3)).astype(np.float32)]


@case("UNSTABLE", "Heron's formula of needles, and a cross product")
def areas_of_needles(rng):
    def f(a, b, c):
        (p, q), (s, t) = (b - a).T, (c - a).T
        return np.abs(p * t - q * s) / 2

    def g(a, b, c):
        x, y, z = (np.sqrt(((u - v) ** 2).sum(axis=1)) for u, v in ((a, b), (b, c), (c, a)))
        s = (x + y + z) / 2
        return np.sqrt(np.maximum(s * (s - x) * (s - y) * (s - z), 0))

    a, b = normal(rng, 60, 2), normal(rng, 60, 2)
    c = (a + b) / 2 + 3e-3 * normal(rng, 60, 2)
    return f, g, [a, b, c.astype(np.float32)]


def inside(points, corners):
    """Return whether points are inside of a polygon, by how often a ray crosses it."""
    x, y = points.T
    found = np.zeros(len(points), bool)
    for (a, b), (c, d) in pairwise(corners):
        crossed = (b > y) != (d > y)
        found ^= crossed & (x < a + (y - b) * (c - a) / np.where(d == b, 1, d - b))
    return found


def star(rng, closed):
    angles, sizes = np.linspace(0, 2 * math.pi, 10)[:-1], rng.uniform(0.4, 1, 9)
    corners = np.stack([sizes * np.cos(angles), sizes * np.sin(angles)], axis=1)
    return np.concatenate([corners, corners[:1]]) if closed else corners


@case("EQUAL", "truth values, by crossings and by winding")
def points_in_a_polygon(rng):
    corners = star(rng, closed=True)

    def g(points):
        turns = np.zeros(len(points))
        for a, b in pairwise(corners):
            u, v = a - points, b - points
            turns += np.arctan2(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0], (u * v).sum(axis=1))
        return np.abs(turns) > math.pi

    return lambda points: inside(points, corners), g, [rng.uniform(-1, 1, (200, 2))]


@case("BUG", "the polygon is not closed")
def points_in_an_open_polygon(rng):
    corners = star(rng, closed=True)

    def g(points):
        return inside(points, corners[:-1])

    return lambda points: inside(points, corners), g, [uniform(rng, -1, 1, 200, 2)]


@case("REDUCED", "distances in float32, for doubles", formats=("float32",), options=WHOLE)
def distances_in_float32(rng):
    def f(x, y):
        return np.sqrt(((x[:, None] - y) ** 2).sum(axis=2))

    def g(x, y):
        return f(x.astype(np.float32), y.astype(np.float32)).astype(np.float64)

    return f, g, [double(rng, 20, 6), double(rng, 25, 6)]


# Splines, polynomials, special functions.


@numba.njit
def natural_spline(y, at):
    """Return a natural spline through numbers at 0, 1, ..., at other places."""
    n = len(y)
    c, d, m = np.zeros(n), np.zeros(n), np.zeros(n)
    for i in range(1, n - 1):
        left = 4 - c[i - 1]
        c[i] = 1 / left
        d[i] = (6 * (y[i + 1] - 2 * y[i] + y[i - 1]) - d[i - 1]) / left
    for i in range(n - 2, 0, -1):
        m[i] = d[i] - c[i] * m[i + 1]
    out = np.empty_like(at)
    for k in range(len(at)):
        i = min(int(at[k]), n - 2)
        t = at[k] - i
        s = 1 - t
        out[k] = s * y[i] + t * y[i + 1]
        out[k] += ((s**3 - s) * m[i] + (t**3 - t) * m[i + 1]) / 6
    return out


def library_spline(ends):
    def f(y, at):
        from scipy.interpolate import CubicSpline

        return CubicSpline(np.arange(len(y)), y, bc_type=ends)(at)

    return f


def knots(rng, kind=np.float64):
    return [rng.standard_normal(20).astype(kind), rng.uniform(0, 19, 100).astype(kind)]


@case(WARPED, "of a library, and in a compiled loop", options=WHOLE, needs=SCIPY)
def cubic_spline(rng):
    return library_spline("natural"), natural_spline, knots(rng)


@case("BUG", "other conditions at the ends", options=WHOLE, needs=SCIPY)
def cubic_spline_of_other_ends(rng):
    return library_spline("not-a-knot"), natural_spline, knots(rng)


@case(WARPED, "through nine points, by Lagrange's weights and by Neville's steps", options=WHOLE)
def polynomial_through_points(rng):
    nodes = np.cos(np.arange(9) * math.pi / 8)
    weights = (-1.0) ** np.arange(9)
    weights[[0, -1]] /= 2

    def f(y, x):
        d = x[:, None] - nodes.astype(x.dtype)
        w = weights.astype(x.dtype) / d
        return (w * y).sum(axis=1) / w.sum(axis=1)

    def g(y, x):
        at = nodes.astype(x.dtype)
        p = [y[k] + 0 * x for k in range(9)]
        for m in range(1, 9):
            p = [
                ((x - at[i + m]) * p[i] + (at[i] - x) * p[i + 1]) / (at[i] - at[i + m])
                for i in range(9 - m)
            ]
        return p[0]

    return f, g, [normal(rng, 9), uniform(rng, -0.95, 0.95, 60)]


@case(SAME, "from within, and by powers")
def polynomial_by_powers(rng):
    coefficients = rng.uniform(0.5, 2, 7)

    def f(x):
        y = 0 * x
        for c in coefficients.astype(x.dtype):
            y = y * x + c
        return y

    def g(x):
        return x[..., None] ** np.arange(6, -1, -1).astype(x.dtype) @ coefficients.astype(x.dtype)

    return f, g, [uniform(rng, 0.5, 1.5, 20, 10)]


@case("UNSTABLE", "from within, where it is a product of what is left to ten roots")
def polynomial_by_its_roots(rng):
    coefficients = np.rint(np.poly(np.arange(1, 11)))

    def f(x):
        return np.prod(x[:, None] - np.arange(1, 11, dtype=x.dtype), axis=1)

    def g(x):
        y = 0 * x
        for c in coefficients.astype(x.dtype):
            y = y * x + c
        return y

    k = rng.integers(2, 10, 60)
    return f, g, [(k + rng.uniform(0.3, 0.7, 60)).astype(np.float32)]


@case(WARPED, "by itself, and by its logarithm", needs=SCIPY)
def gamma_by_its_logarithm(rng):
    from scipy import special

    return special.gamma, lambda x: np.exp(special.gammaln(x)), [uniform(rng, 0.5, 20, 200)]


@case(HIDDEN, "a fit that is off by 1.5e-7 at most, of Abramowitz and Stegun, 7.1.26", needs=SCIPY)
def error_function_of_five_terms(rng):
    from scipy import special

    def g(x):
        t = 1 / (1 + 0.3275911 * np.abs(x))
        y = 0 * x
        for c in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
            y = y * t + c
        return np.sign(x) * (1 - y * t * np.exp(-x * x))

    return special.erf, g, [double(rng, 20, 30)]


@case(f"{SAME} UNSTABLE", "of a library, and by steps in the degree", needs=SCIPY)
def legendre_by_steps(rng):
    from scipy import special

    def g(x):
        before, y = 1 + 0 * x, x
        for n in range(1, 8):
            before, y = y, ((2 * n + 1) * x * y - n * before) / (n + 1)
        return y

    return lambda x: special.eval_legendre(8, x), g, [rng.uniform(-1, 1, 200)]
