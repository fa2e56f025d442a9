"""Results that are zero, not finite or beyond a format, and numbers at the ends of the range."""

import io
import json
import math

import numpy as np
import pytest

import calipers

X = np.random.default_rng(0).standard_normal((8, 16), dtype=np.float32)


@pytest.mark.parametrize(
    ("dtype", "largest", "x"),
    [("bfloat16", 3.3895e38, 1e20), ("float8_e4m3", 448.0, 60.0), ("float8_e5m2", 57344.0, 5e3)],
)
def test_results_beyond_a_narrow_format_are_no_fault_of_either_side(dtype, largest, x):
    def held(y):
        """Give what the format gives, and in binary64 all of it."""
        return y if y.dtype == float else np.where(np.abs(y) > largest, np.inf, y).astype(y.dtype)

    inputs = np.array([x, *np.linspace(0.5, 1.5, 6)], np.float32)
    f, g = (lambda x: held(x * x * x)), (lambda x: held(np.exp(3 * np.log(x))))
    assert calipers.diagnose(f, g, inputs, dtype=dtype).kind == "ROUNDING"


def test_arrays_alone_name_the_side_whose_results_are_not_finite():
    actual, expected = np.ones(5, np.float32), np.ones(5, np.float32)
    actual[0], expected[:3] = np.inf, np.inf
    found = calipers.compare_to_reference(actual, expected, np.ones(5))
    assert "expected has 3 results" in found.reason
    assert "actual has 1 result that is not finite" in str(
        calipers.compare_to_reference(actual, np.ones(5, np.float32), np.ones(5))
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_arrays_alone_of_subnormal_numbers_are_within_rounding_of_their_steps(dtype):
    smallest = np.finfo(dtype).smallest_subnormal.astype(float)
    exact = smallest * np.linspace(1, 40, 100)
    right = exact.astype(dtype)
    found = calipers.compare_to_reference(right, np.nextafter(right, dtype(1)), exact)
    assert found.kind == "ROUNDING", found.reason
    found = calipers.compare_to_reference(right, right + dtype(20 * smallest), exact)
    assert found.kind == "SUSPECT", found.reason


def test_infinity_is_right_for_a_reference_beyond_the_format():
    exact = np.array([1e39, 1.0])
    right, wrong = np.array([np.inf, 1], np.float32), np.array([1e38, 1], np.float32)
    found = calipers.compare_to_reference(right, wrong, exact)
    assert found.kind == "SUSPECT"
    assert "actual equals the reference" in found.reason
    near = np.array([np.inf, np.nextafter(np.float32(1), np.float32(2))], np.float32)
    assert calipers.compare_to_reference(right, near, exact).kind == "ROUNDING"


def test_a_result_is_not_lost_where_the_reference_is():
    ones = np.ones(2, np.float32)
    found = calipers.compare_to_reference(ones, ones * np.float32(1.5), np.array([np.nan, 1]))
    assert found.kind == "SUSPECT"
    assert "1 of 2 results of actual differ from the reference, which is not finite" in found.reason


def totals_and_signs(x):
    return x.sum(axis=1), x > 0


@pytest.mark.parametrize("scale", [0, 1e-320, 1e-200, 1e307])
@pytest.mark.parametrize("f", [np.exp, np.cbrt, totals_and_signs])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda y: y * (1 + 1e-9),
        lambda y: np.nextafter(y, 0),
        lambda y: y + 1e-4,
        lambda y: y / 0,
        lambda y: y.astype(np.float16).astype(y.dtype),
    ],
)
def test_the_ends_of_the_range_raise_nothing_and_warn_of_nothing(scale, f, wrong):
    x = np.random.default_rng(0).uniform(-1, 1, (4, 6)) * scale

    def g(x):
        y = f(x)
        return (wrong(y[0]), y[1]) if isinstance(y, tuple) else wrong(y)

    found = calipers.diagnose(f, g, x)
    assert str(found)
    assert json.dumps(found.to_dict(), allow_nan=False)
    if found.kind not in ("BUG", "SUSPECT", "RANGE"):
        assert np.isfinite(found.recommend_tolerance()).all()
    if f is totals_and_signs and pytest.importorskip("matplotlib"):
        found.plot().savefig(io.BytesIO(), dpi=20)


