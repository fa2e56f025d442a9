"""What gradcheck says a wrong derivative looks like: a factor, a transpose, a term left out."""

import numpy as np
import pytest

import calipers
from tests.data.gradcheck_functions import MATRIX, THREE, checked, sine_vjp

BLOCKS = {
    "opposite sign": lambda j: -j,
    "half": lambda j: j / 2,
    "zero": lambda j: 0 * j,
    "transpose": lambda j: j.T,
    "1.1 times": lambda j: 1.1 * j,
}


@pytest.mark.parametrize("text", BLOCKS)
def test_what_a_wrong_block_looks_like(text):
    a = np.array([[1.0, 2.0, 0.5], [0.0, 3.0, -1.0], [4.0, 1.0, 2.0]])
    report = calipers.gradcheck(
        lambda x: a @ x, np.ones(3), jac=lambda x: BLOCKS[text](a), raise_exception=False
    )
    assert text in " ".join(report.blocks)


def test_a_factor_is_told_by_what_it_differs_from_1():
    x = np.array([1.0, 3.0])
    for factor in (1.0005, 1.00002, 1.000123, 0.9995, 1.25, 2.01):
        report = calipers.gradcheck(
            np.square,
            x,
            jac=lambda x, factor=factor: np.diag(2 * x * factor),
            method="3-point",
            raise_exception=False,
        )
        assert f" {factor} times" in report.reason
    for factor, text in ((1 / 3, "0.3333"), (np.pi, "3.142")):
        report = checked(np.square, x, jac=lambda x, factor=factor: np.diag(2 * x * factor))
        assert f" {text} times" in report.reason


def test_one_number_is_no_multiple_of_what_it_should_be():
    report = checked(lambda x: x * x, 3.0, vjp=lambda x, w: 2.2 * x * w)
    assert report.verdict == "FAIL"
    assert not report.blocks
    assert "times what it should be" not in report.reason


def test_one_small_error_is_given_no_form():
    for wrong in ([1.0001, 1, 1], [1, 1 + 1e-5, 1]):
        report = checked(np.sin, THREE, vjp=lambda x, w, wrong=wrong: sine_vjp(x, w) * wrong)
        assert report.counts["FAIL"] == 1
        assert not report.blocks, report.blocks
    report = checked(np.sin, THREE, vjp=lambda x, w: 1.0001 * sine_vjp(x, w))
    assert "the whole block is 1.0001 times what it should be" in report.reason
    third = checked(np.sin, THREE, vjp=lambda x, w: sine_vjp(x, w) / 3)
    assert "mean" not in third.reason


OTHER, THIRD = MATRIX[::-1] + 0.5, MATRIX**2 - 1


@pytest.mark.parametrize(
    ("claimed", "text"),
    [
        ((OTHER, MATRIX), "it is d out[1] / d in[0]: the two are swapped"),
        ((OTHER, OTHER), "it is d out[1] / d in[0]"),
        ((THIRD, OTHER), None),
        ((THIRD, MATRIX), None),  # what output 1 has, output 0 lacks
    ],
)
def test_swapped_outputs_are_named(claimed, text):
    report = checked(lambda x: (MATRIX @ x, OTHER @ x), THREE, jac=lambda x: claimed)
    first = [block for block in report.blocks if block.startswith("jac, d out[0] /")]
    assert first == ([] if text is None else [f"jac, d out[0] / d in[0]: {text}"])


def test_outputs_of_the_same_derivative_are_not_swapped():
    report = checked(lambda x: (MATRIX @ x, MATRIX @ x + 1), THREE, jac=lambda x: (THIRD, MATRIX))
    assert report.counts["FAIL"] > 3
    assert not report.blocks


