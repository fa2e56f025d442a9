"""Verdicts on device arrays are those on host arrays."""

import asyncio
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from numba import cuda

import calipers
from calipers._core import libraries as _libraries
from calipers._cuda import runtime
from tests.data.closeness_cases import EDGE

DTYPES = [
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
]
TILE = runtime.policy(8, True, 1).tile


def drawn(dtype, size, seed=0):
    random = np.random.default_rng(seed)
    values = random.integers(0, 100, size)
    if np.dtype(dtype).kind == "c":
        return (values + 1j * random.integers(0, 100, size)).astype(dtype)
    return values.astype(dtype)


def sent(x):
    """Copy an array to the device; Numba's own copies no bfloat16, and views bits as such."""
    if x.dtype != ml_dtypes.bfloat16 or runtime.SIMULATOR:
        return cuda.to_device(x)
    return cuda.to_device(x.view(np.uint16)).view(x.dtype)


def both(a, b, **options):
    """Ask on both sides, and return the host's answers once the device's are found the same."""
    x, y = (sent(v) if isinstance(v, np.ndarray) else v for v in (a, b))
    verdict = calipers.allclose(x, y, **options)
    assert type(verdict) is bool
    assert verdict == calipers.allclose(a, b, **options)
    each = calipers.isclose(x, y, **options).copy_to_host()
    expected = np.asarray(calipers.isclose(a, b, **options))
    assert each.dtype == bool
    np.testing.assert_array_equal(each, expected)
    return expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, TILE, 3 * TILE + 5])
