"""The verdicts of allclose, isclose, array_equal, allfinite and first_nonfinite."""

import asyncio
import math
import threading
import warnings
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers._core import threads as _threads
from tests.data import oracles
from tests.data.closeness_cases import EDGE

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


# Layouts: every array function sees every form of the same values.


def _strided(x):
    wide = np.empty((*x.shape, 2), x.dtype)
    wide[..., 0] = x
    return wide[..., 0]


def _readonly(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def _unaligned(x):
    raw = np.empty(x.nbytes + 1, np.uint8)[1:]
    view = raw.view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


LAYOUTS = {
    "c": np.ascontiguousarray,
    "f": np.asfortranarray,
    "strided": _strided,
    "reversed": lambda x: x[::-1].copy()[::-1],
    "readonly": _readonly,
    "byteswapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "unaligned": _unaligned,
    "permuted": lambda x: np.ascontiguousarray(np.moveaxis(x, 0, 1)).swapaxes(0, 1),
}

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", ["c", "f", "strided"])
def test_layouts(layout_a, layout_b, dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2 if dtype == "?" else 9, (7, 5, 3)).astype(dtype)
    y = x.copy()
    y[3, 2, 1] = not y[3, 2, 1] if dtype == "?" else y[3, 2, 1] + 4
    for values, same in ((x, True), (y, False)):
        a, b = LAYOUTS[layout_a](x), LAYOUTS[layout_b](values)
        before = a.tobytes(), b.tobytes()
        assert calipers.allclose(a, b, atol=0.5) is same
        assert calipers.array_equal(a, b) is same
        result = calipers.isclose(a, b, atol=0.5)
        assert (result == (x == values)).all()
        assert result.dtype == bool
        assert result.shape == x.shape
        for axis in (0, 1, -1, (0, 2), (0, 1, 2), ()):
            rows = calipers.allclose(a, b, atol=0.5, axis=axis)
            assert (rows == (x == values).all(axis=axis)).all()
            assert np.shape(rows) == (x == values).all(axis=axis).shape
        assert (a.tobytes(), b.tobytes()) == before


def test_isclose_keeps_memory_order_as_numpy():
    a = np.asfortranarray(np.zeros((3, 4)))
    assert calipers.isclose(a, a).flags.f_contiguous
    assert calipers.isclose(a[::2], a[::2]).strides == np.isclose(a[::2], a[::2]).strides


@pytest.mark.parametrize("n", [1, 63, 64, 65, 127, 128, 129, 511, 512, 513, 16384, 20000, 700_001])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "c16"])
def test_a_mismatch_is_found_wherever_it_is(n, dtype):
    x = np.ones(n, dtype)
    for position in {0, n // 3, n // 2, n - 1}:
        y = x.copy()
        y[position] = 3
        assert not calipers.allclose(x, y)
        assert not calipers.allclose(x[::-1], y[::-1])
        expected = np.ones(n, bool)
        expected[position] = False
        assert (calipers.isclose(x, y) == expected).all()
        rows = calipers.allclose(np.stack([x, x]), np.stack([x, y]), axis=1)
        assert rows.tolist() == [True, False]
        columns = calipers.allclose(np.stack([x, x]).T, np.stack([x, y]).T, axis=0)
        assert columns.tolist() == [True, False]


def test_long_rows_and_many_short_rows():
    x = np.zeros((3, 50_000))
    y = x.copy()
    y[1, 49_999] = 1
    assert calipers.allclose(x, y, axis=1).tolist() == [True, False, True]
    x, y = np.zeros((300_000, 3)), np.zeros((300_000, 3))
    y[[5, 299_999], [2, 0]] = 1
    assert np.flatnonzero(~calipers.allclose(x, y, axis=1)).tolist() == [5, 299_999]
    assert np.flatnonzero(~calipers.allclose(x[:, ::-1], y[:, ::-1], axis=1)).tolist() == [
        5,
        299_999,
    ]


# Broadcasting, scalars, tolerances


@pytest.mark.parametrize(
    ("shape_a", "shape_b", "shape_rtol"),
    [((3, 4), (4,), ()), ((3, 1), (1, 4), (3, 4)), ((), (2, 3), (3,)), ((0, 3), (1, 3), ())],
)
def test_broadcasting(shape_a, shape_b, shape_rtol):
    rng = np.random.default_rng(1)
    a, b, rtol = rng.random(shape_a), rng.random(shape_b), rng.random(shape_rtol)
    expected = np.isclose(a, b, rtol=rtol, atol=0.1)
    result = calipers.isclose(a, b, rtol=rtol, atol=0.1)
    assert result.shape == expected.shape
    assert (result == expected).all()
    assert calipers.allclose(a, b, rtol=rtol, atol=0.1) is bool(expected.all())
    rows = calipers.allclose(a, b, rtol=rtol, atol=0.1, axis=-1)
    assert (rows == expected.all(axis=-1)).all()


def test_zero_strides_are_not_materialised_nor_mistaken():
    a = np.broadcast_to(np.array(1.0), (1000, 1000))
    b = np.ones((1000, 1000))
    assert calipers.allclose(a, b)
    b[999, 999] = 2
    assert not calipers.allclose(a, b)


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match=r"a \(2,\), b \(3,\)"):
        calipers.allclose(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match=r"rtol \(2,\)"):
        calipers.isclose(np.zeros(3), np.zeros(3), rtol=[0.1, 0.2])
    with pytest.raises(np.exceptions.AxisError, match="axis"):
        calipers.allclose(np.zeros(3), np.zeros(3), axis=1)
    assert calipers.array_equal(np.zeros(2), np.zeros(3)) is False
    assert calipers.array_equal(np.zeros((1, 3)), np.zeros(3)) is False


