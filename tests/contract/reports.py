"""Reports and messages for simple numbers, and the output of the command line."""

import contextlib
import io
import json
import os
import runpy
import sys
import tempfile
from unittest import mock

import numpy as np

import calipers
from calipers import golden, probes, testing
from tests.contract.texts import without_environment

A = np.arange(12.0).reshape(3, 4)
X = np.array([0.5, 1.0, 2.0])
MATRIX = np.array([[1.0, 2.0, 0.5], [0.25, 3.0, -1.0], [4.0, 1.0, 2.0]])
ROWS = np.random.default_rng(0).integers(-9, 10, (8, 64)).astype(np.float32) / 7
REPORTS = {}


def reports(**makers):
    REPORTS.update(makers)


def text_of(report):
    """Return the text of a report or an error, without the elapsed time."""
    name = f"{type(report).__name__}: " if isinstance(report, BaseException) else ""
    return without_environment(f"{name}{report}")


def raised(f, *arguments, **options):
    """Return the error that a call raises."""
    try:
        f(*arguments, **options)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def changed(x, index, value):
    y = x.copy()
    y[index] = value
    return y


# compare


def compared(actual, expected, **options):
    return calipers.compare(actual, expected, **options)


MIXED = {"w": A, "layers": [{"b": A[0], "n": 3}, {"b": A[1], "n": 4}], "name": "model"}
OTHER = {"w": A + 1, "layers": [{"b": A[0], "n": 3}, {"b": A[1] * 1.01, "n": 5}], "step": 1}
RECORD = np.array([(1.0, 2, b"a"), (3.0, 4, b"b")], [("mag", "f8"), ("id", "i4"), ("tag", "S1")])

reports(
    compare_close=lambda: compared(A, A + 1e-9),
    compare_far=lambda: compared(changed(A, (1, 2), 6.5), A),
    compare_all=lambda: compared(A * 1.001, A),
    compare_nan=lambda: compared(changed(A, (0, 1), np.nan), changed(A, 2, [np.nan, np.inf, 1, 2])),
    compare_transposed=lambda: compared(A[:, :3].T, A[:, :3]),
    compare_shifted=lambda: compared(np.roll(A.ravel(), 1), A.ravel()),
    compare_shapes=lambda: compared(A, A[:2]),
    compare_dtypes=lambda: compared(A, A.astype(np.float32)),
    compare_integers=lambda: compared(np.array([2**60, 5, 7]), np.array([2**60 + 1, 5, 9])),
    compare_complex=lambda: compared(A + 1j, A + 1.5j),
    compare_bool=lambda: compared(A > 3, A > 4),
    compare_text=lambda: compared(np.array(["a", "b"]), np.array(["a", "c"])),
    compare_ulp=lambda: compared(np.nextafter(A, 99), A, max_ulp=0),
    compare_float32=lambda: compared(np.float32(A) * np.float32(1.01), np.float32(A)),
    compare_dates=lambda: compared(
        np.array(["2024-01-01", "NaT"], "M8[D]"), np.array(["2024-01-03", "2024-01-01"], "M8[D]")
    ),
    compare_masked=lambda: compared(np.ma.array(A, mask=A > 9), np.ma.array(A + 1, mask=A > 8)),
    compare_fields=lambda: compared(RECORD, changed(RECORD, 1, (3.5, 5, b"c"))),
    compare_region=lambda: compared(changed(A, (slice(1, 3), slice(0, 2)), 50.0), A),
    compare_few=lambda: compared(changed(A, (0, 0), 5.0), A, max_mismatches=1),
    compare_nested=lambda: compared(MIXED, OTHER),
    compare_nested_close=lambda: compared(MIXED, MIXED),
    compare_lengths=lambda: compared([A, A], [A, A, A]),
    compare_many=lambda: compared(dict.fromkeys(range(20), A + 1), dict.fromkeys(range(20), A)),
    assert_close=lambda: raised(calipers.assert_close, A, A + 0.5, msg="of the layer"),
    assert_allclose=lambda: raised(testing.assert_allclose, A, A * 1.01, err_msg="of the layer"),
    assert_array_less=lambda: raised(testing.assert_array_less, A, A.T.copy().reshape(3, 4)),
    assert_max_ulp=lambda: raised(testing.assert_array_max_ulp, A + 1e-9, A),
    approx=lambda: calipers.approx(A[0], rtol=1e-3, atol=0).compare(A[0] + 1),
)


