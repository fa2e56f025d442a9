"""compare and assert_close: every finding against a slow oracle, and what people read."""

import ast
import dataclasses
import json
import math
import pickle
import re
import sys
from collections import OrderedDict, namedtuple
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calipers
from calipers import testing
from calipers._core.report import rounded_up
from calipers._execution import block_passes as _dispatch
from tests.data import oracles
from tests.data.closeness_cases import EDGE

FLOAT = ["f8", "f4", "f2", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
OTHER = ["c16", "c8", "i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1", "?"]
MEASURES = ["excess", "absolute", "relative", "ulp"]


def dtype_of(name):
    if name[0] == "b" or name.startswith("float8"):
        return np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    return np.dtype(name)


def pairs(name, n, seed=0, special=True):
    """Return n pairs: equal, a few steps apart, far apart; some not finite, at either end, zero."""
    dtype = dtype_of(name)
    random = np.random.default_rng(seed)
    if dtype.kind == "b":
        return random.random(n) < 0.5, random.random(n) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        b = random.integers(info.min, info.max, n, dtype, endpoint=True)
        a = b.copy()
        some = random.random(n) < 0.3
        a[some] = random.integers(info.min, info.max, n, dtype, endpoint=True)[some]
        ends = np.array([info.min, info.max, 0], dtype)
        for x in (a, b):
            some = random.random(n) < 0.1
            x[some] = random.choice(ends, n)[some]
        return a, b
    if dtype.kind == "c":
        part = "f8" if dtype.itemsize == 16 else "f4"
        re, im = pairs(part, n, seed, special), pairs(part, n, seed + 1, special)
        a, b = np.empty(n, dtype), np.empty(n, dtype)
        (a.real, b.real), (a.imag, b.imag) = re, im
        return a, b
    with np.errstate(all="ignore"):
        b = random.normal(size=n).astype(dtype)
        bits = np.dtype(f"u{dtype.itemsize}")
        a = (b.view(bits) + random.integers(0, 3, n).astype(bits)).view(dtype)
        some = random.random(n) < 0.1
        a[some] = random.normal(size=n).astype(dtype)[some]
        if special:
            limit = float(sys_finfo(dtype).max)
            tiny = float(sys_finfo(dtype).smallest_subnormal)
            values = [math.inf, -math.inf, math.nan, limit, -limit, tiny, -tiny, 0.0, -0.0]
            for x in (a, b):
                some = random.random(n) < 0.1
                x[some] = random.choice(np.array(values).astype(dtype), n)[some]
            both = random.random(n) < 0.03
            a[both] = b[both] = np.array(math.nan).astype(dtype)
            both = random.random(n) < 0.03
            a[both] = b[both] = np.array(math.inf).astype(dtype)
    return a, b


def sys_finfo(dtype):
    return (pytest.importorskip("ml_dtypes") if dtype.isbuiltin == 2 else np).finfo(dtype)


RULES = [
    {"rtol": 1e-3, "atol": 1e-6},
    {"rtol": 0.0, "atol": 0.0},
    {"rtol": 0.5, "atol": 3.0, "equal_nan": True},
    {"max_ulp": 1},
    {"max_ulp": 0, "equal_nan": True},
]


# Of nothing but finite numbers, which are most of the special ones too: one rule of either kind.
@pytest.mark.parametrize(
    ("special", "rule"),
    [(False, RULES[0]), (False, RULES[3]), *((True, rule) for rule in RULES)],
    ids=str,
)
@pytest.mark.parametrize("name", FLOAT + OTHER)
def test_every_finding_is_the_oracles(name, special, rule):
    a, b = pairs(name, 300, seed=len(name), special=special)
    report = calipers.compare(a, b, **rule)
    full = {"rtol": 0.0, "atol": 0.0} | rule
    expected = oracles.findings(a, b, **full)
    agree(report, expected, a, b, full)


def agree(report, expected, a, b, rule):
    finite = expected["finite"]
    mismatches = expected["mismatches"]
    assert bool(report) is (not mismatches)
    assert (report.size, report.finite) == (a.size, len(finite))
    assert report.mismatches == len(mismatches)
    assert report.mismatch_ratio == len(mismatches) / a.size
    for name in ("nan_both", "nan_actual", "nan_expected"):
        assert getattr(report, name) == expected[name]
    assert report.infinite_mismatches == expected["infinite"]
    assert report.sign_mismatches == expected["signs"]
    assert report.finite_mismatches == sum(i in finite for i in mismatches)

    first = report.first_mismatches
    positions = [int(np.ravel_multi_index(x.index, a.shape)) for x in first]
    assert positions == mismatches[:5]
    for position, difference in zip(positions, first, strict=True):
        same_values(difference, a.reshape(-1)[position], b.reshape(-1)[position])
        if position in finite:
            same_measures(difference, finite[position])
        else:
            assert difference.ulp is None
            assert math.isnan(difference.excess)

    for measure in MEASURES:
        most = max((x[measure] for x in finite.values()), default=0)
        worst = report.worst(measure)
        if not most:
            assert worst is None
            continue
        position = int(np.ravel_multi_index(worst.index, a.shape))
        same_values(worst, a.reshape(-1)[position], b.reshape(-1)[position])
        same_measures(worst, finite[position])
        assert finite[position][measure] == pytest.approx(most, rel=1e-15)
        assert all(finite[i][measure] < most for i in finite if i < position)

    assert report.rms == pytest.approx(expected["rms"], rel=4 * 2.0**-52)
    if expected["relative_norm"] is not None:
        assert report.relative_norm == pytest.approx(expected["relative_norm"], rel=4 * 2.0**-52)

    counts = {}
    for x in finite.values():
        bucket = x["ulp"].bit_length()
        counts[bucket] = counts.get(bucket, 0) + 1
    histogram = {high.bit_length(): count for _, high, count in report.ulp_histogram}
    assert histogram == counts
    assert all(low == (high + 1) // 2 for low, high, _ in report.ulp_histogram)

    usable = np.zeros(a.size, dtype=bool)
    usable[list(finite)] = True
    x, y = a.reshape(-1)[usable], b.reshape(-1)[usable]
    both = {name: rule[name] for name in ("rtol", "atol")}
    for name in both:
        value = getattr(report, f"passing_{name}")
        if report.mismatches > report.finite_mismatches:
            assert value is None
            value = float(report.tally[f"passing_{name}"])
        elif a.dtype == b.dtype == bool:
            assert value is None
            continue
        if value is None or math.isinf(value):
            assert not calipers.allclose(x, y, **both | {name: 1.7976931348623157e308})
            continue
        assert calipers.allclose(x, y, **both | {name: value})
        if value:
            assert not calipers.allclose(x, y, **both | {name: math.nextafter(value, 0)})


def same_values(difference, x, y):
    for own, value in ((difference.actual, x), (difference.expected, y)):
        value = oracles.to_python(value)
        assert own == value or (own != own and value != value)
        assert type(own) is type(value)


def same_measures(difference, expected):
    for measure in MEASURES:
        value = getattr(difference, measure)
        # what leaves the range of binary64 on the way is rounded twice
        assert value == pytest.approx(expected[measure], rel=1e-15, abs=1e-307)
    if isinstance(difference.actual, int):
        assert difference.absolute == abs(difference.actual - difference.expected)
        assert type(difference.absolute) is int


@pytest.mark.parametrize(
    ("a", "b", "ulp"),
    [
        (np.float64(1.0), np.nextafter(1.0, 2), 1),
        (np.float16(65504), np.float16(-65504), 63486),
        (np.float64(5e-324), np.float64(-5e-324), 2),
        (np.float64(0.0), np.float64(-0.0), None),
        (np.float32(1.1754944e-38), np.float32(1e-45), 0x7FFFFF),
        (
            np.float64(1.7976931348623157e308),
            np.float64(-1.7976931348623157e308),
            0xFFDFFFFFFFFFFFFE,
        ),
        (np.uint8(0), np.uint8(255), 255),
        (np.int8(-128), np.int8(127), 255),
        (np.int64(-(2**63)), np.int64(2**63 - 1), 2**64 - 1),
    ],
)
def test_distances_that_others_get_wrong(a, b, ulp):
    worst = calipers.compare(a, b).worst("ulp")
    assert worst is None if ulp is None else worst.ulp == ulp
    if ulp is None or ulp < 2**63:
        assert calipers.compare(a, b, max_ulp=ulp or 0)
    if ulp:
        assert not calipers.compare(a, b, max_ulp=min(ulp, 2**63) - 1)
        assert calipers.compare(a, b).ulp_histogram[0][1].bit_length() == ulp.bit_length()


def test_the_largest_number_is_not_one_ulp_from_infinity():
    report = calipers.compare(np.finfo("f4").max, np.float32(np.inf), max_ulp=10**9)
    assert not report
    assert report.infinite_mismatches == 1
    assert report.first_mismatches[0].ulp is None


def test_an_integer_distance_of_65_bits_is_exact():
    a, b = np.array([0, -(2**63)]), np.array([1, 2**64 - 1], np.uint64)
    worst = calipers.compare(a, b, check_dtype=False).worst("absolute")
    assert (worst.index, worst.absolute) == ((1,), 2**64 - 1 + 2**63)


@pytest.mark.parametrize("name", ["int2", "uint2", "int4", "uint4"])
def test_integers_of_few_bits_are_integers(name):
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    a, b = np.array([0, 1, 1]).astype(dtype), np.array([0, 0, 1]).astype(dtype)
    report = calipers.compare(a, b)
    worst = report.worst("ulp")
    assert (worst.actual, worst.absolute, worst.ulp) == (1, 1, 1)
    assert {type(x) for x in (worst.actual, worst.expected, worst.absolute)} == {int}
    assert calipers.compare(a, b, max_ulp=1)
    assert not calipers.compare(a, b, max_ulp=0)
    # Floats would round the distance.
    far = np.array([0, 0, 2**53 + 2])
    assert calipers.isclose(a, far, rtol=0, atol=2.0**53).tolist() == [True, True, False]


def test_integers_are_judged_by_their_exact_distance():
    def passes(a, b, atol):
        a, b = np.array([a], "i8"), np.array([b], "u8" if b >= 2**63 else "i8")
        return bool(calipers.compare(a, b, rtol=0, atol=atol, check_dtype=False))

    assert not passes(0, 2**53 + 1, 2.0**53)
    assert passes(0, 2**53 + 1, 2.0**53 + 2)
    # of 65 bits, the lower 64 of which are small
    assert not passes(-6, 2**64 - 1, 10)
    report = calipers.compare(np.array([-6]), np.array([2**64 - 1], "u8"), check_dtype=False)
    assert report.ulp_histogram[-1][0] == 2**63
    assert report.worst("ulp").ulp == 2**64 + 5


@pytest.mark.parametrize(
    ("pair", "options", "expected"), [case[1:] for case in EDGE], ids=[case[0] for case in EDGE]
)
def test_verdicts_are_those_of_allclose(pair, options, expected):
    options = {"rtol": 1e-5, "atol": 1e-8} | options
    if not all(0 <= options[name] < math.inf for name in ("rtol", "atol")):
        pytest.skip("a report refuses this tolerance")
    for n in (1, 300):
        a, b = (np.repeat(np.atleast_1d(x), n) for x in pair)
        report = calipers.compare(a, b, **options, check_dtype=False)
        assert bool(report) is expected
        assert report.mismatches == (0 if expected else a.size)
        worst = report.worst()
        assert worst is None or (worst.excess <= 1) is expected


@pytest.mark.parametrize("rtol", [0.2, 0.3, 0.5, 1.0])
def test_subnormal_bounds_are_not_rounded(rtol):
    tiny = 5e-324
    b = np.arange(1.0, 9.0) * tiny
    for step in (1, 2, 3):
        a = b + step * tiny
        expected = oracles.isclose(a, b, rtol, 0.0)
        report = calipers.compare(a, b, rtol=rtol, atol=0)
        assert report.mismatches == np.count_nonzero(~expected)


def test_excess_is_on_its_side_of_1_where_rounding_would_hide_that():
    report = calipers.compare(np.array([0, 0]), np.array([2**60 + 1, 2**60]), max_ulp=2**60)
    assert report.mismatches == 1
    assert report.first_mismatches[0].excess > 1
    # a bound beyond binary64
    report = calipers.compare([0.5e308], [1.5e308], rtol=2.0, atol=0.0)
    assert report.worst().excess == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("a", "b", "rtol", "atol"),
    [
        (1.2e308, 0.0, 0.0, 1.7e308),
        (-1.2e308 + 1e308j, 1.7e308 - 1e308j, 0.5, 1.7e308),
        (1.5e-323, 0.0, 0.0, 5e-324),
        (2.5e-323j, 1e-323j, 0.5, 5e-324),
        (4e150, 1.5e-323, 1.7e308, 0.0),
    ],
)
def test_excess_of_complex_numbers_at_the_ends_of_the_range(a, b, rtol, atol):
    a, b = np.array([a], complex), np.array([b], complex)
    expected = oracles.measures(a[0], b[0], rtol, atol)["excess"]
    worst = calipers.compare(a, b, rtol=rtol, atol=atol).worst()
    assert worst.excess == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("blocks", [70, 71, 72, 73])
def test_the_last_of_many_almost_equal_extremes_is_found(blocks):
    """Blocks that might hold a new extreme are told by a product that rounds; none may be lost."""
    i = np.arange(256 * blocks)
    a, b = 1.5 + (i // 256) * 2.0**-52, np.ones(i.size)
    with_zero = a.copy(), b.copy()  # whose relative difference none exceeds
    with_zero[0][0], with_zero[1][0] = 1e-12, 0.0
    worst = calipers.compare(*with_zero).worst("excess")
    assert worst.excess == (a.max() - 1) / (1e-7 + 1e-7)
    with_large = a.copy(), b.copy()  # whose excess none exceeds
    with_large[0][0], with_large[1][0] = 1.1e10, 1e10
    worst = calipers.compare(*with_large, rtol=0, atol=1e-7).worst("relative")
    assert worst.relative == a.max() - 1
    for report in (
        calipers.compare(a, b),
        calipers.compare(a[::-1], b).merge(calipers.compare(a, b)),
    ):
        d = a.max() - 1
        assert report.worst("relative").relative == d
        assert report.worst("absolute").absolute == d
        assert report.worst("excess").excess == d / (1e-7 + 1e-7)
    assert calipers.compare(a, b).worst("relative").index == (i[a == a.max()][0],)


def test_norms_of_many_elements_hardly_round():
    d = 0.1
    report = calipers.compare(np.full(3_000_001, d), np.zeros(3_000_001))
    assert abs(report.rms - d) <= 2 * np.spacing(d)
    report = calipers.compare(np.full(3_000_001, 3 * d), np.full(3_000_001, d))
    assert abs(report.relative_norm - (3 * d - d) / d) <= 2 * np.spacing(2.0)
    part = calipers.compare([d], [0.0])
    whole = part
    for _ in range(999):
        whole = whole.merge(part)
    assert abs(whole.rms - d) <= np.spacing(d)


def test_excess_is_on_the_side_of_1_of_the_verdict():
    random = np.random.default_rng(0)
    for _ in range(300):
        b = 2**60 + int(random.integers(0, 2**60))
        rtol = random.uniform(0.1, 0.9)
        d = int(rtol * float(b)) + int(random.integers(-300, 301))
        report = calipers.compare([b - d], [b], rtol=rtol, atol=0.0)
        assert (report.worst().excess <= 1) is bool(report)
        assert bool(report) is oracles.close(b - d, b, rtol, 0.0)


def test_nan_does_not_hide_the_finite_differences():
    report = calipers.compare([math.nan, 1.0, 5.0], [0.0, 1.0, 3.0])
    assert report.worst("absolute").absolute == 2.0
    assert report.rms == math.sqrt(2)


# One result for all ways through the data


def identical(x, y):
    assert x.tally == y.tally
    assert x.differences.keys() == y.differences.keys()
    assert str(x.differences) == str(y.differences)  # NaN equals itself as text


@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("name", ["f8", "f4", "c16", "i8"])
def test_no_finding_depends_on_threads(name, special, monkeypatch):
    monkeypatch.setattr(_dispatch, "SERIAL_BYTES", 1 << 10)
    monkeypatch.setattr(_dispatch, "_FOLD_LENGTH", 1000)
    a, b = (x.reshape(25, -1) for x in pairs(name, 50_000, special=special))
    reports = []
    for threads in (1, 2, 5):
        with calipers.num_threads(threads):
            reports.append(calipers.compare(a, b, rtol=1e-3, atol=1e-6))
    for report in reports[1:]:
        identical(report, reports[0])
        assert report.tally.record.tobytes() == reports[0].tally.record.tobytes()


@pytest.mark.parametrize("name", ["f8", "f4", "f2", "c8", "u1"])
def test_no_finding_depends_on_the_layout(name):
    a, b = (x.reshape(100, 300) for x in pairs(name, 30_000))
    expected = calipers.compare(a, b, rtol=1e-3, atol=1e-6)
    wide = np.repeat(a, 2, axis=1)[:, ::2]
    readonly = b.copy()
    readonly.flags.writeable = False
    layouts = [
        (np.asfortranarray(a), b),
        (np.asfortranarray(a), np.asfortranarray(b)),
        (wide, readonly),
        (a.astype(a.dtype.newbyteorder(">")), b),
    ]
    for x, y in layouts:
        report = calipers.compare(x, y, rtol=1e-3, atol=1e-6)
        identical(report, expected)
        assert report.rms == pytest.approx(expected.rms, rel=4 * 2.0**-52)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_parts_merge_to_the_whole(data):
    name = data.draw(st.sampled_from(["f8", "f4", "c16", "i8", "u1"]))
    columns = data.draw(st.sampled_from([1, 3, 40]))
    rows = data.draw(st.integers(3, 60))
    special = data.draw(st.booleans())
    seed = data.draw(st.integers(0, 1000))
    shape = (rows, columns) if columns > 1 else (rows,)
    a, b = (x.reshape(shape) for x in pairs(name, rows * columns, seed, special))
    rule = data.draw(st.sampled_from(RULES))
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), min_size=2, max_size=2)))
    first, second, third = (
        calipers.compare(x, y, **rule)
        for x, y in zip(np.split(a, cuts), np.split(b, cuts), strict=True)
    )
    whole = calipers.compare(a, b, **rule)
    for merged in (first.merge(second).merge(third), first.merge(second.merge(third))):
        identical(merged, whole)
        assert bool(merged) is bool(whole)
        assert merged.actual_shape == shape
        assert merged.rms == pytest.approx(whole.rms, rel=4 * 2.0**-52)
        assert merged.relative_norm == pytest.approx(
            whole.relative_norm, rel=4 * 2.0**-52, nan_ok=True
        )


