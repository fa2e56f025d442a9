"""Tests on a device: a simulated one (NUMBA_ENABLE_CUDASIM=1), or a real one (CALIPERS_GPU=1)."""

import os
import time

simulated = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
chosen = simulated or os.environ.get("CALIPERS_GPU") == "1"
collect_ignore_glob = [] if chosen else ["test_*.py"]

# jax would take three quarters of the device's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

if simulated:
    from numba.cuda.simulator.kernel import BlockThread

    is_alive = BlockThread.is_alive

    def patiently(thread):
        """Who asks its threads without end holds the interpreter, for which they wait."""
        time.sleep(1e-6)
        return is_alive(thread)

    BlockThread.is_alive = patiently
