"""Arrays of records: structured arrays, their relatives, and their fields in stores."""

import numpy as np
import pytest

import calipers
from calipers import testing as npt

NAN = np.nan
CATALOG = [("mag", "f8"), ("id", "i8"), ("n", "S1")]
A = np.array([(NAN, 1, b"x"), (2.0, 2, b"y")], CATALOG)
NESTED = np.dtype([("a", "f8"), ("v", "i4", (3,)), ("t", "S3"), ("n", [("p", "f4"), ("q", "i8")])])


def changed(x, name, index, value):
    y = x.copy()
    y[name][index] = value
    return y


def records(n=1000):
    x = np.zeros(n, NESTED)
    x["a"], x["t"] = np.arange(n), b"abc"
    return x


@pytest.mark.parametrize(("name", "value"), [("id", 99), ("n", b"z"), ("mag", 1.0)])
def test_a_nan_in_one_field_hides_no_other_field(name, value):
    b = changed(A, name, 0, value)
    assert calipers.array_equal(A, A, equal_nan=True)
    assert not calipers.array_equal(A, A)
    assert calipers.allclose(A, A, equal_nan=True)
    report = calipers.compare(A, b, equal_nan=True)
    assert [leaf.path for leaf in report.failing] == [f"[{name!r}]"]
    assert f"[{name!r}]" in str(report)
    for agree in calipers.array_equal, calipers.allclose:
        assert not agree(A, b, equal_nan=True)
        assert not agree(A[0], b[0], equal_nan=True)  # of no axes
    assert A != calipers.approx(b, equal_nan=True)
    with pytest.raises(calipers.ClosenessError, match=name):
        calipers.assert_close(A, b, equal_nan=True)


def test_nan_in_two_fields_are_no_pair():
    a, b = np.array([(NAN, 1.0)], "f8,f8"), np.array([(1.0, NAN)], "f8,f8")
    assert not calipers.array_equal(a, b, equal_nan=True)
    assert not calipers.compare(a, b, equal_nan=True)
    assert calipers.compare(a, b).failing[0].nan_both == 0


def test_tolerances_apply_field_by_field():
    x = np.array([(1.0, 2.0)], "f8,f8")
    y = changed(x, "f1", 0, 2.0 + 1e-9)
    for a, b in (
        (x, y),
        (x.view(np.recarray), y),
        (x[0], y[0]),
        (x.reshape(1, 1), y.reshape(1, 1)),
    ):
        assert calipers.compare(a, b)
        assert calipers.allclose(a, b)
        assert a == calipers.approx(b)
        assert not calipers.compare(a, b, rtol=0, atol=1e-10)
        assert not calipers.allclose(a, b, rtol=0, atol=1e-10)
        assert not calipers.array_equal(a, b)
    assert calipers.compare(x, y, max_ulp=1 << 23)
    assert calipers.compare({"x": x}, {"x": y})


def test_text_is_exact_whatever_the_tolerance():
    report = calipers.compare(A[1:], changed(A[1:], "n", 0, b"z"), rtol=1.0, atol=1e3)
    assert [leaf.path for leaf in report.failing] == ["['n']"]
    assert "exact equality" in str(report.failing[0])
    assert not calipers.allclose(A[1:], changed(A[1:], "n", 0, b"z"), 1.0, 1e3)


def test_fields_of_fields_have_paths():
    x = records()
    y = changed(x, "v", (5, 2), 9)
    y["n"]["q"][7] = 1
    report = calipers.compare(x, y)
    assert [leaf.path for leaf in report.failing] == ["['v']", "['n']['q']"]
    assert report.failing[0].first_mismatches[0].index == (5, 2)
    assert not calipers.allclose(x, y)
    assert not calipers.array_equal(x, y)
    assert calipers.array_equal(x, x.copy())


