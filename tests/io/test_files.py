"""Readers of files: every format, arrays beyond memory, and files that are broken or hostile."""

import json
import os
import pickle
import re
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import tracemalloc
import warnings
import zipfile
from collections import OrderedDict
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess

import numpy as np
import pytest

from calipers._core.threads import children_with_safe_path
from calipers._files import FileError, described, opening, printable, worker
from calipers._files import zarr as zarr_reader
from calipers._files.compare import FileOptions, compare_files, is_ignored
from calipers._files.contents import leads_out, require_stored
from calipers._files.folders import compare_pairs, listing, pairs_of
from calipers._files.opening import opened
from tests.data.file_mutants import saved, tensors
from tests.data.peak_memory import PEAK

X = np.random.default_rng(0).normal(size=(40, 30))
MEMBERS = {"w": X, "n": np.arange(7), "one": np.float32(3)}


def write_npz(path, arrays):
    np.savez(path, **arrays)


def write_deflated(path, arrays):
    np.savez_compressed(path, **arrays)


CODES = {"float64": "F64", "float32": "F32", "int64": "I64", "bfloat16": "BF16", "bool": "BOOL"}


def write_safetensors(path, arrays):
    header, data = {"__metadata__": {"made": "here"}}, b""
    for name, x in arrays.items():
        x = np.asarray(x)
        offsets = [len(data), len(data) + x.nbytes]
        header[name] = {"dtype": CODES[x.dtype.name], "shape": x.shape, "data_offsets": offsets}
        data += x.tobytes()
    path.write_bytes(tensors(header, data))


def write_hdf5(path, arrays):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, x in arrays.items():
            file[name] = x


def write_zarr(path, arrays, zarr_format=3):
    zarr = pytest.importorskip("zarr")
    group = zarr.open(str(path), mode="w", zarr_format=zarr_format)
    for name, x in arrays.items():
        x = np.asarray(x)
        chunks = tuple(min(n, 16) for n in x.shape)
        group.create_array(name, shape=x.shape, dtype=x.dtype, chunks=chunks)[...] = x


def write_zarr_2(path, arrays):
    write_zarr(path, arrays, 2)


def write_torch(path, arrays):
    torch = pytest.importorskip("torch")
    torch.save({name: torch.tensor(x) for name, x in arrays.items()}, path)


WRITERS = {
    "s.npz": write_npz,
    "d.npz": write_deflated,
    "a.safetensors": write_safetensors,
    "a.h5": write_hdf5,
    "a.zarr": write_zarr,
    "b.zarr": write_zarr_2,
    "a.pt": write_torch,
    "a.PTH": write_torch,
}


def compared(actual, expected, **options):
    """Compare two files here, and return what was found by name."""
    found = compare_files(
        str(actual), str(expected), "", FileOptions(**options), lambda share: None
    )
    return {leaf.path: leaf for leaf in found.leaves}


def contents(path, follow_links=False):
    """Return the arrays of a file, and what is left out."""
    with opened(str(path), follow_links) as found:
        arrays = {name: entry.load() for name, entry in found.arrays.items()}
        arrays |= {f"{name}/nulls": entry.load() for name, entry in found.nulls.items()}
        return arrays, dict(found.left_out)


def refused(path, follow_links=False):
    """Return the reason for which a file is not read."""
    with pytest.raises(FileError) as caught:
        contents(path, follow_links)
    text = described(caught.value)
    assert text.startswith(printable(str(path)))
    assert "\n" not in text
    return text


# Formats


@pytest.mark.parametrize("name", WRITERS)
def test_arrays_by_name(tmp_path, name):
    changed = X.copy()
    changed[3, 4:9] += 1e-3
    for folder, w in ("a", X), ("b", changed):
        (tmp_path / folder).mkdir()
        WRITERS[name](tmp_path / folder / name, MEMBERS | {"w": w})
    arrays, _ = contents(tmp_path / "a" / name)
    assert {key: (x.shape, x.dtype) for key, x in arrays.items()} == {
        key: (np.shape(x), x.dtype) for key, x in MEMBERS.items()
    }
    found = compared(tmp_path / "a" / name, tmp_path / "b" / name)
    assert {key: leaf.mismatches for key, leaf in found.items()} == {"w": 5, "n": 0, "one": 0}
    assert found["w"].first_mismatches[0].index == (3, 4)


@pytest.mark.parametrize("name", WRITERS)
def test_one_format_beside_another(tmp_path, name):
    write_npz(tmp_path / "s.npz", MEMBERS)
    WRITERS[name](tmp_path / ("x" + name), MEMBERS)
    found = compared(tmp_path / "s.npz", tmp_path / ("x" + name))
    assert len(found) == 3
    assert all(found.values())


@pytest.mark.parametrize(
    "x",
    [
        X,
        np.asfortranarray(X),
        X[:0],
        np.float64(3),
        X.astype(">f4"),
        X > 0,
        X + 1j,
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        np.array(["2020-01-01"], "M8[D]"),
        np.arange(3, dtype="m8[s]"),
        np.longdouble(X),
        np.float16(X),
    ],
    ids=lambda x: f"{x.dtype}-{x.flags.f_contiguous}-{x.shape}",
)
def test_arrays_of_numpy(tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "s.npz", x=x)
    np.savez_compressed(tmp_path / "d.npz", x=x)
    for file in "x.npy", "s.npz", "d.npz":
        arrays, _ = contents(tmp_path / file)
        (loaded,) = arrays.values()
        assert loaded.dtype == x.dtype
        assert loaded.shape == x.shape
        assert np.array_equal(loaded, x)
        assert all(compared(tmp_path / file, tmp_path / file).values())


def test_headers_of_every_version(tmp_path):
    for version in (1, 0), (2, 0), (3, 0):
        with open(tmp_path / "x.npy", "wb") as file:
            np.lib.format.write_array(file, X, version)
        assert np.array_equal(contents(tmp_path / "x.npy")[0][""], X)


def test_fields_of_records(tmp_path):
    kind = np.dtype([("a", "<i4"), ("sub", [("b", "<f8"), ("c", "<f4", (2, 3))])], align=True)
    x = np.zeros(5, kind)
    y = x.copy()
    y["sub"]["c"][4, 1, 2] = 1
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    found = compared(tmp_path / "x.npy", tmp_path / "y.npy")
    assert {name: leaf.mismatches for name, leaf in found.items()} == {
        "a": 0,
        "sub/b": 0,
        "sub/c": 1,
    }
    assert found["sub/c"].first_mismatches[0].index == (4, 1, 2)


