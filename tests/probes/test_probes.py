"""Probes against orders of summation, errors and ranges that are known by hand."""

import functools
import itertools
import json
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

import calipers
from calipers import probes

RANDOM = np.random.default_rng(7)
X = RANDOM.standard_normal((16, 40)).astype(np.float32)
W = RANDOM.standard_normal((12, 40)).astype(np.float32)


def identity(*inputs):
    return inputs[0]


def fails(*_):
    raise ZeroDivisionError("on purpose")


def writes(x):
    x[...] = 0
    return x


def torch_or_skip():
    return pytest.importorskip("torch")


def running(x):
    total = x[0]
    for value in x[1:]:
        total = total + value
    return total


# Rows


def test_rows_of_a_function_of_rows_are_equal():
    found = probes.batch(lambda x: np.exp(x) + x[:, :1], X)
    assert found.equal
    assert found
    assert found.units == 0
    names = ["row 0", "row 8", "row 15", "rows 0, 1, 2", "rows in a different order"]
    assert [trial.name for trial in found.trials] == names
    assert [trial.size for trial in found.trials] == [40, 40, 40, 120, 640]


@pytest.mark.parametrize(
    "mixing",
    [
        lambda x: x - x.mean(0),
        lambda x: x + 1e-3 * np.roll(x, 1, axis=0),
        lambda x: np.cumsum(x, 0),
        lambda x: np.where(np.arange(len(x))[:, None] == len(x) - 1, 1.01 * x, x),
        lambda x: x * (1 + np.arange(len(x))[:, None]),
        lambda x: x / np.abs(x).max(),
    ],
)
def test_rows_that_mix(mixing):
    found = probes.batch(mixing, X)
    assert not found
    assert not found.equal
    assert "not equal" in str(found)
    assert found.units > found.trials[0].allowed == 4 + math.sqrt(40)


def test_one_wrong_element_among_many_is_seen():
    def tail(x):
        y = 2 * x
        y[-1, -1] *= np.float32(1 + 1e-4)
        return y

    x = np.ones((50, 2000), np.float32)
    (trial,) = [t for t in probes.batch(tail, x).trials if t.name == "rows in a different order"]
    # 2 of 100000 elements are off by 1e-4 = 1678 u; a unit of 2 x is sqrt(2) of its rounding.
    assert trial.differing == 2
    assert trial.units < trial.allowed
    assert trial.largest == pytest.approx(1e-4 * 2**24 / math.sqrt(2), rel=0.01)
    assert not trial


def test_an_order_of_summation_that_depends_on_the_batch_is_rounding():
    def sums(x):
        return np.array([running(row) for row in x]) if len(x) < 4 else x.sum(1)

    found = probes.batch(sums, X)
    assert found
    assert not found.equal
    assert 0 < found.units
    assert [trial.equal for trial in found.trials][-1]


def test_units_are_roundings_of_inputs_and_results():
    def third(x):
        return x * (1 + 3 * 2.0**-24) if len(x) < 4 else x

    x = np.ones((8, 4))
    found = probes.batch(third, x.astype(np.float32).astype(float))
    # In float64 a move of the input by u and the rounding of the result: sqrt(2) u = 2**-52.5.
    expected = 3 * 2.0**-24 / (math.sqrt(2) * 2.0**-53)
    assert found.trials[0].units == pytest.approx(expected, rel=0.2)


def test_two_batches_and_an_input_that_is_none():
    def linear(x, w, y):
        return x @ w.T + y

    y = RANDOM.standard_normal((16, 12)).astype(np.float32)
    assert probes.batch(linear, (X, W, y), batch=(0, 2))
    with pytest.raises(ValueError, match="at least 2; got 12 and 16"):
        probes.batch(linear, (X, W, y), batch=(0, 1))


def test_results_without_rows_are_left_out():
    found = probes.batch(lambda x: (x.sum(), x * 1j), X)
    assert found.equal
    assert found.trials[0].size == 40
    with pytest.raises(ValueError, match="f must return a row for each of the 16"):
        probes.batch(np.sum, X)


def test_complex_rows_have_units_of_their_own():
    z = (X[:6] + 1j * X[6:12]).astype(np.complex64)
    assert probes.batch(lambda z: z * z, z)
    assert not probes.batch(lambda z: (np.float32(1), z * z.sum(0)), z)


def test_errors_of_one_result_are_not_hidden_by_larger_results():
    """Rows that mix, a layout that is read wrong, noise: each beside what is right and large."""
    noise = np.random.default_rng(0)
    asked = {
        "batch": (probes.batch, lambda x: x - x.mean()),
        "layout": (probes.layout, lambda x: x.ravel("K")),
        "repeat": (probes.repeat, lambda x: x * noise.random(x.shape)),
    }
    for name, (probe, wrong) in asked.items():
        assert not probe(lambda x, wrong=wrong: (x * 1e9, wrong(x)), X), name
        assert not probe(lambda x, wrong=wrong: {"a": wrong(x), "b": 1e9 + 1e9j * x}, X), name
    # What the moves of the inputs do to one of them is its unit, whatever another one does.
    order = np.random.default_rng(0)
    found = probes.repeat(lambda x: (order.permutation(x).sum(), np.sin(1e5 * x)), X[0])
    assert found
    assert not found.equal


def test_an_underflow_is_not_hidden_by_larger_results():
    def of(x):
        return x * x.dtype.type(1e38), np.sqrt((x * x).sum())

    found = probes.range(of, np.full(3, 1e-30, np.float32))
    assert found.kind == "UNDERFLOW"


def test_a_trial_is_true_if_rounding_may_do_it():
    assert probes.Trial("", 9, 9, units=10.0, largest=80.0, allowed=10.0)
    assert not probes.Trial("", 9, 9, units=10.1, largest=20.0, allowed=10.0)
    assert not probes.Trial("", 9, 9, units=9.9, largest=80.1, allowed=10.0)
    assert not probes.Trial("", 9, 0, units=0.0, largest=0.0, allowed=10.0, problem="raises")


