"""netCDF files: values are compared as the conventions say, with their units and calendars."""

import re
from pathlib import Path

import numpy as np
import pytest

import calipers
from calipers._cli import main
from calipers._files import FileError
from calipers._files.compare import FileOptions, compare_files
from calipers._files.opening import opened

netCDF4 = pytest.importorskip("netCDF4")  # noqa: N816  # the name of the library
pytest.importorskip("h5py")
pytest.importorskip("scipy")
pytest.importorskip("click")

FORMATS = "NETCDF4", "NETCDF3_CLASSIC"


def write(path, data, dtype=None, name="x", file_format="NETCDF4", **attributes):
    """Write a variable along a dimension that no variable describes, without packing."""
    data = np.asarray(data, dtype)
    fill = attributes.pop("_FillValue", None)
    with netCDF4.Dataset(path, "w", format=file_format) as file:
        file.set_auto_maskandscale(False)
        file.createDimension("i", len(data))
        x = file.createVariable(name, data.dtype, ("i",), fill_value=fill)
        x.set_auto_maskandscale(False)
        for key, value in attributes.items():
            x.setncattr(key, value)
        x[:] = data
    return path


def contents(path):
    """Return values and masks as the reader has them."""
    with opened(str(path), False) as found:
        assert not found.left_out
        values = {name: x.load() for name, x in found.arrays.items()}
        return values, {name: x.load() for name, x in found.nulls.items()}


def compare(actual, expected, **options):
    """Compare two files; return the status that the command line exits with, and the leaves."""
    paths = str(actual), str(expected)
    found = compare_files(*paths, "", FileOptions(**options), lambda share: None)
    assert not found.left_out
    return int(found.differs), {leaf.path: leaf for leaf in found.leaves}


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [
        ("i2", {"scale_factor": 0.01, "add_offset": 273.15}),
        ("i2", {"scale_factor": np.float32(0.01)}),
        ("i4", {"add_offset": np.float32(0.5), "_FillValue": np.int32(3)}),
        ("i1", {"scale_factor": np.float32(2), "missing_value": np.int8(2)}),
        ("i1", {"_Unsigned": "true", "_FillValue": np.int8(-1)}),
        ("i1", {"_Unsigned": "true", "scale_factor": 0.5}),
        ("i2", {"valid_range": np.array([1, 4], "i2")}),
        ("i2", {"valid_min": np.int16(2), "valid_max": np.int16(3), "scale_factor": 0.5}),
        ("i2", {"missing_value": np.array([2, 3], "i2")}),
        ("f4", {"_FillValue": np.float32(1e20)}),
        ("f4", {"missing_value": np.float32("nan")}),
        ("f8", {"scale_factor": 2.0, "_FillValue": 5.0}),
    ],
)
def test_values_are_those_of_the_library(tmp_path, file_format, dtype, attributes):
    data = np.array([-1, 1, 2, 3, 4, 5]).astype(dtype)
    if dtype[0] == "f":
        data[:2] = 1e20, np.nan
    if dtype == "i2":
        data[0] = -32767  # where nothing was written
    path = write(tmp_path / "x.nc", data, file_format=file_format, **attributes)
    with netCDF4.Dataset(path) as file:
        oracle = np.ma.asarray(file["x"][:])
    values, nulls = contents(path)
    assert values["x"].dtype == oracle.dtype
    assert np.array_equal(nulls["x"], np.ma.getmaskarray(oracle))
    assert np.array_equal(values["x"], oracle.filled(0), equal_nan=True)


def test_a_valid_range_of_the_values(tmp_path):
    path = write(tmp_path / "x.nc", [1, 2, 3], "i2", scale_factor=10.0, valid_max=25.0)
    assert contents(path)[1]["x"].tolist() == [False, False, True]


def test_equal_integers_with_another_packing_differ(tmp_path):
    a = write(tmp_path / "a.nc", [685, 785], "i2", scale_factor=0.01, add_offset=273.15)
    b = write(tmp_path / "b.nc", [685, 785], "i2", scale_factor=0.01, add_offset=0.0)
    c = write(tmp_path / "c.nc", [685, 785], "i2")
    status, found = compare(a, b)
    assert status == 1
    assert found["x"].mismatches == 2
    assert found["x"].problems == ()
    assert found["x"].notes == ("add_offset differs: 273.15 and 0.0",)
    status, found = compare(b, c)
    assert status == 1
    assert found["x"].notes == (
        "scale_factor differs: 0.01 and none",
        "add_offset differs: 0.0 and none",
    )
    status, found = compare(b, c, ignore=("scale_factor",))
    assert found["x"].notes == ("add_offset differs: 0.0 and none",)