@pytest.mark.parametrize(
    ("claimed", "text"),
    [
        ((OTHER, MATRIX), "it is d out[0] / d in[1]: the two are swapped"),
        ((OTHER, OTHER), "it is d out[0] / d in[1]"),
        ((THIRD, OTHER), None),
        ((THIRD, MATRIX), None),
    ],
)
def test_swapped_inputs_are_named(claimed, text):
    report = checked(
        lambda x, y: MATRIX @ x + OTHER @ y, (THREE, THREE + 1), jac=lambda x, y: claimed
    )
    first = [block for block in report.blocks if block.startswith("jac, d out[0] / d in[0]:")]
    assert first == ([] if text is None else [f"jac, d out[0] / d in[0]: {text}"])


def test_inputs_of_other_shapes_are_not_swapped():
    report = checked(
        lambda x, y: (MATRIX[:, :2] * x).sum(axis=1) + OTHER[:, :2] @ y[0],
        (THREE[:2], np.ones((1, 2))),
        jac=lambda x, y: (OTHER[:, :2], MATRIX[:, None, :2]),
    )
    assert report.counts["FAIL"] > 6
    assert not report.blocks


def test_a_swap_is_found_among_others():
    """An output of another length, a complex input, and a third one of the same shape."""
    report = checked(
        lambda x: (THIRD[:2] @ x, MATRIX @ x, OTHER @ x),
        THREE,
        jac=lambda x: (THIRD[:2], OTHER, MATRIX),
    )
    assert report.reason.endswith("it is d out[2] / d in[0]: the two are swapped")
    report = checked(
        lambda x, z, y: MATRIX @ x + (THIRD @ z).real + OTHER @ y,
        (THREE, THREE + 1j, THREE + 1),
        vjp=lambda x, z, y, w: (OTHER.T @ w, THIRD.T @ w, MATRIX.T @ w),
    )
    assert {text.partition(": ")[2] for text in report.blocks} == {
        f"it is d out[0] / d in[{k}]: the two are swapped" for k in (0, 2)
    }


@pytest.mark.parametrize("of", ["output", "input"])
def test_one_small_error_is_no_swap_with_what_has_the_same_derivative(of):
    wrong = MATRIX + np.outer([0, 1e-4, 0], [1, 0, 0])
    if of == "output":
        f, x = lambda x: (MATRIX @ x, MATRIX @ x + 1), THREE
    else:
        f, x = lambda x, y: MATRIX @ (x + y), (THREE, THREE + 1)
    report = checked(f, x, jac=lambda *x: (wrong, MATRIX))
    assert report.counts["FAIL"] == 1
    assert not report.blocks


def test_what_is_near_another_form_has_none():
    near = 1 + 0.01 * np.cos(np.arange(9.0)).reshape(3, 3)
    for claimed in (MATRIX.T * near, OTHER * near, 2 * MATRIX * near):
        report = checked(
            lambda x: (MATRIX @ x, OTHER @ x), THREE, jac=lambda x, j=claimed: (j, OTHER)
        )
        assert report.verdict == "FAIL"
        assert not report.blocks


def test_forms_are_told_beside_rounding_of_single_precision():
    single = MATRIX.astype(np.float32)
    x = THREE.astype(np.float32)

    def layer(x):
        return np.exp(single @ np.tanh(x))

    def jacobian(x):
        inner = MATRIX @ np.tanh(x.astype(float))
        return np.exp(inner)[:, None] * MATRIX / np.cosh(x.astype(float)) ** 2

    for text, change in (("twice too large", 2), ("of the opposite sign", -1)):
        report = checked(layer, x, jac=lambda x, c=change: c * jacobian(x))
        assert f"the whole block is {text}" in report.reason
    report = checked(layer, x, jac=lambda x: jacobian(x).T)
    assert "the transpose of the right one" in report.reason


def test_what_is_not_called_wrong_is_given_no_form():
    """Where f has a kink its slopes' mean, of which 1 is twice as much, is no derivative."""
    report = checked(lambda x: np.maximum(x, 0), np.zeros(2), vjp=lambda x, w: w)
    assert report.verdict == "NONSMOOTH"
    assert not report.blocks