def test_python_numbers_are_weak_and_numpy_scalars_strong():
    exact = {"rtol": 0, "atol": 0}
    x = np.array([0.1], "f4")
    assert calipers.allclose(x, 0.1, **exact)
    assert calipers.allclose(0.1, x, **exact)
    assert not calipers.allclose(x, np.float64(0.1), **exact)
    assert calipers.allclose(np.array([16777216], "f4"), 16777217, **exact)
    assert calipers.allclose(np.array([0.1], "c8"), 0.1, **exact)
    assert calipers.allclose(x, 0.1 + 0j, **exact)
    # what the dtype cannot hold is no infinity
    assert not calipers.allclose(np.array([np.inf], "f4"), 1e300, **exact)
    assert calipers.allclose(np.array([np.inf], "f4"), np.inf, **exact)
    assert not calipers.allclose(np.array([2**53]), 2**53 + 1, **exact)
    assert not calipers.allclose(np.array([255], "u1"), 256, **exact)
    assert not calipers.allclose(np.array([1], "u8"), -1, **exact)
    assert calipers.allclose(10**30, 10**30)
    assert calipers.isclose(1, 1) is np.True_
    assert calipers.isclose(np.float32(1), 2.0) is np.False_


@pytest.mark.parametrize(("dtype_a", "dtype_b"), [(a, b) for a in DTYPES for b in DTYPES if a != b])
def test_mixed_dtypes_promote(dtype_a, dtype_b):
    a, b = np.array([0, 1, 1, 0]).astype(dtype_a), np.array([0, 1, 0, 1]).astype(dtype_b)
    assert calipers.isclose(a, b).tolist() == [True, True, False, False]
    assert not calipers.allclose(a, b)
    assert calipers.allclose(a, b, atol=1)
    assert calipers.array_equal(a[:2], b[:2])
    assert calipers.allclose(a, b, axis=0) is np.False_
    assert calipers.isclose(a, b, atol=[0, 0, 1, 0]).tolist() == [True, True, True, False]


def test_integers_meet_floats_by_numpys_promotion():
    big = np.array([2**53 + 1])
    assert calipers.allclose(big, big.astype(float), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("rtol", "atol"), [(np.nan, 0.0), (0.0, np.nan), (np.inf, 0.0), (0.0, np.inf), (-np.inf, 1.0)]
)
def test_tolerances_that_are_not_finite_warn_and_answer_as_numpy(rtol, atol):
    a, b = np.array([1.0, 0.0, np.inf, np.nan]), np.array([2.0, 0.0, np.inf, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = np.isclose(a, b, rtol, atol)
    with pytest.warns(RuntimeWarning, match="One of rtol or atol is not valid") as caught:
        assert (calipers.isclose(a, b, rtol, atol) == expected).all()
    assert caught[0].filename == __file__
    with pytest.warns(RuntimeWarning, match="One of rtol or atol"):
        assert calipers.allclose(a, b, rtol, atol) is bool(expected.all())


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "c16", "c8", "i8", "i4", "i1", "u2", "?"])
def test_an_infinite_rtol_of_zero_is_no_tolerance(dtype):
    a, b = np.array([1, 0]).astype(dtype), np.array([0, 0]).astype(dtype)
    with pytest.warns(RuntimeWarning, match="One of rtol or atol"):
        assert not calipers.allclose(a, b, np.inf, 3.0)
    with pytest.warns(RuntimeWarning, match="One of rtol or atol"):
        assert calipers.isclose(a, b, np.inf, 3.0).tolist() == [False, True]


@pytest.mark.parametrize(("rtol", "atol"), [(-1.0, 0.0), (0.0, -1.0), (-1.0, 3.0), (3.0, -1.0)])
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "c16", "c8", "i8", "i1", "u4"])
def test_negative_tolerances_answer_as_numpy(rtol, atol, dtype):
    a, b = np.array([1, 1, 5, 0]).astype(dtype), np.array([1, 2, 1, 0]).astype(dtype)
    assert (calipers.isclose(a, b, rtol, atol) == np.isclose(a, b, rtol, atol)).all()
    for i in range(4):
        expected = np.allclose(a[i : i + 1], b[i : i + 1], rtol, atol)
        assert calipers.allclose(a[i : i + 1], b[i : i + 1], rtol, atol) is expected


