"""calipers on a device against its peers there, and against what the device itself can do.

``python -m benchmarks.gpu [MiB ...]`` writes tables, and the numbers as JSON beside them, to
``benchmarks/results``, after each row. Times are medians, with the device idle before and after
each call; those of kernels are the device's own, between two events. What fails is said in its
place, and by exit status 1. In the simulator (NUMBA_ENABLE_CUDASIM=1) it runs through, with small
arrays, and writes nothing.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else jax takes all memory

import numpy as np
from numba import config, cuda

import calipers
from calipers._cuda import runtime as target

from ..common import table

RESULTS = Path(__file__).parent.parent / "results"
SIMULATED = bool(config.ENABLE_CUDASIM)
SIZES = [2.0**k for k in (-10, -4, 0, 4, 8, 10, 11)]  # MiB of each array
PLACES = (0.0, 0.5)  # of the one mismatch, as shares of the array
REPEATS = 1 if SIMULATED else 25
COLUMNS = 8 if SIMULATED else 4096
BUSY = 8 if SIMULATED else 1 << 27  # bytes of the copies before a kernel that is timed
FAILED = "failed: "


@contextmanager
def recorded(row, what):
    """Enter into a row what went wrong: one size or peer is not the end of all."""
    try:
        yield
    except Exception as error:
        first = str(error).strip().partition("\n")[0].replace("|", "/")
        where = "then" if what in row else what
        row[where] = f"{FAILED}{type(error).__name__}: {first[:120]}"


def seconds(work):
    """Return the median time of a call."""
    work()
    times = []
    for _ in range(REPEATS):
        cuda.synchronize()
        start = perf_counter()
        work()
        cuda.synchronize()
        times.append(perf_counter() - start)
    return median(times)


def kernel_seconds(work):
    """
    Return the median time of the one kernel that a call launches.

    Copies keep the device busy until the kernel is queued: between its events is no time of the
    host.
    """
    launch, times = target.launch, []
    a, b = _busy()

    def timed(kernel, blocks, stream, *arguments, **layout):
        start, end = cuda.event(), cuda.event()
        for _ in range(4):
            b.copy_to_device(a, stream=stream)
        start.record(stream)
        launch(kernel, blocks, stream, *arguments, **layout)
        end.record(stream)
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)

    work()
    target.launch = timed
    try:
        for _ in range(REPEATS):
            work()
    finally:
        target.launch = launch
    return median(times)


@cache
def _busy():
    return cuda.device_array(BUSY, np.uint8), cuda.device_array(BUSY, np.uint8)


class Kept:
    """Memory that a call takes again in the next one, as from the pools of the peers."""

    def __init__(self):
        self._arrays, self._taken, self._empty = defaultdict(list), defaultdict(int), target.empty

    def __call__(self, shape, dtype):
        key = shape, np.dtype(dtype)
        self._taken[key] += 1
        if self._taken[key] > len(self._arrays[key]):
            self._arrays[key].append(self._empty(shape, dtype))
        return self._arrays[key][self._taken[key] - 1]

    def seconds(self, work):
        """Return the median time of a call."""

        def again():
            self._taken.clear()
            work()

        target.empty = self
        try:
            return seconds(again)
        finally:
            target.empty = self._empty


def tidy():
    """Give back memory that was freed, which pools hold and Numba has not got round to."""
    if not SIMULATED:
        cuda.current_context().deallocations.clear()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()
    if "cupy" in sys.modules:
        sys.modules["cupy"].get_default_memory_pool().free_all_blocks()


@cache
def found(name):
    """Return a library that has a device, or None and why not."""
    try:
        library = import_module(name)
        usable = {
            "torch": lambda: library.cuda.is_available(),
            "cupy": lambda: library.cuda.runtime.getDeviceCount() > 0,
            "jax": lambda: library.default_backend() == "gpu",
        }[name]()
    except Exception as error:  # whatever a broken installation raises
        return None, f"{type(error).__name__}: {error}".partition("\n")[0].replace("|", "/")
    return (library, "") if usable else (None, "it finds no device")


def libraries():
    """Tell which peers there are."""
    for name in ("torch", "cupy", "jax"):
        library, why = found(name)
        yield {"peer": name, "version": library.__version__ if library else f"none: {why}"}


def peers():
    """Yield a name, what makes an array of the peer's of one on the host, and its allclose."""
    torch, cupy = found("torch")[0], found("cupy")[0]
    if torch:
        yield "torch", lambda x: torch.from_numpy(x).cuda(), torch.allclose
    if cupy:
        yield "cupy", cupy.asarray, lambda a, b: bool(cupy.allclose(a, b))


