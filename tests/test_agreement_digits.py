"""Results that hold by a hair: digits lost, and domains left, where nothing wider can be asked."""

import numpy as np
import pytest

import calipers

GOOD = {"ROUNDING", "LAYOUT", "AMPLIFIED", "UNSTABLE"}
WRONG = {"BUG", "SUSPECT"}


def kind(f, g, *inputs):
    return calipers.diagnose(f, g, inputs, float64=None).kind


def losses(x, t):
    return np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x)))


def naive_losses(x, t, least=0.0):
    p = 1 / (1 + np.exp(-x))
    with np.errstate(divide="ignore"):
        return -(t * np.log(p + least) + (1 - t) * np.log(1 - p + least))


@pytest.mark.parametrize("n", [12, 60])
@pytest.mark.parametrize("size", [3, 5, 10])
def test_a_loss_of_which_float32_has_nothing_left_is_no_bug(n, size):
    random = np.random.default_rng(n)
    for _ in range(10):
        x, t = size * random.standard_normal(n), (random.random(n) < 0.5).astype(float)
        assert kind(naive_losses, losses, x, t) in GOOD
        assert kind(losses, naive_losses, x, t) in GOOD


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
        assert kind(by_largest, wrong, x) == "BUG"


def distances(x):
    return np.sqrt(((x[:, None] - x) ** 2).sum(axis=-1))


def distances_by_products(x, two=2.0):
    squares = (x * x).sum(axis=1)
    return np.sqrt(squares[:, None] + squares - two * x @ x.T)


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


OUTSIDE = "rounded to where a function is not defined"


@pytest.mark.parametrize("apart", [0, 1e-3])
def test_the_cosine_of_parallel_vectors_is_rounded_out_of_its_range(apart):
    told = set()
    for seed in range(8):
        inputs = parallel(seed, apart)
        for f, g in ((angles, angles_by_cosines), (angles_by_cosines, angles)):
            found = calipers.diagnose(f, g, inputs, float64=None)
            assert found.kind in GOOD | {"RANGE"}, str(found)
            told.add(found.kind == "RANGE" and OUTSIDE in found.reason)
    assert True in told


def test_squares_of_distances_are_rounded_to_below_zero():
    told = set()
    for seed in range(8):
        x = np.random.default_rng(seed).standard_normal((30, 7))
        found = calipers.diagnose(distances, distances_by_products, x, float64=None)
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
        assert kind(f, g, x) == "BUG"
    inputs = parallel(seed, 1e-3)
    assert kind(angles, lambda a, b: angles_by_cosines(a, b) * 1.001, *inputs) == "BUG"
    assert kind(lambda a, b: angles(a, b) + 1e-4, angles_by_cosines, *inputs) == "BUG"


@pytest.mark.parametrize("seed", range(4))
def test_a_root_of_what_is_below_zero_elsewhere_is_suspect(seed):
    """Here last places decide alone; but the sides are two functions."""
    random = np.random.default_rng(seed)
    a = random.uniform(0.1, 1, 40)
    b = a * (1 + 4e-16 * random.uniform(-1, 1, 40))
    found = calipers.diagnose(
        lambda a, b: np.sqrt(np.abs(a - b)), lambda a, b: np.sqrt(a - b), (a, b), float64=None
    )
    assert found.kind == "SUSPECT", str(found)
    assert "elsewhere it stays so" in found.reason


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
    assert kinds.count("SUSPECT") <= 2


@pytest.mark.parametrize("seed", range(4))
def test_a_few_units_more_are_suspect_beside_digits_lost_along_one_line(seed):
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((30, 8)), random.standard_normal(30)
    for share in (1 + 60 * 2.0**-53, 1 + 200 * 2.0**-53, 1 + 1e-9):
        assert kind(ridge, lambda a, b, share=share: ridge_by_svd(a, b) * share, a, b) in WRONG


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
    assert "unless it magnifies last places of constants" in found.reason
    wrong = calipers.diagnose(plain, lambda x: 1.01 * in_sections(x), x)
    assert wrong.kind == "BUG"
    assert "constants" not in wrong.reason
