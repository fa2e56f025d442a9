"""gradcheck where Jacobians are mostly 0: what is something is judged, wherever it is."""

import itertools
import subprocess
import sys

import numba
import numpy as np
import pytest

import calipers
from calipers._gradcheck.jacobian_storage import Compact, compact
from tests.data.peak_memory import PEAK

pytestmark = pytest.mark.slow

N = 200  # three words of 64, and a part of one
PLACES = 0, 63, 64, 127, 128, N - 1


def squares(x):
    return x * x


FUNCTIONS = {"compiled": numba.njit(squares), "plain": squares}


def jac_of(x):
    return np.diag(2 * x)


def point(n=N):
    return np.random.default_rng(3).uniform(0.5, 2, n)


def checked(f, x, **given):
    return calipers.gradcheck(f, x, **given, raise_exception=False)


def as_form(form, matrix):
    """Return a derivative whose Jacobian is a matrix, compiled if it is to be asked in a loop."""
    calls = {
        "jac": lambda x: matrix.copy(),
        "jvp": numba.njit(lambda x, v: matrix @ v),
        "vjp": lambda x, w: w @ matrix,
    }
    return {form: calls[form]}


@pytest.mark.parametrize("row", PLACES)
@pytest.mark.parametrize("form", ["jac", "jvp", "vjp"])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_an_entry_is_wrong_where_f_does_not_change(kind, form, row):
    x, column = point(), (row + 70) % N
    matrix = jac_of(x)
    matrix[row, column] = 1e-3
    report = checked(FUNCTIONS[kind], x, **as_form(form, matrix))
    assert (report.verdict, report.counts["FAIL"]) == ("FAIL", 1)
    assert (report.worst.output_index, report.worst.input_index) == ((row,), (column,))


@pytest.mark.parametrize("row", PLACES)
@pytest.mark.parametrize("form", ["jac", "jvp", "vjp"])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_an_entry_is_missing_where_f_changes(kind, form, row):
    x = point()
    matrix = jac_of(x)
    matrix[row, row] = 0.0
    report = checked(FUNCTIONS[kind], x, **as_form(form, matrix))
    assert (report.verdict, report.counts["FAIL"]) == ("FAIL", 1)
    assert (report.worst.output_index, report.worst.input_index) == ((row,), (row,))


@pytest.mark.parametrize("form", ["jvp", "vjp"])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_second_form_is_wrong_where_f_does_not_change(kind, form):
    x = point()
    wrong = jac_of(x)
    wrong[190, 7] = 1e-3
    report = checked(FUNCTIONS[kind], x, jac=jac_of, **as_form(form, wrong))
    assert report.counts["FAIL"] == 1
    assert (report.worst.form, report.worst.output_index) == (form, (190,))


@pytest.mark.parametrize("width", [1, 5, 63, 64, 65, 130])
@pytest.mark.parametrize("form", ["jac", "jvp", "vjp"])
def test_bands_of_any_width_are_right(form, width):
    places = np.arange(N)
    inside = np.abs(places[:, None] - places) < width
    matrix = np.where(inside, np.random.default_rng(0).uniform(0.5, 1, (N, N)), 0.0)
    f = numba.njit(lambda x: matrix @ x)
    assert calipers.gradcheck(f, point(), **as_form(form, matrix))
    row = N // 2
    for column in (row, (row - width + 1) % N, (row + width) % N):
        wrong = matrix.copy()
        wrong[row, column] += 1e-4
        report = checked(f, point(), **as_form(form, wrong))
        assert report.counts["FAIL"] == 1
        assert (report.worst.output_index, report.worst.input_index) == ((row,), (column,))


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("form", ["jac", "jvp", "vjp"])
@pytest.mark.parametrize("compiled", [True, False])
def test_f_that_changes_to_one_side_alone_is_not_smooth(compiled, form, side):
    def f(x):
        y = x * x
        y[150] = max(side * (x[3] - 1.0), 0.0)
        return y

    x = point()
    x[3] = 1.0
    matrix = jac_of(x)
    matrix[150, 150] = 0.0
    report = checked(numba.njit(f) if compiled else f, x, **as_form(form, matrix))
    assert report.verdict == "NONSMOOTH"
    assert (report.worst.output_index, report.worst.input_index) == ((150,), (3,))


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_an_entry_that_is_not_finite_is_not_right(kind, number):
    x = point()
    matrix = jac_of(x)
    matrix[130, 4] = number
    report = checked(FUNCTIONS[kind], x, jac=lambda x: matrix)
    assert (report.verdict, report.counts["FAIL"]) == ("FAIL", 1)


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_result_that_is_never_finite_confirms_nothing(compiled, number):
    """Beside others that are 0, and change to nothing else, it is not 0."""

    def f(x):
        y = x * x
        y[150] = number
        return y

    x = point()
    matrix = jac_of(x)
    matrix[150] = 0.0
    report = checked(numba.njit(f) if compiled else f, x, jac=lambda x: matrix)
    assert report.verdict not in ("PASS", "FAIL")


