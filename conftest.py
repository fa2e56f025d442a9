"""What pytest collects, and what the tests expect of the process that they run in."""

import gc
import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

# A program that imports for seconds, and modules that import with numba-cuda only.
collect_ignore_glob = ["tests/gradcheck/torch_op_gradients.py"]
if not find_spec("numba_cuda"):
    collect_ignore_glob += ["src/calipers/_cuda/*", "src/calipers/_cuda/kernels/*"]

# What tests import from there asserts, and says as much as a test does.
pytest.register_assert_rewrite("tests.data.derivative_functions")

# Who is started in the background of a shell ignores Ctrl-C, and so do all that it starts; some
# tests interrupt them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep what was collected out of each search for garbage: it is a tenth of the suite's time."""
    gc.collect()
    gc.freeze()


class Tested:
    """Leave out the tests that passed in an earlier run, and add those that pass in this one.

    A run with more extras installed then has only those tests to do that skipped before.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.passed = set(file.read_text("utf-8").splitlines()) if file.exists() else set()

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselect the tests that passed before."""
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid in self.passed])
        items[:] = [i for i in items if i.nodeid not in self.passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that passes, or fails as it is expected to."""
        if report.when == "call" and (report.passed or hasattr(report, "wasxfail")):
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the names, once: workers of pytest-xdist report to the process that writes."""
        if not hasattr(session.config, "workerinput"):
            self.file.write_text("\n".join(sorted(self.passed)), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Read and write the tests that passed where CALIPERS_TESTED names a file for them.

    Tests that run pytest on tests of other libraries do not count.
    """
    file = os.environ.get("CALIPERS_TESTED")
    if file and config.rootpath == Path(__file__).parent:
        config.pluginmanager.register(Tested(Path(file)))
