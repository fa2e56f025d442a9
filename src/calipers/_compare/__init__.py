"""Comparisons of arrays: allclose, isclose, array_equal, compare, assert_close."""