@pytest.mark.parametrize("nan", [math.nan, complex(math.nan, 1.0), np.longdouble("nan")])
def test_findings_of_nan_are_equal(nan):
    a, b = np.array([1, nan, nan, 2]), np.array([1, 2, nan, nan])
    report = calipers.compare(a, b)
    assert report == calipers.compare(a, b)
    assert report == calipers.compare(a[:2], b[:2]).merge(calipers.compare(a[2:], b[2:]))
    assert report != calipers.compare(a, np.array([1, 3, nan, nan]))
    first, again = report.first_mismatches[0], calipers.compare(a, b).first_mismatches[0]
    assert (first, hash(first)) == (again, hash(again))
    assert first != dataclasses.replace(first, expected=3.0)
    assert first != 1.0


def test_what_is_no_part_of_a_whole_does_not_merge():
    report = calipers.compare(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="follow along axis 0"):
        report.merge(calipers.compare(np.zeros((2, 4)), np.zeros((2, 4))))
    with pytest.raises(ValueError, match="with the same tolerances"):
        report.merge(calipers.compare(np.zeros((2, 3)), np.zeros((2, 3)), rtol=0, atol=1))


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_norms_neither_overflow_nor_vanish(scale):
    b = np.linspace(0.5, 1.0, 3000) * scale
    a = b * 1.25
    report = calipers.compare(a, b)
    assert report.relative_norm == pytest.approx(0.25, rel=1e-15)
    assert report.rms == pytest.approx(np.sqrt(np.mean((a / scale - b / scale) ** 2)) * scale)


# Where


def wrong_at(shape, *where):
    b = np.random.default_rng(0).normal(size=shape)
    a = b.copy()
    for index in where:
        a[index] += 1
    return calipers.compare(a, b).to_dict()["where"]


@pytest.mark.parametrize(
    ("shape", "where", "text"),
    [
        ((100,), [slice(None)], "every element"),
        ((100,), [7], "one element"),
        ((100,), [slice(90, None)], "the tail: elements 90:100"),
        ((100,), [slice(5)], "the head: elements 0:5"),
        ((100,), [slice(30, 40)], "a block: elements 30:40"),
        ((100,), [slice(3, None, 8)], "a stripe: elements 3:100:8"),
        ((100,), [3, 4, 90], "elements 3:91 (3.41 % of these elements)"),
        ((100,), [0, 6, 10], "elements 0:11:2 (50 % of these elements)"),
        ((30, 40), [3], "a block: row 3"),
        ((30, 40), [(slice(None), slice(1, None, 4))], "a stripe: columns 1:38:4"),
        ((30, 40), [slice(28, None)], "the tail: rows 28:30"),
        ((30, 40), [(slice(3, 7), slice(10, 20))], "a block: rows 3:7, columns 10:20"),
        (
            (30, 40),
            [(3, 5), (20, 7)],
            "rows 3, 20 (2 of 30), columns 5, 7 (2 of 40) (50 % of these elements)",
        ),
        ((30, 40), [3, 5, 12], "whole: rows 3, 5, 12 (3 of 30)"),
        ((30, 40), [slice(3, 6), 12], "whole: rows 3:6, 12 (4 of 30)"),
        ((5, 6, 7), [2], "a block: plane 2"),
        ((5, 6, 7), [(slice(None), 0)], "the head: row 0"),
        ((2, 3, 4, 5), [(slice(None), slice(None), 1)], "a block: index 1 of axis 2"),
        (
            (2, 3, 4, 5),
            [(1, slice(None), slice(1, 3))],
            "a block: index 1 of axis 0, indices 1:3 of axis 2",
        ),
    ],
)
def test_where_mismatches_lie(shape, where, text):
    assert wrong_at(shape, *where) == text


def test_a_long_axis_is_described_without_counting_its_indices():
    assert wrong_at((40_000, 2), slice(39_000, None)) == "the tail: rows 39000:40000"


CONFUSED = "C and Fortran order confused: actual == expected.ravel"
PERMUTED = "permuted: the same elements in another order"


def shifted(x, k, axis):
    """Return what np.roll does, with other elements where it begins anew."""
    rolled = np.moveaxis(np.roll(x, k, axis), axis, 0).copy()
    rolled[slice(None, k) if k > 0 else slice(k, None)] = 7
    return np.moveaxis(rolled, 0, axis)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "c16"])
@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("transposed: actual == expected.T", lambda x: x.T),
        (f"{CONFUSED}(order='F').reshape(8, 12)", lambda x: x[:8].T.reshape(8, 12)),
        (f"{CONFUSED}().reshape((8, 12), order='F')", lambda x: x[:8].reshape(12, 8).T),
        ("reversed along axis 1: actual == expected[:, ::-1]", lambda x: x[:, ::-1]),
        (
            "halves swapped: actual == np.roll(expected, 6, axis=0)",
            lambda x: np.roll(x, 6, axis=0),
        ),
        *(
            (
                f"rolled by {k} along axis {axis}: actual == np.roll(expected, {k}, axis={axis})",
                partial(np.roll, shift=k, axis=axis),
            )
            for k, axis in ((1, 0), (-1, 1), (3, 0), (-5, 1))
        ),
        ("rolled by 7: actual == np.roll(expected, 7)", lambda x: np.roll(x, 7)),
        *(
            (
                f"shifted by {k} along axis {axis}: actual[{before}i] == "
                f"expected[{before}i{-k:+d}]",
                partial(shifted, k=k, axis=axis),
            )
            for k, axis, before in ((1, 0, ""), (-1, 1, ":, "), (4, 1, ":, "), (-5, 0, ""))
        ),
        ("negated: actual == -expected", lambda x: -x),
        (PERMUTED, lambda x: np.random.default_rng(1).permutation(x.ravel())),
        (None, lambda x: np.random.default_rng(2).permutation(x.ravel()) + 1000),
    ],
)
def test_rearrangements_are_recognised(text, moved, dtype):
    if dtype == "c16" and text == PERMUTED:
        pytest.skip("complex numbers have no order to sort them by")
    b = (np.random.default_rng(0).normal(size=(12, 12)) * 1000).astype(dtype)
    a = moved(b)
    if a.ndim == 1:
        b = b.ravel()
    elif a.shape != b.shape:
        b = b[:8]
    # rounding does not hide it
    a = np.ascontiguousarray(a) * (1 + 1e-9) if b.dtype.kind == "c" else np.ascontiguousarray(a)
    report = calipers.compare(a, b)
    assert not report
    assert report.arrangement == text
    assert ("  looks " in str(report)) is (text is not None)


@pytest.mark.parametrize("shape", [(6,), (4, 4), (6, 4)])
def test_nan_that_lies_in_both_at_the_same_places_was_not_moved(shape):
    x = np.random.default_rng(0).normal(size=shape)
    x[2:4] = np.nan
    for same in (x, np.full(shape, np.nan)):
        report = calipers.compare(same, same)
        assert not report
        assert report.arrangement is None


def test_swapped_axes_and_halves_of_odd_length_are_recognised():
    x = np.random.default_rng(0).normal(size=(3, 5, 5))
    assert calipers.compare(x.swapaxes(1, 2), x).arrangement == (
        "axes 1 and 2 swapped: actual == np.swapaxes(expected, 1, 2)"
    )
    assert calipers.compare(np.fft.fftshift(x[0, 0]), x[0, 0]).arrangement == (
        "halves swapped: actual == np.roll(expected, 2)"
    )


