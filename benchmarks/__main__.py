"""Every bar of the README beside its measured value; exit status 1 if one is missed."""

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import calipers

from . import (
    bench_coloring,
    bench_comparison,
    bench_derivatives,
    bench_diagnosis,
    bench_gradcheck,
    common,
    peers,
)
from .bench_startup import FIRST_CALL, NO_CACHE, NO_SCIPY, NUMBA_LOADED
from .peers import NUMPY

LARGE, MEDIUM, FEW = 50_000_000, 10_000_000, 30_000
TEN = "10 float64"


class Bar(NamedTuple):
    """A measured value and what it has to reach; None is a value that could not be measured."""

    name: str
    value: float | None
    bar: float
    unit: str
    at_least: bool = True

    @property
    def status(self) -> str:
        if self.value is None:
            return "skipped"
        reached = self.value >= self.bar if self.at_least else self.value <= self.bar
        return "ok" if reached else "MISSED"

    @property
    def cells(self) -> tuple[str, str, str, str]:
        value = "-" if self.value is None else f"{self.value:.3g} {self.unit}"
        sign = ">=" if self.at_least else "<="
        return self.name, value, f"{sign} {self.bar:g} {self.unit}", self.status


Group = Callable[[], Iterable[Bar]]


def _over_numpy(name: str, bar: float, question: str, *arrays: Any, **options: Any) -> Bar:
    value = common.over_numpy(question, *arrays, **options)
    return Bar(f"{question}, {name}", value, bar, "x numpy")


def large_equal() -> Iterator[Bar]:
    """
    Compare with each peer in turns of two.

    torch's threads spin for a while after each of its calls, and NumPy gives back hundreds of
    megabytes; whatever came next in a longer row would pay for that.
    """
    for dtype in ("float64", "float32"):
        a, b = common.equal_pair(dtype, LARGE)
        own = partial(calipers.allclose, a, b)
        read = common.speedup(own, common.plain_read(a, b), repeat=15)
        numpy = common.speedup(own, partial(NUMPY["allclose"], a, b))
        torch = None
        with suppress(NotImplementedError):
            torch = common.speedup(own, peers.torch_allclose(a, b))
        name = f"allclose, 5e7 equal {dtype}"
        yield Bar(name, numpy, 10, "x numpy")
        yield Bar(name, torch, 25, "x torch")
        yield Bar(name, read, 0.9, "of plain read")


def small() -> Iterator[Bar]:
    pairs = common.small_pairs()
    for case, pair in pairs.items():
        bar = 12 if case == TEN else 1
        yield _over_numpy(f"small: {case}", bar, "allclose", *pair, repeat=21)
    for question in ("isclose", "array_equal"):
        for case in (TEN, "strided"):
            yield _over_numpy(f"small: {case}", 1, question, *pairs[case], repeat=21)


def first_mismatch() -> Iterator[Bar]:
    for layout in common.LAYOUTS:
        with common.Mismatch(layout, LARGE, 0.0) as (a, b):
            (seconds,) = common.medians(partial(calipers.allclose, a, b))
        bar = 5 if layout == "contiguous" else 50
        yield Bar(f"allclose, first of 5e7 differs, {layout}", 1e6 * seconds, bar, "us", False)


def later_mismatch() -> Iterator[Bar]:
    a, b = common.layout_pair("contiguous", LARGE)
    whole = partial(calipers.allclose, a.copy(), b)
    for fraction, bar in ((0.01, 0.05), (0.5, 0.6), (0.99, 1.1)):
        with common.Mismatch("contiguous", LARGE, fraction):
            share = common.speedup(whole, partial(calipers.allclose, a, b), repeat=15)
        yield Bar(f"allclose, 5e7 differ at {fraction:.0%}", share, bar, "of a full pass", False)


