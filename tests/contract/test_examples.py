"""Each example runs, and says something."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(Path(__file__).parents[2].glob("examples/*.py"))
NEEDS = {
    "derivative_error": ("scipy",),
    "distributed_jacobian": ("distributed",),
    "fitting": ("scipy",),
    "jax_custom_vjp": ("jax",),
    "porting": ("torch",),
    "reaction_diffusion": ("scipy",),
    "three_libraries": ("torch", "jax"),
    "torch_gradcheck": ("torch",),
}
ARGUMENTS = {
    "distributed_jacobian": ["0.05"],  # seconds of a simulation
    "reaction_diffusion": ["8"],  # points along an edge
}


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    for library in NEEDS.get(path.stem, ()):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    command = [sys.executable, path, *ARGUMENTS.get(path.stem, ())]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    assert not list(tmp_path.iterdir())


def test_there_are_examples():
    assert "quickstart" in [path.stem for path in EXAMPLES]
