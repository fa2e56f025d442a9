"""Tests of NumPy and SciPy pass with calipers in NumPy's place; and who answers for which dtype."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import calipers
from calipers._compare import closeness, elementwise
from tests.compare.numpy_suite_plugin import described

SUITES = [
    "numpy._core.tests.test_numeric",
    "numpy.testing.tests.test_utils",
    "numpy.lib.tests.test_arraysetops",
    "numpy.lib.tests.test_function_base",
    "numpy.lib.tests.test_nanfunctions",
    "numpy.lib.tests.test_polynomial",
    "numpy.lib.tests.test_shape_base",
    "numpy.lib.tests.test_twodim_base",
    "numpy.linalg.tests.test_linalg",
]
# These ask little of us, or run for long and ask the same of more shapes.
SLOW = "gh_29003_Fraction or TestLeaks or AssertNoGcCycles or clip_property"
SLOW += " or generalized or openblas_threading"
# Its tolerances are Python floats that NumPy rounds to binary32; see test_tolerances_stay_binary64.
KNOWN = "test_numeric.py::TestIsclose::test_nep50_isclose"

# Those of test_utils.py that pin NumPy's wording: all but one "Mismatched elements: ..." and the
# lines after it, test_infs "inf location mismatch:". calipers says the same in its report.
WORDING = {
    "TestAlmostEqual::test_error_message",
    "TestAlmostEqual::test_error_message_2",
    "TestArrayAlmostEqual::test_array_vs_scalar",
    "TestArrayAlmostEqual::test_closeness",
    "TestArrayAlmostEqual::test_simple",
    "TestArrayEqual::test_0_ndim_array",
    "TestArrayEqual::test_array_vs_array_not_equal",
    "TestAssertAllclose::test_error_message_unsigned",
    "TestAssertAllclose::test_report_fail_percentage",
    "TestAssertAllclose::test_report_max_relative_error",
    "TestAssertAllclose::test_simple",
    "TestEqual::test_0_ndim_array",
    "TestEqual::test_array_vs_array_not_equal",
}
# Records of other fields are not equal; NumPy's own raises its TypeError.
RECORDS = {"TestArrayEqual::test_recarrays", "TestEqual::test_recarrays"}
if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
    WORDING |= {"TestArrayAlmostEqual::test_complex_inf", "TestAssertAllclose::test_infs"}


SCIPY_SAMPLE = [
    "scipy.special.tests.test_logsumexp",
    "scipy.special.tests.test_orthogonal",
    "scipy.linalg.tests.test_decomp",
    "scipy.linalg.tests.test_matfuncs",
    "scipy.linalg.tests.test_special_matrices",
]


def short(test):
    """Return the name of a test, after its file where that is not test_utils.py."""
    return Path(test).name.removeprefix("test_utils.py::")


def require_tests_of_libraries(names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"installed without its tests: no {', '.join(missing)}")


def run_tests_of_libraries(folder, tests, *options):
    """Run tests in another process, under none of our settings, and return the report."""
    # Our -W error, our plugins and pytest-xdist's hold for this process, not for that.
    ours = ("PYTEST_", "PYTHONW", "CALIPERS_TESTED")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    # The tests, and the calipers that is tested here.
    roots = Path(__file__).parents[2], Path(calipers.__file__).parents[1]
    environment["PYTHONPATH"] = os.pathsep.join(map(str, roots))
    (folder / "pytest.ini").write_text("[pytest]\n")
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-c", "pytest.ini", "-p", "tests.compare.numpy_suite_plugin"]
    command += [f"--comparison-report={report}", *options, "--pyargs", *tests]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return json.loads(report.read_text()), done.stdout


@pytest.mark.slow
def test_numpy_suite(tmp_path):
    """Neither the functions nor the assertions accept or refuse another pair than NumPy's."""
    require_tests_of_libraries(SUITES)
    patches = "--patch=numpy", "--patch=testing"
    report, output = run_tests_of_libraries(tmp_path, SUITES, *patches, "-k", f"not ({SLOW})")
    assert report["collected"] > 5000, output
    others = {(short(d["test"]), d["calipers"]) for d in report["disagreements"]}
    refused = {(name, "raises AssertionError") for name in RECORDS}
    assert {name for name, _ in others} == {KNOWN} | RECORDS, report["disagreements"]
    assert {pair for pair in others if pair[0] != KNOWN} == refused
    functions = {d["function"] for d in report["disagreements"] if short(d["test"]) == KNOWN}
    assert functions == {"isclose"}

    # A test that fails without calipers too is no matter of ours.
    without, _ = run_tests_of_libraries(tmp_path, report["failed"])
    assert without["collected"] == len(report["failed"])
    assert not without["calls"]
    failed = {
        short(test): text
        for test, text in report["failed"].items()
        if test not in without["failed"]
    }
    assert set(failed) == {KNOWN} | WORDING | RECORDS, output
    for name in WORDING:
        text = failed[name]
        if "test_0_ndim_array" in name:  # which looks for NumPy's words in the text itself
            assert "assert_('Mismatched elements: 1 / 1 (100%)" in text
            continue
        assert "Regex pattern did not match" in text
        told = r"(Mismatched|Max|inf).*\n.*(Actual message|Input): '.*Not close: "
        assert re.search(told, text)

    # A patch that nobody called through would prove nothing.
    for name, least in {"isclose": 2000, "allclose": 30, "array_equal": 40}.items():
        assert report["calls"][name] > least
        assert report["answered_by_kernels"][name] > 0.8 * report["calls"][name]
    for name, least in {
        "assert_allclose": 2000,
        "assert_almost_equal": 10000,
        "assert_array_equal": 2900,
        "assert_equal": 2500,
    }.items():
        assert report["answered_by_kernels"][name] > least