@pytest.mark.parametrize("n", [5, 8, 1000])
def test_what_a_report_says_of_a_shift_is_what_numpy_does(n):
    """For every offset, of one spike, too, whose other elements are all the same."""
    spike = np.zeros(n)
    spike[n // 3] = 1.0
    for x in (np.random.default_rng(0).normal(size=n), spike):
        for k in {*range(1, min(n, 10)), n // 2, 7 * n // 10, n - 1} - {0}:
            text = calipers.compare(np.roll(x, k), x).arrangement
            if text == "reversed: actual == expected[::-1]":
                assert np.array_equal(np.roll(x, k), x[::-1])
                continue
            (offset,) = re.findall(r"np.roll\(expected, (-?\d+)\)$", text)
            assert np.array_equal(np.roll(x, int(offset)), np.roll(x, k))
            assert 2 * abs(int(offset)) <= n


@pytest.mark.parametrize("axes", list(permutations(range(4))))
@pytest.mark.parametrize("shape", [(2, 3, 3, 3), (2, 2, 2, 2), (2, 3, 4, 5), (1, 3, 3, 1)])
def test_every_order_of_axes_is_recognised(shape, axes):
    x = np.random.default_rng(0).normal(size=shape)
    a = x.transpose(axes)
    text = calipers.compare(a, x).arrangement
    if np.array_equal(a, x):
        assert text is None
        return
    again = eval(text.partition("actual == ")[2], {"np": np, "expected": x})
    assert np.array_equal(again, a)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "bfloat16"])
def test_signs_of_rows_and_columns_are_recognised(dtype):
    x = (np.random.default_rng(0).normal(size=(6, 5)) * 100).astype(dtype_of(dtype))
    a = x.copy()
    a[:, [1, 4]] = -a[:, [1, 4]]
    report = calipers.compare(a, x)
    assert report.arrangement == "signs of columns 1, 4 (2 of 5) flipped"
    a = x.copy()
    a[3] = -a[3]
    assert "signs of row 3 flipped" in calipers.compare(a, x).arrangement
    assert calipers.compare(abs(x), x).arrangement is None


def test_eigenvectors_of_the_other_sign_are_recognised():
    x = np.random.default_rng(0).normal(size=(20, 20))
    vectors = np.linalg.eigh(x + x.T)[1]
    turned = np.where(np.arange(20) % 2, -1, 1) * vectors * (1 + 1e-12)
    text = calipers.compare(turned, vectors).arrangement
    assert text == "signs of columns 1, 3, 5, 7, ... (10 of 20) flipped"


@pytest.mark.parametrize(
    ("a", "text"),
    [
        (lambda x: x.T, "transposed: actual == expected.T"),
        (lambda x: x.reshape(3, 2), "reshaped: actual == expected.reshape(3, 2)"),
        (lambda x: x.ravel(), "reshaped: actual == expected.reshape(6,)"),
        (lambda x: x[:, :, None], "reshaped: actual == expected.reshape(2, 3, 1)"),
        (lambda x: x.T + 1, None),
        (lambda x: x[:, :2], None),
    ],
)
def test_arrays_of_other_shapes_are_recognised(a, text):
    x = np.arange(6.0).reshape(2, 3) ** 2
    report = calipers.compare(a(x), x)
    assert not report
    assert report.arrangement == text
    assert report.to_dict()["arrangement"] == text
    assert (f"  looks       {text}" in str(report)) is (text is not None)
    # What is the same in any order is not called turned.
    assert calipers.compare(np.ones((3, 2)), np.ones((2, 3))).arrangement is None


def test_what_agrees_as_it_lies_is_not_called_shifted():
    a = np.ones(50)
    a[-2:] = 3
    assert calipers.compare(a, np.ones(50)).arrangement is None
    mask = np.arange(50) % 2 == 0
    assert calipers.compare(np.sort(mask), mask).arrangement is None
    rows = np.ones((10, 5))
    rows[-1] = 3
    assert calipers.compare(rows, np.ones((10, 5))).arrangement is None


def test_noise_on_values_that_lie_densely_is_not_called_a_permutation():
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (64, 64)).astype(np.uint8)
    noisy = np.clip(image + random.integers(-2, 3, image.shape), 0, 255).astype(np.uint8)
    report = calipers.compare(noisy, image, rtol=0, atol=1)
    assert report.mismatches > 500
    assert np.all(abs(np.sort(noisy, None).astype(int) - np.sort(image, None)) <= 1)
    assert report.arrangement is None
    x = np.linspace(0, 1, 1001)
    y = x.copy()
    y[[500, 700]] += 2.5e-3
    assert calipers.compare(y, x, rtol=0, atol=1.2e-3).arrangement is None
    # What is moved is the same, however densely it lies.
    moved = random.permutation(image.ravel()).reshape(image.shape)
    report = calipers.compare(moved, image, rtol=0, atol=1)
    assert report.arrangement == PERMUTED


def test_a_rearrangement_is_recognised_beside_nan():
    x = np.random.default_rng(0).normal(size=(7, 7))
    x[2, 5] = math.nan
    assert calipers.compare(x.T, x).arrangement == "transposed: actual == expected.T"


# Verdicts


def test_defaults_are_torchs():
    for name, rtol, atol in [
        ("float16", 1e-3, 1e-5),
        ("float32", 1.3e-6, 1e-5),
        ("complex64", 1.3e-6, 1e-5),
        ("float64", 1e-7, 1e-7),
        ("complex128", 1e-7, 1e-7),
        ("int32", 0, 0),
        ("bool", 0, 0),
    ]:
        assert calipers.default_tolerance(name) == (rtol, atol)
        rule = calipers.compare(np.ones(1, name), np.ones(1, name)).rule
        assert (rule.rtol, rule.atol) == (rtol, atol)
    assert calipers.default_tolerance("float32", "float16") == (1e-3, 1e-5)
    bfloat16 = dtype_of("bfloat16")
    assert calipers.default_tolerance(bfloat16) == (1.6e-2, 1e-5)


def test_shape_and_dtype_are_checked_unless_switched_off():
    a, b = np.ones((2, 3)), np.ones(3, "f4")
    report = calipers.compare(a, b)
    assert [x.partition(" differ")[0] for x in report.problems] == ["shapes", "dtypes"]
    assert report.tally is None
    assert not report
    assert calipers.compare(a, b, check_dtype=False, check_shape=False)
    assert not calipers.compare(a, b[:2], check_dtype=False, check_shape=False)
    assert calipers.compare(a, a.astype(">f8"))
    values = calipers.compare(a[0], b)
    assert (values.size, values.mismatches, bool(values)) == (3, 0, False)
    assert calipers.compare(a[0], [1, 1, 1])  # a list has no dtype to differ by
    assert calipers.compare(np.float32(0.1), 0.1)


def test_mismatches_may_be_allowed_and_that_is_said():
    a, b = np.zeros(100), np.zeros(100)
    a[:3] = 1
    assert not calipers.compare(a, b, max_mismatches=2)
    assert not calipers.compare(a, b, max_mismatch_ratio=0.029)
    for allowance in ({"max_mismatches": 3}, {"max_mismatch_ratio": 0.03}):
        report = calipers.compare(a, b, **allowance)
        assert report
        name, value = next(iter(allowance.items()))
        assert f"{name}={value}" in str(report)
        calipers.assert_close(a, b, **allowance)
    with pytest.raises(calipers.ClosenessError, match="max_mismatches=2"):
        calipers.assert_close(a, b, max_mismatches=2)
    a[:29] = 1
    assert 0.29 * 100 < 29  # once rounded
    assert calipers.compare(a, b, max_mismatch_ratio=0.29)
    assert not calipers.compare(a, b, max_mismatch_ratio=0.28)
    assert "max_mismatches=3" in str(calipers.compare({"x": a}, {"x": b}, max_mismatches=3))
    with pytest.raises(calipers.ClosenessError, match=r"items? differs?; max_mismatches=2"):
        calipers.assert_close([a, "x"], [b, "x"], max_mismatches=2)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"rtol": 1e-3}, ValueError, "rtol was passed without atol"),
        (
            {"atol": 1e-3},
            ValueError,
            r"atol was passed without rtol: pass both \(as rtol=0, atol=0.001\)",
        ),
        ({"rtol": -1, "atol": 0}, ValueError, "rtol must be finite and not negative"),
        ({"rtol": 0, "atol": math.nan}, ValueError, "atol must be finite and not negative"),
        ({"rtol": "x", "atol": 0}, TypeError, "rtol must be a number"),
        ({"rtol": 0, "atol": [1, 2]}, TypeError, "atol must be a number"),
        ({"tolerance": 3}, TypeError, "pair .rtol, atol."),
        ({"tolerance": (1, 1), "rtol": 1, "atol": 1}, ValueError, "only one of them"),
        (
            {"max_ulp": 1, "rtol": 1, "atol": 1},
            ValueError,
            "together with tolerances: pass only one",
        ),
        ({"max_ulp": -1}, ValueError, "max_ulp must be between 0 and"),
        ({"max_ulp": 1.5}, TypeError, "max_ulp must be an integer"),
        ({"max_mismatches": 0.1}, TypeError, "max_mismatch_ratio"),
        ({"max_mismatch_ratio": 1.1}, ValueError, "max_mismatch_ratio must be from 0 to 1"),
        ({"max_mismatch_ratio": -0.1}, ValueError, "max_mismatch_ratio must be finite"),
        ({"max_mismatch_ratio": math.nan}, ValueError, "max_mismatch_ratio must be finite"),
    ],
)
def test_bad_options(options, error, match):
    for function in (calipers.compare, calipers.assert_close):
        with pytest.raises(error, match=match):
            function([1.0], [1.0], **options)


@pytest.mark.parametrize("x", [1.0, [1.0], np.ones(2)])
def test_an_unexpected_keyword_is_refused_even_if_the_arrays_are_equal(x):
    for function in (calipers.compare, calipers.assert_close):
        name = function.__name__
        function(x, x)  # compiles the kernel of the fast path
        with pytest.raises(TypeError, match=rf"^{name}\(\) got .* 'rtoll': it takes rtol, atol, "):
            function(x, x, rtoll=1e-3)


LONG = np.longdouble(1)


@pytest.mark.parametrize(
    ("a", "found"),
    [
        (np.array([LONG, LONG]), r"actual of dtype float\d+"),
        (np.array([LONG + 0j, 1]), r"actual of dtype complex\d+"),
        (np.array([2**70, 1], object), "actual of dtype object"),
        (np.array([Fraction(1, 3), None]), "actual of dtype object"),
        (np.array([1, 2], "m8[s]"), r"actual of dtype timedelta64\[s\]"),
        (np.ma.array([1.0, 2.0], mask=[False, True]), "actual, a MaskedArray of dtype float64"),
        (np.ma.array([1, 2]), "actual, a MaskedArray of dtype int64"),
        (np.ones((1, 2)).view(np.matrix), "actual, a matrix of dtype float64"),
    ],
)
def test_steps_that_no_kernel_counts_are_refused(a, found):
    text = f"^max_ulp is not defined for {found}: pass rtol= and atol= instead$"
    for function in (calipers.compare, calipers.assert_close):
        with pytest.raises(TypeError, match=text):
            function(a, a, max_ulp=4)
    path = found.replace("actual", r"expected\['w'\]")
    with pytest.raises(TypeError, match=f"not defined for {path}: pass"):
        calipers.compare({"w": np.ones(2)}, {"w": a}, max_ulp=4)
    assert calipers.compare(a, a, rtol=0, atol=0)


def test_steps_that_no_kernel_counts_are_refused_in_chunks_too():
    chunks = [np.full(3, LONG), np.full(3, LONG)]
    with pytest.raises(TypeError, match=r"^max_ulp is not defined for actual of dtype f"):
        calipers.compare(iter(chunks), np.ones(6), max_ulp=4, check_dtype=False)


@pytest.mark.parametrize(
    "a",
    [
        np.array(["a", "b"]),
        np.array([None, "b"], object),
        np.array(["2020-01-01", "2020-01-02"], "M8[D]"),
        np.array([True, False]),
        np.array([1, 2]),
        np.array([1, 2], "u1"),
    ],
)
def test_what_has_no_distance_is_equal_or_not_whatever_max_ulp(a):
    assert calipers.compare(a, a.copy(), max_ulp=0)
    assert not calipers.compare(a, a[::-1], max_ulp=0)
    assert calipers.compare({"n": None, "x": [1.0]}, {"n": None, "x": [1.0]}, max_ulp=1)
    assert not calipers.compare(np.array(["a"]), np.ones(1), max_ulp=1)


def test_a_tolerance_is_one_argument():
    tolerance = calipers.Tolerance(rtol=0.0, atol=0.5)
    assert calipers.compare([1.0], [1.4], tolerance=tolerance)
    assert not calipers.compare([1.0], [1.6], tolerance=tolerance)