def test_the_other_order_is_another():
    def neighbours(x):
        assert len(x) == 16
        return np.roll(x, 1, axis=0) + np.roll(x, -1, axis=0)

    assert not probes.batch(neighbours, X).trials[-1].equal
    for seed in range(8):
        two = probes.batch(lambda x: np.arange(1.0, 1 + len(x)) * x, np.ones(2), seed=seed)
        assert not two.trials[-1].equal


def test_a_function_that_takes_no_other_batch():
    def fixed(x):
        if len(x) != 16:
            raise RuntimeError("16 rows or none")
        return x

    found = probes.batch(fixed, X)
    assert not found
    assert "f raises RuntimeError: 16 rows or none" in str(found)
    assert found.trials[-1].equal


@pytest.mark.parametrize(
    ("inputs", "batch", "match"),
    [
        (np.float64(1), (0,), r"inputs\[0\] must be an array of rows"),
        (np.ones((1, 3)), (0,), r"named by batch=\(0,\) must have the same .* 2; got 1$"),
        ((np.ones((3, 2)), np.ones(4)), (0, 1), "number of rows, at least 2; got 3 and 4$"),
        (np.ones((4, 3)), (1,), "positions of the 1 inputs, got 1"),
        (np.ones((4, 3)), (), r"batch=\(\) must .*; got none$"),
        (np.ones((4, 3)), ("x",), "positions of the 1 inputs, got 'x'"),
        (np.ones((4, 3)), 0.0, r"positions of the 1 inputs, got 0\.0"),
    ],
)
def test_batches_that_are_none(inputs, batch, match):
    with pytest.raises(ValueError, match=match):
        probes.batch(identity, inputs, batch=batch)


# Layouts


def test_an_elementwise_function_has_no_layout():
    found = probes.layout(np.exp, X)
    assert found.equal
    assert len(found.trials) == 3


def test_a_sum_in_the_order_of_memory_is_rounding():
    # By rows (1 + u) + 2 u is 1 + 2 u, since 1 + u is a tie; by columns (1 + 2 u) + u is 1 + 4 u.
    u = 2.0**-24
    x = np.array([[1, u], [2 * u, 0]], np.float32)
    found = probes.layout(lambda x: running(x.ravel("K")), x)
    assert found
    assert [trial.equal for trial in found.trials] == [False, True, True]
    # The largest input moves the sum by u, and so does the rounding of that.
    assert found.units == pytest.approx(2 / math.sqrt(2), rel=0.5)


@pytest.mark.parametrize(
    ("which", "function"),
    [
        (0, lambda x: x.ravel("K")),
        (1, lambda x: x * (2 if x.strides[-1] == 2 * x.itemsize else 1)),
        (2, lambda x: x * (2 if x.ctypes.data % 64 == 8 else 1)),
    ],
)
def test_a_layout_that_is_read_wrong(which, function):
    x = RANDOM.standard_normal((6, 5))
    found = probes.layout(function, x)
    assert not found
    assert [bool(trial) for trial in found.trials] == [k != which for k in range(3)]


def test_tensors_keep_the_layout():
    torch = torch_or_skip()
    seen = []

    def see(x):
        seen.append((x.stride(), x.data_ptr() % 64))
        return x * 2

    assert probes.layout(see, torch.ones(6, 5)).equal
    # twice in C order, column-major, with gaps, and off by a float
    assert [stride for stride, _ in seen] == [(5, 1), (5, 1), (1, 6), (10, 2), (5, 1)]
    assert seen[-1][1] == 4


def test_a_function_that_writes_sees_layouts_as_well():
    x = np.arange(6.0).reshape(3, 2)

    def doubles(x):
        x *= 2
        return x * (3 if x.strides[-1] == 2 * x.itemsize else 1)

    def doubles_otherwise(x):
        x *= 2
        return x * (3 if x.ctypes.data % 64 == 8 else 1)

    assert [bool(trial) for trial in probes.layout(doubles, x).trials] == [True, False, True]
    found = probes.layout(doubles_otherwise, x)
    assert [bool(trial) for trial in found.trials] == [True, True, False]
    assert (x == np.arange(6.0).reshape(3, 2)).all()


def test_layouts_of_no_array():
    with pytest.raises(ValueError, match="inputs must hold an array, got 3"):
        probes.layout(identity, 3)
    assert probes.layout(identity, np.float32(3)).equal
    assert probes.layout(identity, np.ones((0, 3))).equal


# Repeats


def test_repeats_are_counted():
    calls = []
    found = probes.repeat(lambda x: calls.append(0) or x, X, times=5)
    assert found.equal
    assert len(calls) == 5
    assert [trial.name for trial in found.trials] == ["call 2", "call 3", "call 4", "call 5"]
    assert str(found) == "5 calls of f: equal\n  call 2; call 3; call 4; call 5: equal"


def test_many_equal_calls_are_one_line():
    assert str(probes.repeat(np.sin, X, 20)) == "20 calls of f: equal\n  call 2 to call 20: equal"


def test_lines_of_calls_end_after_a_word():
    calls = iter([0, 1, 1, 0, 1, 1, 1])
    text = str(probes.repeat(lambda x: x + next(calls) * 1e-3 * np.sin(1e6 * x), X, 4))
    assert max(map(len, text.splitlines())) <= 88
    joined = " ".join(text.split())
    assert joined.endswith(": above the limit call 4: equal")
    assert joined.count(" times the expected rounding error, the largest by ") == 2


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_randomness_is_no_rounding(scale):
    noise = np.random.default_rng(0)
    found = probes.repeat(lambda x: x + scale * noise.random(x.shape), X)
    assert not found
    assert found.trials[0].differing > 600


