"""CUDA loops around the rules of `_kernels`, file by file; nothing else imports numba.cuda."""

# numba-cuda works with no newer NumPy, and is tested with no newer Numba.
WITH = '"numba<0.69" "numpy<2.5"'


def install_command(cuda_major: int = 13) -> str:
    """Return the command that installs what arrays on a CUDA device need."""
    return f'pip install "numba-cuda[cu{cuda_major}]>=0.30" {WITH}'
