"""Check the distributions in dist: what is in them, and that they work where nothing else is."""

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What whoever packages calipers needs beside the sources.
NEEDED = ["LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "CONTRIBUTING.md"]
NEEDED += ["Makefile", "conftest.py", "constraints.txt", "constraints-lowest.txt"]
FOLDERS = ["src", "tests", "docs", "examples", "benchmarks"]
SMOKE = """
import importlib.metadata, importlib.util, sys, calipers
assert "numba" not in sys.modules and "numpy" not in sys.modules
assert sys.prefix in calipers.__file__, calipers.__file__
assert calipers.__version__ == importlib.metadata.version("calipers")
for name in calipers.__all__:
    getattr(calipers, name)
points = {p.group: p for p in importlib.metadata.distribution("calipers").entry_points}
assert set(points) == {"console_scripts", "pytest11", "numba_extensions"}, points
assert callable(points["console_scripts"].load())
assert callable(points["numba_extensions"].load())
assert importlib.util.find_spec(points["pytest11"].module), points  # pytest is not installed
"""
NO_CLICK = "calipers: the command line needs click: pip install click\n"


def run(*command: object, cwd: Path = ROOT) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def require(condition: bool, complaint: str) -> None:
    """Stop with a complaint unless a condition holds."""
    if not condition:
        sys.exit(complaint)


def tracked(folder: str) -> set[str]:
    """Return the files that git knows below a folder."""
    return set(run("git", "ls-files", folder).split())


def check_contents(wheel: Path, sdist: Path) -> None:
    """Look for src and nothing else in the wheel, and for all that is needed in the sdist."""
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {name.removeprefix("src/") for name in tracked("src")}
    require(packed == sources, f"the wheel differs from src: {sorted(packed ^ sources)}")
    with tarfile.open(sdist) as archive:
        shipped = {name.partition("/")[2] for name in archive.getnames()}
    expected = {*NEEDED, *(name for folder in FOLDERS for name in tracked(folder))}
    require(expected <= shipped, f"the sdist lacks {sorted(expected - shipped)}")


def check_builds(wheel: Path, folder: Path) -> None:
    """Build the tree: it has to give the wheel in dist, which was built from the sdist."""
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder)
    (other,) = folder.glob("*.whl")
    require(other.read_bytes() == wheel.read_bytes(), "sdist and tree give different wheels")


def check_installed(wheel: Path, folder: Path) -> None:
    """Install the wheel in a new environment, and use it from another folder."""
    venv.create(folder / "env")
    python = next(path for path in (folder / "env").glob("*/python*") if path.stem == "python")
    pip = sys.executable, "-m", "pip", "--python", python
    run(*pip, "install", "--quiet", "--no-compile", wheel)
    run(python, "-I", "-c", SMOKE, cwd=folder)
    check_script(python.with_name("calipers" + python.suffix))
    said = run(python, "-I", ROOT / "examples" / "quickstart.py", cwd=folder)
    require("ROUNDING: " in said, f"the quickstart said {said!r}")
    print(run(*pip, "list", "--format=freeze").strip())


def check_script(script: Path) -> None:
    """Run the command where click is not installed: it has to say so, and no more."""
    done = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)
    said = (done.returncode, done.stdout, done.stderr)
    require(said == (2, "", NO_CLICK), f"calipers --help without click gave {said}")


def main() -> None:
    """Check the one wheel and the one sdist in dist."""
    (wheel,), (sdist,) = (list((ROOT / "dist").glob(f"*{end}")) for end in (".whl", ".tar.gz"))
    check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as folder:
        check_builds(wheel, Path(folder))
        check_installed(wheel, Path(folder))
    print(f"{wheel.name} and {sdist.name} are fit to be published")


if __name__ == "__main__":
    main()
