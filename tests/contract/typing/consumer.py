"""
What a type checker knows of each public name, for users of an installed calipers.

Nothing here is called: `tests/contract/test_typing.py` hands the file to mypy and pyright.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from multiprocessing import Pool
from typing import TYPE_CHECKING, Any, assert_type

import numpy as np
import numpy.typing as npt

import calipers
from calipers import golden, probes, testing

if TYPE_CHECKING:
    from scipy.optimize import Bounds
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import LinearOperator

Array = np.ndarray[Any, np.dtype[Any]]
Reals = npt.NDArray[np.float64]


class Tensor:
    """An array of a library that is none of calipers' own."""

    shape = (2,)
    dtype = "float32"


def function(x: Reals) -> Reals:
    return x**2


def comparisons(a: Reals, b: Reals, tensor: Tensor, zs: npt.NDArray[np.complex128]) -> None:
    assert_type(calipers.allclose(a, b), bool)
    assert_type(calipers.allclose(a, b, rtol=a, axis=None), bool)
    assert_type(calipers.allclose(a, b, axis=1), Any)  # of the inputs' library
    assert_type(calipers.allclose([1.0], zs, 1e-3, 0, True), bool)
    assert_type(calipers.isclose(1.0, np.float32(2)), np.bool)
    assert_type(calipers.isclose(a, [1.0, 2.0]), np.ndarray[Any, np.dtype[np.bool]])
    assert_type(calipers.isclose(1, a, atol=a), np.ndarray[Any, np.dtype[np.bool]])
    assert_type(calipers.isclose(a, tensor), Any)  # of the inputs' library
    assert_type(calipers.allclose([timedelta(1)], timedelta(1), atol=timedelta(0)), bool)
    assert_type(calipers.allclose(iter([a, a]), iter([tensor])), bool)
    assert_type(calipers.allclose(Fraction(1, 3), Decimal(1)), bool)
    assert_type(calipers.array_equal(a, tensor, equal_nan=True), bool)
    assert_type(calipers.allfinite(a), bool)
    assert_type(calipers.first_nonfinite(a), tuple[int, ...] | None)
    pending = calipers.allclose_async(a, b)
    assert_type(pending, calipers.PendingBool)
    assert_type(pending.result(), bool)
    assert_type(pending.done(), bool)


async def awaited(a: Reals) -> None:
    assert_type(await calipers.allclose_async(a, a), bool)


def reports(a: Reals, tensor: Tensor, anything: object) -> None:
    report = calipers.compare(a, a, max_ulp=2)
    calipers.assert_close(a, a, rtol=0, atol=np.timedelta64(1, "s"))
    assert_type(report, calipers.Comparison)
    assert_type(calipers.compare(tensor, tensor, rtol=0.1, atol=0), calipers.Comparison)
    assert_type(calipers.compare([1.0, 2.0], 1.0), calipers.Comparison)
    nested = calipers.compare({"w": a}, {"w": a})
    assert_type(nested, calipers.NestedComparison)
    assert_type(
        calipers.compare(anything, anything), calipers.Comparison | calipers.NestedComparison
    )
    assert_type(report.worst("ulp"), calipers.Difference | None)
    assert_type(report.first_mismatches, tuple[calipers.Difference, ...])
    assert_type(report.mismatches, int)
    assert_type(report.passing_rtol, float | None)
    assert_type(report.merge(report), calipers.Comparison)
    assert_type(report.to_dict(), dict[str, Any])
    assert_type(nested.failing, tuple[calipers.Comparison, ...])
    assert_type(nested.worst, calipers.Comparison | None)
    near = calipers.approx(a, rtol=1e-3, atol=0.0)
    assert_type(near, calipers.Approx)
    assert_type(near == a, bool)
    assert_type(near.compare(a), calipers.Comparison | calipers.NestedComparison)
    try:
        calipers.assert_close(a, a, msg=lambda text: text, tolerance=(1e-3, 0.0))
    except calipers.ClosenessError as error:
        assert_type(error.report, calipers.Comparison | calipers.NestedComparison | None)


