"""Tests of the package's core."""

# The code of a process begins with this if its calls, which are of few numbers, are to compile.
KERNELS_ONLY = "import calipers._core.jit; calipers._core.jit.WORK_TO_COMPILE = 0\n"
