"""Transforms by a matrix beside a library's, and angles of positions, in float32 alone.

Labelled when the rules stood. A transform's imaginary part is 0 at two frequencies, where a matrix
has the sine of whole turns: of constants that are rounded, and hence not quite 0.
"""

import numpy as np

from .case import SINGLE, Cases, in_float32, normal, softmax, uniform

CASES = case = Cases()

SCIPY = ("scipy",)
HIDDEN = "BUG SUSPECT"
KEPT = "ROUNDING LAYOUT UNSTABLE"
# One function, but a side's constants have lost digits: without its float64 nothing tells these
# from those of another function.
LOST = "UNSTABLE SUSPECT"
PARTS = {
    "real": np.real,
    "imaginary": np.imag,
    "magnitude": np.abs,
    "complex": lambda y: y,
}


def many_turns(n):
    """Return the angles of a transform as they are written down, up to n / 2 turns."""
    return 2 * np.pi * np.outer(np.arange(n), np.arange(n // 2 + 1)) / n


def one_turn(n):
    """Return the same angles but for whole turns."""
    return 2 * np.pi * (np.outer(np.arange(n), np.arange(n // 2 + 1)) % n) / n


def by_library(x):
    from scipy import fft

    return fft.rfft(x)


def by_angles(angles):
    """Return the transform by a matrix, whose constants are rounded to its input's format."""
    cosines, sines = np.cos(angles), np.sin(angles)

    def transform(x):
        real, imaginary = x @ cosines.astype(x.dtype), -(x @ sines.astype(x.dtype))
        y = np.empty(real.shape, np.result_type(x.dtype, np.complex64))
        y.real, y.imag = real, imaginary
        return y

    return transform


def of(part, transform):
    return lambda x: PARTS[part](transform(x))


def each_part(kinds, note, **fields):
    """Register a pair of transforms for each part of what they give."""

    def register(make):
        for part in PARTS:

            def pair(rng, part=part):
                f, g, inputs = make(rng)
                return of(part, f), of(part, g), inputs

            case(kinds, note, name=f"{make.__name__}_{part}", needs=SCIPY, **fields)(pair)
        return make

    return register


# The same transform.


@each_part(KEPT, "a matrix in float32 alone, of angles as they are written down")
def transform_of_64_by_float32_matrix(rng):
    return by_library, in_float32(by_angles(many_turns(64))), [normal(rng, 64)]


@each_part(KEPT, "a library in float32 alone", options=SINGLE)
def transform_of_1000_by_float32_library(rng):
    return by_angles(many_turns(1000)), in_float32(by_library), [normal(rng, 1000)]


@each_part(KEPT, "a matrix in float32 alone, of angles below one turn", options=SINGLE)
def transform_of_rows_by_float32_matrix(rng):
    return by_library, in_float32(by_angles(one_turn(256))), [normal(rng, 4, 256)]


@each_part(KEPT, "both in the inputs' format")
def transform_of_rows_in_both_formats(rng):
    return by_angles(one_turn(128)), by_library, [normal(rng, 5, 128)]


@case(KEPT, "a matrix in float32 alone, of a long transform", needs=SCIPY)
def transform_of_4096_by_float32_matrix(rng):
    matrix = in_float32(by_angles(many_turns(4096)))
    return of("imaginary", by_library), of("imaginary", matrix), [normal(rng, 4096)]


@case(KEPT, "a library in float32 alone, and a long transform", needs=SCIPY)
def transform_of_2048_by_float32_library(rng):
    library = in_float32(by_library)
    return (
        of("imaginary", library),
        of("imaginary", by_angles(many_turns(2048))),
        [normal(rng, 2048)],
    )


@case(KEPT, "a short transform: two of nine results are 0", needs=SCIPY)
def transform_of_16_by_float32_matrix(rng):
    matrix = in_float32(by_angles(many_turns(16)))
    return of("imaginary", by_library), of("imaginary", matrix), [normal(rng, 3, 16)]


@case(KEPT, "numbers of another unit", needs=SCIPY)
def transform_of_small_numbers(rng):
    matrix = in_float32(by_angles(many_turns(128)))
    return of("imaginary", by_library), of("imaginary", matrix), [normal(rng, 128) * 1e-6]


@case(KEPT, "numbers of another unit", needs=SCIPY)
def transform_of_large_numbers(rng):
    library = in_float32(by_library)
    x = normal(rng, 3, 128) * np.float32(1e6)
    return of("imaginary", by_angles(many_turns(128))), of("imaginary", library), [x]


@case(KEPT, "neither side is asked in float64", options={"reference": None}, needs=SCIPY)
def transform_without_float64(rng):
    matrix = by_angles(many_turns(200))
    return of("imaginary", by_library), of("imaginary", matrix), [normal(rng, 200)]


@case(KEPT, "sines of float32 angles below one turn, in float32 alone", needs=SCIPY)
def transform_by_sines_in_float32(rng):
    angles = one_turn(96).astype(np.float32)
    return (
        of("imaginary", by_library),
        of("imaginary", in_float32(by_angles(angles))),
        [normal(rng, 2, 96)],
    )


def cosine_transform(x):
    from scipy import fft

    return fft.dct(x)


def cosine_matrix(n, shift=0.5, kind=np.float64):
    angles = (np.pi / n) * np.outer(np.arange(n) + shift, np.arange(n))
    matrix = 2 * np.cos(angles.astype(kind))
    return lambda x: x @ matrix.astype(x.dtype)


@case(KEPT, "a cosine transform by a matrix in float32 alone", needs=SCIPY)
def cosine_transform_by_float32_matrix(rng):
    return cosine_transform, in_float32(cosine_matrix(300)), [normal(rng, 300)]


@case(KEPT, "rows of a cosine transform by a library in float32 alone", needs=SCIPY)
def cosine_transform_by_float32_library(rng):
    return cosine_matrix(128), in_float32(cosine_transform), [normal(rng, 6, 128)]


@case(KEPT, "a cosine transform of numbers whose sum is nearly all", needs=SCIPY)
def cosine_transform_of_positive_numbers(rng):
    return cosine_transform, in_float32(cosine_matrix(100)), [uniform(rng, 1, 2, 100)]


# What else is 0, but for constants that are rounded.


@case(KEPT, "a window whose ends are 0, by a cosine and by the square of a sine")
def window_by_float32_sines(rng):
    turn = np.linspace(0, 1, 65)

    def f(x):
        return x * (0.5 - 0.5 * np.cos(2 * np.pi * turn)).astype(x.dtype)

    def g(x):
        return x * (np.sin(np.pi * turn) ** 2).astype(x.dtype)

    return f, in_float32(g), [normal(rng, 65)]


@case(KEPT, "a quarter turn of points that are on an axis, by a matrix and by exchange")
def quarter_turn_of_points(rng):
    points = np.zeros((30, 2), np.float32)
    points[:, 0] = normal(rng, 30)
    c, s = np.cos(np.pi / 2), np.sin(np.pi / 2)

    def f(x):
        return np.stack([-x[:, 1], x[:, 0]], axis=1)

    def g(x):
        return x @ np.array([[c, s], [-s, c]]).astype(x.dtype)

    return f, in_float32(g), [points]


# The same, but a side has lost digits that only its own float64 could show.


@each_part(LOST, "cosines of many turns in float32")
def transform_by_turns_in_float32(rng):
    angles = many_turns(256).astype(np.float32)
    return by_library, in_float32(by_angles(angles)), [normal(rng, 256)]


@case(LOST, "cosines of many turns in float32", needs=SCIPY)
def cosine_transform_by_turns_in_float32(rng):
    matrix = cosine_matrix(400, kind=np.float32)
    return cosine_transform, in_float32(matrix), [normal(rng, 400)]


# Angles of positions.

ANGLES = "ROUNDING LAYOUT AMPLIFIED UNSTABLE"


def table(positions, kind):
    """Return cosines and sines of angles that are computed in a format."""
    rates = kind(10000) ** (-np.arange(32).astype(kind) / kind(32))
    angles = positions.astype(kind)[:, None] * rates
    return np.cos(angles), np.sin(angles)


def turned(x, positions, kind):
    c, s = (y.astype(x.dtype) for y in table(positions, kind))
    u, v = x[:, :32], x[:, 32:]
    return np.concatenate([u * c - v * s, v * c + u * s], axis=1)


def positions_from(start, kind=np.float32):
    return np.arange(start, start + 64).astype(kind)


def single(f):
    """Return f, whose floating-point arguments are cast to float32."""
    return lambda *arrays: f(*(x.astype(np.float32) if x.dtype.kind == "f" else x for x in arrays))


def both_tables(kind, out=None):
    def f(p):
        return np.concatenate(table(p, kind or p.dtype.type), axis=1).astype(out or p.dtype)

    return f


for start in (0, 8192, 131072):

    @case(ANGLES, "tables, of positions in float32", name=f"angle_tables_from_{start}")
    def _(rng, start=start):
        f = both_tables(np.float64)
        return f, both_tables(np.float32, np.float32), [positions_from(start)]

    @case(ANGLES, "both formats, of positions in float32", name=f"wide_angle_tables_from_{start}")
    def _(rng, start=start):
        return both_tables(None), both_tables(np.float64), [positions_from(start)]

    @case(ANGLES, "rows turned, by positions in float32", name=f"rows_turned_from_{start}")
    def _(rng, start=start):
        def f(x, p):
            return turned(x, p, np.float64)

        def g(x, p):
            return turned(x, p, np.float32)

        return f, single(g), [normal(rng, 64, 64), positions_from(start)]

    @case(
        ANGLES,
        "integer positions, and angles in the inputs' format",
        name=f"rows_turned_by_integers_from_{start}",
    )
    def _(rng, start=start):
        def f(x, p):
            return turned(x, p, np.float64)

        def g(x, p):
            return turned(x, p, x.dtype.type)

        return f, g, [normal(rng, 64, 64), positions_from(start, int)]

    @case(
        ANGLES,
        "integer positions, and angles in float32 alone",
        name=f"rows_turned_in_float32_by_integers_from_{start}",
        options={"reference": "f"},
    )
    def _(rng, start=start):
        def f(x, p):
            return turned(x, p, np.float64)

        def g(x, p):
            return turned(x, p, np.float32)

        return f, single(g), [normal(rng, 64, 64), positions_from(start, int)]


# Another transform.


@each_part(HIDDEN, "n + 1 for n in the angles")
def transform_of_another_length(rng):
    angles = many_turns(128) * (128 / 129)
    return by_library, in_float32(by_angles(angles)), [normal(rng, 128)]


@each_part(HIDDEN, "the scale is missing")
def transform_without_scale(rng):
    def f(x):
        return by_library(x) / np.sqrt(x.dtype.type(x.shape[-1]))

    return f, in_float32(by_angles(many_turns(100))), [normal(rng, 3, 100)]


@case(HIDDEN, "the conjugate", needs=SCIPY)
def conjugate_transform(rng):
    return by_library, in_float32(by_angles(-many_turns(64))), [normal(rng, 64)]


@case(HIDDEN, "sines of the wrong sign", options=SINGLE, needs=SCIPY)
def sines_of_the_wrong_sign(rng):
    library = in_float32(by_library)
    return (
        of("imaginary", by_angles(-many_turns(256))),
        of("imaginary", library),
        [normal(rng, 2, 256)],
    )


def with_another_angle(n, off):
    angles = many_turns(n)
    angles[7, n // 5] += off
    return by_angles(angles)


@each_part(HIDDEN, "one angle is off by 1e-5, in both formats")
def transform_of_one_other_angle(rng):
    return by_library, with_another_angle(64, 1e-5), [normal(rng, 2, 64)]


@each_part(HIDDEN, "one angle is off by 0.01, in float32 alone")
def transform_of_one_other_angle_in_float32(rng):
    x = normal(rng, 2, 64)
    x[:, 7] += np.sign(x[:, 7])
    return by_library, in_float32(with_another_angle(64, 1e-2)), [x]


@each_part(HIDDEN, "one row a thousandth too large, in float32 alone")
def transform_with_one_other_row(rng):
    right = by_angles(many_turns(128))

    def g(x):
        y = right(x)
        y[..., 3] *= y.dtype.type(1.001)
        return y

    return by_library, in_float32(g), [normal(rng, 4, 128)]


def leaking(share, n):
    """Return a transform whose last imaginary part has a share of the real one."""
    right = by_angles(one_turn(n))

    def transform(x):
        y = right(x)
        y.imag[..., -1] = x.dtype.type(share) * y.real[..., -1]
        return y

    return transform


@case(HIDDEN, "the last real part is kept in the place of the last imaginary one", needs=SCIPY)
def packed_transform(rng):
    return (
        of("imaginary", by_library),
        of("imaginary", in_float32(leaking(1, 64))),
        [normal(rng, 3, 64)],
    )


@case(HIDDEN, "a ten thousandth of the last real part for a 0", needs=SCIPY)
def transform_that_leaks(rng):
    return (
        of("imaginary", by_library),
        of("imaginary", in_float32(leaking(1e-4, 256))),
        [normal(rng, 3, 256)],
    )


@case(HIDDEN, "the same, of the side with float64", options={"reference": "g"}, needs=SCIPY)
def transform_that_leaks_in_float64(rng):
    return (
        of("imaginary", in_float32(by_library)),
        of("imaginary", leaking(1e-4, 256)),
        [normal(rng, 3, 256)],
    )


@case(HIDDEN, "angles a half step off", needs=SCIPY)
def cosine_transform_of_other_places(rng):
    return cosine_transform, in_float32(cosine_matrix(90, shift=0)), [normal(rng, 90)]


@case(HIDDEN, "the first result is not halved, as one convention has it", needs=SCIPY)
def cosine_transform_of_another_convention(rng):
    right = cosine_matrix(64)

    def g(x):
        y = right(x)
        y[:, 0] /= 2
        return y

    return cosine_transform, in_float32(g), [normal(rng, 5, 64)]


# Small results beside large ones, by a side with float32 alone.


def exponents(rng, low):
    return np.append(rng.uniform(low, 30, 58), [low, low + 1]).astype(np.float32)


@case(HIDDEN, "small results of opposite sign")
def sign_of_small_exponentials_in_float32(rng):
    def g(x):
        return np.where(x < -10, -np.exp(x), np.exp(x))

    return np.exp, in_float32(g), [exponents(rng, -30)]


@case(HIDDEN, "a few results below 1e-7 of opposite sign")
def sign_of_a_few_exponentials_in_float32(rng):
    def g(x):
        return np.where(x < -16, -np.exp(x), np.exp(x))

    return np.exp, in_float32(g), [exponents(rng, -20)]


@case(HIDDEN, "small results are 0")
def small_exponentials_left_out_in_float32(rng):
    def g(x):
        return np.where(x < -16, 0, np.exp(x))

    return np.exp, in_float32(g), [exponents(rng, -20)]


@case(HIDDEN, "small probabilities twice too large")
def small_probabilities_in_float32(rng):
    def g(x):
        y = softmax(x)
        return np.where(y < 1e-7, 2 * y, y)

    x = normal(rng, 4, 40)
    x[:, 3] -= 20
    return softmax, in_float32(g), [x]


@case(HIDDEN, "energies of light bodies, beside one of 1e24 kg")
def energies_of_light_bodies_in_float32(rng):
    mass, speed = np.array([1e-27, 5e-25, 3, 6e24], np.float32), uniform(rng, 1, 3, 4)

    def f(m, v):
        return m.dtype.type(0.5) * m * v * v

    def g(m, v):
        return np.where(m < 1e-10, m.dtype.type(1.01), 1) * f(m, v)

    return f, in_float32(g), [mass, speed]


@case(HIDDEN, "results of another unit, all of them tiny")
def tiny_results_in_float32(rng):
    def f(x):
        return x * x.dtype.type(6.6e-34)

    return f, in_float32(lambda x: np.where(x > 1, 0, f(x))), [normal(rng, 60)]


@case(HIDDEN, "a leak of 1e-4 where the result is 0")
def small_leak_in_float32(rng):
    def g(x):
        return np.maximum(x, x.dtype.type(1e-4) * x)

    return lambda x: np.maximum(x, 0), in_float32(g), [normal(rng, 20, 20)]


# Other angles of positions.


@case(HIDDEN, "the next position, in float32 alone", options=SINGLE)
def rows_turned_by_the_next_position(rng):
    def f(x, p):
        return turned(x, p, np.float64)

    def g(x, p):
        return turned(x, p + 1, np.float32)

    return f, single(g), [normal(rng, 64, 64), positions_from(8192, int)]


@case(HIDDEN, "a base of 10001 in float32 alone", options=SINGLE)
def rows_turned_by_another_base(rng):
    def f(x, p):
        return turned(x, p, np.float64)

    def g(x, p):
        c, s = table(p, np.float64)
        rates = 10001.0 ** (-np.arange(32) / 32)
        angles = p[:, None] * rates
        c, s = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
        u, v = x[:, :32], x[:, 32:]
        return np.concatenate([u * c - v * s, v * c + u * s], axis=1)

    return f, single(g), [normal(rng, 64, 64), positions_from(8192, int)]


@case(HIDDEN, "positions that wrap at 2**13, in one format alone")
def rows_turned_by_wrapped_positions(rng):
    def f(x, p):
        return turned(x, p, np.float64)

    def g(x, p):
        return turned(x, p % 8192 if x.dtype == np.float32 else p, x.dtype.type)

    return f, g, [normal(rng, 64, 64), positions_from(8160, int)]


@case(HIDDEN, "sines of opposite sign, at integer positions in float32 alone", options=SINGLE)
def rows_turned_backwards(rng):
    def f(x, p):
        return turned(x, p, np.float64)

    def g(x, p):
        return turned(x, -p, np.float32)

    return f, single(g), [normal(rng, 64, 64), positions_from(0, int)]