@pytest.mark.parametrize("bad", ["x", 1j, None, np.array(["a"]), object()])
def test_a_tolerance_that_is_no_number_is_named(bad):
    with pytest.raises(TypeError, match="rtol must be a real number"):
        calipers.allclose(1.0, 1.0, rtol=bad)
    with pytest.raises(TypeError, match="atol must be a real number"):
        calipers.isclose(1.0, 1.0, atol=bad)


def test_masked_elements_are_not_compared_wherever_chunks_end():
    a = np.ma.array([1.0, 9.0, 9.0, 2.0], mask=[0, 1, 1, 0])
    b, far = np.ma.array([1.0, 0.0, 0.0, 2.0]), np.ma.array([1.0, 0.0, 0.0, 3.0])
    for ends in ([4], [2, 4], [1, 3, 4], [1, 2, 3, 4]):
        for other, verdict in ((b, True), (far, False)):
            chunks = [[x[i:j] for i, j in zip([0, *ends], ends, strict=False)] for x in (a, other)]
            assert calipers.allclose(*map(iter, chunks)) is verdict
            assert bool(calipers.compare(*map(iter, chunks))) is verdict
    nothing = np.ma.masked_all(2)
    assert calipers.allclose(nothing, nothing)
    assert calipers.compare(nothing, nothing)


def test_masked_elements_beside_objects_are_not_compared():
    objects = np.array([2, 2**70, 3], object)
    masked = np.ma.array([2.0, 5.0, 3.0], mask=[False, True, False])
    assert calipers.allclose(objects, masked)
    assert np.ma.getmaskarray(calipers.isclose(objects, masked)).tolist() == [False, True, False]
    assert not calipers.allclose(objects, np.ma.array(masked.data, mask=[False, False, True]))
    assert calipers.compare(objects, masked, check_dtype=False)


def test_integers_beyond_64_bits_have_an_exact_distance():
    for n in (2**64, 2**70, 10**400, -(2**64)):
        for a, b in ((n, n + 1), ([n], [n + 1]), (np.array([n], object), n + 1)):
            assert calipers.allclose(a, a, rtol=0, atol=0)
            assert not calipers.allclose(a, b, rtol=0, atol=0.99)
            assert calipers.allclose(a, b, rtol=0, atol=1)
            assert calipers.allclose(a, b)  # within rtol
            assert calipers.isclose(a, b, rtol=0, atol=np.array([0, 1])).tolist() == [False, True]
            assert not calipers.array_equal(a, b)
    assert calipers.allclose([[2**70, 1]], [2**70, 2], 0, 0, axis=1).tolist() == [False]
    assert not calipers.allclose(np.array([2**64 - 1], "u8"), 2**64, rtol=0, atol=0)
    assert calipers.allclose(np.array([2**64 - 1], "u8"), 2**64, rtol=0, atol=1)
    assert calipers.allclose(np.longdouble([2**70]), [2**70], rtol=0, atol=0)
    for other in (1.0, np.array([np.inf, np.nan]), np.float32([1.0]), np.longdouble([1])):
        assert not calipers.allclose(other, 10**400)
        assert not calipers.allclose(10**400, other)
    assert calipers.allclose(np.float64([2.0**70]), 2**70, rtol=0, atol=0)
    assert calipers.allclose(np.float32([2.0**70]), 2**70 + 1, rtol=0, atol=0)  # as any number
    with pytest.warns(RuntimeWarning, match="not valid"):
        assert calipers.allclose(2**70, 1, np.inf)


@pytest.mark.parametrize("rtol", [math.inf, -math.inf, math.nan, 0.0, 1.0])
@pytest.mark.parametrize("atol", [math.inf, -math.inf, math.nan, 0.0])
@pytest.mark.filterwarnings("ignore:One of rtol or atol is not valid")
def test_infinite_tolerances_of_integers_beyond_64_bits_are_those_of_others(rtol, atol):
    a, b = [5, 0, 7, -1], [0, 0, 8, 2]
    beyond, far = [*a, 2**70, 10**400], [*b, 2**70, 10**400 + 1]
    expected = [oracles.close(x, y, rtol, atol) for x, y in zip(a, b, strict=True)]
    assert calipers.isclose(a, b, rtol, atol).tolist() == expected
    assert calipers.isclose(beyond, far, rtol, atol).tolist()[:5] == [*expected, True]
    wide = (rtol >= 1 and atol >= 0) or (rtol == 0 and atol == math.inf)
    assert calipers.isclose(beyond, far, rtol, atol)[5] == wide


