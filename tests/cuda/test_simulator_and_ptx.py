"""Kernels for devices, without one: in Numba's simulator, and compiled to PTX."""

import ctypes
import functools
import importlib.util
import itertools
import math
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import ml_dtypes
import numpy as np
import pytest

import calipers
from calipers._core.libraries import install_command

ROOT = Path(__file__).parents[2]
DEVICE = Path(__file__).parent / "device"
KINDS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool", "int8"]
KINDS += ["int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
# How elements are found does not depend on their kind: of arrays with gaps, one of each size.
FOUND = [(kind, True) for kind in KINDS]
FOUND += [(kind, False) for kind in ("int8", "float16", "float32", "float64", "complex128")]
# Reports widen integers to 64 bits: those between the narrowest and the widest are exhaustive.
MIDDLE = {"int16", "int32", "uint8", "uint16", "uint32"}
REPORTED = [
    pytest.param(*one, marks=[pytest.mark.exhaustive] if one[0] in MIDDLE else []) for one in FOUND
]
# Not with NUMBA_OPT=0, which compiles the rule faster: kernels of the host would be compiled anew.
SIMULATOR = {"NUMBA_ENABLE_CUDASIM": "1"}
SIMULATED = sorted({path.name for path in DEVICE.glob("test_*.py")} - {"test_real_device.py"})
CAPABILITIES = (7, 5), (8, 0), (9, 0)  # the least, and those of today
NAMES = "apart", "mask"
CARRIERS = {"float16": "uint16", "bfloat16": "uint16", "bool": "uint8"}


needs_target = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None,
    reason=f"numba-cuda is not installed: {install_command()}",
)


@needs_target
@pytest.mark.parametrize("name", SIMULATED)
def test_the_simulator_gives_the_hosts_verdicts(name):
    environment = {**os.environ, **SIMULATOR, "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", DEVICE / name]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"[1-9]\d* passed", done.stdout)
    assert "skipped" not in done.stdout


@pytest.mark.slow
@needs_target
def test_the_benchmark_of_a_device_runs_through():
    environment = {**os.environ, **SIMULATOR}
    run = "runpy.run_module('benchmarks.gpu', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", f"import runpy, tests.cuda.device.conftest; {run}", "0.0005"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "| float64 | 8 | 3-point |" in done.stdout


@pytest.fixture(scope="module")
def ptx():
    """Compile a kernel as a launch does, for devices that are absent; once where dtypes share it.

    Numba makes of a kernel what names no device, and of that the text for each.
    """
    from numba.cuda import dispatcher
    from numba.cuda.cudadrv import devices

    @functools.cache
    def compiled(kernel, arguments):
        device = SimpleNamespace(compute_capability=CAPABILITIES[0])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dispatcher, "get_current_device", lambda: device)
            patch.setattr(devices, "get_context", lambda: SimpleNamespace(device=device))
            return dispatcher._Kernel(kernel.py_func, arguments, **kernel.targetoptions)

    def texts(kernel, arguments, capabilities=CAPABILITIES[:1]):
        found = []
        for capability in capabilities:
            # Named as Numba does: the text for the first, which it compiles for, is there already.
            found.append(compiled(kernel, arguments).inspect_asm((*capability, "")))
            assert ".target sm_{}{}".format(*capability) in found[-1]
        return found

    return texts


def layout_of(flat, axes=3):
    """Return the type of what elements are found by: of some axes, if not one after the other."""
    from numba import types

    steps = types.UniTuple(types.int64, axes + 1)
    return types.Tuple(() if flat else (types.UniTuple(types.int64, axes), steps, steps))


def arguments_of(name, flat, axes=3):
    from numba import types

    address, layout = types.int64, layout_of(flat, axes)
    numbers = types.float64, types.float64
    if name == "first_nonfinite":
        return address, layout, types.int64, address
    pair = address, address, layout, types.int64, *numbers
    if name == "mask":
        return *pair, types.boolean, address
    return *pair, types.boolean, address, address, types.int64