@pytest.mark.parametrize("factors", [2.0, np.array([1.0, 0.0])])
def test_products_know_no_form_where_another_input_is_looked_at_as_a_whole(factors):
    report = checked(
        lambda x, y: (np.sin(x), np.abs(y)),
        (np.array([0.5, 1.0]), np.array([0.0, 1.0])),
        vjp=lambda x, y, w: (factors * w[0] * np.cos(x), w[1] * np.sign(y)),
        fast_mode=True,
    )
    assert {entry.input for entry in report.failures if entry.verdict == "FAIL"} == {0}
    assert not report.blocks


def test_numbers_that_are_not_finite_are_given_no_form():
    for number in (np.nan, np.inf):
        wrong = MATRIX.copy()
        wrong[1] = number
        report = checked(lambda x: MATRIX @ x, THREE, jac=lambda x, wrong=wrong: wrong)
        assert report.verdict == "FAIL"
        assert not report.blocks
    report = checked(
        lambda x: np.array([x.sum(), np.nan]), THREE, jac=lambda x: np.zeros((2, len(x)))
    )
    assert report.verdict == "FAIL"


def test_a_factor_beyond_the_range_of_numbers_is_not_told():
    report = checked(lambda x: 1e-20 * x, 3.0, jac=lambda x: 1e300)
    assert report.verdict == "FAIL"
    assert "times" not in report.reason
    report = checked(lambda x: 1e-20 * (MATRIX + 2) @ x, THREE, jac=lambda x: 1e300 * (MATRIX + 2))
    assert report.verdict == "FAIL"
    assert "times" not in report.reason


def test_an_output_is_not_swapped_with_itself():
    right, wrong = (
        MATRIX * (MATRIX != 0.25) + np.outer([0, size, 0], [1, 0, 0]) for size in (0, 1e-3)
    )
    report = checked(
        lambda x: (right @ x, np.sin(x)), THREE, jac=lambda x: (wrong, np.diag(np.cos(x)))
    )
    assert report.counts["FAIL"] == 1
    assert not report.blocks


Z = np.array([1 + 2j, 0.5 - 1j])
COMPLEX = np.array([[1 + 1j, 2.0], [0.5j, 1 - 3j]])
REAL_TO_COMPLEX = np.array([[1 + 1j, 2.0, 1j], [0.5j, 1 - 3j, 2.0]])
CONJUGATE = "it is the conjugate of the right one"
CONJUGATES = {
    # name: f, its input, what is given in the convention of torch, and what is said of that
    "vjp": (lambda z: COMPLEX @ z, Z, {"vjp": lambda z, w: COMPLEX.T @ w}, CONJUGATE),
    "jvp": (lambda z: COMPLEX @ z, Z, {"jvp": lambda z, v: COMPLEX.conj() @ v}, CONJUGATE),
    "jac": (lambda z: COMPLEX @ z, Z, {"jac": lambda z: COMPLEX.conj()}, CONJUGATE),
    "diagonal": (np.square, Z, {"vjp": lambda z, w: 2 * z * w}, CONJUGATE),
    "vjp of real input": (
        lambda x: REAL_TO_COMPLEX @ x,
        THREE,
        {"vjp": lambda x, w: (REAL_TO_COMPLEX.T @ w).real},
        CONJUGATE,
    ),
    "jvp of real input": (
        lambda x: REAL_TO_COMPLEX @ x,
        THREE,
        {"jvp": lambda x, v: (REAL_TO_COMPLEX @ v).conj()},
        CONJUGATE,
    ),
    "vjp of real output": (
        lambda z: (z * z.conj()).real,
        Z,
        {"vjp": lambda z, w: 2 * w * z.conj()},
        CONJUGATE,
    ),
    "jac of real output": (
        lambda z: (z * z.conj()).real.sum(),
        Z,
        {"jac": lambda z: 2 * z.conj()},
        CONJUGATE,
    ),
    "jvp of real output": (
        lambda z: (z * z.conj()).real,
        Z,
        {"jvp": lambda z, v: 2 * (z * v).real},
        CONJUGATE,
    ),
    "result of jvp": (
        lambda z: COMPLEX @ z,
        Z,
        {"jvp": lambda z, v: (COMPLEX @ v).conj()},
        "it is d conj(out[0]) / d in[0]",
    ),
    "tangent": (
        lambda z: COMPLEX @ z,
        Z,
        {"jvp": lambda z, v: COMPLEX @ v.conj()},
        "it is d out[0] / d conj(in[0])",
    ),
    "result of vjp": (
        lambda z: COMPLEX @ z,
        Z,
        {"vjp": lambda z, w: (COMPLEX.conj().T @ w).conj()},
        "it is d out[0] / d conj(in[0])",
    ),
}


