"""CUDA loops around the rules of `_kernels`, file by file; nothing else imports numba.cuda."""
