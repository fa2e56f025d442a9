"""Signals, sound, images, boxes, tables and integers, after public reports.

Labelled before any verdict was asked for. A note cites the report, where one was read.
"""

import math

import numpy as np

from .case import HIDDEN, OK, SCIPY, WHOLE, Cases, double, normal, uniform

CASES = Cases()
pair = CASES.pair


def arrays(*shapes):
    return lambda rng: [normal(rng, *shape) for shape in shapes]


def doubles(*shapes):
    return lambda rng: [double(rng, *shape) for shape in shapes]


def between(low, high, *shape):
    return lambda rng: [uniform(rng, low, high, *shape)]


# Signals.

pair(
    "spectrum_shifted_the_other_way",
    "BUG",
    lambda x: np.fft.fftshift(x, axes=1),
    lambda x: np.fft.ifftshift(x, axes=1),
    doubles((6, 25)),
    "of odd length",
)
pair(
    "unitary_for_plain_transform",
    "BUG",
    lambda x: np.abs(np.fft.rfft(x)),
    lambda x: np.abs(np.fft.rfft(x, norm="ortho")),
    doubles((6, 64)),
)
pair(
    "energy_by_the_spectrum",
    OK,
    lambda x: (x * x).sum(1),
    lambda x: (np.abs(np.fft.fft(x)) ** 2).mean(1),
    arrays((10, 64)),
)
pair(
    "energy_by_half_of_the_spectrum",
    "BUG",
    lambda x: (x * x).sum(1),
    lambda x: (np.abs(np.fft.rfft(x)) ** 2).sum(1) * 2 / x.shape[1],
    arrays((10, 64)),
    "the first and last lines are counted twice",
)
pair(
    "circular_for_linear_convolution",
    "BUG",
    lambda x, h: np.stack([np.convolve(row, h)[:64] for row in x]),
    lambda x, h: np.fft.irfft(np.fft.rfft(x, 64) * np.fft.rfft(h, 64), 64).astype(x.dtype),
    arrays((5, 64), (9,)),
    "no padding with zeros",
)
pair(
    "linear_convolution_by_padded_transforms",
    OK,
    lambda x, h: np.stack([np.convolve(row, h)[:64] for row in x]),
    lambda x, h: np.fft.irfft(np.fft.rfft(x, 80) * np.fft.rfft(h, 80), 80)[:, :64].astype(x.dtype),
    arrays((5, 64), (9,)),
)
pair(
    "same_convolution_of_an_even_kernel",
    "BUG",
    lambda x, h: np.stack([np.convolve(row, h)[1:65] for row in x]),
    lambda x, h: np.stack([np.convolve(row, h)[2:66] for row in x]),
    arrays((5, 64), (4,)),
    "the middle of four taps",
)
pair(
    "decibels_of_amplitudes",
    "BUG",
    lambda x: 20 * np.log10(np.abs(x)),
    lambda x: 10 * np.log10(np.abs(x)),
    between(0.01, 0.9, 10, 60),
)
pair(
    "decibels_by_squares",
    OK,
    lambda x: 20 * np.log10(x),
    lambda x: 10 * np.log10(x * x),
    between(0.01, 0.9, 10, 60),
)
pair(
    "decibels_below_the_largest",
    "BUG",
    lambda x: 10 * np.log10(x),
    lambda x: 10 * np.log10(x / x.max(1, keepdims=True)),
    between(0.01, 0.9, 10, 60),
    "librosa's ref",
)
pair(
    "mels_of_another_formula",
    "BUG",
    lambda f: 2595 * np.log10(1 + f / 700),
    lambda f: np.where(f < 1000, 3 * f / 200, 15 + 27 * np.log(f / 1000) / math.log(6.4)),
    between(50, 8000, 200),
    "audio#1058: htk and slaney",
)
pair(
    "mels_by_natural_logarithms",
    OK,
    lambda f: 2595 * np.log10(1 + f / 700),
    lambda f: 2595 / math.log(10) * np.log1p(f / 700),
    between(50, 8000, 200),
)