def test_assert_close_raises_the_report():
    a, b = np.arange(5.0), np.arange(5.0) + [0, 0, 1, 0, 0]
    with pytest.raises(calipers.ClosenessError) as caught:
        calipers.assert_close(a, b)
    report = calipers.compare(a, b)
    assert isinstance(caught.value, AssertionError)
    assert str(caught.value) == str(report)
    assert caught.value.report.tally == report.tally
    with pytest.raises(calipers.ClosenessError, match=r"^own text$"):
        calipers.assert_close(a, b, msg="own text")
    with pytest.raises(calipers.ClosenessError, match=r"^step 3\nNot close"):
        calipers.assert_close(a, b, msg=lambda text: f"step 3\n{text}")


def test_assert_close_heeds_every_rule_of_plain_arrays():
    a, b = np.ones(5), np.ones(5) + 1e-9
    calipers.assert_close(a, b)
    for rule in ({"max_ulp": 3}, {"tolerance": (0, 0)}, {"rtol": 0, "atol": 0}):
        with pytest.raises(calipers.ClosenessError):
            calipers.assert_close(a, b, **rule)
    calipers.assert_close(a, b + 1, tolerance=(0, 2))
    nan = np.full(3, math.nan)
    calipers.assert_close(nan, nan, equal_nan=True)
    with pytest.raises(calipers.ClosenessError, match="equal_nan=False"):
        calipers.assert_close(nan, nan)


def test_an_error_survives_pickling():
    with pytest.raises(calipers.ClosenessError) as caught:
        calipers.assert_close([1.0], [2.0])
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.report == caught.value.report


def test_inputs_are_left_alone():
    a, b = (x.reshape(20, 30) for x in pairs("f8", 600))
    before = a.tobytes(), b.tobytes()
    calipers.compare(a, b)
    assert (a.tobytes(), b.tobytes()) == before


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1,), (1, 1, 1)])
def test_shapes_at_the_edge(shape):
    a = np.ones(shape)
    report = calipers.compare(a, a)
    assert report
    assert report.size == a.size
    str(report), json.dumps(report.to_dict())
    if a.size:
        report = calipers.compare(a, a + 1)
        assert report.first_mismatches[0].index == (0,) * a.ndim
        assert not report


def test_no_flag_is_raised_and_none_is_heeded():
    a, b = pairs("f8", 500)
    with np.errstate(all="raise"):
        calipers.compare(a, b)
        calipers.compare(a.astype(">f8"), b)
        bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
        signalling = np.array([0x7F81, 0x3F80, 0x4000], np.uint16).view(bfloat16)
        assert calipers.compare(np.arange(7, 10), signalling).mismatches == 3
        assert not calipers.compare(np.float32([1]), 1e-60, check_shape=False)


# What NumPy compares


def test_exact_numbers_beyond_floats_are_measured():
    a = np.array([Decimal("1.1e400"), Fraction(1, 10**400), Decimal(1), "a", None], object)
    b = np.array([Decimal("1e400"), Fraction(2, 10**400), 2.0, "a", None], object)
    report = calipers.compare(a, b, rtol=1e-6, atol=0)
    assert (report.mismatches, report.finite) == (3, 3)
    first, second, third = report.first_mismatches
    assert (first.relative, first.excess) == pytest.approx((0.1, 1e5), rel=1e-14)
    assert first.absolute == 10**399
    assert (second.relative, second.excess) == pytest.approx((0.5, 5e5), rel=1e-14)
    assert 0 < second.absolute < 1e-300
    assert (third.absolute, third.relative) == (1, 0.5)
    assert "1e399" in str(report)
    json.dumps(report.to_dict())
    assert calipers.compare(a[:3], a[:3])
    masked = np.ma.array(a[:2], mask=[False, True])
    assert not calipers.compare(masked, b[:2], rtol=1e-6, atol=0)
    assert calipers.compare(masked, b[:2], rtol=0.1, atol=0)


@pytest.mark.parametrize("kind", [float, Decimal, np.longdouble, complex])
def test_infinities_among_objects_are_close_to_themselves_alone(kind):
    inf, one = kind("inf"), kind(1)
    a = np.array([one, -inf, inf, inf, one], object)
    b = np.array([inf, inf, one, inf, one], object)
    report = calipers.compare(a, b)
    assert [found.index[0] for found in report.first_mismatches] == [0, 1, 2]
    assert (report.infinite_mismatches, report.finite, report.passing_rtol) == (3, 1, None)
    with pytest.raises(calipers.ClosenessError):
        calipers.assert_close(a[:1], b[:1])
    assert a[:1] != calipers.approx(b[:1])


def test_an_infinity_is_close_to_no_number_whose_tolerance_overflows():
    a, b = np.longdouble([math.inf, 1, math.nan]), np.array([-1.7e308, -1.7e308, 1])
    report = calipers.compare(a, b, rtol=2.0, atol=0.0, check_dtype=False)
    assert (report.mismatches, report.infinite_mismatches) == (2, 1)
    both = np.clongdouble([complex(math.nan, math.inf), complex(math.inf, 1)])
    assert calipers.compare(both, both.copy(), equal_nan=True)


def test_longdouble_objects_strings_and_dates():
    wide = calipers.compare(np.longdouble([1, 2, np.nan]), np.longdouble([1, 3, 0]))
    assert (wide.mismatches, wide.nan_actual, wide.worst("absolute").absolute) == (2, 1, 1.0)
    assert wide.first_mismatches[0].ulp is None
    assert wide.passing_rtol is None
    objects = calipers.compare(np.array([1, 2.5, 2**70], object), np.array([1, 2.5, 2**71], object))
    assert (objects.mismatches, objects.first_mismatches[0].index) == (1, (2,))
    text = calipers.compare(np.array(["a", "b"]), np.array(["a", "c"]))
    assert (text.mismatches, text.first_mismatches[0].actual) == (1, "b")
    assert (text.finite, text.finite_mismatches, text.worst()) == (0, 0, None)
    assert str(text) == TEXT
    days = calipers.compare(np.array([5], "m8[D]"), np.array([1], "m8[D]"))
    assert (days.finite_mismatches, days.worst("absolute").absolute) == (1, 4.0)
    assert "RMSE 4" in str(days)
    dates = np.array(["2026-01-01", "NaT"], "M8[D]")
    assert calipers.compare(dates, dates, equal_nan=True)
    assert calipers.compare(dates, dates).mismatches == 1
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    assert calipers.compare(masked, np.array([1.0, 5.0]))
    for report in (wide, objects, text):
        json.dumps(report.to_dict(), allow_nan=False)
        assert "differs" in str(report) or "differ" in str(report)


@pytest.mark.parametrize("kind", ["f8", "i8", "g", "m8[s]", "c16", object])
def test_masked_elements_are_no_part_of_norms_and_counts(kind):
    a = np.ma.array(np.array([1, 2, 3, 4]).astype(kind), mask=[False, True, False, False])
    b = np.ma.array(np.array([1, 5, 4, 9]).astype(kind), mask=[False, False, False, True])
    for pair in ((a, b), (a[:3], b[:3].data)):
        report = calipers.compare(*pair, rtol=0, atol=0)
        assert (report.mismatches, report.finite) == (1, 2)
        assert report.rms == pytest.approx(math.sqrt(1 / 2), rel=1e-15)
        assert report.relative_norm == pytest.approx(1 / math.sqrt(17), rel=1e-15)
        assert report.worst().index == (2,)
    assert calipers.compare(a[3:], b[3:]).finite == 0


def test_numbers_beside_text_are_counted_and_measured_as_numbers():
    """As those of a table whose columns are of several kinds."""
    a = np.array([1.0, 2.0, "a", np.nan, 5], object)
    text = str(calipers.compare(a, np.array([1.5, 2.0, "a", 3.0, 5], object)))
    assert "counts      1 pair of finite numbers, 1 NaN only in actual" in text
    assert "no tolerance accepts NaN" in text
    report = calipers.compare(a, np.array([1.5, 2.0, "b", np.nan, 5], object), equal_nan=True)
    assert (report.mismatches, report.finite_mismatches, report.finite) == (2, 1, 3)
    assert report.worst("absolute").index == (0,)
    assert "some elements have no distance" in str(report)
    numbers = calipers.compare(a[:3], np.array([1.5, 2.0, "a"], object), equal_nan=True)
    assert numbers.finite_mismatches == numbers.mismatches == 1
    assert "no tolerance" not in str(numbers)
    masked = np.ma.array(["a", 1.0], mask=[False, True], dtype=object)
    assert calipers.compare(masked, np.array(["a", 2.0], object))
    merged = numbers.merge(report)
    assert (merged.mismatches, merged.finite_mismatches) == (3, 2)


def test_tolerances_hold_for_all_that_has_a_distance():
    for a, b in (
        (np.array([1.0, 2**70], object), np.array([1 + 1e-9, 2**70], object)),
        (np.array([Decimal(1)]), np.array([Decimal("1.000000001")])),
        (np.array([10], "m8[s]"), np.array([11], "m8[s]")),
    ):
        options = {"rtol": 0.0, "atol": 2.0 if a.dtype.kind == "m" else 1e-8}
        assert calipers.compare(a, b, **options)
        calipers.assert_close(a, b, **options)
        assert calipers.compare(a, b, rtol=0.0, atol=1e-10).mismatches == 1
    mixed = np.array([1.0, "text", None], object)
    assert calipers.compare(mixed, mixed)
    near = np.array([1 + 1e-12, "text", None], object)
    assert calipers.compare(mixed, near)
    assert calipers.compare(mixed, near, rtol=0.0, atol=0.0).mismatches == 1


def test_time_differences_at_the_ends_of_their_range_are_far_apart():
    last = np.array([2**63 - 1, 1 - 2**63, 5, 2**53], "m8[ms]")
    first = np.array([1 - 2**63, 2**63 - 1, 7, 2**53 + 1], "m8[ms]")
    report = calipers.compare(last, first, rtol=0.0, atol=2.0)
    assert [found.index[0] for found in report.first_mismatches] == [0, 1]
    assert report.worst("absolute").absolute == 2.0**64
    assert calipers.compare(last, first, rtol=0.0, atol=0.5).mismatches == 4
    masked = np.ma.array(last, mask=[True, True, False, False])
    assert calipers.compare(masked, first, rtol=0.0, atol=2.0)
    seconds = np.array([1], "m8[s]")
    options = {"rtol": 0.0, "atol": 1.0, "check_dtype": False}
    assert calipers.compare(np.array([1001], "m8[ms]"), seconds, **options)
    assert not calipers.compare(np.array([1002], "m8[ms]"), seconds, **options)


def test_durations_have_tolerances_with_a_unit():
    a, b = np.array([5, 7], "m8[s]"), np.array([6, 7], "m8[s]")
    second, minute = np.timedelta64(1, "s"), np.timedelta64(1, "m")
    for options in ({"rtol": 0, "atol": minute}, {"tolerance": (0, second)}):
        assert calipers.compare(a, b, **options)
        assert a == calipers.approx(b, **options)
        calipers.assert_close(a, b, **options)
    assert "<= 60 s + 0*|expected|" in str(calipers.compare(a, b, rtol=0, atol=minute))
    assert not calipers.compare(a, b, rtol=0, atol=np.timedelta64(999, "ms"))
    assert calipers.compare(a, b.astype("m8[ms]"), rtol=0.2, atol=0, check_dtype=False)
    assert "<= 1*25 s +" in str(calipers.compare(*[a.astype("m8[25s]")] * 2, rtol=0, atol=1))
    for bad in np.timedelta64("NaT", "s"), -second:
        with pytest.raises(ValueError, match="atol must be finite and not negative"):
            calipers.compare(a, b, rtol=0, atol=bad)
    with pytest.raises(TypeError, match="atol is a timedelta64, but an array has dtype float64"):
        calipers.compare([1.0], [1.0], rtol=0, atol=second)
    for ask in calipers.allclose, calipers.isclose:
        with pytest.raises(TypeError, match=r"a has dtype timedelta64\[s\].*pass atol=numpy"):
            ask(a, b)
        with pytest.raises(TypeError, match=r"b float64, whose elements have no dist"):
            ask(a, [1.0, 2.0], 0, second)


def test_objects_without_a_verdict_are_named():
    class Held:
        def __init__(self, x):
            self.x = x

        def __eq__(self, other):
            return self.x == other.x

    x = np.ones(3)
    with pytest.raises(TypeError, match=r"actual\['k'\] holds objects of type Held, whose"):
        calipers.compare({"k": Held(x)}, {"k": Held(x + 1)})

    class Missing:  # as pandas' NA
        def __eq__(self, other):
            return self

        def __bool__(self):
            raise TypeError("ambiguous")

    for x in Missing(), Decimal("sNaN"):
        column, name = np.array(["text", x], object), type(x).__name__
        with pytest.raises(TypeError, match=rf"actual holds objects of type {name}, whose =="):
            calipers.compare(column, column)
        with pytest.raises(TypeError, match=rf"actual holds objects of type (str and )?{name}, "):
            calipers.compare(column, np.longdouble([1, 2]))


