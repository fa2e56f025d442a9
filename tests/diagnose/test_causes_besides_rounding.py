"""What else than rounding sides differ by, and what is: waves, ties, chaos, narrow formats."""

import ml_dtypes
import numpy as np
import pytest

import calipers

RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [300, 1000])
def test_waves_of_another_frequency_are_no_rounding(size, seed):
    """Their difference becomes another one when inputs are moved, but along lines steadily."""
    x = size * np.random.default_rng(seed).standard_normal(2000, dtype=np.float32)
    found = calipers.diagnose(np.sin, lambda x: np.sin(x * x.dtype.type(1.0001)), x, batch=())
    assert found.kind == "BUG", str(found)
    if "steadiness" in found.evidence:
        assert found.evidence["steadiness"] > 0.9


@pytest.mark.parametrize("seed", range(5))
def test_what_is_rounded_in_between_is_no_wave(seed):
    """Weights, inputs and a product in between that are held in few bits, in any format."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((32, 128), dtype=np.float32)
    w = random.standard_normal((64, 128), dtype=np.float32) / 11

    def stepped(x):
        step = np.abs(x).max(axis=1, keepdims=True) / 127
        return np.round(x / step) * step

    def quantised(x, w):
        return stepped(x) @ stepped(w).T

    found = calipers.diagnose(lambda x, w: x @ w.T, quantised, (x, w))
    assert found.kind == "REDUCED", str(found)
    assert abs(found.evidence["steadiness"]) < 0.3


def last_of_largest(x):
    return x.shape[1] - 1 - x[:, ::-1].argmax(axis=1)


def test_ties_of_zeros_are_ties():
    """Moves are in proportion, so that zeros stay zeros, and equal ones equal."""
    x = np.maximum(np.random.default_rng(0).standard_normal((32, 6), dtype=np.float32) - 1, 0)
    found = calipers.diagnose(lambda x: x.argmax(axis=1), last_of_largest, x)
    assert found.kind == "SUSPECT"
    assert found.reason.startswith("f and g treat ties differently: ")
    assert found.reason.endswith("none at perturbed inputs (zeros as well)")
    whole = np.random.default_rng(0).integers(0, 20, (4, 100)).astype(np.float32)
    order = lambda x: np.argsort(x, axis=1, kind="stable")  # noqa: E731
    other = lambda x: x.shape[1] - 1 - order(x[:, ::-1])  # noqa: E731
    assert calipers.diagnose(order, other, whole).kind == "SUSPECT"
    assert calipers.diagnose(order, lambda x: order(x)[:, ::-1], whole).kind == "BUG"


def test_ties_are_told_beside_other_results():
    x = np.maximum(np.random.default_rng(0).standard_normal((32, 6), dtype=np.float32) - 1, 0)

    def largest(x):
        return x.max(axis=1), x.argmax(axis=1)

    found = calipers.diagnose(largest, lambda x: (x.max(axis=1), last_of_largest(x)), x)
    assert found.kind == "SUSPECT"
    assert "integers differ, but none at perturbed inputs (zeros as well)" in found.reason
    wrong = calipers.diagnose(largest, lambda x: (x.min(axis=1), last_of_largest(x)), x)
    assert wrong.kind == "BUG"
    smallest = calipers.diagnose(largest, lambda x: (x.max(axis=1), x.argmin(axis=1)), x)
    assert smallest.kind == "BUG"


@pytest.mark.parametrize("dtype", ["float16", "float32", ml_dtypes.bfloat16])
def test_large_integers_beside_other_results_are_not_rounded(dtype):
    x = np.random.default_rng(0).standard_normal((4, 3000)).astype(dtype)

    def largest(x, first=0):
        order = np.argsort(-x, axis=1, kind="stable")[:, :4]
        return np.take_along_axis(x, order, axis=1), order + first

    found = calipers.diagnose(largest, lambda x: largest(x, first=1), x)
    assert found.kind == "BUG"
    assert "16 of 16 integers differ" in found.reason
    found = calipers.diagnose(np.sum, lambda x: np.sum(x) + 1, np.arange(4))
    assert found.reason.startswith("1 of 1 integer differs")


def test_no_rounding_of_their_size_excuses_integers():
    x = np.random.default_rng(0).standard_normal(5000, dtype=np.float32)

    def counted(x, count=2**24):
        return x.sum(), count

    found = calipers.diagnose(counted, lambda x: counted(x[::-1], 2**24 + 1), x, reference=None)
    assert found.kind == "BUG"


def test_integers_beyond_float64_differ_beside_other_results():
    x = np.random.default_rng(0).random(50)
    found = calipers.diagnose(
        lambda x: {"key": np.int64(2**60 + 1), "sum": x.sum()},
        lambda x: {"key": np.int64(2**60), "sum": x.cumsum()[-1]},
        x,
    )
    assert found.kind == "BUG"


def ranks(x, side):
    """Rank numbers among themselves: equal ones by how many are less, or not more."""
    return np.searchsorted(np.sort(x), x, side=side).astype(x.dtype)


TIED = {
    "steps": (lambda x: np.floor(x / 2), lambda x: np.ceil(x / 2) - 1),
    "sum above a threshold": (
        lambda x: np.where(x >= 5, x, 0).sum(),
        lambda x: np.where(x > 5, x, 0).sum(),
    ),
    "ranks": (lambda x: ranks(x, "left"), lambda x: ranks(x, "right") - 1),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", TIED)
def test_other_results_at_ties_are_suspect_whatever_they_are_held_in(name, dtype):
    """The function jumps there, but this is not rounding: the wider format has the same results."""
    f, g = TIED[name]
    x = np.random.default_rng(0).integers(0, 10, 60).astype(dtype)
    found = calipers.diagnose(f, g, x)
    assert found.kind == "SUSPECT"
    assert "treat ties differently" in found.reason


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("factor", "kind"), [(1 / 3, "ROUNDING"), (0.3333, "BUG")])
def test_as_many_results_as_there_are_different_numbers(factor, kind, dtype):
    """Moved inputs have no equal numbers, and so more results."""

    def sums(x):
        return np.array([x[x == t].sum() for t in np.unique(x)])

    x = np.random.default_rng(0).integers(0, 10, 60).astype(dtype)
    port = lambda x: sums(x) * x.dtype.type(factor)  # noqa: E731
    assert calipers.diagnose(lambda x: sums(x) / 3, port, x).kind == kind


def test_other_results_at_ties_are_suspect_without_a_wider_format():
    def correlation(x, y, ranked):
        return np.corrcoef(ranked(x), ranked(y))[0, 1]

    def least(x):
        return ranks(x, "left")

    def in_turn(x):
        return np.argsort(np.argsort(x, kind="stable"))

    random = np.random.default_rng(3)
    x = random.integers(1, 9, 40).astype(float), random.integers(1, 9, 40).astype(float)
    found = calipers.diagnose(
        lambda x, y: correlation(x, y, least),
        lambda x, y: correlation(x, y, in_turn),
        x,
        reference=None,
    )
    assert found.kind == "SUSPECT"


def test_rounding_that_decides_at_ties_is_amplified():
    x = np.random.default_rng(0).random((50, 20))
    shares = (x / x.sum(axis=1, keepdims=True)).astype(np.float32)
    found = calipers.diagnose(
        lambda x: np.floor(x.sum(axis=1)),
        lambda x: np.floor(x[:, ::-1].cumsum(axis=1)[:, -1]),
        shares,
    )
    assert found.kind == "AMPLIFIED"


def test_a_property_that_inputs_have_to_rounding_is_told_from_another_function():
    """Rows sum to 1, but not exactly: what comes of that grows as inputs are moved."""
    x = np.exp(np.random.default_rng(0).standard_normal((16, 32), dtype=np.float32))
    x /= x.sum(axis=1, keepdims=True)

    def entropy(p):
        return -(p * np.log(p)).sum(axis=1)

    def of_any(p):
        whole = p.sum(axis=1)
        return np.log(whole) + entropy(p) / whole

    found = calipers.diagnose(entropy, of_any, x)
    assert found.kind == "SUSPECT"
    assert "f and g agree for inputs of sum 1, orthogonal inputs" in found.reason
    made = lambda f: lambda p: f(p / p.sum(axis=1, keepdims=True))  # noqa: E731
    assert calipers.diagnose(made(entropy), made(of_any), x).ok({"ROUNDING", "LAYOUT"})


@pytest.mark.parametrize(("pi", "told"), [(np.float32(np.pi), True), (3.14159, False)])
def test_constants_of_the_working_format_are_named_as_a_cause(pi, told):
    x = np.random.default_rng(0).uniform(0, 1, (20, 900)).astype(np.float32)
    f = lambda x: (x * x.dtype.type(np.pi))[:, ::-1].cumsum(axis=1)[:, -1]  # noqa: E731
    found = calipers.diagnose(f, lambda x: (x * x.dtype.type(pi)).sum(axis=1), x)
    assert found.kind in ("SUSPECT", "BUG"), str(found)
    assert ("constants of float32" in found.reason) == told


@pytest.mark.parametrize("seed", range(3))
def test_chaos_of_another_parameter_is_another_function(seed):
    """All digits of float32 are lost to the map, but not those of float64 in most results."""
    x = np.random.default_rng(seed).uniform(0.1, 0.9, 1000).astype(np.float32)

    def logistic(x, rate, other=False):
        for _ in range(60):
            x = x.dtype.type(rate) * (x - x * x) if other else x.dtype.type(rate) * x * (1 - x)
        return x

    f = lambda x: logistic(x, 3.9)  # noqa: E731
    found = calipers.diagnose(f, lambda x: logistic(x, 3.9001), x, batch=())
    assert found.kind in ("SUSPECT", "BUG")
    assert "symmetric" not in found.reason
    assert calipers.diagnose(f, lambda x: logistic(x, 3.9, True), x, batch=()).kind == "AMPLIFIED"


def held_as_integers(x, steps, axis, even=True):
    if even:
        step = np.abs(x).max(axis=axis, keepdims=True) / steps
        return np.rint(x / step) * step
    low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
    step = (high - low) / (2 * steps + 1)
    zero = np.rint(-low / step)
    return (np.clip(np.rint(x / step) + zero, 0, 2 * steps + 1) - zero) * step


@pytest.mark.parametrize(("form", "steps"), [("int8", 127), ("int4", 7)])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("even", [True, False])
def test_weights_held_as_integers_are_named_so(form, steps, axis, even):
    random = np.random.default_rng(0)
    x = random.standard_normal((32, 128), dtype=np.float32)
    w = random.standard_normal((64, 128), dtype=np.float32) / 11

    def f(x, w):
        return x @ w.T

    def g(x, w):
        return x @ held_as_integers(w, steps, axis, even).T.astype(x.dtype)

    found = calipers.diagnose(f, g, (x, w))
    assert (found.kind, found.format, found.arguments) == ("REDUCED", form, (1,)), str(found)
    calipers.assert_close(g(x, w), f(x, w), tolerance=found.recommend_tolerance())
    wrong = calipers.diagnose(f, lambda x, w: x.dtype.type(1.2) * g(x, w), (x, w))
    assert wrong.format not in ("int8", "int4"), str(wrong)


def test_noise_is_named_when_no_calls_are_left_to_explain_it():
    random = np.random.default_rng(0)
    x = random.standard_normal((32, 128), dtype=np.float32)

    def g(x, w):
        return x @ held_as_integers(w, 127, 1).T.astype(x.dtype)

    found = calipers.diagnose(lambda x, w: x @ w.T, g, (x, x), budget=125)
    assert (found.kind, found.format) == ("REDUCED", "bfloat16"), str(found)


@pytest.mark.parametrize("form", ["float16", "bfloat16", "tf32"])
@pytest.mark.parametrize("rows", [16, 64])
@pytest.mark.parametrize("length", [8, 256])
def test_one_rounding_in_between_is_named_however_little_is_left_of_it(form, rows, length):
    random = np.random.default_rng(length)
    x = random.standard_normal((rows, length), dtype=np.float32)
    w = (random.standard_normal((length, 32)) / np.sqrt(length)).astype(np.float32)
    v = (random.standard_normal((32, 8)) / 5).astype(np.float32)
    narrow = calipers.emulate(lambda y: y, form)

    def layers(x, w, v, between=lambda y: y):
        return np.tanh(between(x @ w)) @ v

    found = calipers.diagnose(layers, lambda *inputs: layers(*inputs, narrow), (x, w, v))
    assert found.kind == "REDUCED", str(found)
    # Much of a finer format and little of a coarser one are of a size.
    assert found.format in {"float16", form}


@pytest.mark.parametrize("seed", range(4))
def test_the_next_in_order_is_no_rounding(seed):
    """What sorting gives jumps from one number to another, but not as a format does."""
    random = np.random.default_rng(seed)
    x = random.uniform(1, 2, (8, 10 * 4**seed)).astype(np.float32)
    found = calipers.diagnose(lambda x: np.sort(x, 1)[:, 4], lambda x: np.sort(x, 1)[:, 5], x)
    assert found.kind == "BUG", str(found)


def test_a_bug_beside_long_sums_of_float64_is_no_lost_digits():
    """Their roundings on the way, and not the inputs' last places, are the wider format's noise."""
    x, w = np.random.default_rng(0).random((2, 20_000))

    def mean(x, w, one=0):
        return np.dot(x[::-1], w[::-1]) / (sum(w) - one)

    assert calipers.diagnose(mean, lambda x, w: mean(x, w, 1), (x, w), batch=()).kind == "BUG"


def test_rows_that_are_equal_among_all_are_no_other_layout():
    """Integers add up to the same in any order, alone and among others."""
    x = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    x[:3], x[20] = np.rint(x[:3]), 0

    def backwards(x):
        return x[:, ::-1].cumsum(axis=1)[:, -1]

    assert calipers.diagnose(lambda x: x.sum(axis=1), backwards, x).kind == "ROUNDING"


def test_few_calls_are_enough_to_see_that_it_is_rounding():
    def backwards(x):
        return x[:, ::-1].cumsum(axis=1)[:, -1]

    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    found = calipers.diagnose(lambda x: x.sum(axis=1), backwards, x, budget="quick")
    assert found.kind == "ROUNDING"
    assert sum(found.calls.values()) <= 24


def test_what_is_within_rounding_is_nowhere_beyond_it():
    """Single sums that cancel are far apart in units of their own, and near in those of all."""
    random = np.random.default_rng(1)
    tokens, table = random.integers(0, 50, (33, 20)), random.standard_normal((50, 300), np.float32)
    w = random.standard_normal((300, 70), np.float32)

    def f(x):
        return table[x].mean(axis=1) @ w

    found = calipers.diagnose(f, lambda x: np.einsum("ij,jk->ik", table[x].mean(axis=1), w), tokens)
    assert found.kind == "ROUNDING"
    assert found.worst[0].units > found.allowed
    assert found.where is None
    other = calipers.diagnose(f, lambda x: f(x) + (np.arange(70) == 7), tokens)
    assert "column 7" in other.where


@pytest.mark.parametrize(
    ("f", "g", "told"),
    [
        (
            lambda x: x / 0,
            lambda x: x * np.nan,
            "16 of 16 results are NaN or infinite in both, but not the same",
        ),
        (lambda x: x / 0, lambda x: x, "16 of 16 results are finite in only one of f and g"),
        (
            lambda x: x * 1.7e308,
            lambda x: x * -1.7e308,
            "results differ by more than float64 can",
        ),
    ],
)
def test_results_that_are_not_finite_are_told_as_they_are(f, g, told):
    found = calipers.diagnose(f, g, np.random.default_rng(0).choice([-1.0, 1.0], 16))
    assert found.kind == "BUG"
    assert told in found.reason


@pytest.mark.parametrize("seed", [4, 5])
def test_few_lost_digits_that_outweigh_all_others_are_no_bug(seed):
    """Of one difference the sign stays the same by chance where inputs are moved."""
    x = -5 - 5 * np.abs(np.random.default_rng(seed).standard_normal((16, 40)))
    found = calipers.diagnose(lambda x: 1 / (1 + np.exp(-x)), lambda x: (1 + np.tanh(x / 2)) / 2, x)
    assert found.kind == "UNSTABLE", str(found)


@pytest.mark.parametrize("seed", range(5))
def test_one_result_that_is_off_in_one_format_is_a_bug(seed):
    def g(x):
        y = np.tanh(x)
        y[3, 5] += 1e-3 * (x.dtype == np.float32)
        return y

    x = np.random.default_rng(seed).standard_normal((16, 40)).astype(np.float32)
    found = calipers.diagnose(np.tanh, g, x)
    assert found.kind == "BUG"
    assert "f and g compute different functions in float32" in found.reason


@pytest.mark.parametrize("seed", range(6))
def test_one_number_that_is_rounded_is_no_other_function(seed):
    """Its error has the same sign elsewhere half of the time."""
    x = np.random.default_rng(seed).standard_normal(1).astype(np.float32)
    narrow = calipers.emulate(np.exp, "bfloat16", where="inputs")
    found = calipers.diagnose(np.exp, narrow, x)
    assert found.kind == "REDUCED", str(found)
    wrong = calipers.diagnose(np.exp, lambda x: narrow(x) * x.dtype.type(1.01), x)
    assert wrong.kind == "BUG", str(wrong)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int32])
@pytest.mark.parametrize("rows", [2, 300])
def test_results_that_are_never_written_are_told_by_their_place(dtype, rows):
    """Free memory holds what the call before has left there."""

    def g(x):
        y = np.empty_like(x)
        y[:-1] = 2 * x[:-1]
        return {"of a part": x.sum(axis=1), "twice": y}

    def f(x):
        return {"of a part": x.sum(axis=1), "twice": 2 * x}

    x = np.arange(1, 50 * rows + 1).reshape(rows, 50).astype(dtype)
    found = calipers.diagnose(f, g, x)
    assert found.kind == "BUG"
    assert "does not write all of its results" in found.reason
    assert f"for example [{rows - 1}, " in found.reason
    assert calipers.diagnose(f, f, x).kind == "EQUAL"


def test_memory_that_a_side_keeps_is_left_alone():
    kept = []

    def g(x):
        kept.append((x.copy(), 2 * x))
        return kept[-1][1]

    assert calipers.diagnose(lambda x: 2 * x, g, np.arange(100.0)).kind == "EQUAL"
    assert all((y == 2 * x).all() for x, y in kept)


@pytest.mark.parametrize("seed", range(3))
def test_a_rounded_window_is_no_other_function(seed):
    """Near its ends a window is small, and its last places are those of numbers as large as 1."""
    one = np.hanning(129)[:-1]
    other = 0.5 + 0.5 * np.cos(np.linspace(-np.pi, np.pi, 129)[:-1])
    x = np.random.default_rng(seed).standard_normal((3, 128))
    found = calipers.diagnose(lambda x: x * one, lambda x: x * other, x)
    assert found.kind in ("ROUNDING", "LAYOUT", "UNSTABLE"), str(found)


def restless(share, rows):
    """Sum in any order; in a share of the calls some rows lack a term."""
    own = np.random.default_rng(0)

    def sums(x):
        order = own.permutation(x.shape[1])
        y = x[:, order].sum(axis=1)
        y[rows] -= x[rows, order[0]] * (own.random() < share)
        return y

    return sums


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("row", [slice(None), slice(22, 23)])
def test_a_race_beyond_rounding_is_a_bug_in_one_row_of_many_too(share, row):
    x = (0.5 + np.random.default_rng(1).random((20_000, 40))).astype(np.float32)
    found = calipers.diagnose(lambda x: x.sum(axis=1), restless(share, row), x)
    assert found.kind == "BUG", str(found)


def test_what_fails_in_one_call_of_ten_is_mostly_seen():
    seen = 0
    for seed in range(12):
        for wrong in (lambda y, term: y / 2, lambda y, term: y - term):
            own = np.random.default_rng(seed)
            x = own.random((64, 256)).astype(np.float32) + np.float32(0.1)

            def g(x, own=own, wrong=wrong):
                order = own.permutation(256)
                y = x[:, order].sum(axis=1)
                return wrong(y, x[:, order[0]]) if own.random() < 0.1 else y

            found = calipers.diagnose(lambda x: x.sum(axis=1), g, x, seed=seed)
            seen += found.kind == "BUG"
    assert seen >= 20


def in_single(f):
    """Return f in float32 whatever it is given."""
    return lambda *inputs: f(*(x.astype(np.float32) for x in inputs))


def cut_off(x, bits):
    """Return numbers of float32 without their last bits."""
    kept = x.view(np.uint32) >> np.uint32(bits) << np.uint32(bits)
    return kept.view(np.float32)


def likelihood(x, added=0.0):
    """Return the loss of the first class; what is added makes it less."""
    shares = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    return -np.log(shares[:, 0] + x.dtype.type(added)).mean()


def running_variance(x, unbiased=0):
    return x.dtype.type(0.9) + x.dtype.type(0.1) * x.var(axis=0, ddof=unbiased)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("f", "g", "shape"),
    [
        (lambda x: x.std(axis=0, ddof=1), lambda x: x.std(axis=0), (200, 4)),
        (lambda x: running_variance(x, 1), running_variance, (200, 30)),
        (likelihood, lambda x: likelihood(x, 1e-4), (64, 10)),
        (
            lambda x: np.square(x).mean(),
            lambda x: np.square(x).mean() * np.float32(0.997),
            (700, 1),
        ),
    ],
)
def test_a_result_that_is_too_small_is_not_taken_for_inputs_that_are_cut_off(f, g, shape, seed):
    """To bfloat16, by which they are three thousandths smaller."""
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    found = calipers.diagnose(f, in_single(g), x)
    assert found.kind in ("BUG", "SUSPECT"), str(found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "bits"), [("bfloat16", 16), ("tf32", 13)])
@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: x.std(axis=0), (200, 4)),
        (lambda x: x.var(axis=0), (4000, 2)),
        (running_variance, (200, 30)),
        (likelihood, (64, 10)),
        (lambda x: np.abs(x).mean(), (200, 30)),
    ],
)
def test_inputs_that_are_cut_off_are_named_by_few_results(f, shape, name, bits, seed):
    """Where last places of others do nearly as much, the rest is none beyond rounding."""
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    found = calipers.diagnose(f, in_single(lambda x: f(cut_off(x, bits))), x)
    assert found.kind == "REDUCED", str(found)
    assert found.format == name
    assert "by truncation" in found.reason


@pytest.mark.parametrize("float64", ["auto", None])
def test_where_both_sides_jump_is_not_called_rounding_without_a_wider_format(float64):
    x = np.random.default_rng(0).integers(0, 40, 200).astype(np.float32) / 2
    half_up = in_single(lambda x: np.floor(x + np.float32(0.5)))
    found = calipers.diagnose(in_single(np.rint), half_up, x, reference=float64)
    assert found.kind in ("AMPLIFIED", "SUSPECT", "BUG"), str(found)


def test_sums_without_a_wider_format_are_not_called_amplified():
    x = np.random.default_rng(0).random((20, 300), dtype=np.float32)
    backwards = lambda x: x[:, ::-1].cumsum(axis=1)[:, -1]  # noqa: E731
    assert (
        calipers.diagnose(lambda x: x.sum(axis=1), backwards, x, reference=None).kind == "ROUNDING"
    )


def single(f):
    return lambda *arrays: f(*(x.astype(np.float32) for x in arrays))


def up(x):
    return np.floor(x + x.dtype.type(0.5))


@pytest.mark.parametrize("wide", ["both", "f", "g", "none", "reference"])
def test_a_tie_that_two_functions_decide_otherwise_is_told_whoever_is_wider(wide):
    """Halves are rounded to even numbers, or up: no rounding error is in either."""
    x = (RANDOM.integers(0, 48, 80) / 2).astype(np.float32)
    f, g = np.rint, up
    options = {"none": {"reference": None}, "reference": {"reference": f}}.get(wide, {})
    found = calipers.diagnose(
        single(f) if wide == "g" else f, single(g) if wide == "f" else g, x, **options
    )
    assert found.kind == "SUSPECT", str(found)
    assert "f and g treat ties" in found.reason


def to_hundredths(x):
    return np.rint(x * 100) / 100


# Where the other side is right, and a reference too, the first one's ties may be its own.
@pytest.mark.parametrize(
    ("other", "wide"), [("rounded", "f"), ("rounded", "reference"), ("right", "f")]
)
def test_a_tie_that_rounding_decides_is_one_on_the_side_that_is_known_too(other, wide):
    """Half a hundredth is none in float32, and times 100 it is: there is none in float64."""
    x = ((2 * RANDOM.integers(1, 4000, 200) + 1) / 200).astype(np.float32)

    def by_quotient(x):
        if other == "right":
            return to_hundredths(x.astype(float)).astype(np.float32)
        return np.rint(x / x.dtype.type(0.01)) * x.dtype.type(0.01)

    reference = to_hundredths if wide == "reference" else "auto"
    found = calipers.diagnose(to_hundredths, single(by_quotient), x, reference=reference)
    assert found.kind == "AMPLIFIED", str(found)


def test_what_is_magnified_here_alone_is_no_tie():
    """Near a root a polynomial magnifies last places, and farther away it does not."""
    root = (1 + 5**0.5) / 2
    x = (root + RANDOM.choice([-1, 1], 100) * RANDOM.uniform(1e-3, 2e-3, 100)).astype(np.float32)
    f, g = lambda x: x * x - x - 1, lambda x: x * (x - 1) - 1
    found = calipers.diagnose(single(f), single(g), x, reference=None)
    assert found.kind == "AMPLIFIED", str(found)


def test_what_agrees_here_as_elsewhere_is_no_tie():
    x = (np.pi / 2 - RANDOM.uniform(1e-4, 1e-3, 100)).astype(np.float32)
    found = calipers.diagnose(np.tan, lambda x: np.sin(x) / np.cos(x), x, reference=None)
    assert found.kind == "AMPLIFIED", str(found)


def angle(u, v):
    return np.arctan2(np.sqrt((np.cross(u, v) ** 2).sum(axis=1)), (u * v).sum(axis=1))


def angle_by_cosine(u, v, more=0.0):
    u, v = (x / np.sqrt((x * x).sum(axis=1, keepdims=True)) for x in (u, v))
    y = np.arccos((u * v).sum(axis=1))
    y[0] += more
    return y


@pytest.mark.parametrize(("more", "kind"), [(0, "RANGE")])
def test_what_is_rounded_out_of_a_domain_beside_digits_that_are_lost(more, kind):
    """Some of few steps stay where they are, a few times by chance; one result is wrong alone."""
    u = RANDOM.standard_normal((2000, 3), dtype=np.float32)
    v = u + np.float32(5e-4) * RANDOM.standard_normal((2000, 3), dtype=np.float32)
    options = {"reference": None, "reduction": 3, "batch": (0, 1)}
    found = calipers.diagnose(angle, lambda u, v: angle_by_cosine(u, v, more), (u, v), **options)
    assert found.kind == kind, str(found)


@pytest.mark.parametrize("seed", range(4))
def test_few_results_show_few_digits_where_inputs_are_moved_too(seed):
    """Of two numbers that are multiples of a last place of 1 that may be chance."""
    r = np.random.default_rng(seed).uniform(1e-7, 1e-5, 2).astype(np.float32)
    lost = lambda r: np.cumprod(1 + r) - 1  # noqa: E731
    kept = lambda r: np.expm1(np.log1p(r).cumsum())  # noqa: E731
    found = calipers.diagnose(kept, single(lost), r, batch=())
    assert found.kind in ("UNSTABLE", "ROUNDING"), str(found)
    wrong = calipers.diagnose(kept, single(lambda r: 2 * lost(r)), r, batch=())
    assert wrong.kind == "BUG", str(wrong)
