"""What users get wrong, and what they are told."""

from functools import partial

import numpy as np
import pytest

import calipers

X = np.array([1.0, 2.0, 3.0])
check = partial(calipers.gradcheck, np.sin, X)


def cosine(x, w):
    return w * np.cos(x)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: calipers.allclose(X, None), TypeError, "b must be an array of numbers, got None"),
        (lambda: calipers.allclose({1, 2}, X), TypeError, "a must be an array of numbers, got set"),
        (lambda: calipers.allclose(X, {"x": 1}), TypeError, "b must be an array of .*, got dict"),
        (lambda: calipers.first_nonfinite(["a"]), TypeError, "got list of dtype <U1"),
        (lambda: calipers.first_nonfinite(None), TypeError, "a must be an array of numbers"),
        (lambda: check(vjp=cosine, atol="1e-3"), ValueError, "atol must be a finite number"),
        (lambda: check(vjp=cosine, nondet_tol="0"), ValueError, "nondet_tol must be at least 0"),
        (lambda: check(vjp=cosine, allow="NONSMOOTH"), ValueError, "allow must be a sequence of"),
        (lambda: check(vjp=lambda x, w: None), AssertionError, "vjp returned None"),
        (lambda: check(jac=lambda x: None), AssertionError, "jac returned None"),
        (lambda: calipers.gradgradcheck(np.sin, X), ValueError, "gradgradcheck hess= or hvp="),
        (lambda: calipers.default_tolerance(), TypeError, "needs at least one dtype"),
        (lambda: calipers.recommend_tolerance("float32", "9"), ValueError, "reduction must be"),
        (lambda: calipers.recommend_tolerance("floaty"), ValueError, "dtype must be one of"),
        (
            lambda: calipers.growth(np.sin, np.sin, np.ones, 5),
            TypeError,
            "sizes must be a sequence",
        ),
        (
            lambda: calipers.compare(X, X, tolerance=(0, 0), rtol=1),
            ValueError,
            "beside rtol and atol",
        ),
        (lambda: calipers.jacobian(lambda x: (x, 1.0), X), TypeError, "must return one array, got"),
        (
            lambda: calipers.jacobian(np.sin, X[:2], bounds=[(0, 3), (0, 3)]),
            ValueError,
            r"list of tuples.*give \(lower, upper\)",
        ),
        (lambda: calipers.allclose(X, X, axis="x"), TypeError, "axis must be an int or a tuple"),
        (lambda: calipers.allclose(X, X, axis=0.5), TypeError, "axis must be an int .* got 0.5"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_sparse_arrays_are_not_compared_by_elements():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match=r"a is sparse.*pass a\.toarray\(\)"):
        calipers.allclose(sparse.eye_array(3), np.eye(3))
    for check in (calipers.compare, calipers.assert_close):
        with pytest.raises(TypeError, match=r"expected is sparse.*pass expected\.toarray\(\)"):
            check(np.eye(3), sparse.eye_array(3))


@pytest.mark.parametrize("dtype", ["f4", "single", np.float32, np.dtype(">f4")])
def test_formats_have_the_names_that_numpy_gives_them(dtype):
    expected = calipers.recommend_tolerance("float32", 9, accumulator="float64")
    assert calipers.recommend_tolerance(dtype, 9, accumulator=float) == expected
    assert calipers.default_tolerance(dtype) == calipers.default_tolerance("float32")


def test_formats_of_torch():
    torch = pytest.importorskip("torch")
    assert calipers.default_tolerance(torch.bfloat16) == calipers.default_tolerance("bfloat16")


@pytest.mark.parametrize("method", ["3-point", "adaptive"])
@pytest.mark.parametrize("worst", [np.nan, np.inf])
def test_a_direction_that_is_not_finite_gives_nan(worst, method):
    assert np.isnan(calipers.jvp(np.sin, X, [worst, 0, 0], method=method)).all()