def test_another_packing_is_a_note_after_the_elements_that_differ(tmp_path, capsys):
    for name, factor in ("a", 0.002), ("b", 0.001):
        data = np.arange(12) + 500
        write(tmp_path / f"{name}.nc", data, "i2", scale_factor=factor)
    assert main(["compare", str(tmp_path / "a.nc"), str(tmp_path / "b.nc")]) == 1
    out, _ = capsys.readouterr()
    assert "\n  x  12 of 12 elements differ (100 %)" in out
    assert "\n  passes      with rtol=1" in out
    assert out.endswith("\n  note        scale_factor differs: 0.002 and 0.001\n")


def test_equal_values_with_another_packing_agree(tmp_path):
    a = write(tmp_path / "a.nc", [2, 4, -1], "i2", scale_factor=0.5, _FillValue=np.int16(-1))
    for i, b in enumerate(
        [
            write(tmp_path / "b.nc", [4, 8, 7], "i2", scale_factor=0.25, _FillValue=np.int16(7)),
            write(tmp_path / "c.nc", [1, 2, 1e20], "f4", _FillValue=np.float32(1e20)),
            write(tmp_path / "d.nc", [1, 2, np.nan], "f8", _FillValue=np.nan),
            write(
                tmp_path / "e.nc",
                [20, 30, -1],
                "i4",
                file_format="NETCDF3_CLASSIC",
                scale_factor=0.1,
                add_offset=-1.0,
                missing_value=np.int32(-1),
            ),
        ]
    ):
        for pair in (a, b), (b, a):
            status, found = compare(*pair)
            assert status == 0, (i, found)
            assert list(found) == ["x", "x/nulls"]


@pytest.mark.parametrize("limit", [1 << 28, 1 << 16])
@pytest.mark.parametrize("dtype", ["i2", "f4"])
def test_elements_without_a_value_are_not_compared(tmp_path, limit, dtype):
    n, fill = 30_000, np.dtype(dtype).type(-9999)
    data = np.arange(1, n + 1).astype(dtype) % 1000 + 1
    data[[5, 7, n - 1]] = fill
    other = data.copy()
    other[7], other[9], other[100] = 3, fill, 1100
    about = {"_FillValue": fill} | ({"scale_factor": 0.5} if dtype == "i2" else {})
    a, b = (write(tmp_path / f"{k}.nc", x, **about) for k, x in enumerate((data, other)))
    status, found = compare(a, b, memory_limit=limit, plot=True)
    assert status == 1
    assert (found["x"].mismatches, found["x/nulls"].mismatches) == (1, 2)
    assert found["x"].first_mismatches[0].index == (100,)
    with netCDF4.Dataset(a) as x, netCDF4.Dataset(b) as y:
        first, second = x["x"][:], y["x"][:]
    oracle = calipers.compare(first, second)
    counts = "masked_both", "masked_actual", "masked_expected", "finite", "mismatches"
    report = found["x"].to_dict()
    assert {name: report[name] for name in counts} == {
        name: oracle.to_dict()[name] for name in counts
    }
    assert oracle.to_dict()["masked_both"] == 2
    assert np.isclose(report["rms"], oracle.rms, rtol=1e-6)
    assert report["passing_atol"] is not None
    assert sum(count for _, _, count in report["ulp_histogram"]) == report["finite"] == n - 4
    same, found = compare(a, a, memory_limit=limit)
    assert (same, found["x"].to_dict()["masked_both"], found["x"].finite) == (0, 3, n - 3)


def test_a_picture_shows_elements_without_a_value(tmp_path):
    for name, last in ("a", 3.5), ("b", 4.0):
        write(tmp_path / f"{name}.nc", [1.0, -1.0, last], _FillValue=-1.0)
    paths = str(tmp_path / "a.nc"), str(tmp_path / "b.nc")
    found = compare_files(*paths, "", FileOptions(plot=True), lambda share: None)
    pytest.importorskip("matplotlib")
    labels = [text.get_text() for text in found.drawn.plot().axes[0].get_legend().get_texts()]
    assert "masked" in labels


