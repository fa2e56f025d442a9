"""A report on device arrays is that on host arrays."""

import numpy as np
import pytest
from numba import cuda

import calipers
from calipers._cuda import runtime
from tests.data.closeness_cases import EDGE

TILE = runtime.policy(8, True, 1).tile


def drawn(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def both(a, b, given=None, **options):
    """Compare on both sides, and return the host's report once the device's is found the same."""
    expected = calipers.compare(a, b, **options)
    x, y = given or (cuda.to_device(v) if isinstance(v, np.ndarray) else v for v in (a, b))
    report = calipers.compare(x, y, **options)
    assert bool(report) == bool(expected)
    if expected.tally is not None:
        assert report.tally == expected.tally
        assert report.rms == pytest.approx(expected.rms, rel=1e-14)
        assert report.relative_norm == pytest.approx(expected.relative_norm, rel=1e-14)
    if expected.arrangement != "permuted: the same elements in another order":  # needs a sort
        assert str(report) == str(expected)
    return report


def test_arrays_that_agree():
    x = drawn((5, 7))
    assert both(x, x.copy())
    assert both(x, x * (1 + 1e-9))
    assert both(x.astype("f4"), x.astype("f4"), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("places", [[0], [TILE * 3 + 4], [3, 4, 5, 6, 7, 8, 9], [1, 20, 39]])
def test_where_mismatches_lie(places):
    x = drawn(TILE * 3 + 5)
    y = x.copy()
    y[places] += 1
    report = both(x, y)
    assert [m.index[0] for m in report.first_mismatches] == places[:5]


def test_every_element_differs():
    x = drawn((6, 9))
    report = both(x, x + 1)
    assert report.mismatches == 54
    assert report.tally.axis_counts(0).tolist() == [9] * 6


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128"])
def test_floating_dtypes(dtype):
    x = drawn((4, 9), 1)
    if dtype.startswith("complex"):
        x = x + 1j * drawn((4, 9), 2)
    x = x.astype(dtype)
    y = x.copy()
    y[1, ::2] = np.nextafter(y[1, ::2].real, 9).astype(dtype) if x.dtype.kind != "c" else 2
    y[3, 3] *= -1
    both(x, y)
    both(x, y, max_ulp=1)
    both(x, y, max_ulp=0)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint64", "bool"])
def test_integers(dtype):
    info = np.iinfo(dtype) if dtype != "bool" else np.array([0, 1])
    low, high = (info.min, info.max) if dtype != "bool" else info
    x = np.array([low, high, 0, 1, 1, high] * 4, dtype)
    y = np.array([high, low, 0, 0, 1, high] * 4, dtype)
    both(x, y)
    both(x, y, rtol=0.5, atol=0.0)


def test_pairs_of_dtypes():
    x = drawn(30).astype("f4")
    both(x, x.astype("f8") + 1e-9, check_dtype=False)
    both(np.arange(20), np.arange(20).astype("u8") + 1, check_dtype=False)
    report = both(x, x.astype("f8"))
    assert report.problems


def test_special_values():
    values = np.array([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1e-310, 3])
    a, b = (v.ravel() for v in np.meshgrid(values, values))
    for options in ({}, {"equal_nan": True}, {"rtol": 1.5, "atol": 0.0}, {"max_ulp": 3}):
        both(a, b, **options)
    mixed = [np.stack(parts, -1).view(complex)[:, 0] for parts in ((a, b[::-1]), (b, a))]
    both(*mixed)
    both(*mixed, rtol=1.5, atol=1e-310)


def test_known_pairs():
    """Pairs of one dtype at the thresholds of the rule, many at a time."""
    groups = {}
    for _, (a, b), options, _ in (case for case in EDGE):
        plain = a.dtype.isbuiltin == b.dtype.isbuiltin == 1 and a.dtype.char not in "gG"
        if plain and a.dtype == b.dtype == np.float64 and a.ndim == b.ndim == 1:
            numbers = {key: options.get(key, 0.0) for key in ("rtol", "atol")}
            if all(0 <= v < np.inf for v in numbers.values()):
                key = (*numbers.values(), options.get("equal_nan", False))
                groups.setdefault(key, []).append((a, b))
    assert len(groups) > 5
    for (rtol, atol, equal_nan), pairs in groups.items():
        a, b = (np.concatenate(side) for side in zip(*pairs, strict=True))
        both(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def test_layouts_and_broadcasting():
    x = drawn((6, 8))
    y = x.copy()
    y[2, 6] = 5
    given = cuda.to_device(x), cuda.to_device(y)
    for part in (np.s_[::2], np.s_[:, ::2], np.s_[::-1], np.s_[1:, 3:]):
        both(x[part], y[part], (given[0][part], given[1][part]))
    both(x, x[2], (given[0], given[0][2]), check_shape=False)
    report = both(x, x[2], (given[0], given[0][2]))
    assert "shapes differ" in str(report)
    both(x, x[:, :3].copy())


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        (lambda x: x.T.copy(), "transposed: actual == expected.T"),
        (lambda x: x[::-1].copy(), "reversed along axis 0"),
        (lambda x: np.roll(x, 3, 1), "halves swapped: actual == np.roll(expected, 3, axis=1)"),
        (
            lambda x: np.roll(x, 1, 0),
            "rolled by 1 along axis 0: actual == np.roll(expected, 1, axis=0)",
        ),
        (
            lambda x: x.T.copy().reshape(6, 5),
            "Fortran order confused: actual == expected.ravel(order='F')",
        ),
        (
            lambda x: x.reshape(5, 6).T.copy(),
            "Fortran order confused: actual == expected.ravel().reshape",
        ),
    ],
)
def test_rearrangements_are_recognised(turn, text):
    x = drawn((6, 5) if "confused" in text else (6, 6))
    assert text in (both(turn(x), x).arrangement or "")


def test_zero_size_and_no_axes():
    both(np.ones((0, 3)), np.ones((0, 3)))
    both(np.array(1.0), np.array(2.0))
    both(drawn(5), 1.0)


def test_sums_do_not_depend_on_the_run():
    x, y = (cuda.to_device(drawn(5 * TILE + 3, seed)) for seed in (1, 2))
    first, second = (calipers.compare(x, y).tally for _ in range(2))
    np.testing.assert_array_equal(first["squares"], second["squares"])


def test_sums_at_the_ends_of_the_range():
    x = drawn(3 * TILE)
    both(x * 1e300, x * 1.5e300)
    both(x * 1e-300, x * 1.5e-300)


def test_assert_close_on_containers():
    x = drawn(9)
    given = {"w": cuda.to_device(x), "b": [cuda.to_device(x), x]}
    calipers.assert_close(given, given)
    other = {"w": cuda.to_device(x), "b": [cuda.to_device(x + 1), x]}
    with pytest.raises(calipers.ClosenessError, match=r"\['b'\]\[0\]  9 of 9 elements differ"):
        calipers.assert_close(given, other)
    with pytest.raises(TypeError, match="pass a host copy of"):
        calipers.assert_close(given, {"w": x, "b": [x, x]})


def test_a_report_can_be_drawn_and_written():
    pytest.importorskip("matplotlib")
    x = drawn((4, 5))
    y = x.copy()
    y[1, 1] = np.nan
    report = both(x, y)
    assert report.plot().axes
    assert report.to_dict()["mismatches"] == 1
