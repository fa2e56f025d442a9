"""gradcheck where Jacobians are mostly 0: what is something is judged, wherever it is."""

import itertools

import numba
import numpy as np
import pytest

import calipers

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
@pytest.mark.parametrize("form", ["jac", "jvp", "vjp"])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_an_entry_that_is_not_finite_is_not_right(kind, form, number):
    x = point()
    matrix = jac_of(x)
    matrix[130, 4] = number
    given = as_form(form, matrix)
    if form != "jac":  # NaN times 0 is all over the place
        with np.errstate(invalid="ignore"), pytest.raises(calipers.GradcheckError):
            calipers.gradcheck(FUNCTIONS[kind], x, **given)
        return
    report = checked(FUNCTIONS[kind], x, **given)
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


@pytest.mark.parametrize("compiled", [True, False])
def test_a_column_that_changes_farther_away_is_as_it_is_near(compiled):
    """Beside an entry that the first look leaves vague, by steps that are longer."""

    def f(x):
        y = 1e6 * np.sin(1e-2 * x)
        y[190] += 1e3 * max(abs(x[1] - 1.0) - 1e-3, 0.0)
        return y

    x = np.full(N, 1.0)
    matrix = np.diag(1e4 * np.cos(1e-2 * x))
    for form in ("jac", "vjp", "jvp"):
        report = checked(numba.njit(f) if compiled else f, x, **as_form(form, matrix))
        assert report.counts["FAIL"] == 0
        wrong = matrix.copy()
        wrong[190, 1] = 0.5
        report = checked(numba.njit(f) if compiled else f, x, **as_form(form, wrong))
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
    report = calipers.gradcheck(FUNCTIONS["compiled"], x, jac=lambda x: matrix)
    assert report.counts["PASS"] == LARGE**2
    assert np.array_equal(matrix, before)


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
    assert any("are not of one matrix" in text for text in report.findings)
    assert report.counts["FAIL"] == 1


def test_a_large_jacobian_that_remembers_f_is_told_so():
    x, _ = large()
    last = []

    def f(x):
        last[:] = [x.copy()]
        return x * x

    report = checked(f, x, jac=lambda x: np.diag(2 * last[0]) + np.eye(LARGE, k=9))
    assert "jac depends on what f was called with last" in str(report)


def test_a_large_jacobian_is_drawn_and_diagnosed():
    pytest.importorskip("matplotlib")
    x, matrix = large()
    report = checked(squares, x, jac=lambda x: 2 * matrix)
    assert "2 times what it should be" in str(report) or "twice" in str(report)
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
