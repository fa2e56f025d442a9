"""Scores of verdicts, from made-up runs."""

import json
from types import SimpleNamespace

import pytest

from benchmarks.verdicts import Run, command, is_right, row, wrong_verdicts


def run(name="a", kind="ROUNDING", seed=0, **fields):
    made = {
        "group": "g",
        "name": name,
        "seed": seed,
        "expected": ["ROUNDING"],
        "kind": kind,
        "format": None,
        "is_right": kind == "ROUNDING",
        "is_bug": False,
        "is_benign": True,
        "calls": 10,
        "seconds": 0.5,
        "reason": "",
    }
    return Run(**(made | fields))


def bug(kind, **fields):
    return run(kind=kind, is_bug=True, is_benign=False, is_right=kind == "BUG", **fields)


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("REDUCED", "tf32", True),
        ("REDUCED", "tf32 or float16", True),
        ("REDUCED", "float16", False),
        ("REDUCED", None, False),
        ("UNSTABLE", None, True),
        ("BUG", None, False),
    ],
)
def test_formats_must_have_an_accepted_name(kind, name, expected):
    case = SimpleNamespace(kinds={"REDUCED", "UNSTABLE"}, formats=("tf32",))
    assert is_right(case, kind, name) == expected


def test_row_counts_accepted_bugs_and_false_alarms():
    runs = [run(), run(kind="BUG"), run(kind="SUSPECT"), bug("ROUNDING"), bug("BUG", calls=40)]
    assert row("g", runs) == ("| g | 5 | 2 (40.0%) | 1 of 2 | 1 of 3 | 1 | 0 | 10 | 0.500 | 2 |")
    assert row("g", [bug("ERROR")]).startswith("| g | 1 | 0 (0.0%) | 0 of 1 | 0 of 0 | 0 | 1 |")


def test_wrong_verdicts_are_counted_by_pair():
    runs = [run(kind="BUG", seed=seed) for seed in range(2)] + [run(seed=2)]
    assert list(wrong_verdicts(runs)) == ["- `a`: BUG at 2 of 3, expected ROUNDING"]


def test_compare_prints_changed_verdicts(tmp_path, capsys):
    sets = [run(), run("b", "BUG"), run("old")], [run(kind="SUSPECT"), run("b"), run("new")]
    files = [tmp_path / "old.json", tmp_path / "new.json"]
    for file, runs in zip(files, sets, strict=True):
        file.write_text(json.dumps([r._asdict() for r in runs]), "utf-8")
    command(["--compare", *map(str, files)])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:26] for line in lines[2:4]] == [
        "| g, old | 2 | 1 (50.0%) |",
        "| g, new | 2 | 1 (50.0%) |",
    ]
    assert lines[-2:] == [
        "- `b`: BUG (wrong) to ROUNDING (right), 1 runs",
        "- `a`: ROUNDING (right) to SUSPECT (wrong), 1 runs",
    ]