def test_a_value_that_one_file_lacks_is_a_difference(tmp_path):
    a = write(tmp_path / "a.nc", [1.0, -9999.0], _FillValue=-9999.0)
    b = write(tmp_path / "b.nc", [1.0, 0.0], _FillValue=1e20)
    c = write(tmp_path / "c.nc", [1.0, 0.0])
    assert compare(b, c)[0] == 0
    for other in b, c:
        status, found = compare(a, other)
        assert status == 1
        assert [name for name, leaf in found.items() if not leaf] == ["x/nulls"]
        assert found["x/nulls"].mismatches == 1
    status, found = compare(a, b, ignore=("x/nulls",))
    assert (status, list(found)) == (0, ["x"])


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(
    ("ours", "theirs", "problem"),
    [
        ({"units": "m"}, {"units": "cm"}, "units differs: 'm' and 'cm'"),
        ({"units": "m"}, {}, "units differs: 'm' and none"),
        (
            {"units": "days since 2000-01-01"},
            {"units": "hours since 1900-01-01"},
            "units differs: 'days since 2000-01-01' and 'hours since 1900-01-01'",
        ),
        (
            {"units": "days since 2000-01-01", "calendar": "noleap"},
            {"units": "days since 2000-01-01"},
            "calendar differs: 'noleap' and 'standard'",
        ),
        ({"positive": "up"}, {"positive": "down"}, "positive differs: 'up' and 'down'"),
        (
            {"flag_values": np.array([1, 2], "i2"), "flag_meanings": "land sea"},
            {"flag_values": np.array([2, 1], "i2"), "flag_meanings": "land sea"},
            "flag_values differs: '1 2' and '2 1'",
        ),
    ],
)
def test_attributes_that_change_what_numbers_mean(tmp_path, file_format, ours, theirs, problem):
    a = write(tmp_path / "a.nc", [1.0, 2.0], file_format=file_format, **ours)
    b = write(tmp_path / "b.nc", [1.0, 2.0], **theirs)
    status, found = compare(a, b)
    assert (status, found["x"].mismatches) == (1, 0)
    assert found["x"].problems == (problem,)
    key = problem.split()[0]
    assert compare(a, b, ignore=(f"x/{key}",))[0] == 0
    np.savez(tmp_path / "c.npz", x=[1.0, 2.0])
    assert compare(a, tmp_path / "c.npz")[0] == 0  # which has no attributes


def test_attributes_that_mean_the_same(tmp_path):
    units = "days since 2000-01-01"
    a = write(tmp_path / "a.nc", [1.0, 2.0], units=units, calendar="gregorian", history="a")
    b = write(tmp_path / "b.nc", [1.0, 2.0], units=f" {units} ", calendar="Standard", history="b")
    c = write(tmp_path / "c.nc", [1.0, 2.0], units=units, long_name="time")
    assert compare(a, b)[0] == compare(a, c)[0] == 0


@pytest.mark.parametrize("library", ["netCDF4", "h5py"])
def test_members_of_enumerations_say_what_numbers_mean(tmp_path, library):
    h5py = pytest.importorskip("h5py")
    for name, members in ("a.nc", {"sea": 0, "land": 1}), ("b.nc", {"land": 0, "sea": 1}):
        path = tmp_path / name
        if library == "h5py":
            path = path.with_suffix(".h5")
            with h5py.File(path, "w") as file:
                file.create_dataset("x", data=[0, 1], dtype=h5py.enum_dtype(members, "u1"))
            continue
        with netCDF4.Dataset(path, "w") as file:
            kind = file.createEnumType("u1", "cover", members)
            file.createDimension("i", 2)
            file.createVariable("x", kind, ("i",))[:] = [0, 1]
    a, b = (path.with_name(f"{name}{path.suffix}") for name in "ab")
    assert compare(a, a)[0] == 0
    status, found = compare(a, b)
    problem = "enum differs: \"[('land', 1), ('sea', 0)]\" and \"[('land', 0), ('sea', 1)]\""
    assert (status, found["x"].problems) == (1, (problem,))
    assert library == "h5py" or not found["cover"]


def test_a_format_that_scipy_does_not_read(tmp_path):
    a = write(tmp_path / "a.nc", [1.0], file_format="NETCDF3_64BIT_DATA")
    with pytest.raises(FileError, match="its format is CDF-5, which SciPy cannot read: convert"):
        compare(a, a)


