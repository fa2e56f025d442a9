"""What `make bench` measures: calipers compared with its peers and with what the machine can do."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
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
from .bench_startup import (
    COMPILER_LOADED,
    FIRST_CALL,
    FIRST_CALLS,
    NO_CACHE,
    NO_SCIPY,
    NUMBA_LOADED,
    TRIVIAL_COMPILATION,
)
from .peers import NUMPY

LARGE, MEDIUM, FEW = 50_000_000, 10_000_000, 30_000  # elements
NOISE = 0.05  # relative difference of two runs of the same code: less is no difference in speed


def is_speed(unit: str) -> bool:
    """Return True for speeds, of which more is better; times and counts of calls are others."""
    return unit.startswith(("x ", "of the speed of "))


class Measurement(NamedTuple):
    """A value in a unit; None if it could not be measured."""

    name: str
    value: float | None
    unit: str

    @property
    def key(self) -> str:
        """Name the measurement with its unit: one call is compared with several peers."""
        return f"{self.name} [{self.unit}]"

    @property
    def shown(self) -> str:
        return "not measured" if self.value is None else f"{self.value:.3g} {self.unit}"

    @property
    def remark(self) -> str:
        """Say so where the peer is faster."""
        peer = self.unit.removeprefix("x ")
        if self.value is None or peer == self.unit or self.value >= 1 - NOISE:
            return ""
        return f"slower than {peer}"

    def reaches(self, target: float) -> bool:
        """Return True if the value is at least as good as the target, or was not measured."""
        if self.value is None:
            return True
        return self.value >= target if is_speed(self.unit) else self.value <= target


Group = Callable[[], Iterable[Measurement]]


def _over_numpy(name: str, question: str, *arrays: Any, **options: Any) -> Measurement:
    value = common.over_numpy(question, *arrays, **options)
    return Measurement(f"{question}, {name}", value, "x NumPy")


def _or_none(track: Callable[..., float], *arguments: Any) -> float | None:
    """Return what a benchmark measures, or None where its peer is not installed."""
    with suppress(NotImplementedError):
        return track(*arguments)
    return None


def startup() -> Iterator[Measurement]:
    calipers.allclose(common.values("float64", 10), common.values("float64", 10))  # fills the cache
    codes = [
        (NUMBA_LOADED, FIRST_CALL),
        (NO_CACHE, FIRST_CALL),
        (NO_SCIPY + NO_CACHE, FIRST_CALL),
        ("", "import calipers"),
        ("", "import numpy"),
        (COMPILER_LOADED, TRIVIAL_COMPILATION),
        *((COMPILER_LOADED + before, code) for before, code in FIRST_CALLS.values()),
    ]
    samples = [[_seconds_in_fresh_process(*code) for code in codes] for _ in range(7)]
    medians = list(map(median, zip(*samples, strict=True)))
    warm, cold, alone, own_import, numpy_import, trivial, *first_calls = medians
    name = "first allclose after import numba"
    yield Measurement(f"{name}, filled cache", warm, "s")
    yield Measurement(f"{name}, empty cache", cold, "s")
    yield Measurement(f"{name}, empty cache, without SciPy", alone, "s")
    yield Measurement("import calipers", own_import / numpy_import, "of import numpy")
    for name, seconds in zip(FIRST_CALLS, first_calls, strict=True):
        yield Measurement(
            f"first {name}, 10 numbers, empty cache",
            seconds / trivial,
            "of the time to compile x + 1",
        )


def _seconds_in_fresh_process(setup: str, code: str) -> float:
    clock = "from time import perf_counter as clock"
    script = f"{clock}\n{setup}\nstart = clock()\n{code}\nprint(clock() - start)"
    command = [sys.executable, "-c", script]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def small() -> Iterator[Measurement]:
    pairs = common.small_pairs()
    for case, pair in pairs.items():
        yield _over_numpy(f"small: {case}", "allclose", *pair, repeat=21)
    for case in ("10 float64", "strided"):
        yield _over_numpy(f"small: {case}", "isclose", *pairs[case], repeat=21)
    for case in ("10 float64", "strided", "lists", "longdouble", "float32 and float64"):
        yield _over_numpy(f"small: {case}", "array_equal", *pairs[case], repeat=21)
    for question in bench_comparison.Tensors.params[0]:
        value = None
        with suppress(NotImplementedError):
            tensors = bench_comparison.Tensors()
            tensors.setup(question)
            value = tensors.track_over_torch(question)
        yield Measurement(f"{question}, small: torch tensors", value, "x torch")


def in_cache() -> Iterator[Measurement]:
    for dtype in ("float64", "float32", "int64", "int8"):
        pair = common.equal_pair(dtype, FEW)
        for question in ("allclose", "isclose", "array_equal"):
            yield _over_numpy(f"3e4 {dtype}", question, *pair, repeat=21)
    for dtype in ("float64", "float32", "int64", "int8"):
        pair = common.equal_pair(dtype, 100_000)
        calls = (
            partial(getattr(calipers, question), *pair) for question in ("allclose", "isclose")
        )
        times = common.speedup(*calls, 21)
        yield Measurement(f"isclose, 1e5 {dtype}", times, "of the time of allclose")


def large() -> Iterator[Measurement]:
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
        yield Measurement(name, numpy, "x NumPy")
        yield Measurement(name, torch, "x torch")
        yield Measurement(name, read, "of the speed of a plain read")


def mismatches() -> Iterator[Measurement]:
    for layout in common.LAYOUTS:
        with common.Mismatch(layout, LARGE, 0.0) as (a, b):
            (seconds,) = common.medians(partial(calipers.allclose, a, b))
        name = f"allclose, first of 5e7 differs, {layout}"
        yield Measurement(name, 1e6 * seconds, "µs")
    a, b = common.layout_pair("contiguous", LARGE)
    whole = partial(calipers.allclose, a.copy(), b)
    for fraction in (0.01, 0.5, 0.99):
        with common.Mismatch("contiguous", LARGE, fraction):
            share = common.speedup(whole, partial(calipers.allclose, a, b), repeat=15)
        name = f"allclose, 5e7 differ at {fraction:.0%}"
        yield Measurement(name, share, "of the time of a full pass")


def dtypes() -> Iterator[Measurement]:
    for dtype in common.DTYPES:
        if dtype in ("float32", "float64"):
            continue
        try:
            equal = common.equal_pair(dtype, MEDIUM)
            *noisy, tolerances = common.noisy_pair(dtype, MEDIUM)
        except NotImplementedError:
            yield Measurement(f"allclose, 1e7 equal {dtype}", None, "x NumPy")
            continue
        yield _over_numpy(f"1e7 equal {dtype}", "allclose", *equal)
        yield _over_numpy(f"1e7 noisy {dtype}", "allclose", *noisy, **tolerances)
        if dtype in common.INTEGERS:
            yield _over_numpy(
                f"1e7 differ by atol, {dtype}", "allclose", *noisy, rtol=0.0, atol=1.0
            )


def layouts() -> Iterator[Measurement]:
    for layout in ("strided", "transposed", "broadcast", "f4 and f8", "i4 and f8"):
        pair = common.layout_pair(layout, MEDIUM)
        yield _over_numpy(f"1e7 equal, {layout}", "allclose", *pair)


def others() -> Iterator[Measurement]:
    for dtype in ("float64", "float32", "complex128"):
        yield _over_numpy(f"1e7 {dtype}", "isclose", *common.equal_pair(dtype, MEDIUM))
    for dtype in ("float64", "int64", "int8", "bool"):
        yield _over_numpy(f"1e7 {dtype}", "array_equal", *common.equal_pair(dtype, MEDIUM))
    for dtype in ("float64", "float32"):
        yield _over_numpy(f"1e7 {dtype}", "allfinite", common.values(dtype, MEDIUM))
    yield _over_numpy("1e7 strided", "allfinite", common.layout_pair("strided", MEDIUM)[0])


def reports() -> Iterator[Measurement]:
    for dtype in ("float64", "float32"):
        for difference in common.DIFFERENCES:
            a, b = common.differing_pair(difference, dtype, LARGE)
            own, peer = partial(calipers.compare, a, b), partial(NUMPY["allclose"], a, b)
            name = f"compare, 5e7 {dtype}, {difference}"
            yield Measurement(name, common.speedup(own, peer, repeat=5), "x numpy.allclose")
        a, b = common.differing_pair("close", dtype, MEDIUM)
        own, peer = partial(calipers.compare, a, b), partial(NUMPY["allclose"], a, b)
        with calipers.num_threads(1):
            value = common.speedup(own, peer, repeat=15)
        name = f"compare, 1e7 {dtype}, close, 1 thread"
        yield Measurement(name, value, "x numpy.allclose")


def assertions() -> Iterator[Measurement]:
    sizes = ((10, "float64", 21), (MEDIUM, "float64", 7), (MEDIUM, "float32", 7))
    for n, dtype, repeat in sizes:
        a, b = common.equal_pair(dtype, n)
        own = partial(calipers.assert_close, a, b)
        name = f"assert_close, {n:,} {dtype}"
        numpy = common.speedup(own, peers.numpy_assert_allclose(a, b), repeat)
        yield Measurement(name, numpy, "x numpy.testing")
        torch = None
        with suppress(NotImplementedError):
            torch = common.speedup(own, peers.torch_assert_close(a, b), repeat)
        yield Measurement(name, torch, "x torch.testing")
    for case in ("float", "array"):
        work = bench_comparison.Approx()
        work.setup(case)
        value = _or_none(work.track_over_pytest, case)
        yield Measurement(f"approx, {case}", value, "x pytest.approx")


def derivatives() -> Iterator[Measurement]:
    case = bench_derivatives.Python()
    for n in case.params[0]:
        case.setup(n)
        name = f"jacobian, NumPy f, {n} x {n}"
        yield Measurement(name, _or_none(case.track_over_scipy, n), "x SciPy")
    x = bench_derivatives.point(10)
    own = partial(calipers.jacobian_function(bench_derivatives.broyden, x, out_like=x), x)
    common.medians(own)
    (seconds,) = common.medians(own, repeat=21)
    yield Measurement("jacobian_function, 10 x 10", 1e6 * seconds, "µs")
    for n in (100, 1000):
        for count in (1, 2):
            case = bench_derivatives.Dense()
            case.setup(n, count)
            name = f"jacobian_function, {n} x {n}, {count} thread{'s' * (count > 1)}"
            value = _or_none(case.track_over_scipy, n, count)
            yield Measurement(name, value, "x SciPy")
            if n == 1000:
                value = _or_none(case.track_over_scipy_in_a_row, n, count)
                yield Measurement(f"{name}, repeated", value, "x SciPy")
    name = "jacobian_function, 1000 x 1000, 1 thread"
    value = case.track_of_bare_calls(1000, 1)
    yield Measurement(name, value, "of the time of 2n bare calls of f")
    yield Measurement("jacobian, slow f, 2 threads", _two_threads(), "x 1 thread")
    case = bench_derivatives.Batched()
    case.setup()
    value = _or_none(case.track_over_scipy)
    yield Measurement("jacobian, batched f, 1000 x 1000", value, "x SciPy")
    case = bench_derivatives.Adaptive()
    case.setup()
    name = "differentiate, 100 x 100"
    yield Measurement(name, _or_none(case.track_over_numdifftools), "x numdifftools")
    value = _or_none(case.track_over_numdifftools_in_a_row)
    yield Measurement(f"{name}, repeated", value, "x numdifftools")
    yield Measurement(name, _or_none(case.track_over_jacobi), "x jacobi")


def _two_threads() -> float:
    x = bench_derivatives.point(min(200, common.SIZE))
    own = partial(calipers.jacobian, bench_derivatives.slow, x, out_like=x)

    def use_threads(side: int) -> None:
        calipers.set_num_threads(side + 1)
        own()

    with calipers.num_threads(calipers.get_num_threads()):
        one, two = common.medians(own, own, before=use_threads)
    return one / two


def sparse_derivatives() -> Iterator[Measurement]:
    with suppress(NotImplementedError):
        case = bench_derivatives.Sparse()
        case.setup("2-point")
        name = "jacobian_function, tridiagonal, n = 1e6"
        yield Measurement(name, case.track_over_scipy("2-point"), "x SciPy")
        value = case.track_over_scipy_in_a_row("2-point")
        yield Measurement(f"{name}, repeated", value, "x SciPy")
        for name in ("tridiagonal", "5-point"):
            colors = bench_coloring.Columns()
            colors.setup(name)
            natural = colors.track_over_scipy_in_natural_order(name)
            title = f"coloring, {name}, n = 1e6"
            yield Measurement(title, colors.track_over_scipy(name), "x SciPy")
            yield Measurement(title, natural, "x SciPy in natural order")


def gradchecks() -> Iterator[Measurement]:
    peer = "x torch's slow mode"
    for form in bench_gradcheck.FORMS:
        case = bench_gradcheck.Compiled()
        case.setup(10, form)
        milliseconds = 1e3 * common.medians(case.own)[0]
        yield Measurement(f"gradcheck of {form}, n = 10", milliseconds, "ms")
        case.setup(1000, form)
        name = f"gradcheck of {form}, compiled f, n = 1000"
        yield Measurement(name, _or_none(case.track_over_torch, 1000, form), peer)
        value = _or_none(case.track_over_torch_in_a_row, 1000, form)
        yield Measurement(f"{name}, repeated", value, peer)
    with suppress(NotImplementedError):
        for n in (10, 1000):
            torch = bench_gradcheck.Torch()
            torch.setup(n)
            name = f"gradcheck of a torch function, n = {n}"
            yield Measurement(name, torch.track_over_torch(n), peer)
        layer = bench_gradcheck.Layer()
        for check in layer.params[0]:
            layer.setup(check)
            value = layer.track_over_torch(check)
            yield Measurement(f"{check} of torch's linear, 8 x 16 to 4", value, peer)
    fast = bench_gradcheck.FastMode()
    fast.setup()
    name = "gradcheck, fast_mode, n = 1e5, most of 9 seeds"
    yield Measurement(name, fast.track_calls_of_f(), "calls of f")


def diagnoses() -> Iterator[Measurement]:
    case = bench_diagnosis.Linear()
    case.setup()
    name = "diagnose, linear layer of 32 x 2048 x 512, overhead"
    yield Measurement(name, case.track_overhead(), "of the time of its calls")


def threads() -> Iterator[Measurement]:
    for n in (LARGE, 10**4, 10**5, 3 * 10**5, 10**6, 3 * 10**6):
        a, b = common.equal_pair("float64", n)
        own = partial(calipers.allclose, a, b)

        def use_threads(side: int, own: Callable[[], bool] = own) -> None:
            calipers.set_num_threads(side + 1)
            own()  # starts the pool

        with calipers.num_threads(calipers.get_num_threads()):
            one, two = common.medians(own, own, repeat=15, before=use_threads)
        yield Measurement(f"allclose, {n:,} float64, 2 threads", one / two, "x 1 thread")


GROUPS: Mapping[str, Group] = {
    "The first call": startup,
    "Small arrays": small,
    "Arrays that fit the cache": in_cache,
    "Large arrays": large,
    "A mismatch ends the pass": mismatches,
    "Data types": dtypes,
    "Layouts": layouts,
    "isclose, array_equal, allfinite": others,
    "Reports": reports,
    "Assertions": assertions,
    "Derivatives": derivatives,
    "Sparse derivatives": sparse_derivatives,
    "Checks of derivatives": gradchecks,
    "Diagnoses": diagnoses,
    "Threads": threads,
}
