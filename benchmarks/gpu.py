"""calipers on a device against its peers there, and against what the device itself can do.

``python -m benchmarks.gpu [MiB ...]`` writes tables, and the numbers as JSON beside them, to
``benchmarks/results``. Times are medians, with the device idle before and after each call. In the
simulator (NUMBA_ENABLE_CUDASIM=1) it runs through, with small arrays, and writes nothing.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else jax takes all memory

import numpy as np
from numba import config, cuda

import calipers

from .common import table

RESULTS = Path(__file__).parent / "results"
SIMULATED = bool(config.ENABLE_CUDASIM)
SIZES = [2.0**k for k in (-10, -4, 0, 4, 8, 10, 11)]  # MiB of each array
PLACES = (0.0, 0.5)  # of the one mismatch, as shares of the array
REPEATS = 2 if SIMULATED else 25
COLUMNS = 8 if SIMULATED else 4096


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


def peers():
    """Yield a name, what makes an array of the peer's of one on the host, and its allclose."""
    with suppress(ImportError):
        torch = import_module("torch")
        if torch.cuda.is_available():
            yield "torch", lambda x: torch.from_numpy(x).cuda(), torch.allclose
    with suppress(ImportError):
        cupy = import_module("cupy")
        yield "cupy", cupy.asarray, lambda a, b: bool(cupy.allclose(a, b))


def closeness(sizes):
    """Time equal arrays, and one mismatch at some places."""
    for dtype in ("float32", "float64"):
        for size in sizes:
            count = int(size * 2**20) // np.dtype(dtype).itemsize
            host = np.random.default_rng(0).random(count, dtype)
            a, b = cuda.to_device(host), cuda.to_device(host)
            moved = 2 * host.nbytes
            copy = seconds(lambda a=a, b=b: b.copy_to_device(a))
            spent = seconds(lambda a=a, b=b: calipers.allclose(a, b))
            row = {
                "dtype": dtype,
                "MiB": size,
                "equal, us": 1e6 * spent,
                "GB/s": moved / spent / 1e9,
                "of a copy": copy / spent,
            }
            for place in PLACES:
                other = host.copy()
                other[int(place * count)] += 1
                c = cuda.to_device(other)
                early = seconds(lambda a=a, c=c: calipers.allclose(a, c))
                row[f"differs at {place:.0%}, us"] = 1e6 * early
                del c
            del a, b
            for name, put, allclose in peers():
                x, y = put(host), put(host)
                row[f"times {name}"] = seconds(lambda x=x, y=y, f=allclose: f(x, y)) / spent
                row[f"times {name}, its arrays"] = seconds(
                    lambda x=x, y=y, f=allclose: f(x, y)
                ) / seconds(lambda x=x, y=y: calipers.allclose(x, y))
                del x, y
            yield row


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
    n = x.size
    return x[(i + 1) % n] - 2.0 * x[i] + x[(i + n - 1) % n] + math.sin(x[i])


def jacobians():
    """Time a dense Jacobian of a function of few operations: n*n numbers have to be written."""
    for dtype in ("float64", "float32"):
        host = np.random.default_rng(0).random(COLUMNS).astype(dtype)
        x = cuda.to_device(host)
        f = cuda.jit(device=True)(_reaction)
        whole = cuda.device_array((COLUMNS, COLUMNS), dtype)
        other = cuda.device_array((COLUMNS, COLUMNS), dtype)
        copy = seconds(lambda a=whole, b=other: b.copy_to_device(a))
        del other
        for method in ("2-point", "3-point"):
            spent = seconds(
                lambda x=x, f=f, method=method: calipers.jacobian(
                    f, x, rowwise=True, out_like=x_like(x), method=method
                )
            )
            row = {
                "dtype": dtype,
                "n": COLUMNS,
                "method": method,
                "us": 1e6 * spent,
                "GB/s written": whole.nbytes / spent / 1e9,
                "of a copy's bandwidth": (copy / 2) / spent,
            }
            for name, jacfwd in forward_modes(host):
                row[f"times {name}"] = seconds(jacfwd) / spent
            yield row


def x_like(x):
    """Return a small thing of the dtype and shape of a device array."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)


def forward_modes(host):
    """Yield libraries that differentiate the same function by forward mode on the device."""
    with suppress(ImportError):
        torch = import_module("torch")
        if torch.cuda.is_available():
            x = torch.from_numpy(host).cuda()

            def f(x):
                return torch.roll(x, -1) - 2.0 * x + torch.roll(x, 1) + torch.sin(x)

            yield "torch.func.jacfwd", lambda: torch.func.jacfwd(f)(x)
    with suppress(ImportError):
        jax = import_module("jax")
        if jax.default_backend() == "gpu":
            jax.config.update("jax_enable_x64", True)
            np_ = jax.numpy
            at = np_.asarray(host)
            jacfwd = jax.jit(
                jax.jacfwd(lambda x: np_.roll(x, -1) - 2.0 * x + np_.roll(x, 1) + np_.sin(x))
            )
            yield "jax.jacfwd", lambda: jacfwd(at).block_until_ready()


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
    from calipers._kernels.cuda import closeness as loops

    for kind in ("float16", "float32", "float64", "complex128", "int64"):
        policy = loops_policy(kind)
        kernel = loops.apart((kind, kind), True, policy)
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
    from calipers._kernels.cuda._target import policy
    from calipers._kernels.cuda.closeness import searches

    itemsize = 2 if kind == "float16" else np.dtype(kind).itemsize
    return policy(itemsize, True, searches({kind}, True))


def main(sizes):
    device = "Numba's simulator"
    if not SIMULATED:
        device = cuda.get_current_device().name
        device = device.decode() if isinstance(device, bytes) else device
    parts = {
        "allclose": list(closeness(sizes)),
        "The floor": list(floor()),
        "jacobian": list(jacobians()),
    }
    if not SIMULATED:
        parts["First call"] = list(first_call())
        parts["Kernels"] = list(kernels())
    texts = [f"{name}\n\n{table(rows)}\n" for name, rows in parts.items()]
    text = f"Measured on {device}.\n\n" + "\n".join(texts)
    print(text)
    if not SIMULATED:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "gpu.md").write_text(text)
        (RESULTS / "gpu.json").write_text(json.dumps({"device": device, **parts}, indent=1))


if __name__ == "__main__":
    given = [float(size) for size in sys.argv[1:]]
    main(given or ([2.0**-10] if SIMULATED else SIZES))
