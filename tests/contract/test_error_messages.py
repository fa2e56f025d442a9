"""What users get wrong, what they are told, and what is no refusal of theirs."""

import ast
import re
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import calipers
from calipers._compare import listening
from tests.data.derivative_functions import SIX

X = np.array([1.0, 2.0, 3.0])
check = partial(calipers.gradcheck, np.sin, X)
rowwise = partial(calipers.jacobian, x=X, out_like=3, rowwise=True)


def cosine(x, w):
    return w * np.cos(x)


def scaled_sine(x, scale):
    return scale * np.sin(x)


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
        (
            lambda: check(vjp=cosine, allow="NONSMOOTH"),
            ValueError,
            r"a collection such as \{\"NONSMOOTH\"\}, of .* INCONCLUSIVE, got str: 'NONSMOOTH'",
        ),
        (lambda: check(vjp=lambda x, w: None), AssertionError, "vjp returned None"),
        (lambda: check(jac=lambda x: None), AssertionError, "jac returned None"),
        (lambda: check(vjp=cosine, eps="1e-6"), ValueError, "eps must be positive and finite"),
        (lambda: check(vjp=cosine, seed="a"), ValueError, "seed must be an integer, .*, got 'a'"),
        (lambda: check(vjp=cosine, seed=None), ValueError, "seed must be an integer, .*, got None"),
        (lambda: check(vjp=cosine, args=2.0), TypeError, "args must be a tuple of the other"),
        (lambda: check(), ValueError, "pass at least one of jac=, vjp= and jvp=; only"),
        (
            lambda: check(vjp=cosine, check_backward_ad=False),
            ValueError,
            "nothing is left to check of vjp: at least one of check_forward_ad",
        ),
        (
            lambda: check(vjp=cosine, nondifferentiable_outputs=2),
            TypeError,
            "nondifferentiable_outputs must be a sequence of positions, got 2",
        ),
        (lambda: check(vjp=lambda x, w: "a"), AssertionError, "is of type str: return an array of"),
        (lambda: check(jac=lambda x: "a"), AssertionError, "is of type str: return an array of"),
        (lambda: check(vjp=lambda x, w: {"x": w}), AssertionError, "is of type dict: return an"),
        (
            lambda: check(vjp=lambda x, w: list(cosine(x, w))),
            AssertionError,
            "returned 3 gradients, expected 1: (.|\n)*taken as one result for each input",
        ),
        (lambda: calipers.gradgradcheck(np.sin, X), ValueError, "gradgradcheck needs vjp= with"),
        (
            lambda: calipers.gradgradcheck(np.sin, X, vjp=cosine, vjp_vjp=lambda x, w, u: u),
            AssertionError,
            "second order: vjp_vjp returned 1 gradient, expected 2: one for each",
        ),
        (lambda: calipers.jacobian(np.sin, X, argnums=1), ValueError, "which are x and those of"),
        (lambda: calipers.allclose(np.sin, X), TypeError, "a must be an array .*, got ufunc"),
        (lambda: calipers.isclose(X, cosine), TypeError, "b must be an array .*, got function"),
        (lambda: calipers.allclose("a.npy", X), TypeError, "load it if it names a file: 'a.npy'"),
        (lambda: calipers.allclose(Path("a.npy"), X), TypeError, "a must be an array .*Path"),
        (
            lambda: calipers.allfinite([1.0, None]),
            TypeError,
            "dtype object, which numpy.isfinite",
        ),
        (lambda: calipers.compare(X, X, rtol="1", atol=0), TypeError, "rtol must be a number, got"),
        (lambda: calipers.allclose(iter([1.0]), X), ValueError, "or all numbers as one array"),
        (lambda: calipers.set_num_threads("2"), ValueError, "n must be a positive .*, got '2'"),
        (lambda: calipers.assert_close(None, X), AssertionError, "actual is None, expected is of"),
        (lambda: calipers.assert_close([X, X], [X, None]), AssertionError, "expected is None"),
        (lambda: calipers.default_tolerance(), TypeError, "needs at least one dtype"),
        (lambda: calipers.default_tolerance(X), TypeError, r"got array\(.*pass the .dtype of an"),
        (lambda: calipers.default_tolerance("float33"), TypeError, "takes dtypes, got 'float33'"),
        (lambda: calipers.default_tolerance(None), TypeError, "takes dtypes, got None"),
        (lambda: calipers.recommend_tolerance("float32", "9"), ValueError, "reduction must be"),
        (lambda: calipers.recommend_tolerance("floaty"), ValueError, "dtype must be one of"),
        (
            lambda: calipers.recommend_tolerance(np.arange(99.0)),
            ValueError,
            r"got array.{,60}: pass the \.dtype of an array",
        ),
        (
            lambda: calipers.growth(np.sin, np.sin, np.ones, 5),
            TypeError,
            "sizes must be a sequence",
        ),
        (
            lambda: calipers.compare(X, X, tolerance=(0, 0), rtol=1),
            ValueError,
            "together with rtol or atol",
        ),
        (lambda: calipers.jacobian(lambda x: (x, 1.0), X), TypeError, "must return one array, got"),
        (
            lambda: calipers.jacobian(np.sin, X[:2], bounds=[(0, 3), (0, 3)]),
            ValueError,
            r"list of tuples.*pass \(lower, upper\)",
        ),
        (
            lambda: calipers.jacobian(np.sin, {"x": X}),
            TypeError,
            "got dict: ravel its arrays into one",
        ),
        (lambda: calipers.jacobian(np.sin, "abc"), TypeError, "real or complex numbers, got str"),
        (
            lambda: calipers.testing.assert_allcose,
            AttributeError,
            "'calipers.testing' has no attribute 'assert_allcose', nor has numpy.testing",
        ),
        (lambda: calipers.allclose(X, X, axis="x"), TypeError, "axis must be an int or a tuple"),
        (lambda: calipers.allclose(X, X, axis=0.5), TypeError, "axis must be an int .* got 0.5"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_objects_that_numpy_compares_are_named():
    for call in (calipers.allclose, calipers.isclose, partial(calipers.allclose, axis=0)):
        with pytest.raises(TypeError) as caught:
            call([None, 1.0], [None, 1.0])
        own, reference = caught.value.__notes__
        assert own.startswith("a has dtype object")
        assert reference.startswith("b has dtype object")
    with pytest.raises(ValueError, match="inhomogeneous") as caught:
        calipers.allclose(X[:2], [[1.0, 2.0], [3.0]])
    assert caught.value.__notes__ == [
        "b is a list whose items differ in length: pass a rectangular one, or use compare, "
        "which descends into nested lists"
    ]
    assert calipers.compare([[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0]])


@pytest.mark.parametrize(
    ("call", "note"),
    [
        (
            lambda: calipers.jacobian(lambda x, t: x, X),
            r"f is called as f\(x, \*args, \*\*kwargs\): .* as a tuple with argnums=\(0, 1\)",
        ),
        (lambda: calipers.jacobian(lambda x: x, X, out_like=X), r"f is called as f\(x, .*, out\)"),
        (lambda: rowwise(lambda x: x), r"rowwise=True f is called as f\(i, x, \*args\)"),
        (
            lambda: calipers.gradcheck(np.sin, [0.5, 1.0], vjp=cosine),
            "f is called with 2 arguments, .*several inputs go in a tuple",
        ),
        (
            lambda: calipers.gradcheck(lambda x, out: x, X, vjp=cosine),
            "f is called with 1 argument, .* pass out_like= .* that it takes last",
        ),
        (lambda: check(vjp=lambda x: x), r"vjp is called as vjp\(\*inputs, \*args, w\)"),
        (lambda: check(jvp=lambda x: x), r"jvp is called as jvp\(\*inputs, \*args, v\)"),
        (
            lambda: calipers.gradcheck(np.sin, X, vjp=cosine, kwargs={"scale": 2.0}),
            "f is called with 1 argument and scale by name, ",
        ),
        (
            lambda: calipers.gradcheck(scaled_sine, X, vjp=cosine, kwargs={"scale": 2.0}),
            r"vjp is called as vjp\(\*inputs, \*args, w, \*\*kwargs\)",
        ),
        (lambda: check(jac=lambda x, w: x), r"jac is called as jac\(\*inputs, \*args\)"),
        (
            lambda: check(vjp=cosine, inplace="add"),
            r"vjp is called as vjp\(\*inputs, \*args, w, \*outs\)",
        ),
        (
            lambda: calipers.gradgradcheck(np.sin, X, vjp=cosine, vjp_vjp=cosine),
            r"vjp_vjp is called as vjp_vjp\(\*inputs, \*args, w, u\)",
        ),
        (
            lambda: calipers.gradgradcheck(np.sin, X, vjp=cosine, vjp_jvp=cosine),
            r"vjp_jvp is called as vjp_jvp\(\*inputs, \*args, w, v\)",
        ),
    ],
)
def test_calls_with_other_arguments_tell_the_form(call, note):
    with pytest.raises(TypeError) as caught:
        call()
    (told,) = caught.value.__notes__
    assert re.search(note, told)


def test_other_arguments_come_before_the_cotangent():
    report = calipers.gradcheck(
        lambda x, t: t * x**2, X, vjp=lambda x, t, w: 2 * t * x * w, args=(3.0,)
    )
    assert report


def test_a_torch_function_with_a_derivative_of_its_own_gets_arrays():
    torch = pytest.importorskip("torch")
    x = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    with pytest.raises(TypeError) as caught:
        calipers.gradcheck(torch.sin, x, vjp=cosine)
    assert "are called with NumPy arrays" in caught.value.__notes__[0]


def test_a_torch_function_is_no_class():
    torch = pytest.importorskip("torch")

    class Own(torch.autograd.Function):
        pass

    with pytest.raises(TypeError, match=r"f is the class Own: pass Own\.apply"):
        calipers.gradcheck(Own, torch.ones(1, dtype=torch.float64, requires_grad=True))


SECOND = {"vjp_vjp": lambda x, w, u: (-u * w * np.sin(x), u * np.cos(x))}
LIBRARIES = ["numpy", "torch", "jax"]


def checks_of(library):
    """Return a sine of a library, and gradcheck and gradgradcheck of functions at a point."""
    if library == "numpy":
        second = partial(calipers.gradgradcheck, inputs=X, vjp=cosine, **SECOND)
        return np.sin, (partial(calipers.gradcheck, inputs=X, vjp=cosine), second)
    module = pytest.importorskip(library)
    x = module.ones(2, requires_grad=True) if library == "torch" else module.numpy.ones(2)
    sine = module.sin if library == "torch" else module.numpy.sin
    checks = calipers.gradcheck, calipers.gradgradcheck
    return sine, [partial(check, inputs=x) for check in checks]


@pytest.mark.parametrize("library", LIBRARIES)
def test_outputs_that_are_no_numbers_are_named(library):
    sine, checks = checks_of(library)
    for f, told in (
        (lambda x: None, r"output 0 of f .* got None: return it, or pass out_like= if f stores it"),
        (
            lambda x: (sine(x), "a"),
            r"output 1 of f .* got str: return an array or a tuple of arrays",
        ),
        (lambda x: {"a": sine(x), "b": "c"}, r"output \['b'\] of f .* got str: return an array"),
    ):
        for check in checks:
            with pytest.raises(TypeError, match=told):
                check(f)


@pytest.mark.parametrize("library", LIBRARIES[:2])  # of jax None is no output
def test_none_among_outputs_is_named(library):
    sine, checks = checks_of(library)
    for f, name in (
        (lambda x: (sine(x), None), "1"),
        (lambda x: [None, sine(x)], "0"),
        (lambda x: {"a": sine(x), "b": None}, r"\['b'\]"),
    ):
        for check in checks:
            with pytest.raises(TypeError, match=rf"output {name} of f .* got None: omit it"):
                check(f)


@pytest.mark.parametrize("check", [calipers.gradcheck, calipers.gradgradcheck])
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_what_is_no_function_of_a_library_is_named(check, library):
    module = pytest.importorskip(library)
    x = module.ones(2, requires_grad=True) if library == "torch" else module.numpy.ones(2)
    with pytest.raises(TypeError, match=r"^f must be callable, got int: 3$"):
        check(3, x)


@pytest.mark.parametrize("name", ["vjp", "vjp_vjp", "vjp_jvp", "hess", "hvp"])
def test_what_is_no_second_derivative_is_named(name):
    given = {"vjp": cosine, "vjp_vjp": cosine, name: 3}
    with pytest.raises(TypeError, match=rf"^{name} must be callable, got int: 3$"):
        calipers.gradgradcheck(np.sin, X, **given)


def test_a_mapping_is_named(tmp_path):
    np.savez(tmp_path / "x.npz", x=X)
    with np.load(tmp_path / "x.npz") as held:
        with pytest.raises(TypeError, match="b is a mapping, NpzFile: pass its arrays, or use co"):
            calipers.allclose(X, held)
        assert calipers.compare(held, {"x": X})


def test_one_side_that_is_none_is_named_once():
    assert not calipers.compare(None, X)
    assert calipers.compare(None, None)
    assert calipers.compare(None, np.array(None))
    report = str(calipers.compare({"w": X, "b": None}, {"w": X, "b": X}))
    assert "actual is None, expected is of type ndarray" in report


def test_sparse_arrays_have_no_verdict_of_equality():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match=r"a2 is sparse, .*: pass a2\.toarray\(\)"):
        calipers.array_equal(np.eye(3), sparse.eye_array(3))


