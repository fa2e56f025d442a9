"""
The pytest plugin, which shows the report of a failing comparison and can save its plot.

pytest loads it by its entry point. NumPy and Numba are not imported before a test imports them.
"""

import linecache
import re
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple
from zlib import crc32

import pytest

from ._compare import listening

# The largest number of calls between an assertion and the comparison that it asserts.
_MAX_CALLERS = 5
# Arrays of more bytes in sum (1 GiB) are not compared again for a report.
_MAX_COMPARED_BYTES = 1 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command line options."""
    group = parser.getgroup("calipers")
    group.addoption(
        "--calipers-seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of calipers_rng in tests without the mark calipers_seed (default: 0)",
    )
    group.addoption(
        "--calipers-plots",
        metavar="DIR",
        help="save a picture of what fails a test, if it is a comparison, in this folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and start to listen for failing comparisons."""
    for mark in (
        "calipers_seed(*seeds): seeds of calipers_rng; the test runs once with each",
        "calipers_tolerance(**options): options of calipers_approx, named as those of approx",
    ):
        config.addinivalue_line("markers", mark)
    folder = config.getoption("calipers_plots")
    if folder is not None and find_spec("matplotlib") is None:
        msg = "--calipers-plots needs matplotlib: pip install matplotlib"
        raise pytest.UsageError(msg)
    config.pluginmanager.register(_Failures(folder and Path(folder)), "calipers-failures")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each seed of its marker."""
    seeds = _seeds(metafunc.definition)
    if seeds and "calipers_seed" in metafunc.fixturenames:
        metafunc.parametrize("calipers_seed", seeds, ids=[f"seed={x}" for x in seeds])


def _seeds(node: pytest.Item) -> tuple[int, ...]:
    mark = node.get_closest_marker("calipers_seed")
    if mark is None:
        return ()
    if mark.kwargs or not mark.args or not all(isinstance(x, Integral) for x in mark.args):
        msg = f"{node.nodeid}: the mark calipers_seed takes integers, as in calipers_seed(0, 1)"
        raise pytest.UsageError(msg)
    return mark.args


@pytest.fixture
def calipers_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of this test, from its marker or from the command line."""
    seed: int = (*_seeds(request.node), request.config.getoption("calipers_seed"))[0]
    return seed


@pytest.fixture
def calipers_rng(calipers_seed: int, request: pytest.FixtureRequest) -> Any:
    """Return a numpy.random.Generator with the seed of this test, which a failure reports."""
    request.node.user_properties.append(("calipers_seed", calipers_seed))
    return import_module("numpy").random.default_rng(calipers_seed)