def test_dropout_is_no_rounding():
    torch = torch_or_skip()
    assert not probes.repeat(torch.nn.Dropout(0.5), torch.ones(100))


def test_another_order_each_time_is_rounding():
    random = np.random.default_rng(0)
    x = RANDOM.standard_normal(200).astype(np.float32)
    found = probes.repeat(lambda x: running(random.permutation(x)), x, times=8)
    assert found
    assert not found.equal
    assert 0 < found.units < 18


def test_a_state_that_stays():
    kept = np.zeros(40, np.float32)

    def adds(x):
        kept[...] += x[0]
        return kept

    found = probes.repeat(adds, X)
    assert not found
    # twice and three times the first
    assert found.trials[1].units == pytest.approx(2 * found.trials[0].units)


@pytest.mark.parametrize("times", [1, 0, -1, 2.0, None])
def test_times_that_are_none(times):
    with pytest.raises(ValueError, match="times must be an integer of at least 2"):
        probes.repeat(identity, X, times=times)


# Range


def norm(x):
    return np.sqrt(np.sum(x * x))


@pytest.mark.parametrize(
    ("size", "kind"),
    [(1e20, "OVERFLOW"), (1e18, "FITS"), (1.0, "FITS"), (1e-18, "FITS"), (1e-30, "UNDERFLOW")],
)
def test_norms(size, kind):
    found = probes.range(norm, np.array([size, size], np.float32))
    assert found.kind == kind
    assert bool(found) == (kind == "FITS")
    assert found.homogeneous == (0,)
    assert found.nonfinite == (kind == "OVERFLOW")
    if not found:
        # The squares fit where it is rescaled: 2**-64 to 2**64 is in between.
        assert -63 < math.log2(size) + found.exponent < 63
        assert found.rescaled_error < 1


@pytest.mark.parametrize(
    ("size", "kind"), [(1e200, "OVERFLOW"), (1.0, "FITS"), (1e-200, "UNDERFLOW")]
)
def test_norms_of_a_library_without_a_wider_format(size, kind):
    torch = torch_or_skip()
    x = torch.full((2,), size, dtype=torch.float64)
    assert probes.range(lambda x: (x * x).sum().sqrt(), x).kind == kind


def test_an_overflow_of_which_a_finite_error_is_left():
    x = np.array([1e30, 2e30], np.float32)
    found = probes.range(lambda x: 1 / norm(x), x)
    assert found.kind == "OVERFLOW"  # 1/inf is 0
    assert found.nonfinite == 0
    assert found.exponent < 0


def test_underflow_that_ends_in_nan():
    found = probes.range(lambda x: x / norm(x), np.array([1e-30, 2e-30], np.float32))
    assert found.kind == "UNDERFLOW"
    assert found.nonfinite == 2
    assert found.first == (0,)


def test_softmax_without_a_shift():
    found = probes.range(lambda x: np.exp(x) / np.exp(x).sum(), np.array([1, 100], np.float32))
    assert found.kind == "OVERFLOW"
    assert (found.nonfinite, found.first, found.exponent) == (1, (1,), None)
    assert "1 of 2 results are not finite although they fit float32, first at index (1,)" in str(
        found
    )


def test_a_result_that_does_not_fit_is_no_loss():
    assert probes.range(lambda x: x * x, np.array([1e30], np.float32)).kind == "FITS"
    assert probes.range(lambda x: x * np.float32(np.inf), X).kind == "FITS"


def test_results_that_are_themselves_too_large_are_counted():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = probes.range(np.exp, np.array([800.0, 1.0]))
    assert found.reason.endswith("1 of 2 results are themselves too large for it")


def test_inputs_that_are_rescaled_together():
    a = np.array([1e-25, 3e-30], np.float32)
    found = probes.range(lambda a, b: np.sqrt(a * a + b * b), (a, a))
    assert (found.kind, found.argument, found.homogeneous) == ("UNDERFLOW", -1, (-1,))


def test_degrees_of_each_output():
    def both(x):
        return x.sum(), x * x, np.sqrt(np.abs(x))

    found = probes.range(both, X)
    assert (found.kind, found.homogeneous) == ("FITS", (0,))
    assert probes.range(lambda x: x + 1, X).homogeneous == ()


def test_the_first_of_several_outputs():
    found = probes.range(lambda x: (x, (x * x)[None] / x), np.array([1, 1e30], np.float32))
    assert found.first == (1, 0, 1)


def test_subnormals_of_float16():
    x = np.full(4, 2.0**-12, np.float16)
    found = probes.range(lambda x: (x * x) / x, x)  # 2**-24, the smallest: exact
    assert found.kind == "FITS"
    found = probes.range(lambda x: (x * x * np.float16(0.75)) / x, x)  # rounded to 2**-24
    assert found.kind == "UNDERFLOW"


def test_a_poor_algorithm_is_not_a_matter_of_range():
    def variance(x):
        return np.mean(x * x) - np.mean(x) ** 2

    x = (1000 + RANDOM.standard_normal(100)).astype(np.float32)
    found = probes.range(variance, x)
    assert found.kind == "FITS"
    assert found.homogeneous == (0,)


def test_what_fits_is_not_known():
    found = probes.range(lambda x: x.astype(np.float32) + np.float32(1), X)
    assert found.kind == "UNKNOWN"
    assert not found
    assert math.isnan(found.error)


@pytest.mark.parametrize("x", [np.ones(0, "f"), np.zeros(3, "f"), np.full(2, np.nan, "f")])
def test_ranges_of_nothing(x):
    assert probes.range(norm, x).kind == "FITS"


# Condition


def test_the_condition_of_a_difference():
    x = np.array([1.0, 1.0 + 2.0**-20])
    # Each of two inputs moves the result by u: sqrt(2) u by u 2**-20.
    found = probes.condition(lambda x: x[1] - x[0], x)
    assert 2**20 / 2 < found.kappa < 2**21
    assert found.digits == pytest.approx(-math.log10(found.kappa * 2.0**-53))
    assert found.format == "float64"