def test_what_has_every_attribute_is_not_taken_for_sparse():
    delayed = pytest.importorskip("dask").delayed(1.0)
    with pytest.raises(TypeError, match="Delayed"):
        calipers.allclose(delayed, 1.0)
    with pytest.raises(TypeError) as caught:
        calipers.jacobian(np.sin, delayed)
    assert "sparse" not in str(caught.value)
    with pytest.raises(AssertionError, match="that vjp returned for input 0 is of type Delayed"):
        calipers.gradcheck(np.sin, (X,), vjp=lambda x, w: delayed)


MASKED = np.ma.array(X, mask=[0, 1, 0])
UNLIKE = [[1.0, 2.0], [3.0]]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"x": UNLIKE}, TypeError, "x must be an array of numbers, got list with"),
        ({"x": MASKED}, ValueError, r"x has masked elements.*: pass x.filled"),
        ({"f": lambda x: MASKED}, ValueError, r"f returned masked elements.*y.filled"),
        ({"kwargs": [("a", 1)]}, TypeError, "kwargs must be a dict of f's arguments by name, got"),
        ({"kwargs": 3}, TypeError, "kwargs must be a dict of f's arguments by name, got 3"),
        ({"kwargs": {1: 3}}, TypeError, "kwargs must be a dict of f's arguments by name, got {1"),
        ({"x": (X, X), "argnums": [0, 1]}, TypeError, r"argnums must be .*: pass tuple\(argnums"),
        ({"memory_limit": "1GB"}, TypeError, "memory_limit must be a positive .*, got '1GB'"),
        ({"memory_limit": -1}, ValueError, "memory_limit must be a positive number of bytes, got"),
        ({"memory_limit": np.nan}, ValueError, "memory_limit must be a positive number of bytes"),
        ({"bounds": (np.nan, 9)}, ValueError, "bounds must not be NaN: for no bound pass"),
        ({"bounds": (None, 9)}, TypeError, "got None; for no bound pass numpy.inf"),
        ({"bounds": (UNLIKE, 9)}, TypeError, "bounds must be a real number or an array of them"),
        ({"bounds": np.zeros((3, 2))}, ValueError, r"bounds must be a pair \(lower, upper\), got"),
        ({"out_like": -1}, ValueError, "out_like must be a shape, or an array like f's .*, got -1"),
        (
            {"out_like": "a"},
            TypeError,
            "out_like must be a shape, or an array like f's .*, got 'a'",
        ),
        ({"out_like": UNLIKE}, TypeError, "out_like must be a shape, or an array like f's results"),
    ],
)
@pytest.mark.parametrize("ask", [calipers.jacobian, calipers.differentiate])
def test_mistakes_about_a_derivative_are_named(ask, call, error, message):
    with pytest.raises(error, match=message):
        ask(**{"f": np.sin, "x": X, **call})


