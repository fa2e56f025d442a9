"""What a release says of itself in several files is the same in all of them."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numba
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import calipers

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CONSTRAINTS = ROOT / "constraints-lowest.txt"
# Tools that look at the sources, and builds for which there is no room.
NOT_LOWERED = {"asv", "basedpyright", "mypy", "ruff", "scipy-stubs"}
EXTRAS = {"sparse", "plot", "dask", "h5py", "mpi", "zarr", "cli", "tables", "test"}


def bounds():
    """Return the lower bound of each requirement that `make test-lowest` installs."""
    listed = PROJECT["dependencies"] + [
        line for extra in EXTRAS for line in PROJECT["optional-dependencies"][extra]
    ]
    requirements = {r.name: r for r in map(Requirement, listed) if r.name not in NOT_LOWERED}
    for name, requirement in requirements.items():
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        yield name, bound.version


def test_the_lowest_versions_are_those_of_the_project():
    lines = CONSTRAINTS.read_text("utf-8").splitlines()
    pinned = [Requirement(line) for line in lines if line and not line.startswith("#")]
    lowest = {r.name: r.specifier for r in pinned}
    for name, version in bounds():
        # 1.15 and 1.15.0 are one version.
        assert lowest.pop(name) == SpecifierSet(f"=={version}"), name
    assert set(lowest) == {"distributed", "pyparsing"}  # what others need


def test_a_cuda_device_is_used_with_versions_that_the_tests_have_run_with():
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from calipers._core.libraries import WITH

    extra = {r.name: r for r in map(Requirement, PROJECT["optional-dependencies"]["cuda"])}
    assert numba.__version__ in extra["numba"].specifier
    assert "9999" not in extra["numba"].specifier
    others = [f'"{extra[name]}"' for name in ("numba", "numpy")]
    assert " ".join(others) == WITH
    assert f'"numba-cuda[cu12]>=0.30" {WITH}' in (ROOT / "docs/gpu.md").read_text("utf-8")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_an_environment_that_was_not_completed_is_made_again(tmp_path):
    """Without ensurepip, venv writes pyvenv.cfg, says that pip is missing, and fails."""
    python, whole = tmp_path / "python", tmp_path / ".venv"
    script = "#!/bin/sh\nmkdir -p .venv && touch .venv/pyvenv.cfg && exec test -e ensurepip\n"
    python.write_text(script)
    python.chmod(0o755)
    command = ["make", "-f", ROOT / "Makefile", f"PYTHON={python}", ".venv/pyvenv.cfg"]
    for k in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode != 0, k
        assert not whole.exists()
    (tmp_path / "ensurepip").touch()
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert (whole / "pyvenv.cfg").exists()


def test_make_asks_for_the_same_extras():
    (extras,) = re.findall(r"^LOWEST_EXTRAS = (\S+)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert set(extras.split(",")) == EXTRAS


def test_no_text_installs_calipers_from_an_index():
    """It is on none: extras are installed in a clone, by `pip install ".[cli]"`."""
    paths = [ROOT / "pyproject.toml", ROOT / "README.md"]
    for folder in ".ci", "src", "tests", "examples", "docs":
        paths += [x for x in (ROOT / folder).rglob("*") if x.suffix in {".py", ".md", ".rst"}]
    wrong = re.compile(r"calipers\[[a-z]|pip install ['\"]?calipers\b")
    assert [str(x) for x in paths if wrong.search(x.read_text("utf-8"))] == []


def test_the_version_is_written_once():
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text("utf-8"), re.M)


def test_the_changelog_begins_with_this_version():
    titles = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert titles[0] == calipers.__version__


def test_the_workflow_runs_each_python_that_is_promised():
    text = (ROOT / ".github/workflows/test.yml").read_text("utf-8")
    (listed,) = re.findall(r"python: \[(.*)\]", text)
    pythons = re.findall(r'"([\d.]+)"', listed)
    assert pythons[0] == PROJECT["requires-python"].removeprefix(">=")
    promised = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert set(promised) <= set(pythons)


def test_the_workflows_run_what_the_script_runs():
    script = (ROOT / ".ci/run").read_text("utf-8")
    commands = re.findall(r"^make (?:--jobs \d )?(.+)$", script, re.M)
    goals = {goal for command in commands for goal in command.split()} - {"installed-for-all"}
    assert goals == {"demo", "test", "test-all", "docs", "release-check"}
    workflows = [path.read_text("utf-8") for path in ROOT.glob(".github/workflows/*.yml")]
    for goal in goals:
        assert f"- run: make {goal}\n" in "".join(workflows)


def test_the_script_begins_with_the_commands_of_the_readme():
    """In a fresh clone, with nothing installed that README does not install."""
    readme = (ROOT / "README.md").read_text("utf-8")
    commands = re.findall(r"^make \w+", readme, re.M)[:2]
    assert commands == ["make demo", "make test"]
    script = (ROOT / ".ci/run").read_text("utf-8")
    clone, _, rest = script.partition('git clone --quiet . "$clone"\ncd "$clone"\n')
    assert "make" not in clone.replace("mktemp", "")
    assert re.findall(r"^make .*$", rest, re.M)[:2] == commands


def test_a_second_run_does_what_the_first_could_not(tmp_path):
    """With CALIPERS_TESTED, tests that passed are left out, those that skipped are not."""
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(
        "import os, pytest\n"
        "def test_passes(): pass\n"
        "@pytest.mark.xfail(strict=True)\n"
        "def test_fails_as_expected(): assert False\n"
        "@pytest.mark.skipif('EXTRA' not in os.environ, reason='no extra')\n"
        "def test_of_an_extra(): pass\n"
    )
    environment = {**os.environ, "CALIPERS_TESTED": str(tmp_path / "tested")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--numprocesses"]

    def last_line(workers, **extra):
        done = subprocess.run(
            [*command, workers],
            cwd=tmp_path,
            env=environment | extra,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()[-1].partition(" in ")[0]

    assert last_line("2") == "1 passed, 1 skipped, 1 xfailed"
    assert last_line("0", EXTRA="1") == "1 passed, 2 deselected"


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/workflows/*.yml")), ids=lambda p: p.stem)
def test_workflows_publish_nothing(path):
    text = path.read_text("utf-8")
    assert "permissions:\n  contents: read\n" in text
    assert not re.search(r"secrets\.|upload-pypi|pypi-publish|twine upload|: write", text)
    # Actions are pinned by their major version.
    assert all(re.fullmatch(r"v\d+", tag) for tag in re.findall(r"uses: \S+@(\S+)", text))
