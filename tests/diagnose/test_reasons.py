"""What a diagnosis says beside its kind: reasons that are true, and hints that help."""

import ml_dtypes
import numpy as np
import pytest

import calipers
from tests.data.verdict_cases import ports


def turns(x):
    return np.mod(x, 360)


@pytest.mark.parametrize("end", [720, 735])
def test_a_whole_turn_is_told_though_the_sides_differ_beyond_two(end):
    """Moved far, and at two whole turns by anything, g is another function."""
    x = np.arange(0, end, 15).astype(np.float32)
    found = calipers.diagnose(turns, lambda x: np.where(x > 360, x - 360, x), x)
    assert found.kind == "SUSPECT", str(found)
    told = "this is not rounding" if end > 720 else "treat ties differently: "
    assert told in found.reason


def test_last_places_that_a_function_magnifies_are_no_ties_in_any_format():
    """Constants of float64 move results as much in the wider format, but these jump nowhere."""
    x = np.random.default_rng(100).uniform(1e5, 1e6, 100)
    found = calipers.diagnose(np.sin, lambda x: np.sin(np.mod(x, 2 * np.pi)), x)
    assert found.kind == "AMPLIFIED", str(found)


def test_what_is_within_rounding_is_nowhere_beyond_it():
    x = np.random.default_rng(100).uniform(0.5, 5, 200).astype(np.float32)
    found = calipers.diagnose(lambda r: np.pi * r * r, lambda r: 3.1416 * r * r, x)
    assert found.kind == "SUSPECT"
    assert found.reason.startswith("f and g compute different functions: within rounding here")
    assert found.where is None
    assert "where:" not in str(found)


def test_nan_is_what_rounding_makes_outside_a_domain():
    random = np.random.default_rng(0)
    u = random.standard_normal((20, 3)).astype(np.float32)
    v = (u + 1e-4 * random.standard_normal((20, 3))).astype(np.float32)

    def by_tangent(u, v):
        return np.arctan2(np.sqrt((np.cross(u, v) ** 2).sum(axis=1)), (u * v).sum(axis=1))

    def by_cosine(u, v):
        return np.arccos((u * v).sum(axis=1) / np.sqrt((u * u).sum(axis=1) * (v * v).sum(axis=1)))

    found = calipers.diagnose(by_tangent, by_cosine, (u, v))
    assert found.kind == "RANGE"
    assert "rounded out of a function's domain" in found.reason


def test_a_factor_beside_any_order_of_summation_is_told_as_one():
    own = np.random.default_rng(5)
    x = np.random.default_rng(0).normal(1, 1, 2000).astype(np.float32)

    def g(x):
        return np.add.accumulate(own.permutation(x))[-1] * x.dtype.type(1.001)

    found = calipers.diagnose(np.sum, g, x)
    assert found.kind == "BUG"
    assert "a different order" not in found.reason.partition("; also, ")[0]
    assert found.reason.startswith("f and g compute different functions: ")
    assert "; also, g is not deterministic" in found.reason
    assert "which a different order of summation explains" in found.reason


def test_digits_that_one_side_loses_are_no_bug_beside_any_order_of_summation():
    own = np.random.default_rng(5)
    x = np.random.default_rng(0).normal(1e3, 1, 2000).astype(np.float32)

    def mean(x):
        return np.add.accumulate(own.permutation(x))[-1] / x.dtype.type(x.size)

    def of_squares(x):
        return (x * x).mean() - x.mean() ** 2

    found = calipers.diagnose(lambda x: mean((x - mean(x)) ** 2), of_squares, x)
    assert found.kind == "UNSTABLE", found.reason
    assert "also, f is not deterministic" in found.reason


def test_a_factor_that_any_order_of_summation_hides_is_found_in_the_wider_format():
    own = np.random.default_rng(5)
    x = np.random.default_rng(0).normal(1, 1, 2000).astype(np.float32)

    def f(x):
        return np.add.accumulate(own.permutation(x))[-1]

    found = calipers.diagnose(f, lambda x: f(x) * x.dtype.type(1 + 2e-6), x)
    assert found.kind == "SUSPECT", found.reason
    assert "in float64" in found.reason
    assert calipers.diagnose(f, lambda x: f(x), x).kind == "NONDETERMINISTIC"


def test_the_side_that_is_flushed_to_zero_is_named():
    """The other one is off, too, by what numbers so small have for last places."""

    def flushed(x):
        y = x * x
        return np.where(np.abs(y) < np.finfo(x.dtype).tiny, 0, y) * x.dtype.type(1e25)

    x = (5e-21 * np.random.default_rng(0).standard_normal(100)).astype(np.float32)
    found = calipers.diagnose(lambda x: x * x * x.dtype.type(1e25), flushed, x)
    assert found.kind == "RANGE"
    assert found.reason.startswith("an intermediate value of g ")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_wider_is_not_called_float64(dtype):
    x = np.random.default_rng(0).standard_normal((8, 50)).astype(dtype)
    back = lambda x: x[:, ::-1].cumsum(axis=1)[:, -1]  # noqa: E731
    found = calipers.diagnose(lambda x: x.sum(axis=1), back, x, reference=None)
    assert found.kind == "ROUNDING"
    assert "without a reference in higher precision" in found.reason


