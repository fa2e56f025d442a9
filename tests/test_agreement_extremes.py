"""Results that are not finite, or beyond a format: which of two functions they are told of."""

import numpy as np
import pytest

import calipers


@pytest.mark.parametrize(
    ("dtype", "largest", "x"),
    [("bfloat16", 3.3895e38, 1e20), ("float8_e4m3", 448.0, 60.0), ("float8_e5m2", 57344.0, 5e3)],
)
def test_results_beyond_a_narrow_format_are_no_fault_of_either_side(dtype, largest, x):
    def held(y):
        """Give what the format gives, and in binary64 all of it."""
        return y if y.dtype == float else np.where(np.abs(y) > largest, np.inf, y).astype(y.dtype)

    inputs = np.array([x, *np.linspace(0.5, 1.5, 6)], np.float32)
    f, g = (lambda x: held(x * x * x)), (lambda x: held(np.exp(3 * np.log(x))))
    assert calipers.diagnose(f, g, inputs, dtype=dtype).kind == "ROUNDING"


def test_arrays_alone_name_the_side_whose_results_are_not_finite():
    actual, expected = np.ones(5, np.float32), np.ones(5, np.float32)
    actual[0], expected[:3] = np.inf, np.inf
    found = calipers.compare_to_reference(actual, expected, np.ones(5))
    assert "expected has 3 results" in found.reason