def compare_on_scipy_tests(folder, tests, least):
    """Assert that SciPy's tests pass by our assertions, which `least` says how often they call."""
    require_tests_of_libraries(tests)
    options = "--patch=testing", "-m", "not slow"
    report, output = run_tests_of_libraries(folder, tests, *options)
    assert not report["disagreements"]
    failed = set(report["failed"])
    if failed:
        without, _ = run_tests_of_libraries(folder, report["failed"])
        failed -= set(without["failed"])
    assert not failed, output
    for name, count in least.items():
        assert report["answered_by_kernels"][name] > count, report["answered_by_kernels"]


@pytest.mark.slow
def test_scipy_suites_by_our_assertions(tmp_path):
    least = {"assert_allclose": 3500, "assert_array_almost_equal": 700, "assert_equal": 400}
    compare_on_scipy_tests(tmp_path, SCIPY_SAMPLE, least)


@pytest.mark.exhaustive
def test_all_of_scipy_special_and_linalg_by_our_assertions(tmp_path):
    least = {"assert_allclose": 100_000, "assert_array_almost_equal": 1000, "assert_equal": 2000}
    compare_on_scipy_tests(tmp_path, ["scipy.special.tests", "scipy.linalg.tests"], least)


def test_tolerances_stay_binary64():
    """The assertions of NumPy's test_nep50_isclose, one by one."""
    below_one = float(1 - np.finfo("f8").eps)
    f32 = np.array(below_one, "f4")
    assert f32 == 1
    assert f32 == below_one
    assert calipers.isclose(f32, below_one, atol=0, rtol=0)
    # NumPy says True to these two: it rounds a tolerance that is a Python float to the arrays'
    # dtype, here up to 1. Ours is the tolerance that was asked for, and 1 exceeds it.
    assert not calipers.isclose(f32, np.float32(0), atol=below_one)
    assert not calipers.isclose(f32, 2, atol=0, rtol=below_one / 2)
    assert not calipers.isclose(f32, np.float64(below_one), atol=0, rtol=0)
    assert not calipers.isclose(f32, np.float32(0), atol=np.float64(below_one))
    assert not calipers.isclose(f32, 2, atol=0, rtol=np.float64(below_one / 2))


NUMBERS = [np.dtype(code) for code in "?bhilqBHILQefdFD"]
LAYOUTS = {
    "C": lambda x: x,
    "Fortran": np.asfortranarray,
    "transposed": lambda x: x.T,
    "every other column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: x[::-1, ::-1],
    "broadcast": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "swapped bytes": lambda x: x.astype(x.dtype.newbyteorder()),
    "unaligned": lambda x: (
        np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape)
    ),
    "no dimensions": lambda x: x[1, 1, ...],
    "empty": lambda x: x[:0],
}


@pytest.fixture
def no_numpy(monkeypatch):
    def answered(*args, **kwargs):
        raise AssertionError("NumPy was asked")

    for name in ("allclose", "isclose"):
        monkeypatch.setattr(closeness, f"_numpy_{name}", answered)
    monkeypatch.setattr(elementwise, "_numpy_array_equal", answered)


