"""The command line: what it prints, what it exits with, and what it leaves behind."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import calipers
from calipers._cli import installation as _warmup
from calipers._cli import main
from calipers._core import jit as _jit
from calipers._files.compare import is_ignored
from tests.data.terminal import on_a_terminal

pytest.importorskip("click")

X = np.random.default_rng(0).normal(size=(20, 30))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Make files to compare where the test is run."""
    monkeypatch.chdir(tmp_path)
    y = X.copy()
    y[3, 4:8] += 1e-3
    np.save("a.npy", X)
    np.save("b.npy", y)
    np.savez("a.npz", w=X, b=X[0], nan=[np.nan])
    np.savez("b.npz", w=y, b=X[0] + 1, nan=[np.nan])
    for name, x in ("d", X), ("e", y):
        os.makedirs(f"{name}/sub")
        np.save(f"{name}/x.npy", X)
        np.save(f"{name}/sub/y.npy", x)
    return tmp_path


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command here, and return its status and what it wrote."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in "functions", "constants", "broken", "leaves", "net", "softplus":
        # What a command imports is forgotten when the test ends.
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)

    def run(*arguments):
        status = main([str(x) for x in arguments])
        return status, *capsys.readouterr()

    return run


def trouble(result):
    """Return the one line of a command that failed."""
    status, out, err = result
    assert status == 2
    assert out == ""
    assert err.startswith("calipers: ")
    assert err.count("\n") == 1
    return err.removeprefix("calipers: ")


def process(*arguments, **options):
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "calipers", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


# compare


def test_the_same(files, run):
    assert run("compare", "a.npy", "a.npy") == (
        0,
        "Close: 600 elements agree\n"
        "  arrays      float64 (20, 30)\n"
        "  tolerance   |actual - expected| <= 1e-07 + 1e-07*|expected|\n"
        "  overall     RMSE 0, relative error 0 (2-norm)\n",
        "",
    )
    assert run("compare", "d", "d") == (
        0,
        "Close: 2 arrays agree\n  tolerance   |actual - expected| <= 1e-07 + 1e-07*|expected|\n",
        "",
    )


def test_tolerances_of_each_dtype_are_said(files, run):
    np.savez("x.npz", a=np.float32([1e-20]), b=[1e-20], c=[1], d=np.float32([2]))
    np.savez("y.npz", a=np.float32([2e-20]), b=[2e-20], c=[1], d=np.float32([2]))
    _, out, _ = run("compare", "x.npz", "y.npz")
    rules = {x: calipers.compare(x([1]), x([1])).rule for x in (np.float32, np.float64)}
    assert out.splitlines() == [
        "Close: 4 arrays agree",
        *(
            f"  {label:12}|actual - expected| <= {rules[x].atol:g} + {rules[x].rtol:g}*|expected| "
            f"({x.__name__})"
            for label, x in (("tolerance", np.float32), ("", np.float64))
        ),
        "              exact equality (int64)",
    ]


def test_stores_of_compressed_chunks_leave_nothing_on_standard_error(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "x.zarr"), mode="w", zarr_format=2)
    # Its codecs hold a semaphore of their own.
    group.create_array("x", shape=(6,), dtype="f8")[...] = np.arange(6.0)
    done = process("compare", tmp_path / "x.zarr", tmp_path / "x.zarr")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_store_that_is_refused_has_one_line(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "x.zarr"), mode="w")
    for i in range(40):  # which zarr looks at side by side
        group.create_array(f"x{i}", shape=(4,), dtype="f8")
    for i in 3, 30:
        (tmp_path / "x.zarr" / f"x{i}" / "zarr.json").write_text("{")
    done = process("compare", tmp_path / "x.zarr", tmp_path / "x.zarr")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"calipers: {tmp_path}/x.zarr: zarr cannot read it: ")
    assert done.stderr.count("\n") == 1


def test_different(files, run):
    status, out, err = run("compare", "a.npy", "b.npy")
    assert (status, err) == (1, "")
    first, *files, second, third = out.splitlines()[:5]
    assert files == ["  files       actual    a.npy", "              expected  b.npy"]
    report = str(calipers.compare(np.load("a.npy"), np.load("b.npy"))).splitlines()
    assert [first, second, third] == report[:3]


def test_names_and_the_worst(files, run):
    status, out, _ = run("compare", "a.npz", "b.npz")
    assert status == 1
    largest = calipers.compare(np.load("a.npz")["w"], np.load("b.npz")["w"]).worst("relative")
    relative = np.max(1 / np.abs(X[0] + 1))
    assert out.splitlines()[:9] == [
        "Not close: 3 of 3 arrays differ",
        "  files       actual    a.npz",
        "              expected  b.npz",
        "                                            max abs   max rel  error/tol",
        f"  w    4 of 600 elements differ (0.667 %)     0.001  {largest.relative:8.3g}     8.61e3",
        f"  b    30 of 30 elements differ (100 %)           1  {relative:8.3g}     9.27e6",
        "  nan  nan != nan",
        "",
        "The worst by error/tol, b:",
    ]
    assert max(map(len, out.splitlines())) <= 80


def test_long_names_take_lines_of_their_own(files, run):
    names = ["x", "n" * 24, "encoder/layers/0/attention/query/kernel", "y" * 100]
    np.savez("c.npz", **{name: np.zeros(3) for name in names})
    np.savez("d.npz", **{name: np.ones(3) for name in names})
    _, out, _ = run("compare", "c.npz", "d.npz")
    lines = out.splitlines()
    assert lines[3:10] == [
        f"{' ' * 61}max abs   max rel",
        f"  x{' ' * 23}  3 of 3 elements differ (100 %)         1         1",
        f"  {'n' * 24}  3 of 3 elements differ (100 %)         1         1",
        "  encoder/layers/0/attention/query/kernel",
        f"  {' ' * 24}  3 of 3 elements differ (100 %)         1         1",
        f"  ...{'y' * 63}",
        f"  {' ' * 24}  3 of 3 elements differ (100 %)         1         1",
    ]
    assert max(map(len, lines)) <= 80