def test_what_is_too_deep_to_walk():
    a = b = 1
    for _ in range(5000):
        a, b = [a], [b]
    for assert_close in calipers.assert_close, testing.assert_close:
        with pytest.raises(ValueError, match="actual is nested more than 200 deep"):
            assert_close(a, b)


@pytest.mark.parametrize("ask", [calipers.compare, calipers.assert_close])
def test_names_of_files_are_no_arrays(ask):
    for x in "d/x.npy", Path("d/x.npy"), Path("d"):
        for pair in (x, x), ([1.0], x):
            with pytest.raises(TypeError, match=r"(actual|expected) is the name of a file: load"):
                ask(*pair)
    ask("text", "text")
    ask({"file": "x.npy", "path": Path("x")}, {"file": "x.npy", "path": Path("x")})


def test_numpys_numbers_among_objects_do_not_overflow():
    a = np.array([np.int8(1), np.uint8(255), math.nan, np.float32(0.5)], object)
    report = calipers.compare(a, np.array([300, 255, 2.0, 2**70], object), rtol=0, atol=1)
    assert [found.index[0] for found in report.first_mismatches] == [0, 2, 3]
    assert report.worst("absolute").absolute == 2.0**70
    assert a == calipers.approx(np.array([1, 255, math.nan, 0.5], object), equal_nan=True)


def test_integers_that_no_float_holds():
    a = np.array([10**400, 10**400, 1.0, 10**400, 1], object)
    b = np.array([10**400, 3 * 10**400, 1 + 1e-9, 1, 10**400], object)
    report = calipers.compare(a, b)
    assert [found.index[0] for found in report.first_mismatches] == [1, 3, 4]
    assert not calipers.compare(a[:1] + 1, b[:1])
    assert calipers.compare(a[:1] + 1, b[:1], rtol=0.0, atol=1.0)
    assert not calipers.compare(a[:1] + 2, b[:1], rtol=0.0, atol=1.0)
    assert "3 of 5 elements differ" in str(report)
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "n", [2**64, -(2**63) - 1, 2**70, 10**400, pytest.param(10**5000, id="e5000")]
)
def test_integers_beyond_64_bits_are_exact(n):
    for wrap in (lambda x: x, lambda x: [x], lambda x: {"n": x}, lambda x: np.array([x], object)):
        same, more = wrap(n), wrap(n + 1)
        assert calipers.compare(same, wrap(n))
        assert not calipers.compare(same, more)
        assert not calipers.compare(same, more, rtol=0, atol=0.5)
        assert calipers.compare(same, more, rtol=0, atol=1)
        assert (same == calipers.approx(same), same == calipers.approx(more)) == (True, False)
        calipers.assert_close(same, wrap(n))
        for assert_close in (calipers.assert_close, testing.assert_close):
            if not (assert_close is testing.assert_close and isinstance(same, np.ndarray)):
                with pytest.raises(calipers.ClosenessError):
                    assert_close(same, more)
    assert calipers.compare(np.array([n], object), n, check_shape=False)
    for other in (1.0, math.inf, math.nan, np.array([1, 2]), [True]):
        assert not calipers.compare(n, other, check_shape=False)
        assert not calipers.compare(other, n, check_shape=False)


@pytest.mark.parametrize(
    ("a", "b", "rtol", "atol"),
    [
        ([2**70], [2**70 + 2**65 + 1], 0.0, 2.0**65),  # one beyond the tolerance
        ([3 * 10**400], [2 * 10**400], 0.5, 0.0),
        ([3 * 10**400 + 1], [2 * 10**400], 0.5, 0.0),
        ([10**400], np.array([1.0]), 1.0, 0.0),
        (np.array([1.0]), [10**400], 1.0, 0.0),
    ],
)
def test_integers_beyond_64_bits_have_one_verdict(a, b, rtol, atol):
    verdict = calipers.allclose(a, b, rtol, atol)
    report = calipers.compare(a, b, rtol=rtol, atol=atol, check_dtype=False)
    assert (bool(report), report.mismatches) == (verdict, int(not verdict))


def test_a_list_of_integers_is_not_rounded():
    assert not calipers.compare([-1, 2**63], [-1, 2**63 + 1])
    assert calipers.compare([-1, 2**63], [-1, 2**63])
    assert calipers.compare([-1, 2**63], [-1.0, 2.0**63])
    assert not calipers.array_equal([-1, 2**63], [-1, 2**63 + 1])


def test_objects_that_are_not_numbers_beside_other_dtypes():
    strings = np.dtypes.StringDType(coerce=False)
    for other in np.array(["NaT", "NaT"], "M8[s]"), np.array(["x", "y"], strings):
        objects = np.array([math.nan, 1], object)
        assert calipers.compare(objects, other, check_dtype=False).mismatches == 2


def test_missing_text_is_nan_where_it_is_told_so():
    missing = np.array(["a", math.nan, "b"], np.dtypes.StringDType(na_object=math.nan))
    other = np.array(["a", "c", math.nan], missing.dtype)
    report = calipers.compare(missing, missing)
    assert (report.mismatches, report.nan_both) == (1, 1)
    assert calipers.compare(missing, missing, equal_nan=True)
    report = calipers.compare(missing, other, equal_nan=True)
    assert (report.mismatches, report.nan_actual, report.nan_expected) == (2, 1, 1)
    none = np.array(["a", None], np.dtypes.StringDType(na_object=None))
    for equal_nan in (False, True):
        assert calipers.compare(none, none, equal_nan=equal_nan)


def test_structures_of_other_fields_differ():
    a, b = np.zeros(2, [("x", "f4")]), np.zeros(2, [("y", "f4")])
    found = {leaf.path: leaf.problems for leaf in calipers.compare(a, b).failing}
    assert found == {"['x']": ("only in actual",), "['y']": ("only in expected",)}
    text = "actual is an array of records, expected is of type ndarray"
    assert text in str(calipers.compare(a, np.zeros(2)))
    nested = calipers.compare({"w": 1.0, "records": a}, {"w": 2.0, "records": b})
    paths = ["['w']", "['records']['x']", "['records']['y']"]
    assert [leaf.path for leaf in nested.failing] == paths
    assert calipers.compare(a, a.copy())


@pytest.mark.parametrize("scale", ["1e-200", "1e200", "1e4000"])
def test_norms_of_what_binary64_cannot_square(scale):
    a, b = np.longdouble(["1", "2"]), np.longdouble(["1", "4"])
    factor = np.longdouble(scale)
    if factor == np.longdouble("inf"):
        pytest.skip("longdouble ends before")
    report = calipers.compare(a * factor, b * factor, rtol=0, atol=0)
    assert report.mismatches == 1
    if scale == "1e4000":
        assert report.rms == math.inf
        assert math.isnan(report.relative_norm)
    else:
        assert report.rms == pytest.approx(float(factor) * math.sqrt(2), rel=1e-15)
        assert report.relative_norm == pytest.approx(2 / math.sqrt(17), rel=1e-15)
    json.dumps(report.to_dict(), allow_nan=False)
    integers = np.array([10**300], object)
    assert calipers.compare(integers, 2 * integers).rms == pytest.approx(1e300, rel=1e-15)


# Containers

Point = namedtuple("Point", "x y")


def test_a_named_tuple_of_numbers_is_no_array():
    report = calipers.compare([Point(1.0, 2.0)], [Point(1.0, 3.0)])
    assert [leaf.path for leaf in report.failing] == ["[0].y"]


@dataclasses.dataclass
class State:
    weights: np.ndarray
    name: str


def test_every_failing_leaf_has_its_path():
    a = {
        "w": [np.ones(3), np.zeros(2)],
        "p": Point(1.0, np.ones(2)),
        "s": State(np.ones(2), "old"),
        "n": None,
        "only": 1,
    }
    b = {
        "w": [np.ones(3) + 1, np.zeros(2), np.zeros(1)],
        "p": Point(1.0, np.zeros(2)),
        "s": State(np.ones(2), "new"),
        "n": None,
        "more": 2,
    }
    report = calipers.compare(a, b)
    assert {leaf.path: leaf.problems for leaf in report.failing} == {
        "['w']": ("actual has 2 items, expected has 3",),
        "['w'][0]": (),
        "['p'].y": (),
        "['s'].name": (),
        "['only']": ("only in actual",),
        "['more']": ("only in expected",),
    }
    assert {"['w'][1]", "['p'].x", "['s'].weights", "['n']"} == {
        leaf.path for leaf in report.leaves if leaf
    }
    assert report.worst.path in ("['w'][0]", "['p'].y")
    json.dumps(report.to_dict(), allow_nan=False)
    with pytest.raises(calipers.ClosenessError, match="6 of 10 items differ"):
        calipers.assert_close(a, b)


def test_the_worst_leaf_is_the_one_with_the_largest_excess():
    a, b = {"many": np.ones(9), "far": np.ones(9)}, {"many": np.ones(9) + 1e-3, "far": np.ones(9)}
    b["far"][4] = 1e6
    assert calipers.compare(a, b).worst.path == "['far']"


def test_containers_of_equal_content():
    a = {"x": [np.ones(2), (1, 2.5, "text")], "y": OrderedDict(z=1)}
    b = {"y": {"z": 1}, "x": ([1.0, 1.0], [1, 2.5, "text"])}
    assert calipers.compare(a, b)
    calipers.assert_close(a, b)
    assert str(calipers.compare(a, b)).splitlines() == [
        "Close: 5 items agree",
        "  tolerance   |actual - expected| <= 1e-07 + 1e-07*|expected| (float64)",
        "              exact equality (int64, <U4)",
    ]


class Unnamed:
    def __repr__(self):
        return "a key"


def test_keys_are_matched_as_python_does_and_not_by_what_they_are_called():
    one, other = Unnamed(), Unnamed()
    report = calipers.compare({one: 1.0, other: 2.0}, {one: 9.0, other: 2.0})
    assert [bool(leaf) for leaf in report.leaves] == [False, True]
    assert [leaf.path for leaf in report.leaves] == ["[a key]", "[a key]"]
    assert calipers.compare({np.int64(1): 1.0, "x": 2.0}, {1: 1.0, "x": 2.0})
    assert not calipers.compare({1: 1.0}, {"1": 1.0})


@pytest.mark.parametrize(
    ("a", "b", "problem"),
    [
        ({"x": 1}, [1, np.ones(1)], "actual is a mapping, expected is a sequence"),
        ([np.ones(1), {}], np.ones((2, 1)), "actual is a sequence, expected is of type ndarray"),
        (Point(1, 2), (1, 2), "actual is a Point, expected is a sequence"),
        (State(1, "a"), {"weights": 1}, "actual is a State, expected is a mapping"),
    ],
)
def test_kinds_that_differ(a, b, problem):
    report = calipers.compare(a, b)
    assert report.leaves[0].problems == (problem,)
    assert problem in str(report)
    with pytest.raises(ValueError, match="nothing was compared"):
        report.plot()


def test_two_containers_that_differ_in_kind_have_no_name():
    text = str(calipers.compare({"x": 1}, [1, np.ones(1)]))
    assert text.splitlines()[1:] == ["  actual is a mapping, expected is a sequence"]


def test_a_function_beside_an_array_is_one_that_was_not_called():
    x = np.ones(2)
    found = calipers.compare(x.sum, x)
    assert found.problems == (
        "actual is a function (builtin_function_or_method), expected is of type ndarray: call it",
    )
    found = calipers.compare({"f": np.sin, "x": x}, {"f": np.sin, "x": lambda: x})
    (leaf,) = found.failing
    assert leaf.path == "['x']"
    assert leaf.problems[0].startswith("expected is a function (function), actual is of type")
    assert calipers.compare(np.array([np.sin]), np.array(np.sin), check_shape=False)
    assert calipers.compare(np.sin, np.array(np.sin))


def test_a_list_of_numbers_is_an_array_and_others_are_walked_into():
    assert calipers.compare([[1, 2], [3, 4]], [[1, 2], [3, 5]]).first_mismatches[0].index == (1, 1)
    assert calipers.compare([[1, 2], [3]], [[1, 2], [3]])
    assert calipers.compare([], [])
    for endless in ([np.ones(1)], [1.0], []):
        endless.append(endless)
        with pytest.raises(ValueError, match="contains itself"):
            calipers.compare(endless, endless)


# What people read

TWO = """\
Not close: 2 of 6 elements differ (33.3 %)
  arrays      float64 (2, 3)
  tolerance   |actual - expected| <= 1e-07 + 1e-07*|expected|
  counts      1 pair of finite numbers, 1 NaN only in actual
  where       a block: row 1, columns 1:3
  mismatches actual  expected  error/tol  absolute  relative      ULP
    [1, 1]      4.5         4        1e6       0.5     0.125  5.63e14
    [1, 2]      nan         5          -         -         -        -
  overall     RMSE 0.224, relative error 0.0913 (2-norm), of the finite pairs
  passes      only with max_mismatches=2 (no tolerance accepts NaN)
  ULP         0: 4, 5.63e14 to 1.13e15: 1"""