def test_zeros_have_a_tolerance():
    found = calipers.diagnose(np.sin, np.tan, np.zeros(3, np.float32))
    assert found.recommend_tolerance() == (8 * 2.0**-24, 0.0)
    moved = calipers.diagnose(lambda x: x - x, lambda x: 0 * x, X)
    assert moved.recommend_tolerance().atol == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [1e-4, 1e2])
def test_the_range_of_float16_beside_a_side_that_computes_in_float32(size, seed):
    """In float64 that side is as exact as float32, and no more: its digits are not lost here."""

    def in_singles(x):
        return np.sqrt((x.astype(np.float32) ** 2).sum(axis=1)).astype(x.dtype)

    x = (size * np.random.default_rng(seed).standard_normal((16, 100))).astype(np.float16)
    found = calipers.diagnose(in_singles, lambda x: np.sqrt((x * x).sum(axis=1)), x)
    assert found.kind == "RANGE", str(found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_overflow_is_told_without_a_wider_format(dtype, seed):
    x = np.random.default_rng(seed).standard_normal((20, 6)).astype(dtype)
    x *= np.log(np.finfo(dtype).max) / 2

    def by_largest(x):
        top = x.max(axis=1, keepdims=True)
        return np.log(np.exp(x - top).sum(axis=1)) + top[:, 0]

    def plain(x):
        return np.log(np.exp(x).sum(axis=1))

    for f, g in ((by_largest, plain), (plain, by_largest)):
        found = calipers.diagnose(f, g, x, reference=None)
        assert found.kind == "RANGE", str(found)
        name = "g" if g is plain else "f"
        assert found.reason.startswith(f"an intermediate value of {name} overflows")
    wrong = calipers.diagnose(
        by_largest, lambda x: plain(x) * x.dtype.type(1.001), x, reference=None
    )
    assert wrong.kind == "BUG", str(wrong)


def test_squares_that_overflow_are_told_without_a_wider_format():
    x = 1e200 * np.random.default_rng(0).standard_normal((20, 2))
    length = lambda x: np.sqrt((x * x).sum(axis=1))  # noqa: E731
    found = calipers.diagnose(lambda x: np.hypot(*x.T), length, x, reference=None)
    assert found.kind == "RANGE", str(found)


@pytest.mark.parametrize(("dtype", "n"), [(np.float32, 150), (np.float64, 1000)])
def test_an_underflow_is_told_without_a_wider_format(dtype, n):
    x = np.random.default_rng(0).uniform(0.01, 0.5, (10, n)).astype(dtype)
    by_sum = lambda x: np.log(x).sum(axis=1)  # noqa: E731
    by_product = lambda x: np.log(x.prod(axis=1))  # noqa: E731
    found = calipers.diagnose(by_sum, by_product, x, reference=None)
    assert found.kind == "RANGE", str(found)
    assert "an intermediate value of g overflows or underflows" in found.reason
    wrong = calipers.diagnose(by_sum, lambda x: by_product(x[:, 1:]), x, reference=None)
    assert wrong.kind in ("BUG", "RANGE"), str(wrong)


def test_lengths_that_underflow_are_told_without_a_wider_format():
    x = 1e-170 * np.random.default_rng(0).standard_normal((20, 2))
    unit = lambda x: x / np.sqrt((x * x).sum(axis=1, keepdims=True))  # noqa: E731
    by_hypot = lambda x: x / np.hypot(*x.T)[:, None]  # noqa: E731
    found = calipers.diagnose(by_hypot, unit, x, reference=None)
    assert found.kind == "RANGE", str(found)


@pytest.mark.parametrize(
    "wrong",
    [
        np.log,  # of numbers below 0
        lambda x: np.where(x > 2, np.nan, np.log(np.maximum(x, 1e-3))),
        lambda x: np.log(np.maximum(x, 1e-3)) / (x < 2),
    ],
)
def test_what_is_not_defined_in_any_format_is_no_overflow(wrong):
    x = 2 * np.random.default_rng(0).standard_normal(60)
    found = calipers.diagnose(lambda x: np.log(np.maximum(x, 1e-3)), wrong, x, reference=None)
    assert found.kind in ("BUG", "RANGE"), str(found)


def by_gram_matrix(a, b):
    with np.errstate(invalid="ignore"):
        return np.sqrt((a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T)


def by_differences(a, b):
    return np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))


