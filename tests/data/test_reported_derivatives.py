"""The right derivatives of the reported cases equal differences in float64."""

import numpy as np
import pytest

from .reported_derivatives import reported

PROBLEMS = [p for p in reported(6) if p.jacobian is not None]
# Steps that fit the length over which f varies, where that is not about |x|.
STEPS = {
    "transit": 1e-5,
    "model": 1e-5,
    "float32 tanh": 0.1,
    "(1-cos": 1e-2,
    "(t-sin": 1e-2,
    "(exp(t)-1)": 1e-3,
    "round": 1e-3,
}


@pytest.mark.parametrize("problem", PROBLEMS, ids=[p.name for p in PROBLEMS])
def test_jacobians_equal_differences(problem):
    name = problem.name.partition(":")[2]
    if name == "model in float32":
        pytest.skip("it rounds inside; its derivative is that of the model in float64")
    x = problem.x.astype(float)
    for j in range(x.size):
        steps = [step for start, step in STEPS.items() if name.startswith(start)]
        step = np.zeros(x.size)
        step[j] = steps[0] if steps else 1e-4 * abs(x[j])
        slopes = (problem.f(x + step) - problem.f(x - step)) / (2 * step[j])
        size = np.abs(problem.jacobian[:, j]).max()
        np.testing.assert_allclose(problem.jacobian[:, j], slopes, rtol=0, atol=1e-3 * size)


def test_every_mistake_is_one():
    for problem in PROBLEMS:
        for claim in problem.claims:
            if claim.jacobian is None:
                continue
            error = np.abs(np.reshape(claim.jacobian, problem.jacobian.shape) - problem.jacobian)
            size = np.abs(problem.jacobian).max()
            assert (error.max() > 9e-5 * size) == (claim.kind == "mistake")