def kernel_of(name, kind, flat):
    from calipers._cuda.kernels import closeness
    from calipers._cuda.launch import policy_of

    itemsize = np.dtype(CARRIERS.get(kind, kind)).itemsize
    if name == "mask":
        room, itemsize = closeness.masks({kind}, flat), max(closeness.LEAST_BYTES, itemsize)
    elif name == "first_nonfinite":
        room, itemsize = closeness.searches(set(), flat), max(closeness.LEAST_BYTES, itemsize // 2)
    else:
        room = closeness.searches({kind}, flat)
    policy = policy_of(itemsize, flat, room)
    if name == "first_nonfinite":
        return closeness.first_nonfinite(kind, flat, policy), policy
    if name == "mask":
        return closeness.mask((kind, kind), flat, policy), policy
    return closeness.any_mismatch((kind, kind), flat, policy), policy


@needs_target
@pytest.mark.parametrize(("kind", "flat"), FOUND)
def test_every_kernel_compiles_for_a_device(ptx, kind, flat):
    names = [*NAMES]
    if kind not in CARRIERS and np.dtype(kind).kind in "fc":
        names.append("first_nonfinite")
    for name in names:
        kernel, policy = kernel_of(name, kind, flat)
        for text in ptx(kernel, arguments_of(name, flat)):
            # One rounding for each operation of the rule: that of binary64 has no fused ones.
            assert "fma.rn.f64" not in text
            inlined = set(re.findall(r"begin inline asm\s+(\S+)", text))
            assert inlined <= {"mul.rn.f64", f"{LATEST}.b32", f"{LATEST}.b64"}
            assert name == "mask" or reads_anew(text)
            if name == "apart":
                assert re.search(r"begin inline asm\s+mul\.rn\.f64", text)
            if name == "apart" or flat:
                parts = 2 if kind.startswith("complex") else 1
                arrays = 1 if name == "first_nonfinite" else 2
                assert loads_together(text) >= arrays * parts * policy.items


@needs_target
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "complex128", "int64"])
def test_what_runs_on_a_device_is_as_what_compiles_for_it(kind):
    """Devices get what a linker makes of all parts of a kernel together, where there is one."""
    from numba.cuda import dispatcher
    from numba.cuda.cudadrv import devices

    device = SimpleNamespace(compute_capability=(9, 0))
    for name in ("apart", "mask", "first_nonfinite"):
        if name == "first_nonfinite" and kind in ("int64", "float16"):
            continue
        kernel, policy = kernel_of(name, kind, True)
        if not kernel.targetoptions["lto"]:
            pytest.skip("nvJitLink is not installed, and devices get each part as it is")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dispatcher, "get_current_device", lambda: device)
            patch.setattr(devices, "get_context", lambda: SimpleNamespace(device=device))
            arguments = arguments_of(name, True)
            compiled = dispatcher._Kernel(kernel.py_func, arguments, **kernel.targetoptions)
            text = compiled._codelibrary.get_lto_ptx((9, 0, "a"))
        assert ".target sm_90a" in text
        assert "fma.rn.f64" not in text
        # Nor may the assembler make one of a sum of a product whose rounding is left to it.
        products = set(re.findall(r"\bmul\.f64\s+(%fd\d+), %fd\d+, %fd\d+;", text))
        terms = re.findall(r"\b(?:add|sub)\.f64\s+%fd\d+, (%fd\d+), (%fd\d+);", text)
        assert not products.intersection(itertools.chain(*terms))
        parts = 2 if kind.startswith("complex") else 1
        arrays = 1 if name == "first_nonfinite" else 2
        assert loads_together(text) >= arrays * parts * policy.items
        assert name == "mask" or reads_anew(text)


@needs_target
@pytest.mark.parametrize("other", ["complex64", "complex128", "int64", "uint64"])
def test_pairs_with_a_kind_of_16_bits_compile_for_a_device(ptx, other):
    """With these, the others of two kinds that are not brought to one type."""
    from calipers._cuda.kernels import closeness
    from calipers._cuda.launch import policy_of

    for kinds in ("bfloat16", other), (other, "float16"):
        kernel = closeness.any_mismatch(kinds, True, policy_of(8))
        for text in ptx(kernel, arguments_of("apart", True)):
            assert "fma.rn.f64" not in text
            assert reads_anew(text)


@needs_target
@pytest.mark.parametrize("name", ["apart", "mask", "first_nonfinite"])
def test_elements_along_one_axis_are_found_without_a_division(ptx, name):
    """Those of a slice, or of an array beside a number."""
    divisions = []
    for axes in range(3):  # none: one after the other
        kernel, _ = kernel_of(name, "float32", axes == 0)
        texts = ptx(kernel, arguments_of(name, axes == 0, axes))
        divisions.append(sum(len(re.findall(r"\b(?:div|rem)\.", text)) for text in texts))
    assert divisions[0] == divisions[1] < divisions[2]