def beside_no_distance(a, b):
    distances = by_gram_matrix(a, b)
    distances[3, 3] = np.nan
    return distances


@pytest.mark.parametrize("seed", range(12))
def test_a_rounding_that_is_mostly_of_one_sign_is_rounding(seed):
    """Of sixty distances from points to themselves a few are NaN at all moves by last places."""
    a = np.random.default_rng(seed).standard_normal((60, 30)).astype(np.float32)
    assert calipers.diagnose(by_gram_matrix, by_differences, (a, a), reference=None).kind == "RANGE"
    wrong = calipers.diagnose(beside_no_distance, by_differences, (a, a), reference=None)
    assert wrong.kind == "BUG"


def in_single(f):
    """Return a function that computes in float32, and gives that, whatever it is given."""
    return lambda x: f(x.astype(np.float32))


NORMAL = np.random.default_rng(0).standard_normal((20, 50)).astype(np.float32)


@pytest.mark.parametrize(
    ("f", "g", "x"),
    [
        (np.cbrt, lambda x: x ** np.float32(1 / 3), NORMAL),
        (lambda x: np.nanmean(x, 1), lambda x: x.mean(1), np.where(NORMAL > 2, np.nan, NORMAL)),
        (np.sinc, lambda x: np.sin(np.pi * x) / (np.pi * x), np.arange(-3, 4).astype(np.float32)),
        (np.cumsum, lambda x: np.append(np.cumsum(x)[:-1], np.nan).astype(x.dtype), NORMAL),
        (lambda x: 1 / (x + 1e-8), lambda x: 1 / x, NORMAL * (NORMAL > -2)),
        (lambda x: 0 * x, lambda x: (x - x) / (x.shape[1] - 1), NORMAL[:, :1]),
    ],
)
def test_what_is_never_finite_in_a_side_without_float64_is_no_loss_of_range(f, g, x):
    found = calipers.diagnose(f, in_single(g), x)
    assert found.kind == "BUG", str(found)
    assert calipers.diagnose(in_single(g), f, x).kind == "BUG"


def unit_vectors(x):
    return x / np.sqrt((x * x).sum(1, keepdims=True))


@pytest.mark.parametrize("budget", ["quick", "full"])
@pytest.mark.parametrize(
    ("f", "g", "x"),
    [
        (lambda x: np.logaddexp(0, x), lambda x: np.log(1 + np.exp(x)), 60 * NORMAL),
        (np.tanh, lambda x: np.sinh(x) / np.cosh(x), 60 * NORMAL),
        (lambda x: unit_vectors(1e30 * x), unit_vectors, np.float32(1e-30) * NORMAL),
        (lambda x: unit_vectors(1e-30 * x), unit_vectors, np.float32(1e30) * NORMAL),
    ],
)
def test_what_leaves_the_range_of_a_side_without_float64_is_range(f, g, x, budget):
    found = calipers.diagnose(f, in_single(g), x, budget=budget)
    assert found.kind == "RANGE", str(found)


def test_what_is_rounded_out_of_a_domain_in_a_side_without_float64_is_range():
    def deviation(x):
        return np.sqrt((x * x).mean(1) - x.mean(1) ** 2)

    x = 1000 + NORMAL / 100
    found = calipers.diagnose(lambda x: x.std(1), in_single(deviation), x)
    assert found.kind == "RANGE", str(found)


def in_float32(f, flushes=False):
    """Return f in float32 whatever it is given, with subnormal results or without."""

    def narrow(x):
        y = f(x.astype(np.float32))
        return (
            np.where(np.abs(y) < np.finfo(np.float32).tiny, y * np.float32(0), y) if flushes else y
        )

    return narrow


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("float64", ["auto", None])
@pytest.mark.parametrize(
    ("f", "low", "high"), [(np.exp, -100, 0), (softmax, -100, 0), (np.square, 1e-22, 1e-18)]
)
def test_what_is_flushed_to_zero_is_told_beside_larger_results(f, low, high, float64):
    x = np.random.default_rng(0).uniform(low, high, (20, 30)).astype(np.float32)
    flat, gradual = in_float32(f, flushes=True), in_float32(f)
    assert np.count_nonzero(flat(x)) < np.count_nonzero(gradual(x))
    found = calipers.diagnose(f, flat, x, reference=float64)
    assert found.kind == "RANGE"
    assert "it returns 0 for" in found.reason
    assert found.reason.startswith("g flushes subnormal numbers to 0")
    reason = calipers.diagnose(flat, f, x, reference=float64).reason
    assert reason.startswith("f flushes subnormal numbers to 0")
    assert calipers.diagnose(f, gradual, x, reference=float64)


