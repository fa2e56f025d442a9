"""Benchmark bodies run, once and small, so that they cannot rot. No time is asserted."""

import inspect
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import calipers
from benchmarks import __main__ as report
from benchmarks import (
    bench_closeness,
    bench_coloring,
    bench_comparison,
    bench_derivatives,
    bench_diagnosis,
    bench_gradcheck,
    bench_startup,
    beyond_memory,
    ci_run,
    common,
    dask_arrays,
    measurements,
    scaling_out,
    targets,
)

ROOT = Path(__file__).parents[2]
KINDS = ("time_", "track_", "peakmem_")
SIZE = 100  # in place of what is measured


def _classes(module):
    return [
        c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__
    ]


def _cases():
    modules = (
        bench_closeness,
        bench_coloring,
        bench_comparison,
        bench_derivatives,
        bench_diagnosis,
        bench_gradcheck,
    )
    for cls in itertools.chain.from_iterable(map(_classes, modules)):
        for number, params in enumerate(itertools.product(*getattr(cls, "params", ()))):
            name = "-".join([cls.__name__, *map(str, params)])
            marks = pytest.mark.exhaustive if number else pytest.mark.slow
            yield pytest.param(cls, params, id=name, marks=marks)


@pytest.mark.parametrize(("cls", "params"), list(_cases()))
def test_bodies_run(cls, params, monkeypatch):
    monkeypatch.setattr(common, "SIZE", SIZE)
    monkeypatch.setattr(common, "_SAMPLE_SECONDS", 0.0)
    benchmark = cls()
    try:
        benchmark.setup(*params)
    except NotImplementedError as missing:
        pytest.skip(str(missing))
    bodies = [name for name in dir(cls) if name.startswith(KINDS)]
    assert bodies
    for name in bodies:
        try:
            result = getattr(benchmark, name)(*params)
        except NotImplementedError:
            continue  # the peer is not installed
        assert (result > 0) if name.startswith("track_") else (result is None)
    if hasattr(benchmark, "teardown"):
        benchmark.teardown(*params)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n in dir(bench_startup.Startup) if n.startswith("timeraw_")]
)
def test_startup_code_runs(name):
    benchmark = bench_startup.Startup()
    benchmark.setup()
    code = getattr(benchmark, name)()
    code, setup = code if isinstance(code, tuple) else (code, "")
    subprocess.run([sys.executable, "-W", "error", "-c", f"{setup}\n{code}"], check=True)


def test_torch_is_skipped_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(common, "SIZE", 1000)
    with pytest.raises(NotImplementedError, match="torch"):
        bench_closeness.OverTorch().setup("float64")


@pytest.mark.parametrize("layout", common.LAYOUTS)
def test_a_mismatch_is_one_and_is_undone(layout):
    common.layout_pair.cache_clear()
    pair = common.layout_pair(layout, 100)
    assert calipers.allclose(*pair)
    with common.Mismatch(layout, 100, 0.5) as (a, b):
        assert (~calipers.isclose(a, b)).sum() == 1
    assert calipers.allclose(*pair)


@pytest.mark.parametrize("dtype", common.DTYPES)
def test_pairs_are_close(dtype):
    assert calipers.allclose(*common.equal_pair(dtype, 1000))
    *noisy, tolerances = common.noisy_pair(dtype, 1000)
    assert calipers.allclose(*noisy, **tolerances)
    assert not calipers.array_equal(*noisy)
    if dtype in common.INTEGERS:
        assert calipers.allclose(*noisy, rtol=0.0, atol=1.0)
        assert not calipers.allclose(*noisy, rtol=0.0, atol=0.5)


FAST = measurements.Measurement("fast", 2.0, "x NumPy")
SLOW = measurements.Measurement("slow", 0.5, "x NumPy")
TIME = measurements.Measurement("time", 2.0, "ms")
ABSENT = measurements.Measurement("absent", None, "x torch")
GROUPS = {"One": lambda: [FAST, ABSENT], "Two": lambda: [TIME, SLOW]}


@pytest.mark.parametrize("arguments", [[], ["--markdown"]])
def test_results_are_printed_with_the_peer_where_it_is_faster(arguments, capsys):
    assert report.main(arguments, GROUPS, {}) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {name: next(s for s in lines if name in s) for name in ("fast", "slow ", "time", "abs")}
    assert "2 x NumPy" in shown["fast"]
    assert "slower" not in shown["fast"] + shown["time"]
    assert "slower than NumPy" in shown["slow "]
    assert "not measured" in shown["abs"]