KINDS = """\
Not close: nothing could be compared
  shapes differ: (2, 3) and (3, 2); they cannot be broadcast, but both have 6
    elements
  dtypes differ: float64 and float32; check_dtype=False allows it
  actual      float64 (2, 3)
  expected    float32 (3, 2)"""

INTEGERS = """\
Not close: 1 of 3 elements differs (33.3 %)
  arrays      uint8 (3,)
  tolerance   exact equality
  counts      1 pair of finite numbers
  mismatches actual  expected  absolute  relative  ULP
    [0]           0       255       255         1  255
  overall     RMSE 147, relative error 0.999 (2-norm)
  passes      with rtol=1 (same atol) or atol=255 (same rtol)
  ULP         0: 2, 128 to 255: 1"""

TEXT = """\
Not close: 1 of 2 elements differs (50 %)
  arrays      <U1 (2,)
  tolerance   exact equality
  mismatches actual  expected
    [1]         'b'       'c'
  passes      only with max_mismatches=1 (the elements have no distance)"""

PASSING = """\
Close: 2 elements agree
  arrays      float64 (2,)
  tolerance   |actual - expected| <= 1e-07 + 1e-07*|expected|; max_mismatches=1
  largest actual  expected  error/tol  absolute  relative     ULP
    [1]        2         2    0.00333      1e-9     5e-10  2.25e6
  overall     RMSE 7.07e-10, relative error 4.47e-10 (2-norm)
  ULP         0: 1, 2.1e6 to 4.19e6: 1"""

NESTED = """\
Not close: 3 of 3 items differ
                  max abs   max rel  error/tol
  ['a']  1 != 2         1       0.5     3.33e6
  ['b']  only in actual
  ['c']  only in expected

The worst by error/tol, ['a']:
Not close: 1 of 1 element differs (100 %)
  arrays      float64 (1,)
  tolerance   |actual - expected| <= 1e-07 + 1e-07*|expected|
  counts      1 pair of finite numbers
  mismatches actual  expected  error/tol  absolute  relative     ULP
    [0]           1         2     3.33e6         1       0.5  4.5e15
  overall     RMSE 1, relative error 0.5 (2-norm)
  passes      with rtol=0.5 (same atol) or atol=1 (same rtol)"""


def test_report_of_two_mismatches():
    b = np.arange(6.0).reshape(2, 3)
    a = b.copy()
    a[1, 1] += 0.5
    a[1, 2] = math.nan
    assert str(calipers.compare(a, b)) == TWO


def test_report_of_dtypes_and_shapes():
    text = str(calipers.compare(np.ones((2, 3)), np.ones((3, 2), "f4")))
    assert text == KINDS


def test_report_of_integers():
    text = str(calipers.compare(np.uint8([0, 7, 7]), np.uint8([255, 7, 7])))
    assert text == INTEGERS


def test_report_of_a_passing_comparison():
    text = str(calipers.compare([1.0, 2.0], [1.0, 2.0 + 1e-9], max_mismatches=1))
    assert text == PASSING


def test_report_of_containers():
    text = str(calipers.compare({"a": [1.0], "b": 1}, {"a": [2.0], "c": 1}))
    assert text == NESTED


@pytest.mark.parametrize("name", ["f8", "f4", "c16", "i8", "?"])
@pytest.mark.parametrize("shape", [(2000,), (40, 50), (2, 10, 10, 10)])
def test_a_report_is_bounded(name, shape):
    a, b = (x.reshape(shape) for x in pairs(name, 2000, seed=5))
    lines = str(calipers.compare(a, b)).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    many = str(calipers.compare({str(i): a for i in range(50)}, {str(i): b for i in range(50)}))
    assert len(many.splitlines()) <= 40
    assert max(map(len, many.splitlines())) <= 80


def test_a_percentage_is_zero_only_for_none():
    a = np.zeros(3_000_000)
    a[5] = 1
    assert "1 of 3000000 elements differs (<0.0001 %)" in str(calipers.compare(a, np.zeros(a.size)))
    a[:] = 1
    a[5] = 0
    assert "(>99.9 %)" in str(calipers.compare(a, np.zeros(a.size)))


def test_a_dictionary_holds_all_and_json_takes_it():
    a, b = pairs("f8", 500)
    report = calipers.compare(a, b)
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert found["mismatches"] == report.mismatches
    assert found["worst"]["ulp"]["ulp"] == report.worst("ulp").ulp
    assert found["rule"]["rtol"] == 1e-7
    assert found["ulp_histogram"] == [list(x) for x in report.ulp_histogram]


@pytest.mark.parametrize(
    ("own", "reference"), [((1, 4), (3, 4)), ((4,), (3, 4)), ((3, 4), (4,)), ((), (3,)), ((3,), ())]
)
def test_parts_that_were_broadcast_can_be_merged(own, reference):
    random = np.random.default_rng(0)
    left, right = ((random.random(own), random.random(reference)) for _ in range(2))
    parts = [calipers.compare(*part, check_shape=False) for part in (left, right)]
    merged = parts[0].merge(parts[1])
    wholes = [
        np.concatenate([np.broadcast_arrays(*part)[k] for part in (left, right)]) for k in (0, 1)
    ]
    whole = calipers.compare(*wholes)
    assert merged.tally == whole.tally
    assert merged.first_mismatches == whole.first_mismatches
    assert merged.actual_shape == whole.actual_shape
    with pytest.raises(ValueError, match=r"follow along axis 0, got shapes .* and \(5, 5\)$"):
        parts[0].merge(calipers.compare(np.ones((5, 5)), np.ones((1, 5)), check_shape=False))
    numbers = calipers.compare(1.0, 1.0)
    with pytest.raises(ValueError, match=r"follow along axis 0, got shapes \(\) and \(\)$"):
        numbers.merge(numbers)
    with pytest.raises(TypeError, match="other must be a Comparison, got int"):
        numbers.merge(3)


@pytest.mark.parametrize("shape", [(), (0,), (300,), (3000,), (20, 30), (2, 3, 40), (3, 0)])
@pytest.mark.parametrize("rule", [{}, {"max_ulp": 3}])
def test_plots(shape, rule, tmp_path):
    pytest.importorskip("matplotlib")
    a, b = (x.reshape(shape) for x in pairs("f4", math.prod(shape)))
    figure = calipers.compare(a, b, **rule).plot()
    figure.savefig(tmp_path / "plot.png")
    assert len(figure.axes) >= 2


def test_plots_of_merged_reports_and_of_what_has_no_distance():
    pytest.importorskip("matplotlib")
    merged = calipers.compare(np.ones(2), np.ones(2)).merge(
        calipers.compare(np.ones(1), np.ones(1))
    )
    merged.plot()
    for kind in "U1", np.dtypes.StringDType(), object:
        texts = [["1", "b"], ["1", "2"]][: 1 if kind is object else 2]
        for text in (np.array(text, kind) for text in texts):
            with pytest.raises(ValueError, match="have no distance, so there is nothing to plot"):
                calipers.compare(text, text[::-1]).plot()


@pytest.mark.parametrize(
    ("kinds", "rule"),
    [
        (("bfloat16", "bfloat16"), {"max_ulp": 1}),
        (("f8", "f4"), {"max_ulp": 4}),
        (("f4", "f4"), {"max_ulp": 0}),
        (("i8", "u8"), {"max_ulp": 3}),
        (("c16", "c16"), {"max_ulp": 3}),
        (("f8", "f8"), {"equal_nan": True}),
        (("f8", "f8"), {"rtol": 0.0, "atol": 0.0}),
        (("g", "f8"), {"rtol": 1e-5, "atol": 0.0}),
    ],
)
def test_what_is_drawn_as_beyond_is_what_the_report_says_mismatches(kinds, rule):
    pytest.importorskip("matplotlib")
    a, b = np.repeat(10 + np.arange(4), 8), np.repeat(10 + np.arange(4), 8)
    a, b = a.astype(dtype_of(kinds[0])), b.astype(dtype_of(kinds[1]))
    a[1::4] += np.asarray(a[1::4] / 2).astype(a.dtype)
    if a.dtype.kind == "f":
        a[2::8] *= 1 + 2.0**-26
        a[3::8], b[4::8], a[5::16], b[5::16] = np.nan, np.inf, np.nan, np.nan
    report = calipers.compare(a, b, check_dtype=False, **rule)
    bad = ~np.array(
        [
            bool(calipers.compare(x, y, check_dtype=False, **rule))
            for x, y in zip(a[:, None], b[:, None], strict=True)
        ]
    )
    assert np.count_nonzero(bad) == report.mismatches > 0
    lines = {line.get_label(): line.get_xdata() for line in report.plot().axes[0].lines}
    above = [x for name in ("above tolerance", "NaN or infinite") for x in lines.get(name, [])]
    np.testing.assert_array_equal(sorted(above), np.flatnonzero(bad))
    square = calipers.compare(a.reshape(4, 8), b.reshape(4, 8), check_dtype=False, **rule)
    levels = square.plot().axes[0].collections[0].get_array()
    np.testing.assert_array_equal(np.ma.filled(levels, np.inf).ravel() > 0, bad)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", [(), (1,), (4,), (2, 3)])
def test_indices_on_a_picture_are_integers(n, rows):
    pytest.importorskip("matplotlib")
    axes, *_ = calipers.compare(np.zeros((*rows, n)), np.ones((*rows, n))).plot().axes
    for axis in [axes.xaxis, axes.yaxis][: 1 + bool(rows)]:
        low, high = sorted(axis.get_view_interval())
        shown = [x for x in axis.get_ticklocs() if low <= x <= high]
        assert shown == [round(x) for x in shown] != []


def lightness(color):
    """Return how light a color is, from 0 for black to 1 for white."""
    return sum(color[:3]) / 3


def test_the_colors_of_a_map_and_their_legend():
    """Equal elements are the lightest, NaN and masked ones have colors that the legend names."""
    pytest.importorskip("matplotlib")
    b = np.ones((3, 4))
    a = b + np.array([[0, 1e-9, 1e-8, 1e-7], [1e-6, 1e-5, 1e-3, 1e3], [0, np.nan, 0, 0]])
    picture = calipers.compare(np.ma.array(a, mask=a == 1 + 1e-5), b).plot()
    axes = picture.axes[0]
    mesh = axes.collections[0]
    colors = mesh.to_rgba(mesh.get_array())
    assert lightness(colors[0, 0]) > max(map(lightness, colors[0, 1:]))
    assert lightness(colors[0, 0]) > max(map(lightness, colors[1, [0, 2, 3]]))  # one is masked
    legend = {
        text.get_text(): tuple(patch.get_facecolor())
        for text, patch in zip(
            axes.get_legend().get_texts(), axes.get_legend().get_patches(), strict=True
        )
    }
    assert list(legend) == ["equal", "NaN or infinite", "masked"]
    assert legend["equal"] == pytest.approx(tuple(colors[0, 0]))
    assert legend["NaN or infinite"] == pytest.approx(tuple(colors[2, 1]))
    every = {tuple(np.round(color, 3)) for color in colors.reshape(-1, 4)}
    assert tuple(np.round(legend["masked"], 3)) not in every
    equal = calipers.compare(b, b).plot().axes[0]
    assert [x.get_text() for x in equal.get_legend().get_texts()] == ["equal"]


def test_titles_of_pictures_fit():
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    name = "a name of many words, " * 20
    report = calipers.compare({name: np.ones((2, 3))}, {name: np.ones((2, 3), "f4")})
    for shown in (report, calipers.compare(np.ones((2, 3)), np.ones((2, 3), "f4"))):
        figure = shown.plot()
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        extent = figure._suptitle.get_window_extent(canvas.get_renderer())
        assert 0 <= extent.x0 < extent.x1 <= figure.bbox.width
        assert "dtypes differ" in figure.get_suptitle() or shown is report


def test_the_width_of_text_is_no_dtype():
    for kind in "U", "S":
        a, b = np.array(["a", "bbb"], kind), np.array(["a"], kind)
        assert calipers.compare(a[:1], b)
        assert not calipers.compare(a[1:], b)
    (problem,) = calipers.compare(np.array(["a"]), np.array([b"a"])).problems
    assert problem.startswith("dtypes differ: <U1 and |S1")


def test_plots_of_containers_show_the_worst_leaf():
    pytest.importorskip("matplotlib")
    good, bad, worst = calipers.compare(
        {"good": np.ones(2), "bad": np.ones(3), "worst": np.ones(4)},
        {"good": np.ones(2), "bad": np.full(3, 1.1), "worst": np.full(4, 9.0)},
    ).leaves
    for leaves in permutations([good, bad, worst]):
        figure = calipers.NestedComparison(leaves).plot()
        assert figure.get_suptitle() == "['worst']: " + str(worst).partition("\n")[0]
    figure = calipers.NestedComparison((good,)).plot()
    assert figure.get_suptitle() == "['good']: " + str(good).partition("\n")[0]
    report = calipers.compare({"good": 1.0, "gone": 1.0}, {"good": 1.0})
    with pytest.raises(ValueError, match="nothing that differs could be compared"):
        report.plot()