def test_fields_are_paired_by_name():
    x = np.array([(1.0, 2)], [("a", "f8"), ("b", "i8")])
    assert calipers.array_equal(x, x[["b", "a"]])
    assert calipers.compare(x, x[["b", "a"]])
    for names in ("ac", "ba"):
        other = x.view([(names[0], "f8"), (names[1], "i8")])
        assert not calipers.array_equal(x, other)
        assert not calipers.allclose(x, other)
        assert not calipers.compare(x, other, check_dtype=False)
    assert not calipers.array_equal(x, x[["a"]])
    assert not calipers.array_equal(x[["a"]], x)
    assert not calipers.array_equal(x, [1.0])
    problems = [leaf.problems for leaf in calipers.compare(x, x[["a"]]).failing]
    assert problems == [("only in actual",)]


def test_dtypes_and_shapes_of_fields_are_compared():
    x = np.array([(1.0, 2)], [("a", "f8"), ("b", "i8")])
    y = x.astype([("a", "f8"), ("b", "i4")])
    assert "dtypes differ: int64 and int32" in str(calipers.compare(x, y))
    assert calipers.compare(x, y, check_dtype=False)
    assert calipers.allclose(x, y)
    assert not calipers.array_equal(np.repeat(x, 2), x)
    assert not calipers.compare(np.repeat(x, 2), x)


def test_records_that_are_refused():
    for a, b in ((A, A), (A[0], A[0])):
        with pytest.raises(TypeError, match=r"several fields.*isclose\(a\['x'\], b\['x'\]\)"):
            calipers.isclose(a, b)
    with pytest.raises(TypeError, match="axis is not supported for records"):
        calipers.allclose(A, A, axis=0)
    with pytest.raises(TypeError, match=r"use array_equal"):
        calipers.allclose(A, [1.0, 2.0])
    assert not calipers.array_equal(A, [1.0, 2.0])  # as is advised
    report = calipers.compare(A, [1.0, 2.0])
    assert "actual is an array of records, expected is a sequence" in str(report)


def test_masks_of_fields_are_heeded():
    b = changed(changed(A, "mag", 0, 1.0), "id", 0, 99)
    masks = [(True, True, False), (False, False, False)]
    assert calipers.compare(np.ma.array(A, mask=masks), np.ma.array(b, mask=masks))
    assert calipers.allclose(np.ma.array(A, mask=masks), np.ma.array(b, mask=masks))
    shown = np.ma.array(b, mask=[(True, False, False), (False, False, False)])
    report = calipers.compare(np.ma.array(A, mask=shown.mask), shown)
    assert [leaf.path for leaf in report.failing] == ["['id']"]


def test_records_on_disk_are_read_block_by_block(tmp_path):
    x = records()
    np.save(tmp_path / "x.npy", x)
    close = changed(x, "a", 3, 3.0 + 1e-9)
    far = changed(close, "v", (5, 2), 9)
    for limit in 1 << 15, 1 << 28:
        options = {"memory_limit": limit}
        held = np.load(tmp_path / "x.npy", mmap_mode="r")
        assert calipers.compare(held, close, **options)
        assert [leaf.path for leaf in calipers.compare(held, far, **options).failing] == ["['v']"]
        assert calipers.allclose(held, close, **options)
        assert not calipers.allclose(held, far, **options)
        assert calipers.array_equal(held, x, **options)
        assert not calipers.array_equal(held, close, **options)


def test_streams_of_records():
    x = records(10)
    y = changed(x, "a", 3, 3.0 + 1e-9)

    def halves(x):
        return iter([x[:5], x[5:]])

    assert calipers.allclose(halves(x), halves(y))
    assert not calipers.array_equal(halves(x), halves(y))
    with pytest.raises(TypeError, match=r"chunks of one field, \(x\['a'\] for x in actual\)"):
        calipers.compare(halves(x), halves(y))
    assert calipers.compare((x["a"] for x in halves(x)), (y["a"] for y in halves(y)))


