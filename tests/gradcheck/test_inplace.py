"""gradcheck of functions that store their results (case 48), value_and_jac (16), and the like."""

import numba
import numpy as np
import pytest

import calipers
from tests.data.gradcheck_functions import LONG, THREE, checked, sine_vjp

X = np.linspace(0.5, 1.5, 70)
modes = pytest.mark.parametrize("fast_mode", [False, True])


@numba.njit
def cube(x, out):
    for i in range(x.size):
        out[i] = x[i] ** 3


@numba.njit
def cube_vjp(x, w, g):
    for i in range(x.size):
        g[i] = 3 * x[i] ** 2 * w[i]


@numba.njit
def cube_vjp_added(x, w, g):
    for i in range(x.size):
        g[i] += 3 * x[i] ** 2 * w[i]


@modes
@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize("form", ["vjp", "jvp"])
@pytest.mark.parametrize(("way", "call"), [("write", cube_vjp), ("add", cube_vjp_added)])
def test_kernels_with_arrays_for_their_results(way, call, form, python, fast_mode):
    f, call = (cube.py_func, call.py_func) if python else (cube, call)
    options = {form: call, "inplace": way, "out_like": X, "fast_mode": fast_mode}
    assert checked(f, X, **options).verdict == "PASS"
    options[form] = lambda x, w, g: call(x, 1.001 * w, g)
    assert checked(f, X, **options).verdict == "FAIL"


def test_a_compiled_function_is_called_in_a_compiled_loop():
    calls = []

    class Counting:
        """What Python calls, beside the compiled loops."""

        def __call__(self, x, out):
            calls.append(1)
            cube(x, out)

    report = checked(cube, X, vjp=cube_vjp, inplace="write", out_like=X)
    assert report.calls == {"f": 2 * X.size + 2, "vjp": report.calls["vjp"]}
    assert report.calls["vjp"] < X.size + 15
    checked(Counting(), X, vjp=cube_vjp, inplace="write", out_like=X)
    assert len(calls) == 2 * X.size + 2


@modes
def test_one_that_adds_does_not_write(fast_mode):
    options = {"out_like": X, "fast_mode": fast_mode}
    report = checked(cube, X, vjp=cube_vjp_added, inplace="write", **options)
    assert report.verdict == "FAIL"
    assert "vjp does not overwrite its output arrays (inplace='write')" in report.findings


@modes
def test_one_that_writes_does_not_add(fast_mode):
    options = {"out_like": X, "fast_mode": fast_mode}
    report = checked(cube, X, vjp=cube_vjp, inplace="add", **options)
    assert report.verdict == "FAIL"
    assert report.reason == "vjp does not add to its output arrays (inplace='add')"


def test_what_is_not_written_is_no_zero():
    def vjp(x, w, g):
        g[1:] = 2 * x[1:] * w[1:]  # of x[0] = 0 the slope is zero

    x = np.array([0.0, 1.0, 2.0])
    report = checked(lambda x: x * x, x, vjp=vjp, inplace="write")
    assert report.verdict == "FAIL"
    assert any(np.isnan(e.analytic) for e in report.failures)


def test_what_is_skipped_for_a_zero_is_not_written():
    def vjp(x, w, out):
        for i in range(w.size):
            if w[i] != 0:
                out[i] = w[i] * np.cos(x[i])

    for fast_mode in (False, True):
        report = checked(np.sin, LONG, vjp=vjp, inplace="write", fast_mode=fast_mode)
        assert "vjp does not overwrite its output arrays (inplace='write')" in report.findings


def two(x, b):
    return np.outer(x, b), 1j * x


def two_in_place(x, b, y, z):
    y[:], z[:] = two(x, b)


def two_vjp(x, b, w, gx, gb):
    gx += w[0] @ b + w[1].imag
    gb += w[0].T @ x


def two_jvp(x, b, v, ty, tz):
    ty[:] = np.outer(v[0], b) + np.outer(x, v[1])
    tz[:] = 1j * v[0]


def two_jac(x, b, yx, yb, zx, zb):
    yx[:] = np.einsum("ik,j->ijk", np.eye(len(x)), b)
    yb[:] = np.einsum("jk,i->ijk", np.eye(len(b)), x)
    zx[:] = 1j * np.eye(len(x))
    zb[:] = 0