def test_pictures_of_planes_name_their_indices():
    pytest.importorskip("matplotlib")
    axes, *_ = calipers.compare(np.zeros((4, 20, 30)), np.ones((4, 20, 30))).plot().axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("index of axis 2", "index of axes 0, 1")
    write = axes.yaxis.get_major_formatter()
    assert [write(row, 0) for row in (-1, 0, 77, 80)] == ["", "[0, 0]", "[3, 17]", ""]
    axes, *_ = calipers.compare(np.zeros((4, 20)), np.ones((4, 20))).plot().axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("column", "row")


def test_integers_beyond_a_tolerance_of_zero_are_drawn_as_beyond():
    pytest.importorskip("matplotlib")
    axes, distances = calipers.compare(np.arange(10), np.arange(10) + 1).plot().axes
    lines = {line.get_label(): line.get_xdata() for line in axes.lines}
    assert len(lines["above tolerance"]) == 10
    assert "NaN or infinite" not in lines
    assert not distances.texts
    for x, text in (np.longdouble([1, 2]), "no ULP for this dtype"), (np.ones(0), "no finite pair"):
        (shown,) = calipers.compare(x, x).plot().axes[1].texts
        assert shown.get_text().startswith(text)


# As NumPy and torch


def as_numpys(actual, desired, rtol=1e-7, atol=0, equal_nan=True, *args, strict=False, **kwargs):
    """Be numpy.testing.assert_allclose: one number may stand for a whole array."""
    scalar = np.ndim(actual) == 0 or np.ndim(desired) == 0
    calipers.assert_close(
        actual,
        desired,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_dtype=strict,
        check_shape=strict or not scalar,
    )


WORDED = {
    "test_simple",
    "test_report_fail_percentage",
    "test_report_max_relative_error",
    "test_error_message_unsigned",
    "test_infs",
}


def test_numpys_own_tests(monkeypatch):
    suite = pytest.importorskip("numpy.testing.tests.test_utils")
    monkeypatch.setattr(suite, "assert_allclose", as_numpys)
    tests = {name for name in dir(suite.TestAssertAllclose) if name.startswith("test_")}
    if np.lib.NumpyVersion(np.__version__) >= "2.5.0":
        tests.remove("test_timedelta")  # which asks for a warning about what NumPy does inside
    assert len(tests) >= 10

    def failing():
        for name in sorted(tests):
            try:
                getattr(suite.TestAssertAllclose(), name)()
            except AssertionError:
                yield name

    assert set(failing()) == WORDED & tests
    # The same without a look at the text of the error
    monkeypatch.setattr(suite, "re", SimpleNamespace(escape=lambda text: "."))
    assert set(failing()) == set()


def torch_calls():
    torch = pytest.importorskip("torch")
    x = torch.linspace(1, 2, 12, dtype=torch.float64).reshape(3, 4)
    nan = x.clone()
    nan[1, 2] = math.nan
    infinite = x.clone()
    infinite[0, 0] = math.inf
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for step in (0.3, 0.9, 1.1, 3):
            rtol, atol = calipers.default_tolerance(str(dtype).removeprefix("torch."))
            one = torch.full((50,), 64.0, dtype=dtype)
            yield one + one * (rtol * step) + atol * step, one, {}
    yield x, x.clone(), {}
    yield x, x.float(), {}
    yield x, x.float(), {"check_dtype": False}
    yield x, x.T, {}
    yield x, x[:1], {}
    yield nan, nan.clone(), {}
    yield nan, nan.clone(), {"equal_nan": True}
    yield infinite, infinite.clone(), {}
    yield infinite, -infinite, {}
    yield infinite, x, {"rtol": 1e300, "atol": 1e300}
    yield x, x + 1e-3, {"rtol": 0, "atol": 1.1e-3}
    yield x + 0j, x + 1e-3j, {}
    for dtype in (torch.uint8, torch.int64, torch.bool):
        yield x.to(dtype), x.to(dtype), {}
        yield torch.tensor([0, 1]).to(dtype), torch.tensor([1, 1]).to(dtype), {}
    yield [x, {"y": nan}], [x, {"y": nan}], {"equal_nan": True}
    yield [x, {"y": x}], [x, {"y": x + 1}], {}
    yield [x, x], [x], {}
    yield {"a": x}, {"b": x}, {}
    yield x, x + 1, {"rtol": 1e-3}
    yield x.requires_grad_(), x.clone(), {}


def outcome(function, actual, expected, options):
    try:
        function(actual, expected, **options)
    except (AssertionError, ValueError) as error:
        return "ValueError" if isinstance(error, ValueError) else "fails"
    return "passes"


def test_verdicts_are_torchs():
    torch = pytest.importorskip("torch")
    seen = []
    for call in torch_calls():
        expected = outcome(torch.testing.assert_close, *call)
        assert outcome(calipers.assert_close, *call) == expected, call
        seen.append(expected)
    assert min(seen.count("passes"), seen.count("fails")) > 10


def test_arrays_of_jax():
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.arange(6.0).reshape(2, 3)
    calipers.assert_close(x, x + 0)
    report = calipers.compare({"x": x}, {"x": x.at[1, 2].set(0)})
    assert report.failing[0].first_mismatches[0].index == (1, 2)
    assert report.failing[0].actual_dtype == "float32"


def test_arrays_on_a_device_are_refused_by_name():
    class OnDevice:
        __cuda_array_interface__ = {}  # noqa: RUF012

    for pair, name in (
        ((OnDevice(), np.ones(1)), "actual"),
        ((np.ones(1), OnDevice()), "expected"),
    ):
        with pytest.raises(TypeError, match=f"{name} is a tests OnDevice on a CUDA device"):
            calipers.assert_close(*pair)


# Under stress


def test_calls_from_many_threads_at_once():
    a, b = (x.reshape(500, 400) for x in pairs("f8", 200_000))
    expected = calipers.compare(a, b)

    def work(_):
        identical(calipers.compare(a, b), expected)

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(work, range(32)))


def test_an_error_in_a_helper_thread_arrives(monkeypatch):
    def failing(*args):
        raise MemoryError

    monkeypatch.setattr(_dispatch, "_FOLD_LENGTH", 3)
    monkeypatch.setattr("calipers._compare.statistics.merge", failing)
    with pytest.raises(MemoryError):
        calipers.compare(np.ones(10), np.ones(10))
    monkeypatch.undo()
    assert calipers.compare(np.ones(10), np.ones(10))