def test_dtypes_of_ml_dtypes(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(6).astype(ml_dtypes.bfloat16)
    write_safetensors(tmp_path / "x.safetensors", {"x": x})
    arrays, _ = contents(tmp_path / "x.safetensors")
    assert arrays["x"].dtype == x.dtype
    for code, name in ("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2"):
        told = {"x": {"dtype": code, "shape": [3], "data_offsets": [0, 3]}}
        (tmp_path / "y.safetensors").write_bytes(tensors(told, b"\0\1\2"))
        arrays, _ = contents(tmp_path / "y.safetensors")
        assert arrays["x"].dtype.name == name


@pytest.mark.filterwarnings("ignore:Sparse")
def test_trees_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    x = {
        "model": {
            "l.w": torch.ones(2, dtype=torch.bfloat16),
            "p": torch.nn.Parameter(torch.ones(1)),
        },
        "steps": [torch.zeros(2), {"lr": 0.1}],
        "name": "adam",
        "none": None,
        "big": 2**70,
        "coo": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "conj": torch.tensor([1j]).conj(),
    }
    torch.save(x, tmp_path / "x.pt")
    arrays, left_out = contents(tmp_path / "x.pt")
    assert not left_out
    assert {name: str(array.dtype) for name, array in arrays.items()} == {
        "model/l.w": "bfloat16",
        "model/p": "float32",
        "steps/0": "float32",
        "steps/1/lr": "float64",
        "name": "StringDType()",
        "none": "StringDType()",
        "big": "StringDType()",
        "coo/shape": "int64",
        "coo/indices": "int64",
        "coo/values": "float32",
        "csr/shape": "int64",
        "csr/crow_indices": "int64",
        "csr/col_indices": "int64",
        "csr/values": "float32",
        "conj": "complex64",
    }
    assert arrays["conj"] == -1j
    torch.save(x | {"name": "sgd", "coo": 2 * x["coo"]}, tmp_path / "y.pt")
    found = compared(tmp_path / "x.pt", tmp_path / "y.pt")
    assert [name for name, leaf in found.items() if not leaf] == ["name", "coo/values"]
    torch.save(x, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert all(compared(tmp_path / "x.pt", tmp_path / "old.pt").values())


def test_groups_of_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = X
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["g/h/x"] = X
        file["text"] = ["a", "b"]
        file["records"] = np.zeros(3, "i4,f8")
        kind = [("s", h5py.string_dtype()), ("v", h5py.vlen_dtype("f4")), ("n", "i4", (2,))]
        rows = [("é", np.float32([1, 2]), 3), (b"\xe9", np.float32([]), 4)]
        file["mixed"] = np.array(rows, kind)
        file["flag"] = np.array([True])
        file["up"] = file["/"]
        file["soft"] = h5py.SoftLink("/g/h/x")
        file["gone"] = h5py.SoftLink("/nowhere")
        file["null"] = h5py.Empty("f8")
        file["refs"] = np.array([file["g"].ref, None], h5py.ref_dtype)
        file["regions"] = np.array([file["text"].regionref[:1]], h5py.regionref_dtype)
        file["ragged"] = np.array([np.arange(2), np.arange(3)], object).astype(
            h5py.vlen_dtype(np.int64)
        )
        file["type"] = np.dtype("f8")
        file["link"] = h5py.ExternalLink("other.h5", "/x")
        file["through"] = h5py.SoftLink("/link")
        layout = h5py.VirtualLayout((40, 30), "f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (40, 30))
        file.create_virtual_dataset("virtual", layout)
        layout[:] = h5py.VirtualSource(".", "virtual", (40, 30))
        file.create_virtual_dataset("inner", layout)
        (tmp_path / "raw").write_bytes(X.tobytes())
        file.create_dataset("raw", X.shape, "f8", external=[(str(tmp_path / "raw"), 0, X.nbytes)])
    arrays, left_out = contents(tmp_path / "x.h5")
    inside = {
        *("g/h/x", "text", "records/f0", "records/f1", "flag", "soft", "gone", "through"),
        *("mixed/s", "mixed/v/lengths", "mixed/v/values", "mixed/n", "up", "null", "refs", "type"),
        *("ragged/lengths", "ragged/values"),
    }
    assert set(arrays) == inside
    assert arrays["mixed/s"].tolist() == ["é", "\\xe9"]
    assert arrays["mixed/v/lengths"].tolist() == [2, 0]
    assert arrays["mixed/v/values"].tolist() == [1, 2]
    assert arrays["mixed/n"].tolist() == [[3, 3], [4, 4]]
    assert arrays["up"] == "another name of the group /"
    assert arrays["null"] == "a null dataset of float64"
    assert arrays["refs"].tolist() == ["/g", ""]
    assert arrays["type"] == "the type float64"
    assert arrays["ragged/lengths"].tolist() == [2, 3]
    assert arrays["ragged/values"].tolist() == [0, 1, 0, 1, 2]
    assert arrays["soft"] == "/g/h/x"
    assert arrays["through"] == "/link"
    assert list(arrays["text"]) == ["a", "b"]
    assert set(left_out) == {"regions", "link", "virtual", "inner", "raw"}
    for name in "link", "virtual", "inner", "raw":
        assert "--follow-links" in left_out[name]
    arrays, left_out = contents(tmp_path / "x.h5", follow_links=True)
    read = {"soft", "through", "link", "virtual", "inner", "raw"}
    assert set(arrays) == (inside | read) - {"gone"}
    assert "broken link" in left_out["gone"]
    assert all(np.array_equal(arrays[name], X) for name in read)


def test_many_ways_to_one_group(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        group = file
        for _ in range(60):  # 2**60 paths
            group.create_group("a")
            group["b"] = group["a"]
            group = group["a"]
        group["x"] = X
    arrays, left_out = contents(tmp_path / "x.h5")
    assert len(arrays) == 61
    assert not left_out


def test_classic_netcdf(tmp_path, monkeypatch):
    scipy_io = pytest.importorskip("scipy.io")
    monkeypatch.setitem(sys.modules, "h5py", None)
    monkeypatch.setattr(opening, "find_spec", lambda name: name == "scipy" or None)
    for name, x in ("a.nc", X), ("b.nc", X + (X > 2)):
        with scipy_io.netcdf_file(tmp_path / name, "w") as file:
            file.createDimension("t", None)
            file.createDimension("i", 40)
            file.createDimension("j", 30)
            file.createVariable("x", "d", ("i", "j"))[:] = x
            file.createVariable("r", "f", ("t", "j"))[:] = np.float32(x[:5])
    found = compared(tmp_path / "a.nc", tmp_path / "b.nc")
    assert found["x"].mismatches == np.sum(X > 2)
    assert found["r"].mismatches == np.sum(X[:5] > 2)


@pytest.mark.filterwarnings("ignore")  # torch calls some of these experimental
def test_tensors_of_kinds_that_numpy_lacks(tmp_path):
    torch = pytest.importorskip("torch")
    ones = torch.tensor([1.0, 3.0])
    x = {
        "half": ones.to(torch.complex32),
        "nested": torch.nested.nested_tensor([ones, ones[:1]]),
        "jagged": torch.nested.nested_tensor([ones, ones[:1]], layout=torch.jagged),
        "quantized": torch.quantize_per_tensor(ones, 0.1, 0, torch.qint8),
        "meta": ones.to("meta"),
    }
    torch.save(x, tmp_path / "x.pt")
    arrays, left_out = contents(tmp_path / "x.pt")
    assert left_out == {"meta": "it is a tensor on meta, which has no elements here"}
    assert {name: a.tolist() for name, a in arrays.items()} == {
        "half": [1, 3],
        "half/dtype": "torch.complex32",
        "nested/0": [1, 3],
        "nested/1": [1],
        "jagged/0": [1, 3],
        "jagged/1": [1],
        "quantized": [1, 3],
        "quantized/dtype": "torch.qint8",
    }
    other = {
        "half": 2 * ones,
        "nested": torch.nested.nested_tensor([ones, 2 * ones[:1]]),
        "jagged": torch.nested.nested_tensor([ones, 2 * ones[:1]], layout=torch.jagged),
        "quantized": torch.quantize_per_tensor(ones + 1, 0.1, 0, torch.qint8),
        "meta": x["meta"],
    }
    torch.save(other, tmp_path / "y.pt")
    found = compared(tmp_path / "x.pt", tmp_path / "y.pt")
    differ = {"half", "half/dtype", "nested/1", "jagged/1", "quantized"}
    assert {name for name, leaf in found.items() if not leaf} == differ


def test_text_in_hdf5_that_is_not_utf8(tmp_path):
    h5py = pytest.importorskip("h5py")
    for name, last in (("a.h5", b"\xe9"), ("b.h5", b"\xe8")):
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("x", data=[b"caf\xe9", last], dtype=h5py.string_dtype())
    found = compared(tmp_path / "a.h5", tmp_path / "b.h5")
    assert [x.index for x in found["x"].first_mismatches] == [(1,)]
    assert compared(tmp_path / "a.h5", tmp_path / "a.h5")["x"]


def test_tables(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    columns = {
        "text": ["a", None, "c"],
        "x": [1.5, 2.0, 3.0],
        "n": pa.array([1, None, 2**60 + 1]),
        "when": pa.array([1, 2, None], pa.timestamp("s")),
        "kind": pa.array(["u", "v", "u"]).dictionary_encode(),
        "day": pa.array([1, None, 3], pa.date32()),
        "flag": [True, None, False],
    }
    more = {
        "list": [[1], None, [3, None]],
        "nested": [{"a": 1, "b": ["x"]}, None, {"a": 2, "b": []}],
        "map": pa.array([{"k": 1}, None, {}], pa.map_(pa.string(), pa.int64())),
        "pair": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
        "bytes": pa.array([b"a\0", None, b"\xe9"]),
        "id": pa.array([b"ab", b"cd", b"ef"], pa.binary(2)),
        "fixed": pa.array([1, 2, 3], pa.decimal128(5, 2)),
        "half": pa.array(np.float16([1, 2, 3])),
        "byte": pa.array([1, None, 3], pa.uint8()),
        "span": pa.array([1, None, 3], pa.duration("ms")),
        "large": pa.array(["a", None, "b"], pa.large_string()),
    }
    table = pa.table(columns)
    parquet.write_table(pa.table(columns | more), tmp_path / "a.parquet")
    csv.write_csv(table, tmp_path / "a.csv")
    arrays, left_out = contents(tmp_path / "a.parquet")
    assert not left_out
    parts = {name: x.tolist() for name, x in arrays.items() if name.startswith(("li", "ne", "ma"))}
    assert parts == {
        "list/lengths": [1, 0, 2],
        "list/lengths/nulls": [False, True, False],
        "list/values": [1, 3, 0],
        "list/values/nulls": [False, False, True],
        "nested/a": [1, 0, 2],
        "nested/a/nulls": [False, True, False],
        "nested/b/lengths": [1, 0, 0],
        "nested/b/lengths/nulls": [False, True, False],
        "nested/b/values": ["x"],
        "nested/nulls": [False, True, False],
        "map/lengths": [1, 0, 0],
        "map/lengths/nulls": [False, True, False],
        "map/values/key": ["k"],
        "map/values/value": [1],
    }
    assert arrays["bytes"].tolist() == ["b'a\\x00'", "b''", "b'\\xe9'"]
    assert arrays["id"].tolist() == ["b'ab'", "b'cd'", "b'ef'"]
    assert arrays["n"].tolist() == [1, 0, 2**60 + 1]
    assert arrays["n/nulls"].tolist() == [False, True, False]
    assert {"text/nulls", "when/nulls", "flag/nulls", "fixed"} < set(arrays)
    found = compared(
        tmp_path / "a.parquet",
        tmp_path / "a.csv",
        ignore=(*more, "text*"),
    )
    # A CSV file has no null text, and does not tell what is text that is empty.
    assert all(found.values()), [str(x) for x in found.values() if not x]
    other = columns | {"text": ["a", None, "b"], "x": [1.5, None, 3.0]}
    parquet.write_table(pa.table(other | more), tmp_path / "b.parquet")
    found = compared(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert [name for name, leaf in found.items() if not leaf] == ["text", "x/nulls"]


def test_csv_without_names_and_with_dtypes_that_are_guessed(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv").write_text("1,2.5\n3,4\n")
    (tmp_path / "b.csv").write_text("1.0,2.5\n3,4.25\n")
    (tmp_path / "c.csv").write_text("1.0,x\n3,y\n")
    found = compared(tmp_path / "a.csv", tmp_path / "b.csv")
    assert {name: leaf.mismatches for name, leaf in found.items()} == {"f0": 0, "f1": 1}
    found = compared(tmp_path / "a.csv", tmp_path / "c.csv")
    assert [leaf.problems for leaf in found.values()] == [
        ("only in actual",),
        ("only in actual",),
        ("only in expected",),
        ("only in expected",),
    ]
    (tmp_path / "d.csv").write_text("a,b\n1,2\n")
    (tmp_path / "e.csv").write_text("a,b\n1,x\n")
    found = compared(tmp_path / "d.csv", tmp_path / "e.csv")
    assert found["b"].problems == ("dtypes differ: int64 and StringDType()",)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("1 2.5\n3 4\n", {"f0": [1, 3], "f1": [2.5, 4]}),
        ("1\t2.5\n3\t4\n", {"f0": [1, 3], "f1": [2.5, 4]}),
        ("a b\n1 2\n", {"a": [1], "b": [2]}),
        ("a;b\n1;2\n", {"a": [1], "b": [2]}),
        ("1,5;2\n3,5;4\n", {"1,5": ["3,5"], "2": [4]}),
        ("a b\tc\r\n1\t2\r\n", {"a b": [1], "c": [2]}),
        ("t (s),b\n1,2\n", {"t (s)": [1], "b": [2]}),
        ('"a;b",c\n1,2\n', {"a;b": [1], "c": [2]}),
        ("t (s)\n1.5\n", {"t (s)": [1.5]}),
        ("said\nfar away\n", {"said": ["far away"]}),
        ("1\n2\n", {"f0": [1, 2]}),
    ],
)
def test_what_stands_between_columns(tmp_path, text, columns):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv").write_bytes(text.encode())
    arrays, _ = contents(tmp_path / "a.csv")
    assert {name: x.tolist() for name, x in arrays.items()} == columns


def test_what_savetxt_writes(tmp_path):
    pytest.importorskip("pyarrow")
    np.savetxt(tmp_path / "a.csv", X)
    np.savetxt(tmp_path / "b.csv", X + 1e-12, delimiter=",")
    found = compared(tmp_path / "a.csv", tmp_path / "b.csv")
    assert len(found) == 30
    assert all(found.values())


def test_nan_in_csv_is_a_number_that_is_there(tmp_path):
    pytest.importorskip("pyarrow")
    x = np.array([[1.0, np.nan], [3.0, 4.0]])
    np.savetxt(tmp_path / "a.csv", x, delimiter=",")
    np.savez(tmp_path / "a.npz", f0=x[:, 0], f1=x[:, 1])
    paths = tmp_path / "a.csv", tmp_path / "a.npz"
    assert {name: leaf.nan_both for name, leaf in compared(*paths).items()} == {"f0": 0, "f1": 1}
    assert not compared(*paths)["f1"]
    assert all(compared(*paths, equal_nan=True).values())
    (tmp_path / "b.csv").write_text("f0,f1\n1,\n3,4\n")
    found = compared(tmp_path / "a.csv", tmp_path / "b.csv", equal_nan=True)
    assert [name for name, leaf in found.items() if not leaf] == ["f1/nulls"]


def test_integers_of_csv_beyond_int64(tmp_path):
    pytest.importorskip("pyarrow")
    lines = "{},1e30,-1.5,\n1,1,1,\n,1e19,,\n"
    for name, last in (("a", 2**64 - 1), ("b", 2**64 - 2)):
        (tmp_path / f"{name}.csv").write_text("id,x,y,none\n" + lines.format(last))
    arrays, _ = contents(tmp_path / "a.csv")
    assert arrays["id"].tolist() == [2**64 - 1, 1, 0]
    assert arrays["x"].tolist() == [1e30, 1.0, 1e19]
    found = compared(tmp_path / "a.csv", tmp_path / "b.csv")
    assert {name: leaf.mismatches for name, leaf in found.items() if not leaf} == {"id": 1}
    assert found["id/nulls"]


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (10**29 + 1, 10**29 + 2, True),
        (-(10**29), -(10**29) - 1, True),
        (2**64, 2**64, False),
        (2**63 - 1, 2**64, True),
        (-(2**63) - 1, -(2**63), True),
        (5, 10**400, True),
        ("1" * 5000, "1" * 5000, False),
        ("1" * 5000, "1" * 4999 + "2", True),
    ],
)
def test_integers_of_csv_of_any_size_are_compared_exactly(tmp_path, one, other, differ):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv").write_text(f"id,x\n{one},1.5\n7,2\n,3\n")
    (tmp_path / "b.csv").write_text(f"id,x\n{other},1.5\n7,2\n,3\n")
    for options in {}, {"rtol": 0.0, "atol": 0.0}:
        found = compared(tmp_path / "a.csv", tmp_path / "b.csv", **options)
        assert [name for name, leaf in found.items() if not leaf] == ["id"] * differ


@pytest.mark.parametrize("other", ["NaN", "1.5", "1e3", "", "-inf"])
def test_integers_of_csv_are_exact_beside_other_numbers(tmp_path, other):
    pytest.importorskip("pyarrow")
    for name, last in ("a", 2**53), ("b", 2**53 + 1):
        (tmp_path / f"{name}.csv").write_text(f"id,x\n{last},1\n{other},2\n")
    options = {"equal_nan": True, "rtol": 0.0, "atol": 0.0}
    assert compared(tmp_path / "a.csv", tmp_path / "b.csv", **options)["id"].mismatches == 1
    assert all(compared(tmp_path / "a.csv", tmp_path / "a.csv", **options).values())


def test_tolerances_of_large_integers(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv").write_text(f"id\n{10**29}\n7\n")
    (tmp_path / "b.csv").write_text(f"id\n{10**29 + 1000}\n7\n")
    (tmp_path / "c.csv").write_text("id\n1e29\n7.5\n")
    paths = tmp_path / "a.csv", tmp_path / "b.csv"
    assert compared(*paths, rtol=0.0, atol=1000.0)["id"]
    assert not compared(*paths, rtol=0.0, atol=999.0)["id"]
    assert compared(paths[0], tmp_path / "c.csv", rtol=0.1, atol=0.0)["id"]
    assert not compared(paths[0], tmp_path / "c.csv", rtol=0.01, atol=0.0)["id"]


def test_tables_without_rows(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv").write_text("x,y\n")
    (tmp_path / "b.csv").write_text("x,z\n")
    (tmp_path / "c.csv").write_text("x,y\n1,a\n")
    found = compared(tmp_path / "a.csv", tmp_path / "a.csv")
    assert [(name, bool(leaf)) for name, leaf in found.items()] == [("x", True), ("y", True)]
    found = compared(tmp_path / "a.csv", tmp_path / "b.csv")
    assert {name for name, leaf in found.items() if not leaf} == {"y", "z"}
    found = compared(tmp_path / "a.csv", tmp_path / "c.csv")
    assert not any(found.values())


def test_nullable_integers_are_not_rounded(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for name, last in ("a", 2**53), ("b", 2**53 + 1):
        parquet.write_table(pa.table({"n": pa.array([last, None])}), tmp_path / f"{name}.parquet")
        (tmp_path / f"{name}.csv").write_text(f"n,x\n{last},1\n,1\n")
    for suffix in "parquet", "csv":
        paths = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
        assert compared(*paths, rtol=0.0, atol=0.0)["n"].mismatches == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([[1, 2], [3]], [[1, 2], [99]]),
        ([[1, 2], [3]], [[1], [2, 3]]),
        ([[1], None], [[1], []]),
        ([[[1.0]]], [[[2.0]]]),
        ([{"a": 1}], [{"a": 2}]),
        ([{"a": 1}], [{"b": 1}]),
        ([{"a": 1}, None], [{"a": 1}, {"a": None}]),
        ([b"a"], [b"b"]),
        ([b"a"], ["a"]),
        ([b"a\0"], [b"a"]),
        ([[b"a"]], [[b"b"]]),
        ([[{"a": "x"}]], [[{"a": "y"}]]),
    ],
)
def test_nested_columns_that_differ(tmp_path, one, other):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for name, x in ("a", one), ("b", other):
        parquet.write_table(pa.table({"x": x}), tmp_path / f"{name}.parquet")
    paths = tmp_path / "a.parquet", tmp_path / "b.parquet"
    assert all(compared(paths[0], paths[0]).values())
    assert not all(compared(*paths).values())
    assert not all(compared(*reversed(paths)).values())


def test_no_tolerance_applies_to_lengths_indices_and_nulls(tmp_path):
    pa = pytest.importorskip("pyarrow")
    h5py = pytest.importorskip("h5py")
    torch = pytest.importorskip("torch")
    from pyarrow import parquet

    wide = {"rtol": 0.0, "atol": 100.0}
    lists = [[1.0], [2.0, 3.0]], [[1.0, 2.0], [3.0]]
    for i, x in enumerate(lists):
        columns = {
            "l": x,
            "n": [[1, None], [None, 1]][i],
            "s": [[{"a": 1}, None], [None, {"a": 1}]][i],
        }
        parquet.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            values = file.create_dataset("l", 2, h5py.vlen_dtype("f8"))
            values[0], values[1] = x
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tensors = {"t": torch.eye(3)[[i, 1, 2]].to_sparse(), "u": torch.eye(3).to_sparse_csr()}
            torch.save(tensors, tmp_path / f"{i}.pt")
    differ = {
        suffix: {
            name
            for name, leaf in compared(
                tmp_path / f"0.{suffix}", tmp_path / f"1.{suffix}", **wide
            ).items()
            if not leaf
        }
        for suffix in ("parquet", "h5", "pt")
    }
    assert differ == {
        "parquet": {"l/lengths", "n/nulls", "s/a/nulls", "s/nulls"},
        "h5": {"l/lengths"},
        "pt": {"t/indices"},
    }


def test_times_with_and_without_a_time_zone_differ(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for name, zone in ("a", "UTC"), ("b", None), ("c", "Europe/Berlin"):
        column = pa.array([1, None], pa.timestamp("s", zone))
        parquet.write_table(pa.table({"t": column}), tmp_path / f"{name}.parquet")
    a, b, c = (tmp_path / f"{name}.parquet" for name in "abc")
    assert compared(a, b)["t"].problems == ("timezone differs: 'UTC' and none",)
    assert all(compared(a, c).values())  # the same instants


def test_text_of_csv_that_is_not_utf8(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv").write_bytes("name,b\ngröße,2\n".encode("latin-1"))
    (tmp_path / "b.csv").write_bytes("name,b\ngräße,2\n".encode("latin-1"))
    found = compared(tmp_path / "a.csv", tmp_path / "b.csv")
    assert [name for name, leaf in found.items() if not leaf] == ["name"]
    assert all(compared(tmp_path / "a.csv", tmp_path / "a.csv").values())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([[3.0], [1.0]], [[3.5], [1.0]]),
        ([[3.0], [1.0]], [[3.0, 1.0], []]),
    ],
)
def test_lists_of_hdf5_that_differ(tmp_path, one, other):
    h5py = pytest.importorskip("h5py")
    for name, lists in ("a", one), ("b", other):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            x = file.create_dataset("x", 2, h5py.vlen_dtype("f8"))
            for i, values in enumerate(lists):
                x[i] = values
    found = compared(tmp_path / "a.h5", tmp_path / "b.h5")
    assert not all(found.values())
    assert all(compared(tmp_path / "a.h5", tmp_path / "a.h5").values())


def test_null_datasets(tmp_path):
    h5py = pytest.importorskip("h5py")
    for name, x in ("a", h5py.Empty("f8")), ("b", h5py.Empty("f4")), ("c", 1.0):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["x"] = x
    assert compared(tmp_path / "a.h5", tmp_path / "a.h5")["x"]
    assert not compared(tmp_path / "a.h5", tmp_path / "b.h5")["x"]
    assert not compared(tmp_path / "a.h5", tmp_path / "c.h5")["x"]


def test_times_of_day(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "a.csv").write_text("at,x\n12:00:00,1\n12:00:01,2\n")
    (tmp_path / "b.csv").write_text("at,x\n12:00:00,1\n12:00:02,2\n")
    found = compared(tmp_path / "a.csv", tmp_path / "b.csv")
    assert {name: leaf.mismatches for name, leaf in found.items()} == {"at": 1, "x": 0}
    units = {"time32": ("s", "ms"), "time64": ("us", "ns")}
    columns = {
        unit: pa.array([1, None], getattr(pa, kind)(unit))
        for kind, both in units.items()
        for unit in both
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    arrays, left_out = contents(tmp_path / "a.parquet")
    assert not left_out
    assert {f"{unit}/nulls" for unit in columns} < set(arrays)


@pytest.mark.parametrize("text", ["", "a,b\n1\n", "a,b\n1,2,3\n", "a,a\n1,2\n", "# a b\n1 2\n"])
def test_csv_that_is_no_table(tmp_path, text):
    pytest.importorskip("pyarrow")
    (tmp_path / "x.csv").write_text(text)
    assert "table" in refused(tmp_path / "x.csv") or "two arrays" in refused(tmp_path / "x.csv")


def test_csv_of_another_encoding(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "x.csv").write_bytes("größe,b\n1,2\n".encode("latin-1"))
    assert refused(tmp_path / "x.csv").endswith("x.csv: its text is not UTF-8: save it as UTF-8")


def test_an_error_of_a_library_names_the_file(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("inner state")

    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr("calipers._files.npy.contents", broken)
    assert refused(tmp_path / "x.npy") == f"{tmp_path / 'x.npy'}: RuntimeError: inner state"
    pytest.importorskip("torch")
    (tmp_path / "x.pt").touch()
    assert refused(tmp_path / "x.pt").endswith("x.pt: torch cannot read it: EOFError")


def test_a_limit_is_told_as_the_command_line_takes_it(tmp_path):
    h5py = pytest.importorskip("h5py")
    for name in "a.h5", "b.h5":
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("x", data=np.ones(300_000), chunks=(300_000,))
    with pytest.raises(FileError, match="more than --memory-limit 1: pass --memory-limit 10, or"):
        compared(tmp_path / "a.h5", tmp_path / "b.h5", memory_limit=1 << 20)
    assert compared(tmp_path / "a.h5", tmp_path / "b.h5", memory_limit=10 << 20)["x"]


def test_a_package_that_is_missing(tmp_path, monkeypatch):
    (tmp_path / "x.h5").touch()
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    assert "reading it needs h5py: pip install h5py" in refused(tmp_path / "x.h5")
    (tmp_path / "x.nc").write_bytes(b"CDF")
    assert "reading it needs scipy: pip install scipy" in refused(tmp_path / "x.nc")


# What differs


def test_names_shapes_and_dtypes(tmp_path):
    one = np.ones(3)
    np.savez(tmp_path / "a.npz", a=one, same=one, shape=one, dtype=one, text=one, u=np.array(["a"]))
    np.savez(
        tmp_path / "b.npz",
        same=one,
        shape=np.ones(4),
        dtype=np.ones(3, "f4"),
        text=np.array(["a", "b", "c"]),
        u=np.array(["ab"]),
        z=one,
    )
    found = compared(tmp_path / "a.npz", tmp_path / "b.npz")
    assert {name: leaf.problems for name, leaf in found.items()} == {
        "a": ("only in actual",),
        "same": (),
        "shape": ("shapes differ: (3,) and (4,)",),
        "dtype": ("dtypes differ: float64 and float32",),
        "text": ("dtypes differ: float64 and <U1",),
        "u": (),
        "z": ("only in expected",),
    }
    assert found["dtype"].size == 3
    assert found["a"].actual_shape == (3,)


def test_other_shapes_are_not_read(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X.T)
    monkeypatch.setattr("calipers._files.contents.Plain.load", None)
    assert compared(tmp_path / "a.npy", tmp_path / "b.npy")[""].problems


def test_patterns_of_names():
    assert is_ignored("model/layer.bias", ["*bias"])
    assert is_ignored("run/model.pt/optimizer/state", ["run/*.pt/optimizer"])
    assert is_ignored("optimizer/state/0", ["optimizer"])
    assert is_ignored("model/optimizer", ["optimizer"])
    assert not is_ignored("model/optimizers", ["optimizer"])
    assert not is_ignored("model/Bias", ["*bias"])
    assert not is_ignored("a", [])


# Beyond memory


def in_parts(path, other, limit=1 << 14):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return compared(path, other, memory_limit=limit)


@pytest.mark.parametrize("name", [*list(WRITERS)[:-2], "x.npy", "f.npy", "r.npy"])
def test_parts_say_what_the_whole_says(tmp_path, name, monkeypatch):
    x = np.random.default_rng(1).normal(size=(500, 60))
    y = x.copy()
    y[[3, 250, 499], 7] += 1.0
    y[400, 5] = np.nan
    for folder, z in ("a", x), ("b", y):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / name
        if name == "x.npy":
            np.save(path, z)
        elif name == "f.npy":
            np.save(path, np.asfortranarray(z))
        elif name == "r.npy":
            records = np.zeros(z.shape, "i4,f8")
            records["f1"] = z
            np.save(path, records)
        else:
            WRITERS[name](path, {"w": z})
    whole = compared(tmp_path / "a" / name, tmp_path / "b" / name)
    for entry in "Plain", "Dataset":
        monkeypatch.setattr(f"calipers._files.contents.{entry}.load", None)
    monkeypatch.setattr("calipers._files.npz.Deflated.load", None)
    parts = in_parts(tmp_path / "a" / name, tmp_path / "b" / name)
    assert whole.keys() == parts.keys()
    for key, leaf in parts.items():
        assert leaf.mismatches == whole[key].mismatches
        assert leaf.first_mismatches == whole[key].first_mismatches or leaf.nan_expected
        assert leaf.actual_shape == (500, 60)
    assert sum(leaf.mismatches for leaf in parts.values()) == 4


def test_a_map_beside_a_stream(tmp_path):
    x = np.random.default_rng(1).normal(size=(500, 60))
    np.savez(tmp_path / "s.npz", x=x)
    np.savez_compressed(tmp_path / "d.npz", x=x)
    np.savez_compressed(tmp_path / "e.npz", x=x + (x > 3))
    assert all(in_parts(tmp_path / "s.npz", tmp_path / "d.npz").values())
    found = in_parts(tmp_path / "e.npz", tmp_path / "s.npz")
    assert found["x"].mismatches == np.sum(x > 3)


@pytest.mark.parametrize(
    ("x", "how"), [(np.ones((60, 50)).T, "in Fortran order"), (np.ones((2, 1500)), "in rows of")]
)
def test_compressed_arrays_that_no_chunks_make_up(tmp_path, x, how):
    np.savez_compressed(tmp_path / "d.npz", x=x)
    assert all(compared(tmp_path / "d.npz", tmp_path / "d.npz").values())
    with pytest.raises(FileError, match=rf"x: 'x\.npy' is compressed, {how}.*numpy\.savez"):
        in_parts(tmp_path / "d.npz", tmp_path / "d.npz")


def test_zip_bombs_are_harmless(tmp_path):
    rows = 1 << 6
    for name in "ab":
        with (
            zipfile.ZipFile(tmp_path / f"{name}.npz", "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("x.npy", "w") as file,
        ):
            header = {"descr": "|u1", "fortran_order": False, "shape": (rows, 1 << 20)}
            np.lib.format.write_array_header_1_0(file, header)
            for _ in range(rows):
                file.write(bytes(1 << 20))
    assert (tmp_path / "a.npz").stat().st_size < 1 << 19
    in_parts(tmp_path / "a.npz", tmp_path / "b.npz", 8 << 20)
    tracemalloc.start()
    try:
        found = in_parts(tmp_path / "a.npz", tmp_path / "b.npz", 8 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found["x"].size == rows << 20
    assert peak < 16 << 20


BIG = """
    import json, os, struct, sys, tempfile
    import numpy as np
    from calipers._files.compare import FileOptions, compare_files

    def compare(a, b):
        found = compare_files(a, b, "", FileOptions(memory_limit=limit), lambda share: None)
        assert found.leaves[0], found.leaves[0]
        return found.leaves[0].size

    limit, rows = 24 << 20, 1 << 11
    with tempfile.TemporaryDirectory() as folder:
        for n in 4, rows:  # of 64 KiB: files with holes, of 128 MiB
            paths = []
            for name in "ab":
                paths.append(os.path.join(folder, f"{name}.npy"))
                np.lib.format.open_memmap(paths[-1], "w+", "<f8", (n, 1 << 13))
                told = {"dtype": "F64", "shape": [n, 1 << 13], "data_offsets": [0, n << 16]}
                header = json.dumps({"x": told}).encode()
                paths.append(os.path.join(folder, f"{name}.safetensors"))
                with open(paths[-1], "wb") as file:
                    file.write(struct.pack("<Q", len(header)) + header)
                    file.truncate(8 + len(header) + (n << 16))
            before = peak()
            assert compare(paths[0], paths[2]) == compare(paths[1], paths[3]) == n << 13
        print((peak() - before) / limit)
"""


@pytest.mark.filterwarnings("ignore:The (codec|dtype):UserWarning")  # of text by zarr, before 3.1
@pytest.mark.parametrize(
    "name", ["chunks.h5", "whole.h5", "text.h5", "x.zarr", "text.zarr", "x.pt"]
)
def test_enormous_arrays_of_nothing(tmp_path, name):
    path, shape = tmp_path / name, (10**12,)
    chunks = None if name == "whole.h5" else (10**6,)
    if name == "x.pt":
        torch = pytest.importorskip("torch")
        torch.save(torch.ones(1).expand(shape), path)
    elif name.endswith("h5"):
        h5py = pytest.importorskip("h5py")
        dtype = h5py.string_dtype() if name == "text.h5" else "f8"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", shape, dtype, chunks=chunks)
    else:
        zarr = pytest.importorskip("zarr")
        dtype = str if name == "text.zarr" else "f8"
        zarr.create_array(str(path), shape=shape, dtype=dtype, chunks=chunks)
    for limit in 1 << 28, 1 << 60:
        with pytest.raises(FileError, match=r"it claims .* of which .* MiB are stored"):
            compared(path, path, memory_limit=limit)


def test_what_is_stored_explains_what_is_claimed(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    asked = []
    require_stored(64 << 30, lambda: asked.append(1) or 0)  # of ordinary size, nothing is asked
    assert not asked
    require_stored(1032 << 30, lambda: 1 << 30)
    with pytest.raises(FileError, match=r"claims 1033 GiB, of which 1024 MiB are stored"):
        require_stored(1033 << 30, lambda: 1 << 30)
    monkeypatch.setattr("calipers._files.contents._FILLED", 1000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = X
        file.create_dataset("zeros", (1000, 1000), "u1", compression="gzip")[:] = 0
        layout = h5py.VirtualLayout((10, 2000), "f8")
        layout[:, :30] = h5py.VirtualSource(file["x"])[:10]
        file.create_virtual_dataset("virtual", layout)
    assert all(compared(tmp_path / "a.h5", tmp_path / "a.h5", follow_links=True).values())


def test_archives_of_many_arrays_are_opened_once(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", **{f"x{i}": np.ones(2) for i in range(50)})
    opened = []
    own = zipfile.ZipFile.__init__
    monkeypatch.setattr(
        zipfile.ZipFile, "__init__", lambda self, *args: opened.append(own(self, *args))
    )
    assert len(compared(tmp_path / "x.npz", tmp_path / "x.npz")) == 50
    assert len(opened) == 2


def test_files_beyond_memory():
    done = subprocess.run(
        [sys.executable, "-c", PEAK + textwrap.dedent(BIG)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= 1.0


# Files that run code


class Marker:
    """What leaves a file behind if it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_pickles_are_refused_and_not_run(tmp_path):
    mark = tmp_path / "mark"
    objects = np.array([Marker(mark), 1], object)
    np.save(tmp_path / "x.npy", objects)
    np.savez(tmp_path / "x.npz", fine=X, x=objects)
    assert "pickled objects" in refused(tmp_path / "x.npy")
    assert "'x': it holds pickled objects" in refused(tmp_path / "x.npz")
    records = np.array([(1.0, Marker(mark))], [("a", "f8"), ("b", "O")])
    np.save(tmp_path / "r.npy", records)
    assert "pickled objects" in refused(tmp_path / "r.npy")
    assert not mark.exists()
    # The marker works.
    pickle.loads(pickle.dumps(Marker(mark))).close()
    assert mark.exists()


def test_weights_that_are_no_weights(tmp_path):
    torch = pytest.importorskip("torch")
    mark = tmp_path / "mark"
    torch.save({"x": Marker(mark)}, tmp_path / "x.pt")
    torch.save({"x": Marker(mark)}, tmp_path / "y.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "z.pth").write_bytes(pickle.dumps(Marker(mark)))
    for name in "x.pt", "y.pt":
        assert re.search(r"needs (_?io\.)?open of pickle, which may run", refused(tmp_path / name))
    refused(tmp_path / "z.pth")
    assert not mark.exists()


def test_a_torch_that_is_not_safe(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    torch.save({}, tmp_path / "x.pt")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    assert "install 2.6 or later" in refused(tmp_path / "x.pt")


def write_zarray(path, **changes):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(
        str(path), shape=(2,), chunks=(2,), dtype="f8", zarr_format=2, compressors=None
    )
    about = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps(about | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"compressor": {"id": "pickle"}},
        {"filters": [{"id": "pickle"}]},
        {"filters": [{"id": "pickle"}], "dtype": "|O", "fill_value": None},
        {"filters": [{"id": "vlen-utf8"}, {"id": "pickle"}], "dtype": "|O", "fill_value": None},
    ],
)
def test_codecs_that_unpickle(tmp_path, changes):
    path, mark = tmp_path / "x.zarr", tmp_path / "mark"
    write_zarray(path, **changes)
    (path / "0").write_bytes(pickle.dumps(Marker(mark)))
    assert "pickle" in refused(path)
    assert not mark.exists()


class Codec:
    """As numcodecs'; zarr 3.0 hands these out, and later ones what they say."""

    def get_config(self):
        return {"id": "d"}


def test_codecs_that_are_not_known(tmp_path):
    write_zarray(tmp_path / "x.zarr", filters=[{"id": "base64"}])
    assert "encoded by 'base64', which is not known to be safe" in refused(tmp_path / "x.zarr")
    inner = {"codecs": [{"name": "numcodecs.a"}], "index_codecs": [{"name": "b"}], "level": 3}
    told = [{"name": "sharding_indexed", "configuration": inner}], None, {"id": "c"}, Codec(), "e"
    assert list(zarr_reader._codecs(told)) == ["sharding_indexed", "a", "b", "c", "d", "e"]


def test_codecs_in_shards(tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(str(tmp_path / "y.zarr"), shape=(4,), chunks=(2,), shards=(4,), dtype="f8")
    assert len(contents(tmp_path / "y.zarr")[0]) == 1
    path = tmp_path / "y.zarr" / "zarr.json"
    about = json.loads(path.read_text())
    inner = about["codecs"][0]["configuration"]["codecs"]
    inner.append({"name": "numcodecs.base64", "configuration": {}})
    path.write_text(json.dumps(about))
    assert "base64" in refused(tmp_path / "y.zarr")


# Files that are broken


@pytest.mark.parametrize(
    "data",
    [
        saved(X[:4, :3]),
        saved(save=np.savez, x=X[:2], y=np.arange(3)),
        saved(save=np.savez_compressed, x=X[:2], y=np.arange(3)),
        tensors({"x": {"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}}, bytes(9)),
    ],
    ids=["npy", "npz", "deflated", "safetensors"],
)
def test_files_cut_at_any_length(tmp_path, data):
    suffix = {b"\x93": ".npy", b"P": ".npz"}.get(data[:1], ".safetensors")
    path = tmp_path / f"x{suffix}"
    for length in range(0, len(data), 3 if suffix == ".npz" else 1):
        path.write_bytes(data[:length])
        refused(path)
    path.write_bytes(data)
    contents(path)
    path.write_bytes(data + b"\0")
    if suffix == ".npz":
        contents(path)  # a zip archive may end with a comment that is cut
    else:
        refused(path)


@pytest.mark.parametrize("name", ["a.h5", "a.pt", "a.parquet", "a.nc"])
def test_foreign_files_that_are_cut(tmp_path, name):
    path = tmp_path / name
    if name.endswith(".parquet"):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pa.table({"x": X[:, 0]}), path)
    elif name.endswith(".nc"):
        io_of_scipy = pytest.importorskip("scipy.io")
        with io_of_scipy.netcdf_file(path, "w") as file:
            file.createDimension("i", 40)
            file.createVariable("x", "d", ("i",))[:] = X[:, 0]
    else:
        WRITERS[name](path, {"x": X})
    data = path.read_bytes()
    for length in np.linspace(0, len(data) - 1, 25).astype(int):
        path.write_bytes(data[:length])
        with pytest.raises((FileError, OSError)):
            compared(path, path)


def test_a_zarr_without_metadata(tmp_path):
    pytest.importorskip("zarr")
    (tmp_path / "x.zarr").mkdir()
    assert "none of .zgroup, .zarray, zarr.json" in refused(tmp_path / "x.zarr")
    for text in "", "[]", '{"zarr_format": 3, "node_type": "array"}':
        (tmp_path / "x.zarr" / "zarr.json").write_text(text)
        assert "zarr cannot read it" in refused(tmp_path / "x.zarr")


def npy_bytes(header, data=b"", version=1, length=None):
    text = header if isinstance(header, bytes) else repr(header).encode()
    form = "<H" if version == 1 else "<I"
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + struct.pack(form, len(text) if length is None else length)
        + text
        + data
    )


def head(descr="<f8", shape=(3,), fortran=False):
    return {"descr": descr, "fortran_order": fortran, "shape": shape}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends within its header"),
        (b"not numpy at all", r"does not begin with \x93NUMPY"),
        (npy_bytes(head(), version=4), "version is 4"),
        (npy_bytes(head(), version=2, length=2**32 - 1), "has 4294967295 bytes; at most 10000"),
        (npy_bytes(head(), length=10_000), "ends within its header"),
        (npy_bytes(head(shape=(2**60,))), "is impossible"),
        (npy_bytes(head(shape=(2**40,))), "header says 8796093022"),
        (npy_bytes(head(shape=(0, 2**62))), "is impossible"),
        (npy_bytes(head(shape=(10**400,))), "is impossible"),
        (npy_bytes(head(shape=(-3,))), "is not valid"),
        (npy_bytes(head(shape=(1,) * 65), bytes(8)), "is not valid"),
        (npy_bytes(head(shape=(True,)), bytes(8)), "not a tuple of integers"),
        (npy_bytes(head(shape=[3]), bytes(24)), "not a tuple of integers"),
        (npy_bytes(head(fortran=1), bytes(24)), "neither True nor False"),
        (npy_bytes(head("|S0", (2**62,))), "is impossible"),
        (npy_bytes(head([], (2**62,))), "is impossible"),
        (npy_bytes(head([("a", "<f8"), ("a", "<f8")]), bytes(48)), "not understood"),
        (npy_bytes(head([("a", "<f8", (2**40,))]), bytes(48)), "not understood"),
        (npy_bytes(head("<f8,<f8"), bytes(48)), "not understood"),
        (npy_bytes(head(("<f8", (2,))), bytes(48)), "not understood"),
        (npy_bytes(head("__import__('os')"), bytes(24)), "not understood"),
        (npy_bytes(b"{'descr': open('mark', 'w')}"), "not a dict"),
        (npy_bytes(b"(" * 9_000), "not a dict"),
        (npy_bytes(b"-" * 9_000 + b"1"), "not a dict"),
        (npy_bytes(b"9" * 9_000), "not a dict"),
        (npy_bytes(b"\0" * 100), "not a dict"),
        (npy_bytes(head() | {"more": 1}, bytes(24)), "not a dict"),
        (npy_bytes(head(), bytes(25)), "goes on after the array"),
        (npy_bytes(head(), bytes(23)), "was cut"),
    ],
)
def test_headers_of_npy_that_lie(tmp_path, data, reason):
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    assert reason in refused(path)


def told(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)} | more


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "claims 0 bytes"),
        (struct.pack("<Q", 1 << 40) + b"{}", "claims 1099511627776 bytes"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "claims 18446744073709551615 bytes"),
        (struct.pack("<Q", 5000) + b"{}", "claims 5000 bytes, and the file has 10"),
        (tensors(b'{"a": 1, "a": 2}', b""), "a key is repeated"),
        (tensors(b'{"a":' * 100_000, b""), "not JSON"),
        (tensors(b"[" * 100_000, b""), "not JSON"),
        (tensors(b'{"a": ' + b"9" * 10_000 + b"}", b""), "not JSON"),
        (tensors(b"[]", b""), "not a JSON object"),
        (tensors(b"\xff\xfe", b""), "not JSON"),
        (tensors({"a": 3}, b""), "no dtype, shape and data_offsets"),
        (tensors({"a": told(more=1)}, bytes(8)), "no dtype, shape and data_offsets"),
        (tensors({"a": told(shape=[-2])}, bytes(8)), "has shape [-2]"),
        (tensors({"a": told(shape=[True, 2])}, bytes(8)), "has shape [True, 2]"),
        (tensors({"a": told(shape=[2.0])}, bytes(8)), "has shape [2.0]"),
        (tensors({"a": told(shape=[2**61])}, bytes(8)), "is impossible"),
        (tensors({"a": told(shape=[10**300])}, bytes(8)), "is impossible"),
        (tensors({"a": told(shape=[3])}, bytes(8)), "3 elements of 4 bytes, and 8 bytes"),
        (tensors({"a": told(shape=[1])}, bytes(8)), "1 elements of 4 bytes, and 8 bytes"),
        (tensors({"a": told(offsets=[8, 0])}, bytes(8)), "and -8 bytes"),
        (tensors({"a": told(offsets=[0])}, bytes(8)), "data_offsets [0]"),
        (tensors({"a": told(offsets=[8, 16])}, bytes(16)), "begins at byte 8, not at 0"),
        (tensors({"a": told(), "b": told(offsets=[4, 12])}, bytes(12)), "begins at byte 4, not at"),
        (tensors({"a": told(), "b": told()}, bytes(8)), "begins at byte 0, not at 8"),
        (tensors({"a": told()}, bytes(9)), "tensors end at byte"),
        (tensors({"a": told(offsets=[2**62, 2**62 + 8])}, bytes(8)), "begins at byte"),
        (tensors({"a": told("F4")}, bytes(8)), "dtype 'F4', which is not known"),
        (tensors({"a": told(["F32"])}, bytes(8)), "which is not known"),
    ],
)
def test_headers_of_safetensors_that_lie(tmp_path, data, reason):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    assert reason in refused(path)


def forged_archive(path, changes, method=zipfile.ZIP_DEFLATED):
    """Write an archive of one array, and change numbers of its central directory."""
    with zipfile.ZipFile(path, "w", method) as archive:
        member = zipfile.ZipInfo("x.npy")
        member.extra = bytes(12)  # room for what is changed
        archive.writestr(member, saved(X), method)
    data = bytearray(path.read_bytes())
    central = data.find(b"PK\1\2")
    for offset, value in changes.items():
        data[central + offset : central + offset + len(value)] = value
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({8: b"\1"}, "is encrypted"),
        ({10: struct.pack("<H", 12)}, "method 12"),
        ({10: struct.pack("<H", 0)}, "more than its"),
        ({24: struct.pack("<I", 2**32 - 2)}, "more than its"),
        # In the extra field: an offset of 64 bits.
        ({42: b"\xff" * 4, 51: struct.pack("<HHQ", 1, 8, 2**64 - 1)}, "not a readable zip archive"),
        ({24: struct.pack("<I", 9_000)}, "was cut"),
        ({42: struct.pack("<I", 2**31)}, "not a readable zip archive"),
    ],
)
def test_archives_that_lie(tmp_path, changes, reason):
    forged_archive(tmp_path / "x.npz", changes)
    assert reason in refused(tmp_path / "x.npz")


@pytest.mark.parametrize("write", [write_npz, write_deflated])
def test_a_local_header_that_lies(tmp_path, write):
    path = tmp_path / "x.npz"
    write(path, {"x": X})
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\3\4") + 28  # the length of the extra field
    data[at : at + 2] = struct.pack("<H", 60_000)
    path.write_bytes(data)
    text = refused(path)
    # Some versions of zipfile see that members would overlap.
    assert "Overlapped entries" in text or text.endswith(
        "archive: it ends within a member, or a header says so"
    )


def rezipped(path, changes, method=zipfile.ZIP_STORED):
    """Write a file of torch again, with other records."""
    with zipfile.ZipFile(path) as archive:
        records = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in records.items():
            change = changes.get(name.partition("/")[2], lambda data: data)
            archive.writestr(name, change(data))


def test_records_of_torch_that_are_cut(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pt"
    x = {
        "a": torch.arange(100.0),
        "b": torch.arange(1000),
        "c": torch.ones(9, dtype=torch.bfloat16),
    }
    torch.save(x | {"c2": x["c"][2:], "n": OrderedDict(k=[1, {2}, torch.Size([3])])}, path)
    rezipped(path, {})
    assert all(compared(path, path).values())
    rezipped(path, {"data/0": lambda data: data[:80]})
    assert "its record data/0 has 80 bytes, and its tensor 400: it was cut" in refused(path)
    torch.save(x, path)
    rezipped(path, {"data/2": lambda data: data[:17]})
    assert "its record data/2 has 17 bytes, and its tensor 18: it was cut" in refused(path)
    torch.save(x, path)
    rezipped(path, {}, zipfile.ZIP_DEFLATED)
    assert "torch cannot read it" in refused(path) or "compressed" in refused(path)


@pytest.mark.parametrize("limit", [1 << 28, 1 << 12])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_checksum_that_is_wrong(tmp_path, limit, method):
    forged_archive(tmp_path / "x.npz", {16: bytes(4)}, method)
    if method == zipfile.ZIP_STORED:  # mapped, as a file would be
        assert all(compared(tmp_path / "x.npz", tmp_path / "x.npz", memory_limit=limit).values())
        return
    with pytest.raises(FileError, match=r"x: it is not a readable zip archive: Bad CRC-32"):
        compared(tmp_path / "x.npz", tmp_path / "x.npz", memory_limit=limit)


def test_members_of_archives(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the same name
        archive.writestr("x.npy", saved(X))
        archive.writestr("x.npy", saved(X))
    assert "two arrays of the name 'x'" in refused(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "text")
        archive.writestr("dir/x.npy", saved(X))
    arrays, left_out = contents(path)
    assert list(arrays) == ["dir/x"]
    assert left_out == {"readme.txt": "it is not a .npy file"}


@pytest.mark.parametrize("name", ["x.npy", "s.npz", "d.npz", "x.safetensors"])
@pytest.mark.parametrize("limit", [1 << 28, 1 << 14])
def test_files_that_shrink_while_they_are_read(tmp_path, name, limit):
    x = np.random.default_rng(0).normal(size=(500, 60))
    path, other = tmp_path / name, tmp_path / "other.npz"
    if name == "x.npy":
        np.savez(other, x=x)
        with zipfile.ZipFile(other) as archive:
            archive.extract("x.npy", tmp_path)
        write_safetensors(tmp_path / "o.safetensors", {"x": x})
    else:
        {"s": write_npz, "d": write_deflated, "x": write_safetensors}[name[0]](path, {"x": x})
    size = path.stat().st_size
    with opened(str(path), False) as found:
        (entry,) = found.arrays.values()
        os.truncate(path, size // 2)
        with pytest.raises((FileError, OSError, ValueError), match=r"cut|zip|mmap length"):
            entry.load() if limit > 1 << 20 else list(entry.spread(limit))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs the limits of POSIX")
def test_mutants_of_files_do_no_harm():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.data.file_mutants", "100000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = [int(line.split()[2]) for line in done.stdout.splitlines()]
    assert len(read) == 3
    assert min(read) > 100  # some are files all the same


# Folders


def make_folder(path):
    (path / "sub").mkdir(parents=True)
    np.save(path / "x.npy", X)
    np.savez(path / "sub" / "m.npz", w=X, b=X[0])
    return path


def outcome_of(actual, expected, **options):
    chosen = FileOptions(**options)
    pairs, outcome = pairs_of(str(actual), str(expected), chosen)
    compare_pairs(pairs, outcome, chosen, lambda _: None)
    return outcome


def test_folders_match_files_by_relative_path(tmp_path):
    a, b = make_folder(tmp_path / "a"), make_folder(tmp_path / "b")
    np.save(a / "only.npy", X)
    (b / "other").mkdir()
    np.save(b / "other" / "y.npy", X)
    np.savez(b / "sub" / "m.npz", w=X, b=X[1])
    (a / "readme.txt").touch()
    for folder, same in (a, "1"), (b, "2"):
        (folder / "same.txt").write_text("1")
        (folder / "other.txt").write_text(same)
    (a / "sub" / "bad.npy").touch()
    (b / "sub" / "bad.npy").touch()
    outcome = outcome_of(a, b)
    assert {leaf.path: bool(leaf) for leaf in outcome.results.leaves} == {
        "only.npy": False,
        "other/y.npy": False,
        "readme.txt": False,
        "sub/m.npz/w": True,
        "sub/m.npz/b": False,
        "x.npy": True,
    }
    reason = "its bytes differ, and its format is not known"
    assert outcome.results.left_out == {"other.txt": reason}
    assert outcome.troubles == [f"{a}/sub/bad.npy: it ends within its header: it was cut"]
    outcome = outcome_of(a, b, ignore=("sub/bad.npy", "o*", "*/b", "r*"))
    assert all(outcome.results.leaves)
    assert not outcome.troubles
    assert not outcome.results.left_out
    ignored = ["only.npy", "other.txt", "other/y.npy", "readme.txt", "sub/bad.npy", "sub/m.npz/b"]
    assert outcome.results.ignored == ignored
    outcome = outcome_of(a, b, fail_fast=True)
    assert [leaf.path for leaf in outcome.results.leaves] == ["only.npy"]
    assert outcome.results.stopped


def test_what_one_side_leaves_out_is_a_difference(tmp_path):
    h5py = pytest.importorskip("h5py")
    for name in "ab":
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["x"] = X
            file["both"] = file["one"] = h5py.ExternalLink("other.h5", "/x")
            if name == "b":
                del file["one"]
                file["one"] = X
                file["more"] = h5py.ExternalLink("other.h5", "/x")
    paths = str(tmp_path / "a.h5"), str(tmp_path / "b.h5")
    found = compare_files(*paths, "", FileOptions(), lambda share: None)
    reason = "it links to another file; --follow-links reads it"
    assert found.left_out == {"both": reason}
    assert {leaf.path: leaf.problems for leaf in found.leaves} == {
        "x": (),
        "one": (f"not compared: in actual, {reason}",),
        "more": (f"not compared: in expected, {reason}",),
    }
    assert found.differs
    found = compare_files(*paths, "", FileOptions(ignore=("b*", "m*")), lambda share: None)
    assert found.ignored == ["both", "more"]
    assert not found.left_out
    a, b = make_folder(tmp_path / "a"), make_folder(tmp_path / "b")
    os.mkfifo(a / "pipe")
    (outcome,) = outcome_of(a, b).results.leaves[:1]
    assert outcome.problems == ("not compared: in actual, it is a pipe",)


@pytest.mark.parametrize("side", "ab")
@pytest.mark.parametrize("place", ["", "sub"])
def test_folders_that_may_not_be_read(tmp_path, monkeypatch, side, place):
    for name in "ab":
        make_folder(tmp_path / name)
        np.save(tmp_path / name / "subject.npy", X)
    denied, listdir = os.path.join(str(tmp_path / side), place).rstrip("/"), os.listdir

    def listed(folder):
        if folder == denied:
            raise PermissionError(13, "Permission denied", folder)
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", listed)
    outcome = outcome_of(tmp_path / "a", tmp_path / "b")
    assert outcome.troubles == [f"{denied}: Permission denied"]
    compared_all_the_same = ["subject.npy", "x.npy"] if place else []
    assert [leaf.path for leaf in outcome.results.leaves] == compared_all_the_same
    outcome = outcome_of(tmp_path / "a", tmp_path / "b", ignore=("sub",))
    assert bool(outcome.troubles) == (place == "")
    assert outcome.results.ignored == ([place] if place else [])


def test_other_files_that_cannot_be_read(tmp_path, monkeypatch):
    def denied(actual, *args, **kwargs):
        raise PermissionError(13, "Permission denied", actual)

    for name in "ab":
        make_folder(tmp_path / name)
        (tmp_path / name / "log.txt").write_text("1")
    assert not outcome_of(tmp_path / "a", tmp_path / "b").results.left_out
    monkeypatch.setattr("filecmp.cmp", denied)
    outcome = outcome_of(tmp_path / "a", tmp_path / "b")
    assert outcome.troubles == [f"{tmp_path}/a/log.txt: Permission denied"]
    assert len(outcome.results.leaves) == 3


def test_links_to_folders_that_lead_elsewhere(tmp_path):
    for name, target in ("a", "sub"), ("b", "."), ("c", "sub"):
        make_folder(tmp_path / name)
        (tmp_path / name / "link").symlink_to(target)
    assert all(outcome_of(tmp_path / "a", tmp_path / "c").results.leaves)
    (leaf,) = [x for x in outcome_of(tmp_path / "a", tmp_path / "b").results.leaves if not x]
    assert (leaf.path, leaf.problems) == ("link", ("links differ: to sub and .",))


def test_a_folder_beside_a_file(tmp_path):
    make_folder(tmp_path / "a")
    with pytest.raises(FileError, match=r"is a folder and .* is a file"):
        pairs_of(str(tmp_path / "a"), str(tmp_path / "a" / "x.npy"), FileOptions())


def test_links_and_special_files(tmp_path):
    folder = make_folder(tmp_path / "a")
    np.save(tmp_path / "secret.npy", X)
    make_folder(tmp_path / "elsewhere")
    (folder / "in.npy").symlink_to("x.npy")
    (folder / "out.npy").symlink_to(tmp_path / "secret.npy")
    (folder / "outside").symlink_to(tmp_path / "elsewhere")
    (folder / "up").symlink_to("..")
    (folder / "sub" / "round").symlink_to("..")
    (folder / "gone.npy").symlink_to("nowhere.npy")
    os.mkfifo(folder / "pipe.npy")
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind(str(folder / "s.npy"))
    found = listing(str(folder), follow_links=False)
    inside = {"in.npy", "x.npy", "sub/m.npz"}
    assert set(found.files) == inside
    reasons = {name: why.removeprefix("it ") for name, why in found.left_out.items()}
    assert found.links == {"sub/round": "."}
    assert reasons == {
        "out.npy": "links out of the folder; --follow-links reads it",
        "outside": "links out of the folder; --follow-links reads it",
        "up": "links out of the folder; --follow-links reads it",
        "gone.npy": "is a broken link",
        "pipe.npy": "is a pipe",
        "s.npy": "is a socket",
    }
    (folder / "up").unlink()
    (tmp_path / "elsewhere" / "round").symlink_to(tmp_path / "elsewhere")
    found = listing(str(folder), follow_links=True)
    assert set(found.files) == inside | {"out.npy", "outside/x.npy", "outside/sub/m.npz"}
    assert found.left_out["outside/round"] == "it links to a folder above it"


def test_links_to_another_drive(tmp_path, monkeypatch):
    def apart(paths):
        raise ValueError("Paths don't have the same drive")

    monkeypatch.setattr("os.path.commonpath", apart)
    assert leads_out(str(tmp_path / "x"), str(tmp_path))


def test_links_out_of_a_zarr(tmp_path):
    pytest.importorskip("zarr")
    write_zarr(tmp_path / "x.zarr", {"x": X[:4]})
    write_zarr(tmp_path / "y.zarr", {"x": X[:4] + 1})
    chunk = tmp_path / "x.zarr" / "x" / "c" / "0" / "0"
    chunk.unlink()
    chunk.symlink_to(tmp_path / "y.zarr" / "x" / "c" / "0" / "0")
    assert "'x/c/0/0' is a link" in refused(tmp_path / "x.zarr")
    arrays, _ = contents(tmp_path / "x.zarr", follow_links=True)
    assert arrays["x"][0, 0] == X[0, 0] + 1


def test_names_that_lead_out_of_a_zarr(tmp_path):
    zarr = pytest.importorskip("zarr")
    write_zarr_2(tmp_path / "x.zarr", {"x": X})
    write_zarr_2(tmp_path / "secret", {})
    zarr.consolidate_metadata(str(tmp_path / "x.zarr"), zarr_format=2)
    path = tmp_path / "x.zarr" / ".zmetadata"
    about = json.loads(path.read_text())
    told = {name.replace("x/", "../secret/"): x for name, x in about["metadata"].items()}
    told["../.zgroup"] = {"zarr_format": 2}
    path.write_text(json.dumps(about | {"metadata": told}))
    assert "'..' segments" in refused(tmp_path / "x.zarr")


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    assert "not a regular file" in refused(tmp_path / "x.npy")
    (tmp_path / "x.txt").touch()
    assert "the format of its name is not known; known are .npy" in refused(tmp_path / "x.txt")
    (tmp_path / "y.npy").mkdir()
    assert "format of its name is not known" in refused(tmp_path / "y.npy")


# The process for other libraries

MODULES = [
    *("socket", "struct", "selectors", "signal", "tempfile", "warnings", "pickle", "json", "zlib"),
    *("numpy", "numba", "click", "h5py", "zarr", "torch", "pyarrow", "scipy", "asyncio", "yaml"),
]


def make_hostile(folder):
    """Make modules and a cache of kernels that leave a trace in the folder if they are run."""
    trace = f"open({str(folder / 'RUN')!r}, 'a').write(__name__)\n"
    for name in MODULES:
        (folder / f"{name}.py").write_text(trace)
    (folder / "multiprocessing").mkdir()
    for name in "__init__", "spawn", "resource_tracker":
        (folder / "multiprocessing" / f"{name}.py").write_text(trace)
    (folder / ".numba_config.yaml").write_text(f"cache_dir: {folder / 'cache'}\n")


def write_csv(path, arrays):
    pytest.importorskip("pyarrow")
    path.write_text("x,n\n1.5,2\n")


def write_parquet(path, arrays):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"x": [1.5]}), path)


def write_classic(path, arrays):
    scipy_io = pytest.importorskip("scipy.io")
    with scipy_io.netcdf_file(path, "w") as file:
        file.createDimension("n", 7)
        file.createVariable("n", "i", ("n",))[:] = arrays["n"]


READERS = {
    "s.npz": write_npz,
    "a.h5": write_hdf5,
    "a.zarr": write_zarr,
    "a.pt": write_torch,
    "a.csv": write_csv,
    "a.parquet": write_parquet,
    "a.nc": write_classic,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "start"), [*((name, "script") for name in READERS), ("a.h5", "module")]
)
def test_files_in_the_working_directory_are_not_run(tmp_path, name, start):
    folder = tmp_path / "downloaded"
    folder.mkdir()
    READERS[name](folder / name, MEMBERS)
    make_hostile(folder)
    if start == "module":
        (folder / "warnings.py").unlink()  # which Python's own -m may import
    script = tmp_path / "calipers_script.py"
    script.write_text(
        "if __name__ == '__main__':\n    from calipers._cli import main\n    exit(main())\n"
    )
    command = [str(script)] if start == "script" else ["-m", "calipers"]
    done = subprocess.run(
        [sys.executable, *command, "compare", name, name],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (folder / "RUN").exists()
    assert not (folder / "cache").exists()  # its files would be unpickled


def test_a_process_of_diagnose_does_not_import_from_the_working_directory(tmp_path):
    make_hostile(tmp_path)
    (tmp_path / ".numba_config.yaml").unlink()
    (tmp_path / "away").mkdir()
    code = """
    import multiprocessing
    multiprocessing.get_all_start_methods = lambda: ["spawn"]  # as on Windows
    from functools import partial
    from calipers._diagnose.isolate import run_in_process
    if __name__ == "__main__":
        assert run_in_process(partial(max, 2, 3), []) == 3
    """
    script = tmp_path / "away" / "script.py"
    script.write_text(textwrap.dedent(code))
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True)
    assert not (tmp_path / "RUN").exists()


def test_how_processes_start_is_restored(monkeypatch):
    for value in None, "0":
        if value is not None:
            monkeypatch.setenv("PYTHONSAFEPATH", value)
        with children_with_safe_path():
            assert os.environ["PYTHONSAFEPATH"] == "1"
        assert os.environ.get("PYTHONSAFEPATH") == value


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the limits of a process")
def test_the_process_reports_as_this_one_does(tmp_path):
    import resource

    write_hdf5(tmp_path / "a.h5", MEMBERS)
    write_hdf5(tmp_path / "b.h5", MEMBERS | {"w": X + (X > 2)})
    (tmp_path / "c.h5").touch()
    paths = str(tmp_path / "a.h5"), str(tmp_path / "b.h5")
    shares = []
    with worker.Worker() as process:
        found = process.compare_files(*paths, "", FileOptions(), shares.append)
        assert found.leaves == compare_files(*paths, "", FileOptions(), lambda _: None).leaves
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
        with pytest.raises(FileError, match=r"c\.h5: h5py cannot open it"):
            process.compare_files(
                paths[0], str(tmp_path / "c.h5"), "", FileOptions(), shares.append
            )
        with pytest.raises(FileError, match="No such file"):
            process.compare_files(paths[0], "nowhere.h5", "", FileOptions(), shares.append)
        soft, _ = resource.prlimit(process._process.pid, resource.RLIMIT_AS)
        assert soft != resource.RLIM_INFINITY
        # Ctrl-C is for the process that asks.
        os.kill(process._process.pid, signal.SIGINT)
        assert process.compare_files(*paths, "", FileOptions(), shares.append).leaves
        # One that dies is named, and the next pair has another.
        pid = process._process.pid
        kill = contextmanager(lambda: (yield os.kill(pid, 9)))
        with kill(), pytest.raises(FileError, match=r"a\.h5 and .*b\.h5: .* was killed by SIGKILL"):
            process.compare_files(*paths, "", FileOptions(), shares.append)
        assert process.compare_files(*paths, "", FileOptions(), shares.append).leaves
        last = process._process
    assert not last.is_alive()


def test_only_foreign_readers_have_a_process(tmp_path, monkeypatch):
    write_npz(tmp_path / "a.npz", MEMBERS)
    write_hdf5(tmp_path / "a.h5", MEMBERS)
    monkeypatch.setattr(worker, "get_context", None)
    assert not outcome_of(tmp_path / "a.npz", tmp_path / "a.npz").troubles
    assert outcome_of(tmp_path / "a.npz", tmp_path / "a.h5").troubles
    assert outcome_of(tmp_path / "a.h5", tmp_path / "a.npz").troubles


def test_a_process_that_does_not_start_leaves_signals_as_they_were(monkeypatch):
    def start(self):
        raise OSError("no more processes")

    monkeypatch.setattr(SpawnProcess, "start", start)
    before = signal.getsignal(signal.SIGINT)
    with worker.Worker() as process:
        for _ in range(2):
            with pytest.raises(OSError, match="no more processes"):
                process.compare_files("a.npy", "b.npy", "", None, print)
    assert signal.getsignal(signal.SIGINT) is before


def test_arrays_are_let_go(tmp_path):
    write_npz(tmp_path / "a.npz", MEMBERS)
    write_npz(tmp_path / "b.npz", {name: x + 1 for name, x in MEMBERS.items()})
    for plot in False, True:
        found = outcome_of(tmp_path / "a.npz", tmp_path / "b.npz", plot=plot).results
        assert len(found.leaves) == 3
        assert all(leaf.arrays is None for leaf in found.leaves)
        assert (found.drawn is not None) == plot
    assert found.drawn.path == "n"  # integers that have to be equal
    assert found.drawn.arrays is not None


def test_memory_has_a_limit():
    code = """
    import resource
    import numpy as np
    from calipers._files import described
    from calipers._files.worker import _MemoryLimit
    memory = _MemoryLimit()
    memory.set(1 << 50)
    far = resource.getrlimit(resource.RLIMIT_AS)[0]
    memory.set(1000)
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    assert 1000 < limit < far - (1 << 50)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    given = limit - 1000
    resource.setrlimit(resource.RLIMIT_AS, (given, hard))
    _MemoryLimit().set(1 << 50)
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == given  # never more than that
    try:
        bytearray(1 << 45)
    except MemoryError as error:
        print(described(error))
    """
    import textwrap

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "MemoryError: no memory is left\n", done.stderr


def test_errors_in_one_line():
    assert described(ValueError("a\nb\x1b[2J")) == "a b\\x1b[2J"
    assert described(KeyError("x")) == "KeyError: 'x'"
    assert described(RuntimeError()) == "RuntimeError"
    assert described(FileError("\n")) == "FileError"
    assert described(MemoryError()) == "MemoryError: no memory is left"
    assert described(FileNotFoundError(2, "No such file", "x")) == "x: No such file"
    assert len(described(ValueError("x" * 10_000))) == 500
    assert printable("a/\x1b]0;\udcff\u202eé") == "a/\\x1b]0;\\udcff\\u202eé"
