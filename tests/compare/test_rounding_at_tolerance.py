"""Verdicts where rounding decides, each aimed at a line of the kernels that a slip would break."""

from fractions import Fraction

import numpy as np
import pytest

import calipers
from tests.data import oracles


def steps_around(threshold, n, random):
    """Move each number by up to 4 steps of its format."""
    bits = threshold.view(f"i{threshold.itemsize}")
    return (bits + random.integers(-4, 5, n).astype(bits.dtype)).view(threshold.dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("rtol", "atol"),
    [
        (1e-3, 0.0),
        (0.0, 1e-3),
        (1e-5, 1e-8),
        (0.3, 1e-3),
        (3e-39, 0.0),
        (0.0, 3e-39),
        (7e-41, 4e-39),
    ]
    + [(1.0, 1e30), (1e-31, 1e-31), (2.0, 0.0), (0.3, 3e-40), (0.3, 1e-44)]
    # binary32 rounds the first term up here, then the second, and then the first down
    + [(0.3, 0.003), (0.003, 0.3), (0.3, -0.2), (-0.2, 0.3), (0.7, 0.0)],
)
def test_pairs_at_the_threshold(dtype, rtol, atol):
    """Tests in binary32 may doubt; they may not accept what the rule refuses, nor refuse others."""
    random = np.random.default_rng(0)
    n = 30_000
    large = rtol < 1e-30 < max(rtol, 1.0)
    with np.errstate(all="ignore"):
        b = (random.uniform(0.5, 2, n) * (1e30 if large else 1.0)).astype(dtype)
        bound = np.float64(atol) + np.float64(rtol) * np.abs(b.astype("f8"))
        b[bound < 1e-7 * np.abs(b)] = 0.0 if atol else 1e38
        if 0 < atol < 1e-30:
            b[::3] *= b.dtype.type(atol)  # both terms alike
        bound = np.float64(atol) + np.float64(rtol) * np.abs(b.astype("f8"))
        bound[::2] *= -1
        a = steps_around((b.astype("f8") + bound).astype(dtype), n, random)
    a[::7] = steps_around(np.abs(bound).astype(dtype), n, random)[::7]
    verdicts = calipers.isclose(a, b, rtol, atol)
    some = slice(0, n, 70)
    assert verdicts[some].tolist() == oracles.isclose(a[some], b[some], rtol, atol).tolist()
    for i in range(n):
        # A block of one pair: another may leave a block in doubt.
        assert calipers.allclose(a[i : i + 1], b[i : i + 1], rtol, atol) == verdicts[i]
        assert calipers.isclose(a[i : i + 1], b[i : i + 1], rtol, atol) == verdicts[i : i + 1]


@pytest.mark.parametrize("dtype", ["f4", "f2", "i1", "c8", "f8", "c16"])
@pytest.mark.parametrize(("rtol", "atol"), [(-1.0, 1.0), (1.0, -1.0), (-1e-3, 5.0), (3.0, -4.0)])
def test_one_negative_tolerance(dtype, rtol, atol):
    b = np.array([0, 1, 2, 3, 50]).astype(dtype)
    a = np.array([1, 2, 2, 5, 52]).astype(dtype)
    expected = oracles.isclose(a, b, rtol, atol)
    assert calipers.isclose(a, b, rtol, atol).tolist() == expected.tolist()
    assert [
        calipers.allclose(x, y, rtol, atol) for x, y in zip(a, b, strict=True)
    ] == expected.tolist()


def test_a_negative_rtol_where_both_terms_cancel():
    a, b = np.float32([1.2220982313156128]), np.float32([1.2209821939468384])
    assert not oracles.close(float(a[0]), float(b[0]), -0.9, 1.1)
    assert not calipers.allclose(a, b, -0.9, 1.1)


LIMIT = 1.7976931348623157e308
TINY = 5e-324