@pytest.mark.parametrize("x0", [None, X])
def test_mistakes_about_a_point_are_named_by_a_function_that_is_planned(x0):
    ask = calipers.jacobian_function(np.sin, x0)
    ask(X)
    for ask_x, name in ((ask, "x"), (lambda x: calipers.jacobian_function(np.sin, x), "x0")):
        with pytest.raises(ValueError, match=f"{name} has masked elements"):
            ask_x(MASKED)
        with pytest.raises(TypeError, match=f"{name} must be an array of numbers, got list with"):
            ask_x(UNLIKE)


def test_mistakes_about_a_product_are_named():
    for ask, name in ((calipers.jvp, "v"), (calipers.vjp, "w")):
        with pytest.raises(ValueError, match=f"{name} has masked elements"):
            ask(np.sin, X, MASKED)
        with pytest.raises(TypeError, match=f"{name} must be an array .* with items that differ"):
            ask(np.sin, X, UNLIKE)


def test_what_is_no_row_is_named():
    for row, got in ((lambda i, x: x, r"float64 of shape \(3,\)"), (lambda i, x: 1j, "complex")):
        with pytest.raises(TypeError, match=f"must return a number that float64 holds.*got {got}"):
            rowwise(row)
    assert np.array_equal(calipers.jacobian(np.sin, np.ma.array(X)), calipers.jacobian(np.sin, X))