def test_records_of_stores(tmp_path):
    h5py = pytest.importorskip("h5py")
    x = records()
    far = changed(changed(x, "a", 3, 3.0 + 1e-9), "n", 7, (0, 1))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        a = file.create_dataset("a", data=x, chunks=(100,))
        file["b"] = far
        report = calipers.compare(a, file["b"])
        assert [leaf.path for leaf in report.failing] == ["['n']['q']"]
        assert report.failing[0].first_mismatches[0].index == (7,)
        assert calipers.compare(a, x, memory_limit=1 << 16)
        assert calipers.array_equal(a, x)
        assert not calipers.allclose(a, far)
        with pytest.raises(ValueError, match="pass memory_limit="):
            calipers.compare(a, x, memory_limit=1 << 10)


@pytest.mark.filterwarnings("ignore::Warning")  # zarr's format has no records yet
def test_records_of_zarr(tmp_path):
    zarr = pytest.importorskip("zarr")
    x = A[["mag", "id"]].astype([("mag", "f8"), ("id", "i8")])
    stored = zarr.create_array(store=str(tmp_path / "z"), shape=(2,), chunks=(1,), dtype=x.dtype)
    stored[:] = x
    assert calipers.array_equal(stored, x, equal_nan=True)
    report = calipers.compare(stored, changed(x, "id", 0, 9), equal_nan=True)
    assert [leaf.path for leaf in report.failing] == ["['id']"]


def test_records_of_dask():
    arrays = pytest.importorskip("dask.array")
    b = changed(A, "id", 0, 99)
    x, y = (arrays.from_array(z, chunks=1) for z in (A, b))
    assert calipers.array_equal(x, x, equal_nan=True)
    assert not calipers.array_equal(x, y, equal_nan=True)
    assert not calipers.allclose(x, y, equal_nan=True)
    report = calipers.compare(x, y, equal_nan=True)
    assert [leaf.path for leaf in report.failing] == ["['id']"]


def test_records_of_awkward():
    awkward = pytest.importorskip("awkward")
    a = awkward.Array([{"x": 1.0, "n": 2}, {"x": 3.0, "n": 4}])
    b = awkward.Array([{"x": 1.0 + 1e-12, "n": 2}, {"x": 3.0, "n": 4}])
    far = awkward.Array([{"x": 1.0, "n": 2}, {"x": 3.0, "n": 5}])
    for x, y in ((a, b), (a[0], b[0])):
        assert calipers.compare(x, y)
        assert calipers.allclose(x, y)
        assert not calipers.compare(x, y, rtol=0, atol=0)
    assert calipers.compare(a, far).failing[0].path == "['n']"
    assert calipers.array_equal(a, a)
    assert not calipers.array_equal(a, b)
    ragged, other = (awkward.Array([{"x": [1.0], "n": 2}, {"x": [], "n": n}]) for n in (4, 5))
    assert calipers.compare(ragged, ragged)
    assert not calipers.compare(ragged, other)


@pytest.mark.parametrize(
    "name", ["assert_allclose", "assert_array_equal", "assert_equal", "assert_array_almost_equal"]
)
def test_assertions_of_testing_compare_fields(name):
    assertion = getattr(npt, name)
    assertion(A, A.copy())  # where a NaN is equal to a NaN
    for field, value in (("mag", 1.0), ("id", 99), ("n", b"z")):
        with pytest.raises(calipers.ClosenessError, match=field):
            assertion(A, changed(A, field, 0, value))
    close = changed(A, "mag", 1, 2.0 + 1e-9)
    if "equal" in name and "almost" not in name:
        with pytest.raises(calipers.ClosenessError, match="mag"):
            assertion(A, close)
    else:
        assertion(A, close)


def test_torchs_assertion_compares_fields():
    npt.assert_close(A, A.copy(), equal_nan=True)
    with pytest.raises(calipers.ClosenessError, match=r"\['k'\]\['id'\]"):
        npt.assert_close({"k": A}, {"k": changed(A, "id", 0, 99)}, equal_nan=True)