def test_counts_are_whole_where_the_line_has_room(files, run):
    x = np.ones(2400)
    np.savez("c.npz", uo=x, vo=x)
    x[7] = 2
    np.savez("d.npz", uo=x, vo=x)
    _, out, _ = run("compare", "c.npz", "d.npz")
    assert "\n  uo  1 of 2400 elements differs (0.0417 %)         1       0.5     3.33e6\n" in out


def test_tolerances(files, run):
    assert run("compare", "a.npy", "b.npy", "--rtol", 0, "--atol", 0.01)[0] == 0
    assert run("compare", "a.npy", "b.npy", "--rtol", 0.01, "--atol", 0)[0] == 0
    assert run("compare", "a.npy", "b.npy", "--rtol", 1e-9, "--atol", 1e-9)[0] == 1
    for one, other in ("--rtol", "--atol"), ("--atol", "--rtol"):
        text = trouble(run("compare", "a.npy", "b.npy", one, 1))
        assert text.startswith(f"{one} needs {other}: pass both")
    for value in "-1", "nan":
        text = trouble(run("compare", ".", ".", f"--rtol={value}", "--atol=1"))
        assert text == f"--rtol must be finite and not negative, got {float(value)}\n"


def test_nan(files, run):
    assert run("compare", "a.npz", "a.npz")[0] == 1
    assert run("compare", "a.npz", "a.npz", "--equal-nan")[0] == 0


def test_brackets_of_ignored_names_are_themselves(tmp_path, run):
    a, b = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(a, **{"['opt'][0]": 1.0, "params": 1.0, "o?\n": 1.0})
    np.savez(b, **{"['opt'][0]": 2.0, "params": 2.0, "o?\n": 1.0})
    told = run("compare", a, b, "--ignore", "['opt']*", "--ignore", "??")[1]
    assert "1 of 2 arrays differs" in told
    assert "1 name ignored: ['opt'][0]" in told
    assert "--ignore ?? matches no name" in told
    assert "2 names ignored" in run("compare", a, b, "--ignore", "*a*s", "--ignore", "o?*")[1]


def test_ignored_names(files, run):
    status, out, _ = run("compare", "a.npz", "b.npz", "--ignore", "w", "--ignore", "n*")
    assert status == 1
    assert "Not close: 1 of 1 array differs" in out
    assert "2 names ignored: w, nan" in out
    status, out, _ = run("compare", "d", "e", "--ignore", "sub")
    tolerance = "  tolerance   |actual - expected| <= 1e-07 + 1e-07*|expected|\n"
    assert (status, out) == (0, f"Close: 1 array agrees\n{tolerance}1 name ignored: sub/y.npy\n")
    for pattern in "./sub", "sub/", "./sub/":
        assert run("compare", "d", "e", "--ignore", pattern)[1] == out
    assert "a pattern is empty" in trouble(run("compare", "d", "e", "--ignore", ""))
    status, out, err = run("compare", "d", "e", "--ignore", "*")
    assert (status, err) == (2, "calipers: nothing was compared: d and e have no arrays\n")


@pytest.mark.parametrize(
    "pattern", ["pr", "x.nc/pr", "ocean/x.nc/pr", "p*", "*.nc/pr", "x.nc", "ocean"]
)
def test_patterns_match_any_trailing_part_of_a_path(pattern):
    assert is_ignored("ocean/x.nc/pr", (pattern,))
    assert is_ignored("runs/ocean/x.nc/pr/units", (pattern,))


@pytest.mark.parametrize("pattern", ["r", "cean/x.nc/pr", "ocean/pr", "nc", "*x", "x.nc/p"])
def test_patterns_match_whole_names_only(pattern):
    assert not is_ignored("ocean/x.nc/pr", (pattern,))


def test_names_below_files_and_folders_are_ignored_by_their_last_part(files, run):
    for folder in "d", "e":
        os.rename(f"{folder}/sub", f"{folder}/ocean")
    np.savez("d/ocean/z.npz", pr=X, tas=X)
    np.savez("e/ocean/z.npz", pr=X + 1, tas=X)
    status, out, _ = run("compare", "d", "e", "--ignore", "pr", "--ignore", "y.npy")
    assert status == 0
    assert "2 names ignored: ocean/y.npy, ocean/z.npz/pr\n" in out


def test_patterns_that_match_nothing(files, run):
    idle = "--ignore", "sob", "--ignore", "\x1b"
    status, out, _ = run("compare", "d", "d", "--ignore", "sub", *idle)
    assert status == 0
    assert out.splitlines()[-2:] == [
        "note: --ignore sob matches no name",
        "note: --ignore \\x1b matches no name",
    ]
    # They may match what was not seen.
    told = run("compare", "d", "e", "--fail-fast", *idle)[1]
    assert "--ignore sob matched no name before --fail-fast stopped" in told
    Path("d/bad.npz").touch()
    assert "sob" not in run("compare", "d", "d", *idle)[1]


def test_the_next_command_of_files_that_differ_by_nan(files, run):
    np.savez("it's.npz", nan=[np.nan, 1.0], x=X)
    _, out, _ = run("compare", "it's.npz", "it's.npz")
    command = out.splitlines()[-1].removeprefix("next: calipers ")
    assert command == """compare 'it'"'"'s.npz' 'it'"'"'s.npz' --equal-nan"""
    assert run(*shlex.split(command))[0] == 0
    assert "next: " not in run("compare", "a.npz", "b.npz")[1]


def test_only_options_of_the_command_are_advised(files, run):
    np.savez("c.npz", x=[np.nan, 1.0])
    np.savez("d.npz", x=[2.0, 1.0])
    for command in ("c.npz", "d.npz"), ("c.npz", "d.npz", "--equal-nan"):
        _, out, _ = run("compare", *command)
        assert "\n  passes      no tolerance accepts NaN\n" in out
        assert "max_mismatches" not in out


