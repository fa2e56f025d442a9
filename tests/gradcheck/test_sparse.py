"""gradcheck by sparse inputs, and of Jacobians that are sparse: cases 53 to 56."""

from itertools import cycle

import numpy as np
import pytest

import calipers
from tests.data.gradcheck_functions import THREE, checked

sparse = pytest.importorskip("scipy.sparse")

FORMATS = ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"]
B = np.array([1.0, 2.0, 3.0])


def matrix(form="csr"):
    dense = np.array([[0.5, 0, 0], [0, 0, 2.0], [1.5, -1.0, 0], [0, 0, 0]])
    return sparse.csr_array(dense).asformat(form)


def product(s, b):
    return s @ b


def whole(s, b, w):
    return np.outer(w, b), s.T @ w


def specified_only(s, b, w):
    return sparse.csr_array(np.outer(w, b) * (s.toarray() != 0)), s.T @ w


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("form", FORMATS)
def test_case_53_right_gradients_by_sparse_matrices_pass(form, masked):
    given = matrix(form)
    before = given.toarray().copy()
    report = calipers.gradcheck(product, (given, B), vjp=whole, masked=masked)
    elements = 4 if masked else 12
    assert report.shape == (4, elements + 3)
    assert given.format == form
    assert np.array_equal(given.toarray(), before)


def test_f_gets_matrices_of_the_form_it_was_given():
    forms = set()

    def f(s):
        forms.add((type(s), s.format, s.dtype))
        return s @ B

    given = sparse.csc_matrix(matrix())
    calipers.gradcheck(f, given, vjp=lambda s, w: np.outer(w, B))
    assert forms == {(sparse.csc_matrix, "csc", np.dtype(float))}


def test_case_54_a_gradient_that_drops_unspecified_elements():
    calipers.gradcheck(product, (matrix(), B), vjp=specified_only, masked=True)
    report = calipers.gradcheck(
        product, (matrix(), B), vjp=specified_only, masked=False, raise_exception=False
    )
    assert report.verdict == "FAIL"
    assert {entry.input for entry in report.failures} == {0}


def test_case_55_a_dense_and_a_sparse_input():
    def f(x, s):
        return x * s.toarray()

    def vjp(x, s, w):
        return w * s.toarray(), w * x

    x = np.arange(12.0).reshape(4, 3) + 1
    calipers.gradcheck(f, (x, matrix()), vjp=vjp, masked=True)
    calipers.gradcheck(f, (x, matrix()), vjp=vjp)
    wrong = calipers.gradcheck(
        f, (x, matrix()), vjp=lambda x, s, w: (w * s.toarray(), 2 * w * x), raise_exception=False
    )
    assert wrong.verdict == "FAIL"
    assert {e.input for e in wrong.failures} == {1}


def test_jvp_gets_sparse_tangents():
    def jvp(s, b, v):
        assert sparse.issparse(v[0])
        return v[0] @ b + s @ v[1]

    calipers.gradcheck(product, (matrix(), B), jvp=jvp, masked=True)


def test_explicit_zeros_are_specified():
    given = matrix()
    given.data[0] = 0.0
    report = calipers.gradcheck(product, (given, B), vjp=whole, masked=True)
    assert report.shape == (4, 4 + 3)


def tridiagonal(x):
    y = x**2
    y[1:] += x[:-1]
    return y


def sparse_jac(x):
    n = len(x)
    return sparse.diags_array([np.ones(n - 1), 2 * x], offsets=[-1, 0], format="csc")


def test_case_56_a_sparse_jacobian():
    x = np.arange(1.0, 8.0)
    calipers.gradcheck(tridiagonal, x, jac=sparse_jac)
    report = calipers.gradcheck(
        tridiagonal, x, jac=lambda x: sparse.diags_array(2 * x), raise_exception=False
    )
    assert report.verdict == "FAIL"
    assert report.counts["FAIL"] == 6
    assert all(e.output_index[0] == e.input_index[0] + 1 for e in report.failures)


@pytest.mark.parametrize("first", ["dense", "sparse"])
def test_a_jacobian_that_is_sparse_at_times_is_not_reentrant(first):
    forms = [np.diag, sparse.diags_array]
    turns = cycle(forms if first == "dense" else forms[::-1])
    report = checked(lambda x: x * x, THREE, jac=lambda x: next(turns)(2 * x))
    assert "jac is not reentrant" in report.reason


def test_the_same_elements_in_other_rows_are_another_sparse_jacobian():
    turns = cycle([np.eye(3), np.eye(3)[::-1]])
    report = checked(lambda x: 1 * x, THREE, jac=lambda x: sparse.csc_array(next(turns)))
    assert "jac is not reentrant" in report.reason


def test_the_callers_sparse_jacobian_keeps_its_duplicates():
    rows = np.repeat(np.arange(3), 2)
    own = sparse.csc_array((np.repeat(THREE, 2), rows, [0, 2, 4, 6]), shape=(3, 3))
    assert calipers.gradcheck(lambda x: x * x, THREE, jac=lambda x: own)
    assert own.nnz == 6
    assert np.array_equal(own.indices, rows)


def test_a_sparse_jacobian_of_the_wrong_shape_is_refused():
    report = checked(lambda x: x * x, THREE, jac=lambda x: sparse.csc_array((3, 4)))
    assert report.verdict == "FAIL"
    assert "has a wrong shape: expected (3, 3), got (3, 4)" in report.reason


def test_a_complex_sparse_jacobian_of_real_numbers_is_refused():
    report = checked(lambda x: x * x, THREE, jac=lambda x: sparse.diags_array(2 * x + 1j))
    assert "is complex, but the output and the input are real" in report.reason


LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_layouts(layout, masked):
    torch = pytest.importorskip("torch")
    dense = torch.tensor([[1.0, 0, 2, 0], [0, 3, 0, 0]], dtype=torch.double)
    options = {"blocksize": (2, 2)} if layout.startswith("sparse_bs") else {}
    x = dense.to_sparse(layout=getattr(torch, layout), **options).requires_grad_()
    report = calipers.gradcheck(torch.sum, (x,), masked=masked)
    assert report.shape[1] == (8 if not masked or options else 3)
    whole = calipers.gradcheck(lambda x: x.to_dense(masked_grad=masked), (x,), masked=masked)
    assert whole
    with pytest.raises(calipers.WrongDerivativeError):
        calipers.gradcheck(lambda x: x.to_dense(masked_grad=True), (sparser(torch, x),))


def sparser(torch, x):
    """Return a tensor of the layout with unspecified elements."""
    dense = torch.zeros(4, 4, dtype=torch.double)
    dense[0, 0] = dense[3, 3] = 2
    options = {"blocksize": (2, 2)} if x.layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
    return dense.to_sparse(layout=x.layout, **options).requires_grad_()


@pytest.mark.filterwarnings("ignore")
def test_a_sparse_output_of_a_torch_function_is_refused_with_advice():
    torch = pytest.importorskip("torch")
    x = torch.eye(2, dtype=torch.double).to_sparse().requires_grad_()
    with pytest.raises(ValueError, match="to_dense"):
        calipers.gradcheck(lambda x: 2 * x, (x,))


def test_check_sparse_nnz_is_the_old_name_of_masked():
    with pytest.warns(calipers.CalipersWarning, match="deprecated: use masked= instead"):
        report = calipers.gradcheck(product, (matrix(), B), vjp=whole, check_sparse_nnz=True)
    assert report.shape == (4, 7)


def test_derivatives_are_asked_about_the_callers_own_elements():
    def vjp(s, w):
        gradient = s.copy()
        gradient.data = np.outer(w, B)[s.tocoo().coords]
        return gradient

    given = matrix()
    assert calipers.gradcheck(lambda s: s @ B, given, vjp=vjp, masked=True)
    report = calipers.gradcheck(lambda s: s @ B, given, vjp=vjp, raise_exception=False)
    assert report.verdict == "FAIL"


@pytest.mark.parametrize("argnums", [0, 1, (0, 1), None])
def test_jvp_by_chosen_inputs_beside_a_sparse_one(argnums):
    s, b = sparse.csr_array(matrix()), np.linspace(1, 2, matrix().shape[1])
    chosen = (0, 1) if argnums is None else np.atleast_1d(argnums).tolist()

    def jvp(s, b, v):
        several = v if isinstance(v, tuple) else (v,)
        directions = dict(zip(chosen, several, strict=True))
        found = directions[0] @ b if 0 in directions else 0
        return found + (s @ directions[1] if 1 in directions else 0)

    assert calipers.gradcheck(lambda s, b: s @ b, (s, b), jvp=jvp, argnums=argnums)


@pytest.mark.parametrize("form", FORMATS)
def test_places_are_those_in_the_matrix(form):
    """They were numbers of the stored values."""

    def vjp(s, b, w):
        gradient = np.outer(w, b)
        gradient[2, 1] += 1
        return gradient, s.T @ w

    for masked in (True, False):
        report = checked(product, (matrix(form), B), vjp=vjp, masked=masked)
        assert {(e.input, e.input_index) for e in report.failures} == {(0, (2, 1))}
        assert "in[0][2, 1]" in str(report)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr"])
def test_places_are_those_in_the_tensor(layout):
    torch = pytest.importorskip("torch")

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, s):
            ctx.layout = s.layout
            return s.to_dense().sum(1)

        @staticmethod
        def backward(ctx, w):
            gradient = w[:, None].expand(4, 4).clone()
            gradient[2, 3] *= 3
            return gradient

    dense = torch.eye(4, dtype=torch.double)
    dense[2, 3] = 0.5
    options = {"blocksize": (1, 1)} if layout == "bsr" else {}
    given = dense.to_sparse(layout=getattr(torch, f"sparse_{layout}"), **options)
    report = calipers.gradcheck(
        Wrong.apply, given.requires_grad_(), masked=True, raise_exception=False
    )
    assert {e.input_index for e in report.failures} == {(2, 3)}


def test_gradgradcheck_says_what_it_takes_for_sparse_inputs():
    matrix = sparse.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))

    def f(matrix):
        return (matrix.data**3).sum()

    with pytest.raises(TypeError, match=r"input 0 is a csr_array: .* the array \.data"):
        calipers.gradgradcheck(f, matrix, hess=lambda matrix: np.diag(6 * matrix.data))

    def of_values(values):
        return f(sparse.csr_array((values, matrix.indices, matrix.indptr), matrix.shape))

    assert calipers.gradgradcheck(of_values, matrix.data, hess=lambda v: np.diag(6 * v))

    def scaled(x, matrix):
        return x**2 * matrix.sum()

    forms = {
        "vjp": lambda x, matrix, w: 2 * w * x * matrix.sum(),
        "vjp_vjp": lambda x, matrix, w, u: (2 * w * u * matrix.sum(), 2 * u * x * matrix.sum()),
    }
    x = np.array([0.5, 2.0])
    assert calipers.gradgradcheck(scaled, (x, matrix), argnums=0, **forms)