@pytest.mark.parametrize(
    ("a", "b", "rtol", "atol"),
    [
        # a difference beyond binary64
        *((1.5e308, -1.5e308, rtol, 0.0) for rtol in (1.99, 2.0, 2.01, 1.0)),
        *((1.5e308 + 1j, -1.5e308 - 1j, rtol, 0.0) for rtol in (1.99, 2.01, 1.0)),
        *((LIMIT * 1j, -LIMIT * 1j, rtol, 0.0) for rtol in (2.0, 1.9999999999999998, 1.0)),
        # a size beyond it, or below where squares vanish
        *((complex(LIMIT, LIMIT), complex(LIMIT, LIMIT / 2), rtol, 0.0) for rtol in (0.4, 0.5)),
        *((2.0**505, 2.0**505 * (1 + 0.25j), rtol, 0.0) for rtol in (0.24, 0.2426, 0.25)),
        *((2.0**-500 * 3, 2.0**-500 * (3 + 1j), rtol, 0.0) for rtol in (0.31, 0.3163, 0.32)),
        *(
            (complex(TINY, 0), complex(0, TINY * k), rtol, 0.0)
            for k in (1, 2)
            for rtol in (1.2, 1.5)
        ),
        *((1e-310, 1.1e-310 + 0j, rtol, 0.0) for rtol in (0.09, 0.0909, 0.091, 0.0910)),
        *((1e-162 + 0j, 3e-162j, rtol, atol) for rtol in (1.0, 1.06) for atol in (0.0, 1e-163)),
        # a tolerance whose square overflows, or magnifies what has vanished
        *((1e-160 + 0j, 1e-165j, rtol, 0.0) for rtol in (0.9e5, 1.1e5, 1e160)),
        (1e30 + 0j, 1e-165 + 0j, 1e200, 1e-3),
        (2e-137 + 0j, 1.6e-162 + 0j, 1e25, 0.0),
        (1e150 + 2.08e-12j, 1e150 + 0j, 1.6e-162, 1.6e-13),
        *((1.0 + 0j, 1e-200j, rtol, 0.0) for rtol in (1e199, 1e200, 1.1e200)),
        *((1e100 + 0j, 1.5e100j, 1e-155, atol) for atol in (1.8e100, 1.81e100)),
        (0.0, 0.0j, 0.0, 0.0),
        (TINY, 0.0, 0.0, 0.0),
        (TINY, -TINY, 0.0, 0.0),
        (TINY, TINY * 3, 0.5, TINY),
        # a bound whose terms cancel to 0, so far above the difference that it vanishes beside them
        *((1e308 + 0j, complex(1e308, TINY), *t) for t in ((1.0, -1e308), (-1.0, 1e308))),
        (np.nextafter(2.0**-860, 0), 2.0**-860, LIMIT, -LIMIT * 2.0**-860),
        (np.nextafter(2.0**-860, 0), 2.0**-860, -LIMIT, LIMIT * 2.0**-860),
    ],
)
def test_the_ends_of_the_range(a, b, rtol, atol):
    expected = oracles.close(a, b, rtol, atol)
    for n in (1, 50):
        x, y = np.full(n, a), np.full(n, b)
        if isinstance(a, complex) or isinstance(b, complex):
            x, y = x.astype("c16"), y.astype("c16")
        assert calipers.allclose(x, y, rtol, atol) is expected
        assert calipers.isclose(x, y, rtol, atol).tolist() == [expected] * n


@pytest.mark.parametrize("seed", range(4))
def test_distances_of_65_bits_at_a_rounded_bound(seed):
    """int64 against uint64: half of the distances tie between two binary64 numbers."""
    random = np.random.default_rng(seed)
    for _ in range(300):
        exact = 2**64 + int(random.integers(0, 2**62)) * 2 + 1
        if random.random() < 0.5:  # at a number of binary64, or between two
            exact = 2**64 + int(random.integers(0, 2**51)) * 4096
            exact += int(random.choice([-2049, -2048, -2047, -1, 0, 1]))
        high = min(exact, 2**64 - 1)
        low = high - exact
        if not -(2**63) <= low < 0:
            continue
        a, b = np.array([low]), np.array([high], np.uint64)
        nearest = float(exact)
        for atol in (np.nextafter(nearest, 0), nearest, np.nextafter(nearest, 2.0**66)):
            for x, y in ((a, b), (b, a)):
                expected = oracles.close(int(x[0]), int(y[0]), 0.0, float(atol))
                assert calipers.allclose(x, y, 0.0, atol) is expected, (low, high, atol)


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_the_farthest_integers(dtype):
    """Their distances round up, to 2**64 and to half as much again, which no uint64 holds."""
    a, b = np.array([np.iinfo(dtype).min], dtype), np.array([2**64 - 1], np.uint64)
    for limit in (2.0**64, 1.5 * 2.0**64):
        for atol in (np.nextafter(limit, 0), limit, np.nextafter(limit, np.inf), 2 * limit, 1e300):
            expected = oracles.close(int(a[0]), 2**64 - 1, 0.0, float(atol))
            assert calipers.allclose(a, b, 0.0, atol) is expected
            assert calipers.isclose(a, b, 0.0, atol).tolist() == [expected]