def test_no_floating_point_warning_and_no_errstate():
    with np.errstate(all="raise"):
        for dtype in ("f2", "f4", "f8", "c8", "c16"):
            with np.errstate(all="ignore"):
                values = np.array([65504, -65504, 1e-310, np.inf, np.nan, 0]).astype(dtype)
            for a in (values, values[::-1], values[::-1].astype(values.dtype.newbyteorder())):
                calipers.isclose(a, values)
                calipers.allclose(a, values, rtol=1e300, atol=1e-320)
                calipers.array_equal(a, values)
                calipers.first_nonfinite(a)
        # a number that the dtype rounds to zero, and NumPy's own arithmetic
        for a, b in (
            (np.float32([1]), 1e-60),
            (np.longdouble([1]), -(2**63) + 1),
            (np.array([1e308, None], object)[:1], np.array([-1.7e308])),
        ):
            assert not calipers.allclose(a, b, rtol=1e-320)
            calipers.isclose(a, b, rtol=1e300)
            calipers.allclose(a, b, rtol=1e300, axis=0)
        assert not calipers.array_equal(np.array([np.complex64(1)], object), [1e60 + 0j])


# array_equal and finiteness


def test_integers_beyond_64_bits_are_finite():
    for x in (2**70, [2**70, -1], np.array([[1, 10**400]], object)):
        assert calipers.allfinite(x)
        assert calipers.first_nonfinite(x) is None


def test_isclose_keeps_the_order_of_what_runs_backwards():
    a, b = np.arange(5.0), np.array([0.0, 1, 2, 9, 4])
    calipers.isclose(a, b)  # the kernel is there, and nothing has to be asked
    for step in (-1, -2, 2):
        assert calipers.isclose(a[::step], b[::step]).tolist() == (a == b)[::step].tolist()
        assert calipers.isclose(a[::step], b[::step].copy()).tolist() == (a == b)[::step].tolist()


SIGNS = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", "F", "D"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_array_equal_finds_one_element_wherever_it_is(dtype, layout):
    values = np.zeros((3, 1100), dtype)  # blocks of 8192 bytes, the last one ragged
    for place in [(0, 0), (0, 1023), (0, 1024), (1, 947), (1, 948), (2, 1099)]:
        other = values.copy()
        other[place] = 1
        a, b = LAYOUTS[layout](values), LAYOUTS[layout](other)
        assert calipers.array_equal(a, LAYOUTS[layout](values))
        assert not calipers.array_equal(a, b)
        assert not calipers.array_equal(b, a)
        assert not calipers.array_equal(a, other)  # of another layout


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", "F", "D"])
@pytest.mark.parametrize("step", [2, -1, -3])
def test_array_equal_of_vectors_with_gaps_finds_one_element_wherever_it_is(dtype, step):
    for n in (0, 1, 3, 4, 5, 8, 11):
        values = np.zeros(n * abs(step), dtype)[::step]
        gaps = np.ones(n * abs(step), dtype)[::step]  # what lies between is not asked
        gaps[:] = 0
        for _ in range(2):  # compiled by the first call, at hand for the second
            assert calipers.array_equal(values, gaps)
            assert calipers.array_equal(values, gaps.copy())
            assert calipers.array_equal(values, np.broadcast_to(np.zeros((), dtype), n))
        for place in range(n):
            gaps[place] = 1
            assert not calipers.array_equal(values, gaps)
            assert not calipers.array_equal(gaps.copy(), values)
            gaps[place] = 0
    if values.dtype.kind in "fc":
        values[[2, 9]] = gaps[[2, 9]] = np.nan
        assert not calipers.array_equal(values, gaps)
        assert calipers.array_equal(values, gaps, equal_nan=True)
        gaps[9] = 0
        assert not calipers.array_equal(values, gaps, equal_nan=True)


def test_array_equal_of_long_vectors_with_gaps():
    a = np.zeros(3_000_000)[::2]
    b = a.copy()
    assert calipers.array_equal(a, b)
    b[-1] = 1
    assert not calipers.array_equal(a, b)
    signs = np.repeat(SIGNS, 2)[::2]
    assert calipers.array_equal(signs[:3], signs[:3].astype(np.int64))
    assert not calipers.array_equal(signs, signs.astype(np.int64))
    packed = np.zeros(9, "u1, f8")["f1"]  # nine bytes apart
    assert calipers.array_equal(packed, packed.copy())


