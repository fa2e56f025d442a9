"""gradcheck of a compiled f with a vjp, which is asked for products in place of all rows."""

import numba
import numpy as np
import pytest

import calipers
from calipers._gradcheck import columns

N = 300


@numba.njit
def cubic(x):
    return x * x * x - x


def cubic_vjp(x, w):
    return w * (3 * x * x - 1)


@numba.njit
def scaled_sine(x, scale):
    return scale * np.sin(x)


def scaled_sine_vjp(x, scale, w):
    return w * scale * np.cos(x)


@numba.njit
def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def softmax_vjp(x, w):
    p = np.exp(x - x.max())
    p /= p.sum()
    return p * (w - p @ w)


@numba.njit
def coupled(x, weak):
    y = x * x
    y[1:] += weak * x[:-1] * x[1:]
    return y


def coupled_vjp(x, weak, w):
    g = 2 * x * w
    g[:-1] += weak * x[1:] * w[1:]
    g[1:] += weak * x[:-1] * w[1:]
    return g


@numba.njit
def products_of_pairs(x, y):
    return x * y + x[::-1]


def products_of_pairs_vjp(x, y, w):
    return w * y + w[::-1], w * x


@numba.njit
def squared(z):
    return z * z * (1 + 0.5j)


def squared_vjp(z, w):
    return w * np.conj(2 * z * (1 + 0.5j))


def point(seed=0, n=N):
    return np.random.default_rng(seed).random(n)


def check(f, x, vjp, **options):
    return calipers.gradcheck(f, x, vjp=vjp, raise_exception=False, **options)


def with_more(vjp, *entries):
    """Return a vjp with numbers added to entries of its Jacobian: row, column and how much."""

    def wrong(x, *rest):
        g = np.array(vjp(x, *rest))
        for row, column, more in entries:
            g[column] += more * rest[-1][row]
        return g

    return wrong


def wrong_places(report):
    return {(*e.output_index, *e.input_index) for e in report.failures if e.verdict == "FAIL"}