def frames(x, padded):
    x = (
        np.pad(x, [(0, 0), (16, 16)], mode="reflect")
        if padded == "reflect"
        else np.pad(x, [(0, 0), (16, 16)])
    )
    return np.lib.stride_tricks.sliding_window_view(x, 32, 1)[:, ::16]


pair(
    "frames_of_reflected_ends",
    "BUG",
    lambda x: np.abs(np.fft.rfft(frames(x, "reflect"))),
    lambda x: np.abs(np.fft.rfft(frames(x, "zeros"))),
    doubles((3, 128)),
    "librosa changed pad_mode",
)


def filtered(x, b, a, normalised=True):
    if normalised:
        b, a = b / a[0], a / a[0]
    y = np.zeros_like(x)
    for i in range(x.shape[1]):
        for k in range(3):
            if i >= k:
                y[:, i] += b[k] * x[:, i - k] - (a[k] * y[:, i - k] if k else 0)
    return y


def filters(rng):
    return [
        double(rng, 6, 60),
        np.array([0.4, 0.3, 0.2]) * rng.uniform(1, 2),
        np.array([2.0, -1.0, 0.5]),
    ]


pair(
    "filter_whose_first_coefficient_is_not_one",
    "BUG",
    filtered,
    lambda x, b, a: filtered(x, b, a, normalised=False),
    filters,
)
pair(
    "filter_of_scipy",
    OK,
    filtered,
    lambda x, b, a: _lfilter(b, a, x),
    filters,
    needs=SCIPY,
)
pair(
    "filter_run_forwards_alone",
    "BUG",
    lambda x, b, a: filtered(filtered(x, b, a)[:, ::-1], b, a)[:, ::-1],
    lambda x, b, a: filtered(x, b, a),
    filters,
    "filtfilt and lfilter",
)


def _lfilter(b, a, x):
    import scipy.signal

    return scipy.signal.lfilter(b, a, x, axis=1)


pair(
    "emphasis_of_another_coefficient",
    "BUG",
    lambda x: x[:, 1:] - 0.97 * x[:, :-1],
    lambda x: x[:, 1:] - 0.95 * x[:, :-1],
    arrays((6, 60)),
)
pair(
    "every_second_sample_without_a_filter",
    "BUG",
    lambda x: (0.25 * x[:, :-2] + 0.5 * x[:, 1:-1] + 0.25 * x[:, 2:])[:, ::2],
    lambda x: x[:, 1:-1:2],
    arrays((6, 60)),
)
pair(
    "trend_removed_by_a_projection",
    f"{OK} AMPLIFIED",
    lambda x: x - np.stack([np.polyval(np.polyfit(np.arange(40), r, 1), np.arange(40)) for r in x]),
    lambda x: x - (x @ (q := np.linalg.qr(np.vander(np.arange(40.0), 2))[0])) @ q.T,
    doubles((6, 40)),
)
pair(
    "mean_removed_for_a_trend",
    "BUG",
    lambda x: x - (x @ (q := np.linalg.qr(np.vander(np.arange(40.0), 2))[0])) @ q.T,
    lambda x: x - x.mean(1, keepdims=True),
    doubles((6, 40)),
)
pair(
    "analytic_signal_of_the_other_sign",
    "BUG",
    lambda x: np.fft.ifft(np.fft.fft(x) * _one_sided(40)).imag,
    lambda x: np.fft.ifft(np.fft.fft(x) * _one_sided(40)[::-1]).imag,
    doubles((6, 40)),
)


