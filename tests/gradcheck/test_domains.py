"""Functions that are not defined at some step from x, or not known well enough in their format."""

import numpy as np
import pytest

import calipers
from tests.data.gradcheck_functions import checked

RANDOM = np.random.default_rng(0).standard_normal((4, 4))
POSITIVE = RANDOM @ RANDOM.T + 4 * np.eye(4)


def cholesky(a):
    return np.linalg.cholesky((a + a.T) / 2)


def cholesky_vjp(a, w):
    root = cholesky(a)
    inner = np.tril(root.T @ np.tril(w))
    inner[np.diag_indices(len(a))] /= 2
    inverse = np.linalg.inv(root)
    s = inverse.T @ inner @ inverse
    return (s + s.T) / 2


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(("size", "dtype"), [(1, "float32"), (1e6, "float32"), (1e-6, "float64")])
def test_a_matrix_that_is_positive_definite_near_x(size, dtype, fast_mode):
    a = (size * POSITIVE).astype(dtype)
    assert checked(cholesky, a, vjp=cholesky_vjp, fast_mode=fast_mode).verdict == "PASS"
    wrong = lambda a, w: 1.1 * cholesky_vjp(a, w)  # noqa: E731
    assert checked(cholesky, a, vjp=wrong, fast_mode=fast_mode).verdict == "FAIL"


def test_several_results_of_a_matrix_that_is_positive_definite_near_x():
    f = lambda a: (np.trace(a) * (1 + 1j), cholesky(a))  # noqa: E731
    vjp = lambda a, w: (w[0].real + w[0].imag) * np.eye(4) + cholesky_vjp(a, w[1])  # noqa: E731
    assert checked(f, 1e-6 * POSITIVE, vjp=vjp).verdict == "PASS"


def test_a_matrix_that_is_none_at_x_is_told():
    with pytest.raises(np.linalg.LinAlgError):
        calipers.gradcheck(cholesky, -POSITIVE, vjp=cholesky_vjp)


def test_other_errors_beside_x_are_raised():
    def f(x):
        if x[0] != 1:
            raise ValueError("too far")
        return x

    with pytest.raises(ValueError, match="too far"):
        calipers.gradcheck(f, np.ones(2), vjp=lambda x, w: w)


def test_bounds_are_advised_along_directions_too(monkeypatch):
    image = RANDOM.ravel()

    def f(u):
        i = np.floor(u).astype(int)
        return image[i] + (u - i) * (image[i + 1] - image[i])

    def vjp(u, w):
        i = np.floor(u).astype(int)
        return w * (image[i + 1] - image[i])

    u = np.array([3.25, 7.5, 14.75])
    assert checked(f, u, vjp=vjp, fast_mode=True).verdict == "PASS"  # by a look at all entries
    with monkeypatch.context() as patch:
        patch.setattr("calipers._gradcheck.fast_mode._MODERATE", 0)  # as if that were too many
        with pytest.raises(IndexError) as caught:
            calipers.gradcheck(f, u, vjp=vjp, fast_mode=True)
    assert any("pass bounds=" in note for note in caught.value.__notes__)
    i = np.floor(u)
    for fast_mode in (False, True):
        bounds = (i, i + 0.999)
        assert checked(f, u, vjp=vjp, bounds=bounds, fast_mode=fast_mode).verdict == "PASS"


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("method", ["adaptive", "3-point"])
@pytest.mark.parametrize("bounds", [([0, 0], [0, 1]), ([0, 0], [5e-324, 1])])
def test_bounds_without_room_are_said_to_be_that(bounds, method, fast_mode):
    """Such an f was "noisy or varies too fast there"."""
    x = np.array([0.0, 1.0])
    given = {"bounds": bounds, "method": method, "fast_mode": fast_mode}
    report = checked(lambda x: x**2, x, vjp=lambda x, w: 2 * x * w, **given)
    assert report.verdict == "INCONCLUSIVE"
    assert "noisy" not in report.reason
    assert "bounds= leave no room for a difference there" in report.reason
    left_out = checked(lambda x: x**2, x, vjp=lambda x, w: 2 * x * w, **given, step=[0, 1e-3])
    assert left_out.verdict == "PASS"


def test_a_softmax_that_is_nearly_saturated_in_float32():
    """A softmax that is nearly saturated, whose rounding is some share of what it moves by."""

    def softmax(x):
        e = np.exp(x - x.max())
        return e / e.sum()

    def vjp(x, w):
        p = softmax(x)
        return p * (w - (p * w).sum())

    x = (10 * np.random.default_rng(4).normal(size=4)).astype(np.float32)
    assert checked(softmax, x, vjp=vjp).verdict == "PASS"
    assert checked(softmax, x.astype(float), vjp=vjp).verdict == "PASS"
    wrong = checked(softmax, x, vjp=lambda x, w: 1.05 * vjp(x, w))
    assert wrong.verdict == "FAIL"


def test_beside_a_kink_what_is_right_passes_and_the_other_slope_is_undefined():
    x = np.array([1.0, 1e-6])
    for options in ({}, {"step": 1e-8}, {"step": 1e-4}):
        right = checked(lambda x: np.maximum(x, 0), x, vjp=lambda x, w: w * (x > 0), **options)
        assert right.verdict in ("PASS", "NONSMOOTH")
    other = checked(lambda x: np.maximum(x, 0), x, vjp=lambda x, w: w * (x > 0.5))
    assert other.verdict in ("FAIL", "NONSMOOTH")
    assert "d out[0][1] / d in[0][1]" in other.reason
