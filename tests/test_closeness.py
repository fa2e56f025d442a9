"""The verdicts of allclose, isclose, array_equal, allfinite and first_nonfinite."""

import numpy as np
import pytest

import calipers
from tests.closeness_cases import EDGE

edge_cases = pytest.mark.parametrize(
    ("pair", "kwargs", "expected"), [c[1:] for c in EDGE], ids=[c[0] for c in EDGE]
)


@edge_cases
@pytest.mark.parametrize("n", [1, 1000])
def test_known_verdicts(pair, kwargs, expected, n):
    a, b = (np.repeat(x, n) for x in pair)
    assert calipers.allclose(a, b, **kwargs) is expected
    assert calipers.isclose(a, b, **kwargs).tolist() == [expected] * n
    # by buffers, by rows, and with a tolerance for each element
    assert calipers.allclose(a[::-1], b[::-1], **kwargs) is expected
    assert calipers.allclose(a[None], b[None], **kwargs, axis=1).tolist() == [expected]
    each = {"rtol": 1e-5, "atol": 1e-8} | kwargs
    each["rtol"], each["atol"] = np.full(n, each["rtol"]), np.full(n, each["atol"])
    assert calipers.isclose(a, b, **each).tolist() == [expected] * n
    assert calipers.allclose(a, b, **each) is expected