@pytest.mark.parametrize(
    ("targets", "status"),
    [
        ({"fast [x NumPy]": 2.0, "time [ms]": 2.0, "absent [x torch]": 9.0}, 0),
        ({"fast [x NumPy]": 2.1}, 1),  # more is better
        ({"time [ms]": 1.9}, 1),  # less is better
        ({"fast [x torch]": 9.0}, 0),  # measured in another unit
    ],
)
def test_the_exit_status_is_1_below_a_target(targets, status, capsys):
    assert report.main([], GROUPS, targets) == status
    assert ("target" in capsys.readouterr().err) == bool(status)


def test_a_target_is_the_best_of_the_runs_with_some_slack(capsys):
    runs = []
    for factor in (1.0, 2.0):
        faster = {"Two": lambda f=factor: [TIME._replace(value=2.0 / f), SLOW._replace(value=f)]}
        report.main(["--markdown"], faster, {})
        runs.append(targets.results(capsys.readouterr().out))
    expected = {"time [ms]": 1.0 / 0.8, "slow [x NumPy]": 2.0 * 0.8}
    assert targets.targets(runs) == pytest.approx(expected)
    alone = {key: runs[1][key] for key in ["time [ms]"]}
    assert list(targets.targets([runs[0], alone])) == ["time [ms]"]


def test_every_target_is_of_a_measurement_in_the_results():
    measured = targets.results((ROOT / "benchmarks/results.md").read_text("utf-8"))
    named = tomllib.loads(report.TARGETS.read_text("utf-8"))
    assert len(named) > 100
    assert set(named) <= set(measured)


@pytest.mark.slow
def test_groups_measure_everything(monkeypatch):
    monkeypatch.setattr(measurements, "LARGE", 1000)
    monkeypatch.setattr(measurements, "MEDIUM", 1000)
    monkeypatch.setattr(common, "SIZE", SIZE)
    monkeypatch.setattr(common, "_SAMPLE_SECONDS", 0.0)
    groups = [g for g in measurements.GROUPS.values() if g is not measurements.startup]
    keys = []
    for measured in itertools.chain.from_iterable(group() for group in groups):
        assert measured.value is None or measured.value > 0
        keys.append(measured.key)
    assert len(keys) == len(set(keys))


@pytest.mark.slow
def test_files_and_stores_are_measured(capsys, monkeypatch):
    monkeypatch.setattr(beyond_memory, "_REPEATS", 1)
    beyond_memory.main(2**-6, 2**-6)
    rows = [line for line in capsys.readouterr().out.splitlines() if "calipers." in line]
    assert len(rows) == 5


@pytest.mark.parametrize("workers", [1, 10, 100, 1000])
@pytest.mark.parametrize("seconds", [0.01, 1.0])
@pytest.mark.parametrize("back", [0.0, 8e4, 8e6])
def test_the_arithmetic_of_workers_is_that_of_events(workers, seconds, back):
    # Many tasks for each worker: how the last ones fall is not in the formula.
    job = scaling_out.Job(20 * workers, seconds, sent=8e4, back=back)
    cluster = scaling_out.Cluster(workers, rate=550.0, bandwidth=1.25e9)
    assert scaling_out.simulated(job, cluster) == pytest.approx(
        scaling_out.predicted(job, cluster), rel=0.2
    )


def test_more_workers_than_a_scheduler_keeps_busy_do_not_help():
    job = scaling_out.Job(10_000, 1.0)
    clusters = [scaling_out.Cluster(workers, 550.0, 1.25e9) for workers in (500, 600, 6000)]
    assert scaling_out.most_workers(job, 550.0, 1.25e9) == 550
    some, more, many = (scaling_out.simulated(job, cluster) for cluster in clusters)
    assert more < some
    assert many > 0.95 * more