@pytest.mark.parametrize("name", CONJUGATES)
def test_the_conjugate_is_named(name):
    f, z, given, text = CONJUGATES[name]
    report = checked(f, z, **given)
    assert report.verdict == "FAIL"
    told = report.blocks[0].partition(": ")[2]
    assert told.partition(",")[0] == text
    # The other convention= is named where it is all that is wrong.
    assert ("other convention=" in told) == bool(checked(f, z, convention="jax", **given))


# Axes that are swapped.

SQUARE = MATRIX + 4 * np.eye(3)
LAST_TWO = "it is right if the last two axes of {}[0] are swapped"
TURNED = {
    "it is the transpose of the right one": (
        lambda x: MATRIX @ x,
        THREE,
        lambda x, w: MATRIX @ w,
    ),
    LAST_TWO.format("in"): (
        lambda m: MATRIX[:, :2].T @ m,
        SQUARE,
        lambda m, w: (MATRIX[:, :2] @ w).T,
    ),
    LAST_TWO.format("out"): (
        lambda x: np.multiply.outer(x, MATRIX),
        THREE[:2],
        lambda x, w: (w * MATRIX.T).sum(axis=(1, 2)),
    ),
}


@pytest.mark.parametrize("text", TURNED)
def test_a_transposed_matrix_is_named(text):
    f, x, vjp = TURNED[text]
    report = checked(f, x, vjp=vjp)
    assert [block.partition(": ")[2] for block in report.blocks] == [text]


STAY = (
    "as if the matrix stayed symmetric: gradcheck perturbs one element at a time, so make f take "
    "the symmetric part first"
)
SYMMETRIC = np.array([[3.0, 0.5, -0.3], [0.5, 2.0, 0.7], [-0.3, 0.7, 1.5]])


def of_eigenvalues(m, w):
    vectors = np.linalg.eigh(m)[1]
    return vectors * w @ vectors.conj().T


def lower(g):
    return np.tril(g) + np.tril(g, -1)


FOR_SYMMETRIC = {
    "LAPACK reads one triangle": (
        np.linalg.eigvalsh,
        of_eigenvalues,
        lower,
        "it is the symmetric part over the last two axes of in[0]",
    ),
    "pairs counted": (
        lambda m: np.linalg.slogdet(m)[1],
        lambda m, w: w * (2 * np.linalg.inv(m) - np.diag(np.diag(np.linalg.inv(m)))),
        lambda g: (g + np.diag(np.diag(g))) / 2,
        "it counts off-diagonal elements of the last two axes of in[0] twice",
    ),
}


@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e6])
@pytest.mark.parametrize("name", FOR_SYMMETRIC)
def test_a_gradient_by_symmetric_matrices_is_named(name, scale):
    """Of these nothing was said, or that a column is twice too large."""
    f, meant, right, text = FOR_SYMMETRIC[name]
    report = checked(f, scale * SYMMETRIC, vjp=meant)
    assert report.verdict == "FAIL"
    assert report.reason.endswith(f"{text}, {STAY}")
    assert checked(f, scale * SYMMETRIC, vjp=lambda m, w: right(meant(m, w)))


def test_a_gradient_by_hermitian_matrices_is_named():
    report = checked(np.linalg.eigvalsh, SYMMETRIC + 0.4j * np.tri(3, 3, -1), vjp=of_eigenvalues)
    assert report.verdict == "FAIL"
    assert "it is the Hermitian part over the last two axes of in[0]" in report.reason


