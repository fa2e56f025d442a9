"""Type checkers and an installed calipers: `typing/consumer.py` says what they should know."""

import ast
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import numpy.testing
import pytest

import calipers
from calipers import testing
from tests.compare.numpy_suite_plugin import ASSERTIONS

CONSUMER = Path(__file__).parent / "typing" / "consumer.py"
NUMPYS = set(numpy.testing.__all__) - set(ASSERTIONS)
PYRIGHT = {
    "typeCheckingMode": "strict",
    "reportUnnecessaryTypeIgnoreComment": "error",
    "include": [CONSUMER.name],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Make a folder of someone who uses calipers, with an environment that has it installed."""
    folder = tmp_path_factory.mktemp("consumer")
    shutil.copy(CONSUMER, folder)
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    venv.create(folder / "env")
    (packages,) = (folder / "env").glob("[Ll]ib/**/site-packages")
    # Nothing but site-packages makes a checker ask for py.typed.
    shutil.copytree(
        calipers.__path__[0], packages / "calipers", ignore=shutil.ignore_patterns("__pycache__")
    )
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others))
    return folder


def check(project, module, *arguments):
    """Run a checker as if the environment were active."""
    name = module.partition(".")[0]
    pytest.importorskip(name, reason=f"{name} is not installed: pip install '.[test]'")
    pytest.importorskip("numpy_typing_compat", reason="needs scipy-stubs: pip install '.[test]'")
    path = f"{python_of(project).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=project,
        env=environment | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def python_of(project):
    return next(path for path in (project / "env").glob("*/python*") if path.stem == "python")


@pytest.mark.slow
def test_mypy_sees_the_types(project):
    done = check(
        project,
        "mypy",
        "--strict",
        "--config-file=",
        f"--python-executable={python_of(project)}",
        f"--cache-dir={os.devnull}",
        CONSUMER.name,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_sees_the_types(project):
    done = check(project, "basedpyright", f"--pythonpath={python_of(project)}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_no_public_type_is_unknown_to_pyright(project):
    done = check(
        project, "basedpyright", "--verifytypes", "calipers", "--ignoreexternal", "--outputjson"
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    assert found["pyTypedPath"].startswith(str(project))
    vague = [s for s in found["symbols"] if not s["isTypeKnown"] or s["isTypeAmbiguous"]]
    assert [(s["name"], s["diagnostics"]) for s in vague] == []
    assert found["completenessScore"] == 1


@pytest.mark.parametrize(
    "module", ["calipers", "calipers.golden", "calipers.probes", "calipers.testing"]
)
def test_each_public_name_is_used(module):
    name = module.rpartition(".")[2]
    used = {
        node.attr
        for node in ast.walk(ast.parse(CONSUMER.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name
    } | {"golden", "probes", "testing"}
    public = calipers.__all__ if name == "calipers" else getattr(calipers, name).__all__
    # Nor what calipers.testing takes from NumPy.
    assert set(public) - used - NUMPYS == set()


def test_what_is_numpys_is_typed_as_numpys():
    tree = ast.parse(Path(testing.__file__).read_text("utf-8"))
    imports = [x for x in ast.walk(tree) if isinstance(x, ast.ImportFrom)]
    assert NUMPYS <= {x.names[0].asname for x in imports if x.module == "numpy.testing"}