def dtypes() -> Iterator[Bar]:
    for dtype in common.DTYPES:
        if dtype in ("float32", "float64"):
            continue
        try:
            equal = common.equal_pair(dtype, MEDIUM)
            *noisy, tolerances = common.noisy_pair(dtype, MEDIUM)
        except NotImplementedError:
            yield Bar(f"allclose, 1e7 {dtype}", None, 8, "x numpy")
            continue
        yield _over_numpy(f"1e7 equal {dtype}", 8, "allclose", *equal)
        yield _over_numpy(f"1e7 noisy {dtype}", 8, "allclose", *noisy, **tolerances)
        if dtype in common.INTEGERS:
            name = f"1e7 differ by atol, {dtype}"
            yield _over_numpy(name, 8, "allclose", *noisy, rtol=0.0, atol=1.0)


def layouts() -> Iterator[Bar]:
    for layout in ("strided", "transposed", "broadcast", "f4 and f8", "i4 and f8"):
        pair = common.layout_pair(layout, MEDIUM)
        yield _over_numpy(f"1e7 equal, {layout}", 2, "allclose", *pair)


def in_cache() -> Iterator[Bar]:
    for dtype in ("float64", "float32", "int64", "int8"):
        pair = common.equal_pair(dtype, FEW)
        for question in ("allclose", "isclose", "array_equal"):
            yield _over_numpy(f"3e4 {dtype}", 1, question, *pair, repeat=21)


def others() -> Iterator[Bar]:
    for dtype, bar in (("float64", 7), ("float32", 1), ("complex128", 1)):
        yield _over_numpy(f"1e7 {dtype}", bar, "isclose", *common.equal_pair(dtype, MEDIUM))
    for dtype in ("float64", "int64", "int8", "bool"):
        yield _over_numpy(f"1e7 {dtype}", 1, "array_equal", *common.equal_pair(dtype, MEDIUM))
    for dtype in ("float64", "float32"):
        yield _over_numpy(f"1e7 {dtype}", 1, "allfinite", common.values(dtype, MEDIUM))


def reports() -> Iterator[Bar]:
    for dtype in ("float64", "float32"):
        for difference in common.DIFFERENCES:
            a, b = common.differing_pair(difference, dtype, LARGE)
            own, peer = partial(calipers.compare, a, b), partial(NUMPY["allclose"], a, b)
            name = f"compare, 5e7 {dtype}, {difference}"
            yield Bar(name, common.speedup(own, peer, repeat=5), 1, "x numpy.allclose")
        a, b = common.differing_pair("close", dtype, MEDIUM)
        own, peer = partial(calipers.compare, a, b), partial(NUMPY["allclose"], a, b)
        with calipers.num_threads(1):
            share = common.speedup(peer, own, repeat=15)
        name = f"compare, 1e7 {dtype}, close, 1 thread"
        yield Bar(name, share, 0.4, "of numpy.allclose", False)


def assertions() -> Iterator[Bar]:
    sizes = ((10, "float64", 8, 21), (MEDIUM, "float64", 15, 7), (MEDIUM, "float32", 15, 7))
    for n, dtype, bar, repeat in sizes:
        a, b = common.equal_pair(dtype, n)
        own = partial(calipers.assert_close, a, b)
        name = f"assert_close, {n:,} {dtype}"
        numpy = common.speedup(own, peers.numpy_assert_allclose(a, b), repeat)
        yield Bar(name, numpy, bar, "x numpy.testing")
        torch = None
        with suppress(NotImplementedError):
            torch = common.speedup(own, peers.torch_assert_close(a, b), repeat)
        yield Bar(name, torch, bar, "x torch.testing")


def everyday() -> Iterator[Bar]:
    for case in ("float", "array"):
        work = bench_comparison.Approx()
        work.setup(case)
        yield Bar(f"approx, {case}", _measured(work.track_over_pytest, case), 1, "x pytest.approx")
    for question in bench_comparison.Tensors.params[0]:
        name, value = f"{question}, small: torch tensors", None
        with suppress(NotImplementedError):
            tensors = bench_comparison.Tensors()
            tensors.setup(question)
            value = tensors.track_over_torch(question)
        yield Bar(name, value, 1, "x torch")


