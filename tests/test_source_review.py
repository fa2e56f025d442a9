"""Faults that a reading of the source has found: of threads, processes, files, names and types."""

import json
import signal
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess

import numba
import numpy as np
import pytest

import calipers
from calipers import _refusals, _threads
from calipers._differences import pools
from calipers._differences.fingerprint import digest
from calipers._differences.problem import REAL, Problem
from calipers._files.worker import Worker

X = np.linspace(0.5, 1.5, 6)


def test_a_process_that_does_not_start_leaves_signals_as_they_were(monkeypatch):
    def start(self):
        raise OSError("no more processes")

    monkeypatch.setattr(SpawnProcess, "start", start)
    before = signal.getsignal(signal.SIGINT)
    with Worker() as worker:
        for _ in range(2):
            with pytest.raises(OSError, match="no more processes"):
                worker.compare_files("a.npy", "b.npy", "", None, print)
    assert signal.getsignal(signal.SIGINT) is before


def test_no_helper_outlives_a_call_whose_own_share_fails():
    begun, ended = threading.Event(), []

    def work(task):
        if threading.current_thread() is threading.main_thread():
            begun.wait(5)
            raise RuntimeError("of this thread")
        begun.set()
        threading.Event().wait(0.2)
        ended.append(task)
        return -1

    with pytest.raises(RuntimeError, match="of this thread"):
        _threads.first_found(work, 2, 2)
    assert ended


def test_what_a_helper_raises_is_raised():
    begun = threading.Event()

    def work(task):
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            raise RuntimeError("of a helper")
        begun.wait(5)
        return -1

    with pytest.raises(RuntimeError, match="of a helper"):
        _threads.first_found(work, 2, 2)


def test_threads_are_resized_while_others_ask():
    failures, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            try:
                calipers.allclose_async([1.0], [1.0]).result()
            except RuntimeError as error:
                failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    for size in 200 * [2, 3]:
        with calipers.num_threads(size):
            pass
    stop.set()
    asking.join()
    assert not failures


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("method", ["3-point", "adaptive"])
def test_what_f_raises_in_a_sparse_jacobian_names_the_color(compiled, method):
    sparse = pytest.importorskip("scipy.sparse")

    def f(x):
        if x[1] != 0.7:
            raise ValueError("moved")
        return x * x

    if compiled:
        f = numba.njit(f)
    options = {"sparsity": (sparse.eye_array(6), np.arange(6)), "method": method}
    with pytest.raises(ValueError, match="moved") as caught:
        calipers.jacobian(f, X, **options)
    assert any("color 1 displaced" in note for note in caught.value.__notes__)


def test_a_sparse_derivative_goes_nowhere_as_an_array():
    sparse = pytest.importorskip("scipy.sparse")
    d = calipers.differentiate(np.sin, X, sparsity=sparse.eye_array(6))
    with pytest.raises(TypeError, match=r"take \.value"):
        np.asarray(d)


@pytest.mark.parametrize(
    ("dtype", "largest", "x"),
    [("bfloat16", 3.3895e38, 1e20), ("float8_e4m3", 448.0, 60.0), ("float8_e5m2", 57344.0, 5e3)],
)
def test_results_beyond_a_narrow_format_are_no_fault_of_either_side(dtype, largest, x):
    def held(y):
        """Give what the format gives, and in binary64 all of it."""
        return y if y.dtype == float else np.where(np.abs(y) > largest, np.inf, y).astype(y.dtype)

    inputs = np.array([x, *X], np.float32)
    f, g = (lambda x: held(x * x * x)), (lambda x: held(np.exp(3 * np.log(x))))
    assert calipers.diagnose(f, g, inputs, dtype=dtype).kind == "ROUNDING"


def test_files_that_cannot_be_read_are_not_unequal(tmp_path):
    path = tmp_path / "x.bin"
    np.ones(5000).tofile(path)
    cut = np.memmap(path, dtype=float)
    with open(path, "r+b") as file:
        file.truncate(800)
    with pytest.raises(OSError, match="was cut"):
        calipers.array_equal(cut, np.ones(5000))


