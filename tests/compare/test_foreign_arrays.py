"""Arrays of torch and jax in host memory are compared where they lie; others are refused."""

import numpy as np
import pytest

import calipers
from calipers._core import libraries as _libraries
from calipers._core.arrays import as_array


def address(x):
    return x.__array_interface__["data"][0]


class TestTorch:
    @pytest.fixture(autouse=True)
    def _torch(self):
        self.torch = pytest.importorskip("torch")

    @pytest.mark.parametrize(
        "dtype",
        ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool"]
        + ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint64", "complex64"],
    )
    def test_dtypes_without_a_copy(self, dtype):
        torch = self.torch
        x = torch.tensor([0, 1, 1, 0]).to(getattr(torch, dtype))
        y = torch.tensor([0, 1, 0, 0]).to(getattr(torch, dtype))
        assert address(as_array(x)) == x.data_ptr()
        assert calipers.isclose(x, y).tolist() == [True, True, False, True]
        assert calipers.allclose(x, x.clone())
        assert not calipers.allclose(x, y)
        assert calipers.array_equal(x, x.clone())
        assert calipers.allfinite(x)

    def test_the_result_is_a_tensor(self):
        torch = self.torch
        x = torch.arange(6.0).reshape(2, 3)
        for pair in ((x, x + 1), (x, x.numpy() + 1), (x.numpy(), x + 1), (x, 1.0)):
            result = calipers.isclose(*pair)
            assert isinstance(result, torch.Tensor)
            assert result.dtype == torch.bool
            assert result.shape == x.shape
        assert calipers.isclose(x[0, 0], 0.0).shape == ()
        assert calipers.allclose(x, x.clone()) is True
        rows = calipers.allclose(x, x.clone(), axis=1)
        assert isinstance(rows, torch.Tensor)
        assert rows.tolist() == [True, True]

    def test_gradients_views_and_pending_operations(self):
        torch = self.torch
        x = torch.arange(6.0, requires_grad=True)
        y = x * 1
        assert address(as_array(x)) == x.data_ptr()
        assert calipers.allclose(x, y)
        assert calipers.allclose(y, x)
        matrix = torch.arange(12.0).reshape(3, 4)
        assert calipers.allclose(matrix.T, matrix.numpy().T)
        assert not calipers.allclose(matrix.T, matrix.numpy().T + 1)
        assert calipers.allclose(torch.tensor(2.0), 2.0)
        z = torch.tensor([1 + 2j, 3 - 1j])
        assert z.conj().is_conj()
        assert calipers.allclose(z.conj(), z.numpy().conj())
        assert z.conj().imag.is_neg()
        assert calipers.allclose(z.conj().imag, [-2.0, 1.0])

    def test_python_numbers_are_weak(self):
        x = self.torch.tensor([0.1], dtype=self.torch.bfloat16)
        assert calipers.allclose(x, 0.1, rtol=0, atol=0)
        assert not calipers.allclose(x, np.array([0.1]), rtol=0, atol=0)

    def test_other_devices_are_named(self):
        torch = self.torch
        away = torch.empty(3, device="meta")
        with pytest.raises(
            TypeError,
            match=r"a is a torch Tensor on meta and b is a numpy ndarray on the host.*"
            "pass a tensor with elements for a, as a meta tensor has none",
        ):
            calipers.allclose(away, np.zeros(3))
        with pytest.raises(TypeError, match=r"b is a torch Tensor on meta.*elements for b,"):
            calipers.isclose(torch.zeros(3), away)
        with pytest.raises(TypeError, match=r"pass a tensor .* for a, .* and a tensor .* for b,"):
            calipers.allclose(away, away)
        with pytest.raises(TypeError, match=r"a1 is a torch Tensor on meta"):
            calipers.array_equal(away, away)
        with pytest.raises(TypeError, match=r"a is a torch Tensor on meta"):
            calipers.allfinite(away)
        with pytest.raises(TypeError, match=r"to_dense"):
            calipers.allclose(torch.eye(3).to_sparse(), torch.eye(3))

    @pytest.mark.filterwarnings("ignore")  # torch calls both experimental
    def test_formats_that_numpy_does_not_have(self):
        torch = self.torch
        half = torch.ones(2).to(torch.complex32)
        with pytest.raises(TypeError, match=r"complex32 tensors have no dtype in NumPy; pass x.to"):
            calipers.allclose(half, half)
        steps = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
        with pytest.raises(TypeError, match=r"qint8 tensors have no .*; pass x.dequantize\(\)"):
            calipers.compare(steps, torch.ones(2))

    def test_tensors_that_stand_for_others_are_named(self):
        torch = pytest.importorskip("torch")
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            fake = torch.ones(3), torch.ones(3, dtype=torch.bfloat16)
        for x in fake:
            with pytest.raises(TypeError, match="a: a FakeTensor without elements"):
                calipers.allclose(x, x)
        with pytest.raises(TypeError, match="actual: a Tensor without elements"):
            torch.vmap(lambda x: calipers.compare(x, x))(torch.ones(2, 3))