def test_sizes_and_dtypes(dtype, size):
    a = drawn(dtype, size)
    assert both(a, a.copy()).all()
    for place in {0, size // 2, size - 1}:
        b = a.copy()
        b[place] = not b[place] if dtype == "bool" else b[place] + 1
        assert np.flatnonzero(~both(a, b)).tolist() == [place]


@pytest.mark.parametrize("kinds", [("float32", "float64"), ("int8", "uint8"), ("int64", "uint64")])
def test_pairs_of_dtypes(kinds):
    a, b = (drawn(kind, 20) for kind in kinds)
    both(a, b)
    b[7] += 1
    assert not both(a, b).all()


def test_booleans_that_view_other_bytes_are_true_or_false():
    values = np.array([0, 1, 2, 255], np.uint8)
    odd, even = values.view(bool), values != 0
    for other in (even, even.astype("int64"), even.astype("float32")):
        assert both(odd, other, rtol=0, atol=0).all()
        assert calipers.compare(cuda.to_device(odd), cuda.to_device(other), check_dtype=False)


KINDS = ["bfloat16", *DTYPES[:-1]]  # NumPy knows the first by ml_dtypes


@pytest.mark.parametrize("kind", KINDS)
def test_every_pair_of_kinds(kind):
    a = sent(np.array([0, 1, 2], kind))
    for other in KINDS[KINDS.index(kind) :]:
        assert calipers.allclose(a, sent(np.array([0, 1, 2], other))), other
        # The rule itself, which takes the time to be compiled, is asked where pairs are not equal.
        if kind == "bfloat16":
            assert not calipers.allclose(sent(np.array([0, 1, 3], other)), a), other


def test_bfloat16_is_compared_as_on_the_host():
    a = np.array([0.0, 1.0, np.nan, np.inf, 3.0], ml_dtypes.bfloat16)
    b = np.array([0.0, 1.0078125, np.nan, np.inf, 4.0], ml_dtypes.bfloat16)
    assert both(a, b, rtol=0.01, equal_nan=True).tolist() == [True, True, True, True, False]
    assert both(a, ml_dtypes.bfloat16(1.0)).tolist() == [False, True, False, False, False]
    x, y = sent(a), sent(b)
    assert calipers.first_nonfinite(x) == calipers.first_nonfinite(a) == (2,)
    report, expected = (
        calipers.compare(x, y, equal_nan=True),
        calipers.compare(a, b, equal_nan=True),
    )
    assert report.tally == expected.tally
    assert str(report) == str(expected)


def test_special_values():
    values = np.array([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1e-310])
    a, b = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        narrow = a.astype("f4"), b.astype("f4")
        mixed = a + 1j * b, b + 1j * a
    for options in ({}, {"equal_nan": True}, {"rtol": 0.0, "atol": 0.0}, {"rtol": 1.5}):
        both(a, b, **options)
        both(*narrow, **options)
        both(*mixed, **options)


@pytest.mark.parametrize("name", [name for name, *_ in EDGE])
def test_known_pairs(name):
    ((a, b), options, verdict) = next(case[1:] for case in EDGE if case[0] == name)
    if a.dtype.isbuiltin == 1 and b.dtype.isbuiltin == 1 and a.dtype.char not in "gG":
        assert both(a, b, **options).all() == verdict


LAYOUTS = {
    "strided": lambda x: (x[::2], x[::2]),
    "one strided": lambda x: (x[::2], x[: (x.size + 1) // 2]),
    "rows": lambda x: (x[:30].reshape(5, 6), x[:6]),
    "columns": lambda x: (x[:30].reshape(5, 6), x[:5].reshape(5, 1)),
    "transposed": lambda x: (x[:30].reshape(5, 6).T, x[:30].reshape(5, 6).T),
    "one transposed": lambda x: (x[:25].reshape(5, 5).T, x[:25].reshape(5, 5)),
    "outer": lambda x: (x[:5].reshape(5, 1), x[:6]),
    "three": lambda x: (x[:24].reshape(2, 3, 4)[:, ::2], x[:4]),
    "reversed": lambda x: (x[::-1], x[::-1]),
    "one reversed": lambda x: (x[::-2], x[::2]),
    "both ways": lambda x: (x[:30].reshape(5, 6)[::-1, ::-1], x[:30].reshape(5, 6)[:, ::-1]),
    "one element": lambda x: (x[:1], x[:7]),
    "0-d": lambda x: (x[3].reshape(()), x[:7]),
}


@pytest.mark.filterwarnings("ignore:Grid size")  # of Numba's own transposition
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    host = drawn("float64", 41)
    other = host.copy()
    other[3] += 1
    given = cuda.to_device(host), cuda.to_device(other)
    for second in (0, 1):
        a, b = LAYOUTS[layout](host)[0], LAYOUTS[layout]((host, other)[second])[1]
        if layout == "0-d":
            x, y = cuda.to_device(a), given[second][:7]
        else:
            x, y = LAYOUTS[layout](given[0])[0], LAYOUTS[layout](given[second])[1]
        assert calipers.allclose(x, y) == calipers.allclose(a, b)
        each = calipers.isclose(x, y).copy_to_host()
        np.testing.assert_array_equal(each, calipers.isclose(a, b))


def test_numbers_beside_an_array():
    x = np.array([0.1, 0.1, 0.2], np.float32)
    assert both(x, 0.1).tolist() == [True, True, False]
    assert both(np.float32(0.1), x).tolist() == [True, True, False]
    assert both(x, 1e300).tolist() == [False] * 3


def test_an_integer_that_no_device_holds():
    for dtype in "i8", "u8":
        with pytest.raises(TypeError, match="an integer of 71 bits is compared with an array"):
            calipers.allclose(cuda.to_device(np.ones(2, dtype)), 2**70)


def test_empty_arrays():
    x = cuda.device_array((0, 3))
    assert calipers.allclose(x, x)
    assert calipers.isclose(x, x).shape == (0, 3)
    assert calipers.array_equal(x, x)
    assert calipers.allfinite(x)


def test_shapes_that_do_not_fit():
    x, y = cuda.to_device(np.ones(3)), cuda.to_device(np.ones(4))
    with pytest.raises(ValueError, match=r"their shapes are a \(3,\), b \(4,\)"):
        calipers.allclose(x, y)
    assert not calipers.array_equal(x, y)


def test_array_equal():
    x = np.array([1.0, np.nan])
    given = cuda.to_device(x)
    assert not calipers.array_equal(given, given)
    assert calipers.array_equal(given, given, equal_nan=True)
    assert not calipers.array_equal(given, cuda.to_device(x[None]), equal_nan=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_the_first_value_that_is_not_finite(dtype):
    x = drawn(dtype, 3 * TILE + 5).reshape(-1, 1)
    assert calipers.allfinite(cuda.to_device(x))
    for places in ([3 * TILE + 4], [TILE, 2 * TILE], [0, 5, 3 * TILE]):
        bad = x.copy()
        bad[places[:1]] = np.nan
        bad[places[1:]] = -np.inf
        assert calipers.first_nonfinite(cuda.to_device(bad)) == (places[0], 0)
        assert not calipers.allfinite(cuda.to_device(bad))


def test_integers_are_finite():
    for dtype in ("int32", "bool"):
        assert calipers.first_nonfinite(cuda.to_device(drawn(dtype, 5))) is None


def test_calls_in_turn_do_not_see_what_others_found():
    x = drawn("float64", 4 * TILE)
    y = x + 1
    given = [cuda.to_device(v) for v in (x, x.copy(), y)]
    for _ in range(3):
        assert calipers.allclose(given[0], given[1])
        assert not calipers.allclose(given[0], given[2])


def test_inputs_stay_as_they_are():
    x = drawn("float64", TILE + 3)
    given = cuda.to_device(x)
    calipers.allclose(given, given)
    calipers.isclose(given, given)
    np.testing.assert_array_equal(given.copy_to_host(), x)


@pytest.mark.parametrize("call", [calipers.allclose, calipers.isclose, calipers.array_equal])
def test_a_host_array_beside_one_on_the_device(call):
    x = np.ones(3)
    with pytest.raises(TypeError, match="compares arrays on one device: pass a host copy of"):
        call(cuda.to_device(x), x)
    with pytest.raises(TypeError, match="compares arrays on one device: pass a host copy of"):
        call(x, cuda.to_device(x))


def test_what_is_not_compared_on_a_device():
    x = cuda.to_device(np.ones(3))
    with pytest.raises(TypeError, match="axis is not supported"):
        calipers.allclose(x, x, axis=0)
    with pytest.raises(TypeError, match="rtol must be a real number for arrays on a device"):
        calipers.allclose(x, x, rtol=np.ones(3))


def test_an_answer_that_is_not_waited_for():
    x = cuda.to_device(np.ones(TILE + 3))
    y = cuda.to_device(np.full(TILE + 3, 2.0))
    pending = [calipers.allclose_async(x, x), calipers.allclose_async(x, y)]
    assert [p.result() for p in pending] == [True, False]
    assert [bool(p) for p in pending] == [True, False]
    assert all(p.done() for p in pending)

    async def awaited():
        return await calipers.allclose_async(x, y)

    assert asyncio.run(awaited()) is False
    with pytest.raises(ValueError, match="could not be broadcast"):
        calipers.allclose_async(x, cuda.to_device(np.ones(2)))


def test_answers_that_nobody_asks_for_give_their_flag_back():
    """They wait for their kernel, which reads arrays that would be others' otherwise."""
    x = cuda.to_device(np.zeros(5))
    calipers.allclose_async(x, x).result()
    before = list(runtime._spare[runtime.Flag, 0])
    assert before
    for _ in range(3):
        calipers.allclose_async(x, x)
    assert runtime._spare[runtime.Flag, 0] == before


def test_the_rule_in_a_users_own_kernel():
    @cuda.jit
    def kernel(a, b, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = calipers.isclose(a[i], b[i], rtol=1e-3)

    a, b = np.array([1.0, 1.0, np.nan]), np.array([1.0009, 1.002, np.nan])
    out = cuda.device_array(3, np.bool_)
    kernel[runtime._LEAST_BLOCKS, 8](cuda.to_device(a), cuda.to_device(b), out)
    assert out.copy_to_host().tolist() == [True, False, False]


WHOLE = {
    "equal": (np.ones(5), np.ones(5)),
    "a mismatch": (np.ones(5), np.array([1.0, 1.0, 1.0, 1.0, 2.0])),
    "float32": (np.ones(40, np.float32), np.full(40, 1.00001, np.float32)),
    "complex": (np.ones(3, complex), np.array([1, 1, 1 + 1e-3j])),
    "integers": (np.arange(5), np.arange(5)),
    "two dtypes": (np.arange(5), np.arange(5) + 1e-9),
    "broadcast": (np.ones((2, 3)), np.array([1.0, 1.0, 3.0])),
    "reversed": (np.arange(4.0), np.arange(4.0)[::-1].copy()),
    "transposed": (np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(3, 2).T),
    "NaN": (np.array([np.nan]), np.array([np.nan])),
    "empty": (np.ones(0), np.ones(0)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_arrays_in_a_users_own_kernel(name):
    @cuda.jit
    def kernel(a, b, out):
        if cuda.grid(1) == 0:
            out[0] = calipers.allclose(a, b)
            out[1] = calipers.allclose(a[::-1], b[::-1], rtol=0.0, atol=1e-2, equal_nan=True)
            out[2] = calipers.allclose(a, 1.0)

    a, b = WHOLE[name]
    out = cuda.device_array(3, np.bool_)
    kernel[runtime._LEAST_BLOCKS, 8](cuda.to_device(a), cuda.to_device(b), out)
    expected = [
        np.allclose(a, b),
        np.allclose(a[::-1], b[::-1], 0.0, 1e-2, True),
        np.allclose(a, 1),
    ]
    assert out.copy_to_host().tolist() == expected


def test_binary32_and_numbers_beside_it():
    """A Python number takes the array's dtype (NEP 50); a negative tolerance accepts equality."""
    x = np.array([0.1, 0.2], np.float32)
    assert both(x, 0.1, rtol=0.0, atol=0.0).tolist() == [True, False]
    assert both(np.float64(0.1), x, rtol=0.0, atol=0.0).tolist() == [False, False]
    assert both(x, x + np.float32(1e-3), rtol=-1.0, atol=0.05).tolist() == [False, False]
    assert both(x, x.copy(), rtol=-1.0, atol=-1.0).all()


@pytest.mark.skipif(not runtime.SIMULATOR, reason="needs an array made by hand")
def test_fields_of_structures_are_refused():
    whole = np.zeros(4, [("a", "f8"), ("b", "f4")])
    part = type(cuda.to_device(np.ones(1)))(whole["a"])
    with pytest.raises(TypeError, match="which are not multiples of its element size"):
        calipers.allclose(part, part)


@pytest.mark.skipif(not runtime.SIMULATOR, reason="needs an array made by hand")
def test_elements_that_are_not_aligned_are_refused():
    """A device cannot read them, and all that its process does there would fail from then on."""
    part = type(cuda.to_device(np.ones(1)))(np.zeros(33, np.uint8)[1:].view(np.float64))
    with pytest.raises(TypeError, match="not a multiple of its elements' alignment of 8 bytes"):
        calipers.allclose(part, part)
    assert calipers.allclose(*[part[:0]] * 2)


PATIENT = "import tests.cuda.device.conftest; "  # the simulator, if it is one


def test_an_answer_that_the_end_of_the_process_finds_is_no_error():
    code = (
        PATIENT
        + "import numpy, calipers; from numba import cuda; x = cuda.to_device(numpy.ones(3)); "
    )
    code += "numpy.pending = calipers.allclose_async(x, x)"  # outlives other modules
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert not done.stderr


def test_an_answer_that_the_end_of_the_process_finds_is_not_read():
    """The memory that it is in has been given back by then, which ended the process by a fault."""
    code = PATIENT + "import functools, os, numpy, calipers; from numba import cuda; "
    code += "x = cuda.to_device(numpy.ones(3)); "
    code += "from calipers._cuda.runtime import Flag; "
    code += "pending = calipers.allclose_async(x, x); "
    code += "Flag.is_set = staticmethod(functools.partial(os.write, 1, b'read'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert not done.stdout


def test_an_array_beside_a_number_is_not_equal_to_it():
    assert not calipers.array_equal(cuda.to_device(np.ones(3)), 1.0)


class Owned:
    """An array of a library that has a pool of memory."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape


class Pool:
    """Such a library, and the arrays that were taken from its pool."""

    def __init__(self, lends):
        self.lends, self.lent = lends, []

    def owns(self, x):
        return isinstance(x, Owned)

    def device(self, x):
        return "cuda:0"

    def on_device(self, x):
        return x.array, None, None

    def empty(self, shape, like):
        if not self.lends:
            return None
        self.lent.append(Owned(cuda.device_array(shape, bool)))
        return self.lent[-1]

    def from_device(self, x, like):
        return Owned(x)


@pytest.mark.parametrize("lends", [True, False])
def test_masks_come_from_the_pool_of_the_owner_without_a_wait(monkeypatch, lends):
    pool, waits = Pool(lends), []
    monkeypatch.setattr(_libraries, "_LIBRARIES", (pool,))
    x = cuda.to_device(np.arange(10.0))
    y = cuda.to_device(np.where(np.arange(10) == 3, 0.0, np.arange(10.0)))
    calipers.isclose(x, 3.0)  # the number is on the device from now on
    kind = type(runtime.stream(0))
    synchronize = kind.synchronize
    monkeypatch.setattr(kind, "synchronize", lambda s: waits.append(s) or synchronize(s))
    masks = [calipers.isclose(Owned(x), b) for b in (Owned(y), y, 3.0)]
    assert len(waits) == (0 if lends else 3)
    assert pool.lent == (masks if lends else [])
    found = [np.flatnonzero(mask.array.copy_to_host()).tolist() for mask in masks]
    assert found == [[0, 1, 2, 4, 5, 6, 7, 8, 9]] * 2 + [[3]]
    empty = calipers.isclose(Owned(x[:0]), y[:0])
    assert type(empty) is Owned
    assert empty.shape == (0,)