def _one_sided(n):
    return np.where(np.arange(n) < n // 2, 2.0, 0.0)


pair(
    "one_line_of_the_spectrum_by_goertzel",
    f"{OK} UNSTABLE",
    lambda x: np.abs(np.fft.fft(x)[:, 9]) ** 2,
    lambda x: _goertzel(x, 9),
    doubles((10, 64)),
)


def _goertzel(x, k):
    c = 2 * math.cos(2 * math.pi * k / x.shape[1])
    a = b = np.zeros(len(x), x.dtype)
    for column in x.T:
        a, b = column + c * a - b, a
    return a * a + b * b - c * a * b


pair(
    "lags_in_reverse",
    "BUG",
    lambda x, y: np.stack([np.correlate(a, b, "full") for a, b in zip(x, y, strict=True)]),
    lambda x, y: np.stack([np.correlate(b, a, "full") for a, b in zip(x, y, strict=True)]),
    arrays((5, 20), (5, 20)),
)
pair(
    "phase_unwrapped_late",
    "BUG",
    lambda x: np.unwrap(x, axis=1),
    lambda x: np.unwrap(x, discont=5.5, axis=1),
    lambda rng: [rng.uniform(-math.pi, math.pi, (6, 50))],
)

# Images and boxes.

pair(
    "gamma_of_two_point_two",
    "BUG",
    lambda x: np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4),
    lambda x: x**2.2,
    between(0, 1, 8, 60),
)
pair(
    "grey_of_television",
    "BUG",
    lambda x: x @ np.array([0.299, 0.587, 0.114], x.dtype),
    lambda x: x @ np.array([0.2126, 0.7152, 0.0722], x.dtype),
    between(0, 1, 8, 30, 3),
    "BT.601 and BT.709",
)
pair(
    "layers_of_straight_colours",
    "BUG",
    lambda a, b, s: a + (1 - s) * b,
    lambda a, b, s: s * a + (1 - s) * b,
    lambda rng: [uniform(rng, 0, 1, 20, 30) for _ in range(3)],
    "premultiplied alpha or not",
)
pair(
    "edges_that_are_not_scaled",
    "BUG",
    lambda x: (x[:, 2:] - x[:, :-2]) / 8,
    lambda x: x[:, 2:] - x[:, :-2],
    arrays((8, 30)),
    "Sobel of scikit-image and OpenCV",
)
pair(
    "edges_by_two_passes",
    OK,
    lambda x: (
        (x[:, :-2, 2:] - x[:, :-2, :-2])
        + 2 * (x[:, 1:-1, 2:] - x[:, 1:-1, :-2])
        + (x[:, 2:, 2:] - x[:, 2:, :-2])
    ),
    lambda x: (s := x[:, :-2] + 2 * x[:, 1:-1] + x[:, 2:])[:, :, 2:] - s[:, :, :-2],
    arrays((3, 12, 12)),
)
pair(
    "mirrored_with_and_without_the_edge",
    "BUG",
    lambda x: _blurred(x, "symmetric"),
    lambda x: _blurred(x, "reflect"),
    arrays((8, 30)),
    "SciPy's reflect is NumPy's symmetric",
)


def _blurred(x, mode):
    y = np.pad(x, [(0, 0), (2, 2)], mode=mode)
    return np.lib.stride_tricks.sliding_window_view(y, 5, 1) @ (
        np.array([1, 4, 6, 4, 1], x.dtype) / 16
    )


pair(
    "box_filter_by_an_integral_image",
    "UNSTABLE",
    lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 3), (0, 1)).mean((2, 3)),
    lambda x: _box(x) / 9,
    lambda rng: [np.abs(normal(rng, 90, 90))],
    "sums of 8000 numbers are subtracted in float32",
    options=WHOLE,
)


def _box(x):
    s = np.pad(x.cumsum(0).cumsum(1), [(1, 0), (1, 0)])
    return s[3:, 3:] - s[:-3, 3:] - s[3:, :-3] + s[:-3, :-3]


def boxes(rng):
    a = rng.uniform(0, 80, (20, 2))
    b = rng.uniform(0, 80, (20, 2))
    sides = rng.uniform(20, 50, (2, 20, 2))
    return [np.concatenate([a, a + sides[0]], 1), np.concatenate([b, b + sides[1]], 1)]


def overlap(a, b, one=0.0):
    inner = np.clip(np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2]) + one, 0, None)
    areas = [np.prod(x[:, 2:] - x[:, :2] + one, axis=1) for x in (a, b)]
    return (shared := np.prod(inner, axis=1)) / (areas[0] + areas[1] - shared)


