"""pytest's plugin, in runs of pytest of its own."""

import os
import re
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

import calipers
from calipers import approx
from calipers._compare import listening, notify_mismatch

pytest_plugins = ["pytester"]


class Imported:
    """What inner runs have imported: `pytester` forgets it, and then libraries are there twice."""

    def __init__(self):
        self.modules = {}

    def pytest_unconfigure(self):
        self.modules |= {k: v for k, v in sys.modules.items() if not k.startswith("test_")}


@pytest.fixture(autouse=True)
def imported():
    """Keep what is imported: set up before `pytester`, and so torn down after it."""
    kept = Imported()
    yield kept
    sys.modules.update(kept.modules)


@pytest.fixture
def within(pytester, imported):
    """Run pytest in this process."""
    return partial(pytester.runpytest_inprocess, "-p", "no:cacheprovider", plugins=[imported])


@pytest.fixture
def run(pytester, within):
    """Run tests of a text, and return the result and its output as one text."""

    def run(text, *options, **outcomes):
        pytester.makepyfile("import numpy as np, pytest\nimport calipers as cal\n" + text)
        result = within(*options)
        if outcomes:
            result.assert_outcomes(**outcomes)
        return result, result.stdout.str()

    return run


class TestApprox:
    def test_verdicts(self):
        x = np.arange(6.0).reshape(2, 3)
        assert x == approx(x + 1e-9)
        assert approx(x + 1e-9) == x
        assert x != approx(x + 1e-3)
        assert not x == approx(x + 1e-3)  # noqa: SIM201
        assert x == approx(x + 1e-3, rtol=0, atol=1e-2)
        assert x == approx(x + 1e-3, tolerance=(0, 1e-2))
        assert x != approx(x[0])
        assert x * 0 == approx(0)
        assert x != approx(0)
        assert x[0] != approx([0.0])
        assert x == approx(np.stack([x[0], x[1]]).astype("float32"))
        assert x != approx(x.astype("float32"), check_dtype=True)
        assert np.array([1.0, np.nan]) == approx([1.0, np.nan], equal_nan=True)
        assert np.array([1.0, np.nan]) != approx([1.0, np.nan])
        assert np.ones(4) == approx([1, 1, 1, 2.0], max_mismatches=1)
        assert np.ones(4) == approx([1, 1, 1, 2.0], max_mismatch_ratio=0.25)
        assert np.nextafter(1.0, 2) == approx(1.0, max_ulp=1)
        assert np.ones((2, 3)) == approx(np.ones(3), check_shape=False)

    def test_options_hold_where_the_verdict_needs_no_report(self):
        for one, other in ((1.0, 1.0 + 1e-9), (np.ones(3), np.ones(3) + 1e-9)):
            assert one == approx(other)
            assert one != approx(other, rtol=0, atol=1e-12)
            assert one != approx(other, tolerance=(0, 1e-12))
            assert one != approx(other, max_ulp=1)
            assert one == approx(other, max_ulp=10_000_000)
            nan = one * np.nan
            assert nan != approx(nan)
            assert nan == approx(nan, equal_nan=True)
        assert np.float64(1) == approx(1.0)
        assert approx(1.0) == 1 + 0j
        assert approx(1 + 0j) == 1.0
        assert approx(1.0) != 1 + 1j
        assert approx(10**30) == 10**30

    @pytest.mark.parametrize(
        "make",
        [
            float,
            np.float64,
            lambda x: [x],
            lambda x: (x, x),
            lambda x: {"a": x, "b": [x]},
            lambda x: np.full((), x),
            lambda x: np.full((2, 0), x),
            lambda x: np.float32(x),
            lambda x: complex(x, x),
        ],
    )
    def test_kinds_of_sides(self, make):
        here, there = make(1.0), make(1.0 + 1e-9)
        assert here == approx(there)
        assert approx(there) == here
        if np.size(here):
            assert here != approx(make(2.0))
            assert approx(make(2.0)) != here

    @pytest.mark.parametrize("library", ["torch", "jax.numpy"])
    def test_libraries(self, library):
        xp = pytest.importorskip(library)
        x = xp.ones(3)
        assert x == approx(np.ones(3))
        assert x == approx(xp.ones(3))
        assert np.ones(3) == approx(x)
        assert x != approx([1, 1, 2.0])

    def test_it_is_false_for_what_is_no_array(self):
        assert approx(1.0) != None  # noqa: E711
        assert approx([1.0]) != "text"
        assert {"a": 1.0} != approx([1.0])

    def test_alone_it_is_no_test(self):
        with pytest.raises(TypeError, match="write actual == approx"):
            assert approx(1.0)
        with pytest.raises(TypeError, match="unhashable"):
            hash(approx(1.0))

    def test_masked_arrays_stand_right(self):
        assert approx([1.0, 5.0]) == np.ma.array([1.0, 2.0], mask=[False, True])
        assert approx([1.0, 5.0]) != np.ma.array([1.0, 2.0])

    def test_frames_leave_the_question(self):
        assert approx(1.0).__pandas_priority__ > 4000  # a DataFrame's: what has more is asked
        pandas = pytest.importorskip("pandas")
        x = np.ones((2, 2))
        for values in (pandas.DataFrame(x), pandas.Series(x[0]), pandas.Index(x[0])):
            assert (values == approx(values + 1e-12)) is True
            assert (values == approx(values + 1e-3)) is False

    def test_options_that_there_are_not_are_named_at_once(self):
        for options, here in (
            ({"rel": 1e-3}, "'rel': rel=0.001 is rtol=0.001, atol=1e-12 here; it takes rtol, "),
            ({"abs": 1e-6}, "'abs': abs=1e-06 is rtol=0, atol=1e-06 here; "),
            (
                {"nan_ok": True, "abs": 2, "rel": 0.5},
                "'nan_ok': rel=0.5, abs=2, nan_ok=True is rtol=0.5, atol=2, equal_nan=True here; ",
            ),
        ):
            with pytest.raises(TypeError, match=f"keyword argument {here}"):
                approx(1.0, **options)
        with pytest.raises(TypeError, match="keyword argument 'tol'; it takes rtol, atol, "):
            approx(1.0, tol=1e-3)

    def test_within_another_it_is_refused(self):
        with pytest.raises(TypeError, match="no approx inside it"):
            assert approx(1.0) == approx(1.0)
        with pytest.raises(TypeError, match="no approx inside it"):
            assert {"a": 1.0} == approx({"a": approx(1.0)})

    def test_a_text_that_cannot_be_written(self):
        class Bad:
            def __repr__(self):
                raise RuntimeError

        assert repr(approx(Bad())).startswith("approx(<")

    def test_bad_options_are_refused_before_anything_is_compared(self):
        for options, said in (
            ({"rtol": 1}, "rtol was passed without atol"),
            ({"atol": 0.2}, "atol was passed without rtol"),
            ({"rtol": 0, "atol": -1}, "atol must be finite and not negative"),
            ({"memory_limit": 0}, "memory_limit must be"),
            ({"max_mismatch_ratio": 2}, "max_mismatch_ratio must be from 0 to 1"),
        ):
            with pytest.raises(ValueError, match=said):
                approx(1.0, **options)
        with pytest.raises(TypeError, match="rtol must be a number, got str"):
            approx(1.0, rtol="1", atol=0)

    @pytest.mark.parametrize(
        "empty",
        [
            *([], (), [[], []], range(0)),
            *(np.empty(0), np.empty((0, 3), "f4"), np.array([], object), np.array([], "U1")),
        ],
        ids=repr,
    )
    def test_nothing_that_is_empty_equals_a_number(self, empty):
        for number in (5.0, 5, 5j, True, np.float64(5)):
            assert (empty == approx(number)) is False
            assert empty != approx(number, max_mismatches=3)
            assert number != approx(empty)
        report = approx(5.0).compare(empty)
        assert not report
        assert "actual is empty, so no element of it equals 5.0" in str(report)
        with pytest.raises(calipers.ClosenessError):
            calipers.assert_close(empty, 5.0)
        assert empty == approx(empty)

    def test_empty_chunks_frames_and_tensors_equal_no_number(self):
        assert iter([np.empty(0), np.empty(0)]) != approx(5.0)
        assert iter([np.empty(0), np.full(2, 5.0)]) == approx(5.0)
        assert [np.empty(0)] != approx(5.0)
        pandas = pytest.importorskip("pandas")
        assert pandas.Series([], dtype=float) != approx(5.0)
        torch = pytest.importorskip("torch")
        assert torch.empty(0) != approx(5.0)
        assert torch.full((2,), 5.0) == approx(5.0)

    def test_empty_arrays_broadcast_with_a_number_where_shapes_may_differ(self):
        assert calipers.allclose([], 5.0) == np.allclose([], 5.0) == True  # noqa: E712
        assert calipers.compare([], 5.0, check_shape=False)
        assert not calipers.array_equal([], 5.0)

    def test_a_number_with_check_shape_stands_for_itself(self):
        assert np.ones(2) == approx(1.0)
        assert np.ones(2) != approx(1.0, check_shape=True)

    @pytest.mark.parametrize(
        ("array", "items"),
        [
            (np.array(["a", "b"]), ["a", "b"]),
            (np.array([b"a", b"b"]), [b"a", b"b"]),
            (np.array([["a", "b"]]), (("a", "b"),)),
            (np.array(["a", "b"], np.dtypes.StringDType()), ["a", "b"]),
            (np.array(["a", "b"], object), ["a", "b"]),
            (np.array([1, None], object), [1, None]),
            (np.array(["a", 1.0], object), ["a", 1.0]),
            (np.array([1.0, 2.0]), [np.array(1.0), np.array(2.0)]),
            (np.ones((2, 3)), [np.ones(3), np.ones(3)]),
            (np.array(["2020-01-01"], "M8[D]"), [date(2020, 1, 1)]),
            (np.array(["2020-01-01"], "M8[ns]"), [datetime(2020, 1, 1)]),
            (np.array(["2020-01-01"], "M8[ns]"), [np.datetime64("2020-01-01")]),
            (np.array([date(2020, 1, 1)], object), [date(2020, 1, 1)]),
            (np.array([90], "m8[s]"), [timedelta(minutes=1.5)]),
        ],
        ids=repr,
    )
    def test_an_array_equals_the_list_of_its_elements(self, array, items):
        for a, b in ((array, items), (items, array), ({"x": array}, {"x": items})):
            assert a == approx(b)
            assert calipers.compare(a, b)
            calipers.assert_close(a, b)
        assert isinstance(calipers.compare(array, items), calipers.Comparison)
        other = array.copy()
        other.flat[0] = array.flat[-1] if array.dtype.kind in "SUTO" else array.flat[0] + 1
        assert (other == approx(items)) == bool((other == array).all())
        assert array != approx(items[:0])

    def test_a_list_and_an_array_that_differ_are_not_equal(self):
        assert np.array(["1", "2"]) != approx(["1", 2])  # NumPy would make text of 2
        assert np.ones(5) != approx([np.ones(2), np.ones(3)])
        assert np.array([{"a": 1}]) != approx([{"a": 2}])
        aware = datetime(2020, 1, 1, tzinfo=UTC)
        assert np.array(["2020-01-01"], "M8[us]") != approx([aware])

    def test_a_series_equals_the_list_of_its_elements(self):
        pandas = pytest.importorskip("pandas")
        stamp = pandas.Timestamp("2020-01-01 00:00:00.123456789")
        span = pandas.Timedelta(nanoseconds=1)
        for items in (["a", "b"], [True, None], [stamp], [span], [date(2020, 1, 1)]):
            assert pandas.Series(items) == approx(items)
        assert pandas.Series([stamp]) != approx([stamp + span])
        assert pandas.Index(["a"]) == approx(["a"])

    def test_a_tensor_equals_the_list_of_its_elements(self):
        torch = pytest.importorskip("torch")
        assert torch.tensor([1.0, 2.0]) == approx([torch.tensor(1.0), torch.tensor(2.0)])
        assert torch.ones(2, 3) == approx([torch.ones(3), np.ones(3)])

    def test_errors_are_shown_at_the_line_of_the_test(self, run):
        text = """
from scipy import sparse

def test_option():
    assert np.ones(2) == cal.approx(1.0, atol=0.2)

def test_array():
    assert np.ones((2, 2)) == cal.approx(sparse.eye(2))

def test_assert_close():
    cal.assert_close(np.ones(2), np.ones(2), rtol=0.1)

def test_container():
    cal.assert_close({"a": sparse.eye(2)}, {"a": sparse.eye(2)})

def test_testing():
    cal.testing.assert_allclose(sparse.eye(2), 1.0)
"""
        _, shown = run(text, failed=5)
        assert not re.search(r"^\S*calipers/\w+\.py:\d+", shown, re.MULTILINE)
        assert "def " not in re.sub(r"^ *def test_\w+\(\):", "", shown, flags=re.MULTILINE)

    def test_its_text_is_short(self):
        assert repr(approx([1.0])) == "approx([1.0])"
        assert len(repr(approx(np.arange(1e4)))) < 60