def test_steps_of_a_loop_are_thought_of_where_a_little_is_lost():
    """Its steps are on no axis of the inputs, of which the longest is the length of sums."""
    x = np.random.default_rng(0).standard_normal((3, 10)) + [[1], [1], [20]]
    x = x.astype(np.float32)

    def steps(state, summed):
        x, y, z = state
        for _ in range(300):
            h, third = x.dtype.type(0.01), x.dtype.type(8) / x.dtype.type(3)
            dx = 10 * (y - x) if summed else 10 * y - 10 * x
            dy = x * (28 - z) - y if summed else 28 * x - x * z - y
            x, y, z = x + h * dx, y + h * dy, z + h * (x * y - third * z)
        return np.stack([x, y, z])

    f, g = (lambda x: steps(x, summed=True)), (lambda x: steps(x, summed=False))
    found = calipers.diagnose(f, g, x)
    assert found.kind == "UNSTABLE", str(found)
    assert "or a loop of" in found.reason
    assert calipers.diagnose(f, g, x, reduction=300).ok({"ROUNDING", "LAYOUT", "AMPLIFIED"})


@pytest.mark.parametrize("inputs", [[1.0, 2.0], (1.0, 2.0, 3.0)])
def test_numbers_in_a_list_are_several_arguments(inputs):
    found = calipers.diagnose(lambda x: x.sum(), lambda x: np.sum(x), inputs)
    assert found.kind == "RAISES"
    assert f"called with {len(inputs)} arguments" in found.reason
    assert "pass a NumPy array" in found.reason
    one = calipers.diagnose(lambda x: x.sum(), lambda x: x[5], np.ones(3))
    assert "pass a NumPy array" not in one.reason


def test_functions_of_tensors_are_told_to_get_them():
    pytest.importorskip("torch")
    x = np.ones((4, 5), np.float32)
    found = calipers.diagnose(lambda x: x.view(5, 4), lambda x: x.reshape(5, 4), x)
    assert found.kind == "RAISES"
    assert "NumPy arrays: pass tensors" in found.reason


def test_the_report_says_whose_arrays_each_side_is_called_with():
    """NumPy's names do other things to tensors: by n - 1, here."""
    torch = pytest.importorskip("torch")
    x = torch.arange(60.0).reshape(4, 15).sin()
    spread = lambda x: x.std(axis=1)  # noqa: E731
    found = calipers.diagnose(lambda x: x.std(1), spread, x)
    assert found.evidence["arrays"] == {"f": "torch", "g": "torch"}
    assert ", spread with" not in str(found)
    assert "  arrays      f and g both get torch tensors\n" in str(found)
    numpy = lambda x: spread(np.asarray(x).astype(x.dtype))  # noqa: E731  # raises for a tensor
    found = calipers.diagnose(lambda x: x.std(1), numpy, x)
    assert found.evidence["arrays"] == {"f": "torch", "g": "NumPy"}
    assert "  arrays      f gets torch tensors, g gets NumPy arrays\n" in str(found)
    assert found.kind == "BUG"
    assert "arrays" not in calipers.diagnose(np.exp, lambda x: 1 / np.exp(-x), x.numpy()).evidence


def held_in(kind, f):
    return lambda x: np.asarray(f(x.astype(kind))).astype(x.dtype)


@pytest.mark.parametrize("steps", [2, 3])
def test_what_is_too_small_on_average_is_no_rounding_to_float32(steps):
    """Thirty last places are few among those of long sums, but all to one side."""

    def root(x):
        y = (np.int32(0x5F3759DF) - (x.view(np.int32) >> 1)).view(np.float32)
        for _ in range(steps):
            y = y * (np.float32(1.5) - np.float32(0.5) * x * y * y)
        return y

    x = np.random.default_rng(0).uniform(0.2, 30, 4000)
    found = calipers.diagnose(lambda x: 1 / np.sqrt(x), held_in(np.float32, root), x)
    assert found.kind == ("SUSPECT" if steps == 2 else "REDUCED"), str(found)
    assert ("too small on average" in found.reason) == (steps == 2)


@pytest.mark.parametrize("constant", [np.pi, np.e])
def test_constants_that_are_rounded_to_float32_are_its_rounding(constant):
    """The one is larger there, the other smaller, and so are all results."""
    x = np.random.default_rng(0).standard_normal(300)
    g = held_in(np.float32, lambda x: x * np.float32(constant))
    assert calipers.diagnose(lambda x: x * constant, g, x).kind == "REDUCED"