# diagnose


def row_sums(x):
    return x.sum(axis=1)


def running_sums(x):
    return np.cumsum(x, axis=1)[:, -1]


def off_by_a_thousandth(x):
    return x.sum(axis=1) * x.dtype.type(1.001)


def in_half(x):
    return (x.astype(np.float16).astype(x.dtype)).sum(axis=1)


def variance(x):
    return ((x - x.mean(axis=1, keepdims=True)) ** 2).mean(axis=1)


def variance_in_one_pass(x):
    return (x * x).mean(axis=1) - x.mean(axis=1) ** 2


def norm(x):
    return np.sqrt((x * x).sum(axis=1))


def scaled_norm(x):
    scale = np.abs(x).max(axis=1, keepdims=True)
    return scale[:, 0] * np.sqrt(((x / scale) ** 2).sum(axis=1))


def changing():
    """Return a sum with a random relative error, different in each call."""
    random = np.random.default_rng(0)
    return lambda x: x.sum(axis=1) * x.dtype.type(1 + 0.1 * random.random())


def raises(x):
    raise ZeroDivisionError("no rows")


def to_reference(factor):
    x = np.float32([1, 2.5, 4])
    return calipers.compare_to_reference(x * np.float32(factor), x, x.astype(float))


reports(
    diagnose_equal=lambda: calipers.diagnose(row_sums, row_sums, ROWS),
    diagnose_rounding=lambda: calipers.diagnose(row_sums, running_sums, ROWS),
    diagnose_bug=lambda: calipers.diagnose(row_sums, off_by_a_thousandth, ROWS),
    diagnose_reduced=lambda: calipers.diagnose(row_sums, in_half, ROWS),
    diagnose_unstable=lambda: calipers.diagnose(variance, variance_in_one_pass, ROWS + 500),
    diagnose_range=lambda: calipers.diagnose(norm, scaled_norm, ROWS[:1] * np.float32(1e25)),
    diagnose_amplified=lambda: calipers.diagnose(
        lambda x: row_sums(x - 10000), lambda x: running_sums(x - 10000), ROWS + 10000
    ),
    diagnose_nondeterministic=lambda: calipers.diagnose(row_sums, changing(), ROWS),
    diagnose_raises=lambda: calipers.diagnose(row_sums, raises, ROWS),
    diagnose_shapes=lambda: calipers.diagnose(row_sums, lambda x: x.sum(axis=0), ROWS),
    diagnose_budget=lambda: calipers.diagnose(row_sums, off_by_a_thousandth, (ROWS,), budget=3),
    diagnose_without_reference=lambda: calipers.diagnose(
        row_sums, running_sums, ROWS, reference=None, reduction=9, seed=3
    ),
    reference_rounding=lambda: to_reference(1 + 2.0**-23),
    reference_suspect=lambda: to_reference(1.0001),
    reference_equal=lambda: to_reference(1),
)


# gradcheck


def cubes(x):
    return MATRIX @ (x * x * x)


def cubes_vjp(x, w):
    return 3 * x * x * (MATRIX.T @ w)


def checked(f, inputs, **options):
    return calipers.gradcheck(f, inputs, raise_exception=False, **options)


def second(**options):
    return calipers.gradgradcheck(cubes, X, vjp=cubes_vjp, raise_exception=False, **options)


def pull(x, w, u):
    return 6 * x * u * (MATRIX.T @ w), cubes_jac(x) @ u


def skewed_pull(x, w, u):
    by_x, by_w = pull(x, w, u)
    return by_x + 0.01 * np.roll(u, 1), by_w


def cubes_jac(x):
    return MATRIX * (3 * x * x)


def cubes_jvp(x, v):
    return cubes_jac(x) @ v


def wrong_vjp(x, w):
    return 1.1 * cubes_vjp(x, w)


def parameters(p):
    return {"y": p["w"] * p["b"], "z": p["b"] ** 2}


def parameters_vjp(p, w):
    return {"w": w["y"] * p["b"], "b": w["y"] * p["w"] + w["z"] * p["b"]}