class TestReports:
    def test_approx_is_explained(self, run):
        _, text = run(
            """
def test():
    a = np.arange(12.0).reshape(3, 4)
    b = a.copy()
    b[1, 2] += 0.5
    assert a == cal.approx(b)
""",
            failed=1,
        )
        assert "E       assert array([[" in text
        assert "E         Not close: 1 of 12 elements differs (8.33 %)" in text
        assert "truncated" not in text
        report = text.partition("calipers' report -")[2]
        assert "passes      with rtol=0.077 (same atol)" in report
        assert "    [1, 2]        6       6.5" in report

    def test_the_reference_may_stand_left(self, run):
        _, text = run("def test():\n    assert cal.approx([1.0]) == np.zeros(1)", failed=1)
        assert "assert approx([1.0]) == array([0.])" in text
        assert "[0]           0         1" in text

    @pytest.mark.parametrize(
        ("assertion", "said"),
        [
            ("cal.allclose(a, a[::-1])", "reversed: actual == expected[::-1]"),
            ("cal.allclose(a, a + 1, 0, atol=0.5)", "<= 0.5 + 0*|expected|"),
            ("cal.allclose(a, 0)", "float64 (12,)"),
            ("cal.allclose(a * np.nan, a, equal_nan=True)", "12 NaN only in actual"),
            ("cal.allclose([1.0, 2.0], [1.0, 3.0])", "1 of 2 elements differs"),
            ("cal.array_equal(a, a + 1)", "exact equality"),
            ("cal.array_equal(a, a[:3])", "nothing could be compared"),
            ("cal.array_equal(a, a.astype('f4') + 1e-3)", "12 of 12 elements differ"),
            ("helped(a, a + 1)", "12 of 12 elements differ"),
            ("cal.allclose(np.ma.array(a), a + 1)", "12 of 12 elements differ"),
            ("cal.allclose(a.astype(object), a + 1)", "12 of 12 elements differ"),
        ],
    )
    def test_refusals_are_explained(self, run, assertion, said):
        _, text = run(
            f"""
def helped(a, b):
    return cal.allclose(a, b)

def test():
    a = np.arange(12.0)
    assert {assertion}
""",
            failed=1,
        )
        line = 5 if "helped" in assertion else 9
        report = text.partition(f"calipers' report of test_refusals_are_explained.py:{line} -")[2]
        assert said in report

    @pytest.mark.parametrize("options", [(), ("--assert=plain",)])
    @pytest.mark.parametrize(
        "assertion",
        [
            "assert [a, 2] == [cal.approx(b), 2]",
            "assert {'x': a} == {'x': cal.approx(b)}",
            "self.assertEqual(a, cal.approx(b))",
            "self.assertTrue(cal.allclose(a, b))",
            "assert cal.allclose(a, b)",
        ],
    )
    def test_other_forms(self, run, assertion, options):
        _, text = run(
            f"""
import unittest

class Test(unittest.TestCase):
    def test(self):
        a, b = np.ones(3), np.zeros(3)
        {assertion}
""",
            *options,
            failed=1,
        )
        report = text.partition("calipers' report of test_other_forms.py:9 -")[2]
        assert "3 of 3 elements differ" in report

    def test_other_threads_ask_meanwhile(self, run):
        _, text = run(
            """
from concurrent.futures import ThreadPoolExecutor

def test():
    a = np.ones(3)
    with ThreadPoolExecutor(1) as pool:
        assert cal.allclose(a, 0) or pool.submit(cal.allclose, a, 9).result()
""",
            failed=1,
        )
        assert "calipers' report of test_other_threads_ask_meanwhile.py:9 -" in text
        assert "passes      with atol=1 (same rtol)" in text

    def test_iterators_are_not_read_on(self, run):
        _, text = run(
            """
def test():
    x = (np.full(3, k) for k in range(5))
    y = (np.full(3, k) for k in range(1, 6))
    assert cal.allclose(x, y)
    assert next(x)[0] < 4
""",
            failed=1,
        )
        assert "an iterator is read only once" in text
        assert "elements differ" not in text

    def test_a_name_for_the_answer(self, run):
        _, text = run(
            "def test():\n  a = np.ones(3)\n  ok = cal.allclose(a, 0)\n  assert ok, 'no'", failed=1
        )
        assert "calipers' report of test_a_name_for_the_answer.py:5" in text

    @pytest.mark.parametrize("options", [(), ("--assert=plain",)], ids=["", "plain"])
    @pytest.mark.parametrize(
        "assertion",
        [
            "assert report",
            "assert report, 'no'",
            "assert bool(report)",
            "self.assertTrue(report)",
            "assert cal.compare(a, b)",
            "assert cal.isclose(a, b).all()",
            "assert close.all()",
        ],
    )
    def test_reports_that_are_asserted(self, run, assertion, options):
        _, text = run(
            f"""
import unittest

class Test(unittest.TestCase):
    def test(self):
        a, b = np.ones(3), np.zeros(3)
        report, close = cal.compare(a, b), cal.isclose(a, b)
        {assertion}
""",
            *options,
            failed=1,
        )
        if options and "(a, b)" in assertion and "compare" in assertion:
            return  # nothing has kept it
        line = 9 if "close.all" in assertion else 10
        title = f"calipers' report of test_reports_that_are_asserted.py:{line} -"
        assert "passes      with atol=1 (same rtol)" in text.partition(title)[2]

    def test_reports_of_every_kind(self, run):
        _, text = run(
            """
def test_diagnosis():
    x = np.linspace(1, 2, 50).reshape(5, 10)
    assert cal.diagnose(lambda x: x.sum(1), lambda x: x.sum(1) * 1.5, (x,))

def test_gradient():
    found = cal.gradcheck(np.sin, 1.0, jac=np.exp, raise_exception=False)
    assert found

def test_probe():
    x = np.linspace(1, 2, 50).reshape(5, 10)
    assert cal.probes.batch(lambda x: x - x.mean(0), (x,))

def test_other():
    report = cal.compare([1.0], [2.0])
    assert not report
    assert 1 == 2
""",
            failed=4,
        )
        assert text.count("calipers' report of") == 3

    def test_arrays_that_are_gone(self, run):
        gone = "No report: the arrays no longer exist. Keep them in variables."
        for sides in "np.ones(3), np.zeros(3)", "A, A + 1", "A + 1, [0, 0, 0]":
            test = f"def test():\n  ok = cal.allclose({sides})\n  assert ok"
            _, text = run(f"A = np.ones(3)\n\n{test}", failed=1)
            assert "calipers' report of test_arrays_that_are_gone.py:6" in text
            assert gone in text
        _, text = run("def test():\n  ok = cal.array_equal(None, 1)\n  assert ok", failed=1)
        assert gone not in text

    def test_what_explains_nothing_is_not_shown(self, run):
        _, text = run(
            """
def test_gone():
    assert not cal.allclose(np.ones(3), np.zeros(3))
    assert 1 == 2

def test_of_another_function():
    refuse()
    assert 1 == 2

A = np.ones(3)

def test_of_the_caller_of_another_function():
    if not refuse(): 1 == 2
    refuse()
    assert (1
        == 2)

def refuse():
    return not cal.allclose(A, 0)

def test_of_another_test():
    assert 1 == 2

def test_of_an_answer_that_was_wanted():
    assert not cal.allclose(A, 0)
    n = 1
    assert n == 2

def test_of_an_answer_with_another_name():
    other = cal.allclose(A, 0)
    ok = 1 == 2
    assert ok

def test_of_another_kind():
    cal.allclose(A, 0)
    raise ValueError

def test_mended():
    a = np.ones(3)
    cal.allclose(a, 0)
    a[:] = 0
    assert 1 == 2

def test_approx_that_was_caught():
    with pytest.raises(AssertionError):
        assert A == cal.approx(0)
    assert 1 == 2
""",
            failed=9,
        )
        assert "calipers' report" not in text

    def test_a_helper_in_a_long_statement(self, run):
        _, text = run(
            """
def helped(a, b):
    return cal.allclose(a, b)

def test():
    a = np.ones(3)
    assert (
        a is None
        or helped(a, 0)
    )
""",
            failed=1,
        )
        assert "calipers' report of test_a_helper_in_a_long_statement.py:5" in text

    def test_large_arrays_are_not_read_again(self, run, monkeypatch):
        monkeypatch.setattr("calipers.pytest_plugin._MAX_COMPARED_BYTES", 100)
        _, text = run("def test():\n    a = np.ones(30)\n    assert cal.allclose(a, 0)", failed=1)
        assert "No report, as the arrays are large: calipers.compare(a, b) shows how" in text

    def test_tolerances_that_have_no_report(self, run):
        _, text = run(
            "def test():\n    a = np.ones(3)\n    assert cal.allclose(a, 0, rtol=a, atol=-1)",
            failed=1,
        )
        assert "No report: rtol must be a number" in text

    def test_nothing_is_kept(self, pytester):
        pytester.makepyfile(
            """
            import gc, weakref
            import numpy as np
            import calipers as cal

            KEPT = []

            def test_one():
                a = np.ones(3)
                KEPT.append(weakref.ref(a))
                assert not cal.allclose([a], [a + 1])
                assert a != cal.approx(0)

            def test_next():
                assert KEPT[0]() is None

            def test_arrays_are_not_kept_by_the_plugin():
                a = np.ones(3)
                kept = weakref.ref(a)
                assert not cal.allclose(a, 0)
                del a
                assert kept() is None
            """
        )
        # In this process the plugin of this test listens, too.
        pytester.runpytest_subprocess().assert_outcomes(passed=3)


