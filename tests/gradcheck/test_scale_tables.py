"""Tables of slopes at all scales, in reports: opinions, explanations, the rows that are shown."""

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from calipers import gradcheck
from calipers._gradcheck.entry_rules import Rule
from calipers._gradcheck.report_data import Scale, ScaleTable
from calipers._gradcheck.scale_table import (
    AGREES,
    BETWEEN,
    EXCLUDES,
    UNSURE,
    cells,
    contradiction,
    explanation,
    grows,
    is_near_kink,
    kink,
    limits,
    opinion,
    shown_rows,
)
from calipers._gradcheck.summary import FlaggedEntries

STEPS = 0.5 ** np.arange(1, 21)
X = np.array([0.5, 1.0, 1.5])


def table(slopes, errors, best, analytic=1.0, contradicted=0, gaps=0.0, gap_errors=1e-9, **more):
    """Make a table of scales, of which the first so many are contradicted."""
    columns = np.broadcast_arrays(STEPS, slopes, errors, gaps, gap_errors)
    rows = tuple(
        Scale(*map(float, row), k < contradicted)
        for k, row in enumerate(zip(*columns, strict=True))
    )
    about = {"near_kink": -1, "tolerance": 1e-6, "noise": 2e-16}
    return ScaleTable(rows, best, analytic=analytic, **{**about, **more})


CONSTANT = table(2.0, 1e-8, 5)
BEFORE = np.arange(20) < 10  # the longer steps
NOISY = table(1.0, 1e-3 * 2.0 ** abs(np.arange(20) - 6), 6, noise=1e-5, noisy=True)
CANCELLED = table(np.where(BEFORE, 1.0, -1e5), 1e-9, 12, contradicted=10)
KINK = table(0.5, 1e-9, 4, gap=0.5, gaps=0.5)
NEAR_KINK = table(
    np.where(BEFORE, 0.5, 1.0), 1e-9, 12, 0.3, 10, np.where(BEFORE, 0.5, 0), near_kink=9
)
JUMP = table(1 / STEPS, 2 / STEPS, 0)


@pytest.mark.parametrize(
    ("analytic", "error", "expected"),
    [
        (2.0, 1e-7, AGREES),
        (2.0, 1e-5, UNSURE),  # more than the tolerance
        (2.0 + 2e-6, 1e-9, EXCLUDES),
        (2.0 + 2e-6, 0.9e-6, UNSURE),  # within two errors and the tolerance
        (2.0 + 4e-6, 0.9e-6, EXCLUDES),
    ],
)
def test_what_a_scale_says_of_an_entry(analytic, error, expected):
    one = table(2.0, error, 5, analytic)
    assert opinion(one, one.rows[5]) == expected


def test_a_scale_supports_an_entry_if_it_tells_it_from_the_numerical_value():
    slopes, errors = np.full(20, 5.0), np.full(20, 1e-9)
    for error, expected in ((0.3, AGREES), (0.5, UNSURE)):  # a tenth of the difference is 0.4
        slopes[3], errors[3] = 1.1, error
        one = table(slopes, errors, 8)
        assert opinion(one, one.rows[3]) == expected


def test_entries_lie_between_the_slopes_of_a_kink_or_not():
    assert opinion(KINK, KINK.rows[4]) == BETWEEN
    assert opinion(replace(KINK, analytic=5.0), KINK.rows[4]) == EXCLUDES
    blurred = table(0.5, 1e-9, 4, gap=0.5, gaps=0.5, gap_errors=0.3)
    assert opinion(blurred, blurred.rows[4]) == EXCLUDES  # a gap within two errors is none
    assert is_near_kink(NEAR_KINK)
    assert not is_near_kink(replace(NEAR_KINK, analytic=3.0))
    assert not is_near_kink(KINK)