def noisy(x):
    return x + 1e-3 * (np.rint(x * 1e12) % 7)


reports(
    gradcheck_pass=lambda: checked(cubes, X, vjp=cubes_vjp),
    gradcheck_sign=lambda: checked(cubes, X, jac=lambda x: -cubes_jac(x)),
    gradcheck_factor=lambda: checked(cubes, X, vjp=lambda x, w: 2 * cubes_vjp(x, w)),
    gradcheck_entry=lambda: checked(
        cubes,
        X,
        jac=lambda x: changed(cubes_jac(x), (1, 2), 1.0),
        jvp=lambda x, v: cubes_jac(x) @ v,
    ),
    gradcheck_transposed=lambda: checked(lambda x: MATRIX @ x, X, jac=lambda x: MATRIX.T),
    gradcheck_shape=lambda: checked(cubes, X, vjp=lambda x, w: np.ones(2)),
    gradcheck_kink=lambda: checked(np.abs, np.array([0.0]), vjp=lambda x, w: 0.5 * w),
    gradcheck_noise=lambda: checked(noisy, X, vjp=lambda x, w: w),
    gradcheck_fast=lambda: checked(
        cubes, X, vjp=lambda x, w: 1.1 * cubes_vjp(x, w), fast_mode=True
    ),
    gradcheck_containers=lambda: checked(parameters, {"w": X, "b": X + 1}, vjp=parameters_vjp),
    gradcheck_complex=lambda: checked(lambda z: z * z, X + 1j, vjp=lambda z, w: 2 * z * w),
    gradcheck_method=lambda: checked(
        cubes, X, vjp=lambda x, w: w, method="3-point", rtol=1e-3, atol=1e-6, seed=2
    ),
    gradcheck_float32=lambda: checked(
        lambda x: x * x, X.astype(np.float32), vjp=lambda x, w: np.float32(2.1) * x * w
    ),
    gradcheck_raised=lambda: raised(calipers.gradcheck, cubes, X, vjp=lambda x, w: w),
    gradgradcheck_pass=lambda: second(vjp_vjp=pull),
    gradgradcheck_skewed=lambda: second(vjp_vjp=skewed_pull),
    gradgradcheck_first=lambda: calipers.gradgradcheck(
        cubes, X, vjp=lambda x, w: w, vjp_vjp=pull, raise_exception=False
    ),
)


# Derivatives, probes and others


def pieces(x):
    """Return a function that is smooth, has a kink, an edge of its domain, or is constant."""
    with np.errstate(all="ignore"):
        return np.array([x[0] * x[0], abs(x[1]) + x[1], np.sqrt(x[2]), 3.0])


def chains(x):
    y = x * x
    y[1:] += x[:-1] * x[1:]
    return y


def summed(n):
    return np.random.default_rng(n).integers(-9, 10, (50, n)).astype(np.float32) / 7


def golden_check(f):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "record.npz")
        golden.record(path, row_sums, ROWS)
        return golden.check(path, f)


def layered(factor):
    return [
        ("scale", lambda x: 3 * x),
        ("centre", lambda x: x - factor * x.mean()),
        ("abs", np.abs),
    ]