@pytest.mark.parametrize("factor", [1, 1 + 2e-6])
def test_a_factor_is_told_from_rounding_to_float32_without_a_wider_format(factor):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 4000)))
    single = lambda x: (x.float().square().mean(1) * factor).double()  # noqa: E731
    found = calipers.diagnose(lambda x: x.square().mean(1), single, x)
    assert found.kind == ("REDUCED" if factor == 1 else "BUG"), str(found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_few_results_of_a_narrower_format_are_seen_at_moved_inputs_too(seed, kind):
    """One by itself may be a plain number, and the results of others always are."""
    x = np.random.default_rng(seed).uniform(0.5, 2, 40)
    found = calipers.diagnose(np.mean, held_in(kind, np.mean), x)
    assert (found.kind, found.format) == ("REDUCED", np.dtype(kind).name), str(found)
    whole = np.random.default_rng(seed).integers(0, 1000, 100).astype(float)
    upper = lambda x: np.sort(x)[50]  # noqa: E731
    assert calipers.diagnose(np.median, upper, whole).kind in ("BUG", "EQUAL", "AMPLIFIED")


@pytest.mark.parametrize("seed", range(3))
def test_what_squares_leave_is_in_no_narrower_format(seed):
    """Multiples of 2**-7 near 1 are numbers of bfloat16, and last places of 90000."""
    x = np.random.default_rng(seed).normal(300, 1, (40, 100)).astype(np.float32)
    by_squares = lambda x: (x * x).mean(axis=1) - x.mean(axis=1) ** 2  # noqa: E731
    found = calipers.diagnose(lambda x: x.var(axis=1), by_squares, x, reference="f")
    assert found.kind == "UNSTABLE", str(found)


def test_numbers_that_float16_has_no_digits_for_are_explained_by_it():
    """Its smallest ones have all the same last place."""
    x = np.random.default_rng(100).standard_normal(100).astype(np.float32)
    rates = lambda x: x * x.dtype.type(4e-7)  # noqa: E731
    narrow = lambda x: rates(x).astype(np.float16).astype(x.dtype)  # noqa: E731
    found = calipers.diagnose(rates, narrow, x)
    assert (found.kind, found.format) == ("REDUCED", "float16")


@pytest.mark.parametrize("seed", [50, 101, 170, 241])
def test_one_result_of_float32_is_one_by_unlikely_draws(seed):
    """Its last bits are 0, and its error has one sign, time and again by chance."""

    def f(x):
        return np.exp(x).sum()

    x = np.random.default_rng(seed).uniform(0.5, 2, 2)
    found = calipers.diagnose(f, held_in(np.float32, f), x, seed=seed)
    assert found.kind == "REDUCED", str(found)


def test_large_integers_of_a_narrower_format_are_numbers_of_it():
    x = np.random.default_rng(0).uniform(3000, 60000, 50).astype(np.float32)
    found = calipers.diagnose(np.abs, held_in(np.float16, np.abs), x)
    assert (found.kind, found.format) == ("REDUCED", "float16")


def test_few_results_are_seen_to_be_what_a_subtraction_leaves():
    x = (10 ** np.random.default_rng(0).uniform(-3, -2, 8)).astype(np.float32)
    half = lambda x: 2 * np.sin(x / 2) ** 2  # noqa: E731
    found = calipers.diagnose(half, lambda x: 1 - np.cos(x), x, reference="f")
    assert found.kind == "UNSTABLE", str(found)


def test_numbers_that_float16_does_not_hold_are_out_of_its_range():
    x = (400 * np.random.default_rng(0).standard_normal(60)).astype(np.float32)

    def length(x, kind):
        return np.sqrt(x.astype(kind) ** 2 + kind(2)).astype(x.dtype)

    found = calipers.diagnose(lambda x: length(x, x.dtype.type), lambda x: length(x, np.float16), x)
    assert (found.kind, found.format) == ("RANGE", "float16")
    assert found.reason.startswith("an intermediate value of g exceeds the range of float16: ")


def test_what_a_product_loses_to_the_range_is_told_from_a_wrong_branch():
    x = np.random.default_rng(0).uniform(0.01, 1, (10, 250)).astype(np.float32)
    f = lambda x: np.exp(np.log(x).mean(axis=1))  # noqa: E731
    found = calipers.diagnose(f, lambda x: x.prod(axis=1) ** (1 / 250), x)
    assert found.kind == "RANGE"
    assert found.reason.startswith("intermediate values of g underflow and overflow: ")
    wrong = lambda x: f(x) * (x.dtype != np.float32)  # noqa: E731
    assert calipers.diagnose(f, wrong, x).kind != "RANGE"


def test_last_places_of_constants_of_float64_are_suspect():
    x = np.random.default_rng(0).uniform(1e-4, 1e-2, 50)
    found = calipers.diagnose(lambda x: -np.sin(x), lambda x: np.sin(x + np.pi), x)
    assert found.kind == "SUSPECT"
    assert "constants of float64" in found.reason
    wrong = calipers.diagnose(lambda x: -np.sin(x), lambda x: np.sin(x + 3.1415926535), x)
    assert wrong.kind == "BUG"


def test_a_little_beyond_rounding_is_suspect_where_nothing_wider_tells():
    random = np.random.default_rng(0)
    x = random.standard_normal((8, 40))
    f = lambda x: np.linalg.norm(x, axis=1)  # noqa: E731
    one, far = 1 + 30 * 2.0**-53, 1 + 1e-9  # more than rounded constants cause
    g = lambda x: f(x) * one  # noqa: E731
    found = calipers.diagnose(f, g, x, reference=None)
    assert found.kind == "SUSPECT", str(found)
    assert calipers.diagnose(f, lambda x: f(x) * far, x, reference=None).kind == "BUG"


@pytest.mark.parametrize("seed", range(3))
def test_a_result_that_stays_is_told_by_its_place_beside_noise_of_a_narrow_format(seed):
    random = np.random.default_rng(seed)
    x = random.standard_normal((20, 48), dtype=np.float32)
    w = random.standard_normal((48, 20), dtype=np.float32)
    narrow = calipers.emulate(lambda x, w: x @ w, "bfloat16", where=("inputs",))
    loss = lambda x: (x * x).mean()  # noqa: E731
    found = calipers.diagnose(
        lambda x, w: (x @ w, loss(x)),
        lambda x, w: (narrow(x, w), loss(x) * x.dtype.type(1.003)),
        (x, w),
    )
    assert found.kind == "BUG"
    same = lambda x, w: (narrow(x, w), np.square(x).mean())  # noqa: E731
    assert calipers.diagnose(lambda x, w: (x @ w, loss(x)), same, (x, w)).kind == "REDUCED"


def variance_by_squares(x):
    return (x * x).mean(-1) - x.mean(-1) ** 2


@pytest.mark.parametrize("factor", [1, 1 + 1e-9])
def test_a_factor_is_told_from_digits_lost_in_float64(factor):
    """In float32 it is farther off, too, by 10,000 times and not by 2**29."""
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(np.random.default_rng(0).uniform(1e-3, 1e-2, 50))
    found = calipers.diagnose(torch.expm1, lambda x: (torch.exp(x) - 1) * factor, x)
    assert found.kind == ("UNSTABLE" if factor == 1 else "BUG"), str(found)


@pytest.mark.parametrize("seed", range(6))
def test_what_float32_has_lost_altogether_is_no_measure_of_a_bug(seed):
    """Of its results as much is left as of those that are off by their own size."""
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(np.random.default_rng(seed).normal(5e3, 1, (3, 20_000)))
    found = calipers.diagnose(lambda x: x.var(-1), variance_by_squares, x)
    assert found.kind in ("BUG", "SUSPECT"), str(found)
    same = calipers.diagnose(lambda x: x.var(-1, unbiased=False), variance_by_squares, x)
    assert same.kind in ("UNSTABLE", "ROUNDING", "LAYOUT"), str(same)


@pytest.mark.parametrize("seed", range(5))
def test_a_factor_beside_normal_equations_is_seen_by_every_draw(seed):
    case = next(case for case in ports.CASES if case.name == "another_fit_by_normal_equations")
    f, g, inputs = case.make(np.random.default_rng(seed))
    assert calipers.diagnose(f, g, inputs, seed=seed).kind in ("BUG", "SUSPECT")


def test_steps_that_the_function_has_itself_are_no_lost_digits():
    x = np.random.default_rng(0).standard_normal(60).astype(np.float32)

    def g(x):
        off = x.dtype.type(1.01 if x.dtype == np.float32 else 1)
        return np.where(x > 0, off, 2 * off)

    found = calipers.diagnose(lambda x: np.where(x > 0, 1, 2).astype(x.dtype), g, x)
    assert found.kind == "BUG", str(found)


def test_one_result_far_beyond_rounding_is_a_bug_beside_many_near_it():
    x = np.random.default_rng(0).standard_normal((200, 50))

    def g(x):
        y = x.copy()
        y[3, 7] += 5e-9
        return y

    assert calipers.diagnose(np.copy, g, x, reference=None).kind == "BUG"


def test_units_of_results_that_are_0_are_no_measure_of_others():
    """A last place of -0.3 does nothing to what it is truncated to."""
    x = 5 * np.random.default_rng(0).standard_normal(40)
    found = calipers.diagnose(np.trunc, np.floor, x)
    assert found.kind == "BUG"
    assert "inf units" not in found.reason
    order = lambda x: np.argsort(x, axis=1)  # noqa: E731
    rows = x.reshape(4, 10)
    found = calipers.diagnose(order, lambda x: order(x)[:, ::-1], rows, reference=None)
    assert found.kind == "BUG"
    assert "results differ, which do not depend on the last bits" in found.reason


def test_one_result_beyond_rounding_is_what_the_reason_tells_of():
    """All others are within it, and so is their mean."""
    x = np.random.default_rng(0).uniform(0.5, 1, (200, 50))

    def g(x):
        y = x.copy()
        y[3, 7] += 4e-14
        return y

    found = calipers.diagnose(np.copy, g, x, reference=None)
    assert found.reason.startswith("f and g compute different functions, or one of them loses ")
    assert "the expected rounding error (element; allowed" in found.reason


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constants_of_float64_are_thought_of_in_either_format(dtype):
    """A transform by a matrix of rounded sines and cosines is off by their last places."""
    n = 48
    k = np.arange(n)
    matrix = np.exp(-2j * np.pi * np.outer(k, k) / n)
    x = np.random.default_rng(0).standard_normal((5, n)).astype(dtype)

    def by_matrix(x):
        kind = np.result_type(x, np.complex64)
        return (x @ matrix.astype(kind)).astype(kind)

    def by_fft(x):
        return np.fft.fft(x).astype(np.result_type(x, np.complex64))

    found = calipers.diagnose(by_fft, by_matrix, x)
    assert found.kind == "SUSPECT", str(found)
    assert "constants" in found.reason
    assert "of float64" in found.reason
    assert "e+3" not in found.reason  # units of imaginary parts that are 0


def test_a_little_more_than_constants_of_float64_may_take_is_told_as_theirs_maybe():
    x = np.random.default_rng(0).standard_normal((6, 30))
    off = np.nextafter(np.nextafter(1.1, 2), 2)
    found = calipers.diagnose(lambda x: x * 1.1, lambda x: x * off, x)
    assert found.kind == "SUSPECT", str(found)
    assert "or use constants of float64" in found.reason


def test_coefficients_that_are_captured_are_operands():
    """A filter in one section, and in two, whose coefficients are rounded separately."""
    signal = pytest.importorskip("scipy.signal")
    one = signal.butter(4, 0.2)
    two = signal.butter(4, 0.2, output="sos")
    x = np.random.default_rng(0).standard_normal((4, 60))
    found = calipers.diagnose(
        lambda x: signal.lfilter(*one, x), lambda x: signal.sosfilt(two, x), x
    )
    assert found.kind == "ROUNDING", str(found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("low", [2, 8])
def test_digits_that_small_results_lose_are_no_other_function(low, seed):
    """Larger results beside them are right, and nothing wider tells."""
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(np.random.default_rng(seed).uniform(low, 20, 40))
    complement = lambda x: 1 - torch.sigmoid(x)  # noqa: E731
    found = calipers.diagnose(lambda x: torch.sigmoid(-x), complement, x)
    assert found.kind in ("UNSTABLE", "ROUNDING"), str(found)
    wrong = calipers.diagnose(lambda x: torch.sigmoid(-x) * (1 + 1e-9), complement, x)
    assert wrong.kind in ("BUG", "SUSPECT"), str(wrong)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ends", [(-6, -2), (-9, 1)])
def test_digits_are_lost_in_steps_of_last_places_of_1(ends, seed):
    """log(1 + x) stays where it is while x changes by its last places, beside larger x or not."""
    x = (10 ** np.random.default_rng(seed).uniform(*ends, 40)).astype(np.float32)
    by_sum = lambda x: np.log(1 + x)  # noqa: E731
    found = calipers.diagnose(np.log1p, by_sum, x, reference=None)
    assert found.kind in ("UNSTABLE", "ROUNDING"), str(found)
    twice = calipers.diagnose(np.log1p, lambda x: 2 * by_sum(x), x, reference=None)
    assert twice.kind == "BUG", str(twice)
    more = calipers.diagnose(np.log1p, lambda x: np.log1p(x) + np.float32(1e-7), x, reference=None)
    assert more.kind in ("BUG", "SUSPECT"), str(more)


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("n", [300, 30_000])
def test_long_sums_are_rounding_without_a_wider_format(n, rows):
    """Six differences of one sum are of one sign one time of 32, and terms lose much to it."""
    kinds = []
    for seed in range(40 if n * rows < 10_000 else 8):
        x = np.random.default_rng(seed).random((rows, n))
        backwards = lambda x: x[:, ::-1].cumsum(axis=1)[:, -1]  # noqa: E731
        f = lambda x: x.cumsum(axis=1)[:, -1]  # noqa: E731
        kinds.append(calipers.diagnose(f, backwards, x, reference=None, seed=seed).kind)
    assert set(kinds) <= {"EQUAL", "ROUNDING", "LAYOUT"}, kinds


def test_what_stays_alike_without_a_wider_format_may_be_rounding_of_constants():
    x = np.random.default_rng(0).standard_normal((8, 50))
    found = calipers.diagnose(lambda x: x, lambda x: x * (1 + 2.0**-50), x, reference=None)
    assert found.kind == "SUSPECT", str(found)
    assert "no rounding" not in found.reason
    assert "differently rounded constants" in found.reason


def test_signals_are_no_batch_of_samples():
    """The product of one sample with itself tells nothing of sums of many."""
    x = np.random.default_rng(0).standard_normal(100)

    def by_fft(x):
        powers = np.abs(np.fft.rfft(x, 2 * len(x))) ** 2
        return np.fft.irfft(powers)[: len(x)]

    found = calipers.diagnose(lambda x: np.correlate(x, x, "full")[len(x) - 1 :], by_fft, x)
    assert found.kind == "ROUNDING", str(found)


def test_equal_numbers_of_other_types_are_told_as_such():
    x = np.random.default_rng(0).standard_normal((20, 50)).astype(np.float32)
    largest = lambda x: x.argmax(axis=1)  # noqa: E731
    found = calipers.diagnose(largest, lambda x: largest(x).astype(np.int32), x)
    assert found
    assert "all numbers are equal, but f returns int64 and g int32" in found.reason
    found = calipers.diagnose(lambda x: 0 * x, lambda x: -0.0 * x, np.abs(x))
    assert "all numbers are equal, but the signs of 0" in found.reason


def test_equal_results_that_are_all_nan_are_said_to_be():
    x = -np.arange(1.0, 5.0)
    with np.errstate(invalid="ignore"):
        found = calipers.diagnose(np.log, np.log, x)
        assert found.kind == "EQUAL"
        assert found.reason.endswith("in repeated calls as well; all are NaN")
        total = calipers.diagnose(lambda x: np.log(x).sum(), lambda x: np.log(x).sum(), x)
        assert total.reason.endswith("; it is NaN")
        x[0] = 1
        assert "NaN" not in calipers.diagnose(np.log, np.log, x).reason
    assert "NaN" not in calipers.diagnose(np.log, np.log, x[:0]).reason


@pytest.mark.parametrize("seed", range(6))
def test_constants_of_float64_add_up_where_nothing_is_left_beside_larger_results(seed):
    """Imaginary parts are 0 at two frequencies, and what a chirp's last places make of that."""
    signal = pytest.importorskip("scipy.signal")
    x = np.random.default_rng(seed).standard_normal(64)
    found = calipers.diagnose(lambda x: signal.czt(x), lambda x: np.fft.fft(x), x)
    assert found.kind != "BUG", str(found)
    assert found or "constants of float64" in found.reason

    def wrong(x):
        y = np.fft.fft(x)
        y[0] += 1e-12j
        return y

    assert calipers.diagnose(np.fft.fft, wrong, x).kind == "BUG"


def test_the_reproducer_asks_as_it_was_asked():
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    back = lambda x: x[:, ::-1].sum(axis=1)  # noqa: E731
    first = calipers.diagnose(sums, back, x, reduction=75, batch=(), budget="quick", seed=3)
    code = first.reproducer
    assert code.startswith(
        "calipers.diagnose(sums, g, inputs, reduction=75, batch=(), budget='quick', seed=3)\n"
    )
    again = eval(code, {"calipers": calipers, "sums": sums, "g": back, "inputs": x})
    assert (again.kind, again.reason, again.calls) == (first.kind, first.reason, first.calls)
    plain = calipers.diagnose(sums, back, x, batch=[0])
    assert "inputs)\n" in plain.reproducer
    wider = calipers.diagnose(sums, back, x, dtype=np.float32, reference=sums)
    assert "inputs, dtype='float32', reference=sums)" in wider.reproducer
    unnamed = calipers.diagnose(sums, back, x, reference=lambda x: x.sum(axis=1), isolate=False)
    assert "inputs, reference=reference)" in unnamed.reproducer
    assert unnamed.to_dict()["options"] == {"reference": "reference"}


def sums(x):
    return x.sum(axis=1)


def test_the_report_shows_all_of_the_reproducer():
    x = [np.ones(3, np.float32)] * 12
    report = str(
        calipers.diagnose(lambda *x: x[0], lambda *x: x[1], x, reduction=5, reference=None)
    )
    assert max(map(len, report.splitlines())) <= 88
    assert "\n  inputs      12 x float32 (3,); sha256 " in report
    assert report.endswith("again: calipers.diagnose(f, g, inputs, reference=None, reduction=5)")


@pytest.mark.parametrize("kind", [bool, int])
def test_no_rounding_is_spoken_of_where_arrays_alone_are_of_integers(kind):
    y = np.arange(6) % 2
    found = calipers.compare_to_reference(y.astype(kind), 1 - y.astype(kind), y.astype(kind))
    assert found.kind == "SUSPECT"
    assert "6 of 6 integers differ, and integers are not rounded; actual equals" in found.reason
    assert "roundings" not in found.reason


def test_equal_arrays_that_are_not_the_reference_are_said_to_be():
    exact = np.linspace(1, 2, 5) / 3
    y = exact.astype(np.float32)
    off = y * np.float32(1.001)
    assert calipers.compare_to_reference(y, y.copy(), exact).reason.endswith("to the last bit")
    told = calipers.compare_to_reference(off, off.copy(), exact).reason
    assert "but" in told
    assert "off the reference by" in told
    off[2] = np.nan
    told = calipers.compare_to_reference(off, off.copy(), exact).reason
    assert "but 1 of 5 are not finite, unlike the reference" in told


def sums_and(weight, unit=1.0, dtype=None):
    """Return sums, in one order or, in a format of its own, in the other, and one of tiny terms."""
    weights = np.random.default_rng(1).standard_normal((64, 40))

    def f(x):
        x, order = (x, slice(None)) if dtype is None else (x.astype(dtype), slice(None, None, -1))
        y = x[:, order] @ weights[order].astype(x.dtype)
        last = (x * x.dtype.type(weight)).sum(axis=1, keepdims=True)
        return np.concatenate([y, last], axis=1) * x.dtype.type(unit)

    return f


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("of_f", "of_g", "rounding"),
    [
        (0, 1e-16, True),
        (0, 1e-7, True),  # sin(2 * pi) in float32
        (0, 1e-5, False),
        (1e-13, 0, True),
        (1e-9, 0, False),  # not of constants of float64
        (1e-14, -1e-14, False),
    ],
)
def test_a_0_is_what_constants_make_of_it(of_f, of_g, rounding, seed):
    x = np.random.default_rng(seed).standard_normal((4, 64), dtype=np.float32)
    found = calipers.diagnose(sums_and(of_f), sums_and(of_g, dtype=np.float32), x)
    assert found.kind in (("ROUNDING",) if rounding else ("BUG", "SUSPECT")), str(found)
    if rounding:  # moved inputs have such zeros, too
        assert found.evidence["likeness"] < 0.3


def test_a_0_is_compared_with_the_results_beside_it():
    """Of another unit they are none, and other results have theirs."""
    x = np.random.default_rng(0).standard_normal((4, 64), dtype=np.float32)
    f, g = sums_and(1e-9, 1e-20), sums_and(0, 1e-20, np.float32)
    assert calipers.diagnose(f, g, x).kind in ("BUG", "SUSPECT")
    large = sums_and(0)
    found = calipers.diagnose(lambda x: (large(x), f(x)), lambda x: (large(x), g(x)), x)
    assert found.kind in ("BUG", "SUSPECT")


def test_a_0_among_large_integers_is_no_rounded_one():
    x = np.random.default_rng(0).uniform(1e6, 2e6, (4, 64)).astype(np.float32)
    x[:, 5] = 0.5

    def up(x):
        return np.where(x < 1, 1, np.floor(x)).astype(np.int64)

    found = calipers.diagnose(lambda x: np.floor(x).astype(np.int64), up, x, reference="f")
    assert found.kind == "BUG", str(found)


def test_a_leak_is_none_of_constants_of_a_function_of_few_bits():
    x = np.random.default_rng(0).standard_normal((8, 32)).astype(ml_dtypes.bfloat16)

    def leaky(x):
        return np.where(x > 0, x, np.asarray(0.01, ml_dtypes.bfloat16) * x).astype(x.dtype)

    def g(x):
        return leaky(x.astype(ml_dtypes.bfloat16))

    found = calipers.diagnose(lambda x: np.maximum(x, 0), g, x)
    assert found.kind in ("BUG", "SUSPECT"), str(found)


def by_name(x):
    return {"mean": x.mean(axis=1), "spread": x.std(axis=1)}


def test_the_worst_of_several_results_are_called_by_their_keys():
    x = np.random.default_rng(0).standard_normal((20, 30))

    def other(x):
        y = by_name(x)
        return y | {"spread": 1.5 * y["spread"]}

    assert "\n    ['spread'][" in str(calipers.diagnose(by_name, other, x))


def test_where_digits_do_not_show_a_difference_it_is_written():
    x = np.random.default_rng(0).uniform(1, 2, (20, 20))
    near, far = (
        calipers.diagnose(np.exp, lambda x, k=k: np.exp(x) * (1 + k), x) for k in (1e-11, 0.5)
    )
    (told,) = (line for line in str(near).splitlines() if line.startswith("  worst"))
    assert told.split() == ["worst", "f", "f", "-", "g", "error/expected"]
    assert "-2.96e-11" in str(near)
    (told,) = (line for line in str(far).splitlines() if line.startswith("  worst"))
    assert told.split() == ["worst", "f", "g", "error/expected"]


def test_a_side_that_jumps_where_the_other_stays_is_another_function():
    """Its jumps are as large as what the sides are apart by, and hide that."""
    prices = np.random.default_rng(0).integers(1, 10000, 300) / 100
    cut, rounded = (lambda x: (x * 100).astype(int)), (lambda x: np.rint(x * 100).astype(int))
    found = calipers.diagnose(cut, rounded, prices, batch=())
    assert found.kind == "SUSPECT"
    assert "f has condition number" in found.reason
    assert "g does not change" in found.reason
    assert calipers.diagnose(rounded, cut, prices, batch=()).kind == "BUG"
    assert calipers.diagnose(cut, lambda x: np.trunc(100 * x).astype(int), prices, batch=())


def test_infinite_results_are_infinitely_far_off():
    x = np.full(2, 1e20, np.float32)
    naive = lambda a: np.sqrt((a * a).sum())  # noqa: E731
    found = calipers.diagnose(naive, lambda a: np.hypot(*a), x, batch=())
    assert found.kind == "RANGE"
    for name in ("f", "apart"):
        assert all(found.evidence[name][k] == np.inf for k in ("rms", "largest", "normwise"))
    rows = str(found)[str(found).index("  errors ") :].splitlines()[1:5]
    assert all(row.split()[1] == "inf" for row in rows)
    arrays = calipers.compare_to_reference(
        np.float32([np.inf, 1]), np.float32([2, 1]), np.array([2.0, 1.0])
    )
    assert arrays.evidence["f"]["absolute"] == np.inf
    assert arrays.evidence["g"]["absolute"] == 0


# What PyTorch's notes on numerical accuracy describe

SQUARE = np.random.default_rng(2).standard_normal((50, 50)).astype(np.float32)


def near_matrix(values):
    """Return a float32 matrix with these singular values."""
    random = np.random.default_rng(3)
    u, v = (np.linalg.qr(random.standard_normal((len(values),) * 2))[0] for _ in range(2))
    return ((u * np.array(values)) @ v.T).astype(np.float32)


def test_a_sum_of_a_slice_is_a_matter_of_layout():
    """The sum of a column and a column of sums add the same numbers in different orders."""
    x = np.random.default_rng(0).standard_normal((500, 40)).astype(np.float32)
    found = calipers.diagnose(lambda a: a[:, 0].sum(), lambda a: a.sum(0)[0], x)
    assert found.kind == "LAYOUT", str(found)
    assert found.reason.startswith("f and g round in different orders, by shape or memory layout: ")


@pytest.mark.parametrize(
    ("f", "g"),
    [
        (lambda a: a[:, 0].sum(), lambda a: a[0].sum()),
        (lambda a: a.sum(0), lambda a: a.sum(1)),
        (lambda a: a.cumsum(0), lambda a: a.T.cumsum(0)),
    ],
)
def test_a_row_that_is_compared_with_a_column_is_told(f, g):
    found = calipers.diagnose(f, g, SQUARE)
    assert found.kind == "BUG"
    assert "f of the transposed input 0 equals g within rounding" in found.reason
    assert "one takes rows where the other takes columns" in found.reason
    other = calipers.diagnose(f, lambda a: g(a) * np.float32(1.01), SQUARE)
    assert "transposed" not in other.reason


def test_results_in_another_order_are_told():
    found = calipers.diagnose(lambda a: a @ a, lambda a: (a @ a).T, SQUARE)
    assert "their results are transposed: f(...) == g(...).T, within rounding" in found.reason
    wide = SQUARE[:20]
    found = calipers.diagnose(lambda a: a @ a.T[:, :5], lambda a: a[:5] @ a.T, wide)
    assert found.kind == "BUG"
    assert found.reason.startswith("f returns shape (20, 5), and g returns shape (5, 20); ")
    assert found.reason.endswith(
        "their results are transposed: f(...) == g(...).T, within rounding"
    )


def test_a_matrix_that_is_not_finite_is_told():
    a = SQUARE[:5, :5].copy()
    a[0, 0] = np.nan
    text = "; 1 of 25 entries of input 0 is NaN or infinite, for which linear algebra is undefined"
    found = calipers.diagnose(np.linalg.inv, lambda a: np.linalg.solve(a, np.eye(5, dtype="f4")), a)
    assert text in found.reason
    found = calipers.diagnose(lambda a: a.sum(0), np.linalg.eigvals, a)
    assert found.kind == "RAISES"
    assert text in found.reason
    masked = np.where(a > 0, -np.inf, np.float32(1))
    finite = calipers.diagnose(np.exp, lambda x: np.exp2(x * np.float32(np.log2(np.e))), masked)
    assert "linear algebra" not in finite.reason


def test_a_singular_value_near_another_is_told_from_an_ill_conditioned_matrix():
    """Vectors of close singular values turn by as much as rounding, of whatever condition."""

    def by_svd(a):
        return np.abs(np.linalg.svd(a)[0])

    def by_eigenvectors(a):
        return np.abs(np.linalg.eigh(a @ a.T)[1][:, ::-1])

    close = near_matrix([3, 2, 1, 1 - 1e-6, 0.5, 0.1])
    found = calipers.diagnose(by_svd, by_eigenvectors, close)
    assert found.kind == "AMPLIFIED", str(found)
    assert "input 0 has close singular values, " in found.reason
    solve = lambda a: np.linalg.solve(a, np.ones(6, a.dtype))  # noqa: E731
    inverse = lambda a: np.linalg.inv(a) @ np.ones(6, a.dtype)  # noqa: E731
    found = calipers.diagnose(solve, inverse, near_matrix([3, 2, 1, 0.5, 0.1, 1e-4]))
    assert found.kind == "AMPLIFIED", str(found)
    assert "input 0 is an ill-conditioned matrix (condition number 3e4)" in found.reason
    steep = calipers.diagnose(
        lambda x: np.sin(1e5 * x), lambda x: np.sin(x * x.dtype.type(100) * 1000), close
    )
    assert steep.kind == "AMPLIFIED", str(steep)
    assert "ill-conditioned matrix" not in steep.reason


def test_a_bias_that_is_added_within_a_product_explains_itself():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    x, w, b = (torch.randn(*shape, generator=generator) for shape in ((16, 512), (64, 512), (64,)))
    told = "; f adds its bias within the matrix product (addmm), g rounds it first"
    linear, plain = torch.nn.functional.linear, lambda x, w, b: x @ w.T + b
    assert told in calipers.diagnose(linear, plain, (x, w, b)).reason
    backwards = lambda x, w, b: x.flip(1) @ w.flip(1).T + b  # noqa: E731
    assert "addmm" not in calipers.diagnose(plain, backwards, (x, w, b)).reason


def test_the_norm_of_an_intermediate_overflow_is_told():
    x = np.full((4, 30), 1e20, np.float32)
    norm = lambda x: np.sqrt((x * x).sum(1))  # noqa: E731
    scaled = lambda x: np.float32(1e20) * norm(x / np.float32(1e20))  # noqa: E731
    found = calipers.diagnose(scaled, norm, x)
    assert found.kind == "RANGE"
    assert found.reason.startswith("an intermediate value of g overflows or underflows: g returns ")
