"""Results that hold by a hair: digits lost, and domains left, where nothing wider can be asked."""

import numpy as np
import pytest

import calipers

GOOD = {"ROUNDING", "LAYOUT", "AMPLIFIED", "UNSTABLE"}
WRONG = {"BUG", "SUSPECT"}
OKAY = {"ROUNDING", "LAYOUT", "AMPLIFIED"}  # what a diagnosis is true for


def kind(f, g, *inputs):
    return calipers.diagnose(f, g, inputs, reference=None).kind


def losses(x, t):
    return np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x)))


def naive_losses(x, t, least=0.0):
    p = 1 / (1 + np.exp(-x))
    with np.errstate(divide="ignore"):
        return -(t * np.log(p + least) + (1 - t) * np.log(1 - p + least))


@pytest.mark.parametrize("n", [12, 60])
@pytest.mark.parametrize("size", [3, 5])
def test_a_loss_of_which_float32_has_nothing_left_is_no_bug(n, size):
    random = np.random.default_rng(n)
    for _ in range(10):
        x, t = size * random.standard_normal(n), (random.random(n) < 0.5).astype(float)
        assert kind(naive_losses, losses, x, t) in GOOD
        assert kind(losses, naive_losses, x, t) in GOOD


def test_an_entropy_of_which_float32_makes_nan_is_no_bug():
    softplus = lambda x: np.logaddexp(0, x)  # noqa: E731

    def entropy(x):
        return (softplus(-x) + np.exp(-x) * softplus(x)) / (1 + np.exp(-x))

    def plain(x):
        p = 1 / (1 + np.exp(-x))
        return -(p * np.log(p) + (1 - p) * np.log(1 - p))

    for seed in range(12):
        x = 8 * np.random.default_rng(seed).standard_normal(40)
        assert kind(entropy, plain, x) in GOOD | {"SUSPECT"}
        assert kind(entropy, lambda x: plain(x) * 1.4427, x) == "BUG"
        assert kind(entropy, lambda x: plain(x) * (1 + 1e-9), x) in WRONG