def closeness(sizes):
    """Time equal arrays, and one mismatch at some places."""
    for dtype in ("float32", "float64"):
        for size in sizes:
            row = {"dtype": dtype, "MiB": size}
            with recorded(row, "equal, us"):
                time_pair(
                    row,
                    np.random.default_rng(0).random(
                        int(size * 2**20) // np.dtype(dtype).itemsize, dtype
                    ),
                )
            tidy()
            yield row


def time_pair(row, host):
    """Enter the times of two arrays like one on the host, and of the peers with them."""
    spent = time_own(row, host)
    for name, put, allclose in peers():
        with recorded(row, f"times {name}"):
            time_peer(row, host, spent, name, put, allclose)
        tidy()


def time_own(row, host):
    """Enter the times of calipers, and return that of equal arrays."""
    a, b = cuda.to_device(host), cuda.to_device(host)
    moved = 2 * host.nbytes
    copy = seconds(lambda: b.copy_to_device(a))
    spent = seconds(lambda: calipers.allclose(a, b))
    row["equal, us"] = 1e6 * spent
    row["GB/s"] = moved / spent / 1e9
    row["of a copy"] = copy / spent
    with recorded(row, "its kernel, us"):
        row["its kernel, us"] = 1e6 * kernel_seconds(lambda: calipers.allclose(a, b))
    for place in PLACES:
        what = f"differs at {place:.0%}, us"
        with recorded(row, what):
            other = host.copy()
            other[int(place * host.size)] += 1
            c = cuda.to_device(other)
            row[what] = 1e6 * seconds(lambda c=c: calipers.allclose(a, c))
    return spent


def time_peer(row, host, spent, name, put, allclose):
    """Enter how many times as long a peer takes; and beside calipers on arrays of the peer's."""
    x, y = put(host), put(host)
    own = seconds(lambda: allclose(x, y))
    row[f"times {name}"] = own / spent
    row[f"times {name}, its arrays"] = own / seconds(lambda: calipers.allclose(x, y))


@cuda.jit
def _nothing(flag):
    if cuda.grid(1) == 0:
        flag[0] = 1


def floor():
    """Time a launch, and an answer of four bytes by three ways."""
    on_device = cuda.to_device(np.zeros(1, np.int32))
    pinned, mapped = cuda.pinned_array(1, np.int32), cuda.mapped_array(1, np.int32)
    stream = cuda.default_stream()
    launch = _nothing[1, 32, stream]

    def pageable():
        launch(on_device)
        on_device.copy_to_host()

    def by_pinned():
        launch(on_device)
        on_device.copy_to_host(pinned, stream=stream)
        stream.synchronize()

    def by_mapped():
        launch(mapped)
        stream.synchronize()

    small = cuda.to_device(np.zeros(16))
    yield {"what": "launch alone", "us": 1e6 * seconds(lambda: launch(on_device))}
    yield {"what": "launch and answer, pageable memory", "us": 1e6 * seconds(pageable)}
    yield {"what": "launch and answer, pinned memory", "us": 1e6 * seconds(by_pinned)}
    yield {"what": "launch and answer, mapped memory", "us": 1e6 * seconds(by_mapped)}
    yield {
        "what": "allclose of 16 elements",
        "us": 1e6 * seconds(lambda: calipers.allclose(small, small)),
    }


def _reaction(i, x):
    """Compute a row of a reaction-diffusion equation on a ring."""
    # A remainder of 64 bits takes a device longer than all the rest.
    after = i + 1 if i + 1 < x.size else 0
    before = i - 1 if i > 0 else x.size - 1
    return x[after] - 2.0 * x[i] + x[before] + math.sin(x[i])


def jacobians():
    """Time a dense Jacobian of a function of few operations: n*n numbers have to be written."""
    for dtype in ("float64", "float32"):
        for method in ("2-point", "3-point"):
            row = {"dtype": dtype, "n": COLUMNS, "method": method}
            with recorded(row, "call, us"):
                time_jacobian(row, np.random.default_rng(0).random(COLUMNS).astype(dtype), method)
            tidy()
            yield row


def time_jacobian(row, host, method):
    """
    Enter the times of a call, of one that finds memory, as the peers do, and of the kernel alone.

    A call takes new memory for its result, which takes a driver long.
    """
    x = cuda.to_device(host)
    f = cuda.jit(device=True)(_reaction)
    written, copy = copied(host.dtype)

    def work():
        return calipers.jacobian(f, x, rowwise=True, out_like=x_like(x), method=method)

    row["call, us"] = 1e6 * seconds(work)
    kept = Kept().seconds(work)
    row["memory kept, us"] = 1e6 * kept
    kernel = kernel_seconds(work)
    row["kernel, us"] = 1e6 * kernel
    row["GB/s written by the kernel"] = written / kernel / 1e9
    row["kernel of a copy's bandwidth"] = (copy / 2) / kernel
    for name, jacfwd in (("torch.func.jacfwd", torch_forward), ("jax.jacfwd", jax_forward)):
        what = f"{name}, times memory kept"
        library = found(name.partition(".")[0])[0]
        if library:
            with recorded(row, what):
                row[what] = seconds(jacfwd(library, host)) / kept
            tidy()


