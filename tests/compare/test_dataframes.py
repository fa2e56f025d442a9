"""Frames and columns of pandas, polars, pyarrow, dask and astropy."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

import calipers
from calipers import testing as npt

pandas = pytest.importorskip("pandas")

LIBRARIES = ["pandas", "polars", "pyarrow", "dask.dataframe"]
BIG = 2**53
IDS = {"id": [BIG, 7], "x": [0.5, 1.0]}
OTHER_IDS = {"id": [BIG + 1, 7], "x": [0.5, 1.0]}


def frame(library, columns):
    module = pytest.importorskip(library)
    if library == "dask.dataframe":
        return module.from_pandas(pandas.DataFrame(columns), npartitions=2)
    return module.table(columns) if library == "pyarrow" else module.DataFrame(columns)


def integers(kind, values):
    library = pytest.importorskip(kind.partition(" ")[0])
    return {
        "pandas": lambda: library.Series(values, dtype="Int64"),
        "pandas array": lambda: library.array(values, dtype="Int64"),
        "pandas index": lambda: library.Index(library.array(values, dtype="Int64")),
        "polars": lambda: library.Series(values),
        "pyarrow": lambda: library.array(values),
        "pyarrow chunks": lambda: library.chunked_array([values[:1], values[1:]]),
    }[kind]()


NULLABLE = ["pandas", "polars", "pyarrow", "pandas array", "pandas index", "pyarrow chunks"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_keep_their_dtype(library):
    a, b = frame(library, IDS), frame(library, OTHER_IDS)
    assert calipers.array_equal(a, a)
    assert calipers.allclose(a, a)
    assert calipers.compare(a, a)
    assert not calipers.array_equal(a, b)
    assert not calipers.allclose(a, b, rtol=0, atol=0)
    assert calipers.isclose(a, b, rtol=0, atol=0).tolist() == [[False, True], [True, True]]
    report = calipers.compare(a, b)
    assert [leaf.path for leaf in report.failing] == ["['id']"]
    assert report.failing[0].actual_dtype == "int64"
    assert calipers.approx(a) != b
    with pytest.raises(calipers.ClosenessError, match="id"):
        calipers.assert_close(a, b)
    for assertion in npt.assert_array_equal, npt.assert_equal, npt.assert_close:
        assertion(a, a)
        with pytest.raises(calipers.ClosenessError, match="id"):
            assertion(a, b)


@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_are_paired_by_name(library):
    a = frame(library, {"a": [1.0, 2.0], "b": [3.0, 4.0]})
    swapped = frame(library, {"b": [1.0, 2.0], "a": [3.0, 4.0]})
    ordered = frame(library, {"b": [3.0, 4.0], "a": [1.0, 2.0]})
    fewer = frame(library, {"a": [1.0, 2.0]})
    for other in swapped, fewer:
        assert not calipers.compare(a, other)
        assert not calipers.array_equal(a, other)
        assert not calipers.allclose(a, other)
        assert calipers.approx(a) != other
    assert calipers.compare(a, ordered)
    assert calipers.isclose(a, swapped).tolist() == [[False, False], [False, False]]
    assert "['b']  only in actual" in str(calipers.compare(a, fewer))
    with pytest.raises(ValueError, match="only one has 'b': use compare"):
        calipers.isclose(a, fewer)


@pytest.mark.parametrize("library", LIBRARIES)
def test_dtypes_of_columns_are_compared(library):
    a = frame(library, {"a": [1.0], "n": [1]})
    b = frame(library, {"a": [1.0], "n": [1.0]})
    assert "dtypes differ: int64 and float64" in str(calipers.compare(a, b))
    assert calipers.compare(a, b, check_dtype=False)
    assert calipers.array_equal(a, b)
    assert calipers.approx(a) == b


@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_of_two_libraries(library):
    a, b = frame("pandas", IDS), frame(library, IDS)
    assert calipers.compare(a, b)
    assert calipers.compare(b, IDS)
    assert not calipers.compare(b, frame("pandas", OTHER_IDS))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_and_an_array(library):
    a = frame(library, {"n": [1, 2], "x": [0.5, 1.0]})
    matrix = np.array([[1, 0.5], [2, 1.0]])
    assert calipers.allclose(a, matrix)
    assert calipers.compare(a, matrix)
    assert calipers.array_equal(matrix, a)
    assert str(calipers.compare(a, matrix + [[0, 0], [0, 1]])).startswith("Not close: 1 of 4 elem")
    # float64 does not hold the integer.
    rounded = np.array([[BIG, 0.5], [7, 1.0]])
    assert calipers.array_equal(frame(library, IDS), rounded)
    assert not calipers.array_equal(frame(library, OTHER_IDS), rounded)


@pytest.mark.parametrize("kind", NULLABLE)
def test_integers_with_missing_values_are_exact(kind):
    a, b, c = (integers(kind, x) for x in ([BIG, None], [BIG + 1, None], [BIG, 5]))
    assert calipers.array_equal(a, a, equal_nan=True)
    assert not calipers.array_equal(a, a)
    assert not calipers.array_equal(a, b, equal_nan=True)
    assert not calipers.array_equal(a, c, equal_nan=True)
    assert calipers.compare(a, a, equal_nan=True)
    assert not calipers.compare(a, a)
    assert not calipers.compare(a, b, equal_nan=True)
    assert calipers.isclose(a, a, 0, 0, equal_nan=True).tolist() == [True, True]
    assert calipers.isclose(a, b, 0, 0, equal_nan=True).tolist() == [False, True]
    assert calipers.isclose(a, b, 0, 1).tolist() == [True, False]
    assert not calipers.allclose(a, b, 0, 0, equal_nan=True)
    assert calipers.allclose(a, b, 0, 1, equal_nan=True)
    report = calipers.compare(a, c)
    assert report.nan_actual == 1
    assert report.actual_dtype == "int64"
    assert calipers.first_nonfinite(a) == (1,)
    assert not calipers.allfinite(a)


def test_missing_values_do_not_hide_the_dtype():
    kinds = [pandas.Series([1, None], dtype=dtype) for dtype in ("Int64", "Int32", "Float64")]
    for i, a in enumerate(kinds):
        for j, b in enumerate(kinds):
            assert bool(calipers.compare(a, b, equal_nan=True)) is (i == j)
    assert "dtypes differ: int64 and int32" in str(calipers.compare(*kinds[:2], equal_nan=True))
    # Integers have no tolerance by default, with missing values either.
    ids = [pandas.Series([10**9 + i, None], dtype="Int64") for i in range(2)]
    assert not calipers.compare(*ids, equal_nan=True)


@pytest.mark.parametrize("dtype", ["string", "boolean", "object", "str", "category"])
def test_missing_values_of_pandas_that_are_no_numbers(dtype):
    first = True if dtype == "boolean" else "a"
    a, b, c = (pandas.Series(x, dtype=dtype) for x in ([first, pandas.NA], [first] * 2, [None] * 2))
    assert calipers.compare(a, a, equal_nan=True)
    assert calipers.array_equal(a, a, equal_nan=True)
    assert not calipers.compare(a, a)
    assert not calipers.array_equal(a, a)
    for other in b, c:
        assert not calipers.compare(a, other, equal_nan=True)
        assert not calipers.array_equal(a, other, equal_nan=True)
    assert calipers.compare(pandas.DataFrame({"t": a}), pandas.DataFrame({"t": a}), equal_nan=True)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
@pytest.mark.parametrize(
    ("value", "other"),
    [
        ("a", "b"),
        (True, False),
        (b"a", b"b"),
        (1.0, 2.0),
        (Decimal("1.10"), Decimal("1.11")),
        (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)),
        (datetime.time(1, 2), datetime.time(1, 3)),
        (datetime.timedelta(1), datetime.timedelta(2)),
        ([1.0, 2.0], [1.0, 3.0]),
        ({"a": 1}, {"a": 2}),
    ],
)
def test_columns_of_any_kind(library, value, other):
    values = [[value, value], [value, other], [value, None]]
    a, b, c = (frame(library, {"c": x}) for x in values)
    assert calipers.compare(a, a)
    assert not calipers.compare(a, b)
    assert not calipers.compare(a, c, equal_nan=True)
    assert not calipers.compare(c, a, equal_nan=True)
    assert calipers.compare(c, c, equal_nan=True)
    assert calipers.array_equal(a, a)
    assert not calipers.array_equal(a, b)
    assert not calipers.array_equal(a, c, equal_nan=True)
    assert not calipers.allclose(a, b)


def test_columns_of_one_name():
    a = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    b = pandas.DataFrame([[1, 3]], columns=["a", "a"])
    report = calipers.compare(a, b)
    assert [leaf.path for leaf in report.failing] == [".iloc[:, 1]"]
    assert calipers.array_equal(a, a)


def test_shapes_of_frames():
    for rows in 1, 3:
        a, b = pandas.DataFrame({"a": np.zeros(2)}), pandas.DataFrame({"a": np.zeros(rows)})
        assert not calipers.compare(a, b)
        assert not calipers.array_equal(a, b)
    assert not calipers.array_equal(*(pandas.DataFrame(index=range(n)) for n in (2, 3)))


def test_row_labels_are_not_compared_and_the_report_says_so():
    a = pandas.DataFrame({"a": [1.0, 2.0]})
    b = pandas.DataFrame({"a": [1.0, 2.0]}, index=[5, 6])
    for x, y in ((a, b), (a["a"], b["a"])):
        assert "note" not in str(calipers.compare(x, x))
        report = calipers.compare(x, y)
        assert report
        assert "the row labels differ; rows are compared by position" in str(report)


def test_columns_of_dask_are_compared_in_their_dtype():
    dask = pytest.importorskip("dask.dataframe")
    # One of pandas, as dask takes two such columns for the same one.
    series = pandas.Series([BIG, None], dtype="Int64")
    other = pandas.Series([BIG + 1, None], dtype="Int64")
    column = dask.from_pandas(series, npartitions=1)
    assert calipers.array_equal(column, series, equal_nan=True)
    assert not calipers.array_equal(column, other, equal_nan=True)
    assert calipers.compare(column, series, equal_nan=True)
    assert not calipers.compare(column, other, equal_nan=True)


def test_queries_that_were_not_run_are_refused():
    polars = pytest.importorskip("polars")
    lazy = polars.LazyFrame({"a": [1]})
    for ask in calipers.allclose, calipers.array_equal, calipers.compare:
        with pytest.raises(TypeError, match=r"polars LazyFrame, .*: pass \w+\.collect\(\)"):
            ask(lazy, lazy)


def test_tables_of_astropy():
    table = pytest.importorskip("astropy.table").Table
    assert calipers.compare(table(IDS), table(IDS))
    assert not calipers.compare(table(IDS), table(OTHER_IDS))
    assert not calipers.array_equal(table(IDS), table(OTHER_IDS))


def test_frames_are_left_as_they_are():
    for library in LIBRARIES:
        a = frame(library, IDS)
        before = str(a)
        calipers.compare(a, frame(library, OTHER_IDS))
        assert str(a) == before
