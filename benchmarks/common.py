"""What benchmarks share: arrays, timing in turns, and the plain read that bounds any comparison."""

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from math import isqrt
from statistics import median
from timeit import Timer
from typing import Any

import numba
import numpy as np

import calipers
from calipers._core import jit
from calipers._core.threads import first_result

from .peers import NUMPY

# Calls are measured as they are once they pay for compilation.
jit.WORK_TO_COMPILE = 0

with suppress(ImportError):
    import ml_dtypes  # noqa: F401  # names bfloat16 for NumPy

# Elements of a large array. Tests make it small.
SIZE = 10_000_000

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
INEXACT = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
DTYPES = INTEGERS + INEXACT
_SAMPLE_SECONDS = 2e-3
_PIECE_WORDS = (4 << 20) // 8  # of each array: as much as calipers reads in a task

Pair = tuple[Any, Any]


# Arrays. The caches hold a few at a time: one of 5e7 complex numbers is 800 MB.


@lru_cache(maxsize=3)
def values(dtype: str, n: int) -> np.ndarray:
    """Return n random numbers from 0 to 100, or booleans."""
    try:
        target = np.dtype(dtype)
    except TypeError:
        raise NotImplementedError(f"{dtype} needs ml_dtypes") from None
    random = np.random.default_rng(0)
    if target.kind in "biu":
        return random.integers(0, 2 if target.kind == "b" else 100, n, "i1").astype(target)
    # In place: a temporary would hide what a measured call allocates from the peak of memory.
    x = random.random(2 * n if target.kind == "c" else n)
    x *= 100
    return (x.view("c16") if target.kind == "c" else x).astype(target, copy=False)


@lru_cache(maxsize=3)
def equal_pair(dtype: str, n: int) -> Pair:
    return values(dtype, n), values(dtype, n).copy()


