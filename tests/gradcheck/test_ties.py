"""Points where values tie: maxima or medians, eigenvalues or singular values that are equal."""

from functools import partial

import numpy as np
import pytest

import calipers

checked = partial(calipers.gradcheck, raise_exception=False)
FORMS = {
    "vjp": lambda jacobian: lambda x, w: w @ jacobian,
    "jvp": lambda jacobian: lambda x, v: jacobian @ v,
    "jac": lambda jacobian: lambda x: jacobian,
}
W = np.array([1.0, 7.0, -2.0, 4.0, 2.0])
TIED = {  # functions of five equal numbers, and derivatives that formulas return
    "median": (lambda x: np.median(x)[None], [np.eye(5)[[0]], np.full((1, 5), 0.2)]),
    "sort": (np.sort, [np.eye(5), np.eye(5)[::-1], np.full((5, 5), 0.2)]),
    "quantile": (lambda x: np.quantile(x, 0.3)[None], [0.8 * np.eye(5)[[1]] + 0.2 * np.eye(5)[2]]),
    # Weights beyond those of the ends, which slopes on both sides of x show.
    "weighted": (lambda x: (W @ np.sort(x))[None], [W[None]]),
}


@pytest.mark.parametrize("options", [{}, {"fast_mode": True}, {"method": "3-point"}])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", TIED)
def test_order_statistics_of_equal_numbers_are_nonsmooth(name, dtype, options):
    f, jacobians = TIED[name]
    for size in (1.0, -3e-5):
        x = np.full(5, size, dtype)
        for jacobian in jacobians:
            report = checked(f, x, jac=lambda x, j=jacobian: j.astype(dtype), **options)
            # In float32 a fixed step does not tell a wrong slope from the noise of f.
            coarse = "method" in options and dtype == np.float32
            assert report.verdict in ("NONSMOOTH", *["INCONCLUSIVE"] * coarse)
            if report.counts["NONSMOOTH"] == 1:
                assert "do not add up" in report.reason


@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_derivative_next_to_a_tie_is_wrong(form):
    """In other elements of the same input, with other outputs and with the same one."""
    x = np.ones(5)

    def apart(x):
        return np.append(np.median(x[:3]), np.sin(x[3:]))

    def mixed(x):
        return np.append(np.median(x[:3]) * x[3] ** 2 + np.sin(x[4]), x[4])

    one = np.zeros((3, 5))
    one[0, 0], one[1, 3], one[2, 4] = 1, 1.01 * np.cos(1), np.cos(1)
    other = np.zeros((2, 5))
    other[0, 0], other[0, 3], other[0, 4], other[1, 4] = 1, 2.02, np.cos(1), 1
    for f, jacobian in ((apart, one), (mixed, other)):
        report = checked(f, x, **{form: FORMS[form](jacobian)})
        assert (report.verdict, report.counts["FAIL"], report.counts["NONSMOOTH"]) == ("FAIL", 1, 1)
        assert report.worst.input_index == (3,)


def test_a_slope_beyond_those_on_both_sides_of_a_maximum_is_wrong():
    for slope in (5.0, -2.0):
        row = slope * np.eye(4)[[0]]
        report = checked(lambda x: x.max()[None], np.ones(4), jac=lambda x, row=row: row)
        assert report.verdict == "FAIL"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_mistakes_of_smooth_functions_of_equal_numbers_are_wrong(dtype):
    x, off = np.full(6, 1.5, dtype), np.zeros((1, 6))
    off[0, 2] = 0.1
    for f, jacobian in [
        (lambda x: np.sort(x).sum()[None], np.ones((1, 6))),
        (lambda x: np.sum(x * x)[None], np.full((1, 6), 3.0)),
        (lambda x: np.log(np.sum(np.exp(x)))[None], np.full((1, 6), 1 / 6)),
    ]:
        assert checked(f, x, jac=lambda x, j=jacobian: j.astype(dtype)).verdict == "PASS"
        wrong = (jacobian + off).astype(dtype)
        assert checked(f, x, jac=lambda x, j=wrong: j).verdict == "FAIL"


def test_a_function_may_refuse_points_where_other_elements_move():
    def f(x):
        if np.count_nonzero(x != 1) > 1:
            raise ValueError("one at a time")
        return np.sin(x)

    assert checked(f, np.ones(3), jac=lambda x: np.diag(np.full(3, 2.0))).verdict == "FAIL"


def eigenvalues(x):
    return np.linalg.eigvalsh((x + x.T) / 2)


def singular_values(x):
    return np.linalg.svd(x, compute_uv=False)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_equal_eigenvalues_and_singular_values_are_nonsmooth(n):
    x, one = 2 * np.eye(n), np.eye(n)
    selected = np.einsum("ik,jk->kij", one, one)
    for f in (eigenvalues, singular_values):
        assert checked(f, x, jac=lambda x: selected).verdict == "NONSMOOTH"
    # Their sum is smooth, as the trace and the nuclear norm of positive matrices are.
    for f in (eigenvalues, singular_values):
        total = lambda x, f=f: f(x).sum()[None]  # noqa: E731
        assert checked(total, x, jac=lambda x: one[None]).verdict == "PASS"
        assert checked(total, x, jac=lambda x: 1.001 * one[None]).verdict == "FAIL"


def test_functions_of_torch_at_ties_are_nonsmooth():
    torch = pytest.importorskip("torch")
    ones = torch.ones(3, dtype=torch.float64, requires_grad=True)
    for f in (torch.median, lambda x: torch.sort(x).values, lambda x: x.quantile(0.5)):
        for kind in (torch.float64, torch.float32):
            x = ones.detach().to(kind).requires_grad_()
            report = checked(f, (x,))
            assert report.verdict == "NONSMOOTH"
            assert "do not add up" in report.reason
    double = (2 * torch.eye(3, dtype=torch.float64)).requires_grad_()
    # Gradients of singular vectors are infinite there.
    for f in (lambda x: torch.linalg.svd(x)[0].abs(), torch.linalg.svdvals, torch.linalg.eigvalsh):
        assert checked(f, (double,)).verdict == "NONSMOOTH"
