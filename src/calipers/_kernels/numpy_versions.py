"""
NumPy versions of kernels, for calls that compilation would take longer than.

They have the parameters and the results of the kernels, to the last bit. One that meets pairs at
the ends of the range, which only the kernel's scalar rule decides, returns NotImplemented and
leaves its outputs as they were.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._core.dtypes import COMPLEX128, FLOAT64, INT64, UINT64, widest
from .._core.protocols import NDArray
from .accumulators import BLOCK, COUNTS, FIRST, LANES, LENGTH, PASSING, RANGE, SQUARES, add_lanes
from .scalar.closeness import HUGE, LOW, TINY
from .scalar.measures import BUCKETS, INF_BITS
from .scalar.reductions import SCALES, scale_of, two_sum, united_range

BATCH = 32 * BLOCK  # elements that are computed together, few enough for a cache
_POWERS = np.uint64(1) << np.arange(BUCKETS - 1, dtype=np.uint64)


class _Measures(NamedTuple):
    """The measures of pairs, those of `scalar.measures.measure`, which is the same rule."""

    d: NDArray
    size: NDArray
    bound: NDArray
    ulp: NDArray
    usual: NDArray


def _measured(a: NDArray, b: NDArray, rtol: float, atol: float, shift: int, unit: float) -> Any:
    """Measure pairs of one dtype: int64, uint64, float32, float64 or complex128."""
    ordinary_rtol = rtol == 0.0 or 2.0**-600 < rtol < 2.0**600
    if a.dtype.kind in "iu":
        x, y = a.view(np.uint64), b.view(np.uint64)
        ulp = np.where(a > b, x - y, y - x)
        d, size = ulp.astype(float), np.abs(b.astype(float))
        return _Measures(d, size, atol + rtol * size, ulp, (d < 2.0**53) & ordinary_rtol)
    if a.dtype.kind == "c":
        re, im = a.real - b.real, a.imag - b.imag
        d, size = (np.sqrt(x * x + y * y) for x, y in ((re, im), (b.real, b.imag)))
        bound = atol + rtol * size
        equal = (re == 0.0) & (im == 0.0)
        usual = equal | ((d > TINY) & (d < HUGE) & (bound > LOW) & (bound < np.inf))
        usual &= ((size > TINY) & (size < HUGE)) | (b == 0.0)
        parts = (_ulps(x, y, shift, unit) for x, y in ((a.real, b.real), (a.imag, b.imag)))
        return _Measures(d, size, bound, np.maximum(*parts), usual)
    d = np.abs(a.astype(float) - b.astype(float))
    size = np.abs(b.astype(float))
    bound = atol + rtol * size
    usual = (d < np.inf) & ordinary_rtol
    if a.dtype != np.float32:
        exact = (bound > LOW) | (size == 0.0) | (rtol == 0.0)
        usual = (d < np.inf) & (bound < np.inf) & (((d > 2.0 * LOW) & exact) | (d == 0.0))
    return _Measures(d, size, bound, _ulps(a, b, shift, unit), usual)


def _ulps(a: NDArray, b: NDArray, shift: int, unit: float) -> NDArray:
    """Return how many steps of a format lie from each a to b, as `scalar.measures.ulps`."""
    if a.dtype == np.float32:
        shift, unit = 0, 1.0
    bits = np.dtype(f"u{a.itemsize}")
    scale = a.dtype.type(unit)
    low, high = (
        np.ascontiguousarray(np.abs(x) * scale).view(bits) >> bits.type(shift) for x in (a, b)
    )
    same_sign = np.signbit(a) == np.signbit(b)
    steps: NDArray = np.where(same_sign, np.maximum(low, high) - np.minimum(low, high), low + high)
    return steps


def _batches(n: int) -> Any:
    return (slice(start, start + BATCH) for start in range(0, n, BATCH))


# Closeness


def first_mismatch(a: NDArray, b: NDArray, rtol: float, atol: float, equal_nan: bool) -> Any:
    """Return the position of the first pair that is not close, or -1."""
    for batch in _batches(a.size):
        close = _close(a[batch], b[batch], rtol, atol, equal_nan)
        if close is None:
            return NotImplemented
        if not close.all():
            return batch.start + int(close.argmin())
    return -1


def mask(a: NDArray, b: NDArray, rtol: float, atol: float, equal_nan: bool, out: NDArray) -> Any:
    """Write each pair's verdict."""
    for batch in _batches(a.size):
        close = _close(a[batch], b[batch], rtol, atol, equal_nan)
        if close is None:
            return NotImplemented
        out[batch] = close
    return -1