@pytest.mark.parametrize("triangle", ["upper", "lower"])
@pytest.mark.parametrize("dtype", [float, np.float32])
def test_a_gradient_of_both_triangles_where_f_reads_one_is_named(triangle, dtype):
    """Of this nothing was said: analytic -0.031, numerical 0."""
    fold = {"upper": np.triu, "lower": np.tril}[triangle]
    m = SYMMETRIC.astype(dtype)

    def solved(m, w):
        whole = fold(m) + fold(m, 1 if triangle == "upper" else -1).T
        return np.linalg.solve(whole, w)

    def vjp(m, w):
        return -np.outer(solved(m, w), solved(m, THREE.astype(dtype)))

    report = checked(lambda m: solved(m, THREE.astype(dtype)), m, vjp=vjp)
    assert f"f reads only the {triangle} triangle of the last two axes of in[0]" in report.reason
    half = checked(lambda m: solved(m, THREE.astype(dtype)), m, vjp=lambda m, w: 2 * vjp(m, w))
    assert "triangle" not in half.reason


def test_a_triangle_that_is_wrong_elsewhere_has_no_such_name():
    def vjp(m, w):
        return 1.5 * np.tri(3) * w + np.eye(3)

    assert "triangle" not in checked(lambda m: np.triu(m).sum(), SYMMETRIC, vjp=vjp).reason


def test_wrong_gradients_by_symmetric_matrices_have_no_such_name():
    def vjp(m, w):
        return np.array([[1, 1.1, 1], [1.2, 1, 1], [1, 1, 1]]) * of_eigenvalues(m, w)

    assert STAY not in checked(np.linalg.eigvalsh, SYMMETRIC, vjp=vjp).reason
    numbers = checked(lambda x: np.sum(x**2), np.arange(1.0, 4), vjp=lambda x, w: w * x**3)
    assert STAY not in numbers.reason
    oblong = np.linspace(0.5, 2, 6).reshape(2, 3)
    assert STAY not in checked(lambda m: np.sum(m**3), oblong, vjp=lambda m, w: w * m).reason


def test_an_oblong_matrix_has_no_axes_to_be_swapped():
    oblong = np.linspace(0.5, 2, 6).reshape(2, 3)
    report = checked(
        lambda m: np.sum(m**3), oblong, vjp=lambda m, w: 3 * w * (m**2).T.reshape(m.shape)
    )
    assert report.verdict == "FAIL"
    assert not report.blocks


def test_a_transposed_gradient_of_a_number_is_named():
    def determinant(m):
        return np.linalg.det(m)

    report = checked(determinant, SQUARE, vjp=lambda m, w: w * np.linalg.det(m) * np.linalg.inv(m))
    assert report.reason.endswith(LAST_TWO.format("in"))
    stacked = np.array([SQUARE, SQUARE.T - 1]) * (1 + 0.5j)
    report = checked(
        determinant,
        stacked,
        vjp=lambda m, w: (
            w[:, None, None] * np.linalg.det(m)[:, None, None].conj() * np.linalg.inv(m).conj()
        ),
    )
    assert report.reason.endswith(LAST_TWO.format("in"))


# What is missing.

TERMS = np.array([[1.0, 2.0, 0.5, 1.0], [0.1, 3.0, -1.0, 2.0], [4.0, 1.0, 2.0, 0.3], [1, 1, 2, 3]])

MISSING = {
    # A softmax without the sum over its elements.
    "the error has rank 1 of 4": TERMS - np.outer([1.0, 2.0, 0.5, 3.0], [0.2, 1.0, 2.0, 0.7]),
    "0.25 is missing in every entry": TERMS - 0.25,
    "a term on the diagonal": TERMS - np.diag([1.0, 2.0, 0.25, 3.0]),
    "the nonzero entries are right, and 6 of 16 are missing": np.tril(TERMS),
}


