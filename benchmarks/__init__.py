"""Benchmarks: asv classes in ``bench_*.py``, and every bar of the README by ``__main__``."""
