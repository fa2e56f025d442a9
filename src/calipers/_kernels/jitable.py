"""How functions are compiled that are called by kernels alone."""

from numba.extending import register_jitable

# Without an entry for C, which nobody calls: those of a report's kernel take a seventh of its time.
jitable = register_jitable(no_cfunc_wrapper=True)