def test_texts_are_shown_where_they_differ_and_move_no_cursor():
    a = np.array(["\x1b[31m\n", "b ", "a long text which is the same", "é"])
    b = np.array(["", "b", "a long text which is the sam3", "e"])
    text = str(calipers.compare(a, b))
    assert "\x1b" not in text
    assert r"'\x1b[31m\n'" in text
    assert "'b '" in text
    assert "...'he same'  ...'he sam3'" in text
    assert "'é'" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        ([2**70], [2**70 + 1], "...91620717411303424  ...91620717411303425"),
        (
            np.array(["2026-01-01"], "M8[ns]"),
            np.array(["2026-01-01T00:00:00.000000007"], "M8[ns]"),
            "...0:00:00.000000000  ...0:00:00.000000007",
        ),
        (
            np.array([10**18], "m8[ns]"),
            np.array([10**18 + 1], "m8[ns]"),
            "...0000000 nanose...  ...0000001 nanose...",
        ),
    ],
)
def test_long_values_are_shown_where_they_differ(a, b, shown):
    lines = str(calipers.compare(a, b, rtol=0, atol=0)).splitlines()
    assert any(shown in line for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("x", [1.0, np.ones(2), [1.0]])
def test_a_count_that_is_no_integer_is_refused_beside_what_agrees_too(x):
    calipers.assert_close(x, x)  # what is compiled now is asked first
    with pytest.raises(TypeError, match="max_mismatches must be an integer"):
        calipers.assert_close(x, x, max_mismatches=0.0)


@pytest.mark.parametrize("beside", [1.0, 1.25])
def test_tolerances_that_would_pass_reach_products_that_underflow(beside):
    tiny = 2.0**-1074
    a, b = np.ones(600), np.ones(600)  # beyond a block, after which some tolerances are known
    a[0], a[500], b[500] = beside, 4 * tiny, 3 * tiny
    report = calipers.compare(a, b, rtol=0.2, atol=0.0)
    assert not report
    rtol, atol = report.passing_rtol, report.passing_atol
    assert calipers.allclose(a, b, rtol=rtol, atol=0.0)
    assert not calipers.allclose(a, b, rtol=np.nextafter(rtol, 0), atol=0.0)
    assert calipers.allclose(a, b, rtol=0.2, atol=atol)
    assert not calipers.allclose(a, b, rtol=0.2, atol=np.nextafter(atol, 0))


def test_integers_of_more_digits_than_python_writes_are_reported():
    report = calipers.compare([10**5000], [10**5000 + 1], rtol=0, atol=0)
    assert report.mismatches == 1
    assert "<int object at" in str(report)
    assert "<int object at" in json.dumps(report.to_dict())
    written = calipers.compare([10**400], [-(10**400)]).to_dict()["first_mismatches"][0]
    assert (written["actual"], written["expected"]) == (10**400, -(10**400))


def test_objects_that_cannot_be_written_are_reported():
    class Broken:
        def __repr__(self):
            raise RuntimeError

    report = calipers.compare({"x": Broken()}, {"x": 1})
    assert "Broken object at" in json.dumps(report.to_dict())


def test_what_would_pass_is_not_said_of_allowances():
    a, b = [math.nan, 2.0, 3.0], [1.0, 1.0, 1.0]
    report = calipers.compare(a, b, max_mismatches=1)
    assert not report
    assert calipers.compare(a, b, rtol=1.0, atol=0.0, max_mismatches=2)
    assert "passes " not in str(report)
    assert "all pass    no tolerance accepts NaN" in str(report)
    for allowance in ({"max_mismatches": 1}, {"max_mismatch_ratio": 0.1}):
        report = calipers.compare(a[1:], b[1:], rtol=0.0, atol=0.5, **allowance)
        assert not report
        # That of one mismatch less is smaller, and not looked for.
        assert "passes " not in str(report)
        assert "all pass    with rtol=1.5 (same atol) or atol=2 (same rtol)" in str(report)


def test_what_would_pass_is_accepted_as_an_option():
    largest = np.finfo(float).max
    for other, said in ((-largest, "no max_ulp below 2**63"), (0.0, "max_ulp=9218868437227405311")):
        report = calipers.compare([largest], [other], max_ulp=1)
        assert said in str(report).partition("passes ")[2]
    near = calipers.compare([1.0], [1.0 + 2.0**-50], max_ulp=1)
    assert str(near).endswith("passes      with max_ulp=4")
    assert calipers.compare([1.0], [1.0 + 2.0**-50], max_ulp=4)


NAN, INF = np.nan, np.inf


def options_that_pass(report):
    """Return the alternatives that a report prints, as keyword arguments of compare."""
    text = re.search(
        r"^  (?:passes  |all pass)    (?:only )?with (.*?)(?:\n  \S|\nnext|\Z)",
        str(report),
        re.M | re.S,
    )
    if text is None:
        return []
    text = re.sub(r" \((?!same).*", "", " ".join(text[1].split()))
    first, _, rest = text.partition(", and ")
    alternatives = []
    for one in re.sub(r" \(same \w+\)", "", first).split(" or "):
        pairs = [pair.split("=") for pair in (f"{one} and {rest}" if rest else one).split(" and ")]
        options = {name: ast.literal_eval(value) for name, value in pairs}
        if options.keys() & {"rtol", "atol"}:
            options = {"rtol": report.rule.rtol, "atol": report.rule.atol} | options
        alternatives.append(options)
    return alternatives


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "bfloat16", "i8", "u1", "c16", "c8"])
@pytest.mark.parametrize("scale", [1.0, 1e-4, 30.0])
def test_tolerances_that_are_pasted_pass(dtype, scale):
    """They have three digits, rounded up."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        x = rng.normal(size=(2, 20)) * (50 if dtype in ("i8", "u1") else scale)
        if dtype[0] == "c":
            x = x + 1j * rng.normal(size=(2, 20))
        b, a = (abs(x) if dtype == "u1" else x).astype(dtype_of(dtype))
        report = calipers.compare(a, b)
        alternatives = options_that_pass(report)
        assert alternatives or not report.mismatches
        for options in alternatives:
            assert calipers.compare(a, b, **options)
        numbers = re.findall(r"[ar]tol=(\S+)\s+\(same [ar]tol\)", str(report))
        assert len(numbers) == len(alternatives)
        for number in numbers:
            assert len(number.partition("e")[0].replace(".", "").strip("0")) <= 3


def test_a_tolerance_at_the_end_of_the_range_is_written_in_full():
    largest = float(np.finfo(float).max)
    assert rounded_up(largest) == repr(largest)
    assert rounded_up(5e-324) == "5e-324"
    for x, text in ((0.123401, "0.124"), (255.0, "255"), (1e-3, "1e-3"), (99950.0, "100000")):
        assert rounded_up(x) == text


def called(line, a, b):
    """Return the report of the call that a report advises."""
    code = line.removeprefix("next: ")
    return eval(code, {"calipers": calipers, "np": np, "actual": a, "expected": b})


@pytest.mark.parametrize(
    "change",
    [
        lambda x: (x.T, x),
        lambda x: (x[:, ::-1], x),
        lambda x: (x[:, :-2], x[:, 2:]),
        lambda x: (x[1:], x[:-1]),
        lambda x: (np.roll(x, 2, 1), x),
        lambda x: (x.reshape(3, 12), x),
        lambda x: (-x, x),
        lambda x: (x.astype("f4").astype("f8"), x.astype("f4")),
        lambda x: (x[0], x[:1]),
        lambda x: (np.where(x > 1, np.nan, x), np.where(x > 1, np.nan, x)),
        lambda x: ({"w": [x.T]}, {"w": [x]}),
        lambda x: ([x, np.float32([np.nan])], [x, np.array([np.nan])]),
    ],
)
def test_the_next_call_can_be_pasted_and_passes(change):
    a, b = change(np.random.default_rng(5).normal(size=(6, 6)))
    for rule in ({}, {"rtol": 1.25e-5, "atol": 0.0}, {"max_ulp": 2}):
        report = calipers.compare(a, b, **rule)
        last = str(report).splitlines()[-1]
        assert last.startswith("next: calipers.compare(")
        assert called(last, a, b)


def test_a_few_ulp_are_advised_as_max_ulp():
    x = np.linspace(1, 2, 9)
    report = calipers.compare(np.nextafter(x, 3), x, rtol=0, atol=0)
    assert str(report).endswith("\nnext: calipers.compare(actual, expected, max_ulp=1)")


@pytest.mark.parametrize(
    ("a", "b"),
    [([1.0], [1.0]), ([1.0], [2.0]), ([NAN], [1.0]), ([1], [2]), (["a"], ["b"]), ([1.0], [1j])],
)
def test_there_is_no_next_call_where_none_would_help(a, b):
    assert "next:" not in str(calipers.compare(np.array(a), np.array(b), check_dtype=False))


def test_one_mismatch_is_printed_once():
    """Those with the largest errors are marked among the first, and else follow them."""
    b = np.ones(40)
    for places in ([7], [3, 5], list(range(40)), list(range(20))):
        a = b.copy()
        a[places] += np.arange(len(places), 0, -1)
        text = str(calipers.compare(a, b))
        indices = re.findall(r"^    (\[\d+\])", text, re.M)
        assert len(indices) == len(set(indices))
        assert ("\n  *           largest of its column\n" in text) is (len(places) > 5)
    assert "\n  largest\n" in str(calipers.compare(a[::-1], b))


@pytest.mark.parametrize("k", [-7, -1, 1, 7])
@pytest.mark.parametrize("shape", [(200,), (40, 5)])
def test_a_shift_of_a_monotone_series_is_recognised(k, shape):
    """At one of its ends the largest element of one array is not in the other."""
    whole = np.sort(np.random.default_rng(0).normal(size=(shape[0] + 7, *shape[1:])), axis=0) + 9
    late, early = whole[abs(k) :][: shape[0]], whole[: shape[0]]
    arrays = (early, late) if k > 0 else (late, early)
    looks = calipers.compare(*arrays).arrangement
    assert looks.startswith(f"shifted by {k}{' along axis 0' * (len(shape) > 1)}: ")
    assert calipers.compare(arrays[0], -arrays[1]).arrangement is None


def test_values_without_a_difference_are_in_the_list_of_items():
    x = np.arange(9.0).reshape(3, 3)
    a = {"name": "runs", "words": np.array(["a", "bc"]), "x": np.array([np.nan, 1.0]), "w": x.T}
    b = {"name": "run", "words": np.array(["a", "bd"]), "x": np.ones(2), "w": x}
    lines = str(calipers.compare(a, b)).splitlines()
    assert "  ['name']   'runs' != 'run'" in lines
    assert "  ['words']  1 of 2 elements differs (50 %): [1] 'bc' != 'bd'" in lines
    assert "  ['x']      1 of 2 elements differs (50 %): [0] nan != 1" in lines
    (turned,) = (line for line in lines if line.startswith("  ['w']"))
    assert "6 of 9 elements differ (66.7 %); transposed   " in turned


def test_columns_that_say_nothing_are_left_out():
    assert "error/tol" not in str(calipers.compare([1, 2], [1, 3]))
    assert "error/tol" not in str(calipers.compare([1.0, 2.0], [1.0, 3.0], max_ulp=0))
    assert "error/tol" in str(calipers.compare([1.0, 2.0], [1.0, 3.0]))
    dates = np.array(["2026-01-01", "2026-01-02"], "M8[D]")
    text = str(calipers.compare(dates, dates[::-1]))
    assert "expected  absolute\n" in text
    assert "\n  overall     RMSE 1" in text
    assert "relative" not in text


def test_counts_name_pairs():
    text = str(calipers.compare([np.inf, 1.0, np.nan], [1.0, -1.0, 0.0]))
    words = " ".join(text.split())
    finite = "1 pair of finite numbers (1 of opposite sign)"
    assert f"counts {finite}, 1 pair with an infinity, 1 NaN only in actual where" in words
    assert "(no tolerance accepts NaN or infinities)" in words


def test_a_number_has_no_index_and_no_histogram():
    text = str(calipers.compare(1.0, 1.5))
    assert "[]" not in text
    assert "\n  ULP" not in text


def test_tolerances_that_pass_have_one_style():
    text = str(calipers.compare([1.13], [1.12]))
    assert "with rtol=8.93e-3 (same atol) or atol=1e-2 (same rtol)" in text
    text = str(calipers.compare([1.2], [1.0]))
    assert "with rtol=0.2 (same atol) or atol=0.2 (same rtol)" in text


def test_a_line_never_ends_inside_a_range_of_the_histogram_or_a_tolerance():
    rng = np.random.default_rng(0)
    for n in range(10, 400, 7):
        b = rng.normal(size=n)
        a = b + rng.normal(size=n) * 10.0 ** rng.integers(-16, 1, n)
        lines = str(calipers.compare(a, b)).splitlines()
        for before, after in pairwise(lines):
            if after.startswith(" " * 14):
                assert before.endswith((",", "or", "(2-norm)"))


@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("max_ulp", [None, 2])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1.0, 2.0], [1.0, 2.5]),
        ([NAN, 2.0], [NAN, 2.0]),
        ([NAN, 2.0], [NAN, 2.5]),
        ([NAN, 2.0], [1.0, 2.5]),
        ([NAN, NAN], [1.0, NAN]),
        ([INF, NAN], [1.0, NAN]),
        ([NAN, 1.7e308, 1.0], [NAN, -1.7e308, 0.0]),
        (np.array([NAN, 2.0], "f4"), np.array([NAN, 2.5])),
        (np.array([NAN, 2.0], "f4"), np.array([NAN, 2.0])),
        (np.array([1.0, 2.0], "f4"), np.array([1.0, 2.5])),
        (np.array([NAN, 2.0], "f4"), np.array([1.0, 2.5])),
        (np.array([NAN + 1j, 2.0]), np.array([NAN, 2.5])),
        (np.array([NAN, 2.0], "g"), np.array([NAN, 2.0], "g")),
        (np.array([NAN, 2.0], "g"), np.array([NAN, 2.5], "g")),
        (np.array([NAN, "a"], object), np.array([NAN, "a"], object)),
        (np.array([NAN, "a"], object), np.array([NAN, "b"], object)),
        (np.array(["NaT", "2020"], "M8[D]"), np.array(["NaT", "2020"], "M8[D]")),
        ([True, False], [True, True]),
        ([3, 4], [3, 5]),
        (["a", "b"], ["a", "c"]),
        ([1.0, "b"], ["1", "b"]),
    ],
)
def test_a_report_that_fails_names_options_that_pass(a, b, max_ulp, equal_nan):
    a, b = (x if isinstance(x, np.ndarray) else np.array(x) for x in (a, b))
    if max_ulp is not None and (a.dtype.kind not in "fcbi" or a.dtype.char == "g"):
        pytest.skip("the dtype has no steps to count")
    rule = {"equal_nan": equal_nan} | ({} if max_ulp is None else {"max_ulp": max_ulp})
    report = calipers.compare(a, b, **rule)
    alternatives = options_that_pass(report)
    assert report or alternatives or not report.mismatches or a.dtype.char == "g"
    for options in alternatives:
        kept = {} if options.keys() & {"rtol", "max_ulp"} else rule
        assert calipers.compare(a, b, **({"equal_nan": equal_nan} | kept | options))
    if calipers.compare(a, b, **(rule | {"equal_nan": True, "check_dtype": False})):
        assert "no tolerance" not in str(report)
        assert "max_mismatches" not in str(report)


def test_booleans_have_no_tolerance_that_passes():
    report = calipers.compare([True, False], [True, True])
    assert report.passing_rtol is report.passing_atol is None
    assert "passes      with max_mismatches=1\n" in str(report)
    assert calipers.compare([True], [1.5], check_dtype=False).passing_atol is not None


def test_that_one_tolerance_alone_would_not_pass_is_said():
    a, b = [1.7e308, 1.0], [-1.7e308, 0.0]
    report = calipers.compare(a, b, rtol=0.5, atol=0.5)
    assert (report.passing_rtol, report.passing_atol) == (None, None)
    assert "neither rtol nor atol alone is enough" in str(report)
    assert calipers.compare(a, b, rtol=2.0, atol=1.0)
    assert "pass" not in str(calipers.compare(*np.longdouble([[1.0], [2.0]])))


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        (1.0 + 2.0**-52, 1.0, "1         1"),  # their difference has a column
        (np.float32(np.pi), np.float32(3), "3.14159         3"),
        (1.0 + 2.0**-52 + 1j, 1 + 1j, "1+1j      1+1j"),
        (10**30, 10**30 + 1, "...00000000000000000  ...00000000000000001"),
        (
            Decimal("1." + "0" * 30),
            Decimal("1." + "0" * 29 + "1"),
            "...00000000000000000  ...00000000000000001",
        ),
        (Decimal(1).scaleb(-30) / 3, Decimal(4), "3.33333333333...E-31         4"),
        (
            Fraction(10**20 + 1, 7),
            Fraction(10**20 + 2, 7),
            "...000000000000001/7  ...000000000000002/7",
        ),
        (
            np.datetime64("2026-01-01T00:00:00"),
            np.datetime64("2026-01-01T00:00:01"),
            "2026-01-01T00:00:00  2026-01-01T00:00:01",
        ),
        ("1.0", 1.0, "'1.0'       1.0"),
        (
            "<td>what is the same</td>",
            "<td>what is the sane</td>",
            "...'the same</td>'  ...'the sane</td>'",
        ),
    ],
)
def test_numbers_have_six_digits_and_other_values_show_where_they_differ(a, b, shown):
    rows = str(calipers.compare([a], [b], rtol=0, atol=0)).splitlines()
    assert any(f" {shown} " in f"{row} " for row in rows)
    assert max(map(len, rows)) <= 80


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i8"])
@pytest.mark.parametrize("rtol", [1e-300, 1e-200, 1e-160, 1e-7, 1e160, 1e300, 1e307])
@pytest.mark.parametrize("atol", [0.0, 5e-324, 1e-300, 1e300])
def test_the_excess_is_exact_for_extreme_tolerances(dtype, rtol, atol):
    smallest, largest = (3, 1 << 60) if dtype == "i8" else (1e-30, 1e30)
    if dtype in ("f8", "c16"):
        smallest, largest = 1e-310, 1e300
    b = np.array([smallest, 1, largest, smallest, 7], dtype)
    a = np.array([2 * smallest, 2, largest, 1, 7], dtype)

    def excess(x, y):
        distance, bound = abs(x - y), Fraction(atol) + Fraction(rtol) * abs(y)
        return distance / bound if distance else Fraction(0)

    exact = [
        excess(*(Fraction(int(v) if dtype == "i8" else float(v.real)) for v in pair))
        for pair in zip(a, b, strict=True)
    ]
    largest_of_all = max(exact)
    found = calipers.compare(a, b, rtol=rtol, atol=atol).worst()
    if largest_of_all > Fraction(sys.float_info.max):
        assert found.excess == math.inf
    elif largest_of_all < Fraction(sys.float_info.min):
        assert (found.excess if found else 0.0) <= sys.float_info.min
    else:
        assert found.excess == pytest.approx(float(largest_of_all), rel=1e-12)
        assert exact[found.index[0]] >= largest_of_all * Fraction(1 - 1e-12)


def test_a_bound_that_underflows_does_not_make_the_excess_infinite():
    a, b = np.array([2.0, 4.14e-175, 1.0]), np.array([1.0, 4.38e-307, 1.0])
    exact = (Fraction(a[1]) - Fraction(b[1])) / (Fraction(1e-160) * Fraction(b[1]))
    worst = calipers.compare(a, b, rtol=1e-160, atol=0).worst()
    assert worst.index == (1,)
    assert worst.excess == pytest.approx(float(exact), rel=1e-12)
