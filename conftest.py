"""What pytest collects: modules of the CUDA target import only where numba-cuda is installed."""

from importlib.util import find_spec

collect_ignore_glob = (
    [] if find_spec("numba_cuda") else ["src/calipers/_device/*", "src/calipers/_kernels/cuda/*"]
)
