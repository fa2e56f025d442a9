"""Peak memory beyond the inputs: nothing per element, but for the one byte of isclose."""

import subprocess
import sys

import pytest

from tests.core import KERNELS_ONLY
from tests.data.peak_memory import PEAK

pytestmark = pytest.mark.slow

N = 24_000_000  # a byte per element is 24 MB
SLACK = 10e6  # buffers, the pool's stacks, what the allocator keeps

SETUP = f"""{KERNELS_ONLY}
import sys
import numpy as np
import calipers
n = {N}
{PEAK}
"""

# inputs, and the same expression small enough to compile and start the pool beforehand
LAYOUTS = {
    "contiguous": "x = np.ones(n); y = np.ones(n)",
    "strided": "x = np.ones(2 * n)[::2]; y = np.ones(n)",
    "transposed": "x = np.ones((n // 4000, 4000)); y = np.ones((4000, n // 4000)).T",
    "permuted": "x = np.ones((8, n // 32, 4)).swapaxes(0, 1); y = np.ones((n // 32, 8, 4))",
    "broadcast": "x = np.ones((n // 4000, 4000)); y = np.ones(4000)",
    "zero strides": "x = np.broadcast_to(1.0, n); y = np.broadcast_to(1.0, n)",
    "mixed": "x = np.ones(n, 'f4'); y = np.ones(n, 'i8')",
    "byteswapped": "x = np.ones(n, '>f8'); y = np.ones(n)",
    "read-only": "x = np.ones(n); y = np.ones(n); y.flags.writeable = False",
}

UNCHECKED = "check_dtype=False, check_shape=False"
CALLS = {
    "allclose": ("calipers.allclose(x, y)", 0),
    "axis": ("calipers.allclose(x, y, axis=-1)", 0),
    "array tolerances": ("calipers.allclose(x, y, rtol=rtol)", 0),
    "compare": (f"calipers.compare(x, y, {UNCHECKED})", 0),
    "compare, failing": (f"calipers.compare(x, y, max_ulp=0, {UNCHECKED})", 0),
    "assert_close": (f"calipers.assert_close(x, y, {UNCHECKED})", 0),
    "isclose": ("calipers.isclose(x, y)", 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_peak(layout):
    make, rtol = LAYOUTS[layout], "rtol = np.ones(x.shape[-1:])"
    code = SETUP + f"n, full = 400_000, n\n{make}\n{rtol}\n"
    code += "".join(f"{call}\n" for call, _ in CALLS.values())
    code += f"n = full\n{make}\n{rtol}\n"
    # in rising order: the peak of a process never falls
    code += "".join(
        f"before = peak(); {call}; print(peak() - before)\n" for call, _ in CALLS.values()
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    growth = dict(zip(CALLS, map(int, done.stdout.split()), strict=True))
    for name, (_, per_element) in CALLS.items():
        assert growth[name] <= per_element * N + SLACK, (name, growth)


DERIVATIVES = {
    "compiled": "calipers.jacobian(compiled, x, out_like=x)",
    "python": "calipers.jacobian(python, x)",
    "batched": "calipers.jacobian(python, x, batched=True)",
    "adaptive": "calipers.jacobian(compiled, x, method='adaptive', out_like=x)",
    "adaptive, batched": "calipers.jacobian(python, x, method='adaptive', batched=True)",
    "vjp": "calipers.vjp(compiled, x, x, out_like=x)",
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_a_derivative_takes_no_more_than_its_result(name):
    size = 3000
    code = SETUP + (
        "import numba\n"
        "@numba.njit\n"
        "def compiled(x, out):\n"
        "    for i in range(x.size):\n"  # Numba compiles out[:] = 2 * x for two seconds
        "        out[i] = 2 * x[i]\n"
        "    out[0] = x.sum()\n"
        "python = np.sin\n"
        f"x = np.ones(50)\n{DERIVATIVES[name]}\n"
        f"x = np.ones({size})\nbefore = peak()\nresult = {DERIVATIVES[name]}\n"
        "print(peak() - before, result.nbytes)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    growth, nbytes = map(int, done.stdout.split())
    assert growth <= 1.2 * nbytes + SLACK