@lru_cache(maxsize=3)
def noisy_pair(dtype: str, n: int) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Return a pair that is close but unequal, and the tolerances for that."""
    a = values(dtype, n)
    if a.dtype.kind in "biu":
        return a, a ^ a.dtype.type(1), {"rtol": 0.0, "atol": 1.5}
    step = {"float16": 2e-3, "bfloat16": 1e-2}.get(dtype, 5e-6)
    part = "f4" if dtype == "bfloat16" else dtype
    return a, (a.astype(part) * (1 + step)).astype(a.dtype), {"rtol": 2 * step, "atol": 1e-6}


DIFFERENCES = ["equal", "close", "1 % differ", "all differ", "half NaN"]


@lru_cache(maxsize=2)
def differing_pair(difference: str, dtype: str, n: int) -> Pair:
    """Return a pair of floating arrays that differ in some way."""
    b = values(dtype, n)
    a = b.copy()
    if difference == "close":
        a *= 1 + {"float64": 5e-8, "float32": 5e-7}[dtype]  # within the default tolerances
    elif difference == "1 % differ":
        a[::100] += 1
    elif difference == "all differ":
        a += 1
    elif difference == "half NaN":
        a[::2] = np.nan
    return a, b


def _strided(x: np.ndarray) -> Pair:
    a = np.empty((x.size, 2))
    a[:, 0] = x
    return a[:, 0], a.copy()[:, 0]


def _square(x: np.ndarray) -> np.ndarray:
    side = isqrt(x.size)
    return x[: side * side].reshape(side, side).copy()


def _transposed(x: np.ndarray) -> Pair:
    a = _square(x)
    return a, np.asfortranarray(a)


def _broadcast(x: np.ndarray) -> Pair:
    row = x[: isqrt(x.size)].copy()
    return np.tile(row, (row.size, 1)), row


def _f4_f8(x: np.ndarray) -> Pair:
    a = x.astype("f4")
    return a, a.astype("f8")


def _i4_f8(x: np.ndarray) -> Pair:
    a = x.astype("i4")
    return a, a.astype("f8")


LAYOUTS: dict[str, Callable[[np.ndarray], Pair]] = {
    "contiguous": lambda x: (x.copy(), x.copy()),
    "strided": _strided,
    "transposed": _transposed,
    "broadcast": _broadcast,
    "f4 and f8": _f4_f8,
    "i4 and f8": _i4_f8,
    "byte-swapped": lambda x: (x.copy(), x.astype(">f8")),
}


@lru_cache(maxsize=2)
def layout_pair(layout: str, n: int) -> Pair:
    """Return an equal pair laid out differently; the first array has memory of its own."""
    return LAYOUTS[layout](values("float64", n))


class Mismatch:
    """A pair of a layout, unequal at a fraction of its length inside a ``with`` block."""

    def __init__(self, layout: str, n: int, fraction: float) -> None:
        self.pair = layout_pair(layout, n)
        self._position = int(fraction * self.pair[0].size)

    def __enter__(self) -> Pair:
        self.pair[0].flat[self._position] += 1
        return self.pair

    def __exit__(self, *error: object) -> None:
        a, b = self.pair
        a.flat[self._position] = np.broadcast_to(b, a.shape).flat[self._position]


def small_pairs() -> dict[str, Pair]:
    """Return 10 elements, and what a caller may have instead."""
    a = np.linspace(1.0, 2.0, 10)
    readonly = a.copy()
    readonly.flags.writeable = False
    return {
        "10 float64": (a, a.copy()),
        "0-d": (np.array(1.0), np.array(1.0)),
        "2-D": (a.reshape(2, 5), a.reshape(2, 5).copy()),
        "float32": (a.astype("f4"), a.astype("f4")),
        "read-only": (readonly, readonly.copy()),
        "scalar and array": (1.0, np.ones(10)),
        "lists": (a.tolist(), a.tolist()),
        "strided": (np.repeat(a, 2)[::2], a),
        "longdouble": (a.astype(np.longdouble), a.astype(np.longdouble)),
        "float32 and float64": (np.float32(a), np.float32(a).astype(float)),
    }


# Timing


def medians(
    *calls: Callable[[], Any], repeat: int = 7, before: Callable[[int], Any] | None = None
) -> list[float]:
    """
    Return the median seconds of each call, timed in turns: what slows the machine slows all.

    ``before(side)`` runs ahead of each sample of ``calls[side]``, untimed.
    """
    before = before or (lambda side: None)
    samples: list[list[float]] = [[] for _ in calls]
    timers = [Timer(call) for call in calls]
    numbers = []
    for side, timer in enumerate(timers):
        before(side)
        timer.timeit(1)  # builds kernels, touches memory
        numbers.append(max(1, int(_SAMPLE_SECONDS / timer.timeit(1))))
    for _ in range(repeat):
        for side, (timer, number) in enumerate(zip(timers, numbers, strict=True)):
            before(side)
            samples[side].append(timer.timeit(number) / number)
    return [median(own) for own in samples]


def speedup(own: Callable[[], Any], peer: Callable[[], Any], repeat: int = 7) -> float:
    own_seconds, peer_seconds = medians(own, peer, repeat=repeat)
    return peer_seconds / own_seconds


def speedup_in_a_row(own: Callable[[], Any], peer: Callable[[], Any], times: int = 5) -> float:
    """Compare several calls in a row: but for the first, what they need is in the caches."""

    def row() -> None:
        for _ in range(times):
            own()

    return times * speedup(row, peer)


def over_numpy(question: str, *arrays: Any, repeat: int = 7, **options: Any) -> float:
    """Return how many times faster calipers answers a question, "allclose" for instance."""
    own = partial(getattr(calipers, question), *arrays, **options)
    return speedup(own, partial(NUMPY[question], *arrays, **options), repeat)


@numba.njit(nogil=True)
def _or_words(x, y):
    total = np.uint64(0)
    for i in range(x.size):
        total |= x[i] | y[i]
    return total


def plain_read(a: np.ndarray, b: np.ndarray) -> Callable[[], Any]:
    """Return a call that only reads the arrays, whole words, on as many threads as calipers."""
    x, y = (array.view(np.uint64) for array in (a, b))

    def read(task: int) -> int:
        piece = slice(task * _PIECE_WORDS, (task + 1) * _PIECE_WORDS)
        _or_words(x[piece], y[piece])
        return -1

    tasks = -(-x.size // _PIECE_WORDS)
    return lambda: first_result(read, tasks, calipers.get_num_threads())


def table(rows: list[dict[str, Any]]) -> str:
    """Write rows as Markdown."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for row in rows:
        cells = [row.get(name, "") for name in names]
        shown = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in cells]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)