@modes
@pytest.mark.parametrize(
    ("way", "given"),
    [
        ("add", {"vjp": two_vjp}),
        ("write", {"jvp": two_jvp}),
        ("write", {"jac": two_jac}),
        ("write", {"jac": two_jac, "jvp": two_jvp}),
    ],
)
def test_several_outputs_and_inputs(way, given, fast_mode):
    x, b = np.array([0.5, 1.0]), np.array([1.0, 2.0, 3.0])
    outs = tuple(np.asarray(y) for y in two(x, b))
    options = {"inplace": way, "fast_mode": fast_mode, **given}
    assert calipers.gradcheck(two_in_place, (x, b), out_like=outs, **options)
    assert calipers.gradcheck(two, (x, b), **options)
    kept = [array.copy() for array in (x, b)]
    report = checked(lambda x, b: two(x, 2 * b), (x, b), **options)
    assert report.verdict == "FAIL"
    assert all(np.array_equal(a, k) for a, k in zip((x, b), kept, strict=True))


def test_a_jacobian_of_one_output_by_two_inputs_is_stored():
    def jac(x, y, by_x, by_y):
        by_x[:], by_y[:] = np.diag(y), np.diag(x)

    assert calipers.gradcheck(np.multiply, (THREE, THREE + 1), jac=jac, inplace="write")


def test_the_gradient_of_a_real_number_by_a_complex_one_is_stored_in_a_complex_array():
    def jac(z, out):
        out[:] = np.diag(2 * z)

    z = np.array([1 + 2j, 0.5 - 1j])
    assert calipers.gradcheck(lambda z: (z * z.conj()).real, z, jac=jac, inplace="write")


def test_calls_that_store_are_all_counted():
    calls = []

    def vjp(x, w, g):
        calls.append(1)
        g[:] = w * np.cos(x)

    report = checked(np.sin, THREE, vjp=vjp, inplace="write")
    assert report.verdict == "PASS"
    assert report.calls["vjp"] == len(calls)


def test_rounding_in_sums_of_what_is_added_is_allowed():
    def vjp(x, w, g):
        for k in range(1, 10):
            g += k * w * np.cos(x) / 45

    assert calipers.gradcheck(np.sin, THREE, vjp=vjp, inplace="add")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"inplace": "out"}, "inplace must be None, 'write' or 'add'"),
        ({"inplace": "add", "vjp": None}, "pass one of them"),
        ({"inplace": "add", "check_batched_grad": True}, "derivatives that return"),
        ({"inplace": "add", "check_undefined_grad": True}, "derivatives that return"),
    ],
)
def test_what_is_refused(options, text):
    with pytest.raises(ValueError, match=text):
        calipers.gradcheck(lambda x: x**3, X, **{"vjp": cube_vjp_added, **options})


def test_a_value_and_a_jacobian_are_not_stored():
    with pytest.raises(ValueError, match="inplace= applies to jac=, vjp= and jvp="):
        calipers.gradcheck(np.sin, THREE, value_and_jac=np.sin, inplace="write")


def test_gradients_by_sparse_matrices_are_not_stored():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(ValueError, match="inplace= needs dense inputs"):
        calipers.gradcheck(
            lambda a: a @ THREE, sparse.eye_array(3, format="csr"), vjp=np.multiply, inplace="write"
        )


@modes
@pytest.mark.parametrize("python", [False, True])
def test_a_function_that_leaves_a_result_unwritten(python, fast_mode):
    @numba.njit
    def f(x, out):
        for i in range(1, x.size):
            out[i] = x[i] ** 3

    options = {"vjp": cube_vjp, "inplace": "write", "out_like": X, "fast_mode": fast_mode}
    report = checked(f.py_func if python else f, X, **options)
    text = "f does not overwrite its output arrays (out_like=): 1 of 70 results"
    assert report.reason.startswith(text)

    def added(x, out):
        out += x**3

    assert checked(added, X, **options).reason.startswith("f does not overwrite")


