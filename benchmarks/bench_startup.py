"""A fresh process: imports, and the first call with and without a disk cache."""

import numpy as np

import calipers

FIRST_CALL = "import calipers; calipers.allclose(a, a)"
# Numba is imported ahead of the clock: its half second is not calipers' to save.
NUMBA_LOADED = "import numba, numpy; a = numpy.ones(10)"
# At its first compilation Numba imports scipy.linalg, where there is one.
NO_SCIPY = "import sys; sys.modules['scipy'] = None; "
NO_CACHE = "import os; os.environ['CALIPERS_CACHE'] = '0'; " + NUMBA_LOADED
# Numba loads the rest of its compiler ahead of the clock, at a first compilation.
COMPILER_LOADED = NO_CACHE + "; import calipers; numba.njit(lambda x: x)(1.0)"
TRIVIAL_COMPILATION = "numba.njit(lambda x: x + 1)(1.0)"
_DATA = """
b = a.copy()
b[3] += 0.1
def f(x): return x * x
g = numba.njit(f)
g(a)
"""
_FAILS = """
try: calipers.assert_close({a}, {b})
except AssertionError as error: str(error)
"""
_FAILS_IN_FLOAT32 = _FAILS.format(a="a.astype('f4')", b="b.astype('f4')")
# First calls of a process without a cache: what comes before the clock, and what is measured.
FIRST_CALLS = {
    "allclose": (_DATA, FIRST_CALL),
    "assert_close that fails": (_DATA, _FAILS.format(a="a", b="b")),
    "assert_close that fails, of a further dtype": (
        _DATA + _FAILS.format(a="a", b="b"),
        _FAILS_IN_FLOAT32,
    ),
    "jacobian of a Python f": (_DATA, "calipers.jacobian(f, a)"),
    "jacobian of an @njit f": (_DATA, "calipers.jacobian(g, a)"),
    "diagnose": (_DATA, "calipers.diagnose(f, lambda x: x**2, a)"),
    "gradcheck": (
        _DATA,
        "calipers.gradcheck(numpy.sin, a, vjp=lambda x, w: w * numpy.cos(x))",
    ),
    "differentiate": (_DATA, "calipers.differentiate(numpy.sin, a)"),
}


class Startup:
    def setup(self):
        calipers.allclose(np.ones(10), np.ones(10))  # fills the disk cache

    def timeraw_import_calipers(self):
        return "import calipers"

    def timeraw_import_numpy(self):
        return "import numpy"

    def timeraw_first_call(self):
        return FIRST_CALL, NUMBA_LOADED

    def timeraw_first_call_without_cache(self):
        return FIRST_CALL, NO_CACHE

    def timeraw_first_call_without_cache_and_scipy(self):
        return FIRST_CALL, NO_SCIPY + NO_CACHE

    def timeraw_trivial_compilation(self):
        return TRIVIAL_COMPILATION, COMPILER_LOADED


class FirstCalls:
    params = tuple(FIRST_CALLS)

    def timeraw_without_cache(self, name):
        before, code = FIRST_CALLS[name]
        return code, COMPILER_LOADED + before
