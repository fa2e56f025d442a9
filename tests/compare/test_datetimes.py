"""Dates and durations have tolerances with a unit, in every function, and exact distances."""

import datetime
import json
import warnings
from fractions import Fraction

import numpy as np
import pytest

import calipers
from calipers import testing as npt

SECONDS = {"h": Fraction(3600), "s": Fraction(1), "ms": Fraction(1, 1000), "ns": Fraction(1, 10**9)}


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as of NumPy 2.5 about timedelta64 without a unit
        yield


def _numpy_dates():
    return np.datetime64("2020-02-28T23:59:59.500000")


def _numpy_durations():
    return np.timedelta64(100_000_000, "us")


def _datetimes():
    return datetime.datetime(2020, 2, 28, 23, 59, 59)


def _aware():
    return datetime.datetime(2020, 2, 28, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))


def _timedeltas():
    return datetime.timedelta(seconds=100)


def _timestamps():
    return pytest.importorskip("pandas").Timestamp("2020-02-28T23:59:59.000000001")


def _pandas_timedeltas():
    return pytest.importorskip("pandas").Timedelta("100s")


def _cftime():
    return pytest.importorskip("cftime").Datetime360Day(2020, 2, 30)


KINDS = (
    *(_numpy_dates, _numpy_durations, _datetimes, _aware, _timedeltas),
    *(_timestamps, _pandas_timedeltas, _cftime),
)


def later(x, seconds):
    step = datetime.timedelta(seconds=seconds)
    return x + (np.timedelta64(step) if isinstance(x, np.generic) else step)


def judge(a, b, **options):
    """Return the verdict of every function that takes tolerances, if it is one."""
    verdicts = {
        bool(calipers.allclose(a, b, **options)),
        bool(np.all(calipers.isclose(a, b, **options))),
        bool(calipers.compare(a, b, **options)),
        bool(calipers.compare({"x": [a, "s", None]}, {"x": [b, "s", None]}, **options)),
        bool(calipers.approx(b, **options) == a),
    }
    for check in calipers.assert_close, npt.assert_allclose:
        try:
            check(a, b, **options)
            verdicts.add(True)
        except AssertionError:
            verdicts.add(False)
    assert len(verdicts) == 1
    return verdicts.pop()


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("form", ["scalar", "array", "list", "matrix"])
def test_a_tolerance_with_a_unit_is_applied_in_every_function(make, form):
    first = make()
    second = later(first, 5)
    forms = {
        "scalar": lambda x: x,
        "array": lambda x: np.array([x, first]),
        "list": lambda x: [x, first],
        "matrix": lambda x: np.array([[x], [first]]),
    }
    a, b = forms[form](first), forms[form](second)
    for atol, passes in (
        (np.timedelta64(5, "s"), True),
        (np.timedelta64(4999, "ms"), False),
        (datetime.timedelta(seconds=5), True),
        (datetime.timedelta(seconds=4, microseconds=999_999), False),
    ):
        assert judge(a, b, rtol=0, atol=atol) is passes
        assert judge(b, a, rtol=0, atol=atol) is passes
    assert not calipers.compare(a, b)
    assert calipers.compare(a, a)
    assert not calipers.array_equal(a, b)
    assert calipers.array_equal(a, a)


@pytest.mark.parametrize("make", [_numpy_durations, _timedeltas, _pandas_timedeltas])
def test_rtol_of_durations_is_applied(make):
    b = make()
    a = later(b, 4)
    for rtol, passes in ((0.04, True), (0.039, False)):
        assert judge(a, b, rtol=rtol, atol=datetime.timedelta(0)) is passes
        assert judge(np.array([a]), np.array([b]), rtol=rtol, atol=np.timedelta64(0, "s")) is passes
        assert bool(calipers.compare(a, b, rtol=rtol, atol=0)) is passes
    assert judge(a, b, rtol=0.03, atol=datetime.timedelta(seconds=1))
    assert f"{'0.03'}*|expected|" in str(calipers.compare(a, b, rtol=0.03, atol=0))