def test_array_equal_knows_nan_where_numpy_does_not():
    nan = float("nan")
    for a in ([2**70, nan], [Decimal(1), Decimal("NaN")], ["text", None], [Fraction(1, 3), nan]):
        same = np.array(a, object)
        assert calipers.array_equal(same, same.copy(), equal_nan=True)
        assert not calipers.array_equal(same, same[::-1], equal_nan=True)
    assert calipers.array_equal([2**70], [2**70], equal_nan=True)
    assert not calipers.array_equal([2**70], [2**70 + 1], equal_nan=True)
    assert calipers.array_equal(np.array([1, nan], object), [1.0, nan], equal_nan=True)
    assert calipers.array_equal(["a"], ["a"], equal_nan=True)
    assert not calipers.array_equal([b"a"], [1.0], equal_nan=True)
    record = np.array([(1, nan)], "i4, f4")
    assert calipers.array_equal(record, record.copy(), equal_nan=True)
    assert not calipers.array_equal(record, record.copy())


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "F", "D", "bfloat16"])
def test_array_equal_of_nan_and_signed_zeros(dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    a = np.zeros(700, dtype)
    b = -a
    assert calipers.array_equal(a, b)
    a[[5, 699]] = b[[5, 699]] = np.nan
    assert not calipers.array_equal(a, b)
    assert calipers.array_equal(a, b, equal_nan=True)
    b[5] = 0
    assert not calipers.array_equal(a, b, equal_nan=True)
    assert not calipers.array_equal(b, a, equal_nan=True)


def test_array_equal_of_complex_nan_is_of_either_part():
    a, b = np.array([complex(np.nan, 1)]), np.array([complex(2, np.nan)])
    assert not calipers.array_equal(a, b)
    assert calipers.array_equal(a, b, equal_nan=True)
    assert not calipers.array_equal(a, [complex(2, 1)], equal_nan=True)
    for b in ([2 + 1j], [1 + 2j]):
        assert not calipers.array_equal([1 + 1j], b, equal_nan=True)


def test_array_equal_of_signed_and_unsigned_is_exact():
    assert calipers.array_equal(SIGNS[:3], SIGNS[:3].astype(np.int64))
    for k in range(3, 5):  # what wraps, and what rounds to one float
        assert not calipers.array_equal(SIGNS[k : k + 1], SIGNS[k : k + 1].astype(np.int64))
    assert not calipers.array_equal(SIGNS[3:4], SIGNS[2:3].astype(np.int64))


def test_array_equal_of_what_has_no_kernel_is_numpys():
    assert calipers.array_equal(np.array(["a", "b"]), ["a", "b"])
    dates = np.array(["2020-01-01"], "M8[D]")
    assert calipers.array_equal(dates, dates)
    assert calipers.array_equal(np.array([None, 1]), np.array([None, 1]))
    assert calipers.array_equal([1, [2, 3]], [1, 2]) is False
    x = np.array([1.0, np.nan])
    assert not calipers.array_equal(x, x)
    assert calipers.array_equal(x, x.copy(), equal_nan=True)


@pytest.mark.parametrize("n", [3, 300])  # gathered at once, and by buffers
@pytest.mark.parametrize("layout", LAYOUTS)
def test_first_nonfinite_of_two_is_the_first_in_c_order(layout, n):
    x = np.ones((n, n, 3))
    x[n - 1, 0, 0], x[0, n - 1, 2] = np.nan, np.inf
    assert calipers.first_nonfinite(LAYOUTS[layout](x)) == (0, n - 1, 2)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "longdouble"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_first_nonfinite_is_the_first_in_c_order(dtype, layout):
    x = np.zeros((40, 30, 5), dtype)
    make = LAYOUTS[layout]
    assert calipers.allfinite(make(x))
    assert calipers.first_nonfinite(make(x)) is None
    x[33, 2, 1] = np.inf
    x[33, 2, 0] = np.nan
    x[34, 0, 0] = -np.inf
    assert calipers.first_nonfinite(make(x)) == (33, 2, 0)
    assert not calipers.allfinite(make(x))


def test_finiteness_of_other_things():
    assert calipers.allfinite(np.arange(5))
    assert calipers.allfinite([])
    assert calipers.first_nonfinite(float("nan")) == ()
    assert calipers.first_nonfinite([1.0, float("inf")]) == (1,)
    assert calipers.first_nonfinite(np.array([1, complex(0, np.inf)])) == (1,)
    masked = np.ma.masked_invalid([1.0, np.nan])
    assert calipers.allfinite(masked)
    with pytest.raises(TypeError):
        calipers.allfinite(np.array(["a"]))


def test_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        x = np.array([1.0, 2.0, 0.0, np.nan]).astype(dtype)
        y = np.array([1.0, 3.0, 0.0, np.nan]).astype(dtype)
        assert calipers.isclose(x, y, equal_nan=True).tolist() == [True, False, True, True]
        wide = np.array([1.0, 3.0, 0.0, np.nan])
        with np.errstate(all="raise"):
            assert calipers.isclose(x, wide).tolist() == [True, False, True, False]
        assert calipers.allclose(x, x, equal_nan=True)
        assert calipers.array_equal(x[:3], x[:3].copy())
        assert calipers.first_nonfinite(x) == (3,)
        assert calipers.allclose(np.array([0.1]).astype(dtype), 0.1, rtol=0, atol=0)


def test_tolerances_that_lie_far_apart():
    # rtol*|b| is 2**-2148, and 1248 binary digits below atol
    b = np.full(300, 5e-324)
    assert not calipers.allclose(b + 2.0**-899, b, rtol=5e-324, atol=2.0**-900)
    assert calipers.allclose(b + 2.0**-899, b, rtol=5e-324, atol=2.0**-899)
    # |b|**2 underflows, and is rounded up to twice what it is: 1.9 would pass for 1.6
    b = np.full(300, 1.6e-162 + 0j)
    assert not calipers.allclose(b + 1.9e-102, b, rtol=1e60, atol=0)
    assert calipers.allclose(b + 1.5e-102, b, rtol=1e60, atol=0)


def test_binary32_tolerances_beyond_its_range():
    x = np.zeros(300, "f4")
    b, a = x + np.float32(1e-45), x + 1
    assert not calipers.allclose(a, b, rtol=1e39, atol=0)
    assert calipers.allclose(a, b, rtol=1e46, atol=0)
    assert not calipers.allclose(x + np.inf, x + np.float32(3e38), rtol=1e10, atol=1e39)
    assert calipers.allclose(x + np.float32(-3e38), x + np.float32(3e38), rtol=2, atol=0)
    assert not calipers.allclose(x + np.float32(-3e38), x + np.float32(3e38), rtol=1.99, atol=0)


def test_binary32_tolerances_below_its_normal_range():
    unit = 2.0**-149
    b = np.full(300, 17 * unit, "f4")
    a = np.full(300, 19 * unit, "f4")
    # 0.1 * 17 units is less than 2 units, but rounds to 2 in binary32.
    assert not calipers.allclose(a, b, rtol=0.1, atol=0)
    assert calipers.allclose(a, b, rtol=0.12, atol=0)
    assert not calipers.allclose(a, b, rtol=0, atol=1.7 * unit)


# Bugs that other libraries had, one by one (numpy #5820 #5932 #8145 #15959, torch #32946,
# jax #19935, julia #17650)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8"])
def test_the_least_integer_is_close_to_itself_and_to_its_neighbour(dtype):
    least = np.array([np.iinfo(dtype).min], dtype)
    assert calipers.allclose(least, least)
    assert calipers.allclose(least, least + 1, rtol=0, atol=1)
    assert not calipers.allclose(least, ~least, rtol=0, atol=1)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
def test_unsigned_distances_do_not_wrap(dtype):
    a, b = np.array([10], dtype), np.array([14], dtype)
    for x, y in ((a, b), (b, a)):
        assert not calipers.allclose(x, y, rtol=0, atol=3)
        assert calipers.allclose(x, y, rtol=0, atol=4)


def test_infinity_meets_finite_numbers_on_either_side():
    a, b = np.array([np.inf, 1.0, -np.inf]), np.array([1.0, np.inf, -np.inf])
    assert calipers.isclose(a, b).tolist() == [False, False, True]
    z = np.array([complex(np.inf, 1), complex(1, -np.inf)])
    assert calipers.isclose(z, z).tolist() == [True, True]
    assert calipers.isclose(z, z.conj()).tolist() == [False, False]


def test_equal_nan_is_obeyed_and_one_outlier_is_not_hidden():
    x = np.ones(10_000)
    x[5] = np.nan
    assert not calipers.allclose(x, x, equal_nan=False)
    assert calipers.allclose(x, x, equal_nan=True)
    y = x.copy()
    y[9_999] += 1e-3
    assert not calipers.allclose(x, y, equal_nan=True)


class TestAllcloseAsync:
    def test_the_verdict_is_that_of_allclose(self):
        x = np.ones(3_000_000)
        y = x.copy()
        y[-1] = 2
        pending = [calipers.allclose_async(x, other) for other in (x, y) for _ in range(4)]
        assert [p.result() for p in pending] == [True] * 4 + [False] * 4
        assert all(p.done() for p in pending)
        assert bool(pending[0])
        assert not pending[-1]

    def test_it_can_be_awaited(self):
        x = np.ones(3_000_000)

        async def ask():
            first, second = calipers.allclose_async(x, x), calipers.allclose_async(x, x + 1)
            return await asyncio.gather(first, second)

        assert asyncio.run(ask()) == [True, False]

    def test_errors_come_with_the_answer(self):
        pending = calipers.allclose_async(np.ones(2), np.ones(3))
        with pytest.raises(ValueError, match="could not be broadcast"):
            pending.result()
        assert calipers.allclose_async([1.0], [1.1], rtol=0.2).result()

    def test_it_returns_before_the_work_is_done(self):
        """The pool's one helper is held up; a call that worked itself would not return."""
        held = threading.Event()
        with calipers.num_threads(1):
            blocker = _threads.in_background(held.wait)
            pending = calipers.allclose_async([1.0], [1.0])
            assert not pending.done()
            held.set()
            assert pending.result()
            assert blocker.result()


@pytest.mark.slow
@pytest.mark.parametrize("axes", [33, 64])
def test_arrays_have_up_to_64_axes(axes):
    a = np.zeros((2,) * 6 + (1,) * (axes - 6))
    b, zero = a.copy(), np.zeros((1,) * axes)
    b[(1,) * 6] = 1
    assert calipers.allclose(a, zero)
    assert not calipers.allclose(a, b)
    assert np.count_nonzero(calipers.isclose(a, b)) == 63
    assert not calipers.array_equal(a, b)
    report = calipers.compare(a, b)
    assert (report.size, report.mismatches) == (64, 1)
    assert calipers.compare(a, zero, check_shape=False)
    assert not calipers.compare(a, zero)
    with pytest.raises(ValueError, match="could not be broadcast"):
        calipers.allclose(a, np.zeros((3,) * 6 + (1,) * (axes - 6)))
    assert calipers.allclose(a[:0], b[:0])


def test_a_verdict_to_be_says_so():
    release = threading.Event()
    pending = calipers.PendingBool(_Work(release, True))
    assert repr(pending) == "<PendingBool: pending>"
    release.set()
    assert repr(pending) == "<PendingBool: True>"
    failed = calipers.allclose_async([1.0], ["a"])
    with pytest.raises(TypeError):
        failed.result()
    assert repr(failed) == "<PendingBool: TypeError>"


class _Work:
    def __init__(self, release, verdict):
        self.done, self.result = release.is_set, lambda: verdict


@pytest.mark.parametrize("n", [6, 50_000, 10_000_002])
@pytest.mark.parametrize("layout", ["as it is", "gaps", "row", "broadcast"])
def test_booleans_that_view_other_bytes_are_true_or_false(n, layout):
    values = np.zeros(n, np.uint8)
    values[: n // 3], values[n // 3 : n // 2] = 255, 2
    a, b = values.view(bool), values != 0
    c = b.copy()
    c[-1] = True
    if layout == "gaps":
        a, b, c = (
            np.repeat(x, 2)[::2] if x is not a else values.repeat(2)[::2].view(bool)
            for x in (a, b, c)
        )
    elif layout == "row":
        a, b, c = a[None, :], b[None, :], c[None, :]
    elif layout == "broadcast" and n < 100:
        a, b, c = np.broadcast_to(a, (3, n)), np.tile(b, (3, 1)), np.tile(c, (3, 1))
    for x, y in ((a, b), (b, a), (a, a)):
        assert calipers.allclose(x, y, rtol=0, atol=0)
        assert calipers.isclose(x, y, rtol=0, atol=0).all()
        assert calipers.array_equal(x, y)
        assert calipers.allclose(x, y, rtol=0, atol=0, axis=-1).all()
    for x, y in ((a, c), (c, a)):
        assert not calipers.allclose(x, y, rtol=0, atol=0)
        assert np.flatnonzero(~calipers.isclose(x, y, rtol=0, atol=0).ravel())[0] == n - 1
        assert not calipers.array_equal(x, y)
        assert calipers.allclose(x, y, rtol=0, atol=1)
        assert not calipers.allclose(x, y, rtol=0, atol=0, axis=-1).any()
    assert values[0] == 255


def test_numbers_that_have_names_for_their_parts_are_compared():
    named = np.dtype((np.int32, [("low", np.int16), ("high", np.int16)]))
    a, b = np.arange(3, dtype=np.int32).view(named), np.arange(3)
    for x, y in ((a, b), (b, a), (a, a)):
        assert calipers.allclose(x, y)
        assert calipers.isclose(x, y).all()
        assert calipers.array_equal(x, y)
        assert calipers.compare(x, y, check_dtype=False)
    assert calipers.isclose(a, b + 1, rtol=0, atol=0).tolist() == [False] * 3
    assert not calipers.array_equal(a, b + 1)
    assert calipers.allfinite(a)


# Exact numbers


EXACT = {
    "int": 10**400,
    "Fraction": Fraction(10**400, 3),
    "Decimal": Decimal("3.3e400"),
    "small Fraction": Fraction(1, 3 * 10**400),
    "small Decimal": Decimal("3.3e-400"),
    "third": Fraction(1, 3),
    "tenth": Decimal("0.1"),
}


def of_form(form, x):
    return {"scalar": x, "list": [x], "array": np.array([x], object)}[form]


@pytest.mark.parametrize("form", ["scalar", "list", "array"])
@pytest.mark.parametrize("x", EXACT.values(), ids=EXACT)
def test_exact_numbers_of_any_size_are_compared_exactly(x, form):
    b = of_form(form, x)
    for factor, expected in ((Fraction(10**7 + 1, 10**7), True), (Fraction(11, 10), False)):
        if isinstance(x, Decimal):
            factor = Decimal(factor.numerator) / Decimal(factor.denominator)
        a = of_form(form, x * factor if not isinstance(x, int) else int(x * factor))
        options = {"rtol": 1e-6, "atol": 0}
        assert calipers.allclose(a, b, **options) is expected
        assert np.all(calipers.isclose(a, b, **options)) == expected
        assert bool(calipers.compare(a, b, **options)) is expected
        assert (a == calipers.approx(b, **options)) is expected
        assert not calipers.array_equal(a, b)
    assert calipers.array_equal(b, b)
    assert calipers.compare(b, b, rtol=0, atol=0)


REALS = st.one_of(
    st.integers(-(10**40), 10**40),
    st.fractions(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(list(EXACT.values())),
)


@given(a=REALS, b=REALS, rtol=st.sampled_from([0.0, 1e-9, 0.5, 1e300]), atol=st.floats(0, 1e300))
def test_exact_numbers_are_compared_by_the_definition(a, b, rtol, atol):
    if isinstance(a, float) and isinstance(b, float):
        a = Fraction(a)
    x, y = Fraction(a), Fraction(b)
    expected = abs(x - y) <= Fraction(atol) + Fraction(rtol) * abs(y)
    pair = np.array([a, 0], object), np.array([b, 0], object)
    assert calipers.allclose(*pair, rtol=rtol, atol=atol) is expected
    report = calipers.compare(*pair, rtol=rtol, atol=atol)
    assert bool(report) is expected
    worst = report.worst()
    assert (worst is not None and worst.excess > 1) is not expected


def test_infinite_and_nan_decimals_are_compared_as_floats_are():
    values = [1.0, math.inf, -math.inf, math.nan]
    decimals = [Decimal(x) for x in values]
    for equal_nan in (False, True):
        expected = [[np.isclose(x, y, equal_nan=equal_nan) for y in values] for x in values]
        for x, row in zip(decimals, expected, strict=True):
            for others in (values, decimals):
                for y, close in zip(others, row, strict=True):
                    assert calipers.allclose(x, y, equal_nan=equal_nan) == close
                    assert calipers.isclose([x], [y], equal_nan=equal_nan) == [close]
                    assert bool(calipers.compare([x], [y], equal_nan=equal_nan)) == close


def test_a_decimal_whose_digits_nobody_can_write_is_refused_unless_it_is_equal():
    huge = Decimal("1e99999999")
    assert calipers.allclose(huge, huge)
    assert calipers.compare([huge], [huge])
    for compare in (calipers.allclose, calipers.compare):
        with pytest.raises(ValueError, match=r"a Decimal of 10\*\*99999999 is beyond 10\*\*100000"):
            compare([huge], [Decimal("2e99999999")])


@pytest.mark.parametrize(
    ("a", "b", "close"),
    [
        (Decimal(1), Decimal("1.000000001"), True),
        (Decimal(1), Decimal("1.1"), False),
        (Decimal("Infinity"), Decimal("Infinity"), True),
        (Decimal("NaN"), Decimal("NaN"), True),
        (Fraction(1, 3), 1 / 3, True),
        (10**400, 1j, False),
        (10**400, complex("inf"), False),
    ],
)
def test_numbers_that_numpy_does_not_compare(a, b, close):
    a, b = np.array([a], object), np.array([b], None if isinstance(b, complex) else object)
    assert calipers.allclose(a, b, equal_nan=True) is close
    assert calipers.isclose(a, b, equal_nan=True).tolist() == [close]
    assert calipers.isclose(a[0], b[0], equal_nan=True) == close


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "complex64", "complex128"])
def test_integers_beyond_all_floats(dtype):
    x = np.ones(2, getattr(ml_dtypes, dtype, dtype))
    for big in 10**400, -(10**309):
        for y in big, [big, 1]:
            assert not calipers.allclose(x, y)
            assert not calipers.array_equal(x, y)
            assert not calipers.compare(x, y, check_shape=False, check_dtype=False)
            assert calipers.isclose(x, y).tolist() == [False, isinstance(y, list)]
            assert calipers.isclose(y, x).tolist() == [False, isinstance(y, list)]


def test_a_negative_tolerance_is_made_up_for_by_the_other():
    # A bound that is negative accepts equality only; a tolerance that is negative need not.
    assert calipers.isclose(1.0, 1.5, rtol=-0.1, atol=1.0) == np.isclose(1.0, 1.5, -0.1, 1.0)
    assert calipers.isclose(1.0, 1.5, rtol=-0.1, atol=1.0)
    assert not calipers.isclose(1.0, 1.5, rtol=-1.0, atol=1.0)