def test_bounds_may_be_an_array():
    bounds = np.array([[0.0, 0.0, 0.0], [9.0, 9.0, 3.0]])
    expected = calipers.jacobian(np.sin, X, bounds=tuple(bounds))
    assert np.array_equal(calipers.jacobian(np.sin, X, bounds=bounds), expected)


def test_sparse_arrays_are_dense_where_a_derivative_is_asked_for():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match=r"x is sparse, but must be dense: pass x\.toarray\(\)"):
        calipers.jacobian(np.sin, sparse.eye_array(3))
    with pytest.raises(TypeError, match=r"v is sparse, but must be dense: pass v\.toarray\(\)"):
        calipers.jvp(np.sin, X, sparse.eye_array(3))
    with pytest.raises(TypeError, match=r"f must return .* \(return y\.toarray\(\)"):
        calipers.jacobian(lambda x: sparse.diags_array(x), X)
    for pattern, got in (
        (X, r"an array of shape \(3,\)"),
        ("Detect", "'Detect'"),
        ([0, 1], "list"),
    ):
        with pytest.raises(TypeError, match=f"sparsity must be .*, got {got}"):
            calipers.jacobian(np.sin, X, sparsity=pattern)


def test_sparse_arrays_are_not_compared_by_elements():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match=r"a is sparse.*pass a\.toarray\(\)"):
        calipers.allclose(sparse.eye_array(3), np.eye(3))
    for check in (calipers.compare, calipers.assert_close):
        with pytest.raises(TypeError, match=r"expected is sparse.*pass expected\.toarray\(\)"):
            check(np.eye(3), sparse.eye_array(3))