EXPLANATIONS = {
    "a kink": (
        KINK,
        "f has a kink at x: its slopes are 0 on the left and 1 on the right, down to a step of "
        "9.5e-07",
    ),
    "a jump": (
        JUMP,
        "f has a jump or an infinite slope at x: its slope grows from 2 at a step of 0.5 to "
        "1.04858e+06 at 9.5e-07",
    ),
    "digits that cancel": (
        CANCELLED,
        "the slope of f is 1 ± 1e-09 at steps from 0.5 to 0.00098, but -100000 ± 1e-09 at steps "
        "up to 0.00049: f oscillates, or is piecewise smooth, as where digits cancel",
    ),
    "noise": (
        NOISY,
        "noise of f (1e-05) leaves an error of 0.001 at the best step (0.0078)",
    ),
    "rounding": (
        replace(NOISY, noise=2e-15, noisy=False),
        "rounding of f (2e-15) leaves an error of 0.001 at the best step (0.0078)",
    ),
    "rounding to a grid": (
        table(np.where(BEFORE, 1.0, 0.0), 0.1 / STEPS, 0, noise=0.01, noisy=True),
        "noise of f (0.01) leaves an error of 0.2 at the best step (0.5), and f does not change at "
        "steps up to 0.00049",
    ),
    "a short length": (
        table(1.0, 10 * STEPS, 19),
        "f varies too fast there: its slope still changes at the shortest step (9.5e-07)",
    ),
    "nothing but noise": (
        table(1.0, np.inf, 3, noise=0.5, noisy=True),
        "noise of f (0.5) is as large as its changes",
    ),
    "no scale": (
        replace(NOISY, rows=tuple(replace(row, contradicted=True) for row in NOISY.rows)),
        "slopes by longer and by shorter steps contradict each other",
    ),
    "one scale": (
        table(2.0, np.where(np.arange(20) == 2, 1e-8, 0.9), 2),
        "steps of about 0.12 alone exclude it, and f may differ nearer to x",
    ),
}


@pytest.mark.parametrize("name", EXPLANATIONS)
def test_the_explanation_of_scales(name):
    one, text = EXPLANATIONS[name]
    assert explanation(one) == text


def test_the_explanation_of_a_kink_near_x():
    text = (
        "f has a kink within 0.00098 of x: its slopes are 0 on the left and 1 on the right, and 1 "
        "nearer to x"
    )
    assert explanation(NEAR_KINK, nonsmooth=True) == kink(NEAR_KINK) == text
    assert "kink" not in explanation(NEAR_KINK)
    assert not explanation(CANCELLED, nonsmooth=True)
    broken = replace(CANCELLED, broken=True)
    assert explanation(broken, nonsmooth=True) == "f is not continuous at x"
    assert explanation(JUMP, nonsmooth=True) == explanation(JUMP)
    assert explanation(replace(JUMP, broken=True)).startswith("f has a jump at x: its slope grows")
    endless = table(-np.log(STEPS), 1, 0, endless=True)
    text = "f has an infinite slope at x: its slope grows from 0.693147 at a step of 0.5 to 13.8629"
    assert explanation(endless, nonsmooth=True) == f"{text} at 9.5e-07"
    assert "infinite" not in explanation(endless)


def test_a_slope_below_its_error_is_0():
    gaps = 0.5 - 1e-10
    text = kink(table(0.5, 1e-9, 4, gap=gaps, gaps=gaps))
    assert "its slopes are 0 on the left and 1 on the right" in text


def test_slopes_that_grow_as_at_a_jump():
    assert grows(JUMP)
    assert not grows(table(1 / STEPS * (-1) ** np.arange(20), 1, 0))  # noise
    assert not grows(table(1 / STEPS**0.3, 1, 0))
    assert not grows(replace(JUMP, rows=JUMP.rows[:5]))


def test_scales_contradict_only_if_they_tell_both_slopes_apart():
    assert contradiction(CANCELLED)
    vague = table(np.where(BEFORE, 1.0, 1.5), np.where(BEFORE, 0.1, 1e-9), 12)
    assert not contradiction(vague)
    slopes = np.full(20, 5.0)
    slopes[3] = 2.0
    assert not contradiction(table(slopes, 1e-9, 12))  # one scale says little
    assert contradiction(table(slopes, 1e-9, 12, analytic=2.0))  # unless the entry agrees with it