pair(
    "overlap_of_pixels_that_count_their_edges",
    "BUG",
    overlap,
    lambda a, b: overlap(a, b, 1.0),
    boxes,
    "Pascal VOC's + 1",
)
pair(
    "boxes_given_by_their_centre",
    "BUG",
    lambda a, b: overlap(a, b),
    lambda a, b: overlap(np.concatenate([a[:, :2] - a[:, 2:] / 2, a[:, :2] + a[:, 2:] / 2], 1), b),
    boxes,
)
pair(
    "boxes_decoded_by_swapped_scales",
    "BUG",
    lambda d, c, s: np.concatenate([c + 0.1 * d[:, :2] * s, s * np.exp(0.2 * d[:, 2:])], 1),
    lambda d, c, s: np.concatenate([c + 0.2 * d[:, :2] * s, s * np.exp(0.1 * d[:, 2:])], 1),
    lambda rng: [normal(rng, 30, 4), normal(rng, 30, 2), uniform(rng, 1, 2, 30, 2)],
    "variances of SSD",
)
pair(
    "signal_to_noise_of_bytes",
    "BUG",
    lambda a, b: 10 * np.log10(1 / ((a - b) ** 2).mean(1)),
    lambda a, b: 10 * np.log10(255**2 / ((a - b) ** 2).mean(1)),
    lambda rng: [uniform(rng, 0, 1, 10, 64), uniform(rng, 0, 1, 10, 64)],
    "a range of 255 for images from 0 to 1",
)
pair(
    "signal_to_noise_as_a_difference",
    OK,
    lambda a, b: 10 * np.log10(255**2 / ((a - b) ** 2).mean(1)),
    lambda a, b: 20 * math.log10(255) - 10 * np.log10(((a - b) ** 2).mean(1)),
    lambda rng: [uniform(rng, 0, 200, 10, 64), uniform(rng, 0, 200, 10, 64)],
)
pair(
    "turned_the_other_way",
    "BUG",
    lambda x: np.rot90(x, 1, (1, 2)),
    lambda x: np.rot90(x, -1, (1, 2)),
    arrays((3, 10, 10)),
)
pair(
    "sampled_outside_by_the_border",
    "BUG",
    lambda x, t: _sampled(x, t, border=False),
    lambda x, t: _sampled(x, t, border=True),
    lambda rng: [normal(rng, 20), uniform(rng, -2, 21, 60)],
    "grid_sample's padding_mode",
    options=WHOLE,
)


def _sampled(x, t, border):
    if border:
        t = np.clip(t, 0, len(x) - 1)
    low = np.floor(t).astype(int)
    share = t - low.astype(t.dtype)
    padded = np.pad(x, 3)
    return padded[low + 3] * (1 - share) + padded[low + 4] * share


pair(
    "projection_without_the_centre_of_the_image",
    "BUG",
    lambda p: 500 * p[:, :2] / p[:, 2:] + np.array([320, 240], p.dtype),
    lambda p: 500 * p[:, :2] / p[:, 2:],
    lambda rng: [np.concatenate([normal(rng, 40, 2), uniform(rng, 2, 9, 40, 1)], 1)],
)
pair(
    "projection_as_a_matrix",
    f"{OK} AMPLIFIED",
    lambda p: 500 * p[:, :2] / p[:, 2:] + np.array([320, 240], p.dtype),
    lambda p: (
        (h := p @ np.array([[500, 0, 0], [0, 500, 0], [320, 240, 1]], p.dtype))[:, :2] / h[:, 2:]
    ),
    lambda rng: [np.concatenate([normal(rng, 40, 2), uniform(rng, 2, 9, 40, 1)], 1)],
)
pair(
    "dilation_by_a_cross",
    "BUG",
    lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2)).max((3, 4)),
    lambda x: np.max(
        [x[:, 1:-1, 1:-1], x[:, 2:, 1:-1], x[:, :-2, 1:-1], x[:, 1:-1, 2:], x[:, 1:-1, :-2]], 0
    ),
    arrays((3, 12, 12)),
)
pair(
    "dilation_by_two_passes",
    "EQUAL",
    lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2)).max((3, 4)),
    lambda x: np.maximum.reduce(
        [np.maximum.reduce([x[:, :-2], x[:, 1:-1], x[:, 2:]])[..., k : k + 10] for k in range(3)]
    ),
    arrays((3, 12, 12)),
)