@pytest.mark.parametrize("text", MISSING)
def test_a_missing_term_is_named(text):
    report = calipers.gradcheck(
        lambda x: TERMS @ x, np.ones(4), jac=lambda x: MISSING[text], raise_exception=False
    )
    assert text in " ".join(report.blocks)
    assert text in report.reason


def test_a_term_that_is_missing_in_each_row_of_a_batch_is_named():
    def softmax(x):
        e = np.exp(x)
        return e / e.sum(axis=1, keepdims=True)

    x = np.linspace(-1, 1, 15).reshape(3, 5) ** 3
    report = calipers.gradcheck(softmax, x, vjp=lambda x, w: softmax(x) * w, raise_exception=False)
    assert "the error has rank 3 of 15: a mean or sum term is probably missing" in report.reason


def test_a_constant_is_named_in_a_gradient_of_one_number():
    report = checked(lambda x: np.sum(x**2), THREE, vjp=lambda x, w: w * (2 * x + 0.5))
    assert report.reason.endswith("-0.5 is missing in every entry: a constant term")
    off = np.array([0.5, 0.51, 0.5])
    report = checked(lambda x: np.sum(x**2), THREE, vjp=lambda x, w: w * (2 * x + off))
    assert not report.blocks


def test_a_diagonal_is_named_where_rows_and_columns_are_as_many():
    for rows, count in ((2, 2), (4, 4), (4, 3)):
        right = TERMS[:rows, :count]
        wrong = right + np.eye(rows, count) * [0.5, 0.25, 0.125, 1][:count]
        report = checked(
            lambda x, right=right: right @ x, np.ones(count), jac=lambda x, wrong=wrong: wrong
        )
        assert ("a term on the diagonal" in report.reason) == (rows == count)


@pytest.mark.parametrize(
    ("shape", "rank", "told"),
    [((3, 3), 1, True), ((4, 7), 1, True), ((5, 5), 2, False), ((6, 7), 2, False)]
    + [((7, 7), 2, True), ((9, 7), 2, True)],
)
def test_a_low_rank_is_told_where_it_is_no_chance(shape, rank, told):
    random = np.random.default_rng(7)
    right = random.standard_normal(shape)
    term = random.standard_normal((shape[0], rank)) @ random.standard_normal((rank, shape[1]))
    report = checked(lambda x: right @ x, np.ones(shape[1]), jac=lambda x: right - term)
    text = f"the error has rank {rank} of {min(shape)}:"
    assert (text in report.reason) == told
    assert bool(report.blocks) == told


def test_errors_of_no_form_are_given_no_name():
    random = np.random.default_rng(0).standard_normal((4, 4))
    report = calipers.gradcheck(
        lambda x: TERMS @ x, np.ones(4), jac=lambda x: TERMS + random, raise_exception=False
    )
    assert not report.blocks
    assert report.counts["FAIL"] == 16


@pytest.mark.parametrize(
    ("axis", "name"), [(0, "d out[1][1] / d in[0]"), (1, "d out[1] / d in[0][1]")]
)
@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (2, "twice too large"),
        (0.5, "half of what it should be"),
        (-1, "of the opposite sign"),
        (1.25, "1.25 times what it should be"),
    ],
)
def test_a_factor_of_one_row_or_column_is_told(axis, name, factor, text):
    factors = np.expand_dims([1.0, factor, 1.0], 1 - axis)
    report = checked(
        lambda x: (np.sin(x), MATRIX @ x),
        THREE,
        jac=lambda x: (np.diag(np.cos(x)), factors * MATRIX),
    )
    assert report.counts["FAIL"] == 3
    assert report.reason.endswith(f"; all of {name} is {text}")
    assert not report.blocks


@pytest.mark.parametrize("where", [(1, 1), (1, slice(None)), (slice(None), 1)])
def test_one_wrong_row_or_column_is_no_missing_term(where):
    wrong = MATRIX.copy()
    wrong[where] += 0.5
    report = checked(lambda x: MATRIX @ x, THREE, jac=lambda x: wrong)
    assert report.verdict == "FAIL"
    assert not report.blocks


# Sums and means.