def derivatives(x: Reals, z: npt.NDArray[np.complex128], tensor: Tensor) -> None:
    assert_type(calipers.jacobian(function, x), Array)
    assert_type(calipers.jacobian(function, 1), Array)
    assert_type(calipers.jacobian(function, [[0.5, 1.0]], method="cs", workers=2), Array)
    with ThreadPoolExecutor() as executor, Pool() as pool:
        calipers.jacobian(function, x, workers=executor, bounds=(0, [1.0, 2.0]), out_like=3)
        calipers.vjp(function, x, x, workers=pool, scale=x)
        calipers.vjp(function, x, x, workers=pool.imap)
    assert_type(calipers.jacobian(function, z), Any)  # a pair, if f is not holomorphic
    assert_type(calipers.jacobian(function, tensor), Any)  # of its library, on a device
    assert_type(calipers.jacobian(function, (x, x), argnums=(0, 1)), tuple[Any, ...])
    d = calipers.differentiate(function, x, sparsity="detect", progress=lambda done, total: None)
    assert_type(d, calipers.Derivative)
    assert_type(
        calipers.differentiate(function, (x, x), argnums=(0, 1)), tuple[calipers.Derivative, ...]
    )
    assert_type(d.status, Array)
    assert_type(d.nfev, int)
    assert_type(d.colors, int | None)
    assert_type(calipers.hessian(None, x, gradient=function, method="3-point"), calipers.Derivative)
    assert_type(calipers.jvp(function, x, x, step=1e-3), Array)
    assert_type(calipers.jvp(function, tensor, tensor), Any)
    assert_type(calipers.vjp(function, x, x), Array)
    blocks = calipers.jacobian_blocks(function, x, block=3)
    assert_type(blocks, Iterator[tuple[slice, Array]])
    solver_takes: Callable[..., Any] = calipers.jacobian_function(function, x, args=(1,))
    del solver_takes


def of_scipy(x: Reals) -> None:
    assert_type(calipers.jacobian(function, x, sparsity="detect", scale=1.0), csc_array[Any])
    pattern = csc_array(np.eye(2))
    calipers.jacobian(function, x, sparsity=pattern, bounds=Bounds(0, 1))
    calipers.differentiate(function, x, sparsity=(pattern, [0, 1]))
    operator = calipers.linear_operator(function, x, holomorphic=True)
    assert_type(operator, LinearOperator[Any])


def checks(x: Reals) -> None:
    report = calipers.gradcheck(function, x, jac=function, allow={"NONSMOOTH"}, inplace="add")
    assert_type(report, calipers.GradcheckReport)
    assert_type(report.verdict, str)
    assert_type(report.unresolved, float)
    second = calipers.gradgradcheck(function, x, vjp=function, vjp_vjp=function, fast_mode=True)
    assert_type(second, calipers.GradcheckReport)
    for kind in (
        calipers.WrongDerivativeError,
        calipers.NonsmoothError,
        calipers.InconclusiveError,
    ):
        assert_type(kind(report).report, calipers.GradcheckReport)
    error: calipers.GradcheckError = calipers.WrongDerivativeError(report)
    warning: UserWarning = calipers.CalipersWarning("what")
    del error, warning


def diagnoses(x: Reals, path: os.PathLike[str]) -> None:
    found = calipers.diagnose(function, function, x, reference="f", budget="quick", batch=())
    assert_type(found, calipers.Diagnosis)
    assert_type(found.worst, tuple[calipers.Worst, ...])
    assert_type(found.recommend_tolerance(), calipers.Tolerance)
    assert_type(found.ok(["ROUNDING"]), bool)
    assert_type(calipers.compare_to_reference(x, x, x), calipers.Diagnosis)
    grown = calipers.growth(function, function, lambda n: np.ones(n), [8, 16])
    assert_type(grown, calipers.Growth)
    assert_type(grown.slope, float)
    assert_type(calipers.emulate(function, "tf32", where="inputs")(x), Reals)
    assert_type(calipers.emulate(np.sqrt, "tf32", rounding="truncate")(x), Any)
    assert_type(calipers.emulate(function, np.float16)(x), Reals)
    assert_type(calipers.emulate(function, np.dtype("f2"))(x), Reals)
    assert_type(calipers.emulated_matmul(x, x, "bfloat16", accumulate="float32"), Any)
    assert_type(calipers.denormals(x, "float16"), calipers.Denormals)
    assert_type(calipers.recommend_tolerance("float32", 100), calipers.Tolerance)
    assert_type(calipers.default_tolerance("float32", x.dtype).rtol, float)
    golden.record(path, function, x)
    kept = golden.check("kept.npz", function)
    assert_type(kept, golden.GoldenCheck)
    assert_type(kept.kind, str)