RIGHT = {
    "cubic": (cubic, point(), cubic_vjp, {}),
    "sine": (scaled_sine, point(), scaled_sine_vjp, {"args": (np.linspace(1, 3, N),)}),
    "coupled": (coupled, 1 + point(), coupled_vjp, {"args": (0.3,)}),
    "two inputs": (products_of_pairs, (point(), 1 + point(1)), products_of_pairs_vjp, {}),
    "complex": (squared, point(n=100) + 1j * point(1, 100), squared_vjp, {}),
    "float32": (cubic, 1 + point().astype("f4"), cubic_vjp, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_vjp_is_asked_a_few_times(name):
    f, x, vjp, options = RIGHT[name]
    report = check(f, x, vjp, **options)
    assert report.verdict == "PASS", report
    assert "in every entry, by 4 products with random cotangents" in report.reason
    rows, columns = report.shape
    assert report.counts == {"FAIL": 0, "NONSMOOTH": 0, "INCONCLUSIVE": 0, "PASS": rows * columns}
    assert report.calls["vjp"] < 20
    assert report.calls["f"] <= 2 * columns + 2 + 6 * 4  # 6 for a column whose slope is near 0


@pytest.mark.parametrize("seed", range(8))
def test_functions_of_any_point_are_told_without_rows(seed):
    report = check(cubic, point(seed, 1000), cubic_vjp)
    assert report.verdict == "PASS"
    assert report.calls["vjp"] < 20


@pytest.mark.parametrize("name", RIGHT)
def test_by_rows_the_verdict_is_the_same(name, monkeypatch):
    monkeypatch.setattr(columns, "_MANY", 10**9)
    f, x, vjp, options = RIGHT[name]
    report = check(f, x, vjp, **options)
    assert report.verdict == "PASS"
    assert "products" not in report.reason
    assert report.calls["vjp"] >= report.shape[0]


def test_of_a_dense_jacobian_rows_are_asked_for():
    report = check(softmax, point(n=80), softmax_vjp)
    assert report.verdict == "PASS"
    assert "products" not in report.reason
    assert report.calls["f"] == 2 * 80 + 2


@pytest.mark.parametrize("weak", [1e-2, 1e-4])
def test_wrong_entries_that_are_small_beside_others_are_found(weak):
    """They are measured by themselves, as long as they are more than nothing."""
    x = 1 + point()
    assert check(coupled, x, coupled_vjp, args=(weak,)).verdict == "PASS"
    report = check(coupled, x, lambda x, weak, w: coupled_vjp(x, 1.00003 * weak, w), args=(weak,))
    assert wrong_places(report) >= {(i, i - 1) for i in range(1, N)}


@pytest.mark.parametrize(
    ("largest", "entry", "claimed", "options"),
    [
        (4.0, 5e-3, 5.1e-3, {"rtol": 1e-3, "atol": 0.0}),  # the caller's tolerance
        (
            100.0,
            5e-2,
            5.01e-2,
            {"rtol": 1e-3, "atol": 0.0},
        ),  # nothing in its row alone
        (8e-2, 1e-7, 1.03e-7, {}),  # nothing in its column alone
    ],
)
def test_one_small_entry_is_measured_by_itself(largest, entry, claimed, options):
    @numba.njit
    def f(x):
        y = 4 * x
        y[3] = largest * x[3] + entry * x[4]
        return y

    def vjp(x, w):
        g = 4 * w
        g[3] = largest * w[3]
        g[4] += claimed * w[3]
        return g

    report = check(f, point(), vjp, **options)
    assert wrong_places(report) == {(3, 4)}


def test_errors_just_beyond_the_callers_tolerance_do_not_make_up_for_each_other():
    wrong = with_more(cubic_vjp, (6, 100, 1.1e-3), (9, 100, -1.1e-3))
    for seed in range(100):
        report = check(cubic, 1 + point(), wrong, atol=1e-3, seed=seed)
        assert wrong_places(report) == {(6, 100), (9, 100)}


def test_what_is_left_out_may_be_off_by_as_much_as_others():
    def vjp(x, w):  # as of a solver
        return cubic_vjp(x, w) * (1 + 1e-8 * np.sign(w))

    step = np.full(N, 1e-5)
    step[7] = 0
    assert check(cubic, 1 + point(), vjp, step=step).verdict == "PASS"


def test_a_vjp_that_is_wrong_for_unit_vectors_alone_is_found():
    def vjp(x, w):
        return cubic_vjp(x, w) * (1.01 if np.count_nonzero(w) == 1 else 1.0)

    assert check(cubic, 1 + point(), vjp).verdict == "FAIL"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("share", [1e-4, 3e-6])
def test_a_wrong_entry_is_found(seed, share):
    x = point(seed)
    sizes = np.abs(3 * x * x - 1)
    row, column = np.random.default_rng(seed).integers(0, N, 2).tolist()
    if seed == 0:  # where it counts least
        row, column = int(np.argmin(sizes)), int(np.argmax(sizes))
    if seed == 1:
        row, column = int(np.argmax(sizes)), int(np.argmin(sizes))
    more = share * min(sizes[row], sizes[column])
    report = check(cubic, x, with_more(cubic_vjp, (row, column, more)))
    assert report.verdict == "FAIL"
    assert wrong_places(report) == {(row, column)}


@pytest.mark.parametrize("seed", range(6))
def test_errors_that_make_up_for_each_other_in_a_sum_are_found(seed):
    row, other, column = np.random.default_rng(seed).choice(N, 3, replace=False).tolist()
    errors = (row, column, 1e-4), (other, column, -1e-4)
    report = check(cubic, 1 + point(seed), with_more(cubic_vjp, *errors))
    assert wrong_places(report) == {(row, column), (other, column)}


def test_rows_that_are_the_wrong_way_round_are_found():
    report = check(cubic, 1 + point(), lambda x, w: cubic_vjp(x, w[::-1]))
    assert report.counts["FAIL"] == 2 * N


def dead_and_small(small=3):
    """Return scales of results: some are small, and some are 0."""
    scale = np.linspace(1, 2, N)
    scale[5 : 5 + small] = 1e-7
    scale[250:260] = 0
    return scale


def test_small_rows_are_asked_for_alone_and_dead_ones_together():
    report = check(scaled_sine, point(), scaled_sine_vjp, args=(dead_and_small(),))
    assert report.verdict == "PASS"
    assert "products" in report.reason
    assert report.calls["vjp"] < 25


@pytest.mark.parametrize("small", [3, 200])
@pytest.mark.parametrize(("row", "more"), [(6, 1e-11), (251, 1e-8), (251, 1e-11)])
def test_what_is_wrong_in_small_rows_and_dead_ones_is_found(row, more, small):
    wrong = with_more(scaled_sine_vjp, (row, 100, more))
    report = check(scaled_sine, point(), wrong, args=(dead_and_small(small),))
    assert wrong_places(report) == {(row, 100)}


@pytest.mark.parametrize("vjp", [scaled_sine_vjp, numba.njit(scaled_sine_vjp)])
def test_many_small_rows_are_asked_for_with_all_others_and_f_for_nothing_more(vjp):
    report = check(scaled_sine, point(), vjp, args=(dead_and_small(200),))
    assert report.verdict == "PASS"
    # And where rows are 0: whether rounding in f hides their changes.
    assert report.calls["f"] <= 2 * N + 50
    assert N < report.calls["vjp"] <= N + 20


def test_inputs_that_f_does_not_use():
    scale = np.ones(N)

    @numba.njit
    def f(x, scale):
        return scale * x[0] ** 2

    def vjp(x, scale, w):
        g = np.zeros(N)
        g[0] = 2 * x[0] * (w @ scale)
        return g

    assert check(f, point(), vjp, args=(scale,)).calls["vjp"] < 20
    report = check(f, point(), with_more(vjp, (3, 7, 1e-9)), args=(scale,))
    assert wrong_places(report) == {(3, 7)}


def test_columns_that_are_left_out_are_in_no_product():
    step = np.full(N, 1e-5)
    step[7] = 0
    wrong = with_more(scaled_sine_vjp, (6, 7, 1.0), (20, 7, 1.0))
    report = check(scaled_sine, point(), wrong, args=(dead_and_small(),), step=step)
    assert report.verdict == "PASS"
    assert "1 column without a step" in report.reason
    assert "products" in report.reason


def test_nan_in_a_product_is_traced_to_its_entries():
    def vjp(x, w):
        g = cubic_vjp(x, w)
        g[3] = np.nan
        return g

    report = check(cubic, point(), vjp)
    assert report.verdict == "FAIL"
    assert {column for _, column in wrong_places(report)} == {3}


def test_a_kink_is_one():
    @numba.njit
    def hinge(x):
        return np.maximum(x, 0.0)

    x = point() - 0.5
    x[11] = 0.0
    report = check(hinge, x, lambda x, w: w * (x > 0))
    assert report.verdict == "NONSMOOTH"
    assert [e.input_index for e in report.failures] == [(11,)]


def test_what_the_caller_tolerates_passes():
    wrong = with_more(cubic_vjp, (3, 4, 3e-4))
    report = check(cubic, 1 + point(), wrong, atol=1e-2)
    assert report.verdict == "PASS"
    assert report.calls["vjp"] < 20
    assert check(cubic, 1 + point(), wrong, atol=1e-4).verdict == "FAIL"


def test_threads_change_nothing():
    reports = []
    for threads in (1, 2):
        with calipers.num_threads(threads):
            reports.append(check(cubic, point(3, 1000), cubic_vjp).to_dict())
    assert reports[0] == reports[1]


def test_memory_that_vjp_fills_again_does_not_spoil_products():
    room = np.empty(N)

    def vjp(x, w):
        np.multiply(w, 3 * x * x - 1, out=room)
        return room

    report = check(cubic, point(), vjp)
    assert report.verdict == "PASS"
    assert report.calls["vjp"] < 20


def test_columns_of_small_numbers_are_looked_at_one_by_one():
    x, rate = point(), np.ones(N)
    x[5], rate[5] = 1e-9, 1e9

    @numba.njit
    def f(x, rate):
        return np.sin(rate * x) / rate

    def vjp(x, rate, w):
        return w * np.cos(rate * x)

    report = check(f, x, vjp, args=(rate,))
    assert report.verdict == "PASS"
    assert "products" not in report.reason
    assert wrong_places(check(f, x, with_more(vjp, (5, 5, 1e-3)), args=(rate,))) == {(5, 5)}
