"""A pytest plugin that puts calipers in the place of NumPy's functions, and compares the two.

``--patch=numpy`` replaces allclose, isclose and array_equal, ``--patch=testing`` the assertions:
both may be given.
"""

import json
import sys
import warnings
from collections import Counter
from contextlib import contextmanager, nullcontext
from functools import wraps
from pathlib import Path

import numpy as np
import pytest

import calipers
import calipers.testing

FUNCTIONS = ("allclose", "isclose", "array_equal")
ASSERTIONS = tuple(
    name.removeprefix("_numpy_") for name in vars(calipers.testing) if name.startswith("_numpy_")
)
# Whose functions are replaced, by those of which module, and which.
PATCHES = {
    "numpy": (np, calipers, FUNCTIONS),
    "testing": (np.testing, calipers.testing, ASSERTIONS),
}


def described(function, args, kwargs):
    """Call a function and put all that matters of its outcome into words."""
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        kind = AssertionError if isinstance(error, AssertionError) else type(error)
        return None, error, f"raises {kind.__name__}"
    shape_and_dtype = f"{getattr(result, 'shape', '')}{getattr(result, 'dtype', '')}"
    words = f"{type(result)} {shape_and_dtype} {np.asanyarray(result).tolist()}"
    return result, None, words


class Comparison:
    """The patch and what was seen through it."""

    def __init__(self):
        self.calls = Counter()
        self.answered_by_kernels = Counter()
        self.disagreements = []
        self.failed = {}
        self.test = "collection"
        self._inside = False
        self._asked_numpy = False

    @contextmanager
    def _unobserved(self):
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _patched(self, name, original, replacement):
        @wraps(original)
        def compared(*args, **kwargs):
            if self._inside:
                return original(*args, **kwargs)
            self._asked_numpy = False
            with self._unobserved():
                result, error, words = described(replacement, args, kwargs)
                asked_numpy = self._asked_numpy
            # NumPy's allclose calls its isclose, by a name that is patched. What NumPy's assertions
            # call is compared, too.
            observed = nullcontext() if name in ASSERTIONS else self._unobserved()
            with observed, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = described(original, args, kwargs)[2]
            self.calls[name] += 1
            self.answered_by_kernels[name] += not asked_numpy
            if words != expected:
                call = {"function": name, "arguments": f"{args!r:.200} {kwargs!r:.100}"}
                answers = {"calipers": words[:200], "numpy": expected[:200]}
                self.disagreements.append({"test": self.test} | call | answers)
            if error is not None:
                raise error
            return result

        return compared

    def _noticed(self, original):
        def noticed(*args, **kwargs):
            self._asked_numpy = True
            return original(*args, **kwargs)

        return noticed

    def patch(self, home, substitute, names):
        # NumPy's own modules keep the assertions that they call themselves.
        modules = [module for name, module in sys.modules.items() if name.startswith("numpy")]
        if home is np.testing:
            modules = [home]
        for name in names:
            original = getattr(home, name)
            replacement = getattr(substitute, name)
            module = sys.modules[replacement.__module__]
            setattr(module, f"_numpy_{name}", self._noticed(original))
            for module in modules:
                if vars(module).get(name) is original:
                    setattr(module, name, self._patched(name, original, replacement))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        # What pytest selects the test by, wherever NumPy is installed.
        self.test = "::".join([str(item.path), *item.nodeid.split("::")[1:]])
        item.user_properties.append(("test", self.test))

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed[dict(report.user_properties)["test"]] = report.longreprtext

    def pytest_sessionfinish(self, session):
        report = {
            "collected": session.testscollected,
            "failed": self.failed,
            "calls": self.calls,
            "answered_by_kernels": self.answered_by_kernels,
            "disagreements": self.disagreements,
        }
        Path(session.config.getoption("comparison_report")).write_text(json.dumps(report, indent=1))


def pytest_addoption(parser):
    parser.addoption("--comparison-report", required=True, help="path of the JSON report")
    parser.addoption(
        "--patch",
        action="append",
        choices=PATCHES,
        default=[],
        help="let calipers answer in the place of these",
    )


def pytest_configure(config):
    comparison = Comparison()
    config.pluginmanager.register(comparison, "calipers-comparison")
    for name in config.getoption("patch"):
        comparison.patch(*PATCHES[name])