def test_an_array_without_a_name_among_others(files, run):
    status, out, _ = run("compare", "a.npy", "a.npz")
    assert status == 1
    assert "\n  the array  only in actual\n" in out
    leaf = json.loads(run("compare", "a.npy", "a.npz", "--json")[1])["leaves"][0]
    assert leaf["path"] == ""
    assert (leaf["actual_shape"], leaf["actual_dtype"]) == ([20, 30], "float64")
    assert (leaf["expected_shape"], leaf["expected_dtype"]) == (None, None)


def test_lines_end_with_words(files, run):
    np.savez("c.npz", x=np.zeros((2, 3, 4, 5, 6, 7, 8)), **{"n" * 24: np.zeros((10,) * 6, "u1")})
    np.savez("d.npz", x=np.zeros((2, 3, 4, 5, 6, 7, 9)), **{"n" * 24: np.zeros((11,) * 6, "u1")})
    _, out, _ = run("compare", "c.npz", "d.npz")
    assert max(map(len, out.splitlines())) <= 80
    assert f"\n  {'n' * 24}  shapes differ: (10, 10, 10, 10, 10, 10) and (11, ...\n" in out


def test_stopping_at_the_first_difference(files, run):
    status, out, _ = run("compare", "a.npz", "b.npz", "--fail-fast")
    assert status == 1
    assert out.startswith("Not close: 1 of 1 array differs\n")
    assert "\n  w  4 of 600" in out
    assert "Stopped at the first difference: what follows was not compared\n" in out
    assert "Stopped" not in run("compare", "a.npy", "b.npy", "--fail-fast")[1]


def test_quiet(files, run):
    assert run("compare", "a.npy", "a.npy", "-q") == (0, "", "")
    assert run("compare", "a.npz", "b.npz", "--quiet") == (1, "", "")
    assert trouble(run("compare", "a.npy", "nowhere.npy", "-q"))


def test_json(files, run):
    (files / "d" / "bad.npy").write_bytes(b"bad")
    (files / "e" / "bad.npy").write_bytes(b"bad")
    for folder in "de":
        (files / folder / "out").symlink_to("/")
    status, out, err = run("compare", "d", "e", "--json", "--ignore", "x*")
    found = json.loads(out)
    assert status == found["status"] == 2
    assert found["errors"] == [
        "d/bad.npy: it ends within its header: it was cut",
        "1 name was not compared: out; --ignore leaves names out",
    ]
    assert err == "".join(f"calipers: {line}\n" for line in found["errors"])
    assert (found["actual"], found["expected"], found["passed"]) == ("d", "e", False)
    (leaf,) = found["leaves"]
    report = calipers.compare(np.load("d/sub/y.npy"), np.load("e/sub/y.npy"))
    assert leaf == json.loads(json.dumps(report.to_dict())) | {
        "path": "sub/y.npy",
        "arrangement": None,
    }
    assert found["ignored"] == ["x.npy"]
    assert found["left_out"] == {"out": "it links out of the folder; --follow-links reads it"}
    assert found["stopped"] is False
    out = run("compare", "d", "e", "--ignore", "x*")[1]
    assert "\nNot compared: d/bad.npy: it ends within its header: it was cut\n" in out
    assert json.loads(run("compare", "a.npy", "a.npy", "--json")[1])["status"] == 0


def test_what_is_left_out_is_said(files, run):
    for i in range(7):
        (files / "d" / f"{i}.npy").symlink_to("/etc/passwd")
    (files / "d" / "note.txt").touch()
    status, out, err = run("compare", "d", "d")
    assert status == 2
    names = ", ".join(f"{i}.npy" for i in range(5))
    summary = f"7 names were not compared: {names}, and 2 more; --ignore leaves names out"
    assert err == f"calipers: {summary}\n"
    lines = out.splitlines()
    assert lines[2] == "Not compared: 0.npy: it links out of the folder; --follow-links reads it"
    assert lines[7:] == ["Not compared: 2 more: --json lists all"]
    assert run("compare", "d", "d", "-q") == (2, "", err)
    status, out, _ = run("compare", "d", "d", "--json")
    assert (status, json.loads(out)["passed"], json.loads(out)["errors"]) == (2, False, [summary])
    assert run("compare", "d", "d", "--ignore", "[0-6].npy")[0] == 2
    assert run("compare", "d", "d", "-q", *(f"--ignore={i}.npy" for i in range(7))) == (0, "", "")
    status, _, err = run("compare", "d", "d", "--follow-links")
    assert status == 2
    assert err.count("does not begin with") == 7


def test_pictures(files, run):
    pytest.importorskip("matplotlib")
    assert run("compare", "a.npz", "b.npz", "-q", "--plot", "x.png")[0] == 1
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
    run("compare", "a.npz", "b.npz", "-q", "--plot", "x.svg", "--ignore", "b")
    text = Path("x.svg").read_text()
    assert "no elements to draw" not in text
    assert "text" in text
    np.savez("good.npz", a=X, w=X)
    np.savez("bad.npz", a=X, w=X + 1)
    run("compare", "good.npz", "bad.npz", "-q", "--plot", "worst.png")
    run("compare", "good.npz", "bad.npz", "-q", "--plot", "alone.png", "--ignore", "a")
    assert Path("worst.png").read_bytes() == Path("alone.png").read_bytes()
    assert "must end in one of .eps" in trouble(run("compare", "a.npy", "b.npy", "--plot", "x.foo"))
    text = trouble(run("compare", "a.npy", "b.npy", "--plot", "nowhere/x.png"))
    assert text == "--plot nowhere/x.png: there is no folder nowhere\n"
    Path("broken.png").symlink_to("nowhere/x.png")
    status, out, err = run("compare", "a.npy", "b.npy", "--plot", "broken.png")
    assert (status, out[:9]) == (2, "Not close")
    assert err == "calipers: broken.png was not drawn: No such file or directory\n"
    np.save("text.npy", np.array(["1", "b"]))
    np.save("more.npy", np.array(["1", "c"]))
    status, _, err = run("compare", "text.npy", "more.npy", "--plot", "y.png")
    why = "elements of dtype <U1 have no distance, so there is nothing to plot"
    assert (status, err) == (2, f"calipers: y.png was not drawn: {why}\n")
    np.save("c.npy", X[:3])
    status, out, _ = run("compare", "a.npy", "c.npy", "--plot", "y.png")
    assert status == 1
    note = "note: y.png was not drawn: no array that differs could be compared"
    assert out.splitlines()[-1] == note
    assert not Path("y.png").exists()