def derivatives() -> Iterator[Bar]:
    x = bench_derivatives.point(10)
    own = partial(calipers.jacobian_function(bench_derivatives.broyden, x, out_like=x), x)
    common.medians(own)
    (seconds,) = common.medians(own, repeat=21)
    yield Bar("jacobian_function, 10 x 10", 1e6 * seconds, 6, "us", False)
    for n, bars in ((100, {1: 80, 2: 80}), (1000, {1: 25, 2: 45})):
        for count, bar in bars.items():
            case = bench_derivatives.Dense()
            case.setup(n, count)
            name = f"jacobian_function, {n} x {n}, {count} thread{'s' * (count > 1)}"
            ways = {
                ", in turns": case.track_over_scipy,
                ", in a row": case.track_over_scipy_in_a_row,
            }
            for way, track in ways.items() if n == 1000 else (("", case.track_over_scipy),):
                yield Bar(name + way, _measured(track, n, count), bar, "x scipy")
    name = "jacobian_function, 1000 x 1000, 1 thread"
    yield Bar(name, case.track_of_bare_calls(1000, 1), 1.5, "of 2n bare calls", False)
    yield Bar("jacobian, slow f, 2 threads", _two_threads(), 1.6, "x 1 thread")
    case = bench_derivatives.Batched()
    case.setup()
    yield Bar("jacobian, batched f, 1000 x 1000", _measured(case.track_over_scipy), 5, "x scipy")
    case = bench_derivatives.Adaptive()
    case.setup()
    name = "differentiate, 100 x 100"
    for way, track in (
        ("in turns", case.track_over_numdifftools),
        ("in a row", case.track_over_numdifftools_in_a_row),
    ):
        yield Bar(f"{name}, {way}", _measured(track), 50, "x numdifftools")
    yield Bar(name, _measured(case.track_over_jacobi), 20, "x jacobi")


def _measured(track: Callable[..., float], *given: Any) -> float | None:
    with suppress(NotImplementedError):
        return track(*given)
    return None


def _two_threads() -> float:
    x = bench_derivatives.point(min(200, common.SIZE))
    own = partial(calipers.jacobian, bench_derivatives.slow, x, out_like=x)

    def use_threads(side: int) -> None:
        calipers.set_num_threads(side + 1)
        own()

    with calipers.num_threads(calipers.get_num_threads()):
        one, two = common.medians(own, own, before=use_threads)
    return one / two


def sparse_derivatives() -> Iterator[Bar]:
    with suppress(NotImplementedError):
        case = bench_derivatives.Sparse()
        case.setup("2-point")
        name = "jacobian_function, tridiagonal, n = 1e6"
        yield Bar(f"{name}, fresh memory", case.track_over_scipy("2-point"), 35, "x scipy")
        value = case.track_over_scipy_in_a_row("2-point")
        yield Bar(f"{name}, in a row", value, 35, "x scipy")
        for name in ("tridiagonal", "5-point"):
            colors = bench_coloring.Columns()
            colors.setup(name)
            natural = colors.track_over_scipy_in_natural_order(name)
            yield Bar(f"coloring, {name}, n = 1e6", colors.track_over_scipy(name), 10, "x scipy")
            yield Bar(f"coloring, {name}, n = 1e6", natural, 3, "x scipy, natural order")


def gradchecks() -> Iterator[Bar]:
    for form in bench_gradcheck.FORMS:
        case = bench_gradcheck.Compiled()
        case.setup(10, form)
        milliseconds = 1e3 * common.medians(case.own)[0]
        yield Bar(f"gradcheck of {form}, n = 10", milliseconds, 1, "ms", at_least=False)
        case.setup(1000, form)
        for way, track in (
            ("in turns", case.track_over_torch),
            ("in a row", case.track_over_torch_in_a_row),
        ):
            name = f"gradcheck of {form}, compiled f, n = 1000, {way}"
            yield Bar(name, _measured(track, 1000, form), 50, "x torch, slow mode")
    with suppress(NotImplementedError):
        torch = bench_gradcheck.Torch()
        torch.setup()
        value = torch.track_over_torch()
        yield Bar("gradcheck of a torch function, n = 1000", value, 5, "x torch, slow mode")
        layer = bench_gradcheck.Layer()
        for check in layer.params[0]:
            layer.setup(check)
            value = layer.track_over_torch(check)
            yield Bar(f"{check} of torch's linear, 8 x 16 to 4", value, 1, "x torch, slow mode")
    fast = bench_gradcheck.FastMode()
    fast.setup()
    calls = fast.track_calls_of_f()
    label = "gradcheck, fast_mode, n = 1e5, most of 9 seeds"
    yield Bar(label, calls, 30, "calls of f", at_least=False)


