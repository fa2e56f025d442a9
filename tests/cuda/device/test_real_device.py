"""What only a real device can show: many pairs, foreign arrays, streams."""

import numpy as np
import pytest
from numba import cuda

import calipers
from calipers._cuda import runtime

pytestmark = [
    pytest.mark.skipif(runtime.SIMULATOR, reason="a simulated device is too slow, or alone"),
    pytest.mark.filterwarnings("default"),  # other libraries warn of each other
]

PAIRS = 10**6
DTYPES = ["float16", "float32", "float64", "complex64", "complex128", "int8", "int32", "int64"]
DTYPES += ["int16", "uint8", "uint16", "uint32", "uint64"]


def near_threshold(dtype, seed, rtol=1e-3, atol=1e-6):
    """Draw pairs at random, special ones, and such as lie within a few ULP of the bound."""
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        a = random.integers(info.min, info.max, PAIRS, dtype=kind, endpoint=True)
        b = a + random.integers(0, 3, PAIRS).astype(kind)
        b[::5] = random.integers(info.min, info.max, b[::5].size, dtype=kind, endpoint=True)
        return a, b
    real = kind.type(0).real.dtype
    exponents = random.integers(-12, 4, PAIRS)
    b = random.normal(size=PAIRS) * 10.0**exponents
    a = b + random.choice([-1.0, 1.0], PAIRS) * (atol + rtol * abs(b))
    with np.errstate(all="ignore"):
        a, b = a.astype(real), b.astype(real)
        for _ in range(3):
            up = random.integers(0, 2, PAIRS).astype(bool)
            a = np.where(up, np.nextafter(a, real.type(np.inf)), a)
    values = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, np.finfo(real).max, np.finfo(real).tiny])
    values = np.append(values, np.finfo(real).smallest_subnormal).astype(real)
    a[:64], b[:64] = (v.ravel() for v in np.meshgrid(values, values))
    if kind.kind == "c":
        parts = [np.stack((x, np.roll(x, 7)), axis=-1) for x in (a, b)]
        a, b = (np.ascontiguousarray(x).view(kind)[:, 0] for x in parts)
    return a.astype(kind), b.astype(kind)


@pytest.mark.parametrize("dtype", DTYPES)
def test_verdicts_are_the_hosts_bit_for_bit(dtype):
    for seed, options in enumerate(({"rtol": 1e-3, "atol": 1e-6}, {"rtol": 0.0, "atol": 1.0})):
        a, b = near_threshold(dtype, seed)
        expected = calipers.isclose(a, b, **options)
        assert 0 < np.count_nonzero(expected) < PAIRS
        x, y = cuda.to_device(a), cuda.to_device(b)
        found = calipers.isclose(x, y, **options).copy_to_host()
        np.testing.assert_array_equal(found, expected)
        assert not calipers.allclose(x, y, **options)
        close = np.ascontiguousarray(a[expected]), np.ascontiguousarray(b[expected])
        assert calipers.allclose(*map(cuda.to_device, close), **options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reports_are_the_hosts(dtype):
    a, b = near_threshold(dtype, 3)
    expected = calipers.compare(a, b, rtol=1e-3, atol=1e-6)
    report = calipers.compare(cuda.to_device(a), cuda.to_device(b), rtol=1e-3, atol=1e-6)
    assert report.tally == expected.tally
    assert report.rms == pytest.approx(expected.rms, rel=1e-12, nan_ok=True)


class Filled:
    """A tensor that tells by its interface which stream fills it."""

    def __init__(self, tensor, stream):
        self._tensor, self._stream = tensor, stream
        self.shape = tuple(tensor.shape)

    @property
    def __cuda_array_interface__(self):
        given = self._tensor.__cuda_array_interface__
        return {**given, "version": 3, "stream": self._stream.cuda_stream}


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch was built without CUDA")
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64):
        x = torch.randn(1000, 37, device="cuda").to(dtype)
        y = x.clone()
        y[500, 3] += 1
        assert calipers.allclose(x, x.clone())
        assert not calipers.allclose(x, y)
        each = calipers.isclose(x.T, y.T)
        assert each.is_cuda
        assert each.logical_not().nonzero().tolist() == [[3, 500]]
        assert calipers.compare(x, y).first_mismatches[0].index == (500, 3)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(1 << 26, device="cuda")
        for _ in range(50):
            x += 1  # still at work when the question is asked
        assert calipers.allclose(x, torch.full_like(x, 50))
        on_another = torch.zeros(1 << 26, device="cuda")
        for _ in range(50):
            on_another += 1
    # Of a tensor nobody knows the stream that fills it but its owner, who names it here.
    assert calipers.allclose(torch.full_like(on_another, 50), Filled(on_another, stream))
    assert calipers.allclose_async(torch.full_like(x, 50), x).result()
    needs = torch.ones(3, device="cuda", requires_grad=True)
    assert calipers.allclose(needs, needs)
    assert calipers.gradcheck(torch.sin, (torch.rand(5, device="cuda").double().requires_grad_(),))
    jacobian = calipers.jacobian(lambda x: x**2, torch.arange(3.0, device="cuda").double())
    assert jacobian.is_cuda
    x = torch.arange(3.0, device="cuda").double()
    batched = calipers.jacobian(lambda x: x**2, x, batched=True)
    assert calipers.allclose(batched, torch.diag(2 * x), atol=1e-8)
    with pytest.raises(TypeError, match=r"pass a\.cpu\(\)|pass b\.cpu\(\)"):
        calipers.allclose(x, np.zeros(3))


def test_cupy_arrays():
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal((100, 50))
    y = x.copy()
    y[2, 3] += 1
    assert calipers.allclose(x, x.copy())
    each = calipers.isclose(x, y)
    assert isinstance(each, cupy.ndarray)
    assert int(each.sum()) == 4999
    assert calipers.compare(x, y).first_mismatches[0].index == (2, 3)


def test_jax_arrays():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax was installed without CUDA")
    x = jax.numpy.arange(1000.0)
    y = x.at[7].add(1)
    assert calipers.allclose(x, x + 0)
    assert not calipers.allclose(x, y)
    assert int(calipers.isclose(x, y).sum()) == 999
    assert calipers.compare(x, y).first_mismatches[0].index == (7,)


def test_arrays_that_have_dlpack_alone():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch was built without CUDA")

    class Lent:
        def __init__(self, tensor):
            self._tensor = tensor
            self.shape = tuple(tensor.shape)

        def __dlpack__(self, **options):
            return self._tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self._tensor.__dlpack_device__()

    x = torch.arange(12.0, device="cuda").reshape(3, 4)
    assert calipers.allclose(Lent(x), Lent(x.clone()))
    assert not calipers.allclose(Lent(x.T), Lent(x.T + 1))


def test_questions_from_several_threads():
    from concurrent.futures import ThreadPoolExecutor

    x = cuda.to_device(np.ones(1 << 20))
    y = cuda.to_device(np.append(np.ones((1 << 20) - 1), 2.0))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda k: calipers.allclose(x, y if k % 2 else x), range(200)))
    assert answers == [k % 2 == 0 for k in range(200)]


def test_broadcast_arrays_of_numba_are_read_within_their_memory():
    one = cuda.to_device(np.broadcast_to(1.5, (1000,)))
    assert calipers.allclose(one, cuda.to_device(np.full(1000, 1.5)))
    assert calipers.compare(one, cuda.to_device(np.zeros(1000))).mismatches == 1000