@pytest.mark.slow
def test_warmup_compiles_all_kernels_of_a_project_with_usual_tests(tmp_path, capsys):
    runs = ci_run.Runs(sys.executable, tmp_path)
    runs.row("warmup", "-c", "import calipers; calipers.warmup()", empty=True)
    runs.row("tests", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_project.py")
    warmup, tests = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    assert int(warmup[-1].strip(" |")) > 0
    assert int(tests[-1].strip(" |")) == 0


def figures(text):
    """Return the cells of a table without its head."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:1] == "|"]
    return [cells for cells in lines if not cells[0].startswith("-")][1:]


@pytest.mark.slow
def test_bytes_and_seconds_for_each_chunk_are_measured(capsys):
    pytest.importorskip("distributed")
    scaling_out.chunks((2, 3))
    *measured, (_, size) = figures(capsys.readouterr().out)
    assert [cells[:2] for cells in measured[:4]] == [
        [name, count] for name in ("allclose", "compare") for count in ("2", "3")
    ]
    # An axis of at most 16384 elements has a count of mismatches for each index.
    assert int(size) > 3 * 8 * 10**4


def test_bytes_and_seconds_for_each_column_are_measured(capsys, monkeypatch):
    pytest.importorskip("scipy")
    monkeypatch.setattr(scaling_out, "LARGEST", dict.fromkeys(scaling_out.LARGEST, 1000))
    monkeypatch.setattr(
        scaling_out, "asked", lambda name, n: [*map(float, scaling_out.columns_of(name, n))]
    )
    scaling_out.columns((1.0,))
    rows = figures(capsys.readouterr().out)
    assert [cells[0] for cells in rows] == list(scaling_out.LARGEST)
    sent = {name: float(cells[-2]) for name, *cells in rows}
    assert sent["jacobian, sparse"] == pytest.approx(33, rel=0.1)  # x, f(x), two points, a color
    assert sent["jvp"] == 0


def test_files_of_a_checkpoint_are_measured(capsys):
    scaling_out.files((3,))
    assert [cells[0] for cells in figures(capsys.readouterr().out)] == ["3"]


def test_dask_arrays_are_measured(monkeypatch):
    pytest.importorskip("dask.array")
    monkeypatch.setattr(dask_arrays, "REPEAT", 1)
    x, y, z = dask_arrays.arrays(2, 1, persisted=False)
    assert calipers.allclose(x, y)
    assert not calipers.allclose(x, z)
    assert len(dask_arrays.seconds(lambda: calipers.allclose(x, y), lambda: None)) == 2


def asv(*arguments, home):
    """Run a command of asv with the environment of the tests."""
    pytest.importorskip("asv")
    command = [sys.executable, "-m", "asv", *arguments]
    return subprocess.run(
        command,
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


# What asv installs in its environments is calipers with NumPy, Numba and SciPy.
DISCOVERY = """
import json, sys
for name in ("numba_cuda", "tests", "torch", "jax", "ml_dtypes", "pandas"):
    sys.modules[name] = None
from asv_runner._aux import update_sys_path
from asv_runner.discovery import disc_benchmarks
update_sys_path("benchmarks")
print(json.dumps([benchmark.name for benchmark in disc_benchmarks("benchmarks")]))
"""


def test_asv_imports_the_benchmarks_with_numpy_numba_and_scipy_alone():
    pytest.importorskip("asv_runner")
    done = subprocess.run(
        [sys.executable, "-c", DISCOVERY], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)
    modules = {path.stem for path in (ROOT / "benchmarks").glob("bench_*.py")}
    assert {name.partition(".")[0] for name in names} == modules


def test_asv_checks_the_benchmarks(tmp_path):
    done = asv("check", "--python=same", home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No problems found." in done.stdout


@pytest.mark.exhaustive
def test_asv_runs_a_benchmark(tmp_path):
    assert asv("machine", "--yes", home=tmp_path).returncode == 0
    options = (
        "--python=same",
        "--quick",
        "--dry-run",
        "--bench",
        r"bench_closeness\.Small\.time_allclose",
    )
    done = asv("run", *options, home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bench_closeness.Small.time_allclose" in done.stdout
    assert "failed" not in done.stdout


def test_tables_of_validation_are_written_from_stored_runs(tmp_path):
    from benchmarks.validation import page

    verdicts = {"PASS": 1204, "FAIL": 0, "INCONCLUSIVE": 3, "NONSMOOTH": 1}
    row = {"group": "random64", "kind": "right", "subset": "all", "checks": 1208, "calls": "2/3/4"}
    (tmp_path / "new").write_text(json.dumps({"rows": [row | verdicts]}))
    (tmp_path / "old").write_text(json.dumps({"rows": [row | verdicts | {"FAIL": 7}]}))
    new, old = (page.stored([tmp_path / name]) for name in ("new", "old"))
    written = "| random, float64 | 1 208 | 1 204 → 1 204 | 3 → 3 | 7 → 0 | 1 → 1 | 2/3/4 → 2/3/4 |"
    assert written in page.tables(new, old)
    assert "| random, float64 | 1 208 | 1 204 | 3 | 0 | 1 | 2/3/4 |" in page.tables(new, {})
    (shown,) = page.PLACE.findall(page.PAGE.read_text())
    names = {*page.FUNCTIONS.values(), *page.CLAIMS.values()}
    assert set(re.findall(r"^\| (.+?) \| \d", shown, re.M)) <= names