class TestRefusals:
    @pytest.mark.parametrize(
        ("ask", "expected"),
        [
            (lambda x: calipers.allclose(x, x + 1), 1),
            (lambda x: calipers.allclose(x, x), 0),
            (lambda x: calipers.array_equal(x, x[:1]), 1),
            (lambda x: calipers.array_equal(x, x), 0),
            (lambda x: calipers.allclose(iter([x, x]), iter([x, x + 1])), 1),
            (lambda x: calipers.allclose(x, x + 1, axis=0), 0),
            (lambda x: calipers.isclose(x, x + 1), 1),
            (lambda x: calipers.isclose(x, x), 0),
        ],
    )
    def test_who_listens_is_told_once(self, ask, expected):
        told = []
        with listening(lambda *given: told.append(given)):
            ask(np.ones(4))
        assert len(told) == expected
        ask(np.ones(4))
        assert len(told) == expected

    def test_nobody_listens(self):
        notify_mismatch(1, 2, rtol=3)


class TestSeedsAndTolerances:
    def test_marks(self, run):
        _, text = run(
            """
@pytest.mark.calipers_seed(3, 5)
def test_seeds(calipers_rng, calipers_seed):
    assert calipers_rng.random() == np.random.default_rng(calipers_seed).random()
    assert calipers_seed == 3

@pytest.mark.calipers_seed(3)
def test_without():
    pass

def test_default(calipers_rng):
    assert calipers_rng.random() == np.random.default_rng(7).random()

@pytest.mark.calipers_tolerance(rtol=0, atol=1)
class TestTolerance:
    def test_of_the_class(self, calipers_approx):
        assert np.ones(3) == calipers_approx(np.full(3, 1.9))
        assert np.ones(3) != calipers_approx(np.full(3, 2.1))

    @pytest.mark.calipers_tolerance(atol=2)
    def test_own(self, calipers_approx):
        assert np.ones(3) == calipers_approx(np.full(3, 2.1))
        assert np.ones(3) != calipers_approx(np.full(3, 2.1), atol=1)

def test_no_mark(calipers_approx):
    assert np.ones(3) != calipers_approx(np.full(3, 1.9))
""",
            "--calipers-seed=7",
            "-vv",
            "--strict-markers",
            failed=1,
            passed=6,
        )
        assert "test_seeds[seed=3] PASSED" in text
        assert "test_seeds[seed=5] FAILED" in text
        section = text.partition("- calipers_rng -")[2].splitlines()
        assert section[1] == "seed 5"

    @pytest.mark.parametrize(
        "mark",
        [
            "calipers_seed()",
            "calipers_seed(seed=4)",
            "calipers_seed([1, 2])",
            "calipers_seed('a')",
        ],
    )
    def test_seeds_that_are_none(self, run, mark):
        _, text = run(f"@pytest.mark.{mark}\ndef test(calipers_rng):\n    pass", errors=1)
        assert "the mark calipers_seed takes integers" in text

    def test_seeds_asked_for_late(self, run):
        run(
            """
@pytest.mark.calipers_seed(3)
def test(request):
    assert request.getfixturevalue("calipers_seed") == 3
""",
            passed=1,
        )

    def test_tolerances_without_names(self, run):
        _, text = run(
            "@pytest.mark.calipers_tolerance(1e-3)\ndef test(calipers_approx):\n    pass", errors=1
        )
        assert "takes options by name" in text

    def test_unknown_options(self, run):
        _, text = run(
            """
@pytest.mark.calipers_tolerance(tol=1)
def test(calipers_approx):
    assert np.ones(3) == calipers_approx(1.0)
""",
            failed=1,
        )
        assert "unexpected keyword argument 'tol'" in text