@pytest.mark.parametrize("form", ["jac", "vjp", "jvp"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_column_that_changes_farther_away_is_as_it_is_near(compiled, form):
    """Beside entries that the first look leaves vague, by steps that are longer."""

    def f(x):
        y = 1e5 + np.sin(x)
        y[190] += 1e3 * max(abs(x[1] - 1.0) - 1e-3, 0.0)
        return y

    x = np.full(N, 1.0)
    matrix = np.diag(np.cos(x))
    own = numba.njit(f) if compiled else f
    report = checked(own, x, **as_form(form, matrix))
    assert report.verdict == "PASS"
    assert report.calls["f"] == 8 * N + 2
    matrix[190, 1] = 0.5
    report = checked(own, x, **as_form(form, matrix))
    assert report.counts["FAIL"] + report.counts["INCONCLUSIVE"] == 1
    assert (report.worst.output_index, report.worst.input_index) == ((190,), (1,))


@pytest.mark.parametrize("form", ["jac", "vjp", "jvp"])
@pytest.mark.parametrize("distance", [100, -100])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_all_stretches_count_for_the_size_of_a_column(kind, distance, form):
    """Beside the largest entry, in another stretch, what a small one is off by is nothing."""

    def f(x):
        return x + 1e-9 * np.sin(np.roll(x, distance))

    x = point()
    matrix = np.eye(N) + 1e-9 * np.roll(np.diag(np.cos(x)), distance, axis=0)
    given = as_form(form, matrix)
    report = calipers.gradcheck(numba.njit(f) if kind == "compiled" else f, x, **given)
    assert report.calls["f"] <= 2 * N + 2


# Jacobians of a megabyte and more are kept without zeros

LARGE = 400


def large():
    x = point(LARGE)
    return x, jac_of(x)


def test_a_large_jacobian_is_kept_without_zeros():
    x, matrix = large()
    matrix[0, 1] = -0.0
    before = matrix.copy()
    kept = compact(matrix)
    assert isinstance(kept, Compact)
    assert len(kept.data) == LARGE
    assert np.array_equal(kept.toarray(), matrix)
    report = calipers.gradcheck(FUNCTIONS["compiled"], x, jac=lambda x: matrix)
    assert report.counts["PASS"] == LARGE**2
    assert np.array_equal(matrix, before)


def test_a_compact_matrix_is_the_matrix():
    random = np.random.default_rng(0)
    matrix = np.where(random.random((500, 300)) < 0.03, random.normal(size=(500, 300)), 0.0)
    kept = compact(matrix)
    assert isinstance(kept, Compact)
    v, w = random.normal(size=300), random.normal(size=500)
    np.testing.assert_allclose(kept @ v, matrix @ v, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(w @ kept, w @ matrix, rtol=1e-13, atol=1e-13)
    rows, columns = random.integers(0, 500, 2000), random.integers(0, 300, 2000)
    np.testing.assert_array_equal(kept[rows, columns], matrix[rows, columns])
    np.testing.assert_array_equal(kept.toarray(), matrix)
    last = np.array([499]), np.array([299])
    assert kept[last] == matrix[last]
    nothing = compact(np.zeros((500, 300)))
    assert (nothing[last], len(nothing.data)) == (0, 0)


PEAK_OF_JAC = """
import numba, numpy as np
import calipers
x = np.random.default_rng(0).uniform(0.6, 1, 3000)
square = numba.njit(lambda x: x * x)
def jac(x):
    matrix = np.empty((len(x), len(x)))
    matrix[:] = 0  # all of its pages
    np.fill_diagonal(matrix, 2 * x)
    return matrix
calipers.gradcheck(square, x[:400], jac=jac)
before = peak()
assert calipers.gradcheck(square, x, jac=jac)
print(peak() - before)
"""


def test_one_large_jacobian_is_there_at_a_time():
    """It takes 72 MB."""
    command = [sys.executable, "-c", PEAK + PEAK_OF_JAC]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100e6


@pytest.mark.parametrize("number", [1e-3, np.nan, np.inf])
@pytest.mark.parametrize("place", [(0, 0), (0, 399), (399, 0), (17, 300), (399, 399)])
def test_a_wrong_entry_of_a_large_jacobian_is_named(place, number):
    x, matrix = large()
    matrix[place] = number
    report = checked(FUNCTIONS["compiled"], x, jac=lambda x: matrix)
    assert (report.verdict, report.counts["FAIL"]) == ("FAIL", 1)
    assert (*report.worst.output_index, *report.worst.input_index) == place


def test_a_large_jacobian_that_is_hardly_sparse_is_as_right():
    x = point(LARGE)
    random = np.random.default_rng(0)
    for share in (0.05, 0.07, 0.5):  # 1/16 is the limit
        matrix = np.where(random.random((LARGE, LARGE)) < share, 1.0, 0.0)
        f = numba.njit(lambda x, matrix=matrix: matrix @ x)
        assert calipers.gradcheck(f, x, jac=lambda x, matrix=matrix: matrix)
        wrong = matrix.copy()
        wrong[399, 5] += 1e-4
        report = checked(f, x, jac=lambda x, wrong=wrong: wrong)
        assert report.counts["FAIL"] == 1
        assert (report.worst.output_index, report.worst.input_index) == ((399,), (5,))


@pytest.mark.parametrize(
    ("one", "other"),
    [("diagonal", "longer"), ("longer", "moved"), ("diagonal", "dense"), ("dense", "diagonal")],
)
def test_a_large_jacobian_is_asked_twice_for_the_same(one, other):
    x, matrix = large()
    longer, moved, dense = (matrix.copy() for _ in range(3))
    longer[3, 9] = 0.25
    moved[3, 3], moved[4, 3] = 0.0, matrix[3, 3]
    dense += 0.5
    forms = {"diagonal": matrix, "longer": longer, "moved": moved, "dense": dense}
    answers = itertools.cycle([forms[one], forms[other]])
    report = checked(squares, x, jac=lambda x: next(answers))
    worst = np.abs(forms[one] - forms[other]).max()
    assert f"two calls with the same arguments differ by {worst:.3g}" in report.reason


@pytest.mark.parametrize("first", ["diagonal", "dense"])
def test_a_large_jacobian_that_is_written_over_is_not_reentrant(first):
    x, matrix = large()
    kept = np.zeros((LARGE, LARGE))
    answers = itertools.cycle([matrix, matrix + 1] if first == "diagonal" else [matrix + 1, matrix])

    def jac(x):
        kept[:] = next(answers)
        return kept

    assert "two calls with the same arguments differ by 1" in checked(squares, x, jac=jac).reason


@pytest.mark.parametrize("form", ["jvp", "vjp"])
def test_a_large_jacobian_and_another_form_are_of_one_matrix(form):
    x, matrix = large()
    other = as_form(form, matrix)
    assert calipers.gradcheck(squares, x, jac=lambda x: matrix, **other)
    wrong = matrix.copy()
    wrong[3, 9] = 0.1
    report = checked(squares, x, jac=lambda x: wrong, **other)
    assert any("are not derivatives of one function" in text for text in report.findings)
    assert report.counts["FAIL"] == 1


def test_a_large_jacobian_that_remembers_f_is_told_so():
    x, _ = large()
    last = []

    def f(x):
        last[:] = [x.copy()]
        return x * x

    report = checked(f, x, jac=lambda x: np.diag(2 * last[0]) + np.eye(LARGE, k=9))
    assert "jac depends on the last call of f" in str(report)

    def jac(x):
        return np.diag(2 * x) + (0.5 * np.eye(LARGE, k=1) if np.array_equal(last[0], x) else 0)

    assert "jac depends on the last call of f" in str(checked(f, x, jac=jac))


def test_a_large_jacobian_is_drawn_and_diagnosed():
    pytest.importorskip("matplotlib")
    x, matrix = large()
    report = checked(squares, x, jac=lambda x: 2 * matrix)
    assert "twice too large" in report.reason
    report.plot()


@pytest.mark.parametrize("shape", [(400, 900), (900, 400)])
def test_large_jacobians_need_not_be_square(shape):
    x = point(shape[1])
    matrix = np.zeros(shape)
    where = np.arange(min(shape))
    matrix[where[::-1], where] = 2.0
    assert calipers.gradcheck(lambda x: matrix @ x, x, jac=lambda x: matrix)
    wrong = matrix.copy()
    wrong[7, 11] = 1e-3
    report = checked(lambda x: matrix @ x, x, jac=lambda x: wrong)
    assert (report.worst.output_index, report.worst.input_index) == ((7,), (11,))


@pytest.mark.parametrize(
    ("dtype", "own"), [("f4", "f4"), ("c16", "c16"), ("f8", "g"), ("f8", ">f8")]
)
def test_large_jacobians_of_other_formats(dtype, own):
    x = (1 + point(LARGE)).astype(dtype)
    matrix = np.diag(2 * x).astype(own)
    matrix.flags.writeable = False
    assert calipers.gradcheck(squares, x, jac=lambda x: matrix)
    wrong = matrix.copy()
    wrong[7, 11] = 0.1
    report = checked(squares, x, jac=lambda x: wrong)
    assert {(*e.output_index, *e.input_index) for e in report.failures} == {(7, 11)}


def test_a_large_jacobian_by_products_alone():
    x, matrix = large()
    assert calipers.gradcheck(squares, x, jac=lambda x: matrix, fast_mode=True)
    wrong = matrix.copy()
    wrong[7, 11] = 0.1
    report = checked(squares, x, jac=lambda x: wrong, fast_mode=True)
    assert (report.worst.output_index, report.worst.input_index) == ((7,), (11,))


def test_a_large_hessian_that_is_mostly_0():
    def gradient(x, w):
        return w * 4 * x**3

    def f(x):
        return np.sum(x**4)

    x = point(LARGE)
    hessian = np.diag(12 * x**2)
    assert calipers.gradgradcheck(f, x, vjp=gradient, hess=lambda x: hessian)
    hessian[3, 9] = 0.1
    report = calipers.gradgradcheck(
        f, x, vjp=gradient, hess=lambda x: hessian, raise_exception=False
    )
    assert any("the Hessian is not symmetric: entries (3, 9)" in text for text in report.findings)


def test_rounding_excuses_entries_of_a_large_jacobian():
    """A sum of standard scores is 0 but for rounding: what its derivative shows is that."""
    x = 1e-3 * np.random.default_rng(0).standard_normal((200, 4))

    def scores(x):
        centred = x - x.mean(axis=1, keepdims=True)
        return (centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)).sum(axis=1)

    def jac(x):
        centred = x - x.mean(axis=1, keepdims=True)
        scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
        own = -(scale**3) * centred * centred.sum(axis=1, keepdims=True) / 4
        found = np.zeros((200, 200, 4))
        rows = np.arange(200)
        found[rows, rows] = own + scale - scale.mean(axis=1, keepdims=True)
        return found

    assert jac(x).nbytes > 1 << 20
    assert calipers.gradcheck(scores, x, jac=jac)


@pytest.mark.parametrize("size", [5, 400])
def test_blocks_in_fortran_order(size):
    random = np.random.default_rng(0)
    one, other = random.normal(size=(2, size, size))
    x, y = random.normal(size=(2, size))

    def f(x, y):
        return one.T @ x + other.T @ y

    assert calipers.gradcheck(f, (x, y), jac=lambda x, y: (one.T, other.T))


@pytest.mark.parametrize("n", [10, LARGE])
@pytest.mark.parametrize("first", ["array", "sparse"])
def test_now_an_array_and_now_a_sparse_matrix_is_not_reentrant(first, n):
    sparse = pytest.importorskip("scipy.sparse")
    x = point(n)
    turns = itertools.cycle(
        [np.diag, sparse.diags_array] if first == "array" else [sparse.diags_array, np.diag]
    )
    report = checked(squares, x, jac=lambda x: next(turns)(2 * x))
    assert "jac is not reentrant" in report.reason