def test_the_rows_that_are_shown():
    for one in (CONSTANT, NOISY, CANCELLED, KINK, NEAR_KINK, JUMP):
        rows = shown_rows(one)
        assert len(rows) == (3 if one in (CONSTANT, KINK) else 7)
        assert [row.step for row in rows] == sorted({row.step for row in rows}, reverse=True)
        assert {one.rows[k] for k in (0, one.best)} <= set(rows)
    rows = shown_rows(CANCELLED)
    assert {CANCELLED.rows[k] for k in (9, 11, 13, 19)} <= set(rows)
    assert NEAR_KINK.rows[6] in shown_rows(replace(NEAR_KINK, near_kink=6))
    blurred = table(2.0, np.where(np.arange(20) > 14, 9.0, 1e-8), 5)
    assert shown_rows(blurred) == [blurred.rows[k] for k in (0, 5, 14, 19)]  # 14 can tell
    assert len(shown_rows(replace(CONSTANT, rows=CONSTANT.rows[:3], best=1))) == 3


def test_the_texts_of_a_table():
    head, *rows = cells(CANCELLED)
    assert head == ("step", "slope", "error", "analytic 1")
    assert rows[0] == ("0.5", "1", "1e-09", "agrees; contradicted by shorter steps")
    assert ("0.00012", "-100000", "1e-09", "excludes it (numerical)") in rows
    head, *rows = cells(KINK)
    assert head == ("step", "left slope", "right slope", "error", "analytic 1")
    assert rows[0] == ("0.5", "0", "1", "2e-09", BETWEEN)
    near = table(1 + 1e-8, 1e-12, 5, tolerance=1e-10)
    head, *rows = cells(near)
    assert (head[-1], rows[0][1]) == ("analytic 1", "1.00000001")
    assert list(cells(NOISY))[1][1] == "1"
    assert list(cells(table(1.23456, 0.02, 5)))[1][1] == "1.235"  # no digits below the error


def test_the_range_of_a_picture_holds_what_is_compared():
    for one in (CONSTANT, NOISY, CANCELLED, KINK, NEAR_KINK, JUMP):
        low, high = limits(one)
        assert low < one.analytic < high
        assert low < one.rows[one.best].slope < high
    assert limits(CANCELLED)[0] < -1e5
    assert limits(KINK)[0] < 0
    assert limits(KINK)[1] > 1


def flag(entries, excess, verdict=0):
    """Add an entry of each excess, by a rule without tolerances."""
    rule = Rule(0.0, 0.0, 1.0, 1.0, False, 0.0)
    excess = np.array(excess, float)
    count = np.arange(len(excess)) + len(entries.rows)
    tables = []

    def made(i):
        tables.append(i)
        return replace(CONSTANT, analytic=excess[i])

    same = np.full(len(excess), verdict)
    entries.add(count, count, "jac", same, excess, 0 * count, 1 + 0 * count, rule, made)
    return len(tables)


def test_only_the_worst_entries_keep_their_scales():
    entries = FlaggedEntries()
    assert flag(entries, [1, 5, 2, np.inf, 3, 4]) == 4
    assert set(entries.scales) == {(k, k, "jac") for k in (1, 3, 4, 5)}
    assert flag(entries, [0.5, 1]) == 0
    assert flag(entries, [3.5, 3, np.inf]) == 1
    assert set(entries.scales) == {(k, k, "jac") for k in (1, 3, 5, 10)}
    assert flag(entries, [0.1, 0.2], verdict=2) == 2
    other = FlaggedEntries()
    for excess in ([1, 2, 3, 4], [5], [2.5]):  # the least gives way
        flag(other, excess)
    assert {entry[0] for entry in other.scales} == {2, 3, 4, 5}
    assert len(entries.scales) == 6
    assert all(one.analytic == entries.values[k[0]][0] for k, one in entries.scales.items())