def test_columns_in_blocks_are_refused_at_once():
    with pytest.raises(TypeError, match="nonsense"):
        calipers.jacobian_blocks(np.sin, X, nonsense=1)
    with pytest.raises(ValueError, match="block must be at least 1"):
        calipers.jacobian_blocks(np.sin, X, block=0)


@pytest.mark.parametrize("option", [{"workers": 2}, {"progress": True}])
def test_a_product_takes_no_workers(option):
    with pytest.raises(TypeError, match="unexpected keyword"):
        calipers.jvp(np.sin, X, X, **option)


@pytest.mark.parametrize(
    "call",
    [
        lambda: calipers.allclose(X, X, rtol=np.inf),
        lambda: calipers.isclose(X, X, rtol=np.inf),
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
    with _refusals.listening(lambda *call: told.append(call)):
        calipers.gradcheck(
            lambda x: np.sin(x) + 1e-16 * next(state),
            X,
            jac=lambda x: np.diag(np.cos(x)),
            nondet_tol=1e-9,
        )
        calipers.diagnose(lambda x: np.add(x, 1.0, out=x), lambda x: x + 1.0, X)
    assert not told


def test_arrays_alone_name_the_side_whose_results_are_not_finite():
    actual, expected = np.ones(5, np.float32), np.ones(5, np.float32)
    actual[0], expected[:3] = np.inf, np.inf
    found = calipers.compare_to_reference(actual, expected, np.ones(5))
    assert "expected has 3 results" in found.reason


def test_options_of_compiled_functions_have_values():
    def f(x):
        return x

    fast, exact = (numba.njit(fastmath=choice)(f) for choice in (True, False))
    assert digest(fast) != digest(exact)


def test_a_manifest_that_is_no_object_is_damaged(tmp_path):
    folder = tmp_path / "kept"
    calipers.jacobian(np.sin, X, checkpoint=folder)
    (manifest,) = folder.glob("*.json")
    manifest.write_text(json.dumps([]))
    with pytest.raises(ValueError, match="is damaged: delete the folder"):
        calipers.jacobian(np.sin, X, checkpoint=folder)


def test_positions_may_be_integers_of_numpy():
    one = np.int64(1)
    expected = calipers.jacobian(lambda a, x: a * x, X, args=(2.0,), argnums=1)
    found = calipers.jacobian(lambda a, x: a * x, X, args=(2.0,), argnums=one)
    assert np.array_equal(found, expected)
    planned = calipers.jacobian_function(lambda a, x: a * x, argnums=one)
    assert np.array_equal(planned(2.0, X), expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda args: calipers.jacobian(np.multiply, X, args=args),
        lambda args: calipers.jvp(np.multiply, X, X, args=args),
        lambda args: calipers.vjp(np.multiply, X, X, args=args),
        lambda args: calipers.hessian(np.multiply, X, args=args),
        lambda args: calipers.jacobian_function(np.multiply, X, args=args),
    ],
)
@pytest.mark.parametrize("args", [5, np.array([2.0, 3.0])])
def test_other_arguments_come_in_a_tuple(call, args):
    with pytest.raises(TypeError, match="args must be a tuple"):
        call(args)


def test_a_pool_that_is_made_anew_renews_its_processes_as_often():
    given = {"mp_context": get_context("spawn"), "max_tasks_per_child": 3}
    with ProcessPoolExecutor(1, **given) as broken, pools.anew(broken) as pool:
        assert pool._max_tasks_per_child == 3


def test_a_known_value_is_kept_once():
    problem = Problem(np.sin, (), X, (), {}, REAL, False, known=np.sin(X))
    assert not [name for name, value in vars(problem).items() if name == "known"]
    assert np.array_equal(problem.base, np.sin(X))