@pytest.mark.parametrize("power", [1, 2, 5])
def test_the_condition_of_a_power(power):
    x = np.full(100, 1.5, np.float32)
    found = probes.condition(lambda x: x**power, x)
    assert found.kappa == pytest.approx(power, rel=0.05)
    assert found.digits == pytest.approx(-math.log10(power * 2.0**-24), abs=0.02)


def test_the_condition_of_what_takes_no_wider_format():
    def cube(x):
        assert x.dtype == np.float32
        return x**3

    def same(x):
        assert x.dtype == np.float32
        return x + 0

    x = np.full(200, 1.5, np.float32)
    assert probes.condition(cube, x).kappa == pytest.approx(3, rel=0.1)
    assert probes.condition(same, x).kappa == pytest.approx(1, rel=0.1)


def test_conditions_without_a_number():
    assert probes.condition(np.zeros_like, X).kappa == 0
    assert probes.condition(lambda x: x - x[0], np.ones(2)).digits == 0
    assert probes.condition(identity, np.ones(0)).kappa == 0
    for unmoved in (np.arange(4), np.zeros(3)):
        with pytest.raises(ValueError, match="floating-point numbers other than 0"):
            probes.condition(np.sum, unmoved)
    with pytest.raises(ValueError, match="f must return a finite number"):
        probes.condition(lambda x: x * np.nan, X)


def test_the_condition_of_a_sparse_matrix_is_refused():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match=r"matrix is sparse.* pass matrix\.toarray\(\)"):
        probes.condition(sparse.eye_array(3))


def test_the_condition_of_a_matrix():
    found = probes.condition(np.diag([1.0, 4.0, 2.0]).astype(np.float32))
    assert found.singular_values == (4.0, 2.0, 1.0)
    assert found.kappa == 4
    assert found.singular_gap == found.eigen_gap == 0.25
    assert found.digits == pytest.approx(-math.log10(4 * 2.0**-24))
    assert "arbitrary" not in str(found)
    assert probes.condition(np.diag([1.0, 4.0, 3.0])).singular_gap == 0.25


def test_close_values_leave_vectors_arbitrary():
    found = probes.condition(np.array([[1.0, 0.0], [0.0, -1.0]]))
    assert found.singular_gap == 0
    assert found.eigen_gap == 2
    assert "their singular vectors are arbitrary" in str(found)
    assert "their eigenvectors are arbitrary" not in str(found)
    assert probes.condition(np.array([[1.0, 1.0], [0.0, 1.0]])).eigen_gap is None
    complex_one = probes.condition(np.array([[2.0, 1j], [-1j, 2.0]]))
    assert complex_one.eigen_gap == pytest.approx(2 / 3)


def test_singular_matrices():
    for matrix in (np.zeros((2, 3)), np.diag([1, 0])):
        found = probes.condition(matrix)
        assert (found.kappa, found.digits) == (math.inf, 0)
    assert probes.condition(np.ones((1, 4))).singular_gap is None


def test_matrices_that_are_none():
    with pytest.raises(ValueError, match=r"2 axes and elements, got shape \(3,\)"):
        probes.condition(np.ones(3))
    with pytest.raises(ValueError, match=r"got shape \(0, 3\)"):
        probes.condition(np.ones((0, 3)))
    with pytest.raises(ValueError, match=r"must be finite, got nan at \(1, 0\)"):
        probes.condition([[1, 2], [np.nan, 3]])
    with pytest.raises(TypeError, match="must hold numbers"):
        probes.condition([["a"]])
    with pytest.raises(TypeError, match="inputs are missing"):
        probes.condition(np.exp)
    with pytest.raises(TypeError, match="f must be callable if inputs are passed, got ndarray"):
        probes.condition(X, X)


# Exact sums


def test_every_order_is_exact():
    assert probes.exact(np.sum, running, (1000,))
    assert probes.exact(np.matmul, lambda a, b: np.einsum("ij,jk", a, b), [(5, 99), (99, 4)])
    torch = torch_or_skip()
    x = torch.zeros(5, 99)
    assert probes.exact(torch.matmul, lambda a, b: (b.T @ a.T).T, (x, x.T.contiguous()))


def test_inputs_are_of_three_numbers():
    seen = []
    probes.exact(lambda x, n: seen.append(x) or x.sum(n), lambda x, n: x.sum(n), [(300, 2), 1])
    assert seen[0].dtype == np.float32
    assert seen[0].shape == (300, 2)
    assert np.unique(seen[0]).tolist() == [-1, 0, 1]
    again = []
    probes.exact(lambda x: again.append(x) or x, identity, [(300, 2)], dtype=float, seed=1)
    assert again[0].dtype == float
    assert (again[0] != seen[0]).any()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, b: a[:, 1:] @ b[1:],
        lambda a, b: a @ b + 1e-6,
        lambda a, b: a @ np.roll(b, 1, axis=1),
        lambda a, b: calipers.emulated_matmul(a, b, "float8_e5m2", accumulate="float8_e5m2"),
        lambda a, b: np.where(np.arange(4) == 3, np.nan, a @ b),
    ],
)
def test_what_no_order_explains(wrong):
    found = probes.exact(np.matmul, wrong, [(5, 99), (99, 4)])
    assert not found
    assert found.size == 20
    assert "not equal" in str(found)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_a_conjugate_that_is_missing_is_seen_at_exact_sums(dtype):
    shapes = [(5, 99), (99, 4)]
    assert probes.exact(np.matmul, lambda a, b: (b.T @ a.T).T, shapes, dtype=dtype)
    assert not probes.exact(np.matmul, lambda a, b: a @ b.conj(), shapes, dtype=dtype)
    given = [np.zeros(shape, dtype) for shape in shapes]
    assert not probes.exact(np.matmul, lambda a, b: a @ b.conj(), tuple(given))