@pytest.mark.parametrize("share", [1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize("seed", range(3))
def test_wrong_losses_are_told_beside_lost_digits(seed, share):
    random = np.random.default_rng(seed)
    x, t = 10 * random.standard_normal(60), (random.random(60) < 0.5).astype(float)
    for wrong in (
        lambda x, t: losses(x, t) * (1 + share),
        lambda x, t: losses(x, t) + share,
        lambda x, t: losses(x, t * (1 - share) + share / 2),
    ):
        assert kind(naive_losses, wrong, x, t) in WRONG
    assert kind(lambda x, t: naive_losses(x, t, share), losses, x, t) in WRONG


@pytest.mark.parametrize("share", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("seed", range(3))
def test_a_bug_is_no_lost_digit_where_float32_overflows(seed, share):
    x = np.random.default_rng(seed).normal(200, 20, (20, 6))

    def by_largest(x):
        top = x.max(axis=1, keepdims=True)
        return np.log(np.exp(x - top).sum(axis=1)) + top[:, 0]

    for wrong in (
        lambda x: np.log(np.exp(x).sum(axis=1)) * (1 + share),
        lambda x: np.log(np.exp(x).sum(axis=1)) + share,
        lambda x: np.log(np.exp(x + share * np.sin(x)).sum(axis=1)),
    ):
        assert kind(by_largest, wrong, x) in WRONG


def distances(x):
    return np.sqrt(((x[:, None] - x) ** 2).sum(axis=-1))


def distances_by_products(x, two=2.0):
    squares = (x * x).sum(axis=1)
    # From the last to the first, on every processor: a library's `x @ x.T` may round as the sum.
    products = sum(x[:, None, k] * x[:, k] for k in reversed(range(x.shape[1])))
    return np.sqrt(squares[:, None] + squares - two * products)


def angles(a, b):
    u, v = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b))
    return 2 * np.arctan2(np.linalg.norm(u - v, axis=-1), np.linalg.norm(u + v, axis=-1))


def angles_by_cosines(a, b):
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return np.arccos((a * b).sum(axis=-1) / lengths)


def parallel(seed, apart=0.0):
    random = np.random.default_rng(seed)
    a = random.standard_normal((20, 5))
    b = a * random.uniform(0.1, 1, (20, 1))
    b[:10] += apart * random.standard_normal((10, 5))
    return a, b


OUTSIDE = "rounded out of a function's domain"


@pytest.mark.parametrize("apart", [0, 1e-3])
def test_the_cosine_of_parallel_vectors_is_rounded_out_of_its_range(apart):
    told = set()
    for seed in range(8):
        inputs = parallel(seed, apart)
        for f, g in ((angles, angles_by_cosines), (angles_by_cosines, angles)):
            found = calipers.diagnose(f, g, inputs, reference=None)
            assert found.kind in GOOD | {"RANGE"}, str(found)
            told.add(found.kind == "RANGE" and OUTSIDE in found.reason)
    assert True in told


def test_squares_of_distances_are_rounded_to_below_zero():
    told = set()
    for seed in range(8):
        x = np.random.default_rng(seed).standard_normal((30, 7))
        found = calipers.diagnose(distances, distances_by_products, x, reference=None)
        assert found.kind in GOOD | {"RANGE"}, str(found)
        told.add(found.kind == "RANGE" and OUTSIDE in found.reason)
    assert True in told


@pytest.mark.parametrize("seed", range(4))
def test_another_function_is_told_beside_nan_of_rounding(seed):
    x = np.random.default_rng(seed).standard_normal((30, 7))
    for f, g in (
        (distances, lambda x: distances_by_products(x, 1.99)),
        (distances, lambda x: distances_by_products(x) * (1 + 1e-6)),
        (distances, lambda x: distances_by_products(x[:, :6])),
        (lambda x: np.sqrt(distances(x) ** 2 + 1e-6), distances_by_products),
        (distances, lambda x: distances(x) * distances(x) / distances(x)),
    ):
        assert kind(f, g, x) in ("BUG", "RANGE")
    inputs = parallel(seed, 1e-3)
    wrong = {"BUG", "RANGE"}  # neither is rounding
    assert kind(angles, lambda a, b: angles_by_cosines(a, b) * 1.001, *inputs) in wrong
    assert kind(lambda a, b: angles(a, b) + 1e-4, angles_by_cosines, *inputs) in wrong


@pytest.mark.parametrize("seed", range(4))
def test_a_root_of_what_is_below_zero_elsewhere_is_suspect(seed):
    """Here last places decide alone; but the sides are two functions."""
    random = np.random.default_rng(seed)
    a = random.uniform(0.1, 1, 40)
    b = a * (1 + 4e-16 * random.uniform(-1, 1, 40))
    found = calipers.diagnose(
        lambda a, b: np.sqrt(np.abs(a - b)), lambda a, b: np.sqrt(a - b), (a, b), reference=None
    )
    assert found.kind in ("SUSPECT", "BUG"), str(found)


def ridge(a, b):
    return np.linalg.solve(a.T @ a + 0.1 * np.eye(a.shape[1]), a.T @ b)


def ridge_by_svd(a, b):
    u, s, v = np.linalg.svd(a, full_matrices=False)
    return v.T @ ((s / (s * s + 0.1)) * (u.T @ b))


def test_digits_lost_along_one_line_are_lost_digits():
    kinds = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        a, b = random.standard_normal((8, 8)), random.standard_normal(8)
        kinds.append(kind(ridge, ridge_by_svd, a, b))
    assert set(kinds) <= GOOD | {"SUSPECT"}
    assert kinds.count("SUSPECT") <= 4


@pytest.mark.parametrize("seed", range(4))
def test_a_few_units_more_are_suspect_beside_digits_lost_along_one_line(seed):
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((30, 8)), random.standard_normal(30)
    for share in (1 + 60 * 2.0**-53, 1 + 200 * 2.0**-53, 1 + 1e-9):
        assert kind(ridge, lambda a, b, share=share: ridge_by_svd(a, b) * share, a, b) not in OKAY


@pytest.mark.parametrize(("order", "edge"), [(4, 0.03), (6, 0.01)])
def test_last_places_of_constants_are_named_where_a_filter_may_magnify_them(order, edge):
    signal = pytest.importorskip("scipy.signal")

    def plain(x):
        return signal.lfilter(*signal.butter(order, edge), x)

    def in_sections(x):
        return signal.sosfilt(signal.butter(order, edge, output="sos"), x)

    x = np.random.default_rng(0).standard_normal(300)
    found = calipers.diagnose(plain, in_sections, x)
    assert found.kind == "BUG"  # coefficients that are wrong as little are so, too
    assert "unless rounding errors of constants are amplified" in found.reason
    wrong = calipers.diagnose(plain, lambda x: 1.01 * in_sections(x), x)
    assert wrong.kind == "BUG"
    assert "constants" not in wrong.reason


def correlation(x, y):
    return ((x - x.mean()) * (y - y.mean())).mean() / (x.std() * y.std())


def correlation_by_moments(x, y):
    xx, yy, xy = (x * x).mean(), (y * y).mean(), (x * y).mean()
    u, v = x.mean(), y.mean()
    return (xy - u * v) / np.sqrt((xx - u * u) * (yy - v * v))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="no higher precision")
