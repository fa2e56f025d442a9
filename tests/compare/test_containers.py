"""Containers that compare walks, objects that it compares by ==, and what it refuses by name."""

import collections
import dataclasses
import subprocess
import sys
import types
from decimal import Decimal

import numpy as np
import pytest

import calipers


class Identical:
    """Equal to itself alone."""


class Never:
    """Equal to nothing, not even to itself."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return False

    __hash__ = None


def attrs_class():
    attrs = pytest.importorskip("attrs")
    return attrs.make_class("Fields", ["x", "y"])


def model():
    pydantic = pytest.importorskip("pydantic")
    return pydantic.create_model("Model", x=(object, ...), y=(object, ...))


def record():
    return dataclasses.make_dataclass("Record", ["x", "y"])


OBJECTS = {"attrs": attrs_class, "pydantic": model, "dataclass": record}
OBJECTS["namespace"] = lambda: types.SimpleNamespace


@pytest.mark.parametrize("kind", OBJECTS)
def test_attributes_are_compared_with_tolerances(kind):
    make = OBJECTS[kind]()
    a, b, far = (make(x=1.0 + d, y=np.ones(2)) for d in (0, 1e-12, 0.1))
    assert calipers.compare(a, b)
    assert a == calipers.approx(b)
    calipers.assert_close({"k": [a]}, {"k": [b]})
    assert [leaf.path for leaf in calipers.compare(a, far).failing] == [".x"]
    with pytest.raises(calipers.ClosenessError, match=r"\['k'\]\[0\]\.x"):
        calipers.assert_close({"k": [a]}, {"k": [far]})


@pytest.mark.parametrize("make", [collections.deque, collections.UserList])
def test_sequences_of_any_kind_are_walked(make):
    a, b, far = (make([np.ones(2) * x, np.ones(3)]) for x in (1.0, 1.0 + 1e-12, 1.1))
    assert calipers.compare(a, b)
    assert calipers.compare(a, list(b))
    assert a == calipers.approx(b)
    assert [leaf.path for leaf in calipers.compare(a, far).failing] == ["[0]"]
    assert "actual has 2 items, expected has 1" in str(calipers.compare(a, make([np.ones(2)])))
    # A sequence of plain numbers is an array, as a list is.
    assert calipers.compare(make([1.0, 2.0]), [1.0, 2.0]).size == 2
    assert not calipers.compare(make([2**53 + 1]), [2**53])


def test_mappings_of_any_kind_are_walked():
    a, b = (collections.UserDict(x=x) for x in (1.0, 1.1))
    assert calipers.compare(a, {"x": 1.0})
    assert calipers.compare(a, b).failing[0].path == "['x']"


def test_fields_that_equality_leaves_out_are_not_compared():
    @dataclasses.dataclass
    class Timed:
        x: float
        seconds: float = dataclasses.field(compare=False)

    assert calipers.compare(Timed(1.0, 2.0), Timed(1.0, 3.0))
    assert not calipers.compare(Timed(1.0, 2.0), Timed(2.0, 2.0))
    attrs = pytest.importorskip("attrs")
    kind = attrs.make_class("Kind", {"x": attrs.field(), "seconds": attrs.field(eq=False)})
    assert calipers.compare(kind(1.0, 2.0), kind(1.0, 3.0))
    assert not calipers.compare(kind(1.0, 2.0), kind(2.0, 2.0))


def test_attributes_of_one_side_are_named():
    a, b = types.SimpleNamespace(x=1.0, y=2.0), types.SimpleNamespace(x=1.0, z=2.0)
    report = calipers.compare(a, b)
    found = {leaf.path: leaf.problems for leaf in report.failing}
    assert found == {".y": ("only in actual",), ".z": ("only in expected",)}


def test_objects_are_said_to_be_compared_by_equality():
    text = " ".join(str(calipers.compare(Identical(), Identical())).split())
    assert "objects of type Identical are compared by ==, which is identity for them" in text
    assert "exact equality" in text
    text = str(calipers.compare(Never(1), Never(1)))
    assert "objects of type Never are compared by ==" in text
    assert "identity" not in text
    x = Identical()
    assert "note" not in str(calipers.compare(x, x))
    assert "note" not in str(calipers.compare(["a"], ["b"]))


@pytest.mark.parametrize("equal_nan", [False, True])
def test_objects_that_are_equal_to_nothing_are_no_nan(equal_nan):
    assert not calipers.array_equal([Never(1)], [Never(2)], equal_nan=equal_nan)
    assert not calipers.compare([Never(1)], [Never(2)], equal_nan=equal_nan)
    nans = [float("nan"), np.float32("nan"), Decimal("nan"), np.datetime64("NaT"), complex("nan")]
    for x in nans:
        both = (np.array(["text", item], object) for item in (x, x))
        assert calipers.array_equal(*both, equal_nan=equal_nan) is equal_nan


def test_arrays_in_arrays_are_refused_by_name():
    sparse = pytest.importorskip("scipy.sparse").csr_array(np.eye(2))
    ragged = np.array([np.ones(2), np.ones(3)], dtype=object)
    held = np.empty(1, object)
    held[0] = sparse
    for ask, name in (
        (calipers.array_equal, "a1"),
        (calipers.allclose, "a"),
        (calipers.isclose, "a"),
        (calipers.compare, "actual"),
    ):
        for x in ragged, held:
            said = rf"^{name} holds arrays.*pass {name}\.tolist\(\)"
            with pytest.raises(TypeError, match=said):
                ask(x, x)
    assert calipers.compare(ragged.tolist(), ragged.tolist())  # as is advised
    for ask, name in ((calipers.array_equal, "a1"), (calipers.allclose, "a")):
        with pytest.raises(TypeError, match=rf"^{name} holds arrays"):
            ask([sparse], [sparse])
    with pytest.raises(TypeError, match=r"^actual\[0\] is sparse.*pass actual\[0\]\.toarray\(\)"):
        calipers.compare([sparse], [sparse])


def test_what_no_library_converts_is_refused_by_name():
    sparse = pytest.importorskip("sparse").COO.from_numpy(np.eye(2))
    for ask, name in (
        (calipers.array_equal, "a1"),
        (calipers.allclose, "a"),
        (calipers.isclose, "a"),
        (calipers.compare, "actual"),
    ):
        with pytest.raises(TypeError, match=f"^{name} is .*sparse COO, which "):
            ask(sparse, sparse)


def test_lists_of_tensors_that_require_grad():
    torch = pytest.importorskip("torch")
    x = [torch.ones(2, requires_grad=True)]
    for ask, name in ((calipers.array_equal, "a1"), (calipers.allclose, "a")):
        with pytest.raises(
            TypeError, match=f"^{name} is a list that NumPy cannot make .*use compare"
        ):
            ask(x, x)
    assert calipers.compare(x, x)


def test_advice_on_tensors_works():
    torch = pytest.importorskip("torch")
    meta = torch.ones(2, device="meta")
    with pytest.raises(TypeError, match=r"pass a tensor with elements for a, ") as error:
        calipers.allclose(meta, meta)
    assert ".cpu()" not in str(error.value)
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with pytest.raises(TypeError, match=r"pass its \.values\(\) and \.offsets\(\), or use"):
        calipers.allclose(jagged, jagged)
    assert calipers.allclose(jagged.values(), jagged.values())
    assert calipers.array_equal(jagged.offsets(), jagged.offsets())
    calipers.testing.assert_close(jagged, jagged)


def test_advice_on_sparse_arrays_works():
    sparse = pytest.importorskip("scipy.sparse").csr_array(np.eye(2))
    with pytest.raises(TypeError, match=r"actual\.toarray\(\) == approx\(expected\)"):
        assert sparse == calipers.approx(np.eye(2))
    assert sparse.toarray() == calipers.approx(np.eye(2))


def test_null_datasets(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"], file["null"], file["records"] = 1.0, h5py.Empty("f8"), np.zeros(2, "f8,i4")
        assert calipers.compare(file, file)
        assert not calipers.compare({"x": file["null"]}, {"x": file["x"]})
        assert not calipers.compare(file["null"], file["records"])
        assert not calipers.compare(file["records"], file["null"])
        with pytest.raises(OSError, match="a null dataset, which has no elements"):
            calipers.allclose(file["null"], 1.0)


def test_netcdf_datasets_are_walked(tmp_path):
    netcdf = pytest.importorskip("netCDF4")

    def dataset(name, x):
        file = netcdf.Dataset(tmp_path / name, "w")
        group = file.createGroup("g")
        for place in file, group:
            place.createDimension("n", 2)
            place.createVariable("v", "f8", ("n",))[:] = [1.0, 2.0]
        group["v"][1] = x
        return file

    a, b = dataset("a.nc", 2.0), dataset("b.nc", 3.0)
    assert calipers.compare(a, a)
    assert [leaf.path for leaf in calipers.compare(a, b).failing] == ["['g']['v']"]
    with pytest.raises(TypeError):
        calipers.allclose(a, b)
    a.close()
    b.close()


def test_libraries_are_not_imported():
    code = "import sys, calipers, types; n = types.SimpleNamespace\n"
    code += "calipers.compare({'x': n(a=1.0)}, {'x': n(a=1.0)})\n"
    code += "assert not {'pandas', 'polars', 'pyarrow', 'h5py', 'netCDF4'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