def test_sparse_tensors_are_refused_by_the_name_of_the_argument():
    torch = pytest.importorskip("torch")
    eye = torch.eye(3)
    for check in (calipers.compare, calipers.assert_close):
        with pytest.raises(TypeError, match=r"expected: a torch\.sparse_coo tensor.*to_dense"):
            check(eye, eye.to_sparse())
    with pytest.raises(TypeError, match=r"^a: a torch\.sparse_coo tensor"):
        calipers.allclose(eye.to_sparse(), eye.to_sparse())


def test_arrays_of_arrays_are_not_compared_by_elements():
    ragged = np.empty(2, object)
    ragged[:] = [np.ones(3), np.ones(2)]
    for check in (calipers.compare, calipers.assert_close):
        with pytest.raises(TypeError, match=r"actual holds arrays.*actual\.tolist\(\)"):
            check(ragged, ragged)
    with pytest.raises(TypeError, match=r"a holds arrays"):
        calipers.allclose(ragged, ragged)
    assert calipers.compare(ragged.tolist(), ragged.tolist())


@pytest.mark.parametrize(
    "call",
    [
        lambda: calipers.allclose(SIX, SIX, rtol=np.inf),
        lambda: calipers.isclose(SIX, SIX, rtol=np.inf),
        lambda: calipers.gradcheck(np.sin, np.zeros(0), jac=lambda x: np.zeros((0, 0))),
    ],
)
def test_warnings_name_the_line_that_called(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert [warning.filename for warning in caught] == [__file__]


def test_what_is_compared_inside_is_no_refusal_of_the_caller():
    told = []
    state = iter(range(100))
    with listening(lambda *call: told.append(call)):
        calipers.gradcheck(
            lambda x: np.sin(x) + 1e-16 * next(state),
            SIX,
            jac=lambda x: np.diag(np.cos(x)),
            nondet_tol=1e-9,
        )
        calipers.diagnose(lambda x: np.add(x, 1.0, out=x), lambda x: x + 1.0, SIX)
    assert not told


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


@pytest.mark.parametrize("limit", ["1GB", 0, -1, True, None])
@pytest.mark.parametrize(
    "ask",
    [
        partial(calipers.allclose, X, X),
        partial(calipers.array_equal, X, X),
        partial(calipers.assert_close, X, X),
        partial(calipers.compare, X, X),
        partial(calipers.allfinite, X),
        partial(calipers.first_nonfinite, X),
    ],
    ids=lambda ask: ask.func.__name__,
)
def test_a_limit_that_is_none_is_refused_where_all_is_in_memory(ask, limit):
    error = ValueError if type(limit) is int else TypeError
    with pytest.raises(error, match="memory_limit must be a positive number of bytes, got"):
        ask(memory_limit=limit)
    ask(memory_limit=1 << 30)


_HOME = Path(calipers.__file__).parent
_OF_COMPARISONS = (
    *sorted((_HOME / "_compare").rglob("*.py")),
    *(_HOME / f"{name}.py" for name in ("golden", "pytest_plugin", "testing", "_core/arrays")),
)
_OF_NOBODY = re.compile(
    r"\b(ask|asks|asked|give|gives|given|beside|told|tell|tells|anew|unlike|apart|is no|lets)\b"
)


@pytest.mark.parametrize("path", _OF_COMPARISONS, ids=lambda path: path.stem)
def test_messages_of_comparisons_use_common_words(path):
    """What is raised or reported says pass, use and compare."""
    tree = ast.parse(path.read_text("utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]
    assert not [text for text in texts if " " in text and _OF_NOBODY.search(text)]
