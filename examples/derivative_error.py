"""Functions that break fixed steps: how far off a derivative is, and whether you are told."""

import sys

import numpy as np

import calipers

try:
    from scipy.optimize import approx_fprime
except ImportError:
    sys.exit("This example needs SciPy: pip install scipy.")

inf, nan = np.inf, np.nan
CASES = {
    # f, x, f'(x), and where f exists if that matters
    "exp(1e20 x) at 1e-20": (lambda x: np.exp(1e20 * x), 1e-20, 1e20 * np.e, None),
    "sin(1e6 x) at 1": (lambda x: np.sin(1e6 * x), 1, 1e6 * np.cos(1e6), None),
    "sin at 1e5": (np.sin, 1e5, np.cos(1e5), None),
    "sin at 1e9": (np.sin, 1e9, np.cos(1e9), None),
    "sin in float32 at 0.5": (lambda x: np.sin(np.float32(x)), 0.5, np.cos(0.5), None),
    "x log x at 1e-9": (lambda x: x * np.log(x), 1e-9, np.log(1e-9) + 1, (0, inf)),
    "x**1.5 at its edge, 0": (lambda x: x**1.5, 0, 0, (0, inf)),
    "|x - 1| at 1": (lambda x: abs(x - 1), 1, nan, None),
    "floor(8 x) at 0.3": (lambda x: np.floor(8 * x), 0.3, 0, None),
}

print(f"{'':<23}{'--- true error of ---':>23}{'calipers':>10}")
print(f"{'':<23}{'approx_fprime':>13}{'calipers':>10}{'says':>10}  status")
for name, (function, place, exact, bounds) in CASES.items():

    def f(x, function=function):
        return np.float64(function(x[0]))

    x = np.array([float(place)])
    with np.errstate(all="ignore"):
        fixed = abs(approx_fprime(x, f)[0] - exact)
        found = calipers.differentiate(f, x, bounds=bounds)
    off, said = abs(found.value[0] - exact), found.error[0]
    verdict = "  <- more than it says" if off > said else ""
    print(f"{name:<23}{fixed:>13.1e}{off:>10.1e}{said:>10.1e}  {found.status[0]}{verdict}")
print("\nnan: there is no derivative to be off from; the error covers both one-sided ones.")
