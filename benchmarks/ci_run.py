"""A CI run of a project whose 100 tests use calipers: with an empty cache, after `calipers warmup`.

``python -m benchmarks.ci_run`` builds the wheel, installs it with pytest and pytest-xdist in a new
environment, writes the project, and prints the seconds and the kernels that each step compiles.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
REPEATS = 3  # of the steps that leave the cache as it is

# Of 100 tests, 40 call allclose, 38 assert_close, 20 gradcheck, and 2 expect a report.
PROJECT = """
import numpy as np
import pytest

import calipers

COUNT = {count}
DTYPES = ("float64", "float32", "int64")


def data(seed):
    random = np.random.default_rng(seed)
    return (100 * random.standard_normal((20, 30))).astype(DTYPES[seed % 3])


@pytest.mark.parametrize("seed", range(40 * COUNT // 100))
def test_allclose(seed):
    x = data(seed)
    assert calipers.allclose(x + x, 2 * x)


@pytest.mark.parametrize("seed", range(38 * COUNT // 100))
def test_assert_close(seed):
    x = data(seed)
    calipers.assert_close([x.sum(0), x.T], [np.add.reduce(x), x.T.copy()])


@pytest.mark.parametrize("seed", range(20 * COUNT // 100))
def test_gradcheck(seed):
    x = np.random.default_rng(seed).uniform(1, 2, 5)
    assert calipers.gradcheck(np.log, x, vjp=lambda x, w: w / x)


@pytest.mark.parametrize("dtype", DTYPES[: 2 * COUNT // 100])
def test_a_report(dtype):
    x = np.arange(10).astype(dtype)
    with pytest.raises(AssertionError, match="1 of 10"):
        calipers.assert_close(x, np.where(x == 5, 6, x))
"""
# The same number of tests, without calipers.
EMPTY = """
import pytest


@pytest.mark.parametrize("number", range({count}))
def test_nothing(number):
    pass
"""


class Runs:
    """Timed commands of one Python, in a folder with a project and a kernel cache."""

    def __init__(self, python: str, folder: Path, count: int = 100) -> None:
        self.python, self.folder, self.cache = python, folder, folder / "cache"
        dropped = {"CALIPERS_CACHE", "PYTHONDONTWRITEBYTECODE"}
        self.environment = {k: v for k, v in os.environ.items() if k not in dropped}
        self.environment["NUMBA_CACHE_DIR"] = str(self.cache)
        for name, text in (("test_project", PROJECT), ("test_nothing", EMPTY)):
            (folder / f"{name}.py").write_text(text.format(count=count))

    def output(self, *arguments: str) -> str:
        """Run Python, and return what it printed; raise if it failed."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        return done.stdout

    def row(self, name: str, *arguments: str, empty: bool = False, new: bool = False) -> None:
        """
        Print the seconds of a step, and the kernels that it compiled.

        The cache is `empty`, or as the step before left it. In a `new` installation pytest has not
        rewritten the modules of calipers yet, as it does with those of every plugin.
        """
        spent, before = [], 0 if empty else self.kernels()
        for _ in range(1 if empty else REPEATS):
            if empty:
                shutil.rmtree(self.cache, ignore_errors=True)
            if new:
                package = Path(
                    self.output("-c", "import calipers; print(calipers.__path__[0])").strip()
                )
                for path in package.rglob("*-pytest-*.pyc"):
                    path.unlink()
            started = time.perf_counter()
            self.output(*arguments)
            spent.append(time.perf_counter() - started)
        print(f"| {name} | {median(spent):.1f} | {self.kernels() - before} |", flush=True)

    def kernels(self) -> int:
        """Return the number of kernels in the cache."""
        return sum(1 for _ in self.cache.rglob("*.nbc"))

    def all(self) -> None:
        """Print the steps."""
        pytest = "-m", "pytest", "-q", "-p", "no:cacheprovider"
        project, nothing = (*pytest, "test_project.py"), (*pytest, "test_nothing.py")
        warmup = "-c", "import calipers; calipers.warmup()"
        print("| step | s | kernels compiled |\n|---|---:|---:|")
        self.row("`pytest`, empty cache", *project, empty=True, new=True)
        self.row("`pytest -n 2`, empty cache", *project, "-n", "2", empty=True, new=True)
        self.row("`calipers warmup`, empty cache", *warmup, empty=True)
        self.row("`calipers warmup`, cache kept", *warmup)
        self.row("`pytest`, cache kept, calipers newly installed", *project, new=True)
        self.row("`pytest -n 2`, the same", *project, "-n", "2", new=True)
        self.row("`pytest`, cache and installation kept", *project)
        self.row("`pytest -n 2`, the same", *project, "-n", "2")
        self.row("`pytest` of 100 tests that do nothing", *nothing)
        for name in ("numpy", "numba", "calipers"):
            self.row(f"`import {name}`", "-c", f"import {name}")


def installed(folder: Path) -> str:
    """Build the wheel, install it in a new environment, and return that environment's Python."""
    wheels, environment = folder / "wheels", folder / "environment"
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), str(ROOT)]
    subprocess.run(build, check=True)
    venv.create(environment, with_pip=True)
    python = str(environment / ("Scripts" if os.name == "nt" else "bin") / "python")
    started = time.perf_counter()
    for packages in ([str(*wheels.glob("*.whl"))], ["pytest", "pytest-xdist"]):
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    seconds = time.perf_counter() - started
    print(f"pip install of the wheel, NumPy, Numba and pytest: {seconds:.0f} s\n")
    return python


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Runs(installed(folder), folder).all()


if __name__ == "__main__":
    main()