def test_a_function_of_a_container_that_leaves_a_result_unwritten():
    def f(p, out):
        out[1:] = p["x"][1:] ** 3

    report = checked(f, {"x": X}, vjp=lambda p, w: {"x": 3 * p["x"] ** 2 * w}, out_like=X)
    text = "f does not overwrite its output arrays (out_like=): 1 of 70 results"
    assert report.reason.startswith(text)


def test_the_values_of_out_like_do_not_matter_to_a_checkpoint(tmp_path):
    for value in (1.0, np.nan):
        options = {"out_like": np.full(X.shape, value), "checkpoint": tmp_path}
        assert calipers.gradcheck(cube.py_func, X, vjp=lambda x, w: 3 * x**2 * w, **options)


def test_a_tensor_and_a_derivative_of_arrays():
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    assert calipers.gradcheck(np.sin, (x,), vjp=lambda x, w: w * np.cos(x))


def test_the_shape_of_a_result_is_no_array():
    with pytest.raises(TypeError, match="out_like must be an array like f's result"):
        calipers.gradcheck(cube, X, vjp=cube_vjp, out_like=(70, 2))


@pytest.mark.parametrize("name", ["inplace", "out_like", "value_and_jac", "jac"])
def test_second_derivatives_are_returned(name):
    second = {"vjp": np.multiply, "vjp_vjp": lambda x, w, u: (w * u, x * u)}
    with pytest.raises(ValueError, match=f"gradgradcheck takes no {name}="):
        calipers.gradgradcheck(np.square, X, **second, **{name: X})


# Case 16: the value that comes with a Jacobian.


@modes
def test_case_16_a_value_that_is_not_fs(fast_mode):
    def value_and_jac(x, shift=0.0):
        return np.sin(x) + shift, np.diag(np.cos(x))

    options = {"fast_mode": fast_mode}
    assert calipers.gradcheck(np.sin, X, value_and_jac=value_and_jac, **options)
    shift = np.sqrt(np.finfo(float).eps)
    off = {"value_and_jac": lambda x: value_and_jac(x, shift), **options}
    report = checked(np.sin, X, **off, rtol=0.0, atol=1e-9)
    assert report.verdict == "FAIL"
    assert "primal" in report.reason
    assert checked(np.sin, X, **off, atol=1e-6).verdict == "PASS"
    report = checked(np.sin, X, value_and_jac=lambda x: value_and_jac(x)[1], **options)
    assert "value_and_jac returned ndarray, expected (value, jac)" in report.reason
    report = checked(
        np.sin, X, value_and_jac=lambda x: (np.sin(x[1:]), np.diag(np.cos(x))), **options
    )
    assert "shapes" in report.reason


def test_case_16_the_jacobian_beside_a_value_is_checked():
    report = checked(np.sin, X, value_and_jac=lambda x: (np.sin(x), np.diag(-np.cos(x))))
    assert report.verdict == "FAIL"
    assert report.forms == ("jac",)
    with pytest.raises(ValueError, match="pass only one of them"):
        calipers.gradcheck(np.sin, X, value_and_jac=np.sin, jac=np.cos)
    with pytest.raises(TypeError, match="value_and_jac must be callable"):
        calipers.gradcheck(np.sin, X, value_and_jac=3)


def test_more_than_a_value_and_a_jacobian_is_refused():
    report = checked(np.sin, THREE, value_and_jac=lambda x: (np.sin(x), np.diag(np.cos(x)), None))
    assert "value_and_jac returned tuple of 3, expected (value, jac)" in report.reason


def test_a_value_that_is_nan_like_fs_is_no_other():
    factors = np.array([np.nan, 2.0, 3.0])

    def value_and_jac(x):
        return factors * x, np.where(np.isnan(factors)[:, None], np.nan, np.diag(factors))

    options = {"value_and_jac": value_and_jac, "equal_nan": True}
    assert checked(lambda x: factors * x, THREE, **options).verdict == "PASS"


def test_values_that_are_none_of_f():
    def both(value):
        return {"value_and_jac": lambda x: (value, np.diag(np.cos(x)))}

    assert "NoneType" in checked(np.sin, THREE, **both(None)).reason
    assert "complex" in checked(np.sin, THREE, **both(1j * THREE)).reason
    forward = {"check_backward_ad": False, "jvp": sine_vjp, "check_forward_ad": True}
    assert calipers.gradcheck(np.sin, THREE, **both(THREE), **forward)