@pytest.mark.parametrize("order", ["C", "F", "strided"])
@pytest.mark.parametrize("axis", [0, 1])
def test_every_row_has_its_own_verdict_whatever_the_others(order, axis):
    """Several mismatches in a row, in the next one, in the last, over many buffers and tasks."""
    shape = (3000, 700)
    b = np.zeros(shape)
    a = b.copy()
    wrong = [(0, 3), (0, 5), (0, 699), (1, 0), (2, 699), (4, 1), (5, 0), (1500, 350), (2999, 698)]
    for index in wrong:
        a[index] = 1
    expected = np.ones(shape[1 - axis], dtype=bool)
    expected[[index[1 - axis] for index in wrong]] = False
    if order == "F":
        a, b = np.asfortranarray(a), np.asfortranarray(b)
    elif order == "strided":
        a = np.repeat(a, 2, axis=1)[:, ::2]
    with calipers.num_threads(2):
        assert np.array_equal(calipers.allclose(a, b, axis=axis), expected)
        rtol = np.full(shape[1], 1e-5)
        assert np.array_equal(calipers.allclose(a, b, rtol=rtol, axis=axis), expected)


def test_one_operand_alone_is_not_contiguous():
    x = np.arange(20.0)
    wide = np.repeat(x, 2)
    wide[1::2] = -1
    for a, b in ((x, wide[::2]), (wide[::2], x)):
        assert calipers.allclose(a, b)
        assert calipers.array_equal(a, b)
        assert not calipers.allclose(a, b[::-1])


@pytest.mark.parametrize("position", [0, 40_000, 1_500_000, 2_999_999])
def test_the_first_of_a_large_array(position):
    x = np.zeros((3000, 1000))
    x.flat[position] = np.nan
    with calipers.num_threads(2):
        assert calipers.first_nonfinite(x) == tuple(np.unravel_index(position, x.shape))


def test_fractions_and_single_arrays_are_tolerances():
    assert calipers.allclose(1.0, 1.2, rtol=Fraction(1, 5), atol=0)
    assert not calipers.allclose(1.0, 1.3, rtol=Fraction(1, 5), atol=0)
    assert calipers.allclose([1.0, 2.0], [1.1, 2.1], rtol=np.array(0.2))


@pytest.fixture
def no_numpy(monkeypatch):
    def asked(*args, **kwargs):
        raise AssertionError("NumPy was asked")

    for name in ("allclose", "isclose"):
        monkeypatch.setattr(calipers._compare.closeness, f"_numpy_{name}", asked)
    monkeypatch.setattr(calipers._compare.elementwise, "_numpy_array_equal", asked)


@pytest.mark.usefixtures("no_numpy")
def test_a_memory_map_is_an_array_to_the_kernels(tmp_path):
    x = np.memmap(tmp_path / "x", dtype="f8", mode="w+", shape=(50,))
    assert calipers.allclose(x, np.zeros(50))
    assert type(calipers.isclose(x, x)) is np.ndarray
    assert calipers.array_equal(x, x)


@pytest.mark.usefixtures("no_numpy")
def test_a_number_beyond_64_bits_is_a_float():
    assert calipers.allclose(2**70, 2.0**70)
    assert not calipers.allclose(2**70, 2.0**71)


def test_conversions_raise_no_flag():
    bits = np.array([0x7FC00000, 0x7F800001], "u4")  # the second NaN signals
    with np.errstate(all="raise"):
        for a in (bits.astype(">u4").view(">f4"), bits.view("f4")):
            assert not calipers.allclose(a, np.zeros(2))
            assert calipers.isclose(a, np.zeros(2), equal_nan=True).tolist() == [False, False]