# Tables, integers and quantised numbers.

pair(
    "bins_closed_on_the_other_side",
    HIDDEN,
    lambda x: np.searchsorted(np.arange(8.0), x, side="right"),
    lambda x: np.searchsorted(np.arange(8.0), x, side="left"),
    lambda rng: [rng.integers(0, 32, 100) / 4],
    "numbers that are the edges themselves",
    options=WHOLE,
)
pair(
    "bins_by_a_comparison",
    "EQUAL",
    lambda x: np.searchsorted(np.arange(8.0), x, side="right"),
    lambda x: (x[:, None] >= np.arange(8.0)).sum(1),
    lambda rng: [rng.uniform(0, 9, 100)],
)
pair(
    "halves_rounded_away_from_zero",
    HIDDEN,
    lambda x: np.rint(x * 4),
    lambda x: np.sign(x) * np.floor(np.abs(x * 4) + 0.5),
    lambda rng: [rng.integers(-200, 200, 100).astype(np.float32) / 8],
    "onnxruntime#25045: ties to even, and away from 0",
)
pair(
    "zero_point_added_before_rounding",
    HIDDEN,
    lambda x: np.clip(np.rint(x / 0.25) + 7, -128, 127),
    lambda x: np.clip(np.rint(x / 0.25 + 7), -128, 127),
    lambda rng: [rng.integers(-100, 100, 100).astype(np.float32) / 8],
    "pytorch#37188: an odd zero point turns the ties around",
)
pair(
    "numbers_rounded_at_no_ties",
    f"{OK} AMPLIFIED",
    lambda x: np.rint(x),
    lambda x: np.floor(x + 0.5),
    lambda rng: [(rng.integers(-90, 90, 200) + rng.uniform(-0.4, 0.4, 200)).astype(np.float32)],
)


def quantised(levels=127.0, axis=1, zero=0.0):
    def f(x, w):
        step = np.abs(w).max(axis, keepdims=True) / w.dtype.type(levels)
        return x @ ((np.rint(w / step) + w.dtype.type(zero)) * step).T

    return f