def test_one_result_whose_rounding_is_small_by_chance_is_no_other_function():
    kinds = []
    for seed in range(4):
        x, y = 1e5 + np.random.default_rng(seed).standard_normal((2, 50))
        kinds.append(calipers.diagnose(correlation, correlation_by_moments, (x, y)).kind)
        for wrong in (1 + 1e-4, 1 - 1e-3):
            g = lambda x, y, wrong=wrong: correlation(x, y) * wrong  # noqa: E731
            assert calipers.diagnose(correlation, g, (x, y)).kind == "BUG"
    assert set(kinds) <= GOOD


def test_nan_of_rounding_in_the_wider_format_alone_is_no_other_function():
    kinds = []
    for seed in (3, 16):
        x = np.random.default_rng(seed).standard_normal((20, 5), np.float32)
        kinds.append(calipers.diagnose(distances, distances_by_products, x).kind)
        wrong = lambda x: distances_by_products(x) * x.dtype.type(1.001)  # noqa: E731
        assert calipers.diagnose(distances, wrong, x).kind == "BUG"
    assert set(kinds) <= GOOD | {"RANGE"}


def heron(a, b, c):
    half = (a + b + c) / 2
    return np.sqrt(half * (half - a) * (half - b) * (half - c))


def area(a, b, c):
    c, b, a = np.sort(np.stack([a, b, c]), axis=0)
    return np.sqrt((a + (b + c)) * np.maximum(c - (a - b), 0) * (c + (a - b)) * (a + (b - c))) / 4


def test_a_domain_that_last_places_leave_in_the_wider_format_is_told_in_words():
    """Needles of which last places are no triangles: one side gives 0 for these."""
    random = np.random.default_rng(1)
    a, b = random.uniform(0.5, 1, 40), random.uniform(0.5, 1, 40)
    sides = [x.astype(np.float32) for x in (a, b, (a + b) * (1 - 1e-7))]
    found = calipers.diagnose(area, heron, sides)
    assert found.kind == "SUSPECT", str(found)
    assert "results are finite in only one of f and g" in found.reason


@pytest.mark.parametrize("seed", range(6))
def test_an_order_of_summation_that_is_the_same_now_and_then_is_no_dropout(seed):
    own = np.random.default_rng(seed)
    x = np.random.default_rng(100 + seed).standard_normal((6, 50))

    def in_any_order(x):
        order = np.arange(x.shape[1]) if own.random() < 0.6 else own.permutation(x.shape[1])
        return np.cumsum(x[:, order], axis=1)[:, -1]

    found = calipers.diagnose(in_any_order, lambda x: x.sum(axis=1), x, reference=None)
    assert found.kind in GOOD | {"NONDETERMINISTIC"}, str(found)
    wrong = calipers.diagnose(in_any_order, lambda x: x.sum(axis=1) * (1 + 1e-9), x, reference=None)
    assert wrong.kind in WRONG, str(wrong)


@pytest.mark.parametrize(("low", "high", "seed"), [(0, 9, 4), (-1, 8, 7)])
def test_digits_lost_in_float32_alone_are_rounding_of_results_that_keep_theirs(low, high, seed):
    """The tail of a difference, in an implementation that takes no float64: at most an ulp of 1.

    The functions are rounded from float64: NumPy's digits of float32 depend on the processor.
    """

    def tail(x):
        return 2 / (1 + np.exp(2 * x.astype(float)).astype(x.dtype))

    def difference(x):
        return np.float32(1) - np.tanh(x.astype(float)).astype(np.float32)

    x = np.random.default_rng(seed).uniform(low, high, 50).astype(np.float32)
    found = calipers.diagnose(tail, difference, x)
    assert found.kind == "ROUNDING", str(found)
    other = calipers.diagnose(tail, lambda x: difference(x - 1e-3), x)
    assert other.kind == "BUG", str(other)
    constant = np.float32(3e-7)
    other = calipers.diagnose(tail, lambda x: np.where(x > 5, constant, difference(x)), x)
    assert other.kind in WRONG, str(other)


def test_a_fit_amplifies_rounding_of_the_points_that_it_captures():
    """The matrix of powers is no input: its rounding errors are amplified 400 times.

    The condition number of y and x is 91 here, and the difference 11 times the expected error.
    """
    x, y = np.linspace(0, 1, 40), np.random.default_rng(42).normal(size=40)

    def by_rotations(y):
        q, r = np.linalg.qr(np.vander(x, 6, increasing=True))
        return np.linalg.solve(r, q.T @ y)

    by_values = lambda y: np.polynomial.polynomial.polyfit(x, y, 5)  # noqa: E731
    found = calipers.diagnose(by_values, by_rotations, y)
    assert found.kind in ("AMPLIFIED", "UNSTABLE"), str(found)
    factor = calipers.diagnose(by_values, lambda y: 1.001 * by_rotations(y), y)
    assert factor.kind in ("BUG", "SUSPECT"), str(factor)
