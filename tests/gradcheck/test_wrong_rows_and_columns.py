"""What gradcheck says of rows and columns: their order, their factors, and the axes they mix."""

import numpy as np
import pytest

from tests.data.gradcheck_functions import MATRIX, THREE, checked

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((3, 4))
LONG = RANDOM.standard_normal(6) + 3


def block(report):
    """Return what is said of the only block that is said something of."""
    (text,) = report.blocks
    assert text.partition(": ")[2] in report.reason
    return text.partition(": ")[2]


# Factors for each row or column.

OF_VALUES = {
    "times in[1][k]": lambda x, p, w: w * x,
    "divided by in[1][k]": lambda x, p, w: w * x / p**2,
    "times exp(in[1][k])": lambda x, p, w: w * x / p * np.exp(p),
    "divided by exp(in[1][k])": lambda x, p, w: w * x / p * np.exp(-p),
}


@pytest.mark.parametrize("text", OF_VALUES)
def test_a_factor_that_is_the_input_is_named(text):
    vjp = lambda x, p, w: (w * np.log(p), OF_VALUES[text](x, p, w))  # noqa: E731
    report = checked(lambda x, p: x * np.log(p), (LONG, LONG[::-1] / 3), vjp=vjp)
    assert block(report) == f"d out[0] / d in[1][k] is the right one {text}, for each index k"


def test_a_factor_that_is_the_output_is_named():
    f = lambda x: np.exp(MATRIX @ x)  # noqa: E731
    report = checked(f, THREE / 4, jac=lambda x: MATRIX)
    assert (
        block(report)
        == "d out[0][k] / d in[0] is the right one divided by out[0][k], for each index k"
    )


def test_factors_of_a_gradient_that_are_others_are_not_named():
    for factor in (LONG + 0.1, LONG**2, RANDOM.standard_normal(6)):
        vjp = lambda x, w, factor=factor: w * 2 * x * factor  # noqa: E731
        assert not checked(lambda x: np.sum(x**2), LONG, vjp=vjp).blocks
    # Of two numbers, or such as are nearly alike, each factor might be some power of them.
    two = checked(lambda x: np.sum(x**2), LONG[:2], vjp=lambda x, w: w * 2 * x * x)
    assert not two.blocks
    near = 3 + 1e-4 * LONG
    near = checked(lambda x: np.sum(x**2), near, vjp=lambda x, w: w * 2 * x * x)
    assert "in[0][k]" not in block(near)


@pytest.mark.parametrize(("axis", "side"), [(0, "out"), (1, "in")])
def test_factors_of_rows_and_columns_are_named(axis, side):
    factors = np.expand_dims([1.0, 0.25, 3.0], 1 - axis)
    report = checked(lambda x: MATRIX @ x, THREE, jac=lambda x: factors * MATRIX)
    assert block(report) == (
        f"a factor that depends on the element of {side}[0] is missing or wrong (between 0.25 and "
        "3)"
    )


def test_one_entry_that_differs_has_no_factor_of_its_row():
    wrong = MATRIX * [[1.0], [0.25], [3.0]]
    wrong[1, 2] *= 1.1
    assert not checked(lambda x: MATRIX @ x, THREE, jac=lambda x: wrong).blocks


def test_a_row_is_no_multiple_where_its_small_entries_are_right():
    """Of Robertson's kinetics, a row with 0.04 and 0.2 beside an entry that lacks a factor."""
    right = np.array([[0.04, 2236.0, 0.2], [0.5, 0.2, 0.1]])
    wrong = right.copy()
    wrong[0, 1] = 1620
    report = checked(lambda x: right @ x, np.ones(3), jac=lambda x: wrong)
    assert report.counts["FAIL"] == 1
    assert "times what it should be" not in report.reason


def test_what_is_small_beside_a_wrong_diagonal_is_not_right():
    right = (MATRIX + 4) * 1e-9
    report = checked(lambda x: right @ x, np.ones(3), jac=lambda x: np.eye(3))
    assert "but its diagonal is right" not in report.reason


# The order of rows and columns.