def copied(dtype):
    """Return the bytes of a Jacobian, and how long a copy of it takes."""
    a, b = (cuda.device_array((COLUMNS, COLUMNS), dtype) for _ in range(2))
    return a.nbytes, seconds(lambda: b.copy_to_device(a))


def x_like(x):
    """Return a small thing of the dtype and shape of a device array."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)


def torch_forward(torch, host):
    """Return what differentiates the same function by torch's forward mode."""
    x = torch.from_numpy(host).cuda()
    jacfwd = torch.func.jacfwd(
        lambda x: torch.roll(x, -1) - 2.0 * x + torch.roll(x, 1) + torch.sin(x)
    )
    return lambda: jacfwd(x)


def jax_forward(jax, host):
    """Return what differentiates the same function by jax's forward mode, compiled."""
    jax.config.update("jax_enable_x64", True)
    np_ = jax.numpy
    x = np_.asarray(host)
    jacfwd = jax.jit(jax.jacfwd(lambda x: np_.roll(x, -1) - 2.0 * x + np_.roll(x, 1) + np_.sin(x)))
    return lambda: jacfwd(x).block_until_ready()


FIRST = """
import time
import numpy as np
from numba import cuda
x = cuda.to_device(np.ones(1000))
start = time.perf_counter()
import calipers
calipers.allclose(x, x)
print(time.perf_counter() - start)
"""


def first_call():
    """Time the first question of a process, after numba.cuda: without cached kernels, and with."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        for what in ("no cache", "disk cache"):
            done = subprocess.run(
                [sys.executable, "-c", FIRST],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            yield {"first allclose of a process": what, "s": float(done.stdout)}


def kernels():
    """Tell what each thread of a kernel takes."""
    from calipers._cuda.kernels import closeness as loops

    for kind in ("float16", "float32", "float64", "complex128", "int64"):
        policy = loops_policy(kind)
        kernel = loops.any_mismatch((kind, kind), True, policy)
        carrier = np.dtype(np.uint16 if kind == "float16" else kind)
        x = cuda.to_device(np.zeros(policy.tile, carrier))
        calipers.allclose(x.view(np.float16) if kind == "float16" else x, x.view(kind))
        registers = kernel.get_regs_per_thread()
        yield {
            "kernel": f"allclose of {kind}",
            "threads": policy.threads,
            "elements in flight": policy.items,
            "registers": max(registers.values()) if isinstance(registers, dict) else registers,
        }


def loops_policy(kind):
    from calipers._cuda.kernels.closeness import searches
    from calipers._cuda.runtime import policy

    itemsize = 2 if kind == "float16" else np.dtype(kind).itemsize
    return policy(itemsize, True, searches({kind}, True))


def write(device, results):
    """Write what has been measured so far."""
    texts = [f"{name}\n\n{table(rows)}\n" for name, rows in results.items()]
    text = f"Measured on {device}.\n\n" + "\n".join(texts)
    if not SIMULATED:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "gpu.md").write_text(text)
        (RESULTS / "gpu.json").write_text(json.dumps({"device": device, **results}, indent=1))
    return text


def main(sizes):
    """Measure all parts, and tell whether all went well."""
    device = "Numba's simulator"
    if not SIMULATED:
        device = cuda.get_current_device().name
        device = device.decode() if isinstance(device, bytes) else device
    parts = {
        "Peers": libraries(),
        "allclose": closeness(sizes),
        "The floor": floor(),
        "jacobian": jacobians(),
    }
    if not SIMULATED:
        parts |= {"First call": first_call(), "Kernels": kernels()}
    results = {}
    for name, part in parts.items():
        end = {}
        rows = results[name] = []
        with recorded(end, "the rest"):
            for row in part:
                rows.append(row)
                write(device, results)
        rows += [end] if end else []
        text = write(device, results)
    print(text)
    whole = [value for rows in results.values() for row in rows for value in row.values()]
    return not any(str(value).startswith(FAILED) for value in whole)


if __name__ == "__main__":
    given = [float(size) for size in sys.argv[1:]]
    sys.exit(not main(given or ([2.0**-10] if SIMULATED else SIZES)))
