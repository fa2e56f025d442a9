"""Tests on a device: a simulated one (NUMBA_ENABLE_CUDASIM=1), or a real one (CALIPERS_GPU=1)."""

import os
import threading
import time

simulated = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
chosen = simulated or os.environ.get("CALIPERS_GPU") == "1"
collect_ignore_glob = [] if chosen else ["test_*.py"]

# jax would take three quarters of the device's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

if simulated:
    from numba.core.registry import cpu_target
    from numba.cuda.simulator.kernel import BlockManager, BlockThread
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    # Numba's extensions register their types at the first compilation. A thread of a block that
    # compiles would do so while other threads iterate over the registered types.
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()

    is_alive = BlockThread.is_alive
    run = BlockManager.run
    prepare = FakeCUDAShared.__init__

    class Allocations(dict):
        """A block's shared arrays; the thread that finds none keeps others out until it made one.

        The simulator looks, allocates and stores: a thread that looks in between allocates again,
        and has the array for itself.
        """

        def __init__(self):
            super().__init__()
            self._lock = threading.Lock()

        def get(self, line):
            self._lock.acquire()
            found = super().get(line)
            if found is not None:
                self._lock.release()
            return found

        def __setitem__(self, line, array):
            super().__setitem__(line, array)
            self._lock.release()

    def one_at_a_time(shared, size):
        prepare(shared, size)
        shared._allocations = Allocations()

    def patiently(thread):
        """Who asks its threads without end holds the interpreter, for which they wait."""
        time.sleep(1e-6)
        return is_alive(thread)

    def to_the_end(block, *args):
        """Wait for threads that an error leaves behind, for whom modules' `cuda` is theirs."""
        try:
            run(block, *args)
        finally:
            for thread in threading.enumerate():
                if isinstance(thread, BlockThread) and thread._manager is block:
                    thread.join()

    BlockManager.run = to_the_end
    FakeCUDAShared.__init__ = one_at_a_time
    BlockThread.is_alive = patiently