def probing(x: Reals) -> None:
    trials = probes.batch(function, x, (0,))
    assert_type(trials, probes.Trials)
    assert_type(trials.trials, tuple[probes.Trial, ...])
    assert_type(probes.layout(function, x), probes.Trials)
    assert_type(probes.repeat(function, x, times=4), probes.Trials)
    assert_type(probes.range(function, x), probes.Range)
    assert_type(probes.exact(function, function, x), probes.Exact)
    assert_type(probes.condition(x), probes.Condition)
    assert_type(probes.summation_order(np.sum, 8), probes.SummationOrder)
    found = probes.layers([("a", function)], [("a", function)], x)
    assert_type(found, probes.Layers)
    assert_type(found.first, probes.Layer | None)


def assertions(a: Reals, tensor: Tensor) -> None:
    for compare in (
        testing.assert_allclose,
        testing.assert_equal,
        testing.assert_almost_equal,
        testing.assert_approx_equal,
        testing.assert_array_almost_equal,
        testing.assert_array_almost_equal_nulp,
        testing.assert_array_equal,
        testing.assert_array_less,
        testing.assert_close,
    ):
        assert_type(compare(a, tensor), None)
    assert_type(testing.assert_allclose(a, [1.0], 1e-3, err_msg="of a", strict=True), None)
    assert_type(testing.assert_close([a], [a], rtol=0.1, atol=0.0, check_dtype=False), None)
    assert_type(testing.assert_array_compare(np.less, a, a, header="less"), None)
    assert_type(testing.assert_array_max_ulp(a, a, maxulp=2), Array)
    with testing.assert_raises(testing.KnownFailureException) as raised:
        assert_type(testing.IS_PYPY, bool)
    assert_type(raised.exception, testing.KnownFailureException)


def settings() -> None:
    assert_type(calipers.__version__, str)
    assert_type(calipers.get_num_threads(), int)
    calipers.set_num_threads(2)
    with calipers.num_threads(1):
        calipers.warmup()
    limited: AbstractContextManager[None] = calipers.num_threads(1)
    del limited
    calipers.show_config()
    assert_type(calipers.show_config("dicts", devices=True), dict[str, Any])
    assert_type(calipers.show_config(mode="dicts")["threads"], Any)


def mistakes(x: Reals) -> None:
    """Each is an error, or a checker calls the comment needless."""
    calipers.jacobian(function, x, method="4-point")  # type: ignore[call-overload]
    calipers.jacobian(function, x, checkpoints="here")  # type: ignore[call-overload]
    calipers.differentiate(function, x, argnums="x")  # type: ignore[call-overload]
    calipers.jvp(function, x, x, sparsity="detect")  # type: ignore[call-overload]
    calipers.hessian(function, x, rowise=True)  # type: ignore[call-arg]
    calipers.linear_operator(function, x, memory_limit=1)  # type: ignore[call-arg]
    calipers.jacobian_function(function, x, checkpoint="here")  # type: ignore[call-arg]
    calipers.gradcheck(function, x, convention="numpy")  # type: ignore[arg-type]
    calipers.gradgradcheck(function, x, jac=function)  # type: ignore[call-arg]
    calipers.compare(x, x, rtol="1e-3")  # type: ignore[call-overload]
    calipers.compare(x, x).worst("ulps")  # type: ignore[arg-type]
    calipers.diagnose(function, 3, x)  # type: ignore[arg-type]
    calipers.emulate(function, "float12")  # type: ignore[call-overload]
    calipers.show_config("json")  # type: ignore[call-overload]
    calipers.allclose(x, x, axis="rows")  # type: ignore[call-overload]
    calipers.allclose(x, function)  # type: ignore[call-overload]
    calipers.allfinite(None)  # type: ignore[arg-type]
    calipers.jacobian(function, function)  # type: ignore[call-overload]
    calipers.jvp(function, x, x, step=function)  # type: ignore[call-overload]
    calipers.gradcheck(function, x, bounds=1.0)  # type: ignore[arg-type]
    calipers.gradcheck(function, x, workers="all")  # type: ignore[arg-type]
    calipers.compare_to_reference(x, x, function)  # type: ignore[arg-type]
    probes.condition(None)  # type: ignore[arg-type]
    testing.assert_allclose(x, function)  # type: ignore[arg-type]
    calipers.all_close(x, x)  # type: ignore[attr-defined]
    testing.assert_allclose(x, x, rtoll=1e-3)  # type: ignore[call-arg]
    testing.assert_raises(ValueError, match="x")  # type: ignore[call-overload]
    testing.nonexistent_name(1)  # type: ignore[attr-defined]