def test_the_excess_of_an_entry():
    rule = Rule(0.0, 0.5, 1.0, 1.0, False, 0.0)
    excess = rule.excess(*np.array([(3.0, 2, 0), (3, 2, 1), (1, 0, 0), (np.nan, 1, 0)]).T)
    assert excess.tolist() == [1, 0.5, np.inf, np.inf]


def test_entries_that_are_about_as_wrong_come_in_order_of_their_differences():
    factors = np.array([1, 3, 3, 2, 1e3, 1])
    wrong = np.diag(factors * [2, 2, 2, 2, 1.5, 2])
    x = np.linspace(1, 2, 6)  # errors differ
    report = gradcheck(lambda x: factors * x, x, jac=lambda x: wrong, raise_exception=False)
    assert [e.row for e in report.failures] == [1, 2, 3, 0, 5, 4]
    assert report.worst.scales is not None


def relu(x):
    return np.maximum(x, 0)


def checked(f, x, slopes, **options):
    return gradcheck(f, x, vjp=lambda x, w: w * slopes, raise_exception=False, **options)


def test_a_report_shows_the_scales_of_its_worst_entry():
    report = checked(np.sin, X, np.cos(X) * [1, 1.001, 1.1])
    worst = report.worst
    assert worst.scales.analytic == worst.analytic
    assert worst.scales.rows[worst.scales.best].slope == worst.numerical
    lines = str(report).splitlines()
    (head,) = (k for k, line in enumerate(lines) if line.startswith("  step "))
    assert lines[head].endswith("analytic 0.0778109")
    assert all(" excludes it" in line for line in lines[head + 1 : head + 4])
    assert lines[head + 4].startswith("  others")
    assert sum("(numerical)" in line for line in lines) == 1
    assert max(map(len, lines[:-2])) <= 88
    assert {e.scales is None for e in report.failures} == {False}


def test_a_kink_is_reported_by_its_slopes():
    x = np.array([0.0, 1.0])
    sides = "f has a kink at x: its slopes are 0 on the left and 1 on the right, down to a step of "
    report = checked(relu, x, np.array([0.5, 1]))
    assert report.verdict == "NONSMOOTH"
    assert report.reason.startswith(f"d out[0][0] / d in[0][0] is undefined: {sides}")
    assert report.reason.endswith('; move x or pass allow={"NONSMOOTH"}')
    report = checked(relu, x, np.array([5.0, 1]))
    assert report.verdict == "FAIL"
    assert report.reason.startswith(f"d out[0][0] / d in[0][0] is wrong: analytic 5, but {sides}")
    assert "left slope  right slope" in str(report)


def test_a_jump_is_reported_by_slopes_that_grow():
    report = checked(np.floor, np.ones(1), 0.0)
    assert report.verdict == "NONSMOOTH"
    assert "is undefined: f has a jump at x: its slope grows from " in (report.reason)
    assert report.reason.endswith('; move x or pass allow={"NONSMOOTH"}')
    assert str(report).count("cannot tell") == 7
    report.to_dict()
    report = checked(np.cbrt, np.zeros(1), 1.0)
    assert report.verdict == "NONSMOOTH"
    assert "is undefined: f has an infinite slope at x: its slope grows from 1." in report.reason
    report = checked(lambda x: np.where(x < 1, np.nan, x), np.ones(1), 1.0)
    assert report.worst.scales is None
    assert "or is not finite next to x" in report.reason
    report = checked(
        lambda x: np.where(x == 0, -np.inf, np.log(abs(x) + (x == 0))), np.zeros(1), 1.0
    )
    assert report.verdict == "NONSMOOTH"
    assert "is undefined: f is not finite at x; move x or" in report.reason


