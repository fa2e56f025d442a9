"""What differentiate and hessian say of functions from public reports of derivatives."""

import numpy as np
import pytest

import calipers
from benchmarks.validation.checks import estimate
from tests.data.reported_derivatives import reported

STAIRCASE = pytest.mark.xfail(strict=True, reason="a staircase has the slope of what it rounds")


def problems():
    for problem in reported(6):
        if problem.jacobian is not None:
            name = problem.name.partition(":")[2]
            marks = [STAIRCASE] if name == "round 1000.3" else []
            yield pytest.param(problem, id=name, marks=marks)


@pytest.mark.parametrize("problem", list(problems()))
def test_errors_are_not_a_hundred_times_too_small(problem):
    estimates = estimate(problem)
    outcomes = estimates.outcomes(float(np.finfo(problem.x.dtype).eps))
    wrong = [k for k, outcome in enumerate(outcomes) if outcome == "wrong"]
    first = wrong[0] if wrong else 0
    entry = estimates.value[first], estimates.error[first], estimates.exact[first]
    assert not wrong, f"{len(wrong)} entries, the first is {entry}, {estimates.status[first]}"


def huber(x):
    return 0.5 * x[0] ** 2 if abs(x[0]) <= 1 else abs(x[0]) - 0.5


HESSIANS = [
    ("max(x, 0)^2", lambda x: max(x[0], 0.0) ** 2, 0.0),
    ("x |x|", lambda x: x[0] * abs(x[0]), 0.0),
    ("Huber", huber, 1.0),
]


@pytest.mark.parametrize(("f", "at"), [pytest.param(f, at, id=n) for n, f, at in HESSIANS])
def test_second_derivatives_that_differ_from_both_sides_do_not_converge(f, at):
    hessian = calipers.hessian(f, [at])
    converged = np.all(hessian.status == "CONVERGED")
    assert not (converged and np.isfinite(hessian.error[0, 0]))
