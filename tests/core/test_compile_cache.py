"""Compilation: the disk cache in every state, edited rules, lazy names."""

import ast
import hashlib
import os
import pickle
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import config

import calipers
from calipers._core.jit import SETTINGS, settings
from tests.core import KERNELS_ONLY

PACKAGE = Path(calipers.__file__).parent

# The kernel that compiles in the least time: what is tested here is the same for each.
ASK = """
import numpy as np, calipers
print(calipers.allfinite([1.0]), calipers.allfinite([1.0, np.inf]))
"""
RIGHT = "True False\n"


def run_python(code, *options, **environment):
    environment = {k: str(v) for k, v in environment.items()}
    done = subprocess.run(
        [sys.executable, "-W", "error", *options, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cached(folder):
    return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*.nb?")}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Fill a cache, of which tests take copies."""
    folder = tmp_path_factory.mktemp("filled")
    assert run_python(ASK, NUMBA_CACHE_DIR=folder) == RIGHT
    return folder


@pytest.fixture
def cache(filled, tmp_path):
    return Path(shutil.copytree(filled, tmp_path / "cache"))


def test_a_second_process_reads_what_the_first_compiled(cache):
    before = cached(cache)
    assert len(before) == 2  # an index and the code of one kernel
    loaded = "import sys; " + ASK + "print('numba.np.arraymath' in sys.modules)"
    assert run_python(loaded, NUMBA_CACHE_DIR=cache) == RIGHT + "False\n"
    assert cached(cache) == before


def test_what_other_settings_compile_is_kept_apart(cache):
    """A process that is debugged would leave slow kernels to all that come after it."""
    before = cached(cache)
    assert run_python(ASK, NUMBA_CACHE_DIR=cache, NUMBA_OPT=0) == RIGHT
    after = cached(cache)
    assert len(after) == 2 * len(before)
    assert before.items() <= after.items()


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_tells_what_is_compiled_apart(monkeypatch, name):
    before = settings()
    monkeypatch.setattr(config, name, "another")  # raises if Numba knows the name no longer
    assert settings() != before


def test_the_cache_can_be_turned_off(tmp_path):
    assert run_python(ASK, NUMBA_CACHE_DIR=tmp_path, CALIPERS_CACHE="0") == RIGHT
    assert not cached(tmp_path)


def test_no_folder_for_a_cache(tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    assert run_python(ASK, NUMBA_CACHE_DIR=blocked / "below") == RIGHT
    # neither the package's own folder nor the user's
    copy = tmp_path / "lib" / "calipers"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "_kernels" / "__pycache__").touch()
    environment = {"PYTHONPATH": copy.parent, "HOME": blocked, "XDG_CACHE_HOME": blocked}
    where = ASK + "print(calipers.__file__)"
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    assert run_python(where, **environment) == RIGHT + f"{copy / '__init__.py'}\n"
    assert not cached(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("error", ["PermissionError", "OSError"])
def test_a_cache_that_cannot_be_written(tmp_path, error):
    code = f"""
from numba.core.caching import IndexDataCacheFile
def save(self, key, data):
    raise {error}("read-only or full")
IndexDataCacheFile.save = save
"""
    assert run_python(code + ASK, NUMBA_CACHE_DIR=tmp_path) == RIGHT


def test_a_folder_gone_read_only_is_not_trusted(cache):
    # Root may write anywhere: what Numba asks a folder with is made to fail instead.
    before = cached(cache)
    code = """
import os, tempfile
def refuse(*args, **kwargs):
    raise PermissionError("read-only")
tempfile.TemporaryFile = os.replace = os.makedirs = refuse
"""
    assert run_python(code + ASK, NUMBA_CACHE_DIR=cache) == RIGHT
    assert cached(cache) == before


@pytest.mark.slow
def test_processes_fill_an_empty_cache_at_once(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", ASK]
    racing = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [process.communicate(timeout=120)[0] for process in racing] == [RIGHT] * 4
    before = cached(tmp_path)
    assert len(before) == 2
    assert run_python(ASK, NUMBA_CACHE_DIR=tmp_path) == RIGHT
    assert cached(tmp_path) == before


def test_no_sources_to_stamp_a_cache_with(tmp_path):
    archive = shutil.make_archive(tmp_path / "package", "zip", PACKAGE.parent, "calipers")
    where = ASK + "print(calipers.__file__)"
    environment = {"PYTHONPATH": archive, "NUMBA_CACHE_DIR": tmp_path / "cache"}
    answer = run_python(where, **environment)
    assert answer == RIGHT + f"{Path(archive) / 'calipers' / '__init__.py'}\n"
    assert not cached(tmp_path)


def test_without_assertions_and_docstrings(tmp_path):
    assert run_python(ASK, "-OO", NUMBA_CACHE_DIR=tmp_path) == RIGHT


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_cache_is_compiled_again(cache, suffix, damage):
    for path in cache.rglob(f"*.{suffix}"):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] if damage is None else damage)
    assert run_python(ASK, NUMBA_CACHE_DIR=cache) == RIGHT


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_flipped_bit_is_not_loaded(cache, suffix):
    """As machine code it would end the process, or give a wrong answer."""
    before = {path: path.read_bytes() for path in cache.rglob("*.nb?")}
    for path, content in before.items():
        if path.suffix == f".{suffix}":
            damaged = bytearray(content)
            damaged[len(content) * 2 // 3] ^= 16
            path.write_bytes(damaged)
            before[path] = bytes(damaged)
    assert run_python(ASK, NUMBA_CACHE_DIR=cache) == RIGHT
    after = {path: path.read_bytes() for path in cache.rglob("*.nb?")}
    assert after.keys() == before.keys()
    rewritten = {path for path in before if after[path] != before[path]}
    assert {path for path in before if path.suffix == f".{suffix}"} <= rewritten
    assert all(path.stat().st_mode & 0o022 == 0 for path in after)
    assert run_python(ASK, NUMBA_CACHE_DIR=cache) == RIGHT
    assert {path: path.read_bytes() for path in cache.rglob("*.nb?")} == after


@pytest.mark.skipif(sys.platform == "win32", reason="needs the permissions of POSIX")
def test_only_the_owner_may_write_what_is_cached(tmp_path):
    code = "import os; os.umask(0)\n" + ASK
    assert run_python(code, NUMBA_CACHE_DIR=tmp_path) == RIGHT
    files = list(tmp_path.rglob("*.nb?"))
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs the permissions of POSIX")
@pytest.mark.parametrize("mode", [0o664, None])
def test_what_others_may_write_is_not_unpickled(cache, mode):
    if mode is None and os.geteuid() != 0:
        pytest.skip("only root gives files to other users")
    for path in cache.rglob("*.nb?"):
        content = pickle.dumps(Exploit(cache / "RUN"))
        path.write_bytes(hashlib.sha256(content).digest() + content)
        if mode is None:
            os.chown(path, 12345, -1)
        else:
            path.chmod(mode)
    assert run_python(ASK, NUMBA_CACHE_DIR=cache) == RIGHT
    assert not (cache / "RUN").exists()
    assert all(path.stat().st_uid == os.geteuid() for path in cache.rglob("*.nb?"))
    assert all(path.stat().st_mode & 0o022 == 0 for path in cache.rglob("*.nb?"))


@pytest.mark.parametrize("module", ["numba.core.caching", "numba.cuda.core.caching"])
def test_cache_files_of_both_targets_are_checked(tmp_path, module):
    if "cuda" in module:
        pytest.importorskip("numba_cuda")
    code = f"""
from pathlib import Path
from {module} import IndexDataCacheFile
from calipers._core.jit import checked_files
files = checked_files(IndexDataCacheFile)({str(tmp_path)!r}, "kernel", "stamp")
assert files.load("key") is None
files.save("key", [1.5])
assert files.load("key") == [1.5]
(path,) = Path({str(tmp_path)!r}).glob("*.nbc")
content = bytearray(path.read_bytes())
content[-1] ^= 1
path.write_bytes(content)
try:
    files.load("key")
except ValueError as error:
    print(error)
"""
    assert run_python(code) == f"{tmp_path}/kernel.1.nbc is damaged\n"


class Exploit:
    """An object that makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    ("file", "rule", "edit"),
    [
        ("closeness.py", "        return d <= bound\n", "        return d > bound\n"),
        ("formats.py", "return context.cast(builder, value, source, target)", "return target(0)"),
    ],
)
def test_an_edited_rule_takes_effect_in_the_next_process(tmp_path, file, rule, edit):
    copy = tmp_path / "lib" / "calipers"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": copy.parent, "NUMBA_CACHE_DIR": tmp_path / "cache"}
    ask = KERNELS_ONLY + "import calipers; print(calipers.allclose([1.0], [2.0]))"
    assert run_python(ask, **environment) == "False\n"
    source = copy / "_kernels" / "scalar" / file
    text = source.read_text()
    assert rule in text
    edit = edit.replace("target(0)", "context.get_constant(target, 0)")
    before = cached(tmp_path)
    source.write_text(text.replace(rule, edit))
    assert run_python(ask, **environment) == "True\n"
    after = cached(tmp_path)
    assert len(after) == len(before) > 0  # what the old rule was compiled to is gone
    assert after.keys().isdisjoint(before)


def test_kernels_are_compiled_where_the_users_functions_are_not():
    user = """
import numba
@numba.njit
def own(): return "interpreted"
assert own() == "interpreted" and not hasattr(own, "py_func")
"""
    assert run_python(user + ASK, NUMBA_DISABLE_JIT="1") == RIGHT
    assert run_python(user + ASK, NUMBA_DISABLE_JIT="1", CALIPERS_CACHE="0") == RIGHT


def test_importing_loads_nothing():
    code = "import sys, calipers; print(*(m in sys.modules for m in ('numba', 'numpy')))"
    assert run_python(code) == "False False\n"


def test_names_are_those_of_the_stub():
    code = """
import calipers
print(sorted(calipers.__all__) == calipers.__all__, set(calipers.__all__) <= set(dir(calipers)))
from calipers import *
modules = ["golden", "probes", "testing"]
print(all(callable(globals()[name]) != (name in modules) for name in calipers.__all__))
"""
    assert run_python(code) == "True True\nTrue\n"
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    names = [alias.asname for node in imports for alias in node.names]
    assert calipers.__all__ == sorted(names)
    declared = [node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)]
    assert declared == ["__version__"]
    assert isinstance(calipers.__version__, str)
    for name in calipers.__all__:
        assert getattr(calipers, name).__name__.removeprefix("calipers.") == name
        assert getattr(calipers, name).__doc__
        if name.endswith(("Error", "Warning")):  # of which a traceback names the module
            assert getattr(calipers, name).__module__ == "calipers"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = calipers.nothing


def test_warmup_builds_the_common_kernels():
    """In the cache that all tests share, so that nothing of it is compiled for this test alone."""
    code = """
import numpy as np, calipers
calipers.warmup()
def compiled(function, arguments, key):
    raise AssertionError(f"{function.__qualname__} is compiled for {arguments}")
calipers._core.jit._compiled = compiled
for dtype in ("f4", "f8", "i8"):
    a = np.arange(10).astype(dtype)
    assert calipers.allclose(a, a.copy()) and calipers.array_equal(a, a.copy())
    assert not calipers.compare(a, a + 1)
    assert dtype == "i8" or (calipers.isclose(a, a.copy()).all() and calipers.allfinite(a))
"""
    run_python(code + ASK)


@pytest.mark.slow
def test_a_plain_processor_is_enough(tmp_path):
    """LLVM aborts the process where a conversion needs an instruction that a target lacks."""
    code = f"""{KERNELS_ONLY}
import ml_dtypes, numpy as np, calipers
for name in ("f2", "u2", "c8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
    x = np.arange(100).astype(name)
    assert calipers.allclose(x, x) and calipers.isclose(x, x).all() and calipers.allfinite(x)
assert calipers.compare(np.ones(3, "f4"), np.ones(3, "f4"))
"""
    pytest.importorskip("ml_dtypes")
    run_python(code, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="", NUMBA_CACHE_DIR=tmp_path)


def test_building_leaves_the_garbage_collector_as_it_was():
    code = f"""
{KERNELS_ONLY}
import gc
import numpy as np
import calipers
calipers.allclose(np.ones(3), np.ones(3))
print(gc.isenabled())
gc.disable()
calipers.isclose(np.ones(3), np.ones(3))
print(gc.isenabled())
"""
    assert run_python(code, CALIPERS_CACHE="0") == "True\nFalse\n"


@pytest.mark.slow
def test_functions_that_a_kernel_calls_are_made_machine_code_of_in_it_alone():
    code = f"""{KERNELS_ONLY}
from numba.core.codegen import JITCodeLibrary
import numpy as np
import calipers
made, finish = [], JITCodeLibrary._finalize_specific
def noted(self):
    made.append(self.name)
    finish(self)
JITCodeLibrary._finalize_specific = noted
calipers.compare(np.ones(3), np.zeros(3))
print(*made)
"""
    made = run_python(code, CALIPERS_CACHE="0").split()
    assert {"tally", "first_mismatch"} <= set(made)
    assert not {"survey", "measure", "within", "note_mismatches"} & set(made)
