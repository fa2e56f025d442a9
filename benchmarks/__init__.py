"""Benchmarks: asv classes in ``bench_*.py``, and every bar of the README by ``__main__``.

asv imports every module here, in environments with NumPy, Numba and SciPy alone, and runs every
function whose name begins as its own do (``time_``). Programs that need more are folders with a
``__main__.py`` and no ``__init__.py``, which asv does not import.
"""
