"""Every public name: what `dir` lists, and what docstrings and annotations say."""

import subprocess
import sys

import numpy.testing
import pytest

import calipers
from calipers import golden, probes, testing


@pytest.mark.parametrize("module", [calipers, golden, probes], ids=lambda m: m.__name__)
def test_dir_lists_public_names_only(module):
    expected = {*module.__all__, *(["__version__"] if module is calipers else [])}
    assert set(dir(module)) == expected
    assert all(hasattr(module, name) for name in dir(module))


def test_dir_of_testing_lists_public_names_only():
    of_numpy = {name for name in dir(numpy.testing) if not name.startswith("_")}
    assert set(dir(testing)) == of_numpy | {*testing.__all__, "make_tensor"}


def test_dir_lists_no_submodule_that_was_imported():
    code = "import calipers.closeness, calipers.agreement; print('closeness' in dir(calipers))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