ORDERS = {
    ": reversed along axis 1": lambda g: g[:, ::-1],
    ": shifted by one along axis 0": lambda g: np.roll(g, 1, axis=0),
    "": lambda g: g[:, [1, 3, 0, 2]],
}


@pytest.mark.parametrize("text", ORDERS)
def test_columns_in_another_order_are_named(text):
    vjp = lambda x, w: ORDERS[text](np.cumsum(w[:, ::-1], axis=1)[:, ::-1])  # noqa: E731
    report = checked(lambda x: np.cumsum(x, axis=1), ROWS, vjp=vjp)
    assert (
        block(report)
        == f"it has the right columns, one for each element of in[0], in a different order{text}"
    )


def test_rows_in_another_order_are_named():
    vjp = lambda x, w: ROWS.T @ w[::-1]  # noqa: E731
    report = checked(lambda x: ROWS @ x, LONG[:4], vjp=vjp)
    assert (
        block(report)
        == "it has the right rows, one for each element of out[0], in a different order: reversed"
    )


def test_an_inverted_mask_is_no_order():
    """A gradient of zeros and ones is another one in many orders."""
    x = np.array([1.0, -2.0, 3.0, -4.0])
    report = checked(lambda x: np.sum(np.maximum(x, 0)), x, vjp=lambda x, w: w * (x < 0))
    assert report.verdict == "FAIL"
    assert not report.blocks


# Axes.


def softmax(x, axis=1):
    e = np.exp(x)
    return e / e.sum(axis=axis, keepdims=True)


AXES = {
    "axis 0, and f along axis 1": lambda x, w, p: p * (w - (p * w).sum(axis=0)),
    "axis 0, which f does not": lambda x, w, p: p * (w - (p * w).sum()),
}


@pytest.mark.parametrize("text", AXES)
def test_the_axis_of_a_sum_is_named(text):
    vjp = lambda x, w: AXES[text](x, w, softmax(x))  # noqa: E731
    assert block(checked(softmax, ROWS, vjp=vjp)) == f"it mixes elements along {text}"


def test_the_axis_of_a_running_sum_is_named():
    vjp = lambda x, w: np.cumsum(w[::-1], axis=0)[::-1]  # noqa: E731
    report = checked(lambda x: np.cumsum(x, axis=1), ROWS, vjp=vjp)
    assert block(report) == "it mixes elements along axis 0, and f along axis 1"


def test_one_wrong_entry_is_no_other_axis():
    wrong = np.zeros((3, 4, 3, 4))
    wrong[0, 1, 2, 3] = 0.5

    def jac(x):
        p = softmax(x)
        inner = p[:, :, None] * (np.eye(4) - p[:, None, :])
        return np.einsum("bij,bc->bicj", inner, np.eye(3)) + wrong

    report = checked(softmax, ROWS, jac=jac)
    assert report.counts["FAIL"] == 1
    assert not report.blocks


# Places that repeat.

PLACES = np.array([0, 2, 2, 4, 0, 2])


def test_a_gradient_that_is_assigned_to_places_that_repeat_is_named():
    def vjp(table, w):
        gradient = np.zeros_like(table)
        gradient[PLACES] += w
        return gradient

    report = checked(
        lambda table: table[PLACES] * 2, np.ones((5, 3)), vjp=lambda t, w: 2 * vjp(t, w)
    )
    assert block(report) == (
        "the nonzero entries are right, and 9 of 18 are missing, as if the gradient were "
        "assigned, and not added, at repeated indices"
    )


def test_a_diagonal_is_no_assignment():
    report = checked(lambda x: np.cumsum(x[::-1])[::-1], LONG, vjp=lambda x, w: w)
    assert block(report) == "the nonzero entries are right, and 15 of 21 are missing"


def test_lines_of_complex_numbers_are_told_without_axes():
    z = ROWS + 1j
    order = [1, 3, 0, 2]
    vjp = lambda z, w: np.cumsum(w[:, ::-1], axis=1)[:, ::-1][:, order]  # noqa: E731
    report = checked(lambda z: np.cumsum(z, axis=1), z, vjp=vjp)
    assert (
        block(report)
        == "it has the right columns, one for each element of in[0], in a different order"
    )
