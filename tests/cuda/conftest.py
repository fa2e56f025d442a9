"""Tests on a device: a simulated one (NUMBA_ENABLE_CUDASIM=1), or a real one (CALIPERS_GPU=1)."""

import os

chosen = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1" or os.environ.get("CALIPERS_GPU") == "1"
collect_ignore_glob = [] if chosen else ["test_*.py"]