def diagnoses() -> Iterator[Bar]:
    case = bench_diagnosis.Linear()
    case.setup()
    name = "diagnose, linear layer of 32 x 2048 x 512, overhead"
    yield Bar(name, case.track_overhead(), 0.2, "of the calls", False)


def startup() -> Iterator[Bar]:
    calipers.allclose(common.values("float64", 10), common.values("float64", 10))  # fills the cache
    codes = [
        (NUMBA_LOADED, FIRST_CALL),
        (NO_CACHE, FIRST_CALL),
        (NO_SCIPY + NO_CACHE, FIRST_CALL),
        ("", "import calipers"),
        ("", "import numpy"),
    ]
    samples = [[_seconds_in_fresh_process(*code) for code in codes] for _ in range(7)]
    warm, cold, alone, own_import, numpy_import = map(median, zip(*samples, strict=True))
    yield Bar("first call after import numba, disk cache", warm, 0.1, "s", False)
    name = "first call after import numba, no cache"
    yield Bar(name, cold, 0.8, "s", False)
    yield Bar(f"{name}, no SciPy", alone, 0.8, "s", False)
    yield Bar("import calipers", own_import / numpy_import, 1.3, "of import numpy", False)


def _seconds_in_fresh_process(setup: str, code: str) -> float:
    clock = "from time import perf_counter as clock"
    script = f"{clock}\n{setup}\nstart = clock()\n{code}\nprint(clock() - start)"
    command = [sys.executable, "-c", script]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def threads() -> Iterator[Bar]:
    for n in (LARGE, 10**4, 10**5, 3 * 10**5, 10**6, 3 * 10**6):
        a, b = common.equal_pair("float64", n)
        own = partial(calipers.allclose, a, b)

        def use_threads(side: int, own: Callable[[], bool] = own) -> None:
            calipers.set_num_threads(side + 1)
            own()  # starts the pool

        with calipers.num_threads(calipers.get_num_threads()):
            one, two = common.medians(own, own, repeat=15, before=use_threads)
        bar = 1.0 if n == LARGE else 0.9
        yield Bar(f"allclose, {n:,} float64, 2 threads", one / two, bar, "x 1 thread")


GROUPS: Sequence[Group] = (
    startup,
    small,
    in_cache,
    large_equal,
    first_mismatch,
    later_mismatch,
    dtypes,
    layouts,
    others,
    reports,
    assertions,
    everyday,
    derivatives,
    sparse_derivatives,
    gradchecks,
    diagnoses,
    threads,
)


def machine() -> str:
    """Name the processor, the cores, what else they do, and the versions."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [s for s in cpuinfo.read_text().splitlines() if s.startswith("model name")]
        model = names[0].partition(": ")[2] if names else model
    versions = [f"Python {platform.python_version()}"]
    for package in ("calipers", "numpy", "numba", "torch"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    threads = calipers.get_num_threads()
    cores = f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}), {threads} threads"
    return f"{model}, {cores}; {', '.join(versions)}"


def main(arguments: Sequence[str] | None = None, groups: Sequence[Group] = GROUPS) -> int:
    """Print the bars as they are measured; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print the README's table")
    markdown = parser.parse_args(arguments).markdown
    print(machine(), end="\n\n", flush=True)
    line = "| {} | {} | {} | {} |" if markdown else "{:<46} {:>22} {:>22}  {}"
    print(line.format("question", "measured", "bar", ""))
    if markdown:
        print("|---|---:|---:|---|")
    missed = 0
    for group in groups:
        for bar in group():
            print(line.format(*bar.cells), flush=True)
            missed += bar.status == "MISSED"
    if not markdown:
        print(f"\n{missed} missed" if missed else "\nevery bar measured is reached")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