class TestPlots:
    TESTS = """
@pytest.mark.parametrize("name", ["a/b", "a_b"])
def test_approx(name):
    assert np.ones(3) == cal.approx(np.zeros(3))

def test_allclose():
    a = np.ones((3, 4))
    assert cal.allclose(a, 0)

def test_error():
    cal.assert_close(np.ones(3), np.zeros(3))

def test_shapes():
    cal.assert_close(np.ones(3), np.zeros(4))

def test_derivative():
    cal.gradcheck(np.sin, np.ones(3), jac=lambda x: np.diag(np.sin(x)))

def test_other():
    assert 1 == 2
"""

    def test_pictures(self, run, pytester):
        pytest.importorskip("matplotlib")
        _, text = run(self.TESTS, "--calipers-plots=plots/new", failed=7)
        pictures = sorted((pytester.path / "plots" / "new").iterdir())
        assert [path.read_bytes()[:4] for path in pictures] == [b"\x89PNG"] * 5
        assert all(f"plots/new/{path.name}" in text for path in pictures)
        assert "none: nothing was compared: shapes or structures do not match" in text

    def test_pictures_of_containers_show_the_worst_leaf(self, run, pytester):
        pytest.importorskip("matplotlib")
        text = """
def test_all():
    cal.assert_close({"a": np.ones(3), "b": np.ones(3)}, {"a": np.ones(3), "b": np.zeros(3)})

def test_worst():
    cal.assert_close({"b": np.ones(3)}, {"b": np.zeros(3)})
"""
        run(text, "--calipers-plots=plots", failed=2)
        first, second = (path.read_bytes() for path in (pytester.path / "plots").iterdir())
        assert first == second

    def test_two_failures_of_one_test(self, run, pytester):
        pytest.importorskip("matplotlib")
        text = """
@pytest.fixture
def a():
    yield np.ones(3)
    assert np.ones(3) == cal.approx(5)

def test(a):
    assert a == cal.approx(0)
"""
        run(text, "--calipers-plots=plots", failed=1, errors=1)
        run(text, "--calipers-plots=plots", failed=1, errors=1)
        assert len(list((pytester.path / "plots").iterdir())) == 2

    @pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest 9 has subtests")
    def test_failures_of_subtests(self, run, pytester):
        pytest.importorskip("matplotlib")
        run(
            """
def test(subtests):
    for k in range(3):
        with subtests.test(k=k):
            assert np.ones(3) == cal.approx(k)
""",
            "--calipers-plots=plots",
        )
        assert len(list((pytester.path / "plots").iterdir())) == 2

    def test_no_folder_no_pictures(self, run, pytester):
        run(self.TESTS, failed=7)
        assert [path.suffix for path in pytester.path.iterdir() if path.is_file()] == [".py"]

    def test_a_folder_that_cannot_be(self, run, pytester):
        pytest.importorskip("matplotlib")
        (pytester.path / "plots").write_text("a file")
        _, text = run(self.TESTS, "--calipers-plots=plots", failed=7)
        assert "none: " in text
        assert "INTERNALERROR" not in text

    def test_without_matplotlib(self, within, monkeypatch):
        monkeypatch.setattr("calipers.pytest_plugin.find_spec", lambda name: None)
        result = within("--calipers-plots=plots")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*needs matplotlib: pip install matplotlib"])


