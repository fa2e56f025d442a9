"""What gradcheck says of functions from public reports of checks that went wrong."""

import numpy as np
import pytest

from benchmarks.validation.checks import check
from tests.data.reported_derivatives import reported

EXPECTED = {
    "right": {"PASS", "INCONCLUSIVE"},
    "mistake": {"FAIL", "INCONCLUSIVE"},
    "kink": {"NONSMOOTH"},
}


def claims():
    for problem in reported(6):
        for claim in problem.claims:
            name = f"{problem.name.partition(':')[2]}: {claim.kind} {claim.label}".strip()
            yield pytest.param(problem, claim, id=name)


@pytest.mark.parametrize(("problem", "claim"), list(claims()))
def test_right_derivatives_are_not_accused_and_mistakes_do_not_pass(problem, claim):
    with np.errstate(all="ignore"):
        result = check(problem, claim)
    assert result.verdict in EXPECTED[claim.kind], result.reason
