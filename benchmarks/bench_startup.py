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
FIRST_GRADCHECK = "calipers.gradcheck(numpy.sin, a[:3], vjp=lambda x, w: w * numpy.cos(x))"
FIRST_DIFFERENTIATE = "calipers.differentiate(numpy.sin, a[:3])"


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

    def timeraw_first_gradcheck_without_cache(self):
        return FIRST_GRADCHECK, COMPILER_LOADED

    def timeraw_first_differentiate_without_cache(self):
        return FIRST_DIFFERENTIATE, COMPILER_LOADED