@pytest.mark.slow
def test_under_xdist(pytester):
    pytest.importorskip("xdist")
    pytest.importorskip("matplotlib")
    pytester.makepyfile(
        "import numpy as np, calipers as cal\n"
        "def test_a(calipers_rng):\n    assert np.ones(3) == cal.approx(0)\n"
        "def test_b():\n    a = np.ones(3)\n    assert cal.allclose(a, 0)\n"
    )
    result = pytester.runpytest_subprocess("-n2", "--calipers-plots=plots", "--calipers-seed=4")
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert "calipers' report -" in text
    assert "calipers' report of test_under_xdist.py:6 -" in text
    assert "seed 4" in text
    assert len(list((pytester.path / "plots").iterdir())) == 2


def test_numba_and_numpy_are_not_imported_at_start(pytester):
    pytester.makepyfile(
        "import sys\n"
        "def test():\n"
        "    assert not {'numba', 'numpy', 'calipers._compare.closeness'} & set(sys.modules)\n"
        "    assert 'calipers.pytest_plugin' in sys.modules\n"
        "def test_fails():\n    assert [1] == [2]\n"
    )
    # Plugins of others may import them.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "calipers.pytest_plugin"],
        cwd=pytester.path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    (entry,) = entry_points(group="pytest11", name="calipers")
    assert entry.value == "calipers.pytest_plugin"


def test_the_page_shows_what_pytest_says(pytester, within, monkeypatch):
    """Numbers of memory and of seconds aside, and what pytest's versions say differently."""
    monkeypatch.setenv("COLUMNS", "80")
    root = Path(__file__).parents[2]
    shown = root / "docs" / "shown"
    pytester.copy_example(str(shown / "test_smoothing.py"))
    result = within("-q")
    result.assert_outcomes(failed=2)
    said = {re.sub("0x[0-9a-fA-F]+", "0x...", line) for line in result.stdout.lines}
    page = (shown / "pytest.txt").read_text().splitlines()
    assert len(page) > 40
    for line in page:
        start = re.sub("0x[0-9a-fA-F]+", "0x...", line).removesuffix("...")
        if not re.search(r"^E +\+ | in [\d.]+s$", line):
            assert any(x.startswith(start) for x in said), line
