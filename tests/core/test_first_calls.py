"""What a terminal shows while kernels are compiled for the first time."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba.core import types

import calipers
from calipers._core import jit
from calipers._core.jit import Compilations, cache_folder, no_cache
from calipers._kernels.closeness import first_mismatch
from tests.core import KERNELS_ONLY
from tests.data.terminal import on_a_terminal

pytestmark = pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")

PAGE = Path(__file__).parents[2] / "docs" / "compile_cache.md"

# Two kernels, each asked for by four threads at once; a thread that is left would be seen.
CALLS = f"""{KERNELS_ONLY}
import threading
import numpy as np, calipers

a = np.arange(10.0)

def call():
    assert calipers.allclose(a, a + 0)
    assert calipers.isclose(a, a + 0).all()

threads = [threading.Thread(target=call) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert threading.active_count() == 1, threading.enumerate()
"""
PATIENT = "import calipers._core.jit\ncalipers._core.jit._ANNOUNCE_AFTER_SECONDS = 100.0\n"
AT_EXIT = f"""{KERNELS_ONLY}
import atexit
import numpy as np, calipers

@atexit.register
def compare():
    print(calipers.allclose(np.ones(3), np.ones(3)))
"""


def test_a_terminal_shows_once_that_kernels_are_compiled_and_not_when_they_are_cached(tmp_path):
    status, _, shown = on_a_terminal("-c", CALLS, NUMBA_CACHE_DIR=tmp_path, HOME=tmp_path.parent)
    assert status == 0
    (folder,) = tmp_path.iterdir()
    where = f"~/{tmp_path.name}/{folder.name}"
    assert shown == f"calipers: compiling kernels for float64 (once; kept in {where})\r\n"
    assert on_a_terminal("-c", CALLS, NUMBA_CACHE_DIR=tmp_path) == (0, "", "")


def test_a_terminal_shows_why_nothing_is_cached(monkeypatch):
    assert no_cache() == "no cache folder is writable, NUMBA_CACHE_DIR may name one"
    monkeypatch.setenv("CALIPERS_CACHE", "0")
    status, _, shown = on_a_terminal("-c", CALLS)
    assert status == 0
    assert shown == f"calipers: compiling kernels for float64 (in each process: {no_cache()})\r\n"
    assert no_cache() == "CALIPERS_CACHE=0 turns the cache off"


def test_the_message_clears_a_progress_bar_and_names_the_folder_in_full(capsys):
    compilations = Compilations()
    compilations.clears_line = True
    dispatcher = SimpleNamespace(stats=SimpleNamespace(cache_path="/cache"))
    compilations._announce(dispatcher, ())
    err = capsys.readouterr().err
    assert err == "\r\033[Kcalipers: compiling kernels (once; kept in /cache)\n"


def test_nothing_is_shown_of_short_compilations():
    assert on_a_terminal("-c", PATIENT + CALLS, CALIPERS_CACHE=0) == (0, "", "")


def test_nothing_is_written_where_standard_error_is_no_terminal():
    done = subprocess.run(
        [sys.executable, "-c", CALLS],
        env=os.environ | {"CALIPERS_CACHE": "0"},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""


def test_nothing_is_shown_while_pytest_captures(tmp_path):
    test = tmp_path / "test_it.py"
    test.write_text("import calipers\ndef test(): assert calipers.allclose([1.0], [1.0])\n")
    status, _, shown = on_a_terminal(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", test), CALIPERS_CACHE=0
    )
    assert status == 0
    assert "compiling" not in shown


def test_calls_while_python_exits_compile_as_well(tmp_path):
    status, out, shown = on_a_terminal("-c", AT_EXIT, NUMBA_CACHE_DIR=tmp_path)
    assert (status, out) == (0, "True\n")
    assert "Traceback" not in shown


def test_the_command_has_lines_in_place_of_the_message(tmp_path):
    code = "from calipers._cli import installation\n"
    code += "installation._COMMON = installation._COMMON[1:2]\n"
    code += "from calipers._cli import main; raise SystemExit(main(['warmup']))"
    status, out, shown = on_a_terminal("-c", code, NUMBA_CACHE_DIR=tmp_path)
    assert (status, shown) == (0, "")
    assert out.splitlines()[0].startswith("isclose                float64  ")
    assert out.splitlines()[0].endswith(" s")
    assert "compiled   3 kernels in " in out


FIRST_CALLS = """
import numba, numpy as np, calipers
from calipers._core.jit import compilations

a = np.linspace(1.0, 2.0, 500)
f = numba.njit(lambda x: x * x)
for dtype in ("f8", "f4", "f2", "i8", "u1", "c16"):
    x = a.astype(dtype)
    y = x.copy()
    y[3] += 2
    assert calipers.allclose(x, x) and not calipers.isclose(x, y)[3]
    assert calipers.compare(x, y).mismatches == 1
assert np.allclose(np.diag(calipers.jacobian(f.py_func, a)), 2 * a)
assert np.allclose(np.diag(calipers.jacobian(f, a)), 2 * a)
assert calipers.diagnose(f, lambda x: x**2, a)
assert compilations.kernels == 0
"""


def test_first_calls_of_few_elements_compile_nothing(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", FIRST_CALLS], env=environment, check=True)


@pytest.fixture
def kernels(monkeypatch):
    """Kernels that return -x, or by NumPy x, which is not implemented for negative x."""
    monkeypatch.setattr(jit, "WORK_TO_COMPILE", 10_000)
    monkeypatch.setattr(jit.Kernels, "is_cached", lambda self, key: False)
    return jit.Kernels(
        lambda x: -x, lambda key: (key,), by_numpy=lambda x: x if x >= 0 else NotImplemented
    )


def test_a_kernel_is_compiled_once_its_work_pays(kernels):
    calls = [kernels.entry_point(types.float64, 2000)(1.0) for _ in range(6)]
    assert calls == [1.0, 1.0, 1.0, 1.0, -1.0, -1.0]  # a call counts for 2048 elements at least
    assert kernels.entry_point(types.float32, 9000)(1.0) == 1.0  # another dtype
    assert kernels.entry_point(types.float32, 2000)(1.0) == -1.0
    assert kernels.entry_point(types.int64, 10_001)(1) == -1


def test_a_kernel_decides_what_numpy_does_not(kernels):
    assert kernels.entry_point(types.float64, 1)(-1.0) == 1.0
    assert types.float64 in kernels


def test_a_kernel_without_a_numpy_version_is_compiled(kernels):
    assert jit.Kernels(lambda x: -x, lambda key: (key,)).entry_point(types.float64, 1)(1.0) == -1.0


def test_a_coordinate_counts_as_many_elements_and_a_call_as_those_of_a_compilation(monkeypatch):
    counted = []
    monkeypatch.setattr(
        jit.Kernels, "is_worth_compiling", lambda self, key, elements: counted.append(elements)
    )
    calipers.jacobian(lambda x: x, np.ones(10))
    assert counted == [640]
    code = """
import numpy as np, calipers
from calipers._core.jit import compilations
x = np.zeros(8_000_000, np.int8)
assert calipers.allclose(x, x) and not compilations.kernels
assert calipers.allclose(x[:400_000], x[:400_000]) and compilations.kernels == 1
"""
    environment = os.environ | {"CALIPERS_CACHE": "0"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


WITHOUT_NUMPY_VERSIONS = """
import numpy as np, calipers

a = np.linspace(1.0, 2.0, 60).reshape(6, 10)
b = a.copy()
b[3, 4] += 1
assert calipers.allclose(a, b, axis=1).tolist() == [True, True, True, False, True, True]
assert calipers.allclose(a, b, axis=0).sum() == 9
assert calipers.allclose(a, a, rtol=np.ones(10)) and not calipers.allclose(a, b, atol=np.zeros(10))
assert calipers.isclose(a, b, rtol=np.zeros(10)).sum() == 59
assert calipers.array_equal(a, a, equal_nan=True) and not calipers.array_equal(a.T, b.T)
assert calipers.allfinite(a)
"""


def test_first_calls_that_compile(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", WITHOUT_NUMPY_VERSIONS], env=environment, check=True)


def test_a_kernel_in_the_cache_is_loaded(kernels, monkeypatch):
    monkeypatch.setattr(jit.Kernels, "is_cached", lambda self, key: True)
    assert kernels.entry_point(types.float64, 1)(1.0) == -1.0


def test_calls_that_read_the_cache_start_no_thread():
    assert calipers.allclose([1.0], [1.0])
    assert cache_folder(first_mismatch) is not None
    code = "import threading; threading.Thread.start = None\n"
    code += "import calipers; calipers.allclose([1.0], [1.0])"
    assert on_a_terminal("-c", code) == (0, "", "")


def test_the_key_of_the_page_is_one_that_github_takes(tmp_path, monkeypatch):
    yaml = pytest.importorskip("yaml")
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    output = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    steps = yaml.safe_load(block)["steps"]
    exec(steps[0]["run"], {})
    name, _, key = output.read_text().strip().partition("=")
    assert name == "key"
    sources = calipers.show_config(mode="dicts")["sources"]
    assert {calipers.__version__, numba.__version__, sources} < set(key.split("-"))
    assert "," not in key
    _, restore, warmup, save, _ = steps
    assert restore["uses"].startswith("actions/cache/restore@")
    assert "${{ steps.kernels.outputs.key }}" in restore["with"]["key"]
    assert warmup["run"] == "calipers warmup"
    # Right after, since a job that fails saves nothing at its end.
    assert save["uses"].startswith("actions/cache/save@")
    assert save["with"]["path"] == restore["with"]["path"]


@numba.njit
def product(x):
    return np.sin(x) * x[0]


@numba.njit
def filling(x, out):
    out[:] = x * x


@numba.njit
def of_a_row(i, x):
    return x[i] * x[3]


@pytest.mark.parametrize("compiles", [True, False])
@pytest.mark.parametrize("method", ["2-point", "3-point", "cs"])
def test_a_compiled_function_that_changes_its_argument_is_refused_before_and_after(
    compiles, method, monkeypatch
):
    @numba.njit
    def writes(x):
        x[1] = 3.0
        return x * x

    monkeypatch.setattr(jit.Kernels, "is_worth_compiling", lambda *_: compiles)
    with pytest.raises(ValueError, match="f changes its argument; let it work on a copy") as caught:
        calipers.jacobian(writes, np.array([1.0, 2.0]), method=method)
    assert caught.value.__notes__[0].startswith("detected with x[")


BOUNDS = (0.25, 2.0)


@pytest.mark.parametrize(
    ("f", "dtype", "options"),
    [
        (product, "f8", {}),
        (product, "f8", {"method": "2-point", "bounds": BOUNDS}),
        (product, "f8", {"method": "5-point"}),
        (product, "f8", {"method": "5-point", "bounds": BOUNDS}),
        (product, "f8", {"method": "cs"}),
        (product, "f4", {}),
        (product, "f4", {"method": "5-point", "bounds": BOUNDS}),
        (product, "c16", {"holomorphic": True}),
        (filling, "f8", {"out_like": np.empty(300)}),
        (of_a_row, "f8", {"out_like": np.empty(300), "rowwise": True}),
    ],
)
def test_a_jacobian_is_the_same_before_and_after_compilation(f, dtype, options, monkeypatch):
    x = np.random.default_rng(0).uniform(*BOUNDS, 300).astype(dtype)
    monkeypatch.setattr(jit.Kernels, "is_worth_compiling", lambda *_: False)
    before = calipers.jacobian(f, x, **options)
    monkeypatch.undo()
    assert before.tobytes() == calipers.jacobian(f, x, **options).tobytes()
