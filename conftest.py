"""What pytest collects, and what the tests expect of the process that they run in."""

import gc
import signal
from importlib.util import find_spec

import pytest

# Modules of the CUDA target import only where numba-cuda is installed.
collect_ignore_glob = (
    [] if find_spec("numba_cuda") else ["src/calipers/_device/*", "src/calipers/_kernels/cuda/*"]
)

# What tests import from there asserts, and says as much as a test does.
pytest.register_assert_rewrite("tests.derivative_functions")

# Who is started in the background of a shell ignores Ctrl-C, and so do all that it starts; some
# tests interrupt them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep what was collected out of each search for garbage: it is a tenth of the suite's time."""
    gc.collect()
    gc.freeze()