REDUCTIONS = {
    "not summed over all broadcast axes": lambda w: w[-1],
    "a mean over an axis of length 5 instead of a sum": lambda w: w.mean(axis=0),
    "sum it over the broadcast axes": lambda w: w,
}


@pytest.mark.parametrize("text", REDUCTIONS)
def test_a_wrong_reduction_of_a_broadcast_input_is_named(text):
    x, b = np.linspace(0, 1, 15).reshape(5, 3), np.array([0.5, 1.0, 2.0])

    def check(reduction):
        vjp = lambda x, b, w: (w, reduction(w))  # noqa: E731
        return calipers.gradcheck(np.add, (x, b), vjp=vjp, raise_exception=False)

    report = check(REDUCTIONS[text])
    assert report.verdict == "FAIL"
    assert text in report.reason
    assert check(lambda w: w.sum(axis=0))


def test_a_mean_over_several_axes_is_named():
    x, b = np.linspace(0, 1, 60).reshape(5, 4, 3), np.array([0.5, 1.0, 2.0])
    report = checked(np.add, (x, b), vjp=lambda x, b, w: (w, w.mean(axis=(0, 1))))
    assert "a mean over an axis of length 20 instead of a sum" in report.reason


def test_a_mean_over_some_of_several_axes_is_named():
    x, b = np.linspace(0, 1, 60).reshape(5, 4, 3), np.array([0.5, 1.0, 2.0])
    report = checked(np.add, (x, b), vjp=lambda x, b, w: (w, w.mean(axis=0).sum(axis=0)))
    assert "a mean over an axis of length 5 instead of a sum" in report.reason


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_mean_over_all_elements_is_named(scale):
    """As of a loss, whose gradient lacks a division: it was only "12 times what it should be"."""
    x = scale * np.linspace(0.5, 2, 12).reshape(4, 3)
    text = "an axis of length 12 instead of a {}"
    report = checked(lambda x: np.mean(x**2), x, vjp=lambda x, w: w * 2 * x)
    assert text.format("mean") in report.reason
    report = checked(lambda x: np.sum(x**2), x, vjp=lambda x, w: w * 2 * x / 12)
    assert text.format("sum") in report.reason


def test_other_factors_are_no_lengths_of_axes():
    x, b = np.linspace(0, 1, 15).reshape(5, 3), np.array([0.5, 1.0, 2.0])
    for factor in (0.206, 0.97 * 5, 7):
        report = checked(
            np.add, (x, b), vjp=lambda x, b, w, factor=factor: (w, factor * w.sum(axis=0))
        )
        assert report.reason.endswith(f" {factor:.4g} times what it should be")
    # A term that counts twice is commoner than a mean of two numbers.
    two = checked(lambda x: np.sum(np.sin(x)), THREE[:2], vjp=lambda x, w: 2 * w * np.cos(x))
    assert two.reason.endswith("twice too large")


NOT_BROADCAST = {
    "as many": (np.arange(4.0), lambda x: TERMS @ x, lambda x: np.diag(np.diag(TERMS))),
    "shapes do not broadcast": (
        np.arange(2.0),
        lambda x: MATRIX[:, :2] @ x,
        lambda x: MATRIX[:, :2] * [[1], [0], [0]],
    ),
    "to another shape": (
        np.array([[1.0], [2.0]]),
        lambda x: (MATRIX[:, :2] @ x).T,
        lambda x: MATRIX[:, :2] * [[1], [0], [0]],
    ),
    "unevenly": (
        np.arange(2.0),
        lambda x: np.ones((4, 1)) * x,
        lambda x: np.array([[1, 0], [0, 1.0], [1, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]]),
    ),
}


@pytest.mark.parametrize("name", NOT_BROADCAST)
def test_other_missing_entries_are_no_broadcast(name):
    x, f, jac = NOT_BROADCAST[name]
    report = checked(f, x, jac=jac)
    assert "the nonzero entries are right, and" in report.reason
    assert "broadcast" not in report.reason


