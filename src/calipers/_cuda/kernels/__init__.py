"""Kernels of Numba's CUDA target."""