def test_how_exact_sums_differ():
    def wrong(x):
        y = x.copy()
        y[3] += 2
        return y

    found = probes.exact(identity, wrong, (9,))
    assert (found.differing, found.differing_rounded, found.largest, found.first) == (1, 1, 2, 3)
    found = probes.exact(identity, lambda x: x + 1e-7 * (np.arange(9) > 3), [(9,)], dtype=float)
    assert (found.differing, found.differing_rounded, found.first) == (5, 0, 4)
    assert "not a plain sum of products" in str(found)


def test_exact_sums_that_cannot_be_compared():
    found = probes.exact(np.sum, fails, (9,))
    assert not found
    assert "g raises ZeroDivisionError: on purpose" in str(found)
    assert "f returns shape (9,), and g returns shape ()" in str(
        probes.exact(identity, np.sum, (9,))
    )
    assert "only one of f and g returns complex" in str(
        probes.exact(identity, lambda x: x + 0j, (9,))
    )
    with pytest.raises(ValueError, match="must contain a shape"):
        probes.exact(identity, identity, 3)
    with pytest.raises(TypeError, match="dtype must be a floating-point dtype"):
        probes.exact(identity, identity, (9,), dtype=np.int8)
    with pytest.raises(TypeError, match="g must be callable"):
        probes.exact(identity, 3, (9,))


# Orders of summation


def numpy_order(start, n):
    """NumPy's pairwise sum: 8 lanes in blocks of up to 128, halves that are multiples of 8."""
    if n < 8:
        return chain([leaf(start + i) for i in range(n)])
    if n <= 128:
        lanes = [chain([leaf(start + i) for i in range(k, n - n % 8, 8)]) for k in range(8)]
        pairs = [join(lanes[k], lanes[k + 1]) for k in range(0, 8, 2)]
        total = join(join(pairs[0], pairs[1]), join(pairs[2], pairs[3]))
        return chain([total] + [leaf(start + i) for i in range(n - n % 8, n)])
    half = n // 2
    half -= half % 8
    return join(numpy_order(start, half), numpy_order(start + half, n - half))


# A tree is the list of its elements, and the trees it is made of.


def leaf(i):
    return [i], []


def join(*trees):
    return [i for elements, _ in trees for i in elements], trees


def chain(trees):
    return functools.reduce(join, trees)


def meetings(tree, n):
    """Return the size of the smallest sum that each two elements are both in."""
    found = np.full((n, n), 1)

    def walk(tree):
        elements, parts = tree
        for own, other in itertools.permutations(parts, 2):
            found[np.ix_(own[0], other[0])] = len(elements)
        for part in parts:
            walk(part)

    walk(tree)
    return found


def all_meetings(order):
    return np.array([[order.meet(i, j) for j in range(order.n)] for i in range(order.n)])