# Steps for several inputs (69).


def scaled(x, y):
    return 1e-6 * x + np.sin(1e4 * y)


def scaled_vjp(x, y, w):
    return 1e-6 * w, 1e4 * np.cos(1e4 * y) * w


@modes
def test_case_69_steps_for_each_of_several_inputs(fast_mode):
    x, y = np.array([1e8, 2e8]), np.array([1e-4, 2e-4])
    seen = []

    def f(x, y):
        seen.append((x, y))
        return scaled(x, y)

    options = {"vjp": scaled_vjp, "fast_mode": fast_mode}
    steps = np.array([1e2, 1e3]), 1e-9
    assert calipers.gradcheck(f, (x, y), step=steps, **options)
    if not fast_mode:
        moved = {float(abs(a - x).max()) for a, _ in seen}
        assert {100.0, 1000.0} <= moved
        assert max(float(abs(b - y).max()) for _, b in seen) < 1e-6
    assert calipers.gradcheck(f, (x, y), scale=(1e8, 1e-4), **options)


@modes
def test_bounds_for_each_of_several_inputs(fast_mode):
    def f(x, y):
        assert np.all(x >= 1)
        return x * y

    x, y = np.array([1.0, 2.0]), np.array([1.0, 2.0])
    options = {"vjp": lambda x, y, w: (w * y, w * x), "fast_mode": fast_mode}
    assert calipers.gradcheck(f, (x, y), bounds=((1.0, np.inf), None), **options)
    with pytest.raises(ValueError, match="bounds must be a tuple of 2 pairs"):
        calipers.gradcheck(f, (x, y), bounds=(1.0, np.inf), **options)
    with pytest.raises(ValueError, match="step must be a tuple of 2 numbers or arrays"):
        calipers.gradcheck(f, (x, y), step=np.array([1e-3, 1e-3]), **options)


# Case 46: tangents of None.


@modes
def test_case_46_a_tangent_of_none_is_one_of_zeros(fast_mode):
    def push(x, y, v):
        a, b = (0 * x if t is None else t for t, x in zip(v, (x, y), strict=True))
        return a * y + x * b

    given = {"vjp": lambda x, y, w: (0 * x, 0 * y) if w is None else (w * y, w * x)}
    options = {"check_undefined_grad": True, "fast_mode": fast_mode, **given}
    assert calipers.gradcheck(np.multiply, (X, X), jvp=push, **options)
    report = checked(np.multiply, (X, X), jvp=lambda x, y, v: v[0] * y + x * v[1], **options)
    assert "jvp raises for a tangent of None" in report.reason

    def wrong(x, y, v):
        return x * y if v[0] is None else push(x, y, v)

    report = checked(np.multiply, (X, X), jvp=wrong, **options)
    assert "jvp returns different results for a tangent of None" in report.reason


@pytest.mark.parametrize("absent", [0, 1])
def test_a_tangent_of_none_for_either_input_is_one_of_zeros(absent):
    def push(x, y, v):
        a, b = (np.zeros(3) if t is None else t for t in v)
        alone = v[absent] is None and v[1 - absent] is not None
        return (a * y + x * b) * (2 if alone else 1)

    options = {"jvp": push, "vjp": lambda x, y, w: (0 * x, 0 * y) if w is None else (w * y, w * x)}
    assert checked(np.multiply, (THREE, THREE), **options).verdict == "PASS"
    report = checked(np.multiply, (THREE, THREE), check_undefined_grad=True, **options)
    assert "jvp returns different results for a tangent of None" in report.reason


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of forward mode
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_case_46_libraries_take_none(library):
    module = pytest.importorskip(library)
    if library == "torch":
        inputs = tuple(module.tensor(X[:3], requires_grad=True) for _ in range(2))
    else:
        inputs = tuple(module.numpy.asarray(X[:3]) for _ in range(2))
    options = {"check_forward_ad": True}
    if library == "torch":
        options["check_undefined_grad"] = True
    assert calipers.gradcheck(lambda x, y: x * y, inputs, **options)