@pytest.mark.parametrize("make", [_numpy_dates, _datetimes, _timestamps, _cftime])
def test_dates_have_no_relative_distance(make):
    a = make()
    b = later(a, 1)
    for ask in calipers.allclose, calipers.isclose:
        for options in {}, {"rtol": 0}, {"atol": np.timedelta64(5, "s")}:
            with pytest.raises(TypeError, match=r"pass rtol=0 and atol=numpy.timedelta64"):
                ask(np.array([a]), np.array([b]), **options)
    report = calipers.compare(a, b, rtol=1.0, atol=0)
    assert not report
    assert "exact equality" in str(report)
    assert np.isnan(report.worst("absolute").relative)
    assert report.worst("relative") is None
    json.dumps(report.to_dict(), allow_nan=False)


def test_a_number_counts_units_of_durations():
    a, b = np.array([105], "m8[s]"), np.array([100], "m8[s]")
    for pair in (a, b), (a.astype("m8[us]").astype(object), b.astype("m8[us]").astype(object)):
        unit = 1 if pair[0].dtype.kind == "m" else 10**6
        assert calipers.compare(*pair, rtol=0, atol=5 * unit)
        assert calipers.allclose(*pair, rtol=0, atol=5 * unit)
        assert not calipers.allclose(*pair, rtol=0, atol=5 * unit - 1)
        report = calipers.compare(*pair, rtol=0, atol=4)
        assert not report
        assert f"<= 4 {'s' if unit == 1 else 'us'} + 0*|expected|" in str(report)
        for ask in calipers.allclose, calipers.isclose:
            with pytest.raises(TypeError, match=r"pass atol=numpy.timedelta64"):
                ask(*pair, rtol=0, atol=1e-8)


def test_no_number_is_a_tolerance_of_dates():
    """As of text: in a container, the tolerance of numbers lets no date pass."""
    a = np.array(["2020-01-01", "2020-01-02"], "M8[D]")
    b = np.array(["2020-01-02", "2020-01-03"], "M8[D]")
    for pair in (a, b), (a.astype(object), b.astype(object)):
        report = calipers.compare(*pair, rtol=1.0, atol=5.0)
        assert report.mismatches == 2
        assert "exact equality" in str(report)
        assert not calipers.compare([1.0, *pair[:1]], [2.0, *pair[1:]], rtol=0, atol=5.0)
        for ask in calipers.allclose, calipers.isclose:
            with pytest.raises(TypeError, match=r"pass rtol=0 and atol=numpy.timedelta64"):
                ask(*pair, rtol=0, atol=5)
        assert calipers.allclose(pair[0], pair[0], rtol=0, atol=0)


def test_the_unit_stands_with_the_tolerance():
    a, b = np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-01T00:00:01"], "M8[s]")
    report = calipers.compare(a, b, rtol=0, atol=np.timedelta64(1, "m"), check_dtype=False)
    assert report
    assert "<= 60 s + 0*|expected|" in str(report)
    assert (report.actual_dtype, report.expected_dtype) == ("datetime64[D]", "datetime64[s]")
    third = calipers.compare(a, a, rtol=0, atol=datetime.timedelta(hours=8))
    assert "<= 0.333333 D + 0*|expected|" in str(third)
    assert third.to_dict()["rule"]["atol"] == pytest.approx(1 / 3)


def test_what_is_not_a_time_has_no_tolerance_in_units_of_time():
    for atol in np.timedelta64(1, "s"), datetime.timedelta(seconds=1):
        name = type(atol).__name__
        with pytest.raises(TypeError, match=f"atol is a {name}, but an array has dtype float64"):
            calipers.compare([1.0], [1.0], rtol=0, atol=atol)
        for ask in calipers.allclose, calipers.isclose:
            with pytest.raises(TypeError, match="atol"):
                ask([1.0], [1.0], rtol=0, atol=atol)
        with pytest.raises(TypeError, match="rtol must be a"):
            calipers.compare(atol, atol, rtol=atol, atol=0)
    days, years = np.array([1], "m8[D]"), np.timedelta64(1, "Y")
    for ask in calipers.compare, calipers.allclose:
        with pytest.raises(TypeError, match=r"atol=.* cannot be converted to the unit .*'D'"):
            ask(days, days, rtol=0, atol=years)
    for bad in datetime.timedelta(-1), np.timedelta64(-1, "s"), np.timedelta64("NaT", "s"):
        with pytest.raises(ValueError, match="atol must be finite and not negative"):
            calipers.compare(days, days, rtol=0, atol=bad)