def test_what_is_cut_off_is_not_called_flushed():
    x = np.random.default_rng(0).uniform(-100, 0, (20, 30)).astype(np.float32)
    cut = in_float32(lambda x: np.where(x < -80, 0, np.exp(x)).astype(x.dtype))
    assert "flushes" not in calipers.diagnose(np.exp, cut, x).reason
    for factor in (1.001, 1 + 3e-6):
        off = in_float32(lambda x, k=factor: np.exp(x) * x.dtype.type(k), flushes=True)
        assert calipers.diagnose(np.exp, off, x).kind in ("BUG", "SUSPECT")


@pytest.mark.parametrize("float64", ["auto", None])
def test_a_factor_of_numbers_near_the_smallest_is_not_called_flushed(float64):
    """Differences of normal numbers may be less than any of these."""
    x = np.random.default_rng(0).uniform(-95, -80, 4000).astype(np.float32)
    off = in_float32(lambda x: np.exp(x) * x.dtype.type(1.0001), flushes=True)
    assert calipers.diagnose(np.exp, off, x, reference=float64).kind in ("BUG", "SUSPECT")
    right = in_float32(lambda x: np.exp2(x * x.dtype.type(math.log2(math.e))), flushes=True)
    assert calipers.diagnose(np.exp, right, x, reference=float64).kind == "RANGE"


def flushing_times(f, factor):
    """Return f times a factor in any format, of which float32 has no subnormal results."""
    flushed = in_float32(lambda x: f(x) * x.dtype.type(factor), flushes=True)
    return lambda x: flushed(x) if x.dtype == np.float32 else f(x) * factor


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("f", "low", "high", "factor", "kind"),
    [
        (np.exp, -95, -80, 1, "RANGE"),
        (np.exp, -95, -80, 1 + 1e-6, "SUSPECT"),  # most results are flushed
        (np.exp, -100, 0, 1 + 1e-6, "SUSPECT"),  # and these are nothing beside others
        (np.square, 1e-20, 2e-19, 1, "RANGE"),
        (np.square, 1e-20, 2e-19, 1 + 1e-6, "SUSPECT"),
        (np.square, 1e-20, 2e-19, 1.001, "BUG"),
    ],
)
def test_what_is_flushed_hides_no_other_function(f, low, high, factor, kind, swapped):
    x = np.random.default_rng(0).uniform(low, high, 4000).astype(np.float32)
    sides = [f, flushing_times(f, factor)]
    found = calipers.diagnose(*sides[:: -1 if swapped else 1], x)
    assert found.kind == kind, str(found)
    if kind == "SUSPECT":
        assert "subnormal results flushed to 0, but in float64" in found.reason


def test_what_is_flushed_hides_no_factor_if_the_wider_format_shows_none():
    """Beside a side that rounds a constant, and is asked in its own format alone."""
    x = np.random.default_rng(0).uniform(2.0**-128, 2.0**-124, 500).astype(np.float32)

    def flushing(x):
        y = (x * np.float32(1 + 2.0**-22)).astype(np.float32)
        return np.where(np.abs(y) < 2.0**-126, np.float32(0), y)

    found = calipers.diagnose(lambda x: x * 1, flushing, x, reference="f")
    assert found.kind == "RANGE", found.reason


def test_what_overflows_beside_a_bug_does_not_in_the_wider_format():
    x = np.random.default_rng(0).standard_normal((20, 30), dtype=np.float32)
    x[3] *= np.float32(1e25)

    def norm(x):
        largest = np.abs(x).max(axis=1)
        return largest * np.sqrt(np.square(x / largest[:, None]).sum(axis=1))

    def too_large(x):
        return np.sqrt(np.square(x).sum(axis=1)) * x.dtype.type(1.001)

    found = calipers.diagnose(norm, too_large, x)
    assert found.kind == "BUG"
    text = (
        ": 1 of 20 results is finite in only one of f and g; in float64 all are finite, and they "
    )
    assert f"{text}differ by" in found.reason