@pytest.fixture
def calipers_approx(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return `calipers.approx` with the options of the test's marker calipers_tolerance."""
    options: dict[str, Any] = {}
    for mark in request.node.iter_markers("calipers_tolerance"):
        if mark.args:
            msg = "the mark calipers_tolerance takes options by name, as in (rtol=0, atol=1e-3)"
            raise pytest.UsageError(msg)
        options = mark.kwargs | options
    return partial(import_module("calipers").approx, **options)


class _Mismatch(NamedTuple):
    """A comparison that returned False: its callers, weak references to its arrays, its options."""

    callers: tuple[tuple[CodeType, int], ...]
    references: tuple[Callable[[], Any], ...]
    options: dict[str, Any]

    @property
    def location(self) -> str:
        return _location(*self.callers[0])

    def explains(self, raised: "_Statement") -> bool:
        """Return True if a statement made this comparison, or asserts its result."""
        raising = raised.code
        if any(code is raising and line in raised.line_range for code, line in self.callers):
            return True
        code, line = self.callers[0]
        asserted = re.match(r"\s*assert (\w+)(\.all\(\))?\s*(,|$)", raised.text)
        if asserted is None or code is not raising:
            return False
        text = linecache.getline(code.co_filename, line)
        return re.search(rf"\b{asserted[1]}\s*:?=[^=]", text) is not None

    def compare(self) -> Any:
        """Return the report, or the reason why there is none; None if the arrays now agree."""
        arrays = [reference() for reference in self.references]
        pairs = zip(self.references, arrays, strict=True)
        if any(x is None and isinstance(reference, weakref.ref) for reference, x in pairs):
            return "No report: the arrays no longer exist. Keep them in variables."
        if any(map(import_module("calipers._compare.chunked").is_stream, arrays)):
            return "No report: an iterator is read only once. Pass new ones to calipers.compare."
        if sum(getattr(reference, "nbytes", 0) for reference in arrays) > _MAX_COMPARED_BYTES:
            return (
                "No report, as the arrays are large: calipers.compare(a, b) shows how they differ."
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # allclose has warned
                options = {"check_dtype": False} | self.options
                report = import_module("calipers").compare(*arrays, **options)
        except Exception as error:
            return f"No report: {error}"
        return None if report else report


class _Statement(NamedTuple):
    """The statement that raised: its code, its lines, and the frames from it to the error."""

    code: CodeType
    line_range: range
    frames: list[FrameType]

    @property
    def location(self) -> str:
        return _location(self.code, self.line_range.start)

    @property
    def text(self) -> str:
        return linecache.getline(self.code.co_filename, self.line_range.start)

    def reports(self) -> Iterator[Any]:
        """Yield false reports in variables of the statement and of the functions that it called."""
        shown = getattr(sys.modules.get("calipers._core.report"), "Report", ())
        first, *others = self.frames
        variables = first.f_globals | first.f_locals
        source = (linecache.getline(self.code.co_filename, k) for k in self.line_range)
        names = re.findall(r"[^\W\d]\w*", "".join(source))
        # pytest stores the values of an assertion in variables; unittest passes them as arguments.
        names += [name for name in first.f_locals if name.startswith("@py_assert")]
        named = [variables.get(name) for name in names]
        for x in (*named, *(x for frame in others for x in frame.f_locals.values())):
            if isinstance(x, shown) and not x:
                yield x


class _Failures:
    """The mismatches of the running test, and the hooks that report them."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._pictures: set[str] = set()
        self._compared: Any = None
        # The last eight, since other threads may compare at the same time.
        self._mismatches: deque[_Mismatch] = deque(maxlen=8)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        with listening(self._note):
            try:
                return (yield)
            finally:
                self._compared = None
                self._mismatches.clear()

    def _note(self, a: Any, b: Any, options: dict[str, Any]) -> None:
        callers: list[tuple[CodeType, int]] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and len(callers) < _MAX_CALLERS:
            if not _is_wrapper(frame):
                callers.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        self._mismatches.append(
            _Mismatch(tuple(callers), (_weak_reference(a), _weak_reference(b)), options)
        )

    def pytest_assertrepr_compare(self, op: str, left: Any, right: Any) -> list[str] | None:
        equality = sys.modules.get("calipers._compare.approx")
        if equality is None or op != "==":
            return None
        reference, actual = (left, right) if isinstance(left, equality.Approx) else (right, left)
        if not isinstance(reference, equality.Approx):
            return None
        self._compared = reference.compare(actual)
        texts = map(equality.shortened, (left, right))
        return [" == ".join(texts), str(self._compared).partition("\n")[0]]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo is not None:
            report.sections += self._sections(item, call)
        return report

    def _sections(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[tuple[str, str]]:
        seed = dict(item.user_properties).get("calipers_seed")
        if seed is not None:
            yield "calipers_rng", f"seed {seed}"
        assert call.excinfo is not None
        title, report = self._explanation(call.excinfo.value)
        if title and report is not None:
            yield title, str(report)
        if self._folder is not None and hasattr(report, "plot"):
            yield "calipers' picture", self._saved(report, f"{item.nodeid}-{call.when}")

    def _explanation(self, error: BaseException) -> tuple[str, Any]:
        """Return the report behind an error, and a title if the error does not hold its text."""
        if type(error).__module__.partition(".")[0] == "calipers":
            return "", getattr(error, "report", None)
        if not isinstance(error, AssertionError) or error.__traceback__ is None:
            return "", None
        if self._compared is not None and str(self._compared).partition("\n")[0] in str(error):
            return "calipers' report", self._compared
        statement = _statement(error.__traceback__)
        asserted = next(statement.reports(), None)
        if asserted is not None:
            return f"calipers' report of {statement.location}", asserted
        for mismatch in reversed(self._mismatches):
            if mismatch.explains(statement):
                return f"calipers' report of {mismatch.location}", mismatch.compare()
        return "", None

    def _saved(self, report: Any, name: str) -> str:
        """Save the plot of a report under the name of a test, and return its path."""
        assert self._folder is not None
        # The digest distinguishes tests whose names differ in replaced characters, and the count
        # several failures of one test.
        name = f"{re.sub('[^A-Za-z0-9.-]+', '_', name)[:120]}-{crc32(name.encode()):08x}"
        count = sum(picture.startswith(name) for picture in self._pictures)
        name += f"-{count + 1}.png" if count else ".png"
        self._pictures.add(name)
        try:
            figure = report.plot()
            self._folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(self._folder / name)
        except Exception as error:  # the failure of the test is what matters
            return f"none: {error}"
        return str(self._folder / name)


def _location(code: CodeType, line: int) -> str:
    return f"{Path(code.co_filename).name}:{line}"


def _statement(trace: TracebackType) -> _Statement:
    """Return the statement that raised."""
    raising, frames = trace, [trace.tb_frame]
    while trace.tb_next is not None:
        trace = trace.tb_next
        frames.append(trace.tb_frame)
        if not _is_wrapper(trace.tb_frame):
            raising, frames = trace, [trace.tb_frame]
    code = raising.tb_frame.f_code
    first, last, *_ = list(code.co_positions())[raising.tb_lasti // 2]
    return _Statement(code, range(first or 0, (last or 0) + 1), frames)


def _is_wrapper(frame: FrameType) -> bool:
    """Return True if a frame is of calipers or unittest, and not of the code under test."""
    return frame.f_globals.get("__name__", "").partition(".")[0] in ("calipers", "unittest")


def _weak_reference(x: Any) -> Callable[[], Any]:
    """Return a weak reference, or a function that returns x if its type does not allow any."""
    try:
        return weakref.ref(x)
    except TypeError:
        return lambda: x