def _close(a: NDArray, b: NDArray, rtol: float, atol: float, equal_nan: bool) -> NDArray | None:
    """Return which pairs are close; None if one is not usual."""
    a, b = (x.view(np.uint8) != 0 if x.dtype.kind == "b" else x for x in (a, b))
    dtypes = {widest(x.dtype) for x in (a, b)}
    if dtypes == {INT64, UINT64}:
        return None
    wide = dtypes.pop() if len(dtypes) == 1 else COMPLEX128 if COMPLEX128 in dtypes else FLOAT64
    with np.errstate(all="ignore"):
        a, b = a.astype(wide), b.astype(wide)
        close: NDArray = a == b
        finite = np.isfinite(a) & np.isfinite(b)
        measures = _measured(a, b, rtol, atol, 0, 1.0)
        if not (measures.usual | close | ~finite).all():
            return None
        close |= finite & (measures.d <= measures.bound)
        if equal_nan:
            close |= np.isnan(a) & np.isnan(b)
    return close


# The report of a comparison


def tally(
    a: NDArray,
    b: NDArray,
    rtol: float,
    atol: float,
    max_ulp: int,
    equal_nan: bool,
    shift: int,
    unit: float,
    start: int,
    tallies: NDArray,
    axes: NDArray,
    counts: NDArray,
    workspace: NDArray,
) -> Any:
    """Add the comparison of two vectors to a tally; a[0] is at position `start` in C order."""
    if a.dtype != b.dtype:  # int64 and uint64
        return NotImplemented
    rule = rtol, atol, shift, unit
    record = tallies[0]
    lanes, reference_lanes = np.zeros((2, len(SCALES), 2, LANES))
    with np.errstate(all="ignore"):
        for batch in _batches(a.size):
            x, y = a[batch], b[batch]
            if not (_measured(x, y, *rule).usual | ~_finite(x, y)).all():
                return NotImplemented
        for batch in _batches(a.size):
            x, y = a[batch], b[batch]
            finite = _finite(x, y)
            d, size, bound, ulp, _ = _measured(x, y, *rule)
            d, size, ulp = (np.where(finite, v, v.dtype.type(0)) for v in (d, size, ulp))
            far = ulp > max_ulp if max_ulp >= 0 else d > bound
            x_nan, y_nan = np.isnan(x), np.isnan(y)
            accepted = (x == y) | (x_nan & y_nan & equal_nan)
            bad = np.where(finite, far, ~accepted)
            record["size"] += x.size
            record["finite"] += finite.sum()
            record["nan_both"] += (x_nan & y_nan).sum()
            record["nan_actual"] += (x_nan & ~y_nan).sum()
            record["nan_expected"] += (y_nan & ~x_nan).sum()
            record["infinite"] += (bad & ~finite & ~x_nan & ~y_nan).sum()
            if a.dtype.kind != "c":
                record["signs"] += (bad & finite & ((x < 0) & (y > 0) | (x > 0) & (y < 0))).sum()
            first = start + batch.start
            note_mismatches(first + np.flatnonzero(bad), record, axes, counts)
            for name, other in zip(PASSING, (atol, rtol), strict=True):
                passing = float(record[name])
                record[name] = _passing(passing, other, name == "passing_rtol", d, size)
            excess = _ulp_excess(ulp, max_ulp) if max_ulp >= 0 else _quotient(d, bound)
            for name, values in (
                ("excess", excess),
                ("absolute", d),
                ("relative", _quotient(d, size)),
                ("ulp", ulp),
            ):
                k = int(values.argmax())
                if values[k] > record[name]:
                    record[name], record[f"{name}_at"] = values[k], first + k
            buckets = np.digitize(ulp[finite].astype(np.uint64), _POWERS)
            record["histogram"] += np.bincount(buckets, minlength=BUCKETS)
            _add_squares(d, lanes)
            _add_squares(size, reference_lanes)
        for name, of_lanes in zip(SQUARES, (lanes, reference_lanes), strict=True):
            sums = record[name].astype(object)  # Python adds its own floats faster
            add_lanes(of_lanes.astype(object), sums)
            record[name] = sums
    return None