weights = arrays((12, 64), (64, 64))
pair(
    "steps_of_columns_for_rows",
    "BUG",
    lambda x, w: x @ w.T,
    lambda x, w: (
        s := np.abs(w).max(1) / 127,
        x @ (np.rint(w / s[:, None]) * s).T,
    )[1].astype(x.dtype),
    weights,
    "scales of a square matrix along the wrong axis",
)
pair(
    "zero_point_of_one",
    "BUG",
    lambda x, w: x @ w.T,
    quantised(zero=1.0),
    weights,
)
pair(
    "levels_of_128_and_127",
    HIDDEN,
    lambda x, w: x @ w.T,
    lambda x, w: quantised()(x, w) * w.dtype.type(128 / 127),
    weights,
    "quantised by 127 levels, and scaled by 128: 0.8 %, as large as the noise of eight bits",
)
pair(
    "weights_of_int8_by_rows",
    "REDUCED",
    lambda x, w: x @ w.T,
    quantised(),
    weights,
    formats=("int8",),
)
pair(
    "squares_of_int32",
    "BUG RANGE",
    lambda x: (x.astype(np.int64) ** 2).sum(1),
    lambda x: (x**2).astype(np.int64).sum(1),
    lambda rng: [rng.integers(40_000, 90_000, (10, 20)).astype(np.int32)],
    "integers overflow without a warning",
)
pair(
    "sum_of_bytes_in_bytes",
    "BUG RANGE",
    lambda x: x.sum(1, dtype=np.int64),
    lambda x: x.sum(1, dtype=np.uint8).astype(np.int64),
    lambda rng: [rng.integers(0, 256, (10, 20)).astype(np.uint8)],
)
pair(
    "bits_in_the_other_order",
    "BUG",
    lambda x: np.unpackbits(x, axis=1),
    lambda x: np.unpackbits(x, axis=1, bitorder="little"),
    lambda rng: [rng.integers(0, 256, (10, 20)).astype(np.uint8)],
)
pair(
    "halves_of_negative_integers_by_a_shift",
    "BUG",
    lambda x: np.trunc(x / 2).astype(np.int64),
    lambda x: x >> 1,
    lambda rng: [rng.integers(-99, 99, (10, 20))],
)
pair(
    "counts_by_sorting",
    "EQUAL",
    lambda x: np.bincount(x, minlength=10),
    lambda x: (
        np.searchsorted(s := np.sort(x), np.arange(10), "right") - np.searchsorted(s, np.arange(10))
    ),
    lambda rng: [rng.integers(0, 10, 300)],
    options=WHOLE,
)
pair(
    "months_counted_from_zero",
    "BUG",
    lambda x: np.cos(2 * np.pi * x / 12),
    lambda x: np.cos(2 * np.pi * (x - 1) / 12),
    lambda rng: [rng.integers(1, 13, 100)],
)
pair(
    "groups_summed_in_the_order_of_keys",
    OK,
    lambda x, k: np.bincount(k, x, minlength=7),
    lambda x, k: np.array([x[k == i].sum() for i in range(7)]),
    lambda rng: [double(rng, 200), rng.integers(0, 7, 200)],
    options=WHOLE,
)
pair(
    "group_of_the_missing_key",
    "BUG",
    lambda x, k: np.array([x[k == i].sum() for i in range(7)]),
    lambda x, k: np.array([x[k == i].sum() for i in range(-1, 6)]),
    lambda rng: [double(rng, 200), rng.integers(-1, 7, 200)],
    "keys that begin at -1",
    options=WHOLE,
)
pair(
    "last_value_carried_one_step_too_far",
    "BUG",
    lambda x: _carried(x, np.inf),
    lambda x: _carried(x, 2),
    lambda rng: [np.where(rng.random((6, 40)) < 0.6, np.nan, double(rng, 6, 40))],
    "a limit of pandas' ffill",
)


def _carried(x, limit):
    y = x.copy()
    for row in y:
        held = 0
        for i in range(1, len(row)):
            held = held + 1 if np.isnan(row[i]) else 0
            if held and held <= limit:
                row[i] = row[i - 1]
    return y


pair(
    "average_of_weights_that_end_at_once",
    "BUG",
    lambda x: _exponential(x, adjusted=True),
    lambda x: _exponential(x, adjusted=False),
    doubles((6, 20)),
    "pandas' adjust",
)


def _exponential(x, adjusted):
    y = np.empty_like(x)
    for i in range(x.shape[1]):
        w = 0.8 ** np.arange(i, -1, -1.0)
        if not adjusted:
            w[1:] *= 0.2
        y[:, i] = (x[:, : i + 1] * w).sum(1) / w.sum()
    return y


pair(
    "largest_of_rows_without_the_last_block",
    "BUG",
    lambda x: x.sum(1),
    lambda x: x[:, :96].reshape(len(x), -1, 32).sum((1, 2)),
    arrays((20, 100)),
    "triton#630: sizes that are no multiples of the block",
)
pair(
    "last_block_padded_with_ones",
    "BUG",
    lambda x: np.prod(x, axis=1),
    lambda x: np.prod(np.pad(x, [(0, 0), (0, 4)]), axis=1),
    between(0.5, 1.5, 20, 28),
    "padded with the neutral element of sums",
)
pair(
    "last_block_padded_with_zeros",
    OK,
    lambda x: x.sum(1),
    lambda x: np.pad(x, [(0, 0), (0, 28)]).reshape(len(x), 4, 32).sum(2).sum(1),
    between(0, 1, 20, 100),
)
pair(
    "largest_of_padded_negative_numbers",
    "BUG",
    lambda x: x.max(1),
    lambda x: np.pad(x, [(0, 0), (0, 4)]).max(1),
    between(-3, -1, 20, 28),
    "padded with zeros, which are larger than all",
)