reports(
    differentiate=lambda: calipers.differentiate(pieces, np.array([1.0, 0.0, 0.0, 1.0])),
    differentiate_sparse=lambda: calipers.differentiate(
        chains, np.arange(1.0, 9), sparsity="detect"
    ),
    hessian=lambda: calipers.hessian(lambda x: (x * x * x).sum() + x[0] * x[1], X),
    probes_batch=lambda: probes.batch(lambda x: x - x.mean(axis=0), ROWS),
    probes_layout=lambda: probes.layout(lambda x: x.ravel("K"), ROWS),
    probes_repeat=lambda: probes.repeat(changing(), ROWS),
    probes_range=lambda: probes.range(norm, ROWS * np.float32(1e-25)),
    probes_condition=lambda: probes.condition(lambda x: x[1] - x[0], np.array([1.0, 1 + 2.0**-20])),
    probes_condition_of_matrix=lambda: probes.condition(MATRIX),
    probes_exact=lambda: probes.exact(np.matmul, lambda a, b: a[:, 1:] @ b[1:], [(8, 9), (9, 3)]),
    probes_summation_order=lambda: probes.summation_order(lambda x: np.cumsum(x)[-1], 8),
    probes_layers=lambda: probes.layers(layered(1.001), layered(1), X),
    growth=lambda: calipers.growth(running_sums, row_sums, summed, [16, 64, 256]),
    denormals=lambda: calipers.denormals(np.float32([1, 1e-40, 0, 1e-42])),
    golden_equal=lambda: golden_check(row_sums),
    golden_different=lambda: golden_check(off_by_a_thousandth),
    default_tolerance=lambda: calipers.default_tolerance("float32", "float16"),
    recommended_tolerance=lambda: calipers.recommend_tolerance("bfloat16", 4096, scale=3.0),
    refused_rtol=lambda: raised(calipers.allclose, A, A, rtol=-1, atol="x"),
    refused_pair=lambda: raised(calipers.compare, A, A, rtol=1e-3),
    refused_axis=lambda: raised(calipers.allclose, A, A, axis=5),
    refused_method=lambda: raised(calipers.jacobian, cubes, X, method="4-point"),
    refused_bounds=lambda: raised(calipers.differentiate, cubes, X, bounds=(X + 1, X)),
    refused_budget=lambda: raised(calipers.diagnose, row_sums, row_sums, ROWS, budget="slow"),
    refused_derivative=lambda: raised(calipers.gradcheck, cubes, X),
    refused_dtype=lambda: raised(calipers.gradcheck, cubes, np.arange(3), vjp=cubes_vjp),
    refused_format=lambda: raised(calipers.emulate, np.exp, "float12"),
)


# Command line

MODULE = """\
import numpy as np

def f(x):
    return x * x

def g(x):
    return x * x * x.dtype.type(1.01)

def vjp(x, w):
    return 2 * x * w

def wrong(x, w):
    return 3 * x * w
"""
POINT = ("--shape", "4", "--seed", "1")
COMMANDS = {
    "compare": ("compare", "a.npz", "b.npz"),
    "compare equal": ("compare", "a.npz", "a.npz"),
    "compare folders": ("compare", "d", "e", "--ignore", "z*"),
    "compare json": ("compare", "a.npz", "b.npz", "--json"),
    "compare ignore": ("compare", "a.npz", "b.npz", "--ignore", "w", "--rtol", "1", "--atol", "1"),
    "compare nowhere": ("compare", "a.npz", "nowhere.npz"),
    "gradcheck": ("gradcheck", "code.py:f", "--vjp", "code.py:vjp", *POINT),
    "gradcheck wrong": ("gradcheck", "code.py:f", "--vjp", "code.py:wrong", *POINT),
    "gradcheck json": ("gradcheck", "code.py:f", "--vjp", "code.py:wrong", *POINT, "--json"),
    "diagnose": ("diagnose", "code.py:f", "code.py:g", *POINT),
    "diagnose json": ("diagnose", "code.py:f", "code.py:g", *POINT, "--json"),
}


def command_lines():
    """Run each command in a folder, and return its status, its output and its errors."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        np.savez("a.npz", w=A, b=A[0], s=3)
        np.savez("b.npz", w=changed(A, (1, 2), 6.5), b=A[0] + 1e-12, t=3)
        for name, value in ("d", A), ("e", A + 1):
            os.mkdir(name)
            np.save(f"{name}/x.npy", value)
            np.save(f"{name}/y.npy", A)
            np.save(f"{name}/z.npy", value)
        with open("code.py", "w", encoding="utf-8") as file:
            file.write(MODULE)
        return {name: command_line(*words) for name, words in COMMANDS.items()}


def command_line(*words):
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["calipers", *words]),
        mock.patch.object(sys, "path", list(sys.path)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            runpy.run_module("calipers", run_name="__main__", alter_sys=True)
        except SystemExit as status:
            code = status.code
    record = {"status": code, "error": err.getvalue()}
    if "--json" not in words:
        return record | {"output": without_environment(out.getvalue())}
    found = json.loads(out.getvalue())
    for name in ("seconds", "environment", "reproducer"):
        found.pop(name, None)
    return record | {"json": found}


if __name__ == "__main__":
    print(json.dumps(command_lines()))