def test_a_kink_near_x_is_reported_with_a_wrong_entry():
    report = checked(lambda x: np.abs(x - 1e-7), np.zeros(1), np.array([0.3]))
    assert report.verdict in ("FAIL", "NONSMOOTH")
    assert ("pass a shorter step=, or" in report.reason) == (report.verdict == "NONSMOOTH")
    assert "f has a kink within " in report.reason
    assert " of x: its slopes are -1 on the left" in report.reason


def test_scales_that_contradict_are_the_reason():
    x = np.array([1e-5])
    report = checked(lambda x: (1 - np.cos(x)) / x**2, x, -x / 12)
    assert report.verdict == "INCONCLUSIVE"
    assert "could not be confirmed: analytic -8.33333e-07; the slope of f is -" in (report.reason)
    assert "but -100000 ± " in report.reason
    assert "agrees; contradicted by shorter steps" in str(report)


def test_checks_without_scales_show_none():
    for options in ({"method": "3-point"}, {"fast_mode": True}, {"method": "cs"}):
        report = checked(np.sin, X, 2 * np.cos(X), **options)
        assert report.verdict == "FAIL"
        assert report.worst.scales is None
        assert "  step " not in str(report)
    assert gradcheck(np.sin, X, vjp=lambda x, w: w * np.cos(x)).worst is None


def test_scales_do_not_depend_on_the_workers():
    alone = checked(np.sin, X, 2 * np.cos(X))
    with ThreadPoolExecutor(2) as workers:
        assert checked(np.sin, X, 2 * np.cos(X), workers=workers).failures == alone.failures


def test_steps_are_those_of_x():
    report = checked(lambda x: np.sin(x / 1000), np.array([1000.0]), 1.0)
    assert 100 < report.worst.scales.rows[0].step <= 500


def test_scales_of_complex_and_bounded_inputs():
    z = np.array([1 + 2j])
    report = gradcheck(np.square, z, vjp=lambda z, w: 2 * z * w, raise_exception=False)
    worst = report.worst
    assert worst.scales.rows[worst.scales.best].slope == worst.numerical
    report = checked(np.sin, X, 2 * np.cos(X), bounds=(X, 3))
    worst = report.worst
    assert worst.scales.rows[worst.scales.best].slope == worst.numerical
    assert worst.scales.gap == 0


def test_scales_are_data():
    report = checked(np.sin, X, 2 * np.cos(X))
    data = json.loads(json.dumps(report.to_dict()))["failures"][0]["scales"]
    assert data["best"] == report.worst.scales.best
    assert data["rows"][0]["step"] == report.worst.scales.rows[0].step
    again = pickle.loads(pickle.dumps(report))
    assert again == report
    assert str(again) == str(report)
    assert hash(again) == hash(report)


def test_the_picture_of_scales():
    pytest.importorskip("matplotlib")
    for f, x, slopes in ((np.sin, X, 2 * np.cos(X)), (relu, np.zeros(1), np.full(1, 0.5))):
        report = checked(f, x, slopes)
        axes = next(a for a in report.plot().axes if a.get_xlabel() == "step")
        assert axes.get_title() == report.worst.name
        assert axes.get_xscale() == "log"
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        expected = ["slope ± error", "numerical"]
        if f is relu:
            expected = ["left slope ± error", "right slope ± error"]
        assert labels == ["tolerance", "analytic", *expected]
        line = next(line for line in axes.lines if line.get_label() == "analytic")
        assert set(line.get_ydata()) == {report.worst.analytic}
        (slope,) = (c for c in axes.containers if c.get_label() == expected[0])
        assert sorted(slope.lines[0].get_xdata()) == sorted(
            row.step for row in report.worst.scales.rows if not row.contradicted
        )
        assert axes.get_yscale() == "linear"
        assert "<img" in report._repr_html_()
    of_jump = checked(np.floor, np.ones(1), 0.0)
    axes = next(a for a in of_jump.plot().axes if a.get_xlabel() == "step")
    assert axes.get_yscale() == "symlog"
    assert axes.get_ylim()[1] > of_jump.worst.scales.rows[-1].slope > 1e10
