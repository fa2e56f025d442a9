"""gradcheck and gradgradcheck of torch's database of ops say what torch's own checks say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import calipers

pytest.importorskip("torch")

# What calipers says where torch's verdict is another one, by test, and the reason.
KINK = (
    r"NONSMOOTH: (second order: )?d (out|grad)\[0\]",
    "the losses are other functions at targets that are not 1 or -1, as all near them are",
)
OF_TORCH = "PASS", "torch's check compares float32 results with float64 ones, and fails"
DIFFERENCES = {
    "cfloat gradcheck": OF_TORCH,
    "cfloat gradgradcheck": OF_TORCH,
    "float gradcheck": OF_TORCH,
    "float gradgradcheck": OF_TORCH,
    "linalg_norm_subgradients_at_zero gradcheck": (
        r"NONSMOOTH: d out\[0\]",
        "a norm has a kink at zero, where torch's check meets a subgradient by its symmetry",
    ),
    "nn_functional_cosine_embedding_loss gradcheck": KINK,
    "nn_functional_cosine_embedding_loss gradgradcheck": KINK,
    "nn_functional_hinge_embedding_loss gradcheck": KINK,
    "nn_functional_hinge_embedding_loss gradgradcheck": KINK,
    "nn_functional_binary_cross_entropy gradgradcheck": (
        "RuntimeError: all elements of input should be between 0 and 1",
        "the steps leave the interval in which the op is defined; bounds= would keep them inside",
    ),
}


def verdicts(folder, samples, every):
    """Return the verdicts of torch and calipers on every so many tests."""
    path = folder / "report.jsonl"
    roots = Path(__file__).parents[2], Path(calipers.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))}
    command = [sys.executable, "-m", "tests.gradcheck.torch_op_gradients", path]
    command += [str(samples), str(every)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in path.read_text().splitlines()]


def differences(checks):
    """Return what calipers says where one check passes and the other does not, by test."""
    found = {}
    for check in checks:
        if (check["torch"] == "PASS") != (check["calipers"] == "PASS"):
            found.setdefault(check["test"], set()).add(check["calipers"])
    return found


def unexplained(found):
    """Return the differences that have no reason in DIFFERENCES."""
    return {
        (test, verdict)
        for test, every in found.items()
        for verdict in every
        if test not in DIFFERENCES or not re.match(DIFFERENCES[test][0], verdict)
    }


@pytest.mark.slow
def test_gradients_of_a_sample_of_ops(tmp_path):
    checks = verdicts(tmp_path, samples=1, every=12)
    assert len(checks) > 90
    assert not unexplained(differences(checks))


@pytest.mark.exhaustive
def test_gradients_of_all_ops(tmp_path):
    checks = verdicts(tmp_path, samples=2, every=1)
    assert len(checks) > 2000
    found = differences(checks)
    assert not unexplained(found)
    assert found.keys() == DIFFERENCES.keys()  # no reason is left that explains nothing