def test_a_picture_is_of_an_array_that_differs(files, run):
    pytest.importorskip("matplotlib")
    shutil.copytree("d", "f")
    os.remove("f/sub/y.npy")
    for command in ("d", "f"), ("f", "d"):
        status, out, err = run("compare", *command, "--plot", "miss.png")
        assert (status, err) == (1, "")
        note = "note: miss.png was not drawn: no array that differs could be compared"
        assert out.splitlines()[-1] == note
        assert not Path("miss.png").exists()
    np.save("f/x.npy", X + 1)
    titles = []
    original = calipers.Comparison.plot

    def plot(report):
        figure = original(report)
        titles.append(figure.get_suptitle())
        return figure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calipers.Comparison, "plot", plot)
        run("compare", "d", "f", "--plot", "miss.png")
    assert titles == ["x.npy: Not close: 600 of 600 elements differ (100 %)"]
    assert Path("miss.png").exists()


def test_pictures_of_foreign_files(files, run):
    pytest.importorskip("matplotlib")
    h5py = pytest.importorskip("h5py")
    for name in "ab":
        with h5py.File(f"{name}.h5", "w") as file:
            file["x"] = np.load(f"{name}.npy")
            file["y"] = X
    status, out, _ = run("compare", "a.h5", "b.h5", "--plot", "x.svg")
    assert status == 1
    assert "x  4 of 600 elements differ" in out
    svg = Path("x.svg").read_text()
    assert svg.count("<image") >= 1  # the map of elements


