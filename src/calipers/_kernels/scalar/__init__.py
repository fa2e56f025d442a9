"""Rules for one number or one pair, called by the CPU's loops and by CUDA kernels."""