@needs_target
def test_axes_that_numba_broadcasts_are_known(monkeypatch):
    from calipers._cuda import runtime

    interface = {"typestr": "<f8", "shape": (1000,), "data": (4096, False), "strides": None}
    numbas = SimpleNamespace(
        __cuda_array_interface__=interface, __cuda_ndarray__=True, strides=(0,)
    )
    monkeypatch.setattr(runtime, "_ordinal", lambda address: 0)
    assert runtime.memory_of(numbas).strides == (0,)
    others = SimpleNamespace(__cuda_array_interface__=interface)
    assert runtime.memory_of(others).strides == (8,)


class WithInterface:
    """An array on a device, of a form that the array interface describes."""

    def __init__(self, address, typestr, shape=(3,), **more):
        data = address, False
        self.interface = {"typestr": typestr, "shape": shape, "data": data, "strides": None, **more}

    @property
    def __cuda_array_interface__(self):
        return self.interface


class WithDlpack:
    """An array of three elements on a device, as DLPack describes it."""

    def __init__(self, address, code, bits):
        self.shape = (3,)
        self._shape = (ctypes.c_int64 * 3)(3)
        # The address, the device, the number of axes, the dtype, shape, strides and offset; then
        # what belongs to its owner.
        self._tensor = struct.pack(
            "@PiiiBBHPPQPP",
            address,
            2,
            0,
            1,
            code,
            bits,
            1,
            ctypes.addressof(self._shape),
            0,
            0,
            0,
            0,
        )

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **options):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = (
            ctypes.py_object,
            (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p),
        )
        return new(self._tensor, b"dltensor", None)


class WithAttribute:
    """An array on a device that says so in an attribute of its own."""

    def __init__(self, address, typestr):
        self.__cuda_array_interface__ = WithInterface(address, typestr).interface


ABSENT = [
    pytest.param(WithInterface(0, "<f8"), id="array interface"),
    pytest.param(WithAttribute(0, "<f8"), id="attribute"),
    pytest.param(WithDlpack(0, 2, 64), id="DLPack"),
]


@needs_target
@pytest.mark.parametrize("x", ABSENT)
@pytest.mark.parametrize(
    "call", [calipers.allclose, calipers.isclose, calipers.compare, calipers.array_equal]
)
def test_elements_at_address_0_are_refused(monkeypatch, call, x):
    from calipers._cuda import runtime

    monkeypatch.setattr(runtime, "current", lambda: 0)
    x.shape = (3,)
    with pytest.raises(TypeError, match=r"^(a|actual) has shape \(3,\), but no elements in memory"):
        call(x, x)


@needs_target
def test_tensors_without_memory_are_refused():
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(3, device="cuda")
    with pytest.raises(TypeError, match=r"^a: a FakeTensor without elements"):
        calipers.allclose(fake, fake)


@needs_target
@pytest.mark.parametrize("x", [WithInterface(4096, "<V2"), WithDlpack(4096, 4, 16)])
def test_bfloat16_is_known_by_every_protocol(monkeypatch, x):
    from calipers._cuda import runtime
    from calipers._cuda.arrays import operand

    monkeypatch.setattr(runtime, "_ordinal", lambda address: 0)
    found = operand(x, "a")
    assert (found.kind, found.memory.dtype, found.shape) == ("bfloat16", np.uint16, (3,))
    assert found.dtype == ml_dtypes.bfloat16


@needs_target
@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (WithInterface(4096, "<f8", mask=np.ones(3, bool)), "a: masked arrays on a device"),
        (WithInterface(4096, "|V2"), r"a has dtype \|V2, which is not compared on a device"),
        (WithDlpack(4096, 10, 8), "a: .*dtype code: 10"),
    ],
)
def test_what_is_not_compared_on_a_device_is_named(monkeypatch, x, reason):
    from calipers._cuda import runtime
    from calipers._cuda.arrays import operand

    monkeypatch.setattr(runtime, "_ordinal", lambda address: 0)
    with pytest.raises(TypeError, match=f"^{reason}"):
        operand(x, "a")


def test_kernels_for_a_device_are_loops_around_rules():
    """They import the CPU's kernels, and how kernels are compiled and launched."""
    for file in (ROOT / "src" / "calipers" / "_cuda" / "kernels").glob("*.py"):
        modules = re.findall(r"from \.\.(\.?\w*)[\w.]* import", file.read_text())
        assert set(modules) <= {"", "launch", "runtime", "._kernels", "._core"}


