"""The assertions of calipers.testing judge device arrays where they are."""

import numpy as np
import pytest
from numba import cuda

import calipers
from calipers import testing as npt


@pytest.mark.parametrize("name", ["assert_allclose", "assert_almost_equal", "assert_equal"])
def test_device_arrays(name):
    function = getattr(npt, name)
    x = np.array([1.0, np.nan, np.inf])
    a, b = cuda.to_device(x), cuda.to_device(x)
    function(a, b)
    b = cuda.to_device(x + [1, 0, 0])
    with pytest.raises(calipers.ClosenessError) as caught:
        function(a, b, err_msg="of x")
    assert caught.value.report.first_mismatches[0].index == (0,)
    assert "of x" in str(caught.value)
    with pytest.raises(calipers.ClosenessError, match=r"shapes \(3,\), \(2,\) mismatch"):
        function(a, cuda.to_device(x[:2]))
    with pytest.raises(TypeError, match="on the host"):
        function(a, x)


def test_a_number_beside_a_device_array():
    ones = cuda.to_device(np.ones(3))
    npt.assert_allclose(ones, 1)
    npt.assert_array_equal(1.0, ones)
    with pytest.raises(calipers.ClosenessError, match="3 of 3 elements differ"):
        npt.assert_equal(ones, 2)
    with pytest.raises(calipers.ClosenessError, match="dtypes float64, float32 mismatch"):
        npt.assert_array_equal(ones, cuda.to_device(np.ones(3, "f4")), strict=True)