@pytest.mark.usefixtures("no_numpy")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_numbers_are_answered_by_kernels(dtype, layout):
    numbers = np.arange(12).reshape(3, 4).astype(dtype)
    x = LAYOUTS[layout](numbers)
    others = [np.ascontiguousarray(x).reshape(x.shape), x.astype(bool), x.real.astype("f4")]
    for y in [x, *others, x.astype("D"), 1, 1.0, 1j]:
        for a, b in ((x, y), (y, x)):
            mask = calipers.isclose(a, b)
            np.testing.assert_array_equal(mask, np.isclose(a, b), strict=True)
            assert calipers.allclose(a, b) is bool(mask.all())
            assert calipers.array_equal(a, b) is np.array_equal(a, b)
            assert calipers.allclose(a, b, rtol=np.full(x.shape, 1e-5)) is bool(mask.all())
            if x.ndim:
                assert calipers.allclose(a, b, axis=0).tolist() == mask.all(axis=0).tolist()


class Measured(np.ndarray):
    pass


def masked(numbers):
    return np.ma.array(numbers, mask=[[False, True], [False, False]])


def words(function, pair, options):
    """Describe an answer; what is a TypeError to NumPy's arithmetic is one that names arguments."""
    return described(function, pair, options)[2].replace("UFuncTypeError", "TypeError")


@pytest.mark.parametrize(
    "special",
    [
        lambda numbers: numbers.astype("g"),
        lambda numbers: numbers.astype("G"),
        lambda numbers: numbers.astype("m8[s]"),
        masked,
        lambda numbers: numbers.view(Measured),
    ],
    ids=["longdouble", "clongdouble", "timedelta64", "masked", "subclass"],
)
def test_what_numpy_answers(special):
    numbers = np.array([[1.0, 2.0], [3.0, 4.0]])
    # timedelta64 has an answer for some tolerances: else an error.
    pairs = [
        (special(numbers), special(numbers)),
        (special(numbers), special(numbers + [[0, 0], [0, 2]])),
        (special(numbers), numbers + [[0, 0], [0, 2]]),
        (numbers, special(numbers + [[2, 0], [0, 0]])),
        (special(numbers), 1.0),
    ]
    results = []
    for pair in pairs:
        for options in (
            {},
            {"rtol": 0, "atol": 2},
            {"rtol": 0, "atol": 1, "equal_nan": True},
            {"rtol": 0, "atol": np.timedelta64(2, "s")},
        ):
            results.append(described(calipers.isclose, pair, options)[0])
            assert words(calipers.isclose, pair, options) == words(np.isclose, pair, options)
            assert words(calipers.allclose, pair, options) == words(np.allclose, pair, options)
            for axis in (0, -1, (0, 1)):

                def rows_close(a, b, axis=axis, **options):
                    return np.all(np.isclose(a, b, **options), axis=axis)

                assert words(calipers.allclose, pair, options | {"axis": axis}) == words(
                    rows_close, pair, options
                )
        assert described(calipers.array_equal, pair, {}) == described(np.array_equal, pair, {})
    assert any(result is not None for result in results)


def test_objects_are_compared_as_the_numbers_that_they_are():
    """NumPy raises TypeError if the second array holds objects."""
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 6.0]])
    for atol in (0, 1, 2):
        expected = np.isclose(a, b, rtol=0, atol=atol)
        for x, y in (
            (a.astype(object), b),
            (a, b.astype(object)),
            (a.astype(object), b.astype("O")),
        ):
            np.testing.assert_array_equal(calipers.isclose(x, y, rtol=0, atol=atol), expected)
            assert calipers.allclose(x, y, rtol=0, atol=atol) == expected.all()


@pytest.mark.parametrize(
    "x",
    [
        np.array(["red", "blue"]),
        np.array([b"red", b"blue"]),
        np.array(["2020-01-01", "NaT"], "M8[D]"),
        np.ones(2, "V4"),
    ],
    ids=["str", "bytes", "datetime64", "void"],
)
def test_what_has_no_distance(x):
    for function in (calipers.allclose, calipers.isclose):
        for a, b in ((x, x), (x, 1.0), (1.0, x), (np.ones(2), x)):
            with pytest.raises(TypeError) as error:
                function(a, b)
            assert f"dtype {x.dtype}" in str(error.value)
    for options in ({}, {"equal_nan": True}):
        for pair in ((x, x), (x, x[::-1]), (x, x[:1]), (x, np.ones(2))):
            words = described(calipers.array_equal, pair, options)[2]
            expected = described(np.array_equal, pair, options)[2]
            if expected == "raises TypeError":  # of isnan, which knows nothing of these
                expected = described(np.array_equal, pair, {})[2]
            assert words == expected