def test_missing_times():
    pandas = pytest.importorskip("pandas")
    for a in (
        np.array(["2020-01-01", "NaT"], "M8[D]"),
        np.array([1, "NaT"], "m8[s]"),
        np.array([datetime.datetime(2020, 1, 1), pandas.NaT]),
        np.array([datetime.timedelta(1), pandas.NaT]),
    ):
        options = {"rtol": 0, "atol": datetime.timedelta(1)}
        assert judge(a[:1], a[:1], **options)
        assert not calipers.allclose(a, a, **options)
        assert calipers.isclose(a, a, **options).tolist() == [True, False]
        assert calipers.allclose(a, a, **options, equal_nan=True)
        assert not calipers.allclose(a, a[::-1], **options, equal_nan=True)
        report = calipers.compare(a, a, **options)
        assert (report.mismatches, report.nan_both, report.finite) == (1, 1, 1)
        assert calipers.compare(a, a, **options, equal_nan=True)


def test_dates_that_have_no_difference_are_not_close():
    naive = datetime.datetime(2020, 1, 1)
    aware = naive.replace(tzinfo=datetime.UTC)
    cftime = pytest.importorskip("cftime")
    other = cftime.Datetime360Day(2020, 1, 1)
    for pair in (naive, aware), (cftime.DatetimeNoLeap(2020, 1, 1), other), (naive, naive.date()):
        assert not judge(*pair, rtol=0, atol=datetime.timedelta(1000))


def test_masked_times():
    a = np.ma.array([1, 2, 3], "m8[s]", mask=[0, 1, 0])
    b = np.array([2, 9, 4], "m8[s]")
    assert judge(a, b, rtol=0, atol=np.timedelta64(1, "s"))
    assert not judge(a, b, rtol=0, atol=np.timedelta64(999, "ms"))
    close = calipers.isclose(a, b, rtol=0, atol=np.timedelta64(1, "s"))
    assert np.ma.getmaskarray(close).tolist() == [False, True, False]
    assert calipers.compare(a, b, rtol=0, atol=1).to_dict()["masked_actual"] == 1


def test_scalars_of_numpy_among_objects():
    a = np.array([datetime.timedelta(seconds=1), np.timedelta64(1, "ns")], object)
    b = np.array([datetime.timedelta(seconds=1), np.timedelta64(3, "ns")], object)
    assert judge(a, b, rtol=0, atol=np.timedelta64(2, "ns"))
    assert not judge(a, b, rtol=0, atol=np.timedelta64(1, "ns"))


def test_times_in_chunks():
    a, b = (np.arange(k, k + 6).astype("M8[s]") for k in (0, 5))
    for atol, passes in ((datetime.timedelta(seconds=5), True), (np.timedelta64(4, "s"), False)):
        options = {"rtol": 0, "atol": atol}
        assert calipers.allclose(iter([a[:2], a[2:]]), iter([b[:2], b[2:]]), **options) is passes
        report = calipers.compare(iter([a[:2], a[2:]]), iter([b[:2], b[2:]]), **options)
        assert bool(report) is passes
        assert report.mismatches == 6 * (not passes)
    halves = [calipers.compare(a[k : k + 3], b[k : k + 3]) for k in (0, 3)]
    assert halves[0].merge(halves[1]).tally == calipers.compare(a, b).tally


def test_tolerances_by_element_and_verdicts_by_row():
    a, b = np.array([[1, 2], [3, 4]], "m8[s]"), np.array([[2, 4], [3, 4]], "m8[s]")
    atol = np.array([1, 1], "m8[s]")
    assert calipers.isclose(a, b, 0, atol).tolist() == [[True, False], [True, True]]
    assert calipers.allclose(a, b, 0, np.timedelta64(1, "s"), axis=1).tolist() == [False, True]
    assert calipers.isclose(a, b, np.array([[0.5], [0.0]]), np.timedelta64(0, "s")).all()