@pytest.mark.parametrize("n", [2, 7, 8, 9, 31, 64, 100, 128, 136, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_adds_in_eight_lanes(n, dtype):
    order = probes.summation_order(np.sum, n, dtype=dtype)
    expected = meetings(numpy_order(0, n), n)
    assert (all_meetings(order) == expected).all()


def test_the_rows_of_numpy_and_a_loop():
    # How many elements are added before 0 meets j: lanes of 16 elements in blocks of 128.
    partners = (1, 2, 4, 8, 16, 32, 128, 512, 1023)
    order = probes.summation_order(np.sum, 1024)
    swallowed = [order.meet(0, j) - 2 for j in partners]
    assert swallowed == [30, 62, 126, 0, 1, 3, 254, 1022, 1022]
    # 15 additions in a lane, 3 of lanes, 3 of blocks
    assert order.depth == 15 + 3 + 3
    order = probes.summation_order(running, 1024)
    assert [order.meet(0, j) - 2 for j in partners] == [j - 1 for j in partners]
    assert order.depth == 1023
    assert order.depths[:3] == (1023, 1023, 1022)
    assert order.name == "a running sum from the first to the last"


def test_other_libraries_have_other_orders():
    torch = torch_or_skip()
    order = probes.summation_order(lambda x: torch.from_numpy(x).sum(), 1024)
    ours = probes.summation_order(np.sum, 1024)
    assert order.nodes != ours.nodes
    assert sorted(order.sizes)[-1] == 1024
    assert sum(len(parts) for parts in order.nodes) == 1024 + len(order.nodes) - 1


def in_pairs(x):
    while len(x) > 1:
        x = np.append(x[0::2][: len(x) // 2] + x[1::2], x[len(x) - len(x) % 2 :])
    return x[0]


def in_threes(x):
    """Add three at a time to a running sum, exactly before it is rounded; as matrix units do."""
    total = Fraction(float(x[0]))
    for k in range(1, len(x), 3):
        # What is far below the largest is dropped, as in the alignment of such a unit.
        terms = [total, *(Fraction(float(v)) for v in x[k : k + 3])]
        unit = max(map(abs, terms)) / 2**20
        total = (
            sum((math.trunc(t / unit) * unit for t in terms), Fraction(0)) if unit else Fraction(0)
        )
    return float(total)


@pytest.mark.parametrize("n", [3, 8, 13])
def test_names_of_orders(n):
    def name(f):
        return probes.summation_order(f, n).name

    assert name(running) == "a running sum from the first to the last"
    assert name(lambda x: running(x[::-1])) == "a running sum from the last to the first"
    # Three elements in pairs are a running sum.
    assert name(in_pairs) == ("in pairs" if n > 3 else "a running sum from the first to the last")


def test_orders_without_a_name():
    order = probes.summation_order(lambda x: in_pairs(x[:4]) + running(x[4:]), 8)
    assert (order.depth, order.name) == (4, "")
    assert probes.summation_order(np.sum, 2).name == ""


def test_sums_of_more_than_two():
    order = probes.summation_order(in_threes, 7)
    assert [sorted(parts) for parts in order.nodes] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert order.name == "some at once"
    assert order.depths == (2, 2, 2, 2, 1, 1, 1)
    assert probes.summation_order(in_threes, 4).name == "all at once"


def test_random_trees_are_found():
    random = np.random.default_rng(3)
    for n in (2, 5, 17, 40):
        trees = [leaf(i) for i in range(n)]
        while len(trees) > 1:
            some = sorted(random.choice(len(trees), 2, replace=False), reverse=True)
            trees.append(join(*(trees.pop(k) for k in some)))

        def add(x, tree=trees[0]):
            elements, parts = tree
            return add(x, parts[0]) + add(x, parts[1]) if parts else x[elements[0]]

        order = probes.summation_order(add, n)
        assert (all_meetings(order) == meetings(trees[0], n)).all()


def test_multiples_of_sums_are_sums():
    for f in (np.mean, lambda x: -3 * np.sum(x), lambda x: np.sum(x)[None, None]):
        assert probes.summation_order(f, 50).nodes == probes.summation_order(np.sum, 50).nodes


def test_one_element():
    order = probes.summation_order(np.sum, 1)
    assert (order.nodes, order.depth, order.name) == ((), 0, "")
    assert "of 1 element\n" in str(order)
    assert order.meet(0, 0) == 1
    with pytest.raises(IndexError, match="from 0 to 0, got 1"):
        order.meet(0, 1)
    with pytest.raises(IndexError, match=r"from 0 to 0, got 0\.5"):
        order.meet(0.5, 0)


@pytest.mark.parametrize(
    ("f", "error", "match"),
    [
        (math.fsum, ValueError, "no single order of summation"),
        (np.max, ValueError, "no single order of summation"),
        (np.prod, ValueError, "no single order of summation"),
        (np.ptp, ValueError, "f must sum"),
        (lambda x: running(x) ** 2, ValueError, "of 9 ones are left after"),
        (np.exp, TypeError, "one real number"),
        (lambda x: "sum", TypeError, "one real number"),
        (lambda x: 1j, TypeError, "one real number"),
        (3, TypeError, "f must be callable"),
        (fails, ZeroDivisionError, "on purpose"),
    ],
)
def test_what_has_no_order(f, error, match):
    with pytest.raises(error, match=match):
        probes.summation_order(f, 9)


@pytest.mark.parametrize("n", [0, -1, 2.0])
def test_orders_of_nothing(n):
    with pytest.raises(ValueError, match="n must be a positive integer"):
        probes.summation_order(np.sum, n)
    with pytest.raises(ValueError, match="dtype must be float32 or float64, got float16"):
        probes.summation_order(np.sum, 3, dtype=np.float16)


# Layers


def chain_of(*changed):
    """Return a chain of layers, and the same in other orders of summation, with some changed."""
    weights = [RANDOM.standard_normal((40, 40)).astype(np.float32) / 6 for _ in range(4)]

    def reversed_linear(x, w):
        return x[:, ::-1] @ w[:, ::-1].T

    good = [(f"linear {k}", lambda x, w=w: x @ w.T) for k, w in enumerate(weights)]
    other = [(f"linear {k}", lambda x, w=w: reversed_linear(x, w)) for k, w in enumerate(weights)]
    for k, change in changed:
        name, f = other[k]
        other[k] = name, lambda x, f=f, change=change: change(f(x))
    return other, good


def test_layers_that_only_round():
    found = probes.layers(*chain_of(), X)
    assert found
    assert found.first is None
    assert [layer.name for layer in found.layers] == [f"linear {k}" for k in range(4)]
    assert all(0 < layer.new.units < 3 for layer in found.layers)
    assert found.layers[0].new == found.layers[0].carried
    # Errors of layers before it add to those of the last.
    assert found.layers[3].carried.units > found.layers[3].new.units


@pytest.mark.parametrize("where", range(4))
def test_a_planted_error_has_a_place(where):
    fs, gs = chain_of((where, lambda y: y + np.float32(1e-3)))
    found = probes.layers(fs, gs, X)
    assert not found
    assert found.first.name == f"linear {where}"
    assert [bool(layer) for layer in found.layers] == [k != where for k in range(4)]
    assert all(layer.carried.units > 100 for layer in found.layers[where:])
    text = " ".join(str(found).split())
    assert text.startswith(
        f"layer 'linear {where}', number {where + 1} of 4, is the first whose difference is not "
    )
    assert found.to_dict()["first"] == f"linear {where}"


def test_the_first_of_two_planted_errors():
    fs, gs = chain_of((1, lambda y: 1.01 * y), (3, lambda y: 1.01 * y))
    assert probes.layers(fs, gs, X).first.name == "linear 1"


def test_a_report_of_layers_says_what_its_columns_are():
    lines = str(probes.layers(*chain_of(), X)).splitlines()
    assert lines[1].split() == ["layer", "layer", "alone", "accumulated", "allowed"]
    assert {len(line) for line in lines[2:6]} == {len(lines[1])}
    assert [line.strip()[:11] for line in lines[6:8]] == ["layer alone", "accumulated"]
    assert max(map(len, lines)) <= 88


def test_layers_of_another_shape_end_the_chain():
    fs, gs = chain_of((2, lambda y: y[:, 1:]))
    found = probes.layers(fs, gs, X)
    assert len(found.layers) == 3
    assert "shape (16, 39) instead of (16, 40)" in str(found)


def test_layers_of_tensors_and_of_several_results():
    torch = torch_or_skip()
    seen = set()

    def join(a, b):
        seen.update({type(a), type(b)})
        return a @ b.T

    fs = [("split", lambda x: (x + 1, x * 2)), ("join", join)]
    assert probes.layers(fs, fs, torch.from_numpy(X))
    assert seen == {torch.Tensor}
    ours = [fs[0], ("join", lambda a, b: b @ a.T)]
    assert probes.layers(ours, fs, torch.from_numpy(X)).first.name == "join"


def test_layers_of_two_libraries():
    torch = torch_or_skip()
    w = torch.from_numpy(W)
    ours = [("linear", lambda x: x @ W.T), ("relu", lambda x: np.maximum(x, 0))]
    theirs = [("linear", lambda x: x.matmul(w.T)), ("relu", lambda x: x.relu())]
    assert probes.layers(ours, theirs, X)
    assert probes.layers([ours[0], ("tanh", np.tanh)], theirs, X).first.name == "tanh / relu"


def test_layers_with_their_own_format():
    torch = torch_or_skip()
    linear = torch.nn.Linear(40, 12)
    own = [("linear", lambda x: x @ linear.weight.T + linear.bias)]
    found = probes.layers(own, [("linear", linear)], torch.from_numpy(X))
    assert found  # which takes no float64
    shifted = [("linear", lambda x: x @ linear.weight.T + 1.001 * linear.bias)]
    assert not probes.layers(shifted, [("linear", linear)], torch.from_numpy(X))


def test_layers_that_raise_or_are_none():
    with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
        probes.layers([("a", identity)], [("b", fails)], X)
    assert caught.value.__notes__ == ["raised by layer 'b' of gs"]
    with pytest.raises(ValueError, match="the same number of layers, at least 1, got 1 and 0"):
        probes.layers([("a", identity)], [], X)
    with pytest.raises(ValueError, match="got 0 and 0"):
        probes.layers([], [], X)
    with pytest.raises(TypeError, match=r"fs\[0\] must be a tuple of a name and a callable"):
        probes.layers([identity], [("b", identity)], X)
    with pytest.raises(TypeError, match=r"gs\[0\]\[1\] must be callable"):
        probes.layers([("a", identity)], [("b", 3)], X)
    with pytest.raises(TypeError, match=r"fs\[0\] must be a tuple of a name and a callable"):
        probes.layers([(1, identity)], [("b", identity)], X)
    with pytest.raises(TypeError, match=r"gs must be .*, got dict: pass its \.items\(\)"):
        probes.layers([("a", identity)], {"b": identity}, X)
    with pytest.raises(TypeError, match=r"fs must be a sequence of .*, got NoneType"):
        probes.layers(None, [("b", identity)], X)


def test_layers_may_come_from_iterators():
    layers = {"a": np.exp, "b": np.tanh}
    found = probes.layers(iter(layers.items()), layers.items(), X)
    assert [layer.name for layer in found.layers] == ["a", "b"]
    assert found


@pytest.mark.parametrize("dtype", ["nonsense", None, int, X])
def test_formats_that_are_none_are_named(dtype):
    with pytest.raises(TypeError, match="dtype must be a floating-point dtype, got "):
        probes.exact(np.matmul, np.matmul, [(2, 3), (3, 2)], dtype=dtype)
    with pytest.raises(ValueError, match="dtype must be float32 or float64, got "):
        probes.summation_order(np.sum, 3, dtype=dtype)


def test_formats_may_be_those_of_torch():
    torch = torch_or_skip()
    for dtype in (torch.float32, torch.bfloat16):
        assert probes.exact(np.matmul, np.matmul, [(2, 3), (3, 2)], dtype=dtype)
    assert probes.summation_order(np.sum, 3, dtype=torch.float64).depth == 2


# All of them


ASK = {
    "batch": probes.batch,
    "layout": probes.layout,
    "repeat": probes.repeat,
    "range": probes.range,
    "condition": probes.condition,
    "layers": lambda f, x: probes.layers([("f", f)], [("f", f)], x),
}
asked = pytest.mark.parametrize("ask", ASK.values(), ids=ASK)


@asked
def test_a_function_that_raises(ask):
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        ask(fails, X)


@asked
def test_what_cannot_be_called(ask):
    with pytest.raises(TypeError, match=r"must be callable.*, got int"):
        ask(3, X)


@asked
@pytest.mark.parametrize("view", [slice(None), slice(None, None, 2), slice(None, None, -1)])
def test_inputs_are_never_written(ask, view):
    x = np.arange(1.0, 13).reshape(6, 2)
    kept = x.copy()
    ask(writes, x[view])
    assert (x == kept).all()


@asked
def test_inputs_that_cannot_be_written(ask):
    x = X.copy()
    x.setflags(write=False)
    ask(identity, x)


@asked
def test_inputs_with_nan_and_infinities(ask):
    x = X.copy()
    x[2, 3], x[4, 5] = np.nan, np.inf
    found = ask(lambda x: x * 2, x)
    if ask is not probes.condition:
        assert found


INTEGERS = np.arange(6).reshape(3, 2)


@asked
@pytest.mark.parametrize("x", [np.zeros((3, 0)), INTEGERS, [np.ones(2), "flag"]])
def test_inputs_of_other_kinds(ask, x):
    if ask is not probes.condition:
        assert ask(identity, x)
    elif x is INTEGERS:  # which cannot be moved by a rounding
        with pytest.raises(ValueError, match="floating-point numbers other than 0"):
            ask(identity, x)
    else:
        ask(identity, x)


@asked
def test_inputs_without_a_wider_format(ask):
    if np.finfo(np.longdouble).bits == 64:
        pytest.skip("a long double is a double here")
    with pytest.raises(TypeError, match=r"has dtype .* no higher precision to compare with"):
        ask(identity, np.ones((4, 3), np.longdouble))


@asked
@pytest.mark.parametrize("size", [1e-120, 1e120])
def test_numbers_whose_squares_are_out_of_range(ask, size):
    found = ask(lambda x: x + size, np.full((3, 2), size))
    assert ask is probes.condition or found


def reports():
    wide = np.vander(np.linspace(0, 1, 9))
    yield probes.batch(np.sin, X)
    yield probes.repeat(np.sin, X, times=100)
    yield probes.range(norm, np.full(2, 1e20, np.float32))
    yield probes.condition(wide)
    yield probes.exact(np.sum, running, (9,))
    yield probes.summation_order(np.sum, 300)
    layer = ("a" * 300, lambda x: x + 0)
    yield probes.layers([layer] * 100, [*[layer] * 99, ("b", lambda x: x + 1)], X)


@pytest.mark.parametrize("report", list(reports()), ids=lambda report: type(report).__name__)
def test_reports_are_short_and_for_machines(report):
    assert len(str(report).splitlines()) <= 25
    assert max(map(len, str(report).splitlines())) <= 200
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))


def test_the_layer_that_is_wrong_is_among_those_that_are_shown():
    *_, report = reports()
    assert str(report).splitlines()[-6].endswith("  not explained")


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    figures = [
        probes.summation_order(np.sum, 20).plot(),
        probes.summation_order(np.sum, 200).plot(),
        probes.summation_order(np.sum, 1).plot(),
        probes.condition(np.vander(np.linspace(0, 1, 9))).plot(),
        probes.layers(*chain_of((1, lambda y: y * np.nan)), X).plot(),
    ]
    for figure in figures:
        figure.savefig(tmp_path / "picture.png")
        (axes,) = figure.axes
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        title = (figure._suptitle or axes.title).get_window_extent()
        assert title.x0 >= 0
        assert title.x1 <= figure.bbox.width
    assert all(tick == int(tick) for tick in figures[3].axes[0].get_xticks())
    # 19 sums of two: an upright line for each part, and one across
    lines = figures[0].axes[0].collections[0].get_segments()
    assert len(lines) == 19 * 3
    with pytest.raises(ValueError, match="only the condition number of a matrix"):
        probes.condition(np.exp, X).plot()


def test_modules_are_public_names():
    assert calipers.probes is probes
    assert "probes" in dir(calipers)
    assert set(probes.__all__) >= {"batch", "layout", "repeat", "range", "condition", "exact"}


def test_arrays_in_containers_are_asked_about():
    random = np.random.default_rng(0)
    p = {"w": random.standard_normal((8, 4), dtype=np.float32), "b": [np.float32(1), "name"]}
    x = random.standard_normal((16, 8), dtype=np.float32)

    def layer(p, x):
        assert p["b"][1] == "name"
        return x @ p["w"] + p["b"][0]

    assert probes.batch(layer, (p, x), batch=(1,))
    assert probes.layout(layer, (p, x))
    assert probes.repeat(layer, (p, x)).equal
    assert not probes.layout(lambda p: p["w"].ravel("K"), p)
    assert not probes.layout(lambda p, x: p["w"].ravel("K"), (p, x))
    kappa = probes.condition(lambda p: p["w"].sum() - p["w"][1:].sum(), p).kappa
    assert kappa == pytest.approx(probes.condition(lambda w: w.sum() - w[1:].sum(), p["w"]).kappa)
    with pytest.raises(TypeError, match=r"inputs\[0\]\['w'\] has dtype float128"):
        probes.layout(layer, ({"w": p["w"].astype(np.longdouble)}, x))
    with pytest.raises(ValueError, match=r"inputs\[0\] must be an array of rows"):
        probes.batch(layer, (p, x))


def test_a_range_of_what_is_in_a_container_is_named():
    p = {"a": np.ones(3, np.float32), "b": np.full(4, 1e25, np.float32)}

    def norm(x, p):
        return x * np.sqrt((p["b"] * p["b"]).sum())

    with np.errstate(all="ignore"):
        found = probes.range(norm, (np.float32(2), p))
    assert found.kind == "OVERFLOW"
    assert "with input 1['b'] times 2**" in found.reason
    assert found.argument == 1
    assert set(found.homogeneous) == {0, 1, -1}


def test_a_seed_that_is_no_integer_is_named():
    for ask in (
        lambda seed: probes.batch(np.sin, np.ones((3, 2)), seed=seed),
        lambda seed: probes.exact(np.sin, np.sin, np.ones(3), seed=seed),
    ):
        with pytest.raises(TypeError, match="seed must be an integer, got str"):
            ask("a")
        assert ask(-1)


def test_results_that_no_format_holds_are_told():
    found = probes.range(np.exp, np.float32([1.0, 1000.0]))
    assert found.kind == "FITS"
    assert "1 of 2 are not finite in higher precision, either" in found.reason


def test_functions_of_integers_are_judged_in_the_format_of_their_results():
    """Pixels and tokens have no last places, but what is computed of them has."""
    pixels = RANDOM.integers(0, 256, (33, 40), dtype=np.uint8)
    orders = iter(range(99))

    def layer(x):
        return (x / np.float32(255)).astype(np.float32) @ W.T

    def shuffled(x):
        order = np.random.default_rng(next(orders)).permutation(40)
        return layer(x) * 0 + (x[:, order] / np.float32(255)).astype(np.float32) @ W.T[order]

    found = probes.repeat(shuffled, pixels)
    assert found
    assert not found.equal
    assert probes.batch(layer, pixels)
    assert probes.layout(layer, pixels)
    turned = ("layer", lambda x: layer(x[::-1])[::-1]), ("layer", shuffled)
    for other in turned:
        assert probes.layers([("layer", layer)], [other], pixels)
    wrong = ("layer", lambda x: layer(x) * np.float32(1.001))
    assert not probes.layers([wrong], [turned[1]], pixels)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.longdouble, np.clongdouble])
def test_zeros_of_two_signs_are_not_equal_to_the_last_bit(kind):
    signs = itertools.cycle([1, -1])
    found = probes.repeat(lambda x: (0.0 * next(signs) * x).astype(kind), np.ones(3))
    assert found
    assert not found.equal
    assert found.trials[0].differing == 3
