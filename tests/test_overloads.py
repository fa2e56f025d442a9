"""allclose and isclose in compiled code give the verdicts of the interpreter."""

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

import calipers
from tests.closeness_cases import EDGE


@numba.njit
def compiled_allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    return calipers.allclose(a, b, rtol, atol, equal_nan)


@numba.njit
def compiled_isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    return calipers.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


edge_cases = pytest.mark.parametrize(
    ("pair", "kwargs", "expected"),
    [c[1:] for c in EDGE if c[1][0].dtype != np.float16],
    ids=[c[0] for c in EDGE if c[1][0].dtype != np.float16],
)


@edge_cases
def test_known_verdicts(pair, kwargs, expected):
    a, b = pair
    assert compiled_allclose(a, b, **kwargs) is expected
    assert compiled_isclose(a, b, **kwargs).tolist() == [expected]
    assert compiled_allclose(a[0], b[0], **kwargs) is expected
    assert compiled_allclose(a[::-1], b[::-1], **kwargs) is expected


SHAPES = [
    ((3, 3), (3, 3)),
    ((2, 3), (3,)),
    ((1, 3), (2, 1)),
    ((2, 3, 4), (3, 1)),
    ((0, 3), (1, 3)),
    ((), (2, 2)),
]


@pytest.mark.parametrize(("shape_a", "shape_b"), SHAPES)
def test_shapes_broadcast_where_numba_isclose_fails(shape_a, shape_b):
    a = np.arange(np.prod(shape_a, dtype=int), dtype=float).reshape(shape_a)
    b = np.arange(np.prod(shape_b, dtype=int), dtype=float).reshape(shape_b) % 3
    expected = np.isclose(a, b)
    result = compiled_isclose(a, b)
    assert result.shape == expected.shape
    assert (result == expected).all()
    assert compiled_allclose(a, b) is bool(expected.all())
    assert compiled_allclose(np.asfortranarray(a), b) is bool(expected.all())


def test_large_arrays_take_the_blocked_loop():
    a = np.random.default_rng(0).random((40, 50))
    b = a.copy()
    assert compiled_allclose(a, b)
    b[-1, -1] += 1
    assert not compiled_allclose(a, b)
    assert compiled_isclose(np.eye(3), np.zeros((3, 3))).tolist() == (np.eye(3) == 0).tolist()


def test_scalars_are_weak_beside_binary32():
    x = np.full(3, 0.1, dtype=np.float32)
    for y in (0.1, 1e300, float("inf")):
        expected = calipers.allclose(x, y, rtol=0.0, atol=0.0)
        assert compiled_allclose(x, y, rtol=0.0, atol=0.0) is expected
        assert compiled_allclose(y, x, rtol=0.0, atol=0.0) is expected
    assert compiled_allclose(x.astype(np.complex64), 0.1 + 0j, rtol=0.0, atol=0.0)
    assert not compiled_allclose(x, np.array([0.1]), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("other", [np.int32(3), True, 3.0, 3 + 0j, np.arange(4)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i1", "i8", "u8", "?"])
def test_mixed_kinds(dtype, other):
    x = np.array([0, 1, 3, 2]).astype(dtype)
    expected = calipers.isclose(x, other)
    assert (compiled_isclose(x, other) == expected).all()
    assert compiled_allclose(x, other) is bool(expected.all())


def test_what_compiled_code_cannot_do_is_said():
    rows = numba.njit(lambda a, b: calipers.allclose(a, b, axis=1))
    with pytest.raises(TypingError, match="axis is not supported in compiled code"):
        rows(np.eye(2), np.eye(2))
    with pytest.raises(TypingError, match="rtol must be a number in compiled code"):
        compiled_allclose(np.eye(2), np.eye(2), rtol=np.eye(2))
    with pytest.raises(ValueError, match="broadcast"):
        compiled_allclose(np.zeros(2), np.zeros(3))