def test_hdf5_files_of_the_library_are_netcdf(tmp_path):
    a = write(tmp_path / "a.h5", [2, 4], "i2", scale_factor=0.5)
    b = write(tmp_path / "b.nc", [1.0, 2.0])
    status, found = compare(a, b)
    assert (status, list(found)) == (0, ["x"])


def test_the_two_formats_have_the_same_names(tmp_path):
    for path, file_format in zip(("a.nc", "b.nc"), FORMATS, strict=True):
        with netCDF4.Dataset(tmp_path / path, "w", format=file_format) as file:
            file.createDimension("i", 3)
            file.createDimension("j", 2)
            file.createDimension("t", None)
            file.createVariable("i", "f8", ("i",))[:] = [0, 1, 2]
            # Of a dimension's name, but no coordinate of it.
            file.createVariable("j", "i4", ("i", "j"))[:] = 1
            file.createVariable("x", "f4", ("t", "j"))[:] = np.ones((4, 2))
            file.createVariable("word", "S1", ("j",))[:] = np.array([b"a", b"b"])
    status, found = compare(tmp_path / "a.nc", tmp_path / "b.nc")
    assert status == 0
    assert set(found) == {"i", "j", "x", "word"}


def test_variables_beyond_the_limit_of_memory(tmp_path):
    data = np.arange(400_000, dtype="i2").astype("i2")
    data[7::1000] = -1
    other = data.copy()
    other[399_999] = -1
    for file_format in FORMATS:
        about = {"scale_factor": 0.5, "_FillValue": np.int16(-1), "file_format": file_format}
        a = write(tmp_path / "a.nc", data, **about)
        b = write(tmp_path / "b.nc", other, **about)
        whole, parts = compare(a, b), compare(a, b, memory_limit=1 << 20)
        assert whole[0] == parts[0] == 1
        for found in whole[1], parts[1]:
            assert (found["x"].mismatches, found["x/nulls"].mismatches) == (0, 1)
            assert found["x/nulls"].first_mismatches[0].index == (399_999,)
            assert found["x"].to_dict()["masked_expected"] == 1
        assert compare(a, a, memory_limit=1 << 20)[0] == 0


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"scale_factor": "half"}, "scale_factor is 'half', which is not a number"),
        ({"add_offset": [1.0, 2.0]}, "add_offset has 2 numbers; expected 1"),
        ({"valid_range": [1, 2, 3]}, "valid_range has 3 numbers; expected 2"),
    ],
)
def test_attributes_that_make_no_sense_are_not_passed_over(tmp_path, capsys, attributes, reason):
    a = write(tmp_path / "a.nc", [1, 2], "i2", **attributes)
    assert main(["compare", str(a), str(a)]) == 2
    out, err = capsys.readouterr()
    assert f"its attributes do not follow the netCDF conventions: {reason}" in out
    assert err == "calipers: 1 name was not compared: x; --ignore leaves names out\n"


def test_the_page_reads_files_as_strictly(tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "comparing_files.md"
    blocks = re.findall(r"```{code-block} python\n(.*?)```", page.read_text("utf-8"), re.S)
    (code,) = [block for block in blocks if "netCDF4" in block]
    monkeypatch.chdir(tmp_path)
    about = {"_FillValue": -9.0, "units": "m"}
    write("a.nc", [1.0, -9.0, 3.0], **about)
    write("b.nc", [1.0, -9.0, 3.0], **about)
    exec(code, {})
    for data, others in (
        ([1.0, 2.0, 3.0], about),
        ([1.0, -9.0, 3.0], about | {"units": "cm"}),
        ([1.0, -9.0, 4.0], about),
    ):
        write("b.nc", data, **others)
        with pytest.raises(calipers.ClosenessError):
            exec(code, {})


def test_the_api_and_the_command_line_agree(tmp_path):
    a = write(tmp_path / "a.nc", [685, 785], "i2", scale_factor=0.01, add_offset=273.15)
    b = write(tmp_path / "b.nc", [685, 785], "i2", scale_factor=0.01, add_offset=0.0)
    c = write(tmp_path / "c.nc", [1370, 1570], "i2", scale_factor=0.005, add_offset=273.15)
    for other, close in (b, False), (c, True):
        with netCDF4.Dataset(a) as x, netCDF4.Dataset(other) as y:
            assert bool(calipers.compare(dict(x.variables), dict(y.variables))) == close
        assert (main(["compare", str(a), str(other), "-q"]) == 0) == close