def test_no_matplotlib(files, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    text = trouble(run("compare", "a.npy", "b.npy", "--plot=x.png"))
    assert text == "--plot needs matplotlib: pip install matplotlib\n"


def test_small_limits_of_memory(files, run, monkeypatch):
    x = np.zeros((1 << 17, 4))
    np.save("x.npy", x)
    np.savez_compressed("x.npz", x=x)
    np.savez("y.npz", x=x + 1e-3)
    assert run("compare", "x.npy", "x.npy", "--memory-limit", 1)[0] == 0
    status, out, _ = run("compare", "x.npz", "y.npz", "--memory-limit", 1)
    assert status == 1
    assert f"x  {x.size} of {x.size} elements differ" in out
    monkeypatch.setattr("calipers._files.contents.Plain.load", None)
    assert run("compare", "x.npy", "x.npy", "--memory-limit", 1)[0] == 0
    assert run("compare", "x.npy", "x.npy")[0] == 2  # it would be loaded
    assert "--memory-limit" in trouble(run("compare", "x.npy", "x.npy", "--memory-limit", 0))


def test_paths_that_make_no_sense(files, run):
    assert "Path 'nowhere' does not exist" in trouble(run("compare", "a.npy", "nowhere"))
    assert "pass two files or two folders" in trouble(run("compare", "a.npy", "d"))
    Path("x.txt").touch()
    assert "the format of its name is not known" in trouble(run("compare", "x.txt", "x.txt"))
    os.makedirs("empty")
    status, _, err = run("compare", "empty", "empty")
    assert (status, err) == (2, "calipers: nothing was compared: empty and empty have no arrays\n")
    usage = "Usage: calipers compare [OPTIONS] ACTUAL EXPECTED\n"
    assert re.search(
        f"Missing argument .*EXPECTED.*{re.escape(usage)}", trouble(run("compare", "a.npy"))
    )
    assert re.search(f"Missing argument .*ACTUAL.*{re.escape(usage)}", trouble(run("compare")))
    assert re.search("No such option:? '?--rtool", trouble(run("compare", "--rtool")))
    assert "No such command 'compere'" in trouble(run("compere"))


def test_names_that_would_drive_a_terminal(files, run):
    np.savez("\x1b]0;a.npz", **{"\x1b[2Jw": X})
    os.rename("a.npz", b"\xff.npz")
    status, out, _ = run("compare", "\x1b]0;a.npz", "b.npz")
    assert status == 1
    status, more, err = run("compare", "b.npz", b"\xff.npz".decode("utf-8", "surrogateescape"))
    text = out + more + err
    assert "\x1b" not in text
    assert "\\x1b[2Jw" in text
    assert "\\udcff.npz" in text
    assert "\x1b" not in trouble(run("compare", "b.npz", "\x1b[2J\n.npz"))
    os.makedirs("\x1b[2J")
    assert "\x1b" not in run("compare", "\x1b[2J", "\x1b[2J")[2]


def test_text_that_would_drive_a_terminal(functions, run, monkeypatch):
    np.save("t.npy", np.array(["\x1b[2J"]))
    np.save("u.npy", np.array(["\x1b[1J"]))
    out = run("compare", "t.npy", "u.npy")[1]
    assert "\x1b" not in out
    assert "\\x1b[2J" in out
    out = run("diagnose", "functions:mean", "functions:drives", "--shape", "3,2")[1]
    assert "\x1b" not in out
    assert "\\x1b[2J" in out
    found = calipers.gradcheck(np.sin, np.ones(1), vjp=lambda x, w: w * np.cos(x))
    monkeypatch.setattr(calipers, "gradcheck", lambda *args, **options: found)
    monkeypatch.setattr(type(found), "__str__", lambda self: "a\n\x1b[2J")
    out = run("gradcheck", "functions:f", "--vjp", "functions:vjp", "--shape", "3")[1]
    assert out == "a\n\\x1b[2J\n"


def test_a_file_that_cannot_be_read(files, run, monkeypatch):
    def denied(*args):
        raise PermissionError(13, "Permission denied", "a.npy")

    monkeypatch.setattr("calipers._files.compare.opened", denied)
    assert run("compare", "a.npy", "b.npy")[2] == "calipers: a.npy: Permission denied\n"


def test_no_command(run):
    _, shown, _ = run("--help")
    assert run() == (2, "", shown)


def test_an_error_that_nobody_foresaw(files, run, monkeypatch):
    monkeypatch.setattr("calipers._files.folders.pairs_of", None)
    assert trouble(run("compare", "a.npy", "b.npy")).startswith("TypeError: ")


# Processes


def buffered():
    """Return an environment in which what could not be written is tried again at exit."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.skipif(os.name == "nt", reason="needs the redirections of a POSIX shell")
@pytest.mark.parametrize(
    ("redirected", "err"),
    [
        (">&-", "standard output or standard error is closed: redirect it to /dev/null\n"),
        ("2>&-", ""),
        (">/dev/full", "[Errno 28] No space left on device\n"),
    ],
)
@pytest.mark.parametrize("command", ["compare a.npy a.npy", "--help"])
def test_output_that_cannot_be_written(files, redirected, err, command):
    if "full" in redirected and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    shell = f'exec "$@" {redirected}'
    words = "sh", "-c", shell, "sh", sys.executable, "-m", "calipers", *command.split()
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=buffered())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (err and f"calipers: {err}")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_trouble_that_cannot_be_written(files, name):
    os.makedirs("empty")
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "calipers", "compare", name, name]
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=full, check=False, env=buffered()
        )
    assert done.returncode == 2


def test_help_is_quick():
    code = """
import sys
from calipers._cli import main
for command in "", "compare", "gradcheck", "diagnose", "doctor", "warmup":
    assert main([*command.split(), "--help"]) == 0
assert main(["--version"]) == 0
print({"numpy", "numba"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *_, version, loaded = done.stdout.splitlines()
    assert version == f"calipers {calipers.__version__}"
    assert loaded == "set()"
    for option in (
        *(
            "--rtol",
            "--atol",
            "--equal-nan",
            "--ignore",
            "--json",
            "--plot",
            "--fail-fast",
            "--vjp",
        ),
        "_CALIPERS_COMPLETE=bash_source",
    ):
        assert option in done.stdout
    assert "[default: float64]" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_no_click():
    code = "import sys; sys.modules['click'] = None; from calipers._cli import main; exit(main([]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "calipers: the command line needs click: pip install click\n"


def test_as_a_module_and_with_a_foreign_reader(files):
    h5py = pytest.importorskip("h5py")
    for name in "ab":
        with h5py.File(f"{name}.h5", "w") as file:
            file["x"] = np.load(f"{name}.npy")
    assert process("compare", "a.h5", "a.h5").returncode == 0
    done = process("compare", "a.h5", "b.npz")
    assert (done.returncode, done.stderr) == (1, "")
    assert "x    only in actual" in done.stdout
    Path("b.h5").write_bytes(Path("b.h5").read_bytes()[:500])
    done = process("compare", "a.h5", "b.h5")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("calipers: b.h5: h5py cannot open it: ")
    assert done.stderr.count("\n") == 1


def test_completion(files):
    words = os.environ | {"_CALIPERS_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    done = process(env=words | {"COMP_WORDS": "calipers compare --f"})
    assert done.stdout.split() == ["plain,--fail-fast", "plain,--follow-links"]


def test_nobody_reads_on(files):
    with subprocess.Popen(
        [sys.executable, "-m", "calipers", "compare", "a.npz", "b.npz", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=buffered(),
    ) as running:
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 2


def test_a_bar_on_a_terminal_if_it_takes_some_time(files):
    for name in "xy":
        np.lib.format.open_memmap(f"{name}.npy", "w+", "u1", (65 << 20,))
    status, out, shown = on_a_terminal("-m", "calipers", "compare", "x.npy", "y.npy")
    assert status == 0
    assert out.startswith("Close: ")
    assert "100%" in shown
    assert process("compare", "a.npy", "a.npy").returncode == 0  # its kernels are cached
    assert on_a_terminal("-m", "calipers", "compare", "a.npy", "a.npy")[2] == ""


def has_ended(group):
    """Tell whether all processes of a group have ended, or do so soon."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_interrupts_leave_nothing_behind(files, suffix):
    shape = 1 << 19, 1 << 13  # no disk is taken: holes, and chunks that are not there
    if suffix == "npy":
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        with open("x.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + (1 << 35))
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File("x.h5", "w") as file:
            file.create_dataset("small", data=[1.0])
            file.create_dataset("x", shape, "f8", chunks=(64, 1024))
    with subprocess.Popen(
        [sys.executable, "-m", "calipers", "compare", f"x.{suffix}", f"x.{suffix}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as running:
        time.sleep(2.5)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert (out, err) == (b"", b"\n")
    assert has_ended(running.pid)


# gradcheck, diagnose and doctor


@pytest.fixture
def functions(files):
    (files / "functions.py").write_text(
        """
import numpy as np
import constants

def f(x):
    return np.sin(constants.TWO * x)

def vjp(x, w):
    return 2 * w * np.cos(2 * x)

def jac(x):
    return np.diag(2 * np.cos(2 * x))

def wrong(x, w):
    return w * np.cos(2 * x)

def kink(x):
    return np.abs(x)

def slope(x, w):
    return w * np.where(x > 0, 1.0, -1.0)

def both(x, y):
    return x * y.sum()

def both_vjp(x, y, w):
    return w * y.sum(), np.full_like(y, (w * x).sum())

def drives(x):
    raise ValueError("\x1b[2J")

def leaves(x, *w):
    raise SystemExit

def interrupts(x):
    raise KeyboardInterrupt

def raises(x):
    raise ZeroDivisionError("no\\nluck")

def mean(x):
    return x.mean(axis=1)

def backwards(x):
    return x[:, ::-1].cumsum(axis=1)[:, -1] / x.dtype.type(x.shape[1])

def other(x):
    return x.sum(axis=1) / x.dtype.type(x.shape[1] - 1)

class Space:
    f = staticmethod(f)

three = 3
"""
    )
    (files / "constants.py").write_text("TWO = 2")
    (files / "broken.py").write_text("import nothing_of_this_name")
    (files / "leaves.py").write_text("import sys\nsys.exit(0)")
    return "functions.py"


def test_derivatives(functions, run):
    for home in "functions.py", "functions":
        for f in "f", "Space.f":
            command = "gradcheck", f"{home}:{f}", "--vjp", f"{home}:vjp", "--shape", "4"
            status, out, err = run(*command)
            assert (status, err) == (0, "")
            assert out.startswith("PASS: vjp agrees with differences")
    status, out, _ = run("gradcheck", "functions:f", "--jac", "functions:jac", "--shape", "4")
    assert (status, out[:18]) == (0, "PASS: jac agrees w")
    status, out, _ = run("gradcheck", "functions:f", "--vjp", "functions:wrong", "--shape", "4")
    assert (status, out[:5]) == (1, "FAIL:")


def test_reports_end_with_the_command(functions, run):
    for command in (
        ["gradcheck", "functions:f", "--vjp", "functions:vjp", "--shape", "4"],
        ["diagnose", "functions:mean", "functions:mean", "--shape", "4,3", "--seed", "7"],
    ):
        _, out, _ = run(*command)
        assert f"\nagain: calipers {shlex.join(command)}\n" in out
    wrong = ["gradcheck", "functions:f", "--vjp", "functions:wrong", "--shape", "4"]
    _, out, _ = run(*wrong)
    assert out.endswith(f"\nnext: calipers {shlex.join(wrong)} --json\n")


def test_a_kink(functions, run):
    np.save("zero.npy", [0.0, 1.0])
    command = "gradcheck", "functions:kink", "--vjp", "functions:slope", "--inputs", "zero.npy"
    status, out, _ = run(*command)
    assert (status, out[:10]) == (1, "NONSMOOTH:")
    # Nothing in Python, since the command has no --allow.
    assert out.splitlines()[-1] == f"again: calipers {shlex.join(command)}"


def test_inputs(functions, run):
    command = "gradcheck", "functions:both", "--vjp", "functions:both_vjp"
    status, out, _ = run(*command, "--shape", "3", "--shape", "2", "--seed", "7")
    assert status == 0
    assert "vjp: 3 outputs x 5 inputs, every entry" in out
    assert "--seed 7" in out
    np.savez("in.npz", x=np.ones(2), y=np.ones(4))
    assert "vjp: 2 outputs x 6 inputs, every entry" in run(*command, "--inputs", "in.npz")[1]
    status, out, _ = run(*command, "--shape", "3", "--shape", "2", "--dtype", "complex128")
    assert "vjp: 6 outputs x 10 inputs, every entry" in out
    assert "pass the inputs by" in trouble(run(*command))
    text = trouble(run(*command, "--shape", "2", "--inputs", "in.npz"))
    assert "pass the inputs by" in text
    assert "--shape 3x: not a shape" in trouble(run(*command, "--shape", "3x"))
    assert "--shape -3: not a shape" in trouble(run(*command, "--shape", "-3"))
    for dtype in ("foo", "U3", "object"):
        text = trouble(run(*command, "--shape", "3", "--dtype", dtype))
        assert text.startswith(f"--dtype {dtype}: not a numeric dtype of NumPy")
    text = trouble(run(*command, "--inputs", "in.npz", "--dtype", "float32"))
    assert "--dtype float32 applies to random inputs" in text
    assert "'--seed': -1 is not in the range" in trouble(
        run(*command, "--shape", "3", "--seed", "-1")
    )
    np.save("o.npy", np.array([None]))
    assert "pickled objects" in trouble(run(*command, "--inputs", "o.npy"))
    Path("x.h5").touch()
    assert ".npy, .npz and .safetensors" in trouble(run(*command, "--inputs", "x.h5"))


def test_a_file_of_inputs_that_holds_more_than_arrays(functions, run):
    np.savez("x.npz", x=np.arange(3.0))
    with zipfile.ZipFile("x.npz", "a") as archive:
        archive.writestr("readme.txt", "text")
    result = run("gradcheck", f"{functions}:f", "--vjp", f"{functions}:vjp", "--inputs", "x.npz")
    assert trouble(result) == "inputs: x.npz: readme.txt is not an input: it is not a .npy file\n"


def test_random_inputs_depend_on_the_seed(functions, run):
    command = "diagnose", "functions:mean", "functions:backwards", "--shape", "8,64"
    outputs = {run(*command, "--seed", seed)[1].splitlines()[-1] for seed in (0, 0, 1)}
    assert len(outputs) == 2


def test_functions_of_torch(functions, run, files):
    pytest.importorskip("torch")
    (files / "net.py").write_text("import torch\n\ndef f(x):\n    return torch.sin(x)\n")
    status, out, _ = run("gradcheck", "net.py:f", "--library", "torch", "--shape", "3")
    assert (status, out[:5]) == (0, "PASS:")
    status, out, _ = run("diagnose", "net.py:f", "net.py:f", "--library", "torch", "--shape", "3")
    assert (status, out[:6]) == (0, "EQUAL:")


def test_formats_that_jax_does_not_keep(functions, run):
    pytest.importorskip("jax")
    command = "diagnose", "functions:mean", "functions:mean", "--library", "jax", "--shape", "3,4"
    status, out, _ = run(*command)
    assert (status, "  inputs      float32" in out) == (0, True)
    text = trouble(run(*command, "--dtype", "float64"))
    assert text.startswith("--dtype float64: jax makes float32 of it; set JAX_ENABLE_X64=1")


def test_functions_that_are_none(functions, run):
    for text, reason in (
        ("functions", "is not a function: write module:function"),
        ("functions:", "is not a function"),
        ("functions:nothing", "functions has no nothing"),
        ("functions:f.nothing", "functions has no f.nothing"),
        ("functions:three", "cannot be called: it is of type int"),
        ("nowhere:f", "nowhere cannot be imported: ModuleNotFoundError"),
        ("nowhere.py:f", "nowhere.py: No such file"),
        ("broken:f", "No module named 'nothing_of_this_name'"),
        ("leaves:f", "leaves cannot be imported: SystemExit: 0 ("),
        ("functions:leaves", "functions:leaves: SystemExit ("),
        ("functions:raises", "ZeroDivisionError: no luck ("),
    ):
        found = trouble(run("gradcheck", text, "--vjp", "functions:vjp", "--shape", "3"))
        assert reason in found
    assert re.search(r"functions\.py:\d+\)$", found)
    text = trouble(run("gradcheck", "functions:f", "--vjp", "functions:f", "--shape", "3"))
    assert "2 were given; vjp is called as vjp(*inputs, *args, w)" in text
    command = "gradcheck", "functions:interrupts", "--vjp", "functions:vjp", "--shape", "3"
    assert run(*command) == (130, "", "\n")
    text = trouble(run("gradcheck", "functions:f", "--shape", "3"))
    assert text.startswith("pass the derivative by --jac or --vjp")
    command = "gradcheck", "functions:f", "--vjp", "functions:vjp", "--shape", "3"
    assert "nothing can be differentiated" in trouble(run(*command, "--dtype", "int64"))
    assert "nothing was compared" in trouble(run(*command[:-1], "0"))


def test_derivatives_as_json(functions, run):
    command = "gradcheck", "functions.py:f", "--shape", "4", "--json"
    for vjp, passed in ("vjp", True), ("wrong", False):
        status, out, err = run(*command, "--vjp", f"functions.py:{vjp}")
        found = json.loads(out)
        assert (status, err) == (found["status"], "") == (0 if passed else 1, "")
        assert list(found)[:5] == ["function", "jac", "vjp", "status", "passed"]
        assert (found["function"], found["jac"]) == ("functions.py:f", None)
        assert found["vjp"] == f"functions.py:{vjp}"
        assert found["passed"] is passed
        assert found["verdict"] == ("PASS" if passed else "FAIL")
    assert found["failures"][0]["output_index"]
    command = "gradcheck", "functions.py:f", "--vjp", "functions.py:vjp", "--shape", "0", "--json"
    assert "nothing was compared" in trouble(run(*command))


def test_implementations_as_json(functions, run):
    command = "diagnose", "functions.py:mean", "--shape", "8,64", "--json"
    for g, kind in ("mean", "EQUAL"), ("other", "BUG"):
        status, out, err = run(*command[:2], f"functions.py:{g}", *command[2:])
        found = json.loads(out)
        assert (status, err) == (found["status"], "") == (int(kind == "BUG"), "")
        assert list(found)[:4] == ["f", "g", "status", "passed"]
        assert (found["f"], found["g"]) == ("functions.py:mean", f"functions.py:{g}")
        assert (found["kind"], found["passed"]) == (kind, kind == "EQUAL")


def test_nothing_else_is_on_standard_output_with_json(files, run):
    Path("loud.py").write_text(
        "print('import')\n\ndef f(x):\n    print('call')\n    return x * x\n"
    )
    status, out, err = run("diagnose", "loud.py:f", "loud.py:f", "--shape", "3", "--json")
    assert (status, json.loads(out)["kind"]) == (0, "EQUAL")
    assert err.startswith("import\n")
    assert "call\n" in err
    assert "call\n" in run("diagnose", "loud.py:f", "loud.py:f", "--shape", "3")[1]


GREEN, RED, YELLOW, END = "\x1b[32m\x1b[1m", "\x1b[31m\x1b[1m", "\x1b[33m\x1b[1m", "\x1b[0m"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_terminal_shows_the_verdict_in_color(functions):
    command = "-m", "calipers", "gradcheck", "functions.py:f", "--shape", "3", "--vjp"
    _, _, shown = on_a_terminal(*command, "functions.py:vjp", stdout=None, TERM="xterm")
    assert shown.startswith(f"{GREEN}PASS{END}: ")
    assert shown.count("\x1b") == 3
    _, _, shown = on_a_terminal(*command, "functions.py:wrong", stdout=None, TERM="xterm")
    assert shown.startswith(f"{RED}FAIL{END}: ")
    np.save("zero.npy", [0.0, 1.0])
    kink = "gradcheck", "functions.py:kink", "--vjp", "functions.py:slope", "--inputs", "zero.npy"
    _, _, shown = on_a_terminal("-m", "calipers", *kink, stdout=None, TERM="xterm")
    assert shown.startswith(f"{YELLOW}NONSMOOTH{END}: ")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_color_is_for_terminals_and_for_those_who_want_it(files):
    command = "-m", "calipers", "compare", "a.npz", "b.npz"
    assert f"{RED}Not close{END}: " in on_a_terminal(*command, stdout=None, TERM="xterm")[2]
    for environment in {"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}:
        status, _, shown = on_a_terminal(*command, stdout=None, **environment)
        assert status == 1
        assert "\x1b" not in shown
    _, out, shown = on_a_terminal(*command, TERM="xterm")  # to a pipe
    assert out.startswith("Not close: ")
    assert shown == ""


def test_two_implementations(functions, run):
    command = "--shape", "8,64", "--dtype", "float32"
    for sides in ("functions:mean", "functions:leaves"), ("functions:leaves", "leaves:f"):
        assert "SystemExit" in trouble(run("diagnose", *sides, *command))
    status, out, _ = run("diagnose", "functions:mean", "functions:backwards", *command)
    assert (status, out[:9]) == (0, "ROUNDING:")
    status, out, _ = run("diagnose", "functions:mean", "functions:other", *command)
    assert (status, out[:4]) == (1, "BUG:")
    status, out, _ = run("diagnose", "functions:mean", "functions:raises", *command)
    assert (status, out[:7]) == (1, "RAISES:")
    assert "  calls       f 1, g 1; " in out


def test_files_of_two_folders_have_their_own_helpers(files, run):
    lazy = "def f(x):\n    from {0} import scale\n    return x * scale\n"
    for folder, scale in ("old", 2), ("new", 3):
        os.makedirs(f"{folder}/steps")
        for name in "beside", "steps/part":
            Path(f"{folder}/{name}.py").write_text(f"scale = {scale}")
        for stem, package in ("model", "beside"), ("parts", "steps.part"):
            text = f"from {package} import scale\n\ndef f(x):\n    return x * scale\n"
            Path(f"{folder}/{stem}.py").write_text(text)
            Path(f"{folder}/lazy_{stem}.py").write_text(lazy.format(package))
    for name in "model", "parts", "lazy_model", "lazy_parts":
        sides = [f"{folder}/{name}.py:f" for folder in ("old", "new")]
        for f in sides:
            for g in sides:
                status, out, _ = run("diagnose", f, g, "--shape", "3")
                assert (status, out[:5]) == ((0, "EQUAL") if f == g else (1, "BUG: ")), (f, g)


def test_a_file_takes_no_module_of_its_name(files, run):
    (files / "json.py").write_text("def f(x):\n    return x\n")
    assert run("diagnose", "json.py:f", "json.py:f", "--shape", "3")[0] == 0
    assert sys.modules["json"] is json


def test_doctor(run, monkeypatch):
    status, out, _ = run("doctor")
    assert status == 0
    found = dict(line.split(maxsplit=1) for line in out.splitlines() if line[0] != " ")
    assert set(found) == {
        "versions",
        "cpu",
        "threads",
        "sources",
        "cache",
        "cuda",
        "kernels",
        "extras",
        "tests",
        "compiled",
    }
    assert found["tests"].startswith("allclose: right, ")
    assert re.fullmatch(r"\d+ of the 16 common ones are in the cache.*", found["kernels"])
    assert "gradcheck: right, " in out
    assert "plot: matplotlib " in out
    monkeypatch.setattr(calipers, "allclose", lambda a, b: True)
    status, out, _ = run("doctor")
    assert status == 2
    assert "allclose: WRONG" in out

    def broken(*args, **options):
        raise OSError("the cache is full")

    monkeypatch.setattr(calipers, "gradcheck", broken)
    assert "gradcheck: OSError: the cache is full" in run("doctor")[1]


def test_doctor_says_what_it_had_to_compile(run, monkeypatch):
    monkeypatch.setattr(_jit.compilations, "kernels", 0)
    assert "compiled  nothing: the tests' kernels are in the cache\n" in run("doctor")[1]
    monkeypatch.setattr(_jit.compilations, "kernels", 2)
    monkeypatch.setattr(_jit.compilations, "seconds", 3.21)
    assert "compiled  2 kernels for these tests, in 3.2 s\n" in run("doctor")[1]
    monkeypatch.setattr(_jit.Kernels, "is_cached", lambda kernels, key: False)
    told = (
        "kernels   0 of the 16 common ones are in the cache: calipers warmup compiles the others\n"
    )
    assert told in run("doctor")[1]


def test_warmup(run, monkeypatch):
    status, out, err = run("warmup")
    assert (status, err) == (0, "")
    *steps, compiled, cache = out.splitlines()
    assert len(steps) == 16
    assert steps[0].split()[:2] == ["allclose", "float64"]
    assert re.fullmatch(r"compiled   \d+ kernels? in \d+\.\d s", compiled)
    assert ", writable, " in cache
    assert all(kernels.is_cached(key) for *_, kernels, key in _warmup.common_kernels())
    monkeypatch.setenv("CALIPERS_CACHE", "0")
    assert not any(kernels.is_cached(key) for *_, kernels, key in _warmup.common_kernels())
    text = trouble(run("warmup"))
    assert text == "there is no cache to fill: CALIPERS_CACHE=0 turns the cache off\n"


def test_doctor_goes_on_where_threads_cannot_be_counted():
    done = subprocess.run(
        [sys.executable, "-m", "calipers", "doctor"],
        env=os.environ | {"CALIPERS_NUM_THREADS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "threads   CALIPERS_NUM_THREADS must be" in done.stdout
    assert "gradcheck: ValueError: CALIPERS_NUM_THREADS must be" in done.stdout
    extras = done.stdout.partition("extras")[2]
    assert "cli: click" in extras
    assert "sphinx" not in extras
    assert "mypy" not in extras


def test_the_page_shows_what_commands_print(tmp_path, monkeypatch, run):
    page = (Path(__file__).parents[2] / "docs" / "comparing_files.md").read_text()
    monkeypatch.chdir(tmp_path)
    *_, setup = re.findall(r"```{code-block} python\n(.*?)```", page, re.S)
    Path("setup.py").write_text(setup)
    subprocess.run([sys.executable, "setup.py"], check=True)
    shown = re.findall(r"```console\n\$ calipers (.*?)\n(.*?)```", page, re.S)
    assert len(shown) == 7
    for command, output in shown:
        _, out, err = run(*shlex.split(command))
        if command.startswith("compare"):
            assert out + err == output
        else:  # whose numbers are rounded as the processor does it, or tell of this machine
            assert out.partition(" ")[0] == output.partition(" ")[0], f"{command}: {out}{err}"


def test_the_steps_for_ci_of_the_page(files, run):
    yaml = pytest.importorskip("yaml")
    pytest.importorskip("matplotlib")
    page = (Path(__file__).parents[2] / "docs" / "comparing_files.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    compare, upload = yaml.safe_load(block)
    command, _, report = compare["run"].partition(" > ")
    os.rename("d", "results")
    os.rename("e", "reference")
    np.savez("results/x.npz", pr=X, tas=X)
    np.savez("reference/x.npz", pr=X + 1, tas=X)
    status, out, err = run(*shlex.split(command)[1:])
    assert (status, err) == (1, "")
    found = json.loads(out)
    assert [leaf["path"] for leaf in found["leaves"] if not leaf["passed"]] == ["sub/y.npy"]
    assert upload["with"]["path"].split() == [report, "worst.png"]
    assert Path("worst.png").exists()