def test_entries_that_are_missing_unevenly_are_no_broadcast():
    x, b = np.linspace(0, 1, 15).reshape(5, 3), np.array([0.5, 1.0, 2.0])

    def vjp(x, b, w):
        g = w.sum(axis=0)
        g[0] = w[0, 0]
        return w, g

    reason = checked(np.add, (x, b), vjp=vjp).reason
    assert "the nonzero entries are right, and 4 of 15 are missing" in reason
    assert "broadcast" not in reason


def test_a_sum_where_a_mean_belongs_is_named():
    report = calipers.gradcheck(
        np.mean, np.linspace(0, 1, 6), vjp=lambda x, w: w * np.ones(6), raise_exception=False
    )
    assert "a sum over an axis of length 6 instead of a mean" in " ".join(report.blocks)


def test_a_factor_of_others_is_not_told_of_the_worst_entry():
    """x**4 / (1 + x**4) with an exponent wrong was "half of what it should be" at 2e-13 of 2e-7."""
    a = np.diag([1.0, 2.0, 3.0, 1e-7])
    wrong = np.diag([0.5, 1.0, 1.5, 1e-13])
    report = checked(lambda x: a @ x, np.ones(4), jac=lambda x: wrong)
    assert report.worst.analytic == 1e-13
    assert "half" not in str(report)
    missing = np.diag([1.0, 2.0, 0.0, 1e-8])
    report = checked(lambda x: a @ x, np.ones(4), jac=lambda x: missing)
    worst_is_zero = report.worst.analytic == 0
    assert ("are missing" in report.reason) == worst_is_zero


def test_entries_are_not_only_missing_where_the_worst_is_there():
    a, wrong = np.diag([1.0, 2.0, 3.0, 1e-7]), np.diag([1.0, 2.0, 0.0, 1e-3])
    report = checked(lambda x: a @ x, np.ones(4), jac=lambda x: wrong)
    assert report.worst.analytic == 1e-3
    assert "missing" not in str(report)


def test_a_diagonal_block_is_not_right_but_for_its_diagonal():
    report = checked(np.sin, THREE, jac=lambda x: np.diag(np.cos(x) + 0.1))
    assert "diagonal" not in str(report)


class Tanh:
    """A layer whose backward takes what forward has kept."""

    def forward(self, x):
        self.x = x.copy()
        return np.tanh(x)

    def backward(self, w):
        return w * (1 - np.tanh(self.x) ** 2)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_what_depends_on_the_last_call_of_f_is_told(fast_mode):
    layer = Tanh()
    report = checked(layer.forward, THREE, vjp=lambda x, w: layer.backward(w), fast_mode=fast_mode)
    assert report.verdict == "FAIL"
    assert "vjp depends on the last call of f" in report.reason

    def vjp(x, w):
        layer.forward(x)
        return layer.backward(w)

    assert checked(layer.forward, THREE, vjp=vjp, fast_mode=fast_mode)


@pytest.mark.parametrize("shape", [(1,), (7,), (2, 3)])
@pytest.mark.parametrize("fast_mode", [False, True])
def test_what_depends_on_a_last_call_of_f_that_was_near_x_is_told(fast_mode, shape):
    """The entries were asked for while f had been called at x, and are right."""
    layer = Tanh()
    x = np.linspace(0.25, 1, np.prod(shape)).reshape(shape)
    report = checked(layer.forward, x, vjp=lambda x, w: layer.backward(w), fast_mode=fast_mode)
    assert "vjp depends on the last call of f" in report.reason


@pytest.mark.parametrize("fast_mode", [False, True])
def test_a_derivative_that_varies_less_than_nondet_tol_allows_depends_on_nothing(fast_mode):
    random = np.random.default_rng(0)

    def vjp(x, w):
        return w * np.cos(x) + random.uniform(-1e-9, 1e-9, x.shape)

    report = checked(np.sin, THREE, vjp=vjp, nondet_tol=1e-8, fast_mode=fast_mode)
    assert not report.findings
    assert report or fast_mode  # which may take the noise for wrong zeros