class TestJax:
    @pytest.fixture(autouse=True)
    def _jax(self):
        self.jax = pytest.importorskip("jax")

    @pytest.mark.parametrize(
        "dtype", ["float32", "float16", "bfloat16", "int8", "int32", "bool", "complex64"]
    )
    def test_dtypes_without_a_copy(self, dtype):
        jnp = self.jax.numpy
        x, y = jnp.array([0, 1, 1, 0], dtype), jnp.array([0, 1, 0, 0], dtype)
        assert address(as_array(x)) == x.unsafe_buffer_pointer()
        result = calipers.isclose(x, y)
        assert isinstance(result, self.jax.Array)
        assert result.tolist() == [True, True, False, True]
        assert calipers.allclose(x, jnp.array(x)) is True
        assert calipers.allclose(x, np.asarray(y)) is False
        assert calipers.array_equal(x, x + 0)

    def test_traced_arrays_are_refused_with_a_way_out(self):
        with pytest.raises(TypeError, match="call calipers outside jit"):
            self.jax.jit(lambda x: calipers.allclose(x, x))(np.zeros(3))

    def test_jax_meets_torch(self):
        torch = pytest.importorskip("torch")
        assert calipers.allclose(self.jax.numpy.ones(3), torch.ones(3))


class OnDevice:
    """An array in device memory, to whoever asks by the protocol."""

    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f8", "data": (0, False), "version": 3}  # noqa: RUF012


class Hostile:
    """An array-like whose attributes raise anything but AttributeError."""

    def __array__(self, dtype=None, copy=None):
        return np.zeros(3)

    @property
    def __cuda_ndarray__(self):
        raise RuntimeError


def test_device_arrays_are_refused():
    with pytest.raises(
        TypeError,
        match=r"a is a tests OnDevice on a CUDA device and b is a numpy ndarray on the host",
    ):
        calipers.allclose(OnDevice(), np.zeros(3))


class Exchanged:
    """An array of a library that NumPy reads by DLPack alone."""

    def __init__(self, x):
        self._x = x

    def __dlpack__(self, **options):
        return self._x.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._x.__dlpack_device__()


def test_host_arrays_that_have_dlpack_alone():
    x = np.arange(3.0)
    for ask in calipers.allclose, calipers.compare, calipers.array_equal:
        assert ask(Exchanged(x), x)
        assert not ask(x + 1, Exchanged(x))
    assert calipers.first_nonfinite(Exchanged(np.array([0.0, np.nan]))) == (1,)
    with pytest.raises(TypeError, match="a is of type tests Exchanged, which NumPy cannot read"):
        calipers.allclose(Exchanged(1), x)


def test_views_of_values_are_no_arrays():
    values = {"a": 1.0}.values()
    with pytest.raises(TypeError, match=r"a is a view of a mapping's values.*pass list\(a\)"):
        calipers.allclose(values, [1.0])
    with pytest.raises(TypeError, match=r"pass list\(expected\)"):
        calipers.compare([1.0], values)
    with pytest.raises(TypeError, match="a must be an array of numbers, got dict_keys"):
        calipers.allclose({1.0: 1}.keys(), [1.0])


def test_formats_that_no_kernel_reads_beside_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for kind in "g", "G", object:
        for narrow in ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn:
            a, b = np.array([1.0, 2.0], kind), np.array([1.0, 4.0], narrow)
            assert calipers.isclose(a, b).tolist() == [True, False]
            if kind in ("g", "G"):  # of objects NumPy does not know what is finite
                assert calipers.isclose(b, a).tolist() == [True, False]
            assert not calipers.allclose(a, b)


def test_probes_that_raise_do_not_leak():
    assert calipers.allclose(Hostile(), np.zeros(3))


def test_libraries_are_not_imported():
    import subprocess
    import sys

    code = (
        "import sys, calipers; calipers.allclose([1.0], [1.0]); calipers.isclose(1, 1);"
        "print([m for m in ('torch', 'jax', 'ml_dtypes', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_arrays_go_to_a_library_and_come_back(name):
    pytest.importorskip(name)
    library = next(x for x in _libraries._LIBRARIES if type(x).__name__.lower() == name)
    like = library.from_numpy(np.ones(2))
    memory = np.empty(128, np.uint8)  # of which jax would view what is aligned
    x = memory[-memory.ctypes.data % 64 :][:24].view(np.float32).reshape(2, 3)
    x[:] = np.arange(6).reshape(2, 3)
    x.flags.writeable = False
    sent = library.put(x, like)
    assert library.owns(sent)
    assert library.device(sent) == library.device(like)
    back = library.fetch(sent)
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(back, x)
    assert not np.shares_memory(back, x)
    turned = library.fetch(library.put(x[::-1], like))
    np.testing.assert_array_equal(turned, x[::-1])


@pytest.mark.parametrize("name", ["torch", "jax"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_formats_that_numpy_lacks_go_there_and_come_back(name, dtype):
    pytest.importorskip(name)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    library = next(x for x in _libraries._LIBRARIES if type(x).__name__.lower() == name)
    x = np.array([0.5, -2.0, np.nan]).astype(getattr(ml_dtypes, dtype))
    for sent in (library.from_numpy(x), library.put(x, library.from_numpy(np.ones(2)))):
        back = library.fetch(sent)
        assert back.dtype == x.dtype
        np.testing.assert_array_equal(back.view("u1"), x.view("u1"))