LATEST = "ld.relaxed.gpu.global"


def reads_anew(text):
    """Tell whether what other blocks have found is read in a loop, and not once before it."""
    lines = text.splitlines()
    labels = {
        found[1]: k for k, line in enumerate(lines) if (found := re.match(r"(\$L\w+):", line))
    }
    jumps = [(k, re.search(r"\bbra(?:\.uni)?\s+(\$L\w+);", line)) for k, line in enumerate(lines)]
    loops = [(labels[to[1]], k) for k, to in jumps if to and labels[to[1]] < k]
    reads = [k for k, line in enumerate(lines) if LATEST in line]
    return any(first < k < last for k in reads for first, last in loops)


def loads_together(text):
    """Count the most loads from memory that no jump or barrier stands between."""
    longest = now = 0
    for line in text.splitlines():
        if re.search(r"\bbra\b|bar\.sync|^\$L", line):
            now = 0
        elif "ld.global" in line:
            now += 1
            longest = max(longest, now)
    return longest


def comparison_kernels(kind, flat):
    """List the kernels of a report, each with the types that it is called with."""
    from numba import from_dtype, types

    from calipers._compare.statistics import widened
    from calipers._core.dtypes import working_dtypes
    from calipers._cuda.kernels import comparison as kernels
    from calipers._cuda.launch import policy_of

    own = np.dtype("float32" if kind == "bfloat16" else kind)
    held = from_dtype(widened(working_dtypes(own, own)[0]))
    policy = policy_of(held.bitwidth // 8, flat, kernels.TALLIES)
    array = types.Array(from_dtype(np.dtype(CARRIERS.get(kind, kind))), 1, "C")
    word, number = types.int64, types.float64
    pair = word, word, layout_of(flat), word
    options = number, number, word, types.boolean, word, number
    axes = types.UniTuple(word, 2)
    found = number[:, ::1], types.uint64[::1], word[:, ::1]
    kinds, both = (kind, kind), (held, held)
    tally = kernels.tally(kinds, both, flat, 2, policy)
    yield tally, (*pair, *options, axes, axes, word[::1], *found)
    yield kernels.conclude(2, policy), (word, *found)
    yield kernels.next_mismatch(kinds, both, flat), (*pair, *options, word, word[::1])
    yield kernels.gather(kind, flat), (word, layout_of(flat), word[::1], array)


@needs_target
@pytest.mark.parametrize(("kind", "flat"), REPORTED)
def test_the_kernels_of_a_report_compile_for_a_device(ptx, kind, flat):
    from calipers._cuda.launch import policy_of

    for kernel, arguments in comparison_kernels(kind, flat):
        name = kernel.py_func.__qualname__.partition(".")[0]
        for text in ptx(kernel, arguments):
            assert "fma.rn.f64" not in text
            assert reads_anew(text) == (name == "next_mismatch")
            if name == "tally":
                # Of each pair a block adds to what all share only where it lies on two axes, and in
                # the end what it has counted by itself.
                assert text.count("atom.global.add") <= 2 * policy_of(1, flat).items + 1


@needs_target
@pytest.mark.parametrize(("kind", "flat"), [("float16", True), ("complex128", False)])
def test_a_kernel_is_the_same_for_every_capability(ptx, kind, flat):
    """So that the other tests read the text for the least alone."""
    kernels = [*comparison_kernels(kind, flat)]
    kernels += [(kernel_of(name, kind, flat)[0], arguments_of(name, flat)) for name in NAMES]
    for kernel, arguments in kernels:
        texts = ptx(kernel, arguments, CAPABILITIES)
        assert len({re.sub(r"\.target sm_\d+", "", text) for text in texts}) == 1


def difference_kernels(x, out):
    """List the kernels of a Jacobian, each with the types that it is called with."""
    from numba import cuda, types

    from calipers._cuda.kernels import differences as kernels

    @cuda.jit(device=True)
    def fills(x, a, b, out):
        for i in range(out.size):
            out[i] = math.sin(x[i]) * a * b[0]

    @cuda.jit(device=True)
    def row(i, x, a, b):
        return math.sin(x[i]) * a * b[0]

    def arrays(element, *dimensions):
        return tuple(types.Array(element, n, "C") for n in dimensions)

    others = types.Tuple(()), types.Tuple((types.float64, types.float64[::1]))
    copies, values = arrays(x, 1, 2), arrays(out, 2)[0]
    given = copies[0], types.float64[:, :, ::1], *others
    told = types.int64[::1]
    columns = copies[1], copies[1], values, values, values, values, values, values, told
    yield kernels.fill_columns(fills), (*given, *columns)
    for shared in (False, True):
        own = types.Tuple(()) if shared else copies[1]
        word = types.int64
        rows = word, word, *others, word, word, word, word, own, own, word, word, word
        yield kernels.compute_rows(row, x.name, out.name, shared), rows
    yield kernels.fill_values(fills), (copies[1], *others, values, told)
    yield kernels.compute_values(row), (copies[1], *others, values, told)
    call = types.Tuple((copies[0], types.float64, types.float64[::1], copies[0]))
    yield kernels.once(fills), (call, told)


@needs_target
@pytest.mark.parametrize("flat", [True, False], ids=["flat", "strided"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_multiprocessor_has_room_for_the_blocks_of_a_pass(kind, flat):
    """As all do the same work, some that have to wait would double the time."""
    from calipers._cuda.kernels import comparison
    from calipers._cuda.launch import policy_of

    names = ["apart", "mask"] + ["first_nonfinite"] * (kind == "float64")
    found = [kernel_of(name, kind, flat) for name in names]
    tally = next(comparison_kernels(kind, flat))[0]
    found.append((tally, policy_of(8, flat, comparison.TALLIES)))
    for kernel, policy in found:
        registers = kernel.targetoptions["max_registers"]
        assert registers % 8 == 0
        assert registers * policy.threads * policy.blocks <= 1 << 16


@needs_target
@pytest.mark.parametrize(("threads", "blocks"), [(2048, 6), (1536, 6), (1024, 4)])
def test_blocks_that_run_at_once_on_small_multiprocessors(monkeypatch, threads, blocks):
    from numba.cuda.cudadrv.driver import binding

    from calipers._cuda import runtime

    numbers = {"MULTIPROCESSOR_COUNT": 40, "MAX_THREADS_PER_MULTIPROCESSOR": threads}
    numbers["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"] = 64 << 10
    for name in numbers:
        assert hasattr(binding.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    monkeypatch.setattr(runtime.cuda, "gpus", [SimpleNamespace(**numbers)])
    ask = runtime._resident.__wrapped__
    assert ask(0, 6, 0) == 40 * blocks
    assert ask(0, 6, 40 << 10) == 40


@needs_target
def test_blocks_of_a_users_function_have_the_registers_that_it_takes(monkeypatch):
    from calipers._cuda import runtime

    monkeypatch.setattr(runtime, "current", lambda: 0)
    monkeypatch.setattr(runtime, "_resident", lambda ordinal, each, shared: each)
    kernel = type("Kernel", (), {"overloads": {}})()
    found = []
    for registers in (40, 41, 78, 200, 64):  # with each signature that is compiled
        found.append(runtime.resident_of(kernel, 0))
        kernel.overloads[registers] = SimpleNamespace(regs_per_thread=registers)
    assert found == [3, 6, 5, 3, 1]


@needs_target
@pytest.mark.parametrize(
    ("count", "blocks", "each"),
    [(1, 1, 32), (4096, 128, 32), (10_000, 157, 64), (100_000, 391, 256), (10**6, 3907, 256)],
)
def test_few_threads_are_spread_over_all_multiprocessors(monkeypatch, count, blocks, each):
    """As blocks of 256, 4096 of them leave 116 of 132 multiprocessors idle."""
    from calipers._cuda import runtime

    monkeypatch.setattr(runtime, "resident", lambda each: 132 * each)
    assert runtime.spread(count) == (blocks, each)


@needs_target
def test_asking_whether_a_kernel_has_run_is_no_error(monkeypatch, caplog):
    from calipers._cuda import runtime

    results = runtime.driver.CUresult
    statuses = [results.CUDA_ERROR_NOT_READY, results.CUDA_SUCCESS]
    stand_in = SimpleNamespace(cuEventQuery=lambda event: (statuses.pop(0),), CUresult=results)
    monkeypatch.setattr(runtime, "driver", stand_in)
    flag = object.__new__(runtime.Flag)
    flag._ended = SimpleNamespace(handle=7)
    assert [flag.is_done(), flag.is_done()] == [False, True]
    assert not caplog.records


@needs_target
def test_free_memory_is_asked_for_where_much_is_needed(monkeypatch):
    from numba.cuda.cudadrv.driver import CudaAPIError

    from calipers._cuda import runtime

    asked = []

    def info():
        asked.append(None)
        return 0, 5 << 30, 64 << 30

    results = runtime.driver.CUresult
    stand_in = {"cuMemGetInfo": info, "cuDeviceTotalMem": lambda ordinal: (0, 64 << 30)}
    monkeypatch.setattr(runtime, "driver", SimpleNamespace(**stand_in, CUresult=results))
    monkeypatch.setattr(runtime, "current", lambda: "a device of this test's")
    assert runtime.memory_for(1 << 30) == 8 << 30
    assert not asked
    assert runtime.memory_for(6 << 30) == 5 << 30

    def refuse(code):
        def device_array(shape, dtype):
            raise CudaAPIError(code, "no")

        monkeypatch.setattr(runtime.cuda, "device_array", device_array)

    refuse(results.CUDA_ERROR_OUT_OF_MEMORY)
    with pytest.raises(MemoryError, match="no memory left for an array of shape 7 and dtype f8"):
        runtime.empty(7, "f8")
    refuse(results.CUDA_ERROR_ILLEGAL_ADDRESS)
    with pytest.raises(CudaAPIError):
        runtime.empty(7, "f8")


OLD_DRIVERS = {
    11080: r"the driver has CUDA 11\.8, .*CUDA 13: install a newer driver$",
    12040: r'the driver has CUDA 12\.4, .*newer driver, or .*"numba-cuda\[cu12\]>=0\.30"',
}


@pytest.fixture
def driver_version(monkeypatch):
    """Return a function that sets the version of a driver, which has one device."""
    from cuda.bindings import driver

    from calipers._cuda import launch as _driver

    device = SimpleNamespace(name="a device", compute_capability=(9, 0))
    numba_cuda = SimpleNamespace(is_available=lambda: True, gpus=[device])
    monkeypatch.setattr(_driver, "cuda", numba_cuda)
    monkeypatch.setattr(_driver, "version", lambda name: "13.2.0")
    _driver._problem_of_driver.cache_clear()
    yield lambda n: monkeypatch.setattr(driver, "cuDriverGetVersion", lambda: (0, n))
    _driver._problem_of_driver.cache_clear()


@needs_target
@pytest.mark.parametrize("number", OLD_DRIVERS)
def test_a_driver_that_is_too_old_is_named_before_any_kernel(driver_version, number):
    from calipers._cuda import launch as _driver
    from calipers._cuda import launch as _launch

    driver_version(number)
    for require in (_driver.require_device, _driver.require_driver):
        with pytest.raises(RuntimeError, match=OLD_DRIVERS[number]) as caught:
            require()
    with pytest.raises(RuntimeError, match=OLD_DRIVERS[number]):
        _launch.launch(lambda: None, 0, (128, 256, 0), None, ())
    assert _driver.describe_devices() == [
        str(caught.value),
        "0: a device, compute capability 9.0",
    ]


@needs_target
@pytest.mark.parametrize("number", [13000, 13020, 14010])
def test_a_driver_of_the_compilers_version_or_newer_is_taken(driver_version, number):
    from calipers._cuda import launch as _driver

    driver_version(number)
    _driver.require_device()
    assert _driver.describe_devices() == ["0: a device, compute capability 9.0"]


@needs_target
def test_a_compiler_that_is_not_found_is_named(monkeypatch):
    from calipers._cuda import launch as _driver

    numba_cuda = SimpleNamespace(is_available=lambda: False, cuda_error=lambda: None)
    monkeypatch.setattr(_driver, "cuda", numba_cuda)
    with pytest.raises(RuntimeError, match=r"libNVVM is not found: pip install"):
        _driver.require_device()


def undefined(x, out):
    out[0] = x[0] + this_name_is_not_defined  # noqa: F821


def unsupported(x, out):
    out[0] = x.no_such_attribute


def unmatched(x, out):
    out[0] = len(x[0])


@needs_target
@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (undefined, "NameError: name 'this_name_is_not_defined' is not defined"),
        (unsupported, "Unknown attribute 'no_such_attribute' of type array(float64, 1d, C)"),
        (
            unmatched,
            "No implementation of function Function(<built-in function len>) found for "
            "signature: >>> len(float64)",
        ),
    ],
)
def test_errors_of_the_compiler_keep_their_reason(monkeypatch, ptx, f, reason):
    from numba import types

    from calipers._cuda import functions, runtime
    from calipers._cuda.kernels import differences

    kernel = differences.fill_values(runtime.device_function(f))
    points = values = types.float64[:, ::1]
    arguments = points, types.Tuple(()), types.Tuple(()), values, types.int64[::1]
    monkeypatch.setattr(runtime, "launch", lambda *launched, **layout: ptx(kernel, arguments))
    desk = SimpleNamespace(takes=lambda arrays: True, put=lambda arrays, stream: arrays)
    monkeypatch.setattr(runtime, "current", lambda: 0)
    monkeypatch.setattr(runtime, "borrow", lambda kind, ordinal: desk)
    with pytest.raises(TypeError) as caught:
        functions.launch(kernel, 1, None, [np.ones((1, 3))])
    assert str(caught.value).endswith(f": {reason}")


@needs_target
@pytest.mark.parametrize("debug", [False, True])
def test_launches_after_the_first_are_not_numbas(monkeypatch, debug):
    """By kernel, device and types; arrays, and kernels that report errors, are left to Numba."""
    from calipers._cuda import launch as _launch

    by_numba, by_core = [], []
    library = SimpleNamespace(get_cufunc=lambda: SimpleNamespace(kernel="machine code"))
    compiled = SimpleNamespace(debug=debug, cooperative=False, _codelibrary=library)

    class Kernel:
        typeof_pyval = staticmethod(type)

        def __init__(self):
            self.overloads = {}

        def __getitem__(self, layout):
            def launch(*arguments):
                by_numba.append((layout, arguments))
                self.overloads[tuple(map(type, arguments))] = compiled

            return launch

    core = SimpleNamespace(
        Stream=SimpleNamespace(from_handle=lambda handle: ("stream", handle)),
        LaunchConfig=lambda **layout: layout,
        launch=lambda *given: by_core.append(given),
    )
    monkeypatch.setattr(_launch, "core", core)
    monkeypatch.setattr(_launch, "require_driver", lambda: None)
    monkeypatch.setattr(_launch, "_compiled", WeakKeyDictionary())
    stream, kernel = type("Stream", (), {"handle": 7})(), Kernel()

    def launch(*arguments, kernel=kernel, ordinal=0):
        _launch.launch(kernel, ordinal, (128, 256, 0), stream, arguments)
        return len(by_numba)

    assert launch(5, ((3, 4), (0, 1)), 0.5, True) == 1
    assert launch(6, ((7, 8), (2, 3)), 1.5, False) == (2 if debug else 1)
    if debug:
        return
    layout = {"grid": 128, "block": 256, "shmem_size": 0}
    numbers = 6, 7, 8, 2, 3, 1.5, False
    assert by_core == [(("stream", 7), layout, "machine code", *numbers)]
    assert launch(6, ((7, 8), (2, 3)), 1, False) == 2  # an integer where a float was
    assert launch(6, ((7, 8, 2), (3,)), 1.5, False) == 3  # other tuples of as many numbers
    assert launch(6, (), 1.5, False, ordinal=1) == 4
    assert launch(6, (), 1.5, False, kernel=Kernel()) == 5
    for _ in range(2):
        before = len(by_numba)
        assert launch(np.ones(3), 2) == before + 1
    assert len(by_core) == 1
    assert list(_launch._compiled) == [kernel]  # the other one is gone, and what was known of it


@needs_target
@pytest.mark.parametrize(("x", "out"), [("float64", "float64"), ("float32", "float32")])
def test_the_kernels_of_a_jacobian_compile_for_a_device(ptx, x, out):
    from numba import types

    for kernel, arguments in difference_kernels(getattr(types, x), getattr(types, out)):
        for text in ptx(kernel, arguments):
            assert "st.global" in text or "st.f" in text  # what f computes is stored
            # An error ends a thread, and nothing else: blocks are counted as they begin and end.
            for step in (1, -1):
                assert re.search(rf"(?:atom|red)\.global\.add\.u64.*, {step};", text)


@needs_target
def test_the_rule_can_be_asked_by_a_users_own_kernel(ptx):
    from numba import cuda, types

    @cuda.jit
    def kernel(a, b, out):
        i = cuda.grid(1)
        if i < out.size:
            near = calipers.isclose(a[i], b[i])
            out[i] = near and calipers.allclose(a[i], b[i], rtol=1e-9, equal_nan=True)

    array = types.float64[::1]
    for text in ptx(kernel, (array, array, types.boolean[::1])):
        assert "fma" not in text
        assert re.search(r"begin inline asm\s+mul\.rn\.f64", text)


@needs_target
@pytest.mark.parametrize("kind", ["float32", "float64", "complex128", "int64", "bool"])
def test_whole_arrays_can_be_compared_by_a_users_own_kernel(ptx, kind):
    from numba import cuda, types

    @cuda.jit
    def kernel(a, b, out):
        out[0] = calipers.allclose(a, b)

    element = types.boolean if kind == "bool" else getattr(types, kind)
    for a, b in (
        (element[::1], element[::1]),
        (element[:, :], element[::1]),
        (element[:], types.float64),
    ):
        for text in ptx(kernel, (a, b, types.boolean[::1])):
            assert ".extern .func" not in text  # which a device has not to link
            assert "fma" not in text


# Compiles a kernel to machine code for a device that is not there, or finds it in the cache.
COMPILED = """
from types import SimpleNamespace
from numba import types
from numba.cuda import codegen, dispatcher, launchconfig

device = SimpleNamespace(compute_capability=(9, 0))
dispatcher.get_current_device = lambda: device
codegen.devices = SimpleNamespace(get_context=lambda: SimpleNamespace(device=device))
bound = []
dispatcher._Kernel.bind = lambda self: bound.append(self._codelibrary.get_cubin((9, 0)))
launchconfig.current_launch_config = lambda: None
dispatcher.CUDADispatcher._configure_cache_for_launch_config = lambda *_: None

from calipers._cuda.kernels.closeness import mask
from calipers._cuda.launch import policy_of

kernel = mask(("float64", "float64"), True, policy_of(8, True, 6))
pair = types.int64, types.int64, types.Tuple(()), types.int64
numbers = types.float64, types.float64, types.boolean, types.int64
compiled = kernel.compile((*pair, *numbers))
code = compiled._codelibrary.get_cubin((9, 0)).code
print("cached" if kernel._cache_hits else "compiled", hash(bytes(code)), len(bound))
"""


@pytest.mark.slow
@needs_target
def test_machine_code_is_kept_until_a_rule_changes(tmp_path):
    sources = tmp_path / "calipers"
    package = ROOT / "src" / "calipers"
    shutil.copytree(package, sources, ignore=shutil.ignore_patterns("__pycache__"))
    folders = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    environment = {**os.environ, **folders, "PYTHONHASHSEED": "0"}

    def run(**more):
        command = [sys.executable, "-c", COMPILED]
        done = subprocess.run(
            command, env=environment | more, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.split()

    first, again = run(), run()
    assert (first[0], again[0]) == ("compiled", "cached")
    assert first[1:] == again[1:]  # loaded to the device before any thread may launch it
    assert run(CALIPERS_CACHE="0")[0] == "compiled"
    rule = sources / "_kernels" / "scalar" / "closeness.py"
    text = rule.read_text()
    assert text.count("return equal_nan and a != a and b != b") == 1
    rule.write_text(text.replace("return equal_nan and a != a and b != b", "return equal_nan"))
    edited = run()
    assert edited[0] == "compiled"
    assert edited[1] != first[1]
    for file in (tmp_path / "cache").rglob("*.nb*"):
        file.write_bytes(b"damaged")
    assert run() == edited


def test_a_target_that_is_not_there():
    code = """
import numpy as np, calipers
try:
    calipers.jacobian(lambda x, out: None, np.ones(3), out_like=3, target="cuda")
except (ImportError, RuntimeError) as error:
    print(type(error).__name__, error)
"""
    if importlib.util.find_spec("numba_cuda") is None:
        expected = f"ImportError .*{re.escape(install_command())}"
    else:
        expected = "RuntimeError there is no CUDA device to run on: .+"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert re.search(expected, done.stdout)


def test_a_numpy_that_the_target_does_not_work_with():
    pytest.importorskip("numba_cuda")
    code = """
import numpy as np
np.__dict__.pop("row_stack", None)
import calipers
from calipers._core.libraries import install_command
calipers.show_config(devices=True)
try:
    calipers.jacobian(lambda x, out: None, np.ones(3), out_like=3, target="cuda")
except ImportError as error:
    print(error.__cause__)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = rf"numba-cuda \S+, numba \S+, numpy {np.__version__} do not work together \(.*row_stack"
    assert len(re.findall(rf'{told}.*pip install .*"numpy<2.5"', done.stdout)) == 2


def test_importing_calipers_asks_for_no_device():
    code = "import sys, calipers; calipers.allclose; print('numba.cuda' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