@pytest.mark.parametrize("kind", ["m", "M"])
def test_distances_are_exact(kind):
    """Against Python's integers: of any units, beyond 2**53, and where a unit would overflow."""
    rng = np.random.default_rng(0)
    units = list(SECONDS)
    for _ in range(300):
        first, second, third = rng.choice(units, 3)
        size = int(2 ** rng.uniform(0, 62.9))
        count = int(rng.integers(-size, size))
        seconds = count * SECONDS[first]
        other = int(seconds / SECONDS[second]) + int(rng.integers(-2, 3))
        if not -(2**63) < other < 2**63:
            continue
        distance = abs(seconds - other * SECONDS[second])
        limit = int(distance / SECONDS[third]) + int(rng.integers(0, 2))
        rtol = float(rng.choice([0.0, 2.0**-20])) if kind == "m" else 0.0
        tick = min(SECONDS[first], SECONDS[second])
        bound = limit * SECONDS[third]
        if rtol:  # as of numbers, the bound is of binary64
            size = abs(other) * SECONDS[second] / tick
            bound = Fraction(float(bound / tick) + rtol * float(size)) * tick
        if limit >= 2**63:
            continue
        a, b = np.array([count], f"{kind}8[{first}]"), np.array([other], f"{kind}8[{second}]")
        atol = np.timedelta64(limit, str(third))
        expected = distance <= bound
        assert calipers.allclose(a, b, rtol, atol) is bool(expected)
        options = {"rtol": rtol, "atol": atol, "check_dtype": False}
        assert bool(calipers.compare(a, b, **options)) is bool(expected)
        assert calipers.array_equal(a, b) is (distance == 0)


def test_large_times_are_not_rounded():
    a = np.array([2**53, 2**62], "m8[ns]")
    b = np.array([0, 2**62 + 2**53 + 1], "m8[ns]")
    exact = np.timedelta64(2**53 + 1, "ns")
    assert judge(a, b, rtol=0, atol=exact)
    assert not judge(a, b, rtol=0, atol=exact - np.timedelta64(1, "ns"))
    third = np.timedelta64(1, "s"), np.timedelta64(333_333_333, "ns")
    for atol in third:  # neither is a whole number of seconds
        assert judge(np.array([1], "m8[s]"), np.array([1], "m8[s]"), rtol=0, atol=atol)
    # In nanoseconds these two have one number, modulo 2**64.
    far = np.array([2**55 + 1], "m8[s]")
    near = (far.astype(np.int64).astype(object) * 10**9 + 2**63) % 2**64 - 2**63
    near = near.astype(np.int64).astype("m8[ns]")
    assert not calipers.array_equal(far, near)
    assert not calipers.compare(far, near, check_dtype=False)
    assert not calipers.allclose(far, near, 0, np.timedelta64(1, "h"))
    assert not calipers.array_equal(np.array([9000], "M8[Y]"), np.array([0], "M8[ns]"))
    assert not calipers.array_equal(np.array([1], "m8[Y]"), np.array([365], "m8[D]"))


def test_dates_beside_objects_are_compared_in_the_finer_unit():
    pandas = pytest.importorskip("pandas")
    days = np.array(["2020-01-01"], "M8[D]")
    stamp = np.array([pandas.Timestamp("2020-01-01T00:00:00.000000001")])
    options = {"rtol": 0, "check_dtype": False}
    assert calipers.compare(days, stamp, atol=np.timedelta64(1, "ns"), **options)
    report = calipers.compare(days, stamp, atol=0, **options)
    assert report.worst("absolute").absolute == 1
    assert calipers.compare(days, np.array([datetime.datetime(2020, 1, 1)]), atol=0, **options)
    atol = datetime.timedelta(microseconds=2)
    report = calipers.compare(days, np.array([datetime.datetime(2020, 1, 1)]), atol=atol, **options)
    assert "<= 2 us" in str(report)


def test_assert_allclose_of_dates_without_a_duration_says_what_to_give():
    dates = np.array(["2020-01-01"], "M8[D]")
    with pytest.raises(TypeError) as caught:
        npt.assert_allclose(dates, dates + 1)
    assert "pass rtol=0 and atol=numpy.timedelta64(...)" in caught.value.__notes__[0]
    npt.assert_allclose(dates, dates + 1, rtol=0, atol=np.timedelta64(1, "D"))
