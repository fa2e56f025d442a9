"""Masked pairs are not compared: reports count them, by the side that is masked."""

import json

import numpy as np
import pytest

import calipers

A = np.ma.array([1.0, 2.0, 3.0, np.nan, 5.0], mask=[0, 1, 1, 1, 0])
B = np.ma.array([1.0, 9.0, np.inf, 4.0, 5.0], mask=[0, 1, 0, 0, 0])
COUNTS = {"masked_both": 1, "masked_actual": 2, "masked_expected": 0}


def counts(report):
    return {name: report.to_dict()[name] for name in COUNTS}


@pytest.mark.parametrize("kind", ["f8", "g", "c16", object])
def test_reports_count_masked_pairs_by_side(kind):
    a, b = A.astype(kind), B.astype(kind)
    report = calipers.compare(a, b)
    assert report
    assert counts(report) == COUNTS
    assert (report.finite, report.mismatches, report.nan_actual, report.nan_expected) == (
        2,
        0,
        0,
        0,
    )
    assert "Close: 2 elements agree, 3 masked" in str(report)
    assert "masked      1 in both, 2 only in actual; not compared" in str(report)
    assert "would pass" not in str(report)
    other = calipers.compare(b, a)
    assert counts(other) == {"masked_both": 1, "masked_actual": 0, "masked_expected": 2}
    assert "masked      1 in both, 2 only in expected; not compared" in str(other)
    json.dumps(report.to_dict(), allow_nan=False)


def test_masked_elements_do_not_agree():
    report = calipers.compare(np.ma.masked_all(1000), np.arange(1000.0))
    assert str(report).startswith("Close: all 1000 pairs are masked\n")
    assert "agree" not in str(report)
    assert str(calipers.compare(np.ma.masked_all(1), [1.0])).startswith("Close: the pair is masked")
    assert "masked" not in str(calipers.compare(np.ma.array([1.0]), np.array([1.0])))
    dtypes = calipers.compare(A, B.astype("f4"))
    assert "Not close: all values not masked agree, but\n" in str(dtypes)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_masked_is_not_said_to_differ(value):
    """Neither a NaN nor an infinity of the other side counts where one side is masked."""
    a = np.ma.masked_invalid([1.0, value])
    for pair in (a, np.array([1.0, value])), (np.array([1.0, value]), a):
        report = calipers.compare(*pair)
        assert (report.nan_actual, report.nan_expected, report.infinite_mismatches) == (0, 0, 0)
        assert "no tolerance" not in str(report)
        failing = calipers.compare(pair[0], pair[1] + 1)
        assert failing.finite_mismatches == failing.mismatches == 1
        assert "no tolerance" not in str(failing)


def test_mismatches_beside_masked_pairs():
    report = calipers.compare(A, B + 1)
    assert str(report).startswith("Not close: 2 of 5 elements differ (40 %)\n")
    assert "masked      1 in both, 2 only in actual; not compared" in str(report)
    assert counts(report) == COUNTS


def test_nested_reports_say_how_many_pairs_are_masked():
    report = calipers.compare({"x": [A], "y": 1.0}, {"x": [B], "y": 1.0})
    assert str(report).startswith("Close: 2 items agree (3 masked pairs not compared)\n")
    one = calipers.compare([np.ma.array([1.0, 2.0], mask=[0, 1])], [np.array([1.0, 2.0])])
    assert str(one).startswith("Close: 1 item agrees (1 masked pair not compared)\n")


def test_counts_of_masked_pairs_are_merged():
    parts = [calipers.compare(A[i:j], B[i:j]) for i, j in ((0, 2), (2, 5))]
    merged = parts[0].merge(parts[1])
    assert merged.tally == calipers.compare(A, B).tally
    assert counts(merged) == COUNTS


def test_masked_pairs_of_chunks_are_counted():
    chunks = iter([A[:2], A[2:]]), iter([B[:2], B[2:]])
    report = calipers.compare(*chunks)
    assert report
    assert counts(report) == COUNTS
    array = pytest.importorskip("dask.array")
    report = calipers.compare(array.from_array(A, chunks=2), B)
    assert counts(report) == COUNTS


def test_masked_arrays_of_astropy_are_counted():
    masked = pytest.importorskip("astropy.utils.masked").Masked
    a, b = masked([1.0, 2.0, 3.0], mask=[0, 1, 1]), masked([1.0, 5.0, 6.0], mask=[0, 1, 0])
    expected = {"masked_both": 1, "masked_actual": 1, "masked_expected": 0}
    assert counts(calipers.compare(a, b)) == expected
    units = pytest.importorskip("astropy.units")
    report = calipers.compare(a * units.km, b * 1000 * units.m)
    assert counts(report) == expected


def test_array_equal_does_not_heed_masks():
    for other in A.data, np.ma.array(A.data, mask=~A.mask):
        assert calipers.array_equal(A, other, equal_nan=True)
    assert not calipers.array_equal(A[:2], B[:2])
    for a, b in (A, B), (A[:1], B[:1]):
        assert calipers.array_equal(a, b) == np.array_equal(a, b)