def _finite(a: NDArray, b: NDArray) -> NDArray:
    both: NDArray = np.isfinite(a) & np.isfinite(b)
    return both


def _quotient(d: NDArray, unit: NDArray) -> NDArray:
    """Return d/unit, 0 for 0/0."""
    return np.where(d > 0.0, d / unit, 0.0)


def _ulp_excess(ulp: NDArray, max_ulp: int) -> NDArray:
    """Return ulp/max_ulp, greater than 1 if ulp > max_ulp, as `scalar.measures.ulp_excess`."""
    quotient = ulp.astype(float) / float(max_ulp)
    within = quotient if max_ulp > 0 else 0.0
    return np.where(ulp <= max_ulp, within, np.maximum(quotient, 1.0 + 2.0**-52))


def note_mismatches(positions: NDArray, record: Any, axes: NDArray, counts: NDArray) -> None:
    """Count the mismatches of a part, from their positions in C order, and where they lie."""
    if not positions.size:
        return
    record["mismatches"] += positions.size
    count = np.count_nonzero(record["first"] >= 0)
    more = positions[: FIRST - count]
    record["first"][count : count + more.size] = more
    for axis, indices in zip(axes, np.unravel_index(positions, axes[:, LENGTH]), strict=True):
        low, high = int(indices.min()), int(indices.max())
        step = int(np.gcd.reduce(indices - indices[0]))
        axis[:RANGE] = united_range(*axis[:RANGE].tolist(), low, high, step)
        if axis[COUNTS] >= 0:
            length = axis[LENGTH]
            counts[axis[COUNTS] :][:length] += np.bincount(indices, minlength=length)


def _passing(passing: float, other: float, relative: bool, d: NDArray, size: NDArray) -> float:
    """Return the smallest tolerance that passes all pairs, and is at least `passing`."""

    def exceeds(tolerance: float, d: Any, size: Any) -> Any:
        rtol, atol = (tolerance, other) if relative else (other, tolerance)
        return d > atol + rtol * size

    failing = exceeds(passing, d, size)
    if not failing.any():
        return passing
    d, size = d[failing], size[failing]
    # The pair that needs most comes first: seldom does another need more than it.
    need = (d - other) / size if relative else d - other * size
    k = need.argmax()
    one, its_size = d[k].item(), size[k].item()
    passing = _bisected(lambda tolerance: exceeds(tolerance, one, its_size), passing)
    if exceeds(passing, d, size).any():
        return _bisected(lambda tolerance: exceeds(tolerance, d, size).any(), passing)
    return passing


def _bisected(fails: Callable[[float], bool], failing: float) -> float:
    """Return the smallest number that does not fail, above one that does."""
    low, high = int(np.float64(failing).view(np.int64)), INF_BITS
    while high - low > 1:
        middle = (low + high) // 2
        if fails(float(np.int64(middle).view(np.float64))):
            low = middle
        else:
            high = middle
    return float(np.int64(high).view(np.float64))


def _add_squares(values: NDArray, lanes: NDArray) -> None:
    """Add squares to the sums of many lanes, in the order of `accumulators.add_squares`."""
    padded = np.zeros(-(-values.size // BLOCK) * BLOCK)
    padded[: values.size] = values
    for block in padded.reshape(-1, BLOCK):
        largest = block.max()
        if not largest > 0.0:
            continue
        scale = scale_of(largest)
        sums = (block * SCALES[scale]) ** 2
        while sums.size > LANES:
            low, high = sums.reshape(2, -1)
            sums = low + high
        lanes[scale, 0], error = two_sum(lanes[scale, 0], sums)
        lanes[scale, 1] += error
